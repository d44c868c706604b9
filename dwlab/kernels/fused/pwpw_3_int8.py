"""Int8: a block's pixels are bytes in shared memory, before, between and after nothing but mma; NHWC.

As in `tensor` a block has some pixels, and what is between the layers stays in its shared memory. In int8 a pixel of
1,536 channels is 1.5 KiB, so x and what is between the layers are both there whole: x is copied once, then the first
layer's filters stream past it (`int8_stream`), its outputs are requantised and stored as 16 bytes of one pixel, and
the second layer's filters stream past those. Each layer subtracts its own zero point by the sums of its filters.

If there are few pixels, several blocks take the same ones, each for some of the second layer's filters; each of them
then computes what is between the layers anew.

Traffic: x, w1 and w2 for each block, w2 in parts, b and m with them; y once.
"""

import functools

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import constants, int8_epilogue, ptx
from dwlab.kernels.parts.int8_stream import Stream
from dwlab.kernels.parts.load_async import load_tile, tile_traffic
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

SHAPES = (  # pixels of a block, filters of a product, and rows and columns of a warp's
    (128, 64, 32, 32), (64, 128, 32, 32), (64, 64, 16, 32), (64, 64, 32, 32), (32, 128, 16, 32), (32, 64, 16, 32),
    (16, 128, 16, 32), (16, 64, 16, 32), (128, 128, 64, 32),
)  # fmt: skip


def config_of(problem, rows, BN, WM, WN, parts=1):
    """The tile of blocks of `rows` pixels, warps of WM x WN, and `parts` parts of the second layer's filters."""
    groups = -(-problem.second.F // (BN * parts))
    return TileConfig(rows, BN, 0, rows // WM, BN // WN, pipeline_stages=3, groups=groups, split_n=parts)


def streams(problem, config):
    """Both layers' products of a block."""
    one, two = problem.first, problem.second
    return Stream(one, config, -(-one.F // config.block_n)), Stream(two, config, config.groups)


@functools.lru_cache(1 << 12)
def resources(problem, config):
    one, two = streams(problem, config)
    registers = min(255, config.warp_m * config.warp_n // 32 + 70)
    return Resources(config.threads, registers, 4 * (one.x_words + two.x_words + max(one.w_words, two.w_words)))


@by_shape
def kernel(problem, images, config):
    both, M = streams(problem, config), images * problem.first.H * problem.first.W
    one, two = (constants.of(config, each) for each in both)
    load = load_tile(config.block_m, one.words, one.pitch, config.threads, M, one.words, one.words)

    @cuda.jit(device=True, forceinline=True)
    def keep(pool, m, n, w0, w1, w2, w3):
        """Outputs of the first layer, to where the second finds its x."""
        v0, v1, v2, v3 = ptx.float_of_word(w0), ptx.float_of_word(w1), ptx.float_of_word(w2), ptx.float_of_word(w3)
        c = uint32(n // uint32(4))
        if c < uint32(two.words):
            ptx.store4_shared(pool, uint32(uint32(one.x_words) + m * uint32(two.pitch) + c), v0, v1, v2, v3)

    first = both[0].functions(keep)
    second = both[1].functions(*int8_epilogue.rows_of(M, problem.second.F), parts=config.split_n)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        ptx.grid_dependency_wait()
        pool = cuda.shared.array(0, float32, 16)  # x, what is between the layers, chunks of filters
        t, m0 = uint32(cuda.threadIdx.x), uint32(uint32(cuda.blockIdx.x) * one.block_m)
        f0 = uint32(uint32(cuda.blockIdx.y) * (two.groups * two.block_n))
        load(pool, uint32(0), x, uint32(0), m0, uint32(0), t)
        first.begin(pool, uint32(one.x_words + two.x_words), w1, b1, m1, uint32(0), t)  # while words are cleared
        for i in range(t, one.block_m * one.rest, one.threads):  # words beyond the last channel
            pool[uint32(uint32(i) // one.rest * one.pitch + one.words + uint32(i) % one.rest)] = float32(0)
        for i in range(t, one.block_m * two.rest, one.threads):
            at = uint32(one.x_words + uint32(i) // two.rest * two.pitch + two.words + uint32(i) % two.rest)
            pool[at] = float32(0)
        first.go(pool, uint32(0), uint32(one.x_words + two.x_words), w1, b1, m1, r, pool, uint32(0), uint32(0), t)
        cuda.syncthreads()  # the chunks of the first layer's filters are no longer needed
        second.begin(pool, uint32(one.x_words + two.x_words), w2, b2, m2, f0, t)
        second.go(pool, uint32(one.x_words), uint32(one.x_words + two.x_words), w2, b2, m2, r, y, f0, m0, t)

    return kernel


def configs(problem, images, gpu):
    """Those worth a look."""
    for rows, BN, WM, WN in SHAPES:
        for parts in (1, 2, 3, 4, 6, 8):
            if parts == 1 or BN * parts < problem.second.F + BN:
                yield config_of(problem, rows, BN, WM, WN, parts)


def work(problem, images, config):
    both, pixels = streams(problem, config), config.block_m
    outputs = [pixels * config.block_n * one.groups for one in both]
    chunks = [one.groups * one.chunks for one in both]
    read = pixels * problem.first.C + sum(4 * n * one.step for n, one in zip(chunks, both, strict=True))
    products = sum(2 * n * one.layer.C for n, one in zip(outputs, both, strict=True))
    blocks = -(-images * problem.first.H * problem.first.W // pixels) * config.split_n
    return Work(blocks, products, read, written=sum(outputs), chunks=sum(chunks))


def traffic(problem, config):
    (one, two), M = streams(problem, config), problem.N * problem.first.H * problem.first.W
    number = -(-M // config.block_m)
    load = tile_traffic(config.block_m, one.words, config.threads, M, one.words, one.words)
    load = config.split_n * (load + one.loaded(number)) + two.loaded(number)
    row, n = two.stored(config.split_n)
    m = np.arange(number)[:, None, None] * config.block_m + row
    store = int8_epilogue.store_traffic(two.layer.F, np.where(m < M, m, -1), n)
    return Traffic(*(load + two.layer.residual * store), *store)


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NHWC" or one.C % 4 or one.F % 4 or two.F % 4:
        return False
    return small_indices(one) and small_indices(two)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), lesson="34",
    tiles=Tiles(configs, resources, work, Rates(products=5770, read=165, written=27, start=1570, chunk=242)),
)  # fmt: skip
def launch(problem, config):
    M, shared_bytes = problem.N * problem.first.H * problem.first.W, resources(problem.kernel_key, config).shared_bytes
    return Launch((-(-M // config.block_m), config.split_n), (config.threads,), shared_bytes=shared_bytes)
