"""Wgmma: Hopper's products of four warps, which read both operands from shared memory, and run while the warps go on.

mma.sync wants its operands in registers: a warp reads them out of shared memory, a step ahead, and starts an
instruction for each 16 x 8 sums. Of an H200's tensor cores that reaches some two thirds. wgmma.mma_async is one
instruction of a warp group, 128 threads, for 64 x N x 16 products, N up to 256; it takes A and B as descriptors of
shared memory, B once for the four warps. So a group has registers for its sums and for little else: 64 x 256 of them.

The way to shared memory is that of `tensor`: copies of 16 bytes, lines of 128 bytes, the same swizzle, which the
descriptors name. Three things are new. The products run by themselves (parts/group_products.py): a group starts a
chunk's four, then the copies of a later chunk, and waits for the chunk before: tensor cores have work behind every
barrier. They read memory past the way of stores, so a fence comes before the barrier (fence_async). And sums must not
be touched before a wait: what each lane has in the end lies as mma.sync leaves it, and so does the epilogue.

A product of 64 x N takes N / 2 clocks, and reads 2 + N / 32 KiB of shared memory, 128 bytes a clock: below N = 128 that
is what binds it, and the copies come on top. So blocks are wide, 128 x 256, 192 x 128 or 192 x 192.

Predicted, in float16 for 32 images, from `cost`'s rates: 512 channels of 14 x 14, 132 blocks of 192 x 128: products 4
us, but 43 MB read from L2, 8.2 us at what all multiprocessors get, behind first loads of 1 us and before outputs of 2.5
us: no faster than `tensor`; cuBLAS, which reads a tile once for two multiprocessors (a cluster), needs 9. 128 channels
of 109 x 109, three blocks at a multiprocessor: 58 us, cuBLAS 55. Where tiles are read from L2 often, L2 will bind.

NHWC, compute capability 9.0 alone. Traffic: x once for each BN filters and w once for each BM pixels; y once.
"""

from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import gemm, gemm_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.group_products import ROWS, ahead, group_pipeline
from dwlab.kernels.pointwise.wgmma_tiles import configs, cost, layout_of, most_registers, resources
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Tiles
from dwlab.problems.layers import small_indices


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    (load_x, load_w), tile, CHUNKS, STEP = gemm.loads(layout), layout.tile, layout.chunks, layout.stage_words
    BM, BN, N, ACROSS, GROUPS = config.block_m, config.block_n, tile.N, layout.across, config.warps_n
    SIZE, zero, AHEAD, A_WORDS = tile.size, tile.zero, ahead(config.pipeline_stages, CHUNKS), layout.a_words
    store = gemm_epilogue.store_tile(layer, layout.one, tile, layout.down * BM)
    A_GROUP, B_GROUP, MOST = ROWS * layout.a_pitch, N * layout.b_pitch, most_registers(config)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, down, across, thread = block
        load_x(shared, at, x, uint32(0), down, across, chunk, thread)
        load_w(shared, at, w, down, across, chunk, thread)

    run = group_pipeline(config.pipeline_stages, STEP, CHUNKS, load, layer.dtype, N)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        down, across = uint32(block // ACROSS), uint32(block % ACROSS)
        group_m, group_n = uint32(warp // 4 // GROUPS), uint32(warp // 4 % GROUPS)
        zero(acc)
        for chunk in range(AHEAD):
            load_w(shared, uint32(chunk * STEP), w, down, across, uint32(chunk), thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(AHEAD):
            load_x(shared, uint32(chunk * STEP), x, uint32(0), down, across, uint32(chunk), thread)
            ptx.commit()
        a0, b0 = uint32(group_m * A_GROUP), uint32(A_WORDS + group_n * B_GROUP)
        run(acc, shared, a0, b0, (x, w, down, across, thread))
        m0 = uint32(down * BM + group_m * ROWS + warp % 4 * 16)
        store(acc, lane, y, b, r, m0, uint32(across * BN + group_n * N))

    return kernel


def traffic(layer, config):
    return gemm.traffic(layer, layout_of(layer.kernel_key, layer.N, config))


def supports(layer):
    whole = layer.C % 8 == 0 and layer.C >= 16 and layer.F % 2 == 0
    return layer.layout == "NHWC" and whole and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16", "bfloat16"), view="words", aligned=16,
    needs=("copy4_async", "wgmma_f16"), tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=layout.shared_bytes)
