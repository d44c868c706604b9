"""Rows as one line of 16-byte pieces, whatever their length: what a lane finds out about its piece, and its sums.

A piece has EACH elements, 4 of float32 or 8 of 16 bits, and rows may end anywhere in it. A row has more elements than a
piece, so a lane meets at most one end, behind the `left` elements that its first one's row still has.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, uint32, uint64

from dwlab.kernels.parts import pieces, ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch
from dwlab.kernels.traffic import Traffic
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

MOST = 9  # taps
PIECES, THREADS = 2, 128  # that a lane has in flight; of a block


def neighbours(K: int, shift: int, dtype: str) -> tuple[int, int]:
    """Words before a piece and behind it that its sums need: 1, 2, 4 or 8, as they are loaded."""
    found = []
    for elements in (K - 1 - shift, shift):
        words = -(-elements * 4 // pieces.elements(dtype))
        found.append(words if words < 3 else -(-words // 4) * 4)
    return found[0], found[1]


def magic(divisor: int) -> tuple[int, int]:
    """(multiplier, halvings) with which `quotient` divides numbers below 2**31."""
    halvings = (divisor - 1).bit_length()
    return (1 << 31 + halvings) // divisor + 1, halvings


@cuda.jit(device=True, forceinline=True)
def quotient(n, multiplier, halvings):
    """n // divisor by one multiplication: (n * multiplier) >> (31 + halvings)."""
    return uint32(uint32(cuda.libdevice.umulhi(uint32(n + n), multiplier)) >> halvings)


@functools.cache
def fetch(words: int, cut: bool = True) -> Any:
    """fetch(to, at, x, word, stop): so many words of x from `word` on to to[at …]; 0 in place of those beyond stop.

    A word before the first one wraps to a huge number, and so is beyond. cut: whether `stop` may be among them.
    """
    width = min(words, 4)
    read = pieces.read(width) if words else None

    @cuda.jit(device=True, forceinline=True)
    def part(to, at, x, word, stop):
        if word <= uint32(stop - uint32(width)):
            read(to, at, x, word)
        else:
            for k in range(width):
                to[at + k] = float32(0)
                if cut and uint32(word + uint32(k)) < stop:
                    to[at + k] = x[uint32(word + uint32(k))]

    return in_sequence([_moved(part, k) for k in range(0, words, 4)])


def _moved(part: Any, k: int) -> Any:
    @cuda.jit(device=True, forceinline=True)
    def moved(to, at, x, word, stop):
        part(to, at + k, x, uint32(word + uint32(k)), stop)

    return moved


@functools.cache
def put(dtype: str) -> Any:
    """put(y, word, stop, sums): a piece, rounded, to the words of y from `word` on, those before stop."""
    pack = pieces.pack_vector(dtype)

    @cuda.jit(device=True, forceinline=True)
    def put(y, word, stop, sums):
        a, b, c, d = pack(sums, 0)
        if uint32(word + uint32(4)) <= stop:
            ptx.store4(y, word, a, b, c, d)
        else:
            y[word] = a
            if uint32(word + uint32(1)) < stop:
                y[uint32(word + uint32(1))] = b
            if uint32(word + uint32(2)) < stop:
                y[uint32(word + uint32(2))] = c

    return put


@functools.cache
def products(each: int, K: int, shift: int, before: int, reverse: bool) -> Any:
    """add(sums, x, first, last, at, t0, left): the sums of a piece whose first element is x[before], at t0 in its row.

    first, last: the filters of the rows of its first and its last element, from `at` on; left: elements of the first
    row from the piece's beginning on.
    """
    own, step = (K - 1 - shift, -1) if reverse else (shift, 1)  # the tap of an element itself, and the next one back
    past, ahead = K - 1 - shift, shift
    up = _walk(each, before, own, step, past, True, 1)
    down = _walk(each, before, own, -step, ahead, False, -1)

    @cuda.jit(device=True, forceinline=True)
    def add(sums, x, first, last, at, t0, left):
        up(sums, x, first, last, at, t0, left)
        down(sums, x, last, first, at, t0, left)

    return add


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
    def add(sums, x, now, other, at, t0, left):
        weights = cuda.local.array(MOST, float32)
        near = cuda.local.array(MOST, float32)
        for n in range(count + 1):
            weights[n] = now[at + tap + step * n]
        for m in range(count):
            inside = t0 > m if way > 0 else left > each + m or left < each
            near[m] = x[behind - way * m] if inside else float32(0)
        walk(sums, x, weights, other, at, near, left)

    return add


def _at(k: int, before: int, tap: int, step: int, count: int, own: bool, way: int, begins: bool) -> Any:
    edge = k if way > 0 else k + 1

    @cuda.jit(device=True, forceinline=True)
    def add(sums, x, weights, other, at, near, left):
        if not begins:
            for n in range(count + 1):
                weights[n] = other[at + tap + step * n] if left == edge else weights[n]
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
def filter_of(K: int) -> Any:
    """filter_of(to, at, w, h): channel h's taps to to[at …]."""
    width = math.gcd(K, 4)
    read = pieces.read(width)

    @cuda.jit(device=True, forceinline=True)
    def filter_of(to, at, w, h):
        for k in range(0, K, width):
            read(to, at + k, w, uint64(h) * uint64(K) + uint64(k))

    return filter_of


def takes(problem: DepthwiseConv1d) -> bool:
    """Few taps, at most one row's end among a piece and its neighbours, whole words, and 32 bits for each element."""
    each, count = pieces.elements(problem.dtype), problem.B * problem.H * problem.L
    few = problem.K <= MOST and problem.L >= each + problem.K - 1
    return few and count <= 2**31 and count * problem.itemsize % 4 == 0


def launch(problem: DepthwiseConv1d, each: int = PIECES, threads: int = THREADS) -> Launch:
    """A block for so many times `threads` pieces."""
    count = -(-problem.B * problem.H * problem.L // pieces.elements(problem.dtype))
    scalars = (problem.shift, problem.L, *magic(problem.L), problem.H, *magic(problem.H))
    return Launch(grid=(-(-count // (each * threads)),), block=(threads,), scalars=scalars)


def traffic(problem: DepthwiseConv1d, shift: int) -> Traffic:
    """x with its neighbours, y, and two filters for each lane."""
    each, K, H, L = pieces.elements(problem.dtype), problem.K, problem.H, problem.L
    stop = problem.B * H * L * problem.itemsize // 4
    whole, rest = divmod(stop, 4)
    last = whole + (rest > 0) - 1
    warp = np.arange(launch(problem).blocks * PIECES * THREADS // 32)
    first, end = (np.minimum(32 * warp + lane, last) for lane in (0, 31))
    before, behind = neighbours(K, shift, problem.dtype)
    loads = _line(first, np.minimum(end, whole - 1)) + np.count_nonzero(end == whole) * rest
    for away in range(-(-before // 4), 0, -1):
        loads += _line(np.maximum(first, away) - away, end - away)
    for away in range(1, -(-behind // 4) + 1):
        width = min(behind, 4)
        loads += _line(first + away, np.minimum(end, (stop - width) // 4 - away) + away)
        loads += rest if rest < width else 0
    width = math.gcd(K, 4)
    for to in (0, each - 1):  # the rows of the lanes' first elements, then those of their last ones
        row, through = ((piece * each + to) // L for piece in (first, end))
        rows = row + np.arange(max(through - row) + 1)[:, None]
        for k in range(0, K, width):
            sectors = np.sort(np.where(rows <= through, (rows % H * K + k) // 8, -1), axis=0)
            fresh = np.diff(sectors, axis=0, prepend=-1) != 0
            loads += [len(warp), np.count_nonzero(fresh)]
    stores = _line(32 * warp, np.minimum(32 * warp + 31, whole - 1)) + rest
    return Traffic(*loads.tolist(), *stores.tolist())


def _line(first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """[requests, sectors] of warps that access the pieces from `first` to `end`, half a sector each."""
    return np.array([np.count_nonzero(end >= first), np.where(end >= first, end // 2 - first // 2 + 1, 0).sum()])
