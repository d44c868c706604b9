"""What stages of pointwise have in common: the layer as a matrix product, tiles' way to shared memory, the epilogue.

A layer is `images` products Y = A B, Y of M rows and N columns, sums of C terms, Y's columns next to each other:

    NHWC: one product; rows are pixels (of all images), columns filters:  A = x (M, C),  B(k, n) = w[n, k]
    NCHW: one a picture; rows are filters, columns pixels:                A = w (M, C),  B = x[image] (C, N)

A always lies with its k next to each other, B does in NHWC. Arrays are float32 words, two 16-bit elements in each.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import epilogue, ptx, tiles
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import Pointwise

UNPACK = {"float16": ptx.halves, "bfloat16": ptx.bfloats}  # a word -> its two elements, as float32
PACK = {"float16": ptx.join_halves, "bfloat16": ptx.join_bfloats}


@dataclass(frozen=True)
class Product:
    """A layer as matrix products. each: elements of a word. words: of a sum's terms, C / each."""

    images: int
    M: int
    N: int
    C: int
    each: int
    nchw: bool

    @property
    def words(self) -> int:
        """float32 words of C elements."""
        return self.C // self.each

    @property
    def b_order(self) -> str:
        """How B lies in memory, as tiles.ORDERS has it; A lies in order "k"."""
        return "mn" if self.nchw else "k"


def product(layer: Pointwise, N: int = 0) -> Product:
    """The products of a layer; N: with so many images, if not the layer's own."""
    N, each = N or layer.N, 4 // layer.itemsize
    if layer.layout == "NCHW":
        return Product(N, layer.F, layer.H * layer.W, layer.C, each, True)
    return Product(1, N * layer.H * layer.W, layer.F, layer.C, each, False)


def whole_pieces(layer: Pointwise) -> bool:
    """Whether rows of x, w and y are whole pieces of 16 bytes: of channels, and in NCHW of pixels."""
    piece = 16 // layer.itemsize
    return layer.C % piece == 0 and (layer.H * layer.W if layer.layout == "NCHW" else layer.F) % piece == 0


def piece(*words: int) -> int:
    """The most words, 4, 2 or 1, that a copy may take at a time where rows of a matrix are so many words long."""
    return next(size for size in (4, 2, 1) if not any(one % size for one in words))


@functools.cache
def copies(size: int) -> tuple[Any, Any]:
    """(copy(shared, i, source, j), zeros(shared, i)) of `size` words, one of `piece`: on their way, or 0 at once."""
    if size == 4:

        @cuda.jit(device=True, forceinline=True)
        def copy(shared, i, source, j):
            ptx.copy4_async(shared, i, source, j)

        @cuda.jit(device=True, forceinline=True)
        def zeros(shared, i):
            ptx.store4_shared(shared, i, float32(0), float32(0), float32(0), float32(0))

    elif size == 2:

        @cuda.jit(device=True, forceinline=True)
        def copy(shared, i, source, j):
            ptx.copy2_async(shared, i, source, j)

        @cuda.jit(device=True, forceinline=True)
        def zeros(shared, i):
            ptx.store2_shared(shared, i, float32(0), float32(0))

    else:

        @cuda.jit(device=True, forceinline=True)
        def copy(shared, i, source, j):
            ptx.copy1_async(shared, i, source, j)

        @cuda.jit(device=True, forceinline=True)
        def zeros(shared, i):
            shared[i] = float32(0)

    return copy, zeros


@functools.cache
def bring(
    lines: int, words: int, pitch: int, threads: int, limit: int, width: int, source_pitch: int, spread: int = 0,
    order: str = "k", beyond: bool = False,
) -> Any:  # fmt: skip
    """bring(shared, s0, source, g0, line0, word0, thread): starts copies of `lines` x `words` of a matrix.

    shared[s0 + at] = source[g0 + (line0 + i) * source_pitch + word0 + j], and 0 where line0 + i >= limit or
    word0 + j >= width; at is place(i, j) of tiles.place(pitch) in order "k", i * pitch + j in order "mn". Copies are of
    `piece` words of width and source_pitch; words, g0 and word0 are multiples of that, s0 of 4. ptx.commit is the
    caller's.
    spread: so many lines hold every fourth line, from 0 on, then as many those from 1 on (tiles.ffma), and so on.
    line0: a multiple of lines, and less than limit; with `beyond` any multiple.
    """
    SPREAD, EACH = max(1, spread), piece(words, width, source_pitch)
    PIECES, TURNS = words // EACH, -(-lines * words // EACH // threads)
    EVEN, WORDS = lines * words // EACH % threads == 0, width % words == 0  # nothing outside
    LINES = limit % lines == 0 and not beyond
    place = tiles.place(pitch) if order == "k" else tiles.in_rows(pitch)
    copy, zeros = copies(EACH)

    @cuda.jit(device=True, forceinline=True)
    def bring(shared, s0, source, g0, line0, word0, thread):
        for turn in range(TURNS):
            piece = uint32(thread + uint32(turn * threads))
            line, word = uint32(piece // uint32(PIECES)), uint32(piece % uint32(PIECES) * uint32(EACH))
            to = uint32(s0 + place(line, word))
            if spread:
                line = uint32(line % uint32(SPREAD) * uint32(4) + line // uint32(SPREAD))
            line, word = uint32(line + line0), uint32(word + word0)
            if EVEN or piece < uint32(lines * PIECES):
                if (LINES or line < uint32(limit)) and (WORDS or word < uint32(width)):
                    copy(shared, to, source, uint32(g0 + line * uint32(source_pitch) + word))
                else:
                    zeros(shared, to)

    return bring


@functools.cache
def bring_words(lines: int, words: int, pitch: int, threads: int, limit: int, width: int, source_pitch: int) -> Any:
    """As `bring`, word by word through registers: of any width and source_pitch."""
    TURNS, EVEN = -(-lines * words // threads), lines * words % threads == 0

    @cuda.jit(device=True, forceinline=True)
    def bring(shared, s0, source, g0, line0, word0, thread):
        for turn in range(TURNS):
            at = uint32(thread + uint32(turn * threads))
            line, word = uint32(at // uint32(words)), uint32(at % uint32(words))
            to = uint32(s0 + line * uint32(pitch) + word)
            line, word = uint32(line + line0), uint32(word + word0)
            if EVEN or at < uint32(lines * words):
                value = float32(0)
                if line < uint32(limit) and word < uint32(width):
                    value = source[uint32(g0 + line * uint32(source_pitch) + word)]
                shared[to] = value

    return bring


def brought(
    lines: int, words: int, threads: int, limit: int, width: int, source_pitch: int, wide: bool = True, begin: int = 0,
    spread: int = 0,
) -> Any:  # fmt: skip
    """[requests, sectors] of all blocks of `lines` x `words` that tile a matrix of limit x width once, by `bring`.

    wide: by `bring`, in its pieces; else by `bring_words`. begin: the word at which the matrix begins.
    """
    size = piece(words, width, source_pitch) if wide else 1
    across, total = words // size, np.zeros(2, np.int64)
    at = np.arange(-(-lines * across // threads) * threads)
    at = np.where(at < lines * across, at, -1)
    word0 = np.arange(0, width, words)[:, None]
    for line0 in range(0, limit, lines):
        line = at // across
        if spread:
            line = line % spread * 4 + line // spread
        line, word = line + line0, at % across * size + word0
        inside = (at >= 0) & (line < limit) & (word < width)
        element = np.where(inside, begin + line * source_pitch + word, -size) // size
        total += warp_traffic(element.reshape(-1, threads), 8 // size)
    return total


@cuda.jit(device=True, forceinline=True)
def _wait_0():
    ptx.wait(0)


@cuda.jit(device=True, forceinline=True)
def _wait_1():
    ptx.wait(1)


@cuda.jit(device=True, forceinline=True)
def _wait_2():
    ptx.wait(2)


@cuda.jit(device=True, forceinline=True)
def _wait_3():
    ptx.wait(3)


WAITS = (_wait_0, _wait_1, _wait_2, _wait_3)
"""ptx.wait, which takes a literal, by how many groups may still be on their way."""


@dataclass(frozen=True)
class Layout:
    """How blocks of block_m x block_n outputs go through a layer's sums, block_k words of C at a time (config).

    across, down: blocks along a product's columns and rows; those along columns come first, then rows, then images.
    In shared memory a chunk is A's part, a_words, then B's, whose lines are spread if spread is not 0 (tiles.ffma).
    """

    one: Product
    config: TileConfig
    tile: tiles.WarpTile
    a_pitch: int
    b_pitch: int
    spread: int = 0

    @property
    def across(self) -> int:
        """Blocks along the columns."""
        return -(-self.one.N // self.config.block_n)

    @property
    def down(self) -> int:
        """Blocks along the rows."""
        return -(-self.one.M // self.config.block_m)

    @property
    def blocks(self) -> int:
        """Of the grid."""
        return self.one.images * self.across * self.down

    @property
    def chunks(self) -> int:
        """Chunks of C."""
        return -(-self.one.words // self.config.block_k)

    @property
    def terms(self) -> int:
        """Terms of a sum in a chunk."""
        return self.config.block_k * self.one.each

    @property
    def a_words(self) -> int:
        """Words of a chunk's part of A."""
        return self.config.block_m * self.a_pitch

    @property
    def b_words(self) -> int:
        """Words of a chunk's part of B."""
        return (self.terms if self.one.nchw else self.config.block_n) * self.b_pitch

    @property
    def a_warp(self) -> int:
        """Words from a warp's part of A to that of the warp below."""
        return self.tile.M * self.a_pitch

    @property
    def b_warp(self) -> int:
        """Words from a warp's part of B to that of the next warp along the columns."""
        if self.spread:
            return self.tile.N // 4 * self.b_pitch
        return self.tile.N // self.one.each if self.one.nchw else self.tile.N * self.b_pitch

    @property
    def shared_bytes(self) -> int:
        """Of a block."""
        return 4 * self.config.pipeline_stages * (self.a_words + self.b_words)

    @property
    def wide(self) -> bool:
        """Whether B comes in whole pieces of 16 bytes."""
        return not self.one.nchw or self.one.N % (4 * self.one.each) == 0


def load(layout: Layout) -> Any:
    """load(shared, s0, x, w, image, down, across, chunk, thread): starts the copies of one chunk of a block."""
    load_x, load_w = loads(layout)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, x, w, image, down, across, chunk, thread):
        load_x(shared, s0, x, image, down, across, chunk, thread)
        load_w(shared, s0, w, down, across, chunk, thread)

    return load


def loads(layout: Layout) -> tuple[Any, Any]:
    """`load` in two: load_x(shared, s0, x, image, down, across, chunk, thread) and the same of w, without the image."""
    one, config, threads = layout.one, layout.config, layout.config.threads
    bring_a = bring(config.block_m, config.block_k, layout.a_pitch, threads, one.M, one.words, one.words)
    BM, CHUNK, A_WORDS, IMAGE = config.block_m, config.block_k, layout.a_words, one.C * one.N // one.each
    if not one.nchw:
        BN = config.block_n
        bring_b = bring(BN, config.block_k, layout.b_pitch, threads, one.N, one.words, one.words, layout.spread)

        @cuda.jit(device=True, forceinline=True)
        def load_x(shared, s0, x, image, down, across, chunk, thread):
            bring_a(shared, s0, x, uint32(0), uint32(down * BM), uint32(chunk * CHUNK), thread)

        @cuda.jit(device=True, forceinline=True)
        def load_w(shared, s0, w, down, across, chunk, thread):
            s0, n0 = uint32(s0 + A_WORDS), uint32(across * BN)
            bring_b(shared, s0, w, uint32(0), n0, uint32(chunk * CHUNK), thread)

        return load_x, load_w
    TERMS, BN, width = layout.terms, config.block_n // one.each, one.N // one.each
    sizes = (TERMS, BN, layout.b_pitch, threads, one.C, width, width)
    bring_b = bring(*sizes, order="mn") if layout.wide else bring_words(*sizes)

    @cuda.jit(device=True, forceinline=True)
    def load_x(shared, s0, x, image, down, across, chunk, thread):
        begin, k0, n0 = uint32(image * IMAGE), uint32(chunk * TERMS), uint32(across * BN)
        bring_b(shared, uint32(s0 + A_WORDS), x, begin, k0, n0, thread)

    @cuda.jit(device=True, forceinline=True)
    def load_w(shared, s0, w, down, across, chunk, thread):
        bring_a(shared, s0, w, uint32(0), uint32(down * BM), uint32(chunk * CHUNK), thread)

    return load_x, load_w


def traffic(layer: Pointwise, layout: Layout) -> Traffic:
    """Of all blocks: their tiles of A and B, brought by `load`, and the epilogue, by `finisher`."""
    one, config, threads = layout.one, layout.config, layout.config.threads
    total = one.images * layout.across * brought(config.block_m, config.block_k, threads, one.M, one.words, one.words)
    for image in range(one.images):
        if one.nchw:
            width, begin = one.N // one.each, image * one.C * one.N // one.each
            shape = (layout.terms, config.block_n // one.each, threads, one.C, width, width, layout.wide, begin)
        else:
            shape = (config.block_n, config.block_k, threads, one.N, one.words, one.words, True, 0, layout.spread)
        total = total + layout.down * brought(*shape)
    last = finished(layer, layout.tile)
    return Traffic(
        int(total[0]) + last.load_requests, int(total[1]) + last.load_sectors, last.store_requests, last.store_sectors
    )


def finisher(layer: Pointwise, one: Product, MP: int) -> Any:
    """put(y, b, r, m, n, v0, v1, v2, v3): bias, activation, residual and store of four neighbouring sums.

    m counts rows through the images, MP rows for each, MP >= M; what lies outside Y is left out. Of 16-bit elements N
    is even, and put takes two sums: put(y, b, r, m, n, v0, v1).
    """
    activate = epilogue.activate(layer.activation)
    return _finisher(activate, layer.bias, layer.residual, layer.dtype, one.M, one.N, one.nchw, MP)


def _finisher(activate: Any, bias: bool, residual: bool, dtype: str, M: int, N: int, nchw: bool, MP: int) -> Any:
    WIDE = N % 4 == 0

    if dtype == "float32":

        @cuda.jit(device=True, forceinline=True)
        def single(y, b, r, m, n, at, value):
            if bias:
                value += b[m] if nchw else b[n]
            value = activate(value)
            if residual:
                value += r[at]
            y[at] = value

        @cuda.jit(device=True, forceinline=True)
        def put(y, b, r, m, n, v0, v1, v2, v3):
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

        return put

    unpack, pack = UNPACK[dtype], PACK[dtype]

    @cuda.jit(device=True, forceinline=True)
    def put(y, b, r, m, n, v0, v1):
        first = uint32(0)
        if nchw:
            first = uint32(m // uint32(MP) * uint32(M))
            m = uint32(m % uint32(MP))
        if m < uint32(M) and n < uint32(N):
            at = uint32((uint32(first + m) * uint32(N) + n) // uint32(2))
            if bias:
                if nchw:
                    b0, b1 = unpack(b[uint32(m // uint32(2))])
                    if m % uint32(2) != uint32(0):
                        b0 = b1
                    v0, v1 = v0 + b0, v1 + b0
                else:
                    b0, b1 = unpack(b[uint32(n // uint32(2))])
                    v0, v1 = v0 + b0, v1 + b1
            v0, v1 = activate(v0), activate(v1)
            if residual:
                r0, r1 = unpack(r[at])
                v0, v1 = v0 + r0, v1 + r1
            y[at] = pack(v0, v1)

    return put


def store(layer: Pointwise, layout: Layout) -> Any:
    """store(acc, lane, y, b, r, m0, n0): `finisher` on a warp's sums, m0 = (image * down + block's row) * BM + ….

    By fours in float32, in 16 bits by eights where these are whole (`eights`), else by runs of two.
    """
    return store_tile(layer, layout.one, layout.tile, layout.down * layout.config.block_m)


def store_tile(layer: Pointwise, one: Product, tile: tiles.WarpTile, MP: int) -> Any:
    """As `store`: of any warp tile, m0 counting MP rows for each image."""
    if by_eights(layer, one, tile):
        return eights(layer, one, tile, MP)
    put = finisher(layer, one, MP)
    return tiles.fours(tile, put) if layer.dtype == "float32" else tiles.each(tile, put)


def by_eights(layer: Pointwise, one: Product, tile: tiles.WarpTile) -> bool:
    """Whether a warp's 16-bit sums go out as whole pieces of 16 bytes."""
    return layer.dtype != "float32" and tile.run == 2 and tile.N % 32 == 0 and one.N % 8 == 0


@cuda.jit(device=True, forceinline=True)
def turn(lane, p0, p1, p2, p3):
    """Four lanes' four values turned over: lane t of each four gets those named p_t, the first lane's first."""
    odd, high = (lane & uint32(1)) != uint32(0), (lane & uint32(2)) != uint32(0)
    s0, s1 = (p0, p2) if odd else (p1, p3)
    s0, s1 = cuda.shfl_xor_sync(0xFFFFFFFF, s0, 1), cuda.shfl_xor_sync(0xFFFFFFFF, s1, 1)
    a0, a1, b0, b1 = (s0, p1, s1, p3) if odd else (p0, s0, p2, s1)
    s0, s1 = (a0, a1) if high else (b0, b1)
    s0, s1 = cuda.shfl_xor_sync(0xFFFFFFFF, s0, 2), cuda.shfl_xor_sync(0xFFFFFFFF, s1, 2)
    return (s0, s1, b0, b1) if high else (a0, a1, s0, s1)


def eights(layer: Pointwise, one: Product, tile: tiles.WarpTile, MP: int) -> Any:
    """As `store_tile`, 16 bytes at a time: the lanes of four trade their sums of 32 columns (`turn`).

    Of eight neighbouring columns four lanes hold two sums each. After the trade a lane has them all, and a store of a
    warp fills the sectors it touches. A residual's 16 bytes come the same way; then float32 sums are traded.
    """
    activate = epilogue.activate(layer.activation)
    return _eights(activate, layer.bias, layer.residual, layer.dtype, one.M, one.N, one.nchw, MP, tile)


def _eights(
    activate: Any, bias: bool, residual: bool, dtype: str, M: int, N: int, nchw: bool, MP: int, tile: tiles.WarpTile
) -> Any:
    unpack, pack = UNPACK[dtype], PACK[dtype]
    NJ = tile.N // 8

    def rows(q: int, i: int, h: int) -> Any:  # 8 rows of 32 columns
        c = 4 * (NJ * i + q) + 2 * h

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, lane, y, b, r, m0, n0):  # in NHWC b is what `columns` read
            first, row_bias = uint32(0), float32(0)
            m, t = uint32(m0 + uint32(16 * i + 8 * h) + lane // uint32(4)), uint32(lane % uint32(4))
            if nchw:
                first = uint32(m // uint32(MP) * uint32(M))
                m = uint32(m % uint32(MP))
                if bias:
                    if m < uint32(M) and uint32(n0 + uint32(8 * q)) < uint32(N):
                        row_bias, other = unpack(b[uint32(m // uint32(2))])
                        if m % uint32(2) != uint32(0):
                            row_bias = other
            for j in range(4):
                for e in range(2):
                    value = acc[c + 4 * j + e]
                    if bias:
                        value += row_bias if nchw else b[2 * j + e]
                    acc[c + 4 * j + e] = activate(value)
            n = uint32(n0 + uint32(8 * q) + uint32(8) * t)
            at = uint32((uint32(first + m) * uint32(N) + n) // uint32(2))
            if residual:
                u0, u2, u4, u6 = turn(lane, acc[c], acc[c + 4], acc[c + 8], acc[c + 12])
                u1, u3, u5, u7 = turn(lane, acc[c + 1], acc[c + 5], acc[c + 9], acc[c + 13])
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
                w0, w1, w2, w3 = turn(lane, w0, w1, w2, w3)
                if m < uint32(M) and n < uint32(N):
                    ptx.store4(y, at, w0, w1, w2, w3)

        return rows

    def columns(q: int) -> Any:  # 32 columns, their bias read once
        every = in_turn([rows(q, i, h) for i in range(tile.M // 16) for h in range(2)], arguments=7)

        @cuda.jit(device=True, forceinline=True)
        def columns(acc, lane, y, b, r, m0, n0):
            if nchw or not bias:
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

    return in_turn([columns(q) for q in range(0, NJ, 4)], arguments=7)


def _finished_by_eights(layer: Pointwise, one: Product, tile: tiles.WarpTile) -> Traffic:
    lane = np.arange(32)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    n0 = np.arange(0, -(-one.N // tile.N) * tile.N, 32)[:, None]
    rows = np.arange(0, -(-one.M // tile.M) * tile.M, 8)[:, None, None]
    if layer.bias and not one.nchw:
        n = n0[..., None] + 8 * np.arange(4)[:, None] + lane % 4 * 2
        words = warp_traffic(np.where(n < one.N, n // 2, -1).reshape(-1, 32))
        load += -(-one.M // tile.M) * words
    m, n = np.broadcast_arrays(rows + lane // 4, n0 + lane % 4 * 8)
    inside = (m < one.M) & (n < one.N)
    for image in range(one.images):
        store += warp_traffic(np.where(inside, ((image * one.M + m) * one.N + n) // 8, -1).reshape(-1, 32), 2)
        if layer.bias and one.nchw:
            there = (m < one.M) & (n0 < one.N)
            load += warp_traffic(np.where(there, m // 2, -1).reshape(-1, 32))
    return Traffic(*(load + store * layer.residual), *store)


def finished(layer: Pointwise, tile: tiles.WarpTile) -> Traffic:
    """The traffic of `store_tile` on all of Y, by warps of one tile each that cover it from row and column 0 on."""
    one, lane = product(layer), np.arange(32)
    if by_eights(layer, one, tile):
        return _finished_by_eights(layer, one, tile)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    if layer.dtype == "float32":
        runs, width = [tiles.place_of_four(tile, lane, i) for i in range(0, tile.size, 4)], 4
    else:
        runs, width = [tile.place(lane, i) for i in range(0, tile.size, 2)], 2
    m_of, n_of = np.array([run[0] for run in runs]), np.array([run[1] for run in runs])
    n0 = np.arange(0, one.N, tile.N)[:, None, None]
    for image in range(one.images):
        for m0 in range(0, one.M, tile.M):
            m = np.broadcast_to(m0 + m_of, (len(n0), *m_of.shape)).reshape(-1, 32)
            n = (n0 + n_of).reshape(-1, 32)
            at = (image * one.M + m) * one.N + n
            steps = [(0, width)] if width == 2 or one.N % 4 == 0 else [(d, 1) for d in range(4)]
            for d, size in steps:
                inside = (m < one.M) & (n + d < one.N)
                found = warp_traffic(np.where(inside, (at + d) // size, -1), (8 if width == 4 else 16) // size)
                store += found
                if layer.residual:
                    load += found
                if layer.bias:
                    element = m // (1 if width == 4 else 2) if one.nchw else (n + d) // size
                    per_sector = 8 if one.nchw or size == 1 or width == 2 else 2
                    load += warp_traffic(np.where(inside, element, -1), per_sector)
    return Traffic(*load, *store)
