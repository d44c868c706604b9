"""Depthwise outputs of a thread: a few channels and columns, down the rows of a strip of the map, in registers.

Written out row by row when the kernel is made: which sums a row of x is part of, which columns and rows can lie outside
of the map, where in a ring of registers a row waits. So no sum moves, no product is computed that no output needs, and
of conditions those are left that some thread needs.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

from numba import float32, uint32, uint64

from dwlab import epilogue, pieces, ptx
from dwlab.depthwise1d.straight_line import in_turn as in_twos
from dwlab.layers import DepthwiseConv2d
from dwlab.target import cuda

UNROLLED = 64  # products that are written out in one function


@dataclass(frozen=True)
class Work:
    """What one thread does: `channels` of `run` neighbouring columns, `rows` rows of outputs.

    ahead: rows of x that it has asked for and not computed with. turn: rows of outputs that are written out before they
    repeat, 0 for all.
    """

    channels: int
    run: int
    rows: int
    ahead: int
    turn: int = 0


@functools.cache
def load(channels: int, dtype: str) -> Any:
    """load(to, at, array, index): the words of so many channels of a global array, as they are, to to[at …]."""
    width = pieces.words(channels, dtype)
    if width == 4:

        @cuda.jit(device=True, forceinline=True)
        def load(to, at, array, index):
            to[at], to[at + 1], to[at + 2], to[at + 3] = ptx.load4(array, index)

    elif width == 2:

        @cuda.jit(device=True, forceinline=True)
        def load(to, at, array, index):
            to[at], to[at + 1] = ptx.load2(array, index)

    else:

        @cuda.jit(device=True, forceinline=True)
        def load(to, at, array, index):
            to[at] = array[uint64(index)]

    return load


@functools.cache
def unpack(channels: int, dtype: str) -> Any:
    """unpack(values, to, at): values[to …] become the elements in the words values[at …]."""
    halves = pieces.UNPACK.get(dtype)
    if halves is None:

        @cuda.jit(device=True, forceinline=True)
        def unpack(values, to, at):
            for k in range(channels):
                values[to + k] = values[at + k]

    else:

        @cuda.jit(device=True, forceinline=True)
        def unpack(values, to, at):
            for k in range(channels // 2):
                values[to + 2 * k], values[to + 2 * k + 1] = halves(values[at + k])

    return unpack


@functools.cache
def store(channels: int, dtype: str) -> Any:
    """store(array, index, values, at): the channels in values[at …] to a global array, each element rounded."""
    width, pack = pieces.words(channels, dtype), pieces.PACK.get(dtype)
    if dtype == "float32" and width == 4:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            ptx.store4(array, index, values[at], values[at + 1], values[at + 2], values[at + 3])

    elif dtype == "float32" and width == 2:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            ptx.store2(array, index, values[at], values[at + 1])

    elif dtype == "float32":

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            array[uint64(index)] = values[at]

    elif width == 2:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            ptx.store2(array, index, pack(values[at], values[at + 1]), pack(values[at + 2], values[at + 3]))

    elif width == 4:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            a, b = pack(values[at], values[at + 1]), pack(values[at + 2], values[at + 3])
            c, d = pack(values[at + 4], values[at + 5]), pack(values[at + 6], values[at + 7])
            ptx.store4(array, index, a, b, c, d)

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            array[uint64(index)] = pack(values[at], values[at + 1])

    return store


def sides(size: int, first: int, step: int, times: int, count: int) -> tuple[int, int, int, int]:
    """Places first + t * step + j, t < times, j < count, and 0 <= place < size: (a, b, c, d).

    Those of j < a or j >= d lie outside for all t, those of b <= j < c inside for all.
    """
    last = first + (times - 1) * step
    a = next((j for j in range(count) if any(0 <= first + t * step + j < size for t in range(times))), count)
    d = next((j + 1 for j in reversed(range(a, count)) if any(0 <= first + t * step + j < size for t in range(times))), a)
    b = min(max(a, -first), d)
    c = max(min(d, size - last), b)
    return a, b, c, d


def row_of(layer: DepthwiseConv2d, n: int) -> int:
    """The n-th row of x that a strip needs, counted from its first."""
    head, per = max(layer.K - layer.stride, 0), min(layer.K, layer.stride)
    return n if n < head else (n - head) // per * layer.stride + head + (n - head) % per


def in_turn(calls: list[Any], arguments: int) -> Any:
    """As straight_line.in_turn, eight in a function where it can be."""
    if arguments != 7 or len(calls) < 8:
        return in_twos(calls, arguments)
    size = max(8, 8 ** (math.ceil(math.log(len(calls), 8) - 1e-9) - 1))
    if len(calls) > 8:
        return in_turn([in_turn(calls[n : n + size], 7) for n in range(0, len(calls), size)], 7)
    c0, c1, c2, c3, c4, c5, c6, c7 = calls

    @cuda.jit(device=True, forceinline=True)
    def eight(a, b, c, d, e, f, g):
        c0(a, b, c, d, e, f, g)
        c1(a, b, c, d, e, f, g)
        c2(a, b, c, d, e, f, g)
        c3(a, b, c, d, e, f, g)
        c4(a, b, c, d, e, f, g)
        c5(a, b, c, d, e, f, g)
        c6(a, b, c, d, e, f, g)
        c7(a, b, c, d, e, f, g)

    return eight


@functools.cache
def sliding(layer: DepthwiseConv2d, work: Work) -> Any:
    """slide(x, w, b, r, y, xat, yat, c, h, v, p, q): a thread's outputs.

    Arrays of words. xat, yat: words of the first x that the outputs need (at row h, column v) and of the first output
    (row p, column q); c: the channels' word within a pixel. What lies outside of the map counts as 0.
    """
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    V, T, R, AHEAD = work.channels, work.run, work.rows, work.ahead
    WIDTH, PIXEL = pieces.words(V, layer.dtype), pieces.words(layer.C, layer.dtype)
    COLUMNS, DEEP, HEAD, PER = (T - 1) * S + K, -(-K // S), max(K - S, 0), min(K, S)
    TILES, STRIPS, WIDE = -(-Q // T), -(-P // R), layer.dtype == "float32"
    V0, V1, V2, V3 = sides(W, -PAD, T * S, TILES, COLUMNS)
    H0, H1, H2, H3 = sides(H, -PAD, R * S, STRIPS, (R - 1) * S + K)
    BIAS, RESIDUAL, LOOP = layer.bias, layer.residual, work.turn > 0
    U = work.turn or R
    ROWS = [row_of(layer, n) for n in range(HEAD + U * PER)]
    if not LOOP:
        ROWS = [i for i in ROWS if H0 <= i < H3]
    AHEAD = min(AHEAD, len(ROWS))
    if LOOP and (U % DEEP or U * PER % AHEAD or R % U):
        raise ValueError(f"turns of {U} rows do not fit {R} rows, {DEEP} rows of sums and {AHEAD} rows ahead")
    ROW = COLUMNS * WIDTH
    VALUES = DEEP * T * V
    WAIT = VALUES + (0 if WIDE else COLUMNS * V)
    TAPS = WAIT + AHEAD * ROW
    START = TAPS + K * K * V
    SPARE = START + V
    SIZE = SPARE + WIDTH + V
    WHOLE, EVEN = P % R == 0 and not LOOP, Q % T == 0
    get, spread, put = load(V, layer.dtype), unpack(V, layer.dtype), store(V, layer.dtype)
    activate = epilogue.activate(layer.activation)
    TOP, LEFT, MORE, ACROSS, BOTTOM = range(5)  # of the numbers in `where`

    @cuda.jit(device=True, forceinline=True)
    def ask(f, x, where, xat, i, first, always):
        """Row i of x is asked for."""
        if not always:
            for k in range(V0 * WIDTH, V3 * WIDTH):
                f[first + k] = float32(0)
        if always or uint32(where[TOP] + uint32(i)) < uint32(where[BOTTOM]):
            for j in range(V0, V1):
                for k in range(WIDTH):
                    f[first + j * WIDTH + k] = float32(0)
                if uint32(where[LEFT] + uint32(j)) < uint32(W):
                    get(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)
            for j in range(V1, V2):
                get(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)
            for j in range(V2, V3):
                for k in range(WIDTH):
                    f[first + j * WIDTH + k] = float32(0)
                if uint32(where[LEFT] + uint32(j)) < uint32(W):
                    get(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)

    @cuda.jit(device=True, forceinline=True)
    def take(f, first):
        if not WIDE:
            for j in range(V0, V3):
                spread(f, VALUES + j * V, first + j * WIDTH)

    def products(j0: int, j1: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def products(f, sums, taps, values):
            for j in range(j0, j1):
                for e in range(T):
                    for k in range(V):
                        if V0 <= e * S + j and e * S + j < V3:
                            f[sums + e * V + k] += f[taps + j * V + k] * f[values + (e * S + j) * V + k]

        return products

    each = max(1, UNROLLED // (T * V))
    add = in_turn([products(j, min(K, j + each)) for j in range(0, K, each)], arguments=4)

    @cuda.jit(device=True, forceinline=True)
    def begin(f, sums):
        for e in range(T):
            for k in range(V):
                f[sums + e * V + k] = f[START + k] if BIAS else float32(0)

    @cuda.jit(device=True, forceinline=True)
    def end(f, y, r, where, yat, p, sums):
        """Row p of the outputs is stored."""
        if WHOLE or uint32(p) < uint32(where[MORE]):
            for e in range(T):
                if EVEN or uint32(where[ACROSS] + uint32(e)) < uint32(Q):
                    to, at = yat + (p * Q + e) * PIXEL, sums + e * V
                    for k in range(V):
                        f[at + k] = activate(f[at + k])
                    if RESIDUAL:
                        get(f, SPARE, r, to)
                        if not WIDE:
                            spread(f, SPARE + WIDTH, SPARE)
                        for k in range(V):
                            f[at + k] += f[SPARE + (0 if WIDE else WIDTH) + k]
                    put(y, to, f, at)

    def asking(i: int, slot: int) -> Any:
        first, always = WAIT + slot * ROW, not LOOP and H1 <= i < H2

        @cuda.jit(device=True, forceinline=True)
        def asking(f, x, y, r, where, xat, yat):
            ask(f, x, where, xat, i, first, always)

        return asking

    @cuda.jit(device=True, forceinline=True)
    def output(f, y, r, where, yat, values, i, p, sums, there, starts, ends):
        """Row i of the filter is done with, for row p of the outputs."""
        if there:
            if starts:
                begin(f, sums)
            add(f, sums, TAPS + i * (K * V), values)
            if ends:
                end(f, y, r, where, yat, p, sums)

    def step(n: int, i: int, further: int | None, outputs: range) -> Any:
        """What is done with row i, which waits in slot n % AHEAD; row `further` is asked for."""
        slot = WAIT + n % AHEAD * ROW
        ASKS, NEXT = further is not None, further or 0
        ALWAYS, VALUES_AT = not LOOP and H1 <= NEXT < H2, slot if WIDE else VALUES
        meets = []
        for p in outputs:
            if 0 <= i - p * S < K:
                mine = [k for k in (range(p * S, p * S + K) if LOOP else ROWS) if 0 <= k - p * S < K]
                meets.append((i - p * S, p, p % DEEP * T * V, True, i == mine[0], i == mine[-1]))
        meets += [(0, 0, 0, False, False, False)] * (3 - len(meets))
        (i0, p0, s0, t0, b0, e0), (i1, p1, s1, t1, b1, e1), (i2, p2, s2, t2, b2, e2) = meets[:3]

        @cuda.jit(device=True, forceinline=True)
        def step(f, x, y, r, where, xat, yat):
            if not WIDE:
                take(f, slot)
                if ASKS:
                    ask(f, x, where, xat, NEXT, slot, ALWAYS)
            output(f, y, r, where, yat, VALUES_AT, i0, p0, s0, t0, b0, e0)
            output(f, y, r, where, yat, VALUES_AT, i1, p1, s1, t1, b1, e1)
            output(f, y, r, where, yat, VALUES_AT, i2, p2, s2, t2, b2, e2)

        def more(i0, p0, s0, t0, b0, e0):
            @cuda.jit(device=True, forceinline=True)
            def more(f, x, y, r, where, xat, yat):
                output(f, y, r, where, yat, VALUES_AT, i0, p0, s0, t0, b0, e0)

            return more

        found = [step, *(more(*one) for one in meets[3:])]
        if WIDE and ASKS:
            found.append(asking(further, n % AHEAD))
        return found

    def turn(first: int, stop: int) -> Any:
        """Rows first to stop - 1 of ROWS; in a loop those after them are those of the next turn."""
        order = []
        for n in range(first, stop):
            there = LOOP or n + AHEAD < len(ROWS)
            further = (row_of(layer, n + AHEAD) if LOOP else ROWS[n + AHEAD]) if there else None
            i = row_of(layer, n) if LOOP else ROWS[n]
            p = max(0, n - HEAD) // PER
            order += step(n, i, further, range(p, p + DEEP) if LOOP else range(R))
        return in_turn(order, arguments=7)

    before = in_turn([asking(i, n) for n, i in enumerate(ROWS[:AHEAD])], arguments=7)
    AFTER_HEAD = LOOP and HEAD > 0
    head = turn(0, HEAD) if AFTER_HEAD else before
    body = turn(HEAD if LOOP else 0, len(ROWS))

    @cuda.jit(device=True, forceinline=True)
    def slide(x, w, b, r, y, xat, yat, c, h, v, p, q):
        f = cuda.local.array(SIZE, float32)
        where = cuda.local.array(5, uint32)
        where[TOP], where[LEFT], where[MORE], where[ACROSS] = h, v, uint32(uint32(P) - p), q
        where[BOTTOM] = uint32(H)
        if LOOP:
            more = min(uint32(R), uint32(where[MORE]))
            where[MORE] = more
            where[BOTTOM] = min(uint32(H), uint32(uint32((p + more - uint32(1)) * uint32(S) + uint32(K)) - uint32(PAD)))
        before(f, x, y, r, where, xat, yat)
        for tap in range(K * K):
            if WIDE:
                get(f, TAPS + tap * V, w, uint32(c + uint32(tap * PIXEL)))
            else:
                get(f, SPARE, w, uint32(c + uint32(tap * PIXEL)))
                spread(f, TAPS + tap * V, SPARE)
        if BIAS:
            if WIDE:
                get(f, START, b, c)
            else:
                get(f, SPARE, b, c)
                spread(f, START, SPARE)
        if not LOOP:
            body(f, x, y, r, where, xat, yat)
        else:
            if AFTER_HEAD:
                head(f, x, y, r, where, xat, yat)
            done = uint32(0)
            while done < more:
                body(f, x, y, r, where, xat, yat)
                xat += U * S * W * PIXEL
                yat += U * Q * PIXEL
                where[TOP] = uint32(where[TOP] + uint32(U * S))
                where[MORE] = uint32(where[MORE] - uint32(U)) if where[MORE] > uint32(U) else uint32(0)
                done = uint32(done + uint32(U))

    return slide
