"""Exercise 30_1: the largest of nine, channels last

Between its blocks Xception halves a map by taking the largest x of each window of 3 × 3, in steps of 2:

    y[p, q, c] = max of x[h, v, c],   h = 2p - 1 … 2p + 1,   v = 2q - 1 … 2q + 1

What lies outside the map never wins. x is (H, W, C), y is (P, Q, C), both channels last. Write the kernel with one
thread for each output, in blocks of 128 threads over all P · Q · C outputs, so that loads and stores coalesce.
"""

import math  # noqa: F401

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda, xray
from dwlab.exercises import agree, coalesced, float32_only, kernel, launched, poisoned, run

THREADS = 128


@cuda.jit
def pool(x, y):
    # Your code here.
    raise NotImplementedError("30_1 is not solved yet: replace this line with your code")


HINTS = (
    "at = cuda.grid(1) is the number of an output as it lies in memory. Which of p, q and c changes fastest? % and "
    "// take that out first. Do not forget a guard for at < y.size.",
    "Test both h and v: the pixel left of a row's first is not the last of the row above. x may be negative: "
    "start with float32(-math.inf).",
    "c = at % C; q = at // C % Q; p = at // (C * Q); then two loops over range(3) with h = 2 * p - 1 + i and "
    "v = 2 * q - 1 + j.",
)


def want(x):
    """The maximum of each window, in NumPy."""
    H, W, _ = x.shape
    padded = np.pad(x, ((1, 2), (1, 2), (0, 0)), constant_values=-np.inf)
    windows = [padded[i : i + H : 2, j : j + W : 2] for i in range(3) for j in range(3)]
    return np.max(windows, axis=0)


def judge(answer):
    """Right for odd and even maps, negative x, any number of channels; coalesced; float32 only."""
    pool = kernel(answer, "pool")
    for H, W, C in ((1, 1, 1), (2, 3, 5), (7, 4, 33), (6, 9, 8), (5, 5, 40)):
        x = np.random.default_rng(H).uniform(-3, 1, (H, W, C)).astype(np.float32)
        x[H // 2 :] -= 4
        y = poisoned((H + 1) // 2, (W + 1) // 2, C)
        launched(pool, -(-y.size // THREADS), THREADS, x, y, hints=HINTS)
        agree(y, want(x), f"a map of {H} × {W} with {C} channels", tolerance=0, hints=HINTS)
    report = xray(pool, 7 * 7 * 32 // THREADS + 1, THREADS, np.ones((14, 14, 32), np.float32), poisoned(7, 7, 32))
    said = coalesced(report, hints=HINTS)
    float32_only(report)
    loads = report.array("x", "load").active_lanes
    return f"Right for five maps; {said}; each x is loaded {loads / (14 * 14 * 32):.2f} times."


if __name__ == "__main__":
    run(__file__)
