"""Exercise 15_3: sums up to here

In answers on the web that show prefix sums in shared memory, a barrier is missing (the kernel here is ours). In
`broken` of the file a block has a row of up to 128 hours: y[r, t] is the sum of x[r, 0] to x[r, t], each round adds
what is d places before. X-ray it. Write down, as a text, the `line` that loads what another thread may have changed
already, as it stands there; and by its number the `cause`: 1 d ends too early, 2 the row is not staged when the loop
begins, 3 a thread stores before its neighbour has loaded, 4 hours behind the end are added. Then write `repaired`.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, drawn, launched, poisoned, remedied, values


@cuda.jit
def broken(x, y):
    part = cuda.shared.array(128, float32)
    r, i = cuda.blockIdx.x, cuda.threadIdx.x
    part[i] = x[r, i] if i < x.shape[1] else float32(0)
    cuda.syncthreads()
    d = 1
    while d < 128:
        before = part[i - d] if i >= d else float32(0)
        part[i] += before
        cuda.syncthreads()
        d *= 2
    if i < x.shape[1]:
        y[r, i] = part[i]


@cuda.jit
def repaired(x, y):
    ### BEGIN SOLUTION
    part = cuda.shared.array(128, float32)
    r, i = cuda.blockIdx.x, cuda.threadIdx.x
    part[i] = x[r, i] if i < x.shape[1] else float32(0)
    cuda.syncthreads()
    d = 1
    while d < 128:
        before = part[i - d] if i >= d else float32(0)
        cuda.syncthreads()
        part[i] += before
        cuda.syncthreads()
        d *= 2
    if i < x.shape[1]:
        y[r, i] = part[i]
    ### END SOLUTION


### BEGIN SOLUTION
line = "before = part[i - d] if i >= d else float32(0)"
cause = 3
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

HINTS = (
    "The hazard names two lines of one round. Thread i loads part[i - d]; who stores there in this round?",
    "A round has two parts: all load, then all store. A barrier belongs behind each of them.",
)


def judge(answer):
    """Right for rows up to 128, no hazard."""

    def once(kernel, rows, hours):
        x, y, what = values(answer, rows, hours, nan=True), poisoned(rows, hours), f"x of shape ({rows}, {hours})"
        launched(kernel, rows, 128, x, y, hints=HINTS, what=what)
        agree(y, np.cumsum(x, axis=1, dtype=np.float64), what, 1e-5, HINTS)

    sizes = (2, 128), (1, 1), (3, 33), (*drawn(answer, (1025, 1500)), 128), drawn(answer, (1, 9), (34, 127))
    return remedied(answer, once, sizes, "before = part[i - d] if i >= d else float32(0)", 3, HINTS)


if __name__ == "__main__":
    run(__file__)
