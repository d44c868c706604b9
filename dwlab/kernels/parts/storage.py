"""Sums and epilogues of kernels that take any storage type."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, int8, int32

from dwlab.kernels.parts import constants
from dwlab.kernels.parts.epilogue import finish
from dwlab.kernels.parts.requantisation import requantise
from dwlab.problems.layers import DepthwiseConv2d, Pointwise
from dwlab.target import cuda


@functools.cache
def sums(layer: DepthwiseConv2d | Pointwise) -> tuple[Any, Any, Any]:
    """(zero, add, stored): an empty sum, add(total, w, x) -> the sum with one product more, and Numba's type of an x
    that is kept between layers: float32; of int8 layers sums are int32, of (x - zero_x) * w, and an int8 is kept.
    """
    whole, zero = layer.dtype == "int8", layer.zero_x

    @cuda.jit(device=True, forceinline=True)
    def add(total, w, x):
        if whole:
            return int32(total + int32(w) * int32(int32(x) - int32(zero)))
        return total + float32(w) * float32(x)

    return (np.int32(0), add, int8) if whole else (np.float32(0), add, float32)


@functools.cache
def closing(layer: DepthwiseConv2d | Pointwise) -> Any:
    """closing(total, b, m, r, c, at): what is stored of a sum of `sums`, by `finish` or, in int8, by `requantise`."""
    whole, residual = layer.dtype == "int8", layer.residual
    end = requantise(layer) if whole else finish(layer)

    @cuda.jit(device=True, forceinline=True)
    def closing(total, b, m, r, c, at):
        if whole:
            return int8(end(total, b, m, c, r[at] if residual else int8(0)))
        return end(total, b, r, c, at)

    return closing


@functools.cache
def functions(layer: DepthwiseConv2d | Pointwise) -> Any:
    """A layer's add (`sums`) and close (`closing`)."""
    return constants.of(add=sums(layer)[1], close=closing(layer))


def vectors(layer: DepthwiseConv2d | Pointwise) -> tuple[int, int]:
    """(how many arrays with a number for each output channel `closing` reads, their elements in a sector): b and m."""
    whole = layer.dtype == "int8"
    return layer.bias + whole, 8 if whole else 32 // layer.itemsize
