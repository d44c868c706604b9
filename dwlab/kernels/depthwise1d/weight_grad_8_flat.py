"""Flat: rows of any length in 16-byte pieces of the line that all of them make, few taps, sums in registers.

A block has a channel, whose rows lie H*L elements apart, and its lanes share their pieces (row_pieces.py). A lane loads
4 or 8 elements of dy in one instruction, as many of x and the neighbours that its products need, which the L1 cache
has from the lane beside it. A row begins and ends anywhere in a piece: what is not of this row becomes 0, of dy and of
x, so a NaN stays in its row; only pieces at a row's ends take that way. Each lane adds up the products of all K taps, K
sums in registers to the end, then lanes and warps meet as in `strips`. Blocks share a channel where there are few of
them, and a second kernel adds up their parts: the same bits in every run. A dy that is not finite meets those zeros at
a row's ends, as in `strips`.

Predicted, of (1, 12288, 16384, 4) in float32 on an H200: dy and x once, 1.61 GB, 390 µs; 16 multiply-adds and some 40
instructions a piece of 32 bytes are 100 µs of issue slots.
Traffic: dy and x once, a piece that two rows share twice, the neighbours, and the parts.
"""

from numba import float32, int32, uint32

from dwlab.kernels.depthwise1d import channel_strips, row_pieces
from dwlab.kernels.depthwise1d.flat_rows import quotient
from dwlab.kernels.depthwise1d.row_pieces import PITCH, POOL, WARPS
from dwlab.kernels.parts import pieces
from dwlab.kernels.registry import by_shape, register
from dwlab.kernels.traffic import Traffic
from dwlab.target import cuda


@by_shape
def kernel(K, SHIFT, DTYPE):
    EACH, (WORDS, OWN, NEAR) = pieces.elements(DTYPE), row_pieces.sizes(K, SHIFT, DTYPE)
    load, add_products = row_pieces.load(K, SHIFT, DTYPE), row_pieces.add_products(K, SHIFT, DTYPE)
    add_warps = channel_strips.add_warps(K, PITCH, reverse=True)  # x[t + SHIFT - (K - 1 - j)] is of tap K - 1 - j

    @cuda.jit
    def kernel(dy, x, parts, shift, length, entries, each_row, by_each_row, half_each_row):
        pool = cuda.shared.array(POOL, float32)
        sums = cuda.local.array(K, float32)
        words = cuda.local.array(WORDS, float32)
        near = cuda.local.array(NEAR, float32)
        own = cuda.local.array(OWN, float32)
        lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        splits, channels, stop = uint32(parts.shape[0]), uint32(parts.shape[1]), uint32(x.shape[0])
        part = uint32(uint32(cuda.blockIdx.x) // channels)
        h = uint32(uint32(cuda.blockIdx.x) - part * channels)
        item = uint32(uint32(part * uint32(32 * WARPS)) + uint32(32) * warp + lane)
        for j in range(K):
            sums[j] = float32(0)
        while item < uint32(uint32(entries) * uint32(each_row)):
            b = quotient(item, uint32(by_each_row), uint32(half_each_row))
            row = uint32(uint32(b * channels + h) * uint32(length))  # its first element
            piece = uint32(uint32(row // uint32(EACH)) + uint32(item - b * uint32(each_row)))
            t0 = int32(uint32(piece * uint32(EACH) - row))  # of the piece's first element in the row, or before it
            if t0 < int32(length):
                load(words, own, near, x, dy, uint32(piece * uint32(4)), stop)
                add_products(sums, own, near, t0, int32(length))
            item = uint32(item + splits * uint32(32 * WARPS))
        add_warps(sums, pool, parts, part, h, lane, warp, WARPS)

    return kernel


def traffic(problem):
    return Traffic(*row_pieces.loads(problem, problem.shift).tolist(), *row_pieces.sums(problem).tolist())


@register(
    kernel=kernel, traffic=traffic, supports=row_pieces.takes, otherwise="depthwise1d/weight_grad/tiles", aligned=16,
    view="words",
)  # fmt: skip
def launch(problem):
    return row_pieces.launch(problem)
