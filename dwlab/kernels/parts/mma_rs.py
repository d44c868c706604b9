"""A warp's matrix product on tensor cores, one operand from registers, one from shared memory (as CUTLASS's "RS").

Here it is B, a layer's filters, that comes from registers.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.fragments import MMA, accumulate, lanes_of
from dwlab.kernels.parts.mma_tf32 import upper
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.target import cuda


@functools.cache
def mma_rs(dtype: str, M: int, N: int, a_pitch: int) -> WarpTile:
    """M x N sums on tensor cores, as `mma_ss` has them, of 16 words of k a call: A in shared memory, B in registers.

    add(acc, a, at, words): at is the word where this lane reads first, that of row lane // 4 and of k's word
    4 * (lane % 4); words the lane's words of B, of column 8 j + lane // 4 those of k 4 * (lane % 4) to + 3 from
    words[4 * j] on. All 32 lanes come together. A lane so reads 16 bytes at a time of either operand, and which words
    of k meet in an mma is another order than k's own: the same for both, so the sums are the same. a_pitch: 16 more
    than a multiple of 32, so that two rows' vectors of eight lanes are all banks.
    """
    MI, NJ, FLOAT32, product = M // 16, N // 8, dtype == "float32", accumulate(MMA[dtype])
    WORDS = 4 * NJ

    def rows(i: int) -> Any:
        first = 4 * NJ * i

        @cuda.jit(device=True, forceinline=True)
        def read(a, at):
            v0, v1, v2, v3 = ptx.load4_shared(a, uint32(at + uint32(16 * i * a_pitch)))
            w0, w1, w2, w3 = ptx.load4_shared(a, uint32(at + uint32((16 * i + 8) * a_pitch)))
            return v0, w0, v1, w1, v2, w2, v3, w3

        if FLOAT32:

            @cuda.jit(device=True, forceinline=True)
            def add(acc, a, at, big, small):
                left = cuda.local.array(8, float32)
                rest = cuda.local.array(8, float32)
                part = cuda.local.array(4, float32)
                left[0], left[1], left[2], left[3], left[4], left[5], left[6], left[7] = read(a, at)
                for e in range(8):
                    x = left[e]
                    left[e] = upper(x)
                    rest[e] = x - left[e]
                for j in range(NJ):
                    part[0] = part[1] = part[2] = part[3] = float32(0)
                    for s in range(2):
                        product(part, 0, rest, s, big[4 * j + 2 * s], big[4 * j + 2 * s + 1])
                        product(part, 0, left, s, small[4 * j + 2 * s], small[4 * j + 2 * s + 1])
                    for s in range(2):
                        product(part, 0, left, s, big[4 * j + 2 * s], big[4 * j + 2 * s + 1])
                    for e in range(4):
                        acc[first + 4 * j + e] += part[e]

        else:

            @cuda.jit(device=True, forceinline=True)
            def add(acc, a, at, big, small):
                left = cuda.local.array(8, float32)
                left[0], left[1], left[2], left[3], left[4], left[5], left[6], left[7] = read(a, at)
                for s in range(2):
                    for j in range(NJ):
                        product(acc, first + 4 * j, left, s, big[4 * j + 2 * s], big[4 * j + 2 * s + 1])

        return add

    all_rows = in_sequence([rows(i) for i in range(MI)])

    if FLOAT32:

        @cuda.jit(device=True, forceinline=True)
        def add(acc, a, at, words):
            big = cuda.local.array(WORDS, float32)
            small = cuda.local.array(WORDS, float32)
            for e in range(WORDS):
                big[e] = upper(words[e])
                small[e] = words[e] - big[e]
            all_rows(acc, a, at, big, small)

    else:

        @cuda.jit(device=True, forceinline=True)
        def add(acc, a, at, words):
            all_rows(acc, a, at, words, words)

    return WarpTile(M, N, 0, 4 * MI * NJ, 2, zeros(4 * MI * NJ, float32), add, *lanes_of(NJ))
