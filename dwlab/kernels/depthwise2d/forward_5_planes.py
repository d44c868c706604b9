"""Planes: NCHW in runs of 16-byte vectors, whatever the width of its rows.

Rows of 7 or 14 elements are no whole 16-byte vectors, but the maps of an image follow each other without a gap: many
small maps, or a band of rows of a large one, are one run of elements (bands.py). A block copies its run to shared
memory, for float32 past the registers; elements of 16 bits become float32 on the way. Its outputs are one run as well:
they are put together in shared memory, and leave it in vectors (runs.py).
In between a thread has T neighbouring columns of a strip of up to 14 rows of outputs, and its filter in registers. It
slides down: each row of x, T + K - 1 reads from shared memory for stride 1, adds to the sums of all outputs that it is
part of. Nothing in the tile is padded; columns outside a map are left out, by conditions that never change.

Predicted: each x from memory once (and K-1 rows more for each block that cuts a map, from the L2 cache), some 22
instructions for an output of K = 3, where a multiprocessor could start 57 in float32 while memory brings one x for
each thread of a warp and takes one y, and 28 in 16 bits: about 90 % of a copy in float32, less in 16 bits.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.depthwise2d import bands, runs, vectors
from dwlab.kernels.parts import constants, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Tiles
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.target import cuda


def add_rows(layer):
    """add_rows(sums, taps, x_tile, at, v, h, bottom): all products of the rows of x that a step has, below `bottom`."""
    W, K, S, T = layer.W, layer.K, layer.stride, bands.strips(layer).columns

    def column(s, j):
        """Column j of the s-th row of x that a step has: its products, each for a sum of the window."""

        @cuda.jit(device=True, forceinline=True)
        def column(sums, taps, x_tile, at, v):
            value = float32(0)
            if uint32(v + uint32(j)) < uint32(W):
                value = x_tile[uint32(at + uint32(s * W + j))]
            for deep in range(-(-K // S)):
                for e in range(T):
                    if s + S * deep < K and 0 <= j - e * S < K:
                        sums[deep * T + e] += taps[(s + S * deep) * K + j - e * S] * value

        return column

    def row(s):
        columns = in_sequence([column(s, j) for j in range((T - 1) * S + K)])

        @cuda.jit(device=True, forceinline=True)
        def row(sums, taps, x_tile, at, v, h, bottom):
            if uint32(h + s) < uint32(bottom):
                columns(sums, taps, x_tile, at, v)

        return row

    return in_sequence([row(s) for s in range(min(K, S))])


@by_shape
def kernel(layer):
    V, one = pieces.elements(layer.dtype), constants.of(layer, bands.strips(layer), deep=-(-layer.K // layer.stride))
    (X_WORDS, Y_WORDS), TAPS, SUMS = bands.words(layer, one.rows, one.most), one.K**2, one.deep * one.columns
    run_of_block, load_async, store = bands.run_of_block(layer), runs.load_async(layer.dtype), runs.store(layer)
    element, activated, add = vectors.element(layer.dtype), vectors.activated(layer), add_rows(layer)

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
        last = uint32(min(uint32(first + uint32(each)), uint32(one.C * one.per_map)) - uint32(1))
        x_start, x_end, y_start, y_end = run_of_block(n, first, last)
        x_origin, y_origin = uint32(x_start // uint32(V) * uint32(V)), uint32(y_start // uint32(V) * uint32(V))
        load_async(x_tile, x, x_origin, uint32((x_end - x_origin + uint32(V - 1)) // uint32(V)))
        strip = uint32(first + uint32(cuda.threadIdx.x) // uint32(one.across))
        q = uint32(uint32(cuda.threadIdx.x) % uint32(one.across) * uint32(one.columns))
        c, p = uint32(strip // uint32(one.per_map)), int32(strip % uint32(one.per_map) * uint32(one.rows))
        if strip <= last:
            for tap in range(TAPS):
                taps[tap] = element(w, uint32(c * uint32(TAPS) + uint32(tap)))
            if one.bias:
                bias[0] = element(b, c)
        ptx.wait(0)
        cuda.syncthreads()
        if strip <= last:
            for k in range(SUMS):
                sums[k] = float32(0)
            stop = min(int32(one.P), int32(p + one.rows))
            h = int32(p * one.stride - one.padding)
            bottom = min(int32(one.H), int32((stop - 1) * one.stride - one.padding + one.K))  # no row from here on
            v = uint32(q * uint32(one.stride) - uint32(one.padding))  # left of the map: wraps to a huge number
            plane = uint32(n * uint32(one.C) + c)
            at = uint32((uint32(plane * uint32(one.H)) + uint32(h)) * uint32(one.W) + v - x_origin)
            to = uint32((uint32(plane * uint32(one.P)) + uint32(p)) * uint32(one.Q) + q - y_origin)
            begin = p
            p = int32(p - (one.deep - 1))  # the row of outputs that is done after this step
            while p < stop:
                add(sums, taps, x_tile, at, v, h, bottom)
                if p >= begin:
                    for e in range(one.columns):
                        if q + uint32(e) < uint32(one.Q):
                            y_tile[uint32(to + uint32(e))] = activated(sums[(one.deep - 1) * one.columns + e], bias, 0)
                    to = uint32(to + uint32(one.Q))
                for k in range((one.deep - 1) * one.columns):
                    sums[SUMS - 1 - k] = sums[SUMS - 1 - k - one.columns]
                for k in range(one.columns):
                    sums[k] = float32(0)
                at = uint32(at + uint32(one.stride * one.W))
                h, p = int32(h + one.stride), int32(p + 1)
        cuda.syncthreads()
        store(y_tile, y, r, y_origin, y_start, y_end)

    return kernel


def supports(layer):
    V = pieces.elements(layer.dtype)
    if layer.layout != "NCHW" or not 1 <= layer.K <= 7 or layer.stride > 7 or layer.N > 65535:
        return False
    if layer.C * layer.H * layer.W % V or layer.C * layer.P * layer.Q % V or layer.dtype != "float32" and layer.C % 2:
        return False
    return layer.N * layer.C * layer.H * layer.W < 2**31 and bands.strips(layer).most > 0


def traffic(layer, config):
    K, C, V, N = layer.K, layer.C, pieces.elements(layer.dtype), layer.N
    (each, threads), one = bands.block(config), bands.strips(layer)
    x, x_end, y, y_end = bands.runs(layer, one.rows, each)
    x0, y0 = (np.arange(N)[:, None] * C * size for size in (layer.H * layer.W, layer.P * layer.Q))  # of each image
    store = runs.stored(y0 + y, y0 + y_end, V)
    load = runs.loaded(x0 + x, x0 + x_end, V) + store * layer.residual
    # Each thread's filter and bias: the same for every image.
    mine = np.arange(threads) // one.across
    strip = np.arange(0, C * one.per_map, each)[:, None] + mine
    c = np.where((strip < C * one.per_map) & (mine < each), strip // one.per_map, -1)
    for element in [c * K * K + tap for tap in range(K * K)] + [c] * layer.bias:
        load += N * warp_traffic(np.where(c < 0, -1, element // (V // 4)))
    return Traffic(*load, *store)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=vectors.DTYPES, view="words", aligned=16,
    needs=("copy4_async",), tiles=Tiles(bands.configs, bands.resources),
)  # fmt: skip
def launch(layer, config):
    each, threads = bands.block(config)
    return Launch((-(-layer.C * bands.strips(layer).per_map // each), layer.N), (threads,), scalars=(each,))
