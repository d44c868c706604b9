"""What searches lose on recorded sweeps, what launches gain from a search, and one search by several GPUs.

Each search goes through a sweep again. After so many candidates (BUDGETS) it takes the one whose first rounds were the
fastest; its regret is that one's recorded median over the least of the sweep, less 1; of random and of Optuna the mean
over seeds. The model knows no time of the layer at hand, at any batch and in any type; "far" none of layers near it
either, of which each size is at most NEAR doublings away. A sweep that was repeated counts once, as it was last.

``python docs/tables/tuning.py [FOLDER]`` prints the rows and claims of a folder's journals (default: those that ship);
``--optuna`` searches its sweeps again by Optuna, which it needs, and writes what that loses.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dwlab import records
from dwlab.kernels import choices, levels
from dwlab.kernels.registry import StageError
from dwlab.kernels.tiling import tuned
from dwlab.problems import Problem, layers
from dwlab.records import file_bytes, kinds, searches
from dwlab.records.journal import Journal, Key, Tried, text
from dwlab.report.rows import geometric, grouped, measured_on
from dwlab.text import tabular
from dwlab.text.tabular import Markdown
from dwlab.tuning import learned, pruning, replay, strategies
from dwlab.tuning.search import FIRST
from dwlab.tuning.space import SpaceError, Subject, by, subject

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from tables.writing import listed, table  # noqa: E402

BUDGETS = (5, 10, 20)
MANY = 20
"""Candidates of a space of which searches are compared: of a smaller one the budgets are most or all."""
HUNDRED = 100
"""Of so many 5 % are five."""
STEADY = 0.1
"""Beyond this between a candidate's first rounds and its race a sweep's times are of two conditions."""
STORED = ", in each storage"
SEEDS = range(20)
OF_OPTUNA = range(5)
NEAR = 1
Predicted = dict[str, list[float]]
"""model: by predicted cost, corrected by sweeps of other layers; far: of layers that are not near; cost: not at all."""
Kept = Mapping[str, Mapping[str, Sequence[float]]]
"""What Optuna loses: `name_of` a sweep's key -> search -> regret at each of BUDGETS."""


@dataclass(frozen=True)
class Row:
    """A sweep. space: valid candidates. stages: theirs. default: the shipped candidate's regret, None if it is none of
    them or failed; regrets: of each search, at BUDGETS. note: why nothing is compared. What was timed is of its day,
    the default and the model's predictions are today's.
    """

    stage: str
    problem: str
    gpu: str
    space: int
    stages: frozenset[str] = frozenset()
    default: float | None = None
    regrets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    note: str = ""


Parts = Sequence[tuple[Key, dict[str, Tried]]]
"""A sweep; of a sparse layer one for each way to store it."""


def row(parts: Parts, kept: Kept) -> Row:
    """The row of one of the `sweeps`. Raises ReplayError if no candidate was right."""
    (key, _), (sweep, logs, note) = parts[0], predicted(parts)
    stages = frozenset(f"{it.subject}/{one.candidate['stage']}" if "stage" in one.candidate else it.subject
                       for it, tried in parts for one in tried.values())  # fmt: skip
    made = Row(key.subject + STORED * (len(parts) > 1), key.problem, key.gpu, len(sweep.space), stages, note=note)
    if not logs:
        return made
    searches = {name: [strategies.model(its)] for name, its in logs.items()}
    searches["cost"] = [strategies.ordered(by(logs["cost"]))]
    searches |= {"random": [*map(strategies.random, SEEDS)], "exhaustive": [strategies.exhaustive]}
    regrets = {name: mean(sweep, all_) for name, all_ in searches.items()}
    regrets |= {name: tuple(one) for name, one in kept.get(name_of(parts), {}).items()}
    default = sweep.regret(0)
    return replace(made, default=default if math.isfinite(default) else None, regrets=regrets)


def mean(sweep: replay.Sweep, all_: Sequence[strategies.Strategy]) -> tuple[float, ...]:
    """The mean regret of some searches at BUDGETS; where all has been tried before, that of the whole space."""
    runs = [replay.regrets(sweep, one, max(BUDGETS)) for one in all_]
    return tuple(statistics.mean(run[min(most, len(run)) - 1] for run in runs) for most in BUDGETS)


def of_optuna(sweep: replay.Sweep, logs: Predicted) -> dict[str, tuple[float, ...]]:
    """Regrets of Optuna's sampler, which begins with the default, or with that and the first five of "far"."""
    first = {"optuna": (), "optuna+far": [*replay.proposed(sweep, strategies.model(logs["far"]), 5)]}
    return {
        name: mean(sweep, [strategies.optuna(seed, places) for seed in OF_OPTUNA]) for name, places in first.items()
    }


def _of_today(key: Key, tried: dict[str, Tried]) -> dict[str, Tried]:
    """Without candidates of stages that are gone, which no search of today has; all of them if no other was right."""
    try:
        names = {None, *(one.name for one in subject(key.subject).stages)}
    except (SpaceError, StageError):  # the stage itself is gone
        return tried
    left = {name: one for name, one in tried.items() if one.candidate.get("stage") in names}
    return left if any(one.ok for one in left.values()) else tried


def predicted(parts: Parts) -> tuple[replay.Sweep, Predicted, str]:
    """The recorded sweep, what is predicted of its space, and why nothing is: a stage or a tile of another time.

    Then the first candidate is not what ships; searches begin with that, so none is compared.
    """
    plain = replay.Sweep(replay.recorded_space(parts[0][1]), parts[0][1].values())
    try:
        ships, spaces, tried = tuned.journals(tuned.FOLDER), {}, {}
        logs: dict[str, list[float]] = {"model": [], "cost": [], "far": []}
        for key, its in parts:
            what, problem = subject(key.subject), layers.stored(layers.problem(key.problem), key.dtype)
            gpu, known, storage = replay.gpu_of(key), _of_others(what, problem), pruning.storage_of(problem)
            # of options: of the tile that is launched
            default = what.default(problem, gpu, measured=what.has_options, known=known)
            names = next(iter(its.values())).candidate  # a level that came later is as the stage has it
            default = {name: value for name, value in default.items() if name in names or value}
            if text(default) not in its:
                return plain, {}, "the tile that ships today is none of its candidates"
            found = spaces[storage] = replay.recorded_space(its, default)
            knows = {"model": (known, replay.seen(ships, problem)), "cost": (known, [])}
            knows["far"] = _of_others(what, problem, NEAR), replay.seen(ships, problem, NEAR)
            for name, one in knows.items():
                logs[name] += what.predicted(problem, found, gpu, *one).tolist()
            for one in its.values():
                tagged = one.candidate if len(parts) == 1 else {"storage": storage} | dict(one.candidate)
                tried[text(tagged)] = replace(one, candidate=tagged)
        whole, placed = (found, list) if len(parts) == 1 else pruning.joined(spaces, logs["model"])
        return replay.Sweep(whole, tried.values()), {name: placed(one) for name, one in logs.items()}, ""
    except Exception as error:  # what was recorded outlives stages, their fields and their models
        return plain, {}, f"no model orders it today ({type(error).__name__}: {error})"


def _of_others(what: Subject, problem: Problem, doublings: float = 0) -> list[choices.Sample]:
    """Records of a path's stages on other layers: nothing of this one, nor of those so near to it, at any batch."""
    known = choices.recorded(problem.op).get((problem.op, what.path), ())
    place = choices.place_of(problem, problem.dtype)[0][1:]
    return [
        one for one in known if len(one.place) != len(place) + 1 or not learned.close(one.place[1:], place, doublings)
    ]


def shift(one: Tried) -> float:
    """How far the median of a candidate's race is from that of its first rounds, as a fraction."""
    first, raced = one.times_us[:FIRST], one.times_us[FIRST:]
    return abs(statistics.median(raced) / statistics.median(first) - 1) if raced else 0.0


def whole(journals: Iterable[Path]) -> Iterator[tuple[Key, dict[str, Tried]]]:
    """Every whole sweep of some journals with a right candidate, the last of those that were repeated; of others stderr
    says why they are left out. Of a path's sweep without what was tried of stages that are gone.
    """
    found: dict[tuple[str, ...], tuple[Key, dict[str, Tried]]] = {}
    for path in journals:
        journal = Journal(path)
        known = journal.keys()
        if journal.message():
            print(f"dwlab: {journal.message()}", file=sys.stderr)
        left: Counter[str] = Counter()
        for key, tried in known.values():
            of = key.subject, key.problem, key.dtype, key.gpu
            if not replay.is_whole(key, tried):
                left["recorded in part"] += 1
            elif not any(one.ok for one in tried.values()):
                left["without a right candidate"] += 1
            elif any(shift(one) > STEADY for one in tried.values()):
                left[f"timed twice with more than {STEADY:.0%} between"] += 1
            else:
                left["swept again later"] += of in found
                found[of] = key, _of_today(key, tried)
        for why, count in (+left).items():
            print(f"dwlab: {path.name}, problems {why}, left out: {count}", file=sys.stderr)
    yield from found.values()


def sweeps(folder: Path) -> Iterator[Parts]:
    """Every whole sweep of a folder's journals; of a sparse layer that was swept in each storage, all as one."""
    found = list(whole(tuned.journals(folder)))
    known = {(key.subject, key.problem, key.gpu): (key, tried) for key, tried in found}
    for key, tried in found:
        its: list[Any] = [(key, tried)]
        if key.subject == "sparse/forward":
            stored = pruning.storages(layers.problem(key.problem))
            its = [known.get((f"{one.op}/forward", str(one), key.gpu)) for one in stored]
        yield its if all(its) else [(key, tried)]


def rows(folder: Path) -> list[Row]:
    """A row for each of the `sweeps` of a folder."""
    known = kept(folder)
    return [row(parts, known) for parts in sweeps(folder)]


@dataclass(frozen=True)
class Claim:
    """What a search loses after so many candidates, over some sweeps: fractions. ninety: the 90th percentile."""

    median: float
    ninety: float
    worst: float
    mean: float

    @classmethod
    def of(cls, regrets: Iterable[float]) -> Claim:
        known = sorted(regrets)
        ninety = known[math.ceil(0.9 * len(known)) - 1]
        return cls(statistics.median(known), ninety, known[-1], statistics.mean(known))


def claims(found: Sequence[Row]) -> dict[str, tuple[int, dict[str, list[Claim]]]]:
    """Which sweeps -> how many, and of each search a Claim for each of BUDGETS: of sweeps of MANY candidates and more,
    of HUNDRED and more, and of those with sparse filters. A search that is not known of all has none.
    """
    large, made = [one for one in found if one.regrets and one.space >= MANY], {}
    groups = {"all": large, f"of {HUNDRED} candidates and more": [one for one in large if one.space >= HUNDRED],
              "sparse filters": [one for one in large if one.stage.startswith("sparse/")]}  # fmt: skip
    for which, some in ((which, some) for which, some in groups.items() if some):
        names = [name for name in some[0].regrets if all(name in one.regrets for one in some)]
        by = {"default": [[one.default or 0.0 for one in some]] * len(BUDGETS)}
        by |= {name: zip(*(one.regrets[name] for one in some), strict=True) for name in names}
        made[which] = len(some), {name: [*map(Claim.of, each)] for name, each in by.items()}
    return made


def name_of(parts: Parts) -> str:
    """A sweep's short name, by which what Optuna loses on it is kept."""
    return hashlib.sha256("\n".join(key.text for key, _ in parts).encode()).hexdigest()[:16]


def percent(regret: float | None) -> str:
    """A regret as text."""
    return "–" if regret is None else "failed" if math.isinf(regret) else f"{regret:.1%}"


OPTUNA = "optuna.json.xz"
"""In the folder of journals: what Optuna loses at BUDGETS, for who has none."""
NAMES = {
    "default": "shipped default", "far": "model, no near layer", "cost": "predicted cost alone",
    "exhaustive": "as written down", "optuna": "Optuna", "optuna+far": "Optuna after the five of *no near layer*",
}  # fmt: skip


def ask_optuna(folder: Path) -> Path:
    """Writes what Optuna loses on a folder's sweeps of MANY candidates or more. Needs Optuna."""
    made, of = {}, {}
    for parts in sweeps(folder):
        sweep, logs, _ = predicted(parts)
        if len(sweep.space) >= MANY and logs:
            name, regrets = name_of(parts), of_optuna(sweep, logs)
            made[name] = {search: [round(one, 5) for one in each] for search, each in regrets.items()}
            of[name] = parts[0][0].subject, len(sweep.space)
    path = folder / OPTUNA
    path.write_bytes(lzma.compress(json.dumps({"budgets": BUDGETS, "sweeps": made, "of": of}, indent=1).encode()))
    return path


def kept(folder: Path) -> Kept:
    """What `ask_optuna` wrote; nothing of other budgets."""
    path = folder / OPTUNA
    known = json.loads(file_bytes(path)) if path.exists() else {"budgets": [], "sweeps": {}}
    return known["sweeps"] if known["budgets"] == list(BUDGETS) else {}


def tables(folder: Path = Path(tuned.FOLDER)) -> dict[str, Callable[[], str]]:
    """Name of a table of the documentation -> its text, of a folder's journals."""
    return {
        "tuning-claims": lambda: _claims(rows(folder)), "tuning-gpus": gpus,
        "tuning-launches": lambda: launches(records.load_runs()), "tuning-options": lambda: options(folder),
    }  # fmt: skip


def _claims(found: list[Row]) -> str:
    body = [
        [f"{which} ({count})", NAMES.get(name, name),
         *(f"{percent(one.mean)} ({' / '.join(map(percent, (one.median, one.ninety, one.worst)))})" for one in each)]
        for which, (count, by) in claims(found).items()
        for name, each in by.items()
    ]  # fmt: skip
    head = ["sweeps", "search", *(f"{most} candidates" for most in BUDGETS)]
    large = sorted((one for one in found if one.regrets and one.space >= HUNDRED), key=lambda one: one.stage)
    sizes = {learned.layer_of(one.problem): one.stage for one in large}  # of a layer's stages the last: sparse/
    pruned = sum(one.startswith("sparse/") for one in sizes.values())
    of = {(learned.layer_of(one.problem), *re.findall(r"\d+:[\d:]+", one.problem)) for one in large}
    stages = {id.removesuffix(tuned.OPTIONS) for one in large for id in one.stages}
    return (
        f"{tabular.markdown(head, body, {0, 1})}\n\nThe spaces of {HUNDRED} candidates and more are of {len(sizes)} "
        f"layers by their sizes, {pruned} of them with sparse filters; "
        f"each pattern of these counted by itself, of {len(of)} and {sum(len(one) > 1 for one in of)}. They are of "
        f"{len(stages)} stages, on {' and '.join(sorted({one.gpu for one in large}))}.\n"
    )


def gpus() -> Markdown:
    """Searches by one GPU and by all of a host; of the newest what else it says."""
    runs = kinds.load_all(searches.FOLDER, searches.SearchRun)
    run = runs[-1]
    middles = [statistics.median(one) for one in run.rounds.values()]
    ends = [statistics.quantiles(one, n=10) for one in run.rounds.values()]
    rows = [
        {"way": way.how, "processes": way.processes, "candidates": way.candidates,
         "ready after (s)": f"{way.start_s:.1f}", "all candidates (s)": f"{way.first_s:.1f}",
         "a process's seconds a candidate": f"{way.first_s * way.processes / way.candidates:.1f}",
         "times as fast as one GPU": f"{one.speedup(way.how):.2f}", "race (s)": f"{way.race_s:.1f}",
         "winner (µs)": f"{way.time_us:.2f}"}
        for one in runs for way in one.ways
    ]  # fmt: skip
    same = "One candidate won each time of a run" if all(one.alike() for one in runs) else "Other candidates won"
    return table(rows, [
        f"`{run.stage}` on {run.problem}, {len(runs)} runs. {same}. A worker killed in the "
        f"middle of {run.killed['candidates']} others: {run.killed['answered']} were answered, by the "
        f"{run.killed['left']} left of {run.killed['workers']} workers.",
        f"One candidate, {len(next(iter(run.rounds.values())))} rounds on each GPU in turn: medians "
        f"{' and '.join(f'{one:.2f}' for one in middles)} µs, which differ by {max(middles) / min(middles) - 1:.1%}; "
        f"80 % of a GPU's rounds lie within {max(one[-1] / one[0] - 1 for one in ends):.1%}. "
        f"Measured on {run.where()}.",
    ])  # fmt: skip


def options(folder: Path) -> Markdown:
    """Every sweep of a stage's options: with those that won, and with none, medians of one race."""
    rows, places = [], set()
    for key, tried in whole(tuned.journals(folder)):
        if key.subject.endswith(tuned.OPTIONS) and (won := next((one for one in tried.values() if one.won), None)):
            changed = {name: won.candidate.get(name, 0) for name in (*levels.LEVELS, *levels.INSTRUCTIONS)}
            plain = tried[text(dict(won.candidate) | {name: 0 for name in changed if name in won.candidate})]
            before, after = (statistics.median(one.times_us[FIRST:] or one.times_us) for one in (plain, won))
            force = ", ".join(f"{name} {value}" for name, value in changed.items() if value) or "as it is"
            layer = f"{key.problem}{'' if key.dtype in key.problem else f' {key.dtype}'}"
            rows.append({
                "stage": key.subject.removesuffix(tuned.OPTIONS), "layer": layer, "GPU": key.gpu.split()[-1],
                "without (µs)": f"{before:.2f}", "with (µs)": f"{after:.2f}",
                "times as fast": tabular.times(before / after), "in force": force,
            })  # fmt: skip
            versions = (f"{name} {value}" for name, value in key.versions.items())
            places.add((*versions, key.gpu, won.date[:10]))
    measured = "; ".join(", ".join(one) for one in sorted(places))
    return table(sorted(rows, key=lambda row: [*row.values()]), [f"Measured with {measured}."], (0, 1, 2, -1))


WITHIN = 1.02
"""From here on a launch counts as slower: what rounds of one kernel differ by."""


def launches(runs: Sequence[records.Record]) -> Markdown:
    """Launches under DWLAB_TUNE=on against those without, a row an op and storage type."""
    every, used = records.newest_rows(
        "tuned", lambda row: (row["op"], row["path"], row["dtype"], str(row["problem"])), runs
    )
    timed, rows = [row for row in every if row.get("before_us")], []
    for (op, dtype), here in sorted(grouped(timed, lambda row: (row["op"], row["dtype"])).items()):
        ratios = [row["before_us"] / row["after_us"] for row in here if row.get("after_us")]
        rows.append({
            "op": op, "dtype": dtype, "problems": len(here), "launched otherwise": len(ratios),
            "× before, geometric mean": geometric(ratios), "most": tabular.times(max(ratios, default=None)),
            "least": tabular.times(min(ratios, default=None)),
            "seconds of a search, median": f"{statistics.median(row['seconds'] for row in here):.1f}",
        })  # fmt: skip
    slower = [f"{row['op']}/{row['path']} on {records.shape_text(row['problem'])}, {row['dtype']}: "
              f"{row['before_us']:.2f} to {row['after_us']:.2f} µs"
              for row in timed if row.get("after_us", 0) > WITHIN * row["before_us"]]  # fmt: skip
    failed = f" {len(every) - len(timed)} were not timed." if len(every) > len(timed) else ""
    return table(rows, [
        f"Of {len(timed)} drawn problems {len(slower)} are slower after the search by {WITHIN - 1:.0%} and more"
        f"{listed(slower)}.{failed} Launched as before: timed once, and the same.  ",
        measured_on(used),
    ], (0, 1))  # fmt: skip


def main(folder: Path) -> None:
    """Prints a row a sweep, with regrets after the first of BUDGETS, and the claims."""
    found = rows(folder)
    names = list(dict.fromkeys(name for one in found for name in one.regrets))
    shown = [
        {"stage": one.stage, "problem": one.problem, "GPU": one.gpu, "space": one.space,
         "default": percent(one.default),
         **{name: percent(one.regrets.get(name, [None])[0]) for name in names}, "note": one.note}
        for one in found
    ]  # fmt: skip
    print(f"{table(shown, text=(0, 1, 2))}{_claims(found)}")


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if one != "--optuna"]
    (ask_optuna if "--optuna" in sys.argv else main)(Path(given[0] if given else tuned.FOLDER))
