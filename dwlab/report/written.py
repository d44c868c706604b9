"""A run's own report, Markdown and a figure beside its record: `write`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwlab import records
from dwlab.gpu.machine import ceilings_of
from dwlab.model import roofline
from dwlab.problems import PAPER
from dwlab.records import Record
from dwlab.report.counters import traffic_table
from dwlab.report.machine import ceilings_table
from dwlab.report.paper import bandwidth_table, by_path, roof_of, rows_at, totals_table
from dwlab.report.stages import shapes_table, table
from dwlab.text.tabular import Markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def roofline_figure(run: Record, problem: Any = PAPER) -> Figure:
    """The roofline of a run at a problem, a panel a path: on one line of intensity, paths would hide each other."""
    from matplotlib.figure import Figure

    groups = by_path(run, problem)
    ceilings = ceilings_of(run)
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
    ceilings = ceilings_of(run)
    return " ".join(
        roofline.alt_text(roofline.points(rows, roof), roof, path)
        for path, rows in by_path(run, problem)
        for roof in [roof_of(rows[0].op, ceilings)]
    )


def markdown(run: Record, png: str = "", problem: Any = None) -> Markdown:
    """The whole report of a run. png: the figure's file name, if there is one. problem: its main one if None."""
    problem = _main_problem(run) if problem is None else problem
    parts = [f"# Depthwise convolution on {run.gpu}", ""]
    if rows_at(run, problem):
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
