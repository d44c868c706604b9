"""All lags of a row at once, on tensor cores: how rows are cut, how they come to shared memory, and a warp's products.

16 neighbouring times are a row of a matrix. With A[m, k] = dy[16 k + m] and B[k, n] = x[16 k + n + offset], element
(m, n) of A B sums up dy[t] x[t + n - m + offset] over the times with t % 16 = m. Neither matrix is made: 16 times lie
in shared memory as they came, PITCH elements apart, whatever operand reads them, and zeros beyond a row.
"""

from __future__ import annotations

import functools
from collections import namedtuple

from numba import float32, int32, int64, uint16, uint32, uint64

from dwlab.kernels.parts import constants, fragments, ptx
from dwlab.kernels.parts.mma_tf32 import upper
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.target import cuda

EDGE = 16  # times of a row of the matrices
PITCH = 24  # elements from one to the next in shared memory: no bank conflict for either operand
WARPS = 4  # of a block, about
TIMES = {"float32": 1024, "float16": 2048, "bfloat16": 2048}  # of a tile
MOST = {"float32": 192, "float16": 384, "bfloat16": 384}  # rows of x, halo and all, that are in flight at once

Plan = namedtuple(
    "Plan",
    "dtype L tiles across deep threads span side pieces taps width depth words held own wide x_at lines reach last",
)
"""How rows are cut. tiles: of 8 columns of a warp; across, deep: warps beside each other in columns, in times; span:
16 times each of a tile's row; side: rows of a tile; pieces: of a row; taps: of a block.

width, held: words and elements of a thread's load; depth: 16 times each of a product; words: from 16 times to the next;
own, wide: 16 times each of a tile of dy, of x with its halo; x_at: the word where x begins; lines: words of a row of
the sums; last: the column of x of time 0 that the block's last tap pairs with dy's; reach: from dy's end to that."""


def useful(L, K, shift):
    """The taps that pair two times of one row: from, and up to."""
    return max(0, shift - L + 1), min(K, shift + L)


@functools.cache
def plan_of(L, K, shift, dtype):
    """The Plan of rows of L times and K taps, all of them useful."""
    WIDE = dtype == "float32"
    chunks = -(-K // (128 * 4 - EDGE + 1 - 8))
    taps = K if chunks == 1 else -(-K // (8 * chunks)) * 8
    width = 4 if WIDE and L % 4 == 0 else 1
    pad = (shift - taps + 1) % width  # so that x, too, begins with a vector
    columns = -(-(taps + EDGE - 1 + pad) // 8)
    across = -(-columns // 16)
    tiles, deep = -(-columns // (2 * across)) * 2, max(1, WARPS // across)
    edges, most = -(-L // EDGE), TIMES[dtype] // EDGE
    span, halo = -(-edges // -(-edges // most)), tiles * across // 2 - 1
    side = max(1, min(most // span, MOST[dtype] // (span + halo)))
    depth, words = (8, PITCH) if WIDE else (16, PITCH // 2)
    own = -(-side * span // depth) * depth
    return Plan(
        dtype, L, tiles, across, deep, 32 * across * deep, span, side, -(-edges // span), taps, width, depth, words,
        width if WIDE else 2, own, side * (span + halo), own * words, 8 * tiles * across + 8, taps + pad + L - 2,
        taps - 1 + pad,
    )  # fmt: skip


def value(dtype):
    """The type of a loaded element."""
    return float32 if dtype == "float32" else uint16


def staging(one, edges, total):
    """rounds, load and store: of a tile's rows `edges` times 16 times, `total` of these with what is left of the tile.

    load(values, to, array, row, pitch, there, begin): a thread's elements, as they are, from time `begin` of each row
    on, zeros beyond it; row: the first one's first element, pitch: from one to the next, there: rows that there are.
    store(tile, at, values, to): to word `at` of the tile and on.
    """
    WIDE, WIDTH, HELD, VALUE, L, words = one.dtype == "float32", one.width, one.held, value(one.dtype), one.L, one.words
    line = EDGE // HELD  # threads for 16 times
    rounds, left = -(-total * line // one.threads), total * line % one.threads or one.threads
    step = one.threads // line  # so many times 16 times further in the next round

    @cuda.jit(device=True, forceinline=True)
    def word(values, to, array, at, i, t, there):
        if WIDTH == 4:
            values[to] = values[to + 1] = values[to + 2] = values[to + 3] = float32(0)
            if there and t < uint32(L):
                values[to], values[to + 1], values[to + 2], values[to + 3] = ptx.load4(array, at + uint64(i))
        else:
            for e in range(HELD):
                value = VALUE(0)
                if there and uint32(t + uint32(e)) < uint32(L):
                    value = array[at + uint64(uint32(i + uint32(e)))]
                values[to + e] = value

    @cuda.jit(device=True, forceinline=True)
    def load_rows(values, to, array, row, pitch, there, begin):
        thread = uint32(cuda.threadIdx.x)
        edge, t0 = uint32(thread // uint32(line)), uint32(begin + uint32(HELD) * (thread % uint32(line)))
        for m in range(rounds):
            here = uint32(edge + uint32(m * step))
            r = uint32(here // uint32(edges))
            t = uint32(t0 + uint32(EDGE) * uint32(here - r * uint32(edges)))
            word(values, to + HELD * m, array, row, uint32(r * pitch + t), t, r < there)

    @cuda.jit(device=True, forceinline=True)
    def load_row(values, to, array, row, pitch, there, begin):
        """The same of one row, in which a thread's elements lie at equal distances."""
        first = uint32(uint32(HELD) * uint32(cuda.threadIdx.x))
        t = uint32(begin + first)
        at = row + uint64(int64(int32(t)))  # may be before the row, where nothing is loaded
        for m in range(rounds):
            on = HELD * one.threads * m
            inside = on + HELD * one.threads <= EDGE * edges or uint32(first + uint32(on)) < uint32(EDGE * edges)
            word(values, to + HELD * m, array, at, uint32(on), uint32(t + uint32(on)), inside)

    @cuda.jit(device=True, forceinline=True)
    def store(tile, at, values, to):
        thread = uint32(cuda.threadIdx.x)
        at = uint32(at + thread // uint32(line) * uint32(words) + thread % uint32(line) * uint32(WIDTH))
        for m in range(rounds):
            here, v = uint32(at + uint32(m * step * words)), to + HELD * m
            if m < rounds - 1 or thread < uint32(left):
                if WIDTH == 4:
                    ptx.store4_shared(tile, here, values[v], values[v + 1], values[v + 2], values[v + 3])
                elif WIDE:
                    tile[here] = values[v]
                else:
                    two = int32(uint32(values[v]) | uint32(values[v + 1]) << uint32(16))
                    tile[here] = cuda.libdevice.int_as_float(two)

    return constants.of(rounds=rounds, load=load_row if one.side == 1 else load_rows, store=store)


def multiplying(one):
    """multiply(acc, tile, dy_at, x_at, lane): a warp's products of 8 times 16 times, of 16 times 16 in 16 bits."""
    words, last, TILES = one.words, one.side * one.span - 1, one.tiles
    product, halo = fragments.accumulate(fragments.MMA[one.dtype]), one.wide // one.side - one.span

    @cuda.jit(device=True, forceinline=True)
    def place(k):
        """The word of the x that pairs with the k-th 16 times."""
        k = min(k, uint32(last))
        return uint32(uint32(k + uint32(k // uint32(one.span)) * uint32(halo)) * uint32(words))

    def together(first, count):
        """Some tiles' products, of which each of the three waits for the one before: so the tiles take turns."""

        @cuda.jit(device=True, forceinline=True)
        def together(acc, tile, big, small, low, high):
            b = cuda.local.array(8, float32)
            rest = cuda.local.array(8, float32)
            part = cuda.local.array(16, float32)
            for i in range(count):
                at = uint32((first + i) // 2 * words + (first + i) % 2 * 8)
                b[2 * i], b[2 * i + 1] = tile[uint32(low + at)], tile[uint32(high + at)]
            for e in range(2 * count):
                value = b[e]
                b[e] = upper(value)
                rest[e] = value - b[e]
            for e in range(4 * count):
                part[e] = float32(0)
            for i in range(count):
                product(part, 4 * i, small, 0, b[2 * i], b[2 * i + 1])
            for i in range(count):
                product(part, 4 * i, big, 0, rest[2 * i], rest[2 * i + 1])
            for i in range(count):
                product(part, 4 * i, big, 0, b[2 * i], b[2 * i + 1])
            for e in range(4 * count):
                acc[4 * first + e] += part[e]

        return together

    every = in_sequence([together(first, min(4, TILES - first)) for first in range(0, TILES, 4)])

    @cuda.jit(device=True, forceinline=True)
    def multiply_words(acc, tile, k0, x_at, lane):
        big = cuda.local.array(4, float32)
        small = cuda.local.array(4, float32)
        g, k = uint32(lane // uint32(4)), uint32(k0 + lane % uint32(4))
        at = uint32(k * uint32(words) + g)
        big[0], big[1] = tile[at], tile[uint32(at + uint32(8))]
        big[2], big[3] = tile[uint32(at + uint32(4 * words))], tile[uint32(at + uint32(4 * words + 8))]
        for e in range(4):
            value = big[e]
            big[e] = upper(value)
            small[e] = value - big[e]
        low, high = uint32(x_at + place(k) + g), uint32(x_at + place(uint32(k + uint32(4))) + g)
        every(acc, tile, big, small, low, high)

    @cuda.jit(device=True, forceinline=True)
    def multiply_halves(acc, tile, k0, x_at, lane):
        a = cuda.local.array(4, float32)
        b = cuda.local.array(4, float32)
        eight, second, row = uint32(lane // uint32(8) % uint32(2)), uint32(lane // uint32(16)), uint32(lane % uint32(8))
        at = uint32(uint32(k0 + second * uint32(8) + row) * uint32(words) + eight * uint32(4))
        a[0], a[1], a[2], a[3] = ptx.ldmatrix_x4_trans(tile, at)
        at = uint32(x_at + place(uint32(k0 + eight * uint32(8) + row)) + second * uint32(4))
        for i in range(0, TILES, 2):
            b[0], b[1], b[2], b[3] = ptx.ldmatrix_x4_trans(tile, uint32(at + uint32(i // 2 * words)))
            product(acc, 4 * i, a, 0, b[0], b[1])
            product(acc, 4 * i + 4, a, 0, b[2], b[3])

    return multiply_words if one.dtype == "float32" else multiply_halves
