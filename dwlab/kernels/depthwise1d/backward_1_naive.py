"""Naive: both gradients from one walk along the taps: a dy that is read for dx serves dw too.

A thread has one element x[s] and computes dx[s] = sum_j w[j] dy[s - shift + j]. Meanwhile it holds every dy that meets
x[s] in the weight gradient as well: dw[j] gets dy[s - shift + j] * x[s]. So the fused pass reads nothing that the input
gradient alone would not read, but for one x. What it does with the products is the naive part: each is added to dw
where it belongs, an atomic for every product, B*H*taps of them on only H*K addresses. Lanes of a warp are neighbouring
s, all adding to the same dw[h, j]: the hardware does these one after the other.

Predicted: slower than the two naive kernels together. Not deterministic: atomics come in any order.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.target import cuda

THREADS = 256


@cuda.jit
def kernel(dy, x, w, dx, dw, shift):
    B, H, L = x.shape
    s = uint32(cuda.blockIdx.y * THREADS + cuda.threadIdx.x)
    row = uint32(cuda.blockIdx.x)
    b, h = uint32(row // uint32(H)), uint32(row % uint32(H))
    if s < L:
        value = x[b, h, s]
        g = float32(0)
        for j in range(w.shape[1]):
            t = uint32(s - uint32(shift) + uint32(j))  # left of the row: wraps to a huge number
            if t < L:
                f = dy[b, h, t]
                g += w[h, j] * f
                cuda.atomic.add(dw, (h, j), f * value)
        dx[b, h, s] = g


def traffic(problem):
    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    s = np.arange(-(-L // THREADS) * THREADS)
    t = s - problem.shift + np.arange(K)[:, None]
    inside = (s < L) & (t >= 0) & (t < L)
    loads, stores, atomics = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    for row in range(min(B * H, 8)):  # rows lie alike in their sectors again after 8
        times = (B * H - row + 7) // 8
        loads += times * warp_traffic(np.where(inside, row * L + t, -1))
        loads += times * warp_traffic(np.where(s < L, row * L + s, -1))
        stores += times * warp_traffic(np.where(s < L, row * L + s, -1))
    taps = warp_traffic(np.where(inside, 0, -1))  # all lanes at one address: a sector a request
    loads += B * H * taps
    atomics += B * H * taps
    return Traffic(*loads, *stores, atomic_requests=atomics[0], atomic_sectors=atomics[1])


@register(kernel=kernel, traffic=traffic)
def launch(problem):
    grid = (fits_uint32(problem), -(-problem.L // THREADS))
    return Launch(grid=grid, block=(THREADS,), scalars=(problem.shift,), zero=True)
