"""Which plan (pwdw_tiles.Plan) a fused pointwise and depthwise kernel has: tried out on paper, for a shape and a batch.

The estimate counts, for a block, what each part of a multiprocessor has to do (tensor cores, instructions, shared
memory, bytes), and what a block waits for if it is alone there. Many blocks: the busiest part decides, few: the wait.
Bytes come from L2, whether another block has had them or not, and only some of their way passes behind the products.
Warps are shared out to four quarters of a multiprocessor, each with its own tensor core: 7 warps take as long as 8.
Its constants are of a GPU of compute capability 9.0, fitted to the times of plans for maps of 14 x 14, and need not be
exact: they order plans.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

from dwlab.kernels.fused.pwdw_tiles import SHARED_WORDS, SMS, Plan, plan_of, register_limit, registers, spread
from dwlab.kernels.registry import ByShape
from dwlab.kernels.tiling.tuned_for import REGISTERS

MMA_CYCLES = 1.75  # of a multiprocessor for one mma of 16 x 8 x 8 (tf32) or 16 x 8 x 16 (float16)
SM_BYTES = 18.0  # that one multiprocessor moves in a cycle, from L2 or to memory
ARRIVAL = 900  # cycles from asking for a stage's words to having them
TOGETHER = 0.6  # of the shorter one of a block's work and its words' way, what the longer one does not hide
ALONE = 1.3  # times as long: three products of tf32, each of which waits for the one before, of one row of tiles
SHAPES = ((32, 32), (16, 32), (32, 16), (16, 16), (64, 32), (32, 64), (64, 16), (48, 32), (32, 96))
STAGES = (2, 3)
LEAST = 96  # registers of a thread, about: the depthwise layer takes as many
TIMED = {("float32", 32, 96, 7, 1), ("float16", 32, 96, 7, 2), ("float16", 32, 64, 7, 2)}
"""Pixels and filters of a warp, and warps, of plans that were the fastest of those tried for a map of 14 x 14."""
DOUBT = 1.1  # times as long as estimated other plans must be expected to take
SPARE, ONCE = 80, 64  # registers that a thread needs besides its sums; if all channels come in one stage
TIGHT = {("float16", 32, 96, 32), ("float16", 32, 64, 64)}
"""Pixels and filters of a warp and words of a stage where less is known to do: compiled, they spill nothing."""


class ByPlan(ByShape):
    """A kernel that is made for each shape and plan, and then kept; which plan depends on the batch, too."""

    def for_problem(self, problem: Any) -> Any:
        """The kernel for a problem."""
        return self.make(problem.kernel_key, choose(problem))


@functools.cache
def choose(pair: Any) -> Plan | None:
    """The plan with the least estimated time, in doubt (DOUBT) one that was timed; None if shared memory holds none."""

    def doubtful(plan: Plan) -> float:
        timed = (pair.dtype, plan.pixels, plan.filters, plan.warps_p, plan.warps_f) in TIMED
        return estimate(pair, plan) * (1 if timed else DOUBT)

    return min(plans(pair), key=doubtful, default=None)


def plans(pair: Any) -> Iterator[Plan]:
    """Those worth a look."""
    dw, each = pair.second, spread(pair.dtype)
    words = -(-pair.first.C // each)
    depths = sorted({min(-(-words // 8) * 8, depth) for depth in (16, 24, 32, 40, 48, 64)})
    for rows in sorted({r for r in (1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 28) if r < dw.P} | {dw.P}):
        pixels = min(dw.H, (rows - 1) * dw.stride + dw.K) * dw.W
        for warp in SHAPES:
            warps_p = -(-pixels // warp[0])
            for warps_f in (1, 2, 4):
                if warp[1] * warps_f >= 2 * dw.C + 16 or warps_p * warps_f > 16:
                    continue
                for slices in (1, 2, 4) if pair.dtype == "float32" else (1,):
                    if warps_p * warps_f * slices > 16:
                        continue
                    for depth in depths:
                        if depth % (8 * slices) == 0:
                            for run, stages in itertools.product({min(run, rows) for run in (1, 2, 4, 7)}, STAGES):
                                plan = plan_of(pair, rows, warp, (warps_p, warps_f, slices), depth, run, stages)
                                if plan.chunks >= stages or stages == 2:
                                    if not plan.why_not(pair) and room(pair, plan):
                                        yield plan


def room(pair: Any, plan: Plan) -> bool:
    """Whether a warp's sums leave enough registers, so that none is spilled."""
    if (pair.dtype, plan.pixels, plan.filters, plan.depth) in TIGHT:
        return True
    need = plan.pixels * plan.filters // 32 + (SPARE if plan.chunks > 1 else ONCE)
    return need <= register_limit(plan.threads)


def blocks(pair: Any, plan: Plan) -> int:
    """Of a launch."""
    return -(-pair.second.C // plan.block_filters) * -(-pair.second.P // plan.rows) * pair.N


def estimate(pair: Any, plan: Plan) -> float:
    """Cycles of a launch, about."""
    dw, wide = pair.second, pair.dtype == "float32"
    warps = plan.warps_p * plan.warps_f * plan.slices
    taken = plan.threads * min(register_limit(plan.threads), max(LEAST, registers(plan)))  # registers of a block
    resident = max(1, min(SHARED_WORDS // plan.words, 2048 // plan.threads, REGISTERS // taken, 32))
    quarter = math.ceil(resident * warps / 4) / resident  # a block's warps of the quarter that has most
    steps = plan.chunks * plan.depth // 8 // plan.slices  # of a warp
    mma = plan.pixels // 16 * (plan.filters // 8) * (3 if wide else 1)
    operands = (plan.pixels + plan.filters) // 16  # reads of 4 words a lane, or 4 reads of one
    step = mma * (7 / 3 if wide else 1) + operands * (12 if wide else 1)  # instructions of a warp
    lines = (plan.run - 1) * dw.stride + dw.K
    items = -(-plan.rows // plan.run) * dw.Q * plan.block_filters / spread(pair.dtype)
    turns = -(-items // plan.threads)
    item = 30 + dw.K**2 + 3 * lines * dw.K + plan.run * (dw.K**2 + 8) * spread(pair.dtype)
    pieces = plan.chunks * plan.stage_words / 4 / plan.threads
    sums = plan.pixels * plan.filters / 32
    serial = steps * step + pieces * 14 + sums * 6 * plan.slices**0.5 + turns * item  # instructions of a warp, in all
    shared = (steps * operands * 4 + pieces * 4 + sums * 2) * warps + turns * warps * lines * dw.K
    tensor = steps * mma * 4 * quarter * MMA_CYCLES
    bytes_out = items * 4 * plan.rows
    bytes_in = plan.chunks * plan.stage_words * 4  # from L2
    chain = ALONE if wide and plan.pixels == 16 else 1
    work, moved = max(serial * quarter * 1.1 * chain, shared, tensor * 1.1 * chain), (bytes_out + bytes_in) / SM_BYTES
    busy = max(work, moved) + TOGETHER * min(work, moved)
    wait = ARRIVAL * (1 + 0.8 / plan.stages * (plan.chunks - 1)) + 2.5 * serial + steps * mma * 4 + 400
    number = blocks(pair, plan)
    share = math.ceil(number / SMS)  # of the busiest multiprocessor
    return max(share * busy + wait / 2, math.ceil(share / resident) * wait, wait)
