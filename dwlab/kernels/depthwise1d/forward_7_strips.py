"""Strips: 20 neighbouring outputs of a row in each lane, for rows of any length.

`wide` holds a whole row in a lane, so it ends at 64 times. Here a row is cut into strips of 20 outputs, and a warp has
32 strips, of one row or of several that follow each other: 640 elements without a gap, which it copies to shared
memory past the registers, with the halo of K-1 on one side. A lane keeps 20 sums; it walks through the taps 8 at a
time, for which it needs 27 x, 8 of them new: two reads of 16 bytes and 8 weights for 160 multiply-adds. 20 is 5 times
4, and 5 is odd: lanes 5 vectors of 16 bytes apart find their x in different banks without a gap in the tile. What lies
outside a lane's row, in the row before or after, is taken as zero. The sums go back through the same shared memory,
so that neighbouring lanes store neighbouring 16 bytes.

The filters of the warp's rows stand beside the tile, 16 bytes aligned: the lanes of a row read the same 4 weights.

Rows of 16 bits are moved as words of two elements; a vector is then 8 of them, and a strip 3 vectors, 24 outputs.

Predicted: x and y once but for the halos, (640 + K - 1) / 640 of x; as long as K multiply-adds for each 8 bytes leave
the arithmetic units time, memory decides: about 90 % of a copy up to K = 31, and the units' own limit beyond.
"""

from dwlab.kernels.depthwise1d import strips
from dwlab.kernels.depthwise1d.strip_products import takes
from dwlab.kernels.registry import by_shape, register

MOST = 128  # taps


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    return strips.kernel_of(L, K, SHIFT, DTYPE)


def traffic(problem):
    return strips.traffic(problem, problem.shift)


def supports(problem):
    return takes(problem, MOST)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/forward/warp_tiled", aligned=16,
    needs=("copy4_async",), lesson="17",
)  # fmt: skip
def launch(problem):
    return strips.launch(problem)
