"""How the blocks of a fused depthwise and pointwise kernel share the work out where maps lie plane by plane (NCHW).

A block computes a band of `height` rows of pixels, over the whole width of the map, of `filters` filters. It walks
through the channels, `channels` at a time. In shared memory are, for each step on its way, a slot of x for each channel
(the rows that the band needs, one run of pieces of 16 bytes), the step's taps and biases, and its columns of the
pointwise filters; and, once, the depthwise outputs of a step, a row of pixels for each channel. The sums are products
of filters by pixels, those of a warp `filters / warps_f` x `pixels / warps_p`.

Words are of 4 bytes, one float32 or two elements of 16 bits; a piece is 4 words. A thread computes a word of
neighbouring pixels at a time, so the rows of a band begin with a word each.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

from dwlab import tuned_for
from dwlab.fused import dwpw_cost, outputs
from dwlab.fused.dwpw_tiles import from_a_sector
from dwlab.pointwise import tiles as products
from dwlab.tuned_for import MULTIPROCESSORS, REGISTERS

SHARED = tuned_for.SHARED // 4  # words that a block may ask for
KEPT = 3  # K of filters whose taps stay in registers
MOST_COPIES = 12  # pieces of x of a step that a thread copies: where each comes from it keeps in a register
MOST_SUMS = 64  # of a thread


@dataclass(frozen=True)
class Tiles:
    """A way to share out: see above. Warps: warps_p x warps_f x warps_k, the last share the channels of a step.

    run: rows of the band that a thread goes down. stages: how many steps' x and filters are in shared memory.
    """

    height: int
    filters: int
    channels: int
    warps_p: int = 1
    warps_f: int = 1
    warps_k: int = 1
    run: int = 4
    stages: int = 2

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_p * self.warps_f * self.warps_k


class Plan:
    """What tiles come to for a pair of layers: sizes in words and pieces; none depends on the number of images."""

    def __init__(self, problem: Any, tiles: Tiles):
        one, two = problem.first, problem.second
        E, V = 4 // one.itemsize, 16 // one.itemsize
        self.tiles, self.elements, self.piece = tiles, E, V
        self.row = -(-one.Q // E)  # words of a band's row of pixels
        unit = 16 * tiles.warps_p
        self.pixels = -(-tiles.height * self.row * E // unit) * unit  # of the products: those of the band, or more
        rows = min((tiles.height - 1) * one.stride + one.K, one.H)
        beyond = (self.row * E - 1) * one.stride - one.padding + one.K - one.W + 2 * (E - 1)
        self.left = -(-one.padding // V)  # pieces of zeros before a channel's x, and after it: what reads go past it
        right = -(-max(beyond, 0) // V)
        self.slot = self.left + (V - 1 + rows * one.W + V - 1) // V + right  # pieces of a channel of x
        words = tiles.channels // E
        self.a_pitch = words if tiles.warps_k == 1 else products.pitch(words, "k", one.dtype)
        self.b_pitch = products.pitch(self.pixels // E, "mn", one.dtype)
        self.w1 = from_a_sector(tiles.channels * 4 * self.slot)  # where w1, b1 and w2 begin, and the next step
        self.b1 = self.w1 + from_a_sector(words * one.K * one.K)
        self.w2 = self.b1 + from_a_sector(words * one.bias)
        self.step = self.w2 + from_a_sector(tiles.filters * self.a_pitch)
        self.out_pitch = self.pixels + outputs.SPARE
        self.bands = -(-one.P // tiles.height)
        self.groups = -(-two.F // tiles.filters)
        self.steps = -(-one.C // tiles.channels)

    @property
    def shared(self) -> int:
        """Words of shared memory of a block: the outputs come where steps and depthwise outputs have been."""
        tiles = self.tiles
        main = tiles.stages * self.step + tiles.channels * self.b_pitch
        return max(main, tiles.warps_k * tiles.filters * self.out_pitch)

    @property
    def sums(self) -> int:
        """Of a thread's products."""
        return self.pixels * self.tiles.filters * self.tiles.warps_k // self.tiles.threads

    @property
    def columns(self) -> int:
        """Threads' pieces of work in the depthwise layer of a step."""
        return self.tiles.channels * -(-self.tiles.height // self.tiles.run) * self.row

    def why_not(self, problem: Any) -> str:
        """What keeps the tiles from a pair of layers, or ""."""
        one, tiles = problem.first, self.tiles
        step = 8 if one.dtype == "float32" else 16
        if tiles.height > one.P:
            return f"{tiles.height} rows are more than the map's {one.P}"
        if tiles.filters % (16 * tiles.warps_f):
            return f"{tiles.filters} filters in {tiles.warps_f} parts are no multiples of 16"
        if tiles.channels % (step * tiles.warps_k):
            return f"{tiles.channels} channels are no multiple of {step} x {tiles.warps_k}"
        if self.elements == 2 and tiles.height < one.P and (one.P * one.Q % 2 or tiles.height * one.Q % 2):
            return f"bands of {tiles.height} x {one.Q} of {one.P} x {one.Q} outputs of 16 bits are no whole words"
        if self.sums > MOST_SUMS:
            return f"{self.sums} sums are too many for a thread's registers: at most {MOST_SUMS}"
        if tiles.threads > 512:
            return f"{tiles.threads} threads are more than 512"
        if tiles.channels * self.slot > MOST_COPIES * tiles.threads:
            return f"{tiles.channels * self.slot} pieces of x are more than {MOST_COPIES} a thread"
        if self.shared > SHARED:
            return f"{4 * self.shared:,} bytes of shared memory are more than {4 * SHARED:,}"
        return ""


@functools.cache
def plan(problem: Any, tiles: Tiles) -> Plan:
    """The plan of some tiles for a Fused of one image."""
    return Plan(problem, tiles)


def why_not(problem: Any, tiles: Tiles) -> str:
    """What keeps tiles from a pair of layers, or ""."""
    return plan(problem, tiles).why_not(problem)


def registers(problem: Any, tiles: Tiles) -> int:
    """The most registers that a thread is given: as many as let two blocks of up to 256 threads be there at a time."""
    return 128


def clocks(problem: Any, images: int, tiles: Tiles) -> float:
    """Clocks of a launch for a Fused of one image and so many images: enough to order tiles by. See dwpw_cost."""
    one, two, made, wide = problem.first, problem.second, plan(problem, tiles), problem.first.dtype == "float32"
    warps, E, K, threads = tiles.threads // 32, made.elements, one.K, tiles.threads
    blocks = images * made.bands * made.groups
    by_registers = REGISTERS // (registers(problem, tiles) * -(-threads // 128) * 128)
    resident = max(1, min(SHARED // (made.shared + 256), by_registers))
    # A step: copies, depthwise outputs, their products with the filters.
    copies = tiles.channels * made.slot + tiles.filters * made.a_pitch // 4
    rows = (tiles.run - 1) * one.stride + K
    window = (E - 1) * one.stride + K
    reads = window if wide else window // 2 + 1
    each = 40 + rows * (4 + reads + window * (1 if wide else 4)) + tiles.run * E * (K * K + 3)
    taps = K * K if K <= KEPT else K * K * tiles.run
    each += taps * (1 if wide else 3)
    turns = tiles.channels / tiles.warps_k / (8 if wide else 16)
    down, across = tiles.filters // tiles.warps_f // 16, made.pixels // tiles.warps_p // 8
    instructions = -(-made.columns // threads) * each + copies / threads * 12
    instructions += turns * (down * (18 if wide else 3) + across * (9 if wide else 3))
    mma = turns * down * across * (3 if wide else 1)
    shared = made.columns / 32 * (rows * reads + taps + tiles.run) + copies / 8
    shared += turns * warps * (4 * down + 2 * across)
    written = made.pixels * tiles.filters
    last = 2 * made.sums + written / threads * 12 / E
    moved = images * made.bands * made.groups * made.steps * 16 * copies / (READ * MULTIPROCESSORS)
    total = dwpw_cost.clocks(
        blocks, resident, warps, made.steps * instructions + last, made.steps * mma,
        made.steps * shared + written / 32 * (tiles.warps_k + 1),
    )  # fmt: skip
    return max(total, moved)


READ = 20  # bytes a clock that a multiprocessor gets of the L2 cache where all of them ask


def candidates(problem: Any) -> list[Tiles]:
    """Tiles that fit a Fused of one image."""
    one, two = problem.first, problem.second
    unit = 8 if one.dtype == "float32" else 16
    found = []
    heights = {height for height in (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 28) if height <= one.P} | {one.P}
    for height, filters in itertools.product(sorted(heights), (16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 512)):
        if filters >= two.F + 16 and filters > 16:
            continue
        for (warps_p, warps_f, warps_k), channels in itertools.product(WARPS, (16, 32, 64)):
            if filters % (16 * warps_f) or channels % (unit * warps_k) or channels >= one.C + 16:
                continue
            for run in {min(height, 4), min(height, 8), min(height, 2)}:
                tiles = Tiles(height, filters, channels, warps_p, warps_f, warps_k, run)
                if not why_not(problem, tiles):
                    found.append(tiles)
    return found


WARPS = (
    (1, 4, 1), (2, 2, 1), (4, 1, 1), (1, 1, 4), (1, 2, 2), (2, 1, 2), (1, 8, 1), (2, 4, 1), (4, 2, 1), (1, 4, 2),
    (2, 2, 2), (1, 2, 4), (2, 1, 4), (7, 1, 1), (8, 1, 1), (1, 16, 1), (2, 8, 1), (4, 4, 1), (8, 2, 1),
)  # fmt: skip


@functools.cache
def choose(problem: Any, images: int) -> Tiles | None:
    """The tiles of least predicted time; None where none fit."""
    return min(candidates(problem), key=lambda tiles: clocks(problem, images, tiles), default=None)
