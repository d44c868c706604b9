"""Registers: 8 x 8 outputs a thread, operands read 16 bytes at a time, chunks in flight while others are computed.

In the stage before two reads of shared memory serve one multiply-add. Here a thread computes 8 x 8 outputs: for each
term it takes 8 numbers of either operand, 16 in place of 128, and each serves 8 multiply-adds. A read brings 16 bytes:
four channels of a row where the channels lie next to each other, four pixels where these do. So 4 reads serve 64
multiply-adds, and the multiply-adds are what this stage waits for. Smaller tiles (8 x 4, 4 x 4) make more blocks.

The tiles come to shared memory asynchronously, past the registers, three chunks of channels at a time: while the block
computes with one, two are in flight, and one barrier a chunk is enough. Rows are 4 words longer than they need to
be, so that neighbouring rows' 16 bytes lie in different banks. In NHWC a lane's outputs are four neighbouring filters,
to be stored at once; for these to be neighbouring rows in shared memory, filters are interleaved there (parts/ffma.py).

Traffic: in NHWC x once for each BN filters and w once for each BM pixels; y once.
"""

import functools

from numba import float32, uint32

from dwlab.kernels.parts import constants, gemm
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.ffma import ffma
from dwlab.kernels.parts.gemm_epilogue import store_tile
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.pipeline import pipeline
from dwlab.kernels.parts.swizzle import padded
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

DEPTH = 3  # chunks in shared memory at a time: one to compute with, two in flight


SHAPES = (  # of a block's tile, rows and columns, and of a thread's; 4 x 8 lanes are a warp
    (128, 128, 8, 8), (64, 128, 8, 8), (128, 64, 8, 8), (64, 64, 8, 4), (32, 64, 8, 4), (128, 32, 8, 4), (32, 32, 4, 4),
    (16, 128, 4, 4), (16, 64, 4, 4),
)  # fmt: skip


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    (load_x, load_w), product, tile = gemm.loads(layout), constants.of(layout.tile), constants.of(layout, config)
    SIZE, store = product.size, store_tile(layer, layout.one, layout.tile, layout.down * config.block_m)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, image, down, across, thread, _, _ = block
        load_x(shared, at, x, image, down, across, chunk, thread)
        load_w(shared, at, w, down, across, chunk, thread)

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, shared, at, chunk, block):
        _, _, _, _, _, thread, warp_m, warp_n = block
        a0, b0 = uint32(at + warp_m * tile.a_warp), uint32(at + tile.a_words + warp_n * tile.b_warp)
        product.add(acc, shared, a0, shared, b0, uint32(thread % 32))

    run = pipeline(DEPTH, layout.stage_words, layout.chunks, load, multiply)

    @cuda.jit
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        image, down = uint32(block // (tile.across * tile.down)), uint32(block // tile.across % tile.down)
        across, warps = uint32(block % tile.across), tile.block_n // product.N
        here = (x, w, image, down, across, thread, uint32(warp // warps), uint32(warp % warps))
        product.zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < tile.chunks:
                load(shared, uint32(chunk * tile.stage_words), uint32(chunk), here)
            ptx.commit()
        run(acc, shared, here)
        m0 = uint32((image * tile.down + down) * tile.block_m + warp // warps * product.M)
        n0 = uint32(across * tile.block_n + warp % warps * product.N)
        store(acc, lane, y, b, r, m0, n0)

    return kernel


@functools.lru_cache(1 << 12)
def layout_of(layer, images, config):
    """How blocks of block_m x block_n outputs, thread_m x thread_n a thread, lie and go through the channels."""
    one, BN, a_pitch = product(layer, images), config.block_n, padded(config.block_k)
    b_pitch, interleave = (BN, 0) if one.nchw else (a_pitch, BN // 4)
    tile = ffma(config.thread_m, config.thread_n, 4, config.block_k, a_pitch, b_pitch, interleave)
    return gemm.Layout(one, config, tile, a_pitch, b_pitch, interleave)


def config_of(layer, BM, BN, TM, TN):
    """The tile of blocks of BM x BN outputs, TM x TN a thread."""
    words = product(layer).words
    return TileConfig(BM, BN, words if words <= 32 else 16, BM // (4 * TM), BN // (8 * TN), thread_m=TM, thread_n=TN,
                      pipeline_stages=DEPTH)  # fmt: skip


def configs(layer, images, gpu):
    return [config_of(layer, *shape) for shape in SHAPES]


def resources(layer, config):
    sums, operands = config.thread_m * config.thread_n, 2 * (config.thread_m + config.thread_n)
    return Resources(config.threads, sums + operands + 32, layout_of(layer, 1, config).shared_bytes)


def work(layer, images, config):
    layout, BM, BN = layout_of(layer, images, config), config.block_m, config.block_n
    read, written = (BM + BN) * layer.C * layer.itemsize, BM * BN * layer.itemsize
    return Work(layout.blocks, 2 * BM * BN * layer.C, read, written=written, chunks=layout.chunks)


def traffic(layer, config):
    return gemm.traffic(layer, layout_of(layer.kernel_key, layer.N, config))


@register(
    kernel=kernel, traffic=traffic, supports=lambda layer: layer.C % 4 == 0 and small_indices(layer), view="words",
    aligned=16, needs=("copy4_async",),
    tiles=Tiles(configs, resources, work, Rates(products=470, read=35, written=123, start=1320, chunk=300)),
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=layout.shared_bytes)
