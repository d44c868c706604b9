"""How the blocks of a fused kernel of two pointwise layers share the work out, and which tile a shape gets.

See pwpw_2_tensor.py for what a block does. Costs as in pwdw_plan.py. block_n, block_k: of the second layer, in `groups`
groups that a block computes; inner_n, inner_k: of the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numba import float32, uint32, uint64

from dwlab.gpu.target import cuda
from dwlab.kernels.fused.pwdw_plan import ARRIVAL, MMA_CYCLES, SM_BYTES
from dwlab.kernels.fused.pwdw_tiles import WARPS, bring_filters, bring_pixels, register_limit, spread
from dwlab.kernels.parts import epilogue, ptx, tiles
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.tiling.config import Resources, TileConfig
from dwlab.kernels.tiling.cost import Cost, share
from dwlab.kernels.tiling.gpu import Gpu


@dataclass(frozen=True)
class Layout:
    """What lies where in a block's shared memory, in words, for a tile.

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
    """What keeps any pair of layers from a tile, or ""; whether a GPU has room for it is not asked."""
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
    each = spread(pair.dtype)
    return -(-pair.first.C // (depth1 * each)), -(-pair.first.F // (depth2 * each))


@functools.lru_cache(1 << 12)
def layout_of(pair: Any, config: TileConfig) -> Layout:
    """Where things lie for a tile."""
    each, F, depth1, depth2 = spread(pair.dtype), pair.first.F, config.inner_k, config.block_k
    P, group1, group2 = config.block_m, config.inner_n, config.block_n
    chunks1, chunks2 = _chunks(pair, depth1, depth2)
    passes = -(-max(F, chunks2 * depth2 * each) // group1)  # channels that fill the last stage are 0, not nothing
    pitch = tiles.pitch(passes * group1 // each, "k", pair.dtype)
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
    """What a block takes: registers as many as it starts with."""
    return Resources(config.threads, register_limit(config.threads), 4 * layout_of(pair, config).words)


def aligned(pair: Any) -> bool:
    """Whether pixels of x are whole pieces of 16 bytes."""
    return pair.first.C // spread(pair.dtype) % 4 == 0


@functools.cache
def products_of(pair: Any, config: TileConfig) -> tuple[Any, Any]:
    """Both layers' products of a warp: rows are pixels, columns filters."""
    each, layout, found = spread(pair.dtype), layout_of(pair, config), []
    for filters, depth, w_pitch, pitch in (
        (config.inner_n // config.warps_n, config.inner_k, layout.w1_pitch, layout.x_pitch),
        (config.warp_n, config.block_k, layout.w2_pitch, layout.pitch),
    ):
        found.append(tiles.tensor(pair.dtype, config.warp_m, filters, depth * each, pitch, w_pitch))
    return found[0], found[1]


@functools.cache
def bring(pair: Any, config: TileConfig) -> tuple[Any, Any, Any]:
    """The device functions that bring a stage of x, of the first and of the second layer's filters (pwdw_tiles.py)."""
    each, T, layout = spread(pair.dtype), config.threads, layout_of(pair, config)
    C, F = pair.first.C // each, pair.first.F
    return (
        bring_pixels(aligned(pair), C, config.block_m, config.inner_k, layout.x_pitch, T),
        bring_filters(C, F, config.inner_n, config.inner_k, layout.w1_pitch, T),
        bring_filters(F // each, pair.second.F, config.block_n, config.block_k, layout.w2_pitch, T, fours(pair)),
    )


@functools.cache
def lay_down(pair: Any, config: TileConfig) -> Any:
    """put(shared, b, r, m, n, v0, v1) for the first layer's sums: bias, activation, and to where the second reads."""
    layout, bias = layout_of(pair, config), pair.first.bias
    PITCH, INNER_AT, BIAS_AT = layout.pitch, layout.inner_at, layout.bias_at
    act = epilogue.activate(pair.first.activation)

    if pair.dtype != "float32":

        @cuda.jit(device=True, forceinline=True)
        def put(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0, u1 = ptx.halves(shared[uint32(uint32(BIAS_AT) + n // uint32(2))])
            at = uint32(uint32(INNER_AT) + m * uint32(PITCH) + n // uint32(2))
            shared[at] = ptx.join_halves(act(v0 + u0), act(v1 + u1))

    else:

        @cuda.jit(device=True, forceinline=True)
        def put(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0 = shared[uint32(uint32(BIAS_AT) + n)]
                u1 = shared[uint32(uint32(BIAS_AT) + n + uint32(1))]
            at = uint32(uint32(INNER_AT) + m * uint32(PITCH) + n)
            shared[at] = act(v0 + u0)
            shared[uint32(at + uint32(1))] = act(v1 + u1)

    return put


def fours(pair: Any) -> bool:
    """Whether each lane has sums of four neighbouring filters of the second layer (pwdw_tiles.row_of_fours).

    Then four lanes' stores fill whole sectors: 64 bytes of a pixel in float32, 32 in 16 bits.
    """
    return pair.second.F % 4 == 0


@functools.cache
def store(pair: Any, config: TileConfig) -> Any:
    """store(acc, lane, y, b, r, m0, n0): a warp's sums of the second layer, finished, to y; their bias is read once.

    m0, n0: of the warp's tile, pixel of all images and filter.
    """
    second = products_of(pair, config)[1]
    down, across = second.M // 16, second.N // 8
    if fours(pair):
        parts = [_store_fours(pair, j, down, across) for j in range(across // 2)]
    else:
        parts = [_store_column(pair, j, down, across) for j in range(across)]
    return in_turn(parts, arguments=7)


def _store_fours(pair: Any, j: int, down: int, across: int) -> Any:
    """16 columns: of each lane's rows four neighbouring sums."""
    each = spread(pair.dtype)
    FILTERS, G = pair.second.F, pair.second.F // each  # and in words, as all below
    act, bias, residual = epilogue.activate(pair.second.activation), pair.second.bias, pair.second.residual

    if each == 2:

        @cuda.jit(device=True, forceinline=True)
        def read(a, at):
            p, q = ptx.load2(a, at)
            v0, v1 = ptx.halves(p)
            v2, v3 = ptx.halves(q)
            return v0, v1, v2, v3

        @cuda.jit(device=True, forceinline=True)
        def write(y, at, v0, v1, v2, v3):
            ptx.store2(y, at, ptx.join_halves(v0, v1), ptx.join_halves(v2, v3))

    else:
        read, write = ptx.load4, ptx.store4

    @cuda.jit(device=True, forceinline=True)
    def part(acc, lane, y, b, r, m0, n0):
        n = uint32(n0 + uint32(16 * j) + uint32(4) * (lane % uint32(4)))
        b0 = b1 = b2 = b3 = float32(0)
        if n < uint32(FILTERS):
            if bias:
                b0, b1, b2, b3 = read(b, uint32(n // uint32(each)))
            m = uint32(m0 + lane // uint32(4))
            rows, first = uint32(uint32(y.size) // uint32(G)), uint64(uint32(m * uint32(G) + n // uint32(each)))
            for turn in range(2 * down):
                c = 4 * (across * (turn // 2) + 2 * j) + 2 * (turn % 2)
                if m + uint32(8 * turn) < rows:
                    at = uint64(first + uint64(8 * turn * G))  # the same address and a literal: one register for all
                    v0, v1, v2, v3 = act(acc[c] + b0), act(acc[c + 1] + b1), act(acc[c + 4] + b2), act(acc[c + 5] + b3)
                    if residual:
                        r0, r1, r2, r3 = read(r, at)
                        v0, v1, v2, v3 = v0 + r0, v1 + r1, v2 + r2, v3 + r3
                    write(y, at, v0, v1, v2, v3)

    return part


def _store_column(pair: Any, j: int, down: int, across: int) -> Any:
    """8 columns whose sums are stored one by one: filters of float32 that are no multiple of 4."""
    G, bias, finish = pair.second.F, pair.second.bias, epilogue.finish(replace(pair.second, bias=False))

    @cuda.jit(device=True, forceinline=True)
    def one(y, r, m, n, value):
        at = uint32(m * uint32(G) + n)
        if n < uint32(G) and m * uint32(G) < uint32(y.size):
            y[at] = finish(value, r, r, n, at)

    @cuda.jit(device=True, forceinline=True)
    def part(acc, lane, y, b, r, m0, n0):
        n = uint32(n0 + uint32(8 * j) + uint32(2) * (lane % uint32(4)))
        b0 = b[n] if bias and n < uint32(G) else float32(0)
        b1 = b[uint32(n + uint32(1))] if bias and n + uint32(1) < uint32(G) else float32(0)
        for turn in range(2 * down):
            c = 4 * (across * (turn // 2) + j) + 2 * (turn % 2)
            m = uint32(m0 + uint32(8 * turn) + lane // uint32(4))
            one(y, r, m, n, acc[c] + b0)
            one(y, r, m, uint32(n + uint32(1)), acc[c + 1] + b1)

    return part


def configs(pair: Any, images: int, gpu: Gpu) -> Iterator[TileConfig]:
    """Those worth a look."""
    each, G, F = spread(pair.dtype), pair.second.F, pair.first.F

    def depths(channels: int) -> list[int]:
        words = math.ceil(channels / (8 * each)) * 8
        return sorted({min(words, depth) for depth in (16, 24, 32, 40, 48, 64)})

    for pixels in (16, 32):
        for warps_p in (1, 2, 4, 8):
            for warps_f in (1, 2, 4, 8):
                if not 2 <= warps_p * warps_f <= 16:
                    continue
                for filters1 in (16, 32, 48, 64):
                    if pixels * filters1 > 2048 or filters1 * (warps_f - 1) >= F:
                        continue
                    for filters2 in (16, 32, 48, 64):
                        if pixels * filters2 > 2048 or filters2 * (warps_f - 1) >= G:
                            continue
                        groups = -(-G // (filters2 * warps_f))
                        for span in {s for s in (1, 2, 3, 4, 6, 8, 12, groups) if s <= groups}:
                            for depth1 in depths(pair.first.C)[-2:]:
                                for depth2 in depths(F)[-2:]:
                                    sizes = (pixels, filters1, filters2), (warps_p, warps_f), (depth1, depth2)
                                    config = config_of(pair, *sizes, span)
                                    if not why_not(config):
                                        yield config


def blocks(pair: Any, images: int, config: TileConfig) -> int:
    """Of a launch."""
    pixels = -(-pair.first.H * pair.first.W * images // config.block_m)
    return -(-pair.second.F // (config.groups * config.block_n)) * pixels


def cost(pair: Any, images: int, config: TileConfig, gpu: Gpu) -> Cost:
    """In cycles, as if a multiprocessor had one block at a time: so the constants were fitted."""
    wide, warps, pixels, layout = pair.dtype == "float32", config.warps, config.warp_m, layout_of(pair, config)
    serial = tensor = shared = 0.0
    for filters, steps in (
        (config.inner_n // config.warps_n, layout.passes * layout.chunks1 * config.inner_k // 8),
        (config.warp_n, config.groups * layout.chunks2 * config.block_k // 8),
    ):
        mma = pixels // 16 * (filters // 8) * (3 if wide else 1)
        operands = (pixels + filters) // 16
        serial += steps * (mma + operands * (16 if wide else 1))
        tensor += steps * mma
        shared += steps * operands * 4
    x, w1, w2 = layout.x_words, config.inner_n * layout.w1_pitch, config.block_n * layout.w2_pitch
    stages = layout.passes * layout.chunks1, config.groups * layout.chunks2
    brought = stages[0] * (x + w1) + stages[1] * w2
    out = config.block_m * config.groups * config.block_n
    serial += brought / 4 / config.threads * 14
    serial += (layout.passes * config.inner_n * config.block_m * 5 + out * 8) / config.threads
    shared = (shared + brought / 128) * warps
    busy = max(serial * warps / 4 * 1.1, shared, tensor * warps * MMA_CYCLES * 1.1)
    busy = max(busy, (4 * out / spread(pair.dtype) + 4 * brought / 3) / SM_BYTES)
    wait = ARRIVAL * (1 + 0.4 * (sum(stages) - 1)) + 2.5 * serial + tensor * 4 + 300
    here = share(blocks(pair, images, config), gpu)
    return Cost({"waves": 0.2 * here * wait}, {"throughput": here * busy + wait / 2, "latency": here * wait})
