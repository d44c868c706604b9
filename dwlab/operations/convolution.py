"""The first convolution of a network: all channels of the image, which are few, to some tens of maps, NHWC.

27 products an output of 3 x 3 x 3: little beside what is stored, so the products must not cost more than their
multiply-adds. A block stages the image's rows under its tile of outputs, and the filters, in shared memory as float32;
a thread has 8 channels of 1 or 4 pixels, and each 8 numbers of the filters that it reads serve all of these.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int32, uint32

from dwlab import epilogue, ptx
from dwlab.operations import groups
from dwlab.target import cuda

ACROSS, DOWN = 16, 4  # pixels of a tile, of which each thread has one; or one in each of four such tiles
TALL = 4
FEW = 256  # blocks: with fewer the tiles are low, so that there are more
SHARED = 48 * 1024


def sizes(C: int, K: int, S: int, F: int, tall: int) -> tuple[int, int, int]:
    """(rows and words of a row of the staged image, words of the filters)."""
    return (DOWN * tall - 1) * S + K, ((ACROSS - 1) * S + K) * C, K * K * C * F


def tall(N: int, P: int, Q: int) -> int:
    """How many tiles below each other a block has."""
    return TALL if N * -(-P // (DOWN * TALL)) * -(-Q // ACROSS) >= FEW else 1


@functools.cache
def kernel(C: int, K: int, S: int, PAD: int, F: int, activation: str, of_y: str, TILES: int) -> Any:
    """The kernel of y = activation(x * w + b): x of any floating-point type, w (K, K, C, F) and b (F,) float32."""
    ROWS, ROW, FILTERS = sizes(C, K, S, F, TILES)
    LANES, THREADS, STAGED = F // 8, F // 8 * ACROSS * DOWN, ROWS * ROW
    LOADS, SUMS, TAPS, STRIDE = -(-STAGED // THREADS), 8 * TILES, K * C, DOWN * S * ROW
    activate, put = epilogue.activate(activation), groups.put(of_y)

    @cuda.jit
    def kernel(x, w, b, y, H, W, P, Q, scale, zero):
        image = cuda.shared.array(STAGED, float32, 16)
        filters = cuda.shared.array(FILTERS, float32, 16)
        held = cuda.local.array(LOADS, float32)
        sums = cuda.local.array(SUMS, float32)
        f = cuda.local.array(8, float32)
        t = uint32(cuda.threadIdx.x)
        across, down, n = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.z)
        for k in range(t, FILTERS, THREADS):
            filters[k] = w[k]
        ptx.grid_dependency_wait()
        top = int32(down * uint32(DOWN * TILES * S)) - int32(PAD)
        left = int32(int32(across * uint32(ACROSS * S)) - int32(PAD)) * int32(C)
        for k in range(LOADS):
            at = uint32(t + uint32(k * THREADS))
            h, v = int32(top + int32(at // uint32(ROW))), int32(left + int32(at % uint32(ROW)))
            held[k] = float32(0)
            if at < uint32(STAGED) and uint32(h) < uint32(H) and uint32(v) < uint32(W * int32(C)):
                held[k] = float32(x[uint32((n * uint32(H) + uint32(h)) * uint32(W * int32(C)) + uint32(v))])
        for k in range(LOADS):
            at = uint32(t + uint32(k * THREADS))
            if at < uint32(STAGED):
                image[at] = held[k]
        cuda.syncthreads()
        lane, column, row = uint32(t % LANES), uint32(t // LANES % ACROSS), uint32(t // (LANES * ACROSS))
        for k in range(SUMS):
            sums[k] = float32(0)
        corner = uint32(row * uint32(S * ROW) + column * uint32(S * C))
        for i in range(K):
            for tap in range(TAPS):
                at = uint32(uint32((i * TAPS + tap) * F) + lane * uint32(8))
                f[0], f[1], f[2], f[3] = ptx.load4_shared(filters, at)
                f[4], f[5], f[6], f[7] = ptx.load4_shared(filters, uint32(at + uint32(4)))
                for tile in range(TILES):
                    value = image[uint32(corner + uint32(tile * STRIDE + i * ROW + tap))]
                    for k in range(8):
                        sums[8 * tile + k] += f[k] * value
        f[0], f[1], f[2], f[3] = ptx.load4(b, uint32(lane * uint32(8)))
        f[4], f[5], f[6], f[7] = ptx.load4(b, uint32(lane * uint32(8) + uint32(4)))
        q = uint32(across * uint32(ACROSS) + column)
        for tile in range(TILES):
            p = uint32((down * uint32(TILES) + uint32(tile)) * uint32(DOWN) + row)
            for k in range(8):
                sums[8 * tile + k] = activate(sums[8 * tile + k] + f[k])
            if p < uint32(P) and q < uint32(Q):
                at = uint32(((n * uint32(P) + p) * uint32(Q) + q) * uint32(LANES) + lane)
                put(y, at, sums, 8 * tile, scale, zero)

    return kernel
