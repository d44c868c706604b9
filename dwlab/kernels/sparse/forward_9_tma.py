"""Tma: 2:4 as `wgmma` and `wgmma_rows` multiply it, x and filters brought by the copy engine, warps that meet nowhere.

`wgmma_rows` copies 16 bytes a thread, and a barrier for all stands before each chunk's products. Here one thread starts
six boxes a chunk: x by 64 pixels (NCHW) or as it lies (NHWC), filters in lines of 64 bytes, metadata in a line a step.
Groups wait for mbarriers alone (parts/bulk_sparse.py). As nobody computes addresses, a block may have more groups and
larger tiles: 192 x 256 reads 31 % less for an output than 256 x 128.

Predicted for 4096 -> 1024 and 8,192 pixels: 64 us, of what is read from the L2, 671 MB at 80 bytes a ns and
multiprocessor, and of shared memory, where products read and copies write. docs/results/sparse.md has what was
measured. Few pixels have few tiles, whose chunk after chunk takes longer than its products: there two slices of groups
share a sum.

64 channels and filters or multiples; V:N:M has its rows one by one, which are no boxes. Compute capability 9.0 alone.
Traffic: x once for each BN filters, filters once for each BM pixels, counted as copies of 16 bytes; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import bulk_sparse, constants, ptx_bulk
from dwlab.kernels.parts.group_products import ROWS, WORDS
from dwlab.kernels.parts.row_epilogue import store_rows
from dwlab.kernels.parts.run_epilogue import store_runs
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import tma_tiles
from dwlab.kernels.sparse.tma_tiles import BOX, FILTERS, TILES, blocks, layout_of, most_registers, resources
from dwlab.target import cuda


def loading(layout):
    """load(shared, to, full, chunk, t, where): starts the boxes of a chunk of tile t, at word `to` on."""
    (LINES, WIDTH), (F, PER_FILTER), (STEPS, _) = layout.matrices
    tile, BM, BN = constants.of(layout, C=layout.layer.C), layout.config.block_m, layout.config.block_n
    NCHW = layout.layer.layout == "NCHW"

    @cuda.jit(device=True, forceinline=True)
    def load(shared, to, full, chunk, t, where):
        x, w, wi, n0, _, _, _, _, _, _ = where
        line, word = uint32(t * uint32(BM)), uint32(chunk * uint32(WORDS))
        if NCHW:
            line = uint32(t // uint32(tile.each) * uint32(tile.C) + chunk * uint32(BOX))
            word = uint32(t % uint32(tile.each) * uint32(BM // 2))
            for q in range(BM // 64):  # what begins behind the map's last pixel would be no box
                at = min(uint32(word + uint32(q * WORDS)), uint32(WIDTH - 4))
                place = uint32(to + uint32(q * tile.x_pitch))
                ptx_bulk.copy_box_async(shared, place, x, LINES, WIDTH, BOX, line, at, full)
        else:
            ptx_bulk.copy_box_async(shared, to, x, LINES, WIDTH, BM, line, word, full)
        at, word = uint32(to + uint32(tile.w_at)), uint32(chunk * uint32(WORDS // 2))
        ptx_bulk.copy_box_async(shared, at, w, F, PER_FILTER, BN, n0, word, full, 16)
        at = uint32(to + uint32(tile.e_at))
        ptx_bulk.copy_box_async(shared, at, wi, STEPS, F, 2, uint32(chunk * 2), n0, full, BN)

    return load


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, SIZE, arrange = constants.of(config, layout.tile, layout), layout.tile.size, layout.sums[1]
    NCHW = layer.layout == "NCHW"
    store = store_rows(layer, layout.tile) if NCHW else store_runs(layer, layout.one, layout.tile)

    @cuda.jit(device=True, forceinline=True)
    def finish(acc, t, where):
        _, _, _, _, y, b, r, lane, row, column = where
        image = uint32(t // uint32(tile.each) * uint32(tile.pixels))
        m = uint32(image + t % uint32(tile.each) * uint32(tile.block_m) + row)
        arrange(acc, lane)
        if NCHW:
            store(acc, lane, y, b, r, m, column, uint32(image + uint32(tile.pixels)))
        else:
            store(acc, lane, y, b, r, m, column)

    chunks = bulk_sparse.pipeline(layout, loading(layout), finish)

    @cuda.jit(max_registers=most_registers(config))
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        first, n0 = uint32(block // tile.across * tile.groups), uint32(block % tile.across * tile.block_n)
        end = min(uint32(first + tile.groups), uint32(tile.down))
        lane, warp = uint32(thread % 32), uint32(thread // 32 % tile.warps)
        group_m, line = uint32(warp // 4 % tile.warps_m), uint32(warp // 4 // tile.warps_m * ROWS + warp % 4 * FILTERS)
        where = (x, w, wi, n0, y, b, r, lane, uint32(group_m * tile.warp_m), uint32(n0 + line))
        tile.zero(acc)
        chunks.start(shared, thread, first, end, where)
        a0 = uint32(tile.w_at + line // ROWS * (ROWS * WORDS // 2))
        b0 = uint32(group_m * (tile.warp_m * WORDS))
        chunks.run(acc, shared, a0, b0, uint32(tile.e_at + line), thread, first, end, where)

    return kernel


@register(
    kernel=kernel, traffic=tma_tiles.traffic, supports=tma_tiles.supports, dtypes=("float16",), view="words",
    aligned=16, needs=("copy_box_async", "wgmma_sp_f16", "wgmma_sp_f16_trans"), lesson="42", tiles=TILES,
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((blocks(layout),), (config.threads,), shared_bytes=resources(layer, config).shared_bytes)
