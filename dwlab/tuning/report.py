"""``python -m dwlab tune --report``: what searches lose against recorded sweeps, a row a problem.

Each strategy searches the sweep again with a budget of 5 % of the space. Its regret is the recorded median of what it
takes over the least of the sweep, less 1; of random and of Optuna the mean over SEEDS. The model knows no time of the
problem at hand, nor one of its layer at another batch.

`curve` has the same at several budgets, without a race, and `moved` what one GPU's fastest is worth on another.
"""

from __future__ import annotations

import functools
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
from typing import TYPE_CHECKING

from dwlab.kernels import choices
from dwlab.kernels.tiling import tuned
from dwlab.problems import Problem, layers
from dwlab.records.journal import Journal, Key, Tried, text
from dwlab.text import tabular, terminal
from dwlab.tuning import replay, strategies
from dwlab.tuning.space import Space, SpaceError, Subject, subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PART = 0.05
SEEDS = range(20)
BUDGETS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Of a space; 0: one candidate."""
MANY = math.ceil(1 / PART)
"""Candidates of a space in which the budget is a number; a smaller space's is the shipped candidate alone."""
OPTUNA = "optuna.json"
"""In the folder of journals: what `optuna_curves` found, for who has no Optuna."""

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


def row(key: Key, tried: dict[str, Tried], kept: Mapping[str, float] | None = None) -> Row:
    """What searches lose against a whole sweep. kept: what Optuna loses, by `name_of` a key; None: it is asked, if it
    is installed. Raises ReplayError if no candidate was right.
    """
    found, order, note = _ordered(key, tried)
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
    except SpaceError:
        return tried
    left = {name: one for name, one in tried.items() if one.candidate.get("stage") in names}
    return left if any(one.ok for one in left.values()) else tried


def _ordered(key: Key, tried: dict[str, Tried]) -> tuple[Space, list[int] | None, str]:
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
    """What records have of a path's stages on other layers: nothing of this one at any batch."""
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
    """Of every whole sweep of some journals. kept: see `row`."""
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


# -------------------------------------------------------------------------------------------------------------- curves


def at(part: float, size: int) -> int:
    """Candidates of a budget."""
    return max(1, math.ceil(part * size))


def curve(key: Key, tried: dict[str, Tried], seeds: Iterable[int] = SEEDS) -> dict[str, list[float]]:
    """Strategy -> regret at each of BUDGETS, of random the mean over seeds; exhaustive: in the space's order. Nothing
    where the shipped tile is none of the candidates.
    """
    found, order, _ = _ordered(key, tried)
    if order is None:
        return {}
    sweep = replay.Sweep(found, tried.values())
    made = {"exhaustive": [strategies.exhaustive], "random": [strategies.random(seed) for seed in seeds],
            "model": [strategies.ordered(order)]}  # fmt: skip
    return {name: _mean(sweep, all_) for name, all_ in made.items()}


def _mean(sweep: replay.Sweep, all_: Sequence[strategies.Strategy]) -> list[float]:
    runs = [replay.regrets(sweep, one) for one in all_]
    return [statistics.mean(run[at(part, len(run)) - 1] for run in runs) for part in BUDGETS]


def optuna_curves(folder: Path, seeds: Iterable[int] = range(5)) -> Path:
    """Writes what Optuna loses at each of BUDGETS on a folder's sweeps of MANY candidates or more. Needs Optuna."""
    made = {}
    for key, tried in whole(tuned.journals(folder)):
        found, order, _ = _ordered(key, tried)
        if len(found) >= MANY and order is not None:
            sweep = replay.Sweep(found, tried.values())
            made[name_of(key)] = [round(one, 5) for one in _mean(sweep, [strategies.optuna(seed) for seed in seeds])]
    path = folder / OPTUNA
    path.write_text(json.dumps({"budgets": BUDGETS, "sweeps": made}, indent=1) + "\n", encoding="utf-8")
    return path


def kept(folder: Path) -> dict[str, list[float]]:
    """What `optuna_curves` wrote: `name_of` a sweep's key -> regret at each of BUDGETS."""
    path = folder / OPTUNA
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"budgets": list(BUDGETS), "sweeps": {}}
    return known["sweeps"] if known["budgets"] == list(BUDGETS) else {}


def name_of(key: Key) -> str:
    """What a sweep goes by in that file."""
    return hashlib.sha256(key.text.encode()).hexdigest()[:16]


def curves(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Strategy -> `middle` at each of BUDGETS, over a folder's sweeps of MANY candidates or more; Optuna's if they are
    of the same sweeps.
    """
    sweeps = [(key, tried) for key, tried in whole(tuned.journals(folder)) if len(tried) >= MANY and not key.counted]
    all_ = {name_of(key): one for key, tried in sweeps if (one := curve(key, tried))}
    known = kept(folder)
    theirs = [known.get(name) for name in all_]
    found = {name: [one[name] for one in all_.values()] for name in ("model", "random", "exhaustive")}
    if all(theirs):
        found["optuna"] = theirs
    return {name: [middle(one) for one in zip(*runs, strict=True)] for name, runs in found.items() if runs}  # type: ignore[misc]


def picture(found: Mapping[str, Sequence[tuple[float, float]]]) -> Figure:
    """Regret against the budget: medians, and 90th percentiles beside them. Its `alt` has it in words."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    marks = {"model": ("black", "o", "-"), "random": ("tab:orange", "s", "--"), "optuna": ("tab:blue", "^", "-."),
             "exhaustive": ("gray", "x", ":")}  # fmt: skip
    for axes, which, title in ((left, 0, "median"), (right, 1, "90th percentile")):
        for name, points in found.items():
            color, mark, line = marks[name]
            axes.plot(
                range(len(points)), [100 * one[which] for one in points], line, color=color, marker=mark, label=name
            )
        axes.set_xticks(range(len(BUDGETS)), [f"{part:.0%}" if part else "1" for part in BUDGETS])
        axes.set(title=title, xlabel="candidates measured, of the space")
        axes.grid(axis="y", alpha=0.3)
    left.set_ylabel("slower than the fastest (%)")
    right.legend()
    place = BUDGETS.index(PART)
    shown = ", ".join(f"{name} {points[place][0]:.1%} ({points[place][1]:.1%})" for name, points in found.items())
    figure.alt = f"With {PART:.0%} of the space, median and 90th percentile of the regret: {shown}"  # type: ignore[attr-defined]
    return figure


# --------------------------------------------------------------------------------------------------------- Markdown


def tables(folder: Path) -> dict[str, Callable[[], str]]:
    """Name of a table of the documentation -> its text, of a folder's journals."""
    here = tuned.journals(folder)
    place = BUDGETS.index(PART)

    @functools.cache
    def all_() -> list[Row]:
        return rows(here, {name: regrets[place] for name, regrets in kept(folder).items()})

    return {
        "tuning-claims": lambda: _claims(all_()),
        "tuning-sweeps": lambda: _sweeps(all_()),
        "tuning-curves": lambda: _curves(curves(folder)),
        "tuning-moved": lambda: _moved(moved(here)),
    }


def _percent(regret: float | None) -> str:
    return "–" if regret is None else "failed" if math.isinf(regret) else f"{regret:.1%}"


def _claims(found: Sequence[Row]) -> str:
    body = [
        [which, str(count), *(" / ".join(map(_percent, one)) if one else "–" for one in by.values())]
        for which, count, by in claims(found)
    ]
    head = ["sweeps", "how many", "shipped default", "model", "random", "Optuna"]
    return tabular.markdown(head, body, {0})


def _sweeps(found: Sequence[Row]) -> str:
    body = [
        [
            f"`{one.stage}`", one.problem, one.gpu, (one.date[:10] or "–") + ", an earlier source" * one.changed,
            *map(str, (one.space, one.measured, one.at)), f"{one.best_us:,.2f}",
            *map(_percent, (one.default, one.model, one.random, one.optuna)),
        ]
        for one in sorted(found, key=lambda one: (one.gpu, -one.space, one.stage, one.problem))
    ]  # fmt: skip
    head = ["stage or path", "problem", "GPU", "date", "space", "right", "tried", "fastest (µs)", "shipped default"]
    return tabular.markdown([*head, "model", "random", "Optuna"], body, {0, 1, 2, 3})


def _curves(found: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    if not found:
        return f"No sweep of {MANY} candidates or more is recorded."
    body = [[name, *(" / ".join(map(_percent, one)) for one in points)] for name, points in found.items()]
    head = ["order", *(f"{part:.0%}" if part else "1 candidate" for part in BUDGETS)]
    picture = "![What searches lose, against the candidates that they measure](../img/regret.svg)"
    return f"{picture}\n\n{tabular.markdown(head, body, {0})}"


def _moved(found: Sequence[tuple[str, str, str, str, float, float | None]]) -> str:
    if not found:
        return "Sweeps of one GPU are recorded so far."
    body = [[f"`{one[0]}`", *one[1:4], _percent(one[4]), _percent(one[5])] for one in found]
    return tabular.markdown(
        ["stage", "problem", "from", "to", "moved there", "shipped default there"], body, {0, 1, 2, 3}
    )


# --------------------------------------------------------------------------------------------------------- other GPUs


def moved(journals: Iterable[Path]) -> list[tuple[str, str, str, str, float, float | None]]:
    """(stage, problem, from GPU, to GPU, what the first's fastest costs on the second, what the default does), of
    sweeps of the same kernel, space and problem on two GPUs: fractions over the second's fastest.
    """
    by: dict[tuple[str, ...], dict[str, replay.Sweep]] = {}
    ships = set()
    for key, tried in whole(journals):
        found, order, _ = _ordered(key, tried)
        place = key.subject, key.problem, key.dtype, key.kernel, key.space
        by.setdefault(place, {})[key.gpu] = replay.Sweep(found, tried.values())
        if order is not None:
            ships.add((place, key.gpu))
    return [
        (place[0], place[1], one, other, replay.moved(here[one], here[other]),
         here[other].regret(0) if (place, other) in ships else None)
        for place, here in by.items()
        for one in here
        for other in here
        if one != other
    ]  # fmt: skip


def table(found: list[Row], columns: int | None = None) -> str:
    """A row a sweep, and what the regrets are in the middle."""
    head = ["stage", "problem", "gpu", "space", "measured", "tried", "default", "model", "random", "optuna"]
    body = [
        [
            one.stage, one.problem, one.gpu, str(one.space), str(one.measured), str(one.at),
            *map(_percent, (one.default, one.model, one.random, one.optuna)),
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
