"""Int8: a tile's x stays in shared memory as bytes, and groups of filters pass over it, through mma and dp4a; NHWC.

A block has a tile of outputs and what it reads between the layers, with its edge. It copies x of these pixels once, all
channels, then takes BN filters at a time: the first layer's products on tensor cores (`int8_stream`), requantised and
stored as bytes in shared memory, where threads then slide down strips of the depthwise layer, 4 channels each, as in
depthwise2d (`strip`). What lies outside the map between the layers is no output of the first one but the second's
zero point: it is stored in its place.

The tile's edge is computed anew by its neighbours, and where there are few tiles several blocks take one, each for some
of the filters: they only read x again.

Traffic: x of a tile with its edge, for each part of the filters; w1 for each tile; w2, b and m for each strip; y once.
"""

from dataclasses import replace

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.fused.pwdw_int8_tiles import TILES, footprint, pitch_of, resources, stream_of, strips
from dwlab.kernels.parts import constants, ptx
from dwlab.kernels.parts.int8_strips import ONES, as_words, loads, put, strip
from dwlab.kernels.parts.load_async import copies, vector_words
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, iterations, warp_traffic
from dwlab.target import cuda


def keep_between(problem, config):
    """keep(pool, m, n, w0, w1, w2, w3): outputs of the first layer, or the zero point, behind x. m: tile and pixel."""
    two, TH, TW, PIXELS, BN = problem.second, config.block_h, config.block_w, config.block_m, config.block_n
    H, W, S, PAD, ACROSS, DOWN = two.H, two.W, two.stride, two.padding, -(-two.Q // TW), -(-two.P // TH)
    (_, XW), FIRST, PITCH = footprint(two, TH, TW), stream_of(problem, config).x_words, pitch_of(two, config)
    OUTSIDE = (two.zero_x % 256 * ONES + 2**31) % 2**32 - 2**31

    @cuda.jit(device=True, forceinline=True)
    def keep(pool, m, n, w0, w1, w2, w3):
        tile, i = uint32(m // uint32(PIXELS)), uint32(m % uint32(PIXELS))
        h = uint32(tile // uint32(ACROSS) % uint32(DOWN) * uint32(TH * S) + i // uint32(XW) - uint32(PAD))
        v = uint32(tile % uint32(ACROSS) * uint32(TW * S) + i % uint32(XW) - uint32(PAD))
        if h >= uint32(H) or v >= uint32(W):
            w0 = w1 = w2 = w3 = int32(OUTSIDE)
        v0, v1, v2, v3 = ptx.float_of_word(w0), ptx.float_of_word(w1), ptx.float_of_word(w2), ptx.float_of_word(w3)
        at = uint32(uint32(FIRST) + i * uint32(PITCH) + n % uint32(BN) // uint32(4))
        ptx.store4_shared(pool, at, v0, v1, v2, v3)

    return keep


@by_shape
def kernel(problem, config):
    stream, two, TW = stream_of(problem, config), problem.second, config.block_w
    (XH, XW), ACROSS, DOWN = footprint(two, config.block_h, TW), -(-two.Q // TW), -(-two.P // config.block_h)
    tile = constants.of(
        two, stream, config, F=two.C // 4, between=pitch_of(two, config), columns=TW // config.thread_n,
        strips=strips(config), each=vector_words(stream.words), vectors=stream.words // vector_words(stream.words),
    )  # fmt: skip
    slide = strip(replace(two, N=1, H=XH, W=XW, padding=0), tile.thread_n, put, tile.between, tile.F, tile.Q * tile.F)
    products = stream.functions(keep_between(problem, config), parts=config.split_n * config.groups)
    copy, zeros = copies(tile.each)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        ptx.grid_dependency_wait()
        pool = cuda.shared.array(0, float32, 16)  # x, what is between the layers, chunks of filters
        t, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        f0 = uint32(uint32(cuda.blockIdx.y) * (tile.groups * tile.block_n))
        p0, q0 = uint32(block // ACROSS % DOWN * tile.block_h), uint32(block % ACROSS * TW)
        n = uint32(block // (ACROSS * DOWN))
        for i in range(t, tile.block_m * tile.vectors, tile.threads):
            pixel, c = uint32(uint32(i) // tile.vectors), uint32(uint32(i) % tile.vectors * tile.each)
            h = uint32(p0 * tile.stride + pixel // XW - tile.padding)
            v = uint32(q0 * tile.stride + pixel % XW - tile.padding)
            at = uint32(pixel * tile.pitch + c)
            if pixel < XH * XW and h < tile.H and v < tile.W:
                copy(pool, at, x, uint32(((n * tile.H + h) * tile.W + v) * tile.words + c))
            else:
                zeros(pool, at)
        w_at = uint32(tile.x_words + tile.block_m * tile.between)
        products.begin(pool, w_at, w1, b1, m1, f0, t)  # in flight while words are cleared
        for i in range(t, tile.block_m * tile.rest, tile.threads):  # words beyond the last channel
            pool[uint32(uint32(i) // tile.rest * tile.pitch + tile.words + uint32(i) % tile.rest)] = float32(0)
        for group in range(tile.groups):
            f = uint32(f0 + group * tile.block_n)
            products.go(pool, uint32(0), w_at, w1, b1, m1, r, pool, f, uint32(block * tile.block_m), t)
            cuda.syncthreads()  # what is between the layers is there, and the chunks of filters are no longer needed
            if group + 1 < tile.groups:
                products.begin(pool, w_at, w1, b1, m1, uint32(f + tile.block_n), t)
            for i in range(t, tile.strips, tile.threads):
                c, place = uint32(uint32(i) % (tile.block_n // 4)), uint32(uint32(i) // (tile.block_n // 4))
                row = uint32(place // tile.columns * tile.thread_m)
                column, word = uint32(place % tile.columns * tile.thread_n), uint32(f // 4 + c)
                if word < tile.F and p0 + row < tile.P and q0 + column < tile.Q:
                    stop = int32(min(uint32(row + tile.thread_m), uint32(tile.P - p0)))
                    limit = min(uint32(TW), uint32(tile.Q - q0))
                    to = uint32(((n * tile.P + p0 + row) * tile.Q + q0 + column) * tile.F + word)
                    slide(pool, w2, b2, m2, r, y, uint32(tile.x_words), c, word, int32(row), stop, column, limit, to)

    return kernel


def traffic(problem, config):
    one, two, stream = problem.first, problem.second, stream_of(problem, config)
    (XH, XW), H, W, S, C = footprint(two, config.block_h, config.block_w), two.H, two.W, two.stride, one.C // 4
    TH, TW, T, rows = config.block_h, config.block_w, config.thread_n, config.thread_m
    across, down, F, P, Q = -(-two.Q // TW), -(-two.P // TH), two.C // 4, two.P, two.Q
    tiles = problem.N * across * down
    tile = np.arange(tiles)[:, None]
    n, p0, q0 = tile // (across * down), tile // across % down * TH, tile % across * TW

    each = vector_words(C)
    i = iterations(config.block_m * C // each, config.threads).ravel()
    pixel, c = i // (C // each), i % (C // each)
    h, v = p0 * S + pixel // XW - two.padding, q0 * S + pixel % XW - two.padding
    inside = (i >= 0) & (pixel < XH * XW) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
    load = config.split_n * warp_traffic(np.where(inside, ((n * H + h) * W + v) * (C // each) + c, -1), 8 // each)
    load += replace(stream, groups=config.split_n * config.groups).loaded(tiles)
    # Strips: w2, b2 and m2, no x from global memory
    words, store = as_words(two), np.zeros(2, np.int64)
    columns, i = TW // T, iterations(strips(config), config.threads).ravel()
    for group in range(config.split_n * config.groups):
        c, place = group * (config.block_n // 4) + i % (config.block_n // 4), i // (config.block_n // 4)
        row, column = place // columns * rows, place % columns * T
        p, q = p0 + row, q0 + column
        busy = (i >= 0) & (c < F) & (p < P) & (q < Q)
        load += loads(words, T, rows, n, np.where(busy, c, -1), p, p, q, of_x=False)
        for e in range(rows):
            for f in range(T):
                there = busy & (p + e < P) & (q + f < Q) & (column + f < TW)
                store += warp_traffic(np.where(there, ((n * P + p + e) * Q + q + f) * F + c, -1))
    return Traffic(*(load + two.residual * store), *store)


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NHWC" or one.C % 4 or one.F % 4 or two.K > 7 or two.stride > 7:
        return False
    return problem.N * max(one.C * one.H * one.W, two.C * two.H * two.W) < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), tiles=TILES, lesson="34",
)  # fmt: skip
def launch(problem, config):
    two, shared_bytes = problem.second, resources(problem.kernel_key, config).shared_bytes
    tiles = problem.N * -(-two.P // config.block_h) * -(-two.Q // config.block_w)
    return Launch((tiles, config.split_n), (config.threads,), shared_bytes=shared_bytes)
