"""Tiles: rows of any length and alignment, cut along the time and dealt out to blocks; a warp has 8 taps.

`strips` moves 16 bytes an instruction, which rows of 2,049 do not allow; warp_tiled gives such a row to one warp and
adds by atomics to a dw that another launch sets to zero. Here a block has a channel and up to 64 of its taps, 8 in each
warp, and walks through its share of the channel's tiles: a piece of one row, or short rows side by side. dy and x with
its halo come to shared memory once for all taps. A lane takes 4 neighbouring times: 4 dy and 12 x, 16 bytes a read, for
32 multiply-adds. Warps that taps do not need share the times.

The sums stay in registers to the end; then lanes meet by shuffles and warps in shared memory. Where one block a channel
is enough, that is dw; else blocks share a channel, and a second kernel adds up their parts. All in a fixed
order: the same bits in every run. A row's last times go one by one, so no dy is made up; an x beyond the row is a zero,
and a dy that is not finite makes NaN of what meets it.

Predicted, on an H200: (16, 3, 2049, 48) has 240 tiles, each some 1.2 µs of load, barrier and sum, and a second launch:
about 5 µs. Traffic: for each 64 taps dy once and x with a halo for each tile.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.kernels.traffic import Traffic, grouped, warp_traffic
from dwlab.target import cuda

WARPS = 8  # most of a block
GROUP = 8  # taps of a warp
SPAN = 512  # most times of a tile's row
WORDS = 1024  # of a tile of several rows
X_WORDS = WORDS + GROUP * WARPS
SUMS = WARPS * GROUP
FEW = 4  # tiles that a block takes rather than a second launch
BLOCKS = 528  # that share the tiles, if there are more


@by_shape
def kernel(DTYPE):
    up = pieces.up(DTYPE)

    @cuda.jit
    def kernel(dy, x, parts, shift, span, side, across):
        dy_tile = cuda.shared.array(X_WORDS, float32, 16)
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        found = cuda.shared.array(SUMS, float32)
        sums = cuda.local.array(8, float32)
        window = cuda.local.array(12, float32)
        times = cuda.local.array(4, float32)
        lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        threads = uint32(uint32(32) * uint32(cuda.blockDim.y))
        thread = uint32(uint32(32) * warp + lane)
        entries, channels, length = uint32(x.shape[0]), uint32(x.shape[1]), uint32(x.shape[2])
        taps = uint32(parts.shape[2])
        part = uint32(uint32(cuda.blockIdx.x) // channels)
        h = uint32(uint32(cuda.blockIdx.x) - part * channels)
        j0 = uint32(uint32(cuda.blockIdx.y) * uint32(SUMS))
        groups = min(uint32(WARPS), uint32(uint32(taps - j0 + uint32(GROUP - 1)) // uint32(GROUP)))
        together = uint32(uint32(cuda.blockDim.y) // groups)  # warps that have the same taps
        share = uint32(warp // groups)
        g = uint32(warp - share * groups)
        reach = uint32(uint32(GROUP) * groups)  # times before the tile that its taps reach
        worker = uint32(share * uint32(32) + lane)
        down = uint32(worker // across)  # the lane's first row of a tile, and its first four times
        right = uint32(worker - down * across)
        rows_at_once = uint32(uint32(uint32(32) * together) // across)
        tiles = uint32(uint32(length + span - uint32(1)) // span)
        items = uint32(uint32(uint32(entries + side - uint32(1)) // side) * tiles)
        pitch = uint32(span + reach)
        for k in range(8):
            sums[k] = float32(0)
        item = part
        while item < items:
            b0 = uint32(item // tiles)
            t0 = uint32(uint32(item - b0 * tiles) * span)
            b0 = uint32(b0 * side)
            rows = uint32(min(side, uint32(entries - b0)))
            n = uint32(min(span, uint32(length - t0)))
            begin = uint32(t0 + shift - j0 - reach)  # of x; before the row it wraps to a huge number
            first = thread
            while first < rows * pitch:
                for m in range(4):  # four loads of each in flight at once
                    i = uint32(first + uint32(m) * threads)
                    r = uint32(i // pitch)
                    t = uint32(i - r * pitch)
                    value = float32(0)
                    if r < rows and t < n:
                        value = up(dy[uint32(b0 + r), h, uint32(t0 + t)])
                    times[m] = value
                    value = float32(0)
                    if r < rows and uint32(begin + t) < length:
                        value = up(x[uint32(b0 + r), h, uint32(begin + t)])
                    window[m] = value
                for m in range(4):
                    i = uint32(first + uint32(m) * threads)
                    if i < rows * pitch:
                        dy_tile[i] = times[m]
                        x_tile[i] = window[m]
                first = uint32(first + uint32(4) * threads)
            cuda.syncthreads()
            r = down
            while r < rows and down < rows_at_once:
                here = uint32(r * pitch)
                back = uint32(here + reach - uint32(GROUP) * g)  # what tap 0 of the warp pairs with the tile's first dy
                t = uint32(uint32(4) * right)
                while t + uint32(4) <= n:
                    times[0], times[1], times[2], times[3] = ptx.load4_shared(dy_tile, uint32(here + t))
                    for m in range(3):
                        window[4 * m], window[4 * m + 1], window[4 * m + 2], window[4 * m + 3] = ptx.load4_shared(
                            x_tile, uint32(back + t + uint32(4 * m) - uint32(8))
                        )
                    for k in range(8):
                        for i in range(4):
                            sums[k] += times[i] * window[8 + i - k]
                    t = uint32(t + uint32(4) * across)
                t = uint32(n - n % uint32(4) + right)  # what is left of the row
                while t < n:
                    for k in range(8):
                        sums[k] += dy_tile[uint32(here + t)] * x_tile[uint32(back + t - uint32(k))]
                    t = uint32(t + across)
                r = uint32(r + rows_at_once)
            cuda.syncthreads()
            item = uint32(item + uint32(parts.shape[0]))
        for k in range(8):
            for m in range(5):
                sums[k] += cuda.shfl_xor_sync(0xFFFFFFFF, sums[k], 16 >> m)
            if lane == 0:
                found[uint32(uint32(GROUP) * warp + uint32(k))] = sums[k]
        cuda.syncthreads()
        if thread < reach and j0 + thread < taps:
            total = found[thread]
            for other in range(1, together):
                total += found[uint32(uint32(other) * reach + thread)]
            parts[part, h, uint32(j0 + thread)] = total

    return kernel


def traffic(problem):
    """dy and x with its halo for each tile and 64 taps; the parts."""
    B, H, L, K, shift = problem.B, problem.H, problem.L, problem.K, problem.shift
    span, side, warps, parts = shares(problem)
    per_sector = 8 if problem.dtype == "float32" else 16
    thread = np.arange(32 * warps)
    loads, stores = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for j0 in range(0, K, SUMS):
        reach = GROUP * min(WARPS, -(-(K - j0) // GROUP))
        pitch = span + reach
        j = np.where(thread < min(reach, K - j0), j0 + thread, -1)
        lines = np.arange(parts * H)[:, None] * K
        stores += warp_traffic(np.where(j >= 0, lines + j, -1))
        inner = range(j0 + reach - shift, L - max(span, span + shift - j0) + 1)  # tiles that nothing cuts off

        def alike(tile, inner=inner):  # whose rows begin alike in their sectors and are cut off alike
            b0, t0 = tile
            return b0 * H * L % per_sector, t0 % per_sector if t0 in inner else -1 - t0, min(side, B - b0)

        tiles = ((b0, t0) for b0 in range(0, B, side) for t0 in range(0, L, span))
        for (_, _, rows), (b0, t0), times in grouped(tiles, alike):
            i = thread + np.arange(0, -(-rows * pitch // (128 * warps)) * 128 * warps, 32 * warps)[:, None]
            r, t = i // pitch, i % pitch
            s = t0 + shift - j0 - reach + t
            for h in range(min(H, per_sector)):  # h + 16 of 16 bits lies as h does
                many = times * len(range(h, H, per_sector))
                row = ((b0 + r) * H + h) * L
                took = (r < rows) & (t < min(span, L - t0))
                loads += many * warp_traffic(np.where(took, row + t0 + t, -1), per_sector)
                loads += many * warp_traffic(np.where((r < rows) & (s >= 0) & (s < L), row + s, -1), per_sector)
    return Traffic(*loads.tolist(), *stores.tolist())


def shares(problem):
    """(times of a tile's row, rows of a tile, warps of a block, blocks that share a channel)."""
    B, L, K = problem.B, problem.L, problem.K
    quads = -(-L // 4)
    span = 4 * -(-quads // -(-quads // (SPAN // 4)))
    groups = min(WARPS, -(-K // GROUP))
    side = max(1, min(B, WORDS // (span + GROUP * groups)))
    items = -(-B // side) * -(-L // span)
    blocks = problem.H * -(-K // SUMS)
    return span, side, WARPS // groups * groups, 1 if items <= FEW else min(items, -(-BLOCKS // blocks))


@register(kernel=kernel, traffic=traffic, view="elements")
def launch(problem):
    fits_uint32(problem)
    span, side, warps, parts = shares(problem)
    groups = min(WARPS, -(-problem.K // GROUP))
    across = min(max(1, span // 4), 32 * (warps // groups))
    grid = (problem.H * parts, -(-problem.K // SUMS))
    return Launch(grid=grid, block=(32, warps), scalars=(problem.shift, span, side, across), parts=parts)
