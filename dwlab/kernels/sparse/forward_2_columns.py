"""Columns: filters that share their columns are a dense tile of fewer channels, 8 x 8 outputs a thread.

The stage before reads for each product a weight, its place and an x. Here a block's filters lie in one block of V, so
that they have their columns in common: for 32 kept columns at a time the block makes a dense tile, x of those columns
alone beside weights with zeros between them, and computes as pointwise/forward/registers does (parts/ffma.py). Of
64:2:16 that is a quarter of the dense stage's multiply-adds, half of them with zeros, of 64:2:8 a half. 2:4 has no
columns to leave out: its tile is all channels, and nothing is saved but bytes of w.

Channels come to shared memory whole, asynchronously, while the chunk before is computed with: in NHWC a pixel's kept
channels lie in nearly all of its sectors, so to leave some out would save no traffic. From there threads take four
columns a group, convert them to float32 and store 16 bytes, and spread the weights of the same groups.

Blocks of V filters that are no multiple of 16 fill no tile: the naive stage takes those.

Traffic: x once for each BN filters, w, wi and wc once for each BM pixels; y once.
"""

import functools

from numba import float32, uint32

from dwlab.kernels.parts import constants
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.ffma import ffma
from dwlab.kernels.parts.load_async import load_tile, tile_traffic
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.run_epilogue import store_runs, stored_runs
from dwlab.kernels.parts.sparse_tile import channels, gather, gather_traffic, spread, spread_traffic, supports
from dwlab.kernels.parts.swizzle import padded
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Rates, Work
from dwlab.kernels.traffic import Traffic
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

SHAPES = (  # of a block's tile, pixels and filters, of a thread's, and filters of a warp
    (128, 64, 8, 8, 64), (64, 64, 8, 8, 64), (64, 64, 8, 4, 32), (32, 64, 4, 4, 32), (128, 32, 8, 4, 32),
    (64, 32, 4, 4, 32), (32, 32, 4, 4, 32), (128, 16, 4, 4, 16), (64, 16, 4, 4, 16), (32, 16, 4, 4, 16),
)  # fmt: skip
PITCH = padded(STEP)


@by_shape
def kernel(layer, images, config):
    one, sums, BM, BN, THREADS = product(layer, images), tile_of(config), config.block_m, config.block_n, config.threads
    tile = constants.of(
        config, sums, V=layer.form.V, chunks=layer.kept // STEP, across=-(-one.N // BN), x_at=(BM + BN) * PITCH
    )
    SIZE, store = sums.size, store_runs(layer, one, sums)
    load = load_tile(BM, config.block_k, config.block_k, THREADS, one.M, one.words, one.words)
    pick, fill = gather(layer, BM, PITCH, THREADS), spread(layer, BN, PITCH, THREADS, BN // 4)

    @cuda.jit
    def kernel(x, w, wi, wc, b, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread, block = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        m0, n0 = uint32(block // tile.across * tile.block_m), uint32(block % tile.across * tile.block_n)
        warp_m, warp_n = uint32(warp // tile.warps_n), uint32(warp % tile.warps_n)
        tile.zero(acc)
        load(shared, uint32(tile.x_at), x, uint32(0), m0, uint32(0), thread)
        ptx.commit()
        for chunk in range(tile.chunks):
            ptx.wait(0)
            cuda.syncthreads()  # the channels have come, and all are done with the dense tile
            pick(shared, uint32(0), uint32(tile.x_at), wc, uint32(n0 // tile.V), uint32(chunk), thread)
            fill(shared, uint32(tile.block_m * PITCH), w, wi, n0, uint32(chunk), thread)
            cuda.syncthreads()
            if chunk + 1 < tile.chunks:
                load(shared, uint32(tile.x_at), x, uint32(0), m0, uint32((chunk + 1) * tile.block_k), thread)
            ptx.commit()
            a0, b0 = uint32(warp_m * tile.M * PITCH), uint32(tile.block_m * PITCH + warp_n * (tile.N // 4) * PITCH)
            tile.add(acc, shared, a0, shared, b0, lane)
        store(acc, lane, y, b, r, uint32(m0 + warp_m * tile.M), uint32(n0 + warp_n * tile.N))

    return kernel


@functools.cache
def tile_of(config):
    """A warp's tile by multiply-adds."""
    lanes_m = 32 * config.thread_n // config.warp_n
    return ffma(config.thread_m, config.thread_n, lanes_m, STEP, PITCH, PITCH, config.block_n // 4)


def config_of(layer, BM, BN, TM, TN, WN):
    """The tile of blocks of BM x BN outputs, TM x TN a thread, WN columns a warp."""
    warps_m = BM * WN // (32 * TM * TN)
    return TileConfig(BM, BN, channels(layer) // 2, warps_m, BN // WN, thread_m=TM, thread_n=TN)


def configs(layer, images, gpu):
    """Tiles of the shapes whose filters lie in one block of V."""
    return [config_of(layer, *shape) for shape in SHAPES if not layer.chooses or layer.form.V % shape[1] == 0]


def resources(layer, config):
    words = (config.block_m + config.block_n) * PITCH + config.block_m * config.block_k
    sums, operands = config.thread_m * config.thread_n, 2 * (config.thread_m + config.thread_n)
    return Resources(config.threads, sums + operands + 32, 4 * words)


def blocks_of(layer, images, config):
    """Blocks of the grid."""
    one = product(layer, images)
    return -(-one.M // config.block_m) * -(-one.N // config.block_n)


def work(layer, images, config):
    BM, BN, kept = config.block_m, config.block_n, layer.kept
    read = (BM * layer.C + BN * kept // 2) * 2
    blocks = blocks_of(layer, images, config)
    return Work(blocks, 2 * BM * BN * kept, read, written=BM * BN * 2, chunks=-(-kept // STEP))


def traffic(layer, config):
    one, BM, BN, threads = product(layer), config.block_m, config.block_n, config.threads
    (load, store), down = stored_runs(layer, tile_of(config)), -(-one.M // BM)
    load = load + -(-one.N // BN) * tile_traffic(BM, config.block_k, threads, one.M, one.words, one.words)
    load = load + down * (spread_traffic(layer, BN, threads) + gather_traffic(layer, BN, BM, threads))
    return Traffic(*load, *store)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16",), view="words", aligned=16,
    needs=("copy4_async",), lesson="42",
    tiles=Tiles(configs, resources, work, Rates(products=1070, read=43, written=30, start=1280, chunk=142)),
)  # fmt: skip
def launch(layer, config):
    shared = resources(layer, config).shared_bytes
    return Launch((blocks_of(layer.kernel_key, layer.N, config),), (config.threads,), shared_bytes=shared)
