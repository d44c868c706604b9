"""A warp's 32 rows between global and shared memory, 16 bytes an instruction, for rows of a fixed length n.

The rows follow each other in global memory without a gap, so neighbouring lanes move neighbouring 16 bytes. In shared
memory they lie an odd number of 16 bytes apart (`pitch`): the 8 lanes that it serves together find the same piece of
their own rows in different banks; only where a row ends among 8 lanes that copy do two of them meet in a bank. Each
function here makes a device function for n, a multiple of 4.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab import ptx
from dwlab.target import cuda
from dwlab.traffic import warp_traffic

ROWS = 32  # one a lane


def pitch(n: int) -> int:
    """Elements from one row to the next in shared memory."""
    return n + 4 * (1 - n // 4 % 2)


@functools.cache
def bring(n: int) -> Any:
    """bring(tile, base, source, start, lane, rows): starts the copies of `rows` rows, 1 to 32; the others become 0.

    base: word of the tile where the first row goes. start: number of the first element in `source`. The copies are not
    waited for.
    """
    quads, turn, rounds, span, gap = _walk(n)
    words = pitch(n)

    @cuda.jit(device=True, forceinline=True)
    def bring(tile, base, source, start, lane, rows):
        zero = float32(0)
        if rows == ROWS:  # nearly always: no piece is asked for
            for q in range(rounds):
                for p in range(turn):
                    i = uint32(lane + uint32(32 * p))
                    at = uint32(base + (i + i // uint32(quads) * uint32(gap)) * uint32(4))
                    ptx.copy4_async(tile, uint32(at + uint32(span * q)), source, start + 4 * lane + 128 * (p + turn * q))
        else:
            for i in range(lane, uint32(rows * uint32(quads)), 32):
                at = uint32(base + (i + i // uint32(quads) * uint32(gap)) * uint32(4))
                ptx.copy4_async(tile, at, source, start + 4 * i)
            if lane >= rows:
                for m in range(quads):
                    ptx.store4_shared(tile, uint32(base + lane * uint32(words) + uint32(4 * m)), zero, zero, zero, zero)

    return bring


@functools.cache
def take(n: int) -> Any:
    """take(tile, base, target, start, lane, rows): stores `rows` rows, 1 to 32, from element `start` of `target` on."""
    quads, turn, rounds, span, gap = _walk(n)

    @cuda.jit(device=True, forceinline=True)
    def take(tile, base, target, start, lane, rows):
        if rows == ROWS:
            for q in range(rounds):
                for p in range(turn):
                    i = uint32(lane + uint32(32 * p))
                    at = uint32(base + (i + i // uint32(quads) * uint32(gap)) * uint32(4))
                    a, b, c, d = ptx.load4_shared(tile, uint32(at + uint32(span * q)))
                    ptx.store4(target, start + 4 * lane + 128 * (p + turn * q), a, b, c, d)
        else:
            for i in range(lane, uint32(rows * uint32(quads)), 32):
                at = uint32(base + (i + i // uint32(quads) * uint32(gap)) * uint32(4))
                a, b, c, d = ptx.load4_shared(tile, at)
                ptx.store4(target, start + 4 * i, a, b, c, d)

    return take


@functools.cache
def read(n: int) -> Any:
    """read(values, tile, at): the n elements from word `at` of shared memory into the local array `values`."""

    @cuda.jit(device=True, forceinline=True)
    def read(values, tile, at):
        for m in range(n // 4):
            a, b, c, d = ptx.load4_shared(tile, uint32(at + uint32(4 * m)))
            values[4 * m], values[4 * m + 1], values[4 * m + 2], values[4 * m + 3] = a, b, c, d

    return read


@functools.cache
def filters(K: int) -> Any:
    """filters(taps, w, first, lane, tile): the filter of row first + lane into the local array `taps`.

    w (H, K). K a multiple of 4: each lane loads its own, 16 bytes at a time. Else 16 bytes would not be aligned, and
    the 32 filters pass through `tile`, 32 * K words of shared memory, loaded by neighbouring lanes.
    """
    if K % 4 == 0:

        @cuda.jit(device=True, forceinline=True)
        def filters(taps, w, first, lane, tile):
            start = np.int64(uint32(first + lane) % uint32(w.shape[0])) * K
            for m in range(K // 4):
                taps[4 * m], taps[4 * m + 1], taps[4 * m + 2], taps[4 * m + 3] = ptx.load4(w, start + 4 * m)

    else:

        @cuda.jit(device=True, forceinline=True)
        def filters(taps, w, first, lane, tile):
            H = uint32(w.shape[0])
            h0 = uint32(first % H)
            for m in range(K):
                i = uint32(lane + uint32(32 * m))
                h = uint32(h0 + i // uint32(K))
                if h >= H:  # rarely, and a division by H takes its time
                    h = uint32(h % H)
                tile[i] = w[h, uint32(i % uint32(K))]
            cuda.syncwarp()
            for j in range(K):
                taps[j] = tile[uint32(lane * uint32(K) + uint32(j))]

    return filters


def filter_words(K: int) -> int:
    """Words of the tile that `filters` needs."""
    return 32 * K if K % 4 else 4


def filters_traffic(H: int, K: int, first: Any) -> tuple[int, int]:
    """Requests and sectors of `filters` in warps whose first rows are `first`."""
    channels, times = np.unique(np.asarray(first) % H, return_counts=True)
    if K % 4 == 0:
        lane, piece = np.arange(ROWS), 4 * np.arange(K // 4)[:, None]
        sectors = [warp_traffic((h + lane) % H * K + piece)[1] for h in channels]
        return int(times.sum()) * (K // 4), int(times @ sectors)
    i = np.arange(ROWS * K).reshape(K, ROWS)
    sectors = [warp_traffic((h * K + i) % (H * K))[1] for h in channels]
    return int(times.sum()) * K, int(times @ sectors)


@functools.cache
def put_parts(K: int, warps: int) -> Any:
    """put_parts(sums, parts, first, tile, base, pitch): the K sums of each lane, added over the block's warps, to parts.

    parts (n, H, K); lane l of every warp has a sum for its row first + l; rows beyond the last stay away. They pass
    through shared memory, 32 * K words from `base` on for the first warp and `pitch` words further for each other.
    """

    @cuda.jit(device=True, forceinline=True)
    def put_parts(sums, parts, first, tile, base, pitch):
        lane, warp = uint32(cuda.threadIdx.x & 31), uint32(cuda.threadIdx.y)
        for j in range(K):
            tile[uint32(base + warp * pitch + lane * uint32(K) + uint32(j))] = sums[j]
        cuda.syncthreads()
        H = uint32(parts.shape[1])
        p0 = uint32(first // H)
        h0 = uint32(first - p0 * H)
        for i in range(uint32(lane + uint32(32) * warp), uint32(32 * K), uint32(32 * warps)):
            part, h = p0, uint32(h0 + i // uint32(K))
            if h >= H:  # rarely, and a division by H takes its time
                part, h = uint32(p0 + h // H), uint32(h % H)
            total = tile[uint32(base + i)]
            for other in range(1, warps):
                total += tile[uint32(base + uint32(other) * pitch + i)]
            if part < parts.shape[0]:
                parts[part, h, uint32(i % uint32(K))] = total

    return put_parts


def _walk(n: int) -> tuple[int, int, int, int, int]:
    """How a lane walks through the pieces of 32 rows, 32 pieces further each time.

    (pieces of a row, steps after which a lane is at the same place of a later row, such rounds, words in shared memory
    from one round to the next, pieces between two rows)
    """
    quads = n // 4
    turn = quads // math.gcd(quads, 32)
    return quads, turn, quads // turn, 32 * turn // quads * pitch(n), 1 - quads % 2
