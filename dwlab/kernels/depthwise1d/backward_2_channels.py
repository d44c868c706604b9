"""Channels: both gradients from one pass over dy and x, one lane per channel, the sums of all taps in registers.

The fastest weight gradient reads dy and x; the input gradient reads dy again. Fused, dy comes once: three passes of
memory in place of four. A lane holds its row's 48 dy and its channel's 48 sums in registers and goes through its row of
x in shared memory 8 at a time: the 8 x meet all dy for dw, then the 8 dx of the same times are summed up from dy and
the filter, and take the place of these x in shared memory, whence the warp stores them. The filter stays in shared
memory: 48 more registers would halve the warps that a multiprocessor holds.

As in weight_grad's `channels` a warp goes through the batch 32 rows at a time, a block's warps have the same
channels and share their filters, and the blocks' sums are parts, added up by a second kernel in an order that is always
the same: deterministic, without atomics. 792 blocks are 12 warps on each multiprocessor of an H200, as many as fit.

Predicted: 2,352 multiply-adds and some 420 wavefronts of shared memory for 32 rows of 48, both under the time that
18 kB take from memory at copy speed: bound by memory, if the loads of some warps overlap the sums of others.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import channel_parts, row_products, rows, straight_line
from dwlab.kernels.parts import constants
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.kernels.traffic import Traffic
from dwlab.target import cuda

ROWS = 32  # rows of a warp, one a lane
MOST = 64  # longest row, and most taps that meet it: both are held in registers
BLOCKS = 792  # that share the batch, if it has so many rows: 6 for each multiprocessor of an H200


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    begin, count = straight_line.window(L, K, SHIFT)
    N = rows.words(L, DTYPE)  # of a row: rows of 16 bits have two elements in each
    WARPS = channel_parts.warps_of(N)
    filters = constants.of(
        load=rows.load_filters(K, begin, count), transpose=rows.transpose_filters(K, begin, count),
        words=-(-count // 4) * 4, pitch=4 * (-(-count // 4) | 1),  # odd in vectors: those of 8 filters in other banks
    )  # fmt: skip
    DY_WORDS = ROWS * max(N, count)  # of a warp; filters come, and the sums go, through dy's tile
    ALL_X, ALL_DY, ALL_W = WARPS * ROWS * N, WARPS * DY_WORDS, ROWS * filters.pitch
    row = constants.of(load=rows.load_async(N), read=rows.read(L, DTYPE), store=rows.store(N), swizzle=rows.swizzle(N))
    store_parts = rows.store_parts(K, begin, count, WARPS)
    both_gradients = row_products.row_backward(L, count, SHIFT - begin, DTYPE)

    @cuda.jit
    def kernel(dy, x, w, dx, parts, shift):
        x_tile = cuda.shared.array(ALL_X, float32, 16)
        dy_tile = cuda.shared.array(ALL_DY, float32, 16)
        w_tile = cuda.shared.array(ALL_W, float32, 16)
        sums = cuda.local.array(count, float32)
        back = cuda.local.array(L, float32)
        lane, warp = uint32(cuda.threadIdx.x & 31), uint32(cuda.threadIdx.y)
        x0, dy0 = uint32(warp * uint32(ROWS * N)), uint32(warp * uint32(DY_WORDS))  # where this warp's tiles begin
        own, s = uint32(lane * uint32(N)), row.swizzle(lane)  # the lane's own row in a tile
        own_w = uint32(lane * uint32(filters.pitch))
        total = uint32(x.shape[0] * x.shape[1])
        step = uint32(uint32(cuda.gridDim.x) * uint32(ROWS))  # a whole number of times H, if anything is left there
        mine = uint32(uint32(cuda.blockIdx.x) * uint32(ROWS))  # the block's first row of parts, and of dy and x
        first = uint32(mine + warp * step)
        if warp == 0:
            filters.load(sums, w, mine, lane)
            filters.transpose(sums, lane, dy_tile)
            for j in range(count):
                w_tile[uint32(own_w + uint32(j))] = sums[j]
            for j in range(count, filters.words):
                w_tile[uint32(own_w + uint32(j))] = float32(0)
        cuda.syncthreads()
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
            both_gradients(sums, back, x_tile, uint32(x0 + own), s, w_tile, own_w)
            cuda.syncwarp()
            row.store(x_tile, x0, dx, np.int64(first) * N, lane, n)
            cuda.syncwarp()
            first = uint32(first + uint32(WARPS) * step)
        store_parts(sums, parts, mine, dy_tile, uint32(0), uint32(DY_WORDS))

    return kernel


def traffic(problem):
    n, H, K = problem.B * problem.H, problem.H, problem.K  # n rows
    requests, sectors = rows.traffic(n, rows.words(problem.L, problem.dtype))
    alone = channel_parts.traffic(problem, BLOCKS)  # the weight gradient
    window = straight_line.window(problem.L, K, problem.shift)
    first = ROWS * np.arange(channel_parts.blocks_of(problem, BLOCKS))
    w_requests, w_sectors = rows.filters_traffic(H, K, *window, first)
    return Traffic(
        load_requests=alone.load_requests + w_requests,
        load_sectors=alone.load_sectors + w_sectors,
        store_requests=alone.store_requests + requests,
        store_sectors=alone.store_sectors + sectors,
    )


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: row_products.held(problem, MOST),
    otherwise="depthwise1d/backward/naive", aligned=16, needs=("copy4_async",), lesson="25",
)  # fmt: skip
def launch(problem):
    fits_uint32(problem)
    blocks, parts = channel_parts.blocks_of(problem, BLOCKS), channel_parts.parts_of(problem, BLOCKS)
    warps = channel_parts.warps_of(rows.words(problem.L, problem.dtype))
    return Launch((blocks,), (ROWS, warps), (problem.shift,), parts=parts)
