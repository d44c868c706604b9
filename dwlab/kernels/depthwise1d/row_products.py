"""Unrolled sums of a row that a lane reads from shared memory and writes there, 8 elements at a time.

The products are those of straight_line.py; rows.py says how a lane's row lies in the tile. So of the three arrays that
meet, one passes through 8 registers, and only the other two are held whole.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.kernels.depthwise1d import rows
from dwlab.kernels.depthwise1d.straight_line import BLOCK, block, places, taps, taps_of, window
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda


def held(problem: DepthwiseConv1d, most: int) -> bool:
    """Whether a row, and the taps that meet it, are at most so many; of 16 bits whole vectors, and all taps."""
    if problem.itemsize == 4:
        return problem.L <= most and window(problem.L, problem.K, problem.shift)[1] <= most
    return problem.L <= most and problem.K <= most and problem.L * problem.itemsize % 16 == 0


@functools.cache
def row_to_tile(L: int, K: int, shift: int, reverse: bool = False, dtype: str = "float32") -> Any:
    """The device function set(tile, own, s, w, x): y[t] as in `row`, to a lane's own row in the shared array `tile`.

    own, s: where the row begins, and its swizzle (rows.py). w and x are local arrays of K and L float32. 8 outputs are
    summed up in registers at a time. reverse: the filter is taken from its last tap on. dtype: of the row in the tile.
    """
    return in_sequence([_outputs_of_8(L, K, shift, t0, reverse, dtype) for t0 in range(0, L, BLOCK)])


def _outputs_of_8(L: int, K: int, shift: int, t0: int, reverse: bool, dtype: str) -> Any:
    here = [block(0, j0, min(BLOCK, L - t0), K, shift, L, t0, reverse) for t, j0 in places(L, K, shift) if t == t0]
    products, write = in_sequence(here), rows.write(L, dtype, t0, BLOCK)

    @cuda.jit(device=True, forceinline=True)
    def store(tile, own, s, w, x):
        y = cuda.local.array(BLOCK, float32)
        for i in range(BLOCK):
            y[i] = float32(0)
        products(y, w, x)
        write(y, tile, own, s)

    return store


@functools.cache
def row_taps(L: int, K: int, shift: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dy, tile, own, s): the weight gradient of a row, its x a lane's own row in `tile`.

    own, s, dtype: as in row_to_tile. dw and dy are local arrays of K and L float32; x is read 8 elements at a time.
    """
    return in_sequence([_taps_of_8(L, K, shift, s0, dtype) for s0 in range(0, L, BLOCK)])


def _taps_of_8(L: int, K: int, shift: int, s0: int, dtype: str) -> Any:
    products, read = taps(L, K, shift, s0), rows.read(L, dtype, s0, BLOCK)

    @cuda.jit(device=True, forceinline=True)
    def add(dw, dy, tile, own, s):
        x = cuda.local.array(BLOCK, float32)
        read(x, tile, own, s)
        products(dw, dy, x)

    return add


@functools.cache
def row_backward(L: int, K: int, shift: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dy, tile, own, s, filters, w_at): both gradients of a row.

    dw and dy are local arrays of K and L float32; x is a lane's own row in `tile`, as in row_to_tile, and dx takes its
    place; the filter begins at word `w_at` of `filters`. x and dx pass through 8 registers each.
    """
    return in_sequence([_backward_of_8(L, K, shift, s0, dtype) for s0 in range(0, L, BLOCK)])


def _backward_of_8(L: int, K: int, shift: int, s0: int, dtype: str) -> Any:
    read, write = rows.read(L, dtype, s0, BLOCK), rows.write(L, dtype, s0, BLOCK)
    sums_of_taps = taps(L, K, shift, s0)
    here = [_products_with_dy(L, K, shift, s0, j0) for j0 in taps_of(L, K, shift, s0)]
    products = in_sequence(here)

    @cuda.jit(device=True, forceinline=True)
    def add(dw, dy, tile, own, s, filters, w_at):
        x = cuda.local.array(BLOCK, float32)
        dx = cuda.local.array(BLOCK, float32)
        read(x, tile, own, s)
        for i in range(BLOCK):
            dx[i] = float32(0)
        sums_of_taps(dw, dy, x)
        products(dx, dy, filters, w_at)
        write(dx, tile, own, s)

    return add


def _products_with_dy(L: int, K: int, shift: int, s0: int, j0: int) -> Any:
    quads = -(-min(BLOCK, K - j0) // 4)

    @cuda.jit(device=True, forceinline=True)
    def add(dx, dy, filters, w_at):
        w = cuda.local.array(BLOCK, float32)
        for m in range(quads):
            a, b, c, d = ptx.load4_shared(filters, uint32(w_at + uint32(j0 + 4 * m)))
            w[4 * m], w[4 * m + 1], w[4 * m + 2], w[4 * m + 3] = a, b, c, d
        for j in range(BLOCK):
            for i in range(BLOCK):
                t = s0 + i - shift + j0 + j
                if s0 + i < L and j0 + j < K and 0 <= t and t < L:
                    dx[i] += w[j] * dy[t]

    return add
