"""Exercise 33_1: a pointwise layer, then a depthwise one, in one kernel

The first half of MobileNetV2's block: a pointwise layer with a bias and a ReLU makes many channels of few, and a
depthwise layer of 3 × 3 taps, stride 1, padding 1 follows. Per image:

    between[f, h, v] = max(0, b1[f] + sum over c of w1[f, c] * x[c, h, v])
    y[f, p, q]       = sum over i, j of w2[f, i, j] * between[f, p + i - 1, q + j - 1]

Outside of the map `between` is **zero**. x is (C, H, W), w1 (F, C), b1 (F,), w2 (F, 3, 3), y (F, H, W), F a multiple
of 4. Write the kernel so that `between` is never in global memory. Block (i, j, g) has 8 × 8 threads; it computes the
tile of outputs that begins at row 8 j and column 8 i, of filters 4 g to 4 g + 3. It keeps `between` in shared memory,
10 × 10 of it for each filter, and loads each x that it needs once.
"""

from numba import float32  # noqa: F401

from dwlab import cuda
from dwlab.judge.exercises import run

SIDE = 8
FILTERS = 4
HALO = SIDE + 2


@cuda.jit
def expand(x, w1, b1, w2, y):
    # Your code here.
    raise NotImplementedError("33_1 is not solved yet: replace this line with your code")


if __name__ == "__main__":
    run(__file__)
