"""Int8: four taps of a channel in one instruction, NHWC.

An instruction (dp4a) adds the products of four int8 with four int8 to an int32. In NHWC the four bytes of a word are
four channels of one pixel, but a depthwise sum wants four pixels of one channel. So a thread that has 4 channels takes
the words of 4 neighbouring columns and transposes their 16 bytes, which is 8 instructions, each of them any four bytes
of two words. For K = 3 and stride 1 two neighbouring outputs lie within these 4 columns: they use the same words, the
one with the filter's row (w0, w1, w2, 0), the other with (0, w0, w1, w2). Filters are put into this order once.

As in `registers` a thread slides down a strip of outputs, and its sums, which here are int32, move on from row to row.
Each row of x is a wait for memory. Where there are too few threads to fill those waits, one image of a small map, a
strip is a single row of outputs, and all it needs of x is requested at once (`at_once`).

    sum (x - zero_x) * w = sum x * w - zero_x * sum w

so sums begin at - zero_x * sum w, and what lies outside the map is zero_x. In the end a sum becomes int8 again: bias,
factor of its channel, rounding, zero_y, limits (`requantisation.requantise`); four of them are stored as a word.

Predicted: a quarter of float32's bytes, and for an output of K = 3 some 25 instructions, of which 3 are products; a
multiprocessor could start 14 while memory brings a byte for each lane and takes one. So arithmetic is the limit, and
the gain over 16 bits small.

Traffic: words in place of elements; for each strip its rows of x, each as often as columns share it; the filter once.
"""

import numpy as np
from numba import int32, uint32

from dwlab.kernels.depthwise2d.repeats import repeats
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.int8_strips import as_words, loads, put, strip
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import Traffic, small_maps, warp_traffic
from dwlab.target import cuda

THREADS = 128
ROWS = (8, 4, 2, 1)  # of outputs in a strip, at most


def configs(layer, images, gpu):
    T = 2 if layer.K <= 3 and layer.stride == 1 else 1
    heights = {-(-layer.P // -(-layer.P // most)) for most in ROWS}
    return [TileConfig(thread_m=rows, thread_n=T, vector=4) for rows in heights]


def resources(layer, config):
    return Resources(THREADS, 128)


def work(layer, images, config):
    """Products are instructions of threads: for the filter, for rows of x, and for outputs; a chunk is a row of x."""
    K, T, rows, deep = layer.K, config.thread_n, config.thread_m, -(-layer.K // layer.stride)
    across, number = shape(layer, config)
    threads = images * layer.C // 4 * across * number
    instructions = T * (14 * K + (rows + deep - 1) * (10 + 12 * K) + 28 * rows)
    waits = 1 if rows == 1 else rows + deep - 1
    return Work(-(-threads // THREADS), THREADS * instructions, chunks=waits)


def shape(layer, config):
    """(threads of a row, strips of a map)"""
    return -(-layer.Q // config.thread_n), -(-layer.P // config.thread_m)


@by_shape
def kernel(layer, config):
    (ACROSS, STRIPS), T, STRIP = shape(layer, config), config.thread_n, config.thread_m
    H, W, P, Q, C = layer.H, layer.W, layer.P, layer.Q, layer.C // 4
    slide = strip(layer, T, put, C, C, Q * C, STRIP == 1)

    @cuda.jit
    def kernel(x, w, b, m, r, y, threads):
        if STRIP > 1:
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
    return layer.layout == "NHWC" and layer.C % 4 == 0 and max(layer.K, layer.stride) <= 7 and small_maps(layer)


def traffic(layer, config):
    words, (across, number) = as_words(layer), shape(layer, config)
    counted = [often * counts(one, config.thread_n, config.thread_m) for one, often in repeats(words, across * number)]
    return Traffic(*sum(counted))


def counts(layer, T, rows):
    """Requests and sectors of loads, then of stores, of a layer of words; each thread looked at."""
    C, P, Q = layer.C, layer.P, layer.Q
    across, number = -(-Q // T), -(-P // rows)
    store = np.zeros(2, np.int64)
    i = np.arange(layer.N * C * across * number)
    c, q, p, n = i % C, i // C % across * T, i // (C * across) % number * rows, i // (C * across * number)
    load = loads(layer, T, rows, n, c, p, np.minimum(P, p + rows), q)
    for e in range(rows):
        for f in range(T):
            store += warp_traffic(np.where((p + e < P) & (q + f < Q), ((n * P + p + e) * Q + q + f) * C + c, -1))
    return np.concatenate([load + layer.residual * store, store])


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("dp4a", "pack_s8"), lesson="34",
    tiles=Tiles(configs, resources, work, Rates(products=181, start=0, chunk=447)),
)  # fmt: skip
def launch(layer, config):
    across, number = shape(layer, config)
    threads = layer.N * layer.C // 4 * across * number
    return Launch((-(-threads // THREADS),), (THREADS,), scalars=(threads,))
