"""Exercise 10_1: the mean window

What does an hour of the window look like on average? Write the kernel `mean_window(x, mean)`: x is (B, H, L) float32,
and `mean[h, t]` is the mean of x[b, h, t] over all windows b. One thread computes one element of `mean`.

It is launched with blocks of (32, 8) threads and enough blocks in both directions, whichever of your indices you take
from which of `cuda.grid(2)`. So there are more threads than elements. The check looks at the answer, at which threads
share a warp, and for float64: the kernel has a sum and a division, and both can leak.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
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
def mean_window(x, mean):
    ### BEGIN SOLUTION
    t, h = cuda.grid(2)
    if h < mean.shape[0] and t < mean.shape[1]:
        acc = float32(0)
        for b in range(x.shape[0]):
            acc += x[b, h, t]
        mean[h, t] = acc / float32(x.shape[0])
    ### END SOLUTION


HINTS = (
    "The lanes of a warp are 32 neighbours in threadIdx.x, and the first number that cuda.grid(2) gives runs along x. "
    "Which index of x[b, h, t] runs along memory?",
    "t, h = cuda.grid(2), a guard for both, and a loop over b.",
    "A sum that starts at 0.0 or at 0 is float64, and so is a float32 divided by an integer such as x.shape[0]. "
    "float32(0) and float32(x.shape[0]) are not.",
)


def launch_of(H, L):
    """Grid and block: enough threads in x and in y for either index."""
    most = max(H, L)
    return (-(-most // 32), -(-most // 8)), (32, 8)


def mistakes(x):
    """What comes of typical ones."""
    sums, windows = x.astype(np.float64).sum(axis=0), len(x)
    return {
        "The last window is missing: range(n) ends at n - 1 by itself.": (sums - x[-1]) / windows,
        "The first window is missing: b begins at 0.": (sums - x[0]) / windows,
        "This is the last window, not all of them: what is added up?": x[-1].astype(np.float64),
        "This is the last window alone, divided: what empties the sum?": x[-1].astype(np.float64) / windows,
    }


def judge(answer):
    """Right for odd shapes and drawn ones, no hazard, coalesced, float32 only."""
    mean_window, reports = kernel(answer, "mean_window"), []
    shapes = ((3, 5, 31), (1, 1, 1), (2, 33, 32), (7, 3, 48), (4, 9, 65), (4, 16, 64))
    more = drawn(answer, (1, 70), (1, 40), (1, 140)), drawn(answer, (2, 300), (1, 9), (33, 130))
    # L may be many thousands, H may not: there the grid grows with its square.
    for B, H, L in (*shapes, *more, *one_large(answer, 3, (0, 2)), drawn(answer, (1, 3), (2_000, 3_000), (1, 3))):
        x, mean, what = values(answer, B, H, L, power=20, nan=True), poisoned(H, L), f"B={B} H={H} L={L}"
        if (B, H, L) in more:
            x[-1, -1, -1] = np.inf
        reports.append(launched(mean_window, *launch_of(H, L), x, mean, hints=HINTS[1:2], what=what))
        agree(mean, x.astype(np.float64).mean(axis=0), what, 1e-5, HINTS[1:2], lambda x=x: mistakes(x))
    for report in typical_first(reports, len(shapes)):
        text = coalesced(report, hints=HINTS[:2])
        stored_by_a_thread(report, "mean", 1, HINTS[1:2])
        float32_only(report, hints=HINTS[2:])
    return f"Right for {len(reports)} shapes, in float32, and coalesced: {text}."


if __name__ == "__main__":
    run(__file__)
