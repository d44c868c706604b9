"""Int8: a tile's x stays in shared memory as bytes, and groups of filters pass over it, through mma and dp4a; NHWC.

A block has a tile of outputs and what it reads between the layers, with its edge. It copies x of these pixels once, all
channels, then takes BN filters at a time: the first layer's products on tensor cores (`whole.Stream`), requantised and
stored as bytes in shared memory, where threads then slide down strips of the depthwise layer, 4 channels each, as in
depthwise2d (`strip`). What lies outside the map between the layers is no output of the first one but the second's
zero point: it is stored in its place.

The tile's edge is computed anew by its neighbours, and where there are few tiles several blocks take one, each for some
of the filters: they only read x again.

Traffic: x of a tile with its edge, for each part of the filters; w1 for each tile; w2, b and m for each strip; y once.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np
from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import blocks, ptx, whole
from dwlab.kernels.parts.int8_strips import ONES, as_words, loads, put, strip
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.tiling.tuned_for import MULTIPROCESSORS, REGISTERS, SHARED
from dwlab.kernels.traffic import Traffic, warp_traffic

START = 2000  # ns: until a block's first x has come
STARTED = 4
SHAPES = ((8, 8), (4, 8), (6, 14), (2, 14), (7, 7), (4, 4), (14, 14), (2, 8), (4, 14))  # of a tile of outputs
PRODUCTS = ((64, 32, 32), (32, 16, 32), (64, 16, 32), (128, 32, 32), (128, 16, 64))  # BN, WM, WN


@dataclass(frozen=True)
class Plan:
    """A block has TH x TW outputs of one of `parts` parts of the filters; its XH x XW pixels between the layers."""

    TH: int
    TW: int
    parts: int
    stream: whole.Stream  # of one group of filters
    groups: int
    K: int
    S: int

    @property
    def T(self):
        """Columns of a strip."""
        return 2 if self.K <= 3 and self.S == 1 and self.TW % 2 == 0 else 1

    @property
    def footprint(self):
        """(height, width) of the pixels that the tile reads."""
        return (self.TH - 1) * self.S + self.K, (self.TW - 1) * self.S + self.K

    @property
    def pitch(self):
        """Words between pixels of what is between the layers: lanes of neighbouring strips read other banks."""
        words = self.stream.BN // 4
        strips = np.arange(max(1, 32 // words))[:, None]  # of a warp, T * S pixels apart
        for pitch in range(words, words + 32, 4):
            if len(np.unique((strips * self.T * self.S * pitch + np.arange(words)) % 32)) == 32:
                return pitch
        return words

    @property
    def shared_bytes(self):
        """Of a block."""
        return 4 * (self.stream.x_words + self.stream.rows * self.pitch + self.stream.w_words)

    @property
    def rows(self):
        """Of a strip: the whole tile's if that leaves work for all threads, else fewer."""
        down = [rows for rows in range(self.TH, 0, -1) if self.TH % rows == 0]
        return next((rows for rows in down if self.strips(rows) >= self.stream.threads), down[-1])

    def strips(self, rows):
        """Of a block and group of filters, if they have so many rows."""
        return self.stream.BN // 4 * (self.TW // self.T) * (self.TH // rows)


@by_shape
def kernel(problem, images):
    plan, two = choose(problem, images), problem.second
    H, W, P, Q, S, PAD, C, F = two.H, two.W, two.P, two.Q, two.stride, two.padding, problem.first.C // 4, two.C // 4
    (XH, XW), TH, TW, T, ROWS, GROUPS = plan.footprint, plan.TH, plan.TW, plan.T, plan.rows, plan.groups
    ACROSS, DOWN, COLUMNS, STRIPS = -(-Q // TW), -(-P // TH), TW // T, plan.strips(plan.rows)
    EACH = blocks.piece(C)
    PIECES, (copy, zeros) = C // EACH, blocks.copies(EACH)
    stream, PITCH, MID = plan.stream, plan.stream.pitch, plan.pitch
    PIXELS, THREADS, BN, REST = stream.rows, stream.threads, stream.BN, stream.rest
    BETWEEN, W_AT = stream.x_words, stream.x_words + stream.rows * plan.pitch
    OUTSIDE = (two.zero_x % 256 * ONES + 2**31) % 2**32 - 2**31
    tile_layer = replace(two, N=1, H=XH, W=XW, padding=0)
    slide = strip(tile_layer, T, put, MID, F, Q * F)

    @cuda.jit(device=True, forceinline=True)
    def keep(pool, m, n, w0, w1, w2, w3):
        """Outputs of the first layer, or the zero point, to where the second finds its x. m: tile and pixel."""
        tile, i = uint32(m // uint32(PIXELS)), uint32(m % uint32(PIXELS))
        h = uint32(tile // uint32(ACROSS) % uint32(DOWN) * uint32(TH * S) + i // uint32(XW) - uint32(PAD))
        v = uint32(tile % uint32(ACROSS) * uint32(TW * S) + i % uint32(XW) - uint32(PAD))
        if h >= uint32(H) or v >= uint32(W):
            w0 = w1 = w2 = w3 = int32(OUTSIDE)
        v0, v1, v2, v3 = ptx.float_of_word(w0), ptx.float_of_word(w1), ptx.float_of_word(w2), ptx.float_of_word(w3)
        at = uint32(uint32(BETWEEN) + i * uint32(MID) + n % uint32(BN) // uint32(4))
        ptx.store4_shared(pool, at, v0, v1, v2, v3)

    begin, go = stream.functions(keep, parts=plan.parts * GROUPS)

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        ptx.grid_dependency_wait()
        pool = cuda.shared.array(0, float32, 16)  # x, what is between the layers, chunks of filters
        t, tile = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        f0 = uint32(uint32(cuda.blockIdx.y) * (GROUPS * BN))
        p0, q0, n = uint32(tile // ACROSS % DOWN * TH), uint32(tile % ACROSS * TW), uint32(tile // (ACROSS * DOWN))
        for i in range(t, PIXELS * PIECES, THREADS):
            pixel, c = uint32(uint32(i) // PIECES), uint32(uint32(i) % PIECES * EACH)
            h, v = uint32(p0 * S + pixel // XW - PAD), uint32(q0 * S + pixel % XW - PAD)
            at = uint32(pixel * PITCH + c)
            if pixel < XH * XW and h < H and v < W:
                copy(pool, at, x, uint32(((n * H + h) * W + v) * C + c))
            else:
                zeros(pool, at)
        begin(pool, uint32(W_AT), w1, b1, m1, f0, t)  # on their way while words are cleared
        for i in range(t, PIXELS * REST, THREADS):  # words beyond the last channel
            pool[uint32(uint32(i) // REST * PITCH + C + uint32(i) % REST)] = float32(0)
        for group in range(GROUPS):
            f = uint32(f0 + group * BN)
            go(pool, uint32(0), uint32(W_AT), w1, b1, m1, r, pool, f, uint32(tile * PIXELS), t)
            cuda.syncthreads()  # what is between the layers is there, and the chunks of filters are no longer needed
            if group + 1 < GROUPS:
                begin(pool, uint32(W_AT), w1, b1, m1, uint32(f + BN), t)
            for i in range(t, STRIPS, THREADS):
                c, place = uint32(uint32(i) % (BN // 4)), uint32(uint32(i) // (BN // 4))
                row, column, channels = uint32(place // COLUMNS * ROWS), uint32(place % COLUMNS * T), uint32(f // 4 + c)
                if channels < F and p0 + row < P and q0 + column < Q:
                    stop, limit = int32(min(uint32(row + ROWS), uint32(P - p0))), min(uint32(TW), uint32(Q - q0))
                    to = uint32(((n * P + p0 + row) * Q + q0 + column) * F + channels)
                    slide(pool, w2, b2, m2, r, y, uint32(BETWEEN), c, channels, int32(row), stop, column, limit, to)

    return kernel


def candidates(problem):
    """Plans that fit a problem."""
    one, two, found = problem.first, problem.second, []
    for TH, TW in SHAPES:
        pixels = ((TH - 1) * two.stride + two.K) * ((TW - 1) * two.stride + two.K)
        for BN, WM, WN in PRODUCTS:
            stream = whole.Stream(one, -(-pixels // WM) * WM, 1, BN, WM, WN)
            every = -(-one.F // BN)
            for groups in sorted({-(-every // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16)}):
                plan = Plan(TH, TW, -(-every // groups), stream, groups, two.K, two.stride)
                if plan.shared_bytes <= SHARED and 64 <= stream.threads <= 512:
                    found.append(plan)
    return found


@functools.cache
def choose(problem, images):
    """The plan of the least time, roughly: products and depthwise outputs, or the chunks of filters on their way."""
    one, two = problem.first, problem.second

    def cost(plan):
        stream, strips = plan.stream, plan.strips(plan.rows)
        number = images * -(-two.P // plan.TH) * -(-two.Q // plan.TW) * plan.parts
        fit = SHARED // (plan.shared_bytes + 1024), REGISTERS // (stream.threads * 110)
        here, turns = -(-number // MULTIPROCESSORS), -(-number // (MULTIPROCESSORS * max(1, min(fit))))
        instructions = plan.T * (40 * two.K + plan.rows * 14) + (plan.rows * two.stride + two.K) * (10 + 10 * two.K)
        depthwise = plan.groups * strips * instructions / 32 / STARTED
        alone = plan.groups * -(-strips // stream.threads) * instructions * stream.threads / 32 / STARTED
        outputs = stream.rows * stream.BN * plan.groups
        product = 2 * outputs * one.C / whole.PER_NS + outputs / whole.WRITTEN
        steps = plan.groups * stream.chunks * whole.LATER
        return max(here * (depthwise + product), turns * (START + alone + max(steps, product)))

    return min(candidates(problem), key=cost)


def traffic(problem):
    plan, one, two = choose(problem.kernel_key, problem.N), problem.first, problem.second
    stream, (XH, XW), H, W, S, C = plan.stream, plan.footprint, two.H, two.W, two.stride, one.C // 4
    across, down, F, P, Q = -(-two.Q // plan.TW), -(-two.P // plan.TH), two.C // 4, two.P, two.Q
    tiles = problem.N * across * down
    tile = np.arange(tiles)[:, None]
    n, p0, q0 = tile // (across * down), tile // across % down * plan.TH, tile % across * plan.TW

    def turns(count):
        i = np.arange(-(-count // stream.threads) * stream.threads)
        return np.where(i < count, i, -1)

    each = blocks.piece(C)
    i = turns(stream.rows * C // each)
    pixel, c = i // (C // each), i % (C // each)
    h, v = p0 * S + pixel // XW - two.padding, q0 * S + pixel % XW - two.padding
    inside = (i >= 0) & (pixel < XH * XW) & (0 <= h) & (h < H) & (0 <= v) & (v < W)
    load = plan.parts * warp_traffic(np.where(inside, ((n * H + h) * W + v) * (C // each) + c, -1), 8 // each)
    load += replace(stream, groups=plan.parts * plan.groups).read(tiles)
    # Strips: w2, b2 and m2, no x from global memory
    words, store = as_words(two), np.zeros(2, np.int64)
    columns, i = plan.TW // plan.T, turns(plan.strips(plan.rows))
    for group in range(plan.parts * plan.groups):
        c, place = group * (stream.BN // 4) + i % (stream.BN // 4), i // (stream.BN // 4)
        row, column = place // columns * plan.rows, place % columns * plan.T
        p, q = p0 + row, q0 + column
        busy = (i >= 0) & (c < F) & (p < P) & (q < Q)
        load += loads(words, plan.T, plan.rows, n, np.where(busy, c, -1), p, p, q, of_x=False)
        for e in range(plan.rows):
            for f in range(plan.T):
                there = busy & (p + e < P) & (q + f < Q) & (column + f < plan.TW)
                store += warp_traffic(np.where(there, ((n * P + p + e) * Q + q + f) * F + c, -1))
    return Traffic(*(load + two.residual * store), *store)


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NHWC" or one.C % 4 or one.F % 4 or two.K > 7 or two.stride > 7 or not candidates(problem):
        return False
    return problem.N * max(one.C * one.H * one.W, two.C * two.H * two.W) < 2**31


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16)
def launch(problem):
    plan, two = choose(problem.kernel_key, problem.N), problem.second
    tiles = problem.N * -(-two.P // plan.TH) * -(-two.Q // plan.TW)
    return Launch((tiles, plan.parts), (plan.stream.threads,), shared_bytes=plan.shared_bytes)
