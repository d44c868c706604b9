"""One row's sums as straight-line code for a fixed shape, with everything in registers.

A register has no address: an array stays in registers only if each of its indices is known when the kernel is
compiled. Numba unrolls a loop of literal length if it is short, up to some 8 x 8 products, and 48 x 48 it does not.
So the row is cut into blocks of 8 times by 8 taps, each a device function with its place built in, and these are
called one after the other. Where a block crosses the edge of the triangle t + shift - j >= 0 (or the row's end) its
conditions are constants, and the compiler drops the products outside: what is left are exactly the problem's taps.
"""

from __future__ import annotations

import functools
from typing import Any

from dwlab.kernels.parts.unroll import in_sequence
from dwlab.target import cuda

BLOCK = 8  # times, and taps, of a block


def places(L: int, K: int, shift: int) -> list[tuple[int, int]]:
    """The blocks (t0, j0) that hold a product. The last times come first, as then each x is soon done with."""
    found = []
    for t0 in reversed(range(0, L, BLOCK)):
        for j0 in range(0, K, BLOCK):
            first = t0 + shift - j0 - (BLOCK - 1)  # the x that this block reads: 15 from here on
            if first < L and first + 2 * (BLOCK - 1) >= 0:
                found.append((t0, j0))
    return found


def window(L: int, K: int, shift: int) -> tuple[int, int]:
    """The taps that meet an element of a row of L: (the first, how many); all K where K <= L."""
    first = max(0, shift - (L - 1))
    return first, min(K, shift + L) - first


def taps_of(L: int, K: int, shift: int, s0: int) -> list[int]:
    """The blocks of taps (each its first one) that the 8 elements of x from s0 on meet some dy of the row with."""
    return [j0 for j0 in range(0, K, BLOCK) if -2 * (BLOCK - 1) <= s0 - shift + j0 < L]


@functools.cache
def row(L: int, K: int, shift: int) -> Any:
    """The device function add(y, w, x): y[t] += w[j] * x[t + shift - j] for all t < L, j < K with x inside the row.

    y, w and x are local arrays of L, K and L float32.
    """
    return in_sequence([block(t0, j0, L, K, shift, L, 0) for t0, j0 in places(L, K, shift)])


def block(t0: int, j0: int, L: int, K: int, shift: int, x_length: int, ahead: int, reverse: bool = False) -> Any:
    """The products of y[t0 … t0+7] and the taps j0 … j0+7, both within L and K; y[t] stands for the time t + ahead."""
    first, step = (K - 1, -1) if reverse else (0, 1)

    @cuda.jit(device=True, forceinline=True)
    def add(y, w, x):
        for j in range(BLOCK):
            for i in range(BLOCK):
                s = ahead + t0 + i + shift - j0 - j
                if t0 + i < L and j0 + j < K and 0 <= s and s < x_length:
                    y[t0 + i] += w[first + step * (j0 + j)] * x[s]

    return add


@functools.cache
def taps(L: int, K: int, shift: int, s0: int) -> Any:
    """The device function add(dw, dy, x): dw[j] += dy[t] * x[s - s0] for s0 <= s < s0+8, t = s - shift + j in the row.

    dw and dy are local arrays of K and L float32; x holds only the 8 elements from s0 on.
    """

    def products(j0: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def add(dw, dy, x):
            for j in range(BLOCK):
                for i in range(BLOCK):
                    t = s0 + i - shift + j0 + j
                    if s0 + i < L and j0 + j < K and 0 <= t and t < L:
                        dw[j0 + j] += dy[t] * x[i]

        return add

    return in_sequence([products(j0) for j0 in taps_of(L, K, shift, s0)])
