"""What a layer does with a sum before it is stored: bias, activation, residual; in int8, requantisation.

Each function makes a device function for a layer; what the layer does not have costs no instruction. `sums` and
`closing` are for kernels of any storage type, int8 among them.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32, int8, int32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts.ptx_int8 import add_rn, rint
from dwlab.problems.layers import DepthwiseConv2d, Pointwise


@functools.cache
def activate(activation: str) -> Any:
    """activate(value): of float32, one of layers.ACTIVATIONS."""
    root = 1 / math.sqrt(2)
    if activation == "relu":

        @cuda.jit(device=True, forceinline=True)
        def activate(value):
            return max(value, float32(0))

    elif activation == "relu6":

        @cuda.jit(device=True, forceinline=True)
        def activate(value):
            return min(max(value, float32(0)), float32(6))

    elif activation == "gelu":

        @cuda.jit(device=True, forceinline=True)
        def activate(value):
            return float32(0.5) * value * (float32(1) + math.erf(value * float32(root)))

    else:

        @cuda.jit(device=True, forceinline=True)
        def activate(value):
            return value

    return activate


def finish(layer: DepthwiseConv2d | Pointwise) -> Any:
    """finish(total, b, r, c, at): activation(total + b[c]) + r[at], float32; b and r one row of elements each."""
    return _finish(layer.bias, layer.activation, layer.residual)


@functools.cache
def _finish(bias: bool, activation: str, residual: bool) -> Any:
    activated = activate(activation)

    @cuda.jit(device=True, forceinline=True)
    def finish(total, b, r, c, at):
        if bias:
            total += float32(b[c])
        total = activated(total)
        if residual:
            total += float32(r[at])
        return total

    return finish


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


@cuda.jit(device=True, forceinline=True)
def byte(word, k):
    """int8 number k, a literal, of a word, as int32."""
    return int32(int32(word << int32(24 - 8 * k)) >> int32(24))


@cuda.jit(device=True, forceinline=True)
def in_steps(value, scale, zero):
    """clamp(rint(value / scale) + zero, -128, 127) of a float32, an int32."""
    return int32(min(max(rint(value / scale), int32(-128 - zero)), int32(127 - zero)) + zero)


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
    return _sums(layer.dtype == "int8", layer.zero_x)


@functools.cache
def _sums(whole: bool, zero: int) -> tuple[Any, Any, Any]:
    if whole:

        @cuda.jit(device=True, forceinline=True)
        def add(total, w, x):
            return int32(total + int32(w) * int32(int32(x) - int32(zero)))

        return np.int32(0), add, int8

    @cuda.jit(device=True, forceinline=True)
    def add(total, w, x):
        return total + float32(w) * float32(x)

    return np.float32(0), add, float32


def closing(layer: DepthwiseConv2d | Pointwise) -> Any:
    """closing(total, b, m, r, c, at): what is stored of a sum of `sums`, by `finish` or, in int8, by `requantise`."""
    if layer.dtype == "int8":
        return _closing_int8(requantise(layer), layer.residual)
    return _closing(finish(layer))


@functools.cache
def _closing(finish: Any) -> Any:
    @cuda.jit(device=True, forceinline=True)
    def closing(total, b, m, r, c, at):
        return finish(total, b, r, c, at)

    return closing


@functools.cache
def _closing_int8(requantised: Any, residual: bool) -> Any:
    @cuda.jit(device=True, forceinline=True)
    def closing(total, b, m, r, c, at):
        return int8(requantised(total, b, m, c, r[at] if residual else int8(0)))

    return closing


def vectors(layer: DepthwiseConv2d | Pointwise) -> tuple[int, int]:
    """(how many arrays with a number for each output channel `closing` reads, their elements in a sector): b and m."""
    whole = layer.dtype == "int8"
    return layer.bias + whole, 8 if whole else 32 // layer.itemsize
