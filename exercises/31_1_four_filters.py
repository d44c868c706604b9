"""Exercise 31_1: four filters a thread

Write a pointwise kernel for one image in NCHW in which a thread computes four filters of one pixel. x is (C, M), its M
pixels next to each other, w is (F, C), y is (F, M). Block (i, j) is one warp: pixels 32 i to 32 i + 31, a lane each,
and filters 4 j to 4 j + 3.

For each channel a thread loads its x once, and four weights that all lanes share; it does four multiply-adds.
F need not be a multiple of 4, nor M of 32. No shared memory.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda, xray
from dwlab.exercises import Wrong, agree, coalesced, float32_only, kernel, launched, poisoned, run
from dwlab.layers import Pointwise
from dwlab.references import reference

FILTERS = 4


@cuda.jit
def four(x, w, y):
    # Your code here.
    raise NotImplementedError("31_1 is not solved yet: replace this line with your code")


HINTS = (
    "One loop over the channels, and in it four sums: what is loaded before the four stands in a register.",
    "value = x[c, m] comes once a channel; then sums[k] += w[f0 + k, c] * value for those k whose filter exists.",
    "sums = cuda.local.array(FILTERS, float32), set to 0 before the loop. The last group of filters may be short, and "
    "so may the last warp: test f0 + k < w.shape[0] at each load and store, and m < x.shape[1] once.",
)


def judge(answer):
    """Right for sizes around a block; x once for four filters; lanes next to each other; no shared memory."""
    four = kernel(answer, "four")
    for C, F, M in ((1, 1, 1), (3, 4, 32), (5, 6, 33), (7, 9, 31), (40, 8, 49)):
        layer = Pointwise(1, C, F, 1, M)
        given = layer.inputs(seed=M)
        y = poisoned(F, M)
        grid = (-(-M // 32), -(-F // FILTERS))
        launched(four, grid, 32, given["x"].reshape(C, M), given["w"], y, hints=HINTS)
        want = reference(layer, "forward", given)["y"].reshape(F, M)
        agree(y, want, f"{C} channels, {F} filters, {M} pixels", tolerance=1e-5, hints=HINTS)
    C, F, M = 16, 32, 64
    report = xray(four, (2, 8), 32, np.ones((C, M), "f4"), np.ones((F, C), "f4"), poisoned(F, M))
    if any(access.space == "shared" for access in report.accesses):
        raise Wrong("It uses shared memory; here nothing is shared but the weights, and these by broadcast.", HINTS)
    loads, enough = sum(a.active_lanes for a in report.accesses if (a.array, a.kind) == ("x", "load")), C * M * F // 4
    if loads > enough:
        raise Wrong(
            f"{loads:,} elements of x are loaded for {C * F * M:,} multiply-adds; {enough:,} are enough: one for four.",
            HINTS,
        )
    said = coalesced(report, ("x", "y"), hints=HINTS)
    float32_only(report)
    return f"Right for five layers; an x is loaded once for {C * F * M // loads} multiply-adds; {said}."


if __name__ == "__main__":
    run(__file__)
