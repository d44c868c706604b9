"""Forward progress: blocks, warps or single threads of a launch take turns, so that what waits cannot stop the others.

In lockstep a loop that waits for lanes further on, or for a block that has not begun, never ends. When that is seen
(Interpreter.look) the launch is run again here, in *strands* that advance one at a time: first whole blocks, then, if
they all wait, warps, then threads, as GPUs schedule them from compute capability 7.0 on. Each strand is a Python thread
that executes the kernel for its lanes; only one of them runs, and hands over where it waits: at the end of a turn of a
loop in which nothing has changed, and at barriers and warp functions until the others have come. A block starts when
all those before it wait or are done, up to as many blocks as the GPU holds at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import hostapi, limits
from dwlab.simt.memory import Mask
from dwlab.simt.options import DeadlockError
from dwlab.simt.state import Frame, Restart

if TYPE_CHECKING:
    import ast

    from dwlab.simt.interpreter import Execution

LEVELS = ("", "blocks", "warps", "threads")  # "": lockstep
_BLOCK_FIELDS = (
    "nb", "lanes_shape", "block_numbers", "block_index", "epoch", "warp_epoch", "lane_epoch", "lane_known",
    "grid_epoch", "shared", "shared_used", "local", "dynamic_root", "copies", "groups", "rows", "alive",
)  # fmt: skip
_OWN_FIELDS = ("frames", "frame", "mask", "node", "discard", "steps", "watchers")
_STACK = 16 << 20  # bytes of a thread's stack: a compiler may run on it


class _Abandoned(BaseException):
    """Ends the thread of a strand whose launch has failed."""


class _Strand:
    """Lanes of one block that advance together. state: "ready", "waits" (in a loop), "meets" (a barrier), "done"."""

    def __init__(self, block: dict[str, object], mask: Mask):
        self.block = block
        self.own: dict[str, object] = {}
        self.mask = mask
        self.state = "ready"
        self.thread: threading.Thread | None = None
        self.go = threading.Semaphore(0)
        self.since = 0  # changes of memory when it began to wait
        self.sure = False  # whether another turn of its loop would be no different
        self.where = ""
        # what it meets for: (kind, node, arguments, member masks, what to do with all)
        self.post: tuple[str, ast.AST, list, object, Callable] | None = None
        self.result: object = None


class Scheduler:
    """Runs a launch in strands."""

    def __init__(self, run: Execution, level: str, arguments: list[object]):
        self.run = run
        self.level = level
        self.arguments = arguments
        self.strands: list[_Strand] = []
        self.now: _Strand | None = None
        self.back = threading.Semaphore(0)
        self.failure: BaseException | None = None
        self.abandoned = False
        self.capacity = resident_blocks(run)

    # ----------------------------------------------------------------- the loop

    def launch(self) -> None:
        """All blocks, to their end. Raises what a strand raises; DeadlockError if all wait for each other."""
        size = threading.stack_size(_STACK)
        started = 0
        self.run.strands, self.run.watching, self.run.patience = self, True, 1
        try:
            while True:
                one = self.next()
                if one is not None:
                    self.resume(one)
                elif started < self.run.blocks_total and self.resident() < self.capacity:
                    self.start(started)
                    started += 1
                elif not self.strands:
                    return
                elif not self.release_partly():
                    self.stuck(started)
        finally:
            self.abandoned = True
            for one in self.strands:
                if one.thread is not None:
                    one.go.release()
                    one.thread.join()
            threading.stack_size(size)
            self.run.strands = None

    def resident(self) -> int:
        return len({id(one.block) for one in self.strands})

    def next(self) -> _Strand | None:
        """The strand to go on with: one that is ready, else one that waits and may have missed a change."""
        for one in self.strands:
            if one.state == "ready":
                return one
        for one in self.strands:
            if one.state == "waits" and (one.since != self.run.changes or not one.sure):
                return one
        return None

    def start(self, number: int) -> None:
        """Sets up the strands of a block."""
        run = self.run
        run.begin_batch(number, 1, self.arguments)
        block = {name: getattr(run, name) for name in _BLOCK_FIELDS}
        real = run.alive.full
        if self.level == "blocks":
            parts = [real]
        else:
            size = 32 if self.level == "warps" else 1
            lanes = np.arange(run.padded)
            parts = [real & (lanes // size == k)[None, :] for k in range(-(-run.threads // size))]
        for part in parts:
            mask = run.alive if self.level == "blocks" else Mask(np.ascontiguousarray(part), run.lanes_shape)
            one = _Strand(block, mask)
            frame = Frame(run.source, dict(zip(run.source.parameters, self.arguments, strict=True)), mask)
            one.own = dict(
                frames=[frame], frame=frame, mask=mask, node=run.source.body[0], discard=None, steps=0, watchers=[]
            )
            self.strands.append(one)

    def resume(self, one: _Strand) -> None:
        """Lets a strand go on until it hands over."""
        one.state = "ready"
        # The next one is to be the first of the others.
        self.strands.remove(one)
        self.strands.append(one)
        self.now = one
        self.run.__dict__.update(one.block)
        self.run.__dict__.update(one.own)
        if one.thread is None:
            one.thread = threading.Thread(target=self.work, args=(one,), daemon=True)
            one.thread.start()
        else:
            one.go.release()
        self.back.acquire()
        for name in _BLOCK_FIELDS:
            one.block[name] = getattr(self.run, name)
        for name in _OWN_FIELDS:
            one.own[name] = getattr(self.run, name)
        if self.failure is not None:
            raise self.failure
        if one.state == "done":
            one.thread.join()
            one.thread = None
            self.strands.remove(one)
            self.settle(one.block)

    def work(self, one: _Strand) -> None:
        """A strand's thread."""
        try:
            self.run.run_strand(one.mask)
            left = self.run.alive.without(one.mask.full)
            self.run.alive = left or Mask(np.zeros((1, self.run.padded), np.bool_), self.run.lanes_shape)
            one.state = "done"
        except _Abandoned:
            return
        except BaseException as error:  # handed to the launching thread
            self.failure = error
        self.back.release()

    def hand_over(self, state: str) -> None:
        """Called in a strand: lets others run until the scheduler comes back to this one."""
        one = self.now
        one.state = state
        self.back.release()
        one.go.acquire()
        if self.abandoned:
            raise _Abandoned

    # ----------------------------------------------------------------- waiting in a loop

    def turn(self, waits: bool, sure: bool) -> None:
        """The end of a turn of a loop. waits: nothing has changed in it; sure: and nothing will by itself."""
        one = self.now
        one.since, one.sure = self.run.changes, sure
        one.where = self.run.where()
        self.hand_over("waits" if waits else "ready")

    # ----------------------------------------------------------------- barriers and warp functions

    def meet(self, kind: str, node: ast.AST, arguments: list, member: object, function: Callable) -> object:
        """Waits for the other lanes that a barrier or warp function needs, then does it once for all of them.

        kind: "block", "warp" or "grid". member: the member masks of a warp function, lane by lane.
        function(arguments) is called with run.mask of all lanes that have come. Returns its result.
        """
        if kind != "grid" and (self.level == "blocks" or (self.level == "warps" and kind == "warp")):
            return function(arguments)
        one = self.now
        one.post = (kind, node, arguments, member, function)
        one.where = self.run.where(node)
        one.state = "meets"
        self.settle(one.block)
        if one.state == "meets":
            self.hand_over("meets")
        one.post = None
        return one.result

    def settle(self, block: dict[str, object]) -> None:
        """Releases those who need not wait any longer, in a block or, for a barrier of the grid, in all."""
        mates = [s for s in self.strands if s.block is block and s.state != "done"]
        posted = [s for s in mates if s.post is not None and s.state == "meets"]
        if mates and len(posted) == len(mates) and all(s.post[0] == "block" for s in posted):
            self.perform(posted)
        for group in self.warp_groups(posted):
            if self.complete(group):
                self.perform(group)
        if self.strands and all(s.post and s.state == "meets" and s.post[0] == "grid" for s in self.strands):
            if self.resident() == self.run.blocks_total:
                self.perform_grid()

    @staticmethod
    def warp_groups(posted: list[_Strand]) -> list[list[_Strand]]:
        """Strands of one warp that have come to the same warp function with the same member mask."""
        groups: dict[tuple, list[_Strand]] = {}
        for one in posted:
            if one.post[0] == "warp":
                lane = _lane(one)
                member = int(np.broadcast_to(one.post[3], one.mask.shape)[0, lane])
                groups.setdefault((id(one.post[1]), lane // 32, member), []).append(one)
        return list(groups.values())

    def complete(self, group: list[_Strand]) -> bool:
        """Whether all the lanes that the member mask names, and that have not exited, have come."""
        here = {_lane(one) % 32 for one in group}
        lane = _lane(group[0])
        member = int(np.broadcast_to(group[0].post[3], group[0].mask.shape)[0, lane])
        alive = group[0].block["alive"] if self.now is None or self.now.block is not group[0].block else self.run.alive
        start = lane // 32 * 32
        return all(
            k in here for k in range(32) if member >> k & 1 and alive.full[0, start + k]
        )

    def perform(self, group: list[_Strand]) -> None:
        """Does what strands of one block have met for, and gives each the result."""
        run, first = self.run, group[0]
        saved = {name: getattr(run, name) for name in (*_BLOCK_FIELDS, *_OWN_FIELDS)}
        if self.now is None or self.now.block is not first.block:
            run.__dict__.update(first.block)
        mine = first is self.now
        if not mine:
            run.__dict__.update(first.own)
        lanes = np.zeros(run.lanes_shape, np.bool_)
        for one in group:
            lanes |= one.own["mask"].full if one is not self.now else saved["mask"].full
        _, node, _, _, function = first.post
        merged = [
            _merge([(s.own["mask"] if s is not self.now else saved["mask"], s.post[2][k]) for s in group])
            for k in range(len(first.post[2]))
        ]
        run.mask = Mask(lanes, run.lanes_shape)
        if first.post[0] == "block":
            run.meeting_lines = sorted({s.post[1].lineno for s in group})
        result = function(merged)
        run.meeting_lines = []
        run.changes += 1
        after = {name: getattr(run, name) for name in _BLOCK_FIELDS}
        run.__dict__.update(saved)
        if self.now is not None and self.now.block is first.block:
            run.__dict__.update(after)
        first.block.update(after)
        for one in group:
            one.result = result
            one.state = "ready"

    def perform_grid(self) -> None:
        """A barrier of the whole grid: all blocks go on in a new epoch."""
        run = self.run
        run.__dict__.update({name: getattr(run, name) for name in ()})
        blocks = {id(s.block): s.block for s in self.strands}.values()
        last = max(int(block["epoch"].max()) for block in blocks) + 1
        for block in blocks:
            block["epoch"][:] = last
            block["grid_epoch"] = last
        run.grid_epoch = last
        if run.tracing:
            run.line(self.strands[0].post[1]).barriers += len(blocks)
        for one in self.strands:
            one.result = None
            one.state = "ready"

    def release_partly(self) -> bool:
        """Where nothing else can go on: does warp functions and barriers without the lanes that did not come."""
        self.now = None
        for block in {id(s.block): s.block for s in self.strands}.values():
            posted = [s for s in self.strands if s.block is block and s.state == "meets" and s.post is not None]
            for group in self.warp_groups(posted):
                self.perform(group)
                return True
        return False

    # ----------------------------------------------------------------- no way on

    def stuck(self, started: int) -> None:
        """Every strand waits: finer strands if there are any, else the error."""
        run = self.run
        if self.level != LEVELS[-1] and (self.level == "blocks" or run.options.compute_capability >= (7, 0)):
            run.shown.level = LEVELS[LEVELS.index(self.level) + 1]
            raise Restart
        lines: dict[tuple[str, str], list[str]] = {}
        for one in self.strands:
            how = "waits in the loop of" if one.state == "waits" else "waits at"
            lane = int(np.flatnonzero(one.own["mask"].full[0])[0])
            who = run.thread_name(int(one.block["block_numbers"][0]), lane)
            lines.setdefault((how, one.where), []).append(who)
        parts = [
            f"{who[0]}" + (f" (and {len(who) - 1} more like it)" if len(who) > 1 else "") + f" {how} {where}"
            for (how, where), who in lines.items()
        ]
        raise DeadlockError("; ".join(parts) + ": " + advice(run, started, self.capacity))


def advice(run: Execution, started: int, capacity: int) -> str:
    """What to do about a wait that never ends."""
    text = (
        "no thread can go on, as none stores what the loop waits for. Store it in a thread that does not itself wait for "
        "this one, and before it waits for anything; a lock must be given back, and before a barrier that others must "
        "reach"
    )
    left = run.blocks_total - started
    if left > 0:
        text += (
            f". {left} blocks have not begun: the GPU holds {capacity} of this size at once, and a block that waits "
            "keeps its place: launch no more than these, or let a block wait only for blocks that began before it, by "
            "taking its number from an atomic counter"
        )
    if run.options.compute_capability < (7, 0):
        text += ". Threads of one warp that wait for each other need compute capability 7.0 or newer"
    return text


def resident_blocks(run: Execution) -> int:
    """Blocks that the simulated GPU holds at once, by threads and shared memory (registers are not known here)."""
    per_sm = limits.limits(run.options.compute_capability)
    shared = run.static_shared + run.dynamic_shared + per_sm.shared_reserved
    fit = min(per_sm.blocks_per_sm, per_sm.threads_per_sm // run.padded, per_sm.shared_per_sm // max(1, shared))
    return max(1, fit) * hostapi.sms(run.options.compute_capability)


def _lane(one: _Strand) -> int:
    """The lane of a strand of one thread; the first of several."""
    return int(np.flatnonzero(one.mask.full[0])[0])


def _merge(parts: list[tuple[Mask, object]]) -> object:
    """A value whose lanes come from several strands."""
    result = parts[0][1]
    if not isinstance(result, (np.ndarray, np.generic)):
        return result
    for mask, value in parts[1:]:
        result = np.where(mask.full, value, result)
    return result


