"""Tables of the 1-D convolution: the paper's, the ladder of stages, shapes, traffic, ceilings, predictions."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dwlab import records
from dwlab.kernels import choices, registry
from dwlab.measure import baselines
from dwlab.model import timemodel
from dwlab.problems import DTYPES, PAPER, PATHS, DepthwiseConv1d
from dwlab.records import Measurement, Record, shape_text
from dwlab.report.evidence import PUBLISHED, THREE
from dwlab.report.rows import Row, geometric, grouped, measured_on
from dwlab.report.written import newest, rows_at
from dwlab.text import tabular
from dwlab.text.tabular import Col, Markdown, of_rows, percent, rounded, times

NONE = Markdown("Nothing is recorded. On a GPU: `python benchmarks/record_run.py`.\n")
SHAPE = records.describe_problem(PAPER)


def ceilings(runs: Sequence[Record]) -> Markdown:
    """The newest measured ceilings of the GPU that is shown."""
    shown = records.calibrated(records.shown_runs(runs))
    names = {"copy (GB/s)": "copy_gbps", "L2 read (GB/s)": "l2_gbps", "FP32 FMA (TFLOP/s)": "fma_tflops",
             "plain launch (µs)": "launch_us"}  # fmt: skip
    columns = [
        Col("GPU", "gpu", left=True),
        *(Col(head, lambda run, name=name: run.ceilings.get(name), rounded) for head, name in names.items()),
        Col("measured with", lambda run: run.where().removeprefix(run.gpu).lstrip(", "), left=True),
    ]
    return of_rows(columns, shown.values()) if shown else NONE


def predicted(runs: Sequence[Record]) -> Markdown:
    """Predicted and measured times at the newest run's main problem on the GPU that is shown."""
    parts = []
    for its in grouped(records.shown_runs(runs), lambda run: run.gpu).values():
        rows = [
            (row.problem, row.dtype, run)
            for run in reversed(its)
            for row in run.measurements
            if row.op == "depthwise1d"
        ]
        if not rows:
            continue
        problem, dtype, _ = min(rows, key=lambda row: row[1] != "float32")  # the first with float32, or the first
        made = timemodel.compare(its, keep=lambda one, wanted=(problem, dtype): (one.problem, one.dtype) == wanted)
        head = ["stage", "measured (µs)", "predicted (µs)", "error", "bound by"]
        text = tabular.markdown(head, [[cells[0], *cells[2:]] for cells in made.cells()], (0, -1))
        shape = shape_text(problem) + ("" if dtype == "float32" else f", {dtype}")
        used = measured_on([run for *what, run in rows if what == [problem, dtype]])
        parts.append(f"{text}\n\n{shape}. {made.summary()}\n{used}\n")
    return Markdown("\n".join(parts)) if parts else NONE


# ---------------------------------------------------------------------------------------------------------- the paper's

LIBRARY, ANY = "PyTorch, conv1d/conv2d/FFT", "PyTorch, any way"


def _pytorch(runs: Sequence[Record], gpu: str, kinds: Sequence[str] = ()) -> dict[str, float]:
    """Path -> µs of PyTorch's fastest way of these kinds (all if none are given) at the paper's shape, in any run.

    Not every run timed all of PyTorch's ways, and of those that did, the history keeps some.
    """
    best: dict[str, float] = {}
    for one in (one for run in runs if run.gpu == gpu for one in run.peers if isinstance(one, Mapping)):
        same = (one.get("shape"), one.get("dtype", "float32")) == (SHAPE, "float32") and one.get("time")
        if same and (not kinds or baselines.kind(one["way"]) in kinds):
            best[one["path"]] = min(best.get(one["path"], math.inf), one["time"]["median_us"])
    return best


def paths_us(run: Record) -> dict[str, dict[str, float]]:
    """Path -> stage -> µs of a run at the paper's shape."""
    found = rows_at(run, PAPER).items()
    return {path.partition("/")[2]: {name: row.time_us for name, row in rows.items()} for path, rows in found}


def totals_us(run: Record, runs: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Row -> path -> µs, with "total" where all of its paths were measured.

    Rows: each stage that every path has; the fastest stage of each path; PyTorch's fastest convolution or FFT; that
    with our matrix products too; and of these three the forms with both gradients in one call.
    """
    found = paths_us(run)
    made = {name: {path: found[path][name] for path in THREE} for name in found.get("forward", ())
            if all(name in found.get(path, ()) for path in THREE)}  # fmt: skip
    fastest = {"best": {path: min(of.values()) for path, of in found.items()}}
    fastest |= {LIBRARY: _pytorch(runs, run.gpu, baselines.LIBRARY_WAYS), ANY: _pytorch(runs, run.gpu)}
    for label, us in fastest.items():
        made[label] = {path: us[path] for path in THREE if path in us}
        if "backward" in us:  # a fused row says nothing without its backward
            made[f"{label}, fused backward"] = {path: us[path] for path in ("forward", "backward") if path in us}
    for row in made.values():
        if set(row) >= set(THREE) or set(row) >= {"forward", "backward"}:
            row["total"] = sum(row.values())
    return {label: row for label, row in made.items() if row}


def totals(runs: Sequence[Record]) -> Markdown:
    """The paper's table on a recorded GPU, of the newest run with all three paths, and the paper's own figures."""
    run = newest(PAPER, runs=runs)
    if run is None:
        return NONE
    made, theirs = totals_us(run, runs), PUBLISHED["ms"]
    columns = [Col("variant", lambda one: one, left=True)]
    for path in (*(path for path in PATHS if any(path in row for row in made.values())), "total"):
        columns.append(Col(f"{path} (ms)", lambda one, path=path: made[one].get(path), lambda us: rounded(us / 1e3)))
    columns.append(Col("× naive", lambda one: _ratio(made, "naive", one), times))
    for head, key in zip(("P100: forward", *THREE[1:], "total (ms)"), (*THREE, "total"), strict=True):
        columns.append(Col(head, lambda one, key=key: theirs.get(one, {}).get(key), "{:.2f}".format))
    columns.append(Col("× naive", lambda one: _ratio(theirs, "naive", one), times))
    notes = []
    for label, other in (
        ("the naive ones", "naive"),
        ("PyTorch's best of conv1d, conv2d and FFT for each path", LIBRARY),
        ("the best of all its ways, our matrix products of it too", ANY),
    ):
        if ratio := _ratio(made, other, "best"):
            text = f"The best stages of the three paths are together {ratio:,.2f} times as fast as {label}"
            ours = "best, fused backward"
            if fused := _ratio(made, other, ours):
                # Theirs may be fused too, where that is faster.
                least = min(fused, _ratio(made, f"{other}, fused backward", ours) or fused)
                text += f", with the fused backward {least:,.2f} times"
                text += "" if least == fused else " (theirs fused as well, which is faster)"
            notes.append(text + ".  ")
    return of_rows(columns, made, [
        *notes,
        "PyTorch's times are the least that any run on this GPU has of conv1d, conv2d, FFT and matrix products, "
        f"{'of the forward also by' if _pytorch(runs, run.gpu, ('compile',)) else 'without'} torch.compile.  ",
        f"{shape_text(PAPER)}, float32, TF32 off. Measured on {run.where()}.",
        f"P100: as printed for a {PUBLISHED['gpu']} by {PUBLISHED['source']}, from digests of it; its padding is not "
        "known.",
    ])  # fmt: skip


def _ratio(made: Mapping[str, Mapping[str, float]], other: str, ours: str) -> float | None:
    totals = [made.get(name, {}).get("total") for name in (other, ours)]
    return None if None in totals else totals[0] / totals[1]


def ladder(runs: Sequence[Record], paths: Sequence[str] = PATHS) -> Markdown:
    """Every stage of some paths at the paper's shape, each path of the newest run that has it; which have changed."""
    shown: list[Any] = []
    used: dict[str, Record] = {}
    earlier = []
    for path in paths:
        run, rows = _newest_rows(runs, path)
        if run is not None:
            used[run.file] = run
            now = {one.name: one for one in registry.stages("depthwise1d", path)}
            for row in (row for row in rows if row.kernel_sha256):
                one = now.get(row.stage)
                if one is None or not one.same_kernel(row.kernel_sha256, row.problem, row.dtype):
                    earlier.append(f"{path}/{row.stage}")
            timed = records.with_fastest_baselines([row.to_dict() for row in rows], runs)
            shown += [(path, row) for row in timed]
            compared = [row for row in timed if row.get("peer")][:1]
            shown += [(path, {"stage": "baseline: " + row["peer"], "time_us": row["peer_time_us"]}) for row in compared]
    if not shown:
        return NONE
    columns = [
        *([Col("path", lambda one: one[0], left=True)] * (len(paths) > 1)),
        Col("stage", lambda one: one[1]["stage"], left=True),
        Col("time (µs)", lambda one: one[1]["time_us"], rounded),
        Col("p10 to p90 (µs)", lambda one: f"{rounded(one[1]['p10_us'])} to {rounded(one[1]['p90_us'])}"
            if "p10_us" in one[1] else None),
        Col("effective GB/s", lambda one: one[1].get("effective_gbps"), rounded),
        Col("of copy", lambda one: one[1].get("fraction_of_copy"), percent),
        Col("× naive", lambda one: one[1].get("speedup_vs_naive"), times),
        Col("× baseline", lambda one: one[1].get("speedup_vs_peer"), lambda ratio: times(ratio, slower=True)),
    ]  # fmt: skip
    return of_rows(columns, shown, [
        f"{shape_text(PAPER)}, float32, TF32 off. Effective GB/s counts the bytes that must move at least, of copy "
        f"over a device copy in the same run. {measured_on(list(used.values()))}",
        *([f"Of an earlier kernel, which has changed since: {', '.join(earlier)}."] * bool(earlier)),
    ])  # fmt: skip


def _newest_rows(runs: Sequence[Record], path: str) -> tuple[Record | None, list[Measurement]]:
    for run in reversed(records.shown_runs(runs)):
        if rows := rows_at(run, PAPER).get(f"depthwise1d/{path}"):
            return run, list(rows.values())
    return None, []


# --------------------------------------------------------------------------------------------------------------- shapes

LARGE_US = 20.0
"""Least time at copy bandwidth of a large launch of the grid: its start and end are a small part."""


def grid(runs: Sequence[Record]) -> Markdown:
    """The grid of shapes, a row a path: shapes won and lost, and the efficiency where the launch is large."""
    rows, used = records.grid_rows(runs)
    if not used:
        return NONE
    copied = records.copies(runs, used[-1].gpu)
    gbps = {(row["path"], shape_text(row["problem"]), row.get("time_us")): run.ceilings["copy_gbps"]
            for run in used for row in run.sections["grid"]}  # of the row's own run  # fmt: skip

    def copied_us(one: Row) -> float:
        gb_s = gbps[one["path"], shape_text(one["problem"]), one.get("time_us")]
        return records.copy_us(round(one["copy_bound_us"] * gb_s * 1e3), copied)

    body = []
    for path, here in grouped(rows, lambda one: one["path"]).items():
        timed = [one for one in here if one.get("time_us")]
        bounds = [max(one["copy_bound_us"], one.get("fma_bound_us") or 0) / one["time_us"] for one in timed]
        # Where the FMA rate allows 85 % of the copy bandwidth, and a launch lasts long enough to fill the GPU.
        large = [one for one in timed if max(LARGE_US, 0.85 * (one.get("fma_bound_us") or 0)) <= one["copy_bound_us"]]
        copies = [copied_us(one) if copied else None for one in large]
        there = [least / one["time_us"] >= 0.85 for one, least in zip(large, copies, strict=True) if least]
        body.append((path, here, sorted(one["speedup_vs_peer"] for one in here if one.get("speedup_vs_peer")), bounds,
                     [one["copy_bound_us"] / one["time_us"] >= 0.85 for one in large], there))  # fmt: skip
    columns = [
        Col("path", lambda one: one[0], left=True),
        Col("shapes", lambda one: len(one[1])),
        Col("faster than the baseline", lambda one: sum(ratio >= 1 for ratio in one[2])),
        Col("slower", lambda one: sum(ratio < 1 for ratio in one[2])),
        Col("no baseline or no time", lambda one: len(one[1]) - len(one[2])),
        Col("× baseline, least", lambda one: min(one[2], default=None), times),
        Col("median", lambda one: statistics.median(one[2]) if one[2] else None, times),
        Col("of bound, median", lambda one: statistics.median(one[3]) if one[3] else None, percent),
        Col("large launches at 85 % of copy", lambda one: f"{sum(one[4])} of {len(one[4])}"),
        Col("of a copy as large", lambda one: f"{sum(one[5])} of {len(one[5])}"),
    ]
    return of_rows(columns, body, [
        f"large: {LARGE_US:g} µs or more at the copy bandwidth. Of a copy as large: at 85 % of a copy of as many "
        "bytes, which begins and ends as they do. TF32 off. Of each shape the newest row. Every shape, the losses too: "
        f"`python -m dwlab records --grid`. {measured_on(used)}",
    ])  # fmt: skip


def short(runs: Sequence[Record]) -> Markdown:
    """Short convolutions of models: each shape, type, layout and path against a copy as large and PyTorch's best."""
    rows, used = records.newest_rows(
        "short",
        lambda row: (*(row[name] for name in ("path", "dtype", "layout", "form")), *row["problem"].values()),
        runs,
    )
    if not used:
        return NONE
    columns = [
        Col("B, H, L, K", lambda one: ", ".join(f"{one['problem'][name]:,}" for name in "BHLK"), left=True),
        Col("dtype", lambda one: one["dtype"], left=True),
        Col("layout", lambda one: one["layout"], left=True),
        Col("path", lambda one: " with ".join(filter(None, (one["path"], one["form"]))), left=True),
        Col("kernel", lambda one: one["stage"], left=True),
        Col("time (µs)", lambda one: one.get("time_us"), rounded),
        Col("of copy", lambda one: one.get("fraction_of_copy"), percent),
        Col("baseline (µs)", lambda one: one.get("peer_time_us"), rounded),
        Col("× baseline", lambda one: one.get("speedup_vs_peer"), lambda ratio: times(ratio, slower=True)),
        Col("which", lambda one: one.get("peer"), left=True),
    ]
    order = sorted(rows, key=lambda one: (*(-one["problem"][name] for name in "LB"), DTYPES.index(one["dtype"]),
                                          one["layout"], PATHS.index(one["path"])))  # fmt: skip
    return of_rows(
        columns, order, [f"Causal, TF32 off; the convolution alone but where it says so. {measured_on(used)}"]
    )


def newest_drawn(runs: Sequence[Record]) -> list[tuple[Record, Row]]:
    """A run and its row for each drawn shape and path, the newest that has any time."""
    found: dict[tuple[Any, ...], tuple[Record, Row]] = {}
    for run in records.shown_runs(runs):
        for row in run.sections.get("shapes", ()):
            if row["times"]:
                found[row["dtype"], row["path"], *row["problem"].values()] = run, row
    rows = records.with_fastest_baselines([row for _, row in found.values()], runs)
    return [(run, row) for (run, _), row in zip(found.values(), rows, strict=True)]


def problem_of(row: Row) -> DepthwiseConv1d:
    """The problem that a row timed."""
    return DepthwiseConv1d(**row["problem"], dtype=row["dtype"])


def chosen(row: Row, known: Sequence[choices.Sample]) -> str:
    """The stage that dispatch starts for a row's problem, as the row names it, by these samples of its path."""
    ids, problem = list(row["times"]), problem_of(row)
    stages = choices.fastest([registry.stage(one) for one in ids if "," not in one], problem, known)
    pair = next((one for one in ids if "," in one), "")
    if pair and (not stages or choices.pair_is_faster(stages[0], problem, known)):
        return pair
    return stages[0].id


def others(row: Row, known: Sequence[choices.Sample]) -> list[choices.Sample]:
    """The samples without those of the row's own shape: what dispatch would know had it never been timed."""
    place, words = choices.place_of(problem_of(row), row["dtype"])
    return [one for one in known if math.dist(one.place, place) > 1e-9 or one.words != words]


def drawn(runs: Sequence[Record]) -> Markdown:
    """The choices of dispatch on drawn shapes, against the fastest stage there and PyTorch's best; a row a path."""
    rows = newest_drawn(runs)
    if not rows:
        return NONE
    samples = choices.samples(records.shown_runs(runs))
    body = []
    for key, here in grouped(rows, lambda one: (one[1]["dtype"], one[1]["path"])).items():
        over, unseen, against = [], [], []
        for _, row in here:
            known, fastest = samples[row["op"], row["path"]], min(row["times"].values())
            time_us = row["times"][chosen(row, known)]
            over.append(time_us / fastest)
            unseen.append(row["times"][chosen(row, others(row, known))] / fastest)
            if theirs := row.get("peer_time_us"):
                late = theirs < 0.95 * time_us and time_us - theirs >= 0.5
                against.append((theirs / time_us, late, late and "bmm" in row["peer"]))
        if against:
            body.append((key, over, unseen, against))
    columns = [
        Col("dtype", lambda one: one[0][0], left=True),
        Col("path", lambda one: one[0][1], left=True),
        Col("shapes", lambda one: len(one[1])),
        Col("choice over the fastest stage, mean", lambda one: statistics.geometric_mean(one[1]), "{:.3f}".format),
        Col("most", lambda one: max(one[1]), "{:.2f}".format),
        Col("had the shape not been timed, mean", lambda one: statistics.geometric_mean(one[2]), "{:.3f}".format),
        Col("most", lambda one: max(one[2]), "{:.2f}".format),
        Col("PyTorch's best over the choice, mean", lambda one: geometric(ratio for ratio, *_ in one[3])),
        Col("least", lambda one: min(one[3])[0], "{:.2f}".format),
        Col("slower than PyTorch", lambda one: sum(ratio < 1 for ratio, *_ in one[3])),
        Col("by 0.5 µs and 5 % or more", lambda one: sum(late for _, late, _ in one[3])),
        Col("of these by L × L matrices made before", lambda one: sum(prepared for *_, prepared in one[3])),
    ]
    return of_rows(columns, sorted(body, key=lambda one: (DTYPES.index(one[0][0]), PATHS.index(one[0][1]))), [
        "Shapes that nobody chose: every size from 1 on, odd rows, one channel, more taps than times, any padding. A "
        "choice is dwlab.kernels.choices', by the records; PyTorch's best is the fastest of its convolutions, FFT and "
        "matrix products, TF32 off.  ",
        measured_on(list({run.file: run for run, _ in rows}.values())),
    ])  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- predictions


def another(folder: Any = records.FOLDER / "predictions") -> Markdown:
    """Times predicted for a second GPU before it was recorded, against what it then measured.

    For each stage and shape that was timed on both: the measured change of its time, the predicted one, and none, which
    is what carrying the first GPU's times over would say; where memory binds, and elsewhere.
    """
    predictions = json.loads(records.file_bytes(max(folder.glob("*.json.xz"))))
    wanted = {(row["stage"], shape_text(row["problem"])) for row in predictions["stages"]}
    taken: dict[tuple[str, str, str], tuple[Measurement, Record]] = {}
    for run in (*records.load_runs(), *records.load_runs(folder)):
        for one in run.measurements:
            if (one.id, shape_text(one.problem)) in wanted and one.dtype == "float32":
                taken[one.id, shape_text(one.problem), run.gpu] = one, run
    found: dict[str, list[tuple[float, float]]] = {"device memory": [], "something else": []}
    used, missing = {}, []
    for row in predictions["stages"]:
        (basis, old), (gpu, new) = row["gpus"].items()
        shape = shape_text(row["problem"])
        pair = [taken.get((row["stage"], shape, name)) for name in (basis, gpu)]
        if None in pair:
            missing += [shape]
            continue
        (before, first), (after, second) = pair
        used |= {run.file: run for run in (first, second)}
        state = "warm" if after.cold.startswith("warm") else "cold"
        change = after.time_us / before.time_us
        kind = "device memory" if new[f"bound_{state}"] == "dram" else "something else"
        found[kind].append((change, abs(new[f"{state}_us"] / old[f"{state}_us"] / change - 1)))
    columns = [
        Col("predicted to be bound by", lambda one: one[0], left=True),
        Col("rows", lambda one: len(one[1])),
        Col("measured change, median", lambda one: statistics.median(now for now, _ in one[1]), "{:.3f}".format),
        Col("the model's error, median", lambda one: statistics.median(error for _, error in one[1]), percent),
        Col("within 10 %", lambda one: sum(error <= 0.1 for _, error in one[1])),
        Col(
            "carried over: error, median", lambda one: statistics.median(abs(1 / now - 1) for now, _ in one[1]), percent
        ),
        Col("within 10 %", lambda one: sum(abs(1 / now - 1) <= 0.1 for now, _ in one[1])),
    ]
    return of_rows(columns, [one for one in found.items() if one[1]], [
        f"A row is a stage at a shape that was timed on both: {sum(map(len, found.values()))} of "
        f"{len(predictions['stages'])} predicted; the shapes of the rest were timed on one GPU or none: "
        f"{'; '.join(dict.fromkeys(missing))}. Change: the time on {gpu} over that on {basis}. Carried over: as if "
        f"nothing changed. Predicted {predictions['date'][:10]}, before the second GPU ran anything. "
        f"{measured_on(sorted(used.values(), key=lambda run: run.date))}",
    ])  # fmt: skip


TABLES = {
    "ceilings": ceilings, "depthwise1d": ladder, "depthwise1d/total": totals, "depthwise1d/grid": grid,
    **{f"depthwise1d/{path}": functools.partial(ladder, paths=(path,)) for path in THREE},
    "depthwise1d/drawn": drawn, "depthwise1d/short": short, "predicted": predicted,
    "predicted/another": lambda runs: another(),
}  # fmt: skip
