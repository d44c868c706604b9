"""The judge of exercise 31_1, and its hints."""

from functools import partial

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.tools import (
    agree,
    at_most,
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
    without,
    written_once,
)


@cuda.jit
def add(parts, y):
    """One thread an output: block (i, f) has pixels 32 i to 32 i + 31 of filter f."""
    m, f = cuda.blockIdx.x * 32 + cuda.threadIdx.x, cuda.blockIdx.y
    if m < y.shape[1]:
        total = float32(0)
        for k in range(parts.shape[0]):
            total += parts[k, f, m]
        y[f, m] = total


@cuda.jit
def split(x, w, parts):
    # Your code here.
    raise NotImplementedError("31_1 is not solved yet: replace this line with your code")


HINTS = (
    "First without parts: m = cuda.blockIdx.x * 32 + cuda.threadIdx.x, f = cuda.blockIdx.y, a loop over all channels.",
    "Then the loop's range: from size * k to the smaller of C and size * (k + 1), with k = cuda.blockIdx.z and size "
    "rounded up, (C + W - 1) // W in integers.",
    "A range whose end lies before its start is empty: the part is 0, and it must be stored all the same.",
)


def summed(x, w, W, part):
    """parts, of which part k has the channels part(k), a slice."""
    return np.stack([w[:, part(k)].astype(np.float64) @ x[part(k)] for k in range(W)])


def mistakes(x, w, W):
    """What comes of typical ones."""
    size, down = -(-len(x) // W), len(x) // W
    typical = {
        "Each part has all channels.": lambda k: slice(None),
        "S is rounded down here.": lambda k: slice(down * k, down * (k + 1)),
        "S is one too large where W divides C.": lambda k: slice((down + 1) * k, (down + 1) * (k + 1)),
        "Part k has the channels k, k + W, … here: those of a part are neighbours.": lambda k: slice(k, None, W),
        "Each part has one channel too many, the next part's first.": lambda k: slice(size * k, size * (k + 1) + 1),
    }
    return {text: summed(x, w, W, part) for text, part in typical.items()}


def judge(answer):
    """Each part right, for sizes around a block and drawn ones; and their sum."""
    split, launches = kernel(answer, "split"), []
    shapes = ((1, 1, 1, 1), (7, 2, 33, 3), (9, 3, 31, 8), (40, 2, 49, 6), (5, 2, 20, 8), (32, 4, 32, 4))
    more = (
        *one_large(answer, 4, (1, 2)),
        drawn(answer, (100, 300), (1, 4), (1, 60), (30, 90)),
        drawn(answer, (1, 40), (8, 20), (33, 90), (1, 12)),
    )
    for C, F, M, W in (*shapes, *more):
        x, w, parts, y = values(answer, C, M, nan=True), values(answer, F, C), poisoned(W, F, M), poisoned(F, M)
        what = f"C={C} F={F} M={M} W={W}"
        report = launched(split, (-(-M // 32), F, W), 32, x, w, parts, hints=HINTS, what=what)
        size = -(-C // W)
        want = summed(x, w, W, lambda k, size=size: slice(size * k, size * (k + 1)))
        agree(parts, want, what, 1e-5, HINTS, partial(mistakes, x, w, W))
        launched(add, (-(-M // 32), F), 32, np.asarray(parts), y)
        agree(y, want.sum(axis=0), f"{what}, added up", tolerance=1e-5, hints=HINTS)
        launches.append((report, C, F, M, W))
    for report, C, F, M, W in typical_first(launches, len(shapes)):
        without(report, "shared", "atomics", why="each part has a place of its own", hints=HINTS)
        what = f"elements of x are loaded for {C * F * M:,} products"
        at_most(report.array("x", "load").active_lanes, C * M * F, what, "one for each", HINTS, report)
        stored_by_a_thread(report, "parts", 1, HINTS)
        written_once(report, "parts", W * F * M, HINTS)
        text = coalesced(report, ("x", "parts"), hints=HINTS)
        float32_only(report)
    return f"Right for {len(launches)} layers, each part and their sum; {text}."
