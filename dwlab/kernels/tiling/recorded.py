"""Tiles that the records' times were measured with, of problems where the least cost would be another's.

`dwlab/records/tiles.csv` has stage, problem, and the fields of the tile that are not a TileConfig's own. They hold on
GPUs of their compute capability with as many multiprocessors.
"""

from __future__ import annotations

import csv
import functools

from dwlab import records
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.tiling.gpu import H200, Gpu
from dwlab.problems import Problem

TABLE = records.FOLDER / "tiles.csv"


def tiles(id: str, problem: Problem, gpu: Gpu) -> tuple[TileConfig, ...]:
    """The tile of a stage's recorded time of a problem; () if there is none, or not on this kind of GPU."""
    return _table().get((id, str(problem)), ()) if gpu == H200 else ()


@functools.cache
def _table() -> dict[tuple[str, str], tuple[TileConfig]]:
    with TABLE.open(encoding="utf-8", newline="") as stream:
        return {(row["stage"], row["problem"]): (parsed(row["tile"]),) for row in csv.DictReader(stream)}


def parsed(text: str) -> TileConfig:
    """A tile by its text: "block_m=64 warps_m=2"."""
    return TileConfig(**{name: int(value) for name, _, value in (one.partition("=") for one in text.split())})
