"""A thread's part of a depthwise layer in int8: 4 channels of a strip of outputs, NHWC, for kernels that have one.

What depthwise2d's `int8` says of words, transposed bytes and zero points is done here, and counted (`loads`).
"""

from dataclasses import replace

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import int8_words, ptx, requantisation
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.traffic import warp_traffic
from dwlab.target import cuda

ONES = 0x01010101


@cuda.jit(device=True, forceinline=True)
def transpose(to, at, a, b, c, d):
    """to[at + k] = byte k of each of the four words."""
    low, high = ptx.prmt(a, b, int32(0x5140)), ptx.prmt(a, b, int32(0x7362))  # a0 b0 a1 b1, a2 b2 a3 b3
    low2, high2 = ptx.prmt(c, d, int32(0x5140)), ptx.prmt(c, d, int32(0x7362))
    to[at], to[at + 1] = ptx.prmt(low, low2, int32(0x5410)), ptx.prmt(low, low2, int32(0x7632))
    to[at + 2], to[at + 3] = ptx.prmt(high, high2, int32(0x5410)), ptx.prmt(high, high2, int32(0x7632))


def strip(layer, T, put, pitch, across, down, single=False):
    """slide(x, w, b, m, r, out, x0, c, channels, p, stop, q, limit, to): a thread's outputs, 4 channels at a time.

    Of rows p to stop - 1 and T columns from q on, those below `limit`. x: words; pixels, `pitch` words apart, begin at
    x0, and in each c is the word of the channels, which are word `channels` in w, b and m. What lies outside the map of
    H x W is zero_x. put(out, at, word) gets the outputs of 4 channels, the first at `to`, neighbours `across` and rows
    `down` words apart; what a residual adds has the same place in r. single: stop is p + 1; after the filter, which
    does not wait for the kernel before, all of x is loaded before any of it is used.
    """
    H, W, K, S, PAD = layer.H, layer.W, layer.K, layer.stride, layer.padding
    C, DEEP, COLUMNS, ZERO, BIAS = layer.C // 4, -(-K // S), (T - 1) * S + K, layer.zero_x, layer.bias
    GROUPS, SUMS, OUTSIDE = -(-COLUMNS // 4), DEEP * T * 4, (layer.zero_x % 256 * ONES + 2**31) % 2**32 - 2**31
    ROW = T * GROUPS * 4  # words of a filter's row: for each output, group of columns and channel
    TAPS, GROUPED, WORDS = K * ROW, 4 * GROUPS, K * GROUPS * 4
    requantise, ADDED = requantisation.requantise(layer, packed=True), layer.residual

    def filter_row(i):
        @cuda.jit(device=True, forceinline=True)
        def filter_row(taps, w, c):
            loaded = cuda.local.array(K, int32)
            words = cuda.local.array(GROUPED, int32)
            for j in range(K):
                loaded[j] = ptx.word_of_float(w[uint32(uint32((i * K + j) * C) + c)])
            for e in range(T):
                for j in range(GROUPED):
                    words[j] = int32(0)
                for j in range(K):
                    words[e * S + j] = loaded[j]
                for g in range(GROUPS):
                    at = i * ROW + (e * GROUPS + g) * 4
                    transpose(taps, at, words[4 * g], words[4 * g + 1], words[4 * g + 2], words[4 * g + 3])

        return filter_row

    def load(s, first):
        """Words of the s-th of the rows of x that a step has, to words[first …]."""

        @cuda.jit(device=True, forceinline=True)
        def load(words, x, at, v, h, bottom):
            for j in range(GROUPED):
                words[first + j] = int32(OUTSIDE)
            if uint32(h + s) < uint32(bottom):
                for j in range(COLUMNS):
                    if uint32(v + j) < uint32(W):
                        words[first + j] = ptx.word_of_float(x[uint32(at + uint32((s * W + j) * pitch))])

        return load

    def add(s, first, deeps):
        """The products of that row's words, from words[first] on, for the outputs of these rows."""

        @cuda.jit(device=True, forceinline=True)
        def add(sums, taps, words):
            columns = cuda.local.array(GROUPED, int32)
            for g in range(GROUPS):
                at = first + 4 * g
                transpose(columns, 4 * g, words[at], words[at + 1], words[at + 2], words[at + 3])
            for deep in range(deeps):
                if s + S * deep < K:
                    for own in range(ROW):  # of output own // GROUPED
                        to, tap = deep * T * 4 + own // GROUPED * 4 + own % 4, (s + S * deep) * ROW + own
                        sums[to] = ptx.dp4a(columns[own % GROUPED], taps[tap], sums[to])

        return add

    def row(s):
        load_row, add_row = load(s, 0), add(s, 0, DEEP)

        @cuda.jit(device=True, forceinline=True)
        def row(sums, taps, x, at, v, h, bottom):
            words = cuda.local.array(GROUPED, int32)
            load_row(words, x, at, v, h, bottom)
            add_row(sums, taps, words)

        return row

    get_filter = in_sequence([filter_row(i) for i in range(K)])
    add_rows = in_sequence([row(s) for s in range(min(K, S))])
    load_all = in_sequence([load(i, i * GROUPED) for i in range(K)])
    add_all = in_sequence([add(i, i * GROUPED, 1) for i in range(K)])

    @cuda.jit(device=True, forceinline=True)
    def begin(taps, begins, bias, factor, w, b, m, channels):
        get_filter(taps, w, channels)
        for k in range(4):
            begins[k] = int32(0)
        for tap in range(K * GROUPS):
            for k in range(4):  # the first output's words, of each row
                at = tap // GROUPS * ROW + tap % GROUPS * 4 + k
                begins[k] = ptx.dp4a(taps[at], int32(ONES), begins[k])
        for k in range(4):
            begins[k] = int32(begins[k] * int32(-ZERO))
        if BIAS:
            b0, b1, b2, b3 = ptx.load4(b, uint32(channels * uint32(4)))
            bias[0], bias[1] = ptx.word_of_float(b0), ptx.word_of_float(b1)
            bias[2], bias[3] = ptx.word_of_float(b2), ptx.word_of_float(b3)
        factor[0], factor[1], factor[2], factor[3] = ptx.load4(m, uint32(channels * uint32(4)))

    @cuda.jit(device=True, forceinline=True)
    def store_row(out, r, sums, first, bias, factor, q, limit, to):
        """A row of outputs, of the sums from the first on."""
        for e in range(T):
            if q + uint32(e) < uint32(limit):
                done, at_y = first + e * 4, uint32(to + uint32(e * across))
                added = int32(0)
                if ADDED:
                    added = ptx.word_of_float(r[at_y])
                y0 = requantise(sums[done], bias, factor, 0, int8_words.byte(added, 0))
                y1 = requantise(sums[done + 1], bias, factor, 1, int8_words.byte(added, 1))
                y2 = requantise(sums[done + 2], bias, factor, 2, int8_words.byte(added, 2))
                y3 = requantise(sums[done + 3], bias, factor, 3, int8_words.byte(added, 3))
                put(out, at_y, ptx.float_of_word(ptx.pack_s8(y0, y1, y2, y3)))

    @cuda.jit(device=True, forceinline=True)
    def at_once(x, w, b, m, r, out, x0, c, channels, p, stop, q, limit, to):
        taps = cuda.local.array(TAPS, int32)
        words = cuda.local.array(WORDS, int32)
        sums = cuda.local.array(SUMS, int32)
        begins = cuda.local.array(4, int32)
        bias = cuda.local.array(4, int32)
        factor = cuda.local.array(4, float32)
        begin(taps, begins, bias, factor, w, b, m, channels)
        ptx.grid_dependency_wait()
        h, v = int32(p * S - PAD), int32(q * uint32(S)) - int32(PAD)
        load_all(words, x, uint32(x0 + (uint32(h) * W + uint32(v)) * pitch + c), v, h, int32(H))
        for k in range(T * 4):
            sums[k] = begins[k % 4]
        add_all(sums, taps, words)
        store_row(out, r, sums, 0, bias, factor, q, limit, to)

    @cuda.jit(device=True, forceinline=True)
    def slide(x, w, b, m, r, out, x0, c, channels, p, stop, q, limit, to):
        taps = cuda.local.array(TAPS, int32)
        sums = cuda.local.array(SUMS, int32)
        begins = cuda.local.array(4, int32)
        bias = cuda.local.array(4, int32)
        factor = cuda.local.array(4, float32)
        begin(taps, begins, bias, factor, w, b, m, channels)
        for k in range(SUMS):
            sums[k] = begins[k % 4]
        h, v = int32(p * S - PAD), int32(q * uint32(S)) - int32(PAD)
        bottom = min(int32(H), int32((stop - 1) * S - PAD + K))  # rows of x from here on are for other strips
        at = uint32(x0 + (uint32(h) * W + uint32(v)) * pitch + c)
        own = p
        p = int32(p - (DEEP - 1))  # the row of outputs that is done after this step
        while p < stop:
            add_rows(sums, taps, x, at, v, h, bottom)
            if p >= own:
                store_row(out, r, sums, (DEEP - 1) * T * 4, bias, factor, q, limit, to)
                to = uint32(to + uint32(down))
            for k in range((DEEP - 1) * T * 4):
                sums[SUMS - 1 - k] = sums[SUMS - 1 - k - T * 4]
            for k in range(T * 4):
                sums[k] = begins[k % 4]
            at = uint32(at + uint32(S * W * pitch))
            h = int32(h + S)
            p = int32(p + 1)

    return at_once if single else slide


@cuda.jit(device=True, forceinline=True)
def put(out, at, word):
    """The `put` of a strip whose outputs go to an array of words."""
    out[at] = word


def as_words(layer):
    """The layer for counting: a word for an element."""
    return replace(layer, C=layer.C // 4, dtype="float32", zero_x=0, zero_y=0, zero_r=0, m_r=1.0)


def loads(layer, T, rows, n, c, p, stop, q, of_x=True):
    """[requests, sectors] of `strip` of a layer of words; threads along the last axis, c < 0: those that idle."""
    C, H, W, K, S, PAD = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding
    load, busy = np.zeros(2, np.int64), c >= 0
    for tap in range(K * K):
        load += warp_traffic(np.where(busy, tap * C + c, -1))
    load += (1 + layer.bias) * warp_traffic(np.where(busy, c, -1), 2)  # m, and b: 16 bytes a thread
    for row in range((rows - 1) * S + K if of_x else 0):
        if row % S >= K:
            continue
        h = p * S - PAD + row
        inside = busy & (0 <= h) & (h < H) & (h < (stop - 1) * S - PAD + K)
        for j in range((T - 1) * S + K):
            v = q * S - PAD + j
            load += warp_traffic(np.where(inside & (0 <= v) & (v < W), ((n * H + h) * W + v) * C + c, -1))
    return load
