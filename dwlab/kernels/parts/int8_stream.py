"""A pointwise layer within a fused int8 kernel: its x stays in shared memory, the filters stream past, on tensor cores.

x, all channels of some pixels, is in shared memory already; the filters come there a chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import int32, uint32

from dwlab.kernels.parts import constants, int8_epilogue, swizzle
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.load_async import load_tile, tile_traffic
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.parts.pipeline import pipeline
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda


@dataclass(frozen=True)
class Stream:
    """The products of block_m pixels, all in shared memory, with `groups` times block_n filters, for a tile.

    layer: the pointwise layer. A tile's block_m is a multiple of warp_m, block_n of warp_n, warp_n of 32; its
    pipeline_stages are chunks of filters in shared memory at a time, one to compute with and the others in flight,
    2 to 5; its helper_warps copy filters, and do what a block does before, but have no products.
    """

    layer: Pointwise
    config: TileConfig
    groups: int

    @property
    def words(self) -> int:
        """Words of a pixel's, or a filter's, channels."""
        return self.layer.C // 4

    @property
    def chunk(self) -> int:
        """Words of channels at a time."""
        return int8_epilogue.k_tile(self.words)

    @property
    def chunks(self) -> int:
        """Chunks of all channels."""
        return -(-self.words // self.chunk)

    @property
    def rest(self) -> int:
        """Words of the last chunk that are beyond the last channel: any numbers, but there must be some."""
        return self.chunks * self.chunk - self.words

    @property
    def pitch(self) -> int:
        """Words between pixels in shared memory."""
        return swizzle.padded(self.chunks * self.chunk)

    @property
    def x_words(self) -> int:
        """Words of shared memory for the pixels."""
        return self.config.block_m * self.pitch

    @property
    def step(self) -> int:
        """Words of shared memory for a chunk of filters, and m and b with the last of a group."""
        return self.config.block_n * self.chunk + int8_epilogue.factor_words(self.layer, self.config.block_n)

    @property
    def w_words(self) -> int:
        """Words of shared memory for chunks of filters."""
        return self.config.pipeline_stages * self.step

    @property
    def tile(self) -> WarpTile:
        """A warp's products of a chunk."""
        columns = self.layer.zero_x != 0
        return mma_ss(
            "int8", self.config.warp_m, self.config.warp_n, 4 * self.chunk, self.pitch, self.chunk, True, columns
        )

    def functions(self, put: Any, get: Any = None, halves: bool = False, parts: int = 1) -> Any:
        """The device functions begin and go, which a block calls in turn.

        begin(pool, w_at, w, b, m, f0, t) starts the copies of the first chunks of filters, from f0 on, to word w_at of
        the shared array `pool`; t: the thread. What it has started to copy before, and not committed, comes too.
        go(pool, x_at, w_at, w, b, m, r, y, f0, m0, t) computes all groups, pixels at word x_at, and hands outputs to
        `put` as rows m0 + pixel (put, get and halves: see `requantise_tile`). A barrier before copies to the same words
        start again is the caller's.
        parts: so many blocks, or calls of a block, share the filters; of the last ones' groups there may be none.
        """
        tile, (begin, load), ALL = self.tile, self._loads(parts), self.config.helper_warps == 0
        ring, SIZE = constants.of(self.config, tile, self), tile.size + tile.more
        finish = int8_epilogue.requantise_tile(self.layer, tile, self.config.block_n, put, get, halves)

        @cuda.jit(device=True, forceinline=True)
        def mma(acc, pool, here, step, tile):
            (w_at, w, b, m, f0, t), (x_at, r, y, m0) = tile
            lane, warp = uint32(t % uint32(32)), uint32(t // uint32(32))
            row = uint32(warp // uint32(ring.warps_n) * uint32(ring.warp_m))
            column = uint32(warp % uint32(ring.warps_n) * uint32(ring.warp_n))
            a0, b0 = uint32(x_at + row * uint32(ring.pitch)), uint32(w_at + column * uint32(ring.chunk))
            group, chunk = uint32(step // uint32(ring.chunks)), uint32(step % uint32(ring.chunks))
            if ALL or warp < uint32(ring.warps):
                ring.add(acc, pool, uint32(a0 + chunk * uint32(ring.chunk)), pool, uint32(b0 + here), lane)
                if chunk == uint32(ring.chunks - 1):
                    at = uint32(w_at + here + uint32(ring.block_n * ring.chunk) + column)
                    f = uint32(f0 + group * uint32(ring.block_n) + column)
                    finish(acc, lane, y, pool, at, r, uint32(m0 + row), f)
                    ring.zero(acc)

        run = pipeline(ring.pipeline_stages, ring.step, ring.groups * ring.chunks, load, mma)

        @cuda.jit(device=True, forceinline=True)
        def go(pool, x_at, w_at, w, b, m, r, y, f0, m0, t):
            acc = cuda.local.array(SIZE, int32)
            ring.zero(acc)
            run(acc, pool, ((w_at, w, b, m, f0, t), (x_at, r, y, m0)))

        return constants.of(begin=begin, go=go)

    def _loads(self, parts: int) -> tuple[Any, Any]:
        """begin of `functions`, and load(pool, there, step, tile), which starts the copies of a step's filters."""
        config, layer, words, ring = self.config, self.layer, self.words, constants.of(self.config, self)
        beyond = (parts * self.groups - 1) * config.block_n >= layer.F
        sizes = (config.block_n, self.chunk, self.chunk, config.threads, layer.F, words, words)
        load_filters = load_tile(*sizes, beyond=beyond)
        load_factors = int8_epilogue.load_factors(layer, config.block_n, config.threads, beyond)

        @cuda.jit(device=True, forceinline=True)
        def load_chunk(pool, at, w, b, m, f, chunk, t):
            load_filters(pool, at, w, uint32(0), f, uint32(chunk * uint32(ring.chunk)), t)
            if chunk == uint32(ring.chunks - 1):
                load_factors(pool, uint32(at + uint32(ring.block_n * ring.chunk)), b, m, f, t)

        @cuda.jit(device=True, forceinline=True)
        def begin(pool, w_at, w, b, m, f0, t):
            for step in range(ring.pipeline_stages - 1):
                if step < ring.groups * ring.chunks:
                    f = uint32(f0 + uint32(step // ring.chunks * ring.block_n))
                    load_chunk(pool, uint32(w_at + uint32(step * ring.step)), w, b, m, f, uint32(step % ring.chunks), t)
                ptx.commit()

        @cuda.jit(device=True, forceinline=True)
        def load(pool, there, step, tile):
            (w_at, w, b, m, f0, t), _ = tile
            f = uint32(f0 + step // uint32(ring.chunks) * uint32(ring.block_n))
            chunk = uint32(step % uint32(ring.chunks))
            load_chunk(pool, uint32(w_at + there), w, b, m, f, chunk, t)

        return begin, load

    def loaded(self, blocks: int) -> np.ndarray:
        """[requests, sectors] of so many blocks that each go through all filters: w, b and m."""
        words, config = self.words, self.config
        filters = tile_traffic(config.block_n, self.chunk, config.threads, self.layer.F, words, words)
        return blocks * (filters + int8_epilogue.factor_traffic(self.layer, config.block_n, config.threads))

    def stored(self, parts: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(row, filter) of each call of put in a block and warp, or in all blocks of `parts` that share the filters."""
        row, column = int8_epilogue.places(self.tile, self.layer.F)
        m = np.arange(0, self.config.block_m, self.config.warp_m)[:, None, None, None] + row
        n = np.arange(0, parts * self.groups * self.config.block_n, self.config.warp_n)[:, None, None] + column
        m, n = np.broadcast_arrays(m, n)
        return m.reshape(-1, 32), n.reshape(-1, 32)
