"""Groups of 8 neighbouring channels of a map in NHWC: from memory into float32, and back.

Maps are arrays of float32 words, whatever they hold: a group is 8 words of float32, 4 of float16, 2 of int8. An int8
comes as the number that it is; its zero point and scale are for whoever computes with it.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts import int8_words, pieces, ptx
from dwlab.target import cuda

GROUP = 8


@functools.cache
def get(kind: str) -> Any:
    """get(to, array, group): the 8 elements of that group, into to[0 …], float32."""
    if kind == "float32":

        @cuda.jit(device=True, forceinline=True)
        def get(to, array, group):
            at = uint32(group * uint32(8))
            to[0], to[1], to[2], to[3] = ptx.load4(array, at)
            to[4], to[5], to[6], to[7] = ptx.load4(array, uint32(at + uint32(4)))

    elif kind == "int8":

        @cuda.jit(device=True, forceinline=True)
        def get(to, array, group):
            a, b = ptx.load2(array, uint32(group * uint32(2)))
            low, high = ptx.word_of_float(a), ptx.word_of_float(b)
            for k in range(4):
                to[k] = float32(int8_words.byte(low, k))
                to[4 + k] = float32(int8_words.byte(high, k))

    else:
        spread = pieces.unpack_vector(kind)

        @cuda.jit(device=True, forceinline=True)
        def get(to, array, group):
            a, b, c, d = ptx.load4(array, uint32(group * uint32(4)))
            spread(to, 0, a, b, c, d)

    return get


@functools.cache
def put(kind: str) -> Any:
    """put(array, group, values, first, scale, zero): values[first …] as that group of the map.

    scale, zero: of int8, as int8_words.in_steps takes them.
    """
    if kind == "float32":

        @cuda.jit(device=True, forceinline=True)
        def put(array, group, values, first, scale, zero):
            at = uint32(group * uint32(8))
            ptx.store4(array, at, values[first], values[first + 1], values[first + 2], values[first + 3])
            at = uint32(at + uint32(4))
            ptx.store4(array, at, values[first + 4], values[first + 5], values[first + 6], values[first + 7])

    elif kind == "int8":
        steps = int8_words.in_steps

        @cuda.jit(device=True, forceinline=True)
        def word(values, first, scale, zero):
            a, b = steps(values[first], scale, zero), steps(values[first + 1], scale, zero)
            c, d = steps(values[first + 2], scale, zero), steps(values[first + 3], scale, zero)
            return ptx.float_of_word(ptx.pack_s8(a, b, c, d))

        @cuda.jit(device=True, forceinline=True)
        def put(array, group, values, first, scale, zero):
            low, high = word(values, first, scale, zero), word(values, first + 4, scale, zero)
            ptx.store2(array, uint32(group * uint32(2)), low, high)

    else:
        gather = pieces.pack_vector(kind)

        @cuda.jit(device=True, forceinline=True)
        def put(array, group, values, first, scale, zero):
            a, b, c, d = gather(values, first)
            ptx.store4(array, uint32(group * uint32(4)), a, b, c, d)

    return put
