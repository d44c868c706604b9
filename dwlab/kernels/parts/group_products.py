"""A warp group's share of a matrix product, 64 rows by wgmma: its tile, its copies, the loop over chunks of channels.

The four warps of a group start products that read both operands from shared memory, and go on: the sums of one chunk
are on the way while the copies of a later one start, and while the next chunk is waited for. Lines of a chunk are 32
words, 128 bytes, swizzled as swizzle.place(32) has them, which is what the instruction calls the 128-byte swizzle.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import float32, uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.kernels.parts import ptx_wgmma as wgmma
from dwlab.kernels.parts.fragments import lanes_of
from dwlab.kernels.parts.swizzle import place
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.target import cuda

ROWS, WORDS = 64, 32  # of a group's tile; of a line in a chunk
PRODUCTS = {"float16": wgmma.wgmma_f16, "bfloat16": wgmma.wgmma_bf16}


def warp_of_group(N: int) -> WarpTile:
    """The tile of each warp of a group, of its 64 x N sums: 16 rows, those of the warp's place in the group."""
    return WarpTile(ROWS // 4, N, 0, N // 2, 2, zeros(N // 2, float32), None, *lanes_of(N // 8))


def ahead(stages: int, chunks: int) -> int:
    """Chunks whose copies start before the first product: all, or those that leave the last two products' places."""
    return chunks if chunks <= stages else stages - 2


@functools.cache
def load_lines(lines: int, threads: int, limit: int, width: int) -> Any:
    """load(shared, s0, source, line0, chunk, thread): starts the copies of a chunk of a matrix's lines from line0 on.

    Of `limit` lines of `width` words; what lies beyond comes as zeros, without a branch between the copies.
    """
    VECTORS, here = WORDS // 4, place(WORDS)
    ROUNDS, EVEN = -(-lines * VECTORS // threads), lines * VECTORS % threads == 0
    INSIDE, WHOLE = limit % lines == 0, width % WORDS == 0

    @cuda.jit(device=True, forceinline=True)
    def load(shared, s0, source, line0, chunk, thread):
        for round in range(ROUNDS):
            vector = uint32(thread + uint32(round * threads))
            line, word = uint32(vector // uint32(VECTORS)), uint32(vector % uint32(VECTORS) * uint32(4))
            to = uint32(s0 + here(line, word))
            line, word = uint32(line + line0), uint32(word + chunk * uint32(WORDS))
            at = uint32(line * uint32(width) + word)
            if EVEN or vector < uint32(lines * VECTORS):
                if INSIDE and WHOLE:
                    ptx.copy4_async(shared, to, source, at)
                else:
                    ptx.copy4_async_zfill(shared, to, source, at, line < uint32(limit) and word < uint32(width))

    return load


@functools.cache
def waiting(groups: int) -> Any:
    """wait(): until at most so many groups of copies, the youngest, are in flight."""

    @cuda.jit(device=True, forceinline=True)
    def wait():
        ptx.wait(groups)

    return wait


@functools.cache
def multiply(dtype: str, N: int) -> Any:
    """multiply(acc, shared, a0, b0): starts acc += a chunk's products, lines of A from word a0, of B from b0 on."""
    product = PRODUCTS[dtype]

    @cuda.jit(device=True, forceinline=True)
    def multiply(acc, shared, a0, b0):
        wgmma.wgmma_fence(acc, N)
        product(acc, N, shared, uint32(a0), uint32(b0))
        product(acc, N, shared, uint32(a0 + uint32(8)), uint32(b0 + uint32(8)))
        product(acc, N, shared, uint32(a0 + uint32(16)), uint32(b0 + uint32(16)))
        product(acc, N, shared, uint32(a0 + uint32(24)), uint32(b0 + uint32(24)))
        wgmma.wgmma_commit()

    return multiply


def group_pipeline(stages: int, stage_words: int, chunks: int, load: Any, dtype: str, N: int) -> Any:
    """run(acc, shared, a0, b0, tile): acc += the products of all chunks; parts/pipeline.py has stages, chunks and load.

    The caller starts the copies of `ahead` chunks, a group each. Of the products at most one chunk's are on the way
    behind a barrier. So what is read is out of use for all groups behind the next one, and the copies that a chunk
    starts take the place of the chunk before the last.
    """
    AHEAD, multiplied = ahead(stages, chunks), multiply(dtype, N)
    wait, LAST, FIRST = waiting(AHEAD - 1), (stages - 1) * stage_words, AHEAD % stages * stage_words

    @cuda.jit(device=True, forceinline=True)
    def run(acc, shared, a0, b0, tile):
        here, there = uint32(0), uint32(FIRST)
        for chunk in range(chunks):
            wait()
            wgmma.fence_async()
            cuda.syncthreads()  # this chunk has come for all, and products of the chunk before the last are done
            multiplied(acc, shared, uint32(here + a0), uint32(here + b0))
            if chunk + AHEAD < chunks:
                load(shared, there, uint32(chunk + AHEAD), tile)
            ptx.commit()
            wgmma.wgmma_wait(acc, N, 1)
            here = uint32(0) if here == LAST else uint32(here + stage_words)
            there = uint32(0) if there == LAST else uint32(there + stage_words)
        wgmma.wgmma_wait(acc, N, 0)

    return run
