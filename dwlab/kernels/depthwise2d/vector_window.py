"""The register sliding window of `wide`: rows of 16-byte vectors of x, a filter, and the sums that they add to.

A step of the window has min(K, S) rows of x, for T neighbouring columns of outputs (T - 1) * S + K vectors of each. It
adds to the sums of -(-K // S) rows of outputs, the oldest last. For K <= 3 the filter is in registers too, for larger
ones it waits in shared memory as float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise2d import vectors
from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_turn
from dwlab.problems.layers import DepthwiseConv2d


class Sizes(NamedTuple):
    """deep: rows of sums. rows, columns: of x, of a step. words: that they are. values, sums, taps, w_tile: float32."""

    deep: int
    rows: int
    columns: int
    words: int
    values: int
    sums: int
    taps: int
    w_tile: int


def in_registers(layer: DepthwiseConv2d) -> bool:
    """Whether the filter is; else it is in shared memory."""
    return layer.K <= 3


def sizes(layer: DepthwiseConv2d, T: int, G: int) -> Sizes:
    """For threads of T columns, in blocks with G vectors of channels."""
    K, S, V = layer.K, layer.stride, pieces.elements(layer.dtype)
    deep, rows, columns = -(-K // S), min(K, S), (T - 1) * S + K
    taps, w_tile = (K * K * V, 4) if in_registers(layer) else (4, K * K * G * V)
    return Sizes(deep, rows, columns, rows * columns * 4, rows * columns * V, deep * T * V, taps, w_tile)


def load_rows(layer: DepthwiseConv2d, T: int) -> Any:
    """load(x_words, x, base, h, bottom, v): a step's rows of x, from row h and column v on; zeros outside of the map.

    base: word of the first. Rows from `bottom` on are not loaded.
    """
    W, S, PIXEL = layer.W, layer.stride, pieces.words(layer.C, layer.dtype)
    ROWS, COLUMNS = min(layer.K, S), (T - 1) * S + layer.K

    def one(s: int, j: int) -> Any:
        place, to = (s * W + j) * PIXEL, (s * COLUMNS + j) * 4

        @cuda.jit(device=True, forceinline=True)
        def load(x_words, x, base, h, bottom, v):
            if uint32(h + s) < uint32(bottom) and uint32(v + j) < uint32(W):
                a, b, c, d = ptx.load4(x, base + place)
            else:
                a = b = c = d = float32(0)
            x_words[to], x_words[to + 1], x_words[to + 2], x_words[to + 3] = a, b, c, d

        return load

    return in_turn([one(s, j) for s in range(ROWS) for j in range(COLUMNS)])


def load_filter(layer: DepthwiseConv2d, G: int, TILES: int) -> Any:
    """load(taps, w_tile, spare, w, c, lane, there): the filters of a block of G x TILES threads, c: a thread's vector.

    Into the local array `taps` of those that are there, or by all threads into the shared w_tile; they then wait for
    each other. spare: a local array of a vector.
    """
    K, V, PIXEL = layer.K, pieces.elements(layer.dtype), pieces.words(layer.C, layer.dtype)
    IN_REGISTERS, VECTORS, get = in_registers(layer), PIXEL // 4, vectors.load(layer.dtype)

    @cuda.jit(device=True, forceinline=True)
    def load(taps, w_tile, spare, w, c, lane, there):
        if IN_REGISTERS:
            if there:
                for tap in range(K * K):
                    get(taps, tap * V, w, uint32(c * uint32(4) + uint32(tap * PIXEL)))
        else:
            i = uint32(cuda.threadIdx.y)
            while i < uint32(K * K):
                if c < uint32(VECTORS):
                    get(spare, 0, w, uint32(c * uint32(4) + i * uint32(PIXEL)))
                    for part in range(V // 4):
                        at = uint32(i * uint32(G * V) + lane * uint32(V) + uint32(4 * part))
                        k = 4 * part
                        ptx.store4_shared(w_tile, at, spare[k], spare[k + 1], spare[k + 2], spare[k + 3])
                i = uint32(i + uint32(TILES))
            cuda.syncthreads()

    return load


def multiply_add(layer: DepthwiseConv2d, T: int, G: int) -> Any:
    """multiply_add(sums, values, taps, w_tile, lane): all products of a step; values: its rows of x as float32."""
    K, S, V, IN_REGISTERS = layer.K, layer.stride, pieces.elements(layer.dtype), in_registers(layer)
    DEEP, ROWS, COLUMNS = -(-K // S), min(K, S), (T - 1) * S + K

    def one(s: int, deep: int, j: int) -> Any:
        tap, first, above = (s + S * deep) * K + j, deep * T * V, (s * COLUMNS + j) * V

        @cuda.jit(device=True, forceinline=True)
        def multiply_add(sums, values, taps, w_tile, lane):
            if IN_REGISTERS:
                for e in range(T):
                    for k in range(V):
                        sums[first + e * V + k] += taps[tap * V + k] * values[above + e * S * V + k]
            else:
                for part in range(V // 4):
                    f0, f1, f2, f3 = ptx.load4_shared(w_tile, uint32(lane * uint32(V) + uint32(tap * G * V + 4 * part)))
                    for e in range(T):
                        to, of = first + e * V + 4 * part, above + e * S * V + 4 * part
                        sums[to] += f0 * values[of]
                        sums[to + 1] += f1 * values[of + 1]
                        sums[to + 2] += f2 * values[of + 2]
                        sums[to + 3] += f3 * values[of + 3]

        return multiply_add

    return in_turn([one(s, deep, j) for s in range(ROWS) for deep in range(DEEP) for j in range(K) if s + S * deep < K])


def store_row(layer: DepthwiseConv2d, T: int) -> Any:
    """store(y, r, out, q, sums, bias): the row of outputs that is done, from word `out` and column q on."""
    V, Q, PIXEL = pieces.elements(layer.dtype), layer.Q, pieces.words(layer.C, layer.dtype)
    LAST = (-(-layer.K // layer.stride) - 1) * T * V  # where the sums begin
    activated, put = vectors.activated(layer), vectors.store(layer.dtype)
    add_residual = vectors.add_residual(layer.residual, layer.dtype)

    @cuda.jit(device=True, forceinline=True)
    def store(y, r, out, q, sums, bias):
        for e in range(T):
            if q + uint32(e) < uint32(Q):
                for k in range(V):
                    sums[LAST + e * V + k] = activated(sums[LAST + e * V + k], bias, k)
                add_residual(sums, LAST + e * V, r, out + e * PIXEL)
                put(y, out + e * PIXEL, sums, LAST + e * V)

    return store
