"""One row's convolution as straight-line code for a fixed shape, with everything in registers.

A register has no address: an array stays in registers only if each of its indices is known when the kernel is
compiled. Numba unrolls a loop of literal length if it is short, up to some 8 x 8 products, and 48 x 48 it does not.
So the row is cut into blocks of 8 outputs by 8 taps, each a device function with its place built in, and these are
called one after the other. Where a block crosses the edge of the triangle t + shift - j >= 0 (or the row's end) its
conditions are constants, and the compiler drops the products outside: what is left are exactly the problem's taps.
"""

from __future__ import annotations

import functools
from typing import Any

from dwlab.target import cuda

BLOCK = 8  # outputs, and taps, of a block


@functools.cache
def row(L: int, K: int, shift: int) -> Any:
    """The device function add(y, w, x): y[t] += w[j] * x[t + shift - j] for all t < L, j < K with x inside the row.

    y, w and x are local arrays of L, K and L float32. Outputs come last one first, as then each x is soon done with.
    """
    blocks = []
    for t0 in reversed(range(0, L, BLOCK)):
        for j0 in range(0, K, BLOCK):
            first = t0 + shift - j0 - (BLOCK - 1)  # the x that this block reads: 15 from here on
            if first < L and first + 2 * (BLOCK - 1) >= 0:
                blocks.append(block(t0, j0, L, K, shift))
    return in_turn(blocks)


def block(t0: int, j0: int, L: int, K: int, shift: int) -> Any:
    """The products of the outputs t0 … t0+7 and the taps j0 … j0+7."""

    @cuda.jit(device=True, forceinline=True)
    def add(y, w, x):
        for j in range(BLOCK):
            for i in range(BLOCK):
                s = t0 + i + shift - j0 - j
                if t0 + i < L and j0 + j < K and 0 <= s and s < L:
                    y[t0 + i] += w[j0 + j] * x[s]

    return add


def in_turn(calls: list[Any]) -> Any:
    """The device function that makes all these calls, one after the other.

    Halves of halves, not a chain: Numba compiles a function where another first calls it, and so each level is a level
    of Python's recursion.
    """
    if len(calls) == 1:
        return calls[0]
    first, second = in_turn(calls[: len(calls) // 2]), in_turn(calls[len(calls) // 2 :])

    @cuda.jit(device=True, forceinline=True)
    def both(y, w, x):
        first(y, w, x)
        second(y, w, x)

    return both
