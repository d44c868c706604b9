"""Flat: rows of any length as one line, of which a lane has 16-byte pieces, wherever rows end.

With few taps memory decides, and it is fast only in whole 16-byte pieces, which rows of 202 elements of 16 bits do not
consist of: `tiles` reads them one element a lane. Here x is one line of B*H*L elements. A lane loads a piece, 4
elements or 8 of 16 bits, and the neighbours that its sums need, which the L1 cache has from the lane beside it. The row
of its first element is a quotient, by one multiplication. A row may end in a piece: there the lane takes the next row's
filter, and what it has of the row before becomes 0, by selects (flat_rows.py); so no lane waits for another, and a NaN
stays in its row. Nothing passes through shared memory; one piece a lane is enough where 64 warps wait for memory.
Of rows so short that more may end among a piece and its neighbours, L is in the kernel's text. There a lane adds up row
by row, each with its own filter, and has no neighbours where rows and pieces end together (L = 1, 2, 4).

Predicted, of (3072, 128, 202, 3) in bfloat16 on an H200: 159 MB each way, 77 µs of a copy. About 150 instructions for
8 elements are 310,000 warps of 150, 528 at a time at 1.7 GHz: 52 µs, behind the copy as long as warps enough are there.
Rows of 512 and more have a way of a third fewer for pieces that no row's end is near. Of (1448, 1001, 2, 1) in float32,
23 MB in the L2 cache: 22,600 warps of 90 are 2 µs, behind a copy's 6; 4.6 were measured.
The input gradient has its neighbours on the other side, and goes backwards through a piece where a row ends in it.
Deterministic. Traffic: x and y once, the neighbours and two filters for each lane, of short rows all of its piece.
"""

from numba import float32, uint32

from dwlab.kernels.depthwise1d import flat_rows
from dwlab.kernels.depthwise1d.flat_rows import LONG, quotient
from dwlab.kernels.parts import pieces
from dwlab.kernels.registry import by_shape, register
from dwlab.target import cuda


@by_shape
def kernel(K, SHIFT, DTYPE, REVERSE, SHORT, bias=False, activation="none"):
    """kernel(x, w, y, …): y[t] += w[j] * x[t + SHIFT - j]; with REVERSE w[K-1-j]. All arrays are lines of words.

    With bias that of a channel stands behind its K taps in w.
    """
    NEAR = (*flat_rows.needed(K, SHIFT, DTYPE, SHORT), DTYPE)
    EACH, WORDS = pieces.elements(DTYPE), 4 + sum(flat_rows.neighbours(*NEAR))
    TAPS, load, load_filter = K + bias, flat_rows.load(*NEAR), flat_rows.load_filter(K + bias)
    within, across = flat_rows.convolve(K, SHIFT, DTYPE, REVERSE, bias, activation)
    convolve_short = flat_rows.convolve_short(K, SHIFT, DTYPE, REVERSE, bias, activation, SHORT)
    store = flat_rows.store(DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift, length, by_length, half_length, channels, by_channels, half_channels):
        words = cuda.local.array(WORDS, float32)
        first = cuda.local.array(TAPS, float32)  # the filters of the piece's first row, and of its last one
        last = cuda.local.array(TAPS, float32)
        sums = cuda.local.array(EACH, float32)
        piece, stop = uint32(cuda.grid(1)), uint32(x.shape[0])
        word, element = uint32(piece * uint32(4)), uint32(piece * uint32(EACH))
        if word < stop:
            load(words, x, word, stop)
            row = quotient(element, uint32(by_length), uint32(half_length))
            t0 = uint32(element - row * uint32(length))  # the first element's place in its row,
            left = uint32(uint32(length) - t0)  # and how many this row still has
            h = uint32(row - quotient(row, uint32(by_channels), uint32(half_channels)) * uint32(channels))
            if SHORT:
                convolve_short(sums, words, w, t0, h, channels)
            else:
                load_filter(first, w, h)
                if uint32(length) >= LONG and t0 >= K - 1 - SHIFT and left >= EACH + SHIFT:
                    within(sums, words, first)
                else:
                    if left < EACH:
                        h = uint32(h + uint32(1)) if uint32(h + uint32(1)) < uint32(channels) else uint32(0)
                    load_filter(last, w, h)
                    across(sums, words, first, last, t0, left)
            store(y, word, stop, sums)

    return kernel


@register(
    kernel=kernel, traffic=flat_rows.traffic, supports=flat_rows.takes, otherwise="depthwise1d/{path}/tiles",
    aligned=16, view="words", needs={"bfloat16": ("join_bfloats",)},
)  # fmt: skip
def launch(problem, reverse):
    return flat_rows.launch(problem)
