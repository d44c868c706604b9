"""Exercise 20_7: two threads and one sum

The smallest race of all: threads of a block do `s[0] += 1` in shared memory, and 1 comes out (reported as Numba's
issue 4907; the kernel here is ours). `broken` of the file counts, block by block, how many of 128 readings are above
0. X-ray it. Write down, as a text, the `line` that loses some, as it stands there; and by its number the `cause`: 1
the counter is not 0 when they begin, 2 threads load the same number, and each stores its own, 3 the last block has
too few readings, 4 a barrier is missing behind it. Then write `repaired`.
"""

import numpy as np
from numba import int32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import agree, drawn, launched, poisoned, remedied, values


@cuda.jit
def broken(x, above):
    found = cuda.shared.array(1, int32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    if i == 0:
        found[0] = 0
    cuda.syncthreads()
    if at < x.size and x[at] > 0:
        found[0] += 1
    cuda.syncthreads()
    if i == 0:
        above[cuda.blockIdx.x] = found[0]


@cuda.jit
def repaired(x, above):
    ### BEGIN SOLUTION
    found = cuda.shared.array(1, int32)
    i, at = cuda.threadIdx.x, cuda.grid(1)
    if i == 0:
        found[0] = 0
    cuda.syncthreads()
    if at < x.size and x[at] > 0:
        cuda.atomic.add(found, 0, 1)
    cuda.syncthreads()
    if i == 0:
        above[cuda.blockIdx.x] = found[0]
    ### END SOLUTION


### BEGIN SOLUTION
line = "found[0] += 1"
cause = 2
### BEGIN STUB
# line = None
# cause = None
### END SOLUTION

HINTS = (
    "`+=` is three steps: load, add, store. What if two threads have loaded 0 before either stores 1?",
    "No barrier helps within one line: cuda.atomic.add(array, index, number) does the three steps at once.",
)


def judge(answer):
    """Right for full blocks and others, no hazard."""

    def once(kernel, size):
        x, blocks, what = values(answer, size, nan=True), -(-size // 128), f"x of shape ({size},)"
        above = poisoned(blocks, dtype="int32")
        launched(kernel, blocks, 128, x, above, hints=HINTS, what=what)
        agree(above, np.add.reduceat(x > 0, range(0, size, 128), dtype=np.int64), what, 0, HINTS)

    sizes = [(n,) for n in (256, 1, 127, 129, *drawn(answer, (2, 700), (1025, 3000)))]
    return remedied(answer, once, sizes, "found[0] += 1", 2, HINTS)


if __name__ == "__main__":
    run(__file__)
