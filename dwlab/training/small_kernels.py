"""Small kernels of the surfaces' network, each in the versions that lesson 40 compares: one thing changed at a time.

They are what one writes first: one thread per output, float32, plain loops. Lesson 40 changes where their filters lie,
how their maps lie, and the compiler's options, and finds out which of these matter. The fast stages of the same layers
are in dwlab.kernels.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dwlab.target import cuda

THREADS = 256


def maker(kernel: Callable[..., None]) -> Callable[..., Any]:
    """A function that compiles a kernel, once for each set of the compiler's options: maker(kernel)(fastmath=True)."""

    @functools.cache
    @functools.wraps(kernel)
    def make(**options: Any) -> Any:
        return cuda.jit(kernel, **options)  # as a decorator without a signature cuda.jit forgets lto

    return make


@maker
def depthwise_global(x, w, b, y):
    """3×3, padding 1, bias, ReLU. x, y: (N, C, H, W); w: (C, 9); b: (C,). The filter is read from global memory."""
    i = cuda.grid(1)
    N, C, H, W = y.shape
    if i < N * C * H * W:
        q = i % W
        p = i // W % H
        c = i // (W * H) % C
        n = i // (W * H * C)
        total = b[c]
        for u in range(3):
            for v in range(3):
                row = p + u - 1
                column = q + v - 1
                if 0 <= row < H and 0 <= column < W:
                    total += w[c, 3 * u + v] * x[n, c, row, column]
        y[n, c, p, q] = max(total, np.float32(0))


def depthwise_constant(taps: np.ndarray) -> Any:
    """The same; the filters are constants of the program. taps: (C, 9) float32."""

    @cuda.jit
    def depthwise_constant(x, w, b, y):
        held = cuda.const.array_like(taps)
        i = cuda.grid(1)
        N, C, H, W = y.shape
        if i < N * C * H * W:
            q = i % W
            p = i // W % H
            c = i // (W * H) % C
            n = i // (W * H * C)
            total = b[c]
            for u in range(3):
                for v in range(3):
                    row = p + u - 1
                    column = q + v - 1
                    if 0 <= row < H and 0 <= column < W:
                        total += held[c, 3 * u + v] * x[n, c, row, column]
            y[n, c, p, q] = max(total, np.float32(0))

    return depthwise_constant


@maker
def depthwise_shared(x, w, b, y):
    """The same on maps 32 wide: a block of 256 threads stages its eight rows, with their padding, in shared memory."""
    tile = cuda.shared.array((10, 34), np.float32)
    t = cuda.threadIdx.x
    N, C, H, W = y.shape
    first = cuda.blockIdx.x * 8  # row, of those of all maps
    p = first % H
    c = first // H % C
    n = first // (H * C)
    for k in range(t, 340, THREADS):
        row = p + k // 34 - 1
        column = k % 34 - 1
        tile[k // 34, k % 34] = np.float32(0)
        if 0 <= row < H and 0 <= column < W:
            tile[k // 34, k % 34] = x[n, c, row, column]
    cuda.syncthreads()
    total = b[c]
    for u in range(3):
        for v in range(3):
            total += w[c, 3 * u + v] * tile[t // 32 + u, t % 32 + v]
    y[n, c, p + t // 32, t % 32] = max(total, np.float32(0))


@maker
def depthwise_nhwc(x, w, b, y):
    """The same, maps in (N, H, W, C): the lanes of a warp take neighbouring channels. w: (9, C)."""
    i = cuda.grid(1)
    N, H, W, C = y.shape
    if i < N * C * H * W:
        c = i % C
        q = i // C % W
        p = i // (C * W) % H
        n = i // (C * W * H)
        total = b[c]
        for u in range(3):
            for v in range(3):
                row = p + u - 1
                column = q + v - 1
                if 0 <= row < H and 0 <= column < W:
                    total += w[3 * u + v, c] * x[n, row, column, c]
        y[n, p, q, c] = max(total, np.float32(0))


@maker
def max_pool(x, y):
    """2×2, stride 2. x: (N, C, H, W); y: (N, C, H / 2, W / 2)."""
    i = cuda.grid(1)
    N, C, H, W = y.shape
    if i < N * C * H * W:
        q = i % W
        p = i // W % H
        c = i // (W * H) % C
        n = i // (W * H * C)
        above = max(x[n, c, 2 * p, 2 * q], x[n, c, 2 * p, 2 * q + 1])
        below = max(x[n, c, 2 * p + 1, 2 * q], x[n, c, 2 * p + 1, 2 * q + 1])
        y[n, c, p, q] = max(above, below)


@maker
def softmax(x, y):
    """Each image's probabilities. x, y: (N, 10); one thread an image."""
    i = cuda.grid(1)
    if i < x.shape[0]:
        most = x[i, 0]
        for k in range(1, 10):
            most = max(most, x[i, k])
        total = np.float32(0)
        for k in range(10):
            total += math.exp(x[i, k] - most)
        for k in range(10):
            y[i, k] = math.exp(x[i, k] - most) / total


@maker
def unpack(images, first, scale, x):
    """Pixels as they are stored to what the network reads: x[i] = images[first + i] · scale. x: (n,) float32."""
    i = cuda.grid(1)
    if i < x.size:
        x[i] = images[first + i] * scale
