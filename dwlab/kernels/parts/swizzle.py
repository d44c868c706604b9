"""Where the words of a matrix lie in shared memory so that tensor cores' reads have no bank conflict.

A warp's mma operands are read 8 rows at a time, 16 bytes of each. Where a row is an odd number of 16-byte vectors they
lie in different banks, and word k of row m is word m * pitch + k. But a copy that fills such rows puts most 128 bytes
of memory to two places, and the hardware requests their sectors twice. Rows of an even number of vectors need no
padding: their vectors change places, by an exclusive or with the row (a swizzle), and lie in different banks too.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import uint32

from dwlab.target import cuda


def swizzle(pitch: int) -> tuple[int, int]:
    """(shift, mask): vector v of row m lies at vector v ^ (m >> shift & mask) of the row; mask 0: where it is.

    Rows of an odd multiple of 2**e vectors are back in the same banks after 8 / 2**e rows: then e bits of v change.
    """
    e = next(e for e in (3, 2, 1, 0) if pitch // 4 % 2**e == 0)
    return 3 - e, 2**e - 1


@functools.cache
def place(pitch: int) -> Any:
    """place(row, word): where a word of a row lies in shared memory, from the matrix's first word on.

    Its 16 bytes stay together: of a vector's first word it is the vector's place.
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


def padded(words: int) -> int:
    """The smallest pitch of at least so many words that has no bank conflict unswizzled: an odd number of vectors."""
    return -(-(words - 4) // 8) * 8 + 4
