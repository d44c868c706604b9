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

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import strip_products, strips
from dwlab.kernels.depthwise1d.strip_products import OUTPUTS, halo, takes
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import store_shared, words
from dwlab.kernels.registry import by_shape, register
from dwlab.target import cuda

MOST = 128  # taps


def kernel_of(L, K, SHIFT, DTYPE, reverse=False):
    """kernel(x, w, y, shift): y[t] += w[j] * x[t + SHIFT - j]; with reverse w[K-1-j]. Rows are words."""
    EACH, STRIPS = OUTPUTS[DTYPE], strips.per_row(L, DTYPE)
    N, STEP = words(L, DTYPE), words(EACH, DTYPE)  # of a row, of a strip
    LEFT, RIGHT = halo(K, SHIFT, DTYPE)
    WORDS = 32 * STEP + LEFT + RIGHT
    W_ROWS, W_PITCH = strips.filters_of(STRIPS, K)
    W_WORDS = W_ROWS * W_PITCH
    LOADS, W_LOADS, STORES = -(-WORDS // 128), -(-W_WORDS // 32), -(-32 * STEP // 128)  # of a lane
    convolve, put = strip_products.forward(EACH, L, K, SHIFT, LEFT, DTYPE), store_shared(DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift):
        tile = cuda.shared.array(WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        sums = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        H = uint32(x.shape[1])
        rows = uint32(uint32(x.shape[0]) * H)
        strip = uint32(uint32(cuda.blockIdx.x) * uint32(32))  # the block's first one, of all rows
        row0 = uint32(strip // uint32(STRIPS))
        start = uint32(uint32(strip - row0 * uint32(STRIPS)) * uint32(STEP))  # and where it begins in its row
        begin = np.int64(row0) * N + np.int64(start)
        beyond = uint32(uint32(strip + uint32(32)) // uint32(STRIPS))
        stop = uint32(uint32(strip + uint32(32) - beyond * uint32(STRIPS)) * uint32(STEP))
        end = np.int64(beyond) * N + np.int64(stop)
        total = np.int64(rows) * N
        end = min(end, total)
        source = begin - LEFT + np.int64(lane * uint32(4))
        for p in range(LOADS):
            i = uint32(lane * uint32(4) + uint32(128 * p))
            if i < WORDS:
                if source + 128 * p >= 0 and source + 128 * p < min(end + RIGHT, total):
                    ptx.copy4_async(tile, i, x, source + 128 * p)
                else:
                    ptx.store4_shared(tile, i, float32(0), float32(0), float32(0), float32(0))
        ptx.commit()
        h0 = uint32(row0 % H)
        for p in range(W_LOADS):
            i = uint32(lane + uint32(32 * p))
            r = uint32(i // uint32(W_PITCH))
            j = uint32(i - r * uint32(W_PITCH))
            h = uint32(h0 + r)
            if h >= H:  # rarely, and a division by H takes its time
                h = uint32(h % H)
            if i < W_WORDS:
                f = float32(0)
                if j < K and row0 + r < rows:
                    f = w[h, uint32(K - 1) - j] if reverse else w[h, j]
                w_tile[i] = f
        own_row = uint32(uint32(strip + lane) // uint32(STRIPS))
        r = uint32(own_row - row0)
        t0 = uint32(uint32(strip + lane - own_row * uint32(STRIPS)) * uint32(STEP))
        own = uint32(r * uint32(N) + t0 - start)  # the lane's place in the tile of outputs; its x lie LEFT further
        kept = own_row < rows
        if not kept:  # a lane without a strip computes the block's first one again
            own = r = uint32(0)
        for i in range(EACH):
            sums[i] = float32(0)
        ptx.wait(0)
        cuda.syncwarp()
        convolve(sums, tile, own, w_tile, uint32(r * uint32(W_PITCH)), t0)
        cuda.syncwarp()
        for m in range(STEP // 4):
            if kept and t0 + 4 * m < N:
                put(tile, uint32(own + uint32(4 * m)), sums, m)
        cuda.syncwarp()
        target = begin + np.int64(lane * uint32(4))
        for p in range(STORES):
            if target + 128 * p < end:
                a, b, c, d = ptx.load4_shared(tile, uint32(lane * uint32(4) + uint32(128 * p)))
                ptx.store4(y, target + 128 * p, a, b, c, d)

    return kernel


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    return kernel_of(L, K, SHIFT, DTYPE)


def traffic(problem):
    return strips.traffic(problem, problem.shift)


def supports(problem):
    return takes(problem, MOST)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/forward/warp_tiled", aligned=16,
    needs=("copy4_async",), lesson="16",
)  # fmt: skip
def launch(problem):
    return strips.launch(problem)
