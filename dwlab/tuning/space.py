"""Candidates of a search: what may be chosen, which choices are valid, and the one that is shipped, which comes first.

`space({"block": (64, 128), "unroll": (1, 2, 4)}, {"fits": lambda c: …})` enumerates. For a problem on a GPU
`subject("pointwise/forward/tensor")` has a stage's tiles, `subject("pointwise/forward")` those of all stages of a path,
`subject("pointwise/forward/tensor@options")` the compiler's options for its tile.
A candidate is a plain dict of numbers, texts and booleans, so that a journal can hold it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwlab.gpu import machine
from dwlab.kernels import choices, levels, registry
from dwlab.kernels.registry import Stage
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import Problem
from dwlab.records.journal import Candidate, text
from dwlab.tuning import learned

MOST = 1_000_000
"""Combinations that are enumerated at most."""

UNTIMED = 2.0
"""Logarithm of how many times as long as the best stage one is expected to take that was never timed."""


class SpaceError(ValueError):
    """A space without candidates, or one that is not valid; the message says which parameter or constraint."""


@dataclass(frozen=True)
class Space:
    """candidates: the valid ones, the default first, then in the order of the parameters' values.

    rejected: constraint -> how many combinations it, and none before it, refused.
    """

    parameters: Mapping[str, tuple[Any, ...]]
    candidates: tuple[Candidate, ...]
    rejected: Mapping[str, int]

    @property
    def digest(self) -> str:
        """SHA-256 of the candidates, by which a journal tells one space from another.

        Their order does not count: another model, and so another default, leaves what was measured as it is.
        """
        return digest(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)


def digest(candidates: Iterable[Candidate]) -> str:
    """Digest of any candidates, see `Space.digest`."""
    return hashlib.sha256("\n".join(sorted(map(text, candidates))).encode()).hexdigest()


def space(
    parameters: Mapping[str, Sequence[Any]],
    constraints: Mapping[str, Callable[[Candidate], bool]] | None = None,
    default: Candidate | None = None,
) -> Space:
    """All combinations of the parameters' values that meet every constraint.

    constraints: name -> whether a candidate is valid. default: the shipped candidate;
    the first valid one if None. Raises SpaceError for a parameter without values or with one twice, a default that is
    not valid, and where nothing is left.
    """
    if not parameters or not isinstance(parameters, Mapping):
        raise SpaceError("the space has no parameters: give at least one, {'block': (64, 128)}")
    values = {name: _values(name, given) for name, given in parameters.items()}
    size = math.prod(map(len, values.values()))
    if size > MOST:
        raise SpaceError(f"{size:,} combinations are more than the {MOST:,} that are enumerated: use fewer values")
    found: list[Candidate] = []
    refused: Counter[str] = Counter()
    for chosen in itertools.product(*values.values()):
        candidate = dict(zip(values, chosen, strict=True))
        why = _refusal(candidate, constraints or {})
        refused[why] += bool(why)
        if not why:
            found.append(candidate)
    refused = +refused
    if not found:
        raise SpaceError(f"no candidate of {size:,} is valid: {_counts(refused)}")
    if default is not None:
        if not isinstance(default, Mapping) or set(default) != set(values):
            its = ", ".join(map(str, default)) or "nothing"
            raise SpaceError(f"the default has {its}; the space has {', '.join(values)}")
        if why := _refusal(default, constraints or {}):
            raise SpaceError(f"the default {text(default)} is not valid: {why}")
        if default not in found:
            raise SpaceError(f"the default {text(default)} is none of the candidates")
        found.sort(key=lambda one: one != default)  # stable: the others keep their order
    return Space(values, tuple(found), dict(refused))


def listed(candidates: Sequence[Candidate]) -> Space:
    """The space of these candidates, in this order."""
    names = dict.fromkeys(name for one in candidates for name in one)
    values = {name: tuple(dict.fromkeys(one.get(name) for one in candidates)) for name in names}
    return Space({name: given for name, given in values.items() if len(given) > 1}, tuple(candidates), {})


def _values(name: str, given: Iterable[Any]) -> tuple[Any, ...]:
    """Values of one parameter, NumPy's scalars as Python's. Raises SpaceError."""
    if not isinstance(name, str) or isinstance(given, str) or not isinstance(given, Iterable):
        raise SpaceError(f"parameter {name!r}: {given!r:.80} is to be a text -> its values, {{'block': (64, 128)}}")
    found = [one.item() if isinstance(one, np.generic) else one for one in itertools.islice(given, MOST + 1)]
    if not found:
        raise SpaceError(f"parameter {name!r} has no values")
    if len(found) > MOST:
        raise SpaceError(f"parameter {name!r} has more than the {MOST:,} values that are enumerated: use fewer")
    for value in found:
        if not isinstance(value, (bool, int, float, str)) or (isinstance(value, float) and not math.isfinite(value)):
            raise SpaceError(
                f"parameter {name!r}: {value!r:.80} is no finite number, text or boolean, which a journal holds"
            )
    if len(set(found)) < len(found):  # equal ones, 1 and True, are one value to most kernels
        raise SpaceError(f"parameter {name!r} has a value twice: {', '.join(map(repr, found)):.200}")
    return tuple(found)


def _refusal(candidate: Candidate, constraints: Mapping[str, Callable[[Candidate], bool]]) -> str:
    for name, holds in constraints.items():
        try:
            if not holds(dict(candidate)):
                return name
        except Exception as error:
            raise SpaceError(
                f"constraint {name!r} raises {type(error).__name__}: {error}, of {text(candidate)}"
            ) from error
    return ""


def _counts(refused: Mapping[str, int]) -> str:
    return "; ".join(f"{count:,} by {name!r}" for name, count in sorted(refused.items(), key=lambda one: -one[1]))


@dataclass(frozen=True)
class Subject:
    """A subject of tuning: a stage's tiles, or which stage of a path, with each tile of those that have some.

    id: "pointwise/forward/tensor", or "pointwise/forward". A candidate of a path has the stage's name beside the tile.
    """

    id: str
    stages: tuple[Stage, ...]

    @property
    def path(self) -> str:
        """The path of its stages."""
        return self.stages[0].path

    @property
    def digest(self) -> str:
        """Digest of its kernels: the stage's own, or one of all of them."""
        digests = [one.digest for one in self.stages]
        return digests[0] if self.is_stage else hashlib.sha256("\n".join(digests).encode()).hexdigest()

    @property
    def is_stage(self) -> bool:
        """Whether it is one stage."""
        return self.id.removesuffix(tuned.OPTIONS) == self.stages[0].id

    @property
    def has_options(self) -> bool:
        """Whether the compiler's options are what is searched."""
        return self.id.endswith(tuned.OPTIONS)

    def takers(self, problem: Problem, gpu: Any = None) -> list[Stage]:
        """Its stages that take a problem themselves on a GPU."""
        return [one for one in self.stages if not one.why_not(problem, gpu)]

    def stage(self, candidate: Candidate) -> Stage:
        """The stage that a candidate is: with its tile and the compiler's options, if it has any."""
        found = next(one for one in self.stages if one.name == self.name(candidate))
        if found.tiles is None:
            return found
        names = (*levels.LEVELS, *levels.INSTRUCTIONS)
        return found.with_config(
            _tile(candidate), tuple((name, candidate[name]) for name in names if candidate.get(name))
        )

    def default(
        self,
        problem: Problem,
        gpu: Any = None,
        measured: bool = False,
        known: Sequence[choices.Sample] | None = None,
    ) -> Candidate:
        """The shipped candidate: the stage that is expected to be fastest, with its tile.

        measured: what is launched, by times of the problem itself and searches too. known: what was timed of its
        stages, in place of all records.
        """
        here = gpus.of(gpu)
        takers = self.stages if self.is_stage else _fastest(self.takers(problem, gpu), problem, here, known)
        one = choices.ranking(problem, self.path, here.name or None, among=takers)[0] if measured else takers[0]
        tile = dict(vars(one.config(problem, gpu, measured=measured) or TileConfig()))
        if self.has_options:
            return tile | dict.fromkeys(self._levels(problem, gpus.of(gpu)), 0)
        return tile if self.is_stage else {"stage": one.name} | tile

    def space(self, problem: Problem, gpu: Any = None) -> Space:
        """The tiles of which a block fits, the shipped candidate first.

        Raises SpaceError if there is no choice of tiles, the problem is not taken, or no tile fits, and says why.
        """
        here, layer, fits, refused = gpus.of(gpu), getattr(problem, "kernel_key", problem), [], 0
        if self.is_stage:
            self._check(problem, here)
        if self.has_options:
            tile = {name: (value,) for name, value in vars(self.stages[0].config(problem, here)).items()}
            own = self._levels(problem, here)
            found = space(tile | own, levels.CONSTRAINTS, self.default(problem, here, measured=True))
            return Space(own, found.candidates, found.rejected)
        for one in self.takers(problem, here):
            if one.tiles is None:
                fits.append({"stage": one.name} | vars(TileConfig()))
                continue
            shipped = one.config(problem, here, measured=False)  # a recorded tile may be none of those that are listed
            listed = one.tiles.configs(layer, problem.N, here)
            for config in dict.fromkeys(listed if shipped is None else (shipped, *listed)):
                if here.blocks_per_sm(one.tiles.resources(layer, config)):
                    fits.append(({} if self.is_stage else {"stage": one.name}) | vars(config))
                else:
                    refused += 1
        if not fits:
            raise SpaceError(f"no stage of {self.id} takes {problem}")
        default = self.default(problem, here)  # what was measured moves no place in a space
        fits.sort(key=lambda one: one != default)
        values = {name: tuple(sorted({one[name] for one in fits})) for name in fits[0]}
        varied = {name: given for name, given in values.items() if len(given) > 1}
        return Space(varied, tuple(fits), {"a block does not fit on a multiprocessor": refused} if refused else {})

    def _levels(self, problem: Problem, here: gpus.Gpu) -> dict[str, tuple[int, ...]]:
        only = self.stages[0]
        kernel = only.kernel.for_problem(problem, only.config(problem, here), here)
        return levels.of_kernel(kernel, here.compute_capability)

    def _check(self, problem: Problem, here: gpus.Gpu) -> None:
        only = self.stages[0]
        if only.tiles is None:
            raise SpaceError(f"{self.id} has no tiles: there is nothing to tune")
        if problem.op != only.op:
            raise SpaceError(f"{self.id} computes {only.op}; {problem} is a problem of {problem.op}")
        if why := only.why_not(problem, here):
            raise SpaceError(f"{self.id} does not take {problem}: {why}")

    def by_stage(self, candidates: Sequence[Candidate]) -> list[tuple[str, np.ndarray]]:
        """(id, places of its candidates) of each of its stages that has some; of options with their mark."""
        names = np.array([self.name(one) for one in candidates])
        places = [(self.id if self.is_stage else one.id, np.flatnonzero(names == one.name)) for one in self.stages]
        return [(id, here) for id, here in places if len(here)]

    def name(self, candidate: Candidate) -> str:
        """Name of the candidate's stage."""
        return candidate.get("stage", self.stages[0].name)

    def predicted(
        self,
        problem: Problem,
        found: Space,
        gpu: Any = None,
        known: Sequence[choices.Sample] | None = None,
        seen: Sequence[learned.Seen] = (),
    ) -> np.ndarray:
        """The logarithm of each candidate's predicted time: of a stage's tiles by `Tiles.cost`; of a stage by what it
        is expected to take (kernels.choices), UNTIMED more than the best if it was never timed. Of a path of which some
        stages were timed, of microseconds.

        known: what was timed of its stages, in place of all records. seen: what sweeps of other layers say of where the
        predictions are wrong (`replay.seen`).
        """
        here, layer = gpus.of(gpu), getattr(problem, "kernel_key", problem)
        expected = {} if self.is_stage else _expected(self.stages, problem, here, known)
        names, tiles = [self.name(one) for one in found.candidates], {one.name: one.tiles for one in self.stages}
        costs = [
            1.0 if (its := tiles[self.name(one)]) is None else its.cost(layer, problem.N, _tile(one), here).time
            for one in found.candidates
        ]
        least = {name: min(c for n, c in zip(names, costs, strict=True) if n == name) for name in set(names)}
        untimed = min(expected.values(), default=0.0) + UNTIMED
        sheet = machine.datasheet(here.name) if expected else None
        work = problem.compulsory_bytes(self.path), problem.flops_of(self.path)
        scale = math.log(choices.least_us(*work, vars(sheet.ceilings))) if sheet and sheet.ceilings else 0.0
        logs = np.array([
            scale
            + (0.0 if self.is_stage else expected.get(name, untimed))
            + (math.log(cost / least[name]) if least[name] > 0 else 0.0)
            for name, cost in zip(names, costs, strict=True)
        ])  # fmt: skip
        place, sizes = learned.place(problem, self.path), learned.sizes(found.candidates)
        for id, its in self.by_stage(found.candidates):
            logs[its] += learned.correction(id, place, sizes[its], seen)
        return logs


def subject(id: str) -> Subject:
    """The subject of a stage's id, with tuned.OPTIONS or not, or of "OP/PATH", a path's stages. Raises StageError."""
    if id.count("/") == 1:
        return Subject(id, registry.stages(*id.split("/")))
    return Subject(id, (registry.stage(id.removesuffix(tuned.OPTIONS)),))


def by(logs: Sequence[float]) -> list[int]:
    """Places by predicted time, the first before all."""
    return sorted(range(len(logs)), key=lambda i: (i != 0, logs[i]))


def _tile(candidate: Candidate) -> TileConfig:
    return TileConfig(**{name: candidate[name] for name in learned.FIELDS if name in candidate})


def _expected(
    stages: Sequence[Stage], problem: Problem, gpu: gpus.Gpu, known: Sequence[choices.Sample] | None = None
) -> dict[str, float]:
    """Stage's name -> logarithm of how many times the least time it is expected to take, of those that were timed."""
    if known is None:
        known = choices.recorded(problem.op).get((problem.op, stages[0].path), ())
    found = choices.expected([one.id for one in stages], problem, known, gpu.name or None)
    return {id.rpartition("/")[2]: taken for id, taken in found.items()}


def _fastest(
    stages: Sequence[Stage], problem: Problem, gpu: gpus.Gpu, known: Sequence[choices.Sample] | None = None
) -> tuple[Stage, ...]:
    if not stages:
        raise SpaceError(f"no stage takes {problem}")
    return choices.fastest(stages, problem, known, gpu.name or None)
