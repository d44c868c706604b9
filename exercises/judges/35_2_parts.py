"""The judge of exercise 35_2, and its hints."""

from dwlab.judge.tools import predicted
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import macs

# Your code here.
depthwise_macs = None
pointwise_macs = None
depthwise_kb = None
pointwise_kb = None
limit = None
both = None

HINTS = {
    "depthwise_macs": ("Each of 128 · 56 · 56 outputs is a sum of 9 products.",),
    "pointwise_macs": ("Each of 256 · 56 · 56 outputs is a sum over the 128 channels.",),
    "depthwise_kb": ("x once, y once, and the taps of each channel once; 4 bytes each.",),
    "pointwise_kb": ("The map it reads has 128 channels, the map it writes 256. The filters are 256 · 128 weights.",),
    "limit": (
        "Suppose that the pointwise kernels took no time at all. What is left of 150 µs?",
        "10 · 8 µs are gone: 150 / 70.",
    ),
    "both": ("10 · (3 + 8) µs become half. What is left stays.",),
}


def judge(answer):
    """Every number, from the layers and from the times."""
    one, two = DepthwiseConv2d(1, 128, 56, 56, 3), Pointwise(1, 128, 256, 56, 56)
    found = {
        "depthwise_macs": (macs(one), "as its work"),
        "pointwise_macs": (macs(two), "as its work"),
        "depthwise_kb": (one.compulsory_bytes() / 1e3, "kB"),
        "pointwise_kb": (two.compulsory_bytes() / 1e3, "kB"),
        "limit": (150 / (150 - 10 * 8.0), "times as fast"),
        "both": (150 / (150 - 10 * (3.0 + 8.0) / 2), "times as fast"),
    }
    texts = [predicted(answer, name, value, unit, HINTS[name], tolerance=1e-3) for name, (value, unit) in found.items()]
    return "; ".join(texts).replace("counted", "it is") + "."
