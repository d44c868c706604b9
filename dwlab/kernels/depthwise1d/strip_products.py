"""Unrolled sums of a strip, `each` neighbouring times of a row, with a window of another row that slides past them.

A block of 8 taps needs each + 7 elements of the window, of which the block before has loaded all but 8: so the window
stays in registers, and every element of it is loaded once, as part of a 16-byte vector in shared memory. What a block
does with the window differs: `forward` sums up outputs, `weight_grad` taps, `backward` both.

Rows in shared memory are float32 words, of which one holds two elements of 16 bits; all places count words.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from numba import float32, uint32

from dwlab.kernels.depthwise1d.straight_line import BLOCK
from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

OUTPUTS = {"float32": 20, "float16": 24, "bfloat16": 24}  # of a lane's strip: an odd number of 16-byte vectors


def halo(K: int, shift: int, dtype: str) -> tuple[int, int]:
    """Words to the left and to the right of strips that the taps reach, in whole vectors."""
    V = pieces.elements(dtype)
    return -(-(K - 1 - shift) // V) * 4, -(-shift // V) * 4


def takes(problem: DepthwiseConv1d, most: int) -> bool:
    """Whether the taps are at most so many, and rows whole 16-byte vectors."""
    return problem.K <= most and problem.L * problem.itemsize % 16 == 0


class Block(NamedTuple):
    """Taps j0 … j0 + taps - 1, the first element of the window that they need and no tap before did, vectors of it."""

    j0: int
    taps: int
    lower: int
    vectors: int


def blocks_of(each: int, K: int, shift: int, vector: int) -> tuple[list[Block], int, int]:
    """(blocks of 8 taps, the window's first element counted from the strip's first, its length) in vectors of so many.

    Taps go up, so the window is loaded from its end on.
    """
    last, base = each + shift - 1, (shift - (K - 1)) // vector * vector
    found, upper = [], last // vector * vector + vector
    size = upper - base
    for j0 in range(0, K, BLOCK):
        taps = min(BLOCK, K - j0)
        lower = (shift - (j0 + taps - 1)) // vector * vector
        found.append(Block(j0, taps, lower, (upper - lower) // vector))
        upper = lower
    return found, base, size


def load_window(one: Block, base: int, left: int, dtype: str, words: int = 0) -> Any:
    """load(x, tile, own, t0): what a block adds to the window x, whose element 0 is word own + left of the tile.

    words: of a row, where what lies outside of it must become zero; t0: the strip's place in the row.
    """
    V, unpack = pieces.elements(dtype), pieces.unpack_vector(dtype)
    top, word, vectors, MASKED = one.lower - base, one.lower * 4 // V, one.vectors, words > 0

    @cuda.jit(device=True, forceinline=True)
    def load(x, tile, own, t0):
        for m in range(vectors):
            inside = uint32(t0 + uint32((word + 4 * m) % 2**32)) < words  # left of the row: wraps to a huge number
            a, b, c, d = ptx.load4_shared(tile, uint32(own + uint32(left + word + 4 * m)))
            if MASKED:
                a, b = a if inside else float32(0), b if inside else float32(0)
                c, d = c if inside else float32(0), d if inside else float32(0)
            unpack(x, top + V * m, a, b, c, d)

    return load


def load_taps(one: Block) -> Any:
    """load(w, filters, w0): a block's taps into the local array w; tap 0 is word w0 of `filters`."""
    j0, vectors = one.j0, 2 if one.taps > 4 else 1

    @cuda.jit(device=True, forceinline=True)
    def load(w, filters, w0):
        for m in range(vectors):
            at = uint32(w0 + uint32(j0 + 4 * m))
            w[4 * m], w[4 * m + 1], w[4 * m + 2], w[4 * m + 3] = ptx.load4_shared(filters, at)

    return load


@functools.cache
def forward(each: int, L: int, K: int, shift: int, left: int, dtype: str = "float32") -> Any:
    """The device function add(sums, tile, own, filters, w0, t0): sums[i] += w[j] * x[t0 + i + shift - j] for all taps.

    sums is a local array of `each` float32, for the times from t0 on, which begin a vector; x[t0] is word own + left of
    the shared array `tile`, and what lies outside the row is zero; w[0] is word w0 of the shared array `filters`.
    """
    blocks, base, size = blocks_of(each, K, shift, pieces.elements(dtype))

    def products(one: Block) -> Any:
        load, get_taps = load_window(one, base, left, dtype, pieces.words(L, dtype)), load_taps(one)
        first, taps = shift - one.j0 - base, one.taps

        @cuda.jit(device=True, forceinline=True)
        def products(sums, x, tile, own, filters, w0, t0):
            w = cuda.local.array(BLOCK, float32)
            get_taps(w, filters, w0)
            load(x, tile, own, t0)
            for j in range(taps):
                for i in range(each):
                    sums[i] += w[j] * x[first + i - j]

        return products

    every = in_sequence([products(one) for one in blocks])

    @cuda.jit(device=True, forceinline=True)
    def add(sums, tile, own, filters, w0, t0):
        x = cuda.local.array(size, float32)
        every(sums, x, tile, own, filters, w0, t0)

    return add


@functools.cache
def weight_grad(each: int, K: int, shift: int, left: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dy, tile, own): dw[j] += dy[i] * x[i + shift - j] for all i < each and all taps.

    dw and dy are local arrays of K and `each` float32; x[0] is word own + left of the shared array `tile`.
    """
    blocks, base, size = blocks_of(each, K, shift, pieces.elements(dtype))

    def products(one: Block) -> Any:
        load, first, j0, taps = load_window(one, base, left, dtype), shift - one.j0 - base, one.j0, one.taps

        @cuda.jit(device=True, forceinline=True)
        def products(dw, dy, x, tile, own):
            load(x, tile, own, own)
            for j in range(taps):
                for i in range(each):
                    dw[j0 + j] += dy[i] * x[first + i - j]

        return products

    every = in_sequence([products(one) for one in blocks])

    @cuda.jit(device=True, forceinline=True)
    def add(dw, dy, tile, own):
        x = cuda.local.array(size, float32)
        every(dw, dy, x, tile, own)

    return add


@functools.cache
def backward(each: int, K: int, shift: int, left: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dx, x, tile, own, w0): both gradients of a strip, with the filter reversed.

    dx[i] += w[j] * dy[i + shift - j] and dw[j] += x[i] * dy[i + shift - j] for all i < each and all taps. dw, dx and x
    are local arrays of K, `each` and `each` float32; dy[0] is word own + left of the shared array `tile`, and w[0] word
    w0. Every dy is read once.
    """
    blocks, base, size = blocks_of(each, K, shift, pieces.elements(dtype))

    def products(one: Block) -> Any:
        load, get_taps = load_window(one, base, left, dtype), load_taps(one)
        first, j0, taps = shift - one.j0 - base, one.j0, one.taps

        @cuda.jit(device=True, forceinline=True)
        def products(dw, dx, x, dy, tile, own, w0):
            w = cuda.local.array(BLOCK, float32)
            get_taps(w, tile, w0)
            load(dy, tile, own, own)
            for j in range(taps):
                for i in range(each):
                    dx[i] += w[j] * dy[first + i - j]
                    dw[j0 + j] += x[i] * dy[first + i - j]

        return products

    every = in_sequence([products(one) for one in blocks])

    @cuda.jit(device=True, forceinline=True)
    def add(dw, dx, x, tile, own, w0):
        dy = cuda.local.array(size, float32)
        every(dw, dx, x, dy, tile, own, w0)

    return add
