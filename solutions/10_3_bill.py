"""Exercise 10_3: the bill of another shape

B = 16 windows, H = 8 channels, L = 96 hours and K = 16 taps, causal, computed by the naive kernel as it stands in the
lesson, with blocks of (8, 8, 8). Write down, before you run anything:
- `requests`: how many requests its warps make, loads and stores;
- `bytes_moved`: how many bytes these move, 32 for each sector;
- `float64`: how many of its FLOPs are done in float64.

The check runs the kernel on the interpreter and counts.
"""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import counted, predicted

### BEGIN SOLUTION
warps = 16 * 8 // 32
taps = 96 * 16 - 16 * 15 // 2
requests = warps * (2 * taps + 96)
bytes_moved = 32 * warps * ((4 + 32) * taps + 32 * 96)
float64 = 16 * 8 * taps
### BEGIN STUB
# requests = None
# bytes_moved = None
# float64 = None
### END SOLUTION


HINTS = {
    "requests": (
        "A warp is 8 windows by 4 channels at one hour. How many such warps are there for each hour?",
        "Two loads for each tap inside the row, one store for each hour, for each of the B*H/32 groups of rows.",
    ),
    "bytes_moved": (
        "The 32 lanes read 4 filters and 32 rows: sectors for each tap. The store goes to 32 rows, too.",
        "32 bytes times (4 + 32) sectors for each tap inside the row and 32 for each hour.",
    ),
    "float64": ("A tap is a product in float32 and a sum in float64.", "One for each tap inside the row, B*H rows."),
}


def judge(answer):
    """Requests, bytes and float64 operations, as counted."""
    naive = stage("depthwise1d/forward/naive")
    totals = counted(naive.kernel, naive.launch, DepthwiseConv1d(16, 8, 96, 16)).totals
    texts = [
        predicted(answer, "requests", totals.requests, "requests", HINTS["requests"]),
        predicted(answer, "bytes_moved", totals.bytes_moved, "bytes", HINTS["bytes_moved"]),
        predicted(answer, "float64", totals.flops64, "operations", HINTS["float64"]),
    ]
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
