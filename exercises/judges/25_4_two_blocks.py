"""The judge of exercise 25_4, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import agree, at_most, drawn, launched, remedied, values


@cuda.jit
def broken(x, total):
    part = cuda.shared.array(128, float32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    part[i] = x[at] if at < x.size else float32(0)
    cuda.syncthreads()
    half = 64
    while half > 0:
        if i < half:
            part[i] += part[i + half]
        cuda.syncthreads()
        half //= 2
    if i == 0:
        total[0] = part[0]


@cuda.jit
def repaired(x, total):
    # Your code here.
    raise NotImplementedError("25_4 is not solved yet: replace this line with your code")


# Your code here.
line = None
cause = None

HINTS = (
    "With one block there is no hazard, with two there is one. What does each block have in part[0] at the end?",
    "An atomic adds, whoever comes first: cuda.atomic.add(total, 0, …). The order of the blocks is not said: the last "
    "digits of the sum may differ from run to run.",
)


def judge(answer):
    """Right for one block and several, an atomic a block; `broken` is right for one alone."""

    def once(kernel, size):
        x, total, what = values(answer, size, nan=True), np.zeros(1, np.float32), f"x of shape ({size},)"
        report = launched(kernel, -(-size // 128), 128, x, total, updates=[total], hints=HINTS, what=what)
        agree(total, x.astype(np.float64).sum(keepdims=True), what, 1e-3, HINTS)
        at_most(report.totals.atomics, -(-size // 128), "atomics", "one for a block", HINTS, report)

    sizes = [(n,) for n in (256, 128, 1, 33, 129, *drawn(answer, (130, 900), (1025, 3000)))]
    return remedied(answer, once, sizes, "total[0] = part[0]", 3, HINTS)
