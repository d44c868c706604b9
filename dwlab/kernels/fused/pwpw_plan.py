"""How the blocks of a fused kernel of two pointwise layers share the work out, and which tile a shape gets.

See pwpw_2_tensor.py for what a block does. block_n, block_k: of the second layer, in `groups`
groups that a block computes; inner_n, inner_k: of the first.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dwlab.kernels.fused.pwdw_tiles import WARPS, per_word, register_limit
from dwlab.kernels.fused.row_loads import load_filters, load_pixels
from dwlab.kernels.parts import constants, swizzle
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import FLOAT32, Rates, Work
from dwlab.kernels.tiling.gpu import Gpu


@dataclass(frozen=True)
class Layout:
    """Places in a block's shared memory, in words, for a tile.

    passes: groups of the first layer's filters. chunks1, chunks2: of either layer's channels. The pitches are of rows
    in shared memory, `pitch` of the numbers between the layers.
    """

    passes: int
    chunks1: int
    chunks2: int
    x_pitch: int
    w1_pitch: int
    w2_pitch: int
    pitch: int
    x_words: int
    stage_words: int
    inner_at: int
    bias_at: int
    words: int


def why_not(config: TileConfig) -> str:
    """The reason why a tile is for no pair of layers, or ""; not whether a GPU has room for it."""
    filters = config.inner_n // config.warps_n, config.warp_n
    if config.warp_m % 16 or filters[0] % 16 or filters[1] % 16:
        return f"{config.warp_m} pixels, {filters[0]} or {filters[1]} filters of a warp are no multiple of 16"
    if config.inner_k % 8 or config.block_k % 8:
        return f"{config.inner_k} or {config.block_k} words of channels a stage are no multiple of 8"
    if config.threads > 32 * WARPS:
        return f"{config.threads} threads are more than {32 * WARPS}"
    return ""


def config_of(
    pair: Any, warp: tuple[int, int, int], warps: tuple[int, int], depths: tuple[int, int], span: int
) -> TileConfig:
    """The tile with these pixels and filters of either layer of a warp, (warps_m, warps_n), words of channels, groups.

    Shared memory holds two stages if there are two.
    """
    (pixels, filters1, filters2), (warps_p, warps_f), (depth1, depth2) = warp, warps, depths
    more = max(_chunks(pair, depth1, depth2)) > 1
    return TileConfig(
        pixels * warps_p, filters2 * warps_f, depth2, warps_p, warps_f, pipeline_stages=2 if more else 1, groups=span,
        inner_n=filters1 * warps_f, inner_k=depth1,
    )  # fmt: skip


def _chunks(pair: Any, depth1: int, depth2: int) -> tuple[int, int]:
    each = per_word(pair.dtype)
    return -(-pair.first.C // (depth1 * each)), -(-pair.first.F // (depth2 * each))


@functools.lru_cache(1 << 12)
def layout_of(pair: Any, config: TileConfig) -> Layout:
    """The layout of a tile."""
    each, F, depth1, depth2 = per_word(pair.dtype), pair.first.F, config.inner_k, config.block_k
    P, group1, group2 = config.block_m, config.inner_n, config.block_n
    chunks1, chunks2 = _chunks(pair, depth1, depth2)
    passes = -(-max(F, chunks2 * depth2 * each) // group1)  # channels that fill the last stage are 0, not nothing
    pitch = swizzle.padded(passes * group1 // each)
    x_words = P * depth1
    stage = max(x_words + group1 * depth1, group2 * depth2)
    inner_at = stage * config.pipeline_stages
    bias_at = inner_at + P * pitch
    return Layout(
        passes, chunks1, chunks2, depth1, depth1, depth2, pitch, x_words, stage, inner_at, bias_at,
        bias_at + passes * group1 // each,
    )  # fmt: skip


@functools.lru_cache(1 << 12)
def resources(pair: Any, config: TileConfig) -> Resources:
    """Threads, registers and shared memory of a block: registers as many as it starts with."""
    return Resources(config.threads, register_limit(config.threads), 4 * layout_of(pair, config).words)


def aligned(pair: Any) -> bool:
    """Whether pixels of x are whole vectors of 16 bytes."""
    return pair.first.C // per_word(pair.dtype) % 4 == 0


@functools.cache
def products_of(pair: Any, config: TileConfig) -> tuple[Any, Any]:
    """Both layers' products of a warp: rows are pixels, columns filters."""
    each, layout, found = per_word(pair.dtype), layout_of(pair, config), []
    for filters, depth, w_pitch, pitch in (
        (config.inner_n // config.warps_n, config.inner_k, layout.w1_pitch, layout.x_pitch),
        (config.warp_n, config.block_k, layout.w2_pitch, layout.pitch),
    ):
        found.append(mma_ss(pair.dtype, config.warp_m, filters, depth * each, pitch, w_pitch))
    return found[0], found[1]


@functools.cache
def loads(pair: Any, config: TileConfig) -> Any:
    """The device functions x, w1, w2 that load a stage of x and of either layer's filters (row_loads.py)."""
    each, T, layout = per_word(pair.dtype), config.threads, layout_of(pair, config)
    C, F = pair.first.C // each, pair.first.F
    return constants.of(
        x=load_pixels(aligned(pair), C, config.block_m, config.inner_k, layout.x_pitch, T),
        w1=load_filters(C, F, config.inner_n, config.inner_k, layout.w1_pitch, T),
        w2=load_filters(F // each, pair.second.F, config.block_n, config.block_k, layout.w2_pitch, T, fours(pair)),
    )


def fours(pair: Any) -> bool:
    """Whether each lane has sums of four neighbouring filters of the second layer (row_loads.row_of_fours).

    Then four lanes' stores fill whole sectors: 64 bytes of a pixel in float32, 32 in 16 bits.
    """
    return pair.second.F % 4 == 0


SIZES = (16, 32, 64)  # filters of a warp
WAYS = ((1, 4), (1, 8), (2, 1), (2, 4), (4, 2), (8, 1), (8, 2))  # warps_m, warps_n


def configs(pair: Any, images: int, gpu: Gpu) -> Iterator[TileConfig]:
    """Those worth a look."""
    G, F = pair.second.F, pair.first.F
    depths = _depths(pair.first.C, pair.dtype), _depths(F, pair.dtype)
    for pixels, (warps_p, warps_f), one, two in itertools.product((16, 32), WAYS, SIZES, SIZES):
        if pixels * max(one, two) > 2048 or one * (warps_f - 1) >= F or two * (warps_f - 1) >= G:
            continue
        groups = -(-G // (two * warps_f))
        for span, *depth in itertools.product(sorted({s for s in (1, 2, 4, groups) if s <= groups}), *depths):
            config = config_of(pair, (pixels, one, two), (warps_p, warps_f), tuple(depth), span)
            if not why_not(config):
                yield config


def _depths(channels: int, dtype: str) -> list[int]:
    words = -(-channels // (8 * per_word(dtype))) * 8
    return sorted({min(words, depth) for depth in (16, 24, 32, 40, 48, 64)})[-2:]


def work(pair: Any, images: int, config: TileConfig) -> Work:
    """Instructions of a warp, one after the other, count as chunks: each as 1/200."""
    wide, layout, pixels = pair.dtype == "float32", layout_of(pair, config), config.warp_m
    one, two = layout.passes * layout.chunks1, config.groups * layout.chunks2
    x, w1, w2 = layout.x_words, config.inner_n * layout.w1_pitch, config.block_n * layout.w2_pitch
    read, instructions = 4 * (one * (x + w1) + two * w2), 0
    for filters, steps in (
        (config.inner_n // config.warps_n, one * config.inner_k // 8), (config.warp_n, two * config.block_k // 8),
    ):  # fmt: skip
        mma = pixels // 16 * (filters // 8) * (3 if wide else 1)
        instructions += steps * (mma + (pixels + filters) // 16 * (16 if wide else 1))
    products = config.inner_n * config.inner_k * one + config.block_n * config.block_k * two
    again = config.warps_n * (one * x + config.block_m * config.block_k * two) + config.warps_m * (one * w1 + two * w2)
    down = -(-pair.first.H * pair.first.W * images // config.block_m)
    outputs = config.block_m * (config.groups * config.block_n + layout.passes * config.inner_n)
    return Work(
        down * -(-pair.second.F // (config.groups * config.block_n)),
        2 * config.block_m * products * per_word(pair.dtype) * (FLOAT32 if wide else 1),
        read,
        shared=read + 4 * again,
        written=4 * outputs // per_word(pair.dtype),
        chunks=1 + one + two + instructions / 200,
    )


TILES = Tiles(
    configs, resources, work, Rates(products=2640, read=8.7, shared=55, written=256, start=1490, chunk=750),
    lambda pair, config: why_not(config),
)  # fmt: skip
