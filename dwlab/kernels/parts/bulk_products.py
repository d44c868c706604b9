"""A block's chunks of x and w in boxes that the GPU's copy engine brings (TMA), and the loop of warp groups over them.

Each place in shared memory has two mbarriers. One says that its chunk is there: thread 0 announces the bytes and starts
two copies, of x and of w. The other says that the place is free: each warp arrives when it has waited for the products
that read there. So warps meet nowhere in the loop. Thread 0 waits for a free place a chunk after its own warp has left
it, when the others have as well or nearly, and fills it anew: as many chunks are on the way as there are places. A
block's tiles follow each other in the same places: behind the last chunk of one comes the first of the next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import uint32

from dwlab.kernels.parts import ptx_bulk, ptx_memory, ptx_wgmma
from dwlab.kernels.parts.gemm import Layout
from dwlab.kernels.parts.group_products import multiply
from dwlab.target import cuda

WORDS_EACH = 4  # of a place's two mbarriers: that it is full, then that it is free


class Pipeline(NamedTuple):
    """start and run, device functions: `pipeline` says what they take and do, here and in parts/bulk_sparse.py."""

    start: Any
    run: Any


def pipeline(layout: Layout, at: int, dtype: str, finish: Any) -> Pipeline:
    """The pipeline of a block's chunks, its mbarriers from word `at` of shared memory on, a multiple of 2.

    start(shared, x, w, row, column, thread), by all threads: makes the mbarriers, and starts the first copies.
    run(acc, shared, a0, b0, x, w, row, column, thread, where): the products of all chunks of the block's tiles, one
    tile after the other, each then handed to finish(acc, row, where). row, column: the block's first of x's and of w's
    lines; a0, b0: where the group's lines of a chunk begin; acc: 0.
    """
    one, config, CHUNKS, STEP, A_WORDS = layout.one, layout.config, layout.chunks, layout.stage_words, layout.a_words
    BM, BN, N, CHUNK, STAGES = config.block_m, config.block_n, config.warp_n, config.block_k, config.pipeline_stages
    M, F, WIDTH, BYTES, WARPS, TILES = one.M, one.N, one.words, 4 * STEP, config.threads // 32, config.groups
    FIRST, multiplied, zero = min(STAGES, CHUNKS * TILES), multiply(dtype, N), layout.tile.zero

    @cuda.jit(device=True, forceinline=True)
    def load_w(shared, w, place, chunk, column):
        full, k = uint32(at + uint32(WORDS_EACH) * place), uint32(chunk * uint32(CHUNK))
        to = uint32(place * uint32(STEP) + uint32(A_WORDS))
        ptx_bulk.mbarrier_expect(shared, full, BYTES)
        ptx_bulk.copy_box_async(shared, to, w, F, WIDTH, BN, column, k, full)

    @cuda.jit(device=True, forceinline=True)
    def load_x(shared, x, place, chunk, row):
        full, k = uint32(at + uint32(WORDS_EACH) * place), uint32(chunk * uint32(CHUNK))
        ptx_bulk.copy_box_async(shared, uint32(place * uint32(STEP)), x, M, WIDTH, BM, row, k, full)

    @cuda.jit(device=True, forceinline=True)
    def start(shared, x, w, row, column, thread):
        if thread == uint32(0):
            for place in range(STAGES):
                ptx_bulk.mbarrier_init(shared, uint32(at + WORDS_EACH * place), 1)
                ptx_bulk.mbarrier_init(shared, uint32(at + WORDS_EACH * place + 2), WARPS)
            ptx_wgmma.fence_async()
        cuda.syncthreads()
        if thread == uint32(0):
            load_w(shared, w, uint32(0), uint32(0), column)
        ptx_memory.grid_dependency_wait()  # filters may come before the map is there
        if thread == uint32(0):
            load_x(shared, x, uint32(0), uint32(0), row)
            for chunk in range(1, FIRST):
                m, k = uint32(row + uint32(chunk // CHUNKS * BM)), uint32(chunk % CHUNKS)
                if chunk < CHUNKS or m < uint32(M):
                    load_w(shared, w, uint32(chunk), k, column)
                    load_x(shared, x, uint32(chunk), k, m)

    @cuda.jit(device=True, forceinline=True)
    def refill(shared, x, w, place, phase, chunk, row, column, thread):
        done = uint32(uint32(at + 2) + uint32(WORDS_EACH) * place)
        if thread % uint32(32) == uint32(0):
            ptx_bulk.mbarrier_arrive(shared, done)
        if thread == uint32(0):
            ptx_bulk.mbarrier_wait(shared, done, phase)
            load_w(shared, w, place, chunk, column)
            load_x(shared, x, place, chunk, row)

    @cuda.jit(device=True, forceinline=True)
    def following(chunk, row):
        chunk = uint32(chunk + uint32(1))
        if chunk == uint32(CHUNKS):
            chunk, row = uint32(0), uint32(row + uint32(BM))
        return chunk, row

    @cuda.jit(device=True, forceinline=True)
    def products(acc, shared, a0, b0, x, w, column, thread, end, place, parity, next, ahead):
        before = free = uint32(0)
        for chunk in range(CHUNKS):
            ptx_bulk.mbarrier_wait(shared, uint32(at + uint32(WORDS_EACH) * place), parity)
            here = uint32(place * uint32(STEP))
            multiplied(acc, shared, uint32(here + a0), uint32(here + b0))
            ptx_wgmma.wgmma_wait(acc, N, 1)
            if chunk > 0 and ahead < end:  # the chunk before has been used, and its place is filled anew
                refill(shared, x, w, before, free, next, ahead, column, thread)
                next, ahead = following(next, ahead)
            free, before, place = parity, place, uint32(place + uint32(1))
            if place == uint32(STAGES):
                place, parity = uint32(0), uint32(parity ^ uint32(1))
        ptx_wgmma.wgmma_wait(acc, N, 0)
        if TILES > 1 and ahead < end:
            refill(shared, x, w, before, free, next, ahead, column, thread)
            next, ahead = following(next, ahead)
        return place, parity, next, ahead

    @cuda.jit(device=True, forceinline=True)
    def run(acc, shared, a0, b0, x, w, row, column, thread, where):
        place, parity, next = uint32(0), uint32(0), uint32(FIRST % CHUNKS)
        ahead, end = uint32(row + uint32(FIRST // CHUNKS * BM)), uint32(row + uint32(TILES * BM))
        if TILES == 1:  # without a loop, or what comes after it would be computed before
            products(acc, shared, a0, b0, x, w, column, thread, end, place, parity, next, ahead)
            finish(acc, row, where)
        else:
            end = min(end, uint32(M))
            while row < end:
                place, parity, next, ahead = products(
                    acc, shared, a0, b0, x, w, column, thread, end, place, parity, next, ahead
                )
                finish(acc, row, where)
                row = uint32(row + uint32(BM))
                zero(acc)

    return Pipeline(start, run)
