"""Warp-tiled: a warp per group of rows, everything on chip, the sums of several taps in each lane's registers.

The one idea is reuse in registers. In the stage before, each product reads shared memory twice. Here a lane has 3
neighbouring taps: walking through time it keeps a window of 3 values of x, adds one value a step, and uses each dy and
each x three times. 16 lanes make a chunk of 48 taps; the other 16 lanes take the other half of the times for the same
taps. So 2 reads serve 96 products where they served 32. 3 is odd: lanes 3 words apart read 32 different banks, and
where the halves meet they read the same words.

A warp walks alone through its share of a channel's batch, staging 48 times of dy and the window of x in its own part of
shared memory, and waits for its 32 lanes only (syncwarp). The sums stay in registers to the end; then a shuffle adds
the two halves, and the taps pass through shared memory once, so that neighbouring lanes add neighbouring taps to dw by
atomics. There are up to some 8192 warps in all, each with one addition for each tap. Atomics come in any order: not
deterministic where a channel has several warps. A dy that is not finite meets staged zeros, as in the stage before.

Traffic: for each 48 taps, each row once: 48 times of dy and a window of 96 of x at a time; and the atomics.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.registry import Launch, fits_uint32, register
from dwlab.kernels.traffic import Traffic, rows_sectors, within
from dwlab.target import cuda

WARPS = 8  # warps of a block, each with rows of its own
EACH = 3  # neighbouring taps of a lane
TAPS = 48  # taps of a warp: 16 lanes * EACH
CHUNK = 48  # times staged at a time
HALF = 24  # times of a half-warp
SPAN = 96  # words of x that a warp stages: CHUNK + TAPS
X_WORDS, DY_WORDS = WARPS * SPAN, WARPS * CHUNK
SHARES = 8192  # warps enough to fill any GPU, each adding to dw once


@cuda.jit
def kernel(dy, x, dw, shift, splits):
    x_staged = cuda.shared.array(X_WORDS, float32)
    dy_staged = cuda.shared.array(DY_WORDS, float32)
    lane = uint32(cuda.threadIdx.x)
    half = uint32(lane // 16)
    x0 = uint32(cuda.threadIdx.y * SPAN)  # where this warp's part begins
    d0 = uint32(cuda.threadIdx.y * CHUNK)
    first = uint32(lane % 16 * EACH)  # of this lane's taps, from j0
    share = uint32(cuda.blockIdx.x * WARPS + cuda.threadIdx.y)
    h = uint32(share % uint32(dw.shape[0]))
    b = uint32(share // uint32(dw.shape[0]))
    j0 = uint32(cuda.blockIdx.y * TAPS)
    entries = uint32(dy.shape[0])
    length = uint32(dy.shape[2])
    taps = uint32(dw.shape[1])
    if b >= splits:
        return  # a whole warp, and no barrier of the block follows
    g0 = g1 = g2 = float32(0)
    while b < entries:
        t0 = uint32(0)
        while t0 < length:
            for m in range(2):
                i = uint32(lane + 32 * m)
                value = float32(0)
                if i < CHUNK and t0 + i < length:
                    value = dy[b, h, t0 + i]
                if i < CHUNK:
                    dy_staged[d0 + i] = value
            for m in range(3):
                i = uint32(lane + 32 * m)
                s = uint32(t0 + shift - j0 - TAPS + i)  # left of the row: wraps to a huge number
                value = float32(0)
                if s < length:
                    value = x[b, h, s]
                x_staged[x0 + i] = value
            cuda.syncwarp()
            n = min(uint32(CHUNK), uint32(length - t0))
            if n == CHUNK:
                p = uint32(x0 + TAPS - first + half * HALF)
                q = uint32(d0 + half * HALF)
                u2 = x_staged[p - 2]
                u1 = x_staged[p - 1]
                for k in range(HALF):
                    f = dy_staged[q + k]
                    u0 = x_staged[p + k]
                    g0 += f * u0
                    g1 += f * u1
                    g2 += f * u2
                    u2 = u1
                    u1 = u0
            else:  # the same for n times, about half of them each; at a multiple of 3, for the banks
                middle = uint32((n + 5) // 6 * 3)
                i = uint32(half * middle)
                stop = n if half == 1 else min(n, middle)
                p = uint32(x0 + TAPS - first)
                u2 = x_staged[p + i - 2]
                u1 = x_staged[p + i - 1]
                while i < stop:
                    f = dy_staged[d0 + i]
                    u0 = x_staged[p + i]
                    g0 += f * u0
                    g1 += f * u1
                    g2 += f * u2
                    u2 = u1
                    u1 = u0
                    i = uint32(i + 1)
            cuda.syncwarp()
            t0 = uint32(t0 + CHUNK)
        b = uint32(b + splits)
    g0 += cuda.shfl_xor_sync(0xFFFFFFFF, g0, 16)
    g1 += cuda.shfl_xor_sync(0xFFFFFFFF, g1, 16)
    g2 += cuda.shfl_xor_sync(0xFFFFFFFF, g2, 16)
    if half == 0:
        dy_staged[d0 + first] = g0
        dy_staged[d0 + first + 1] = g1
        dy_staged[d0 + first + 2] = g2
    cuda.syncwarp()
    for m in range(2):
        i = uint32(lane + 32 * m)
        if i < TAPS and j0 + i < taps:
            cuda.atomic.add(dw, (h, j0 + i), dy_staged[d0 + i])


def traffic(problem):
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    m = 32 * np.arange(SPAN // 32)  # the first i of each of a warp's accesses
    t0 = np.arange(0, L, CHUNK)[:, None, None]
    j0 = np.arange(0, K, TAPS)[:, None]
    dy_count = np.clip(np.minimum(CHUNK, L - t0) - m, 0, 32)
    x_first, x_count = within(t0 + problem.shift - j0 - TAPS + m, 32, L)
    dw_count = np.clip(np.minimum(TAPS, K - j0) - m, 0, 32)
    return Traffic(
        load_requests=rows * (len(j0) * np.count_nonzero(dy_count) + np.count_nonzero(x_count)),
        load_sectors=len(j0) * rows_sectors(rows, L, t0 + m, dy_count) + rows_sectors(rows, L, x_first, x_count),
        store_requests=0,
        store_sectors=0,
        atomic_requests=H * splits_of(problem) * np.count_nonzero(dw_count),
        atomic_sectors=splits_of(problem) * rows_sectors(H, K, j0 + m, dw_count),
    )


def splits_of(problem):
    """The warps that share a channel's batch."""
    return min(problem.B, max(1, SHARES // (problem.H * -(-problem.K // TAPS))))


@register(kernel=kernel, traffic=traffic, lesson="20")
def launch(problem):
    fits_uint32(problem)
    splits = splits_of(problem)
    grid = (-(-problem.H * splits // WARPS), -(-problem.K // TAPS))
    return Launch(grid=grid, block=(32, WARPS), scalars=(problem.shift, splits), zero=True)
