"""The end of a block whose lanes hold runs of neighbouring outputs: bias, activation, residual, and one store a run.

For float16 in NHWC. A run of 2, 4 or 8 sums is one pixel's neighbouring filters: 4, 8 or 16 bytes, whole where the
layer's filters are whole runs, else word by word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda


def _write(width: int) -> Any:
    """write(array, index, values): so many words, 1, 2 or 4, to a global array at once."""
    if width == 4:

        @cuda.jit(device=True, forceinline=True)
        def write(array, index, values):
            ptx.store4(array, index, values[0], values[1], values[2], values[3])

    elif width == 2:

        @cuda.jit(device=True, forceinline=True)
        def write(array, index, values):
            ptx.store2(array, index, values[0], values[1])

    else:

        @cuda.jit(device=True, forceinline=True)
        def write(array, index, values):
            array[index] = values[0]

    return write


def _piece(one: Product, tile: WarpTile) -> int:
    """Sums of a run that go out at once: all, if filters are whole runs, else two."""
    return tile.run if one.N % tile.run == 0 else 2


def store_runs(layer: Pointwise, one: Product, tile: WarpTile) -> Any:
    """store(acc, lane, y, b, r, m0, n0): a warp's sums, of rows from m0 on and columns from n0; N is even."""
    activate, bias, residual = epilogue.activate(layer.activation), layer.bias, layer.residual
    EACH = _piece(one, tile)
    M, N, WORDS, row, column = one.M, one.N, EACH // 2, tile.row, tile.column
    unpack, pack, read, write = pieces.UNPACK["float16"], pieces.PACK["float16"], pieces.read(WORDS), _write(WORDS)

    def run(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def run(acc, lane, y, b, r, m0, n0):
            words = cuda.local.array(WORDS, float32)
            m, n = uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i))
            if m < uint32(M) and n < uint32(N):
                at = uint32((m * uint32(N) + n) // uint32(2))
                if bias:
                    read(words, 0, b, uint32(n // uint32(2)))
                    for q in range(WORDS):
                        b0, b1 = unpack(words[q])
                        acc[i + 2 * q] += b0
                        acc[i + 2 * q + 1] += b1
                for e in range(EACH):
                    acc[i + e] = activate(acc[i + e])
                if residual:
                    read(words, 0, r, at)
                    for q in range(WORDS):
                        r0, r1 = unpack(words[q])
                        acc[i + 2 * q] += r0
                        acc[i + 2 * q + 1] += r1
                for q in range(WORDS):
                    words[q] = pack(acc[i + 2 * q], acc[i + 2 * q + 1])
                write(y, at, words)

        return run

    return in_sequence([run(i) for i in range(0, tile.size, EACH)])


def stored_runs(layer: Pointwise, tile: WarpTile) -> Traffic:
    """The traffic of `store_runs` on all of Y, by warps of one tile each that cover it from row and column 0 on."""
    one, lane = product(layer), np.arange(32)
    each = _piece(one, tile)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    runs = [tile.place(lane, i) for i in range(0, tile.size, each)]
    m_of, n_of = np.array([run[0] for run in runs]), np.array([run[1] for run in runs])
    n0 = np.arange(0, one.N, tile.N)[:, None, None]
    for m0 in range(0, one.M, tile.M):
        m, n = np.broadcast_to(m0 + m_of, (len(n0), *m_of.shape)).reshape(-1, 32), (n0 + n_of).reshape(-1, 32)
        inside = (m < one.M) & (n < one.N)
        found = warp_traffic(np.where(inside, (m * one.N + n) // each, -1), 16 // each)
        store += found
        load += found * layer.residual
        if layer.bias:
            load += warp_traffic(np.where(inside, n // each, -1), 16 // each)
    return Traffic(*load, *store)
