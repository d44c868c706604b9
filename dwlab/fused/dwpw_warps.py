"""How the blocks of a fused depthwise and pointwise kernel share the work out where the product is a warp's own.

As in `dwpw_tiles`, a block computes `height` x `width` pixels of `filters` filters, `channels` channels a step, and the
depthwise outputs of a step go to shared memory. There they are one operand of matrix products (dwlab.pointwise.tiles):
each warp multiplies `pixels` rows of them with its share of the filters. Shared memory is counted in words of 4 bytes,
one float32 or two elements of 16 bits; a piece is 16 bytes, that is 4 words.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import float32, uint32

from dwlab import pieces, ptx, tuned_for
from dwlab.depthwise1d.straight_line import in_turn
from dwlab.fused import dwpw_cost, outputs
from dwlab.fused.dwpw_tiles import from_a_sector
from dwlab.pointwise import tiles as products
from dwlab.target import cuda
from dwlab.tuned_for import REGISTERS

SHARED = tuned_for.SHARED // 4  # words that a block may ask for


@dataclass(frozen=True)
class Tiles:
    """A way to share out: see above. Warps: warps_p x warps_f x warps_k, the last share the channels of a step.

    pixels: rows of a warp's product, a multiple of 16. run: neighbouring pixels of a row whose depthwise outputs one
    thread computes. stages: how many steps' x and filters are in shared memory.
    """

    height: int
    width: int
    filters: int
    channels: int
    pixels: int
    warps_p: int = 1
    warps_f: int = 1
    warps_k: int = 1
    run: int = 1
    stages: int = 2

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_p * self.warps_f * self.warps_k

    @property
    def rows(self) -> int:
        """Pixels that the products have room for: those of the tile, or a few more."""
        return self.pixels * self.warps_p

    @property
    def out_pitch(self) -> int:
        """Words between pixels of the outputs in shared memory."""
        return self.filters + outputs.SPARE

    def footprint(self, K: int, stride: int) -> tuple[int, int]:
        """(height, width) of the pixels of x that the tile needs."""
        return (self.height - 1) * stride + K, (self.width - 1) * stride + K

    def row_words(self, dtype: str) -> int:
        """Words of a step's channels of one pixel or filter."""
        return self.channels if dtype == "float32" else self.channels // 2

    def pitch(self, dtype: str) -> int:
        """Words between rows of either operand of the product."""
        return products.pitch(self.row_words(dtype), "k", dtype)

    def x_pitch(self, stride: int, dtype: str) -> int:
        """Words between pixels of x: lanes of different runs, too, should read different banks."""
        pieces = self.row_words(dtype) // 4
        apart = self.run * stride
        return 4 * next((one for one in (pieces, pieces + 1) if one * apart % 8 == pieces % 8), pieces)

    def words(self, K: int, stride: int, dtype: str) -> tuple[int, int, int, int]:
        """Words of shared memory: (x, w1 and b1, w2 of a step, middle), each from a multiple of 32 bytes on."""
        height, width = self.footprint(K, stride)
        x, w1 = height * width * self.x_pitch(stride, dtype), (K * K + 1) * self.row_words(dtype)
        w2, middle = self.filters * self.pitch(dtype), self.rows * self.pitch(dtype)
        return from_a_sector(x), from_a_sector(w1), from_a_sector(w2), middle

    def shared(self, K: int, stride: int, dtype: str) -> int:
        """Words of shared memory of a block: the outputs come where steps and middle have been."""
        x, w1, w2, middle = self.words(K, stride, dtype)
        return max(self.stages * (x + w1 + w2) + middle, self.warps_k * self.rows * self.out_pitch)

    def sums(self, dtype: str) -> int:
        """Sums that a thread holds: of the product, and of its run's depthwise outputs."""
        return self.pixels * self.filters // self.warps_f // 32 + self.run * (4 if dtype == "float32" else 8)

    def registers(self, dtype: str) -> int:
        """The most registers that a thread is given."""
        return 128 if self.sums(dtype) <= 88 else 168

    @property
    def slots(self) -> int:
        """Threads that registers are given to: whole groups of 4 warps."""
        return -(-self.threads // 128) * 128

    def why_not(self, K: int, stride: int, dtype: str) -> str:
        """What keeps these tiles from a layer, or ""."""
        step = 8 if dtype == "float32" else 16
        if self.pixels % 16 or self.filters % (16 * self.warps_f):
            return f"{self.pixels} pixels, and {self.filters} filters in {self.warps_f} parts, are no multiples of 16"
        if self.rows < self.height * self.width:
            return f"{self.height * self.width} pixels are more than {self.pixels} x {self.warps_p}"
        if self.width % self.run:
            return f"a row of {self.width} pixels is no multiple of runs of {self.run}"
        if self.channels % (step * self.warps_k):
            return f"{self.channels} channels are no multiple of {step} x {self.warps_k}"
        if self.shared(K, stride, dtype) > SHARED:
            return f"{4 * self.shared(K, stride, dtype):,} bytes of shared memory are more than {4 * SHARED:,}"
        if self.sums(dtype) > 120:
            return f"{self.sums(dtype)} sums are too many for a thread's registers: at most 120"
        if self.registers(dtype) * self.slots > REGISTERS:
            return f"{self.threads} threads of {self.registers(dtype)} registers are too many: {REGISTERS:,} in all"
        return ""


@functools.cache
def depthwise(K: int, stride: int, run: int, dtype: str, taps: int, row: int, pitch: int) -> Any:
    """The device function add(sums, pool, x_at, w_at): a run's depthwise outputs of a piece of channels.

    sums: local array of float32, the channels of a pixel next to each other. x_at: word of the run's first x in `pool`,
    pixels `pitch` and rows `row` words apart. w_at: word of the first tap of these channels, taps `taps` words apart.
    """
    PER, ACROSS, unpacked = pieces.elements(dtype), (run - 1) * stride + K, pieces.spread(dtype)
    WEIGHTS = K * PER

    @cuda.jit(device=True, forceinline=True)
    def tap(sums, k, w, i, x):
        sums[k] += w[i] * x[0]
        sums[k + 1] += w[i + 1] * x[1]
        sums[k + 2] += w[i + 2] * x[2]
        sums[k + 3] += w[i + 3] * x[3]
        if PER == 8:
            sums[k + 4] += w[i + 4] * x[4]
            sums[k + 5] += w[i + 5] * x[5]
            sums[k + 6] += w[i + 6] * x[6]
            sums[k + 7] += w[i + 7] * x[7]

    def columns(first: int) -> Any:
        """x of up to 4 columns of a row: more at once are a loop too long for Numba to unroll."""
        stop = min(first + 4, ACROSS)

        @cuda.jit(device=True, forceinline=True)
        def add(sums, w, pool, x_at):
            x = cuda.local.array(PER, float32)
            for v in range(first, stop):
                a, b, c, d = ptx.load4_shared(pool, uint32(x_at + uint32(v * pitch)))
                unpacked(x, 0, a, b, c, d)
                for p in range(run):
                    j = v - p * stride
                    if 0 <= j and j < K:
                        tap(sums, p * PER, w, j * PER, x)

        return add

    across = in_turn([columns(first) for first in range(0, ACROSS, 4)], arguments=4)

    @cuda.jit(device=True, forceinline=True)
    def add(sums, pool, x_at, w_at):
        w = cuda.local.array(WEIGHTS, float32)
        for i in range(K):
            for j in range(K):
                a, b, c, d = ptx.load4_shared(pool, uint32(w_at + uint32((i * K + j) * taps)))
                unpacked(w, j * PER, a, b, c, d)
            across(sums, w, pool, uint32(x_at + uint32(i * row)))

    return add


def candidates(problem: Any) -> list[Tiles]:
    """Tiles that fit a problem."""
    one, two = problem.first, problem.second
    found = []
    for height, width, run in _maps(two.P, two.Q):
        rows = -(-height * width // 16) * 16
        for pixels in (16, 32, 48, 64):
            if rows % pixels == 0 and rows // pixels <= 8:
                for filters, warps_f, warps_k, channels in _shares(two.F, one.C, one.dtype):
                    stages = 1 if channels >= one.C else 2
                    tiles = Tiles(
                        height, width, filters, channels, pixels, rows // pixels, warps_f, warps_k, run, stages
                    )
                    fits = 4 <= tiles.threads // 32 <= 16
                    if fits and not tiles.why_not(one.K, one.stride, one.dtype):
                        found.append(tiles)
    return found


def _maps(P: int, Q: int) -> list[tuple[int, int, int]]:
    """(height, width, run) of tiles for maps of P x Q."""
    found = [(8, 8, 4), (4, 8, 4), (4, 4, 2), (2, 8, 2)]
    if Q % 7 == 0:
        found += [(2, 7, 1), (4, 7, 1), (7, 7, 7), (4, 7, 7)]
    if Q % 14 == 0:
        found += [(2, 14, 2), (4, 14, 7), (8, 14, 7)]
    return found


def _shares(F: int, C: int, dtype: str) -> list[tuple[int, int, int, int]]:
    """(filters, warps_f, warps_k, channels) of tiles for F filters of C channels, these in 1 step or in several."""
    found = []
    for warps_k in (1, 2, 3, 4, 8):
        unit = (8 if dtype == "float32" else 16) * warps_k
        steps = {-(-C // count // unit) * unit for count in (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 32)}
        for filters in (16, 32, 48, 64, 80, 96, 128, 160):
            if filters < F + 16:
                parts = [warps_f for warps_f in (1, 2, 4) if filters % (16 * warps_f) == 0]
                found += [(filters, warps_f, warps_k, c) for warps_f in parts for c in steps if c <= 320]
    return found


def work(problem: Any, tiles: Tiles) -> tuple[int, int, int, float, float, float]:
    """What dwpw_cost.clocks() asks for: (blocks, resident, warps, instructions, mma, shared)."""
    one, two = problem.first, problem.second
    wide, warps = one.dtype == "float32", tiles.threads // 32
    blocks = problem.N * -(-two.P // tiles.height) * -(-two.Q // tiles.width) * -(-two.F // tiles.filters)
    by_registers = REGISTERS // (tiles.registers(one.dtype) * tiles.slots)
    resident = min(SHARED // tiles.shared(one.K, one.stride, one.dtype), by_registers)
    instructions, shared = dwpw_cost.step(tiles, one)
    # The product, in steps of 8 or 16 channels: rows by 16, columns by 8, in float32 three mma of parts of a number
    turns = tiles.channels / tiles.warps_k / (8 if wide else 16)
    down, across = tiles.pixels // 16, tiles.filters // tiles.warps_f // 8
    instructions += turns * (down + across / 2) * (18 if wide else 6)
    mma = turns * down * across * (3 if wide else 1)
    shared += turns * (4 * down + 2 * across) * warps
    # The outputs: sums to shared memory, and as pieces of 16 bytes to global memory
    steps, outputs, per = -(-one.C // tiles.channels), tiles.height * tiles.width * tiles.filters, 4 if wide else 8
    pieces = outputs / per / tiles.threads
    last = 2 * tiles.pixels * tiles.filters // tiles.warps_f // 32 + pieces * (25 + tiles.warps_k * per // 4 + 3 * per)
    return (
        blocks, resident, warps, steps * instructions + last, steps * mma,
        steps * shared + outputs / 32 * (tiles.warps_k + 1),
    )  # fmt: skip


def predicted_clocks(problem: Any, tiles: Tiles) -> float:
    """Clocks of a launch, about: see dwpw_cost."""
    return dwpw_cost.clocks(*work(problem, tiles))


@functools.cache
def choose(problem: Any) -> Tiles | None:
    """The tiles of least predicted time for a Fused of kind "dwpw"; None where none fit."""
    return min(candidates(problem), key=lambda tiles: predicted_clocks(problem, tiles), default=None)
