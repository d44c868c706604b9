"""Toeplitz: many taps on tensor cores, as a product of two matrices that both are rows as they lie in memory.

Of matrices whose rows are 16 neighbouring times of dy and of x, each diagonal of the product adds up to one tap of dw
(lag_products.py): K taps need K + 15 columns, so K of K + 15 products count, and what the row's length is, or where it
begins in memory, matters to loads alone. So this takes any row and any number of taps. Taps that pair no two times of a
row are 0, and not computed.

A block has a channel, up to some 490 of its taps and its share of the channel's tiles: a piece of one row, or short
rows side by side. Its warps share the columns, up to 128 each, or the times; the next tile is in flight meanwhile. In
16 bits one product does; of float32 each number is split in two tf32 and three are made (parts/mma_tf32.py). At the end
warps meet in shared memory, one after the other, and a thread adds up a diagonal; blocks of a channel meet by a second
kernel: the same bits in every run. A NaN meets zeros beyond its row, and 0 * NaN is NaN: a block whose sum of a tap is
not finite adds that tap up again, element by element.

Predicted, of (797, 30, 294, 320) in float32 on an H200: 60,000 steps of 8 times 16 times and 42 tiles of three mma are
7.5 million, 57,000 a multiprocessor, 52 µs at 0.62 a clock; splitting, loads and sums are 66 µs of issue slots. Where
each of the three mma waited for the one before, 170 µs were measured; four tiles in turn are 162, multiply-adds 355.
Blocks that are all resident at once, 510, take 139; 540, of which 12 come when others are done, 190.
Traffic: for each chunk of taps dy once and x with a halo of its taps for each tile; the parts.
"""

import numpy as np
from numba import float32, int32, uint32, uint64

from dwlab.kernels.depthwise1d.lag_products import EDGE, multiplying, plan_of, staging, useful, value
from dwlab.kernels.parts import constants, pieces
from dwlab.kernels.parts.mma_tf32 import FEWEST
from dwlab.kernels.registry import Launch, by_shape, fits_uint32, register
from dwlab.kernels.tiling.gpu import MULTIPROCESSORS
from dwlab.kernels.traffic import Traffic, grouped, warp_traffic
from dwlab.target import cuda

FEW, TAPS = 4, 256  # tiles, and their taps together, that a block takes rather than a second launch
RESIDENT = ((6, 768), (12, 512), (16, 384))  # tiles of a warp at most, and threads for whose registers there is room


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    taps = useful(L, K, SHIFT)
    one = plan_of(L, taps[1] - taps[0], SHIFT - taps[0], DTYPE)
    of_dy, of_x, multiply = (
        staging(one, one.span, one.own),
        staging(one, one.wide // one.side, one.wide),
        multiplying(one),
    )
    one = constants.of(
        one, first=one.held * of_dy.rounds, warp=one.tiles // 2 * one.words, low=taps[0], many=taps[1] - taps[0]
    )
    SUMS, WORDS, WAITING = (
        4 * one.tiles,
        max(one.x_at + one.wide * one.words, EDGE * one.lines),
        one.first + one.held * of_x.rounds,
    )
    VALUE, up = value(DTYPE), pieces.up(DTYPE)

    @cuda.jit(device=True, forceinline=True)
    def load(values, dy, x, item, entries, channels, h, before):
        b0 = uint32(item // uint32(one.pieces))
        t0 = uint32(uint32(item - b0 * uint32(one.pieces)) * uint32(16 * one.span))
        b0, pitch = uint32(b0 * uint32(one.side)), uint32(channels * uint32(one.L))
        row = (uint64(b0) * uint64(channels) + uint64(h)) * uint64(one.L)
        there = min(uint32(one.side), uint32(entries - b0))
        of_dy.load(values, 0, dy, row, pitch, there, t0)
        of_x.load(values, one.first, x, row, pitch, there, uint32(t0 + before))

    @cuda.jit(device=True, forceinline=True)
    def direct(dy, x, part, step, entries, channels, h, shift, bit):
        """A warp's sum of what the block has of one tap, and of no zero beside its rows."""
        lane, total = uint32(uint32(cuda.threadIdx.x) % uint32(32)), float32(0)
        shift = uint32(shift - uint32(cuda.libdevice.popc(int32(bit - uint32(1)))))
        item = part
        while item < uint32(uint32(entries + uint32(one.side - 1)) // uint32(one.side) * uint32(one.pieces)):
            b = uint32(item // uint32(one.pieces))
            begin = uint32(uint32(item - b * uint32(one.pieces)) * uint32(EDGE * one.span))
            end = min(uint32(one.L), uint32(begin + uint32(EDGE * one.span)))
            b = uint32(b * uint32(one.side))
            for r in range(b, min(entries, uint32(b + uint32(one.side)))):
                row = (uint64(r) * uint64(channels) + uint64(h)) * uint64(one.L)
                for t in range(uint32(begin + lane), end, uint32(32)):
                    if uint32(t + shift) < uint32(one.L):
                        total += up(dy[row + uint64(t)]) * up(x[row + uint64(uint32(t + shift))])
            item = uint32(item + step)
        for k in range(5):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 16 >> k)
        return total

    @cuda.jit
    def kernel(dy, x, parts, shift, entries):
        pool = cuda.shared.array(WORDS, float32, 16)
        acc = cuda.local.array(SUMS, float32)
        values = cuda.local.array(WAITING, VALUE)
        lane, warp = uint32(uint32(cuda.threadIdx.x) % uint32(32)), uint32(uint32(cuda.threadIdx.x) // uint32(32))
        column, deep = uint32(warp % uint32(one.across)), uint32(warp // uint32(one.across))
        step, channels, entries = uint32(parts.shape[0]), uint32(parts.shape[1]), uint32(entries)
        part = uint32(uint32(cuda.blockIdx.x) // channels)
        h, j0 = uint32(uint32(cuda.blockIdx.x) - part * channels), uint32(uint32(cuda.blockIdx.y) * uint32(one.taps))
        items = uint32(uint32(entries + uint32(one.side - 1)) // uint32(one.side) * uint32(one.pieces))
        item, before = part, uint32(uint32(shift) - j0 - uint32(one.last))  # before the row it wraps
        if before >= uint32(one.L) and uint32(before + uint32(one.reach)) >= uint32(one.reach):
            items = uint32(0)  # no x meets a dy
        for k in range(SUMS):
            acc[k] = float32(0)
        if item < items:
            load(values, dy, x, item, entries, channels, h, before)
        while item < items:
            of_dy.store(pool, uint32(0), values, 0)
            of_x.store(pool, uint32(one.x_at), values, one.first)
            cuda.syncthreads()
            b0 = uint32(item // uint32(one.pieces) * uint32(one.side))
            item = uint32(item + step)
            if item < items:  # in flight meanwhile
                load(values, dy, x, item, entries, channels, h, before)
            k = uint32(deep * uint32(one.depth))
            while k < min(uint32(one.side), uint32(entries - b0)) * uint32(one.span):
                multiply(acc, pool, k, uint32(uint32(one.x_at) + column * uint32(one.warp)), lane)
                k = uint32(k + uint32(one.deep * one.depth))
            cuda.syncthreads()
        row, column = uint32(lane // uint32(4)), uint32(column * uint32(8 * one.tiles) + lane % uint32(4) * uint32(2))
        for other in range(one.deep):
            if deep == other:
                for i in range(one.tiles):
                    for e in range(4):
                        at = uint32(uint32(row + uint32(e // 2 * 8)) * uint32(one.lines) + column)
                        at = uint32(at + uint32(8 * i + e % 2))
                        pool[at] = acc[4 * i + e] + (pool[at] if other > 0 else float32(0))
            cuda.syncthreads()
        first = uint32(uint32(cuda.threadIdx.x) - lane)
        while first < uint32(one.taps):
            j, total = uint32(first + lane), float32(0)
            there = j < uint32(one.taps) and uint32(j0 + j) < uint32(one.many)
            if there:
                for m in range(16):
                    total += pool[uint32(uint32(m * one.lines + m + one.last) - j)]
            odd = uint32(cuda.ballot_sync(0xFFFFFFFF, total - total != float32(0)))
            while odd:
                bit = uint32(odd & (uint32(0) - odd))
                alone = direct(dy, x, part, step, entries, channels, h, uint32(uint32(shift) - j0 - first), bit)
                if uint32(1) << lane == bit:
                    total = alone
                odd = uint32(odd ^ bit)
            if there:
                parts[part, h, uint32(one.low + j0 + j)] = total
            first = uint32(first + uint32(cuda.blockDim.x))
        if one.many < K and j0 == uint32(0):
            for j in range(uint32(cuda.threadIdx.x), uint32(K), uint32(cuda.blockDim.x)):
                if uint32(j - uint32(one.low)) >= uint32(one.many):
                    parts[part, h, j] = float32(0)

    return kernel


def shares(problem):
    """(the plan, blocks that share a channel, chunks of its taps)."""
    first, stop = useful(problem.L, problem.K, problem.shift)
    one = plan_of(problem.L, stop - first, problem.shift - first, problem.dtype)
    items, chunks = -(-problem.B // one.side) * one.pieces, -(-(stop - first) // one.taps)
    few = items <= FEW and (items * one.taps <= TAPS or problem.H * chunks >= MULTIPROCESSORS)
    threads = next(threads for most, threads in RESIDENT if one.tiles <= most)
    room = MULTIPROCESSORS * (threads // one.threads) // (problem.H * chunks)  # a block more would find the others done
    return one, 1 if few else max(1, min(items, room)), chunks


def traffic(problem):
    """dy and x with its halo for each tile and chunk of taps that meet in it; the parts."""
    B, H, L, (first, stop) = problem.B, problem.H, problem.L, useful(problem.L, problem.K, problem.shift)
    one, parts, _ = shares(problem)
    K, shift = stop - first, problem.shift - first
    per_sector, times, threads, halo = 32 // problem.itemsize, EDGE * one.span, one.threads, one.wide // one.side
    loads, stores = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def alike(item):
        """Tiles whose rows begin alike in their sectors, and are cut off alike."""
        b0, t0 = item // one.pieces * one.side, item % one.pieces * times
        inner = K + EDGE <= t0 and t0 + EDGE * halo + K <= L
        return b0 * H * L % per_sector, t0 % per_sector if inner else -1 - t0, min(one.side, B - b0)

    tiles = grouped(range(-(-B // one.side) * one.pieces), alike)
    for j0 in range(0, K, one.taps):
        j = np.arange(-(-one.taps // threads) * threads).reshape(-1, threads)
        there = (j < one.taps) & (j0 + j < K)
        for line in range(parts * H):
            stores += warp_traffic(np.where(there, line * problem.K + first + j0 + j, -1))
        before = shift - j0 - one.last
        if not -one.reach <= before < L:
            continue
        for (_, _, rows), item, often in tiles:
            b0, t0 = item // one.pieces * one.side, item % one.pieces * times
            for edges, total, begin in ((one.span, one.own, t0), (halo, one.wide, t0 + before)):
                i = np.arange(-(-total * EDGE // (one.held * threads)) * threads).reshape(-1, threads) * one.held
                r = i // (edges * EDGE)
                for t in begin + i - r * edges * EDGE + np.arange(1 if one.width == 4 else one.held)[:, None, None]:
                    inside = (r < rows) & (0 <= t) & (t < L)
                    for h in range(min(H, per_sector)):  # the channels per_sector further lie alike
                        many = often * len(range(h, H, per_sector))
                        loads += many * warp_traffic(np.where(inside, ((b0 + r) * H + h) * L + t, -1), per_sector)
    if K < problem.K:
        j = np.arange(-(-problem.K // threads) * threads).reshape(-1, threads)
        beside = (j < problem.K) & ((j < first) | (j >= stop))
        for line in range(parts * H):
            stores += warp_traffic(np.where(beside, line * problem.K + j, -1))
    return Traffic(*loads.tolist(), *stores.tolist())


def supports(problem):
    one, _, _ = shares(problem)
    return problem.B * problem.L >= FEWEST and one.side * problem.H * problem.L < 2**32 and problem.L < 2**31


HALVES = ("ldmatrix_x4_trans",)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/weight_grad/tiles", view="line",
    aligned=16,
    needs={"float32": ("mma_tf32",), "float16": ("mma_f16", *HALVES), "bfloat16": ("mma_bf16", *HALVES)},
)  # fmt: skip
def launch(problem):
    fits_uint32(problem)
    one, parts, chunks = shares(problem)
    shift = problem.shift - useful(problem.L, problem.K, problem.shift)[0]
    return Launch((problem.H * parts, chunks), (one.threads,), (shift, problem.B), parts=parts)
