"""Tables of lesson 23: the numbers of the 1-D stages by formula, interpreter, counters, compiler, clock and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dwlab import records
from dwlab.gpu import specs
from dwlab.gpu.machine import Machine, ceilings_of
from dwlab.judge import formulas
from dwlab.kernels.registry import stage, stages
from dwlab.model import roofline, timemodel
from dwlab.problems import PAPER
from dwlab.text.tabular import Columns, columns, wrapped

PUBLISHED: Mapping[str, Any] = {
    "source": (
        "Babak & Schaller, CUDA Kernel Optimization and Counter-Free Performance Analysis for Depthwise Convolution in "
        "Cloud Environments, arXiv 2604.25422 (2026)"
    ),
    "gpu": "Tesla P100 16 GB (732 GB/s)",
    "ms": {
        "naive": {"forward": 29.97, "input_grad": 30.25, "weight_grad": 73.26, "total": 133.47},
        "coalesced": {"forward": 28.23, "input_grad": 28.78, "weight_grad": 49.64, "total": 106.65},
        "shared": {"forward": 16.36, "input_grad": 16.03, "weight_grad": 34.17, "total": 66.57},
        "warp_tiled": {"forward": 10.46, "input_grad": 10.61, "weight_grad": 19.91, "total": 40.99},
    },
    "effective_gbps": {"coalesced": 42.0, "shared": 75.0, "warp_tiled": 115.0},
    "times_as_fast": {"convolution": 3.26, "epoch": 1.29},
}
"""The paper's own figures: milliseconds of each path and their total as printed, and effective bandwidths (1e9 bytes a
second, rounded there); and how many times as fast warp_tiled makes the three paths together, and an epoch of S4ConvD,
as naive does. They were taken from digests of the paper, not from its text; the shape is B=16,384 H=128 L=48
K=48, float32, and the padding is not known. Totals are the paper's, and differ from the sums by rounding."""

THREE = ("forward", "input_grad", "weight_grad")
"""The paths that a training step needs, and that the paper adds up."""
KINDS = ("load requests", "load sectors", "store requests", "store sectors", "atomic requests", "atomic sectors")
WAYS = tuple(PUBLISHED["ms"])
"""The study's four kernels, of which ours carry the names."""

Times = Mapping[str, Mapping[str, float]]
"""path -> kernel -> µs."""


def published_us() -> Times:
    """The study's times on its P100."""
    return {path: {name: 1e3 * PUBLISHED["ms"][name][path] for name in WAYS} for path in THREE}


def bandwidths_table() -> Columns:
    """Forward's published times, and what bandwidth they are, by three answers to: of which bytes?"""
    arrays = 3 * 4 * PAPER.B * PAPER.H * PAPER.L
    body = []
    for name, us in published_us()["forward"].items():
        requested = stage(f"depthwise1d/forward/{name}").traffic(PAPER).bytes_moved
        gbps = [f"{size / us / 1e3:,.1f}" for size in (requested, arrays, PAPER.compulsory_bytes("forward"))]
        printed = PUBLISHED["effective_gbps"].get(name)
        body.append([name, f"{us / 1e3:.2f} ms", *gbps, f"{printed:.0f}" if printed else ""])
    return columns(["P100, forward", "time†", "requested", "three arrays", "compulsory", "printed†"], body)


def formulas_table(found: Sequence[tuple[formulas.Comparison, float]]) -> Columns:
    """Comparisons of formula and count, each with the bank conflicts for each row that were counted."""
    body = []
    for both, conflicts in found:
        pairs = [
            f"{getattr(side, what):,}"
            for what in ("requests", "sectors", "atomic_sectors")
            for side in (both.predicted, both.counted)
        ]
        claim = "" if both.predicted.exact else "an estimate"
        body.append([both.stage.removeprefix("depthwise1d/"), *pairs, f"{conflicts:.1f}", claim])
    head = ["stage", "requests", "counted", "sectors", "counted", "atomic sectors", "counted", "conflicts a row", ""]
    return columns(head, body, left=(0, 8))


# ---- counters


def counters(
    runs: Sequence[records.Record] | None = None,
) -> tuple[records.Record | None, list[Mapping[str, Any]]]:
    """The newest run of those with counters of most paths at the study's shape, and their rows; (None, []) if none."""
    shape = records.describe_problem(PAPER)
    found = [
        (run, [row for row in run.counters if (row["problem"], row["dtype"]) == (shape, PAPER.dtype)])
        for run in reversed(records.shown_runs(runs))
    ]
    most = max(found, key=lambda one: len({row["path"] for row in one[1]}), default=(None, []))
    return most if most[1] else (None, [])


def off_by(row: Mapping[str, Any], kind: str) -> float | None:
    """The hardware's count over the formula's, less 1; None where either is missing or 0."""
    key = kind.replace(" ", "_")
    formula, hardware = row["predicted"].get(key), row.get(key)
    return hardware / formula - 1 if formula and hardware is not None else None


def differing() -> dict[str, float]:
    """Stage -> the largest difference of a hardware count from its formula, the stages that differ most first."""
    found = {}
    for row in counters()[1]:
        these = [one for kind in KINDS if (one := off_by(row, kind))]
        if these:
            found[f"{row['op']}/{row['path']}/{row['stage']}"] = max(these, key=abs)
    return dict(sorted(found.items(), key=lambda one: -abs(one[1])))


def opcodes_text() -> str:
    """Opcodes of global memory of the stages that differ most from their formulas, compiled for the recorded GPU."""
    from dwlab.compiler import inspect

    run, _ = counters()
    differ = differing()
    known = {one.id for one in stages("depthwise1d")}
    some = ["depthwise1d/forward/naive", *[id for id in differ if id in known][:3]]
    cc = tuple(run.environment.get("compute_capability") or (9, 0)) if run else (9, 0)
    try:
        compiled = inspect.table(dict.fromkeys(some), PAPER, cc=cc)
    except inspect.InspectError as error:
        return wrapped(f"Nothing is compiled here: {error}")
    lines = []
    for one in compiled.rows:
        opcodes = ", ".join(f"{name} × {count}" for name, count in one.accesses("global").items())
        name = one.name.removeprefix("depthwise1d/")
        lines.append(f"{name:24}{differ.get(one.name, 0):+8.2%}  {opcodes or one.sass_missing}")
    lines += [f"{name:24} not compiled: {why}" for name, why in compiled.refused.items()]
    return "\n".join(map(wrapped, lines))


def memory_table(estimates: Mapping[str, float]) -> Columns:
    """GB of device memory by the counters, between what was requested and what is compulsory; estimates: by id."""
    run, rows = counters()
    if run is None:
        return columns(["stage", "estimated, GB"], [[id, f"{size / 1e9:.2f}"] for id, size in estimates.items()])
    body = []
    for row in rows:
        id = f"{row['op']}/{row['path']}/{row['stage']}"
        if row["dram_read_bytes"] is None or row["dram_write_bytes"] is None:
            continue
        requested, memory = row["predicted"]["bytes_moved"], row["dram_read_bytes"] + row["dram_write_bytes"]
        l2 = f"{32 * row['l2_read_sectors'] / 1e9:.2f}" if row.get("l2_read_sectors") else ""
        between = f"{estimates[id] / 1e9:.2f}" if id in estimates else ""
        least = f"{PAPER.compulsory_bytes(row['path']) / 1e9:.2f}"
        cells = [f"{requested / 1e9:.2f}", l2, f"{memory / 1e9:.2f}", between, least, f"{memory / requested:.1%}"]
        body.append([f"{row['path']}/{row['stage']}", *cells])
    head = ["GB", "requested", "L2 reads", "memory", "estimated", "compulsory", "of requested"]
    return columns(head, body)


def from_memory(id: str) -> float | None:
    """The part of the bytes that a stage's loads request that device memory delivered, by the counters."""
    for row in counters()[1]:
        if f"{row['op']}/{row['path']}/{row['stage']}" == id and row["dram_read_bytes"] is not None:
            return row["dram_read_bytes"] / (32 * row["predicted"]["load_sectors"])
    return None


# ---- times


def totals_us(times: Times) -> dict[str, float]:
    """Kernel -> µs of all three paths, where all are known."""
    return {name: sum(of[name] for of in times.values()) for name in WAYS if all(name in of for of in times.values())}


def both_times_table(times: Times) -> Columns:
    """The published times and these, in ms."""
    body, theirs = [], published_us()
    for name in WAYS:
        cells = []
        for of in (theirs, times):
            cells += [f"{of[path][name] / 1e3:.3f}" if name in of[path] else "" for path in THREE]
            total = totals_us(of).get(name)
            cells.append(f"{total / 1e3:.2f}" if total else "")
        body.append([name, *cells])
    short = ["forward", "input", "weight", "total"]
    return columns(["ms", *(f"P100† {one}" for one in short), *(f"here {one}" for one in short)], body)


def ratios_table(times: Times) -> Columns:
    """Whether the kernels' order carries over, path by path, and the ratios of neighbours, there and here."""
    body, theirs = [], published_us()
    for path in THREE:
        if len(times[path]) == len(WAYS):
            order = [sorted(WAYS, key=of[path].get) for of in (theirs, times)]
            pairs = list(zip(WAYS, WAYS[1:], strict=False))
            ratios = [
                f"{theirs[path][a] / theirs[path][b]:.2f} → {times[path][a] / times[path][b]:.2f}" for a, b in pairs
            ]
            body.append([path, "the same" if order[0] == order[1] else "different", *ratios])
    return columns(["path", "order", *(f"{a}/{b}" for a, b in zip(WAYS, WAYS[1:], strict=False))], body)


# ---- the time model


def predicted(gpu: Machine, times: Times) -> tuple[Columns, timemodel.Comparison]:
    """The time model's table at the study's shape, with what binds; and where a time is known, both.

    times: those of the four kernels; of the other stages, and where one is missing, the recorded ones.
    """
    known = {f"depthwise1d/{path}/{name}": us for path, of in times.items() for name, us in of.items()}
    found, left_out = [], []
    for one in (one for one in stages("depthwise1d") if one.supports(PAPER)):
        row = records.best(one.op, one.path, one.name, PAPER, gpu=gpu.name)
        try:
            made = timemodel.predict(one, PAPER, gpu)
        except timemodel.TimeModelError as error:
            left_out.append(f"left out: {error}")
            continue
        found.append((one, made, known.get(one.id, row.time_us if row else None)))
    names = [
        name for name in timemodel.FIELDS if any(made.resources[name] >= 0.1 * made.total_us for _, made, _ in found)
    ]
    body = []
    for one, made, us in found:
        error = [f"{us:,.0f}", f"{made.total_us / us - 1:+.0%}"] if us else ["", ""]
        parts = [f"{made.resources[name]:,.0f}" for name in names]
        body.append([f"{one.path}/{one.name}", *parts, f"{made.total_us:,.0f}", *error, made.bound])
    rows = (timemodel.Row(one.id, PAPER, gpu.name, us, made) for one, made, us in found if us)
    both = timemodel.Comparison(tuple(rows))
    table = columns(["µs", *names, "predicted", "measured", "error", "binds"], body, left=(0, len(names) + 4))
    return Columns("\n".join([table, both.summary(), *left_out])), both


def elsewhere_table(path: str, gpus: Sequence[str]) -> Columns:
    """Predicted times of a path's stages on other GPUs, with what binds."""
    body = []
    for one in stages("depthwise1d", path):
        cells = []
        for name in gpus:
            try:
                made = timemodel.predict(one, PAPER, specs.find(name))
                cells.append(f"{made.total_us:,.0f} {made.bound}")
            except timemodel.TimeModelError:
                cells.append("does not run")
        body.append([one.name, *cells])
    return columns(["µs", *gpus], body)


def published_and_predicted_table() -> Columns:
    """The model's times on a P100 beside the published ones, and how far they lie from each other."""
    pairs, body = [], []
    for name in WAYS:
        cells = []
        for path in THREE:
            made = timemodel.predict(f"depthwise1d/{path}/{name}", PAPER, "p100").total_us / 1e3
            pairs.append((made, PUBLISHED["ms"][name][path]))
            cells += [f"{made:.2f}", f"{pairs[-1][1]:.2f}"]
        body.append([name, *cells])
    factors = sorted(max(a / b, b / a) for a, b in pairs)
    head = ["P100, ms", *(one for path in THREE for one in (path, "printed†"))]
    below = (
        f"rank correlation {timemodel.spearman(*zip(*pairs, strict=True)):.3f}; a factor of "
        f"{factors[len(factors) // 2]:.1f} between both in the middle, {factors[-1]:.1f} at most"
    )
    return Columns(f"{columns(head, body)}\n{below}")


# ---- fences


def below_ceilings() -> int:
    """How many recorded times of the stages lie below their runs' ceilings. Raises RooflineError for one above."""
    drawn = 0
    for run in records.shown_runs():
        measured = [row for row in run.measurements if row.op == "depthwise1d"]
        if measured:
            drawn += len(roofline.points(measured, ceilings_of(run)))
    return drawn
