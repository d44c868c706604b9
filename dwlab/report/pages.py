"""The tables of the docs by their names, and what writes them into Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

from dwlab import records
from dwlab.kernels import registry
from dwlab.model import timemodel
from dwlab.problems import PATHS
from dwlab.records.writing import slug
from dwlab.report import counters, drawn, fusion, layer, machine, method, model, network, paper, planner, sparse, stages
from dwlab.report.epoch import epoch_table
from dwlab.report.shared import Runs, all_of

THREE_NETWORKS = "mobilenet_v1", "mobilenet_v2", "ceit_t"
"""Of a lesson's table, for which all are too many: two that gain by fusion, and one that does not always."""

OF_RUNS: Mapping[str, Callable[..., str]] = {
    "ceilings": machine.ceilings_table,
    "copies": machine.copies_table,
    "comparisons": machine.comparisons_table,
    "ablations": machine.ablations_table,
    "grid/summary": stages.grid_summary,
    "depthwise1d/total": lambda runs: paper.totals_table(runs=runs),
    "depthwise1d/bandwidth": lambda runs: paper.bandwidth_table(runs=runs),
    "layers/summary": layer.layers_summary,
    "layers/counters": counters.counters_summary,
    "networks/summary": network.networks_summary,
    "networks/energy": network.energy_ablations_table,
    "networks/energy/least": functools.partial(network.energy_ablations_table, best_order=True),
    "headline": fusion.headline,
    "losses": fusion.losses,
    "fusion/pairs": fusion.fusion_pairs,
    "fusion/networks": fusion.fusion_networks,
    "fusion/networks/three": functools.partial(fusion.fusion_networks, names=THREE_NETWORKS),
    "sparse": sparse.sparse_table,
    "sparse/summary": sparse.sparse_summary,
    "sparse/bounds": sparse.sparse_bounds,
    "planner/validated": planner.validated_summary,
    "planner/chosen": planner.chosen_summary,
    "predicted": timemodel.table,
    "predicted/another": lambda runs: model.compared(),
    "predicted/another/networks": model.compared_networks,
    "epoch": lambda runs: epoch_table(),
    "method/job": lambda runs: method.job_table(),
    "method/where": lambda runs: method.where_table(),
    "method/kernels": lambda runs: method.kernels_table(),
    "method/accuracy": lambda runs: method.accuracy_table(),
}
"""Name -> the table that is made of runs."""


def tables(runs: Runs = None) -> dict[str, Callable[[], str]]:
    """Name between the markers -> what makes its text: every op and path recorded, and all paths of depthwise1d.

    Those of a GPU other than the one that is shown begin with its name, as its file of records has it.
    """
    runs = all_of(runs)
    made: dict[str, Callable[[], str]] = {name: functools.partial(make, runs) for name, make in OF_RUNS.items()}
    made["sanitizer"] = lambda: machine.sanitizer_table(runs, {one.id: one.digest for one in registry.stages()})
    both = functools.cache(lambda: drawn.tables(runs))
    made["drawn"], made["drawn/lost"] = lambda: both()[0], lambda: both()[1]
    kinds = sorted({(row.op, row.path, row.dtype) for run in runs for row in run.measurements})
    for op, path, dtype in kinds:
        if dtype != "float32":
            made[f"{op}/{path}/{dtype}"] = functools.partial(stages.table, op, path, dtype=dtype, runs=runs)
    for op, path in sorted({(op, path) for op, path, _ in kinds} | {("depthwise1d", path) for path in PATHS}):
        made[f"{op}/{path}"] = functools.partial(stages.with_earlier, op, path, runs)
        made[f"{op}/{path}/traffic"] = functools.partial(counters.traffic_table, op, path, runs=runs)
        made[f"{op}/{path}/shapes"] = functools.partial(stages.shapes_table, op, path, runs=runs)
    for gpu in {run.gpu: None for run in runs if run.gpu != records.shown_runs(runs)[0].gpu}:
        only = [run for run in runs if run.gpu == gpu]
        made |= {f"{slug(gpu)}/{name}": make for name, make in tables(only).items()}
    return made


_MARK = re.compile(r"<!-- (begin|end):([^\s>]+) -->")


def fill(text: str, made: Mapping[str, Callable[[], str]] | None = None) -> str:
    """The text with what stands between each pair of markers made anew.

    Markers are ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->``; the names are those of ``tables()``. Raises
    records.RecordError for a name that does not exist and for markers that do not pair.
    """
    made = tables() if made is None else made
    out: list[str] = []
    position, opened = 0, ""
    for mark in _MARK.finditer(text):
        kind, name = mark.groups()
        if kind == "begin":
            if opened:
                raise records.RecordError(f"<!-- begin:{name} --> stands inside {opened!r}: close that one first")
            if name not in made:
                raise records.RecordError(f"no table is named {name!r}: there are {', '.join(sorted(made))}")
            out.append(text[position : mark.end()])
            out.append("\n" + made[name]().strip("\n") + "\n")
            opened = name
        else:
            if opened != name:
                raise records.RecordError(f"<!-- end:{name} --> closes no table that is open ({opened or 'none'})")
            out.append(mark.group())
            opened = ""
        position = mark.end()
    if opened:
        raise records.RecordError(f"<!-- begin:{opened} --> has no <!-- end:{opened} -->")
    return "".join([*out, text[position:]])
