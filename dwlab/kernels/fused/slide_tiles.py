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
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share
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
    """What is wrong with a tile, or ""; not whether a GPU has room for it."""
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
    """What a block takes."""
    return Resources(config.threads, registers(layers, config), 4 * shared_words(config))


# How long a launch takes, in clocks: what a block does, round by round, and what the hardware does for all of them. The
# constants come from least squares of logarithms over measured choices of tiles on an H200, their arrays in the L2 and
# not (the section `tiles` of the records); which choices, the constants before these have said.
# They order tiles; they are no properties of a GPU.
CONSTANTS = {
    "start": 2120,  # of a launch
    "round": 1680,  # of the blocks that a multiprocessor has at a time
    "chain": 25,  # of a row of x that is waited for
    "read": 85,  # of filters that are waited for
    "own": 1.1,  # of an instruction, until the same warp's next
    "segment": 3380,  # of a block's channels beyond the first ones: two barriers, and x in shorter pieces of memory
    "issue": 1.04,  # from here on of all blocks together, and these at the same time: of an instruction of any warp
    "access": 0.9,  # of 128 bytes to or from shared memory and the L1 cache
    "tensor": 0.875,  # of a part of a tensor core's time
    "memory": 0.057,  # of a byte that must move, for each multiprocessor
}


def amounts(layers: Any, images: int, config: TileConfig, gpu: Gpu) -> tuple[float, ...]:
    """What a launch has of each of CONSTANTS, for a Fused of one image and so many images."""
    one, two = layers.first, layers.second
    height, width, run = config.block_h, config.block_w, config.thread_n
    K, S, wide, E = one.K, one.stride, one.dtype == "float32", 4 // one.itemsize
    word, rows, columns = sliding.words(one.dtype), len(sliding.rows_of(one, height)), (run - 1) * S + K
    here = share(images * -(-two.P // height) * -(-two.Q // width) * -(-two.F // config.block_n), gpu)
    fit = gpu.blocks_per_sm(resources(layers, config))
    rounds = -(-here // min(max(fit, 1), here))
    segments = -(-one.C // E // config.block_k)
    pieces = items(config, one.dtype) * segments
    turns = -(-items(config, one.dtype) // config.threads) * segments
    chain = 2 if sliding.ahead(one, height, run) == rows else rows + 1
    slide = rows * columns * (5 if wide else 7) + height * run * (4 * K * K + 12) + 2 * K * K + 30
    groups = segments * config.block_k // GROUP // config.warps_k
    across, down = config.warp_n // 8, config.warp_m // 16
    product = groups * (across * (18 if wide else 6) + down * (28 if wide else 4))
    mma = groups * 2 * across * down * (3 if wide else 1)
    stored = height * width * config.block_n
    end = 2 * sums(config) + stored / (4 * E) / config.threads * (30 + 12 * E + 4 * config.warps_k)
    issue = pieces / 32 * slide + end * config.threads / 32 + (product + mma) * config.warps
    access = pieces / 32 * (rows * columns + K * K + height * run) * word
    access += config.warps * groups * 8 * (across + down)
    access += config.block_m * outputs.out_pitch(config) * config.warps_k / 16
    return (
        1, rounds, rounds * turns * chain, rounds * groups / config.unroll,
        rounds * (turns * slide + product + mma + end), here * (segments - 1), here * issue / 4, here * access,
        here * mma * config.warps * 2, layers.compulsory_bytes("dwpw") * images / gpu.sms,
    )  # fmt: skip


def cost(layers: Any, images: int, config: TileConfig, gpu: Gpu) -> Cost:
    """In clocks, of a launch for a Fused of one image and so many images."""
    parts = amounts(layers, images, config, gpu)
    start, rounds, chain, read, own, segment, issue, access, tensor, memory = (
        part * each for part, each in zip(parts, CONSTANTS.values(), strict=True)
    )
    return Cost(
        {"launch": start, "waves": rounds, "latency": chain + read + own, "barriers": segment},
        {"issue": issue, "shared memory": access, "tensor cores": tensor, "device memory": memory},
        norm=2,
    )


def configs(layers: Any, images: int, gpu: Gpu) -> Iterator[TileConfig]:
    """Tiles of a pair of layers."""
    one, two = layers.first, layers.second
    words = -(-one.C * one.itemsize // 4 // GROUP) * GROUP
    for (height, width, run), warps in itertools.product(_maps(two.P, two.Q, one.K), WARPS):
        warps_p, warps_f, warps_k = warps
        if height * width <= 16 * (warps_p - 1):
            continue
        unit = GROUP * warps_k
        parts = (1,) if 4 * height * width * words <= WHOLE else (1, 2, 3, 4)
        for segment in {-(-words // n // unit) * unit for n in parts}:
            for count in (1, 2, 3, 4, 5, 6, 7, 8):
                filters, turns = 8 * warps_f * count, segment // unit
                if filters >= two.F + 8 * warps_f:
                    continue
                groups = next(n for n in (4, 3, 2, 1) if turns % n == 0 and (n * count <= 4 or n == 1))
                alone = config_of(height, width, filters, segment, warps, run, 0, groups)
                more = -(-min(items(alone, one.dtype), 512) // 32) - alone.warps
                config = config_of(height, width, filters, segment, warps, run, max(0, more), groups)
                if not why_not(config):
                    yield config


WHOLE = 65536  # bytes of depthwise outputs that are not worth dividing among several rounds
WARPS = (
    (1, 1, 1), (1, 1, 3), (1, 1, 4), (1, 1, 8), (1, 2, 2), (1, 2, 4), (1, 2, 8), (1, 4, 1), (1, 4, 2), (1, 4, 4),
    (1, 8, 1), (1, 8, 2), (1, 16, 1), (2, 1, 1), (2, 1, 2), (2, 4, 1), (4, 1, 1),
)  # fmt: skip


def _maps(P: int, Q: int, K: int) -> list[tuple[int, int, int]]:
    """(height, width, run) of tiles for maps of P x Q."""
    shapes = [(8, 8), (4, 8), (2, 8), (4, 4), (8, 4)]
    if Q % 7 == 0:
        shapes += [(4, 7), (2, 7), (1, 7)] if Q % 14 else [(1, 14), (2, 14), (4, 14), (8, 14)]
    if Q % 28 == 0:
        shapes += [(2, 28), (4, 28)]
    return [
        (height, width, run)
        for height, width in shapes
        if height < 2 * P and width < 2 * Q
        for run in ((1, 2) if K <= 5 else (1,))
        if width % run == 0
    ]
