"""What a block does with bands of planes: columns of depthwise outputs out of runs of x, and outputs on to NCHW.

Runs of x lie in shared memory as they lie in global memory, elements of 16 bits too: a row of a map may begin with
either half of a word. `take` reads from any element on.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise2d.pieces import element
from dwlab.kernels.fused.plane_tiles import KEPT, Plan
from dwlab.kernels.parts import epilogue, pieces, ptx
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import DepthwiseConv2d, Pointwise


@functools.cache
def take(count: int, dtype: str, half: int | None = None) -> Any:
    """take(values, pool, at): values[0 : count] = the elements of shared memory from element `at` on, as float32.

    half: which half of a word all calls begin with, where that is known; then `at` is that word. Otherwise up to one
    word more is read than the elements are in.
    """
    if dtype == "float32":

        @cuda.jit(device=True, forceinline=True)
        def take(values, pool, at):
            for k in range(count):
                values[k] = pool[uint32(at + uint32(k))]

        return take

    unpack, PAIRS, KNOWN, EVEN, ODD = pieces.UNPACK[dtype], (count + 1) // 2, half is not None, half == 0, half == 1
    WORDS = PAIRS if EVEN else (count + 2) // 2

    def pair(k: int) -> Any:
        last, after = 2 * k + 1 < count, min(k + 1, WORDS - 1)

        @cuda.jit(device=True, forceinline=True)
        def pair(values, words, at):
            word = words[k]
            if not EVEN:  # the upper half of this word and the lower half of the next one
                choice = int32(0x5432) if ODD or at & uint32(1) else int32(0x3210)
                first, second = ptx.word_of_float(word), ptx.word_of_float(words[after])
                word = ptx.float_of_word(ptx.prmt(first, second, choice))
            low, high = unpack(word)
            values[2 * k] = low
            if last:
                values[2 * k + 1] = high

        return pair

    pairs = in_turn([pair(k) for k in range(PAIRS)], arguments=3)

    @cuda.jit(device=True, forceinline=True)
    def take(values, pool, at):
        words = cuda.local.array(WORDS, float32)
        word = at if KNOWN else uint32(at >> uint32(1))
        for k in range(WORDS):
            words[k] = pool[uint32(word + uint32(k))]
        pairs(values, words, at)

    return take


@functools.cache
def columns(layer: DepthwiseConv2d, run: int) -> Any:
    """columns(sums, pool, x_at, w_at, h, end, v): the depthwise outputs of a word of columns, `run` rows of them.

    sums[row * elements of a word + e] += …. x_at, w_at: elements of shared memory, of x in row h and column v, where
    the outputs' first tap is, and of the channel's taps. h: that row, counted from the first one in shared memory;
    rows from `end` on are not there. What lies outside counts as 0.
    """
    E, W, K, S, dtype, KEEP = 4 // layer.itemsize, layer.W, layer.K, layer.stride, layer.dtype, layer.K <= KEPT
    WINDOW, TAPS = (E - 1) * S + K, K * K if layer.K <= KEPT else K
    half = layer.padding % 2 if W % 2 == 0 and E == 2 else None  # rows of whole words: it is the same everywhere
    WORDS, NEXT = half is not None, W if half is None else W // 2  # how far it is to the next row
    take_x, take_w = take(WINDOW, dtype, half), take(TAPS, dtype)

    def add(i: int, r: int) -> Any:
        """Row i of x is added to the sums of row r of outputs."""
        tap, first = i - r * S, (i - r * S) * K if KEEP else 0

        @cuda.jit(device=True, forceinline=True)
        def add(sums, taps, values, pool, w_at):
            if not KEEP:
                take_w(taps, pool, uint32(w_at + uint32(tap * K)))
            for j in range(K):
                for e in range(E):
                    sums[r * E + e] += taps[first + j] * values[e * S + j]

        return add

    def row(i: int) -> Any:
        adds = in_turn([add(i, r) for r in range(run) if 0 <= i - r * S < K], arguments=5)

        @cuda.jit(device=True, forceinline=True)
        def row(sums, taps, pool, x_at, w_at, where):
            if uint32(where[0] + uint32(i)) < where[1]:  # above: wraps to a huge number
                values = cuda.local.array(WINDOW, float32)
                take_x(values, pool, uint32(x_at + uint32(i * NEXT)))
                for j in range(WINDOW):
                    if uint32(where[2] + uint32(j)) >= uint32(W):
                        values[j] = float32(0)
                adds(sums, taps, values, pool, w_at)

        return row

    wanted = [i for i in range((run - 1) * S + K) if i % S < K]
    rows = in_turn([row(i) for i in wanted], arguments=6)

    @cuda.jit(device=True, forceinline=True)
    def columns(sums, pool, x_at, w_at, h, end, v):
        taps = cuda.local.array(TAPS, float32)
        where = cuda.local.array(3, uint32)
        where[0], where[1], where[2] = h, end, v
        if KEEP:
            take_w(taps, pool, w_at)
        if WORDS:  # above the map: wraps, and so it must be as a word
            x_at = uint32(int32(x_at) >> int32(1))
        rows(sums, taps, pool, x_at, w_at, where)

    return columns


def at_once(layer: Pointwise, plan: Plan) -> int:
    """Elements of y that a thread stores at a time: whole words, and of one filter where rows of its pixels allow."""
    of_band, of_map = plan.tiles.height * layer.Q, layer.P * layer.Q
    sizes = [size for size in (16 // layer.itemsize, 8 // layer.itemsize) if of_band % size == of_map % size == 0]
    return max([plan.elements, *sizes])


@functools.cache
def _put(words: int) -> Any:
    """put(y, to, values): so many words to a global array."""
    if words == 4:

        @cuda.jit(device=True, forceinline=True)
        def put(y, to, values):
            ptx.store4(y, to, values[0], values[1], values[2], values[3])

    elif words == 2:

        @cuda.jit(device=True, forceinline=True)
        def put(y, to, values):
            ptx.store2(y, to, values[0], values[1])

    else:

        @cuda.jit(device=True, forceinline=True)
        def put(y, to, values):
            y[to] = values[0]

    return put


@functools.cache
def write(layer: Pointwise, plan: Plan) -> Any:
    """write(pool, b, r, y, n, p0, f0, t): thread t's part of a block's outputs, from shared memory to y.

    pool: sums, those of filter g and pixel (p, q) of the band at word g * plan.out_pitch + p * row + q, row the pixels
    that a row has room for; warps_k of them are added up. b, r, y come as words. A block that has all of a map writes
    one run, whatever the map's size; of other bands rows are whole words (Plan.why_not).
    """
    E, P, Q, F, dtype = plan.elements, layer.P, layer.Q, layer.F, layer.dtype
    OUT, ROW, SIZE, THREADS = plan.out_pitch, plan.row * plan.elements, at_once(layer, plan), plan.tiles.threads
    CNT, SHARES, APART = plan.tiles.height * Q, plan.tiles.warps_k, plan.tiles.filters * plan.out_pitch
    ITEMS, ACROSS, FLAT = plan.tiles.filters * CNT // SIZE, CNT % SIZE != 0, ROW == Q
    WORDS, BIAS, RESIDUAL, WIDE = SIZE // E, layer.bias, layer.residual, dtype == "float32"
    FOURS = SIZE // 4 if FLAT else 0  # sums of neighbouring pixels are neighbours: they are read four at a time
    read, unpack = pieces.read(WORDS), pieces.unpack(SIZE, dtype)
    put, activate, bias_of, pack = (
        _put(WORDS),
        epilogue.activate(layer.activation),
        element(dtype),
        pieces.PACK.get(dtype),
    )
    ROOM = SIZE + WORDS

    @cuda.jit(device=True, forceinline=True)
    def fours(values, pool, at):
        for k in range(SIZE):
            values[k] = float32(0)
        for share in range(SHARES):
            for k in range(FOURS):
                v0, v1, v2, v3 = ptx.load4_shared(pool, uint32(at + uint32(share * APART + 4 * k)))
                values[4 * k] += v0
                values[4 * k + 1] += v1
                values[4 * k + 2] += v2
                values[4 * k + 3] += v3

    @cuda.jit(device=True, forceinline=True)
    def write(pool, b, r, y, n, p0, f0, t):
        values = cuda.local.array(SIZE, float32)
        words = cuda.local.array(WORDS, float32)
        more = cuda.local.array(ROOM, float32)
        first = uint32(p0 * Q)
        for i in range(t, ITEMS, THREADS):
            g, m = uint32(uint32(i) * SIZE // CNT), uint32(uint32(i) * SIZE % CNT)
            if f0 + g < F and first + m < P * Q:
                to = uint32(((n * F + f0 + g) * (P * Q) + first + m) // E)
                bias = float32(0)
                if FOURS > 0:
                    fours(values, pool, uint32(g * OUT + m))
                for k in range(SIZE):
                    f, pixel = g, uint32(m + uint32(k))
                    if ACROSS and pixel >= CNT:  # the next filter's first pixel is in the same word
                        f, pixel = uint32(g + uint32(1)), uint32(0)
                    if not FLAT:
                        pixel = uint32(pixel // Q * ROW + pixel % Q)
                    if BIAS and (ACROSS or k == 0):
                        bias = bias_of(b, uint32(f0 + f))
                    total = bias
                    if FOURS > 0:
                        total += values[k]
                    else:
                        for share in range(SHARES):
                            total += pool[uint32(f * OUT + pixel + uint32(share * APART))]
                    values[k] = activate(total)
                if RESIDUAL:
                    read(more, SIZE, r, to)
                    unpack(more, 0, SIZE)
                    for k in range(SIZE):
                        values[k] += more[k]
                for k in range(WORDS):
                    words[k] = values[k] if WIDE else pack(values[2 * k], values[2 * k + 1])
                put(y, to, words)

    return write


def written(layer: Pointwise, plan: Plan, base: int, p0: int, f0: int) -> tuple[np.ndarray, np.ndarray]:
    """(loads, stores) of `write` by a block, each [requests, sectors]. base: the word of the image's first y."""
    E, Q, F, CNT, size = plan.elements, layer.Q, layer.F, plan.tiles.height * layer.Q, at_once(layer, plan)
    count, threads, PQ = plan.tiles.filters * CNT // size, plan.tiles.threads, layer.P * layer.Q
    item = np.arange(-(-count // threads))[:, None] * threads + np.arange(threads)
    g, m = item * size // CNT, item * size % CNT
    there = (item < count) & (f0 + g < F) & (p0 * Q + m < PQ)
    to = base + ((f0 + g) * PQ + p0 * Q + m) // E
    stores = warp_traffic(np.where(there, to // (size // E), -1), 8 * E // size)
    load = stores * layer.residual
    if layer.bias:
        for k in range(size if CNT % size else 1):
            load = load + warp_traffic(np.where(there, (f0 + g + (m + k >= CNT)) // E, -1))
    return load, stores
