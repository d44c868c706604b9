"""Which stage runs each layer of a network, and which layers share a kernel.

`choose` takes the fastest of the stages that take a layer or a fused pair, by times that were measured here, else by
dwlab's records of it or of those most like it; `partition` the cheapest way to cut a network into layers and pairs, by
the same times or, where a layer has none, by the planner's. Nothing is run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dwlab import choices, planner, records, stages
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.networks import InferenceError, Network
from dwlab.planner import judgement
from dwlab.stages import Stage

Planned = DepthwiseConv2d | Pointwise | Fused

Times = Mapping[Planned, Mapping[str, float]]
"""Layer or fused pair -> stage's id -> µs."""


def takers(problem: Planned) -> tuple[Stage, ...]:
    """The stages that take a layer or a fused pair, in order; none if there is none."""
    if problem.op not in {one.op for one in stages.stages()}:
        return ()
    own = stages.stages(problem.op, problem.main_path)
    return tuple(one for one in own if problem.dtype in one.dtypes and one.supports(problem))


def choose(
    problem: Planned,
    rows: Iterable[records.Measurement] | None = None,
    gpu: str | None = None,
    times: Times | None = None,
) -> Stage:
    """The stage that runs a layer or a fused pair: the fastest of `times`, or of the records, or as these foresee.

    Recorded counts a row of this problem whose stage takes it, or else one that differs only in bias, activation and
    residual, which cost every stage about the same; of the newest run that has any (records.best). gpu: only of
    this one. Where there is none, what stages took on the problems most like it decides, on that GPU if any were timed
    there (dwlab.choices); a stage that was never timed is behind all that were. rows: where to look (dwlab's
    records if None). times: what timing.tune measured. Raises InferenceError if no stage takes the problem.
    """
    found = takers(problem)
    if not found:
        what = f"{problem.op}/{problem.main_path}"
        raise InferenceError(f"no stage of {what} takes {problem}: use another layout or dtype")
    here = {one.id: one for one in found}
    timed = {id: us for id, us in (times or {}).get(problem, {}).items() if id in here}
    if timed:
        return here[min(timed, key=timed.__getitem__)]
    rows = None if rows is None else tuple(rows)
    row = recorded(problem, rows, gpu)
    if row is not None:
        return here[row.id]
    known = _known(problem.op) if rows is None else choices.of_rows(rows)
    return choices.fastest(found, problem, known.get((problem.op, problem.main_path), ()), gpu)[0]


def recorded(
    problem: Planned, rows: Iterable[records.Measurement] | None = None, gpu: str | None = None
) -> records.Measurement | None:
    """The fastest recorded row of a problem by a stage that takes it, as `choose` counts; None if there is none."""
    names = {one.name for one in takers(problem)}
    key = (problem.op, problem.main_path, problem.dtype)
    if rows is None:
        here: Iterable[records.Measurement] = _rows().get(key, ())
    else:
        here = [row for row in rows if (row.op, row.path, row.dtype) == key]
    here = [row for row in here if row.stage in names]
    wanted = records.describe_problem(problem)
    exact = records.best(problem=wanted, gpu=gpu, rows=here)
    if exact is not None:
        return exact
    alike = [replace(row, problem=judgement.bare(row.problem)) for row in here]
    return records.best(problem=judgement.bare(wanted), gpu=gpu, rows=alike)


@functools.cache
def _known(op: str) -> dict[tuple[str, str], tuple[choices.Sample, ...]]:
    """What the project's records say of an op's stages, read once."""
    return choices.of_rows(row for (found, *_), rows in _rows().items() if found == op for row in rows)


@functools.cache
def _rows() -> dict[tuple[str, str, str], tuple[records.Measurement, ...]]:
    """The project's records, read once: (op, path, dtype) -> rows."""
    found: dict[tuple[str, str, str], tuple[records.Measurement, ...]] = {}
    for row in records.load_all():
        key = (row.op, row.path, row.dtype)
        found[key] = (*found.get(key, ()), row)
    return found


Partition = tuple[tuple[str, ...], ...]
"""The names of each kernel's layers, in order; layers that no kernel of ours runs may be left out."""


def apart(network: Network) -> Partition:
    """Each layer alone."""
    return tuple((layer.name,) for layer in network.layers if layer.planned)


def partition(
    network: Network,
    gpu: str = "h200",
    rows: Iterable[records.Measurement] | None = None,
    times: Times | None = None,
) -> Partition:
    """Which layers share a kernel: the cheapest of all partitions into layers and pairs that a stage takes.

    By times as `choose` takes them, or else by recorded times of that GPU, where every layer has one; then only pairs
    that have one are fused. Else by the planner's predicted times. gpu: as planner.find takes it. rows: as `choose`
    takes them. Raises GpuError and PlanError as the planner does.
    """
    made = planner.plan(network, gpu)
    rows = None if rows is None else tuple(rows)

    def known(problem: Planned) -> float | None:
        if times is not None:
            return min(times.get(problem, {}).values(), default=None)
        row = recorded(problem, rows, made.gpu.name)
        return None if row is None else row.time_us

    costs = {(number, number + 1): 0.0 for number in range(len(network.layers))}
    alone = {n: known(layer.problem) for n, layer in enumerate(network.layers) if layer.planned}
    measured = None not in alone.values()
    if measured:
        costs |= {(number, number + 1): us for number, us in alone.items()}
    index = {layer.name: number for number, layer in enumerate(network.layers)}
    for pair in made.pairs:
        start, fused = index[pair.layers[0]], Fused(*(one.layers[0] for one in pair.apart))
        if measured:
            us = known(fused)
        else:
            costs |= {(number, number + 1): one.time_us for number, one in enumerate(pair.apart, start)}
            us = None if pair.module is None else pair.module.time_us
        if us is not None and takers(fused):
            costs[start, start + 2] = us
    pieces = [network.layers[start:end] for start, end in planner.partition(len(network.layers), costs)]
    return tuple(tuple(layer.name for layer in piece) for piece in pieces if piece[0].planned)


def pieces_of(network: Network, given: Partition | planner.Plan | None) -> Partition:
    """A partition that was checked, of every layer in order, those that no kernel of ours runs too.

    given: a Partition, a Plan of this network, or None for layers apart. Raises InferenceError for layers that are not
    there or there twice, and for layers that cannot share a kernel.
    """
    if isinstance(given, planner.Plan):
        if given.network != network:
            raise InferenceError(f"the plan is of {given.network.summary()} The network is {network.summary()}")
        given = tuple(step.layers for step in given.steps)
    index = {layer.name: number for number, layer in enumerate(network.layers)}
    following: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for piece in () if given is None else given:
        if isinstance(piece, str) or not piece:
            raise InferenceError(f"a piece of the partition is {piece!r}: give the names of its layers in a tuple")
        for name in piece:
            network.layer(name)  # its error, with the nearest name
            if name in seen:
                raise InferenceError(f"layer {name} is in the partition twice")
            seen.add(name)
        for name, after in zip(piece, piece[1:], strict=False):
            if index[after] != index[name] + 1:
                raise InferenceError(f"{after} does not follow {name} in {network.name}: they cannot share a kernel")
            why = network.joint(index[name])
            if why:
                raise InferenceError(f"{name} and {after} cannot share a kernel: {why}")
        if len(piece) > 2:
            raise InferenceError(f"{' and '.join(piece)} in one kernel: no stage has more than two layers")
        following[piece[0]] = tuple(piece)
    done: set[str] = set()
    pieces = []
    for layer in network.layers:
        if layer.name not in done:
            pieces.append(following.get(layer.name, (layer.name,)))
            done.update(pieces[-1])
    return tuple(pieces)
