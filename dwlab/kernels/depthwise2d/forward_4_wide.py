"""Wide: NHWC with 16 bytes an access, down the rows of a map with everything in registers.

In NHWC neighbouring channels lie together, so a thread takes a 16-byte vector of them, 4 channels or 8 of 16 bits, and
every access of a warp is of whole sectors. A thread has T neighbouring columns of outputs and slides down a band of
rows (vector_window.py). Each row of x adds to the sums of all the outputs that it is part of, K rows of them for stride
1; then the oldest sums are done, and the others move on. So a thread loads a vector of x once for each column that
needs it: for K = 3 and T = 2 four vectors for two of outputs, and neighbours' halves of these come from the L1 cache.
The next row is in flight before this one is computed with. All places are the first plus constants.
Bands are as high as leaves enough threads to fill the GPU; the K-1 rows between two come from the L2 cache again.

Predicted: for K = 3 some 60 instructions for a vector of outputs of float32 and some 120 for one of float16, where a
multiprocessor could start 230 while memory brings one vector and takes one: bound by memory, about 90 % of a copy.
With K = 5 in 16 bits and K = 7 there are 200 multiply-adds and more for each vector: bound by arithmetic.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise2d import strips_traffic, vector_window, vectors
from dwlab.kernels.parts import pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost

WANTED = 2048  # threads of a multiprocessor, that fill it a few times over
WIDTH = 2  # columns of a thread, where rows are longer than 8
THREADS = 256  # of a block, at most
W_WORDS = 5000  # of shared memory for filters, at most


def shape(layer):
    """(vectors of channels of a block, columns' tiles of a block, columns of a tile, tiles of a row)."""
    count, T = layer.C // pieces.elements(layer.dtype), 1 if layer.Q <= 8 else WIDTH
    tiles = -(-layer.Q // T)
    mine = -(-tiles // -(-tiles // 16))
    most = min(THREADS // mine, 64, W_WORDS // (layer.K**2 * pieces.elements(layer.dtype)))
    least = min(count, 8, most)
    groups = min(range(least, min(count, most) + 1), key=lambda g: (-(-count // g) * g, -g))
    return groups, mine, T, tiles


def configs(layer, images, gpu):
    """Rows of outputs that a thread slides down: as many as leave threads enough for the GPU."""
    V, (G, mine, T, tiles) = pieces.elements(layer.dtype), shape(layer)
    threads = images * tiles * (layer.C // V)
    bands = min(layer.P, -(-WANTED * gpu.sms // threads))
    return [TileConfig(block_n=V * G, block_w=T * mine, thread_m=-(-layer.P // bands), thread_n=T, vector=V)]


def resources(layer, config):
    G, mine, _, _ = shape(layer)
    return Resources(G * mine, 255)  # so many of 256 threads start, whatever the compiler takes


def cost(layer, images, config, gpu):
    return Cost()  # by the rule of `configs`, which leaves one


@by_shape
def kernel(layer):
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    V, BIAS, (G, TILES, T, ALL) = pieces.elements(layer.dtype), layer.bias, shape(layer)
    VECTORS, QBLOCKS, PIXEL = C // V, -(-ALL // TILES), C // V * 4
    DEEP, _, _, WORDS, VALUES, SUMS, TAPS, W_TILE = vector_window.sizes(layer, T, G)
    load_rows, load_filter = vector_window.load_rows(layer, T), vector_window.load_filter(layer, G, TILES)
    multiply_add, unpack = vector_window.multiply_add(layer, T, G), pieces.unpack_vector(layer.dtype)
    store_row, load = vector_window.store_row(layer, T), vectors.load(layer.dtype)

    @cuda.jit
    def kernel(x, w, b, m, r, y, rows):
        ptx.grid_dependency_wait()
        w_tile = cuda.shared.array(W_TILE, float32, 16)
        taps = cuda.local.array(TAPS, float32)
        bias = cuda.local.array(V, float32)
        sums = cuda.local.array(SUMS, float32)
        x_words = cuda.local.array(WORDS, float32)
        ahead = cuda.local.array(WORDS, float32)
        values = cuda.local.array(VALUES, float32)
        lane = uint32(cuda.threadIdx.x)
        group = uint32(uint32(cuda.blockIdx.y) // uint32(QBLOCKS))
        tile = uint32(uint32(uint32(cuda.blockIdx.y) % uint32(QBLOCKS)) * uint32(TILES) + uint32(cuda.threadIdx.y))
        c = uint32(group * uint32(G) + lane)
        p = int32(cuda.blockIdx.x * rows)
        stop = min(int32(p + rows), int32(P))
        h = int32(p * S - PAD)
        bottom = min(int32(H), int32((stop - 1) * S - PAD + K))  # rows of x from here on are for other bands
        v = int32(tile * uint32(T * S)) - int32(PAD)
        base = ((np.int64(cuda.blockIdx.z) * H + h) * W + v) * PIXEL + c * uint32(4)
        there = c < uint32(VECTORS) and tile < uint32(ALL)
        if there:
            load_rows(x_words, x, base, h, bottom, v)
        load_filter(taps, w_tile, bias, w, c, lane, there)
        if not there:
            return
        if BIAS:
            load(bias, 0, b, uint32(c * uint32(4)))
        for k in range(SUMS):
            sums[k] = float32(0)
        p = int32(p - (DEEP - 1))  # the row of outputs that is done after this step
        out = ((np.int64(cuda.blockIdx.z) * P + p) * Q + tile * uint32(T)) * PIXEL + c * uint32(4)
        first = int32(cuda.blockIdx.x * rows)
        while p < stop:
            h = int32(h + S)
            base += S * W * PIXEL
            load_rows(ahead, x, base, h, bottom, v)
            for n in range(WORDS // 4):
                k = 4 * n
                unpack(values, n * V, x_words[k], x_words[k + 1], x_words[k + 2], x_words[k + 3])
            multiply_add(sums, values, taps, w_tile, lane)
            if p >= first:
                store_row(y, r, out, tile * uint32(T), sums, bias)
            for k in range((DEEP - 1) * T * V):
                sums[SUMS - 1 - k] = sums[SUMS - 1 - k - T * V]
            for k in range(T * V):
                sums[k] = float32(0)
            for k in range(WORDS):
                x_words[k] = ahead[k]
            out += Q * PIXEL
            p = int32(p + 1)

    return kernel


def supports(layer):
    V = pieces.elements(layer.dtype)
    if layer.layout != "NHWC" or layer.C % V or not 1 <= layer.K <= 7 or layer.stride > 7:
        return False
    G, TILES, T, tiles = shape(layer)
    blocks = -(-(layer.C // V) // G) * -(-tiles // TILES)
    return layer.N <= 65535 and blocks <= 65535 and layer.H * layer.W * layer.C < 2**31


def traffic(layer, config):
    (G, TILES, T, _), R, S = shape(layer), config.thread_m, layer.stride
    rows = [p * S - layer.padding + np.arange((min(R, layer.P - p) - 1) * S + layer.K) for p in range(0, layer.P, R)]
    rows = [one[np.arange(len(one)) % S < layer.K] for one in rows]  # of each band, without those between the filters
    columns, staged = range((T - 1) * S + layer.K), not vector_window.in_registers(layer)
    return strips_traffic.traffic(layer, (G, TILES), config.vector, T, rows, columns, staged)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=vectors.DTYPES, view="words", aligned=16,
    needs={"bfloat16": ("join_bfloats",)}, tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    G, TILES, T, tiles = shape(layer)
    blocks = -(-(layer.C // pieces.elements(layer.dtype)) // G) * -(-tiles // TILES)
    return Launch((-(-layer.P // config.thread_m), blocks, layer.N), (G, TILES), scalars=(config.thread_m,))
