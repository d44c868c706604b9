"""Wrong answers to the exercises of lessons 30 and 33: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

# 33_1 with what one pixel of `between` is made of, and what stands between the two parts.
EXPAND = """
between = cuda.shared.array((FILTERS, HALO, HALO), float32)
row, column = cuda.threadIdx.y, cuda.threadIdx.x
p0, q0, f0 = cuda.blockIdx.y * SIDE, cuda.blockIdx.x * SIDE, cuda.blockIdx.z * FILTERS
for k in range(row * SIDE + column, HALO * HALO, SIDE * SIDE):
    h, v = p0 - 1 + k // HALO, q0 - 1 + k % HALO
    inside = 0 <= h < x.shape[1] and 0 <= v < x.shape[2]
    s0 = s1 = s2 = s3 = float32(0)
    {pixel}
    between[0, k // HALO, k % HALO] = max(s0, float32(0))
    between[1, k // HALO, k % HALO] = max(s1, float32(0))
    between[2, k // HALO, k % HALO] = max(s2, float32(0))
    between[3, k // HALO, k % HALO] = max(s3, float32(0))
{barrier}
p, q = p0 + row, q0 + column
if p < y.shape[1] and q < y.shape[2]:
    for f in range(FILTERS):
        total = float32(0)
        for i in range(3):
            for j in range(3):
                total += w2[f0 + f, i, j] * between[f, row + i, column + j]
        y[f0 + f, p, q] = total
"""
BIAS = "s0, s1, s2, s3 = b1[f0], b1[f0 + 1], b1[f0 + 2], b1[f0 + 3]"
SUMS = """for c in range(x.shape[0]):
            value = x[c, h, v]
            s0 += w1[f0, c] * value
            s1 += w1[f0 + 1, c] * value
            s2 += w1[f0 + 2, c] * value
            s3 += w1[f0 + 3, c] * value"""
APART = """for c in range(x.shape[0]):
            s0 += w1[f0, c] * x[c, h, v]
        for c in range(x.shape[0]):
            s1 += w1[f0 + 1, c] * x[c, h, v]
        for c in range(x.shape[0]):
            s2 += w1[f0 + 2, c] * x[c, h, v]
        for c in range(x.shape[0]):
            s3 += w1[f0 + 3, c] * x[c, h, v]"""
RIGHT = f"if inside:\n        {BIAS}\n        {SUMS}"

WRONG = [
    (
        "30_1",
        "lanes along a row",
        """
        at = cuda.grid(1)
        if at < y.size:
            q = at % y.shape[1]
            p = at // y.shape[1] % y.shape[0]
            c = at // (y.shape[1] * y.shape[0])
            largest = float32(-math.inf)
            for i in range(3):
                for j in range(3):
                    h = 2 * p - 1 + i
                    v = 2 * q - 1 + j
                    if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
                        largest = max(largest, x[h, v, c])
            y[p, q, c] = largest
        """,
        r"load of x: [\d,]+ sectors in [\d,]+ requests, \d\d\.\d sectors per request",
    ),
    (
        "30_1",
        "zero for what lies outside",
        """
        at = cuda.grid(1)
        if at < y.size:
            c = at % y.shape[2]
            q = at // y.shape[2] % y.shape[1]
            p = at // (y.shape[2] * y.shape[1])
            largest = float32(0)
            for i in range(3):
                for j in range(3):
                    h = 2 * p - 1 + i
                    v = 2 * q - 1 + j
                    if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
                        largest = max(largest, x[h, v, c])
            y[p, q, c] = largest
        """,
        r"a map of 1 × 1 with 1 channels: element \[0, 0, 0\] is 0; -\d",
    ),
    (
        "30_1",
        "no test for the column",
        """
        at = cuda.grid(1)
        if at < y.size:
            c = at % y.shape[2]
            q = at // y.shape[2] % y.shape[1]
            p = at // (y.shape[2] * y.shape[1])
            largest = float32(-math.inf)
            for i in range(3):
                for j in range(3):
                    h = 2 * p - 1 + i
                    v = 2 * q - 1 + j
                    if 0 <= h < x.shape[0]:
                        largest = max(largest, x[h, v, c])
            y[p, q, c] = largest
        """,
        r"[Nn]egative index",
    ),
    (
        "30_1",
        "stride 1",
        """
        at = cuda.grid(1)
        if at < y.size:
            c = at % y.shape[2]
            q = at // y.shape[2] % y.shape[1]
            p = at // (y.shape[2] * y.shape[1])
            largest = float32(-math.inf)
            for i in range(3):
                for j in range(3):
                    h = p - 1 + i
                    v = q - 1 + j
                    if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
                        largest = max(largest, x[h, v, c])
            y[p, q, c] = largest
        """,
        r"a map of 2 × 3 with 5 channels: element \[0, 1, \d\] is -?\d.* is right",
    ),
    (
        "30_1",
        "a maximum in float64",
        """
        at = cuda.grid(1)
        if at < y.size:
            c = at % y.shape[2]
            q = at // y.shape[2] % y.shape[1]
            p = at // (y.shape[2] * y.shape[1])
            largest = -3.4e38
            for i in range(3):
                for j in range(3):
                    h = 2 * p - 1 + i
                    v = 2 * q - 1 + j
                    if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
                        largest = max(largest, x[h, v, c] * 1.0)
            y[p, q, c] = largest
        """,
        r"float64 operations",
    ),
    (
        "30_2",
        "the padding loaded by the naive kernel",
        "naive_5x5 = 28 * 28 * 25\ntiles_5x5 = 1024\ntiles_stride_2 = 3249\nsectors_nchw = 320\nsectors_nhwc = 180",
        r"`naive_5x5`: you predicted 19,600 elements; fewer were counted",
    ),
    (
        "30_2",
        "the padding loaded by the tiles",
        "naive_5x5 = 17956\ntiles_5x5 = (2 * 18) ** 2\ntiles_stride_2 = 3249\nsectors_nchw = 320\nsectors_nhwc = 180",
        r"`tiles_5x5`: you predicted 1,296 elements; fewer were counted",
    ),
    (
        "30_2",
        "no row shared with stride 2",
        "naive_5x5 = 17956\ntiles_5x5 = 1024\ntiles_stride_2 = 56 ** 2\nsectors_nchw = 320\nsectors_nhwc = 180",
        r"`tiles_stride_2`: you predicted 3,136 elements; more were counted",
    ),
    (
        "30_2",
        "elements over eight for sectors",
        "naive_5x5 = 17956\ntiles_5x5 = 1024\ntiles_stride_2 = 3249\nsectors_nchw = 8 * 10 * 3\nsectors_nhwc = 180",
        r"`sectors_nchw`: you predicted 240 sectors; more were counted",
    ),
    (
        "30_3",
        "nine loads an output",
        """
        q = cuda.blockIdx.x * 32 + cuda.threadIdx.x
        c = cuda.blockIdx.z
        if q < x.shape[2]:
            for k in range(ROWS):
                p = cuda.blockIdx.y * ROWS + k
                if p < x.shape[1]:
                    total = float32(0)
                    for i in range(3):
                        for j in range(3):
                            h = p - 1 + i
                            v = q - 1 + j
                            if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]:
                                total += w[c, i, j] * x[c, h, v]
                    y[c, p, q] = total
        """,
        r"[\d,]+ elements of x are loaded for 2,048 of y; 8,360 are enough",
    ),
    (
        "30_3",
        "weights at every row",
        """
        sums = cuda.local.array(ROWS, float32)
        q = cuda.blockIdx.x * 32 + cuda.threadIdx.x
        p0 = cuda.blockIdx.y * ROWS
        c = cuda.blockIdx.z
        if q < x.shape[2]:
            for k in range(ROWS):
                sums[k] = 0
            for r in range(ROWS + 2):
                h = p0 - 1 + r
                if 0 <= h < x.shape[1]:
                    left = x[c, h, q - 1] if q > 0 else float32(0)
                    middle = x[c, h, q]
                    right = x[c, h, q + 1] if q + 1 < x.shape[2] else float32(0)
                    for k in range(ROWS):
                        i = r - k
                        if 0 <= i < 3:
                            sums[k] += w[c, i, 0] * left + w[c, i, 1] * middle + w[c, i, 2] * right
            for k in range(ROWS):
                if p0 + k < y.shape[1]:
                    y[c, p0 + k, q] = sums[k]
        """,
        r"[\d,]+ requests load w; 144 are enough",
    ),
    (
        "30_3",
        "the rows above and below left out",
        """
        f = cuda.local.array(9, float32)
        sums = cuda.local.array(ROWS, float32)
        q = cuda.blockIdx.x * 32 + cuda.threadIdx.x
        p0 = cuda.blockIdx.y * ROWS
        c = cuda.blockIdx.z
        if q < x.shape[2]:
            for k in range(9):
                f[k] = w[c, k // 3, k % 3]
            for k in range(ROWS):
                sums[k] = 0
            for r in range(1, ROWS + 1):
                h = p0 - 1 + r
                if h < x.shape[1]:
                    left = x[c, h, q - 1] if q > 0 else float32(0)
                    middle = x[c, h, q]
                    right = x[c, h, q + 1] if q + 1 < x.shape[2] else float32(0)
                    for k in range(ROWS):
                        i = r - k
                        if 0 <= i < 3:
                            sums[k] += f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] * right
            for k in range(ROWS):
                if p0 + k < y.shape[1]:
                    y[c, p0 + k, q] = sums[k]
        """,
        r"C=2 H=5 W=33: element \[0, 3, 0\] is",
    ),
    (
        "30_3",
        "no test for the last column",
        """
        f = cuda.local.array(9, float32)
        sums = cuda.local.array(ROWS, float32)
        q = cuda.blockIdx.x * 32 + cuda.threadIdx.x
        p0 = cuda.blockIdx.y * ROWS
        c = cuda.blockIdx.z
        if q < x.shape[2]:
            for k in range(9):
                f[k] = w[c, k // 3, k % 3]
            for k in range(ROWS):
                sums[k] = 0
            for r in range(ROWS + 2):
                h = p0 - 1 + r
                if 0 <= h < x.shape[1]:
                    left = x[c, h, q - 1] if q > 0 else float32(0)
                    middle = x[c, h, q]
                    right = x[c, h, q + 1]
                    for k in range(ROWS):
                        i = r - k
                        if 0 <= i < 3:
                            sums[k] += f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] * right
            for k in range(ROWS):
                if p0 + k < y.shape[1]:
                    y[c, p0 + k, q] = sums[k]
        """,
        r"[Oo]ut of bounds",
    ),
    (
        "33_1",
        "a bias outside of the map",
        EXPAND.format(pixel=f"{BIAS}\n    if inside:\n        {SUMS}", barrier="cuda.syncthreads()"),
        r"C=1 F=4 H=1 W=1: element \[0, 0, 0\] is",
    ),
    (
        "33_1",
        "no barrier",
        EXPAND.format(pixel=RIGHT, barrier=""),
        r"[Rr]ace: .* reads between element",
    ),
    (
        "33_1",
        "x loaded for each filter",
        EXPAND.format(pixel=f"if inside:\n        {BIAS}\n        {APART}", barrier="cuda.syncthreads()"),
        r"16,128 elements of x are loaded; 4,032 are enough",
    ),
    (
        "33_1",
        "no halo",
        EXPAND.format(
            pixel=RIGHT.replace("if inside:", "if inside and p0 <= h < p0 + SIDE and q0 <= v < q0 + SIDE:"),
            barrier="cuda.syncthreads()",
        ),
        r"C=2 F=8 H=8 W=9: element \[0, 0, 7\] is",
    ),
    (
        "33_2",
        "x once for each tile",
        "x = 16 * 14**2\nw1 = 1728\nw2 = 1536\nmore_work = 54.5\nmore_small_tile = 5232\nfewer_whole = 4608",
        r"`x`: you predicted 3,136 elements; more were counted",
    ),
    (
        "33_2",
        "the padding loaded",
        "x = 3 * 4 * 16 * 64\nw1 = 1728\nw2 = 1536\nmore_work = 54.5\nmore_small_tile = 5232\nfewer_whole = 4608",
        r"`x`: you predicted 12,288 elements; fewer were counted",
    ),
    (
        "33_2",
        "all filters for each block",
        "x = 9408\nw1 = 1728\nw2 = 12 * 24 * 16\nmore_work = 54.5\nmore_small_tile = 5232\nfewer_whole = 4608",
        r"`w2`: you predicted 4,608 elements; fewer were counted",
    ),
    (
        "33_2",
        "work of the depthwise layer alone",
        "x = 9408\nw1 = 1728\nw2 = 1536\nmore_work = 200\nmore_small_tile = 5232\nfewer_whole = 4608",
        r"`more_work`: you predicted 200 percent; that is too high",
    ),
    (
        "33_2",
        "fusing must save",
        "x = 9408\nw1 = 1728\nw2 = 1536\nmore_work = 54.5\nmore_small_tile = -4608\nfewer_whole = 4608",
        r"`more_small_tile`: you predicted -4,608 elements; more were counted",
    ),
    (
        "33_3",
        "the largest gain first",
        """
        def gain(piece):
            return sum(costs[i, i + 1] for i in range(*piece)) - costs[piece]

        taken, pieces = set(), []
        for piece in sorted(costs, key=gain, reverse=True):
            if not taken & set(range(*piece)):
                taken |= set(range(*piece))
                pieces.append(piece)
        return sorted(pieces)
        """,
        r"4 layers: \[\(0, 1\), \(1, 3\), \(3, 4\)\] costs 33; \[\(0, 2\), \(2, 4\)\] costs 28",
    ),
    (
        "33_3",
        "pieces that overlap",
        "return [piece for piece in sorted(costs) if piece[1] - piece[0] == 2] or [(0, 1)]",
        r"4 layers: .* has two kernels for a layer",
    ),
    (
        "33_3",
        "no layer at the end",
        "return [(i, i + 1) for i in range(count - 1)]",
        r"1 layers: \[\] has no kernel for layer 0",
    ),
    (
        "33_3",
        "a piece that has no kernel",
        "return [(0, count)]",
        r"4 layers: there is no kernel for \(0, 4\)",
    ),
    (
        "33_3",
        "pairs only",
        """
        least, plans = [0.0], [[]]
        for end in range(1, count + 1):
            ways = [(least[i] + costs[i, end], plans[i] + [(i, end)])
                    for i in (end - 2, end - 1) if i >= 0 and (i, end) in costs]
            best = min(ways)
            least.append(best[0])
            plans.append(best[1])
        return plans[count]
        """,
        r"9 layers: .* costs .*; .* costs",
    ),
    (
        "33_3",
        "all plans, one after the other",
        """
        def best(start):
            if start == count:
                return 0.0, []
            ways = []
            for end in range(start + 1, count + 1):
                if (start, end) in costs:
                    cost, rest = best(end)
                    ways.append((costs[start, end] + cost, [(start, end), *rest]))
            return min(ways)

        return best(0)[1]
        """,
        r"Costs were looked up 60,000 times for 120 layers",
    ),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"
