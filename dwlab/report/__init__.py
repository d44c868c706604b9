"""Tables and figures from records: the paper's table repeated on a recorded GPU, layers, networks, the planner.

Made from a record, so that it can be made anywhere and any time. ``totals_table`` is the table, ``roofline_figure``
the roofline of every path, ``write`` puts both and the tables of each path beside the record as Markdown and PNG.
``tables()`` names every table that can be made of records, ``fill(text)`` renews those between
``<!-- begin:NAME -->`` and ``<!-- end:NAME -->`` in a Markdown file.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwlab import planner, records
from dwlab.gpu.machine import Ceilings
from dwlab.kernels import registry
from dwlab.kernels.parts import dependent_launch
from dwlab.measure import peers
from dwlab.model import roofline, timemodel
from dwlab.planner import validation
from dwlab.problems import PAPER, PATHS
from dwlab.problems.layers import DTYPES, LAYOUTS, Fused
from dwlab.problems.networks import network
from dwlab.records import Measurement, Record, epochs, tabular
from dwlab.records.tables import (
    ceilings_table,
    compared,
    compared_networks,
    comparisons_table,
    copies_table,
    grid_summary,
    grid_table,
    reduction_error_table,
    sanitizer_table,
    shapes_table,
    table,
    traffic_table,
    tries_table,
)
from dwlab.records.tabular import Markdown
from dwlab.records.writing import slug
from dwlab.report import drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED: Mapping[str, Any] = {
    "source": (
        "Babak & Schaller, CUDA Kernel Optimization and Counter-Free Performance Analysis for Depthwise Convolution in "
        "Cloud Environments, arXiv 2604.25422 (2026)"
    ),
    "gpu": "Tesla P100 16 GB (732 GB/s)",
    "ms": {
        "naive": {"forward": 29.97, "input_grad": 30.25, "weight_grad": 73.26, "total": 133.47},
        "coalesced": {"forward": 28.23, "input_grad": 28.78, "weight_grad": 49.64, "total": 106.65},
        "shared": {"forward": 16.36, "input_grad": 16.03, "weight_grad": 34.17, "total": 66.57},
        "warp_tiled": {"forward": 10.46, "input_grad": 10.61, "weight_grad": 19.91, "total": 40.99},
    },
    "effective_gbps": {"coalesced": 42.0, "shared": 75.0, "warp_tiled": 115.0},
    "times_as_fast": {"convolution": 3.26, "epoch": 1.29},
}
"""The paper's own figures: milliseconds of each path and their total as printed, and effective bandwidths (1e9 bytes a
second, rounded there); and how many times as fast warp_tiled makes the three paths together, and an epoch of S4ConvD,
as naive does. They were taken from digests of the paper, not from its text; the shape is B=16,384 H=128 L=48
K=48, float32, and the padding is not known. Totals are the paper's, and differ from the sums by rounding."""

THREE = ("forward", "input_grad", "weight_grad")
"""The paths that a training step needs, and that the paper adds up."""


def _rows(run: Record, problem: Any) -> dict[str, dict[str, Measurement]]:
    """Path -> stage -> measurement, at one problem."""
    wanted, dtype = records.describe_problem(problem), _dtype(run, problem)
    found: dict[str, dict[str, Measurement]] = {}
    for row in sorted(run.measurements, key=lambda row: row.order or 0):
        if row.op == "depthwise1d" and dict(row.problem) == wanted and row.dtype == dtype:
            found.setdefault(row.path, {})[row.stage] = row
    return found


def _peer_us(run: Record, path: str, problem: Any, kinds: Sequence[str] = ()) -> tuple[float, str] | None:
    """The fastest peer of these kinds (all if none are given): its time, and its way. Without a dtype: float32."""
    wanted, dtype = records.describe_problem(problem), _dtype(run, problem)
    ran = []
    for peer in run.peers:
        if not isinstance(peer, Mapping):  # a damaged record's
            continue
        time = peer.get("time")
        way = peer.get("way")
        if not isinstance(time, Mapping) or not isinstance(way, str) or peer.get("path") != path:
            continue
        median = time.get("median_us")
        if isinstance(median, bool) or not isinstance(median, int | float) or median <= 0:
            continue
        if (peer.get("shape"), peer.get("dtype", "float32")) != (wanted, dtype):
            continue
        if not kinds or peers.kind(way) in kinds:
            ran.append((float(median), way.split(":")[0]))
    return min(ran) if ran else None


def totals(run: Record, problem: Any = PAPER) -> dict[str, dict[str, float]]:
    """Row -> path -> µs, with "total" where all of its paths were measured.

    Rows: each stage that every path has; "best", the fastest stage of each path; "best, fused backward", the fastest
    forward and the fastest backward; "PyTorch, conv1d/conv2d/FFT", the fastest of its convolutions in either layout and
    its FFT for each path; "PyTorch, any way", with our matrix products too; and their fused forms.
    """
    found = _rows(run, problem)
    made: dict[str, dict[str, float]] = {}
    for stage in found.get("forward", {}):
        if all(stage in found.get(path, {}) for path in THREE):
            made[stage] = {path: found[path][stage].time_us for path in THREE}
    best = {path: min(row.time_us for row in rows.values()) for path, rows in found.items()}
    made["best"] = {path: best[path] for path in THREE if path in best}
    made["best, fused backward"] = {path: best[path] for path in ("forward", "backward") if path in best}
    for label, kinds in (("PyTorch, conv1d/conv2d/FFT", peers.LIBRARY_WAYS), ("PyTorch, any way", ())):
        times = {path: peer[0] for path in PATHS if (peer := _peer_us(run, path, problem, kinds))}
        made[label] = {path: times[path] for path in THREE if path in times}
        made[f"{label}, fused backward"] = {path: times[path] for path in ("forward", "backward") if path in times}
    for row in made.values():
        if set(row) >= set(THREE) or set(row) >= {"forward", "backward"}:
            row["total"] = sum(row.values())
    # A fused row says nothing without its backward.
    return {label: row for label, row in made.items() if row and ("backward" in row or "fused" not in label)}


def totals_table(problem: Any = PAPER, *, gpu: str | None = None, runs: Sequence[Record] | None = None) -> Markdown:
    """The paper's table for the newest run with all three paths at a problem, with the paper's own figures beside."""
    run = newest(problem, gpu=gpu, runs=runs)
    if run is None:
        return Markdown(
            f"No run with {', '.join(THREE)} at {records.shape_text(problem)} is recorded. "
            "On a GPU: `python -m dwlab study --record FOLDER`.\n"
        )
    made = totals(run, problem)
    naive = made.get("naive", {}).get("total")
    published = PUBLISHED["ms"]
    paper = records.describe_problem(problem) == records.describe_problem(PAPER)
    columns = [path for path in PATHS if any(path in row for row in made.values())]
    head = ["variant", *(f"{path} (ms)" for path in columns), "total (ms)", "× naive"]
    if paper:
        head += ["P100: forward", "input_grad", "weight_grad", "total (ms)", "× naive"]
    lines = tabular.heading(head)
    for label, row in made.items():
        cells = [label, *(_ms(row.get(path)) for path in columns), _ms(row.get("total"))]
        cells.append(tabular.times(naive / row["total"]) if naive and "total" in row else "")
        if paper:
            theirs = published.get(label, {})
            cells += [_printed(theirs.get(key)) for key in (*THREE, "total")]
            cells.append(tabular.times(published["naive"]["total"] / theirs["total"]) if theirs else "")
        lines.append(tabular.line(cells))
    lines += ["", *_ratios(made)]
    lines.append(f"{records.shape_text(problem)}, {_dtype(run, problem)}. Measured on {run.where()}.")
    if paper:
        lines.append(
            f"P100: as printed for a {PUBLISHED['gpu']} by {PUBLISHED['source']}, from digests of it; its padding is "
            "not known."
        )
    return Markdown("\n".join([*lines, ""]))


def _ratios(made: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the best stages gain over PyTorch and over naive, in a sentence each."""
    said = []
    for label, other in (
        ("the naive ones", "naive"),
        ("PyTorch's best of conv1d, conv2d and FFT for each path", "PyTorch, conv1d/conv2d/FFT"),
        ("the best of all its ways, our matrix products of it too", "PyTorch, any way"),
    ):
        theirs, ours = made.get(other, {}).get("total"), made.get("best", {}).get("total")
        fused = made.get("best, fused backward", {}).get("total")
        if theirs and ours:
            text = f"The best stages of the three paths are together {theirs / ours:,.2f} times as fast as {label}"
            if fused:
                # Theirs may be fused too, where that is faster.
                least = min(theirs, made.get(f"{other}, fused backward", {}).get("total", theirs))
                text += f", with the fused backward {least / fused:,.2f} times"
                text += "" if least == theirs else " (theirs fused as well, which is faster)"
            said.append(text + ".  ")
    return said


def bandwidth_table(problem: Any = PAPER, *, gpu: str | None = None, runs: Sequence[Record] | None = None) -> Markdown:
    """Effective bandwidth and place under the roof of every stage and path, the paper's beside."""
    run = newest(problem, gpu=gpu, runs=runs)
    if run is None and runs is not None:  # a run of layers
        run = next((one for one in reversed(list(runs)) if gpu in (None, one.gpu) and _by_path(one, problem)), None)
    if run is None:
        return Markdown("Nothing is recorded. On a GPU: `python -m dwlab study --record FOLDER`.\n")
    ceilings = _ceilings(run)
    paper = records.describe_problem(problem) == records.describe_problem(PAPER)
    head = ["path", "stage", "time (µs)", "effective GB/s", "of copy", "FLOP/B", "GFLOP/s", "of roof"]
    head += ["P100, forward: GB/s"] if paper else []
    lines = tabular.heading(head, range(2))
    for path, rows in _by_path(run, problem):
        for row, point in zip(rows, roofline.points(rows, roof_of(rows[0].op, ceilings)), strict=True):
            cells = [path, row.stage, tabular.rounded(row.time_us), tabular.rounded(row.effective_gbps)]
            cells += [tabular.percent(row.fraction_of_copy), f"{row.intensity:.2f}", f"{point.gflops:,.0f}"]
            cells.append(tabular.percent(point.fraction))
            if paper:
                theirs = PUBLISHED["effective_gbps"].get(row.stage) if path == "forward" else None
                cells.append("" if theirs is None else f"about {theirs:.0f}")
            lines.append(tabular.line(cells))
    lines += ["", f"Bandwidth and FLOP/B count compulsory bytes. Measured on {run.where()}.", ""]
    return Markdown("\n".join(lines))


def newest(problem: Any = PAPER, *, gpu: str | None = None, runs: Sequence[Record] | None = None) -> Record | None:
    """The newest run that has the paper's three paths at a problem; if none has, the newest with any path there.

    Where the problem is only its sizes, a run in float32 goes before all others.
    """
    given = [run for run in reversed(records.shown_runs(runs, gpu)) if _rows(run, problem)]
    if not hasattr(problem, "dtype"):
        given = [run for run in given if _dtype(run, problem) == "float32"] or given
    whole = (run for run in given if set(_rows(run, problem)) >= set(THREE))
    return next(whole, None) or next(iter(given), None)


def _by_path(run: Record, problem: Any) -> list[tuple[str, list[Measurement]]]:
    """(path, its rows at a problem); of layers (op and path, its rows)."""
    found = _rows(run, problem)
    if found:
        return [(path, list(found[path].values())) for path in PATHS if path in found]
    wanted, dtype = records.describe_problem(problem), _dtype(run, problem)
    groups: dict[str, list[Measurement]] = {}
    for row in sorted(run.measurements, key=lambda row: row.order or 0):
        if row.op != "depthwise1d" and dict(row.problem) == wanted and row.dtype == dtype:
            groups.setdefault(f"{row.op}/{row.path}", []).append(row)
    return list(groups.items())


def roof_of(op: str, ceilings: Ceilings) -> Ceilings:
    """The ceilings that bind an op: where there is a pointwise layer, tensor cores may exceed the FMA rate."""
    return ceilings if op.startswith("depthwise") else replace(ceilings, fma_tflops=None)


def _ceilings(run: Record) -> Ceilings:
    fields = {k: v for k, v in run.ceilings.items() if k in Ceilings.__dataclass_fields__}
    return Ceilings(**{**fields, "measured": True})


def _dtype(run: Record, problem: Any) -> str:
    """How the rows are stored: as a problem says; where it is only its sizes, in float32, if the run has any there."""
    wanted = records.describe_problem(problem)
    kinds = [row.dtype for row in run.measurements if dict(row.problem) == wanted]
    return getattr(problem, "dtype", "float32" if "float32" in kinds or not kinds else kinds[0])


def _ms(us: float | None) -> str:
    return "" if us is None else tabular.rounded(us / 1e3)


def _printed(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.2f}"


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


JUDGED = ("mobilenet_v1", "mobilenet_v2", "xception", "proxylessnas")
"""The networks whose layers are measured, and that the planner is judged on."""


@functools.lru_cache(64)
def layers_of(name: str, dtype: str) -> frozenset[tuple[str, str, str]]:
    """(op, path, `layer_text`) of a network's layers, and of its pairs that may share a kernel; alike ones once."""
    made = network(name, layout="NHWC", dtype=dtype)
    found: list[Any] = [layer.problem for layer in made.layers if layer.planned]
    for number, (one, two) in enumerate(itertools.pairwise(made.layers)):
        if not made.joint(number):
            found.append(Fused(one.problem, two.problem))
    return frozenset((one.op, one.main_path, layer_text(one)) for one in found)


LARGE_US = 20.0
"""From this time at copy bandwidth on, a layer counts as large: a launch's start and end are a small part of it."""


def layers(
    runs: Sequence[Record] | None = None, gpu: str | None = None
) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """(rows, runs): the newest row of each layer, batch and storage type on one GPU, and the runs that they are from.

    Beside ours stands the fastest time that any record has of the same version of PyTorch: not every run tries all of
    its ways; compiled: whether torch.compile was among them. file: of the record. gpu: that of the newest run with
    layers if None.
    """
    names = ("op", "path", "layer", "batch", "dtype")
    runs = records.load_runs() if runs is None else list(runs)
    rows, used = records.newest_rows("layers", lambda row: tuple(row[name] for name in names), runs, gpu)
    ways: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        for one in run.peers if used and run.gpu == used[-1].gpu and "layers" in run.sections else ():
            if one.get("time") and one.get("shape") and one.get("dtype"):
                ways.setdefault(_computed(one, "shape", "name"), []).append(one)
    files = {id(row): run.file for run in used for row in run.sections["layers"]}
    best = [_with_best_way(row, ways.get(_computed(row, "problem", "peer"), ())) for row in rows]
    rows = [{**made, "file": files[id(row)]} for made, row in zip(best, rows, strict=True)]
    order = {"depthwise2d": 0, "pointwise": 1, "fused": 2}

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (order.get(row["op"], 3), row["path"], -len(row["dtype"]), row["dtype"], row["batch"])

    return sorted(rows, key=place), used


_NO_LAYERS = "No layers of image networks are recorded. On a GPU: `python benchmarks/record_layers.py`.\n"


def layers_summary(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Our stages against PyTorch's best on layers of image networks, a row an op, storage type and batch; the losses.

    How many have a row, and how many of the networks' have none; the geometric mean, least and greatest of the peer's
    time over ours; how many layers are slower, or have no time of ours or no peer; the fraction of the copy bandwidth,
    of all layers and of large ones, and of these the time of a copy of as many bytes over ours. Where fused layers were
    timed beside our own two kernels, the geometric mean and the least of that, and how many of how many are slower.
    """
    rows, used = layers(runs, gpu)
    if not rows:
        return Markdown(_NO_LAYERS)
    head = ["layers of", "dtype", "batch", "layers", "not measured", "× peer, geometric mean", "least", "greatest"]
    head += ["slower", "no time or no peer", "of copy, median", "large layers: least", "median", "at 85 % of copy"]
    head += ["of a copy as large: least", "median", "at 85 %"]
    beside = any(row.get("speedup_vs_apart") for row in rows)
    head += ["× apart, geometric mean", "least", "slower"] if beside else []
    lines = tabular.heading(head, range(2))
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((_op(row), row["dtype"], row["batch"]), []).append(row)
    missing, copied = _missing(rows), records.copies(runs, used[-1].gpu)
    for (op, dtype, batch), here in groups.items():
        ratios = sorted(row["speedup_vs_peer"] for row in here if row.get("speedup_vs_peer"))
        fractions = [row["fraction_of_copy"] for row in here if row.get("fraction_of_copy")]
        large = [row["fraction_of_copy"] for row in here if row.get("fraction_of_copy") and _large(row)]
        cells = [op, dtype, f"{batch}", f"{len(here)}", f"{missing.get((op, dtype, batch), 0)}", _geometric(ratios)]
        cells += [tabular.times(ratios[i]) if ratios else "" for i in (0, -1)]
        cells += [f"{sum(ratio < 1 for ratio in ratios)}", f"{len(here) - len(ratios)}", _median(fractions)]
        cells += [tabular.percent(min(large, default=None)), _median(large)]
        cells.append(f"{sum(one >= 0.85 for one in large)} of {len(large)}" if large else "")
        sized = [row for row in here if copied and row.get("time_us") and _large(row)]
        times = [(records.copy_us(row["compulsory_bytes"], copied), row["time_us"]) for row in sized]
        as_large = [least / time for least, time in times if least]
        cells += [tabular.percent(min(as_large, default=None)), _median(as_large)]
        cells.append(f"{sum(one >= 0.85 for one in as_large)} of {len(as_large)}" if as_large else "")
        if beside:
            own = [row["speedup_vs_apart"] for row in here if row.get("speedup_vs_apart")]
            cells += [_geometric(own), tabular.times(min(own, default=None))]
            cells.append(f"{sum(ratio < 1 for ratio in own)} of {len(own)}" if own else "")
        lines.append(tabular.line(cells))
    lines.append("")
    for name, of in (("speedup_vs_peer", "the peer"), ("speedup_vs_apart", "our own layer by layer")):
        timed = [row for row in rows if row.get(name)]
        lost = [f"{_name(row)} {row[name]:.2f}" for row in timed if row[name] < 1]
        if lost:
            among = len(rows) if of == "the peer" else len(timed)
            lines.append(f"Slower than {of}, {len(lost)} of {among}: " + "; ".join(lost) + ".  ")
    failed = [row for row in rows if row.get("failure")]
    if failed:
        said = (f"{_name(row)}: {row['failure']}" for row in failed)
        lines.append(f"Without a time or a peer, or with a wrong stage, {len(failed)}: " + "; ".join(said) + ".  ")
    none: dict[tuple[str, int], list[str]] = {}
    for (op, dtype, batch), count in missing.items():
        if (op, dtype, batch) not in groups:
            none.setdefault((op, count), []).append(f"{dtype} batch {batch}")
    if none:
        said = (f"{op}, {count} ({', '.join(asked)})" for (op, count), asked in none.items())
        lines.append(f"None is measured of {'; '.join(said)}.  ")
    lines.append(f"not measured: of the distinct layers and pairs of {', '.join(JUDGED)}, those without a row.  ")
    lines += _layers_notes(rows, used, beside)
    return Markdown("\n".join(lines))


def layers_table(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Every layer recorded: our fastest stage and layout beside the fastest peer, and our own two kernels of a pair."""
    rows, used = layers(runs, gpu)
    if not rows:
        return Markdown(_NO_LAYERS)
    head = ["layers of", "layer", "dtype", "batch", "networks", "stage", "layout", "time (µs)", "of copy"]
    beside = any(row.get("apart_time_us") for row in rows)
    head += ["peer", "peer (µs)", "× peer", *(["apart (µs)", "× apart"] if beside else []), ""]
    lines = tabular.heading(head, (*range(7), 9, -1))
    for row in rows:
        cells = [_op(row), row["layer"], row["dtype"], f"{row['batch']}", row["networks"], row.get("stage") or ""]
        cells += [row.get("layout") or "", tabular.rounded(row.get("time_us"))]
        cells += [tabular.percent(row.get("fraction_of_copy")), row.get("peer") or ""]
        cells += [tabular.rounded(row.get("peer_time_us")), tabular.times(row.get("speedup_vs_peer"))]
        if beside:
            cells += [tabular.rounded(row.get("apart_time_us")), tabular.times(row.get("speedup_vs_apart"))]
        lines.append(tabular.line([*cells, row.get("failure") or tabular.result(row)]))
    lines += ["", *_layers_notes(rows, used, beside)]
    return Markdown("\n".join(lines))


def layers_text(rows: Sequence[Mapping[str, Any]], shown: int = 6) -> str:
    """Rows of `layers` as lines of text, by operator, storage type and batch: of each the worst and the best.

    The geometric mean of the peer's time over ours and how many are slower, of pairs also against our own kernels of
    the two layers where that was timed; then so many rows, those of the least and of the greatest ratio. Rows without a
    time or a peer are left out.
    """
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("speedup_vs_peer"):
            groups.setdefault((_op(row), row["dtype"], row["batch"]), []).append(row)
    lines = []
    for (op, dtype, batch), found in groups.items():
        here = sorted(found, key=lambda row: row["speedup_vs_peer"])
        ratios = [row["speedup_vs_peer"] for row in here]
        lost = f"{sum(one < 1 for one in ratios)} of {len(ratios)} slower"
        lines.append(f"{op}, {dtype}, batch {batch}: geometric mean {_geometric(ratios)}, {lost}")
        if apart := [row["speedup_vs_apart"] for row in here if row.get("speedup_vs_apart")]:
            lost = f"{sum(one < 1 for one in apart)} of {len(apart)} slower"
            lines.append(f"    against our own kernels of the two layers: {_geometric(apart)}, {lost}")
        for row in here if len(here) <= shown else here[: shown // 2] + here[shown // 2 - shown :]:
            ratio = f"{row['speedup_vs_peer']:7.2f}{'  lost' if row['speedup_vs_peer'] < 1 else ''}"
            times = f"{row['time_us']:9.1f} µs, PyTorch {row['peer_time_us']:7.1f} µs{ratio}"
            lines.append(f"    {row['layer']:36}{row['stage']:11}{times}")
    return "\n".join(lines)


def _missing(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int], int]:
    """(op, storage type, batch) -> how many layers and pairs of JUDGED networks have no row, of the types and batches
    that any row has."""
    here = {(row["op"], row["path"], row["layer"], row["dtype"], row["batch"]) for row in rows}
    found: dict[tuple[str, str, int], int] = {}
    for dtype, batch in itertools.product(DTYPES, sorted({row["batch"] for row in rows})):
        if any(row["dtype"] == dtype for row in rows):
            for op, path, layer in sorted(set().union(*(layers_of(name, dtype) for name in JUDGED))):
                key = (_op({"op": op, "path": path}), dtype, batch)
                found[key] = found.get(key, 0) + ((op, path, layer, dtype, batch) not in here)
    return found


def _tried(rows: Sequence[Mapping[str, Any]], used: Sequence[Record]) -> list[str]:
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
    said = [f"{tried} ({count} row{'s' * (count > 1)})" for tried, count in found.most_common()]
    return [f"A row has the fastest of our stages that were timed for it: {', '.join(said)}.  "] if said else []


_STORED = (*LAYOUTS, *DTYPES)


def _computed(row: Mapping[str, Any], problem: str, name: str) -> tuple[Any, ...]:
    """What PyTorch computes for a row of layers, or computed as one of its ways, and which PyTorch: int8 is float16."""
    words = records.shape_text(row[problem]).split()
    kept = tuple(word for word in words if word not in _STORED and not word.startswith(("layout=", "zero_", "m_r=")))
    dtype = "float16" if row["dtype"] == "int8" else row["dtype"]
    return (row["path"], dtype, kept, *(row.get(name) or "").split()[:2])


def _with_best_way(row: Mapping[str, Any], ways: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A row of layers with the fastest of these ways of PyTorch's for its problem, if one is faster than its peer."""
    made = {**row, "compiled": any(peers.kind(one["way"]) == "compile" for one in ways)}
    best = min(ways, key=lambda one: one["time"]["median_us"], default=None)
    if best is not None and row.get("peer_time_us") and best["time"]["median_us"] < row["peer_time_us"]:
        made |= {"peer": best["name"], "peer_time_us": best["time"]["median_us"]}
        if row.get("speedup_vs_peer"):
            made["speedup_vs_peer"] = row["speedup_vs_peer"] * made["peer_time_us"] / row["peer_time_us"]
    return made


def _with_compile(rows: Sequence[Mapping[str, Any]]) -> str:
    """For how many rows of layers PyTorch's ways had one through torch.compile, in one line."""
    count = sum(row["compiled"] for row in rows)
    return f"torch.compile is among PyTorch's ways for {count or 'none'} of {len(rows)} rows.  "


def _without_layout(problem: Any) -> tuple[tuple[str, ...], str]:
    """A recorded problem's words but for its layout, and that."""
    words = re.split("[ =]", records.shape_text(problem))
    layouts = [word for word in words if word in LAYOUTS]
    return tuple(word for word in words if word not in LAYOUTS), layouts[0] if layouts else ""


def _layers_notes(rows: Sequence[Mapping[str, Any]], used: Sequence[Record], beside: bool) -> list[str]:
    return [
        *_tried(rows, used),
        _with_compile(rows),
        "× peer: the fastest of PyTorch's ways in any record over our fastest stage, both in CUDA graphs, each in its "
        "best layout; int8 against PyTorch's float16. of copy: compulsory bytes over the time, against the copy "
        f"measured in the same run. large: {LARGE_US:g} µs or more at the copy bandwidth. of a copy as large: the time "
        "of a copy of as many bytes, which begins and ends as a launch does, over ours.  ",
        *(["× apart: our own kernels of a pair, one after the other in a graph, over the fused one.  "] * beside),
        f"Measured on {'; '.join(dict.fromkeys(run.where() for run in used))}.",
        "",
    ]


def _op(row: Mapping[str, Any]) -> str:
    return row["op"] if row["path"] == "forward" else f"{row['op']}/{row['path']}"


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['layer']} ({_op(row)}, {row['dtype']}, batch {row['batch']})"


def _geometric(ratios: Sequence[float]) -> str:
    return tabular.times(math.exp(sum(map(math.log, ratios)) / len(ratios))) if ratios else ""


def _large(row: Mapping[str, Any]) -> bool:
    return row["copy_bound_us"] >= LARGE_US


def _median(values: Sequence[float]) -> str:
    return tabular.percent(statistics.median(values)) if values else ""


# ----------------------------------------------------------------------------------------------------- layers' counters

NEAR = 0.1
"""How far the planner's bytes may be from the hardware's, as a fraction of these, and count as right."""

_NO_COUNTERS = (
    "No hardware counters of layers of image networks are recorded. On a GPU with Nsight Compute: "
    "`python benchmarks/ncu_layers.py`.\n"
)


def layer_counters(
    runs: Sequence[Record] | None = None, gpu: str | None = None
) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """(rows, runs): the newest counters of each stage, layer, layout, batch and storage type on one GPU, and the runs.

    gpu: as `records.shown_runs` takes it.
    """
    names = ("op", "path", "stage", "layer", "layout", "batch", "dtype")
    rows, used = records.newest_rows("layer_counters", lambda row: tuple(row[name] for name in names), runs, gpu)
    order = {"depthwise2d": 0, "pointwise": 1, "fused": 2}

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return order.get(row["op"], 3), row["path"], row["stage"], -len(row["dtype"]), row["dtype"]

    return sorted(rows, key=place), used


def asked_bytes(row: Mapping[str, Any]) -> int | None:
    """What the warps asked for, sectors of loads and stores by the hardware's counters; None if it has none."""
    return _sectors(row, "load_sectors", "store_sectors")


def l2_bytes(row: Mapping[str, Any]) -> int | None:
    """What the multiprocessors asked the L2 to read and write, by the hardware's counters; None if it has none."""
    return _sectors(row, "l2_sm_read_sectors", "l2_sm_write_sectors")


def _moved(row: Mapping[str, Any]) -> tuple[int | None, int | None]:
    return asked_bytes(row), l2_bytes(row)


def _sectors(row: Mapping[str, Any], *names: str) -> int | None:
    sectors = [row.get(name) for name in names]
    return None if None in sectors else 32 * sum(sectors)


def counters_summary(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Predicted against counted, a row a stage and storage type, and the fused launches of which the planner is wrong.

    In how many launches the formula's requests and sectors are the hardware's, and the hardware's sectors over the
    formula's. At the kernel's own tile the planner's accesses, in bytes, and its sectors over those that the warps
    asked for; and the accesses over those that the multiprocessors asked of the L2.
    """
    rows, used = layer_counters(runs, gpu)
    if not rows:
        return Markdown(_NO_COUNTERS)
    head = ["stage", "dtype", "launches", "requests as the formula says", "sectors as the formula says"]
    head += ["load sectors / formula", "store sectors / formula"]
    for what, of, _, _ in _COMPARED:
        head += [f"{what} / {of}", f"within {100 * NEAR:g} %"]
    lines = tabular.heading(head, range(2))
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((f"{_op(row)}/{row['stage']}", row["dtype"]), []).append(row)
    for (stage, dtype), here in groups.items():
        cells = [stage, dtype, f"{len(here)}"]
        for what in ("requests", "sectors"):
            known = [row for row in here if None not in (row.get(f"load_{what}"), row.get(f"store_{what}"))]
            names = [f"{kind}_{what}" for kind in ("load", "store")]
            same = sum(all(row[name] == row[f"predicted_{name}"] for name in names) for row in known)
            cells.append(f"{same} of {len(known)}")
        for kind in ("load_sectors", "store_sectors"):
            cells.append(_range([_over(row.get(kind), row[f"predicted_{kind}"]) for row in here]))
        for _, _, name, counted in _COMPARED:
            ratios = _planned(here, name, counted)
            cells += [_range([ratio for _, ratio in ratios]), _how_many(ratios)]
        lines.append(tabular.line(cells))
    lines.append("")
    for op in dict.fromkeys(row["op"] for row in rows):
        here = [row for row in rows if row["op"] == op]
        each = {(what, of): _planned(here, name, counted) for what, of, name, counted in _COMPARED}
        said = [f"{what} / {of} in {_how_many(ratios)}" for (what, of), ratios in each.items() if ratios]
        if not said:
            continue
        text = f"{op}, launches within {100 * NEAR:g} %: {', '.join(said)}."
        best = each["planner", "asked for"]
        known = [id(row) for row, _ in best]
        best = best + [(row, ratio) for row, ratio in each["accesses", "asked for"] if id(row) not in known]
        far = [f"{_launch(row)} {ratio:.2f}" for row, ratio in best if not _near(ratio)] if op == "fused" else []
        lines.append(f"{text} Beyond, of what was asked for: {'; '.join(far)}.  " if far else f"{text}  ")
    lines += _counters_notes(rows, used)
    return Markdown("\n".join(lines))


_COMPARED = (
    ("accesses", "asked for", "planned_bytes", asked_bytes),
    ("planner", "asked for", "planned_asked_bytes", asked_bytes),
    ("accesses", "L2", "planned_bytes", l2_bytes),
)
"""What is predicted, of what, and the fields of a row that have them."""


def _planned(
    rows: Sequence[Mapping[str, Any]], name: str, counted: Callable[[Mapping[str, Any]], int | None]
) -> list[tuple[Mapping[str, Any], float]]:
    """(row, the planner's bytes of that name over those that were counted) of rows that have both."""
    found = [(row, _over(row.get(name), counted(row))) for row in rows]
    return [(row, ratio) for row, ratio in found if ratio is not None]


def _how_many(ratios: Sequence[tuple[Mapping[str, Any], float]]) -> str:
    return f"{sum(_near(ratio) for _, ratio in ratios)} of {len(ratios)}" if ratios else ""


def counters_table(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Every launch that the hardware counted: requests and sectors beside the formula, bytes beside the planner's."""
    rows, used = layer_counters(runs, gpu)
    if not rows:
        return Markdown(_NO_COUNTERS)
    head = ["stage", "layer", "layout", "dtype", "batch"]
    for kind in ("load requests", "load sectors", "store requests", "store sectors"):
        head += [f"{kind}, formula", "hardware"]
    head += ["compulsory MB", "accesses MB", "planner MB", "asked for MB", "accesses / asked for"]
    head += ["planner / asked for", "L2 MB", "accesses / L2", "all L2 MB"]
    head += ["DRAM MB read", "written", "shared bank conflicts"]
    lines = tabular.heading(head, range(4))
    for row in rows:
        cells = [f"{_op(row)}/{row['stage']}", row["layer"], row["layout"], row["dtype"], f"{row['batch']}"]
        for kind in ("load_requests", "load_sectors", "store_requests", "store_sectors"):
            cells += [f"{row[f'predicted_{kind}']:,}", _counted(row.get(kind))]
        planned, sectors, asked, l2 = row.get("planned_bytes"), row.get("planned_asked_bytes"), *_moved(row)
        cells += [tabular.mb(row["compulsory_bytes"]), tabular.mb(planned), tabular.mb(sectors), tabular.mb(asked)]
        cells += [tabular.times(_over(planned, asked)), tabular.times(_over(sectors, asked))]
        cells += [tabular.mb(l2), tabular.times(_over(planned, l2))]
        cells.append(tabular.mb(_sectors(row, "l2_read_sectors", "l2_write_sectors")))
        cells += [tabular.mb(row.get("dram_read_bytes")), tabular.mb(row.get("dram_write_bytes"))]
        lines.append(tabular.line([*cells, _counted(row.get("shared_bank_conflicts"))]))
    lines += ["", *_counters_notes(rows, used)]
    return Markdown("\n".join(lines))


def _counters_notes(rows: Sequence[Mapping[str, Any]], used: Sequence[Record]) -> list[str]:
    launched = {(row["op"], row["path"], row["layer"], row["dtype"]) for row in rows if row["dtype"] in DTYPES}
    having = {one: [name for name in JUDGED if one[:3] in layers_of(name, one[3])] for one in launched}
    names = [name for name in JUDGED if all(name in here for here in having.values())]
    joined = " or ".join(names)
    if not names and all(having.values()):
        joined = ", ".join(name for name in JUDGED if any(name in here for here in having.values()))
    counted = {(row["op"], row["path"], row["stage"]) for row in rows}
    ops = {row["op"] for row in rows}
    others = [one for one in registry.stages() if one.op in ops and (one.op, one.path, one.name) not in counted]
    without = [f"{_op({'op': one.op, 'path': one.path})}/{one.name}" for one in others]
    said = f"{len(rows)} launch{'es' * (len(rows) > 1)}"
    if joined:
        said += f", on {len({one[:3] for one in launched})} layers and pairs of {joined}"
    if without:
        said += f"; none of {', '.join(without)}"
    split = dict.fromkeys(f"{_op(row)}/{row['stage']}" for row in rows if _asks_more_often(row))
    more = (
        "More requests than the formula's for the same sectors: where lanes of a warp go round a loop differently "
        f"often, and the compiler unrolls it, they no longer ask together ({', '.join(split)}).  "
    )
    return [
        f"{said}.  ",
        *([more] if split else []),
        "accesses: the planner's at the tile that the kernel has, each element that a block needs once. planner: these "
        "and what the kernel asks for beyond them, in sectors. Both as earlier records have them. asked for: 32 bytes "
        "for each sector that warps load or store. "
        "L2: for each that multiprocessors read or write there, without what it moves between its halves. Of copies "
        "past the registers (cp.async) the hardware counts a sector for each 32 bytes of shared memory that a 128-byte "
        "line goes to: more than the formula where rows lie 16 bytes askew, as the interpreter's `copied_again` "
        "counts. Counted by Nsight Compute, one launch each, from cold caches.  ",
        f"Measured on {'; '.join(dict.fromkeys(run.where() for run in used))}.",
        "",
    ]


def _asks_more_often(row: Mapping[str, Any]) -> bool:
    """Whether the hardware counted more requests than the formula has, for no more sectors."""
    requests, sectors = ((row.get(f"load_{what}"), row[f"predicted_load_{what}"]) for what in ("requests", "sectors"))
    return None not in requests and requests[0] > requests[1] and sectors[0] == sectors[1]


def _over(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


def _near(ratio: float) -> bool:
    return abs(ratio - 1) <= NEAR


def _range(ratios: Sequence[float | None]) -> str:
    known = sorted(one for one in ratios if one is not None)
    if not known:
        return ""
    least, greatest = f"{known[0]:.2f}", f"{known[-1]:.2f}"
    return least if least == greatest else f"{least} to {greatest}"


def _launch(row: Mapping[str, Any]) -> str:
    return f"{_op(row)}/{row['stage']} on {row['layer']} ({row['dtype']}, {row['layout']}, batch {row['batch']})"


def _counted(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


# ------------------------------------------------------------------------------------------------------------ networks


def networks(
    runs: Sequence[Record] | None = None, gpu: str | None = None
) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """(rows, runs): the newest row of each network, batch, storage type and layout on one GPU, and their runs.

    Beside ours stands the fastest time, and the least energy, that any record has of the same version of PyTorch: not
    every run tries all of its ways; compiled: whether torch.compile was among them. Not every run measures energy
    either: ours is then from the newest that did, and earlier_energy says so. gpu: that of the newest run with networks
    if None.
    """
    names = ("network", "batch", "dtype", "layout")
    runs = records.load_runs() if runs is None else list(runs)
    rows, used = records.newest_rows("networks", lambda row: tuple(row[name] for name in names), runs, gpu)
    every = [row for run in runs if used and run.gpu == used[-1].gpu for row in run.sections.get("networks") or ()]
    ways = [one for run in runs if used and run.gpu == used[-1].gpu for one in run.peers if isinstance(one, Mapping)]
    energies = {tuple(row[name] for name in names): row for row in every if row.get("joules")}
    rows = [_with_energy(row, energies.get(tuple(row[name] for name in names))) for row in rows]
    rows = [_with_best_peer(row, every) | {"compiled": _compiled(row, ways)} for row in rows]

    def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (row["network"], -len(row["dtype"]), row["dtype"], row["batch"], row["layout"])

    return sorted(rows, key=place), used


def _with_energy(row: Mapping[str, Any], newest: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A row of networks with the energy of another one, if it has none and did not try to measure it."""
    if newest is None or row.get("joules") or row.get("energy_failure") or row.get("failure"):
        return row
    taken = {name: newest[name] for name in ("joules", "watts", "window_s", "rest_watts")}
    return {**row, **taken, "earlier_energy": True}


def _with_best_peer(row: Mapping[str, Any], every: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A row of networks with the fastest peer for its network in these rows, and the least energy.

    Of the same storage type (int8 stands beside float16) and version of PyTorch.
    """
    if not row.get("speedup_vs_peer"):
        return row

    def computed(one: Mapping[str, Any]) -> tuple[Any, ...]:
        return one["network"], one["batch"], one.get("peer_dtype") or one["dtype"], *one["peer"].split()[:2]

    same = [one for one in every if one.get("peer_time_us") and computed(one) == computed(row)]
    best = min(same, key=lambda one: one["peer_time_us"])
    ours = row["speedup_vs_peer"] / row["peer_time_us"]
    made = {**row, "peer": best["peer"], "peer_time_us": best["peer_time_us"]}
    made["speedup_vs_peer"] = ours * best["peer_time_us"]
    measured = [one for one in same if one.get("peer_joules")]
    if row.get("joules") and measured:
        least = min(measured, key=lambda one: one["peer_joules"])
        made |= {name: least.get(name) for name in ("peer_joules", "peer_watts", "peer_window_s", "peer_rest_watts")}
    return made


def _compiled(row: Mapping[str, Any], ways: Sequence[Mapping[str, Any]]) -> bool:
    """Whether PyTorch's ways that were timed for a row of networks have one through torch.compile."""
    version = (row.get("peer") or "").split()[:2]
    for one in ways:
        way, shape, dtype = one.get("way"), one.get("shape"), one.get("dtype")
        if not isinstance(way, str) or not isinstance(shape, Mapping) or not one.get("time"):
            continue
        same = (shape.get("network"), shape.get("N")) == (row["network"], row["batch"]) and way.split()[:2] == version
        if same and dtype in (row["dtype"], row.get("peer_dtype")) and " torch.compile, " in way:
            return True
    return False


_NO_NETWORKS = "No networks are recorded. On a GPU: `python benchmarks/record_networks.py`.\n"


def networks_summary(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Whole networks, layer by layer and with fused modules, beside PyTorch's best; energy of an image; the losses."""
    rows, used = networks(runs, gpu)
    if not rows:
        return Markdown(_NO_NETWORKS)
    head = ["network", "dtype", "batch", "apart (µs)", "fused (µs)", "fused pairs", "PyTorch's best", "its time (µs)"]
    head += ["× PyTorch", "mJ an image", "PyTorch's", "× PyTorch", ""]
    lines = tabular.heading(head, (0, 1, 6, -1))
    layouts = {row["layout"] for row in rows}
    for row in rows:
        name = row["network"] if len(layouts) == 1 else f"{row['network']}, {row['layout']}"
        cells = [name, row["dtype"], f"{row['batch']}", tabular.rounded(row.get("apart_us"))]
        cells += [tabular.rounded(row.get("fused_us")), f"{row['pairs']}" if "pairs" in row else ""]
        peer = (row.get("peer") or "").removeprefix("PyTorch ")
        other = row.get("peer_dtype") if peer else None  # PyTorch has no int8 of these layers
        cells += [f"{other}: {peer}" if other else peer, tabular.rounded(row.get("peer_time_us"))]
        cells += [tabular.times(row.get("speedup_vs_peer")), _mj(row.get("joules")), _mj(row.get("peer_joules"))]
        cells += [tabular.times(_saved(row)), row.get("failure") or tabular.result(row)]
        lines.append(tabular.line(cells))
    lines.append("")
    lines += _networks_means(rows) + _networks_overlap(rows)
    lost = [row for row in rows if row.get("speedup_vs_peer") and row["speedup_vs_peer"] < 1]
    if lost:
        said = (f"{_network_name(row)} {row['speedup_vs_peer']:.2f}" for row in lost)
        lines.append(f"Slower than PyTorch, {len(lost)} of {len(rows)}: " + "; ".join(said) + ".  ")
    if any(row.get("joules") for row in rows):
        windows = [row[name] for row in rows for name in ("window_s", "peer_window_s") if row.get(name)]
        rest = [row[name] for row in rows for name in ("rest_watts", "peer_rest_watts") if row.get(name)]
        lines.append(
            f"Energy: NVML's counter of the whole board over windows of {min(windows):.1f} to {max(windows):.1f} s, "
            f"divided by the images in them; at rest the GPU took {min(rest):.0f} to {max(rest):.0f} W, which is part "
            "of it.  "
        )
    earlier = [_network_name(row) for row in rows if row.get("earlier_energy")]
    if earlier:
        lines.append(f"Energy from an earlier run than the time: {'; '.join(earlier)}.  ")
    for row in rows:
        if row.get("energy_failure"):
            lines.append(f"No energy of {_network_name(row)}: {row['energy_failure']}.  ")
    lines += _networks_missing(rows)
    compiled = [f"{row['network']} ({row['dtype']}, batch {row['batch']})" for row in rows if row["compiled"]]
    among = f"for {len(compiled)} of {len(rows)}: {'; '.join(compiled)}" if compiled else "for none"
    lines += [
        f"torch.compile is among PyTorch's ways {among}.  ",
        f"One inference as one CUDA graph, random weights, maps in {' and '.join(sorted(layouts))}. apart: a kernel "
        "for each layer; fused: two layers in one kernel where kernels timed alone say so. × PyTorch: its fastest way "
        "over the faster of ours, in time, and PyTorch's energy over ours; of PyTorch the best that any of the records "
        "has.  ",
        *(
            ["int8: beside PyTorch's float16, as PyTorch has no int8 of these layers on a GPU.  "]
            * any(row["dtype"] == "int8" for row in rows)
        ),
        f"Measured on {'; '.join(dict.fromkeys(run.where() for run in used))}.",
        "",
    ]
    return Markdown("\n".join(lines))


# --------------------------------------------------------------------------------------------- what fusion brings


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
        return _over(self.baseline_us, self.unfused_us)

    @property
    def fusion(self) -> float | None:
        """How many times as fast fused as layer by layer, by kernels of ours on both sides."""
        return _over(self.unfused_us, self.fused_us)


def brought_to_pairs(
    runs: Sequence[Record] | None = None, gpu: str | None = None
) -> tuple[list[Brought], list[Record]]:
    """(pairs, runs): every recorded pair whose two layers were timed as well, each kernel by itself.

    unfused_us: both kernels one after the other in a graph where that was timed, else the sum of the two, each with its
    arrays out of the L2 as far as that can be.
    """
    rows, used = layers(runs, gpu)
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


def brought_in_networks(
    runs: Sequence[Record] | None = None, gpu: str | None = None
) -> tuple[list[Brought], list[Record]]:
    """(pairs, runs): every pair of the JUDGED networks that was timed both ways in one run of its network.

    Arrays are in the L2 as far as they fit, as in the network. No baseline is timed so. Alike ones count once.
    """
    runs = records.shown_runs([run for run in _all(runs) if run.sections.get("network_kernels")], gpu)
    asked = {(row["network"], row["dtype"], row["batch"], row["layout"])
             for run in runs for row in run.sections["network_kernels"]}  # fmt: skip
    found: dict[tuple[str, str, int], Brought] = {}
    used: list[Record] = []
    for name, dtype, batch, layout in sorted(asked):
        if name not in JUDGED:
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


def brought_to_networks(
    runs: Sequence[Record] | None = None, gpu: str | None = None
) -> tuple[list[Brought], list[Record]]:
    """(networks, runs): every recorded network, each way in one CUDA graph; fused_us None where no pair paid."""
    rows, used = networks(runs, gpu)
    return [
        Brought("", row["network"], row["dtype"], row["batch"], row.get("peer_time_us"), row["apart_us"],
                row.get("fused_us"), row.get("pairs"))
        for row in rows if row.get("apart_us")
    ], used  # fmt: skip


def _all(runs: Sequence[Record] | None) -> list[Record]:
    return records.load_runs() if runs is None else list(runs)


def _grouped(found: Sequence[Brought]) -> dict[tuple[str, str, int], list[Brought]]:
    """By kind, storage type and batch: types as the tables have them, DWPW first."""
    groups: dict[tuple[str, str, int], list[Brought]] = {}
    for one in sorted(found, key=lambda one: (one.kind, DTYPES.index(one.dtype), one.batch)):
        groups.setdefault((one.kind, one.dtype, one.batch), []).append(one)
    return groups


def _won(found: Sequence[Brought]) -> str:
    ratios = [one.fusion for one in found if one.fusion is not None]
    return f"{sum(one > 1 for one in ratios)} of {len(ratios)}" if ratios else ""


def _mean(found: Sequence[float | None], slower: bool = False) -> str:
    """The geometric mean of those that there are."""
    known = [one for one in found if one is not None]
    return tabular.times(statistics.geometric_mean(known), slower) if known else ""


def fusion_pairs(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """What our kernels bring to pairs of layers, and what fusing them brings beside: a row a module, type and batch."""
    found, used = brought_to_pairs(runs, gpu)
    if not found:
        return Markdown(_NO_LAYERS)
    inside, also = brought_in_networks(runs, used[-1].gpu)
    in_networks = _grouped(inside)
    head = ["module", "dtype", "batch", "pairs", "kernels: × PyTorch layer by layer", "fusion: × layer by layer"]
    head += ["faster fused", "both: × PyTorch", "fusion in a network: × layer by layer", "faster fused"]
    lines = tabular.heading(head, range(2))
    groups, won, lost = _grouped(found), [], []
    for (kind, dtype, batch), every in groups.items():
        here = [one for one in every if one.kernels and one.fusion]
        beside = in_networks.get((kind, dtype, batch), [])
        cells = [kind.upper(), dtype, f"{batch}", f"{len(here)}" + (f" of {len(every)}" if here != every else "")]
        cells += [_mean([one.kernels for one in here], True), _mean([one.fusion for one in here], True), _won(here)]
        cells += [_mean([one.kernels * one.fusion for one in here], True)]
        lines.append(tabular.line([*cells, _mean([one.fusion for one in beside], True), _won(beside)]))
        means = [statistics.geometric_mean(one.fusion for one in some) for some in (here, beside) if some]
        won += [f"{kind.upper()} {dtype} batch {batch}"] if means and min(means) > 1 else []
        lost += [f"{kind.upper()} {dtype} batch {batch}"] if means and max(means) < 1 else []
    lines += [
        "",
        f"On the mean fusing wins, however it is measured, in {len(won)} of {len(groups)} rows{_listed(_joined(won))}. "
        f"It loses, however it is measured, in {len(lost)}{_listed(_joined(lost))}.  ",
        "Geometric means. kernels: PyTorch's fastest way for the two layers, for int8 its float16, over our own two "
        "kernels, one for each layer. fusion: our own two over our fused one; below 1 it is slower. both: the product "
        "of the two, which a comparison with PyTorch alone takes for fusion. These three with arrays out of the L2 as "
        "far as that can be, also the map that the first has just written, where our two were not timed in one graph: "
        "that favours fusion at batch 32. in a network: the same pairs timed with arrays in the L2 as far as they "
        "fit.  ",
        f"pairs: those of whose two layers both were timed. {_measured_on([*used, *also])}",
        "",
    ]
    return Markdown("\n".join(lines))


def fusion_networks(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Of each network what our kernels bring, what fusing brings beside, and which way it therefore runs."""
    found, used = brought_to_networks(runs, gpu)
    if not found:
        return Markdown(_NO_NETWORKS)
    head = ["network", "dtype", "batch", "PyTorch's best (µs)", "layer by layer (µs)", "fused (µs)", "fused pairs"]
    head += ["kernels: × PyTorch layer by layer", "fusion: × layer by layer", "both: × PyTorch", "runs"]
    lines = tabular.heading(head, (0, 1, -1))
    for one in found:
        best = min(one.unfused_us, one.fused_us or math.inf)
        cells = [one.name, one.dtype, f"{one.batch}"]
        cells += [tabular.rounded(us) for us in (one.baseline_us, one.unfused_us, one.fused_us)]
        cells += ["" if one.pairs is None else f"{one.pairs}", tabular.times(one.kernels, True)]
        cells += [tabular.times(one.fusion, True), tabular.times(_over(one.baseline_us, best), True)]
        lines.append(tabular.line([*cells, "fused" if best == one.fused_us else "layer by layer"]))
    names = {id(one): f"{one.name} ({one.dtype}, batch {one.batch})" for one in found}
    slower = [f"{names[id(one)]} {one.fusion:.2f}" for one in found if one.fusion is not None and one.fusion <= 1]
    none = [names[id(one)] for one in found if one.fused_us is None]
    lines += [
        "",
        f"{_fusion_means(found)}  ",
        f"Slower fused, and so run layer by layer, {len(slower)} of {len(found)}{_listed(slower)}.  ",
        f"No pair was faster in one kernel in {len(none)} of {len(found)}{_listed(none)}.  ",
        "One inference as one CUDA graph. kernels: PyTorch's best, for int8 its float16, over our network layer by "
        "layer. fusion: that over our network with two layers in one kernel where kernels timed alone said so; in one "
        "graph, where kernels overlap, it may be slower all the same.  ",
        _measured_on(used),
        "",
    ]
    return Markdown("\n".join(lines))


def _joined(rows: Sequence[str]) -> list[str]:
    """Names of rows, "DWPW int8 batch 1", with those of a module and type together: "DWPW int8 batch 1 and 32"."""
    groups: dict[str, list[str]] = {}
    for one in rows:
        what, _, batch = one.rpartition(" ")
        groups.setdefault(what, []).append(batch)
    return [f"{what} {' and '.join(batches)}" for what, batches in groups.items()]


def _listed(names: Sequence[str]) -> str:
    return f": {'; '.join(names)}" if names else ""


def _fusion_means(found: Sequence[Brought]) -> str:
    """Geometric means over JUDGED networks of what kernels and what fusion bring, in one line."""
    said = []
    for (_, dtype, batch), here in _grouped([one for one in found if one.name in JUDGED]).items():
        kernels, brings = _mean([one.kernels for one in here]), _mean([max(one.fusion or 1.0, 1.0) for one in here])
        said.append(f"{dtype} batch {batch}: kernels {kernels}, fusion {brings}")
    return f"Geometric means over {', '.join(JUDGED)}, where the faster way is run: {'; '.join(said)}." if said else ""


def headline(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Five rows, MobileNetV2 by type and batch and S4ConvD's convolution: what the kernels bring, and what fusion.

    µs of an inference in one CUDA graph, and of a launch. What has no record has no row.
    """
    found, used = brought_to_networks(runs, gpu)
    rows = [
        (f"MobileNetV2, {one.dtype}, {one.batch} image{'s' * (one.batch > 1)}", one)
        for one in sorted(found, key=lambda one: (one.batch, DTYPES.index(one.dtype)))
        if one.name == "mobilenet_v2" and one.dtype in ("float32", "float16") and one.batch in (1, 32)
    ]
    run = newest(gpu=gpu, runs=runs)
    if run is not None and (forward := _rows(run, PAPER).get("forward")) and (peer := _peer_us(run, "forward", PAPER)):
        best = min(row.time_us for row in forward.values())
        one = Brought("", "", "float32", PAPER.B, peer[0], best, None)
        rows.append(("1-D convolution (S4ConvD), forward, float32", one))
        used = [*used, run]
    if not rows:
        return Markdown(_NO_NETWORKS)
    head = [
        "",
        "PyTorch's best (µs)",
        "our kernels (µs)",
        "two layers in one (µs)",
        "by the kernels",
        "by fusion",
        "in all",
    ]
    lines = [tabular.line(head), tabular.line(["---"] + ["---:"] * 6)]
    for name, one in rows:
        cells = [tabular.rounded(us) for us in (one.baseline_us, one.unfused_us, one.fused_us)]
        brought = one.kernels, one.fusion, _over(one.baseline_us, min(one.unfused_us, one.fused_us or math.inf))
        lines.append(tabular.line([name, *cells, *(f"{ratio:.2f} ×" if ratio else "" for ratio in brought)]))
    dates = sorted(run.date[:10] for run in used)
    gpus = ", ".join(dict.fromkeys(run.gpu for run in used))
    return Markdown("\n".join([*lines, "", f"Measured on {gpus}, {dates[0]} to {dates[-1]}.", ""]))


def losses(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """Where our kernels, or their fusion, lose: how many layers, pairs and networks, and which kinds; a list."""
    lines = []
    rows = [row for row in layers(runs, gpu)[0] if row.get("speedup_vs_peer")]
    groups: dict[tuple[str, str, int], list[float]] = {}
    for row in rows:
        name = f"{row['path'].upper()} pairs in one kernel" if row["op"] == "fused" else f"{row['op']} layers"
        groups.setdefault((name, row["dtype"], row["batch"]), []).append(row["speedup_vs_peer"])
    lost: dict[str, list[str]] = {}
    for (name, dtype, batch), ratios in groups.items():
        if statistics.geometric_mean(ratios) < 1:
            lost.setdefault(name, []).append(
                f"{dtype} batch {batch} ({tabular.times(statistics.geometric_mean(ratios))} ×)"
            )
    if rows:
        slower = sum(row["speedup_vs_peer"] < 1 for row in rows)
        said = "; ".join(f"{name} in {_and(where)}" for name, where in lost.items())
        mean = f" On the mean: {said}." if said else ""
        lines.append(f"- Slower than PyTorch's best way: {slower} of {len(rows)} recorded layers and pairs.{mean}")
    pairs = [one for one in brought_to_pairs(runs, gpu)[0] if one.fusion]
    parts = []
    for dtype, batch in dict.fromkeys((one.dtype, one.batch) for one in sorted(pairs, key=_type_and_batch)):
        ratios = [one.fusion for one in pairs if (one.dtype, one.batch) == (dtype, batch)]
        if sum(one < 1 for one in ratios) * 2 > len(ratios):
            parts.append(f"{dtype} batch {batch} ({sum(one < 1 for one in ratios)} of {len(ratios)})")
    if parts:
        lines.append(f"- Fusing is slower than our own two kernels for most pairs in {_and(parts)}.")
    found = brought_to_networks(runs, gpu)[0]
    if found:
        behind = [one for one in found if one.kernels and one.kernels * max(one.fusion or 1.0, 1.0) < 1]
        said = _listed([f"{one.name} in {one.dtype} at batch {one.batch}" for one in behind])
        lines.append(f"- Slower than PyTorch's best as a whole: {len(behind)} of {len(found)} networks{said}.")
    return Markdown("\n".join(lines or [_NO_LAYERS]) + "\n")


def _type_and_batch(one: Brought) -> tuple[int, int]:
    return DTYPES.index(one.dtype), one.batch


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _measured_on(used: Sequence[Record]) -> str:
    return f"Measured on {'; '.join(dict.fromkeys(run.where() for run in sorted(used, key=lambda run: run.date)))}."


def energy_tries_table(runs: Sequence[Record] | None = None) -> Markdown:
    """Ways to run a network that might take less energy: W and J of each, beside PyTorch's way of least energy.

    That is one of the same run; where it has none, the least of any record of whole networks. How our least stands
    beside that one is said in any case: torch.compile does not make the same of a network each time.
    """
    names = ("network", "batch", "dtype", "layout")

    def key(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    rows, used = records.newest_rows("energy_tries", lambda row: (*key(row), row["way"]), runs)
    if not rows:
        return Markdown("No such tries are recorded.\n")
    ways: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        ways.setdefault(key(row), []).append(row)
    recorded = {key(row): row for row in networks(runs, used[-1].gpu)[0] if row.get("peer_joules")}
    head = ["network", "dtype", "way", "kernels of ours", "time (µs)", "W", "mJ", "of that above rest (mJ)"]
    lines = tabular.heading([*head, "× PyTorch"], range(3))
    elsewhere, strictly = [], []
    for one, found in sorted(ways.items(), key=lambda item: item[0]):
        theirs = [row for row in found if row["way"].startswith("PyTorch ")]
        peer = min(theirs, key=lambda row: row["joules"], default=None)
        least = None if peer is None else peer["joules"]
        if peer is None and one in recorded:
            least = recorded[one]["peer_joules"]
            elsewhere.append(recorded[one].get("peer_rest_watts"))
        ours = min((row["joules"] for row in found if row not in theirs and row["way"] != EMPTY), default=None)
        if ours and one in recorded:
            strictly.append(f"{tabular.times(recorded[one]['peer_joules'] / ours)} ({one[0]}, {one[2]})")
        for row in found:
            if row in theirs and row is not peer:
                continue
            above = row["joules"] * (1 - row["rest_watts"] / row["watts"])
            cells = [row["network"], row["dtype"], row["way"], f"{row['kernels'] or ''}"]
            cells += [tabular.rounded(row["time_us"]), f"{row['watts']:.0f}", _mj(row["joules"]), _mj(above)]
            compared = least and row is not peer and row["way"] != EMPTY
            lines.append(tabular.line([*cells, tabular.times(least / row["joules"] if compared else None)]))
    rest, windows = [row["rest_watts"] for row in rows], [row["window_s"] for row in rows]
    batches = " and ".join(f"{one}" for one in sorted({row["batch"] for row in rows}))
    lines += [
        "",
        f"An image at batch {batches}, as a CUDA graph. At rest the GPU took {min(rest):.0f} to {max(rest):.0f} W; "
        f"windows of {min(windows):.1f} s and more. {EMPTY}: as many as the fused graph has, with its grids and "
        "blocks. × PyTorch: the least energy of PyTorch's ways over ours.  ",
    ]
    if elsewhere:
        at_rest = sorted(one for one in elsewhere if one)
        said = f", where a GPU took {at_rest[0]:.0f} to {at_rest[-1]:.0f} W at rest" if at_rest else ""
        share = f"{len(elsewhere)} of {len(ways)}"
        lines.append(f"Of {share} networks PyTorch's is from records of whole networks{said}.  ")
    if strictly:
        lines.append(
            "Our least beside the least of PyTorch's that any record of whole networks has, on whichever GPU: "
            f"{', '.join(strictly)}.  "
        )
    lines += [f"Measured on {'; '.join(dict.fromkeys(run.where() for run in used))}.", ""]
    return Markdown("\n".join(lines))


EMPTY = "kernels that do nothing"
"""A row of `energy_tries`: what launching costs."""


def _networks_missing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of JUDGED networks have no row, of the storage types and batches that any row has, in one line."""
    here = {(row["network"], row["dtype"], row["batch"]) for row in rows}
    types, batches = {row["dtype"] for row in rows}, sorted({row["batch"] for row in rows})
    found, missing = [], 0
    for dtype, batch in itertools.product((one for one in DTYPES if one in types), batches):
        names = [name for name in JUDGED if (name, dtype, batch) not in here]
        missing += len(names)
        found += [f"{', '.join(names)} ({dtype}, batch {batch})"] if names else []
    asked = len(JUDGED) * len(types) * len(batches)
    return [f"Not measured, {missing} of {asked}: {'; '.join(found)}.  "] if found else []


def _networks_means(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The geometric mean of each storage type and batch over JUDGED networks, in one line."""
    groups: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.get("speedup_vs_peer") and row["network"] in JUDGED:
            groups.setdefault((row["dtype"], row["batch"]), []).append(row["speedup_vs_peer"])
    said = [
        f"{math.exp(statistics.fmean(map(math.log, ratios))):.2f} ({dtype}, batch {batch}, {len(ratios)} networks)"
        for (dtype, batch), ratios in sorted(groups.items(), key=lambda one: (-len(one[0][0]), one[0]))
    ]
    return [f"Geometric means of × PyTorch, in time: {'; '.join(said)}.  "] if said else []


def _networks_overlap(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What kernels that start early save of the faster of our two graphs, in one line. Older rows do not say."""
    saved, asked = [], 0
    for row in rows:
        ours = [(row[f"{what}_us"], what) for what in ("apart", "fused") if row.get(f"{what}_us")]
        us, what = min(ours, default=(0, ""))
        if row.get(f"{what}_plain_us"):
            asked += 1
            if row[f"{what}_launches"] != dependent_launch.WORDS[""]:
                saved.append(100 * (1 - us / row[f"{what}_plain_us"]))
    if not asked:
        return []
    said = f"are no faster in any of {asked}"
    if saved:
        least, most = f"{min(saved):.1f}", f"{max(saved):.1f}"
        said = f"save {least if least == most else f'{least} to {most}'} % of the time in {len(saved)} of {asked}"
    return [f"Kernels that start while the one before runs {said} networks.  "]


def _network_name(row: Mapping[str, Any]) -> str:
    return f"{row['network']} ({row['dtype']}, batch {row['batch']}, {row['layout']})"


def _mj(joules: float | None) -> str:
    return "" if joules is None else tabular.rounded(1e3 * joules)


def _saved(row: Mapping[str, Any]) -> float | None:
    """The peer's energy over ours."""
    return row["peer_joules"] / row["joules"] if row.get("joules") and row.get("peer_joules") else None


def judgements(runs: Sequence[Record] | None = None, gpu: str | None = None) -> list[validation.Validation]:
    """The planner beside recorded times: of each network, storage type and batch of which a pair was measured.

    gpu: as its driver names it; as `records.shown_runs` takes it. Maps are NHWC.
    """
    runs = records.load_runs() if runs is None else runs
    having = [run for run in runs if run.sections.get("network_kernels") or run.sections.get("layers")]
    having = records.shown_runs(having, gpu)
    asked: dict[tuple[str, str, int], None] = {}
    for run in having:
        for row in run.sections.get("network_kernels", ()):
            if row["layout"] == "NHWC":
                asked[row["network"], row["dtype"], row["batch"]] = None
        for row in run.sections.get("layers", ()):
            if row["op"] == "fused":
                names = (one for one in JUDGED if one in row["networks"])
                asked |= {(name, row["dtype"], row["batch"]): None for name in names}
    made = []
    for name, dtype, batch in sorted(asked, key=lambda one: (one[0], -len(one[1]), one[1], one[2])):
        try:
            plan = planner.plan(name, having[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
        except (ValueError, LookupError):  # a network, type or GPU that is no longer known
            continue
        found = validation.validate(plan, runs=having)
        made += [found] if found.rows else []
    return made


def judged_summary(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """The planner's decisions beside measured times: a row a network, storage type and batch."""
    made = judgements(runs, gpu)
    if not made:
        return Markdown(
            "No pair of layers has measured times of both ways. On a GPU: `python benchmarks/record_networks.py`.\n"
        )
    head = ["network", "dtype", "batch", "pairs measured", "not measured", "right", "fused, but slower"]
    head += ["apart, but slower", "mean regret", "largest", "whole plan over the best"]
    lines = tabular.heading(head, range(2))
    for one in made:
        wrong = [row.pair.fuse for row in one.rows if not row.right]
        cells = [one.plan.network.name, one.plan.network.dtype, f"{one.plan.network.batch}", f"{len(one.rows)}"]
        cells += [f"{one.unmeasured}", f"{sum(row.right for row in one.rows)}", f"{sum(wrong)}"]
        cells += [f"{len(wrong) - sum(wrong)}", tabular.percent(one.mean), tabular.percent(one.largest)]
        lines.append(tabular.line([*cells, "" if one.regret is None else f"+{100 * one.regret:.1f} %"]))
    rows = [row for one in made for row in one.rows]
    right = sum(row.right for row in rows)
    here = [one.plan.network for one in made]
    none = {
        name: [f"{dtype} batch {batch}" for dtype, batch in itertools.product(("float32", "float16"), (1, 32))
               if (name, dtype, batch) not in {(one.name, one.dtype, one.batch) for one in here}]
        for name in JUDGED
    }  # fmt: skip
    without = [f"{name} ({', '.join(asked)})" for name, asked in none.items() if asked]
    lines += [
        "",
        f"In all {right} of {len(rows)} decisions are right ({right / len(rows):.0%}), each pair by itself; "
        f"{sum(one.unmeasured for one in made)} pairs of these networks have no measurement. Regret: time lost, of the "
        "better of the two ways. Layers and pairs that are alike count once.  ",
        *([f"No pair is measured of {'; '.join(without)}.  "] if without else []),
        *(f"Times: {source}.  " for source in dict.fromkeys(one.source for one in made)),
        f"Planned for {made[0].plan.gpu.name} by predicted times, whose constants were fitted to these measurements; "
        "`benchmarks/plan_costs.py` says how far off they are for a network that the fit does not see. Each pair: "
        "`python -m dwlab plan NETWORK --validate`.",
        "",
    ]
    return Markdown("\n".join(lines))


def chosen_summary(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Markdown:
    """The pairs that the planner fuses in the four networks, each once, against PyTorch's best for the two layers.

    A row a storage type and batch, int8 where it is recorded: against PyTorch's float16, and our own two kernels. gpu:
    as its driver names it; as `records.shown_runs` takes it.
    """
    runs = records.load_runs() if runs is None else list(runs)
    measured, used = layers(runs, gpu)
    measured = [row for row in measured if row["op"] == "fused" and row.get("speedup_vs_peer")]
    if not measured:
        return Markdown(_NO_LAYERS)
    found = {(row["dtype"], records.shape_text(validation.bare(row["problem"]))): row for row in measured}
    beside = any(row["dtype"] == "int8" for row in measured)
    head = ["dtype", "batch", "pairs that the planner fuses", "measured", "× peer, geometric mean", "least", "greatest"]
    head += ["slower", *(["× apart, geometric mean", "least", "slower"] if beside else [])]
    lines = tabular.heading(head)
    chosen: list[Mapping[str, Any]] = []
    for dtype, batch in itertools.product(("float32", "float16", *["int8"] * beside), (1, 32)):
        pairs: dict[str, None] = {}
        for name in JUDGED:
            plan = planner.plan(name, used[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
            pairs |= {records.shape_text(validation.bare(records.describe_problem(one))): None for one in plan.fused}
        here = [found[dtype, pair] for pair in pairs if (dtype, pair) in found]
        chosen += here
        ratios = sorted(row["speedup_vs_peer"] for row in here)
        cells = [dtype, f"{batch}", f"{len(pairs)}", f"{len(ratios)}"]
        if ratios:
            cells += [_geometric(ratios), tabular.times(ratios[0]), tabular.times(ratios[-1])]
            cells.append(f"{sum(one < 1 for one in ratios)}")
        own = [row["speedup_vs_apart"] for row in here if row.get("speedup_vs_apart")]
        if own:
            cells += [_geometric(own), tabular.times(min(own)), f"{sum(one < 1 for one in own)}"]
        lines.append(tabular.line(cells + [""] * (len(head) - len(cells))))
    lines += [
        "",
        "Pairs of MobileNetV1, MobileNetV2, Xception and ProxylessNAS-GPU that are alike count once. × peer: the "
        "fastest of PyTorch's ways for the two layers over our fused kernel, both in CUDA graphs. What the planner "
        "takes kernels to reach was fitted to records that hold these pairs, too.  ",
        *(
            ["int8: against PyTorch's float16; × apart: our own int8 kernels of the two layers over the fused one.  "]
            * beside
        ),
        _with_compile(chosen),
        f"Measured on {'; '.join(dict.fromkeys(run.where() for run in used))}.",
        "",
    ]
    return Markdown("\n".join(lines))


# ------------------------------------------------------------------------------------------------------------- tables


def tables(runs: Sequence[Record] | None = None) -> dict[str, Callable[[], str]]:
    """Name between the markers -> what makes its text: every op and path recorded, and all paths of depthwise1d.

    Those of a GPU other than the one that is shown begin with its name, as its file of records has it.
    """
    runs = records.load_runs() if runs is None else list(runs)
    pairs = {(row.op, row.path) for run in runs for row in run.measurements} | {("depthwise1d", p) for p in PATHS}
    made: dict[str, Callable[[], str]] = {
        "ceilings": lambda: ceilings_table(runs),
        "grid": lambda: grid_table(runs),
        "grid/summary": lambda: grid_summary(runs),
        "layers": lambda: layers_table(runs),
        "layers/summary": lambda: layers_summary(runs),
        "layers/counters": lambda: counters_summary(runs),
        "layers/counters/each": lambda: counters_table(runs),
        "networks/summary": lambda: networks_summary(runs),
        "networks/energy": lambda: energy_tries_table(runs),
        "headline": lambda: headline(runs),
        "losses": lambda: losses(runs),
        "fusion/pairs": lambda: fusion_pairs(runs),
        "fusion/networks": lambda: fusion_networks(runs),
        "planner/judged": lambda: judged_summary(runs),
        "planner/chosen": lambda: chosen_summary(runs),
        "sanitizer": lambda: sanitizer_table(runs, {one.id: one.digest for one in registry.stages()}),
        "reduction_error": lambda: reduction_error_table(runs),
        "copies": lambda: copies_table(runs),
        "comparisons": lambda: comparisons_table(runs),
        "tries": lambda: tries_table(runs),
        "depthwise1d/total": lambda: totals_table(runs=runs),
        "depthwise1d/bandwidth": lambda: bandwidth_table(runs=runs),
        "predicted": lambda: timemodel.table(runs),
        "predicted/another": compared,
        "predicted/another/networks": lambda: compared_networks(runs),
    }
    for op, path, dtype in sorted({(row.op, row.path, row.dtype) for run in runs for row in run.measurements}):
        if dtype != "float32":
            made[f"{op}/{path}/{dtype}"] = functools.partial(table, op, path, dtype=dtype, runs=runs)
    for op, path in sorted(pairs):
        made[f"{op}/{path}"] = functools.partial(_path_table, op, path, runs)
        made[f"{op}/{path}/traffic"] = functools.partial(traffic_table, op, path, runs=runs)
        made[f"{op}/{path}/shapes"] = functools.partial(shapes_table, op, path, runs=runs)
    made["epoch"] = epochs.table
    made["drawn"], made["drawn/lost"] = lambda: drawn.tables(runs)[0], lambda: drawn.tables(runs)[1]
    for gpu in {run.gpu: None for run in runs if run.gpu != records.shown_runs(runs)[0].gpu}:
        only = [run for run in runs if run.gpu == gpu]
        made |= {f"{slug(gpu)}/{name}": make for name, make in tables(only).items()}
    return made


def _path_table(op: str, path: str, runs: Sequence[Record]) -> str:
    """table, and which of its stages have another kernel by now."""
    text = table(op, path, runs=runs)
    rows: list[Measurement] = []
    for run in runs:
        rows = [row for row in run.measurements if (row.op, row.path, row.dtype) == (op, path, "float32")] or rows
    now = {one.name: one.digest for one in registry.stages() if (one.op, one.path) == (op, path)}
    earlier = dict.fromkeys(row.stage for row in rows if row.kernel_sha256 not in (None, now.get(row.stage)))
    if not earlier:
        return text
    return f"{text.rstrip()}\nOf an earlier kernel, which has changed since: {', '.join(earlier)}.\n"


_MARK = re.compile(r"<!-- (begin|end):([^\s>]+) -->")


def fill(text: str, made: Mapping[str, Callable[[], str]] | None = None) -> str:
    """The text with what stands between each pair of markers made anew.

    Markers are ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``; the names are those of ``tables()``. Raises
    records.RecordError for a name that does not exist and for markers that do not pair.
    """
    made = tables() if made is None else made
    out: list[str] = []
    position, opened = 0, ""
    for mark in _MARK.finditer(text):
        kind, name = mark.groups()
        if kind == "begin":
            if opened:
                raise records.RecordError(f"<!-- begin:{name} --> stands inside {opened!r}: close that one first")
            if name not in made:
                raise records.RecordError(f"no table is named {name!r}: there are {', '.join(sorted(made))}")
            out.append(text[position : mark.end()])
            out.append("\n" + made[name]().strip("\n") + "\n")
            opened = name
        else:
            if opened != name:
                raise records.RecordError(f"<!-- end:{name} --> closes no table that is open ({opened or 'none'})")
            out.append(mark.group())
            opened = ""
        position = mark.end()
    if opened:
        raise records.RecordError(f"<!-- begin:{opened} --> has no <!-- end:{opened} -->")
    return "".join([*out, text[position:]])


# -------------------------------------------------------------------------------------------------------------- files


def roofline_figure(run: Record, problem: Any = PAPER) -> Figure:
    """The roofline of a run at a problem, a panel a path: on one line of intensity, paths would hide each other."""
    from matplotlib.figure import Figure

    groups = _by_path(run, problem)
    ceilings = _ceilings(run)
    down = -(-len(groups) // 2)
    across = min(2, len(groups))
    figure = Figure(figsize=(6.6 * across, 4.9 * down), dpi=110, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, (path, rows) in zip(axes, groups, strict=False):
        roof = roof_of(rows[0].op, ceilings)
        roofline.plot(roofline.points(rows, roof), roof, title=path, ax=ax)
    for ax in axes[len(groups) :]:
        ax.set_visible(False)
    figure.suptitle(f"{run.gpu}, {records.shape_text(problem)}, {run.date[:10]}", fontsize=11)
    return figure


def alt_text(run: Record, problem: Any = PAPER) -> str:
    """The figure in words."""
    ceilings = _ceilings(run)
    return " ".join(
        roofline.alt_text(roofline.points(rows, roof), roof, path)
        for path, rows in _by_path(run, problem)
        for roof in [roof_of(rows[0].op, ceilings)]
    )


def markdown(run: Record, png: str = "", problem: Any = None) -> Markdown:
    """The whole report of a run. png: the figure's file name, if there is one. problem: its main one if None."""
    problem = _main_problem(run) if problem is None else problem
    parts = [f"# Depthwise convolution on {run.gpu}", ""]
    if _rows(run, problem):
        parts += ["## The paper's table, repeated", "", totals_table(problem, runs=[run])]
    parts += ["## Effective bandwidth and roofline", "", bandwidth_table(problem, runs=[run])]
    if png:
        parts += [f"![{alt_text(run, problem)}]({png})", ""]
    parts += ["## Ceilings", "", ceilings_table([run])]
    for op, path in dict.fromkeys((row.op, row.path) for row in run.measurements):
        here = [row for row in run.measurements if (row.op, row.path) == (op, path)]
        parts += [f"## {path}" if op == "depthwise1d" else f"## {op}/{path}", ""]
        for dtype in dict.fromkeys(row.dtype for row in here):
            if op == "depthwise1d" or any(dict(row.problem) == records.describe_problem(problem) for row in here):
                parts += [table(op, path, problem, dtype=dtype, runs=[run])]
            if op == "depthwise1d":
                parts += [traffic_table(op, path, dtype=dtype, runs=[run])]
            if len(run.problems()) > 1:
                parts += [shapes_table(op, path, dtype=dtype, runs=[run])]
    parts += [f"{note}\n" for note in run.notes]
    return Markdown("\n".join(parts).rstrip() + "\n")


def _main_problem(run: Record) -> dict[str, Any]:
    listed = run.problems()
    paper = records.describe_problem(PAPER)
    return paper if paper in listed or not listed else listed[0]


def write(run: Record, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Writes a run's report into a folder, as STEM.md and STEM.png with the record's own stem: the two paths.

    Raises records.RecordError where the folder cannot be written to; files of that name are replaced, because the
    record says the same for ever.
    """
    folder = Path(folder)
    stem = Path(run.file).stem
    text, picture = folder / f"{stem}.md", folder / f"{stem}.png"
    problem = _main_problem(run)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        roofline_figure(run, problem).savefig(picture, format="png", metadata={"Software": None})
        text.write_text(markdown(run, picture.name, problem), encoding="utf-8")
    except OSError as error:
        raise records.RecordError(f"the report {text.name!r} cannot be written: {error.strerror or error}") from error
    return text, picture
