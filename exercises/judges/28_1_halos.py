"""The judge of exercise 28_1, and its hints."""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.tools import predicted


@cuda.jit
def each_tile(x, y, K, stride, side):
    """A block of 32 threads a tile: looks at each x that the tile's side × side outputs need."""
    h0, v0 = cuda.blockIdx.y * side * stride - K // 2, cuda.blockIdx.x * side * stride - K // 2
    across = (side - 1) * stride + K
    total = float32(0)
    for k in range(cuda.threadIdx.x, across * across, 32):
        h, v = h0 + k // across, v0 + k % across
        if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:
            total += x[h, v]
    y[cuda.blockIdx.y, cuda.blockIdx.x, cuda.threadIdx.x] = total


@cuda.jit
def row_of_a_map(x, y):
    """NCHW: a warp for each channel and row of the tile, a lane for each of its 18 columns."""
    if cuda.threadIdx.x < 18:
        y[cuda.blockIdx.y, cuda.blockIdx.x, cuda.threadIdx.x] = x[
            cuda.blockIdx.y, 7 + cuda.blockIdx.x, 15 + cuda.threadIdx.x
        ]


@cuda.jit
def pixel(x, y):
    """NHWC: a warp for each pixel of the tile, a lane for each channel."""
    if cuda.threadIdx.x < 8:
        y[cuda.blockIdx.y, cuda.blockIdx.x, cuda.threadIdx.x] = x[
            7 + cuda.blockIdx.y, 15 + cuda.blockIdx.x, cuda.threadIdx.x
        ]


# Your code here.
tiles_5x5 = None
tiles_stride_2 = None
sectors_nchw = None
sectors_nhwc = None

HINTS = {
    "tiles_5x5": (
        "Two tiles in each direction. Which rows does the first one need, from where to where?",
        "The first tile's outputs 0 to 13 need rows -2 to 15, of which 0 to 15 are there; the second mirrors it.",
    ),
    "tiles_stride_2": (
        "Output p needs rows 2p - 1 to 2p + 1. Where do outputs 0 to 13 begin and end, and where 14 to 27?",
        "The first tile has rows 0 to 27, the second 27 to 55: one row is shared.",
    ),
    "sectors_nchw": (
        "A row of the tile is columns 15 to 32 of a map. A row of 56 elements is a whole number of sectors.",
        "Columns 8 to 15 are one sector, 16 to 23 the next: 4 in each row. How many rows, with the halo?",
        "8 + 2 rows of each of 8 channels, 4 sectors each.",
    ),
    "sectors_nhwc": (
        "A pixel's 8 channels are 32 bytes. How many pixels are there, with the halo?",
        "10 rows of 18 pixels, a sector each.",
    ),
}


def judge(answer):
    """All counted by the interpreter."""
    small, large = np.ones((28, 28), np.float32), np.ones((56, 56), np.float32)
    tiled = np.zeros((2, 2, 32), np.float32)
    found = {
        "tiles_5x5": xray(each_tile, (2, 2), 32, small, tiled, 5, 1, 14),
        "tiles_stride_2": xray(each_tile, (2, 2), 32, large, tiled, 3, 2, 14),
        "sectors_nchw": xray(row_of_a_map, (10, 8), 32, np.ones((8, 56, 56), np.float32), np.zeros((8, 10, 18), "f4")),
        "sectors_nhwc": xray(pixel, (18, 10), 32, np.ones((56, 56, 8), np.float32), np.zeros((10, 18, 8), "f4")),
    }
    texts = []
    for name, report in found.items():
        x = report.array("x", "load")
        count, unit = (x.sectors, "sectors") if name.startswith("sectors") else (x.active_lanes, "elements")
        texts.append(predicted(answer, name, count, unit, HINTS[name]))
    return "; ".join(texts) + "."
