"""The end of a classifier: the mean of each map, and the product with the classes' weights for a few images.

A mean: a block has 64 channels; its threads divide the pixels, and add up in shared memory. The product: a warp has one
class, requests that class's weights, which are nobody's output, before it waits for the kernel before, and keeps them
for all images. With many images it is a matrix product, and a library's.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.kernels.operations import groups
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.target import cuda

WARPS = 8
THREADS = 32 * WARPS
CHANNELS = 64  # of a block of means: 8 groups
PIXELS = THREADS * groups.GROUP // CHANNELS  # at a time: threads of a group
PARTIAL = WARPS * CHANNELS
FEW, MOST = 4, 2048  # images and channels of a product: more weights than these 64 of a lane fill no registers


@functools.cache
def mean(of_x: str) -> Any:
    """The kernel of y[n, c] = mean of x[n, :, c]: x (N, pixels, C) words, y one row of elements."""
    get = groups.get(of_x)

    @cuda.jit
    def kernel(x, y, pixels, channels, scale, zero):
        ptx.grid_dependency_wait()
        partial = cuda.shared.array(PARTIAL, float32, 16)
        value = cuda.local.array(8, float32)
        sums = cuda.local.array(8, float32)
        t, n = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.y)
        group = uint32(uint32(cuda.blockIdx.x) * uint32(8) + t % uint32(8))
        for k in range(8):
            sums[k] = float32(0)
        if group < uint32(channels):
            for pixel in range(t // uint32(8), pixels, PIXELS):
                get(value, x, uint32((n * uint32(pixels) + uint32(pixel)) * uint32(channels) + group))
                for k in range(8):
                    sums[k] += value[k]
        for k in range(8):
            sums[k] += cuda.shfl_xor_sync(0xFFFFFFFF, sums[k], 8)
            sums[k] += cuda.shfl_xor_sync(0xFFFFFFFF, sums[k], 16)
        if t % uint32(32) < uint32(8):
            at = uint32(t // uint32(32) * uint32(CHANNELS) + t % uint32(8) * uint32(8))
            ptx.store4_shared(partial, at, sums[0], sums[1], sums[2], sums[3])
            ptx.store4_shared(partial, uint32(at + uint32(4)), sums[4], sums[5], sums[6], sums[7])
        cuda.syncthreads()
        c = uint32(uint32(cuda.blockIdx.x) * uint32(CHANNELS) + t)
        if t < uint32(CHANNELS) and c < uint32(channels * 8):
            total = float32(0)
            for warp in range(WARPS):
                total += partial[uint32(t + uint32(CHANNELS * warp))]
            y[uint32(n * uint32(channels * 8) + c)] = (total / float32(pixels) - zero) * scale

    return kernel


@functools.cache
def linear(N: int, C: int, of_x: str) -> Any:
    """The kernel of y[n, f] = w[f] . x[n] + b[f]: x (N, C) and w (classes, C) words, b float32, y elements."""
    get = groups.get(of_x)
    GROUPS, EACH = C // 8, -(-C // 256)
    HELD = 8 * EACH

    @cuda.jit
    def kernel(x, w, b, y, classes):
        own = cuda.local.array(HELD, float32)
        value = cuda.local.array(8, float32)
        lane = uint32(cuda.threadIdx.x)
        f = uint32(uint32(cuda.blockIdx.x) * uint32(WARPS) + uint32(cuda.threadIdx.y))
        for k in range(HELD):
            own[k] = float32(0)
        if f < uint32(classes):
            for k in range(EACH):
                if lane + uint32(32 * k) < uint32(GROUPS):
                    get(value, w, uint32(f * uint32(GROUPS) + lane + uint32(32 * k)))
                    for e in range(8):
                        own[8 * k + e] = value[e]
        ptx.grid_dependency_wait()
        if f < uint32(classes):
            for n in range(N):
                total = float32(0)
                for k in range(EACH):
                    if lane + uint32(32 * k) < uint32(GROUPS):
                        get(value, x, uint32(n * uint32(GROUPS) + lane + uint32(32 * k)))
                        for e in range(8):
                            total += own[8 * k + e] * value[e]
                total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 16)
                total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 8)
                total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 4)
                total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 2)
                total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 1)
                if lane == uint32(0):
                    y[uint32(uint32(n * classes) + f)] = total + b[f]

    return kernel
