"""Int8: depthwise outputs become int8 again in shared memory, all channels of a tile, and there feed mma of int8.

An int8 takes so little room that a block can hold all channels of its pixels between the layers: 64 pixels of 1,024
channels are 64 KiB. So the two layers come one after the other. First threads slide down strips of the tile, 4 channels
each, x straight from global memory, their outputs requantised by the first layer's factors and zero point (`strip`, as
it stands in depthwise2d). What lies outside x's map is the first layer's zero_x. Then warps multiply the tile with the
filters, which come to shared memory a chunk of channels at a time, three chunks on their way, some already while the
depthwise outputs are made; the sums are requantised by the second layer (`whole`).

What is between the layers is the second layer's x, zero point included: the sum of its filters' words takes care of
that, as in pointwise. And it is never in global memory: that saves writing and reading N*C*P*Q bytes.

If there are few tiles, several blocks take one, each for some of the filters; each then computes the tile's depthwise
outputs anew. `choose` weighs that.

Traffic: each strip's x and filters; w2 for each tile; y once; b and m of either layer where they are needed.
"""

import functools
from dataclasses import dataclass, replace

import numpy as np
from numba import float32, int32, uint32

from dwlab import ptx
from dwlab.depthwise2d.forward_6_int8 import loads, put, strip
from dwlab.pointwise import blocks, whole
from dwlab.pointwise import tiles as products
from dwlab.stages import Launch, by_shape, register
from dwlab.target import cuda
from dwlab.traffic import Traffic

DEPTH = 3  # chunks of filters in shared memory
CHUNK = 32  # words of channels in a chunk, at most
SHARED = 227 * 1024  # bytes that a block may ask for
MULTIPROCESSORS = 132
STARTED, PER_NS, WRITTEN = 4, 5000, 20  # a multiprocessor's instructions of warps, operations, bytes written in a ns
START, LATER = 1500, 250  # ns: until a block's first x has come, and from one chunk of filters to the next at least
SHAPES = (  # height and width of a tile of pixels, filters of a product, and rows and columns of a warp's
    (8, 8, 128, 32, 32), (8, 8, 64, 16, 32), (8, 8, 64, 32, 32), (8, 8, 32, 16, 32), (4, 8, 128, 16, 32),
    (4, 8, 64, 16, 32), (4, 8, 32, 16, 32), (2, 8, 128, 16, 32), (2, 8, 64, 16, 32), (8, 16, 128, 32, 64),
    (8, 16, 64, 32, 32), (8, 16, 32, 32, 32), (8, 14, 64, 16, 32), (8, 14, 128, 16, 64), (4, 4, 128, 16, 32),
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How a block computes: pixels of TH x TW, BN filters at a time, of one of `parts` parts of all filters.

    C, chunk: words of channels, of all and of a chunk. rows: of a strip of T columns.
    """

    TH: int
    TW: int
    BN: int
    WM: int
    WN: int
    parts: int
    C: int
    F: int
    T: int

    @property
    def pixels(self):
        """Of a tile."""
        return self.TH * self.TW

    @property
    def threads(self):
        """Of a block."""
        return 32 * (self.pixels // self.WM) * (self.BN // self.WN)

    @property
    def chunk(self):
        """Words of channels at a time: whole products of 8."""
        return min(CHUNK, -(-self.C // 8) * 8)

    @property
    def chunks(self):
        """Of all channels."""
        return -(-self.C // self.chunk)

    @property
    def groups(self):
        """Of BN filters, for one block."""
        return -(-self.F // (self.BN * self.parts))

    @property
    def pitch(self):
        """Words between pixels in shared memory."""
        return products.pitch(self.chunks * self.chunk, "k", "int8")

    @property
    def w_pitch(self):
        """Words between filters in shared memory."""
        return products.pitch(self.chunk, "k", "int8")

    @property
    def shared_bytes(self):
        """Of a block."""
        return 4 * (self.pixels * self.pitch + DEPTH * self.BN * self.w_pitch)

    @property
    def rows(self):
        """Of a strip: the whole tile's if that leaves work for all threads, else fewer."""
        down = [rows for rows in (8, 4, 2) if self.TH % rows == 0]
        return next((rows for rows in down if self.strips(rows) >= self.threads), down[-1])

    def strips(self, rows):
        """Of a block, if they have so many rows."""
        return self.C * (self.TW // self.T) * (self.TH // rows)


@by_shape
def kernel(problem, images):
    plan, one, two = choose(problem, images), problem.first, problem.second
    C, H, W, P, Q, F, T, PIXELS = plan.C, one.H, one.W, one.P, one.Q, two.F, plan.T, plan.pixels
    TH, TW, BN, WM, WN, ROWS = plan.TH, plan.TW, plan.BN, plan.WM, plan.WN, plan.rows
    PITCH, THREADS, REST = plan.pitch, plan.threads, plan.chunks * plan.chunk - plan.C
    CHUNK, CHUNKS, W_PITCH, GROUPS, COLUMNS = plan.chunk, plan.chunks, plan.w_pitch, plan.groups, plan.TW // plan.T
    STRIPS, ACROSS, DOWN, WARPS = plan.strips(plan.rows), -(-Q // TW), -(-P // TH), plan.BN // plan.WN
    MIDDLE, STEP, STEPS = plan.pixels * plan.pitch, plan.BN * plan.w_pitch, plan.chunks * plan.groups
    slide = strip(one, T, put, C, PITCH, TW * PITCH)
    bring = blocks.bring(BN, CHUNK, W_PITCH, THREADS, F, C, C)
    product = products.tensor("int8", WM, WN, 4 * CHUNK, PITCH, W_PITCH, ahead=True, columns=two.zero_x != 0)
    SIZE, zero, add = product.size + product.more, product.zero, product.add
    finish = whole.finish(two, product, whole.tiles_of(P, Q, TH, TW, F))

    @cuda.jit
    def kernel(x, w1, b1, m1, w2, b2, m2, r, y):
        pool = cuda.shared.array(0, float32, 16)  # pixels between the layers, then chunks of filters
        acc = cuda.local.array(SIZE, int32)
        t, tile = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x)
        f0, lane, warp = uint32(uint32(cuda.blockIdx.y) * (GROUPS * BN)), uint32(t % 32), uint32(t // 32)
        p0, q0 = uint32(tile // ACROSS % DOWN * TH), uint32(tile % ACROSS * TW)
        x0 = uint32(tile // (ACROSS * DOWN) * (H * W * C))
        for step in range(DEPTH - 1):
            if step < STEPS:
                f, c = uint32(f0 + step // CHUNKS * BN), uint32(step % CHUNKS * CHUNK)
                bring(pool, uint32(MIDDLE + step * STEP), w2, uint32(0), f, c, t)
            ptx.commit()
        for i in range(t, PIXELS * REST, THREADS):  # words beyond the last channel
            pool[uint32(uint32(i) // REST * PITCH + C + uint32(i) % REST)] = float32(0)
        for i in range(t, STRIPS, THREADS):
            c, place = uint32(uint32(i) % C), uint32(uint32(i) // C)
            row, column = uint32(place // COLUMNS * ROWS), uint32(place % COLUMNS * T)
            p, to = int32(p0 + row), uint32((row * TW + column) * PITCH + c)
            slide(x, w1, b1, m1, pool, x0, c, c, p, int32(p + ROWS), uint32(q0 + column), uint32(0xFFFFFFFF), to)
        zero(acc)
        m0, n0 = uint32(warp // WARPS * WM), uint32(warp % WARPS * WN)
        here, there = uint32(0), uint32((DEPTH - 1) * STEP)
        for step in range(STEPS):
            ptx.wait(1)  # DEPTH - 2
            cuda.syncthreads()  # this chunk and all pixels are there, and all threads are done with the one before
            ahead, chunk = uint32(step + (DEPTH - 1)), uint32(step % CHUNKS)
            if ahead < STEPS:
                f, c = uint32(f0 + ahead // CHUNKS * BN), uint32(ahead % CHUNKS * CHUNK)
                bring(pool, uint32(MIDDLE + there), w2, uint32(0), f, c, t)
            ptx.commit()
            add(acc, pool, uint32(m0 * PITCH + chunk * CHUNK), pool, uint32(MIDDLE + here + n0 * W_PITCH), lane)
            if chunk == CHUNKS - 1:
                finish(acc, lane, y, b2, m2, uint32(tile * PIXELS + m0), uint32(f0 + step // CHUNKS * BN + n0))
                zero(acc)
            there = here
            here = uint32(0) if here == (DEPTH - 1) * STEP else uint32(here + STEP)

    return kernel


def candidates(problem):
    """Plans that fit a problem."""
    one, two = problem.first, problem.second
    T = 2 if one.K <= 3 and one.stride == 1 else 1
    found = []
    for shape in SHAPES:
        for parts in (1, 2, 3, 4, 6, 8):
            plan = Plan(*shape, parts, one.C // 4, two.F, T)
            if plan.shared_bytes <= SHARED and (parts == 1 or plan.BN * parts < two.F + plan.BN):
                found.append(plan)
    return found


@functools.cache
def choose(problem, images):
    """The plan of the least time, roughly: depthwise outputs, then products or the chunks of filters on their way."""
    one = problem.first

    def cost(plan):
        number = images * -(-one.P // plan.TH) * -(-one.Q // plan.TW) * plan.parts
        fit = SHARED // (plan.shared_bytes + 1024), 65536 // (plan.threads * (plan.WM * plan.WN // 32 + 70))
        here, turns = -(-number // MULTIPROCESSORS), -(-number // (MULTIPROCESSORS * max(1, min(fit))))
        strips, outputs = plan.strips(plan.rows), plan.pixels * plan.BN * plan.groups
        instructions = plan.T * (40 * one.K + plan.rows * 14) + (plan.rows * one.stride + one.K) * (10 + 10 * one.K)
        depthwise = strips * instructions / 32 / STARTED
        alone = -(-strips // plan.threads) * instructions * plan.threads / 32 / STARTED + START  # in a block's own time
        product = 2 * outputs * plan.C * 4 / PER_NS + outputs / WRITTEN
        return max(here * (depthwise + product), turns * (alone + max(plan.groups * plan.chunks * LATER, product)))

    return min(candidates(problem), key=cost)


def traffic(problem):
    plan, one, two = choose(problem.kernel_key, problem.N), problem.first, problem.second
    words = replace(one, C=plan.C, dtype="float32", zero_x=0, zero_y=0)
    across, down = -(-one.Q // plan.TW), -(-one.P // plan.TH)
    tiles = problem.N * across * down
    strips, rows, columns = plan.strips(plan.rows), plan.rows, plan.TW // plan.T
    i = np.arange(-(-strips // plan.threads) * plan.threads)
    i = np.where(i < strips, i, -1)
    tile = np.arange(tiles)[:, None]
    c, place = np.broadcast_to(np.where(i < 0, -1, i % plan.C), (tiles, len(i))), i // plan.C
    p = tile // across % down * plan.TH + place // columns * rows
    q = tile % across * plan.TW + place % columns * plan.T
    load = plan.parts * loads(words, plan.T, rows, tile // (across * down), c, p, p + rows, q)
    # Filters: of the last part some, or all, may lie beyond the last one
    filters = np.arange(0, plan.parts * plan.groups * plan.BN, plan.BN)
    brought = blocks.brought(plan.BN, plan.chunk, plan.threads, two.F, plan.C, plan.C)
    warps = plan.pixels // plan.WM
    load += tiles * (brought + warps * whole.vectors_read(two, plan.WN))
    row, column = whole.places(products.tensor("int8", plan.WM, plan.WN, 32, 12, 12))
    m = np.arange(0, tiles * plan.pixels, plan.WM)[:, None, None, None] + row
    n = (filters[:, None] + np.arange(0, plan.BN, plan.WN)).reshape(-1, 1, 1) + column
    tile, pixel = m // plan.pixels, m % plan.pixels
    p, q = tile // across % down * plan.TH + pixel // plan.TW, tile % across * plan.TW + pixel % plan.TW
    m = np.where((p < one.P) & (q < one.Q), (tile // (across * down) * one.P + p) * one.Q + q, -1)
    return Traffic(*load, *whole.stored(two.F, m, n))


def supports(problem):
    one, two = problem.first, problem.second
    if problem.layout != "NHWC" or one.C % 16 or two.F % 4 or one.K > 7 or one.stride > 7 or not candidates(problem):
        return False
    return problem.N * max(one.C * one.H * one.W, two.F * one.P * one.Q) < 2**31


@register(kernel=kernel, traffic=traffic, supports=supports, dtypes=("int8",), view="words", aligned=16)
def launch(problem):
    plan, one = choose(problem.kernel_key, problem.N), problem.first
    tiles = problem.N * -(-one.P // plan.TH) * -(-one.Q // plan.TW)
    return Launch((tiles, plan.parts), (plan.threads,), shared_bytes=plan.shared_bytes)
