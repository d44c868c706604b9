"""Bytes: the naive stage for int8, of every pattern, on any GPU; its sums are exact.

A thread walks along the kept weights of one filter as in `naive`, and subtracts zero_x of each x as it comes; what is
left out is zero, so nothing else must be. In the end it requantises its sum (parts/requantisation.py).

Traffic: as of `naive`, its elements one byte; besides a factor m for each output.
"""

import numpy as np
from numba import int32, uint32

from dwlab.kernels.parts import storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, warp_traffic
from dwlab.problems import sparsity
from dwlab.problems.layers import small_indices
from dwlab.target import cuda

THREADS = 256
WEIGHTS = 16  # that a word of metadata has indices of


@by_shape
def kernel(layer):
    C, F, KEPT, ROWS, TERMS = layer.C, layer.F, layer.kept, layer.rows, layer.terms
    V, M, COLUMNS, CHOOSES = layer.form.V, layer.form.M, layer.form.columns, layer.chooses
    (zero, add, _), closing = storage.sums(layer), storage.closing(layer)

    @cuda.jit
    def kernel(x, w, wi, wc, b, m, r, y):
        at = uint32(cuda.grid(1))
        if at >= y.size:
            return
        f, pixel = uint32(at % F), uint32(at // F)
        total, places = zero, int32(0)
        for j in range(TERMS):
            if j % WEIGHTS == 0:
                places = wi[uint32(j // WEIGHTS * ROWS + f)]
            k = uint32(j // 2 * 4 + (places >> int32(2 * (j % WEIGHTS)) & int32(3)))
            channel = k
            if CHOOSES:
                channel = uint32(k // COLUMNS * M + wc[uint32(f // V * KEPT + k)])
            if channel < C:  # the last group may end beyond
                total = add(total, w[uint32(f * (KEPT // 2) + j)], x[uint32(pixel * C + channel)])
        y[at] = closing(total, b, m, r, f, at)

    return kernel


def traffic(layer):
    C, F, pixels, given = layer.C, layer.F, layer.N * layer.H * layer.W, layer.inputs()
    places, channels = sparsity.places_of(given), sparsity.channels_of(given, layer.form)
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for first in range(0, pixels * F, 1 << 20):
        at = np.arange(first, min(first + (1 << 20), pixels * F))
        f, pixel = at % F, at // F
        for j in range(layer.terms):
            if j % WEIGHTS == 0:
                load += warp_traffic(j // WEIGHTS * layer.rows + f)
            if layer.chooses:
                load += warp_traffic(f // layer.form.V * layer.kept + places[f, j], 32)
            inside = channels[f, j] < C
            load += warp_traffic(np.where(inside, f * (layer.kept // 2) + j, -1), 32)
            load += warp_traffic(np.where(inside, pixel * C + channels[f, j], -1), 32)
        load += (1 + layer.bias) * warp_traffic(f) + layer.residual * warp_traffic(at, 32)
        store += warp_traffic(at, 32)
    return Traffic(*load, *store)


@register(kernel=kernel, traffic=traffic, supports=small_indices, dtypes=("int8",), view="flat")
def launch(layer):
    return Launch((-(-layer.N * layer.F * layer.H * layer.W // THREADS),), (THREADS,))
