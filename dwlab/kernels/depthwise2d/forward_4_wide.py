"""Wide: NHWC with 16 bytes an access, down the rows of a map with everything in registers.

In NHWC neighbouring channels lie together, so a thread takes a piece of 16 bytes of them, 4 channels or 8 of 16 bits,
and every access of a warp is of whole sectors. A thread has T neighbouring columns of outputs and slides down a band
of rows. Each row of x adds to the sums of all the outputs that it is part of, K rows of them for stride 1; then the
oldest sums are done, and the others move on. So a thread loads a piece of x once for each column that needs it: for
K = 3 and T = 2 four pieces for two pieces of outputs, and neighbours' halves of these come from the L1 cache, as the
threads of a block are neighbours in channels first and in columns second. The pieces of the next row are asked for
before this row is computed with.

All places of a thread's pieces are its first one plus constants: no index is computed in the loop. For K = 3 the
filter stays in registers, for larger ones it waits in shared memory as float32.

The bands are as high as leaves enough threads to fill the GPU; the K-1 rows between two bands are loaded by both, and
come from the L2 cache the second time.

Predicted: for K = 3 some 60 instructions for a piece of outputs of float32 and some 120 for one of float16, where a
multiprocessor could start 230 while memory brings one piece and takes one: bound by memory, about 90 % of a copy.
With K = 5 in 16 bits and K = 7 there are 200 multiply-adds and more for each piece: bound by arithmetic.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.depthwise2d import pieces
from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost
from dwlab.kernels.traffic import Traffic, warp_traffic

WANTED = 2048  # threads of a multiprocessor, that fill it a few times over
WIDTH = 2  # columns of a thread, where rows are longer than 8
THREADS = 256  # of a block, at most
W_WORDS = 5000  # of shared memory for filters, at most


def shape(layer):
    """(channel pieces of a block, columns' tiles of a block, columns of a tile, tiles of a row)."""
    vectors, T = layer.C // pieces.elements(layer.dtype), 1 if layer.Q <= 8 else WIDTH
    tiles = -(-layer.Q // T)
    mine = -(-tiles // -(-tiles // 16))
    most = min(THREADS // mine, 64, W_WORDS // (layer.K**2 * pieces.elements(layer.dtype)))
    least = min(vectors, 8, most)
    groups = min(range(least, min(vectors, most) + 1), key=lambda g: (-(-vectors // g) * g, -g))
    return groups, mine, T, tiles


def configs(layer, images, gpu):
    """Rows of outputs that a thread slides down: as many as leave threads enough for the GPU."""
    G, mine, T, tiles = shape(layer)
    V = pieces.elements(layer.dtype)
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
    V = pieces.elements(layer.dtype)
    G, TILES, T, ALL = shape(layer)
    VECTORS, QBLOCKS = C // V, -(-ALL // TILES)
    DEEP, ROWS, COLUMNS = -(-K // S), min(K, S), (T - 1) * S + K  # rows of sums; rows and columns of x a step
    PIXEL, SUMS, WORDS = VECTORS * 4, DEEP * T * V, ROWS * COLUMNS * 4
    VALUES, IN_REGISTERS = ROWS * COLUMNS * V, K <= 3
    TAPS, W_TILE = (K * K * V, 4) if IN_REGISTERS else (4, K * K * G * V)
    BIAS = layer.bias
    spread, load, store = pieces.spread(layer.dtype), pieces.load(layer.dtype), pieces.store(layer.dtype)
    activated, add_residual = pieces.activated(layer), pieces.add_residual(layer.residual, layer.dtype)

    def ask_one(s, j):
        place, to = (s * W + j) * PIXEL, (s * COLUMNS + j) * 4

        @cuda.jit(device=True, forceinline=True)
        def ask(x_words, x, base, h, bottom, v):
            if uint32(h + s) < uint32(bottom) and uint32(v + j) < uint32(W):
                a, b, c, d = ptx.load4(x, base + place)
            else:
                a = b = c = d = float32(0)
            x_words[to], x_words[to + 1], x_words[to + 2], x_words[to + 3] = a, b, c, d

        return ask

    def multiply(s, deep, j):
        tap, first, above = (s + S * deep) * K + j, deep * T * V, (s * COLUMNS + j) * V

        @cuda.jit(device=True, forceinline=True)
        def multiply(sums, values, taps, w_tile, lane):
            if IN_REGISTERS:
                for e in range(T):
                    for k in range(V):
                        sums[first + e * V + k] += taps[tap * V + k] * values[above + e * S * V + k]
            else:
                for part in range(V // 4):
                    f0, f1, f2, f3 = ptx.load4_shared(w_tile, uint32(lane * uint32(V) + uint32(tap * G * V + 4 * part)))
                    for e in range(T):
                        to, of = first + e * V + 4 * part, above + e * S * V + 4 * part
                        sums[to] += f0 * values[of]
                        sums[to + 1] += f1 * values[of + 1]
                        sums[to + 2] += f2 * values[of + 2]
                        sums[to + 3] += f3 * values[of + 3]

        return multiply

    ask = in_turn([ask_one(s, j) for s in range(ROWS) for j in range(COLUMNS)], arguments=6)
    products = [multiply(s, deep, j) for s in range(ROWS) for deep in range(DEEP) for j in range(K) if s + S * deep < K]
    multiply_all = in_turn(products, arguments=5)

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
            ask(x_words, x, base, h, bottom, v)
        if IN_REGISTERS:
            if there:
                for tap in range(K * K):
                    load(taps, tap * V, w, uint32(c * uint32(4) + uint32(tap * PIXEL)))
        else:
            i = uint32(cuda.threadIdx.y)
            while i < uint32(K * K):
                if c < uint32(VECTORS):
                    load(bias, 0, w, uint32(c * uint32(4) + i * uint32(PIXEL)))
                    for part in range(V // 4):
                        at = uint32(i * uint32(G * V) + lane * uint32(V) + uint32(4 * part))
                        k = 4 * part
                        ptx.store4_shared(w_tile, at, bias[k], bias[k + 1], bias[k + 2], bias[k + 3])
                i = uint32(i + uint32(TILES))
            cuda.syncthreads()
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
            ask(ahead, x, base, h, bottom, v)
            for n in range(WORDS // 4):
                k = 4 * n
                spread(values, n * V, x_words[k], x_words[k + 1], x_words[k + 2], x_words[k + 3])
            multiply_all(sums, values, taps, w_tile, lane)
            if p >= first:
                for e in range(T):
                    if tile * uint32(T) + uint32(e) < uint32(Q):
                        for k in range(V):
                            last = (DEEP - 1) * T * V + e * V + k
                            sums[last] = activated(sums[last], bias, k)
                        add_residual(sums, (DEEP - 1) * T * V + e * V, r, out + e * PIXEL)
                        store(y, out + e * PIXEL, sums, (DEEP - 1) * T * V + e * V)
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
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    V = pieces.elements(layer.dtype)
    G, TILES, T, ALL = shape(layer)
    vectors, rows = C // V, config.thread_m
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    pixel = vectors * 4
    thread = np.arange(G * TILES)
    for group in range(-(-vectors // G)):
        c = group * G + thread % G
        if K > 3:  # the filters, to shared memory
            i = thread // G + np.arange(0, K * K, TILES)[:, None]
            one = warp_traffic(np.where((c < vectors) & (i < K * K), c * 4 + i * pixel, -1))
            load += one * (layer.N * -(-P // rows) * -(-ALL // TILES))
        for first in range(0, ALL, TILES):
            tile = first + thread // G
            there = (c < vectors) & (tile < ALL)
            once = []
            if K <= 3:
                once += [np.where(there, c * 4 + tap * pixel, -1) for tap in range(K * K)]
            if layer.bias:
                once.append(np.where(there, c * 4, -1))
            if once:
                load += warp_traffic(once) * (layer.N * -(-P // rows))
            p = np.arange(P)
            bands = [n * S - PAD + np.arange((min(rows, P - n) - 1) * S + K) for n in range(0, P, rows)]
            h = np.concatenate([h[np.arange(len(h)) % S < K] for h in bands])
            h = h[(0 <= h) & (h < H)][:, None]
            # An image begins a multiple of 16 bytes after the one before: two kinds of images, in turn.
            for image in range(min(layer.N, 2)):
                times = (layer.N - image + 1) // 2
                for j in range((T - 1) * S + K):
                    v = tile * T * S - PAD + j
                    inside = there & (0 <= v) & (v < W)
                    load += times * warp_traffic(np.where(inside, ((image * H + h) * W + v) * pixel + c * 4, -1))
                for e in range(T):
                    q = tile * T + e
                    at = ((image * P + p[:, None]) * Q + q) * pixel + c * 4
                    one = times * warp_traffic(np.where(there & (q < Q), at, -1))
                    store += one
                    load += one * layer.residual
    return Traffic(*load, *store)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=pieces.DTYPES, view="words", aligned=16,
    needs={"bfloat16": ("join_bfloats",)}, tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    G, TILES, T, tiles = shape(layer)
    blocks = -(-(layer.C // pieces.elements(layer.dtype)) // G) * -(-tiles // TILES)
    return Launch((-(-layer.P // config.thread_m), blocks, layer.N), (G, TILES), scalars=(config.thread_m,))
