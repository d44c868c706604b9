"""Exercise 25_1: the gradient of a bias, in parts

If a layer adds a bias to each channel, its gradient is db[h], the sum of dy[b, h, t] over all windows b and hours t.
Write the first of two passes: the kernel `bias_parts(dy, parts)`, with dy (B, H, L) and parts (P, H). A block adds up
every P-th window of its channel, h = `cuda.blockIdx.x`: windows p, p + P, p + 2 P and so on, p = `cuda.blockIdx.y`, and
writes one number, parts[p, h]. The second pass adds the P parts in their order.

Blocks have (32, 4) threads, so four warps share a block's windows. Their sums meet in shuffles and in shared memory:
no atomics, so that the result is the same, bit for bit, on every run. Each dy is loaded once, coalesced.
"""

import numpy as np
from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.judge.tools import (
    Wrong,
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

WARPS = 4
EVERY_LANE = 0xFFFFFFFF


@cuda.jit
def bias_parts(dy, parts):
    ### BEGIN SOLUTION
    sums = cuda.shared.array(WARPS, float32)
    lane = cuda.threadIdx.x
    warp = cuda.threadIdx.y
    h = cuda.blockIdx.x
    p = cuda.blockIdx.y
    acc = float32(0)
    for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]):
        for t in range(lane, dy.shape[2], 32):
            acc += dy[b, h, t]
    for distance in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(EVERY_LANE, acc, distance)
    if lane == 0:
        sums[warp] = acc
    cuda.syncthreads()
    if warp == 0 and lane == 0:
        for other in range(1, WARPS):
            acc += sums[other]
        parts[p, h] = acc
    ### END SOLUTION


HINTS = (
    "Deal the block's windows out to its warps: warp i takes p + i * P, then goes on in steps of 4 * P. Its lanes run "
    "along the hours, as in exercise 13_1.",
    "Five shuffles give every lane the sum of its warp. One lane of each warp stores it to shared memory, the block "
    "waits, and one thread adds four numbers.",
    "for b in range(p + warp * parts.shape[0], dy.shape[0], WARPS * parts.shape[0]): for t in range(lane, dy.shape[2], "
    "32): acc += dy[b, h, t]. A part without a window is 0, and must be written, too.",
)


def judge(answer):
    """Right for odd shapes and drawn ones; no atomics, dy loaded once, by four warps alike, coalesced, float32."""
    bias_parts, launches = kernel(answer, "bias_parts"), []
    shapes = ((1, 1, 1, 1), (3, 2, 31, 5), (9, 3, 48, 1), (13, 2, 65, 3), (40, 2, 33, 4), (64, 2, 96, 4))
    more = (
        *one_large(answer, 4, (1, 2, 3)),
        drawn(answer, (1, 140), (1, 5), (1, 70), (1, 9)),
        drawn(answer, (1, 9), (30, 70), (100, 300), (1, 40)),
        drawn(answer, (100, 300), (1, 4), (33, 99), (1, 5)),
    )
    for B, H, L, P in (*shapes, *more):
        dy, parts, what = values(answer, B, H, L, nan=True), poisoned(P, H), f"B={B} H={H} L={L} P={P}"
        want = np.stack([dy[p::P].sum(axis=(0, 2), dtype=np.float64) for p in range(P)])
        report = launched(bias_parts, (H, P), (32, WARPS), dy, parts, hints=HINTS[1:], what=what)
        once = sum(a.active_lanes for a in report.accesses if a.array == "dy") == dy.size
        agree(parts, want, what, tolerance=1e-5, hints=HINTS[1:2] if once else HINTS[::2])
        launches.append((report, B, H, L, P))
    for report, B, H, L, P in typical_first(launches, len(shapes)):
        if report.totals.atomics:
            found = f"{report.totals.atomics:,} requests for atomics"
            raise Wrong(f"{report.what}: {found}: they come in any order, so the last bits would change.", HINTS[1:2])
        coalesced(report, ["dy"], hints=HINTS[::2])
        requests, enough = report.array("dy", "load").requests, B * H * -(-L // 32)
        at_most(requests, enough, "requests load dy", "32 lanes load 32 hours at a time", HINTS[::2], report)
        written_once(report, "parts", P * H, HINTS[1:2])
        shares = report.loaded["dy"]
        if B >= WARPS * P and min(shares) < max(shares) / 2:
            raise Wrong(
                f"{report.what}: the four warps load {', '.join(f'{n:,}' for n in shares)} times from dy; each should "
                "have about a quarter.",
                HINTS[::2],
            )
        float32_only(report)
    return (
        f"Right for {len(launches)} shapes, without atomics; {requests:,} requests load dy, as few as can be, by four "
        "warps."
    )


if __name__ == "__main__":
    run(__file__)
