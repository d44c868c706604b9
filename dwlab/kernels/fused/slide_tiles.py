"""How the blocks of a fused depthwise and pointwise kernel share the work out where threads slide down the map.

A block computes block_h x block_w pixels of block_n filters, block_k words of channels at a time: first their depthwise
outputs, to shared memory, thread_n neighbouring ones of a row a thread, then their products with the filters, a warp's
own, of `unroll` groups of 16 words at a time; warps_k share the channels. helper_warps take part in the depthwise layer
only. Words are of 4 bytes, one float32 or two elements of 16 bits; a piece is 4 words.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

from dwlab.kernels.fused import outputs, sliding
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import FLOAT32, Rates, Work
from dwlab.kernels.tiling.gpu import Gpu

GROUP = 16  # words of channels that a warp multiplies at a time


def config_of(
    height: int, width: int, filters: int, words: int, warps: tuple[int, int, int] = (1, 1, 1), run: int = 2,
    more: int = 0, groups: int = 1,
) -> TileConfig:  # fmt: skip
    """The tile of so many pixels, filters and words of channels, by warps_m x warps_n x warps_k warps."""
    unit = 16 * warps[0]  # pixels that the products have room for: those of the tile, or a few more
    return TileConfig(
        -(-height * width // unit) * unit, filters, words, *warps, unroll=groups, block_h=height, block_w=width,
        thread_n=run, helper_warps=more,
    )  # fmt: skip


def pitch(config: TileConfig) -> int:
    """Words between pixels of the depthwise outputs: 16 more than a multiple of 32, for their reads in pieces."""
    return -(-(config.block_k - 16) // 32) * 32 + 16


def shared_words(config: TileConfig) -> int:
    """Words of shared memory of a block: the outputs come where the depthwise outputs have been."""
    rows = config.block_m
    return max(rows * pitch(config), config.warps_k * rows * outputs.out_pitch(config))


def sums(config: TileConfig) -> int:
    """Sums of a thread's products."""
    return config.warp_m * config.warp_n // 32


def items(config: TileConfig, dtype: str) -> int:
    """Threads' pieces of work in the depthwise layer: pieces of channels times runs of columns."""
    return config.block_k // sliding.words(dtype) * (config.block_w // config.thread_n)


def why_not(config: TileConfig) -> str:
    """The reason why a tile is wrong, or ""; not whether a GPU has room for it."""
    if config.block_n % (8 * config.warps_n):
        return f"{config.block_n} filters in {config.warps_n} parts are no multiples of 8"
    if config.block_w % config.thread_n:
        return f"a row of {config.block_w} pixels is no multiple of runs of {config.thread_n}"
    if config.block_k % (GROUP * config.warps_k * config.unroll):
        return f"{config.block_k} words of channels are no multiple of {GROUP} x {config.warps_k} x {config.unroll}"
    if sums(config) > 112:
        return f"{sums(config)} sums are too many for a thread's registers: at most 112"
    if config.threads > 512:
        return f"{config.threads} threads are more than 512"
    return ""


def registers(layers: Any, config: TileConfig) -> int:
    """The most registers that a thread is given: for the depthwise layer, or for the products, whichever needs more."""
    one, height, run = layers.first, config.block_h, config.thread_n
    K, S, word = one.K, one.stride, sliding.words(one.dtype)
    columns, taps = (run - 1) * S + K, K * K if K <= sliding.KEPT else K
    ahead = min(sliding.ahead(one, height, run) + 1, len(sliding.rows_of(one, height)))
    slide = 4 * (taps + 1 + -(-K // S) * run + columns) + ahead * columns * word + (8 if word == 4 else 20)
    filters = config.warp_n // 8 * 4
    product = sums(config) + filters * (2 * config.unroll + (2 if word == 4 else 1)) + 4 * word
    product += 24 if word == 4 else 8 if config.unroll == 1 else 32
    need = max(slide, product)  # both with some for indices: what compiled without spills, or of a few words
    return next(count for count in (64, 80, 96, 112, 128, 168, 232) if need <= count or count == 232)


@functools.lru_cache(1 << 12)
def resources(layers: Any, config: TileConfig) -> Resources:
    """Threads, registers and shared memory of a block."""
    return Resources(config.threads, registers(layers, config), 4 * shared_words(config))


SLIDE = 4  # operations of tensor cores in whose time one instruction of the depthwise layer is done


def work(layers: Any, images: int, config: TileConfig) -> Work:
    """A chunk is 32 words of channels that a warp loads, or four rows of x."""
    one, two, height, run = layers.first, layers.second, config.block_h, config.thread_n
    K, word, rows = one.K, sliding.words(one.dtype), len(sliding.rows_of(one, config.block_h))
    columns, segments = (run - 1) * one.stride + K, -(-one.C * one.itemsize // 4 // config.block_k)
    rounds, channels = -(-items(config, one.dtype) // config.threads) * segments, segments * config.block_k
    slide = config.threads * rounds * (rows * columns * 7 + height * run * (4 * K * K + 12) + 2 * K * K + 30)
    products = 2 * config.block_m * config.block_n * channels * 4 // one.itemsize
    return Work(
        images * -(-two.P // height) * -(-two.Q // config.block_w) * -(-two.F // config.block_n),
        products * (FLOAT32 if one.dtype == "float32" else 1) + SLIDE * slide,
        4 * (config.threads * rounds * rows * columns * word + config.block_n * channels),
        shared=4 * channels * (config.block_m * (1 + config.warps_n) + config.block_n * config.warps_m),
        written=config.block_m * config.block_n * two.itemsize * (1 + config.warps_k) / 2,
        chunks=rounds * rows / 4 + channels / 32 / config.warps_k / config.unroll,
    )  # fmt: skip


WARPS = ((1, 1, 1), (1, 1, 8), (1, 2, 4), (1, 4, 1), (1, 4, 2), (1, 8, 1), (1, 8, 2), (1, 16, 1), (2, 1, 1))
MAPS = ((8, 8), (4, 8), (2, 8), (4, 4), (8, 4), (1, 7), (1, 14), (4, 14), (8, 14))  # sevens where they divide a row
COUNTS = (1, 2, 3, 4, 6)  # eights of a warp's filters
WHOLE = 65536  # bytes of depthwise outputs that are not worth dividing among several rounds


def configs(layers: Any, images: int, gpu: Gpu) -> Iterator[TileConfig]:
    """Tiles of a pair of layers."""
    one, two = layers.first, layers.second
    words = -(-one.C * one.itemsize // 4 // GROUP) * GROUP
    for (height, width), warps, count in itertools.product(MAPS, WARPS, COUNTS):
        run, filters, unit = 2 if one.K <= 5 and width % 2 == 0 else 1, 8 * warps[1] * count, GROUP * warps[2]
        if height >= 2 * two.P or width >= 2 * two.Q or (width % 7 == 0 and two.Q % width):
            continue
        if height * width <= 16 * (warps[0] - 1) or filters >= two.F + 8 * warps[1]:
            continue
        parts = (1,) if 4 * height * width * words <= WHOLE else (1, 2, 4)
        for segment in sorted({-(-words // n // unit) * unit for n in parts}):
            groups = next(n for n in (4, 3, 2, 1) if segment // unit % n == 0 and (n * count <= 4 or n == 1))
            alone = config_of(height, width, filters, segment, warps, run, 0, groups)
            more = max(0, -(-min(items(alone, one.dtype), 512) // 32) - alone.warps)
            config = config_of(height, width, filters, segment, warps, run, more, groups)
            if not why_not(config):
                yield config


TILES = Tiles(
    configs, resources, work, Rates(products=2000, read=74, shared=37, written=7.3, start=1450, chunk=1620),
    lambda layers, config: why_not(config),
)  # fmt: skip
