"""Naive: one thread per output, a dot product of C terms, everything from global memory.

Pointwise convolution is a matrix product: every pixel's C channels times the F x C filters. A thread walks along the
channels of its pixel and of its filter. Threads follow the outputs as they lie in memory. In NCHW neighbouring lanes
are neighbouring pixels: they read neighbouring x and all the same w. In NHWC they are neighbouring filters of one
pixel: all read the same x, and w at a stride of a whole filter, a sector for each lane and term.

Two reads serve one multiply-add, and each x is read F times, each w once a pixel.

Traffic: for each channel a request for x and one for w, by every warp.
"""

import numpy as np
from numba import uint32

from dwlab.kernels.parts import storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

THREADS = 256


@by_shape
def kernel(layer):
    C, F, HW = layer.C, layer.F, layer.H * layer.W
    NCHW, closing = layer.layout == "NCHW", storage.closing(layer)
    ZERO, add, _ = storage.sums(layer)

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        at = uint32(cuda.grid(1))
        if at >= y.size:
            return
        if NCHW:
            f = uint32(at // HW % F)
            xi, step = uint32(at // (HW * F) * (HW * C) + at % HW), uint32(HW)
        else:
            f = uint32(at % F)
            xi, step = uint32(at // F * C), uint32(1)
        wi = uint32(f * C)
        total = ZERO
        for _ in range(C):
            total = add(total, w[wi], x[xi])
            wi = uint32(wi + 1)
            xi = uint32(xi + step)
        y[at] = closing(total, b, m, r, f, at)

    return kernel


def traffic(layer):
    C, F, HW = layer.C, layer.F, layer.H * layer.W
    nchw, outputs, per_sector = layer.layout == "NCHW", layer.N * F * HW, 32 // layer.itemsize
    vectors, per_vector = storage.vectors(layer)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for first in range(0, outputs, 1 << 20):
        at = np.arange(first, min(first + (1 << 20), outputs))
        f = at // HW % F if nchw else at % F
        xi = at // (HW * F) * (HW * C) + at % HW if nchw else at // F * C
        for c in range(C):
            load += warp_traffic(f * C + c, per_sector) + warp_traffic(xi + c * (HW if nchw else 1), per_sector)
        load += vectors * warp_traffic(f, per_vector)
        if layer.residual:
            load += warp_traffic(at, per_sector)
        store += warp_traffic(at, per_sector)
    return Traffic(*load, *store)


TYPES = ("float32", "float16", "int8")


@register(kernel=kernel, traffic=traffic, supports=small_indices, dtypes=TYPES, view="flat", lesson="29")
def launch(layer):
    return Launch((-(-layer.N * layer.F * layer.H * layer.W // THREADS),), (THREADS,))
