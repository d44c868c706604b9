"""Depthwise outputs of a thread: two channels of a few columns, down the rows of a strip of the map, in registers.

A strip is written out when the kernel is made: `schedule` lists its steps, to be printed and read, and `sliding` emits
them one after the other. A step's numbers are constants: which sums a row of x is part of, whether the row can lie
outside of the map, where in a ring of registers it waits. So no sum moves, no product is computed that no output needs,
and of conditions those are left that some thread needs. Two rows of outputs, K = 3, float32, two rows of x ahead:

    Load(i=0, to=12, always=0)
    Load(i=1, to=20, always=1)
    Accumulate(values=12, tap=0, p=0, sums=0, first=1, last=0)
    Load(i=2, to=12, always=1)
    Accumulate(values=20, tap=1, p=0, sums=0, first=0, last=0)
    Accumulate(values=20, tap=0, p=1, sums=4, first=1, last=0)
    ...
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np
from numba import float32, uint32, uint64

from dwlab.kernels.parts import epilogue, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda

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
    """Bounds (a, b, c, d) of the places first + t * step + j, t < times, j < count, that lie in 0 … size - 1.

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


class Registers(NamedTuple):
    """Where everything lies in a thread's one array of registers, and how many there are of each row."""

    row: int  # words of a row of x that waits
    ahead: int  # rows that can wait
    values: int  # a row as float32, where it waits as something else; the sums of -(-K // S) rows of outputs come first
    waiting: int
    taps: int
    bias: int
    spare: int  # for what is in flight elsewhere
    size: int


def registers(layer: DepthwiseConv2d, run: int, rows: int, ahead: int) -> Registers:
    """Registers of threads of `run` columns and `rows` rows of outputs, with up to `ahead` rows of x in advance."""
    K, S, V, width = layer.K, layer.stride, CHANNELS, pieces.words(CHANNELS, layer.dtype)
    across, ahead = (run - 1) * S + K, min(ahead, len(rows_of(layer, rows)))
    values = -(-K // S) * run * V
    waiting = values + (0 if layer.dtype == "float32" else across * V)
    taps = waiting + ahead * across * width
    bias = taps + K * K * V
    return Registers(across * width, ahead, values, waiting, taps, bias, bias + V, bias + 2 * V + width)


class Load(NamedTuple):
    """Row i of x, counted from the strip's first, to registers; always: it lies inside of the map for all threads."""

    i: int
    to: int
    always: int


class Unpack(NamedTuple):
    """A row that waits becomes float32."""

    of: int


class Accumulate(NamedTuple):
    """A row of x times row `tap` of the filter, to the sums of row p of the outputs; first, last: of its rows of x."""

    values: int
    tap: int
    p: int
    sums: int
    first: int
    last: int


def schedule(layer: DepthwiseConv2d, run: int, rows: int, ahead: int) -> list[Load | Unpack | Accumulate]:
    """The steps of a strip. Another row of x is loaded as soon as there is room for it."""
    K, S, V, wide = layer.K, layer.stride, CHANNELS, layer.dtype == "float32"
    needed, at = rows_of(layer, rows), registers(layer, run, rows, ahead)
    _, inside, beyond, _ = sides(layer.H, -layer.padding, rows * S, -(-layer.P // rows), (rows - 1) * S + K)

    def slot(n: int) -> int:
        return at.waiting + n % at.ahead * at.row

    def load(n: int) -> Load:
        return Load(needed[n], slot(n), int(inside <= needed[n] < beyond))

    def accumulate(n: int, p: int) -> Accumulate:
        mine = [i for i in needed if 0 <= i - p * S < K]
        sums, values = p % -(-K // S) * run * V, slot(n) if wide else at.values
        return Accumulate(values, needed[n] - p * S, p, sums, int(needed[n] == mine[0]), int(needed[n] == mine[-1]))

    steps: list[Load | Unpack | Accumulate] = [load(n) for n in range(at.ahead)]
    for n, i in enumerate(needed):
        more = [load(n + at.ahead)] if n + at.ahead < len(needed) else []
        products = [accumulate(n, p) for p in range(rows) if 0 <= i - p * S < K]
        steps += [*products, *more] if wide else [Unpack(slot(n)), *more, *products]
    return steps


@functools.cache
def sliding(layer: DepthwiseConv2d, run: int, rows: int, ahead: int) -> Any:
    """slide(x, w, b, r, y, xat, yat, c, h, v, p, q): a thread's outputs, `rows` rows of `run` columns.

    ahead: rows of x that a thread has loaded and not computed with. Arrays of words. xat, yat: words of the first x
    that the outputs need (at row h, column v) and of the first output (row p, column q); c: the channels' word within a
    pixel. What lies outside of the map counts as 0.
    """
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    V, T, WIDTH, PIXEL = CHANNELS, run, pieces.words(CHANNELS, layer.dtype), pieces.words(layer.C, layer.dtype)
    BIAS, RESIDUAL, WHOLE, EVEN = layer.bias, layer.residual, P % rows == 0, Q % T == 0
    V0, V1, V2, V3 = sides(W, -PAD, T * S, -(-Q // T), (T - 1) * S + K)
    _, _, VALUES, _, TAPS, START, SPARE, SIZE = registers(layer, run, rows, ahead)
    read, unpack, put = pieces.read(WIDTH), pieces.unpack(V, layer.dtype), store(layer.dtype)
    activate = epilogue.activate(layer.activation)
    TOP, LEFT, DOWN, ACROSS = range(4)  # of the numbers in `where`

    @cuda.jit(device=True, forceinline=True)
    def load_row(step, f, x, y, r, where, xat, yat):
        i, first, always = step
        if not always:
            for k in range(V0 * WIDTH, V3 * WIDTH):
                f[first + k] = float32(0)
        if always or uint32(where[TOP] + uint32(i)) < uint32(H):
            for j in range(V0, V3):
                if j % S < K:
                    if V1 <= j and j < V2:
                        read(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)
                    else:
                        for k in range(WIDTH):
                            f[first + j * WIDTH + k] = float32(0)
                        if uint32(where[LEFT] + uint32(j)) < uint32(W):
                            read(f, first + j * WIDTH, x, xat + (i * W + j) * PIXEL)

    @cuda.jit(device=True, forceinline=True)
    def unpack_row(step, f, x, y, r, where, xat, yat):
        for j in range(V0, V3):
            if j % S < K:
                unpack(f, VALUES + j * V, step[0] + j * WIDTH)

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
    multiply_add = in_sequence([products(j, min(K, j + each)) for j in range(0, K, each)])

    @cuda.jit(device=True, forceinline=True)
    def store_row(f, y, r, where, yat, p, sums):
        if WHOLE or uint32(where[DOWN] + uint32(p)) < uint32(P):
            for e in range(T):
                if EVEN or uint32(where[ACROSS] + uint32(e)) < uint32(Q):
                    to, at = yat + (p * Q + e) * PIXEL, sums + e * V
                    for k in range(V):
                        f[at + k] = activate(f[at + k])
                    if RESIDUAL:
                        read(f, SPARE, r, to)
                        unpack(f, SPARE + WIDTH, SPARE)
                        for k in range(V):
                            f[at + k] += f[SPARE + WIDTH + k]
                    put(y, to, f, at)

    @cuda.jit(device=True, forceinline=True)
    def accumulate_row(step, f, x, y, r, where, xat, yat):
        values, tap, p, sums, first, last = step
        if first:
            for e in range(T):
                for k in range(V):
                    f[sums + e * V + k] = f[START + k] if BIAS else float32(0)
        multiply_add(f, sums, TAPS + tap * (K * V), values)
        if last:
            store_row(f, y, r, where, yat, p, sums)

    emitted = {Load: load_row, Unpack: unpack_row, Accumulate: accumulate_row}
    alike = [(emitted[kind], list(them)) for kind, them in itertools.groupby(schedule(layer, run, rows, ahead), type)]
    steps = in_sequence([emit(one, them[k : k + 4]) for one, them in alike for k in range(0, len(them), 4)])

    @cuda.jit(device=True, forceinline=True)
    def fetch(f, to, array, at):
        read(f, SPARE, array, at)
        unpack(f, to, SPARE)

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
        steps(f, x, y, r, where, xat, yat)

    return slide


def emit(function: Any, steps: list[tuple[int, ...]]) -> Any:
    """The device function that calls `function` with each of up to 4 steps as its first argument.

    Numba's time goes with the functions that it compiles: so a few calls share one, and a step's constants are NumPy's
    numbers, as it would compile `function` once for each value of Python's.
    """
    COUNT = len(steps)
    A, B, C, D = (tuple(map(np.int64, step)) for step in (steps + 3 * steps[:1])[:4])

    @cuda.jit(device=True, forceinline=True)
    def emitted(*given):
        function(A, *given)
        if COUNT > 1:
            function(B, *given)
        if COUNT > 2:
            function(C, *given)
        if COUNT > 3:
            function(D, *given)

    return emitted
