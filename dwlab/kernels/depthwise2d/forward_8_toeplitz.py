"""Toeplitz: filters of up to 63 x 63 on tensor cores, each of their rows a matrix.

Of one row r of a filter, outputs are a product of matrices: 16 rows of x from r on and 16 of their columns (A of an
mma), times T[k, j] = w[r, k - j + …] (B), with the filter's row along its diagonals and zeros elsewhere. For K = 31
three of them make 16 x 8 outputs: 31 of 48 multiplications count, and tensor cores are fast enough to waste the others.

A block has one channel, and strips of its maps: whole maps of several images, or a part of a large one. x lies in
shared memory with zeros around it. As ldmatrix takes an address of each lane, any 16 rows of outputs make an A, from
whatever strips: maps of 7 rows leave no lane idle. B is no matrix in memory: a lane needs two neighbours of the
filter's row, a word; the row lies there twice, the second time moved by one element, so that each of these is a word.
Columns of x come in eights, halves of an A. Those beside the map are not stored, and products of two such are left out.

0 * NaN is NaN: a product would carry it to outputs whose window it is not in. So a block that finds a number which is
not finite, as it loads them, goes output by output instead. Elements are loaded one by one, so maps are of any size.

Predicted, on an H200, of 32 images of 128 channels of 56 x 56 and K = 31: 8.0 M mma, 61,000 a multiprocessor, 56 µs at
0.62 a clock; of 512 channels of 14 x 14 and K = 27: 1.2 M mma, 8 µs, behind loads and other instructions, some 16 µs.
Traffic: x once for each strip and tile of columns, with K - 1 rows more; a channel's filter for each block; y once.
"""

import functools
from collections import namedtuple

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import constants, epilogue, fragments, pieces, ptx
from dwlab.kernels.parts.unroll import in_sequence
from dwlab.kernels.registry import Launch, by_shape, register
from dwlab.kernels.traffic import Traffic, grouped, warp_traffic
from dwlab.target import cuda

MOST = 63  # taps along a side
WORDS = 48 * 256  # of shared memory of a block
ROWS = 256  # of outputs of a block, at most
COLUMNS = 64  # of outputs of a block, at most
BLOCKS = 264  # that are worth fewer strips a block: two a multiprocessor of an H200
BATCH = 16  # elements that a thread loads at a time
EXPONENT = {"float16": (0x7C007C00, 0x04000400), "bfloat16": (0x7F807F80, 0x00800080)}

Plan = namedtuple(
    "Plan",
    "rows step lines per_map total each groups across eights before first halves steps shift pitch copy tiles threads",
)
"""How a layer is cut.

rows: of outputs in a strip; step: lines of x from a strip's first one to the next's; lines: of a block. per_map, total:
strips of a map, of a channel; each: of a block.
groups: blocks of a channel and a tile of columns; across: tiles; eights: of a tile's columns. before, halves: columns
of x before the tile's first one that are stored, and how many eights from there; first: the first one's number among
all that products name. steps: mma of a filter's row; shift: the tap of k = j in the first of them. pitch, copy: words
of a line of x, of a filter's row. tiles: of 16 rows of a warp. threads: of a block."""


@functools.cache
def plan_of(layer, images):
    """The plan of so many images; None where not even a row of outputs fits."""
    W, K, P = layer.W, layer.K, layer.P
    left = -(-layer.padding // 8) * 8
    shift = layer.padding - left
    steps = -(-(K + 7 - shift) // 16)
    across = -(-layer.Q // COLUMNS)
    eights = -(-layer.Q // (8 * across))
    first, halves = 0, eights + 2 * steps - 1
    if across == 1:  # what is beside the map is known
        first = left // 8
        halves = min(halves, -(-(left + W) // 8)) - first
    pitch = 4 * (halves | 1)  # an odd number of vectors: ldmatrix without a bank conflict
    copy = 8 * steps + 4
    while not 8 <= copy % 32 <= 25:  # the two copies' words in different banks
        copy += 4
    fit = (WORDS - 2 * copy * K) // pitch  # lines
    if fit < K:
        return None
    per_map = -(-P // min(ROWS, fit - K + 1))
    rows, total = -(-P // per_map), images * per_map
    step = alone = rows + K - 1
    if per_map == 1:  # zeros below a map are those above the next one
        step = max(layer.H + layer.padding, alone - layer.padding)
    each = max(1, min(ROWS // rows, (fit - alone) // step + 1, total, layer.C * across * total // BLOCKS))
    groups = -(-total // each)
    each = -(-total // groups)
    lines = (each - 1) * step + alone
    tiles = 2 if each * rows > 112 else 1
    return Plan(
        rows, step, lines, per_map, total, each, groups, across, eights, left - 8 * first, first, halves, steps, shift,
        pitch, copy, tiles, 32 * -(-each * rows // (16 * tiles)),
    )  # fmt: skip


def filling(dtype, one):
    """(fill_x, fill_w): the strips of x from `first` on, their columns from v0 on, and channel c's filter, to shared
    memory. They give what is not 0 where something that a thread loaded is not finite."""
    ONES, LAST = EXPONENT[dtype]  # of a word's elements: exponents of ones and one more set the signs
    VECTORS = 2 * one.steps + 1  # of a filter's row

    @cuda.jit(device=True, forceinline=True)
    def load(bits, at, line, k, size):
        """Elements k to k + 7 of a line of so many, 0 outside."""
        for e in range(8):
            bits[at + e] = uint32(0)
            if uint32(k + uint32(e)) < size:
                bits[at + e] = uint32(line[uint32(k + uint32(e))])

    @cuda.jit(device=True, forceinline=True)
    def load_x(bits, at, x, i, c, first, v0):
        line, half, size = uint32(i // uint32(one.halves)), uint32(i % uint32(one.halves)), uint32(one.W)
        strip = uint32(first + line // uint32(one.step))
        n, p = uint32(strip // uint32(one.per_map)), uint32(strip % uint32(one.per_map) * uint32(one.rows))
        h = uint32(p + line % uint32(one.step) - uint32(one.padding))
        if line >= uint32(one.lines) or strip >= uint32(one.total) or h >= uint32(one.H):
            n, h, size = uint32(0), uint32(0), uint32(0)
        load(bits, at, x[n, c, h], uint32(v0 + uint32(8) * half), size)
        return uint32(line * uint32(one.pitch) + half * uint32(4))

    @cuda.jit(device=True, forceinline=True)
    def load_w(bits, at, w, i, c, first, v0):
        copy, part, size = uint32(i // uint32(VECTORS)), uint32(i % uint32(VECTORS)), uint32(one.K)
        row, tap = uint32(copy // uint32(2)), uint32(uint32(8) * part + copy % uint32(2) + uint32(one.shift - 8))
        if row >= size:
            row, size = uint32(0), uint32(0)
        load(bits, at, w[c, row], tap, size)
        return uint32(copy * uint32(one.copy) + part * uint32(4))

    def fill(load, vectors):
        @cuda.jit(device=True, forceinline=True)
        def word(bits, at):
            return cuda.libdevice.int_as_float(int32(bits[at] | bits[at + 1] << uint32(16)))

        @cuda.jit(device=True, forceinline=True)
        def fill(tile, array, c, first, v0):
            bits = cuda.local.array(BATCH, uint32)
            to = cuda.local.array(BATCH, uint32)
            found, i = uint32(0), uint32(cuda.threadIdx.x)
            while i < uint32(vectors):
                for k in range(0, BATCH, 8):  # all in flight before the first is stored
                    to[k] = load(bits, k, array, uint32(i + uint32(k // 8 * one.threads)), c, first, v0)
                for k in range(0, BATCH, 8):
                    for e in range(k, k + 8, 2):
                        two = uint32(bits[e] | bits[e + 1] << uint32(16))
                        found = uint32(found | ((two & uint32(ONES)) + uint32(LAST)))
                    if i < uint32(vectors):
                        four = word(bits, k), word(bits, k + 2), word(bits, k + 4), word(bits, k + 6)
                        ptx.store4_shared(tile, to[k], four[0], four[1], four[2], four[3])
                    i = uint32(i + uint32(one.threads))
            return int32(found & uint32(0x80008000))

        return fill

    return fill(load_x, one.lines * one.halves), fill(load_w, 2 * one.K * VECTORS)


def multiplying(dtype, one):
    """multiply(acc, x_tile, f_tile): a warp's sums, those of each 16 rows after each other."""
    mma, zeros, TILES, F_WORDS = fragments.MMA[dtype], 2 * one.halves + 2, one.tiles, 2 * one.steps
    A_WORDS = zeros + 2

    def product(n, step):
        low, high = (h - one.first for h in (n + 2 * step, n + 2 * step + 1))
        low, high = (2 * h if 0 <= h < one.halves else zeros for h in (low, high))

        @cuda.jit(device=True, forceinline=True)
        def product(acc, s, a, f):
            c, k = s + 4 * n, 2 * step
            acc[c], acc[c + 1], acc[c + 2], acc[c + 3] = mma(
                acc[c], acc[c + 1], acc[c + 2], acc[c + 3], a[low], a[low + 1], a[high], a[high + 1], f[k], f[k + 1]
            )

        return [] if low == high else [product]

    products = in_sequence([it for step in range(one.steps) for n in range(one.eights) for it in product(n, step)])

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, x_tile, f_tile):
        a = cuda.local.array(A_WORDS, float32)
        f = cuda.local.array(F_WORDS, float32)
        at = cuda.local.array(TILES, uint32)
        lane = uint32(uint32(cuda.threadIdx.x) % uint32(32))
        row = uint32(uint32(cuda.threadIdx.x) // uint32(32) * uint32(16 * TILES) + lane % uint32(16))
        for tile in range(TILES):
            mine = min(uint32(row + uint32(16 * tile)), uint32(one.each * one.rows - 1))
            line = uint32(mine // uint32(one.rows) * uint32(one.step) + mine % uint32(one.rows))
            at[tile] = uint32(line * uint32(one.pitch))
        g, t, second = uint32(lane // uint32(4)), uint32(lane % uint32(4)), uint32(lane // uint32(16) * uint32(4))
        word = uint32(g % uint32(2) * uint32(one.copy) + t + uint32(4) - (g + uint32(1)) // uint32(2))
        a[zeros], a[zeros + 1] = float32(0), float32(0)
        for _ in range(one.K):
            for k in range(F_WORDS):
                f[k] = f_tile[uint32(word + uint32(4 * k))]
            for tile in range(TILES):
                for h in range(0, one.halves, 2):  # an odd number's last half comes twice, as no word lies behind it
                    here = uint32(at[tile] + uint32(4 * h) + second * uint32(h + 1 < one.halves))
                    a[2 * h], a[2 * h + 1], a[2 * h + 2], a[2 * h + 3] = ptx.ldmatrix_x4(x_tile, here)
                products(acc, 4 * one.eights * tile, a, f)
                at[tile] = uint32(at[tile] + uint32(one.pitch))
            word = uint32(word + uint32(2 * one.copy))

    return multiply


def storing(layer, one):
    """(store, direct): a block's outputs, a warp's from its sums; and all, each by itself, from x and w."""
    RESIDUAL, activate, TILES = layer.residual, epilogue.activate(layer.activation), one.tiles
    up, down = pieces.up(layer.dtype), pieces.down(layer.dtype)

    @cuda.jit(device=True, forceinline=True)
    def place(row, first):
        """Image and row of the map of a block's row of outputs; beyond the map where there is none."""
        strip, p = uint32(first + row // uint32(one.rows)), uint32(row % uint32(one.rows))
        n, p = uint32(strip // uint32(one.per_map)), uint32(strip % uint32(one.per_map) * uint32(one.rows) + p)
        return n, p if strip < uint32(one.total) and row < uint32(one.each * one.rows) else uint32(one.P)

    @cuda.jit(device=True, forceinline=True)
    def finish(y, r, bias, n, c, p, q, total):
        if p < uint32(one.P) and q < uint32(one.Q):
            total = activate(total + bias)
            if RESIDUAL:
                total += up(r[n, c, p, q])
            y[n, c, p, q] = down(total)

    def eight(at, column):
        @cuda.jit(device=True, forceinline=True)
        def eight(acc, y, r, bias, n, c, p, q):
            finish(y, r, bias, n, c, p, uint32(q + uint32(column)), acc[at])
            finish(y, r, bias, n, c, p, uint32(q + uint32(column + 1)), acc[at + 1])

        return eight

    def rows(tile, below):
        """The rows g, or g + 8, of 16."""
        every = in_sequence([eight(4 * (tile * one.eights + k) + 2 * below, 8 * k) for k in range(one.eights)])

        @cuda.jit(device=True, forceinline=True)
        def rows(acc, y, r, bias, c, first, q):
            lane = uint32(uint32(cuda.threadIdx.x) % uint32(32))
            row = uint32(uint32(cuda.threadIdx.x) // uint32(32) * uint32(16 * TILES) + lane // uint32(4))
            n, p = place(uint32(row + uint32(16 * tile + 8 * below)), first)
            every(acc, y, r, bias, n, c, p, uint32(q + uint32(2) * (lane % uint32(4))))

        return rows

    @cuda.jit(device=True, forceinline=True)
    def direct(x, w, y, r, bias, c, first, q0):
        i, columns = uint32(cuda.threadIdx.x), uint32(8 * one.eights)
        while i < uint32(one.each * one.rows * 8 * one.eights):
            (n, p), q, total = place(uint32(i // columns), first), uint32(q0 + i % columns), float32(0)
            for tap in range(one.K * one.K):
                h, v = uint32(p + uint32(tap // one.K - one.padding)), uint32(q + uint32(tap % one.K - one.padding))
                if p < uint32(one.P) and q < uint32(one.Q) and h < uint32(one.H) and v < uint32(one.W):
                    total += up(w[c, tap // one.K, tap % one.K]) * up(x[n, c, h, v])
            finish(y, r, bias, n, c, p, q, total)
            i = uint32(i + uint32(one.threads))

    return in_sequence([rows(tile, below) for tile in range(one.tiles) for below in range(2)]), direct


@by_shape
def kernel(layer, images):
    one = constants.of(layer, plan_of(layer, images))
    X_WORDS, F_WORDS, SUMS = one.lines * one.pitch, 2 * one.copy * one.K, 4 * one.eights * one.tiles
    (fill_x, fill_w), multiply = filling(layer.dtype, one), multiplying(layer.dtype, one)
    (store, direct), up, BIAS = storing(layer, one), pieces.up(layer.dtype), layer.bias

    @cuda.jit
    def kernel(x, w, b, m, r, y):
        ptx.grid_dependency_wait()
        x_tile = cuda.shared.array(X_WORDS, float32, 16)
        f_tile = cuda.shared.array(F_WORDS, float32, 16)
        acc = cuda.local.array(SUMS, float32)
        c, tile = uint32(cuda.blockIdx.y), uint32(uint32(cuda.blockIdx.x) % uint32(one.across))
        first = uint32(uint32(cuda.blockIdx.x) // uint32(one.across) * uint32(one.each))
        q, bias = uint32(tile * uint32(8 * one.eights)), float32(0)
        if BIAS:
            bias = up(b[c])
        odd = fill_w(f_tile, w, c, first, q)
        if cuda.syncthreads_or(int32(odd | fill_x(x_tile, x, c, first, uint32(q - uint32(one.before))))):
            direct(x, w, y, r, bias, c, first, q)
        else:
            for k in range(SUMS):
                acc[k] = float32(0)
            multiply(acc, x_tile, f_tile)
            store(acc, y, r, bias, c, first, q)

    return kernel


def traffic(layer):
    C, H, W, K, P, Q = layer.C, layer.H, layer.W, layer.K, layer.P, layer.Q
    one = plan_of(layer.kernel_key, layer.N)
    load, store, thread = np.zeros(2, np.int64), np.zeros(2, np.int64), np.arange(one.threads)
    line, half = np.divmod(np.arange(0, one.lines * one.halves, one.threads)[:, None] + thread, one.halves)
    tile, below, k, odd = np.indices((one.tiles, 2, one.eights, 2)).reshape(4, -1, 1)
    row = thread // 32 * 16 * one.tiles + thread % 32 // 4 + 16 * tile + 8 * below
    vectors = 2 * one.steps + 1
    copy, part = np.divmod(np.arange(0, 2 * K * vectors, one.threads)[:, None] + thread, vectors)
    tap = 8 * part + copy % 2 + one.shift - 8 + np.arange(8)[:, None, None]
    tap = np.where((copy < 2 * K) & (0 <= tap) & (tap < K), copy // 2 * K + tap, -1).reshape(-1, one.threads)

    def located(first, line, size):
        """Image, row of the map of a line of strips of so many, and whether there are so many strips."""
        strip = first + line // size
        return strip // one.per_map, strip % one.per_map * one.rows + line % size, strip < one.total

    def alike_channels(c):
        return c * H * W % 16, c * P * Q % 16, c * K * K % 16

    def alike_groups(group):
        image, strip = divmod(group * one.each, one.per_map)
        return image * C * H * W % 16, image * C * P * Q % 16, strip, (group + 1) * one.each > one.total

    for _, c, often in grouped(range(C), alike_channels):
        load += often * one.groups * one.across * warp_traffic(np.where(tap < 0, tap, c * K * K + tap), 16)
        load += layer.bias * often * one.groups * one.across * one.threads // 32
        for _, group, times in grouped(range(one.groups), alike_groups):
            n, h, inside = located(group * one.each, line, one.step)
            inside &= (line < one.lines) & (layer.padding <= h) & (h < H + layer.padding)
            m, p, stored = located(group * one.each, row, one.rows)
            stored &= (row < one.each * one.rows) & (p < P)
            for q0 in range(0, one.across * 8 * one.eights, 8 * one.eights):
                for v in q0 - one.before + 8 * half + np.arange(8)[:, None, None]:
                    at = ((n * C + c) * H + h - layer.padding) * W + v
                    load += often * times * warp_traffic(np.where(inside & (0 <= v) & (v < W), at, -1), 16)
                q = q0 + thread % 4 * 2 + 8 * k + odd
                at = ((m * C + c) * P + p) * Q + q
                moved = often * times * warp_traffic(np.where(stored & (q < Q), at, -1), 16)
                store += moved
                load += layer.residual * moved
    return Traffic(*load, *store)


def supports(layer):
    if layer.layout != "NCHW" or layer.stride != 1 or layer.K > MOST or layer.C > 65535:
        return False
    return plan_of(layer.kernel_key, layer.N) is not None


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16", "bfloat16"), view="elements",
    needs=("mma_f16", "ldmatrix_x4"),
)  # fmt: skip
def launch(layer):
    one = plan_of(layer.kernel_key, layer.N)
    return Launch((one.groups * one.across, layer.C), (one.threads,))
