"""Exercise 12_5: a barrier in each branch

A kernel had a barrier in the one branch of an `if` and another in its `else` (reported as Numba's issue 2655; the
kernel here is ours). `broken` of the file turns each 64 readings round, with zeros for those behind the end. X-ray it
on 100 readings. Write down, as a text, the `line` of which there should be one alone, as it stands there; and by its
number the `cause`: 1 shared memory is too small, 2 threads of one warp wait at different barriers, 3 the zeros are
written too late, 4 two threads write the same element. Then write `repaired`.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, drawn, launched, poisoned, remedied, values


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
    ### BEGIN SOLUTION
    tile = cuda.shared.array(64, float32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    if at < x.size:
        tile[i] = x[at]
    else:
        tile[i] = float32(0)
    cuda.syncthreads()
    y[at] = tile[63 - i]
    ### END SOLUTION


### BEGIN SOLUTION
line = "cuda.syncthreads()"
cause = 2
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

HINTS = (
    "A barrier waits for the threads at this very line. Which threads of the last block never come to the first one?",
    "What the branches share belongs behind them: one barrier, where the `if` is over.",
)


def judge(answer):
    """Right for full blocks and others, no hazard; `broken` is right for full ones alone."""

    def once(kernel, size):
        x, blocks, what = values(answer, size, nan=True), -(-size // 64), f"x of shape ({size},)"
        y = poisoned(64 * blocks)
        launched(kernel, blocks, 64, x, y, hints=HINTS, what=what)
        agree(y, np.pad(x, (0, y.size - size)).reshape(-1, 64)[:, ::-1].ravel(), what, 0, HINTS)

    sizes = [(n,) for n in (100, 64, 1, 31, 33, *drawn(answer, (65, 400), (1025, 3000)))]
    return remedied(answer, once, sizes, "cuda.syncthreads()", 2, HINTS)


if __name__ == "__main__":
    run(__file__)
