"""Strips: both gradients from one pass over dy and x, 20 neighbouring times of a row in a lane, for rows of any length.

`channels` needs a whole row in a lane, so it ends at 64 times, and longer rows took two launches: dy is read twice
then, 16 bytes an element where 12 are compulsory. Here a warp has one channel, as in weight_grad's `strips`, with the
roles exchanged: a lane holds its 20 x in registers, and dy passes by with both halos. Each dy[s - shift + j] meets
w[j] for dx[s] and x[s] for dw[j]: 320 multiply-adds for 8 taps, two reads of 16 bytes of dy and two of weights, and
only dy has a halo. dx takes the place of x in shared memory, which no other lane reads, and goes out from there 16
bytes at a time.

The next 32 strips are in flight while these are computed: dy and x have two tiles each. The sums of all taps stay in
registers through the warp's whole part of the batch, and meet as in weight_grad's `strips`: deterministic, without
atomics. A dy or x that is not finite meets zeros beyond a row's ends: up to all taps are NaN, as in warp_tiled.

Predicted: dy once but for halos, x once, dx once: 12 bytes an element in place of 16, and 2 K multiply-adds for them.
On an H200 these take as long as the bytes at about K = 45; with the other instructions, somewhat earlier.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import channel_strips as strips
from dwlab.kernels.depthwise1d.strip_products import OUTPUTS, backward, halo, takes
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import load_shared, store_shared
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, rows_sectors
from dwlab.target import cuda

MOST = 64  # taps, all held in registers
MANY, FEWER = 32, 12  # beyond so many taps a lane has so few float32: more warps fit then, and lanes overlap better


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    EACH, halos = each(K, DTYPE), halo(K, K - 1 - SHIFT, DTYPE)
    tile = strips.sizes(L, EACH, DTYPE, *halos, first=-(-K // 4) * 4)  # behind the filter
    place, load_dy = strips.place(L, EACH, DTYPE, *halos), strips.load_async(L, EACH, DTYPE, *halos)
    load_x, store = strips.load_async(L, EACH, DTYPE), strips.store(L, EACH, DTYPE)
    add_warps = strips.add_warps(K, tile.all, reverse=True)
    both_gradients = backward(EACH, K, K - 1 - SHIFT, halos[0], DTYPE)
    get, put = load_shared(DTYPE), store_shared(DTYPE)

    @cuda.jit(device=True, forceinline=True)
    def load_async(pool, base, buffer, dy, x, strip, total, h, pitch, lane):
        b = uint32(strip // uint32(tile.strips))
        start, rows = uint32(strip - b * uint32(tile.strips)), uint32(uint32(x.shape[0]) - b)
        row = (np.int64(b) * np.int64(x.shape[1]) + np.int64(h)) * tile.row
        _, end = place(lane, start, uint32(total - strip))
        dy0 = uint32(base + tile.wide_at + buffer * uint32(tile.wide))
        x0 = uint32(base + tile.first + buffer * uint32(tile.own))
        load_dy(pool, dy0, dy, row, pitch, rows, start, end, lane)
        load_x(pool, x0, x, row, pitch, rows, start, uint32(tile.own), lane)

    @cuda.jit
    def kernel(dy, x, w, dx, parts, shift):
        pool = cuda.shared.array(0, float32, 16)  # for each warp the filter, two tiles of x and of dy
        sums = cuda.local.array(K, float32)
        values = cuda.local.array(EACH, float32)
        gradient = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        warp = uint32(cuda.shfl_sync(0xFFFFFFFF, cuda.threadIdx.y, 0))  # so the compiler knows: the same for all lanes
        H, warps = uint32(x.shape[1]), uint32(cuda.blockDim.y)
        split = uint32(uint32(cuda.blockIdx.x) // H)
        h = uint32(uint32(cuda.blockIdx.x) - split * H)
        pitch = uint32(H * uint32(tile.row))  # words from a row to the same channel's next
        strip = uint32(uint32(split * warps + warp) * uint32(32))
        total = uint32(uint32(x.shape[0]) * uint32(tile.strips))
        step = uint32(uint32(32) * warps * uint32(parts.shape[0]))
        base, buffer = uint32(warp * uint32(tile.all)), uint32(0)
        if strip < total:
            load_async(pool, base, buffer, dy, x, strip, total, h, pitch, lane)
        ptx.commit()
        for j in range(K):
            sums[j] = float32(0)
        for j in range(lane, tile.first, 32):
            pool[uint32(base + uint32(j))] = w[h, uint32(K - 1) - j] if j < K else float32(0)
        while strip < total:
            if strip + step < total:
                load_async(pool, base, uint32(buffer ^ 1), dy, x, uint32(strip + step), total, h, pitch, lane)
            ptx.commit()
            ptx.wait(1)
            cuda.syncwarp()
            b = uint32(strip // uint32(tile.strips))
            start, rows = uint32(strip - b * uint32(tile.strips)), uint32(uint32(x.shape[0]) - b)
            own_dy, _ = place(lane, start, uint32(total - strip))
            own_dy = uint32(own_dy + base + tile.wide_at + buffer * uint32(tile.wide))
            x0 = uint32(base + tile.first + buffer * uint32(tile.own))
            own = uint32(x0 + lane * uint32(tile.step))
            for m in range(tile.step // 4):
                get(values, m, pool, uint32(own + uint32(4 * m)))
            for i in range(EACH):
                gradient[i] = float32(0)
            both_gradients(sums, gradient, values, pool, own_dy, base)
            for m in range(tile.step // 4):
                put(pool, uint32(own + uint32(4 * m)), gradient, m)
            cuda.syncwarp()
            row = (np.int64(b) * np.int64(H) + np.int64(h)) * tile.row
            store(pool, x0, dx, row, pitch, rows, start, lane)
            cuda.syncwarp()
            strip, buffer = uint32(strip + step), uint32(buffer ^ 1)
        ptx.wait(0)
        add_warps(sums, pool, parts, split, h, lane, warp, warps)

    return kernel


def each(K, dtype):
    """Times of a lane."""
    return FEWER if dtype == "float32" and K > MANY else OUTPUTS[dtype]


def tiles_of(problem):
    """Times of a lane; the halos of its x, none, and of its dy."""
    return each(problem.K, problem.dtype), ((), halo(problem.K, problem.left, problem.dtype))


def shares(problem):
    """(blocks for a channel, warps of a block, words of shared memory of a warp)."""
    times, (_, halos) = tiles_of(problem)
    words_of_warp = strips.sizes(problem.L, times, problem.dtype, *halos, -(-problem.K // 4) * 4).all
    return *strips.shares(problem, times, words_of_warp), words_of_warp


def traffic(problem):
    H, K, (times, halos) = problem.H, problem.K, tiles_of(problem)
    blocks, warps, _ = shares(problem)
    x, dy = (strips.traffic(problem, times, *sides) for sides in halos)
    j = 32 * np.arange(-(-K // 32))
    first, count = np.maximum(0, K - 32 - j), np.minimum(32, K - j)  # the filter and its sums, from the last tap on
    return Traffic(
        load_requests=x[0] + dy[0] + blocks * warps * H * len(j),
        load_sectors=x[1] + dy[1] + blocks * warps * rows_sectors(H, K, first, count),
        store_requests=x[0] + blocks * H * len(j),
        store_sectors=x[1] + rows_sectors(blocks * H, K, first, count),
    )


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: takes(problem, MOST),
    otherwise="depthwise1d/backward/naive", aligned=16, needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    blocks, warps, words_of_warp = shares(problem)
    grid, block = (problem.H * blocks,), (32, warps)
    return Launch(grid, block, (problem.shift,), shared_bytes=4 * warps * words_of_warp, parts=blocks)
