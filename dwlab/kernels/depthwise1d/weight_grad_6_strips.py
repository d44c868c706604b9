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
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, rows_sectors
from dwlab.target import cuda

MOST = 64  # taps, all held in registers


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    EACH, halos = OUTPUTS[DTYPE], halo(K, SHIFT, DTYPE)
    tile, get = strips.sizes(L, EACH, DTYPE, *halos), pieces.load_shared(DTYPE)
    place, load_x = strips.place(L, EACH, DTYPE, *halos), strips.load_async(L, EACH, DTYPE, *halos)
    load_dy, add_warps = strips.load_async(L, EACH, DTYPE), strips.add_warps(K, tile.all)
    accumulate = strip_products.weight_grad(EACH, K, SHIFT, halos[0], DTYPE)

    @cuda.jit(device=True, forceinline=True)
    def load_async(pool, base, buffer, dy, x, strip, total, h, pitch, lane):
        b = uint32(strip // uint32(tile.strips))
        start, rows = uint32(strip - b * uint32(tile.strips)), uint32(uint32(x.shape[0]) - b)
        row = (np.int64(b) * np.int64(x.shape[1]) + np.int64(h)) * tile.row
        _, end = place(lane, start, uint32(total - strip))
        dy0, x0 = uint32(base + buffer * uint32(tile.own)), uint32(base + tile.wide_at + buffer * uint32(tile.wide))
        load_dy(pool, dy0, dy, row, pitch, rows, start, uint32(tile.own), lane)
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
        while strip < total:
            if strip + step < total:
                load_async(pool, base, uint32(buffer ^ 1), dy, x, uint32(strip + step), total, h, pitch, lane)
            ptx.commit()
            ptx.wait(1)
            cuda.syncwarp()
            start = uint32(strip - uint32(strip // uint32(tile.strips)) * uint32(tile.strips))
            own, _ = place(lane, start, uint32(total - strip))
            for m in range(tile.step // 4):
                at = uint32(base + buffer * uint32(tile.own) + lane * uint32(tile.step) + uint32(4 * m))
                get(back, m, pool, at)
            accumulate(sums, back, pool, uint32(base + tile.wide_at + buffer * uint32(tile.wide) + own))
            cuda.syncwarp()
            strip = uint32(strip + step)
            buffer = uint32(buffer ^ 1)
        ptx.wait(0)
        add_warps(sums, pool, parts, split, h, lane, warp, warps)

    return kernel


def shares(problem):
    """(blocks for a channel, warps of a block, words of shared memory of a warp)."""
    dtype, times = problem.dtype, OUTPUTS[problem.dtype]
    words_of_warp = strips.sizes(problem.L, times, dtype, *halo(problem.K, problem.shift, dtype)).all
    return *strips.shares(problem, times, words_of_warp), words_of_warp


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


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: takes(problem, MOST),
    otherwise="depthwise1d/weight_grad/warp_tiled", aligned=16, needs=("copy4_async",),
)  # fmt: skip
def launch(problem):
    blocks, warps, words_of_warp = shares(problem)
    shared = 4 * warps * words_of_warp
    return Launch((problem.H * blocks,), (32, warps), (problem.shift,), shared_bytes=shared, parts=blocks)
