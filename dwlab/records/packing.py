"""Loose runs into the packed files, and what searches tried: ``python -m dwlab records --pack``.

A packed file, NAME-OF-GPU.jsonl.xz, has a line a run, oldest first, as `schema` describes it, behind "file", the name
that the run had. It is compressed without a date, so the same runs make the same file.
"""

from __future__ import annotations

import lzma
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from dwlab import records
from dwlab.records import PACKED, RecordError, schema
from dwlab.records.journal import Journal, JournalError
from dwlab.records.writing import slug


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
    files: dict[str, list[bytes]] = {}
    for run in plain_runs(folder):
        files.setdefault(slug(run["environment"]["gpu"]) + PACKED, []).append(msgspec.json.encode(run) + b"\n")
    with tempfile.TemporaryDirectory(prefix=".packing-", dir=folder) as made:
        for name, lines in files.items():
            (Path(made) / name).write_bytes(lzma.compress(b"".join(lines), preset=9 | lzma.PRESET_EXTREME))
        if records.load_runs(made, refuse) != before:
            raise RecordError("what was packed is not what the records hold: nothing was changed")
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
    """Every run of a folder as plain values, oldest first, "file" first in each: what its own file holds."""
    folder = Path(folder) if folder is not None else records.FOLDER
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.endswith(PACKED):
            found |= {run["file"]: run for run in map(msgspec.json.decode, records.file_bytes(path).splitlines())}
        elif path.suffix == ".json" and not path.name.startswith("."):
            found[path.name] = {"file": path.name, **schema.plain(path.read_bytes())}
    return sorted(found.values(), key=lambda run: (records.instant(run["environment"]["date"]), run["file"]))


def unpacked(name: str, folder: str | os.PathLike[str] | None = None) -> bytes:
    """One run as the loose file that it was. Raises RecordError where there is no such run."""
    run = next((run for run in plain_runs(folder) if run["file"] == name), None)
    if run is None:
        raise RecordError(f"there is no run {name!r}. See what there is: python -m dwlab records --json")
    content = {key: value for key, value in run.items() if key != "file"}
    return msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
