"""Naive: one thread per element of dx, the grid's three dimensions taken in the arrays' index order.

The gradient with respect to the input is the forward pass with time running the other way: dx[s] collects the taps
that carried x[s] into an output, w[j] into y[s - shift + j]. So this kernel is the naive forward kernel with the sign
of j reversed, and it has the same two faults: threadIdx.x runs over b, the slowest axis, so that the lanes of a
warp touch 32 different rows, and the sum that starts at 0.0 is a float64. Deterministic: each sum has a fixed order.

Traffic: as forward's. For each element and tap inside the row one load of w and one of dy; nothing is reused.
"""

import numpy as np

from dwlab.kernels.registry import Launch, register
from dwlab.kernels.traffic import Traffic, pieces, sectors_by_place
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
    H, L, K, shift = problem.H, problem.L, problem.K, problem.shift
    j, t = np.arange(K), np.arange(L)
    w_uses = np.maximum(0, L - abs(shift - j))  # elements that use tap j
    dy_uses = np.maximum(0, np.minimum(K, t + shift + 1) - np.maximum(0, t + shift + 1 - L))  # (s, j) that read time t
    b, h = np.arange(32) % 8, np.arange(32) // 8  # of a warp's lanes
    warps = w_sectors = dy_sectors = dx_sectors = 0
    for b0, entries, times_b in pieces(problem.B, 8):
        for h0, channels, times_h in pieces(H, 4):
            active = (b < entries) & (h < channels)
            w_touches = sectors_by_place(np.where(active, (h0 + h) * K, -1))
            row_touches = sectors_by_place(np.where(active, ((b0 + b) * H + h0 + h) * L, -1))
            warps += times_b * times_h
            w_sectors += times_b * times_h * int(w_touches[j % 8] @ w_uses)
            dy_sectors += times_b * times_h * int(row_touches[t % 8] @ dy_uses)
            dx_sectors += times_b * times_h * int(row_touches[t % 8].sum())
    return Traffic(2 * warps * problem.taps, w_sectors + dy_sectors, warps * L, dx_sectors)


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    edges = zip((problem.B, problem.H, problem.L), BLOCK, strict=True)
    return Launch(grid=tuple(-(-size // edge) for size, edge in edges), block=BLOCK, scalars=(problem.shift,))
