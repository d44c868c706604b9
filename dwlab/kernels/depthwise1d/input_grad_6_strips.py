"""Strips: forward's kernel for long rows, with the filter reversed: 20 neighbouring dx of a row in each lane.

What `wide` does for short rows: dx is the forward sum of dy with v[j] = w[K-1-j] and the halo on the other side. Only
the places of the products in the unrolled text differ. Deterministic.

Predicted: forward's bytes and instructions, so forward's time.
"""

from dwlab.kernels.depthwise1d import forward_7_strips as forward
from dwlab.kernels.depthwise1d import strips
from dwlab.kernels.registry import by_shape, register


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    return forward.kernel_of(L, K, K - 1 - SHIFT, DTYPE, reverse=True)


def traffic(problem):
    return strips.traffic(problem, problem.left, reverse=True)


@register(
    kernel=kernel, traffic=traffic, supports=forward.supports, otherwise="depthwise1d/input_grad/warp_tiled",
    aligned=16, needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    return strips.launch(problem)
