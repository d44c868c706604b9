"""Our stages against PyTorch's best on the layers of image networks: ``python benchmarks/record_layers.py [FOLDER]``.

Each distinct depthwise layer, pointwise layer and pair of the two that may share a kernel, those with the largest share
of their network's bytes first, until the time is over; or layers of no network, --problem and --drawn. Ours: the last
stages that take the layer, in either layout; theirs: what dwlab.measure.layer_baselines finds, of int8 in float16. Both
run in CUDA graphs on several sets of buffers, together larger than the L2 as far as 64 sets are. Writes one record into
FOLDER (the project's own if none is given): a measurement for each stage, layout and layer, and in the section `layers`
our best beside theirs.

Kernels are compiled in several processes, and one at a time uses the GPU. With --compiled these processes first run
torch.compile; a layer for which that is not done after two thirds of the time is not measured.

examples: record_layers.py --op depthwise2d --op fused/dwpw --dtype float16 --seconds 120
          record_layers.py --missing          what no record has yet
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recording import CONTEXT, Parser, ahead, beside, compile_ahead, record, recorded, said, taken, told
from tables import networks as tables

from dwlab import records, report, study
from dwlab.gpu.machine import Machine
from dwlab.kernels import registry
from dwlab.measure import baselines, layer_baselines, timing
from dwlab.model import roofline
from dwlab.problems import layers, networks
from dwlab.problems.layers import DTYPES, LAYOUTS, DepthwiseConv2d, Fused, Pointwise
from dwlab.report.rows import NO_NETWORK
from dwlab.text.commandline import whole

NETWORKS = report.VALIDATED
OPS = ("depthwise2d", "pointwise", "fused", "fused/dwpw", "fused/pwdw", "fused/pwpw")
TURN = ("depthwise2d", "fused", "pointwise")
HOW = {"rounds": 5, "min_seconds": 0.02, "most_seconds": 0.2}
COMPILING = 0.66  # of the time, at most, for torch.compile
ABOVE = 0.1  # how far above the copy bandwidth a layer may be: a copy writes as much as it reads, and reads are faster

Problem = DepthwiseConv2d | Pointwise | Fused
Tried = tuple[Any, Problem, records.Measurement | str]  # a stage, on what, and its measurement or what is wrong with it


@dataclass(frozen=True)
class Group:
    """A layer or pair for one image in NHWC, where it stands in the networks, and its share of their bytes, summed."""

    problem: Problem
    where: tuple[str, ...]
    share: float

    @property
    def key(self) -> tuple[str, str, str]:
        return self.problem.op, self.problem.main_path, self.problem.dtype

    def __str__(self) -> str:
        text = report.layer_text(self.problem)
        return f"{'/'.join(self.key)}  {text}  {100 * self.share:.1f} %  {in_networks(self.where)}"


def wanted(problem: Problem, ops: Sequence[str]) -> bool:
    """Whether a problem is of these ops. Two pointwise layers only where they are asked for by name."""
    if not ops:
        return problem.main_path != "pwpw"
    return problem.op in ops or f"{problem.op}/{problem.main_path}" in ops


def sizes(problem: Problem) -> tuple[Any, ...]:
    """The sizes that make layers distinct. Activations and residuals do not."""
    if isinstance(problem, Fused):
        return (*sizes(problem.first), *sizes(problem.second))
    names = ("C", "F", "H", "W", "K", "stride", "padding")
    return (problem.op, problem.dtype, *(getattr(problem, name, 0) for name in names))


def plan(ops: Sequence[str], dtypes: Sequence[str], names: Sequence[str] = NETWORKS) -> list[Group]:
    """The distinct layers and pairs, the largest shares first, ops, paths and storage types in turn."""
    found: dict[tuple[Any, ...], Group] = {}
    for dtype, name in itertools.product(dtypes, names):
        kernels = networks.network(name, batch=1, layout="NHWC", dtype=dtype).kernels
        for op in ("depthwise2d", "pointwise", "fused"):
            here = {layer: problem for layer, problem in kernels.items() if problem.op == op}
            total = sum(problem.compulsory_bytes(problem.main_path) for problem in here.values())
            for layer, problem in here.items():
                if wanted(problem, ops):
                    share = problem.compulsory_bytes(problem.main_path) / total
                    known = found.get(sizes(problem), Group(problem, (), 0.0))
                    where = *known.where, f"{name} {' and '.join(layer)}"
                    found[sizes(problem)] = replace(known, where=where, share=known.share + share)
    lines: dict[tuple[str, str, str], list[Group]] = {}
    for group in sorted(found.values(), key=lambda group: -group.share):
        lines.setdefault(group.key, []).append(group)
    keys = sorted(lines, key=lambda key: (DTYPES.index(key[2]), TURN.index(key[0])))
    in_turn = itertools.zip_longest(*(lines[key] for key in keys))
    return [group for turn in in_turn for group in turn if group is not None]


def others(texts: Sequence[str], count: int, ops: Sequence[str], dtypes: Sequence[str], seed: str = "") -> list[Group]:
    """Layers of no network: those of --problem, and so many drawn ones of each op, the same for a seed."""
    rng, found = random.Random(f"layers{seed}"), [layers.problem(text) for text in texts]

    def between(low: float, high: float) -> int:
        return round(2 ** rng.uniform(low, high))

    for op, _ in itertools.product(ops, range(count)):
        C, F, H, W = 8 * between(1, 8), 8 * between(1, 8), between(2.8, 6.8), between(2.8, 6.8)
        found.append(Pointwise(1, C, F, H, W) if op == "pointwise" else DepthwiseConv2d(1, C, H, W, between(1, 5) | 1))
    return [Group(variant(replace(one, dtype=dtype), 1, "NHWC"), (), 0.0) for dtype in dtypes for one in found]


def variant(problem: Problem, batch: int, layout: str) -> Problem:
    if isinstance(problem, Fused):
        return Fused(variant(problem.first, batch, layout), variant(problem.second, batch, layout))
    return replace(problem, N=batch, layout=layout)


def candidates(problem: Problem, last: int) -> list[Any]:
    """The last so many stages that take the problem; all of them for 0."""
    return [stage for stage in registry.stages(problem.op, problem.main_path) if stage.supports(problem)][-last:]


def in_networks(where: Iterable[str]) -> str:
    """The networks that have a layer, and how often: "mobilenet_v1 5×, xception"."""
    counted = Counter(one.split(" ")[0] for one in where)
    return ", ".join(name if n == 1 else f"{name} {n}×" for name, n in counted.items()) or NO_NETWORK


def timed(on: Any, stage: Any) -> timing.Timing | str:
    """A stage's time on a problem that study.GpuBench has prepared, or what is wrong."""
    try:
        return on.time(stage)
    except Exception as error:
        return said(error)


def measured(
    stage: Any, problem: Problem, timed: timing.Timing, machine: Machine, where: Sequence[str]
) -> records.Measurement:
    note = f"{timed.note}; in {in_networks(where)}" if timed.note else f"in {in_networks(where)}"
    return study.measurement(stage, problem, timed, machine.ceilings.copy_gbps, note=note)


def above(row: records.Measurement, problem: Problem, machine: Machine) -> str:
    try:
        roofline.points([row], report.roof_of(problem.op, machine.ceilings), tolerance=ABOVE)
    except roofline.RooflineError as error:
        return str(error)
    return ""


def layer_row(
    group: Group, batch: int, tried: Sequence[Tried], ran: Sequence[baselines.Baseline], machine: Machine
) -> dict[str, Any]:
    """The row of the section `layers`: our fastest stage and layout beside the fastest peer."""
    right = [(row.time_us, i) for i, (_, _, row) in enumerate(tried) if isinstance(row, records.Measurement)]
    wrong = [f"WRONG: {stage.name}, {problem.layout}: {row}" for stage, problem, row in tried if isinstance(row, str)]
    problem = variant(group.problem, batch, "NHWC")
    nbytes = problem.compulsory_bytes(problem.main_path)
    made = {
        "op": problem.op, "path": problem.main_path, "layer": report.layer_text(problem), "batch": batch,
        "dtype": problem.dtype, "problem": records.describe_problem(problem), "networks": in_networks(group.where),
        "copy_bound_us": nbytes / machine.ceilings.copy_gbps / 1e3, "compulsory_bytes": nbytes,
    }  # fmt: skip
    if not tried:
        return made | {"failure": "no stage takes it"}
    if right:
        stage, problem, row = tried[min(right)[1]]
        made |= {"problem": records.describe_problem(problem), "stage": stage.name, "layout": problem.layout}
        made |= {key: getattr(row, key) for key in ("time_us", "p10_us", "p90_us", "fraction_of_copy", "cold")}
    made |= beside(ran, made.get("time_us"))
    failed = [*wrong, *filter(None, [made.get("failure")])]
    return made | ({"failure": "; ".join(failed)} if failed else {})


def measure(group: Group, bench: study.GpuBench, options: Mapping[str, Any]) -> dict[str, list[Any]]:
    """All of a group, with kernels compiled and inputs made while another process has the GPU."""
    made: dict[str, list[Any]] = {"measurements": [], "layers": [], "peers": []}
    for batch in options["batches"]:
        tried: list[Tried] = []
        ran: list[baselines.Baseline] = []
        for problem, chosen in todo(group.problem, batch, options["layouts"], options["last"]):
            for stage in chosen:
                compile_ahead(stage, problem)
            try:
                with bench.prepare(problem, problem.main_path) as on:
                    for stage in chosen:
                        found = timed(on, stage)
                        if isinstance(found, timing.Timing):
                            row = measured(stage, problem, found, bench.machine, group.where)
                            found = above(row, problem, bench.machine) or row
                        tried.append((stage, problem, found))
                    ran = ran or on.baselines()
            except study.OutOfMemory as error:
                tried += [(stage, problem, said(error)) for stage in chosen]
        peer = baselines.fastest(ran)
        for _, _, row in tried:
            if isinstance(row, records.Measurement):
                made["measurements"].append(study.with_baseline(row, peer).to_dict())
        made["layers"].append(layer_row(group, batch, tried, ran, bench.machine))
        made["peers"] += peer_rows(tried[0][1], ran) if tried else []
    return made


def peer_rows(problem: Problem, ran: Sequence[baselines.Baseline]) -> list[dict[str, Any]]:
    """A record's rows of PyTorch's ways for a problem: as it solved it, of int8 in float16 but for its int8 product."""
    made = []
    for one in ran:
        solved = problem if layer_baselines.INT_MM in one.way else layer_baselines.baseline_problem(problem)
        shown = {"path": solved.main_path, "shape": records.describe_problem(solved), "dtype": solved.dtype}
        made.append(one.to_dict() | shown)
    return made


def todo(problem: Problem, batch: int, layouts: Sequence[str], last: int) -> list[tuple[Problem, list[Any]]]:
    """(problem, stages that are tried) of each layout in which a stage takes the layer."""
    problems = [variant(problem, batch, layout) for layout in layouts]
    found = [candidates(one, last) for one in problems]
    # A naive stage takes long, and is the best one only where it is the only one.
    others = last > 0 and any(stage.order > 1 for chosen in found for stage in chosen)
    kept = [[stage for stage in tried if stage.order > 1 or not others] for tried in found]
    return [(one, chosen) for one, chosen in zip(problems, kept, strict=True) if chosen]


def work(tasks: Any, results: Any, gpu: Any, start: Any, machine: Machine, options: dict[str, Any]) -> None:
    def compile_peers(group: Group) -> None:
        for batch in options["batches"]:
            problem = variant(group.problem, batch, "NHWC")
            with contextlib.suppress(Exception):  # it fails again where it is measured, and is said there
                for one in layer_baselines.solved(problem):
                    layer_baselines.compile_ahead(one)

    import torch

    clock = timing.DeviceClock()
    bench = study.GpuBench(clock=clock, machine=machine, how=HOW, alone=gpu, compiled=options["compiled"], few=True)
    torch.cuda.init()
    for group in ahead(tasks, compile_peers, gpu, start, options["until"]) if options["compiled"] else taken(tasks):
        results.put(made_of(group, bench, options))


def made_of(group: Group, bench: study.GpuBench, options: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return measure(group, bench, options)
    except Exception as error:
        failed = {"failure": f"WRONG: {told(error)}"}
        rows = [layer_row(group, batch, [], [], bench.machine) | failed for batch in options["batches"]]
        return {"measurements": [], "peers": [], "layers": rows}


def missing(
    groups: Sequence[Group], batches: Sequence[int], runs: Sequence[records.Record], compiled: bool = False
) -> list[Group]:
    """The groups of which some batch is in no record with a time of ours and theirs; compiled: of torch.compile's."""
    known = {
        (row["op"], row["path"], row["dtype"], row["layer"], row["batch"])
        for row in report.layers(runs)[0]
        if row.get("speedup_vs_peer") and (row["compiled"] or not compiled)
    }
    return [
        one for one in groups if any((*one.key, report.layer_text(one.problem), n) not in known for n in batches)
    ]  # fmt: skip


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.each("--op", (), "only these ops", choices=OPS)
    parser.each("--network", NETWORKS, "only these networks' layers")
    parser.each("--problem", (), "not of networks: this layer")
    parser.add_argument("--drawn", type=whole(1), default=0, help="not of networks: so many drawn ones of each --op")
    parser.each("--batch", (1, 32), "images (default: 1 and 32)", type=whole(1))
    parser.each("--dtype", ("float32", "float16"), "storage type (default: float32 and float16)", choices=DTYPES)
    parser.each("--layout", ("NHWC", "NCHW"), "of our stages (default: both)", choices=LAYOUTS)
    parser.add_argument("--last", type=whole(0), default=2, help="so many last stages, 0: all (%(default)s)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile too: many seconds a layer")
    parser.tasks(170, min(12, (os.cpu_count() or 2) * 3 // 4))
    options = parser.parse_args(given)

    def planned() -> list[Group]:
        groups = others(options.problem, options.drawn, options.op, options.dtype)
        groups = groups or plan(options.op, options.dtype, options.network)
        return missing(groups, options.batch, recorded(options), options.compiled)

    def how(machine: Machine, left: float, count: int) -> Sequence[Any]:
        named = {"batches": options.batch, "layouts": options.layout, "last": options.last}
        more = {"compiled": options.compiled, "until": time.monotonic() + COMPILING * left}
        return CONTEXT.Barrier(count), machine, named | more

    tried = {0: "all", 1: "the last"}.get(options.last, f"the last {options.last}")
    tried = f"layers: tried in {' and '.join(options.layout)}, of the stages that take a layer: {tried}."
    return record(
        "record_layers", options, planned, work, "layers", how, lambda run: tables.layers([run]), [tried],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
