"""Shared: a block computes 16 x 16 outputs, and reads what they have in common once.

The outputs of a block are 16 rows by 16 columns of the matrix product: in NHWC 16 pixels and 16 filters, in NCHW 16
filters and 16 pixels of one image. For 16 channels at a time its threads load a tile of both operands to shared memory,
neighbouring lanes neighbouring elements; after a barrier each thread takes 16 products out of the two tiles. So each
element is read from global memory once for 16 outputs, a sixteenth of what the stage before reads.

A tile of the operand whose channels lie next to each other is transposed on the way, its rows 17 words apart: lanes
that are neighbours along the channels store to different banks. Two reads of shared memory still serve one
multiply-add, and those are what this stage waits for.

Traffic: x once for each 16 filters, w once for each 16 pixels.
"""

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import epilogue
from dwlab.kernels.parts.matrix_product import product
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

TILE = 16
PITCH = 17


@by_shape
def kernel(layer, images):
    one, finish = product(layer, images), epilogue.finish(layer)
    M, N, C, NCHW = one.M, one.N, one.C, one.nchw
    ACROSS = -(-N // TILE)
    BLOCKS = ACROSS * -(-M // TILE)  # of an image in NCHW, of all in NHWC

    @cuda.jit
    def kernel(x, w, b, unused, r, y):
        left = cuda.shared.array((TILE, PITCH), float32)  # k, row
        right = cuda.shared.array((TILE, PITCH), float32)  # k, column
        i, j = uint32(cuda.threadIdx.y), uint32(cuda.threadIdx.x)
        block = uint32(cuda.blockIdx.x)
        image = uint32(block // BLOCKS)
        m0 = uint32(block % BLOCKS // ACROSS * TILE)
        n0 = uint32(block % BLOCKS % ACROSS * TILE)
        m, n = uint32(m0 + i), uint32(n0 + j)
        total = float32(0)
        for k0 in range(0, C, TILE):
            k = uint32(k0 + j)
            p = q = float32(0)
            if m < M and k < C:
                p = float32(w[uint32(m * C + k)] if NCHW else x[uint32(m * C + k)])
            left[j, i] = p
            if NCHW:
                k = uint32(k0 + i)
                if n < N and k < C:
                    q = float32(x[uint32((image * C + k) * N + n)])
                right[i, j] = q
            else:
                if n0 + i < N and k < C:
                    q = float32(w[uint32((n0 + i) * C + k)])
                right[j, i] = q
            cuda.syncthreads()
            for k in range(TILE):
                total += left[k, i] * right[k, j]
            cuda.syncthreads()
        if m < M and n < N:
            at = uint32((image * M + m) * N + n)
            y[at] = finish(total, b, r, m if NCHW else n, at)

    return kernel


def traffic(layer):
    one, per_sector = product(layer), 32 // layer.itemsize
    i, j = np.divmod(np.arange(TILE * TILE), TILE)
    m, n, k = (np.arange(0, size, TILE)[:, None] for size in (one.M, one.N, one.C))

    def tiles(row, rows, column, columns):  # of a matrix, once
        row, column = row[:, None], column[None]
        inside = (row < rows) & (column < columns)
        return warp_traffic(np.where(inside, row * columns + column, -1).reshape(-1, TILE * TILE), per_sector)

    load = one.images * len(n) * tiles(m + i, one.M, k + j, one.C)
    store = np.zeros(2, np.int64)
    for image in range(one.images):
        if one.nchw:
            shifted = np.where(
                ((k + i)[:, None] < one.C) & ((n + j)[None] < one.N),
                (image * one.C + k + i)[:, None] * one.N + (n + j)[None],
                -1,
            )
            load += len(m) * warp_traffic(shifted.reshape(-1, TILE * TILE), per_sector)
        else:
            load += len(m) * tiles(n + i, one.N, k + j, one.C)
        inside = ((m + i)[:, None] < one.M) & ((n + j)[None] < one.N)
        at = np.where(inside, (image * one.M + m + i)[:, None] * one.N + (n + j)[None], -1).reshape(-1, TILE * TILE)
        store += warp_traffic(at, per_sector)
        channel = np.where(inside, (m + i)[:, None] if one.nchw else (n + j)[None], -1).reshape(-1, TILE * TILE)
        load += warp_traffic(channel, per_sector) * layer.bias
    return Traffic(*(load + store * layer.residual), *store)


@register(
    kernel=kernel, traffic=traffic, supports=small_indices, dtypes=("float32", "float16"), view="flat", lesson="29"
)
def launch(layer):
    one = product(layer)
    return Launch((one.images * -(-one.M // TILE) * -(-one.N // TILE),), (TILE, TILE))
