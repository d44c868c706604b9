"""Tiles of pointwise/forward/wgmma: which are worth a look for a layer, what a block takes and moves, what it costs."""

import functools

from dwlab.kernels.parts import gemm, group_epilogue
from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.group_products import ROWS, WORDS, ahead, warp_of_group
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices

SHAPES = (  # of a block's tile, rows and columns, and columns of a group's: 64 rows each
    (192, 192, 192), (192, 128, 128), (128, 256, 256), (256, 128, 128), (192, 256, 256), (256, 192, 192),
    (128, 192, 192), (128, 128, 128), (128, 160, 160), (192, 160, 160), (192, 96, 96),
    (64, 256, 256), (64, 192, 192), (64, 128, 128), (256, 64, 64), (192, 64, 64), (128, 64, 64), (64, 64, 64),
    (256, 96, 96), (128, 96, 96), (64, 96, 96), (256, 32, 32), (128, 32, 32), (64, 32, 32),
)  # fmt: skip
REGISTERS, SECTOR = 65536, 8  # of a multiprocessor; words
BLOCKS, DEEPEST = (1, 2, 3, 4), 12  # on a multiprocessor; chunks in shared memory
WIDE = 8  # filters a channel from which a block of one chunk does little but store: others' loads pass behind that
UNALIGNED = 2  # times as slow are copies of lines that are no whole sectors: of every second one each is fetched twice


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n lie and go through the channels."""
    return Layout(product(layer, images), config, warp_of_group(config.warp_n), WORDS, WORDS)


def config_of(layer, BM, BN, N, depth):
    """The tile of blocks of BM x BN, groups of 64 x N, and so many chunks in shared memory, all if there are fewer."""
    chunks = -(-product(layer).words // WORDS)
    return TileConfig(BM, BN, WORDS, BM // ROWS * 4, BN // N, pipeline_stages=min(depth, chunks))


def configs(layer, images, gpu):
    """Tiles of each shape with most chunks beside none to three other blocks, of which copies have one ahead."""
    most, beside = gpu.limits.shared_per_sm, gpu.limits.shared_reserved
    for shape in SHAPES:
        one = config_of(layer, *shape, 1)
        chunk, rest = 4 * layout_of(layer, images, one).stage_words, beside + bias_bytes(layer, one)
        deep = [(most // blocks - rest) // chunk for blocks in BLOCKS]
        deep = [config_of(layer, *shape, min(depth, DEEPEST)) for depth in deep if depth > 0]
        deep = [one for one in deep if ahead(one.pipeline_stages, layout_of(layer, images, one).chunks) > 0]
        yield from dict.fromkeys(one for one in deep if not stores_alone(layer, images, one, gpu))


def stores_alone(layer, images, config, gpu):
    """Whether fewer than four blocks fit where four have little but stores to do, and there are more than fit."""
    layout, most = layout_of(layer, images, config), BLOCKS[-1]
    if layout.chunks > 1 or layer.F < WIDE * layer.C or layout.one.M * layer.F <= most * gpu.sms * 64 * 96:
        return False
    return gpu.blocks_per_sm(resources(layer, config)) < most


def bias_bytes(layer, config):
    """Bytes of a block's bias in shared memory."""
    return config.block_n * layer.itemsize * layer.bias


def shared_bytes(layer, config):
    """Bytes of a block: its chunks, then its bias."""
    return layout_of(layer.kernel_key, layer.N, config).shared_bytes + bias_bytes(layer, config)


def most_registers(config):
    """Registers that a thread may have so that a block starts, in steps of 8: the compiler keeps to it."""
    return min(255, REGISTERS // config.threads // 8 * 8)


def resources(layer, config):
    size = layout_of(layer, 1, config).tile.size
    return Resources(config.threads, min(most_registers(config), size + 56), shared_bytes(layer, config))


def work(layer, images, config):
    layout = layout_of(layer, images, config)
    return group_work(layer, layout, layout.chunks / ahead(config.pipeline_stages, layout.chunks))


def group_work(layer, layout, chunks):
    """Work of warp groups whose blocks do config.groups tiles and wait for so many chunks."""
    config, tiles = layout.config, layout.config.groups
    read = 4 * layout.stage_words * layout.chunks * (UNALIGNED if layout.one.words % SECTOR else 1)
    written = config.block_m * config.block_n * layer.itemsize * (1 + layer.residual)
    blocks = layout.across * -(-layout.down // tiles)
    return Work(blocks, tiles * layout.products, tiles * read, written=tiles * written, chunks=chunks)


def supports(layer):
    """Whether warp groups take a layer: NHWC, its channels and filters whole vectors of 16 bytes."""
    whole = layer.C % 8 == 0 and layer.C >= 16 and layer.F % 8 == 0
    return layer.layout == "NHWC" and whole and small_indices(layer)


def group_traffic(layer, config):
    """Traffic of warp groups: x and w in copies of 16 bytes, a block's bias, and stores of 16 bytes."""
    layout = layout_of(layer.kernel_key, layer.N, config)
    load, store = group_epilogue.stored(layer, layout.tile)
    if layer.bias:
        load = load + -(-layout.down // config.groups) * group_epilogue.bias_traffic(config.block_n, layer.F)
    return Traffic(*(gemm.loaded(layout) + load), *store)


TILES = Tiles(configs, resources, work, Rates(products=4670, read=70, written=26, start=910, chunk=965))
