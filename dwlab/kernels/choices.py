"""The chooser: which stages run a problem on a GPU, the fastest first, and with which tile.

`ranking` is the one answer for dispatch, inference and its plans. What was measured comes first: times of this machine;
then what a search over all stages of the path found; then the newest recorded run of the problem, or of one that
differs only in bias, activation and residual; then what stages took on the recorded problems most like it.
`Stage.config` has the stage's tile.

A time is taken as so many times the least that the problem could take: a launch, its bytes at the speed of a copy, its
products at the rate of multiply-adds. On a problem that was not timed a stage is expected to take as many times that as
on those most like it: the mean of the logarithms over the NEAREST that it was timed on, the nearer counting more; of a
problem on which SEVERAL were timed, as many times the fastest there. A problem that was timed itself counts alone. A
path and its mirror (MIRROR) rank alike: by the mean of both paths' times, and stages of both are compared on the same
problems, on which all of them were timed. Times of the GPU at hand if it has any of this storage type, else of
records.SHOWN: what carries over is which stage wins, not its time.

A stage that was never timed is behind all that were, so a new file changes no choice until `benchmarks/shapes.py` has
timed it. Where none was timed, the fewest bytes that their formulas say decide, and naive comes last: of many taps its
formula takes minutes. The order of files decides nothing.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean
from typing import Any

import numpy as np

from dwlab import records
from dwlab.gpu import machine
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import recorded as recorded_tiles
from dwlab.kernels.tiling import tuned
from dwlab.problems import DepthwiseConv1d, Problem, storage
from dwlab.records import Measurement, Record

NEAREST = 8
SAME = 1e-3
"""Squared distance below which problems count as the same."""
SOFT = 0.1
"""Added to squared distances, so that the very nearest does not count alone."""

FAR = 0.01
"""Added to what a stage of depthwise1d is expected to take for each unit of squared distance that its nearest problem
is farther than any stage's: `strips` looked too good from afar on rows of 4. Drawn shapes left out choose best so."""

WEIGHTS = {"B": 0.7, "H": 1.0, "L": 1.0, "K": 0.8}
"""Distance of a factor of 2 in depthwise1d's sizes: drawn shapes choose well so without times of their own."""

SEVERAL = 3
"""Stages timed on a problem from which how far each is from the fastest counts, not its time: all may be slow there."""

MIRROR = {"forward": "input_grad", "input_grad": "forward"}
"""Paths of depthwise1d that are one operator, the filter reversed: stages of a name take about as long."""

PAIR = "input_grad, weight_grad"
"""The id of both gradients by two stages, one after the other, the fastest of each."""

LAUNCH_US = 1.5
"""The time of an empty kernel in a CUDA graph, about: a part of the least time."""


@dataclass(frozen=True)
class Sample:
    """One problem on one GPU: its place among problems, and of stages how many times the least time they took.

    taken: id -> the logarithm of that.
    """

    gpu: str
    place: tuple[float, ...]
    words: tuple[str, ...]
    taken: Mapping[str, float]


def place_of(problem: Any, dtype: str) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """(numbers, words) of a problem or of a record's description of one: logarithms of its sizes, all else in words."""
    fields = records.describe_problem(problem)
    if set(WEIGHTS) <= set(fields):
        return tuple(weight * math.log2(fields[name]) for name, weight in WEIGHTS.items()), (dtype,)
    text = " ".join(str(value) for value in fields.values())
    numbers = re.findall(r"\d+", text)
    return tuple(math.log2(1 + int(one)) for one in numbers), (*re.sub(r"\d+", "", text).split(), dtype)


def least_us(moved: float, flops: float, ceilings: Mapping[str, Any]) -> float:
    """The least time of a problem of so many bytes and floating-point operations."""
    arithmetic = flops / (1e6 * (ceilings.get("fma_tflops") or math.inf))
    return LAUNCH_US + moved / (1e3 * ceilings["copy_gbps"]) + arithmetic


def _timed(run: Record) -> Iterator[tuple[Any, ...]]:
    """The times of a run: op, path, problem, storage type, stage's id -> µs; and the problem's bytes and operations."""
    for row in run.measurements:
        yield row.op, row.path, row.problem, row.dtype, {row.id: row.time_us}, row.compulsory_bytes, row.flops
    for one in (*run.sections.get("grid", ()), *run.sections.get("shapes", ())):
        problem, op, path = DepthwiseConv1d(**one["problem"], dtype=one["dtype"]), one["op"], one["path"]
        times = one.get("times") or {}
        if one.get("time_us"):  # of the grid
            times = {f"{op}/{path}/{one['stage']}": one["time_us"]}
        times = {PAIR if "," in id else id: us for id, us in times.items()}
        yield op, path, problem, problem.dtype, times, problem.compulsory_bytes(path), problem.flops_of(path)


def samples(runs: Iterable[Record]) -> dict[tuple[str, str], list[Sample]]:
    """Samples by op and path: of each stage, problem and GPU the newest time. runs: the oldest first."""
    found: dict[Any, dict[str, float]] = {}
    for run in runs:
        here: dict[Any, dict[str, float]] = {}
        least: dict[Any, float] = {}
        for op, path, problem, dtype, times, *work in _timed(run):
            key = op, path, *place_of(problem, dtype)
            here.setdefault(key, {}).update(times)
            least[key] = least_us(*work, run.ceilings)
        for (op, path, *rest), times in here.items():
            unfused = [here.get((op, one, *rest)) for one in PAIR.split(", ")]
            if path == "backward" and PAIR not in times and all(unfused):
                times[PAIR] = sum(min(one.values()) for one in unfused)
            taken = {id: math.log(us / least[op, path, *rest]) for id, us in times.items()}
            found.setdefault((run.gpu, op, path, *rest), {}).update(taken)
    alike: dict[Any, dict[str, list[float]]] = {}
    for (gpu, op, path, *rest), taken in found.items():
        for one in (path, MIRROR[path]) if op == "depthwise1d" and path in MIRROR else (path,):
            both = alike.setdefault((gpu, op, one, *rest), {})
            for id, value in taken.items():
                both.setdefault(id.replace(path, one), []).append(value)
    made: dict[tuple[str, str], list[Sample]] = {}
    for (gpu, op, path, *rest), each in alike.items():
        made.setdefault((op, path), []).append(Sample(gpu, *rest, {id: fmean(ones) for id, ones in each.items()}))
    return made


def of_rows(rows: Iterable[Measurement]) -> dict[tuple[str, str], list[Sample]]:
    """Samples of measurements."""
    runs: dict[tuple[str, str], list[Measurement]] = {}
    for row in rows:
        runs.setdefault((row.date, row.gpu), []).append(row)
    return samples(
        Record("", {"gpu": gpu}, {"copy_gbps": runs[date, gpu][0].copy_gbps}, tuple(runs[date, gpu]))
        for date, gpu in sorted(runs)
    )


@functools.cache
def recorded(op: str) -> dict[tuple[str, str], list[Sample]]:
    """Samples of the project's records of an op. A damaged one is passed over: whoever reads the records says so."""
    runs = records.load_runs(on_error=lambda _: None)
    return samples(run for run in runs if op == "depthwise1d" or any(row.op == op for row in run.measurements))


def expected(
    ids: Sequence[str], problem: Any, known: Sequence[Sample] | None = None, gpu: str | None = None
) -> dict[str, float]:
    """Stage's id -> the logarithm of how many times the least time it is expected to take; of stages that were timed.

    known: samples of the problem's op and path, the project's records if None. gpu: see above.
    """
    if known is None:
        known = recorded(problem.op).get((problem.op, ids[0].split("/")[1]), ()) if ids else ()
    place, words = place_of(problem, problem.dtype)
    known = [one for one in known if len(one.place) == len(place)]
    names = [one.gpu for one in known if one.words[-1] == words[-1]] or [one.gpu for one in known]
    if gpu not in names:
        gpu = records.SHOWN if records.SHOWN in names else max(sorted(set(names)), key=names.count, default=None)
    known = [one for one in known if one.gpu == gpu]
    width = storage(problem.dtype).itemsize  # of a stage never timed in this one, no time of another counts
    here = set().union(*(one.taken for one in known if storage(one.words[-1]).itemsize == width))
    ids = [id for id in ids if id in here]
    if not ids:
        return {}
    away = ((np.array([one.place for one in known]) - np.array(place)) ** 2).sum(1)
    away += [sum(map(str.__ne__, one.words, words)) for one in known]
    order, there = np.argsort(away, kind="stable").tolist(), registry.ids()
    nearest = {id: [*islice((i for i in order if id in known[i].taken), NEAREST)] for id in ids}
    both = {id for id in ids for a, b in MIRROR.items() if f"/{a}/" in id and id.replace(a, b) in there}
    every = [*islice((i for i in order if both and both <= known[i].taken.keys()), NEAREST)]
    full = [i for i in order if len(known[i].taken) >= SEVERAL]
    least = {i: min(known[i].taken.values()) for i in full}
    level = _mean(full[: 1 if away[full[0]] < SAME else NEAREST], least, away) if full else 0.0
    found = {}
    for id, near in nearest.items():
        near = near[:1] if away[near[0]] < SAME else [i for i in every if id in known[i].taken] or near
        found[id] = level + _mean(near, {i: known[i].taken[id] - least.get(i, level) for i in near}, away)
        if problem.op == "depthwise1d":
            found[id] += FAR * (away[nearest[id][0]] - away[order[0]])
    return found


def _mean(near: Sequence[int], values: Mapping[int, float], away: Sequence[float]) -> float:
    share = [1 / (away[i] + SOFT) ** 2 for i in near]
    return sum(a * values[i] for a, i in zip(share, near, strict=True)) / sum(share)


def takers(problem: Problem, path: str | None = None, gpu: str | machine.Machine | None = None) -> tuple[Stage, ...]:
    """The stages that take a problem themselves on a GPU, in order; none if there is none.

    path: the problem's main path if None. gpu: its short name, its driver's, or a Machine; the GPU at hand if None, or
    if nothing is known of the name.
    """
    if problem.op not in {id.partition("/")[0] for id in registry.ids()}:
        return ()
    own, here = registry.stages(problem.op, path or problem.main_path), where(gpu)
    return tuple(one for one in own if problem.dtype in one.dtypes and one.supports(problem, *here))


@functools.cache
def where(gpu: str | machine.Machine | None) -> tuple[machine.Machine, ...]:
    """The GPU that is meant, as `takers` has it; () for the one at hand."""
    found = machine.by_short_name().get(gpu) or machine.datasheet(gpu) if isinstance(gpu, str) else gpu
    return () if found is None else (found,)


def ranking(
    problem: Problem, path: str | None = None, gpu: str | None = None, *, among: Sequence[Stage] | None = None,
    rows: Iterable[Measurement] | None = None, times: Mapping[str, float] | None = None,
) -> tuple[Stage, ...]:  # fmt: skip
    """The stages that take a problem on a GPU, the one expected to be fastest first; () if none takes it.

    path, gpu: as `takers` has them. among: the stages to rank, those of `takers` if None. rows: measurements in place
    of the project's records. times: stage's id -> µs of this machine, which come before all records.
    """
    found = takers(problem, path, gpu) if among is None else tuple(among)
    if not found:
        return ()
    rows = None if rows is None else tuple(rows)
    known = (recorded(problem.op) if rows is None else of_rows(rows)).get((problem.op, found[0].path), ())
    # Samples of depthwise1d have each stage's newest time of a problem; of layers a run times all that matter.
    row = None if problem.op == "depthwise1d" else fastest_row(problem, rows, gpu, found)
    timed = times or {}
    won = tuned.stage_of(f"{problem.op}/{found[0].path}", problem, gpu or gpus.at_hand().name) if rows is None else None

    def key(one: Stage) -> tuple[float, bool, bool]:
        return timed.get(one.id, math.inf), one.name != won, row is None or one.id != row.id

    return tuple(sorted(fastest(found, problem, known, gpu), key=key))


def fastest_row(
    problem: Problem, rows: Iterable[Measurement] | None = None, gpu: str | None = None,
    among: Sequence[Stage] | None = None,
) -> Measurement | None:  # fmt: skip
    """The row by which `ranking` knows a recorded problem; None if there is none.

    It is the fastest row of the newest run that has any (records.best), of this problem or else of one that is the same
    but for its `bare` parts; of stages that take the problem.
    """
    wanted = records.describe_problem(problem)
    key = _key(problem.dtype, wanted)
    names = {one.id for one in (takers(problem, None, gpu) if among is None else among)}
    alike = _rows().get(key, ()) if rows is None else [row for row in rows if key == _key(row.dtype, row.problem)]
    alike = [row for row in alike if row.id in names]
    return records.best(problem=wanted, gpu=gpu, rows=alike) or records.best(gpu=gpu, rows=alike)


def bare(problem: Mapping[str, Any]) -> dict[str, Any]:
    """A described problem without bias, activation, residual, zero points; fused layers are described in words."""
    of, ends = recorded_tiles.bare, recorded_tiles.ENDS
    return {key: of(it) if key in ("first", "second") else it for key, it in problem.items() if key not in ends}


def _key(dtype: str, problem: Mapping[str, Any]) -> tuple[Any, ...]:
    return dtype, *sorted(bare(problem).items())


@functools.cache
def _rows() -> dict[tuple[Any, ...], tuple[Measurement, ...]]:
    """The project's records, read once: storage type and bare problem -> rows, of any op."""
    found: dict[tuple[Any, ...], list[Measurement]] = {}
    for row in records.load_all():
        found.setdefault(_key(row.dtype, row.problem), []).append(row)
    return {key: tuple(rows) for key, rows in found.items()}


def pair_is_faster(one: Stage, problem: Any, known: Sequence[Sample] | None = None, gpu: str | None = None) -> bool:
    """Whether both gradients are expected sooner from two launches than from `one`, a stage of "backward"."""
    found = expected([one.id, PAIR], problem, known, gpu)
    return found.get(PAIR, math.inf) < found.get(one.id, math.inf)


def slots(one: Stage, problem: Any) -> int:
    """Sectors and requests of a launch, by the stage's formula."""
    moved = one.traffic(problem)
    return moved.load_sectors + moved.store_sectors + moved.load_requests + moved.store_requests


def fastest(
    stages: Sequence[Stage], problem: Any, known: Sequence[Sample] | None = None, gpu: str | None = None
) -> tuple[Stage, ...]:
    """Stages that take a problem, the one expected to be fastest first; where none was timed in this width, by what
    they move, a request as much as a sector. known: the project's records if None.
    """
    found = expected([one.id for one in stages], problem, known, gpu)

    def key(one: Stage) -> tuple[float, float, str]:
        moved = 0.0 if found else math.inf if one.name == "naive" else slots(one, problem)
        return found.get(one.id, math.inf), moved, one.id

    return tuple(sorted(stages, key=key))
