"""Exercise 28_1: halos on four sides

How many elements of x are loaded for **one channel** of one image? All layers have padding K // 2, and what lies in the
padding is not loaded. Write down:
- `tiles_5x5`: maps of 28 × 28, 5 × 5 taps, stride 1, in tiles of 14 × 14 outputs, each tile's x loaded once;
- `tiles_stride_2`: maps of 56 × 56, 3 × 3 taps, stride 2, in tiles of 14 × 14 outputs.

Then sectors of 32 bytes, for **8 channels** of a tile of 8 × 16 outputs with 3 × 3 taps and stride 1, in the middle of
maps of 56 × 56: its outputs begin at row 8 and column 16, every map and pixel on a sector. What is copied at one moment
is a row of the tile in NCHW, a pixel's 8 channels in NHWC (there are no others):
- `sectors_nchw`: sectors that these copies touch in NCHW;
- `sectors_nhwc`: the same in NHWC.
"""

import numpy as np
from numba import float32

from dwlab import cuda, xray
from dwlab.judge.exercises import run
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


### BEGIN SOLUTION
tiles_5x5 = (2 * (14 + 2)) ** 2
tiles_stride_2 = (28 + 29) ** 2
sectors_nchw = 8 * 10 * 4
sectors_nhwc = 10 * 18
### BEGIN STUB
# tiles_5x5 = None
# tiles_stride_2 = None
# sectors_nchw = None
# sectors_nhwc = None
### END SOLUTION

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


if __name__ == "__main__":
    run(__file__)
