"""A warp's 32 rows between global and shared memory, 16 bytes an instruction, for rows of a fixed length n.

The rows follow each other without a gap, in global memory and in shared memory, so neighbouring lanes move neighbouring
16-byte vectors. But then a lane reads its own row, and shared memory serves 8 lanes together: the 8 vectors with the
same number in 8 rows lie in different banks only if a row has an odd number of vectors. With an even number the vectors
of a row change places within groups of 2, 4 or 8: vector p of row r lies where p ^ s(r) would (`swizzle`). A gap
between rows would do as well, but asynchronous copies into rows with gaps are slower (the records have both).

Rows are moved as float32 words, whatever they hold: n words. With elements of 16 bits a word has two of them (`words`),
and a vector 8; only reading and writing elements (`read`, `write`) asks what they are.

Where n is no multiple of 4 (float32 alone) rows begin anywhere in a vector, and 32 rows are still 8 n vectors: they
move as before, nothing changes places, and a lane reads and writes its own row word by word. An odd n has 32 different
banks for the same word of 32 rows; with n = 2, 6, 10 … two lanes share a bank.

Each function here makes a device function for n words, or for rows of L elements of a storage type.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import elements, load_shared, store_shared, words
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems import DepthwiseConv1d
from dwlab.target import cuda

ROWS = 32  # one a lane


@functools.cache
def swizzle(n: int) -> Any:
    """swizzle(row): what a vector's number is combined with (^), so that the same vector of 8 rows lies in 8 places.

    Below the largest power of two, up to 8, that divides the vectors of a row, so it never leaves the row.
    """
    group = math.gcd(n // 4, 8) if n % 4 == 0 else 1
    shift = (8 // group).bit_length() - 1  # rows that the length itself puts in different places: nothing to separate

    @cuda.jit(device=True, forceinline=True)
    def swizzle(row):
        return uint32((row >> uint32(shift)) & uint32(group - 1))

    return swizzle


@functools.cache
def vector(n: int) -> Any:
    """vector(own, s, m): the word at which vector m of a row begins; own: where the row begins, s: its swizzle.

    Only the lowest bits of m are combined with s: with m a constant, few different sums are left, and a constant added.
    """
    group = math.gcd(n // 4, 8)

    @cuda.jit(device=True, forceinline=True)
    def vector(own, s, m):
        return uint32(uint32(own + uint32((uint32(m % group) ^ s) * uint32(4))) + uint32(4 * (m - m % group)))

    return vector


@functools.cache
def place(n: int) -> Any:
    """place(lane, p): the word at which a lane's p-th vector of 32 rows begins: vector lane + 32 * p of all.

    After `period` vectors a lane is at the same place of a row some rows further down. If these are a multiple of 8,
    the swizzle is the same again, and nothing but a constant is added.
    """
    if n % 4:

        @cuda.jit(device=True, forceinline=True)
        def place_as_it_is(lane, p):
            return uint32(uint32(4 * lane) + uint32(128 * p))

        return place_as_it_is

    quads, swizzled = n // 4, swizzle(n)
    period = quads // math.gcd(quads, 32)
    if 32 * period // quads % 8:
        period = quads

    @cuda.jit(device=True, forceinline=True)
    def place_of(lane, p):
        i = uint32(lane + uint32(32 * (p % period)))
        return uint32((i ^ swizzled(uint32(i // uint32(quads)))) * uint32(4) + uint32(128 * (p - p % period)))

    return place_of


@functools.cache
def load_async(n: int) -> Any:
    """load_async(tile, base, source, start, lane, rows): starts to copy `rows` rows, 1 to 32; the others become 0.

    base: word of the tile where the first row goes. start: number of the first element in `source`. The copies are not
    waited for.
    """
    if n % 4:
        return _load_loose(n)
    quads, place_of = n // 4, place(n)

    @cuda.jit(device=True, forceinline=True)
    def load_async(tile, base, source, start, lane, rows):
        zero = float32(0)
        if rows == ROWS:  # nearly always: no vector needs a condition
            for p in range(quads):
                ptx.copy4_async(tile, uint32(base + place_of(lane, p)), source, start + 4 * lane + 128 * p)
        else:
            for p in range(quads):
                if lane + 32 * p < rows * quads:
                    ptx.copy4_async(tile, uint32(base + place_of(lane, p)), source, start + 4 * lane + 128 * p)
            if lane >= rows:
                for m in range(quads):
                    ptx.store4_shared(tile, uint32(base + lane * uint32(n) + uint32(4 * m)), zero, zero, zero, zero)

    return load_async


def _load_loose(n: int) -> Any:
    steps, place_of = -(-n // 4), place(n)

    @cuda.jit(device=True, forceinline=True)
    def load_async(tile, base, source, start, lane, rows):
        words = uint32(rows * uint32(n))
        for p in range(steps):
            if 4 * lane + 128 * p + 3 < words:
                ptx.copy4_async(tile, uint32(base + place_of(lane, p)), source, start + 4 * lane + 128 * p)
        rest = uint32(words & uint32(0xFFFFFFFC))  # the words of the last rows that fill no vector
        if rest + lane < words:
            ptx.copy1_async(tile, uint32(base + rest + lane), source, start + rest + lane)
        if lane >= rows:
            for m in range(n):
                tile[uint32(base + lane * uint32(n) + uint32(m))] = float32(0)

    return load_async


@functools.cache
def store(n: int) -> Any:
    """store(tile, base, target, start, lane, rows): stores `rows` rows, 1 to 32, to `target` from element `start`."""
    if n % 4:
        return _store_loose(n)
    quads, place_of = n // 4, place(n)

    @cuda.jit(device=True, forceinline=True)
    def store(tile, base, target, start, lane, rows):
        if rows == ROWS:
            for p in range(quads):
                a, b, c, d = ptx.load4_shared(tile, uint32(base + place_of(lane, p)))
                ptx.store4(target, start + 4 * lane + 128 * p, a, b, c, d)
        else:
            for p in range(quads):
                if lane + 32 * p < rows * quads:
                    a, b, c, d = ptx.load4_shared(tile, uint32(base + place_of(lane, p)))
                    ptx.store4(target, start + 4 * lane + 128 * p, a, b, c, d)

    return store


def _store_loose(n: int) -> Any:
    steps, place_of = -(-n // 4), place(n)

    @cuda.jit(device=True, forceinline=True)
    def store(tile, base, target, start, lane, rows):
        words = uint32(rows * uint32(n))
        for p in range(steps):
            if 4 * lane + 128 * p + 3 < words:
                a, b, c, d = ptx.load4_shared(tile, uint32(base + place_of(lane, p)))
                ptx.store4(target, start + 4 * lane + 128 * p, a, b, c, d)
        rest = uint32(words & uint32(0xFFFFFFFC))
        if rest + lane < words:
            i, H = start + rest + lane, target.shape[1]
            target[i // (H * n), i // n % H, i % n] = tile[uint32(base + rest + lane)]

    return store


def traffic(count: int, n: int) -> tuple[int, int]:
    """Requests and sectors of `load_async`, or of `store`, for so many rows of n words, 32 a warp."""
    full, left = divmod(count, ROWS)
    vectors, rest = divmod(left * n, 4)
    requests = full * -(-n // 4) + -(-vectors // 32) + (rest > 0)
    return requests, full * 4 * n + -(-vectors // 2) + (rest > 0)


@functools.cache
def read(L: int, dtype: str = "float32", first: int = 0, most: int = 0) -> Any:
    """read(values, tile, own, s): a lane's own row into the local array `values`; own, s: as in `vector`.

    first, most: only the elements from the first-th on, a multiple of 8, and at most so many of them, if not 0.
    """
    if words(L, dtype) % 4:
        count = min(most or L, L - first)

        @cuda.jit(device=True, forceinline=True)
        def read_words(values, tile, own, s):
            for m in range(count):
                values[m] = tile[uint32(own + uint32(first + m))]

        return read_words

    each = elements(dtype)
    begin, vectors = first // each, min(most or L, L - first) // each
    at, get = vector(words(L, dtype)), load_shared(dtype)

    @cuda.jit(device=True, forceinline=True)
    def read(values, tile, own, s):
        for m in range(vectors):
            get(values, m, tile, at(own, s, begin + m))

    return read


@functools.cache
def write(L: int, dtype: str, first: int, most: int) -> Any:
    """write(values, tile, own, s): the local array `values` to where `read` reads it; 16 bits are rounded to here."""
    if words(L, dtype) % 4:
        count = min(most, L - first)

        @cuda.jit(device=True, forceinline=True)
        def write_words(values, tile, own, s):
            for m in range(count):
                tile[uint32(own + uint32(first + m))] = values[m]

        return write_words

    each = elements(dtype)
    begin, vectors = first // each, min(most, L - first) // each
    at, put = vector(words(L, dtype)), store_shared(dtype)

    @cuda.jit(device=True, forceinline=True)
    def write(values, tile, own, s):
        for m in range(vectors):
            put(tile, at(own, s, begin + m), values, m)

    return write


@functools.cache
def load_filters(K: int, begin: int, count: int) -> Any:
    """load_filters(taps, w, first, lane): loads of 32 rows' filters, from row `first` on, `count` taps from `begin` on.

    w (H, K). Whole 16-byte vectors: each lane loads its own row's. Else these would not be aligned, and lanes load
    neighbouring elements of all 32; `transpose_filters` gives each lane its own.
    """
    if _whole(K, begin, count):

        @cuda.jit(device=True, forceinline=True)
        def load_filters(taps, w, first, lane):
            start = np.int64(uint32(first + lane) % uint32(w.shape[0])) * K + begin
            for m in range(count // 4):
                taps[4 * m], taps[4 * m + 1], taps[4 * m + 2], taps[4 * m + 3] = ptx.load4(w, start + 4 * m)

    else:

        @cuda.jit(device=True, forceinline=True)
        def load_filters(taps, w, first, lane):
            H = uint32(w.shape[0])
            h0 = uint32(first % H)
            if h0 + 32 <= H:  # neighbouring channels: no division by H, which takes time
                for m in range(count):
                    i = uint32(lane + uint32(32 * m))
                    taps[m] = w[uint32(h0 + i // uint32(count)), uint32(i % uint32(count) + uint32(begin))]
            else:
                for m in range(count):
                    i = uint32(lane + uint32(32 * m))
                    taps[m] = w[uint32(uint32(h0 + i // uint32(count)) % H), uint32(i % uint32(count) + uint32(begin))]

    return load_filters


def _whole(K: int, begin: int, count: int) -> bool:
    return K % 4 == begin % 4 == count % 4 == 0


@functools.cache
def transpose_filters(K: int, begin: int, count: int) -> Any:
    """transpose_filters(taps, lane, tile): gives each lane its own row's taps; tile: `filter_words` of a warp."""
    if _whole(K, begin, count):

        @cuda.jit(device=True, forceinline=True)
        def transpose_filters(taps, lane, tile):
            pass

    else:

        @cuda.jit(device=True, forceinline=True)
        def transpose_filters(taps, lane, tile):
            for m in range(count):
                tile[uint32(lane + uint32(32 * m))] = taps[m]
            cuda.syncwarp()
            for j in range(count):
                taps[j] = tile[uint32(lane * uint32(count) + uint32(j))]

    return transpose_filters


def filter_words(K: int, begin: int, count: int) -> int:
    """Words of shared memory that `transpose_filters` needs."""
    return 4 if _whole(K, begin, count) else 32 * count


def filters_traffic(H: int, K: int, begin: int, count: int, first: Any) -> tuple[int, int]:
    """Requests and sectors of `load_filters` in warps whose first rows are `first`."""
    channels, times = np.unique(np.asarray(first) % H, return_counts=True)
    if _whole(K, begin, count):
        lane, vector = np.arange(ROWS), begin + 4 * np.arange(count // 4)[:, None]
        sectors = [warp_traffic((h + lane) % H * K + vector)[1] for h in channels]
        return int(times.sum()) * (count // 4), int(times @ sectors)
    i = np.arange(ROWS * count).reshape(count, ROWS)
    sectors = [warp_traffic((h + i // count) % H * K + begin + i % count)[1] for h in channels]
    return int(times.sum()) * count, int(times @ sectors)


def convolution_traffic(problem: DepthwiseConv1d, begin: int, count: int) -> Traffic:
    """Traffic of warps that load 32 rows and their filters, `count` taps from `begin` on, and store 32 rows."""
    n = problem.B * problem.H
    requests, sectors = traffic(n, words(problem.L, problem.dtype))
    first = ROWS * np.arange(-(-n // ROWS))  # lanes beyond the last row load a filter too
    w_requests, w_sectors = filters_traffic(problem.H, problem.K, begin, count, first)
    return Traffic(requests + w_requests, sectors + w_sectors, requests, sectors)


@functools.cache
def store_parts(K: int, begin: int, count: int, warps: int) -> Any:
    """store_parts(sums, parts, first, tile, base, pitch): each lane's sums, added over the warps, to parts.

    parts (n, H, K); lane l of every warp has sums for its row first + l, of `count` taps from `begin` on, and the other
    taps become 0; rows beyond the last stay away. They pass through shared memory, 32 * count words from `base` on for
    the first warp and `pitch` words further for each other.
    """
    whole = count == K

    @cuda.jit(device=True, forceinline=True)
    def store_parts(sums, parts, first, tile, base, pitch):
        lane, warp = uint32(cuda.threadIdx.x & 31), uint32(cuda.threadIdx.y)
        for j in range(count):
            tile[uint32(base + warp * pitch + lane * uint32(count) + uint32(j))] = sums[j]
        cuda.syncthreads()
        H = uint32(parts.shape[1])
        p0 = uint32(first // H)
        h0 = uint32(first - p0 * H)
        for i in range(uint32(lane + uint32(32) * warp), uint32(32 * K), uint32(32 * warps)):
            part, h = p0, uint32(h0 + i // uint32(K))
            if h >= H:  # rarely, and a division by H takes its time
                part, h = uint32(p0 + h // H), uint32(h % H)
            at = i if whole else uint32(i // uint32(K) * uint32(count) + i % uint32(K) - uint32(begin))
            total = float32(0)
            if whole or uint32(i % uint32(K) - uint32(begin)) < count:
                total = tile[uint32(base + at)]
                for other in range(1, warps):
                    total += tile[uint32(base + uint32(other) * pitch + at)]
            if part < parts.shape[0]:
                parts[part, h, uint32(i % uint32(K))] = total

    return store_parts
