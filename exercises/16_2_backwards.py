"""Exercise 16_2: rows backwards, 16 bytes at a time

y[r, t] = x[r, 127 - t], for rows of 128 float32. Write the kernel `backwards(x, y)`: x and y have the shape (R, 128), a
block is one warp and takes row `cuda.blockIdx.x`. Lanes 0 to 31 bring the row to shared memory with asynchronous copies
of 16 bytes, without touching a register; then each lane takes its four elements from there, and stores them with one
instruction:

    ptx.copy4_async(tile, i, x, j)          starts tile[i : i + 4] = x[j : j + 4]
    ptx.commit(), ptx.wait(0)               ends a group of copies; waits for all of this lane's groups
    a, b, c, d = ptx.load4_shared(tile, i)
    ptx.store4(y, j, a, b, c, d)

i and j count elements from the array's first one, through all its dimensions. A lane that reads what another lane has
brought needs more than its own wait.
"""

from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.kernels.parts import ptx  # noqa: F401

LENGTH = 128


@cuda.jit
def backwards(x, y):
    # Your code here.
    raise NotImplementedError("16_2 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
