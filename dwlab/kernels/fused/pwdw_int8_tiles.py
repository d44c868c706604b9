"""Tiles of fused/pwdw/int8: which are worth a look for a pair of layers, what a block takes, what a launch costs."""

import functools
from dataclasses import replace

import numpy as np

from dwlab.kernels.parts.int8_stream import Stream
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work

REGISTERS = 96  # of a thread, about
STRIP = 40  # operations of tensor cores in whose time one instruction of a thread's strip is done
SHAPES = ((8, 8), (4, 8), (6, 14), (2, 14), (7, 7), (4, 4), (14, 14), (2, 8), (4, 14))  # of a tile of outputs
PRODUCTS = ((64, 32, 32), (32, 16, 32), (64, 16, 32), (128, 32, 32), (128, 16, 64))  # BN, WM, WN


def config_of(problem, TH, TW, BN, WM, WN, parts=1):
    """The tile of blocks of TH x TW outputs of one of about `parts` parts of the filters, warps of WM x WN.

    block_m: the pixels between the layers that these come from. Strips are thread_n columns, and as many rows as the
    tile if that leaves work for all threads, else fewer.
    """
    two, every = problem.second, -(-problem.first.F // BN)
    groups = -(-every // parts)
    XH, XW = footprint(two, TH, TW)
    rows = -(-XH * XW // WM)
    made = TileConfig(
        rows * WM, BN, 0, rows, BN // WN, pipeline_stages=3, block_h=TH, block_w=TW, groups=groups,
        split_n=-(-every // groups), thread_n=2 if two.K <= 3 and two.stride == 1 and TW % 2 == 0 else 1,
    )  # fmt: skip
    down = [replace(made, thread_m=height) for height in range(TH, 0, -1) if TH % height == 0]
    return next((one for one in down if strips(one) >= one.threads), down[-1])


def footprint(layer, TH, TW):
    """(height, width) of the pixels that a tile of outputs reads."""
    return (TH - 1) * layer.stride + layer.K, (TW - 1) * layer.stride + layer.K


def strips(config):
    """Strips of a block and group of filters."""
    return config.block_n // 4 * (config.block_w // config.thread_n) * (config.block_h // config.thread_m)


def pitch_of(layer, config):
    """Words between pixels of what is between the layers: lanes of neighbouring strips read other banks."""
    words = config.block_n // 4
    strided = np.arange(max(1, 32 // words))[:, None] * config.thread_n * layer.stride  # pixels, of a warp's strips
    for pitch in range(words, words + 32, 4):
        if len(np.unique((strided * pitch + np.arange(words)) % 32)) == 32:
            return pitch
    return words


def stream_of(problem, config):
    """The products of a block and group of filters."""
    return Stream(problem.first, config, 1)


@functools.lru_cache(1 << 12)
def resources(problem, config):
    stream = stream_of(problem, config)
    words = stream.x_words + config.block_m * pitch_of(problem.second, config) + stream.w_words
    return Resources(config.threads, REGISTERS, 4 * words)


def configs(problem, images, gpu):
    """Those worth a look."""
    for TH, TW in SHAPES:
        for BN, WM, WN in PRODUCTS:
            every = -(-problem.first.F // BN)
            for groups in sorted({-(-every // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16)}):
                config = config_of(problem, TH, TW, BN, WM, WN, -(-every // groups))
                if 64 <= config.threads <= 512:
                    yield config


def work(problem, images, config):
    one, two, stream, groups = problem.first, problem.second, stream_of(problem, config), config.groups
    blocks = images * -(-two.P // config.block_h) * -(-two.Q // config.block_w) * config.split_n
    rows, rounds = config.thread_m, groups * -(-strips(config) // config.threads)
    instructions = config.thread_n * (40 * two.K + rows * 14) + (rows * two.stride + two.K) * (10 + 10 * two.K)
    outputs, chunks = config.block_m * config.block_n * groups, groups * stream.chunks
    return Work(
        blocks, 2 * outputs * one.C + STRIP * rounds * config.threads * instructions,
        config.block_m * one.C + chunks * stream.step * 4, written=outputs,
        chunks=chunks + rounds * instructions / 1000,
    )  # fmt: skip


TILES = Tiles(configs, resources, work, Rates(products=3480, read=219, written=78, start=546, chunk=64))
