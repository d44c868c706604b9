"""Tiles of sparse/forward/rows: how blocks lie and load rows of x, what a block takes, what a launch costs."""

import functools
from dataclasses import dataclass

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import ptx, swizzle
from dwlab.kernels.parts import ptx_memory as memory
from dwlab.kernels.parts.load_async import copies, vector_words
from dwlab.kernels.parts.matrix_product import Product
from dwlab.kernels.parts.mma_sparse import mma_sparse
from dwlab.kernels.parts.row_epilogue import stored_rows
from dwlab.kernels.sparse import tensor_tiles
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import small_indices
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

SHAPES = (  # of a block's tile, pixels and filters, and of its warps'
    (256, 128, 64, 64), (256, 64, 64, 64), (128, 128, 64, 64), (128, 64, 64, 64), (128, 64, 32, 64),
    (64, 128, 32, 64), (64, 64, 32, 32),
    (256, 32, 64, 32), (128, 32, 32, 32), (64, 32, 32, 32), (256, 16, 64, 16), (128, 16, 32, 16), (64, 16, 32, 16),
)  # fmt: skip
DEPTHS = (4, 3, 2)  # chunks in shared memory at a time
NONE = 0x7FFFFFFF  # in the place of a column's first word: no channel, zeros


@dataclass(frozen=True)
class Layout(tensor_tiles.Layout):
    """Blocks as those of sparse/forward/tensor, of pixels of all images; a chunk has rows of kept columns' pixels."""

    @property
    def places(self):
        """Places of a chunk without columns: a block has them all from the start, behind its chunks."""
        return super().places._replace(step=super().places.c_at)

    @property
    def every(self):
        """Whether each row of each chunk is a channel, and each pixel of each block one of the layer's."""
        layer, config = self.layer, self.config
        whole = layer.C % layer.form.M == 0 and layer.kept == layer.C // layer.form.M * layer.form.columns
        return whole and layer.kept % (STEP * self.steps) == 0 and self.one.M % config.block_m == 0

    @property
    def columns_at(self):
        """The word of shared memory at which the block's columns begin."""
        return self.config.pipeline_stages * self.places[-1]

    @property
    def place_x(self):
        """place(row, word): where in a chunk a word of a row's pixels lies."""
        return swizzle.place(self.config.block_m // 2)

    @property
    def columns(self):
        """Kept columns of all chunks, the last one filled up."""
        return self.chunks * self.steps * STEP

    @property
    def vectors(self):
        """(words, vectors): of a copy, and those of a row."""
        words = vector_words(self.layer.H * self.layer.W // 2)
        return words, self.config.block_m // 2 // words


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks lie and go through the kept columns."""
    steps, pitch = config.block_k * 2 // STEP, tensor_tiles.e_pitch(config)
    tile = mma_sparse(config.warp_m, config.warp_n, steps, layer.form, config.block_m // 2, pitch, True)
    one = Product(1, images * layer.H * layer.W, layer.F, layer.C, 2, True)
    return Layout(layer, one, config, steps, tile)


def numbers(layout):
    """As tensor_tiles.numbers. chosen: of a group of M columns; each, vectors: words of a copy, copies of a row."""
    each, vectors = layout.vectors
    return tensor_tiles.numbers(layout, chosen=layout.layer.form.columns, each=each, vectors=vectors)


def config_of(layer, BM, BN, WM, WN, steps, depth):
    """The tile of blocks of BM x BN, warps of WM x WN, and so many chunks of 32 or 64 columns at a time."""
    depth = max(2, min(depth, -(-layer.kept // (STEP * steps)) + 1))
    return TileConfig(BM, BN, steps * STEP // 2, BM // WM, BN // WN, pipeline_stages=depth)


def configs(layer, images, gpu):
    """Shapes of which a block's filters lie in one block of V, each with most chunks that fit."""
    for shape in SHAPES:
        for steps in (1, 2) if layer.kept > STEP else (1,):
            tiles = [config_of(layer, *shape, steps, depth) for depth in DEPTHS]
            one = next((one for one in tiles if gpu.blocks_per_sm(resources(layer, one))), tiles[-1])
            _, across = layout_of(layer, images, one).vectors
            if (not layer.chooses or layer.form.V % shape[1] == 0) and one.threads % across == 0:
                yield one


def resources(layer, config):
    layout = layout_of(layer, 1, config)
    shared = 4 * config.pipeline_stages * layout.places[-1] + 4 * layout.columns * layer.chooses
    return Resources(config.threads, min(255, layout.tile.size + 72), shared)


def work(layer, images, config):
    layout, BM, BN = layout_of(layer, images, config), config.block_m, config.block_n
    words = layer.kept / 2 * (BM * (config.warps_n + 1) + BN / 2 * (config.warps_m + 1))  # written once, then read
    return Work(
        layout.blocks, 2 * BM * BN * layer.kept, (BM + BN * tensor_tiles.PER_FILTER) * layer.kept * 2, 4 * words,
        written=BM * BN * 2, chunks=layout.chunks,
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=3150, read=47, shared=119, written=31, start=1700, chunk=408))


def load_chunks(layout):
    """find(shared, wc, n0, thread), once, then load(shared, at, x, w, wi, n0, chunk, thread, pixels, inside).

    find puts behind the chunks where the block's columns begin, as copies' addresses depend on it. load starts a
    chunk's copies. pixels: the thread's word of the first channel; inside: whether these are the layer's, or zeros.
    """
    (each, vectors), tile, load_w = layout.vectors, numbers(layout), tensor_tiles.load_filters(layout, columns=False)
    ROUNDS, (copy, zeros) = STEP * layout.steps * vectors // layout.config.threads, copies(each)
    WIDE, CHOOSES, EVERY = 4 if ROUNDS % 4 == 0 else 1, tile.chooses, tile.every

    @cuda.jit(device=True, forceinline=True)
    def words_to(channel):
        """Words from a pixel's first channel to another one, as a float32."""
        inside = EVERY or channel < uint32(tile.C)
        return ptx.float_of_word(int32(channel * uint32(tile.HW // 2)) if inside else int32(NONE))

    @cuda.jit(device=True, forceinline=True)
    def start_of(four, chosen, e):
        k = uint32(uint32(4) * uint32(four) + uint32(e))
        return words_to(uint32(k // uint32(tile.chosen) * uint32(tile.M) + uint32(chosen >> int32(8 * e) & int32(255))))

    @cuda.jit(device=True, forceinline=True)
    def find(shared, wc, n0, thread):
        if CHOOSES:
            for four in range(thread, tile.kept // 4, tile.threads):
                chosen = ptx.word_of_float(wc[uint32(n0 // tile.V * (tile.kept // 4) + four)])
                memory.store4_shared(
                    shared, uint32(tile.columns_at + 4 * four), start_of(four, chosen, 0), start_of(four, chosen, 1),
                    start_of(four, chosen, 2), start_of(four, chosen, 3)
                )  # fmt: skip
            for k in range(tile.kept + thread, tile.columns, tile.threads):
                shared[uint32(tile.columns_at + k)] = ptx.float_of_word(int32(NONE))
            cuda.syncthreads()

    @cuda.jit(device=True, forceinline=True)
    def starts_of(starts, shared, k):
        """Starts of ROUNDS columns: all are read before a copy begins."""
        for e in range(0, ROUNDS, WIDE):
            at = uint32(k + uint32(e))
            if not CHOOSES:
                for q in range(WIDE):
                    starts[e + q] = words_to(uint32(at + uint32(q)))
            elif WIDE == 4:
                four = uint32(uint32(tile.columns_at) + at)
                starts[e], starts[e + 1], starts[e + 2], starts[e + 3] = memory.load4_shared(shared, four)
            else:
                starts[e] = shared[uint32(uint32(tile.columns_at) + at)]

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, x, w, wi, n0, chunk, thread, pixels, inside):
        starts = cuda.local.array(ROUNDS, float32)
        first = uint32(thread // uint32(vectors) * uint32(ROUNDS))
        word = uint32(thread % uint32(vectors) * uint32(each))
        starts_of(starts, shared, uint32(chunk * uint32(STEP * tile.steps) + first))
        for e in range(ROUNDS):
            start, to = uint32(ptx.word_of_float(starts[e])), uint32(at + tile.place_x(uint32(first + uint32(e)), word))
            if EVERY or (inside and start != uint32(NONE)):
                copy(shared, to, x, uint32(pixels + start))
            else:
                zeros(shared, to)
        load_w(shared, at, w, wi, wi, n0, chunk, thread)

    return find, load


def supports(layer):
    """Whether a block's filters lie in one block of V, and rows are of whole words."""
    whole = not layer.chooses or layer.form.V % 16 == 0
    even = layer.F % 2 == 0 and layer.H * layer.W % 2 == 0
    return layer.layout == "NCHW" and whole and even and small_indices(layer)


def traffic(layer, layout):
    """Traffic of blocks that load rows, and store filter by filter."""
    (load, store), down = stored_rows(layer, layer.N, layout.tile), layout.blocks // layout.across
    load = load + rows_traffic(layer, layout) + down * tensor_tiles.filters_traffic(layout, columns=False)
    return Traffic(*load, *store)


def rows_traffic(layer, layout):
    """[requests, sectors] of x by `load_chunks` of all blocks, of the columns that the inputs of seed 0 have."""
    config, threads, HW, total = layout.config, layout.config.threads, layer.H * layer.W, np.zeros(2, np.int64)
    (each, across), form, down = layout.vectors, layer.form, layout.blocks // layout.across
    k = np.arange(layout.columns)
    channels = np.minimum(k, layer.C)[None]
    if layer.chooses:
        given = layer.inputs()["wc"]
        channels = np.full((len(given), len(k)), layer.C)
        channels[:, : layer.kept] = np.minimum(k[: layer.kept] // form.columns * form.M + given, layer.C)
    m = np.arange(down)[:, None] * config.block_m + np.arange(threads) % across * 2 * each
    start = np.where(m < layout.one.M, m // HW * layer.C * (HW // 2) + m % HW // 2, -1)[:, None]
    four = np.arange(-(-layer.kept // 4 // threads) * threads).reshape(-1, threads)
    for n0 in range(0, layer.F, config.block_n):
        block = n0 // form.V if layer.chooses else 0
        of = channels[block].reshape(-1, threads // across, STEP * layout.steps * across // threads)
        of = of.transpose(0, 2, 1).reshape(-1, threads // across)[:, np.arange(threads) // across]
        at = np.where((start >= 0) & (of < layer.C), start + of * (HW // 2), -each)
        total += warp_traffic(at.reshape(-1, threads) // each, 8 // each)
        if layer.chooses:
            at = np.where(four < layer.kept // 4, block * (layer.kept // 4) + four, -1)
            total += -(-down // config.groups) * warp_traffic(at)
    return total
