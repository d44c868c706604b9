"""Columns: draft."""

import functools
from dataclasses import dataclass

import numpy as np
from numba import int32, uint32

from dwlab import pieces
from dwlab.depthwise2d import columns
from dwlab.depthwise2d.columns import Work
from dwlab.stages import Launch, by_shape, register
from dwlab.target import cuda
from dwlab.traffic import Traffic, warp_traffic


@dataclass(frozen=True)
class Plan:
    """work: of a thread. pieces, tiles: threads of a block, along the channels and along the columns."""

    work: Work
    pieces: int
    tiles: int
    registers: int = 0


@functools.cache
def make(layer, plan):
    H, W, S, PAD, P, Q = layer.H, layer.W, layer.stride, layer.padding, layer.P, layer.Q
    work, G, TILES = plan.work, plan.pieces, plan.tiles
    WIDTH, PIXEL = pieces.words(work.channels, layer.dtype), pieces.words(layer.C, layer.dtype)
    PIECES, ALL = layer.C // work.channels, -(-Q // work.run)
    GROUPS, ACROSS, T, R = -(-PIECES // G), -(-ALL // TILES), work.run, work.rows
    slide = columns.sliding(layer, work)

    @cuda.jit(max_registers=plan.registers or None)
    def kernel(x, w, b, m, r, y):
        block, n = uint32(cuda.blockIdx.x), np.int64(cuda.blockIdx.y)
        piece = uint32(uint32(block % uint32(GROUPS)) * uint32(G) + uint32(cuda.threadIdx.x))
        block = uint32(block // uint32(GROUPS))
        tile = uint32(uint32(block % uint32(ACROSS)) * uint32(TILES) + uint32(cuda.threadIdx.y))
        if piece >= uint32(PIECES) or tile >= uint32(ALL):
            return
        p, q = uint32(uint32(block // uint32(ACROSS)) * uint32(R)), uint32(tile * uint32(T))
        h, v, c = int32(p * uint32(S)) - int32(PAD), int32(q * uint32(S)) - int32(PAD), uint32(piece * uint32(WIDTH))
        xat = ((n * H + h) * W + v) * PIXEL + c
        yat = ((n * P + p) * Q + q) * PIXEL + c
        slide(x, w, b, r, y, xat, yat, c, uint32(h), uint32(v), p, q)

    return kernel


@by_shape
def kernel(layer, images):
    return make(layer, choose(layer, images))


def choose(layer, images):
    V = 2 if layer.C % 2 == 0 else 1
    T = min(4, layer.Q)
    R = min(8, layer.P)
    PIECES, tiles = layer.C // V, -(-layer.Q // T)
    G = min(PIECES, 32)
    return Plan(Work(V, T, R, 3), G, min(tiles, 8))


def launch_of(layer, plan):
    work = plan.work
    groups, across = -(-(layer.C // work.channels) // plan.pieces), -(-(-(-layer.Q // work.run)) // plan.tiles)
    return Launch((groups * across * -(-layer.P // work.rows), layer.N), (plan.pieces, plan.tiles))


def traffic(layer):
    return traffic_of(layer, choose(layer.kernel_key, layer.N))


def traffic_of(layer, plan):
    H, W, K, S, PAD, P, Q = layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    work, G, TILES = plan.work, plan.pieces, plan.tiles
    V, T, R = work.channels, work.run, work.rows
    width, pixel, count, ALL = pieces.words(V, layer.dtype), pieces.words(layer.C, layer.dtype), layer.C // V, -(-Q // T)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    thread = np.arange(-(-G * TILES // 32) * 32)
    words = np.arange(width)[:, None] if False else 0
    return Traffic(0, 0, 0, 0, exact=False)


def supports(layer):
    if layer.layout != "NHWC" or layer.dtype == "int8" or layer.C % (1 if layer.dtype == "float32" else 2):
        return False
    return layer.K <= 7 and layer.stride <= 7 and layer.N <= 65535 and layer.H * layer.W * layer.C < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16", "bfloat16"), view="words",
    aligned=16,
)  # fmt: skip
def launch(layer):
    return launch_of(layer, choose(layer.kernel_key, layer.N))
