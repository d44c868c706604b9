"""Slide: no copies ahead and no steps: x goes straight to registers, filters straight to the tensor cores.

The stage before copies x to shared memory, reads each of it K times from there, writes the depthwise outputs back, and
does so a few channels a step, with two barriers each. It spends its time in shared memory and at barriers, not on
tensor cores. Here a thread has a piece of channels and `run` neighbouring columns, and slides down the tile's rows as
depthwise2d's `wide` does: each piece of x comes from global memory once for a row of its outputs, and is part of all
their sums in registers. What goes to shared memory are the depthwise outputs of all channels, once (of as many as there
is room for, if it is too small). After one barrier the warps multiply them with filters that come past shared memory,
16 bytes a lane: each warp has filters of its own, so no other needs them.

While some warps of a multiprocessor wait for x, others of other blocks multiply: small blocks, several at a time.

NHWC with whole pieces of 16 bytes. Traffic: x with the halos of the tiles, and K-1 columns for each run, for each group
of filters (the columns from the L1 cache); filters for each tile.
"""

import functools

import numpy as np
from numba import float32, int32, uint32

from dwlab import epilogue, pieces, ptx
from dwlab.depthwise1d.straight_line import in_turn
from dwlab.fused import outputs, slide_tiles
from dwlab.pointwise import tiles as products
from dwlab.stages import Launch, by_shape, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, warp_traffic


def sliding(layer, run, pitch_of_row):
    """slide(pool, to, x, w, b, base, h, bottom, v, c): a run's depthwise outputs of a piece of channels, to shared memory.

    to: word of the first output in pool, `pitch_of_row` = (words between pixels, between rows, rows). base: word of x
    at row h and column v, the first that the outputs need, of channel word c; from row `bottom` on there are zeros.
    """
    C, W, K, S, V = layer.C * layer.itemsize // 4, layer.W, layer.K, layer.stride, pieces.elements(layer.dtype)
    PITCH, DOWN, HEIGHT = pitch_of_row
    DEEP, ROWS, COLUMNS = -(-K // S), min(K, S), (run - 1) * S + K  # rows of sums; rows and columns of x a step
    SUMS, WORDS, VALUES, FRESH, BIAS = -(-K // S) * run * V, ROWS * COLUMNS * 4, ROWS * COLUMNS * V, run * V, layer.bias
    KEEP = K <= 3 and V == 4  # the taps in registers; else they come from the L1 cache at each step
    TAPS = K * K * V if KEEP else V
    spread, gather, activate = pieces.spread(layer.dtype), pieces.gather(layer.dtype), epilogue.activate(layer.activation)

    def ask_one(s, j):
        place, at = (s * W + j) * C, (s * COLUMNS + j) * 4

        @cuda.jit(device=True, forceinline=True)
        def ask(words, x, base, h, bottom, v):
            if uint32(h + s) < uint32(bottom) and uint32(v + j) < uint32(W):
                p, q, t, u = ptx.load4(x, uint32(base + uint32(place)))
            else:
                p = q = t = u = float32(0)
            words[at], words[at + 1], words[at + 2], words[at + 3] = p, q, t, u

        return ask

    @cuda.jit(device=True, forceinline=True)
    def tap(taps, at, w, i):
        p, q, t, u = ptx.load4(w, i)
        spread(taps, at, p, q, t, u)

    def multiply_one(s, deep, j):
        i, first, above = (s + S * deep) * K + j, deep * FRESH, (s * COLUMNS + j) * V

        @cuda.jit(device=True, forceinline=True)
        def multiply(sums, values, taps, w, c):
            if KEEP:
                for e in range(run):
                    for k in range(V):
                        sums[first + e * V + k] += taps[i * V + k] * values[above + e * S * V + k]
            else:
                tap(taps, 0, w, uint32(c + uint32(i * C)))
                for e in range(run):
                    for k in range(V):
                        sums[first + e * V + k] += taps[k] * values[above + e * S * V + k]

        return multiply

    ask = in_turn([ask_one(s, j) for s in range(ROWS) for j in range(COLUMNS)], arguments=6)
    taken = [(s, deep, j) for s in range(ROWS) for deep in range(DEEP) for j in range(K) if s + S * deep < K]
    multiply = in_turn([multiply_one(*one) for one in taken], arguments=5)

    @cuda.jit(device=True, forceinline=True)
    def slide(pool, to, x, w, b, base, h, bottom, v, c):
        taps = cuda.local.array(TAPS, float32)
        bias = cuda.local.array(V, float32)
        sums = cuda.local.array(SUMS, float32)
        words = cuda.local.array(WORDS, float32)
        ahead = cuda.local.array(WORDS, float32)
        values = cuda.local.array(VALUES, float32)
        ask(words, x, base, h, bottom, v)
        if KEEP:
            for i in range(K * K):
                tap(taps, i * V, w, uint32(c + uint32(i * C)))
        for k in range(V):
            bias[k] = float32(0)
        if BIAS:
            tap(bias, 0, b, c)
        for k in range(SUMS):
            sums[k] = float32(0)
        for step in range(HEIGHT + DEEP - 1):
            h = int32(h + S)
            base = uint32(base + uint32(S * W * C))
            ask(ahead, x, base, h, bottom, v)
            for n in range(WORDS // 4):
                k = 4 * n
                spread(values, n * V, words[k], words[k + 1], words[k + 2], words[k + 3])
            multiply(sums, values, taps, w, c)
            if step >= DEEP - 1:
                for e in range(run):
                    for k in range(V):
                        i = (DEEP - 1) * FRESH + e * V + k
                        sums[i] = activate(sums[i] + bias[k])
                    p, q, t, u = gather(sums, (DEEP - 1) * FRESH + e * V)
                    ptx.store4_shared(pool, uint32(to + uint32(e * PITCH)), p, q, t, u)
                to = uint32(to + uint32(DOWN))
            for k in range((DEEP - 1) * FRESH):
                sums[SUMS - 1 - k] = sums[SUMS - 1 - k - FRESH]
            for k in range(FRESH):
                sums[k] = float32(0)
            for k in range(WORDS):
                words[k] = ahead[k]

    return slide


@functools.cache
def make(problem, tiles):
    one, two, dtype = problem.first, problem.second, problem.first.dtype
    E = 4 // one.itemsize  # elements of a word; sizes in words from here on
    C, Y, H, W, P, Q, F = one.C // E, two.F // E, one.H, one.W, one.P, one.Q, two.F
    K, S, PAD, RUN = one.K, one.stride, one.padding, tiles.run
    TH, TW, FILTERS, WORDS, THREADS = tiles.height, tiles.width, tiles.filters, tiles.words, tiles.threads
    WP, WF, WK, PITCH, OUT, ROWS = tiles.warps_p, tiles.warps_f, tiles.warps_k, tiles.pitch, tiles.out_pitch, tiles.rows
    M, N = tiles.pixels, tiles.columns
    PIECES, ITEMS, ACROSS, WHOLE = WORDS // 4, tiles.items(), -(-Q // TW), C % WORDS == 0
    GROUPS, SPARE, PER = WORDS // slide_tiles.GROUP // WK, (ROWS - TH * TW) * PITCH, 4 * E
    OUTPUTS, OUT_PIECES = TH * TW * (FILTERS // PER), FILTERS // PER
    slide = sliding(one, RUN, (PITCH, TW * PITCH, TH))
    product = products.beside(dtype, M, N, PITCH)
    SUMS, B_WORDS, zero, add = product.size, N // 2, product.zero, product.add
    put_sums, finish = outputs.put_sums(product, OUT), outputs.finish(two, WK, ROWS * OUT)

    @cuda.jit(device=True, forceinline=True)
    def ask_filters(words, w, f, k):
        """This lane's words of B from word k of the channels on, of filters f, f + 8, …"""
        for j in range(N // 8):
            row = min(uint32(f + uint32(8 * j)), uint32(F - 1))  # beyond the last filter: any number does
            if WHOLE or k < C:
                p, q, s, u = ptx.load4(w, uint32(row * C + k))
            else:
                p = q = s = u = float32(0)
            words[4 * j], words[4 * j + 1], words[4 * j + 2], words[4 * j + 3] = p, q, s, u

    @cuda.jit(max_registers=tiles.registers)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        pool = cuda.shared.array(0, float32, 16)
        sums = cuda.local.array(SUMS, float32)
        words = cuda.local.array(B_WORDS, float32)
        ahead = cuda.local.array(B_WORDS, float32)
        t = uint32(cuda.threadIdx.x)
        p0 = uint32(uint32(cuda.blockIdx.x) // ACROSS * TH)
        q0 = uint32(uint32(cuda.blockIdx.x) % ACROSS * TW)
        f0, n = uint32(uint32(cuda.blockIdx.y) * FILTERS), uint32(cuda.blockIdx.z)
        lane, warp = uint32(t & uint32(31)), uint32(t >> uint32(5))
        pixel0, filter0 = uint32(warp % WP * M), uint32(warp // WP % WF * N)  # the warp's first ones of the tile
        share = uint32(warp // (WP * WF))  # of the channels
        k0 = uint32(share * (GROUPS * 16) + lane % uint32(4) * uint32(4))
        f = uint32(f0 + filter0 + lane // uint32(4))
        a_at = uint32((pixel0 + lane // uint32(4)) * PITCH + k0)
        h = int32(p0 * S) - int32(PAD)
        bottom = min(int32(H), int32(h + ((TH - 1) * S + K)))  # rows of x from here on are for other tiles
        zero(sums)
        for i in range(t, SPARE, THREADS):  # pixels that are only there to fill the last product
            pool[uint32(TH * TW * PITCH + i)] = float32(0)
        for c0 in range(0, C, WORDS):
            if WORDS < C:
                cuda.syncthreads()  # the products of the channels before are done
            for i in range(t, ITEMS, THREADS):
                item = uint32(i)
                c, column = uint32(item % PIECES * 4), uint32(item // PIECES * RUN)
                v = int32((q0 + column) * S) - int32(PAD)
                to = uint32(column * PITCH + c)
                c = uint32(c0 + c)
                if WHOLE or c < C:
                    base = uint32(((n * H + uint32(h)) * W + uint32(v)) * C + c)
                    slide(pool, to, x, w1, b1, base, h, bottom, v, c)
                else:
                    for place in range(TH * TW // (TW // RUN)):
                        at = uint32(to + uint32(place // RUN * (TW * PITCH) + place % RUN * PITCH))
                        ptx.store4_shared(pool, at, float32(0), float32(0), float32(0), float32(0))
            k = uint32(c0 + k0)
            ask_filters(ahead, w2, f, k)
            cuda.syncthreads()
            at = a_at
            for group in range(GROUPS):
                for e in range(B_WORDS):
                    words[e] = ahead[e]
                if group + 1 < GROUPS:
                    k = uint32(k + uint32(16))
                    ask_filters(ahead, w2, f, k)
                add(sums, pool, at, words)
                at = uint32(at + uint32(16))
        cuda.syncthreads()  # the last product is done: shared memory is free
        put_sums(pool, sums, lane, uint32(share * ROWS + pixel0), filter0)
        cuda.syncthreads()
        for i in range(t, OUTPUTS, THREADS):
            pixel, g = uint32(uint32(i) // OUT_PIECES), uint32(uint32(i) % OUT_PIECES * PER)
            p, q = uint32(p0 + pixel // TW), uint32(q0 + pixel % TW)
            if p < P and q < Q and f0 + g < F:
                to = uint32(((n * P + p) * Q + q) * Y + (f0 + g) // E)
                finish(pool, uint32(pixel * OUT + g), b2, r, y, uint32(f0 + g), to)

    return kernel


@by_shape
def kernel(layer, images):
    return make(layer, choose(layer, images))


def choose(problem, images):
    """The tiles for so many images of a problem: those of least predicted time."""
    return slide_tiles.choose(problem, images)


def launch_of(problem, tiles):
    """The launch with given tiles."""
    across, down = -(-problem.second.Q // tiles.width), -(-problem.second.P // tiles.height)
    grid = (across * down, -(-problem.second.F // tiles.filters), problem.N)
    return Launch(grid, (tiles.threads,), shared_bytes=4 * tiles.shared)


def traffic(problem):
    return traffic_of(problem, choose(problem.kernel_key, problem.N))


def traffic_of(problem, tiles):
    """The traffic with given tiles, in words."""
    one, two, E = problem.first, problem.second, 4 // problem.first.itemsize
    C, Y, H, W, K, S, P, Q = one.C // E, two.F // E, one.H, one.W, one.K, one.stride, one.P, one.Q
    threads, words, run, out_pieces = tiles.threads, tiles.words, tiles.run, tiles.filters // (4 * E)
    thread = np.arange(threads)

    def turns(count):
        item = np.arange(-(-count // threads))[:, None] * threads + thread
        return np.where(item < count, item, -1)

    item = turns(tiles.items())
    column, c = item // (words // 4) * run, item % (words // 4) * 4 + np.arange(0, C, words)[:, None, None]
    there = (item >= 0) & (c < C)
    taps = [np.where(there, c + i * C, -1).reshape(-1, threads) for i in range(K * K)]
    again = 1 if K <= 3 and E == 1 else tiles.height + -(-K // S) - 1  # the taps are in registers, or read at each step
    filters_load = warp_traffic(np.concatenate(taps)) * again
    filters_load += warp_traffic(np.where(there, c, -1).reshape(-1, threads)) * one.bias
    lane, warp = thread % 32, thread // 32
    groups = words // 16 // tiles.warps_k
    k = warp // (tiles.warps_p * tiles.warps_f) * (groups * 16) + lane % 4 * 4
    k = k + (np.arange(groups) * 16)[:, None] + np.arange(0, C, words)[:, None, None]
    filter0 = warp // tiles.warps_p % tiles.warps_f * tiles.columns + lane // 4
    out = turns(tiles.height * tiles.width * out_pieces)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for n, p0, q0 in np.ndindex(problem.N, -(-P // tiles.height), -(-Q // tiles.width)):
        p0, q0 = p0 * tiles.height, q0 * tiles.width
        x_load = np.zeros(2, np.int64)
        below = [i for i in range((tiles.height - 1) * S + K) if i % S < K]  # rows that some output needs
        for h in (p0 * S - one.padding + i for i in below):
            for j in range((run - 1) * S + K):
                v = (q0 + column) * S - one.padding + j
                inside = there & (0 <= h < H) & (0 <= v) & (v < W)
                x_load += warp_traffic(np.where(inside, ((n * H + h) * W + v) * C + c, -1).reshape(-1, threads))
        for f0 in range(0, two.F, tiles.filters):
            load += x_load + filters_load
            for j in range(tiles.columns // 8):
                row = np.minimum(f0 + filter0 + 8 * j, two.F - 1)
                load += warp_traffic(np.where(k < C, row * C + k, -1).reshape(-1, threads))
            pixel, f = out // out_pieces, f0 // E + out % out_pieces * 4
            p, q = p0 + pixel // tiles.width, q0 + pixel % tiles.width
            at = np.where((out >= 0) & (p < P) & (q < Q) & (f < Y), ((n * P + p) * Q + q) * Y + f, -1)
            load += warp_traffic(np.where(at >= 0, f, -1)) * two.bias + warp_traffic(at) * two.residual
            store += warp_traffic(at)
    return Traffic(*load, *store)


def supports(problem):
    one, two = problem.first, problem.second
    per = 16 // one.itemsize if problem.layout == "NHWC" and one.dtype != "int8" else 0
    if not per or one.C % per or two.F % per or problem.N >= 2**16 or one.K > 7:
        return False
    words = problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q)
    return words < 2**31 and choose(problem.kernel_key, problem.N) is not None


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16", "bfloat16"), view="words",
    aligned=16,
)  # fmt: skip
def launch(problem):
    return launch_of(problem, choose(problem.kernel_key, problem.N))
