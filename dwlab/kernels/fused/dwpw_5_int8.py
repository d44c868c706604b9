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
from dwlab.kernels.parts import constants, int8_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.int8_strips import as_words, loads, put, strip
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, iterations, small_maps
from dwlab.target import cuda


@by_shape
def kernel(problem, config):
    stream, one, TH, TW = stream_of(problem, config), problem.first, config.block_h, config.block_w
    tile = constants.of(
        one, config, stream, C=one.C // 4, across=-(-one.Q // TW), down=-(-one.P // TH), columns=TW // config.thread_n,
        strips=strips(problem, config),
    )  # fmt: skip
    slide = strip(one, config.thread_n, put, one.C // 4, stream.pitch, TW * stream.pitch)
    products = stream.functions(*int8_epilogue.tiles_of(one.P, one.Q, TH, TW, problem.second.F), parts=config.split_n)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        pool = cuda.shared.array(0, float32, 16)  # pixels between the layers, then chunks of filters
        t, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        f0 = uint32(uint32(cuda.blockIdx.y) * (tile.groups * tile.block_n))
        p0, q0 = uint32(block // tile.across % tile.down * tile.block_h), uint32(block % tile.across * tile.block_w)
        x0 = uint32(block // (tile.across * tile.down) * (tile.H * tile.W * tile.C))
        products.begin(pool, uint32(tile.x_words), w2, b2, m2, f0, t)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for i in range(t, tile.block_m * tile.rest, tile.threads):  # words beyond the last channel
            pool[uint32(uint32(i) // tile.rest * tile.pitch + tile.C + uint32(i) % tile.rest)] = float32(0)
        for i in range(t, tile.strips, tile.threads):
            c, place = uint32(uint32(i) % tile.C), uint32(uint32(i) // tile.C)
            row, column = uint32(place // tile.columns * tile.thread_m), uint32(place % tile.columns * tile.thread_n)
            p, to = int32(p0 + row), uint32((row * tile.block_w + column) * tile.pitch + c)
            stop, q, every = int32(p + tile.thread_m), uint32(q0 + column), uint32(0xFFFFFFFF)
            slide(x, w1, b1, m1, r, pool, x0, c, c, p, stop, q, every, to)
        products.go(pool, uint32(0), uint32(tile.x_words), w2, b2, m2, r, y, f0, uint32(block * tile.block_m), t)

    return kernel


def traffic(problem, config):
    one, two, stream, each = problem.first, problem.second, stream_of(problem, config), strips(problem, config)
    TH, TW, rows, columns = config.block_h, config.block_w, config.thread_m, config.block_w // config.thread_n
    words = as_words(one)
    across, down = -(-one.Q // TW), -(-one.P // TH)
    tiles = problem.N * across * down
    i = iterations(each, config.threads).ravel()
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
    return small_maps(problem)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), tiles=TILES, lesson="34",
)  # fmt: skip
def launch(problem, config):
    one, shared_bytes = problem.first, resources(problem.kernel_key, config).shared_bytes
    tiles = problem.N * -(-one.P // config.block_h) * -(-one.Q // config.block_w)
    return Launch((tiles, config.split_n), (config.threads,), shared_bytes=shared_bytes)
