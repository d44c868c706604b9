"""Blocks that share the batch, each with the sums of 32 channels' taps in registers: how many, the parts they leave.

A block goes on from its first 32 rows by so many rows that each lane meets its own channel again.
"""

from __future__ import annotations

import math

from dwlab.kernels.depthwise1d import rows
from dwlab.kernels.traffic import Traffic
from dwlab.problems import DepthwiseConv1d

WARPS, MANY = 2, 16  # of a block, with the same channels: at least, and at most
IN_FLIGHT = 32  # words of each array that lanes of a block's warps with one number wait for, together


def warps_of(words: int) -> int:
    """Warps of a block, by the words of a row: of short rows more, so that as much is in flight."""
    return min(MANY, max(WARPS, IN_FLIGHT // words))


def blocks_of(problem: DepthwiseConv1d, most: int) -> int:
    """Blocks of the grid: 32 rows of each are a whole number of times H, or there is one for each 32 rows."""
    step = problem.H // math.gcd(problem.H, rows.ROWS)
    return min(max(most // step, 1) * step, -(-problem.B * problem.H // rows.ROWS))


def parts_of(problem: DepthwiseConv1d, most: int) -> int:
    """Partial sums of each element of dw."""
    return min(problem.B, rows.ROWS * blocks_of(problem, most) // problem.H)


def traffic(problem: DepthwiseConv1d, most: int) -> Traffic:
    """dy and x once, and the parts."""
    requests, sectors = rows.traffic(problem.B * problem.H, rows.words(problem.L, problem.dtype))
    parts, K = parts_of(problem, most) * problem.H, problem.K
    return Traffic(
        load_requests=2 * requests,
        load_sectors=2 * sectors,
        store_requests=parts // rows.ROWS * K + -(-(parts % rows.ROWS) * K // 32),
        store_sectors=-(-parts * K // 8),
    )
