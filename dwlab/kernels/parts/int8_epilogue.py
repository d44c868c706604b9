"""The int8 epilogue: a warp's int32 sums (mma_ss of "int8") become int8 outputs, requantised, 16 bytes at a time.

A lane has the sums of neighbouring columns 2 t and 2 t + 1 of rows g and g + 8, in every 8 columns: two bytes here and
there. Four lanes of a row trade: of 16 rows x 32 columns each lane packs its 16 bytes into four words, the lanes
transpose them (`transpose4`), and then a lane has 16 neighbouring columns of one row. Two shuffles for each of four
words. Rows of y that are no whole vectors of 16 bytes take 8 bytes: then a lane packs, and has after the trade, 8
neighbouring columns of row g and the same of row g + 8, so that four lanes' stores are 32 bytes next to each other.

sum (x - zero_x) w = sum x w - zero_x sum w: the lanes' residual of sum w, behind the sums, are added up over the four
lanes of a column, and each lane fetches those of its own two columns.

The filters' factors m, and their biases b, come to shared memory with the filters (`load_factors`): a warp that loaded
them when its sums are done would wait for the L2 each time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import int8_words, ptx, requantisation
from dwlab.kernels.parts.load_async import load_tile, tile_traffic, vector_words
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, transpose4
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda

LOW, HIGH = 0x5410, 0x7632  # ptx.prmt: the lower, or the upper, two bytes of a word, then those of another


def wide(F: int) -> bool:
    """Whether rows of F bytes are whole vectors of 16: else outputs go there 8 columns at a time."""
    return F % 16 == 0


def factor_words(layer: Pointwise, BN: int) -> int:
    """Words of shared memory for m, and b if the layer has one, of BN filters."""
    return (1 + layer.bias) * BN


def load_factors(layer: Pointwise, BN: int, threads: int, beyond: bool = False) -> Any:
    """load(pool, at, b, m, n0, t): starts copies of m, then b if the layer has one, of BN filters to word `at` on.

    From filter n0 on, a multiple of BN, BN one of 4; what is beyond the last filter is 0. threads, beyond: as
    `load_tile` has them.
    """
    BIAS, LINES = layer.bias, BN // 4
    some = load_tile(LINES, 4, 4, threads, layer.F // 4, 4, 4, swizzled=False, beyond=beyond)

    @cuda.jit(device=True, forceinline=True)
    def load(pool, at, b, m, n0, t):
        line0 = uint32(n0 // uint32(4))
        some(pool, at, m, uint32(0), line0, uint32(0), t)
        if BIAS:
            some(pool, uint32(at + uint32(BN)), b, uint32(0), line0, uint32(0), t)

    return load


def factor_traffic(layer: Pointwise, BN: int, threads: int) -> Any:
    """[requests, sectors] of `load_factors` of all filters once, BN at a time."""
    return (1 + layer.bias) * tile_traffic(BN // 4, 4, threads, layer.F // 4, 4, 4)


def requantise_tile(layer: Pointwise, tile: WarpTile, BN: int, put: Any, get: Any = None, halves: bool = False) -> Any:
    """finish(acc, lane, y, pool, at, r, m0, n0): requantises a warp's sums and hands them to `put`, 16 columns at once.

    put(y, row, column, w0, w1, w2, w3): words of 4 int8, of row row - m0 and of columns from column - n0 on, a
    multiple of 16. n0: the filter of the tile's first column. pool[at] is its m, as `load_factors` of BN filters has
    it; columns from F on get any numbers. get(r, row, column) -> w0, w1, w2, w3: what a residual adds there. All 32
    lanes come. halves: 8 columns at a time, put(y, row, column, w0, w1) and get(r, row, column) -> w0, w1.
    """
    ZERO, BIAS, F, NJ, SIZE = layer.zero_x, layer.bias, layer.F, tile.N // 8, tile.size
    requantise = requantisation.requantise(replace(layer, bias=True), packed=True)  # of what a sum begins with
    store_lane, residual = _by_eights(put, get) if halves else _by_sixteens(put, get)
    if not layer.residual:
        residual = _nothing
    if tile.N % 32 or F % 4:
        raise ValueError(f"{tile.N} columns of a warp's tile must be a multiple of 32, and {F} filters of 4")

    def rows(i: int, q: int) -> Any:  # 16 rows, columns 8 q to 8 q + 31
        FIRST = 4 * (NJ * i + q)

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, begin, factor, lane, y, r, m0, n0):
            words = cuda.local.array(4, int32)
            added = cuda.local.array(4, int32)
            row, column = uint32(m0 + uint32(16 * i)), uint32(n0 + uint32(8 * q))
            added[0], added[1], added[2], added[3] = residual(r, lane, row, column)
            for e in range(4):  # a word: two columns, k and k + 1, and two that are other columns or those of row g + 8
                k = 2 * e if halves else e % 2 * 4
                c, other = FIRST + (4 * e if halves else e % 2 * 8 + e // 2 * 2), 0 if halves else 2
                d = c + (2 if halves else 4)
                own = added[e]
                v0 = requantise(acc[c], begin, factor, k, int8_words.byte(own, 0))
                v1 = requantise(acc[c + 1], begin, factor, k + 1, int8_words.byte(own, 1))
                v2 = requantise(acc[d], begin, factor, k + other, int8_words.byte(own, 2))
                v3 = requantise(acc[d + 1], begin, factor, k + other + 1, int8_words.byte(own, 3))
                words[e] = ptx.pack_s8(v0, v1, v2, v3)
            w0, w1, w2, w3 = transpose4(lane, words[0], words[1], words[2], words[3])
            low, high = int32(LOW), int32(HIGH)  # a word has two bytes of 8 outputs, then two of the next 8
            a, b = ptx.prmt(w0, w1, low), ptx.prmt(w2, w3, low)
            store_lane(y, lane, row, column, a, b, ptx.prmt(w0, w1, high), ptx.prmt(w2, w3, high))

        return rows

    def columns(q: int) -> Any:  # 32 columns: what their sums begin with, and their factors
        every = in_sequence([rows(i, q) for i in range(tile.M // 16)])

        @cuda.jit(device=True, forceinline=True)
        def inside(acc, lane, y, pool, at, r, m0, n0):
            begin = cuda.local.array(8, int32)
            factor = cuda.local.array(8, float32)
            t = uint32(lane % uint32(4))
            for j in range(4):
                one = uint32(at + uint32(8 * (q + j)) + uint32(2) * t)
                factor[2 * j], factor[2 * j + 1] = pool[one], pool[uint32(one + uint32(1))]
                begin[2 * j] = begin[2 * j + 1] = int32(0)
                if BIAS:
                    begin[2 * j] = ptx.word_of_float(pool[uint32(one + uint32(BN))])
                    begin[2 * j + 1] = ptx.word_of_float(pool[uint32(one + uint32(BN + 1))])
                if ZERO:
                    share = acc[SIZE + q + j]
                    share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 1))
                    share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 2))  # of column lane // 4
                    first = cuda.shfl_sync(0xFFFFFFFF, share, uint32(t * uint32(8)))
                    second = cuda.shfl_sync(0xFFFFFFFF, share, uint32(t * uint32(8) + uint32(4)))
                    begin[2 * j] = int32(begin[2 * j] - int32(ZERO) * first)
                    begin[2 * j + 1] = int32(begin[2 * j + 1] - int32(ZERO) * second)
            every(acc, begin, factor, lane, y, r, m0, n0)

        if F % tile.N == 0:
            return inside

        @cuda.jit(device=True, forceinline=True)
        def columns(acc, lane, y, pool, at, r, m0, n0):
            if uint32(n0 + uint32(8 * q)) < uint32(F):  # of all lanes, or none: the last tile may lie beyond F
                inside(acc, lane, y, pool, at, r, m0, n0)

        return columns

    return in_sequence([columns(q) for q in range(0, NJ, 4)])


def _by_sixteens(put: Any, get: Any) -> tuple[Any, Any]:
    """store_lane(y, lane, row, column, a, b, c, d) and residual(r, lane, row, column) of 16 rows x 32 columns.

    store_lane: a lane's 16 bytes to `put`. residual -> 4 words: those of `get`, traded so that each lane has those of
    its sums: the outputs' way backwards, as transposing four lanes' four words twice leaves them as they were.
    """

    @cuda.jit(device=True, forceinline=True)
    def place(lane, row, column):
        t = uint32(lane % uint32(4))
        return uint32(row + lane // uint32(4) + t // uint32(2) * uint32(8)), uint32(column + t % uint32(2) * uint32(16))

    @cuda.jit(device=True, forceinline=True)
    def store_lane(y, lane, row, column, a, b, c, d):
        m, n = place(lane, row, column)
        put(y, m, n, a, b, c, d)

    @cuda.jit(device=True, forceinline=True)
    def residual(r, lane, row, column):
        m, n = place(lane, row, column)
        a, b, c, d = get(r, m, n)
        return _back(lane, a, b, c, d)

    return store_lane, residual


def _by_eights(put: Any, get: Any) -> tuple[Any, Any]:
    """`_by_sixteens` for 8 bytes of row g and 8 of row g + 8."""

    @cuda.jit(device=True, forceinline=True)
    def store_lane(y, lane, row, column, a, b, c, d):
        m, n = uint32(row + lane // uint32(4)), uint32(column + lane % uint32(4) * uint32(8))
        put(y, m, n, a, b)
        put(y, uint32(m + uint32(8)), n, c, d)

    @cuda.jit(device=True, forceinline=True)
    def residual(r, lane, row, column):
        m, n = uint32(row + lane // uint32(4)), uint32(column + lane % uint32(4) * uint32(8))
        a, b = get(r, m, n)
        c, d = get(r, uint32(m + uint32(8)), n)
        return _back(lane, a, b, c, d)

    return store_lane, residual


@cuda.jit(device=True, forceinline=True)
def _back(lane, a, b, c, d):
    """A lane's 16 bytes of outputs, traded back to the lanes that have the sums."""
    low, high = int32(LOW), int32(HIGH)
    return transpose4(lane, ptx.prmt(a, c, low), ptx.prmt(a, c, high), ptx.prmt(b, d, low), ptx.prmt(b, d, high))


@cuda.jit(device=True, forceinline=True)
def _nothing(r, lane, row, column):
    """The `residual` of a layer without a residual."""
    return int32(0), int32(0), int32(0), int32(0)


def store(F: int) -> Any:
    """store(y, m, n, w0, w1, w2, w3): 16 bytes to row m of y, rows of F bytes as words; filters from F on are not.

    Where rows are no whole vectors of 16, 8 bytes: store(y, m, n, w0, w1).
    """
    PAIRS = F % 8 == 0

    if wide(F):

        @cuda.jit(device=True, forceinline=True)
        def store(y, m, n, w0, w1, w2, w3):
            v0, v1, v2, v3 = ptx.float_of_word(w0), ptx.float_of_word(w1), ptx.float_of_word(w2), ptx.float_of_word(w3)
            if n < uint32(F):
                ptx.store4(y, uint32((m * uint32(F) + n) // uint32(4)), v0, v1, v2, v3)

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(y, m, n, w0, w1):
            v0, v1, at = ptx.float_of_word(w0), ptx.float_of_word(w1), uint32((m * uint32(F) + n) // uint32(4))
            if n < uint32(F):
                if PAIRS:
                    ptx.store2(y, at, v0, v1)
                else:
                    y[at] = v0
                    if uint32(n + uint32(4)) < uint32(F):
                        y[uint32(at + uint32(1))] = v1

    return store


def load(F: int) -> Any:
    """load(r, m, n, there) -> the words that `store` takes, from there; else, and of filters from F on, any numbers."""
    PAIRS = F % 8 == 0

    if wide(F):

        @cuda.jit(device=True, forceinline=True)
        def load(r, m, n, there):
            v0 = v1 = v2 = v3 = float32(0)
            if there and n < uint32(F):
                v0, v1, v2, v3 = ptx.load4(r, uint32((m * uint32(F) + n) // uint32(4)))
            return ptx.word_of_float(v0), ptx.word_of_float(v1), ptx.word_of_float(v2), ptx.word_of_float(v3)

    else:

        @cuda.jit(device=True, forceinline=True)
        def load(r, m, n, there):
            v0 = v1 = float32(0)
            at = uint32((m * uint32(F) + n) // uint32(4))
            if there and n < uint32(F):
                if PAIRS:
                    v0, v1 = ptx.load2(r, at)
                else:
                    v0 = r[at]
                    if uint32(n + uint32(4)) < uint32(F):
                        v1 = r[uint32(at + uint32(1))]
            return ptx.word_of_float(v0), ptx.word_of_float(v1)

    return load


def at_rows(place: Any, F: int) -> tuple[Any, Any]:
    """put and get of `requantise_tile`, halves if not `wide`: place(m) -> (whether there is such a row, which of y)."""
    store_row, load_row = store(F), load(F)

    @cuda.jit(device=True, forceinline=True)
    def put(y, m, n, *words):
        there, row = place(m)
        if there:
            store_row(y, row, n, *words)

    @cuda.jit(device=True, forceinline=True)
    def get(r, m, n):
        there, row = place(m)
        return load_row(r, row, n, there)

    return put, get


def rows_of(M: int, F: int) -> tuple[Any, Any, bool]:
    """put(y, m, n, w0, w1, w2, w3), get(r, m, n) and halves of `requantise_tile`: `store` and `load` of row m of M."""

    @cuda.jit(device=True, forceinline=True)
    def place(m):
        return m < uint32(M), m

    return *at_rows(place, F), not wide(F)


def tiles_of(P: int, Q: int, TH: int, TW: int, F: int) -> tuple[Any, Any, bool]:
    """put, get and halves of `requantise_tile` where rows are pixels of tiles: row TH TW b + i is pixel i of tile b.

    Tiles, of TH x TW, follow each other along a row of tiles of a map of P x Q, then down, then through the images.
    """
    ACROSS, DOWN = -(-Q // TW), -(-P // TH)

    @cuda.jit(device=True, forceinline=True)
    def place(m):
        """(whether the row is a pixel, its number)"""
        tile, i = uint32(m // uint32(TH * TW)), uint32(m % uint32(TH * TW))
        p = uint32(tile // uint32(ACROSS) % uint32(DOWN) * uint32(TH) + i // uint32(TW))
        q = uint32(tile % uint32(ACROSS) * uint32(TW) + i % uint32(TW))
        image = uint32(tile // uint32(ACROSS * DOWN))
        return p < uint32(P) and q < uint32(Q), uint32((image * uint32(P) + p) * uint32(Q) + q)

    return *at_rows(place, F), not wide(F)


def store_traffic(F: int, m: np.ndarray, n: np.ndarray) -> np.ndarray:
    """[requests, sectors] of `store` by warps: rows (-1: none) and columns of their lanes, which are the last axis."""
    m, n = (axis.reshape(-1, 32) for axis in np.broadcast_arrays(m, n))
    at, there = (m * F + n) // 4, (m >= 0) & (n < F)
    size = vector_words(F // 4)
    if size > 1:
        return warp_traffic(np.where(there, at // size, -1), 8 // size)
    return warp_traffic(np.where(there, at, -1)) + warp_traffic(np.where(there & (n + 4 < F), at + 1, -1))


def places(tile: WarpTile, F: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) in a warp's tile of each call of `put`, (calls, 32 lanes), where rows of y are F bytes long."""
    lane = np.arange(32)
    if wide(F):
        i, q = (axis.reshape(-1, 1) for axis in np.mgrid[0 : tile.M : 16, 0 : tile.N : 32])
        return i + lane // 4 + lane % 4 // 2 * 8, q + lane % 2 * 16
    i, q = (axis.reshape(-1, 1) for axis in np.mgrid[0 : tile.M : 8, 0 : tile.N : 32])
    return i + lane // 4, q + lane % 4 * 8


K_TILE = 32  # words of channels in a chunk, at most


def k_tile(words: int) -> int:
    """Words of a chunk, where channels are so many: whole products of 8, as few as the same number of chunks needs."""
    return -(-words // (-(-words // K_TILE) * 8)) * 8
