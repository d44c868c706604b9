"""docs/results/tuning.md: what searches lose on recorded sweeps, at several budgets, and what a GPU's fastest is worth
on another. ``python docs/tables/tuning.py [FOLDER]`` searches a folder's sweeps again by Optuna, which it needs.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from dwlab.kernels.tiling import tuned
from dwlab.records import kinds, searches
from dwlab.records.journal import Key, Tried
from dwlab.text import tabular
from dwlab.text.tabular import Col, Markdown, of_rows
from dwlab.tuning import replay, report, strategies
from dwlab.tuning.report import percent

BUDGETS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Parts of a space; 0: one candidate."""
OPTUNA = "optuna.json"
"""In the folder of journals: what `optuna_curves` found, for who has no Optuna."""


@functools.cache
def sweeps(folder: Path) -> list[tuple[Key, dict[str, Tried], report.Ordered]]:
    """A folder's whole sweeps, and the model's order of each, which takes most of the time."""
    return [(key, tried, report.ordered(key, tried)) for key, tried in report.whole(tuned.journals(folder))]


def curve(sweep: replay.Sweep, order: list[int]) -> dict[str, list[float]]:
    """Strategy -> regret at each of BUDGETS, of random the mean over seeds; exhaustive: in the space's order."""
    made = {"exhaustive": [strategies.exhaustive], "random": [*map(strategies.random, report.SEEDS)],
            "model": [strategies.ordered(order)]}  # fmt: skip
    return {name: _mean(sweep, all_) for name, all_ in made.items()}


def _mean(sweep: replay.Sweep, all_: Sequence[strategies.Strategy]) -> list[float]:
    runs = [replay.regrets(sweep, one) for one in all_]
    return [statistics.mean(run[report.at(part, len(run)) - 1] for run in runs) for part in BUDGETS]


def optuna_curves(folder: Path, seeds: Iterable[int] = range(5)) -> Path:
    """Writes what Optuna loses at each of BUDGETS on a folder's sweeps of MANY candidates or more. Needs Optuna."""
    made = {}
    for key, tried, (found, order, _) in sweeps(folder):
        if len(found) >= report.MANY and order is not None:
            sweep = replay.Sweep(found, tried.values())
            made[report.name_of(key)] = [
                round(one, 5) for one in _mean(sweep, [strategies.optuna(seed) for seed in seeds])
            ]
    path = folder / OPTUNA
    path.write_text(json.dumps({"budgets": BUDGETS, "sweeps": made}, indent=1) + "\n", encoding="utf-8")
    return path


def kept(folder: Path) -> dict[str, list[float]]:
    """Regrets that `optuna_curves` wrote: `name_of` a sweep's key -> regret at each of BUDGETS."""
    path = folder / OPTUNA
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"budgets": list(BUDGETS), "sweeps": {}}
    return known["sweeps"] if known["budgets"] == list(BUDGETS) else {}


def curves(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Strategy -> `middle` at each of BUDGETS, over a folder's sweeps of MANY candidates or more; Optuna's if they are
    of the same sweeps.
    """
    all_ = {
        report.name_of(key): curve(replay.Sweep(found, tried.values()), order)
        for key, tried, (found, order, _) in sweeps(folder)
        if len(tried) >= report.MANY and not key.counted and order is not None
    }
    known = kept(folder)
    theirs = [known.get(name) for name in all_]
    found = {name: [one[name] for one in all_.values()] for name in ("model", "random", "exhaustive")}
    if all(theirs):
        found["optuna"] = theirs
    return {name: [report.middle(one) for one in zip(*runs, strict=True)] for name, runs in found.items() if runs}  # type: ignore[misc]


def tables(folder: Path) -> dict[str, Callable[[], str]]:
    """Name of a table of the documentation -> its text, of a folder's journals."""
    place = BUDGETS.index(report.PART)

    @functools.cache
    def all_() -> list[report.Row]:
        known = {name: regrets[place] for name, regrets in kept(folder).items()}
        return [report.row(*sweep, known, how) for *sweep, how in sweeps(folder)]

    return {
        "tuning-claims": lambda: _claims(all_()),
        "tuning-sweeps": lambda: _sweeps(all_()),
        "tuning-curves": lambda: _curves(curves(folder)),
        "tuning-moved": lambda: _moved(moved(folder)),
        "tuning-gpus": gpus,
    }


def _claims(found: Sequence[report.Row]) -> str:
    body = [
        [which, str(count), *(" / ".join(map(percent, one)) if one else "–" for one in by.values())]
        for which, count, by in report.claims(found)
    ]
    head = ["sweeps", "how many", "shipped default", "model", "random", "Optuna"]
    return tabular.markdown(head, body, {0})


def _sweeps(found: Sequence[report.Row]) -> str:
    body = [
        [
            f"`{one.stage}`", one.problem, one.gpu, (one.date[:10] or "–") + ", an earlier source" * one.changed,
            *map(str, (one.space, one.measured, one.at)), f"{one.best_us:,.2f}",
            *map(percent, (one.default, one.model, one.random, one.optuna)),
        ]
        for one in sorted(found, key=lambda one: (one.gpu, -one.space, one.stage, one.problem))
    ]  # fmt: skip
    head = ["stage or path", "problem", "GPU", "date", "space", "right", "tried", "fastest (µs)", "shipped default"]
    return tabular.markdown([*head, "model", "random", "Optuna"], body, {0, 1, 2, 3})


def _curves(found: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    if not found:
        return f"No sweep of {report.MANY} candidates or more is recorded."
    body = [[name, *(" / ".join(map(percent, one)) for one in points)] for name, points in found.items()]
    head = ["order", *(f"{part:.0%}" if part else "1 candidate" for part in BUDGETS)]
    return tabular.markdown(head, body, {0})


def _moved(found: Sequence[tuple[str, str, str, str, float, float | None]]) -> str:
    if not found:
        return "Sweeps of one GPU are recorded so far."
    body = [[f"`{one[0]}`", *one[1:4], percent(one[4]), percent(one[5])] for one in found]
    return tabular.markdown(
        ["stage", "problem", "from", "to", "moved there", "shipped default there"], body, {0, 1, 2, 3}
    )


def gpus() -> Markdown:
    """The newest search by one GPU and by all of a host: seconds, winners, a worker killed, what GPUs differ by."""
    run = kinds.load_all(searches.FOLDER, searches.SearchRun)[-1]
    middles = [statistics.median(one) for one in run.rounds.values()]
    ends = [statistics.quantiles(one, n=10) for one in run.rounds.values()]
    columns = [
        Col("way", "how", left=True),
        Col("processes", "processes"),
        Col("ready after (s)", "start_s", "{:.1f}".format),
        Col("all candidates (s)", "first_s", "{:.1f}".format),
        Col(
            "a process's seconds a candidate", lambda way: way.first_s * way.processes / way.candidates, "{:.1f}".format
        ),
        Col("times as fast as one GPU", lambda way: run.speedup(way.how), "{:.2f}".format),
        Col("race (s)", "race_s", "{:.1f}".format),
        Col("winner (µs)", "time_us", "{:.2f}".format),
    ]
    same = "One candidate won each time" if run.alike() else "Other candidates won"
    return of_rows(columns, run.ways, [
        f"`{run.stage}` on {run.problem}: {run.ways[0].candidates} candidates by each. {same}. A worker killed in the "
        f"middle of {run.killed['candidates']} others: {run.killed['answered']} were answered, by the "
        f"{run.killed['left']} left of {run.killed['workers']} workers.",
        f"One candidate, {len(next(iter(run.rounds.values())))} rounds on each GPU in turn: medians "
        f"{' and '.join(f'{one:.2f}' for one in middles)} µs, which differ by {max(middles) / min(middles) - 1:.1%}; "
        f"80 % of a GPU's rounds lie within {max(one[-1] / one[0] - 1 for one in ends):.1%}. "
        f"Measured on {run.where()}.",
    ])  # fmt: skip


def moved(folder: Path) -> list[tuple[str, str, str, str, float, float | None]]:
    """(stage, problem, from GPU, to GPU, what the first's fastest costs on the second, what the default does), of
    sweeps of the same kernel, space and problem on two GPUs: fractions over the second's fastest.
    """
    by: dict[tuple[str, ...], dict[str, replay.Sweep]] = {}
    ships = set()
    for key, tried, (found, order, _) in sweeps(folder):
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


if __name__ == "__main__":
    print(optuna_curves(Path(sys.argv[1] if len(sys.argv) > 1 else tuned.FOLDER)).name)
