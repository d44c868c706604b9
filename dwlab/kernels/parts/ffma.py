"""A warp's tile by multiply-adds of float32: TM x TN sums a lane, operands read 16 bytes at a time.

For each 4 terms a lane reads TM + TN vectors of 16 bytes and does 4 TM TN multiply-adds. A multiprocessor issues 128
lanes' FFMA and moves 128 bytes of shared memory each cycle, so 8 x 8 is bound by FFMA, 4 x 4 by shared memory.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.target import cuda


@functools.cache
def ffma(TM: int, TN: int, LM: int, K: int, a_pitch: int, b_pitch: int, interleave: int = 0) -> WarpTile:
    """TM x TN sums of each lane, LM lanes along the rows and 32 / LM along the columns; float32.

    M = TM * LM, N = TN * 32 / LM. TM, TN and K are multiples of 4. acc[TN * i + j] is row LM * i + lm and column
    4 * (j // 4 * LN + ln) + j % 4 of lane LN * lm + ln; run is 4. A(m, k) is word a0 + m * a_pitch + k. A read of a
    warp has no conflict.

    interleave: columns of B are rows of shared memory, their k next to each other, and interleaved, column 4 * q + e
    in row interleave * e + q, so that lanes with a distance of four columns read neighbouring rows. 0: rows are k, the
    columns of B next to each other.
    """
    LN, RIGHT = 32 // LM, 4 * TN
    if interleave and interleave < TN * LN // 4:
        raise ValueError(f"{interleave=} rows are fewer than a fourth of the tile's columns, {TN * LN}")
    if TM % 4 or TN % 4 or K % 4 or 32 % LM or a_pitch % 4 or b_pitch % 4:
        raise ValueError(f"{TM=}, {TN=}, {K=}, {a_pitch=} and {b_pitch=} must be multiples of 4, and {LM=} divide 32")

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // TN * LM) + lane // uint32(LN))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(4) * (uint32(i % TN // 4 * LN) + lane % uint32(LN)) + uint32(i % 4))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // TN * LM + lane // LN, 4 * (i % TN // 4 * LN + lane % LN) + i % 4

    @cuda.jit(device=True, forceinline=True)
    def load(right, b, bi):  # 4 k of the lane's columns: right[TN * k + j]
        for j in range(TN // 4):
            for e in range(4):
                if interleave:
                    v0, v1, v2, v3 = ptx.load4_shared(b, uint32(bi + uint32((interleave * e + LN * j) * b_pitch)))
                    right[4 * j + e] = v0
                    right[TN + 4 * j + e] = v1
                    right[2 * TN + 4 * j + e] = v2
                    right[3 * TN + 4 * j + e] = v3
                else:
                    v0, v1, v2, v3 = ptx.load4_shared(b, uint32(bi + uint32(e * b_pitch + 4 * LN * j)))
                    right[TN * e + 4 * j] = v0
                    right[TN * e + 4 * j + 1] = v1
                    right[TN * e + 4 * j + 2] = v2
                    right[TN * e + 4 * j + 3] = v3

    def products(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def products(acc, a, ai, right):
            v0, v1, v2, v3 = ptx.load4_shared(a, uint32(ai + uint32(i * LM * a_pitch)))
            for j in range(TN):
                acc[TN * i + j] += v0 * right[j]
            for j in range(TN):
                acc[TN * i + j] += v1 * right[TN + j]
            for j in range(TN):
                acc[TN * i + j] += v2 * right[2 * TN + j]
            for j in range(TN):
                acc[TN * i + j] += v3 * right[3 * TN + j]

        return products

    rows = in_sequence([products(i) for i in range(TM)])

    @cuda.jit(device=True, forceinline=True)
    def add(acc, a, a0, b, b0, lane):
        right = cuda.local.array(RIGHT, float32)
        ai = uint32(uint32(a0) + lane // uint32(LN) * uint32(a_pitch))
        bi = uint32(uint32(b0) + lane % uint32(LN) * uint32(b_pitch if interleave else 4))
        for k in range(K // 4):
            load(right, b, uint32(bi + uint32(4 * k * (1 if interleave else b_pitch))))
            rows(acc, a, uint32(ai + uint32(4 * k)), right)

    return WarpTile(TM * LM, TN * LN, K, TM * TN, 4, zeros(TM * TN), add, row, column, place)
