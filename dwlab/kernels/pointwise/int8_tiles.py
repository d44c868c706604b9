"""Tiles of pointwise/forward/int8: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools

from dwlab.kernels.parts import int8_epilogue
from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work

DEPTH = 3  # chunks in shared memory at a time: one to compute with, two in flight
SHAPES = (  # of a block's tile, rows and columns, and of its warps' tiles
    (128, 128, 64, 64), (128, 64, 32, 64), (64, 128, 32, 64), (64, 64, 32, 32), (128, 32, 32, 32), (32, 128, 32, 32),
    (32, 64, 16, 32), (32, 32, 16, 32), (16, 128, 16, 32), (16, 64, 16, 32),
)  # fmt: skip


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
    """Bytes of a block: its chunks, then m and b."""
    return layout_of(layer, 1, config).shared_bytes + 4 * int8_epilogue.factor_words(layer, config.block_n)


def resources(layer, config):
    sums = layout_of(layer, 1, config).tile.size
    return Resources(config.threads, min(255, sums + 60), shared_bytes(layer, config))


def work(layer, images, config):
    layout = layout_of(layer, images, config)
    columns = -(-layer.F // 32) * 32 / layout.across  # beyond the last filter none is requantised
    return Work(
        layout.blocks, layout.products, 4 * layout.stage_words * layout.chunks, written=config.block_m * columns,
        chunks=layout.chunks,
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=5800, read=52, written=16.5, start=1200, chunk=264))
