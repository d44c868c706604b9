"""Tiles of sparse/forward/tensor: how blocks lie and load their filters, what a block takes, what a launch costs."""

import functools
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import constants, swizzle
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.mma_sparse import filter_of, filter_row, mma_sparse
from dwlab.kernels.parts.sparse_tile import channels
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import iterations, warp_traffic
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

SHAPES = (  # of a block's tile, pixels and filters, and of its warps'
    (128, 256, 64, 64), (64, 256, 32, 64), (128, 128, 64, 64), (128, 64, 64, 64), (64, 64, 32, 64), (64, 128, 32, 64),
    (32, 64, 16, 64), (16, 128, 16, 64),
    (128, 64, 64, 32), (128, 32, 32, 32), (64, 32, 32, 32), (32, 32, 16, 32), (16, 64, 16, 32),
    (128, 32, 64, 16), (128, 16, 32, 16), (64, 16, 16, 16), (16, 32, 16, 16),
)  # fmt: skip
DEPTHS = (4, 3, 2)  # chunks in shared memory at a time
WIDE = 64  # channels: with so few to a step a chunk has two steps
PER_FILTER = 0.57  # words of a filter for each of its columns: weights and metadata, to words of x
Places = namedtuple("Places", "w_at e_at c_at step")  # words at which weights, metadata and columns begin, and all


@dataclass(frozen=True)
class Layout:
    """Blocks of block_m pixels x block_n filters, and a chunk in shared memory: x, weights, metadata, columns."""

    layer: Any
    one: Product
    config: TileConfig
    steps: int
    tile: WarpTile

    @property
    def across(self) -> int:
        """Blocks along the filters."""
        return -(-self.one.N // self.config.block_n)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.across * -(-self.one.M // self.config.block_m)

    @property
    def chunks(self) -> int:
        """Chunks of the kept columns."""
        return -(-self.layer.kept // (STEP * self.steps))

    @property
    def places(self) -> Places:
        filters, warps = self.config.block_n, self.config.warps_n * self.layer.chooses
        sizes = (self.config.block_m * self.config.block_k, 8 * self.steps * filters, self.steps * e_pitch(self.config))
        return Places(*(int(n) for n in np.cumsum([*sizes, 8 * self.steps * warps])))


def numbers(layout, **more):
    """What kernels read by name of a layout, its layer and pattern, and more. pixels: all; HW: of an image."""
    layer, more = layout.layer, {"pixels": layout.one.M, "HW": layout.layer.H * layout.layer.W, **more}
    return constants.of(layer, layout.tile, layer.form, layout, layout.places, layout.config, **more)


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks lie and go through the kept columns."""
    words = channels(layer) // 2
    steps = config.block_k // words
    tile = mma_sparse(config.warp_m, config.warp_n, steps, layer.form, config.block_k, e_pitch(config))
    return Layout(layer, product(layer, images), config, steps, tile)


def e_pitch(config):
    """Words from a step's metadata to the next one's: 16 rows of two steps, which a warp copies, in all banks."""
    return config.block_n + (16 if config.block_n % 32 == 0 else 0)


def load_filters(layout, columns=True):
    """load(shared, s0, w, wi, wc, n0, chunk, thread): starts copies of a chunk's weights, metadata and, if so, columns.

    Rows beyond the last filter have weights of 0, and metadata of the last: all zeros would be no metadata.
    """
    config, layer, each = layout.config, layout.layer, 2 * layout.steps  # vectors of a line
    tile = numbers(
        layout, words=layer.kept // 4, pitch=e_pitch(config), last=layer.rows // layer.form.V - 1,
        last_step=layer.kept // STEP - 1, rounds=-(-config.block_n * each // config.threads),
        turns=-(-config.block_n * layout.steps // config.threads), picks=-(-config.warps_n * each // config.threads),
    )  # fmt: skip
    EVEN, PLACED = config.block_n * each % config.threads == 0, config.block_n * layout.steps % config.threads == 0
    CHOOSES, place, row_of = layer.chooses and columns, swizzle.place(4 * each), filter_row(config.warp_n)
    WHOLE, FULL = layer.rows % config.block_n == 0, layer.kept % (STEP * layout.steps) == 0  # no rest of either

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, w, wi, wc, n0, chunk, thread):
        for round in range(tile.rounds):
            vector = uint32(thread + uint32(round * tile.threads))
            line, word = uint32(vector // uint32(each)), uint32(vector % uint32(each) * uint32(4))
            row, at = uint32(n0 + row_of(line)), uint32(chunk * uint32(8 * tile.steps) + word)
            if EVEN or vector < uint32(tile.block_n * each):
                to = uint32(s0 + uint32(tile.w_at) + place(line, word))
                if (WHOLE or row < uint32(tile.rows)) and (FULL or at < uint32(tile.words)):
                    ptx.copy4_async(shared, to, w, uint32(row * uint32(tile.words) + at))
                else:
                    ptx.store4_shared(shared, to, float32(0), float32(0), float32(0), float32(0))
        for round in range(tile.turns):
            word = uint32(thread + uint32(round * tile.threads))
            if PLACED or word < uint32(tile.block_n * tile.steps):
                line, step = uint32(word % uint32(tile.block_n)), uint32(word // uint32(tile.block_n))
                row, at = uint32(n0 + row_of(line)), uint32(chunk * uint32(tile.steps) + step)
                if not WHOLE:
                    row = min(row, uint32(tile.rows - 1))
                if not FULL:
                    at = min(at, uint32(tile.last_step))
                to = uint32(s0 + uint32(tile.e_at) + step * uint32(tile.pitch) + line)
                ptx.copy1_async(shared, to, wi, uint32(at * uint32(tile.rows) + row))
        if CHOOSES:
            for round in range(tile.picks):
                vector = uint32(thread + uint32(round * tile.threads))
                block = uint32((n0 + vector // uint32(each) * uint32(tile.warp_n)) // uint32(tile.V))
                block = min(block, uint32(tile.last))
                at = uint32(chunk * uint32(4 * each) + vector % uint32(each) * uint32(4))
                at = min(at, uint32(tile.words - 4))
                if vector < uint32(tile.warps_n * each):
                    to = uint32(s0 + uint32(tile.c_at) + vector * uint32(4))
                    ptx.copy4_async(shared, to, wc, uint32(block * uint32(tile.words) + at))

    return load


def filters_traffic(layout, columns=True):
    """[requests, sectors] of `load_filters` of all chunks, by one block of pixels."""
    layer, config, steps, threads = layout.layer, layout.config, layout.steps, layout.config.threads
    lines, WF, words, last = config.block_n, config.warp_n, layer.kept // 4, layer.kept // STEP - 1
    total, chunk = np.zeros(2, np.int64), np.arange(layout.chunks)[:, None, None]

    counts = 2 * steps * lines, steps * lines, 2 * steps * config.warps_n
    vector, word, four = (iterations(count, threads) for count in counts)
    for n0 in range(0, layer.F, lines):
        line, at = vector // (2 * steps), chunk * 8 * steps + vector % (2 * steps) * 4
        row = n0 + line // WF * WF + filter_of(WF // 16, line % WF)
        inside = (vector >= 0) & (row < layer.rows) & (at < words)
        total += warp_traffic(np.where(inside, row * words + at, -8).reshape(-1, threads) // 4, 2)
        line, at = word % lines, np.minimum(chunk * steps + word // lines, last)
        row = np.minimum(n0 + line // WF * WF + filter_of(WF // 16, line % WF), layer.rows - 1)
        total += warp_traffic(np.where(word >= 0, at * layer.rows + row, -1).reshape(-1, threads))
        if layer.chooses and columns:
            block = np.minimum((n0 + four // (2 * steps) * WF) // layer.form.V, layer.rows // layer.form.V - 1)
            at = np.minimum(chunk * 8 * steps + four % (2 * steps) * 4, words - 4)
            total += warp_traffic(np.where(four >= 0, block * words + at, -8).reshape(-1, threads) // 4, 2)
    return total


def pixels(layout):
    """A chunk of x as load_async's functions take it: lines, words, threads, and the whole of it."""
    one, config = layout.one, layout.config
    return config.block_m, config.block_k, config.threads, one.M, one.words, one.words


def config_of(layer, BM, BN, WM, WN, depth):
    """The tile of blocks of BM x BN, warps of WM x WN, and so many chunks at a time."""
    steps = 2 if channels(layer) <= WIDE and layer.kept > STEP else 1
    depth = max(2, min(depth, -(-layer.kept // (STEP * steps)) + 1))
    return TileConfig(BM, BN, steps * channels(layer) // 2, BM // WM, BN // WN, pipeline_stages=depth)


def configs(layer, images, gpu):
    """Shapes of which a warp's filters lie in one block of V, each with most chunks that fit."""
    for shape in SHAPES:
        if not layer.chooses or layer.form.V % shape[3] == 0:
            tiles = [config_of(layer, *shape, depth) for depth in DEPTHS]
            yield next((one for one in tiles if gpu.blocks_per_sm(resources(layer, one))), tiles[-1])


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    registers = min(255, layout.tile.size + config.warp_n // 4 + 72)
    return Resources(config.threads, registers, 4 * config.pipeline_stages * layout.places[-1])


def work(layer, images, config):
    layout, BM, BN = layout_of(layer, images, config), config.block_m, config.block_n
    read, gathered = (BM * layer.C + BN * layer.kept * PER_FILTER) * 2, BM * layer.kept * config.warps_n * 2
    return Work(
        layout.blocks, 2 * BM * BN * layer.kept, read, shared=gathered * (2 if layer.chooses else 1),
        written=BM * BN * 2, chunks=layout.chunks,
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=8200, read=30, shared=319, written=18.7, start=1470, chunk=184))
