"""How the blocks of a fused depthwise and pointwise kernel share the work out where threads slide down the map.

A block computes `height` x `width` pixels of `filters` filters, `channels` channels at a time: first their depthwise
outputs, to shared memory, then their products with the filters, a warp's own. Words are of 4 bytes, one float32 or two
elements of 16 bits; a piece is 4 words.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from dwlab.fused import outputs, sliding

SHARED = 227 * 1024 // 4  # words that a block may ask for, compute capability 9.0
REGISTERS = 65536  # of a multiprocessor
GROUP = 16  # words of channels that a warp multiplies at a time


@dataclass(frozen=True)
class Tiles:
    """A way to share out: see above. Warps: warps_p x warps_f x warps_k, the last share the channels.

    words: of channels at a time, a multiple of 16 x warps_k. run: neighbouring pixels of a row that one thread slides
    down. more: warps that take part in the depthwise layer only. groups: of 16 words that a warp asks for at a time.
    """

    height: int
    width: int
    filters: int
    words: int
    warps_p: int = 1
    warps_f: int = 1
    warps_k: int = 1
    run: int = 2
    more: int = 0
    groups: int = 1

    @property
    def warps(self) -> int:
        """That multiply."""
        return self.warps_p * self.warps_f * self.warps_k

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * (self.warps + self.more)

    @property
    def rows(self) -> int:
        """Pixels that the products have room for: those of the tile, or a few more."""
        unit = 16 * self.warps_p
        return -(-self.height * self.width // unit) * unit

    @property
    def pixels(self) -> int:
        """Of a warp's product."""
        return self.rows // self.warps_p

    @property
    def columns(self) -> int:
        """Filters of a warp's product."""
        return self.filters // self.warps_f

    @property
    def pitch(self) -> int:
        """Words between pixels of the depthwise outputs: 16 more than a multiple of 32, for their reads in pieces."""
        return -(-(self.words - 16) // 32) * 32 + 16

    @property
    def out_pitch(self) -> int:
        """Words between pixels of the outputs in shared memory."""
        return self.filters + outputs.SPARE

    @property
    def shared(self) -> int:
        """Words of shared memory of a block: the outputs come where the depthwise outputs have been."""
        return max(self.rows * self.pitch, self.warps_k * self.rows * self.out_pitch)

    @property
    def sums(self) -> int:
        """Sums of a thread's products."""
        return self.pixels * self.columns // 32

    @property
    def registers(self) -> int:
        """The most registers that a thread is given."""
        return 128 if self.threads > 256 or self.sums <= 32 else 168 if self.sums <= 64 else 232

    def items(self, dtype: str) -> int:
        """Threads' pieces of work in the depthwise layer: pieces of channels times runs of columns."""
        return self.words // sliding.words(dtype) * (self.width // self.run)

    def why_not(self) -> str:
        """What is wrong with these tiles, or ""."""
        if self.filters % (8 * self.warps_f):
            return f"{self.filters} filters in {self.warps_f} parts are no multiples of 8"
        if self.width % self.run:
            return f"a row of {self.width} pixels is no multiple of runs of {self.run}"
        if self.words % (GROUP * self.warps_k * self.groups):
            return f"{self.words} words of channels are no multiple of {GROUP} x {self.warps_k} x {self.groups}"
        if self.shared > SHARED:
            return f"{4 * self.shared:,} bytes of shared memory are more than {4 * SHARED:,}"
        if self.sums > 112:
            return f"{self.sums} sums are too many for a thread's registers: at most 112"
        if self.threads > 512 or self.registers * self.threads > REGISTERS:
            return f"{self.threads} threads of {self.registers} registers are too many: {REGISTERS:,} in all"
        return ""


MULTIPROCESSORS = 132
DRAM = 14.0  # bytes that come from memory in a clock, for each multiprocessor
L2 = 32.0  # and from the L2 cache
TENSOR = {"float32": 180.0, "float16": 1000.0, "bfloat16": 1000.0}  # multiply-adds of a multiprocessor in a clock
START, LATENCY = 3000.0, 700.0  # clocks: of a launch; until what a thread has asked for comes


def clocks(layers: Any, images: int, tiles: Tiles) -> float:
    """Clocks of a launch, about: enough to order tiles by.

    layers: a Fused of one image. The larger of what memory, the L2 cache, the tensor cores and the schedulers need, and
    what the threads wait for, round by round of the blocks that a multiprocessor has at a time.
    """
    one, two = layers.first, layers.second
    per, K, S = 16 // one.itemsize, one.K, one.stride
    tiles_of_map = -(-two.P // tiles.height) * -(-two.Q // tiles.width)
    blocks = images * tiles_of_map * -(-two.F // tiles.filters)
    resident = max(1, min(SHARED // (tiles.shared + 256), REGISTERS // (tiles.registers * tiles.threads), 32))
    rounds = -(-blocks // (MULTIPROCESSORS * resident))
    busy = min(blocks, MULTIPROCESSORS)
    segments = -(-one.C * one.itemsize // 4 // tiles.words)
    deep, columns = -(-K // S), (tiles.run - 1) * S + K
    steps = tiles.height + deep - 1
    each = min(K, S) * columns * (4 + (0 if per == 4 else per)) + K * K * tiles.run * per + tiles.run * (3 * per + 4)
    turns = -(-tiles.items(one.dtype) // tiles.threads) * segments
    filters, groups = tiles.columns // 8, segments * tiles.words // GROUP // tiles.warps_k
    split = 3 if per == 4 else 0
    product = groups * (filters * (4 + 8 * split) + tiles.pixels // 16 * (2 + 8 * split + 2 * filters * (split or 1)))
    end = 2 * tiles.sums + tiles.height * tiles.width * tiles.filters / per / tiles.threads * (30 + 4 * per)
    issue = (turns * steps * each + product + end) * tiles.threads / 32 / 4
    tensor = tiles.rows * tiles.filters * one.C / TENSOR[one.dtype]
    x_bytes = ((tiles.height - 1) * S + K) * ((tiles.width - 1) * S + K) * one.C * one.itemsize
    l2 = (x_bytes + tiles.filters * one.C * one.itemsize) / L2
    dram = layers.compulsory_bytes("dwpw") * images / DRAM / MULTIPROCESSORS
    waits = LATENCY * (turns * (1 + 0.5 * steps) + 2 + 0.2 * groups)
    share = blocks / busy
    return START + max(dram, share * max(l2, issue, tensor)) + rounds * waits


def candidates(layers: Any) -> list[Tiles]:
    """Tiles that fit a pair of layers."""
    one, two = layers.first, layers.second
    words = -(-one.C * one.itemsize // 4 // GROUP) * GROUP
    found = []
    for height, width, run in maps(two.P, two.Q, one.dtype):
        for warps_p, warps_f, warps_k in (
            (1, 1, 4), (1, 1, 8), (1, 2, 1), (1, 2, 2), (1, 2, 4), (1, 4, 1), (1, 4, 2), (1, 4, 4), (1, 8, 1), (1, 8, 2),
            (2, 1, 1), (2, 1, 2), (2, 2, 1), (2, 2, 2), (2, 4, 1), (4, 1, 1), (4, 2, 1), (7, 1, 1), (2, 8, 1), (1, 16, 1),
        ):  # fmt: skip
            unit = GROUP * warps_k
            for parts in (1, 2, 3, 4, 6, 8):
                segment = -(-words // parts // unit) * unit
                for filters in {8 * warps_f * n for n in (1, 2, 3, 4, 5, 6, 8)}:
                    tiles = Tiles(height, width, filters, segment, warps_p, warps_f, warps_k, run)
                    if filters < two.F + 8 * warps_f and not tiles.why_not():
                        found.append(tiles)
    return list(dict.fromkeys(found))


def maps(P: int, Q: int, dtype: str) -> list[tuple[int, int, int]]:
    """(height, width, run) of tiles for maps of P x Q."""
    runs = (1, 2)
    shapes = [(8, 8), (4, 8), (2, 8), (4, 4), (4, 16), (8, 16)]
    if Q % 7 == 0:
        shapes += [(7, 7), (4, 7), (2, 7), (1, 7)]
    if Q % 14 == 0:
        shapes += [(2, 14), (4, 14), (8, 14), (7, 14)]
    if Q % 28 == 0:
        shapes += [(2, 28), (4, 28)]
    return [(height, width, run) for height, width in shapes for run in runs if width % run == 0]


@functools.cache
def choose(layers: Any, images: int) -> Tiles | None:
    """The tiles of least predicted time; None where none fit."""
    return min(candidates(layers), key=lambda tiles: clocks(layers, images, tiles), default=None)
