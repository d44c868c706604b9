"""Exercise 30_1: the largest of nine, channels last

Between its blocks Xception halves a map by taking the largest x of each window of 3 × 3, in steps of 2:

    y[p, q, c] = max of x[h, v, c],   h = 2p - 1 … 2p + 1,   v = 2q - 1 … 2q + 1

What lies outside the map never wins. x is (H, W, C), y is (P, Q, C), both channels last. Write the kernel with one
thread for each output, in blocks of 128 threads over all P · Q · C outputs, so that loads and stores coalesce.
"""

import math  # noqa: F401

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import agree, coalesced, drawn, float32_only, kernel, launched, poisoned, run, values

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
    """Right for odd and even maps, drawn ones, any x, any number of channels; coalesced; float32 only."""
    pool = kernel(answer, "pool")

    def once(H, W, C, size=1):
        x = values(answer, H, W, C, least=-3, most=1) * np.float32(size)
        x[H // 2 :] -= np.float32(4 * size)
        y = poisoned((H + 1) // 2, (W + 1) // 2, C)
        report = launched(pool, -(-y.size // THREADS), THREADS, x, y, hints=HINTS)
        agree(y, want(x), f"a map of {H} × {W} with {C} channels", tolerance=0, hints=HINTS)
        return report, report.array("x", "load").active_lanes / x.size

    for shape in ((1, 1, 1), (2, 3, 5), (7, 4, 33), (6, 9, 8), (5, 5, 40), drawn(answer, (1, 20), (1, 20), (1, 70))):
        once(*shape)
    once(1, 2, *drawn(answer, (500, 1100)))
    for H, W, groups in ((14, 14, 4), drawn(answer, (15, 25), (15, 25), (4, 9))):
        report, times = once(H, W, 8 * groups)
        said = coalesced(report, hints=HINTS)
        float32_only(report)
    once(*drawn(answer, (1, 5), (1, 5), (1, 5)), size=2.0**120)
    return f"Right for ten maps; {said}; each x is loaded {times:.2f} times."


if __name__ == "__main__":
    run(__file__)
