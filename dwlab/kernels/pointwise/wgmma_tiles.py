"""Tiles of pointwise/forward/wgmma: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools

from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.group_products import ROWS, WORDS, ahead, warp_of_group
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves

SHAPES = (  # of a block's tile, rows and columns, and columns of a group's: 64 rows each
    (192, 192, 192), (192, 128, 128), (128, 256, 256), (256, 128, 128), (128, 192, 192), (128, 128, 128),
    (64, 256, 256), (64, 192, 192), (64, 128, 128), (256, 64, 64), (192, 64, 64), (128, 64, 64), (64, 64, 64),
    (256, 96, 96), (128, 96, 96), (64, 96, 96), (256, 32, 32), (128, 32, 32), (64, 32, 32),
)  # fmt: skip
DEPTHS = (6, 5, 4, 3, 2)  # chunks in shared memory at a time
PER_NS, READ, WRITTEN, SHARED = 6000, 40, 20, 190  # FLOPs; bytes of a multiprocessor: read, written, of shared memory
START, CHUNK = 1000, 160  # ns: until the first chunk has come, and of one at least


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


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    return Resources(config.threads, min(255, layout.tile.size + 56), layout.shared_bytes)


def cost(layer, images, config, gpu):
    """In ns: products, shared memory or what is read, whichever takes longest; then outputs."""
    layout = layout_of(layer, images, config)
    here, edge = share(layout.blocks, gpu), config.block_m + config.block_n
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), here))
    turns = waves(layout.blocks, resident, gpu)
    edges = edge * layout.chunks * WORDS * 4  # bytes of a block's operands
    groups = config.warps // 4
    read = groups * (ROWS + config.warp_n) * layout.chunks * WORDS * 4  # by products
    flying = min(ahead(config.pipeline_stages, layout.chunks), layout.chunks) * resident  # chunks on the way
    return Cost(
        {"waves": turns * START, "epilogue": here * config.block_m * config.block_n * layer.itemsize / WRITTEN},
        {
            "tensor cores": here * 2 * config.block_m * config.block_n * layout.chunks * layout.terms / PER_NS,
            "shared memory": here * (edges + read) / SHARED,
            "L2": layout.blocks * edges / (READ * gpu.sms),
            "latency": here * layout.chunks * max(CHUNK / resident, 2 * START / 3 / flying),
        },
    )
