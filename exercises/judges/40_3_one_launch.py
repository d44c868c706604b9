"""The judge of exercise 40_3, and its hints."""

from functools import partial

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.tools import (
    agree,
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
def block(x, w, b, y):
    # Your code here.
    raise NotImplementedError("40_3 is not solved yet: replace this line with your code")


HINTS = (
    "A thread computes the four z of its window, one after the other, and keeps the largest in a register.",
    "The largest may start at 0: that is the ReLU. Test both h and v before x is read.",
    "for r in range(2 * p, 2 * p + 2), for s in range(2 * q, 2 * q + 2): z = b[c], then the nine products.",
)


def windows(x, w, b, stride=2, above=1):
    """The four z of each y, by NumPy in float64, (4, C, P, Q)."""
    _, H, W = x.shape
    padded = np.pad(x.astype(np.float64), ((0, 0), *[(above, 2 - above)] * 2))
    z = sum(
        w[:, i, j, None, None].astype(np.float64) * padded[:, i : i + H, j : j + W] for i in range(3) for j in range(3)
    )
    z, (P, Q) = z + b[:, None, None], (H // 2 * stride, W // 2 * stride)
    return np.array([z[:, r : r + P : stride, s : s + Q : stride] for r in range(2) for s in range(2)])


def want(*args, **how):
    """The largest of the four, or 0."""
    return windows(*args, **how).max(0).clip(0)


def mistakes(x, w, b):
    """What comes of typical ones."""
    return {
        "This is what comes without the bias.": want(x, w, 0 * b),
        "This is what comes without the ReLU.": windows(x, w, b).max(0),
        "The windows of the pool have a stride of 1 here.": want(x, w, b, stride=1),
        "The filter is the other way round.": want(x, w[:, ::-1, ::-1], b),
        "The taps are one pixel too far down and right.": want(x, w, b, above=0),
    } | (
        {"p and q are exchanged: q goes along a row.": want(x, w, b).swapaxes(1, 2)} if x.shape[1] == x.shape[2] else {}
    )


def judge(answer):
    """Right for even and odd maps, drawn ones, negative sums; a store for each y; float32 only."""
    block, launches = kernel(answer, "block"), []
    shapes = ((4, 8, 8), (1, 2, 2), (3, 2, 8), (2, 5, 7), (1, 14, 20))
    more = drawn(answer, (1, 9), (2, 17), (2, 17)), *((C, 2 * H, 2 * W) for C, H, W in one_large(answer, 3, (0,)))
    for C, H, W in (*shapes, *more, (*drawn(answer, (30, 40)), 8, 8)):
        x, w = values(answer, C, H, W), values(answer, C, 3, 3, least=-2, most=2)
        b = values(answer, C, least=-4, most=4)
        y, what = poisoned(C, H // 2, W // 2), f"{C} maps of {H} × {W}"
        report = launched(block, -(-y.size // THREADS), THREADS, x, w, b, y, hints=HINTS, what=what)
        agree(y, want(x, w, b), what, 1e-5, HINTS, partial(mistakes, x, w, b))
        launches.append((report, y.size))
    for report, _ in typical_first(launches, len(shapes)):
        stored_by_a_thread(report, "y", 1, HINTS)
        float32_only(report)
    return f"Right for {len(launches)} maps, with one launch and one store for each y."
