"""Planes: NCHW in runs of 16-byte pieces, whatever the width of its rows.

Rows of 7 or 14 elements are no whole pieces of 16 bytes, but the maps of an image follow each other without a gap: many
small maps, or a band of rows of a large one, are one run of elements. A block copies its run to shared memory, 16
bytes at a time and rounded outwards to whole pieces, for float32 past the registers; elements of 16 bits become float32
on the way. The outputs of a block are one run as well: they are put together in shared memory, and leave it in pieces.

In between the maps are cut into strips of up to 14 rows of outputs. A thread has T neighbouring columns of a strip, and
its filter in registers, and slides down: each row of x, T + K - 1 reads from shared memory for stride 1, adds to the
sums of all outputs that it is part of. Nothing in the tile is padded; columns outside a map are left out, by
conditions that stay the same all the way down.

A block has some 13 KB of x and as many strips as fill them, but fewer where there would not be blocks for every
multiprocessor.

Predicted: each x from memory once (and K-1 rows more for each block that cuts a map, from the L2 cache), some 22
instructions for an output of K = 3, where a multiprocessor could start 57 in float32 while memory brings one x for
each thread of a warp and takes one y, and 28 in 16 bits: about 90 % of a copy in float32, less in 16 bits.
"""

import math

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise2d import pieces
from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, run_sectors, warp_traffic

ROWS = 14  # of outputs in a strip, at most
RUN = 3584  # elements of x that a block aims at
THREADS = 448  # of a block, at most
MOST = 12000  # words of shared memory: x and y of a block
WANTED = 132 * 4  # blocks


def strips(layer):
    """(columns of a thread, threads of a strip, rows of a strip, strips of a map, strips of a block at most).

    The last is 0 where not even one row of outputs fits.
    """
    V, T = pieces.elements(layer.dtype), 1 if layer.Q <= 8 or layer.stride > 1 else 2
    across = -(-layer.Q // T)
    if across > THREADS:
        return T, across, 1, layer.P, 0
    most = max(1, ROWS // layer.stride)
    rows = -(-layer.P // -(-layer.P // most))
    if V == 8 and layer.P > rows and rows * layer.Q % V:  # cut where a piece ends, or not at all
        step = V // math.gcd(layer.Q, V)
        rows = layer.P if layer.P * layer.Q % V else max(step, most // step * step)
    while rows > 1 and sum(tiles(layer, rows, 1)) > MOST:
        rows = -(-rows // 2)
    unit = _unit(layer, rows)
    n = unit
    while (n + unit) * across <= THREADS and tiles(layer, rows, n + unit)[0] <= RUN:
        n += unit
    fits = n * across <= THREADS and sum(tiles(layer, rows, n)) <= MOST
    aligned = V == 4 or layer.P <= rows or rows * layer.Q % V == 0 and layer.P * layer.Q % V == 0
    return T, across, rows, -(-layer.P // rows), n * (fits and aligned)


def _unit(layer, rows):
    """The strips of a block are a multiple of this: in 16 bits its outputs must begin and end with a whole piece."""
    if layer.dtype == "float32" or layer.P > rows:
        return 1
    V = pieces.elements(layer.dtype)
    return V // math.gcd(layer.P * layer.Q, V)


def runs(layer, rows, each):
    """Of the blocks of one image with `each` strips: (first x, end of x, first y, end of y), elements of the image."""
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    per_map = -(-P // rows)
    first = np.arange(0, layer.C * per_map, each)
    last = np.minimum(first + each, layer.C * per_map) - 1
    p, stop = first % per_map * rows, np.minimum(last % per_map * rows + rows, P)
    x = first // per_map * H + np.maximum(0, p * S - PAD)
    x_end = last // per_map * H + np.minimum(H, (stop - 1) * S - PAD + K)
    return x * W, x_end * W, (first // per_map * P + p) * Q, (last // per_map * P + stop) * Q


def tiles(layer, rows, each):
    """Words of shared memory for x and for y: the longest runs, in whole pieces."""
    V = pieces.elements(layer.dtype)
    x, x_end, y, y_end = runs(layer, rows, each)
    return tuple(int((-(-end // V) - start // V).max()) * V for start, end in ((x, x_end), (y, y_end)))


def each(layer):
    """Strips of a block."""
    _, _, rows, per_map, most = strips(layer)
    unit = _unit(layer, rows)
    return max(unit, min(most, layer.N * layer.C * per_map // WANTED // unit * unit))


@by_shape
def kernel(layer):
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    V, WIDE = pieces.elements(layer.dtype), layer.dtype == "float32"
    T, ACROSS, STRIP, PER_MAP, most = strips(layer)
    X_WORDS, Y_WORDS = tiles(layer, STRIP, most)
    DEEP, DOWN, COLUMNS, TAPS = -(-K // S), min(K, S), (T - 1) * S + K, K * K
    SUMS, BIAS, RESIDUAL = DEEP * T, layer.bias, layer.residual
    element, spread, store = pieces.element(layer.dtype), pieces.spread(layer.dtype), pieces.store(layer.dtype)
    activated, add_residual = pieces.activated(layer), pieces.add_residual(layer.residual, layer.dtype)

    def column(s, j):
        @cuda.jit(device=True, forceinline=True)
        def column(sums, taps, x_tile, at, v):
            value = float32(0)
            if uint32(v + uint32(j)) < uint32(W):
                value = x_tile[uint32(at + uint32(s * W + j))]
            for deep in range(DEEP):
                for e in range(T):
                    if s + S * deep < K and 0 <= j - e * S < K:
                        sums[deep * T + e] += taps[(s + S * deep) * K + j - e * S] * value

        return column

    def row(s):
        columns = in_turn([column(s, j) for j in range(COLUMNS)], arguments=5)

        @cuda.jit(device=True, forceinline=True)
        def row(sums, taps, x_tile, at, v, h, bottom):
            if uint32(h + s) < uint32(bottom):
                columns(sums, taps, x_tile, at, v)

        return row

    add_rows = in_turn([row(s) for s in range(DOWN)], arguments=7)

    @cuda.jit(device=True, forceinline=True)
    def bring(x_tile, x, origin, count):
        i = uint32(cuda.threadIdx.x)
        threads = uint32(cuda.blockDim.x)
        if WIDE:
            while i < count:
                ptx.copy4_async(x_tile, uint32(i * uint32(4)), x, uint32(origin + i * uint32(4)))
                i = uint32(i + threads)
        else:
            raw = cuda.local.array(16, float32)
            values = cuda.local.array(8, float32)
            while i < count:
                for m in range(4):  # all four on their way before the first is used
                    k = uint32(i + uint32(m) * threads)
                    if k < count:
                        word = uint32((origin >> uint32(1)) + k * uint32(4))
                        raw[4 * m], raw[4 * m + 1], raw[4 * m + 2], raw[4 * m + 3] = ptx.load4(x, word)
                for m in range(4):
                    k = uint32(i + uint32(m) * threads)
                    if k < count:
                        spread(values, 0, raw[4 * m], raw[4 * m + 1], raw[4 * m + 2], raw[4 * m + 3])
                        to = uint32(k * uint32(8))
                        ptx.store4_shared(x_tile, to, values[0], values[1], values[2], values[3])
                        ptx.store4_shared(x_tile, uint32(to + uint32(4)), values[4], values[5], values[6], values[7])
                i = uint32(i + uint32(4) * threads)
        ptx.commit()

    @cuda.jit(device=True, forceinline=True)
    def take(y_tile, y, r, origin, start, end):
        values = cuda.local.array(V, float32)
        i = uint32(uint32(cuda.threadIdx.x) * uint32(V))
        while origin + i < end:
            at = uint32(origin + i)
            if at >= start and at + uint32(V) <= end:
                for part in range(V // 4):
                    k = 4 * part
                    a, b, c, d = ptx.load4_shared(y_tile, uint32(i + uint32(k)))
                    values[k], values[k + 1], values[k + 2], values[k + 3] = a, b, c, d
                word = at if WIDE else uint32(at >> uint32(1))
                add_residual(values, 0, r, word)
                store(y, word, values, 0)
            elif WIDE:  # the piece is another block's as well
                for k in range(4):
                    if at + uint32(k) >= start and at + uint32(k) < end:
                        total = y_tile[uint32(i + uint32(k))]
                        if RESIDUAL:
                            total += r[uint32(at + uint32(k))]
                        y[uint32(at + uint32(k))] = total
            i = uint32(i + uint32(cuda.blockDim.x) * uint32(V))

    @cuda.jit
    def kernel(x, w, b, m, r, y, each):
        ptx.grid_dependency_wait()
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        y_tile = cuda.shared.array(Y_WORDS, float32, 16)
        taps = cuda.local.array(TAPS, float32)
        sums = cuda.local.array(SUMS, float32)
        bias = cuda.local.array(1, float32)
        n = uint32(cuda.blockIdx.y)
        first = uint32(uint32(cuda.blockIdx.x) * uint32(each))
        last = uint32(min(uint32(first + uint32(each)), uint32(C * PER_MAP)) - uint32(1))
        c, p = uint32(first // uint32(PER_MAP)), int32(first % uint32(PER_MAP) * uint32(STRIP))
        top = uint32(uint32(n * uint32(C) + c) * uint32(H) + uint32(max(int32(0), int32(p * S - PAD))))
        y_start = uint32(uint32(uint32(n * uint32(C) + c) * uint32(P) + uint32(p)) * uint32(Q))
        c = uint32(last // uint32(PER_MAP))
        stop = min(int32(P), int32(last % uint32(PER_MAP) * uint32(STRIP) + uint32(STRIP)))
        below = uint32(min(int32(H), int32((stop - 1) * S - PAD + K)))
        x_end = uint32((uint32(uint32(n * uint32(C) + c) * uint32(H)) + below) * uint32(W))
        y_end = uint32((uint32(uint32(n * uint32(C) + c) * uint32(P)) + uint32(stop)) * uint32(Q))
        x_origin = uint32(uint32(top * uint32(W)) // uint32(V) * uint32(V))
        y_origin = uint32(y_start // uint32(V) * uint32(V))
        bring(x_tile, x, x_origin, uint32((x_end - x_origin + uint32(V - 1)) // uint32(V)))

        strip = uint32(first + uint32(cuda.threadIdx.x) // uint32(ACROSS))
        q = uint32(uint32(cuda.threadIdx.x) % uint32(ACROSS) * uint32(T))
        c, p = uint32(strip // uint32(PER_MAP)), int32(strip % uint32(PER_MAP) * uint32(STRIP))
        if strip <= last:
            for tap in range(TAPS):
                taps[tap] = element(w, uint32(c * uint32(TAPS) + uint32(tap)))
            if BIAS:
                bias[0] = element(b, c)
        ptx.wait(0)
        cuda.syncthreads()
        if strip <= last:
            for k in range(SUMS):
                sums[k] = float32(0)
            stop = min(int32(P), int32(p + STRIP))
            h = int32(p * S - PAD)
            bottom = min(int32(H), int32((stop - 1) * S - PAD + K))  # rows of x from here on may not be in the tile
            v = uint32(q * uint32(S) - uint32(PAD))  # left of the map: wraps to a huge number
            at = uint32((uint32(uint32(n * uint32(C) + c) * uint32(H)) + uint32(h)) * uint32(W) + v - x_origin)
            to = uint32((uint32(uint32(n * uint32(C) + c) * uint32(P)) + uint32(p)) * uint32(Q) + q - y_origin)
            begin = p
            p = int32(p - (DEEP - 1))  # the row of outputs that is done after this step
            while p < stop:
                add_rows(sums, taps, x_tile, at, v, h, bottom)
                if p >= begin:
                    for e in range(T):
                        if q + uint32(e) < uint32(Q):
                            y_tile[uint32(to + uint32(e))] = activated(sums[(DEEP - 1) * T + e], bias, 0)
                    to = uint32(to + uint32(Q))
                for k in range((DEEP - 1) * T):
                    sums[SUMS - 1 - k] = sums[SUMS - 1 - k - T]
                for k in range(T):
                    sums[k] = float32(0)
                at = uint32(at + uint32(S * W))
                h = int32(h + S)
                p = int32(p + 1)
        cuda.syncthreads()
        take(y_tile, y, r, y_origin, y_start, y_end)

    return kernel


def supports(layer):
    V = pieces.elements(layer.dtype)
    if layer.layout != "NCHW" or not 1 <= layer.K <= 7 or layer.stride > 7 or layer.N > 65535:
        return False
    if layer.C * layer.H * layer.W % V or layer.C * layer.P * layer.Q % V or layer.dtype != "float32" and layer.C % 2:
        return False
    return layer.N * layer.C * layer.H * layer.W < 2**31 and strips(layer)[4] > 0


def traffic(layer):
    K, V, N = layer.K, pieces.elements(layer.dtype), layer.N
    T, across, rows, per_map, _ = strips(layer)
    number = each(layer)
    threads = _threads(across, number)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    image = np.arange(N)[:, None]
    x, x_end, y, y_end = runs(layer, rows, number)
    x, x_end = (one + image * layer.C * layer.H * layer.W for one in (x, x_end))
    y, y_end = (one + image * layer.C * layer.P * layer.Q for one in (y, y_end))
    load += _pieces(x // V, -(-x_end // V))
    whole = _pieces(y // V, -(-y_end // V), -(-y // V), y_end // V)
    store += whole
    if V == 4:  # the ends that are no whole pieces: 4 accesses of an element, each by one lane
        store += _ends(y, y_end, threads)
    load += store * layer.residual
    # Each thread's filter and bias: the same for every image.
    thread = np.arange(threads)
    strip = np.arange(0, layer.C * per_map, number)[:, None] + thread // across
    there = (strip < layer.C * per_map) & (thread // across < number)
    c = strip // per_map
    for tap in range(K * K):
        word = (c * K * K + tap) * 4 // (16 // V) // 4 if V == 8 else c * K * K + tap
        load += N * warp_traffic(np.where(there, word, -1))
    if layer.bias:
        load += N * warp_traffic(np.where(there, c // (V // 4), -1))
    return Traffic(*load, *store)


def _threads(across, number):
    return -(-across * number // 32) * 32


def _pieces(first, end, low=None, high=None):
    """[requests, sectors] of warps that move the pieces first <= i < end, of which those in low <= i < high count."""
    low, high = first if low is None else low, end if high is None else high
    found = np.zeros(2, np.int64)
    for start in range(0, int((end - first).max()), 32):
        begin = np.maximum(first + start, low)
        count = np.minimum(first + start + 32, high) - begin
        found += np.count_nonzero(count > 0), run_sectors(4 * begin, 4 * count).sum()
    return found


def _ends(y, end, threads):
    """[requests, sectors] of the elements before the first and after the last whole piece of runs, float32.

    A warp that has both does the first and the second element of either in one access.
    """
    first, last = y // 4, (end - 1) // 4  # pieces
    found = np.zeros(2, np.int64)
    for k in range(4):
        head = (y % 4 > 0) | (end < 4 * first + 4)
        head = head & (4 * first + k >= y) & (4 * first + k < end)
        tail = (last > first) & (end % 4 > 0) & (4 * last + k < end)
        together = head & tail & (last - first < 32)
        sectors = head.astype(int) + tail - (together & (first // 2 == last // 2))
        found += (head.astype(int) + tail - together).sum(), sectors.sum()
    return found


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=pieces.DTYPES, view="words", aligned=16,
    needs=("copy4_async",),
)  # fmt: skip
def launch(layer):
    _, across, _, per_map, _ = strips(layer)
    number = each(layer)
    blocks = -(-layer.C * per_map // number)
    return Launch((blocks, layer.N), (_threads(across, number),), scalars=(number,))
