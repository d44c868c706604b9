"""The judge of exercise 33_2, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.tools import predicted

C, F, SIDE = 16, 24, 12


def fused(filters, side):
    """DWPW: a block of side × side threads, one a pixel, with sums for its filters."""
    halo = side + 2

    @cuda.jit
    def kernel(x, w1, w2, y):
        window = cuda.shared.array((halo, halo), float32)
        taps = cuda.shared.array(9, float32)
        column = cuda.shared.array(filters, float32)
        sums = cuda.local.array(filters, float32)
        row, col = cuda.threadIdx.x // side, cuda.threadIdx.x % side
        p0, q0, f0 = cuda.blockIdx.y * side, cuda.blockIdx.x * side, cuda.blockIdx.z * filters
        for f in range(filters):
            sums[f] = 0
        for c in range(C):
            for k in range(cuda.threadIdx.x, halo * halo, side * side):
                h, v = p0 - 1 + k // halo, q0 - 1 + k % halo
                window[k // halo, k % halo] = x[c, h, v] if 0 <= h < SIDE and 0 <= v < SIDE else float32(0)
            if cuda.threadIdx.x < 9:
                taps[cuda.threadIdx.x] = w1[c, cuda.threadIdx.x // 3, cuda.threadIdx.x % 3]
            if cuda.threadIdx.x < filters:
                column[cuda.threadIdx.x] = w2[f0 + cuda.threadIdx.x, c]
            cuda.syncthreads()
            between = float32(0)
            for i in range(3):
                for j in range(3):
                    between += taps[3 * i + j] * window[row + i, col + j]
            for f in range(filters):
                sums[f] += column[f] * between
            cuda.syncthreads()
        for f in range(filters):
            y[f0 + f, p0 + row, q0 + col] = sums[f]

    return kernel


# Your code here.
x = None
w1 = None
w2 = None
more_work = None
more_small_tile = None
fewer_whole = None

HINTS = {
    "x": (
        "How many blocks are there? Each needs all 16 channels of its tile and of the halo that is in the map.",
        "Each of the two tiles in a column needs 7 rows of the map: 14 × 14 pixels for all four tiles. And there are 3 "
        "groups of filters, which read the same x.",
    ),
    "w1": ("Every block computes all 16 depthwise channels. 3 groups of filters, 4 tiles.",),
    "w2": (
        "A block needs its 8 filters, of 16 weights each. The groups together have all of them, once for each tile.",
    ),
    "more_work": (
        "Which of the two layers is computed more than once, and how often?",
        "The depthwise layer three times: 2 · 16 · 9 more for each pixel, over 16 · 9 + 24 · 16.",
    ),
    "more_small_tile": (
        "The two kernels: x, the map between twice, y, and both filters once.",
        "That is (16 + 16 + 16 + 24) · 144 + 16 · 9 + 24 · 16. The fused kernel: x, w1, w2 as above, and y.",
    ),
    "fewer_whole": (
        "One block, nothing read twice. What is left out is the map between: how often was that accessed?",
        "Written once and read once: 2 · 16 · 144.",
    ),
}


def judge(answer):
    """All counted by the interpreter."""
    inputs = (np.ones((C, SIDE, SIDE), "f4"), np.ones((C, 3, 3), "f4"), np.ones((F, C), "f4"))
    found, reports = {}, {}
    for name, filters, side in (("small", 8, 6), ("whole", F, SIDE)):
        grid = (SIDE // side, SIDE // side, F // filters)
        report = xray(fused(filters, side), grid, side * side, *inputs, np.zeros((F, SIDE, SIDE), "f4"))
        lanes = {a: report.array(a, "load").active_lanes for a in ("x", "w1", "w2")}
        found[name], reports[name] = lanes | {"y": report.array("y", "store").active_lanes}, report
    pixels = SIDE * SIDE
    two = (3 * C + F) * pixels + C * 9 + F * C
    work = reports["small"].totals.flops / (2 * pixels * (C * 9 + F * C)) - 1
    texts = [predicted(answer, name, found["small"][name], "elements", HINTS[name]) for name in ("x", "w1", "w2")]
    texts.append(predicted(answer, "more_work", 100 * work, "percent", HINTS["more_work"], tolerance=0.01))
    more, fewer = sum(found["small"].values()) - two, two - sum(found["whole"].values())
    texts.append(predicted(answer, "more_small_tile", more, "elements", HINTS["more_small_tile"]))
    texts.append(predicted(answer, "fewer_whole", fewer, "elements", HINTS["fewer_whole"]))
    return "; ".join(texts) + "."
