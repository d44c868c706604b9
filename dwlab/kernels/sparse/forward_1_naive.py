"""Naive: one thread per output, which walks along the kept weights of its filter, everything from global memory.

As in pointwise/forward/naive neighbouring lanes are neighbouring filters of one pixel. A filter's row has k / 2 weights
of k kept columns, two of every four; a word of metadata, read once for 16 weights, says which two. Where a pattern
chooses columns, wc says which channel a kept column is. So of C products a thread makes C N / M, and for each reads a
weight, a column and an x: indices cost more than products, and what is read is no longer the same for all lanes.

Filters in the same block read x of the same four columns, those of 2:4 of the same four neighbours.

Traffic: for 16 weights a word of metadata; for each a weight, a column and an x, by every warp. Which columns and x
depends on what was pruned: the formula is that of the filters that the layer has as its inputs of seed 0.
"""

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import epilogue
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems import sparsity
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

THREADS = 256
WEIGHTS = 16  # that a word of metadata has indices of


@by_shape
def kernel(layer):
    C, F, KEPT, ROWS, TERMS, finish = layer.C, layer.F, layer.kept, layer.rows, layer.terms, epilogue.finish(layer)
    V, M, COLUMNS, CHOOSES = layer.form.V, layer.form.M, layer.form.columns, layer.chooses
    NCHW, HW = layer.layout == "NCHW", layer.H * layer.W

    @cuda.jit
    def kernel(x, w, wi, wc, b, r, y):
        at = uint32(cuda.grid(1))
        if at >= y.size:
            return
        f, first, next = uint32(at % F), uint32(at // F * C), uint32(1)  # of the pixel's channels
        if NCHW:
            f, first, next = uint32(at // HW % F), uint32(at // (F * HW) * (C * HW) + at % HW), uint32(HW)
        total, places = float32(0), int32(0)
        for j in range(TERMS):
            if j % WEIGHTS == 0:
                places = wi[uint32(j // WEIGHTS * ROWS + f)]
            k = uint32(j // 2 * 4 + (places >> int32(2 * (j % WEIGHTS)) & int32(3)))
            channel = k
            if CHOOSES:
                channel = uint32(k // COLUMNS * M + wc[uint32(f // V * KEPT + k)])
            if channel < C:  # the last group may end beyond
                total += float32(w[uint32(f * (KEPT // 2) + j)]) * float32(x[uint32(first + channel * next)])
        y[at] = finish(total, b, r, f, at)

    return kernel


def traffic(layer):
    C, F, HW, given = layer.C, layer.F, layer.H * layer.W, layer.inputs()
    places, channels = sparsity.places_of(given), sparsity.channels_of(given, layer.form)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for begin in range(0, layer.N * HW * F, 1 << 20):
        at = np.arange(begin, min(begin + (1 << 20), layer.N * HW * F))
        f, start, next = at % F, at // F * C, 1
        if layer.layout == "NCHW":
            f, start, next = at // HW % F, at // (F * HW) * (C * HW) + at % HW, HW
        for j in range(layer.terms):
            if j % WEIGHTS == 0:
                load += warp_traffic(j // WEIGHTS * layer.rows + f)
            if layer.chooses:
                load += warp_traffic(f // layer.form.V * layer.kept + places[f, j], 32)
            inside = channels[f, j] < C
            load += warp_traffic(np.where(inside, f * (layer.kept // 2) + j, -1), 16)
            load += warp_traffic(np.where(inside, start + channels[f, j] * next, -1), 16)
        load += layer.bias * warp_traffic(f, 16) + layer.residual * warp_traffic(at, 16)
        store += warp_traffic(at, 16)
    return Traffic(*load, *store)


@register(kernel=kernel, traffic=traffic, supports=small_indices, dtypes=("float16",), view="flat", lesson="42")
def launch(layer):
    return Launch((-(-layer.N * layer.F * layer.H * layer.W // THREADS),), (THREADS,))
