"""The ladder of lessons 32 and 38: DWPW in float32, from two naive kernels to `slide`, one change a rung.

The kernels between them are one frame, whose phases change, for 3 x 3 taps at stride 1 in NHWC, C a multiple of 16 and
F one of 32: a block has 4 x 4 pixels of the map, whose depthwise outputs, all channels of them, lie in shared memory,
and F threads, of which each has 16 sums.
"""

import functools
from dataclasses import replace

from numba import float32, uint32

from dwlab.kernels.parts import epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.mma_tf32 import upper
from dwlab.kernels.parts.ptx_mma import mma_tf32
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch, by_shape, stage
from dwlab.target import cuda

SIDE, PIXELS = 4, 16  # of a block: the side of its square, and all


def frame(pair, depthwise, products, place, pitch):
    """A rung's kernel: depthwise outputs to shared memory, a barrier, products, and their sums to y.

    place(i) -> (pixel, filter) of a thread's sum i. pitch: words between pixels in shared memory.
    """
    WORDS, P, Q, F = PIXELS * pitch, pair.second.P, pair.second.Q, pair.second.F
    ACROSS, finish = -(-Q // SIDE), epilogue.finish(pair.second)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        middle = cuda.shared.array(WORDS, float32, 16)
        sums = cuda.local.array(PIXELS, float32)
        n, at = uint32(cuda.blockIdx.y), uint32(cuda.blockIdx.x)
        p0, q0 = uint32(at // ACROSS * SIDE), uint32(at % ACROSS * SIDE)
        for i in range(PIXELS):
            sums[i] = float32(0)
        depthwise(middle, x, w1, b1, r, n, p0, q0)
        products(sums, middle, w2)  # the barrier is its
        for i in range(PIXELS):
            pixel, f = place(i)
            p, q = uint32(p0 + pixel // SIDE), uint32(q0 + pixel % SIDE)
            if p < P and q < Q:
                to = uint32(((n * P + p) * Q + q) * F + f)
                y[to] = finish(sums[i], b2, r, f, to)

    return kernel


# -------------------------------------------------------------------------------------------------- the depthwise phase


def tap_by_tap(one, pitch):
    """depthwise(middle, x, w1, b1, r, n, p0, q0): an output of a channel after another, nine x and nine w1 each."""
    C, H, W, OUTPUTS, finish = one.C, one.H, one.W, PIXELS * one.C, epilogue.finish(one)

    @cuda.jit(device=True, forceinline=True)
    def depthwise(middle, x, w1, b1, r, n, p0, q0):
        for i in range(cuda.threadIdx.x, OUTPUTS, cuda.blockDim.x):
            c, pixel = uint32(uint32(i) % C), uint32(uint32(i) // C)
            total = float32(0)
            for j in range(9):
                h = uint32(p0 + pixel // SIDE + j // 3 - 1)  # above the map: wraps to a huge number
                v = uint32(q0 + pixel % SIDE + j % 3 - 1)
                if h < H and v < W:
                    total += w1[uint32(j * C + c)] * x[uint32(((n * H + h) * W + v) * C + c)]
            middle[uint32(pixel * pitch + c)] = finish(total, b1, r, c, 0)

    return depthwise


def down_a_column(one, pitch, written_out=True):
    """depthwise(…) again: a thread has a column of outputs of a channel. Each x of it is loaded once.

    written_out: whether each row of x has code of its own, in which its number is a constant.
    """
    C, H, W, COLUMNS, finish = one.C, one.H, one.W, SIDE * one.C, epilogue.finish(one)

    @cuda.jit(device=True, forceinline=True)
    def row(sums, taps, x, n, h0, v0, c, i):
        h = uint32(h0 + i)
        for j in range(3):
            v = uint32(v0 + j)
            if h < H and v < W:
                value = x[uint32(((n * H + h) * W + v) * C + c)]
                for k in range(max(0, i - 2), min(SIDE, i + 1)):  # the outputs that row i is part of
                    sums[k] += taps[(i - k) * 3 + j] * value

    @cuda.jit(device=True, forceinline=True)
    def in_a_loop(sums, taps, x, n, h0, v0, c):
        for i in range(SIDE + 2):
            row(sums, taps, x, n, h0, v0, c, i)

    def alone(i):
        @cuda.jit(device=True, forceinline=True)
        def alone(sums, taps, x, n, h0, v0, c):
            row(sums, taps, x, n, h0, v0, c, i)

        return alone

    rows = in_sequence([alone(i) for i in range(SIDE + 2)]) if written_out else in_a_loop

    @cuda.jit(device=True, forceinline=True)
    def depthwise(middle, x, w1, b1, r, n, p0, q0):
        taps = cuda.local.array(9, float32)
        sums = cuda.local.array(SIDE, float32)
        for i in range(cuda.threadIdx.x, COLUMNS, cuda.blockDim.x):
            c, q = uint32(uint32(i) % C), uint32(uint32(i) // C)
            for j in range(9):
                taps[j] = w1[uint32(j * C + c)]
            for k in range(SIDE):
                sums[k] = float32(0)
            rows(sums, taps, x, n, uint32(p0 - 1), uint32(q0 + q - 1), c)
            for k in range(SIDE):
                middle[uint32((k * SIDE + q) * pitch + c)] = finish(sums[k], b1, r, c, 0)

    return depthwise


# ---------------------------------------------------------------------------------------------------- the product phase


@cuda.jit(device=True, forceinline=True)
def of_a_filter(i):
    """place(i) of a thread that has a filter: its pixels one after another."""
    return uint32(i), uint32(cuda.threadIdx.x)


def sum_by_sum(C, pitch):
    """products(sums, middle, w2): a sum after another."""

    @cuda.jit(device=True, forceinline=True)
    def products(sums, middle, w2):
        f = uint32(cuda.threadIdx.x)
        cuda.syncthreads()
        for k in range(PIXELS):
            for c in range(C):
                sums[k] += w2[uint32(f * C + c)] * middle[uint32(k * pitch + c)]

    return products


def sums_that_stay(C, pitch):
    """products(…) with the loops exchanged: a weight serves all 16 sums."""

    @cuda.jit(device=True, forceinline=True)
    def products(sums, middle, w2):
        f = uint32(cuda.threadIdx.x)
        cuda.syncthreads()
        for c in range(C):
            weight = w2[uint32(f * C + c)]
            for k in range(PIXELS):
                sums[k] += weight * middle[uint32(k * pitch + c)]

    return products


def chunks_of_channels(C, pitch):
    """products(…) with four channels at a time: 16 bytes of w2, 16 of each pixel."""

    @cuda.jit(device=True, forceinline=True)
    def products(sums, middle, w2):
        f = uint32(cuda.threadIdx.x)
        cuda.syncthreads()
        for c in range(0, C, 4):
            a0, a1, a2, a3 = ptx.load4(w2, uint32(f * C + c))
            for k in range(PIXELS):
                v0, v1, v2, v3 = ptx.load4_shared(middle, uint32(k * pitch + c))
                sums[k] += a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3

    return products


# ------------------------------------------------------------------------------------------------------ on tensor cores


def mma_pitch(C):
    """Words between pixels: 16 more than a multiple of 32, so that eight lanes' vectors, of two rows, are all banks."""
    return -(-(C - 16) // 32) * 32 + 16


@cuda.jit(device=True, forceinline=True)
def three(sums, i, a0, a1, a2, a3, b0, b1):
    """sums[i : i + 4] += a b of 8 channels, in three products of tf32 as lesson 30 has them."""
    h0, h1, h2, h3, i0, i1 = upper(a0), upper(a1), upper(a2), upper(a3), upper(b0), upper(b1)
    c0 = c1 = c2 = c3 = float32(0)
    c0, c1, c2, c3 = mma_tf32(c0, c1, c2, c3, a0 - h0, a1 - h1, a2 - h2, a3 - h3, i0, i1)
    c0, c1, c2, c3 = mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, b0 - i0, b1 - i1)
    c0, c1, c2, c3 = mma_tf32(c0, c1, c2, c3, h0, h1, h2, h3, i0, i1)
    sums[i], sums[i + 1], sums[i + 2], sums[i + 3] = sums[i] + c0, sums[i + 1] + c1, sums[i + 2] + c2, sums[i + 3] + c3


@cuda.jit(device=True, forceinline=True)
def of_fragments(i):
    """place(i) of a lane's sums: a warp has 16 pixels of 32 filters, four products of 16 x 8."""
    thread = uint32(cuda.threadIdx.x)
    g, t = uint32(thread % 32 // 4), uint32(thread % 4)
    return uint32(g + i % 4 // 2 * 8), uint32(thread // 32 * 32 + i // 4 * 8 + 2 * t + i % 2)


def with_mma(C, pitch):
    """products(…) on tensor cores, 16 channels at a time. Lane t has channels 4 t to 4 t + 3 of both operands: which
    channels meet in an mma is all the same to a sum over all of them.
    """

    @cuda.jit(device=True, forceinline=True)
    def products(sums, middle, w2):
        thread = uint32(cuda.threadIdx.x)
        g, t = uint32(thread % 32 // 4), uint32(thread % 4)
        row = uint32((thread // 32 * 32 + g) * C + 4 * t)
        cuda.syncthreads()
        for c in range(0, C, 16):
            v0, v1, v2, v3 = ptx.load4_shared(middle, uint32(g * pitch + c + 4 * t))
            u0, u1, u2, u3 = ptx.load4_shared(middle, uint32((g + 8) * pitch + c + 4 * t))
            for j in range(4):
                a0, a1, a2, a3 = ptx.load4(w2, uint32(row + 8 * j * C + c))
                three(sums, 4 * j, v0, u0, v1, u1, a0, a1)
                three(sums, 4 * j, v2, u2, v3, u3, a2, a3)

    return products


def filters_ahead(C, pitch):
    """products(…) whose filters are requested a step before they are used, the first ones before the barrier."""

    @cuda.jit(device=True, forceinline=True)
    def products(sums, middle, w2):
        words = cuda.local.array(16, float32)
        thread = uint32(cuda.threadIdx.x)
        g, t = uint32(thread % 32 // 4), uint32(thread % 4)
        row = uint32((thread // 32 * 32 + g) * C + 4 * t)
        for j in range(4):
            i, at = 4 * j, uint32(row + 8 * j * C)
            words[i], words[i + 1], words[i + 2], words[i + 3] = ptx.load4(w2, at)
        cuda.syncthreads()
        for c in range(0, C, 16):
            v0, v1, v2, v3 = ptx.load4_shared(middle, uint32(g * pitch + c + 4 * t))
            u0, u1, u2, u3 = ptx.load4_shared(middle, uint32((g + 8) * pitch + c + 4 * t))
            for j in range(4):
                i, at = 4 * j, uint32(row + 8 * j * C + c + 16)
                three(sums, 4 * j, v0, u0, v1, u1, words[i], words[i + 1])
                three(sums, 4 * j, v2, u2, v3, u3, words[i + 2], words[i + 3])
                if c + 16 < C:
                    words[i], words[i + 1], words[i + 2], words[i + 3] = ptx.load4(w2, at)

    return products


# ------------------------------------------------------------------------------------------------------------ the rungs


def launch(pair):
    return Launch((-(-pair.second.P // SIDE) * -(-pair.second.Q // SIDE), pair.N), (pair.second.F,))


def rung(depthwise, products, place=of_a_filter, pitch_of=int):
    """The stage of a rung. pitch_of(C): words between pixels in shared memory."""

    def make(pair):
        C, pitch = pair.first.C, pitch_of(pair.first.C)
        return frame(pair, depthwise(pair.first, pitch), products(C, pitch), place, pitch)

    return replace(stage("fused/dwpw/naive"), kernel=by_shape(make), launch=launch)


def rungs():
    """name -> stage of each rung behind the first, which is two kernels."""
    in_loops = functools.partial(down_a_column, written_out=False)
    return {
        "one kernel": rung(tap_by_tap, sum_by_sum),
        "sums that stay": rung(tap_by_tap, sums_that_stay),
        "chunks of channels": rung(tap_by_tap, chunks_of_channels),
        "down a column": rung(in_loops, chunks_of_channels),
        "unrolled": rung(down_a_column, chunks_of_channels),
        "+ mma": rung(down_a_column, with_mma, of_fragments, mma_pitch),
        "+ filters ahead": rung(down_a_column, filters_ahead, of_fragments, mma_pitch),
        "slide": stage("fused/dwpw/slide"),
    }
