"""A warp's matrix product out of shared memory: M x N sums of K products each, in the registers of its 32 lanes.

    tile = tiles.tensor("float32", 32, 32, 32, a_pitch=36, b_pitch=36)     on tensor cores; "int8": sums of int32
    tile = tiles.ffma(8, 8, 4, 16, a_pitch=132, b_pitch=68)                by multiply-adds, float32

    acc = cuda.local.array(SIZE, float32)        SIZE = tile.size, and so on: closure constants of the kernel
    zero(acc)                                    all sums 0
    add(acc, a, a0, b, b0, lane)                 acc(m, n) += sum over k < K of A(m, k) B(k, n)
    row(lane, i), column(lane, i)                which sum acc[i] is: its m and n
    each(acc, lane, y, b, r, m0, n0)             each = tiles.each(tile, put): hands all sums to put, see there

a and b are shared arrays of float32 words, aligned to 16 bytes; a0 and b0 the words at which this warp's A and B begin,
multiples of 4; pitches in words, multiples of 4. An operand lies in one of two orders. "k" (each row of A, or each
column of B, has its k next to each other; 16-bit elements two in a word):

    A(m, k) at word a0 + place(m, k)              (16 bits: k // 2; int8: k // 4), place = tiles.place(a_pitch)
    B(k, n) at word b0 + place(n, k)              (the same), a layer's filters (F, C) as they are: n = f, k = c

"mn" (for each k, the rows of A or the columns of B next to each other):

    A(m, k) at word a0 + k * a_pitch + m          (16 bits: m // 2)
    B(k, n) at word b0 + k * b_pitch + n          (16 bits: n // 2), an image in NCHW: k = c, n = pixel

`ffma` takes both operands in order "mn" (or as it says), `tensor` each in either. A barrier before, and one before the
operands are overwritten, is the caller's. Which pitches have no bank conflict `pitch` says.

`place`: tensor cores' operands are read 8 rows at a time, 16 bytes of each. Where a row is an odd number of such pieces
they lie in different banks, and word k of row m is word m * pitch + k. But a copy that fills such rows puts most 128
bytes of memory to two places, and the hardware asks for their sectors twice. Rows of an even number of pieces need no
spare ones: their pieces change places, by an exclusive or with the row (a swizzle), and lie in different banks too.

What it costs, for each K of 8 and warp: ffma 8 * M * N / 32 FFMA and 2 * (TM + TN) 16-byte reads a lane, 64 against 4
for each k at 8 x 8. A multiprocessor starts 128 lanes' FFMA and moves 128 bytes of shared memory each cycle, so 8 x 8
is bound by FFMA, 4 x 4 by shared memory. tensor, float32: 3 mma for each 16 x 8 of the tile, and some 3 instructions
for each operand's number to split it; 16 bits: one mma for each 16 x 8 and K of 16.

float32 on tensor cores: tf32 has 11 significant bits, too few for a float32 of 24. Each operand is split in two tf32,
x = h + l, h the upper 11 bits and l what is left, and of the four products three are summed up, l h + h l + h h: l l
is below the last bit. An error of about 2**-21 of each product is left: within float32's rounding for sums of 16 and
more. An mma cuts its sums off where a float32 addition rounds, so a long sum in one would drift towards 0: each starts
from 0, and what it gives is added by a float32 addition.

int8: a word is four of them, sums are int32 and exact: acc = cuda.local.array(SIZE, int32), SIZE = tile.size +
tile.more. What lies behind the sums is of the columns of B: int8 layers need sum (x - zero_x) w = sum x w - zero_x sum
w, so each lane adds up the words of B that it holds, with dp4a; dwlab.kernels.parts.whole makes int8 outputs of both.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.unroll import in_turn

ORDERS = ("k", "mn")
STEPS = {"float32": 8, "float16": 16, "bfloat16": 16, "int8": 32}  # of K: 8 words, one mma
ONES = 0x01010101  # four int8
REST = 24  # registers for a step's B, addresses and counters, about


@dataclass(frozen=True)
class Parts:
    """`add` in parts, for what happens between its last reads of shared memory and its last products.

    begin, most, last: (acc, held, a, a0, b, b0, lane) each, held = cuda.local.array(words, float32). begin reads the
    operands of the first step; most computes all steps but the last, whose operands it reads; last computes that one.
    A begin of the next operands may come before last: they hold other words. Where operands are not read ahead, or the
    first and the last step's would be the same words (an odd number of steps), most is all of it.
    """

    words: int
    begin: Any
    most: Any
    last: Any


@dataclass(frozen=True)
class WarpTile:
    """A warp's product: M x N sums of K terms a call.

    size: sums of each lane. run: so many sums, from each multiple of it on, lie in one row and in neighbouring columns,
    the first one's a multiple of run. zero, add, row, column: device functions; the module says what they do.
    place(lane, i): row and column once more, of a NumPy array of lanes.
    more: int8, numbers behind the sums, acc[size + j] the lane's share of sum_k B(k, 8 j + lane // 4).
    parts: of add, of `tensor` alone.
    """

    M: int
    N: int
    K: int
    size: int
    run: int
    zero: Any
    add: Any
    row: Any
    column: Any
    place: Any
    more: int = 0
    parts: Parts | None = None


def swizzle(pitch: int) -> tuple[int, int]:
    """(shift, mask): piece p of row m lies at piece p ^ (m >> shift & mask) of the row; mask 0: where it is.

    Rows of an odd multiple of 2**e pieces are back in the same banks after 8 / 2**e rows: then e bits of p change.
    """
    e = next(e for e in (3, 2, 1, 0) if pitch // 4 % 2**e == 0)
    return 3 - e, 2**e - 1


@functools.cache
def place(pitch: int) -> Any:
    """place(row, word): where a word of a row lies in shared memory, from an operand's first word on, in order "k".

    Its 16 bytes stay together: of a piece's first word it is the piece's place.
    """
    shift, mask = swizzle(pitch)

    @cuda.jit(device=True, forceinline=True)
    def place(row, word):
        return uint32(row * uint32(pitch) + (word ^ (row >> uint32(shift) & uint32(mask)) * uint32(4)))

    return place


@functools.cache
def in_rows(pitch: int) -> Any:
    """place(row, word) of rows whose words lie one after the other."""

    @cuda.jit(device=True, forceinline=True)
    def place(row, word):
        return uint32(row * uint32(pitch) + word)

    return place


def pitch(least: int, order: str, kind: str) -> int:
    """The smallest pitch of at least so many words that has no bank conflict.

    order: one of ORDERS. kind: "ffma", or the dtype of a `tensor` product.
    """
    if kind == "ffma" and order == "mn":
        return -(-least // 4) * 4  # a warp reads neighbouring pieces of 16 bytes of one k
    if order == "k" or kind != "float32":
        return -(-(least - 4) // 8) * 8 + 4  # 8 rows of 16 bytes: an odd number of pieces apart
    return next(words for words in range(-(-least // 8) * 8, least + 40) if words % 32 in (8, 24))  # 4 rows of 8 words


def ffma(
    TM: int, TN: int, LM: int, K: int, a_pitch: int, b_pitch: int,
    a_order: str = "mn", b_order: str = "mn", spread: int = 0,
) -> WarpTile:  # fmt: skip
    """TM x TN sums of each lane, LM lanes along the rows and 32 / LM along the columns; float32.

    M = TM * LM, N = TN * 32 / LM. TM, TN and K are multiples of 4. acc[TN * i + j] is row 4 * (i // 4 * LM + lm)
    + i % 4 and column 4 * (j // 4 * LN + ln) + j % 4 of lane LN * lm + ln; run is 4. A read of a warp has no conflict.

    Orders "mn" and "mn", "k" and "mn", or "k" and "k". With A in order "k" acc[TN * i + j] is row LM * i + lm. With B
    in order "k" its columns are spread: column 4 * q + e is line spread * e + q, spread lines or more for each e, so
    that lanes whose columns are four apart read neighbouring lines.
    """
    orders = (a_order, b_order)
    if orders not in (("mn", "mn"), ("k", "mn"), ("k", "k")):
        raise ValueError(f"orders {orders} are none of ('mn', 'mn'), ('k', 'mn') and ('k', 'k')")
    if b_order == "k" and spread < TN * 32 // LM // 4:
        raise ValueError(f"{spread=} lines are fewer than a fourth of the tile's columns, {TN * 32 // LM}")
    if TM % 4 or TN % 4 or K % 4 or 32 % LM or a_pitch % 4 or b_pitch % 4:
        raise ValueError(f"{TM=}, {TN=}, {K=}, {a_pitch=} and {b_pitch=} must be multiples of 4, and {LM=} divide 32")
    if orders == ("mn", "mn"):
        return _ffma(TM, TN, LM, K, a_pitch, b_pitch)
    return _ffma_k(TM, TN, LM, K, a_pitch, b_pitch, b_order, spread)


@functools.cache
def _ffma_k(TM: int, TN: int, LM: int, K: int, a_pitch: int, b_pitch: int, b_order: str, spread: int) -> WarpTile:
    LN, RIGHT, TURNED = 32 // LM, 4 * TN, b_order == "k"

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // TN * LM) + lane // uint32(LN))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(4) * (uint32(i % TN // 4 * LN) + lane % uint32(LN)) + uint32(i % 4))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // TN * LM + lane // LN, 4 * (i % TN // 4 * LN + lane % LN) + i % 4

    @cuda.jit(device=True, forceinline=True)
    def bring(right, b, bi):  # 4 k of the lane's columns: right[TN * k + j]
        for j in range(TN // 4):
            for e in range(4):
                if TURNED:
                    v0, v1, v2, v3 = ptx.load4_shared(b, uint32(bi + uint32((spread * e + LN * j) * b_pitch)))
                    right[4 * j + e] = v0
                    right[TN + 4 * j + e] = v1
                    right[2 * TN + 4 * j + e] = v2
                    right[3 * TN + 4 * j + e] = v3
                else:
                    v0, v1, v2, v3 = ptx.load4_shared(b, uint32(bi + uint32(e * b_pitch + 4 * LN * j)))
                    right[TN * e + 4 * j] = v0
                    right[TN * e + 4 * j + 1] = v1
                    right[TN * e + 4 * j + 2] = v2
                    right[TN * e + 4 * j + 3] = v3

    def products(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def products(acc, a, ai, right):
            v0, v1, v2, v3 = ptx.load4_shared(a, uint32(ai + uint32(i * LM * a_pitch)))
            for j in range(TN):
                acc[TN * i + j] += v0 * right[j]
            for j in range(TN):
                acc[TN * i + j] += v1 * right[TN + j]
            for j in range(TN):
                acc[TN * i + j] += v2 * right[2 * TN + j]
            for j in range(TN):
                acc[TN * i + j] += v3 * right[3 * TN + j]

        return products

    rows = in_turn([products(i) for i in range(TM)], arguments=4)

    @cuda.jit(device=True, forceinline=True)
    def add(acc, a, a0, b, b0, lane):
        right = cuda.local.array(RIGHT, float32)
        ai = uint32(uint32(a0) + lane // uint32(LN) * uint32(a_pitch))
        bi = uint32(uint32(b0) + lane % uint32(LN) * uint32(b_pitch if TURNED else 4))
        for k in range(K // 4):
            bring(right, b, uint32(bi + uint32(4 * k * (1 if TURNED else b_pitch))))
            rows(acc, a, uint32(ai + uint32(4 * k)), right)

    return WarpTile(TM * LM, TN * LN, K, TM * TN, 4, _zero(TM * TN), add, row, column, place)


@functools.cache
def _ffma(TM: int, TN: int, LM: int, K: int, a_pitch: int, b_pitch: int) -> WarpTile:
    LN = 32 // LM

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(4) * (uint32(i // TN // 4 * LM) + lane // uint32(LN)) + uint32(i // TN % 4))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(4) * (uint32(i % TN // 4 * LN) + lane % uint32(LN)) + uint32(i % 4))

    def products(k0: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def products(acc, a, ai, b, bi):
            left = cuda.local.array(TM, float32)
            right = cuda.local.array(TN, float32)
            for i in range(TM // 4):
                v0, v1, v2, v3 = ptx.load4_shared(a, uint32(ai + uint32(k0 * a_pitch + 4 * LM * i)))
                left[4 * i] = v0
                left[4 * i + 1] = v1
                left[4 * i + 2] = v2
                left[4 * i + 3] = v3
            for j in range(TN // 4):
                v0, v1, v2, v3 = ptx.load4_shared(b, uint32(bi + uint32(k0 * b_pitch + 4 * LN * j)))
                right[4 * j] = v0
                right[4 * j + 1] = v1
                right[4 * j + 2] = v2
                right[4 * j + 3] = v3
            for i in range(TM):
                for j in range(TN):
                    acc[TN * i + j] += left[i] * right[j]

        return products

    four = in_turn([products(k0) for k0 in range(4)], arguments=5)

    @cuda.jit(device=True, forceinline=True)
    def add(acc, a, a0, b, b0, lane):
        ai = uint32(uint32(a0) + uint32(4) * (lane // uint32(LN)))
        bi = uint32(uint32(b0) + uint32(4) * (lane % uint32(LN)))
        for k in range(K // 4):  # a loop of 4 k: their reads overlap their products
            four(acc, a, uint32(ai + uint32(4 * k * a_pitch)), b, uint32(bi + uint32(4 * k * b_pitch)))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return 4 * (i // TN // 4 * LM + lane // LN) + i // TN % 4, 4 * (i % TN // 4 * LN + lane % LN) + i % 4

    return WarpTile(TM * LM, TN * LN, K, TM * TN, 4, _zero(TM * TN), add, row, column, place)


def tensor(
    dtype: str, M: int, N: int, K: int, a_pitch: int, b_pitch: int, a_order: str = "k", b_order: str = "k",
    ahead: bool = False, columns: bool = False, registers: int = 0,
) -> WarpTile:  # fmt: skip
    """M x N sums on tensor cores, of float32 (by three products of tf32), float16, bfloat16 or int8.

    M is a multiple of 16, N of 16, K of 8 (float32), 16, or 32 (int8, whose operands are in order "k").
    acc[4 * (N // 8 * i + j) + c] is row 16 i + g + c // 2 * 8 and column 8 j + 2 t + c % 2, g = lane // 4 and t =
    lane % 4; run is 2. All 32 lanes come together.

    ahead: in 16 bits operands are read one step of K before their products. That takes (M + N) / 4 more registers, and
    a warp need not wait for shared memory; otherwise it does, and other warps must fill the time.
    columns: int8, the sums of B's columns too; without it they are left 0.
    registers: float32, that a thread has for it (`in_halves`); 0: steps stay whole, whatever spills.
    """
    step = STEPS[dtype]
    if dtype == "int8" and (a_order, b_order) != ("k", "k"):
        raise ValueError(f"int8 operands are in order 'k', not {a_order!r} and {b_order!r}: no load transposes bytes")
    if M % 16 or N % 16 or K % step:
        raise ValueError(f"{M=} and {N=} must be multiples of 16, {K=} of {step}")
    for name, words, order in (("a_pitch", a_pitch, a_order), ("b_pitch", b_pitch, b_order)):
        if words % 4 and (order == "k" or dtype != "float32"):  # float32 in order "mn" is read word by word
            raise ValueError(f"{name}={words} must be a multiple of 4")
    if a_order not in ORDERS or b_order not in ORDERS:
        raise ValueError(f"a_order={a_order!r} and b_order={b_order!r} must be of {ORDERS}")
    halves = dtype == "float32" and registers > 0 and in_halves(M, N, registers)
    return _tensor(dtype, M, N, K, a_pitch, b_pitch, a_order, b_order, ahead, columns, halves)


def in_halves(M: int, N: int, registers: int) -> bool:
    """Whether a warp computes each step of its float32 sums in two halves, so that so many registers are enough.

    The compiler adds what the tensor cores give to the sums after all of a step's products: till then both are alive,
    twice the sums, and the two halves of A's numbers, M / 2. With 64 x 64 that is more than a thread may have. It
    moves nothing past a branch, so with one between the halves only half of the products wait. Tried on an H200: warps
    of 48 x 96 became faster; where only a few bytes spilled, as in fused/pwdw/strips, branches cost more than they
    saved, so those kernels do not ask for it.
    """
    return 2 * (M * N // 32) + M // 2 + REST > registers


@functools.cache
def _tensor(
    dtype: str, M: int, N: int, K: int, a_pitch: int, b_pitch: int, a_order: str, b_order: str, ahead: bool,
    columns: bool, halves: bool,
) -> WarpTile:  # fmt: skip
    MI, NJ, TURNS, FLOAT32 = M // 16, N // 8, K // STEPS[dtype], dtype == "float32"
    bring_a, bring_b = _bring_a(MI, a_pitch, a_order, FLOAT32), _bring_b(a_pitch=b_pitch, order=b_order, wide=FLOAT32)
    LEFT = 4 * MI
    mma = {"float32": ptx.mma_tf32, "float16": ptx.mma_f16, "bfloat16": ptx.mma_bf16, "int8": _mma_words}[dtype]
    zero, more, parts = _zero(4 * MI * NJ), 0, None

    @cuda.jit(device=True, forceinline=True)
    def product(acc, c, a, i, b0, b1):
        acc[c], acc[c + 1], acc[c + 2], acc[c + 3] = mma(
            acc[c], acc[c + 1], acc[c + 2], acc[c + 3], a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3], b0, b1
        )

    if dtype == "int8":
        more, whole, BEHIND, FIRST = NJ, product, 4 * MI * NJ, 4 * NJ
        zero = _zero(BEHIND + NJ, int32)

        @cuda.jit(device=True, forceinline=True)
        def product(acc, c, a, i, b0, b1):
            whole(acc, c, a, i, b0, b1)
            if columns and c < FIRST:  # the first rows' products have met each word of B once
                j = BEHIND + c // 4
                acc[j] = ptx.dp4a(ptx.word_of_float(b0), int32(ONES), acc[j])
                acc[j] = ptx.dp4a(ptx.word_of_float(b1), int32(ONES), acc[j])

    if FLOAT32:

        @cuda.jit(device=True, forceinline=True)
        def split(big, small, a, a0, lane, s):
            bring_a(big, a, a0, lane, s)
            for i in range(LEFT):
                whole = big[i]
                big[i] = upper(whole)
                small[i] = whole - big[i]

        def across(first: int, end: int) -> Any:
            """The products of step s of columns 16 * first to 16 * end - 1."""

            @cuda.jit(device=True, forceinline=True)
            def across(acc, big, small, b, b0, lane, s):
                words = cuda.local.array(4, float32)
                part = cuda.local.array(4, float32)
                for j in range(first, end):
                    bring_b(words, b, b0, lane, s, j)
                    for h in range(2):
                        p, q = upper(words[2 * h]), upper(words[2 * h + 1])
                        u, v = words[2 * h] - p, words[2 * h + 1] - q
                        for i in range(MI):
                            part[0] = part[1] = part[2] = part[3] = float32(0)
                            product(part, 0, small, i, p, q)
                            product(part, 0, big, i, u, v)
                            product(part, 0, big, i, p, q)
                            for e in range(4):
                                acc[4 * (NJ * i + 2 * j + h) + e] += part[e]

            return across

        first = across(0, -(-NJ // 4) if halves else NJ // 2)
        others = across(-(-NJ // 4), NJ // 2)

        @cuda.jit(device=True, forceinline=True)
        def add(acc, a, a0, b, b0, lane):
            big = cuda.local.array(LEFT, float32)
            small = cuda.local.array(LEFT, float32)
            if halves:
                for turn in range(2 * TURNS):
                    if turn % 2 == 0:
                        split(big, small, a, a0, lane, turn // 2)
                        first(acc, big, small, b, b0, lane, turn // 2)
                    else:
                        others(acc, big, small, b, b0, lane, turn // 2)
            else:
                for s in range(TURNS):
                    split(big, small, a, a0, lane, s)
                    first(acc, big, small, b, b0, lane, s)

    elif ahead:
        add, parts = _ahead(MI, NJ, TURNS, bring_a, bring_b, product)

    else:

        @cuda.jit(device=True, forceinline=True)
        def add(acc, a, a0, b, b0, lane):
            left = cuda.local.array(LEFT, float32)
            words = cuda.local.array(4, float32)
            for s in range(TURNS):
                bring_a(left, a, a0, lane, s)
                for j in range(NJ // 2):
                    bring_b(words, b, b0, lane, s, j)
                    for h in range(2):
                        for i in range(MI):
                            product(acc, 4 * (NJ * i + 2 * j + h), left, i, words[2 * h], words[2 * h + 1])

    return WarpTile(M, N, K, 4 * MI * NJ, 2, zero, add, *_places(NJ), more, parts or _whole(add))


def _whole(add: Any) -> Parts:
    """`add` as parts of which one is all."""

    @cuda.jit(device=True, forceinline=True)
    def nothing(acc, held, a, a0, b, b0, lane):
        pass

    @cuda.jit(device=True, forceinline=True)
    def most(acc, held, a, a0, b, b0, lane):
        add(acc, a, a0, b, b0, lane)

    return Parts(1, nothing, most, nothing)


@functools.cache
def beside(dtype: str, M: int, N: int, a_pitch: int) -> WarpTile:
    """M x N sums on tensor cores, as `tensor`'s, of 16 words of k a call: A from shared memory, B from registers.

    add(acc, a, at, words): at is the word where this lane reads first, that of row lane // 4 and of k's word
    4 * (lane % 4); words the lane's words of B, of column 8 j + lane // 4 those of k 4 * (lane % 4) to + 3 from
    words[4 * j] on. All 32 lanes come together. A lane so reads 16 bytes at a time of either operand, and which words
    of k meet in an mma is another order than k's own: the same for both, so the sums are the same. a_pitch: 16 more
    than a multiple of 32, so that two rows' pieces of eight lanes are all banks.
    """
    MI, NJ, FLOAT32 = M // 16, N // 8, dtype == "float32"
    mma = {"float32": ptx.mma_tf32, "float16": ptx.mma_f16, "bfloat16": ptx.mma_bf16}[dtype]
    WORDS = 4 * NJ

    def rows(i: int) -> Any:
        first = 4 * NJ * i

        @cuda.jit(device=True, forceinline=True)
        def read(a, at):
            v0, v1, v2, v3 = ptx.load4_shared(a, uint32(at + uint32(16 * i * a_pitch)))
            w0, w1, w2, w3 = ptx.load4_shared(a, uint32(at + uint32((16 * i + 8) * a_pitch)))
            return v0, w0, v1, w1, v2, w2, v3, w3

        @cuda.jit(device=True, forceinline=True)
        def product(acc, c, left, s, b0, b1):
            acc[c], acc[c + 1], acc[c + 2], acc[c + 3] = mma(
                acc[c], acc[c + 1], acc[c + 2], acc[c + 3],
                left[4 * s], left[4 * s + 1], left[4 * s + 2], left[4 * s + 3], b0, b1,
            )  # fmt: skip

        if FLOAT32:

            @cuda.jit(device=True, forceinline=True)
            def add(acc, a, at, big, small):
                left = cuda.local.array(8, float32)
                rest = cuda.local.array(8, float32)
                part = cuda.local.array(4, float32)
                left[0], left[1], left[2], left[3], left[4], left[5], left[6], left[7] = read(a, at)
                for e in range(8):
                    whole = left[e]
                    left[e] = upper(whole)
                    rest[e] = whole - left[e]
                for j in range(NJ):
                    part[0] = part[1] = part[2] = part[3] = float32(0)
                    for s in range(2):
                        product(part, 0, rest, s, big[4 * j + 2 * s], big[4 * j + 2 * s + 1])
                        product(part, 0, left, s, small[4 * j + 2 * s], small[4 * j + 2 * s + 1])
                    for s in range(2):
                        product(part, 0, left, s, big[4 * j + 2 * s], big[4 * j + 2 * s + 1])
                    for e in range(4):
                        acc[first + 4 * j + e] += part[e]

        else:

            @cuda.jit(device=True, forceinline=True)
            def add(acc, a, at, big, small):
                left = cuda.local.array(8, float32)
                left[0], left[1], left[2], left[3], left[4], left[5], left[6], left[7] = read(a, at)
                for s in range(2):
                    for j in range(NJ):
                        product(acc, first + 4 * j, left, s, big[4 * j + 2 * s], big[4 * j + 2 * s + 1])

        return add

    all_rows = in_turn([rows(i) for i in range(MI)], arguments=5)

    if FLOAT32:

        @cuda.jit(device=True, forceinline=True)
        def add(acc, a, at, words):
            big = cuda.local.array(WORDS, float32)
            small = cuda.local.array(WORDS, float32)
            for e in range(WORDS):
                big[e] = upper(words[e])
                small[e] = words[e] - big[e]
            all_rows(acc, a, at, big, small)

    else:

        @cuda.jit(device=True, forceinline=True)
        def add(acc, a, at, words):
            all_rows(acc, a, at, words, words)

    return WarpTile(M, N, 0, 4 * MI * NJ, 2, _zero(4 * MI * NJ), add, *_places(NJ))


def _ahead(MI: int, NJ: int, STEPS: int, bring_a: Any, bring_b: Any, product: Any) -> Any:
    """add of 16-bit elements: the operands of a step are read before the products of the step before.

    Without that each read would be followed by the four products that need it: a warp would wait for shared memory as
    often as it reads. With it a read has a whole step's products, 8 cycles each, to come. Registers for two steps.
    """
    LEFT, EACH = 4 * MI, 4 * MI + 2 * NJ  # words of a step

    def reads(s: int) -> Any:
        o = s % 2 * EACH

        @cuda.jit(device=True, forceinline=True)
        def reads(acc, words, a, a0, b, b0, lane):
            left = cuda.local.array(LEFT, float32)
            four = cuda.local.array(4, float32)
            bring_a(left, a, a0, lane, s)
            for i in range(LEFT):
                words[o + i] = left[i]
            for j in range(NJ // 2):
                bring_b(four, b, b0, lane, s, j)
                for e in range(4):
                    words[o + LEFT + 4 * j + e] = four[e]

        return reads

    def products(s: int, i: int) -> Any:
        o = s % 2 * EACH

        @cuda.jit(device=True, forceinline=True)
        def products(acc, words, a, a0, b, b0, lane):
            left = cuda.local.array(4, float32)
            for e in range(4):
                left[e] = words[o + 4 * i + e]
            for j in range(NJ):
                at = o + LEFT + 2 * j
                product(acc, 4 * (NJ * i + j), left, 0, words[at], words[at + 1])

        return products

    most, last = [], [products(STEPS - 1, i) for i in range(MI)]
    for s in range(STEPS - 1):
        most += [reads(s + 1)] + [products(s, i) for i in range(MI)]
    steps = in_turn([reads(0), *most, *last], arguments=7)
    WORDS = EACH * min(2, STEPS)

    @cuda.jit(device=True, forceinline=True)
    def add(acc, a, a0, b, b0, lane):
        words = cuda.local.array(WORDS, float32)
        steps(acc, words, a, a0, b, b0, lane)

    if STEPS % 2:
        return add, None
    return add, Parts(WORDS, reads(0), in_turn(most, arguments=7), in_turn(last, arguments=7))


def _places(NJ: int) -> tuple[Any, Any, Any]:
    """row, column and place of tensor tiles, NJ columns of 16 x 8 sums."""

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // 4 // NJ * 16 + i % 4 // 2 * 8) + lane // uint32(4))

    @cuda.jit(device=True, forceinline=True)
    def column(lane, i):
        return uint32(uint32(i // 4 % NJ * 8 + i % 2) + uint32(2) * (lane % uint32(4)))

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // 4 // NJ * 16 + i % 4 // 2 * 8 + lane // 4, i // 4 % NJ * 8 + i % 2 + 2 * (lane % 4)

    return row, column, place


def fragment() -> WarpTile:
    """The 16 x 8 sums of one mma, for `each` and `fours`: of a warp that got them otherwise than by `add`."""
    return WarpTile(16, 8, 0, 4, 2, _zero(4), None, *_places(1))


@cuda.jit(device=True, forceinline=True)
def upper(x):
    """x rounded to 11 significant bits, halves away from 0: what tf32 holds. One addition and one mask."""
    return ptx.float_of_word(int32((ptx.word_of_float(x) + int32(0x1000)) & int32(-0x2000)))


def _bring_a(MI: int, pitch: int, order: str, wide: bool) -> Any:
    """bring(words, a, a0, lane, s): a0 to a3 of each 16 rows, of step s: 8 words along k in order "k"."""
    if order == "k":
        shift, mask = swizzle(pitch)  # a warp's first row is a multiple of 8: the lane alone says what changes places

        @cuda.jit(device=True, forceinline=True)
        def bring(words, a, a0, lane, s):
            piece = uint32((lane // uint32(16)) ^ (lane >> uint32(shift) & uint32(mask)) ^ uint32(2 * s))
            at = uint32(uint32(a0) + (lane % uint32(16)) * uint32(pitch) + piece * uint32(4))
            for i in range(MI):
                v0, v1, v2, v3 = ptx.ldmatrix_x4(a, uint32(at + uint32(16 * pitch * i)))
                words[4 * i] = v0
                words[4 * i + 1] = v1
                words[4 * i + 2] = v2
                words[4 * i + 3] = v3

    elif wide:

        @cuda.jit(device=True, forceinline=True)
        def bring(words, a, a0, lane, s):
            at = uint32(uint32(a0) + (lane % uint32(4)) * uint32(pitch) + lane // uint32(4))
            for i in range(MI):
                words[4 * i] = a[uint32(at + uint32(8 * pitch * s + 16 * i))]
                words[4 * i + 1] = a[uint32(at + uint32(8 * pitch * s + 16 * i + 8))]
                words[4 * i + 2] = a[uint32(at + uint32(8 * pitch * s + 4 * pitch + 16 * i))]
                words[4 * i + 3] = a[uint32(at + uint32(8 * pitch * s + 4 * pitch + 16 * i + 8))]

    else:

        @cuda.jit(device=True, forceinline=True)
        def bring(words, a, a0, lane, s):
            k = uint32(lane % uint32(8) + lane // uint32(16) * uint32(8))
            at = uint32(uint32(a0) + k * uint32(pitch) + lane // uint32(8) % uint32(2) * uint32(4))
            for i in range(MI):
                v0, v1, v2, v3 = ptx.ldmatrix_x4_trans(a, uint32(at + uint32(16 * pitch * s + 8 * i)))
                words[4 * i] = v0
                words[4 * i + 1] = v1
                words[4 * i + 2] = v2
                words[4 * i + 3] = v3

    return bring


def _bring_b(a_pitch: int, order: str, wide: bool) -> Any:
    """bring(words, b, b0, lane, s, j): b0 and b1 of columns 16 j to 16 j + 7, then of the 8 after them, of step s."""
    pitch = a_pitch
    if order == "k":
        shift, mask = swizzle(pitch)

        @cuda.jit(device=True, forceinline=True)
        def bring(words, b, b0, lane, s, j):
            n = uint32(lane % uint32(8) + lane // uint32(16) * uint32(8))
            piece = uint32((lane // uint32(8) % uint32(2)) ^ (lane >> uint32(shift) & uint32(mask)) ^ uint32(2 * s))
            at = uint32(uint32(b0) + n * uint32(pitch) + piece * uint32(4))
            words[0], words[1], words[2], words[3] = ptx.ldmatrix_x4(b, uint32(at + uint32(16 * pitch * j)))

    elif wide:

        @cuda.jit(device=True, forceinline=True)
        def bring(words, b, b0, lane, s, j):
            at = uint32(uint32(b0) + (lane % uint32(4)) * uint32(pitch) + lane // uint32(4))
            words[0] = b[uint32(at + uint32(8 * pitch * s + 16 * j))]
            words[1] = b[uint32(at + uint32(8 * pitch * s + 4 * pitch + 16 * j))]
            words[2] = b[uint32(at + uint32(8 * pitch * s + 16 * j + 8))]
            words[3] = b[uint32(at + uint32(8 * pitch * s + 4 * pitch + 16 * j + 8))]

    else:

        @cuda.jit(device=True, forceinline=True)
        def bring(words, b, b0, lane, s, j):
            at = uint32(uint32(b0) + (lane % uint32(16)) * uint32(pitch) + lane // uint32(16) * uint32(4))
            words[0], words[1], words[2], words[3] = ptx.ldmatrix_x4_trans(
                b, uint32(at + uint32(16 * pitch * s + 8 * j))
            )

    return bring


def each(tile: WarpTile, put: Any) -> Any:
    """The device function each(acc, lane, y, b, r, m0, n0), which calls `put` for each run of sums, in straight line.

    put(y, b, r, m, n, v0, v1) where tile.run is 2, put(y, b, r, m, n, v0, v1, v2, v3) where it is 4: v0 is the sum of
    row m - m0 and column n - n0 of the tile, the others those of the columns after it. y, b, r may be any arrays.
    """
    row, column = tile.row, tile.column

    def one(i: int) -> Any:
        if tile.run == 2:

            @cuda.jit(device=True, forceinline=True)
            def one(acc, lane, y, b, r, m0, n0):
                put(y, b, r, uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i)), acc[i], acc[i + 1])

        else:

            @cuda.jit(device=True, forceinline=True)
            def one(acc, lane, y, b, r, m0, n0):
                m, n = uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i))
                put(y, b, r, m, n, acc[i], acc[i + 1], acc[i + 2], acc[i + 3])

        return one

    return in_turn([one(i) for i in range(0, tile.size, tile.run)], arguments=7)


def fours(tile: WarpTile, put: Any) -> Any:
    """As `each`, but put always gets four neighbouring columns, the first one's a multiple of 4.

    Sums from tensor cores change lanes for this, two shuffles for four of them: of lanes t and t + 1, t even, the
    first takes both's sums of row g, the other those of row g + 8. All 32 lanes come together.
    """
    if tile.run == 4:
        return each(tile, put)
    row, column = tile.row, tile.column

    def one(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def one(acc, lane, y, b, r, m0, n0):
            odd = (lane & uint32(1)) != uint32(0)
            p, q = acc[i + 2], acc[i + 3]  # what the neighbour takes
            if odd:
                p, q = acc[i], acc[i + 1]
            p, q = cuda.shfl_xor_sync(0xFFFFFFFF, p, 1), cuda.shfl_xor_sync(0xFFFFFFFF, q, 1)
            v0, v1, v2, v3 = acc[i], acc[i + 1], p, q
            m, n = uint32(m0 + row(lane, i)), uint32(n0 + column(lane, i))
            if odd:
                v0, v1, v2, v3 = p, q, acc[i + 2], acc[i + 3]
                m, n = uint32(m + uint32(8)), uint32(n - uint32(2))
            put(y, b, r, m, n, v0, v1, v2, v3)

        return one

    return in_turn([one(i) for i in range(0, tile.size, 4)], arguments=7)


def place_of_four(tile: WarpTile, lane: Any, i: int) -> tuple[Any, Any]:
    """Row and column of the first of the four sums that each of a NumPy array of lanes puts in `fours`, from acc[i]."""
    m, n = tile.place(lane, i)
    return (m, n) if tile.run == 4 else (m + lane % 2 * 8, n - lane % 2 * 2)


@cuda.jit(device=True, forceinline=True)
def _mma_words(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1):
    """ptx.mma_s8 of operands that are words of a float32 array."""
    return ptx.mma_s8(
        c0, c1, c2, c3, ptx.word_of_float(a0), ptx.word_of_float(a1), ptx.word_of_float(a2), ptx.word_of_float(a3),
        ptx.word_of_float(b0), ptx.word_of_float(b1),
    )  # fmt: skip


@functools.cache
def _zero(size: int, kind: Any = float32) -> Any:
    @cuda.jit(device=True, forceinline=True)
    def zero(acc):
        for i in range(size):
            acc[i] = kind(0)

    return zero
