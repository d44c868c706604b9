"""A warp's product with sparse filters on tensor cores: filters from shared memory in 2:4, x of their columns.

The sparse operand of the instruction is its A, whose 16 rows here are filters; its columns are 8 pixels. Which filter
is which row is free: with MI instructions' rows in a warp's tile, row r of the i-th is filter 2 MI (r % 8) + 2 i +
r // 8 (`filter_of`). So a lane's sums of a pixel are 2 MI neighbouring filters, which it stores at once
(parts/run_epilogue.py), without a word to another lane.

Filters' weights lie in shared memory in the order of rows, 8 words for 32 kept columns; words of metadata, one for
these, in the same order. Two instructions share a register of metadata, by their selectors.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int32, uint32

from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.fragments import load_a, load_b
from dwlab.kernels.parts.swizzle import place, swizzle
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.target import cuda


def filter_of(MI: int, line: Any) -> Any:
    """The filter, from the warp's tile's first one on, that is row `line` of 16 MI; of a number or an array."""
    return 2 * MI * (line % 8) + line // 16 * 2 + line // 8 % 2


@functools.cache
def filter_row(WF: int) -> Any:
    """filter_row(line): the filter that is a block's row `line` in shared memory, warps' tiles of WF one by one."""
    MI = WF // 16

    @cuda.jit(device=True, forceinline=True)
    def filter_row(line):
        of = uint32(line % uint32(WF))
        inner = uint32(of % uint32(8) * uint32(2 * MI) + of // uint32(16) * uint32(2) + of // uint32(8) % uint32(2))
        return uint32(line - of + inner)

    return filter_row


@cuda.jit(device=True, forceinline=True)
def _lower(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, places):
    return ptx.mma_sp_f16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, places, 0)


@cuda.jit(device=True, forceinline=True)
def _upper(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, places):
    return ptx.mma_sp_f16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, places, 1)


@functools.cache
def mma_sparse(M: int, N: int, steps: int, form: Any, x_pitch: int, e_pitch: int, rows: bool = False) -> WarpTile:
    """M pixels x N filters, 16 MI = N of 16, 32 or 64, of `steps` times 32 kept columns a call.

    add(acc, shared, x0, w0, e0, c0, lane): x0, w0, e0, c0 the words at which the warp's pixels, weights, metadata and
    columns begin. acc[2 MI j + e] is filter 2 MI (lane // 4) + e of pixel 8 (j // 2) + 2 (lane % 4) + j % 2. Pixels are
    rows of x_pitch words, swizzled (swizzle.place); M is a multiple of 16. A step's metadata are e_pitch words after
    those of the step before.
    rows: x lies by columns instead, each kept one a row of x_pitch words of pixels, swizzled; x0 is the first one's
    word, c0 how many words of a row are before the warp's pixels, a multiple of 4.
    """
    MI, NJ, RUN = N // 16, M // 8, N // 8
    products = in_sequence([_step(s, MI, NJ, steps, form, x_pitch, e_pitch, rows) for s in range(steps)])

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // RUN // 2 * 8 + i // RUN % 2) + uint32(2) * (lane % uint32(4)))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(i % RUN) + uint32(RUN) * (lane // uint32(4)))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // RUN // 2 * 8 + i // RUN % 2 + 2 * (lane % 4), i % RUN + RUN * (lane // 4)

    size = 2 * RUN * NJ
    return WarpTile(M, N, 0, size, RUN, zeros(size, float32), products, row, column, place)


def _step(s: int, MI: int, NJ: int, steps: int, form: Any, x_pitch: int, e_pitch: int, ROWS: bool) -> Any:
    """The products of 32 kept columns: metadata and weights are read, then pixels, 16 at a time."""
    load_w, load_x, LEFT, RUN, PAIRS = load_a(MI, 8 * steps), load_b(x_pitch), 4 * MI, 2 * MI, -(-MI // 2)
    (find, take), CHOOSES, place_x = _chosen(s, form, x_pitch), form.M > form.columns, place(x_pitch)

    def rows(i: int) -> Any:
        mma = _upper if i % 2 else _lower

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, j, left, right, first, places):
            c = 2 * RUN * j + 2 * i
            acc[c], acc[c + RUN], acc[c + 1], acc[c + RUN + 1] = mma(
                acc[c], acc[c + RUN], acc[c + 1], acc[c + RUN + 1], left[4 * i], left[4 * i + 1], left[4 * i + 2],
                left[4 * i + 3], right[first], right[first + 1], right[first + 2], right[first + 3], places[i // 2]
            )  # fmt: skip

        return rows

    product = in_sequence([rows(i) for i in range(MI)])

    @cuda.jit(device=True, forceinline=True)
    def step(acc, shared, x0, w0, e0, c0, lane):
        left = cuda.local.array(LEFT, float32)
        right = cuda.local.array(8, float32)
        four = cuda.local.array(4, float32)
        places = cuda.local.array(PAIRS, int32)
        columns = cuda.local.array(8, int32)
        g, t = uint32(lane // uint32(4)), uint32(lane % uint32(4))
        load_w(left, shared, w0, lane, s)
        half = int32(0x7632) if t % uint32(2) else int32(0x5410)
        for p in range(PAIRS):  # lanes with t = 2 and 3 hold the second instruction's
            line = uint32(uint32(32 * p) + (t // uint32(2) * uint32(16) if MI > 1 else uint32(0)) + g)
            at = uint32(e0 + uint32(s * e_pitch) + line)
            low, high = shared[at], shared[uint32(at + uint32(8))]
            places[p] = ptx.prmt(ptx.word_of_float(low), ptx.word_of_float(high), half)
        if ROWS:
            for j in range(NJ):
                at = uint32(x0 + place_x(uint32(uint32(32 * s) + lane), uint32(c0 + uint32(4 * j))))
                right[0], right[1], right[2], right[3] = ptx.ldmatrix_x4_trans(shared, at)
                product(acc, j, left, right, 0, places)
        elif CHOOSES:
            find(columns, shared, c0, g, t)
            for j in range(NJ):
                take(right, shared, uint32(x0 + (uint32(8 * j) + g) * uint32(x_pitch)), columns)
                product(acc, j, left, right, 0, places)
        else:
            for j in range(NJ // 2):
                for h in range(2):
                    load_x(four, shared, x0, lane, 2 * s + h, j)
                    right[2 * h], right[2 * h + 1] = four[0], four[1]
                    right[4 + 2 * h], right[5 + 2 * h] = four[2], four[3]
                product(acc, 2 * j, left, right, 0, places)
                product(acc, 2 * j + 1, left, right, 4, places)

    return step


def _chosen(s: int, form: Any, x_pitch: int) -> tuple[Any, Any]:
    """(find, take): a lane's chosen columns, k = 2 t and 2 t + 1 of each 8 of step s, and its words of a pixel's.

    The lane's pixels, g, g + 8 and so on, are all swizzled alike: its columns are where that has put them.
    """
    M, COLUMNS, (shift, mask) = form.M, form.columns, swizzle(x_pitch)

    @cuda.jit(device=True, forceinline=True)
    def find(columns, shared, c0, g, t):
        moved = int32((g >> uint32(shift) & uint32(mask)) * uint32(8))  # 8 channels are a vector
        for q in range(4):
            k = uint32(uint32(32 * s + 8 * q) + uint32(2) * t)
            four = uint32(ptx.word_of_float(shared[uint32(c0 + k // uint32(4))]))
            two = uint32(four >> (k % uint32(4) * uint32(8)))
            base = uint32(k // uint32(COLUMNS) * uint32(M))
            columns[2 * q] = int32(base + (two & uint32(255))) ^ moved
            columns[2 * q + 1] = int32(base + (two >> uint32(8) & uint32(255))) ^ moved

    @cuda.jit(device=True, forceinline=True)
    def take(right, shared, x0, columns):
        for q in range(4):
            p, r = columns[2 * q], columns[2 * q + 1]
            low, high = shared[uint32(x0 + uint32(p >> int32(1)))], shared[uint32(x0 + uint32(r >> int32(1)))]
            half = int32(int32(0x5410) + (p & int32(1)) * int32(0x0022) + (r & int32(1)) * int32(0x2200))
            right[q] = ptx.float_of_word(ptx.prmt(ptx.word_of_float(low), ptx.word_of_float(high), half))

    return find, take
