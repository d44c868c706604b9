"""How the blocks of a fused pointwise and depthwise kernel share the work out, and what one thread of them does.

A block computes block_h rows of outputs, over the map's whole width, of block_n filters of one image. The rows of x
that they come from lie next to each other in memory, as one run of block_m pixels at most. The block multiplies this
run with its filters, block_k words of channels at a time: these are on their way to one of pipeline_stages places in
shared memory (asynchronous copies of 16 bytes) while the products of those before are summed up in the warps' registers
(parts/tiles.py). Then the sums, with bias and activation, take the place of x in shared memory, and each thread
computes outputs of the depthwise layer there, thread_m of a column.

A warp has warp_m x warp_n sums, a block warps_m x warps_n such tiles, and of each warps_k warps that share the channels
among them. Words are 4 bytes: one float32 or two float16 in neighbouring channels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import epilogue, ptx
from dwlab.kernels.parts import tiles as products
from dwlab.kernels.parts.unroll import in_turn
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
    """What keeps a tile from a pair of layers, or ""; whether a GPU has room for it is not asked."""
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


def spread(dtype: str) -> int:
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
    chunks = -(-pair.first.C // (depth * spread(pair.dtype)))
    return TileConfig(
        warp[0] * warps[0], warp[1] * warps[1], depth, *warps, pipeline_stages=min(stages, chunks), block_h=rows,
        thread_m=run,
    )  # fmt: skip


@functools.lru_cache(1 << 12)
def layout_of(pair: Any, config: TileConfig) -> Layout:
    """Where things lie for a tile."""
    each, dw, depth, slices = spread(pair.dtype), pair.second, config.block_k, config.warps_k
    rows_in = min(dw.H, (config.block_h - 1) * dw.stride + dw.K)
    P, F = config.block_m, config.block_n
    # Slices begin within a row, where its pieces may not have changed places (products.place).
    w_pitch = depth if slices == 1 else products.pitch(depth, "k", pair.dtype)
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
    depth, layout = config.block_k * spread(pair.dtype) // config.warps_k, layout_of(pair, config)
    sizes = (config.warp_m, config.warp_n, depth, layout.x_pitch, layout.w_pitch)
    return products.tensor(pair.dtype, *sizes, ahead=registers(config) <= register_limit(config.threads))


def bring(pair: Any, config: TileConfig) -> tuple[Any, Any]:
    """(bring_x(shared, to, x, first, pixels, c0), bring_w(shared, to, w, f0, c0)): one stage's x, and its filters.

    Each on its way to word `to` of shared. x, w: words in global memory. first: word of x of the run's first pixel in
    channel 0; pixels: of the run; f0: the block's first filter; c0: the stage's first channel, in words. What is
    outside of all these becomes 0.
    """
    C, F, layout = pair.first.C // spread(pair.dtype), pair.first.F, layout_of(pair, config)
    depth, T = config.block_k, config.threads
    bring_x = bring_pixels(aligned(pair), C, config.block_m, depth, layout.x_pitch, T)
    bring_w = bring_filters(C, F, config.block_n, depth, layout.w_pitch, T)
    return bring_x, bring_w


@cuda.jit(device=True, forceinline=True)
def zeros(shared, at):
    """shared[at : at + 4] = 0."""
    ptx.store4_shared(shared, at, float32(0), float32(0), float32(0), float32(0))


@functools.cache
def bring_filters(C: int, F: int, filters: int, depth: int, pitch: int, threads: int, fours: bool = False) -> Any:
    """bring(shared, to, w, f0, c0): `depth` words from word c0 on of the filters from f0 on, to rows of shared.

    w: (F, C) words. Asynchronously where C is whole pieces of 16 bytes. fours: to the rows that `row_of_fours` says.
    """
    place = _placed_by_fours(pitch) if fours else products.place(pitch)
    if C % 4:
        ITEMS = filters * depth
        EACH = -(-ITEMS // threads)

        @cuda.jit(device=True, forceinline=True)
        def bring(shared, to, w, f0, c0):
            for turn in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(turn * threads))
                if i < ITEMS:
                    f = uint32(i // uint32(depth))
                    c = uint32(i % uint32(depth))
                    value = float32(0)
                    if f0 + f < F and c0 + c < C:
                        value = w[uint32((f0 + f) * uint32(C) + c0 + c)]
                    shared[uint32(to + place(f, c))] = value

    else:
        ITEMS = filters * depth // 4
        EACH = -(-ITEMS // threads)

        @cuda.jit(device=True, forceinline=True)
        def bring(shared, to, w, f0, c0):
            for turn in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(turn * threads))
                if i < ITEMS:
                    f = uint32(i // uint32(depth // 4))
                    c = uint32(uint32(4) * (i % uint32(depth // 4)))
                    at = uint32(to + place(f, c))
                    if f0 + f < F and c0 + c < C:
                        ptx.copy4_async(shared, at, w, uint32((f0 + f) * uint32(C) + c0 + c))
                    else:
                        zeros(shared, at)

    return bring


@cuda.jit(device=True, forceinline=True)
def row_of_fours(f):
    """The row of a product's B where filter f comes, so that each lane's sums are of four neighbouring filters.

    Of 16 columns lane t of four gets sums 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 (tiles.tensor): these rows are given to
    filters 4 t to 4 t + 3.
    """
    return uint32(f // uint32(16) * uint32(16) + f // uint32(2) % uint32(2) * uint32(8)
                  + f // uint32(4) % uint32(4) * uint32(2) + f % uint32(2))  # fmt: skip


@functools.cache
def _placed_by_fours(pitch: int) -> Any:
    place = products.place(pitch)

    @cuda.jit(device=True, forceinline=True)
    def placed(f, word):
        return place(row_of_fours(f), word)

    return placed


@functools.cache
def bring_pixels(aligned: bool, C: int, size: int, depth: int, pitch: int, threads: int) -> Any:
    """bring(shared, to, x, first, pixels, c0): the same of x, of `size` pixels of a run that has `pixels`.

    aligned: pixels are whole pieces of 16 bytes; otherwise they do not come asynchronously.
    """
    if aligned:
        ITEMS = size * depth // 4
        EACH = -(-ITEMS // threads)
        place = products.place(pitch)

        @cuda.jit(device=True, forceinline=True)
        def bring(shared, to, x, first, pixels, c0):
            for turn in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(turn * threads))
                if i < ITEMS:
                    m = uint32(i // uint32(depth // 4))
                    c = uint32(uint32(4) * (i % uint32(depth // 4)))
                    at = uint32(to + place(m, c))
                    if m < pixels and c0 + c < C:
                        ptx.copy4_async(shared, at, x, uint32(first + m * uint32(C) + c0 + c))
                    else:
                        zeros(shared, at)

    else:
        place = products.place(pitch)
        ITEMS = size * depth
        EACH = -(-ITEMS // threads)

        @cuda.jit(device=True, forceinline=True)
        def bring(shared, to, x, first, pixels, c0):
            for turn in range(EACH):
                i = uint32(uint32(cuda.threadIdx.x) + uint32(turn * threads))
                if i < ITEMS:
                    c = uint32(i % uint32(depth))
                    m = uint32(i // uint32(depth))
                    value = float32(0)
                    if m < pixels and c0 + c < C:
                        value = x[uint32(first + (c0 + c) + m * uint32(C))]
                    shared[uint32(to + place(m, c))] = value

    return bring


def aligned(pair: Any) -> bool:
    """Whether a pixel of x has whole pieces of 16 bytes."""
    return pair.first.C % (4 * spread(pair.dtype)) == 0


@functools.cache
def put(pair: Any, config: TileConfig) -> Any:
    """each(acc, lane, shared, shared, shared, m0, n0): a warp's sums to shared memory, where the depthwise layer reads.

    m0, n0: of the warp's tile, as rows and columns of the product; with slices, m0 lies further on by the slice times
    the rows of the block. One slice: with bias and activation.
    """
    layout = layout_of(pair, config)
    PITCH, BIAS_AT = layout.pitch, layout.bias_at
    act, alone, bias = epilogue.activate(pair.first.activation), config.warps_k == 1, pair.first.bias

    if pair.dtype != "float32":

        @cuda.jit(device=True, forceinline=True)
        def store(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0, u1 = ptx.halves(shared[uint32(uint32(BIAS_AT) + n // uint32(2))])
            shared[uint32(m * uint32(PITCH) + n // uint32(2))] = ptx.join_halves(act(v0 + u0), act(v1 + u1))

    elif not alone:

        @cuda.jit(device=True, forceinline=True)
        def store(shared, b, r, m, n, v0, v1):
            at = uint32(m * uint32(PITCH) + n)  # m counts the rows of all slices
            shared[at] = v0
            shared[uint32(at + uint32(1))] = v1

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0 = shared[uint32(uint32(BIAS_AT) + n)]
                u1 = shared[uint32(uint32(BIAS_AT) + n + uint32(1))]
            at = uint32(m * uint32(PITCH) + n)
            shared[at] = act(v0 + u0)
            shared[uint32(at + uint32(1))] = act(v1 + u1)

    return products.each(product(pair, config), store)


@functools.cache
def column(pair: Any, config: TileConfig) -> Any:
    """column(sums, w, shared, at, h, v, rows): thread_m outputs of a column; two channels' in 16 bits.

    sums: (run,) or (run, 2) float32, flat; w: the taps, (K*K,) or (K*K, 2). at: word of the first tap's pixel, h and v
    its row in the tile and its column (beyond the left or upper edge they, too, have wrapped); rows: of the tile.
    """
    dw = pair.second
    K, S, W, RUN = dw.K, dw.stride, dw.W, config.thread_m
    STEP = layout_of(pair, config).pitch  # from pixel to pixel
    LINE = STEP * W

    def line(i: int) -> Any:
        if pair.dtype == "float32":

            @cuda.jit(device=True, forceinline=True)
            def add(sums, w, shared, at, h, v, rows):
                inside = uint32(h + uint32(i)) < rows
                for k in range(K):
                    value = float32(0)
                    if inside and uint32(v + uint32(k)) < uint32(W):
                        value = shared[uint32(at + uint32(i * LINE + k * STEP))]
                    for o in range(RUN):
                        if 0 <= i - o * S and i - o * S < K:
                            sums[o] += w[(i - o * S) * K + k] * value

        else:

            @cuda.jit(device=True, forceinline=True)
            def add(sums, w, shared, at, h, v, rows):
                inside = uint32(h + uint32(i)) < rows
                for k in range(K):
                    word = float32(0)
                    if inside and uint32(v + uint32(k)) < uint32(W):
                        word = shared[uint32(at + uint32(i * LINE + k * STEP))]
                    low, high = ptx.halves(word)
                    for o in range(RUN):
                        if 0 <= i - o * S and i - o * S < K:
                            sums[2 * o] += w[2 * ((i - o * S) * K + k)] * low
                            sums[2 * o + 1] += w[2 * ((i - o * S) * K + k) + 1] * high

        return add

    return in_turn([line(i) for i in range((RUN - 1) * S + K)], arguments=7)
