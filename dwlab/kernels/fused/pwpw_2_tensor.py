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
from dwlab.kernels.parts import mma_tf32, warp_tile
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.target import cuda


@by_shape
def kernel(pair, config):
    each, layout = pwdw_tiles.per_word(pair.dtype), pwpw_plan.layout_of(pair, config)
    C, F, G = pair.first.C // each, pair.first.F, pair.second.F
    STAGE, DEPTH1, DEPTH2, WARPS_P = layout.stage_words, config.inner_k, config.block_k, config.warps_m
    PASSES, CHUNKS1, CHUNKS2, SPAN = layout.passes, layout.chunks1, layout.chunks2, config.groups
    PIXELS, WARP_P, WARP_1, WARP_2 = config.block_m, config.warp_m, config.inner_n // config.warps_n, config.warp_n
    GROUP1, GROUP2, T, X_WORDS = config.inner_n, config.block_n, config.threads, layout.x_words
    X_PITCH, W1_PITCH, W2_PITCH, PITCH = layout.x_pitch, layout.w1_pitch, layout.w2_pitch, layout.pitch
    INNER_AT, BIAS_AT, BIAS, FW = layout.inner_at, layout.bias_at, pair.first.bias, F // each
    first, second = pwpw_plan.products_of(pair, config)
    SIZE1, zero1, add1, SIZE2, zero2, add2 = first.size, first.zero, first.add, second.size, second.zero, second.add
    load_x, load_w1, load_w2 = pwpw_plan.loads(pair, config)
    store1 = warp_tile.each(first, pwpw_epilogue.store_between(pair, config))
    store2, MOST = pwpw_epilogue.store(pair, config), pwdw_tiles.register_limit(T)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc1 = cuda.local.array(SIZE1, float32)
        acc2 = cuda.local.array(SIZE2, float32)
        thread = uint32(cuda.threadIdx.x)
        lane, warp = uint32(thread % uint32(32)), uint32(thread // uint32(32))
        pw = uint32(uint32(WARP_P) * (warp % uint32(WARPS_P)))
        fw = uint32(warp // uint32(WARPS_P))
        p0 = uint32(uint32(cuda.blockIdx.y) * uint32(PIXELS))  # of all images
        total = uint32(uint32(y.size) // uint32(G // each))
        pixels = min(uint32(PIXELS), uint32(total - p0))
        start = uint32(p0 * uint32(C))
        if BIAS:
            i = thread
            while i < PASSES * GROUP1 // each:
                value = float32(0)
                if i < FW:
                    value = b1[i]
                shared[uint32(uint32(BIAS_AT) + i)] = value
                i = uint32(i + uint32(T))
        own_x = uint32(pw * uint32(X_PITCH))
        own_w1 = uint32(uint32(X_WORDS) + fw * uint32(WARP_1 * W1_PITCH))
        for iteration in range(PASSES):
            f0 = uint32(uint32(iteration) * uint32(GROUP1))
            load_w1(shared, uint32(X_WORDS), w1, f0, uint32(0))
            ptx.grid_dependency_wait()  # filters may come before the map is there
            load_x(shared, uint32(0), x, start, pixels, uint32(0))
            ptx.commit()
            zero1(acc1)
            for chunk in range(CHUNKS1):  # two places, by hand: as a part of its own the loop took a register more
                here = uint32(uint32(chunk % 2) * uint32(STAGE))
                if chunk + 1 < CHUNKS1:
                    there = uint32(uint32((chunk + 1) % 2) * uint32(STAGE))
                    c0 = uint32(uint32(chunk + 1) * uint32(DEPTH1))
                    load_x(shared, there, x, start, pixels, c0)
                    load_w1(shared, uint32(there + uint32(X_WORDS)), w1, f0, c0)
                ptx.commit()
                ptx.wait(1)
                cuda.syncthreads()
                add1(acc1, shared, uint32(here + own_x), shared, uint32(here + own_w1), lane)
                cuda.syncthreads()
            store1(acc1, lane, shared, shared, shared, pw, uint32(f0 + fw * uint32(WARP_1)))
        own_inner = uint32(uint32(INNER_AT) + pw * uint32(PITCH))
        own_w2 = uint32(fw * uint32(WARP_2 * W2_PITCH))
        for iteration in range(SPAN):
            f0 = uint32((uint32(cuda.blockIdx.x) * uint32(SPAN) + uint32(iteration)) * uint32(GROUP2))
            load_w2(shared, uint32(0), w2, f0, uint32(0))
            ptx.commit()
            zero2(acc2)
            for chunk in range(CHUNKS2):
                here = uint32(uint32(chunk % 2) * uint32(STAGE))
                c0 = uint32(uint32(chunk) * uint32(DEPTH2))
                if chunk + 1 < CHUNKS2:
                    there = uint32(uint32((chunk + 1) % 2) * uint32(STAGE))
                    load_w2(shared, there, w2, f0, uint32(c0 + uint32(DEPTH2)))
                ptx.commit()
                ptx.wait(1)
                cuda.syncthreads()
                add2(acc2, shared, uint32(own_inner + c0), shared, uint32(here + own_w2), lane)
                cuda.syncthreads()
            store2(acc2, lane, y, b2, r, uint32(p0 + pw), uint32(f0 + fw * uint32(WARP_2)))

    return kernel


def traffic(pair, config):
    each, layout, T = pwdw_tiles.per_word(pair.dtype), pwpw_plan.layout_of(pair, config), config.threads
    C, F, G, (blocks_f, blocks_p, _) = pair.first.C // each, pair.first.F, pair.second.F, launch_grid(pair, config)
    every, total = np.zeros(2, np.int64), pair.N * pair.first.H * pair.first.W
    for f0 in range(0, layout.passes * config.inner_n, config.inner_n):
        every += row_loads.filter_traffic(C, F, config.inner_n, config.inner_k, T, f0)
    i = np.arange(-(-layout.passes * config.inner_n // each // T) * T)
    every += pair.first.bias * warp_traffic(np.where(i < F // each, i, -1).reshape(-1, T))
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
    return max(np.prod(pair.shapes()[name]) for name in "xy") < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, view="words", dtypes=("float32", "float16"), aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=pwpw_plan.TILES, lesson="32",
)  # fmt: skip
def launch(pair, config):
    shared_bytes = pwpw_plan.resources(pair.kernel_key, config).shared_bytes
    return Launch(launch_grid(pair, config), (config.threads,), shared_bytes=shared_bytes)
