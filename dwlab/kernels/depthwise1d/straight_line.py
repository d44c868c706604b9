"""One row's sums as straight-line code for a fixed shape, with everything in registers.

A register has no address: an array stays in registers only if each of its indices is known when the kernel is
compiled. Numba unrolls a loop of literal length if it is short, up to some 8 x 8 products, and 48 x 48 it does not.
So the row is cut into blocks of 8 times by 8 taps, each a device function with its place built in, and these are
called one after the other. Where a block crosses the edge of the triangle t + shift - j >= 0 (or the row's end) its
conditions are constants, and the compiler drops the products outside: what is left are exactly the problem's taps.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise1d import rows
from dwlab.kernels.parts import pieces, ptx
from dwlab.kernels.parts.unroll import in_turn
from dwlab.problems import DepthwiseConv1d

BLOCK = 8  # times, and taps, of a block


def places(L: int, K: int, shift: int) -> list[tuple[int, int]]:
    """The blocks (t0, j0) that hold a product. The last times come first, as then each x is soon done with."""
    found = []
    for t0 in reversed(range(0, L, BLOCK)):
        for j0 in range(0, K, BLOCK):
            first = t0 + shift - j0 - (BLOCK - 1)  # the x that this block reads: 15 from here on
            if first < L and first + 2 * (BLOCK - 1) >= 0:
                found.append((t0, j0))
    return found


def window(L: int, K: int, shift: int) -> tuple[int, int]:
    """The taps that meet an element of a row of L: (the first, how many); all K where K <= L."""
    first = max(0, shift - (L - 1))
    return first, min(K, shift + L) - first


def takes(problem: DepthwiseConv1d, most: int) -> bool:
    """Whether a row, and the taps that meet it, are at most so many; of 16 bits whole pieces, and all taps."""
    if problem.itemsize == 4:
        return problem.L <= most and window(problem.L, problem.K, problem.shift)[1] <= most
    return problem.L <= most and problem.K <= most and rows.takes(problem)


def taps_of(L: int, K: int, shift: int, s0: int) -> list[int]:
    """The blocks of taps (each its first one) that the 8 elements of x from s0 on meet some dy of the row with."""
    return [j0 for j0 in range(0, K, BLOCK) if -2 * (BLOCK - 1) <= s0 - shift + j0 < L]


@functools.cache
def row(L: int, K: int, shift: int) -> Any:
    """The device function add(y, w, x): y[t] += w[j] * x[t + shift - j] for all t < L, j < K with x inside the row.

    y, w and x are local arrays of L, K and L float32.
    """
    return in_turn([block(t0, j0, L, K, shift, L, 0) for t0, j0 in places(L, K, shift)])


@functools.cache
def row_to_tile(L: int, K: int, shift: int, reverse: bool = False, dtype: str = "float32") -> Any:
    """The device function set(tile, own, s, w, x): y[t] as in `row`, to a lane's own row in the shared array `tile`.

    own, s: where the row begins, and its swizzle (rows.py). w and x are local arrays of K and L float32. 8 outputs are
    summed up in registers at a time. reverse: the filter is taken from its last tap on. dtype: of the row in the tile.
    """
    return in_turn([_outputs_of_8(L, K, shift, t0, reverse, dtype) for t0 in range(0, L, BLOCK)], arguments=5)


def _outputs_of_8(L: int, K: int, shift: int, t0: int, reverse: bool, dtype: str) -> Any:
    here = [block(0, j0, min(BLOCK, L - t0), K, shift, L, t0, reverse) for t, j0 in places(L, K, shift) if t == t0]
    products, write = in_turn(here), rows.write(L, dtype, t0, BLOCK)

    @cuda.jit(device=True, forceinline=True)
    def store(tile, own, s, w, x):
        y = cuda.local.array(BLOCK, float32)
        for i in range(BLOCK):
            y[i] = float32(0)
        products(y, w, x)
        write(y, tile, own, s)

    return store


def block(t0: int, j0: int, L: int, K: int, shift: int, x_length: int, ahead: int, reverse: bool = False) -> Any:
    """The products of y[t0 … t0+7] and the taps j0 … j0+7, both within L and K; y[t] stands for the time t + ahead."""
    first, step = (K - 1, -1) if reverse else (0, 1)

    @cuda.jit(device=True, forceinline=True)
    def add(y, w, x):
        for j in range(BLOCK):
            for i in range(BLOCK):
                s = ahead + t0 + i + shift - j0 - j
                if t0 + i < L and j0 + j < K and 0 <= s and s < x_length:
                    y[t0 + i] += w[first + step * (j0 + j)] * x[s]

    return add


@functools.cache
def taps(L: int, K: int, shift: int, s0: int) -> Any:
    """The device function add(dw, dy, x): dw[j] += dy[t] * x[s - s0] for s0 <= s < s0+8, t = s - shift + j in the row.

    dw and dy are local arrays of K and L float32; x holds only the 8 elements from s0 on.
    """

    def products(j0: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def add(dw, dy, x):
            for j in range(BLOCK):
                for i in range(BLOCK):
                    t = s0 + i - shift + j0 + j
                    if s0 + i < L and j0 + j < K and 0 <= t and t < L:
                        dw[j0 + j] += dy[t] * x[i]

        return add

    return in_turn([products(j0) for j0 in taps_of(L, K, shift, s0)])


@functools.cache
def row_taps(L: int, K: int, shift: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dy, tile, own, s): the weight gradient of a row, its x a lane's own row in `tile`.

    own, s, dtype: as in row_to_tile. dw and dy are local arrays of K and L float32; x is read 8 elements at a time.
    """
    return in_turn([_taps_of_8(L, K, shift, s0, dtype) for s0 in range(0, L, BLOCK)], arguments=5)


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
    return in_turn([_backward_of_8(L, K, shift, s0, dtype) for s0 in range(0, L, BLOCK)], arguments=7)


def _backward_of_8(L: int, K: int, shift: int, s0: int, dtype: str) -> Any:
    read, write = rows.read(L, dtype, s0, BLOCK), rows.write(L, dtype, s0, BLOCK)
    sums_of_taps = taps(L, K, shift, s0)
    here = [_products_with_dy(L, K, shift, s0, j0) for j0 in taps_of(L, K, shift, s0)]
    products = in_turn(here, arguments=4)

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


@functools.cache
def strip(each: int, L: int, K: int, shift: int, left: int, dtype: str = "float32") -> Any:
    """The device function add(sums, tile, own, filters, w0, t0): sums[i] += w[j] * x[t0 + i + shift - j] for all taps.

    sums is a local array of `each` float32, for the times from t0 on, which begin a piece of 16 bytes; x[t0] is word
    own + left of the shared array `tile`, and what lies outside the row is zero; w[0] is word w0 of the shared array
    `filters`. t0, own and left count float32 words, of which one holds two elements of 16 bits.
    """
    size_of_piece, words, spread_out = pieces.elements(dtype), rows.words(L, dtype), pieces.spread(dtype)
    last, base, size = _window(each, K, shift, size_of_piece)

    def block(j0: int) -> Any:
        taps, lower, pieces = _step(last, K, shift, j0, size_of_piece)
        top, word = lower - base, lower * 4 // size_of_piece

        @cuda.jit(device=True, forceinline=True)
        def add(sums, x, tile, own, filters, w0, t0):
            w = cuda.local.array(BLOCK, float32)
            for m in range(2 if taps > 4 else 1):
                at = uint32(w0 + uint32(j0 + 4 * m))
                w[4 * m], w[4 * m + 1], w[4 * m + 2], w[4 * m + 3] = ptx.load4_shared(filters, at)
            for m in range(pieces):
                at = uint32(own + uint32(left + word + 4 * m))
                inside = uint32(t0 + uint32((word + 4 * m) % 2**32)) < words  # left of the row: wraps to a huge number
                a, b, c, d = ptx.load4_shared(tile, at)
                a, b = a if inside else float32(0), b if inside else float32(0)
                c, d = c if inside else float32(0), d if inside else float32(0)
                spread_out(x, top + size_of_piece * m, a, b, c, d)
            for j in range(taps):
                for i in range(each):
                    sums[i] += w[j] * x[i + shift - (j0 + j) - base]

        return add

    blocks = in_turn([block(j0) for j0 in range(0, K, BLOCK)], arguments=7)

    @cuda.jit(device=True, forceinline=True)
    def add(sums, tile, own, filters, w0, t0):
        x = cuda.local.array(size, float32)
        blocks(sums, x, tile, own, filters, w0, t0)

    return add


def _window(each: int, K: int, shift: int, piece: int = 4) -> tuple[int, int, int]:
    """The x that `each` neighbouring outputs need, counted from their first: (the last, the first, how many).

    They are read in whole pieces of 4 or 8, the last ones first.
    """
    last, base = each + shift - 1, (shift - (K - 1)) // piece * piece
    return last, base, (last // piece + 1) * piece - base


def _step(last: int, K: int, shift: int, j0: int, piece: int = 4) -> tuple[int, int, int]:
    """8 taps on, from j0: (how many taps, the first x that they need and no tap before did, pieces from there on)."""
    taps = min(BLOCK, K - j0)
    upper = last // piece * piece + piece if j0 == 0 else (shift - (j0 - 1)) // piece * piece
    lower = (shift - (j0 + taps - 1)) // piece * piece
    return taps, lower, (upper - lower) // piece


@functools.cache
def strip_taps(each: int, K: int, shift: int, left: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dy, tile, own): dw[j] += dy[i] * x[i + shift - j] for all i < each and all taps.

    dw and dy are local arrays of K and `each` float32; x[0] is word own + left of the shared array `tile`, which holds
    rows of the storage type `dtype`.
    """
    size_of_piece, spread_out = pieces.elements(dtype), pieces.spread(dtype)
    last, base, size = _window(each, K, shift, size_of_piece)

    def block(j0: int) -> Any:
        taps, lower, pieces = _step(last, K, shift, j0, size_of_piece)
        top, word = lower - base, lower * 4 // size_of_piece

        @cuda.jit(device=True, forceinline=True)
        def add(dw, dy, x, tile, own, _):
            for m in range(pieces):
                a, b, c, d = ptx.load4_shared(tile, uint32(own + uint32(left + word + 4 * m)))
                spread_out(x, top + size_of_piece * m, a, b, c, d)
            for j in range(taps):
                for i in range(each):
                    dw[j0 + j] += dy[i] * x[i + shift - (j0 + j) - base]

        return add

    blocks = in_turn([block(j0) for j0 in range(0, K, BLOCK)], arguments=6)

    @cuda.jit(device=True, forceinline=True)
    def add(dw, dy, tile, own):
        x = cuda.local.array(size, float32)
        blocks(dw, dy, x, tile, own, own)

    return add


@functools.cache
def strip_backward(each: int, K: int, shift: int, left: int, dtype: str = "float32") -> Any:
    """The device function add(dw, dx, x, tile, own, w0): both gradients of a strip, with the filter reversed.

    dx[i] += w[j] * dy[i + shift - j] and dw[j] += x[i] * dy[i + shift - j] for all i < each and all taps. dw, dx and x
    are local arrays of K, `each` and `each` float32; dy[0] is word own + left of the shared array `tile`, which holds
    rows of the storage type `dtype`, and w[0] word w0. Every dy is read once.
    """
    size_of_piece, spread_out = pieces.elements(dtype), pieces.spread(dtype)
    last, base, size = _window(each, K, shift, size_of_piece)

    def block(j0: int) -> Any:
        taps, lower, pieces = _step(last, K, shift, j0, size_of_piece)
        top, word = lower - base, lower * 4 // size_of_piece

        @cuda.jit(device=True, forceinline=True)
        def add(dw, dx, x, dy, tile, own, w0):
            w = cuda.local.array(BLOCK, float32)
            for m in range(2 if taps > 4 else 1):
                at = uint32(w0 + uint32(j0 + 4 * m))
                w[4 * m], w[4 * m + 1], w[4 * m + 2], w[4 * m + 3] = ptx.load4_shared(tile, at)
            for m in range(pieces):
                a, b, c, d = ptx.load4_shared(tile, uint32(own + uint32(left + word + 4 * m)))
                spread_out(dy, top + size_of_piece * m, a, b, c, d)
            for j in range(taps):
                for i in range(each):
                    dx[i] += w[j] * dy[i + shift - (j0 + j) - base]
                    dw[j0 + j] += x[i] * dy[i + shift - (j0 + j) - base]

        return add

    blocks = in_turn([block(j0) for j0 in range(0, K, BLOCK)], arguments=7)

    @cuda.jit(device=True, forceinline=True)
    def add(dw, dx, x, tile, own, w0):
        dy = cuda.local.array(size, float32)
        blocks(dw, dx, x, dy, tile, own, w0)

    return add


@functools.cache
def warp_sums(K: int) -> Any:
    """The device function add(sums, lane, out): out[m] of lane l becomes the warp's sum of sums[32*m + l].

    sums and out are local arrays of K and 2 float32. A tree: each tap takes 5 shuffles, after which all lanes have it.
    """

    def block(j0: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def add(sums, lane, out):
            for j in range(BLOCK):
                if j0 + j < K:
                    total = sums[j0 + j]
                    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 16)
                    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 8)
                    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 4)
                    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 2)
                    total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 1)
                    if lane == (j0 + j) % 32:
                        out[(j0 + j) // 32] = total

        return add

    return in_turn([block(j0) for j0 in range(0, K, BLOCK)])
