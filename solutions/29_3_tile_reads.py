"""Exercise 29_3: what a tile reads

A pointwise layer has M = 196 pixels, C = 64 channels and F = 96 filters. Blocks compute tiles of 32 pixels x 48 filters
from tiles of x and w in shared memory; a thread computes 2 pixels x 3 filters in registers. What lies outside the layer
is not loaded. Write down, for the whole layer:
- `x_loads` and `w_loads`: elements of x and of w that the blocks load from global memory;
- `shared_reads`: numbers that a thread reads from shared memory for one multiply-add, on average.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted

M, C, F = 196, 64, 96
BLOCK_M, BLOCK_F, CHUNK = 32, 48, 16
THREADS = 16  # on each side of a block


@cuda.jit
def tiled(x, w, y):
    left = cuda.shared.array((CHUNK, BLOCK_M), float32)
    right = cuda.shared.array((CHUNK, BLOCK_F), float32)
    sums = cuda.local.array((2, 3), float32)
    i, j = cuda.threadIdx.y, cuda.threadIdx.x
    m0, f0 = cuda.blockIdx.y * BLOCK_M, cuda.blockIdx.x * BLOCK_F
    for p in range(2):
        for q in range(3):
            sums[p, q] = float32(0)
    for c0 in range(0, C, CHUNK):
        for p in range(2):
            m = m0 + i + THREADS * p
            left[j, i + THREADS * p] = x[m, c0 + j] if m < M else float32(0)
        for q in range(3):
            right[j, i + THREADS * q] = w[f0 + i + THREADS * q, c0 + j]
        cuda.syncthreads()
        for c in range(CHUNK):
            w0 = right[c, j]
            w1 = right[c, j + THREADS]
            w2 = right[c, j + 2 * THREADS]
            for p in range(2):
                u = left[c, i + THREADS * p]
                sums[p, 0] += u * w0
                sums[p, 1] += u * w1
                sums[p, 2] += u * w2
        cuda.syncthreads()
    for p in range(2):
        for q in range(3):
            if m0 + i + THREADS * p < M:
                y[m0 + i + THREADS * p, f0 + j + THREADS * q] = sums[p, q]


### BEGIN SOLUTION
x_loads = 196 * 64 * 2
w_loads = 96 * 64 * 7
shared_reads = 5 / 6
### BEGIN STUB
# x_loads = None
# w_loads = None
# shared_reads = None
### END SOLUTION

HINTS = {
    "x_loads": (
        "The channels of a pixel are loaded by each block that computes filters of it. How many blocks are those?",
        "Two tiles of 48 filters: each element of x is loaded twice.",
    ),
    "w_loads": (
        "A filter is loaded by each block that computes pixels with it. The last tile of pixels is not full, but it is "
        "a tile.",
        "196 pixels are 6 tiles of 32 and 4 pixels more: each element of w is loaded 7 times.",
    ),
    "shared_reads": (
        "One step of the loop over channels: how many numbers does a thread read, how many products does it make?",
        "2 of x and 3 of w for 2 x 3 products: 5 / 6. A thread outside the layer does the same, with zeros.",
    ),
}


def judge(answer):
    """All counted by the interpreter, on a kernel whose output is compared with NumPy's."""
    x, w = (np.arange(n * C, dtype=np.float32).reshape(n, C) % 7 for n in (M, F))
    y = np.full((M, F), np.nan, np.float32)
    report = xray(tiled, (F // BLOCK_F, -(-M // BLOCK_M)), (THREADS, THREADS), x, w, y, keep=True)
    assert np.array_equal(report.outputs["y"], x @ w.T)
    reads = sum(a.active_lanes for a in report.accesses if (a.space, a.kind) == ("shared", "load"))
    x_loads, w_loads = (report.array(name, "load").active_lanes for name in ("x", "w"))
    texts = [
        predicted(answer, "x_loads", x_loads, "elements", HINTS["x_loads"]),
        predicted(answer, "w_loads", w_loads, "elements", HINTS["w_loads"]),
        predicted(answer, "shared_reads", 2 * reads / report.totals.flops, "numbers", HINTS["shared_reads"], 0.01),
    ]
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
