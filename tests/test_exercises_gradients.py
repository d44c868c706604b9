"""Wrong answers to the exercises of lessons 20 and 21: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

WRONG = [
    (
        "20_1",
        "forward's direction",
        """
        s = cuda.grid(1)
        h, b = cuda.blockIdx.y, cuda.blockIdx.z
        if s < dx.shape[2]:
            acc = float32(0)
            for t in range(s // 2 + 1):
                j = s - 2 * t
                if j < w.shape[1]:
                    acc += w[h, j] * dy[b, h, t]
            dx[b, h, s] = acc
        """,
        r"B=1 H=1 L=2 K=3: element \[0, 0, 1\] is -?\d.*; 0 is right",
    ),
    (
        "20_1",
        "the hour s // 2 as the first",
        """
        s = cuda.grid(1)
        h, b = cuda.blockIdx.y, cuda.blockIdx.z
        if s < dx.shape[2]:
            acc = float32(0)
            for t in range(s // 2, dy.shape[2]):
                j = 2 * t - s
                if j < w.shape[1]:
                    acc += w[h, j] * dy[b, h, t]
            dx[b, h, s] = acc
        """,
        r"negative index: w",
    ),
    (
        "20_1",
        "no guard",
        """
        s = cuda.grid(1)
        h, b = cuda.blockIdx.y, cuda.blockIdx.z
        acc = float32(0)
        for t in range((s + 1) // 2, dy.shape[2]):
            j = 2 * t - s
            if j < w.shape[1]:
                acc += w[h, j] * dy[b, h, t]
        dx[b, h, s] = acc
        """,
        r"out of bounds: dx",
    ),
    (
        "20_1",
        "all taps, half of them in vain",
        """
        s = cuda.grid(1)
        h, b = cuda.blockIdx.y, cuda.blockIdx.z
        if s < dx.shape[2]:
            acc = float32(0)
            for j in range(w.shape[1]):
                if (s + j) % 2 == 0 and (s + j) // 2 < dy.shape[2]:
                    acc += w[h, j] * dy[b, h, (s + j) // 2]
            dx[b, h, s] = acc
        """,
        r"[\d,]+ requests load dy; 1,152 are enough: of 16 taps each lane has 8",
    ),
    (
        "20_1",
        "a scatter",
        """
        t = cuda.grid(1)
        h, b = cuda.blockIdx.y, cuda.blockIdx.z
        if t < dx.shape[2]:
            dx[b, h, t] = 0
        cuda.syncthreads()
        if t < dy.shape[2]:
            for j in range(min(w.shape[1], 2 * t + 1)):
                cuda.atomic.add(dx, (b, h, 2 * t - j), w[h, j] * dy[b, h, t])
        """,
        r"race: .* dx element",
    ),
    (
        "20_1",
        "double precision",
        """
        s = cuda.grid(1)
        h, b = cuda.blockIdx.y, cuda.blockIdx.z
        if s < dx.shape[2]:
            acc = 0.0
            for t in range((s + 1) // 2, dy.shape[2]):
                j = 2 * t - s
                if j >= w.shape[1]:
                    break
                acc += w[h, j] * dy[b, h, t]
            dx[b, h, s] = acc
        """,
        r"Line \d+, `acc \+= w\[h, j\] \* dy\[b, h, t\]`: [\d,]+ float64 operations",
    ),
    (
        "20_2",
        "the padding not mirrored",
        "mirrored_left = 25\nfirst = 26\nlast = 15\nload_requests = 7040\nloaded = 110",
        r"`mirrored_left`: you predicted 25 zeros; fewer were counted",
    ),
    (
        "20_2",
        "first and last exchanged, as in forward",
        "mirrored_left = 14\nfirst = 15\nlast = 26\nload_requests = 7040\nloaded = 110",
        r"`first`: you predicted 15 products; more were counted",
    ),
    (
        "20_2",
        "all taps in the last tile",
        "mirrored_left = 14\nfirst = 26\nlast = 15\nload_requests = 2 * 32 * 120\nloaded = 110",
        r"`load_requests`: you predicted 7,680 requests; fewer were counted",
    ),
    (
        "20_2",
        "a halo on the left",
        "mirrored_left = 14\nfirst = 26\nlast = 15\nload_requests = 7040\nloaded = 64 + 55",
        r"`loaded`: you predicted 119 elements; fewer were counted",
    ),
    (
        "20_3",
        "tiles from the left",
        """
        t = cuda.blockIdx.y * TILE + cuda.threadIdx.x
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        b, h = row // x.shape[1], row % x.shape[1]
        if b < x.shape[0] and t < x.shape[2]:
            acc = float32(0)
            for j in range(w.shape[1]):
                s = t + shift - j
                if 0 <= s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
            y[b, h, t] = acc
        """,
        r"L=48 K=48 .*: 5,120 requests load x and w; 4,096 are enough: 64 taps for each of 32 rows",
    ),
    (
        "20_3",
        "no guard before the row",
        """
        t = cuda.blockIdx.y * TILE + cuda.threadIdx.x - (cuda.gridDim.y * TILE - x.shape[2])
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        b, h = row // x.shape[1], row % x.shape[1]
        if b < x.shape[0]:
            acc = float32(0)
            for j in range(w.shape[1]):
                s = t + shift - j
                if 0 <= s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
            y[b, h, t] = acc
        """,
        r"\d+ of \d+ problems, first .*negative index",
    ),
    (
        "20_3",
        "moved by too much where the row is full",
        """
        t = cuda.blockIdx.y * TILE + cuda.threadIdx.x - (TILE - x.shape[2] % TILE)
        row = cuda.blockIdx.x * ROWS + cuda.threadIdx.y
        b, h = row // x.shape[1], row % x.shape[1]
        if b < x.shape[0] and t >= 0:
            acc = float32(0)
            for j in range(w.shape[1]):
                s = t + shift - j
                if 0 <= s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
            y[b, h, t] = acc
        """,
        r"\d+ of \d+ problems, first .* L=32 ",
    ),
    (
        "21_1",
        "atomics",
        """
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        h, p = cuda.blockIdx.x, cuda.blockIdx.y
        if lane == 0 and warp == 0:
            parts[p, h] = 0
        cuda.syncthreads()
        acc = float32(0)
        for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]):
            for t in range(lane, dy.shape[2], 32):
                acc += dy[b, h, t]
        cuda.atomic.add(parts, (p, h), acc)
        """,
        r"32 requests for atomics: they come in any order, so the last bits would change",
    ),
    (
        "21_1",
        "no barrier",
        """
        sums = cuda.shared.array(WARPS, float32)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        h, p = cuda.blockIdx.x, cuda.blockIdx.y
        acc = float32(0)
        for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]):
            for t in range(lane, dy.shape[2], 32):
                acc += dy[b, h, t]
        for distance in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
        if lane == 0:
            sums[warp] = acc
        if warp == 0 and lane == 0:
            parts[p, h] = sums[0] + sums[1] + sums[2] + sums[3]
        """,
        r"race: .* sums element|uninitialised: .*sums",
    ),
    (
        "21_1",
        "windows in a run",
        """
        sums = cuda.shared.array(WARPS, float32)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        h, p = cuda.blockIdx.x, cuda.blockIdx.y
        share = (dy.shape[0] + parts.shape[0] - 1) // parts.shape[0]
        acc = float32(0)
        for b in range(p * share + warp, min(dy.shape[0], (p + 1) * share), WARPS):
            for t in range(lane, dy.shape[2], 32):
                acc += dy[b, h, t]
        for distance in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
        if lane == 0:
            sums[warp] = acc
        cuda.syncthreads()
        if warp == 0 and lane == 0:
            parts[p, h] = sums[0] + sums[1] + sums[2] + sums[3]
        """,
        r"B=13 H=2 L=65 P=3: element \[0, 0\] is",
    ),
    (
        "21_1",
        "one warp does it all",
        """
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        h, p = cuda.blockIdx.x, cuda.blockIdx.y
        if warp == 0:
            acc = float32(0)
            for b in range(p, dy.shape[0], parts.shape[0]):
                for t in range(lane, dy.shape[2], 32):
                    acc += dy[b, h, t]
            for distance in (16, 8, 4, 2, 1):
                acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
            if lane == 0:
                parts[p, h] = acc
        """,
        r"the four warps load 384, 0, 0, 0 times",
    ),
    (
        "21_1",
        "every warp adds up everything",
        """
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        h, p = cuda.blockIdx.x, cuda.blockIdx.y
        acc = float32(0)
        for b in range(p, dy.shape[0], parts.shape[0]):
            for t in range(lane, dy.shape[2], 32):
                acc += dy[b, h, t]
        for distance in (16, 8, 4, 2, 1):
            acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
        if lane == 0 and warp == 0:
            parts[p, h] = acc
        """,
        r"1,536 requests load dy; 384 are enough",
    ),
    (
        "21_2",
        "every hour in the naive kernel",
        "naive_requests = 2 * 32 * 64 * 8\ncoalesced_requests = 8192\natomic_sectors = 256\nmost_parts = 30",
        r"`naive_requests`: you predicted 32,768 requests; fewer were counted",
    ),
    (
        "21_2",
        "a sector for each tap",
        "naive_requests = 29184\ncoalesced_requests = 8192\natomic_sectors = 4 * 32 * 16\nmost_parts = 30",
        r"`atomic_sectors`: you predicted 2,048 sectors; fewer were counted",
    ),
    (
        "21_2",
        "parts that are only written",
        "naive_requests = 29184\ncoalesced_requests = 8192\natomic_sectors = 256\nmost_parts = 61",
        r"`most_parts`: you predicted 61 parts; fewer were counted",
    ),
    (
        "21_3",
        "a plain sum",
        """
        c = cuda.grid(1)
        if c < sums.size:
            acc = float32(0)
            for i in range(terms.shape[0]):
                acc += terms[i, c]
            sums[c] = acc
        """,
        r"terms of shape \(4096, 64\): column \d+ is off by \d\.\de-0\d; \d\.\de-0\d is two roundings",
    ),
    (
        "21_3",
        "the correction added in place of subtracted",
        """
        c = cuda.grid(1)
        if c < sums.size:
            acc = float32(0)
            lost = float32(0)
            for i in range(terms.shape[0]):
                given = terms[i, c] + lost
                total = acc + given
                lost = (total - acc) - given
                acc = total
            sums[c] = acc
        """,
        r"terms of shape \(4096, 64\): column \d+ is off by \d\.\de-0\d",
    ),
    (
        "21_3",
        "in double precision",
        """
        c = cuda.grid(1)
        if c < sums.size:
            acc = 0.0
            for i in range(terms.shape[0]):
                acc += terms[i, c]
            sums[c] = acc
        """,
        r"Line \d+, `acc \+= terms\[i, c\]`: [\d,]+ float64 operations",
    ),
    (
        "21_3",
        "no guard",
        """
        c = cuda.grid(1)
        acc = float32(0)
        for i in range(terms.shape[0]):
            acc += terms[i, c]
        sums[c] = acc
        """,
        r"out of bounds",
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
