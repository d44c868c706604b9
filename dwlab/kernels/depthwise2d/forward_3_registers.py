"""Registers: a thread slides down a column of outputs, and its sums move through registers.

Nothing is shared: a thread has a strip of up to 8 outputs of one column and goes down the rows of x that they need. A
row's K neighbouring x add to the sums of all the outputs that they are part of, K of them for stride 1; then the oldest
sum is done, the others move on by one, and a new one begins at zero. Each x is read by K threads where naive has K x K,
the filter is read once and stays in registers, and of index arithmetic there is one addition a row.

Threads follow the outputs as they lie in memory, in NCHW along a row and in NHWC along the channels; what neighbours
both read comes from the L1 cache. Sizes are any: nothing has to be a multiple of anything.

Traffic: for each strip its rows of x, (8 - 1) * stride + K of them, each K times; the filter once.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.depthwise2d.repeats import repeats
from dwlab.kernels.parts import constants, epilogue, pieces
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, small_maps, warp_traffic
from dwlab.target import cuda

THREADS = 128
ROWS = 8  # of outputs in a strip, at most
MOST = 13  # taps along a side: K * K of them stay in registers, 221 in all


def strips(layer):
    """(rows of a strip, strips of a map): as even as can be."""
    rows = -(-layer.P // -(-layer.P // ROWS))
    return rows, -(-layer.P // rows)


@by_shape
def kernel(layer):
    NCHW, bits = layer.layout == "NCHW", layer.dtype == "bfloat16"  # which NumPy has not, so its arrays hold bits
    up, down = (pieces.up(layer.dtype), pieces.down(layer.dtype)) if bits else (float32, float32)
    (rows, count), finish = strips(layer), epilogue.finish(layer, up)
    one = constants.of(layer, strip=rows, strips=count, pixel=1 if NCHW else layer.C)  # from a pixel to its neighbour
    SUMS, TAPS = -(-layer.K // layer.stride), layer.K**2  # sums at a time

    def row(s):
        """The s-th of the rows of x that a step has."""

        @cuda.jit(device=True, forceinline=True)
        def row(sums, taps, x, at, v, h, bottom):
            if uint32(h + s) < uint32(bottom):
                for j in range(one.K):
                    value = float32(0)
                    if uint32(v + j) < uint32(one.W):
                        value = up(x[uint32(at + uint32((s * one.W + j) * one.pixel))])
                    for deep in range(SUMS):
                        if s + one.stride * deep < one.K:
                            sums[deep] += taps[(s + one.stride * deep) * one.K + j] * value

        return row

    add_rows = in_sequence([*map(row, range(min(layer.K, layer.stride)))])

    @cuda.jit
    def kernel(x, w, b, m, r, y, threads):
        taps = cuda.local.array(TAPS, float32)
        sums = cuda.local.array(SUMS, float32)
        i = uint32(uint32(cuda.blockIdx.x) * uint32(THREADS) + uint32(cuda.threadIdx.x))
        if i >= uint32(threads):
            return
        if NCHW:
            q, strip, c = uint32(i % one.Q), uint32(i // one.Q % one.strips), uint32(i // (one.Q * one.strips) % one.C)
            n = uint32(i // (one.Q * one.strips * one.C))
        else:
            c, q, strip = uint32(i % one.C), uint32(i // one.C % one.Q), uint32(i // (one.C * one.Q) % one.strips)
            n = uint32(i // (one.C * one.Q * one.strips))
        for tap in range(TAPS):
            taps[tap] = up(w[uint32(c * uint32(TAPS) + uint32(tap)) if NCHW else uint32(uint32(tap * one.C) + c)])
        for k in range(SUMS):
            sums[k] = float32(0)
        p = int32(strip * uint32(one.strip))
        stop = min(int32(one.P), int32(p + one.strip))
        h, v = int32(p * one.stride - one.padding), int32(q * uint32(one.stride)) - int32(one.padding)
        bottom = min(int32(one.H), int32((stop - 1) * one.stride - one.padding + one.K))  # no row from here on
        if NCHW:
            at = uint32(((n * one.C + c) * one.H + uint32(h)) * one.W + uint32(v))
            to = uint32(((n * one.C + c) * one.P + uint32(p)) * one.Q + q)
        else:
            at = uint32(((n * one.H + uint32(h)) * one.W + uint32(v)) * one.C + c)
            to = uint32(((n * one.P + uint32(p)) * one.Q + q) * one.C + c)
        begin = p
        p = int32(p - (SUMS - 1))  # the row of outputs that is done after this step
        while p < stop:
            add_rows(sums, taps, x, at, v, h, bottom)
            if p >= begin:
                y[to] = down(finish(sums[SUMS - 1], b, r, c, to))
                to = uint32(to + uint32(one.Q * one.pixel))
            for k in range(SUMS - 1):
                sums[SUMS - 1 - k] = sums[SUMS - 2 - k]
            sums[0] = float32(0)
            at = uint32(at + uint32(one.stride * one.W * one.pixel))
            h = int32(h + one.stride)
            p = int32(p + 1)

    return kernel


def supports(layer):
    return small_maps(layer) and layer.K <= MOST and layer.stride <= 7


def traffic(layer):
    return Traffic(*sum(often * counts(one) for one, often in repeats(layer, layer.Q * strips(layer)[1])))


def counts(layer):
    """Requests and sectors of loads, then of stores; each thread looked at."""
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    nchw, per_sector = layer.layout == "NCHW", 32 // layer.itemsize
    strip, number = strips(layer)
    threads = layer.N * C * Q * number
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for first in range(0, threads, 1 << 18):
        i = np.arange(first, min(first + (1 << 18), threads))
        if nchw:
            q, p, c, n = i % Q, i // Q % number * strip, i // (Q * number) % C, i // (Q * number * C)
        else:
            c, q, p, n = i % C, i // C % Q, i // (C * Q) % number * strip, i // (C * Q * number)
        for tap in range(K * K):
            load += warp_traffic(c * K * K + tap if nchw else tap * C + c, per_sector)
        if layer.bias:  # after each row, with the output
            bias = [np.where(p + e < P, c, -1) for e in range(strip)]
            load += sum(warp_traffic(one, per_sector) for one in bias)
        for row in range((strip - 1) * S + K):
            if row % S >= K:
                continue
            h = p * S - PAD + row
            inside = (0 <= h) & (h < H) & (h < (np.minimum(P, p + strip) - 1) * S - PAD + K)
            for j in range(K):
                v = q * S - PAD + j
                at = ((n * C + c) * H + h) * W + v if nchw else ((n * H + h) * W + v) * C + c
                load += warp_traffic(np.where(inside & (0 <= v) & (v < W), at, -1), per_sector)
        for e in range(strip):
            to = ((n * C + c) * P + p + e) * Q + q if nchw else ((n * P + p + e) * Q + q) * C + c
            one = warp_traffic(np.where(p + e < P, to, -1), per_sector)
            store += one
            load += one * layer.residual
    return np.concatenate([load, store])


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16", "bfloat16"), view="flat",
    needs={"bfloat16": ("join_bfloats",)},
)  # fmt: skip
def launch(layer):
    threads = layer.N * layer.C * layer.Q * strips(layer)[1]
    return Launch((-(-threads // THREADS),), (THREADS,), scalars=(threads,))
