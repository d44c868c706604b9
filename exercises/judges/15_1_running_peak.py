"""The judge of exercise 15_1, and its hints."""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda  # noqa: F401
from dwlab.judge.tools import agree, at_most, drawn, kernel, launched, poisoned, typical_first, values, without

HOURS = 16
THREADS = 64


@cuda.jit
def running_peak(x, y):
    # Your code here.
    raise NotImplementedError("15_1 is not solved yet: replace this line with your code")


HINTS = (
    "First a loop that loads the row into `hours`, then a loop that takes the largest of three of them. Both have "
    "HOURS steps; the tests for the row's first hours are constants once they are unrolled.",
    "Threads beyond the last row must do nothing: row = cuda.grid(1), and a guard.",
    "for t in range(HOURS): hours[t] = x[row, t]; then peak = hours[t], and max(peak, hours[t - 1]) if t >= 1, "
    "max(peak, hours[t - 2]) if t >= 2.",
)


def judge(answer):
    """Right at any number of rows; each x loaded once, no shared memory, no atomics."""
    running_peak, launches = kernel(answer, "running_peak"), []
    sizes = (1, 64, 65, 200)
    for R in (*sizes, *drawn(answer, (7000, 9000), (201, 600))):
        x, y, what = values(answer, R, HOURS, power=20), poisoned(R, HOURS), f"{R} × {HOURS}"
        report = launched(running_peak, -(-R // THREADS), THREADS, x, y, hints=HINTS, what=what)
        before = np.pad(x, ((0, 0), (2, 0)), constant_values=-np.inf)
        agree(y, np.maximum(np.maximum(before[:, :-2], before[:, 1:-1]), x), what, tolerance=0, hints=HINTS)
        launches.append((report, R))
    for report, R in typical_first(launches, len(sizes)):
        found = report.array("x", "load").active_lanes
        at_most(found, R * HOURS, "elements of x are loaded", "each x once", HINTS, report)
        without(report, "shared", why="one thread has the whole row", hints=HINTS)
    return f"Right for {len(launches)} numbers of rows; {R} rows load {R * HOURS:,} elements, each once."
