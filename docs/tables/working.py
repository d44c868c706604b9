"""Tables that lessons show of records: ablations, counters, fences, an epoch, the working method."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Any

from dwlab import records
from dwlab.problems import PAPER
from dwlab.records import Record, epochs, method
from dwlab.records import ladder as ladders
from dwlab.report import evidence
from dwlab.report.rows import grouped, measured_on, over
from dwlab.text.tabular import Markdown, percent, rounded, times
from tables.writing import NONE, changed, newest_with, shown, spread, table, values

# ----------------------------------------------------------------------------------------------------------- ablations

IN_LESSONS = ("gap or swizzle", "order of outputs")
ABLATIONS = ("copy", "read", *IN_LESSONS, "blocks of weight_grad", "blocks of backward", "outputs a lane",
             "strips of weight_grad", "strips of backward")  # fmt: skip
"""The groups of small kernels that were tried on the way to copy speed; they stand in records alone."""


def ablations(runs: Sequence[Record], groups: Sequence[str]) -> Markdown:
    """Groups of what was tried on the way to copy speed, each of the newest run that has it."""
    rows, used = [], {}
    for group in groups:
        run, here = newest_with(
            runs, lambda run, group=group: [row for row in run.sections.get("tries", ()) if row["group"] == group]
        )
        used |= {run.file: run} if run else {}
        least = min(values(here, "time_us"), default=None)
        rows += [
            ({"what was varied": group} if len(groups) > 1 else {}) | {
                "variant": row["name"], "how": row.get("note"),
                "time (µs)": rounded(row.get("time_us") or None) or row.get("failure"), "10 % to 90 %": spread(row),
                "GB/s": rounded(row.get("gbps")), "of the fastest": percent(over(least, row.get("time_us"))),
                "registers": row.get("registers"),
            } for row in here
        ]  # fmt: skip
    return table(rows, [
        "GB/s: of the bytes that must be moved. Single experiments, each result checked, of a few hundredths of a "
        f"second each: differences within the spread mean nothing. {measured_on(list(used.values()))}",
    ], range(2 + (len(groups) > 1)))  # fmt: skip


# ------------------------------------------------------------------------------------------------- counters and fences


def counted(runs: Sequence[Record]) -> Markdown:
    """How far the hardware's counts lie from the formulas, a row a stage, and below it how many are equal."""
    run, found = evidence.counters(runs)
    if run is None:
        return NONE
    off = [{kind: evidence.off_by(row, kind) for kind in evidence.KINDS} for row in found]
    rows = [
        {"stage": f"{row['path']}/{row['stage']}",
         **{kind: "equal" if one == 0 else shown("{:+.2%}", one) for kind, one in its.items()},
         "conflicts a row": shown("{:.1f}", over(row["shared_bank_conflicts"], PAPER.B * PAPER.H))}
        for row, its in zip(found, off, strict=True)
    ]  # fmt: skip
    sectors = [one for its in off for kind in evidence.KINDS[1::2] if (one := its[kind]) is not None]
    return table(rows, [
        f"{sum(not any(its.values()) for its in off)} of {len(rows)} stages: every number equal; "
        f"{sum(abs(one) <= 0.05 for one in sectors)} of {len(sectors)} sector counts within 5 %. {measured_on([run])}",
    ])  # fmt: skip


def sanitized(runs: Sequence[Record]) -> Markdown:
    """Findings of compute-sanitizer's last runs on the stages, a row a tool."""
    found, used = records.newest_rows("sanitizer", lambda row: (row["tool"], row["stage"]), runs)
    rows = [
        {"tool": tool, "stages": len(here), "clean": sum(row["clean"] for row in here),
         "of an earlier kernel": sum(changed(row["stage"], row.get("kernel_sha256")) for row in here),
         "": "; ".join(f"{row['stage']}: {row.get('message') or 'errors'}" for row in here if not row["clean"])}
        for tool, here in grouped(found, lambda row: row["tool"]).items()
    ]  # fmt: skip
    return table(rows, [measured_on(used, "Run")], (0, -1))


def long_sums(runs: Sequence[Record]) -> Markdown:
    """The errors of the longest recorded sums, of what is allowed, and whether all runs have the same bits."""
    run, found = newest_with(runs, lambda run: run.sections.get("reduction_error"))
    if run is None:
        return NONE
    longest = max(row["terms"] for row in found)
    rows = [
        {f"{longest:,} terms": f"{row['path']}/{row['stage']}", "error": f"{row['error']:.1e}",
         "of what is allowed": percent(row["error"] / row["allowed"]),
         "": f"{'the same bits' if row['repeatable'] else 'other bits'} in {row['runs']} runs"}
        for row in found if row["terms"] == longest
    ]  # fmt: skip
    return table(rows, [measured_on([run])], (0, -1))


# ------------------------------------------------------------------------------------------------------------ training


def epoch(runs: Sequence[epochs.EpochRun] | None = None) -> Markdown:
    """The newest recorded epoch, a row a convolution, slowest first: time, Amdahl's prediction, loss curves."""
    runs = epochs.load_all() if runs is None else runs
    if not runs:
        return NONE
    run, naive, made = runs[-1], runs[-1].naive, runs[-1].experiment
    rows = [
        {"convolution": epochs.label(one), "epoch (s)": rounded(one.epoch_s), "step (ms)": rounded(one.step_ms),
         "in a graph (ms)": rounded(one.graph_ms), "convolution (ms)": rounded(one.convolution_ms),
         "its share": f"{100 * one.share:.0f} %", "× naive": times(naive and naive.epoch_s / one.epoch_s),
         "Amdahl's × naive": times(naive and naive.step_ms / one.predicted_ms(naive)),
         "loss curve differs by": "" if naive in (None, one) else f"{one.loss_difference(naive):.1e}"}
        for one in sorted(run.ways, key=lambda one: -one.epoch_s)
    ]  # fmt: skip
    return table(rows, [
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


def _step(step: method.Step) -> dict[str, str]:
    """What both tables of changes say of one."""
    return {
        "change": step.name, "before (µs)": rounded(step.before and step.before.median_us),
        "after (µs)": rounded(step.after and step.after.median_us), "expected": f"× {step.expected:.2f}",
        "measured": shown("× {:.2f}", step.gain),
    }  # fmt: skip


def _job(run: method.MethodRun) -> Markdown:
    """The newest recorded job, a row a change in order: times, what was expected, accuracy, and the whole."""

    def kept(step: method.Step) -> str:
        other = step.agreement is not None and step.agreement < 1
        return _verdict(step) + (", other classes" if other else ", kept" if step.kept else "")

    steps = [step for step in run.steps if step.scope == "job"]
    rows = [
        _step(one) | {"accuracy": shown("{:.2%}", one.accuracy),
                      "classes as in float64": shown("{:.2%}", one.agreement), "": kept(one)}
        for one in steps
    ]  # fmt: skip
    whole = next((step for step in run.steps if step.scope == method.WHOLE and step.gain), None)
    summary = (
        f"The first job and the last one, run in turn: {rounded(whole.before.median_us)} and "
        f"{rounded(whole.after.median_us)} µs, {whole.gain:.1f} times as fast by {sum(step.kept for step in steps)} of "
        f"{len(steps)} changes. " if whole else ""
    )  # fmt: skip
    return table(rows, [
        f"{summary}{run.job['images']:,} images, from the host's memory to their classes there, by the host's clock: "
        "median of rounds in which before and after ran in turn. Compare within a row: the same job takes longer at "
        "another minute, as the host does other things too. A change is kept if three in four rounds were faster and "
        "no class is another. What comes after it builds on it, but torch.compile, which is compared with the best "
        f"that PyTorch did alone. Measured on {run.where()}.",
    ], (0, -1))  # fmt: skip


def _kernels(run: method.MethodRun) -> Markdown:
    """The newest recorded single kernels, a row a change: times, registers, local memory, occupancy."""

    def both(step: method.Step, name: str, show: str) -> str | None:
        found = [one.get(name) for one in (step.facts_before, step.facts_after)]
        known = any(isinstance(one, (int, float)) for one in found)
        return " → ".join("" if one is None else format(one, show) for one in found) if known else None

    rows = [
        {"kernel": step.scope, **_step(step), "registers": both(step, "registers", "d"),
         "local bytes": both(step, "local_bytes", "d"), "occupancy": both(step, "occupancy", ".0%"), "": _verdict(step)}
        for step in run.steps if step.scope not in ("job", method.WHOLE)
    ]  # fmt: skip
    side = math.isqrt(run.job["bytes"]["uint8"] // run.job["images"])
    return table(rows, [
        f"Each of {run.job['sample']:,} images of {side} × {side}; the softmax of 2,097,152. Registers and local bytes "
        f"are of a thread; arrows go from before to after. Measured on {run.where()}.",
    ], (0, 1, -1))  # fmt: skip


def _where(run: method.MethodRun) -> Markdown:
    """Where the time of the newest recorded job went, after each change that was kept, µs."""
    steps = [step for step in run.steps if step.scope == "job" and step.kept and step.facts_after]
    facts = [("at first", one.facts_before) for one in steps[:1]] + [(one.name, one.facts_after) for one in steps]
    parts = "launching", "waiting", "copies", "kernels", "gaps"
    return table([{"after": name} | {part: rounded(its.get(part)) for part in parts} for name, its in facts], [
        "Of a profile of the job, µs. Host: launching, waiting. GPU: copies, kernels, gaps in which it did neither. "
        "The events of a profile cost time themselves, most where calls are many: these columns are for proportions, "
        f"the times above for gains. Measured on {run.where()}.",
    ])  # fmt: skip


def _accuracy(run: method.SurfacesRun) -> Markdown:
    """The newest recorded trainings, a row a pattern: mean and spread over the seeds."""

    def least_and_greatest(values: list[float]) -> str:
        return f"{statistics.mean(values):.2%} ({min(values):.2%} to {max(values):.2%})"

    rows = [
        {"filters of the pointwise layers": pattern, "zeros": f"{statistics.mean(one.zeros for one in its):.1%}",
         "pruned alone": None if pattern == "dense" else least_and_greatest([one.pruned for one in its]),
         "trained on": least_and_greatest([one.accuracy for one in its])}
        for pattern, its in grouped(run.trainings, lambda one: one.pattern).items()
    ]  # fmt: skip
    made: Any = run.experiment
    return table(rows, [
        f"Accuracy on {made['test']} test images ({made['images']:,} to train with): mean of "
        f"{len({one.seed for one in run.trainings})} seeds, least and greatest. {made['weights']:,} weights, of which "
        f"{made['pruned_weights']:,} may be pruned. {made['epochs']} epochs dense, then pruned by magnitude, then "
        f"{made['epochs_after_pruning']} epochs with the zeros held; the dense network was trained on for as long.",
        f"Trained on a CPU with PyTorch {run.environment['torch']}, {run.environment['date'][:10]}.",
    ])  # fmt: skip


def ladder() -> Markdown:
    """The rungs of lessons 32 and 38, by the newest run that timed all of them."""
    run = ladders.newest()
    if run is None:
        return Markdown("The ladder is not recorded. On a GPU: `python benchmarks/ladder.py`.\n")
    rows, before = [], None
    for one in run.rungs:
        us = one.time and one.time.median_us
        sectors = {name: (one.sectors or {}).get(name) for name in ("x", "w1", "between", "w2", "y")}
        rows.append({
            "rung": one.name, "µs": rounded(us), "times as fast as the one before": shown("{:.2f}", over(before, us)),
            "of the floor": percent(over(run.floor_us, us)), "registers": " and ".join(map(str, one.registers)),
            "local bytes": " and ".join(map(str, one.local_bytes)),
            **{name: shown("{:,}", count) for name, count in sectors.items()}, "wavefronts": f"{one.wavefronts:,}",
        })  # fmt: skip
        before = us
    return table(rows, [
        f"{run.problem}, float32, all in one run; the floor, {run.floor_us:.1f} µs, is its compulsory bytes at copy "
        f"speed. Registers and local bytes of a thread, by the compiler. Sectors of each array and wavefronts of "
        f"shared memory: requested for one image, counted by the interpreter. Measured on {run.where()}.",
    ])  # fmt: skip


METHOD = {"job": _job, "kernels": _kernels, "where": _where, "accuracy": _accuracy}


def newest_method(name: str, _: Sequence[Record]) -> Markdown:
    """A table of METHOD of the newest run of its kind."""
    run = method.newest(method.SurfacesRun if name == "accuracy" else method.MethodRun)
    return METHOD[name](run) if run else NONE


TABLES = {
    "epoch": lambda _: epoch(), "ladder": lambda _: ladder(), "counted": counted,
    "sanitized": sanitized, "long_sums": long_sums, "ablations": functools.partial(ablations, groups=ABLATIONS),
    **{f"ablations/{group.replace(' ', '_')}": functools.partial(ablations, groups=(group,)) for group in IN_LESSONS},
    **{f"method/{name}": functools.partial(newest_method, name) for name in METHOD},
}  # fmt: skip
"""Name between the markers of a page -> the table that is made of runs."""
