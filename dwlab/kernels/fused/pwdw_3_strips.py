"""Strips on tensor cores: whole rows of the map, so that x is one run of memory, and both layers at full speed.

The stages before load an x and a filter for each product. Here x and the filters come to shared memory asynchronously,
16 bytes a copy, and tensor cores multiply them, in float32 as three products of tf32 (pointwise/tiles.py); a strip of
whole rows needs no halo to its sides, where the map ends. Only rows are computed twice, (rows + 2) / rows of them
for 3 x 3 at stride 1; a small map is one strip, and nothing is. The depthwise layer reads shared memory, K of a row for
`run` outputs below each other: K * (run + K - 1) / run reads for K * K multiply-adds.

How many rows, filters and warps a block has is chosen for each shape (pwdw_plan.py): few for one image, so that all
multiprocessors have work, more for many. Each group of filters reads x anew, so with hundreds of channels a block is
bound by what L2 gives, and a warp's tile is as wide as registers allow, up to 32 pixels x 96 filters. Rows of x and of
filters have no words to spare, their pieces of 16 bytes change places (tiles.place), and up to two stages are on their
way while one is multiplied: one barrier for each.

Predicted, 24 -> 144 channels of 56 x 56, 32 images: 67 MB move, 16 us at a copy's speed; the products take 347 M * 1.25
multiply-adds, thrice on tensor cores, about 8 us; the depthwise layer 4.5 us of FFMA and 6 us of shared memory. All
three overlap between blocks: near 25 us.
"""

from dataclasses import replace

import numpy as np
from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.fused import pwdw_plan, pwdw_tiles
from dwlab.kernels.parts import blocks, epilogue, ptx
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Tiles
from dwlab.kernels.traffic import Traffic, warp_traffic


@by_shape
def kernel(pair, config):
    dw, each, layout = pair.second, pwdw_tiles.spread(pair.dtype), pwdw_tiles.layout_of(pair, config)
    C, F, H, W, HW = pair.first.C // each, dw.C, dw.H, dw.W, dw.H * dw.W
    K, KK, S, PAD, P, Q = dw.K, dw.K**2, dw.stride, dw.padding, dw.P, dw.Q
    ROWS, RUN, T, DEPTH = config.block_h, config.thread_m, config.threads, config.block_k
    CHUNKS, STAGE, X_PITCH, W_PITCH = layout.chunks, layout.stage_words, layout.x_pitch, layout.w_pitch
    FILTERS, PIXELS, STAGES = config.block_n, config.block_m, config.pipeline_stages
    X_WORDS = PIXELS * X_PITCH
    WARPS_P, WARPS, SLICES = config.warps_m, config.warps_m * config.warps_n, config.warps_k
    WARP_P, WARP_F, PITCH, INNER, PER_SLICE = (
        config.warp_m,
        config.warp_n,
        layout.pitch,
        layout.inner_words,
        DEPTH // SLICES,
    )
    TAPS_AT, BIAS_AT, BIAS2_AT, WORDS_F = layout.taps_at, layout.bias_at, layout.bias2_at, FILTERS // each
    GROUPS = -(-ROWS // RUN)
    ITEMS, FW = GROUPS * Q * WORDS_F, F // each
    BIAS, BIAS2, RESIDUAL, HALF = pair.first.bias, dw.bias, dw.residual, pair.dtype != "float32"
    SUMS, TAPS = RUN * each, KK * each
    AHEAD, wait = max(1, STAGES - 1), blocks.WAITS[max(0, STAGES - 2)]  # chunks that are on their way
    MOST = pwdw_tiles.register_limit(T)
    product, (bring_x, bring_w) = pwdw_tiles.product(pair, config), pwdw_tiles.bring(pair, config)
    put, column = pwdw_tiles.put(pair, config), pwdw_tiles.column(pair, config)
    SIZE, zero, add = product.size, product.zero, product.add
    between, after = epilogue.activate(pair.first.activation), epilogue.activate(dw.activation)
    finish = epilogue.finish(replace(dw, bias=False))  # sums begin with it

    @cuda.jit(max_registers=MOST)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread = uint32(cuda.threadIdx.x)
        lane = uint32(thread % uint32(32))
        warp = uint32(thread // uint32(32))
        f0 = uint32(uint32(cuda.blockIdx.x) * uint32(FILTERS))
        p0 = uint32(uint32(cuda.blockIdx.y) * uint32(ROWS))
        n = uint32(cuda.blockIdx.z)
        h0 = max(int(p0 * S) - PAD, 0)  # the strip's first row, and how many it has
        rows = uint32(min(int((p0 + uint32(ROWS - 1)) * uint32(S)) - PAD + K, H) - h0)
        h0 = uint32(h0)
        first = uint32(n * uint32(C * HW) + h0 * uint32(W * C))
        pixels = uint32(rows * uint32(W))
        for chunk in range(AHEAD):
            if chunk < CHUNKS:
                bring_w(shared, uint32(chunk * STAGE + X_WORDS), w1, f0, uint32(chunk * DEPTH))
        i = thread
        while i < WORDS_F * KK:
            f = uint32(i % uint32(WORDS_F))
            tap = uint32(i // uint32(WORDS_F))
            value = float32(0)
            if f0 // uint32(each) + f < FW:
                value = w2[uint32(tap * uint32(FW) + f0 // uint32(each) + f)]
            shared[uint32(uint32(TAPS_AT) + i)] = value
            i = uint32(i + uint32(T))
        if BIAS:
            i = thread
            while i < WORDS_F:
                value = float32(0)
                if f0 // uint32(each) + i < FW:
                    value = b1[uint32(f0 // uint32(each) + i)]
                shared[uint32(uint32(BIAS_AT) + i)] = value
                i = uint32(i + uint32(T))
        if BIAS2:
            i = thread
            while i < WORDS_F:
                value = float32(0)
                if f0 // uint32(each) + i < FW:
                    value = b2[uint32(f0 // uint32(each) + i)]
                shared[uint32(uint32(BIAS2_AT) + i)] = value
                i = uint32(i + uint32(T))
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(AHEAD):
            if chunk < CHUNKS:
                bring_x(shared, uint32(chunk * STAGE), x, first, pixels, uint32(chunk * DEPTH))
            ptx.commit()

        # Products: warp = (slice * warps_f + its filters) * warps_p + its pixels
        part = uint32(warp // uint32(WARPS))
        pw = uint32(uint32(WARP_P) * (warp % uint32(WARPS_P)))
        fw = uint32(uint32(WARP_F) * (warp % uint32(WARPS) // uint32(WARPS_P)))
        own_x = uint32(part * uint32(PER_SLICE) + pw * uint32(X_PITCH))
        own_w = uint32(uint32(X_WORDS) + part * uint32(PER_SLICE) + fw * uint32(W_PITCH))
        zero(acc)
        here, there = uint32(0), uint32(AHEAD * STAGE)
        for chunk in range(CHUNKS):
            wait()
            cuda.syncthreads()  # this chunk has come for all threads, and all are done with the one before
            if chunk + AHEAD < CHUNKS:
                c0 = uint32(uint32(chunk + AHEAD) * uint32(DEPTH))
                bring_x(shared, there, x, first, pixels, c0)
                bring_w(shared, uint32(there + uint32(X_WORDS)), w1, f0, c0)
            ptx.commit()
            add(acc, shared, uint32(here + own_x), shared, uint32(here + own_w), lane)
            there = here
            here = uint32(0) if here == AHEAD * STAGE else uint32(here + STAGE)
        cuda.syncthreads()
        put(acc, lane, shared, shared, shared, uint32(part * uint32(PIXELS) + pw), fw)
        cuda.syncthreads()
        if SLICES > 1:
            i = thread
            while i < PIXELS * FILTERS:
                m = uint32(i // uint32(FILTERS))
                at = uint32(m * uint32(PITCH) + i % uint32(FILTERS))
                total = shared[at]
                for s in range(1, SLICES):
                    total += shared[uint32(at + uint32(s * INNER))]
                if BIAS:
                    total += shared[uint32(uint32(BIAS_AT) + i % uint32(FILTERS))]
                shared[at] = between(total)
                i = uint32(i + uint32(T))
            cuda.syncthreads()

        # The depthwise layer
        sums = cuda.local.array(SUMS, float32)
        w = cuda.local.array(TAPS, float32)
        i = thread
        while i < ITEMS:
            f = uint32(i % uint32(WORDS_F))
            q = uint32(i // uint32(WORDS_F) % uint32(Q))
            g = uint32(i // uint32(WORDS_F * Q))
            p = uint32(p0 + g * uint32(RUN))
            if f0 // uint32(each) + f < FW:
                for tap in range(KK):
                    value = shared[uint32(uint32(TAPS_AT) + (tap * WORDS_F + f))]
                    if HALF:
                        w[2 * tap], w[2 * tap + 1] = ptx.halves(value)
                    else:
                        w[tap] = value
                value = shared[uint32(uint32(BIAS2_AT) + f)] if BIAS2 else float32(0)
                if HALF:
                    low, high = ptx.halves(value)
                    for o in range(RUN):
                        sums[2 * o], sums[2 * o + 1] = low, high
                else:
                    for o in range(RUN):
                        sums[o] = value
                h = uint32(p * uint32(S) - uint32(PAD) - h0)
                v = uint32(q * uint32(S) - uint32(PAD))
                column(sums, w, shared, uint32(f + (h * uint32(W) + v) * uint32(PITCH)), h, v, rows)
                for o in range(RUN):
                    if p + o < P and g * uint32(RUN) + o < ROWS:
                        if HALF:
                            yi = uint32(((n * uint32(P) + p + o) * uint32(Q) + q) * uint32(FW) + f0 // uint32(2) + f)
                            low, high = after(sums[2 * o]), after(sums[2 * o + 1])
                            if RESIDUAL:
                                c, d = ptx.halves(r[yi])
                                low, high = low + c, high + d
                            y[yi] = ptx.join_halves(low, high)
                        else:
                            yi = uint32(((n * uint32(P) + p + o) * uint32(Q) + q) * uint32(F) + f0 + f)
                            y[yi] = finish(sums[o], r, r, yi, yi)
            i = uint32(i + uint32(T))

    return kernel


def traffic(pair, config):
    dw, each = pair.second, pwdw_tiles.spread(pair.dtype)
    C, FW, H, W, KK, P, Q, T = pair.first.C // each, dw.C // each, dw.H, dw.W, dw.K**2, dw.P, dw.Q, config.threads
    FILTERS, PIXELS, DEPTH, rows, run = config.block_n, config.block_m, config.block_k, config.block_h, config.thread_m
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    WORDS_F, GROUPS = FILTERS // each, -(-rows // run)

    def turns(items):
        i = np.arange(-(-items // T) * T).reshape(-1, T)
        return i, i < items

    for f0 in range(0, dw.C, FILTERS):
        words = np.zeros(2, np.int64)  # what every block of these filters loads
        piece = 4 if C % 4 == 0 else 1
        i, on = turns(FILTERS * DEPTH // piece)
        f, c = f0 + i // (DEPTH // piece), piece * (i % (DEPTH // piece))
        for c0 in range(0, C, DEPTH):
            words += warp_traffic(np.where(on & (f < dw.C) & (c0 + c < C), (f * C + c0 + c) // piece, -1), 8 // piece)
        i, on = turns(WORDS_F * KK)
        f = f0 // each + i % WORDS_F
        words += warp_traffic(np.where(on & (f < FW), i // WORDS_F * FW + f, -1))
        i, on = turns(WORDS_F)
        biases = pair.first.bias + dw.bias
        words += biases * warp_traffic(np.where(on & (f0 // each + i < FW), f0 // each + i, -1))
        load += words * pair.N * -(-P // rows)
        i, on = turns(GROUPS * Q * WORDS_F)
        f = f0 // each + i % WORDS_F
        q, g = i // WORDS_F % Q, i // (WORDS_F * Q)
        for n in range(pair.N):
            for p0 in range(0, P, rows):
                for o in range(run):
                    p = p0 + g * run + o
                    now = on & (f < FW) & (p < P) & (g * run + o < rows)
                    at = ((n * P + p) * Q + q) * FW + f
                    out = warp_traffic(np.where(now, at, -1))
                    store += out
                    load += dw.residual * out
    piece = 4 if pwdw_tiles.aligned(pair) else 1
    across = DEPTH // piece
    i, on = turns(across * PIXELS)
    c, m = piece * (i % across), i // across
    for n in range(pair.N):
        for p0 in range(0, P, rows):
            h0 = max(p0 * dw.stride - dw.padding, 0)
            pixels = (min((p0 + rows - 1) * dw.stride - dw.padding + dw.K, H) - h0) * W
            for c0 in range(0, C, DEPTH):
                k = c0 + c
                at = (n * H * W + h0 * W + m) * C + k
                found = warp_traffic(np.where(on & (m < pixels) & (k < C), at // piece, -1), 8 // piece)
                load += found * -(-dw.C // FILTERS)
    return Traffic(*load, *store)


def supports(pair):
    if pair.layout != "NHWC" or pair.dtype != "float32" and (pair.first.C % 8 or pair.second.C % 8):
        return False
    return max(np.prod(pair.shapes()[name]) for name in "xy") < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, view="words", dtypes=("float32", "float16"), aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=Tiles(pwdw_plan.configs, pwdw_tiles.resources, pwdw_plan.cost),
)  # fmt: skip
def launch(pair, config):
    grid = (-(-pair.second.C // config.block_n), -(-pair.second.P // config.block_h), pair.N)
    return Launch(grid, (config.threads,), shared_bytes=pwdw_tiles.resources(pair.kernel_key, config).shared_bytes)
