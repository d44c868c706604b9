"""The judge of exercise 38_5, and its hints."""

from functools import partial

import numpy as np
from numba import float32

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
    typical_first,
    values,
    written_once,
)

OUTPUTS = 62
WIDTH = OUTPUTS + 2


@cuda.jit
def broken(x, w1, b1, w2, y):
    inner = cuda.shared.array(WIDTH, float32)
    f = cuda.blockIdx.y
    i = cuda.threadIdx.x
    t = cuda.blockIdx.x * OUTPUTS - 1 + i
    value = b1[f]
    for c in range(x.shape[0]):
        value += w1[f, c] * (x[c, t] if 0 <= t < x.shape[1] else float32(0))
    inner[i] = max(value, float32(0))
    cuda.syncthreads()
    if 0 < i < WIDTH - 1 and t < y.shape[1]:
        y[f, t] = w2[f, 0] * inner[i - 1] + w2[f, 1] * inner[i] + w2[f, 2] * inner[i + 1]


@cuda.jit
def ring(x, w1, b1, w2, y):
    # Your code here.
    raise NotImplementedError("38_5 is not solved yet: replace this line with your code")


HINTS = (
    "Which outputs are wrong: all, or those at the ends of a row? What do only these read?",
    "Take x = 0 everywhere. What stands in inner[0] of the first block, and what should?",
)


def outputs(between, w2):
    """What the three taps make of the elements between the layers."""
    wide = np.pad(between, ((0, 0), (1, 1)))
    return sum(w2[:, [j]] * wide[:, j : j + between.shape[1]] for j in range(3))


def mistakes(sums, bias, w2):
    """What comes of typical ones."""
    return {
        "This is what comes without any bias.": outputs(sums.clip(min=0), w2),
        "This is what comes without the ReLU.": outputs(sums + bias, w2),
    }


def judge(answer):
    """Right with and without a bias, around a tile and for drawn rows; each element between once a block; coalesced."""
    ring, launches = kernel(answer, "ring"), []
    sizes = ((2, 3, 61), (1, 1, 1), (3, 2, 62), (2, 2, 63), (4, 3, 150))
    more = drawn(answer, (1, 20), (1, 9), (1, 200)), drawn(answer, (6, 9), (1, 9), (130, 300))
    for C, F, L in (*sizes, *more, *one_large(answer, 3, (1, 2))):
        x, w1, b1, w2 = values(answer, C, L), values(answer, F, C), values(answer, F), values(answer, F, 3)
        y, what, grid = poisoned(F, L), f"C={C} F={F} L={L}", (-(-L // OUTPUTS), F)
        report = launched(ring, grid, 64, x, w1, b1, w2, y, hints=HINTS, what=what)
        sums, bias = w1.astype("f8") @ x, b1[:, None]
        want = outputs((sums + bias).clip(min=0), w2)
        agree(y, want, what, 1e-5, HINTS, partial(mistakes, sums, bias, w2))
        launches.append((report, C, F, L, grid))
    for report, C, F, L, grid in typical_first(launches, len(sizes)):
        once = sum(min(L, OUTPUTS * i + WIDTH - 1) - max(0, OUTPUTS * i - 1) for i in range(grid[0]))
        read, most = report.array("x", "load"), grid[0] * F * C * (WIDTH // 32 + 1)
        why = "once for each element between the layers"
        at_most(read.active_lanes, F * C * once, "elements of x are loaded", why, HINTS, report)
        at_most(read.requests, most, "requests load x", "32 elements each", HINTS, report)
        written_once(report, "y", F * L, HINTS)
        text = coalesced(report, ("x",), HINTS)
        float32_only(report)
    return f"Right for {len(launches)} sizes: outside of the row there is 0, and not the bias; {text}."
