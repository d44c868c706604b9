"""Epochs of training with each convolution: one JSON file for each run, in training/ beside this module.

A file holds the environment, the experiment (model, batch, steps, seed) and, for each way to convolve, only what was
measured: seconds of the epoch, milliseconds of a step and of the convolution alone, and the loss of every step. Shares,
speedups and Amdahl's prediction are computed from these when a table is made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from msgspec import Meta

from dwlab import records
from dwlab.records import ReadOnly, kinds, schema
from dwlab.records.kinds import KindRun
from dwlab.records.schema import Environment, Positive

FOLDER = records.FOLDER / "training"
NAIVE = "naive"


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


@dataclass(frozen=True, kw_only=True)
class EpochRun(KindRun):
    """One experiment: what a file holds. failed: way -> why it could not be measured."""

    KIND: ClassVar[str] = "epoch"

    environment: Environment
    experiment: ReadOnly
    ways: tuple[Way, ...]
    failed: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        if len({len(one.losses) for one in self.ways}) > 1:
            raise schema.Damage("its loss curves differ in length")

    @property
    def naive(self) -> Way | None:
        """The way that the others are compared with."""
        return next((one for one in self.ways if one.way == NAIVE), None)

    def fastest(self, ours: bool) -> Way | None:
        """The way of ours, or of PyTorch's, with the shortest epoch."""
        return min((one for one in self.ways if one.ours == ours), key=lambda one: one.epoch_s, default=None)


def load_all(folder: str | os.PathLike[str] = FOLDER) -> list[EpochRun]:
    """Every epoch recorded, oldest first; [] where there is none. Raises RecordError for a file that cannot be read."""
    return kinds.load_all(folder, EpochRun)


def label(one: Way) -> str:
    """A way's name in tables: ours by the stages' name, PyTorch's with their owner's."""
    if not one.ours:
        return f"PyTorch: {one.way}"
    return f"best ({', '.join(dict.fromkeys(one.kernels.values()))})" if one.way == "best" and one.kernels else one.way
