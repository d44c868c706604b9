"""int8 outputs of a warp's int32 sums on tensor cores (tiles.tensor of "int8"): requantised, and 16 bytes at a time.

A lane has the sums of neighbouring columns 2 t and 2 t + 1 of rows g and g + 8, in every 8 columns: two bytes here and
there. Four lanes of a row trade: of 16 rows x 32 columns each lane packs its 16 bytes into four words, the lanes turn
them over (`blocks.turn`), and then a lane has 16 neighbouring columns of one row. Two shuffles for each of four words.
Rows of y that are no whole pieces of 16 bytes take 8 bytes: then a lane packs, and has after the trade, 8 neighbouring
columns of row g and the same of row g + 8, so that what four lanes store at once lies next to each other, 32 bytes.

sum (x - zero_x) w = sum x w - zero_x sum w: the lanes' shares of sum w, behind the sums, are added up over the four
lanes of a column, and each lane fetches those of its own two columns.

The filters' factors m, and their biases b, come to shared memory with the filters (`vectors`): a warp that asked for
them when its sums are done would wait for the L2 each time.

`Stream` is a pointwise layer within a fused kernel: its x, all channels of some pixels, is in shared memory already,
the filters come there a chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, epilogue, ptx, tiles
from dwlab.kernels.parts.blocks import turn
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import Pointwise

# What the choice of a plan goes by, guessed: operations that a multiprocessor does and bytes that it writes in a ns,
# and ns from one chunk of filters to the next at least.
PER_NS, WRITTEN, LATER = 5000, 20, 250


def wide(F: int) -> bool:
    """Whether rows of F bytes are whole pieces of 16: else outputs go there 8 columns at a time."""
    return F % 16 == 0


def vector_words(layer: Pointwise, BN: int) -> int:
    """Words of shared memory for m, and b if the layer has one, of BN filters."""
    return (1 + layer.bias) * BN


def vectors(layer: Pointwise, BN: int, threads: int, beyond: bool = False) -> Any:
    """bring(pool, at, b, m, n0, t): starts copies of m, then b if the layer has one, of BN filters to word `at` on.

    From filter n0 on, a multiple of BN, BN one of 4; what is beyond the last filter is 0. threads, beyond: as
    `blocks.bring` has them.
    """
    BIAS, LINES = layer.bias, BN // 4
    some = blocks.bring(LINES, 4, 4, threads, layer.F // 4, 4, 4, order="mn", beyond=beyond)

    @cuda.jit(device=True, forceinline=True)
    def bring(pool, at, b, m, n0, t):
        line0 = uint32(n0 // uint32(4))
        some(pool, at, m, uint32(0), line0, uint32(0), t)
        if BIAS:
            some(pool, uint32(at + uint32(BN)), b, uint32(0), line0, uint32(0), t)

    return bring


def vectors_brought(layer: Pointwise, BN: int, threads: int) -> Any:
    """[requests, sectors] of `vectors` of all filters once, BN at a time."""
    return (1 + layer.bias) * blocks.brought(BN // 4, 4, threads, layer.F // 4, 4, 4)


def finish(layer: Pointwise, tile: tiles.WarpTile, BN: int, put: Any, get: Any = None, halves: bool = False) -> Any:
    """finish(acc, lane, y, pool, at, r, m0, n0): requantises a warp's sums and hands them to `put`, 16 columns at once.

    put(y, row, column, w0, w1, w2, w3): words of 4 int8, of row row - m0 and of columns from column - n0 on, a
    multiple of 16. n0: the filter of the tile's first column. pool[at] is its m, as `vectors` of BN filters brings it;
    columns from F on get any numbers. get(r, row, column) -> w0, w1, w2, w3: what a residual adds there. All 32 lanes
    come. halves: 8 columns at a time, put(y, row, column, w0, w1) and get(r, row, column) -> w0, w1.
    """
    ZERO, BIAS, F, NJ, SIZE = layer.zero_x, layer.bias, layer.F, tile.N // 8, tile.size
    requantise = epilogue.requantise_added(replace(layer, bias=True), packed=True)  # of what a sum begins with
    hand, shares = _by_halves(put, get) if halves else _by_wholes(put, get)
    if not layer.residual:
        shares = _nothing
    if tile.N % 32 or F % 4:
        raise ValueError(f"{tile.N} columns of a warp's tile must be a multiple of 32, and {F} filters of 4")

    def rows(i: int, q: int) -> Any:  # 16 rows, columns 8 q to 8 q + 31
        FIRST = 4 * (NJ * i + q)

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, begin, factor, lane, y, r, m0, n0):
            words = cuda.local.array(4, int32)
            added = cuda.local.array(4, int32)
            row, column = uint32(m0 + uint32(16 * i)), uint32(n0 + uint32(8 * q))
            added[0], added[1], added[2], added[3] = shares(r, lane, row, column)
            for e in range(4):  # a word: two columns, k and k + 1, and two that are other columns or those of row g + 8
                k = 2 * e if halves else e % 2 * 4
                c, other = FIRST + (4 * e if halves else e % 2 * 8 + e // 2 * 2), 0 if halves else 2
                d = c + (2 if halves else 4)
                own = added[e]
                v0 = requantise(acc[c], begin, factor, k, epilogue.byte(own, 0))
                v1 = requantise(acc[c + 1], begin, factor, k + 1, epilogue.byte(own, 1))
                v2 = requantise(acc[d], begin, factor, k + other, epilogue.byte(own, 2))
                v3 = requantise(acc[d + 1], begin, factor, k + other + 1, epilogue.byte(own, 3))
                words[e] = ptx.pack_s8(v0, v1, v2, v3)
            w0, w1, w2, w3 = turn(lane, words[0], words[1], words[2], words[3])
            low, high = int32(0x5410), int32(0x7632)  # a word has two bytes of 8 outputs, then two of the next 8
            a, b = ptx.prmt(w0, w1, low), ptx.prmt(w2, w3, low)
            hand(y, lane, row, column, a, b, ptx.prmt(w0, w1, high), ptx.prmt(w2, w3, high))

        return rows

    def columns(q: int) -> Any:  # 32 columns: what their sums begin with, and their factors
        every = in_turn([rows(i, q) for i in range(tile.M // 16)], arguments=8)

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

    return in_turn([columns(q) for q in range(0, NJ, 4)], arguments=8)


def _by_wholes(put: Any, get: Any) -> tuple[Any, Any]:
    """hand(y, lane, row, column, a, b, c, d) and shares(r, lane, row, column) of 16 rows x 32 columns from there on.

    hand: a lane's 16 bytes to `put`. shares -> 4 words: those of `get`, traded so that each lane has those of its sums:
    the way of the outputs backwards, as turning over four lanes' four words twice leaves them as they were.
    """

    @cuda.jit(device=True, forceinline=True)
    def place(lane, row, column):
        t = uint32(lane % uint32(4))
        return uint32(row + lane // uint32(4) + t // uint32(2) * uint32(8)), uint32(column + t % uint32(2) * uint32(16))

    @cuda.jit(device=True, forceinline=True)
    def hand(y, lane, row, column, a, b, c, d):
        m, n = place(lane, row, column)
        put(y, m, n, a, b, c, d)

    @cuda.jit(device=True, forceinline=True)
    def shares(r, lane, row, column):
        m, n = place(lane, row, column)
        a, b, c, d = get(r, m, n)
        return _back(lane, a, b, c, d)

    return hand, shares


def _by_halves(put: Any, get: Any) -> tuple[Any, Any]:
    """As `_by_wholes`, 8 bytes of row g and 8 of row g + 8."""

    @cuda.jit(device=True, forceinline=True)
    def hand(y, lane, row, column, a, b, c, d):
        m, n = uint32(row + lane // uint32(4)), uint32(column + lane % uint32(4) * uint32(8))
        put(y, m, n, a, b)
        put(y, uint32(m + uint32(8)), n, c, d)

    @cuda.jit(device=True, forceinline=True)
    def shares(r, lane, row, column):
        m, n = uint32(row + lane // uint32(4)), uint32(column + lane % uint32(4) * uint32(8))
        a, b = get(r, m, n)
        c, d = get(r, uint32(m + uint32(8)), n)
        return _back(lane, a, b, c, d)

    return hand, shares


@cuda.jit(device=True, forceinline=True)
def _back(lane, a, b, c, d):
    """A lane's 16 bytes of outputs, traded back to the lanes that have the sums."""
    low, high = int32(0x5410), int32(0x7632)
    return turn(lane, ptx.prmt(a, c, low), ptx.prmt(a, c, high), ptx.prmt(b, d, low), ptx.prmt(b, d, high))


@cuda.jit(device=True, forceinline=True)
def _nothing(r, lane, row, column):
    """The `shares` of a layer without a residual."""
    return int32(0), int32(0), int32(0), int32(0)


def store(F: int) -> Any:
    """store(y, m, n, w0, w1, w2, w3): 16 bytes to row m of y, rows of F bytes as words; filters from F on are not.

    Where rows are no whole pieces of 16, 8 bytes: store(y, m, n, w0, w1).
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


def fetch(F: int) -> Any:
    """fetch(r, m, n) -> the words that `store` takes, from there; of filters from F on any numbers."""
    PAIRS = F % 8 == 0

    if wide(F):

        @cuda.jit(device=True, forceinline=True)
        def fetch(r, m, n):
            v0 = v1 = v2 = v3 = float32(0)
            if n < uint32(F):
                v0, v1, v2, v3 = ptx.load4(r, uint32((m * uint32(F) + n) // uint32(4)))
            return ptx.word_of_float(v0), ptx.word_of_float(v1), ptx.word_of_float(v2), ptx.word_of_float(v3)

    else:

        @cuda.jit(device=True, forceinline=True)
        def fetch(r, m, n):
            v0 = v1 = float32(0)
            at = uint32((m * uint32(F) + n) // uint32(4))
            if n < uint32(F):
                if PAIRS:
                    v0, v1 = ptx.load2(r, at)
                else:
                    v0 = r[at]
                    if uint32(n + uint32(4)) < uint32(F):
                        v1 = r[uint32(at + uint32(1))]
            return ptx.word_of_float(v0), ptx.word_of_float(v1)

    return fetch


def where(place: Any, F: int) -> tuple[Any, Any]:
    """put and get of `finish`, halves if not `wide`: place(m) -> (whether there is such a row, its number in y)."""
    store_row, fetch_row = store(F), fetch(F)

    if wide(F):

        @cuda.jit(device=True, forceinline=True)
        def put(y, m, n, w0, w1, w2, w3):
            there, row = place(m)
            if there:
                store_row(y, row, n, w0, w1, w2, w3)

        @cuda.jit(device=True, forceinline=True)
        def get(r, m, n):
            w0 = w1 = w2 = w3 = int32(0)
            there, row = place(m)
            if there:
                w0, w1, w2, w3 = fetch_row(r, row, n)
            return w0, w1, w2, w3

    else:

        @cuda.jit(device=True, forceinline=True)
        def put(y, m, n, w0, w1):
            there, row = place(m)
            if there:
                store_row(y, row, n, w0, w1)

        @cuda.jit(device=True, forceinline=True)
        def get(r, m, n):
            w0 = w1 = int32(0)
            there, row = place(m)
            if there:
                w0, w1 = fetch_row(r, row, n)
            return w0, w1

    return put, get


def rows_of(M: int, F: int) -> tuple[Any, Any, bool]:
    """put(y, m, n, w0, w1, w2, w3), get(r, m, n) and halves of `finish`: `store` and `fetch` of row m of M."""

    @cuda.jit(device=True, forceinline=True)
    def place(m):
        return m < uint32(M), m

    return *where(place, F), not wide(F)


def tiles_of(P: int, Q: int, TH: int, TW: int, F: int) -> tuple[Any, Any, bool]:
    """put, get and halves of `finish` where rows are pixels of tiles of TH x TW: row TH TW b + i is pixel i of tile b.

    Tiles follow each other along a row of tiles of a map of P x Q, then down, then through the images.
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

    return *where(place, F), not wide(F)


def stored(F: int, m: np.ndarray, n: np.ndarray) -> np.ndarray:
    """[requests, sectors] of `store` by warps: rows (-1: none) and columns of their lanes, which are the last axis."""
    m, n = (axis.reshape(-1, 32) for axis in np.broadcast_arrays(m, n))
    at, there = (m * F + n) // 4, (m >= 0) & (n < F)
    size = blocks.piece(F // 4)
    if size > 1:
        return warp_traffic(np.where(there, at // size, -1), 8 // size)
    return warp_traffic(np.where(there, at, -1)) + warp_traffic(np.where(there & (n + 4 < F), at + 1, -1))


def places(tile: tiles.WarpTile, F: int) -> tuple[np.ndarray, np.ndarray]:
    """(row, column) in a warp's tile of each call of `put`, (calls, 32 lanes), where rows of y are F bytes long."""
    lane = np.arange(32)
    if wide(F):
        i, q = (axis.reshape(-1, 1) for axis in np.mgrid[0 : tile.M : 16, 0 : tile.N : 32])
        return i + lane // 4 + lane % 4 // 2 * 8, q + lane % 2 * 16
    i, q = (axis.reshape(-1, 1) for axis in np.mgrid[0 : tile.M : 8, 0 : tile.N : 32])
    return i + lane // 4, q + lane % 4 * 8


CHUNK = 32  # words of channels in a chunk, at most


def chunk(words: int) -> int:
    """Words of a chunk, where channels are so many: whole products of 8, as few as the same number of chunks needs."""
    return -(-words // (-(-words // CHUNK) * 8)) * 8


@dataclass(frozen=True)
class Stream:
    """The products of block_m pixels, all in shared memory, with `groups` times block_n filters, for a tile.

    layer: the pointwise layer. A tile's block_m is a multiple of warp_m, block_n of warp_n, warp_n of 32; its
    pipeline_stages are chunks of filters in shared memory at a time, one to compute with and the others on their way,
    2 to 5; its helper_warps copy filters, and do what a block does before, but have no products.
    """

    layer: Pointwise
    config: TileConfig
    groups: int

    @property
    def rows(self) -> int:
        """Pixels."""
        return self.config.block_m

    @property
    def BN(self) -> int:
        """Filters of a group."""
        return self.config.block_n

    @property
    def WM(self) -> int:
        """Rows of a warp's product."""
        return self.config.warp_m

    @property
    def WN(self) -> int:
        """Columns of a warp's product."""
        return self.config.warp_n

    @property
    def depth(self) -> int:
        """Chunks of filters in shared memory at a time."""
        return self.config.pipeline_stages

    @property
    def helpers(self) -> int:
        """Warps without products."""
        return self.config.helper_warps

    @property
    def warps(self) -> int:
        """That have products."""
        return self.config.warps

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.config.threads

    @property
    def words(self) -> int:
        """Of a pixel's, or a filter's, channels."""
        return self.layer.C // 4

    @property
    def chunk(self) -> int:
        """Words of channels at a time."""
        return chunk(self.words)

    @property
    def chunks(self) -> int:
        """Of all channels."""
        return -(-self.words // self.chunk)

    @property
    def rest(self) -> int:
        """Words of the last chunk that are beyond the last channel: any numbers, but there must be some."""
        return self.chunks * self.chunk - self.words

    @property
    def pitch(self) -> int:
        """Words between pixels in shared memory."""
        return tiles.pitch(self.chunks * self.chunk, "k", "int8")

    @property
    def w_pitch(self) -> int:
        """Words between filters in shared memory."""
        return self.chunk

    @property
    def x_words(self) -> int:
        """Of shared memory for the pixels."""
        return self.rows * self.pitch

    @property
    def step(self) -> int:
        """Words of shared memory for a chunk of filters, and m and b with the last of a group."""
        return self.BN * self.w_pitch + vector_words(self.layer, self.BN)

    @property
    def w_words(self) -> int:
        """Of shared memory for chunks of filters."""
        return self.depth * self.step

    @property
    def tile(self) -> tiles.WarpTile:
        """A warp's products of a chunk."""
        columns = self.layer.zero_x != 0
        return tiles.tensor("int8", self.WM, self.WN, 4 * self.chunk, self.pitch, self.w_pitch, "k", "k", True, columns)

    def functions(self, put: Any, get: Any = None, halves: bool = False, parts: int = 1) -> tuple[Any, Any]:
        """(begin, go), device functions that a block calls in turn.

        begin(pool, w_at, w, b, m, f0, t) starts the copies of the first chunks of filters, from f0 on, to word w_at of
        the shared array `pool`; t: the thread. What it has started copying before, and not committed, comes with the
        first.
        go(pool, x_at, w_at, w, b, m, r, y, f0, m0, t) computes all groups, pixels at word x_at, and hands outputs to
        `put` as rows m0 + pixel (put, get and halves: see `finish`). A barrier before copies to the same words start
        again is the caller's.
        parts: so many blocks, or calls of a block, share the filters; of the last ones' groups there may be none.
        """
        CHUNK, CHUNKS, STEP, STEPS = self.chunk, self.chunks, self.step, self.groups * self.chunks
        BN, WM, WN, WARPS, PITCH, W_PITCH = self.BN, self.WM, self.WN, self.BN // self.WN, self.pitch, self.w_pitch
        product = self.tile
        SIZE, zero, add = product.size + product.more, product.zero, product.add
        ALL, MINE, DEPTH, wait = self.helpers == 0, self.warps, self.depth, blocks.WAITS[self.depth - 2]
        finished, W_WORDS = finish(self.layer, product, BN, put, get, halves), self.BN * self.w_pitch
        F, beyond = self.layer.F, (parts * self.groups - 1) * BN >= self.layer.F
        bring_w = blocks.bring(BN, CHUNK, W_PITCH, self.threads, F, self.words, self.words, beyond=beyond)
        bring_vectors = vectors(self.layer, BN, self.threads, beyond)

        @cuda.jit(device=True, forceinline=True)
        def bring(pool, at, w, b, m, f, chunk, t):
            bring_w(pool, at, w, uint32(0), f, uint32(chunk * uint32(CHUNK)), t)
            if chunk == uint32(CHUNKS - 1):
                bring_vectors(pool, uint32(at + uint32(W_WORDS)), b, m, f, t)

        @cuda.jit(device=True, forceinline=True)
        def begin(pool, w_at, w, b, m, f0, t):
            for step in range(DEPTH - 1):
                if step < STEPS:
                    f = uint32(f0 + uint32(step // CHUNKS * BN))
                    bring(pool, uint32(w_at + uint32(step * STEP)), w, b, m, f, uint32(step % CHUNKS), t)
                ptx.commit()

        @cuda.jit(device=True, forceinline=True)
        def go(pool, x_at, w_at, w, b, m, r, y, f0, m0, t):
            acc = cuda.local.array(SIZE, int32)
            zero(acc)
            lane, warp = uint32(t % uint32(32)), uint32(t // uint32(32))
            row, column = uint32(warp // uint32(WARPS) * uint32(WM)), uint32(warp % uint32(WARPS) * uint32(WN))
            a0, b0 = uint32(x_at + row * uint32(PITCH)), uint32(w_at + column * uint32(W_PITCH))
            here, there = uint32(0), uint32((DEPTH - 1) * STEP)
            for step in range(STEPS):
                wait()
                cuda.syncthreads()  # this chunk has come for all threads, and all are done with the one before
                group, chunk = uint32(uint32(step) // uint32(CHUNKS)), uint32(uint32(step) % uint32(CHUNKS))
                ahead = uint32(step + (DEPTH - 1))
                if ahead < uint32(STEPS):
                    f, c = uint32(f0 + ahead // uint32(CHUNKS) * uint32(BN)), uint32(ahead % uint32(CHUNKS))
                    bring(pool, uint32(w_at + there), w, b, m, f, c, t)
                ptx.commit()
                if ALL or warp < uint32(MINE):
                    add(acc, pool, uint32(a0 + chunk * uint32(CHUNK)), pool, uint32(b0 + here), lane)
                    if chunk == uint32(CHUNKS - 1):
                        at, f = uint32(w_at + here + uint32(W_WORDS) + column), uint32(f0 + group * uint32(BN) + column)
                        finished(acc, lane, y, pool, at, r, uint32(m0 + row), f)
                        zero(acc)
                there = here
                here = uint32(0) if here == uint32((DEPTH - 1) * STEP) else uint32(here + uint32(STEP))

        return begin, go

    def read(self, blocks_: int) -> np.ndarray:
        """[requests, sectors] of so many blocks that each go through all filters: w, b and m."""
        words, F = self.words, self.layer.F
        brought = blocks.brought(self.BN, self.chunk, self.threads, F, words, words)
        return blocks_ * (brought + vectors_brought(self.layer, self.BN, self.threads))

    def puts(self, parts: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(row, filter) of each call of put in a block and warp, or in all blocks of `parts` that share the filters."""
        row, column = places(self.tile, self.layer.F)
        m = np.arange(0, self.rows, self.WM)[:, None, None, None] + row
        n = np.arange(0, parts * self.groups * self.BN, self.WN)[:, None, None] + column
        m, n = np.broadcast_arrays(m, n)
        return m.reshape(-1, 32), n.reshape(-1, 32)
