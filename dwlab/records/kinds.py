"""Runs of a kind of their own, a JSON file each in a folder of their own: `epochs` and `method` say what is in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from dwlab import records
from dwlab.records import RecordError, schema, writing


@dataclass(frozen=True, kw_only=True)
class KindRun:
    """A run of a kind, which adds its own fields. file: its name; it is not in the file."""

    KIND: ClassVar[str] = ""

    environment: Any
    file: str = ""

    def where(self) -> str:
        """Device, versions and date in one line."""
        return records.Record(self.file, self.environment, {}, ()).where()

    def check(self) -> None:
        """Raises schema.Damage for what types cannot say."""


Kind = TypeVar("Kind", bound=KindRun)


def write(path: str | os.PathLike[str], kind: type[KindRun], environment: Mapping[str, Any], **parts: Any) -> Path:
    """Writes a run as a new file, whole or not at all, and returns its path; in a folder, named by date, GPU and kind.

    Raises RecordError if the file exists, cannot be written, or would not be read back.
    """
    head = {"schema": schema.SCHEMA, "kind": kind.KIND, "environment": dict(environment)}
    named = {"gpu": environment.get("gpu") or "cpu", "date": environment["date"]}
    return writing.new_file(
        path,
        head | msgspec.to_builtins(parts),
        lambda n: f"{writing.file_name(named, n).removesuffix('.json')}-{kind.KIND}.json",
        lambda file: read(file, kind),
    )


def read(path: str | os.PathLike[str], *kinds: type[Kind]) -> Kind:
    """One file, of one of these kinds. Raises RecordError, saying what is wrong; the file is left as it is."""
    path = Path(path)
    return records.made(lambda: _run(records.file_bytes(path), path.name, kinds), path.name)


def _run(data: bytes, name: str, kinds: tuple[type[Kind], ...]) -> Kind:
    content = schema.plain(data)
    given = content.get("kind") if isinstance(content, dict) else None
    kind = next((one for one in kinds if one.KIND == given), None)
    if kind is None:
        known = " or ".join(repr(one.KIND) for one in kinds)
        raise RecordError(f"is no record of kind {known}: its kind is {given!r}. Move it elsewhere")
    schema.check_schema(content.get("schema"))
    run = schema.decode(data, kind)
    run.check()
    return replace(run, file=name)


def load_all(folder: str | os.PathLike[str], *kinds: type[Kind]) -> list[Kind]:
    """Every run in a folder, which are of these kinds, oldest first; a file may be packed (`xz FILE`).

    Raises RecordError for one that cannot be read.
    """
    files = (path for form in ("*.json", "*.json.xz") for path in Path(folder).glob(form))
    runs = [read(path, *kinds) for path in sorted(files)]
    return sorted(runs, key=lambda run: (records.instant(run.environment["date"]), run.file))
