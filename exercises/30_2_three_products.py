"""Exercise 30_2: float32 out of tf32

Write a kernel for one warp that computes d = a bᵀ of float32 on tensor cores, a (16, C), b (8, C), d (16, 8), with C a
multiple of 8, to float32's accuracy.

Split each operand in two, h = ptx.tf32(v) and l = ptx.tf32(v - h), and add up l h, h l and h h, in this order: three
`ptx.mma_tf32` for each 8 channels, and no more. `dwlab.kernels.parts.ptx` says which lane holds what.
"""

from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx  # noqa: F401


@cuda.jit
def three(a, b, d):
    # Your code here.
    raise NotImplementedError("30_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
