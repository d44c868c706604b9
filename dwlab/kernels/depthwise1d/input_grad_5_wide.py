"""Wide: forward's kernel at copy speed, for an input gradient is a forward with its filter reversed.

dx[s] = sum_j w[j] dy[s - shift + j]: with v[j] = w[K-1-j] and shift' = K-1 - shift this is the sum that computes y,
with dy in place of x. So the kernel is that of forward's `wide`: 32 rows a warp, 16 bytes an instruction, rows past the
registers into shared memory, the triangle unrolled. Only `convolve` is made otherwise, with other places of the
products in the unrolled text; so reversing the filter costs nothing. Deterministic.

Predicted: forward's bytes and forward's instructions, so forward's time: more than 90 % of what a copy reaches.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import row_products, rows, straight_line
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.target import cuda

ROWS = 32  # rows of a block, one a lane
MOST = 64  # longest row, and most taps that meet it: both are held in registers


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    begin, count = straight_line.window(L, K, SHIFT)
    N, WORDS = rows.words(L, DTYPE), ROWS * rows.words(L, DTYPE)  # of a row, of all
    W_WORDS = rows.filter_words(K, begin, count)
    load_async, read = rows.load_async(N), rows.read(L, DTYPE)
    store, swizzle = rows.store(N), rows.swizzle(N)
    load_filters = rows.load_filters(K, begin, count)
    transpose_filters = rows.transpose_filters(K, begin, count)
    shift = count - 1 - (SHIFT - begin)
    convolve = row_products.row_to_tile(L, count, shift, reverse=True, dtype=DTYPE)

    @cuda.jit
    def kernel(dy, w, dx, shift):
        tile = cuda.shared.array(WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        taps = cuda.local.array(count, float32)
        back = cuda.local.array(L, float32)
        lane = uint32(cuda.threadIdx.x & 31)  # the compiler may know that it is below 32
        first = uint32(uint32(cuda.blockIdx.x) * uint32(ROWS))  # the block's first row
        mine = min(uint32(ROWS), uint32(uint32(dy.shape[0] * dy.shape[1]) - first))  # its rows
        own, s = uint32(lane * uint32(N)), swizzle(lane)  # the lane's own row in shared memory
        load_filters(taps, w, first, lane)
        load_async(tile, uint32(0), dy, np.int64(first) * N, lane, mine)
        ptx.commit()
        transpose_filters(taps, lane, w_tile)
        ptx.wait(0)
        cuda.syncwarp()
        read(back, tile, own, s)
        convolve(tile, own, s, taps, back)
        cuda.syncwarp()
        store(tile, uint32(0), dx, np.int64(first) * N, lane, mine)

    return kernel


def traffic(problem):
    return rows.convolution_traffic(problem, *straight_line.window(problem.L, problem.K, problem.shift))


def supports(problem):
    return row_products.held(problem, MOST)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/input_grad/warp_tiled", aligned=16,
    needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    return Launch(grid=(-(-fits_uint32(problem) // ROWS),), block=(ROWS,), scalars=(problem.shift,))
