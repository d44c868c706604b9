"""Layers of image networks, our fastest stage compared with PyTorch's fastest way: docs/results/layers.md."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dwlab import records
from dwlab.measure import baselines
from dwlab.problems.layers import DTYPES, LAYOUTS
from dwlab.problems.networks import network
from dwlab.records import Record
from dwlab.report.shared import (
    NO_LAYERS,
    VALIDATED,
    Row,
    Runs,
    all_of,
    geometric,
    grouped,
    measured_on,
    median,
    op_of,
    order_of,
    ratio_columns,
    share,
)
from dwlab.text.tabular import Col, Markdown, of_rows, percent

LARGE_US = 20.0
"""From this time at copy bandwidth on, a layer counts as large: a launch's start and end are a small part of it."""

Key = tuple[str, str, int]
"""Op, storage type and batch."""


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


# --------------------------------------------------------------------------------------------------------------- rows


def layers(runs: Runs = None) -> tuple[list[Row], list[Record]]:
    """(rows, runs): a row of each layer, batch and storage type on one GPU, and the runs that they are from.

    Each is of our fastest stage: of the newest row of each stage, but for stages that were timed again since and were
    not the fastest then. PyTorch's time is the fastest that any record has of the same version: not every run tries all
    of its ways; compiled: whether torch.compile was among them. file: of the record.
    """
    names = ("op", "path", "layer", "batch", "dtype")
    runs = all_of(runs)
    key = (*names, "stage", "layout")
    rows, used = records.newest_rows("layers", lambda row: tuple(row.get(name) for name in key), runs)
    here = [run for run in runs if used and run.gpu == used[-1].gpu and "layers" in run.sections]
    places = {id(row): place for place, run in enumerate(here) for row in run.sections["layers"]}
    last = {
        (one.id, records.shape_text(one.problem), one.dtype): place
        for place, run in enumerate(here) for one in run.measurements if records.calm(one.to_dict())
    }  # fmt: skip

    def rank(row: Row) -> tuple[Any, ...]:
        timed = f"{row['op']}/{row['path']}/{row.get('stage')}", records.shape_text(row["problem"]), row["dtype"]
        calm = records.calm(row)
        known = calm and bool(row.get("time_us")) and last.get(timed, -1) <= places[id(row)]
        return not known, not calm, row["time_us"] if known else -places[id(row)]

    rows = [min(some, key=rank) for some in grouped(rows, lambda row: tuple(row[name] for name in names)).values()]
    used = [run for run in used if any(here[places[id(row)]] is run for row in rows)]
    timed = (one for run in here for one in run.peers if one.get("time") and one.get("shape") and one.get("dtype"))
    ways = grouped(timed, lambda one: _computed(one, "shape", "name"))
    files = {id(row): run.file for run in used for row in run.sections["layers"]}
    rows = [
        {**_with_best_way(row, ways.get(_computed(row, "problem", "peer"), ())), "file": files[id(row)]} for row in rows
    ]

    def place(row: Row) -> tuple[Any, ...]:
        size = -row.get("compulsory_bytes", 0)
        return order_of(row), row["path"], -len(row["dtype"]), row["dtype"], row["batch"], size, row["layer"]

    return sorted(rows, key=place), used


_STORED = (*LAYOUTS, *DTYPES)


def _computed(row: Row, problem: str, name: str) -> tuple[Any, ...]:
    """What PyTorch computes for a row of layers, or computed as one of its ways, and which PyTorch: int8 is float16."""
    words = records.shape_text(row[problem]).split()
    kept = tuple(word for word in words if word not in _STORED and not word.startswith(("layout=", "zero_", "m_r=")))
    dtype = "float16" if row["dtype"] == "int8" else row["dtype"]
    return (row["path"], dtype, kept, *(row.get(name) or "").split()[:2])


def _with_best_way(row: Row, ways: Sequence[Row]) -> Row:
    """A row of layers with the fastest of these ways of PyTorch's, if one is faster than its baseline."""
    made = {**row, "compiled": any(baselines.kind(one["way"]) == "compile" for one in ways)}
    best = min(ways, key=lambda one: one["time"]["median_us"], default=None)
    if best is not None and row.get("peer_time_us") and best["time"]["median_us"] < row["peer_time_us"]:
        made |= {"peer": best["name"], "peer_time_us": best["time"]["median_us"]}
        if row.get("speedup_vs_peer"):
            made["speedup_vs_peer"] = row["speedup_vs_peer"] * made["peer_time_us"] / row["peer_time_us"]
    return made


def key_of(row: Row) -> Key:
    """What rows of layers are summed up by."""
    return op_of(row), row["dtype"], row["batch"]


def _missing(rows: Sequence[Row]) -> dict[Key, int]:
    """How many layers and pairs of VALIDATED networks have no row, of the types and batches that any row has."""
    here = {(row["op"], row["path"], row["layer"], row["dtype"], row["batch"]) for row in rows}
    found: Counter[Key] = Counter()
    for dtype, batch in itertools.product(DTYPES, sorted({row["batch"] for row in rows})):
        if any(row["dtype"] == dtype for row in rows):
            for op, path, layer in sorted(set().union(*(layers_of(name, dtype) for name in VALIDATED))):
                found[op_of({"op": op, "path": path}), dtype, batch] += (op, path, layer, dtype, batch) not in here
    return found


# ------------------------------------------------------------------------------------------------------------- tables


def layers_summary(runs: Runs = None) -> Markdown:
    """Our stages against PyTorch's best on layers of image networks, a row an op, storage type and batch; the losses.

    How many have a row, and how many of the networks' have none; the geometric mean, least and greatest of the
    baseline's time over ours; how many layers are slower, or have no time of ours or no baseline; the fraction of the
    copy bandwidth, of all layers and of large ones, and of these the time of a copy of as many bytes over ours. Where
    fused layers were timed as well as our own two kernels, the geometric mean and the least of that, and how many of
    how many are slower.
    """
    rows, used = layers(runs)
    if not rows:
        return Markdown(NO_LAYERS)
    groups = grouped(rows, key_of)
    missing, copied = _missing(rows), records.copies(runs, used[-1].gpu)

    def numbers(name: str, large: bool = False) -> Callable[[Key], list[float]]:
        return lambda key: [
            row[name] for row in groups[key] if row.get(name) and (not large or row["copy_bound_us"] >= LARGE_US)
        ]

    def as_large(key: Key) -> list[float]:
        large = [row for row in groups[key] if copied and row.get("time_us") and row["copy_bound_us"] >= LARGE_US]
        copies = [(records.copy_us(row["compulsory_bytes"], copied), row["time_us"]) for row in large]
        return [least / time for least, time in copies if least]

    ratios, fractions = numbers("speedup_vs_peer"), numbers("fraction_of_copy")
    large, own = numbers("fraction_of_copy", large=True), numbers("speedup_vs_apart")
    beside = any(row.get("speedup_vs_apart") for row in rows)
    columns = [
        Col("layers of", lambda key: key[0], left=True),
        Col("dtype", lambda key: key[1], left=True),
        Col("batch", lambda key: key[2]),
        Col("layers", lambda key: len(groups[key])),
        Col("not measured", lambda key: missing.get(key, 0)),
        *ratio_columns("× baseline", ratios),
        Col("no time or no baseline", lambda key: len(groups[key]) - len(ratios(key))),
        Col("of copy, median", fractions, median),
        Col("large layers: least", large, lambda found: percent(min(found, default=None))),
        Col("median", large, median),
        Col("at 85 % of copy", large, lambda found: share([one >= 0.85 for one in found])),
        Col("of a copy as large: least", as_large, lambda found: percent(min(found, default=None))),
        Col("median", as_large, median),
        Col("at 85 %", as_large, lambda found: share([one >= 0.85 for one in found])),
    ]
    if beside:
        columns += ratio_columns("× unfused", own, False, lambda found: share([one < 1 for one in found]))
    notes = []
    for name, whom in (("speedup_vs_peer", "the baseline"), ("speedup_vs_apart", "our own layer by layer")):
        timed = [row for row in rows if row.get(name)]
        lost = [f"{_name(row)} {row[name]:.2f}" for row in timed if row[name] < 1]
        if lost:
            among = len(rows) if whom == "the baseline" else len(timed)
            notes.append(f"Slower than {whom}, {len(lost)} of {among}: " + "; ".join(lost) + ".  ")
    failed = [f"{_name(row)}: {row['failure']}" for row in rows if row.get("failure")]
    if failed:
        notes.append(f"Without a time or a baseline, or with a wrong stage, {len(failed)}: {'; '.join(failed)}.  ")
    unseen = grouped((key for key in missing if key not in groups), lambda key: (key[0], missing[key]))
    if unseen:
        none = (
            f"{op}, {count} ({', '.join(f'{dtype} batch {batch}' for _, dtype, batch in keys)})"
            for (op, count), keys in unseen.items()
        )
        notes.append(f"None is measured of {'; '.join(none)}.  ")
    notes.append(f"not measured: of the distinct layers and pairs of {', '.join(VALIDATED)}, those without a row.  ")
    return of_rows(columns, groups, [*notes, *_notes(rows, used, beside)])


def layers_text(rows: Sequence[Row], shown: int = 6) -> str:
    """Rows of `layers` as lines of text, by operator, storage type and batch: of each the worst and the best.

    The geometric mean of the baseline's time over ours and how many are slower, of pairs also against our own kernels
    of the two layers where that was timed; then so many rows, those of the least and of the greatest ratio. Rows
    without a time or a baseline are left out.
    """
    lines = []
    groups: Mapping[Key, list[Row]] = grouped((row for row in rows if row.get("speedup_vs_peer")), key_of)
    for (op, dtype, batch), found in groups.items():
        here = sorted(found, key=lambda row: row["speedup_vs_peer"])
        ratios = [row["speedup_vs_peer"] for row in here]
        lost = f"{share([one < 1 for one in ratios])} slower"
        lines.append(f"{op}, {dtype}, batch {batch}: geometric mean {geometric(ratios)}, {lost}")
        if own := [row["speedup_vs_apart"] for row in here if row.get("speedup_vs_apart")]:
            lost = f"{share([one < 1 for one in own])} slower"
            lines.append(f"    against our own kernels of the two layers: {geometric(own)}, {lost}")
        for row in here if len(here) <= shown else here[: shown // 2] + here[shown // 2 - shown :]:
            ratio = f"{row['speedup_vs_peer']:7.2f}{'  lost' if row['speedup_vs_peer'] < 1 else ''}"
            both = f"{row['time_us']:9.1f} µs, PyTorch {row['peer_time_us']:7.1f} µs{ratio}"
            lines.append(f"    {row['layer']:36}{row['stage']:11}{both}")
    return "\n".join(lines)


def _name(row: Row) -> str:
    return f"{row['layer']} ({op_of(row)}, {row['dtype']}, batch {row['batch']})"


def _tried(rows: Sequence[Row], used: Sequence[Record]) -> list[str]:
    """How many of our stages were timed for a row, and in which layouts, by the runs' measurements; in one line."""
    found: Counter[str] = Counter()
    for run in used:
        timed: dict[tuple[Any, ...], set[tuple[str, str]]] = {}
        for one in run.measurements:
            what, layout = _without_layout(one.problem)
            timed.setdefault((one.op, one.path, one.dtype, what), set()).add((one.stage, layout))
        for row in rows:
            tried = timed.get((row["op"], row["path"], row["dtype"], _without_layout(row["problem"])[0]))
            if row["file"] == run.file and tried:
                layouts = " and ".join(sorted({layout for _, layout in tried}))
                found[f"{len({stage for stage, _ in tried})} in {layouts}"] += 1
    counts = [f"{tried} ({count} row{'s' * (count > 1)})" for tried, count in found.most_common()]
    return [f"A row has the fastest of our stages that were timed for it: {', '.join(counts)}.  "] if counts else []


def _without_layout(problem: Any) -> tuple[tuple[str, ...], str]:
    """A recorded problem's words but for its layout, and that."""
    words = re.split("[ =]", records.shape_text(problem))
    layouts = [word for word in words if word in LAYOUTS]
    return tuple(word for word in words if word not in LAYOUTS), layouts[0] if layouts else ""


def with_compile(rows: Sequence[Row]) -> str:
    """For how many rows of layers PyTorch's ways had one through torch.compile, in one line."""
    count = sum(row["compiled"] for row in rows)
    return f"torch.compile is among PyTorch's ways for {count or 'none'} of {len(rows)} rows.  "


def _notes(rows: Sequence[Row], used: Sequence[Record], beside: bool) -> list[str]:
    return [
        *_tried(rows, used),
        with_compile(rows),
        "× baseline: the fastest of PyTorch's ways in any record over our fastest stage, both in CUDA graphs, each in "
        "its best layout; int8 against PyTorch's float16. of copy: compulsory bytes over the time, against the copy "
        f"measured in the same run. large: {LARGE_US:g} µs or more at the copy bandwidth. of a copy as large: the time "
        "of a copy of as many bytes, which begins and ends as a launch does, over ours.  ",
        *(["× unfused: our own kernels of a pair, one after the other in a graph, over the fused one.  "] * beside),
        measured_on(used),
    ]
