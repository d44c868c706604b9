"""Exercise 33_2: what a tile accesses

A depthwise layer of 3 × 3 taps, stride 1, padding 1 on 16 channels of 12 × 12, then a pointwise layer of 24 filters;
one image, no bias. `fused` in the file makes DWPW, one kernel for both, for a tile of filters × side × side outputs.
Write down how many **elements** it loads or stores, without running it. For tiles of 8 filters × 6 × 6:
- `x`: elements of x loaded by all blocks;
- `w1`: of the depthwise filters;
- `w2`: of the pointwise filters;
- `more_work`: multiply-adds that it does more than the two layers, in percent, to one part in a hundred (a tap in the
  padding counts as one).

And by how many elements it differs from two kernels that load each of their inputs once and store each output once:
- `more_small_tile`: elements accessed more than by those two, with tiles of 8 × 6 × 6;
- `fewer_whole`: elements accessed fewer, with one tile of 24 × 12 × 12.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
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


### BEGIN SOLUTION
x = 3 * 16 * (7 + 7) ** 2
w1 = 3 * 4 * 16 * 9
w2 = 4 * 24 * 16
more_work = 100 * 2 * 16 * 9 / (16 * 9 + 24 * 16)
two_kernels = (16 + 16 + 16 + 24) * 144 + 16 * 9 + 24 * 16
more_small_tile = x + w1 + w2 + 24 * 144 - two_kernels
fewer_whole = 2 * 16 * 144
### BEGIN STUB
# x = None
# w1 = None
# w2 = None
# more_work = None
# more_small_tile = None
# fewer_whole = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
