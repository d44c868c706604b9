"""Tiles of sparse/forward/tensor: how blocks lie and load their filters, what a block takes, what a launch costs."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts import swizzle
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.mma_sparse import filter_of, filter_row, mma_sparse
from dwlab.kernels.parts.sparse_tile import channels
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import warp_traffic
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
    def places(self) -> tuple[int, ...]:
        """Words of a chunk at which weights, metadata and columns begin, and how many there are: whole vectors."""
        filters, warps = self.config.block_n, self.config.warps_n * self.layer.chooses
        sizes = (self.config.block_m * self.config.block_k, 8 * self.steps * filters, self.steps * e_pitch(self.config))
        return tuple(int(n) for n in np.cumsum([*sizes, 8 * self.steps * warps]))


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
    layer, config, steps, threads = layout.layer, layout.config, layout.steps, layout.config.threads
    LINES, STEPS, ROWS, WORDS = config.block_n, layer.kept // STEP, layer.rows, layer.kept // 4
    (W0, E0, C0, _), VECTORS, V, WF = layout.places, 2 * steps, layer.form.V, config.warp_n
    CHOOSES, COLUMNS, LAST = layer.chooses and columns, VECTORS * config.warps_n, layer.rows // layer.form.V - 1
    place, row_of = swizzle.place(8 * steps), filter_row(WF)
    ROUNDS, EVEN = -(-LINES * VECTORS // threads), LINES * VECTORS % threads == 0
    PLACES, PLACED = -(-LINES * steps // threads), LINES * steps % threads == 0
    WHOLE, FULL = ROWS % LINES == 0, layer.kept % (STEP * steps) == 0  # nothing beyond the last row, the last column
    CHOICES, PITCH = -(-COLUMNS // threads), e_pitch(config)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, w, wi, wc, n0, chunk, thread):
        for round in range(ROUNDS):
            vector = uint32(thread + uint32(round * threads))
            line, word = uint32(vector // uint32(VECTORS)), uint32(vector % uint32(VECTORS) * uint32(4))
            row, at = uint32(n0 + row_of(line)), uint32(chunk * uint32(8 * steps) + word)
            if EVEN or vector < uint32(LINES * VECTORS):
                to = uint32(s0 + uint32(W0) + place(line, word))
                if (WHOLE or row < uint32(ROWS)) and (FULL or at < uint32(WORDS)):
                    ptx.copy4_async(shared, to, w, uint32(row * uint32(WORDS) + at))
                else:
                    ptx.store4_shared(shared, to, float32(0), float32(0), float32(0), float32(0))
        for round in range(PLACES):
            word = uint32(thread + uint32(round * threads))
            if PLACED or word < uint32(LINES * steps):
                line, step = uint32(word % uint32(LINES)), uint32(word // uint32(LINES))
                row, at = uint32(n0 + row_of(line)), uint32(chunk * uint32(steps) + step)
                if not WHOLE:
                    row = min(row, uint32(ROWS - 1))
                if not FULL:
                    at = min(at, uint32(STEPS - 1))
                to = uint32(s0 + uint32(E0) + step * uint32(PITCH) + line)
                ptx.copy1_async(shared, to, wi, uint32(at * uint32(ROWS) + row))
        if CHOOSES:
            for round in range(CHOICES):
                vector = uint32(thread + uint32(round * threads))
                block = min(uint32((n0 + vector // uint32(VECTORS) * uint32(WF)) // uint32(V)), uint32(LAST))
                at = uint32(chunk * uint32(8 * steps) + vector % uint32(VECTORS) * uint32(4))
                at = min(at, uint32(WORDS - 4))
                if vector < uint32(COLUMNS):
                    to = uint32(s0 + uint32(C0) + vector * uint32(4))
                    ptx.copy4_async(shared, to, wc, uint32(block * uint32(WORDS) + at))

    return load


def filters_traffic(layout, columns=True):
    """[requests, sectors] of `load_filters` of all chunks, by one block of pixels."""
    layer, config, steps, threads = layout.layer, layout.config, layout.steps, layout.config.threads
    lines, WF, words, last = config.block_n, config.warp_n, layer.kept // 4, layer.kept // STEP - 1
    total, chunk = np.zeros(2, np.int64), np.arange(layout.chunks)[:, None, None]

    def rounds(count):
        at = np.arange(-(-count // threads) * threads)
        return np.where(at < count, at, -1).reshape(-1, threads)

    vector, word, four = rounds(lines * 2 * steps), rounds(lines * steps), rounds(2 * steps * config.warps_n)
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
