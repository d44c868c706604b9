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

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


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


if __name__ == "__main__":
    run(__file__)
