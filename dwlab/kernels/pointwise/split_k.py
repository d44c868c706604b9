"""Parts of a warp of pointwise/forward/split: loads straight to the tensor cores' registers, and products of them.

And its tiles: which are worth a look for a layer, what a block takes, what a launch costs. NHWC.
"""

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.fragments import MMA
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.mma_tf32 import upper
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.tiling.config import Resources, TileConfig, Tiles
from dwlab.kernels.tiling.cost import FLOAT32, Rates, Work
from dwlab.target import cuda

CHUNK = 16  # words of a row that a warp takes at a time, 4 a lane: 2 products
SHAPES = ((16, 16), (16, 32), (32, 16), (32, 32))  # of a block's tile
WARPS = (4, 8, 16)
REGISTERS = 128  # of a thread, at most: a multiprocessor has as many for 16 warps


def loads(lines, limit, words, batch, warps):
    """load(to, source, first, chunk, lane): starts loads of `lines` lines of a matrix, `batch` chunks, stride `warps`.

    to: 4 words of lines g, g + 8, … from line `first` on, of each chunk, g = lane // 4. The matrix has `limit` lines
    of so many words: beyond the last line the last one is loaded, beyond the words are 0.
    """
    EIGHTS, LAST = lines // 8, limit - 1
    BEYOND = -(-words // CHUNK) % (warps * batch) != 0 or words % CHUNK != 0

    @cuda.jit(device=True, forceinline=True)
    def four(to, at, source, line, k):
        v0, v1, v2, v3 = ptx.load4(source, uint32(line * uint32(words) + min(k, uint32(words - 4))))
        if BEYOND and k >= uint32(words):
            v0 = v1 = v2 = v3 = float32(0)
        to[at], to[at + 1], to[at + 2], to[at + 3] = v0, v1, v2, v3

    @cuda.jit(device=True, forceinline=True)
    def load(to, source, first, chunk, lane):
        g, t = uint32(lane // uint32(4)), uint32(lane % uint32(4) * uint32(4))
        for u in range(batch):
            k = uint32((chunk + uint32(u * warps)) * uint32(CHUNK) + t)
            for i in range(EIGHTS):
                line = min(uint32(first + g + uint32(8 * i)), uint32(LAST))
                four(to, 4 * (u * EIGHTS + i), source, line, k)

    return load


def products(dtype, M, N, BATCH):
    """compute(acc, left, right): the products of BATCH chunks, as `loads` has them: left rows, right columns."""
    ROWS, COLUMNS, FLOAT32, mma = M // 8, N // 8, dtype == "float32", MMA[dtype]

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
                zero = float32(0)  # an mma cuts long sums off: see parts/mma_tf32.py
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
    return in_sequence([step(*one) for one in every])


def batch(M, N, W, words):
    """Chunks that a warp loads at a time: as many as some 64 registers hold, and as there are for one of W warps."""
    return max(1, min(128 // (M + N), -(-words // (CHUNK * W))))


def config_of(layer, M, N, W):
    """The tile of blocks of M x N whose channels W warps share."""
    return TileConfig(M, N, CHUNK, warps_k=W, unroll=batch(M, N, W, product(layer).words))


def configs(layer, images, gpu):
    return [config_of(layer, *shape, W) for shape in SHAPES for W in WARPS if W * shape[0] * shape[1] <= 12288]


def resources(layer, config):
    return Resources(config.threads, REGISTERS, 4 * config.warps_k * config.block_m * config.block_n)


def grid(layer, images, config):
    """Blocks."""
    one = product(layer, images)
    return one.images * -(-one.M // config.block_m) * -(-one.N // config.block_n)


def work(layer, images, config):
    M, N, W, words = config.block_m, config.block_n, config.warps_k, product(layer).words
    products = 2 * M * N * layer.C * (FLOAT32 if layer.dtype == "float32" else 1)
    chunks = -(-words // (CHUNK * W * config.unroll))
    return Work(grid(layer, images, config), products, (M + N) * words * 4, written=4 * W * M * N, chunks=chunks)


TILES = Tiles(configs, resources, work, Rates(products=2460, read=58, written=123, start=590, chunk=1260))
