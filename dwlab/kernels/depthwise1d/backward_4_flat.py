"""Flat: both gradients of rows of any length from one pass over dy and x, with few taps.

dx[s] = sum_j w[j] * dy[s + BACK - (K-1-j)] and dw[j] = sum_s x[s] * dy[s + BACK - (K-1-j)] need the same dy beside
element s. So a lane that has a piece of x, the piece of dy and its neighbours (weight_grad's `flat` has those of x) has
all that both need: input_grad's and weight_grad's two passes become one of three arrays in place of four. A piece
belongs to the row of its first element: that row's lane stores its dx whole, the next row's elements with the next
channel's filter, which is the block's second one; to dw each row's lane adds its own elements alone, in an order that
is always the same: deterministic. An x that is not finite meets zeros at a row's ends.

Predicted, of (1, 12288, 16384, 4) on an H200: 2.42 GB in float32, 585 µs of a copy; half of it in 16 bits.
Traffic: dy and x once, a piece that two rows share twice, the neighbours; dx once; two filters a warp, the parts.
"""

import math

from numba import float32, int32, uint32

from dwlab.kernels.depthwise1d import channel_strips, flat_rows, row_pieces
from dwlab.kernels.depthwise1d.flat_rows import quotient
from dwlab.kernels.depthwise1d.row_pieces import PITCH, POOL, WARPS
from dwlab.kernels.parts import pieces
from dwlab.kernels.registry import by_shape, register, short
from dwlab.kernels.traffic import Traffic
from dwlab.target import cuda


@by_shape
def kernel(K, SHIFT, DTYPE):
    BACK = K - 1 - SHIFT
    EACH, (WORDS, OWN, NEAR) = pieces.elements(DTYPE), row_pieces.sizes(K, BACK, DTYPE)
    load, add_products = row_pieces.load(K, BACK, DTYPE), row_pieces.add_products(K, BACK, DTYPE)
    convolve, store = row_pieces.convolve(K, BACK, DTYPE), flat_rows.store(DTYPE)
    load_filter, add_warps = flat_rows.load_filter(K), channel_strips.add_warps(K, PITCH)

    @cuda.jit
    def kernel(dy, x, w, dx, parts, shift, length, entries, each_row, by_each_row, half_each_row):
        pool = cuda.shared.array(POOL, float32)
        sums = cuda.local.array(K, float32)
        first = cuda.local.array(K, float32)  # this channel's filter, and the next row's
        other = cuda.local.array(K, float32)
        words = cuda.local.array(WORDS, float32)
        near = cuda.local.array(NEAR, float32)
        own = cuda.local.array(OWN, float32)
        found = cuda.local.array(EACH, float32)
        lane, warp = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        splits, channels, stop = uint32(parts.shape[0]), uint32(parts.shape[1]), uint32(x.shape[0])
        part = uint32(uint32(cuda.blockIdx.x) // channels)
        h = uint32(uint32(cuda.blockIdx.x) - part * channels)
        load_filter(first, w, h)
        load_filter(other, w, uint32(h + uint32(1)) if uint32(h + uint32(1)) < channels else uint32(0))
        item = uint32(uint32(part * uint32(32 * WARPS)) + uint32(32) * warp + lane)
        for j in range(K):
            sums[j] = float32(0)
        while item < uint32(uint32(entries) * uint32(each_row)):
            b = quotient(item, uint32(by_each_row), uint32(half_each_row))
            row = uint32(uint32(b * channels + h) * uint32(length))  # its first element
            piece = uint32(uint32(row // uint32(EACH)) + uint32(item - b * uint32(each_row)))
            word = uint32(piece * uint32(4))
            t0 = int32(uint32(piece * uint32(EACH) - row))  # of the piece's first element in the row, or before it
            if t0 < int32(length):
                load(words, own, near, dy, x, word, stop)
                if t0 >= 0:
                    convolve(found, words, first, other, t0, int32(length))
                    store(dx, word, stop, found)
                add_products(sums, own, near, t0, int32(length))
            item = uint32(item + splits * uint32(32 * WARPS))
        add_warps(sums, pool, parts, part, h, lane, warp, WARPS)

    return kernel


def traffic(problem):
    filters = 2 * WARPS * row_pieces.splits(problem) * problem.H * problem.K // math.gcd(problem.K, 4)
    loads = row_pieces.loads(problem, problem.left) + filters
    stores = row_pieces.moved(problem, 0, 4, begun=True) + row_pieces.sums(problem)
    return Traffic(*loads.tolist(), *stores.tolist())


@register(
    kernel=kernel, traffic=traffic, supports=lambda problem: row_pieces.takes(problem) and not short(problem),
    otherwise="depthwise1d/backward/naive", aligned=16, view="words", needs={"bfloat16": ("join_bfloats",)},
)  # fmt: skip
def launch(problem):
    return row_pieces.launch(problem)
