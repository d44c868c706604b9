"""The judge of exercise 12_5, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
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
    # Your code here.
    raise NotImplementedError("12_5 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

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
