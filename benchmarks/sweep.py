"""Whole sweeps of tuning spaces on a GPU: ``python benchmarks/sweep.py [JOURNAL] [--seconds S]``.

Every candidate of a list of problems, checked, timed and raced (dwlab.tuning, strategy exhaustive), into one journal a
GPU: dwlab/records/tuning/GPU.jsonl if none is given. Searches are then compared on it without a GPU (`python -m dwlab
tune --report`), and its winners are the tiles that launches get. Of each op, path and storage type come the layers of
the image networks with the largest share of their network's bytes, at batch 1 and 32, the study's problems, and the
sparse source's products; what is tuned is the stage that runs there, if it has many tiles, else all stages of the path.
Of a stage that has more than LARGEST tiles the space is the NEAR of them that are nearest to a tile that ships: which
differ from it in the fewest parameters, and by the fewest doublings. Stages with more than LISTED tiles, of which the
list alone takes long, are left out.

Spaces in which 5 % are more than one candidate come first, the smaller before the larger. What the journal has already
is not measured again, so who interrupts it, or whose time is over, goes on later. Several processes compile, one at a
time uses the GPU, and a kernel is compiled once for both batches. A candidate that hangs, or keeps the GPU, costs its
process alone: it is recorded as a timeout, and another process goes on. The last table has the sweeps, and what was
left out. Exit status 1 if a problem had no right candidate or nothing was measured.

examples: sweep.py --seconds 540
          sweep.py --only fused/dwpw --only fused/pwpw --seconds 300
          sweep.py --list                 what would be measured, in which order; needs no GPU
          sweep.py --optuna               Optuna on what was recorded, for docs/results/tuning.md; needs no GPU
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import record_sparse
from record_layers import plan, variant
from recording import Parser, at_least, needs_gpu

from dwlab.kernels import choices
from dwlab.kernels.registry import Stage
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.problems import PAPER, DepthwiseConv1d, Problem
from dwlab.problems.layers import LAYOUTS
from dwlab.records.journal import Candidate, Journal, JournalError, Key, text
from dwlab.report import VALIDATED
from dwlab.study.run import LAYERS
from dwlab.text import tabular
from dwlab.tuning import report, stages, strategies
from dwlab.tuning.race import Out
from dwlab.tuning.search import Found, SearchError, first, search
from dwlab.tuning.space import Space, Subject, subject
from dwlab.tuning.worker import GpuLock, Remote, Worker

NETWORKS = VALIDATED
DTYPES = ("float32", "float16")
BATCHES = (1, 32)
ROWS = (  # of depthwise1d, beside the paper's: short and long rows, few and many taps
    DepthwiseConv1d(1024, 128, 48, 4),
    DepthwiseConv1d(256, 64, 1000, 15),
    DepthwiseConv1d(64, 64, 4096, 31, "same"),
)
LEAST = report.MANY
"""Candidates of a space in which the budget of a report is more than one: such sweeps come first."""
LARGEST = 200
NEAR = 60
LISTED = 5_000
EACH = 6  # layers of an op, path and storage type
PROCESSES = 14
CANDIDATE_S = 120.0
"""For an answer, while others compile and take their turns: who has the GPU to itself has `worker.HELD_SECONDS`."""


@dataclass(frozen=True)
class Task:
    """A sweep: what is tuned, the problem and its space."""

    subject: Subject
    problem: Problem
    space: Space

    @property
    def who(self) -> tuple[str, Problem]:
        """What tells it from the others."""
        return self.subject.id, self.problem


@dataclass(frozen=True)
class Group:
    """Sweeps of the same kernels, each of which is compiled once: of a layer at several batches."""

    tasks: tuple[Task, ...]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Of each of them."""
        return self.tasks[0].space.candidates


# ------------------------------------------------------------------------------------------------------- the problems


def problems() -> Iterator[tuple[str, str, list[tuple[Problem, ...]]]]:
    """(op, path, layers) of every op, path and storage type: the study's, and of the networks those of the largest
    share of their network's bytes first. A layer is a problem for each of BATCHES.
    """
    for path in ("forward", "weight_grad"):
        yield "depthwise1d", path, [(one,) for one in (PAPER, *ROWS)]
    for dtype in DTYPES:
        layers: dict[tuple[str, str], list[tuple[Problem, ...]]] = {}
        for group in plan(("depthwise2d", "pointwise", "fused"), (dtype,), NETWORKS):
            batches = tuple(variant(group.problem, batch, "NHWC") for batch in BATCHES)
            layers.setdefault(group.key[:2], []).append(batches)
        for key, both in LAYERS.items():
            own = [(one,) for one in both if one.layout == "NHWC" and one.dtype == dtype]
            layers.setdefault(key, []).extend(own)
        for (op, path), here in layers.items():
            yield op, path, here
    for layout in LAYOUTS:  # the sparse source's largest products
        found = [one.problem for one in record_sparse.plan(layers=False) if one.problem.layout == layout]
        yield "sparse", "forward", [(one,) for one in found]


def _layer(problem: Problem) -> Any:
    """What of a problem its kernel is made for: the same at every batch."""
    return getattr(problem, "kernel_key", problem)


def tuned_there(op: str, path: str, problem: Problem, gpu: gpus.Gpu) -> tuple[Subject, Space] | None:
    """The stage that is expected to be fastest, if it has LEAST tiles to choose from; else the path. None if no stage
    runs, a path has more than LARGEST candidates or a stage LISTED, or there is one.
    """
    whole = subject(f"{op}/{path}")
    takers = whole.takers(problem, gpu)
    if not takers:
        return None
    sizes = {one.id: _tiles(one, problem, gpu) for one in takers}
    first = choices.fastest(takers, problem, gpu=gpu.name or None)[0]
    what = subject(first.id) if sizes[first.id] >= LEAST else whole
    size = sizes[first.id] if what.is_stage else sum(max(1, one) for one in sizes.values())
    return (what, what.space(problem, gpu)) if 1 < size <= (LISTED if what.is_stage else LARGEST) else None


def near(found: Sequence[Space]) -> list[Space]:
    """Of the spaces of a stage for a layer at several batches, larger than LARGEST, the NEAR candidates that all have
    and that are nearest to the shipped one of any: the same in each, its own shipped one first.
    """
    if not found or max(map(len, found)) <= LARGEST:
        return list(found)
    shipped = [one.candidates[0] for one in found]
    everywhere = set.intersection(*({text(one) for one in space.candidates} for space in found))
    common = [one for one in found[0].candidates if text(one) in everywhere]
    kept = sorted(common, key=lambda one: min(_away(one, its) for its in shipped))[:NEAR]
    made = []
    for space in found:
        here = tuple(sorted(kept, key=lambda one: one != space.candidates[0]))
        values = {name: tuple(sorted({one[name] for one in here})) for name in space.parameters}
        left = {f"not among the {NEAR} nearest to a shipped tile": len(space) - len(here)}
        made.append(
            Space({name: its for name, its in values.items() if len(its) > 1}, here, {**space.rejected, **left})
        )
    return made


def _away(one: Candidate, other: Candidate) -> tuple[int, float]:
    """In how many parameters two candidates differ, and by how many doublings."""
    doublings = [abs(math.log2((1 + one[name]) / (1 + other[name]))) for name in one if one[name] != other[name]]
    return len(doublings), sum(doublings)


def _tiles(stage: Stage, problem: Problem, gpu: gpus.Gpu) -> int:
    """Tiles of which a block fits; of many not all are counted."""
    if stage.tiles is None:
        return 0
    layer = _layer(problem)
    all_ = stage.tiles.configs(layer, problem.N, gpu)
    fits = (one for one in all_ if gpu.blocks_per_sm(stage.tiles.resources(layer, one)))
    return len(set(itertools.islice(fits, LISTED + 1)))


def planned(gpu: gpus.Gpu, each: int = EACH, only: Sequence[str] = ()) -> list[Group]:
    """The sweeps: those of at least LEAST candidates first, and of each those of the fewest. only: of these "OP/PATH",
    or of all.
    """
    groups: dict[Any, list[Task]] = {}
    for op, path, layers in problems():
        kept = 0
        for batches in layers if not only or f"{op}/{path}" in only else ():
            chosen = [(*found, problem) for problem in batches if (found := tuned_there(op, path, problem, gpu))]
            for id in dict.fromkeys(what.id for what, *_ in chosen):
                its = [one for one in chosen if one[0].id == id]
                for (what, _, problem), space in zip(its, near([one[1] for one in its]), strict=True):
                    groups.setdefault((id, _layer(problem), space.digest), []).append(Task(what, problem, space))
            kept += bool(chosen)
            if kept == each:
                break
    return sorted((Group(tuple(tasks)) for tasks in groups.values()), key=_place)


def _place(group: Group) -> tuple[Any, ...]:
    first = group.tasks[0]
    return len(group.candidates) < LEAST, len(group.candidates), first.subject.id, str(first.problem)


# ------------------------------------------------------------------------------------------------------- measuring


class Over(Exception):
    """The time is over, or the journal takes no more lines: what a process was at is not finished."""


class Sweeping:
    """Sweeps that several workers are at; what each finds is in a journal at once. key: of a task.

    A job is a candidate, on those of a group's tasks that lack it, or None: the race of a task of which all is known.
    """

    def __init__(self, groups: Sequence[Group], journal: Journal, key: Callable[[Task], Key]):
        self.tasks = [task for group in groups for task in group.tasks]
        self.journal, self.keys = journal, {task.who: key(task) for task in self.tasks}
        self.rows: dict[tuple[str, Problem], tuple[Task, Found | None, str]] = {}
        self.trouble = ""
        self._over, self._lock = False, threading.Lock()
        recorded, won = journal.keys(), {one.text for one, _ in journal.winners()}
        self.known = {who: recorded[one.text][1] if one.text in recorded else {} for who, one in self.keys.items()}
        self._jobs: list[tuple[list[Task], Candidate | None]] = []
        for task in filter(self._is_whole, self.tasks):
            if self.keys[task.who].text in won:
                self.rows[task.who] = (task, None, "recorded before")
            else:
                self._jobs.append(([task], None))
        for group in groups:
            for one in group.candidates:
                lacking = [task for task in group.tasks if text(one) not in self.known[task.who]]
                self._jobs += [(lacking, one)] if lacking else []

    def run(self, workers: Sequence[Remote], seconds: float) -> list[tuple[Task, Found | None, str]]:
        """(task, what was found, why nothing) of each task. What is not finished in the time goes on another time.

        workers: each asked what `stages.Benches` is.
        """
        free: queue.SimpleQueue[Remote] = queue.SimpleQueue()
        for one in workers:
            free.put(one)
        with ThreadPoolExecutor(len(workers)) as threads:
            jobs = [threads.submit(self._do, *job, free) for job in self._jobs]
            left = wait(jobs, seconds).not_done
            self._over = True
            while left:
                for one in workers:
                    one.kill()
                left = wait(left, 0.2).not_done
        for one in workers:
            one.close()
        for job in jobs:
            job.result()  # raises what nobody expected
        for task in self.tasks:
            tried = f"{len(self.known[task.who])} of {len(task.space)}"
            self.rows.setdefault(task.who, (task, None, f"the time was over: {tried}"))
        return [self.rows[task.who] for task in self.tasks]

    def _is_whole(self, task: Task) -> bool:
        return all(text(one) in self.known[task.who] for one in task.space.candidates)

    def _do(self, tasks: Sequence[Task], candidate: Candidate | None, free: queue.SimpleQueue[Remote]) -> None:
        worker = free.get()
        try:
            for task in tasks:
                bench = _There(worker, task, lambda: self._over)
                try:
                    bench.open()
                    if candidate is None or self._completes(task, candidate, bench):
                        self._race(task, bench)
                except (SearchError, Out) as why:
                    self.rows[task.who] = (task, None, f"WRONG: {why}")
        except Over:
            return
        except JournalError as error:
            self.trouble, self._over = str(error), True
        finally:
            free.put(worker)

    def _completes(self, task: Task, candidate: Candidate, bench: _There) -> bool:
        """Measures a candidate; whether all of the task are measured now."""
        known = self.known[task.who]
        medians = [statistics.median(one.times_us) for one in list(known.values()) if one.ok]
        tried = first(candidate, bench, min(medians, default=math.inf))
        self.journal.append(self.keys[task.who], tried)
        with self._lock:
            known[text(candidate)] = tried
            whole = self._is_whole(task)
        if whole:
            print(f"{task.subject.id} on {task.problem}: {len(known)} candidates", flush=True)
        return whole

    def _race(self, task: Task, bench: _There) -> None:
        found = search(task.space, bench, strategies.exhaustive, journal=self.journal, key=self.keys[task.who])
        if found.trouble:
            raise JournalError(f"{found.trouble}; {len(found.unsaved)} lines are lost")
        self.rows[task.who] = (task, found, "")


class _There(Remote):
    """The bench of one sweep among those of a worker."""

    def __init__(self, worker: Remote, task: Task, over: Callable[[], bool]):
        self.worker, self.over = worker, over
        self.asked = {"subject": task.subject.id, "problem": task.problem}

    def open(self) -> None:
        """Has the worker make it. Raises Out."""
        self._ask("open", {})

    def _ask(self, what: str, candidate: Candidate) -> Any:
        if self.over():
            raise Over
        try:
            return self.worker._ask(what, self.asked | {"candidate": dict(candidate)})
        except Out:
            if self.over():  # its process was ended
                raise Over from None
            raise


def table(rows: Sequence[tuple[Task, Found | None, str]]) -> str:
    """A row a task: candidates, tried, right, the best, the default over the best, and what was left out."""
    body = []
    for task, found, why in rows:
        numbers = ["", "", "", ""]
        if found is not None:
            right = sum(one.ok for one in found.tried.values())
            more = found.default_us / found.time_us - 1
            gain = "failed" if math.isnan(more) else f"{more:.1%}"
            numbers = [str(len(found.tried)), str(right), f"{found.time_us:,.2f}", gain]
        body.append([task.subject.id, str(task.problem), str(len(task.space)), *numbers, why])
    head = ["what", "problem", "space", "tried", "right", "best (µs)", "default over it", "note"]
    return tabular.columns(head, body, {0, 1, 7})


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, None)
    parser.add_argument("journal", nargs="?", type=Path, help="default: dwlab/records/tuning/GPU.jsonl")
    parser.limits(3600.0, min(PROCESSES, (os.cpu_count() or 2) - 1))
    parser.add_argument(
        "--each", type=at_least(1), default=EACH, help="layers of an op, path and type (default: %(default)s)"
    )
    parser.each("--only", (), "only this OP/PATH")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    parser.add_argument("--optuna", action="store_true", help="only search the sweeps again by Optuna; needs no GPU")
    options = parser.parse_args(arguments)
    if options.optuna:
        print(report.optuna_curves((options.journal or Path(tuned.FOLDER) / "any.jsonl").parent).name)
        return 0
    if options.list:
        todo = [task for group in planned(gpus.H200, options.each, options.only) for task in group.tasks]
        for task in todo:
            print(f"{len(task.space):5,}  {task.subject.id:28}  {task.problem}")
        print(f"{len(todo)} problems, {sum(len(task.space) for task in todo):,} candidates on {gpus.H200.name}")
        return 0
    needs_gpu(options.journal.parent if options.journal else Path(tuned.FOLDER))
    here = gpus.at_hand()
    name = here.name.lower().replace(" ", "-")
    journal = Journal(options.journal or Path(tuned.FOLDER) / f"{name}.jsonl")
    journal.check_writable()
    until = time.monotonic() + options.seconds
    groups = planned(here, options.each, options.only)
    made = Sweeping(groups, journal, lambda task: stages.key(task.subject, task.problem, task.space))
    with tempfile.TemporaryDirectory() as folder:
        workers = []
        for _ in range(options.processes):
            lock = GpuLock(Path(folder) / "lock")
            bench = functools.partial(stages.Benches, functools.partial(stages.shared_bench, folder, lock))
            workers.append(Worker(bench, CANDIDATE_S, lock=lock))
        rows = made.run(workers, until - time.monotonic())
    print(table(rows), journal.message(), sep="\n")
    if made.trouble:
        raise SystemExit(made.trouble)
    done = [found for _, found, why in rows if found is not None or why == "recorded before"]
    return int(not done or any(why.startswith("WRONG") for _, _, why in rows))


if __name__ == "__main__":
    sys.exit(main())
