"""A warp group's share of a product with sparse filters, 64 of them by wgmma.sp: the loop over chunks of the channels.

As parts/group_products.py, of chunks of 64 channels: lines of x are 128 bytes, the kept half of a filter's is 64, and
two words of metadata beside them. A product takes 32 channels, so a chunk is two. A lane holds the metadata of both in
one register, those of the first if it is one of the first two of its four, and of the second otherwise.

A product reads that register as long as it runs, so it must not be written before the wait for it. With the dense
loop's wait, for the chunk before, it was, by an address of the next chunk's metadata, and an H200 gave wrong sums
with four chunks in flight. Two registers in turn, each kept by its wait, are right as well, but then the assembler
waits after every product. Each chunk's products therefore end before the next chunk's metadata are read, and run while
the copies of a later one start.
"""

from __future__ import annotations

from typing import Any

from numba import int32, uint32

from dwlab.gpu.target import cuda
from dwlab.kernels.parts import ptx_int8, ptx_memory
from dwlab.kernels.parts import ptx_wgmma as wgmma
from dwlab.kernels.parts.group_products import ahead
from dwlab.kernels.parts.pipeline import WAITS


def sparse_group_pipeline(stages: int, stage_words: int, chunks: int, load: Any, N: int, e_pitch: int) -> Any:
    """run(acc, shared, a0, b0, e0, lane, tile): acc += the products of all chunks, 64 filters x N pixels of the group.

    Filters begin at word a0 of a chunk, pixels at b0, the warp's metadata at e0, a step's e_pitch words after those of
    the step before. The rest as in group_products.group_pipeline, but that no products are on the way behind a barrier.
    """
    AHEAD = ahead(stages, chunks)
    wait, LAST, FIRST = WAITS[AHEAD - 1], (stages - 1) * stage_words, AHEAD % stages * stage_words

    @cuda.jit(device=True, forceinline=True)
    def run(acc, shared, a0, b0, e0, lane, tile):
        here, there = uint32(0), uint32(FIRST)
        g, t = uint32(lane // uint32(4)), uint32(lane % uint32(4))
        half, line = int32(0x7632) if t % uint32(2) else int32(0x5410), uint32(t // uint32(2) * uint32(e_pitch) + g)
        for chunk in range(chunks):
            wait()
            wgmma.fence_async()
            cuda.syncthreads()  # this chunk has come for all, and what the last products read is out of use
            at = uint32(here + e0 + line)
            low, high = shared[at], shared[uint32(at + uint32(8))]
            places = ptx_int8.prmt(ptx_int8.word_of_float(low), ptx_int8.word_of_float(high), half)
            a, b = uint32(here + a0), uint32(here + b0)
            wgmma.wgmma_fence(acc, N)
            wgmma.wgmma_sp_f16(acc, N, shared, a, b, places, 0)
            wgmma.wgmma_sp_f16(acc, N, shared, uint32(a + uint32(8)), uint32(b + uint32(16)), places, 1)
            wgmma.wgmma_commit()
            if chunk + AHEAD < chunks:
                load(shared, there, uint32(chunk + AHEAD), tile)
            ptx_memory.commit()
            wgmma.wgmma_sp_wait(acc, N, 0, places)
            here = uint32(0) if here == LAST else uint32(here + stage_words)
            there = uint32(0) if there == LAST else uint32(there + stage_words)

    return run
