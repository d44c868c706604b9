"""A channel's rows in 16-byte pieces of the line that all rows make: how many, for which blocks, and their traffic.

Piece p of row b is item b*P + p of its channel, P what any row has at most. A piece in which a row ends and the next
one begins is an item of both.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.depthwise1d import flat_rows
from dwlab.kernels.parts import pieces
from dwlab.kernels.registry import Launch
from dwlab.kernels.traffic import rows_sectors
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

WARPS = 4  # of a block
PITCH = 64  # words of shared memory in which a warp leaves its sums
POOL = WARPS * PITCH
BLOCKS = 4224  # that share the pieces, if there are enough: 16 at a time on each of 132 SMs, twice
FEW = 4  # pieces that a lane takes at least


@functools.cache
def sizes(K: int, shift: int, dtype: str) -> tuple[int, int, int]:
    """Words that a piece's sums need of the array with neighbours, and values that `load` leaves of both arrays."""
    count = 4 + sum(flat_rows.neighbours(K, shift, dtype))
    each = pieces.elements(dtype)
    return count, each + 4, count * each // 4 + count


@functools.cache
def load(K: int, shift: int, dtype: str) -> Any:
    """load(words, own, near, wide, alone, word, stop): the piece at `word`, of the array `alone` to own as float32, of
    `wide` with its neighbours to words as they are and to near as float32."""
    count, _, _ = sizes(K, shift, dtype)
    read_wide, read_alone = flat_rows.load(K, shift, dtype), flat_rows.load(1, 0, dtype)
    elements_of_wide, elements_of_alone = flat_rows.elements(count, dtype), flat_rows.elements(4, dtype)

    @cuda.jit(device=True, forceinline=True)
    def load(words, own, near, wide, alone, word, stop):
        read_alone(words, alone, word, stop)
        elements_of_alone(own, words)
        read_wide(words, wide, word, stop)
        elements_of_wide(near, words)

    return load


@functools.cache
def add_products(K: int, shift: int, dtype: str) -> Any:
    """add_products(sums, own, near, t0, length): own[k] times what is shift - (K-1-j) from it in near, to sums[j], of a
    row of this length, in which the piece's first element is at t0. What is of other rows becomes 0 in own and near."""
    each, (before, behind) = pieces.elements(dtype), flat_rows.neighbours(K, shift, dtype)
    first, every = before * each // 4, (before + 4 + behind) * each // 4

    @cuda.jit(device=True, forceinline=True)
    def add_products(sums, own, near, t0, length):
        if t0 < K - 1 - shift or t0 + int32(each + shift) > length:
            for k in range(each):
                own[k] = own[k] if uint32(t0 + int32(k)) < uint32(length) else float32(0)
            for k in range(every):
                near[k] = near[k] if uint32(t0 + int32(k - first)) < uint32(length) else float32(0)
        for j in range(K):
            for k in range(each):
                sums[j] += own[k] * near[first + k + shift - (K - 1 - j)]

    return add_products


@functools.cache
def convolve(K: int, back: int, dtype: str) -> Any:
    """convolve(found, words, w, next_w, t0, length): the piece's dx from the words of dy, with this row's filter, and
    with the next row's behind its end."""
    each = pieces.elements(dtype)
    within, across = flat_rows.convolve(K, back, dtype, True, False, "none")

    @cuda.jit(device=True, forceinline=True)
    def convolve(found, words, w, next_w, t0, length):
        if t0 >= K - 1 - back and t0 + int32(each + back) <= length:
            within(found, words, w)
        else:
            last = cuda.local.array(K, float32)
            for j in range(K):
                last[j] = next_w[j] if t0 + int32(each) > length else w[j]
            across(found, words, w, last, uint32(t0), uint32(length - t0))

    return convolve


def of_row(problem: DepthwiseConv1d) -> int:
    """Pieces that any of the rows has an element in, at most."""
    each, L = pieces.elements(problem.dtype), problem.L
    return L // each if L % each == 0 else (L + 2 * each - 2) // each


def splits(problem: DepthwiseConv1d) -> int:
    """Blocks that share a channel."""
    return max(1, min(-(-BLOCKS // problem.H), problem.B * of_row(problem) // (32 * WARPS * FEW)))


def takes(problem: DepthwiseConv1d) -> bool:
    """Few taps, whole words, and 32 bits for each element and item."""
    count, of_channel = problem.B * problem.H * problem.L, problem.B * of_row(problem)
    whole = count * problem.itemsize % 4 == 0 and count * problem.itemsize >= 16
    return whole and problem.K <= flat_rows.MOST and count <= 2**31 and of_channel < 2**31


def moved(problem: DepthwiseConv1d, away: int, width: int, begun: bool = False) -> np.ndarray:
    """[requests, sectors] where each item's lane moves `width` words, those `away` from its piece's first.

    Words beyond the array go one by one where some are within. begun: of pieces whose first element is in the row.
    """
    B, H, L, each, of_each = problem.B, problem.H, problem.L, pieces.elements(problem.dtype), of_row(problem)
    period = math.lcm(2 * each // math.gcd(H * L, 2 * each), 32 // math.gcd(of_each, 32))
    if B >= 6 * period:  # from then on so many entries more always move as much more
        few = B % period + 4 * period
        here, more = (moved(replace(problem, B=one), away, width, begun) for one in (few, few + period))
        return here + (B - few) // period * (more - here)
    stop = B * H * L * problem.itemsize // 4
    b, h = np.arange(B)[:, None], np.arange(H)
    row, item = (b * H + h) * L, np.broadcast_to(b * of_each, (B, H))
    skip = (row % each > 0) & begun
    has = (row + L - 1) // each - row // each + 1
    least, most = -(away // 4) * 4, (stop - width - away) // 4 * 4  # first words of pieces that are moved whole
    taken, ended = np.zeros((2, H, -(-B * of_each // 32)), bool)  # warps that do, and those whose piece the array ends
    sectors = 0
    for s in range(of_each // 32 + 2):
        begin = np.maximum(item + skip, (item // 32 + s) * 32)
        end = np.minimum(item + has, (item // 32 + s + 1) * 32)
        first, last = (4 * (row // each + at - item) for at in (begin, end - 1))
        for found, low, high in ((ended, most + 4, most + 4), (taken, least, most)):
            there = (begin < end) & (np.maximum(first, low) <= np.minimum(last, high))
            found[np.broadcast_to(h, (B, H))[there], (item // 32 + s)[there]] = True
        first, last = np.maximum(first, least), np.minimum(last, most)
        sectors += ((last + away) // 8 - (first + away) // 8 + 1)[there].sum()
    # Rows that lie close may have a sector in common within a warp.
    (first, here), (last, there) = ((4 * (row // each + at), (item + at) // 32) for at in (skip * 1, has - 1))
    both = (there[:-1] == here[1:]) & (last[:-1] >= least) & (first[1:] <= most) & (has > skip)[:-1] & (has > skip)[1:]
    sectors -= np.maximum(0, (last[:-1] + away) // 8 - (first[1:] + away) // 8 + 1)[both].sum()
    rest = max(0, stop - most - 4 - away) if away >= 0 and width > 1 else 0
    return np.array([np.count_nonzero(taken), sectors]) + rest * np.count_nonzero(ended)


def loads(problem: DepthwiseConv1d, shift: int) -> np.ndarray:
    """[requests, sectors] of the pieces of two arrays, and of the neighbours of one of them for K taps."""
    before, behind = flat_rows.neighbours(problem.K, shift, problem.dtype)
    found = 2 * moved(problem, 0, 4)
    for k in range(0, before, 4):
        found += moved(problem, k - before, min(before, 4))
    for k in range(0, behind, 4):
        found += moved(problem, 4 + k, min(behind, 4))
    return found


def sums(problem: DepthwiseConv1d) -> np.ndarray:
    """[requests, sectors] of the blocks' stores of K sums each."""
    blocks = splits(problem) * problem.H
    return np.array([blocks, rows_sectors(blocks, problem.K, np.zeros(1, int), np.full(1, problem.K))])


def launch(problem: DepthwiseConv1d) -> Launch:
    """Four warps a block, as many blocks a channel as share it."""
    each_row, parts = of_row(problem), splits(problem)
    scalars = (problem.shift, problem.L, problem.B, each_row, *flat_rows.magic(each_row))
    return Launch(grid=(problem.H * parts,), block=(32, WARPS), scalars=scalars, parts=parts)
