"""Strategies, in whose order a search tries a space's candidates: by a model, at random, all, or as Optuna proposes.

A strategy is a generator that yields a place in the space and is sent what came of it, µs or None for a candidate that
failed. It never proposes a place twice, and place 0, the shipped default, always comes first.

The model's prediction is the mean of a Gaussian process over candidates, which learns from each time that is measured:
how slow all are (LEVEL, of the logarithm of times), and what each parameter's value adds whatever the others are
(SPREAD), which is alike for values that differ by few doublings (REACH). So a value that was not tried is worth a try.
"""

from __future__ import annotations

import importlib.util
import math
import random as _random
from collections.abc import Callable, Generator, Iterable, Sequence

import numpy as np

from dwlab.problems import nearest
from dwlab.tuning.space import Space

LEVEL, SPREAD, REACH, NOISE = 1.0, 0.1, 0.5, 0.01
CAUTION = 0.5
"""Standard deviations by which a candidate may be faster than it is expected to be, in the order of what is tried."""
LEARNED = 100
"""Times from which a search learns: then it goes on in the order that it has."""
UNLIKE = 100.0
"""Doublings between two values that are no numbers."""
STARTUP = 3
"""Trials that Optuna's sampler draws at random, its own are 10: a search here has 5 to 20 in all."""
NAMES = ("model", "random", "exhaustive", "optuna")


class StrategyError(ValueError):
    """A strategy that does not exist, or that lacks what it needs; the message says what."""


Proposals = Generator[int, float | None, None]
Strategy = Callable[[Space], Proposals]


def named(name: str, seed: int = 0, predicted: Sequence[float] | None = None) -> Strategy:
    """One of NAMES. predicted: logarithms of times, which "model" needs. Raises StrategyError."""
    if name == "model":
        if predicted is None:
            raise StrategyError("the strategy 'model' needs predicted costs: give cost=…, or take random or exhaustive")
        return model(predicted)
    if name == "optuna":
        if importlib.util.find_spec("optuna") is None:
            raise StrategyError("the strategy 'optuna' needs Optuna, which is not installed: pip install '.[search]'")
        return optuna(seed)
    if name not in NAMES:
        raise StrategyError(f"there is no strategy {name!r}. {nearest(name, NAMES)}")
    return exhaustive if name == "exhaustive" else random(seed)


def ordered(places: Iterable[int]) -> Strategy:
    """The places in this order."""

    def propose(space: Space) -> Proposals:
        for place in dict.fromkeys((0, *places)):  # noqa: UP028 (a plain iterator cannot be sent anything)
            yield place

    return propose


def model(predicted: Sequence[float]) -> Strategy:
    """The least expected time next, by predicted logarithms and what the search has seen; in the predicted order while
    it has seen none.
    """

    def propose(space: Space) -> Proposals:
        logs = np.array(predicted, float)
        logs[~np.isfinite(logs)] = max(logs[np.isfinite(logs)], default=0.0) + LEVEL
        sizes, expected, left = _sizes(space) / REACH, logs, np.ones(len(space), bool)
        seen: list[int] = []
        errors: list[float] = []
        place = 0
        while True:
            us = yield place
            left[place] = False
            if not left.any():
                return
            if us and len(seen) < LEARNED:
                seen.append(place)
                errors.append(math.log(us) - logs[place])
                expected = logs + _learned(sizes, seen, errors)
            place = int(np.flatnonzero(left)[expected[left].argmin()])

    return propose


def _learned(sizes: np.ndarray, seen: Sequence[int], errors: Sequence[float]) -> np.ndarray:
    """What is added to each prediction, less CAUTION."""
    covariance = np.full((len(seen), len(sizes)), LEVEL**2)
    for values in sizes.T:
        covariance += SPREAD**2 * np.exp(-np.abs(values[seen][:, None] - values))
    noisy = covariance[:, seen] + NOISE**2 * np.eye(len(seen))
    variance = LEVEL**2 + SPREAD**2 * sizes.shape[1] - (covariance * np.linalg.solve(noisy, covariance)).sum(0)
    return np.linalg.solve(noisy, errors) @ covariance - CAUTION * np.sqrt(np.maximum(variance, 0.0))


def _sizes(space: Space) -> np.ndarray:
    """(candidates, parameters): numbers as doublings, other values UNLIKE."""
    columns = [
        np.array([math.copysign(math.log2(1 + abs(one[name])), one[name]) for one in space.candidates])
        if all(isinstance(value, int | float) for value in values)
        else UNLIKE * np.array([values.index(one.get(name)) for one in space.candidates])
        for name, values in space.parameters.items()
    ]
    return np.array(columns).T.reshape(len(space), -1)


def exhaustive(space: Space) -> Proposals:
    """All, in the space's order."""
    yield from ordered(range(len(space)))(space)


def random(seed: int) -> Strategy:
    """All, shuffled."""

    def propose(space: Space) -> Proposals:
        rest = list(range(1, len(space)))
        _random.Random(seed).shuffle(rest)
        yield from ordered(rest)(space)

    return propose


def optuna(seed: int, first: Sequence[int] = ()) -> Strategy:
    """Optuna's TPE sampler by ask and tell, over the parameters' values: STARTUP at random, then by what it has seen.

    first: places that it is to try at the start, after the default, which count among those.

    What it proposes outside of the space, or again, costs nothing here: the sampler then gets the known result, or that
    the trial failed. Raises ImportError without Optuna (the extra "search").
    """

    def propose(space: Space) -> Proposals:
        import optuna as library

        library.logging.set_verbosity(library.logging.WARNING)
        choices = {
            name: library.distributions.CategoricalDistribution(given) for name, given in space.parameters.items()
        }
        names = tuple(space.parameters)
        place_of = {tuple(one[name] for name in names): i for i, one in enumerate(space.candidates)}
        study = library.create_study(sampler=library.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP))
        for place in dict.fromkeys((0, *first)):
            study.enqueue_trial({name: space.candidates[place][name] for name in names})
        known: dict[int, float | None] = {}
        spare = _random.Random(seed)
        idle = 0
        while len(known) < len(space):
            trial = study.ask(choices)
            place = place_of.get(tuple(trial.params[name] for name in names))
            if place is None or place in known:
                idle += 1
                known_us = known.get(place) if place is not None else None
                _tell(library, study, trial, known_us)
                if idle <= len(space):
                    continue
                # It proposes nothing new any more: the rest at random, so that every search ends.
                place = spare.choice([one for one in range(len(space)) if one not in known])
                known[place] = yield place
                continue
            idle = 0
            known[place] = yield place
            _tell(library, study, trial, known[place])

    return propose


def _tell(library: object, study: object, trial: object, us: float | None) -> None:
    if us is None:
        study.tell(trial, state=library.trial.TrialState.FAIL)  # type: ignore[attr-defined]
    else:
        study.tell(trial, us)  # type: ignore[attr-defined]
