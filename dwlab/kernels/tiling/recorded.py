"""Tiles that the records' times were measured with, of problems where the least cost would be another's.

`dwlab/records/tiles.csv.xz` has stage, problem, and the fields of the tile that are not a TileConfig's own. A row of a
problem without bias, activation and residual holds for those with them, too, where they have none of their own. All of
them hold on GPUs of the records' compute capability with as many multiprocessors.
"""

from __future__ import annotations

import functools

from dwlab import records
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.tiling.gpu import H200, Gpu
from dwlab.problems import Problem
from dwlab.problems.layers import ACTIVATIONS

TABLE = records.FOLDER / "tiles.csv.xz"


ENDS = frozenset({"bias", "activation", "residual", *ACTIVATIONS[1:], "zero_x", "zero_y", "zero_r", "m_r"})
"""Parts of a layer's description that cost every stage and tile about the same."""


def bare(text: str) -> str:
    """A problem's text without these."""
    return " ".join(word for word in text.split() if word.split("=")[0] not in ENDS)


def tiles(id: str, problem: Problem, gpu: Gpu) -> tuple[TileConfig, ...]:
    """The tile of a stage's recorded time of a problem; () if there is none, or not on this kind of GPU."""
    text = str(problem)
    return (_table().get((id, text)) or _table().get((id, bare(text)), ())) if gpu == H200 else ()


@functools.cache
def _table() -> dict[tuple[str, str], tuple[TileConfig]]:
    return {(row["stage"], row["problem"]): (parsed(row["tile"]),) for row in records.csv_rows(TABLE)}


def parsed(text: str) -> TileConfig:
    """A tile by its text: "block_m=64 warps_m=2"."""
    return TileConfig(**{name: int(value) for name, _, value in (one.partition("=") for one in text.split())})
