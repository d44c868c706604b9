"""Strips: 20 neighbouring times of a row in each lane, for rows of any length; a tree of shuffles at the end.

`channels` needs a whole row in a lane, so it ends at 64 times. Here the 32 lanes share the rows of one channel: 20 dy
each in registers, the sums of all K taps beside them, and the x of these times and of the halo 27 at a time from
shared memory, 8 of them new for each 8 taps: 160 multiply-adds for two reads of 16 bytes. A warp's 32 strips are of one
row, or of several that are neighbours in the batch (channel_strips.py); the next 32 are in flight meanwhile.

Now all lanes have sums of the same K elements of dw, and they keep them in registers through the warp's whole part of
the batch. Only then they meet, in a tree: 5 shuffles for each tap, after which a lane has the warp's sum; then a
block's warps, in shared memory. Where a block for each channel keeps the GPU busy, that is dw: a second kernel would
take two microseconds more. Else blocks share a channel, and their sums are parts, added up by a second kernel. All in
an order that is always the same: no atomics, the same bits in every run. A dy or x that is not finite meets
staged zeros at a row's ends, as in warp_tiled.

Predicted: dy once, x once but for halos, and few parts; so memory's speed, where K multiply-adds for 8 bytes allow.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise1d import channel_strips as strips
from dwlab.kernels.depthwise1d import strip_products
from dwlab.kernels.depthwise1d.strip_products import OUTPUTS, halo, takes
from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import words
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, rows_sectors
from dwlab.target import cuda

MOST = 64  # taps, all held in registers


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    EACH, N, STRIPS = OUTPUTS[DTYPE], words(L, DTYPE), strips.per_row(L, OUTPUTS[DTYPE])
    LEFT, RIGHT = halo(K, SHIFT, DTYPE)
    STEP = words(EACH, DTYPE)
    DY_WORDS, X_WORDS = strips.tile_words(L, EACH, DTYPE), strips.tile_words(L, EACH, DTYPE, LEFT, RIGHT)
    X, ALL = 2 * DY_WORDS, 2 * DY_WORDS + 2 * X_WORDS  # of a warp: where they begin, and all
    place, load_x = strips.place(L, EACH, DTYPE, LEFT, RIGHT), strips.load_async(L, EACH, DTYPE, LEFT, RIGHT)
    load_dy, get = strips.load_async(L, EACH, DTYPE), pieces.load_shared(DTYPE)
    accumulate, add_warps = strip_products.weight_grad(EACH, K, SHIFT, LEFT, DTYPE), strips.add_warps(K, ALL)

    @cuda.jit(device=True, forceinline=True)
    def load_async(pool, base, buffer, dy, x, strip, total, h, pitch, lane):
        b = uint32(strip // uint32(STRIPS))
        start, rows = uint32(strip - b * uint32(STRIPS)), uint32(uint32(x.shape[0]) - b)
        row = (np.int64(b) * np.int64(x.shape[1]) + np.int64(h)) * N
        _, end = place(lane, start, uint32(total - strip))
        dy0, x0 = uint32(base + buffer * uint32(DY_WORDS)), uint32(base + X + buffer * uint32(X_WORDS))
        load_dy(pool, dy0, dy, row, pitch, rows, start, uint32(DY_WORDS), lane)
        load_x(pool, x0, x, row, pitch, rows, start, end, lane)

    @cuda.jit
    def kernel(dy, x, parts, shift):
        pool = cuda.shared.array(0, float32, 16)  # for each warp two tiles of dy and of x
        sums = cuda.local.array(K, float32)
        back = cuda.local.array(EACH, float32)
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
            load_async(pool, base, buffer, dy, x, strip, total, h, pitch, lane)
        ptx.commit()
        for j in range(K):
            sums[j] = float32(0)
        while strip < total:
            if strip + step < total:
                load_async(pool, base, uint32(buffer ^ 1), dy, x, uint32(strip + step), total, h, pitch, lane)
            ptx.commit()
            ptx.wait(1)
            cuda.syncwarp()
            start = uint32(strip - uint32(strip // uint32(STRIPS)) * uint32(STRIPS))
            own, _ = place(lane, start, uint32(total - strip))
            for m in range(STEP // 4):
                at = uint32(base + buffer * uint32(DY_WORDS) + lane * uint32(STEP) + uint32(4 * m))
                get(back, m, pool, at)
            accumulate(sums, back, pool, uint32(base + X + buffer * uint32(X_WORDS) + own))
            cuda.syncwarp()
            strip = uint32(strip + step)
            buffer = uint32(buffer ^ 1)
        ptx.wait(0)
        add_warps(sums, pool, parts, split, h, lane, warp, warps)

    return kernel


def shares(problem):
    """(blocks for a channel, warps of a block, words of shared memory of a warp)."""
    L, dtype, times = problem.L, problem.dtype, OUTPUTS[problem.dtype]
    halos = (), halo(problem.K, problem.shift, dtype)
    tiles = sum(strips.tile_words(L, times, dtype, *sides) for sides in halos)
    return *strips.shares(problem, times, 2 * tiles), 2 * tiles


def traffic(problem):
    H, K, times = problem.H, problem.K, OUTPUTS[problem.dtype]
    blocks, _, _ = shares(problem)
    dy, x = strips.traffic(problem, times), strips.traffic(problem, times, *halo(K, problem.shift, problem.dtype))
    j = 32 * np.arange(-(-K // 32))
    return Traffic(
        load_requests=x[0] + dy[0],
        load_sectors=x[1] + dy[1],
        store_requests=blocks * H * len(j),
        store_sectors=rows_sectors(blocks * H, K, j, np.minimum(32, K - j)),
    )


def supports(problem):
    return takes(problem, MOST)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/weight_grad/warp_tiled", aligned=16,
    needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    blocks, warps, words_of_warp = shares(problem)
    shared = 4 * warps * words_of_warp
    return Launch((problem.H * blocks,), (32, warps), (problem.shift,), shared_bytes=shared, parts=blocks)
