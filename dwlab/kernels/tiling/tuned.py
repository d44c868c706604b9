"""Tiles that a search found fastest: the winners of journals, which `choose` takes before its own order.

Journals are those of dwlab/records/tuning/ and of the file or folder that DWLAB_JOURNAL names ("off": none at all). A
winner counts for its stage, its problem and storage type, on the GPU of its name, as long as its tile is among those
that the stage has there today: what was timed on an H200 says nothing of an H100. So does one of a search over a whole
path, for the stage that won. Whether it is of an earlier kernel stands in `Tuned.why` and decides nothing. The last of
several counts, those of DWLAB_JOURNAL last.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwlab import records
from dwlab.kernels.tiling.config import TileConfig
from dwlab.kernels.tiling.gpu import Gpu
from dwlab.problems import Problem
from dwlab.records.journal import Journal, JournalError, Key, Tried, unpacked

OPTIONS = "@options"
"""Behind a stage's id: a search of the compiler's options and of instructions for one tile (kernels.levels)."""

VARIABLE = "DWLAB_JOURNAL"
"""Variable of the environment: a journal, or a folder of them, whose winners count too; "off": no journal counts."""

SWITCH = "DWLAB_TUNE"
"""Variable of the environment: "on", and the first launch of a problem searches for it (tuning.running); "off": a
search is none, and gives the default."""

OWN = Path.home() / ".dwlab" / "tuned.jsonl"
"""The journal of searches under DWLAB_TUNE=on where DWLAB_JOURNAL names none."""

first_launch: Callable[[Problem, str], None] | None = None
"""Called with a problem and its path before the first launch: `dwlab` sets it under DWLAB_TUNE=on."""

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


def winners(id: str, problem: Problem, gpu: Gpu, kernel: str = "") -> tuple[Tuned, ...]:
    """The tiles that searches found fastest there, of a stage by its id, the last one first.

    kernel: the stage's digest; with it the reason says whether a winner is of an earlier kernel.
    """
    here = _here()
    return _of(here, id, problem, gpu.name, kernel) if here and gpu.name else ()


def stage_of(path: str, problem: Problem, gpu: str) -> str | None:
    """The name of the stage that the last search over a whole path ("pointwise/forward") found fastest, if any."""
    found = _here().get((path, str(problem), problem.dtype, gpu), ()) if gpu else ()
    its = (tried.candidate.get("stage") for key, tried, _ in reversed(found) if key.sparsity == _sparsity(problem))
    return next(filter(None, its), None)


def options(id: str, problem: Problem, gpu: Gpu, tile: TileConfig) -> tuple[tuple[str, int], ...]:
    """The compiler's options and instructions, but for zeros, that the last search found fastest for a stage's tile."""
    names = vars(tile)
    for key, tried, _ in reversed(_here().get((f"{id}{OPTIONS}", str(problem), problem.dtype, gpu.name), ())):
        if key.sparsity == _sparsity(problem) and names.items() <= tried.candidate.items():
            return tuple((name, value) for name, value in tried.candidate.items() if value and name not in names)
    return ()


class _Winners(dict[tuple[str, ...], tuple[Found, ...]]):
    """(stage or path, problem, storage type, GPU) -> winners, the last one last. A cache's key."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def _given() -> str:
    return os.environ.get(VARIABLE) or (str(OWN) if os.environ.get(SWITCH) == "on" else "")


def own() -> Journal | None:
    """The journal that searches under DWLAB_TUNE=on go into; None where no journal counts."""
    place = Path(_given() or OWN)
    return None if _given() == "off" else Journal(place / OWN.name if place.is_dir() else place)


def reread() -> None:
    """Journals are read anew: one has got a line."""
    _journals.cache_clear()


def _here() -> _Winners:
    return _journals(_given(), FOLDER)


@functools.cache
def _journals(given: str, folder: str) -> _Winners:
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
def _of(here: _Winners, id: str, problem: Problem, gpu: str, kernel: str) -> tuple[Tuned, ...]:
    path, _, stage = id.rpartition("/")
    found = [one for subject in (path, id) for one in here.get((subject, str(problem), problem.dtype, gpu), ())]
    made = []
    for key, tried, name in reversed(found):  # searches of the stage alone come first
        candidate = dict(tried.candidate)
        its = candidate.pop("stage", stage) == stage and key.sparsity == _sparsity(problem)
        if its and (config := _config(candidate)):
            versions = ", ".join((name, *(f"{what} {version}" for what, version in sorted(key.versions.items()))))
            earlier = "; of an earlier kernel" if kernel and key.subject == id and key.kernel != kernel else ""
            made.append(Tuned(config, f"the fastest of a search on {gpu} ({versions}){earlier}"))
    return tuple(made)


def _sparsity(problem: Problem) -> str:
    return getattr(problem, "pattern", "dense")


def _config(candidate: Mapping[str, Any]) -> TileConfig | None:
    try:
        return TileConfig(**candidate)
    except TypeError:  # of another time's fields
        return None
