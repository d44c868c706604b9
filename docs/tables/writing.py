"""What all rooms of tables write with: rows of head -> cell, and what is counted the same way in several."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dwlab import records
from dwlab.kernels import registry
from dwlab.records import Record
from dwlab.text.tabular import Markdown, markdown, rounded, times

NONE = Markdown(
    "Nothing is recorded. On a GPU: `python benchmarks/record_run.py`, of layers `record_layers.py` and others.\n"
)
LARGE_US = 20.0
"""Least time at copy bandwidth of a large launch: its start and end are a small part of it."""


def table(rows: Iterable[Mapping[str, Any]], notes: Iterable[str] = (), text: Iterable[int] = (0,)) -> Markdown:
    """A Markdown table of rows, head -> cell (None is an empty one), and below it the notes; NONE of no rows.

    text: the columns that are set to the left (negative: from the end). Of two heads that are alike one ends with a
    space.
    """
    rows = list(rows)
    if not rows:
        return NONE
    body = [["" if cell is None else str(cell) for cell in row.values()] for row in rows]
    return Markdown("\n".join([markdown([head.rstrip() for head in rows[0]], body, text), "", *notes, ""]))


def shown(form: str, value: float | None) -> str:
    """A value as form.format has it, "" of None."""
    return "" if value is None else form.format(value)


def slower(ratio: float | None) -> str:
    """How many times as fast; what is below 1 is marked."""
    return times(ratio, slower=True)


def spread(row: Mapping[str, Any]) -> str:
    """A row's 10th and 90th percentile, µs."""
    return f"{rounded(row['p10_us'])} to {rounded(row['p90_us'])}" if row.get("p10_us") else ""


def median(values: Sequence[float]) -> float | None:
    """None of none."""
    return statistics.median(values) if values else None


def near_copies(launches: Iterable[tuple[int, float]], copied: Record | None) -> list[bool]:
    """Of launches, bytes and µs: whether each is at 85 % of a copy of as many bytes, where a run has one so small."""
    copies = [(records.copy_us(nbytes, copied), us) for nbytes, us in launches if copied]
    return [least / us >= 0.85 for least, us in copies if least]


def listed(names: Sequence[str]) -> str:
    """ ": one; another", "" of none."""
    return f": {'; '.join(names)}" if names else ""


def values(rows: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    """A field of those rows that have it."""
    return [row[name] for row in rows if row.get(name)]


def newest_with(
    runs: Sequence[Record], of: Callable[[Record], Iterable[Any] | None]
) -> tuple[Record | None, list[Any]]:
    """The newest run, of the GPU that is shown, of which something is there, and this; (None, []) if there is none."""
    found = ((run, list(of(run) or ())) for run in reversed(records.shown_runs(runs)))
    return next(((run, rows) for run, rows in found if rows), (None, []))


def changed(id: str, *kernel: Any) -> bool:
    """Whether a stage has another kernel than one that was recorded (`Stage.same_kernel` takes it), or is gone."""
    stage = {one.id: one for one in registry.stages()}.get(id)
    return stage is None or not stage.same_kernel(*kernel)
