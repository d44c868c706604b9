"""How blocks go through a matrix product, chunk by chunk of the summed channels: tiles, their loads, their traffic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import uint32

from dwlab.kernels.parts import gemm_epilogue
from dwlab.kernels.parts.load_async import load_tile, load_words, tile_traffic
from dwlab.kernels.parts.matrix_product import Product
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda


@dataclass(frozen=True)
class Layout:
    """How blocks of block_m x block_n outputs go through a layer's sums, block_k words of C at a time (config).

    across, down: blocks along a product's columns and rows; those along columns come first, then rows, then images.
    In shared memory a chunk is A's part, a_words, then B's, whose lines are interleaved if that is not 0 (ffma.ffma).
    """

    one: Product
    config: TileConfig
    tile: WarpTile
    a_pitch: int
    b_pitch: int
    interleave: int = 0

    @property
    def across(self) -> int:
        """Blocks along the columns."""
        return -(-self.one.N // self.config.block_n)

    @property
    def down(self) -> int:
        """Blocks along the rows."""
        return -(-self.one.M // self.config.block_m)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.one.images * self.across * self.down

    @property
    def chunks(self) -> int:
        """Chunks of C."""
        return -(-self.one.words // self.config.block_k)

    @property
    def terms(self) -> int:
        """Terms of a sum in a chunk."""
        return self.config.block_k * self.one.each

    @property
    def products(self) -> int:
        """Operations of a block."""
        return 2 * self.config.block_m * self.config.block_n * self.chunks * self.terms

    @property
    def a_words(self) -> int:
        """Words of a chunk's part of A."""
        return self.config.block_m * self.a_pitch

    @property
    def b_words(self) -> int:
        """Words of a chunk's part of B."""
        return (self.terms if self.one.nchw else self.config.block_n) * self.b_pitch

    @property
    def stage_words(self) -> int:
        """Words of a chunk: of one stage of the pipeline."""
        return self.a_words + self.b_words

    @property
    def a_warp(self) -> int:
        """Words from a warp's part of A to that of the warp below."""
        return self.tile.M * self.a_pitch

    @property
    def b_warp(self) -> int:
        """Words from a warp's part of B to that of the next warp along the columns."""
        if self.interleave:
            return self.tile.N // 4 * self.b_pitch
        return self.tile.N if self.one.nchw else self.tile.N * self.b_pitch

    @property
    def shared_bytes(self) -> int:
        """Bytes of a block."""
        return 4 * self.config.pipeline_stages * self.stage_words


def loads(layout: Layout) -> tuple[Any, Any]:
    """load_x(shared, s0, x, image, down, across, chunk, thread): starts the copies of one chunk of a block's x.

    And load_w(shared, s0, w, down, across, chunk, thread), the same of w. NCHW: float32.
    """
    one, config, threads = layout.one, layout.config, layout.config.threads
    load_a = load_tile(config.block_m, config.block_k, layout.a_pitch, threads, one.M, one.words, one.words)
    BM, BN, CHUNK, A_WORDS, IMAGE = config.block_m, config.block_n, config.block_k, layout.a_words, one.C * one.N
    if not one.nchw:
        load_b = load_tile(BN, CHUNK, layout.b_pitch, threads, one.N, one.words, one.words, layout.interleave)

        @cuda.jit(device=True, forceinline=True)
        def load_x(shared, s0, x, image, down, across, chunk, thread):
            load_a(shared, s0, x, uint32(0), uint32(down * BM), uint32(chunk * CHUNK), thread)

        @cuda.jit(device=True, forceinline=True)
        def load_w(shared, s0, w, down, across, chunk, thread):
            s0, n0 = uint32(s0 + A_WORDS), uint32(across * BN)
            load_b(shared, s0, w, uint32(0), n0, uint32(chunk * CHUNK), thread)

        return load_x, load_w
    sizes = (CHUNK, BN, layout.b_pitch, threads, one.C, one.N, one.N)
    load_b = load_words(*sizes) if one.N % 4 else load_tile(*sizes, swizzled=False)

    @cuda.jit(device=True, forceinline=True)
    def load_x(shared, s0, x, image, down, across, chunk, thread):
        begin, k0, n0 = uint32(image * IMAGE), uint32(chunk * CHUNK), uint32(across * BN)
        load_b(shared, uint32(s0 + A_WORDS), x, begin, k0, n0, thread)

    @cuda.jit(device=True, forceinline=True)
    def load_w(shared, s0, w, down, across, chunk, thread):
        load_a(shared, s0, w, uint32(0), uint32(down * BM), uint32(chunk * CHUNK), thread)

    return load_x, load_w


def loaded(layout: Layout) -> Any:
    """[requests, sectors] of `loads` of all chunks of all blocks."""
    one, config, threads = layout.one, layout.config, layout.config.threads
    a = tile_traffic(config.block_m, config.block_k, threads, one.M, one.words, one.words)
    total = one.images * layout.across * a
    for image in range(one.images):
        if one.nchw:
            shape = (config.block_k, config.block_n, threads, one.C, one.N, one.N)
            b = tile_traffic(*shape, one.N % 4 == 0, image * one.C * one.N)
        else:
            shape = (config.block_n, config.block_k, threads, one.N, one.words, one.words)
            b = tile_traffic(*shape, interleave=layout.interleave)
        total = total + layout.down * b
    return total


def traffic(layer: Pointwise, layout: Layout) -> Traffic:
    """Traffic of all blocks: their tiles of A and B, and the epilogue, by gemm_epilogue.store_tile."""
    load, store = gemm_epilogue.stored(layer, layout.tile)
    return Traffic(*(loaded(layout) + load), *store)
