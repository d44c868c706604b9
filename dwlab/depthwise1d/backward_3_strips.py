"""Strips: both gradients from one pass over dy and x, 20 neighbouring times of a row in each lane, for rows of any length.

`channels` needs a whole row in a lane, so it ends at 64 times, and longer rows took two launches: dy is read twice then,
16 bytes an element where 12 are compulsory. Here a warp has one channel, as in weight_grad's `strips`, but with the roles
exchanged: a lane holds its 20 x in registers, and dy passes by with the halo on both sides. Each dy[s - shift + j] that
a lane reads meets w[j] for dx[s] and x[s] for dw[j]: 320 multiply-adds for 8 taps, two reads of 16 bytes of dy and two
of weights, and only dy has a halo. dx takes the place of x in shared memory, which nobody else reads, and goes out
from there 16 bytes at a time.

The next piece of work is on its way while this one is computed: dy and x have two tiles each. The sums of all taps stay
in registers through the warp's whole share of the batch, meet in a tree of shuffles, and the warps' sums are parts,
added up by a second kernel in an order that is always the same, or dw itself where one warp has all of a channel.

Predicted: dy once but for halos, x once, dx once: 12 bytes an element in place of 16, and 2 K multiply-adds for them.
"""

import numpy as np
from numba import float32, uint32

from dwlab import ptx
from dwlab.depthwise1d import straight_line
from dwlab.depthwise1d.forward_7_strips import OUTPUTS, halo
from dwlab.depthwise1d.rows import store_piece, takes, words
from dwlab.stages import Launch, StageError, by_shape, fits_uint32, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, rows_sectors, warp_traffic

MOST = 64  # taps, all held in registers
WARPS = 1584  # that share the work: 12 for each multiprocessor of an H200, as many as their registers allow
ALONE = 3  # pieces of a channel's work, rows at once or segments, that a warp does rather than leave parts


@by_shape
def kernel(L, K, SHIFT, DTYPE):
    return strips_kernel(L, K, SHIFT, DTYPE, 2)


def strips_kernel(L, K, SHIFT, DTYPE, BUFFERS):
    EACH, N, STEP = OUTPUTS[DTYPE], words(L, DTYPE), words(OUTPUTS[DTYPE], DTYPE)  # times of a lane; words of row, strip
    LANES, ROWS, SEGMENTS, LEFT, RIGHT = layout(L, K, SHIFT, DTYPE)
    SPAN = LANES * STEP  # words of a row that a warp has at once
    DY_SPAN = LEFT + SPAN + RIGHT
    X_WORDS, DY_WORDS = ROWS * SPAN, ROWS * DY_SPAN
    X_TURNS, DY_TURNS = -(-X_WORDS // 128), -(-DY_WORDS // 128)
    ALL_X, ALL_DY, W_WORDS = BUFFERS * X_WORDS, BUFFERS * DY_WORDS, -(-K // 4) * 4
    QUADS, PIECE = STEP // 4, EACH // (STEP // 4)
    both_gradients = straight_line.strip_backward(EACH, K, K - 1 - SHIFT, LEFT, DTYPE)
    spread, put, add_lanes = straight_line.pieces.spread(DTYPE), store_piece(DTYPE), straight_line.warp_sums(K)

    @cuda.jit(device=True, forceinline=True)
    def bring(tile, base, source, row, pitch, entries, t0, span, words, turns, lane):
        for m in range(turns):
            i = uint32(lane * uint32(4) + uint32(128 * m))
            r = uint32(i // uint32(span)) if ROWS > 1 else uint32(0)
            t = uint32(t0 + uint32(i - r * uint32(span)))  # left of the row: wraps to a huge number
            if i < words:
                if r < entries and t < N:
                    ptx.copy4_async(tile, uint32(base + i), source, row + np.int64(uint32(r * pitch + t)))
                else:
                    ptx.store4_shared(tile, uint32(base + i), float32(0), float32(0), float32(0), float32(0))

    @cuda.jit(device=True, forceinline=True)
    def bring_both(x_tile, dy_tile, buffer, x, dy, item, groups, B, H, h, pitch, lane):
        segment = uint32(item // groups) if SEGMENTS > 1 else uint32(0)
        b = uint32(uint32(item - segment * groups) * uint32(ROWS))
        t0 = uint32(segment * uint32(SPAN))
        row = (np.int64(b) * np.int64(H) + np.int64(h)) * N
        entries = min(uint32(ROWS), uint32(B - b))
        dy0, x0 = uint32(buffer * uint32(DY_WORDS)), uint32(buffer * uint32(X_WORDS))
        bring(dy_tile, dy0, dy, row, pitch, entries, uint32(t0 - uint32(LEFT)), DY_SPAN, DY_WORDS, DY_TURNS, lane)
        bring(x_tile, x0, x, row, pitch, entries, t0, SPAN, X_WORDS, X_TURNS, lane)

    @cuda.jit(device=True, forceinline=True)
    def take(x_tile, x0, dx, item, groups, B, H, h, pitch, lane):
        segment = uint32(item // groups) if SEGMENTS > 1 else uint32(0)
        b = uint32(uint32(item - segment * groups) * uint32(ROWS))
        t0 = uint32(segment * uint32(SPAN))
        row = (np.int64(b) * np.int64(H) + np.int64(h)) * N
        entries = min(uint32(ROWS), uint32(B - b))
        for m in range(X_TURNS):
            i = uint32(lane * uint32(4) + uint32(128 * m))
            r = uint32(i // uint32(SPAN)) if ROWS > 1 else uint32(0)
            t = uint32(t0 + uint32(i - r * uint32(SPAN)))
            if i < X_WORDS and r < entries and t < N:
                p, q, s, u = ptx.load4_shared(x_tile, uint32(x0 + i))
                ptx.store4(dx, row + np.int64(uint32(r * pitch + t)), p, q, s, u)

    @cuda.jit
    def kernel(dy, x, w, dx, parts, shift):
        x_tile = cuda.shared.array(ALL_X, float32, 16)
        dy_tile = cuda.shared.array(ALL_DY, float32, 16)
        w_tile = cuda.shared.array(W_WORDS, float32, 16)
        sums = cuda.local.array(K, float32)
        values = cuda.local.array(EACH, float32)
        gradient = cuda.local.array(EACH, float32)
        lane = uint32(cuda.threadIdx.x & 31)
        H, B = uint32(x.shape[1]), uint32(x.shape[0])
        h = uint32(uint32(cuda.blockIdx.x) % H)
        split = uint32(uint32(cuda.blockIdx.x) // H)
        pitch = uint32(H * uint32(N))  # words from a row to the same channel's next; launch() has seen that 32 fit
        groups = uint32(uint32(B + uint32(ROWS - 1)) // uint32(ROWS))
        items = uint32(groups * uint32(SEGMENTS))  # all groups' first segments, then their second ones, …
        item, buffer = split, uint32(0)
        if BUFFERS == 2:
            bring_both(x_tile, dy_tile, buffer, x, dy, item, groups, B, H, h, pitch, lane)
            ptx.commit()
        for j in range(lane, W_WORDS, 32):
            w_tile[j] = w[h, uint32(K - 1) - j] if j < K else float32(0)
        r = uint32(lane // uint32(LANES))
        own = uint32(lane * uint32(STEP))
        own_dy = uint32(r * uint32(DY_SPAN) + uint32(lane - r * uint32(LANES)) * uint32(STEP))
        if r >= ROWS:  # more lanes than strips: these repeat the first one's work, and do not count
            own = own_dy = uint32(0)
        for j in range(K):
            sums[j] = float32(0)
        while item < items:
            after = uint32(item + uint32(parts.shape[0]))
            if BUFFERS == 2:
                if after < items:
                    bring_both(x_tile, dy_tile, uint32(buffer ^ 1), x, dy, after, groups, B, H, h, pitch, lane)
                ptx.commit()
                ptx.wait(1)
            else:
                bring_both(x_tile, dy_tile, buffer, x, dy, item, groups, B, H, h, pitch, lane)
                ptx.commit()
                ptx.wait(0)
            cuda.syncwarp()
            x0 = uint32(buffer * uint32(X_WORDS))
            for m in range(QUADS):
                p, q, s, u = ptx.load4_shared(x_tile, uint32(x0 + own + uint32(4 * m)))
                spread(values, PIECE * m, p, q, s, u)
            for i in range(EACH):
                gradient[i] = float32(0)
            both_gradients(sums, gradient, values, dy_tile, uint32(buffer * uint32(DY_WORDS) + own_dy), w_tile)
            cuda.syncwarp()
            if r < ROWS:
                for m in range(QUADS):
                    put(x_tile, uint32(x0 + own + uint32(4 * m)), gradient, m)
            cuda.syncwarp()
            take(x_tile, x0, dx, item, groups, B, H, h, pitch, lane)
            cuda.syncwarp()
            item = after
            if BUFFERS == 2:
                buffer = uint32(buffer ^ 1)
        if r >= ROWS:
            for j in range(K):
                sums[j] = float32(0)
        out = cuda.local.array(2, float32)
        out[0] = out[1] = float32(0)
        add_lanes(sums, lane, out)
        if lane < K:
            parts[split, h, uint32(K - 1) - lane] = out[0]
        if lane + 32 < K:
            parts[split, h, uint32(K - 33) - lane] = out[1]

    return kernel


def layout(L, K, shift, dtype):
    """(lanes of a row, rows at once, segments of a row, words of dy's halo to the left and to the right)."""
    strips = -(-L // OUTPUTS[dtype])
    lanes = min(strips, 32)
    return lanes, 32 // lanes, -(-strips // lanes), *halo(K, K - 1 - shift, dtype)


def splits_of(problem):
    """The warps that share a channel's rows: parts of each element of dw."""
    _, rows, segments, _, _ = layout(problem.L, problem.K, problem.shift, problem.dtype)
    pieces = -(-problem.B // rows) * segments
    return 1 if pieces <= ALONE else min(pieces, max(1, WARPS // problem.H))


def traffic(problem):
    B, H, K, n = problem.B, problem.H, problem.K, words(problem.L, problem.dtype)
    lanes, rows, segments, left, right = layout(problem.L, K, problem.shift, problem.dtype)
    span, splits, warp = lanes * words(OUTPUTS[problem.dtype], problem.dtype), splits_of(problem), np.arange(32)
    t0 = np.arange(segments)[:, None, None] * span
    x, dy = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for b, entries in ((np.arange(B // rows) * rows, rows), (np.array([B // rows * rows]), B % rows)):
        row = (b[:, None] * H + np.arange(H)).ravel()  # the first row of each group of `entries` rows of a channel
        for odd in (0, 1):  # 16-byte pieces lie in their sectors alike for rows two apart
            for found, width, begin in ((x, span, t0), (dy, left + span + right, t0 - left)):
                i = 4 * warp + 128 * np.arange(-(-rows * width // 128))[:, None]
                r, t = i // width, begin + i % width
                there = (i < rows * width) & (r < entries) & (t >= 0) & (t < n)
                pieces = np.where(there, (odd + r * H) * n + t, -1).reshape(-1, 32)
                found += np.count_nonzero(row % 2 == odd) * warp_traffic(pieces)
    j = 32 * np.arange(-(-K // 32))
    filters = splits * np.array([H * len(j), rows_sectors(H, K, np.maximum(0, K - 32 - j), np.minimum(32, K - j))])
    return Traffic(
        *(x + dy + filters),
        store_requests=x[0] + splits * H * len(j),
        store_sectors=x[1] + rows_sectors(splits * H, K, np.maximum(0, K - 32 - j), np.minimum(32, K - j)),
    )


def supports(problem):
    return problem.K <= MOST and takes(problem)


@register(kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/backward/naive", aligned=16)
def launch(problem):
    fits_uint32(problem)
    if 32 * problem.H * problem.L >= 2**32:
        raise StageError(f"32*H*L of {problem} does not fit the kernel's 32-bit indices: use smaller sizes")
    splits = splits_of(problem)
    return Launch(grid=(problem.H * splits,), block=(32,), scalars=(problem.shift,), parts=splits)
