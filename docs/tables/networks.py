"""Tables of layers, pairs and networks against PyTorch, of the planner, of sparse filters, of counters of layers."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from dwlab import planner, records
from dwlab.planner import validation
from dwlab.problems import PAPER
from dwlab.problems.layers import DTYPES, Fused
from dwlab.problems.networks import network
from dwlab.records import Record
from dwlab.report import rows as found_in
from dwlab.report.rows import (
    SOURCE,
    VALIDATED,
    Brought,
    Row,
    Runs,
    all_of,
    brought_to_networks,
    brought_to_pairs,
    fastest_sparse,
    geometric,
    group_of,
    grouped,
    layer_text,
    layers_of,
    layout_of,
    measured_on,
    network_of,
    op_of,
    over,
    share,
)
from dwlab.text.tabular import Col, Markdown, of_rows, percent, rounded, times
from tables import stages

LIBRARIES = ("cuBLAS", "PyTorch", "cuSPARSELt heuristic", "cuSPARSELt search", "cuSPARSE")
"""Those that a layer with sparse filters is compared with."""

NONE = Markdown(
    "Nothing is recorded. On a GPU: `python benchmarks/record_layers.py`, `record_networks.py`, `record_sparse.py`.\n"
)
LARGE_US = 20.0
"""Least time at copy bandwidth of a large layer: a launch's start and end are a small part of it."""


def _slower(ratio: float) -> str:
    return times(ratio, slower=True)


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# -------------------------------------------------------------------------------------------------------------- layers


def layers(runs: Runs) -> Markdown:
    """Our stages against PyTorch's best on layers of image networks, a row an op, storage type and batch."""
    rows, used = found_in.layers(runs)
    if not rows:
        return NONE
    groups, copied = grouped(rows, group_of), records.copies(runs, used[-1].gpu)
    here = {(row["op"], row["path"], row["layer"], row["dtype"], row["batch"]) for row in rows}
    missing: Counter[Any] = Counter()
    for dtype, batch in itertools.product({row["dtype"] for row in rows}, {row["batch"] for row in rows}):
        for op, path, layer in set().union(*(layers_of(name, dtype) for name in VALIDATED)):
            missing[op_of({"op": op, "path": path}), dtype, batch] += (op, path, layer, dtype, batch) not in here

    def numbers(name: str) -> Callable[[Any], list[float]]:
        return lambda key: [row[name] for row in groups[key] if row.get(name)]

    def large(key: Any) -> list[float]:
        return [row["fraction_of_copy"] for row in groups[key]
                if row.get("fraction_of_copy") and row["copy_bound_us"] >= LARGE_US]  # fmt: skip

    def as_large(key: Any) -> list[float]:
        timed = [row for row in groups[key] if copied and row.get("time_us") and row["copy_bound_us"] >= LARGE_US]
        both = [(records.copy_us(row["compulsory_bytes"], copied), row["time_us"]) for row in timed]
        return [least / us for least, us in both if least]

    def median(found: list[float]) -> str:
        return percent(statistics.median(found)) if found else ""

    def near(found: list[float]) -> str:
        return share([one >= 0.85 for one in found])

    ratios, own = numbers("speedup_vs_peer"), numbers("speedup_vs_apart")
    columns = [
        Col("layers of", lambda key: key[0], left=True),
        Col("dtype", lambda key: key[1], left=True),
        Col("batch", lambda key: key[2]),
        Col("layers", lambda key: len(groups[key])),
        Col("not measured", lambda key: missing.get(key, 0)),
        Col("× baseline, geometric mean", ratios, geometric),
        Col("least", ratios, lambda found: times(min(found, default=None))),
        Col("slower", ratios, lambda found: str(sum(one < 1 for one in found))),
        Col("of copy, median", numbers("fraction_of_copy"), median),
        Col("large layers: median", large, median),
        Col("at 85 % of copy", large, near),
        Col("of a copy as large", as_large, near),
        Col("× unfused, geometric mean", own, geometric),
        Col("slower", own, lambda found: share([one < 1 for one in found])),
    ]
    lost = sorted(
        (row for row in rows if (row.get("speedup_vs_peer") or 1) < 1), key=lambda row: row["speedup_vs_peer"]
    )
    worst = "; ".join(
        f"{row['layer']} ({row['dtype']}, batch {row['batch']}) {row['speedup_vs_peer']:.2f}" for row in lost[:5]
    )
    compiled = sum(row["compiled"] for row in rows)
    return of_rows(columns, groups, [
        f"Slower than the baseline: {len(lost)} of {len(rows)}, the worst {worst}.  ",
        f"not measured: of the distinct layers and pairs of {', '.join(VALIDATED)}, those without a row. × baseline: "
        "the fastest of any record of PyTorch over our fastest stage, both in CUDA graphs and their best layout; "
        f"torch.compile is among them for {compiled} of {len(rows)} rows; float32 without TF32, int8 beside "
        "PyTorch's float16, and pointwise beside torch._int_mm too. of copy: compulsory bytes over the time, against "
        f"the copy of its run. large: {LARGE_US:g} µs or more at the copy bandwidth. of a copy as large: at 85 % of a "
        "copy of as many bytes. × unfused: our two kernels of a pair, one after the other in a graph, over the fused "
        "one.  ",
        measured_on(used),
    ])  # fmt: skip


def others(runs: Runs) -> Markdown:
    """Layers of no network: each depthwise one with PyTorch's best too, of the others a line an op, type and batch."""
    rows, used = found_in.layers(runs, of_networks=False)
    if not rows:
        return NONE
    columns = [
        Col("layer", lambda row: row["layer"], left=True),
        Col("dtype", lambda row: row["dtype"], left=True),
        Col("batch", lambda row: row["batch"]),
        Col("stage, layout", lambda row: f"{row['stage']}, {row['layout']}" if row.get("stage") else "none", left=True),
        Col("µs", lambda row: row.get("time_us"), rounded),
        Col("baseline (µs)", lambda row: row.get("peer_time_us"), rounded),
        Col("× baseline", lambda row: row.get("speedup_vs_peer"), times),
        Col("baseline", lambda row: row.get("peer"), left=True),
    ]
    lines = []
    for (op, dtype, batch), here in grouped((row for row in rows if row["op"] != "depthwise2d"), group_of).items():
        ratios = [row["speedup_vs_peer"] for row in here if row.get("speedup_vs_peer")]
        lines.append(
            f"{len(here)} drawn layers of {op}, {dtype}, batch {batch}: × baseline {geometric(ratios)}, geometric "
            f"mean; {times(min(ratios))}, the least; below 1: {sum(one < 1 for one in ratios)}, below 0.9: "
            f"{sum(one < 0.9 for one in ratios)}.  "
        )
    return of_rows(columns, [row for row in rows if row["op"] == "depthwise2d"], [*lines, measured_on(used)])


def losses(runs: Runs) -> Markdown:
    """Where our kernels, or their fusion, lose: how many layers, pairs and networks, and which kinds; a list."""
    lines = []
    rows = [row for row in found_in.layers(runs)[0] if row.get("speedup_vs_peer")]
    lost: dict[str, list[str]] = {}
    for (op, dtype, batch), here in grouped(rows, group_of).items():
        mean = statistics.geometric_mean(row["speedup_vs_peer"] for row in here)
        if mean < 1:
            name = f"{op.partition('/')[2].upper()} pairs in one kernel" if "/" in op else f"{op} layers"
            lost.setdefault(name, []).append(f"{dtype} batch {batch} ({times(mean)} ×)")
    if rows:
        slower = sum(row["speedup_vs_peer"] < 1 for row in rows)
        more = [row["speedup_vs_peer"] < 1 for row in found_in.layers(runs, False)[0] if row.get("speedup_vs_peer")]
        also = f", {share(more)} of no network" if more else ""
        kinds = "; ".join(f"{name} in {_and(where)}" for name, where in lost.items())
        mean = f" On the mean: {kinds}." if kinds else ""
        behind = f"{slower} of {len(rows)} recorded layers and pairs{also}"
        lines.append(f"- Slower than PyTorch's best way: {behind}.{mean}")
    pairs = sorted(
        (one for one in brought_to_pairs(runs)[0] if one.fusion), key=lambda one: (DTYPES.index(one.dtype), one.batch)
    )
    parts = []
    for (dtype, batch), here in grouped(pairs, lambda one: (one.dtype, one.batch)).items():
        slower = [one.fusion < 1 for one in here]
        parts += [f"{dtype} batch {batch} ({share(slower)})"] if sum(slower) * 2 > len(slower) else []
    if parts:
        lines.append(f"- Fusing is slower than our own two kernels for most pairs in {_and(parts)}.")
    found = brought_to_networks(runs)[0]
    if found:
        behind = [f"{one.name} in {one.dtype} at batch {one.batch}" for one in found if one.kernels and one.both < 1]
        names = f": {'; '.join(behind)}" if behind else ""
        lines.append(f"- Slower than PyTorch's best as a whole: {len(behind)} of {len(found)} networks{names}.")
    return Markdown("\n".join(lines) + "\n") if lines else NONE


NEAR = 0.1
"""How far the planner's bytes may be from the hardware's, as a fraction of these, and count as right."""


def layer_counters(runs: Runs = None) -> tuple[list[Row], list[Record]]:
    """The newest counters of each stage, layer, layout, batch and storage type; and the runs."""
    names = ("op", "path", "stage", "layer", "layout", "batch", "dtype")
    rows, used = records.newest_rows("layer_counters", lambda row: tuple(row[name] for name in names), runs)
    order = ("depthwise2d", "pointwise", "fused")
    return sorted(rows, key=lambda row: (order.index(row["op"]), row["path"], row["stage"], -len(row["dtype"]))), used


def counters(runs: Runs) -> Markdown:
    """Requests and sectors of layers' launches by formula and by the hardware, a row a stage and storage type.

    And in how many launches the planner's accesses, in sectors, are what warps requested.
    """
    rows, used = layer_counters(runs)
    if not rows:
        return NONE

    def as_predicted(what: str) -> Callable[[Any], str]:
        names = [f"{kind}_{what}" for kind in ("load", "store")]
        known = lambda one: [row for row in one[1] if None not in map(row.get, names)]  # noqa: E731
        return lambda one: share([all(row[name] == row[f"predicted_{name}"] for name in names) for row in known(one)])

    def ratio(one: Any) -> str:
        found = sorted(row["load_sectors"] / row["predicted_load_sectors"] for row in one[1] if row.get("load_sectors"))
        return " to ".join(dict.fromkeys(f"{value:.2f}" for value in (found[0], found[-1]))) if found else ""

    def planned(one: Any) -> str:
        requested = [(row.get("planned_asked_bytes"), 32 * (row["load_sectors"] + row["store_sectors"]))
                     for row in one[1] if row.get("load_sectors") and row.get("store_sectors")]  # fmt: skip
        return share([abs(bytes_ / of - 1) <= NEAR for bytes_, of in requested if bytes_])

    columns = [
        Col("stage", lambda one: one[0][0], left=True), Col("dtype", lambda one: one[0][1], left=True),
        Col("launches", lambda one: len(one[1])), Col("requests as the formula says", as_predicted("requests")),
        Col("sectors as the formula says", as_predicted("sectors")), Col("load sectors / formula", ratio),
        Col(f"planner within {100 * NEAR:g} %", planned),
    ]  # fmt: skip
    return of_rows(columns, grouped(rows, lambda row: (f"{op_of(row)}/{row['stage']}", row["dtype"])).items(), [
        f"{len(rows)} launches. Of copies past the registers (cp.async) the hardware counts a sector for each 32 bytes "
        "of shared memory that a 128-byte line goes to: more than the formula where rows lie off by 16 bytes, as the "
        "interpreter's `copied_again` counts. planner: the bytes that its plan says warps request. Counted by Nsight "
        f"Compute, one launch each, from cold caches. {measured_on(used)}",
    ])  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- pairs


def _in_networks(runs: Runs, gpu: str) -> tuple[list[Brought], list[Record]]:
    """Every pair of the VALIDATED networks that was timed both ways in one run of its network, alike ones once.

    Arrays are in the L2 as far as they fit, as in the network. No baseline is timed so.
    """
    runs = records.shown_runs([run for run in all_of(runs) if run.sections.get("network_kernels")], gpu)
    recorded = {network_of(row) for run in runs for row in run.sections["network_kernels"]}
    found: dict[tuple[str, str, int], Brought] = {}
    used: list[Record] = []
    for name, batch, dtype, layout in sorted(recorded, key=lambda one: (one[0], one[2], one[1], one[3])):
        if name in VALIDATED:
            timed, run = validation.timed_kernels(network(name, batch, layout, dtype), gpu, runs)
            times = {problem: us for _, problem, us in timed}
            used += [run] if run is not None else []
            for pair, us in times.items():
                if isinstance(pair, Fused) and pair.first in times and pair.second in times:
                    key = layer_text(pair), dtype, batch
                    both = times[pair.first] + times[pair.second]
                    found.setdefault(key, Brought(pair.main_path, *key, None, both, us))
    return list(found.values()), [run for run in runs if any(one is run for one in used)]


Group = tuple[str, str, int]
"""Kind, storage type and batch."""


def by_group(found: Sequence[Brought]) -> dict[Group, list[Brought]]:
    """Pairs or networks by kind, storage type and batch: types as the tables have them, DWPW first."""
    ordered = sorted(found, key=lambda one: (one.kind, DTYPES.index(one.dtype), one.batch))
    return grouped(ordered, lambda one: (one.kind, one.dtype, one.batch))


def pairs(runs: Runs) -> Markdown:
    """Gains by our kernels for pairs of layers, and by fusing them beside: a row a module, type and batch."""
    found, used = brought_to_pairs(runs)
    if not found:
        return NONE
    inside, also = _in_networks(runs, used[-1].gpu)
    every, in_networks = by_group(found), by_group(inside)
    alone = {group: [one for one in pairs if one.kernels and one.fusion] for group, pairs in every.items()}

    def number(group: Group) -> str:
        return f"{len(alone[group])}" + (f" of {len(every[group])}" if alone[group] != every[group] else "")

    def mean(ratio: Callable[[Brought], float | None], of: Mapping[Group, list[Brought]] = alone) -> Any:
        return lambda group: geometric((ratio(one) for one in of.get(group, ())), True)

    def won(of: Mapping[Group, list[Brought]]) -> Any:
        return lambda group: share([one.fusion > 1 for one in of.get(group, ()) if one.fusion is not None])

    shown = [
        Col("module", lambda group: group[0].upper(), left=True),
        Col("dtype", lambda group: group[1], left=True),
        Col("batch", lambda group: group[2]),
        Col("pairs", number),
        Col("kernels: × PyTorch layer by layer", mean(lambda one: one.kernels)),
        Col("fusion: × layer by layer", mean(lambda one: one.fusion)),
        Col("faster fused", won(alone)),
        Col("both: × PyTorch", mean(lambda one: one.kernels * one.fusion)),
        Col("fusion in a network: × layer by layer", mean(lambda one: one.fusion, in_networks)),
        Col("faster fused", won(in_networks)),
    ]
    means = {
        group: [statistics.geometric_mean(one.fusion for one in ones) for of in (alone, in_networks)
                if (ones := of.get(group))]
        for group in every
    }  # fmt: skip
    faster = [group for group in every if means[group] and min(means[group]) > 1]
    slower = [group for group in every if means[group] and max(means[group]) < 1]
    return of_rows(shown, every, [
        f"On the mean fusing wins, however it is measured, in {len(faster)} of {len(every)} rows{_names(faster)}. "
        f"It loses, however it is measured, in {len(slower)}{_names(slower)}.  ",
        "Geometric means, TF32 off. kernels: PyTorch's fastest way for the two layers, for int8 its float16, over our "
        "own two kernels, one for each layer. fusion: our own two over our fused one; below 1 it is slower. both: the "
        "product of the two, which a comparison with PyTorch alone takes for fusion. These three with arrays out of "
        "the L2 as far as that can be, also the map that the first has just written, where our two were not timed in "
        "one graph: that favours fusion at batch 32. in a network: the same pairs timed with arrays in the L2 as far "
        "as they fit.  ",
        f"pairs: those of whose two layers both were timed. {measured_on([*used, *also])}",
    ])  # fmt: skip


def _names(groups: Sequence[Group]) -> str:
    """ ": DWPW int8 batch 1 and 32; …", the groups of a module and type together; "" of none."""
    batches = grouped(groups, lambda group: f"{group[0].upper()} {group[1]} batch")
    names = [f"{what} {' and '.join(f'{batch}' for *_, batch in here)}" for what, here in batches.items()]
    return f": {'; '.join(names)}" if names else ""


# ------------------------------------------------------------------------------------------------------------ networks


def networks(runs: Runs, names: Container[str] | None = None) -> Markdown:
    """Gains by our kernels for each network, by fusing beside, and the energy of an image with PyTorch's.

    names: the networks that have rows, all if None; the sentences below are of all in any case.
    """
    rows, used = found_in.networks(runs)
    found = {network_of(row): one for row, one in zip([row for row in rows if row.get("apart_us")],
                                                      brought_to_networks(runs)[0], strict=True)}  # fmt: skip
    if not found:
        return NONE
    ways = [one for run in all_of(runs) if run.gpu == used[-1].gpu for one in run.peers if one.get("time")]

    def among(way: str) -> int:
        tried = {(one["shape"]["network"], one["shape"]["N"], one["dtype"]) for one in ways
                 if way in str(one.get("way"))}  # fmt: skip
        return sum((row["network"], row["batch"], row.get("peer_dtype") or row["dtype"]) in tried for row in rows)

    def brought(name: str) -> Callable[[Row], Any]:
        return lambda row: getattr(found.get(network_of(row)), name, None)

    def millijoules(name: str) -> Callable[[Row], str | None]:
        return lambda row: rounded(1e3 * row[name]) if row.get(name) else None

    columns = [
        Col("network", "network", left=True),
        Col("dtype", "dtype", left=True),
        Col("batch", "batch"),
        Col("PyTorch's best (µs)", "peer_time_us", rounded),
        Col("layer by layer (µs)", "apart_us", rounded),
        Col("fused (µs)", "fused_us", rounded),
        Col("fused pairs", "pairs"),
        Col("kernels: × PyTorch", brought("kernels"), _slower),
        Col("fusion: × layer by layer", brought("fusion"), _slower),
        Col("both: × PyTorch", brought("both"), _slower),
        Col("mJ an image", millijoules("joules")),
        Col("PyTorch's", millijoules("peer_joules")),
        Col("× PyTorch", lambda row: over(row.get("peer_joules") or None, row.get("joules")), _slower),
    ]
    means = []
    for (_, dtype, batch), here in by_group([one for one in found.values() if one.name in VALIDATED]).items():
        brings = geometric(max(one.fusion or 1.0, 1.0) for one in here)
        means.append(f"{dtype} batch {batch}: kernels {geometric(one.kernels for one in here)}, fusion {brings}")
    slower = [f"{one} {one.fusion:.2f}" for one in found.values() if one.fusion is not None and one.fusion <= 1]
    none = [f"{one}" for one in found.values() if one.fused_us is None]
    watts = [row[name] for row in rows for name in ("rest_watts", "peer_rest_watts") if row.get(name)]
    energy = (
        f" Energy: NVML's, of the whole board, which took {min(watts):.0f} to {max(watts):.0f} W at rest, part of it."
        if watts else ""
    )  # fmt: skip
    return of_rows(columns, [row for row in rows if names is None or row["network"] in names], [
        f"Geometric means over {', '.join(VALIDATED)}, where the faster way is run: {'; '.join(means)}.  ",
        f"Slower fused, and so run layer by layer, {len(slower)} of {len(found)}{_listed(slower)}. No pair was faster "
        f"in one kernel in {len(none)}{_listed(none)}.  ",
        "One inference as one CUDA graph, random weights. kernels: PyTorch's best, for int8 its float16, over our "
        "network layer by layer. fusion: that over our network with two layers in one kernel where kernels timed alone "
        "said so. PyTorch's: the least in time and energy of any record, TF32 off; among its ways is torch.compile as "
        f"it comes for {among(' torch.compile, ')} of {len(rows)} rows, with its search and frozen weights for "
        f"{among(' max-autotune with freezing, ')}.{energy}  ",
        measured_on(used),
    ])  # fmt: skip


def own(runs: Runs) -> Markdown:
    """Models of one's own and PyTorch's best, a row a network, storage type and batch."""
    rows, used = records.newest_rows("own", network_of, runs)
    columns = [
        Col("network", lambda row: row["network"].removeprefix("torchvision "), left=True),
        Col("dtype", "dtype", left=True),
        Col("batch", "batch"),
        Col("our kernels", "kernels"),
        Col("of these for two layers", "pairs"),
        Col("operations by PyTorch", "operations"),
        Col("µs", "time_us", rounded),
        Col("PyTorch's best (µs)", "peer_time_us", rounded),
        Col("× PyTorch", "speedup_vs_peer", _slower),
        Col("PyTorch's best", "peer", left=True),
    ]
    means = [f"{dtype} batch {batch} {geometric(row.get('speedup_vs_peer') for row in here)}"
             for (dtype, batch), here in grouped(rows, lambda row: (row["dtype"], row["batch"])).items()]  # fmt: skip
    return of_rows(columns, rows, [
        f"× PyTorch, geometric means: {'; '.join(means)}.  ",
        "One inference as one CUDA graph, weights of an untrained model, norms with the means of random images; ours "
        "and PyTorch's each as they are and through torch.compile as it comes, the faster of each; TF32 off.  ",
        measured_on(used),
    ]) if rows else NONE  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    return f": {'; '.join(names)}" if names else ""


def headline(runs: Runs) -> Markdown:
    """Five rows, MobileNetV2 by type and batch and S4ConvD's convolution: what the kernels bring, and what fusion.

    µs of an inference in one CUDA graph, and of a launch. What has no record has no row.
    """
    found, used = brought_to_networks(runs)
    rows = [
        (f"MobileNetV2, {one.dtype}, {one.batch} image{'s' * (one.batch > 1)}", one)
        for one in sorted(found, key=lambda one: (one.batch, DTYPES.index(one.dtype)))
        if one.name == "mobilenet_v2" and one.dtype in ("float32", "float16") and one.batch in (1, 32)
    ]
    run = stages.newest(PAPER, runs=runs)
    made = stages.totals_us(run, all_of(runs)) if run else {}
    if theirs := made.get(stages.ANY, {}).get("forward"):
        one = Brought("", "", "float32", PAPER.B, theirs, made["best"]["forward"], None)
        rows.append(("1-D convolution (S4ConvD), forward, float32", one))
        used = [*used, run]
    if not rows:
        return NONE
    columns = [Col("", lambda row: row[0], left=True)]
    for head, name, text in (
        ("PyTorch's best (µs)", "baseline_us", rounded), ("our kernels (µs)", "unfused_us", rounded),
        ("two layers in one (µs)", "fused_us", rounded), ("by the kernels", "kernels", "{:.2f} ×".format),
        ("by fusion", "fusion", "{:.2f} ×".format), ("in all", "both", "{:.2f} ×".format),
    ):  # fmt: skip
        columns.append(Col(head, lambda row, name=name: getattr(row[1], name) or None, text))
    dates = sorted(run.date[:10] for run in used)
    gpus = ", ".join(dict.fromkeys(run.gpu for run in used))
    return of_rows(columns, rows, [f"TF32 off. Measured on {gpus}, {dates[0]} to {dates[-1]}."])


EMPTY = "kernels that do nothing"
"""A row of `energy_tries`: what launching costs."""


def energy(runs: Runs) -> Markdown:
    """Ways to run a network that might take less energy: of each plan the order of launches that takes least."""
    rows, used = records.newest_rows("energy_tries", lambda row: (*network_of(row), row["way"]), runs)
    if not rows:
        return NONE

    def above_rest(row: Row) -> float:
        return 1e3 * row["joules"] * (1 - row["rest_watts"] / row["watts"])

    recorded = {network_of(row): row for row in found_in.networks(runs, used[-1].gpu)[0] if row.get("peer_joules")}
    body: list[tuple[Row, float | None]] = []
    for key, found in sorted(grouped(rows, network_of).items()):
        theirs = [row for row in found if row["way"].startswith("PyTorch ")]
        best = min(theirs, key=lambda row: row["joules"], default=None)
        least = best["joules"] if best else recorded.get(key, {}).get("peer_joules")
        plans = grouped([row for row in found if row["way"] != EMPTY and row not in theirs],
                        lambda row: row["way"].partition(",")[0])  # fmt: skip
        shown = [min(plan, key=lambda row: row["joules"]) for plan in plans.values()]
        body += [
            (row, over(least, row["joules"]) if row in shown else None) for row in found if row is best or row in shown
        ]
    columns = [
        *(Col(name, lambda one, name=name: one[0][name], left=True) for name in ("network", "dtype")),
        Col("way", lambda one: one[0]["way"].replace("apart", "layer by layer"), left=True),
        Col("kernels of ours", lambda one: one[0]["kernels"] or None),
        Col("time (µs)", lambda one: one[0]["time_us"], rounded),
        Col("W", lambda one: one[0]["watts"], "{:.0f}".format),
        Col("mJ", lambda one: 1e3 * one[0]["joules"], rounded),
        Col("of that above rest (mJ)", lambda one: above_rest(one[0]), rounded),
        Col("× PyTorch", lambda one: one[1], times),
    ]  # fmt: skip
    rest = sorted(row["rest_watts"] for row in rows)
    return of_rows(columns, body, [
        f"An image at batch {_and(sorted({str(row['batch']) for row in rows}))}, as a CUDA graph. At rest the GPU took "
        f"{rest[0]:.0f} to {rest[-1]:.0f} W. × PyTorch: the least energy of PyTorch's ways over ours; where this run "
        "has none of PyTorch's, the least of any record of whole networks.  ",
        measured_on(used),
    ])  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- planner


def validated(runs: Runs) -> Markdown:
    """The planner's decisions compared with measured times, maps NHWC: a row a network, storage type and batch."""
    having = [run for run in all_of(runs) if run.sections.get("network_kernels") or run.sections.get("layers")]
    having = records.shown_runs(having)
    recorded = {(row["network"], row["dtype"], row["batch"]) for run in having
                for row in run.sections.get("network_kernels", ()) if row["layout"] == "NHWC"}  # fmt: skip
    plans = [planner.plan(name, having[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
             for name, dtype, batch in sorted(recorded, key=lambda one: (one[0], -len(one[1]), *one[1:]))]  # fmt: skip
    made = [found for plan in plans if (found := validation.validate(plan, runs=having)).rows]
    if not made:
        return NONE

    def wrong(fuse: bool) -> Callable[[validation.Validation], int]:
        return lambda one: sum(not row.right and row.pair.fuse is fuse for row in one.rows)

    columns = [
        Col("network", lambda one: one.plan.network.name, left=True),
        Col("dtype", lambda one: one.plan.network.dtype, left=True),
        Col("batch", lambda one: one.plan.network.batch),
        Col("pairs measured", lambda one: len(one.rows)),
        Col("right", lambda one: sum(row.right for row in one.rows)),
        Col("fused, but slower", wrong(True)),
        Col("unfused, but slower", wrong(False)),
        Col("mean regret", "mean", percent),
        Col("largest", "largest", percent),
        Col("whole plan over the best", "regret", lambda regret: f"+{100 * regret:.1f} %"),
    ]
    rows = [row for one in made for row in one.rows]
    right = sum(row.right for row in rows)
    return of_rows(columns, made, [
        f"In all {right} of {len(rows)} decisions are right ({right / len(rows):.0%}), each pair by itself. Regret: "
        "time lost, of the better of the two ways. Layers and pairs that are alike count once.  ",
        *(f"Times: {source}.  " for source in dict.fromkeys(one.source for one in made)),
        f"Planned for {made[0].plan.gpu.name} by predicted times, whose constants were fitted to earlier ones of them; "
        "`benchmarks/plan_costs.py` says how far off they are for a network that the fit does not see. Each pair: "
        "`python -m dwlab plan NETWORK --validate`.",
    ])  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- sparse

DENSE = "ours, dense"


def beside(name: str, ours: str = "time_us") -> Callable[[Row], float | None]:
    """row -> how many times as fast it is as a library, or as the fastest of our dense stages; None where unknown.

    ours: the field that says how long it takes; of "copy_bound_us" it is what a copy of x, filters and y would be.
    """
    return lambda row: over(
        min(row["dense"].values(), default=None) if name == DENSE else row["peers"].get(name), row[ours]
    )


def _kinds(
    rows: Sequence[Row], used: Sequence[Record], ratios: Mapping[str, Callable[[Row], float | None]]
) -> Markdown:
    """A row for each kind of sparse layer: how many, and of each ratio geometric mean, least and greatest.

    A kind: the source's products or networks' layers, in a layout and a pattern.
    """
    if not rows:
        return NONE
    kinds = grouped(rows, lambda row: (row["networks"] != SOURCE, layout_of(row), row["pattern"]))

    def shown(ratio: Callable[[Row], float | None]) -> Callable[[tuple[Any, list[Row]]], str]:
        def text(kind: tuple[Any, list[Row]]) -> str:
            found = [one for row in kind[1] if (one := ratio(row)) is not None]
            return f"{geometric(found)} ({times(min(found))} to {times(max(found))})" if found else ""

        return text

    head = [
        Col("layers", lambda kind: "of networks" if kind[0][0] else "the source's", left=True),
        Col("layout", lambda kind: kind[0][1], left=True), Col("pattern", lambda kind: kind[0][2], left=True),
        Col("number", lambda kind: str(len(kind[1]))), *(Col(name, shown(ratio)) for name, ratio in ratios.items()),
    ]  # fmt: skip
    return of_rows(head, sorted(kinds.items(), key=lambda kind: kind[0][:2]), [measured_on(used)])


def sparse(runs: Runs) -> Markdown:
    """How many times as fast our fastest stage is as each library and as our dense stages, by kind of layer."""
    rows, used = fastest_sparse(runs)
    names = [*(name for name in LIBRARIES if any(name in row["peers"] for row in rows)), DENSE]
    return _kinds(rows, used, {f"× {name}": beside(name) for name in names})


TABLES = {
    "layers": layers, "layers/others": others, "layers/counters": counters, "headline": headline, "losses": losses,
    "pairs": pairs, "networks": networks, "networks/own": own, "networks/energy": energy, "planner": validated,
    "sparse": sparse,
    "networks/three": functools.partial(networks, names=("mobilenet_v1", "mobilenet_v2", "ceit_t")),
}  # fmt: skip
