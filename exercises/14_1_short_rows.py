"""Exercise 14_1: short rows, full warps

In rows of 20 hours a warp for each row leaves 12 of its 32 lanes without work, in every instruction. Write the kernel
`rise(x, y)`, `y[r, t] = x[r, t] - x[r, t - 1]`, and `y[r, 0] = 0`, so that every warp but the last one is full: it is
launched with blocks of 256 threads and not one block more than the elements need. x and y are (rows, hours) float32. A
warp then has parts of two rows or more: the last lanes of one row and the first of the next. Make it faster: the check
counts the stores' requests.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def rise(x, y):
    # Your code here.
    raise NotImplementedError("14_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
