"""Coalesced: the lanes of a warp take neighbouring times of one row. The windows are still re-read, tap by tap.

The one idea is the mapping: threadIdx.x now runs over t, the fastest axis, and each warp has a row (b, h) of its own.
For a tap the 32 lanes read 32 neighbours of x, 4 sectors (5 where they start inside a sector) in place of 32, and one
element of w in place of 4. Rows that do not fill the tile leave lanes idle: a row of 48 takes two warps, one half idle.

Two habits come along, and stay in every later stage: the sum is a float32, and indices are uint32, because Numba's
default of int64 takes two registers and several instructions where one is enough, and a test for negative indices.
A time before the row, negative as a signed number, becomes a huge unsigned one: `s < length` tests both ends.

Traffic: for each warp and tap with a lane inside the row, a request for w (1 sector) and one for x (a run of up to 32).
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, rows_sectors, within
from dwlab.target import cuda

TILE = 32  # outputs of one row that a warp computes, one per lane
ROWS = 8  # rows of a block, one warp each


@cuda.jit
def kernel(x, w, y, shift):
    t = uint32(cuda.blockIdx.y * TILE + cuda.threadIdx.x)
    row = uint32(cuda.blockIdx.x * ROWS + cuda.threadIdx.y)
    b = uint32(row // uint32(x.shape[1]))
    h = uint32(row % uint32(x.shape[1]))
    length = uint32(x.shape[2])
    taps = uint32(w.shape[1])
    if b < x.shape[0] and t < length:
        acc = float32(0)
        s = uint32(t + shift)
        j = uint32(0)
        while j < taps:
            if s < length:
                acc += w[h, j] * x[b, h, s]
            s = uint32(s - 1)
            j = uint32(j + 1)
        y[b, h, t] = acc


def traffic(problem):
    rows, L = problem.B * problem.H, problem.L
    t0 = np.arange(0, L, TILE)[:, None]
    outputs = np.minimum(TILE, L - t0)
    ahead = problem.shift - np.arange(problem.K)
    first, count = within(t0 + ahead, outputs, L)  # of the times that a warp reads for a tap
    busy = rows * np.count_nonzero(count)
    return Traffic(
        load_requests=2 * busy,
        load_sectors=busy + rows_sectors(rows, L, first, count),
        store_requests=rows * len(t0),
        store_sectors=rows_sectors(rows, L, t0, outputs),
    )


@register(kernel=kernel, traffic=traffic, lesson="11")
def launch(problem):
    rows = fits_uint32(problem)
    return Launch(grid=(-(-rows // ROWS), -(-problem.L // TILE)), block=(TILE, ROWS), scalars=(problem.shift,))
