"""The epilogue of int8 layers: a sum of products becomes int8 again (requantisation)."""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int32

from dwlab.kernels.parts.ptx_int8 import add_rn, rint
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.target import cuda


@functools.cache
def requantise(layer: DepthwiseConv2d | Pointwise, packed: bool = False) -> Any:
    """requantise(total, b, m, c, r): clamp(rint(float32(total + b[c]) * m[c]) + zero_y, low, 127), an int32.

    total: int32, the sum of (x - zero_x) * w. b int32 and m float32 (channels,). r: an int32, added if the layer has a
    residual: clamp(rint(t + float32(r - zero_r) * m_r) + zero_y, -128, 127), t = float32(total + b[c]) * m[c], after
    its relu.
    packed: what comes out is for ptx.pack_s8, which limits to -128 and 127; limits that it makes needless are left out.
    """
    bias, relu, residual = layer.bias, layer.activation == "relu", layer.residual
    zero_r, m_r = (layer.zero_r, layer.m_r) if residual else (0, 0.0)
    rounded = _rounded(relu and not residual, layer.zero_y, packed)

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
