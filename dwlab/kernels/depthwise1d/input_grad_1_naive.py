"""Naive: one thread per element of dx, the grid's three dimensions taken in the arrays' index order.

The gradient with respect to the input is the forward pass with time running the other way: dx[s] collects the taps
that carried x[s] into an output, w[j] into y[s - shift + j]. So this kernel is the naive forward kernel with the sign
of j reversed, and it has the same two faults: threadIdx.x runs over b, the slowest axis, so that the lanes of a
warp touch 32 different rows, and the sum that starts at 0.0 is a float64. Deterministic: each sum has a fixed order.

Traffic: as forward's. For each element and tap inside the row one load of w and one of dy; nothing is reused.
"""

import numpy as np

from dwlab.kernels.depthwise1d import row_traffic
from dwlab.kernels.registry import Launch, register
from dwlab.target import cuda

BLOCK = (8, 8, 8)  # b, h, s


@cuda.jit
def kernel(dy, w, dx, shift):
    b, h, s = cuda.grid(3)
    if b < dx.shape[0] and h < dx.shape[1] and s < dx.shape[2]:
        acc = 0.0
        for j in range(w.shape[1]):
            t = s - shift + j
            if t >= 0 and t < dy.shape[2]:
                acc += w[h, j] * dy[b, h, t]
        dx[b, h, s] = acc


def traffic(problem):
    stop = np.arange(problem.L) + problem.shift + 1  # behind the last of the taps that read each time of a row
    return row_traffic.naive(problem, np.maximum(0, np.minimum(problem.K, stop) - np.maximum(0, stop - problem.L)))


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    edges = zip((problem.B, problem.H, problem.L), BLOCK, strict=True)
    return Launch(grid=tuple(-(-size // edge) for size, edge in edges), block=BLOCK, scalars=(problem.shift,))
