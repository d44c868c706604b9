"""Tensor cores: one instruction of a warp does 1,024 multiply-adds and more, in float32 too, by three products of tf32.

The blocks, and the way of their tiles to shared memory, are those of the stage before; a warp's share of a chunk's
products is now mma.sync on 16 x 8 sums, its operands read by ldmatrix, four 8 x 8 matrices at a time (mma_ss.py).
In 16 bits one product does; of float32 each number is split in two tf32, and the three larger of the four products are
summed up, which leaves float32's accuracy. C is at least 16: in shorter sums float32's own rounding is smaller.

The operands of a warp come in vectors of 16 bytes that must lie in different banks. In the stage before rows had 4
words of padding for that, so most 128 bytes of memory were copied to two places, and the hardware requested their
sectors twice. Here rows have none; the vectors of each change places instead (swizzle.place). What that leaves of
shared memory goes to chunks in flight: three where the tiles are large, else two.

In 16 bits mma is so fast that shared memory is the next to run out: a warp's tile of 64 x 32 reads 6 KiB for 32
products, one of 48 x 96 9 KiB for 72. So warps' tiles are large, few warps fit, and each reads a step's operands before
the products of the step before (`prefetch`) instead of waiting, the next chunk's before the last products of this one:
tensor cores work while the barrier is passed. At the end lanes trade sums, so that each stores 16 bytes. In float32 the
largest tiles' steps are computed in two halves, or registers would not do (mma_tf32.in_halves).

How large a block's tile is depends on the layer: large ones read less, each x once for BN filters and each w once for
BM pixels, but blocks come in turns of 132, and multiprocessors without one are lost. `cost` weighs mma's rate, shared
memory, what L2 gives, and turns. It predicts, for 32 images of 14 x 14 in float16: 512 channels, 132 blocks of 192 x
128, bound by what is read; 728 channels, 132 blocks of 192 x 192, by mma and reads alike; in float32 both by mma.

NHWC. Traffic: x once for each BN filters and w once for each BM pixels; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import constants, gemm, gemm_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pipeline import prefetching_pipeline
from dwlab.kernels.pointwise.tensor_tiles import TILES, layout_of
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.problems.layers import small_indices
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    (load_x, load_w), product, tile = gemm.loads(layout), constants.of(layout.tile), constants.of(layout, config)
    SIZE, HELD = product.size, layout.tile.phases.words
    store = gemm_epilogue.store_tile(layer, layout.one, layout.tile, layout.down * config.block_m)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, image, down, across, thread = block
        load_x(shared, at, x, image, down, across, chunk, thread)
        load_w(shared, at, w, down, across, chunk, thread)

    run = prefetching_pipeline(config.pipeline_stages, layout.stage_words, layout.chunks, load, layout.tile.phases)

    @cuda.jit
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        held = cuda.local.array(HELD, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        image, down = uint32(block // (tile.across * tile.down)), uint32(block // tile.across % tile.down)
        across, warps = uint32(block % tile.across), tile.block_n // product.N
        warp_m, warp_n = uint32(warp // warps), uint32(warp % warps)
        product.zero(acc)
        for chunk in range(tile.pipeline_stages - 1):
            if chunk < tile.chunks:
                load_w(shared, uint32(chunk * tile.stage_words), w, down, across, uint32(chunk), thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(tile.pipeline_stages - 1):
            if chunk < tile.chunks:
                load_x(shared, uint32(chunk * tile.stage_words), x, image, down, across, uint32(chunk), thread)
            ptx.commit()
        a0, b0 = uint32(warp_m * tile.a_warp), uint32(tile.a_words + warp_n * tile.b_warp)
        run(acc, held, shared, a0, b0, lane, (x, w, image, down, across, thread))
        m0 = uint32((image * tile.down + down) * tile.block_m + warp_m * product.M)
        n0 = uint32(across * tile.block_n + warp_n * product.N)
        store(acc, lane, y, b, r, m0, n0)

    return kernel


def traffic(layer, config):
    return gemm.traffic(layer, layout_of(layer.kernel_key, layer.N, config))


def supports(layer):
    if layer.layout != "NHWC" or not small_indices(layer):
        return False
    if layer.dtype == "float32":
        return layer.C >= 16 and layer.C % 4 == 0
    return layer.C % 8 == 0 and layer.F % 2 == 0


TYPES = ("float32", "float16", "bfloat16")


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=TYPES, view="words", aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=TILES, lesson="31",
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=layout.shared_bytes)
