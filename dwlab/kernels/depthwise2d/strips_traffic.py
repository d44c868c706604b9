"""Global-memory traffic of kernels whose threads slide down strips of maps in NHWC, everything in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dwlab.kernels.parts import pieces
from dwlab.kernels.traffic import SECTOR_ELEMENTS, WARP, Traffic, sectors_by_place
from dwlab.problems.layers import DepthwiseConv2d


def traffic(
    layer: DepthwiseConv2d,
    block: tuple[int, int],
    vector: int,
    run: int,
    rows: Sequence[np.ndarray],
    columns: Sequence[int],
) -> Traffic:
    """x for each thread that needs it, its filter and bias for each strip, its outputs.

    block: threads along the channels, `vector` elements each, and along the columns, `run` outputs each. rows: of x
    that each strip of a map loads, columns: that each thread loads, counted from its first; what lies outside of the
    map is not loaded.
    """
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    (G, TILES), count, tiles = block, layer.C // vector, -(-Q // run)
    width, pixel = pieces.words(vector, layer.dtype), pieces.words(layer.C, layer.dtype)
    every = np.concatenate(rows)
    loaded = rows_by_place(layer.N, H, every[(0 <= every) & (every < H)], W * pixel)
    stored = rows_by_place(layer.N, P, np.arange(P), Q * pixel)
    once = rows_by_place(layer.N * len(rows), 1, np.zeros(1, int), 0)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    across, down = np.arange(G * TILES) % G, np.arange(G * TILES) // G
    for group in range(0, count, G):
        c = np.where(group + across < count, (group + across) * width, -1)
        for first in range(0, tiles, TILES):
            tile = first + down
            there = (c >= 0) & (tile < tiles)
            for tap in range(K * K):
                load += traffic_by_place(once, np.where(there, c + tap * pixel, -1))
            if layer.bias:
                load += traffic_by_place(once, np.where(there, c, -1))
            for j in columns:
                v = tile * run * S - PAD + j
                load += traffic_by_place(loaded, np.where(there & (0 <= v) & (v < W), v * pixel + c, -1))
            for e in range(run):
                q = tile * run + e
                one = traffic_by_place(stored, np.where(there & (q < Q), q * pixel + c, -1))
                store += one
                load += one * layer.residual
    return Traffic(*load, *store)


def rows_by_place(images: int, height: int, rows: Any, pitch: int) -> np.ndarray:
    """How many of these rows, of so many maps of `height` rows, begin at each of the 8 places in a sector; of words."""
    first = (np.arange(images)[:, None] * height + rows).ravel() * pitch
    return np.bincount(first % SECTOR_ELEMENTS, minlength=SECTOR_ELEMENTS)


def traffic_by_place(places: np.ndarray, words: Any) -> np.ndarray:
    """[requests, sectors] of a block's access in so many rows at each place: a word of each thread, -1 if none."""
    warps = np.pad(words >= 0, (0, -len(words) % WARP)).reshape(-1, WARP).any(axis=1).sum()
    return np.array([warps * places.sum(), (sectors_by_place(words) * places).sum()])
