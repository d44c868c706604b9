"""Exercise 16_4: the last four hours, four outputs a lane

x is (R, L), L a multiple of 128. y[r, t] = x[r, t - 3] + x[r, t - 2] + x[r, t - 1] + x[r, t], without what lies before
the row. Write the kernel `last_four(x, y)`: a block is one warp and takes 128 hours, `cuda.blockIdx.x` says which of
its row, `cuda.blockIdx.y` which row. A lane has four neighbouring outputs:

    a, b, c, d = ptx.load4(x, i)      x[i : i + 4], i counted from the array's first element through both dimensions
    ptx.store4(y, i, a, b, c, d)
    cuda.shfl_up_sync(0xFFFFFFFF, value, 1)     the value of the lane before; lane 0 gets its own

The three hours before a lane's own are in the registers of the lane before. Lane 0 has none before it: it loads the
four hours before the block, where the row has them. No shared memory.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    agree,
    at_most,
    drawn,
    kernel,
    launched,
    one_large,
    poisoned,
    typical_first,
    values,
    without,
)
from dwlab.kernels.parts import ptx  # noqa: F401

HOURS = 128  # of a block


@cuda.jit
def last_four(x, y):
    ### BEGIN SOLUTION
    lane = cuda.threadIdx.x
    t = cuda.blockIdx.x * HOURS + 4 * lane
    i = cuda.blockIdx.y * x.shape[1] + t
    a, b, c, d = ptx.load4(x, i)
    p = cuda.shfl_up_sync(0xFFFFFFFF, b, 1)
    q = cuda.shfl_up_sync(0xFFFFFFFF, c, 1)
    r = cuda.shfl_up_sync(0xFFFFFFFF, d, 1)
    if lane == 0:
        p = q = r = float32(0)
        if t > 0:
            _, p, q, r = ptx.load4(x, i - 4)
    ptx.store4(y, i, p + q + r + a, q + r + a + b, r + a + b + c, a + b + c + d)
    ### END SOLUTION


HINTS = (
    "Each lane loads its own a, b, c, d; three shuffles bring it b, c and d of the lane before. All 32 lanes take part "
    "in a shuffle, so it stands before any `if lane == 0`.",
    "Lane 0: zeros at the begin of a row (t == 0), otherwise a second load4 from i - 4.",
    "p, q, r = shfl_up of b, c, d; then store p + q + r + a, q + r + a + b, r + a + b + c, a + b + c + d.",
)


def judge(answer):
    """Right for rows of one block and of several; one request loads a block's hours, one more its halo."""
    last_four, launches = kernel(answer, "last_four"), []
    shapes = ((1, 1), (3, 1), (2, 3), (4, 2))
    for R, blocks in (*shapes, *one_large(answer, 2), drawn(answer, (5, 20), (2, 6))):
        L = blocks * HOURS
        x, y, what = values(answer, R, L, nan=True), poisoned(R, L), f"{R} × {L}"
        report = launched(last_four, (blocks, R), 32, x, y, hints=HINTS, what=what)
        before = np.pad(x, ((0, 0), (3, 0))).astype(np.float64)
        agree(y, sum(before[:, k : k + L] for k in range(4)), what, tolerance=1e-5, hints=HINTS)
        launches.append((report, R, blocks))
    for report, R, blocks in typical_first(launches, len(shapes)):
        enough = R * (2 * blocks - 1)
        loads, stores = report.array("x", "load").requests, report.array("y", "store").requests
        at_most(loads, enough, "requests load x", "16 bytes a lane, and a halo", HINTS, report)
        at_most(stores, R * blocks, "requests store y", "16 bytes a lane", HINTS, report)
        without(report, "shared", why="the hours before are in registers", hints=HINTS)
    return f"Right for {len(launches)} shapes; {R} rows of {blocks} blocks load x in {enough} requests."


if __name__ == "__main__":
    run(__file__)
