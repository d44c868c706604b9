"""Exercise 13_1: a total without shared memory

Write the kernel `totals(kwh, total)`: `kwh` is (meters, hours) float32, and `total[m]` the sum of the row kwh[m]. It is
launched with blocks of (32, 4) threads: a warp is 32 threads with the same `cuda.threadIdx.y`, and takes a row of its
own, `cuda.blockIdx.x * 4 + cuda.threadIdx.y`. There may be more warps than rows.

Each lane adds up its part of the row, the lanes add up theirs by shuffles, and one lane stores. No shared memory, no
atomics, no barrier; loads are coalesced, and the sum is float32.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda, xray
from dwlab.exercises import Wrong, agree, coalesced, float32_only, kernel, launched, poisoned, run

WARPS = 4
EVERY_LANE = 0xFFFFFFFF


@cuda.jit
def totals(kwh, total):
    # Your code here.
    raise NotImplementedError("13_1 is not solved yet: replace this line with your code")


HINTS = (
    "Lane l takes hours l, l + 32, l + 64 and so on: at one moment the lanes read neighbours.",
    "After acc += cuda.shfl_xor_sync(EVERY_LANE, acc, 16) lanes l and l ^ 16 hold the same sum of two parts. How many "
    "such steps make it a sum of 32?",
    "Distances 16, 8, 4, 2, 1. Every lane named in the mask must take part: the guard for the row may stand around it, "
    "since it holds for the whole warp, a guard for the hour may not.",
)


def judge(answer):
    """Right for odd shapes, no hazard, no shared memory, atomics or barriers, coalesced, float32."""
    totals = kernel(answer, "totals")
    for meters, hours in ((1, 1), (3, 31), (4, 32), (5, 33), (9, 48), (6, 168)):
        kwh = np.random.default_rng(hours).uniform(0, 3, (meters, hours)).astype(np.float32)
        total = poisoned(meters)
        launched(totals, -(-meters // WARPS), (32, WARPS), kwh, total, hints=HINTS)
        agree(total, kwh.astype(np.float64).sum(axis=1), f"{meters} meters, {hours} hours", hints=HINTS)
    report = xray(totals, 2, (32, WARPS), np.ones((8, 128), np.float32), poisoned(8))
    counts = report.totals
    for what, found in (
        ("accesses to shared memory", counts.shared_requests),
        ("atomics", counts.atomics),
        ("barriers of the block", counts.barriers),
    ):
        if found:
            raise Wrong(f"{found:,} {what}; the lanes' parts can be added without any.", HINTS[1:])
    said = coalesced(report, ["kwh"], hints=HINTS)
    requests, enough = report.array("kwh", "load").requests, 8 * 128 // 32
    if requests > enough:
        raise Wrong(f"{requests:,} requests load kwh; {enough} are enough: 32 lanes load 32 hours at a time.", HINTS)
    float32_only(report)
    return f"Right for six sizes, with registers alone: {said}."


if __name__ == "__main__":
    run(__file__)
