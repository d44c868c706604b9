"""Exercise 27_2: loads and sectors

How many elements of x are loaded for **one channel** of one image, by one thread for each output that loads each x it
needs? The layers have padding K // 2, and what lies in the padding is not loaded:
- `naive_5x5`: maps of 28 × 28, 5 × 5 taps, stride 1;
- `naive_stride_2`: maps of 56 × 56, 3 × 3 taps, stride 2.

And how many sectors of 32 bytes does one request of a warp for x touch, for one tap? Each map begins on a sector, and
the 32 lanes have outputs that are neighbours in memory:
- `sectors_left`: NCHW, rows of 56, stride 1, outputs 8 to 39 of a row, the tap one column to the left;
- `sectors_stride_2`: NCHW, rows of 64, stride 2, outputs 0 to 31 of a row, the tap in the middle;
- `sectors_channels`: NHWC with 24 channels, stride 2, the first 32 outputs of a row, the tap in the middle.
"""

from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run


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


if __name__ == "__main__":
    run(__file__)
