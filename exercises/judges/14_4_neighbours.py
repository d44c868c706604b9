"""The judge of exercise 14_4, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.tools import (
    Wrong,
    agree,
    coalesced,
    drawn,
    float32_only,
    kernel,
    launched,
    poisoned,
    typical_first,
    values,
    without,
    written_once,
)

WARPS = 4  # rows of a block
ROW = 96  # outputs of a warp, three a lane
TAPS = 16
WINDOW = ROW + TAPS - 1


@cuda.jit
def smooth(x, w, y):
    window = cuda.shared.array((WARPS, WINDOW), float32)
    weights = cuda.shared.array((WARPS, TAPS), float32)
    lane = cuda.threadIdx.x
    warp = cuda.threadIdx.y
    row = cuda.blockIdx.x * WARPS + warp
    if row >= x.shape[0]:
        return
    for k in range(lane, WINDOW, 32):
        s = k - (TAPS - 1)
        window[warp, k] = x[row, s] if 0 <= s < x.shape[1] else float32(0)
    if lane < TAPS:
        weights[warp, lane] = w[TAPS - 1 - lane]
    # Your code here.
    raise NotImplementedError("14_4 is not solved yet: replace this line with your code")


HINTS = (
    "The loop is that of `three_each`: read u0 and u1 before it, one weight and one new x at each tap.",
    "Three waits: after the staging, before window is overwritten with outputs, and before other lanes read these.",
    "After the loop: syncwarp; window[warp, t] = y0 and so on; syncwarp; then for s in range(lane, y.shape[1], 32): "
    "y[row, s] = window[warp, s].",
)


def judge(answer):
    """Right for lengths up to 96, no hazard; reads, bank conflicts, block barriers and stores as announced."""
    smooth, launches = kernel(answer, "smooth"), []
    sizes = ((1, 1), (2, 15), (3, 32), (5, 48), (4, 95), (9, 96), (8, ROW))
    for rows, length in (*sizes, drawn(answer, (1025, 3000), (1, 96)), (*drawn(answer, (9, 140)), ROW)):
        x, w, y = values(answer, rows, length, nan=True), values(answer, TAPS), poisoned(rows, length)
        what = f"{rows} × {length}"
        want = np.stack([np.convolve(one.astype(np.float64), w.astype(np.float64))[:length] for one in x])
        report = launched(smooth, -(-rows // WARPS), (32, WARPS), x, w, y, hints=HINTS, what=f"x of {what}")
        agree(y, want, f"x of {what}", tolerance=1e-5, hints=HINTS)
        launches.append((report, rows, length))
    for report, rows, length in typical_first(launches, len(sizes)):
        reads = sum(a.wavefronts for a in report.accesses if (a.space, a.kind) == ("shared", "load")) / rows
        enough = 2 * TAPS + 2 + 3
        if report.totals.bank_conflicts:
            worst = max(report.accesses, key=lambda a: a.bank_conflicts)
            raise Wrong(
                f"{report.what}: Line {worst.line}, {worst.kind} of {worst.array}: {worst.wavefronts:,} wavefronts in "
                f"{worst.requests:,} requests, {worst.bank_conflicts:,} bank conflicts.",
                ("Lanes three words apart read 32 different banks. With which stride do they read on this line?",),
            )
        if reads > enough:
            raise Wrong(
                f"{report.what}: a row's loads from shared memory take {reads:g} wavefronts; {enough} are enough: a "
                f"weight and a new x for each of {TAPS} taps, two x before the loop, three reads of outputs.",
                HINTS,
            )
        coalesced(report, ["y"], HINTS[1:], rows * -(-length // 32))
        written_once(report, "y", rows * length, HINTS[1:])
        without(report, "barriers", why="a warp that works alone needs none", hints=HINTS[1:])
        float32_only(report)
    stores = report.array("y", "store")
    return (
        f"Right for {len(launches)} sizes. A row's loads from shared memory take {reads:g} wavefronts, without a "
        f"conflict; {stores.sectors / stores.requests:.1f} sectors for each store."
    )
