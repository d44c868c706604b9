"""A block's chunks of x and of sparse filters in boxes that the copy engine brings (TMA), and the loop over them.

As parts/bulk_products.py, of sparse products: threads read a chunk's metadata out of shared memory, and these stay in
their register until the products have ended (parts/group_sparse.py). So a group waits for a chunk's products before the
next one's begin; other groups' run meanwhile, as warps meet nowhere. Thread 0 fills the place of the chunk before anew
while its own group's products run.

Where a block's groups would leave tensor cores idle, `warps_k` slices of them share a sum: each has every second chunk,
places of its own and a thread that fills them. At the end the second slice's sums go to the first through shared
memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint32

from dwlab.kernels.parts import constants, ptx_bulk
from dwlab.kernels.parts import ptx_wgmma as wgmma
from dwlab.kernels.parts.bulk_products import WORDS_EACH, Pipeline
from dwlab.kernels.parts.group_sparse import read_metadata, start_products
from dwlab.kernels.parts.warp_tile import WarpTile, zeros
from dwlab.kernels.traffic import warp_traffic
from dwlab.target import cuda


def pipeline(layout: Any, load: Any, finish: Any) -> Pipeline:
    """The loop of the groups of a block of sparse/forward/tma; layout: sparse.tma_tiles.Layout.

    start(shared, thread, tile, end, where), by all threads: makes the mbarriers, and starts the first copies.
    run(acc, shared, a0, b0, e0, thread, tile, end, where): the products of all chunks of the block's tiles, from `tile`
    to before `end`, each then handed to finish(acc, tile, where). a0, b0, e0: where a group's filters and pixels, and
    the warp's metadata, begin in a chunk; acc: 0. where: what load and finish take besides.
    load(shared, at, mbarrier, chunk, tile, where), by one thread: starts the copies of a chunk to word `at`.
    """
    config, N, TILES, SLICES = layout.config, layout.config.warp_m, layout.config.groups, layout.config.warps_k
    stages, chunks = config.pipeline_stages // SLICES, layout.chunks // SLICES
    ring = constants.of(
        config, layout.tile, layout, threads=config.threads // SLICES, stages=stages, chunks=chunks,
        first=min(stages, chunks * TILES),
    )  # fmt: skip
    metadata, multiply = read_metadata(config.block_n), start_products(N, layout.x_pitch)

    @cuda.jit(device=True, forceinline=True)
    def fill(shared, place, chunk, tile, slice, where):
        full = uint32(uint32(ring.mbarriers_at) + uint32(WORDS_EACH) * place)
        ptx_bulk.mbarrier_expect(shared, full, ring.nbytes)
        load(shared, uint32(place * uint32(ring.step)), full, uint32(chunk * uint32(SLICES) + slice), tile, where)

    @cuda.jit(device=True, forceinline=True)
    def start(shared, thread, tile, end, where):
        if thread == uint32(0):
            for place in range(ring.pipeline_stages):
                ptx_bulk.mbarrier_init(shared, uint32(ring.mbarriers_at + WORDS_EACH * place), 1)
                ptx_bulk.mbarrier_init(shared, uint32(ring.mbarriers_at + WORDS_EACH * place + 2), ring.warps)
            wgmma.fence_async()
        cuda.syncthreads()
        if thread % uint32(ring.threads) == uint32(0):
            slice = uint32(thread // uint32(ring.threads))
            for chunk in range(ring.first):
                below = uint32(tile + uint32(chunk // ring.chunks))
                place = uint32(slice * uint32(ring.stages) + uint32(chunk))
                if chunk < ring.chunks or below < end:
                    fill(shared, place, uint32(chunk % ring.chunks), below, slice, where)

    @cuda.jit(device=True, forceinline=True)
    def following(chunk, tile):
        chunk = uint32(chunk + uint32(1))
        if chunk == uint32(ring.chunks):
            chunk, tile = uint32(0), uint32(tile + uint32(1))
        return chunk, tile

    @cuda.jit(device=True, forceinline=True)
    def products(acc, shared, a0, b0, e0, thread, end, place, parity, before, free, next, ahead, where):
        slice, lane = uint32(thread // uint32(ring.threads)), uint32(thread % uint32(32))
        for _ in range(ring.chunks):
            ptx_bulk.mbarrier_wait(shared, uint32(uint32(ring.mbarriers_at) + uint32(WORDS_EACH) * place), parity)
            here = uint32(place * uint32(ring.step))
            places = metadata(shared, uint32(here + e0), lane)
            wgmma.wgmma_fence(acc, N)
            multiply(acc, shared, uint32(here + a0), uint32(here + b0), places)
            wgmma.wgmma_commit()
            if before < uint32(ring.pipeline_stages) and ahead < end:  # the place of the chunk before is filled anew
                if thread % uint32(ring.threads) == uint32(0):
                    left = uint32(uint32(ring.mbarriers_at + 2) + uint32(WORDS_EACH) * before)
                    ptx_bulk.mbarrier_wait(shared, left, free)
                    fill(shared, before, next, ahead, slice, where)
                next, ahead = following(next, ahead)
            wgmma.wgmma_sp_wait(acc, N, 0, places, places)
            if lane == uint32(0):
                ptx_bulk.mbarrier_arrive(shared, uint32(uint32(ring.mbarriers_at + 2) + uint32(WORDS_EACH) * place))
            before, free, place = place, parity, uint32(place + uint32(1))
            if place == uint32((slice + uint32(1)) * uint32(ring.stages)):
                place, parity = uint32(slice * uint32(ring.stages)), uint32(parity ^ uint32(1))
        return place, parity, before, free, next, ahead

    @cuda.jit(device=True, forceinline=True)
    def together(acc, shared, thread):
        """The first slice's sums and the second's, which lie where the chunks were."""
        cuda.syncthreads()
        at = uint32(thread % uint32(ring.threads))
        if thread >= uint32(ring.threads):
            for i in range(ring.size):
                shared[uint32(uint32(i * ring.threads) + at)] = acc[i]
        cuda.syncthreads()
        if thread < uint32(ring.threads):
            for i in range(ring.size):
                acc[i] += shared[uint32(uint32(i * ring.threads) + at)]

    @cuda.jit(device=True, forceinline=True)
    def run(acc, shared, a0, b0, e0, thread, tile, end, where):
        slice = uint32(thread // uint32(ring.threads))
        place, parity, next = uint32(slice * uint32(ring.stages)), uint32(0), uint32(ring.first % ring.chunks)
        ahead, before, free = uint32(tile + uint32(ring.first // ring.chunks)), uint32(ring.pipeline_stages), uint32(0)
        if TILES == 1:  # without a loop, or what comes after it would be computed before
            products(acc, shared, a0, b0, e0, thread, end, place, parity, before, free, next, ahead, where)
            if SLICES > 1:
                together(acc, shared, thread)
            if SLICES == 1 or thread < uint32(ring.threads):
                finish(acc, tile, where)
        else:
            while tile < end:
                place, parity, before, free, next, ahead = products(
                    acc, shared, a0, b0, e0, thread, end, place, parity, before, free, next, ahead, where
                )
                finish(acc, tile, where)
                tile = uint32(tile + uint32(1))
                ring.zero(acc)

    return Pipeline(start, run)


def tile_of(N: int, nchw: bool) -> tuple[WarpTile, Any]:
    """(tile, arrange): what a warp has of a group's N pixels x 64 filters once arrange(acc, lane) has put it in order.

    In NHWC a run is of a pixel's two neighbouring filters, by a trade with another lane; in NCHW of its filters g and
    g + 8, g = lane // 4, and the next run of the next pixel's.
    """

    @cuda.jit(device=True, forceinline=True)
    def row(lane, i):
        return uint32(uint32(i // 4 * 8 + i // 2 % 2) + uint32(2) * (lane % uint32(4)))

    if nchw:

        @cuda.jit(device=True, forceinline=True)
        def column(lane, i):
            return uint32(uint32(i % 2 * 8) + lane // uint32(4))

        @cuda.jit(device=True, forceinline=True)
        def arrange(acc, lane):
            for j in range(0, N // 2, 4):
                acc[j + 1], acc[j + 2] = acc[j + 2], acc[j + 1]

        def filters(lane: Any, i: int) -> Any:
            return i % 2 * 8 + lane // 4

    else:

        @cuda.jit(device=True, forceinline=True)
        def column(lane, i):
            g = uint32(lane // uint32(4))
            return uint32(g + g % uint32(2) * uint32(7) + uint32(i % 2))

        @cuda.jit(device=True, forceinline=True)
        def arrange(acc, lane):
            odd = lane // uint32(4) % uint32(2) != uint32(0)
            for j in range(0, N // 2, 4):
                p, q = (acc[j], acc[j + 1]) if odd else (acc[j + 2], acc[j + 3])
                p, q = cuda.shfl_xor_sync(0xFFFFFFFF, p, 4), cuda.shfl_xor_sync(0xFFFFFFFF, q, 4)
                if odd:
                    acc[j], acc[j + 1], acc[j + 2] = p, acc[j + 2], q
                else:
                    acc[j + 1], acc[j + 2], acc[j + 3] = p, acc[j + 1], q

        def filters(lane: Any, i: int) -> Any:
            return lane // 4 + lane // 4 % 2 * 7 + i % 2

    def place(lane: Any, i: int) -> tuple[Any, Any]:
        return i // 4 * 8 + i // 2 % 2 + 2 * (lane % 4), filters(lane, i)

    return WarpTile(N, 16, 0, N // 2, 2, zeros(N // 2), None, row, column, place), arrange


def box_traffic(lines: int, width: int, box: int, words: int, first: Any, at: Any) -> Any:
    """[requests, sectors] of boxes of a matrix (ptx_bulk.copy_box_async), counted as warps' copies of 16 bytes.

    first, at: line and word at which each begins, NumPy arrays.
    """
    each = words // 4
    vector = np.arange(-(-box * each // 32) * 32).reshape(-1, 32)
    first, at = (one[..., None, None] for one in np.broadcast_arrays(first, at))
    line, word = first + vector // each, at + vector % each * 4
    inside = (vector < box * each) & (line < lines) & (word < width)
    return warp_traffic(np.where(inside, line * width + word, -4).reshape(-1, 32) // 4, 2)
