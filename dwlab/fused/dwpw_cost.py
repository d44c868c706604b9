"""How long a fused depthwise and pointwise kernel takes with some tiles: a formula that orders them.

A block alone needs its instructions one after the other: START of a launch, BLOCK of each round of blocks until x has
come and after the last sums have left, INSTRUCTION and MMA of each of a warp. Blocks that share a multiprocessor need
its shared memory and its schedulers one after the other: SHARED and ISSUE. The two are added up, since between the
barriers of a step there is little of one block for the other to hide behind.

The constants are no properties of a GPU that a manual tells. They come from least squares of logarithms on a first run
of hand-picked tiles, and of those chosen before, on an H200: eight pairs of layers, one image and 32, float32 and
float16. They order tiles; they do not foretell a time.
"""

from __future__ import annotations

from typing import Any

from dwlab.tuned_for import MULTIPROCESSORS

# Clocks of a multiprocessor
START = 3400  # of a launch
BLOCK = 3600  # of a round of blocks: before the first step and after the last
INSTRUCTION = 1.1  # of a warp's own instruction, until its next
MMA = 10  # of a warp's own product of 16 x 8
SHARED = 0.76  # for each that shared memory needs to move 128 bytes
ISSUE = 0.1  # of any warp's instruction, for the others
COPY, COPY_OR_ZERO = 12, 36  # instructions of a piece of 16 bytes, where the channels end with a step and where not


def clocks(blocks: int, resident: int, warps: int, instructions: float, mma: float, shared: float) -> float:
    """Clocks of a launch.

    resident: blocks of a multiprocessor at a time; instructions, mma: of one of a block's `warps`, mma apart; shared:
    times 128 bytes that a block moves to or from shared memory.
    """
    share = -(-blocks // MULTIPROCESSORS)
    rounds = -(-share // min(resident, share))
    alone = BLOCK + INSTRUCTION * instructions + MMA * mma
    return START + rounds * alone + share * (SHARED * shared + ISSUE * instructions * warps)


def step(tiles: Any, layer: Any) -> tuple[float, float]:
    """(instructions of a warp, times 128 bytes of a block) of a step before the product: copies, depthwise outputs."""
    K, stride, dtype = layer.K, layer.stride, layer.dtype
    per = 4 if dtype == "float32" else 8  # elements of 16 bytes
    pieces, (height, width) = tiles.channels // per, tiles.footprint(K, stride)
    copies = (height * width + K * K + tiles.filters) * pieces
    runs = tiles.height * (tiles.width // tiles.run) * pieces
    accesses = K * ((tiles.run - 1) * stride + K) + K * K + tiles.run  # of 16 bytes
    each = 30 + accesses + tiles.run * (K * K + 3) * per + (0 if dtype == "float32" else accesses * per)
    copy = COPY if layer.C % tiles.channels == 0 else COPY_OR_ZERO
    instructions = -(-runs // tiles.threads) * each + copies / tiles.threads * copy
    return instructions, (runs * accesses + copies) / 8
