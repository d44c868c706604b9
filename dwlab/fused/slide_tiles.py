"""How the blocks of a fused depthwise and pointwise kernel share the work out where threads slide down the map.

A block computes `height` x `width` pixels of `filters` filters, `channels` channels at a time: first their depthwise
outputs, to shared memory, then their products with the filters, a warp's own. Words are of 4 bytes, one float32 or two
elements of 16 bits; a piece is 4 words.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

from dwlab import tuned_for
from dwlab.fused import outputs, sliding
from dwlab.tuned_for import MULTIPROCESSORS, REGISTERS

SHARED = tuned_for.SHARED // 4  # words that a block may ask for
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
        if self.threads > 512:
            return f"{self.threads} threads are more than 512"
        return ""


def registers(layers: Any, tiles: Tiles) -> int:
    """The most registers that a thread is given: for the depthwise layer, or for the products, whichever needs more."""
    one = layers.first
    K, S, word = one.K, one.stride, sliding.words(one.dtype)
    columns, taps = (tiles.run - 1) * S + K, K * K if K <= sliding.KEPT else K
    ahead = min(sliding.ahead(one, tiles.height, tiles.run) + 1, len(sliding.rows_of(one, tiles.height)))
    slide = 4 * (taps + 1 + -(-K // S) * tiles.run + columns) + ahead * columns * word + (8 if word == 4 else 20)
    filters = tiles.columns // 8 * 4
    product = tiles.sums + filters * (2 * tiles.groups + (2 if word == 4 else 1)) + 4 * word
    product += 24 if word == 4 else 8 if tiles.groups == 1 else 32
    need = max(slide, product)  # both with some for indices: what compiled without spills, or of a few words
    return next(count for count in (64, 80, 96, 112, 128, 168, 232) if need <= count or count == 232)


@functools.cache
def why_not(layers: Any, tiles: Tiles) -> str:
    """What keeps these tiles from a pair of layers, or ""."""
    if said := tiles.why_not():
        return said
    count = registers(layers, tiles)
    if count * tiles.threads > REGISTERS:
        return f"{tiles.threads} threads of {count} registers are too many: {REGISTERS:,} in all"
    return ""


# How long a launch takes, in clocks: what a block does, round by round, and what the hardware does for all of them. The
# constants come from least squares of logarithms over measured choices of tiles on an H200, their arrays in the L2 and
# not (the section `tiles` of the records); which choices, the constants before these have said.
# They order tiles; they are no properties of a GPU.
CONSTANTS = {
    "start": 2120,  # of a launch
    "round": 1680,  # of the blocks that a multiprocessor has at a time
    "chain": 25,  # of a row of x that is waited for
    "read": 85,  # of filters that are waited for
    "own": 1.1,  # of an instruction, until the same warp's next
    "segment": 3380,  # of a block's channels beyond the first ones: two barriers, and x in shorter pieces of memory
    "issue": 1.04,  # from here on of all blocks together, and these at the same time: of an instruction of any warp
    "access": 0.9,  # of 128 bytes to or from shared memory and the L1 cache
    "tensor": 0.875,  # of a part of a tensor core's time
    "memory": 0.057,  # of a byte that must move, for each multiprocessor
}
ADDED = list(CONSTANTS).index("issue")  # so many times are added up, with the length of those from there on


def parts(layers: Any, images: int, tiles: Tiles, count: int | None = None) -> tuple[float, ...]:
    """What a launch has of each of CONSTANTS, for a Fused of one image and so many images.

    count: registers of a thread, if not those of `registers`.
    """
    one, two = layers.first, layers.second
    K, S, wide, E = one.K, one.stride, one.dtype == "float32", 4 // one.itemsize
    word, rows, columns = sliding.words(one.dtype), len(sliding.rows_of(one, tiles.height)), (tiles.run - 1) * S + K
    blocks = images * -(-two.P // tiles.height) * -(-two.Q // tiles.width) * -(-two.F // tiles.filters)
    share = -(-blocks // MULTIPROCESSORS)
    count = count or registers(layers, tiles)
    fit = min(SHARED // (tiles.shared + 256), REGISTERS // (count * tiles.threads), 32)
    rounds = -(-share // min(max(fit, 1), share))
    segments = -(-one.C // E // tiles.words)
    items = tiles.items(one.dtype) * segments
    turns = -(-tiles.items(one.dtype) // tiles.threads) * segments
    chain = 2 if sliding.ahead(one, tiles.height, tiles.run) == rows else rows + 1
    slide = rows * columns * (5 if wide else 7) + tiles.height * tiles.run * (4 * K * K + 12) + 2 * K * K + 30
    groups = segments * tiles.words // GROUP // tiles.warps_k
    across, down = tiles.columns // 8, tiles.pixels // 16
    product = groups * (across * (18 if wide else 6) + down * (28 if wide else 4))
    mma = groups * 2 * across * down * (3 if wide else 1)
    outputs = tiles.height * tiles.width * tiles.filters
    end = 2 * tiles.sums + outputs / (4 * E) / tiles.threads * (30 + 12 * E + 4 * tiles.warps_k)
    issue = items / 32 * slide + end * tiles.threads / 32 + (product + mma) * tiles.warps
    access = items / 32 * (rows * columns + K * K + tiles.height * tiles.run) * word
    access += tiles.warps * groups * 8 * (across + down) + tiles.rows * tiles.out_pitch * tiles.warps_k / 16
    return (
        1, rounds, rounds * turns * chain, rounds * groups / tiles.groups,
        rounds * (turns * slide + product + mma + end), share * (segments - 1), share * issue / 4, share * access,
        share * mma * tiles.warps * 2, layers.compulsory_bytes("dwpw") * images / MULTIPROCESSORS,
    )  # fmt: skip


def clocks(layers: Any, images: int, tiles: Tiles) -> float:
    """Clocks of a launch for a Fused of one image and so many images: enough to order tiles by."""
    times = [part * cost for part, cost in zip(parts(layers, images, tiles), CONSTANTS.values(), strict=True)]
    return sum(times[:ADDED]) + math.hypot(*times[ADDED:])


def candidates(layers: Any) -> list[Tiles]:
    """Tiles that fit a pair of layers."""
    one, two = layers.first, layers.second
    words = -(-one.C * one.itemsize // 4 // GROUP) * GROUP
    found = []
    for (height, width, run), (warps_p, warps_f, warps_k) in itertools.product(_maps(two.P, two.Q, one.K), WARPS):
        if height * width <= 16 * (warps_p - 1):
            continue
        unit = GROUP * warps_k
        parts = (1,) if 4 * height * width * words <= WHOLE else (1, 2, 3, 4)
        for segment in {-(-words // n // unit) * unit for n in parts}:
            for count in (1, 2, 3, 4, 5, 6, 7, 8):
                filters, turns = 8 * warps_f * count, segment // unit
                if filters >= two.F + 8 * warps_f:
                    continue
                groups = next(n for n in (4, 3, 2, 1) if turns % n == 0 and (n * count <= 4 or n == 1))
                tiles = Tiles(height, width, filters, segment, warps_p, warps_f, warps_k, run, 0, groups)
                more = -(-min(tiles.items(one.dtype), 512) // 32) - tiles.warps
                tiles = replace(tiles, more=max(0, more))
                if not why_not(layers, tiles):
                    found.append(tiles)
    return found


WHOLE = 65536  # bytes of depthwise outputs that are not worth to be shared out over several rounds
WARPS = (
    (1, 1, 1), (1, 1, 3), (1, 1, 4), (1, 1, 8), (1, 2, 2), (1, 2, 4), (1, 2, 8), (1, 4, 1), (1, 4, 2), (1, 4, 4),
    (1, 8, 1), (1, 8, 2), (1, 16, 1), (2, 1, 1), (2, 1, 2), (2, 4, 1), (4, 1, 1),
)  # fmt: skip


def _maps(P: int, Q: int, K: int) -> list[tuple[int, int, int]]:
    """(height, width, run) of tiles for maps of P x Q."""
    shapes = [(8, 8), (4, 8), (2, 8), (4, 4), (8, 4)]
    if Q % 7 == 0:
        shapes += [(4, 7), (2, 7), (1, 7)] if Q % 14 else [(1, 14), (2, 14), (4, 14), (8, 14)]
    if Q % 28 == 0:
        shapes += [(2, 28), (4, 28)]
    return [
        (height, width, run)
        for height, width in shapes
        if height < 2 * P and width < 2 * Q
        for run in ((1, 2) if K <= 5 else (1,))
        if width % run == 0
    ]


@functools.cache
def choose(layers: Any, images: int) -> Tiles | None:
    """The tiles of least predicted time; None where none fit."""
    return min(candidates(layers), key=lambda tiles: clocks(layers, images, tiles), default=None)
