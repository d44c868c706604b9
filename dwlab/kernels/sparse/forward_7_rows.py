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
from dwlab.kernels.sparse import rows_tiles
from dwlab.kernels.sparse.rows_tiles import layout_of
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, SIZE, (find, load_chunk) = rows_tiles.numbers(layout), layout.tile.size, rows_tiles.load_chunks(layout)
    store = store_rows(layer, layout.tile)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, wi, n0, thread, _, _, pixels, inside = block
        load_chunk(shared, at, x, w, wi, n0, chunk, thread, pixels, inside)

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, shared, at, chunk, block):
        _, _, _, _, thread, warp_m, warp_n, _, _ = block
        w0 = uint32(at + tile.w_at + warp_n * (tile.warp_n * 8 * tile.steps))
        e0 = uint32(at + tile.e_at + warp_n * tile.warp_n)
        tile.add(acc, shared, at, w0, e0, uint32(warp_m * (tile.warp_m // 2)), uint32(thread % 32))

    run = pipeline(config.pipeline_stages, layout.places.step, layout.chunks, load, multiply)

    @cuda.jit
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        m0, n0 = uint32(block // tile.across * tile.block_m), uint32(block % tile.across * tile.block_n)
        warp_m, warp_n = uint32(warp // tile.warps_n), uint32(warp % tile.warps_n)
        m = uint32(m0 + thread % tile.vectors * (2 * tile.each))  # the first pixel of all that the thread copies
        pixels = uint32(m // tile.HW * (tile.C * (tile.HW // 2)) + m % tile.HW // 2)
        here = (x, w, wi, n0, thread, warp_m, warp_n, pixels, m < tile.pixels)
        find(shared, wc, n0, thread)
        tile.zero(acc)
        for chunk in range(tile.pipeline_stages - 1):
            if chunk < tile.chunks:
                load(shared, uint32(chunk * tile.step), uint32(chunk), here)
            ptx.commit()
        run(acc, shared, here)
        m0, n0 = uint32(m0 + warp_m * tile.warp_m), uint32(n0 + warp_n * tile.warp_n)
        store(acc, lane, y, b, r, m0, n0, uint32(tile.pixels))

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
