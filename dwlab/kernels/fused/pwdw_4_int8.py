"""Int8: a tile's x stays in shared memory as bytes, and groups of filters pass over it, through mma and dp4a; NHWC.

A block has a tile of outputs and what it reads between the layers, with its edge. It copies x of these pixels once, all
channels, then takes BN filters at a time: the first layer's products on tensor cores (`whole.Stream`), requantised and
stored as bytes in shared memory, where threads then slide down strips of the depthwise layer, 4 channels each, as in
depthwise2d (`strip`). What lies outside the map between the layers is no output of the first one but the second's
zero point: it is stored in its place.

The tile's edge is computed anew by its neighbours, and where there are few tiles several blocks take one, each for some
of the filters: they only read x again.

Traffic: x of a tile with its edge, for each part of the filters; w1 for each tile; w2, b and m for each strip; y once.
"""

import functools
from dataclasses import replace

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, ptx, whole
from dwlab.kernels.parts.int8_strips import ONES, as_words, loads, put, strip
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.kernels.traffic import Traffic, warp_traffic

REGISTERS = 96  # of a thread, about
START = 2000  # ns: until a block's first x has come
STARTED = 4
SHAPES = ((8, 8), (4, 8), (6, 14), (2, 14), (7, 7), (4, 4), (14, 14), (2, 8), (4, 14))  # of a tile of outputs
PRODUCTS = ((64, 32, 32), (32, 16, 32), (64, 16, 32), (128, 32, 32), (128, 16, 64))  # BN, WM, WN


def config_of(problem, TH, TW, BN, WM, WN, parts=1):
    """The tile of blocks of TH x TW outputs of one of about `parts` parts of the filters, warps of WM x WN.

    block_m: the pixels between the layers that these come from. Strips are thread_n columns, and as many rows as the
    tile if that leaves work for all threads, else fewer.
    """
    two, every = problem.second, -(-problem.first.F // BN)
    groups = -(-every // parts)
    XH, XW = footprint(two, TH, TW)
    rows = -(-XH * XW // WM)
    made = TileConfig(
        rows * WM, BN, 0, rows, BN // WN, pipeline_stages=3, block_h=TH, block_w=TW, groups=groups,
        split_n=-(-every // groups), thread_n=2 if two.K <= 3 and two.stride == 1 and TW % 2 == 0 else 1,
    )  # fmt: skip
    down = [replace(made, thread_m=height) for height in range(TH, 0, -1) if TH % height == 0]
    return next((one for one in down if strips(one) >= one.threads), down[-1])


def footprint(layer, TH, TW):
    """(height, width) of the pixels that a tile of outputs reads."""
    return (TH - 1) * layer.stride + layer.K, (TW - 1) * layer.stride + layer.K


def strips(config):
    """Of a block and group of filters."""
    return config.block_n // 4 * (config.block_w // config.thread_n) * (config.block_h // config.thread_m)


def pitch_of(layer, config):
    """Words between pixels of what is between the layers: lanes of neighbouring strips read other banks."""
    words = config.block_n // 4
    apart = np.arange(max(1, 32 // words))[:, None] * config.thread_n * layer.stride  # pixels, of a warp's strips
    for pitch in range(words, words + 32, 4):
        if len(np.unique((apart * pitch + np.arange(words)) % 32)) == 32:
            return pitch
    return words


def stream_of(problem, config):
    """The products of a block and group of filters."""
    return whole.Stream(problem.first, config, 1)


@functools.lru_cache(1 << 12)
def resources(problem, config):
    stream = stream_of(problem, config)
    words = stream.x_words + stream.rows * pitch_of(problem.second, config) + stream.w_words
    return Resources(config.threads, REGISTERS, 4 * words)


@by_shape
def kernel(problem, config):
    stream, two = stream_of(problem, config), problem.second
    H, W, P, Q, S, PAD, C, F = two.H, two.W, two.P, two.Q, two.stride, two.padding, problem.first.C // 4, two.C // 4
    TH, TW, T, ROWS, GROUPS = config.block_h, config.block_w, config.thread_n, config.thread_m, config.groups
    (XH, XW), ACROSS, DOWN, COLUMNS, STRIPS = footprint(two, TH, TW), -(-Q // TW), -(-P // TH), TW // T, strips(config)
    EACH = blocks.piece(C)
    PIECES, (copy, zeros) = C // EACH, blocks.copies(EACH)
    PITCH, MID = stream.pitch, pitch_of(two, config)
    PIXELS, THREADS, BN, REST = stream.rows, stream.threads, stream.BN, stream.rest
    BETWEEN, W_AT = stream.x_words, stream.x_words + stream.rows * MID
    OUTSIDE = (two.zero_x % 256 * ONES + 2**31) % 2**32 - 2**31
    tile_layer = replace(two, N=1, H=XH, W=XW, padding=0)
    slide = strip(tile_layer, T, put, MID, F, Q * F)

    @cuda.jit(device=True, forceinline=True)
    def keep(pool, m, n, w0, w1, w2, w3):
        """Outputs of the first layer, or the zero point, to where the second finds its x. m: tile and pixel."""
        tile, i = uint32(m // uint32(PIXELS)), uint32(m % uint32(PIXELS))
        h = uint32(tile // uint32(ACROSS) % uint32(DOWN) * uint32(TH * S) + i // uint32(XW) - uint32(PAD))
        v = uint32(tile % uint32(ACROSS) * uint32(TW * S) + i % uint32(XW) - uint32(PAD))
        if h >= uint32(H) or v >= uint32(W):
            w0 = w1 = w2 = w3 = int32(OUTSIDE)
        v0, v1, v2, v3 = ptx.float_of_word(w0), ptx.float_of_word(w1), ptx.float_of_word(w2), ptx.float_of_word(w3)
        at = uint32(uint32(BETWEEN) + i * uint32(MID) + n % uint32(BN) // uint32(4))
        ptx.store4_shared(pool, at, v0, v1, v2, v3)

    begin, go = stream.functions(keep, parts=config.split_n * GROUPS)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        ptx.grid_dependency_wait()
        pool = cuda.shared.array(0, float32, 16)  # x, what is between the layers, chunks of filters
        t, tile = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        f0 = uint32(uint32(cuda.blockIdx.y) * (GROUPS * BN))
        p0, q0, n = uint32(tile // ACROSS % DOWN * TH), uint32(tile % ACROSS * TW), uint32(tile // (ACROSS * DOWN))
        for i in range(t, PIXELS * PIECES, THREADS):
            pixel, c = uint32(uint32(i) // PIECES), uint32(uint32(i) % PIECES * EACH)
            h, v = uint32(p0 * S + pixel // XW - PAD), uint32(q0 * S + pixel % XW - PAD)
            at = uint32(pixel * PITCH + c)
            if pixel < XH * XW and h < H and v < W:
                copy(pool, at, x, uint32(((n * H + h) * W + v) * C + c))
            else:
                zeros(pool, at)
        begin(pool, uint32(W_AT), w1, b1, m1, f0, t)  # on their way while words are cleared
        for i in range(t, PIXELS * REST, THREADS):  # words beyond the last channel
            pool[uint32(uint32(i) // REST * PITCH + C + uint32(i) % REST)] = float32(0)
        for group in range(GROUPS):
            f = uint32(f0 + group * BN)
            go(pool, uint32(0), uint32(W_AT), w1, b1, m1, r, pool, f, uint32(tile * PIXELS), t)
            cuda.syncthreads()  # what is between the layers is there, and the chunks of filters are no longer needed
            if group + 1 < GROUPS:
                begin(pool, uint32(W_AT), w1, b1, m1, uint32(f + BN), t)
            for i in range(t, STRIPS, THREADS):
                c, place = uint32(uint32(i) % (BN // 4)), uint32(uint32(i) // (BN // 4))
                row, column, channels = uint32(place // COLUMNS * ROWS), uint32(place % COLUMNS * T), uint32(f // 4 + c)
                if channels < F and p0 + row < P and q0 + column < Q:
                    stop, limit = int32(min(uint32(row + ROWS), uint32(P - p0))), min(uint32(TW), uint32(Q - q0))
                    to = uint32(((n * P + p0 + row) * Q + q0 + column) * F + channels)
                    slide(pool, w2, b2, m2, r, y, uint32(BETWEEN), c, channels, int32(row), stop, column, limit, to)

    return kernel


def configs(problem, images, gpu):
    """Those worth a look."""
    for TH, TW in SHAPES:
        for BN, WM, WN in PRODUCTS:
            every = -(-problem.first.F // BN)
            for groups in sorted({-(-every // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16)}):
                config = config_of(problem, TH, TW, BN, WM, WN, -(-every // groups))
                if 64 <= config.threads <= 512:
                    yield config


def cost(problem, images, config, gpu):
    """In ns: products and depthwise outputs, or the chunks of filters on their way."""
    one, two, stream, each = problem.first, problem.second, stream_of(problem, config), strips(config)
    number = images * -(-two.P // config.block_h) * -(-two.Q // config.block_w) * config.split_n
    here, turns = share(number, gpu), waves(number, gpu.blocks_per_sm(resources(problem, config)), gpu)
    rows, groups = config.thread_m, config.groups
    instructions = config.thread_n * (40 * two.K + rows * 14) + (rows * two.stride + two.K) * (10 + 10 * two.K)
    depthwise = groups * each * instructions / 32 / STARTED
    alone = groups * -(-each // config.threads) * instructions * config.threads / 32 / STARTED
    outputs = stream.rows * stream.BN * groups
    product = 2 * outputs * one.C / whole.PER_NS + outputs / whole.WRITTEN
    steps = groups * stream.chunks * whole.LATER
    latency = turns * (START + alone + max(steps, product))
    return Cost({}, {"throughput": here * (depthwise + product), "latency": latency})


def traffic(problem, config):
    one, two, stream = problem.first, problem.second, stream_of(problem, config)
    (XH, XW), H, W, S, C = footprint(two, config.block_h, config.block_w), two.H, two.W, two.stride, one.C // 4
    TH, TW, T, rows = config.block_h, config.block_w, config.thread_n, config.thread_m
    across, down, F, P, Q = -(-two.Q // TW), -(-two.P // TH), two.C // 4, two.P, two.Q
    tiles = problem.N * across * down
    tile = np.arange(tiles)[:, None]
    n, p0, q0 = tile // (across * down), tile // across % down * TH, tile % across * TW

    def turns(count):
        i = np.arange(-(-count // stream.threads) * stream.threads)
        return np.where(i < count, i, -1)

    each = blocks.piece(C)
    i = turns(stream.rows * C // each)
    pixel, c = i // (C // each), i % (C // each)
    h, v = p0 * S + pixel // XW - two.padding, q0 * S + pixel % XW - two.padding
    inside = (i >= 0) & (pixel < XH * XW) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
    load = config.split_n * warp_traffic(np.where(inside, ((n * H + h) * W + v) * (C // each) + c, -1), 8 // each)
    load += replace(stream, groups=config.split_n * config.groups).read(tiles)
    # Strips: w2, b2 and m2, no x from global memory
    words, store = as_words(two), np.zeros(2, np.int64)
    columns, i = TW // T, turns(strips(config))
    for group in range(config.split_n * config.groups):
        c, place = group * (stream.BN // 4) + i % (stream.BN // 4), i // (stream.BN // 4)
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
    needs=("copy4_async", "mma_s8"), tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(problem, config):
    two, shared_bytes = problem.second, resources(problem.kernel_key, config).shared_bytes
    tiles = problem.N * -(-two.P // config.block_h) * -(-two.Q // config.block_w)
    return Launch((tiles, config.split_n), (config.threads,), shared_bytes=shared_bytes)
