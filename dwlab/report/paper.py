"""The paper's table repeated on a recorded GPU, and the roofline of its paths: docs/results/depthwise1d.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dwlab import records
from dwlab.gpu.machine import Ceilings, ceilings_of
from dwlab.measure import baselines
from dwlab.model import roofline
from dwlab.problems import PAPER, PATHS
from dwlab.records import Measurement, Record
from dwlab.report.shared import Runs, all_of, grouped
from dwlab.text.tabular import Col, Markdown, of_rows, percent, rounded, times

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

_LIBRARY, _ANY = "PyTorch, conv1d/conv2d/FFT", "PyTorch, any way"
_NOTHING = "Nothing is recorded. On a GPU: `python -m dwlab study --record FOLDER`.\n"


def rows_at(run: Record, problem: Any) -> dict[str, dict[str, Measurement]]:
    """Path -> stage -> measurement, at one problem."""
    here = grouped((row for row in _at(run, problem) if row.op == "depthwise1d"), lambda row: row.path)
    return {path: {row.stage: row for row in rows} for path, rows in here.items()}


def _at(run: Record, problem: Any) -> list[Measurement]:
    """A run's measurements at one problem, by the stages' order."""
    wanted, dtype = records.describe_problem(problem), dtype_of(run, problem)
    here = [row for row in run.measurements if dict(row.problem) == wanted and row.dtype == dtype]
    return sorted(here, key=lambda row: row.order or 0)


def dtype_of(run: Record, problem: Any) -> str:
    """How the rows are stored: as a problem says; where it is only its sizes, in float32, if the run has any there."""
    wanted = records.describe_problem(problem)
    kinds = [row.dtype for row in run.measurements if dict(row.problem) == wanted]
    return getattr(problem, "dtype", "float32" if "float32" in kinds or not kinds else kinds[0])


def by_path(run: Record, problem: Any) -> list[tuple[str, list[Measurement]]]:
    """(path, its rows at a problem); of layers (op and path, its rows)."""
    found = rows_at(run, problem)
    if found:
        return [(path, list(found[path].values())) for path in PATHS if path in found]
    return list(grouped(_at(run, problem), lambda row: f"{row.op}/{row.path}").items())


def newest(problem: Any = PAPER, *, runs: Runs = None) -> Record | None:
    """The newest run that has the paper's three paths at a problem; if none has, the newest with any path there.

    Where the problem is only its sizes, a run in float32 goes before all others.
    """
    given = [run for run in reversed(records.shown_runs(runs)) if rows_at(run, problem)]
    if not hasattr(problem, "dtype"):
        given = [run for run in given if dtype_of(run, problem) == "float32"] or given
    whole = (run for run in given if set(rows_at(run, problem)) >= set(THREE))
    return next(whole, None) or next(iter(given), None)


def baseline_us(
    run: Record, path: str, problem: Any, kinds: Sequence[str] = (), runs: Sequence[Record] = ()
) -> float | None:
    """The time of the fastest baseline of these kinds (all if none are given); those without a dtype are float32's.

    It is the fastest of this run and of those of `runs` that are of its GPU: not every run timed all of PyTorch's ways,
    and of those that did, the history keeps some.
    """
    wanted, dtype = records.describe_problem(problem), dtype_of(run, problem)
    ran = []
    for one in (one for other in [run, *runs] if other.gpu == run.gpu for one in other.peers):
        if not isinstance(one, Mapping):  # a damaged record's
            continue
        time, way = one.get("time"), one.get("way")
        if not isinstance(time, Mapping) or not isinstance(way, str) or one.get("path") != path:
            continue
        us = time.get("median_us")
        timed = isinstance(us, int | float) and not isinstance(us, bool) and us > 0
        same = (one.get("shape"), one.get("dtype", "float32")) == (wanted, dtype)
        if timed and same and (not kinds or baselines.kind(way) in kinds):
            ran.append(float(us))
    return min(ran, default=None)


def totals(run: Record, problem: Any = PAPER, runs: Sequence[Record] = ()) -> dict[str, dict[str, float]]:
    """Row -> path -> µs, with "total" where all of its paths were measured. runs: as `baseline_us` takes them.

    Rows: each stage that every path has; "best", the fastest stage of each path; "best, fused backward", the fastest
    forward and the fastest backward; "PyTorch, conv1d/conv2d/FFT", the fastest of its convolutions in either layout and
    its FFT for each path; "PyTorch, any way", with our matrix products too; and their fused forms.
    """
    found = rows_at(run, problem)
    made = {
        stage: {path: found[path][stage].time_us for path in THREE}
        for stage in found.get("forward", {})
        if all(stage in found.get(path, {}) for path in THREE)
    }
    fastest = {"best": {path: min(row.time_us for row in rows.values()) for path, rows in found.items()}}
    for label, kinds in ((_LIBRARY, baselines.LIBRARY_WAYS), (_ANY, ())):
        fastest[label] = {path: us for path in PATHS if (us := baseline_us(run, path, problem, kinds, runs))}
    for label, us in fastest.items():
        made[label] = {path: us[path] for path in THREE if path in us}
        made[f"{label}, fused backward"] = {path: us[path] for path in ("forward", "backward") if path in us}
    for row in made.values():
        if set(row) >= set(THREE) or set(row) >= {"forward", "backward"}:
            row["total"] = sum(row.values())
    # A fused row says nothing without its backward.
    return {label: row for label, row in made.items() if row and ("backward" in row or "fused" not in label)}


def totals_table(problem: Any = PAPER, *, runs: Runs = None) -> Markdown:
    """The paper's table for the newest run with all three paths at a problem, and the paper's own figures."""
    run = newest(problem, runs=runs)
    if run is None:
        return Markdown(
            f"No run with {', '.join(THREE)} at {records.shape_text(problem)} is recorded. "
            "On a GPU: `python -m dwlab study --record FOLDER`.\n"
        )
    made, theirs = totals(run, problem, all_of(runs)), PUBLISHED["ms"]
    naive = made.get("naive", {}).get("total")
    columns = [Col("variant", lambda one: one, left=True)]
    for path in (*(path for path in PATHS if any(path in row for row in made.values())), "total"):
        columns.append(Col(f"{path} (ms)", lambda one, path=path: made[one].get(path), lambda us: rounded(us / 1e3)))
    columns.append(Col("× naive", lambda one: naive / made[one]["total"] if naive and "total" in made[one] else None,
                       times))  # fmt: skip
    notes = [
        *_ratios(made),
        "PyTorch's times are the least that any run on this GPU has of conv1d, conv2d, FFT and matrix products, "
        "without torch.compile.  ",
        f"{records.shape_text(problem)}, {dtype_of(run, problem)}. Measured on {run.where()}.",
    ]
    if records.describe_problem(problem) == records.describe_problem(PAPER):
        for head, key in zip(("P100: forward", *THREE[1:], "total (ms)"), (*THREE, "total"), strict=True):
            columns.append(Col(head, lambda one, key=key: theirs.get(one, {}).get(key), "{:.2f}".format))
        total = theirs["naive"]["total"]
        columns.append(Col("× naive", lambda one: total / theirs[one]["total"] if one in theirs else None, times))
        notes.append(
            f"P100: as printed for a {PUBLISHED['gpu']} by {PUBLISHED['source']}, from digests of it; its padding is "
            "not known."
        )
    return of_rows(columns, made, notes)


def _ratios(made: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What the best stages gain over PyTorch and over naive, in a sentence each."""
    sentences = []
    for label, other in (
        ("the naive ones", "naive"),
        ("PyTorch's best of conv1d, conv2d and FFT for each path", _LIBRARY),
        ("the best of all its ways, our matrix products of it too", _ANY),
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
            sentences.append(text + ".  ")
    return sentences


def bandwidth_table(problem: Any = PAPER, *, runs: Runs = None) -> Markdown:
    """Effective bandwidth and place under the roof of every stage and path, and the paper's."""
    run = newest(problem, runs=runs)
    if run is None and runs is not None:  # a run of layers
        run = next((one for one in reversed(list(runs)) if by_path(one, problem)), None)
    if run is None:
        return Markdown(_NOTHING)
    ceilings = ceilings_of(run)
    rows = [
        (path, row, point)
        for path, here in by_path(run, problem)
        for row, point in zip(here, roofline.points(here, roof_of(here[0].op, ceilings)), strict=True)
    ]
    columns = [
        Col("path", lambda one: one[0], left=True),
        Col("stage", lambda one: one[1].stage, left=True),
        Col("time (µs)", lambda one: one[1].time_us, rounded),
        Col("effective GB/s", lambda one: one[1].effective_gbps, rounded),
        Col("of copy", lambda one: one[1].fraction_of_copy, percent),
        Col("FLOP/B", lambda one: one[1].intensity, "{:.2f}".format),
        Col("GFLOP/s", lambda one: one[2].gflops, "{:,.0f}".format),
        Col("of roof", lambda one: one[2].fraction, percent),
    ]
    if records.describe_problem(problem) == records.describe_problem(PAPER):
        theirs = PUBLISHED["effective_gbps"]
        columns.append(Col("P100, forward: GB/s", lambda one: theirs.get(one[1].stage) if one[0] == "forward" else None,
                           "about {:.0f}".format))  # fmt: skip
    return of_rows(columns, rows, [f"Bandwidth and FLOP/B count compulsory bytes. Measured on {run.where()}."])


def roof_of(op: str, ceilings: Ceilings) -> Ceilings:
    """The ceilings that bind an op: where there is a pointwise layer, tensor cores may exceed the FMA rate."""
    return ceilings if op.startswith("depthwise") else replace(ceilings, fma_tflops=None)
