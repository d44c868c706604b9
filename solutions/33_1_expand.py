"""Exercise 33_1: a pointwise layer, then a depthwise one, in one kernel

The first half of MobileNetV2's block: a pointwise layer with a bias and a ReLU makes many channels of few, and a
depthwise layer of 3 × 3 taps, stride 1, padding 1 follows. Per image:

    between[f, h, v] = max(0, b1[f] + sum over c of w1[f, c] * x[c, h, v])
    y[f, p, q]       = sum over i, j of w2[f, i, j] * between[f, p + i - 1, q + j - 1]

Outside of the map `between` is **zero**. x is (C, H, W), w1 (F, C), b1 (F,), w2 (F, 3, 3), y (F, H, W), F a multiple
of 4. Write the kernel so that `between` is never in global memory. Block (i, j, g) has 8 × 8 threads; it computes the
tile of outputs that begins at row 8 j and column 8 i, of filters 4 g to 4 g + 3. It keeps `between` in shared memory,
10 × 10 of it for each filter, and loads each x that it needs once.
"""

from functools import partial

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    agree,
    at_most,
    drawn,
    float32_only,
    kernel,
    launched,
    of_a_layer,
    one_large,
    poisoned,
    typical_first,
    written_once,
)
from dwlab.planner.accesses import Tile, pwdw
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.references import reference

SIDE = 8
FILTERS = 4
HALO = SIDE + 2


@cuda.jit
def expand(x, w1, b1, w2, y):
    ### BEGIN SOLUTION
    between = cuda.shared.array((FILTERS, HALO, HALO), float32)
    row = cuda.threadIdx.y
    column = cuda.threadIdx.x
    p0 = cuda.blockIdx.y * SIDE
    q0 = cuda.blockIdx.x * SIDE
    f0 = cuda.blockIdx.z * FILTERS
    for k in range(row * SIDE + column, HALO * HALO, SIDE * SIDE):
        i = k // HALO
        j = k % HALO
        h = p0 - 1 + i
        v = q0 - 1 + j
        s0 = s1 = s2 = s3 = float32(0)
        if 0 <= h < x.shape[1] and 0 <= v < x.shape[2]:
            s0 = b1[f0]
            s1 = b1[f0 + 1]
            s2 = b1[f0 + 2]
            s3 = b1[f0 + 3]
            for c in range(x.shape[0]):
                value = x[c, h, v]
                s0 += w1[f0, c] * value
                s1 += w1[f0 + 1, c] * value
                s2 += w1[f0 + 2, c] * value
                s3 += w1[f0 + 3, c] * value
        between[0, i, j] = max(s0, float32(0))
        between[1, i, j] = max(s1, float32(0))
        between[2, i, j] = max(s2, float32(0))
        between[3, i, j] = max(s3, float32(0))
    cuda.syncthreads()
    p = p0 + row
    q = q0 + column
    if p < y.shape[1] and q < y.shape[2]:
        for f in range(FILTERS):
            total = float32(0)
            for i in range(3):
                for j in range(3):
                    total += w2[f0 + f, i, j] * between[f, row + i, column + j]
            y[f0 + f, p, q] = total
    ### END SOLUTION


HINTS = (
    "Two parts with a barrier between them: 64 threads compute 100 pixels of `between` for four filters, then each "
    "computes one output of each filter from there.",
    "One loop over the channels for a pixel: load x[c, h, v] once and add it to four sums. A pixel outside of the map "
    "has no bias either: it stays 0, where max(0, b1) would be wrong.",
    "for k in range(threadIdx.y * 8 + threadIdx.x, 100, 64): h = 8 j - 1 + k // 10, v = 8 i - 1 + k % 10. Then "
    "syncthreads(), at which all 64 threads meet. Output (row, column) reads between[f, row + i, column + j].",
)


def problem(C, F, H, W):
    """The two layers."""
    return Fused(Pointwise(1, C, F, H, W, bias=True, activation="relu"), DepthwiseConv2d(1, F, H, W, 3))


def judge(answer):
    """Right for maps around a tile and drawn ones, biases of either sign; x and `between` as often as modelled."""
    expand = kernel(answer, "expand")
    shapes = ((3, 1, 5, 8), (1, 1, 1, 1), (2, 2, 8, 9), (5, 1, 17, 7), (4, 2, 16, 24))
    long = [(C, -(-groups // FILTERS), H, W) for C, groups, H, W in one_large(answer, 4)]
    # The long ones last: who computes `between` nine times would not end there, and hears so before.
    loads, more = counted(answer, expand, (*shapes, drawn(answer, (5, 20), (3, 6), (17, 25), (25, 33))))
    counted(answer, expand, long)
    return (
        f"Right for {len(shapes) + 1 + len(long)} maps. {loads:,} elements of x loaded, as the model says; the halos "
        f"cost {100 * more:.0f} % more pointwise work."
    )


def counted(answer, expand, sizes):
    """Judges launches of these sizes. Of the last: elements of x loaded, and the part of pointwise work in halos."""
    launches = []
    for C, groups, H, W in sizes:
        F, what = FILTERS * groups, f"C={C} F={FILTERS * groups} H={H} W={W}"
        layers = problem(C, F, H, W)
        given = layers.inputs(seed=drawn(answer, (0, 1 << 30))[0])
        given["b1"] = np.abs(given["b1"]) + np.float32(0.5)
        given["b1"][1::4] *= -1
        y, grid = poisoned(F, H, W), (-(-W // SIDE), -(-H // SIDE), groups)
        want = reference(layers, "pwdw", given)["y"][0]
        arrays = given["x"][0], given["w1"], given["b1"], given["w2"], y
        report = launched(expand, grid, (SIDE, SIDE), *arrays, hints=HINTS, what=what)
        agree(y, want, what, 1e-5, HINTS, partial(of_a_layer, layers, given, y, want))
        launches.append((report, pwdw(layers.first, layers.second, Tile(FILTERS, SIDE, SIDE)), F * C * H * W, F, H, W))
    for report, model, work, F, H, W in typical_first(launches, len(sizes) - 1):
        blocks = F // FILTERS * -(-H // SIDE) * -(-W // SIDE)
        loads, enough = report.array("x", "load").active_lanes, model.elements["x"]
        at_most(loads, enough, "elements of x are loaded", "each block its tile and halo once", HINTS[1:], report)
        written_once(report, "y", F * H * W, HINTS)
        # Two operations for each multiply-add, also in threads without an output, and up to two for bias and ReLU.
        flops = 2 * model.pointwise_macs + FILTERS * blocks * (18 * SIDE * SIDE + 2 * HALO * HALO)
        why = "each element of `between` is computed once for a tile"
        at_most(report.totals.flops, flops, "floating-point operations", why, HINTS, report)
        float32_only(report)
        more = model.pointwise_macs / work - 1
    return loads, more


if __name__ == "__main__":
    run(__file__)
