"""Exercise 12_5: a barrier in each branch

A kernel had a barrier in the one branch of an `if` and another in its `else` (reported as Numba's issue 2655; the
kernel here is ours). `broken` of the file turns each 64 readings round, with zeros for those behind the end. X-ray it
on 100 readings. Write down, as a text, the `line` of which there should be one alone, as it stands there; and by its
number the `cause`: 1 shared memory is too small, 2 threads of one warp wait at different barriers, 3 the zeros are
written too late, 4 two threads write the same element. Then write `repaired`.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


@cuda.jit
def broken(x, y):
    tile = cuda.shared.array(64, float32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    if at < x.size:
        tile[i] = x[at]
        cuda.syncthreads()
    else:
        tile[i] = float32(0)
        cuda.syncthreads()
    y[at] = tile[63 - i]


@cuda.jit
def repaired(x, y):
    # Your code here.
    raise NotImplementedError("12_5 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None


if __name__ == "__main__":
    run(__file__)
