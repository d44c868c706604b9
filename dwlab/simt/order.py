"""The order that fences and atomics make: release and acquire, as in PTX's memory model, and nothing else.

A fence orders its own thread's earlier accesses before its later ones. Two threads are ordered when the one that
writes executes a fence and then an atomic, and the other an atomic on the same element, after it, and then a fence (or
a barrier of its block, which is one too). What came to a thread that way it passes on with its own fences and atomics.
The atomic may also be another thread's, where a barrier stands between the fence and it: so no GPU fails to order it.
threadfence_block does so within a block, threadfence for the whole GPU.

Barriers order by epochs (trace.track_exact); here is the rest. The accesses that a thread knows of are not listed: its
*knowledge* is a set of places in the logs of atomics, and a question follows them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dwlab.simt.access import Accesses
    from dwlab.simt.memory import Root


@dataclass(frozen=True)
class Fence:
    """One execution of a fence: what every thread of the batch knew by barriers then, (blocks,) and (blocks, T)."""

    epoch: np.ndarray
    lane_epoch: np.ndarray
    lane_known: np.ndarray | None
    knowledge: np.ndarray


@dataclass(frozen=True)
class Release:
    """An atomic after a fence: by whom, and for each scope (GPU, block) the last fence, its row, and which it was.

    met: fences of the other threads of its block that barriers have put before it, (2, T); None: of none.
    """

    thread: int
    block: int
    fences: tuple[tuple[Fence | None, int, int], tuple[Fence | None, int, int]]
    met: np.ndarray | None


@dataclass(eq=False)
class Log:
    """The releases of one element, in the sequence of its atomics."""

    releases: list[Release] = field(default_factory=list)
    by_block: dict[int, list[int]] = field(default_factory=dict)
    last: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def add(self, one: Release) -> None:
        state = (one.fences[0][2], one.fences[1][2], id(one.met))
        if self.last.get(one.thread) == state:
            return
        self.last[one.thread] = state
        self.by_block.setdefault(one.block, []).append(len(self.releases))
        self.releases.append(one)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The knowledge that came to a thread: others', and logs up to a place; `block`: of its own block only, else -1."""

    parents: tuple[int, ...]
    logs: tuple[tuple[Log, int, int], ...]


GPU, BLOCK = 0, 1


class Order:
    """Release and acquire over one launch. Threads are numbered through the launch, from 0."""

    def __init__(self, blocks: int, threads: int):
        self.threads = threads
        self.fences = np.zeros((2, blocks, threads), np.int32)  # executed by each thread: of GPU scope, of any
        self.knowledge = np.zeros((blocks, threads), np.int32)  # number of each thread's; 0: nothing
        self.known: list[Knowledge] = [Knowledge((), ())]
        self.pending: dict[int, dict[int, dict[Log, int]]] = {}  # block -> thread -> what its atomics have seen
        self.logs: dict[tuple[int, int, int], Log] = {}
        self.fenced = False
        self.last: dict[int, list[tuple[Fence | None, int, int]]] = {}  # thread -> its last fence of each scope
        self.met: dict[int, dict[int | None, np.ndarray]] = {}  # block -> lane -> see _met
        self._answers: dict[tuple, bool] = {}

    def _learn(self, parents: tuple[int, ...], logs: list[tuple[Log, int, int]]) -> int:
        self.known.append(Knowledge(tuple(p for p in parents if p), tuple(logs)))
        return len(self.known) - 1

    def _seen(self, block: int, thread: int, scope: int) -> list[tuple[Log, int, int]]:
        """The releases that a thread's atomics have seen, as its fence of this scope makes them known."""
        seen = self.pending.get(block, {}).get(thread)
        if not seen:
            return []
        logs = [(log, place, block) for log, place in seen.items()]
        if scope == GPU:
            logs += [(log, place, -1) for log, place in seen.items()]
            del self.pending[block][thread]
        return logs

    def fence(self, run: Accesses, scope: int) -> None:
        """threadfence (GPU) or threadfence_block (BLOCK) by the active lanes."""
        self.fenced = True
        active = run.mask.full
        rows, lanes = np.nonzero(active)
        for row in np.unique(rows):
            block = int(run.block_numbers[row])
            for thread in [t for t in self.pending.get(block, ()) if active[row, t % self.threads]]:
                logs = self._seen(block, thread, scope)
                if logs:
                    lane = thread % self.threads
                    self.knowledge[block, lane] = self._learn((int(self.knowledge[block, lane]),), logs)
        for one in (GPU, BLOCK) if scope == GPU else (BLOCK,):
            self.fences[one][run.block_numbers] += active
        now = Fence(
            run.epoch.copy(), run.lane_epoch.copy(), None if run.lane_known is None else run.lane_known.copy(),
            self.knowledge[run.block_numbers],
        )  # fmt: skip
        for row, lane in zip(rows.tolist(), lanes.tolist(), strict=True):
            block = int(run.block_numbers[row])
            last = self.last.setdefault(block * self.threads + lane, [(None, 0, 0), (None, 0, 0)])
            for one in (GPU, BLOCK) if scope == GPU else (BLOCK,):
                last[one] = (now, row, int(self.fences[one, block, lane]))

    def atomic(self, run: Accesses, root: Root, where: np.ndarray, active: np.ndarray, wrote: np.ndarray) -> None:
        """Atomics by the active lanes, in their sequence. where, wrote: a place in bytes, and whether it stored."""
        if not self.fenced:
            return
        rows, lanes = np.nonzero(active)
        shared = root.space == "shared"
        for row, lane, place, stored in zip(rows.tolist(), lanes.tolist(), where.tolist(), wrote.tolist(), strict=True):
            block = int(run.block_numbers[row])
            thread = block * self.threads + lane
            key = (id(root), block if shared else -1, place)
            log = self.logs.get(key)
            if log is not None and log.releases:
                self.pending.setdefault(block, {}).setdefault(thread, {})[log] = len(log.releases)
            last, met = self.last.get(thread), self._met(block, lane)
            if stored and (last is not None or met is not None):
                if log is None:
                    log = self.logs[key] = Log()
                gpu, near = last or [(None, 0, 0)] * 2
                log.add(Release(thread, block, (gpu, near), met))

    def barrier(self, block: int, lanes: np.ndarray) -> None:
        """A barrier of lanes of a block: each of them fences, and all of them know then what one of them knew."""
        logs = [
            one
            for thread in [t for t in self.pending.get(block, ()) if lanes[t % self.threads]]
            for one in self._seen(block, thread, GPU)
        ]
        self.meet(block, lanes, logs, whole=True)

    def _met(self, block: int, lane: int | None) -> np.ndarray | None:
        """The fences that barriers have put before what a lane does; of lane None those of all."""
        known = self.met.get(block, {})
        return known.get(lane, known.get(None))

    def meet(
        self, block: int, lanes: np.ndarray, logs: list[tuple[Log, int, int]] | None = None, whole: bool = False
    ) -> None:
        """Lanes that learn from each other: at syncwarp, or at a barrier, of the `whole` block."""
        met = np.zeros((2, self.threads), np.int32)
        met[:, lanes] = self.fences[:, block, lanes]
        if met.any():
            olds = self.met.setdefault(block, {})
            here = [None] if whole else lanes.tolist() if lanes.dtype != bool else np.flatnonzero(lanes).tolist()
            before = [self._met(block, lane) for lane in (olds if whole else here)]
            for one in {id(old): old for old in before if old is not None}.values():
                np.maximum(met, one, out=met)
            if whole:
                olds.clear()
            olds |= dict.fromkeys(here, met)
        before = np.unique(self.knowledge[block, lanes])
        if logs or len(before) > 1:
            self.knowledge[block, lanes] = self._learn(tuple(before.tolist()), logs or [])

    def ordered(self, me: int, other: int, epoch: int, stamp: int, fences: tuple[int, int]) -> bool:
        """Whether an access by thread `other` is before what thread `me` does now.

        epoch, stamp: barriers of its block and its warp that `other` had passed; fences: those that it had executed.
        """
        start = int(self.knowledge[me // self.threads, me % self.threads])
        if start == 0:
            return False
        key = (start, other, epoch, stamp, fences)
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._search(start, other, epoch, stamp, fences)
        return answer

    def _search(self, start: int, other: int, epoch: int, stamp: int, fences: tuple[int, int]) -> bool:
        home = other // self.threads
        seen, todo = {start}, [start]
        read: dict[tuple[Log, int], int] = {}
        while todo:
            one = self.known[todo.pop()]
            for log, place, block in one.logs:
                scope = GPU if block < 0 else BLOCK
                first = read.get((log, block), 0)
                if place <= first:
                    continue
                read[log, block] = place
                for number in log.by_block.get(home, ()):
                    if first <= number < place and (block < 0 or block == home):
                        if self._covers(log.releases[number], scope, other, epoch, stamp, fences[scope]):
                            return True
                for release in log.releases[first:place]:
                    fence, row, _ = release.fences[scope]
                    if fence is not None and (block < 0 or block == release.block):
                        more = int(fence.knowledge[row, release.thread % self.threads])
                        if more and more not in seen:
                            seen.add(more)
                            todo.append(more)
            for parent in one.parents:
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
        return False

    def _covers(self, one: Release, scope: int, other: int, epoch: int, stamp: int, executed: int) -> bool:
        """Whether an access of `other`, of the same block as the release's thread, came before the release's fence."""
        if one.met is not None and executed < one.met[scope, other % self.threads]:
            return True
        fence, row, count = one.fences[scope]
        if fence is None:
            return False
        if one.thread == other:
            return executed < count
        if epoch != fence.epoch[row]:
            return epoch < fence.epoch[row]
        lane = one.thread % self.threads
        if one.thread // 32 != other // 32:
            return False
        known = fence.lane_epoch[row, lane] if fence.lane_known is None else fence.lane_known[row, lane, other % 32]
        return stamp < known
