"""The judge of exercise 27_2, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.tools import predicted


@cuda.jit
def each_output(x, y, K, stride):
    """One thread an output: adds up the x under its taps."""
    q, p = cuda.threadIdx.x, cuda.blockIdx.x
    total = float32(0)
    for i in range(K):
        for j in range(K):
            h, v = p * stride + i - K // 2, q * stride + j - K // 2
            if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
                total += x[h, v]
    y[p, q] = total


@cuda.jit
def one_tap(x, y, first, stride, channels, column):
    """A warp: lane l takes output first + l as it lies in memory, and loads its x of one tap in a row of pixels."""
    lane = cuda.threadIdx.x
    q, c = (first + lane) // channels, (first + lane) % channels
    y[lane] = x[(q * stride + column) * channels + c]


# Your code here.
naive_5x5 = None
naive_stride_2 = None
sectors_left = None
sectors_stride_2 = None
sectors_channels = None

HINTS = {
    "naive_5x5": (
        "Rows and columns are cut off alike: count the taps of one direction that lie inside, and take the square.",
        "28 outputs with 5 taps each; the first lacks 2, the second 1, and the same at the end.",
    ),
    "naive_stride_2": (
        "How many outputs are there in one direction, and which of them have a tap outside of 0 to 55?",
        "28 outputs; output p has the taps 2p - 1 to 2p + 1, so the first lacks one, and the last, at 53 to 55, none.",
    ),
    "sectors_left": (
        "Which columns are loaded? A sector has 8 of them, the first one columns 0 to 7.",
        "Columns 7 to 38: the last of the first sector, then 8 to 38.",
    ),
    "sectors_stride_2": (
        "The lanes load columns 0, 2, 4, … How many of a sector's 8 columns are among them?",
        "Four of each sector's 8: 32 lanes need the sectors of columns 0 to 62.",
    ),
    "sectors_channels": (
        "A pixel has 24 channels, 96 bytes. How many of the 32 outputs are of the first pixel?",
        "24 of the first, 8 of the second; that one's x lies two pixels on.",
    ),
}


def judge(answer):
    """All counted by the interpreter."""
    texts = []
    for name, side, outputs, K, stride in (("naive_5x5", 28, 28, 5, 1), ("naive_stride_2", 56, 28, 3, 2)):
        x, y = np.ones((side, side), np.float32), np.zeros((outputs, outputs), np.float32)
        count = xray(each_output, outputs, outputs, x, y, K, stride).array("x", "load").active_lanes
        texts.append(predicted(answer, name, count, "elements", HINTS[name]))
    for name, *how in (
        ("sectors_left", 8, 1, 1, -1), ("sectors_stride_2", 0, 2, 1, 0), ("sectors_channels", 0, 2, 24, 0)
    ):  # fmt: skip
        seen = xray(one_tap, 1, 32, np.ones(4096, np.float32), np.zeros(32, np.float32), *how)
        texts.append(predicted(answer, name, seen.array("x", "load").sectors, "sectors", HINTS[name]))
    return "; ".join(texts) + "."
