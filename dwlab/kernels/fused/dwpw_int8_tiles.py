"""Tiles of fused/dwpw/int8: which are worth a look for a pair of layers, what a block takes, what a launch costs."""

import functools
import itertools
from dataclasses import replace

from dwlab.kernels.parts.int8_stream import Stream
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work

STRIP = 40  # operations of tensor cores in whose time one instruction of a thread's strip is done
SHAPES = (  # height and width of a tile of pixels, filters of a product, and rows and columns of a warp's
    (8, 8, 128, 32, 32), (8, 8, 64, 16, 32), (8, 8, 64, 32, 32), (8, 8, 32, 16, 32), (4, 8, 128, 16, 32),
    (4, 8, 64, 16, 32), (4, 8, 32, 16, 32), (2, 8, 128, 16, 32), (2, 8, 64, 16, 32), (8, 16, 128, 32, 64),
    (8, 16, 64, 32, 32), (8, 16, 32, 32, 32), (8, 14, 64, 16, 32), (8, 14, 128, 16, 64), (4, 4, 128, 16, 32),
)  # fmt: skip


def config_of(problem, TH, TW, BN, WM, WN, parts=1, depth=3, helpers=0):
    """The tile of blocks of TH x TW pixels and one of `parts` parts of the filters, warps of WM x WN.

    helpers: so many times the warps that have products help. Strips are thread_n columns, and as many rows as the tile
    if that leaves work for all threads, else fewer.
    """
    one, two = problem.first, problem.second
    warps = TH * TW // WM, BN // WN
    made = TileConfig(
        TH * TW, BN, 0, *warps, pipeline_stages=depth, block_h=TH, block_w=TW, groups=-(-two.F // (BN * parts)),
        split_n=parts, helper_warps=helpers * warps[0] * warps[1],
        thread_n=2 if one.K <= 3 and one.stride == 1 else 1,
    )  # fmt: skip
    down = [replace(made, thread_m=rows) for rows in (8, 4, 2) if TH % rows == 0]
    return next((one for one in down if strips(problem, one) >= one.threads), down[-1])


def strips(problem, config):
    """Strips of a block."""
    down, across = config.block_h // config.thread_m, config.block_w // config.thread_n
    return problem.first.C // 4 * across * down


def stream_of(problem, config):
    """The products of a block."""
    return Stream(problem.second, config, config.groups)


@functools.lru_cache(1 << 12)
def resources(problem, config):
    stream = stream_of(problem, config)
    sums = config.warp_m * config.warp_n // 32
    registers = 96 if sums <= 32 else sums + 70  # about
    return Resources(config.threads, registers, 4 * (stream.x_words + stream.w_words))


def configs(problem, images, gpu):
    """Those worth a look."""
    one, two = problem.first, problem.second
    for TH, TW, BN, WM, WN in SHAPES:
        for parts, depth, helpers in itertools.product((1, 2, 3, 4, 6, 8), (3, 5), (0, 1, 3)):
            config = config_of(problem, TH, TW, BN, WM, WN, parts, depth, helpers)
            stream = stream_of(problem, config)
            registers = WM * WN // 32 + 85 + 5 * one.K  # more than a thread takes
            if helpers and (config.threads > 512 or not gpu.blocks_per_sm(Resources(config.threads, registers))):
                continue
            if depth > 3 and stream.groups * stream.chunks <= 3:  # all of them are there at once
                continue
            if parts == 1 or BN * parts < two.F + BN:
                yield config


def work(problem, images, config):
    """A row of x that a strip waits for counts as 0.64 of a chunk."""
    one, stream, each = problem.first, stream_of(problem, config), strips(problem, config)
    blocks = images * -(-one.P // config.block_h) * -(-one.Q // config.block_w) * config.split_n
    rows, rounds = (config.thread_m - 1) * one.stride + one.K, -(-each // config.threads)
    instructions = config.thread_n * (40 * one.K + config.thread_m * 14) + rows * (10 + 10 * one.K)
    outputs, chunks = config.block_m * config.block_n * config.groups, config.groups * stream.chunks
    products = outputs * 2 * 4 * stream.chunk * stream.chunks + STRIP * rounds * config.threads * instructions
    read = chunks * stream.step * 4 + each * rows * 4 * (config.thread_n - 1 + one.K)
    waits = 0.64 * rounds * rows + 0.25 * chunks * (1 + 3 / (config.pipeline_stages - 1))
    return Work(blocks, products, read, written=outputs, chunks=waits)


TILES = Tiles(configs, resources, work, Rates(products=5200, read=34, written=28, start=2050, chunk=671))
