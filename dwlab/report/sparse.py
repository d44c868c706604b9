"""Pointwise layers with sparse filters, our fastest beside libraries and dense kernels: docs/results/sparse.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dwlab import records
from dwlab.measure.sparse_baselines import LIBRARIES
from dwlab.records import Record
from dwlab.records.tabular import Col, Markdown, of_rows, times
from dwlab.report.shared import Row, Runs, grouped, measured_on, over, ratio_columns

DENSE = "ours, dense"
NONE = "No time of sparse filters is recorded. On a GPU: `python benchmarks/record_sparse.py`.\n"


def fastest_sparse(runs: Runs = None) -> tuple[list[Row], list[Record]]:
    """(rows, runs): of each layer, batch, layout, storage type and pattern recorded on one GPU our fastest stage."""

    def problem(row: Row) -> tuple[Any, ...]:
        return row["layer"], row["batch"], layout_of(row), row["dtype"], row["pattern"]

    rows, used = records.newest_rows("sparse", lambda row: (*problem(row), row["stage"]), runs)
    made = grouped((row for row in rows if row["time_us"]), problem)
    fastest = [min(here, key=lambda row: row["time_us"]) for here in made.values()]
    return sorted(fastest, key=lambda row: (layout_of(row), row["sparsity"], row["layer"], row["batch"])), used


def layout_of(row: Row) -> str:
    """Of the layer's maps."""
    return row["problem"]["layout"]


def beside(name: str) -> Callable[[Row], float | None]:
    """row -> how many times as fast it is as a library, or as the fastest of our dense stages; None where unknown."""
    return lambda row: over(
        min(row["dense"].values(), default=None) if name == DENSE else row["peers"].get(name), row["time_us"]
    )


def compared(rows: Sequence[Row]) -> list[str]:
    """The libraries that any row has a time of, and our dense stages."""
    return [*(name for name in LIBRARIES if any(name in row["peers"] for row in rows)), DENSE]


def sparse_table(runs: Runs = None) -> Markdown:
    """Every layer: the stage, its time, and how many times as fast it is as each library and our dense kernels."""
    rows, used = fastest_sparse(runs)
    if not rows:
        return Markdown(NONE)
    columns = [
        Col("layer", lambda row: f"{row['layer']} × {row['batch']}", left=True), Col("layout", layout_of, left=True),
        Col("pattern", "pattern", left=True), Col("stage", "stage", left=True),
        Col("time (µs)", "time_us", lambda us: f"{us:,.1f}"),
        *(Col(f"× {name}", beside(name), times) for name in compared(rows)),
    ]  # fmt: skip
    return of_rows(columns, rows, [measured_on(used)])


def sparse_summary(runs: Runs = None) -> Markdown:
    """Of each layout and pattern how many times as fast our fastest stage is as each library, over all layers."""
    rows, used = fastest_sparse(runs)
    if not rows:
        return Markdown(NONE)
    made = [
        (kind, name, [one for row in here if (one := beside(name)(row)) is not None])
        for kind, here in grouped(rows, lambda row: (layout_of(row), row["pattern"])).items()
        for name in compared(rows)
    ]
    columns = [
        Col("layout", lambda one: one[0][0], left=True), Col("pattern", lambda one: one[0][1], left=True),
        Col("compared with", lambda one: one[1], left=True),
        Col("layers", lambda one: str(len(one[2]))), *ratio_columns("×", lambda one: one[2]),
    ]  # fmt: skip
    return of_rows(columns, [one for one in made if one[2]], [measured_on(used)])
