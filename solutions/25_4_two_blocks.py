"""Exercise 25_4: the manual's sum, with two blocks

A manual's example adds up an array in shared memory. With two blocks instead of one its sum is wrong (asked in
Numba's forum, 1795; the kernel here is ours). `broken` of the file is such a kernel, of blocks of 128 threads;
total[0] is 0 before. X-ray it with one block and with two. Write down, as a text, the `line` that loses a part, as it
stands there; and by its number the `cause`: 1 half of the threads add nothing, 2 a barrier is missing in the loop, 3
each block stores its own sum, and the last one stays, 4 the readings behind the end are added. Then write `repaired`:
one addition to total for a block.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
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
    ### BEGIN SOLUTION
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
        cuda.atomic.add(total, 0, part[0])
    ### END SOLUTION


### BEGIN SOLUTION
line = "total[0] = part[0]"
cause = 3
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
