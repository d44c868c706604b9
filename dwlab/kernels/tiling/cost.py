"""What a launch costs, in the same named terms for every stage: enough to order the tiles of one stage by.

A stage gives the time of each part of its work (`Cost`); `Cost.time` puts them together: some follow each other, the
others run at the same time on different parts of a multiprocessor, and the longest decides, or nearly (`norm`). The
rates by which work becomes time stand in the stage's file: they are of that kernel on an H200, in ns or in clocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from dwlab.kernels.tiling.gpu import Gpu

TERMS: dict[str, str] = {
    "launch": "the start of the kernel",
    "waves": "the first loads of blocks, wave after wave",
    "latency": "loads, or chunks of a pipeline, one after the other",
    "tensor cores": "mma instructions",
    "issue": "instructions that warps start",
    "shared memory": "bytes to and from shared memory and the L1 cache",
    "L2": "bytes that multiprocessors read, whether the L2 has them or not",
    "device memory": "bytes that must move",
    "throughput": "several of these together, partly at the same time",
    "depthwise": "the depthwise layer of a fused kernel, in a phase of its own",
    "product": "the products of a fused kernel, in a phase of their own",
    "epilogue": "outputs: scaled, rounded, stored",
    "barriers": "of chunks of channels that do not fit at once",
}
"""Name -> what it is."""


@dataclass(frozen=True)
class Cost:
    """serial: terms that add up. overlapped: terms at the same time. norm: of them, 2 for the root of the squares."""

    serial: Mapping[str, float] = field(default_factory=dict)
    overlapped: Mapping[str, float] = field(default_factory=dict)
    norm: float = math.inf

    @property
    def time(self) -> float:
        """Of a launch, in the unit of the stage's rates."""
        together = self.overlapped.values()
        longest = max(together, default=0.0) if self.norm == math.inf else math.hypot(*together)
        return sum(self.serial.values()) + longest


def share(blocks: int, gpu: Gpu) -> int:
    """Blocks of the multiprocessor that has most."""
    return -(-blocks // gpu.sms)


def waves(blocks: int, resident: int, gpu: Gpu) -> int:
    """How many times blocks start, so many at a time on each multiprocessor."""
    return -(-blocks // (gpu.sms * max(1, resident)))
