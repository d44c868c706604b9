"""Exercise 28_2: four rows a thread

Write a depthwise kernel for 3 × 3 taps, stride 1, padding 1, in which a thread computes four outputs one below the
other. x and y are (C, H, W), w is (C, 3, 3). Block (i, j, c) is one warp: columns 32 i to 32 i + 31 and rows 4 j to
4 j + 3 of channel c.

For four outputs a thread needs six rows of three x. Load each of them once, and each of the nine weights once, and keep
what is needed later in registers (`cuda.local.array` of a small constant size, or plain names). No shared memory.
"""

from functools import partial

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
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
    ### BEGIN SOLUTION
    f = cuda.local.array(9, float32)
    sums = cuda.local.array(ROWS, float32)
    q = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    p0 = cuda.blockIdx.y * ROWS
    c = cuda.blockIdx.z
    if q < x.shape[2]:
        for k in range(9):
            f[k] = w[c, k // 3, k % 3]
        for k in range(ROWS):
            sums[k] = 0
        for r in range(ROWS + 2):
            h = p0 - 1 + r
            if 0 <= h < x.shape[1]:
                left = x[c, h, q - 1] if q > 0 else float32(0)
                middle = x[c, h, q]
                right = x[c, h, q + 1] if q + 1 < x.shape[2] else float32(0)
                for k in range(ROWS):
                    i = r - k  # the tap's row under which row h lies, seen from output p0 + k
                    if 0 <= i < 3:
                        sums[k] += f[3 * i] * left + f[3 * i + 1] * middle + f[3 * i + 2] * right
        for k in range(ROWS):
            if p0 + k < y.shape[1]:
                y[c, p0 + k, q] = sums[k]
    ### END SOLUTION


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


if __name__ == "__main__":
    run(__file__)
