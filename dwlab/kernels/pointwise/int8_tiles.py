"""Tiles of pointwise/forward/int8: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools

from dwlab.kernels.parts import int8_epilogue
from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves

DEPTH = 3  # chunks in shared memory at a time: one to compute with, two in flight
SHAPES = (  # of a block's tile, rows and columns, and of its warps' tiles
    (128, 128, 64, 64), (128, 64, 32, 64), (64, 128, 32, 64), (64, 64, 32, 32), (128, 32, 32, 32), (32, 128, 32, 32),
    (32, 64, 16, 32), (32, 32, 16, 32), (16, 128, 16, 32), (16, 64, 16, 32),
)  # fmt: skip
PER_NS, READ = 6000, 40  # operations of a multiprocessor in a ns, and bytes that each reads where all do
WRITTEN, EACH = 30, 1.7  # outputs that it requantises in a ns, at most, and for each warp that is there, of 8 or more
START, LATER = 1200, 250  # ns: until the first chunk has come, and from one to the next where nothing takes longer


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n, warps of warp_m x warp_n, lie and go through the channels."""
    chunk, columns = config.block_k, layer.zero_x != 0
    tile = mma_ss("int8", config.warp_m, config.warp_n, 4 * chunk, chunk, chunk, prefetch=True, columns=columns)
    return Layout(product(layer, images), config, tile, chunk, chunk)


def config_of(layer, BM, BN, WM, WN):
    """The tile of blocks of BM x BN, warps of WM x WN."""
    words = product(layer).words
    chunk = int8_epilogue.k_tile(words)
    return TileConfig(BM, BN, chunk, BM // WM, BN // WN, pipeline_stages=min(DEPTH, -(-words // chunk)))


def configs(layer, images, gpu):
    return [config_of(layer, *shape) for shape in SHAPES]


def shared_bytes(layer, config):
    """Of a block: its chunks, then m and b."""
    return layout_of(layer, 1, config).shared_bytes + 4 * int8_epilogue.factor_words(layer, config.block_n)


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
