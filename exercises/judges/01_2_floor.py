"""The judge of exercise 01_2, and its hints."""

from dwlab import DepthwiseConv1d, stage
from dwlab.judge.tools import counted, predicted

# Your code here.
flops = None
compulsory = None
microseconds = None


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
