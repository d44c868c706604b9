"""A race: the fastest of some candidates, by as few rounds as that takes.

All are timed in turn, a round each, so that what disturbs a GPU disturbs all alike. An interval for each median, of
order statistics, holds whatever the times' distribution; a candidate whose interval lies above the best's is dropped.
Those that are left at the end are compared in pairs, round by round; where even that tells no difference, the first in
the space's order is taken, so that a second run takes the same.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

CONFIDENCE = 0.95
BAIL = 1.5
"""A first round of so many times the best median ends a candidate's race."""
ROUNDS = 25
"""At most, of each candidate. With fewer than 6 no interval of 95 % exists."""

Measure = Callable[[int], float]
"""One round of a candidate, by its place: µs. Raises `Out` where it cannot be timed."""


class Out(Exception):
    """A candidate that ends its race: state, one of journal.STATES, and the reason."""

    def __init__(self, state: str, reason: str):
        super().__init__(f"{state}: {reason}")
        self.state, self.reason = state, reason


@dataclass
class Result:
    """winner: place of the fastest, None if none was timed. times: place -> µs of its rounds. out: place -> why not.

    tied: places that no round told from the winner.
    """

    winner: int | None = None
    times: dict[int, list[float]] = field(default_factory=dict)
    out: dict[int, Out] = field(default_factory=dict)
    tied: tuple[int, ...] = ()

    @property
    def rounds(self) -> int:
        """Rounds of all candidates together."""
        return sum(map(len, self.times.values()))


def interval(times: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the median with CONFIDENCE: two order statistics; all numbers if none is so sure."""
    ordered, n = sorted(times), len(times)
    below, k = 0.0, 0  # chance that at most k - 1 of n lie below the median
    while True:
        step = math.comb(n, k) / 2**n
        if 2 * (below + step) > 1 - CONFIDENCE or k >= n // 2:
            break
        below, k = below + step, k + 1
    return (ordered[k - 1], ordered[n - k]) if k else (-math.inf, math.inf)


def faster(one: Sequence[float], other: Sequence[float], confidence: float = CONFIDENCE) -> bool:
    """Whether `one` was faster in so many of the rounds that both ran that chance does not do it (sign test)."""
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    wins = sum(a < b for a, b in pairs)
    chance = sum(math.comb(len(pairs), k) for k in range(wins, len(pairs) + 1)) / 2 ** len(pairs)
    return bool(pairs) and 2 * chance <= 1 - confidence


def race(
    places: Sequence[int], measure: Measure, rounds: int = ROUNDS, stop: Callable[[], bool] = lambda: False
) -> Result:
    """Times the candidates at these places of a space until one is left, or for so many rounds.

    stop: asked before each round whether the time is over; the first round of the first candidate runs in any case.
    """
    if rounds < 1:
        raise ValueError(f"rounds={rounds}: a race has at least one")
    result, alive = Result(), list(dict.fromkeys(places))
    for number in range(rounds):
        for place in list(alive):
            if result.times and stop():
                break
            try:
                result.times.setdefault(place, []).append(measure(place))
            except Out as why:
                result.out[place] = why
                result.times.pop(place, None)
                alive.remove(place)
        if not (timed := [place for place in alive if result.times.get(place)]):
            if stop() or not alive:
                return result
            continue
        medians = {place: statistics.median(result.times[place]) for place in timed}
        best = min(timed, key=medians.__getitem__)
        if number == 0:
            alive = [place for place in timed if medians[place] <= BAIL * medians[best]]
        else:
            top = interval(result.times[best])[1]
            alive = [place for place in timed if place == best or interval(result.times[place])[0] <= top]
        if stop() or (len(alive) == 1 and number >= 1):
            break
    best = min(alive, key=lambda place: (statistics.median(result.times[place]), place))
    equal = [place for place in alive if place == best or not faster(result.times[best], result.times[place])]
    result.winner, result.tied = min(equal), tuple(sorted(equal))
    return result
