"""Int8: depthwise outputs become int8 again in shared memory, all channels of a tile, and there feed mma of int8.

An int8 takes so little room that a block can hold all channels of its pixels between the layers: 64 pixels of 1,024
channels are 64 KiB. So the two layers come one after the other. First threads slide down strips of the tile, 4 channels
each, x straight from global memory, their outputs requantised by the first layer's factors and zero point (`strip`, as
it stands in depthwise2d). What lies outside x's map is the first layer's zero_x. Then warps multiply the tile with the
filters, which come to shared memory a chunk of channels at a time, some already while the depthwise outputs are made;
the sums are requantised by the second layer (`int8_epilogue`).

Few blocks of few warps wait most of the time: a strip for each row of x, and then the products for each chunk. So a
block may have warps that only slide and copy (`helpers`), and more chunks in flight than three.

What is between the layers is the second layer's x, zero point included: the sum of its filters' words takes care of
that, as in pointwise. And it is never in global memory: that saves writing and reading N*C*P*Q bytes.

If there are few tiles, several blocks take one, each for some of the filters; each then computes the tile's depthwise
outputs anew. `choose` weighs that.

Traffic: each strip's x and filters; w2 for each tile; y once; b and m of either layer where they are needed.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.fused.dwpw_int8_tiles import TILES, resources, stream_of, strips
from dwlab.kernels.parts import int8_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.int8_strips import as_words, loads, put, strip
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic
from dwlab.target import cuda


@by_shape
def kernel(problem, config):
    stream, one, two = stream_of(problem, config), problem.first, problem.second
    C, H, W, P, Q, T = one.C // 4, one.H, one.W, one.P, one.Q, config.thread_n
    TH, TW, ROWS = config.block_h, config.block_w, config.thread_m
    PITCH, THREADS, REST = stream.pitch, config.threads, stream.rest
    ACROSS, DOWN, COLUMNS, STRIPS = -(-Q // TW), -(-P // TH), TW // T, strips(problem, config)
    PIXELS, FILTERS, W_AT, EVERY = TH * TW, stream.groups * config.block_n, stream.x_words, 0xFFFFFFFF
    slide = strip(one, T, put, C, PITCH, TW * PITCH)
    begin, go = stream.functions(*int8_epilogue.tiles_of(P, Q, TH, TW, two.F), parts=config.split_n)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        pool = cuda.shared.array(0, float32, 16)  # pixels between the layers, then chunks of filters
        t, tile, f0 = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x), uint32(uint32(cuda.blockIdx.y) * FILTERS)
        p0, q0 = uint32(tile // ACROSS % DOWN * TH), uint32(tile % ACROSS * TW)
        x0 = uint32(tile // (ACROSS * DOWN) * (H * W * C))
        begin(pool, uint32(W_AT), w2, b2, m2, f0, t)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for i in range(t, PIXELS * REST, THREADS):  # words beyond the last channel
            pool[uint32(uint32(i) // REST * PITCH + C + uint32(i) % REST)] = float32(0)
        for i in range(t, STRIPS, THREADS):
            c, place = uint32(uint32(i) % C), uint32(uint32(i) // C)
            row, column = uint32(place // COLUMNS * ROWS), uint32(place % COLUMNS * T)
            p, to = int32(p0 + row), uint32((row * TW + column) * PITCH + c)
            slide(x, w1, b1, m1, r, pool, x0, c, c, p, int32(p + ROWS), uint32(q0 + column), uint32(EVERY), to)
        go(pool, uint32(0), uint32(W_AT), w2, b2, m2, r, y, f0, uint32(tile * PIXELS), t)

    return kernel


def traffic(problem, config):
    one, two, stream, each = problem.first, problem.second, stream_of(problem, config), strips(problem, config)
    TH, TW, rows, columns = config.block_h, config.block_w, config.thread_m, config.block_w // config.thread_n
    words = as_words(one)
    across, down = -(-one.Q // TW), -(-one.P // TH)
    tiles = problem.N * across * down
    i = np.arange(-(-each // config.threads) * config.threads)
    i = np.where(i < each, i, -1)
    tile = np.arange(tiles)[:, None]
    c, place = np.broadcast_to(np.where(i < 0, -1, i % stream.words), (tiles, len(i))), i // stream.words
    p = tile // across % down * TH + place // columns * rows
    q = tile % across * TW + place % columns * config.thread_n
    load = config.split_n * loads(
        words, config.thread_n, rows, tile // (across * down), c, p, p + rows, q
    ) + stream.loaded(tiles)
    pixel, n = stream.stored(config.split_n)
    tile = np.arange(tiles)[:, None, None]
    p, q = tile // across % down * TH + pixel // TW, tile % across * TW + pixel % TW
    m = np.where((p < one.P) & (q < one.Q), (tile // (across * down) * one.P + p) * one.Q + q, -1)
    store = int8_epilogue.store_traffic(two.F, m, n)
    return Traffic(*(load + two.residual * store), *store)


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NHWC" or one.C % 4 or two.F % 4 or one.K > 7 or one.stride > 7:
        return False
    return problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q) < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), tiles=TILES, lesson="34",
)  # fmt: skip
def launch(problem, config):
    one, shared_bytes = problem.first, resources(problem.kernel_key, config).shared_bytes
    tiles = problem.N * -(-one.P // config.block_h) * -(-one.Q // config.block_w)
    return Launch((tiles, config.split_n), (config.threads,), shared_bytes=shared_bytes)
