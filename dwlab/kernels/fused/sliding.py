"""Depthwise outputs of a column of x, down its rows in registers, to shared memory: a thread's part of a fused tile.

As depthwise2d's `columns`, written out row by row: a row of x is part of the sums of up to K rows of outputs, and what
sums it meets is known when the kernel is made. So no sum moves, and no product is computed that no output needs.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.traffic import iterations, warp_traffic
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda

CHANNELS = 4  # of a thread: 16 bytes of float32, 8 of 16-bit elements
KEPT = 3  # K of filters that stay in registers; larger ones come from the L1 cache row by row
AT_ONCE = 64  # words of x that a thread loads before it computes, where all of it is no more


def words(dtype: str) -> int:
    """Words that a thread reads at a time: CHANNELS elements."""
    return pieces.words(CHANNELS, dtype)


def rows_of(layer: DepthwiseConv2d, height: int) -> list[int]:
    """Rows of x that `height` rows of outputs need, counted from the first."""
    return [i for i in range((height - 1) * layer.stride + layer.K) if i % layer.stride < layer.K]


def ahead(layer: DepthwiseConv2d, height: int, run: int) -> int:
    """How many rows of x a thread loads before it computes with the first.

    Two or three where it is one were tried on an H200, 43 pairs of layers at 32 images, cold buffers: 1 to 4 % slower
    in the geometric mean.
    """
    rows, columns = len(rows_of(layer, height)), (run - 1) * layer.stride + layer.K
    return rows if rows * columns * words(layer.dtype) <= AT_ONCE else 1


def traffic(layer: DepthwiseConv2d, config: TileConfig, items: int, n: int, p0: int, q0: int) -> np.ndarray:
    """[requests, sectors] of a block's x, taps and biases, all its channels; items: of all threads, block_k channels.

    n: the image; p0, q0: the block's first row and column of outputs.
    """
    C, H, W, K, S = pieces.words(layer.C, layer.dtype), layer.H, layer.W, layer.K, layer.stride
    threads, size, run, total = config.threads, words(layer.dtype), config.thread_n, np.zeros(2, np.int64)
    item, rows = iterations(items, threads), rows_of(layer, config.block_h)
    column, c = item // (config.block_k // size) * run, item % (config.block_k // size) * size
    c = c + np.arange(0, C, config.block_k)[:, None, None]
    there = (item >= 0) & (c < C)
    for i in range(K * K):
        often = K <= KEPT or sum(row - p * S == i // K for row in rows for p in range(config.block_h))
        total += often * warp_traffic(np.where(there, c + i * C, -1).reshape(-1, threads))
    total += layer.bias * warp_traffic(np.where(there, c, -1).reshape(-1, threads))
    for h in (p0 * S - layer.padding + i for i in rows):
        for j in range((run - 1) * S + K):
            v = (q0 + column) * S - layer.padding + j
            inside = there & (0 <= h < H) & (0 <= v) & (v < W)
            total += warp_traffic(np.where(inside, ((n * H + h) * W + v) * C + c, -1).reshape(-1, threads))
    return total


@functools.cache
def store(dtype: str) -> Any:
    """store(array, index, a, b, c, d): and into a shared array, each element rounded."""
    if dtype == "float32":
        return ptx.store4_shared
    pack = pieces.PACK[dtype]

    @cuda.jit(device=True, forceinline=True)
    def store(array, index, a, b, c, d):
        ptx.store2_shared(array, index, pack(a, b), pack(c, d))

    return store


@functools.cache
def sliding(layer: DepthwiseConv2d, height: int, run: int, pitch: int, down: int) -> Any:
    """slide(pool, to, x, w, b, base, h, v, c): `height` x `run` depthwise outputs of CHANNELS channels, to pool.

    x, w, b: words. base: word of x at row h, column v and the first channel, the first x that the outputs need; what
    lies outside of the map counts as 0. c: the channels' word within a pixel. to: word of the first output in pool;
    outputs of neighbouring columns are `pitch` words apart, of neighbouring rows `down`. Before the first x it waits
    for the kernel before this one: filters may come earlier.
    """
    C, H, W, K, S, V = pieces.words(layer.C, layer.dtype), layer.H, layer.W, layer.K, layer.stride, CHANNELS
    ROWS, COLUMNS, KEEP, BIAS = rows_of(layer, height), (run - 1) * S + K, K <= KEPT, layer.bias
    FRESH, DEEP, WORDS = run * V, -(-K // S), words(layer.dtype)
    AHEAD = ahead(layer, height, run)
    SLOTS, ROW, TAP = min(AHEAD + 1, len(ROWS)), COLUMNS * V, (K * K if KEEP else K) * V
    SUMS, VALUES, TAPS = DEEP * FRESH, ROW + SLOTS * COLUMNS * WORDS, TAP + V + WORDS
    get, unpack, store_four = pieces.read(WORDS), pieces.unpack(CHANNELS, layer.dtype), store(layer.dtype)
    activate = epilogue.activate(layer.activation)
    AT, BASE, ROW0, COLUMN0, CHANNEL = range(5)  # of the numbers in `where`

    def load_row(n: int) -> Any:
        """Row n of x is loaded."""
        i, first = ROWS[n], ROW + n % SLOTS * COLUMNS * WORDS

        @cuda.jit(device=True, forceinline=True)
        def load_row(pool, sums, values, taps, x, w, where):
            for j in range(COLUMNS):
                for k in range(WORDS):
                    values[first + j * WORDS + k] = float32(0)
                if uint32(where[ROW0] + i) < uint32(H) and uint32(where[COLUMN0] + j) < uint32(W):
                    get(values, first + j * WORDS, x, uint32(where[BASE] + (i * W + j) * C))

        return load_row

    def unpack_row(n: int) -> Any:
        """Row n of x has come."""
        first = ROW + n % SLOTS * COLUMNS * WORDS

        @cuda.jit(device=True, forceinline=True)
        def unpack_row(pool, sums, values, taps, x, w, where):
            for j in range(COLUMNS):
                unpack(values, j * V, first + j * WORDS)

        return unpack_row

    @cuda.jit(device=True, forceinline=True)
    def tap(taps, to, w, at):
        get(taps, TAP + V, w, at)
        unpack(taps, to, TAP + V)

    def add(n: int, p: int) -> Any:
        """Row n of x is added to the sums of row p of outputs, which are stored if that was the last."""
        i, first, taps_at = ROWS[n] - p * S, p % DEEP * FRESH, (ROWS[n] - p * S) * K * V * KEEP

        @cuda.jit(device=True, forceinline=True)
        def add(pool, sums, values, taps, x, w, where):
            if not KEEP:
                for j in range(K):
                    tap(taps, j * V, w, uint32(where[CHANNEL] + (i * K + j) * C))
            if i == 0:
                for e in range(run):
                    for k in range(V):
                        sums[first + e * V + k] = taps[TAP + k]
            for j in range(K):
                for e in range(run):
                    for k in range(V):
                        sums[first + e * V + k] += taps[taps_at + j * V + k] * values[(e * S + j) * V + k]
            if i == K - 1:
                for e in range(run):
                    k = first + e * V
                    a, b = activate(sums[k]), activate(sums[k + 1])
                    g, d = activate(sums[k + 2]), activate(sums[k + 3])
                    store_four(pool, uint32(where[AT] + (p * down + e * pitch)), a, b, g, d)

        return add

    order = [load_row(n) for n in range(min(AHEAD, len(ROWS)))]
    for n, i in enumerate(ROWS):
        order += [load_row(n + AHEAD)] if n + AHEAD < len(ROWS) else []
        order += [unpack_row(n)]
        order += [add(n, p) for p in range(height) if 0 <= i - p * S < K]
    steps = in_sequence(order)

    @cuda.jit(device=True, forceinline=True)
    def slide(pool, to, x, w, b, base, h, v, c):
        taps = cuda.local.array(TAPS, float32)  # and the bias, and words in flight to one of them
        sums = cuda.local.array(SUMS, float32)
        values = cuda.local.array(VALUES, float32)
        where = cuda.local.array(5, uint32)
        where[AT], where[BASE], where[ROW0], where[COLUMN0], where[CHANNEL] = to, base, h, v, c
        for k in range(V):
            taps[TAP + k] = float32(0)
        if BIAS:
            tap(taps, TAP, b, c)
        if KEEP:
            for i in range(K * K):
                tap(taps, i * V, w, uint32(c + i * C))
        ptx.grid_dependency_wait()
        steps(pool, sums, values, taps, x, w, where)

    return slide
