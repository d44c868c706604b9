"""Exercise 30_3: four rows a thread

Write a depthwise kernel for 3 × 3 taps, stride 1, padding 1, in which a thread computes four outputs one below the
other. x and y are (C, H, W), w is (C, 3, 3). Block (i, j, c) is one warp: columns 32 i to 32 i + 31 and rows 4 j to
4 j + 3 of channel c.

For four outputs a thread needs six rows of three x. Load each of them once, and each of the nine weights once, and keep
what is needed later in registers (`cuda.local.array` of a small constant size, or plain names). No shared memory.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda, xray
from dwlab.exercises import Wrong, agree, coalesced, float32_only, kernel, launched, poisoned, run
from dwlab.layers import DepthwiseConv2d
from dwlab.planner.accesses import rows_read
from dwlab.references import reference

ROWS = 4


@cuda.jit
def column(x, w, y):
    # Your code here.
    raise NotImplementedError("30_3 is not solved yet: replace this line with your code")


HINTS = (
    "Walk down the rows of x, not down the outputs: row h, once loaded, adds to up to three outputs.",
    "For r in range(6) row h = p0 - 1 + r meets output p0 + k with tap row i = r - k, if that is 0, 1 or 2. Rows and "
    "columns outside the map count as zero: test both.",
    "Before the loop: nine weights into a local array, four sums set to 0. In it: left, middle, right of row h, then "
    "sums[k] += f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] * right. After it: store the rows that exist.",
)


def judge(answer):
    """Right for maps around a block; six rows of x for four outputs; nine weights a thread; no shared memory."""
    column = kernel(answer, "column")
    for C, H, W in ((1, 1, 1), (2, 3, 5), (1, 4, 32), (2, 5, 33), (1, 9, 31), (1, 7, 70)):
        layer = DepthwiseConv2d(1, C, H, W, 3)
        given = layer.inputs(seed=H)
        y = poisoned(C, H, W)
        launched(column, (-(-W // 32), -(-H // ROWS), C), 32, given["x"][0], given["w"], y, hints=HINTS)
        agree(y, reference(layer, "forward", given)["y"][0], f"C={C} H={H} W={W}", hints=HINTS)
    C, H, W = 2, 16, 64
    report = xray(
        column, (2, 4, C), 32, np.ones((C, H, W), np.float32), np.ones((C, 3, 3), np.float32), poisoned(C, H, W)
    )
    if any(access.space == "shared" for access in report.accesses):
        raise Wrong("It uses shared memory; here nothing is shared between threads.", HINTS)
    loads, enough = report.array("x", "load").active_lanes, C * rows_read(H, H, ROWS, 3, 1, 1) * (3 * W - 2)
    if loads > enough:
        raise Wrong(
            f"{loads:,} elements of x are loaded for {C * H * W:,} outputs; {enough:,} are enough: three of each row "
            f"that a thread's {ROWS} outputs need.",
            HINTS,
        )
    weights, enough = report.array("w", "load").requests, 9 * 2 * 4 * C
    if weights > enough:
        raise Wrong(f"{weights:,} requests load w; {enough:,} are enough: nine a warp.", HINTS[2:])
    said = coalesced(report, ("x", "y"), hints=HINTS)
    float32_only(report)
    return f"Right for six maps; {loads / (C * H * W):.2f} loads of x for an output; {said}."


if __name__ == "__main__":
    run(__file__)
