"""How the blocks of a fused kernel of two pointwise layers share the work out: plans, and which one a shape gets.

See pwpw_2_tensor.py for what a block does. Estimates as in pwdw_plan.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numba import float32, uint32, uint64

from dwlab.gpu.target import cuda
from dwlab.kernels.fused.pwdw_plan import ARRIVAL, MMA_CYCLES, REGISTERS, SM_BYTES
from dwlab.kernels.fused.pwdw_tiles import SHARED_WORDS, SMS, WARPS, bring_filters, bring_pixels, spread
from dwlab.kernels.parts import epilogue, ptx, tiles
from dwlab.kernels.parts.unroll import in_turn
from dwlab.kernels.registry import ByShape


@dataclass(frozen=True)
class Plan:
    """pixels: of a warp; filters1, filters2: of a warp, in either layer; depth1, depth2: words of channels of a stage.

    span: groups of the second layer's filters that a block computes; passes: groups of the first's. The other sizes
    follow, in words: pitches of rows in shared memory, where the numbers between the layers and the bias begin there,
    and how much of it there is.
    """

    pixels: int
    filters1: int
    filters2: int
    warps_p: int
    warps_f: int
    depth1: int
    depth2: int
    span: int
    passes: int
    chunks1: int
    chunks2: int
    x_pitch: int
    w1_pitch: int
    w2_pitch: int
    pitch: int
    x_words: int
    stage_words: int
    inner_at: int
    bias_at: int
    words: int

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.warps_p * self.warps_f

    @property
    def block_pixels(self) -> int:
        """Of a block."""
        return self.pixels * self.warps_p

    @property
    def group1(self) -> int:
        """Filters of the first layer that a block computes at a time."""
        return self.filters1 * self.warps_f

    @property
    def group2(self) -> int:
        """Filters of the second layer that a block computes at a time."""
        return self.filters2 * self.warps_f

    @property
    def why_not(self) -> str:
        """What keeps any pair of layers from this plan, or ""."""
        if self.pixels % 16 or self.filters1 % 16 or self.filters2 % 16:
            sizes = f"{self.pixels} pixels, {self.filters1} or {self.filters2} filters"
            return f"{sizes} of a warp are no multiple of 16"
        if self.depth1 % 8 or self.depth2 % 8:
            return f"{self.depth1} or {self.depth2} words of channels a stage are no multiple of 8"
        if self.threads > 32 * WARPS:
            return f"{self.threads} threads are more than {32 * WARPS}"
        if self.words > SHARED_WORDS:
            return f"{4 * self.words:,} bytes of shared memory are more than {4 * SHARED_WORDS:,}"
        return ""


def plan_of(pair: Any, warp: tuple[int, int, int], warps: tuple[int, int], depths: tuple[int, int], span: int) -> Plan:
    """The plan with these (pixels, filters1, filters2) of a warp, (warps_p, warps_f), (depth1, depth2), and span."""
    (pixels, filters1, filters2), (warps_p, warps_f), (depth1, depth2) = warp, warps, depths
    each, F = spread(pair.dtype), pair.first.F
    P, group1, group2 = pixels * warps_p, filters1 * warps_f, filters2 * warps_f
    chunks1, chunks2 = -(-pair.first.C // (depth1 * each)), -(-F // (depth2 * each))
    passes = -(-max(F, chunks2 * depth2 * each) // group1)  # channels that fill the last stage are 0, not nothing
    x_pitch, w1_pitch, w2_pitch = depth1, depth1, depth2
    pitch = tiles.pitch(passes * group1 // each, "k", pair.dtype)
    x_words = P * x_pitch
    stage = max(x_words + group1 * w1_pitch, group2 * w2_pitch)
    inner_at = stage * (2 if max(chunks1, chunks2) > 1 else 1)
    bias_at = inner_at + P * pitch
    return Plan(
        pixels, filters1, filters2, warps_p, warps_f, depth1, depth2, span, passes, chunks1, chunks2,
        x_pitch, w1_pitch, w2_pitch, pitch, x_words, stage, inner_at, bias_at, bias_at + passes * group1 // each,
    )  # fmt: skip


def aligned(pair: Any) -> bool:
    """Whether pixels of x are whole pieces of 16 bytes."""
    return pair.first.C // spread(pair.dtype) % 4 == 0


@functools.cache
def products_of(pair: Any, plan: Plan) -> tuple[Any, Any]:
    """Both layers' products of a warp: rows are pixels, columns filters."""
    each, found = spread(pair.dtype), []
    for filters, depth, w_pitch, pitch in (
        (plan.filters1, plan.depth1, plan.w1_pitch, plan.x_pitch),
        (plan.filters2, plan.depth2, plan.w2_pitch, plan.pitch),
    ):
        found.append(tiles.tensor(pair.dtype, plan.pixels, filters, depth * each, pitch, w_pitch))
    return found[0], found[1]


@functools.cache
def bring(pair: Any, plan: Plan) -> tuple[Any, Any, Any]:
    """The device functions that bring a stage of x, of the first and of the second layer's filters (pwdw_tiles.py)."""
    each, T = spread(pair.dtype), plan.threads
    C, F = pair.first.C // each, pair.first.F
    return (
        bring_pixels(aligned(pair), C, plan.block_pixels, plan.depth1, plan.x_pitch, T),
        bring_filters(C, F, plan.group1, plan.depth1, plan.w1_pitch, T),
        bring_filters(F // each, pair.second.F, plan.group2, plan.depth2, plan.w2_pitch, T, fours(pair)),
    )


@functools.cache
def lay_down(pair: Any, plan: Plan) -> Any:
    """put(shared, b, r, m, n, v0, v1) for the first layer's sums: bias, activation, and to where the second reads."""
    PITCH, INNER_AT, BIAS_AT, bias = plan.pitch, plan.inner_at, plan.bias_at, pair.first.bias
    act = epilogue.activate(pair.first.activation)

    if pair.dtype != "float32":

        @cuda.jit(device=True, forceinline=True)
        def put(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0, u1 = ptx.halves(shared[uint32(uint32(BIAS_AT) + n // uint32(2))])
            at = uint32(uint32(INNER_AT) + m * uint32(PITCH) + n // uint32(2))
            shared[at] = ptx.join_halves(act(v0 + u0), act(v1 + u1))

    else:

        @cuda.jit(device=True, forceinline=True)
        def put(shared, b, r, m, n, v0, v1):
            u0, u1 = float32(0), float32(0)
            if bias:
                u0 = shared[uint32(uint32(BIAS_AT) + n)]
                u1 = shared[uint32(uint32(BIAS_AT) + n + uint32(1))]
            at = uint32(uint32(INNER_AT) + m * uint32(PITCH) + n)
            shared[at] = act(v0 + u0)
            shared[uint32(at + uint32(1))] = act(v1 + u1)

    return put


def fours(pair: Any) -> bool:
    """Whether each lane has sums of four neighbouring filters of the second layer (pwdw_tiles.row_of_fours).

    Then four lanes' stores fill whole sectors: 64 bytes of a pixel in float32, 32 in 16 bits.
    """
    return pair.second.F % 4 == 0


@functools.cache
def store(pair: Any, plan: Plan) -> Any:
    """store(acc, lane, y, b, r, m0, n0): a warp's sums of the second layer, finished, to y; their bias is read once.

    m0, n0: of the warp's tile, pixel of all images and filter.
    """
    second = products_of(pair, plan)[1]
    down, across = second.M // 16, second.N // 8
    if fours(pair):
        parts = [_store_fours(pair, j, down, across) for j in range(across // 2)]
    else:
        parts = [_store_column(pair, j, down, across) for j in range(across)]
    return in_turn(parts, arguments=7)


def _store_fours(pair: Any, j: int, down: int, across: int) -> Any:
    """16 columns: of each lane's rows four neighbouring sums."""
    each = spread(pair.dtype)
    FILTERS, G = pair.second.F, pair.second.F // each  # and in words, as all below
    act, bias, residual = epilogue.activate(pair.second.activation), pair.second.bias, pair.second.residual

    if each == 2:

        @cuda.jit(device=True, forceinline=True)
        def read(a, at):
            p, q = ptx.load2(a, at)
            v0, v1 = ptx.halves(p)
            v2, v3 = ptx.halves(q)
            return v0, v1, v2, v3

        @cuda.jit(device=True, forceinline=True)
        def write(y, at, v0, v1, v2, v3):
            ptx.store2(y, at, ptx.join_halves(v0, v1), ptx.join_halves(v2, v3))

    else:
        read, write = ptx.load4, ptx.store4

    @cuda.jit(device=True, forceinline=True)
    def part(acc, lane, y, b, r, m0, n0):
        n = uint32(n0 + uint32(16 * j) + uint32(4) * (lane % uint32(4)))
        b0 = b1 = b2 = b3 = float32(0)
        if n < uint32(FILTERS):
            if bias:
                b0, b1, b2, b3 = read(b, uint32(n // uint32(each)))
            m = uint32(m0 + lane // uint32(4))
            rows, first = uint32(uint32(y.size) // uint32(G)), uint64(uint32(m * uint32(G) + n // uint32(each)))
            for turn in range(2 * down):
                c = 4 * (across * (turn // 2) + 2 * j) + 2 * (turn % 2)
                if m + uint32(8 * turn) < rows:
                    at = uint64(first + uint64(8 * turn * G))  # the same address and a literal: one register for all
                    v0, v1, v2, v3 = act(acc[c] + b0), act(acc[c + 1] + b1), act(acc[c + 4] + b2), act(acc[c + 5] + b3)
                    if residual:
                        r0, r1, r2, r3 = read(r, at)
                        v0, v1, v2, v3 = v0 + r0, v1 + r1, v2 + r2, v3 + r3
                    write(y, at, v0, v1, v2, v3)

    return part


def _store_column(pair: Any, j: int, down: int, across: int) -> Any:
    """8 columns whose sums are stored one by one: filters of float32 that are no multiple of 4."""
    G, bias, finish = pair.second.F, pair.second.bias, epilogue.finish(replace(pair.second, bias=False))

    @cuda.jit(device=True, forceinline=True)
    def one(y, r, m, n, value):
        at = uint32(m * uint32(G) + n)
        if n < uint32(G) and m * uint32(G) < uint32(y.size):
            y[at] = finish(value, r, r, n, at)

    @cuda.jit(device=True, forceinline=True)
    def part(acc, lane, y, b, r, m0, n0):
        n = uint32(n0 + uint32(8 * j) + uint32(2) * (lane % uint32(4)))
        b0 = b[n] if bias and n < uint32(G) else float32(0)
        b1 = b[uint32(n + uint32(1))] if bias and n + uint32(1) < uint32(G) else float32(0)
        for turn in range(2 * down):
            c = 4 * (across * (turn // 2) + j) + 2 * (turn % 2)
            m = uint32(m0 + uint32(8 * turn) + lane // uint32(4))
            one(y, r, m, n, acc[c] + b0)
            one(y, r, m, uint32(n + uint32(1)), acc[c + 1] + b1)

    return part


class ByPlan(ByShape):
    """A kernel that is made for each shape and plan, and then kept; which plan depends on the batch, too."""

    def for_problem(self, problem: Any) -> Any:
        """The kernel for a problem."""
        return self.make(problem.kernel_key, choose(problem))


@functools.cache
def choose(pair: Any) -> Plan | None:
    """The plan with the least estimated time; None if shared memory holds none."""
    return min(plans(pair), key=lambda plan: estimate(pair, plan), default=None)


def plans(pair: Any) -> Iterator[Plan]:
    """Those worth a look."""
    each, G, F = spread(pair.dtype), pair.second.F, pair.first.F

    def depths(channels: int) -> list[int]:
        words = math.ceil(channels / (8 * each)) * 8
        return sorted({min(words, depth) for depth in (16, 24, 32, 40, 48, 64)})

    for pixels in (16, 32):
        for warps_p in (1, 2, 4, 8):
            for warps_f in (1, 2, 4, 8):
                if not 2 <= warps_p * warps_f <= 16:
                    continue
                for filters1 in (16, 32, 48, 64):
                    if pixels * filters1 > 2048 or filters1 * (warps_f - 1) >= F:
                        continue
                    for filters2 in (16, 32, 48, 64):
                        if pixels * filters2 > 2048 or filters2 * (warps_f - 1) >= G:
                            continue
                        groups = -(-G // (filters2 * warps_f))
                        for span in {s for s in (1, 2, 3, 4, 6, 8, 12, groups) if s <= groups}:
                            for depth1 in depths(pair.first.C)[-2:]:
                                for depth2 in depths(F)[-2:]:
                                    sizes = (pixels, filters1, filters2), (warps_p, warps_f), (depth1, depth2)
                                    plan = plan_of(pair, *sizes, span)
                                    if not plan.why_not:
                                        yield plan


def blocks(pair: Any, plan: Plan) -> int:
    """Of a launch."""
    pixels = -(-pair.first.H * pair.first.W * pair.N // plan.block_pixels)
    return -(-pair.second.F // (plan.span * plan.group2)) * pixels


def estimate(pair: Any, plan: Plan) -> float:
    """Cycles of a launch, about."""
    wide, warps = pair.dtype == "float32", plan.warps_p * plan.warps_f
    serial = tensor = shared = 0.0
    for filters, steps in (
        (plan.filters1, plan.passes * plan.chunks1 * plan.depth1 // 8),
        (plan.filters2, plan.span * plan.chunks2 * plan.depth2 // 8),
    ):
        mma = plan.pixels // 16 * (filters // 8) * (3 if wide else 1)
        operands = (plan.pixels + filters) // 16
        serial += steps * (mma + operands * (16 if wide else 1))
        tensor += steps * mma
        shared += steps * operands * 4
    x, w1, w2 = plan.x_words, plan.group1 * plan.w1_pitch, plan.group2 * plan.w2_pitch
    stages = plan.passes * plan.chunks1, plan.span * plan.chunks2
    brought = stages[0] * (x + w1) + stages[1] * w2
    out = plan.block_pixels * plan.span * plan.group2
    serial += brought / 4 / plan.threads * 14
    serial += (plan.passes * plan.group1 * plan.block_pixels * 5 + out * 8) / plan.threads
    shared = (shared + brought / 128) * warps
    busy = max(serial * warps / 4 * 1.1, shared, tensor * warps * MMA_CYCLES * 1.1)
    busy = max(busy, (4 * out / spread(pair.dtype) + 4 * brought / 3) / SM_BYTES)
    wait = ARRIVAL * (1 + 0.4 * (sum(stages) - 1)) + 2.5 * serial + tensor * 4 + 300
    resident = max(1, min(SHARED_WORDS // plan.words, 2048 // plan.threads, 65536 // (REGISTERS * plan.threads), 32))
    share = math.ceil(blocks(pair, plan) / SMS)
    return max(share * busy + wait / 2, math.ceil(share / resident) * wait, wait) + 0.2 * share * wait / resident
