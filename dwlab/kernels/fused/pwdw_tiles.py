"""How the blocks of a fused pointwise and depthwise kernel share the work out, and what one thread of them does.

A block computes block_h rows of outputs, over the map's whole width, of block_n filters of one image. The rows of x
that they come from lie next to each other in memory, as one run of block_m pixels at most. The block multiplies this
run with its filters, block_k words of channels at a time: these are in flight to one of pipeline_stages places in
shared memory (asynchronous copies of 16 bytes) while the products of those before are summed up in the warps' registers
(parts/mma_ss.py). Then the sums, with bias and activation, take the place of x in shared memory, and each thread
computes outputs of the depthwise layer there, thread_m of a column.

A warp has warp_m x warp_n sums, a block warps_m x warps_n such tiles, and of each warps_k warps that share the channels
among them. Words are 4 bytes: one float32 or two float16 in neighbouring channels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from dwlab.kernels.fused.row_loads import load_filters, load_pixels
from dwlab.kernels.parts import swizzle
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.tiling.config import Resources, TileConfig

WARPS = 16  # most of a block: their registers, 128 a thread, are all that a multiprocessor has
REGISTERS = 65536  # of a multiprocessor, and most of a block, of every compute capability
LEAST = 96  # registers of a thread, about: the depthwise layer takes as many


@dataclass(frozen=True)
class Layout:
    """What lies where in a block's shared memory, in words, for a tile. chunks: of channels. rows_in: of x, at most."""

    chunks: int
    rows_in: int
    x_pitch: int
    w_pitch: int
    pitch: int
    stage_words: int
    inner_words: int
    taps_at: int
    bias_at: int
    bias2_at: int
    words: int


def why_not(pair: Any, config: TileConfig) -> str:
    """What keeps a tile from a pair of layers, or ""; not whether a GPU has room for it."""
    rows_in = layout_of(pair, config).rows_in
    if config.warp_m % 16 or config.warp_n % 16:
        return f"{config.warp_m} pixels or {config.warp_n} filters of a warp are no multiple of 16"
    if config.block_m < rows_in * pair.second.W:
        need = rows_in * pair.second.W
        return f"{rows_in} rows of x, {need} pixels, are more than {config.warp_m} x {config.warps_m}"
    if config.block_k % (8 * config.warps_k):
        return f"{config.block_k} words of channels a stage are no multiple of 8 x {config.warps_k} slices"
    if config.warps_k > 1 and pair.dtype != "float32":
        return f"{config.warps_k} slices add up float32, not {pair.dtype}"
    if config.threads > WARPS * 32:
        return f"{config.threads} threads are more than {WARPS * 32}"
    return ""


def per_word(dtype: str) -> int:
    """Elements of a word."""
    return 1 if dtype == "float32" else 2


def register_limit(threads: int) -> int:
    """Registers of a thread, more than which a block of so many threads does not start with."""
    return min(255, REGISTERS // (-(-threads // 128) * 128) // 8 * 8)


def registers(config: TileConfig) -> int:
    """That a thread takes if it reads operands ahead, about: its sums, two steps' operands, and addresses."""
    return config.warp_m * config.warp_n // 32 + (config.warp_m + config.warp_n) // 2 + 36


@functools.lru_cache(1 << 12)
def resources(pair: Any, config: TileConfig) -> Resources:
    """What a block takes."""
    taken = min(register_limit(config.threads), max(LEAST, registers(config)))
    return Resources(config.threads, taken, 4 * layout_of(pair, config).words)


def config_of(
    pair: Any, rows: int, warp: tuple[int, int], warps: tuple[int, int, int], depth: int, run: int, stages: int = 2
) -> TileConfig:
    """The tile with these rows, pixels and filters of a warp, warps_m, warps_n and warps_k, words of channels a stage.

    run: outputs of a column that a thread computes; stages: that shared memory holds at a time, if there are as many.
    """
    chunks = -(-pair.first.C // (depth * per_word(pair.dtype)))
    return TileConfig(
        warp[0] * warps[0], warp[1] * warps[1], depth, *warps, pipeline_stages=min(stages, chunks), block_h=rows,
        thread_m=run,
    )  # fmt: skip


@functools.lru_cache(1 << 12)
def layout_of(pair: Any, config: TileConfig) -> Layout:
    """Where things lie for a tile."""
    each, dw, depth, slices = per_word(pair.dtype), pair.second, config.block_k, config.warps_k
    rows_in = min(dw.H, (config.block_h - 1) * dw.stride + dw.K)
    P, F = config.block_m, config.block_n
    # Slices begin within a row, where its pieces may not have changed places (swizzle.place).
    w_pitch = depth if slices == 1 else swizzle.padded(depth)
    stage = P * w_pitch + F * w_pitch
    pitch = F // each + 4  # of the pixels between the layers: it spreads a warp's stores over the banks
    inner = P * pitch
    taps_at = max(config.pipeline_stages * stage, slices * inner if slices > 1 else inner)
    bias_at = taps_at + F // each * dw.K**2
    bias2_at = bias_at + F // each
    chunks = -(-pair.first.C // (depth * each))
    return Layout(
        chunks, rows_in, w_pitch, w_pitch, pitch, stage, inner, taps_at, bias_at, bias2_at, bias2_at + F // each
    )


def product(pair: Any, config: TileConfig) -> Any:
    """The warps' matrix product: rows are pixels, columns filters."""
    depth, layout = config.block_k * per_word(pair.dtype) // config.warps_k, layout_of(pair, config)
    sizes = (config.warp_m, config.warp_n, depth, layout.x_pitch, layout.w_pitch)
    return mma_ss(pair.dtype, *sizes, prefetch=registers(config) <= register_limit(config.threads))


def loads(pair: Any, config: TileConfig) -> tuple[Any, Any]:
    """(load_x(shared, to, x, first, pixels, c0), load_w(shared, to, w, f0, c0)): one stage's x, and its filters.

    Each starts copies to `to`, a word of shared. x, w: words in global memory. first: word of x of the run's first
    pixel in channel 0; pixels: of the run; f0: the block's first filter; c0: the stage's first channel, in words. What
    is outside of all these becomes 0.
    """
    C, F, layout = pair.first.C // per_word(pair.dtype), pair.first.F, layout_of(pair, config)
    depth, T = config.block_k, config.threads
    load_x = load_pixels(aligned(pair), C, config.block_m, depth, layout.x_pitch, T)
    load_w = load_filters(C, F, config.block_n, depth, layout.w_pitch, T)
    return load_x, load_w


def aligned(pair: Any) -> bool:
    """Whether a pixel of x has whole vectors of 16 bytes."""
    return pair.first.C % (4 * per_word(pair.dtype)) == 0
