"""Tiles: rows of any length and alignment, cut along the time and put side by side, so that every block is full.

`wide` and `strips` move 16 bytes an instruction, which rows of 2,049 do not allow; warp_tiled gives such a row to one
warp, so that 48 rows keep 6 multiprocessors busy. Here a thread has 4 neighbouring outputs of a row, and a block up to
128 threads: a tile of one long row, or up to 32 short rows side by side, whatever their channel. Few threads are idle,
and few rows still become many blocks.

A block stages its tile of x and its filters in shared memory, 32 taps at a time, only those that reach into the row.
For 8 taps a thread reads 8 x (the window's other 4 it has) and 8 weights, 16 bytes at a time, for 32 multiply-adds.
What is left of a chunk goes tap by tap: no weight is made up, so an x that is not finite meets none. The filter is
staged reversed, so that window and weights are walked upwards. The sums go out through shared memory, so that
neighbouring threads store neighbouring outputs. Sizes are arguments: one kernel is compiled for all shapes of a type.
Rows of 16 bits, which may begin at any element, are read one element a lane; tile, sums and filter are float32.
The input gradient stages the filter as it lies, and has shift K-1 - shift. Deterministic.

Predicted, on an H200: (16, 3, 2049, 48) has 240 blocks, 0.8 MB, 4.7 M multiply-adds: 0.2 µs of memory, 0.2 of
arithmetic; two chunks of load, barrier, sum, one after the other, some 1.5 µs, and a launch: about 4 µs.
Traffic: x once for each tile, with a halo of K-1, and again a chunk's halo for each 32 taps; the filter for each tile.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.kernels.traffic import Traffic, grouped, rows_traffic, warp_traffic
from dwlab.kernels.traffic import pieces as runs
from dwlab.target import cuda

EACH = 4  # neighbouring outputs of a thread: 16 bytes of the window
THREADS = 128  # most of a block
NARROW, BUSY = 32, 1024  # most along a row, unless there are so many blocks
ROWS = 32  # most rows of a block
CHUNK = 32  # taps staged at a time
GROUP = 8  # taps without a branch between them
W_WORDS = ROWS * CHUNK
X_WORDS = THREADS * EACH + ROWS * (CHUNK + 4)


@by_shape
def kernel(DTYPE, REVERSE):
    """kernel(x, w, y, shift): y[t] += w[j] * x[t + shift - j]; with REVERSE w[K-1-j]."""
    up, down = pieces.up(DTYPE), pieces.down(DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift):
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        window = cuda.local.array(12, float32)
        weights = cuda.local.array(8, float32)
        sums = cuda.local.array(4, float32)
        tx, ty, width = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockDim.x)
        length, taps = uint32(x.shape[2]), uint32(w.shape[1])
        row = uint32(uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.y) + ty)
        b = uint32(row // uint32(x.shape[1]))
        h = uint32(row - b * uint32(x.shape[1]))
        inside = b < x.shape[0]
        span = uint32(uint32(4) * width)
        t0 = uint32(uint32(cuda.blockIdx.y) * span)
        pitch = uint32(span + uint32(CHUNK + 4))  # of a row in x_tile
        own_x, own_w = uint32(ty * pitch), uint32(ty * uint32(CHUNK))
        j0 = uint32(t0 + shift + 1 - length) if t0 + shift + 1 > length else uint32(0)
        stop = min(taps, uint32(min(uint32(t0 + span), length) + shift))  # taps from j0 to stop reach into the row
        for i in range(4):
            sums[i] = float32(0)
        while j0 < stop:
            n = min(uint32(CHUNK), uint32(stop - j0))
            i = tx
            while i < n:
                j = uint32(j0 + n - 1 - i)
                weight = float32(0)
                if inside:
                    weight = w[h, uint32(taps - 1 - j)] if REVERSE else w[h, j]
                w_tile[own_w + i] = weight
                i = uint32(i + width)
            i = tx
            begin = uint32(t0 + shift + 1 - j0 - n)  # the tile's first time; before the row it wraps to a huge number
            while i < uint32(span + n):
                for m in range(4):  # four loads in flight at once
                    s = uint32(begin + i + uint32(m) * width)
                    value = float32(0)
                    if inside and s < length and i + uint32(m) * width < uint32(span + n):
                        value = up(x[b, h, s])
                    window[m] = value
                for m in range(4):
                    if i + uint32(m) * width < uint32(span + n):
                        x_tile[uint32(own_x + i + uint32(m) * width)] = window[m]
                i = uint32(i + span)
            cuda.syncthreads()
            p, q = uint32(own_x + uint32(4) * tx), own_w
            last = uint32(q + n - n % uint32(GROUP))
            if q < last:
                window[0], window[1], window[2], window[3] = ptx.load4_shared(x_tile, p)
            while q < last:
                for m in range(2):
                    u = uint32(4 * m)
                    window[4 + 4 * m], window[5 + 4 * m], window[6 + 4 * m], window[7 + 4 * m] = ptx.load4_shared(
                        x_tile, uint32(p + uint32(4) + u)
                    )
                    weights[4 * m], weights[4 * m + 1], weights[4 * m + 2], weights[4 * m + 3] = ptx.load4_shared(
                        w_tile, uint32(q + u)
                    )
                for k in range(8):
                    for i in range(4):
                        sums[i] += weights[k] * window[i + k]
                for i in range(4):
                    window[i] = window[8 + i]
                p, q = uint32(p + uint32(GROUP)), uint32(q + uint32(GROUP))
            while q < uint32(own_w + n):
                for i in range(4):
                    sums[i] += w_tile[q] * x_tile[uint32(p + uint32(i))]
                p, q = uint32(p + uint32(1)), uint32(q + uint32(1))
            cuda.syncthreads()
            j0 = uint32(j0 + n)
        ptx.store4_shared(x_tile, uint32(own_x + uint32(4) * tx), sums[0], sums[1], sums[2], sums[3])
        cuda.syncthreads()
        for m in range(4):
            t = uint32(tx + uint32(m) * width)
            if inside and t0 + t < length:
                y[b, h, uint32(t0 + t)] = down(x_tile[uint32(own_x + t)])

    return kernel


def traffic(problem, reverse):
    """x and the filters for each tile and chunk of taps, y."""
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    shift = problem.left if reverse else problem.shift
    width, side = block_of(problem)
    span, per_sector = EACH * width, 8 if problem.dtype == "float32" else 16
    ty, tx = np.divmod(np.arange(width * side), width)

    # Blocks are alike whose rows, and whose channels, begin alike in their sectors; those that pass the last channel
    # are each of their own.
    def kind_of_channels(row):
        h = row % H
        return h * K % 8 if h + side <= H else -1 - h, min(side, rows - row)

    def kind_of_tile(t0):
        inner = t0 + shift + 1 >= K and t0 + span + shift < L  # its last load is of t0 + span + shift
        return t0 % per_sector if inner else -1 - t0

    loads, stores = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for _, t0, times in grouped(range(0, L, span), kind_of_tile):
        first, stop = max(0, t0 + shift + 1 - L), min(K, min(t0 + span, L) + shift)
        for row, here, blocks in runs(rows, side, per_sector):
            base = np.where(ty < here, (row + ty) * L, -1)
            stores += times * blocks * rows_traffic(base, tx, width, t0, span, L, per_sector)
            for j0 in range(first, stop, CHUNK):
                n = min(CHUNK, stop - j0)
                window = t0 + shift + 1 - j0 - n, span + n
                loads += times * blocks * rows_traffic(base, tx, width, *window, L, per_sector)
        for (_, here), row, blocks in grouped(range(0, rows, side), kind_of_channels):
            for j0 in range(first, stop, CHUNK):
                n = min(CHUNK, stop - j0)
                i = tx + np.arange(0, n, width)[:, None]
                j = j0 + n - 1 - i
                j = K - 1 - j if reverse else j
                loads += times * blocks * warp_traffic(np.where((i < n) & (ty < here), (row + ty) % H * K + j, -1))
    return Traffic(*loads.tolist(), *stores.tolist())


def block_of(problem):
    """Threads along a row and rows of a block: tiles of one row of about the same width, then as many rows as fit."""
    strips = -(-problem.L // EACH)
    rows = problem.B * problem.H
    most = THREADS if rows * -(-strips // THREADS) >= BUSY else NARROW
    width = -(-strips // -(-strips // most))
    return width, max(1, min(ROWS, most // width, rows))


@register(kernel=kernel, traffic=traffic, view="elements", needs={"bfloat16": ("join_bfloats",)})
def launch(problem, reverse):
    rows = fits_uint32(problem)
    width, side = block_of(problem)
    grid = (-(-rows // side), -(-problem.L // (EACH * width)))
    return Launch(grid=grid, block=(width, side), scalars=(problem.left if reverse else problem.shift,))
