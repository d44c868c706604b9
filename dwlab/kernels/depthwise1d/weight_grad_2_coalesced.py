"""Coalesced: a warp per element of dw, its lanes along t; 32 partial sums meet in a tree of shuffles.

The one idea is the mapping. threadIdx.x runs over t, the fastest axis, in steps of 32 along each row: a request for dy
or x is a run of up to 32 neighbours, 4 sectors (5 where it starts inside one) in place of 16 to 32. The sum that one
thread made alone is now 32 partial sums, so the loop is 32 times shorter and 32 times as many threads have work. At the
end the lanes add theirs in five shuffles. No other warp adds to this output, so the result is deterministic.

As in forward, sums are float32 and indices uint32, and a time before the row becomes a huge number. Each row is still
read K times, once by each tap's warp, and a row of 48 leaves every second access half empty.

Traffic: for each output and batch entry, each 32 times with x inside the row: a run of dy and one of x.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, rows_sectors
from dwlab.target import cuda

TILE = 32  # times of a row that a warp takes at once, one per lane
WARPS = 8  # outputs of a block, one warp each


@cuda.jit
def kernel(dy, x, dw, shift):
    output = uint32(cuda.blockIdx.x * WARPS + cuda.threadIdx.y)
    h = uint32(output // uint32(dw.shape[1]))
    j = uint32(output % uint32(dw.shape[1]))
    entries = uint32(dy.shape[0])
    length = uint32(dy.shape[2])
    if h >= dw.shape[0]:
        return  # a whole warp
    acc = float32(0)
    b = uint32(0)
    while b < entries:
        t = uint32(cuda.threadIdx.x)
        while t < length:
            s = uint32(t + shift - j)
            if s < length:
                acc += dy[b, h, t] * x[b, h, s]
            t = uint32(t + TILE)
        b = uint32(b + 1)
    for step in (16, 8, 4, 2, 1):
        acc += cuda.shfl_xor_sync(0xFFFFFFFF, acc, step)
    if cuda.threadIdx.x == 0:
        dw[h, j] = acc


def traffic(problem):
    rows, L = problem.B * problem.H, problem.L
    t0 = np.arange(0, L, TILE)[:, None]
    ahead = problem.shift - np.arange(problem.K)
    first = np.maximum(t0, -ahead)  # of the times that a warp takes at once
    count = np.maximum(0, np.minimum(np.minimum(t0 + TILE, L), L - ahead) - first)
    outputs = problem.H * problem.K
    return Traffic(
        load_requests=2 * rows * np.count_nonzero(count),
        load_sectors=rows_sectors(rows, L, first, count) + rows_sectors(rows, L, first + ahead, count),
        store_requests=outputs,
        store_sectors=outputs,
    )


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    fits_uint32(problem)
    outputs = problem.H * problem.K
    return Launch(grid=(-(-outputs // WARPS),), block=(TILE, WARPS), scalars=(problem.shift,))
