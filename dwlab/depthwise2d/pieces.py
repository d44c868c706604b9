"""Pieces of 16 bytes: four float32 words that hold 4 elements, or 8 of 16 bits, and what kernels do with them.

Arrays come as rows of float32 words whatever they hold (view "words"). Each function here makes device functions for a
storage type; sums and what they are made of are float32.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from numba import float32, uint32

from dwlab import epilogue, ptx
from dwlab.layers import DepthwiseConv2d
from dwlab.target import cuda

DTYPES = ("float32", "float16", "bfloat16")
UNPACK = {"float16": ptx.halves, "bfloat16": ptx.bfloats}
PACK = {"float16": ptx.join_halves, "bfloat16": ptx.join_bfloats}


def elements(dtype: str) -> int:
    """Elements of a piece: 4 or 8."""
    return 4 if dtype == "float32" else 8


def words(count: int, dtype: str) -> int:
    """float32 words that hold so many elements."""
    return count if dtype == "float32" else count // 2


@functools.cache
def spread(dtype: str) -> Any:
    """spread(values, at, a, b, c, d): the elements in four words, as float32, to values[at], values[at + 1], …"""
    unpack = UNPACK.get(dtype)
    if unpack is None:

        @cuda.jit(device=True, forceinline=True)
        def spread(values, at, a, b, c, d):
            values[at], values[at + 1], values[at + 2], values[at + 3] = a, b, c, d

    else:

        @cuda.jit(device=True, forceinline=True)
        def spread(values, at, a, b, c, d):
            values[at], values[at + 1] = unpack(a)
            values[at + 2], values[at + 3] = unpack(b)
            values[at + 4], values[at + 5] = unpack(c)
            values[at + 6], values[at + 7] = unpack(d)

    return spread


@functools.cache
def load(dtype: str) -> Any:
    """load(values, at, array, index): a piece of a global array, from word `index` on, as float32."""
    spreads = spread(dtype)

    @cuda.jit(device=True, forceinline=True)
    def load(values, at, array, index):
        a, b, c, d = ptx.load4(array, index)
        spreads(values, at, a, b, c, d)

    return load


@functools.cache
def store(dtype: str) -> Any:
    """store(array, index, values, at): and back, each element rounded."""
    pack = PACK.get(dtype)
    if pack is None:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            ptx.store4(array, index, values[at], values[at + 1], values[at + 2], values[at + 3])

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(array, index, values, at):
            a, b = pack(values[at], values[at + 1]), pack(values[at + 2], values[at + 3])
            c, d = pack(values[at + 4], values[at + 5]), pack(values[at + 6], values[at + 7])
            ptx.store4(array, index, a, b, c, d)

    return store


@functools.cache
def element(dtype: str) -> Any:
    """element(array, index): one element of an array of words, as float32."""
    unpack = UNPACK.get(dtype)
    if unpack is None:

        @cuda.jit(device=True, forceinline=True)
        def element(array, index):
            return array[index]

    else:

        @cuda.jit(device=True, forceinline=True)
        def element(array, index):
            low, high = unpack(array[uint32(index >> uint32(1))])
            return high if index & uint32(1) else low

    return element


def activated(layer: DepthwiseConv2d) -> Any:
    """activated(total, bias): activation(total + bias), the residual left out; bias a local array of one number."""
    finish = epilogue.finish(replace(layer, residual=False))

    @cuda.jit(device=True, forceinline=True)
    def activated(total, bias, at):
        return finish(total, bias, bias, at, at)

    return activated


@functools.cache
def add_residual(residual: bool, dtype: str) -> Any:
    """add(values, at, r, index): values[at : …] += the piece of r from word `index` on; nothing without a residual."""
    if not residual:

        @cuda.jit(device=True, forceinline=True)
        def add(values, at, r, index):
            pass

    else:
        ask, size = load(dtype), elements(dtype)

        @cuda.jit(device=True, forceinline=True)
        def add(values, at, r, index):
            more = cuda.local.array(size, float32)
            ask(more, 0, r, index)
            for k in range(size):
                values[at + k] += more[k]

    return add
