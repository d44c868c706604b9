"""float32 on tensor cores: each number split in two tf32, and three of the four products.

tf32 has 11 significant bits, too few for a float32 of 24. Each operand is split in two tf32, x = h + l, h the upper 11
bits and l what is left, and of the four products three are summed up, l h + h l + h h: l l is below the last bit. An
error of at most 2**-21 of each product is left, 8 units of roundoff: what a sum of `FEWEST` terms may be off by, and
more than one of fewer, which is left to multiply-adds. An mma cuts its sums off where a float32 addition rounds, so a
long sum in one would drift towards 0: each starts from 0, and what it gives is added by a float32 addition.
"""

from __future__ import annotations

from typing import Any

from numba import float32, int32

from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.fragments import accumulate
from dwlab.target import cuda

FEWEST = 6  # terms of a sum: with n of them it may be off by 2 + n units (problems/references.py)
REST = 24  # registers for a step's B, addresses and counters, about


def in_halves(M: int, N: int, registers: int) -> bool:
    """Whether a warp computes each step of its float32 sums in two halves, so that so many registers are enough.

    The compiler adds what the tensor cores give to the sums after all of a step's products: till then both are alive,
    twice the sums, and the two halves of A's numbers, M / 2. With 64 x 64 that is more than a thread may have. It
    moves nothing past a branch, so with one between the halves only half of the products wait. Measured on an H200:
    warps of 48 x 96 became faster; where only a few bytes spilled, as in fused/pwdw/strips, branches cost more than
    they saved, so those kernels do not request it.
    """
    return 2 * (M * N // 32) + M // 2 + REST > registers


@cuda.jit(device=True, forceinline=True)
def upper(x):
    """x rounded to 11 significant bits, halves away from 0: what tf32 holds. One addition and one mask."""
    return ptx.float_of_word(int32((ptx.word_of_float(x) + int32(0x1000)) & int32(-0x2000)))


def add_tf32(MI: int, NJ: int, steps: int, load_a: Any, load_b: Any, halves: bool) -> Any:
    """add(acc, a, a0, b, b0, lane) of WarpTile: MI x NJ products of 16 x 8, `steps` steps of 8 terms."""
    LEFT, product = 4 * MI, accumulate(ptx.mma_tf32)

    @cuda.jit(device=True, forceinline=True)
    def split(big, small, a, a0, lane, s):
        load_a(big, a, a0, lane, s)
        for i in range(LEFT):
            x = big[i]
            big[i] = upper(x)
            small[i] = x - big[i]

    def across(first: int, end: int) -> Any:
        """The products of step s of columns 16 * first to 16 * end - 1."""

        @cuda.jit(device=True, forceinline=True)
        def across(acc, big, small, b, b0, lane, s):
            words = cuda.local.array(4, float32)
            part = cuda.local.array(4, float32)
            for j in range(first, end):
                load_b(words, b, b0, lane, s, j)
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
            for half in range(2 * steps):
                if half % 2 == 0:
                    split(big, small, a, a0, lane, half // 2)
                    first(acc, big, small, b, b0, lane, half // 2)
                else:
                    others(acc, big, small, b, b0, lane, half // 2)
        else:
            for s in range(steps):
                split(big, small, a, a0, lane, s)
                first(acc, big, small, b, b0, lane, s)

    return add
