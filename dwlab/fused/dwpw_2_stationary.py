"""Stationary: sums stay in registers, channels come in steps, and each step's x is on its way before it is needed.

The stage before keeps all channels of a tile: few pixels for many channels, every filter read once for few pixels, and
each multiplication reads two numbers from shared memory. Here a block keeps its outputs, 64 a thread and fewer, and
walks through the channels 16 or so at a time. In a step it computes their depthwise outputs for its pixels, into
shared memory, and multiplies them with 16 columns of the pointwise filters. Four channels of 8 pixels and 8 filters are
256 multiply-adds for 16 reads of 16 bytes. x, halo included, and both layers' filters of the next step are copied
meanwhile, past the registers.

Few outputs of many channels (the last maps of the networks, one image) are no work for 132 multiprocessors unless the
blocks get small: then warps, and lanes, share the channels of the same outputs, and their sums meet at the end.

Blocks of other filters compute the same depthwise outputs again: K*K multiply-adds for each channel and pixel, beside
as many as the block has filters.

NHWC with whole pieces of four channels. Traffic: x with the halos of the tiles, for each group of filters; filters for
each tile.
"""

import functools
import itertools

import numpy as np
from numba import float32, uint32

from dwlab import epilogue, ptx
from dwlab.depthwise1d.straight_line import in_turn
from dwlab.fused import dwpw_tiles
from dwlab.stages import ByShape, Launch, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, alike, warp_traffic


@functools.cache
def make(problem, tiles):
    one, two = problem.first, problem.second
    C, H, W, K, S, PAD, P, Q, F = one.C, one.H, one.W, one.K, one.stride, one.padding, one.P, one.Q, two.F
    TAPS, BIAS1, BIAS2, RESIDUAL = one.K * one.K, one.bias, two.bias, two.residual
    TH, TW, FILTERS, CHANNELS, RUN = tiles.height, tiles.width, tiles.filters, tiles.channels, tiles.run
    THREADS, QUADS, PITCH, ROWS, STAGES = tiles.threads, tiles.quads, 4 * tiles.pitch, tiles.rows, tiles.stages
    PIXELS, EACH, WP, WF, LP, LF = tiles.pixels, tiles.each, tiles.warps_p, tiles.warps_f, tiles.lanes_p, tiles.lanes_f
    LK, WK, SHARES = tiles.lanes_k, tiles.warps_k, tiles.shares
    XH, XW = tiles.footprint(K, S)
    X_PITCH = 4 * tiles.x_pitch(S)
    X_WORDS, W1_WORDS, W2_WORDS, _ = tiles.words(K, S)
    W1, W2 = X_WORDS, X_WORDS + W1_WORDS
    STEP = X_WORDS + W1_WORDS + W2_WORDS  # words of a step's x and filters
    MIDDLE, SHARED = STAGES * STEP, tiles.shared(K, S)
    X_PIECES, W1_PIECES, W2_PIECES = XH * XW * QUADS, (TAPS + BIAS1) * QUADS, FILTERS * QUADS
    X_EACH, W1_EACH, W2_EACH = (-(-pieces // THREADS) for pieces in (X_PIECES, W1_PIECES, W2_PIECES))
    RUNS_ACROSS = TW // RUN
    RUNS = TH * RUNS_ACROSS * QUADS
    RUNS_EACH = -(-RUNS // THREADS)
    STEPS, TURNS, ACROSS = C // CHANNELS, QUADS // SHARES, -(-Q // TW)
    AHEAD = STAGES - 1
    OUTPUTS, SUMS = TH * TW * FILTERS, PIXELS * EACH
    MOST = 128 if PIXELS * EACH <= 64 else 168  # registers of a thread
    NOWHERE, RUN_SUMS = 0xFFFFFFFF, 4 * RUN
    middle_of, activate = epilogue.activate(one.activation), epilogue.activate(two.activation)
    depthwise = dwpw_tiles.depthwise(K, S, RUN, CHANNELS, XW * X_PITCH, X_PITCH)
    product = dwpw_tiles.product(PIXELS, EACH, LP * PITCH, LF * PITCH)
    lanes, add_lanes = dwpw_tiles.lanes(LP, LF, LK), dwpw_tiles.add_lanes(SUMS, LK)

    @cuda.jit(device=True, forceinline=True)
    def bring(pool, to, x, from_x, w1, b1, w2, f0, c0, t):
        """Starts the copies of a step: x, w1, b1 and w2 of CHANNELS channels from c0 on, to word `to`."""
        for i in range(X_EACH):
            item = uint32(t + uint32(i * THREADS))
            if from_x[i] != uint32(NOWHERE):
                at = uint32(to + item // QUADS * X_PITCH + item % QUADS * 4)
                ptx.copy4_async(pool, at, x, uint32(from_x[i] + c0))
        for i in range(W1_EACH):
            item = uint32(t + uint32(i * THREADS))
            if item < W1_PIECES:
                tap, c = uint32(item // QUADS), uint32(item % QUADS * 4)
                at = uint32(to + W1 + tap * CHANNELS + c)
                if tap < TAPS:
                    ptx.copy4_async(pool, at, w1, uint32(tap * C + c0 + c))
                else:
                    ptx.copy4_async(pool, at, b1, uint32(c0 + c))
        for i in range(W2_EACH):
            item = uint32(t + uint32(i * THREADS))
            if item < W2_PIECES:
                f, c = uint32(item // QUADS), uint32(item % QUADS * 4)
                row = min(uint32(f0 + f), uint32(F - 1))  # beyond the last filter: any number does
                ptx.copy4_async(pool, uint32(to + W2 + f * PITCH + c), w2, uint32(row * C + c0 + c))

    @cuda.jit(device=True, forceinline=True)
    def spread(pool, step, t):
        """The depthwise outputs of a step, from the word `step` on, to the middle."""
        for i in range(RUNS_EACH):
            item = uint32(t + uint32(i * THREADS))
            if RUNS % THREADS == 0 or item < RUNS:
                c, place = uint32(item % QUADS * 4), uint32(item // QUADS)
                row, column = uint32(place // RUNS_ACROSS), uint32(place % RUNS_ACROSS * RUN)
                sums = cuda.local.array(RUN_SUMS, float32)
                w_at = uint32(step + W1 + c)
                a, b, g, d = float32(0), float32(0), float32(0), float32(0)
                if BIAS1:
                    a, b, g, d = ptx.load4_shared(pool, uint32(w_at + TAPS * CHANNELS))
                for p in range(RUN):
                    sums[4 * p], sums[4 * p + 1], sums[4 * p + 2], sums[4 * p + 3] = a, b, g, d
                depthwise(sums, pool, uint32(step + (row * S * XW + column * S) * X_PITCH + c), w_at)
                at = uint32(MIDDLE + (row * TW + column) * PITCH + c)
                for p in range(RUN):
                    a, b = middle_of(sums[4 * p]), middle_of(sums[4 * p + 1])
                    g, d = middle_of(sums[4 * p + 2]), middle_of(sums[4 * p + 3])
                    ptx.store4_shared(pool, uint32(at + p * PITCH), a, b, g, d)

    def stores(i):
        @cuda.jit(device=True, forceinline=True)
        def store(y, r, sums, places, f):
            at = uint32(places[i] + f)
            if places[i] != uint32(NOWHERE):
                for j in range(EACH):
                    if uint32(f + j * LF) < F:
                        value = activate(sums[i * EACH + j])
                        if RESIDUAL:
                            value += r[uint32(at + j * LF)]
                        y[uint32(at + j * LF)] = value

        return store

    store = in_turn([stores(i) for i in range(PIXELS)], arguments=5)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        pool = cuda.shared.array(SHARED, float32, 16)
        sums = cuda.local.array(SUMS, float32)
        from_x = cuda.local.array(X_EACH, uint32)
        t = uint32(cuda.threadIdx.x)
        p0 = uint32(uint32(cuda.blockIdx.x) // ACROSS * TH)
        q0 = uint32(uint32(cuda.blockIdx.x) % ACROSS * TW)
        f0, n = uint32(uint32(cuda.blockIdx.y) * FILTERS), uint32(cuda.blockIdx.z)
        lane, warp = uint32(t & uint32(31)), uint32(t >> uint32(5))
        k, lane_p, lane_f = lanes(lane)
        k = uint32(warp // (WP * WF) * LK + k)  # which of the SHARES threads of an output
        pixel0 = uint32(warp % WP * (PIXELS * LP) + lane_p)  # the thread's first pixel and filter of the tile
        filter0 = uint32(warp // WP % WF * (EACH * LF) + lane_f)
        for i in range(X_EACH):
            item = uint32(t + uint32(i * THREADS))
            pixel, c = uint32(item // QUADS), uint32(item % QUADS * 4)
            h = uint32(p0 * S + pixel // XW - PAD)  # above the map: wraps to a huge number
            v = uint32(q0 * S + pixel % XW - PAD)
            from_x[i] = uint32(NOWHERE)
            if item < X_PIECES:
                if h < H and v < W:
                    from_x[i] = uint32(((n * H + h) * W + v) * C + c)
                else:  # outside at every step: zeros that no copy overwrites
                    zero = float32(0)
                    for s in range(STAGES):
                        ptx.store4_shared(pool, uint32(s * STEP + pixel * X_PITCH + c), zero, zero, zero, zero)
        if ROWS > TH * TW:  # pixels that are only there to fill the last threads
            for i in range(t, (ROWS - TH * TW) * PITCH, THREADS):
                pool[uint32(MIDDLE + TH * TW * PITCH + i)] = float32(0)
        for j in range(EACH):
            f = uint32(f0 + filter0 + j * LF)
            bias = float32(0)
            if BIAS2 and WK == 1 and k == 0 and f < F:
                bias = b2[f]
            for i in range(PIXELS):
                sums[i * EACH + j] = bias
        for s in range(AHEAD):
            if s < STEPS:
                bring(pool, uint32(s * STEP), x, from_x, w1, b1, w2, f0, uint32(s * CHANNELS), t)
            ptx.commit()
        if STAGES == 1:
            bring(pool, uint32(0), x, from_x, w1, b1, w2, f0, uint32(0), t)
            ptx.commit()
        now, ahead = uint32(0), uint32(AHEAD * STEP)
        p_at = uint32(MIDDLE + pixel0 * PITCH + k * 4)
        f_at = uint32(W2 + filter0 * PITCH + k * 4)
        for step in range(STEPS):
            if STAGES > 2:
                ptx.wait(1)
            else:
                ptx.wait(0)
            cuda.syncthreads()
            if STAGES > 1:
                if step + AHEAD < STEPS:
                    bring(pool, ahead, x, from_x, w1, b1, w2, f0, uint32(uint32(step + AHEAD) * CHANNELS), t)
                ptx.commit()
            spread(pool, now, t)
            cuda.syncthreads()
            for turn in range(TURNS):
                at = uint32(uint32(turn) * (4 * SHARES))
                product(sums, pool, uint32(p_at + at), uint32(f_at + now + at))
            now = uint32(now + STEP) if now != (STAGES - 1) * STEP else uint32(0)
            ahead = uint32(ahead + STEP) if ahead != (STAGES - 1) * STEP else uint32(0)
        if LK > 1:
            add_lanes(sums)
        if WK == 1:
            places = cuda.local.array(PIXELS, uint32)
            for i in range(PIXELS):
                pixel = uint32(pixel0 + i * LP)
                p, q = uint32(p0 + pixel // TW), uint32(q0 + pixel % TW)
                places[i] = uint32(((n * P + p) * Q + q) * F)
                if k != 0 or pixel >= TH * TW or p >= P or q >= Q:
                    places[i] = uint32(NOWHERE)
            store(y, r, sums, places, uint32(f0 + filter0))
        else:
            cuda.syncthreads()  # the last product is done: shared memory is free
            if k % LK == 0:
                at = uint32((warp // (WP * WF) * ROWS + pixel0) * FILTERS + filter0)
                for i in range(PIXELS):
                    for j in range(EACH):
                        pool[uint32(at + i * LP * FILTERS + j * LF)] = sums[i * EACH + j]
            cuda.syncthreads()
            for item in range(t, OUTPUTS, THREADS):
                pixel, f = uint32(uint32(item) // FILTERS), uint32(f0 + uint32(item) % FILTERS)
                p, q = uint32(p0 + pixel // TW), uint32(q0 + pixel % TW)
                if p < P and q < Q and f < F:
                    total = float32(0)
                    for share in range(WK):
                        total += pool[uint32(uint32(item) + share * ROWS * FILTERS)]
                    if BIAS2:
                        total += b2[f]
                    value = activate(total)
                    at = uint32(((n * P + p) * Q + q) * F + f)
                    if RESIDUAL:
                        value += r[at]
                    y[at] = value

    return kernel


def choose(problem):
    """The tiles for a problem: those of least predicted time."""
    return dwpw_tiles.choose(problem)


class Chosen(ByShape):
    """A kernel for each shape and choice of tiles; the choice looks at the batch, too."""

    def for_problem(self, problem):
        """The kernel for a problem."""
        return self.make(problem.kernel_key, choose(problem))


def launch_of(problem, tiles):
    """The launch with given tiles."""
    across, down = -(-problem.second.Q // tiles.width), -(-problem.second.P // tiles.height)
    return Launch((across * down, -(-problem.second.F // tiles.filters), problem.N), (tiles.threads,))


def traffic(problem):
    return traffic_of(problem, choose(problem))


def traffic_of(problem, tiles):
    """The traffic with given tiles."""
    one, two = problem.first, problem.second
    C, H, W, K, S, P, Q, F = one.C, one.H, one.W, one.K, one.stride, one.P, one.Q, two.F
    quads, (xh, xw), threads, steps = tiles.quads, tiles.footprint(K, S), tiles.threads, C // tiles.channels
    thread = np.arange(threads)
    c0 = (np.arange(steps) * tiles.channels)[:, None, None]  # a step, a turn of the block, a thread

    def turns(pieces):
        item = np.arange(-(-pieces // threads))[:, None] * threads + thread
        return np.where(item < pieces, item, -1)

    def of_step(first, inside):
        found = np.where(inside, first + c0, -1)
        return warp_traffic(found.reshape(-1, threads))

    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    item = turns((K * K + one.bias) * quads)
    tap, c = item // quads, item % quads * 4
    filters_load = of_step(tap * C + c, (item >= 0) & (tap < K * K)) + of_step(c, (item >= 0) & (tap == K * K))
    x_item, w_item = turns(xh * xw * quads), turns(tiles.filters * quads)
    lane, warp = thread % 32, thread // 32
    lane_k, lane_p, lane_f = tiles.places(lane)
    k = warp // (tiles.warps_p * tiles.warps_f) * tiles.lanes_k + lane_k
    pixel0 = warp % tiles.warps_p * (tiles.pixels * tiles.lanes_p) + lane_p
    filter0 = warp // tiles.warps_p % tiles.warps_f * (tiles.each * tiles.lanes_f) + lane_f
    whole, outputs = tiles.warps_k == 1, tiles.height * tiles.width * tiles.filters
    images = alike(problem.N, H * W * C, P * Q * F)
    for (n, often), p0, q0 in itertools.product(images, range(0, P, tiles.height), range(0, Q, tiles.width)):
        h, v = p0 * S + x_item // quads // xw - one.padding, q0 * S + x_item // quads % xw - one.padding
        inside = (x_item >= 0) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
        x_load = of_step(((n * H + h) * W + v) * C + x_item % quads * 4, inside)
        for f0 in range(0, F, tiles.filters):
            row = np.minimum(f0 + w_item // quads, F - 1)
            load += often * (x_load + filters_load + of_step(row * C + w_item % quads * 4, w_item >= 0))
            if whole:
                j = np.arange(tiles.each)[:, None]
                f = f0 + filter0 + j * tiles.lanes_f
                if two.bias:
                    load += often * warp_traffic(np.where((k == 0) & (f < F), f, -1))
                pixel = pixel0 + np.arange(tiles.pixels)[:, None, None] * tiles.lanes_p
                there = k == 0
            else:
                at = np.arange(0, outputs, threads)[:, None] + thread
                there = at < outputs
                pixel, f = at // tiles.filters, f0 + at % tiles.filters
            p, q = p0 + pixel // tiles.width, q0 + pixel % tiles.width
            there = there & (pixel < tiles.height * tiles.width) & (p < P) & (q < Q) & (f < F)
            at = np.where(there, ((n * P + p) * Q + q) * F + f, -1).reshape(-1, threads)
            if two.bias and not whole:
                load += often * warp_traffic(np.where(there, f, -1))
            if two.residual:
                load += often * warp_traffic(at)
            store += often * warp_traffic(at)
    return Traffic(*load, *store)


def supports(problem):
    one = problem.first
    whole = problem.layout == "NHWC" and one.C % 4 == 0 and problem.N < 2**16
    words = problem.N * max(one.C * one.H * one.W, problem.second.F * one.P * one.Q)
    return whole and words < 2**31 and dwpw_tiles.choose(problem) is not None


@register(kernel=Chosen(make), traffic=traffic, supports=supports, view="flat", aligned=16)
def launch(problem):
    return launch_of(problem, choose(problem))
