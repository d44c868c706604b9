"""Traffic of a loop's loads, each iteration's at the same elements moved on: one count for each start in a sector."""

import functools
from collections.abc import Callable

import numpy as np

from dwlab.kernels.traffic import warp_traffic


def shifted(elements: np.ndarray, on: np.ndarray, sector: int) -> Callable[[int], np.ndarray]:
    """by -> [requests, sectors] of loads at elements + by where `on`, threads on the last axis; sector: in elements."""

    @functools.cache
    def at_place(by: int) -> np.ndarray:
        return warp_traffic(np.where(on, elements + by, -1).reshape(-1, elements.shape[-1]), sector)

    return lambda by: at_place(by % sector)
