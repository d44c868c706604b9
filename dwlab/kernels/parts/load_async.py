"""A block's tile of a matrix to shared memory, by asynchronous copies, past the registers; and what that moves."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts import swizzle
from dwlab.kernels.traffic import warp_traffic
from dwlab.target import cuda


def vector_words(*words: int) -> int:
    """The most words, 4, 2 or 1, that a copy may take at a time where rows of a matrix are so many words long."""
    return next(size for size in (4, 2, 1) if not any(one % size for one in words))


@functools.cache
def copies(size: int) -> tuple[Any, Any]:
    """(copy(shared, i, source, j), zeros(shared, i)) of `size` words, see `vector_words`: asynchronous, or 0 now."""
    if size == 4:

        @cuda.jit(device=True, forceinline=True)
        def copy(shared, i, source, j):
            ptx.copy4_async(shared, i, source, j)

        @cuda.jit(device=True, forceinline=True)
        def zeros(shared, i):
            ptx.store4_shared(shared, i, float32(0), float32(0), float32(0), float32(0))

    elif size == 2:

        @cuda.jit(device=True, forceinline=True)
        def copy(shared, i, source, j):
            ptx.copy2_async(shared, i, source, j)

        @cuda.jit(device=True, forceinline=True)
        def zeros(shared, i):
            ptx.store2_shared(shared, i, float32(0), float32(0))

    else:

        @cuda.jit(device=True, forceinline=True)
        def copy(shared, i, source, j):
            ptx.copy1_async(shared, i, source, j)

        @cuda.jit(device=True, forceinline=True)
        def zeros(shared, i):
            shared[i] = float32(0)

    return copy, zeros


@functools.cache
def load_tile(
    lines: int, words: int, pitch: int, threads: int, limit: int, width: int, source_pitch: int, interleave: int = 0,
    swizzled: bool = True, beyond: bool = False,
) -> Any:  # fmt: skip
    """load(shared, s0, source, g0, line0, word0, thread): starts copies of `lines` x `words` of a matrix.

    shared[s0 + at] = source[g0 + (line0 + i) * source_pitch + word0 + j], and 0 where line0 + i >= limit or
    word0 + j >= width; at is place(i, j) of swizzle.place(pitch), or i * pitch + j if not swizzled. Copies are of
    `vector_words` of words, width and source_pitch; g0 and word0 are multiples of that, s0 of 4. ptx.commit is the
    caller's.
    interleave: so many lines hold every fourth line, from 0 on, then as many those from 1 on (ffma.ffma), and so on.
    line0: a multiple of lines, and less than limit; with `beyond` any multiple.
    """
    INTERLEAVE, EACH = max(1, interleave), vector_words(words, width, source_pitch)
    VECTORS, ROUNDS = words // EACH, -(-lines * words // EACH // threads)
    EVEN, WORDS = lines * words // EACH % threads == 0, width % words == 0  # nothing outside
    LINES = limit % lines == 0 and not beyond
    place = swizzle.place(pitch) if swizzled else swizzle.in_rows(pitch)
    copy, zeros = copies(EACH)

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, source, g0, line0, word0, thread):
        for round in range(ROUNDS):
            vector = uint32(thread + uint32(round * threads))
            line, word = uint32(vector // uint32(VECTORS)), uint32(vector % uint32(VECTORS) * uint32(EACH))
            to = uint32(s0 + place(line, word))
            if interleave:
                line = uint32(line % uint32(INTERLEAVE) * uint32(4) + line // uint32(INTERLEAVE))
            line, word = uint32(line + line0), uint32(word + word0)
            if EVEN or vector < uint32(lines * VECTORS):
                if (LINES or line < uint32(limit)) and (WORDS or word < uint32(width)):
                    copy(shared, to, source, uint32(g0 + line * uint32(source_pitch) + word))
                else:
                    zeros(shared, to)

    return load


@functools.cache
def load_words(lines: int, words: int, pitch: int, threads: int, limit: int, width: int, source_pitch: int) -> Any:
    """`load_tile` not swizzled, word by word through registers: of any width and source_pitch."""
    ROUNDS, EVEN = -(-lines * words // threads), lines * words % threads == 0

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, source, g0, line0, word0, thread):
        for round in range(ROUNDS):
            at = uint32(thread + uint32(round * threads))
            line, word = uint32(at // uint32(words)), uint32(at % uint32(words))
            to = uint32(s0 + line * uint32(pitch) + word)
            line, word = uint32(line + line0), uint32(word + word0)
            if EVEN or at < uint32(lines * words):
                value = float32(0)
                if line < uint32(limit) and word < uint32(width):
                    value = source[uint32(g0 + line * uint32(source_pitch) + word)]
                shared[to] = value

    return load


def tile_traffic(
    lines: int, words: int, threads: int, limit: int, width: int, source_pitch: int, wide: bool = True, begin: int = 0,
    interleave: int = 0,
) -> Any:  # fmt: skip
    """[requests, sectors] of all blocks of `lines` x `words` that tile a matrix of limit x width once, by `load_tile`.

    wide: by `load_tile`; else by `load_words`. begin: the word at which the matrix begins.
    """
    size = vector_words(words, width, source_pitch) if wide else 1
    across, total = words // size, np.zeros(2, np.int64)
    at = np.arange(-(-lines * across // threads) * threads)
    at = np.where(at < lines * across, at, -1)
    word0 = np.arange(0, width, words)[:, None]
    for line0 in range(0, limit, lines):
        line = at // across
        if interleave:
            line = line % interleave * 4 + line // interleave
        line, word = line + line0, at % across * size + word0
        inside = (at >= 0) & (line < limit) & (word < width)
        element = np.where(inside, begin + line * source_pitch + word, -size) // size
        total += warp_traffic(element.reshape(-1, threads), 8 // size)
    return total
