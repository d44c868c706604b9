"""Int8 on tensor cores: one instruction of a warp does 4,096 multiply-adds of int8, and its sums are exact.

The blocks and the way of their tiles to shared memory are those of `tensor`, and so is a warp's product: a word holds
four int8 in place of two float16, along C, and mma.sync takes the same lanes' words, 16 x 8 sums of 32 products now.
Sums are int32, in which nothing is ever rounded: whatever the order, the result is the same to the bit.

    sum (x - zero_x) w = sum x w - zero_x sum w

so the products are those of the bytes as they are. sum w, one number a filter, is a by-product: each lane adds up the
words of w that it holds for mma anyway, two dp4a for each 8 columns and 32 channels, where mma is M / 16. In the end
int32 becomes int8 again: bias, factor of the filter, rounding, zero_y, limits (`requantisation`); then four lanes
trade bytes, so that each stores 16 of them (`int8_epilogue`).

Rows of 24 or 728 channels are no whole vectors of 16 bytes: a copy takes 8 then, or 4, and a store 8 bytes of a row.
What a chunk has beyond the last channel is 0, in x and in w, and so adds nothing to any of the sums.

Predicted: a quarter of float32's bytes, and mma of twice float16's rate. Most layers of the networks then wait for
memory, or for blocks to start.

Traffic: x once for each BN filters, w, b and m once for each BM pixels, y once.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import gemm, int8_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.pointwise.int8_tiles import DEPTH, TILES, layout_of, shared_bytes
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    (load_x, load_w), tile, BM, BN = gemm.loads(layout), layout.tile, config.block_m, config.block_n
    SIZE, zero, add, WM, WN = tile.size + tile.more, tile.zero, tile.add, tile.M, tile.N
    finish = int8_epilogue.requantise_tile(layer, tile, BN, *int8_epilogue.rows_of(layout.one.M, layer.F))
    load_factors, FACTORS = int8_epilogue.load_factors(layer, BN, config.threads), layout.shared_bytes // 4
    ACROSS, WARPS, CHUNKS, STEP = layout.across, config.warps_n, layout.chunks, layout.stage_words
    A_WORDS, A_WARP, B_WARP = layout.a_words, layout.a_warp, layout.b_warp

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, int32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        down, across = uint32(block // ACROSS), uint32(block % ACROSS)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_w(shared, uint32(chunk * STEP), w, down, across, uint32(chunk), thread)
        load_factors(shared, uint32(FACTORS), b, m, uint32(across * BN), thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load_x(shared, uint32(chunk * STEP), x, uint32(0), down, across, uint32(chunk), thread)
            ptx.commit()
        here, there = uint32(0), uint32((DEPTH - 1) * STEP)
        for chunk in range(CHUNKS):  # by hand: parts/pipeline.py makes other machine code of it
            ptx.wait(1)  # DEPTH - 2
            cuda.syncthreads()  # this chunk has come for all threads, and all are done with the one before
            if chunk + (DEPTH - 1) < CHUNKS:
                load_x(shared, there, x, uint32(0), down, across, uint32(chunk + (DEPTH - 1)), thread)
                load_w(shared, there, w, down, across, uint32(chunk + (DEPTH - 1)), thread)
            ptx.commit()
            a0, b0 = uint32(here + warp_m * A_WARP), uint32(here + A_WORDS + warp_n * B_WARP)
            add(acc, shared, a0, shared, b0, lane)
            there = here
            here = uint32(0) if here == (DEPTH - 1) * STEP else uint32(here + STEP)
        at, n0 = uint32(FACTORS + warp_n * WN), uint32(across * BN + warp_n * WN)
        finish(acc, lane, y, shared, at, r, uint32(down * BM + warp_m * WM), n0)

    return kernel


def traffic(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    one, tile, BM, BN = layout.one, layout.tile, config.block_m, config.block_n
    load = gemm.loaded(layout) + layout.down * int8_epilogue.factor_traffic(layer, BN, config.threads)
    row, column = int8_epilogue.places(tile, one.N)
    m0, n0 = np.arange(0, layout.down * BM, tile.M), np.arange(0, layout.across * BN, tile.N)
    m, n = m0[:, None, None, None] + row, n0[:, None, None] + column
    store = int8_epilogue.store_traffic(one.N, np.where(m < one.M, m, -1), n)
    return Traffic(*(load + layer.residual * store), *store)


def supports(layer):
    return layer.layout == "NHWC" and layer.C % 4 == 0 and layer.F % 4 == 0 and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("copy4_async", "mma_s8"), tiles=TILES, lesson="34",
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=shared_bytes(layer, config))
