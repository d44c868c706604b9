"""A run's own report, Markdown and a roofline beside its record: `write`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwlab import records
from dwlab.gpu.machine import Ceilings, ceilings_of
from dwlab.measure import counters
from dwlab.model import roofline
from dwlab.problems import PAPER
from dwlab.records import Measurement, Record
from dwlab.report.evidence import THREE
from dwlab.report.recorded import MEASUREMENTS
from dwlab.report.rows import Runs, grouped
from dwlab.text.tabular import Markdown, of_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rows_at(run: Record, problem: Any) -> dict[str, dict[str, Measurement]]:
    """Op and path -> stage -> measurement at one problem, in the order of the stages.

    Rows are stored as the problem says; where it is only its sizes, in float32, if the run has any there.
    """
    wanted = records.describe_problem(problem)
    here = sorted((row for row in run.measurements if dict(row.problem) == wanted), key=lambda row: row.order or 0)
    types = [row.dtype for row in here]
    dtype = getattr(problem, "dtype", "float32" if "float32" in types or not types else types[0])
    found = grouped((row for row in here if row.dtype == dtype), lambda row: f"{row.op}/{row.path}")
    return {path: {row.stage: row for row in rows} for path, rows in found.items()}


def newest(problem: Any = PAPER, *, runs: Runs = None) -> Record | None:
    """The newest run that has the paper's three paths at a problem; if none has, the newest with any path there."""
    given = [(run, rows_at(run, problem)) for run in reversed(records.shown_runs(runs))]
    given = [(run, found) for run, found in given if any(path.startswith("depthwise1d/") for path in found)]
    whole = (run for run, found in given if {f"depthwise1d/{path}" for path in THREE} <= found.keys())
    return next(whole, None) or next((run for run, _ in given), None)


def roof_of(op: str, ceilings: Ceilings) -> Ceilings:
    """The ceilings that bind an op: in layers of networks tensor cores may exceed the FMA rate."""
    return ceilings if op.startswith("depthwise1d") else replace(ceilings, fma_tflops=None)


def _points(run: Record, problem: Any) -> dict[str, tuple[list[Any], Ceilings]]:
    """Op and path -> the points of its stages, and their ceilings."""
    found, ceilings = {}, ceilings_of(run)
    for path, rows in rows_at(run, problem).items():
        roof = roof_of(path, ceilings)
        found[path] = roofline.points(list(rows.values()), roof), roof
    return found


def roofline_figure(run: Record, problem: Any = PAPER) -> Figure:
    """The roofline of a run at a problem, a panel a path: on one line of intensity, paths would hide each other."""
    from matplotlib.figure import Figure

    groups = _points(run, problem)
    down, across = -(-len(groups) // 2), min(2, len(groups))
    figure = Figure(figsize=(6.6 * across, 4.9 * down), dpi=110, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, (path, (points, roof)) in zip(axes, groups.items(), strict=False):
        roofline.plot(points, roof, title=path, ax=ax)
    for ax in axes[len(groups) :]:
        ax.set_visible(False)
    figure.suptitle(f"{run.gpu}, {records.shape_text(problem)}, {run.date[:10]}", fontsize=11)
    return figure


def write(run: Record, folder: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Writes a run's report into a folder, as STEM.md and STEM.png with the record's own stem: the two paths.

    Raises records.RecordError where the folder cannot be written to; files of that name are replaced, because the
    record says the same for ever.
    """
    folder, stem = Path(folder), Path(run.file).stem
    text, picture = folder / f"{stem}.md", folder / f"{stem}.png"
    listed, paper = run.problems(), records.describe_problem(PAPER)
    problem = paper if paper in listed or not listed else listed[0]
    words = " ".join(roofline.alt_text(points, roof, path) for path, (points, roof) in _points(run, problem).items())
    parts = [f"# {run.gpu}", "", f"Measured on {run.where()}.", "", f"![{words}]({picture.name})", ""]
    for title, rows in grouped(run.measurements, lambda row: f"{row.op}/{row.path}").items():
        parts += [f"## {title}", "", of_rows(MEASUREMENTS[2:], [row.to_dict() for row in rows])]
    if run.counters:
        parts += ["## Hardware counters", "", of_rows(counters.columns(run.counters), run.counters)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        roofline_figure(run, problem).savefig(picture, format="png", metadata={"Software": None})
        text.write_text(Markdown("\n".join([*parts, *run.notes]).rstrip() + "\n"), encoding="utf-8")
    except OSError as error:
        raise records.RecordError(f"the report {text.name!r} cannot be written: {error.strerror or error}") from error
    return text, picture
