"""Pools, subsampling and activations of their own, NHWC: a thread has 8 channels of one output.

They compute next to nothing, so what counts is bytes and launches: all loads of a window are in flight before the
first is used, and what a shortcut adds is added here.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import float32, uint32

from dwlab.kernels.operations import groups
from dwlab.kernels.parts import epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.target import cuda

THREADS = 256


@functools.cache
def kernel(K: int, S: int, PAD: int, activation: str, residual: bool, of_x: str, of_r: str, of_y: str) -> Any:
    """The kernel of y = activation(the greatest of a window) + r; K = 1: of what is there. of_…: the storage types."""
    get, get_r, put = groups.get(of_x), groups.get(of_r), groups.put(of_y)
    activate, TAPS, VALUES = epilogue.activate(activation), K * K, 8 * K * K

    @cuda.jit
    def kernel(x, r, y, H, W, Q, channels, scale_x, zero_x, scale_r, zero_r, scale_y, zero_y):
        ptx.grid_dependency_wait()
        i = uint32(uint32(cuda.blockIdx.x) * uint32(THREADS) + uint32(cuda.threadIdx.x))
        q, c = uint32(i // uint32(channels)), uint32(i % uint32(channels))
        if q >= uint32(Q):
            return
        p, n = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
        value = cuda.local.array(VALUES, float32)
        best = cuda.local.array(8, float32)
        added = cuda.local.array(8, float32)
        h0, v0 = uint32(p * uint32(S) - uint32(PAD)), uint32(q * uint32(S) - uint32(PAD))  # what is below 0 is large
        for tap in range(TAPS):
            h, v = uint32(h0 + uint32(tap // K)), uint32(v0 + uint32(tap % K))
            for k in range(8):
                value[8 * tap + k] = float32(-math.inf)
            if h < uint32(H) and v < uint32(W):
                get(best, x, uint32(((n * uint32(H) + h) * uint32(W) + v) * uint32(channels) + c))
                for k in range(8):
                    value[8 * tap + k] = best[k]
        at = uint32(((n * uint32(cuda.gridDim.y) + p) * uint32(Q) + q) * uint32(channels) + c)
        for k in range(8):
            added[k] = float32(0)
        if residual:
            get_r(added, r, at)
        for k in range(8):
            best[k] = value[k]
        for tap in range(1, TAPS):
            for k in range(8):
                best[k] = max(best[k], value[8 * tap + k])
        for k in range(8):
            best[k] = activate((best[k] - zero_x) * scale_x)
            if residual:
                best[k] = best[k] + (added[k] - zero_r) * scale_r
        put(y, at, best, 0, scale_y, zero_y)

    return kernel
