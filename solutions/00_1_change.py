"""Exercise 00_1: the change from hour to hour

A meter reports the energy of each hour. Write a kernel that says how much each hour differs from the one before it:
`change[i] = kwh[i] - kwh[i - 1]`. The first hour has no past, so `change[0] = 0`.

One thread computes one element and stores it once. The number of hours is not always a multiple of the block size, and
no thread may touch an element that does not exist, before the first or after the last. A warp's accesses must be
coalesced.
"""

import numpy as np

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    agree,
    coalesced,
    drawn,
    kernel,
    launched,
    poisoned,
    stored_by_a_thread,
    typical_first,
    values,
)


@cuda.jit
def hourly_change(kwh, change):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    if i < kwh.size:
        if i == 0:
            change[i] = 0
        else:
            change[i] = kwh[i] - kwh[i - 1]
    ### END SOLUTION


HINTS = (
    "i = cuda.grid(1) numbers the threads of all blocks: 0, 1, 2, ... How many threads are there, and how many hours?",
    "Guard both ends: `if i < kwh.size:` around everything, and a case of its own for i == 0. kwh[-1] is no error in "
    "Numba: it is the last element.",
    "if i < kwh.size: then, if i == 0: change[i] = 0, else: change[i] = kwh[i] - kwh[i - 1]",
)


def judge(answer):
    """Right for sizes around warps and blocks and for drawn ones, no access outside the arrays, coalesced."""
    hourly_change = kernel(answer, "hourly_change")
    block, reports = 128, []
    for hours in (1, 2, 31, 32, 33, 127, 128, 129, 1000, 1024, *drawn(answer, (2, 300), (7000, 20000), (1100, 3000))):
        kwh, change, what = values(answer, hours, power=20, nan=True), poisoned(hours), f"kwh of shape ({hours},)"
        reports.append(launched(hourly_change, -(-hours // block), block, kwh, change, hints=HINTS, what=what))
        want = np.diff(kwh, prepend=kwh[0])
        agree(change, want, what, hints=HINTS, mistakes=lambda want=want: {"All of them have the other sign.": -want})
    for report in typical_first(reports, 10):
        stored_by_a_thread(report, "change", 1, HINTS)
        text = coalesced(report)
    return f"Right for {len(reports)} sizes, and coalesced: {text}."


if __name__ == "__main__":
    run(__file__)
