"""Records of what was measured: runs of the project's benchmarks, in packed files and in loose ones beside this module.

A benchmark writes a run as one new JSON file, and never changes it: `schema` says what is in it. ``python -m dwlab
records --pack`` puts such loose files into the packed ones (`packing`): NAME-OF-GPU.jsonl.xz, a line a run. Each run
keeps the name of its file. What was left out to keep them small, old times of baselines, the run's notes say.

``load_runs()`` reads them all, ``best(...)`` finds the row to show; `writing` writes a run, `tables` are for a lesson.
Every failure is a RecordError with one sentence on what is wrong and what to do; no failure changes a file.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import lzma
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dwlab.records import schema
from dwlab.records.schema import (
    COUNTED_OF_LAYERS,
    PARTS,
    SCHEMA,
    SECTIONS,
    SHARED,
    Damage,
    Measurement,
    ReadOnly,
    RecordError,
)

__all__ = [
    "COUNTED_OF_LAYERS", "PARTS", "SCHEMA", "SECTIONS", "SHARED", "Damage", "Measurement", "ReadOnly", "Record",
    "RecordError", "RecordWarning", "best", "copies", "copy_us", "csv_rows", "damaged", "describe_problem", "grid_rows",
    "load_all", "load_runs", "newest_rows", "read", "read_run", "shape_text", "shown", "shown_runs",
    "with_fastest_baselines",
]  # fmt: skip

FOLDER = Path(__file__).parent
PACKED = ".jsonl.xz"
CALM = 0.05  # (p90 - p10) / median of rounds that nothing disturbed: of 2,585 layers recorded until then 26 have more


class RecordWarning(UserWarning):
    """A record that was left out because it could not be read."""


@dataclass(frozen=True)
class Record:
    """One run: what a record file holds. sections: those of SECTIONS that it has; notes: what was left out, and why."""

    file: str
    environment: Mapping[str, Any]
    ceilings: Mapping[str, Any]
    measurements: tuple[Measurement, ...]
    peers: tuple[Mapping[str, Any], ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    counters: tuple[Mapping[str, Any], ...] = ()
    sections: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def date(self) -> str:
        """When it was measured, an ISO date."""
        return str(self.environment["date"])

    @property
    def gpu(self) -> str:
        """The GPU, as its driver names it."""
        return str(self.environment["gpu"])

    def problems(self) -> tuple[dict[str, Any], ...]:
        """The problems measured, in the order in which they were; the first is the run's main one."""
        found: list[dict[str, Any]] = []
        for row in self.measurements:
            if dict(row.problem) not in found:
                found.append(dict(row.problem))
        return tuple(found)

    def where(self) -> str:
        """Device, versions and date in one line: what every table says of itself."""
        env, capability = self.environment, self.environment.get("compute_capability")
        gpu = f"{self.gpu} (compute capability {capability[0]}.{capability[1]})" if capability else self.gpu
        names = {"driver": "driver", "cuda": "CUDA", "python": "Python", "numba": "numba", "numba_cuda": "numba-cuda",
                 "torch": "PyTorch"}  # fmt: skip
        versions = [f"{label} {env[key]}" for key, label in names.items() if env.get(key)]
        return ", ".join([gpu, *versions, self.date[:10]])


# ---------------------------------------------------------------------------------------------------------- reading


def read_run(path: str | os.PathLike[str]) -> Record:
    """One loose file. Raises RecordError; the file is left as it is."""
    path = Path(path)
    return made(lambda: _run(file_bytes(path), path.name), path.name)


def file_bytes(path: Path) -> bytes:
    """A file's bytes, unpacked if its name says that it is packed. Raises RecordError."""
    try:
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data
    except lzma.LZMAError as error:
        raise RecordError(f"{path.name} is damaged: {error}. Restore it (git checkout)") from error
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {_why(error)}") from error


def csv_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table of the records. Raises RecordError."""
    try:
        rows = list(csv.DictReader(file_bytes(path).decode().splitlines(), restkey=""))
    except ValueError as error:
        raise RecordError(f"{path.name} is damaged: {error}. Restore it (git checkout)") from error
    if wrong := next((n for n, row in enumerate(rows, 2) if "" in row or None in row.values()), 0):
        raise RecordError(f"{path.name} is damaged: line {wrong} has not its columns. Restore it (git checkout)")
    return rows


def damaged(folder: str | os.PathLike[str] | None = None) -> list[str]:
    """A sentence for each record in a folder, and those below it, that cannot be read; the package's own if None."""
    found = []
    for path in sorted(Path(folder or FOLDER).rglob("*")):
        try:
            if ".csv" in path.suffixes:
                csv_rows(path)
            elif {".json", ".jsonl"} & set(path.suffixes):
                for line in file_bytes(path).splitlines() if ".jsonl" in path.suffixes else [file_bytes(path)]:
                    json.loads(line)
        except RecordError as error:
            found.append(str(error))
        except ValueError as error:
            found.append(f"{path.name} is damaged: {error}. Restore it (git checkout)")
    return found


def made(make: Callable[[], Any], name: str) -> Any:
    """The result of `make` for a record. Raises RecordError, in a sentence that begins with its name."""
    try:
        return make()
    except Damage as damage:
        raise RecordError(
            f"{name} is damaged: {damage}. Restore it (git checkout), copy it again from where it was written, "
            "or delete it; the file is left as it is"
        ) from None
    except RecordError as error:
        text = str(error)
        raise RecordError(text if text.startswith(name) else f"{name} {text}") from error.__cause__


def _run(data: bytes, name: str) -> Record:
    found = schema.decode(data, schema.Run)
    schema.check_schema(found.schema)
    return _record(found, found.file or name)


def read(path: str | os.PathLike[str]) -> list[Measurement]:
    """The measurements of one loose file. Raises RecordError; the file is left as it is."""
    return list(read_run(path).measurements)


def load_runs(
    folder: str | os.PathLike[str] | None = None,
    on_error: Callable[[RecordError], None] | None = None,
) -> list[Record]:
    """Every run recorded in a folder (the package's own if None), oldest first, of loose files and of packed ones.

    One bad record does not hide the others: it is left out, and its error goes to ``on_error`` (a RecordWarning if
    None). A process reads each file once, and again when it has changed; what it gives is read-only.
    """
    folder = Path(folder) if folder is not None else FOLDER
    try:
        paths = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError as error:
        raise RecordError(f"the records in {folder.name!r} cannot be listed: {_why(error)}") from error
    loose = [path for path in paths if path.suffix == ".json"]
    packed = [path for path in paths if path.name.endswith(PACKED)]
    runs: dict[str, Record] = {}
    for one in itertools.chain.from_iterable(map(_kept, [*packed, *loose])):
        if isinstance(one, Record):
            runs[one.file] = one  # a loose file goes before what was packed of it
        elif on_error is not None:
            on_error(one)
        else:
            warnings.warn(str(one), RecordWarning, stacklevel=2)
    return sorted(runs.values(), key=lambda run: (instant(run.date), run.file))


def _read(path: Path) -> list[Record | RecordError]:
    """The runs of a file, loose or packed, and an error for each that is damaged."""
    packed, found = path.name.endswith(PACKED), []
    try:
        data = file_bytes(path)
    except RecordError as error:
        return [error]
    for number, text in enumerate(data.splitlines() if packed else [data], 1):
        name = f"{path.name}, line {number}," if packed else path.name
        try:
            found.append(made(lambda text=text: _run(text, path.name), name))
        except RecordError as error:
            found.append(error)
    return found


_cache: dict[Path, tuple[Any, list[Record | RecordError]]] = {}
_RACY_NS = 2_000_000_000  # a file changed twice within a tick of the file system's clock looks as if it had not


def _kept(path: Path) -> list[Record | RecordError]:
    """A file's runs and errors, from memory where it has the time and the size that it had."""
    try:
        now = path.stat()
    except OSError:
        return _read(path)  # which says why
    state, path = (now.st_mtime_ns, now.st_size), path.absolute()
    known = _cache.get(path)
    if known is not None and known[0] == state:
        return known[1]
    found = _read(path)
    if abs(time.time_ns() - now.st_mtime_ns) > _RACY_NS:
        _cache[path] = state, found
    return found


def load_all(
    folder: str | os.PathLike[str] | None = None, on_error: Callable[[RecordError], None] | None = None
) -> list[Measurement]:
    """Every recorded measurement, oldest run first; bad files as in ``load_runs``."""
    return [row for run in load_runs(folder, on_error) for row in run.measurements]


# --------------------------------------------------------------------------------------------------------- rows to show

SHOWN = "NVIDIA H200"
"""The GPU whose records tables and lessons show where none is named: a record of another GPU changes none of them."""


def shown_runs(runs: Sequence[Record] | None = None, gpu: str | None = None) -> list[Record]:
    """The runs of one GPU, oldest first, of these (the project's own if None).

    gpu: as its driver names it; if None SHOWN, or where none of the runs is of it, that of the newest.
    """
    runs = load_runs() if runs is None else list(runs)
    if gpu is None and runs:
        gpu = SHOWN if any(run.gpu == SHOWN for run in runs) else runs[-1].gpu
    return [run for run in runs if run.gpu == gpu]


def calibrated(runs: Sequence[Record] | None = None) -> dict[str, Record]:
    """GPU -> the newest of these runs (the project's own if None) that measured most of its ceilings.

    A ceiling that a run could not measure does not hide the one of a run before it.
    """
    found: dict[str, Record] = {}
    for run in load_runs() if runs is None else runs:
        if run.ceilings and (run.gpu not in found or _measured(run) >= _measured(found[run.gpu])):
            found[run.gpu] = run
    return found


def _measured(run: Record) -> int:
    return sum(value is not None for value in run.ceilings.values())


def best(
    op: str | None = None,
    path: str | None = None,
    stage: str | None = None,
    problem: Any = None,
    *,
    gpu: str | None = None,
    rows: Iterable[Measurement] | None = None,
) -> Measurement | None:
    """The row to show: of the newest run that has any that fits, the fastest; None if nothing fits.

    problem: a problem of dwlab.problems, of which rows of its dtype fit, or a mapping of its fields. rows: where to
    look (all records if None). gpu: if None SHOWN, or where no row that fits is of it, any.
    """
    wanted = None if problem is None else describe_problem(problem)
    dtype = getattr(problem, "dtype", None)
    fits = [
        row
        for row in (load_all() if rows is None else rows)
        if (op is None or row.op == op)
        and (path is None or row.path == path)
        and (stage is None or row.stage == stage)
        and (gpu is None or row.gpu == gpu)
        and (wanted is None or dict(row.problem) == wanted)
        and (dtype is None or row.dtype == dtype)
    ]
    if gpu is None:
        fits = [row for row in fits if row.gpu == SHOWN] or fits
    if not fits:
        return None
    newest = max(instant(row.date) for row in fits)
    return min((row for row in fits if instant(row.date) == newest), key=lambda row: row.time_us)


def newest_rows(
    section: str,
    key: Callable[[Mapping[str, Any]], Any],
    runs: Sequence[Record] | None = None,
    gpu: str | None = None,
) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """(rows, runs): of each key the newest row of a section on one GPU, and the runs that they are from, oldest first.

    A row whose rounds scattered by CALM or more, as where the host was busy, does not count.
    gpu: as `shown_runs` takes it, of the runs with such rows.
    """
    runs = load_runs() if runs is None else runs
    having = shown_runs([run for run in runs if run.sections.get(section)], gpu)
    found: dict[Any, tuple[Mapping[str, Any], Record]] = {}
    for run in having:
        for row in run.sections[section]:
            if calm(row):
                found[key(row)] = (row, run)
    used = [run for run in having if any(one is run for _, one in found.values())]
    return [row for row, _ in found.values()], used


def calm(row: Mapping[str, Any]) -> bool:
    """Whether the rounds of a row agree; a row without percentiles or without a time counts as calm."""
    low, time, high = row.get("p10_us"), row.get("time_us"), row.get("p90_us")
    return not (low and time and high) or bool((high - low) / time < CALM)


def grid_rows(runs: Sequence[Record] | None = None) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """The grid of shapes on the GPU that is shown: of each path and shape the newest row, and the runs."""
    rows, used = newest_rows("grid", lambda row: (row["path"], row["dtype"], *row["problem"].values()), runs)
    rows = with_fastest_baselines(rows, runs)
    order = {path: i for i, path in enumerate(dict.fromkeys(row["path"] for row in rows))}
    return sorted(rows, key=lambda row: (order[row["path"]], *(row["problem"][name] for name in "LKB"))), used


def with_fastest_baselines(
    rows: Iterable[Mapping[str, Any]], runs: Sequence[Record] | None = None
) -> list[Mapping[str, Any]]:
    """Rows of the 1-D convolution on the GPU that is shown, each with the least time of PyTorch that any run has of its
    path, problem and type: not every run tries all of its ways, and a busy host slows some.
    """
    found: dict[Any, tuple[float, str]] = {}
    for run in shown_runs(runs):
        peers = ((one, one["shape"], one["time"]["median_us"], one["name"])
                 for one in run.peers if one.get("time") and one.get("shape"))  # fmt: skip
        timed = (
            (one.to_dict() for one in run.measurements if one.op == "depthwise1d"),
            *(run.sections.get(part, ()) for part in ("grid", "shapes")),
        )
        own = ((one, one["problem"], one["peer_time_us"], one["peer"])
               for one in itertools.chain(*timed) if one.get("peer_time_us"))  # fmt: skip
        for one, problem, us, name in itertools.chain(peers, own):
            key = one["path"], one.get("dtype", "float32"), shape_text(problem)
            found[key] = min(found.get(key, (us, name)), (us, name))
    made = []
    for row in rows:
        us, name = found.get((row["path"], row["dtype"], shape_text(row["problem"])), (None, None))
        ratio = us / row["time_us"] if us and row.get("time_us") else None
        made.append({**row, "peer": name, "peer_time_us": us, "speedup_vs_peer": ratio} if us else row)
    return made


def copies(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Record | None:
    """The newest run that timed copies of several sizes, of one GPU: as `shown_runs` has it.

    The copy bandwidth is that of hundreds of MB. A launch that moves less begins and ends all the same, some
    microseconds in which memory waits, whatever the kernel; a copy of as many bytes says how many.
    """
    return next((run for run in reversed(shown_runs(runs, gpu)) if run.sections.get("copies")), None)


def copy_us(nbytes: int, run: Record) -> float | None:
    """µs of a copy of so many bytes, read and written together, by a run's copies; None if all of them are larger.

    Linear between two sizes; above the largest at its bandwidth.
    """
    rows = sorted((row["bytes"], row["time_us"]) for row in run.sections["copies"])
    for (less, below), (more, above) in itertools.pairwise(rows):
        if less <= nbytes <= more:
            return below + (nbytes - less) / (more - less) * (above - below)
    return nbytes / rows[-1][0] * rows[-1][1] if nbytes >= rows[-1][0] else None


def shown(cell: str) -> str:
    """A lesson's output on a GPU or with a compiler, for where is none; its head says where and when."""
    return "\n".join(row["line"] for row in csv_rows(FOLDER / "shown.csv.xz") if row["cell"] == cell)


def describe_problem(problem: Any) -> dict[str, Any]:
    """A problem's fields without its dtype, which a measurement has in a field of its own; a mapping is copied."""
    if hasattr(problem, "fields"):  # layers that are fused say it in words
        return problem.fields()
    fields = dict(problem) if isinstance(problem, Mapping) else dataclasses.asdict(problem)
    return {key: value for key, value in fields.items() if key != "dtype"}


def shape_text(problem: Any) -> str:
    """A problem in one short text: "B=16384 H=128 L=48 K=48 padding=causal"."""
    return " ".join(f"{key}={value}" for key, value in describe_problem(problem).items())


# ---------------------------------------------------------------------------------------------------- what types cannot


def _record(found: Any, name: str) -> Record:
    """A run, once what no type of `schema` says of it holds, too. Raises Damage."""
    environment, ceilings = found.environment, found.ceilings
    try:
        datetime.fromisoformat(environment["date"])
    except ValueError:
        raise Damage(f"environment.date {environment['date']!r} is no ISO date") from None
    sections = {
        part: tuple(map(ReadOnly, getattr(found, part))) for part in SECTIONS if getattr(found, part) is not None
    }
    # A run of the sanitizer, say, measures no ceilings.
    timed = any(sections.get(part) for part in ("grid", "shapes", "layers", "networks"))
    needed = found.measurements or ceilings or timed or not any(sections.values())
    if needed and ceilings.get("copy_gbps") is None:
        raise Damage("ceilings.copy_gbps is None, not a positive number")
    copy = ceilings.get("copy_gbps", 0.0)
    shared = {"gpu": environment["gpu"], "date": environment["date"], "copy_gbps": copy, "file": name}
    counters = (ReadOnly({"dtype": "float32"} | one | {"predicted": ReadOnly(one["predicted"])})
                for one in found.counters or ())  # fmt: skip
    return Record(
        file=name,
        environment=ReadOnly(environment),
        ceilings=ReadOnly(ceilings),
        measurements=tuple(_measurement(row, i, shared) for i, row in enumerate(found.measurements)),
        peers=tuple(found.peers or ()),
        machine=ReadOnly(found.machine or {}),
        counters=tuple(counters),
        sections=ReadOnly(sections),
        notes=tuple(found.notes or ()),
    )


def _measurement(row: Mapping[str, Any], index: int, shared: Mapping[str, Any]) -> Measurement:
    name = row.get("peer")
    if name and row.get("peer_time_us") is None:
        raise Damage(f"measurement {index}: its `peer` {name!r} has no peer_time_us")
    return Measurement(**row, **shared)


def instant(date: str) -> float:
    """Seconds since 1970 of an ISO date; without a time zone UTC."""
    moment = datetime.fromisoformat(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _why(error: OSError) -> str:
    reasons = {
        PermissionError: "no permission. Change the file's permissions (chmod u+rw), or copy it to your own folder",
        FileNotFoundError: "there is no such file. See what there is: python -m dwlab records",
        IsADirectoryError: "it is a folder; name a file in it",
        NotADirectoryError: "a part of its path is a file, not a folder",
    }
    return reasons.get(type(error)) or (error.strerror or type(error).__name__).lower()
