"""The one type of a tile: what a block, a warp and a thread compute, and what a block takes of a multiprocessor.

A stage has the configurations of a problem (`Tiles.configs`), and says of each what a block of it takes
(`Tiles.resources`) and does (`Tiles.work`). All else, such as pitches and places in shared memory, follows from the
layer and the configuration, and is computed where the kernel is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dwlab.kernels.tiling.cost import Cost, Rates, Work, cost_of
from dwlab.kernels.tiling.gpu import Gpu


@dataclass(frozen=True)
class TileConfig:
    """How work is divided. A field that a kernel has no use for keeps its default.

    block_m, block_n: rows and columns of outputs that a block computes at a time, as a matrix product has them: pixels
    (filters in NCHW) and filters; of a depthwise layer block_n channels. block_k: words of 4 bytes of the summed
    channels in shared memory at a time. warps_m, warps_n, warps_k: warps of a block along each; warps_k share a sum
    (split-K). pipeline_stages: chunks of block_k, or rows of x, that are on chip at a time, the one that is computed
    with and those in flight. vector: elements that a thread has of neighbouring channels. unroll: chunks of channels
    that a warp loads at a time.
    block_h, block_w: rows and columns of the map, where a block's pixels are a rectangle of it. thread_m, thread_n: the
    same of a thread's outputs, or of a strip that a thread slides down, as rows and columns.
    groups: of block_n, or of block_m where a kernel goes from pixels to pixels, that a block computes one after the
    other. split_n: blocks that divide the filters of the same pixels. helper_warps: that copy or compute the depthwise
    layer and have no part of the product.
    inner_n, inner_k: block_n and block_k of the first of two fused products.
    """

    block_m: int = 0
    block_n: int = 0
    block_k: int = 0
    warps_m: int = 1
    warps_n: int = 1
    warps_k: int = 1
    pipeline_stages: int = 1
    vector: int = 1
    unroll: int = 1
    block_h: int = 0
    block_w: int = 0
    thread_m: int = 0
    thread_n: int = 0
    groups: int = 1
    split_n: int = 1
    helper_warps: int = 0
    inner_n: int = 0
    inner_k: int = 0

    @property
    def warps(self) -> int:
        """Warps that compute the product."""
        return self.warps_m * self.warps_n * self.warps_k

    @property
    def threads(self) -> int:
        """Threads of a block of warps."""
        return 32 * (self.warps + self.helper_warps)

    @property
    def warp_m(self) -> int:
        """Rows of a warp's product."""
        return self.block_m // self.warps_m

    @property
    def warp_n(self) -> int:
        """Columns of a warp's product."""
        return self.block_n // self.warps_n


@dataclass(frozen=True)
class Resources:
    """A block's share of a multiprocessor. registers: of a thread, about. shared_bytes: static and dynamic."""

    threads: int
    registers: int = 32
    shared_bytes: int = 0


@dataclass(frozen=True)
class Tiles:
    """A stage's tiles. layer: of one image (Problem.kernel_key); images: how many there are.

    configs(layer, images, gpu): those worth a look, whether a block of them fits on the GPU or not; the first one where
    `work` is None, as by a rule of its own.
    resources(layer, config): what a block takes.
    work(layer, images, config): what a launch does. rates: how fast. The tile of least cost is chosen.
    why_not(layer, config): what is wrong with a measured tile, or ""; None: only those of `configs` are right.
    """

    configs: Callable[[Any, int, Gpu], Iterable[TileConfig]]
    resources: Callable[[Any, TileConfig], Resources]
    work: Callable[[Any, int, TileConfig], Work] | None = None
    rates: Rates = Rates(1)
    why_not: Callable[[Any, TileConfig], str] | None = None

    def cost(self, layer: Any, images: int, config: TileConfig, gpu: Gpu) -> Cost:
        """The predicted time of a launch, in parts; all 0 where there is nothing to choose by."""
        if self.work is None:
            return Cost()
        fit = gpu.blocks_per_sm(self.resources(layer, config))
        return cost_of(self.work(layer, images, config), self.rates, fit, gpu)

    def takes(self, layer: Any, images: int, config: TileConfig, gpu: Gpu) -> bool:
        """Whether a tile is right for a layer and a block of it fits on a GPU."""
        right = config in self.configs(layer, images, gpu) if self.why_not is None else not self.why_not(layer, config)
        return right and gpu.blocks_per_sm(self.resources(layer, config)) > 0
