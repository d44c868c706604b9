"""PWDW_R: a block has a tile of the map; the tile's edge is computed anew by each block that needs it.

Any map: it is cut into tiles of outputs, and a block computes what its tile reads between the layers, 16 x 16 pixels of
a few filters, into shared memory. For 3 x 3 at stride 1 these give 14 x 14 outputs, at stride 2 7 x 7. Pixels outside
the map become zeros there (in int8 the zero point), after bias and activation: the second layer pads what is between
the layers, not x. The depthwise layer then reads shared memory only and tests no more where the map ends.

What it costs: neighbouring tiles overlap by K - stride pixels, (16/14)**2 = 1.31 times the first layer's work where the
map is large. What it saves beyond the stage before: blocks for any map, and the zeros once instead of at each tap.

Traffic: C loads of x and of w1 for each pixel of a tile inside the map; K x K loads of w2 for each output.
"""

import numpy as np
from numba import uint32

from dwlab.kernels.fused.shifted import shifted
from dwlab.kernels.parts import constants, storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, small_maps, warp_traffic
from dwlab.target import cuda

THREADS = 256
SIDE = 16  # most pixels of a tile, in each direction
FILTERS = 8  # of a block


def tile(outputs, K, stride):
    """(outputs, pixels) of a tile in one direction."""
    most = min((SIDE - K) // stride + 1, outputs)
    return most, (most - 1) * stride + K


@by_shape
def kernel(pair):
    C, dw, NCHW = pair.first.C, pair.second, pair.layout == "NCHW"
    (TP, TH), (TQ, TW) = tile(dw.P, dw.K, dw.stride), tile(dw.Q, dw.K, dw.stride)
    first, second = storage.functions(pair.first), storage.functions(dw)
    (ZERO, _, KIND), SIZE = storage.sums(pair.first), FILTERS * TH * TW  # elements between the layers
    dw = constants.of(dw, across=-(-dw.Q // TQ))  # tiles in a row of tiles

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        inner = cuda.shared.array(SIZE, KIND)
        n, f0 = uint32(cuda.blockIdx.z), uint32(cuda.blockIdx.y * FILTERS)
        p0, q0 = uint32(cuda.blockIdx.x // dw.across * TP), uint32(cuda.blockIdx.x % dw.across * TQ)
        for i in range(uint32(cuda.threadIdx.x), uint32(SIZE), uint32(THREADS)):
            g = uint32(i // (TH * TW) if NCHW else i % FILTERS)
            m = uint32(i % (TH * TW) if NCHW else i // FILTERS)  # pixel of the tile
            f = uint32(f0 + g)
            h = uint32(p0 * dw.stride + m // TW - dw.padding)  # above the map: wraps to a huge number
            v = uint32(q0 * dw.stride + m % TW - dw.padding)
            if h < dw.H and v < dw.W and f < dw.C:
                total = ZERO
                for c in range(C):
                    xi = uint32(((n * C + c) * dw.H + h) * dw.W + v if NCHW else ((n * dw.H + h) * dw.W + v) * C + c)
                    total = first.add(total, w1[uint32(f * C + c)], x[xi])
                inner[i] = first.close(total, b1, m1, r, f, f)
            else:
                inner[i] = KIND(dw.zero_x)
        cuda.syncthreads()
        for i in range(uint32(cuda.threadIdx.x), uint32(FILTERS * TP * TQ), uint32(THREADS)):
            g = uint32(i // (TP * TQ) if NCHW else i % FILTERS)
            o = uint32(i % (TP * TQ) if NCHW else i // FILTERS)
            f = uint32(f0 + g)
            p, q = uint32(p0 + o // TQ), uint32(q0 + o % TQ)
            if f < dw.C and p < dw.P and q < dw.Q:
                corner = uint32(uint32(o // TQ * dw.stride) * TW + o % TQ * dw.stride)  # pixel of the first tap
                total = ZERO
                for j in range(dw.K):
                    for k in range(dw.K):
                        wi = uint32((f * dw.K + j) * dw.K + k if NCHW else (j * dw.K + k) * dw.C + f)
                        m = uint32(corner + j * TW + k)
                        total = second.add(total, w2[wi], inner[uint32(g * (TH * TW) + m if NCHW else m * FILTERS + g)])
                yi = uint32(((n * dw.C + f) * dw.P + p) * dw.Q + q if NCHW else ((n * dw.P + p) * dw.Q + q) * dw.C + f)
                y[yi] = second.close(total, b2, m2, r, f, yi)

    return kernel


def traffic(pair):
    nchw, sector, dw = pair.layout == "NCHW", 32 // pair.itemsize, pair.second
    C, F, H, W, K, S, P, Q = pair.first.C, dw.C, dw.H, dw.W, dw.K, dw.stride, dw.P, dw.Q
    (TP, TH), (TQ, TW) = tile(P, K, S), tile(Q, K, S)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    # Axes: block (n, p0, q0, f0), turn, thread
    starts = np.arange(pair.N), np.arange(0, P, TP), np.arange(0, Q, TQ), np.arange(0, F, FILTERS)
    n, p0, q0, f0 = (axis.reshape(-1, 1, 1) for axis in np.meshgrid(*starts, indexing="ij"))
    (vectors1, per_vector), (vectors2, _) = storage.vectors(pair.first), storage.vectors(dw)

    def count(elements, on, sector=sector):
        return warp_traffic(np.where(on, elements, -1).reshape(-1, THREADS), sector)

    i, g, m = _places(TH * TW, nchw)
    f, h, v = f0 + g, p0 * S + m // TW - dw.padding, q0 * S + m % TW - dw.padding
    on = (i < FILTERS * TH * TW) & (f < F) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
    of_w = shifted(f * C + 0 * h, on, sector)
    of_x = shifted((n * C * H + h) * W + v if nchw else ((n * H + h) * W + v) * C, on, sector)
    for c in range(C):
        load += of_w(c) + of_x(c * H * W if nchw else c)
    load += vectors1 * count(f, on, per_vector)
    i, g, o = _places(TP * TQ, nchw)
    f, p, q = f0 + g, p0 + o // TQ, q0 + o % TQ
    on = (i < FILTERS * TP * TQ) & (f < F) & (p < P) & (q < Q)
    for tap in range(K * K):
        load += count(f * K * K + tap if nchw else tap * F + f, on)
    load += vectors2 * count(f, on, per_vector)
    out = count(((n * F + f) * P + p) * Q + q if nchw else ((n * P + p) * Q + q) * F + f, on)
    return Traffic(*(load + dw.residual * out), *(store + out))


def _places(size, nchw):
    """(element, filter of the block, place in the tile) of each thread in each of its turns."""
    i = np.arange(-(-FILTERS * size // THREADS) * THREADS).reshape(1, -1, THREADS)
    return (i, i // size, i % size) if nchw else (i, i % FILTERS, i // FILTERS)


@register(
    kernel=kernel, traffic=traffic, supports=lambda pair: pair.second.K <= SIDE and small_maps(pair), view="flat",
    dtypes=("float32", "float16", "int8"), lesson="38",
)  # fmt: skip
def launch(pair):
    dw = pair.second
    tiles = -(-dw.P // tile(dw.P, dw.K, dw.stride)[0]) * -(-dw.Q // tile(dw.Q, dw.K, dw.stride)[0])
    return Launch((tiles, -(-dw.C // FILTERS), pair.N), (THREADS,))
