"""Split: the warps of a block share the sums, straight from global memory into the tensor cores' registers.

A layer of 7 x 7 maps and one image has 49 pixels: few tiles, and long sums. In the stage before a block goes through
such a sum chunk by chunk, a barrier and a memory's latency each, on the few multiprocessors that have a block. Here a
block's tile is small, so that there are more of them, and its warps divide the channels: each computes the whole tile
over its own share, and at the end they add up in shared memory. No warp waits for another until then.

A warp has no neighbours to share operands with, so they need not pass through shared memory. mma wants 8 (or 16) terms
of a row across 4 lanes, each a word or two at distant places; but which channel stands at which place of a sum does
not matter, if both operands agree. So each lane loads 16 bytes, neighbouring channels of one row, and these are its
words of two instructions. All loads of several chunks are in flight before the first product.

NHWC. Traffic: x once for each WN filters and w once for each WM pixels, y once.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import constants, gemm_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.fragments import fragment
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.pointwise.split_k import CHUNK, REGISTERS, TILES, grid, loads, products
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

TYPES = ("float32", "float16", "bfloat16")


@by_shape
def kernel(layer, images, config):
    one, M, N, BATCH, W = product(layer, images), config.block_m, config.block_n, config.unroll, config.warps_k
    LEFT, RIGHT, SIZE, SHARED = BATCH * M // 2, BATCH * N // 2, M * N // 32, W * M * N
    tile = constants.of(
        config, down=-(-one.M // M), across=-(-one.N // N), chunks=-(-one.words // CHUNK), parts=SIZE // 4,
        load_x=loads(M, one.M, one.words, BATCH, W), load_w=loads(N, one.N, one.words, BATCH, W),
    )  # fmt: skip
    compute, store = products(layer.dtype, M, N, BATCH), gemm_epilogue.store_tile(layer, one, fragment(), tile.down * M)

    @cuda.jit(max_registers=REGISTERS if W == 16 else None)
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(SHARED, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        left, right = cuda.local.array(LEFT, float32), cuda.local.array(RIGHT, float32)
        lane, warp, block = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockIdx.x)
        image, down = uint32(block // (tile.across * tile.down)), uint32(block // tile.across % tile.down)
        across = uint32(block % tile.across)
        for i in range(SIZE):
            acc[i] = float32(0)
        chunk = warp
        if chunk < tile.chunks:
            tile.load_w(right, w, uint32(across * tile.block_n), chunk, lane)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        while chunk < tile.chunks:
            tile.load_x(left, x, uint32(down * tile.block_m), chunk, lane)
            cuda.syncwarp()  # the compiler would move loads down to where they are used, and wait for each
            compute(acc, left, right)
            chunk = uint32(chunk + tile.unroll * tile.warps_k)
            if chunk < tile.chunks:
                tile.load_w(right, w, uint32(across * tile.block_n), chunk, lane)
        for i in range(SIZE):
            shared[uint32((warp * SIZE + i) * 32 + lane)] = acc[i]
        cuda.syncthreads()
        part = warp  # of the tile: 16 x 8 sums
        while part < tile.parts:
            for i in range(4):
                acc[i] = float32(0)
            for other in range(tile.warps_k):
                for i in range(4):
                    acc[i] += shared[uint32((other * SIZE + part * 4 + i) * 32 + lane)]
            m0 = uint32((image * tile.down + down) * tile.block_m + part // (tile.block_n // 8) * 16)
            store(acc, lane, y, b, r, m0, uint32(across * tile.block_n + part % (tile.block_n // 8) * 8))
            part = uint32(part + tile.warps_k)

    return kernel


def traffic(layer, config):
    one, M, N, W, BATCH = product(layer), config.block_m, config.block_n, config.warps_k, config.unroll
    chunks, lane = -(-one.words // CHUNK), np.arange(32)
    k, g = np.zeros((0, 32), np.int64), lane // 4
    for warp in range(W):
        for chunk in range(warp, chunks, BATCH * W):
            at = (chunk + W * np.arange(BATCH))[:, None] * CHUNK + lane % 4 * 4
            k = np.concatenate([k, np.minimum(at, one.words - 4)])

    def loaded(lines, limit):  # of all accesses to 8 lines, lane by lane
        line = np.minimum(np.arange(0, -(-limit // lines) * lines, 8)[:, None] + g, limit - 1)[:, None]
        return warp_traffic(((line * one.words + k) // 4).reshape(-1, 32), 2)

    load = -(-one.N // N) * loaded(M, one.M) + -(-one.M // M) * loaded(N, one.N)
    more, store = gemm_epilogue.stored(layer, fragment())
    return Traffic(*(load + more), *store)


def supports(layer):
    whole = layer.C % 4 == 0 if layer.dtype == "float32" else layer.C % 8 == 0 and layer.F % 2 == 0
    return layer.layout == "NHWC" and layer.C >= 16 and whole and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=TYPES, view="words", aligned=16, needs=("mma_f16",),
    tiles=TILES, lesson="31",
)  # fmt: skip
def launch(layer, config):
    return Launch((grid(layer, layer.N, config),), (32, config.warps_k))
