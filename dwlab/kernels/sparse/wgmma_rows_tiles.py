"""Tiles of sparse/forward/wgmma_rows: which are worth a look for a layer, what a block takes, what a launch costs."""

import functools
import itertools
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
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

SHAPES = (  # of a block's tile, pixels and filters, and pixels of a group's: 64 filters each
    (128, 256, 128), (512, 64, 256), (256, 128, 256), (256, 64, 256), (256, 64, 128), (256, 128, 128), (128, 128, 128),
    (128, 64, 128), (128, 64, 64), (64, 128, 64), (64, 64, 64),
)  # fmt: skip
BLOCKS, DEEPEST = (1, 2, 3, 4), (5, 4)  # of a multiprocessor; chunks in shared memory at a time, at most
OTHERS = 56  # registers beside the sums
LINE = 128  # bytes of a pixel's chunk


@dataclass(frozen=True)
class Layout(rows_tiles.Layout):
    """Blocks as those of sparse/forward/rows; a chunk has its rows by 64 pixels; a warp 16 filters of its group's."""

    @property
    def places(self):
        """Places of a chunk, which ends where the next one's lines may begin."""
        return super().places._replace(step=-(-super().places.step // ALIGNED) * ALIGNED)

    @property
    def down(self):
        """Blocks' tiles along the pixels."""
        return -(-self.one.M // self.config.block_m)

    @property
    def ahead(self):
        """Chunks in flight while others are multiplied."""
        return ahead(self.config.pipeline_stages, self.chunks * self.config.groups)

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
    """Shapes of which a block's filters lie in one block of V, and a thread's copies at one place of rows.

    Of each as many chunks as fit beside none to three other blocks; a tile a block, or all blocks at once.
    """
    for shape in SHAPES:
        layout = layout_of(layer, images, config_of(layer, *shape, 2))
        astride = layer.chooses and layer.form.V % layout.config.block_n
        if not astride and layout.config.threads % layout.vectors[1] == 0:
            yield from dict.fromkeys(_deep(layer, images, gpu, shape, layout))


def _deep(layer, images, gpu, shape, layout):
    """Tiles of one shape."""
    room = gpu.limits.shared_per_sm
    columns = gpu.limits.shared_reserved + 4 * layout.columns * layer.chooses
    for resident, deepest in itertools.product(BLOCKS, DEEPEST):
        fit = (room // resident - columns) // (4 * layout.places[-1])
        for tiles in (1, -(-layout.down // max(1, gpu.sms * resident // layout.across))):
            one = config_of(layer, *shape, min(deepest, fit), tiles)
            alone = fit < 1 or (fit == 1 < layout.chunks * tiles)  # of one place a second chunk would wait for itself
            if not alone and (tiles == 1 or gpu.blocks_per_sm(resources(layer, one)) >= resident):
                yield one


def most_registers(layout):
    """Registers that a thread may have so that as many blocks start as with those that it takes, in steps of 8."""
    threads = layout.config.threads
    resident = max(1, REGISTERS // (threads * (layout.tile.size + OTHERS)))
    return min(255, REGISTERS // (threads * resident) // 8 * 8)


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    shared = 4 * layout.columns_at + 4 * layout.columns * layer.chooses
    return Resources(config.threads, min(most_registers(layout), layout.tile.size + OTHERS), shared)


def work(layer, images, config):
    layout, BM, BN, tiles = layout_of(layer, images, config), config.block_m, config.block_n, config.groups
    read = tiles * layout.chunks * (BM + BN * tensor_tiles.PER_FILTER) * LINE
    shared = read + tiles * layout.chunks * config.warps // 4 * (ROWS / 2 + config.warp_m) * LINE  # read by products
    return Work(
        blocks(layout), 4 * tiles * BM * BN * layout.chunks * STEP, read, shared, written=tiles * BM * BN * 2,
        chunks=tiles * layout.chunks / layout.ahead,
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=13000, read=102, shared=154, written=28, start=1540, chunk=1120))
