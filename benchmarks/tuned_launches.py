"""Launches under DWLAB_TUNE=on beside launches without: ``python benchmarks/tuned_launches.py [FOLDER]``.

What is launched by the records that ship, and what is after a first launch that searched as `tuning.running` does, for
--budget seconds, are timed in turn, on drawn problems. Several processes search; one at a time uses the GPU. Writes one
record into FOLDER (the project's own if none is given): the section `tuned`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import record_layers
import shapes
from recording import Parser, record, said, taken
from sweep import shared_bench
from tables import tuning as tables

from dwlab import study
from dwlab.gpu.machine import Machine
from dwlab.kernels import choices
from dwlab.kernels.tiling import tuned
from dwlab.problems import Problem
from dwlab.text.commandline import positive, whole
from dwlab.tuning import running
from dwlab.tuning.worker import Inline

PATHS = ("forward", "input_grad", "weight_grad")
TYPES = ("float32", "float16", "bfloat16")
ROUNDS = 5  # of each, in turn


def drawn(count: int, seed: int) -> list[tuple[Problem, str]]:
    """(problem, path), always the same for a seed: two fifths 1-D, the others layers at batch 1 and 32 in turn."""
    rows = shapes.drawn(count * 2 // 5, seed, TYPES)
    found: list[tuple[Problem, str]] = list(zip(rows, itertools.cycle(PATHS), strict=False))
    for op in ("depthwise2d", "pointwise"):
        groups = record_layers.others((), count * 3 // 10 // 2, [op], TYPES[:2], f"{seed}")
        for turn, group in enumerate(groups):
            found.append((record_layers.variant(group.problem, (1, 32)[turn % 2], "NHWC"), group.problem.main_path))
    return found


def launched(problem: Problem, path: str) -> Any:
    stage = choices.ranking(problem, path)[0]
    config = stage.config(problem)
    return stage if config is None else stage.with_config(config, stage.options_for(problem))


def words(stage: Any, problem: Problem) -> str:
    tile = {} if stage.tiles is None else vars(stage.config(problem))
    kept = {name: value for name, value in {**tile, **dict(stage.options or ())}.items() if value}
    return " ".join((stage.name, *(f"{name}={value}" for name, value in kept.items())))


def measured(problem: Problem, path: str, bench: study.GpuBench) -> dict[str, Any]:
    """A row: what was launched before the search and after it, with the medians of both."""
    row = shapes.named(problem, path)
    first = launched(problem, path)
    begun = time.monotonic()
    with warnings.catch_warnings(record=True) as said_of:
        warnings.simplefilter("always")
        running.first_launch(problem, path)
    row |= {"seconds": time.monotonic() - begun}
    then = launched(problem, path)
    row |= {"before": words(first, problem), "after": words(then, problem)}
    if found := [str(one.message) for one in said_of if tuned.SWITCH in str(one.message)]:
        return row | {"failure": found[0][:200]}
    ways = {"before": first, "after": then} if row["before"] != row["after"] else {"before": first}
    times: dict[str, list[float]] = {name: [] for name in ways}
    with bench.prepare(problem, path) as on:
        for one in ways.values():
            on.check(one)
        for _, (name, one) in itertools.product(range(ROUNDS), ways.items()):
            times[name].append(on.clocked(one).median_us)
    return row | {f"{name}_us": statistics.median(us) for name, us in times.items()}


def work(tasks: Any, results: Any, gpu: Any, machine: Machine, seconds: float, folder: str) -> None:
    @contextlib.contextmanager
    def bench(id: str, problem: Problem) -> Iterator[Inline]:
        with contextlib.closing(shared_bench(folder, gpu, id, problem)) as its:
            yield Inline(its)

    running.bench = bench  # in this process: beside others another one would take most of the budget to start
    os.environ |= {
        tuned.VARIABLE: str(Path(folder) / f"{os.getpid()}.jsonl"), running.SECONDS: f"{seconds}", tuned.SWITCH: "on",
    }  # fmt: skip
    here = study.GpuBench(machine=machine, how=shapes.DRAWN, alone=gpu)
    for problem, path in taken(tasks):
        try:
            row = measured(problem, path, here)
        except Exception as error:
            row = shapes.named(problem, path) | {"failure": said(error)}
        results.put({"tuned": [row]})


def main() -> int:
    parser = Parser(__doc__)
    parser.add_argument("--problems", type=whole(1), default=200, help="how many are drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (default: %(default)s)")
    parser.add_argument("--budget", type=positive, default=15.0, help="seconds of a search (default: %(default)s)")
    parser.tasks(440, min(14, (os.cpu_count() or 2) - 1))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return record(
            "tuned_launches", options, lambda: drawn(options.problems, options.seed), work, "problems",
            lambda machine, *_: (machine, options.budget, folder), lambda run: tables.launches([run]),
            [f"Problems of benchmarks/tuned_launches.py, seed {options.seed}; {options.budget:g} s a search."],
            daemon=False, quick=True,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
