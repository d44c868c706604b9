"""Toeplitz: filters of up to 63 x 63 on tensor cores, each of their rows a matrix.

Of one row r of a filter, outputs are a product of matrices: 16 rows of x from r on and 16 of their columns (A of an
mma), times T[k, j] = w[r, k - j + …] (B), with the filter's row along its diagonals and zeros elsewhere. For K = 31
three of them make 16 x 8 outputs: 31 of 48 multiplications count, and tensor cores are fast enough to waste the others.

A block has one channel, and strips of its maps: whole maps of several images, or a part of a large one. x lies in
shared memory with zeros around it. As ldmatrix takes an address of each lane, any 16 rows of outputs make an A, from
whatever strips: maps of 7 rows leave no lane idle. B is no matrix in memory: a lane needs two neighbours of the
filter's row, a word; the row lies there twice, the second time moved by one element, so that each of these is a word.
Columns of x come in eights, halves of an A. Those beside the map are not stored, and products of two such are left out.

0 * NaN is NaN: a product would carry it to outputs whose window it is not in. So a block that finds an x which is not
finite, as it loads it, goes output by output instead. Elements pass one by one, in 2 bytes, so maps are of any size.

Predicted, on an H200, of 32 images of 128 channels of 56 x 56 and K = 31: 9.1 M mma, 70,000 a multiprocessor, 65 µs at
0.62 a clock; of 512 channels of 14 x 14 and K = 27: 0.8 M mma, 6 µs, behind loads and other instructions, some 15 µs.
Traffic: x once for each strip and tile of columns, with K - 1 rows more; a channel's filter for each block; y once.
"""

import functools
from collections import namedtuple

import numpy as np
from numba import float32, int32, uint16, uint32

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
BATCH = 4  # words that a thread loads at a time
EXPONENT = {"float16": 0x7C00, "bfloat16": 0x7F80}

Plan = namedtuple(
    "Plan",
    "rows lines per_map total each groups across eights before first halves steps shift pitch copy tiles threads",
)
"""How a layer is cut.

rows: of outputs in a strip; lines: of x that it needs. per_map, total: strips of a map, of a channel; each: of a block.
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
    lines = rows + K - 1
    each = max(1, min(ROWS // rows, fit // lines, total, layer.C * across * total // BLOCKS))
    groups = -(-total // each)
    each = -(-total // groups)
    tiles = 2 if each * rows > 112 else 1
    return Plan(
        rows, lines, per_map, total, each, groups, across, eights, left - 8 * first, first, halves, steps, shift, pitch,
        copy, tiles, 32 * -(-each * rows // (16 * tiles)),
    )  # fmt: skip


def filling(dtype, one):
    """(fill_x, fill_w): the strips of x from `first` on, their columns from v0 on, and channel c's filter, to shared
    memory. Each gives whether what this thread loaded is not all finite."""
    FINITE = EXPONENT[dtype]

    @cuda.jit(device=True, forceinline=True)
    def pair(line, k, size):
        """The word of elements k and k + 1 of a line of so many, 0 outside, and whether one is not finite."""
        low, high = uint16(0), uint16(0)
        if k < size:
            low = line[k]
        if uint32(k + uint32(1)) < size:
            high = line[uint32(k + uint32(1))]
        odd = (low & uint16(FINITE)) == uint16(FINITE) or (high & uint16(FINITE)) == uint16(FINITE)
        return cuda.libdevice.int_as_float(int32(uint32(low) | uint32(high) << uint32(16))), odd

    @cuda.jit(device=True, forceinline=True)
    def x_word(x, i, c, first, v0):
        line, word = uint32(i // uint32(4 * one.halves)), uint32(i % uint32(4 * one.halves))
        strip, size = uint32(first + line // uint32(one.lines)), uint32(one.W)
        n, p = uint32(strip // uint32(one.per_map)), uint32(strip % uint32(one.per_map) * uint32(one.rows))
        h = uint32(p + line % uint32(one.lines) - uint32(one.padding))
        if line >= uint32(one.each * one.lines) or strip >= uint32(one.total) or h >= uint32(one.H):
            n, h, size = uint32(0), uint32(0), uint32(0)
        value, odd = pair(x[n, c, h], uint32(v0 + uint32(2) * word), size)
        return uint32(line * uint32(one.pitch) + word), value, odd

    @cuda.jit(device=True, forceinline=True)
    def w_word(w, i, c, first, v0):
        row, q, size = uint32(i // uint32(2 * one.copy)), uint32(i % uint32(one.copy)), uint32(one.K)
        tap = uint32(uint32(2) * q + i // uint32(one.copy) % uint32(2) + uint32(one.shift - 8))
        if row >= size:
            row, size = uint32(0), uint32(0)
        value, odd = pair(w[c, row], tap, size)
        return i, value, odd

    def fill(word, count):
        @cuda.jit(device=True, forceinline=True)
        def fill(tile, array, c, first, v0):
            to = cuda.local.array(BATCH, uint32)
            values = cuda.local.array(BATCH, float32)
            found, i = False, uint32(cuda.threadIdx.x)
            while i < uint32(count):
                for m in range(BATCH):  # all in flight before the first is stored
                    to[m], values[m], odd = word(array, uint32(i + uint32(m * one.threads)), c, first, v0)
                    found = found or odd
                for m in range(BATCH):
                    if uint32(i + uint32(m * one.threads)) < uint32(count):
                        tile[to[m]] = values[m]
                i = uint32(i + uint32(BATCH * one.threads))
            return int32(found)

        return fill

    return fill(x_word, one.each * one.lines * 4 * one.halves), fill(w_word, 2 * one.copy * one.K)


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
            line = uint32(mine // uint32(one.rows) * uint32(one.lines) + mine % uint32(one.rows))
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
    X_WORDS, F_WORDS, SUMS = one.each * one.lines * one.pitch, 2 * one.copy * one.K, 4 * one.eights * one.tiles
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
        fill_w(f_tile, w, c, first, q)
        if cuda.syncthreads_or(fill_x(x_tile, x, c, first, uint32(q - uint32(one.before)))):
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
    i = np.arange(0, one.each * one.lines * 4 * one.halves, one.threads)[:, None] + thread
    line, word = i // (4 * one.halves), i % (4 * one.halves)
    tile, below, k, odd = np.indices((one.tiles, 2, one.eights, 2)).reshape(4, -1, 1)
    row = thread // 32 * 16 * one.tiles + thread % 32 // 4 + 16 * tile + 8 * below
    j = np.arange(0, 2 * one.copy * K, one.threads)[:, None] + thread
    tap = 2 * (j % one.copy) + j // one.copy % 2 + one.shift - 8
    taps = [
        np.where((j < 2 * one.copy * K) & (0 <= s) & (s < K), j // (2 * one.copy) * K + s, -1) for s in (tap, tap + 1)
    ]

    def located(first, line, size):
        """Image, row of the map of a block's line of its strips of so many, and whether it is there."""
        strip = first + line // size
        here = (line < one.each * size) & (strip < one.total)
        return strip // one.per_map, strip % one.per_map * one.rows + line % size, here

    def alike_channels(c):
        return c * H * W % 16, c * P * Q % 16, c * K * K % 16

    def alike_groups(group):
        image, strip = divmod(group * one.each, one.per_map)
        return image * C * H * W % 16, image * C * P * Q % 16, strip, (group + 1) * one.each > one.total

    for _, c, often in grouped(range(C), alike_channels):
        for at in taps:
            load += often * one.groups * one.across * warp_traffic(np.where(at < 0, at, c * K * K + at), 16)
        load += layer.bias * often * one.groups * one.across * one.threads // 32
        for _, group, times in grouped(range(one.groups), alike_groups):
            n, h, inside = located(group * one.each, line, one.lines)
            h, m, p, stored = (h - layer.padding, *located(group * one.each, row, one.rows))
            for q0 in range(0, one.across * 8 * one.eights, 8 * one.eights):
                q = q0 + thread % 4 * 2 + 8 * k + odd
                for v in (q0 - one.before + 2 * word, q0 - one.before + 2 * word + 1):
                    here = inside & (0 <= h) & (h < H) & (0 <= v) & (v < W)
                    load += often * times * warp_traffic(np.where(here, ((n * C + c) * H + h) * W + v, -1), 16)
                here = stored & (p < P) & (q < Q)
                moved = often * times * warp_traffic(np.where(here, ((m * C + c) * P + p) * Q + q, -1), 16)
                store += moved
                load += layer.residual * moved
    return Traffic(*load, *store)


def supports(layer):
    if layer.layout != "NCHW" or layer.stride != 1 or layer.K > MOST or layer.C > 65535:
        return False
    return (
        layer.N * layer.C * max(layer.H * layer.W, layer.P * layer.Q) < 2**31
        and plan_of(layer.kernel_key, layer.N) is not None
    )


@register(
    kernel=kernel, traffic=traffic, supports=supports, dtypes=("float16", "bfloat16"), view="elements",
    needs=("mma_f16", "ldmatrix_x4"),
)  # fmt: skip
def launch(layer):
    one = plan_of(layer.kernel_key, layer.N)
    return Launch((one.groups * one.across, layer.C), (one.threads,))
