"""Tiles of sparse/forward/wgmma_rows: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools
import itertools
import math
from dataclasses import dataclass

from numba import uint32

from dwlab.kernels.parts import swizzle
from dwlab.kernels.parts.group_products import ROWS, WORDS
from dwlab.kernels.parts.group_sparse import ALIGNED, FILTERS, ahead
from dwlab.kernels.parts.matrix_product import Product
from dwlab.kernels.parts.mma_sparse import mma_sparse
from dwlab.kernels.pointwise.tma_tiles import blocks
from dwlab.kernels.pointwise.wgmma_tiles import REGISTERS
from dwlab.kernels.sparse import rows_tiles, tensor_tiles
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

SHAPES = (  # of a block's tile, pixels and filters, and pixels of a group's: 64 filters each
    (128, 256, 128), (512, 64, 256), (256, 128, 256), (256, 64, 256), (256, 64, 128), (256, 128, 128), (128, 128, 128),
    (128, 64, 128), (128, 64, 64), (64, 128, 64), (64, 64, 64),
)  # fmt: skip
BLOCKS, DEEPEST = (1, 2, 3, 4), (5, 4)  # of a multiprocessor; chunks in shared memory at a time, at most
PER_NS, READ, SHARED, WRITTEN, BEHIND, DEVICE = 17300, 80, 149, 54, 22, 4200  # FLOPs; bytes a ns: fitted on an H200
LAUNCH, START, TILE, GAP, LATENCY = 3350, 470, 540, 303, 960  # ns: a launch; a block; a tile behind another; chunks
OTHERS = 56  # registers beside the sums
LINE, PER_FILTER = 128, 0.57  # bytes of a pixel's chunk; of a filter's, weights and metadata, to these


@dataclass(frozen=True)
class Layout(rows_tiles.Layout):
    """Blocks as those of sparse/forward/rows; a chunk has its rows by 64 pixels; a warp 16 filters of its group's."""

    @property
    def places(self):
        """As there; a chunk ends where the next one's lines may begin."""
        *begin, columns, end = super().places
        return *begin, columns, -(-end // ALIGNED) * ALIGNED

    @property
    def down(self):
        """Blocks' tiles along the pixels."""
        return -(-self.one.M // self.config.block_m)

    @property
    def x_pitch(self):
        """Words from the rows of 64 pixels to those of the next 64."""
        return STEP * self.steps * WORDS

    @property
    def place_x(self):
        pitch, place = self.x_pitch, swizzle.place(WORDS)

        @cuda.jit(device=True, forceinline=True)
        def place_x(row, word):
            return uint32(word // uint32(WORDS) * uint32(pitch) + place(row, uint32(word % uint32(WORDS))))

        return place_x


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks lie and go through the kept columns."""
    pitch = tensor_tiles.e_pitch(config)
    tile = mma_sparse(config.warp_m, FILTERS, 2, layer.form, config.block_m // 2, pitch, True)
    return Layout(layer, Product(1, images * layer.H * layer.W, layer.F, layer.C, 2, True), config, 2, tile)


def config_of(layer, BM, BN, N, depth, groups=1):
    """Blocks of BM pixels x BN filters, groups of N x 64, so many chunks of 64 columns at a time, and tiles a block."""
    depth = min(depth, -(-layer.kept // (2 * STEP)) * groups)
    return TileConfig(BM, BN, WORDS, BM // N, BN // FILTERS, pipeline_stages=depth, groups=groups)


def configs(layer, images, gpu):
    """Of the shapes those of which a block's filters lie in one block of V, and a thread's copies at one place of rows.

    Of each as many chunks as fit beside none to three other blocks; a tile a block, or all blocks at once.
    """
    for shape in SHAPES:
        layout = layout_of(layer, images, config_of(layer, *shape, 2))
        apart = layer.chooses and layer.form.V % layout.config.block_n
        if not apart and layout.config.threads % layout.vectors[1] == 0:
            yield from dict.fromkeys(_deep(layer, images, gpu, shape, layout))


def _deep(layer, images, gpu, shape, layout):
    """Of one shape."""
    room = gpu.limits.shared_per_sm
    columns = gpu.limits.shared_reserved + 4 * layout.columns * layer.chooses
    for resident, deepest in itertools.product(BLOCKS, DEEPEST):
        fit = (room // resident - columns) // (4 * layout.places[-1])
        for tiles in (1, -(-layout.down // max(1, gpu.sms * resident // layout.across))):
            one = config_of(layer, *shape, min(deepest, fit), tiles)
            alone = fit < 1 or (fit == 1 < layout.chunks * tiles)  # of one place a second chunk would wait for itself
            if not alone and (tiles == 1 or gpu.blocks_per_sm(resources(layer, one)) >= resident):
                yield one


def flight_of(layout):
    """Chunks in flight while others are multiplied."""
    return ahead(layout.config.pipeline_stages, layout.chunks * layout.config.groups)


def most_registers(layout):
    """That a thread may have so that as many blocks start as with those that it takes, in steps of 8."""
    threads = layout.config.threads
    resident = max(1, REGISTERS // (threads * (layout.tile.size + OTHERS)))
    return min(255, REGISTERS // (threads * resident) // 8 * 8)


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    shared = 4 * layout.columns_at + 4 * layout.columns * layer.chooses
    return Resources(config.threads, min(most_registers(layout), layout.tile.size + OTHERS), shared)


def cost(layer, images, config, gpu):
    """In ns: the blocks of a multiprocessor, wave after wave, or a block's own way where few are there; and memory.

    Behind a block's first tile the copies of the next are on the way while outputs are stored.
    """
    layout, BM, BN, more = layout_of(layer, images, config), config.block_m, config.block_n, config.groups - 1
    resident = max(1, min(gpu.blocks_per_sm(resources(layer, config)), share(blocks(layout), gpu)))
    copied, outputs = layout.chunks * (BM + BN * PER_FILTER) * LINE, BM * BN * layer.itemsize
    read = layout.chunks * config.warps // 4 * (ROWS / 2 + config.warp_m) * LINE  # of it by products
    products, shared = 2 * BM * BN * layout.chunks * 2 * STEP / PER_NS, (copied + read) / SHARED
    flight, own = layout.chunks * LATENCY / flight_of(layout), products + layout.chunks * GAP
    busy = max(products, copied / READ, shared)
    first = max(START + max(busy, flight, own) + outputs / WRITTEN, resident * (busy + outputs / WRITTEN))
    behind = resident * max(copied / READ, shared, products + outputs / BEHIND)
    then = max(flight, TILE + own + outputs / WRITTEN, behind)
    moved = layout.one.M * layer.itemsize * (layer.C + layer.F * (1 + layer.residual))
    all_waves = waves(blocks(layout), resident, gpu) * (first + more * then)
    together = {"throughput": all_waves, "device memory": moved / DEVICE}
    return Cost({"launch": LAUNCH}, together, norm=math.inf if more else 2)
