"""The epilogue of int8 layers, requantisation; and sums and epilogues of kernels that take any storage type."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, int8, int32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts.epilogue import finish
from dwlab.kernels.parts.ptx_rounding import add_rn, rint
from dwlab.problems.layers import DepthwiseConv2d, Pointwise


def requantise(layer: DepthwiseConv2d | Pointwise, packed: bool = False) -> Any:
    """requantise(total, b, m, c, r): clamp(rint(float32(total + b[c]) * m[c]) + zero_y, low, 127), an int32.

    total: int32, the sum of (x - zero_x) * w. b int32 and m float32 (channels,). r: an int32, added if the layer has a
    residual: clamp(rint(t + float32(r - zero_r) * m_r) + zero_y, -128, 127), t = float32(total + b[c]) * m[c], after
    its relu.
    packed: what comes out is for ptx.pack_s8, which limits to -128 and 127; limits that it makes needless are left out.
    """
    zero_r, m_r = (layer.zero_r, layer.m_r) if layer.residual else (0, 0.0)
    return _requantise(layer.bias, layer.activation == "relu", layer.zero_y, layer.residual, zero_r, m_r, packed)


@functools.cache
def _requantise(bias: bool, relu: bool, zero: int, residual: bool, zero_r: int, m_r: float, packed: bool) -> Any:
    rounded = _rounded(relu and not residual, zero, packed)

    @cuda.jit(device=True, forceinline=True)
    def requantise(total, b, m, c, r):
        if bias:
            total = int32(total + b[c])
        value = float32(total) * m[c]
        if residual:
            if relu:
                value = max(value, float32(0))
            value = add_rn(value, float32(int32(r) - int32(zero_r)) * float32(m_r))
        return rounded(value)

    return requantise


@functools.cache
def _rounded(relu: bool, zero: int, packed: bool) -> Any:
    """rounded(value): clamp(rint(value) + zero, low, 127), low = zero with relu, else -128; a half to the even number.

    packed: ptx.pack_s8 makes that of what comes out; then one limit is left where the sum with zero could be more, or
    less, than 32 bits hold. With relu and without a zero point rounding and packing become one instruction of two.
    """
    LEAST, MOST = not relu and (not packed or zero < 0), not packed or zero > 0

    @cuda.jit(device=True, forceinline=True)
    def rounded(value):
        if relu:
            value = max(value, float32(0))
        whole = rint(value)
        if LEAST:
            whole = max(whole, int32(-128 - zero))
        if MOST:
            whole = min(whole, int32(127 - zero))
        return int32(whole + int32(zero))

    return rounded


def sums(layer: DepthwiseConv2d | Pointwise) -> tuple[Any, Any, Any]:
    """(zero, add, stored): an empty sum, add(total, w, x) -> the sum with one product more, and Numba's type of an x
    that is kept between layers.

    Sums are float32; of int8 layers int32, of (x - zero_x) * w, and what is kept is an int8.
    """
    kinds = (np.int32(0), int8) if layer.dtype == "int8" else (np.float32(0), float32)
    return kinds[0], _add(layer.dtype == "int8", layer.zero_x), kinds[1]


@functools.cache
def _add(whole: bool, zero: int) -> Any:
    @cuda.jit(device=True, forceinline=True)
    def add(total, w, x):
        if whole:
            return int32(total + int32(w) * int32(int32(x) - int32(zero)))
        return total + float32(w) * float32(x)

    return add


def closing(layer: DepthwiseConv2d | Pointwise) -> Any:
    """closing(total, b, m, r, c, at): what is stored of a sum of `sums`, by `finish` or, in int8, by `requantise`."""
    whole = layer.dtype == "int8"
    return _closing(requantise(layer) if whole else finish(layer), whole, layer.residual)


@functools.cache
def _closing(end: Any, whole: bool, residual: bool) -> Any:
    @cuda.jit(device=True, forceinline=True)
    def closing(total, b, m, r, c, at):
        if whole:
            return int8(end(total, b, m, c, r[at] if residual else int8(0)))
        return end(total, b, r, c, at)

    return closing


def vectors(layer: DepthwiseConv2d | Pointwise) -> tuple[int, int]:
    """(how many arrays with a number for each output channel `closing` reads, their elements in a sector): b and m."""
    whole = layer.dtype == "int8"
    return layer.bias + whole, 8 if whole else 32 // layer.itemsize
