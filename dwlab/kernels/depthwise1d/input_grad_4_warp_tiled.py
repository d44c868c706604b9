"""Warp-tiled: one warp per row (b, h), everything on chip, several elements of dx in each lane's registers.

The one idea is reuse in registers, in the same tiles as forward's: a lane computes 3 neighbouring elements and keeps a
window of 3 values of dy, so that each step along the taps reads one weight and one dy for 3 products. 16 lanes make a
tile of 48; the other 16 take the other half of the taps, and a shuffle adds the two. 2 reads of shared memory serve 96
products where they served 32. 3 is odd: lanes 3 words apart read 32 different banks.

A warp works alone, on its own part of shared memory: it waits for its lanes (syncwarp), never for the block, and pays
with a copy of the filter for each row. The results pass through shared memory once more, so that neighbouring lanes
store neighbouring elements. A whole chunk of 48 taps has a loop of literal length, what is left of a filter a plain
one. The window is 48 + 48 wide for any chunk, so for few taps most of the halo is loaded in vain. Deterministic.

Traffic: each warp loads its filter, and its window of dy, once for each tile of 48 elements and chunk of 48 taps.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, rows_sectors, within
from dwlab.target import cuda

WARPS = 8  # warps of a block, each with a row of its own
EACH = 3  # neighbouring elements of a lane
TILE = 48  # elements of a warp at a time: 16 lanes * EACH
CHUNK = 48  # taps staged at a time
HALF = 24  # taps of a half-warp
SPAN = 96  # words of dy that a warp stages: TILE + CHUNK
DY_WORDS = WARPS * SPAN
W_WORDS = WARPS * CHUNK


@cuda.jit
def kernel(dy, w, dx, shift):
    dy_staged = cuda.shared.array(DY_WORDS, float32)
    w_staged = cuda.shared.array(W_WORDS, float32)
    lane = uint32(cuda.threadIdx.x)
    half = uint32(lane // 16)
    d0 = uint32(cuda.threadIdx.y * SPAN)  # where this warp's part begins
    w0 = uint32(cuda.threadIdx.y * CHUNK)
    mine = uint32(d0 + lane % 16 * EACH)
    length = uint32(dy.shape[2])
    taps = uint32(w.shape[1])
    row = uint32(cuda.blockIdx.x * WARPS + cuda.threadIdx.y)
    b = uint32(row // uint32(dy.shape[1]))
    h = uint32(row % uint32(dy.shape[1]))
    if b >= dy.shape[0]:
        return  # a whole warp, and no barrier of the block follows
    s0 = uint32(0)
    while s0 < length:
        g0 = g1 = g2 = float32(0)
        j0 = uint32(0)
        while j0 < taps:
            for m in range(2):
                i = uint32(lane + 32 * m)
                value = float32(0)
                if i < CHUNK and j0 + i < taps:
                    value = w[h, j0 + i]
                if i < CHUNK:
                    w_staged[w0 + i] = value
            for m in range(3):
                i = uint32(lane + 32 * m)
                t = uint32(s0 - shift + j0 + i)  # left of the row: wraps to a huge number
                value = float32(0)
                if t < length:
                    value = dy[b, h, t]
                dy_staged[d0 + i] = value
            cuda.syncwarp()
            n = min(uint32(CHUNK), uint32(taps - j0))
            if n == CHUNK:
                p = uint32(mine + half * HALF)
                q = uint32(w0 + half * HALF)
                u0 = dy_staged[p]
                u1 = dy_staged[p + 1]
                for k in range(HALF):
                    f = w_staged[q + k]
                    u2 = dy_staged[p + 2 + k]
                    g0 += f * u0
                    g1 += f * u1
                    g2 += f * u2
                    u0 = u1
                    u1 = u2
            else:  # the same for n taps, about half of them each; at a multiple of 3, for the banks
                share = uint32((n + 5) // 6 * 3)
                i = uint32(half * share)
                stop = n if half == 1 else min(n, share)
                u0 = dy_staged[mine + i]
                u1 = dy_staged[mine + i + 1]
                while i < stop:
                    f = w_staged[w0 + i]
                    u2 = dy_staged[mine + i + 2]
                    g0 += f * u0
                    g1 += f * u1
                    g2 += f * u2
                    u0 = u1
                    u1 = u2
                    i = uint32(i + 1)
            cuda.syncwarp()
            j0 = uint32(j0 + CHUNK)
        g0 += cuda.shfl_xor_sync(0xFFFFFFFF, g0, 16)
        g1 += cuda.shfl_xor_sync(0xFFFFFFFF, g1, 16)
        g2 += cuda.shfl_xor_sync(0xFFFFFFFF, g2, 16)
        if half == 0:
            dy_staged[mine] = g0
            dy_staged[mine + 1] = g1
            dy_staged[mine + 2] = g2
        cuda.syncwarp()
        for m in range(2):
            i = uint32(lane + 32 * m)
            if i < TILE and s0 + i < length:
                dx[b, h, s0 + i] = dy_staged[d0 + i]
        cuda.syncwarp()
        s0 = uint32(s0 + TILE)


def traffic(problem):
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    m = 32 * np.arange(SPAN // 32)  # the first i of each of a warp's accesses
    s0 = np.arange(0, L, TILE)[:, None, None]
    j0 = np.arange(0, K, CHUNK)[:, None]
    w_count = np.clip(np.minimum(CHUNK, K - j0) - m, 0, 32)
    dy_first, dy_count = within(s0 - problem.shift + j0 + m, 32, L)
    dx_count = np.clip(np.minimum(TILE, L - s0) - m, 0, 32)
    w_sectors = problem.B * len(s0) * rows_sectors(H, K, j0 + m, w_count)
    return Traffic(
        load_requests=rows * (len(s0) * np.count_nonzero(w_count) + np.count_nonzero(dy_count)),
        load_sectors=w_sectors + rows_sectors(rows, L, dy_first, dy_count),
        store_requests=rows * np.count_nonzero(dx_count),
        store_sectors=rows_sectors(rows, L, s0 + m, dx_count),
    )


@register(kernel=kernel, traffic=traffic)
def launch(problem):
    rows = fits_uint32(problem)
    return Launch(grid=(-(-rows // WARPS),), block=(32, WARPS), scalars=(problem.shift,))
