"""The judge of exercise 20_5, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted

# Your code here.
naive_requests = None
coalesced_requests = None
atomic_sectors = None
most_parts = None


HINTS = {
    "naive_requests": (
        "Eight warps have an output, with taps 0 and 1, 2 and 3, and so on. Each goes through all windows and hours.",
        "A warp loads dy and x at an hour if the lower of its two taps is inside the row: from hour j on.",
    ),
    "coalesced_requests": (
        "64 outputs, a warp each. For each window a row is two times 32 hours, and each time it loads dy and x.",
        "Is there a tap for which one of the two has no lane inside the row? The taps go up to 15 only.",
        "There is none: 64 outputs, 32 windows, two times 32 hours, two loads.",
    ),
    "atomic_sectors": (
        "Each of the B * H warps adds its 16 taps to dw at the end.",
        "Neighbouring lanes add neighbouring taps, and 16 float32 are two sectors.",
    ),
    "most_parts": (
        "Compulsory: dy and x once, dw once. A part is as large as dw, and is written and read.",
        "4 * (2 B H L + H K) bytes over 100, divided by 2 * 4 * H * K, rounded down.",
    ),
}


def judge(answer):
    """Three counted by the interpreter, one by the problem's bytes."""
    small = DepthwiseConv1d(32, 4, 64, 16)
    totals = {}
    for name in ("naive", "coalesced", "warp_tiled"):
        one = stage(f"depthwise1d/weight_grad/{name}")
        totals[name] = counted(one.kernel, one.launch, small, "weight_grad").totals
    large = DepthwiseConv1d(1024, 256, 96, 32)
    most = large.compulsory_bytes("weight_grad") // 100 // (2 * large.nbytes("weight_grad")["dw"])
    found = {
        "naive_requests": (totals["naive"].global_load_requests, "requests"),
        "coalesced_requests": (totals["coalesced"].global_load_requests, "requests"),
        "atomic_sectors": (totals["warp_tiled"].global_atomic_sectors, "sectors"),
        "most_parts": (most, "parts"),
    }
    return "; ".join(predicted(answer, name, *found[name], HINTS[name]) for name in found) + "."
