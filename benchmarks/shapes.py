"""Our stages against PyTorch on many shapes of depthwise1d: ``python benchmarks/shapes.py [FOLDER] [--grid]``.

Every stage that takes a shape, on drawn shapes, those that nobody chose. kernels.dispatch chooses by these times from
then on (kernels.choices). With --grid what dispatch chooses, on a grid of L, K and sizes.

Every result is checked against float64, of large shapes in some channels and entries, and a wrong one has no time.
PyTorch runs its convolutions in either layout (but for `slow` shapes), its FFT and, on drawn shapes, matrix products;
through torch.compile on the grid alone: its search takes minutes a shape. Data below half the L2 is timed warm; `cold`
says so. Writes one record into FOLDER (the project's own if none is given).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from recording import Parser, beside, compile_ahead, record, said, taken
from tables import stages as tables

from dwlab import problems, records, study
from dwlab.gpu.machine import Machine
from dwlab.kernels import dispatch, registry
from dwlab.measure import baselines, timing
from dwlab.problems import DepthwiseConv1d
from dwlab.text.commandline import whole

ELEMENTS = 1 << 24  # most of x of a drawn shape
PRODUCTS = 1 << 31  # most of a drawn shape: B*H*L*K, those outside a row counted too
PADDED = 1 << 40  # most products of padded rows that PyTorch's convolutions are tried with
DRAWN = {"rounds": 3, "min_seconds": 0.003, "most_seconds": 0.06}
OF_GRID = {"rounds": 5, "min_seconds": 0.02, "most_seconds": 0.2}
SLOW = 100  # times the fastest, or 10 µs: of what takes longer one launch is timed, by the host's clock
PAIR = ("input_grad", "weight_grad")  # what two launches need for both gradients
KINDS = ("any", "odd row", "one channel", "one entry", "few long rows", "many short rows", "more taps than times",
         "many taps", "whole pieces")  # fmt: skip
LENGTHS = (48, 64, 96, 128, 256, 512, 1000, 1024, 4096, 16384)
TAPS = (3, 4, 7, 15, 31, 48, 63)
SIZES = (100_000, 10_000_000, 200_000_000)  # B*H*L, near to it
CHANNELS = 128
FEW_TAPS = (4, 15, 48)  # at the least size
GRID = (
    f"The grid: L {LENGTHS[0]} to {LENGTHS[-1]:,}, K {TAPS[0]} to {TAPS[-1]}, B*H*L near 1e5, 1e7 and 2e8, causal and "
    "same: at 1e7 every L and K, at 1e5 three K for each L, at 2e8 one, paddings in turn."
)


def drawn(count: int, seed: int, dtypes: Sequence[str] = ("float32",)) -> list[DepthwiseConv1d]:
    """So many shapes, always the same for a seed, their kinds and types in turn; no two alike."""
    rng = random.Random(f"shapes {seed}")
    found: dict[DepthwiseConv1d, None] = {}

    def between(low: float, high: float) -> int:
        return round(2 ** rng.uniform(low, high))

    while len(found) < count:
        turn, of_kinds = divmod(len(found), len(KINDS))
        kind, dtype = KINDS[of_kinds], dtypes[turn % len(dtypes)]
        B, H, L, K = between(0, 12), between(0, 10), between(0, 14), between(0, 7)
        if kind == "odd row":
            L |= 1
        elif kind == "one channel":
            H = 1
        elif kind == "one entry":
            B = 1
        elif kind == "few long rows":
            B, H, L = between(0, 3), between(0, 3), between(9, 18)
        elif kind == "many short rows":
            B, L, K = between(6, 17), between(0, 6), between(0, 6)
        elif kind == "more taps than times":
            L = between(0, 9)
            K = L + between(0, 8)
        elif kind == "many taps":
            K = between(6, 12)
        elif kind == "whole pieces":
            L = 4 * between(0, 11)
        padding = rng.choice(("causal", "same", rng.randrange(K)))
        if B * H * L <= ELEMENTS and B * H * L * min(K, L) <= PRODUCTS:
            found[DepthwiseConv1d(B, H, L, K, padding, dtype)] = None
    return list(found)


def grid() -> list[list[DepthwiseConv1d]]:
    """The shapes in groups of one L, K and padding, whose kernels are made once. Their order is by chance, always the
    same: what a time limit leaves out is spread evenly."""
    groups = []
    for (i, L), (j, K) in itertools.product(enumerate(LENGTHS), enumerate(TAPS)):
        group = []
        for size in SIZES[1], *SIZES[:1] * (K in FEW_TAPS), *SIZES[2:] * (K == FEW_TAPS[2 * (i % 2)]):
            rows = max(1, size // L)
            H = min(CHANNELS, rows)  # where there are as many rows
            group.append(DepthwiseConv1d(max(1, round(rows / H)), H, L, K, ("causal", "same")[(i + j) % 2]))
        groups.append(group)
    random.Random(2026).shuffle(groups)
    return groups


def takers(problem: DepthwiseConv1d, path: str) -> list[Any]:
    """The stages of a path that take a problem themselves, and not by another's kernel."""
    found = []
    for one in registry.stages(problem.op, path):
        with contextlib.suppress(registry.StageError):
            one.launch(problem)
            found += [one] * one.supports(problem)
    return found


def slow(problem: DepthwiseConv1d) -> bool:
    """Whether PyTorch's convolutions, which pad rows by K on both sides, would take seconds a call: they are not tried,
    its FFT and matrix products are."""
    return problem.B * problem.H * (problem.L + problem.K) * problem.K > PADDED


def missing(todo: Sequence[DepthwiseConv1d], paths: Sequence[str]) -> list[DepthwiseConv1d]:
    """Those of which no record has all times of stages that take them; that lack the fewest first, `slow` last."""
    rows = [row for _, row in tables.newest_drawn(records.load_runs())]
    timed = {(tables.problem_of(row), row["path"], name) for row in rows for name in row["times"]}
    lacks = {
        problem: sum((problem, path, one.id) not in timed for path in paths for one in takers(problem, path))
        for problem in todo
    }
    return sorted((one for one in todo if lacks[one]), key=lambda one: (slow(one), lacks[one]))


def sets_of(problem: DepthwiseConv1d, path: str, machine: Machine) -> int:
    size, l2 = problem.compulsory_bytes(path), machine.l2_bytes or 0
    return 1 if size < l2 / 2 else timing.sets_for(size, l2)


@dataclasses.dataclass(frozen=True)
class Way:
    """Stages that compute a path, launched one after the other: study.GpuBench takes it as a stage."""

    stages: tuple[registry.Stage, ...]

    @property
    def id(self) -> str:
        return ", ".join(one.id for one in self.stages)

    def starter(self, problem: DepthwiseConv1d, arrays: Mapping[str, Any]) -> Callable[[Any], None]:
        own = [{name: arrays[name] for name in problem.arrays(one.path)} for one in self.stages]
        starts = [one.starter(problem, its) for one, its in zip(self.stages, own, strict=True)]

        def start(stream: Any = 0) -> None:
            for one in starts:
                one(stream)

        return start

    def run(self, problem: DepthwiseConv1d, arrays: Mapping[str, Any]) -> None:
        self.starter(problem, arrays)()


def alone_us(launch: Callable[[Any], None]) -> float:
    """The time of one launch by the host's clock, the least of three, for the host may be busy: above the GPU's own."""
    from dwlab.target import cuda

    took = []
    for _ in range(3):
        start = time.perf_counter()
        launch(0)
        cuda.synchronize()
        took.append(time.perf_counter() - start)
    return 1e6 * min(took)


def named(problem: DepthwiseConv1d, path: str) -> dict[str, Any]:
    return {"op": problem.op, "path": path, "problem": records.describe_problem(problem), "dtype": problem.dtype}


def drawn_row(problem: DepthwiseConv1d, path: str, bench: study.GpuBench, fastest: dict[str, Any]) -> dict[str, Any]:
    """Times of every stage and of PyTorch's best. fastest: path -> the fastest stage; adds its own."""
    row, wrong = named(problem, path) | {"times": {}}, []
    ways = [Way((one,)) for one in reversed(takers(problem, path))]  # those that take long are the first on the list
    if path == "backward" and all(name in fastest for name in PAIR):
        ways.insert(0, Way(tuple(fastest[name] for name in PAIR)))
    with bench.prepare(problem, path, sets=sets_of(problem, path, bench.machine)) as on:
        row["cold"] = on.cold
        for way in ways:
            try:
                on.check(way)
                with bench.alone:
                    took = alone_us(way.starter(problem, on.sets[0]))
                if took <= SLOW * max(10.0, min(row["times"].values(), default=math.inf)):
                    took = on.clocked(way).median_us
                row["times"][way.id] = round(took, 3)
            except Exception as error:
                wrong.append(f"{way.id}: {said(error)}")
        tried = on.baselines(("FFT", "bmm") if slow(problem) else ())
    best = min(row["times"], key=row["times"].__getitem__, default=",")
    if "," not in best:
        fastest[path] = registry.stage(best)
    theirs = {name: one for name, one in beside(tried).items() if name != "failure"}
    return row | theirs | ({"failure": "WRONG: " + "; ".join(wrong)} if wrong else {})


def bounds(problem: DepthwiseConv1d, path: str, machine: Machine) -> dict[str, Any]:
    way, size, fma = dispatch.launches(problem, path), problem.compulsory_bytes(path), machine.ceilings.fma_tflops
    return named(problem, path) | {
        "stage": way[0].name if len(way) == 1 else ", ".join(f"{one.path}/{one.name}" for one in way),
        "cold": timing.cache_state(size, machine.l2_bytes or 0, sets_of(problem, path, machine)),
        "copy_bound_us": size / machine.ceilings.copy_gbps / 1e3,
        "fma_bound_us": problem.flops_of(path) / fma / 1e6 if fma else None,
    }


def grid_row(problem: DepthwiseConv1d, path: str, bench: study.GpuBench) -> dict[str, Any]:
    """The time of what dispatch chooses, its least times, and PyTorch's best of LIBRARY_WAYS."""
    row = bounds(problem, path, bench.machine)
    with bench.prepare(problem, path, sets=sets_of(problem, path, bench.machine)) as on:
        timed = on.time(Way(dispatch.launches(problem, path)))
        row |= {"time_us": timed.median_us, "p10_us": timed.p10_us, "p90_us": timed.p90_us}
        row["fraction_of_copy"] = row["copy_bound_us"] / timed.median_us
        return row | beside(on.baselines(baselines.LIBRARY_WAYS), timed.median_us)


def work(tasks: Any, results: Any, gpu: Any, machine: Machine, paths: Sequence[str], of_grid: bool) -> None:
    import torch

    bench = study.GpuBench(machine=machine, how=OF_GRID if of_grid else DRAWN, alone=gpu, compiled=of_grid, few=True)
    for group in taken(tasks):
        rows: list[dict[str, Any]] = []
        for problem in group:
            fastest: dict[str, Any] = {}
            for path in paths:
                for stage in dispatch.launches(problem, path) if of_grid else takers(problem, path):
                    compile_ahead(stage, problem)
                row = bounds(problem, path, machine) if of_grid else named(problem, path) | {"times": {}}
                try:
                    row = grid_row(problem, path, bench) if of_grid else drawn_row(problem, path, bench, fastest)
                except Exception as error:
                    row |= {"failure": f"WRONG: {said(error)}"}
                rows.append(row)
        with gpu:
            torch.cuda.empty_cache()  # other processes want the memory
        results.put({"grid" if of_grid else "shapes": rows})


def planned(options: Any) -> list[list[DepthwiseConv1d]]:
    if not options.grid:
        found = drawn(options.shapes, options.seed, options.dtype)
        return [[one] for one in (missing(found, options.path) if options.missing else found)]
    known = [one["problem"] for one in records.grid_rows()[0]] if options.missing else ()
    kept = [[one for one in group if records.describe_problem(one) not in known] for group in grid()]
    return [group for group in kept if group]


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.add_argument("--grid", action="store_true", help="what dispatch chooses, on a grid of shapes")
    parser.add_argument("--shapes", type=whole(1), default=200, help="how many are drawn (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the drawing (default: %(default)s)")
    parser.each("--dtype", ("float32",), "storage types in turn (default: float32)", choices=problems.DTYPES)
    parser.each("--path", problems.PATHS, "only this path", choices=problems.PATHS)
    parser.tasks(440, min(14, (os.cpu_count() or 2) - 1))
    options = parser.parse_args(given)
    what = f"Shapes of benchmarks/shapes.py, seed {options.seed}: every stage that takes them."
    return record(
        "shapes", options, lambda: planned(options), work, "groups of shapes",
        lambda machine, *_: (machine, tuple(options.path), options.grid),
        lambda run: tables.grid([run]) if options.grid else tables.drawn([*records.load_runs(), run]),
        [GRID if options.grid else what], threads=None,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
