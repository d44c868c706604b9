"""Slide: no copies ahead and no steps: x goes straight to registers, filters straight to the tensor cores.

The textbook's way copies x to shared memory, reads each of it K times from there, writes the depthwise outputs back,
and does so a few channels a step, with two barriers each. It spends its time in shared memory and at barriers, not on
tensor cores: a stage that did so, `tensor`, was slower on every pair that the records have of both (lesson 38). Here a
thread has a piece of channels and `run` neighbouring columns, and slides down the tile's rows as depthwise2d's
`columns` does: each piece of x comes from global memory once for a row of its outputs, and is part of all their sums in
registers. What goes to shared memory are the depthwise outputs of all channels, once (of as many as there
is room for, if it is too small). After one barrier the warps multiply them with filters that come past shared memory,
16 bytes a lane: each warp has filters of its own, so no other needs them.

While some warps of a multiprocessor wait for x, others of other blocks multiply: small blocks, several at a time.

Predicted: half the passes through shared memory, four barriers in place of two for each few channels. What is left for
K = 3 are some 50 instructions for 4 channels of a pixel and, in float32, the mma of three products.

NHWC with whole vectors of 16 bytes. Traffic: x with the halos of the tiles, and K-1 columns for each run, for each
group of filters (the columns from the L1 cache); filters for each tile.
"""

import itertools

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.fused import filters, outputs, slide_tiles, sliding
from dwlab.kernels.parts import constants, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.mma_rs import mma_rs
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, alike
from dwlab.target import cuda


@by_shape
def kernel(problem, config):
    one, PITCH, B_WORDS = problem.first, slide_tiles.pitch(config), config.warp_n // 2
    layer = constants.of(one, words=pieces.words(one.C, one.dtype))
    tile = constants.of(config, piece=sliding.words(one.dtype))
    product = constants.of(mma_rs(one.dtype, config.warp_m, config.warp_n, PITCH))
    SUMS, AHEAD = product.size, config.unroll * B_WORDS
    slide = sliding.sliding(one, config.block_h, config.thread_n, PITCH, config.block_w * PITCH)
    load_filters, write = filters.load(one, problem.second.F, config), outputs.write(problem.second, config)
    store_sums = outputs.store_sums(product, outputs.out_pitch(config))

    @cuda.jit(max_registers=slide_tiles.registers(problem, config))
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        pool = cuda.shared.array(0, float32, 16)
        sums = cuda.local.array(SUMS, float32)
        words = cuda.local.array(B_WORDS, float32)
        here = cuda.local.array(AHEAD, float32)
        ahead = cuda.local.array(AHEAD, float32)
        t = uint32(cuda.threadIdx.x)
        p0 = uint32(uint32(cuda.blockIdx.x) // -(-layer.Q // tile.block_w) * tile.block_h)
        q0 = uint32(uint32(cuda.blockIdx.x) % -(-layer.Q // tile.block_w) * tile.block_w)
        f0, n = uint32(cuda.blockIdx.y * tile.block_n), uint32(cuda.blockIdx.z)
        lane, warp = uint32(t & uint32(31)), uint32(t >> uint32(5))
        pixel0 = uint32(warp % tile.warps_m * tile.warp_m)  # the warp's first ones of the tile
        filter0 = uint32(warp // tile.warps_m % tile.warps_n * tile.warp_n)
        share = uint32(warp // (tile.warps_m * tile.warps_n))  # of the channels
        k0 = uint32(share * (tile.block_k // tile.warps_k) + lane % 4 * 4)
        f = uint32(f0 + filter0 + lane // 4)
        a_at = uint32((pixel0 + lane // 4) * PITCH + k0)
        h = int32(p0 * layer.stride) - int32(layer.padding)
        filled, pieces = tile.block_h * tile.block_w * PITCH, tile.block_k // tile.piece
        rounds = tile.block_k // 16 // tile.warps_k // tile.unroll  # of groups of channels that a warp multiplies
        product.zero(sums)
        for i in range(t, tile.block_m * PITCH - filled, tile.threads):  # pixels that only fill the last product
            pool[uint32(filled + i)] = float32(0)
        for c0 in range(0, layer.words, tile.block_k):
            if tile.block_k < layer.words:
                cuda.syncthreads()  # the products of the channels before are done
            for i in range(t, pieces * (tile.block_w // tile.thread_n), tile.threads):
                item = uint32(i)
                c, column = uint32(item % pieces * tile.piece), uint32(item // pieces * tile.thread_n)
                v = int32((q0 + column) * layer.stride) - int32(layer.padding)
                to = uint32(column * PITCH + c)
                c = uint32(c0 + c)
                if layer.words % tile.block_k == 0 or c < layer.words:
                    base = uint32(((n * layer.H + uint32(h)) * layer.W + uint32(v)) * layer.words + c)
                    slide(pool, to, x, w1, b1, base, uint32(h), uint32(v), c)
                else:  # beyond the last channel
                    for row in range(tile.block_h):
                        for e in range(tile.thread_n):
                            at = uint32(to + uint32((uint32(row) * tile.block_w + e) * PITCH))
                            for word in range(tile.piece):
                                pool[uint32(at + word)] = float32(0)
            k, at = uint32(c0 + k0), a_at
            if tile.helper_warps == 0 or warp < tile.warps:
                load_filters(ahead, w2, f, k)
            cuda.syncthreads()
            for iteration in range(rounds if tile.helper_warps == 0 or warp < tile.warps else 0):
                for e in range(AHEAD):
                    here[e] = ahead[e]
                if iteration + 1 < rounds:
                    k = uint32(k + 16 * tile.unroll)
                    load_filters(ahead, w2, f, k)
                for g in range(tile.unroll):
                    for e in range(B_WORDS):
                        words[e] = here[g * B_WORDS + e]
                    product.add(sums, pool, at, words)
                    at = uint32(at + 16)
        cuda.syncthreads()  # the last product is done: shared memory is free
        if tile.helper_warps == 0 or warp < tile.warps:
            store_sums(pool, sums, lane, uint32(share * tile.block_m + pixel0), filter0)
        cuda.syncthreads()
        ptx.grid_dependency_wait()  # threads that no column was left for come to it here
        write(pool, b2, r, y, n, p0, q0, f0, t)

    return kernel


def traffic(problem, config):
    """Traffic, counted in words."""
    one, two, load, store = problem.first, problem.second, np.zeros(2, np.int64), np.zeros(2, np.int64)
    E, of_w2 = 4 // one.itemsize, filters.traffic(one, two.F, config)
    images = alike(problem.N, one.H * one.W * one.C // E, two.P * two.Q * two.F // E)
    for (n, often), p0, q0 in itertools.product(
        images, range(0, two.P, config.block_h), range(0, two.Q, config.block_w)
    ):
        of_x = sliding.traffic(one, config, slide_tiles.items(config, one.dtype), n, p0, q0)
        for f0 in range(0, two.F, config.block_n):
            more, stored = outputs.written(two, config, n, p0, q0, f0)
            load, store = load + often * (of_x + of_w2[f0] + more), store + often * stored
    return Traffic(*load, *store)


def supports(problem):
    one, two = problem.first, problem.second
    per = 16 // one.itemsize if problem.layout == "NHWC" and one.dtype != "int8" else 0
    if not per or one.C % per or two.F % per or problem.N >= 2**16 or one.K > 7:
        return False
    words = problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q)
    return words < 2**31


@register(
    kernel=kernel, traffic=traffic, dtypes=("float32", "float16", "bfloat16"), view="words", aligned=16, lesson="38",
    needs=("mma_f16",), supports=supports, tiles=slide_tiles.TILES,
)  # fmt: skip
def launch(problem, config):
    two = problem.second
    across, down = -(-two.Q // config.block_w), -(-two.P // config.block_h)
    grid = (across * down, -(-two.F // config.block_n), problem.N)
    return Launch(grid, (config.threads,), shared_bytes=slide_tiles.resources(problem.kernel_key, config).shared_bytes)
