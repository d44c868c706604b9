"""Tiles of sparse/forward/wgmma: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools
from dataclasses import dataclass

from dwlab.kernels.parts.group_products import ROWS
from dwlab.kernels.parts.group_sparse import ahead
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.mma_sparse import mma_sparse
from dwlab.kernels.pointwise.wgmma_tiles import most_registers
from dwlab.kernels.sparse import tensor_tiles
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.problems.sparsity import STEP

SHAPES = (  # of a block's tile, pixels and filters, and pixels of a group's: 64 filters each
    (256, 192, 256), (256, 128, 256), (128, 256, 128), (192, 192, 192), (192, 128, 192), (128, 192, 128),
    (128, 128, 128), (256, 64, 256), (128, 64, 128), (128, 64, 64), (64, 128, 64), (64, 64, 64), (32, 64, 32),
)  # fmt: skip
DEPTHS = (6, 5, 4, 3, 2)  # K-tiles in shared memory at a time
PER_NS, READ, WRITTEN, SHARED, DEVICE = 3400, 80, 37, 200, 4200  # FLOPs; bytes a ns: fitted on an H100, as the rest
START, GAP, LATENCY = 1700, 44, 1270  # ns: until a block's first chunk has come; between K-tiles' products; of a copy
WORDS, FILTERS, ALIGNED = 32, ROWS // 4, 256  # of a pixel in a chunk; of a warp; words that lines are swizzled within


@dataclass(frozen=True)
class Layout(tensor_tiles.Layout):
    """Blocks as those of sparse/forward/tensor; a warp has 16 filters of all its group's pixels."""

    @property
    def places(self):
        """As there; a chunk ends where the next one's lines may begin."""
        *begin, end = super().places
        return *begin, -(-end // ALIGNED) * ALIGNED


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks lie and go through the channels."""
    tile = mma_sparse(config.warp_m, FILTERS, 2, layer.form, WORDS, tensor_tiles.e_pitch(config))
    return Layout(layer, product(layer, images), config, 2, tile)


def config_of(layer, BM, BN, N, depth, each=1):
    """The tile of blocks of BM pixels x BN filters, groups of N x 64, K-tiles of 1 or 2 chunks, and so many of them."""
    chunks = -(-layer.kept // (2 * STEP))
    each = each if chunks % each == 0 else 1
    depth = min(depth, chunks // each)
    return TileConfig(BM, BN, WORDS, BM // N, BN // FILTERS, pipeline_stages=depth, unroll=each)


def configs(layer, images, gpu):
    """Of each shape those whose copies have a K-tile ahead, and of K-tiles of two chunks two: one comes too late."""
    for shape in SHAPES:
        deep = [config_of(layer, *shape, depth, each) for each in (2, 1) for depth in DEPTHS]
        yield from dict.fromkeys(one for one in deep if flight(layer, images, one) > one.unroll // 2 * 2)


def flight(layer, images, config):
    """Chunks in flight while others are multiplied."""
    return config.unroll * ahead(config.pipeline_stages, layout_of(layer, images, config).chunks // config.unroll)


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    shared = 4 * config.pipeline_stages * config.unroll * layout.places[-1]
    return Resources(config.threads, min(most_registers(config), layout.tile.size + 56), shared)


def cost(layer, images, config, gpu):
    """In ns: what binds all blocks, or a block's own way where few are there; the first loads, the last outputs."""
    layout, one, BM, BN = layout_of(layer, images, config), product(layer, images), config.block_m, config.block_n
    here, groups = share(layout.blocks, gpu), config.warps // 4
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), here))
    edges = layout.places[-1] * layout.chunks * 4  # bytes of a block's operands
    read = groups * (ROWS / 2 + config.warp_m) * layout.chunks * WORDS * 4  # of them by products
    products = BM * BN * layout.chunks * 2 * STEP / PER_NS
    shared, outputs = (edges + read) / SHARED, BM * BN * layer.itemsize / WRITTEN
    alone = products + layout.chunks * GAP / config.unroll  # of a block, if no other fills its gaps
    together = resident * max(products, shared, edges / READ)
    block = max(alone, together, layout.chunks * LATENCY / flight(layer, images, config))
    moved = one.M * 4 * (one.words + one.N // one.each * (1 + layer.residual))
    return Cost(
        {"waves": START, "epilogue": outputs},
        {
            "tensor cores": here * products,
            "shared memory": here * shared,
            "L2": layout.blocks * (edges / READ + outputs / 2) / gpu.sms,
            "device memory": moved / DEVICE,
            "latency": waves(layout.blocks, resident, gpu) * (START + block + resident * outputs) - START - outputs,
        },
    )
