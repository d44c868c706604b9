"""The end of a fused kernel whose sums come from tensor cores: through shared memory, to pieces of 16 bytes of y."""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab import epilogue, pieces, ptx
from dwlab.layers import Pointwise
from dwlab.pointwise.tiles import WarpTile
from dwlab.target import cuda

SPARE = 8  # words between the end of a pixel's sums in shared memory and the next: rows 2 apart in other banks


@functools.cache
def put_sums(product: WarpTile, pitch: int) -> Any:
    """put(pool, sums, lane, m0, n0): a warp's sums, row m and column n of them to word (m0 + m) * pitch + n0 + n."""
    row_of, column_of, fours = product.row, product.column, product.size // 4

    @cuda.jit(device=True, forceinline=True)
    def put(pool, sums, lane, m0, n0):
        for i in range(fours):  # four by four, of two rows and two columns
            at = uint32((m0 + row_of(lane, 4 * i)) * pitch + n0 + column_of(lane, 4 * i))
            pool[at], pool[uint32(at + 1)] = sums[4 * i], sums[4 * i + 1]
            pool[uint32(at + 8 * pitch)], pool[uint32(at + 8 * pitch + 1)] = sums[4 * i + 2], sums[4 * i + 3]

    return put


@functools.cache
def finish(layer: Pointwise, shares: int, apart: int) -> Any:
    """finish(pool, at, b, r, y, f, to): a piece of y, from word `to` on, of the sums in shared memory, word `at` on.

    b, r, y come as words. f: the piece's first filter. Each output is the sum of `shares` sums, `apart` words apart.
    """
    E, PER, BIAS, RESIDUAL = 4 // layer.itemsize, 16 // layer.itemsize, layer.bias, layer.residual
    unpack, pack, activate = pieces.spread(layer.dtype), pieces.gather(layer.dtype), epilogue.activate(layer.activation)

    @cuda.jit(device=True, forceinline=True)
    def finish(pool, at, b, r, y, f, to):
        values = cuda.local.array(PER, float32)
        more = cuda.local.array(PER, float32)
        for e in range(PER):
            values[e] = float32(0)
        for share in range(shares):
            for e in range(E):
                p, q, s, u = ptx.load4_shared(pool, uint32(at + uint32(share * apart + 4 * e)))
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
