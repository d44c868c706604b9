"""Exercise 29_1: four filters a thread

Write a pointwise kernel for one image in NCHW in which a thread computes four filters of one pixel. x is (C, M), its M
pixels next to each other, w is (F, C), y is (F, M). Block (i, j) is one warp: pixels 32 i to 32 i + 31, a lane each,
and filters 4 j to 4 j + 3.

For each channel a thread loads its x once, and four weights that all lanes share; it does four multiply-adds.
F need not be a multiple of 4, nor M of 32. No shared memory.
"""

from functools import partial

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.faster import faster
from dwlab.judge.tools import (
    agree,
    at_most,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    of_a_layer,
    one_large,
    poisoned,
    stored_by_a_thread,
    typical_first,
    values,
    without,
    written_once,
)
from dwlab.problems.layers import Pointwise

FILTERS = 4


@cuda.jit
def one(x, w, y):
    m = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    f = cuda.blockIdx.y
    if m < x.shape[1]:
        total = float32(0)
        for c in range(x.shape[0]):
            total += w[f, c] * x[c, m]
        y[f, m] = total


@cuda.jit
def four(x, w, y):
    ### BEGIN SOLUTION
    sums = cuda.local.array(FILTERS, float32)
    m = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    f0 = cuda.blockIdx.y * FILTERS
    if m < x.shape[1]:
        for k in range(FILTERS):
            sums[k] = 0
        for c in range(x.shape[0]):
            value = x[c, m]
            for k in range(FILTERS):
                if f0 + k < w.shape[0]:
                    sums[k] += w[f0 + k, c] * value
        for k in range(FILTERS):
            if f0 + k < w.shape[0]:
                y[f0 + k, m] = sums[k]
    ### END SOLUTION


HINTS = (
    "One loop over the channels, and in it four sums: what is loaded before the four stands in a register.",
    "value = x[c, m] comes once a channel; then sums[k] += w[f0 + k, c] * value for those k whose filter exists.",
    "sums = cuda.local.array(FILTERS, float32), set to 0 before the loop. The last group of filters may be short, and "
    "so may the last warp: test f0 + k < w.shape[0] at each load and store, and m < x.shape[1] once.",
)


def judge(answer):
    """Right for sizes around a block and drawn ones; x once for four filters; no shared memory."""
    four, launches = kernel(answer, "four"), []
    shapes = ((1, 1, 1), (3, 4, 32), (5, 6, 33), (7, 9, 31), (40, 8, 49), (16, 32, 64))
    more = (
        drawn(answer, (1, 40), (1, 140), (1, 70)),
        *one_large(answer, 3, (1, 2)),
        drawn(answer, (1, 40), (4, 40), (33, 140)),
    )
    for C, F, M in (*shapes, *more):
        x, w, y = values(answer, C, M, nan=True), values(answer, F, C), poisoned(F, M)
        grid, what = (-(-M // 32), -(-F // FILTERS)), f"C={C} F={F} M={M}"
        report = launched(four, grid, 32, x, w, y, hints=HINTS, what=what)
        given, want = {"x": x.reshape(1, C, 1, M), "w": w}, w.astype(np.float64) @ x
        agree(y, want, what, 1e-5, HINTS, partial(of_a_layer, Pointwise(1, C, F, 1, M), given, y, want))
        launches.append((report, C, F, M))
    for report, C, F, M in typical_first(launches, len(shapes)):
        without(report, "shared", why="here nothing is shared but the weights, and these by broadcast", hints=HINTS)
        loads, groups, warps = report.array("x", "load").active_lanes, -(-F // FILTERS), -(-M // 32)
        what = f"elements of x are loaded for {C * F * M:,} products"
        at_most(loads, C * M * groups, what, f"one for {FILTERS}", HINTS, report)
        why = f"{FILTERS} for each channel and warp"
        at_most(report.array("w", "load").requests, FILTERS * groups * C * warps, "requests load w", why, HINTS, report)
        stored_by_a_thread(report, "y", FILTERS, HINTS)
        written_once(report, "y", F * M, HINTS)
        text = coalesced(report, ("x", "y"), hints=HINTS)
        float32_only(report)
    x, w, y = values(answer, 128, 3136), values(answer, 256, 128), np.empty((256, 3136), np.float32)
    timed = faster((four, (98, 64), (32,)), (one, (98, 256), (32,)), x, w, y, least=1.0, hints=HINTS)
    return (
        f"Right for {len(launches)} layers; an x is loaded once for {C * F * M / loads:.3g} multiply-adds, by `one` "
        f"for each; {text}. {timed}."
    )


if __name__ == "__main__":
    run(__file__)
