"""Tiles of pointwise/forward/wgmma: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools

from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.group_products import ROWS, WORDS, ahead, warp_of_group
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves

SHAPES = (  # of a block's tile, rows and columns, and columns of a group's: 64 rows each
    (192, 192, 192), (192, 128, 128), (128, 256, 256), (256, 128, 128), (192, 256, 256), (256, 192, 192),
    (128, 192, 192), (128, 128, 128),
    (64, 256, 256), (64, 192, 192), (64, 128, 128), (256, 64, 64), (192, 64, 64), (128, 64, 64), (64, 64, 64),
    (256, 96, 96), (128, 96, 96), (64, 96, 96), (256, 32, 32), (128, 32, 32), (64, 32, 32),
)  # fmt: skip
REGISTERS = 65536  # of a multiprocessor
DEPTHS = (6, 5, 4, 3, 2)  # chunks in shared memory at a time
PER_NS, READ, WRITTEN, SHARED, DEVICE = 6400, 40, 20, 200, 4200  # FLOPs; bytes a ns: of a multiprocessor; of all
START, CHUNK, LATENCY = 1000, 120, 700  # ns: until a block's first chunk has come; of a chunk; of a copy


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n lie and go through the channels."""
    return Layout(product(layer, images), config, warp_of_group(config.warp_n), WORDS, WORDS)


def config_of(layer, BM, BN, N, depth):
    """The tile of blocks of BM x BN, groups of 64 x N, and so many chunks in shared memory, all if there are fewer."""
    chunks = -(-product(layer).words // WORDS)
    return TileConfig(BM, BN, WORDS, BM // ROWS * 4, BN // N, pipeline_stages=min(depth, chunks))


def configs(layer, images, gpu):
    """Of each shape those whose copies have a chunk ahead, with most chunks of which as many blocks fit as of any."""
    for shape in SHAPES:
        deep = [config_of(layer, *shape, depth) for depth in DEPTHS]
        deep = [one for one in deep if ahead(one.pipeline_stages, layout_of(layer, images, one).chunks) > 0]
        yield from dict.fromkeys(deep)


def most_registers(config):
    """That a thread may have so that a block starts, in steps of 8: the compiler keeps to it."""
    return min(255, REGISTERS // config.threads // 8 * 8)


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    return Resources(config.threads, min(most_registers(config), layout.tile.size + 56), layout.shared_bytes)


def cost(layer, images, config, gpu):
    """In ns: what binds all blocks, or a block's own way where few are there; the first loads, the last outputs."""
    layout, one = layout_of(layer, images, config), product(layer, images)
    here, groups = share(layout.blocks, gpu), config.warps // 4
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), here))
    edges = (config.block_m + config.block_n) * layout.chunks * WORDS * 4  # bytes of a block's operands
    read = groups * (ROWS + config.warp_n) * layout.chunks * WORDS * 4  # of them by products
    products = 2 * config.block_m * config.block_n * layout.chunks * layout.terms / PER_NS
    shared, outputs = (edges + read) / SHARED, config.block_m * config.block_n * layer.itemsize / WRITTEN
    chunk = max(CHUNK, LATENCY / ahead(config.pipeline_stages, layout.chunks))
    block = max(products, shared, edges / READ, layout.chunks * chunk)
    moved = one.M * 4 * (one.words + one.N // one.each * (1 + layer.residual))
    return Cost(
        {"waves": START, "epilogue": outputs},
        {
            "tensor cores": here * products,
            "shared memory": here * shared,
            "L2": layout.blocks * (edges / READ + outputs / 2) / gpu.sms,
            "device memory": moved / DEVICE,
            "latency": waves(layout.blocks, resident, gpu) * (START + block + outputs) - START - outputs,
        },
    )
