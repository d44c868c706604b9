"""Exercise 36_3: even ones, then odd ones

A kernel updated the even places of an array from their neighbours, then the odd ones, with `cuda.syncthreads()`
between the two. With more than one block it went wrong (reported as Numba's issue 7502; `broken` of the file is
ours). X-ray it with 64 threads a block. Write down, as a text, the `line` that does not do what its author thought,
as it stands there; and by its number the `cause`: 1 it orders the threads of one block alone, 2 not all threads come
to it, 3 it stands in a loop, 4 the ends of the array are left out. Then write `repaired(u, parity)`, which updates
the places with at % 2 == parity: it is launched with 0, then with 1.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, drawn, launched, parameters, remedied, values


@cuda.jit
def broken(u):
    at = cuda.grid(1)
    for parity in range(2):
        if 0 < at < u.size - 1 and at % 2 == parity:
            u[at] = float32(0.5) * (u[at - 1] + u[at + 1])
        cuda.syncthreads()


@cuda.jit
def repaired(u, parity):
    ### BEGIN SOLUTION
    at = cuda.grid(1)
    if 0 < at < u.size - 1 and at % 2 == parity:
        u[at] = float32(0.5) * (u[at - 1] + u[at + 1])
    ### END SOLUTION


### BEGIN SOLUTION
line = "cuda.syncthreads()"
cause = 1
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

HINTS = (
    "Place 64 is of block 1, and needs place 63, which is of block 0. What makes block 1 wait for block 0?",
    "Nothing in one launch orders blocks. A launch ends before the next one begins: one parity each.",
)


def judge(answer):
    """Right for one block and several; `broken` is right for one alone."""

    def once(kernel, size):
        u, what = values(answer, size, nan=True), f"u of shape ({size},)"
        want = u.astype(np.float64)
        for parity in range(2):
            at = np.arange(2 - parity, size - 1, 2)
            want[at] = 0.5 * (want[at - 1] + want[at + 1])
        for given in [()] if len(parameters(kernel)) == 1 else [(0,), (1,)]:
            launched(kernel, -(-size // 64), 64, u, *given, updates=[u], hints=HINTS, what=what)
        agree(u, want, what, 1e-5, HINTS)

    sizes = [(n,) for n in (100, 64, 1, 3, 65, *drawn(answer, (66, 400), (1025, 3000)))]
    return remedied(answer, once, sizes, "cuda.syncthreads()", 1, HINTS)


if __name__ == "__main__":
    run(__file__)
