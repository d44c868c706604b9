"""Int8 on sparse tensor cores: an instruction takes 64 columns of four int8 a word, and its sums are exact.

Blocks, their chunks in shared memory and the order of a warp's filters are those of `tensor`: in words the operands of
mma.sp are the same for int8 and float16, 16 x 8 sums of 64 columns now. A filter's 64 columns have two words of
metadata, and each lane gives one of its own; of float16 two instructions share a register.

    sum (x - zero_x) w = sum x w - zero_x sum w

as in pointwise/forward/int8; the weights that are zero add nothing to either. A lane has neighbouring filters of a
pixel, four or eight, so it requantises them and stores a word or two, without trading bytes (parts/mma_sparse_int8.py).

Predicted: 2:4 at most twice pointwise/forward/int8, and only where products bind, which they do later than float16's: a
quarter of float32's bytes, but mma.sp of four times its own rate. Layers of the networks wait for memory.

Patterns that choose columns it leaves to `bytes`: of int8 a word would be gathered byte by byte.

Traffic: x once for each BN filters, w and wi once for each BM pixels, b and m once for each warp's tile; y once.
"""

from numba import float32, int32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.load_async import load_tile, tile_traffic
from dwlab.kernels.parts.mma_sparse_int8 import requantise_runs, requantised_runs
from dwlab.kernels.parts.pipeline import pipeline
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import int8_tiles
from dwlab.kernels.sparse.int8_tiles import layout_of
from dwlab.kernels.sparse.tensor_tiles import pixels
from dwlab.kernels.tiling.config import Tiles
from dwlab.kernels.traffic import Traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, DEPTH, CHUNKS, ACROSS = layout.tile, config.pipeline_stages, layout.chunks, layout.across
    (BM, CHUNK, *more), BN, load_w = pixels(layout), config.block_n, int8_tiles.load_filters(layout)
    load_x = load_tile(BM, CHUNK, CHUNK, *more)
    SIZE, zero, add, finish = tile.size + tile.more, tile.zero, tile.add, requantise_runs(layer, layout.one, tile)
    WM, WN, WARPS, S, (W0, E0, STEP) = tile.M, tile.N, config.warps_n, layout.steps, layout.places

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):
        x, w, wi, m0, n0, thread, _, _ = block
        load_x(shared, at, x, uint32(0), m0, uint32(chunk * CHUNK), thread)
        load_w(shared, at, w, wi, n0, chunk, thread)

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, shared, at, chunk, block):
        _, _, _, _, _, thread, warp_m, warp_n = block
        x0, w0 = uint32(at + warp_m * (WM * CHUNK)), uint32(at + W0 + warp_n * (WN * 8 * S))
        add(acc, shared, x0, w0, uint32(at + E0 + warp_n * WN), uint32(thread % 32))

    run = pipeline(DEPTH, STEP, CHUNKS, load, multiply)

    @cuda.jit
    def kernel(x, w, wi, wc, b, m, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, int32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        m0, n0 = uint32(block // ACROSS * BM), uint32(block % ACROSS * BN)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        here = (x, w, wi, m0, n0, thread, warp_m, warp_n)
        zero(acc)
        for chunk in range(DEPTH - 1):
            if chunk < CHUNKS:
                load(shared, uint32(chunk * STEP), uint32(chunk), here)
            ptx.commit()
        run(acc, shared, here)
        finish(acc, lane, y, b, m, r, uint32(m0 + warp_m * WM), uint32(n0 + warp_n * WN))

    return kernel


def traffic(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    last, down = requantised_runs(layer, layout.tile), layout.blocks // layout.across
    load = layout.across * tile_traffic(*pixels(layout)) + down * int8_tiles.filters_traffic(layout)
    return Traffic(last.load_requests + load[0], last.load_sectors + load[1], last.store_requests, last.store_sectors)


def supports(layer):
    return not layer.chooses and layer.C % 4 == 0 and layer.F % 4 == 0 and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="sparse/forward/bytes", dtypes=("int8",),
    view="words", aligned=16, needs=("copy4_async", "mma_sp_s8"),
    tiles=Tiles(int8_tiles.configs, int8_tiles.resources, int8_tiles.cost),
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=int8_tiles.resources(layer, config).shared_bytes)
