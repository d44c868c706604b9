"""Ends of fused/pwpw/tensor's sums: the first layer's to shared memory, the second layer's to y.

A tensor core leaves a lane two neighbouring sums here and two 8 columns on: stored like that, a warp's 16 bytes of a
pixel in 16 bits would be half a sector, and requested twice. So filters come to rows in an order that makes them
neighbours (row_loads.row_of_fours), and four lanes' stores fill whole sectors; a bias is read once for all of a warp's
pixels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import float32, uint32, uint64

from dwlab.kernels.fused.pwdw_tiles import per_word
from dwlab.kernels.fused.pwpw_plan import fours, layout_of, products_of
from dwlab.kernels.parts import epilogue, ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import warp_traffic
from dwlab.target import cuda


def store_between(pair: Any, config: TileConfig) -> Any:
    """put(shared, b, r, m, n, v0, v1) for the first layer's sums: bias, activation, and to where the second reads."""
    layout, bias = layout_of(pair, config), pair.first.bias
    PITCH, INNER_AT, BIAS_AT = layout.pitch, layout.inner_at, layout.bias_at
    act = epilogue.activate(pair.first.activation)

    if pair.dtype != "float32":

        @cuda.jit(device=True, forceinline=True)
        def put(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0, u1 = ptx.halves(shared[uint32(uint32(BIAS_AT) + n // uint32(2))])
            at = uint32(uint32(INNER_AT) + m * uint32(PITCH) + n // uint32(2))
            shared[at] = ptx.join_halves(act(v0 + u0), act(v1 + u1))

    else:

        @cuda.jit(device=True, forceinline=True)
        def put(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0 = shared[uint32(uint32(BIAS_AT) + n)]
                u1 = shared[uint32(uint32(BIAS_AT) + n + uint32(1))]
            at = uint32(uint32(INNER_AT) + m * uint32(PITCH) + n)
            shared[at] = act(v0 + u0)
            shared[uint32(at + uint32(1))] = act(v1 + u1)

    return put


def store(pair: Any, config: TileConfig) -> Any:
    """store(acc, lane, y, b, r, m0, n0): a warp's sums of the second layer, finished, to y; their bias is read once.

    m0, n0: of the warp's tile, pixel of all images and filter.
    """
    second = products_of(pair, config)[1]
    down, across = second.M // 16, second.N // 8
    if fours(pair):
        parts = [_store_fours(pair, j, down, across) for j in range(across // 2)]
    else:
        parts = [_store_column(pair, j, down, across) for j in range(across)]
    return in_sequence(parts)


def _store_fours(pair: Any, j: int, down: int, across: int) -> Any:
    """16 columns: of each lane's rows four neighbouring sums."""
    each = per_word(pair.dtype)
    FILTERS, G = pair.second.F, pair.second.F // each  # and in words, as all below
    act, bias, residual = epilogue.activate(pair.second.activation), pair.second.bias, pair.second.residual

    if each == 2:

        @cuda.jit(device=True, forceinline=True)
        def read(a, at):
            p, q = ptx.load2(a, at)
            v0, v1 = ptx.halves(p)
            v2, v3 = ptx.halves(q)
            return v0, v1, v2, v3

        @cuda.jit(device=True, forceinline=True)
        def write(y, at, v0, v1, v2, v3):
            ptx.store2(y, at, ptx.join_halves(v0, v1), ptx.join_halves(v2, v3))

    else:
        read, write = ptx.load4, ptx.store4

    @cuda.jit(device=True, forceinline=True)
    def part(acc, lane, y, b, r, m0, n0):
        n = uint32(n0 + uint32(16 * j) + uint32(4) * (lane % uint32(4)))
        b0 = b1 = b2 = b3 = float32(0)
        if n < uint32(FILTERS):
            if bias:
                b0, b1, b2, b3 = read(b, uint32(n // uint32(each)))
            m = uint32(m0 + lane // uint32(4))
            rows, first = uint32(uint32(y.size) // uint32(G)), uint64(uint32(m * uint32(G) + n // uint32(each)))
            for iteration in range(2 * down):
                c = 4 * (across * (iteration // 2) + 2 * j) + 2 * (iteration % 2)
                if m + uint32(8 * iteration) < rows:
                    at = uint64(first + uint64(8 * iteration * G))  # an address and a literal: one register for all
                    v0, v1, v2, v3 = act(acc[c] + b0), act(acc[c + 1] + b1), act(acc[c + 4] + b2), act(acc[c + 5] + b3)
                    if residual:
                        r0, r1, r2, r3 = read(r, at)
                        v0, v1, v2, v3 = v0 + r0, v1 + r1, v2 + r2, v3 + r3
                    write(y, at, v0, v1, v2, v3)

    return part


def _store_column(pair: Any, j: int, down: int, across: int) -> Any:
    """8 columns whose sums are stored one by one: filters of float32 that are no multiple of 4."""
    G, bias, finish = pair.second.F, pair.second.bias, epilogue.finish(replace(pair.second, bias=False))

    @cuda.jit(device=True, forceinline=True)
    def one(y, r, m, n, value):
        at = uint32(m * uint32(G) + n)
        if n < uint32(G) and m * uint32(G) < uint32(y.size):
            y[at] = finish(value, r, r, n, at)

    @cuda.jit(device=True, forceinline=True)
    def part(acc, lane, y, b, r, m0, n0):
        n = uint32(n0 + uint32(8 * j) + uint32(2) * (lane % uint32(4)))
        b0 = b[n] if bias and n < uint32(G) else float32(0)
        b1 = b[uint32(n + uint32(1))] if bias and n + uint32(1) < uint32(G) else float32(0)
        for iteration in range(2 * down):
            c = 4 * (across * (iteration // 2) + j) + 2 * (iteration % 2)
            m = uint32(m0 + uint32(8 * iteration) + lane // uint32(4))
            one(y, r, m, n, acc[c] + b0)
            one(y, r, m, uint32(n + uint32(1)), acc[c + 1] + b1)

    return part


def traffic(pair: Any, config: TileConfig, blocks_f: int, blocks_p: int) -> tuple[np.ndarray, np.ndarray]:
    """(loads, stores) of `store` by all blocks, each [requests, sectors]: biases, a residual, y."""
    each, G, second = per_word(pair.dtype), pair.second.F, products_of(pair, config)[1]
    load, store, total = np.zeros(2, np.int64), np.zeros(2, np.int64), pair.N * pair.first.H * pair.first.W
    width = 4 if fours(pair) else 1  # of a lane's neighbouring sums, stored at once
    lane, sums = np.arange(32), np.arange(0, second.size, 2)[:, None]
    if width == 4:  # each second tile of 8 columns has the other two of four
        sums = sums[sums[:, 0] // 4 % 2 == 0]
    row, column = second.place(lane, sums)
    column = column + lane % 4 * (2 * (width == 4))
    per = 8 * each // width  # such vectors in a sector
    for f0 in range(0, blocks_f * config.groups * config.block_n, config.warp_n):
        if pair.second.bias:
            for first in range(0, config.warp_n, 16 if width == 4 else 8):
                f = f0 + first + max(width, 2) * (lane % 4) + np.arange(1 if width == 4 else 2)[:, None]
                load += blocks_p * config.warps_m * warp_traffic(np.where(f < G, f // width, -1), per)
        for p0, alike in runs(total, config.warp_m):
            p = p0 + row
            for step in range(2 if width == 1 else 1):
                f = f0 + column + step
                store += alike * warp_traffic(np.where((f < G) & (p < total), (p * G + f) // width, -1), per)
    return load + pair.second.residual * store, store


def runs(total, size):
    """(first, how many alike) of the runs that cover `total` pixels: all whole ones request the same, the last less.

    A run is a multiple of 16 pixels, whose words are whole sectors.
    """
    whole, rest = divmod(total, size)
    return [(0, whole)] * (whole > 0) + [(whole * size, 1)] * (rest > 0)
