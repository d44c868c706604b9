"""What was measured: one JSON file for each run beside this module, written once and never changed.

A file holds the schema's number, the environment (GPU, driver, versions, git revision, date, clocks), the ceilings
measured in the same run, the peers tried, the hardware's counters where they could be read, and the measurements. It
names no user, no host and no absolute path.

``load_all()`` reads them all, ``best(...)`` finds the row to show; `writing` writes a run, `tables` are for a lesson.
Every failure is a RecordError with one sentence on what is wrong and what to do; no failure changes a file.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import functools
import itertools
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

SCHEMA = 1
FOLDER = Path(__file__).parent
CALM = 0.05  # (p90 - p10) / median of rounds that nothing disturbed: of 2,585 layers recorded until then 26 have more


class RecordError(RuntimeError):
    """A record that cannot be read or written; the message says why and what to do."""


class RecordWarning(UserWarning):
    """A record file that was left out because it could not be read."""


class ReadOnly(dict):
    """An object of a record: a dict that nobody changes, as all readers share it. `dict(one)` and `one | …` are new."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("what a record says is not changed: take a copy, dict(...)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadOnly, (dict(self),)


@dataclass(frozen=True)
class Measurement:
    """One stage on one problem, timed on one GPU.

    time_us: median of one launch, with p10_us and p90_us over ``rounds`` rounds of ``launches`` launches each.
    effective_gbps: compulsory_bytes / time, in 1e9 bytes a second; copy_gbps: the device copy measured in the same
    run (bytes read plus bytes written); fraction_of_copy: their ratio. flops: multiplications and additions of the
    taps inside the signal; intensity: flops / compulsory_bytes. predicted_bytes: what the stage's formula says that
    its warps ask for, 32 bytes a sector. speedup_vs_naive: the naive stage's time over this one, same run and problem.
    peer, peer_time_us, speedup_vs_peer: the fastest library that computed the same, None where none was measured.
    kernel_sha256: the stage's digest (dwlab.digests), so that a row of an earlier kernel can be told; of records that
    have another digest, what `kernels.csv` says in its place. ptx_sha256: of the machine-independent code of the kernel
    that was launched, and how (dwlab.ahead.code_digest), where it is known.
    """

    gpu: str
    date: str
    op: str
    path: str
    stage: str
    problem: Mapping[str, Any]
    dtype: str
    time_us: float
    p10_us: float
    p90_us: float
    rounds: int
    launches: int
    method: str
    cold: str
    compulsory_bytes: int
    effective_gbps: float
    copy_gbps: float
    fraction_of_copy: float
    flops: int
    intensity: float
    speedup_vs_naive: float | None = None
    peer: str | None = None
    peer_time_us: float | None = None
    speedup_vs_peer: float | None = None
    predicted_bytes: int | None = None
    order: int | None = None
    kernel_sha256: str | None = None
    ptx_sha256: str | None = None
    note: str = ""
    file: str = ""

    @property
    def id(self) -> str:
        """The stage's id, such as "depthwise1d/forward/naive"."""
        return f"{self.op}/{self.path}/{self.stage}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, in the order of the fields."""
        return dataclasses.asdict(self) | {"problem": dict(self.problem)}


# Fields of a Measurement that the file keeps once for the whole run, or that only the reader knows.
SHARED = {"gpu", "date", "copy_gbps", "file"}
_FIELDS = {f.name: f for f in dataclasses.fields(Measurement)}
_REQUIRED = [n for n, f in _FIELDS.items() if f.default is dataclasses.MISSING and n not in SHARED]
_POSITIVE = ("time_us", "p10_us", "p90_us", "effective_gbps", "fraction_of_copy", "compulsory_bytes", "flops",
             "intensity", "rounds", "launches")  # fmt: skip
_POSITIVE_OR_NONE = ("speedup_vs_naive", "peer_time_us", "speedup_vs_peer", "predicted_bytes", "order")
_TEXTS = ("op", "path", "stage", "dtype", "method", "cold")
# What a row of hardware counters must have to be shown; null for what that GPU does not count.
_SECTORS = ("load_sectors", "store_sectors")
_COUNTED = ("load_requests", "store_requests", "dram_read_bytes", "dram_write_bytes", "shared_bank_conflicts")
_COUNTED_LATER = ("atomic_requests", "atomic_sectors", "l2_read_sectors", "l2_write_sectors")  # not in every record

# Parts of a record that a run may have beside its measurements: name -> what each row has, and of what kind. A kind
# that ends in "?" may be null or missing. grid: one path of one shape, with the stage that dispatch chose for it;
# *_bound_us: the least time that the copy bandwidth and the FMA rate allow. shapes: one path of a drawn shape; times:
# of every stage that takes it, id -> µs, or of two that are launched one after the other, "ID, ID"; kernels: id -> the
# first digits of dwlab.ahead.code_digest. sanitizer: one of compute-sanitizer's tools
# over one stage, whose kernel the digest tells. layers: one layer of an image network, or two of them fused, at a
# batch: our fastest stage and layout beside the fastest peer. layer_counters: what the hardware counted of one launch
# of a stage on a layer, beside what its formula predicts; planned_*: in bytes the planner's model at the kernel's
# tile, of earlier records. tiles: a stage whose tiles were given, not chosen, warm. networks: a whole network at a
# batch, layer by layer (apart) and with fused pairs, beside the fastest peer, and J an image of ours and the peer's,
# each over a window of seconds beside the GPU's power at rest; *_launches: how kernels follow each other
# (dependent_launch.WORDS), *_plain_us: the time one after the other. energy_tries: the same network run in ways that
# might take less energy; joules: an image.
# network_kernels: the fastest stage of one of its layers, or of two fused ("1.depthwise + 1.pointwise"), alone and with
# its arrays in the L2 as far as they fit; of layers that are alike, the first. tries: one small kernel of
# benchmarks/roof_tries.py; bytes: that it must move, and gbps by that. reduction_error: a sum against float64; terms:
# of each output; error: the greatest |out - ref| of all outputs over the sum of the terms' absolute values; norm_error:
# of the whole output. comparisons: tests that hold the interpreter against a GPU. copies: the fastest device copy of so
# many bytes, read and written together, out of the L2 as far as that can be.
# In layers, apart: of fused layers of int8, our own kernels of the two, one after the other.
COUNTED_OF_LAYERS = (
    "load_requests", "load_sectors", "store_requests", "store_sectors", "l2_sm_read_sectors", "l2_sm_write_sectors",
    "l2_read_sectors", "l2_write_sectors", "dram_read_bytes", "dram_write_bytes", "shared_bank_conflicts",
)  # fmt: skip
"""What a row of layer_counters has of the hardware, None for what that GPU does not count."""

SECTIONS: dict[str, dict[str, str]] = {
    "grid": {
        "op": "text", "path": "text", "problem": "object", "dtype": "text", "stage": "text", "time_us": "positive?",
        "p10_us": "positive?", "p90_us": "positive?", "fraction_of_copy": "positive?", "copy_bound_us": "positive",
        "fma_bound_us": "positive?", "peer": "text?", "peer_time_us": "positive?", "speedup_vs_peer": "positive?",
        "cold": "text?", "failure": "text?",
    },
    "shapes": {
        "op": "text", "path": "text", "problem": "object", "dtype": "text", "times": "object", "kernels": "object?",
        "cold": "text?",
        "peer": "text?", "peer_time_us": "positive?", "failure": "text?",
    },
    "layers": {
        "op": "text", "path": "text", "layer": "text", "batch": "positive", "dtype": "text", "problem": "object",
        "networks": "text", "compulsory_bytes": "positive", "copy_bound_us": "positive", "stage": "text?",
        "layout": "text?", "time_us": "positive?", "p10_us": "positive?", "p90_us": "positive?",
        "fraction_of_copy": "positive?", "cold": "text?", "peer": "text?", "peer_time_us": "positive?",
        "speedup_vs_peer": "positive?", "apart": "text?", "apart_time_us": "positive?", "speedup_vs_apart": "positive?",
        "failure": "text?",
    },
    "layer_counters": {
        "op": "text", "path": "text", "stage": "text", "layer": "text", "batch": "positive", "layout": "text",
        "dtype": "text", "problem": "object", "exact": "flag", "compulsory_bytes": "positive",
        "planned_bytes": "positive?", "planned_asked_bytes": "positive?",
        **{f"predicted_{kind}_{what}": "count" for kind in ("load", "store") for what in ("requests", "sectors")},
        **dict.fromkeys(COUNTED_OF_LAYERS, "count?"),
    },
    "tiles": {
        "op": "text", "path": "text", "stage": "text", "problem": "object", "dtype": "text", "tiles": "object",
        "registers": "positive", "local_bytes": "count?", "time_us": "positive", "cold": "text?",
    },
    "networks": {
        "network": "text", "batch": "positive", "dtype": "text", "layout": "text", "resolution": "positive",
        "apart_us": "positive?", "apart_p10_us": "positive?", "apart_p90_us": "positive?", "kernels": "count?",
        "fused_us": "positive?", "fused_p10_us": "positive?", "fused_p90_us": "positive?", "fused_kernels": "count?",
        "apart_launches": "text?", "apart_plain_us": "positive?", "fused_launches": "text?",
        "fused_plain_us": "positive?",
        "pairs": "count?", "operations": "count?", "cold": "text?", "checked": "text?", "peer": "text?",
        "peer_time_us": "positive?", "speedup_vs_peer": "positive?", "peer_dtype": "text?", "failure": "text?",
        "joules": "positive?", "watts": "positive?", "window_s": "positive?", "rest_watts": "positive?",
        "peer_joules": "positive?", "peer_watts": "positive?", "peer_window_s": "positive?",
        "peer_rest_watts": "positive?", "energy_failure": "text?",
    },
    "energy_tries": {
        "network": "text", "batch": "positive", "dtype": "text", "layout": "text", "way": "text", "kernels": "count",
        "time_us": "positive", "joules": "positive", "watts": "positive", "window_s": "positive",
        "rest_watts": "positive",
    },
    "network_kernels": {
        "network": "text", "batch": "positive", "dtype": "text", "layout": "text", "layers": "text", "stage": "text",
        "time_us": "positive",
    },
    "sanitizer": {
        "tool": "text", "stage": "text", "clean": "flag", "message": "text?", "version": "text?",
        "kernel_sha256": "text?",
    },
    "reduction_error": {
        "op": "text", "path": "text", "stage": "text", "problem": "object", "terms": "positive", "error": "number",
        "norm_error": "number", "allowed": "positive", "runs": "positive", "repeatable": "flag",
    },
    "copies": {
        "bytes": "positive", "time_us": "positive", "p10_us": "positive", "p90_us": "positive", "gbps": "positive",
        "way": "text", "cold": "text",
    },
    "comparisons": {"name": "text", "passed": "count", "failed": "count", "skipped": "count"},
    "tries": {
        "group": "text", "name": "text", "bytes": "positive", "time_us": "positive?", "p10_us": "positive?",
        "p90_us": "positive?", "gbps": "positive?", "registers": "count?", "note": "text?", "failure": "text?",
    },
}  # fmt: skip
_ELSEWHERE = "Move it out of the records' folder"


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
        env = self.environment
        parts = [self.gpu]
        if env.get("compute_capability"):
            parts[0] += " (compute capability {}.{})".format(*env["compute_capability"])
        names = {
            "driver": "driver",
            "cuda": "CUDA",
            "python": "Python",
            "numba": "numba",
            "numba_cuda": "numba-cuda",
            "torch": "PyTorch",
        }
        parts += [f"{label} {env[key]}" for key, label in names.items() if env.get(key)]
        parts.append(self.date[:10])
        return ", ".join(parts)


# ---------------------------------------------------------------------------------------------------------- reading


def read_run(path: str | os.PathLike[str]) -> Record:
    """One record file. Raises RecordError; the file is left as it is."""
    path = Path(path)
    data = _load(path, _read_only)
    name = path.name
    schema = data.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RecordError(
            f"{name} is JSON but no dwlab record: its 'schema' is {schema!r}, not a number from 1 up. {_ELSEWHERE}"
        )
    if schema > SCHEMA:
        raise RecordError(
            f"{name} was written by a newer dwlab (schema {schema}; this one reads up to {SCHEMA}). "
            "Update dwlab to read it; the file is left as it is"
        )
    try:
        return _record(data, name)
    except _Damage as damage:
        raise RecordError(
            f"{name} is damaged: {damage}. Restore it (git checkout), copy it again from where it was written, "
            "or delete it; the file is left as it is"
        ) from None


def read(path: str | os.PathLike[str]) -> list[Measurement]:
    """The measurements of one record file. Raises RecordError; the file is left as it is."""
    return list(read_run(path).measurements)


def load_runs(
    folder: str | os.PathLike[str] | None = None, on_error: Callable[[RecordError], None] | None = None
) -> list[Record]:
    """Every run recorded in a folder (the package's own if None), oldest first.

    One bad file does not hide the others: it is left out, and its error goes to ``on_error`` (a RecordWarning if None).
    A process reads each file once, and again when it has changed; what it gives is read-only.
    """
    folder = Path(folder) if folder is not None else FOLDER
    try:
        paths = sorted(p for p in folder.iterdir() if p.suffix == ".json" and not p.name.startswith("."))
    except OSError as error:
        raise RecordError(f"the records in {folder.name!r} cannot be listed: {_why(error)}") from error
    runs = []
    for path in paths:
        try:
            runs.append(_kept_run(path))
        except RecordError as error:
            if on_error is not None:
                on_error(error)
            else:
                warnings.warn(str(error), RecordWarning, stacklevel=2)
    return sorted(runs, key=lambda run: (_instant(run.date), run.file))


_kept: dict[Path, tuple[tuple[int, int], Record]] = {}
_RACY_NS = 2_000_000_000  # a file changed twice within a tick of the file system's clock looks as if it had not


def _kept_run(path: Path) -> Record:
    """`read_run`, from memory where the file has the time and size that it had. Raises RecordError."""
    try:
        state = path.stat()
        key = state.st_mtime_ns, state.st_size
    except OSError:
        return read_run(path)  # which says why
    path = path.absolute()
    known = _kept.get(path)
    if known is not None and known[0] == key:
        return known[1]
    run = read_run(path)
    if abs(time.time_ns() - state.st_mtime_ns) > _RACY_NS:
        _kept[path] = key, run
    return run


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
    newest = max(_instant(row.date) for row in fits)
    return min((row for row in fits if _instant(row.date) == newest), key=lambda row: row.time_us)


def newest_rows(
    section: str,
    key: Callable[[Mapping[str, Any]], Any],
    runs: Sequence[Record] | None = None,
    gpu: str | None = None,
) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """(rows, runs): of each key the newest row of a section on one GPU, and the runs that they are from, oldest first.

    A row whose rounds scattered by CALM or more, as where the host was busy, counts only where none is calmer.
    gpu: as `shown_runs` takes it, of the runs with such rows.
    """
    runs = load_runs() if runs is None else runs
    having = shown_runs([run for run in runs if run.sections.get(section)], gpu)
    found: dict[Any, tuple[Mapping[str, Any], Record]] = {}
    for run in having:
        for row in run.sections[section]:
            name = key(row)
            if name not in found or _calm(row) or not _calm(found[name][0]):
                found[name] = (row, run)
    used = [run for run in having if any(one is run for _, one in found.values())]
    return [row for row, _ in found.values()], used


def _calm(row: Mapping[str, Any]) -> bool:
    """Whether the rounds of a row agree; a row without percentiles or without a time counts as calm."""
    low, time, high = row.get("p10_us"), row.get("time_us"), row.get("p90_us")
    return not (low and time and high) or bool((high - low) / time < CALM)


def grid_rows(runs: Sequence[Record] | None = None) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """The grid of shapes on the GPU that is shown: of each path and shape the newest row, and the runs."""
    rows, used = newest_rows("grid", lambda row: (row["path"], row["dtype"], *row["problem"].values()), runs)
    order = {path: i for i, path in enumerate(dict.fromkeys(row["path"] for row in rows))}
    return sorted(rows, key=lambda row: (order[row["path"]], *(row["problem"][name] for name in "LKB"))), used


def copies(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Record | None:
    """The newest run that timed copies of several sizes, on a GPU if one is named.

    The copy bandwidth is that of hundreds of MB. A launch that moves less begins and ends all the same, some
    microseconds in which memory waits, whatever the kernel; a copy of as many bytes says how many.
    """
    runs = load_runs() if runs is None else list(runs)
    return next((run for run in reversed(runs) if run.sections.get("copies") and gpu in (None, run.gpu)), None)


def copy_us(nbytes: int, run: Record) -> float | None:
    """µs of a copy of so many bytes, read and written together, by a run's copies; None if all of them are larger.

    Linear between two sizes; above the largest at its bandwidth.
    """
    rows = sorted((row["bytes"], row["time_us"]) for row in run.sections["copies"])
    for (less, below), (more, above) in itertools.pairwise(rows):
        if less <= nbytes <= more:
            return below + (nbytes - less) / (more - less) * (above - below)
    return nbytes / rows[-1][0] * rows[-1][1] if nbytes >= rows[-1][0] else None


def describe_problem(problem: Any) -> dict[str, Any]:
    """A problem's fields without its dtype, which a measurement keeps apart; a mapping is copied."""
    if hasattr(problem, "fields"):  # layers that are fused say it in words
        return problem.fields()
    fields = dict(problem) if isinstance(problem, Mapping) else dataclasses.asdict(problem)
    return {key: value for key, value in fields.items() if key != "dtype"}


def shape_text(problem: Any) -> str:
    """A problem in one short text: "B=16384 H=128 L=48 K=48 padding=causal"."""
    return " ".join(f"{key}={value}" for key, value in describe_problem(problem).items())


# ------------------------------------------------------------------------------------------------------- a file's parts


def _load(path: Path, hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecordError(
            f"{path.name} is not JSON (it is not even text): it is no record, move it elsewhere"
        ) from None
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {_why(error)}") from error
    if not text.strip():
        raise RecordError(
            f"{path.name} is truncated: it is empty. Copy it again from where it was written, or delete it"
        )
    try:
        data = json.loads(text, parse_constant=_no_constant, object_pairs_hook=hook)
    except json.JSONDecodeError as error:
        body = text.strip()
        if body.startswith("{") and (not body.endswith("}") or error.pos >= len(text.rstrip())):
            raise RecordError(
                f"{path.name} is truncated: it ends in the middle, after {len(text)} characters. "
                "Copy it again from where it was written, or delete it; other records are not touched"
            ) from error
        raise RecordError(
            f"{path.name} is not JSON ({error.msg}, line {error.lineno} column {error.colno}): "
            "restore it (git checkout), or move it elsewhere if it is no record"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path.name} is damaged: {error}; restore it (git checkout) or delete it") from error
    if not isinstance(data, dict):
        raise RecordError(
            f"{path.name} is JSON but no dwlab record: it is a {_kind(data)}, not an object. {_ELSEWHERE}"
        )
    return data


def _read_only(pairs: list[tuple[str, Any]]) -> ReadOnly:
    """An object of a file; its lists become tuples."""
    return ReadOnly((name, tuple(value) if isinstance(value, list) else value) for name, value in pairs)


def _kind(value: Any) -> str:
    return "list" if isinstance(value, tuple) else "dict" if isinstance(value, dict) else type(value).__name__


def _no_constant(text: str) -> float:
    raise ValueError(f"it holds {text}, which no measurement is")


class _Damage(ValueError):
    """What is wrong in a record, without the file's name and without what to do."""


def _record(data: Mapping[str, Any], name: str) -> Record:
    """A file's content, once every part that a table or a plot uses is of the kind it should be. Raises _Damage."""
    environment = _part(data, "environment", dict)
    ceilings = _part(data, "ceilings", dict)
    rows = _part(data, "measurements", list)
    for key in ("gpu", "date"):
        if not isinstance(environment.get(key), str) or not environment[key]:
            raise _Damage(f"environment.{key} is {environment.get(key)!r}, not a text")
    try:
        datetime.fromisoformat(environment["date"])
    except ValueError:
        raise _Damage(f"environment.date {environment['date']!r} is no ISO date") from None
    _capability(environment, "environment")
    sections = {
        name: tuple(_row(one, fields, f"{name} {i}") for i, one in enumerate(_part(data, name, list)))
        for name, fields in SECTIONS.items()
        if data.get(name) is not None
    }
    if "sanitizer" in sections:
        sections["sanitizer"] = tuple(
            ReadOnly(one | {"kernel_sha256": _kernel_of(name, one["stage"], one["kernel_sha256"])})
            if one.get("kernel_sha256")
            else one
            for one in sections["sanitizer"]
        )
    # A run of the sanitizer, say, measures no ceilings.
    timed = any(sections.get(name) for name in ("grid", "shapes", "layers", "networks"))
    needed = rows or ceilings or timed or not any(sections.values())
    copy = _number(ceilings.get("copy_gbps"), "ceilings.copy_gbps") if needed else 0.0
    for key in ("l2_gbps", "fma_tflops", "launch_us"):
        if ceilings.get(key) is not None:
            _number(ceilings[key], f"ceilings.{key}")
    machine = _part(data, "machine", dict, ReadOnly())
    _capability(machine, "machine")
    for key, value in machine.items():
        if key not in ("name", "compute_capability") and value is not None:
            _number(value, f"machine.{key}")
    shared = {"gpu": environment["gpu"], "date": environment["date"], "copy_gbps": copy, "file": name}
    return Record(
        file=name,
        environment=environment,
        ceilings=ceilings,
        measurements=tuple(_measurement(row, i, shared) for i, row in enumerate(rows)),
        peers=tuple(_part(data, "peers", list, ())),
        machine=machine,
        counters=tuple(_counted(one, i) for i, one in enumerate(_part(data, "counters", list, ()))),
        sections=ReadOnly(sections),
        notes=tuple(_text(one, f"notes {i}") for i, one in enumerate(_part(data, "notes", list, ()))),
    )


def _part(data: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """A part of a record; the default, if there is one, where it is missing or null."""
    value = data.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, (list, tuple) if kind is list else kind):
        raise _Damage(f"its {key!r} {'is missing' if key not in data else f'is a {_kind(value)}'}")
    return value


def _capability(part: Mapping[str, Any], what: str) -> None:
    value = part.get("compute_capability")
    if value is None:
        return
    pair = isinstance(value, tuple) and len(value) == 2
    if not pair or any(isinstance(one, bool) or not isinstance(one, int) for one in value):
        raise _Damage(f"{what}.compute_capability is {value!r}, not two whole numbers")


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise _Damage(f"{what} is {value!r}, not a positive number")
    return value


def _count(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _Damage(f"{what} is {value!r}, not a count")
    return value


def _object(value: Any, names: Iterable[str], what: str) -> dict[str, Any]:
    """An object that has these fields, and a problem that is an object if that is one of them."""
    if not isinstance(value, dict):
        raise _Damage(f"{what} is a {_kind(value)}, not an object")
    missing = [name for name in names if name not in value]
    if missing:
        raise _Damage(f"{what} lacks {', '.join(missing)}")
    if "problem" in value and not isinstance(value["problem"], dict):
        raise _Damage(f"{what}: problem is {value['problem']!r}, not an object")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _Damage(f"{what} is {value!r}, not a text")
    return value


def _row(row: Any, fields: Mapping[str, str], what: str) -> dict[str, Any]:
    """A row of one of SECTIONS."""
    _object(row, [name for name, kind in fields.items() if not kind.endswith("?")], what)
    for name, kind in fields.items():
        value, here = row.get(name), f"{what}: {name}"
        if kind.endswith("?") and value is None:
            continue
        kind = kind.rstrip("?")
        if kind == "text":
            _text(value, here)
        elif kind == "positive":
            _number(value, here)
        elif kind == "count":
            _count(value, here)
        elif kind == "object" and not isinstance(value, dict):
            raise _Damage(f"{here} is {value!r}, not an object")
        elif kind == "flag" and not isinstance(value, bool):
            raise _Damage(f"{here} is {value!r}, not true or false")
        elif kind == "number" and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf
        ):
            raise _Damage(f"{here} is {value!r}, not a number from 0 up")
    return row


def _measurement(row: Any, index: int, shared: Mapping[str, Any]) -> Measurement:
    what = f"measurement {index}"
    _object(row, _REQUIRED, what)
    for name in _POSITIVE:
        _number(row[name], f"{what}: {name}")
    for name in _POSITIVE_OR_NONE:
        if row.get(name) is not None:
            _number(row[name], f"{what}: {name}")
    for name in _TEXTS:
        if not isinstance(row[name], str):
            raise _Damage(f"{what}: {name} is {row[name]!r}, not a text")
    for name in ("peer", "kernel_sha256", "ptx_sha256", "note"):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise _Damage(f"{what}: {name} is {row[name]!r}, not a text")
    if row.get("peer") and row.get("peer_time_us") is None:
        raise _Damage(f"{what}: its peer {row['peer']!r} has no peer_time_us")
    known = {name: value for name, value in row.items() if name in _FIELDS}
    id = f"{row['op']}/{row['path']}/{row['stage']}"
    if known.get("kernel_sha256"):
        known["kernel_sha256"] = _kernel_of(shared["file"], id, known["kernel_sha256"], row["problem"], row["dtype"])
    return Measurement(**{**known, **shared})


@functools.cache
def _kernels() -> dict[tuple[str, str], dict[str, str]]:
    """(file, stage) -> problem, or "" for all others -> the digest of what was timed (recorded_kernels.py)."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    with (Path(__file__).parent / "kernels.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            found.setdefault((row["file"], row["stage"]), {})[row["problem"]] = row["digest"]
    return found


def _kernel_of(file: str, stage: str, recorded: str, problem: Mapping[str, Any] | None = None, dtype: str = "") -> str:
    """The digest of the kernel of a row, by what is known of its file; else the one that the row has."""
    known = _kernels().get((file, stage), {})
    return known.get(f"{shape_text(problem)} {dtype}" if problem else "", known.get("", recorded))


def _counted(one: Any, index: int) -> dict[str, Any]:
    """What the hardware counted of one launch: dwlab.counters.Counters as a mapping. Without a dtype: float32."""
    what = f"counters {index}"
    _object(one, ("op", "path", "stage", "problem", "predicted", *_COUNTED, *_SECTORS), what)
    one = ReadOnly({"dtype": "float32"} | one)
    for name in ("op", "path", "stage", "dtype"):
        if not isinstance(one[name], str):
            raise _Damage(f"{what}: {name} is {one[name]!r}, not a text")
    for name in (*_COUNTED, *_SECTORS, *_COUNTED_LATER):
        if one.get(name) is not None:
            _count(one[name], f"{what}: {name}")
    predicted = _object(one["predicted"], _SECTORS, f"{what}: predicted")
    for name in (*_SECTORS, "load_requests", "atomic_requests", "atomic_sectors"):
        if name in _SECTORS or predicted.get(name) is not None:
            _count(predicted[name], f"{what}: predicted.{name}")
    return one


def _instant(date: str) -> float:
    moment = datetime.fromisoformat(date)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _why(error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "no permission. Change the file's permissions (chmod u+rw), or copy it to a folder of your own"
    if isinstance(error, FileNotFoundError):
        return "there is no such file. See what there is: python -m dwlab records"
    if isinstance(error, IsADirectoryError):
        return "it is a folder; name a file in it"
    if isinstance(error, NotADirectoryError):
        return "a part of its path is a file, not a folder"
    return (error.strerror or type(error).__name__).lower()
