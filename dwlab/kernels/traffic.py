"""Global-memory traffic: what a stage's formula predicts, what the interpreter counts, what a GPU's counters said.

Requests and sectors as dwlab.simt counts them: a request is one warp executing one global access with at least one
active lane; its sectors are the distinct 32-byte pieces that its lanes touch. Nothing between the warp and the sectors
is assumed to cache, so a sector requested twice counts twice. Arrays start at a multiple of 256 bytes. Elements are
float32: 8 to a sector. The formulas beside the kernels are put together from the functions here, which know shapes and
alignment only and share no code with the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

SECTOR_BYTES = 32
SECTOR_ELEMENTS = 8
WARP = 32
COUNTS = ("load_requests", "load_sectors", "store_requests", "store_sectors", "atomic_requests", "atomic_sectors")
"""The fields of Traffic that are numbers."""


@dataclass(frozen=True)
class Traffic:
    """Requests and sectors of all global loads, stores and atomics of a launch.

    `exact`: the formula claims to equal the count; otherwise it is an estimate. What sets an output to 0 before the
    launch is no part of it.
    """

    load_requests: int
    load_sectors: int
    store_requests: int
    store_sectors: int
    exact: bool = True
    atomic_requests: int = 0
    atomic_sectors: int = 0

    def __post_init__(self) -> None:
        for name in COUNTS:
            object.__setattr__(self, name, int(getattr(self, name)))  # NumPy's integers are not JSON's

    @property
    def requests(self) -> int:
        """Loads, stores and atomics."""
        return self.load_requests + self.store_requests + self.atomic_requests

    @property
    def sectors(self) -> int:
        """Loads, stores and atomics."""
        return self.load_sectors + self.store_sectors + self.atomic_sectors

    @property
    def bytes_moved(self) -> int:
        """32 bytes for each sector."""
        return SECTOR_BYTES * self.sectors

    @property
    def sectors_per_request(self) -> float:
        """4 is the best that a full warp of 4-byte accesses can do."""
        return self.sectors / self.requests if self.requests else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The numbers by name, for JSON."""
        return {name: getattr(self, name) for name in (*COUNTS, "bytes_moved", "exact")}


def run_sectors(first: Any, count: Any) -> np.ndarray:
    """Sectors of `count` neighbouring elements from element `first` on; 0 where count is 0. Arrays broadcast."""
    first, count = np.asarray(first, np.int64), np.asarray(count, np.int64)
    return np.where(count > 0, (first + count - 1) // SECTOR_ELEMENTS - first // SECTOR_ELEMENTS + 1, 0)


def phases(count: int, pitch: int) -> np.ndarray:
    """How many of the elements 0, pitch, 2*pitch, … (count-1)*pitch lie at each of the 8 places in a sector."""
    index = np.arange(SECTOR_ELEMENTS)
    # The place of the i-th depends on i modulo 8 alone.
    repeats = (count - index + SECTOR_ELEMENTS - 1) // SECTOR_ELEMENTS
    found = np.zeros(SECTOR_ELEMENTS, np.int64)
    np.add.at(found, (index * (pitch % SECTOR_ELEMENTS)) % SECTOR_ELEMENTS, np.maximum(repeats, 0))
    return found


def rows_sectors(rows: int, pitch: int, first: Any, count: Any) -> int:
    """Sectors of the same runs in every one of `rows` rows, `pitch` elements apart: run i starts `first[i]` into it."""
    return sum(
        int(rows_here) * int(run_sectors(place + np.asarray(first, np.int64), count).sum())
        for place, rows_here in enumerate(phases(rows, pitch))
        if rows_here
    )


def pieces(n: int, size: int, per_sector: int = SECTOR_ELEMENTS) -> list[tuple[int, int, int]]:
    """Groups of `size` among n things, alike ones together: (start of the first, things in a group, how many groups).

    Full groups are alike if their starts are equal modulo per_sector: their elements lie alike in their sectors. What
    is left over makes a smaller group of its own.
    """
    full, left = divmod(n, size)
    alike: dict[int, tuple[int, int]] = {}
    for group in range(min(full, per_sector)):
        start = group * size
        known, times = alike.get(start % per_sector, (start, 0))
        alike[start % per_sector] = (known, times - (group - full) // per_sector)
    return [(start, size, times) for start, times in alike.values()] + ([(full * size, left, 1)] if left else [])


def alike(count: int, *pitches: int, per_sector: int = SECTOR_ELEMENTS) -> list[tuple[int, int]]:
    """Images that lie alike in their sectors, in all of their arrays: (one of them, how many there are).

    pitches: elements of an image in each array. What one of them requests, each of them does.
    """
    kinds = grouped(range(count), lambda image: tuple(image * pitch % per_sector for pitch in pitches))
    return [(image, often) for _, image, often in kinds]


def grouped(things: Iterable[int], kind: Callable[[int], Any]) -> list[tuple[Any, int, int]]:
    """(kind, the last of that kind, how many there are) of each kind of things."""
    found: dict[Any, tuple[int, int]] = {}
    for one in things:
        found[kind(one)] = one, found.get(kind(one), (0, 0))[1] + 1
    return [(kind, one, count) for kind, (one, count) in found.items()]


def warp_traffic(elements: Any, per_sector: int = SECTOR_ELEMENTS) -> np.ndarray:
    """[requests, sectors] of accesses by whole blocks: elements (accesses, threads), -1 where a thread takes no part.

    Threads stand in hardware order; each 32 neighbours are a warp. per_sector: elements of 32 bytes, 8 of float32.
    """
    sectors = _sectors_of_warps(np.atleast_2d(np.asarray(elements, np.int64)), per_sector)
    return np.array([np.count_nonzero(sectors), sectors.sum()])


def small_maps(problem) -> bool:
    """Whether 31 bits count the elements of x, and those of y: so a kernel's indices fit int32."""
    return max(math.prod(problem.shapes()[name]) for name in "xy") < 2**31


def iterations(count: int, threads: int) -> np.ndarray:
    """(iteration, thread) -> which of `count` items a thread of a block takes in each iteration, -1 beyond the last."""
    item = np.arange(-(-count // threads) * threads).reshape(-1, threads)
    return np.where(item < count, item, -1)


def within(first: Any, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """(first, count) of what lies in a row of so many elements of the runs of `count` from element `first` on."""
    begin = np.maximum(0, first)
    return begin, np.maximum(0, np.minimum(length, first + count) - begin)


def rows_traffic(
    row: Any, lane: Any, step: int, first: int, count: int, length: int, per_sector: int = SECTOR_ELEMENTS
) -> np.ndarray:
    """[requests, sectors] of a block that goes through `count` times of its rows, from time `first` on, `step` at once.

    row: where each thread's begins, -1 if it has none; lane: its first time, counted from `first`. Times outside of a
    row, of which each has `length`, are left out.
    """
    i = lane + np.arange(0, count, step)[:, None]
    inside = (row >= 0) & (i < count) & (0 <= first + i) & (first + i < length)
    return warp_traffic(np.where(inside, row + first + i, -1), per_sector)


def sectors_by_place(elements: Any) -> np.ndarray:
    """Sectors of one access with all its elements moved on by 0, 1, … 7: 8 numbers. -1 as in warp_traffic."""
    elements = np.asarray(elements, np.int64)
    moved = elements + np.arange(SECTOR_ELEMENTS)[:, None]
    return _sectors_of_warps(np.where(elements < 0, -1, moved)).sum(axis=1)


def _sectors_of_warps(elements: np.ndarray, per_sector: int = SECTOR_ELEMENTS) -> np.ndarray:
    """Distinct sectors of each warp: (accesses, threads) -> (accesses, warps)."""
    accesses, threads = elements.shape
    padded = np.full((accesses, -(-threads // WARP) * WARP), -1, np.int64)
    padded[:, :threads] = np.where(elements < 0, -1, elements // per_sector)
    lanes = np.sort(padded.reshape(accesses, -1, WARP), axis=2)
    fresh = lanes >= 0
    fresh[..., 1:] &= lanes[..., 1:] != lanes[..., :-1]
    return fresh.sum(axis=2)


# ---- predicted against counted


def of_totals(totals: Any) -> Traffic:
    """The traffic in an X-ray's totals."""
    return Traffic(
        totals.global_load_requests,
        totals.global_load_sectors,
        totals.global_store_requests,
        totals.global_store_sectors,
        atomic_requests=totals.requests - totals.global_load_requests - totals.global_store_requests,
        atomic_sectors=totals.global_atomic_sectors,
    )
