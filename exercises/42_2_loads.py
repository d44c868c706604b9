"""Exercise 42_2: who shares the load

A layer of 128 channels and 64 filters with weights of random signs and sizes, pruned by magnitude; `filters(form)`
makes them. A block computes 64 filters of 16 pixels: it loads the channels that any of its filters needs into shared
memory once (`load` in the file), and then multiplies. Write down, without running it:

- `of_2_4`: elements of x that the block loads where the filters are in 2:4;
- `of_64_2_16`: where they are in 64:2:16;
- `of_16_2_16`: the most that it can load where they are in 16:2:16, four blocks of filters that choose for themselves;
- `products`: multiply-adds for one output, in 64:2:16, zeros left out;
- `stored`: bytes of the stored filters in 64:2:16: float16 weights, two bits of metadata for each, a byte for each
  chosen column.
"""

import numpy as np
from numba import float32

from dwlab import cuda
from dwlab.judge.exercises import run
from dwlab.problems import sparsity

C, F, PIXELS = 128, 64, 16


def filters(form):
    """The stored arrays of the layer's filters, pruned to a pattern."""
    w = np.random.default_rng(42).standard_normal((F, C)).astype(np.float16)
    return sparsity.stored(sparsity.compress(w, form))


@cuda.jit
def load(x, channels, y):
    """The loads of a block: thread i takes the i-th, (i + 64)-th … of the channels that are needed, of each pixel."""
    tile = cuda.shared.array((PIXELS, C), float32)
    for k in range(cuda.threadIdx.x, channels.shape[0], 64):
        for p in range(PIXELS):
            tile[p, k] = x[p, channels[k]]
    cuda.syncthreads()
    if cuda.threadIdx.x < PIXELS:
        total = float32(0)
        for k in range(channels.shape[0]):
            total += tile[cuda.threadIdx.x, k]
        y[cuda.threadIdx.x] = total


# Your code here.
of_2_4 = None
of_64_2_16 = None
of_16_2_16 = None
products = None
stored = None


if __name__ == "__main__":
    run(__file__)
