"""Stages of one op and path as recorded: at one problem, at every problem, on the grid: docs/results/depthwise1d.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dwlab import records
from dwlab.kernels import registry
from dwlab.records import Measurement, Record, shape_text
from dwlab.report.shared import Row, Runs, all_of, grouped, measured_on
from dwlab.text.tabular import Col, Markdown, of_rows, percent, rounded, times

GRID_LARGE_US = 20.0
"""From this time at copy bandwidth on, a launch of the grid counts as large: its start and end are a small part."""

_NO_GRID = "No grid of shapes is recorded. On a GPU: `python benchmarks/shapes.py --grid`.\n"


def newest_runs(runs: Runs, gpu: str | None, op: str, path: str, dtype: str) -> Iterator[tuple[Record, list[Any]]]:
    """(run, its measurements of one op, path and storage type), the newest first; those that have any."""
    for run in reversed(records.shown_runs(runs, gpu)):
        rows = [row for row in run.measurements if (row.op, row.path, row.dtype) == (op, path, dtype)]
        if rows:
            yield run, rows


def _times(baseline: bool) -> list[Col]:
    """The columns that both tables of stages have; baseline: × baseline too."""
    return [
        Col("effective GB/s", "effective_gbps", rounded),
        Col("of copy", "fraction_of_copy", percent),
        Col("× naive", "speedup_vs_naive", times),
        *([Col("× baseline", "speedup_vs_peer", lambda ratio: times(ratio, slower=True))] * baseline),
    ]


def table(
    op: str = "depthwise1d",
    path: str = "forward",
    problem: Any = None,
    *,
    gpu: str | None = None,
    dtype: str | None = None,
    runs: Runs = None,
) -> Markdown:
    """The newest recorded run of one op and path on one problem, a row a stage, with device, versions and date.

    problem: None for the run's main problem. dtype: the rows' storage type; if None the problem's, and float32 where
    that is only its sizes. A stage that loses to its baseline is marked slower. Where nothing is recorded, a sentence
    says so.
    """
    dtype = getattr(problem, "dtype", "float32") if dtype is None else dtype
    for run, rows in newest_runs(runs, gpu, op, path, dtype):
        wanted = dict(rows[0].problem) if problem is None else records.describe_problem(problem)
        rows = [row for row in rows if dict(row.problem) == wanted]
        if rows:
            return _run_table(run, sorted(rows, key=lambda row: (row.order or 0, row.stage)))
    shape = f" at {shape_text(problem)}" if problem is not None else ""
    return Markdown(f"Nothing is recorded for {op}/{path}{shape}. On a GPU: `python -m dwlab study --record FILE`.\n")


def _run_table(run: Record, rows: Sequence[Measurement]) -> Markdown:
    first, compared = rows[0], next((row for row in rows if row.peer), None)
    columns = [
        Col("stage", "stage", left=True),
        Col("time (µs)", "time_us", rounded),
        Col("p10 to p90 (µs)", lambda row: f"{rounded(row['p10_us'])} to {rounded(row['p90_us'])}" if "p10_us" in row
            else None),
        *_times(compared is not None),
    ]  # fmt: skip
    body: list[Row] = [row.to_dict() for row in rows]
    if compared is not None:
        body.append({"stage": "baseline: " + compared.peer, "time_us": compared.peer_time_us})
    return of_rows(columns, body, [
        f"{shape_text(first.problem)}, {first.dtype}. Effective GB/s counts the {first.compulsory_bytes / 1e6:,.1f} MB "
        f"that must move at least; a device copy in the same run moved {rounded(run.ceilings['copy_gbps'])} GB/s.",
        measured_on([run]),
    ])  # fmt: skip


def with_earlier(op: str, path: str, runs: Sequence[Record]) -> Markdown:
    """`table`, and which of its stages have another kernel by now."""
    text = table(op, path, runs=runs)
    _, rows = next(newest_runs(runs, None, op, path, "float32"), (None, []))
    now = {one.name: one.digest for one in registry.stages() if (one.op, one.path) == (op, path)}
    earlier = dict.fromkeys(row.stage for row in rows if row.kernel_sha256 not in (None, now.get(row.stage)))
    if not earlier:
        return text
    return Markdown(f"{text.rstrip()}\nOf an earlier kernel, which has changed since: {', '.join(earlier)}.\n")


def shapes_table(
    op: str = "depthwise1d", path: str = "forward", *, gpu: str | None = None, dtype: str = "float32", runs: Runs = None
) -> Markdown:
    """The newest recorded run of one op and path with rows of one storage type, a row a stage and problem."""
    run, rows = next(newest_runs(runs, gpu, op, path, dtype), (None, []))
    if run is None:
        return Markdown(f"Nothing is recorded for {op}/{path}. On a GPU: `python -m dwlab study --record FILE`.\n")
    columns = [
        Col("problem", lambda row: shape_text(row.problem), left=True),
        Col("stage", "stage", left=True),
        Col("time (µs)", "time_us", rounded),
        *_times(baseline=True),
    ]
    names = sorted({row.peer for row in rows if row.peer})
    notes = [f"Baseline: the fastest of {', '.join(names)}, for each problem.", ""] if names else []
    return of_rows(columns, rows, [*notes, f"{dtype}. {measured_on([run])}"])


def _grid_notes(rows: Sequence[Row], used: Sequence[Record]) -> list[str]:
    """The notes below a table of the grid: those of a run alone, or how many shapes came together."""
    if len(used) == 1:
        return [*(f"{note}  " for note in used[0].notes), *[""] * bool(used[0].notes)]
    shapes = {tuple(one["problem"].values()) for one in rows}
    return [f"{len(shapes)} shapes, from {len(used)} runs, of each shape the newest.  ", ""]


def _bound_us(one: Row) -> float:
    """The least time of a row of the grid: that of its bytes or that of its products."""
    return max(one["copy_bound_us"], one.get("fma_bound_us") or 0)


def grid_summary(runs: Runs = None) -> Markdown:
    """The grid, a row a path: shapes won and lost, and the efficiency where the launch is large."""
    rows, used = records.grid_rows(runs)
    if not used:
        return Markdown(_NO_GRID)
    copied = records.copies(all_of(runs), used[-1].gpu)
    gbps = {id(row): run.ceilings["copy_gbps"] for run in used for row in run.sections["grid"]}  # of the row's own run

    def of_path(path: str, here: Sequence[Row]) -> dict[str, Any]:
        ratios = sorted(one["speedup_vs_peer"] for one in here if one.get("speedup_vs_peer"))
        timed = [one for one in here if one.get("time_us")]
        bounds = sorted(_bound_us(one) / one["time_us"] for one in timed)
        # Where the FMA rate allows 85 % of the copy bandwidth, and a launch lasts long enough to fill the GPU.
        large = [one for one in timed if one["copy_bound_us"] >= GRID_LARGE_US]
        large = [one for one in large if 0.85 * (one.get("fma_bound_us") or 0) <= one["copy_bound_us"]]
        copies_us = [
            copied and records.copy_us(round(one["copy_bound_us"] * gbps[id(one)] * 1e3), copied) for one in large
        ]
        there = [least / one["time_us"] >= 0.85 for one, least in zip(large, copies_us, strict=True) if least]
        return {
            "path": path, "ratios": ratios, "shapes": len(here), "won": sum(ratio >= 1 for ratio in ratios),
            "bound": bounds[len(bounds) // 2] if bounds else None,
            "large": f"{sum(one['copy_bound_us'] / one['time_us'] >= 0.85 for one in large)} of {len(large)}",
            "as_large": f"{sum(there)} of {len(there)}" if there else "",
        }  # fmt: skip

    def ratio(place: Any) -> Any:
        return lambda one: one["ratios"][place(len(one["ratios"]))] if one["ratios"] else None

    columns = [
        Col("path", "path", left=True),
        Col("shapes", "shapes"),
        Col("faster than the baseline", "won"),
        Col("slower", lambda one: len(one["ratios"]) - one["won"]),
        Col("no baseline or no time", lambda one: one["shapes"] - len(one["ratios"])),
        Col("× baseline, least", ratio(lambda n: 0), times),
        Col("median", ratio(lambda n: n // 2), times),
        Col("most", ratio(lambda n: -1), times),
        Col("of bound, median", "bound", percent),
        Col("large launches at 85 % of copy", "large"),
        Col("of a copy as large", "as_large"),
    ]
    groups: Mapping[str, Any] = grouped(rows, lambda one: one["path"])
    return of_rows(columns, [of_path(path, here) for path, here in groups.items()], [
        *_grid_notes(rows, used),
        f"large: {GRID_LARGE_US:g} µs or more at the copy bandwidth. Of a copy as large: at 85 % of "
        "a copy of as many bytes, which begins and ends as they do. Every shape, the losses too: "
        f"`python -m dwlab records --grid`. {measured_on(used)}",
    ])  # fmt: skip
