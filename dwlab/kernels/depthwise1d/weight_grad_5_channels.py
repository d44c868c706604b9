"""Channels: one lane per channel; the sums of all its taps stay in registers through the whole batch.

The stage before walks row by row, staging each row for 32 lanes, and reads shared memory twice for 96 products. Here a
lane has a row of its own: its 48 dy and its 48 sums in registers, its x 8 at a time, and 1,176 multiply-adds between
them with no index and no loop (straight_line.py). A warp's 32 rows follow each other in memory, so they come 16 bytes
an instruction (rows.py). Then the warp goes on to 32 rows of other batch entries, as far ahead as needed for each lane
to meet its own channel again: the sums never leave the registers.

A block's two warps have the same channels, and their sums meet in shared memory; what a block has in the end is a part:
32 * blocks / H parts for each element of dw, written side by side and added up by a second kernel in an order that is
always the same. Registers, block, parts: three levels, no atomics, the same bits in every run. Few blocks keep the
parts few; 528 are enough for 8 warps on each multiprocessor of an H200, 2 for each of its 4 schedulers. Warps that
they cannot share evenly cost time: docs/results/depthwise1d.md shows how much. Rows of few elements leave memory idle
in so few warps, so a block has up to 16: (20813, 349, 2, 34) took 177 µs with two and takes 37.

Predicted: dy and x once, and the parts, 0.4 % of that at the paper's shape; the multiply-adds are forward's. So it
waits for memory, and only reads: at least as fast as a copy of as many bytes.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import channel_parts, row_products, rows, straight_line
from dwlab.kernels.parts import constants
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.target import cuda

ROWS = 32  # rows of a warp, one a lane
MOST = 64  # longest row, and most taps that meet it: both are held in registers
BLOCKS = 528  # that share the batch, if it has so many rows: 4 for each multiprocessor of an H200


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    begin, count = straight_line.window(L, K, SHIFT)
    N = rows.words(L, DTYPE)  # of a row: rows of 16 bits have two elements in each
    WARPS = channel_parts.warps_of(N)
    X_WORDS = ROWS * N  # of a warp
    DY_WORDS = ROWS * max(N, count)  # the sums pass through dy's tile
    ALL_X, ALL_DY = WARPS * X_WORDS, WARPS * DY_WORDS
    row = constants.of(load=rows.load_async(N), read=rows.read(L, DTYPE), swizzle=rows.swizzle(N))
    accumulate = row_products.row_taps(L, count, SHIFT - begin, DTYPE)
    store_parts = rows.store_parts(K, begin, count, WARPS)

    @cuda.jit
    def kernel(dy, x, parts, shift):
        x_tile = cuda.shared.array(ALL_X, float32, 16)
        dy_tile = cuda.shared.array(ALL_DY, float32, 16)
        sums = cuda.local.array(count, float32)
        back = cuda.local.array(L, float32)
        lane, warp = uint32(cuda.threadIdx.x & 31), uint32(cuda.threadIdx.y)
        x0, dy0 = uint32(warp * uint32(X_WORDS)), uint32(warp * uint32(DY_WORDS))  # where this warp's tiles begin
        own, s = uint32(lane * uint32(N)), row.swizzle(lane)  # the lane's own row in a tile
        total = uint32(x.shape[0] * x.shape[1])
        step = uint32(uint32(cuda.gridDim.x) * uint32(ROWS))  # a whole number of times H, if anything is left there
        mine = uint32(uint32(cuda.blockIdx.x) * uint32(ROWS))  # the block's first row of parts, and of dy and x
        first = uint32(mine + warp * step)
        for j in range(count):
            sums[j] = float32(0)
        while first < total:
            n = min(uint32(ROWS), uint32(total - first))
            row.load(dy_tile, dy0, dy, np.int64(first) * N, lane, n)
            row.load(x_tile, x0, x, np.int64(first) * N, lane, n)
            ptx.commit()
            ptx.wait(0)
            cuda.syncwarp()
            row.read(back, dy_tile, uint32(dy0 + own), s)
            accumulate(sums, back, x_tile, uint32(x0 + own), s)
            cuda.syncwarp()
            first = uint32(first + uint32(WARPS) * step)
        store_parts(sums, parts, mine, dy_tile, uint32(0), uint32(DY_WORDS))

    return kernel


def traffic(problem):
    return channel_parts.traffic(problem, BLOCKS)


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: row_products.held(problem, MOST),
    otherwise="depthwise1d/weight_grad/warp_tiled", aligned=16, needs=("copy4_async",), lesson="25",
)  # fmt: skip
def launch(problem):
    fits_uint32(problem)
    blocks, parts = channel_parts.blocks_of(problem, BLOCKS), channel_parts.parts_of(problem, BLOCKS)
    warps = channel_parts.warps_of(rows.words(problem.L, problem.dtype))
    return Launch((blocks,), (ROWS, warps), (problem.shift,), parts=parts)
