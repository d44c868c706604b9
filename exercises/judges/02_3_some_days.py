"""The judge of exercise 02_3, and its hints."""

import math  # noqa: F401

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import agree, at_most, coalesced, drawn, kernel, launched, poisoned, values, written_once


@cuda.jit
def broken(x, peak):
    part = cuda.shared.array(128, float32)
    i = cuda.threadIdx.x
    at = cuda.grid(1)
    part[i] = x[at] if at < x.size else float32(-math.inf)
    cuda.syncthreads()
    half = 64
    while half > 0:
        if i < half:
            part[i] = max(part[i], part[i + half])
        half //= 2
    if i == 0:
        peak[cuda.blockIdx.x] = part[0]


@cuda.jit
def block_peak(x, peak):
    # Your code here.
    raise NotImplementedError("02_3 is not solved yet: replace this line with your code")


HINTS = (
    "A hazard names two threads, two lines and one element. What stands between these two accesses?",
    "Each iteration reads what other threads wrote in the one before.",
    "All 128 threads must come to a barrier, also those that have nothing left to compare.",
)


def judge(answer):
    """Right for one block and several, full and not, without a hazard, each reading loaded once."""
    block_peak, reports = kernel(answer, "block_peak"), []
    for size in (1, 127, 128, 256, *drawn(answer, (129, 700), (7000, 20000), (300, 700))):
        x, blocks, what = values(answer, size, power=20), -(-size // 128), f"x of shape ({size},)"
        x = -abs(x) - 1 if size == 127 else x  # what fills the last block up must be less than all
        peak = poisoned(blocks)
        report = launched(block_peak, blocks, 128, x, peak, hints=HINTS, what=what)
        agree(peak, np.array([x[128 * k : 128 * (k + 1)].max() for k in range(blocks)]), what, 0, hints=HINTS[1:])
        loaded = sum(one.active_lanes for one in report.accesses if (one.array, one.kind) == ("x", "load"))
        at_most(loaded, size, "elements of x are loaded", "each once", HINTS[:1], report)
        written_once(report, "peak", blocks, HINTS)
        text = coalesced(report, ["x"], ("Neighbouring lanes load neighbouring readings.",), -(-size // 32))
        reports.append(report)
    return f"Right for {len(reports)} sizes, without a race; {text}."
