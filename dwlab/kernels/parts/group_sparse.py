"""A warp group's share of a product with sparse filters, 64 of them by wgmma.sp: the loop over chunks of the channels.

As parts/group_products.py, of chunks of 64 channels: lines of x are 128 bytes, of a pixel's channels or of 64 pixels
of a channel; the kept half of a filter's is 64, and two words of metadata beside them. A product takes 32 channels, so
a chunk is two. A lane holds the metadata of both in one register, those of the first if it is one of the first two of
its four, and of the second otherwise.

A product reads that register as long as it runs, so it must not be written before the wait for it. With the dense
loop's wait, for the chunk before, it was, by an address of the next chunk's metadata, and an H200 gave wrong sums
with four chunks in flight. Two registers in turn, each kept by its wait, are right as well, but then the assembler
waits after every product. Each chunk's products therefore end before the next one's metadata are read, and run while
the copies of a later one start.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import int32, uint32

from dwlab.kernels.parts import ptx_int8, ptx_memory
from dwlab.kernels.parts import ptx_wgmma as wgmma
from dwlab.kernels.parts.group_products import ROWS
from dwlab.kernels.parts.pipeline import WAITS
from dwlab.target import cuda

FILTERS = ROWS // 4
"""Filters of a warp's share of a product."""
ALIGNED = 256
"""Words within which lines are swizzled."""


def ahead(stages: int, chunks: int) -> int:
    """Chunks whose copies start before the first product: all, or those that leave one place to be read."""
    return chunks if chunks <= min(stages, len(WAITS)) else min(stages - 1, len(WAITS))


@functools.cache
def read_metadata(e_pitch: int) -> Any:
    """metadata(shared, e, lane): a lane's register, of a warp's 16 filters from word e on, a word each a step of 32.

    The second step's words are e_pitch behind the first's; where these lie in the same banks nothing conflicts either,
    as lanes of the second read their two words in the other order.
    """

    @cuda.jit(device=True, forceinline=True)
    def metadata(shared, e, lane):
        t, step = uint32(lane % uint32(4)), uint32(lane % uint32(4) // uint32(2))
        at = uint32(e + step * uint32(e_pitch) + lane // uint32(4))
        one, other = shared[uint32(at + uint32(8) * step)], shared[uint32(at + uint32(8) * (uint32(1) - step))]
        half = int32(0x7632) if t % uint32(2) else int32(0x5410)
        if step:
            half = int32(0x3276) if t % uint32(2) else int32(0x1054)
        return ptx_int8.prmt(ptx_int8.word_of_float(one), ptx_int8.word_of_float(other), half)

    return metadata


@functools.cache
def start_products(N: int, x_pitch: int) -> Any:
    """multiply(acc, shared, a, b, metadata): starts a chunk's products, filters from word a on, pixels from b on."""
    if x_pitch:

        @cuda.jit(device=True, forceinline=True)
        def multiply(acc, shared, a, b, places):
            wgmma.wgmma_sp_f16_trans(acc, N, shared, a, b, x_pitch, places, 0)
            second = uint32(b + uint32(32 * 32))  # 32 columns on
            wgmma.wgmma_sp_f16_trans(acc, N, shared, uint32(a + uint32(8)), second, x_pitch, places, 1)

    else:

        @cuda.jit(device=True, forceinline=True)
        def multiply(acc, shared, a, b, places):
            wgmma.wgmma_sp_f16(acc, N, shared, a, b, places, 0)
            wgmma.wgmma_sp_f16(acc, N, shared, uint32(a + uint32(8)), uint32(b + uint32(16)), places, 1)

    return multiply


def sparse_group_pipeline(tile: Any, e_pitch: int, load: Any, finish: Any) -> Any:
    """run(acc, shared, a0, b0, e0, lane, count, block): acc += the products of all chunks, 64 filters x N pixels.

    tile: sparse.rows_tiles.numbers. Filters begin at word a0 of a chunk, pixels at b0, the warp's metadata at e0, a
    step's e_pitch words after those of the step before. The caller starts the copies of `ahead` chunks, a group each;
    load(shared, at, chunk, block) those of one. Then finish(acc, group, block) has the sums. A block goes through the
    chunks of each of `count` groups of pixels, one after the other: the copies of the next are on the way while it
    stores, and to load they are chunks from `chunks` on. x_pitch: words of x from 64 pixels to the next, of all rows.
    """
    AHEAD, N, GROUPS = tile.ahead, tile.warp_m, tile.groups
    FIRST, LAST = AHEAD % tile.pipeline_stages * tile.step, (tile.pipeline_stages - 1) * tile.step
    wait, metadata, multiply = WAITS[AHEAD - 1], read_metadata(e_pitch), start_products(N, tile.x_pitch)

    @cuda.jit(device=True, forceinline=True)
    def products(acc, shared, a0, b0, e0, lane, here, there, next, end, block):
        for _ in range(tile.chunks):
            wait()
            wgmma.fence_async()
            cuda.syncthreads()  # this chunk has come for all, and what the last products read is out of use
            a, b, e = uint32(here + a0), uint32(here + b0), uint32(here + e0)
            places = metadata(shared, e, lane)
            wgmma.wgmma_fence(acc, N)
            multiply(acc, shared, a, b, places)
            wgmma.wgmma_commit()
            if next < end:
                load(shared, there, next, block)
            ptx_memory.commit()
            wgmma.wgmma_sp_wait(acc, N, 0, places, places)
            here = uint32(0) if here == LAST else uint32(here + uint32(tile.step))
            there = uint32(0) if there == LAST else uint32(there + uint32(tile.step))
            next = uint32(next + uint32(1))
        return here, there, next

    @cuda.jit(device=True, forceinline=True)
    def run(acc, shared, a0, b0, e0, lane, count, block):
        here, there, next, end = uint32(0), uint32(FIRST), uint32(AHEAD), uint32(count * uint32(tile.chunks))
        if GROUPS == 1:
            products(acc, shared, a0, b0, e0, lane, here, there, next, uint32(tile.chunks), block)
            finish(acc, uint32(0), block)
        else:
            for group in range(count):
                here, there, next = products(acc, shared, a0, b0, e0, lane, here, there, next, end, block)
                finish(acc, uint32(group), block)

    return run
