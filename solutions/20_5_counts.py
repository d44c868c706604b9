"""Exercise 20_5: threads, requests, atomics and parts of another shape

B = 32 windows, H = 4 channels, L = 64 hours, K = 16 taps, causal. Write down, before you run anything:
- `naive_requests`: requests of the naive kernel's loads. Its blocks are 16 channels by 16 taps, so a warp has two taps
  of up to 16 channels;
- `coalesced_requests`: requests of the coalesced kernel's loads, a warp for each of the outputs;
- `atomic_sectors`: sectors of all atomic additions of the kernel `warp_tiled`. There are so few rows that each has a
  warp of its own;
- `most_parts`: at B = 1024, H = 256, L = 96, K = 32, the largest number of parts whose own traffic, written once and
  read once in float32, is at most one hundredth of the compulsory bytes.
"""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import counted, predicted

### BEGIN SOLUTION
naive_requests = 2 * 32 * sum(64 - j for j in range(0, 16, 2))
coalesced_requests = 2 * 4 * 16 * 32 * 2
atomic_sectors = 4 * 32 * 2
most_parts = 4 * (2 * 1024 * 256 * 96 + 256 * 32) // 100 // (2 * 4 * 256 * 32)
### BEGIN STUB
# naive_requests = None
# coalesced_requests = None
# atomic_sectors = None
# most_parts = None
### END SOLUTION


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


if __name__ == "__main__":
    run(__file__)
