"""Exercise 12_1: the peak of the last 24 hours

What a connection costs often depends on its peak. Write the kernel `daily_peak(kwh, peak)`: `kwh` and `peak` are
(meters, hours) float32, and `peak[m, t]` is the largest of kwh[m, t - 23] to kwh[m, t]. Near the start there are fewer
hours: take those that exist.

It is launched with blocks of 64 threads, `cuda.blockIdx.y` is the meter, and `cuda.blockIdx.x` the tile of 64 hours.
Each block must load what it needs once, to shared memory, coalesced and without a bank conflict. A house with solar
panels feeds energy back, so a reading may be negative, and 0 is no harmless filling.
"""

import math  # noqa: F401

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
    kernel,
    launched,
    one_large,
    poisoned,
    typical_first,
    values,
    written_once,
)

TILE = 64  # hours of a block, one a thread
HOURS = 24  # of a window
WINDOW = TILE + HOURS - 1


@cuda.jit
def daily_peak(kwh, peak):
    ### BEGIN SOLUTION
    window = cuda.shared.array(WINDOW, float32)
    i = cuda.threadIdx.x
    m = cuda.blockIdx.y
    t0 = cuda.blockIdx.x * TILE
    for k in range(i, WINDOW, TILE):
        t = t0 - (HOURS - 1) + k
        window[k] = kwh[m, t] if 0 <= t < kwh.shape[1] else float32(-math.inf)
    cuda.syncthreads()
    if t0 + i < peak.shape[1]:
        highest = window[i]
        for k in range(i + 1, i + HOURS):
            highest = max(highest, window[k])
        peak[m, t0 + i] = highest
    ### END SOLUTION


HINTS = (
    "It is the kernel `tiled` of the lesson with a maximum in the place of the sum: stage 64 + 23 hours, wait, then "
    "look for the largest.",
    "syncthreads() stands between copying and reading, where all 64 threads pass, also those without an hour.",
    "for k in range(threadIdx.x, WINDOW, TILE): window[k] = kwh[m, t0 - 23 + k], or -inf. Thread i then looks at "
    "window[i] to window[i + 23].",
)
FILLED = "Hours outside the row must not win: stage float32(-math.inf) for them, which loses against every reading."


def peaks(kwh, first=HOURS - 1, last=0):
    """The largest of kwh[m, t - first] to kwh[m, t - last], -inf where that is no hour."""
    padded = np.pad(kwh, ((0, 0), (first, 0)), constant_values=-math.inf)
    return np.stack([padded[:, t : t + first - last + 1].max(axis=1) for t in range(kwh.shape[1])], axis=1)


def mistakes(kwh):
    """What comes of typical ones."""
    return {
        "Hour t itself is missing: thread i ends with window[i + 23], and that must be its own hour.": peaks(
            kwh, 23, 1
        ),
        "Hour t - 24 is too much: 24 hours end with t.": peaks(kwh, 24, 0),
        "The oldest hour, t - 23, is missing.": peaks(kwh, 22, 0),
        "Hour t + 1 is one of the hours here: 24 hours end with t.": peaks(kwh, 23, -1),
        "These are the 24 hours from t on: they must end with t.": peaks(kwh, 0, -23),
    }


def judge(answer):
    """Right for lengths around a tile and drawn ones; each element loaded once for a tile, coalesced, no conflict."""
    daily_peak, launches = kernel(answer, "daily_peak"), []
    sizes = ((2, 30), (1, 1), (2, 23), (1, 24), (3, 63), (2, 64), (2, 200), (2, 65), (1, 168), (4, 5 * TILE))
    more = (*drawn(answer, (150, 600)), 3, 1), (1, *drawn(answer, (1300, 1700)), 1)
    more += ((1, *drawn(answer, (1, 40)), 2.0**120), *((*one, 1) for one in one_large(answer, 2, (0, 1))))
    for meters, hours, size in (*((*one, 1) for one in sizes), *more, (*drawn(answer, (1, 70), (1, 200)), 1)):
        kwh, peak, what = values(answer, meters, hours), poisoned(meters, hours), f"kwh of shape ({meters}, {hours})"
        kwh *= np.float32(size)
        kwh[:, : max(1, hours // 3)] -= np.float32(4 * size)  # noon, with the sun
        want = peaks(kwh)
        report = launched(daily_peak, (-(-hours // TILE), meters), TILE, kwh, peak, hints=HINTS, what=what)
        filled = ((peak > want) & ~np.isin(peak, kwh)).any()  # by what is no reading
        made = {FILLED: peak} if filled else mistakes(kwh)
        agree(peak, want, what, 0, HINTS[::2], lambda made=made: made)
        launches.append((report, meters, hours))
    for report, meters, hours in typical_first(launches, len(sizes)):
        coalesced(report, hints=HINTS[::2])
        read, tiles = report.array("kwh", "load"), -(-hours // TILE)
        loads, warps = read.active_lanes, -(-WINDOW // 32) + 1
        why = f"each tile of {TILE} and its halo of {HOURS - 1} once"
        enough = meters * (hours + (tiles - 1) * (HOURS - 1))
        at_most(loads, enough, "elements of kwh are loaded", why, HINTS[::2], report)
        at_most(read.requests, meters * tiles * warps, "requests load kwh", "32 elements each", HINTS[2:], report)
        written_once(report, "peak", meters * hours, HINTS[::2])
        if report.totals.bank_conflicts:
            worst = max(report.accesses, key=lambda a: a.bank_conflicts)
            raise Wrong(
                f"{report.what}: Line {worst.line}, {worst.kind} of {worst.array}: {worst.wavefronts:,} wavefronts in "
                f"{worst.requests:,} requests, {worst.bank_conflicts:,} bank conflicts.",
                ("Which words of the shared array do lanes 0 and 1 read at one moment? Neighbours are best.",),
            )
    return (
        f"Right for {len(launches)} sizes. {loads:,} elements loaded for {meters * hours:,} hours, "
        f"{report.totals.shared_wavefronts:,} wavefronts, no bank conflict."
    )


if __name__ == "__main__":
    run(__file__)
