"""Depthwise outputs of a thread: two channels of a few columns, down the rows of a strip of the map, in registers.

Written out row by row when the kernel is made: which sums a row of x is part of, which of its columns and rows can lie
outside of the map, where in a ring of registers a row waits. So no sum moves, no product is computed that no output
needs, and of conditions those are left that some thread needs.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32, uint64

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import epilogue, pieces, ptx
from dwlab.kernels.parts.unroll import in_turn
from dwlab.problems.layers import DepthwiseConv2d

CHANNELS = 2  # of a thread: 8 bytes of float32, a word of 16-bit elements
UNROLLED = 64  # products that are written out in one function


@functools.cache
def store(dtype: str) -> Any:
    """store(array, index, values, at): CHANNELS values to a global array of words, each rounded."""
    pack = pieces.PACK.get(dtype)
    if pack is None:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            ptx.store2(array, index, values[at], values[at + 1])

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            array[uint64(index)] = pack(values[at], values[at + 1])

    return store


def sides(size: int, first: int, step: int, times: int, count: int) -> tuple[int, int, int, int]:
    """Of the places first + t * step + j, t < times, j < count, those in 0 … size - 1: (a, b, c, d).

    With j < a or j >= d none is there, with b <= j < c all are.
    """
    last = first + (times - 1) * step
    some = [j for j in range(count) if any(0 <= first + t * step + j < size for t in range(times))]
    a, d = (some[0], some[-1] + 1) if some else (count, count)
    b = min(max(a, -first), d)
    return a, b, max(min(d, size - last), b), d


def rows_of(layer: DepthwiseConv2d, rows: int) -> list[int]:
    """Rows of x that strips of `rows` rows of outputs read, counted from a strip's first: those that some strip has."""
    K, S = layer.K, layer.stride
    a, _, _, d = sides(layer.H, -layer.padding, rows * S, -(-layer.P // rows), (rows - 1) * S + K)
    return [i for i in range(a, d) if i % S < K]


def columns_of(layer: DepthwiseConv2d, run: int) -> list[int]:
    """The same of columns, for threads of `run` columns of outputs."""
    K, S = layer.K, layer.stride
    a, _, _, d = sides(layer.W, -layer.padding, run * S, -(-layer.Q // run), (run - 1) * S + K)
    return [j for j in range(a, d) if j % S < K]


@functools.cache
def sliding(layer: DepthwiseConv2d, run: int, rows: int, ahead: int) -> Any:
    """slide(x, w, b, r, y, xat, yat, c, h, v, p, q): a thread's outputs, `rows` rows of `run` columns.

    ahead: rows of x that a thread has asked for and not computed with. Arrays of words. xat, yat: words of the first x
    that the outputs need (at row h, column v) and of the first output (row p, column q); c: the channels' word within a
    pixel. What lies outside of the map counts as 0.
    """
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    V, T, R, WIDTH = CHANNELS, run, rows, pieces.words(CHANNELS, layer.dtype)
    PIXEL, COLUMNS, DEEP = pieces.words(layer.C, layer.dtype), (T - 1) * S + K, -(-K // S)
    ROWS, WIDE, BIAS, RESIDUAL = rows_of(layer, R), layer.dtype == "float32", layer.bias, layer.residual
    V0, V1, V2, V3 = sides(W, -PAD, T * S, -(-Q // T), COLUMNS)
    _, H1, H2, _ = sides(H, -PAD, R * S, -(-P // R), (R - 1) * S + K)
    AHEAD, ROW = min(ahead, len(ROWS)), COLUMNS * WIDTH
    # One array of registers: sums of DEEP rows; a row as float32, where it waits as something else; rows that wait;
    # the filter; the bias; words on their way.
    VALUES = DEEP * T * V
    WAIT = VALUES + (0 if WIDE else COLUMNS * V)
    TAPS = WAIT + AHEAD * ROW
    START = TAPS + K * K * V
    SPARE = START + V
    SIZE = SPARE + WIDTH + V
    WHOLE, EVEN = P % R == 0, Q % T == 0
    get, spread, put = pieces.read(WIDTH), pieces.unpack(V, layer.dtype), store(layer.dtype)
    activate = epilogue.activate(layer.activation)
    TOP, LEFT, DOWN, ACROSS = range(4)  # of the numbers in `where`

    @cuda.jit(device=True, forceinline=True)
    def ask(f, x, where, xat, row):
        """A row of x is asked for: which, to where, whether it lies inside of the map for all threads."""
        i, first, always = row
        if not always:
            for k in range(V0 * WIDTH, V3 * WIDTH):
                f[first + k] = float32(0)
        if always or uint32(where[TOP] + uint32(i)) < uint32(H):
            for j in range(V0, V3):
                if j % S < K:
                    if V1 <= j and j < V2:
                        get(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)
                    else:
                        for k in range(WIDTH):
                            f[first + j * WIDTH + k] = float32(0)
                        if uint32(where[LEFT] + uint32(j)) < uint32(W):
                            get(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)

    @cuda.jit(device=True, forceinline=True)
    def take(f, first):
        for j in range(V0, V3):
            if j % S < K:
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
    def end(f, y, r, where, yat, p, sums):
        """Row p of the outputs is stored."""
        if WHOLE or uint32(where[DOWN] + uint32(p)) < uint32(P):
            for e in range(T):
                if EVEN or uint32(where[ACROSS] + uint32(e)) < uint32(Q):
                    to, at = yat + (p * Q + e) * PIXEL, sums + e * V
                    for k in range(V):
                        f[at + k] = activate(f[at + k])
                    if RESIDUAL:
                        get(f, SPARE, r, to)
                        spread(f, SPARE + WIDTH, SPARE)
                        for k in range(V):
                            f[at + k] += f[SPARE + WIDTH + k]
                    put(y, to, f, at)

    @cuda.jit(device=True, forceinline=True)
    def meet(f, y, r, where, yat, pair):
        """A row of x meets row i of the filter, for row p of the outputs."""
        values, i, p, sums, starts, ends = pair
        if starts:
            for e in range(T):
                for k in range(V):
                    f[sums + e * V + k] = f[START + k] if BIAS else float32(0)
        add(f, sums, TAPS + i * (K * V), values)
        if ends:
            end(f, y, r, where, yat, p, sums)

    # Numba's time goes with the functions that it compiles: so a few calls share one, and their constants are NumPy's
    # numbers, as it would compile `ask` and `meet` once for each value of Python's.

    def numbers(*values: int) -> tuple[np.int64, ...]:
        return tuple(np.int64(value) for value in values)

    def asked(n: int) -> tuple[np.int64, ...]:
        return numbers(ROWS[n], WAIT + n % AHEAD * ROW, H1 <= ROWS[n] < H2)

    def asking(ns: list[int]) -> Any:
        COUNT = len(ns)
        A0, A1, A2, A3 = [asked(n) for n in (ns + 3 * ns[:1])[:4]]

        @cuda.jit(device=True, forceinline=True)
        def asking(f, x, y, r, where, xat, yat):
            ask(f, x, where, xat, A0)
            if COUNT > 1:
                ask(f, x, where, xat, A1)
            if COUNT > 2:
                ask(f, x, where, xat, A2)
            if COUNT > 3:
                ask(f, x, where, xat, A3)

        return asking

    def met(n: int, p: int) -> tuple[np.int64, ...]:
        mine = [i for i in ROWS if 0 <= i - p * S < K]
        values = WAIT + n % AHEAD * ROW if WIDE else VALUES
        return numbers(values, ROWS[n] - p * S, p, p % DEEP * T * V, ROWS[n] == mine[0], ROWS[n] == mine[-1])

    def meeting(n: int, ps: list[int], begins: bool, ends: bool) -> Any:
        """Row n of x for some rows of outputs; another row is asked for as soon as there is room."""
        COUNT, ROOM = len(ps), n + AHEAD < len(ROWS)
        M0, M1, M2, M3 = [met(n, p) for p in (ps + 3 * ps[:1])[:4]]
        NEXT, SLOT, TAKES = asked(n + AHEAD if ROOM else n), asked(n)[1], begins and not WIDE
        ASKS, ASKS_LAST = ROOM and TAKES, ROOM and ends and WIDE

        @cuda.jit(device=True, forceinline=True)
        def meeting(f, x, y, r, where, xat, yat):
            if TAKES:
                take(f, SLOT)
            if ASKS:
                ask(f, x, where, xat, NEXT)
            meet(f, y, r, where, yat, M0)
            if COUNT > 1:
                meet(f, y, r, where, yat, M1)
            if COUNT > 2:
                meet(f, y, r, where, yat, M2)
            if COUNT > 3:
                meet(f, y, r, where, yat, M3)
            if ASKS_LAST:
                ask(f, x, where, xat, NEXT)

        return meeting

    order = []
    for n, i in enumerate(ROWS):
        ps = [p for p in range(R) if 0 <= i - p * S < K]
        order += [meeting(n, ps[k : k + 4], k == 0, k + 4 >= len(ps)) for k in range(0, len(ps), 4)]
    first = in_turn([asking(list(range(n, min(n + 4, AHEAD)))) for n in range(0, AHEAD, 4)], arguments=7)
    steps = in_turn(order, arguments=7)

    @cuda.jit(device=True, forceinline=True)
    def fetch(f, to, array, at):
        get(f, SPARE, array, at)
        spread(f, to, SPARE)

    @cuda.jit(device=True, forceinline=True)
    def slide(x, w, b, r, y, xat, yat, c, h, v, p, q):
        f = cuda.local.array(SIZE, float32)
        where = cuda.local.array(4, uint32)
        where[TOP], where[LEFT], where[DOWN], where[ACROSS] = h, v, p, q
        for tap in range(K * K):
            fetch(f, TAPS + tap * V, w, uint32(c + uint32(tap * PIXEL)))
        if BIAS:
            fetch(f, START, b, c)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        first(f, x, y, r, where, xat, yat)
        steps(f, x, y, r, where, xat, yat)

    return slide
