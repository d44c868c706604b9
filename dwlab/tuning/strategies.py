"""Strategies, in whose order a search tries a space's candidates: by a model, at random, all, or as Optuna proposes.

A strategy is a generator that yields a place in the space and is sent what came of it, µs or None for a candidate that
failed. It never proposes a place twice, and place 0, the shipped default, always comes first.
"""

from __future__ import annotations

import importlib.util
import random as _random
from collections.abc import Callable, Generator, Iterable, Sequence

from dwlab.problems import nearest
from dwlab.tuning.space import Space

STARTUP = 3
"""Trials that Optuna's sampler draws at random, its own are 10: a search here has 5 to 20 in all."""
NAMES = ("model", "random", "exhaustive", "optuna")


class StrategyError(ValueError):
    """A strategy that does not exist, or that lacks what it needs; the message says what."""


Proposals = Generator[int, float | None, None]
Strategy = Callable[[Space], Proposals]


def named(name: str, seed: int = 0, order: Sequence[int] | None = None) -> Strategy:
    """One of NAMES. order: places, the best predicted first, which "model" needs. Raises StrategyError."""
    if name == "model":
        if order is None:
            raise StrategyError("the strategy 'model' needs predicted costs: give cost=…, or take random or exhaustive")
        return ordered(order)
    if name == "optuna":
        if importlib.util.find_spec("optuna") is None:
            raise StrategyError("the strategy 'optuna' needs Optuna, which is not installed: pip install '.[search]'")
        return optuna(seed)
    if name not in NAMES:
        raise StrategyError(f"there is no strategy {name!r}. {nearest(name, NAMES)}")
    return exhaustive if name == "exhaustive" else random(seed)


def _each(places: Iterable[int]) -> Proposals:
    for place in places:  # noqa: UP028 (a plain iterator cannot be sent anything)
        yield place


def ordered(places: Sequence[int]) -> Strategy:
    """The places in this order: what a model of times predicts, the best first (`space.model_order`)."""

    def propose(space: Space) -> Proposals:
        yield from _each(dict.fromkeys((0, *places)))

    return propose


def exhaustive(space: Space) -> Proposals:
    """All, in the space's order."""
    yield from _each(range(len(space)))


def random(seed: int) -> Strategy:
    """All, shuffled."""

    def propose(space: Space) -> Proposals:
        rest = list(range(1, len(space)))
        _random.Random(seed).shuffle(rest)
        yield from _each((0, *rest))

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
