"""``python -m dwlab tune --report``: what searches lose against recorded sweeps, a row a problem.

Each strategy searches the sweep again with a budget of 5 % of the space. Its regret is the recorded median of what it
takes over the least of the sweep, less 1; of random and of Optuna the mean over SEEDS. The model knows no time of the
problem at hand, nor one of its layer at another batch.

docs/results/tuning.md has the same at several budgets, and what one GPU's fastest is worth on another.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dwlab.kernels import choices
from dwlab.kernels.registry import StageError
from dwlab.kernels.tiling import tuned
from dwlab.problems import Problem, layers
from dwlab.records.journal import Journal, Key, Tried, text
from dwlab.text import terminal
from dwlab.tuning import replay, strategies
from dwlab.tuning.space import Space, SpaceError, Subject, subject

PART = 0.05
SEEDS = range(20)
Ordered = tuple[Space, list[int] | None, str]
MANY = math.ceil(1 / PART)
"""Candidates of a space in which the budget is a number; a smaller space's is the shipped candidate alone."""

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

    Regrets are fractions: model, random, optuna at that number, default of the shipped candidate; None: not known,
    all of them if the shipped tile is none of the candidates.
    counted: what stands for times was counted. date: of the newest line. note: why something is not known. changed:
    whether the source of what was timed is another one today, while the default and the model's order are today's.
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
    random: float | None
    optuna: float | None
    counted: bool
    date: str = ""
    note: str = ""
    changed: bool = False


def row(key: Key, tried: dict[str, Tried], kept: Mapping[str, float] | None = None, how: Ordered | None = None) -> Row:
    """The row of a whole sweep: what searches lose against it. kept: what Optuna loses, by `name_of` a key; None: it is
    asked, if it is installed. how: what `ordered` says. Raises ReplayError if no candidate was right.
    """
    found, order, note = how or ordered(key, tried)
    sweep = replay.Sweep(found, tried.values())
    most = at(PART, len(found))
    measured = 0 if key.counted else sum(one.ok for one in tried.values())
    default = model = random = theirs = None
    if order is not None:

        def mean(make: Callable[[int], strategies.Strategy]) -> float:
            return statistics.mean(replay.regret_at(sweep, make(seed), [most])[0] for seed in SEEDS)

        default = sweep.regret(0) if math.isfinite(sweep.regret(0)) else None
        model = replay.regret_at(sweep, strategies.ordered(order), [most])[0]
        random = mean(strategies.random)
        if kept is not None:
            theirs = sweep.regret(0) if most == 1 else kept.get(name_of(key))  # each search begins with the default
        else:
            theirs = mean(strategies.optuna) if importlib.util.find_spec("optuna") else None
    return Row(
        key.subject, key.problem, key.dtype, key.gpu, len(found), measured, most, sweep.best_us, default, model, random,
        theirs, key.counted, max(one.date for one in tried.values()), note, _changed(key),
    )  # fmt: skip


def _of_today(key: Key, tried: dict[str, Tried]) -> dict[str, Tried]:
    """Without candidates of stages that are gone, which no search of today has; all of them if no other was right."""
    try:
        names = {None, *(one.name for one in subject(key.subject).stages)}
    except (SpaceError, StageError):  # the stage itself is gone
        return tried
    left = {name: one for name, one in tried.items() if one.candidate.get("stage") in names}
    return left if any(one.ok for one in left.values()) else tried


def ordered(key: Key, tried: dict[str, Tried]) -> Ordered:
    """The recorded space, the model's order of it, and why there is none: a stage or a tile of another time.

    Without an order the first candidate is not what ships; searches begin with that, so none is compared then.
    """
    try:
        what, problem = subject(key.subject), layers.stored(layers.problem(key.problem), key.dtype)
        gpu = replay.gpu_of(key)
        known = _of_others(what, problem)
        default = what.default(problem, gpu, known=known)
        if text(default) not in tried:
            return replay.recorded_space(tried), None, "the tile that ships today is none of its candidates"
        found = replay.recorded_space(tried, default)
        seen = replay.seen(tuned.journals(tuned.FOLDER), problem)
        return found, what.order(problem, found, gpu, known, seen), ""
    except Exception as error:  # what was recorded outlives stages, their fields and their models
        return replay.recorded_space(tried), None, f"no model orders it today ({type(error).__name__}: {error})"


def _changed(key: Key) -> bool:
    try:
        return subject(key.subject).digest != key.kernel
    except Exception:  # as above
        return True


def _of_others(what: Subject, problem: Problem) -> list[choices.Sample]:
    """Records of a path's stages on other layers: nothing of this one at any batch."""
    known = choices.recorded(problem.op).get((problem.op, what.path), ())
    named = (re.sub(r"\bN=\d+", f"N={n}", str(problem)) for n in (1, 8, 32, 64, 128))
    batches = [layers.stored(layers.problem(one), problem.dtype) for one in named]
    places = {choices.place_of(one, one.dtype)[0] for one in batches}
    return [one for one in known if one.place not in places]


def whole(journals: Iterable[Path]) -> Iterator[tuple[Key, dict[str, Tried]]]:
    """Every whole sweep of some journals with a right candidate; of others stderr says why they are left out.

    Of a path's sweep without what was tried of stages that are gone.
    """
    for path in journals:
        journal, part, wrong = Journal(path), 0, 0
        known = journal.keys()
        if journal.message():
            print(f"dwlab: {journal.message()}", file=sys.stderr)
        for key, tried in known.values():
            in_part, all_wrong = not replay.is_whole(key, tried), not any(one.ok for one in tried.values())
            part, wrong = part + in_part, wrong + (all_wrong and not in_part)
            if not in_part and not all_wrong:
                yield key, _of_today(key, tried)
        for count, why in ((part, "recorded in part"), (wrong, "without a right candidate")):
            if count:
                print(f"dwlab: {path.name}, problems {why}, left out: {count}", file=sys.stderr)


def rows(journals: Iterable[Path], kept: Mapping[str, float] | None = None) -> list[Row]:
    """Rows of every whole sweep of some journals. kept: see `row`."""
    return [row(key, tried, kept) for key, tried in whole(journals)]


def middle(regrets: Iterable[float | None]) -> tuple[float, float] | None:
    """(median, 90th percentile) of those that are known; None if none is."""
    known = sorted(one for one in regrets if one is not None)
    return (statistics.median(known), known[math.ceil(0.9 * len(known)) - 1]) if known else None


def claims(found: Sequence[Row]) -> list[tuple[str, int, dict[str, tuple[float, float] | None]]]:
    """(which sweeps, how many, strategy -> `middle`) of all sweeps that searches are compared on, of those whose budget
    is more than one, and of the latter those whose source is still the same, if that are fewer.
    """
    found = [one for one in found if not one.note]
    made, large = [], [one for one in found if one.space >= MANY]
    same = [one for one in large if not one.changed]
    for which, some in (
        ("all spaces", found),
        (f"spaces of {MANY} candidates or more", large),
        ("of these, sources unchanged since", same if len(same) < len(large) else []),
    ):
        by = {name: middle(getattr(one, name) for one in some) for name in ("default", "model", "random", "optuna")}
        made += [(which, len(some), by)] if some else []
    return made


def at(part: float, size: int) -> int:
    """Candidates of a budget."""
    return max(1, math.ceil(part * size))


def name_of(key: Key) -> str:
    """A sweep's short name, by which what Optuna loses on it is kept."""
    return hashlib.sha256(key.text.encode()).hexdigest()[:16]


def percent(regret: float | None) -> str:
    """A regret as text."""
    return "–" if regret is None else "failed" if math.isinf(regret) else f"{regret:.1%}"


def table(found: list[Row], columns: int | None = None) -> str:
    """A row a sweep, and what the regrets are in the middle."""
    head = ["stage", "problem", "gpu", "space", "measured", "tried", "default", "model", "random", "optuna"]
    body = [
        [
            one.stage, one.problem, one.gpu, str(one.space), str(one.measured), str(one.at),
            *map(percent, (one.default, one.model, one.random, one.optuna)),
        ]
        for one in found
    ]  # fmt: skip
    lines = [terminal.table(head, body, (0, 1, 2), columns=columns, cut=1, spare=(2, 4)), ""]
    for which, count, by in claims(found):
        shown = "; ".join(f"{name} {one[0]:.1%}, {one[1]:.1%}" for name, one in by.items() if one is not None)
        lines.append(f"regret with {PART:.0%} of the space, median and 90th percentile, {count} {which}: {shown}")
    if any(one.optuna is None and not one.note for one in found):
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
