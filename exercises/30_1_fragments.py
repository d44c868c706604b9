"""Exercise 30_1: who holds what

One `mma_tf32`, D = A B with A of 16 × 8, B of 8 × 8 and D of 16 × 8. Lanes hold the matrices as
`dwlab.kernels.parts.ptx` says. Write down:
- `lane`: which lane holds A(11, 6), row 11 and k = 6;
- `number`: in which of its a0 to a3, 0 to 3;
- `lane_d`: which lane gets D(11, 6), row 11 and column 6;
- `number_d`: as which of its four sums, 0 to 3.

A warp computes a tile of 32 × 24 sums over 40 channels with `mma_tf32`:
- `instructions`: how many it executes, with one product of rounded operands;
- `instructions_float32`: how many for float32's accuracy.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx


@cuda.jit
def who(d):
    """D = A I, where each lane has written 4 lane + i into its a_i: so D says who holds what of A."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    nil, one, first = float32(0), float32(1), float32(4 * lane)
    b0 = one if g == t else nil
    b1 = one if g == t + 4 else nil
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_tf32(
        nil, nil, nil, nil, first, first + one, first + float32(2), first + float32(3), b0, b1
    )


@cuda.jit
def marked(d):
    """D = 0 + C, where each lane has written 4 lane + i into its c_i; each lane stores its sums where they belong."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    nil, first = float32(0), float32(4 * lane)
    d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = ptx.mma_tf32(
        first, first + float32(1), first + float32(2), first + float32(3), nil, nil, nil, nil, nil, nil
    )


@cuda.jit
def tile(x, rows, columns, channels, products):
    """A warp's products for a tile; what is multiplied does not matter here."""
    nil = float32(0)
    total = nil
    for _ in range(rows // 16 * (columns // 8) * (channels // 8) * products):
        c0, c1, c2, c3 = ptx.mma_tf32(nil, nil, nil, nil, nil, nil, nil, nil, nil, nil)
        total = c0
    x[cuda.threadIdx.x] = total


# Your code here.
lane = None
number = None
lane_d = None
number_d = None
instructions = None
instructions_float32 = None


if __name__ == "__main__":
    run(__file__)
