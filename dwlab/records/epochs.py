"""What an epoch of training took with each convolution: one JSON file for each run, in training/ beside this module.

A file holds the environment, the experiment (model, batch, steps, seed) and, for each way to convolve, only what was
measured: seconds of the epoch, milliseconds of a step and of the convolution alone, and the loss of every step. Shares,
speedups and Amdahl's prediction are computed from these when a table is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dwlab import records
from dwlab.records import ReadOnly, RecordError, schema, writing
from dwlab.records.schema import Environment, Positive

FOLDER = records.FOLDER / "training"
KIND = "epoch"
NAIVE = "naive"
COMMAND = "python benchmarks/epoch_time.py"


@dataclass(frozen=True)
class Way:
    """One convolution in the training that is otherwise the same.

    way: as dwlab.training.s4convd calls it; ours: whether its kernels are dwlab's; kernels: path -> stage, for ours.
    epoch_s: seconds of the epoch, by the clock of the host after the GPU was done; step_ms, p10_ms, p90_ms: a step, by
    events, over the epoch's steps; graph_ms: a step replayed from a CUDA graph, None where none was made, and then note
    says why. forward_ms, backward_ms: one convolution alone, and both its gradients; calls: convolutions in a step.
    peak_gb: memory that PyTorch held at most. losses: of each step.
    """

    way: str
    ours: bool
    epoch_s: Positive
    step_ms: Positive
    p10_ms: Positive
    p90_ms: Positive
    forward_ms: Positive
    backward_ms: Positive
    calls: Positive
    losses: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    kernels: dict[str, str] = field(default_factory=dict)
    graph_ms: Positive | None = None
    peak_gb: Positive | None = None
    note: str = ""

    @property
    def convolution_ms(self) -> float:
        """Milliseconds of a step that are the convolution's, from its time alone."""
        return self.calls * (self.forward_ms + self.backward_ms)

    @property
    def share(self) -> float:
        """The convolution's part of a step."""
        return self.convolution_ms / self.step_ms

    def predicted_ms(self, naive: Way) -> float:
        """A step by Amdahl's law: the naive one with its convolution exchanged for this one."""
        return naive.step_ms - naive.convolution_ms + self.convolution_ms

    def loss_difference(self, naive: Way) -> float:
        """The greatest difference between the two loss curves, relative to the naive one's."""
        return max(abs(a - b) / abs(b) for a, b in zip(self.losses, naive.losses, strict=True))


@dataclass(frozen=True)
class EpochRun:
    """One experiment: what a file holds. failed: way -> why it could not be measured."""

    file: str
    environment: Mapping[str, Any]
    experiment: Mapping[str, Any]
    ways: tuple[Way, ...]
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def naive(self) -> Way | None:
        """What the others are compared with."""
        return next((one for one in self.ways if one.way == NAIVE), None)

    def fastest(self, ours: bool) -> Way | None:
        """The way of ours, or of PyTorch's, with the shortest epoch."""
        return min((one for one in self.ways if one.ours == ours), key=lambda one: one.epoch_s, default=None)

    def where(self) -> str:
        """Device, versions and date in one line."""
        return records.Record(self.file, self.environment, {}, ()).where()


def write(
    path: str | os.PathLike[str],
    environment: Mapping[str, Any],
    experiment: Mapping[str, Any],
    ways: Sequence[Way],
    failed: Mapping[str, str] | None = None,
) -> Path:
    """Writes one run as a new file, whole or not at all, and returns its path; in a folder, named by date and GPU.

    Raises RecordError if the file exists, cannot be written, or would not be read back.
    """
    content = {
        "schema": schema.SCHEMA,
        "kind": KIND,
        "environment": dict(environment),
        "experiment": dict(experiment),
        "failed": dict(failed or {}),
        "ways": [vars(one) | {"losses": list(one.losses), "kernels": dict(one.kernels)} for one in ways],
    }
    return writing.new_file(
        path, content, lambda n: f"{writing.file_name(environment, n).removesuffix('.json')}-epoch.json", read
    )


class _File(msgspec.Struct):
    schema: int
    kind: str
    environment: Environment
    experiment: ReadOnly
    ways: list[Way]
    failed: dict[str, str] | None = None


def read(path: str | os.PathLike[str]) -> EpochRun:
    """One file. Raises RecordError, saying what is wrong; the file is left as it is."""
    path = Path(path)
    return records.made(lambda: _run(records.file_bytes(path), path.name), path.name)


def _run(data: bytes, name: str) -> EpochRun:
    content = schema.plain(data)
    kind = content.get("kind"), content.get("schema")
    if kind != (KIND, schema.SCHEMA):
        raise RecordError(
            f"is no record of an epoch: its kind is {kind[0]!r} and its schema {kind[1]!r}, not {KIND!r} and "
            f"{schema.SCHEMA}. Move it elsewhere"
        )
    found = schema.decode(data, _File)
    if len({len(one.losses) for one in found.ways}) > 1:
        raise schema.Damage("its loss curves differ in length")
    return EpochRun(name, ReadOnly(found.environment), found.experiment, tuple(found.ways), found.failed or {})


def load_all(folder: str | os.PathLike[str] | None = None) -> list[EpochRun]:
    """Every epoch recorded, oldest first; [] where there is none. Raises RecordError for a file that cannot be read."""
    folder = Path(folder) if folder is not None else FOLDER
    runs = [read(path) for path in sorted(folder.glob("*.json"))]
    return sorted(runs, key=lambda run: (records.instant(run.environment["date"]), run.file))


def label(one: Way) -> str:
    """What a table calls a way: ours by the stages' name, PyTorch's with their owner's."""
    if not one.ours:
        return f"PyTorch: {one.way}"
    return f"best ({', '.join(dict.fromkeys(one.kernels.values()))})" if one.way == "best" and one.kernels else one.way
