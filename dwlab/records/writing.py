"""A run becomes a new file, whole or not at all; no user, host or absolute path stands in it."""

from __future__ import annotations

import contextlib
import getpass
import itertools
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dwlab.records import SCHEMA, SECTIONS, SHARED, Measurement, RecordError, read_run, schema


def file_name(environment: Mapping[str, Any], attempt: int = 0) -> str:
    """A file's name from when and on what it was measured: "20261121T101500Z-nvidia-h200.json"."""
    moment = re.sub(r"[^0-9TZ]", "", str(environment["date"]).replace("+00:00", "Z"))
    return f"{moment}-{slug(environment['gpu'])}{f'-{attempt}' if attempt else ''}.json"


def slug(gpu: str) -> str:
    """A GPU in a file's name: "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", str(gpu).lower()).strip("-") or "gpu"


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
    unknown = [name for name in sections or {} if name not in SECTIONS]
    if unknown:
        raise RecordError(f"a record has no part {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    content = {
        "schema": SCHEMA,
        "environment": dict(environment),
        "ceilings": dict(ceilings),
        "machine": dict(machine or {}),
        "peers": [dict(one) for one in peers],
        "counters": [dict(one) for one in counters],
        "measurements": [
            {k: v for k, v in (row.to_dict() if isinstance(row, Measurement) else row).items() if k not in SHARED}
            for row in rows
        ],
        **{name: [dict(one) for one in found] for name, found in (sections or {}).items()},
        **({"notes": list(notes)} if notes else {}),
    }
    for name, value in content.items():
        rows, fields = (value, schema.PARTS[name]) if name in schema.PARTS else ([value], schema.ONCE.get(name))
        known = getattr(fields, "__required_keys__", set()) | getattr(fields, "__optional_keys__", set())
        more = [field for row in rows for field in row if field not in known] if known else []
        if more:
            raise RecordError(f"{name} of a record has no field {more[0]!r}: name it in dwlab/records/schema.py first")
    return new_file(path, content, lambda attempt: file_name(environment, attempt), read_run)


def new_file(
    path: str | os.PathLike[str], content: Mapping[str, Any], named: Callable[[int], str], read: Callable[[str], Any]
) -> Path:
    """Writes content as a new JSON file, whole or not at all, and returns its path.

    named: the name in a folder, at the how-manieth attempt. read: reads the file back. Raises RecordError as `write`.
    """
    try:
        text = json.dumps(scrubbed(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise RecordError(f"the run cannot be written as JSON: {error}. Nothing was written") from error
    path = Path(path)
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
        read(temporary)
        for attempt in itertools.count():
            target = folder / named(attempt) if is_folder else path
            try:
                give_name(temporary, target)
                return target
            except FileExistsError:
                if not is_folder:
                    raise RecordError(
                        f"{path.name} exists, and a record is never overwritten: name a new file, or a folder"
                    ) from None
    except OSError as error:
        raise RecordError(_cannot_write(path, error)) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def give_name(temporary: str, target: Path) -> None:
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
    reasons = {
        PermissionError: "no permission. Name a file in a folder of your own",
        FileNotFoundError: f"there is no folder {path.parent.name!r}. Make it first",
        NotADirectoryError: f"{path.parent.name!r} is a file, not a folder",
    }
    why = reasons.get(type(error)) or (error.strerror or type(error).__name__).lower()
    return f"the record {path.name!r} cannot be written: {why}"


_POSIX_PATH = re.compile(r"(?<![\w.:/])~?/(?:[^\s/'\":,;()]+/)+([^\s/'\":,;()]*)")

_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?:[^\s\\'\":,;()]+\\)*([^\s\\'\":,;()]*)")


DIGITS = 8  # of a number that are kept: no time is known to as many, and more do not compress


def scrubbed(value: Any) -> Any:
    """The value with absolute paths cut to their last part, user and host names taken out of its texts, and DIGITS
    digits of its floating-point numbers."""
    if isinstance(value, Mapping):
        return {key: scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if not isinstance(value, str):
        return value
    text = _WINDOWS_PATH.sub(r"\1", _POSIX_PATH.sub(r"\1", value))
    user = ""
    with contextlib.suppress(OSError, KeyError):
        user = getpass.getuser()
    for name, stand_in in ((user, "<user>"), (platform.node(), "<host>")):
        if len(name) >= 4 and name not in ("root", "localhost"):
            text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", stand_in, text)
    return text
