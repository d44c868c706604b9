"""Int8: depthwise outputs become int8 again in shared memory, all channels of a tile, and there feed mma of int8.

An int8 takes so little room that a block can hold all channels of its pixels between the layers: 64 pixels of 1,024
channels are 64 KiB. So the two layers come one after the other. First threads slide down strips of the tile, 4 channels
each, x straight from global memory, their outputs requantised by the first layer's factors and zero point (`strip`, as
it stands in depthwise2d). What lies outside x's map is the first layer's zero_x. Then warps multiply the tile with the
filters, which come to shared memory a chunk of channels at a time, some already while the depthwise outputs are made;
the sums are requantised by the second layer (`whole`).

Few blocks of few warps wait most of the time: a strip for each row of x, and then the products for each chunk. So a
block may have warps that only slide and copy (`helpers`), and more chunks on their way than three.

What is between the layers is the second layer's x, zero point included: the sum of its filters' words takes care of
that, as in pointwise. And it is never in global memory: that saves writing and reading N*C*P*Q bytes.

If there are few tiles, several blocks take one, each for some of the filters; each then computes the tile's depthwise
outputs anew. `choose` weighs that.

Traffic: each strip's x and filters; w2 for each tile; y once; b and m of either layer where they are needed.
"""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import ptx, whole
from dwlab.kernels.parts.int8_strips import as_words, loads, put, strip
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost, share
from dwlab.kernels.traffic import Traffic

# What the choice of a plan goes by, in ns, from times of 18 pairs on an H200: until a block's first x has come, and for
# each of its threads; from a row of x to the next that a strip reads; from a chunk of filters to the next, beside a
# part for each copy that a thread starts, and the time of a copy's way, which all chunks in flight share; 16 x 32
# outputs. How STEP, COPY and WAY share the time of a chunk those pairs do not tell: it is guessed.
START, THREAD, ROW, STEP, COPY, WAY, OUTPUTS = 2200, 1, 160, 140, 20, 800, 160
STARTED = 4  # instructions of warps that a multiprocessor starts in a ns
REQUANTISED = 25  # outputs that one does
SHAPES = (  # height and width of a tile of pixels, filters of a product, and rows and columns of a warp's
    (8, 8, 128, 32, 32), (8, 8, 64, 16, 32), (8, 8, 64, 32, 32), (8, 8, 32, 16, 32), (4, 8, 128, 16, 32),
    (4, 8, 64, 16, 32), (4, 8, 32, 16, 32), (2, 8, 128, 16, 32), (2, 8, 64, 16, 32), (8, 16, 128, 32, 64),
    (8, 16, 64, 32, 32), (8, 16, 32, 32, 32), (8, 14, 64, 16, 32), (8, 14, 128, 16, 64), (4, 4, 128, 16, 32),
)  # fmt: skip


def config_of(problem, TH, TW, BN, WM, WN, parts=1, depth=3, helpers=0):
    """The tile of blocks of TH x TW pixels and one of `parts` parts of the filters, warps of WM x WN.

    helpers: so many times the warps that have products help. Strips are thread_n columns, and as many rows as the tile
    if that leaves work for all threads, else fewer.
    """
    one, two = problem.first, problem.second
    warps = TH * TW // WM, BN // WN
    made = TileConfig(
        TH * TW, BN, 0, *warps, pipeline_stages=depth, block_h=TH, block_w=TW, groups=-(-two.F // (BN * parts)),
        split_n=parts, helper_warps=helpers * warps[0] * warps[1],
        thread_n=2 if one.K <= 3 and one.stride == 1 else 1,
    )  # fmt: skip
    down = [replace(made, thread_m=rows) for rows in (8, 4, 2) if TH % rows == 0]
    return next((one for one in down if strips(problem, one) >= one.threads), down[-1])


def strips(problem, config):
    """Of a block."""
    down, across = config.block_h // config.thread_m, config.block_w // config.thread_n
    return problem.first.C // 4 * across * down


def stream_of(problem, config):
    """The products of a block."""
    return whole.Stream(problem.second, config, config.groups)


@functools.lru_cache(1 << 12)
def resources(problem, config):
    stream = stream_of(problem, config)
    sums = config.warp_m * config.warp_n // 32
    registers = 96 if sums <= 32 else sums + 70  # about
    return Resources(config.threads, registers, 4 * (stream.x_words + stream.w_words))


@by_shape
def kernel(problem, config):
    stream, one, two = stream_of(problem, config), problem.first, problem.second
    C, H, W, P, Q, T = one.C // 4, one.H, one.W, one.P, one.Q, config.thread_n
    TH, TW, ROWS = config.block_h, config.block_w, config.thread_m
    PITCH, THREADS, REST = stream.pitch, stream.threads, stream.rest
    ACROSS, DOWN, COLUMNS, STRIPS = -(-Q // TW), -(-P // TH), TW // T, strips(problem, config)
    PIXELS, FILTERS, W_AT, EVERY = TH * TW, stream.groups * stream.BN, stream.x_words, 0xFFFFFFFF
    slide = strip(one, T, put, C, PITCH, TW * PITCH)
    begin, go = stream.functions(*whole.tiles_of(P, Q, TH, TW, two.F), parts=config.split_n)

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


def configs(problem, images, gpu):
    """Those worth a look."""
    one, two = problem.first, problem.second
    for TH, TW, BN, WM, WN in SHAPES:
        for parts, depth, helpers in itertools.product((1, 2, 3, 4, 6, 8), (3, 5), (0, 1, 3)):
            config = config_of(problem, TH, TW, BN, WM, WN, parts, depth, helpers)
            stream = stream_of(problem, config)
            registers = WM * WN // 32 + 85 + 5 * one.K  # more than a thread takes
            if helpers and (config.threads > 512 or not gpu.blocks_per_sm(Resources(config.threads, registers))):
                continue
            if depth > 3 and stream.groups * stream.chunks <= 3:  # all of them are there at once
                continue
            if parts == 1 or BN * parts < two.F + BN:
                yield config


def cost(problem, images, config, gpu):
    """In ns: rows of depthwise outputs and chunks of filters, one after the other."""
    one, stream, each = problem.first, stream_of(problem, config), strips(problem, config)
    number = images * -(-one.P // config.block_h) * -(-one.Q // config.block_w) * config.split_n
    size = config.warp_m * config.warp_n // 32
    fit = gpu.blocks_per_sm(resources(problem, config))
    here = min(fit, share(number, gpu))  # blocks at a time
    turns = max(1, number / (gpu.sms * fit))
    turns = (turns + math.ceil(turns)) / 2  # blocks of the last turn start before all of those before are done
    rows = (config.thread_m - 1) * one.stride + one.K
    instructions = config.thread_n * (40 * one.K + config.thread_m * 14) + rows * (10 + 10 * one.K)
    depthwise = -(-each // config.threads) * max(rows * ROW, instructions)  # a warp starts one in a ns
    depthwise = max(depthwise, here * each * instructions / 32 / STARTED)
    sums = config.block_m * config.block_n
    step = STEP + COPY * config.block_n * stream.chunk / 4 / config.threads + WAY / (config.pipeline_stages - 1)
    step = max(step, here * 2 * sums * 4 * stream.chunk / whole.PER_NS)
    outputs = max(size / 16 * OUTPUTS, here * sums / REQUANTISED)
    return Cost(
        {
            "waves": turns * (START + THREAD * config.threads),
            "depthwise": turns * depthwise,
            "product": turns * config.groups * stream.chunks * step,
            "epilogue": turns * config.groups * outputs,
        }
    )


def traffic(problem, config):
    one, two, stream, each = problem.first, problem.second, stream_of(problem, config), strips(problem, config)
    TH, TW, rows, columns = config.block_h, config.block_w, config.thread_m, config.block_w // config.thread_n
    words = as_words(one)
    across, down = -(-one.Q // TW), -(-one.P // TH)
    tiles = problem.N * across * down
    i = np.arange(-(-each // stream.threads) * stream.threads)
    i = np.where(i < each, i, -1)
    tile = np.arange(tiles)[:, None]
    c, place = np.broadcast_to(np.where(i < 0, -1, i % stream.words), (tiles, len(i))), i // stream.words
    p = tile // across % down * TH + place // columns * rows
    q = tile % across * TW + place % columns * config.thread_n
    load = config.split_n * loads(
        words, config.thread_n, rows, tile // (across * down), c, p, p + rows, q
    ) + stream.read(tiles)
    pixel, n = stream.puts(config.split_n)
    tile = np.arange(tiles)[:, None, None]
    p, q = tile // across % down * TH + pixel // TW, tile % across * TW + pixel % TW
    m = np.where((p < one.P) & (q < one.Q), (tile // (across * down) * one.P + p) * one.Q + q, -1)
    store = whole.stored(two.F, m, n)
    return Traffic(*(load + two.residual * store), *store)


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NHWC" or one.C % 4 or two.F % 4 or one.K > 7 or one.stride > 7:
        return False
    return problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q) < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(problem, config):
    one, shared_bytes = problem.first, resources(problem.kernel_key, config).shared_bytes
    tiles = problem.N * -(-one.P // config.block_h) * -(-one.Q // config.block_w)
    return Launch((tiles, config.split_n), (config.threads,), shared_bytes=shared_bytes)
