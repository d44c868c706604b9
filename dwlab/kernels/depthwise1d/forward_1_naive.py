"""Naive: one thread per output, the grid's three dimensions taken in the arrays' index order.

What a newcomer writes: `b, h, t = cuda.grid(3)` follows Numba's own matrix-product example (`i, j = cuda.grid(2)`), the
block has the same edge in each direction, and the sum starts at 0.0. Correct for any shape. Two things are wrong with
it, and neither can be seen in the arithmetic:
- threadIdx.x, along which the lanes of a warp are numbered, runs over b, the slowest axis. The 32 lanes of a warp (8 b,
  4 h, one t) touch 32 different rows: a request for x or y needs 32 sectors where 32 neighbours in a row need 4.
- 0.0 is a float64 in Numba, so each product is converted and added in double precision.

Traffic: for each output and tap inside the row one load of w and one of x; nothing is reused. With rows of a sector or
more, a warp's request for x touches a sector in each of its 32 rows, one for w a sector in each of its 4 channels.
"""

import numpy as np

from dwlab.kernels.depthwise1d import row_traffic
from dwlab.kernels.registry import Launch, register
from dwlab.target import cuda

BLOCK = (8, 8, 8)  # b, h, t


@cuda.jit
def kernel(x, w, y, shift):
    b, h, t = cuda.grid(3)
    if b < y.shape[0] and h < y.shape[1] and t < y.shape[2]:
        acc = 0.0
        for j in range(w.shape[1]):
            s = t + shift - j
            if s >= 0 and s < x.shape[2]:
                acc += w[h, j] * x[b, h, s]
        y[b, h, t] = acc


def traffic(problem):
    first = problem.shift - np.arange(problem.L)  # of the taps that read each time of a row
    return row_traffic.naive(problem, np.maximum(0, np.minimum(problem.K, first + problem.L) - np.maximum(0, first)))


@register(kernel=kernel, traffic=traffic, lesson="10")
def launch(problem):
    edges = zip((problem.B, problem.H, problem.L), BLOCK, strict=True)
    return Launch(grid=tuple(-(-size // edge) for size, edge in edges), block=BLOCK, scalars=(problem.shift,))
