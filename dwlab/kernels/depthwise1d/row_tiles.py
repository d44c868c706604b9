"""The kernel that cuts rows along the time and puts short ones side by side: `tiles` of forward and input gradient.

A block has a tile of each of up to 32 rows: `width` threads along the time, 4 neighbouring outputs each. It stages x
and the filters in shared memory, 32 taps at a time; for 8 taps a thread reads 8 x and 8 weights, 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, fits_uint32
from dwlab.kernels.traffic import Traffic, pieces, warp_traffic
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

EACH = 4  # neighbouring outputs of a thread: 16 bytes of the window
THREADS = 128  # most of a block
NARROW, BUSY = 32, 1024  # most along a row, unless there are so many blocks
ROWS = 32  # most rows of a block
CHUNK = 32  # taps staged at a time
GROUP = 8  # taps without a branch between them
W_WORDS = ROWS * CHUNK
X_WORDS = THREADS * EACH + ROWS * (CHUNK + 4)


def kernel_of(reverse: bool = False) -> Any:
    """kernel(x, w, y, shift): y[t] += w[j] * x[t + shift - j]; with reverse w[K-1-j]."""

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
                    weight = w[h, uint32(taps - 1 - j)] if reverse else w[h, j]
                w_tile[own_w + i] = weight
                i = uint32(i + width)
            i = tx
            begin = uint32(t0 + shift + 1 - j0 - n)  # the tile's first time; before the row it wraps to a huge number
            while i < uint32(span + n):
                for m in range(4):  # four loads in flight at once
                    s = uint32(begin + i + uint32(m) * width)
                    value = float32(0)
                    if inside and s < length and i + uint32(m) * width < uint32(span + n):
                        value = x[b, h, s]
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
                y[b, h, uint32(t0 + t)] = x_tile[uint32(own_x + t)]

    return kernel


def traffic(problem: DepthwiseConv1d, shift: int, reverse: bool = False) -> Traffic:
    """x and the filters for each tile and chunk of taps, y; shift and reverse as in `kernel_of`."""
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
    width, side = block_of(problem)
    span = EACH * width
    ty, tx = np.divmod(np.arange(width * side), width)

    # Blocks are alike whose rows, and whose channels, begin alike in their sectors; those that pass the last channel
    # are each of their own.
    def kind_of_channels(row):
        h = row % H
        return h * K % 8 if h + side <= H else -1 - h, min(side, rows - row)

    def kind_of_tile(t0):
        inner = t0 + shift + 1 >= K and t0 + span + shift <= L
        return t0 % 8 if inner else -1 - t0

    loads, stores = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for _, t0, times in grouped(range(0, L, span), kind_of_tile):
        first, stop = max(0, t0 + shift + 1 - L), min(K, min(t0 + span, L) + shift)
        for row, here, blocks in pieces(rows, side):
            base = np.where(ty < here, (row + ty) * L, -1)
            t = tx + width * np.arange(EACH)[:, None]
            stores += times * blocks * warp_traffic(np.where((base >= 0) & (t0 + t < L), base + t0 + t, -1))
            for j0 in range(first, stop, CHUNK):
                n = min(CHUNK, stop - j0)
                i = tx + np.arange(0, span + n, width)[:, None]
                s = t0 + shift + 1 - j0 - n + i
                took = (base >= 0) & (i < span + n) & (s >= 0) & (s < L)
                loads += times * blocks * warp_traffic(np.where(took, base + s, -1))
        for (_, here), row, blocks in grouped(range(0, rows, side), kind_of_channels):
            for j0 in range(first, stop, CHUNK):
                n = min(CHUNK, stop - j0)
                i = tx + np.arange(0, n, width)[:, None]
                j = j0 + n - 1 - i
                j = K - 1 - j if reverse else j
                loads += times * blocks * warp_traffic(np.where((i < n) & (ty < here), (row + ty) % H * K + j, -1))
    return Traffic(*loads.tolist(), *stores.tolist())


def grouped(things: Iterable[int], kind: Callable[[int], Any]) -> list[tuple[Any, int, int]]:
    """(kind, the last of that kind, how many there are) of each kind of things."""
    found: dict[Any, tuple[int, int]] = {}
    for one in things:
        found[kind(one)] = one, found.get(kind(one), (0, 0))[1] + 1
    return [(kind, one, count) for kind, (one, count) in found.items()]


def block_of(problem: DepthwiseConv1d) -> tuple[int, int]:
    """Threads along a row and rows of a block: tiles of one row of about the same width, then as many rows as fit."""
    strips = -(-problem.L // EACH)
    rows = problem.B * problem.H
    most = THREADS if rows * -(-strips // THREADS) >= BUSY else NARROW
    width = -(-strips // -(-strips // most))
    return width, max(1, min(ROWS, most // width, rows))


def launch(problem: DepthwiseConv1d, shift: int) -> Launch:
    """A block for each tile."""
    rows = fits_uint32(problem)
    width, side = block_of(problem)
    grid = (-(-rows // side), -(-problem.L // (EACH * width)))
    return Launch(grid=grid, block=(width, side), scalars=(shift,))
