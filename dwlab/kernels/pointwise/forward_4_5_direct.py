"""Direct: operands from global memory straight to the registers of mma.sync: no shared memory, no barrier, no shuffle.

A layer of few channels is bound by its bytes, and what `tensor` does between memory and its products is time in which
few are on the way. None of it has to be. A sum has no order: which channels meet in an mma is free, as long as x and w
agree. So a lane reads 16 bytes of a row of x, and 16 of a filter: its words of two products (split_k.py). Nor has a
product's column to be the filter of its number: lane t of four gets columns 2t and 2t + 1 of each 16 x 8 sums, and the
columns of four products are dealt so that these are filters 8t to 8t + 7: 16 bytes of a pixel's row in y.

A warp's filters stay in its registers for a few tiles of pixels, and the compiler, which unrolls these, reads the next
before the products of one. So bytes are on the way all the time. To read ahead by hand was slower, in more registers.

NHWC. Traffic: x once for each warp_n filters, from the L1 cache but for the first; w once for each warp; y once.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import constants, epilogue, pieces
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import zeros
from dwlab.kernels.pointwise.direct_tiles import TILES, blocks, chunks, spans, supports
from dwlab.kernels.pointwise.split_k import CHUNK, loads, products
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.target import cuda


def load_filters(layer, N):
    """load(right, more, w, b, n0, lane): a warp's N filters from n0 on, and their biases, as columns are dealt."""
    GROUPS, WORDS, EIGHTS, BIAS = chunks(layer), product(layer).words, N // 8, layer.bias

    def load(first, size):  # of `size` products whose columns are dealt together
        read = pieces.read(size)

        @cuda.jit(device=True, forceinline=True)
        def load(right, more, w, b, n0, lane):
            column = uint32(n0 + lane // uint32(8) * uint32(2 * size) + lane // uint32(4) % uint32(2))
            for j in range(size):
                for q in range(GROUPS):
                    k, e = uint32(uint32(CHUNK * q) + lane % uint32(4) * uint32(4)), 4 * (q * EIGHTS + first + j)
                    right[e] = right[e + 1] = right[e + 2] = right[e + 3] = float32(0)
                    if WORDS % CHUNK == 0 or k < uint32(WORDS):
                        at = uint32((column + uint32(8 * first + 2 * j)) * uint32(WORDS) + k)
                        right[e], right[e + 1], right[e + 2], right[e + 3] = ptx.load4(w, at)
            if BIAS:
                read(more, first, b, uint32(n0 // uint32(2) + uint32(4 * first) + lane % uint32(4) * uint32(size)))

        return load

    return in_sequence([load(*span) for span in spans(N)])


def store_outputs(layer, one, M, N):
    """store(acc, more, y, r, m, n0, lane): a warp's outputs, M pixels from m on and N filters from n0 on."""
    LIMIT, F, EIGHTS, BIAS, RESIDUAL = one.M, one.N, N // 8, layer.bias, layer.residual
    activate, unpack, pack = epilogue.activate(layer.activation), pieces.UNPACK[layer.dtype], pieces.PACK[layer.dtype]

    def store(i, h, first, size):  # of 8 rows
        read = pieces.read(size)

        @cuda.jit(device=True, forceinline=True)
        def store(acc, more, y, r, m, n0, lane):
            words, added = cuda.local.array(size, float32), cuda.local.array(size, float32)
            m = uint32(m + uint32(16 * i + 8 * h) + lane // uint32(4))
            n = uint32(n0 + uint32(8 * first) + lane % uint32(4) * uint32(2 * size))
            at = uint32((m * uint32(F) + n) // uint32(2))
            if m < uint32(LIMIT):
                if RESIDUAL:
                    read(added, 0, r, at)
                for j in range(size):
                    c = 4 * (i * EIGHTS + first + j) + 2 * h
                    v0, v1 = acc[c], acc[c + 1]
                    if BIAS:
                        b0, b1 = unpack(more[first + j])
                        v0, v1 = v0 + b0, v1 + b1
                    v0, v1 = activate(v0), activate(v1)
                    if RESIDUAL:
                        r0, r1 = unpack(added[j])
                        v0, v1 = v0 + r0, v1 + r1
                    words[j] = pack(v0, v1)
                if size == 4:
                    ptx.store4(y, at, words[0], words[1], words[2], words[3])
                elif size == 2:
                    ptx.store2(y, at, words[0], words[1])
                else:
                    y[at] = words[0]

        return store

    return in_sequence([store(i, h, *span) for i in range(M // 16) for h in range(2) for span in spans(N)])


@by_shape
def kernel(layer, images, config):
    one, tile, M, N = product(layer, images), constants.of(config), config.warp_m, config.warp_n
    LEFT, RIGHT, SIZE, EIGHTS = chunks(layer) * M // 2, chunks(layer) * N // 2, M * N // 32, N // 8
    load = constants.of(x=loads(M, one.M, one.words, chunks(layer), 1), w=load_filters(layer, N))
    compute, zero, store = products(layer.dtype, M, N, chunks(layer)), zeros(SIZE), store_outputs(layer, one, M, N)

    @cuda.jit
    def kernel(x, w, b, unused, r, y):
        acc, more = cuda.local.array(SIZE, float32), cuda.local.array(EIGHTS, float32)
        left, right = cuda.local.array(LEFT, float32), cuda.local.array(RIGHT, float32)
        lane, warp = uint32(cuda.threadIdx.x % 32), uint32(cuda.threadIdx.x // 32)
        n0 = uint32(warp % uint32(tile.warps_n) * uint32(N))
        block = uint32(cuda.blockIdx.x) * uint32(tile.block_m * tile.groups)
        m = uint32(block + warp // uint32(tile.warps_n) * uint32(M))
        load.w(right, more, w, b, n0, lane)
        ptx.grid_dependency_wait()  # filters may come before the map is there
        for group in range(tile.groups):
            load.x(left, x, uint32(m + uint32(group * tile.block_m)), uint32(0), lane)
            cuda.syncwarp()  # the compiler would move loads down to where they are used, and wait for each
            zero(acc)
            compute(acc, left, right)
            store(acc, more, y, r, uint32(m + uint32(group * tile.block_m)), n0, lane)

    return kernel


def traffic(layer, config):
    one, lane, N = product(layer), np.arange(32), config.warp_n
    count = blocks(layer, layer.N, config)
    k = CHUNK * np.arange(chunks(layer))[:, None] + lane % 4 * 4
    m = np.arange(0, count * config.block_m * config.groups, 8)[:, None] + lane // 4
    x = np.minimum(m, one.M - 1)[:, None] * one.words + np.minimum(k, one.words - 4)
    load, store = config.warps_n * warp_traffic(x.reshape(-1, 32) // 4, 2), np.zeros(2, np.int64)
    for n0 in range(0, one.N, N):
        for first, size in spans(N):
            column = n0 + 8 * first + lane // 8 * 2 * size + lane // 4 % 2 + 2 * np.arange(size)[:, None, None]
            w = np.where(k < one.words, column * one.words + k, -4).reshape(-1, 32) // 4
            n = n0 + 8 * first + lane % 4 * 2 * size
            of_warp = warp_traffic(w, 2) + layer.bias * warp_traffic(n // (2 * size), 8 // size)
            y = warp_traffic(np.where(m < one.M, m * one.N + n, -2 * size) // (2 * size), 8 // size)
            load, store = load + count * config.warps_m * of_warp + layer.residual * y, store + y
    return Traffic(*load, *store)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16", "bfloat16"), view="words", aligned=16,
    needs=("mma_f16",), tiles=TILES,
)  # fmt: skip
def launch(layer, config):
    return Launch((blocks(layer, layer.N, config),), (config.threads,))
