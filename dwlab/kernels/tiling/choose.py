"""The tile that a stage has for a problem on a GPU: a measured one, or of those of which a block fits the cheapest."""

from __future__ import annotations

import functools
from typing import Any

from dwlab.kernels.tiling.config import TileConfig, Tiles
from dwlab.kernels.tiling.gpu import Gpu


@functools.cache
def choose(tiles: Tiles, layer: Any, images: int, gpu: Gpu, measured: tuple[TileConfig, ...] = ()) -> TileConfig | None:
    """The configuration of least cost for so many images of a layer, of equal ones the first; None where none fits.

    measured: the first of these that the stage takes there comes before it.
    """
    for one in measured:
        if tiles.takes(layer, images, one, gpu):
            return one
    fits = (one for one in tiles.configs(layer, images, gpu) if gpu.blocks_per_sm(tiles.resources(layer, one)))
    return min(fits, key=lambda one: tiles.cost(layer, images, one, gpu).time, default=None)


@functools.cache
def why_not(tiles: Tiles, layer: Any, images: int, gpu: Gpu) -> str:
    """The reason why no configuration fits on a GPU, said of the one of least shared memory; "" if one fits."""
    least, reason = None, "there is no tile for its sizes"
    for one in tiles.configs(layer, images, gpu):
        takes = tiles.resources(layer, one)
        why = gpu.why_not(takes)
        if not why:
            return ""
        if least is None or takes.shared_bytes < least:
            least, reason = takes.shared_bytes, why
    return reason
