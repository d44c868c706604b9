"""The end of a matrix product's block: bias, activation and residual of a warp's float sums, and their stores.

Sums of float32 go out four neighbouring ones at a time, 16 bytes; of 16 bits eight where rows are whole vectors of 16
bytes, which lanes trade for (`eights`), else two.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue, warp_tile
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.matrix_product import Product, product
from dwlab.kernels.parts.pieces import PACK, UNPACK
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, transpose4
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda


def finisher(layer: Pointwise, one: Product, MP: int) -> Any:
    """store(y, b, r, m, n, v0, v1, v2, v3): bias, activation, residual and store of four neighbouring sums.

    m counts rows through the images, MP rows for each, MP >= M; what lies outside Y is left out. Of 16-bit elements N
    is even, and store takes two sums: store(y, b, r, m, n, v0, v1).
    """
    activate, bias, residual = epilogue.activate(layer.activation), layer.bias, layer.residual
    M, N, nchw, WIDE = one.M, one.N, one.nchw, one.N % 4 == 0

    if layer.dtype == "float32":

        @cuda.jit(device=True, forceinline=True)
        def single(y, b, r, m, n, at, value):
            if bias:
                value += b[m] if nchw else b[n]
            value = activate(value)
            if residual:
                value += r[at]
            y[at] = value

        @cuda.jit(device=True, forceinline=True)
        def store(y, b, r, m, n, v0, v1, v2, v3):
            first = uint32(0)
            if nchw:
                first = uint32(m // uint32(MP) * uint32(M))
                m = uint32(m % uint32(MP))
            at = uint32(uint32(first + m) * uint32(N) + n)
            if WIDE:
                if m < uint32(M) and n < uint32(N):
                    if bias:
                        if nchw:
                            b0 = b1 = b2 = b3 = b[m]
                        else:
                            b0, b1, b2, b3 = ptx.load4(b, n)
                        v0, v1, v2, v3 = v0 + b0, v1 + b1, v2 + b2, v3 + b3
                    v0, v1, v2, v3 = activate(v0), activate(v1), activate(v2), activate(v3)
                    if residual:
                        r0, r1, r2, r3 = ptx.load4(r, at)
                        v0, v1, v2, v3 = v0 + r0, v1 + r1, v2 + r2, v3 + r3
                    ptx.store4(y, at, v0, v1, v2, v3)
            elif m < uint32(M):
                if n < uint32(N):
                    single(y, b, r, m, n, at, v0)
                if uint32(n + uint32(1)) < uint32(N):
                    single(y, b, r, m, uint32(n + uint32(1)), uint32(at + uint32(1)), v1)
                if uint32(n + uint32(2)) < uint32(N):
                    single(y, b, r, m, uint32(n + uint32(2)), uint32(at + uint32(2)), v2)
                if uint32(n + uint32(3)) < uint32(N):
                    single(y, b, r, m, uint32(n + uint32(3)), uint32(at + uint32(3)), v3)

        return store

    unpack, pack = UNPACK[layer.dtype], PACK[layer.dtype]

    @cuda.jit(device=True, forceinline=True)
    def store(y, b, r, m, n, v0, v1):
        if m < uint32(M) and n < uint32(N):
            at = uint32((m * uint32(N) + n) // uint32(2))
            if bias:
                b0, b1 = unpack(b[uint32(n // uint32(2))])
                v0, v1 = v0 + b0, v1 + b1
            v0, v1 = activate(v0), activate(v1)
            if residual:
                r0, r1 = unpack(r[at])
                v0, v1 = v0 + r0, v1 + r1
            y[at] = pack(v0, v1)

    return store


def store_tile(layer: Pointwise, one: Product, tile: WarpTile, MP: int) -> Any:
    """store(acc, lane, y, b, r, m0, n0): `finisher` on a warp's sums, m0 counting MP rows for each image."""
    if by_eights(layer, one, tile):
        return eights(layer, one, tile)
    store = finisher(layer, one, MP)
    return warp_tile.fours(tile, store) if layer.dtype == "float32" else warp_tile.each(tile, store)


def by_eights(layer: Pointwise, one: Product, tile: WarpTile) -> bool:
    """Whether a warp's 16-bit sums go out as whole vectors of 16 bytes."""
    return layer.dtype != "float32" and tile.run == 2 and tile.N % 32 == 0 and one.N % 8 == 0


def eights(layer: Pointwise, one: Product, tile: WarpTile) -> Any:
    """`store_tile` by 16 bytes at a time: the lanes of four trade their sums of 32 columns (`transpose4`).

    Of eight neighbouring columns four lanes hold two sums each. After the trade a lane has them all, and a store of a
    warp fills the sectors it touches. A residual's 16 bytes come the same way; then float32 sums are traded.
    """
    activate, bias, residual = epilogue.activate(layer.activation), layer.bias, layer.residual
    unpack, pack, M, N = UNPACK[layer.dtype], PACK[layer.dtype], one.M, one.N
    NJ = tile.N // 8

    def rows(q: int, i: int, h: int) -> Any:  # 8 rows of 32 columns
        c = 4 * (NJ * i + q) + 2 * h

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, lane, y, b, r, m0, n0):  # b is what `columns` read
            m, t = uint32(m0 + uint32(16 * i + 8 * h) + lane // uint32(4)), uint32(lane % uint32(4))
            for j in range(4):
                for e in range(2):
                    value = acc[c + 4 * j + e]
                    if bias:
                        value += b[2 * j + e]
                    acc[c + 4 * j + e] = activate(value)
            n = uint32(n0 + uint32(8 * q) + uint32(8) * t)
            at = uint32((m * uint32(N) + n) // uint32(2))
            if residual:
                u0, u2, u4, u6 = transpose4(lane, acc[c], acc[c + 4], acc[c + 8], acc[c + 12])
                u1, u3, u5, u7 = transpose4(lane, acc[c + 1], acc[c + 5], acc[c + 9], acc[c + 13])
                if m < uint32(M) and n < uint32(N):
                    w0, w1, w2, w3 = ptx.load4(r, at)
                    r0, r1 = unpack(w0)
                    r2, r3 = unpack(w1)
                    r4, r5 = unpack(w2)
                    r6, r7 = unpack(w3)
                    w0, w1 = pack(u0 + r0, u1 + r1), pack(u2 + r2, u3 + r3)
                    w2, w3 = pack(u4 + r4, u5 + r5), pack(u6 + r6, u7 + r7)
                    ptx.store4(y, at, w0, w1, w2, w3)
            else:
                w0, w1 = pack(acc[c], acc[c + 1]), pack(acc[c + 4], acc[c + 5])
                w2, w3 = pack(acc[c + 8], acc[c + 9]), pack(acc[c + 12], acc[c + 13])
                w0, w1, w2, w3 = transpose4(lane, w0, w1, w2, w3)
                if m < uint32(M) and n < uint32(N):
                    ptx.store4(y, at, w0, w1, w2, w3)

        return rows

    def columns(q: int) -> Any:  # 32 columns, their bias read once
        every = in_sequence([rows(q, i, h) for i in range(tile.M // 16) for h in range(2)])

        @cuda.jit(device=True, forceinline=True)
        def columns(acc, lane, y, b, r, m0, n0):
            if not bias:
                every(acc, lane, y, b, r, m0, n0)
            else:
                more = cuda.local.array(8, float32)
                for j in range(4):
                    n = uint32(n0 + uint32(8 * (q + j)) + uint32(2) * (lane % uint32(4)))
                    more[2 * j] = more[2 * j + 1] = float32(0)
                    if m0 < uint32(M) and n < uint32(N):
                        more[2 * j], more[2 * j + 1] = unpack(b[uint32(n // uint32(2))])
                every(acc, lane, y, more, r, m0, n0)

        return columns

    return in_sequence([columns(q) for q in range(0, NJ, 4)])


def moved(layer: Pointwise, tile: WarpTile, places: Sequence[tuple[Any, Any]], size: int) -> Any:
    """(loads, stores) of warps of one tile each that cover all of Y from row and column 0 on, each [requests, sectors].

    places: row and column in the tile of each of a warp's stores, NumPy arrays of lanes; size: neighbouring sums of a
    store, with as many of a residual, and of a bias.
    """
    one, per_sector = product(layer), 32 // layer.itemsize
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    m_of, n_of = np.array(places).swapaxes(0, 1)
    n = (np.arange(0, one.N, tile.N)[:, None, None] + n_of).reshape(-1, 32)
    for image, m0 in itertools.product(range(one.images), range(0, one.M, tile.M)):
        m = np.tile(m0 + m_of, (len(n) // len(m_of), 1))
        inside = (m < one.M) & (n < one.N)
        found = warp_traffic(np.where(inside, ((image * one.M + m) * one.N + n) // size, -1), per_sector // size)
        load, store = load + layer.residual * found, store + found
        if layer.bias:
            element, each = (m, per_sector) if one.nchw else (n // size, per_sector // size)
            load += warp_traffic(np.where(inside, element, -1), each)
    return load, store


def stored(layer: Pointwise, tile: WarpTile) -> Any:
    """(loads, stores) of `store_tile` on all of Y, each [requests, sectors]."""
    one, lane = product(layer), np.arange(32)
    if by_eights(layer, one, tile):
        columns = range(0, tile.N, 32)
        places = [(m + lane // 4, n + lane % 4 * 8) for m in range(0, tile.M, 8) for n in columns]
        load, store = moved(replace(layer, bias=False), tile, places, 8)
        if layer.bias:
            n = np.arange(0, -(-one.N // tile.N) * tile.N, 8)[:, None] + lane % 4 * 2
            load += -(-one.M // tile.M) * warp_traffic(np.where(n < one.N, n // 2, -1))
        return load, store
    if layer.dtype != "float32":
        return moved(layer, tile, [tile.place(lane, i) for i in range(0, tile.size, 2)], 2)
    size = 4 if one.N % 4 == 0 else 1
    fours = [warp_tile.place_of_four(tile, lane, i) for i in range(0, tile.size, 4)]
    return moved(layer, tile, [(m, n + d) for m, n in fours for d in range(0, 4, size)], size)
