"""Whole sweeps of tuning spaces on a GPU: ``python benchmarks/sweep.py [JOURNAL] [--seconds S]``.

Every candidate of a list of problems, checked, timed and raced (dwlab.tuning, strategy exhaustive), into one journal a
GPU: dwlab/records/tuning/GPU.jsonl if none is given. Searches are then compared on it without a GPU
(docs/tables/tuning.py), and its winners are the tiles that launches get. What is tuned is the path, if all stages have
no more than LARGEST candidates together, else the stage that runs there, with the NEAR tiles nearest to the one that
ships. --options: of the stage that is launched there the compiler's options and instructions, with its tile.

What the journal has already is not measured again. Several processes compile, one at a time uses the GPU. A candidate
that hangs, or keeps the GPU, costs its process alone: it is recorded as a timeout, and another process goes on. Exit
status 1 if a problem had no right candidate or nothing was measured.

examples: sweep.py --seconds 540
          sweep.py --only fused/dwpw --only fused/pwpw --seconds 300
"""

from __future__ import annotations

import functools
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import record_sparse
from record_layers import plan, variant
from recording import Parser, needs_gpu

from dwlab import study
from dwlab.gpu import machine
from dwlab.kernels import choices
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.problems import PAPER, DepthwiseConv1d, Problem
from dwlab.problems.layers import LAYOUTS, SparsePointwise
from dwlab.records.journal import Candidate, Journal, JournalError, Key, text
from dwlab.report import VALIDATED
from dwlab.study.run import LAYERS
from dwlab.text.commandline import whole
from dwlab.tuning import pruning, stages, strategies
from dwlab.tuning.pool import Pool
from dwlab.tuning.race import Out
from dwlab.tuning.search import FIRST, Found, SearchError, search
from dwlab.tuning.space import Space, Subject, listed, subject
from dwlab.tuning.worker import GpuLock, Remote, Worker, WorkerError

NETWORKS = VALIDATED
DTYPES = ("float32", "float16")
BATCHES = (1, 32)
ROWS = (  # of depthwise1d, beside the paper's: short and long rows, few and many taps
    DepthwiseConv1d(1024, 128, 48, 4),
    DepthwiseConv1d(256, 64, 1000, 15),
    DepthwiseConv1d(64, 64, 4096, 31, "same"),
)
LARGEST = 200
NEAR = 100
EACH = 8  # layers of an op, path and storage type
PROCESSES = 14
CANDIDATE_S = 120.0
"""For an answer, while others compile and take their turns: who has the GPU to itself has `worker.HELD_SECONDS`."""


@dataclass(frozen=True)
class Task:
    subject: Subject
    problem: Problem
    space: Space


def problems() -> Iterator[tuple[str, list[tuple[Problem, ...]]]]:
    """(path, layers) of every op, path and storage type: of the networks those of the largest share of their bytes
    first, the study's, and the sparse source's. A layer is its problems: of a sparse one each way to store it.
    """
    layers: dict[tuple[str, str, str], list[Problem]] = {}
    for dtype in DTYPES:
        for group in plan(("depthwise2d", "pointwise", "fused"), (dtype,), NETWORKS):
            here = layers.setdefault((*group.key[:2], dtype), [])
            here.append(variant(group.problem, BATCHES[len(here) % len(BATCHES)], "NHWC"))
        for key, both in LAYERS.items():
            mine = [one for one in both if one.layout == "NHWC" and one.dtype == dtype]
            layers.setdefault((*key, dtype), []).extend(mine)
    pruned = [SparsePointwise(**vars(one)) for one in layers.get(("pointwise", "forward", "float16"), ())]
    pruned += layers.pop(("sparse", "forward", "float16"), ())
    products = [one.problem for one in record_sparse.plan(layers=False)]
    for some in (pruned, *([one for one in products if one.layout == layout] for layout in LAYOUTS)):
        yield "forward", [pruning.storages(one) for one in some]
    for (_, path, _), some in layers.items():
        yield path, [(one,) for one in some]
    for path in ("forward", "weight_grad"):
        yield path, [(one,) for one in (PAPER, *ROWS)]


def tuned_there(problem: Problem, path: str, gpu: gpus.Gpu, options: bool = False) -> tuple[Subject, Space] | None:
    """What is tuned, as the head of this file says; None if no stage runs, or there is nothing to choose."""
    whole = subject(f"{problem.op}/{path}")
    if not (takers := whole.takers(problem, gpu)):
        return None
    if options:
        best = choices.ranking(problem, path, gpu.name or None, among=takers)[0]
        whole = subject(best.id + tuned.OPTIONS)
        return None if best.tiles is None else (whole, whole.space(problem, gpu))
    if len(found := whole.space(problem, gpu)) > LARGEST:
        ranked = choices.fastest(takers, problem, gpu=gpu.name or None)
        whole = subject(next(one for one in ranked if one.tiles is not None).id)
        found = near(whole.space(problem, gpu))
    return (whole, found) if len(found) > 1 else None


def near(found: Space) -> Space:
    """The shipped candidate of a space and the NEAR - 1 nearest to it, if it has more than LARGEST."""
    if len(found) <= LARGEST:
        return found
    here = sorted(found.candidates, key=lambda one: _away(one, found.candidates[0]))[:NEAR]
    left = {f"not among the {NEAR} nearest to the shipped tile": len(found) - len(here)}
    return replace(listed(here), rejected={**found.rejected, **left})


def _away(one: Candidate, other: Candidate) -> tuple[int, float]:
    """Parameters in which two candidates differ, and by how many doublings."""
    doublings = [abs(math.log2((1 + one[name]) / (1 + other[name]))) for name in one if one[name] != other[name]]
    return len(doublings), sum(doublings)


def planned(gpu: gpus.Gpu, each: int = EACH, only: Sequence[str] = (), options: bool = False) -> list[Task]:
    tasks: dict[tuple[str, Problem], Task] = {}
    for path, layers in problems():
        kept = 0
        for layer in layers:
            mine = [one for one in layer if not only or f"{layer[0].op}/{path}" in only]
            found = [(*its, one) for one in mine if (its := tuned_there(one, path, gpu, options))]
            for what, space, problem in found:
                tasks.setdefault((what.id, problem), Task(what, problem, space))
            kept += bool(found)
            if kept == each:
                break
    return list(tasks.values())


def sweep(
    tasks: Sequence[Task], pools: Callable[[Task], Pool], journal: Journal, key: Callable[[Task], Key], until: float
) -> Iterator[tuple[Task, Found | None, str]]:
    """Each task, as it is known, with what was found, or why nothing was. What a journal has is not measured again;
    what is not finished at `until`, of time.monotonic, goes on another time. Raises JournalError.
    """
    recorded, won = journal.keys(), {one.text for one, _ in journal.winners()}
    for task in tasks:
        its = key(task)
        known = dict(recorded[its.text][1]) if its.text in recorded else {}
        todo = [one for one in task.space.candidates if text(one) not in known]
        if not todo and its.text in won:
            yield task, None, "recorded before"
            continue
        pool = pools(task)
        try:
            for tried in pool.firsts(todo, 1 if pool.bench.exact else FIRST, until):
                journal.append(its, tried)
                known[text(tried.candidate)] = tried
            if len(known) < len(task.space) or time.monotonic() >= until:
                yield task, None, f"the time was over: {len(known)} of {len(task.space)}"
                continue
            found = search(task.space, pool.bench, strategies.exhaustive, journal=journal, key=its)
            if found.trouble:
                raise JournalError(f"{found.trouble}; {len(found.unsaved)} lines are lost")
            yield task, found, ""
        except (SearchError, WorkerError) as why:
            yield task, None, f"WRONG: {why}"


class Benches(Remote):
    """The bench of a process, of whatever sweep a request is: the first request of another one closes the last.

    A candidate is {"subject": id, "problem": Problem, "candidate": its own}. make: (id, problem) -> Bench.
    """

    def __init__(self, make: Callable[[str, Problem], Any]):
        self.make, self._of, self._open = make, None, None

    def open(self, request: Mapping[str, Any]) -> None:
        of = request["subject"], request["problem"]
        if of != self._of:
            getattr(self._open, "close", lambda: None)()
            self._of, self._open = None, None
            self._open = self.make(*of)
            self._of = of

    def _ask(self, what: str, request: Mapping[str, Any]) -> Any:
        self.open(request)
        return getattr(self._open, what)(request["candidate"])


def shared_bench(folder: str, lock: Any, subject: str, problem: Problem) -> stages.StageBench:
    """The bench of a process that shares the present GPU with others."""
    alone = study.GpuBench(machine=machine.present(), how=stages.ROUND, alone=lock)
    return stages.StageBench(subject, problem, bench=alone, folder=folder)


class There(Remote):
    """The bench of one sweep among those of a worker, which makes `Benches`."""

    def __init__(self, worker: Remote, task: Task):
        self.worker, self.exact, self.close = worker, worker.exact, worker.close
        self.asked = {"subject": task.subject.id, "problem": task.problem}

    def begin(self) -> None:
        self.worker.begin()
        try:
            self._ask("open", {})
        except Out as why:
            raise WorkerError(str(why)) from None

    def _ask(self, what: str, candidate: Candidate) -> Any:
        return self.worker._ask(what, self.asked | {"candidate": dict(candidate)})


def words(task: Task, found: Found | None, why: str) -> str:
    if found is not None:
        right = sum(one.ok for one in found.tried.values())
        gain = found.default_us / found.time_us - 1
        why = f"{right} of {len(found.tried)} right, the best {found.time_us:,.2f} µs, the default {gain:.1%} over it"
    return f"{task.subject.id} on {task.problem}, {len(task.space)} candidates: {why}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__, None)
    parser.add_argument("journal", nargs="?", type=Path, help="default: dwlab/records/tuning/GPU.jsonl")
    parser.limits(3600.0, min(PROCESSES, (os.cpu_count() or 2) - 1))
    parser.add_argument("--each", type=whole(1), default=EACH, help="layers of an op, path and type (%(default)s)")
    parser.each("--only", (), "only this OP/PATH")
    parser.add_argument("--options", action="store_true", help="the compiler's options in place of tiles")
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    options = parser.parse_args(arguments)
    plan_of = functools.partial(planned, each=options.each, only=options.only, options=options.options)
    if options.list:
        todo = plan_of(gpus.H200)
        for task in todo:
            print(f"{len(task.space):5,}  {task.subject.id:28}  {task.problem}")
        print(f"{len(todo)} problems, {sum(len(task.space) for task in todo):,} candidates on {gpus.H200.name}")
        return 0
    needs_gpu(options.journal.parent if options.journal else Path(tuned.FOLDER))
    here = gpus.at_hand()
    journal = Journal(options.journal or Path(tuned.FOLDER) / f"{here.name.lower().replace(' ', '-')}.jsonl")
    journal.check_writable()
    until, tasks = time.monotonic() + options.seconds, plan_of(here)
    rows, trouble, workers = [], "", []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.processes):
            lock = GpuLock(Path(folder) / "lock")
            bench = functools.partial(Benches, functools.partial(shared_bench, folder, lock))
            workers.append(Worker(bench, CANDIDATE_S, lock=lock))

        def pools(task: Task) -> Pool:
            return Pool([There(worker, task) for worker in workers])

        def key(task: Task) -> Key:
            return stages.key(task.subject, task.problem, task.space)

        try:
            for row in sweep(tasks, pools, journal, key, until):
                rows.append(row)
                print(words(*row), flush=True)
        except JournalError as error:
            trouble = str(error)
        Pool(workers).__exit__()
    print(journal.message())
    if trouble:
        raise SystemExit(trouble)
    done = [found for _, found, why in rows if found is not None or why == "recorded before"]
    return int(not done or any(why.startswith("WRONG") for _, _, why in rows))


if __name__ == "__main__":
    sys.exit(main())
