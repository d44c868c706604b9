"""Int8 on tensor cores: one instruction of a warp does 4,096 multiply-adds of int8, and its sums are exact.

The blocks and the way of their tiles to shared memory are those of `tensor`, and so is a warp's product: a word holds
four int8 in place of two float16, along C, and mma.sync takes the same lanes' words, 16 x 8 sums of 32 products now.
Sums are int32, in which nothing is ever rounded: whatever the order, the result is the same to the bit.

    sum (x - zero_x) w = sum x w - zero_x sum w

so the products are those of the bytes as they are. sum w, one number a filter, is a by-product: each lane adds up the
words of w that it holds for mma anyway, two dp4a for each 8 columns and 32 channels, where mma is M / 16. In the end
int32 becomes int8 again: bias, factor of the filter, rounding, zero_y, limits (`epilogue.requantise`); then four lanes
trade bytes, so that each stores 16 of them (`whole`).

Rows of 24 or 728 channels are no whole pieces of 16 bytes: a copy takes 8 then, or 4, and a store 8 bytes of a row.
What a chunk has beyond the last channel is 0, in x and in w, and so adds nothing to any of the sums.

Predicted: a quarter of float32's bytes, and mma of twice float16's rate. Most layers of the networks then wait for
memory, or for blocks to start.

Traffic: x once for each BN filters, w, b and m once for each BM pixels, y once.
"""

import functools

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, ptx, tiles, whole
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices

DEPTH = 3  # chunks in shared memory at a time: one to compute with, two on their way
SHAPES = (  # of a block's tile, rows and columns, and of its warps' tiles
    (128, 128, 64, 64), (128, 64, 32, 64), (64, 128, 32, 64), (64, 64, 32, 32), (128, 32, 32, 32), (32, 128, 32, 32),
    (32, 64, 16, 32), (32, 32, 16, 32), (16, 128, 16, 32), (16, 64, 16, 32),
)  # fmt: skip
PER_NS, READ = 6000, 40  # operations of a multiprocessor in a ns, and bytes that each reads where all do
WRITTEN, EACH = 30, 1.7  # outputs that it requantises in a ns, at most, and for each warp that is there, of 8 or more
START, LATER = 1200, 250  # ns: until the first chunk has come, and from one to the next where nothing takes longer


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    (load_x, load_w), tile, BM, BN = blocks.loads(layout), layout.tile, config.block_m, config.block_n
    SIZE, zero, add = tile.size + tile.more, tile.zero, tile.add
    finish = whole.finish(layer, tile, BN, *whole.rows_of(layout.one.M, layer.F))
    load_vectors, VECTORS = whole.vectors(layer, BN, config.threads), layout.shared_bytes // 4
    WM, WN, ACROSS, WARPS = tile.M, tile.N, layout.across, BN // tile.N
    CHUNKS, A_WORDS, A_WARP, B_WARP = layout.chunks, layout.a_words, layout.a_warp, layout.b_warp
    STEP = layout.a_words + layout.b_words

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, int32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        down, across = uint32(block // ACROSS), uint32(block % ACROSS)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_w(shared, uint32(chunk * STEP), w, down, across, uint32(chunk), thread)
        load_vectors(shared, uint32(VECTORS), b, m, uint32(across * BN), thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_x(shared, uint32(chunk * STEP), x, uint32(0), down, across, uint32(chunk), thread)
            ptx.commit()
        here, there = uint32(0), uint32((DEPTH - 1) * STEP)
        for chunk in range(CHUNKS):
            ptx.wait(1)  # DEPTH - 2
            cuda.syncthreads()  # this chunk has come for all threads, and all are done with the one before
            if chunk + (DEPTH - 1) < CHUNKS:
                load_x(shared, there, x, uint32(0), down, across, uint32(chunk + (DEPTH - 1)), thread)
                load_w(shared, there, w, down, across, uint32(chunk + (DEPTH - 1)), thread)
            ptx.commit()
            a0, b0 = uint32(here + warp_m * A_WARP), uint32(here + A_WORDS + warp_n * B_WARP)
            add(acc, shared, a0, shared, b0, lane)
            there = here
            here = uint32(0) if here == (DEPTH - 1) * STEP else uint32(here + STEP)
        at, n0 = uint32(VECTORS + warp_n * WN), uint32(across * BN + warp_n * WN)
        finish(acc, lane, y, shared, at, r, uint32(down * BM + warp_m * WM), n0)

    return kernel


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n, warps of warp_m x warp_n, lie and go through the channels."""
    chunk, columns = config.block_k, layer.zero_x != 0
    tile = tiles.tensor("int8", config.warp_m, config.warp_n, 4 * chunk, chunk, chunk, ahead=True, columns=columns)
    return blocks.Layout(blocks.product(layer, images), config, tile, chunk, chunk)


def config_of(layer, BM, BN, WM, WN):
    """The tile of blocks of BM x BN, warps of WM x WN."""
    words = blocks.product(layer).words
    chunk = whole.chunk(words)
    return TileConfig(BM, BN, chunk, BM // WM, BN // WN, pipeline_stages=min(DEPTH, -(-words // chunk)))


def configs(layer, images, gpu):
    return [config_of(layer, *shape) for shape in SHAPES]


def shared_bytes(layer, config):
    """Of a block: its chunks, then m and b."""
    return layout_of(layer, 1, config).shared_bytes + 4 * whole.vector_words(layer, config.block_n)


def resources(layer, config):
    sums = layout_of(layer, 1, config).tile.size
    return Resources(config.threads, min(255, sums + 60), shared_bytes(layer, config))


def cost(layer, images, config, gpu):
    """In ns: products, what is read, or chunks one after the other, whichever takes longest; then outputs."""
    layout = layout_of(layer, images, config)
    here, fit = share(layout.blocks, gpu), gpu.blocks_per_sm(resources(layer, config))
    turns, terms = waves(layout.blocks, fit, gpu), layout.chunks * layout.terms
    columns = -(-layer.F // 32) * 32 / layout.across  # of a block: beyond the last filter none is requantised
    warps = max(8, min(fit, here) * config.warps)
    return Cost(
        {"waves": turns * START, "epilogue": here * config.block_m * columns / min(WRITTEN, EACH * warps)},
        {
            "tensor cores": here * 2 * config.block_m * config.block_n * terms / PER_NS,
            "L2": layout.blocks * (config.block_m + config.block_n) * terms / (READ * gpu.sms),
            "latency": turns * layout.chunks * LATER,
        },
    )


def traffic(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    one, tile, BM, BN = layout.one, layout.tile, config.block_m, config.block_n
    total = layout.across * blocks.brought(BM, config.block_k, config.threads, one.M, one.words, one.words)
    total += layout.down * blocks.brought(BN, config.block_k, config.threads, one.N, one.words, one.words)
    total += layout.down * whole.vectors_brought(layer, BN, config.threads)
    row, column = whole.places(tile, one.N)
    m0, n0 = np.arange(0, layout.down * BM, tile.M), np.arange(0, layout.across * BN, tile.N)
    m, n = m0[:, None, None, None] + row, n0[:, None, None] + column
    store = whole.stored(one.N, np.where(m < one.M, m, -1), n)
    return Traffic(*(total + layer.residual * store), *store)


def supports(layer):
    return layer.layout == "NHWC" and layer.C % 4 == 0 and layer.F % 4 == 0 and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=shared_bytes(layer, config))
