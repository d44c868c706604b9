"""The depthwise half of fused/pwdw/strips: the first layer's sums to shared memory, and outputs from there to y."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numba import float32, uint32

from dwlab.kernels.fused.pwdw_tiles import layout_of, per_word, product
from dwlab.kernels.parts import constants, epilogue, warp_tile
from dwlab.kernels.parts import ptx_halves as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.tiling.config import TileConfig
from dwlab.target import cuda


def parts(pair: Any, config: TileConfig) -> Any:
    """The device functions load_taps, store (`store_between`), add_slices and run (`depthwise`)."""
    makers = {"load_taps": load_taps, "store": store_between, "add_slices": add_slices, "run": depthwise}
    return constants.of(**{name: make(pair, config) for name, make in makers.items()})


def load_taps(pair: Any, config: TileConfig) -> Any:
    """load(shared, w2, b1, b2, f0, thread): taps and both layers' biases of a block's filters, 0 beyond the last."""
    dw, each, layout, T = pair.second, per_word(pair.dtype), layout_of(pair, config), config.threads
    KK, FW, WORDS_F, BIAS, BIAS2 = dw.K**2, dw.C // each, config.block_n // each, pair.first.bias, dw.bias

    def vector(at: int, lines: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def load(shared, source, f0, thread):
            i = thread
            while i < WORDS_F * lines:
                f, line = i, uint32(0)
                if lines > 1:
                    f, line = uint32(i % uint32(WORDS_F)), uint32(i // uint32(WORDS_F))
                value = float32(0)
                if f0 // uint32(each) + f < FW:
                    value = source[uint32(line * uint32(FW) + f0 // uint32(each) + f)]
                shared[uint32(uint32(at) + i)] = value
                i = uint32(i + uint32(T))

        return load

    taps, bias, bias2 = vector(layout.taps_at, KK), vector(layout.bias_at, 1), vector(layout.bias2_at, 1)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, w2, b1, b2, f0, thread):
        taps(shared, w2, f0, thread)
        if BIAS:
            bias(shared, b1, f0, thread)
        if BIAS2:
            bias2(shared, b2, f0, thread)

    return load


def store_between(pair: Any, config: TileConfig) -> Any:
    """each(acc, lane, shared, shared, shared, m0, n0): a warp's sums to shared memory, where the depthwise layer reads.

    m0, n0: of the warp's tile, as rows and columns of the product; with slices, m0 lies further on by the slice times
    the rows of the block. One slice: with bias and activation.
    """
    layout = layout_of(pair, config)
    PITCH, BIAS_AT = layout.pitch, layout.bias_at
    act, alone, bias = epilogue.activate(pair.first.activation), config.warps_k == 1, pair.first.bias

    if pair.dtype != "float32":

        @cuda.jit(device=True, forceinline=True)
        def store(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0, u1 = ptx.halves(shared[uint32(uint32(BIAS_AT) + n // uint32(2))])
            shared[uint32(m * uint32(PITCH) + n // uint32(2))] = ptx.join_halves(act(v0 + u0), act(v1 + u1))

    elif not alone:

        @cuda.jit(device=True, forceinline=True)
        def store(shared, b, r, m, n, v0, v1):
            at = uint32(m * uint32(PITCH) + n)  # m counts the rows of all slices
            shared[at] = v0
            shared[uint32(at + uint32(1))] = v1

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0 = shared[uint32(uint32(BIAS_AT) + n)]
                u1 = shared[uint32(uint32(BIAS_AT) + n + uint32(1))]
            at = uint32(m * uint32(PITCH) + n)
            shared[at] = act(v0 + u0)
            shared[uint32(at + uint32(1))] = act(v1 + u1)

    return warp_tile.each(product(pair, config), store)


def add_slices(pair: Any, config: TileConfig) -> Any:
    """add(shared, thread): the sums of all slices of the channels (split-K), with bias and activation, in the first."""
    layout, T, BIAS, between = layout_of(pair, config), config.threads, pair.first.bias, pair.first.activation
    PIXELS, FILTERS, SLICES, activate = config.block_m, config.block_n, config.warps_k, epilogue.activate(between)
    PITCH, INNER, BIAS_AT = layout.pitch, layout.inner_words, layout.bias_at

    @cuda.jit(device=True, forceinline=True)
    def add(shared, thread):
        i = thread
        while i < PIXELS * FILTERS:
            m = uint32(i // uint32(FILTERS))
            at = uint32(m * uint32(PITCH) + i % uint32(FILTERS))
            total = shared[at]
            for s in range(1, SLICES):
                total += shared[uint32(at + uint32(s * INNER))]
            if BIAS:
                total += shared[uint32(uint32(BIAS_AT) + i % uint32(FILTERS))]
            shared[at] = activate(total)
            i = uint32(i + uint32(T))

    return add


def depthwise(pair: Any, config: TileConfig) -> Any:
    """run(shared, r, y, n, p0, h0, f0, rows, thread): a thread's outputs, thread_m below each other, to y.

    n: the image; p0, f0: the block's first row of outputs and filter; h0, rows: the first row that is between the
    layers in shared memory, and how many there are.
    """
    dw, each, layout, T = pair.second, per_word(pair.dtype), layout_of(pair, config), config.threads
    F, W, KK, S, PAD, P, Q = dw.C, dw.W, dw.K**2, dw.stride, dw.padding, dw.P, dw.Q
    ROWS, RUN, WORDS_F, FW = config.block_h, config.thread_m, config.block_n // each, dw.C // each
    ITEMS, SUMS, TAPS = -(-ROWS // RUN) * Q * WORDS_F, RUN * each, KK * each
    PITCH, TAPS_AT, BIAS2_AT, BIAS2, RESIDUAL = layout.pitch, layout.taps_at, layout.bias2_at, dw.bias, dw.residual
    HALF, add_column, after = pair.dtype != "float32", column(pair, config), epilogue.activate(dw.activation)
    finish = epilogue.finish(replace(dw, bias=False))  # sums begin with it

    @cuda.jit(device=True, forceinline=True)
    def run(shared, r, y, n, p0, h0, f0, rows, thread):
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
                add_column(sums, w, shared, uint32(f + (h * uint32(W) + v) * uint32(PITCH)), h, v, rows)
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

    return run


def column(pair: Any, config: TileConfig) -> Any:
    """column(sums, w, shared, at, h, v, rows): thread_m outputs of a column; two channels' in 16 bits.

    sums: (run,) or (run, 2) float32, flat; w: the taps, (K*K,) or (K*K, 2). at: word of the first tap's pixel, h and v
    its row in the tile and its column (beyond the left or upper edge they, too, have wrapped); rows: of the tile.
    """
    dw = pair.second
    K, S, W, RUN = dw.K, dw.stride, dw.W, config.thread_m
    STEP = layout_of(pair, config).pitch  # from pixel to pixel
    LINE = STEP * W

    def line(i: int) -> Any:
        if pair.dtype == "float32":

            @cuda.jit(device=True, forceinline=True)
            def add(sums, w, shared, at, h, v, rows):
                inside = uint32(h + uint32(i)) < rows
                for k in range(K):
                    value = float32(0)
                    if inside and uint32(v + uint32(k)) < uint32(W):
                        value = shared[uint32(at + uint32(i * LINE + k * STEP))]
                    for o in range(RUN):
                        if 0 <= i - o * S and i - o * S < K:
                            sums[o] += w[(i - o * S) * K + k] * value

        else:

            @cuda.jit(device=True, forceinline=True)
            def add(sums, w, shared, at, h, v, rows):
                inside = uint32(h + uint32(i)) < rows
                for k in range(K):
                    word = float32(0)
                    if inside and uint32(v + uint32(k)) < uint32(W):
                        word = shared[uint32(at + uint32(i * LINE + k * STEP))]
                    low, high = ptx.halves(word)
                    for o in range(RUN):
                        if 0 <= i - o * S and i - o * S < K:
                            sums[2 * o] += w[2 * ((i - o * S) * K + k)] * low
                            sums[2 * o + 1] += w[2 * ((i - o * S) * K + k) + 1] * high

        return add

    return in_sequence([line(i) for i in range((RUN - 1) * S + K)])
