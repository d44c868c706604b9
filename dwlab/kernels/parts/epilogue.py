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


def _none(value):
    return value


def _relu(value):
    return max(value, float32(0))


def _relu6(value):
    return min(max(value, float32(0)), float32(6))


def _gelu(value):
    return float32(0.5) * value * (float32(1) + math.erf(value * float32(ROOT)))


def _silu(value):
    return value / (float32(1) + math.exp(-value))


def _sigmoid(value):
    return float32(1) / (float32(1) + math.exp(-value))


def _hard_sigmoid(value):
    return min(max(value + float32(3), float32(0)), float32(6)) * float32(SIXTH)


def _hard_swish(value):
    return value * (min(max(value + float32(3), float32(0)), float32(6)) * float32(SIXTH))


ROOT, SIXTH = 1 / math.sqrt(2), 1 / 6
_ACTIVATIONS = (_none, _relu, _relu6, _gelu, _silu, _hard_swish, _sigmoid, _hard_sigmoid)


@functools.cache
def activate(activation: str) -> Any:
    """activate(value): of float32, one of layers.ACTIVATIONS. A NaN is 0 where min or max decide: PTX's have it so."""
    (made,) = (one for one in _ACTIVATIONS if one.__name__ == f"_{activation}")
    return cuda.jit(device=True, forceinline=True)(made)


def finish(layer: DepthwiseConv2d | Pointwise, up: Any = float32) -> Any:
    """finish(total, b, r, c, at): activation(total + b[c]) + r[at], float32; b and r one row of elements each, which
    `up` makes float32."""
    return _finish(layer.bias, layer.activation, layer.residual, up)


@functools.cache
def _finish(bias: bool, activation: str, residual: bool, up: Any) -> Any:
    activated = activate(activation)

    @cuda.jit(device=True, forceinline=True)
    def finish(total, b, r, c, at):
        if bias:
            total += up(b[c])
        total = activated(total)
        if residual:
            total += up(r[at])
        return total

    return finish
