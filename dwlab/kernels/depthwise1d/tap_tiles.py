"""The tiles that weight_grad's `tiles` deals out: their sizes, the blocks that share a channel, and the traffic."""

from __future__ import annotations

import numpy as np

from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems import DepthwiseConv1d

WARPS = 8  # most of a block
GROUP = 8  # taps of a warp
SPAN = 512  # most times of a tile's row
WORDS = 1024  # of a tile of several rows
X_WORDS = WORDS + GROUP * WARPS
SUMS = WARPS * GROUP
FEW = 4  # tiles that a block takes rather than a second launch
BLOCKS = 528  # that share the tiles, if there are more


def shares(problem: DepthwiseConv1d) -> tuple[int, int, int, int]:
    """(times of a tile's row, rows of a tile, warps of a block, blocks that share a channel)."""
    B, L, K = problem.B, problem.L, problem.K
    quads = -(-L // 4)
    span = 4 * -(-quads // -(-quads // (SPAN // 4)))
    groups = min(WARPS, -(-K // GROUP))
    side = max(1, min(B, WORDS // (span + GROUP * groups)))
    items = -(-B // side) * -(-L // span)
    blocks = problem.H * -(-K // SUMS)
    return span, side, WARPS // groups * groups, 1 if items <= FEW else min(items, -(-BLOCKS // blocks))


def traffic(problem: DepthwiseConv1d) -> Traffic:
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
        alike = {}  # tiles whose rows begin alike in their sectors and are cut off alike
        for b0 in range(0, B, side):
            for t0 in range(0, L, span):
                begin = t0 + shift - j0 - reach
                inner = begin >= 0 and begin + pitch <= L and t0 + span <= L
                key = (b0 * H * L % per_sector, t0 % per_sector if inner else -1 - t0, min(side, B - b0))
                alike[key] = b0, t0, alike.get(key, (0, 0, 0))[2] + 1
        for (_, _, rows), (b0, t0, times) in alike.items():
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
