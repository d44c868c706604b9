"""Exercise 14_1: short rows, full warps

In rows of 20 hours a warp for each row leaves 12 of its 32 lanes without work, in every instruction. Write the kernel
`rise(x, y)`, `y[r, t] = x[r, t] - x[r, t - 1]`, and `y[r, 0] = 0`, so that every warp but the last one is full: it is
launched with blocks of 256 threads and not one block more than the elements need. x and y are (rows, hours) float32. A
warp then has parts of two rows or more: the last lanes of one row and the first of the next. Make it faster: the check
counts the stores' requests.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    agree,
    at_most,
    coalesced,
    drawn,
    kernel,
    launched,
    one_large,
    poisoned,
    stored_by_a_thread,
    values,
)


@cuda.jit
def rise(x, y):
    ### BEGIN SOLUTION
    i = cuda.grid(1)
    if i < y.size:
        r = i // y.shape[1]
        t = i % y.shape[1]
        before = x[r, t - 1] if t > 0 else x[r, t]
        y[r, t] = x[r, t] - before
    ### END SOLUTION


HINTS = (
    "cuda.grid(1) numbers all threads. Element number i of y, counted along memory, is in which row, at which hour?",
    "r = i // hours, t = i % hours; a guard for i, and a case of its own for t = 0.",
)
TWICE = (
    "A store in an if and one in its else are two requests, each of some of the lanes: choose the value there, and "
    "store it behind both."
)


def judge(answer):
    """Right for short rows and drawn ones, as few requests as there are full warps, coalesced."""
    rise, reports = kernel(answer, "rise"), []
    for rows, hours in (
        (1, 1),
        (3, 20),
        (40, 20),
        (13, 32),
        (7, 33),
        (100, 3),
        drawn(answer, (2, 90), (2, 60)),
        *one_large(answer, 2, (0, 1)),
        drawn(answer, (30, 60), (30, 60)),
    ):
        x, y = values(answer, rows, hours, power=20, nan=True), poisoned(rows, hours)
        what = f"x of shape ({rows}, {hours})"
        report = launched(rise, -(-rows * hours // 256), 256, x, y, hints=HINTS, what=what)
        agree(y, np.diff(x, prepend=x[:, :1], axis=1), what, hints=HINTS)
        stored_by_a_thread(report, "y", 1, HINTS)
        full, stores = -(-rows * hours // 32), report.totals.global_store_requests
        at_most(stores, full, "requests store y", "32 elements each", (TWICE, *HINTS), report)
        reports.append((report, full))
    text = [coalesced(report, ("y",), HINTS) for report, _ in reports][2]
    return f"Right for {len(reports)} shapes. 40 rows of 20 hours take {reports[2][1]} requests, not 40; {text}."


if __name__ == "__main__":
    run(__file__)
