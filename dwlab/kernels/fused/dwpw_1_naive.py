"""Naive: a block for each tile of pixels, its depthwise outputs of all channels in shared memory.

A block computes the depthwise outputs of a square of pixels, all C channels of it, and puts them into shared memory,
one pixel after the other along a channel. After a barrier each thread takes outputs of the pointwise layer: it walks
through the C channels of its pixel, in shared memory, and through a row of the pointwise filters. What is between the
layers is never in global memory: that saves writing and reading it, N*C*P*Q elements each. In float16 the sums and
what is between the layers are float32.

The square is 8 x 8 where 48 KiB hold its C channels, else 4 x 4, 2 x 2 or one pixel: the more channels, the fewer
pixels share a filter that is read, and the more x is read twice by neighbouring blocks.

Traffic: for each tap that any lane of a warp has inside its map, a request for x and one for w1; for each channel of
an output a request for w2.
"""

import itertools

import numpy as np
from numba import uint32

from dwlab.kernels.parts import constants, storage
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, alike, iterations, warp_traffic
from dwlab.target import cuda

THREADS = 256
WORDS = 12288  # of 48 KiB


def side_of(C):
    """The largest side of a square of pixels whose C channels shared memory holds; 0 if it holds not even one."""
    return next((side for side in (8, 4, 2, 1) if C * side * side <= WORDS), 0)


@by_shape
def kernel(problem):
    C, F, K, Q, NCHW = problem.first.C, problem.second.F, problem.first.K, problem.first.Q, problem.layout == "NCHW"
    SIDE = side_of(C)
    one = constants.of(problem.first, pixels=SIDE**2, across=-(-Q // SIDE))
    first, second = storage.functions(problem.first), storage.functions(problem.second)
    (ZERO, _, KIND), SHARED = storage.sums(problem.first), C * SIDE**2

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        middle = cuda.shared.array(SHARED, KIND)
        p0 = uint32(uint32(cuda.blockIdx.x) // one.across * SIDE)
        q0 = uint32(uint32(cuda.blockIdx.x) % one.across * SIDE)
        n = uint32(cuda.blockIdx.y)
        for i in range(cuda.threadIdx.x, SHARED, THREADS):
            c, pixel = uint32(uint32(i) // one.pixels), uint32(uint32(i) % one.pixels)
            if not NCHW:  # neighbouring lanes are neighbouring channels, as x has them
                c, pixel = uint32(uint32(i) % C), uint32(uint32(i) // C)
            p, q = uint32(p0 + pixel // SIDE), uint32(q0 + pixel % SIDE)
            if p < one.P and q < Q:
                total = ZERO
                for j in range(K * K):
                    h = uint32(p * one.stride + j // K - one.padding)  # above the map: wraps to a huge number
                    v = uint32(q * one.stride + j % K - one.padding)
                    if h < one.H and v < one.W:
                        if NCHW:
                            wi, xi = uint32(c * K * K + j), uint32(((n * C + c) * one.H + h) * one.W + v)
                        else:
                            wi, xi = uint32(j * C + c), uint32(((n * one.H + h) * one.W + v) * C + c)
                        total = first.add(total, w1[wi], x[xi])
                middle[uint32(c * one.pixels + pixel)] = first.close(total, b1, m1, r, c, uint32(0))
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, F * one.pixels, THREADS):
            f, pixel = uint32(uint32(i) // one.pixels), uint32(uint32(i) % one.pixels)
            if not NCHW:
                f, pixel = uint32(uint32(i) % F), uint32(uint32(i) // F)
            p, q = uint32(p0 + pixel // SIDE), uint32(q0 + pixel % SIDE)
            if p < one.P and q < Q:
                total = ZERO
                for c in range(C):
                    total = second.add(total, w2[uint32(f * C + c)], middle[uint32(c * one.pixels + pixel)])
                at = uint32(((n * F + f) * one.P + p) * Q + q) if NCHW else uint32(((n * one.P + p) * Q + q) * F + f)
                y[at] = second.close(total, b2, m2, r, f, at)

    return kernel


def traffic(problem):
    one, two = problem.first, problem.second
    C, H, W, K, S, PAD, P, Q, F = one.C, one.H, one.W, one.K, one.stride, one.padding, one.P, one.Q, two.F
    nchw, side, each = problem.layout == "NCHW", side_of(one.C), 32 // problem.itemsize  # elements of a sector
    load, store = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def rounds(channels):
        """(channel, pixel) of each thread in each of its rounds, -1 beyond the last."""
        i = iterations(channels * side * side, THREADS)
        c, pixel = (i // side**2, i % side**2) if nchw else (i % channels, i // channels)
        return np.where(i < 0, -1, c), pixel

    (vectors1, per_vector), (vectors2, _) = storage.vectors(one), storage.vectors(two)

    def moved(elements, there, each=each):
        return warp_traffic(np.where(there, elements, -1), each)

    c, c_pixel = rounds(C)
    f, f_pixel = rounds(F)
    images = alike(problem.N, C * H * W, F * P * Q, per_sector=each)
    for (n, often), p0, q0 in itertools.product(images, range(0, P, side), range(0, Q, side)):
        p, q = p0 + c_pixel // side, q0 + c_pixel % side
        there = (c >= 0) & (p < P) & (q < Q)
        for i, j in np.ndindex(K, K):
            h, v = p * S + i - PAD, q * S + j - PAD
            inside = there & (0 <= h) & (h < H) & (0 <= v) & (v < W)
            load += often * moved((c * K + i) * K + j if nchw else (i * K + j) * C + c, inside)
            load += often * moved(((n * C + c) * H + h) * W + v if nchw else ((n * H + h) * W + v) * C + c, inside)
        load += often * moved(c, there, per_vector) * vectors1
        p, q = p0 + f_pixel // side, q0 + f_pixel % side
        there = (f >= 0) & (p < P) & (q < Q)
        for channel in range(C):
            load += often * moved(f * C + channel, there)
        load += often * moved(f, there, per_vector) * vectors2
        outputs = often * moved(((n * F + f) * P + p) * Q + q if nchw else ((n * P + p) * Q + q) * F + f, there)
        load += outputs * two.residual
        store += outputs
    return Traffic(*load, *store)


def supports(problem):
    one, two = problem.first, problem.second
    words = problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q)
    return words < 2**31 and side_of(one.C) > 0 and problem.N < 2**16


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=("float32", "float16", "int8"), view="flat")
def launch(problem):
    side = side_of(problem.first.C)
    tiles = -(-problem.second.P // side) * -(-problem.second.Q // side)
    return Launch((tiles, problem.N), (THREADS,))
