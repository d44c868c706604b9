"""The planner's decisions compared with measured times: docs/results/planner.md."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from dwlab import planner, records
from dwlab.planner import validation
from dwlab.report.layer import layers, with_compile
from dwlab.report.shared import NO_LAYERS, VALIDATED, Row, Runs, all_of, measured_on, ratio_columns
from dwlab.text.tabular import Col, Markdown, of_rows, percent


def validations(runs: Runs = None) -> list[validation.Validation]:
    """The planner validated by recorded times: of each network, storage type and batch of which a pair was measured.

    Of one GPU, as `records.shown_runs` chooses it. Maps are NHWC.
    """
    having = [run for run in all_of(runs) if run.sections.get("network_kernels") or run.sections.get("layers")]
    having = records.shown_runs(having)
    recorded: set[tuple[str, str, int]] = set()
    for run in having:
        for row in run.sections.get("network_kernels", ()):
            if row["layout"] == "NHWC":
                recorded.add((row["network"], row["dtype"], row["batch"]))
        for row in run.sections.get("layers", ()):
            if row["op"] == "fused":
                recorded |= {(name, row["dtype"], row["batch"]) for name in VALIDATED if name in row["networks"]}
    made = []
    for name, dtype, batch in sorted(recorded, key=lambda one: (one[0], -len(one[1]), one[1], one[2])):
        try:
            plan = planner.plan(name, having[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
        except (ValueError, LookupError):  # a network, type or GPU that is no longer known
            continue
        found = validation.validate(plan, runs=having)
        made += [found] if found.rows else []
    return made


def validated_summary(runs: Runs = None) -> Markdown:
    """The planner's decisions compared with measured times: a row a network, storage type and batch."""
    made = validations(runs)
    if not made:
        return Markdown(
            "No pair of layers has measured times of both ways. On a GPU: `python benchmarks/record_networks.py`.\n"
        )

    def wrong(one: validation.Validation, fuse: bool) -> int:
        return sum(not row.right and row.pair.fuse is fuse for row in one.rows)

    columns = [
        Col("network", lambda one: one.plan.network.name, left=True),
        Col("dtype", lambda one: one.plan.network.dtype, left=True),
        Col("batch", lambda one: one.plan.network.batch),
        Col("pairs measured", lambda one: len(one.rows)),
        Col("not measured", "unmeasured"),
        Col("right", lambda one: sum(row.right for row in one.rows)),
        Col("fused, but slower", lambda one: wrong(one, True)),
        Col("unfused, but slower", lambda one: wrong(one, False)),
        Col("mean regret", "mean", percent),
        Col("largest", "largest", percent),
        Col("whole plan over the best", "regret", lambda regret: f"+{100 * regret:.1f} %"),
    ]
    rows = [row for one in made for row in one.rows]
    right = sum(row.right for row in rows)
    here = {(one.plan.network.name, one.plan.network.dtype, one.plan.network.batch) for one in made}
    without = []
    for name in VALIDATED:
        none = [f"{dtype} batch {batch}" for dtype, batch in itertools.product(("float32", "float16"), (1, 32))
                if (name, dtype, batch) not in here]  # fmt: skip
        without += [f"{name} ({', '.join(none)})"] if none else []
    return of_rows(columns, made, [
        f"In all {right} of {len(rows)} decisions are right ({right / len(rows):.0%}), each pair by itself; "
        f"{sum(one.unmeasured for one in made)} pairs of these networks have no measurement. Regret: time lost, of the "
        "better of the two ways. Layers and pairs that are alike count once.  ",
        *([f"No pair is measured of {'; '.join(without)}.  "] if without else []),
        *(f"Times: {source}.  " for source in dict.fromkeys(one.source for one in made)),
        f"Planned for {made[0].plan.gpu.name} by predicted times, whose constants were fitted to these measurements; "
        "`benchmarks/plan_costs.py` says how far off they are for a network that the fit does not see. Each pair: "
        "`python -m dwlab plan NETWORK --validate`.",
    ])  # fmt: skip


def chosen_summary(runs: Runs = None) -> Markdown:
    """The pairs that the planner fuses in the four networks, each once, against PyTorch's best for the two layers.

    A row a storage type and batch, int8 where it is recorded: against PyTorch's float16, and our own two kernels.
    """
    measured, used = layers(runs)
    measured = [row for row in measured if row["op"] == "fused" and row.get("speedup_vs_peer")]
    if not measured:
        return Markdown(NO_LAYERS)
    found = {(row["dtype"], records.shape_text(validation.bare(row["problem"]))): row for row in measured}
    beside = any(row["dtype"] == "int8" for row in measured)
    groups: list[tuple[str, int, int, list[Row]]] = []
    for dtype, batch in itertools.product(("float32", "float16", *["int8"] * beside), (1, 32)):
        pairs: dict[str, None] = {}
        for name in VALIDATED:
            plan = planner.plan(name, used[-1].gpu, dtype=dtype, batch=batch, layout="NHWC")
            pairs |= {records.shape_text(validation.bare(records.describe_problem(one))): None for one in plan.fused}
        rows = [found[dtype, pair] for pair in pairs if (dtype, pair) in found]
        groups.append((dtype, batch, len(pairs), rows))

    def ratios(name: str) -> Callable[[Any], list[float] | None]:
        return lambda group: [row[name] for row in group[3] if row.get(name)] or None

    columns = [
        Col("dtype", lambda group: group[0], left=True),
        Col("batch", lambda group: group[1]),
        Col("pairs that the planner fuses", lambda group: group[2]),
        Col("measured", lambda group: len(group[3])),
        *ratio_columns("× baseline", ratios("speedup_vs_peer")),
        *(ratio_columns("× unfused", ratios("speedup_vs_apart"), False) if beside else []),
    ]
    return of_rows(columns, groups, [
        "Pairs of MobileNetV1, MobileNetV2, Xception and ProxylessNAS-GPU that are alike count once. × baseline: the "
        "fastest of PyTorch's ways for the two layers over our fused kernel, both in CUDA graphs. What the planner "
        "takes kernels to reach was fitted to records that hold these pairs, too.  ",
        *(["int8: against PyTorch's float16; × unfused: our own int8 kernels of the two layers over the fused one.  "]
          * beside),
        with_compile([row for *_, rows in groups for row in rows]),
        measured_on(used),
    ])  # fmt: skip
