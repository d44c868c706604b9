"""Wide: forward's kernel at the roof, for an input gradient is a forward with its filter reversed.

dx[s] = sum_j w[j] dy[s - shift + j]: with v[j] = w[K-1-j] and shift' = K-1 - shift this is the sum that computes y,
with dy in place of x. So nothing is built anew: 32 rows a warp, 16 bytes an instruction, rows past the registers into
shared memory, the triangle unrolled (forward's `wide`); only the places of the products in the unrolled text differ,
and reversing the filter costs nothing, as it is done when the text is made. Deterministic.

Predicted: forward's bytes and forward's instructions, so forward's time: more than 90 % of what a copy reaches.
"""

from dwlab.kernels.depthwise1d import forward_6_wide as forward
from dwlab.kernels.depthwise1d import straight_line
from dwlab.kernels.registry import by_shape, register


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    begin, count = straight_line.window(L, K, SHIFT)
    shift = count - 1 - (SHIFT - begin)
    convolve = straight_line.row_to_tile(L, count, shift, reverse=True, dtype=DTYPE)
    return forward.rows_kernel(L, K, begin, count, DTYPE, convolve)


def traffic(problem):
    return forward.traffic(problem)


@register(
    kernel=kernel,
    traffic=traffic,
    supports=forward.supports,
    otherwise="depthwise1d/input_grad/warp_tiled",
    aligned=16,
    needs=("copy4_async",),
)
def launch(problem):
    return forward.launch(problem)
