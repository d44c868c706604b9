"""The blocks that cut rows along the time and put short ones side by side: `tiles` of forward and input gradient.

A block has a tile of each of up to 32 rows: `width` threads along the time, 4 neighbouring outputs each.
"""

from __future__ import annotations

import numpy as np

from dwlab.kernels.registry import Launch, fits_uint32
from dwlab.kernels.traffic import Traffic, grouped, pieces, warp_traffic
from dwlab.problems import DepthwiseConv1d

EACH = 4  # neighbouring outputs of a thread: 16 bytes of the window
THREADS = 128  # most of a block
NARROW, BUSY = 32, 1024  # most along a row, unless there are so many blocks
ROWS = 32  # most rows of a block
CHUNK = 32  # taps staged at a time


def traffic(problem: DepthwiseConv1d, shift: int, reverse: bool = False) -> Traffic:
    """x and the filters for each tile and chunk of taps, y; shift and reverse as in forward's `kernel_of`."""
    rows, H, L, K = problem.B * problem.H, problem.H, problem.L, problem.K
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
        for row, here, blocks in pieces(rows, side, per_sector):
            base = np.where(ty < here, (row + ty) * L, -1)
            t = tx + width * np.arange(EACH)[:, None]
            stores += times * blocks * warp_traffic(np.where((base >= 0) & (t0 + t < L), base + t0 + t, -1), per_sector)
            for j0 in range(first, stop, CHUNK):
                n = min(CHUNK, stop - j0)
                i = tx + np.arange(0, span + n, width)[:, None]
                s = t0 + shift + 1 - j0 - n + i
                took = (base >= 0) & (i < span + n) & (s >= 0) & (s < L)
                loads += times * blocks * warp_traffic(np.where(took, base + s, -1), per_sector)
        for (_, here), row, blocks in grouped(range(0, rows, side), kind_of_channels):
            for j0 in range(first, stop, CHUNK):
                n = min(CHUNK, stop - j0)
                i = tx + np.arange(0, n, width)[:, None]
                j = j0 + n - 1 - i
                j = K - 1 - j if reverse else j
                loads += times * blocks * warp_traffic(np.where((i < n) & (ty < here), (row + ty) % H * K + j, -1))
    return Traffic(*loads.tolist(), *stores.tolist())


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
