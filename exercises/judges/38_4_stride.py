"""The judge of exercise 38_4, and its hints."""

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
    typical_first,
    values,
    written_once,
)

OUTPUTS = 31
WIDTH = 2 * OUTPUTS + 1


@cuda.jit
def halved(x, w1, b1, w2, y):
    inner = cuda.shared.array(WIDTH, float32)  # noqa: F841
    f = cuda.blockIdx.y  # noqa: F841
    i = cuda.threadIdx.x
    p = cuda.blockIdx.x * OUTPUTS + i
    t = cuda.blockIdx.x * OUTPUTS * 2 - 1 + i  # noqa: F841
    # 1. Threads 0 to WIDTH - 1 put between[f, t] into inner; 0 where t is outside of the row.
    # Your code here.
    raise NotImplementedError("38_4 is not solved yet: replace this line with your code")
    # 2. Nobody reads before all have written.
    # Your code here.
    raise NotImplementedError("38_4 is not solved yet: replace this line with your code")
    if i < OUTPUTS and p < y.shape[1]:
        # 3. The three taps of output p.
        # Your code here.
        raise NotImplementedError("38_4 is not solved yet: replace this line with your code")


HINTS = (
    "Thread i computes between[f, t] for its t. Where is t outside? There inner[i] is 0, and not b1.",
    "Output p = 31 · block + i needs between at 2 p - 1, 2 p and 2 p + 1; inner[0] is the one at 62 · block - 1.",
    "value = b1[f]; += w1[f, c] * x[c, t] for all c; max(value, float32(0)); a barrier for all 64 threads; the sum of "
    "w2[f, j] * inner[2 * i + j].",
)


def outputs(between, w2, stride=2):
    """What the three taps make of the elements between the layers."""
    wide = np.pad(between, ((0, 0), (1, 1)))
    return sum(w2[:, [j]] * wide[:, j : j + between.shape[1] : stride] for j in range(3))


def mistakes(sums, bias, w2):
    """What comes of typical ones."""
    return {
        "This is what comes without the bias.": outputs(sums.clip(min=0), w2),
        "This is what comes without the ReLU.": outputs(sums + bias, w2),
        "The stride is 1 here.": outputs((sums + bias).clip(min=0), w2, 1)[:, : -(-sums.shape[1] // 2)],
    }


def judge(answer):
    """Right for rows around a tile and drawn ones; each element between the layers once; float32; coalesced."""
    halved, launches = kernel(answer, "halved"), []
    sizes = ((3, 2, 61), (1, 1, 1), (2, 3, 62), (4, 2, 63), (5, 4, 130))
    more = drawn(answer, (1, 20), (1, 9), (1, 200)), drawn(answer, (6, 9), (1, 9), (130, 300))
    for C, F, L in (*sizes, *more, *one_large(answer, 3, (1, 2))):
        x, w1, b1, w2 = values(answer, C, L), values(answer, F, C), values(answer, F), values(answer, F, 3)
        y, what = poisoned(F, -(-L // 2)), f"C={C} F={F} L={L}"
        grid = -(-y.shape[1] // OUTPUTS), F
        report = launched(halved, grid, 64, x, w1, b1, w2, y, hints=HINTS, what=what)
        sums, bias = w1.astype("f8") @ x, b1[:, None]
        want = outputs((sums + bias).clip(min=0), w2)
        agree(y, want, what, 1e-5, HINTS, partial(mistakes, sums, bias, w2))
        launches.append((report, C, F, L, grid))
    for report, C, F, L, grid in typical_first(launches, len(sizes)):
        once = sum(min(L, 2 * OUTPUTS * i + WIDTH - 1) - max(0, 2 * OUTPUTS * i - 1) for i in range(grid[0]))
        read, most = report.array("x", "load"), grid[0] * F * C * (WIDTH // 32 + 1)
        why = "once for each element between the layers"
        at_most(read.active_lanes, F * C * once, "elements of x are loaded", why, HINTS, report)
        at_most(read.requests, most, "requests load x", "32 elements each", HINTS, report)
        written_once(report, "y", F * -(-L // 2), HINTS)
        text = coalesced(report, ("x",), HINTS)
        float32_only(report)
    return f"Right for {len(launches)} sizes, with zeros where they belong; {text}."
