"""Rows of records, joined: our fastest layers, pairs and networks against PyTorch's best, sparse ones against others'.

Every function takes runs (the project's own if None) and returns its rows, of one GPU, and the runs that they are from.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dwlab import records
from dwlab.measure import baselines
from dwlab.planner import validation
from dwlab.problems.layers import DTYPES, LAYOUTS, DepthwiseConv2d, Pointwise
from dwlab.problems.networks import network
from dwlab.records import Record
from dwlab.text.tabular import times

Row = Mapping[str, Any]
Runs = Sequence[Record] | None
Found = tuple[list[Row], list[Record]]

VALIDATED = ("mobilenet_v1", "mobilenet_v2", "xception", "proxylessnas")
"""The networks whose layers are measured, and that the planner is validated on."""
SOURCE = "shapes of the source"
"""The field `networks` of the sparse source's products."""

_STORED = (*LAYOUTS, *DTYPES)


def all_of(runs: Runs) -> list[Record]:
    """These runs, or all that are recorded."""
    return records.load_runs() if runs is None else list(runs)


def measured_on(used: Sequence[Record], what: str = "Measured") -> str:
    """Where the runs were made, and from which day to which: "Measured on ...."."""
    places = []
    for place, runs in grouped(used, lambda run: run.where().removesuffix(f", {run.date[:10]}")).items():
        days = sorted(run.date[:10] for run in runs)
        places.append(f"{place}, {' to '.join(dict.fromkeys((days[0], days[-1])))}")
    return f"{what} on {'; '.join(places)}."


def grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The rows of each key, in the order in which they come."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def over(value: float | None, of: float | None) -> float | None:
    """value / of; None where one is missing or the second is 0."""
    return value / of if value is not None and of else None


def geometric(ratios: Iterable[float | None], slower: bool = False) -> str:
    """The geometric mean of the ratios that are not None, as text. slower: as `tabular.times` takes it."""
    known = [one for one in ratios if one is not None]
    return times(statistics.geometric_mean(known), slower) if known else ""


def share(ones: Sequence[bool]) -> str:
    """How many of how many: "3 of 5"; "" of none."""
    return f"{sum(ones)} of {len(ones)}" if ones else ""


# ------------------------------------------------------------------------------------------------------------- layers


def layer_text(problem: Any) -> str:
    """A layer in a few characters, without images, layout and storage type: "DW 3×3 s2 64@112", "PW 64→128@56".

    Two that are fused have + between.
    """
    if hasattr(problem, "first"):
        return f"{layer_text(problem.first)} + {layer_text(problem.second)}"
    size = str(problem.H) if problem.H == problem.W else f"{problem.H}×{problem.W}"
    if hasattr(problem, "F"):
        return f"PW {problem.C}→{problem.F}@{size}"
    stride = f" s{problem.stride}" if problem.stride > 1 else ""
    padding = f" p{problem.padding}" if problem.padding != problem.K // 2 else ""
    return f"DW {problem.K}×{problem.K}{stride}{padding} {problem.C}@{size}"


@functools.lru_cache(64)
def layers_of(name: str, dtype: str) -> frozenset[tuple[str, str, str]]:
    """(op, path, `layer_text`) of a network's layers, and of its pairs that may share a kernel; alike ones once."""
    made = network(name, layout="NHWC", dtype=dtype)
    return frozenset((one.op, one.main_path, layer_text(one)) for one in made.kernels.values())


def op_of(row: Row) -> str:
    """The op of a row of layers; of pairs with its path."""
    return row["op"] if row["path"] == "forward" else f"{row['op']}/{row['path']}"


def group_of(row: Row) -> tuple[str, str, int]:
    """Op, storage type and batch: what rows of layers are summed up by."""
    return op_of(row), row["dtype"], row["batch"]


NO_NETWORK = "no network"
"""What stands in place of the networks that have a layer, of one that was given or drawn."""


def layers(runs: Runs = None, of_networks: bool = True) -> Found:
    """A row of each layer, batch and storage type: our fastest stage, and the fastest of PyTorch's ways.

    of_networks: those that networks have, or the others.

    Ours is the newest row of each stage, but for stages that were timed again since and were not the fastest then.
    PyTorch's time is the least that any record has of the same version, as not every run tries all of its ways;
    compiled: whether torch.compile was among them. file: of the record.
    """
    names = ("op", "path", "layer", "batch", "dtype")
    runs = all_of(runs)
    rows, used = records.newest_rows(
        "layers", lambda row: tuple(row.get(name) for name in (*names, "stage", "layout")), runs
    )
    here = [run for run in runs if used and run.gpu == used[-1].gpu and "layers" in run.sections]
    places = {id(row): place for place, run in enumerate(here) for row in run.sections["layers"]}
    last = {
        (one.id, records.shape_text(one.problem), one.dtype): place
        for place, run in enumerate(here) for one in run.measurements if records.calm(one.to_dict())
    }  # fmt: skip

    def rank(row: Row) -> tuple[Any, ...]:
        timed = f"{row['op']}/{row['path']}/{row.get('stage')}", records.shape_text(row["problem"]), row["dtype"]
        known = bool(row.get("time_us")) and last.get(timed, -1) <= places[id(row)]
        return not known, row["time_us"] if known else -places[id(row)]

    rows = [row for row in rows if (row["networks"] != NO_NETWORK) == of_networks]
    rows = [min(some, key=rank) for some in grouped(rows, lambda row: tuple(row[name] for name in names)).values()]
    used = [run for run in used if any(here[places[id(row)]] is run for row in rows)]
    timed = (one for run in here for one in run.peers if one.get("time") and one.get("shape") and one.get("dtype"))
    ways = grouped(timed, lambda one: _computed(one, "shape", "name"))
    made = []
    for row in rows:
        kinds = ("int8", "float16") if row["dtype"] == "int8" else (row["dtype"],)
        keys = [_computed({**row, "dtype": kind}, "problem", "peer") for kind in kinds]
        theirs = [one for key in keys for one in ways.get(key, ())]
        made.append({**_with_best_way(row, theirs), "file": here[places[id(row)]].file})
    order = {"depthwise2d": 0, "pointwise": 1, "fused": 2}

    def place(row: Row) -> tuple[Any, ...]:
        size = -row.get("compulsory_bytes", 0)
        op = order.get(row["op"], 3)
        return op, row["path"], -len(row["dtype"]), row["dtype"], row["batch"], size, row["layer"]

    return sorted(made, key=place), used


def _computed(row: Row, problem: str, name: str) -> tuple[Any, ...]:
    """Key of what PyTorch computes for a row of layers or as one of its ways, and which PyTorch."""
    words = records.shape_text(row[problem]).split()
    kept = tuple(word for word in words if word not in _STORED and not word.startswith(("layout=", "zero_", "m_r=")))
    return (row["path"], row["dtype"], kept, *(row.get(name) or "").split()[:2])


def _with_best_way(row: Row, ways: Sequence[Row]) -> Row:
    """A row of layers with the fastest of these ways of PyTorch's, if one is faster than its baseline."""
    made = {**row, "compiled": any(baselines.kind(one["way"]) == "compile" for one in ways)}
    best = min(ways, key=lambda one: one["time"]["median_us"], default=None)
    if best is not None and row.get("peer_time_us") and best["time"]["median_us"] < row["peer_time_us"]:
        made |= {"peer": best["name"], "peer_time_us": best["time"]["median_us"]}
        if row.get("speedup_vs_peer"):
            made["speedup_vs_peer"] = row["speedup_vs_peer"] * made["peer_time_us"] / row["peer_time_us"]
    return made


# ----------------------------------------------------------------------------------------------------------- networks


def network_of(row: Row) -> tuple[Any, ...]:
    """Network, batch, storage type and layout."""
    return row["network"], row["batch"], row["dtype"], row["layout"]


def networks(runs: Runs = None, gpu: str | None = None) -> Found:
    """The newest row of each network, batch, storage type and layout.

    PyTorch's time and energy are the least that any record has of the same version: not every run tries all of its
    ways. Not every run measures energy either: ours is then from the newest that did, and earlier_energy says so. gpu:
    that of the newest run with networks if None.
    """
    rows, used = records.newest_rows("networks", network_of, runs, gpu)
    every = [
        row for run in all_of(runs) if used and run.gpu == used[-1].gpu for row in run.sections.get("networks") or ()
    ]
    energies = {network_of(row): row for row in every if row.get("joules")}
    made = [_with_best_baseline(_with_energy(row, energies.get(network_of(row))), every) for row in rows]

    def place(row: Row) -> tuple[Any, ...]:
        return row["network"], -len(row["dtype"]), row["dtype"], row["batch"], row["layout"]

    return sorted(made, key=place), used


def _with_energy(row: Row, newest: Row | None) -> Row:
    """A row of networks with the energy of another one, if it has none and did not try to measure it."""
    if newest is None or row.get("joules") or row.get("energy_failure") or row.get("failure"):
        return row
    taken = {name: newest[name] for name in ("joules", "watts", "window_s", "rest_watts")}
    return {**row, **taken, "earlier_energy": True}


def _with_best_baseline(row: Row, every: Sequence[Row]) -> Row:
    """A row of networks with the fastest baseline for its network in these rows, and the least energy.

    It is of the same storage type (of int8, float16) and version of PyTorch.
    """
    if not row.get("speedup_vs_peer"):
        return row

    def computed(one: Row) -> tuple[Any, ...]:
        return one["network"], one["batch"], one.get("peer_dtype") or one["dtype"], *one["peer"].split()[:2]

    same = [one for one in every if one.get("peer_time_us") and computed(one) == computed(row)]
    best = min(same, key=lambda one: one["peer_time_us"])
    made = {**row, "peer": best["peer"], "peer_time_us": best["peer_time_us"]}
    made["speedup_vs_peer"] = row["speedup_vs_peer"] / row["peer_time_us"] * best["peer_time_us"]
    measured = [one for one in same if one.get("peer_joules")]
    if row.get("joules") and measured:
        least = min(measured, key=lambda one: one["peer_joules"])
        made |= {name: least.get(name) for name in ("peer_joules", "peer_watts", "peer_window_s", "peer_rest_watts")}
    return made


@dataclass(frozen=True)
class Parts:
    """Where a network's time goes, kernels one after the other. Times in µs.

    total_us: of the network. depthwise_us, pointwise_us: of these kernels, each timed alone. What is left is other
    operations and what lies between kernels.
    """

    network: str
    dtype: str
    batch: int
    total_us: float
    depthwise_us: float
    pointwise_us: float


def parts_of_networks() -> tuple[list[Parts], list[Record]]:
    """The parts of every recorded network whose kernels were timed as well."""
    rows, used = networks()
    found = []
    for row in (row for row in rows if row.get("apart_us")):
        made = network(row["network"], row["batch"], row["layout"], row["dtype"])
        timed = {problem: us for _, problem, us in validation.timed_kernels(made, used[-1].gpu, all_of(None))[0]}
        sums = [
            sum(timed.get(layer.problem, 0.0) for layer in made.layers if isinstance(layer.problem, kind))
            for kind in (DepthwiseConv2d, Pointwise)
        ]
        if all(sums):
            total = row.get("apart_plain_us") or row["apart_us"]
            found.append(Parts(row["network"], row["dtype"], row["batch"], total, *sums))
    return found, used


# ------------------------------------------------------------------------------------------------------------- fusion


@dataclass(frozen=True)
class Brought:
    """The gain by our kernels for a pair of layers or a network, and the gain by fusing beside that. Times in µs.

    kind: "dwpw", "pwdw" or "pwpw" of a pair, "" of a network. name: the pair as `layer_text` has it, or the network.
    baseline_us: PyTorch's fastest way, for int8 in float16. unfused_us: our kernels, one a layer. fused_us: with two
    layers in one. None where there is no time. pairs: of a network's fused plan.
    """

    kind: str
    name: str
    dtype: str
    batch: int
    baseline_us: float | None
    unfused_us: float | None
    fused_us: float | None
    pairs: int | None = None

    @property
    def kernels(self) -> float | None:
        """How many times as fast as the baseline our kernels are layer by layer."""
        return over(self.baseline_us, self.unfused_us)

    @property
    def fusion(self) -> float | None:
        """How many times as fast fused as layer by layer, by kernels of ours on both sides."""
        return over(self.unfused_us, self.fused_us)

    @property
    def best_us(self) -> float:
        """The faster of our two."""
        return min(self.unfused_us, self.fused_us or math.inf)

    @property
    def both(self) -> float | None:
        """How many times as fast as the baseline the faster of ours is."""
        return over(self.baseline_us, self.best_us)

    def __str__(self) -> str:
        return f"{self.name} ({self.dtype}, batch {self.batch})"


def brought_to_pairs(runs: Runs = None) -> tuple[list[Brought], list[Record]]:
    """Every recorded pair whose two layers were timed as well, each kernel by itself.

    unfused_us: both kernels one after the other in a graph where that was timed, else the sum of the two, each with its
    arrays out of the L2 as far as that can be.
    """
    rows, used = layers(runs)
    alone = {(row["layer"], row["dtype"], row["batch"]): row.get("time_us") for row in rows if row["op"] != "fused"}
    found = []
    for row in (row for row in rows if row["op"] == "fused" and row.get("time_us")):
        two = [alone.get((one, row["dtype"], row["batch"])) for one in row["layer"].split(" + ")]
        unfused = row.get("apart_time_us") or (None if None in two else sum(two))
        three = row.get("peer_time_us"), unfused, row["time_us"]
        found.append(Brought(row["path"], row["layer"], row["dtype"], row["batch"], *three))
    return found, used


def brought_to_networks(runs: Runs = None) -> tuple[list[Brought], list[Record]]:
    """Every recorded network, each way in one CUDA graph; fused_us None where no pair paid."""
    rows, used = networks(runs)
    return [
        Brought("", row["network"], row["dtype"], row["batch"], row.get("peer_time_us"), row["apart_us"],
                row.get("fused_us"), row.get("pairs"))
        for row in rows if row.get("apart_us")
    ], used  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- sparse


def layout_of(row: Row) -> str:
    """The layout of the layer's maps."""
    return row["problem"]["layout"]


def fastest_sparse(runs: Runs = None) -> Found:
    """Our fastest stage of each layer, batch, layout, storage type and pattern with sparse filters.

    Libraries' times are the least that any run on that GPU has of the same.
    """

    def problem(row: Row) -> tuple[Any, ...]:
        return row["layer"], row["batch"], layout_of(row), row["dtype"], row["pattern"]

    rows, used = records.newest_rows("sparse", lambda row: (*problem(row), row["stage"]), runs)
    made = grouped((row for row in rows if row["time_us"]), problem)
    libraries: dict[Any, dict[str, float]] = {}
    for run in (run for run in all_of(runs) if used and run.gpu == used[-1].gpu):
        for row in run.sections.get("sparse") or ():
            known = libraries.setdefault(problem(row), {})
            known |= {name: min(us, known.get(name, us)) for name, us in row["peers"].items()}
    fastest = [{**min(here, key=lambda row: row["time_us"]), "peers": libraries[key]} for key, here in made.items()]
    return sorted(fastest, key=lambda row: (layout_of(row), row["sparsity"], row["layer"], row["batch"])), used
