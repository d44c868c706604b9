"""How a layer's filters are stored, as a part of its search; and which pattern, for what may be lost.

A filter that is pruned to V:2:M is one of 2:4, too, and a dense one: `storages`. `ways` ranks all stages of all
storages by time, recorded or predicted; `tune_pruning` has that for every pattern of a matrix of weights, beside the
magnitude that the pattern keeps, and the frontier of both. With seconds to spend, and a GPU, all ways are searched as
one space (`joined`), in which a candidate says how the filters are stored.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from dwlab.gpu import machine, target
from dwlab.kernels import choices
from dwlab.kernels.registry import Stage
from dwlab.kernels.tiling import gpu as gpus
from dwlab.model import sparse
from dwlab.problems import ProblemError
from dwlab.problems.layers import Pointwise, SparsePointwise
from dwlab.problems.sparsity import kept_magnitude
from dwlab.records.journal import Candidate
from dwlab.tuning import running, strategies
from dwlab.tuning.search import Bench, SearchError, search
from dwlab.tuning.space import Space, SpaceError, listed, subject

PATTERNS = ("2:4", *(f"{V}:2:{M}" for V in (32, 64, 128) for M in (8, 16, 32)))
FINALISTS = 3
"""Patterns of a frontier that are searched."""


@dataclass(frozen=True)
class Way:
    """One way to compute a layer. problem: the layer as it is stored; us: its time, and how that is known: "measured",
    "recorded" or "predicted"."""

    problem: Pointwise
    stage: Stage
    us: float
    how: str

    @property
    def storage(self) -> str:
        """See `storage_of`."""
        return storage_of(self.problem)


def storage_of(problem: Pointwise) -> str:
    """ "64:2:16", "2:4" or "dense"."""
    return getattr(problem, "pattern", "dense")


def storages(layer: SparsePointwise) -> tuple[Pointwise, ...]:
    """The layer as its filters may be stored: in their pattern, as 2:4 if that holds them, and dense."""
    two_of_four = [replace(layer, pattern="2:4")] if layer.form.N == 2 else []
    return *dict.fromkeys([layer, *two_of_four]), sparse.dense_layer(layer)


def ways(layer: SparsePointwise, gpu: machine.Machine | None = None) -> tuple[Way, ...]:
    """The fastest stage of each storage of a layer on a GPU, the fastest first: by records of it, else by the cost that
    its tiles are chosen by.
    """
    here, name = gpus.of(gpu), None if gpu is None else gpu.name
    found = []
    for problem in storages(layer):
        if row := choices.fastest_row(problem, None, name or here.name):
            if row.gpu == (name or here.name):
                found.append(Way(problem, next(s for s in choices.takers(problem, None, gpu) if s.id == row.id),
                                 row.time_us, "recorded"))  # fmt: skip
                continue
        found += sorted(_predicted(problem, gpu, here), key=lambda way: way.us)[:1]
    return tuple(sorted(found, key=lambda way: way.us))


def _predicted(problem: Pointwise, gpu: machine.Machine | None, here: gpus.Gpu) -> Iterable[Way]:
    for one in choices.takers(problem, None, gpu):
        if one.tiles is not None and (config := one.config(problem, here)) is not None:
            us = one.tiles.cost(problem.kernel_key, problem.N, config, here).time / 1e3
            if us:  # else its tile is chosen by a rule
                yield Way(problem, one, us, "predicted")


@dataclass(frozen=True)
class Pruned:
    """Patterns for a matrix of weights. ways: pattern, or "dense" -> the fastest way, if a stage takes it; kept: the
    share of the sum of magnitudes that it leaves; frontier: those that no other beats in both; best: the fastest that
    keeps enough.
    """

    ways: dict[str, Way]
    kept: dict[str, float]
    frontier: tuple[sparse.Choice, ...]
    best: sparse.Choice


def tune_pruning(
    w: np.ndarray,
    layer: Pointwise,
    keep: float = 0.5,
    *,
    patterns: Sequence[str] = PATTERNS,
    gpu: machine.Machine | None = None,
    seconds: float = 0.0,
) -> Pruned:
    """The pattern and storage for weights w (F, C), of which a layer's share `keep` of magnitudes is to stay.

    layer: sizes and layout; its own pattern does not count. gpu: the one at hand if None. seconds: about so many are
    spent on searching the fastest of the frontier on the GPU at hand; without a GPU on nothing. Raises ProblemError for
    weights of another shape or without a magnitude, ValueError where no pattern keeps enough.
    """
    if np.shape(w) != (layer.F, layer.C):
        raise ProblemError(f"the weights have shape {np.shape(w)}; {layer} needs {(layer.F, layer.C)}")
    sizes = {
        name: getattr(layer, name) for name in ("N", "C", "F", "H", "W", "layout", "bias", "activation", "residual")
    }
    kept = {form: kept_magnitude(w, form) for form in patterns} | {"dense": 1.0}
    layers = {form: SparsePointwise(**sizes, pattern=form) for form in patterns}
    every = {form: ways(one, gpu) for form, one in layers.items()}
    found = {form: its[0] for form, its in every.items() if its}
    found |= {way.storage: way for its in every.values() for way in its if way.storage == "dense"}
    if not found:
        raise ValueError(f"no stage of which a time is known takes {layer} on {gpus.of(gpu)}")
    front = sparse.frontier(kept, {form: way.us for form, way in found.items()})
    if seconds and target.mode == "gpu":
        finalists = [one.pattern for one in front if one.kept >= keep][:FINALISTS]
        for form in finalists:
            found[form] = _measured(layers.get(form), found[form], seconds / len(finalists))
        front = sparse.frontier(kept, {form: way.us for form, way in found.items()})
    return Pruned(found, kept, tuple(front), sparse.within(front, keep))


def _measured(layer: SparsePointwise | None, predicted: Way, seconds: float) -> Way:
    """The fastest of all stages and tiles of all storages."""
    parts, spaces, logs = {}, {}, []
    for problem in (predicted.problem,) if layer is None else storages(layer):
        what, name = subject(f"{problem.op}/{problem.main_path}"), storage_of(problem)
        with contextlib.suppress(SpaceError):  # no stage takes it so
            spaces[name] = what.space(problem, gpus.at_hand())
            parts[name] = problem, what
            logs += what.predicted(problem, spaces[name], gpus.at_hand()).tolist()
    found, placed = joined(spaces, logs)
    try:
        with contextlib.ExitStack() as stack:
            benches = {name: stack.enter_context(running.bench(what.id, problem))
                       for name, (problem, what) in parts.items()}  # fmt: skip
            made = search(found, _bench(benches), strategies.model(placed(logs)), seconds=seconds)
    except SearchError:
        return predicted
    problem, what = parts[made.candidate["storage"]]
    return Way(problem, what.stage(made.candidate), statistics.median(made.tried[made.winner].times_us), "measured")


def joined(
    spaces: Mapping[str, Space], logs: Sequence[float]
) -> tuple[Space, Callable[[Sequence[float]], list[float]]]:
    """The spaces of a layer's storages as one: what ships, in the storage that it is expected to be fastest in, first.

    logs: of the predicted times of all candidates, one space after the other. The second: brings such logs into the
    space's order.
    """
    every = [{"storage": name} | dict(one) for name, space in spaces.items() for one in space.candidates]
    firsts = itertools.accumulate((len(one) for one in spaces.values()), initial=0)
    default = min([*firsts][:-1], key=lambda place: logs[place])
    places = [default, *(one for one in range(len(every)) if one != default)]
    made = listed([every[one] for one in places])
    return made, lambda some: [some[one] for one in places]


def _bench(benches: Mapping[str, Bench]) -> Any:
    """The benches of a layer's storages as one: each candidate's storage says whose it is."""

    def of(name: str) -> Callable[[Candidate], Any]:
        def ask(candidate: Candidate) -> Any:
            left = {one: value for one, value in candidate.items() if one != "storage"}
            return getattr(benches[candidate["storage"]], name)(left)

        return ask

    exact = any(getattr(one, "exact", False) for one in benches.values())
    return SimpleNamespace(exact=exact, **{name: of(name) for name in ("judge", "time_us", "resources")})
