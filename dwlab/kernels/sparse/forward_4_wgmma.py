"""Wgmma: 2:4 by Hopper's products of four warps, which find the kept columns of x in shared memory by themselves.

mma.sp wants x in registers, a lane's words of each 8 pixels, read again by every warp that has other filters of them.
wgmma.sp is one instruction of four warps for 64 filters and up to 256 pixels: x stays in shared memory, where it is
read once for 64 filters, the weights beside it; a lane gives the metadata alone, for two instructions in one register
(parts/group_sparse.py). The copies, the order of filters and what is stored are those of the stage before. A group runs
on while its products do as in pointwise/forward/wgmma, but not into the next K-tile: the register would be written that
they read. So between two K-tiles' products a group's tensor cores have no work but other groups'.

An instruction takes 32 channels in the clocks that a dense one takes 16 in, N / 2, but reads as many bytes of x, for
its 32: 64 N, and 2 KiB of weights, of 128 a clock. So at N = 256 shared memory binds it as much as tensor cores, before
a copy has been written, and what a block reads from L2 is x undiminished beside half of w. Predicted therefore: not
twice the dense stage but at most the bytes' ratio, of blocks of 256 x 128 some 1.2. V:N:M gains nothing: x would have
to be gathered into shared memory for each V filters, as often as `tensor` gathers it into registers; so the stage takes
patterns without chosen columns alone. In NCHW whole lines are gathered, and that pays (`wgmma_rows`).

NHWC, compute capability 9.0 alone. Traffic: x once for each BN filters, w and wi once for each BM pixels; y once.
"""

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.group_products import ROWS
from dwlab.kernels.parts.group_sparse import ahead, sparse_group_pipeline
from dwlab.kernels.parts.load_async import load_tile, tile_traffic
from dwlab.kernels.parts.run_epilogue import store_runs, stored_runs
from dwlab.kernels.parts.sparse_tile import supports as fills_tiles
from dwlab.kernels.pointwise.wgmma_tiles import most_registers
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.sparse import tensor_tiles
from dwlab.kernels.sparse.wgmma_tiles import FILTERS, configs, cost, layout_of, resources
from dwlab.kernels.tiling.config import Tiles
from dwlab.kernels.traffic import Traffic
from dwlab.target import cuda


@by_shape
def kernel(layer, images, config):
    layout = layout_of(layer, images, config)
    tile, ACROSS, EACH, STAGES = layout.tile, layout.across, config.unroll, config.pipeline_stages
    TILES = layout.chunks // EACH
    AHEAD = ahead(STAGES, TILES)
    (BM, CHUNK, *more), BN, load_w = tensor_tiles.pixels(layout), config.block_n, tensor_tiles.load_filters(layout)
    load_x = load_tile(BM, CHUNK, CHUNK, *more)
    SIZE, zero, store, MOST = tile.size, tile.zero, store_runs(layer, layout.one, tile), most_registers(config)
    N, WARPS, (W0, E0, _, STEP) = tile.M, config.warps_n, layout.places

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, tile, block):
        x, w, wi, wc, m0, n0, thread, _, _, _, _, _, _ = block
        for u in range(EACH):
            to, chunk = uint32(at + uint32(u * STEP)), uint32(tile * EACH + u)
            load_x(shared, to, x, uint32(0), m0, uint32(chunk * CHUNK), thread)
            load_w(shared, to, w, wi, wc, n0, chunk, thread)

    @cuda.jit(device=True, forceinline=True)
    def finish(acc, group, block):
        _, _, _, _, _, _, _, y, b, r, lane, row, column = block
        for j in range(0, SIZE, 4):  # a pixel's two filters next to each other
            acc[j + 1], acc[j + 2] = acc[j + 2], acc[j + 1]
        store(acc, lane, y, b, r, row, column)

    run = sparse_group_pipeline(STAGES, STEP, EACH, TILES, load, N, tensor_tiles.e_pitch(config), finish)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 1024)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        m0, n0 = uint32(block // ACROSS * BM), uint32(block % ACROSS * BN)
        warp_m, warp_n = uint32(warp // WARPS), uint32(warp % WARPS)
        row, column = uint32(m0 + warp_m * N), uint32(n0 + warp_n * FILTERS)
        here = (x, w, wi, wc, m0, n0, thread, y, b, r, lane, row, column)
        zero(acc)
        for k in range(AHEAD):
            load(shared, uint32(k * EACH * STEP), uint32(k), here)
            ptx.commit()
        a0, b0 = uint32(W0 + warp_n // 4 * (ROWS * CHUNK // 2)), uint32(warp_m * (N * CHUNK))
        run(acc, shared, a0, b0, uint32(E0 + warp_n * FILTERS), lane, uint32(1), here)

    return kernel


def traffic(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    last, down = stored_runs(layer, layout.tile), layout.blocks // layout.across
    load = layout.across * tile_traffic(*tensor_tiles.pixels(layout)) + down * tensor_tiles.filters_traffic(layout)
    return Traffic(load[0] + last.load_requests, load[1] + last.load_sectors, last.store_requests, last.store_sectors)


def supports(layer):
    return not layer.chooses and fills_tiles(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16",), view="words", aligned=16,
    needs=("copy4_async", "wgmma_sp_f16"), tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    layout = layout_of(layer.kernel_key, layer.N, config)
    return Launch((layout.blocks,), (config.threads,), shared_bytes=resources(layer, config).shared_bytes)
