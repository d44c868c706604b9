"""Dp4a: int8 in shared tiles, four channels of a product in one instruction; a thread computes 4 x 4 outputs.

In NHWC the channels of a pixel lie next to each other, and so do those of a filter: a word is four of them, of both. An
instruction, dp4a, multiplies the four bytes of a word with those of another and adds all products to an int32. A block
computes 64 pixels x 64 filters, and takes 64 channels of both at a time, 16 words, to shared memory; there the words of
neighbouring pixels, and of every fourth filter, lie next to each other. For each word of channels a thread reads eight
words and does 16 dp4a, 64 multiply-adds.

    sum (x - zero_x) w = sum x w - zero_x sum w

so the products are of the bytes as they are, and a dp4a with four ones adds up the filter. In the end each sum becomes
int8 again: bias, factor of its filter, rounding, zero_y, limits (`requantisation.requantise`). A thread's filters are
neighbours: their four bytes are stored as a word.

Traffic: x once for each 64 filters, w once for each 64 pixels.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import int8_words, ptx_int8, ptx_memory, requantisation
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

SIDE, TILE = 16, 64  # threads and outputs of a block, in each direction
PITCH = TILE + 1
ONES = 0x01010101  # four int8


def sizes(layer, images):
    """Rows and columns of Y, pixels and filters, and words of a sum's channels."""
    return images * layer.H * layer.W, layer.F, layer.C // 4


@by_shape
def kernel(layer, images):
    ZERO, BIAS, ADDED, requantise = layer.zero_x, layer.bias, layer.residual, requantisation.requantise(layer, True)
    M, N, WORDS = sizes(layer, images)
    ACROSS = -(-N // TILE)

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        left = cuda.shared.array((SIDE, PITCH), float32)  # word of channels, pixel
        right = cuda.shared.array((SIDE, PITCH), float32)  # word of channels, filter: first every fourth one
        sums, of_w, total = cuda.local.array(16, int32), cuda.local.array(4, int32), cuda.local.array(4, int32)
        p, q = cuda.local.array(4, int32), cuda.local.array(4, int32)
        bias, factor = cuda.local.array(4, int32), cuda.local.array(4, float32)
        i, j = uint32(cuda.threadIdx.y), uint32(cuda.threadIdx.x)
        m0, f0 = uint32(uint32(cuda.blockIdx.x) // ACROSS * TILE), uint32(uint32(cuda.blockIdx.x) % ACROSS * TILE)
        for k in range(16):
            sums[k] = int32(0)
        for k in range(4):
            of_w[k] = int32(0)
        for k0 in range(0, WORDS, SIDE):
            k = uint32(k0 + j)
            for iteration in range(4):
                line = uint32(i + iteration * SIDE)
                of_x = of_f = float32(0)
                if m0 + line < M and k < WORDS:
                    of_x = x[uint32((m0 + line) * WORDS + k)]
                if f0 + line < N and k < WORDS:
                    of_f = w[uint32((f0 + line) * WORDS + k)]
                left[j, line] = of_x
                right[j, uint32(line % 4 * SIDE + line // 4)] = of_f
            cuda.syncthreads()
            for k in range(SIDE):
                for e in range(4):
                    p[e] = ptx_int8.word_of_float(left[k, uint32(i + e * SIDE)])
                    q[e] = ptx_int8.word_of_float(right[k, uint32(j + e * SIDE)])
                    of_w[e] = ptx_int8.dp4a(q[e], int32(ONES), of_w[e])
                for e in range(4):
                    for f in range(4):
                        sums[4 * e + f] = ptx_int8.dp4a(p[e], q[f], sums[4 * e + f])
            cuda.syncthreads()
        f = uint32(f0 + j * 4)
        if f < N:
            factor[0], factor[1], factor[2], factor[3] = ptx_memory.load4(m, f)
            if BIAS:
                b0, b1, b2, b3 = ptx_memory.load4(b, f)
                bias[0], bias[1] = ptx_int8.word_of_float(b0), ptx_int8.word_of_float(b1)
                bias[2], bias[3] = ptx_int8.word_of_float(b2), ptx_int8.word_of_float(b3)
            for e in range(4):
                if m0 + i + e * SIDE < M:
                    at, added = uint32(((m0 + i + e * SIDE) * N + f) // 4), int32(0)
                    if ADDED:
                        added = ptx_int8.word_of_float(r[at])
                    for k in range(4):
                        total[k] = int32(sums[4 * e + k] - int32(ZERO) * of_w[k])
                    y0 = requantise(total[0], bias, factor, 0, int8_words.byte(added, 0))
                    y1 = requantise(total[1], bias, factor, 1, int8_words.byte(added, 1))
                    y2 = requantise(total[2], bias, factor, 2, int8_words.byte(added, 2))
                    y3 = requantise(total[3], bias, factor, 3, int8_words.byte(added, 3))
                    y[at] = ptx_int8.float_of_word(ptx_int8.pack_s8(y0, y1, y2, y3))

    return kernel


def traffic(layer):
    M, N, words = sizes(layer, layer.N)
    i, j = np.divmod(np.arange(SIDE * SIDE), SIDE)
    m0, f0 = np.arange(0, M, TILE), np.arange(0, N, TILE)
    line = np.arange(TILE).reshape(4, SIDE)[:, i]  # in each turn of a block

    def brought(first, lines):  # all tiles of a matrix, once
        row = (first[:, None, None] + line)[:, None]
        k = np.arange(0, words, SIDE)[:, None, None] + j
        return warp_traffic(np.where((row < lines) & (k < words), row * words + k, -1).reshape(-1, SIDE * SIDE))

    f, m = f0[:, None] + 4 * j, (m0[:, None, None] + line)[:, :, None]
    load = len(f0) * brought(m0, M) + len(m0) * brought(f0, N)
    load += (1 + layer.bias) * len(m0) * warp_traffic(np.where(f < N, f // 4, -1), 2)
    at = np.where((f < N) & (m < M), (m * N + f) // 4, -1)
    store = warp_traffic(at.reshape(-1, SIDE * SIDE))
    return Traffic(*(load + layer.residual * store), *store)


def supports(layer):
    return layer.layout == "NHWC" and layer.C % 4 == 0 and layer.F % 4 == 0 and small_indices(layer)


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16,
    needs=("dp4a", "pack_s8"),
)  # fmt: skip
def launch(layer):
    M, N, _ = sizes(layer, layer.N)
    return Launch((-(-M // TILE) * -(-N // TILE),), (SIDE, SIDE))
