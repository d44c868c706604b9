"""Tiles of pointwise/forward/tensor: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools

from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import FLOAT32, Rates, Work, share

SHAPES = (  # of a block's tile, rows and columns, of its warps' tiles, and words of C in a chunk
    (192, 192, 48, 96, 32), (192, 128, 48, 64, 32), (256, 128, 64, 64, 32), (128, 128, 64, 64, 32),
    (128, 96, 32, 96, 32), (128, 64, 32, 32, 32), (64, 128, 32, 32, 32), (64, 64, 32, 32, 32), (64, 32, 16, 32, 32),
    (32, 64, 32, 16, 32), (32, 32, 16, 16, 32), (128, 32, 32, 32, 32), (32, 128, 32, 32, 32), (128, 16, 32, 16, 32),
    (16, 128, 16, 32, 32),
)  # fmt: skip
DEPTH, DEEPEST = 3, 4  # chunks in shared memory at a time, and with room to spare


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n, warps of warp_m x warp_n, lie and go through the channels."""
    one, chunk = product(layer, images), config.block_k
    sizes = config.warp_m, config.warp_n, chunk * one.each, chunk, chunk
    return Layout(one, config, mma_ss(layer.dtype, *sizes, prefetch=True, registers=255), chunk, chunk)


def config_of(layer, BM, BN, WM, WN, most, depth=DEPTH):
    """The tile of blocks of BM x BN, warps of WM x WN, and chunks of so many words of C, or of all if there are few.

    depth: chunks in shared memory at a time, one that is multiplied and others in flight; fewer if C has fewer.
    """
    words = product(layer).words
    chunk = min(most, -(-words // 8) * 8)  # of 8 words: a product's K
    depth = max(2, min(depth, -(-words // chunk) + 1))
    return TileConfig(BM, BN, chunk, BM // WM, BN // WN, pipeline_stages=depth)


def configs(layer, images, gpu):
    """One tile a shape: with most chunks in shared memory, as long as no fewer blocks are at a multiprocessor."""
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
    """Registers of a thread, about: its sums, two steps' operands, and addresses."""
    return min(255, tile.size + (tile.M + tile.N) // 2 + 40)


def work(layer, images, config):
    layout, tile = layout_of(layer, images, config), layout_of(layer, images, config).tile
    read, edge = 4 * layout.stage_words * layout.chunks, config.block_m + config.block_n
    return Work(
        layout.blocks, layout.products * (FLOAT32 if layer.dtype == "float32" else 1), read,
        shared=read * (1 + config.warps * (tile.M + tile.N) / edge),  # written once, read by warps
        written=config.block_m * config.block_n * layer.itemsize, chunks=layout.chunks,
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=3900, read=52, shared=182, written=28, start=1270, chunk=340))
