"""``python -m dwlab tune --report``: what searches lose against recorded sweeps, a row a problem.

Each strategy searches the sweep again with a budget of 5 % of the space. Its regret is the recorded median of what it
takes over the least of the sweep, less 1; of random and of Optuna the mean over SEEDS.
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from dwlab.kernels.tiling import tuned
from dwlab.problems import layers
from dwlab.records import terminal
from dwlab.records.journal import Journal, Key, Tried
from dwlab.tuning import replay, strategies
from dwlab.tuning.space import Space, subject

PART = 0.05
SEEDS = range(20)

NOTHING = (
    "no sweep is recorded there: on a GPU, python benchmarks/sweep.py makes them, or for one problem "
    "python -m dwlab tune STAGE PROBLEM --strategy exhaustive --journal FILE"
)


class ReportError(ValueError):
    """A folder or file without sweeps; the message says how to make one."""


@dataclass(frozen=True)
class Row:
    """A sweep. space: valid candidates; measured: those that were right and timed, none if they were counted; at:
    candidates of a search.

    Regrets are fractions: model, random, optuna at that number, default of the shipped candidate; None: not known.
    counted: what stands for times was counted. note: why something is not known.
    """

    stage: str
    problem: str
    dtype: str
    gpu: str
    space: int
    measured: int
    at: int
    best_us: float
    default: float | None
    model: float | None
    random: float
    optuna: float | None
    counted: bool
    note: str = ""


def row(key: Key, tried: dict[str, Tried]) -> Row:
    """What searches lose against a whole sweep. Raises ReplayError if no candidate was right."""
    found, order, note = _ordered(key, tried)
    sweep = replay.Sweep(found, tried.values())
    at = max(1, math.ceil(PART * len(found)))

    def mean(make: object) -> float:
        return statistics.mean(replay.regret_at(sweep, make(seed), [at])[0] for seed in SEEDS)  # type: ignore[operator]

    measured = 0 if key.counted else sum(one.ok for one in tried.values())
    default = sweep.regret(0) if order is not None else math.inf
    return Row(
        key.subject, key.problem, key.dtype, key.gpu, len(found), measured, at,
        sweep.best_us, default if math.isfinite(default) else None,
        None if order is None else replay.regret_at(sweep, strategies.ordered(order), [at])[0],
        mean(strategies.random), mean(strategies.optuna) if importlib.util.find_spec("optuna") else None,
        key.counted, note,
    )  # fmt: skip


def _ordered(key: Key, tried: dict[str, Tried]) -> tuple[Space, list[int] | None, str]:
    """The recorded space, the model's order of it, and why there is none: a stage or a tile of another time."""
    try:
        what, problem = subject(key.subject), layers.stored(layers.problem(key.problem), key.dtype)
        gpu = replay.gpu_of(key)
        found = replay.recorded_space(tried, what.default(problem, gpu))
        return found, what.order(problem, found, gpu), ""
    except Exception as error:  # what was recorded outlives stages, their fields and their models
        return replay.recorded_space(tried), None, f"no model orders it today ({type(error).__name__}: {error})"


def rows(journals: Iterable[Path]) -> list[Row]:
    """Of every whole sweep of some journals; of others stderr says why they have no row."""
    found = []
    for path in journals:
        journal = Journal(path)
        known = journal.keys()
        if journal.message():
            print(f"dwlab: {journal.message()}", file=sys.stderr)
        for key, tried in known.values():
            if not replay.is_whole(key, tried):
                print(f"dwlab: {path}: {key.subject} on {key.problem} was tried in part: left out", file=sys.stderr)
                continue
            try:
                found.append(row(key, tried))
            except replay.ReplayError as error:
                print(f"dwlab: {path}: {key.subject} on {key.problem}: {error}", file=sys.stderr)
    return found


def table(found: list[Row], columns: int | None = None) -> str:
    """A row a sweep, and what the regrets are in the middle."""

    def percent(regret: float | None) -> str:
        return "–" if regret is None else f"{regret:.1%}"

    head = ["stage", "problem", "gpu", "space", "measured", "tried", "default", "model", "random", "optuna"]
    body = [
        [
            one.stage, one.problem, one.gpu, str(one.space), str(one.measured), str(one.at), percent(one.default),
            percent(one.model), percent(one.random), percent(one.optuna),
        ]
        for one in found
    ]  # fmt: skip
    lines = [terminal.table(head, body, (0, 1, 2), columns=columns, cut=1, spare=(2, 4)), ""]
    models = sorted(one.model for one in found if one.model is not None)
    if models:
        tenth = models[min(len(models) - 1, math.ceil(0.9 * len(models)) - 1)]
        lines.append(
            f"regret of the model's search with {PART:.0%} of the space: median {statistics.median(models):.1%}, "
            f"90th percentile {tenth:.1%}; random: median {statistics.median(one.random for one in found):.1%}"
        )
    if any(one.optuna is None for one in found):
        lines.append("Optuna is not installed: its column is empty (pip install '.[search]')")
    if any(one.counted for one in found):
        lines.append("rows whose gpu is none: nothing was measured there, what was compared was counted")
    lines += [f"{one.stage} on {one.problem}: {one.note}" for one in found if one.note]
    return "\n".join(lines)


def main(place: str, as_json: bool) -> int:
    """Prints the report of a folder's journals, or of one; "" is the folder that ships. Raises ReportError for a place
    that does not exist.
    """
    path = Path(place or tuned.FOLDER)
    if place and not path.exists():
        raise ReportError(f"there is no {place}: {NOTHING.partition(': ')[2]}")
    found = rows(tuned.journals(path)) if path.exists() else []
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1, ensure_ascii=False))
    elif found:
        print(table(found, terminal.width()))
    else:
        print(f"{path.name}: {NOTHING}")
    return 0
