"""A recorded sweep as a bench: searches run again on it, on any machine, and are compared.

Each round of a candidate is one of those that were recorded, in their order, again from the first when they are used
up. `regret` is what a search lost: the recorded median of its choice over the least of the sweep, less 1.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from dwlab.records.journal import Candidate, Tried, text
from dwlab.tuning.race import Out
from dwlab.tuning.search import search
from dwlab.tuning.space import Space
from dwlab.tuning.strategies import Strategy


class ReplayError(ValueError):
    """A sweep that does not have what a search asks of it."""


class Sweep:
    """What was recorded of every candidate of a space. Raises ReplayError for candidates that were not tried."""

    def __init__(self, space: Space, tried: Iterable[Tried]):
        self.space = space
        self.tried: Mapping[str, Tried] = {text(one.candidate): one for one in tried}
        missing = [one for one in space.candidates if text(one) not in self.tried]
        if missing:
            raise ReplayError(f"{len(missing)} of {len(space)} candidates were not recorded: {text(missing[0])}, …")
        self.medians = [self._median(one) for one in space.candidates]
        if all(map(math.isinf, self.medians)):
            raise ReplayError("no candidate of the sweep was right")
        self._round: dict[str, int] = {}

    def _median(self, candidate: Candidate) -> float:
        one = self.tried[text(candidate)]
        return statistics.median(one.times_us) if one.ok else math.inf

    @property
    def best_us(self) -> float:
        """The least median."""
        return min(self.medians)

    def regret(self, place: int) -> float:
        """How much slower than the best a candidate is, as a fraction."""
        return self.medians[place] / self.best_us - 1

    def judge(self, candidate: Candidate) -> None:
        """Raises Out as the candidate did."""
        one = self.tried[text(candidate)]
        if not one.ok:
            raise Out(one.state, one.reason)

    def time_us(self, candidate: Candidate) -> float:
        """Its next recorded round."""
        self.judge(candidate)
        name = text(candidate)
        times, number = self.tried[name].times_us, self._round.get(name, 0)
        self._round[name] = number + 1
        return times[number % len(times)]

    def resources(self, candidate: Candidate) -> dict[str, float]:
        """As recorded."""
        return dict(self.tried[text(candidate)].resources)


def regret_at(sweep: Sweep, strategy: Strategy, budgets: Sequence[int]) -> list[float]:
    """Regret of what a search with each budget, a number of candidates, takes."""
    return [sweep.regret(search(sweep.space, sweep, strategy, most=most).winner) for most in budgets]


def moved(one: Sweep, other: Sweep) -> float:
    """What the best candidate of one GPU costs on another, over the best there, less 1. Both have the same space."""
    here = min(range(len(one.space)), key=one.medians.__getitem__)
    names = [text(candidate) for candidate in other.space.candidates]
    name = text(one.space.candidates[here])
    if name not in names:
        raise ReplayError(f"{name} is no candidate on the other GPU")
    return other.regret(names.index(name))
