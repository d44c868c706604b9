"""A search: candidates as a strategy proposes them, each checked and timed once, then a race of the best.

`search(space, bench, strategy, most=…)` asks a bench for each candidate's rounds. What comes of each is a `Tried`; a
journal, where there is one, gets each as soon as it is known, and what it knows already is not measured again.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from dwlab.records.journal import Candidate, Journal, JournalError, Key, Tried, encoded, text
from dwlab.tuning.race import BAIL, ROUNDS, Out, race
from dwlab.tuning.space import Space
from dwlab.tuning.strategies import Strategy, ordered

FINALISTS = 8
"""Candidates of a race at most, the fastest of their first rounds, and the default."""
FIRST = 3
"""Rounds of a candidate when it is proposed: their median orders the finalists."""


class SearchError(RuntimeError):
    """A search that found nothing; the message has the number of candidates for each reason. found: what was tried."""

    def __init__(self, message: str, found: Found):
        super().__init__(message)
        self.found = found


class Bench(Protocol):
    """A bench: it makes candidates run. Each call may raise `race.Out`, with a state of the journal and a reason.

    exact: one round says all, as where a time is counted and not measured; False if it is not said.
    """

    def judge(self, candidate: Candidate) -> None:
        """Whether its outputs, which held something else before, are right: Out("incorrect", …) if not."""

    def time_us(self, candidate: Candidate) -> float:
        """One round."""

    def resources(self, candidate: Candidate) -> dict[str, float]:
        """Registers, shared memory and so on, as far as known; compile_s, the seconds that its compiler took."""


Firsts = Callable[[Sequence[Candidate], int, float], Iterable[Tried]]
"""(candidates, rounds, until) -> what came of each in its first rounds; until: of time.monotonic()."""


@dataclass
class Found:
    """A search's result. tried: place -> what came of it. curve: best µs after each candidate, math.inf before any.

    timed: candidates that were measured here, not known from a journal. trouble: why the journal took no more lines, ""
    if it took all; unsaved: the lines that it did not take. how: what the times are, in words; counted: they are none.
    """

    space: Space
    winner: int
    tried: dict[int, Tried] = field(default_factory=dict)
    curve: list[float] = field(default_factory=list)
    tied: tuple[int, ...] = ()
    timed: int = 0
    trouble: str = ""
    unsaved: list[bytes] = field(default_factory=list)
    how: str = ""
    counted: bool = False

    @property
    def candidate(self) -> Candidate:
        """The fastest."""
        return self.space.candidates[self.winner]

    @property
    def time_us(self) -> float:
        """Its median; math.nan if it was not timed: nothing was searched, or it is the only candidate."""
        return self._median(self.winner)

    @property
    def default_us(self) -> float:
        """The shipped candidate's median; math.nan if it failed or was not timed."""
        return self._median(0)

    def _median(self, place: int) -> float:
        one = self.tried.get(place)
        return statistics.median(one.times_us) if one is not None and one.ok else math.nan

    def save(self, journal: Journal | None, key: Key | None, tried: Tried) -> None:
        """Adds a line to a journal, if there is one. Where that fails, as on a full disk, the search goes on."""
        if journal is None or key is None:
            return
        if not self.trouble:
            try:
                journal.append(key, tried)
                return
            except JournalError as error:
                self.trouble = str(error)
        self.unsaved.append(encoded(key, tried))

    def rejected(self) -> dict[str, int]:
        """Reason -> candidates, those that the space's constraints refused among them."""
        found = Counter(f"{one.state}: {one.reason}" for one in self.tried.values() if not one.ok)
        return dict(self.space.rejected) | dict(found.most_common())

    def __str__(self) -> str:
        from dwlab.tuning import tables

        lost = f"\n{self.trouble}. `unsaved` has the {len(self.unsaved)} lines that it lacks" if self.trouble else ""
        return tables.summary(self) + lost


def search(
    space: Space,
    bench: Bench,
    strategy: Strategy,
    *,
    most: int | None = None,
    seconds: float = math.inf,
    journal: Journal | None = None,
    key: Key | None = None,
    rounds: int = ROUNDS,
    progress: Callable[[int, float], None] = lambda place, best: None,
    firsts: Firsts | None = None,
) -> Found:
    """The fastest candidate of at most `most`, in about so many seconds. One candidate alone is checked, not timed.

    firsts: measures candidates' first rounds on several GPUs (`pool.Pool`); `bench`, on one of them, has the race. What
    a strategy proposes before it has seen a time: not for Optuna's.

    A journal's line says which candidate won, unless it is the only one. Raises SearchError where every candidate
    failed.
    """
    until = time.monotonic() + seconds
    lines = [one for its, one in journal.read() if its == key] if journal is not None and key is not None else []
    known = {text(one.candidate): one for one in lines}
    last = max((place for place, one in enumerate(lines) if one.won), default=-1)
    new = {text(one.candidate) for one in lines[last + 1 :]}  # since a search was finished
    found = Found(space, -1)
    most = len(space) if most is None else max(1, most)
    exact = getattr(bench, "exact", False)
    proposals, sent = strategy(space), None
    best = math.inf
    if firsts is not None and len(space) > 1:
        ahead = [*itertools.islice(proposals, most)]
        proposals = ordered(ahead)(space)
        todo = [space.candidates[place] for place in ahead if text(space.candidates[place]) not in known]
        for tried in firsts(todo, 1 if exact else FIRST, until):
            known[text(tried.candidate)] = tried
            new.add(text(tried.candidate))
            found.timed += 1
            found.save(journal, key, tried)
            best = min(best, statistics.median(tried.times_us) if tried.ok else math.inf)
            progress(-1, best)
        best = math.inf
    while len(found.tried) < most and (not found.tried or time.monotonic() < until):
        try:
            place = proposals.send(sent)
        except StopIteration:
            break
        tried = known.get(text(space.candidates[place]))
        if tried is None:
            tried = first(space.candidates[place], bench, best, 0 if len(space) == 1 else 1 if exact else FIRST)
            new.add(text(tried.candidate))
            found.timed += 1
            found.save(journal, key, tried)
        found.tried[place] = tried
        sent = statistics.median(tried.times_us) if tried.ok else None
        best = min(best, math.inf if sent is None else sent)
        found.curve.append(best)
        if firsts is None:
            progress(place, best)
    proposals.close()
    if len(space) == 1 and found.tried[0].state == "correct":
        try:
            if not found.timed:  # but by an earlier run
                bench.judge(space.candidates[0])
            found.winner = 0
            return found
        except Out as why:
            found.tried[0] = Tried(space.candidates[0], why.state, why.reason)
            found.save(journal, key, found.tried[0])
    won = lines[last] if last >= 0 else None
    _race(found, bench, rounds, until, journal, key, known, won, new)
    best_one = found.tried[found.winner]
    if won is None or won.candidate != best_one.candidate or won.times_us != best_one.times_us:
        found.save(journal, key, replace(best_one, won=True))
    return found


def first(candidate: Candidate, bench: Bench, best: float = math.inf, rounds: int = FIRST) -> Tried:
    """A candidate checked, timed in a few rounds, and checked again; a slow one has one round."""
    times: list[float] = []
    try:
        bench.judge(candidate)
        while len(times) < rounds and not (times and times[0] > BAIL * best):
            times.append(bench.time_us(candidate))
        if times and not getattr(bench, "exact", False):  # what is counted has been the same run
            bench.judge(candidate)
        takes = dict(bench.resources(candidate))
        return Tried(candidate, times_us=tuple(times), compile_s=takes.pop("compile_s", 0.0), resources=takes)
    except Out as why:
        return Tried(candidate, why.state, why.reason)


def _race(
    found: Found,
    bench: Bench,
    rounds: int,
    until: float,
    journal: Journal | None,
    key: Key | None,
    known: dict[str, Tried],
    won: Tried | None,
    new: set[str],
) -> None:
    """The best of those that were tried, in a race. Fills in winner and tied; the race's rounds go into the journal.

    Its first rounds make a candidate a finalist, so that a second run has the same; rounds that the journal has of a
    race without a winner are taken from there. won: who won before; only new candidates race it, and it loses to one
    that is faster beyond chance alone.
    """
    candidates = found.space.candidates
    medians = {place: statistics.median(one.times_us[:FIRST]) for place, one in found.tried.items() if one.ok}
    held = next((place for place in medians if won is not None and candidates[place] == won.candidate), None)
    while medians:
        best = min(medians.values())
        close = sorted((one for one in medians if medians[one] <= BAIL * best), key=lambda one: (medians[one], one))
        finalists = sorted({*close[:FINALISTS], *medians.keys() & {0}})  # the default, whatever disturbed its rounds
        exact = getattr(bench, "exact", False)
        if held is not None and not exact:
            finalists = [held, *(one for one in finalists if one != held and text(candidates[one]) in new)]
        if raced := len(finalists) > 1 and not exact:
            kept = {one: iter(() if held is not None else found.tried[one].times_us[FIRST:]) for one in finalists}

            def measure(place: int, kept: dict[int, Iterator[float]] = kept) -> float:
                us = next(kept[place], None)
                return bench.time_us(candidates[place]) if us is None else us

            result = race(finalists, measure, rounds, lambda: time.monotonic() >= until)
            for place, why in result.out.items():
                found.tried[place] = Tried(candidates[place], why.state, why.reason)
                medians.pop(place)
            for place, times in result.times.items():
                before = found.tried[place].times_us[: None if held is not None else FIRST]
                found.tried[place] = replace(found.tried[place], times_us=(*before, *times, *kept[place]), won=False)
            for place in finalists:
                if found.tried[place] != replace(known.get(text(candidates[place]), Tried({})), won=False):
                    found.save(journal, key, found.tried[place])
            if result.winner is None:
                held = held if held in medians else None
                continue
            found.winner, found.tied = held if held in result.tied else result.winner, result.tied
        else:  # nothing to compare, or it is compared
            found.winner = min(finalists, key=lambda one: (medians[one], one))
            equal = (one for one in sorted(medians) if medians[one] == medians[found.winner] and one != found.winner)
            found.tied = (found.winner, *equal)
        try:
            if raced or text(candidates[found.winner]) in known:  # of an earlier run: what it calls may be other
                bench.judge(candidates[found.winner])
            return
        except Out as why:
            found.tried[found.winner] = Tried(candidates[found.winner], why.state, why.reason)
            medians.pop(found.winner)
            held = held if held in medians else None
            found.save(journal, key, found.tried[found.winner])
    raise SearchError(
        "every candidate failed: " + "; ".join(f"{count} × {why}" for why, count in found.rejected().items()), found
    )
