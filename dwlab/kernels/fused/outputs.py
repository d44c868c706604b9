"""The end of a fused kernel whose sums come from tensor cores: through shared memory, to vectors of 16 bytes of y.

A block has block_h x block_w pixels of block_n filters, products of block_m rows, and warps_k that share the channels.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.warp_tile import WarpTile
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import iterations, warp_traffic
from dwlab.problems.layers import Pointwise
from dwlab.target import cuda

SPARE = 8  # words between the end of a pixel's sums in shared memory and the next: rows two apart in other banks


def out_pitch(config: TileConfig) -> int:
    """Words between pixels of the outputs in shared memory."""
    return config.block_n + SPARE


@functools.cache
def store_sums(product: WarpTile, pitch: int) -> Any:
    """store(pool, sums, lane, m0, n0): a warp's sums, row m and column n of them to word (m0 + m) * pitch + n0 + n."""
    row_of, column_of, fours = product.row, product.column, product.size // 4

    @cuda.jit(device=True, forceinline=True)
    def store(pool, sums, lane, m0, n0):
        for i in range(fours):  # four by four, of two rows and two columns
            at = uint32((m0 + row_of(lane, 4 * i)) * pitch + n0 + column_of(lane, 4 * i))
            pool[at], pool[uint32(at + 1)] = sums[4 * i], sums[4 * i + 1]
            pool[uint32(at + 8 * pitch)], pool[uint32(at + 8 * pitch + 1)] = sums[4 * i + 2], sums[4 * i + 3]

    return store


@functools.cache
def write(layer: Pointwise, config: TileConfig) -> Any:
    """write(pool, b, r, y, n, p0, q0, f0, t): thread t's pieces of a block's outputs, from shared memory to y.

    b, r, y come as words. n: the image; p0, q0, f0: the block's first row, column and filter.
    """
    E, P, Q, F, TW = 4 // layer.itemsize, layer.P, layer.Q, layer.F, config.block_w
    Y, PER, OUT, THREADS = F // E, 4 * E, out_pitch(config), config.threads
    PIECES = config.block_n // PER
    OUTPUTS, store = config.block_h * TW * PIECES, finish(layer, config.warps_k, config.block_m * OUT)

    @cuda.jit(device=True, forceinline=True)
    def write(pool, b, r, y, n, p0, q0, f0, t):
        for item in range(t, OUTPUTS, THREADS):
            pixel, f = uint32(uint32(item) // PIECES), uint32(uint32(item) % PIECES * PER)
            p, q = uint32(p0 + pixel // TW), uint32(q0 + pixel % TW)
            if p < P and q < Q and f0 + f < F:
                to = uint32(((n * P + p) * Q + q) * Y + (f0 + f) // E)
                store(pool, uint32(pixel * OUT + f), b, r, y, uint32(f0 + f), to)

    return write


def written(layer: Pointwise, config: TileConfig, n: int, p0: int, q0: int, f0: int) -> tuple[np.ndarray, np.ndarray]:
    """(loads, stores) of `write` by a block, each [requests, sectors]."""
    E, P, Q = 4 // layer.itemsize, layer.P, layer.Q
    Y, pieces = layer.F // E, config.block_n // (4 * E)
    item = iterations(config.block_h * config.block_w * pieces, config.threads)
    p, q, f = p0 + item // pieces // config.block_w, q0 + item // pieces % config.block_w, f0 // E + item % pieces * 4
    there = (item >= 0) & (p < P) & (q < Q) & (f < Y)
    stores = warp_traffic(np.where(there, ((n * P + p) * Q + q) * Y + f, -1))
    return warp_traffic(np.where(there, f, -1)) * layer.bias + stores * layer.residual, stores


@functools.cache
def finish(layer: Pointwise, shares: int, words_between: int) -> Any:
    """finish(pool, at, b, r, y, f, to): a piece of y, from word `to` on, of the sums in shared memory, word `at` on.

    b, r, y come as words. f: the piece's first filter. Each output is the sum of `shares` sums, `apart` words apart.
    """
    E, PER, BIAS, RESIDUAL = 4 // layer.itemsize, 16 // layer.itemsize, layer.bias, layer.residual
    unpack, pack = pieces.unpack_vector(layer.dtype), pieces.pack_vector(layer.dtype)
    activate = epilogue.activate(layer.activation)

    @cuda.jit(device=True, forceinline=True)
    def finish(pool, at, b, r, y, f, to):
        values = cuda.local.array(PER, float32)
        more = cuda.local.array(PER, float32)
        for e in range(PER):
            values[e] = float32(0)
        for share in range(shares):
            for e in range(E):
                p, q, s, u = ptx.load4_shared(pool, uint32(at + uint32(share * words_between + 4 * e)))
                values[4 * e] += p
                values[4 * e + 1] += q
                values[4 * e + 2] += s
                values[4 * e + 3] += u
        if BIAS:
            p, q, s, u = ptx.load4(b, uint32(f // E))
            unpack(more, 0, p, q, s, u)
            for e in range(PER):
                values[e] += more[e]
        for e in range(PER):
            values[e] = activate(values[e])
        if RESIDUAL:
            p, q, s, u = ptx.load4(r, to)
            unpack(more, 0, p, q, s, u)
            for e in range(PER):
                values[e] += more[e]
        p, q, s, u = pack(values, 0)
        ptx.store4(y, to, p, q, s, u)

    return finish
