"""Tensor cores: one instruction of a warp does 1,024 multiply-adds and more, in float32 too, by three products of tf32.

The blocks, and the way of their tiles to shared memory, are those of the stage before; a warp's share of a chunk's
products is now mma.sync on 16 x 8 sums, its operands read by ldmatrix, four 8 x 8 matrices at a time (tiles.py). In 16
bits one product does; of float32 each number is split in two tf32, and the three larger of the four products are
summed up, which leaves float32's accuracy. C is at least 16: in shorter sums float32's own rounding is smaller.

The operands of a warp come in 16-byte pieces that must lie in different banks. In the stage before rows had 4 words to
spare for that, so most 128 bytes of memory were copied to two places, and the hardware asked for their sectors twice.
Here rows have none; the pieces of each change places instead (tiles.place). What that leaves of shared memory goes to
chunks on their way: three where the tiles are large, else two.

In 16 bits mma is so fast that shared memory is the next to run out: a warp's tile of 64 x 32 reads 6 KiB for 32
products, one of 48 x 96 9 KiB for 72. So warps' tiles are large, few warps fit, and each reads a step's operands before
the products of the step before (`ahead`) instead of waiting, the next chunk's before the last products of this one:
tensor cores work while the barrier is passed. At the end lanes trade sums, so that each stores 16 bytes. In float32 the
largest tiles' steps are computed in two halves, or registers would not do (tiles.in_halves).

How large a block's tile is depends on the layer: large ones read less, each x once for BN filters and each w once for
BM pixels, but blocks come in turns of 132, and multiprocessors without one are lost. `cost` weighs mma's rate, shared
memory, what L2 gives, and turns. It predicts, for 32 images of 14 x 14 in float16: 512 channels, 132 blocks of 192 x
128, bound by what is read; 728 channels, 132 blocks of 192 x 192, by mma and reads alike; in float32 both by mma.

Traffic: in NHWC x once for each BN filters and w once for each BM pixels; y once.
"""

import functools

from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, ptx, tiles
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.problems.layers import small_indices

SHAPES = (  # of a block's tile, rows and columns, of its warps' tiles, and words of C in a chunk
    (192, 192, 48, 96, 32), (192, 128, 48, 64, 32), (256, 128, 64, 64, 32), (128, 128, 64, 64, 32),
    (128, 96, 32, 96, 32), (128, 64, 32, 32, 32), (64, 128, 32, 32, 32), (64, 64, 32, 32, 32), (64, 32, 16, 32, 32),
    (32, 64, 32, 16, 32), (32, 32, 16, 16, 32), (128, 32, 32, 32, 32), (32, 128, 32, 32, 32), (128, 16, 32, 16, 32),
    (16, 128, 16, 32, 32),
)  # fmt: skip
DEPTH, DEEPEST = 3, 4  # chunks in shared memory at a time, and with room to spare
PER_NS = {"float32": 600, "float16": 3800, "bfloat16": 3800}  # FLOPs that a multiprocessor's mma.sync do, about
READ, WRITTEN, SHARED = 40, 20, 220  # bytes a ns: all read or write, of each multiprocessor; and its shared memory
START, CHUNK = 1000, 250  # ns: until the first chunk has come, and from one to the next where nothing else takes longer


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    (load_x, load_w), tile, parts, DEPTH = blocks.loads(layout), layout.tile, layout.tile.parts, config.pipeline_stages
    SIZE, zero, store = tile.size, tile.zero, blocks.store(layer, layout)
    HELD, begin, most, last = parts.words, parts.begin, parts.most, parts.last
    BM, BN, WM, WN, ACROSS, DOWN = config.block_m, config.block_n, tile.M, tile.N, layout.across, layout.down
    WARPS, CHUNKS, A_WORDS, A_WARP, B_WARP = BN // tile.N, layout.chunks, layout.a_words, layout.a_warp, layout.b_warp
    STEP, wait = layout.a_words + layout.b_words, blocks.WAITS[DEPTH - 2]

    @cuda.jit
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        held = cuda.local.array(HELD, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        image, down, across = uint32(block // (ACROSS * DOWN)), uint32(block // ACROSS % DOWN), uint32(block % ACROSS)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_w(shared, uint32(chunk * STEP), w, down, across, uint32(chunk), thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_x(shared, uint32(chunk * STEP), x, image, down, across, uint32(chunk), thread)
            ptx.commit()
        here, there = uint32(0), uint32((DEPTH - 1) * STEP)
        a0, b0 = uint32(warp_m * A_WARP), uint32(A_WORDS + warp_n * B_WARP)
        wait()
        cuda.syncthreads()
        begin(acc, held, shared, a0, shared, b0, lane)
        for chunk in range(CHUNKS):
            if chunk + (DEPTH - 1) < CHUNKS:
                load_x(shared, there, x, image, down, across, uint32(chunk + (DEPTH - 1)), thread)
                load_w(shared, there, w, down, across, uint32(chunk + (DEPTH - 1)), thread)
            ptx.commit()
            most(acc, held, shared, uint32(here + a0), shared, uint32(here + b0), lane)
            there = here
            here = uint32(0) if here == (DEPTH - 1) * STEP else uint32(here + STEP)
            if chunk + 1 < CHUNKS:
                wait()
                cuda.syncthreads()  # the next chunk has come for all threads, and all have read this one
                begin(acc, held, shared, uint32(here + a0), shared, uint32(here + b0), lane)
            last(acc, held, shared, a0, shared, b0, lane)
        m0, n0 = uint32((image * DOWN + down) * BM + warp_m * WM), uint32(across * BN + warp_n * WN)
        store(acc, lane, y, b, r, m0, n0)

    return kernel


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n, warps of warp_m x warp_n, lie and go through the channels."""
    one, chunk = blocks.product(layer, images), config.block_k
    b_pitch = tiles.pitch(config.block_n // one.each, "mn", layer.dtype) if one.nchw else chunk
    sizes = config.warp_m, config.warp_n, chunk * one.each, chunk, b_pitch
    tile = tiles.tensor(layer.dtype, *sizes, "k", one.b_order, True, registers=255)
    return blocks.Layout(one, config, tile, chunk, b_pitch)


def config_of(layer, BM, BN, WM, WN, most, depth=DEPTH):
    """The tile of blocks of BM x BN, warps of WM x WN, and chunks of so many words of C, or of all if there are few.

    depth: chunks in shared memory at a time, one that is multiplied and others on their way; fewer if C has fewer.
    """
    words = blocks.product(layer).words
    chunk = min(most, -(-words // 8) * 8)  # of 8 words: a product's K
    depth = max(2, min(depth, -(-words // chunk) + 1))
    return TileConfig(BM, BN, chunk, BM // WM, BN // WN, pipeline_stages=depth)


def configs(layer, images, gpu):
    """Of each shape the one with most chunks in shared memory, as long as no fewer blocks are at a multiprocessor."""
    for shape in SHAPES:
        depths = [config_of(layer, *shape, depth) for depth in range(2, DEEPEST + 1)]
        fit = [one for one in depths if gpu.blocks_per_sm(resources(layer, one))]
        usual = [one for one in fit if one.pipeline_stages >= min(DEPTH, depths[-1].pipeline_stages)] or fit or depths
        yield [one for one in usual if resident(layer, images, one, gpu) == resident(layer, images, usual[0], gpu)][-1]


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    return Resources(config.threads, registers(layout.tile), layout.shared_bytes)


def resident(layer, images, config, gpu):
    """Blocks that are at a multiprocessor at a time: as many as fit, if there are as many."""
    blocks = layout_of(layer, images, config).blocks
    return max(1, min(gpu.blocks_per_sm(resources(layer, config)), share(blocks, gpu)))


def registers(tile):
    """That a thread takes, about: its sums, two steps' operands, and addresses."""
    return min(255, tile.size + (tile.M + tile.N) // 2 + 40)


def cost(layer, images, config, gpu):
    """In ns: products, shared memory or what is read, whichever takes longest; then outputs."""
    layout = layout_of(layer, images, config)
    here, tile, edge = share(layout.blocks, gpu), layout.tile, config.block_m + config.block_n
    turns = waves(layout.blocks, resident(layer, images, config, gpu), gpu)
    edges = edge * layout.chunks * config.block_k * 4  # bytes of a block's operands
    again = edges * (1 + config.warps * (tile.M + tile.N) / edge)  # written once, read by warps
    products = here * 2 * config.block_m * config.block_n * layout.chunks * layout.terms / PER_NS[layer.dtype]
    written = here * config.block_m * config.block_n * layer.itemsize / WRITTEN
    return Cost(
        {"waves": turns * START, "epilogue": written},
        {
            "tensor cores": products,
            "shared memory": here * again / SHARED,
            "L2": layout.blocks * edges / (READ * gpu.sms),
            "latency": turns * layout.chunks * CHUNK,
        },
    )


def traffic(layer, config):
    return blocks.traffic(layer, layout_of(layer.kernel_key, layer.N, config))


def supports(layer):
    if layer.dtype == "float32":
        return layer.C >= 16 and layer.C % 4 == 0 and small_indices(layer)
    whole = layer.F % 2 == 0 if layer.layout == "NHWC" else layer.F % 2 == 0 and layer.H * layer.W % 8 == 0
    return layer.C % 8 == 0 and whole and small_indices(layer)


TYPES = ("float32", "float16", "bfloat16")


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=TYPES, view="words", aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=layout.shared_bytes)
