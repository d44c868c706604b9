"""Tensor: the stage before, its products on tensor cores; also for float16 and bfloat16.

As before a block keeps its outputs in registers and walks through the channels a step at a time, the depthwise outputs
of a step in shared memory, x and filters of the next step on their way meanwhile. But now these outputs, pixels by
channels, and the filters are the operands of a warp's matrix products (dwlab.pointwise.tiles): in 16 bits one
instruction for 16 x 8 sums of 16 products, in float32 three for sums of 8, as each operand is split in two tf32.

A read of 16 bytes from shared memory now feeds 16 or 8 rows of a product, not one; what is left to the other units are
the depthwise outputs, K*K multiply-adds each, and the reads of x for them, which runs of neighbouring pixels share. In
16 bits, x is unpacked, summed up in float32, and the depthwise outputs are rounded to the storage type.

At the end the sums go through shared memory, whose step buffers are free by then: there warps that shared the channels
meet, and from there each thread finishes and stores 16 bytes of neighbouring filters.

NHWC with whole pieces of 16 bytes; where the channels end within a step, zeros stand for the rest of it. Traffic: x
with the halos of the tiles, for each group of filters; filters for each tile.
"""

import functools
import itertools

import numpy as np
from numba import float32, uint32

from dwlab import epilogue, pieces, ptx
from dwlab.fused import dwpw_warps, outputs
from dwlab.pointwise import tiles as products
from dwlab.stages import ByShape, Launch, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, alike, warp_traffic


@functools.cache
def make(problem, tiles):
    one, two, dtype = problem.first, problem.second, problem.first.dtype
    E = 4 // problem.first.itemsize  # elements of a word; sizes in words from here on
    C, H, W, Q, F = one.C // E, one.H, one.W, one.Q, two.F
    K, S, PAD = one.K, one.stride, one.padding
    TAPS, BIAS1 = one.K * one.K, one.bias
    TH, TW, FILTERS, RUN = tiles.height, tiles.width, tiles.filters, tiles.run
    THREADS, STAGES, ROWS = tiles.threads, tiles.stages, tiles.rows
    WP, WF, WK, PITCH = tiles.warps_p, tiles.warps_f, tiles.warps_k, tiles.pitch(dtype)
    CHANNELS, PER = tiles.row_words(dtype), 4 * E
    QUADS = CHANNELS // 4
    XH, XW = tiles.footprint(K, S)
    X_PITCH = tiles.x_pitch(S, dtype)
    X_WORDS, W1_WORDS, W2_WORDS, _ = tiles.words(K, S, dtype)
    W1, W2 = X_WORDS, X_WORDS + W1_WORDS
    STEP = X_WORDS + W1_WORDS + W2_WORDS  # words of a step's x and filters
    MIDDLE, AHEAD = STAGES * STEP, STAGES - 1
    X_PIECES, W1_PIECES, W2_PIECES = XH * XW * QUADS, (TAPS + BIAS1) * QUADS, FILTERS * QUADS
    X_EACH, W1_EACH, W2_EACH = (-(-pieces // THREADS) for pieces in (X_PIECES, W1_PIECES, W2_PIECES))
    RUNS_ACROSS = TW // RUN
    RUNS = TH * RUNS_ACROSS * QUADS
    RUNS_EACH, RUN_SUMS = -(-RUNS // THREADS), PER * RUN
    STEPS, WHOLE, ACROSS = -(-C // CHANNELS), C % CHANNELS == 0, -(-Q // TW)
    NOWHERE = 0xFFFFFFFF
    M, N, K_WORDS = tiles.pixels, FILTERS // WF, CHANNELS // WK
    MOST = tiles.registers(dtype)
    middle_of = epilogue.activate(one.activation)
    unpack, pack = pieces.spread(dtype), pieces.gather(dtype)
    depthwise = dwpw_warps.depthwise(K, S, RUN, dtype, CHANNELS, XW * X_PITCH, X_PITCH)
    product = products.tensor(dtype, M, N, tiles.channels // WK, PITCH, PITCH)
    SUMS, zero, add = product.size, product.zero, product.add
    put_sums, write = outputs.put_sums(product, tiles.out_pitch), outputs.write(two, tiles)

    @cuda.jit(device=True, forceinline=True)
    def piece(pool, at, source, i, there):
        """Starts a copy of 16 bytes; zeros where the channels have ended."""
        if WHOLE or there:
            ptx.copy4_async(pool, at, source, i)
        else:
            ptx.store4_shared(pool, at, float32(0), float32(0), float32(0), float32(0))

    @cuda.jit(device=True, forceinline=True)
    def bring(pool, to, x, from_x, w1, b1, w2, f0, c0, t):
        """Starts the copies of a step: x, w1, b1 and w2 of CHANNELS words of channels from c0 on, to word `to`."""
        for i in range(X_EACH):
            item = uint32(t + uint32(i * THREADS))
            if from_x[i] != uint32(NOWHERE):
                c = uint32(item % QUADS * 4)
                at = uint32(to + item // QUADS * X_PITCH + c)
                piece(pool, at, x, uint32(from_x[i] + c0), uint32(c0 + c) < C)
        for i in range(W1_EACH):
            item = uint32(t + uint32(i * THREADS))
            if item < W1_PIECES:
                tap, c = uint32(item // QUADS), uint32(item % QUADS * 4)
                at = uint32(to + W1 + tap * CHANNELS + c)
                if tap < TAPS:
                    piece(pool, at, w1, uint32(tap * C + c0 + c), uint32(c0 + c) < C)
                else:
                    piece(pool, at, b1, uint32(c0 + c), uint32(c0 + c) < C)
        for i in range(W2_EACH):
            item = uint32(t + uint32(i * THREADS))
            if item < W2_PIECES:
                f, c = uint32(item // QUADS), uint32(item % QUADS * 4)
                row = min(uint32(f0 + f), uint32(F - 1))  # beyond the last filter: any number does
                piece(pool, uint32(to + W2 + f * PITCH + c), w2, uint32(row * C + c0 + c), uint32(c0 + c) < C)

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
                a, b, g, d = float32(0), float32(0), float32(0), float32(0)  # in 16 bits, too, words of zeros
                if BIAS1:
                    a, b, g, d = ptx.load4_shared(pool, uint32(w_at + TAPS * CHANNELS))
                for p in range(RUN):
                    unpack(sums, p * PER, a, b, g, d)
                depthwise(sums, pool, uint32(step + (row * S * XW + column * S) * X_PITCH + c), w_at)
                at = uint32(MIDDLE + (row * TW + column) * PITCH + c)
                for p in range(RUN):
                    for e in range(PER):
                        sums[p * PER + e] = middle_of(sums[p * PER + e])
                    a, b, g, d = pack(sums, p * PER)
                    ptx.store4_shared(pool, uint32(at + p * PITCH), a, b, g, d)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        ptx.grid_dependency_wait()
        pool = cuda.shared.array(0, float32, 16)
        sums = cuda.local.array(SUMS, float32)
        from_x = cuda.local.array(X_EACH, uint32)
        t = uint32(cuda.threadIdx.x)
        p0 = uint32(uint32(cuda.blockIdx.x) // ACROSS * TH)
        q0 = uint32(uint32(cuda.blockIdx.x) % ACROSS * TW)
        f0, n = uint32(uint32(cuda.blockIdx.y) * FILTERS), uint32(cuda.blockIdx.z)
        lane, warp = uint32(t & uint32(31)), uint32(t >> uint32(5))
        pixel0, filter0 = uint32(warp % WP * M), uint32(warp // WP % WF * N)  # the warp's first ones of the tile
        k = uint32(warp // (WP * WF))  # which share of a step's channels
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
                    for s in range(STAGES):
                        at = uint32(s * STEP + pixel * X_PITCH + c)
                        ptx.store4_shared(pool, at, float32(0), float32(0), float32(0), float32(0))
        if ROWS > TH * TW:  # pixels that are only there to fill the last product
            for i in range(t, (ROWS - TH * TW) * PITCH, THREADS):
                pool[uint32(MIDDLE + TH * TW * PITCH + i)] = float32(0)
        zero(sums)
        for s in range(AHEAD):
            if s < STEPS:
                bring(pool, uint32(s * STEP), x, from_x, w1, b1, w2, f0, uint32(s * CHANNELS), t)
            ptx.commit()
        now, ahead = uint32(0), uint32(AHEAD * STEP)
        a_at = uint32(MIDDLE + pixel0 * PITCH + k * K_WORDS)
        b_at = uint32(W2 + filter0 * PITCH + k * K_WORDS)
        for step in range(STEPS):
            if STAGES == 1:  # nothing ahead: bring it now
                cuda.syncthreads()
                bring(pool, uint32(0), x, from_x, w1, b1, w2, f0, uint32(uint32(step) * CHANNELS), t)
                ptx.commit()
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
            add(sums, pool, a_at, pool, uint32(b_at + now), lane)
            now = uint32(now + STEP) if now != (STAGES - 1) * STEP else uint32(0)
            ahead = uint32(ahead + STEP) if ahead != (STAGES - 1) * STEP else uint32(0)
        cuda.syncthreads()  # the last product is done: shared memory is free
        put_sums(pool, sums, lane, uint32(k * ROWS + pixel0), filter0)
        cuda.syncthreads()
        write(pool, b2, r, y, n, p0, q0, f0, t)

    return kernel


def choose(problem):
    """The tiles for a problem: those of least predicted time."""
    return dwpw_warps.choose(problem)


class Chosen(ByShape):
    """A kernel for each shape and choice of tiles; the choice looks at the batch, too."""

    def for_problem(self, problem):
        """The kernel for a problem."""
        return self.make(problem.kernel_key, choose(problem))


def launch_of(problem, tiles):
    """The launch with given tiles."""
    one, two = problem.first, problem.second
    across, down = -(-two.Q // tiles.width), -(-two.P // tiles.height)
    shared = 4 * tiles.shared(one.K, one.stride, one.dtype)
    return Launch((across * down, -(-two.F // tiles.filters), problem.N), (tiles.threads,), shared_bytes=shared)


def traffic(problem):
    return traffic_of(problem, choose(problem))


def traffic_of(problem, tiles):
    """The traffic with given tiles, in words."""
    one, two, E = problem.first, problem.second, 4 // problem.first.itemsize
    C, H, W, K, S, P, Q = one.C // E, one.H, one.W, one.K, one.stride, one.P, one.Q
    channels = tiles.row_words(one.dtype)
    quads, (xh, xw), threads = channels // 4, tiles.footprint(K, S), tiles.threads
    c0 = (np.arange(-(-C // channels)) * channels)[:, None, None]  # a step, a turn of the block, a thread

    def turns(count):
        item = np.arange(-(-count // threads))[:, None] * threads + np.arange(threads)
        return np.where(item < count, item, -1)

    def of_step(first, c, inside):
        return warp_traffic(np.where(inside & (c0 + c < C), first + c0, -1).reshape(-1, threads))

    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    item = turns((K * K + one.bias) * quads)
    tap, c = item // quads, item % quads * 4
    filters_load = of_step(tap * C + c, c, (item >= 0) & (tap < K * K)) + of_step(c, c, (item >= 0) & (tap == K * K))
    x_item, w_item = turns(xh * xw * quads), turns(tiles.filters * quads)
    images = alike(problem.N, H * W * C, P * Q * two.F // E)
    for (n, often), p0, q0 in itertools.product(images, range(0, P, tiles.height), range(0, Q, tiles.width)):
        h, v = p0 * S + x_item // quads // xw - one.padding, q0 * S + x_item // quads % xw - one.padding
        c = x_item % quads * 4
        inside = (x_item >= 0) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
        x_load = of_step(((n * H + h) * W + v) * C + c, c, inside)
        for f0 in range(0, two.F, tiles.filters):
            row, c = np.minimum(f0 + w_item // quads, two.F - 1), w_item % quads * 4
            load += often * (x_load + filters_load + of_step(row * C + c, c, w_item >= 0))
            more, stored = outputs.written(two, tiles, n, p0, q0, f0)
            load, store = load + often * more, store + often * stored
    return Traffic(*load, *store)


def supports(problem):
    one, two = problem.first, problem.second
    per = 16 // one.itemsize if problem.layout == "NHWC" and one.dtype != "int8" else 0
    if not per or one.C % per or two.F % per or problem.N >= 2**16:
        return False
    words = problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q)
    return words < 2**31 and choose(problem) is not None


@register(
    kernel=Chosen(make), traffic=traffic, supports=supports, dtypes=("float32", "float16", "bfloat16"), view="words",
    aligned=16,
)  # fmt: skip
def launch(problem):
    return launch_of(problem, choose(problem))
