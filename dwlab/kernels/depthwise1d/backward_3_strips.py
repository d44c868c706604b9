"""Strips: both gradients from one pass over dy and x, 20 neighbouring times of a row in a lane, for rows of any length.

`channels` needs a whole row in a lane, so it ends at 64 times, and longer rows took two launches: dy is read twice
then, 16 bytes an element where 12 are compulsory. Here a warp has one channel, as in weight_grad's `strips`, with the
roles exchanged: a lane holds its 20 x in registers, and dy passes by with both halos. Each dy[s - shift + j] meets
w[j] for dx[s] and x[s] for dw[j]: 320 multiply-adds for 8 taps, two reads of 16 bytes of dy and two of weights, and
only dy has a halo. dx takes the place of x in shared memory, which no other lane reads, and goes out from there 16
bytes at a time.

The next 32 strips are on their way while these are computed: dy and x have two tiles each. The sums of all taps stay in
registers through the warp's whole share of the batch, and meet as in weight_grad's `strips`: deterministic, without
atomics. A dy that is not finite meets zeros beyond a row's ends, as in warp_tiled.

Predicted: dy once but for halos, x once, dx once: 12 bytes an element in place of 16, and 2 K multiply-adds for them.
On an H200 these take as long as the bytes at about K = 45; with the other instructions, somewhat earlier.
"""

import numpy as np
from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise1d import channel_strips as strips
from dwlab.kernels.depthwise1d import straight_line
from dwlab.kernels.depthwise1d.forward_7_strips import OUTPUTS, halo
from dwlab.kernels.depthwise1d.rows import store_piece, takes, words
from dwlab.kernels.parts import pieces, ptx
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, rows_sectors

MOST = 64  # taps, all held in registers
MANY, FEWER = 32, 12  # beyond so many taps a lane has so few float32: more warps fit then, and lanes overlap better


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    EACH = each(K, DTYPE)
    N, STRIPS = words(L, DTYPE), strips.per_row(L, EACH)
    LEFT, RIGHT = halo(K, K - 1 - SHIFT, DTYPE)
    STEP, PIECE = words(EACH, DTYPE), pieces.elements(DTYPE)
    X_WORDS, DY_WORDS = strips.tile_words(L, EACH, DTYPE), strips.tile_words(L, EACH, DTYPE, LEFT, RIGHT)
    W_WORDS = -(-K // 4) * 4
    X, DY, ALL = W_WORDS, W_WORDS + 2 * X_WORDS, W_WORDS + 2 * X_WORDS + 2 * DY_WORDS  # of a warp: where they begin
    place, bring_dy = strips.place(L, EACH, DTYPE, LEFT, RIGHT), strips.bring(L, EACH, DTYPE, LEFT, RIGHT)
    bring_x, take = strips.bring(L, EACH, DTYPE), strips.take(L, EACH, DTYPE)
    both_gradients = straight_line.strip_backward(EACH, K, K - 1 - SHIFT, LEFT, DTYPE)
    spread, put, add_warps = pieces.spread(DTYPE), store_piece(DTYPE), strips.add_warps(K, ALL, reverse=True)

    @cuda.jit(device=True, forceinline=True)
    def bring(pool, base, buffer, dy, x, strip, total, h, pitch, lane):
        b = uint32(strip // uint32(STRIPS))
        start, rows = uint32(strip - b * uint32(STRIPS)), uint32(uint32(x.shape[0]) - b)
        row = (np.int64(b) * np.int64(x.shape[1]) + np.int64(h)) * N
        _, end = place(lane, start, uint32(total - strip))
        dy0, x0 = uint32(base + DY + buffer * uint32(DY_WORDS)), uint32(base + X + buffer * uint32(X_WORDS))
        bring_dy(pool, dy0, dy, row, pitch, rows, start, end, lane)
        bring_x(pool, x0, x, row, pitch, rows, start, uint32(X_WORDS), lane)

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
        pitch = uint32(H * uint32(N))  # words from a row to the same channel's next
        strip, total = uint32(uint32(split * warps + warp) * uint32(32)), uint32(uint32(x.shape[0]) * uint32(STRIPS))
        step = uint32(uint32(32) * warps * uint32(parts.shape[0]))
        base, buffer = uint32(warp * uint32(ALL)), uint32(0)
        if strip < total:
            bring(pool, base, buffer, dy, x, strip, total, h, pitch, lane)
        ptx.commit()
        for j in range(K):
            sums[j] = float32(0)
        for j in range(lane, W_WORDS, 32):
            pool[uint32(base + uint32(j))] = w[h, uint32(K - 1) - j] if j < K else float32(0)
        while strip < total:
            if strip + step < total:
                bring(pool, base, uint32(buffer ^ 1), dy, x, uint32(strip + step), total, h, pitch, lane)
            ptx.commit()
            ptx.wait(1)
            cuda.syncwarp()
            b = uint32(strip // uint32(STRIPS))
            start, rows = uint32(strip - b * uint32(STRIPS)), uint32(uint32(x.shape[0]) - b)
            own_dy, _ = place(lane, start, uint32(total - strip))
            own_dy = uint32(own_dy + base + DY + buffer * uint32(DY_WORDS))
            x0 = uint32(base + X + buffer * uint32(X_WORDS))
            own = uint32(x0 + lane * uint32(STEP))
            for m in range(STEP // 4):
                p, q, s, u = ptx.load4_shared(pool, uint32(own + uint32(4 * m)))
                spread(values, PIECE * m, p, q, s, u)
            for i in range(EACH):
                gradient[i] = float32(0)
            both_gradients(sums, gradient, values, pool, own_dy, base)
            for m in range(STEP // 4):
                put(pool, uint32(own + uint32(4 * m)), gradient, m)
            cuda.syncwarp()
            row = (np.int64(b) * np.int64(H) + np.int64(h)) * N
            take(pool, x0, dx, row, pitch, rows, start, lane)
            cuda.syncwarp()
            strip = uint32(strip + step)
            buffer = uint32(buffer ^ 1)
        ptx.wait(0)
        add_warps(sums, pool, parts, split, h, lane, warp, warps)

    return kernel


def each(K, dtype):
    """Times of a lane."""
    return FEWER if dtype == "float32" and K > MANY else OUTPUTS[dtype]


def shares(problem):
    """(blocks for a channel, warps of a block, words of shared memory of a warp)."""
    L, K, dtype, times = problem.L, problem.K, problem.dtype, each(problem.K, problem.dtype)
    tiles = strips.tile_words(L, times, dtype) + strips.tile_words(
        L, times, dtype, *halo(K, K - 1 - problem.shift, dtype)
    )
    words_of_warp = -(-K // 4) * 4 + 2 * tiles
    return *strips.shares(problem, times, words_of_warp), words_of_warp


def traffic(problem):
    H, K, times = problem.H, problem.K, each(problem.K, problem.dtype)
    blocks, warps, _ = shares(problem)
    x, dy = (
        strips.traffic(problem, times),
        strips.traffic(problem, times, *halo(K, K - 1 - problem.shift, problem.dtype)),
    )
    j = 32 * np.arange(-(-K // 32))
    first, count = np.maximum(0, K - 32 - j), np.minimum(32, K - j)  # the filter and its sums, from the last tap on
    return Traffic(
        load_requests=x[0] + dy[0] + blocks * warps * H * len(j),
        load_sectors=x[1] + dy[1] + blocks * warps * rows_sectors(H, K, first, count),
        store_requests=x[0] + blocks * H * len(j),
        store_sectors=x[1] + rows_sectors(blocks * H, K, first, count),
    )


def supports(problem):
    return problem.K <= MOST and takes(problem)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/backward/naive", aligned=16,
    needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    blocks, warps, words_of_warp = shares(problem)
    shared = 4 * warps * words_of_warp
    return Launch((problem.H * blocks,), (32, warps), (problem.shift,), shared_bytes=shared, parts=blocks)
