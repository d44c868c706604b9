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
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dwlab.kernels.fused.row_loads import load_filters, load_pixels
from dwlab.kernels.parts import constants, swizzle
from dwlab.kernels.parts.mma_ss import mma_ss
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import FLOAT32, Rates, Work
from dwlab.kernels.tiling.gpu import Gpu

WARPS = 16  # most of a block: their registers, 128 a thread, are all that a multiprocessor has
REGISTERS = 65536  # of a multiprocessor, and most of a block, of every compute capability
LEAST = 96  # registers of a thread, about: the depthwise layer takes as many


@dataclass(frozen=True)
class Layout:
    """Places in a block's shared memory, in words, for a tile. chunks: of channels. rows_in: of x, at most."""

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
    """The reason why a tile is not for a pair of layers, or ""; not whether a GPU has room for it."""
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
    """Registers of a thread that reads operands ahead, about: its sums, two steps' operands, and addresses."""
    return config.warp_m * config.warp_n // 32 + (config.warp_m + config.warp_n) // 2 + 36


@functools.lru_cache(1 << 12)
def resources(pair: Any, config: TileConfig) -> Resources:
    """Threads, registers and shared memory of a block."""
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
    """The layout of a tile."""
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


def loads(pair: Any, config: TileConfig) -> Any:
    """x(shared, to, x, first, pixels, c0) and w(shared, to, w, f0, c0): one stage's x, and its filters.

    Each starts copies to `to`, a word of shared. x, w: words in global memory. first: word of x of the run's first
    pixel in channel 0; pixels: of the run; f0: the block's first filter; c0: the stage's first channel, in words. What
    is outside of all these becomes 0.
    """
    C, F, layout = pair.first.C // per_word(pair.dtype), pair.first.F, layout_of(pair, config)
    depth, T = config.block_k, config.threads
    load_x = load_pixels(aligned(pair), C, config.block_m, depth, layout.x_pitch, T)
    load_w = load_filters(C, F, config.block_n, depth, layout.w_pitch, T)
    return constants.of(x=load_x, w=load_w)


def aligned(pair: Any) -> bool:
    """Whether a pixel of x has whole vectors of 16 bytes."""
    return pair.first.C % (4 * per_word(pair.dtype)) == 0


SHAPES = ((32, 32), (16, 32), (32, 16), (16, 16), (32, 64), (32, 96), (64, 32))
ROWS, DEPTHS, RUNS, STAGES = (1, 2, 3, 4, 7, 14), (16, 32, 64), (1, 4, 7), (2, 3)
SPARE, ONCE = 80, 64  # registers that a thread needs besides its sums; if all channels come in one stage
TIGHT = {("float16", 32, 96, 32), ("float16", 32, 64, 64)}
"""Pixels and filters of a warp and words of a stage where less is known to do: compiled, they spill nothing."""
STRIP = 8  # operations of tensor cores in whose time one instruction of the depthwise layer is done


def configs(pair: Any, images: int, gpu: Gpu) -> Iterator[TileConfig]:
    """Those worth a look."""
    dw, words = pair.second, -(-pair.first.C // per_word(pair.dtype))
    slices = (1, 2, 4) if pair.dtype == "float32" else (1,)
    depths = sorted({min(-(-words // 8) * 8, depth) for depth in DEPTHS})
    every = sorted({r for r in ROWS if r < dw.P} | {dw.P}), SHAPES, (1, 2, 4), slices, depths
    for rows, warp, warps_f, shared, depth in itertools.product(*every):
        warps_p = -(-min(dw.H, (rows - 1) * dw.stride + dw.K) * dw.W // warp[0])
        if warps_p * warps_f * shared <= WARPS and warp[1] * warps_f < 2 * dw.C + 16 and depth % (8 * shared) == 0:
            for run, stages in itertools.product(sorted({min(run, rows) for run in RUNS}), STAGES):
                config = config_of(pair, rows, warp, (warps_p, warps_f, shared), depth, run, stages)
                if stages in (2, config.pipeline_stages) and not why_not(pair, config) and room(pair, config):
                    yield config


def room(pair: Any, config: TileConfig) -> bool:
    """Whether a warp's sums leave enough registers, so that none is spilled."""
    if (pair.dtype, config.warp_m, config.warp_n, config.block_k) in TIGHT:
        return True
    need = config.warp_m * config.warp_n // 32 + (SPARE if layout_of(pair, config).chunks > 1 else ONCE)
    return need <= register_limit(config.threads)


def work(pair: Any, images: int, config: TileConfig) -> Work:
    """Warps are divided among four quarters of a multiprocessor: 7 take as long as 8."""
    dw, layout, each, wide = pair.second, layout_of(pair, config), per_word(pair.dtype), pair.dtype == "float32"
    items = -(-config.block_h // config.thread_m) * dw.Q * config.block_n / each
    rounds, lines = -(-items // config.threads), (config.thread_m - 1) * dw.stride + dw.K
    item = 30 + dw.K**2 + 3 * lines * dw.K + config.thread_m * (dw.K**2 + 8) * each  # instructions
    products = -(-config.warps // 4) * 8 * config.warp_m * config.warp_n * layout.chunks * config.block_k * each
    read, edges = 4 * layout.chunks * layout.stage_words, config.block_m + config.block_n
    again = config.warps * (config.warp_m + config.warp_n) / edges / config.warps_k
    return Work(
        -(-dw.C // config.block_n) * -(-dw.P // config.block_h) * images,
        products * (FLOAT32 if wide else 1) / config.warps_k + STRIP * rounds * config.threads * item,
        read,
        shared=read * (1 + again) + rounds * config.threads * lines * dw.K * 4,
        written=4 * items * config.thread_m + config.block_m * config.block_n * 2 * config.warps_k / each,
        chunks=1.5 * layout.chunks / (config.pipeline_stages - 0.5) + rounds * item / 400,
    )  # fmt: skip


TILES = Tiles(
    configs, resources, work, Rates(products=850, read=11.5, shared=97, written=197, start=1690, chunk=855),
    lambda pair, config: why_not(pair, config),
)  # fmt: skip
