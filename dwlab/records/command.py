"""``python -m dwlab records``: a row a measurement, or a row a shape of the newest grid."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from dwlab.records import Measurement, RecordError, grid_rows, load_all, load_runs, shape_text
from dwlab.records.tables import grid_table
from dwlab.records.tabular import columns, rounded, times


def main(args: argparse.Namespace) -> int:
    """``python -m dwlab records [--json] [--grid]``: a row a measurement, or a row a shape of the newest grid.

    Exit status 1 if a file could not be read.
    """
    errors: list[RecordError] = []
    if getattr(args, "grid", False):
        return _print_grid(args, errors)
    try:
        rows = load_all(getattr(args, "folder", None), errors.append)
    except RecordError as error:
        rows, errors = [], [error]
    if getattr(args, "json", False):
        print(json.dumps([row.to_dict() for row in rows], indent=1, ensure_ascii=False))
    elif not rows:
        print("Nothing is recorded yet. On a GPU: python -m dwlab study --record FILE")
    else:
        print(_rows_text(rows))
    for error in errors:
        print(f"dwlab: {error}", file=sys.stderr)
    return 1 if errors else 0


def _print_grid(args: argparse.Namespace, errors: list[RecordError]) -> int:
    try:
        runs = load_runs(getattr(args, "folder", None), errors.append)
    except RecordError as error:
        runs, errors = [], [error]
    if getattr(args, "json", False):
        print(json.dumps(grid_rows(runs)[0], indent=1, ensure_ascii=False))
    else:
        print(grid_table(runs))
    for error in errors:
        print(f"dwlab: {error}", file=sys.stderr)
    return 1 if errors else 0


def _rows_text(rows: Sequence[Measurement]) -> str:
    head = ["gpu", "date", "stage", "problem", "dtype", "time µs", "eff. GB/s", "of copy", "× naive", "× peer", "peer"]
    body = [
        [
            row.gpu,
            row.date[:10],
            row.id,
            shape_text(row.problem),
            row.dtype,
            rounded(row.time_us),
            rounded(row.effective_gbps),
            f"{100 * row.fraction_of_copy:.1f} %",
            times(row.speedup_vs_naive),
            times(row.speedup_vs_peer),
            row.peer or "",
        ]
        for row in rows
    ]
    return columns(head, body, left={0, 1, 2, 3, 4, 10})
