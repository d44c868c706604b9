"""Pointwise layers with sparse filters, our fastest beside libraries and dense kernels: docs/results/sparse.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dwlab import records
from dwlab.measure.sparse_baselines import LIBRARIES
from dwlab.records import Record
from dwlab.report.shared import Row, Runs, geometric, grouped, measured_on, over
from dwlab.text.tabular import Col, Markdown, of_rows, times

DENSE = "ours, dense"
SOURCE = "shapes of the source"
"""In the field `networks` of its products."""

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


def beside(name: str, ours: str = "time_us") -> Callable[[Row], float | None]:
    """row -> how many times as fast it is as a library, or as the fastest of our dense stages; None where unknown.

    ours: the field that says how long it takes; of "copy_bound_us" it is what a copy of x, filters and y would be.
    """
    return lambda row: over(
        min(row["dense"].values(), default=None) if name == DENSE else row["peers"].get(name), row[ours]
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
    """Of each kind of layer how many times as fast our fastest stage is as each library: mean, least and greatest.

    A kind: the source's products or networks' layers, in a layout and a pattern.
    """
    rows, used = fastest_sparse(runs)
    return _of_kinds(rows, used, [(f"× {name}", beside(name)) for name in compared(rows)])


def sparse_bounds(runs: Runs = None) -> Markdown:
    """Of the source's products, by kind: a copy of x, filters and y beside our fastest stage, and beside libraries.

    What reads x and writes y once cannot be further ahead of a library than that copy is.
    """
    rows, used = fastest_sparse(runs)
    columns = [("a copy ÷ ours", lambda row: over(row["copy_bound_us"], row["time_us"]))]
    columns += [(f"{name} ÷ a copy", beside(name, "copy_bound_us")) for name in compared(rows) if name != DENSE]
    return _of_kinds([row for row in rows if row["networks"] == SOURCE], used, columns)


def _of_kinds(
    rows: list[Row], used: list[Record], columns: list[tuple[str, Callable[[Row], float | None]]]
) -> Markdown:  # fmt: skip
    """A row for each kind: its name, how many, and of each column's ratios geometric mean, least and greatest."""
    if not rows:
        return Markdown(NONE)
    kinds = grouped(rows, lambda row: (row["networks"] != SOURCE, layout_of(row), row["pattern"]))

    def shown(ratio: Callable[[Row], float | None]) -> Callable[[tuple[Any, list[Row]]], str]:
        def text(kind: tuple[Any, list[Row]]) -> str:
            found = [one for row in kind[1] if (one := ratio(row)) is not None]
            return f"{geometric(found)} ({times(min(found))} to {times(max(found))})" if found else ""

        return text

    head = [
        Col("layers", lambda kind: "of networks" if kind[0][0] else "the source's", left=True),
        Col("layout", lambda kind: kind[0][1], left=True), Col("pattern", lambda kind: kind[0][2], left=True),
        Col("number", lambda kind: str(len(kind[1]))),
    ]  # fmt: skip
    head += [Col(name, shown(ratio)) for name, ratio in columns]
    return of_rows(head, sorted(kinds.items(), key=lambda kind: kind[0][:2]), [measured_on(used)])
