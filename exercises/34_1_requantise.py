"""Exercise 34_1: back to bytes

Write the kernel that turns a layer's int32 sums into its int8 outputs. sums and y are (M, F), b is (F,) int32, m is
(F,) float32; zero is the output's zero point and low its least value (zero itself after a relu). Block i is one warp
and has pixel i; its lanes go along the filters, in steps of 32. M and F may be any numbers.

    y[i, f] = clamp(rint(float32(sums[i, f] + b[f]) * m[f]) + zero, low, 127)

`ptx.rint` rounds a float32 to the nearest int32, halves to even. No float64.
"""

from numba import float32, int32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx  # noqa: F401


@cuda.jit
def requantise(sums, b, m, zero, low, y):
    # Your code here.
    raise NotImplementedError("34_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
