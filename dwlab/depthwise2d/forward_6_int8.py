"""Int8: four taps of a channel in one instruction, NHWC.

An instruction (dp4a) adds the products of four int8 with four int8 to an int32. In NHWC the four bytes of a word are
four channels of one pixel, but a depthwise sum wants four pixels of one channel. So a thread that has 4 channels takes
the words of 4 neighbouring columns and transposes their 16 bytes, which is 8 instructions, each of them any four bytes
of two words. For K = 3 and stride 1 two neighbouring outputs lie within these 4 columns: they use the same words, the
one with the filter's row (w0, w1, w2, 0), the other with (0, w0, w1, w2). Filters are put into this order once.

As in `registers` a thread slides down a strip of outputs, and its sums, which here are int32, move on from row to row.

    sum (x - zero_x) * w = sum x * w - zero_x * sum w

so sums begin at - zero_x * sum w, and what lies outside the map is zero_x. In the end a sum becomes int8 again: bias,
factor of its channel, rounding, zero_y, limits (`epilogue.requantise`); four of them are stored as a word.

Predicted: a quarter of float32's bytes, and for an output of K = 3 some 25 instructions, of which 3 are products; a
multiprocessor could start 14 while memory brings a byte for each lane and takes one. So arithmetic is the limit, and
the gain over 16 bits small.

Traffic: words in place of elements; for each strip its rows of x, each as often as columns share it; the filter once.
"""

from dataclasses import replace

import numpy as np
from numba import float32, int32, uint32

from dwlab import epilogue, ptx
from dwlab.depthwise1d.straight_line import in_turn
from dwlab.depthwise2d.repeats import repeats
from dwlab.stages import Launch, by_shape, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, warp_traffic

THREADS = 128
ROWS = 8  # of outputs in a strip, at most
ONES = 0x01010101


def shape(layer):
    """(columns of a thread, threads of a row, rows of a strip, strips of a map)."""
    T = 2 if layer.K <= 3 and layer.stride == 1 else 1
    rows = -(-layer.P // -(-layer.P // ROWS))
    return T, -(-layer.Q // T), rows, -(-layer.P // rows)


@cuda.jit(device=True, forceinline=True)
def transpose(to, at, a, b, c, d):
    """to[at + k] = byte k of each of the four words."""
    low, high = ptx.prmt(a, b, int32(0x5140)), ptx.prmt(a, b, int32(0x7362))  # a0 b0 a1 b1, a2 b2 a3 b3
    low2, high2 = ptx.prmt(c, d, int32(0x5140)), ptx.prmt(c, d, int32(0x7362))
    to[at], to[at + 1] = ptx.prmt(low, low2, int32(0x5410)), ptx.prmt(low, low2, int32(0x7632))
    to[at + 2], to[at + 3] = ptx.prmt(high, high2, int32(0x5410)), ptx.prmt(high, high2, int32(0x7632))


def strip(layer, T, put, pitch, across, down):
    """slide(x, w, b, m, r, out, x0, c, channels, p, stop, q, limit, to): a thread's outputs, 4 channels at a time.

    Of rows p to stop - 1 and T columns from q on, those below `limit`. x: words; pixels, `pitch` words apart, begin at
    x0, and in each c is the word of the channels, which are word `channels` in w, b and m. What lies outside the map of
    H x W is zero_x. put(out, at, word) gets the outputs of 4 channels, the first at `to`, neighbours `across` and rows
    `down` words apart; what a residual adds has the same place in r.
    """
    H, W, K, S, PAD = layer.H, layer.W, layer.K, layer.stride, layer.padding
    C, DEEP, COLUMNS, ZERO, BIAS = layer.C // 4, -(-K // S), (T - 1) * S + K, layer.zero_x, layer.bias
    GROUPS, SUMS, OUTSIDE = -(-COLUMNS // 4), DEEP * T * 4, (layer.zero_x % 256 * ONES + 2**31) % 2**32 - 2**31
    ROW = T * GROUPS * 4  # words of a filter's row: for each output, group of columns and channel
    TAPS, GROUPED = K * ROW, 4 * GROUPS
    requantise, ADDED = epilogue.requantise_added(layer), layer.residual

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

    def row(s):
        """The s-th of the rows of x that a step has."""

        @cuda.jit(device=True, forceinline=True)
        def row(sums, taps, x, at, v, h, bottom):
            words = cuda.local.array(GROUPED, int32)
            columns = cuda.local.array(GROUPED, int32)
            for j in range(GROUPED):
                words[j] = int32(OUTSIDE)
            if uint32(h + s) < uint32(bottom):
                for j in range(COLUMNS):
                    if uint32(v + j) < uint32(W):
                        words[j] = ptx.word_of_float(x[uint32(at + uint32((s * W + j) * pitch))])
            for g in range(GROUPS):
                transpose(columns, 4 * g, words[4 * g], words[4 * g + 1], words[4 * g + 2], words[4 * g + 3])
            for deep in range(DEEP):
                if s + S * deep < K:
                    for own in range(ROW):  # of output own // GROUPED
                        to, tap = deep * T * 4 + own // GROUPED * 4 + own % 4, (s + S * deep) * ROW + own
                        sums[to] = ptx.dp4a(columns[own % GROUPED], taps[tap], sums[to])

        return row

    get_filter = in_turn([filter_row(i) for i in range(K)], arguments=3)
    add_rows = in_turn([row(s) for s in range(min(K, S))], arguments=7)

    @cuda.jit(device=True, forceinline=True)
    def slide(x, w, b, m, r, out, x0, c, channels, p, stop, q, limit, to):
        taps = cuda.local.array(TAPS, int32)
        sums = cuda.local.array(SUMS, int32)
        begins = cuda.local.array(4, int32)
        bias = cuda.local.array(4, int32)
        factor = cuda.local.array(4, float32)
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
        for k in range(SUMS):
            sums[k] = begins[k % 4]
        h, v = int32(p * S - PAD), int32(q * uint32(S)) - int32(PAD)
        bottom = min(int32(H), int32((stop - 1) * S - PAD + K))  # rows of x from here on are for other strips
        at = uint32(x0 + (uint32(h) * W + uint32(v)) * pitch + c)
        begin = p
        p = int32(p - (DEEP - 1))  # the row of outputs that is done after this step
        while p < stop:
            add_rows(sums, taps, x, at, v, h, bottom)
            if p >= begin:
                for e in range(T):
                    if q + uint32(e) < uint32(limit):
                        done, at_y = (DEEP - 1) * T * 4 + e * 4, uint32(to + uint32(e * across))
                        added = int32(0)
                        if ADDED:
                            added = ptx.word_of_float(r[at_y])
                        y0 = requantise(sums[done], bias, factor, 0, epilogue.byte(added, 0))
                        y1 = requantise(sums[done + 1], bias, factor, 1, epilogue.byte(added, 1))
                        y2 = requantise(sums[done + 2], bias, factor, 2, epilogue.byte(added, 2))
                        y3 = requantise(sums[done + 3], bias, factor, 3, epilogue.byte(added, 3))
                        put(out, at_y, ptx.float_of_word(ptx.pack_s8(y0, y1, y2, y3)))
                to = uint32(to + uint32(down))
            for k in range((DEEP - 1) * T * 4):
                sums[SUMS - 1 - k] = sums[SUMS - 1 - k - T * 4]
            for k in range(T * 4):
                sums[k] = begins[k % 4]
            at = uint32(at + uint32(S * W * pitch))
            h = int32(h + S)
            p = int32(p + 1)

    return slide


@cuda.jit(device=True, forceinline=True)
def put(out, at, word):
    """The `put` of a strip whose outputs go to an array of words."""
    out[at] = word


@by_shape
def kernel(layer):
    T, ACROSS, STRIP, STRIPS = shape(layer)
    H, W, P, Q, C = layer.H, layer.W, layer.P, layer.Q, layer.C // 4
    slide = strip(layer, T, put, C, C, Q * C)

    @cuda.jit
    def kernel(x, w, b, m, r, y, threads):
        ptx.grid_dependency_wait()
        i = uint32(uint32(cuda.blockIdx.x) * uint32(THREADS) + uint32(cuda.threadIdx.x))
        if i >= uint32(threads):
            return
        c, q = uint32(i % C), uint32(uint32(i // C % ACROSS) * uint32(T))
        of_map, n = uint32(i // (C * ACROSS) % STRIPS), uint32(i // (C * ACROSS * STRIPS))
        p = int32(of_map * uint32(STRIP))
        to = uint32(((n * P + uint32(p)) * Q + q) * C + c)
        slide(x, w, b, m, r, y, uint32(n * (H * W * C)), c, c, p, min(int32(P), int32(p + STRIP)), q, uint32(Q), to)

    return kernel


def supports(layer):
    if layer.layout != "NHWC" or layer.C % 4 or layer.K > 7 or layer.stride > 7:
        return False
    return layer.N * layer.C * max(layer.H * layer.W, layer.P * layer.Q) < 2**31


def as_words(layer):
    """The layer for counting: a word for an element."""
    return replace(layer, C=layer.C // 4, dtype="float32", zero_x=0, zero_y=0, zero_r=0, m_r=1.0)


def traffic(layer):
    words = as_words(layer)
    _, across, _, number = shape(words)
    return Traffic(*sum(often * counts(one) for one, often in repeats(words, across * number)))


def counts(layer):
    """Requests and sectors of loads, then of stores, of a layer of words; each thread looked at."""
    C, P, Q = layer.C, layer.P, layer.Q
    T, across, rows, number = shape(layer)
    store = np.zeros(2, np.int64)
    i = np.arange(layer.N * C * across * number)
    c, q, p, n = i % C, i // C % across * T, i // (C * across) % number * rows, i // (C * across * number)
    load = loads(layer, T, rows, n, c, p, np.minimum(P, p + rows), q)
    for e in range(rows):
        for f in range(T):
            store += warp_traffic(np.where((p + e < P) & (q + f < Q), ((n * P + p + e) * Q + q + f) * C + c, -1))
    return np.concatenate([load + layer.residual * store, store])


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


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16)
def launch(layer):
    _, across, _, number = shape(layer)
    threads = layer.N * layer.C // 4 * across * number
    return Launch((-(-threads // THREADS),), (THREADS,), scalars=(threads,))
