"""A block's tile of a product with sparse filters, 32 kept columns at a time: made dense, in float32, in shared memory.

Filters lie as `dwlab.problems.sparsity.stored` makes them, in float32 words: a word of w is a group of four's two
weights, a word of wi eight groups' places, a word of wc four columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, int32, uint32

from dwlab.kernels.parts import ptx, swizzle
from dwlab.kernels.traffic import warp_traffic
from dwlab.problems.layers import SparsePointwise, small_indices
from dwlab.problems.sparsity import STEP
from dwlab.target import cuda

GROUPS = STEP // 4  # of four columns, in a chunk


def channels(layer: SparsePointwise) -> int:
    """Channels that STEP kept columns are chosen from."""
    return STEP // layer.form.columns * layer.form.M


def supports(layer: SparsePointwise) -> bool:
    """Whether a block's filters lie in one block of V, and a pixel's channels next to each other in whole words."""
    whole = layer.layout == "NHWC" and (not layer.chooses or layer.form.V % 16 == 0)
    return whole and layer.C % 2 == 0 and layer.F % 2 == 0 and small_indices(layer)


def spread(layer: SparsePointwise, lines: int, pitch: int, threads: int, interleave: int) -> Any:
    """spread(shared, s0, w, wi, line0, chunk, thread): `lines` filters' weights of a chunk, zeros between them.

    Filter line0 + i is row interleave * (i % 4) + i // 4 of shared memory (parts/ffma.py), of 32 numbers.
    """
    ROWS, WORDS, ROUNDS = layer.rows, layer.kept // 4, lines * GROUPS // threads

    @cuda.jit(device=True, forceinline=True)
    def spread(shared, s0, w, wi, line0, chunk, thread):
        for round in range(ROUNDS):
            item = uint32(thread + uint32(round * threads))
            line, group = uint32(item // uint32(GROUPS)), uint32(item % uint32(GROUPS))
            row = uint32(line0 + line)
            p = q = float32(0)
            places = int32(0)
            if row < uint32(ROWS):
                p, q = ptx.halves(w[uint32(row * uint32(WORDS) + chunk * uint32(GROUPS) + group)])
                places = ptx.word_of_float(wi[uint32(chunk * uint32(ROWS) + row)])
            first = uint32(places >> int32(4 * group)) & uint32(3)
            second = uint32(places >> int32(4 * group + 2)) & uint32(3)
            to = uint32(s0 + (line % uint32(4) * uint32(interleave) + line // uint32(4)) * uint32(pitch))
            ptx.store4_shared(
                shared, uint32(to + uint32(4) * group), p if first == 0 else float32(0),
                p if first == 1 else (q if second == 1 else float32(0)),
                p if first == 2 else (q if second == 2 else float32(0)), q if second == 3 else float32(0)
            )  # fmt: skip

    return spread


def spread_traffic(layer: SparsePointwise, lines: int, threads: int) -> Any:
    """[requests, sectors] of `spread` of all chunks, by blocks of `lines` filters that cover F once."""
    item, total = np.arange(lines * GROUPS).reshape(-1, threads), np.zeros(2, np.int64)
    chunk = np.arange(layer.kept // STEP)[:, None, None]
    for line0 in range(0, layer.F, lines):
        row = line0 + item // GROUPS
        for element in (row * (layer.kept // 4) + chunk * GROUPS + item % GROUPS, chunk * layer.rows + row):
            total += warp_traffic(np.where(row < layer.rows, element, -1).reshape(-1, threads))
    return total


def gather(layer: SparsePointwise, pixels: int, pitch: int, threads: int) -> Any:
    """gather(shared, s0, x0, wc, block, chunk, thread): of `pixels` rows of channels the kept columns of a chunk.

    Row i of 32 numbers, `pitch` words from one to the next from word s0 on, out of row i of words of two float16 from
    word x0 on, swizzled as `load_tile` has put them. block: of V filters, of which all of the thread block's are.
    """
    place = swizzle.place(channels(layer) // 2)
    ROUNDS, WORDS = pixels * GROUPS // threads, layer.kept // 4
    M, COLUMNS, CHOOSES = layer.form.M, layer.form.columns, layer.chooses

    @cuda.jit(device=True, forceinline=True)
    def one(shared, x0, pixel, chosen, group, e):
        channel = uint32(uint32(4) * group + uint32(e))
        if CHOOSES:
            channel = uint32(channel // uint32(COLUMNS) * uint32(M) + uint32(chosen >> int32(8 * e) & int32(255)))
        low, high = ptx.halves(shared[uint32(x0 + place(pixel, uint32(channel // uint32(2))))])
        return high if channel % uint32(2) else low

    @cuda.jit(device=True, forceinline=True)
    def gather(shared, s0, x0, wc, block, chunk, thread):
        for round in range(ROUNDS):
            item = uint32(thread + uint32(round * threads))
            pixel, group = uint32(item // uint32(GROUPS)), uint32(item % uint32(GROUPS))
            chosen = int32(0)
            if CHOOSES:
                chosen = ptx.word_of_float(wc[uint32(block * uint32(WORDS) + chunk * uint32(GROUPS) + group)])
            ptx.store4_shared(
                shared, uint32(s0 + pixel * uint32(pitch) + uint32(4) * group),
                one(shared, x0, pixel, chosen, group, 0), one(shared, x0, pixel, chosen, group, 1),
                one(shared, x0, pixel, chosen, group, 2), one(shared, x0, pixel, chosen, group, 3)
            )  # fmt: skip

    return gather


def gather_traffic(layer: SparsePointwise, lines: int, pixels: int, threads: int) -> Any:
    """[requests, sectors] of `gather` of all chunks, by one block of pixels for each `lines` filters of F."""
    total = np.zeros(2, np.int64)
    if layer.chooses:
        item, chunk = np.arange(pixels * GROUPS).reshape(-1, threads), np.arange(layer.kept // STEP)[:, None, None]
        for line0 in range(0, layer.F, lines):
            element = line0 // layer.form.V * (layer.kept // 4) + chunk * GROUPS + item % GROUPS
            total += warp_traffic(element.reshape(-1, threads))
    return total
