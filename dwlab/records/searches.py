"""Searches by one GPU and by several of a host: a JSON file a run, in gpus/ beside this module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dwlab import records
from dwlab.records import ReadOnly
from dwlab.records.kinds import KindRun
from dwlab.records.schema import Count, Positive

FOLDER = records.FOLDER / "gpus"


@dataclass(frozen=True)
class Way:
    """One search. processes: that compiled and measured; failed: candidates that were not right or not run.

    start_s: until all processes were ready; first_s: every candidate compiled, checked and timed; race_s: the finalists
    on one GPU. time_us: the winner's median; tied: the finalists that the race could not tell from it, it among them.
    """

    how: str
    processes: Count
    candidates: Count
    failed: Count
    start_s: Positive
    first_s: Positive
    race_s: Positive
    winner: dict[str, Any]
    time_us: Positive
    tied: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchRun(KindRun):
    """A file of kind "gpus". killed: candidates, how many were answered although a worker was killed, workers and those
    left. rounds: GPU -> µs of one candidate on it. left_out: GPUs that somebody else used.
    """

    KIND: ClassVar[str] = "gpus"

    environment: ReadOnly
    stage: str
    problem: str
    gpus: Count
    ways: tuple[Way, ...]
    killed: dict[str, int]
    rounds: dict[str, tuple[Positive, ...]]
    left_out: tuple[str, ...] = ()

    def speedup(self, how: str) -> float:
        """How many times as fast as one GPU the first rounds of all candidates were."""
        seconds = {one.how: one.first_s for one in self.ways}
        return seconds["one GPU"] / seconds[how]

    def alike(self) -> bool:
        """Whether each winner is among those that every race could not tell from its own."""
        return all(one.winner in [*other.tied, other.winner] for one in self.ways for other in self.ways)
