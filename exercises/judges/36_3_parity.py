"""The judge of exercise 36_3, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
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
    # Your code here.
    raise NotImplementedError("36_3 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

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
