"""``python -m dwlab tune``: a search of a stage's tiles on a problem, a replay of one, or a report of many."""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dwlab.gpu import machine, specs, target
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import Problem, layers
from dwlab.records import terminal
from dwlab.records.journal import Journal, Key
from dwlab.tuning import replay, stages, strategies, t4, tables
from dwlab.tuning.search import Bench, Found, SearchError, search
from dwlab.tuning.space import Space, Subject, subject
from dwlab.tuning.tune import SWITCH, how, off
from dwlab.tuning.worker import Inline, Worker

LEAST, PART = 20, 0.05
"""Candidates that a search tries if nobody says how many: that part of the space, so many at least."""


class TuneError(ValueError):
    """A command that cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Task:
    """A space on a problem, the order of its model, what times of it hold for, and what they are, in words."""

    subject: Subject
    problem: Problem
    space: Space
    order: list[int]
    key: Key
    how: str


def main(args: argparse.Namespace) -> int:
    """0; 1 if every candidate failed; 2 if what was found could not be written (JSON lines on stderr). Errors of names,
    sizes, spaces, journals and files are raised.
    """
    if args.report is not None:
        from dwlab.tuning import report

        return report.main("" if args.report is True else args.report, args.json)
    what, problem = subject(args.stage), args.problem
    if args.dtype:
        problem = layers.stored(problem, args.dtype)
    if args.off or os.environ.get(SWITCH) == "off":
        return _default(what, problem, args)
    journal = Journal(args.journal) if args.journal else None
    if journal is not None and not args.replay:
        journal.check_writable()
    with _task(what, problem, args) as (task, bench):
        return _searched(task, bench, journal if not args.replay else None, args)


def _searched(task: Task, bench: Bench, journal: Journal | None, args: argparse.Namespace) -> int:
    chosen = strategies.named(args.strategy, args.seed, task.order)
    most = args.most
    if most is None and args.budget is None and args.strategy != "exhaustive":
        most = max(LEAST, math.ceil(PART * len(task.space)))
    if journal is not None and not journal.results(task.key) and journal.path.stat().st_size:
        _warn(f"nothing of {journal.path} holds here: {journal.why_not(task.key)}")
    if journal is not None:
        _warn(journal.message())
    total = min(most or len(task.space), len(task.space))
    what = tables.unit(Found(task.space, 0, how=task.how))
    with terminal.progress(total, "candidate") as step:
        try:
            found = search(
                task.space, bench, chosen, most=most, seconds=args.budget or math.inf, journal=journal, key=task.key,
                progress=lambda place, best: step(f"best {best:,.4g} {what}" if math.isfinite(best) else "none yet"),
            )  # fmt: skip
        except SearchError as error:
            return _none(error, args)
    found.how = task.how
    title = f"{task.subject.id} on {task.problem}"
    if args.plot:
        tables.plot(found, args.plot, title)
    if args.t4:
        t4.write(args.t4, task.key, found.tried.values())
    if args.json:
        print(tables.as_json(found, **_head(task.subject, task.problem), strategy=args.strategy, seed=args.seed))
    else:
        print(f"{title}\n{tables.summary(found, terminal.width())}")
    if written := [one for one in (args.plot, args.t4) if one]:
        terminal.wrote(*written)
    if found.unsaved:
        _warn(f"{found.trouble}. The {len(found.unsaved)} lines that it lacks follow:")
        sys.stderr.write("".join(line.decode() for line in found.unsaved))
        return 2
    return 0


def _none(error: SearchError, args: argparse.Namespace) -> int:
    """Every candidate failed: which, and why."""
    _warn(f"every candidate failed, none of {len(error.found.tried) if error.found else 0} is right")
    if error.found is not None:
        if args.json:
            error.found.winner = 0
            print(tables.as_json(error.found, failed=True))
        else:
            print(tables.rejected(error.found, terminal.width()))
    return 1


def _default(what: Subject, problem: Problem, args: argparse.Namespace) -> int:
    """The off switch: nothing is searched."""
    gpu = _gpu(args)
    found = what.space(problem, gpu)  # refuses what cannot be tuned
    tile = what.default(problem, gpu, measured=True)
    made = off(Space(found.parameters, (tile,), {}))
    made.how = f"nothing was searched ({'--off' if args.off else SWITCH + '=off'}): the shipped default is taken, "
    made.how += what.stages[0].why_config(problem, gpu) if what.is_stage else "the stage of least expected time"
    if args.json:
        print(tables.as_json(made, **_head(what, problem)))
    else:
        print(f"{what.id} on {problem}\n{made.how[0].upper()}{made.how[1:]}.\n{tables.name(tile, found)}")
    return 0


@contextlib.contextmanager
def _task(what: Subject, problem: Problem, args: argparse.Namespace) -> Iterator[tuple[Task, Bench]]:
    """What is to be searched and a bench for it: a replay, the present GPU in another process, or the interpreter."""
    if args.replay:
        gpu = specs.find(args.gpu).name if args.gpu else ""
        journal = Journal(args.replay)
        if not journal.path.exists():
            raise TuneError(f"there is no journal {args.replay}: record one with --strategy exhaustive --journal FILE")
        key, sweep = replay.find(journal, what.id, str(problem), problem.dtype, gpu)
        _warn(journal.message())
        if key.kernel != what.digest:
            _warn(f"{args.replay}: {what.id} is another kernel today than the one that was recorded")
        here = replay.gpu_of(key)
        found = replay.recorded_space(sweep.tried, what.default(problem, here))
        task = Task(what, problem, found, what.order(problem, found, here), key, "")
        yield replace(task, how=f"replayed from {args.replay}; {how(key)}"), replay.Sweep(found, sweep.tried.values())
        return
    gpu = _gpu(args)
    found = what.space(problem, gpu)  # what cannot be tuned is refused as it was given
    if target.mode == "gpu":
        key = stages.key(what, problem, found)
        task = Task(what, problem, found, what.order(problem, found, gpu), key, how(key))
        with Worker(functools.partial(stages.StageBench, what.id, problem)) as worker:
            yield task, worker
        return
    short, small = args.gpu or "h200", stages.runnable(what, problem, gpu)
    found = what.space(small, gpu)
    key = stages.key(what, small, found, short)
    how_so = how(key) + (f", on {small} in place of {problem}" if small != problem else "")
    task = Task(what, small, found, what.order(small, found, gpu), key, how_so)
    with contextlib.closing(stages.StageBench(what, small, short)) as bench:
        yield task, Inline(bench)


def _gpu(args: argparse.Namespace) -> gpus.Gpu:
    """The GPU whose tiles are searched: the present one, which --gpu may name; without one, any, by default an H200."""
    named = specs.find(args.gpu) if args.gpu else None
    if target.mode != "gpu":
        return gpus.of(named) if named else gpus.at_hand()
    here = machine.present().name
    if named is not None and named.name != here:
        raise TuneError(
            f"--gpu {args.gpu}: this machine has {here}; what others measured is replayed with --replay FILE"
        )
    return gpus.at_hand()


def _head(what: Subject, problem: Problem) -> dict[str, Any]:
    return {"stage": what.id, "problem": str(problem), "dtype": problem.dtype}


def _warn(message: str) -> None:
    if message:
        print(f"dwlab: {terminal.plain(message)}", file=sys.stderr)
