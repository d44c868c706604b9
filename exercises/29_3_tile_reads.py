"""Exercise 29_3: what a tile reads

A pointwise layer has M = 196 pixels, C = 64 channels and F = 96 filters. Blocks compute tiles of 32 pixels x 48 filters
from tiles of x and w in shared memory; a thread computes 2 pixels x 3 filters in registers. What lies outside the layer
is not loaded. Write down, for the whole layer:
- `x_loads` and `w_loads`: elements of x and of w that the blocks load from global memory;
- `shared_reads`: numbers that a thread reads from shared memory for one multiply-add, on average.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run

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


# Your code here.
x_loads = None
w_loads = None
shared_reads = None


if __name__ == "__main__":
    run(__file__)
