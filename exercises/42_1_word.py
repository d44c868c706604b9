"""Exercise 42_1: a metadata word

A filter in 2:4 keeps of its 32 columns the weights 1, 2, …, 16, in this order. Its metadata is the word 0x9EDC8D49
(`WORD` in the file): eight groups of four columns, four bits each, the first group's lowest; of these the lower two are
the first kept place, the upper two the second. Decode it by hand and write down:
- `column`: the column, 0 to 31, of weight 6;
- `total`: the sum of weight times column, over all 16 weights.

And the other way: `code`, the four bits of a group that keeps its places 0 and 3, as a number.

The word goes to `mma.sp` as row 11 of its 16 rows, with selector 1. The halves of a row's word lie in different lanes
(`dwlab.kernels.parts.ptx` says which):
- `lane`: which lane has the half with columns 16 to 31 of row 11;
- `upper`: 1 if that half is the upper 16 bits of the lane's register, 0 if it is the lower.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx

WORD = 0x9EDC8D49


@cuda.jit
def product(metadata, y):
    """D = A B of mma.sp, selector 1: A keeps ones, row k of B is k, so a sum is the sum of the columns kept."""
    lane = cuda.threadIdx.x
    g, t = lane // 4, lane % 4
    one, nil = ptx.join_halves(float32(1), float32(1)), float32(0)
    first = ptx.join_halves(float32(2 * t), float32(2 * t + 1))
    second = ptx.join_halves(float32(2 * t + 8), float32(2 * t + 9))
    third = ptx.join_halves(float32(2 * t + 16), float32(2 * t + 17))
    fourth = ptx.join_halves(float32(2 * t + 24), float32(2 * t + 25))
    y[g, 2 * t], y[g, 2 * t + 1], y[g + 8, 2 * t], y[g + 8, 2 * t + 1] = ptx.mma_sp_f16(
        nil, nil, nil, nil, one, one, one, one, first, second, third, fourth, metadata[lane], 1
    )


# Your code here.
column = None
total = None
code = None
lane = None
upper = None


if __name__ == "__main__":
    run(__file__)
