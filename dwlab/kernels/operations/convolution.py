"""The first convolution of a network: all channels of the image, which are few, to some tens of maps, NHWC.

27 products an output of 3 x 3 x 3: little next to what is stored, so they must not cost more than their multiply-adds.
A lane has one output channel and keeps its filter in registers; a warp has 8 neighbouring pixels of a row. What it
reads of the image is the same for all lanes: a block stages the rows under its tile in shared memory, as float32, and
one load brings 4 numbers to all 32 lanes. (With 8 channels of some pixels to a thread, filters in shared memory too, it
was slower: 16 bytes of which each lane wants others are several passes through the shared memory.)
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int8, int32, uint32

from dwlab.kernels.parts import epilogue, int8_words
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.target import cuda

PIXELS, WARPS, LANES = 8, 8, 32
ACROSS, DOWN = 2, 4  # of the warps in a tile
TALL = 4  # tiles below each other in a block, where there are blocks enough
FEW = 256  # with fewer blocks each has one tile
TAPS = 80  # of a filter, in registers
SHARED = 48 * 1024


def sizes(C: int, K: int, S: int, tall: int) -> tuple[int, int]:
    """(rows of the staged image, words from one to the next)."""
    return (DOWN * tall - 1) * S + K, -(-((ACROSS * PIXELS - 1) * S + K) * C // 4) * 4


def tall(N: int, P: int, Q: int) -> int:
    """How many tiles below each other a block has."""
    return TALL if N * -(-P // (DOWN * TALL)) * -(-Q // (ACROSS * PIXELS)) >= FEW else 1


@functools.cache
def kernel(C: int, K: int, S: int, PAD: int, F: int, activation: str, of_y: str, TILES: int) -> Any:
    """The kernel of y = activation(x * w + b): x of any floating-point type, w (K, K, C, F) and b (F,) float32.

    The block's z is the image and 32 of the channels, of which the last may idle; y is elements.
    """
    ROWS, ROW = sizes(C, K, S, TILES)
    THREADS, STAGED, PARTS = WARPS * LANES, ROWS * ROW, -(-F // LANES)
    LOADS, NUMBERS, FILTER = -(-STAGED // THREADS), K * K * C, K * C
    READ = -(-((PIXELS - 1) * S + K) * C // 4) * 4  # of a row, by a warp
    activate, WHOLE = epilogue.activate(activation), of_y == "int8"

    @cuda.jit
    def kernel(x, w, b, y, H, W, P, Q, scale, zero):
        image = cuda.shared.array(STAGED, float32, 16)
        held = cuda.local.array(LOADS, float32)
        own = cuda.local.array(NUMBERS, float32)
        row = cuda.local.array(READ, float32)
        sums = cuda.local.array(PIXELS, float32)
        lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        across, down, n = uint32(cuda.blockIdx.x), uint32(cuda.blockIdx.y), uint32(uint32(cuda.blockIdx.z) // PARTS)
        t, f = uint32(warp * uint32(LANES) + lane), uint32(uint32(cuda.blockIdx.z) % PARTS * uint32(LANES) + lane)
        bias = float32(0)
        for k in range(NUMBERS):
            own[k] = float32(0)
            if f < uint32(F):
                own[k] = w[uint32(uint32(k * F) + f)]
        if f < uint32(F):
            bias = b[f]
        ptx.grid_dependency_wait()
        top = int32(down * uint32(DOWN * TILES * S)) - int32(PAD)
        left = int32(int32(across * uint32(ACROSS * PIXELS * S)) - int32(PAD)) * int32(C)
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
        q = uint32(across * uint32(ACROSS * PIXELS) + warp % ACROSS * uint32(PIXELS))
        p = uint32(down * uint32(DOWN * TILES) + warp // ACROSS)
        begin = uint32(warp // ACROSS * uint32(S * ROW) + warp % ACROSS * uint32(PIXELS * S * C))
        for _ in range(TILES):
            for e in range(PIXELS):
                sums[e] = bias
            for i in range(K):
                for k in range(0, READ, 4):
                    at = uint32(begin + uint32(i * ROW + k))
                    row[k], row[k + 1], row[k + 2], row[k + 3] = ptx.load4_shared(image, at)
                for tap in range(FILTER):
                    for e in range(PIXELS):
                        sums[e] += row[e * S * C + tap] * own[i * FILTER + tap]
            at = uint32(((n * uint32(P) + p) * uint32(Q) + q) * uint32(F) + f)
            for e in range(PIXELS):
                if f < uint32(F) and p < uint32(P) and q + uint32(e) < uint32(Q):
                    value = activate(sums[e])
                    if WHOLE:
                        y[uint32(at + uint32(e * F))] = int8(int8_words.in_steps(value, scale, zero))
                    else:
                        y[uint32(at + uint32(e * F))] = value
            p = uint32(p + uint32(DOWN))
            begin = uint32(begin + uint32(DOWN * S * ROW))

    return kernel
