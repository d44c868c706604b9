"""Tables that lessons show of records: ablations, long rows, counters, fences, an epoch, the working method."""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from dwlab import records
from dwlab.kernels import registry
from dwlab.problems import PAPER, DepthwiseConv1d
from dwlab.records import Record, epochs, method
from dwlab.records import ladder as ladders
from dwlab.report import evidence
from dwlab.report.rows import Row, grouped, measured_on, over
from dwlab.text.tabular import Col, Markdown, of_rows, percent, rounded, times

NONE = Markdown("Nothing is recorded. On a GPU: `python benchmarks/record_run.py`.\n")


def _spread(row: Row) -> str | None:
    return f"{rounded(row['p10_us'])} to {rounded(row['p90_us'])}" if row.get("p10_us") else None


# ------------------------------------------------------------------------------------------------------- long rows


def long_rows(runs: Sequence[Record]) -> Markdown:
    """The grid's shapes with rows of 1,024, forward and backward: the stage chosen, over the floors and over a copy."""
    rows, used = records.grid_rows(runs)
    run = records.copies(runs)
    rows = [row for row in rows if row["path"] in ("forward", "backward") and row["problem"]["L"] == 1024]
    rows = [row for row in rows if row.get("time_us")]
    if run is None or not rows:
        return NONE

    def copied(row: Row) -> float | None:
        return records.copy_us(DepthwiseConv1d(**row["problem"]).compulsory_bytes(row["path"]), run)

    columns = [
        Col("path", "path", left=True),
        *(Col(name, lambda row, name=name: row["problem"][name]) for name in "BK"),
        Col("stage", "stage", left=True),
        Col("time (µs)", "time_us", rounded),
        Col("of copy", lambda row: over(row["copy_bound_us"], row["time_us"]), percent),
        Col("of FMA rate", lambda row: over(row.get("fma_bound_us"), row["time_us"]), percent),
        Col("of a copy as large", lambda row: over(copied(row), row["time_us"]), percent),
    ]
    rows = sorted(rows, key=lambda row: (row["path"] == "backward", row["problem"]["K"], row["problem"]["B"]))
    return of_rows(columns, rows, [measured_on(used)])


IN_LESSONS = ("gap or swizzle", "order of outputs")
ABLATIONS = ("copy", "read", *IN_LESSONS, "blocks of weight_grad", "blocks of backward", "outputs a lane",
             "strips of weight_grad", "strips of backward")  # fmt: skip
"""The groups of small kernels that were tried on the way to copy speed; they stand in records alone."""


def ablations(runs: Sequence[Record], groups: Sequence[str]) -> Markdown:
    """Groups of what was tried on the way to copy speed, each of the newest run that has it."""
    rows, used, least = [], {}, {}
    for group in groups:
        for run in reversed(records.shown_runs(runs)):
            here = [row for row in run.sections.get("tries") or () if row["group"] == group]
            if here:
                rows, used[run.file] = rows + here, run
                least[group] = min((row["time_us"] for row in here if row.get("time_us")), default=None)
                break
    columns = [
        *([Col("what was varied", "group", left=True)] if len(groups) > 1 else []),
        Col("variant", "name", left=True),
        Col("how", "note", left=True),
        Col("time (µs)", lambda row: rounded(row.get("time_us") or None) or row.get("failure")),
        Col("10 % to 90 %", _spread),
        Col("GB/s", "gbps", rounded),
        Col("of the fastest", lambda row: over(least[row["group"]], row.get("time_us")), percent),
        Col("registers", "registers"),
    ]
    return of_rows(columns, rows, [
        "GB/s: of the bytes that must be moved. Single experiments, each result checked, of a few hundredths of a "
        f"second each: differences within the spread mean nothing. {measured_on(list(used.values()))}",
    ]) if rows else NONE  # fmt: skip


# ------------------------------------------------------------------------------------------------- counters and fences


def counted(runs: Sequence[Record]) -> Markdown:
    """How far the hardware's counts lie from the formulas, a row a stage, and below it how many are equal."""
    run, rows = evidence.counters(runs)
    if run is None:
        return NONE
    columns = [
        Col("stage", "{path}/{stage}".format_map, left=True),
        *(Col(kind, lambda row, kind=kind: evidence.off_by(row, kind), lambda off: f"{off:+.2%}" if off else "equal")
          for kind in evidence.KINDS),
        Col("conflicts a row", lambda row: over(row["shared_bank_conflicts"], PAPER.B * PAPER.H), "{:.1f}".format),
    ]  # fmt: skip
    found = {id(row): [evidence.off_by(row, kind) for kind in evidence.KINDS] for row in rows}
    sectors = [one for row in rows for one in found[id(row)][1::2] if one is not None]
    return of_rows(columns, rows, [
        f"{sum(not any(found[id(row)]) for row in rows)} of {len(rows)} stages: every number equal; "
        f"{sum(abs(one) <= 0.05 for one in sectors)} of {len(sectors)} sector counts within 5 %. {measured_on([run])}",
    ])  # fmt: skip


def sanitized(runs: Sequence[Record]) -> Markdown:
    """Findings of compute-sanitizer's last runs on the stages, a row a tool."""
    rows, used = records.newest_rows("sanitizer", lambda row: (row["tool"], row["stage"]), runs)
    now = {one.id: one for one in registry.stages()}

    def earlier(row: Row) -> bool:
        return row["stage"] not in now or not now[row["stage"]].same_kernel(row.get("kernel_sha256"))

    columns = [
        Col("tool", lambda one: one[0], left=True),
        Col("stages", lambda one: len(one[1])),
        Col("clean", lambda one: sum(row["clean"] for row in one[1])),
        Col("of an earlier kernel", lambda one: sum(map(earlier, one[1]))),
        Col("", lambda one: "; ".join(f"{row['stage']}: {row.get('message') or 'errors'}" for row in one[1]
                                      if not row["clean"]), left=True),
    ]  # fmt: skip
    return (
        of_rows(columns, grouped(rows, lambda row: row["tool"]).items(), [measured_on(used, "Run")]) if rows else NONE
    )


def long_sums(runs: Sequence[Record]) -> Markdown:
    """The errors of the longest recorded sums, of what is allowed, and whether all runs have the same bits."""
    run = next((run for run in reversed(records.shown_runs(runs)) if run.sections.get("reduction_error")), None)
    if run is None:
        return NONE
    longest = max(row["terms"] for row in run.sections["reduction_error"])
    columns = [
        Col(f"{longest:,} terms", "{path}/{stage}".format_map, left=True),
        Col("error", "error", "{:.1e}".format),
        Col("of what is allowed", lambda row: row["error"] / row["allowed"], percent),
        Col(
            "", lambda row: f"{'the same bits' if row['repeatable'] else 'other bits'} in {row['runs']} runs", left=True
        ),
    ]
    rows = [row for row in run.sections["reduction_error"] if row["terms"] == longest]
    return of_rows(columns, rows, [measured_on([run])])


# ------------------------------------------------------------------------------------------------------------ training


def epoch(runs: Sequence[epochs.EpochRun] | None = None) -> Markdown:
    """The newest recorded epoch, a row a convolution, slowest first: time, Amdahl's prediction, loss curves."""
    runs = epochs.load_all() if runs is None else runs
    if not runs:
        return NONE
    run, naive, made = runs[-1], runs[-1].naive, runs[-1].experiment
    columns = [
        Col("convolution", epochs.label, left=True),
        Col("epoch (s)", "epoch_s", rounded),
        Col("step (ms)", "step_ms", rounded),
        Col("in a graph (ms)", "graph_ms", rounded),
        Col("convolution (ms)", "convolution_ms", rounded),
        Col("its share", "share", lambda share: f"{100 * share:.0f} %"),
        Col("× naive", lambda one: naive and naive.epoch_s / one.epoch_s, times),
        Col("Amdahl's × naive", lambda one: naive and naive.step_ms / one.predicted_ms(naive), times),
        Col("loss curve differs by", lambda one: None if naive in (None, one) else one.loss_difference(naive),
            "{:.1e}".format),
    ]  # fmt: skip
    return of_rows(columns, sorted(run.ways, key=lambda one: -one.epoch_s), [
        *(f"{way} was not measured: {why}." for way, why in run.failed.items()),
        f"An epoch here is {made['steps']} steps of {made['batch']:,} windows, drawn from {made['windows']:,}; "
        f"{made['blocks']} blocks of {made['channels']} channels, {made['hours']} hours, {made['taps']} taps; "
        f"{made['precision']}; seed {made['seed']}. Steps run eagerly; beside them, replayed from a CUDA graph. The "
        "convolution's time is that of the operator and its two gradients alone, times the blocks. Amdahl's law takes "
        "the naive step and exchanges its convolution.",
        f"Measured on {run.where()}.",
    ])  # fmt: skip


# --------------------------------------------------------------------------------------------------- the working method


def _verdict(step: method.Step) -> str:
    if step.failure:
        return f"not measured: {step.failure}"
    if step.gain is None or not step.clear:
        return "no difference"
    return "faster" if step.gain > 1 else "slower"


STEP = (
    Col("change", "name", left=True),
    Col("before (µs)", lambda step: step.before and step.before.median_us, rounded),
    Col("after (µs)", lambda step: step.after and step.after.median_us, rounded),
    Col("expected", "expected", "× {:.2f}".format),
    Col("measured", "gain", "× {:.2f}".format),
)


def _job(run: method.MethodRun | None = None) -> Markdown:
    """The newest recorded job, a row a change in order: times, what was expected, accuracy, and the whole."""
    run = run or method.newest(method.MethodRun)
    if run is None:
        return NONE

    def kept(step: method.Step) -> str:
        other = step.agreement is not None and step.agreement < 1
        return _verdict(step) + (", other classes" if other else ", kept" if step.kept else "")

    steps = [step for step in run.steps if step.scope == "job"]
    columns = [
        *STEP,
        Col("accuracy", "accuracy", "{:.2%}".format),
        Col("classes as in float64", "agreement", "{:.2%}".format),
        Col("", kept, left=True),
    ]
    whole = next((step for step in run.steps if step.scope == method.WHOLE and step.gain), None)
    summary = (
        f"The first job and the last one, run in turn: {rounded(whole.before.median_us)} and "
        f"{rounded(whole.after.median_us)} µs, {whole.gain:.1f} times as fast by {sum(step.kept for step in steps)} of "
        f"{len(steps)} changes. " if whole else ""
    )  # fmt: skip
    return of_rows(columns, steps, [
        f"{summary}{run.job['images']:,} images, from the host's memory to their classes there, by the host's clock: "
        "median of rounds in which before and after ran in turn. Compare within a row: the same job takes longer at "
        "another minute, as the host does other things too. A change is kept if three in four rounds were faster and "
        "no class is another. What comes after it builds on it, but torch.compile, which is compared with the best "
        f"that PyTorch did alone. Measured on {run.where()}.",
    ])  # fmt: skip


def _kernels(run: method.MethodRun | None = None) -> Markdown:
    """The newest recorded single kernels, a row a change: times, registers, local memory, occupancy."""
    run = run or method.newest(method.MethodRun)
    if run is None:
        return NONE

    def both(name: str, show: str, head: str = "") -> Col:
        def cell(step: method.Step) -> str | None:
            found = [one.get(name) for one in (step.facts_before, step.facts_after)]
            known = any(isinstance(one, (int, float)) for one in found)
            return " → ".join("" if one is None else format(one, show) for one in found) if known else None

        return Col(head or name, cell)

    columns = [
        Col("kernel", "scope", left=True), *STEP, both("registers", "d"), both("local_bytes", "d", "local bytes"),
        both("occupancy", ".0%"), Col("", _verdict, left=True),
    ]  # fmt: skip
    side = math.isqrt(run.job["bytes"]["uint8"] // run.job["images"])
    return of_rows(columns, [step for step in run.steps if step.scope not in ("job", method.WHOLE)], [
        f"Each of {run.job['sample']:,} images of {side} × {side}; the softmax of 2,097,152. Registers and local bytes "
        f"are of a thread; arrows go from before to after. Measured on {run.where()}.",
    ])  # fmt: skip


def _where(run: method.MethodRun | None = None) -> Markdown:
    """Where the time of the newest recorded job went, after each change that was kept, µs."""
    run = run or method.newest(method.MethodRun)
    shares = ("launching", "waiting", "copies", "kernels", "gaps")
    steps = [step for step in (run.steps if run else ()) if step.scope == "job" and step.kept and step.facts_after]
    if not steps:
        return NONE
    rows = [("at first", steps[0].facts_before), *((step.name, step.facts_after) for step in steps)]
    columns = [Col("after", lambda row: row[0], left=True),
               *(Col(name, lambda row, name=name: row[1].get(name), rounded) for name in shares)]  # fmt: skip
    return of_rows(columns, rows, [
        "Of a profile of the job, µs. Host: launching, waiting. GPU: copies, kernels, gaps in which it did neither. "
        "The events of a profile cost time themselves, most where calls are many: these columns are for proportions, "
        f"the times above for gains. Measured on {run.where()}.",
    ])  # fmt: skip


def _accuracy(run: method.SurfacesRun | None = None) -> Markdown:
    """The newest recorded trainings, a row a pattern: mean and spread over the seeds."""
    run = run or method.newest(method.SurfacesRun)
    if run is None:
        return NONE

    def spread(values: list[float]) -> str:
        return f"{statistics.mean(values):.2%} ({min(values):.2%} to {max(values):.2%})"

    columns = [
        Col("filters of the pointwise layers", lambda row: row[0], left=True),
        Col("zeros", lambda row: statistics.mean(one.zeros for one in row[1]), "{:.1%}".format),
        Col("pruned alone", lambda row: spread([one.pruned for one in row[1]]) if row[0] != "dense" else None),
        Col("trained on", lambda row: spread([one.accuracy for one in row[1]])),
    ]
    made: Any = run.experiment
    return of_rows(columns, grouped(run.trainings, lambda one: one.pattern).items(), [
        f"Accuracy on {made['test']} test images ({made['images']:,} to train with): mean of "
        f"{len({one.seed for one in run.trainings})} seeds, least and greatest. {made['weights']:,} weights, of which "
        f"{made['pruned_weights']:,} may be pruned. {made['epochs']} epochs dense, then pruned by magnitude, then "
        f"{made['epochs_after_pruning']} epochs with the zeros held; the dense network was trained on for as long.",
        f"Trained on a CPU with PyTorch {run.environment['torch']}, {run.environment['date'][:10]}.",
    ])  # fmt: skip


def ladder(run: ladders.LadderRun | None = None) -> Markdown:
    """The rungs of lessons 32 and 38, by the newest run that timed all of them."""
    run = run or ladders.newest()
    if run is None:
        return Markdown("The ladder is not recorded. On a GPU: `python benchmarks/ladder.py`.\n")
    before = {two.name: one.time for one, two in itertools.pairwise(run.rungs)}

    def each(numbers: Sequence[int]) -> str:
        return " and ".join(f"{number}" for number in numbers)

    columns = [
        Col("rung", "name", left=True),
        Col("µs", lambda row: row.time and row.time.median_us, rounded),
        Col("times as fast as the one before", lambda row: row.time and before.get(row.name)
            and before[row.name].median_us / row.time.median_us, "{:.2f}".format),
        Col("of the floor", lambda row: row.time and run.floor_us / row.time.median_us, percent),
        Col("registers", "registers", each),
        Col("local bytes", "local_bytes", each),
        *(Col(name, lambda row, name=name: (row.sectors or {}).get(name), "{:,}".format)
          for name in ("x", "w1", "between", "w2", "y")),
        Col("wavefronts", "wavefronts", "{:,}".format),
    ]  # fmt: skip
    return of_rows(columns, run.rungs, [
        f"{run.problem}, float32, all in one run; the floor, {run.floor_us:.1f} µs, is its compulsory bytes at copy "
        f"speed. Registers and local bytes of a thread, by the compiler. Sectors of each array and wavefronts of "
        f"shared memory: requested for one image, counted by the interpreter. Measured on {run.where()}.",
    ])  # fmt: skip


METHOD = {"job": _job, "kernels": _kernels, "where": _where, "accuracy": _accuracy}
TABLES = {
    "epoch": lambda runs: epoch(), "ladder": lambda runs: ladder(), "depthwise1d/long": long_rows, "counted": counted,
    "sanitized": sanitized, "long_sums": long_sums, "ablations": functools.partial(ablations, groups=ABLATIONS),
    **{f"ablations/{group.replace(' ', '_')}": functools.partial(ablations, groups=(group,)) for group in IN_LESSONS},
    **{f"method/{name}": (lambda runs, show=show: show()) for name, show in METHOD.items()},
}  # fmt: skip
"""Name between the markers of a page -> the table that is made of runs."""
