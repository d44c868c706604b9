"""The cost of a launch, by one formula for all stages: enough to order the tiles of a stage by.

A stage counts what a block does (`Work`) and names at most six rates (`Rates`). A multiprocessor's blocks start wave
after wave; their products, bytes and waits take place at the same time, so the longest counts; then outputs are stored.
Rates are those of the kernel on an H200, fitted to times of its tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dwlab.kernels.tiling.gpu import Gpu

FLOAT32 = 6
"""Products of 16 bits in whose time tensor cores do one of float32: three of tf32, at half the rate."""


@dataclass(frozen=True)
class Rates:
    """Rates of one multiprocessor.

    products: operations in a ns. read, shared, written: bytes in a ns, from the L2 cache, to and from shared memory, of
    outputs. start: ns until the first loads of a wave of blocks have come. chunk: ns from one chunk to the next where
    nothing else takes longer.
    """

    products: float
    read: float = 60
    shared: float = 200
    written: float = 40
    start: float = 1000
    chunk: float = 250


@dataclass(frozen=True)
class Work:
    """Blocks of a launch, and for one block: operations, bytes read, through shared memory and written, chunks."""

    blocks: int
    products: float
    read: float = 0
    shared: float = 0
    written: float = 0
    chunks: float = 0


class Cost(NamedTuple):
    """The time of each part of a launch, in ns."""

    start: float = 0
    products: float = 0
    read: float = 0
    shared: float = 0
    chunks: float = 0
    written: float = 0

    @property
    def time(self) -> float:
        """The time of the launch: the start, the longest of what is done at the same time, and the outputs."""
        return self.start + max(self.products, self.read, self.shared, self.chunks) + self.written


def cost_of(work: Work, rates: Rates, fit: int, gpu: Gpu) -> Cost:
    """The cost of work by rates on a GPU of which a multiprocessor has room for `fit` blocks."""
    here = share(work.blocks, gpu)
    rounds = waves(work.blocks, min(max(1, fit), here), gpu)
    return Cost(
        rounds * rates.start,
        here * work.products / rates.products,
        here * work.read / rates.read,
        here * work.shared / rates.shared,
        rounds * work.chunks * rates.chunk,
        here * work.written / rates.written,
    )


def share(blocks: int, gpu: Gpu) -> int:
    """Blocks of the multiprocessor that has most."""
    return -(-blocks // gpu.sms)


def waves(blocks: int, resident: int, gpu: Gpu) -> int:
    """How many times blocks start, so many at a time on each multiprocessor."""
    return -(-blocks // (gpu.sms * max(1, resident)))
