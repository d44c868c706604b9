"""Tiles of sparse/forward/int8: how blocks load their filters, which are worth a look, what a launch costs."""

import functools
from dataclasses import dataclass

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts import swizzle
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.mma_sparse import filter_of, filter_row
from dwlab.kernels.parts.mma_sparse_int8 import mma_sparse_int8
from dwlab.kernels.sparse import tensor_tiles
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

SHAPES = (  # of a block's tile, pixels and filters, and of its warps'
    (128, 128, 64, 64), (128, 64, 64, 64), (64, 64, 32, 64), (64, 128, 32, 64), (32, 64, 16, 64), (16, 128, 16, 64),
    (128, 64, 64, 32), (128, 32, 32, 32), (64, 32, 32, 32), (32, 32, 16, 32), (16, 64, 16, 32),
)  # fmt: skip
COLUMNS, WORDS = 2 * STEP, 16  # of a step, and words that a pixel has of them
PER_NS, WRITTEN = 2 * tensor_tiles.PER_NS, 30  # operations; outputs that a multiprocessor requantises in a ns


@dataclass(frozen=True)
class Layout(tensor_tiles.Layout):
    """Blocks as those of sparse/forward/tensor; a step is 64 columns and has two words of metadata a filter."""

    @property
    def chunks(self):
        """Chunks of the columns."""
        return -(-self.layer.kept // (COLUMNS * self.steps))

    @property
    def places(self):
        """Words of a chunk at which weights and metadata begin, and how many there are: whole vectors."""
        filters = self.config.block_n
        sizes = self.config.block_m * self.config.block_k, 8 * self.steps * filters
        return *np.cumsum(sizes).tolist(), sum(sizes) + 2 * self.steps * tensor_tiles.e_pitch(self.config)


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks lie and go through the columns."""
    steps, pitch = config.block_k // WORDS, tensor_tiles.e_pitch(config)
    tile = mma_sparse_int8(config.warp_m, config.warp_n, steps, config.block_k, pitch, layer.zero_x != 0)
    return Layout(layer, product(layer, images), config, steps, tile)


def load_filters(layout):
    """load(shared, s0, w, wi, n0, chunk, thread): starts copies of a chunk's weights and metadata.

    Rows beyond the last filter have weights of 0, and metadata of the last: all zeros would be no metadata.
    """
    layer, config, steps, threads = layout.layer, layout.config, layout.steps, layout.config.threads
    LINES, RUNS, ROWS, WIDE = config.block_n, layer.kept // STEP, layer.rows, layer.kept // 8
    (W0, E0, _), VECTORS, EACH, PITCH = layout.places, 2 * steps, 2 * steps, tensor_tiles.e_pitch(config)
    place, row_of = swizzle.place(8 * steps), filter_row(config.warp_n)
    ROUNDS, EVEN = -(-LINES * VECTORS // threads), LINES * VECTORS % threads == 0

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, w, wi, n0, chunk, thread):
        for round in range(ROUNDS):
            item = uint32(thread + uint32(round * threads))
            line, word = uint32(item // uint32(VECTORS)), uint32(item % uint32(VECTORS) * uint32(4))
            row, at = uint32(n0 + row_of(line)), uint32(chunk * uint32(8 * steps) + word)
            if EVEN or item < uint32(LINES * VECTORS):
                to = uint32(s0 + uint32(W0) + place(line, word))
                if row < uint32(ROWS) and at < uint32(WIDE):
                    ptx.copy4_async(shared, to, w, uint32(row * uint32(WIDE) + at))
                else:
                    ptx.store4_shared(shared, to, float32(0), float32(0), float32(0), float32(0))
                line, run = uint32(item % uint32(LINES)), uint32(item // uint32(LINES))
                row = uint32(n0 + row_of(line))
                row = min(row, uint32(ROWS - 1))
                at = min(uint32(chunk * uint32(EACH) + run), uint32(RUNS - 1))
                to = uint32(s0 + uint32(E0) + run * uint32(PITCH) + (line ^ run // uint32(2) * uint32(8)))
                ptx.copy1_async(shared, to, wi, uint32(at * uint32(ROWS) + row))

    return load


def filters_traffic(layout):
    """[requests, sectors] of `load_filters` of all chunks, by one block of pixels."""
    layer, config, steps, threads = layout.layer, layout.config, layout.steps, layout.config.threads
    lines, WF, words, runs = config.block_n, config.warp_n, layer.kept // 8, layer.kept // STEP
    item = np.arange(-(-lines * 2 * steps // threads) * threads)
    item = np.where(item < lines * 2 * steps, item, -1).reshape(-1, threads)
    line, of, chunk = item // (2 * steps), item % (2 * steps), np.arange(layout.chunks)[:, None, None]
    total = np.zeros(2, np.int64)
    for n0 in range(0, layer.F, lines):
        row = n0 + line // WF * WF + filter_of(WF // 16, line % WF)
        at = chunk * 8 * steps + of * 4
        inside = (item >= 0) & (row < layer.rows) & (at < words)
        total += warp_traffic(np.where(inside, row * words + at, -8).reshape(-1, threads) // 4, 2)
        line_of, run = item % lines, item // lines
        row = np.minimum(n0 + line_of // WF * WF + filter_of(WF // 16, line_of % WF), layer.rows - 1)
        at = row + np.minimum(chunk * 2 * steps + run, runs - 1) * layer.rows
        total += warp_traffic(np.where(item >= 0, at, -1).reshape(-1, threads))
    return total


def config_of(layer, BM, BN, WM, WN, depth):
    """The tile of blocks of BM x BN, warps of WM x WN, and so many chunks at a time."""
    steps = 2 if layer.kept > COLUMNS else 1
    depth = max(2, min(depth, -(-layer.kept // (COLUMNS * steps)) + 1))
    return TileConfig(BM, BN, steps * WORDS, BM // WM, BN // WN, pipeline_stages=depth)


def configs(layer, images, gpu):
    """Of each shape the tile with most chunks that fit."""
    for shape in SHAPES:
        tiles = [config_of(layer, *shape, depth) for depth in tensor_tiles.DEPTHS]
        yield next((one for one in tiles if gpu.blocks_per_sm(resources(layer, one))), tiles[-1])


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    weights = layout.tile.more if layer.zero_x else 0
    registers = min(255, layout.tile.size + weights + 110)
    return Resources(config.threads, registers, 4 * config.pipeline_stages * layout.places[-1])


def cost(layer, images, config, gpu):
    """In ns: products, words taken from shared memory, or what is read, whichever takes longest; then outputs."""
    layout, BM, BN = layout_of(layer, images, config), config.block_m, config.block_n
    here, resident = share(layout.blocks, gpu), max(1, gpu.blocks_per_sm(resources(layer, config)))
    rounds = waves(layout.blocks, min(resident, here), gpu)
    read = here * (BM * layer.C + BN * layer.kept * 0.625)  # a weight of two, and two bits of metadata
    return Cost(
        {"waves": rounds * tensor_tiles.START, "epilogue": here * BM * BN / WRITTEN},
        {
            "tensor cores": here * 2 * BM * BN * layer.kept / PER_NS,
            "shared memory": here * BM * layer.kept * config.warps_n / 4 / tensor_tiles.GATHERED,
            "L2": read / tensor_tiles.READ,
            "latency": rounds * layout.chunks * tensor_tiles.CHUNK,
        },
    )
