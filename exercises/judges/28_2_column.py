"""The judge of exercise 28_2, and its hints."""

from functools import partial

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
    of_a_layer,
    one_large,
    poisoned,
    stored_by_a_thread,
    typical_first,
    without,
    written_once,
)
from dwlab.planner.accesses import rows_read
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.problems.references import reference

ROWS = 4


@cuda.jit
def column(x, w, y):
    # Your code here.
    raise NotImplementedError("28_2 is not solved yet: replace this line with your code")


HINTS = (
    "Walk down the rows of x, not down the outputs: row h, once loaded, adds to up to three outputs.",
    "For r in range(6) row h = p0 - 1 + r meets output p0 + k with tap row i = r - k, if that is 0, 1 or 2. Rows and "
    "columns outside the map count as zero: test both.",
    "Before the loop: nine weights into a local array, four sums set to 0. In it: left, middle, right of row h, then "
    "sums[k] += f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] * right. After it: store the rows that exist.",
)


def judge(answer):
    """Right for maps around a block and drawn ones; six rows of x for four outputs; nine weights a thread."""
    column, launches = kernel(answer, "column"), []
    shapes = ((2, 3, 5), (1, 1, 1), (1, 4, 32), (2, 5, 33), (1, 9, 31), (1, 7, 70), (2, 16, 64))
    more = drawn(answer, (1, 40), (1, 9), (1, 70)), drawn(answer, (1, 3), (1, 70), (1, 99))
    for C, H, W in (*shapes, *one_large(answer, 3, (0, 1, 2)), *more):
        layer = DepthwiseConv2d(1, C, H, W, 3)
        given = layer.inputs(seed=drawn(answer, (0, 1 << 30))[0])
        y, want = poisoned(C, H, W), reference(layer, "forward", given)["y"][0]
        grid, what = (-(-W // 32), -(-H // ROWS), C), f"C={C} H={H} W={W}"
        report = launched(column, grid, 32, given["x"][0], given["w"], y, hints=HINTS, what=what)
        agree(y, want, what, 1e-5, HINTS, partial(of_a_layer, layer, given, y, want))
        launches.append((report, C, H, W))
    for report, C, H, W in typical_first(launches, len(shapes)):
        without(report, "shared", why="here nothing is shared between threads", hints=HINTS)
        loads, enough = report.array("x", "load").active_lanes, C * rows_read(H, H, ROWS, 3, 1, 1) * (3 * W - 2)
        why = f"three of each row that a thread's {ROWS} outputs need"
        at_most(loads, enough, f"elements of x are loaded for {C * H * W:,} of y", why, HINTS, report)
        weights, enough = report.array("w", "load").requests, 9 * -(-W // 32) * -(-H // ROWS) * C
        at_most(weights, enough, "requests load w", "nine a warp", HINTS[2:], report)
        stored_by_a_thread(report, "y", ROWS, HINTS)
        written_once(report, "y", C * H * W, HINTS)
        text = coalesced(report, ("x", "y"), hints=HINTS)
        float32_only(report)
    return f"Right for {len(launches)} maps; {loads / (C * H * W):.2f} loads of x for an output; {text}."
