"""Exercise 35_2: the parts of a block

A block of a network, for one image in float32: a depthwise layer of 3 × 3 taps on 128 channels of 56 × 56, then a
pointwise layer to 256 filters, both without a bias. A network of 150 µs has 10 such blocks; in each the depthwise
kernel takes 3 µs and the pointwise one 8 µs. Write down:
- `depthwise_macs` and `pointwise_macs`: the multiply-adds of the two, where a tap outside of the map counts as well;
- `depthwise_kb` and `pointwise_kb`: what each layer has to move at least, in units of 1,000 bytes;
- `limit`: how many times as fast the network becomes at the very most by better pointwise kernels alone;
- `both`: the same if the depthwise and the pointwise kernels all became twice as fast.
"""

from dwlab.judge.exercises import run
from dwlab.judge.tools import predicted
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.problems.networks import macs

### BEGIN SOLUTION
depthwise_macs = 9 * 128 * 56 * 56
pointwise_macs = 128 * 256 * 56 * 56
depthwise_kb = 4 * (2 * 128 * 56 * 56 + 9 * 128) / 1e3
pointwise_kb = 4 * ((128 + 256) * 56 * 56 + 128 * 256) / 1e3
limit = 150 / (150 - 10 * 8)
both = 150 / (150 - 10 * (3 + 8) / 2)
### BEGIN STUB
# depthwise_macs = None
# pointwise_macs = None
# depthwise_kb = None
# pointwise_kb = None
# limit = None
# both = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
