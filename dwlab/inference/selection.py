"""Which stage runs each layer of a network, and which layers share a kernel.

`choose` takes the fastest of the stages that take a layer or a fused pair, by times that were measured here, else by
dwlab's records of it or of those most like it. `decide` cuts a network into layers and pairs, the cheapest way by the
same times or, where a layer has none, by the planner's, and says whether it is run so or layer by layer: by the
recorded times of both ways, where the whole network was timed on that GPU. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dwlab import planner, records
from dwlab.gpu.machine import Machine
from dwlab.kernels import choices, registry
from dwlab.kernels.choices import takers as takers
from dwlab.kernels.registry import Stage
from dwlab.planner import validation
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.networks import InferenceError, Network

Planned = DepthwiseConv2d | Pointwise | Fused

Times = Mapping[Planned, Mapping[str, float]]
"""Layer or fused pair -> stage's id -> µs."""


def choose(
    problem: Planned, rows: Iterable[records.Measurement] | None = None, gpu: str | None = None,
    times: Times | None = None,
) -> Stage:  # fmt: skip
    """The stage that runs a layer or a fused pair: the first of `choices.ranking`, which says what decides.

    times: what timing.tune measured, which comes before all records. Raises InferenceError if no stage takes it.
    """
    found = choices.ranking(problem, gpu=gpu, rows=rows, times=(times or {}).get(problem))
    if not found:
        one = max(registry.stages(problem.op, problem.main_path), key=lambda one: problem.dtype in one.dtypes)
        raise InferenceError(
            f"no stage of {one.op}/{one.path} takes {problem}: use another layout or dtype. "
            f"{one.why_not(problem, *choices.where(gpu))}"
        )
    return found[0]


Partition = tuple[tuple[str, ...], ...]
"""The names of each kernel's layers, in order; layers that no kernel of ours runs may be left out."""


def layer_by_layer(network: Network) -> Partition:
    """The partition into single layers."""
    return tuple((layer.name,) for layer in network.layers if layer.planned)


@dataclass(frozen=True)
class Decision:
    """The way a network is run. why: a sentence with the times that decided, and where they are from.

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
        """The number of pairs of layers that share a kernel."""
        return sum(len(piece) > 1 for piece in self.pieces)


def decide(
    network: Network, gpu: str = "h200", runs: Sequence[records.Record] | None = None, times: Times | None = None,
    fuse: bool | None = None,
) -> Decision:  # fmt: skip
    """Whether a network is run with layers in one kernel, and which, or layer by layer: the faster of the two.

    By the newest record of the whole network on that GPU, in which both ways were timed; else the cheapest of all
    partitions into layers and pairs that a stage takes, by times of each, measured or recorded where every layer has
    one (then only pairs that have one are fused), or else predicted. Times of kernels alone, added up: in one graph,
    where kernels overlap, the network may be slower so than layer by layer. times: what timing.tune measured here,
    which comes before any record. gpu: as planner.find takes it. runs: where to look (dwlab's records if None). fuse:
    what the user wants, True the fused plan although it may be slower, False each layer alone. Raises GpuError and
    PlanError as the planner does.
    """
    if fuse is False:
        return Decision(layer_by_layer(network), "Layer by layer, as requested.", "request")
    machine = planner.find(gpu)
    name = machine.name
    known = {names: min(us.values()) for names, one in network.kernels.items() if (us := (times or {}).get(one))}
    found = validation.recorded_run(network, name, runs) if times is None else None
    if found is not None:
        known = validation.kernel_times(network, name, found[1:])  # so that what runs is what was timed
    if not _complete(network, known):
        known = validation.kernel_times(network, name, records.shown_runs(runs, name))
    if not _complete(network, known):
        known = _recorded(network, name, None if runs is None else [row for run in runs for row in run.measurements])
    if found is None:
        plan = _cheapest(network, machine, known)
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
        plan = _cheapest(network, machine, known)
        if together is not None and plan.pairs != pairs:  # the run has no times of its kernels, or a stage is gone
            both += f" It runs with {plan.pairs}, by other times of its kernels: those of that record are not known."
        return replace(
            plan, why=f"{how}: {both}", by="request" if fuse else "network", unfused_us=alone, fused_us=together
        )
    return Decision(layer_by_layer(network), f"Layer by layer: {both}", "network", alone, together)


Costs = Mapping[tuple[str, ...], float]
"""The layers of a kernel, by name -> µs."""


def _recorded(network: Network, gpu: str, rows: Sequence[records.Measurement] | None) -> Costs:
    """The times of the rows by which `choices.ranking` knows single layers and pairs on a GPU."""
    found = {names: choices.fastest_row(problem, rows, gpu) for names, problem in network.kernels.items()}
    return {names: row.time_us for names, row in found.items() if row is not None}


def _complete(network: Network, known: Costs) -> bool:
    """Whether every layer has a time."""
    return all((layer.name,) in known for layer in network.layers if layer.planned)


def _cheapest(network: Network, gpu: Machine, known: Costs) -> Decision:
    """The cheapest partition by these times if every layer has one, else the planner's."""
    if _complete(network, known):
        costs = {names: known[names] for names in network.kernels if names in known}
        pieces = planner.cheapest(network, costs)
        while none := [one for one in pieces if len(one) > 1 and not choices.takers(network.kernels[one], gpu=gpu)]:
            costs = {names: us for names, us in costs.items() if names not in none}
            pieces = planner.cheapest(network, costs)
        alone, together = sum(us for names, us in costs.items() if len(names) == 1), sum(costs[one] for one in pieces)
        by, by_times = "kernels", f"measured times: {alone:,.1f} µs layer by layer, {together:,.1f} µs so"
    else:
        made = planner.plan(network, gpu)
        pieces = tuple(step.layers for step in made.steps)
        by, by_times = "prediction", f"predicted times: {made.times()}"
        alone, together = made.total("time_us", unfused=True), made.total("time_us")
    fused = any(len(one) > 1 for one in pieces)
    how = "With layers in one kernel" if fused else "Layer by layer"
    how += f", by {by_times}, of single kernels on {gpu.name}; the whole network was not timed both ways there."
    return Decision(pieces, how, by, alone, together if fused else None)


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
