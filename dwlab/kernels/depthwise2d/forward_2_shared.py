"""Shared: a block stages a tile of x with its halo in shared memory, and each product reads it there.

256 threads compute a tile of 256 outputs: in NCHW 8 rows of 32 columns of one map, in NHWC 2 rows of 4 columns of 32
channels, so that in both layouts a warp's lanes are neighbours in memory. They load the x that the tile needs, each
once, with zeros for what lies outside the map: the K x K products then need no condition and little index arithmetic.

Halos are loaded by each tile that needs them: for K = 3 a tile reads 1.33 times its x in NCHW, and 3 times in NHWC,
where a tile has few columns and rows. A tile that hangs over the map's edge leaves threads idle: of maps of 7 x 7 a
block in NCHW has 49 outputs.

Traffic: x with halos once, w for each tap as in naive, y once.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.depthwise2d.repeats import repeats
from dwlab.kernels.parts import epilogue
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.target import cuda

THREADS = 256
TILES = {"NCHW": (1, 8, 32), "NHWC": (32, 2, 4)}  # channels, rows, columns of outputs; all 256
MOST = 12000  # elements of x that a block has room for


def sizes(layer):
    """(rows, columns) of x that a tile needs; (channels', rows', columns') tiles of an image."""
    channels, rows, columns = TILES[layer.layout]
    needs = (rows - 1) * layer.stride + layer.K, (columns - 1) * layer.stride + layer.K
    return needs, (-(-layer.C // channels), -(-layer.P // rows), -(-layer.Q // columns))


@by_shape
def kernel(layer):
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    NCHW, finish = layer.layout == "NCHW", epilogue.finish(layer)
    CHANNELS, ROWS, COLUMNS = TILES[layer.layout]
    (DOWN, ACROSS), (_, BANDS, STRIPES) = sizes(layer)
    NEEDS = CHANNELS * DOWN * ACROSS

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        tile = cuda.shared.array(NEEDS, float32)
        n = uint32(cuda.blockIdx.y)
        c0 = uint32(uint32(cuda.blockIdx.x) // uint32(BANDS * STRIPES) * uint32(CHANNELS))
        p0 = uint32(uint32(cuda.blockIdx.x) // uint32(STRIPES) % uint32(BANDS) * uint32(ROWS))
        q0 = uint32(uint32(cuda.blockIdx.x) % uint32(STRIPES) * uint32(COLUMNS))
        k = uint32(cuda.threadIdx.x)
        while k < NEEDS:  # in the order of x: channels last in NHWC, and the only one in NCHW
            c = uint32(c0 + k % uint32(CHANNELS))
            h = uint32(p0 * S + k // uint32(CHANNELS * ACROSS) - PAD)  # above the map: wraps to a huge number
            v = uint32(q0 * S + k // uint32(CHANNELS) % uint32(ACROSS) - PAD)
            value = float32(0)
            if c < C and h < H and v < W:
                if NCHW:
                    value = float32(x[uint32(((n * C + c) * H + h) * W + v)])
                else:
                    value = float32(x[uint32(((n * H + h) * W + v) * C + c)])
            tile[k] = value
            k = uint32(k + uint32(THREADS))
        cuda.syncthreads()
        k = uint32(cuda.threadIdx.x)
        c, i, j = uint32(k % CHANNELS), uint32(k // (CHANNELS * COLUMNS)), uint32(k // CHANNELS % COLUMNS)
        own = uint32((i * S * ACROSS + j * S) * CHANNELS + c)
        c, p, q = uint32(c0 + c), uint32(p0 + i), uint32(q0 + j)
        if c >= C or p >= P or q >= Q:
            return
        total = float32(0)
        for i in range(K):
            for j in range(K):
                f = w[uint32((c * K + i) * K + j)] if NCHW else w[uint32((i * K + j) * C + c)]
                total += float32(f) * tile[uint32(own + (i * ACROSS + j) * CHANNELS)]
        if NCHW:
            at = uint32(((n * C + c) * P + p) * Q + q)
        else:
            at = uint32(((n * P + p) * Q + q) * C + c)
        y[at] = finish(total, b, r, c, at)

    return kernel


def supports(layer):
    (down, across), tiles = sizes(layer)
    fits = TILES[layer.layout][0] * down * across <= MOST and layer.N <= 65535
    return fits and layer.N * layer.C * max(layer.H * layer.W, layer.P * layer.Q) < 2**31


def traffic(layer):
    return Traffic(*sum(often * counts(one) for one, often in repeats(layer, 32)))


def counts(layer):
    """Requests and sectors of loads, then of stores; each thread looked at."""
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    nchw, per_sector = layer.layout == "NCHW", 32 // layer.itemsize
    channels, rows, columns = TILES[layer.layout]
    (down, across), (groups, bands, stripes) = sizes(layer)
    block = np.arange(groups * bands * stripes)[:, None]
    c0, p0, q0 = block // (bands * stripes) * channels, block // stripes % bands * rows, block % stripes * columns
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for n in range(layer.N):
        for first in range(0, channels * down * across, THREADS):
            k = first + np.arange(THREADS)
            c, h, v = c0 + k % channels, p0 * S + k // (channels * across) - PAD, k // channels % across + q0 * S - PAD
            there = (k < channels * down * across) & (c < C) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
            at = ((n * C + c) * H + h) * W + v if nchw else ((n * H + h) * W + v) * C + c
            load += warp_traffic(np.where(there, at, -1), per_sector)
        k = np.arange(THREADS)
        c, p, q = c0 + k % channels, p0 + k // (channels * columns), q0 + k // channels % columns
        there = (c < C) & (p < P) & (q < Q)
        for i in range(K):
            for j in range(K):
                at = (c * K + i) * K + j if nchw else (i * K + j) * C + c
                load += warp_traffic(np.where(there, at, -1), per_sector)
        at = ((n * C + c) * P + p) * Q + q if nchw else ((n * P + p) * Q + q) * C + c
        one = warp_traffic(np.where(there, at, -1), per_sector)
        store += one
        load += one * layer.residual + layer.bias * warp_traffic(np.where(there, c, -1), per_sector)
    return np.concatenate([load, store])


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16"), view="flat")
def launch(layer):
    _, (groups, bands, stripes) = sizes(layer)
    return Launch((groups * bands * stripes, layer.N), (THREADS,))
