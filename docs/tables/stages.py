"""Tables of the 1-D convolution: the paper's, the ladder of stages, shapes, traffic, ceilings, predictions."""

from __future__ import annotations

import functools
import json
import math
import statistics
from collections import defaultdict
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
from dwlab.text.tabular import Markdown, percent, rounded, times
from tables.writing import LARGE_US, NONE, changed, median, near_copies, newest_with, slower, spread, table, values

OP = "depthwise1d"
SHAPE = records.describe_problem(PAPER)


def ceilings(runs: Sequence[Record]) -> Markdown:
    """The newest measured ceilings of the GPU that is shown."""
    names = {"copy (GB/s)": "copy_gbps", "L2 read (GB/s)": "l2_gbps", "FP32 FMA (TFLOP/s)": "fma_tflops",
             "plain launch (µs)": "launch_us"}  # fmt: skip
    rows = [
        {"GPU": run.gpu, **{head: rounded(run.ceilings.get(name)) for head, name in names.items()},
         "measured with": run.where().removeprefix(run.gpu).lstrip(", ")}
        for run in records.calibrated(records.shown_runs(runs)).values()
    ]  # fmt: skip
    return table(rows, text=(0, -1))


def predicted(runs: Sequence[Record]) -> Markdown:
    """Predicted and measured times at the newest run's main problem on the GPU that is shown."""
    its = records.shown_runs(runs)
    rows = [(one.problem, one.dtype, run) for run in reversed(its) for one in run.measurements if one.op == OP]
    if not rows:
        return NONE
    problem, dtype, _ = min(rows, key=lambda row: row[1] != "float32")  # the first with float32, or the first
    made = timemodel.compare(its, keep=lambda one: (one.problem, one.dtype) == (problem, dtype))
    head = ["stage", "measured (µs)", "predicted (µs)", "error", "bound by"]
    text = tabular.markdown(head, [[cells[0], *cells[2:]] for cells in made.cells()], (0, -1))
    shape = shape_text(problem) + ("" if dtype == "float32" else f", {dtype}")
    used = measured_on([run for *what, run in rows if what == [problem, dtype]])
    return Markdown(f"{text}\n\n{shape}. {made.summary()}\n{used}\n")


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


def totals_us(run: Record, runs: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Row -> path -> µs, with "total" where all of its paths were measured.

    Rows: each stage that every path has; the fastest stage of each path; PyTorch's fastest convolution or FFT; that
    with our matrix products too; and of these three the forms with both gradients in one call.
    """
    found = {path.partition("/")[2]: {name: row.time_us for name, row in rows.items()}
             for path, rows in rows_at(run, PAPER).items()}  # fmt: skip
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
    shown = *(path for path in PATHS if any(path in row for row in made.values())), "total"
    printed = dict(zip(("P100: forward", *THREE[1:], "total (ms)"), (*THREE, "total"), strict=True))
    rows = [
        {"variant": one, **{f"{path} (ms)": us.get(path) and rounded(us[path] / 1e3) for path in shown},
         "× naive": times(_ratio(made, "naive", one)),
         **{f"{head} ": f"{there[key]:.2f}" if key in there else "" for head, key in printed.items()},
         "× naive ": times(_ratio(theirs, "naive", one))}
        for one, us in made.items() for there in [theirs.get(one, {})]
    ]  # fmt: skip
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
    return table(rows, [
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
    rows, used, earlier = [], {}, []
    for path in paths:
        run, here = newest_with(runs, lambda run, path=path: rows_at(run, PAPER).get(f"{OP}/{path}", {}).values())
        used |= {run.file: run} if run else {}
        earlier += [f"{path}/{row.stage}" for row in here
                    if row.kernel_sha256 and changed(row.id, row.kernel_sha256, row.problem, row.dtype)]  # fmt: skip
        timed = records.with_fastest_baselines([row.to_dict() for row in here], runs)
        best = next((row for row in timed if row.get("peer")), None)
        timed += [{"stage": "baseline: " + best["peer"], "time_us": best["peer_time_us"]}] if best else []
        rows += [
            ({"path": path} if len(paths) > 1 else {}) | {
                "stage": row["stage"], "time (µs)": rounded(row["time_us"]), "p10 to p90 (µs)": spread(row),
                "effective GB/s": rounded(row.get("effective_gbps")), "of copy": percent(row.get("fraction_of_copy")),
                "× naive": times(row.get("speedup_vs_naive")), "× baseline": slower(row.get("speedup_vs_peer")),
            } for row in timed
        ]  # fmt: skip
    return table(rows, [
        f"{shape_text(PAPER)}, float32, TF32 off. Effective GB/s counts the bytes that must move at least, of copy "
        f"over a device copy in the same run. {measured_on(list(used.values()))}",
        *([f"Of an earlier kernel, which has changed since: {', '.join(earlier)}."] * bool(earlier)),
    ], range(1 + (len(paths) > 1)))  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- shapes


def grid(runs: Sequence[Record]) -> Markdown:
    """The grid of shapes, a row a path: shapes won and lost, and the efficiency where the launch is large."""
    found, used = records.grid_rows(runs)
    copied, rows = records.copies(runs, used[-1].gpu) if used else None, []
    for path, here in grouped(found, lambda one: one["path"]).items():
        timed = [one for one in here if one.get("time_us")]
        ratios = values(here, "speedup_vs_peer")
        bounds = [max(one["copy_bound_us"], one.get("fma_bound_us") or 0) / one["time_us"] for one in timed]
        # Where the FMA rate allows 85 % of the copy bandwidth, and a launch lasts long enough to fill the GPU.
        large = [one for one in timed if max(LARGE_US, 0.85 * (one.get("fma_bound_us") or 0)) <= one["copy_bound_us"]]
        fast = [one["copy_bound_us"] / one["time_us"] >= 0.85 for one in large]
        near = near_copies(((problem_of(one).compulsory_bytes(path), one["time_us"]) for one in large), copied)
        rows.append({
            "path": path, "shapes": len(here), "faster than the baseline": sum(ratio >= 1 for ratio in ratios),
            "slower": sum(ratio < 1 for ratio in ratios), "no baseline or no time": len(here) - len(ratios),
            "× baseline, least": times(min(ratios, default=None)), "median": times(median(ratios)),
            "of bound, median": percent(median(bounds)),
            "large launches at 85 % of copy": f"{sum(fast)} of {len(fast)}",
            "of a copy as large": f"{sum(near)} of {len(near)}",
        })  # fmt: skip
    return table(rows, [
        f"large: {LARGE_US:g} µs or more at the copy bandwidth. Of a copy as large: at 85 % of a copy of as many "
        "bytes, which begins and ends as they do. TF32 off. Of each shape the newest row. Every shape, the losses too: "
        f"`python -m dwlab records --grid`. {measured_on(used)}",
    ])  # fmt: skip


def short(runs: Sequence[Record]) -> Markdown:
    """Short convolutions of models: each shape, type, layout and path against a copy as large and PyTorch's best."""
    names = "path", "dtype", "layout", "form"
    found, used = records.newest_rows(
        "short",
        lambda row: (*(row[name] for name in names), *row["problem"].values()), runs,
    )  # fmt: skip
    found = sorted(found, key=lambda one: (*(-one["problem"][name] for name in "LB"), DTYPES.index(one["dtype"]),
                                           one["layout"], PATHS.index(one["path"])))  # fmt: skip
    rows = [
        {"B, H, L, K": ", ".join(f"{one['problem'][name]:,}" for name in "BHLK"), "dtype": one["dtype"],
         "layout": one["layout"], "path": " with ".join(filter(None, (one["path"], one["form"]))),
         "kernel": one["stage"], "time (µs)": rounded(one.get("time_us")),
         "of copy": percent(one.get("fraction_of_copy")), "baseline (µs)": rounded(one.get("peer_time_us")),
         "× baseline": slower(one.get("speedup_vs_peer")), "which": one.get("peer")}
        for one in found
    ]  # fmt: skip
    note = f"Causal, TF32 off; the convolution alone but where it says so. {measured_on(used)}"
    return table(rows, [note], (0, 1, 2, 3, 4, -1))


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
    found, samples, rows = newest_drawn(runs), choices.samples(records.shown_runs(runs)), []
    paths = grouped((row for _, row in found), lambda row: (DTYPES.index(row["dtype"]), PATHS.index(row["path"])))
    for (dtype, path), here in sorted(paths.items()):
        over, unseen, against = [], [], []
        for row in here:
            known, fastest = samples[row["op"], row["path"]], min(row["times"].values())
            time_us = row["times"][chosen(row, known)]
            over.append(time_us / fastest)
            unseen.append(row["times"][chosen(row, others(row, known))] / fastest)
            if theirs := row.get("peer_time_us"):
                late = theirs < 0.95 * time_us and time_us - theirs >= 0.5
                against.append((theirs / time_us, late, late and "bmm" in row["peer"]))
        if against:
            ratios, late, prepared = zip(*against, strict=True)
            rows.append({
                "dtype": DTYPES[dtype], "path": PATHS[path], "shapes": len(over),
                "choice over the fastest stage, mean": f"{statistics.geometric_mean(over):.3f}",
                "most": f"{max(over):.2f}",
                "had the shape not been timed, mean": f"{statistics.geometric_mean(unseen):.3f}",
                "most ": f"{max(unseen):.2f}", "PyTorch's best over the choice, mean": geometric(ratios),
                "least": f"{min(ratios):.2f}", "slower than PyTorch": sum(ratio < 1 for ratio in ratios),
                "by 0.5 µs and 5 % or more": sum(late), "of these by L × L matrices made before": sum(prepared),
            })  # fmt: skip
    return table(rows, [
        "Shapes that nobody chose: every size from 1 on, odd rows, one channel, more taps than times, any padding. A "
        "choice is dwlab.kernels.choices', by the records; PyTorch's best is the fastest of its convolutions, FFT and "
        "matrix products, TF32 off.  ",
        measured_on(list({run.file: run for run, _ in found}.values())),
    ], (0, 1))  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- predictions


def another(_: Sequence[Record]) -> Markdown:
    """Times predicted for a second GPU before it was recorded, against what it then measured.

    For each stage and shape that was timed on both: the measured change of its time, the predicted one, and none, which
    is what carrying the first GPU's times over would say; where memory binds, and elsewhere.
    """
    folder = records.FOLDER / "predictions"
    predictions = json.loads(records.file_bytes(max(folder.glob("*.json.xz"))))
    taken: dict[tuple[str, str, str], tuple[Measurement, Record]] = {}
    for run in (*records.load_runs(), *records.load_runs(folder)):
        for one in (one for one in run.measurements if one.dtype == "float32"):
            taken[one.id, shape_text(one.problem), run.gpu] = one, run
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    used, missing, rows = {}, [], []
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
    for kind, here in sorted(found.items()):
        changes, errors = zip(*here, strict=True)
        carried = [abs(1 / change - 1) for change in changes]
        rows.append({
            "predicted to be bound by": kind, "rows": len(here),
            "measured change, median": f"{statistics.median(changes):.3f}",
            "the model's error, median": percent(median(errors)), "within 10 %": sum(one <= 0.1 for one in errors),
            "carried over: error, median": percent(median(carried)), "within 10 % ": sum(one <= 0.1 for one in carried),
        })  # fmt: skip
    return table(rows, [
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
    "predicted/another": another,
}  # fmt: skip
