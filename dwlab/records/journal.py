"""The journal of a search: an append-only file of JSON lines, one a candidate, failures included.

A line has its key (GPU, driver, versions, kernel, space, problem, storage type, sparsity, protocol), the candidate, how
it ended, its times, the date, and a checksum of all that. Two processes may write to one file: a line is appended
whole, under a lock. A process that is killed leaves at most one line without its end, which the next writer closes; a
line that does not parse or has another checksum is left where it is, counted, and not used. Nothing is ever rewritten;
`pack` puts all lines of FILE.jsonl into FILE.jsonl.xz, which is read before it.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import math
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import msgspec

Candidate = Mapping[str, Any]
"""Parameter -> value: finite numbers, texts and booleans."""

COUNTED = "none; counted"
"""How the GPU of a key begins where no time was measured: what stands for it was counted by the interpreter."""

STATES = ("correct", "incorrect", "timeout", "crashed", "compile", "memory")
"""How a candidate ended. "correct": checked before and after it was timed."""


def text(candidate: Candidate) -> str:
    """A candidate as one line of JSON: the same for the same values, whatever their order."""
    return json.dumps(dict(candidate), sort_keys=True, separators=(",", ":"))


class JournalError(RuntimeError):
    """A journal that cannot be read or written; the message says which, and why."""


@dataclass(frozen=True)
class Key:
    """Everything that a measurement holds for. gpu: name; compute_capability: "9.0"; sms: multiprocessors. versions: by
    name, of driver, CUDA and others. kernel: the stage's or source's digest. space: Space.digest. problem: its
    sizes in a text. sparsity: "dense", "2:4", "64:2:16"; of a subject under sparse/ the problem's own, though lines
    until 2026-11-26 said "dense" there. protocol: of the measurement.
    """

    gpu: str
    compute_capability: str
    sms: int
    versions: Mapping[str, str]
    kernel: str
    space: str
    subject: str
    problem: str
    dtype: str
    sparsity: str = "dense"
    protocol: int = 1

    def __post_init__(self) -> None:
        form = re.search(r"(?<= )(\d+:)?\d+:\d+\b", self.problem) if self.subject.startswith("sparse/") else None
        if self.sparsity == "dense" and form:
            object.__setattr__(self, "sparsity", form[0])

    @property
    def text(self) -> str:
        """The key as one line of JSON: equal keys have the same."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def counted(self) -> bool:
        """Whether what stands under it was counted, and is no time."""
        return self.gpu.startswith(COUNTED)

    def differs(self, other: Key) -> tuple[str, ...]:
        """Parts of the key in which another one differs, in sentences: "gpu: NVIDIA H200, here NVIDIA L4"."""
        found = []
        for one in fields(self):
            mine, its = getattr(self, one.name), getattr(other, one.name)
            if one.name == "versions":
                found += [
                    f"{name}: {its.get(name, 'none')}, here {mine.get(name, 'none')}"
                    for name in sorted({*mine, *its})
                    if mine.get(name) != its.get(name)
                ]
            elif mine != its:
                found.append(f"{one.name}: {_short(its)}, here {_short(mine)}")
        return tuple(found)


def _short(value: Any) -> str:
    return str(value)[:12] if isinstance(value, str) and len(value) == 64 else str(value)


@dataclass(frozen=True)
class Tried:
    """One candidate: how it ended, why if not well, the time of each round in µs, what its kernel takes of a GPU.

    won: the line says that a search took this candidate; its times then stand in an earlier line as well. date: when
    its line was written, UTC, "2026-11-25T15:42:57Z", "" if that is not known; it does not count in comparisons.
    """

    candidate: Candidate
    state: str = "correct"
    reason: str = ""
    times_us: tuple[float, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    compile_s: float = 0.0
    won: bool = False
    date: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise JournalError(f"state {self.state!r} is unknown: it is one of {', '.join(STATES)}")

    @property
    def ok(self) -> bool:
        """Whether it was right and was timed."""
        return self.state == "correct" and bool(self.times_us)


def unpacked(path: str | os.PathLike[str]) -> Path:
    """The path of a journal, of that or of its packed lines'."""
    path = Path(path)
    return path.with_name(path.name.removesuffix(".xz")) if path.name.endswith(".jsonl.xz") else path


class Journal:
    """A file of what was tried, made with its first line. Raises JournalError where it cannot be read or written.

    path: its own, or that of its packed lines, which has .xz behind it.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = unpacked(path)
        self.unused: dict[str, list[int]] = {}
        """Numbers of the lines that the last `read` did not use: those that are "damaged" or "of another version"."""

    @property
    def packed(self) -> Path:
        """The compressed file with the lines that came before those of `path`."""
        return self.path.with_name(f"{self.path.name}.xz")

    @property
    def exists(self) -> bool:
        """Whether there is a file, be it packed."""
        return self.path.exists() or bool(self.path.name) and self.packed.exists()

    def append(self, key: Key, tried: Tried) -> None:
        """Adds a line, whole and on the disk when this returns. Raises JournalError (full disk, no permission)."""
        line = encoded(key, tried)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab+", buffering=0) as file, locked(file):
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                    if file.read(1) != b"\n":  # whoever wrote last was killed in the middle
                        line = b"\n" + line
                try:
                    rest = memoryview(line)
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(end)  # half a line on a full disk
                    raise
        except OSError as error:
            raise JournalError(f"cannot write {self.path}: {error.strerror or error}; nothing in it is lost") from error

    def read(self) -> Iterator[tuple[Key, Tried]]:
        """Every sound line in order; `damaged` then has the numbers of the others. A missing file has none."""
        yield from self._sound(lambda line: True)

    def _check_file(self, what: str) -> None:
        """Raises JournalError for a folder, and for a device or a pipe, which may have no end."""
        if self.path.exists() and not self.path.is_file():
            kind = "a directory" if self.path.is_dir() else "no regular file"
            raise JournalError(f"cannot {what} {self.path}: Is {kind}")

    def _sound(self, wanted: Callable[[bytes], bool]) -> Iterator[tuple[Key, Tried]]:
        self._check_file("read")
        lines = []
        for path, read in ((self.packed, self._unpacked), (self.path, self.path.read_bytes)):
            try:
                lines += _lines(read)
            except (OSError, EOFError, lzma.LZMAError) as error:
                raise JournalError(f"cannot read {path}: {getattr(error, 'strerror', '') or error}") from error
        self.unused = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or not wanted(line):
                continue
            found = _parsed(line)
            if isinstance(found, str):
                self.unused.setdefault(found, []).append(number)
            else:
                yield found

    def _unpacked(self) -> bytes:
        return lzma.decompress(self.packed.read_bytes())

    def pack(self) -> Path:
        """Moves all lines into the compressed file, and says which. Raises JournalError; then nothing has changed."""
        list(self.read())
        if self.unused:
            raise JournalError(f"{self.message()}. Take them out, then pack it")
        part = self.packed.with_name(f"{self.packed.name}.part")
        try:
            text = b"".join(line + b"\n" for read in (self._unpacked, self.path.read_bytes) for line in _lines(read))
            part.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
            if lzma.decompress(part.read_bytes()) != text:
                raise OSError(f"what was written to {part} is not what is to be packed")
            os.replace(part, self.packed)
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise JournalError(f"cannot write {self.packed}: {error.strerror or error}") from error
        return self.packed

    def results(self, key: Key) -> dict[str, Tried]:
        """Candidate's text -> what was tried under this key, of each candidate the newest line."""
        return {text(tried.candidate): tried for known, tried in self.read() if known == key}

    def keys(self) -> dict[str, tuple[Key, dict[str, Tried]]]:
        """Every key as a text -> the key, and its `results`."""
        found: dict[str, tuple[Key, dict[str, Tried]]] = {}
        for key, tried in self.read():
            found.setdefault(key.text, (key, {}))[1][text(tried.candidate)] = tried
        return found

    def winner(self, key: Key) -> Tried | None:
        """The candidate that the last search under this key took."""
        return next(reversed([tried for known, tried in self.read() if tried.won and known == key]), None)

    def winners(self) -> list[tuple[Key, Tried]]:
        """Every line that says what a search took, in order; other lines are not parsed, nor counted as damaged."""
        return list(self._sound(lambda line: b'"won":true' in line))

    def check_writable(self, key: Key | None = None) -> None:
        """Raises JournalError if no line can be added, unless a search under this key is finished; nothing is added."""
        self._check_file("write")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab"):
                pass
        except OSError as error:
            if key is None or not self.exists or self.winner(key) is None:
                raise JournalError(f"cannot write {self.path}: {error.strerror or error}") from error

    def why_not(self, key: Key) -> str:
        """Why nothing of this journal holds for a key: in what the nearest key differs. "" if something does."""
        known = [one for one, _ in self.keys().values()]
        if not known:
            return f"{self.path} has no sound line"
        differences = min((key.differs(one) for one in known), key=len)
        return "; ".join(differences)

    def message(self) -> str:
        """A sentence on the lines that were set aside; "" if none were."""
        unused = [
            f"{len(lines)} {why} (line {', '.join(map(str, lines[:5]))}{', …' * (len(lines) > 5)})"
            for why, lines in self.unused.items()
        ]
        return f"{self.path}: {', '.join(unused)}: not used, and left where they are" if unused else ""


def _lines(read: Callable[[], bytes]) -> list[bytes]:
    """The lines of a file that there may not be, without an empty one at its end."""
    with contextlib.suppress(FileNotFoundError):
        return read().removesuffix(b"\n").split(b"\n")
    return []


def encoded(key: Key, tried: Tried) -> bytes:
    """The line of a journal, its end with it; its date is now."""
    tried = replace(tried, date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    body = json.dumps({"key": asdict(key), **asdict(tried)}, sort_keys=True, separators=(",", ":"))
    return f'{{"crc":{zlib.crc32(body.encode())},"line":{body}}}\n'.encode()


def _parsed(line: bytes) -> tuple[Key, Tried] | str:
    """A line's key and candidate; or why it is not used: "damaged", or "of another version", with other fields."""
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, JournalError, RecursionError):
        outer = json.loads(line)
        body = outer["line"]
        if zlib.crc32(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()) != outer["crc"]:
            return "damaged"
        key = body.pop("key")
        for kind, given in ((Key, key), (Tried, body)):
            needed = {one.name for one in fields(kind) if one.default is one.default_factory}
            if not needed <= given.keys() <= {one.name for one in fields(kind)}:
                return "of another version"
        found = msgspec.convert(key, Key), msgspec.convert(body, Tried)
        values = [one for one in body["candidate"].values() if not isinstance(one, (str, bool))]
        measured = (*found[1].times_us, *found[1].resources.values(), found[1].compile_s)
        if all(abs(one) < math.inf for one in values) and all(0 <= one < math.inf for one in measured):
            return found
    return "damaged"


@contextlib.contextmanager
def locked(file: Any) -> Iterator[None]:
    """Within it no other process has a lock of this file. A process that ends gives it back."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        try:
            yield
        finally:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
