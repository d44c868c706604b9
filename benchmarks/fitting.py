"""Constants by least squares, for the benchmarks that fit a model to records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def fit(off: Callable[[np.ndarray], np.ndarray], start: np.ndarray, turns: int = 60) -> np.ndarray:
    """Positive constants with the least sum of squares of `off`, from `start` on: Levenberg and Marquardt's way.

    off: logarithms of the constants -> what is to be small, such as logarithms of predicted over measured times.
    """
    logs, damping = np.log(start), 1e-2
    now = off(logs)
    for _ in range(turns):
        slopes = np.stack([(off(logs + step) - now) / 1e-4 for step in 1e-4 * np.eye(len(logs))], axis=1)
        square = slopes.T @ slopes
        step = np.clip(np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-9), -slopes.T @ now), -1, 1)
        there = off(logs + step)
        if there @ there < now @ now:
            logs, now, damping = logs + step, there, damping / 3
        else:
            damping *= 5
    return np.exp(logs)
