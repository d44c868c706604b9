"""The judge of exercise 10_3, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted

# Your code here.
requests = None
bytes_moved = None
float64 = None


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
