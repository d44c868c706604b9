"""Tiles that a search found fastest: the winners of journals, which `choose` takes before its own order.

Journals are those of dwlab/records/tuning/ and of the file or folder that DWLAB_JOURNAL names ("off": none at all). A
winner counts for its stage with today's kernel (`Stage.digest`), its problem and storage type, on the GPU of its name:
what was timed on an H200 says nothing of an H100 here. Of several the last one counts, those of DWLAB_JOURNAL last.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwlab import records
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.tiling.gpu import Gpu
from dwlab.problems import Problem
from dwlab.records.journal import Journal, JournalError, Key, Tried, unpacked

VARIABLE = "DWLAB_JOURNAL"
"""In the environment: a journal, or a folder of them, whose winners count too; "off": no journal counts."""

FOLDER = str(records.FOLDER / "tuning")
"""The journals that ship."""


@dataclass(frozen=True)
class Tuned:
    """A tile, and which measurement says that it is the fastest."""

    config: TileConfig
    why: str


Found = tuple[Key, Tried, str]
"""A winner and the name of its journal."""


def journals(place: str | os.PathLike[str]) -> list[Path]:
    """A journal itself, or those of a folder, packed or not, by name."""
    path = Path(place)
    if not path.is_dir():
        return [unpacked(path)]
    return sorted({unpacked(one) for one in path.glob("*.jsonl*")})


def winner(id: str, file: str, problem: Problem, gpu: Gpu) -> Tuned | None:
    """The tile that a search found fastest there, of a stage by its id and file; None if none was made."""
    here = _winners(os.environ.get(VARIABLE, ""), FOLDER)
    if not here or not gpu.name:
        return None
    return _of(here, id, file, problem, gpu.name)


class _Winners(dict[tuple[str, ...], tuple[Found, ...]]):
    """(stage, problem, storage type, GPU) -> winners, the last one last. One object a process: a key of a cache."""

    __hash__ = object.__hash__  # type: ignore[assignment]


@functools.cache
def _winners(given: str, folder: str) -> _Winners:
    found = _Winners()
    paths = [] if given == "off" else [*journals(folder)] if Path(folder).is_dir() else []
    for path in [*paths, *(journals(given) if given not in ("", "off") else [])]:
        try:
            lines = Journal(path).winners()
        except JournalError:  # who names a journal to `tune` hears of it; a launch is no place to
            continue
        for key, tried in lines:
            place = key.subject, key.problem, key.dtype, key.gpu
            found[place] = (*found.get(place, ()), (key, tried, path.name))
    return found


@functools.lru_cache(1 << 12)
def _of(winners: _Winners, id: str, file: str, problem: Problem, gpu: str) -> Tuned | None:
    from dwlab.kernels import digests

    for key, tried, name in reversed(winners.get((id, str(problem), problem.dtype, gpu), ())):
        its = key.kernel == digests.of_stage(file) and key.sparsity == getattr(problem, "pattern", "dense")
        if its and (config := _config(tried.candidate)):
            measured = ", ".join((name, *(f"{what} {version}" for what, version in sorted(key.versions.items()))))
            return Tuned(config, f"the fastest of a search on {gpu} ({measured})")
    return None


def _config(candidate: Mapping[str, Any]) -> TileConfig | None:
    try:
        return TileConfig(**candidate)
    except TypeError:  # of another time's fields
        return None
