"""Exercise 31_1: a sum in parts

A pointwise layer of few pixels and many channels: y[f, m] = sum over c of w[f, c] · x[c, m]. With a warp for 32 pixels
of a filter few warps have long sums. Write the kernel that divides the sum among W warps. x is (C, M), its M pixels
next to each other, w is (F, C), parts is (W, F, M). Block (i, f, k) is one warp: pixels 32 i to 32 i + 31, a lane each,
of filter f, and **part k** of the channels, S = ceil(C / W) of them from S · k on:

    parts[k, f, m] = sum over c from S k to min(C, S (k + 1)) - 1 of w[f, c] * x[c, m]

A part without channels is 0. M need not be a multiple of 32, nor C of W. `add` in the file adds up the parts, always in
the same order, so that each run gives the same bits.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def add(parts, y):
    """One thread an output: block (i, f) has pixels 32 i to 32 i + 31 of filter f."""
    m, f = cuda.blockIdx.x * 32 + cuda.threadIdx.x, cuda.blockIdx.y
    if m < y.shape[1]:
        total = float32(0)
        for k in range(parts.shape[0]):
            total += parts[k, f, m]
        y[f, m] = total


@cuda.jit
def split(x, w, parts):
    # Your code here.
    raise NotImplementedError("31_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
