"""The judge of exercise 00_1, and its hints."""

import numpy as np

from dwlab import cuda
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
    # Your code here.
    raise NotImplementedError("00_1 is not solved yet: replace this line with your code")


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
