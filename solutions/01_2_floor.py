"""Exercise 01_2: the floor of another shape

A model for weekly windows: B = 6 windows, H = 4 channels, L = 168 hours, and filters of K = 24 taps, causal, float32.
Write down
- `flops`: multiplications and additions for the taps that lie inside the window, an addition for each multiplication;
- `compulsory`: the bytes that must move at least: every element of x and w read once, every element of y written once;
- `microseconds`: the least time in µs on a GPU that copies 1 TB/s (10^12 bytes a second), if only memory counts.

The check runs a kernel on the interpreter and counts.
"""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.exercises import run
from dwlab.judge.tools import counted, predicted

### BEGIN SOLUTION
flops = 2 * 6 * 4 * (168 * 24 - 24 * 23 // 2)
compulsory = 4 * (2 * 6 * 4 * 168 + 4 * 24)
microseconds = compulsory / 1e12 * 1e6
### BEGIN STUB
# flops = None
# compulsory = None
# microseconds = None
### END SOLUTION


HINTS = {
    "flops": (
        "Hour 0 has one tap inside its window, hour 1 has two, and so on until all K are inside.",
        "Of a row's L*K taps, 1 + 2 + ... + (K-1) fall before the window. Two FLOPs for each one that is left.",
    ),
    "compulsory": ("x and y have B*H*L elements each, w has H*K. A float32 takes 4 bytes.",),
    "microseconds": ("Bytes over bytes per second; a microsecond is 10^-6 s.",),
}


def judge(answer):
    """FLOPs and touched bytes as counted on a kernel of this shape; the time to one part in a hundred."""
    problem = DepthwiseConv1d(6, 4, 168, 24)
    plain = stage("depthwise1d/forward/coalesced")
    totals = counted(plain.kernel, plain.launch, problem).totals
    touched = totals.footprint_bytes
    texts = [
        predicted(answer, "flops", totals.flops, "FLOPs", HINTS["flops"]),
        predicted(answer, "compulsory", touched, "bytes", HINTS["compulsory"]),
        predicted(answer, "microseconds", touched / 1e12 * 1e6, "µs", HINTS["microseconds"], tolerance=0.01),
    ]
    return "; ".join(texts) + "."


if __name__ == "__main__":
    run(__file__)
