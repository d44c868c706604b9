"""The end of a layer's float32 sum before it is stored: bias, activation, residual.

Each function makes a device function for a layer; what the layer does not have costs no instruction. int8:
parts/requantisation.py; kernels of any storage type: parts/storage.py.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from numba import float32

from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.target import cuda


@functools.cache
def activate(activation: str) -> Any:
    """activate(value): of float32, one of layers.ACTIVATIONS. A NaN is 0 behind relu and relu6: max.f32 makes it so."""
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
