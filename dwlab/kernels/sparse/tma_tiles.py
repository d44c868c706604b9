"""Tiles of sparse/forward/tma: how blocks lie, which are worth a look for a layer, what a launch moves and costs."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwlab.kernels.parts import bulk_sparse
from dwlab.kernels.parts.bulk_products import WORDS_EACH
from dwlab.kernels.parts.group_products import ROWS, WORDS
from dwlab.kernels.parts.group_sparse import ALIGNED, FILTERS
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.row_epilogue import stored_rows
from dwlab.kernels.parts.run_epilogue import stored_runs
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.pointwise.tma_tiles import blocks
from dwlab.kernels.pointwise.wgmma_tiles import most_registers
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices
from dwlab.problems.sparsity import STEP

SHAPES = (  # of a block's tile, pixels and filters, and pixels of a group's: 64 filters each
    (192, 256, 192), (256, 192, 256), (128, 256, 128), (256, 128, 256), (192, 192, 192), (256, 128, 128),
    (128, 192, 128), (192, 128, 192), (64, 256, 64), (256, 64, 256), (128, 128, 128), (128, 64, 128), (64, 128, 64),
    (64, 64, 64),
)  # fmt: skip
BLOCKS, DEEPEST, BOX = (1, 2), 12, 2 * STEP  # of a multiprocessor; chunks in shared memory; channels of a chunk
OTHERS = 32  # registers beside the sums, at least
LINE = 4 * WORDS  # bytes


@dataclass(frozen=True)
class Layout:
    """Blocks of block_m pixels x block_n filters, and a chunk in shared memory: x, weights, metadata."""

    layer: Any
    one: Product
    images: int
    config: TileConfig

    @property
    def sums(self) -> tuple[WarpTile, Any]:
        """A warp's sums, and what arranges them to be stored."""
        return bulk_sparse.tile_of(self.config.warp_m, self.layer.layout == "NCHW")

    @property
    def tile(self) -> WarpTile:
        return self.sums[0]

    @property
    def pixels(self) -> int:
        """Pixels that lie one behind the other: an image's in NCHW, all in NHWC. A tile lies in these alone."""
        every = self.layer.H * self.layer.W
        return every if self.layer.layout == "NCHW" else self.images * every

    @property
    def each(self) -> int:
        """Tiles of these pixels."""
        return -(-self.pixels // self.config.block_m)

    @property
    def down(self) -> int:
        """Tiles along all pixels."""
        return self.each * (self.images if self.layer.layout == "NCHW" else 1)

    @property
    def across(self) -> int:
        """Blocks along the filters."""
        return -(-self.layer.F // self.config.block_n)

    @property
    def warps(self) -> int:
        """Warps of a slice."""
        return self.config.warps // self.config.warps_k

    @property
    def chunks(self) -> int:
        """Chunks of the channels."""
        return self.layer.kept // BOX

    @property
    def matrices(self) -> tuple[tuple[int, int], ...]:
        """Lines and words of a line: of x, of the weights, of the metadata."""
        layer, maps = self.layer, self.images * self.layer.C
        x = (maps, self.pixels // 2) if layer.layout == "NCHW" else (self.pixels, layer.C // 2)
        return x, (layer.F, layer.kept // 4), (layer.kept // STEP, layer.F)

    @property
    def x_pitch(self) -> int:
        """Words from the channels' rows of 64 pixels to those of the next 64, in NCHW; 0 in NHWC."""
        return BOX * WORDS * (self.layer.layout == "NCHW")

    @property
    def w_at(self) -> int:
        """The word of a chunk at which weights begin."""
        return self.config.block_m * WORDS

    @property
    def e_at(self) -> int:
        """The word of a chunk at which metadata begin."""
        return self.w_at + self.config.block_n * WORDS // 2

    @property
    def nbytes(self) -> int:
        """Bytes of a chunk."""
        return 4 * (self.e_at + 2 * self.config.block_n)

    @property
    def step(self) -> int:
        """Words from a chunk to the next one: lines begin where they are swizzled from."""
        return -(-self.nbytes // 4 // ALIGNED) * ALIGNED

    @property
    def mbarriers_at(self) -> int:
        """The word of shared memory at which mbarriers begin."""
        return self.config.pipeline_stages * self.step


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks lie and go through the channels."""
    return Layout(layer, product(layer, images), images, config)


def config_of(layer, BM, BN, N, depth, tiles=1, slices=1):
    """Blocks of BM pixels x BN filters, groups of N x 64 in so many slices, chunks at a time, and tiles a block."""
    depth = min(depth, layer.kept // BOX * tiles) // slices * slices
    return TileConfig(BM, BN, WORDS, BM // N, BN // FILTERS, warps_k=slices, pipeline_stages=depth, groups=tiles)


def configs(layer, images, gpu):
    """Tiles of each shape that divides the filters, with as many chunks as fit beside no other block or one.

    A tile a block, or all blocks at once; or a tile a block and two slices.
    """
    for shape in SHAPES:
        if layer.F % shape[1] == 0:
            yield from dict.fromkeys(_deep(layer, images, gpu, shape))


def _deep(layer, images, gpu, shape):
    """Tiles of one shape."""
    one = config_of(layer, *shape, 1)
    layout = layout_of(layer, images, one)
    for resident in BLOCKS:
        fit = (gpu.limits.shared_per_sm // resident - gpu.limits.shared_reserved) // (4 * (layout.step + WORDS_EACH))
        several = -(-layout.down // max(1, gpu.sms * resident // layout.across))
        for tiles, slices in ((1, 1), (several, 1), (1, 2)):
            tile = config_of(layer, *shape, min(fit, DEEPEST), tiles, slices)
            if _runs(layout_of(layer, images, tile)) and gpu.blocks_per_sm(resources(layer, tile)) >= resident:
                yield tile


def _runs(layout):
    """Whether sums fit in registers, no slice waits for itself, and a second slice's sums fit where chunks were."""
    config, sums = layout.config, layout.config.block_m * layout.config.block_n
    slices, places = config.warps_k, config.pipeline_stages // config.warps_k
    if most_registers(config) < layout.tile.size + OTHERS or places < min(2, layout.chunks // slices * config.groups):
        return False
    return slices == 1 or (layout.chunks % slices == 0 and sums <= layout.mbarriers_at)


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    shared = 4 * (layout.mbarriers_at + WORDS_EACH * config.pipeline_stages)
    return Resources(config.threads, min(most_registers(config), layout.tile.size + 56), shared)


def supports(layer):
    """Whether chunks and blocks are whole, and a line of x whole vectors of 16 bytes."""
    whole = layer.C % BOX == 0 and layer.F % ROWS == 0 and (layer.layout == "NHWC" or layer.H * layer.W % 8 == 0)
    return whole and not layer.chooses and small_indices(layer)


def traffic(layer, config):
    """Boxes as copies of 16 bytes, and stores as `rows` has them in NCHW, `wgmma` in NHWC."""
    layout, BM, BN = layout_of(layer.kernel_key, layer.N, config), config.block_m, config.block_n
    of_x, of_w, of_e = layout.matrices
    chunk, tile, n0 = np.arange(layout.chunks), np.arange(layout.down)[:, None], np.arange(0, layer.F, BN)[:, None]
    if layer.layout == "NCHW":
        first = tile // layout.each * layer.C + chunk * BOX
        at = tile % layout.each * (BM // 2) + np.arange(BM // 64)[:, None, None] * WORDS
        load = bulk_sparse.box_traffic(*of_x, BOX, WORDS, first, np.minimum(at, of_x[1] - 4))
        (more, store), times = stored_rows(layer.kernel_key, 1, layout.tile), layer.N
    else:
        load = bulk_sparse.box_traffic(*of_x, BM, WORDS, tile * BM, chunk * WORDS)
        (more, store), times = stored_runs(layer, layout.tile), 1
    filters = bulk_sparse.box_traffic(*of_w, BN, WORDS // 2, n0, chunk * (WORDS // 2))
    filters = filters + bulk_sparse.box_traffic(*of_e, 2, BN, chunk * 2, n0)
    return Traffic(*(layout.across * load + layout.down * filters + times * more), *(times * store))


def work(layer, images, config):
    """Shared memory binds: each group's products read its filters and all of its pixels, and copies write."""
    layout, slices, tiles = layout_of(layer, images, config), config.warps_k, config.groups
    shared = layout.chunks * (layout.warps // 4 * LINE * (config.warp_m + ROWS // 2) + layout.nbytes)
    written = config.block_m * config.block_n * layer.itemsize * (slices + layer.residual)
    chunks, places = layout.chunks // slices * tiles, config.pipeline_stages // slices
    return Work(
        blocks(layout), 4 * tiles * config.block_m * config.block_n * layout.chunks * STEP,
        tiles * layout.chunks * layout.nbytes, tiles * shared, tiles * written,
        chunks=chunks / (places if places >= chunks else max(1, places - 1)),
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=12900, read=68, shared=196, written=76, start=2370, chunk=19))
