"""What was measured: one JSON file for each run beside this module, written once and never changed.

A file holds the schema's number, the environment (GPU, driver, versions, git revision, date, clocks), the ceilings
measured in the same run, the peers tried, the hardware's counters where they could be read, and the measurements. It
names no user, no host and no absolute path.

``load_all()`` reads them all, ``best(...)`` finds the row to show, ``table(...)`` renders rows for a lesson.
Every failure is a RecordError with one sentence on what is wrong and what to do; no failure changes a file.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import getpass
import html
import itertools
import json
import math
import os
import platform
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = 1
FOLDER = Path(__file__).parent


class RecordError(RuntimeError):
    """A record that cannot be read or written; the message says why and what to do."""


class RecordWarning(UserWarning):
    """A record file that was left out because it could not be read."""


@dataclass(frozen=True)
class Measurement:
    """One stage on one problem, timed on one GPU.

    time_us: median of one launch, with p10_us and p90_us over ``rounds`` rounds of ``launches`` launches each.
    effective_gbps: compulsory_bytes / time, in 1e9 bytes a second; copy_gbps: the device copy measured in the same
    run (bytes read plus bytes written); fraction_of_copy: their ratio. flops: multiplications and additions of the
    taps inside the signal; intensity: flops / compulsory_bytes. predicted_bytes: what the stage's formula says that
    its warps ask for, 32 bytes a sector. speedup_vs_naive: the naive stage's time over this one, same run and problem.
    peer, peer_time_us, speedup_vs_peer: the fastest library that computed the same, None where none was measured.
    kernel_sha256: of the stage's text, so that a row measured on an earlier text can be told.
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
_SHARED = {"gpu", "date", "copy_gbps", "file"}
_FIELDS = {f.name: f for f in dataclasses.fields(Measurement)}
_REQUIRED = [n for n, f in _FIELDS.items() if f.default is dataclasses.MISSING and n not in _SHARED]
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
# *_bound_us: the least time that the copy bandwidth and the FMA rate allow. sanitizer: one of compute-sanitizer's tools
# over one stage. layers: one layer of an image network, or two of them fused, at a batch: our fastest stage and layout
# beside the fastest peer. layer_counters: what the hardware counted of one launch of a stage on a layer, beside what
# its formula predicts and, in bytes, the planner's model at the kernel's tile. tiles: a stage whose tiles were given,
# not chosen, warm. networks: a whole network at a batch, layer by layer (apart) and with fused pairs, beside the
# fastest peer, and J an image of ours and the peer's, each over a window of seconds beside the GPU's power at rest;
# *_launches: how kernels follow each other (dependent_launch.WORDS), *_plain_us: the time one after the other.
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
        "registers": "positive", "local_bytes": "count?", "time_us": "positive",
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
    "network_kernels": {
        "network": "text", "batch": "positive", "dtype": "text", "layout": "text", "layers": "text", "stage": "text",
        "time_us": "positive",
    },
    "sanitizer": {"tool": "text", "stage": "text", "clean": "flag", "message": "text?", "version": "text?"},
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
    data = _load(path)
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
    """
    folder = Path(folder) if folder is not None else FOLDER
    try:
        paths = sorted(p for p in folder.iterdir() if p.suffix == ".json" and not p.name.startswith("."))
    except OSError as error:
        raise RecordError(f"the records in {folder.name!r} cannot be listed: {_why(error)}") from error
    runs = []
    for path in paths:
        try:
            runs.append(read_run(path))
        except RecordError as error:
            if on_error is not None:
                on_error(error)
            else:
                warnings.warn(str(error), RecordWarning, stacklevel=2)
    return sorted(runs, key=lambda run: (_instant(run.date), run.file))


def load_all(
    folder: str | os.PathLike[str] | None = None, on_error: Callable[[RecordError], None] | None = None
) -> list[Measurement]:
    """Every recorded measurement, oldest run first; bad files as in ``load_runs``."""
    return [row for run in load_runs(folder, on_error) for row in run.measurements]


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
    look (all records if None).
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
    if not fits:
        return None
    newest = max(_instant(row.date) for row in fits)
    return min((row for row in fits if _instant(row.date) == newest), key=lambda row: row.time_us)


def describe_problem(problem: Any) -> dict[str, Any]:
    """A problem's fields without its dtype, which a measurement keeps apart; a mapping is copied."""
    if hasattr(problem, "fields"):  # layers that are fused say it in words
        return problem.fields()
    fields = dict(problem) if isinstance(problem, Mapping) else dataclasses.asdict(problem)
    return {key: value for key, value in fields.items() if key != "dtype"}


def shape_text(problem: Any) -> str:
    """A problem in one short text: "B=16384 H=128 L=48 K=48 padding=causal"."""
    return " ".join(f"{key}={value}" for key, value in describe_problem(problem).items())


def _load(path: Path) -> dict[str, Any]:
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
        data = json.loads(text, parse_constant=_no_constant)
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
            f"{path.name} is JSON but no dwlab record: it is a {type(data).__name__}, not an object. {_ELSEWHERE}"
        )
    return data


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
    # A run of the sanitizer, say, measures no ceilings.
    timed = any(sections.get(name) for name in ("grid", "layers", "networks"))
    needed = rows or ceilings or timed or not any(sections.values())
    copy = _number(ceilings.get("copy_gbps"), "ceilings.copy_gbps") if needed else 0.0
    for key in ("l2_gbps", "fma_tflops", "launch_us"):
        if ceilings.get(key) is not None:
            _number(ceilings[key], f"ceilings.{key}")
    machine = _part(data, "machine", dict, {})
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
        peers=tuple(_part(data, "peers", list, [])),
        machine=machine,
        counters=tuple(_counted(one, i) for i, one in enumerate(_part(data, "counters", list, []))),
        sections=sections,
        notes=tuple(_text(one, f"notes {i}") for i, one in enumerate(_part(data, "notes", list, []))),
    )


def _part(data: Mapping[str, Any], key: str, kind: type, default: Any = None) -> Any:
    """A part of a record; the default, if there is one, where it is missing or null."""
    value = data.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, kind):
        raise _Damage(f"its {key!r} {'is missing' if key not in data else f'is a {type(value).__name__}'}")
    return value


def _capability(part: Mapping[str, Any], what: str) -> None:
    value = part.get("compute_capability")
    if value is None:
        return
    pair = isinstance(value, list) and len(value) == 2
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
        raise _Damage(f"{what} is a {type(value).__name__}, not an object")
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
    for name in ("peer", "kernel_sha256", "note"):
        if row.get(name) is not None and not isinstance(row[name], str):
            raise _Damage(f"{what}: {name} is {row[name]!r}, not a text")
    if row.get("peer") and row.get("peer_time_us") is None:
        raise _Damage(f"{what}: its peer {row['peer']!r} has no peer_time_us")
    known = {name: value for name, value in row.items() if name in _FIELDS}
    return Measurement(**{**known, **shared})


def _counted(one: Any, index: int) -> dict[str, Any]:
    """What the hardware counted of one launch: dwlab.counters.Counters as a mapping. Without a dtype: float32."""
    what = f"counters {index}"
    _object(one, ("op", "path", "stage", "problem", "predicted", *_COUNTED, *_SECTORS), what)
    one = {"dtype": "float32"} | one
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


# ---------------------------------------------------------------------------------------------------------- writing


def file_name(environment: Mapping[str, Any], attempt: int = 0) -> str:
    """A file's name from when and on what it was measured: "20261121T101500Z-nvidia-h200.json"."""
    moment = re.sub(r"[^0-9TZ]", "", str(environment["date"]).replace("+00:00", "Z"))
    gpu = re.sub(r"[^a-z0-9]+", "-", str(environment["gpu"]).lower()).strip("-") or "gpu"
    return f"{moment}-{gpu}{f'-{attempt}' if attempt else ''}.json"


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raises RecordError if ``write`` to this file or folder would fail: asked before an hour of measuring."""
    path = Path(path)
    folder = path if os.path.isdir(path) else path.parent  # os.path: a folder that may not be searched is no folder
    if folder != path and os.path.exists(path):
        raise RecordError(f"{path.name} exists, and a record is never overwritten: name a new file, or a folder")
    try:
        handle, temporary = tempfile.mkstemp(prefix=".record-", dir=folder)
        os.close(handle)
        os.unlink(temporary)
    except OSError as error:
        raise RecordError(_cannot_write(path, error)) from error


def write(
    path: str | os.PathLike[str],
    rows: Sequence[Measurement | Mapping[str, Any]],
    environment: Mapping[str, Any],
    ceilings: Mapping[str, Any],
    *,
    peers: Sequence[Mapping[str, Any]] = (),
    machine: Mapping[str, Any] | None = None,
    counters: Sequence[Mapping[str, Any]] = (),
    sections: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Writes one run as a new file and returns its path.

    path: a file that does not exist yet, or a folder, in which the file is named by date and GPU. The text goes to a
    temporary file first and gets its name in one step, so a reader sees all of it or nothing, and writers need no
    lock. What names the user, the host or an absolute path is taken out. Raises RecordError if the file exists, cannot
    be written, or would not be read back.
    """
    path = Path(path)
    shared = _SHARED
    unknown = [name for name in sections or {} if name not in SECTIONS]
    if unknown:
        raise RecordError(f"a record has no part {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    content = {
        "schema": SCHEMA,
        "environment": dict(environment),
        "ceilings": dict(ceilings),
        "machine": dict(machine or {}),
        "peers": [dict(peer) for peer in peers],
        "counters": [dict(one) for one in counters],
        "measurements": [
            {k: v for k, v in (row.to_dict() if isinstance(row, Measurement) else row).items() if k not in shared}
            for row in rows
        ],
        **{name: [dict(one) for one in found] for name, found in (sections or {}).items()},
        **({"notes": list(notes)} if notes else {}),
    }
    try:
        text = json.dumps(_scrubbed(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RecordError(f"the run cannot be written as JSON: {error}. Nothing was written") from error
    is_folder = os.path.isdir(path)
    folder = path if is_folder else path.parent
    try:
        handle, temporary = tempfile.mkstemp(prefix=".record-", suffix=".tmp", dir=folder)
    except OSError as error:
        raise RecordError(_cannot_write(path, error)) from error
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files for the owner alone; a record is for everybody, as far as the umask goes.
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        read_run(temporary)
        attempt = 0
        while True:
            target = folder / file_name(environment, attempt) if is_folder else path
            try:
                _give_name(temporary, target)
                return target
            except FileExistsError:
                if not is_folder:
                    raise RecordError(
                        f"{path.name} exists, and a record is never overwritten: name a new file, or a folder"
                    ) from None
                attempt += 1
    except OSError as error:
        raise RecordError(_cannot_write(path, error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _give_name(temporary: str, target: Path) -> None:
    """The temporary file gets its name, which must be free: FileExistsError otherwise."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:
        # No hard links here (FAT, some network drives): take the name, then put the whole content in its place.
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(temporary, target)


def _cannot_write(path: Path, error: OSError) -> str:
    if isinstance(error, PermissionError):
        why = "no permission. Name a file in a folder of your own"
    elif isinstance(error, FileNotFoundError):
        why = f"there is no folder {path.parent.name!r}. Make it first"
    elif isinstance(error, NotADirectoryError):
        why = f"{path.parent.name!r} is a file, not a folder"
    else:
        why = (error.strerror or type(error).__name__).lower()
    return f"the record {path.name!r} cannot be written: {why}"


_POSIX_PATH = re.compile(r"(?<![\w.:/])~?/(?:[^\s/'\":,;()]+/)+([^\s/'\":,;()]*)")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[^\s\\'\":,;()]+\\)*([^\s\\'\":,;()]*)")


def _scrubbed(value: Any) -> Any:
    """The value with absolute paths cut to their last part, and user and host names taken out of its texts."""
    if isinstance(value, Mapping):
        return {key: _scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in value]
    if not isinstance(value, str):
        return value
    text = _WINDOWS_PATH.sub(r"\1", _POSIX_PATH.sub(r"\1", value))
    for name, stand_in in ((_user(), "<user>"), (platform.node(), "<host>")):
        if len(name) >= 4 and name not in ("root", "localhost"):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", stand_in, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


# ----------------------------------------------------------------------------------------------------------- tables


class Markdown(str):
    """Markdown text that a notebook renders and a terminal prints."""

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)


class Columns(str):
    """Text in columns: a notebook lets it scroll sideways and does not wrap its lines; a terminal prints it."""

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto"><pre style="white-space:pre">{html.escape(self)}</pre></div>'

    def __repr__(self) -> str:
        return str(self)


def table(
    op: str = "depthwise1d",
    path: str = "forward",
    problem: Any = None,
    *,
    gpu: str | None = None,
    dtype: str | None = None,
    runs: Sequence[Record] | None = None,
) -> Markdown:
    """The newest recorded run of one op and path on one problem, a row a stage, with device, versions and date.

    problem: None for the run's main problem. dtype: the rows' storage type; if None the problem's, and float32 where
    that is only its sizes. A stage that loses to its peer is marked slower. Where nothing is recorded, a sentence says
    so.
    """
    dtype = getattr(problem, "dtype", "float32") if dtype is None else dtype
    for run in reversed(load_runs() if runs is None else list(runs)):
        rows = [row for row in run.measurements if (row.op, row.path, row.dtype) == (op, path, dtype)]
        if not rows or (gpu is not None and run.gpu != gpu):
            continue
        wanted = dict(rows[0].problem) if problem is None else describe_problem(problem)
        rows = [row for row in rows if dict(row.problem) == wanted]
        if rows:
            return Markdown(_run_table(run, sorted(rows, key=lambda row: (row.order or 0, row.stage))))
    shape = f" at {shape_text(problem)}" if problem is not None else ""
    return Markdown(f"Nothing is recorded for {op}/{path}{shape}. On a GPU: `python -m dwlab study --record FILE`.\n")


def _run_table(run: Record, rows: Sequence[Measurement]) -> str:
    peer = next((row.peer for row in rows if row.peer), None)
    copy = _round(run.ceilings["copy_gbps"])
    head = ["stage", "time (µs)", "p10 to p90 (µs)", "effective GB/s", "of copy", "× naive"]
    if peer:
        head.append("× peer")
    lines = [_line(head), _line(["---"] + ["---:"] * (len(head) - 1))]
    for row in rows:
        cells = [
            row.stage,
            _round(row.time_us),
            f"{_round(row.p10_us)} to {_round(row.p90_us)}",
            _round(row.effective_gbps),
            f"{100 * row.fraction_of_copy:.1f} %",
            _times(row.speedup_vs_naive),
        ]
        if peer:
            cells.append(_times(row.speedup_vs_peer, slower=True))
        lines.append(_line(cells))
    if peer:
        time_us = next(row.peer_time_us for row in rows if row.peer)
        lines.append(_line([f"peer: {peer}", _round(time_us)] + [""] * (len(head) - 2)))
    first = rows[0]
    lines += [
        "",
        f"{shape_text(first.problem)}, {first.dtype}. Effective GB/s counts the {first.compulsory_bytes / 1e6:,.1f} MB "
        f"that must move at least; a device copy in the same run moved {copy} GB/s.",
        f"Measured on {run.where()}.",
        "",
    ]
    return "\n".join(lines)


def shapes_table(
    op: str = "depthwise1d",
    path: str = "forward",
    *,
    gpu: str | None = None,
    dtype: str = "float32",
    runs: Sequence[Record] | None = None,
) -> Markdown:
    """The newest recorded run of one op and path with rows of one storage type, a row a stage and problem."""
    for run in reversed(load_runs() if runs is None else list(runs)):
        rows = [row for row in run.measurements if (row.op, row.path, row.dtype) == (op, path, dtype)]
        if not rows or (gpu is not None and run.gpu != gpu):
            continue
        lines = [
            _line(["problem", "stage", "time (µs)", "effective GB/s", "of copy", "× naive", "× peer"]),
            _line(["---", "---", "---:", "---:", "---:", "---:", "---:"]),
        ]
        for row in rows:
            cells = [shape_text(row.problem), row.stage, _round(row.time_us), _round(row.effective_gbps)]
            cells += [f"{100 * row.fraction_of_copy:.1f} %", _times(row.speedup_vs_naive)]
            lines.append(_line([*cells, _times(row.speedup_vs_peer, slower=True)]))
        peers = sorted({row.peer for row in rows if row.peer})
        if peers:
            lines += ["", f"Peer: the fastest of {', '.join(peers)}, for each problem."]
        lines += ["", f"{rows[0].dtype}. Measured on {run.where()}.", ""]
        return Markdown("\n".join(lines))
    return Markdown(f"Nothing is recorded for {op}/{path}. On a GPU: `python -m dwlab study --record FILE`.\n")


def ceilings_table(runs: Sequence[Record] | None = None) -> Markdown:
    """The newest measured ceilings of each recorded GPU."""
    newest = {run.gpu: run for run in (load_runs() if runs is None else runs) if run.ceilings}
    if not newest:
        return Markdown("Nothing is recorded. On a GPU: `python -m dwlab study --record FILE`.\n")
    lines = [
        _line(["GPU", "copy (GB/s)", "L2 read (GB/s)", "FP32 FMA (TFLOP/s)", "plain launch (µs)", "measured with"]),
        _line(["---", "---:", "---:", "---:", "---:", "---"]),
    ]
    for gpu, run in sorted(newest.items()):
        values = [run.ceilings.get(key) for key in ("copy_gbps", "l2_gbps", "fma_tflops", "launch_us")]
        cells = ["" if value is None else _round(value) for value in values]
        lines.append(_line([gpu, *cells, run.where().removeprefix(gpu).lstrip(", ")]))
    return Markdown("\n".join(lines) + "\n")


def traffic_table(
    op: str = "depthwise1d",
    path: str = "forward",
    *,
    gpu: str | None = None,
    dtype: str = "float32",
    runs: Sequence[Record] | None = None,
) -> Markdown:
    """Predicted traffic beside the hardware's counters, of the newest run that has them; a row a stage and problem.

    dtype: the rows' storage type.
    """
    for run in reversed(load_runs() if runs is None else list(runs)):
        rows = [one for one in run.counters if (one["op"], one["path"], one["dtype"]) == (op, path, dtype)]
        if not rows or (gpu is not None and run.gpu != gpu):
            continue
        kinds = ["load", "store"] + ["atomic"] * any(one["predicted"].get("atomic_sectors") for one in rows)
        head = ["problem", "stage"]
        head += [cell for kind in kinds for cell in (f"{kind} sectors, formula", "hardware")]
        head += ["sectors/request, hardware", "L2 read (MB)", "L2 written (MB)", "DRAM read (MB)", "DRAM written (MB)"]
        head.append("shared bank conflicts")
        lines = [_line(head), _line(["---", "---"] + ["---:"] * (len(head) - 2))]
        for one in rows:
            cells = [shape_text(one["problem"]), one["stage"]]
            for kind in kinds:
                key = f"{kind}_sectors"
                cells += [f"{one['predicted'].get(key) or 0:,}", _counted_text(one.get(key))]
            requests = sum(one.get(f"{kind}_requests") or 0 for kind in kinds)
            sectors = sum(one.get(f"{kind}_sectors") or 0 for kind in kinds)
            cells.append(f"{sectors / requests:.2f}" if requests else "")
            cells += [_counted_text(one.get(key), 32) for key in ("l2_read_sectors", "l2_write_sectors")]
            cells += [_counted_text(one.get(key), 1) for key in ("dram_read_bytes", "dram_write_bytes")]
            lines.append(_line([*cells, _counted_text(one["shared_bank_conflicts"])]))
        stored = "" if dtype == "float32" else f"{dtype}. "
        lines += ["", f"{stored}Counted by Nsight Compute, one launch each. Measured on {run.where()}.", ""]
        return Markdown("\n".join(lines))
    return Markdown(
        f"No hardware counters are recorded for {op}/{path}. "
        "On a GPU with Nsight Compute: `python -m dwlab study --record FILE`.\n"
    )


def _counted_text(value: int | None, nbytes: int = 0) -> str:
    """A count, or with the bytes of each the MB of them; "" for what was not counted."""
    if value is None:
        return ""
    return f"{nbytes * value / 1e6:,.1f}" if nbytes else f"{value:,}"


def _newest(section: str, runs: Sequence[Record] | None) -> Record | None:
    """The newest run that has rows of a section."""
    return next(
        (run for run in reversed(load_runs() if runs is None else list(runs)) if run.sections.get(section)), None
    )


def newest_rows(
    section: str,
    key: Callable[[Mapping[str, Any]], Any],
    runs: Sequence[Record] | None = None,
    gpu: str | None = None,
) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """(rows, runs): of each key the newest row of a section on one GPU, and the runs that they are from, oldest first.

    gpu: that of the newest run with such rows if None.
    """
    runs = load_runs() if runs is None else list(runs)
    having = [run for run in runs if run.sections.get(section) and gpu in (None, run.gpu)]
    having = [run for run in having if run.gpu == having[-1].gpu]
    found = {key(row): (row, run) for run in having for row in run.sections[section]}
    used = [run for run in having if any(one is run for _, one in found.values())]
    return [row for row, _ in found.values()], used


def grid_rows(runs: Sequence[Record] | None = None) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """The grid of shapes on the GPU of the newest: of each path and shape the newest row, and the runs."""
    rows, used = newest_rows("grid", lambda row: (row["path"], row["dtype"], *row["problem"].values()), runs)
    order = {path: i for i, path in enumerate(dict.fromkeys(row["path"] for row in rows))}
    return sorted(rows, key=lambda row: (order[row["path"]], *(row["problem"][name] for name in "LKB"))), used


def _grid_notes(rows: Sequence[Mapping[str, Any]], used: Sequence[Record]) -> list[str]:
    """What is said below a table of the grid: notes of a run alone, or how many shapes came together."""
    if len(used) == 1:
        return [f"{note}  " for note in used[0].notes]
    shapes = {tuple(one["problem"].values()) for one in rows}
    return [f"{len(shapes)} shapes, from {len(used)} runs, of each shape the newest.  "]


def _wheres(used: Sequence[Record]) -> str:
    return "; ".join(dict.fromkeys(run.where() for run in used))


def grid_table(runs: Sequence[Record] | None = None) -> Markdown:
    """Every path of every shape of the grid: the chosen stage beside PyTorch's best, the losses too."""
    rows, used = grid_rows(runs)
    if not used:
        return Markdown(f"No grid of shapes is recorded. {_HOW['grid']}\n")
    head = [
        "path",
        "problem",
        "stage",
        "time (µs)",
        "of copy",
        "of FMA rate",
        "of bound",
        "peer",
        "peer (µs)",
        "× peer",
    ]
    lines = [_line(head + [""]), _line(["---"] * 3 + ["---:"] * 4 + ["---"] + ["---:"] * 2 + ["---"])]
    for one in rows:
        time_us, fma = one.get("time_us"), one.get("fma_bound_us")
        bound = max(one["copy_bound_us"], fma or 0)
        cells = [one["path"], shape_text(one["problem"]), one["stage"], _round(time_us)]
        cells += [
            _percent(limit / time_us if time_us and limit else None) for limit in (one["copy_bound_us"], fma, bound)
        ]
        cells += [one.get("peer") or "", _round(one.get("peer_time_us")), _times(one.get("speedup_vs_peer"))]
        lines.append(_line([*cells, one.get("failure") or _result(one)]))
    notes = _grid_notes(rows, used)
    lines += ["", *notes, *([""] if notes else [])]
    lines += [
        "of copy: compulsory bytes at the measured copy bandwidth, over the time. of FMA rate: taps inside the signal "
        f"at the measured rate, over the time. of bound: the larger of the two. Measured on {_wheres(used)}.",
        "",
    ]
    return Markdown("\n".join(lines))


def grid_summary(runs: Sequence[Record] | None = None) -> Markdown:
    """The grid, a row a path: shapes won and lost, and the fractions reached where the launch is large."""
    rows, used = grid_rows(runs)
    if not used:
        return Markdown(f"No grid of shapes is recorded. {_HOW['grid']}\n")
    head = ["path", "shapes", "faster than the peer", "slower", "no peer or no time", "× peer, least", "median", "most"]
    head += ["of bound, median", "large launches at 85 % of copy", "of a copy as large"]
    lines = [_line(head), _line(["---"] + ["---:"] * (len(head) - 1))]
    copied = copies(runs, used[-1].gpu)
    gbps = {id(row): run.ceilings["copy_gbps"] for run in used for row in run.sections["grid"]}  # of the row's own run
    for path in dict.fromkeys(one["path"] for one in rows):
        here = [one for one in rows if one["path"] == path]
        ratios = sorted(one["speedup_vs_peer"] for one in here if one.get("speedup_vs_peer"))
        timed = [one for one in here if one.get("time_us")]
        bounds = sorted(max(one["copy_bound_us"], one.get("fma_bound_us") or 0) / one["time_us"] for one in timed)
        # Where the FMA rate allows 85 % of the copy bandwidth, and a launch lasts long enough to fill the GPU.
        large = [one for one in timed if one["copy_bound_us"] >= GRID_LARGE_US]
        large = [one for one in large if 0.85 * (one.get("fma_bound_us") or 0) <= one["copy_bound_us"]]
        reached = sum(one["copy_bound_us"] / one["time_us"] >= 0.85 for one in large)
        won = sum(ratio >= 1 for ratio in ratios)
        cells = [path, str(len(here)), str(won), str(len(ratios) - won), str(len(here) - len(ratios))]
        cells += [_times(ratios[i]) if ratios else "" for i in (0, len(ratios) // 2, -1)]
        cells += [_percent(bounds[len(bounds) // 2] if bounds else None), f"{reached} of {len(large)}"]
        copies_us = [copied and copy_us(round(one["copy_bound_us"] * gbps[id(one)] * 1e3), copied) for one in large]
        there = [least / one["time_us"] >= 0.85 for one, least in zip(large, copies_us, strict=True) if least]
        lines.append(_line([*cells, f"{sum(there)} of {len(there)}" if there else ""]))
    notes = _grid_notes(rows, used)
    lines += ["", *notes, *([""] if notes else [])]
    lines += [
        f"large: {GRID_LARGE_US:g} µs or more at the copy bandwidth. Of a copy as large: at 85 % of "
        "a copy of as many bytes, which begins and ends as they do. Every shape, the losses too: "
        f"`python -m dwlab records --grid`. Measured on {_wheres(used)}.",
        "",
    ]
    return Markdown("\n".join(lines))


GRID_LARGE_US = 20.0
"""From this time at copy bandwidth on, a launch of the grid counts as large: its start and end are a small part."""


def _result(one: Mapping[str, Any]) -> str:
    ratio = one.get("speedup_vs_peer")
    return "" if ratio is None else "won" if ratio >= 1 else "LOST"


def sanitizer_table(runs: Sequence[Record] | None = None) -> Markdown:
    """What compute-sanitizer said of each stage in the newest run of it: a column a tool."""
    run = _newest("sanitizer", runs)
    if run is None:
        return Markdown(f"No run of compute-sanitizer is recorded. {_HOW['sanitizer']}\n")
    rows = run.sections["sanitizer"]
    tools = list(dict.fromkeys(one["tool"] for one in rows))
    lines = [_line(["stage", *tools]), _line(["---"] * (1 + len(tools)))]
    for stage in dict.fromkeys(one["stage"] for one in rows):
        said = {one["tool"]: one for one in rows if one["stage"] == stage}
        cells = [
            "" if tool not in said else "clean" if said[tool]["clean"] else said[tool].get("message") or "errors"
            for tool in tools
        ]
        lines.append(_line([stage, *cells]))
    versions = ", ".join(dict.fromkeys(one["version"] for one in rows if one.get("version")))
    lines += ["", *(f"{note}  " for note in run.notes), *([""] if run.notes else [])]
    lines += [f"{versions + '. ' if versions else ''}Run on {run.where()}.", ""]
    return Markdown("\n".join(lines))


def reduction_error_table(runs: Sequence[Record] | None = None) -> Markdown:
    """The error of long sums against float64 in the newest run of it, a row a number of terms and stage."""
    run = _newest("reduction_error", runs)
    if run is None:
        return Markdown(f"No errors of long sums are recorded. {_HOW['reduction_error']}\n")
    head = ["terms", "stage", "greatest error / sum of magnitudes", "of what is allowed", "‖error‖ / ‖dw‖"]
    head.append("same bits each run")
    lines = [_line(head), _line(["---:", "---", "---:", "---:", "---:", "---"])]
    for one in run.sections["reduction_error"]:
        same = "yes" if one["repeatable"] else "no"
        cells = [
            f"{one['terms']:,}",
            f"{one['path']}/{one['stage']}",
            f"{one['error']:.1e}",
            _percent(one["error"] / one["allowed"]),
        ]
        lines.append(_line([*cells, f"{one['norm_error']:.1e}", f"{same} ({one['runs']} runs)"]))
    lines += ["", f"Against float64. Measured on {run.where()}.", ""]
    return Markdown("\n".join(lines))


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


def copies_table(runs: Sequence[Record] | None = None) -> Markdown:
    """Sizes, times and bandwidths of the newest run that timed copies of several sizes."""
    run = copies(runs)
    if run is None:
        return Markdown(f"No copies of several sizes are recorded. {_HOW['copies']}\n")
    rows = sorted(run.sections["copies"], key=lambda row: row["bytes"])
    lines = [_line(["MB", "time (µs)", "p10 to p90 (µs)", "GB/s", "of the largest's", "way"])]
    lines.append(_line(["---:"] * 5 + ["---"]))
    for row in rows:
        cells = [f"{row['bytes'] / 1e6:,.1f}", _round(row["time_us"])]
        cells += [f"{_round(row['p10_us'])} to {_round(row['p90_us'])}", f"{row['gbps']:,.0f}"]
        cells += [_percent(row["gbps"] / rows[-1]["gbps"]), row["way"]]
        lines.append(_line(cells))
    lines += ["", "Read and written together, out of the L2 as far as that can be; the fastest of three ways.  "]
    return Markdown("\n".join([*lines, f"Measured on {run.where()}.", ""]))


def comparisons_table(runs: Sequence[Record] | None = None) -> Markdown:
    """How the interpreter's results compared with a GPU's in the newest run that compared them."""
    run = _newest("comparisons", runs)
    if run is None:
        return Markdown(f"No comparison with a GPU is recorded. {_HOW['comparisons']}\n")
    lines = [_line(["comparison", "passed", "failed", "skipped"]), _line(["---", "---:", "---:", "---:"])]
    for one in run.sections["comparisons"]:
        lines.append(_line([one["name"], *(f"{one[key]:,}" for key in ("passed", "failed", "skipped"))]))
    return Markdown("\n".join([*lines, "", f"Run on {run.where()}.", ""]))


TRIES = ("copy", "read", "gap or swizzle", "order of outputs", "blocks of weight_grad", "blocks of backward",
         "outputs a lane", "strips of weight_grad", "strips of backward")  # fmt: skip
"""The groups of benchmarks/roof_tries.py."""


def tries_table(runs: Sequence[Record] | None = None, group: str | None = None) -> Markdown:
    """What was tried on the way to the roof in the newest run of it: every group, or one.

    of the fastest: the least time of the group, over the time. Raises RecordError for a group that there is not.
    """
    run = _newest("tries", runs)
    if run is None:
        return Markdown(f"No tries are recorded. {_HOW['tries']}\n")
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in run.sections["tries"]:
        groups.setdefault(one["group"], []).append(one)
    if group is not None and group not in (*TRIES, *groups):
        raise RecordError(f"no group of tries is called {group!r}: there are {', '.join(TRIES)}")
    if group is not None and group not in groups:
        return Markdown(f"The newest tries have none of {group!r}. {_HOW['tries']}\n")
    chosen = groups if group is None else {group: groups[group]}
    head = ["try", "how", "time (µs)", "10 % to 90 %", "GB/s", "of the fastest", "registers"]
    if group is None:
        head.insert(0, "group")
    lines = [_line(head), _line(["---"] * (len(head) - 5) + ["---:"] * 5)]
    for name, rows in chosen.items():
        least = min((one["time_us"] for one in rows if one.get("time_us")), default=None)
        for one in rows:
            time_us, p10, p90 = (one.get(key) for key in ("time_us", "p10_us", "p90_us"))
            cells = [] if group is not None else [name]
            cells += [one["name"], one.get("note") or "", _round(time_us) if time_us else one.get("failure") or ""]
            cells.append(f"{_round(p10)} to {_round(p90)}" if p10 and p90 else "")
            cells += [_round(one.get("gbps")), _percent(least / time_us if least and time_us else None)]
            lines.append(_line([*cells, "" if one.get("registers") is None else str(one["registers"])]))
    notes = [note for note in run.notes if "tries" in note]
    lines += ["", *(f"{note}  " for note in notes), *([""] if notes else [])]
    lines += [
        "GB/s: of the bytes that must be moved. Single experiments, each result checked, of a few hundredths of a "
        f"second each: differences within the spread mean nothing. Measured on {run.where()}.",
        "",
    ]
    return Markdown("\n".join(lines))


_HOW = {
    "tries": "On a GPU: `python benchmarks/roof_tries.py`.",
    "grid": "On a GPU: `python benchmarks/shape_grid.py`.",
    "layers": "On a GPU: `python benchmarks/record_layers.py`.",
    "layer_counters": "On a GPU with Nsight Compute: `python benchmarks/ncu_layers.py`.",
    "networks": "On a GPU: `python benchmarks/record_networks.py`.",
    "sanitizer": "On a GPU: `python benchmarks/sanitize.py`.",
    "reduction_error": "On a GPU: `python benchmarks/reduction_error.py`.",
    "comparisons": "On a GPU: `python benchmarks/record_run.py`.",
    "copies": "On a GPU: `python benchmarks/copy_sizes.py`.",
}


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.1f} %"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _round(value: float | None) -> str:
    """Four significant digits at least, thousands separated: 8,884 and 193.7 and 2.514."""
    if value is None:
        return ""
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def _times(value: float | None, slower: bool = False) -> str:
    if value is None:
        return ""
    return f"{value:,.2f}" + (" (slower)" if slower and value < 1 else "")


# ---------------------------------------------------------------------------------------------------------- command


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
            _round(row.time_us),
            _round(row.effective_gbps),
            f"{100 * row.fraction_of_copy:.1f} %",
            _times(row.speedup_vs_naive),
            _times(row.speedup_vs_peer),
            row.peer or "",
        ]
        for row in rows
    ]
    return columns(head, body, left={0, 1, 2, 3, 4, 10})


def columns(head: Sequence[str], body: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """Rows of text in aligned columns; the columns in ``left`` are aligned left, the others right."""
    left = set(left)
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *body]:
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
