"""The hardware's counters for stages of image networks' layers: ``python benchmarks/ncu_layers.py [FOLDER]``.

Each stage on two layers or pairs of MobileNetV2: that with the largest share of the network's bytes and one of a small
map (a large, if that is small). Each kernel is launched once under Nsight Compute; beside what that counted stands what
the stage's formula predicts. Writes one record into FOLDER (the project's own if none is given): the section
`layer_counters`.

Kernels are compiled in several processes first, in two fifths of the time; then one process launches those that are
ready until the time is over, the last stages first. Exit status 1 if nothing was counted.

examples: ncu_layers.py --seconds 120
          ncu_layers.py --op fused/dwpw --dtype float16 --seconds 60
          ncu_layers.py --op fused/dwpw --op fused/pwdw --op fused/pwpw
          ncu_layers.py --dtype int8 --missing --seconds 900
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from record_layers import Problem, plan, variant
from recording import BEGAN, Parser, needs_gpu, tell, written
from tables import networks as tables

from dwlab import records, report
from dwlab.compiler import precompile as ahead
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.measure import counters
from dwlab.text.commandline import whole

NETWORK = "mobilenet_v2"
OPS = ("depthwise2d", "pointwise", "fused/dwpw", "fused/pwdw", "fused/pwpw")
DTYPES = ("float32", "float16")
BATCHES = (1, 32)
SMALL = 14  # side of a small map
COMPILING = 0.4  # of the time, at most
ENDING = 10  # seconds for what comes after the last launch
KEY = ("op", "path", "layer", "batch", "dtype", "stage", "layout")


@dataclass(frozen=True)
class Task:
    stage: Stage
    problem: Problem

    @property
    def key(self) -> tuple[Any, ...]:
        """The values of KEY in its row of a record."""
        one, stage = self.problem, self.stage
        return stage.op, stage.path, report.layer_text(one), one.N, one.dtype, stage.name, one.layout

    def __str__(self) -> str:
        return f"{self.stage.id}  {report.layer_text(self.problem)}  {self.problem.N} × {self.problem.dtype}"


def tasks(ops: Sequence[str] = OPS, dtypes: Sequence[str] = DTYPES, batches: Sequence[int] = BATCHES) -> list[Task]:
    """The launches, the more telling first: last stages before earlier ones, the largest layer before the small one.

    The first stage of a path, which loads an operand for each product, gets one layer and one image.
    """
    found: list[tuple[tuple[int, ...], Task]] = []
    keys: dict[tuple[str, str, str], list[Problem]] = {}
    for group in plan(ops, dtypes, [NETWORK]):
        keys.setdefault(group.key, []).append(group.problem)
    for (op, path, dtype), problems in keys.items():
        here = [stage for stage in registry.stages(op, path) if dtype in stage.dtypes]
        for back, stage in enumerate(reversed(here)):
            for place, problem in enumerate(chosen(stage, problems)):
                for turn, batch in enumerate(batches):
                    one = next((one for one in both(problem, batch) if stage.supports(one)), None)
                    if one and (stage.order > 1 or (place, turn) == (0, 0)):
                        found.append(((place if stage.order > 1 else 2, turn, back), Task(stage, one)))
    return [task for _, task in sorted(found, key=lambda one: one[0])]


def both(problem: Problem, batch: int) -> list[Problem]:
    return [variant(problem, batch, layout) for layout in ("NHWC", "NCHW")]


def missing(todo: Sequence[Task], runs: Sequence[records.Record] | None = None) -> list[Task]:
    """The launches that no record has counters of (all of the project's if no runs are given)."""
    known = {tuple(row[name] for name in KEY) for row in tables.layer_counters(runs)[0]}
    return [task for task in todo if task.key not in known]


def chosen(stage: Stage, problems: Sequence[Problem]) -> list[Problem]:
    """The first of problems by their share that a stage takes in some layout; and one of a small map, or a large."""
    takes = [one for one in problems if any(map(stage.supports, both(one, 1)))]
    small = [getattr(one, "second", one).P <= SMALL for one in takes]
    others = [one for one, is_small in zip(takes, small, strict=True) if is_small != small[0]]
    return takes[:1] + others[:1]


def row_of(task: Task, counted: counters.Counters) -> dict[str, Any]:
    problem, predicted = task.problem, counted.predicted
    made = dict(zip(KEY, task.key, strict=True)) | {
        "problem": records.describe_problem(problem), "exact": predicted["exact"],
        "compulsory_bytes": problem.compulsory_bytes(task.stage.path),
    }  # fmt: skip
    made |= {name: getattr(counted, name) for name in records.COUNTED_OF_LAYERS}
    asked = ("load_requests", "load_sectors", "store_requests", "store_sectors")
    return made | {f"predicted_{name}": predicted[name] for name in asked}


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.each("--op", OPS, "only these ops", choices=OPS)
    parser.each("--dtype", DTYPES, "storage type (default: float32 and float16)", choices=(*DTYPES, "int8"))
    parser.each("--batch", BATCHES, "images (default: 1 and 32)", type=whole(1))
    parser.tasks(120, min(16, os.cpu_count() or 1))
    options = parser.parse_args(given)
    todo = tasks(options.op, options.dtype, options.batch)
    todo = missing(todo) if options.missing else todo
    if options.list:
        print(*todo, f"{len(todo)} launches", sep="\n")
        return 0
    if not todo:
        print("there is nothing to count: a record has every launch that is asked for", file=sys.stderr)
        return 0
    folder = needs_gpu(options.folder)

    from dwlab.gpu import target

    if target.mode != "gpu":
        print(f"ncu_layers needs a GPU: {target.reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "kernels"
        jobs = [ahead.job_of(task.stage, task.problem) for task in todo]
        payloads = ahead.compiled(jobs, options.processes, COMPILING * options.seconds)
        ahead.save(file, jobs, payloads)
        ready = [task for task, payload in zip(todo, payloads, strict=True) if payload is not None]
        tell(f"{len(ready)} of {len(todo)} kernels are compiled")
        if not ready:
            print("no kernel could be compiled in the time: give more --seconds", file=sys.stderr)
            return 1
        left = BEGAN + options.seconds - ENDING - time.monotonic()
        launches = [(task.stage, task.problem) for task in ready]
        try:
            found = counters.count(launches, compiled=file, seconds=max(1.0, left))
        except counters.CountersError as error:
            print(f"ncu_layers: {error}", file=sys.stderr)
            return 1
    rows = [row_of(task, one) for task, one in zip(ready, found, strict=True) if one is not None]
    notes = [f"layer_counters: layers of {NETWORK}; {len(rows)} of {len(todo)} launches in {options.seconds:g} s."]
    run = written(folder, {"layer_counters": rows}, notes=notes)
    print(f"\n{run.file}\n\n{tables.counters([run])}", *run.notes, sep="\n")
    tell("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
