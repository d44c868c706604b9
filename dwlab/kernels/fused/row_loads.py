"""A chunk of x, and of filters, to shared memory: rows of channels, in kernels that fuse pointwise layers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts import swizzle
from dwlab.kernels.traffic import iterations, warp_traffic
from dwlab.target import cuda


@cuda.jit(device=True, forceinline=True)
def zeros(shared, at):
    """shared[at : at + 4] = 0."""
    ptx.store4_shared(shared, at, float32(0), float32(0), float32(0), float32(0))


@functools.cache
def load_filters(C: int, F: int, filters: int, depth: int, pitch: int, threads: int, fours: bool = False) -> Any:
    """load(shared, to, w, f0, c0): `depth` words from word c0 on of the filters from f0 on, to rows of shared.

    w: (F, C) words. Asynchronously where C is whole vectors of 16 bytes. fours: to the rows that `row_of_fours` says.
    """
    place = _placed_by_fours(pitch) if fours else swizzle.place(pitch)
    if C % 4:
        ITEMS = filters * depth
        EACH = -(-ITEMS // threads)

        @cuda.jit(device=True, forceinline=True)
        def load(shared, to, w, f0, c0):
            for round in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(round * threads))
                if i < ITEMS:
                    f = uint32(i // uint32(depth))
                    c = uint32(i % uint32(depth))
                    value = float32(0)
                    if f0 + f < F and c0 + c < C:
                        value = w[uint32((f0 + f) * uint32(C) + c0 + c)]
                    shared[uint32(to + place(f, c))] = value

    else:
        ITEMS = filters * depth // 4
        EACH = -(-ITEMS // threads)

        @cuda.jit(device=True, forceinline=True)
        def load(shared, to, w, f0, c0):
            for round in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(round * threads))
                if i < ITEMS:
                    f = uint32(i // uint32(depth // 4))
                    c = uint32(uint32(4) * (i % uint32(depth // 4)))
                    at = uint32(to + place(f, c))
                    if f0 + f < F and c0 + c < C:
                        ptx.copy4_async(shared, at, w, uint32((f0 + f) * uint32(C) + c0 + c))
                    else:
                        zeros(shared, at)

    return load


@cuda.jit(device=True, forceinline=True)
def row_of_fours(f):
    """The row of a product's B where filter f comes, so that each lane's sums are of four neighbouring filters.

    Of 16 columns lane t of four gets sums 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 (mma_ss): these rows are given to
    filters 4 t to 4 t + 3.
    """
    return uint32(f // uint32(16) * uint32(16) + f // uint32(2) % uint32(2) * uint32(8)
                  + f // uint32(4) % uint32(4) * uint32(2) + f % uint32(2))  # fmt: skip


@functools.cache
def _placed_by_fours(pitch: int) -> Any:
    place = swizzle.place(pitch)

    @cuda.jit(device=True, forceinline=True)
    def placed(f, word):
        return place(row_of_fours(f), word)

    return placed


@functools.cache
def load_pixels(aligned: bool, C: int, size: int, depth: int, pitch: int, threads: int) -> Any:
    """load(shared, to, x, first, pixels, c0): the same of x, of `size` pixels of a run that has `pixels`.

    aligned: pixels are whole vectors of 16 bytes; otherwise they do not come asynchronously.
    """
    if aligned:
        ITEMS = size * depth // 4
        EACH = -(-ITEMS // threads)
        place = swizzle.place(pitch)

        @cuda.jit(device=True, forceinline=True)
        def load(shared, to, x, first, pixels, c0):
            for round in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(round * threads))
                if i < ITEMS:
                    m = uint32(i // uint32(depth // 4))
                    c = uint32(uint32(4) * (i % uint32(depth // 4)))
                    at = uint32(to + place(m, c))
                    if m < pixels and c0 + c < C:
                        ptx.copy4_async(shared, at, x, uint32(first + m * uint32(C) + c0 + c))
                    else:
                        zeros(shared, at)

    else:
        place = swizzle.place(pitch)
        ITEMS = size * depth
        EACH = -(-ITEMS // threads)

        @cuda.jit(device=True, forceinline=True)
        def load(shared, to, x, first, pixels, c0):
            for round in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(round * threads))
                if i < ITEMS:
                    c = uint32(i % uint32(depth))
                    m = uint32(i // uint32(depth))
                    value = float32(0)
                    if m < pixels and c0 + c < C:
                        value = x[uint32(first + (c0 + c) + m * uint32(C))]
                    shared[uint32(to + place(m, c))] = value

    return load


def filter_traffic(C: int, F: int, filters: int, depth: int, threads: int, f0: int) -> np.ndarray:
    """[requests, sectors] of `load_filters` by a block, from filter f0 on, of all channels."""
    return _traffic(1 if C % 4 else 4, C, filters, depth, threads, f0 * C, F - f0)


def pixel_traffic(
    aligned: bool, C: int, size: int, depth: int, threads: int, first: int, pixels: int
) -> np.ndarray:  # fmt: skip
    """[requests, sectors] of `load_pixels` by a block, of all channels."""
    return _traffic(4 if aligned else 1, C, size, depth, threads, first, pixels)


def _traffic(each: int, C: int, lines: int, depth: int, threads: int, first: int, limit: int) -> np.ndarray:
    """[requests, sectors] of `lines` lines of C words, `each` words at a time, from word `first`, to line `limit`."""
    across, found = depth // each, np.zeros(2, np.int64)
    i = iterations(lines * across, threads)
    line, c = i // across, each * (i % across)
    for c0 in range(0, C, depth):
        there = (i >= 0) & (line < limit) & (c0 + c < C)
        found += warp_traffic(np.where(there, (first + line * C + c0 + c) // each, -1), 8 // each)
    return found
