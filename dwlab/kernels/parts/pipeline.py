"""The loop over chunks of a sum, one being multiplied while the next are in flight: a ring in shared memory.

A block that goes through a sum chunk by chunk has `stages` places for a chunk in shared memory. While it multiplies
one, the copies of the next stages - 1 are in flight, one group (ptx.commit) for each chunk, so that a memory's latency
passes behind products. One barrier a chunk is enough: behind it this chunk has come for all threads, and all are done
with the chunk before, whose place the youngest copies may take.

                chunk:   0     1     2     3                      (stages = 3)
    load                 0 1   2     3     4
    mma                        0     1     2
    place in shared memory     0     1     2     0 ...

The caller starts the first copies (a prologue: filters may come before the map is there), stages - 1 groups of them.
"""

from __future__ import annotations

from typing import Any

from numba import uint32

from dwlab.kernels.parts import ptx_memory as ptx
from dwlab.target import cuda


@cuda.jit(device=True, forceinline=True)
def _wait_0():
    ptx.wait(0)


@cuda.jit(device=True, forceinline=True)
def _wait_1():
    ptx.wait(1)


@cuda.jit(device=True, forceinline=True)
def _wait_2():
    ptx.wait(2)


@cuda.jit(device=True, forceinline=True)
def _wait_3():
    ptx.wait(3)


WAITS = (_wait_0, _wait_1, _wait_2, _wait_3)
"""ptx.wait, which takes a literal, by how many groups may still be in flight."""


def pipeline(stages: int, stage_words: int, chunks: int, load: Any, mma: Any) -> Any:
    """run(acc, shared, tile): acc += the products of all chunks, loads overlapped with them.

    stages: 2 to 5, places of stage_words words of the shared array, from word 0 on; chunks: that the sum has.
    load(shared, at, chunk, tile): starts the copies of a chunk to word `at` on. mma(acc, shared, at, chunk, tile): adds
    its products. tile: a tuple of all else that the two take (arrays, where the block is, its thread).
    """
    AHEAD, wait = stages - 1, WAITS[stages - 2]
    LAST = AHEAD * stage_words

    @cuda.jit(device=True, forceinline=True)
    def run(acc, shared, tile):
        here, there = uint32(0), uint32(LAST)
        for chunk in range(chunks):
            wait()
            cuda.syncthreads()  # this chunk has come for all threads, and all are done with the one before
            if chunk + AHEAD < chunks:
                load(shared, there, uint32(chunk + AHEAD), tile)
            ptx.commit()
            mma(acc, shared, here, uint32(chunk), tile)
            there = here
            here = uint32(0) if here == LAST else uint32(here + stage_words)

    return run


def prefetching_pipeline(stages: int, stage_words: int, chunks: int, load: Any, phases: Any) -> Any:
    """`pipeline` whose products are a warp's own: the next chunk's first operands are read before this one's last mma.

    So tensor cores work while the barrier is passed. run(acc, held, shared, a0, b0, lane, tile): held and phases as
    warp_tile.Phases has them, a0 and b0 the words of a stage at which the warp's operands begin.
    """
    AHEAD, wait, first, most, last = stages - 1, WAITS[stages - 2], phases.first, phases.most, phases.last
    LAST = AHEAD * stage_words

    @cuda.jit(device=True, forceinline=True)
    def run(acc, held, shared, a0, b0, lane, tile):
        here, there = uint32(0), uint32(LAST)
        wait()
        cuda.syncthreads()
        first(acc, held, shared, a0, shared, b0, lane)
        for chunk in range(chunks):
            if chunk + AHEAD < chunks:
                load(shared, there, uint32(chunk + AHEAD), tile)
            ptx.commit()
            most(acc, held, shared, uint32(here + a0), shared, uint32(here + b0), lane)
            there = here
            here = uint32(0) if here == LAST else uint32(here + stage_words)
            if chunk + 1 < chunks:
                wait()
                cuda.syncthreads()  # the next chunk has come for all threads, and all have read this one
                first(acc, held, shared, uint32(here + a0), shared, uint32(here + b0), lane)
            last(acc, held, shared, a0, shared, b0, lane)

    return run
