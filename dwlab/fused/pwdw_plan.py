"""Which plan (pwdw_tiles.Plan) a fused pointwise and depthwise kernel has: tried out on paper, for a shape and a batch.

The estimate counts, for a block, what each part of a multiprocessor has to do (tensor cores, instructions, shared
memory, bytes), and what a block waits for if it is alone there. Many blocks: the busiest part decides, few: the wait.
Its constants are of a GPU of compute capability 9.0 and need not be exact: they order plans.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

from dwlab.fused.pwdw_tiles import SHARED_WORDS, SMS, Plan, plan_of, spread
from dwlab.stages import ByShape

MMA_CYCLES = 2.0  # of a multiprocessor for one mma of 16 x 8 x 8 (tf32) or 16 x 8 x 16 (float16)
SM_BYTES = 18.0  # of device memory that one multiprocessor's share moves in a cycle
ARRIVAL = 900  # cycles from asking for a stage's words to having them
REGISTERS = 128  # of a thread, about
SHAPES = ((32, 32), (16, 32), (32, 16), (16, 16), (64, 32), (32, 64), (64, 16), (48, 32))


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
                            for run in {min(run, rows) for run in (1, 2, 4, 7)}:
                                plan = plan_of(pair, rows, warp, (warps_p, warps_f, slices), depth, run)
                                if not plan.why_not(pair):
                                    yield plan


def blocks(pair: Any, plan: Plan) -> int:
    """Of a launch."""
    return -(-pair.second.C // plan.block_filters) * -(-pair.second.P // plan.rows) * pair.N


def estimate(pair: Any, plan: Plan) -> float:
    """Cycles of a launch, about."""
    dw, wide = pair.second, pair.dtype == "float32"
    warps = plan.warps_p * plan.warps_f * plan.slices
    steps = plan.chunks * plan.depth // 8 // plan.slices  # of a warp
    mma = plan.pixels // 16 * (plan.filters // 8) * (3 if wide else 1)
    operands = (plan.pixels + plan.filters) // 16  # reads of 4 words a lane, or 4 reads of one
    step = mma + operands * (16 if wide else 1)  # instructions of a warp
    lines = (plan.run - 1) * dw.stride + dw.K
    items = -(-plan.rows // plan.run) * dw.Q * plan.block_filters / spread(pair.dtype)
    turns = -(-items // plan.threads)
    item = 30 + dw.K**2 + 3 * lines * dw.K + plan.run * (dw.K**2 + 8) * spread(pair.dtype)
    pieces = plan.chunks * plan.stage_words / 4 / plan.threads
    sums = plan.pixels * plan.filters / 32
    serial = steps * step + pieces * 14 + sums * 6 * plan.slices**0.5 + turns * item  # instructions of a warp, in all
    shared = (steps * operands * 4 + pieces * 4 + sums * 2) * warps + turns * warps * lines * dw.K
    tensor = steps * mma * warps * MMA_CYCLES
    bytes_out = items * 4 * plan.rows
    bytes_in = plan.chunks * plan.stage_words * 4 / 3  # from L2, mostly
    busy = max(serial * warps / 4 * 1.1, shared, tensor * 1.1, (bytes_out + bytes_in) / SM_BYTES)
    wait = ARRIVAL * (1 + 0.4 * (plan.chunks - 1)) + 2.5 * serial + steps * mma * 4 + 400
    resident = max(1, min(SHARED_WORDS // plan.words, 2048 // plan.threads, 65536 // (REGISTERS * plan.threads), 32))
    number = blocks(pair, plan)
    share = math.ceil(number / SMS)  # of the busiest multiprocessor
    return max(share * busy + wait / 2, math.ceil(share / resident) * wait, wait) + 0.2 * share * wait / resident
