"""Exercise 31_2: what a tile reads

A layer of 960 channels and 160 filters on one map of 7 × 7, in NHWC: a product of 49 pixels × 960 by 960 × 160. Blocks
compute tiles of 32 pixels × 64 filters, their threads 4 × 4 outputs each, and go through the channels 8 at a time
(`tiled` in the file). Write down, for the whole layer:
- `blocks`: how many there are;
- `x`: elements of x that they load;
- `w`: elements of w;
- `reads`: numbers that threads read from shared memory for each multiply-add, outputs beyond the matrix included.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
from dwlab.judge.tools import poisoned, predicted

M, C, F = 49, 960, 160
ROWS, COLUMNS, CHUNK = 32, 64, 8
LEFT, RIGHT = ROWS + 1, COLUMNS + 1  # a word more, so that neighbouring channels lie in different banks


@cuda.jit
def tiled(x, w, y):
    """A block of 16 × 8 threads computes 32 pixels × 64 filters, each thread every 8th row and every 16th column."""
    left = cuda.shared.array((CHUNK, LEFT), float32)
    right = cuda.shared.array((CHUNK, RIGHT), float32)
    sums = cuda.local.array((4, 4), float32)
    p = cuda.local.array(4, float32)
    q = cuda.local.array(4, float32)
    row, column = cuda.threadIdx.y, cuda.threadIdx.x
    m0, f0 = cuda.blockIdx.y * ROWS, cuda.blockIdx.x * COLUMNS
    for i in range(4):
        for j in range(4):
            sums[i, j] = 0
    for c0 in range(0, x.shape[1], CHUNK):
        for k in range(row * 16 + column, ROWS * CHUNK, 128):
            m = m0 + k // CHUNK
            left[k % CHUNK, k // CHUNK] = x[m, c0 + k % CHUNK] if m < x.shape[0] else float32(0)
        for k in range(row * 16 + column, COLUMNS * CHUNK, 128):
            f = f0 + k // CHUNK
            right[k % CHUNK, k // CHUNK] = w[f, c0 + k % CHUNK] if f < w.shape[0] else float32(0)
        cuda.syncthreads()
        for k in range(CHUNK):
            for i in range(4):
                p[i] = left[k, row + 8 * i]
                q[i] = right[k, column + 16 * i]
            for i in range(4):
                for j in range(4):
                    sums[i, j] += p[i] * q[j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            if m0 + row + 8 * i < y.shape[0] and f0 + column + 16 * j < y.shape[1]:
                y[m0 + row + 8 * i, f0 + column + 16 * j] = sums[i, j]


### BEGIN SOLUTION
blocks = 2 * 3
x = 3 * 49 * 960
w = 2 * 160 * 960
reads = (4 + 4) / (4 * 4)
### BEGIN STUB
# blocks = None
# x = None
# w = None
# reads = None
### END SOLUTION

HINTS = {
    "blocks": (
        "How many tiles of 32 pixels cover 49, and how many of 64 filters cover 160?",
        "2 for the pixels, 3 for the filters.",
    ),
    "x": (
        "A block loads all 960 channels of its pixels. Which blocks have the same pixels?",
        "One block for each group of filters: x is loaded once for each of these. What lies beyond is not loaded.",
    ),
    "w": ("Each group of pixels needs all filters once.",),
    "reads": (
        "For each channel a thread reads 4 numbers of either operand. How many multiply-adds do they serve?",
        "8 numbers for 4 · 4 multiply-adds.",
    ),
}


def judge(answer):
    """All counted by the interpreter."""
    grid = (-(-F // COLUMNS), -(-M // ROWS))
    report = xray(tiled, grid, (16, 8), np.ones((M, C), "f4"), np.ones((F, C), "f4"), poisoned(M, F))
    shared = sum(a.active_lanes for a in report.accesses if a.space == "shared" and a.kind == "load")
    products = grid[0] * grid[1] * ROWS * COLUMNS * C
    texts = [predicted(answer, "blocks", grid[0] * grid[1], "blocks", HINTS["blocks"])]
    for name in ("x", "w"):
        texts.append(predicted(answer, name, report.array(name, "load").active_lanes, "elements", HINTS[name]))
    texts.append(predicted(answer, "reads", shared / products, "reads", HINTS["reads"], tolerance=1e-6))
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
