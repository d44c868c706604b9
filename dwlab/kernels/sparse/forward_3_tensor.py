"""Tensor cores: an instruction takes 32 kept columns and multiplies by the 16 weights of each filter that are not zero.

The stage before multiplies by half its columns' zeros. mma.sp does not: its A is the kept weights, 16 filters' 16 of 32
columns, beside them the metadata that w's pruning left (parts/mma_sparse.py). It takes as long as a dense mma of 16
columns, so 2:4 may be twice as fast as pointwise/forward/tensor, where products bind and nothing else; 64:2:16 has a
quarter of the columns besides, eight times. A layer that is bound by bytes gains what w gets shorter, nearly nothing.

Filters are rows here, pixels columns; their order within a warp's tile lets a lane store 16 bytes of a pixel. Chunks of
x, weights, metadata and columns come to shared memory asynchronously, two to four at a time (parts/pipeline.py), x
swizzled. With 2:4 both operands are read by ldmatrix. With chosen columns x comes whole all the same, and a lane takes
its words' two halves where its columns say, eight reads for one product of each 16 filters. So V should be large:
those reads, not the products, bind 16:2:M, and may bind 64:2:M.

V is a multiple of 16, or the pattern has no columns to choose; the naive stage takes the others.

Traffic: x once for each BN filters, w, wi and wc once for each BM pixels; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.load_async import load_tile, tile_traffic
from dwlab.kernels.parts.pipeline import pipeline
from dwlab.kernels.parts.run_epilogue import store_runs, stored_runs
from dwlab.kernels.parts.sparse_tile import supports
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import tensor_tiles
from dwlab.kernels.sparse.tensor_tiles import layout_of
from dwlab.kernels.traffic import Traffic
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, SIZE, store = tensor_tiles.numbers(layout), layout.tile.size, store_runs(layer, layout.one, layout.tile)
    load_w = tensor_tiles.load_filters(layout)
    load_x = load_tile(config.block_m, config.block_k, *tensor_tiles.pixels(layout)[1:])

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, wi, wc, m0, n0, thread, _, _ = block
        load_x(shared, at, x, uint32(0), m0, uint32(chunk * tile.block_k), thread)
        load_w(shared, at, w, wi, wc, n0, chunk, thread)

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, shared, at, chunk, block):
        _, _, _, _, _, _, thread, warp_m, warp_n = block
        x0 = uint32(at + warp_m * (tile.warp_m * tile.block_k))
        w0 = uint32(at + tile.w_at + warp_n * (tile.warp_n * 8 * tile.steps))
        e0, c0 = uint32(at + tile.e_at + warp_n * tile.warp_n), uint32(at + tile.c_at + warp_n * (8 * tile.steps))
        tile.add(acc, shared, x0, w0, e0, c0, uint32(thread % 32))

    run = pipeline(config.pipeline_stages, layout.places.step, layout.chunks, load, multiply)

    @cuda.jit
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        m0, n0 = uint32(block // tile.across * tile.block_m), uint32(block % tile.across * tile.block_n)
        warp_m, warp_n = uint32(warp // tile.warps_n), uint32(warp % tile.warps_n)
        here = (x, w, wi, wc, m0, n0, thread, warp_m, warp_n)
        tile.zero(acc)
        for chunk in range(tile.pipeline_stages - 1):
            if chunk < tile.chunks:
                load(shared, uint32(chunk * tile.step), uint32(chunk), here)
            ptx.commit()
        run(acc, shared, here)
        store(acc, lane, y, b, r, uint32(m0 + warp_m * tile.warp_m), uint32(n0 + warp_n * tile.warp_n))

    return kernel


def traffic(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    (load, store), down = stored_runs(layer, layout.tile), layout.blocks // layout.across
    of_x, of_w = tile_traffic(*tensor_tiles.pixels(layout)), tensor_tiles.filters_traffic(layout)
    return Traffic(*(load + layout.across * of_x + down * of_w), *store)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16",), view="words", aligned=16,
    needs=("copy4_async", "mma_sp_f16"), lesson="42",
    tiles=tensor_tiles.TILES,
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=tensor_tiles.resources(layer, config).shared_bytes)
