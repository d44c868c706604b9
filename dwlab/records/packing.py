"""Loose runs into the packed files, and what searches tried: ``python -m dwlab records --pack``.

A packed file has a line a run, oldest first, as `schema` describes it, behind "file", the name that the run had. It is
compressed without a date, so the same runs make the same file. What the project shows is in NAME-OF-GPU.jsonl.xz: of
everything that was timed or counted the newest row, the newest calm one and the fastest (`current`). All other rows are
in history.jsonl.xz, with their places among the run's, and so are runs that have no others. Nothing is lost: read
together, the files say what the loose ones content. Without the history every table can still be made, of the same
rows; it may leave the package when it has grown too large for it.
"""

from __future__ import annotations

import lzma
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dwlab import records
from dwlab.records import HISTORY, PACKED, PARTS, RecordError, schema
from dwlab.records.journal import Journal, JournalError
from dwlab.records.writing import slug

KEYS: Mapping[str, tuple[str, ...]] = {
    "measurements": ("op", "path", "stage", "problem", "dtype"),
    "peers": ("name", "way", "path", "shape", "dtype"),
    "counters": ("op", "path", "stage", "problem", "dtype"),
    "grid": ("op", "path", "problem", "dtype"),
    "layers": ("op", "path", "layer", "batch", "dtype", "stage", "layout"),
    "layer_counters": ("op", "path", "stage", "layer", "batch", "layout", "dtype"),
    "tiles": ("op", "path", "stage", "problem", "dtype", "tiles", "cold"),
    "energy_tries": ("network", "batch", "dtype", "layout", "way"),
    "network_kernels": ("network", "batch", "dtype", "layout"),
    "sparse": ("op", "layer", "batch", "dtype", "pattern", "problem", "stage"),
    "sanitizer": ("tool", "stage"),
    "tries": ("group",),
    "reduction_error": (),
    "copies": (),
    "comparisons": (),
}
"""Fields that say what a row of a part is about: of rows that agree in them on one GPU, the newest counts, with all
others of its run. Parts that are not here stay whole: each row of them may be shown."""


def current(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, set[int]]]:
    """Index of each run's current rows, oldest run first: part -> places.

    Current: the newest of its key, the newest calm one, the fastest.
    """
    newest: dict[Any, tuple[int, set[int]]] = {}
    fastest: dict[Any, tuple[float, int, int]] = {}
    for number, run in enumerate(runs):
        for part, names in KEYS.items():
            for place, row in enumerate(run.get(part) or ()):
                key = run["environment"]["gpu"], part, *(msgspec.json.encode(row.get(name)) for name in names)
                timed = row.get("time") or {}  # of a baseline
                timed = row | timed | {"time_us": timed.get("median_us", row.get("time_us"))}
                for kind in ("any", "calm") if records.calm(timed) else ("any",):
                    if newest.get((kind, key), (None,))[0] != number:
                        newest[kind, key] = number, set()
                    newest[kind, key][1].add(place)
                if timed["time_us"]:
                    fastest[key] = min(fastest.get(key, (float("inf"), 0, 0)), (timed["time_us"], number, place))
    found: list[dict[str, set[int]]] = [
        {part: set(range(len(run.get(part) or ()))) for part in PARTS if part not in KEYS} for run in runs
    ]
    for (_, (_, part, *_)), (number, places) in newest.items():
        found[number].setdefault(part, set()).update(places)
    for (_, part, *_), (_, number, place) in fastest.items():
        found[number].setdefault(part, set()).add(place)
    return found


def pack(folder: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """Packs a folder's loose runs and journals with what is packed there (the project's own if None); the packed files.

    What was written is read again and compared, before it takes the place of what was there; then the loose files go.
    Raises RecordError if one of the runs cannot be read, or a file cannot be written; then nothing has changed.
    """
    folder = Path(folder) if folder is not None else records.FOLDER

    def refuse(error: RecordError) -> None:
        raise error

    before = records.load_runs(folder, refuse)
    loose = [path for path in sorted(folder.glob("*.json")) if not path.name.startswith(".")]
    runs = plain_runs(folder)
    files: dict[str, list[Mapping[str, Any]]] = {HISTORY: []}
    for run, rows in zip(runs, current(runs), strict=True):
        left = {name: sorted(set(range(len(run.get(name) or ()))) - rows.get(name, set())) for name in PARTS}
        places = {name: found for name, found in left.items() if found}
        older = {name: [run[name][i] for i in found] for name, found in places.items()}
        if older and not any(rows.values()):
            files[HISTORY].append(run)
            continue
        now = {name: [run[name][i] for i in sorted(rows.get(name, ()))] for name in PARTS if run.get(name)}
        files.setdefault(slug(run["environment"]["gpu"]) + PACKED, []).append(run | now)
        if older:
            files[HISTORY].append({"places": places, "file": run["file"], **older})
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=folder) as made:
        files = {name: lines for name, lines in files.items() if lines or (folder / name).exists()}
        for name, lines in files.items():
            text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
            (Path(made) / name).write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
        if records.load_runs(made, refuse) != before:
            raise RecordError("what was packed is not what the records content: nothing was changed")
        for name in files:
            os.replace(Path(made) / name, folder / name)
    for path in loose:
        path.unlink()
    try:
        journals = [Journal(path).pack() for path in sorted((folder / "tuning").glob("*.jsonl"))]
    except JournalError as error:
        raise RecordError(f"the runs are packed; {error}") from error
    return (*(folder / name for name in sorted(files)), *journals)


def plain_runs(folder: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Every run of a folder as plain values, oldest first, "file" first in each: what its own file content."""
    folder = Path(folder) if folder is not None else records.FOLDER
    found: dict[str, dict[str, Any]] = {}
    older: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.endswith(PACKED):
            for line in map(msgspec.json.decode, records.file_bytes(path).splitlines()):
                (older if "places" in line else found)[line["file"]] = line
        elif path.suffix == ".json" and not path.name.startswith("."):
            found[path.name] = {"file": path.name, **schema.plain(path.read_bytes())}
    for name, rest in older.items():
        for part, places in rest["places"].items():
            for place, row in zip(places, rest[part], strict=True):
                found[name][part].insert(place, row)
    return sorted(found.values(), key=lambda run: (records.instant(run["environment"]["date"]), run["file"]))


def unpacked(name: str, folder: str | os.PathLike[str] | None = None) -> bytes:
    """One run as the loose file that it was. Raises RecordError where there is no such run."""
    run = next((run for run in plain_runs(folder) if run["file"] == name), None)
    if run is None:
        raise RecordError(f"there is no run {name!r}. See what there is: python -m dwlab records --json")
    content = {key: value for key, value in run.items() if key != "file"}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
