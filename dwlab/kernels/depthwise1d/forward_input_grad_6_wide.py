"""Wide: 16 bytes an instruction everywhere, and rows that come to shared memory without passing through registers.

The stage before moves 4 bytes a lane with each instruction, row by row: in and out of shared memory and of global
memory, some 700 instructions for a warp's 32 rows of 48. Here a lane moves 4 neighbouring elements at a time, and rows
follow each other without a gap, so 84 instructions do (rows.py). The rows of x go to shared memory asynchronously, past
the registers: the warp starts to load its filters, starts all its copies at once, and waits once. In shared memory,
too, rows follow each other without a gap, as asynchronous copies like it; so that the 8 lanes that it serves together
find their rows in different banks, the 16-byte vectors of a row change places among themselves. 8 outputs are summed
up in registers at a time and take the place of x (row_products.py).

One warp a block, and a block for every 32 rows: no block waits for another warp, and the multiprocessors always have
blocks to start, whose loads overlap the arithmetic of others. Traffic: x and y once. Each lane loads its own filter,
16 bytes from each of 32 filters at a time: two requests share each sector (the L1 cache has it). Filters whose length
is no multiple of 4 are loaded by neighbouring lanes and transposed in shared memory.

Rows of float16 or bfloat16 are moved as words of two elements, by the same instructions, half as many. A lane makes
float32 of its row when it reads it and rounds its sums when it writes them; in between nothing differs.

The input gradient is the forward convolution of dy with v[j] = w[K-1-j] and as many zeros on the right as there are on
the left: other places of the products in the unrolled text, so the filter is reversed at no cost. Deterministic.

Predicted: the bytes are near the compulsory ones and the instructions few (1,176 of some 1,350 are multiply-adds), so
that what is left is the memory's speed: more than 90 % of what a copy reaches.
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
def kernel(L, K, SHIFT, DTYPE, REVERSE):
    begin, count = straight_line.window(L, K, SHIFT)
    shift, begin = SHIFT - begin, K - begin - count if REVERSE else begin
    N, WORDS = rows.words(L, DTYPE), ROWS * rows.words(L, DTYPE)  # of a row, of all
    W_WORDS = rows.filter_words(K, begin, count)
    load_async, read = rows.load_async(N), rows.read(L, DTYPE)
    store, swizzle = rows.store(N), rows.swizzle(N)
    load_filters = rows.load_filters(K, begin, count)
    transpose_filters = rows.transpose_filters(K, begin, count)
    convolve = row_products.row_to_tile(L, count, shift, REVERSE, DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift):
        tile = cuda.shared.array(WORDS, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        taps = cuda.local.array(count, float32)
        inputs = cuda.local.array(L, float32)
        lane = uint32(cuda.threadIdx.x & 31)  # the compiler may know that it is below 32
        first = uint32(uint32(cuda.blockIdx.x) * uint32(ROWS))  # the block's first row
        mine = min(uint32(ROWS), uint32(uint32(x.shape[0] * x.shape[1]) - first))  # its rows
        own, s = uint32(lane * uint32(N)), swizzle(lane)  # the lane's own row in shared memory
        load_filters(taps, w, first, lane)
        load_async(tile, uint32(0), x, np.int64(first) * N, lane, mine)
        ptx.commit()
        transpose_filters(taps, lane, w_tile)
        ptx.wait(0)
        cuda.syncwarp()
        read(inputs, tile, own, s)
        convolve(tile, own, s, taps, inputs)
        cuda.syncwarp()
        store(tile, uint32(0), y, np.int64(first) * N, lane, mine)

    return kernel


def traffic(problem, reverse):
    return rows.convolution_traffic(problem, *straight_line.window(problem.L, problem.K, problem.shift))


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: row_products.held(problem, MOST),
    otherwise="depthwise1d/{path}/warp_tiled", aligned=16, needs=("copy4_async",), lesson="16",
)  # fmt: skip
def launch(problem, reverse):
    return Launch(grid=(-(-fits_uint32(problem) // ROWS),), block=(ROWS,), scalars=(problem.shift,))
