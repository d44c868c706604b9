"""PWDW: a block has the whole map of a few filters; what is between the layers stays in its shared memory.

The first layer's outputs for FILTERS filters and all pixels of an image are one tile, so that the depthwise layer finds
all its neighbours there: no halo, nothing computed twice. That needs small maps, 7 x 7 or 14 x 14. A thread computes
one output of the first layer after the other, straight from global memory, with bias and activation, and leaves it in
shared memory. After a barrier it does the same for the second layer, whose padding is what lies outside the tile.

What it should save: between the layers a map would be written and read, twice its bytes. What it still wastes: each of
the block's filters reads the whole x again, one load for a multiplication and an addition, and another for w1.

Traffic: C loads of x and of w1 for each pixel and filter between the layers; K x K loads of w2 for each output.
"""

import numpy as np
from numba import uint32

from dwlab.kernels.fused.shifted import shifted
from dwlab.kernels.parts import constants, storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, iterations, small_maps, warp_traffic
from dwlab.target import cuda

THREADS = 256
MOST = 48 * 1024 // 4  # float32 that a block's shared memory holds


def filters(pair):
    """Filters of a block: 8, or what shared memory holds of them; few, as there should be many blocks."""
    return min(8, pair.second.C, MOST // (pair.second.H * pair.second.W))


@by_shape
def kernel(pair):
    C, F, K, HW, FILTERS = pair.first.C, pair.second.C, pair.second.K, pair.second.H * pair.second.W, filters(pair)
    dw, NCHW = constants.of(pair.second, PQ=pair.second.P * pair.second.Q), pair.layout == "NCHW"
    first, second = storage.functions(pair.first), storage.functions(pair.second)
    (ZERO, _, KIND), TILE = storage.sums(pair.first), FILTERS * HW

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        tile = cuda.shared.array(TILE, KIND)
        n, f0 = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.x * FILTERS)
        mine = min(uint32(FILTERS), uint32(uint32(F) - f0))  # filters of this block
        for i in range(uint32(cuda.threadIdx.x), uint32(mine * HW), uint32(THREADS)):
            at = uint32(i)
            f = uint32(f0 + (at // HW if NCHW else at % mine))
            m = uint32(at % HW if NCHW else at // mine)  # pixel
            total = ZERO
            for c in range(C):
                xi = uint32((n * C + c) * HW + m if NCHW else (n * HW + m) * C + c)
                total = first.add(total, w1[uint32(f * C + c)], x[xi])
            tile[at] = first.close(total, b1, m1, r, f, at)
        cuda.syncthreads()
        for i in range(uint32(cuda.threadIdx.x), uint32(mine * dw.PQ), uint32(THREADS)):
            at = uint32(i)
            g = uint32(at // dw.PQ if NCHW else at % mine)
            o = uint32(at % dw.PQ if NCHW else at // mine)  # place in the output map
            f = uint32(f0 + g)
            total = ZERO
            for j in range(K):
                h = uint32(o // dw.Q * dw.stride + j - dw.padding)  # above the map: wraps to a huge number
                for k in range(K):
                    v = uint32(o % dw.Q * dw.stride + k - dw.padding)
                    if h < dw.H and v < dw.W:
                        m = uint32(h * dw.W + v)
                        wi = uint32((f * K + j) * K + k if NCHW else (j * K + k) * F + f)
                        total = second.add(total, w2[wi], tile[uint32(g * HW + m if NCHW else m * mine + g)])
            yi = uint32((n * F + f) * dw.PQ + o if NCHW else (n * dw.PQ + o) * F + f)
            y[yi] = second.close(total, b2, m2, r, f, yi)

    return kernel


def traffic(pair):
    C, F, HW, nchw = pair.first.C, pair.first.F, pair.first.H * pair.first.W, pair.layout == "NCHW"
    dw = pair.second
    PQ, sector = dw.P * dw.Q, 32 // pair.itemsize
    (vectors1, per_vector), (vectors2, _) = storage.vectors(pair.first), storage.vectors(dw)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for f0 in range(0, F, filters(pair)):
        mine = min(filters(pair), F - f0)
        f, m, on = _places(mine, HW, f0, nchw)
        of_w, of_x = shifted(f * C, on, sector), shifted(m if nchw else m * C, on, sector)
        for c in range(C):
            load += pair.N * of_w(c)
            for n in range(pair.N):
                load += of_x((n * C + c) * HW if nchw else n * HW * C + c)
        load += pair.N * vectors1 * warp_traffic(np.where(on, f, -1), per_vector)
        f, o, on = _places(mine, PQ, f0, nchw)
        for j in range(dw.K):
            for k in range(dw.K):
                h, v = o // dw.Q * dw.stride + j - dw.padding, o % dw.Q * dw.stride + k - dw.padding
                inside = on & (0 <= h) & (h < dw.H) & (0 <= v) & (v < dw.W)
                wi = (f * dw.K + j) * dw.K + k if nchw else (j * dw.K + k) * F + f
                load += pair.N * warp_traffic(np.where(inside, wi, -1), sector)
        load += pair.N * vectors2 * warp_traffic(np.where(on, f, -1), per_vector)
        for n in range(pair.N):
            out = warp_traffic(np.where(on, (n * F + f) * PQ + o if nchw else (n * PQ + o) * F + f, -1), sector)
            load, store = load + dw.residual * out, store + out
    return Traffic(*load, *store)


def _places(mine, size, f0, nchw):
    """(filter, place in the map, whether it is one) of each thread in each of its turns."""
    at = iterations(mine * size, THREADS)
    return (f0 + (at // size if nchw else at % mine), at % size if nchw else at // mine, at >= 0)


@register(
    kernel=kernel, traffic=traffic, supports=lambda pair: pair.second.H * pair.second.W <= MOST and small_maps(pair),
    view="flat", dtypes=("float32", "float16", "int8"), lesson="38",
)  # fmt: skip
def launch(pair):
    return Launch((-(-pair.second.C // filters(pair)), pair.N), (THREADS,))
