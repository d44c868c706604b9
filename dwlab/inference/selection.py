"""Which stage runs each layer of a network, and which layers share a kernel.

`choose` takes the fastest of the stages that take a layer or a fused pair, by times that were measured here, else by
dwlab's records of it or of those most like it; `partition` the cheapest way to cut a network into layers and pairs, by
the same times or, where a layer has none, by the planner's. `decide` says whether a network is run so or layer by
layer: by the recorded times of both ways, where the whole network was timed on that GPU. Nothing is run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dwlab import planner, records
from dwlab.gpu import machine
from dwlab.kernels import choices, registry
from dwlab.kernels.registry import Stage
from dwlab.planner import validation
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.networks import InferenceError, Network

Planned = DepthwiseConv2d | Pointwise | Fused

Times = Mapping[Planned, Mapping[str, float]]
"""Layer or fused pair -> stage's id -> µs."""


def takers(problem: Planned, gpu: str | None = None) -> tuple[Stage, ...]:
    """The stages that take a layer or a fused pair on a GPU, in order; none if there is none.

    gpu: its short name or its driver's; the GPU at hand if None, or if nothing is known of it.
    """
    if problem.op not in {one.op for one in registry.stages()}:
        return ()
    own, where = registry.stages(problem.op, problem.main_path), _where(gpu)
    return tuple(one for one in own if problem.dtype in one.dtypes and one.supports(problem, *where))


@functools.cache
def _where(gpu: str | None) -> tuple[machine.Machine, ...]:
    found = None if gpu is None else machine.by_short_name().get(gpu) or machine.datasheet(gpu)
    return () if found is None else (found,)


def choose(
    problem: Planned,
    rows: Iterable[records.Measurement] | None = None,
    gpu: str | None = None,
    times: Times | None = None,
) -> Stage:
    """The stage that runs a layer or a fused pair: the fastest of `times`, or of the records, or as these foresee.

    Recorded counts a row of this problem whose stage takes it, or else one that differs only in bias, activation and
    residual, which cost every stage about the same; of the newest run that has any (records.best). gpu: only of
    this one, and of stages whose kernels it can start. Where there is none, what stages took on the problems most like
    it decides, on that GPU if any were timed there (dwlab.kernels.choices); a stage that was never timed is behind all
    that were. rows: where to look (dwlab's records if None). times: what timing.tune measured. Raises InferenceError if
    no stage takes the problem.
    """
    found = takers(problem, gpu)
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
    names = {one.name for one in takers(problem, gpu)}
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
    alike = [replace(row, problem=validation.bare(row.problem)) for row in here]
    return records.best(problem=validation.bare(wanted), gpu=gpu, rows=alike)


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


def layer_by_layer(network: Network) -> Partition:
    """The partition into single layers."""
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

    Times of kernels alone, added up: in one graph, where kernels overlap, the network may be slower so than layer by
    layer. `decide` looks whether it was.
    """
    rows = None if rows is None else tuple(rows)
    known = _recorded(network, planner.find(gpu).name, rows) if times is None else _measured(network, times)
    return _cheapest(network, gpu, known).pieces


@dataclass(frozen=True)
class Decision:
    """How a network is run. why: a sentence with the times that decided, and where they are from.

    by: "request", "network" (recorded times of both ways), "kernels" (times of each kernel, added up) or "prediction".
    unfused_us, fused_us: those times, of each layer alone and of the fused plan; None where there is none.
    """

    pieces: Partition
    why: str
    by: str
    unfused_us: float | None = None
    fused_us: float | None = None

    @property
    def pairs(self) -> int:
        """How many pairs of layers share a kernel."""
        return sum(len(piece) > 1 for piece in self.pieces)


def decide(
    network: Network,
    gpu: str = "h200",
    runs: Sequence[records.Record] | None = None,
    times: Times | None = None,
    fuse: bool | None = None,
) -> Decision:
    """Whether a network is run with layers in one kernel, and which, or layer by layer: the faster of the two.

    By the newest record of the whole network on that GPU, in which both ways were timed; else by `partition`: times of
    each layer and pair, measured or recorded, or else predicted. times: what timing.tune measured here, which comes
    before any record. gpu: as planner.find takes it. runs: where to look (dwlab's records if None). fuse: what the
    user wants, True the fused plan although it may be slower, False each layer alone. Raises GpuError and PlanError as
    the planner does.
    """
    if fuse is False:
        return Decision(layer_by_layer(network), "Layer by layer, as requested.", "request")
    name = planner.find(gpu).name
    known = _measured(network, times) if times is not None else {}
    found = validation.recorded_run(network, name, runs) if times is None else None
    if found is not None:
        known = validation.kernel_times(network, name, found[1:])  # so that what runs is what was timed
    if not _complete(network, known):
        known = validation.kernel_times(network, name, records.shown_runs(runs, name))
    if not _complete(network, known):
        known = _recorded(network, name, None if runs is None else [row for run in runs for row in run.measurements])
    if found is None:
        plan = _cheapest(network, gpu, known)
        return replace(plan, by="request") if fuse else plan
    row, run = found
    alone, together, pairs = row["apart_us"], row.get("fused_us"), row.get("pairs") or 0
    faster = together is not None and together < alone
    both = f"{run.gpu}, record of {run.date[:10]}: {alone:,.1f} µs layer by layer"
    if together is None:
        both += ", and no pair of layers was faster in one kernel."
    else:
        both += f", {together:,.1f} µs with {pairs} pair{'s' * (pairs != 1)} of layers in one kernel each."
    if fuse or faster:
        how = "With layers in one kernel" + ("" if faster else ", as requested")
        plan = _cheapest(network, gpu, known)
        if together is not None and plan.pairs != pairs:  # the run has no times of its kernels, or a stage is gone
            both += f" It runs with {plan.pairs}, by other times of its kernels: those of that record are not known."
        return replace(
            plan, why=f"{how}: {both}", by="request" if fuse else "network", unfused_us=alone, fused_us=together
        )
    return Decision(layer_by_layer(network), f"Layer by layer: {both}", "network", alone, together)


Costs = Mapping[tuple[str, ...], float]
"""The layers of a kernel, by name -> µs."""


def _of_problems(network: Network, cost: Callable[[Planned], float | None]) -> Costs:
    """The cost of each layer and of each two that may share a kernel, of those that have one."""
    made = {names: cost(problem) for names, problem in network.kernels.items()}
    return {names: us for names, us in made.items() if us is not None}


def _measured(network: Network, times: Times) -> Costs:
    return _of_problems(network, lambda problem: min(times.get(problem, {}).values(), default=None))


def _recorded(network: Network, gpu: str, rows: Iterable[records.Measurement] | None) -> Costs:
    """Times of single layers and pairs, as `recorded` finds them on a GPU."""

    def cost(problem: Planned) -> float | None:
        row = recorded(problem, rows, gpu)
        return None if row is None else row.time_us

    return _of_problems(network, cost)


def _complete(network: Network, known: Costs) -> bool:
    """Whether every layer has a time."""
    return all((layer.name,) in known for layer in network.layers if layer.planned)


def _runs(pair: Fused, measured: bool, gpu: str) -> bool:
    """Whether a stage takes a pair, and one that predicted times may be of if it was not measured.

    The planner's times are of kernels that load 16 bytes at a time. The first stages of a path load one number for each
    product and take many times as long: two kernels for the layers are faster.
    """
    found = takers(pair, gpu)
    return bool(found) if measured else any(one.aligned >= 16 for one in found)


def _cheapest(network: Network, gpu: str, known: Costs) -> Decision:
    """The cheapest partition by these times if every layer has one, else by the planner's."""
    measured, others = _complete(network, known), 0.0
    if not measured:
        made = planner.plan(network, gpu)
        known = {
            (name,): one.time_us for pair in made.pairs for name, one in zip(pair.layers, pair.unfused, strict=True)
        }
        others = made.total("time_us", unfused=True) - sum(known.values())  # layers that no pair has
        known |= {pair.layers: pair.module.time_us for pair in made.pairs if pair.module is not None}
    names = [layer.name for layer in network.layers]
    costs = {(n, n + 1): known.get((name,), 0.0) for n, name in enumerate(names)}
    pairs = {(n, n + 2): pair for n, pair in network.pairs.items()}
    costs |= {(a, b): known[names[a], names[a + 1]] for a, b in pairs if (names[a], names[a + 1]) in known}
    cuts = planner.partition(len(names), costs)
    while none := [one for one in cuts if one in pairs and not _runs(pairs[one], measured, gpu)]:
        costs = {one: us for one, us in costs.items() if one not in none}
        cuts = planner.partition(len(names), costs)
    pieces = tuple(tuple(names[a:b]) for a, b in cuts if network.layers[a].planned)
    alone = others + sum(costs[n, n + 1] for n in range(len(names)))
    together = others + sum(costs[one] for one in cuts) if any(len(piece) > 1 for piece in pieces) else None
    where = f"by {'measured' if measured else 'predicted'} times of single kernels on {planner.find(gpu).name}"
    if together is None:
        why = f"Layer by layer, {where}: {alone:,.1f} µs in all, and no pair is faster in one kernel"
    else:
        why = f"With layers in one kernel, {where}: {together:,.1f} µs in all, layer by layer {alone:,.1f}"
    why += "; the whole network was not timed both ways there."
    return Decision(pieces, why, "kernels" if measured else "prediction", alone, together)


def pieces_of(network: Network, given: Partition | planner.Plan | None) -> Partition:
    """A partition that was checked, of every layer in order, those that no kernel of ours runs too.

    given: a Partition, a Plan of this network, or None: layer by layer. Raises InferenceError for layers that are
    not there or there twice, and for layers that cannot share a kernel.
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
