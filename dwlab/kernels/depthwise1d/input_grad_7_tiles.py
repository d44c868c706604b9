"""Tiles: forward's kernel for rows of any length and alignment, with the filter reversed.

dx is the forward sum of dy with v[j] = w[K-1-j] and shift' = K-1 - shift. Reversing costs nothing, as the filter is
staged by its taps' numbers. Deterministic.

Predicted: forward's bytes and instructions, so forward's time.
"""

from dwlab.kernels.depthwise1d import forward_8_tiles as forward
from dwlab.kernels.depthwise1d import row_tiles
from dwlab.kernels.registry import by_shape, register


@by_shape
def kernel(DTYPE):
    return forward.kernel_of(DTYPE, reverse=True)


def traffic(problem):
    return row_tiles.traffic(problem, problem.left, reverse=True)


@register(kernel=kernel, traffic=traffic, view="elements", needs={"bfloat16": ("join_bfloats",)})
def launch(problem):
    return row_tiles.launch(problem, problem.left)
