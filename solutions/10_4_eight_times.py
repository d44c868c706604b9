"""Exercise 10_4: right, and eight times too slow

The kernel `broken` of the file takes the mean of each meter from its readings and divides by 2.1: right for all
sizes, without a hazard. X-ray it on 64 meters of 128 hours, in a grid of (2, 8) blocks of (32, 16) threads: it has
two faults, and each costs a GPU a multiple of its time. Write `centred(x, mean, y)` without them. It is launched with
blocks of (32, 8) threads and enough of them in both directions, whichever of your indices you take from which of
`cuda.grid(2)`.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.faster import faster
from dwlab.judge.tools import (
    agree,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    one_large,
    poisoned,
    stored_by_a_thread,
    typical_first,
    values,
)


@cuda.jit
def broken(x, mean, y):
    m, t = cuda.grid(2)
    if m < x.shape[0] and t < x.shape[1]:
        y[m, t] = (x[m, t] - mean[m]) / 2.1


@cuda.jit
def centred(x, mean, y):
    ### BEGIN SOLUTION
    t, m = cuda.grid(2)
    if m < x.shape[0] and t < x.shape[1]:
        y[m, t] = (x[m, t] - mean[m]) / float32(2.1)
    ### END SOLUTION


HINTS = (
    "How many sectors does a request for x move, and how many would hold its bytes?",
    "The first number of cuda.grid(2) runs along threadIdx.x. Which index of x runs along memory?",
)
RIGHT = ("What `broken` computes is right, and so are its guards: which meter and hour has a thread, and which mean?",)
DOUBLE = ("Which operations does the x-ray count in float64? A literal such as 2.1 is one.",)


def judge(answer):
    """Right for odd sizes and drawn ones, coalesced, float32 only."""
    centred, reports = kernel(answer, "centred"), []
    sizes = ((1, 1), (5, 31), (33, 32), (3, 65), (64, 128))
    for M, T in (*sizes, drawn(answer, (1, 90), (1, 90)), *one_large(answer, 2), drawn(answer, (70, 90), (120, 150))):
        x, mean, y, what = values(answer, M, T, nan=True), values(answer, M), poisoned(M, T), f"x of shape ({M}, {T})"
        grid = -(-max(M, T) // 32), -(-max(M, T) // 8)
        reports.append(launched(centred, grid, (32, 8), x, mean, y, hints=RIGHT, what=what))
        agree(y, (x - mean[:, None].astype(np.float64)) / 2.1, what, 1e-5, hints=RIGHT)
    for report in typical_first(reports, len(sizes)):
        text = coalesced(report, hints=HINTS)
        stored_by_a_thread(report, "y", 1, RIGHT)
        float32_only(report, hints=DOUBLE)
    x, mean, y = values(answer, 2048, 4096), values(answer, 2048), np.empty((2048, 4096), np.float32)
    given = (broken, (64, 512), (32, 8))
    timed = faster((centred, (128, 512), (32, 8)), given, x, mean, y, least=1.5, hints=HINTS)
    return f"Right for {len(reports)} sizes, in float32, and coalesced: {text}. {timed}."


if __name__ == "__main__":
    run(__file__)
