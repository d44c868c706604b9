"""Rows as one line of 16-byte pieces, whatever their length: what a lane finds out about its piece, and its sums.

A piece has EACH elements, 4 of float32 or 8 of 16 bits, and rows may end anywhere in it. Where a row has no fewer than
a piece and its neighbours, a lane meets at most one end, behind the `left` elements that its first one's row still has.
Of shorter rows (`short`) any number may end there: the lane sums up row by row, with a length that its kernel knows.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, uint32, uint64

from dwlab.kernels.parts import pieces, ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch, short
from dwlab.kernels.traffic import Traffic
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

MOST = 9  # taps
THREADS = 128  # of a block, a piece each
LONG = 512  # elements of rows that end in so few warps that these, and no others, may take a way of their own


def neighbours(K: int, shift: int, dtype: str) -> tuple[int, int]:
    """Words before a piece and behind it that its sums need: 1, 2, 4 or 8, as they are loaded."""
    before, behind = (-(-count * 4 // pieces.elements(dtype)) for count in (K - 1 - shift, shift))
    return tuple(words if words < 3 else -(-words // 4) * 4 for words in (before, behind))


def needed(K: int, shift: int, dtype: str, length: int) -> tuple[int, int]:
    """K and shift of a convolution with as few neighbours as a piece of short rows of this length needs; 0: no such."""
    others = length - math.gcd(length, pieces.elements(dtype)) if length else K  # of a row, beyond a piece's end
    before, behind = min(K - 1 - shift, others), min(shift, others)
    return before + behind + 1, behind


def magic(divisor: int) -> tuple[int, int]:
    """(multiplier, halvings) with which `quotient` divides numbers below 2**31."""
    halvings = (divisor - 1).bit_length()
    return (1 << 31 + halvings) // divisor + 1, halvings


@cuda.jit(device=True, forceinline=True)
def quotient(n, multiplier, halvings):
    """n // divisor by one multiplication: (n * multiplier) >> (31 + halvings)."""
    return uint32(uint32(cuda.libdevice.umulhi(uint32(n + n), multiplier)) >> halvings)


@functools.cache
def load(K: int, shift: int, dtype: str) -> Any:
    """load(words, x, word, stop): the piece of x at `word` and its neighbours; 0 in place of what is not in x."""
    before, behind = neighbours(K, shift, dtype)
    where = (
        [(k - before, before) for k in range(0, before, 4)] + [(0, 4)] + [(4 + k, behind) for k in range(0, behind, 4)]
    )
    return in_sequence([_read(before, away, min(width, 4)) for away, width in where])


def _read(before: int, away: int, width: int) -> Any:
    read = pieces.read(width)

    @cuda.jit(device=True, forceinline=True)
    def part(words, x, word, stop):
        begin = uint32(word + uint32(away))  # before the array it wraps to a huge number
        if begin <= uint32(stop - uint32(width)):
            read(words, before + away, x, begin)
        else:
            for k in range(width):
                words[before + away + k] = float32(0)
                if away >= 0 and width > 1 and uint32(begin + uint32(k)) < stop:
                    words[before + away + k] = x[uint32(begin + uint32(k))]

    return part


@functools.cache
def elements(count: int, dtype: str) -> Any:
    """elements(values, words): what `count` words hold, as float32; behind it in values they themselves."""
    each = count * pieces.elements(dtype) // 4
    unpack = pieces.unpack(each, dtype)

    @cuda.jit(device=True, forceinline=True)
    def elements(values, words):
        for k in range(count):
            values[each + k] = words[k]
        unpack(values, 0, each)

    return elements


@functools.cache
def store(dtype: str) -> Any:
    """store(y, word, stop, sums): a piece, rounded, to the words of y from `word` on, those before stop."""
    pack = pieces.pack_vector(dtype)

    @cuda.jit(device=True, forceinline=True)
    def store(y, word, stop, sums):
        a, b, c, d = pack(sums, 0)
        if uint32(word + uint32(4)) <= stop:
            ptx.store4(y, word, a, b, c, d)
        else:
            y[word] = a
            if uint32(word + uint32(1)) < stop:
                y[uint32(word + uint32(1))] = b
            if uint32(word + uint32(2)) < stop:
                y[uint32(word + uint32(2))] = c

    return store


@functools.cache
def activate(activation: str) -> Any:
    """activate(value): value itself ("none"), or its SiLU by the hardware's fast exponential and quotient ("silu")."""

    @cuda.jit(device=True, forceinline=True)
    def activate(value):
        if activation == "none":
            return value
        return cuda.libdevice.fast_fdividef(value, float32(1) + cuda.libdevice.fast_expf(-value))

    return activate


@functools.cache
def convolve(K: int, shift: int, dtype: str, reverse: bool, bias: bool, activation: str) -> tuple[Any, Any]:
    """The sums of a piece from the words that `load` brought: within(sums, words, first) where no row ends near it, and
    across(sums, words, first, last, t0, left).

    first, last: the filters of the rows of its first and its last element, with their bias behind them; t0: the first
    element's place in its row; left: elements that this row still has from there.
    """
    each, (before, behind) = pieces.elements(dtype), neighbours(K, shift, dtype)
    count, before = before + 4 + behind, before * each // 4
    both, activated, unpack = count * each // 4 + count, activate(activation), elements(count, dtype)
    own, step = (K - 1 - shift, -1) if reverse else (shift, 1)  # the tap of an element itself, and the next one back
    up = _walk(each, before, own, step, K - 1 - shift, True, 1)
    down = _walk(each, before, own, -step, shift, False, -1)

    @cuda.jit(device=True, forceinline=True)
    def begin(sums, x, words, first, last, left):
        unpack(x, words)
        for k in range(each):
            sums[k] = float32(0)
            if bias:
                sums[k] = first[K] if left > k else last[K]

    @cuda.jit(device=True, forceinline=True)
    def within(sums, words, first):
        x = cuda.local.array(both, float32)
        begin(sums, x, words, first, first, uint32(each))
        for n in range(K):
            for k in range(each):
                sums[k] += first[n] * x[before + k - (n - own) * step]
        for k in range(each):
            sums[k] = activated(sums[k])

    @cuda.jit(device=True, forceinline=True)
    def across(sums, words, first, last, t0, left):
        x = cuda.local.array(both, float32)
        begin(sums, x, words, first, last, left)
        up(sums, x, first, last, t0, left)
        down(sums, x, last, first, t0, left)
        for k in range(each):
            sums[k] = activated(sums[k])

    return within, across


def _walk(each: int, before: int, tap: int, step: int, count: int, own: bool, way: int) -> Any:
    """Along a piece, up (way 1) or down (-1), with the `count` elements behind the walker at hand.

    Where a row ends, the other row's filter is taken, and what is behind becomes 0: so no product reaches across, and a
    NaN stays in its row. tap: of the walker's own element, which is multiplied if `own`.
    """
    if not own and not count:
        return in_sequence([])
    order = range(each)[::way]
    walk = in_sequence([_at(k, before, tap, step, count, own, way, k == order[0]) for k in order])
    behind = before - 1 if way > 0 else before + each

    @cuda.jit(device=True, forceinline=True)
    def add(sums, x, now, other, t0, left):
        weights = cuda.local.array(MOST, float32)
        near = cuda.local.array(MOST, float32)
        for n in range(count + 1):
            weights[n] = now[tap + step * n]
        for m in range(count):
            inside = t0 > m if way > 0 else left > each + m or left < each
            near[m] = x[behind - way * m] if inside else float32(0)
        walk(sums, x, weights, other, near, left)

    return add


def _at(k: int, before: int, tap: int, step: int, count: int, own: bool, way: int, begins: bool) -> Any:
    edge = k if way > 0 else k + 1

    @cuda.jit(device=True, forceinline=True)
    def add(sums, x, weights, other, near, left):
        if not begins:
            for n in range(count + 1):
                weights[n] = other[tap + step * n] if left == edge else weights[n]
            for m in range(count):
                near[m] = float32(0) if left == edge else near[m]
        if own:
            sums[k] += weights[0] * x[before + k]
        for m in range(count):
            sums[k] += weights[m + 1] * near[m]
        for m in range(count - 1, 0, -1):
            near[m] = near[m - 1]
        near[0] = x[before + k]

    return add


@functools.cache
def convolve_short(K: int, shift: int, dtype: str, reverse: bool, bias: bool, activation: str, length: int) -> Any:
    """add_up(sums, words, w, t0, h, channels): the sums of a piece of rows of this length, any number of which may end
    in it. t0: the first element's place in its row, of channel h.
    """
    if not length:
        return in_sequence([])
    each, (before, behind) = pieces.elements(dtype), neighbours(*needed(K, shift, dtype, length), dtype)
    count, most = before + 4 + behind, length - math.gcd(length, each)  # t0 at most, 0 where rows begin with pieces
    both, activated, unpack = count * each // 4 + count, activate(activation), elements(count, dtype)
    form = (K, shift, each, before * each // 4, count * each // 4, reverse, bias, length)
    add_rows = in_sequence([_row(r, *form) for r in range(_rows(each, length))])

    @cuda.jit(device=True, forceinline=True)
    def add_up(sums, words, w, t0, h, channels):
        x = cuda.local.array(both, float32)
        unpack(x, words)
        for k in range(each):
            sums[k] = float32(0)
        add_rows(sums, x, w, uint32(t0 if most else 0), h, channels)
        for k in range(each):
            sums[k] = activated(sums[k])

    return add_up


def _rows(each: int, length: int) -> int:
    """Rows of this length that a piece has elements of, at most."""
    return (length - math.gcd(length, each) + each - 1) // length + 1


def _row(r: int, K: int, shift: int, each: int, before: int, count: int, reverse: bool, bias: bool, length: int) -> Any:
    """Adds up the r-th row of a piece, from its elements in x and 0 in place of all others: a NaN stays in its row."""
    size, (own, step) = K + bias, (K - 1 - shift, -1) if reverse else (shift, 1)
    load_taps, least, most = load_filter(size), max(0, own - length + 1), min(K, own + length)  # taps that may meet it
    begin, end = (r - 1) * length + math.gcd(length, each), (r + 1) * length  # where it may be, from the piece's first
    low, high, begin, end = max(begin, -before), min(end, count - before), max(begin, 0), min(end, each)

    @cuda.jit(device=True, forceinline=True)
    def add(sums, x, w, t0, h, channels):
        near = cuda.local.array(count, float32)
        taps = cuda.local.array(size, float32)
        for _ in range(r):
            h = uint32(h + uint32(1)) if uint32(h + uint32(1)) < uint32(channels) else uint32(0)
        load_taps(taps, w, h)
        for m in range(low, high):
            near[before + m] = x[before + m] if uint32(t0 + uint32(m - r * length)) < length else float32(0)
        for k in range(begin, end):
            total = taps[K] if bias else float32(0)
            for n in range(least, most):
                if low <= k - (n - own) * step < high:
                    total += taps[n] * near[before + k - (n - own) * step]
            sums[k] = total if uint32(t0 + uint32(k - r * length)) < length else sums[k]

    return add


@functools.cache
def load_filter(K: int) -> Any:
    """load_filter(taps, w, h): channel h's taps."""
    width = math.gcd(K, 4)
    read = pieces.read(width)

    @cuda.jit(device=True, forceinline=True)
    def load_filter(taps, w, h):
        for k in range(0, K, width):
            read(taps, k, w, uint64(h) * uint64(K) + uint64(k))

    return load_filter


def takes(problem: DepthwiseConv1d) -> bool:
    """Few taps, whole words, a piece at least, and 32 bits for each element."""
    count = problem.B * problem.H * problem.L
    whole = count * problem.itemsize % 4 == 0 and count * problem.itemsize >= 16
    return whole and problem.K <= MOST and count <= 2**31


def launch(problem: DepthwiseConv1d) -> Launch:
    """A block for 128 pieces."""
    count = -(-problem.B * problem.H * problem.L // pieces.elements(problem.dtype))
    scalars = (problem.shift, problem.L, *magic(problem.L), problem.H, *magic(problem.H))
    return Launch(grid=(-(-count // THREADS),), block=(THREADS,), scalars=scalars)


def traffic(problem: DepthwiseConv1d, reverse: bool) -> Traffic:
    """x with its neighbours, y, and two filters for each lane; of short rows those of all rows of its piece."""
    each, K, H, L = pieces.elements(problem.dtype), problem.K, problem.H, problem.L
    shift = problem.left if reverse else problem.shift
    stop = problem.B * H * L * problem.itemsize // 4
    whole, rest = divmod(stop, 4)
    last = whole + (rest > 0) - 1
    first = np.arange(0, last + 1, 32)  # pieces of a warp
    end = np.minimum(first + 31, last)
    before, behind = neighbours(*needed(K, shift, problem.dtype, short(problem)), problem.dtype)
    stores = _line(first, np.minimum(end, whole - 1)) + rest
    loads = stores.copy()
    for away in range(-(-before // 4), 0, -1):
        loads += _line(np.maximum(first, away) - away, end - away)
    for away in range(1, -(-behind // 4) + 1):
        width = min(behind, 4)
        loads += _line(first + away, np.minimum(end, (stop - width) // 4 - away) + away)
        loads += rest if rest < width and away <= whole else 0
    if short(problem):
        return Traffic(*(loads + _filters_of_short(last + 1, H, L, K, each)).tolist(), *stores.tolist())
    step = math.gcd(K, 4)
    row, through = first * each // L, end * each // L  # of the lanes' first elements
    for k in range(0, K, step):
        loads += _filters(row, through, H, K, k)
    if L < LONG:
        row, through = ((piece * each + each - 1) // L for piece in (first, end))
    else:  # the pieces near a row's end, in one warp or two
        near = (np.arange(problem.B * H + 1) * L // each)[:, None] + np.arange(-4, 4)
        t0 = near * each % L
        near = near[(near >= 0) & (near <= last) & ((t0 < K - 1 - shift) | (L - t0 < each + shift))]
        row, through = (np.full(len(first), bound) for bound in (problem.B * H + 1, -1))
        np.minimum.at(row, near // 32, (near * each + each - 1) // L)
        np.maximum.at(through, near // 32, (near * each + each - 1) // L)
    for k in range(0, K, step):
        loads += _filters(row, through, H, K, k)
    return Traffic(*loads.tolist(), *stores.tolist())


def _line(first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[requests, sectors] of warps that access the pieces from `first` to `end`, half a sector each."""
    return np.array([np.count_nonzero(end >= first), np.where(end >= first, end // 2 - first // 2 + 1, 0).sum()])


def _filters(row: np.ndarray, through: np.ndarray, H: int, K: int, k: int) -> np.ndarray:
    """[requests, sectors] of warps that load tap k of the filters of the rows from `row` through, none if less."""
    rows = row + np.arange(max(1, int(max(through - row)) + 1))[:, None]
    sectors = np.sort(np.where(rows <= through, (rows % H * K + k) // 8, -1), axis=0)
    return np.array([np.count_nonzero(through >= row), np.count_nonzero(np.diff(sectors, axis=0, prepend=-1))])


def _filters_of_short(count: int, H: int, L: int, K: int, each: int) -> np.ndarray:
    """[requests, sectors] of warps whose lanes, a piece each, load the filters of all short rows that one may have."""
    warps, period = -(-count // 32), H * L // math.gcd(H * L, 32 * each)  # so many warps on they load the same ones
    warp = np.append(np.arange(min(warps - 1, period)), warps - 1)  # in the last one lanes may have no piece
    times = np.append((warps - 2 - warp[:-1]) // period + 1, 1)
    row = np.minimum(warp[:, None] * 32 + np.arange(32), count - 1) * each // L
    found = np.zeros(2, int)
    for r in range(_rows(each, L)):
        for k in range(0, K, math.gcd(K, 4)):
            sectors = np.sort(((row + r) % H * K + k) // 8)
            found += warps, (np.count_nonzero(np.diff(sectors), axis=1) + 1) @ times
    return found
