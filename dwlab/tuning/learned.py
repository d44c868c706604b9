"""What sweeps of other layers say of a model's order: where its predicted times are wrong in the same way.

Of each candidate the model's error is known, the logarithm of the measured time less that of the predicted one, both
over the least of their sweep. For each stage ridge regression fits it with the tile's sizes, their products with the
problem's, and the prediction itself; the fast candidates of a sweep count most, and a sweep's level does not count. A
correction of a stage without sweeps is nothing. `report` leaves out every sweep of the layer at hand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import Problem
from dwlab.records.journal import Candidate

RIDGE = 3.0
"""Added to the squares' sums: features are in units of their spread."""
SHARP = 2.0
"""A candidate that takes e times the least counts exp(-SHARP) as much as the fastest."""

FIELDS = tuple(one.name for one in fields(TileConfig))


@dataclass(frozen=True)
class Seen:
    """What one sweep says of a stage. features: (candidates, features); error and slower: logarithms of each."""

    path: str
    stage: str
    layer: str
    features: np.ndarray
    error: np.ndarray
    slower: np.ndarray


def layer_of(problem: Problem | str) -> str:
    """The sizes of a layer, whatever its batch, storage type and epilogue: two with the same know of each other."""
    return " ".join(re.findall(r"\b(?!N=)[A-Z]=\d+|stride \d+|->", str(problem)))


def features(problem: Problem, path: str, candidates: Sequence[Candidate], predicted: np.ndarray) -> np.ndarray:
    """(candidates, features). predicted: logarithms over the least."""
    work = (math.log2(problem.flops_of(path) + 1) - 30) / 4
    half = float(problem.dtype == "float16")
    rows = []
    for one, cost in zip(candidates, predicted, strict=True):
        sizes = [math.log2(1 + one.get(name, 0)) for name in FIELDS]
        warps = math.log2(1 + one.get("warps_m", 1) * one.get("warps_n", 1) * one.get("warps_k", 1))
        area = math.log2(1 + one.get("block_m", 0) * max(1, one.get("block_n", 0)))
        base = np.array([*sizes, warps, area, warps**2 / 4, area**2 / 16])
        rows.append(np.concatenate([[cost], base, base * work, base * half, [cost * work]]))
    return np.array(rows)


def correction(path: str, stage: str, found: np.ndarray, known: Iterable[Seen]) -> np.ndarray:
    """What to add to the logarithms of a stage's predictions, of which these are the features."""
    parts = []
    for one in known:
        if (one.path, one.stage) == (path, stage) and len(one.error) > 1:
            weight = np.exp(-SHARP * (one.slower - one.slower.min()))
            share = weight / weight.sum()
            parts.append((one.features - share @ one.features, one.error - share @ one.error, weight))
    if not parts:
        return np.zeros(len(found))
    rows, errors, weights = (np.concatenate(each) for each in zip(*parts, strict=True))
    spread = rows.std(0)
    kept = spread > 1e-6
    if not kept.any():
        return np.zeros(len(found))
    scaled = rows[:, kept] / spread[kept]
    squares = (scaled * weights[:, None]).T @ scaled + RIDGE * np.eye(scaled.shape[1])
    here = found[:, kept] / spread[kept]
    return (here - here.mean(0)) @ np.linalg.solve(squares, (scaled * weights[:, None]).T @ errors)
