"""Columns: NHWC with two channels a thread, many threads, and many of their loads on the way at once.

A thread could have 16 bytes of channels. In 16 bits these are 8 channels with sums and filters of their own: so many
registers a thread that few threads are there to hide from each other how long memory takes, and a stage that did so
was slower on nearly all layers. Here a thread has two channels of T neighbouring columns. A warp's accesses are of
whole sectors all the same, as neighbouring threads have neighbouring channels. With the registers that this leaves a
thread loads rows of x before it computes with any.

It slides down a strip of R rows of outputs, which columns.py writes out, step by step: no loop, no sum that moves on,
no condition where no thread needs one. Neighbours' columns of x come from the L1 cache, neighbouring strips' rows from
the L2 cache.

Where maps or batches are small there are not threads enough to fill the GPU: they then get smaller strips and load
all of a strip's rows at once, so that a launch waits for memory once and not row by row.

Predicted: for K = 3 and stride 1 some 30 instructions for a pair of outputs, of which a multiprocessor could start 57
while memory brings a pair of 16 bits and takes one, and 115 in float32: bound by memory, about 90 % of a copy in both.
"""

import itertools

import numpy as np
from numba import int32, uint32

from dwlab.kernels.depthwise2d import columns
from dwlab.kernels.depthwise2d.columns import CHANNELS
from dwlab.kernels.parts import constants, pieces
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.traffic import Traffic, sectors_by_place, warp_traffic
from dwlab.target import cuda

ENOUGH = 192  # threads of a multiprocessor that are worth larger strips
SMALL = 16  # rows of outputs: maps of so few are one strip or two
THREADS = 256  # of a block, at most;
FINER = 128  # where many blocks follow each other: the last ones leave less of the GPU idle
LINE = 32  # words of neighbouring channels that a block takes, where it can: 128 bytes
WAITING = 160  # registers for rows of x that wait, and the filter


def config_of(layer, run, rows, ahead=None, threads=THREADS):
    """The tile of threads with about so many columns and rows of outputs, and rows of x that they load ahead.

    ahead None: all that registers are there for. A block has vectors of channels side by side, as many columns' threads
    as the block's threads leave.
    """
    K, S, P, Q = layer.K, layer.stride, layer.P, layer.Q
    run, rows = min(run, Q), -(-P // -(-P // rows))
    width, count, tiles = pieces.words(CHANNELS, layer.dtype), layer.C // CHANNELS, -(-Q // run)
    most = (WAITING - K * K * CHANNELS) // (((run - 1) * S + K) * width)
    ahead = min(ahead or len(columns.rows_of(layer, rows)), max(1, most))
    across = LINE // width
    if tiles * across < 64:
        across *= 2 if tiles > 1 else 4
    few = (g for g in range(across, 2 * across) if 4 * count >= 3 * g * -(-count // g))  # at most a quarter is idle
    across = min(count, next(few, across))
    return tile_of(run, rows, ahead, across, -(-tiles // -(-tiles // max(1, threads // across))))


def tile_of(run, rows, ahead, across, down):
    """The tile of threads of `run` columns of `rows` rows of outputs, so many along the channels and the columns."""
    return TileConfig(
        block_n=CHANNELS * across, block_h=rows, block_w=run * down, thread_m=rows, thread_n=run, vector=CHANNELS,
        pipeline_stages=ahead,
    )  # fmt: skip


def block(config):
    """Threads along the channels and along the columns."""
    return config.block_n // CHANNELS, config.block_w // config.thread_n


def working(layer, images, config):
    """Threads of a launch that are not idle."""
    return images * (layer.C // CHANNELS) * -(-layer.Q // config.thread_n) * -(-layer.P // config.thread_m)


def configs(layer, images, gpu):
    """The largest strips of which there are ENOUGH for the GPU, or the smallest."""
    K, S = layer.K, layer.stride
    if S > 1:
        sizes = [(2, 3)]
    elif layer.P <= SMALL:
        sizes = [(4 if layer.dtype == "float32" else 2, 7), (2, 4), (2, 2)]
    else:
        large = layer.P > 2 * SMALL
        if layer.dtype == "float32":
            long = (4, 6, 4, FINER) if large else (4, 4, 6, FINER)
        else:  # the best of 5 to 16 rows, 2 to 6 ahead and 64 to 256 threads for 32 images; slower for one
            long = (4, 7, 2, FINER // 2) if large and images > 1 else (4, 8, 3)
        sizes = [long, (2, 4), (2, 2)]
    found = [config_of(layer, *size) for size in (sizes if K <= 3 else sizes[-2:])]
    return [next((one for one in found if working(layer, images, one) >= ENOUGH * gpu.sms), found[-1])]


def resources(layer, config):
    return Resources(config.block_n // CHANNELS * (config.block_w // config.thread_n), min(255, WAITING + 40))


@by_shape
def kernel(layer, config):
    """The kernel of a layer of one image."""
    (across, down), vectors, tiles = block(config), layer.C // CHANNELS, -(-layer.Q // config.thread_n)
    one = constants.of(
        layer, config, width=pieces.words(CHANNELS, layer.dtype), pixel=pieces.words(layer.C, layer.dtype), tiles=tiles,
        vectors=vectors, across=across, down=down, groups=-(-vectors // across), along=-(-tiles // down),
    )  # fmt: skip
    slide = columns.sliding(layer, config.thread_n, config.thread_m, config.pipeline_stages)

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        block, n = uint32(cuda.blockIdx.x), np.int64(cuda.blockIdx.y)
        vector = uint32(uint32(block % uint32(one.groups)) * uint32(one.across) + uint32(cuda.threadIdx.x))
        block = uint32(block // uint32(one.groups))
        tile = uint32(uint32(block % uint32(one.along)) * uint32(one.down) + uint32(cuda.threadIdx.y))
        if vector >= uint32(one.vectors) or tile >= uint32(one.tiles):
            return
        p, q = uint32(uint32(block // uint32(one.along)) * uint32(one.thread_m)), uint32(tile * uint32(one.thread_n))
        h, v = int32(p * uint32(one.stride)) - int32(one.padding), int32(q * uint32(one.stride)) - int32(one.padding)
        c = uint32(vector * uint32(one.width))
        xat = ((n * one.H + h) * one.W + v) * one.pixel + c
        yat = ((n * one.P + p) * one.Q + q) * one.pixel + c
        slide(x, w, b, r, y, xat, yat, c, uint32(h), uint32(v), p, q)

    return kernel


def supports(layer):
    if layer.layout != "NHWC" or layer.C % CHANNELS or layer.K > 7 or layer.stride > 7:
        return False
    return layer.N <= 65535 and layer.H * layer.W * layer.C < 2**31


def traffic(layer, config):
    """x for each thread that needs it, its filter and bias for each strip, its outputs; in words."""
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    (G, TILES), run, count, tiles = block(config), config.thread_n, layer.C // CHANNELS, -(-Q // config.thread_n)
    width, pixel = pieces.words(CHANNELS, layer.dtype), pieces.words(layer.C, layer.dtype)
    strip = np.arange(0, P, config.thread_m)
    rows = np.add.outer(strip * S - PAD, columns.rows_of(layer, config.thread_m)).ravel()

    def places(height, rows, pitch):  # how many of these rows of all images' maps begin at each place in a sector
        return np.bincount((np.arange(layer.N)[:, None] * height + rows).ravel() * pitch % 8, minlength=8)

    def moved(places, word, there):  # by a block, in rows at these places
        word = np.where(there, word, -1)
        return np.array([warp_traffic(word)[0] * places.sum(), sectors_by_place(word) @ places])

    loaded, stored = places(H, rows[(0 <= rows) & (rows < H)], W * pixel), places(P, np.arange(P), Q * pixel)
    once, load, store = places(1, 0 * strip, 0), np.zeros(2, np.int64), np.zeros(2, np.int64)
    down, across = np.divmod(np.arange(G * TILES), G)
    for group, first in itertools.product(range(0, count, G), range(0, tiles, TILES)):
        c, tile = (group + across) * width, first + down
        there = (group + across < count) & (tile < tiles)
        for tap in range(K * K):
            load += moved(once, c + tap * pixel, there)
        load += layer.bias * moved(once, c, there)
        for j in columns.columns_of(layer, run):
            v = tile * run * S - PAD + j
            load += moved(loaded, v * pixel + c, there & (0 <= v) & (v < W))
        for q in (tile * run + e for e in range(run)):
            outputs = moved(stored, q * pixel + c, there & (q < Q))
            load, store = load + layer.residual * outputs, store + outputs
    return Traffic(*load, *store)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16", "bfloat16"), view="words",
    aligned=16, needs={"bfloat16": ("join_bfloats",)}, tiles=Tiles(configs, resources), lesson="28",
)  # fmt: skip
def launch(layer, config):
    across, down = -(-layer.C // config.block_n), -(-layer.P // config.thread_m)
    return Launch((across * -(-layer.Q // config.block_w) * down, layer.N), block(config))
