"""Strips: 20 neighbouring times of a row in each lane, for rows of any length; a tree of shuffles at the end.

`channels` needs a whole row in a lane, so it ends at 64 times. Here the 32 lanes share the rows of one channel: 20 dy
each in registers, the sums of all K taps beside them, and the x of these times and of the halo 27 at a time from
shared memory, 8 of them new for each 8 taps: 160 multiply-adds for two reads of 16 bytes. A warp's 32 strips are of one
row, or of several that are neighbours in the batch (channel_strips.py); the next 32 are on their way meanwhile.

Now all lanes have sums of the same K elements of dw, and they keep them in registers through the warp's whole share of
the batch. Only then they meet, in a tree: 5 shuffles for each tap, after which a lane has the warp's sum. The warps'
sums are parts, added up by a second kernel in an order that is always the same: three levels, no atomics, the same bits
in every run. Where a channel is three pieces of work or fewer, one warp does them, and its sum is dw: a second kernel
would take longer than two pieces more. A dy that is not finite meets staged zeros at a row's ends, as in
warp_tiled.

Predicted: dy once, x once but for halos, and few parts; so memory's speed, where K multiply-adds for 8 bytes allow.
"""

import numpy as np
from numba import float32, uint32

from dwlab import pieces, ptx
from dwlab.depthwise1d import channel_strips as strips
from dwlab.depthwise1d import straight_line
from dwlab.depthwise1d.forward_7_strips import OUTPUTS, halo
from dwlab.depthwise1d.rows import takes, words
from dwlab.stages import Launch, by_shape, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, rows_sectors

MOST = 64  # taps, all held in registers


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    EACH, N, STRIPS = OUTPUTS[DTYPE], words(L, DTYPE), strips.per_row(L, OUTPUTS[DTYPE])
    LEFT, RIGHT = halo(K, SHIFT, DTYPE)
    STEP, PIECE = words(EACH, DTYPE), pieces.elements(DTYPE)
    DY_WORDS, X_WORDS = strips.tile_words(L, EACH, DTYPE), strips.tile_words(L, EACH, DTYPE, LEFT, RIGHT)
    ALL_DY, ALL_X = 2 * DY_WORDS, 2 * X_WORDS
    place, bring_x = strips.place(L, EACH, DTYPE, LEFT, RIGHT), strips.bring(L, EACH, DTYPE, LEFT, RIGHT)
    bring_dy, spread = strips.bring(L, EACH, DTYPE), pieces.spread(DTYPE)
    accumulate, add_lanes = straight_line.strip_taps(EACH, K, SHIFT, LEFT, DTYPE), straight_line.warp_sums(K)

    @cuda.jit(device=True, forceinline=True)
    def bring(dy_tile, x_tile, buffer, dy, x, strip, total, h, pitch, lane):
        b = uint32(strip // uint32(STRIPS))
        start, rows = uint32(strip - b * uint32(STRIPS)), uint32(uint32(x.shape[0]) - b)
        row = (np.int64(b) * np.int64(x.shape[1]) + np.int64(h)) * N
        _, end = place(lane, start, uint32(total - strip))
        bring_dy(dy_tile, uint32(buffer * uint32(DY_WORDS)), dy, row, pitch, rows, start, uint32(DY_WORDS), lane)
        bring_x(x_tile, uint32(buffer * uint32(X_WORDS)), x, row, pitch, rows, start, end, lane)

    @cuda.jit
    def kernel(dy, x, parts, shift):
        x_tile = cuda.shared.array(ALL_X, float32, 16)
        dy_tile = cuda.shared.array(ALL_DY, float32, 16)
        sums = cuda.local.array(K, float32)
        back = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        H = uint32(x.shape[1])
        split = uint32(uint32(cuda.blockIdx.x) // H)
        h = uint32(uint32(cuda.blockIdx.x) - split * H)
        pitch = uint32(H * uint32(N))  # words from a row to the same channel's next
        strip, total = uint32(split * uint32(32)), uint32(uint32(x.shape[0]) * uint32(STRIPS))
        step = uint32(uint32(32) * uint32(parts.shape[0]))
        buffer = uint32(0)
        bring(dy_tile, x_tile, buffer, dy, x, strip, total, h, pitch, lane)
        ptx.commit()
        for j in range(K):
            sums[j] = float32(0)
        while strip < total:
            if strip + step < total:
                bring(dy_tile, x_tile, uint32(buffer ^ 1), dy, x, uint32(strip + step), total, h, pitch, lane)
            ptx.commit()
            ptx.wait(1)
            cuda.syncwarp()
            start = uint32(strip - uint32(strip // uint32(STRIPS)) * uint32(STRIPS))
            own, _ = place(lane, start, uint32(total - strip))
            for m in range(STEP // 4):
                at = uint32(buffer * uint32(DY_WORDS) + lane * uint32(STEP) + uint32(4 * m))
                p, q, s, u = ptx.load4_shared(dy_tile, at)
                spread(back, PIECE * m, p, q, s, u)
            accumulate(sums, back, x_tile, uint32(buffer * uint32(X_WORDS) + own))
            cuda.syncwarp()
            strip = uint32(strip + step)
            buffer = uint32(buffer ^ 1)
        out = cuda.local.array(2, float32)
        out[0] = out[1] = float32(0)
        add_lanes(sums, lane, out)
        if lane < K:
            parts[split, h, lane] = out[0]
        if lane + 32 < K:
            parts[split, h, lane + 32] = out[1]

    return kernel


def traffic(problem):
    H, K, times = problem.H, problem.K, OUTPUTS[problem.dtype]
    splits, sides = strips.splits(problem, times), halo(K, problem.shift, problem.dtype)
    dy, x = strips.traffic(problem, times), strips.traffic(problem, times, *sides)
    j = 32 * np.arange(-(-K // 32))
    return Traffic(
        load_requests=x[0] + dy[0],
        load_sectors=x[1] + dy[1],
        store_requests=splits * H * len(j),
        store_sectors=rows_sectors(splits * H, K, j, np.minimum(32, K - j)),
    )


def supports(problem):
    return problem.K <= MOST and takes(problem)


@register(
    kernel=kernel,
    traffic=traffic,
    supports=supports,
    otherwise="depthwise1d/weight_grad/warp_tiled",
    aligned=16,
)
def launch(problem):
    splits = strips.splits(problem, OUTPUTS[problem.dtype])
    return Launch(grid=(problem.H * splits,), block=(32,), scalars=(problem.shift,), parts=splits)
