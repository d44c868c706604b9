"""A warp's tile of a matrix product: M x N sums in the registers of its 32 lanes, and how they leave them.

    tile = mma_ss("float32", 32, 32, 32, a_pitch=36, b_pitch=36)     on tensor cores (parts/mma_ss.py)
    tile = ffma(8, 8, 4, 16, a_pitch=132, b_pitch=68)                by multiply-adds (parts/ffma.py)

    acc = cuda.local.array(SIZE, float32)        SIZE = tile.size, and so on: closure constants of the kernel
    zero(acc)                                    all sums 0
    add(acc, a, a0, b, b0, lane)                 acc(m, n) += sum over k < K of A(m, k) B(k, n)
    row(lane, i), column(lane, i)                which sum acc[i] is: its m and n
    each(acc, lane, y, b, r, m0, n0)             each = warp_tile.each(tile, store): hands all sums to store, see there

a and b are shared arrays of float32 words, aligned to 16 bytes; a0 and b0 the words at which this warp's A and B begin,
multiples of 4; pitches in words, multiples of 4. Each row of A, and each column of B, has its k next to each other,
16-bit elements two in a word, int8 four:

    A(m, k) at word a0 + place(m, k)              (16 bits: k // 2; int8: k // 4), place = swizzle.place(a_pitch)
    B(k, n) at word b0 + place(n, k)              (the same), a layer's filters (F, C) as they are: n = f, k = c

A barrier before, and one before the operands are overwritten, is the caller's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts.unroll import in_sequence
from dwlab.target import cuda


@dataclass(frozen=True)
class Phases:
    """`add` in phases, for what happens between its last reads of shared memory and its last products.

    first, most, last: (acc, held, a, a0, b, b0, lane) each, held = cuda.local.array(words, float32). first reads the
    operands of the first step; most computes all steps but the last, whose operands it reads; last computes that one.
    A first of the next operands may come before last: they hold other words. Where operands are not prefetched, or the
    first and the last step's would be the same words (an odd number of steps), most is all of it.
    """

    words: int
    first: Any
    most: Any
    last: Any


@dataclass(frozen=True)
class WarpTile:
    """A warp's product: M x N sums of K terms a call.

    size: sums of each lane. run: so many sums, from each multiple of it on, lie in one row and in neighbouring columns,
    the first one's a multiple of run. zero, add, row, column: device functions; the module says what they do.
    place(lane, i): row and column once more, of a NumPy array of lanes.
    more: int8, numbers behind the sums, acc[size + j] the lane's share of sum_k B(k, 8 j + lane // 4).
    phases: of add, of `mma_ss` alone.
    """

    M: int
    N: int
    K: int
    size: int
    run: int
    zero: Any
    add: Any
    row: Any
    column: Any
    place: Any
    more: int = 0
    phases: Phases | None = None


@functools.cache
def zeros(size: int, kind: Any = float32) -> Any:
    """zero(acc): so many sums of a type are 0."""

    @cuda.jit(device=True, forceinline=True)
    def zero(acc):
        for i in range(size):
            acc[i] = kind(0)

    return zero


def each(tile: WarpTile, store: Any) -> Any:
    """The device function each(acc, lane, y, b, r, m0, n0), which calls `store` for each run of sums, in straight line.

    store(y, b, r, m, n, v0, v1) where tile.run is 2, store(y, b, r, m, n, v0, v1, v2, v3) where it is 4: v0 is the sum
    of row m - m0 and column n - n0 of the tile, the others those of the columns after it. y, b, r may be any arrays.
    """
    row, column = tile.row, tile.column

    def one(i: int) -> Any:
        if tile.run == 2:

            @cuda.jit(device=True, forceinline=True)
            def one(acc, lane, y, b, r, m0, n0):
                store(y, b, r, uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i)), acc[i], acc[i + 1])

        else:

            @cuda.jit(device=True, forceinline=True)
            def one(acc, lane, y, b, r, m0, n0):
                m, n = uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i))
                store(y, b, r, m, n, acc[i], acc[i + 1], acc[i + 2], acc[i + 3])

        return one

    return in_sequence([one(i) for i in range(0, tile.size, tile.run)])


def fours(tile: WarpTile, store: Any) -> Any:
    """`each` whose store always gets four neighbouring columns, the first one's a multiple of 4.

    Sums from tensor cores change lanes for this, two shuffles for four of them: of lanes t and t + 1, t even, the
    first takes both's sums of row g, the other those of row g + 8. All 32 lanes come together.
    """
    if tile.run == 4:
        return each(tile, store)
    row, column = tile.row, tile.column

    def one(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def one(acc, lane, y, b, r, m0, n0):
            odd = (lane & uint32(1)) != uint32(0)
            p, q = acc[i + 2], acc[i + 3]  # what the neighbour takes
            if odd:
                p, q = acc[i], acc[i + 1]
            p, q = cuda.shfl_xor_sync(0xFFFFFFFF, p, 1), cuda.shfl_xor_sync(0xFFFFFFFF, q, 1)
            v0, v1, v2, v3 = acc[i], acc[i + 1], p, q
            m, n = uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i))
            if odd:
                v0, v1, v2, v3 = p, q, acc[i + 2], acc[i + 3]
                m, n = uint32(m + uint32(8)), uint32(n - uint32(2))
            store(y, b, r, m, n, v0, v1, v2, v3)

        return one

    return in_sequence([one(i) for i in range(0, tile.size, 4)])


def place_of_four(tile: WarpTile, lane: Any, i: int) -> tuple[Any, Any]:
    """Row and column of the first of the four sums that each of a NumPy array of lanes puts in `fours`, from acc[i]."""
    m, n = tile.place(lane, i)
    return (m, n) if tile.run == 4 else (m + lane % 2 * 8, n - lane % 2 * 2)


@cuda.jit(device=True, forceinline=True)
def transpose4(lane, p0, p1, p2, p3):
    """Four lanes' four values transposed: lane t of each four gets those named p_t, the first lane's first."""
    odd, high = (lane & uint32(1)) != uint32(0), (lane & uint32(2)) != uint32(0)
    s0, s1 = (p0, p2) if odd else (p1, p3)
    s0, s1 = cuda.shfl_xor_sync(0xFFFFFFFF, s0, 1), cuda.shfl_xor_sync(0xFFFFFFFF, s1, 1)
    a0, a1, b0, b1 = (s0, p1, s1, p3) if odd else (p0, s0, p2, s1)
    s0, s1 = (a0, a1) if high else (b0, b1)
    s0, s1 = cuda.shfl_xor_sync(0xFFFFFFFF, s0, 2), cuda.shfl_xor_sync(0xFFFFFFFF, s1, 2)
    return (s0, s1, b0, b1) if high else (a0, a1, s0, s1)
