"""How the blocks of a fused depthwise and pointwise kernel share the work out where maps lie plane by plane (NCHW).

A block computes a band of `height` rows of pixels, over the whole width of the map, of `filters` filters. It walks
through the channels, `channels` at a time. In shared memory are, of two steps each, a slot of x for each channel (the
rows that the band needs, one run of pieces of 16 bytes) with its taps and biases, its columns of the pointwise filters,
and its depthwise outputs, a row of pixels for each channel. The sums are products of filters by pixels, those of a warp
`filters / warps_f` x `pixels / warps_p`.

Words are of 4 bytes, one float32 or two elements of 16 bits; a piece is 4 words. A thread computes a word of
neighbouring pixels at a time, so the rows of a band begin with a word each.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

from dwlab import tuned_for
from dwlab.fused import outputs
from dwlab.pointwise import tiles as products
from dwlab.tuned_for import MULTIPROCESSORS, REGISTERS

SHARED = tuned_for.SHARED // 4  # words that a block may ask for
KEPT = 3  # K of filters whose taps stay in registers
MOST_COPIES = 12  # pieces of x of a step that a thread copies: where each comes from it keeps in a register
MOST_SUMS = 64  # of a thread; in float32 fewer where it has 128 registers: the product has its parts beside them



def from_a_sector(words: int) -> int:
    """Words from the begin of what is copied to shared memory to that of what comes after it: whole 32 bytes.

    Of an asynchronous copy that lies 16 bytes off, the hardware asks for most sectors twice (simt.trace.count_copies).
    """
    return -(-words // 8) * 8


@dataclass(frozen=True)
class Tiles:
    """A way to share out: see above. Warps: warps_p x warps_f x warps_k, the last share the channels of a step.

    run: rows of the band that a thread goes down.
    """

    height: int
    filters: int
    channels: int
    warps_p: int = 1
    warps_f: int = 1
    warps_k: int = 1
    run: int = 4

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
        self.w1 = from_a_sector(tiles.channels * 4 * self.slot)  # words of a step's x, after which w1 and b1 begin
        self.b1 = self.w1 + from_a_sector(words * one.K * one.K)
        self.step = self.b1 + from_a_sector(words * one.bias)
        self.w2_words = from_a_sector(tiles.filters * self.a_pitch)
        self.middle_words = from_a_sector(tiles.channels * self.b_pitch)
        self.out_pitch = self.pixels + outputs.SPARE
        self.bands = -(-one.P // tiles.height)
        self.groups = -(-two.F // tiles.filters)
        self.steps = -(-one.C // tiles.channels)

    @property
    def shared(self) -> int:
        """Words of shared memory of a block: the outputs come where steps and depthwise outputs have been."""
        tiles = self.tiles
        return max(2 * (self.step + self.w2_words + self.middle_words), tiles.warps_k * tiles.filters * self.out_pitch)

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
        if tiles.threads > 512:
            return f"{tiles.threads} threads are more than 512"
        if self.sums > (most := most_sums(one.dtype, tiles.threads)):
            return f"{self.sums} sums are too many for a thread's registers: at most {most}"
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


def most_sums(dtype: str, threads: int) -> int:
    """The most sums of a thread that compile without spills."""
    return MOST_SUMS if dtype != "float32" or threads <= 384 else 48


def registers(problem: Any, tiles: Tiles) -> int:
    """The most registers that a thread is given."""
    wide = problem.first.dtype == "float32" and plan(problem, tiles).sums > 48
    return 168 if wide else 128


# How long a launch takes, in clocks of a multiprocessor: what a block waits for, and what all of its blocks do with the
# units that they share. Rough rates of an H200; they order tiles, and foretell no time.
CONSTANTS = {
    "start": 2500,  # of a launch
    "round": 2000,  # of the blocks that a multiprocessor has at a time: until the first x has come, and of the last y
    "step": 900,  # of a step: a copy from the L2 cache, and a barrier
    "own": 2.0,  # of an instruction, until the same warp's next
    "issue": 0.25,  # of an instruction of any warp
    "tensor": 1 / 2000,  # of a FLOP of a product in 16 bits
    "tensor32": 1 / 310,  # and in float32, by three products, its operands split
    "shared": 1.0,  # of 128 bytes to or from shared memory
    "read": 1 / 22,  # of a byte of the L2 cache
}


def parts(problem: Any, images: int, tiles: Tiles) -> dict[str, float]:
    """What a launch has of each of CONSTANTS, for a Fused of one image and so many images."""
    one, made, wide = problem.first, plan(problem, tiles), problem.first.dtype == "float32"
    warps, E, K, S, threads = tiles.threads // 32, made.elements, one.K, one.stride, tiles.threads
    share = -(-images * made.bands * made.groups // MULTIPROCESSORS)
    by_registers = REGISTERS // (registers(problem, tiles) * -(-threads // 128) * 128)
    rounds = -(-share // min(max(1, min(SHARED // (made.shared + 256), by_registers)), share))
    # A step: pieces copied, depthwise outputs of a thread's columns, operands of the products read
    copies = tiles.channels * made.slot + tiles.filters * made.a_pitch // 4
    rows, window, taps = (tiles.run - 1) * S + K, (E - 1) * S + K, K * K if K <= KEPT else K * K * tiles.run
    reads = window if wide else window // 2 + 1
    column = 30 + rows * (12 + reads + window * (2 if wide else 3)) + taps + tiles.run * E * (K * K + 2)
    products = tiles.channels / tiles.warps_k / (8 if wide else 16)
    down, across = tiles.filters // tiles.warps_f // 16, made.pixels // tiles.warps_p // 8
    instructions = -(-made.columns // threads) * column + copies / threads * 12
    instructions += products * (
        down * (18 if wide else 3) + across * (8 if wide else 2) + down * across * (4 if wide else 1)
    )
    shared = made.columns / 32 * (rows * reads * (S if wide else 1) + taps + tiles.run) + copies / 8
    shared += products * warps * (4 * down + 2 * across)
    # The end: sums to shared memory, and from there to y
    sums = made.pixels * tiles.filters
    last = 2 * made.sums + sums / threads * 12 / E
    flops = 2 * sums * tiles.channels * made.steps
    return {
        "start": 1,
        "round": rounds,
        "step": rounds * made.steps,
        "own": rounds * (made.steps * instructions + last),
        "issue": share * (made.steps * instructions + last) * warps,
        "tensor": 0 if wide else share * flops,
        "tensor32": share * flops if wide else 0,
        "shared": share * (made.steps * shared + sums / 32 * (tiles.warps_k + 1)),
        "read": share * made.steps * 16 * copies,
    }


def clocks(problem: Any, images: int, tiles: Tiles) -> float:
    """Clocks of a launch for a Fused of one image and so many images: enough to order tiles by."""
    found = {name: count * CONSTANTS[name] for name, count in parts(problem, images, tiles).items()}
    waits = found["step"] + found["own"]
    units = [found[name] for name in ("issue", "tensor", "tensor32", "shared", "read")]
    return found["start"] + found["round"] + math.hypot(waits, *units)


def candidates(problem: Any) -> list[Tiles]:
    """Tiles that fit a Fused of one image."""
    one, two = problem.first, problem.second
    unit = 8 if one.dtype == "float32" else 16
    found = []
    heights = {height for height in (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 28) if height <= one.P} | {one.P}
    for height, filters in itertools.product(sorted(heights), (16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 512)):
        if filters >= two.F + 16 and filters > 16:
            continue
        for (warps_p, warps_f, warps_k), channels in itertools.product(WARPS, (16, 32, 64, 128)):
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
    (16, 1, 1), (7, 2, 1),
)  # fmt: skip


@functools.cache
def choose(problem: Any, images: int) -> Tiles | None:
    """The tiles of least predicted time; None where none fit."""
    return min(candidates(problem), key=lambda tiles: clocks(problem, images, tiles), default=None)
