"""Both products on tensor cores: a block's pixels stay, the filters of one layer after the other pass by.

The stage before loads two numbers for each product. Here a block has up to some hundred pixels, a warp 16 or 32 of
them. x and the first layer's filters come to shared memory `depth` channels at a time, asynchronously, while those
before are multiplied; the sums get bias and activation and are laid down in shared memory as the second layer's
operand. Then the second layer's filters come, `span` groups of them, and their sums go from registers to y. A tensor
core leaves a lane two neighbouring sums here and two 8 columns on: stored like that, a warp's 16 bytes of a pixel in 16
bits would be half a sector, and asked for twice. So filters come to rows in an order that makes them neighbours
(pwdw_tiles.row_of_fours), and four lanes' stores fill whole sectors; a bias is read once for all of a warp's pixels.

Between the layers there may be few channels (linear, then expanded) or many (a feed-forward block): all of a block's
pixels have to fit. Where there are few pixels, blocks share the second layer's filters, and each computes the first
layer anew: fewer filters a block, more blocks, more work. Which plan is best is estimated (pwpw_plan.py).

Predicted, 144 -> 24 -> 144 channels of 56 x 56, 32 images: 116 MB move, 28 us at a copy's speed; 694 M multiply-adds,
thrice on tensor cores, some 15 us: bound by memory, below 40 us.
"""

import numpy as np
from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.fused import pwdw_tiles, pwpw_plan
from dwlab.kernels.parts import ptx, tiles
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Tiles
from dwlab.kernels.traffic import Traffic, warp_traffic


@by_shape
def kernel(pair, config):
    each, layout = pwdw_tiles.spread(pair.dtype), pwpw_plan.layout_of(pair, config)
    C, F, G = pair.first.C // each, pair.first.F, pair.second.F
    STAGE, DEPTH1, DEPTH2, WARPS_P = layout.stage_words, config.inner_k, config.block_k, config.warps_m
    PASSES, CHUNKS1, CHUNKS2, SPAN = layout.passes, layout.chunks1, layout.chunks2, config.groups
    PIXELS, WARP_P, WARP_1, WARP_2 = config.block_m, config.warp_m, config.inner_n // config.warps_n, config.warp_n
    GROUP1, GROUP2, T, X_WORDS = config.inner_n, config.block_n, config.threads, layout.x_words
    X_PITCH, W1_PITCH, W2_PITCH, PITCH = layout.x_pitch, layout.w1_pitch, layout.w2_pitch, layout.pitch
    INNER_AT, BIAS_AT, BIAS, FW = layout.inner_at, layout.bias_at, pair.first.bias, F // each
    first, second = pwpw_plan.products_of(pair, config)
    SIZE1, zero1, add1, SIZE2, zero2, add2 = first.size, first.zero, first.add, second.size, second.zero, second.add
    bring_x, bring_w1, bring_w2 = pwpw_plan.bring(pair, config)
    put1, store2 = tiles.each(first, pwpw_plan.lay_down(pair, config)), pwpw_plan.store(pair, config)
    MOST = pwdw_tiles.register_limit(T)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        shared = cuda.shared.array(0, float32, 16)
        acc1 = cuda.local.array(SIZE1, float32)
        acc2 = cuda.local.array(SIZE2, float32)
        thread = uint32(cuda.threadIdx.x)
        lane = uint32(thread % uint32(32))
        warp = uint32(thread // uint32(32))
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
        for turn in range(PASSES):
            f0 = uint32(uint32(turn) * uint32(GROUP1))
            bring_w1(shared, uint32(X_WORDS), w1, f0, uint32(0))
            ptx.grid_dependency_wait()  # filters may come before the map is there
            bring_x(shared, uint32(0), x, start, pixels, uint32(0))
            ptx.commit()
            zero1(acc1)
            for chunk in range(CHUNKS1):
                here = uint32(uint32(chunk % 2) * uint32(STAGE))
                if chunk + 1 < CHUNKS1:
                    there = uint32(uint32((chunk + 1) % 2) * uint32(STAGE))
                    c0 = uint32(uint32(chunk + 1) * uint32(DEPTH1))
                    bring_x(shared, there, x, start, pixels, c0)
                    bring_w1(shared, uint32(there + uint32(X_WORDS)), w1, f0, c0)
                ptx.commit()
                ptx.wait(1)
                cuda.syncthreads()
                add1(acc1, shared, uint32(here + own_x), shared, uint32(here + own_w1), lane)
                cuda.syncthreads()
            f = uint32(f0 + fw * uint32(WARP_1))
            put1(acc1, lane, shared, shared, shared, pw, f)
        own_inner = uint32(uint32(INNER_AT) + pw * uint32(PITCH))
        own_w2 = uint32(fw * uint32(WARP_2 * W2_PITCH))
        for turn in range(SPAN):
            f0 = uint32((uint32(cuda.blockIdx.x) * uint32(SPAN) + uint32(turn)) * uint32(GROUP2))
            bring_w2(shared, uint32(0), w2, f0, uint32(0))
            ptx.commit()
            zero2(acc2)
            for chunk in range(CHUNKS2):
                here = uint32(uint32(chunk % 2) * uint32(STAGE))
                c0 = uint32(uint32(chunk) * uint32(DEPTH2))
                if chunk + 1 < CHUNKS2:
                    there = uint32(uint32((chunk + 1) % 2) * uint32(STAGE))
                    bring_w2(shared, there, w2, f0, uint32(c0 + uint32(DEPTH2)))
                ptx.commit()
                ptx.wait(1)
                cuda.syncthreads()
                add2(acc2, shared, uint32(own_inner + c0), shared, uint32(here + own_w2), lane)
                cuda.syncthreads()
            f = uint32(f0 + fw * uint32(WARP_2))
            at = uint32(p0 + pw)
            store2(acc2, lane, y, b2, r, at, f)

    return kernel


def traffic(pair, config):
    each, layout = pwdw_tiles.spread(pair.dtype), pwpw_plan.layout_of(pair, config)
    C, F, G = pair.first.C // each, pair.first.F, pair.second.F
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    blocks_f, blocks_p, _ = launch_grid(pair, config)

    def turns(items):
        i = np.arange(-(-items // config.threads) * config.threads).reshape(-1, config.threads)
        return i, i < items

    def filters(first, group, depth, channels, most):
        """Of one stage after the other: a group's filters from `first` on."""
        piece, found = (1 if channels % 4 else 4), np.zeros(2, np.int64)
        i, on = turns(group * depth // piece)
        f, c = first + i // (depth // piece), piece * (i % (depth // piece))
        for c0 in range(0, channels, depth):
            there = on & (f < most) & (c0 + c < channels)
            found += warp_traffic(np.where(there, (f * channels + c0 + c) // piece, -1), 8 // piece)
        return found

    every = np.zeros(2, np.int64)
    for turn in range(layout.passes):
        every += filters(turn * config.inner_n, config.inner_n, config.inner_k, C, F)
    i, on = turns(layout.passes * config.inner_n // each)
    every += pair.first.bias * warp_traffic(np.where(on & (i < F // each), i, -1))
    load += every * blocks_f * blocks_p
    for f0 in range(0, blocks_f * config.groups * config.block_n, config.block_n):
        load += filters(f0, config.block_n, config.block_k, F // each, G) * blocks_p
    piece = 4 if pwpw_plan.aligned(pair) else 1
    across = config.inner_k // piece
    i, on = turns(across * config.block_m)
    c, m = piece * (i % across), i // across
    total = pair.N * pair.first.H * pair.first.W
    for p0, alike in runs(total, config.block_m):
        found = np.zeros(2, np.int64)
        for c0 in range(0, C, config.inner_k):
            k, p = c0 + c, p0 + m
            found += warp_traffic(np.where(on & (p < total) & (k < C), (p * C + k) // piece, -1), 8 // piece)
        load += alike * found * layout.passes * blocks_f
    # The second layer's sums, as the warps' lanes have them: `width` neighbouring ones of each row are stored at once
    second = pwpw_plan.products_of(pair, config)[1]
    width = 4 if pwpw_plan.fours(pair) else 1
    lane, sums = np.arange(32), np.arange(0, second.size, 2)[:, None]
    if width == 4:  # each second tile of 8 columns has the other two of four
        sums = sums[sums[:, 0] // 4 % 2 == 0]
    row, column = second.place(lane, sums)
    column = column + lane % 4 * (2 * (width == 4))
    per = 8 * each // width  # such pieces in a sector
    for f0 in range(0, blocks_f * config.groups * config.block_n, config.warp_n):
        if pair.second.bias:
            bias = np.zeros(2, np.int64)
            size = 4 if width == 4 else 1
            for f in bias_of_warp(f0, config.warp_n, lane, width):
                bias += warp_traffic(np.where(f < G, f // size, -1), 8 * each // size)
            load += blocks_p * config.warps_m * bias
        for p0, alike in runs(total, config.warp_m):
            p = p0 + row
            for step in range(2 if width == 1 else 1):
                f = f0 + column + step
                out = alike * warp_traffic(np.where((f < G) & (p < total), (p * G + f) // width, -1), per)
                store += out
                load += pair.second.residual * out
    return Traffic(*load, *store)


def runs(total, size):
    """(first, how many alike) of the runs that cover `total` pixels: all whole ones ask for the same, the last less.

    A run is a multiple of 16 pixels, whose words are whole sectors.
    """
    whole, rest = divmod(total, size)
    return [(0, whole)] * (whole > 0) + [(whole * size, 1)] * (rest > 0)


def bias_of_warp(f0, filters, lane, width):
    """The filters whose bias each lane of a warp reads, a row for each access; of four neighbours the first."""
    if width == 4:
        return [f0 + first + 4 * (lane % 4) for first in range(0, filters, 16)]
    return [f0 + first + 2 * (lane % 4) + e for first in range(0, filters, 8) for e in range(2)]


def launch_grid(pair, config):
    """Blocks in x (groups of the second layer's filters), y (pixels of all images) and z (one)."""
    pixels = pair.N * pair.first.H * pair.first.W
    return -(-pair.second.F // (config.groups * config.block_n)), -(-pixels // config.block_m), 1


def supports(pair):
    one, two = pair.first, pair.second
    if pair.layout != "NHWC" or pair.dtype != "float32" and (one.C % 8 or one.F % 8 or two.F % 8):
        return False
    return max(np.prod(pair.shapes()[name]) for name in "xy") < 2**31


@register(
    kernel=kernel, traffic=traffic, supports=supports, view="words", dtypes=("float32", "float16"), aligned=16,
    needs=("copy4_async", "mma_f16"), tiles=Tiles(pwpw_plan.configs, pwpw_plan.resources, pwpw_plan.cost),
)  # fmt: skip
def launch(pair, config):
    shared_bytes = pwpw_plan.resources(pair.kernel_key, config).shared_bytes
    return Launch(launch_grid(pair, config), (config.threads,), shared_bytes=shared_bytes)
