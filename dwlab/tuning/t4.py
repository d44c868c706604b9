"""T4, the auto-tuning community's format of results: journals written in it, and files of others read.

Fields and names are those of its results schema 1.0.0 (github.com/odgaard/TuningSchema); `Results` is its types, which
both directions are checked against. What other tools leave out is filled in: correctness, and timeouts.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from dwlab.records.journal import Key, Tried, text

VERSION = "1.0.0"

Invalidity = Literal["timeout", "compile", "runtime", "correctness", "constraints", "correct"]

INVALIDITY: dict[str, Invalidity] = {
    "correct": "correct",
    "incorrect": "correctness",
    "timeout": "timeout",
    "compile": "compile",
    "crashed": "runtime",
    "memory": "runtime",
}
"""A journal's state -> T4's. "constraints" has none: such candidates are not in a space."""


class Times(msgspec.Struct, omit_defaults=True):
    """Seconds: compilation_time, framework, search_algorithm, validation; runtimes in milliseconds, as tools write."""

    compilation_time: float | None = None
    runtimes: list[float] = []
    framework: float | None = None
    search_algorithm: float | None = None
    validation: float | None = None


class Quantity(msgspec.Struct, omit_defaults=True):
    """One measurement by name."""

    name: str
    value: float | str | list[Any]
    unit: str = ""


class Result(msgspec.Struct, omit_defaults=True):
    """One configuration."""

    configuration: dict[str, Any]
    times: Times
    invalidity: Invalidity
    correctness: float
    objectives: list[str] = []
    measurements: list[Quantity] = []
    timestamp: str = ""


class Results(msgspec.Struct):
    """A file. metadata: beside the schema's fields, what the results hold for."""

    results: list[Result]
    schema_version: str = VERSION
    metadata: dict[str, Any] = {}


class T4Error(ValueError):
    """A file that is not T4; the message says where."""


def encoded(key: Key, tried: Iterable[Tried]) -> bytes:
    """What was tried under a key, as a T4 file."""
    made = []
    for one in tried:
        ms = [us / 1e3 for us in one.times_us]
        given = [Quantity("time", statistics.median(ms), "ms")] if ms else []
        given += [Quantity(name, value) for name, value in one.resources.items()]
        if one.reason:
            given.append(Quantity("reason", one.reason))
        made.append(
            Result(
                dict(one.candidate),
                Times(one.compile_s, ms),
                INVALIDITY[one.state],
                float(one.state == "correct"),
                ["time"],
                given,
            )  # fmt: skip
        )
    found = Results(made, metadata={"tool": "dwlab", "key": msgspec.to_builtins(key)})
    return msgspec.json.format(msgspec.json.encode(found), indent=1)


def decoded(data: bytes) -> tuple[Tried, ...]:
    """What a T4 file says was tried, of each configuration the last. Raises T4Error."""
    try:
        found = msgspec.json.decode(data, type=Results)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise T4Error(f"this is no T4 file: {error}") from None
    states = {name: state for state, name in reversed(INVALIDITY.items())} | {"runtime": "crashed"}
    tried: dict[str, Tried] = {}
    for one in found.results:
        if one.invalidity == "constraints":
            continue
        by_name = {each.name: each.value for each in one.measurements}
        times = [1e3 * ms for ms in one.times.runtimes]
        if not times and isinstance(by_name.get("time"), (int, float)):
            times = [1e3 * float(by_name["time"])]  # type: ignore[arg-type]
        numbers = {
            name: float(value)
            for name, value in by_name.items()
            if name not in ("time", "reason") and isinstance(value, (int, float))
        }
        state = states[one.invalidity]
        tried[text(one.configuration)] = Tried(
            one.configuration, state, str(by_name.get("reason", "")), tuple(times) if state == "correct" else (),
            numbers, one.times.compilation_time or 0.0,
        )  # fmt: skip
    return tuple(tried.values())


def write(path: str | Path, key: Key, tried: Iterable[Tried]) -> None:
    """Writes a T4 file."""
    Path(path).write_bytes(encoded(key, tried))


def read(path: str | Path) -> tuple[Tried, ...]:
    """Reads a T4 file. Raises T4Error, or OSError."""
    return decoded(Path(path).read_bytes())
