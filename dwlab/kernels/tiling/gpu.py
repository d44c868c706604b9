"""The GPU that tiles are chosen for: how many multiprocessors it has, and what a block of its kind may take.

It is the GPU at hand; an H200 where there is none, whose tiles all that is recorded was timed with. `using` takes
another, for as long as something is planned or compiled for it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dwlab.gpu import machine, occupancy, target

VARIABLE = "DWLAB_TILES_FOR"
"""The environment's name of the GPU that processes compile for, "9.0 132 NVIDIA H200"."""


@dataclass(frozen=True)
class Gpu:
    """A compute capability, and how many multiprocessors there are. name: the driver's, "" if nobody said it.

    The name only says whose measured times hold (tiling.tuned): GPUs that differ in nothing else are equal.
    """

    compute_capability: tuple[int, int]
    sms: int
    name: str = field(default="", compare=False)

    @property
    def limits(self) -> occupancy.Limits:
        """Limits of its compute capability; of one that is not in the table those of the newest before it."""
        return _limits(self.compute_capability)

    def blocks_per_sm(self, takes: Any) -> int:
        """Blocks that live on a multiprocessor at the same time; 0 if one does not fit. takes: config.Resources."""
        return _occupancy(takes.threads, takes.registers, takes.shared_bytes, self.limits.compute_capability)[0]

    def why_not(self, takes: Any) -> str:
        """The reason why a block that takes so much does not fit, or ""."""
        return _occupancy(takes.threads, takes.registers, takes.shared_bytes, self.limits.compute_capability)[1]

    def __str__(self) -> str:
        return f"compute capability {'.'.join(map(str, self.compute_capability))}, {self.sms} multiprocessors"


@functools.lru_cache(1 << 16)
def _occupancy(threads: int, registers: int, shared_bytes: int, cc: tuple[int, int]) -> tuple[int, str]:
    found = occupancy.occupancy(threads, registers, shared_bytes, cc)
    return found.blocks_per_sm, " ".join(found.exceeded)


@functools.cache
def _limits(cc: tuple[int, int]) -> occupancy.Limits:
    return occupancy.LIMITS[max((key for key in occupancy.LIMITS if key <= cc), default=min(occupancy.LIMITS))]


MULTIPROCESSORS = 132
H200 = Gpu((9, 0), MULTIPROCESSORS, "NVIDIA H200")
"""The GPU that the stages' rates were fitted on, and that records' tiles are of."""

_instead: list[Gpu] = []


@contextlib.contextmanager
def using(gpu: Any) -> Iterator[Gpu]:
    """Within it `at_hand` is this GPU, as `of` takes it."""
    _instead.append(of(gpu))
    try:
        yield _instead[-1]
    finally:
        _instead.pop()


def at_hand() -> Gpu:
    """The GPU in this machine; an H200 in simulated mode."""
    return _instead[-1] if _instead else _at_hand(os.environ.get(VARIABLE, ""))


@functools.cache
def _at_hand(given: str) -> Gpu:
    if given:
        capability, sms, *name = given.split(maxsplit=2)
        return Gpu(occupancy.capability(capability), int(sms), *name)
    return of(machine.present()) if target.mode == "gpu" else H200


def environment() -> dict[str, str]:
    """The environment of a process that has the same GPU at hand as this one."""
    here = at_hand()
    return {VARIABLE: f"{'.'.join(map(str, here.compute_capability))} {here.sms} {here.name}".strip()}


def of(gpu: Any) -> Gpu:
    """A GPU: of None the one at hand, of a Machine what it has, of a compute capability (8, 6) an example of its kind.

    That is the one in dwlab.gpu.occupancy.LIMITS, or the GPU at hand if it is of that kind.
    """
    if gpu is None:
        return at_hand()
    if isinstance(gpu, Gpu):
        return gpu
    if isinstance(gpu, tuple):
        here = at_hand()
        return here if here.compute_capability == gpu else Gpu(gpu, _limits(gpu).example[1])
    return Gpu(tuple(gpu.compute_capability), gpu.sms, getattr(gpu, "name", ""))
