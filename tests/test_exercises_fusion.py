"""Wrong answers to the exercises of lessons 30 and 33: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab import exercises

pytestmark = needs_solutions

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
        r"a map of 2 × 3 with 5 channels: element \[0, 1, 1\] is -1.* is right",
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
            largest = -1e30
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
        r"[\d,]+ elements of x are loaded for 2,048 outputs; 8,360 are enough",
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
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"
