"""A channel's strips, 32 at a time, between global and shared memory: what the weight gradient and backward share.

A strip is the neighbouring times of a row that a lane has, `each` of them. The strips of one channel, through all rows
of the batch, are numbered in one line; a warp takes 32 that follow each other, so no lane is idle but in a channel's
last ones, whatever a row's length. Rows of one channel lie at a stride of H rows in memory, and where a
warp's strips cross from a row to the next, each row has its own halo: a row's line is `left` words, its strips,
`right` words, and a tile holds a piece of such lines one after the other. Word i of a tile is word (offset + i) of the
line of the warp's first row, or of one of the rows after it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import constants
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import words
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import StageError, fits_uint32
from dwlab.kernels.tiling.gpu import MULTIPROCESSORS
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

LANES = 32
TAPS = 8  # of which one function adds up the sums
WARPS = 8  # of a block that has all of a channel: they find their pieces in turn, and add up in shared memory
SHARED = 99 * 1024  # bytes of a block, which every GPU gives from compute capability 8.0 on
WORTH = 10  # pieces of work that multiprocessors may wait for others, rather than a second kernel adds up parts;
ALONE = 400  # of longer work its two microseconds are nothing compared with what more warps bring

AT_LEAST = 4  # where there are parts: pieces for a warp, as its sums' way through the tree costs half of one,
FEW = 8 * MULTIPROCESSORS  # unless so few warps are not there;
MANY = 128 * MULTIPROCESSORS  # and no more warps than these: parts are bytes too


def per_row(L: int, each: int) -> int:
    """Strips of a row."""
    return -(-L // each)


def items(problem: DepthwiseConv1d, each: int) -> int:
    """Pieces of work of a channel: 32 strips each."""
    return -(-problem.B * per_row(problem.L, each) // LANES)


def shares(problem: DepthwiseConv1d, each: int, words_of_warp: int) -> tuple[int, int]:
    """(blocks that share a channel's strips, warps of a block): the blocks' sums are parts of each element of dw.

    One block, with no parts, if there are as many channels as multiprocessors, or few strips. words_of_warp: of shared
    memory. Raises StageError for a problem whose strips and rows do not fit 32 bits.
    """
    fits_uint32(problem)
    pieces = items(problem, each)
    waiting = pieces * (-(-problem.H // MULTIPROCESSORS) - problem.H / MULTIPROCESSORS)
    if waiting <= WORTH and pieces <= ALONE:
        blocks, warps = 1, min(pieces, WARPS, max(1, SHARED // (4 * words_of_warp)))
    else:
        shared = max(pieces // AT_LEAST, min(pieces, FEW // problem.H))
        shared = max(1, min(shared, MANY // problem.H))
        warps = 4 if problem.H * shared >= 16 * MULTIPROCESSORS else 1
        blocks = -(-shared // warps)
    if (pieces + blocks * warps) * LANES >= 2**32:
        raise StageError(
            f"{problem.B * per_row(problem.L, each)} strips of a channel do not fit the kernel's 32-bit indices: use "
            f"smaller sizes than {problem}"
        )
    if (LANES + 1) * problem.H * problem.L >= 2**32:
        raise StageError(f"33*H*L of {problem} does not fit the kernel's 32-bit indices: use smaller sizes")
    return blocks, warps


def line(L: int, each: int, dtype: str, left: int = 0, right: int = 0) -> int:
    """Words of a row's line with these halos."""
    return left + per_row(L, each) * words(each, dtype) + right


def tile_words(L: int, each: int, dtype: str, left: int = 0, right: int = 0) -> int:
    """Words that 32 strips need at most."""
    rows = min(LANES, (LANES - 2) // per_row(L, each) + 2)  # of which a warp has strips
    return LANES * words(each, dtype) + rows * (left + right)


def sizes(L: int, each: int, dtype: str, left: int, right: int, first: int = 0) -> Any:
    """Words of a row, a strip, a tile without and one with halos; from word `first` of a warp on it has two of each."""
    own, wide = tile_words(L, each, dtype), tile_words(L, each, dtype, left, right)
    return constants.of(
        row=words(L, dtype), step=words(each, dtype), strips=per_row(L, each), own=own, wide=wide, first=first,
        wide_at=first + 2 * own, all=first + 2 * own + 2 * wide,
    )  # fmt: skip


@functools.cache
def place(L: int, each: int, dtype: str, left: int = 0, right: int = 0) -> Any:
    """place(lane, start, strips) -> (where the lane's strip begins in the tile, with its halo; where the last ends).

    start: the warp's first strip, counted from the first row's first; strips: from there to the channel's last one. A
    lane without a strip has the place of the first.
    """
    strips, step, span = per_row(L, each), words(each, dtype), line(L, each, dtype, left, right)

    @cuda.jit(device=True, forceinline=True)
    def at(strip):
        row = uint32(strip // uint32(strips))
        return uint32(row * uint32(span) + uint32(strip - row * uint32(strips)) * uint32(step))

    @cuda.jit(device=True, forceinline=True)
    def place(lane, start, strips):
        offset = uint32(start * uint32(step))
        own = uint32(at(uint32(start + lane)) - offset) if lane < strips else uint32(0)
        last = min(uint32(LANES), strips)
        return own, uint32(at(uint32(start + last - uint32(1))) - offset + uint32(left + step + right))

    return place


@functools.cache
def load_async(L: int, each: int, dtype: str, left: int = 0, right: int = 0) -> Any:
    """load_async(tile, base, source, row, pitch, rows, start, end, lane): starts to copy the warp's strips.

    base: word of the tile where they go. row: number of the first word of the warp's first row; pitch: words from a row
    to the channel's next; rows: from the first to the channel's last. start: as in `place`; end: its second result.
    What lies outside a row is zero. The copies are not waited for.
    """
    n, step, span = words(L, dtype), words(each, dtype), line(L, each, dtype, left, right)
    rounds = -(-tile_words(L, each, dtype, left, right) // 128)

    @cuda.jit(device=True, forceinline=True)
    def load_async(tile, base, source, row, pitch, rows, start, end, lane):
        first = uint32(start * uint32(step) + lane * uint32(4))
        for m in range(rounds):
            i = uint32(lane * uint32(4) + uint32(128 * m))
            r = uint32(uint32(first + uint32(128 * m)) // uint32(span))
            t = uint32(uint32(first + uint32(128 * m)) - r * uint32(span) - uint32(left))  # before the row: wraps
            if i < end:
                if r < rows and t < uint32(n):
                    ptx.copy4_async(tile, uint32(base + i), source, row + np.int64(uint32(r * pitch + t)))
                else:
                    ptx.store4_shared(tile, uint32(base + i), float32(0), float32(0), float32(0), float32(0))

    return load_async


@functools.cache
def store(L: int, each: int, dtype: str) -> Any:
    """store(tile, base, target, row, pitch, rows, start, lane): stores the warp's strips without halos."""
    n, step, span = words(L, dtype), words(each, dtype), line(L, each, dtype)
    rounds = LANES * step // 128

    @cuda.jit(device=True, forceinline=True)
    def store(tile, base, target, row, pitch, rows, start, lane):
        first = uint32(start * uint32(step) + lane * uint32(4))
        for m in range(rounds):
            r = uint32(uint32(first + uint32(128 * m)) // uint32(span))
            t = uint32(uint32(first + uint32(128 * m)) - r * uint32(span))
            if r < rows and t < uint32(n):
                a, b, c, d = ptx.load4_shared(tile, uint32(base + lane * uint32(4) + uint32(128 * m)))
                ptx.store4(target, row + np.int64(uint32(r * pitch + t)), a, b, c, d)

    return store


@functools.cache
def warp_sums(K: int) -> Any:
    """The device function add(sums, lane, out): out[m] of lane l becomes the warp's sum of sums[32*m + l].

    sums and out are local arrays of K and 2 float32. A tree: each tap takes 5 shuffles, after which all lanes have it.
    """

    def block(j0: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def add(sums, lane, out):
            for j in range(TAPS):
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

    return in_sequence([block(j0) for j0 in range(0, K, TAPS)])


@functools.cache
def add_warps(K: int, pitch: int, reverse: bool = False) -> Any:
    """add_warps(sums, pool, parts, split, h, lane, warp, warps): each lane's K sums, over the block, to parts.

    First over the warp, in a tree; then over the warps, through shared memory, of which warp i has `pitch` words from
    i * pitch on. reverse: sums[j] is of the tap K-1-j. parts (n, H, K).
    """
    add_lanes = warp_sums(K)

    @cuda.jit(device=True, forceinline=True)
    def add_warps(sums, pool, parts, split, h, lane, warp, warps):
        out = cuda.local.array(2, float32)
        out[0] = out[1] = float32(0)
        add_lanes(sums, lane, out)
        if warps > 1:
            cuda.syncwarp()
            for m in range(2):
                pool[uint32(warp * uint32(pitch) + lane + uint32(32 * m))] = out[m]
            cuda.syncthreads()
            if warp == 0:
                for other in range(1, warps):
                    for m in range(2):
                        out[m] += pool[uint32(uint32(other) * uint32(pitch) + lane + uint32(32 * m))]
        if warp == 0:
            for m in range(2):
                j = uint32(lane + uint32(32 * m))
                if j < K:
                    parts[split, h, uint32(K - 1) - j if reverse else j] = out[m]

    return add_warps


def traffic(problem: DepthwiseConv1d, each: int, left: int = 0, right: int = 0) -> np.ndarray:
    """[requests, sectors] of all `load_async` with these halos; without, of all `store` as well."""
    B, H, L, dtype = problem.B, problem.H, problem.L, problem.dtype
    n, strips, step, span = words(L, dtype), per_row(L, each), words(each, dtype), line(L, each, dtype, left, right)
    strip = LANES * np.arange(items(problem, each))
    row, start = strip // strips, strip % strips
    count = np.minimum(LANES, B * strips - strip)
    last = start + count - 1
    end = last // strips * span + last % strips * step - start * step + left + step + right
    full = row + (LANES - 2) // strips + 1 < B  # whose rows all exist: of these there are few kinds
    found = np.zeros(2, np.int64)
    kinds = np.stack([row % 2, start, end, np.where(full, 2**40, B - row)], axis=1)
    channels = np.array([-(-H // 2), H // 2])  # even, odd: 16-byte pieces lie in their sectors alike for rows two apart
    for (odd, first, stop, rows), times in zip(*np.unique(kinds, axis=0, return_counts=True), strict=True):
        i = 4 * np.arange(LANES) + 128 * np.arange(-(-stop // 128))[:, None]
        r, t = (first * step + i) // span, (first * step + i) % span - left
        there = (i < stop) & (r < rows) & (t >= 0) & (t < n)
        for h in (0, 1):
            pieces = np.where(there, ((odd * H + h) % 2 + r * H) * n + t, -1)
            found += times * channels[h] * warp_traffic(pieces)
    return found
