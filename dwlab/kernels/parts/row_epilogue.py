"""The end of a block whose outputs lie filter by filter: bias, activation, residual, and 8 pixels of a filter a store.

For float16 in NCHW, of sums as parts/mma_sparse.py has them: a lane's are pairs of neighbouring pixels of many filters.
Four lanes have a vector of 8 pixels between them; of four vectors each takes one whole (transpose4) and stores its 16
bytes. Where a map's pixels are not whole vectors, lanes store their pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue, ptx
from dwlab.kernels.parts import ptx_memory as memory
from dwlab.kernels.parts.load_async import vector_words
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, transpose4
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda


def store_rows(layer: Pointwise, tile: WarpTile) -> Any:
    """store(acc, lane, y, b, r, m0, n0, end): a warp's sums, of pixels from m0 on and before `end`, filters from n0.

    H W is even. tile: acc[2 run j + e] is pixel 8 j + 2 (lane % 4) of filter column(lane, e), and the next pixel's is
    acc[2 run j + run + e].
    """
    activate, bias, residual = epilogue.activate(layer.activation), layer.bias, layer.residual
    HW, F, RUN, J, column = layer.H * layer.W, layer.F, tile.run, tile.M // 32, tile.column
    WHOLE = vector_words(HW // 2) == 4

    @cuda.jit(device=True, forceinline=True)
    def word_of(m, f):
        return uint32((m // uint32(HW) * uint32(F) + f) * uint32(HW // 2) + m % uint32(HW) // uint32(2))

    def vectors(J: int, e: int) -> Any:
        """Four vectors of a filter, each in the pairs of four lanes."""

        @cuda.jit(device=True, forceinline=True)
        def vectors(acc, lane, y, b, r, m0, n0, end):
            words = cuda.local.array(4, float32)
            t, f = uint32(lane % uint32(4)), uint32(n0 + column(lane, e))
            plus = float32(0)
            if bias and f < uint32(F) and uint32(m0 + uint32(32 * J)) < end:
                pair = b[uint32(f // uint32(2))]
                low, high = ptx.halves(pair)
                plus = high if f % uint32(2) else low
            for q in range(4):
                at, m = (4 * J + q) * 2 * RUN + e, uint32(m0 + uint32(32 * J + 8 * q) + uint32(2) * t)
                p, s = acc[at], acc[at + RUN]
                if bias:
                    p, s = p + plus, s + plus
                p, s = activate(p), activate(s)
                if residual and f < uint32(F) and m < end:
                    r0, r1 = ptx.halves(r[word_of(m, f)])
                    p, s = p + r0, s + r1
                words[q] = ptx.join_halves(p, s)
                if not WHOLE and f < uint32(F) and m < end:
                    y[word_of(m, f)] = words[q]
            if WHOLE:
                w0, w1, w2, w3 = transpose4(lane, words[0], words[1], words[2], words[3])
                m = uint32(m0 + uint32(32 * J) + uint32(8) * t)
                if f < uint32(F) and m < end:
                    memory.store4(y, word_of(m, f), w0, w1, w2, w3)

        return vectors

    return in_sequence([vectors(j, e) for e in range(RUN) for j in range(J)])


def stored_rows(layer: Pointwise, images: int, tile: WarpTile) -> tuple[np.ndarray, np.ndarray]:
    """(loads, stores) of `store_rows` on all of y by warps of one tile each, from pixel and filter 0 on, each
    [requests, sectors]."""
    HW, F, M, whole = layer.H * layer.W, layer.F, images * layer.H * layer.W, vector_words(layer.H * layer.W // 2) == 4
    lane, load, store = np.arange(32), np.zeros(2, np.int64), np.zeros(2, np.int64)
    t, filters = lane % 4, np.array([tile.place(lane, e)[1] for e in range(tile.run)])[:, None]
    first = np.arange(0, M, 32)[None, :, None]
    q = 8 * np.arange(4)[:, None, None, None]
    for n0 in range(0, F, tile.N):
        f = n0 + filters

        def word(m, f=f):
            there = (f < F) & (m < M)
            return np.where(there, (m // HW * F + f) * (HW // 2) + m % HW // 2, -4)

        pairs = word(first + q + 2 * t).reshape(-1, 32)
        if layer.bias:
            at = np.broadcast_to(np.where(f < F, f // 2, -1), (tile.run, first.size, 32))
            load += warp_traffic(at.reshape(-1, 32))
        load += layer.residual * warp_traffic(np.where(pairs < 0, -1, pairs))
        if whole:
            store += warp_traffic(word(first + 8 * t).reshape(-1, 32) // 4, 2)
        else:
            store += warp_traffic(np.where(pairs < 0, -1, pairs))
    return load, store
