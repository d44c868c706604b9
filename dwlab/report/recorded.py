"""``python -m dwlab records``: a row a measurement, a shape of the newest grid, or a whole network."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dwlab.gpu import machine, specs
from dwlab.kernels import registry
from dwlab.problems import KINDS, PATHS, ProblemError, layers, nearest
from dwlab.problems import networks as known_networks
from dwlab.records import Record, RecordError, grid_rows, load_runs, newest_rows, packing, shape_text
from dwlab.report.rows import network_of, over
from dwlab.text import commandline, terminal
from dwlab.text.tabular import Col, cells, percent, rounded, times

Row = Mapping[str, Any]


def register(command: commandline.Register) -> None:
    """Adds `records`."""
    examples = "examples: python -m dwlab records --op fused --path dwpw --last\n"
    add = command("records", main, examples + "          python -m dwlab records --networks").add_argument
    last = "only of the newest run with such rows, or N of them"
    add("--op", help="only of this operator, such as depthwise2d")
    add("--path", help="only of this path, such as forward or dwpw")
    add("--gpu", metavar="NAME", help="only of this GPU, such as h200")
    add("--last", type=commandline.whole(1), nargs="?", const=1, metavar="N", help=last)
    add("--grid", action="store_true", help="the newest grid of shapes, a row a shape and path")
    add("--networks", action="store_true", help="whole networks and PyTorch's, the newest row of each")
    add("--pack", action="store_true", help="put new files of dwlab/records/ into the packed ones")


def main(args: argparse.Namespace) -> int:
    """Lists what dwlab/records/ holds: time, effective bandwidth and its fraction of the copy measured in
    the same run, speedup over the naive stage and over the fastest library.
    Status 1 if a file there cannot be read.
    """
    if getattr(args, "pack", False):
        for path in packing.pack(getattr(args, "folder", None)):
            print(f"{path.name}: {path.stat().st_size / 1e3:,.0f} kB")
        return 0
    errors: list[RecordError] = []
    wanted = {name: getattr(args, name, None) for name in ("op", "path", "gpu", "last")}
    grid, networks = getattr(args, "grid", False), getattr(args, "networks", False)
    if grid and networks:
        raise RecordError("--grid or --networks: not both")
    if networks and (wanted["op"] or wanted["path"]):
        raise RecordError("--networks: a whole network has no --op and no --path; leave them out")
    _check(wanted)
    try:
        runs = load_runs(getattr(args, "folder", None), errors.append)
    except RecordError as error:
        runs, errors = [], [error]
    if wanted["gpu"]:
        runs = [run for run in runs if run.gpu == _gpu(wanted["gpu"], runs)]
    rows_of, columns = (_networks, NETWORKS) if networks else (_grid, GRID) if grid else (_measurements, MEASUREMENTS)

    def fits(row: Row) -> bool:
        return networks or all(wanted[name] in (None, row[name]) for name in ("op", "path"))

    having = [run for run in runs if any(map(fits, rows_of([run])))]
    rows = [row for row in rows_of(having[-(wanted["last"] or len(having)) :]) if fits(row)] if having else []
    if getattr(args, "json", False):
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif not rows:
        given = " ".join(f"--{name} {value}" for name, value in wanted.items() if value is not None)
        print(f"No record has rows of {given}." if given and runs else _NOTHING)
    else:
        # What a narrow terminal goes without comes last in a row; the problem is what is cut.
        head, body, left = cells(columns, rows)
        print(
            terminal.table(
                head, body, left, columns=terminal.width(),
                cut=head.index("problem") if "problem" in head else 0, least=20,
                spare=[head.index(name) for name in _SPARE if name in head],
            )
        )  # fmt: skip
    for error in errors:
        print(f"dwlab: {error}", file=sys.stderr)
    return 1 if errors else 0


_NOTHING = "Nothing is recorded yet. On a GPU: python -m dwlab study --record FILE"
_SPARE = ("baseline", "eff. GB/s", "× naive", "of bound", "of FMA rate", "gpu", "date", "layout")


def _check(wanted: Row) -> None:
    """Raises RecordError for an op, a path or a number of runs that there cannot be."""
    ops = tuple(sorted({one.partition("/")[0] for one in registry.ids()}))
    for name, known in (("op", ops), ("path", PATHS + KINDS)):
        if wanted[name] is not None and wanted[name] not in known:
            raise RecordError(f"there is no {name} {wanted[name]!r}. {nearest(wanted[name], known)}")
    if wanted["last"] is not None and wanted["last"] < 1:
        raise RecordError(f"--last {wanted['last']}: it is a number of runs, at least 1")


def _gpu(name: str, runs: Sequence[Record]) -> str:
    """The recorded GPU that is meant, as its driver names it, or by the end of that: "h200". Raises RecordError."""
    recorded = tuple(dict.fromkeys(run.gpu for run in runs))
    full = specs.NAMES.get(name.strip().lower(), name)
    for one in recorded:
        sheet = machine.datasheet(one)
        if one.lower() == full.lower() or (sheet and sheet == machine.datasheet(full)):
            return one
    raise RecordError(f"no record is of a GPU {name!r}. Recorded: {', '.join(recorded) or 'none'}")


def _short(op: str, problem: Row) -> str:
    """A recorded problem in a few characters: a layer as a plan has it, with its images."""
    try:
        if "first" in problem:
            found = [layers.problem(problem[name].partition(" ")[2]) for name in ("first", "second")]
        elif op == "sparse":
            return str(layers.SparsePointwise(**problem))
        elif op in ("depthwise2d", "pointwise"):
            found = [(layers.DepthwiseConv2d if op == "depthwise2d" else layers.Pointwise)(**problem)]
        else:
            return shape_text(problem)
    except (ProblemError, TypeError, AttributeError):  # of a later dwlab, or damaged: as it stands
        return shape_text(problem)
    return f"{' + '.join(map(known_networks.summary, found))} N={found[0].N} {found[0].layout}"


def _measurements(runs: Sequence[Record]) -> list[Row]:
    return [row.to_dict() for run in runs for row in run.measurements]


def _grid(runs: Sequence[Record]) -> list[Row]:
    return [dict(row) for row in grid_rows(runs)[0]]


def _networks(runs: Sequence[Record]) -> list[Row]:
    """The newest row of each network, batch, storage type and layout on each GPU."""
    found = []
    for gpu in dict.fromkeys(run.gpu for run in runs):
        rows, used = newest_rows("networks", network_of, runs, gpu)
        dates = {id(row): run.date[:10] for run in used for row in run.sections["networks"]}
        found += [{"gpu": gpu, "date": dates[id(row)], **row} for row in rows]
    return sorted(found, key=lambda row: (row["gpu"], row["network"], -len(row["dtype"]), row["dtype"], row["batch"]))


def _text(head: str, of: str | Callable[[Row], Any] = "") -> Col:
    return Col(head, of or head, left=True)


def _baseline(ratio: Callable[[float], str]) -> Col:
    return Col("× baseline", "speedup_vs_peer", ratio)


def _slower(ratio: float) -> str:
    return times(ratio, slower=True)


_DATE = Col("date", lambda row: row["date"][:10], left=True)
MEASUREMENTS = (
    _text("gpu"), _DATE, _text("stage", "{op}/{path}/{stage}".format_map),
    _text("problem", lambda row: _short(row["op"], row["problem"])), _text("dtype"), Col("time µs", "time_us", rounded),
    Col("eff. GB/s", "effective_gbps", rounded), Col("of copy", "fraction_of_copy", percent),
    Col("× naive", "speedup_vs_naive", times), _baseline(times), _text("baseline", "peer"),
)  # fmt: skip
GRID = (
    _text("path"), _text("stage"), _text("problem", lambda row: shape_text(row["problem"])), _text("dtype"),
    Col("time µs", "time_us", rounded),
    Col("of copy", lambda row: percent(over(row["copy_bound_us"], row.get("time_us"))) or row.get("failure")),
    _baseline(_slower), Col("baseline µs", "peer_time_us", rounded), _text("baseline", "peer"),
)  # fmt: skip
NETWORKS = (
    _text("network"), _text("dtype"), Col("batch", "batch"), Col("unfused µs", "apart_us", rounded),
    Col("fused µs", "fused_us", rounded), Col("baseline µs", "peer_time_us", rounded), _baseline(_slower), _text("gpu"),
    _DATE, _text("layout"), _text("baseline", lambda row: row.get("peer") or row.get("failure")),
)  # fmt: skip
