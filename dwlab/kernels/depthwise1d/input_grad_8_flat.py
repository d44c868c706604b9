"""Flat: forward's kernel for rows of any length as one line, with the filter reversed.

dx is the forward sum of dy with v[j] = w[K-1-j] and shift' = K-1 - shift: the neighbours are loaded on the other side,
and where a row ends in a piece the lane goes through it backwards. Deterministic.

Predicted: forward's bytes and instructions, so forward's time.
"""

from dwlab.kernels.depthwise1d import flat_rows
from dwlab.kernels.depthwise1d import forward_9_flat as forward
from dwlab.kernels.registry import by_shape, register


@by_shape
def kernel(K, SHIFT, DTYPE):
    return forward.kernel_of(K, K - 1 - SHIFT, DTYPE, reverse=True)


def traffic(problem):
    return flat_rows.traffic(problem, problem.left)


def supports(problem):
    return flat_rows.takes(problem)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/input_grad/tiles", aligned=16,
    view="words", needs={"bfloat16": ("join_bfloats",)},
)  # fmt: skip
def launch(problem):
    return flat_rows.launch(problem)
