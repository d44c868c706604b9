"""Which tile a fused pointwise and depthwise kernel has: tried out on paper, for a shape, a batch and a GPU.

The estimate counts, for a block, what each part of a multiprocessor has to do (tensor cores, instructions, shared
memory, bytes), and what a block waits for if it is alone there. Many blocks: the busiest part decides, few: the wait.
Bytes come from L2, whether another block has had them or not, and only some of their way passes behind the products.
Warps are divided among four quarters of a multiprocessor, each with its own tensor core: 7 warps take as long as 8.
Its constants are of a GPU of compute capability 9.0, fitted to the times of tiles for maps of 14 x 14, and need not be
exact: they order tiles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from dwlab.kernels.fused.pwdw_tiles import (
    config_of,
    layout_of,
    per_word,
    register_limit,
    resources,
    why_not,
)
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.tiling.cost import Cost, share
from dwlab.kernels.tiling.gpu import Gpu

MMA_CYCLES = 1.75  # of a multiprocessor for one mma of 16 x 8 x 8 (tf32) or 16 x 8 x 16 (float16)
SM_BYTES = 18.0  # that one multiprocessor moves in a cycle, from L2 or to memory
ARRIVAL = 900  # cycles from the request of a stage's words to having them
TOGETHER = 0.6  # of the shorter one of a block's work and its words' way, what the longer one does not hide
ALONE = 1.3  # times as long: three products of tf32, each of which waits for the one before, of one row of tiles
SHAPES = ((32, 32), (16, 32), (32, 16), (16, 16), (64, 32), (32, 64), (64, 16), (48, 32), (32, 96))
STAGES = (2, 3)
TIMED = {("float32", 32, 96, 7, 1), ("float16", 32, 96, 7, 2), ("float16", 32, 64, 7, 2)}
"""Pixels and filters of a warp, and warps, of tiles that were the fastest of those tried for a map of 14 x 14."""
DOUBT = 1.1  # times as long as estimated other tiles must be expected to take
SPARE, ONCE = 80, 64  # registers that a thread needs besides its sums; if all channels come in one stage
TIGHT = {("float16", 32, 96, 32), ("float16", 32, 64, 64)}
"""Pixels and filters of a warp and words of a stage where less is known to do: compiled, they spill nothing."""


def configs(pair: Any, images: int, gpu: Gpu) -> Iterator[TileConfig]:
    """Those worth a look."""
    dw, each = pair.second, per_word(pair.dtype)
    words = -(-pair.first.C // each)
    depths = sorted({min(-(-words // 8) * 8, depth) for depth in (16, 24, 32, 40, 48, 64)})
    for rows in sorted({r for r in (1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 28) if r < dw.P} | {dw.P}):
        pixels = min(dw.H, (rows - 1) * dw.stride + dw.K) * dw.W
        for warp in SHAPES:
            warps_p = -(-pixels // warp[0])
            for warps_f in (1, 2, 4):
                if warp[1] * warps_f >= 2 * dw.C + 16 or warps_p * warps_f > 16:
                    continue
                for slices in (1, 2, 4) if pair.dtype == "float32" else (1,):
                    if warps_p * warps_f * slices > 16:
                        continue
                    for depth in depths:
                        if depth % (8 * slices) == 0:
                            for run, stages in itertools.product({min(run, rows) for run in (1, 2, 4, 7)}, STAGES):
                                config = config_of(pair, rows, warp, (warps_p, warps_f, slices), depth, run, stages)
                                if config.pipeline_stages == stages or stages == 2:
                                    if not why_not(pair, config) and room(pair, config):
                                        yield config


def room(pair: Any, config: TileConfig) -> bool:
    """Whether a warp's sums leave enough registers, so that none is spilled."""
    if (pair.dtype, config.warp_m, config.warp_n, config.block_k) in TIGHT:
        return True
    need = config.warp_m * config.warp_n // 32 + (SPARE if layout_of(pair, config).chunks > 1 else ONCE)
    return need <= register_limit(config.threads)


def blocks(pair: Any, images: int, config: TileConfig) -> int:
    """Of a launch."""
    return -(-pair.second.C // config.block_n) * -(-pair.second.P // config.block_h) * images


def cost(pair: Any, images: int, config: TileConfig, gpu: Gpu) -> Cost:
    """In cycles; of tiles that were not timed, DOUBT times as long."""
    dw, wide, layout = pair.second, pair.dtype == "float32", layout_of(pair, config)
    pixels, filters, slices, warps = config.warp_m, config.warp_n, config.warps_k, config.warps
    resident = gpu.blocks_per_sm(resources(pair, config))
    quarter = math.ceil(resident * warps / 4) / resident  # a block's warps of the quarter that has most
    steps = layout.chunks * config.block_k // 8 // slices  # of a warp
    mma = pixels // 16 * (filters // 8) * (3 if wide else 1)
    operands = (pixels + filters) // 16  # reads of 4 words a lane, or 4 reads of one
    step = mma * (7 / 3 if wide else 1) + operands * (12 if wide else 1)  # instructions of a warp
    lines = (config.thread_m - 1) * dw.stride + dw.K
    items = -(-config.block_h // config.thread_m) * dw.Q * config.block_n / per_word(pair.dtype)
    turns = -(-items // config.threads)
    item = 30 + dw.K**2 + 3 * lines * dw.K + config.thread_m * (dw.K**2 + 8) * per_word(pair.dtype)
    pieces = layout.chunks * layout.stage_words / 4 / config.threads
    sums = pixels * filters / 32
    serial = steps * step + pieces * 14 + sums * 6 * slices**0.5 + turns * item  # instructions of a warp, in all
    shared = (steps * operands * 4 + pieces * 4 + sums * 2) * warps + turns * warps * lines * dw.K
    tensor = steps * mma * 4 * quarter * MMA_CYCLES
    bytes_out = items * 4 * config.block_h
    bytes_in = layout.chunks * layout.stage_words * 4  # from L2
    chain = ALONE if wide and pixels == 16 else 1
    work, moved = max(serial * quarter * 1.1 * chain, shared, tensor * 1.1 * chain), (bytes_out + bytes_in) / SM_BYTES
    busy = max(work, moved) + TOGETHER * min(work, moved)
    wait = ARRIVAL * (1 + 0.8 / config.pipeline_stages * (layout.chunks - 1)) + 2.5 * serial + steps * mma * 4 + 400
    here = share(blocks(pair, images, config), gpu)
    times = 1 if (pair.dtype, pixels, filters, config.warps_m, config.warps_n) in TIMED else DOUBT
    waiting = math.ceil(here / resident) * wait
    return Cost({}, {"throughput": times * (here * busy + wait / 2), "latency": times * waiting})
