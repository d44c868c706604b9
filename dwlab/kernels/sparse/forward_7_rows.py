"""Rows: where maps lie channel by channel, a kept column is a row of pixels, and no other is loaded.

In NHWC a pixel's kept channels lie in nearly all of its sectors, so `tensor` loads x whole and takes columns out of
shared memory, two bytes at a time. In NCHW a channel is contiguous: of 64:2:16 a block of 64 filters loads a quarter of
x, 16 bytes a copy, into the rows of its tile. ldmatrix transposes them as it reads them, as many bytes a clock as of
dense filters. What a pattern leaves out costs neither bytes of the L2 nor of shared memory.

    of x, read by a block of V filters:   4 / M        products:   2 / M        (of a dense layer's)

The block's choice of columns is loaded first, to shared memory, as a copy's address depends on it. Weights, metadata
and the order of filters in a warp are those of `tensor`. A lane's sums are pairs of neighbouring pixels: four lanes
transpose four vectors of 8 pixels, so that each stores 16 bytes of a filter (parts/row_epilogue.py).

Blocks are of pixels of all images one after the other: a vector lies in one image, as a map's pixels are whole vectors
of 8, 4 or 2. Of maps with an odd number of pixels the naive stage takes care.

Traffic: of x the kept rows once for each BN filters, w and wi once for each BM pixels, and a block's columns; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pipeline import pipeline
from dwlab.kernels.parts.row_epilogue import store_rows
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import rows_tiles, tensor_tiles
from dwlab.kernels.sparse.rows_tiles import layout_of
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, DEPTH, CHUNKS, ACROSS = layout.tile, config.pipeline_stages, layout.chunks, layout.across
    SIZE, zero, add, store = tile.size, tile.zero, tile.add, store_rows(layer, tile)
    WM, WN, WARPS, S, (W0, E0, _, STEP) = tile.M, tile.N, config.warps_n, layout.steps, layout.places
    BM, BN, C, HW, M = config.block_m, config.block_n, layer.C, layer.H * layer.W, layout.one.M
    (EACH, VECTORS), (find, load_x) = layout.vectors, rows_tiles.load_rows(layout)
    load_w = tensor_tiles.load_filters(layout, columns=False)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, wi, n0, thread, _, _, pixels, inside = block
        load_x(shared, at, x, chunk, thread, pixels, inside)
        load_w(shared, at, w, wi, wi, n0, chunk, thread)

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, shared, at, chunk, block):
        _, _, _, _, thread, warp_m, warp_n, _, _ = block
        w0, e0 = uint32(at + W0 + warp_n * (WN * 8 * S)), uint32(at + E0 + warp_n * WN)
        add(acc, shared, at, w0, e0, uint32(warp_m * (WM // 2)), uint32(thread % 32))

    run = pipeline(DEPTH, STEP, CHUNKS, load, multiply)

    @cuda.jit
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        m0, n0 = uint32(block // ACROSS * BM), uint32(block % ACROSS * BN)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        m = uint32(m0 + thread % VECTORS * (2 * EACH))  # the first pixel of all that the thread copies
        pixels = uint32(m // HW * (C * (HW // 2)) + m % HW // 2)
        here = (x, w, wi, n0, thread, warp_m, warp_n, pixels, m < M)
        find(shared, wc, n0, thread)
        zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load(shared, uint32(chunk * STEP), uint32(chunk), here)
            ptx.commit()
        run(acc, shared, here)
        store(acc, lane, y, b, r, uint32(m0 + warp_m * WM), uint32(n0 + warp_n * WN), uint32(M))

    return kernel


def traffic(layer, config):
    return rows_tiles.traffic(layer, layout_of(layer.kernel_key, layer.N, config))


@register(
    kernel=kernel, traffic=traffic, supports=rows_tiles.supports, dtypes=("float16",), view="words", aligned=16,
    needs=("copy4_async", "mma_sp_f16"), lesson="42",
    tiles=rows_tiles.TILES,
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=rows_tiles.resources(layer, config).shared_bytes)
