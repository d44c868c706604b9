"""Forward progress: blocks, warps or single threads of a launch take turns, so that what waits cannot stop the others.

In lockstep a loop that waits for lanes further on, or for a block that has not begun, never ends. When that is seen
(Execution.check_waiting) the launch is run again here, in *strands* that advance one at a time: first whole blocks,
then, where all wait and some hold up lanes of their own, their warps, then the threads of such a warp, as GPUs schedule
them from compute capability 7.0 on. Each strand is a Python thread that executes the kernel for its lanes; only one of
them runs, and hands over where it waits: at the end of an iteration of a loop in which nothing has changed, and at
barriers and warp functions until the others have come. A block starts when all those before it wait or are done, up to
as many blocks as the GPU holds at once.
"""

from __future__ import annotations

import ast
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import hostapi, limits, source
from dwlab.simt.memory import Mask
from dwlab.simt.options import DeadlockError
from dwlab.simt.state import Frame, Restart

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

_BLOCK_FIELDS = (
    "nb", "lanes_shape", "block_numbers", "block_index", "epoch", "warp_epoch", "lane_epoch", "lane_known",
    "grid_epoch", "shared", "shared_used", "local", "dynamic_root", "copies", "units", "arrivals", "rows", "alive",
)  # fmt: skip
_OWN_FIELDS = ("frames", "frame", "mask", "node", "discard", "steps", "watchers")
_STACK = 16 << 20  # bytes of a thread's stack: a compiler may run on it
_FEW = 4  # iterations that a loop may wait before blocks that have not begun are let on
# For so many blocks that have begun another one may begin before those that look again do so: each store that a whole
# grid waits for would else wake all of it.
_FRESH = 8
_MANY = 16  # blocks that wait: of fewer it is cheap to see in finer strands what each thread waits for, and to say it


class _Abandoned(BaseException):
    """Ends the thread of a strand whose launch has failed."""


class _Block:
    """A block that has begun: its part of the Execution's fields, and its strands that are not done."""

    def __init__(self, run: Execution, number: int):
        self.number = number
        self.fields = {name: getattr(run, name) for name in _BLOCK_FIELDS}
        self.strands: list[_Strand] = []


class _Strand:
    """Lanes of one block that advance together."""

    def __init__(self, block: _Block, mask: Mask, run: Execution, arguments: list[object]):
        self.block = block
        self.mask = mask
        self.lane = int(np.flatnonzero(mask.full[0])[0])
        names = dict(zip(run.source.parameters, arguments, strict=True))
        frame = Frame(run.source, names, mask, run.outer.setdefault(run.source, {}))
        run.use_types(frame, "kernel")
        self.own: dict[str, object] = dict(
            frames=[frame], frame=frame, mask=mask, node=run.source.body[0], discard=None, steps=0, watchers=[]
        )
        self.thread: threading.Thread | None = None
        self.go = threading.Semaphore(0)
        self.where = ""
        self.iterations = 0  # that it has waited in its loop
        self.places: set[tuple[int, int]] = set()  # what its loop reads
        self.post: _Post | None = None
        self.result: object = None


@dataclass(frozen=True)
class _Post:
    """A barrier or warp function that a strand has come to, and what it brings."""

    kind: str
    node: ast.AST
    arguments: list
    member: int
    function: Callable[[list], object]


class Scheduler:
    """Runs a launch in strands."""

    def __init__(self, run: Execution, arguments: list[object]):
        self.run = run
        self.arguments = arguments
        self.blocks: list[_Block] = []
        self.started = 0
        self.now: _Strand | None = None
        self.ready: deque[_Strand] = deque()
        self.woken: deque[_Strand] = deque()  # of those that were sure, whose places have changed
        self.fresh = 0  # blocks begun since woken ones were let on
        self.unsure: deque[_Strand] = deque()  # wait in a loop, and another iteration might be different
        self.sure: dict[_Strand, bool] = {}  # wait until what they read changes; whether nothing else can end it
        self.readers: dict[tuple[int, int], set[_Strand]] = {}
        self.back = threading.Semaphore(0)
        self.failure: BaseException | None = None
        self.abandoned = False
        self.capacity = resident_blocks(run)

    # ----------------------------------------------------------------- the loop

    def launch(self) -> None:
        """All blocks, to their end. Raises what a strand raises; DeadlockError if all wait for each other."""
        size = threading.stack_size(_STACK)
        self.run.strands, self.run.watching, self.run.patience = self, True, 1
        try:
            while True:
                one = self.next()
                if one is not None:
                    self.resume(one)
                elif not self.blocks:
                    return
                elif not self.release_partly():
                    self.split()
                    self.resume(self.counting_strand())
        finally:
            self.abandoned = True
            for one in [one for block in self.blocks for one in block.strands]:
                if one.thread is not None:
                    one.go.release()
                    one.thread.join()
            threading.stack_size(size)
            self.run.strands = None

    def next(self) -> _Strand | None:
        """The strand to go on with; begins a block where those before it wait or are done."""
        if self.ready:
            return self.ready.popleft()
        left = self.started < self.run.blocks_total and len(self.blocks) < self.capacity
        if self.woken and not (left and self.fresh < len(self.blocks) // _FRESH):
            self.ready, self.woken, self.fresh = self.woken, self.ready, 0
            return self.ready.popleft()
        if not self.woken and self.unsure and self.unsure[0].iterations < _FEW:
            return self.unsure.popleft()
        if left:
            self.start(self.started)
            self.started += 1
            self.fresh += 1
            return self.ready.popleft()
        return self.unsure.popleft() if self.unsure else None

    def start(self, number: int) -> None:
        """Sets up the strands of a block."""
        run = self.run
        run.begin_batch(number, 1, self.arguments)
        block = _Block(run, number)
        real, lanes = run.alive.full, np.arange(run.padded)
        split = run.shown.split.get(number)  # the warps to run thread by thread
        if split is None:
            parts = [run.alive]
        else:
            which = np.where(np.isin(lanes // 32, list(split)), run.padded + lanes, lanes // 32)
            parts = [Mask(real & (which == k), run.lanes_shape) for k in np.unique(which[real[0]])]
        block.strands = [_Strand(block, part, run, self.arguments) for part in parts]
        self.blocks.append(block)
        self.ready.extend(block.strands)

    def resume(self, one: _Strand) -> None:
        """Lets a strand go on until it hands over."""
        run = self.run
        self.now = one
        run.__dict__.update(one.block.fields)
        run.__dict__.update(one.own)
        if one.thread is None:
            one.thread = threading.Thread(target=self.work, args=(one,), daemon=True)
            try:
                one.thread.start()
            except RuntimeError:
                one.thread = None
                raise DeadlockError(
                    f"{run.where()}: so many threads wait for each other that this machine cannot run them: launch "
                    "fewer"
                ) from None
        else:
            one.go.release()
        self.back.acquire()
        if self.failure is not None:
            raise self.failure
        if one not in one.block.strands:
            one.thread.join()
            if one.block.strands:
                self.settle(one.block)
            else:
                self.blocks.remove(one.block)
        self.now = None

    def put_away(self, one: _Strand) -> None:
        """Keeps the Execution's fields as those of a strand."""
        for name in _BLOCK_FIELDS:
            one.block.fields[name] = getattr(self.run, name)
        for name in _OWN_FIELDS:
            one.own[name] = getattr(self.run, name)

    def work(self, one: _Strand) -> None:
        """A strand's thread."""
        try:
            self.run.run_strand(one.mask)
            self.run.exited(one.mask)
            one.block.strands.remove(one)
            self.put_away(one)
        except _Abandoned:
            return
        except BaseException as error:  # handed to the launching thread
            self.failure = error
        self.back.release()

    def hand_over(self) -> None:
        """Called in a strand that is put away: lets others run until the scheduler comes back to it."""
        one = self.now
        self.back.release()
        one.go.acquire()
        if self.abandoned:
            raise _Abandoned

    # ----------------------------------------------------------------- waiting in a loop

    def iterated(self, same: int, sure: int, places: set[tuple[int, int]]) -> None:
        """The end of a loop's iteration. same: for how many it has read the same; places: where, (root, word) each.

        sure: 0, another one may be different; 1, most likely not; 2, not unless what it reads changes.
        """
        one = self.now
        one.iterations, one.where = same, self.run.where()
        if not same:
            self.ready.append(one)
        elif not sure:
            self.unsure.append(one)
        else:
            self.sure[one] = sure == 2
            one.places = places
            for place in places:
                self.readers.setdefault(place, set()).add(one)
        self.put_away(one)
        self.hand_over()

    def changed(self, places: set[tuple[int, int]]) -> None:
        """Memory has changed in these places: who waits for one of them looks again."""
        for place in places:
            for one in sorted(self.readers.pop(place, ()), key=lambda s: (s.block.number, s.lane)):
                if one in self.sure:
                    del self.sure[one]
                    self.woken.append(one)
                for other in one.places:
                    self.readers.get(other, set()).discard(one)

    # ----------------------------------------------------------------- barriers and warp functions

    def meet(self, kind: str, node: ast.AST, arguments: list, member: object, function: Callable) -> object:
        """Waits for the other lanes that a barrier or warp function needs, then does it once for all of them.

        kind: "block", "warp" or "grid". member: the member masks of a warp function, lane by lane.
        function(arguments) is called with run.mask of all lanes that have come. Returns its result.
        """
        one = self.now
        threads = int(np.count_nonzero(one.mask.full))
        if kind != "grid" and (len(one.block.strands) == 1 or (kind == "warp" and threads > 1)):
            return function(arguments)
        one.post = _Post(
            kind, node, arguments, int(np.broadcast_to(member, self.run.lanes_shape)[0, one.lane]), function
        )
        one.where = self.run.where(node)
        self.put_away(one)
        self.settle(one.block)
        self.hand_over()
        return one.result

    def settle(self, block: _Block) -> None:
        """Releases those of a block who need not wait any longer at a barrier or warp function."""
        posted = [one for one in block.strands if one.post is not None]
        if posted and len(posted) == len(block.strands) and all(one.post.kind == "block" for one in posted):
            self.perform(posted)
            return
        for group in self.warp_groups(posted):
            here = {one.lane for one in group}
            alive = block.fields["alive"].full[0]
            start = group[0].lane // 32 * 32
            if all(start + k in here for k in range(32) if group[0].post.member >> k & 1 and alive[start + k]):
                self.perform(group)
        everyone = [one for other in self.blocks for one in other.strands]
        if posted and posted[0].post is not None and self.started == self.run.blocks_total:
            if all(one.post is not None and one.post.kind == "grid" for one in everyone):
                self.perform_grid(everyone)

    @staticmethod
    def warp_groups(posted: list[_Strand]) -> list[list[_Strand]]:
        """Strands of one warp that have come to the same warp function with the same member mask.

        syncwarp on one line meets syncwarp on another.
        """
        groups: dict[tuple, list[_Strand]] = {}
        for one in posted:
            if one.post.kind == "warp":
                func = one.post.node.func
                name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                what = name if name == "syncwarp" else id(one.post.node)
                groups.setdefault((what, one.lane // 32, one.post.member), []).append(one)
        return list(groups.values())

    def perform(self, group: list[_Strand]) -> None:
        """Does what strands of one block have met for, and gives each the result."""
        run, first = self.run, group[0]
        run.__dict__.update(first.block.fields)
        run.__dict__.update(first.own)
        lanes = np.zeros(run.lanes_shape, np.bool_)
        for one in group:
            lanes |= one.own["mask"].full
        merged = first.post.arguments
        for one in group[1:]:
            both = zip(one.post.arguments, merged, strict=True)
            merged = [run.merge(one.own["mask"], new, old, "an argument") for new, old in both]
        run.mask = Mask(lanes, run.lanes_shape)
        run.meeting_lines = sorted({one.post.node.lineno for one in group}) if first.post.kind == "block" else []
        result = first.post.function(merged)
        run.meeting_lines = []
        run.mask = first.own["mask"]
        self.put_away(first)
        for one in group:
            one.result, one.post = result, None
            self.ready.append(one)

    def perform_grid(self, everyone: list[_Strand]) -> None:
        """A barrier of the whole grid: all blocks go on in a new epoch."""
        last = max(int(block.fields["epoch"].max()) for block in self.blocks) + 1
        for block in self.blocks:
            block.fields["epoch"][:] = last
            block.fields["grid_epoch"] = last
        if self.run.tracing:
            self.run.line(everyone[0].post.node).barriers += len(self.blocks)
        for one in everyone:
            one.result = one.post = None
            self.ready.append(one)

    def release_partly(self) -> bool:
        """Does a warp function without the lanes that did not come, where nothing else can go on; it is reported."""
        for block in self.blocks:
            for group in self.warp_groups([one for one in block.strands if one.post is not None]):
                self.perform(group)
                return True
        return False

    # ----------------------------------------------------------------- no way on

    def split(self) -> None:
        """Runs the launch again in finer strands where lanes in a loop hold up others of their strand."""
        run = self.run
        finer, many = False, len(self.blocks) > _MANY
        for one in [one for block in self.blocks for one in block.strands]:
            alive = one.block.fields["alive"].full & one.mask.full
            if not (alive & ~one.own["mask"].full).any() or (many and self.holds_up_nobody(one)):
                continue
            warps = set((np.flatnonzero(alive[0]) // 32).tolist())
            split = run.shown.split.setdefault(one.block.number, set())
            if len(warps) > 1:
                finer = True  # into warps
            elif run.options.compute_capability >= (7, 0) and not warps <= split:
                split |= warps
                finer = True
        if finer:
            raise Restart

    @staticmethod
    def holds_up_nobody(one: _Strand) -> bool:
        """Whether the lanes that a strand's loop holds up would change nothing that anybody waits for."""
        if one.post is not None or len(one.own["frames"]) > 1 or not one.own["watchers"]:
            return False
        return source.idle_beside(one.own["frame"].source, one.own["watchers"][-1].node)

    def counting_strand(self) -> _Strand | None:
        """One that may still end its loop by counting its iterations; if there is none, all wait for each other."""
        likely = [one for one, for_ever in self.sure.items() if not for_ever]
        if likely:
            one = min(likely, key=lambda s: (s.block.number, s.lane))
            del self.sure[one]
            return one
        return self.raise_deadlock()

    def raise_deadlock(self) -> None:
        """Raises the error for a launch in which all wait; returns if some do not."""
        if self.ready or self.woken or self.unsure:
            return
        run = self.run
        waiting = [one for block in self.blocks for one in block.strands]
        lines: dict[tuple[str, str], list[str]] = {}
        for one in waiting:
            how = "waits at" if one.post is not None else "waits in the loop of"
            who = run.thread_name(one.block.number, int(np.flatnonzero(one.own["mask"].full[0])[0]))
            lines.setdefault((how, one.where), []).append(who)
        parts = [
            f"{who[0]}" + (f" (and {len(who) - 1} more)" if len(who) > 1 else "") + f" {how} {where}"
            for (how, where), who in lines.items()
        ]
        raise DeadlockError("; ".join(parts) + ": " + advice(run, self.started, self.capacity))


def advice(run: Execution, started: int, capacity: int) -> str:
    """Advice on a wait that never ends."""
    text = (
        "no thread can go on, as none stores what the loop waits for. Store it in a thread that does not itself wait "
        "for this one, and before it waits for anything; a lock must be given back, and before a barrier that others "
        "must reach"
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
    shared = run.found.shared + run.dynamic_shared + per_sm.shared_reserved
    fit = min(per_sm.blocks_per_sm, per_sm.threads_per_sm // run.padded, per_sm.shared_per_sm // max(1, shared))
    return max(1, fit) * hostapi.sms(run.options.compute_capability)
