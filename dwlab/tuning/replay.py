"""A recorded sweep as a bench: searches run again on it, on any machine, and are compared.

Each round of a candidate is one of those that were recorded, in their order, again from the first when they are used
up. `regret` is what a search lost: the recorded median of its choice over the least of the sweep, less 1.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dwlab.gpu import occupancy
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import Problem, layers
from dwlab.records.journal import Candidate, Journal, Key, Tried, text
from dwlab.tuning import learned
from dwlab.tuning.race import Out
from dwlab.tuning.search import FIRST
from dwlab.tuning.space import Space, digest, listed, subject
from dwlab.tuning.strategies import Strategy


class ReplayError(ValueError):
    """A sweep that does not have what a search asks of it."""


class Sweep:
    """A bench of the recorded times of a space's candidates. Raises ReplayError for candidates that were not tried."""

    def __init__(self, space: Space, tried: Iterable[Tried]):
        self.space = space
        self.tried: Mapping[str, Tried] = {text(one.candidate): one for one in tried}
        missing = [one for one in space.candidates if text(one) not in self.tried]
        if missing:
            raise ReplayError(f"{len(missing)} of {len(space)} candidates were not recorded: {text(missing[0])}, …")
        self.medians = [self._median(one) for one in space.candidates]
        self.firsts = [self._median(one, FIRST) for one in space.candidates]
        if all(map(math.isinf, self.medians)):
            raise ReplayError("no candidate of the sweep was right")
        self._round: dict[str, int] = {}

    def _median(self, candidate: Candidate, rounds: int | None = None) -> float:
        one = self.tried[text(candidate)]
        return statistics.median(one.times_us[:rounds]) if one.ok else math.inf

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
        """The recorded resources."""
        return dict(self.tried[text(candidate)].resources)


def find(journal: Journal, subject: str, problem: str, dtype: str, gpu: str = "") -> tuple[Key, Sweep]:
    """The newest whole sweep of a kernel on a problem. gpu: its driver's name; any if "".

    Raises ReplayError if there is none: with the parts of the key in which the nearest differs, or, of a part of a
    space, with how much of it was tried.
    """
    known = journal.keys().values()
    wanted = {"subject": subject, "problem": problem, "dtype": dtype} | ({"gpu": gpu} if gpu else {})
    differences = [replace(key, **wanted).differs(key) for key, _ in known]
    if not differences:
        raise ReplayError(f"{journal.path} has no sound line")
    if all(differences):
        raise ReplayError(f"nothing of {journal.path} holds here: {'; '.join(min(differences, key=len))}")
    same = [one for one, differs in zip(known, differences, strict=True) if not differs]
    whole = [(key, tried) for key, tried in same if is_whole(key, tried)]
    if not whole:
        key, tried = max(same, key=lambda one: len(one[1]))
        raise ReplayError(
            f"{journal.path} has {len(tried)} candidates of {subject} there, a part of its space: a replay needs all "
            "(tune … --strategy exhaustive --journal FILE)"
        )
    key, tried = whole[-1]
    return key, Sweep(recorded_space(tried), tried.values())


def is_whole(key: Key, tried: Mapping[str, Tried]) -> bool:
    """Whether these are all candidates of the key's space."""
    return digest(one.candidate for one in tried.values()) == key.space


def recorded_space(tried: Mapping[str, Tried], default: Candidate | None = None) -> Space:
    """The space of a whole sweep, in the order in which it was recorded, the default, if it is there, first."""
    return listed(sorted((one.candidate for one in tried.values()), key=lambda one: one != default))


def seen(paths: Iterable[Path], without: Problem | None = None, doublings: float = 0) -> list[learned.Seen]:
    """Errors of the model's order in the whole sweeps of some journals. without: nothing of its layer, nor of those
    of which each size is within so many doublings.
    """
    layer = "" if without is None else learned.layer_of(without)
    return [one for of in paths for one in _seen(of, _changed(of)) if not learned.near(one.layer, layer, doublings)]


def _changed(path: Path) -> tuple[int, ...]:
    """Times at which a journal and its packed lines were written last."""
    return tuple(one.stat().st_mtime_ns for one in sorted(path.parent.glob(f"{path.name}*")))


@functools.cache
def _seen(path: Path, changed: tuple[int, ...]) -> tuple[learned.Seen, ...]:
    found = []
    for key, tried in Journal(path).keys().values():
        if key.counted or not is_whole(key, tried):
            continue
        try:
            what, problem = subject(key.subject), layers.stored(layers.problem(key.problem), key.dtype)
            kept = recorded_space(tried)
            logs = what.predicted(problem, kept, gpu_of(key))
            place, tiles = learned.place(problem, what.path), learned.sizes(kept.candidates)
            error = np.log([statistics.median(one.times_us) if one.ok else math.inf for one in tried.values()]) - logs
        except Exception:  # a stage or a field of another time: it says nothing of today's model
            continue
        for id, here in what.by_stage(kept.candidates):
            right = here[np.isfinite(error[here])]
            found.append(learned.Seen(id, learned.layer_of(problem), place, tiles[right], error[right]))
    return tuple(found)


def proposed(sweep: Sweep, strategy: Strategy, most: int | None = None) -> Iterator[int]:
    """The places that a strategy proposes, which is sent the median of first rounds."""
    proposals, sent = strategy(sweep.space), None
    with contextlib.suppress(StopIteration):
        for _ in range(len(sweep.space) if most is None else most):
            yield (place := proposals.send(sent))
            sent = sweep.firsts[place] if math.isfinite(sweep.firsts[place]) else None


def regrets(sweep: Sweep, strategy: Strategy, most: int | None = None) -> list[float]:
    """After each candidate that a strategy proposes, the regret of the best so far by first rounds, without a race."""
    found = ((sweep.firsts[place], sweep.regret(place)) for place in proposed(sweep, strategy, most))
    return [regret for _, regret in itertools.accumulate(found, min)]


def moved(one: Sweep, other: Sweep) -> float:
    """Cost of one GPU's best candidate on another, over the best there, less 1. Both have the same space."""
    here = min(range(len(one.space)), key=one.medians.__getitem__)
    names = [text(candidate) for candidate in other.space.candidates]
    name = text(one.space.candidates[here])
    if name not in names:
        raise ReplayError(f"{name} is no candidate on the other GPU")
    return other.regret(names.index(name))


def gpu_of(key: Key) -> gpus.Gpu:
    """The GPU of a key, for what chooses tiles."""
    return gpus.Gpu(occupancy.capability(key.compute_capability), key.sms, key.gpu)
