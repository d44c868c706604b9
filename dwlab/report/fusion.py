"""What our kernels bring to pairs of layers and to networks, and what fusing brings besides: docs/results/fusion.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Sequence
from dataclasses import dataclass

from dwlab import records
from dwlab.planner import validation
from dwlab.problems import PAPER
from dwlab.problems.layers import DTYPES, Fused
from dwlab.problems.networks import network
from dwlab.records import Record
from dwlab.report import paper
from dwlab.report.layer import layer_text, layers
from dwlab.report.network import key_of, networks
from dwlab.report.shared import (
    NO_LAYERS,
    NO_NETWORKS,
    VALIDATED,
    Runs,
    all_of,
    geometric,
    grouped,
    listed,
    measured_on,
    over,
    share,
)
from dwlab.text.tabular import Col, Markdown, of_rows, rounded, times


@dataclass(frozen=True)
class Brought:
    """What our kernels bring to a pair of layers or a network, and what fusing brings beside that. Times in µs.

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
    """(pairs, runs): every recorded pair whose two layers were timed as well, each kernel by itself.

    unfused_us: both kernels one after the other in a graph where that was timed, else the sum of the two, each with its
    arrays out of the L2 as far as that can be.
    """
    rows, used = layers(runs)
    alone = {(row["layer"], row["dtype"], row["batch"]): row for row in rows if row["op"] != "fused"}
    found = []
    for row in rows:
        if row["op"] != "fused" or not row.get("time_us"):
            continue
        two = [alone.get((one, row["dtype"], row["batch"]), {}).get("time_us") for one in row["layer"].split(" + ")]
        unfused = row.get("apart_time_us") or (None if None in two else sum(two))
        times = row.get("peer_time_us"), unfused, row["time_us"]
        found.append(Brought(row["path"], row["layer"], row["dtype"], row["batch"], *times))
    return found, used


def brought_in_networks(runs: Runs = None, gpu: str | None = None) -> tuple[list[Brought], list[Record]]:
    """(pairs, runs): every pair of the VALIDATED networks that was timed both ways in one run of its network.

    Arrays are in the L2 as far as they fit, as in the network. No baseline is timed so. Alike ones count once.
    """
    runs = records.shown_runs([run for run in all_of(runs) if run.sections.get("network_kernels")], gpu)
    recorded = {key_of(row) for run in runs for row in run.sections["network_kernels"]}
    found: dict[tuple[str, str, int], Brought] = {}
    used: list[Record] = []
    for name, batch, dtype, layout in sorted(recorded, key=lambda one: (one[0], one[2], one[1], one[3])):
        if name not in VALIDATED:
            continue
        timed, run = validation.timed_kernels(network(name, batch, layout, dtype), runs[-1].gpu, runs)
        times = {problem: us for _, problem, us in timed}
        used += [run] if run is not None else []
        for pair, us in times.items():
            if isinstance(pair, Fused) and pair.first in times and pair.second in times:
                key = layer_text(pair), dtype, batch
                both = times[pair.first] + times[pair.second]
                found.setdefault(key, Brought(pair.main_path, *key, None, both, us))
    return list(found.values()), [run for run in runs if any(one is run for one in used)]


def brought_to_networks(runs: Runs = None) -> tuple[list[Brought], list[Record]]:
    """(networks, runs): every recorded network, each way in one CUDA graph; fused_us None where no pair paid."""
    rows, used = networks(runs)
    return [
        Brought("", row["network"], row["dtype"], row["batch"], row.get("peer_time_us"), row["apart_us"],
                row.get("fused_us"), row.get("pairs"))
        for row in rows if row.get("apart_us")
    ], used  # fmt: skip


Group = tuple[str, str, int]
"""Kind, storage type and batch."""


def _groups(found: Sequence[Brought]) -> dict[Group, list[Brought]]:
    """By kind, storage type and batch: types as the tables have them, DWPW first."""
    ordered = sorted(found, key=lambda one: (one.kind, DTYPES.index(one.dtype), one.batch))
    return grouped(ordered, lambda one: (one.kind, one.dtype, one.batch))


def _won(found: Sequence[Brought]) -> str:
    return share([one.fusion > 1 for one in found if one.fusion is not None])


# ------------------------------------------------------------------------------------------------------------- tables


def fusion_pairs(runs: Runs = None) -> Markdown:
    """What our kernels bring to pairs of layers, and what fusing them brings beside: a row a module, type and batch."""
    found, used = brought_to_pairs(runs)
    if not found:
        return Markdown(NO_LAYERS)
    inside, also = brought_in_networks(runs, used[-1].gpu)
    every, in_networks = _groups(found), _groups(inside)
    alone = {group: [one for one in pairs if one.kernels and one.fusion] for group, pairs in every.items()}

    def pairs(group: Group) -> str:
        return f"{len(alone[group])}" + (f" of {len(every[group])}" if alone[group] != every[group] else "")

    columns = [
        Col("module", lambda group: group[0].upper(), left=True),
        Col("dtype", lambda group: group[1], left=True),
        Col("batch", lambda group: group[2]),
        Col("pairs", pairs),
        Col("kernels: × PyTorch layer by layer", lambda group: geometric((one.kernels for one in alone[group]), True)),
        Col("fusion: × layer by layer", lambda group: geometric((one.fusion for one in alone[group]), True)),
        Col("faster fused", lambda group: _won(alone[group])),
        Col("both: × PyTorch", lambda group: geometric((one.kernels * one.fusion for one in alone[group]), True)),
        Col("fusion in a network: × layer by layer",
            lambda group: geometric((one.fusion for one in in_networks.get(group, ())), True)),
        Col("faster fused", lambda group: _won(in_networks.get(group, ()))),
    ]  # fmt: skip
    won, lost = [], []
    for group in every:
        some = [ones for ones in (alone[group], in_networks.get(group, ())) if ones]
        means = [statistics.geometric_mean(one.fusion for one in ones) for ones in some]
        won += [group] if means and min(means) > 1 else []
        lost += [group] if means and max(means) < 1 else []
    return of_rows(columns, every, [
        f"On the mean fusing wins, however it is measured, in {len(won)} of {len(every)} rows{listed(_joined(won))}. "
        f"It loses, however it is measured, in {len(lost)}{listed(_joined(lost))}.  ",
        "Geometric means. kernels: PyTorch's fastest way for the two layers, for int8 its float16, over our own two "
        "kernels, one for each layer. fusion: our own two over our fused one; below 1 it is slower. both: the product "
        "of the two, which a comparison with PyTorch alone takes for fusion. These three with arrays out of the L2 as "
        "far as that can be, also the map that the first has just written, where our two were not timed in one graph: "
        "that favours fusion at batch 32. in a network: the same pairs timed with arrays in the L2 as far as they "
        "fit.  ",
        f"pairs: those of whose two layers both were timed. {measured_on([*used, *also])}",
    ])  # fmt: skip


def _joined(groups: Sequence[Group]) -> list[str]:
    """Names of groups, those of a module and type together: "DWPW int8 batch 1 and 32"."""
    batches = grouped(groups, lambda group: f"{group[0].upper()} {group[1]} batch")
    return [f"{what} {' and '.join(f'{batch}' for _, _, batch in here)}" for what, here in batches.items()]


def fusion_networks(runs: Runs = None, names: Container[str] | None = None) -> Markdown:
    """Of each network what our kernels bring, what fusing brings beside, and which way it therefore runs.

    names: the networks that have rows, all if None; the sentences below are of all in any case.
    """
    found, used = brought_to_networks(runs)
    if not found:
        return Markdown(NO_NETWORKS)
    columns = [
        Col("network", "name", left=True),
        Col("dtype", "dtype", left=True),
        Col("batch", "batch"),
        Col("PyTorch's best (µs)", "baseline_us", rounded),
        Col("layer by layer (µs)", "unfused_us", rounded),
        Col("fused (µs)", "fused_us", rounded),
        Col("fused pairs", "pairs"),
        Col("kernels: × PyTorch layer by layer", "kernels", _times),
        Col("fusion: × layer by layer", "fusion", _times),
        Col("both: × PyTorch", "both", _times),
        Col("runs", lambda one: "fused" if one.best_us == one.fused_us else "layer by layer", left=True),
    ]
    slower = [f"{one} {one.fusion:.2f}" for one in found if one.fusion is not None and one.fusion <= 1]
    none = [f"{one}" for one in found if one.fused_us is None]
    return of_rows(columns, [one for one in found if names is None or one.name in names], [
        f"{_fusion_means(found)}  ",
        f"Slower fused, and so run layer by layer, {len(slower)} of {len(found)}{listed(slower)}.  ",
        f"No pair was faster in one kernel in {len(none)} of {len(found)}{listed(none)}.  ",
        "One inference as one CUDA graph. kernels: PyTorch's best, for int8 its float16, over our network layer by "
        "layer. fusion: that over our network with two layers in one kernel where kernels timed alone said so; in one "
        "graph, where kernels overlap, it may be slower all the same.  ",
        measured_on(used),
    ])  # fmt: skip


def _times(ratio: float) -> str:
    return times(ratio, slower=True)


def _fusion_means(found: Sequence[Brought]) -> str:
    """Geometric means over VALIDATED networks of what kernels and what fusion bring, in one line."""
    means = []
    for (_, dtype, batch), here in _groups([one for one in found if one.name in VALIDATED]).items():
        kernels, brings = geometric(one.kernels for one in here), geometric(max(one.fusion or 1.0, 1.0) for one in here)
        means.append(f"{dtype} batch {batch}: kernels {kernels}, fusion {brings}")
    if not means:
        return ""
    return f"Geometric means over {', '.join(VALIDATED)}, where the faster way is run: {'; '.join(means)}."


# ------------------------------------------------------------------------------------------------------------- README


def headline(runs: Runs = None) -> Markdown:
    """Five rows, MobileNetV2 by type and batch and S4ConvD's convolution: what the kernels bring, and what fusion.

    µs of an inference in one CUDA graph, and of a launch. What has no record has no row.
    """
    found, used = brought_to_networks(runs)
    rows = [
        (f"MobileNetV2, {one.dtype}, {one.batch} image{'s' * (one.batch > 1)}", one)
        for one in sorted(found, key=lambda one: (one.batch, DTYPES.index(one.dtype)))
        if one.name == "mobilenet_v2" and one.dtype in ("float32", "float16") and one.batch in (1, 32)
    ]
    run = paper.newest(runs=runs)
    forward = paper.rows_at(run, PAPER).get("forward") if run is not None else None
    if forward and (theirs := paper.baseline_us(run, "forward", PAPER, runs=all_of(runs))):
        best = min(row.time_us for row in forward.values())
        rows.append(("1-D convolution (S4ConvD), forward, float32",
                     Brought("", "", "float32", PAPER.B, theirs, best, None)))  # fmt: skip
        used = [*used, run]
    if not rows:
        return Markdown(NO_NETWORKS)
    columns = [Col("", lambda row: row[0], left=True)]
    for head, name in (("PyTorch's best (µs)", "baseline_us"), ("our kernels (µs)", "unfused_us"),
                       ("two layers in one (µs)", "fused_us")):  # fmt: skip
        columns.append(Col(head, lambda row, name=name: getattr(row[1], name), rounded))
    for head, name in (("by the kernels", "kernels"), ("by fusion", "fusion"), ("in all", "both")):
        columns.append(Col(head, lambda row, name=name: getattr(row[1], name) or None, "{:.2f} ×".format))
    dates = sorted(run.date[:10] for run in used)
    gpus = ", ".join(dict.fromkeys(run.gpu for run in used))
    return of_rows(columns, rows, [f"Measured on {gpus}, {dates[0]} to {dates[-1]}."])


def losses(runs: Runs = None) -> Markdown:
    """Where our kernels, or their fusion, lose: how many layers, pairs and networks, and which kinds; a list."""
    lines = []
    rows = [row for row in layers(runs)[0] if row.get("speedup_vs_peer")]
    lost: dict[str, list[str]] = {}
    for (op, path, dtype, batch), here in grouped(
        rows, lambda row: (row["op"], row["path"], row["dtype"], row["batch"])
    ).items():
        mean = statistics.geometric_mean(row["speedup_vs_peer"] for row in here)
        if mean < 1:
            name = f"{path.upper()} pairs in one kernel" if op == "fused" else f"{op} layers"
            lost.setdefault(name, []).append(f"{dtype} batch {batch} ({times(mean)} ×)")
    if rows:
        slower = sum(row["speedup_vs_peer"] < 1 for row in rows)
        kinds = "; ".join(f"{name} in {_and(where)}" for name, where in lost.items())
        mean = f" On the mean: {kinds}." if kinds else ""
        lines.append(f"- Slower than PyTorch's best way: {slower} of {len(rows)} recorded layers and pairs.{mean}")
    pairs = [one for one in brought_to_pairs(runs)[0] if one.fusion]
    pairs.sort(key=lambda one: (DTYPES.index(one.dtype), one.batch))
    parts = []
    for (dtype, batch), here in grouped(pairs, lambda one: (one.dtype, one.batch)).items():
        slower = [one.fusion < 1 for one in here]
        parts += [f"{dtype} batch {batch} ({share(slower)})"] if sum(slower) * 2 > len(slower) else []
    if parts:
        lines.append(f"- Fusing is slower than our own two kernels for most pairs in {_and(parts)}.")
    found = brought_to_networks(runs)[0]
    if found:
        behind = [one for one in found if one.kernels and one.kernels * max(one.fusion or 1.0, 1.0) < 1]
        names = listed([f"{one.name} in {one.dtype} at batch {one.batch}" for one in behind])
        lines.append(f"- Slower than PyTorch's best as a whole: {len(behind)} of {len(found)} networks{names}.")
    return Markdown("\n".join(lines or [NO_LAYERS]) + "\n")


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
