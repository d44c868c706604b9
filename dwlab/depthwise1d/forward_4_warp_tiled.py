"""Warp-tiled: one warp per row (b, h), everything on chip, several outputs in each lane's registers.

The one idea is reuse in registers. In the stage before, each product reads shared memory twice, and waits for it. Here
a lane computes 3 neighbouring outputs: walking along the taps it keeps a window of 3 values of x, adds one value a tap,
and uses each weight and each x three times. A warp reads twice for 96 products, where it read twice for 32.
3 is odd: lanes 3 words apart read 32 different banks.

A warp works alone. It stages its own x and w in its own part of shared memory, so it waits for its 32 lanes (syncwarp)
and never for the block; the price is a copy of the filter for each row. The staging loops have literal bounds, so that
all their loads are on their way before the first is needed. The outputs pass through shared memory once more, so that
neighbouring lanes store neighbouring outputs: stored from where they were computed, they would touch three times the
sectors. A row of 48 keeps 16 of the 32 lanes busy: the price of one mapping for any length.

Traffic: each warp loads its filter, and its window of x, once for each tile of 96 outputs and chunk of 48 taps.
"""

import numpy as np
from numba import float32, uint32

from dwlab.stages import Launch, fits_uint32, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, rows_sectors

WARPS = 8  # warps of a block, each with a row of its own
EACH = 3  # neighbouring outputs of a lane
TILE = 96  # outputs of a warp at a time: 32 * EACH
CHUNK = 48  # taps staged at a time
UNROLL = 12  # taps without a branch between them; divides CHUNK
SPAN = 160  # words of x that a warp stages: TILE + CHUNK, rounded up to whole warps
X_WORDS = WARPS * SPAN
W_WORDS = WARPS * CHUNK


@cuda.jit
def kernel(x, w, y, shift):
    x_staged = cuda.shared.array(X_WORDS, float32)
    w_staged = cuda.shared.array(W_WORDS, float32)
    lane = uint32(cuda.threadIdx.x)
    x0 = uint32(cuda.threadIdx.y * SPAN)  # where this warp's part begins
    w0 = uint32(cuda.threadIdx.y * CHUNK)
    mine = uint32(x0 + lane * EACH)
    length = uint32(x.shape[2])
    taps = uint32(w.shape[1])
    row = uint32(cuda.blockIdx.x * WARPS + cuda.threadIdx.y)
    b = uint32(row // uint32(x.shape[1]))
    h = uint32(row % uint32(x.shape[1]))
    if b >= x.shape[0]:
        return  # a whole warp, and no barrier of the block follows
    t0 = uint32(0)
    while t0 < length:
        tile = min(uint32(TILE), uint32(length - t0))
        end = min(length, uint32(t0 + tile + shift))
        y0 = y1 = y2 = float32(0)
        j0 = uint32(0)
        while j0 < taps:
            n = min(uint32(CHUNK), uint32(taps - j0))
            for m in range(2):
                i = uint32(lane + 32 * m)
                if i < n:
                    w_staged[w0 + i] = w[h, uint32(j0 + n - 1 - i)]
            for m in range(5):
                i = uint32(lane + 32 * m)
                s = uint32(t0 + shift - j0 - n + i)  # left of the row: wraps to a huge number
                value = float32(0)
                if s < end:
                    value = x[b, h, s]
                x_staged[x0 + i] = value
            cuda.syncwarp()
            p = mine
            q = w0
            u0 = x_staged[p + 1]
            u1 = x_staged[p + 2]
            whole = uint32(w0 + n - n % UNROLL)
            stop = uint32(w0 + n)
            while q < whole:
                for k in range(UNROLL):
                    f = w_staged[q + k]
                    u2 = x_staged[p + 3 + k]
                    y0 += f * u0
                    y1 += f * u1
                    y2 += f * u2
                    u0 = u1
                    u1 = u2
                p = uint32(p + UNROLL)
                q = uint32(q + UNROLL)
            while q < stop:
                f = w_staged[q]
                u2 = x_staged[p + 3]
                y0 += f * u0
                y1 += f * u1
                y2 += f * u2
                u0 = u1
                u1 = u2
                p = uint32(p + 1)
                q = uint32(q + 1)
            cuda.syncwarp()
            j0 = uint32(j0 + CHUNK)
        x_staged[mine] = y0
        x_staged[mine + 1] = y1
        x_staged[mine + 2] = y2
        cuda.syncwarp()
        for m in range(3):
            i = uint32(lane + 32 * m)
            if i < tile:
                y[b, h, t0 + i] = x_staged[x0 + i]
        cuda.syncwarp()
        t0 = uint32(t0 + TILE)


def traffic(problem):
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    m = 32 * np.arange(SPAN // 32)  # the first i of each of a warp's accesses
    t0 = np.arange(0, L, TILE)[:, None, None]
    j0 = np.arange(0, K, CHUNK)[:, None]
    outputs, taps = np.minimum(TILE, L - t0), np.minimum(CHUNK, K - j0)
    w_count = np.clip(taps - m, 0, 32)
    x_first = t0 + problem.shift - j0 - taps + m
    x_stop = np.minimum(np.minimum(L, t0 + outputs + problem.shift), x_first + 32)
    x_first = np.maximum(0, x_first)
    x_count = np.maximum(0, x_stop - x_first)
    y_count = np.clip(outputs - m, 0, 32)
    w_sectors = problem.B * len(t0) * rows_sectors(H, K, j0 + taps - m - w_count, w_count)
    return Traffic(
        load_requests=rows * (len(t0) * np.count_nonzero(w_count) + np.count_nonzero(x_count)),
        load_sectors=w_sectors + rows_sectors(rows, L, x_first, x_count),
        store_requests=rows * np.count_nonzero(y_count),
        store_sectors=rows_sectors(rows, L, t0 + m, y_count),
    )


@register(kernel=kernel, traffic=traffic)
def launch(problem):
    rows = fits_uint32(problem)
    return Launch(grid=(-(-rows // WARPS),), block=(32, WARPS), scalars=(problem.shift,))
