"""Planes: the tensor stage in NCHW: x comes as runs of planes, and w2 multiplies pixels instead of pixels w2.

In NCHW the rows of a map follow each other, so the rows of x that a band of outputs needs are one run for each channel,
whatever their width: it is copied in pieces of 16 bytes, rounded outwards (as depthwise2d's `planes` does), a step of
channels ahead. What is left and right of a map are other rows' elements there, and count as 0 by conditions.

A thread takes a word of neighbouring columns and goes down `run` rows: each x that it reads from shared memory is part
of all its sums, and neighbouring lanes read neighbouring words. The depthwise outputs of a step lie in shared memory as
the maps do, pixels of a channel next to each other, and are operand B of the products, rows of w2 operand A: filters x
pixels come out, as y has them. As in `tensor` one instruction of 16 bits does 16 x 8 sums of 16 products, and three do
those of 8 in float32, of operands split in two tf32. Of two steps there is room in shared memory: while some warps
multiply the outputs of the step before, others compute the next ones, and one barrier a step is enough. At the end the
sums go through shared memory and leave it as runs of y.

A block holds as many sums as registers have room for. Where the filters are more, other blocks compute the same
depthwise outputs for the rest of them; plane_tiles.choose weighs that against rows that bands read twice, filters that
each band reads again, and multiprocessors without a block.

Predicted, for 32 images of 512 channels of 14 x 14 to 512 filters in float16: 128 blocks of 256 filters and 7 rows ask
for 62 MB, mostly from the L2 cache (filters 34, x with halos and twice 20), where naive asks for 4,600: some 11 us. The
products take some 8 us of the tensor cores, and the depthwise outputs, twice each, 8 of the schedulers. None of them
hides another wholly: 15 to 25 us.

NCHW, channels a multiple of a piece (4, or 8 in 16 bits), odd K, rows and maps of any size that has tiles. Traffic: x
with the halos of the bands, for each group of filters; filters for each band.
"""

import functools
from collections import Counter

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.fused import outputs, plane_tiles, planes
from dwlab.kernels.parts import blocks, epilogue, pieces, ptx
from dwlab.kernels.parts import tiles as products
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic


@functools.cache
def make(problem, tiles):
    one, two, dtype, plan = problem.first, problem.second, problem.first.dtype, plane_tiles.plan(problem, tiles)
    E, V, MOST = plan.elements, plan.piece, plane_tiles.registers(problem, tiles)
    C, H, W, P, K, S, PAD, F = one.C, one.H, one.W, one.P, one.K, one.stride, one.padding, two.F
    TH, FILTERS, CHANNELS, RUN, THREADS = tiles.height, tiles.filters, tiles.channels, tiles.run, tiles.threads
    WP, WF, WK, TAPS, BIAS1 = tiles.warps_p, tiles.warps_f, tiles.warps_k, K * K, one.bias
    STEPS, WHOLE, SLOT, LEFT = plan.steps, C % CHANNELS == 0, plan.slot, plan.left
    W1, B1, STEP, W2_WORDS, MIDDLE_WORDS = plan.w1, plan.b1, plan.step, plan.w2_words, plan.middle_words
    W2, MIDDLE = 2 * STEP, 2 * (STEP + W2_WORDS)  # words where they begin; of two steps each
    A_PITCH, B_PITCH, ROW = plan.a_pitch, plan.b_pitch, plan.row
    X_PIECES, W1_PIECES, B1_PIECES = CHANNELS * SLOT, CHANNELS * K * K // V, CHANNELS // V
    X_EACH, W1_EACH, NOWHERE = -(-X_PIECES // THREADS), -(-W1_PIECES // THREADS), 0xFFFFFFFF
    DOWN, COLUMNS, SUMS1 = -(-TH // RUN), plan.columns, RUN * E
    COLUMNS_EACH, USED, SPARE = -(-COLUMNS // THREADS), TH * plan.row, plan.pixels // E - TH * plan.row
    M, N, K_WORDS = FILTERS // WF, plan.pixels // WP, CHANNELS // E // WK
    middle_of, pack = epilogue.activate(one.activation), pieces.PACK.get(dtype)
    columns, take1 = planes.columns(one, RUN), planes.take(1, dtype)
    product = products.tensor(dtype, M, N, CHANNELS // WK, A_PITCH, B_PITCH, "k", "mn", registers=MOST)
    SUMS, zero, add = product.size, product.zero, product.add
    bring_w2 = blocks.bring(FILTERS, CHANNELS // E, A_PITCH, THREADS, F, C // E, C // E)
    put_sums, write = outputs.put_sums(product, plan.out_pitch), planes.write(two, plan)

    @cuda.jit(device=True, forceinline=True)
    def bring(pool, to, x, from_x, w1, b1, c0, t):
        """Starts the copies of a step: x, w1 and b1 of CHANNELS channels from c0 on, to word `to`."""
        for i in range(X_EACH):
            item = uint32(t + uint32(i * THREADS))
            if from_x[i] != uint32(NOWHERE) and (WHOLE or c0 + item // SLOT < C):
                ptx.copy4_async(pool, uint32(to + item * 4), x, uint32(from_x[i] + c0 * (H * W) // E))
        for i in range(W1_EACH):
            item = uint32(t + uint32(i * THREADS))
            at = uint32(c0 * TAPS + item * V)
            if item < W1_PIECES and (WHOLE or at < C * TAPS):
                ptx.copy4_async(pool, uint32(to + W1 + item * 4), w1, uint32(at // E))
        if BIAS1:
            at = uint32(c0 + t * V)
            if t < B1_PIECES and (WHOLE or at < C):
                ptx.copy4_async(pool, uint32(to + B1 + t * 4), b1, uint32(at // E))

    @cuda.jit(device=True, forceinline=True)
    def spread(pool, step, middle, c0, top, rows, start, t):
        """The depthwise outputs of a step, whose x lies from the word `step` on, to the word `middle` on.

        top: the first row of x of the band, from the first one in shared memory; rows: those there; start: the element
        of its first row in a plane.
        """
        for i in range(COLUMNS_EACH):
            item = uint32(t + uint32(i * THREADS))
            if COLUMNS % THREADS == 0 or item < COLUMNS:
                q, down, c = uint32(item % ROW), uint32(item // ROW % DOWN), uint32(item // (ROW * DOWN))
                sums = cuda.local.array(SUMS1, float32)
                for k in range(SUMS1):
                    sums[k] = float32(0)
                if WHOLE or c0 + c < C:
                    if BIAS1:
                        take1(sums, pool, uint32((step + B1) * E + c))
                        for k in range(1, SUMS1):
                            sums[k] = sums[0]
                    h, v = uint32(top + down * (RUN * S)), uint32(q * (E * S) - PAD)
                    x_at = uint32(step * E + c * (SLOT * V) + LEFT * V + (c * (H * W) + start) % V)
                    columns(sums, pool, uint32(x_at + h * W + v), uint32((step + W1) * E + c * TAPS), h, rows, v)
                    for k in range(SUMS1):
                        sums[k] = middle_of(sums[k])
                at = uint32(middle + c * B_PITCH + down * (RUN * ROW) + q)
                for k in range(RUN):
                    if TH % RUN == 0 or down * RUN + uint32(k) < TH:
                        to = uint32(at + uint32(k * ROW))
                        pool[to] = sums[k] if E == 1 else pack(sums[E * k], sums[E * k + E - 1])

    @cuda.jit(max_registers=MOST)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        ptx.grid_dependency_wait()
        pool = cuda.shared.array(0, float32, 16)
        sums = cuda.local.array(SUMS, float32)
        from_x = cuda.local.array(X_EACH, uint32)
        t = uint32(cuda.threadIdx.x)
        p0, f0 = uint32(uint32(cuda.blockIdx.x) * TH), uint32(uint32(cuda.blockIdx.y) * FILTERS)
        n = uint32(cuda.blockIdx.z)
        lane, warp = uint32(t & uint32(31)), uint32(t >> uint32(5))
        pixel0, filter0 = uint32(warp % WP * N), uint32(warp // WP % WF * M)  # the warp's first ones of the band
        share = uint32(warp // (WP * WF))  # of a step's channels
        h0 = int32(p0 * S) - int32(PAD)
        first, end = max(h0, int32(0)), min(int32((min(uint32(p0 + TH), uint32(P)) - 1) * S) - int32(PAD) + K, int32(H))
        top, rows, start = uint32(h0 - first), uint32(end - first), uint32(uint32(first) * W)
        for i in range(X_EACH):
            item = uint32(t + uint32(i * THREADS))
            begin = uint32(item // SLOT * (H * W) + start)
            piece, stop = uint32(begin // V + item % SLOT - LEFT), uint32((begin + rows * W + (V - 1)) // V)
            from_x[i] = uint32(NOWHERE)
            if item < X_PIECES:
                if item % SLOT >= LEFT and piece < stop:
                    from_x[i] = uint32(n * (C * H * W // E) + piece * 4)
                else:  # of no map at any step: zeros that no copy overwrites
                    for s in range(2):
                        at = uint32(s * STEP + item * 4)
                        ptx.store4_shared(pool, at, float32(0), float32(0), float32(0), float32(0))
        if SPARE > 0:  # pixels that are only there to fill the last product
            for i in range(t, 2 * CHANNELS * SPARE, THREADS):
                c = uint32(uint32(i) // SPARE)
                at = uint32(MIDDLE + c // CHANNELS * MIDDLE_WORDS + c % CHANNELS * B_PITCH)
                pool[uint32(at + USED + uint32(i) % SPARE)] = float32(0)
        zero(sums)
        bring(pool, uint32(0), x, from_x, w1, b1, uint32(0), t)
        ptx.commit()
        a_at = uint32(W2 + filter0 * A_PITCH + share * K_WORDS)
        b_at = uint32(MIDDLE + share * (CHANNELS // WK) * B_PITCH + pixel0 // E)
        for step in range(STEPS + 1):  # depthwise outputs of this step, products of the one before
            c0, now = uint32(uint32(step) * CHANNELS), uint32(uint32(step) & uint32(1))
            other = uint32(now ^ uint32(1))
            ptx.wait(0)
            cuda.syncthreads()
            if step + 1 < STEPS:
                bring(pool, uint32(other * STEP), x, from_x, w1, b1, uint32(c0 + CHANNELS), t)
            if step < STEPS:
                bring_w2(pool, uint32(W2 + now * W2_WORDS), w2, uint32(0), f0, uint32(c0 // E), t)
            ptx.commit()
            if step > 0:
                add(sums, pool, uint32(a_at + other * W2_WORDS), pool, uint32(b_at + other * MIDDLE_WORDS), lane)
            if step < STEPS:
                spread(pool, uint32(now * STEP), uint32(MIDDLE + now * MIDDLE_WORDS), c0, top, rows, start, t)
        cuda.syncthreads()  # the last product is done: shared memory is free
        put_sums(pool, sums, lane, uint32(share * FILTERS + filter0), pixel0)
        cuda.syncthreads()
        write(pool, b2, r, y, n, p0, f0, t)

    return kernel


@by_shape
def kernel(layer, images):
    return make(layer, choose(layer, images))


def choose(problem, images):
    """The tiles for so many images of a problem: those of least predicted time."""
    return plane_tiles.choose(problem, images)


def launch_of(problem, tiles):
    """The launch with given tiles."""
    plan = plane_tiles.plan(problem.kernel_key, tiles)
    return Launch((plan.bands, plan.groups, problem.N), (tiles.threads,), shared_bytes=4 * plan.shared)


def traffic(problem):
    return traffic_of(problem, choose(problem.kernel_key, problem.N))


def traffic_of(problem, tiles):
    """The traffic with given tiles, in words."""
    one, two, plan = problem.first, problem.second, plane_tiles.plan(problem.kernel_key, tiles)
    C, H, W, K, S, P, E, V = one.C, one.H, one.W, one.K, one.stride, one.P, plan.elements, plan.piece
    threads, channels, c0 = tiles.threads, tiles.channels, (np.arange(plan.steps) * tiles.channels)[:, None, None]

    def turns(count):
        item = np.arange(-(-count // threads))[:, None] * threads + np.arange(threads)
        return np.where(item < count, item, -1)

    def asked(words, there):
        return warp_traffic(np.where(there, words, -1).reshape(-1, threads))

    tap, bias, item = turns(channels * K * K // V), turns(channels // V), turns(channels * plan.slot)
    filters_load = asked((c0 * K * K + tap * V) // E, (tap >= 0) & (c0 * K * K + tap * V < C * K * K))
    filters_load += asked((c0 + bias * V) // E, (bias >= 0) & (c0 + bias * V < C)) * one.bias
    w2_load = blocks.brought(tiles.filters, channels // E, threads, two.F, C // E, C // E)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    # Images whose x and y begin alike in their sectors are alike.
    begins = Counter((n * C * H * W // E % 8, n * two.F * P * one.Q // E % 8) for n in range(problem.N))
    for (x0, y0), often in begins.items():
        for p0 in range(0, P, tiles.height):
            first = max(p0 * S - one.padding, 0)
            end = min((min(p0 + tiles.height, P) - 1) * S - one.padding + K, H)
            begin = item // plan.slot * H * W + first * W
            piece, stop = begin // V + item % plan.slot - plan.left, -(-(begin + (end - first) * W) // V)
            there = (item >= 0) & (item % plan.slot >= plan.left) & (piece < stop)
            x_load = asked(x0 + piece * 4 + c0 * (H * W) // E, there & (c0 + item // plan.slot < C))
            load += often * (plan.groups * (x_load + filters_load) + w2_load)
            for f0 in range(0, two.F, tiles.filters):
                more, stored = planes.written(two, plan, y0, p0, f0)
                load, store = load + often * more, store + often * stored
    return Traffic(*load, *store)


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NCHW" or one.dtype == "int8" or one.C % (16 // one.itemsize) or two.F * one.itemsize % 4:
        return False
    if one.K % 2 == 0 or one.K > 7 or one.stride > one.K or problem.N >= 2**16:
        return False
    elements = problem.N * max(one.C * one.H * one.W, two.F * two.P * two.Q)
    return elements < 2**31 and choose(problem.kernel_key, problem.N) is not None


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16", "bfloat16"), view="words",
    aligned=16,
)  # fmt: skip
def launch(problem):
    return launch_of(problem, choose(problem.kernel_key, problem.N))
