"""Runs of elements between global and shared memory, in 16-byte vectors, and the traffic of that.

A run begins and ends anywhere. In shared memory it begins with the vector that its first element is in, as float32.
Arrays come as rows of float32 words (view "words").
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise2d import vectors
from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.traffic import run_sectors
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda


@functools.cache
def load_async(dtype: str) -> Any:
    """load_async(tile, x, origin, count): a block starts to load `count` vectors from element `origin` on, a multiple.

    Elements of 16 bits become float32 on the way, so they pass through registers, and are there when this returns.
    """
    if dtype == "float32":

        @cuda.jit(device=True, forceinline=True)
        def load_async(tile, x, origin, count):
            i = uint32(cuda.threadIdx.x)
            threads = uint32(cuda.blockDim.x)
            while i < count:
                ptx.copy4_async(tile, uint32(i * uint32(4)), x, uint32(origin + i * uint32(4)))
                i = uint32(i + threads)
            ptx.commit()

        return load_async

    unpack = pieces.unpack_vector(dtype)

    @cuda.jit(device=True, forceinline=True)
    def load_unpacked(tile, x, origin, count):
        i = uint32(cuda.threadIdx.x)
        threads = uint32(cuda.blockDim.x)
        raw = cuda.local.array(16, float32)
        values = cuda.local.array(8, float32)
        while i < count:
            for m in range(4):  # all four in flight before the first is used
                k = uint32(i + uint32(m) * threads)
                if k < count:
                    word = uint32((origin >> uint32(1)) + k * uint32(4))
                    raw[4 * m], raw[4 * m + 1], raw[4 * m + 2], raw[4 * m + 3] = ptx.load4(x, word)
            for m in range(4):
                k = uint32(i + uint32(m) * threads)
                if k < count:
                    unpack(values, 0, raw[4 * m], raw[4 * m + 1], raw[4 * m + 2], raw[4 * m + 3])
                    to = uint32(k * uint32(8))
                    ptx.store4_shared(tile, to, values[0], values[1], values[2], values[3])
                    ptx.store4_shared(tile, uint32(to + uint32(4)), values[4], values[5], values[6], values[7])
            i = uint32(i + uint32(4) * threads)
        ptx.commit()

    return load_unpacked


@functools.cache
def store(layer: DepthwiseConv2d) -> Any:
    """store(tile, y, r, origin, start, end): a block stores elements start to end, with what the residual adds.

    origin: the element at word 0 of the tile. In float32 the first and the last vector may be another block's as well:
    of these, elements are stored one by one.
    """
    V, WIDE, RESIDUAL = pieces.elements(layer.dtype), layer.dtype == "float32", layer.residual
    put, add_residual = vectors.store(layer.dtype), vectors.add_residual(layer.residual, layer.dtype)

    @cuda.jit(device=True, forceinline=True)
    def store(tile, y, r, origin, start, end):
        values = cuda.local.array(V, float32)
        i = uint32(uint32(cuda.threadIdx.x) * uint32(V))
        while origin + i < end:
            at = uint32(origin + i)
            if at >= start and at + uint32(V) <= end:
                for part in range(V // 4):
                    k = 4 * part
                    a, b, c, d = ptx.load4_shared(tile, uint32(i + uint32(k)))
                    values[k], values[k + 1], values[k + 2], values[k + 3] = a, b, c, d
                word = at if WIDE else uint32(at >> uint32(1))
                add_residual(values, 0, r, word)
                put(y, word, values, 0)
            elif WIDE:
                for k in range(4):
                    if at + uint32(k) >= start and at + uint32(k) < end:
                        total = tile[uint32(i + uint32(k))]
                        if RESIDUAL:
                            total += r[uint32(at + uint32(k))]
                        y[uint32(at + uint32(k))] = total
            i = uint32(i + uint32(cuda.blockDim.x) * uint32(V))

    return store


def loaded(x: np.ndarray, end: np.ndarray, V: int) -> np.ndarray:
    """[requests, sectors] of `load_async` of runs x to end, in whole vectors of V elements."""
    return _vectors(x // V, -(-end // V))


def stored(y: np.ndarray, end: np.ndarray, V: int) -> np.ndarray:
    """[requests, sectors] of `store` of runs y to end; of its loads of a residual as well."""
    whole = _vectors(y // V, -(-end // V), -(-y // V), end // V)
    return whole + _ends(y, end) if V == 4 else whole


def _vectors(first, end, low=None, high=None):
    """Requests and sectors of warps that move the vectors first <= i < end, of which those in low <= i < high count."""
    low, high = first if low is None else low, end if high is None else high
    found = np.zeros(2, np.int64)
    for start in range(0, int((end - first).max()), 32):
        begin = np.maximum(first + start, low)
        count = np.minimum(first + start + 32, high) - begin
        found += np.count_nonzero(count > 0), run_sectors(4 * begin, 4 * count).sum()
    return found


def _ends(y, end):
    """Requests and sectors of what is before the first and after the last whole vector, float32: 4 of one lane each.

    A warp that has both does the first and the second element of either in one access.
    """
    first, last = y // 4, (end - 1) // 4  # vectors
    found = np.zeros(2, np.int64)
    for k in range(4):
        head = (y % 4 > 0) | (end < 4 * first + 4)
        head = head & (4 * first + k >= y) & (4 * first + k < end)
        tail = (last > first) & (end % 4 > 0) & (4 * last + k < end)
        together = head & tail & (last - first < 32)
        sectors = head.astype(int) + tail - (together & (first // 2 == last // 2))
        found += (head.astype(int) + tail - together).sum(), sectors.sum()
    return found
