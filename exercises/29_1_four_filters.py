"""Exercise 29_1: four filters a thread

Write a pointwise kernel for one image in NCHW in which a thread computes four filters of one pixel. x is (C, M), its M
pixels next to each other, w is (F, C), y is (F, M). Block (i, j) is one warp: pixels 32 i to 32 i + 31, a lane each,
and filters 4 j to 4 j + 3.

For each channel a thread loads its x once, and four weights that all lanes share; it does four multiply-adds.
F need not be a multiple of 4, nor M of 32. No shared memory.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

FILTERS = 4


@cuda.jit
def one(x, w, y):
    m = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    f = cuda.blockIdx.y
    if m < x.shape[1]:
        total = float32(0)
        for c in range(x.shape[0]):
            total += w[f, c] * x[c, m]
        y[f, m] = total


@cuda.jit
def four(x, w, y):
    # Your code here.
    raise NotImplementedError("29_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
