"""Exercise 16_4: the last four hours, four outputs a lane

x is (R, L), L a multiple of 128. y[r, t] = x[r, t - 3] + x[r, t - 2] + x[r, t - 1] + x[r, t], without what lies before
the row. Write the kernel `last_four(x, y)`: a block is one warp and takes 128 hours, `cuda.blockIdx.x` says which of
its row, `cuda.blockIdx.y` which row. A lane has four neighbouring outputs:

    a, b, c, d = ptx.load4(x, i)      x[i : i + 4], i counted from the array's first element through both dimensions
    ptx.store4(y, i, a, b, c, d)
    cuda.shfl_up_sync(0xFFFFFFFF, value, 1)     the value of the lane before; lane 0 gets its own

The three hours before a lane's own are in the registers of the lane before. Lane 0 has none before it: it loads the
four hours before the block, where the row has them. No shared memory.
"""

from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx  # noqa: F401

HOURS = 128  # of a block


@cuda.jit
def last_four(x, y):
    # Your code here.
    raise NotImplementedError("16_4 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
