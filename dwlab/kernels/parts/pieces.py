"""16-byte vectors: four float32 words that hold 4 elements, or 8 of 16 bits, and what is in them as float32.

Kernels move vectors whatever they hold; only these functions, each of which makes a device function for a storage type,
know what that is.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, int32, uint16, uint64

from dwlab.kernels.parts import ptx
from dwlab.target import cuda

UNPACK = {"float16": ptx.halves, "bfloat16": ptx.bfloats}  # a word -> its two elements, as float32
PACK = {"float16": ptx.join_halves, "bfloat16": ptx.join_bfloats}


def elements(dtype: str) -> int:
    """Elements of a 16-byte vector: 4 or 8."""
    return 4 if dtype == "float32" else 8


def words(count: int, dtype: str) -> int:
    """float32 words that hold so many elements."""
    return count if dtype == "float32" else count // 2


@functools.cache
def up(dtype: str) -> Any:
    """up(x): an element as float32; one of 16 bits as its array has it in "elements", as uint16."""
    halves = UNPACK.get(dtype)

    @cuda.jit(device=True, forceinline=True)
    def whole(x):
        return x

    @cuda.jit(device=True, forceinline=True)
    def up(x):
        return halves(cuda.libdevice.int_as_float(int32(x)))[0]

    return up if halves else whole


@functools.cache
def down(dtype: str) -> Any:
    """down(value): and back, rounded."""
    join = PACK.get(dtype)

    @cuda.jit(device=True, forceinline=True)
    def whole(value):
        return value

    @cuda.jit(device=True, forceinline=True)
    def down(value):
        return uint16(cuda.libdevice.float_as_int(join(value, float32(0))) & int32(0xFFFF))

    return down if join else whole


@functools.cache
def read(width: int) -> Any:
    """read(to, at, array, index): so many words, 1, 2 or 4, of a global array at once, as they are, to to[at …]."""
    if width == 4:

        @cuda.jit(device=True, forceinline=True)
        def read(to, at, array, index):
            to[at], to[at + 1], to[at + 2], to[at + 3] = ptx.load4(array, index)

    elif width == 2:

        @cuda.jit(device=True, forceinline=True)
        def read(to, at, array, index):
            to[at], to[at + 1] = ptx.load2(array, index)

    else:

        @cuda.jit(device=True, forceinline=True)
        def read(to, at, array, index):
            to[at] = array[uint64(index)]  # signed ones Numba would ask whether they count from the end

    return read


@functools.cache
def unpack(count: int, dtype: str) -> Any:
    """unpack(values, to, at): values[to …] become the `count` elements in the words values[at …], as float32."""
    halves = UNPACK.get(dtype)
    if halves is None:

        @cuda.jit(device=True, forceinline=True)
        def unpack(values, to, at):
            for k in range(count):
                values[to + k] = values[at + k]

    else:

        @cuda.jit(device=True, forceinline=True)
        def unpack(values, to, at):
            for k in range(count // 2):
                values[to + 2 * k], values[to + 2 * k + 1] = halves(values[at + k])

    return unpack


@functools.cache
def unpack_vector(dtype: str) -> Any:
    """unpack_vector(x, first, a, b, c, d): the elements in the four words of a vector, into x[first …] as float32."""
    unpack = UNPACK.get(dtype)
    if unpack is None:

        @cuda.jit(device=True, forceinline=True)
        def unpack_vector(x, first, a, b, c, d):
            x[first], x[first + 1], x[first + 2], x[first + 3] = a, b, c, d

    else:

        @cuda.jit(device=True, forceinline=True)
        def unpack_vector(x, first, a, b, c, d):
            x[first], x[first + 1] = unpack(a)
            x[first + 2], x[first + 3] = unpack(b)
            x[first + 4], x[first + 5] = unpack(c)
            x[first + 6], x[first + 7] = unpack(d)

    return unpack_vector


@functools.cache
def pack_vector(dtype: str) -> Any:
    """pack_vector(x, first) -> a, b, c, d: and back, each element rounded."""
    pack = PACK.get(dtype)
    if pack is None:

        @cuda.jit(device=True, forceinline=True)
        def pack_vector(x, first):
            return x[first], x[first + 1], x[first + 2], x[first + 3]

    else:

        @cuda.jit(device=True, forceinline=True)
        def pack_vector(x, first):
            a, b = pack(x[first], x[first + 1]), pack(x[first + 2], x[first + 3])
            c, d = pack(x[first + 4], x[first + 5]), pack(x[first + 6], x[first + 7])
            return a, b, c, d

    return pack_vector


@functools.cache
def load_shared(dtype: str) -> Any:
    """load(x, m, tile, at): the vector at word `at` of a tile, as float32, becomes the m-th of the local array x."""
    unpack, size = unpack_vector(dtype), elements(dtype)

    @cuda.jit(device=True, forceinline=True)
    def load(x, m, tile, at):
        a, b, c, d = ptx.load4_shared(tile, at)
        unpack(x, size * m, a, b, c, d)

    return load


@functools.cache
def store_shared(dtype: str) -> Any:
    """store(tile, at, x, m): the m-th vector of the local array x, each element rounded, to word `at` of a tile."""
    pack = PACK.get(dtype)
    if pack is None:

        @cuda.jit(device=True, forceinline=True)
        def store(tile, at, x, m):
            ptx.store4_shared(tile, at, x[4 * m], x[4 * m + 1], x[4 * m + 2], x[4 * m + 3])

    else:

        @cuda.jit(device=True, forceinline=True)
        def store(tile, at, x, m):  # not by pack_vector: the order of the instructions would be another
            a, b = pack(x[8 * m], x[8 * m + 1]), pack(x[8 * m + 2], x[8 * m + 3])
            c, d = pack(x[8 * m + 4], x[8 * m + 5]), pack(x[8 * m + 6], x[8 * m + 7])
            ptx.store4_shared(tile, at, a, b, c, d)

    return store
