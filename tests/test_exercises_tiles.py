"""Wrong answers to the exercises of lessons 12 and 13: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

WRONG = [
    (
        "12_1",
        "no barrier",
        """
        window = cuda.shared.array(WINDOW, float32)
        i, m, t0 = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.x * TILE
        for k in range(i, WINDOW, TILE):
            t = t0 - (HOURS - 1) + k
            window[k] = kwh[m, t] if 0 <= t < kwh.shape[1] else float32(-math.inf)
        if t0 + i < peak.shape[1]:
            highest = window[i]
            for k in range(i + 1, i + HOURS):
                highest = max(highest, window[k])
            peak[m, t0 + i] = highest
        """,
        r"race: .* reads window element \[\d+\], which .* wrote on line \d+",
    ),
    (
        "12_1",
        "zeros for the missing hours",
        """
        window = cuda.shared.array(WINDOW, float32)
        i, m, t0 = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.x * TILE
        for k in range(i, WINDOW, TILE):
            t = t0 - (HOURS - 1) + k
            window[k] = kwh[m, t] if 0 <= t < kwh.shape[1] else float32(0)
        cuda.syncthreads()
        if t0 + i < peak.shape[1]:
            highest = window[i]
            for k in range(i + 1, i + HOURS):
                highest = max(highest, window[k])
            peak[m, t0 + i] = highest
        """,
        r"kwh of shape \(1, 1\): element \[0, 0\] is 0; -\d",
    ),
    (
        "12_1",
        "the barrier behind the guard",
        """
        window = cuda.shared.array(WINDOW, float32)
        i, m, t0 = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.x * TILE
        for k in range(i, WINDOW, TILE):
            t = t0 - (HOURS - 1) + k
            window[k] = kwh[m, t] if 0 <= t < kwh.shape[1] else float32(-math.inf)
        if t0 + i < peak.shape[1]:
            cuda.syncthreads()
            peak[m, t0 + i] = window[i]
        """,
        r"divergent barrier",
    ),
    (
        "12_1",
        "from global memory, hour by hour",
        """
        i, m = cuda.threadIdx.x, cuda.blockIdx.y
        t = cuda.blockIdx.x * TILE + i
        if t < peak.shape[1]:
            highest = kwh[m, t]
            for s in range(max(0, t - HOURS + 1), t):
                highest = max(highest, kwh[m, s])
            peak[m, t] = highest
        """,
        r"kwh of shape \(4, 320\): 29,616 elements of kwh are loaded; 1,648 are enough",
    ),
    (
        "12_1",
        "staged two words apart",
        """
        window = cuda.shared.array(174, float32)
        i, m, t0 = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.x * TILE
        for k in range(i, WINDOW, TILE):
            t = t0 - (HOURS - 1) + k
            window[2 * k] = kwh[m, t] if 0 <= t < kwh.shape[1] else float32(-math.inf)
        cuda.syncthreads()
        if t0 + i < peak.shape[1]:
            highest = window[2 * i]
            for k in range(i + 1, i + HOURS):
                highest = max(highest, window[2 * k])
            peak[m, t0 + i] = highest
        """,
        r"Line \d+, (load|store) of window: [\d,]+ wavefronts in [\d,]+ requests, [\d,]+ bank conflicts",
    ),
    (
        "12_2",
        "a wavefront for each value",
        "neighbours = 1\nevery_twelfth = 4\nfour_values = 4\na_row_further = 1\npadded_column = 1\nfour_in_bank_0 = 4",
        r"`four_values`: you predicted 4 wavefronts; fewer were counted",
    ),
    (
        "12_3",
        "a halo for the first tile",
        "loaded = 32 * 2 * 79\ninner = 4096\nstaging = 256\nmicroseconds = 2266.67",
        r"`loaded`: you predicted 5,056 elements; fewer were counted",
    ),
    (
        "12_3",
        "no weights stored",
        "loaded = 4576\ninner = 4096\nstaging = 192\nmicroseconds = 2233.33",
        r"`staging`: you predicted 192 wavefronts; more were counted",
    ),
    (
        "13_1",
        "through shared memory",
        """
        parts = cuda.shared.array((WARPS, 32), float32)
        lane, warp = cuda.threadIdx.x, cuda.threadIdx.y
        m = cuda.blockIdx.x * WARPS + warp
        acc = float32(0)
        if m < kwh.shape[0]:
            for t in range(lane, kwh.shape[1], 32):
                acc += kwh[m, t]
        parts[warp, lane] = acc
        cuda.syncthreads()
        if m < kwh.shape[0] and lane == 0:
            acc = float32(0)
            for k in range(32):
                acc += parts[warp, k]
            total[m] = acc
        """,
        r"[\d,]+ accesses to shared memory; the lanes' parts can be added without any",
    ),
    (
        "13_1",
        "four shuffles of five",
        """
        lane = cuda.threadIdx.x
        m = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
        if m < kwh.shape[0]:
            acc = float32(0)
            for t in range(lane, kwh.shape[1], 32):
                acc += kwh[m, t]
            for distance in (16, 8, 4, 2):
                acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
            if lane == 0:
                total[m] = acc
        """,
        r"kwh of shape \(3, 31\): element \[0\] is",
    ),
    (
        "13_1",
        "every lane stores",
        """
        lane = cuda.threadIdx.x
        m = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
        if m < kwh.shape[0]:
            acc = float32(0)
            for t in range(lane, kwh.shape[1], 32):
                acc += kwh[m, t]
            for distance in (16, 8, 4, 2, 1):
                acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
            total[m] = acc
        """,
        r"two writers: .* both write total",
    ),
    (
        "13_1",
        "one lane for each row",
        """
        m = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
        if m < kwh.shape[0] and cuda.threadIdx.x == 0:
            acc = float32(0)
            for t in range(kwh.shape[1]):
                acc += kwh[m, t]
            total[m] = acc
        """,
        r"1,024 requests load kwh; 32 are enough",
    ),
    (
        "13_1",
        "a shuffle inside the guard for the hour",
        """
        lane = cuda.threadIdx.x
        m = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
        if m < kwh.shape[0] and lane < kwh.shape[1]:
            acc = float32(0)
            for t in range(lane, kwh.shape[1], 32):
                acc += kwh[m, t]
            for distance in (16, 8, 4, 2, 1):
                acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
            if lane == 0:
                total[m] = acc
        """,
        r"inactive lane",
    ),
    (
        "13_2",
        "conflicts forgotten",
        "reads_five = 68\nreads_four = 67\nstore_sectors_five = 100\nproducts_a_wavefront_five = 75.3",
        r"`reads_four`: you predicted 67 wavefronts; more were counted",
    ),
    (
        "13_2",
        "stores as if coalesced",
        "reads_five = 68\nreads_four = 172\nstore_sectors_five = 20\nproducts_a_wavefront_five = 75.3",
        r"`store_sectors_five`: you predicted 20 sectors; more were counted",
    ),
    (
        "13_3",
        "stored from where they were computed",
        """
        cuda.syncwarp()
        t = 3 * lane
        y0 = y1 = y2 = float32(0)
        u0 = window[warp, t]
        u1 = window[warp, t + 1]
        for j in range(TAPS):
            f = weights[warp, j]
            u2 = window[warp, t + 2 + j]
            y0 += f * u0
            y1 += f * u1
            y2 += f * u2
            u0 = u1
            u1 = u2
        if t < y.shape[1]:
            y[row, t] = y0
        if t + 1 < y.shape[1]:
            y[row, t + 1] = y1
        if t + 2 < y.shape[1]:
            y[row, t + 2] = y2
        """,
        r"Line \d+, store of y: [\d,]+ sectors in \d+ requests, 12\.0 sectors per request; 4\.0 would hold it",
    ),
    (
        "13_3",
        "one output at a time",
        """
        cuda.syncwarp()
        for t in range(lane, y.shape[1], 32):
            acc = float32(0)
            for j in range(TAPS):
                acc += weights[warp, j] * window[warp, t + j]
            y[row, t] = acc
        """,
        r"a row's loads from shared memory take 96 wavefronts; 37 are enough",
    ),
    (
        "13_3",
        "outputs written over a window that is still read",
        """
        cuda.syncwarp()
        t = 3 * lane
        y0 = y1 = y2 = float32(0)
        u0 = window[warp, t]
        u1 = window[warp, t + 1]
        for j in range(TAPS):
            f = weights[warp, j]
            u2 = window[warp, t + 2 + j]
            y0 += f * u0
            y1 += f * u1
            y2 += f * u2
            u0 = u1
            u1 = u2
        window[warp, t] = y0
        window[warp, t + 1] = y1
        window[warp, t + 2] = y2
        cuda.syncwarp()
        for s in range(lane, y.shape[1], 32):
            y[row, s] = window[warp, s]
        """,
        r"race: .* writes window element .* read on line \d+",
    ),
    (
        "13_3",
        "the barrier of the block",
        """
        cuda.syncthreads()
        t = 3 * lane
        y0 = y1 = y2 = float32(0)
        u0 = window[warp, t]
        u1 = window[warp, t + 1]
        for j in range(TAPS):
            f = weights[warp, j]
            u2 = window[warp, t + 2 + j]
            y0 += f * u0
            y1 += f * u1
            y2 += f * u2
            u0 = u1
            u1 = u2
        cuda.syncthreads()
        window[warp, t] = y0
        window[warp, t + 1] = y1
        window[warp, t + 2] = y2
        cuda.syncthreads()
        for s in range(lane, y.shape[1], 32):
            y[row, s] = window[warp, s]
        """,
        r"6 barriers of the block; a warp that works alone needs none",
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
