"""Wgmma_rows: the kept rows of pixels that `rows` loads, multiplied by products of four warps, tile after tile.

`rows` reads every kept pixel out of shared memory again for each warp of other filters, to registers, and its mma.sp
run at a part of a Hopper's rate. wgmma.sp takes x where it lies, and a pixel's channels need not be neighbours there:
its B may lie by rows, 64 pixels of a kept column in a line of 128 bytes (parts/ptx_wgmma.py). These are 16-byte copies
of `rows`, to other places. So V:N:M, which in NHWC would have to be gathered word by word (`wgmma`), is a gather of
whole lines here, and costs nothing.

Predicted for 4096 -> 1024, 8,192 pixels, 64:2:32 on an H200: 134 MB from the L2, at 60 bytes a ns and multiprocessor
17 us; 84 MB from memory and back, 20 us, of which a tile's outputs, a third, are stored with nothing on the way.
Therefore a block goes from tile to tile, as in pointwise/forward/tma: its columns stay, and copies of the next tile
are on the way while it stores. docs/results/sparse.md has what was measured.

NCHW, compute capability 9.0 alone. Traffic: as `rows`, and a block's columns once for all its tiles.
"""

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.group_products import ROWS, WORDS
from dwlab.kernels.parts.group_sparse import sparse_group_pipeline
from dwlab.kernels.parts.row_epilogue import store_rows
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import rows_tiles, tensor_tiles
from dwlab.kernels.sparse import wgmma_rows_tiles as tiles
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = tiles.layout_of(layer, images, config)
    tile, SIZE, (find, load_chunk) = rows_tiles.numbers(layout), layout.tile.size, rows_tiles.load_chunks(layout)
    store, GROUPS = store_rows(layer, layout.tile), config.groups

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, k, block):
        x, w, wi, n0, thread, m, _, _, _, _, _, _ = block
        chunk = k
        if GROUPS > 1:
            m, chunk = uint32(m + k // uint32(tile.chunks) * uint32(tile.block_m)), uint32(k % uint32(tile.chunks))
        pixels = uint32(m // uint32(tile.HW) * uint32(tile.C * (tile.HW // 2)) + m % uint32(tile.HW) // uint32(2))
        load_chunk(shared, at, x, w, wi, n0, chunk, thread, pixels, m < uint32(tile.pixels))

    @cuda.jit(device=True, forceinline=True)
    def finish(acc, group, block):
        _, _, _, _, _, _, y, b, r, lane, row, column = block
        for j in range(0, SIZE, 4):  # a filter's two pixels are as `rows` has them
            acc[j + 1], acc[j + 2] = acc[j + 2], acc[j + 1]
        store(acc, lane, y, b, r, uint32(row + group * uint32(tile.block_m)), column, uint32(tile.pixels))
        if GROUPS > 1:
            tile.zero(acc)

    run = sparse_group_pipeline(tile, tensor_tiles.e_pitch(config), load, finish)

    @cuda.jit(max_registers=tiles.most_registers(layout))
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        first, n0 = uint32(block // tile.across * tile.groups), uint32(block % tile.across * tile.block_n)
        count = min(uint32(tile.groups), uint32(tile.down - first))
        warp_m, warp_n = uint32(warp // tile.warps_n), uint32(warp % tile.warps_n)
        m = uint32(first * tile.block_m + thread % tile.vectors * (2 * tile.each))  # the first that the thread copies
        row, column = uint32(first * tile.block_m + warp_m * tile.warp_m), uint32(n0 + warp_n * tiles.FILTERS)
        here = (x, w, wi, n0, thread, m, y, b, r, lane, row, column)
        find(shared, wc, n0, thread)
        tile.zero(acc)
        for k in range(tile.ahead):
            if k < tile.chunks or k < count * tile.chunks:
                load(shared, uint32(k * tile.step), uint32(k), here)
            ptx.commit()
        a0 = uint32(tile.w_at + warp_n // 4 * (ROWS * WORDS // 2))
        b0 = uint32(warp_m * (tile.warp_m // 64 * tile.x_pitch))
        run(acc, shared, a0, b0, uint32(tile.e_at + warp_n * tiles.FILTERS), lane, count, here)

    return kernel


def traffic(layer, config):
    return rows_tiles.traffic(layer, tiles.layout_of(layer.kernel_key, layer.N, config))


@register(
    kernel=kernel, traffic=traffic,
    supports=lambda layer: rows_tiles.supports(layer) and (not layer.chooses or layer.form.V % 64 == 0),
    dtypes=("float16",), view="words", aligned=16, needs=("copy4_async", "wgmma_sp_f16_trans"), lesson="42",
    tiles=tiles.TILES,
)  # fmt: skip
def launch(layer, config):
    layout = tiles.layout_of(layer.kernel_key, layer.N, config)
    return Launch((tiles.blocks(layout),), (config.threads,), shared_bytes=tiles.resources(layer, config).shared_bytes)
