"""How `planes` cuts the maps of an image into strips of rows, and which run of x and of y a block's strips have.

In NCHW the maps of an image follow each other without a gap. A strip is up to ROWS rows of outputs of one map, as wide
as the map; the strips of an image are numbered in the order of memory, and a block takes some that follow each other.
What it needs of x, and what it has of y, are then one run of elements each. Runs are moved in 16-byte vectors, so in 16
bits, where a vector must not be two blocks', strips end where a vector ends.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numba import int32, uint32

from dwlab.kernels.parts import pieces
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.gpu import Gpu
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda

ROWS = 14  # of outputs in a strip, at most
RUN = 3584  # elements of x that a block aims at
THREADS = 448  # of a block, at most
MOST = 12000  # words of shared memory: x and y of a block
WANTED = 4  # blocks of a multiprocessor


class Strips(NamedTuple):
    """columns: of outputs, of a thread. across: threads of a strip. rows: of a strip. per_map: strips of a map.

    unit: a block has a multiple of so many strips. most: strips of a block at most; 0 where not even a row fits.
    """

    columns: int
    across: int
    rows: int
    per_map: int
    unit: int
    most: int


@functools.cache
def strips(layer: DepthwiseConv2d) -> Strips:
    """Strips as high as leaves a block some RUN elements of x."""
    V, T = pieces.elements(layer.dtype), 1 if layer.Q <= 8 or layer.stride > 1 else 2
    across = -(-layer.Q // T)
    if across > THREADS:
        return Strips(T, across, 1, layer.P, 1, 0)
    most = max(1, ROWS // layer.stride)
    rows = -(-layer.P // -(-layer.P // most))
    if V == 8 and layer.P > rows and rows * layer.Q % V:  # cut where a vector ends, or not at all
        step = V // math.gcd(layer.Q, V)
        rows = layer.P if layer.P * layer.Q % V else max(step, most // step * step)
    while rows > 1 and sum(words(layer, rows, 1)) > MOST:
        rows = -(-rows // 2)
    unit = 1 if V == 4 or layer.P > rows else V // math.gcd(layer.P * layer.Q, V)
    n = unit
    while (n + unit) * across <= THREADS and words(layer, rows, n + unit)[0] <= RUN:
        n += unit
    fits = n * across <= THREADS and sum(words(layer, rows, n)) <= MOST
    aligned = V == 4 or layer.P <= rows or rows * layer.Q % V == 0 and layer.P * layer.Q % V == 0
    return Strips(T, across, rows, -(-layer.P // rows), unit, n * (fits and aligned))


def runs(layer: DepthwiseConv2d, rows: int, each: int) -> tuple[np.ndarray, ...]:
    """Runs of an image's blocks with `each` strips: (first x, end of x, first y, end of y), elements of the image."""
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    per_map = -(-P // rows)
    first = np.arange(0, layer.C * per_map, each)
    last = np.minimum(first + each, layer.C * per_map) - 1
    p, stop = first % per_map * rows, np.minimum(last % per_map * rows + rows, P)
    x = first // per_map * H + np.maximum(0, p * S - PAD)
    x_end = last // per_map * H + np.minimum(H, (stop - 1) * S - PAD + K)
    return x * W, x_end * W, (first // per_map * P + p) * Q, (last // per_map * P + stop) * Q


def words(layer: DepthwiseConv2d, rows: int, each: int) -> tuple[int, int]:
    """Words of shared memory for x and for y: the longest runs, in whole vectors."""
    V = pieces.elements(layer.dtype)
    x, x_end, y, y_end = runs(layer, rows, each)
    return tuple(int((-(-end // V) - start // V).max()) * V for start, end in ((x, x_end), (y, y_end)))


@functools.cache
def run_of_block(layer: DepthwiseConv2d) -> Any:
    """run(n, first, last) -> what `runs` says of strips `first` to `last` of image n, elements of the whole batch."""
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    _, _, STRIP, PER_MAP, _, _ = strips(layer)

    @cuda.jit(device=True, forceinline=True)
    def run(n, first, last):
        c, p = uint32(first // uint32(PER_MAP)), int32(first % uint32(PER_MAP) * uint32(STRIP))
        top = uint32(uint32(n * uint32(C) + c) * uint32(H) + uint32(max(int32(0), int32(p * S - PAD))))
        y_start = uint32(uint32(uint32(n * uint32(C) + c) * uint32(P) + uint32(p)) * uint32(Q))
        c = uint32(last // uint32(PER_MAP))
        stop = min(int32(P), int32(last % uint32(PER_MAP) * uint32(STRIP) + uint32(STRIP)))
        below = uint32(min(int32(H), int32((stop - 1) * S - PAD + K)))
        x_end = uint32((uint32(uint32(n * uint32(C) + c) * uint32(H)) + below) * uint32(W))
        y_end = uint32((uint32(uint32(n * uint32(C) + c) * uint32(P)) + uint32(stop)) * uint32(Q))
        return uint32(top * uint32(W)), x_end, y_start, y_end

    return run


# ------------------------------------------------------------------------------------------------------------ the tile


def configs(layer: DepthwiseConv2d, images: int, gpu: Gpu) -> list[TileConfig]:
    """Tiles of as many strips a block as fit, but fewer where there would not be WANTED blocks a multiprocessor."""
    one = strips(layer)
    here = images * layer.C * one.per_map // (WANTED * gpu.sms) // one.unit * one.unit
    return [tile_of(layer, max(one.unit, min(one.most, here)))]


def tile_of(layer: DepthwiseConv2d, each: int) -> TileConfig:
    """The tile of a block with so many strips: block_h counts their rows of outputs, of one map or of several."""
    one, V = strips(layer), pieces.elements(layer.dtype)
    return TileConfig(block_h=each * one.rows, block_w=layer.Q, thread_m=one.rows, thread_n=one.columns, vector=V)


def block(config: TileConfig) -> tuple[int, int]:
    """(strips of a block, its threads)."""
    each = config.block_h // config.thread_m
    return each, -(-(-(-config.block_w // config.thread_n) * each) // 32) * 32


def resources(layer: DepthwiseConv2d, config: TileConfig) -> Resources:
    """Shared memory is that of a kernel for any number of strips that fit."""
    one = strips(layer)
    return Resources(block(config)[1], 128, 4 * sum(words(layer, one.rows, one.most)))
