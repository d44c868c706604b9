"""Lesson 40's records: trainings of the surfaces' network, and what each change did to the job that runs it.

One JSON file a run, in working_method/ beside this module. A run of kind "surfaces" holds one row a training, of kind
"method" one row a step: a change, what was expected of it before it was measured, and what it brought. Speedups, means
and spreads are computed from these when a table is made.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from dwlab import records
from dwlab.records import ReadOnly, kinds
from dwlab.records.kinds import Kind, KindRun
from dwlab.records.schema import Count, Number, Positive

FOLDER = records.FOLDER / "working_method"
WHOLE = "whole job"
AGREE, DRIFT = 0.75, 0.02
Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Training:
    """One training. accuracy: share of the test images; pruned: that before training went on, None of dense networks;
    zeros: share of the pointwise layers' weights that are zero.
    """

    seed: Count
    pattern: str
    accuracy: Share
    zeros: Share
    pruned: Share | None = None


@dataclass(frozen=True)
class Time:
    """A time in µs: median and 10th and 90th percentile over rounds."""

    median_us: Positive
    p10_us: Positive
    p90_us: Positive
    rounds: Positive

    @classmethod
    def of(cls, samples: Sequence[float]) -> Time:
        """The time of samples in µs, two at least."""
        tenths = statistics.quantiles(samples, n=10, method="inclusive")
        return cls(statistics.median(samples), tenths[0], tenths[-1], len(samples))


@dataclass(frozen=True)
class Step:
    """One change, measured in turn with what was best before it.

    scope: "job", or the kernel or layer that was changed alone; of the first job against the last one WHOLE.
    hypothesis: why it should help. expected: how many times as fast, said before it was measured. before, after: None
    where it could not be measured, and failure says why. kept: whether the steps after it build on it, of single
    kernels whether it is faster. accuracy: share of the test images that the job classifies rightly; agreement: share
    of the job's images with the class that float64 gives. ahead: share of the rounds in which the two ran in turn that
    were shorter after the change; None where they did not run in turn. facts_before, facts_after: what the compiler or
    the profile says of the two.
    """

    name: str
    scope: str
    change: str
    hypothesis: str
    expected: Positive
    before: Time | None = None
    after: Time | None = None
    kept: bool = False
    accuracy: Share | None = None
    agreement: Share | None = None
    ahead: Share | None = None
    facts_before: dict[str, Number | str] = field(default_factory=dict)
    facts_after: dict[str, Number | str] = field(default_factory=dict)
    failure: str = ""

    @property
    def gain(self) -> float | None:
        """How many times as fast; None where it was not measured."""
        return self.before.median_us / self.after.median_us if self.before and self.after else None

    @property
    def clear(self) -> bool:
        """Whether three in four rounds agree which is faster (of 41 rounds by chance once in 700). Where the two did
        not run in turn, whether the spreads do not meet and the medians differ by more than clocks drift, DRIFT.
        """
        if not (self.before and self.after):
            return False
        if self.ahead is not None:
            return max(self.ahead, 1 - self.ahead) >= AGREE
        if max(self.gain, 1 / self.gain) < 1 + DRIFT:
            return False
        return self.after.p90_us < self.before.p10_us or self.before.p90_us < self.after.p10_us


@dataclass(frozen=True, kw_only=True)
class SurfacesRun(KindRun):
    """A file of kind "surfaces"."""

    KIND: ClassVar[str] = "surfaces"

    environment: ReadOnly
    experiment: ReadOnly
    trainings: tuple[Training, ...]


@dataclass(frozen=True, kw_only=True)
class MethodRun(KindRun):
    """A file of kind "method". timelines: name -> a time line, as dwlab.measure.timeline reads it; views: name ->
    where the same job's time went by torch.profiler, µs, and the longest "rows".
    """

    KIND: ClassVar[str] = "method"

    environment: ReadOnly
    job: ReadOnly
    steps: tuple[Step, ...]
    timelines: dict[str, dict[str, Any]] = field(default_factory=dict)
    views: dict[str, dict[str, Any]] = field(default_factory=dict)


def newest(kind: type[Kind], folder: str | os.PathLike[str] = FOLDER) -> Kind | None:
    """The newest run of a kind, SurfacesRun or MethodRun; None: there is none."""
    runs = [run for run in kinds.load_all(folder, SurfacesRun, MethodRun) if isinstance(run, kind)]
    return runs[-1] if runs else None
