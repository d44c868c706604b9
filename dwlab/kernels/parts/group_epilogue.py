"""The end of a warp group's block: bias and activation, a residual, and stores of 16 bytes. Of 16-bit outputs.

As gemm_epilogue.eights, for a warp of 16 rows: the lanes of four trade their sums of 32 columns, and a lane then has
eight neighbours. Where rows of y are no whole sectors and are most of what a layer moves, neighbouring rows trade, too,
and a store has lines of 128 bytes (`by_lines`): of 64 bytes half a sector lies at either end. A block that is alone on
its multiprocessor has nothing to do while its epilogue waits for memory. So nothing is read where it is used: the
block's bias comes to shared memory with the first chunk, and a residual's vectors are requested 32 columns before they
are added.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import constants, epilogue, gemm_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.pieces import PACK, UNPACK
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, transpose4
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda


def load_bias(layer: Pointwise, layout: Layout) -> Any:
    """load(shared, b, across, thread): starts the copy of a block's bias, of 256 columns at most, behind its chunks."""
    BIAS, BN, N, at = layer.bias, layout.config.block_n, layout.one.N, layout.shared_bytes // 4

    @cuda.jit(device=True, forceinline=True)
    def load(shared, b, across, thread):
        if BIAS and thread < uint32(BN // 8):
            n = uint32(across * uint32(BN) + thread * uint32(8))
            ptx.copy4_async_zfill(shared, uint32(uint32(at) + thread * uint32(4)), b, uint32(n // 2), n < uint32(N))

    return load


def bias_traffic(BN: int, N: int) -> Any:
    """[requests, sectors] of `load_bias` of all blocks along the columns."""
    n = np.arange(0, N, BN)[:, None] + 8 * np.arange(32)
    return warp_traffic(np.where((n < N) & (np.arange(32) < BN // 8), n // 8, -1), 2)


def by_lines(layer: Pointwise, tile: WarpTile) -> bool:
    """Whether stores have 128 bytes of a row, not 64: outputs are most bytes, and a row of them is no whole sectors."""
    return tile.N >= 64 and layer.F * layer.itemsize % 32 != 0 and layer.F >= 4 * layer.C and not layer.residual


def stored(layer: Pointwise, tile: WarpTile) -> Any:
    """(loads, stores) of `finish` on all of y, each [requests, sectors]: without the bias's."""
    lane, places = np.arange(32), []
    if not by_lines(layer, tile):
        return gemm_epilogue.stored(replace(layer, bias=False), tile)
    for q in range(0, tile.N, 64):
        across, rows = (8, (0, 1)) if q + 64 <= tile.N else (4, (0,))  # vectors of a row in a store; its first row
        m, n = lane // across * len(rows), q + lane % across * 8
        places += [(i + row + m, n) for i in range(0, tile.M, 8) for row in rows]
    return gemm_epilogue.moved(replace(layer, bias=False), tile, places, 8)


def finish(layer: Pointwise, layout: Layout) -> Any:
    """store(acc, lane, shared, y, r, m0, n0, column): a warp's sums, its first row m0 and column n0, to y.

    column: the first of the block's, as `load_bias` has them, that is the warp's.
    """
    activate, bias, residual = epilogue.activate(layer.activation), layer.bias, layer.residual
    unpack, pack = UNPACK[layer.dtype], PACK[layer.dtype]
    block = constants.of(layout.one, bias_at=layout.shared_bytes // 4)

    @cuda.jit(device=True, forceinline=True)
    def fetch(ahead, r, lane, m0, n):
        if residual:
            for h in range(2):
                m = uint32(m0 + uint32(8 * h) + lane // uint32(4))
                if m < uint32(block.M) and n < uint32(block.N):
                    words = ptx.load4(r, uint32((m * uint32(block.N) + n) // uint32(2)))
                    for k in range(4):
                        ahead[4 * h + k] = words[k]

    def words(q: int, h: int) -> Any:  # 8 rows of 32 columns, by 16 bytes
        c = 4 * q + 2 * h

        @cuda.jit(device=True, forceinline=True)
        def words(acc, lane, more, added):
            for j in range(4):
                for e in range(2):
                    acc[c + 4 * j + e] = activate(acc[c + 4 * j + e] + more[2 * j + e])
            if residual:
                u0, u2, u4, u6 = transpose4(lane, acc[c], acc[c + 4], acc[c + 8], acc[c + 12])
                u1, u3, u5, u7 = transpose4(lane, acc[c + 1], acc[c + 5], acc[c + 9], acc[c + 13])
                r0, r1 = unpack(added[4 * h])
                r2, r3 = unpack(added[4 * h + 1])
                r4, r5 = unpack(added[4 * h + 2])
                r6, r7 = unpack(added[4 * h + 3])
                w0, w1 = pack(u0 + r0, u1 + r1), pack(u2 + r2, u3 + r3)
                w2, w3 = pack(u4 + r4, u5 + r5), pack(u6 + r6, u7 + r7)
            else:
                w0, w1 = pack(acc[c], acc[c + 1]), pack(acc[c + 4], acc[c + 5])
                w2, w3 = pack(acc[c + 8], acc[c + 9]), pack(acc[c + 12], acc[c + 13])
                w0, w1, w2, w3 = transpose4(lane, w0, w1, w2, w3)
            return w0, w1, w2, w3

        return words

    @cuda.jit(device=True, forceinline=True)
    def put(y, m, n, w0, w1, w2, w3):
        if m < uint32(block.M) and n < uint32(block.N):
            ptx.store4(y, uint32((m * uint32(block.N) + n) // uint32(2)), w0, w1, w2, w3)

    def rows(q: int, h: int) -> Any:
        of = words(q, h)

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, lane, y, more, added, m0, n):
            w0, w1, w2, w3 = of(acc, lane, more, added)
            put(y, uint32(m0 + uint32(8 * h) + lane // uint32(4)), n, w0, w1, w2, w3)

        return rows

    def lines(q: int, h: int) -> Any:  # 8 rows of 64 columns: of two neighbours each gives the other half of its own
        left, right = words(q, h), words(q + 4, h)

        @cuda.jit(device=True, forceinline=True)
        def lines(acc, lane, y, more, after, m0, n):
            a0, a1, a2, a3 = left(acc, lane, more, more)
            b0, b1, b2, b3 = right(acc, lane, after, after)
            odd = lane & uint32(4) != uint32(0)
            s0, s1, s2, s3 = (a0, a1, a2, a3) if odd else (b0, b1, b2, b3)
            s0, s1 = cuda.shfl_xor_sync(0xFFFFFFFF, s0, 4), cuda.shfl_xor_sync(0xFFFFFFFF, s1, 4)
            s2, s3 = cuda.shfl_xor_sync(0xFFFFFFFF, s2, 4), cuda.shfl_xor_sync(0xFFFFFFFF, s3, 4)
            a0, a1, a2, a3 = (s0, s1, s2, s3) if odd else (a0, a1, a2, a3)
            b0, b1, b2, b3 = (b0, b1, b2, b3) if odd else (s0, s1, s2, s3)
            m = uint32(m0 + uint32(8 * h) + lane // uint32(8) * uint32(2))
            put(y, m, n, a0, a1, a2, a3)
            put(y, uint32(m + uint32(1)), n, b0, b1, b2, b3)

        return lines

    @cuda.jit(device=True, forceinline=True)
    def read(more, shared, word):
        for j in range(4):
            more[2 * j], more[2 * j + 1] = float32(0), float32(0)
            if bias:
                more[2 * j], more[2 * j + 1] = unpack(shared[uint32(uint32(block.bias_at + 4 * j) + word)])

    def pair(q: int) -> Any:  # 64 columns
        every = in_sequence([lines(q, h) for h in range(2)])

        @cuda.jit(device=True, forceinline=True)
        def pair(acc, ahead, lane, shared, y, r, m0, n0, column):
            more, after = cuda.local.array(8, float32), cuda.local.array(8, float32)
            word = uint32(column // uint32(2) + uint32(4 * q) + lane % uint32(4))
            read(more, shared, word)
            read(after, shared, uint32(word + uint32(16)))
            every(acc, lane, y, more, after, m0, uint32(n0 + uint32(8 * q) + uint32(8) * (lane % uint32(8))))

        return pair

    def columns(q: int) -> Any:  # 32 columns
        every, LAST = in_sequence([rows(q, h) for h in range(2)]), 8 * q + 32 == layout.tile.N

        @cuda.jit(device=True, forceinline=True)
        def columns(acc, ahead, lane, shared, y, r, m0, n0, column):
            more, added = cuda.local.array(8, float32), cuda.local.array(8, float32)
            n, t = uint32(n0 + uint32(8 * q) + uint32(8) * (lane % uint32(4))), uint32(lane % uint32(4))
            for k in range(8):
                more[k], added[k] = float32(0), ahead[k]
            if not LAST:
                fetch(ahead, r, lane, m0, uint32(n + uint32(32)))
            if bias:
                for j in range(4):
                    word = uint32(column // uint32(2) + uint32(4 * (q + j)) + t)
                    more[2 * j], more[2 * j + 1] = unpack(shared[uint32(uint32(block.bias_at) + word)])
            every(acc, lane, y, more, added, m0, n)

        return columns

    wide, end = layout.tile.N // 64 * 8 if by_lines(layer, layout.tile) else 0, layout.tile.N // 8
    every = in_sequence([pair(q) for q in range(0, wide, 8)] + [columns(q) for q in range(wide, end, 4)])

    @cuda.jit(device=True, forceinline=True)
    def store(acc, lane, shared, y, r, m0, n0, column):
        ahead = cuda.local.array(8, float32)
        for k in range(8):
            ahead[k] = float32(0)
        fetch(ahead, r, lane, m0, uint32(n0 + uint32(8) * (lane % uint32(4))))
        every(acc, ahead, lane, shared, y, r, m0, n0, column)

    return store
