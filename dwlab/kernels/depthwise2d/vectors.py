"""16-byte vectors of the kernels here (kernels.parts.pieces): load and store them, finish their sums.

Arrays come as rows of float32 words whatever they hold (view "words"). Each function here makes device functions for a
storage type; sums and what they are made of are float32.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts import epilogue
from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts.pieces import UNPACK, elements, pack_vector, unpack_vector
from dwlab.problems.layers import DepthwiseConv2d
from dwlab.target import cuda

DTYPES = ("float32", "float16", "bfloat16")


@functools.cache
def load(dtype: str) -> Any:
    """load(values, at, array, index): a vector of a global array, from word `index` on, as float32."""
    unpack = unpack_vector(dtype)

    @cuda.jit(device=True, forceinline=True)
    def load(values, at, array, index):
        a, b, c, d = ptx.load4(array, index)
        unpack(values, at, a, b, c, d)

    return load


@functools.cache
def store(dtype: str) -> Any:
    """store(array, index, values, at): and back, each element rounded."""
    pack = pack_vector(dtype)

    @cuda.jit(device=True, forceinline=True)
    def store(array, index, values, at):
        a, b, c, d = pack(values, at)
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
    """add(values, at, r, index): values[at : …] += the vector of r from word `index` on; nothing without a residual."""
    if not residual:

        @cuda.jit(device=True, forceinline=True)
        def add(values, at, r, index):
            pass

    else:
        get, size = load(dtype), elements(dtype)

        @cuda.jit(device=True, forceinline=True)
        def add(values, at, r, index):
            more = cuda.local.array(size, float32)
            get(more, 0, r, index)
            for k in range(size):
                values[at + k] += more[k]

    return add
