"""The end of a block whose lanes hold runs of neighbouring outputs: bias, activation, residual, and one store a run.

For float16 in NHWC. A run of 2, 4 or 8 sums is one pixel's neighbouring filters: 4, 8 or 16 bytes, whole where the
layer's filters are whole runs, else word by word.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue, gemm_epilogue, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile
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


def stored_runs(layer: Pointwise, tile: WarpTile) -> Any:
    """(loads, stores) of `store_runs` on all of Y, each [requests, sectors]."""
    each, lane = _piece(product(layer), tile), np.arange(32)
    return gemm_epilogue.moved(layer, tile, [tile.place(lane, i) for i in range(0, tile.size, each)], each)
