"""Validates a plan by measured times: which of its decisions are right, and what the wrong ones cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dwlab import records
from dwlab.kernels.choices import bare
from dwlab.planner import Pair, Plan, cheapest
from dwlab.planner.accesses import Conv
from dwlab.planner.modules import NAMES, PlanError
from dwlab.problems.layers import Fused
from dwlab.problems.networks import Network, summary
from dwlab.problems.networks import network as named_network
from dwlab.text import terminal

IN_THE_L2 = "of the network's kernels, arrays in the L2 as far as they fit"
"""Where times of whole networks are from."""


@dataclass(frozen=True)
class ValidatedPair:
    """A pair's decision, each pair by itself, and its measured times. regret: time lost by it, as a fraction of the
    better of the two."""

    pair: Pair
    unfused_us: float
    fused_us: float

    @property
    def right(self) -> bool:
        """Whether the faster of the two was decided for."""
        return self.regret == 0

    @property
    def regret(self) -> float:
        """0 for a right decision."""
        taken = self.fused_us if self.pair.fuse else self.unfused_us
        return taken / min(self.fused_us, self.unfused_us) - 1


@dataclass(frozen=True)
class Validation:
    """A plan and its measured times. rows: a pair each, alike ones once. missing: kernels that no time was given for.

    plan_us: all kernels of the plan. best_us: the best partition, had the times been known. None where one is missing.
    source: where the times are from, if it is known. times: all of them, µs.
    """

    plan: Plan
    rows: tuple[ValidatedPair, ...]
    missing: tuple[str, ...] = ()
    plan_us: float | None = None
    best_us: float | None = None
    source: str = ""
    times: Mapping[Conv | Fused, float] = field(default_factory=dict)

    @property
    def unmeasured(self) -> int:
        """The number of pairs, alike ones once, that have no measurement."""
        return len({tuple(one.layers for one in pair.unfused) for pair in self.plan.pairs}) - len(self.rows)

    @property
    def mean(self) -> float:
        """The mean of the pairs' regrets; there must be a pair."""
        return sum(row.regret for row in self.rows) / len(self.rows)

    @property
    def largest(self) -> float:
        """The largest of the pairs' regrets; there must be a pair."""
        return max(row.regret for row in self.rows)

    @property
    def regret(self) -> float | None:
        """The time that the plan takes beyond the best partition, as a fraction of it."""
        return None if self.plan_us is None else self.plan_us / self.best_us - 1

    def summary(self) -> str:
        """Sentences: the share of right decisions, and what the wrong ones cost."""
        network = self.plan.network
        if not self.rows:
            return (
                f"No pair of {network.name} on {self.plan.gpu.name} has measured times of both ways in "
                f"{network.dtype}, batch {network.batch}, {network.layout}: whether decisions are right is not known."
            )
        right = sum(row.right for row in self.rows)
        text = f"{network.name} on {self.plan.gpu.name}: {right} of {len(self.rows)} decisions are right"
        if self.unmeasured:
            text += f", {self.unmeasured} pairs have no measurement"
        text += f", mean regret {100 * self.mean:.1f} %, the largest {100 * self.largest:.1f} %"
        if self.regret is not None:
            text += (
                f"; the plan takes {self.plan_us:,.1f} µs, the best partition {self.best_us:,.1f} µs: "
                f"{100 * self.regret:.0f} % more"
            )
        return f"{text}." + (f" Times: {self.source}." if self.source else "")

    HEAD = ("pair", "what", "decision", "measured unfused µs", "fused µs", "decision is", "regret")

    def cells(self) -> list[list[str]]:
        """The table's rows as text."""
        return [
            [
                " + ".join(row.pair.layers), " + ".join(summary(one.layers[0]) for one in row.pair.unfused),
                NAMES[row.pair.module.kind] if row.pair.fuse else "unfused", f"{row.unfused_us:,.1f}",
                f"{row.fused_us:,.1f}", "right" if row.right else "wrong", f"{100 * row.regret:.1f} %",
            ]
            for row in self.rows
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        rows = [
            row.pair.to_dict() | {"unfused_us": row.unfused_us, "fused_us": row.fused_us, "right": row.right,
                                  "regret": row.regret}
            for row in self.rows
        ]  # fmt: skip
        return {
            "rows": rows, "unmeasured": self.unmeasured, "missing": list(self.missing), "plan_us": self.plan_us,
            "best_us": self.best_us, "source": self.source,
        }  # fmt: skip

    MISSING = 8
    """Kernels without a time that a text names; it counts the others."""

    def text(self, columns: int | None = None) -> str:
        """The table, and below it the summary and what is not measured; in lines of `columns` characters."""
        lines = []
        if self.rows:
            cells = self.cells()
            lines = [terminal.table(self.HEAD, cells, (0, 1, 2, 5), columns=columns, cut=0, least=24, spare=(1, 6)), ""]
        lines.append(terminal.wrapped(self.summary(), columns))
        more = len(self.missing) - self.MISSING
        if self.rows or more <= 0:
            lines += [f"not measured: {one}" for one in self.missing[: self.MISSING]]
            lines += [f"not measured: {more} more"] * (more > 0)
        else:
            lines.append(f"Not measured: {len(self.missing)} kernels, all that the plan chooses between.")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def measured_times(made: Plan, rows: Iterable[records.Measurement]) -> dict[Conv | Fused, float]:
    """The least recorded time, µs, of each layer of a plan and each pair that may be fused, on the plan's GPU.

    A row that differs only in bias, activation and residual counts, as networks share layers.
    """
    wanted: dict[tuple[str, str], list[Conv | Fused]] = {}
    for one in dict.fromkeys(made.network.kernels.values()):
        wanted.setdefault((one.op, records.shape_text(bare(records.describe_problem(one)))), []).append(one)
    ops, dtype = {op for op, _ in wanted}, made.network.dtype
    found: dict[Conv | Fused, float] = {}
    for row in rows:
        if row.gpu == made.gpu.name and row.op in ops and row.dtype == dtype:
            for problem in wanted.get((row.op, records.shape_text(bare(row.problem))), ()):
                found[problem] = min(row.time_us, found.get(problem, math.inf))
    return found


def kernel_times(network: Network, gpu: str, runs: Iterable[records.Record]) -> dict[tuple[str, ...], float]:
    """Names of a kernel's layers -> µs, as `timed_kernels` finds them: alike layers have the time of the timed one."""
    found, _ = timed_kernels(network, gpu, runs)
    alike = {problem: us for _, problem, us in found}
    exact = {names: us for names, _, us in found}
    return {names: alike[problem] for names, problem in network.kernels.items() if problem in alike} | exact


def timed_kernels(
    network: Network, gpu: str, runs: Iterable[records.Record]
) -> tuple[list[tuple[tuple[str, ...], Conv | Fused, float]], records.Record | None]:
    """(kernels, run): the newest run with kernels of this very network on a GPU; ([], None) if there is none.

    Of each kernel the names of its layers, the problem and µs, all of this run and in the network's state of the L2.
    gpu: as its driver names it.
    """
    known = {planned[0] for planned in set(_planned(network)) & set(_planned(_named(network)))}
    problems = {layer.name: layer.problem for layer in network.layers}
    for run in reversed(list(runs)):
        found = []
        for row in _rows_of(network, "network_kernels", run) if run.gpu == gpu else ():
            names = tuple(row["layers"].split(" + "))
            if known.issuperset(names):
                layers = [problems[name] for name in names]
                found.append((names, layers[0] if len(layers) == 1 else Fused(*layers), row["time_us"]))
        if found:
            return found, run
    return [], None


def recorded_run(
    network: Network, gpu: str, runs: Sequence[records.Record] | None = None
) -> tuple[Mapping[str, Any], records.Record] | None:
    """(row, run): the newest row of the section `networks` with times of a network on a GPU, and its run; None if none.

    The whole network, with the layers that are not planned, in one CUDA graph: apart_us of each layer alone, fused_us
    with two layers in one kernel where kernels timed alone said so, which is missing where none did. A network that
    only has the name of the recorded one, and other layers, has none.
    """
    if _planned(network) == _planned(_named(network)):
        for run in reversed(records.shown_runs(runs, gpu)):
            for row in _rows_of(network, "networks", run):
                if row.get("apart_us") and row["resolution"] == network.resolution:
                    return row, run
    return None


def _rows_of(network: Network, section: str, run: records.Record) -> list[Mapping[str, Any]]:
    """A run's rows of a network."""
    fields = ("network", "batch", "dtype", "layout")
    wanted = (network.name, network.batch, network.dtype, network.layout)
    return [row for row in run.sections.get(section, ()) if tuple(row[name] for name in fields) == wanted]


def _named(network: Network) -> Network:
    """The network that records mean by this one's name; one without layers where there is none."""
    try:
        return named_network(network.name, network.batch, network.layout, network.dtype, network.resolution)
    except (ValueError, LookupError):
        return replace(network, layers=())


def _planned(network: Network) -> list[tuple[str, ...]]:
    """The planned layers that a record of a network holds for, but for what costs every stage about the same."""
    return [
        (one.name, one.input, one.residual, records.shape_text(bare(records.describe_problem(one.problem))))
        for one in network.layers
        if one.planned
    ]


def validate(
    made: Plan, times: Mapping[Conv | Fused, float] | None = None, runs: Sequence[records.Record] | None = None
) -> Validation:
    """Compares a plan's decisions with measured times. times: layer, or two as a Fused -> µs of its fastest kernel.

    Without times, by what is recorded: times of the newest run of this very network (`timed_kernels`), with
    arrays in the L2 as far as they fit; else of single layers and pairs (`measured_times`), with arrays out of it.
    Raises PlanError for a time that is no positive number.
    """
    source, network = "", made.network
    if times is None:
        runs = records.shown_runs(runs, made.gpu.name)
        times, source = {problem: us for _, problem, us in timed_kernels(network, made.gpu.name, runs)[0]}, IN_THE_L2
        if not times:
            times = measured_times(made, [row for run in runs for row in run.measurements])
            source = "of single layers and pairs, arrays out of the L2 as far as that can be"
    for problem, value in times.items():
        if not math.isfinite(value) or value <= 0:
            raise PlanError(f"the time of {problem} is {value!r}; it must be a positive number of µs")
    costs = {names: times[problem] for names, problem in network.kernels.items() if problem in times}
    rows: dict[Conv | Fused, ValidatedPair] = {}
    for pair in made.pairs:
        alone = [costs.get((name,)) for name in pair.layers]
        if pair.layers in costs and None not in alone:
            rows.setdefault(network.kernels[pair.layers], ValidatedPair(pair, sum(alone), costs[pair.layers]))
    lacking = [names for names in network.kernels if names not in costs]
    missing = {" and ".join(names) + " in one kernel" * (len(names) > 1): None for names in lacking}
    known = None, None
    if all(len(names) > 1 for names in lacking) and all(step.layers in costs for step in made.steps):
        pieces = [step.layers for step in made.steps], cheapest(network, costs)
        known = tuple(sum(costs[names] for names in one) for one in pieces)
    return Validation(made, tuple(rows.values()), tuple(missing), *known, source, times)
