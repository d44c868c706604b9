"""Sparse pointwise stages against libraries and dense kernels: ``python benchmarks/record_sparse.py [FOLDER]``.

Shapes of matrices as the source of the sparse kernels has them (F x C filters, 2,048 to 8,192 pixels), then the
networks' distinct pointwise layers, as record_layers.py has them; float16, no bias and no activation, in both layouts,
each in several patterns of pruned filters. Ours: every sparse stage but the naive one, and the last dense stages of
pointwise in NHWC, with the same filters, zeros and all; theirs: what `sparse_baselines` has.

Writes one record into FOLDER (the project's own if none is given): a measurement of each stage, and in the section
`sparse` a row for each sparse stage with every library's time. A way that ends its process, or takes the GPU's context
with it, costs that problem; another process goes on.

examples: record_sparse.py --seconds 330
          record_sparse.py --missing --seconds 200     what no record has yet
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import record_layers
import sparse_baselines
from record_layers import candidates, peer_rows, timed
from recording import Parser, beside, compile_ahead, record, recorded, taken, told
from tables import networks as tables

from dwlab import records, report, study
from dwlab.gpu.machine import Machine
from dwlab.measure import baselines, timing
from dwlab.model.sparse import dense_layer
from dwlab.problems.layers import LAYOUTS, Pointwise, SparsePointwise
from dwlab.problems.sparsity import pattern
from dwlab.report.rows import SOURCE
from dwlab.text.commandline import whole

MATRICES = ((4096, 1024), (1024, 4096), (3072, 768), (768, 3072), (1024, 1024), (768, 768))  # F x C
PIXELS = (8192, 4096, 2048)
ROW = 64  # pixels of a row; in NHWC an image's, some of which are checked, in NCHW all rows are one image's: C x pixels
PATTERNS = ("2:4", "64:2:16", "64:2:32")
LATER = {"NHWC": ("64:2:8",), "NCHW": ("64:2:8", "128:2:16", "128:2:32")}
OF_LAYERS = ("64:2:16", "2:4")
MULTIPLY_ADDS = 1 << 31  # of the dense product: larger ones have no use for CUDA cores, and long to compile
HOW = {"rounds": 5, "min_seconds": 0.01, "most_seconds": 0.15}
DENSE, FEW = 3, 1024  # of the last dense stages; pixels


@dataclass(frozen=True)
class Group:
    """A layer with sparse filters, and where it comes from."""

    problem: SparsePointwise
    where: str

    def __str__(self) -> str:
        return f"{self.problem}  {self.where}"


def plan(
    patterns: Sequence[str] = (), batches: Sequence[int] = (1, 32), layers: bool = True,
    layouts: Sequence[str] = LAYOUTS,
) -> list[Group]:  # fmt: skip
    """Groups, the most important first. In NCHW only the naive stage takes maps of an odd number of pixels."""
    made = []
    for layout, pixels in itertools.product(layouts[::-1], PIXELS):
        sizes = (pixels // ROW, 1) if layout == "NHWC" else (1, pixels // ROW)
        for forms in (patterns,) if patterns else (PATTERNS, LATER[layout]):
            for (F, C), form in itertools.product(MATRICES, forms):
                layer = SparsePointwise(sizes[0], C, F, sizes[1], ROW, layout, pattern=form)
                made.append(Group(layer, SOURCE))
    for found in record_layers.plan(("pointwise",), ("float16",)) if layers else ():
        one, where = found.problem, record_layers.in_networks(found.where)
        for batch, form, layout in itertools.product(batches, patterns or OF_LAYERS, layouts):
            if layout == "NHWC" or one.H * one.W % 2 == 0:
                layer = SparsePointwise(batch, one.C, one.F, one.H, one.W, layout, pattern=form)
                made.append(Group(layer, where))
    return made


def known(runs: Sequence[records.Record]) -> set[str]:
    rows = [row for run in runs for row in run.sections.get("sparse", ()) if row.get("time_us")]
    return {records.shape_text(row["problem"]) for row in rows}


def stages_of(problem: Pointwise) -> list[Any]:
    """Our stages that are tried, `columns` on small products and `split` for few pixels alone."""
    found = [stage for stage in candidates(problem, 0) if stage.order > 1]
    if problem.op == "sparse":
        small = problem.N * problem.H * problem.W * problem.F * problem.C <= MULTIPLY_ADDS
        return [stage for stage in found if small or stage.name != "columns"]
    return [stage for stage in found[-DENSE:] if stage.name != "split" or problem.N * problem.H * problem.W <= FEW]


def row_of(
    group: Group, stage: Any, timed: timing.Timing | str, best: Mapping[str, baselines.Baseline],
    ours: Mapping[str, float], copy_gbps: float,
) -> dict[str, Any]:  # fmt: skip
    """A row of the section `sparse`. best: library -> its fastest way; ours: dense stage -> µs."""
    problem, theirs = group.problem, {name: one.time.median_us for name, one in best.items()}
    nbytes = problem.compulsory_bytes()
    made = {
        "op": "sparse", "path": "forward", "stage": stage.name if stage else None, "layer": report.layer_text(problem),
        "batch": problem.N, "dtype": problem.dtype, "problem": records.describe_problem(problem),
        "pattern": problem.pattern, "sparsity": problem.form.sparsity, "networks": group.where,
        "compulsory_bytes": nbytes, "copy_bound_us": nbytes / copy_gbps / 1e3,
        "peers": theirs, "dense": dict(ours),
    }  # fmt: skip
    if isinstance(timed, str):
        return made | {"failure": timed}
    us = timed.median_us
    made |= {"time_us": us, "p10_us": timed.p10_us, "p90_us": timed.p90_us, "cold": timed.cold}
    made["speedups"] = {name: other / us for name, other in {**theirs, **ours}.items()}
    return made | (beside(list(best.values()), us) if best else {})


@dataclass(frozen=True)
class Ready:
    """A group made ready without the GPU: kernels compiled, and two inputs made. filters: (F, C), zeros and all."""

    stages: list[Any]
    inputs: list[dict[str, np.ndarray]]
    dense: Pointwise
    dense_stages: list[Any]
    dense_inputs: list[dict[str, np.ndarray]]
    filters: np.ndarray


def prepare(group: Group) -> Ready:
    problem, dense = group.problem, replace(dense_layer(group.problem), layout="NHWC")
    stages, dense_stages = stages_of(problem), stages_of(dense)
    for stage in (*stages, *dense_stages):
        compile_ahead(stage, problem if stage.op == "sparse" else dense)
    first = problem.inputs("forward", seed=2026)
    filters = np.ascontiguousarray(problem.filters(first), np.float16)
    x = first["x"].reshape(-1)  # moved on all of it differs, and random numbers take long to make
    inputs = [first, first | {"x": np.roll(x, 1 + x.size // 3).reshape(first["x"].shape)}]
    pixels_first = [np.moveaxis(one["x"], 1, 3) if problem.layout == "NCHW" else one["x"] for one in inputs]
    dense_inputs = [{"x": np.ascontiguousarray(x), "w": filters} for x in pixels_first]
    return Ready(stages, inputs, dense, dense_stages, dense_inputs, filters)


def measure(group: Group, bench: study.GpuBench, ready: Ready) -> dict[str, list[Any]]:
    import torch

    def verify(out: dict[str, Any]) -> str:
        return on.wrong("y", out["y"].contiguous().float().cpu().numpy(), sparse_baselines.relative_error())

    problem, copy_gbps = group.problem, bench.machine.ceilings.copy_gbps
    with bench.prepare(ready.dense, "forward", ready.dense_inputs) as on:
        found = {stage: timed(on, stage) for stage in ready.dense_stages}
    ours = {stage.id: one.median_us for stage, one in found.items() if isinstance(one, timing.Timing)}
    wrong = [f"WRONG: {stage.id}: {one}" for stage, one in found.items() if isinstance(one, str)]
    measured = [
        study.measurement(stage, ready.dense, one, copy_gbps, note=f"filters of {problem.pattern}")
        for stage, one in found.items() if isinstance(one, timing.Timing)
    ]  # fmt: skip
    with bench.prepare(problem, "forward", ready.inputs) as on:
        found = {stage: timed(on, stage) for stage in ready.stages}
        with bench.alone:
            w = torch.from_numpy(ready.filters).cuda()
            sets = [{"x": baselines.tensor_of(problem, "x", one["x"]), "w": w.clone()} for one in on.sets]
            ran = sparse_baselines.measure(problem, sets, verify, cold=on.cold, **HOW)
            sets = w = None
    torch.cuda.empty_cache()  # other processes want the memory
    best, rows = sparse_baselines.fastest_of_each(ran), []
    for stage, one in found.items() or [(None, "no stage takes it")]:
        if isinstance(one, timing.Timing):
            row = study.measurement(stage, problem, one, copy_gbps, note=group.where)
            measured.append(study.with_baseline(row, baselines.fastest(ran)))
        elif stage is not None:
            one = f"WRONG: {one}"
        rows.append(row_of(group, stage, one, best, ours, copy_gbps))
    if wrong:
        rows[0]["failure"] = "; ".join([*filter(None, [rows[0].get("failure")]), *wrong])
    return {"measurements": [row.to_dict() for row in measured], "sparse": rows, "peers": peer_rows(problem, ran)}


def work(tasks: Any, results: Any, gpu: Any, machine: Machine) -> None:
    """A process, which leaves when its context is gone: nothing runs in it any more."""
    import torch

    bench = study.GpuBench(machine=machine, how=HOW, alone=gpu, few=True)
    torch.cuda.init()
    for group in taken(tasks):
        try:
            made = measure(group, bench, prepare(group))
            torch.cuda.synchronize()
        except Exception as error:
            row = row_of(group, None, f"WRONG: {told(error)}", {}, {}, machine.ceilings.copy_gbps)
            made = {"measurements": [], "peers": [], "sparse": [row]}
        results.put(made)
        try:
            torch.cuda.synchronize()
        except Exception:
            results.close()
            results.join_thread()
            os._exit(1)  # what would be freed on the usual way out fails, too, and PyTorch aborts


def main(given: Sequence[str] | None = None) -> int:
    parser = Parser(__doc__)
    parser.each("--pattern", (), "only this pattern, of all shapes")
    parser.each("--batch", (1, 32), "images of networks' layers (default: 1 and 32)", type=whole(1))
    parser.each("--layout", LAYOUTS, "of maps (default: both)", choices=LAYOUTS)
    parser.add_argument("--matrices", action="store_true", help="the source's shapes alone")
    parser.tasks(330, min(14, (os.cpu_count() or 2) - 1))
    options = parser.parse_args(given)

    def planned() -> list[Group]:
        patterns = [str(pattern(one)) for one in options.pattern]
        groups = plan(patterns, options.batch, not options.matrices, options.layout)
        there = known(recorded(options))
        return [group for group in groups if records.shape_text(group.problem) not in there]

    return record(
        "record_sparse", options, planned, work, "problems", lambda machine, *_: (machine,),
        lambda run: tables.sparse([run]),
        ["sparse: filters pruned by magnitude from random ones; dense stages have the same."],
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
