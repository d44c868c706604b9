"""Warp-tiled: one warp per row (b, h), everything on chip, several outputs in each lane's registers.

The one idea is reuse in registers. In the stage before, each product reads shared memory twice, and a multiprocessor
serves one such read of a warp per cycle: these wavefronts are what the kernel waits for. Here a lane computes 3
neighbouring outputs: walking along the taps it keeps a window of 3 values of x, adds one value a tap, and uses each
weight and each x three times. 16 lanes make a tile of 48 outputs; the other 16 lanes take the other half of the taps
for the same outputs, and a shuffle adds the two. So 2 reads serve 96 products, where they served 32: for a row of 48
and 48 taps 48 wavefronts in place of 144. 3 is odd: lanes 3 words apart read 32 different banks, and where the halves
meet they read the same words.

A warp works alone. It stages its own x and w in its own part of shared memory, so it waits for its 32 lanes (syncwarp)
and never for the block; the price is a copy of the filter for each row. The outputs pass through shared memory once
more, so that neighbouring lanes store neighbouring outputs: stored from where they were computed, they would touch
three times the sectors.

A whole chunk of 48 taps has a loop of literal length, so that the compiler unrolls it; what is left of a filter goes
through a plain loop. The window is 48 + 48 wide for any chunk, so for few taps most of the halo is loaded in vain.

Traffic: each warp loads its filter, and its window of x, once for each tile of 48 outputs and chunk of 48 taps.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, rows_sectors, within
from dwlab.target import cuda

WARPS = 8  # warps of a block, each with a row of its own
EACH = 3  # neighbouring outputs of a lane
TILE = 48  # outputs of a warp at a time: 16 lanes * EACH
CHUNK = 48  # taps staged at a time
HALF = 24  # taps of a half-warp
SPAN = 96  # words of x that a warp stages: TILE + CHUNK
X_WORDS = WARPS * SPAN
W_WORDS = WARPS * CHUNK


@cuda.jit
def kernel(x, w, y, shift):
    x_staged = cuda.shared.array(X_WORDS, float32)
    w_staged = cuda.shared.array(W_WORDS, float32)
    lane = uint32(cuda.threadIdx.x)
    half = uint32(lane // 16)
    x0 = uint32(cuda.threadIdx.y * SPAN)  # where this warp's part begins
    w0 = uint32(cuda.threadIdx.y * CHUNK)
    mine = uint32(x0 + lane % 16 * EACH)
    length = uint32(x.shape[2])
    taps = uint32(w.shape[1])
    row = uint32(cuda.blockIdx.x * WARPS + cuda.threadIdx.y)
    b = uint32(row // uint32(x.shape[1]))
    h = uint32(row % uint32(x.shape[1]))
    if b >= x.shape[0]:
        return  # a whole warp, and no barrier of the block follows
    t0 = uint32(0)
    while t0 < length:
        y0 = y1 = y2 = float32(0)
        j0 = uint32(0)
        while j0 < taps:
            for m in range(2):
                i = uint32(lane + 32 * m)
                j = uint32(j0 + CHUNK - 1 - i)  # the filter reversed
                value = float32(0)
                if i < CHUNK and j < taps:
                    value = w[h, j]
                if i < CHUNK:
                    w_staged[w0 + i] = value
            for m in range(3):
                i = uint32(lane + 32 * m)
                s = uint32(t0 + shift - j0 - CHUNK + i)  # left of the row: wraps to a huge number
                value = float32(0)
                if s < length:
                    value = x[b, h, s]
                x_staged[x0 + i] = value
            cuda.syncwarp()
            n = min(uint32(CHUNK), uint32(taps - j0))
            if n == CHUNK:
                p = uint32(mine + half * HALF)
                q = uint32(w0 + half * HALF)
                u0 = x_staged[p + 1]
                u1 = x_staged[p + 2]
                for k in range(HALF):
                    f = w_staged[q + k]
                    u2 = x_staged[p + 3 + k]
                    y0 += f * u0
                    y1 += f * u1
                    y2 += f * u2
                    u0 = u1
                    u1 = u2
            else:  # the same for n taps, about half of them each; at a multiple of 3, for the banks
                share = min(n, uint32((n + 5) // 6 * 3))
                i = uint32(CHUNK - n + half * share)
                stop = uint32(CHUNK - (1 - half) * (n - share))
                u0 = x_staged[mine + i + 1]
                u1 = x_staged[mine + i + 2]
                while i < stop:
                    f = w_staged[w0 + i]
                    u2 = x_staged[mine + i + 3]
                    y0 += f * u0
                    y1 += f * u1
                    y2 += f * u2
                    u0 = u1
                    u1 = u2
                    i = uint32(i + 1)
            cuda.syncwarp()
            j0 = uint32(j0 + CHUNK)
        y0 += cuda.shfl_xor_sync(0xFFFFFFFF, y0, 16)
        y1 += cuda.shfl_xor_sync(0xFFFFFFFF, y1, 16)
        y2 += cuda.shfl_xor_sync(0xFFFFFFFF, y2, 16)
        if half == 0:
            x_staged[mine] = y0
            x_staged[mine + 1] = y1
            x_staged[mine + 2] = y2
        cuda.syncwarp()
        for m in range(2):
            i = uint32(lane + 32 * m)
            if i < TILE and t0 + i < length:
                y[b, h, t0 + i] = x_staged[x0 + i]
        cuda.syncwarp()
        t0 = uint32(t0 + TILE)


def traffic(problem):
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    m = 32 * np.arange(SPAN // 32)  # the first i of each of a warp's accesses
    t0 = np.arange(0, L, TILE)[:, None, None]
    j0 = np.arange(0, K, CHUNK)[:, None]
    w_first = np.maximum(j0, j0 + CHUNK - 32 - m)  # the lowest tap of each access to the filter, and how many
    w_count = np.clip(np.minimum(K, j0 + CHUNK - m) - w_first, 0, 32)
    x_first, x_count = within(t0 + problem.shift - j0 - CHUNK + m, 32, L)
    y_count = np.clip(np.minimum(TILE, L - t0) - m, 0, 32)
    w_sectors = problem.B * len(t0) * rows_sectors(H, K, w_first, w_count)
    return Traffic(
        load_requests=rows * (len(t0) * np.count_nonzero(w_count) + np.count_nonzero(x_count)),
        load_sectors=w_sectors + rows_sectors(rows, L, x_first, x_count),
        store_requests=rows * np.count_nonzero(y_count),
        store_sectors=rows_sectors(rows, L, t0 + m, y_count),
    )


@register(kernel=kernel, traffic=traffic, lesson="13")
def launch(problem):
    rows = fits_uint32(problem)
    return Launch(grid=(-(-rows // WARPS),), block=(32, WARPS), scalars=(problem.shift,))
