"""Flat: rows of any length as one line, of which a lane has 16-byte pieces, wherever rows end.

With few taps memory decides, and it is fast only in whole 16-byte pieces, which rows of 202 elements of 16 bits do not
consist of: `tiles` reads them one element a lane. Here x is one line of B*H*L elements. A lane loads a piece, 4
elements or 8 of 16 bits, and the neighbours that its sums need, which the L1 cache has from the lane beside it. The row
of its first element is a quotient, by one multiplication. A row may end in a piece: there the lane takes the next row's
filter, and what it has of the row before becomes 0, by selects (flat_rows.py); so no lane waits for another, and a NaN
stays in its row. Nothing passes through shared memory, and a lane has two pieces in flight.

Predicted, of (3072, 128, 202, 3) in bfloat16 on an H200: 159 MB each way, 77 µs of a copy. About 140 instructions for
8 elements are 310,000 warps of 140, 528 at a time at 1.7 GHz: 49 µs, behind the copy as long as warps enough are there.
Traffic: x and y once, the neighbours and two filters for each lane.
"""

from numba import float32, uint32

from dwlab.kernels.depthwise1d import flat_rows
from dwlab.kernels.depthwise1d.flat_rows import PIECES, quotient
from dwlab.kernels.parts import pieces
from dwlab.kernels.registry import by_shape, register
from dwlab.target import cuda


def kernel_of(K, SHIFT, DTYPE, reverse=False, PIECES=PIECES):
    """kernel(x, w, y, …): y[t] += w[j] * x[t + SHIFT - j]; with reverse w[K-1-j]. All arrays are lines of words."""
    EACH, (LEFT, RIGHT) = pieces.elements(DTYPE), flat_rows.neighbours(K, SHIFT, DTYPE)
    WORDS, BEFORE = LEFT + 4 + RIGHT, LEFT * EACH // 4
    ALL, TAPS, VALUES = PIECES * WORDS, PIECES * K, WORDS * EACH // 4
    BOTH = VALUES + WORDS
    fetch_left, fetch = flat_rows.fetch(LEFT, cut=False), flat_rows.fetch(4)
    fetch_right = flat_rows.fetch(RIGHT, cut=RIGHT > 1)
    filter_of, unpack = flat_rows.filter_of(K), pieces.unpack(VALUES, DTYPE)
    add, put = flat_rows.products(EACH, K, SHIFT, BEFORE, reverse), flat_rows.put(DTYPE)

    @cuda.jit
    def kernel(x, w, y, shift, length, by_length, half_length, channels, by_channels, half_channels):
        words = cuda.local.array(ALL, float32)
        first = cuda.local.array(TAPS, float32)  # the filters of a piece's first row, and of its last one
        last = cuda.local.array(TAPS, float32)
        t0 = cuda.local.array(PIECES, uint32)
        left = cuda.local.array(PIECES, uint32)
        sums = cuda.local.array(EACH, float32)
        values = cuda.local.array(BOTH, float32)
        stop = uint32(x.shape[0])
        begin = uint32(uint32(cuda.blockIdx.x) * uint32(PIECES) * cuda.blockDim.x + cuda.threadIdx.x)
        for m in range(PIECES):
            # a lane beyond the last piece loads that one
            piece = min(uint32(begin + uint32(m) * cuda.blockDim.x), uint32(uint32(stop - uint32(1)) // uint32(4)))
            word, element = uint32(piece * uint32(4)), uint32(piece * uint32(EACH))
            fetch_left(words, m * WORDS, x, uint32(word - uint32(LEFT)), stop)
            fetch(words, m * WORDS + LEFT, x, word, stop)
            fetch_right(words, m * WORDS + LEFT + 4, x, uint32(word + uint32(4)), stop)
            row = quotient(element, uint32(by_length), uint32(half_length))
            t0[m] = uint32(element - row * uint32(length))
            left[m] = uint32(uint32(length) - t0[m])
            h = uint32(row - quotient(row, uint32(by_channels), uint32(half_channels)) * uint32(channels))
            filter_of(first, m * K, w, h)
            if left[m] < EACH:
                h = uint32(h + uint32(1)) if uint32(h + uint32(1)) < uint32(channels) else uint32(0)
            filter_of(last, m * K, w, h)
        for m in range(PIECES):
            word = uint32(uint32(begin + uint32(m) * cuda.blockDim.x) * uint32(4))
            for i in range(WORDS):
                values[VALUES + i] = words[m * WORDS + i]
            unpack(values, 0, VALUES)
            for i in range(EACH):
                sums[i] = float32(0)
            add(sums, values, first, last, m * K, t0[m], left[m])
            if word < stop:
                put(y, word, stop, sums)

    return kernel


@by_shape
def kernel(K, SHIFT, DTYPE):
    return kernel_of(K, SHIFT, DTYPE)


def traffic(problem):
    return flat_rows.traffic(problem, problem.shift)


def supports(problem):
    return flat_rows.takes(problem)


@register(
    kernel=kernel, traffic=traffic, supports=supports, otherwise="depthwise1d/forward/tiles", aligned=16, view="words",
    needs={"bfloat16": ("join_bfloats",)},
)  # fmt: skip
def launch(problem):
    return flat_rows.launch(problem)
