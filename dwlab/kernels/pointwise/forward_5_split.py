"""Split: the warps of a block share the sums, straight from global memory into the tensor cores' registers.

A layer of 7 x 7 maps and one image has 49 pixels: few tiles, and long sums. In the stage before a block goes through
such a sum chunk by chunk, a barrier and a memory's latency each, on the few multiprocessors that have a block. Here a
block's tile is small, so that there are more of them, and its warps divide the channels: each computes the whole tile
over its own share, and at the end they add up in shared memory. No warp waits for another until then.

A warp has no neighbours to share operands with, so they need not pass through shared memory. mma wants 8 (or 16) terms
of a row across 4 lanes, each a word or two at places far apart; but which channel stands at which place of a sum does
not matter, if both operands agree. So each lane loads 16 bytes, neighbouring channels of one row, and these are its
words of two instructions. All loads of several chunks are on their way before the first product.

Traffic: x once for each WN filters and w once for each WM pixels (in NCHW the other way round), y once.
"""

import numpy as np
from numba import float32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, ptx, tiles
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import Cost, share, waves
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import small_indices

CHUNK = 16  # words of a row that a warp takes at a time, 4 a lane: 2 products
SHAPES = ((16, 16), (16, 32), (32, 16), (32, 32))  # of a block's tile
WARPS = (4, 8, 16)
TYPES = ("float32", "float16", "bfloat16")
REGISTERS = 128  # of a thread, at most: a multiprocessor has as many for 16 warps


@by_shape
def kernel(layer, images, config):
    one, (M, N, W) = blocks.product(layer, images), (config.block_m, config.block_n, config.warps_k)
    BATCH, CHUNKS = config.unroll, -(-one.words // CHUNK)
    DOWN, ACROSS = -(-one.M // M), -(-one.N // N)
    LEFT, RIGHT, SIZE = BATCH * M // 2, BATCH * N // 2, M * N // 32
    SHARED, PARTS = W * M * N, SIZE // 4
    MOST = REGISTERS if W == 16 else None
    ask_x, ask_w = asks(one, M, N, W, BATCH)
    compute = products(layer.dtype, M, N, BATCH)
    store = blocks.store_tile(layer, one, tiles.fragment(), DOWN * M)

    @cuda.jit(max_registers=MOST)
    def kernel(x, w, b, unused, r, y):
        shared = cuda.shared.array(SHARED, float32, 16)
        acc = cuda.local.array(SIZE, float32)
        left = cuda.local.array(LEFT, float32)
        right = cuda.local.array(RIGHT, float32)
        lane, warp, block = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y), uint32(cuda.blockIdx.x)
        image, down, across = uint32(block // (ACROSS * DOWN)), uint32(block // ACROSS % DOWN), uint32(block % ACROSS)
        for i in range(SIZE):
            acc[i] = float32(0)
        chunk = warp
        if chunk < CHUNKS:
            ask_w(left, right, w, uint32(down * M), uint32(across * N), chunk, lane)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        while chunk < CHUNKS:
            ask_x(left, right, x, image, uint32(down * M), uint32(across * N), chunk, lane)
            cuda.syncwarp()  # the compiler would move loads down to where they are used, and wait for each
            compute(acc, left, right)
            chunk = uint32(chunk + BATCH * W)
            if chunk < CHUNKS:
                ask_w(left, right, w, uint32(down * M), uint32(across * N), chunk, lane)
        for i in range(SIZE):
            shared[uint32((warp * SIZE + i) * 32 + lane)] = acc[i]
        cuda.syncthreads()
        part = warp  # of the tile: 16 x 8 sums
        while part < PARTS:
            for i in range(4):
                acc[i] = float32(0)
            for other in range(W):
                for i in range(4):
                    acc[i] += shared[uint32((other * SIZE + part * 4 + i) * 32 + lane)]
            m0 = uint32((image * DOWN + down) * M + part // (N // 8) * 16)
            store(acc, lane, y, b, r, m0, uint32(across * N + part % (N // 8) * 8))
            part = uint32(part + W)

    return kernel


def asks(one, M, N, W, BATCH):
    """ask_x(left, right, x, image, m0, n0, chunk, lane), ask_w(left, right, w, m0, n0, chunk, lane): loads of BATCH
    chunks, W chunks apart.

    left: 4 words of rows g, g + 8, … of each chunk; right: 4 words of columns g, g + 8, …. What lies beyond C is 0.
    """
    ROWS, COLUMNS, WORDS, WHOLE = M // 8, N // 8, one.words, one.words % CHUNK == 0
    LAST_M, LAST_N, SPAN, NCHW = one.M - 1, one.N - 1, one.N, one.nchw
    BEYOND = -(-one.words // CHUNK) % (W * BATCH) != 0 or not WHOLE

    @cuda.jit(device=True, forceinline=True)
    def four(to, at, source, line, k):
        v0, v1, v2, v3 = ptx.load4(source, uint32(line * uint32(WORDS) + min(k, uint32(WORDS - 4))))
        if BEYOND and k >= uint32(WORDS):
            v0 = v1 = v2 = v3 = float32(0)
        to[at], to[at + 1], to[at + 2], to[at + 3] = v0, v1, v2, v3

    @cuda.jit(device=True, forceinline=True)
    def ask_left(left, source, m0, chunk, lane):
        g, t = uint32(lane // uint32(4)), uint32(lane % uint32(4) * uint32(4))
        for u in range(BATCH):
            k = uint32((chunk + uint32(u * W)) * uint32(CHUNK) + t)
            for i in range(ROWS):
                m = min(uint32(m0 + g + uint32(8 * i)), uint32(LAST_M))
                four(left, 4 * (u * ROWS + i), source, m, k)

    @cuda.jit(device=True, forceinline=True)
    def ask_right(right, source, image, n0, chunk, lane):
        g, t = uint32(lane // uint32(4)), uint32(lane % uint32(4) * uint32(4))
        for u in range(BATCH):
            k = uint32((chunk + uint32(u * W)) * uint32(CHUNK) + t)
            for j in range(COLUMNS):
                n = min(uint32(n0 + g + uint32(8 * j)), uint32(LAST_N))
                if NCHW:
                    first = uint32((image * uint32(WORDS) + min(k, uint32(WORDS - 4))) * uint32(SPAN) + n)
                    for e in range(4):
                        value = source[uint32(first + uint32(e * SPAN))]
                        if BEYOND and k >= uint32(WORDS):
                            value = float32(0)
                        right[4 * (u * COLUMNS + j) + e] = value
                else:
                    four(right, 4 * (u * COLUMNS + j), source, n, k)

    @cuda.jit(device=True, forceinline=True)
    def ask_x(left, right, x, image, m0, n0, chunk, lane):
        if NCHW:
            ask_right(right, x, image, n0, chunk, lane)
        else:
            ask_left(left, x, m0, chunk, lane)

    @cuda.jit(device=True, forceinline=True)
    def ask_w(left, right, w, m0, n0, chunk, lane):
        if NCHW:
            ask_left(left, w, m0, chunk, lane)
        else:
            ask_right(right, w, uint32(0), n0, chunk, lane)

    return ask_x, ask_w


def products(dtype, M, N, BATCH):
    """compute(acc, left, right): the products of BATCH chunks, as `asks` leaves them."""
    ROWS, COLUMNS, FLOAT32 = M // 8, N // 8, dtype == "float32"
    mma = {"float32": ptx.mma_tf32, "float16": ptx.mma_f16, "bfloat16": ptx.mma_bf16}[dtype]
    upper = tiles.upper

    def step(u, i, j, s):  # chunk, 16 rows, 8 columns; the first or the second two words of each lane
        c, a, o = 4 * (i * COLUMNS + j), 4 * (u * ROWS + 2 * i) + 2 * s, 4 * (u * ROWS + 2 * i + 1) + 2 * s
        b = 4 * (u * COLUMNS + j) + 2 * s

        if FLOAT32:

            @cuda.jit(device=True, forceinline=True)
            def step(acc, left, right):
                a0, a1, a2, a3 = upper(left[a]), upper(left[o]), upper(left[a + 1]), upper(left[o + 1])
                d0, d1, d2, d3 = left[a] - a0, left[o] - a1, left[a + 1] - a2, left[o + 1] - a3
                b0, b1 = upper(right[b]), upper(right[b + 1])
                e0, e1 = right[b] - b0, right[b + 1] - b1
                zero = float32(0)  # an mma cuts long sums off: see dwlab.kernels.parts.tiles
                v0, v1, v2, v3 = mma(zero, zero, zero, zero, d0, d1, d2, d3, b0, b1)
                v0, v1, v2, v3 = mma(v0, v1, v2, v3, a0, a1, a2, a3, e0, e1)
                v0, v1, v2, v3 = mma(v0, v1, v2, v3, a0, a1, a2, a3, b0, b1)
                acc[c] += v0
                acc[c + 1] += v1
                acc[c + 2] += v2
                acc[c + 3] += v3

        else:

            @cuda.jit(device=True, forceinline=True)
            def step(acc, left, right):
                a0, a1, a2, a3 = left[a], left[o], left[a + 1], left[o + 1]
                acc[c], acc[c + 1], acc[c + 2], acc[c + 3] = mma(
                    acc[c], acc[c + 1], acc[c + 2], acc[c + 3], a0, a1, a2, a3, right[b], right[b + 1]
                )

        return step

    every = [(u, i, j, s) for u in range(BATCH) for s in range(2) for i in range(M // 16) for j in range(COLUMNS)]
    return in_turn([step(*one) for one in every])


def batch(M, N, W, words):
    """Chunks that a warp asks for at a time: as many as some 64 registers hold, and as there are for one of W warps."""
    return max(1, min(128 // (M + N), -(-words // (CHUNK * W))))


def config_of(layer, M, N, W):
    """The tile of blocks of M x N whose channels W warps share."""
    return TileConfig(M, N, CHUNK, warps_k=W, unroll=batch(M, N, W, blocks.product(layer).words))


def configs(layer, images, gpu):
    return [config_of(layer, *shape, W) for shape in SHAPES for W in WARPS if W * shape[0] * shape[1] <= 12288]


def resources(layer, config):
    return Resources(config.threads, REGISTERS, 4 * config.warps_k * config.block_m * config.block_n)


def grid(layer, images, config):
    """Blocks."""
    one = blocks.product(layer, images)
    return one.images * -(-one.M // config.block_m) * -(-one.N // config.block_n)


def cost(layer, images, config, gpu):
    """In ns: loads one after another, and bytes or products."""
    M, N, W, words = config.block_m, config.block_n, config.warps_k, blocks.product(layer).words
    count = grid(layer, images, config)
    rounds = -(-words // (CHUNK * W * config.unroll))
    here = share(count, gpu)
    return Cost(
        {"latency": waves(count, gpu.blocks_per_sm(resources(layer, config)), gpu) * rounds * 800, "epilogue": W * 20},
        {"L2": here * (M + N) * words * 4 / 50, "tensor cores": here * M * N * layer.C / 500},
    )


def traffic(layer, config):
    one, M, N, W = blocks.product(layer), config.block_m, config.block_n, config.warps_k
    count = BATCH = config.unroll
    chunks, lane = -(-one.words // CHUNK), np.arange(32)
    k, g = np.zeros((0, 32), np.int64), lane // 4
    for warp in range(W):
        for chunk in range(warp, chunks, BATCH * W):
            at = (chunk + W * np.arange(count))[:, None] * CHUNK + lane % 4 * 4
            k = np.concatenate([k, np.minimum(at, one.words - 4)])

    def rows(first, limit):  # of all accesses to 8 rows, lane by lane
        return np.minimum(first[:, None] + g, limit - 1)[:, None]

    down, across = -(-one.M // M), -(-one.N // N)
    m, n = rows(np.arange(0, down * M, 8), one.M), rows(np.arange(0, across * N, 8), one.N)
    load = one.images * across * warp_traffic(((m * one.words + k) // 4).reshape(-1, 32), 2)
    if one.nchw:
        for image in range(one.images):
            for e in range(4):
                load = load + down * warp_traffic(((image * one.C + k + e) * one.N + n).reshape(-1, 32))
    else:
        load = load + down * warp_traffic(((n * one.words + k) // 4).reshape(-1, 32), 2)
    last = blocks.finished(layer, tiles.fragment())
    return Traffic(load[0] + last.load_requests, load[1] + last.load_sectors, last.store_requests, last.store_sectors)


def supports(layer):
    whole = layer.C % 4 == 0 if layer.dtype == "float32" else layer.C % 8 == 0 and layer.F % 2 == 0
    there = layer.dtype == "float32" or layer.layout == "NHWC"
    return layer.C >= 16 and whole and there and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=TYPES, view="words", aligned=16, needs=("mma_f16",),
    tiles=Tiles(configs, resources, cost),
)  # fmt: skip
def launch(layer, config):
    return Launch((grid(layer, layer.N, config),), (32, config.warps_k))
