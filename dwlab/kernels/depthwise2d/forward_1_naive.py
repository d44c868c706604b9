"""Naive: one thread per output, everything from global memory.

A thread works out its place in the output, walks through the K x K taps, and leaves out those beyond the map's edge.
Threads follow the outputs as they lie in memory, so in either layout neighbouring lanes store neighbouring outputs. In
NCHW they are neighbours along a row: they read neighbouring x and all the same w. In NHWC they are neighbours in the
channel: neighbouring x and neighbouring w.

Each x is read by up to K x K threads, and each of them does some 10 instructions of index arithmetic for a
multiplication and an addition.

Traffic: for each tap that any lane of a warp has inside its map, a request for x and one for w.
"""

import numpy as np
from numba import uint32

from dwlab.kernels.depthwise2d.repeats import repeats
from dwlab.kernels.parts import storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, small_maps, warp_traffic
from dwlab.target import cuda

THREADS = 256


@by_shape
def kernel(layer):
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    NCHW, closing = layer.layout == "NCHW", storage.closing(layer)
    ZERO, add, _ = storage.sums(layer)

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        i = cuda.grid(1)
        if i >= y.size:
            return
        at = uint32(i)
        if NCHW:
            q = uint32(at % Q)
            p = uint32(at // Q % P)
            c = uint32(at // (P * Q) % C)
            n = uint32(at // (C * P * Q))
        else:
            c = uint32(at % C)
            q = uint32(at // C % Q)
            p = uint32(at // (C * Q) % P)
            n = uint32(at // (C * P * Q))
        total = ZERO
        for i in range(K):
            h = uint32(p * S + i - PAD)  # above the map: wraps to a huge number
            for j in range(K):
                v = uint32(q * S + j - PAD)
                if h < H and v < W:
                    if NCHW:
                        wi, xi = uint32((c * K + i) * K + j), uint32(((n * C + c) * H + h) * W + v)
                    else:
                        wi, xi = uint32((i * K + j) * C + c), uint32(((n * H + h) * W + v) * C + c)
                    total = add(total, w[wi], x[xi])
        y[at] = closing(total, b, m, r, c, at)

    return kernel


def traffic(layer):
    return Traffic(*sum(often * counts(one) for one, often in repeats(layer, layer.P * layer.Q)))


def counts(layer):
    """Requests and sectors of loads, then of stores; each thread looked at."""
    C, H, W, K, S, PAD, P, Q = layer.C, layer.H, layer.W, layer.K, layer.stride, layer.padding, layer.P, layer.Q
    nchw, outputs, per_sector = layer.layout == "NCHW", layer.N * C * P * Q, 32 // layer.itemsize
    vectors, per_vector = storage.vectors(layer)
    load = np.zeros(2, np.int64)
    store = np.zeros(2, np.int64)
    for first in range(0, outputs, 1 << 18):
        at = np.arange(first, min(first + (1 << 18), outputs))
        n, (c, p, q) = at // (C * P * Q), (at // (P * Q) % C, at // Q % P, at % Q)
        if not nchw:
            c, q, p = at % C, at // C % Q, at // (C * Q) % P
        h0, v0 = p * S - PAD, q * S - PAD
        for i in range(K):
            for j in range(K):
                h, v = h0 + i, v0 + j
                inside = (0 <= h) & (h < H) & (0 <= v) & (v < W)
                wi = (c * K + i) * K + j if nchw else (i * K + j) * C + c
                xi = ((n * C + c) * H + h) * W + v if nchw else ((n * H + h) * W + v) * C + c
                for element in (wi, xi):
                    load += warp_traffic(np.where(inside, element, -1), per_sector)
        load += vectors * warp_traffic(c, per_vector)
        one = warp_traffic(at, per_sector)
        load += one * layer.residual
        store += one
    return np.concatenate([load, store])


@register(
    kernel=kernel, traffic=traffic, supports=small_maps, dtypes=("float32", "float16", "int8"), view="flat", lesson="27"
)
def launch(layer):
    outputs = layer.N * layer.C * layer.P * layer.Q
    return Launch((-(-outputs // THREADS),), (THREADS,))
