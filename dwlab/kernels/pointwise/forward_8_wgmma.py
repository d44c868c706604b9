"""Wgmma: Hopper's products of four warps, which read both operands from shared memory, and run while the warps go on.

mma.sync wants its operands in registers: a warp reads them out of shared memory, a step ahead, and starts an
instruction for each 16 x 8 sums. Of an H200's tensor cores that reaches some two thirds. wgmma.mma_async is one
instruction of a warp group, 128 threads, for 64 x N x 16 products, N up to 256; it takes A and B as descriptors of
shared memory, B once for the four warps. So a group has registers for its sums and for little else: 64 x 256 of them.

The way to shared memory is that of `tensor`: copies of 16 bytes, lines of 128 bytes, the same swizzle, which the
descriptors name. Three things are new. The products run by themselves (parts/group_products.py): a group starts a
chunk's four, then the copies of a later chunk, and waits for the chunk before: tensor cores have work behind every
barrier. They read memory past the way of stores, so a fence comes before the barrier (fence_async). And sums must not
be touched before a wait: what each lane has in the end lies as mma.sync leaves it.

A product of 64 x N takes N / 2 clocks, and reads 2 + N / 32 KiB of shared memory, 128 bytes a clock: below N = 128 that
is what binds it, and the copies come on top. So blocks are wide where there are pixels enough for all multiprocessors.
Maps of 7 x 7 are not: there a block has few products in a long sum, and what decides is how many copies are in flight:
tiles of 64 x 64 have twelve chunks of 16 KiB. One block fills a multiprocessor, so what it does before its first
product and after its last is not hidden: its bias and its residual are on the way before they are needed
(parts/group_epilogue.py), and copies beyond the edge are zeros, not branches. docs/results/what_lost.md has what
did not pay.

NHWC, compute capability 9.0 alone. Traffic: x once for each BN filters and w once for each BM pixels; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import constants, group_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.group_products import ROWS, ahead, group_pipeline, load_lines
from dwlab.kernels.pointwise.wgmma_tiles import TILES, group_traffic, layout_of, most_registers, shared_bytes, supports
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile = constants.of(layout.tile, layout, config, ahead=ahead(config.pipeline_stages, layout.chunks))
    SIZE, load_bias, store = tile.size, group_epilogue.load_bias(layer, layout), group_epilogue.finish(layer, layout)
    lines_x = load_lines(config.block_m, config.threads, layout.one.M, layout.one.words)
    lines_w = load_lines(config.block_n, config.threads, layout.one.N, layout.one.words)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, down, across, thread = block
        lines_x(shared, at, x, uint32(down * tile.block_m), chunk, thread)
        lines_w(shared, uint32(at + tile.a_words), w, uint32(across * tile.block_n), chunk, thread)

    run = group_pipeline(config.pipeline_stages, layout.stage_words, layout.chunks, load, layer.dtype, tile.N)

    @cuda.jit(max_registers=most_registers(config))
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        down, across = uint32(block // tile.across), uint32(block % tile.across)
        group_m, group_n = uint32(warp // 4 // tile.warps_n), uint32(warp // 4 % tile.warps_n)
        tile.zero(acc)
        load_bias(shared, b, across, thread)
        lines_w(shared, uint32(tile.a_words), w, uint32(across * tile.block_n), uint32(0), thread)
        ptx.grid_dependency_wait()  # bias and filters may come before the map is there
        lines_x(shared, uint32(0), x, uint32(down * tile.block_m), uint32(0), thread)
        ptx.commit()
        for chunk in range(1, tile.ahead):
            load(shared, uint32(chunk * tile.stage_words), uint32(chunk), (x, w, down, across, thread))
            ptx.commit()
        a0, b0 = uint32(group_m * (ROWS * tile.a_pitch)), uint32(tile.a_words + group_n * (tile.N * tile.b_pitch))
        run(acc, shared, a0, b0, (x, w, down, across, thread))
        m0, column = uint32(down * tile.block_m + group_m * ROWS + warp % 4 * 16), uint32(group_n * tile.N)
        store(acc, lane, shared, y, r, m0, uint32(across * tile.block_n + column), column)

    return kernel


@register(
    kernel=kernel, traffic=group_traffic, supports=supports, dtypes=("float16", "bfloat16"), view="words", aligned=16,
    needs=("copy4_async_zfill", "wgmma_f16"), tiles=TILES,
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=shared_bytes(layer, config))
