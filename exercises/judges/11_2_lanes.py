"""The judge of exercise 11_2, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted

# Your code here.
load_requests = None
lanes = None
store_sectors = None


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
