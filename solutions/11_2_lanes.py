"""Exercise 11_2: requests and lanes of another shape

B = 4 windows, H = 8 channels, L = 80 hours and K = 40 taps, causal, computed by the coalesced kernel of the lesson: a
warp for each tile of 32 hours of a row. Write down, before you run anything:
- `load_requests`: how many requests its warps make for x and w together;
- `lanes`: how many lanes take part in such a request on average (to one part in a hundred);
- `store_sectors`: how many sectors its stores move.

The check runs the kernel on the interpreter and counts.
"""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import counted, predicted

### BEGIN SOLUTION
rows = 4 * 8
busy = 32 + 40 + 40  # taps for which a warp has a lane inside the row, in each of the three tiles of a row
taps = 80 * 40 - 40 * 39 // 2
load_requests = 2 * rows * busy
lanes = taps / busy
store_sectors = rows * 80 // 8
### BEGIN STUB
# load_requests = None
# lanes = None
# store_sectors = None
### END SOLUTION


HINTS = {
    "load_requests": (
        "A row of 80 hours has three tiles. A warp makes its two requests for a tap if at least one of its lanes has "
        "that tap inside the row.",
        "The first tile has hours 0 to 31. For how many of the 40 taps does hour 31 still lie behind the tap?",
        "For taps 0 to 31, so 32 of 40; in the other two tiles for all 40. Two requests each, in 32 rows.",
    ),
    "lanes": (
        "Products of a row, that is taps inside the row, over the pairs of requests that its warps make.",
        "L*K - K*(K-1)/2 products of a row; 112 pairs of requests.",
    ),
    "store_sectors": (
        "80 float32 are ten sectors, and each row starts on one. Do idle lanes move any?",
        "None: ten sectors in each of 32 rows.",
    ),
}


def judge(answer):
    """Requests, lanes and sectors, as counted."""
    coalesced = stage("depthwise1d/forward/coalesced")
    report = counted(coalesced.kernel, coalesced.launch, DepthwiseConv1d(4, 8, 80, 40))
    totals = report.totals
    lanes = sum(a.active_lanes for a in report.accesses if a.kind == "load") / totals.global_load_requests
    texts = [
        predicted(answer, "load_requests", totals.global_load_requests, "requests", HINTS["load_requests"]),
        predicted(answer, "lanes", lanes, "lanes", HINTS["lanes"], tolerance=0.01),
        predicted(answer, "store_sectors", totals.global_store_sectors, "sectors", HINTS["store_sectors"]),
    ]
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
