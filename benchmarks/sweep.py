"""Whole sweeps of tuning spaces on a GPU: ``python benchmarks/sweep.py [JOURNAL] [--seconds S]``.

Every candidate of a list of problems, checked, timed and raced (dwlab.tuning, strategy exhaustive), into one journal a
GPU: dwlab/records/tuning/GPU.jsonl if none is given. Searches are then compared on it without a GPU (`python -m dwlab
tune --report`), and its winners are the tiles that launches get. Of each op, path and storage type come the layers of
the image networks with the largest share of their network's bytes, at batch 1 and 32, and the study's problems; what
is tuned is the stage that runs there, if it has a choice of tiles, else all stages of the path.

Problems of least expected time come first: candidates times the least time of the problem. What the journal has already
is not measured again, so who interrupts it, or whose time is over, goes on later. Several processes compile, and one at
a time uses the GPU; the races come last. The last table has the sweeps, and what was left out. Exit status 1 if a
problem had no right candidate or nothing was measured.

examples: sweep.py --seconds 540
          sweep.py --list                 what would be measured, in which order; needs no GPU
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recording import Parser, at_least, needs_gpu, said, shared, taken

from dwlab import study
from dwlab.gpu import machine, specs
from dwlab.kernels import choices
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.problems import PAPER, DepthwiseConv1d, Problem, networks
from dwlab.records import tabular
from dwlab.records.journal import Candidate, Journal, Key, Tried, text
from dwlab.report import VALIDATED
from dwlab.study.run import LAYERS
from dwlab.tuning import replay, stages, strategies
from dwlab.tuning.search import Bench, Found, SearchError, first, search
from dwlab.tuning.space import Space, Subject, subject
from dwlab.tuning.worker import Inline, Lost

NETWORKS = VALIDATED
DTYPES = ("float32", "float16")
BATCHES = (1, 32)
ROWS = (  # of depthwise1d, beside the paper's: short and long rows, few and many taps
    DepthwiseConv1d(1024, 128, 48, 4),
    DepthwiseConv1d(256, 64, 1000, 15),
    DepthwiseConv1d(64, 64, 4096, 31, "same"),
)
EACH_S = 0.15  # of a candidate beside its rounds, with several processes that compile; about
AT_ONCE = 16  # candidates of a part
RACES = 0.35  # of the time of large sweeps
ROUNDS = 20  # of a candidate, about: most have three


@dataclass(frozen=True)
class Task:
    """A sweep: what is tuned, the problem, its space, and about how long it takes."""

    subject: Subject
    problem: Problem
    space: Space
    seconds: float

    @property
    def who(self) -> tuple[str, Problem]:
        """What tells it from the others."""
        return self.subject.id, self.problem


# ------------------------------------------------------------------------------------------------------- the problems


def problems(each: int = 3) -> list[tuple[str, str, Problem]]:
    """(op, path, problem) of every op and path: so many layers of the networks of each batch and storage type, those of
    the largest share of their network's bytes, and the study's.
    """
    found: dict[Problem, tuple[str, str]] = {}
    rows = [("depthwise1d", path, one) for path in ("forward", "weight_grad") for one in (PAPER, *ROWS)]
    for dtype, batch in itertools.product(DTYPES, BATCHES):
        shares: dict[tuple[str, str], dict[Problem, float]] = {}
        for name in NETWORKS:
            for problem, share in _of_network(name, batch, dtype):
                here = shares.setdefault((problem.op, problem.main_path), {})
                here[problem] = here.get(problem, 0.0) + share
        for key, here in shares.items():
            largest = sorted(here, key=lambda one: (-here[one], str(one)))[:each]
            found |= dict.fromkeys(largest, key)
    for (op, path), both in LAYERS.items():
        found |= {one: (op, path) for one in both if one.layout == "NHWC"}
    return rows + [(op, path, problem) for problem, (op, path) in found.items()]


def _of_network(name: str, batch: int, dtype: str) -> Iterator[tuple[Problem, float]]:
    """Its layers and the pairs that may share a kernel, with their share of the bytes of all layers."""
    network = networks.network(name, batch, "NHWC", dtype)
    total = sum(one.compulsory_bytes(one.main_path) for names, one in network.kernels.items() if len(names) == 1)
    for one in network.kernels.values():
        yield one, one.compulsory_bytes(one.main_path) / total


def tuned_there(op: str, path: str, problem: Problem, gpu: gpus.Gpu) -> tuple[Subject, Space] | None:
    """The stage that is expected to be fastest, if it has a choice of tiles; else the path; None if no stage runs."""
    whole = subject(f"{op}/{path}")
    takers = whole.takers(problem, gpu)
    if not takers:
        return None
    first = subject(choices.fastest(takers, problem, gpu=gpu.name or None)[0].id)
    if first.stages[0].tiles is not None and len(space := first.space(problem, gpu)) > 1:
        return first, space
    return whole, whole.space(problem, gpu)


def planned(gpu: gpus.Gpu, each: int = 3) -> list[Task]:
    """The sweeps, those of least expected time first."""
    ceilings = specs.find(gpu.name or "h200").ceilings.to_dict()
    found = []
    for op, path, problem in problems(each):
        chosen = tuned_there(op, path, problem, gpu)
        if chosen is None or len(chosen[1]) == 1:
            continue
        what, space = chosen
        least = choices.least_us(problem.compulsory_bytes(path), problem.flops_of(path), ceilings)
        # A round takes 10 ms or a launch, whichever is longer; candidates take a few times the least.
        seconds = len(space) * (EACH_S + ROUNDS * max(stages.ROUND["min_seconds"], 3e-6 * least))
        found.append(Task(what, problem, space, seconds))
    return sorted(found, key=lambda one: (one.seconds, one.subject.id, str(one.problem)))


# ------------------------------------------------------------------------------------------------------- measuring


@dataclass(frozen=True)
class Part:
    """Candidates of a sweep that are checked and timed by one process; none: what is left of it, and its race."""

    id: str
    problem: Problem
    space: Space
    key: Key
    candidates: tuple[Candidate, ...] = ()


def parts(task: Task, key: Key, journal: Journal) -> list[Part]:
    """What of a sweep a journal does not have yet, in parts; none where its race has so few left to measure."""
    known = journal.results(key)
    missing = [one for one in task.space.candidates if text(one) not in known]
    if len(missing) <= AT_ONCE:
        return []
    return [
        Part(task.subject.id, task.problem, task.space, key, tuple(missing[i : i + AT_ONCE]))
        for i in range(0, len(missing), AT_ONCE)
    ]


def on_gpu(part: Part, gpu: Any) -> contextlib.AbstractContextManager[Bench]:
    """The bench of a process that shares the GPU with others: it holds the lock while it uses it."""
    alone = study.GpuBench(machine=machine.present(), how=stages.ROUND, alone=gpu)
    return contextlib.closing(stages.StageBench(part.id, part.problem, bench=alone))


def work(todo: Any, results: Any, gpu: Any, path: Path, bench: Callable[[Part, Any], Any] = on_gpu) -> None:
    """A process: (part, what was found, why nothing) of each part; it compiles while others use the GPU."""
    journal = Journal(path)
    for part in taken(todo):
        found, why = None, ""
        try:
            with bench(part, gpu) as made:
                one, best = Inline(made), math.inf
                for candidate in part.candidates:
                    tried = first(candidate, one, best)
                    journal.append(part.key, tried)
                    best = min(best, statistics.median(tried.times_us) if tried.ok else math.inf)
                if not part.candidates:
                    found = search(part.space, one, strategies.exhaustive, journal=journal, key=part.key)
        except SearchError as error:
            why = f"WRONG: {error}"
        except Exception as error:  # the GPU's context is lost, or a file cannot be written: this process ends
            if isinstance(error, Lost):  # the next one does not try it again
                journal.append(part.key, Tried(error.candidate, "crashed", str(error)))
            results.put(f"{part.id} on {part.problem}: {said(error)}")
            return
        results.put((part, found, why))


def swept(
    tasks: Sequence[Task],
    journal: Journal,
    key: Callable[[Task], Key],
    dealt: Callable[[list[Part], float], Iterable[Any]],
    seconds: float,
) -> list[tuple[Task, Found | None, str]]:
    """(task, what was found, why nothing) of each task: small sweeps by a process each, then large ones in parts.

    dealt(parts, seconds): what `work` makes of parts in that time, a text for a process that ended early.
    """
    until = time.monotonic() + seconds
    keys = {task.who: key(task) for task in tasks}
    rows: dict[tuple[str, Problem], tuple[Task, Found | None, str]] = {}
    for task in tasks:
        one = keys[task.who]
        if journal.winner(one) is not None and replay.is_whole(one, journal.results(one)):
            rows[task.who] = (task, None, "recorded before")

    def made(todo: list[Part], seconds: float) -> Iterator[Any]:
        for number, answer in enumerate(dealt(todo, seconds) if todo and seconds > 0 else (), 1):
            if isinstance(answer, str):
                print(answer, flush=True)
                continue
            print(f"{number} of {len(todo)}: {answer[0].id} on {answer[0].problem}", flush=True)
            yield answer

    def race(seconds: float) -> None:
        """Those sweeps of which so much is measured that one process does the rest."""
        ready = {task.who: task for task in tasks if task.who not in rows and not parts(task, keys[task.who], journal)}
        for part, found, why in made([Part(*who, task.space, keys[who]) for who, task in ready.items()], seconds):
            if found is not None and found.trouble:
                raise SystemExit(f"{found.trouble}; {len(found.unsaved)} lines are lost")
            rows[part.id, part.problem] = (ready[part.id, part.problem], found, why)

    race(seconds)
    todo = [part for task in tasks if task.who not in rows for part in parts(task, keys[task.who], journal)]
    for _ in made(todo, (1 - RACES) * (until - time.monotonic())):
        pass
    race(until - time.monotonic())
    for task in tasks:
        tried = len(journal.results(keys[task.who]))
        rows.setdefault(task.who, (task, None, f"the time was over: {tried} of {len(task.space)}"))
    return list(rows.values())


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
    parser.limits(3600.0, min(14, (os.cpu_count() or 2) - 1))
    parser.add_argument(
        "--each", type=at_least(1), default=3, help="layers of an op, path, batch and type (default: 3)"
    )
    parser.add_argument("--list", action="store_true", help="only say what would be measured")
    options = parser.parse_args(arguments)
    if options.list:
        tasks = planned(gpus.H200, options.each)
        for task in tasks:
            print(f"{task.seconds:8,.0f} s  {len(task.space):5,}  {task.subject.id:28}  {task.problem}")
        print(f"{len(tasks)} problems, {sum(task.seconds for task in tasks):,.0f} s, about, on {gpus.H200.name}")
        return 0
    needs_gpu(options.journal.parent if options.journal else Path(tuned.FOLDER))
    here = gpus.at_hand()
    name = here.name.lower().replace(" ", "-")
    journal = Journal(options.journal or Path(tuned.FOLDER) / f"{name}.jsonl")
    journal.check_writable()

    def dealt(todo: list[Part], seconds: float) -> Iterable[Any]:
        return shared(work, todo, (journal.path,), options.processes, seconds)

    tasks = planned(here, options.each)
    rows = swept(
        tasks, journal, lambda task: stages.key(task.subject, task.problem, task.space), dealt, options.seconds
    )
    print(table(rows), journal.message(), sep="\n")
    done = [found for _, found, why in rows if found is not None or why == "recorded before"]
    return int(not done or any(why.startswith("WRONG") for _, _, why in rows))


if __name__ == "__main__":
    sys.exit(main())
