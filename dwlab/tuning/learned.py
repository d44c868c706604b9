"""Corrections of a model's order by sweeps of other layers: where its predicted times are wrong in the same way.

Of each candidate the model's error is known: the logarithm of the measured time less that of the predicted one. The
errors of a stage are taken as a Gaussian process (kriging): two of them are the more alike the fewer doublings lie
between the sizes of their tiles, and between the work of their problems; how slow a sweep is as a whole does not count.
The expected error of a candidate is added to its prediction. Of a stage without sweeps that is nothing. `report` leaves
out every sweep of the layer at hand, and also of those near it.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from dwlab.kernels import levels
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import Problem
from dwlab.records.journal import Candidate

SHARED = 0.5
"""The part of an error's variance that is the same for all problems."""
NOISE = 0.1
"""The part of an error's spread in which no other candidate has a part."""

FIELDS = tuple(one.name for one in fields(TileConfig))
SIZES = (*FIELDS, *levels.LEVELS, *levels.INSTRUCTIONS)


@dataclass(frozen=True, eq=False)  # `_solved` keeps by which they are
class Seen:
    """Errors of the model in a sweep, for a stage by its id. place: `place` of its problem; tiles: `sizes` of tiles;
    error: the logarithm of each one's.
    """

    stage: str
    layer: str
    place: np.ndarray
    tiles: np.ndarray
    error: np.ndarray


def layer_of(problem: Problem | str) -> str:
    """The sizes of a layer, whatever its batch, storage type and epilogue: two with the same know of each other."""
    return " ".join(re.findall(r"\b(?!N=)[A-Z]=\d+|stride \d+|->", str(problem)))


def close(some: Sequence[float], others: Sequence[float], doublings: float) -> bool:
    """Whether sizes, as doublings, differ by so many at most, each."""
    return all(abs(a - b) <= doublings for a, b in zip(some, others, strict=True))


def near(one: str, other: str, doublings: float) -> bool:
    """Whether two layers, as `layer_of` has them, are of one kind and each size of theirs is close."""
    if re.sub(r"\d+", "", one) != re.sub(r"\d+", "", other):
        return False
    sizes = ([math.log2(int(size)) for size in re.findall(r"\d+", each)] for each in (one, other))
    return close(*sizes, doublings)


def place(problem: Problem, path: str) -> np.ndarray:
    """A problem's place among others: doublings of its work, and whether it is of float16."""
    return np.array([math.log2(problem.flops_of(path) + 1), problem.dtype == "float16"])


def sizes(candidates: Sequence[Candidate]) -> np.ndarray:
    """Sizes of tiles, and of the compiler's options, as doublings: (candidates, SIZES)."""
    return np.log2([[1 + one.get(name, 0) for name in SIZES] for one in candidates])


def correction(stage: str, here: np.ndarray, tiles: np.ndarray, known: Iterable[Seen]) -> np.ndarray:
    """Additions to the logarithms of a stage's predictions, for these tiles of the problem at this place."""
    same = tuple(one for one in known if one.stage == stage and len(one.error) > 1)
    if not same:
        return np.zeros(len(tiles))
    of, places, there, solved = _solved(same)
    found = alike(tiles, there) * (SHARED + (1 - SHARED) * alike(here[None], places))[:, of] @ solved
    return found - found.mean()


@functools.cache
def _solved(same: tuple[Seen, ...]) -> tuple[np.ndarray, ...]:
    """Which each error is of, their places and tiles, and the covariance solved for the errors."""
    of = np.repeat(np.arange(len(same)), [len(one.error) for one in same])
    places, there = np.array([one.place for one in same]), np.concatenate([one.tiles for one in same])
    error = np.concatenate([one.error - one.error.mean() for one in same])
    problems = SHARED + (1 - SHARED) * alike(places, places)
    covariance = alike(there, there) * problems[of][:, of] + NOISE**2 * np.eye(len(error))
    return of, places, there, np.linalg.solve(covariance, error)


def alike(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(some, others): 1 for the same sizes, the less the more doublings lie between them."""
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1) - 2 * some @ others.T
    return np.exp(-np.sqrt(np.maximum(squares, 0.0)))
