"""Operands of mma.sync out of shared memory, and which of a warp's sums lies in which lane.

Operands are read by ldmatrix, four 8 x 8 matrices of 16-bit elements at a time; of float32 and int8 a matrix is 8 rows
of 4 words just the same (parts/ptx.py has the table of lanes). Rows lie as swizzle.place says.
"""

from __future__ import annotations

from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.swizzle import swizzle
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.target import cuda

MMA = {"float32": ptx.mma_tf32, "float16": ptx.mma_f16, "bfloat16": ptx.mma_bf16}
STEPS = {"float32": 8, "float16": 16, "bfloat16": 16, "int8": 32}  # of K: 8 words, one mma


def load_a(MI: int, pitch: int) -> Any:
    """load(words, a, a0, lane, s): a0 to a3 of each 16 rows, of step s, 8 words along k."""
    shift, mask = swizzle(pitch)  # a warp's first row is a multiple of 8: the lane alone says what changes places

    @cuda.jit(device=True, forceinline=True)
    def load(words, a, a0, lane, s):
        vector = uint32((lane // uint32(16)) ^ (lane >> uint32(shift) & uint32(mask)) ^ uint32(2 * s))
        at = uint32(uint32(a0) + (lane % uint32(16)) * uint32(pitch) + vector * uint32(4))
        for i in range(MI):
            v0, v1, v2, v3 = ptx.ldmatrix_x4(a, uint32(at + uint32(16 * pitch * i)))
            words[4 * i] = v0
            words[4 * i + 1] = v1
            words[4 * i + 2] = v2
            words[4 * i + 3] = v3

    return load


def load_b(pitch: int) -> Any:
    """load(words, b, b0, lane, s, j): b0 and b1 of columns 16 j to 16 j + 7, then of the 8 after them, of step s."""
    shift, mask = swizzle(pitch)

    @cuda.jit(device=True, forceinline=True)
    def load(words, b, b0, lane, s, j):
        n = uint32(lane % uint32(8) + lane // uint32(16) * uint32(8))
        vector = uint32((lane // uint32(8) % uint32(2)) ^ (lane >> uint32(shift) & uint32(mask)) ^ uint32(2 * s))
        at = uint32(uint32(b0) + n * uint32(pitch) + vector * uint32(4))
        words[0], words[1], words[2], words[3] = ptx.ldmatrix_x4(b, uint32(at + uint32(16 * pitch * j)))

    return load


def accumulate(mma: Any) -> Any:
    """accumulate(acc, c, a, i, b0, b1): acc[c] to acc[c + 3] += an mma of the words a[4 i] to a[4 i + 3], b0 and b1."""

    @cuda.jit(device=True, forceinline=True)
    def accumulate(acc, c, a, i, b0, b1):
        acc[c], acc[c + 1], acc[c + 2], acc[c + 3] = mma(
            acc[c], acc[c + 1], acc[c + 2], acc[c + 3], a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3], b0, b1
        )

    return accumulate


def lanes_of(NJ: int) -> tuple[Any, Any, Any]:
    """row, column and place (see WarpTile) of sums from tensor cores, NJ columns of 16 x 8 sums."""

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // 4 // NJ * 16 + i % 4 // 2 * 8) + lane // uint32(4))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(i // 4 % NJ * 8 + i % 2) + uint32(2) * (lane % uint32(4)))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // 4 // NJ * 16 + i % 4 // 2 * 8 + lane // 4, i // 4 % NJ * 8 + i % 2 + 2 * (lane % 4)

    return row, column, place


def fragment() -> WarpTile:
    """The 16 x 8 sums of one mma, for `each` and `fours`: of a warp that got them otherwise than by `add`."""
    return WarpTile(16, 8, 0, 4, 2, zeros(4, float32), None, *lanes_of(1))
