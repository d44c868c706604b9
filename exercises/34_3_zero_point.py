"""Exercise 34_3: a zero point outside the product

Write a kernel for one warp that computes d[i, f] = sum over k of (a[i, k] - zero) * b[f, k] with `ptx.mma_s8`, exactly.
a is (16, words) and b (8, words), words of four int8 along k, d is (16, 8) int32; the number of words is a multiple of
8.

One mma for each 8 words, of the bytes as they are: a - zero need not be an int8. The rest is sum a b - zero sum b.
`dwlab.kernels.parts.ptx` says which lane holds what: the lane that has the words of column g for the products is not
the one that has the sums of columns 2 t and 2 t + 1.
"""

from numba import int32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx  # noqa: F401

ONES = 0x01010101


@cuda.jit
def less_zero(a, b, zero, d):
    # Your code here.
    raise NotImplementedError("34_3 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
