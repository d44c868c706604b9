"""Blocked: large filters in float32, 4 x 4 outputs a thread in registers.

Where a filter has hundreds of taps an output waits for multiply-adds, and what feeds them is shared memory. A thread
has 4 rows of 4 columns of outputs. It goes down the rows of x that they need: of each, K + 3 neighbours come to
registers, 16 bytes an instruction, and meet up to four rows of the filter, which all lanes read at once: K / 4 + 1
reads of x and K of the filter for 16 K multiply-adds. Rows of x above and below the map are no work.

A block has a channel's filter and tiles of its maps, of several images where maps are small: x lies in shared memory
with zeros beside the map's columns. Where there are fewer tiles than a block could have, as of one image, groups of
threads share the rows of x of a tile, and their sums meet in shared memory, in an order that is always the same.
Elements are copied one by one, so maps are of any size. Each product is of a tap and an x in its window, so a NaN stays
there.

Predicted, on an H200, of 32 images of 128 channels of 56 x 56 and K = 31: 28,700 warps go down 30 rows on the mean,
each 496 multiply-adds and some 55 other instructions: 0.9 M cycles of a scheduler, 510 µs; multiply-adds alone 300.
Measured: 622, cuDNN's best 3,408; of one image of 512 channels of 14 x 14 and K = 27 7.8, 25.7 without the groups.
Traffic: x once for each tile, with K - 1 rows and columns more; a channel's filter for each block; y once.
"""

import functools
from collections import namedtuple

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import constants, epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, grouped, small_maps, warp_traffic
from dwlab.target import cuda

FEWEST, MOST = 8, 63  # taps along a side
WORDS = 48 * 256  # of shared memory of a block
SIDE = 64  # rows and columns of outputs of a tile, at most
THREADS = 256  # of a tile, at most; half as many are enough of several

Plan = namedtuple("Plan", "across down wide high lines pitch taps each threads")
"""How maps are cut: tiles across and down a map; quads of a tile's columns, of its rows; rows of x of a tile, words of
each; words of a row of the filter; tiles of a block; threads of a block."""


@functools.cache
def plan_of(layer):
    """The Plan; None where not even four rows of outputs fit."""
    across, down, taps = -(-layer.Q // SIDE), -(-layer.P // SIDE), -(-layer.K // 4) * 4
    wide = -(-layer.Q // (4 * across))
    pitch, room = 4 * wide + taps, WORDS - layer.K * taps
    while True:
        high = -(-layer.P // (4 * down))
        lines = layer.H if down == 1 else 4 * high + layer.K - 1
        if wide * high <= THREADS and lines * pitch <= room:
            each = max(1, min(THREADS // 2 // (wide * high), room // (lines * pitch)))
            return Plan(across, down, wide, high, lines, pitch, taps, each, -(-each * wide * high // 32) * 32)
        if high == 1:
            return None
        down += 1


def windows(one):
    """load(window, x_tile, at): a row's K + 3 elements and more, from word `at` on."""

    def four(k):
        @cuda.jit(device=True, forceinline=True)
        def four(window, x_tile, at):
            window[k], window[k + 1], window[k + 2], window[k + 3] = ptx.load4_shared(x_tile, uint32(at + uint32(k)))

        return four

    return in_sequence([four(k) for k in range(0, one.taps + 4, 4)])


def products(layer, one):
    """add(sums, window, f_tile, i): those of the i-th row of x that a thread's outputs need."""
    K, TAPS = layer.K, one.taps

    def four(r, m):
        @cuda.jit(device=True, forceinline=True)
        def four(sums, window, f_tile, at):
            tap = cuda.local.array(4, float32)
            tap[0], tap[1], tap[2], tap[3] = ptx.load4_shared(f_tile, uint32(at + uint32(4 * m)))
            for e in range(min(4, K - 4 * m)):
                for q in range(4):
                    sums[4 * r + q] += tap[e] * window[4 * m + e + q]

        return four

    def row(r):
        every = in_sequence([four(r, m) for m in range(TAPS // 4)])

        @cuda.jit(device=True, forceinline=True)
        def row(sums, window, f_tile, i):
            if uint32(i - r) < uint32(K):
                every(sums, window, f_tile, uint32(uint32(i - r) * uint32(TAPS)))

        return row

    return in_sequence([row(r) for r in range(4)])


@by_shape
def kernel(layer):
    one = plan_of(layer)
    load_window, add_rows, finish = windows(one), products(layer, one), epilogue.finish(layer, float32)
    one = constants.of(layer, one, tile=one.lines * one.pitch, base=layer.padding if one.down == 1 else 0)
    X_WORDS, F_WORDS, WINDOW = max(one.each * one.tile, 16 * one.threads), one.K * one.taps, one.taps + 4

    @cuda.jit
    def kernel(x, w, b, m, r, y, images):
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        f_tile = cuda.shared.array(F_WORDS, float32, 16)
        sums = cuda.local.array(16, float32)
        window = cuda.local.array(WINDOW, float32)
        thread, c = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.y)
        first = uint32(uint32(cuda.blockIdx.x) * uint32(one.each))
        here = min(uint32(one.each), uint32(uint32(images) * uint32(one.down * one.across) - first))  # tiles
        for i in range(thread, F_WORDS, uint32(one.threads)):
            k, tap = uint32(i // uint32(one.taps)), uint32(i % uint32(one.taps))
            if tap < uint32(one.K):
                ptx.copy1_async(f_tile, i, w, uint32(uint32(uint32(c * one.K) + k) * uint32(one.K) + tap))
            else:
                f_tile[i] = float32(0)
        for i in range(thread, uint32(here * uint32(one.tile)), uint32(one.threads)):
            place, line = uint32(first + i // uint32(one.tile)), uint32(i // uint32(one.pitch) % uint32(one.lines))
            n = uint32(place // uint32(one.down * one.across))
            p = uint32(place // uint32(one.across) % uint32(one.down) * uint32(4 * one.high))
            q = uint32(place % uint32(one.across) * uint32(4 * one.wide))
            h = uint32(p + line + uint32(one.base) - uint32(one.padding))  # above the map: wraps to a huge number
            v = uint32(q + i % uint32(one.pitch) - uint32(one.padding))
            if h < uint32(one.H) and v < uint32(one.W):
                ptx.copy1_async(x_tile, i, x, uint32(uint32(uint32(n * one.C + c) * one.H + h) * one.W + v))
            else:
                x_tile[i] = float32(0)
        ptx.commit()
        ptx.wait(0)
        cuda.syncthreads()
        mine, groups = uint32(thread // uint32(one.wide * one.high)), uint32(uint32(one.each) // here)
        group, mine = uint32(mine // here), uint32(mine % here)  # groups share the rows of x of few tiles
        down, q = uint32(thread // uint32(one.wide) % uint32(one.high)), uint32(thread % uint32(one.wide))
        place = uint32(first + mine)
        p = int32(int32(place // uint32(one.across) % uint32(one.down)) * int32(4 * one.high))
        begin = int32(p + int32(4) * int32(down))  # the thread's first row of outputs
        for k in range(16):
            sums[k] = float32(0)
        if group < groups:
            i = int32(max(int32(0), int32(one.padding - begin)) + int32(group))
            stop = min(int32(one.K + 3), int32(one.H + one.padding - begin))
            line = int32(begin + i - (one.padding if one.down == 1 else p))
            at = uint32(mine * uint32(one.tile) + uint32(line) * uint32(one.pitch) + q * uint32(4))
            while i < stop:
                load_window(window, x_tile, at)
                add_rows(sums, window, f_tile, i)
                at = uint32(at + groups * uint32(one.pitch))
                i = int32(i + int32(groups))
        if groups > uint32(1):
            cuda.syncthreads()
            for k in range(16):
                x_tile[uint32(uint32(k * one.threads) + thread)] = sums[k]
            cuda.syncthreads()
        if group == 0:
            for other in range(1, groups):
                at = uint32(thread + uint32(other * here) * uint32(one.wide * one.high))
                for k in range(16):
                    sums[k] += x_tile[uint32(uint32(k * one.threads) + at)]
            n = uint32(place // uint32(one.down * one.across))
            q = uint32(place % uint32(one.across) * uint32(4 * one.wide) + q * uint32(4))
            for k in range(16):
                row, column = uint32(uint32(begin) + uint32(k // 4)), uint32(q + uint32(k % 4))
                if row < uint32(one.P) and column < uint32(one.Q):
                    to = uint32(uint32(uint32(n * one.C + c) * one.P + row) * one.Q + column)
                    y[to] = finish(sums[k], b, r, c, to)

    return kernel


def traffic(layer):
    C, H, W, K, P, Q, one = layer.C, layer.H, layer.W, layer.K, layer.P, layer.Q, plan_of(layer.kernel_key)
    load, store, thread = np.zeros(2, np.int64), np.zeros(2, np.int64), np.arange(one.threads)
    i = np.arange(0, one.each * one.lines * one.pitch, one.threads)[:, None] + thread
    line, column, whole = i // one.pitch % one.lines, i % one.pitch, i < one.each * one.lines * one.pitch
    row, tap = np.divmod(np.arange(0, K * one.taps, one.threads)[:, None] + thread, one.taps)
    k = np.arange(16)[:, None]
    base = layer.padding if one.down == 1 else 0

    def tiles(number):
        """Image, first row and column of tiles."""
        return (
            number // (one.down * one.across), number // one.across % one.down * 4 * one.high,
            number % one.across * 4 * one.wide,
        )  # fmt: skip

    def alike_channels(c):
        return c * H * W % 8, c * P * Q % 8, c * K * K % 8

    def alike_blocks(block):
        n, p, q = tiles(block * one.each)
        return n * C * H * W % 8, n * C * P * Q % 8, p, q, (block + 1) * one.each > layer.N * one.down * one.across

    blocks = launch(layer).grid[0]
    for _, c, often in grouped(range(C), alike_channels):
        taps = np.where((tap < K) & (row < K), (c * K + row) * K + tap, -1)
        load += often * blocks * warp_traffic(taps)
        for _, block, times in grouped(range(blocks), alike_blocks):
            n, p, q = tiles(block * one.each + i // (one.lines * one.pitch))
            h, v = p + line + base - layer.padding, q + column - layer.padding
            there = whole & (n < layer.N) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
            load += often * times * warp_traffic(np.where(there, ((n * C + c) * H + h) * W + v, -1))
            mine, place = np.divmod(thread, one.wide * one.high)
            n, p, q = tiles(block * one.each + mine)
            p, q = p + place // one.wide * 4 + k // 4, q + place % one.wide * 4 + k % 4
            there = (mine < one.each) & (n < layer.N) & (p < P) & (q < Q)
            moved = often * times * warp_traffic(np.where(there, ((n * C + c) * P + p) * Q + q, -1))
            store += moved
            load += layer.residual * moved
            load += layer.bias * often * times * warp_traffic(np.where(there, c, -1))
    return Traffic(*load, *store)


def supports(layer):
    if layer.layout != "NCHW" or layer.stride != 1 or not FEWEST <= layer.K <= MOST or layer.C > 65535:
        return False
    return small_maps(layer) and plan_of(layer.kernel_key) is not None


@register(kernel=kernel, traffic=traffic, supports=supports, view="flat", needs=("copy1_async",))
def launch(layer):
    one = plan_of(layer.kernel_key)
    return Launch((-(-layer.N * one.down * one.across // one.each), layer.C), (one.threads,), scalars=(layer.N,))
