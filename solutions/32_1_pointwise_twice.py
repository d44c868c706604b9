"""Exercise 32_1: two pointwise layers, a step at a time

A pointwise layer with a bias and a ReLU makes F filters of C channels, and a second one makes 32 of these F. For each
of M pixels:

    between[f, m] = max(0, b1[f] + sum over c of w1[f, c] * x[c, m])
    y[g, m]       = sum over f of w2[g, f] * between[f, m]

x is (C, M), w1 (F, C), b1 (F,), w2 (32, F), y (32, M); F is a multiple of 16 and may be large. Write the kernel so that
`between` is never in global memory, and only **16 filters of it are in shared memory at a time**: 2,048 bytes. Block i
has 32 × 8 threads and the pixels 32 i to 32 i + 31, a lane each. Thread (lane, row) keeps the sums of the outputs
4 row to 4 row + 3 of its pixel. Each element of `between` is to be computed once. M need not be a multiple of 32.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    Wrong,
    agree,
    at_most,
    drawn,
    float32_only,
    kernel,
    launched,
    one_large,
    poisoned,
    typical_first,
    written_once,
)
from dwlab.problems.layers import Fused, Pointwise
from dwlab.problems.references import reference

PIXELS = 32
ROWS = 8
STEP = 16
OUTPUTS = 32


@cuda.jit
def twice(x, w1, b1, w2, y):
    ### BEGIN SOLUTION
    between = cuda.shared.array((STEP, PIXELS), float32)
    sums = cuda.local.array(4, float32)
    lane = cuda.threadIdx.x
    row = cuda.threadIdx.y
    m = cuda.blockIdx.x * PIXELS + lane
    for k in range(4):
        sums[k] = 0
    for f0 in range(0, w1.shape[0], STEP):
        for i in range(row, STEP, ROWS):
            total = float32(0)
            if m < x.shape[1]:
                total = b1[f0 + i]
                for c in range(x.shape[0]):
                    total += w1[f0 + i, c] * x[c, m]
            between[i, lane] = max(total, float32(0))
        cuda.syncthreads()
        for i in range(STEP):
            value = between[i, lane]
            for k in range(4):
                sums[k] += w2[4 * row + k, f0 + i] * value
        cuda.syncthreads()
    if m < x.shape[1]:
        for k in range(4):
            y[4 * row + k, m] = sums[k]
    ### END SOLUTION


HINTS = (
    "A loop over f0 = 0, 16, 32, … with two parts: 256 threads compute 16 × 32 elements of `between`, two each; then "
    "each thread adds these 16 filters to its four sums.",
    "Two barriers a step: one between the parts, one before the next step overwrites what slower threads still read. "
    "No thread may skip one that the others of its block wait at; a thread without a pixel may take part, or return "
    "before the loop: a barrier does not wait for threads that have returned.",
    "Sums begin at 0 before the loop and are stored after it. Bias and ReLU belong to a finished element of `between`: "
    "after the loop over c, before it goes into shared memory.",
)


def problem(C, F, M):
    """The two layers."""
    return Fused(Pointwise(1, C, F, 1, M, bias=True, activation="relu"), Pointwise(1, F, OUTPUTS, 1, M))


def mistakes(x, w1, b1, w2):
    """What comes of typical ones."""
    sums, F = w1.astype("f8") @ x, len(b1)
    bias, last = b1.astype("f8")[:, None], F - STEP
    between = (sums + bias).clip(0)
    right = w2 @ between
    return {
        "This is what comes without the bias.": w2 @ sums.clip(0),
        "This is what comes without the ReLU.": w2 @ (sums + bias),
        "Here the ReLU stands behind the second layer. It belongs between the two.": (w2 @ (sums + bias)).clip(0),
        "Here the bias is added once for each channel, in the loop over c.": w2 @ (sums + len(x) * bias).clip(0),
        "These are the first 16 filters of `between` alone. Where are the others?": w2[:, :STEP] @ between[:STEP],
        "These are the last 16 filters of `between` alone: what empties the sums?": w2[:, last:] @ between[last:],
        "A second ReLU stands behind the second layer: y may be negative.": right.clip(0),
        "Each step takes the same 16 columns of w2.": np.tile(w2[:, :STEP], F // STEP) @ between,
        "Each step takes the same 16 rows of w1.": w2 @ (np.tile(sums[:STEP], (F // STEP, 1)) + bias).clip(0),
        "Each step takes the same 16 biases.": w2 @ (sums + np.tile(bias[:STEP], (F // STEP, 1))).clip(0),
        "The outputs are exchanged: thread (lane, row) has the outputs 4 row to 4 row + 3, one below the other.": (
            right.reshape(4, ROWS, -1).transpose(1, 0, 2).reshape(right.shape)
        ),
        "Sums of the outputs 4 row to 4 row + 3 are stored with a stride of 8: they lie one below the other.": (
            right.reshape(ROWS, 4, -1).transpose(1, 0, 2).reshape(right.shape)
        ),
    }


def judge(answer):
    """Right for pixels around a block and drawn sizes; a step's shared memory; `between` nowhere else, and once."""
    twice, launches, enough = kernel(answer, "twice"), [], 4 * STEP * PIXELS
    shapes = ((1, 1, 1), (3, 2, 31), (5, 3, 33), (2, 4, 64))
    long = [(C, -(-steps // STEP), M) for C, steps, M in one_large(answer, 3, (2,))]
    more = *long, drawn(answer, (1, 40), (1, 9), (100, 140))
    for C, steps, M in (*shapes, *more, drawn(answer, (1, 20), (5, 20), (1, 70))):
        F, what = STEP * steps, f"C={C} F={STEP * steps} M={M}"
        layers = problem(C, F, M)
        given = layers.inputs(seed=drawn(answer, (0, 1 << 30))[0])
        y, x = poisoned(OUTPUTS, M), given["x"].reshape(C, M)
        want = reference(layers, "pwpw", given)["y"].reshape(OUTPUTS, M)
        arrays = x, given["w1"], given["b1"], given["w2"], y
        report = launched(twice, -(-M // PIXELS), (PIXELS, ROWS), *arrays, hints=HINTS, what=what)
        agree(y, want, what, 1e-5, HINTS, lambda four=arrays[:4]: mistakes(*four))
        if report.shared_bytes > enough:
            raise Wrong(
                f"{report.what}: a block has {report.shared_bytes:,} bytes of shared memory; {enough:,} hold {STEP} "
                f"filters of {PIXELS} pixels.",
                HINTS,
            )
        launches.append((report, C, F, M))
    for report, C, F, M in typical_first(launches, len(shapes)):
        what = "loads of w1, one for each multiply-add of the first layer"
        products = report.array("w1", "load").active_lanes
        at_most(products, F * C * M, what, "if each element of `between` is computed once", HINTS, report)
        # Two operations for each multiply-add, and up to two for bias and ReLU; threads without a pixel may take part.
        flops = F * -(-M // PIXELS) * PIXELS * (2 * C + 2 * OUTPUTS + 2)
        why = "each element of `between` is computed once"
        at_most(report.totals.flops, flops, "floating-point operations", why, HINTS, report)
        written_once(report, "y", OUTPUTS * M, HINTS)
        float32_only(report)
    return (
        f"Right for {len(launches)} sizes. {products:,} multiply-adds in the first layer, each once; "
        f"{report.shared_bytes:,} bytes of shared memory a block, where all {F} filters would be {4 * F * PIXELS:,}."
    )


if __name__ == "__main__":
    run(__file__)
