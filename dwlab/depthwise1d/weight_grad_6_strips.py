"""Strips: 20 neighbouring times of a row in each lane, for rows of any length; a tree of shuffles at the end.

`channels` needs a whole row in a lane, so it ends at 64 times. Here the 32 lanes share the rows of one channel: 20 dy
each in registers, the sums of all K taps beside them, and the x of these times and of the halo 27 at a time from
shared memory, 8 of them new for each 8 taps: 160 multiply-adds for two reads of 16 bytes. A long row is walked through
in segments of 640; of short rows a warp takes several at once, those of neighbouring batch entries.

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

from dwlab import ptx
from dwlab.depthwise1d import straight_line
from dwlab.stages import Launch, StageError, by_shape, fits_uint32, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, rows_sectors, warp_traffic

EACH = 20  # times of a lane
MOST = 64  # taps, all held in registers
WARPS = 2112  # that share the work: 16 for each multiprocessor of an H200
ALONE = 3  # pieces of a channel's work, rows at once or segments, that a warp does rather than leave parts


@by_shape
def kernel(L, K, SHIFT):
    LANES, ROWS, SEGMENTS, LEFT, RIGHT = layout(L, K, SHIFT)
    SPAN = LANES * EACH  # times of a row that a warp has at once
    X_SPAN = LEFT + SPAN + RIGHT
    X_WORDS = ROWS * X_SPAN
    DY_WORDS = ROWS * SPAN
    X_TURNS = -(-X_WORDS // 128)
    DY_TURNS = -(-DY_WORDS // 128)
    QUADS = EACH // 4
    accumulate = straight_line.strip_taps(EACH, K, SHIFT, LEFT)

    add_lanes = straight_line.warp_sums(K)

    @cuda.jit(device=True, forceinline=True)
    def bring(tile, source, row, pitch, entries, t0, span, words, turns, lane):
        for m in range(turns):
            i = uint32(lane * uint32(4) + uint32(128 * m))
            r = uint32(i // uint32(span)) if ROWS > 1 else uint32(0)
            t = uint32(t0 + uint32(i - r * uint32(span)))  # left of the row: wraps to a huge number
            if i < words:
                if r < entries and t < L:
                    ptx.copy4_async(tile, i, source, row + np.int64(uint32(r * pitch + t)))
                else:
                    ptx.store4_shared(tile, i, float32(0), float32(0), float32(0), float32(0))

    @cuda.jit
    def kernel(dy, x, parts, shift):
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        dy_tile = cuda.shared.array(DY_WORDS, float32, 16)
        sums = cuda.local.array(K, float32)
        back = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        H, B = uint32(x.shape[1]), uint32(x.shape[0])
        h = uint32(uint32(cuda.blockIdx.x) % H)
        split = uint32(uint32(cuda.blockIdx.x) // H)
        r = uint32(lane // uint32(LANES))
        own = uint32(lane * uint32(EACH))
        own_x = uint32(r * uint32(X_SPAN) + uint32(lane - r * uint32(LANES)) * uint32(EACH))
        if r >= ROWS:  # more lanes than strips: these repeat the first one's work, and do not count
            own = own_x = uint32(0)
        for j in range(K):
            sums[j] = float32(0)
        pitch = uint32(H * uint32(L))  # elements from a row to the same channel's next; launch() has seen that 32 fit
        item = split
        groups = uint32(uint32(B + uint32(ROWS - 1)) // uint32(ROWS))
        items = uint32(groups * uint32(SEGMENTS))  # all groups' first segments, then their second ones, …
        while item < items:
            segment = uint32(item // groups) if SEGMENTS > 1 else uint32(0)
            b = uint32(uint32(item - segment * groups) * uint32(ROWS))
            t0 = uint32(segment * uint32(SPAN))
            row = (np.int64(b) * np.int64(H) + np.int64(h)) * L
            entries = min(uint32(ROWS), uint32(B - b))
            bring(dy_tile, dy, row, pitch, entries, t0, SPAN, DY_WORDS, DY_TURNS, lane)
            bring(x_tile, x, row, pitch, entries, uint32(t0 - uint32(LEFT)), X_SPAN, X_WORDS, X_TURNS, lane)
            ptx.commit()
            ptx.wait(0)
            cuda.syncwarp()
            for m in range(QUADS):
                p, q, s, u = ptx.load4_shared(dy_tile, uint32(own + uint32(4 * m)))
                back[4 * m], back[4 * m + 1], back[4 * m + 2], back[4 * m + 3] = p, q, s, u
            accumulate(sums, back, x_tile, own_x)
            cuda.syncwarp()
            item = uint32(item + uint32(parts.shape[0]))
        if r >= ROWS:
            for j in range(K):
                sums[j] = float32(0)
        out = cuda.local.array(2, float32)
        out[0] = out[1] = float32(0)
        add_lanes(sums, lane, out)
        if lane < K:
            parts[split, h, lane] = out[0]
        if lane + 32 < K:
            parts[split, h, lane + 32] = out[1]

    return kernel


def layout(L, K, shift):
    """(lanes of a row, rows at once, segments of a row, words of halo to the left and to the right)."""
    strips = -(-L // EACH)
    lanes = min(strips, 32)
    return lanes, 32 // lanes, -(-strips // lanes), -(-(K - 1 - shift) // 4) * 4, -(-shift // 4) * 4


def splits_of(problem):
    """The warps that share a channel's rows: parts of each element of dw."""
    _, rows, segments, _, _ = layout(problem.L, problem.K, problem.shift)
    pieces = -(-problem.B // rows) * segments
    return 1 if pieces <= ALONE else min(pieces, max(1, WARPS // problem.H))


def traffic(problem):
    B, H, L, K = problem.B, problem.H, problem.L, problem.K
    lanes, rows, segments, left, right = layout(L, K, problem.shift)
    splits, warp = splits_of(problem), np.arange(32)
    t0 = np.arange(segments)[:, None, None] * lanes * EACH
    loads = np.zeros(2, np.int64)
    for b, entries in ((np.arange(B // rows) * rows, rows), (np.array([B // rows * rows]), B % rows)):
        row = (b[:, None] * H + np.arange(H)).ravel()  # the first row of each group of `entries` rows of a channel
        for odd in (0, 1):  # 16-byte pieces lie in their sectors alike for rows two apart
            for span, begin in ((lanes * EACH, t0), (left + lanes * EACH + right, t0 - left)):
                i = 4 * warp + 128 * np.arange(-(-rows * span // 128))[:, None]
                r, t = i // span, begin + i % span
                there = (i < rows * span) & (r < entries) & (t >= 0) & (t < L)
                pieces = np.where(there, (odd + r * H) * L + t, -1).reshape(-1, 32)
                loads += np.count_nonzero(row % 2 == odd) * warp_traffic(pieces)
    j = 32 * np.arange(-(-K // 32))
    return Traffic(
        load_requests=loads[0],
        load_sectors=loads[1],
        store_requests=splits * H * len(j),
        store_sectors=rows_sectors(splits * H, K, j, np.minimum(32, K - j)),
    )


def supports(problem):
    return problem.K <= MOST and problem.L % 4 == 0


@register(
    kernel=kernel,
    traffic=traffic,
    supports=supports,
    otherwise="depthwise1d/weight_grad/warp_tiled",
    aligned=16,
)
def launch(problem):
    fits_uint32(problem)
    if 32 * problem.H * problem.L >= 2**32:
        raise StageError(f"32*H*L of {problem} does not fit the kernel's 32-bit indices: use smaller sizes")
    splits = splits_of(problem)
    return Launch(grid=(problem.H * splits,), block=(32,), scalars=(problem.shift,), parts=splits)
