"""Both products on tensor cores: a block's pixels stay, the filters of one layer after the other pass by.

The stage before loads two numbers for each product. Here a block has up to some hundred pixels, a warp 16 or 32 of
them. x and the first layer's filters come to shared memory `depth` channels at a time, asynchronously, while those
before are multiplied; the sums get bias and activation and are laid down in shared memory as the second layer's
operand. Then the second layer's filters come, `span` groups of them, and their sums go from registers to y.

Between the layers there may be few channels (linear, then expanded) or many (a feed-forward block): all of a block's
pixels have to fit. Where there are few pixels, blocks share the second layer's filters, and each computes the first
layer anew: fewer filters a block, more blocks, more work. Which plan is best is estimated (pwpw_plan.py).

Predicted, 144 -> 24 -> 144 channels of 56 x 56, 32 images: 116 MB move, 28 us at a copy's speed; 694 M multiply-adds,
thrice on tensor cores, some 15 us: bound by memory, below 40 us.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.fused import pwdw_tiles, pwpw_epilogue, pwpw_plan, row_loads
from dwlab.kernels.parts import constants, mma_tf32, warp_tile
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, iterations, small_maps, warp_traffic
from dwlab.target import cuda


@by_shape
def kernel(pair, config):
    each, tile, layer = pwdw_tiles.per_word(pair.dtype), constants.of(config), constants.of(pair.first, G=pair.second.F)
    layout, load = constants.of(pwpw_plan.layout_of(pair, config)), pwpw_plan.loads(pair, config)
    first, second = (constants.of(one) for one in pwpw_plan.products_of(pair, config))
    SIZE1, SIZE2, store2 = first.size, second.size, pwpw_epilogue.store(pair, config)
    store1 = warp_tile.each(first, pwpw_epilogue.store_between(pair, config))

    @cuda.jit(max_registers=pwdw_tiles.register_limit(config.threads))
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc1 = cuda.local.array(SIZE1, float32)
        acc2 = cuda.local.array(SIZE2, float32)
        thread = uint32(cuda.threadIdx.x)
        lane, warp = uint32(thread % 32), uint32(thread // 32)
        pw = uint32(tile.warp_m * (warp % tile.warps_m))
        fw, filters = uint32(warp // tile.warps_m), tile.inner_n // tile.warps_n
        p0 = uint32(cuda.blockIdx.y * tile.block_m)  # of all images
        total = uint32(uint32(y.size) // (layer.G // each))
        pixels = min(uint32(tile.block_m), uint32(total - p0))
        start = uint32(p0 * (layer.C // each))
        if layer.bias:
            i = thread
            while i < layout.passes * tile.inner_n // each:
                value = float32(0)
                if i < layer.F // each:
                    value = b1[i]
                shared[uint32(layout.bias_at + i)] = value
                i = uint32(i + tile.threads)
        own_x = uint32(pw * layout.x_pitch)
        own_w1 = uint32(layout.x_words + fw * (filters * layout.w1_pitch))
        for iteration in range(layout.passes):
            f0 = uint32(uint32(iteration) * tile.inner_n)
            load.w1(shared, uint32(layout.x_words), w1, f0, uint32(0))
            ptx.grid_dependency_wait()  # filters may come before the map is there
            load.x(shared, uint32(0), x, start, pixels, uint32(0))
            ptx.commit()
            first.zero(acc1)
            for chunk in range(layout.chunks1):  # by hand: as a part of its own the loop took a register more
                here = uint32(uint32(chunk % 2) * layout.stage_words)
                if chunk + 1 < layout.chunks1:
                    there = uint32(uint32((chunk + 1) % 2) * layout.stage_words)
                    c0 = uint32(uint32(chunk + 1) * tile.inner_k)
                    load.x(shared, there, x, start, pixels, c0)
                    load.w1(shared, uint32(there + layout.x_words), w1, f0, c0)
                ptx.commit()
                ptx.wait(1)
                cuda.syncthreads()
                first.add(acc1, shared, uint32(here + own_x), shared, uint32(here + own_w1), lane)
                cuda.syncthreads()
            store1(acc1, lane, shared, shared, shared, pw, uint32(f0 + fw * filters))
        own_inner = uint32(layout.inner_at + pw * layout.pitch)
        own_w2 = uint32(fw * (tile.warp_n * layout.w2_pitch))
        for iteration in range(tile.groups):
            f0 = uint32((cuda.blockIdx.x * tile.groups + uint32(iteration)) * tile.block_n)
            load.w2(shared, uint32(0), w2, f0, uint32(0))
            ptx.commit()
            second.zero(acc2)
            for chunk in range(layout.chunks2):
                here = uint32(uint32(chunk % 2) * layout.stage_words)
                c0 = uint32(uint32(chunk) * tile.block_k)
                if chunk + 1 < layout.chunks2:
                    there = uint32(uint32((chunk + 1) % 2) * layout.stage_words)
                    load.w2(shared, there, w2, f0, uint32(c0 + tile.block_k))
                ptx.commit()
                ptx.wait(1)
                cuda.syncthreads()
                second.add(acc2, shared, uint32(own_inner + c0), shared, uint32(here + own_w2), lane)
                cuda.syncthreads()
            store2(acc2, lane, y, b2, r, uint32(p0 + pw), uint32(f0 + fw * tile.warp_n))

    return kernel


def traffic(pair, config):
    each, layout, T = pwdw_tiles.per_word(pair.dtype), pwpw_plan.layout_of(pair, config), config.threads
    C, F, G, (blocks_f, blocks_p, _) = pair.first.C // each, pair.first.F, pair.second.F, launch_grid(pair, config)
    every, total = np.zeros(2, np.int64), pair.N * pair.first.H * pair.first.W
    for f0 in range(0, layout.passes * config.inner_n, config.inner_n):
        every += row_loads.filter_traffic(C, F, config.inner_n, config.inner_k, T, f0)
    i = iterations(layout.passes * config.inner_n // each, T)
    every += pair.first.bias * warp_traffic(np.where(i < F // each, i, -1))
    load, store = pwpw_epilogue.traffic(pair, config, blocks_f, blocks_p)
    load = load + every * blocks_f * blocks_p
    for f0 in range(0, blocks_f * config.groups * config.block_n, config.block_n):
        load += blocks_p * row_loads.filter_traffic(F // each, G, config.block_n, config.block_k, T, f0)
    for p0, alike in pwpw_epilogue.runs(total, config.block_m):
        sizes = (pwpw_plan.aligned(pair), C, config.block_m, config.inner_k, T, p0 * C, total - p0)
        load += alike * layout.passes * blocks_f * row_loads.pixel_traffic(*sizes)
    return Traffic(*load, *store)


def launch_grid(pair, config):
    """Blocks in x (groups of the second layer's filters), y (pixels of all images) and z (one)."""
    pixels = pair.N * pair.first.H * pair.first.W
    return -(-pair.second.F // (config.groups * config.block_n)), -(-pixels // config.block_m), 1


def supports(pair):
    one, two = pair.first, pair.second
    if pair.layout != "NHWC" or pair.dtype != "float32" and (one.C % 8 or one.F % 8 or two.F % 8):
        return False
    if pair.dtype == "float32" and min(one.C, one.F) < mma_tf32.FEWEST:
        return False
    return small_maps(pair)


@register(
    kernel=kernel, traffic=traffic, supports=supports, view="words", dtypes=("float32", "float16"), aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=pwpw_plan.TILES,
)  # fmt: skip
def launch(pair, config):
    shared_bytes = pwpw_plan.resources(pair.kernel_key, config).shared_bytes
    return Launch(launch_grid(pair, config), (config.threads,), shared_bytes=shared_bytes)
