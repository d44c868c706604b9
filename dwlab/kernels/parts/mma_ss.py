"""A warp's matrix product on tensor cores, both operands from shared memory (CUTLASS's "SS").

16 bits: one mma for each 16 x 8 of the tile and K of 16; float32: three for each K of 8, and some 3 instructions for
each operand's number to split it (parts/mma_tf32.py).

int8: a word is four of them, sums are int32 and exact: acc = cuda.local.array(SIZE, int32), SIZE = tile.size +
tile.more. What lies behind the sums is of the columns of B: int8 layers need sum (x - zero_x) w = sum x w - zero_x sum
w, so each lane adds up the words of B that it holds, with dp4a; parts/int8_epilogue.py makes int8 outputs of both.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int32

from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.fragments import MMA, STEPS, accumulate, lanes_of, load_a, load_b
from dwlab.kernels.parts.mma_tf32 import add_tf32, in_halves
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import Phases, WarpTile, zeros
from dwlab.target import cuda

ONES = 0x01010101  # four int8


def mma_ss(
    dtype: str, M: int, N: int, K: int, a_pitch: int, b_pitch: int, prefetch: bool = False, columns: bool = False,
    registers: int = 0,
) -> WarpTile:  # fmt: skip
    """M x N sums on tensor cores, of float32 (by three products of tf32), float16, bfloat16 or int8.

    M is a multiple of 16, N of 16, K of 8 (float32), 16, or 32 (int8). acc[4 * (N // 8 * i + j) + c] is row 16 i + g +
    c // 2 * 8 and column 8 j + 2 t + c % 2, g = lane // 4 and t = lane % 4; run is 2. All 32 lanes come together.

    prefetch: in 16 bits operands are read one step of K before their products. That takes (M + N) / 4 more registers,
    and a warp need not wait for shared memory; otherwise it does, and other warps must fill the time.
    columns: int8, the sums of B's columns too; without it they are left 0.
    registers: float32, that a thread has for it (`in_halves`); 0: steps stay whole, whatever spills.
    """
    step = STEPS[dtype]
    if M % 16 or N % 16 or K % step:
        raise ValueError(f"{M=} and {N=} must be multiples of 16, {K=} of {step}")
    if a_pitch % 4 or b_pitch % 4:
        raise ValueError(f"{a_pitch=} and {b_pitch=} must be multiples of 4")
    halves = dtype == "float32" and registers > 0 and in_halves(M, N, registers)
    return _mma_ss(dtype, M, N, K, a_pitch, b_pitch, prefetch, columns, halves)


@functools.cache
def _mma_ss(
    dtype: str, M: int, N: int, K: int, a_pitch: int, b_pitch: int, prefetch: bool, columns: bool, halves: bool
) -> WarpTile:
    MI, NJ, steps = M // 16, N // 8, K // STEPS[dtype]
    operands, size, more, phases = (load_a(MI, a_pitch), load_b(b_pitch)), 4 * MI * NJ, 0, None
    zero = zeros(size, float32)
    if dtype == "float32":
        add = add_tf32(MI, NJ, steps, *operands, halves)
    else:
        product = accumulate(MMA[dtype]) if dtype != "int8" else _accumulate_int8(MI, NJ, columns)
        if dtype == "int8":
            more, zero = NJ, zeros(size + NJ, int32)
        add, phases = (_prefetched if prefetch else _in_order)(MI, NJ, steps, *operands, product)
    return WarpTile(M, N, K, size, 2, zero, add, *lanes_of(NJ), more, phases or _as_one_phase(add))


def _accumulate_int8(MI: int, NJ: int, columns: bool) -> Any:
    """`accumulate` of int8; columns: and of the words of B's columns, once each, behind the sums."""
    product, BEHIND, FIRST = accumulate(_mma_words), 4 * MI * NJ, 4 * NJ

    @cuda.jit(device=True, forceinline=True)
    def with_columns(acc, c, a, i, b0, b1):
        product(acc, c, a, i, b0, b1)
        if columns and c < FIRST:  # the first rows' products read each word of B once
            j = BEHIND + c // 4
            acc[j] = ptx.dp4a(ptx.word_of_float(b0), int32(ONES), acc[j])
            acc[j] = ptx.dp4a(ptx.word_of_float(b1), int32(ONES), acc[j])

    return with_columns


@cuda.jit(device=True, forceinline=True)
def _mma_words(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """ptx.mma_s8 of operands that are words of a float32 array."""
    return ptx.mma_s8(
        c0, c1, c2, c3, ptx.word_of_float(a0), ptx.word_of_float(a1), ptx.word_of_float(a2), ptx.word_of_float(a3),
        ptx.word_of_float(b0), ptx.word_of_float(b1),
    )  # fmt: skip


def _in_order(MI: int, NJ: int, steps: int, load_a: Any, load_b: Any, product: Any) -> Any:
    """add: each step's operands are read, then multiplied."""
    LEFT = 4 * MI

    @cuda.jit(device=True, forceinline=True)
    def add(acc, a, a0, b, b0, lane):
        left = cuda.local.array(LEFT, float32)
        words = cuda.local.array(4, float32)
        for s in range(steps):
            load_a(left, a, a0, lane, s)
            for j in range(NJ // 2):
                load_b(words, b, b0, lane, s, j)
                for h in range(2):
                    for i in range(MI):
                        product(acc, 4 * (NJ * i + 2 * j + h), left, i, words[2 * h], words[2 * h + 1])

    return add, None


def _prefetched(MI: int, NJ: int, steps: int, load_a: Any, load_b: Any, product: Any) -> Any:
    """add of which the operands of a step are read before the products of the step before, and its Phases.

    Without that each read would be followed by the four products that need it: a warp would wait for shared memory as
    often as it reads. With it a read has a whole step's products, 8 cycles each, to come. Registers for two steps.
    """
    LEFT, EACH = 4 * MI, 4 * MI + 2 * NJ  # words of a step

    def reads(s: int) -> Any:
        o = s % 2 * EACH

        @cuda.jit(device=True, forceinline=True)
        def reads(acc, words, a, a0, b, b0, lane):
            left = cuda.local.array(LEFT, float32)
            four = cuda.local.array(4, float32)
            load_a(left, a, a0, lane, s)
            for i in range(LEFT):
                words[o + i] = left[i]
            for j in range(NJ // 2):
                load_b(four, b, b0, lane, s, j)
                for e in range(4):
                    words[o + LEFT + 4 * j + e] = four[e]

        return reads

    def products(s: int, i: int) -> Any:
        o = s % 2 * EACH

        @cuda.jit(device=True, forceinline=True)
        def products(acc, words, a, a0, b, b0, lane):
            left = cuda.local.array(4, float32)
            for e in range(4):
                left[e] = words[o + 4 * i + e]
            for j in range(NJ):
                at = o + LEFT + 2 * j
                product(acc, 4 * (NJ * i + j), left, 0, words[at], words[at + 1])

        return products

    most, last = [], [products(steps - 1, i) for i in range(MI)]
    for s in range(steps - 1):
        most += [reads(s + 1)] + [products(s, i) for i in range(MI)]
    every = in_sequence([reads(0), *most, *last])
    WORDS = EACH * min(2, steps)

    @cuda.jit(device=True, forceinline=True)
    def add(acc, a, a0, b, b0, lane):
        words = cuda.local.array(WORDS, float32)
        every(acc, words, a, a0, b, b0, lane)

    if steps % 2:
        return add, None
    return add, Phases(WORDS, reads(0), in_sequence(most), in_sequence(last))


def _as_one_phase(add: Any) -> Phases:
    """`add` as phases of which one is all."""

    @cuda.jit(device=True, forceinline=True)
    def nothing(acc, held, a, a0, b, b0, lane):
        pass

    @cuda.jit(device=True, forceinline=True)
    def most(acc, held, a, a0, b, b0, lane):
        add(acc, a, a0, b, b0, lane)

    return Phases(1, nothing, most, nothing)
