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
from dwlab.kernels.parts.group_sparse import ahead, sparse_group_pipeline
from dwlab.kernels.parts.row_epilogue import store_rows
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import rows_tiles, tensor_tiles
from dwlab.kernels.sparse.wgmma_rows_tiles import FILTERS, TILES, blocks, layout_of, most_registers, resources
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, ACROSS, CHUNKS, STAGES, GROUPS = (
        layout.tile,
        layout.across,
        layout.chunks,
        config.pipeline_stages,
        config.groups,
    )
    BM, BN, C, HW, M, DOWN = config.block_m, config.block_n, layer.C, layer.H * layer.W, layout.one.M, layout.down
    AHEAD, (EACH, VECTORS), (find, load_x) = (
        ahead(STAGES, CHUNKS * GROUPS),
        layout.vectors,
        rows_tiles.load_rows(layout),
    )
    load_w = tensor_tiles.load_filters(layout, columns=False)
    SIZE, zero, store, MOST = tile.size, tile.zero, store_rows(layer, tile), most_registers(layout)
    N, WARPS, (W0, E0, _, STEP), PITCH = tile.M, config.warps_n, layout.places, layout.x_pitch

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, k, block):
        x, w, wi, n0, thread, m, _, _, _, _, _, _ = block
        chunk = k
        if GROUPS > 1:
            m, chunk = uint32(m + k // uint32(CHUNKS) * uint32(BM)), uint32(k % uint32(CHUNKS))
        pixels = uint32(m // uint32(HW) * uint32(C * (HW // 2)) + m % uint32(HW) // uint32(2))
        load_x(shared, at, x, chunk, thread, pixels, m < uint32(M))
        load_w(shared, at, w, wi, wi, n0, chunk, thread)

    @cuda.jit(device=True, forceinline=True)
    def finish(acc, group, block):
        _, _, _, _, _, _, y, b, r, lane, row, column = block
        for j in range(0, SIZE, 4):  # a filter's two pixels are as `rows` has them
            acc[j + 1], acc[j + 2] = acc[j + 2], acc[j + 1]
        store(acc, lane, y, b, r, uint32(row + group * uint32(BM)), column, uint32(M))
        if GROUPS > 1:
            zero(acc)

    run = sparse_group_pipeline(STAGES, STEP, CHUNKS, load, N, tensor_tiles.e_pitch(config), finish, GROUPS, PITCH)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        first, n0 = uint32(block // ACROSS * GROUPS), uint32(block % ACROSS * BN)
        count = min(uint32(GROUPS), uint32(DOWN - first))
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        m = uint32(first * BM + thread % VECTORS * (2 * EACH))  # the first pixel of all that the thread copies
        row, column = uint32(first * BM + warp_m * N), uint32(n0 + warp_n * FILTERS)
        here = (x, w, wi, n0, thread, m, y, b, r, lane, row, column)
        find(shared, wc, n0, thread)
        zero(acc)
        for k in range(AHEAD):
            if k < CHUNKS or k < count * CHUNKS:
                load(shared, uint32(k * STEP), uint32(k), here)
            ptx.commit()
        a0, b0 = uint32(W0 + warp_n // 4 * (ROWS * WORDS // 2)), uint32(warp_m * (N // 64 * PITCH))
        run(acc, shared, a0, b0, uint32(E0 + warp_n * FILTERS), lane, count, here)

    return kernel


def traffic(layer, config):
    return rows_tiles.traffic(layer, layout_of(layer.kernel_key, layer.N, config))


def supports(layer):
    return rows_tiles.supports(layer) and (not layer.chooses or layer.form.V % 64 == 0)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16",), view="words", aligned=16,
    needs=("copy4_async", "wgmma_sp_f16_trans"), lesson="42", tiles=TILES,
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((blocks(layout),), (config.threads,), shared_bytes=resources(layer, config).shared_bytes)
