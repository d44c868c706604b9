"""Exercise 27_1: the largest of nine, channels last

Between its blocks Xception halves a map by taking the largest x of each window of 3 × 3, in steps of 2:

    y[p, q, c] = max of x[h, v, c],   h = 2p - 1 … 2p + 1,   v = 2q - 1 … 2q + 1

What lies outside the map never wins. x is (H, W, C), y is (P, Q, C), both channels last. Write the kernel with one
thread for each output, in blocks of 128 threads over all P · Q · C outputs, so that loads and stores coalesce.
"""

import math  # noqa: F401
from functools import partial

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

THREADS = 128


@cuda.jit
def pool(x, y):
    ### BEGIN SOLUTION
    at = cuda.grid(1)
    if at < y.size:
        c = at % y.shape[2]
        q = at // y.shape[2] % y.shape[1]
        p = at // (y.shape[2] * y.shape[1])
        largest = float32(-math.inf)
        for i in range(3):
            for j in range(3):
                h = 2 * p - 1 + i
                v = 2 * q - 1 + j
                if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
                    largest = max(largest, x[h, v, c])
        y[p, q, c] = largest
    ### END SOLUTION


HINTS = (
    "at = cuda.grid(1) is the number of an output as it lies in memory. Which of p, q and c changes fastest? % and "
    "// take that out first. Do not forget a guard for at < y.size.",
    "Test both h and v: the pixel left of a row's first is not the last of the row above. x may be negative: "
    "start with float32(-math.inf).",
    "c = at % C; q = at // C % Q; p = at // (C * Q); then two loops over range(3) with h = 2 * p - 1 + i and "
    "v = 2 * q - 1 + j.",
)


def want(x, outside=-np.inf, taps=range(3), stride=2):
    """The maximum of each window, in NumPy."""
    P, Q = ((n + 1) // 2 * stride for n in x.shape[:2])
    padded = np.pad(x, ((1, 2), (1, 2), (0, 0)), constant_values=outside)
    windows = [padded[i : i + P : stride, j : j + Q : stride] for i in taps for j in taps]
    return np.max(windows, axis=0)


def mistakes(x):
    """What comes of typical ones."""
    return {
        "No y is less than 0 here, but an x may be: what does the largest start from?": want(x).clip(0),
        "What lies outside the map counts as 0 here: it must never win.": want(x, outside=0),
        "The windows have a stride of 1 here.": want(x, stride=1),
        "Each window is one pixel too far down and right.": want(x, taps=range(1, 4)),
    }


def judge(answer):
    """Right for odd and even maps, drawn ones, any x, any number of channels; coalesced; float32 only."""
    pool, launches = kernel(answer, "pool"), []
    shapes = ((7, 4, 33), (1, 1, 1), (2, 3, 5), (6, 9, 8), (5, 5, 40), (14, 14, 32))
    more = drawn(answer, (1, 20), (1, 20), (1, 70)), *one_large(answer, 3, (0, 1, 2))
    rows, columns, groups = drawn(answer, (15, 25), (15, 25), (4, 9))
    large, last = (*drawn(answer, (1, 5), (1, 5), (1, 5)), 2.0**125), (rows, columns, 8 * groups, 1)
    for H, W, C, size in (*((*one, 1) for one in (*shapes, *more)), large, last):
        x = values(answer, H, W, C, least=-3, most=1) * np.float32(size)
        x[H // 2 :] -= np.float32(4 * size)
        y, what = poisoned((H + 1) // 2, (W + 1) // 2, C), f"a map of {H} × {W} with {C} channels"
        report = launched(pool, -(-y.size // THREADS), THREADS, x, y, hints=HINTS, what=what)
        agree(y, want(x), what, 0, HINTS, partial(mistakes, x))
        launches.append((report, C, x.size))
    for report, C, _ in typical_first(launches, len(shapes)):
        # Of few channels the nine x are no neighbours, whatever the kernel; outputs are neighbours always.
        text = coalesced(report, () if C % 8 == 0 and C >= 32 else ("y",), hints=HINTS)
        stored_by_a_thread(report, "y", 1, HINTS)
        float32_only(report)
    times = report.array("x", "load").active_lanes / launches[-1][2]
    return f"Right for {len(launches)} maps; {text}; each x is loaded {times:.2f} times."


if __name__ == "__main__":
    run(__file__)
