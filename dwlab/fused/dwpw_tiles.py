"""How the blocks of a fused depthwise and pointwise kernel share the work out, and the arithmetic of one thread.

A block computes `height` x `width` pixels of `filters` filters. It walks through the channels, `channels` at a time:
the depthwise outputs of these go to shared memory, and are multiplied with these columns of the pointwise filters into
sums that stay in registers to the end. Shared memory has rows of channels: a row for each pixel of x, for each pixel
of the middle, for each filter. Each thread reads four channels of a row at once.

In the product, a warp's 32 lanes are `lanes_k` x `lanes_p` x `lanes_f`: lanes_k of them share outputs and take turns
at the channels, the others have outputs of their own, `pixels` x `each` a thread. The block's warps are warps_k x
warps_p x warps_f in the same way. Sums of the same outputs meet in shared memory at the end.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

from numba import float32, uint32

from dwlab import ptx
from dwlab.depthwise1d.straight_line import in_turn
from dwlab.fused import dwpw_cost
from dwlab.target import cuda
from dwlab.tuned_for import REGISTERS, SHARED

WORDS = 12288  # of 48 KiB: the shared memory that a block may declare


def from_a_sector(words: int) -> int:
    """Words from the begin of what is copied to shared memory to that of what comes after it: whole 32 bytes.

    Of an asynchronous copy that lies 16 bytes off, the hardware asks for most sectors twice (simt.trace.count_copies).
    """
    return -(-words // 8) * 8


@dataclass(frozen=True)
class Tiles:
    """A way to share out: see above. run: neighbouring pixels of a row whose depthwise outputs one thread computes.

    stages: how many steps' x and filters are in shared memory: one is computed with, the others are on their way.
    """

    height: int
    width: int
    filters: int
    channels: int
    pixels: int
    each: int
    lanes_p: int
    lanes_f: int
    lanes_k: int = 1
    warps_p: int = 1
    warps_f: int = 1
    warps_k: int = 1
    run: int = 4
    stages: int = 2

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_p * self.warps_f * self.warps_k

    @property
    def shares(self) -> int:
        """Threads that share the channels of an output among them."""
        return self.lanes_k * self.warps_k

    @property
    def rows(self) -> int:
        """Pixels that the threads have room for: those of the tile, or a few more."""
        return self.pixels * self.lanes_p * self.warps_p

    @property
    def quads(self) -> int:
        """Pieces of four channels in a step."""
        return self.channels // 4

    @property
    def pitch(self) -> int:
        """Pieces between rows of the middle and of filters.

        Eight lanes at a time read: lanes_k neighbouring pieces of neighbouring rows, so that these must be different
        banks, that is, places modulo 8.
        """
        group = min(self.lanes_k, 4)
        return self.quads + (group - self.quads) % (2 * group)

    def footprint(self, K: int, stride: int) -> tuple[int, int]:
        """(height, width) of the pixels of x that the tile needs."""
        return (self.height - 1) * stride + K, (self.width - 1) * stride + K

    def x_pitch(self, stride: int) -> int:
        """Pieces between pixels of x: lanes of different runs, too, should read different banks."""
        apart = self.run * stride
        near = range(self.quads, self.quads + 2)
        return next((pitch for pitch in near if pitch * apart % 8 == self.quads % 8), self.quads)

    def words(self, K: int, stride: int) -> tuple[int, int, int, int]:
        """float32 words of shared memory: (x, w1 and b1, w2 of a step, middle).

        Each begins at a multiple of 32 bytes, as in global memory: copies to places askew cost more (`from_a_sector`).
        """
        height, width = self.footprint(K, stride)
        x, w1 = height * width * self.x_pitch(stride) * 4, (K * K + 1) * self.channels
        w2, middle = self.filters * self.pitch * 4, self.rows * self.pitch * 4
        return from_a_sector(x), from_a_sector(w1), from_a_sector(w2), middle

    def shared(self, K: int, stride: int) -> int:
        """float32 words of shared memory of a block."""
        x, w1, w2, middle = self.words(K, stride)
        return max(self.stages * (x + w1 + w2) + middle, self.warps_k * self.rows * self.filters * (self.warps_k > 1))

    def places(self, lane: Any) -> tuple[Any, Any, Any]:
        """(k, p, f) of lanes, NumPy's: as the device function `lanes` has it."""
        k, rest = lane % self.lanes_k, lane // self.lanes_k
        if self.lanes_p == 1 or self.lanes_f == 1:
            return k, rest % self.lanes_p, rest // self.lanes_p
        half = self.lanes_p // 2
        return k, (rest & 1) + (rest >> 2) % half * 2, (rest >> 1 & 1) + (rest >> 2) // half * 2

    def why_not(self, C: int, K: int, stride: int) -> str:
        """What keeps these tiles from a layer of C channels, or ""."""
        if self.lanes_p * self.lanes_f * self.lanes_k != 32:
            return f"{self.lanes_p} x {self.lanes_f} x {self.lanes_k} lanes are no warp"
        if self.each * self.lanes_f * self.warps_f != self.filters:
            return f"{self.filters} filters are not {self.each} x {self.lanes_f} x {self.warps_f}"
        if self.rows < self.height * self.width:
            return f"{self.height * self.width} pixels are more than {self.pixels} x {self.lanes_p} x {self.warps_p}"
        if self.width % self.run:
            return f"a row of {self.width} pixels is no multiple of runs of {self.run}"
        if C % self.channels or self.channels % (4 * self.shares):
            return f"{C} channels are no multiple of {self.channels}, or these not of 4 x {self.shares}"
        if self.shared(K, stride) > WORDS:
            return f"{4 * self.shared(K, stride)} bytes of shared memory are more than {4 * WORDS}"
        return ""


@functools.cache
def depthwise(K: int, stride: int, run: int, channels: int, row: int, pitch: int) -> Any:
    """The device function add(sums, pool, x_at, w_at): a run's depthwise outputs of four channels.

    sums: local array of 4 * run float32. x_at: word of the run's first x in `pool`, pixels `pitch` words and rows `row`
    words apart. w_at: word of the first tap of these channels, taps `channels` words apart.
    """
    across, TAPS = (run - 1) * stride + K, 4 * K

    def taps(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def add(sums, pool, x_at, w_at):
            w = cuda.local.array(TAPS, float32)
            for j in range(K):
                at = uint32(w_at + uint32((i * K + j) * channels))
                w[4 * j], w[4 * j + 1], w[4 * j + 2], w[4 * j + 3] = ptx.load4_shared(pool, at)
            for v in range(across):
                a, b, c, d = ptx.load4_shared(pool, uint32(x_at + uint32(i * row + v * pitch)))
                for p in range(run):
                    j = v - p * stride
                    if 0 <= j and j < K:
                        sums[4 * p] += w[4 * j] * a
                        sums[4 * p + 1] += w[4 * j + 1] * b
                        sums[4 * p + 2] += w[4 * j + 2] * c
                        sums[4 * p + 3] += w[4 * j + 3] * d

        return add

    return in_turn([taps(i) for i in range(K)], arguments=4)


@functools.cache
def product(pixels: int, each: int, p_step: int, f_step: int) -> Any:
    """The device function add(sums, pool, p_at, f_at): sums[i * each + j] += four channels of pixel i times filter j.

    p_at, f_at: words of the thread's first pixel and first filter, the others p_step and f_step words apart. The side
    with fewer rows is held in registers, and the other passes by.
    """
    held, passing, by_pixel = (each, pixels, True) if each <= pixels else (pixels, each, False)
    HELD = 4 * held
    held_step, passing_step = (f_step, p_step) if by_pixel else (p_step, f_step)

    def one(i: int) -> Any:
        @cuda.jit(device=True, forceinline=True)
        def add(sums, h, pool, at):
            a, b, c, d = ptx.load4_shared(pool, uint32(at + uint32(i * passing_step)))
            for j in range(held):
                if by_pixel:
                    k = i * each + j
                else:
                    k = j * each + i
                sums[k] += a * h[4 * j]
                sums[k] += b * h[4 * j + 1]
                sums[k] += c * h[4 * j + 2]
                sums[k] += d * h[4 * j + 3]

        return add

    rows = in_turn([one(i) for i in range(passing)], arguments=4)

    @cuda.jit(device=True, forceinline=True)
    def add(sums, pool, p_at, f_at):
        h = cuda.local.array(HELD, float32)
        if by_pixel:
            h_at, at = f_at, p_at
        else:
            h_at, at = p_at, f_at
        for j in range(held):
            k = uint32(h_at + uint32(j * held_step))
            h[4 * j], h[4 * j + 1], h[4 * j + 2], h[4 * j + 3] = ptx.load4_shared(pool, k)
        rows(sums, h, pool, at)

    return add


@functools.cache
def lanes(lanes_p: int, lanes_f: int, lanes_k: int) -> Any:
    """The device function place(lane) -> (k, p, f) of a lane.

    Shared memory serves pairs of lanes, or every other one, together if they read the same: so neighbours differ in the
    pixel, and the next ones in the filter.
    """
    mixed = lanes_p > 1 and lanes_f > 1
    half = lanes_p // 2

    @cuda.jit(device=True, forceinline=True)
    def place(lane):
        k, rest = uint32(lane % lanes_k), uint32(lane // lanes_k)
        if mixed:
            high = uint32(rest >> uint32(2))
            p = uint32((rest & uint32(1)) + (high % half) * 2)
            f = uint32(((rest >> uint32(1)) & uint32(1)) + (high // half) * 2)
        else:
            p, f = uint32(rest % lanes_p), uint32(rest // lanes_p)
        return k, p, f

    return place


@functools.cache
def add_lanes(count: int, lanes_k: int) -> Any:
    """The device function add(sums): each of `count` sums becomes that of the lanes_k neighbouring lanes."""

    @cuda.jit(device=True, forceinline=True)
    def add(sums):
        for i in range(count):
            if lanes_k > 1:
                sums[i] += cuda.shfl_xor_sync(0xFFFFFFFF, sums[i], 1)
            if lanes_k > 2:
                sums[i] += cuda.shfl_xor_sync(0xFFFFFFFF, sums[i], 2)
            if lanes_k > 4:
                sums[i] += cuda.shfl_xor_sync(0xFFFFFFFF, sums[i], 4)

    return add


def candidates(problem: Any) -> list[Tiles]:
    """Tiles that fit a problem."""
    one, two = problem.first, problem.second
    found = []
    for channels in divisors(one.C, 4, 64, 4)[-6:]:
        for height, width, run, pixels, lanes_p, warps_p in _maps(two.Q):
            for lanes_f, lanes_k in ((32 // lanes_p, 1), (16 // lanes_p, 2), (8 // lanes_p, 4)):
                for each, warps_f, warps_k in itertools.product((1, 2, 3, 4, 6, 8, 10), (1, 2), (1, 2, 4)):
                    filters = each * lanes_f * warps_f
                    if lanes_f and filters < 2 * two.F and warps_p * warps_f * warps_k <= 8 and pixels * each <= 70:
                        stages = 1 if channels == one.C else 2
                        tiles = Tiles(
                            height, width, filters, channels, pixels, each, lanes_p, lanes_f, lanes_k, warps_p,
                            warps_f, warps_k, run, stages,
                        )  # fmt: skip
                        if not tiles.why_not(one.C, one.K, one.stride):
                            found.append(tiles)
    return found


def _maps(Q: int) -> list[tuple[int, int, int, int, int, int]]:
    """(height, width, run, pixels, lanes_p, warps_p) of tiles for maps of Q pixels across."""
    found = [(8, 8, 4, 8, 8, 1), (8, 8, 4, 8, 4, 2), (4, 8, 4, 8, 4, 1), (2, 4, 2, 4, 2, 1), (1, 4, 2, 2, 2, 1)]
    if Q % 7 == 0:
        found += [(2, 7, 1, 7, 2, 1), (4, 7, 7, 7, 4, 1)]
    if Q % 14 == 0:
        found += [(2, 14, 2, 7, 4, 1), (2, 14, 7, 7, 4, 1), (4, 14, 7, 7, 8, 1), (8, 14, 7, 7, 8, 2)]
    return found


def work(problem: Any, tiles: Tiles) -> tuple[int, int, int, float, float, float]:
    """What dwpw_cost.clocks() asks for: (blocks, resident, warps, instructions, mma, shared)."""
    one, two, warps = problem.first, problem.second, tiles.threads // 32
    blocks = problem.N * -(-two.P // tiles.height) * -(-two.Q // tiles.width) * -(-two.F // tiles.filters)
    registers = 128 if tiles.pixels * tiles.each <= 64 else 168
    by_registers = REGISTERS // (registers * -(-tiles.threads // 128) * 128)
    resident = min(SHARED // 4 // (tiles.shared(one.K, one.stride) + 256), by_registers)
    instructions, shared = dwpw_cost.step(tiles, one)
    turns = tiles.channels / tiles.shares / 4
    instructions += turns * (4 * tiles.pixels * tiles.each + tiles.pixels + tiles.each + 4)
    # Eight lanes that read different pieces take a clock; lanes that read the same one read it together.
    rows, columns = max(tiles.lanes_p * tiles.lanes_k, 8) / 8, max(tiles.lanes_f * tiles.lanes_k, 8) / 8
    shared += turns * (tiles.pixels * rows + tiles.each * columns) * warps
    steps, outputs = one.C // tiles.channels, tiles.height * tiles.width * tiles.filters
    last = 6 * tiles.pixels * tiles.each
    if tiles.warps_k > 1:
        last = 2 * tiles.pixels * tiles.each + outputs / tiles.threads * (25 + 4 * tiles.warps_k)
        shared += outputs / 32 * (tiles.warps_k + 1) / steps
    return blocks, resident, warps, steps * instructions + last, 0, steps * shared


def predicted_clocks(problem: Any, tiles: Tiles) -> float:
    """Clocks of a launch, about: see dwpw_cost."""
    return dwpw_cost.clocks(*work(problem, tiles))


@functools.cache
def choose(problem: Any) -> Tiles | None:
    """The tiles of least predicted time for a Fused of kind "dwpw"; None where none fit."""
    return min(candidates(problem), key=lambda tiles: predicted_clocks(problem, tiles), default=None)


def divisors(C: int, least: int, most: int, unit: int) -> list[int]:
    """Multiples of `unit` from `least` to `most` that divide C."""
    return [c for c in range(unit * math.ceil(least / unit), most + 1, unit) if C % c == 0]
