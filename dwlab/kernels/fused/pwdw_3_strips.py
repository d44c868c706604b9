"""Strips on tensor cores: whole rows of the map, so that x is one run of memory, and both layers at full speed.

The stages before load an x and a filter for each product. Here x and the filters come to shared memory asynchronously,
16 bytes a copy, and tensor cores multiply them, in float32 as three products of tf32 (parts/mma_tf32.py); a strip of
whole rows needs no halo to its sides, where the map ends. Only rows are computed twice, (rows + 2) / rows of them
for 3 x 3 at stride 1; a small map is one strip, and nothing is. The depthwise layer reads shared memory, K of a row for
`run` outputs below each other: K * (run + K - 1) / run reads for K * K multiply-adds.

A block has more rows, filters and warps where there are many images (pwdw_tiles.py). Each group of filters reads x
anew, so a warp's tile is as wide as registers allow. Rows have no padding, their vectors of 16 bytes change places
(swizzle.place), and up to two stages are in flight while one is multiplied: one barrier for each.

Predicted, 24 -> 144 channels of 56 x 56, 32 images: 67 MB move, 16 us at a copy's speed; the products take 347 M * 1.25
multiply-adds, thrice on tensor cores, about 8 us; the depthwise layer 4.5 us of FFMA and 6 us of shared memory. All
three overlap between blocks: near 25 us.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.fused import pwdw_depthwise, pwdw_tiles, row_loads
from dwlab.kernels.parts import constants, mma_tf32
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pipeline import pipeline
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, iterations, small_maps, warp_traffic
from dwlab.target import cuda


@by_shape
def kernel(pair, config):
    dw = constants.of(pair.second, channels=pair.first.C // pwdw_tiles.per_word(pair.dtype))  # in words of 32 bits
    SLICES, layout = config.warps_k, pwdw_tiles.layout_of(pair, config)
    tile = constants.of(layout, config, per_slice=config.block_k // SLICES, stages=max(2, config.pipeline_stages))
    product, copies = constants.of(pwdw_tiles.product(pair, config)), pwdw_tiles.loads(pair, config)
    SIZE, between = product.size, pwdw_depthwise.parts(pair, config)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, at, chunk, block):  # one K tile of x, and the filters behind it, into the stage at word `at`
        x, w1, f0, first, pixels, _, _, _ = block
        c0 = uint32(chunk * uint32(tile.block_k))
        copies.x(shared, at, x, first, pixels, c0)
        copies.w(shared, uint32(at + uint32(tile.block_m * tile.x_pitch)), w1, f0, c0)

    @cuda.jit(device=True, forceinline=True)
    def mma(acc, shared, at, chunk, block):  # this warp's pixels x filters of that stage, added to its sums
        _, _, _, _, _, own_x, own_w, lane = block
        product.add(acc, shared, uint32(at + own_x), shared, uint32(at + own_w), lane)

    multiply = pipeline(tile.stages, tile.stage_words, tile.chunks, load, mma)

    @cuda.jit(max_registers=pwdw_tiles.register_limit(config.threads))
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        thread = uint32(cuda.threadIdx.x)
        lane = uint32(thread % uint32(32))
        warp = uint32(thread // uint32(32))
        f0 = uint32(uint32(cuda.blockIdx.x) * uint32(tile.block_n))
        p0 = uint32(uint32(cuda.blockIdx.y) * uint32(tile.block_h))
        n = uint32(cuda.blockIdx.z)
        h0 = max(int(p0 * dw.stride) - dw.padding, 0)  # the strip's first row, and how many it has
        rows = uint32(min(int((p0 + uint32(tile.block_h - 1)) * uint32(dw.stride)) - dw.padding + dw.K, dw.H) - h0)
        h0 = uint32(h0)
        first = uint32(n * uint32(dw.channels * (dw.H * dw.W)) + h0 * uint32(dw.W * dw.channels))
        pixels = uint32(rows * uint32(dw.W))
        for chunk in range(tile.stages - 1):  # prologue: the first stages are loading before anything is multiplied
            if chunk < tile.chunks:
                at = uint32(chunk * tile.stage_words + tile.block_m * tile.x_pitch)
                copies.w(shared, at, w1, f0, uint32(chunk * tile.block_k))
        between.load_taps(shared, w2, b1, b2, f0, thread)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for chunk in range(tile.stages - 1):
            if chunk < tile.chunks:
                copies.x(shared, uint32(chunk * tile.stage_words), x, first, pixels, uint32(chunk * tile.block_k))
            ptx.commit()
        # Products: warp = (slice * warps_f + its filters) * warps_p + its pixels
        part = uint32(warp // uint32(tile.warps_m * tile.warps_n))
        pw = uint32(uint32(tile.warp_m) * (warp % uint32(tile.warps_m)))
        fw = uint32(uint32(tile.warp_n) * (warp % uint32(tile.warps_m * tile.warps_n) // uint32(tile.warps_m)))
        own_x = uint32(part * uint32(tile.per_slice) + pw * uint32(tile.x_pitch))
        own_w = uint32(uint32(tile.block_m * tile.x_pitch) + part * uint32(tile.per_slice) + fw * uint32(tile.w_pitch))
        product.zero(acc)
        multiply(acc, shared, (x, w1, f0, first, pixels, own_x, own_w, lane))
        cuda.syncthreads()  # the stages are done with: in their place comes the map between the layers
        between.store(acc, lane, shared, shared, shared, uint32(part * uint32(tile.block_m) + pw), fw)
        cuda.syncthreads()
        if SLICES > 1:  # warps that had parts of the channels: their sums meet
            between.add_slices(shared, thread)
            cuda.syncthreads()
        between.run(shared, r, y, n, p0, h0, f0, rows, thread)

    return kernel


def traffic(pair, config):
    dw, each, T, PIXELS = pair.second, pwdw_tiles.per_word(pair.dtype), config.threads, config.block_m
    C, F, FW, H, W, P, Q = pair.first.C // each, dw.C, dw.C // each, dw.H, dw.W, dw.P, dw.Q
    FILTERS, DEPTH, rows, run = config.block_n, config.block_k, config.block_h, config.thread_m
    load, store, WORDS_F = np.zeros(2, np.int64), np.zeros(2, np.int64), FILTERS // each

    for f0 in range(0, F, FILTERS):
        words = row_loads.filter_traffic(C, F, FILTERS, DEPTH, T, f0)  # what every block of these filters loads
        for lines, often in ((dw.K**2, 1), (1, pair.first.bias + dw.bias)):  # taps, and biases
            i = iterations(WORDS_F * lines, T)
            f = f0 // each + i % WORDS_F
            words += often * warp_traffic(np.where((i >= 0) & (f < FW), i // WORDS_F * FW + f, -1))
        load += words * pair.N * -(-P // rows)
        i = iterations(-(-rows // run) * Q * WORDS_F, T)
        f, q, g = f0 // each + i % WORDS_F, i // WORDS_F % Q, i // (WORDS_F * Q)
        for n, p0, o in np.ndindex(pair.N, -(-P // rows), run):
            p = p0 * rows + g * run + o
            now = (i >= 0) & (f < FW) & (p < P) & (g * run + o < rows)
            store += warp_traffic(np.where(now, ((n * P + p) * Q + q) * FW + f, -1))
    for n, strip in np.ndindex(pair.N, -(-P // rows)):
        top = strip * rows * dw.stride - dw.padding
        h0, end = max(top, 0), min(top + (rows - 1) * dw.stride + dw.K, H)
        sizes = (pwdw_tiles.aligned(pair), C, PIXELS, DEPTH, T, (n * H + h0) * W * C, (end - h0) * W)
        load += row_loads.pixel_traffic(*sizes) * -(-F // FILTERS)
    return Traffic(*(load + dw.residual * store), *store)


def supports(pair):
    if pair.layout != "NHWC" or pair.dtype != "float32" and (pair.first.C % 8 or pair.second.C % 8):
        return False
    if pair.dtype == "float32" and pair.first.C < mma_tf32.FEWEST:
        return False
    return small_maps(pair)


@register(
    kernel=kernel, traffic=traffic, supports=supports, view="words", dtypes=("float32", "float16"), aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=pwdw_tiles.TILES, lesson="38",
)  # fmt: skip
def launch(pair, config):
    grid = (-(-pair.second.C // config.block_n), -(-pair.second.P // config.block_h), pair.N)
    return Launch(grid, (config.threads,), shared_bytes=pwdw_tiles.resources(pair.kernel_key, config).shared_bytes)
