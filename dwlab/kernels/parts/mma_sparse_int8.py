"""A warp's product with sparse int8 filters on tensor cores: mma_sparse with words of four int8, and its outputs.

Words lie as in parts/mma_sparse.py, and a lane's sums of a pixel are 2 MI neighbouring filters again: of int8 one word
or two, so that it requantises and stores them without a word to another lane. Of a step's 64 columns a filter has two
words of metadata, and each lane takes one of them; in shared memory they lie in two runs, for columns 0 to 31 and 32 to
63 of all rows. The second step's have rows 0 to 7 and 8 to 15 of each 16 exchanged: a warp copies four words of 8 rows.

sum (x - zero_x) w = sum x w - zero_x sum w: a lane adds up the words of w that it has for the products anyway; its rows
are the filters of its sums, so the four lanes of a row need only add up their shares.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import int8_words, ptx, requantisation
from dwlab.kernels.parts.fragments import load_a, load_b
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.mma_ss import ONES
from dwlab.kernels.parts.pieces import read
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.target import cuda


@cuda.jit(device=True, forceinline=True)
def _mma_words(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, places):
    """ptx.mma_sp_s8 of operands that are words of a float32 array."""
    return ptx.mma_sp_s8(
        c0, c1, c2, c3, ptx.word_of_float(a0), ptx.word_of_float(a1), ptx.word_of_float(a2), ptx.word_of_float(a3),
        ptx.word_of_float(b0), ptx.word_of_float(b1), ptx.word_of_float(b2), ptx.word_of_float(b3), places,
    )  # fmt: skip


@functools.cache
def mma_sparse_int8(M: int, N: int, steps: int, x_pitch: int, e_pitch: int, weights: bool) -> WarpTile:
    """M pixels x N filters, N 32 or 64, of `steps`, 1 or 2, times 64 columns a call.

    add(acc, shared, x0, w0, e0, lane), acc int32, as `mma_sparse` has it; a run of metadata is e_pitch words after the
    one before. weights: acc[size + e] += the lane's share of the weights of the filter of its sums acc[e].
    """
    MI, NJ, RUN = N // 16, M // 8, N // 8
    add = in_turn([_step(s, MI, NJ, steps, x_pitch, e_pitch, weights) for s in range(steps)])

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // RUN // 2 * 8 + i // RUN % 2) + uint32(2) * (lane % uint32(4)))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(i % RUN) + uint32(RUN) * (lane // uint32(4)))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // RUN // 2 * 8 + i // RUN % 2 + 2 * (lane % 4), i % RUN + RUN * (lane // 4)

    size = RUN * 2 * NJ
    return WarpTile(M, N, 0, size, RUN, zeros(size + RUN, int32), add, row, column, place, RUN)


def _step(s: int, MI: int, NJ: int, steps: int, x_pitch: int, e_pitch: int, weights: bool) -> Any:
    """The products of 64 columns: metadata and weights are read, then pixels, 16 at a time."""
    load_w, load_x, LEFT, RUN, SIZE = load_a(MI, 8 * steps), load_b(x_pitch), 4 * MI, 2 * MI, 4 * MI * NJ

    def rows(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def rows(acc, j, left, right, first, places):
            c = 2 * RUN * j + 2 * i
            acc[c], acc[c + RUN], acc[c + 1], acc[c + RUN + 1] = _mma_words(
                acc[c], acc[c + RUN], acc[c + 1], acc[c + RUN + 1], left[4 * i], left[4 * i + 1], left[4 * i + 2],
                left[4 * i + 3], right[first], right[first + 1], right[first + 2], right[first + 3], places[i]
            )  # fmt: skip

        return rows

    products = in_turn([rows(i) for i in range(MI)])

    @cuda.jit(device=True, forceinline=True)
    def step(acc, shared, x0, w0, e0, lane):
        left = cuda.local.array(LEFT, float32)
        right = cuda.local.array(8, float32)
        four = cuda.local.array(4, float32)
        places = cuda.local.array(MI, int32)
        g, t = uint32(lane // uint32(4)), uint32(lane % uint32(4))
        load_w(left, shared, w0, lane, s)
        line = uint32(t % uint32(2) ^ uint32(s)) * uint32(8) + g
        line = uint32(e0 + (uint32(2 * s) + t // uint32(2)) * uint32(e_pitch) + line)
        for i in range(MI):
            places[i] = ptx.word_of_float(shared[uint32(line + uint32(16 * i))])
        if weights:
            for k in range(LEFT):
                e = SIZE + k // 4 * 2 + k % 2
                acc[e] = ptx.dp4a(ptx.word_of_float(left[k]), int32(ONES), acc[e])
        for j in range(NJ // 2):
            for h in range(2):
                load_x(four, shared, x0, lane, 2 * s + h, j)
                right[2 * h], right[2 * h + 1] = four[0], four[1]
                right[4 + 2 * h], right[5 + 2 * h] = four[2], four[3]
            products(acc, 2 * j, left, right, 0, places)
            products(acc, 2 * j + 1, left, right, 4, places)

    return step


def requantise_runs(layer: Any, one: Product, tile: WarpTile) -> Any:
    """finish(acc, lane, y, b, m, r, m0, n0): a warp's sums as int8, of rows from m0 and columns from n0 on; F % 4 == 0.

    Filters from F on get no numbers. All 32 lanes come.
    """
    RUN, SIZE, ZERO = tile.run, tile.size, layer.zero_x
    M, F, BIAS, RESIDUAL, WORDS, row = one.M, layer.F, layer.bias, layer.residual, tile.run // 4, tile.row
    requantise = requantisation.requantise(replace(layer, bias=True), packed=True)  # of what a sum begins with
    PAIRS, some = WORDS == 2 and F % 8 == 0, read(4)

    def pixel(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def pixel(acc, lane, begin, factor, y, r, m0, n):
            m = uint32(m0 + row(lane, i))
            if m < uint32(M) and n < uint32(F):
                at = uint32((m * uint32(F) + n) // uint32(4))
                for q in range(WORDS):
                    e, own = 4 * q, int32(0)
                    if uint32(n + uint32(e)) < uint32(F):
                        if RESIDUAL:
                            own = ptx.word_of_float(r[uint32(at + uint32(q))])
                        v0 = requantise(acc[i + e], begin, factor, e, int8_words.byte(own, 0))
                        v1 = requantise(acc[i + e + 1], begin, factor, e + 1, int8_words.byte(own, 1))
                        v2 = requantise(acc[i + e + 2], begin, factor, e + 2, int8_words.byte(own, 2))
                        v3 = requantise(acc[i + e + 3], begin, factor, e + 3, int8_words.byte(own, 3))
                        acc[i + q] = ptx.pack_s8(v0, v1, v2, v3)
                        if not PAIRS:
                            y[uint32(at + uint32(q))] = ptx.float_of_word(acc[i + q])
                if PAIRS:
                    ptx.store2(y, at, ptx.float_of_word(acc[i]), ptx.float_of_word(acc[i + 1]))

        return pixel

    pixels = in_turn([pixel(i) for i in range(0, SIZE, RUN)])

    @cuda.jit(device=True, forceinline=True)
    def finish(acc, lane, y, b, m, r, m0, n0):
        begin = cuda.local.array(RUN, int32)
        factor = cuda.local.array(RUN, float32)
        words = cuda.local.array(4, float32)
        n = uint32(n0 + uint32(RUN) * (lane // uint32(4)))
        for e in range(RUN):
            begin[e] = int32(0)
            factor[e] = float32(0)
            if ZERO:
                share = acc[SIZE + e]
                share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 1))
                share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 2))
                begin[e] = int32(share * int32(-ZERO))
        for q in range(WORDS):
            four = uint32(n + uint32(4 * q))
            if four < uint32(F) and m0 < uint32(M):
                some(words, 0, m, four)
                for e in range(4):
                    factor[4 * q + e] = words[e]
                if BIAS:
                    some(words, 0, b, four)
                    for e in range(4):
                        begin[4 * q + e] += ptx.word_of_float(words[e])
        pixels(acc, lane, begin, factor, y, r, m0, n)

    return finish


def requantised_runs(layer: Any, tile: WarpTile) -> Traffic:
    """The traffic of `requantise_runs` on all of Y, by warps of one tile each that cover it from row and column 0."""
    one, lane, each = product(layer), np.arange(32), tile.run // 4
    runs = [tile.place(lane, i) for i in range(0, tile.size, tile.run)]
    rows, columns = np.array([run[0] for run in runs]), np.array([run[1] + 0 * lane for run in runs])
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    n0 = np.arange(0, one.N, tile.N)[:, None, None]
    for m0 in range(0, one.M, tile.M):
        m, n = np.broadcast_to(m0 + rows, (len(n0), *rows.shape)).reshape(-1, 32), (n0 + columns).reshape(-1, 32)
        at, inside = (m * one.N + n) // 4, (m < one.M) & (n < one.N)
        by_word = [warp_traffic(np.where(inside & (n + 4 * q < one.N), at + q, -1)) for q in range(each)]
        whole = each == 2 and one.N % 8 == 0
        store += warp_traffic(np.where(inside, at // 2, -1), 4) if whole else sum(by_word)
        load += layer.residual * sum(by_word)
        for q in range(each):
            four = n0[:, 0] + columns[0] + 4 * q
            load += (1 + layer.bias) * warp_traffic(np.where(four < one.N, four // 4, -1), 2)
    return Traffic(*load, *store)
