"""``python -m dwlab tune``: a search of a stage's tiles on a problem, or a replay of one."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import math
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwlab.gpu import machine, specs, target
from dwlab.kernels.command import is_own, own_kernel, problem_of, whole_id
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.problems import Problem, layers
from dwlab.records.journal import Journal, Key
from dwlab.study import GpuBench
from dwlab.text import commandline, terminal
from dwlab.tuning import pool, replay, stages, strategies, tables
from dwlab.tuning.search import Bench, Firsts, Found, SearchError, search
from dwlab.tuning.space import Space, Subject, subject
from dwlab.tuning.tune import how, off, tune
from dwlab.tuning.worker import SECONDS, GpuLock, Inline, Worker

LIMITS = ("candidate_seconds", "candidate_gigabytes")
LEAST, PART = 20, 0.05
"""Candidates that a search tries if nobody says how many: that part of the space, so many at least."""


class TuneError(ValueError):
    """A command that cannot be carried out; the message says why."""


@dataclass(frozen=True)
class Task:
    """A space on a problem, what its model predicts, what times of it hold for, and what they are, in words."""

    subject: Subject
    problem: Problem
    space: Space
    predicted: Sequence[float]
    key: Key
    how: str


def register(command: commandline.Register) -> None:
    """Adds `tune`."""
    examples = (
        "examples: python -m dwlab tune pointwise/forward/tensor 'PW 64→128 @56' --journal mine.jsonl\n"
        "          python -m dwlab tune fused/dwpw/slide --most 8\n"
        "          python -m dwlab tune fused/dwpw/slide@options     the compiler's options for its tile"
    )
    add = command("tune", main, examples).add_argument
    most = "candidates (default: a twentieth of them, 20 at least; exhaustive and with --budget all)"
    order = (
        "in which order: model (by predicted cost and what it has measured, the default), random, exhaustive or optuna"
    )
    add(
        "stage",
        metavar="OP/PATH/STAGE",
        help=f"{commandline.STAGE}; or OP/PATH, all stages of a path; or FILE.py:MAKE",
    )
    add("problem", metavar="PROBLEM", nargs="?", help=f"{commandline.LAYERS} (default: a small layer)")
    add("--dtype", metavar="TYPE", help="float32, float16, bfloat16 or int8, in place of the problem's")
    add("--budget", type=commandline.positive, metavar="S", help="about so many seconds")
    add("--most", type=commandline.whole(1), metavar="N", help=most)
    add("--strategy", default="model", metavar="NAME", help=order)
    add("--seed", type=commandline.whole(), default=0, metavar="N", help="of random and optuna (default: 0)")
    add("--journal", metavar="FILE", help="keep what was tried there, and go on from it")
    add("--replay", metavar="FILE", help="search a recorded sweep, a journal, in place of a GPU")
    add("--gpu", metavar="NAME", help="without a GPU: whose tiles and ceilings, or whose sweep")
    add("--gpus", metavar="N,N", help="several GPUs of this machine, as CUDA_VISIBLE_DEVICES names them")
    add("--cluster", metavar="ADDRESS", help="the GPUs of a Dask scheduler's workers, such as tcp://a:8786")
    add("--candidate-seconds", type=commandline.positive, metavar="S", help=f"for each answer (default: {SECONDS:g})")
    add("--candidate-gigabytes", type=commandline.positive, metavar="N", help="of memory for a candidate's process")
    add("--off", action="store_true", help="search nothing: say which tile is shipped, and why")


def main(args: argparse.Namespace) -> int:
    """Tries a stage's tiles, or the stages of a path, on a problem: each is checked with poisoned
    outputs, timed, and checked again; the fastest race, round by round, until one is left. They run
    in another process, so one that hangs or crashes costs itself alone. Without a GPU no time is
    measured: they are compared by what the interpreter counts on a small problem, or a recorded
    sweep is replayed.
    DWLAB_TUNE=off in the environment is --off; dwlab/records/tuning/ and the journal or folder that
    DWLAB_JOURNAL names decide which tile a launch gets. Status 1 if every candidate failed.
    For a kernel of your own: FILE.py:MAKE, a function of a candidate that returns (kernel, grid,
    block), beside `parameters` (parameter -> values), example() and want() as `check` has them; in
    Python dwlab.tune(make, parameters, reference=…, args=…).
    """
    if is_own(args.stage):
        return _own(args)
    what = subject(whole_id(args.stage))
    problem = problem_of(what.stages[0], args.problem, "small")
    if args.dtype:
        problem = layers.stored(problem, args.dtype)
    if args.off or os.environ.get(tuned.SWITCH) == "off":
        return _default(what, problem, args)
    journal = Journal(args.journal) if args.journal else None
    if (args.gpus or args.cluster) and (args.replay or args.strategy == "optuna"):
        raise TuneError("several GPUs are for the strategies model, random and exhaustive, and not for a replay")
    with _task(what, problem, args) as (task, bench, firsts):
        return _searched(task, bench, firsts, journal if not args.replay else None, args)


def _searched(
    task: Task, bench: Bench, firsts: Firsts | None, journal: Journal | None, args: argparse.Namespace
) -> int:
    chosen = strategies.named(args.strategy, args.seed, task.predicted)
    most = args.most
    if most is None and args.budget is None and args.strategy != "exhaustive":
        most = max(LEAST, math.ceil(PART * len(task.space)))
    if journal is not None:
        journal.check_writable(task.key)
        if not journal.results(task.key) and journal.keys():
            _warn(f"nothing of {journal.path} holds here: {journal.why_not(task.key)}")
        _warn(journal.message())
    total = min(most or len(task.space), len(task.space))
    what = tables.unit(Found(task.space, 0, counted=task.key.counted))
    with terminal.progress(total, "candidate") as step:

        def progress(place: int, best: float) -> None:
            step(f"best {best:,.4g} {what}" if math.isfinite(best) else "none is right yet")

        failed = False
        try:
            found = search(
                task.space, bench, chosen, most=most, seconds=args.budget or math.inf, journal=journal, key=task.key,
                progress=progress, firsts=firsts,
            )  # fmt: skip
        except SearchError as error:
            found, failed = error.found, True
            found.winner = 0
    found.how, found.counted = task.how, task.key.counted
    head = _head(task.subject, task.problem) | {"strategy": args.strategy, "seed": args.seed}
    return _shown(found, failed, f"{task.subject.id} on {task.problem}", head, args)


def _own(args: argparse.Namespace) -> int:
    """A search for a kernel of one's own: of FILE.py its make(candidate), `parameters`, example() and want()."""
    for name in ("problem", "dtype", "replay", "gpu", "gpus", "cluster", "off", *LIMITS):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}" if name != "problem" else name
            raise TuneError(f"{option} goes with a stage, not with {args.stage}")
    make, _, _, given, want, module = own_kernel(args.stage, "want")
    if (parameters := getattr(module, "parameters", None)) is None:
        example = "parameters = {'block': (64, 128)}"
        raise TuneError(f"{module.__file__} has no `parameters`: write parameter -> values, such as {example}")
    failed = False
    how = {"strategy": args.strategy.replace("model", "exhaustive"), "seed": args.seed}  # there is no model of it
    bounds = {"most": args.most, "seconds": args.budget or math.inf}
    with contextlib.redirect_stdout(sys.stderr):  # make, want and kernel may print
        try:
            found = tune(make, parameters, reference=want, args=given, journal=args.journal, **how, **bounds)
        except SearchError as error:
            found, failed = error.found, True
            found.winner, found.counted = 0, target.mode != "gpu"
    return _shown(found, failed, args.stage, {"kernel": args.stage} | how, args)


def _shown(found: Found, failed: bool, title: str, head: dict[str, Any], args: argparse.Namespace) -> int:
    """Prints what a search found, or that every candidate failed; the exit status."""
    if failed:
        _warn(f"every candidate failed, none of {len(found.tried)} is right")
    if args.json:
        print(tables.as_json(found, **head, **({"failed": True} if failed else {})))
    else:
        shown = tables.rejected(found, terminal.width()) if failed else tables.summary(found, terminal.width())
        print(shown if failed else f"{title}\n{shown}")
    if found.unsaved:
        _warn(f"{found.trouble}. The {len(found.unsaved)} lines that it lacks follow:")
        sys.stderr.write("".join(line.decode() for line in found.unsaved))
    return 1 if failed else 2 if found.unsaved else 0


def _default(what: Subject, problem: Problem, args: argparse.Namespace) -> int:
    """The off switch: nothing is searched."""
    gpu = _gpu(args)
    found = what.space(problem, gpu)  # refuses what cannot be tuned
    tile = what.default(problem, gpu, measured=True)
    made = off(Space(found.parameters, (tile,), {}))
    made.how = (
        f"nothing was searched ({'--off' if args.off else tuned.SWITCH + '=off'}): the shipped default is taken, "
    )
    made.how += what.stages[0].why_config(problem, gpu) if what.is_stage else "the stage of least expected time"
    if args.json:
        print(tables.as_json(made, **_head(what, problem)))
    else:
        print(f"{what.id} on {problem}\n{made.how[0].upper()}{made.how[1:]}.\n{tables.name(tile, found)}")
    return 0


@contextlib.contextmanager
def _task(what: Subject, problem: Problem, args: argparse.Namespace) -> Iterator[tuple[Task, Bench, Firsts | None]]:
    """The task, a bench for it and, of several GPUs, the function that measures first rounds.

    A replay; a cluster's workers; processes for GPUs of this machine, one if none is named; or the interpreter, here.
    """
    if args.replay:
        yield *_replayed(what, problem, args), None
        return
    short, limits = args.gpu or "h200", (args.candidate_seconds or SECONDS, args.candidate_gigabytes or math.inf)
    make = functools.partial(_bench_there, what.id, problem, short)
    key = functools.partial(stages.there, what.id, problem, short)
    if args.cluster:
        with _client(args.cluster) as client:
            task = _here(what, problem, pool.key(client, key), short)
            with pool.of_cluster(client, make, *limits) as several:
                several.bench.exact = task.key.counted
                yield task, several.bench, several.firsts
        return
    _gpu(args)
    task = _here(what, problem, key(), short)
    if args.gpus:
        left = args.gpus.split(",")
        if target.mode == "gpu":
            taken = pool.busy(left)
            _warn("; ".join(f"GPU {one} is left out: {why}" for one, why in taken.items()))
            if not (left := [one for one in left if one not in taken]):
                raise TuneError(f"--gpus {args.gpus}: somebody else uses all of them")
        processes = pool.processes(len(left)) if target.mode == "gpu" else 1
        with pool.of_machine(make, left, *limits, processes) as several:
            several.bench.exact = task.key.counted
            yield task, several.bench, several.firsts
    elif target.mode == "gpu" or any(getattr(args, name) for name in LIMITS):
        with Worker(make, limits[0], gigabytes=limits[1]) as worker:
            worker.begin()
            worker.exact = task.key.counted
            yield task, worker, None
    else:
        with contextlib.closing(make()) as bench:
            yield task, Inline(bench), None


def _bench_there(id: str, problem: Problem, gpu: str, lock: GpuLock | None = None) -> stages.StageBench:
    """The bench of what `stages.there` says of this process. lock: of a GPU that it shares."""
    there, how = _problem_of(stages.there(id, problem, gpu)), {"how": stages.ROUND, "alone": lock}
    alone = GpuBench(machine=machine.present(), **how) if lock and target.mode == "gpu" else None
    return stages.StageBench(id, there, gpu, alone)


def _shipped() -> list[Path]:
    """Journals whose sweeps correct the model's order."""
    return tuned.journals(tuned.FOLDER) if Path(tuned.FOLDER).is_dir() else []


def _problem_of(key: Key) -> Problem:
    return layers.stored(layers.problem(key.problem), key.dtype)


def _here(what: Subject, problem: Problem, key: Key, short: str) -> Task:
    """The task of a key. short: whose tiles, if no GPU measures."""
    gpu = gpus.of(specs.find(short)) if key.counted else replay.gpu_of(key)
    taken = _problem_of(key)
    found = what.space(taken, gpu)
    how_so = how(key) + (f", on {taken} in place of {problem}" if taken != problem else "")
    return Task(what, taken, found, what.predicted(taken, found, gpu, seen=replay.seen(_shipped())), key, how_so)


def _replayed(what: Subject, problem: Problem, args: argparse.Namespace) -> tuple[Task, Bench]:
    journal = Journal(args.replay)
    if not journal.exists:
        raise TuneError(f"there is no journal {args.replay}: record one with --strategy exhaustive --journal FILE")
    gpu = specs.find(args.gpu).name if args.gpu else ""
    key, sweep = replay.find(journal, what.id, str(problem), problem.dtype, gpu)
    _warn(journal.message())
    if key.kernel != what.digest:
        _warn(f"{args.replay}: {what.id} is another kernel today than the one that was recorded")
    here = replay.gpu_of(key)
    shipped = what.default(problem, here)
    found = replay.recorded_space(sweep.tried, shipped)
    predicted = what.predicted(problem, found, here, seen=replay.seen(_shipped(), problem))
    how_so = f"replayed from {args.replay}; {how(key)}"
    if found.candidates[0] != shipped:
        how_so += "; the tile that ships today is not among the candidates: the first recorded is called the default"
    task = Task(what, problem, found, predicted, key, how_so)
    return task, replay.Sweep(found, sweep.tried.values())


@contextlib.contextmanager
def _client(address: str) -> Iterator[Any]:
    """A client of Dask's scheduler there. Raises TuneError."""
    if importlib.util.find_spec("distributed") is None:
        raise TuneError("--cluster needs Dask, which is not installed: pip install '.[cluster]'")
    from distributed import Client

    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise TuneError(f"--cluster {address}: no scheduler answers there ({type(error).__name__})") from None
    with client:
        yield client


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
