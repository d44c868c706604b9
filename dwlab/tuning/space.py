"""Candidates of a search: what may be chosen, which choices are valid, and the one that is shipped, which comes first.

`space({"block": (64, 128), "unroll": (1, 2, 4)}, {"fits": lambda c: …})` enumerates; `of_stage` takes a stage's tiles
for a problem on a GPU. A candidate is a plain dict of numbers, texts and booleans, so that a journal can hold it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from dwlab.kernels.registry import Stage
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import Problem
from dwlab.records.journal import Candidate, text

MOST = 1_000_000
"""Combinations that are enumerated at most."""


class SpaceError(ValueError):
    """A space without candidates, or one that is not valid; the message says which parameter or constraint."""


@dataclass(frozen=True)
class Space:
    """candidates: the valid ones, the default first, then in the order of the parameters' values.

    rejected: constraint -> how many combinations it, and none before it, refused.
    """

    parameters: Mapping[str, tuple[Any, ...]]
    candidates: tuple[Candidate, ...]
    rejected: Mapping[str, int]

    @property
    def digest(self) -> str:
        """SHA-256 of the candidates, by which a journal tells one space from another.

        Their order does not count: another model, and so another default, leaves what was measured as it is.
        """
        return digest(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)


def digest(candidates: Iterable[Candidate]) -> str:
    """Of any candidates, as `Space.digest`."""
    return hashlib.sha256("\n".join(sorted(map(text, candidates))).encode()).hexdigest()


def space(
    parameters: Mapping[str, Sequence[Any]],
    constraints: Mapping[str, Callable[[Candidate], bool]] | None = None,
    default: Candidate | None = None,
) -> Space:
    """All combinations of the parameters' values that meet every constraint.

    constraints: name -> whether a candidate is valid. default: the shipped candidate;
    the first valid one if None. Raises SpaceError for a parameter without values or with one twice, a default that is
    not valid, and where nothing is left.
    """
    if not parameters:
        raise SpaceError("the space has no parameters: give at least one, {'block': (64, 128)}")
    values = {name: tuple(given) for name, given in parameters.items()}
    size = 1
    for name, given in values.items():
        if not given:
            raise SpaceError(f"parameter {name!r} has no values")
        if len(set(map(repr, given))) < len(given):
            raise SpaceError(f"parameter {name!r} has a value twice: {', '.join(map(repr, given))}")
        for value in given:
            if not isinstance(value, (bool, int, float, str)):
                raise SpaceError(f"parameter {name!r}: {value!r} is no number, text or boolean, which a journal holds")
        size *= len(given)
    if size > MOST:
        raise SpaceError(f"{size:,} combinations are more than the {MOST:,} that are enumerated: use fewer values")
    found: list[Candidate] = []
    refused: Counter[str] = Counter()
    for chosen in itertools.product(*values.values()):
        candidate = dict(zip(values, chosen, strict=True))
        why = _refusal(candidate, constraints or {})
        refused[why] += bool(why)
        if not why:
            found.append(candidate)
    refused = +refused
    if not found:
        raise SpaceError(f"no candidate of {size:,} is valid: {_counts(refused)}")
    if default is not None:
        if set(default) != set(values):
            raise SpaceError(f"the default has {', '.join(default)}; the space has {', '.join(values)}")
        if why := _refusal(default, constraints or {}):
            raise SpaceError(f"the default {text(default)} is not valid: {why}")
        if default not in found:
            raise SpaceError(f"the default {text(default)} is none of the candidates")
        found.sort(key=lambda one: one != default)  # stable: the others keep their order
    return Space(values, tuple(found), dict(refused))


def _refusal(candidate: Candidate, constraints: Mapping[str, Callable[[Candidate], bool]]) -> str:
    for name, holds in constraints.items():
        try:
            if not holds(candidate):
                return name
        except Exception as error:
            raise SpaceError(
                f"constraint {name!r} raises {type(error).__name__}: {error}, of {text(candidate)}"
            ) from error
    return ""


def _counts(refused: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} by {name!r}" for name, count in sorted(refused.items(), key=lambda one: -one[1]))


def of_stage(stage: Stage, problem: Problem, gpu: Any = None) -> Space:
    """A stage's tiles for a problem on a GPU: those of which a block fits, the one of least predicted cost first.

    Raises SpaceError if the stage has no choice of tiles, does not take the problem, or no tile fits, and says why.
    """
    here = gpus.of(gpu)
    if stage.tiles is None:
        raise SpaceError(f"{stage.id} has no tiles: there is nothing to tune")
    if why := stage.why_not(problem, here):
        raise SpaceError(f"{stage.id} does not take {problem}: {why}")
    fits, refused = [], 0
    for config in stage.tiles.configs(problem.kernel_key, problem.N, here):
        if here.blocks_per_sm(stage.tiles.resources(problem.kernel_key, config)):
            fits.append(config)
        else:
            refused += 1
    default = stage.config(problem, here, measured=False)  # what was measured moves no place in a space
    fits = sorted(dict.fromkeys(fits), key=lambda one: one != default)
    names = [one.name for one in fields(TileConfig)]
    values = {name: tuple(sorted({getattr(one, name) for one in fits})) for name in names}
    varied = {name: given for name, given in values.items() if len(given) > 1}
    rejected = {"a block does not fit on a multiprocessor": refused} if refused else {}
    return Space(varied, tuple(asdict(one) for one in fits), rejected)


def model_order(stage: Stage, problem: Problem, found: Space, gpu: Any = None) -> list[int]:
    """Places in a stage's space, the least predicted time first (`Tiles.cost`), the default before all."""
    here = gpus.of(gpu)
    times = [stage.tiles.cost(problem.kernel_key, problem.N, TileConfig(**one), here).time for one in found.candidates]
    return sorted(range(len(found)), key=lambda i: (i != 0, times[i], i))
