"""PWPW: the first layer's outputs of some pixels are in shared memory, all of them, before the second layer begins.

A block has PIXELS neighbouring pixels of an image. Its threads compute one output of the first layer after the other,
straight from global memory, with bias and activation, into shared memory; after a barrier those of the second layer
from there. A pixel needs no neighbours: nothing is computed twice, and any map will do.

What it saves: the map between the layers is neither written nor read. What it wastes: a load or two for each product,
and both layers' filters are read for few pixels.

Traffic: C loads of x and w1 for each number between the layers, F1 loads of w2 for each output.
"""

import numpy as np
from numba import uint32

from dwlab.kernels.parts import storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, small_maps, warp_traffic
from dwlab.target import cuda

THREADS = 256
MOST = 48 * 1024 // 4  # float32 that a block's shared memory holds


def pixels(pair):
    """Pixels of a block: 32, or what shared memory holds of them."""
    return min(32, pair.first.H * pair.first.W, MOST // pair.first.F)


@by_shape
def kernel(pair):
    C, F, G, HW, PIXELS = pair.first.C, pair.first.F, pair.second.F, pair.first.H * pair.first.W, pixels(pair)
    first, second = storage.functions(pair.first), storage.functions(pair.second)
    (ZERO, _, KIND), TILE, NCHW = storage.sums(pair.first), PIXELS * F, pair.layout == "NCHW"

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        tile = cuda.shared.array(TILE, KIND)
        n, p0 = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.x * PIXELS)
        for i in range(uint32(cuda.threadIdx.x), uint32(TILE), uint32(THREADS)):
            f = uint32(i // PIXELS if NCHW else i % F)
            p = uint32(p0 + (i % PIXELS if NCHW else i // F))
            if p < HW:
                total = ZERO
                for c in range(C):
                    xi = uint32((n * C + c) * HW + p if NCHW else (n * HW + p) * C + c)
                    total = first.add(total, w1[uint32(f * C + c)], x[xi])
                tile[i] = first.close(total, b1, m1, r, f, f)
        cuda.syncthreads()
        for i in range(uint32(cuda.threadIdx.x), uint32(PIXELS * G), uint32(THREADS)):
            g = uint32(i // PIXELS if NCHW else i % G)
            m = uint32(i % PIXELS if NCHW else i // G)
            p = uint32(p0 + m)
            if p < HW:
                total = ZERO
                for f in range(F):
                    value = tile[uint32(f * PIXELS + m if NCHW else m * F + f)]
                    total = second.add(total, w2[uint32(g * F + f)], value)
                yi = uint32((n * G + g) * HW + p if NCHW else (n * HW + p) * G + g)
                y[yi] = second.close(total, b2, m2, r, g, yi)

    return kernel


def traffic(pair):
    C, F, G, HW, P = pair.first.C, pair.first.F, pair.second.F, pair.first.H * pair.first.W, pixels(pair)
    nchw, sector = pair.layout == "NCHW", 32 // pair.itemsize
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    n, p0 = (axis.reshape(-1, 1, 1) for axis in np.meshgrid(np.arange(pair.N), np.arange(0, HW, P), indexing="ij"))

    (vectors1, per_vector), (vectors2, _) = storage.vectors(pair.first), storage.vectors(pair.second)

    def count(elements, on, sector=sector):
        return warp_traffic(np.where(on, elements, -1).reshape(-1, THREADS), sector)

    def places(filters):
        i = np.arange(-(-filters * P // THREADS) * THREADS).reshape(1, -1, THREADS)
        p = p0 + (i % P if nchw else i // filters)
        return (i // P if nchw else i % filters) + 0 * p, p, (i < filters * P) & (p < HW)

    f, p, on = places(F)
    for c in range(C):
        load += count(f * C + c, on) + count((n * C + c) * HW + p if nchw else (n * HW + p) * C + c, on)
    load += vectors1 * count(f, on, per_vector)
    g, p, on = places(G)
    for f in range(F):
        load += count(g * F + f, on)
    out = count((n * G + g) * HW + p if nchw else (n * HW + p) * G + g, on)
    load += vectors2 * count(g, on, per_vector) + pair.second.residual * out
    return Traffic(*load, *(store + out))


@register(
    kernel=kernel, traffic=traffic, supports=lambda pair: pair.first.F <= MOST and small_maps(pair), view="flat",
    dtypes=("float32", "float16", "int8"),
)  # fmt: skip
def launch(pair):
    return Launch((-(-pair.first.H * pair.first.W // pixels(pair)), pair.N), (THREADS,))
