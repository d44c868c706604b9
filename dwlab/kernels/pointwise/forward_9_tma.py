"""Tma: one thread has boxes of x and w brought by the GPU's copy engine, and warps wait for these, not for each other.

In `wgmma` every thread computes addresses and starts copies of 16 bytes, waits for its own, and meets all others at a
barrier, chunk after chunk. Here one thread starts two copies a chunk (cp.async.bulk.tensor, by the Tensor Memory
Accelerator), which bring swizzled lines of 128 bytes, and zeros beyond the edge. An mbarrier that counts bytes tells
what has come, and one at which warps arrive what is free again (parts/bulk_products.py). So a warp group starts its
next products as soon as their operands are there.

A copy describes its matrix by a tensor map, 128 bytes that the driver makes, as a rule of a pointer, for an argument of
the kernel. These are constants of the kernel: their matrix begins at address 0, and two more coordinates lead to x and
w (gpu/driver.py).

Where there are more tiles than fit at a time, a block has several, one below the other, and goes from one to the next
(`groups`): copies of the next are on the way while it stores. In `wgmma` nothing is read meanwhile.

The epilogue is that of `wgmma`, its bias on the way from the start. NHWC, compute capability 9.0 alone. Traffic: as
`wgmma`'s: x once for each BN filters and w once for each BM pixels, counted as copies of 16 bytes; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import bulk_products, constants, group_epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.group_products import ROWS
from dwlab.kernels.pointwise.tma_tiles import TILES, blocks, mbarriers_at, shared_bytes
from dwlab.kernels.pointwise.wgmma_tiles import group_traffic, layout_of, most_registers, supports
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, SIZE, TILES, BIAS = constants.of(layout.tile, layout, config), layout.tile.size, config.groups, layer.bias
    load_bias, store = group_epilogue.load_bias(layer, layout), group_epilogue.finish(layer, layout)

    @cuda.jit(device=True, forceinline=True)
    def finish(acc, row, where):
        shared, y, r, lane, m0, n0, first, column = where
        if BIAS and (TILES == 1 or row == first):
            ptx.wait(0)
            cuda.syncthreads()
        store(acc, lane, shared, y, r, uint32(row + m0), uint32(column + n0), n0)

    chunks = bulk_products.pipeline(layout, mbarriers_at(layer, config), layer.dtype, finish)

    @cuda.jit(max_registers=most_registers(config))
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        row = uint32(block // tile.across * (tile.block_m * tile.groups))
        column = uint32(block % tile.across * tile.block_n)
        group_m, group_n = uint32(warp // 4 // tile.warps_n), uint32(warp // 4 % tile.warps_n)
        if BIAS:
            load_bias(shared, b, uint32(block % tile.across), thread)
            ptx.commit()
        tile.zero(acc)
        chunks.start(shared, x, w, row, column, thread)
        a0, b0 = uint32(group_m * (ROWS * tile.a_pitch)), uint32(tile.a_words + group_n * (tile.N * tile.b_pitch))
        where = shared, y, r, lane, uint32(group_m * ROWS + warp % 4 * 16), uint32(group_n * tile.N), row, column
        chunks.run(acc, shared, a0, b0, x, w, row, column, thread, where)

    return kernel


@register(
    kernel=kernel, traffic=group_traffic, supports=supports, dtypes=("float16", "bfloat16"), view="words", aligned=16,
    needs=("copy_box_async", "wgmma_f16"), tiles=TILES,
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((blocks(layout),), (config.threads,), shared_bytes=shared_bytes(layer, config))
