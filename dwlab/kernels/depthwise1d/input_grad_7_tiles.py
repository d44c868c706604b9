"""Tiles: forward's kernel for rows of any length and alignment, with the filter reversed.

dx is the forward sum of dy with v[j] = w[K-1-j] and shift' = K-1 - shift. Reversing costs nothing, as the filter is
staged by its taps' numbers. Deterministic.

Predicted: forward's bytes and instructions, so forward's time.
"""

from dwlab.kernels.depthwise1d import forward_8_tiles as forward
from dwlab.kernels.registry import Launch, register

kernel = forward.tiles_kernel(True)


def traffic(problem):
    return forward.traffic(problem, reverse=True)


@register(kernel=kernel, traffic=traffic)
def launch(problem):
    how = forward.launch(problem)
    return Launch(grid=how.grid, block=how.block, scalars=(problem.left,))
