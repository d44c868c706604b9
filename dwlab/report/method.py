"""The working method as recorded: what each change did to a job and to single kernels, and what pruning costs.

Lesson 40 and docs/profile.md show these tables.
"""

from __future__ import annotations

import statistics

from dwlab.records import method
from dwlab.text.tabular import Col, Markdown, of_rows, rounded

NOTHING = "Nothing is recorded yet. On a GPU with PyTorch: `python benchmarks/record_method.py`.\n"
UNTRAINED = "No training is recorded yet: `python benchmarks/train_digits.py`.\n"


def _verdict(step: method.Step) -> str:
    if step.failure:
        return "not measured"
    if step.gain is None or not step.clear:
        return "no difference"
    return "faster" if step.gain > 1 else "slower"


def _kept(step: method.Step) -> str:
    if step.agreement is not None and step.agreement < 1:
        return f"{_verdict(step)}, other classes"
    return f"{_verdict(step)}, kept" if step.kept else _verdict(step)


STEP = (
    Col("change", "name", left=True),
    Col("before (µs)", lambda step: step.before and step.before.median_us, rounded),
    Col("after (µs)", lambda step: step.after and step.after.median_us, rounded),
    Col("expected", "expected", "× {:.2f}".format),
    Col("measured", "gain", "× {:.2f}".format),
)


def _failures(steps: list[method.Step]) -> list[str]:
    return [f"{step.scope}, {step.name}, was not measured: {step.failure}." for step in steps if step.failure]


def job_table(run: method.MethodRun | None = None) -> Markdown:
    """The newest recorded job, a row a change in order: times, what was expected, accuracy, and the whole."""
    run = run or method.newest(method.MethodRun)
    steps = [step for step in run.steps if step.scope == "job"] if run else []
    if not steps:
        return Markdown(NOTHING)
    columns = [
        *STEP,
        Col("accuracy", "accuracy", "{:.2%}".format),
        Col("classes as in float64", "agreement", "{:.2%}".format),
        Col("", _kept, left=True),
    ]
    whole = next((step for step in run.steps if step.scope == method.WHOLE and step.gain), None)
    summary = ""
    if whole:
        kept = sum(step.kept for step in steps)
        summary = (
            f"The first job and the last one, run in turn: {rounded(whole.before.median_us)} and "
            f"{rounded(whole.after.median_us)} µs, {whole.gain:.1f} times as fast by {kept} of {len(steps)} changes. "
        )
    job = run.job
    return of_rows(columns, steps, [
        f"{summary}{job['images']:,} images of 8 × 8, from the host's memory to their classes there, by the host's "
        "clock: median of rounds in which before and after ran in turn. Compare within a row: the same job takes "
        "longer at another minute, as the host does other things too. A change is kept if three in four rounds were "
        "faster and no class is another. What comes after it builds on it, but torch.compile, which is compared with "
        "the best that PyTorch did alone.",
        *_failures(steps), f"Measured on {run.where()}.",
    ])  # fmt: skip


def kernels_table(run: method.MethodRun | None = None) -> Markdown:
    """The newest recorded single kernels, a row a change: times, registers, local memory, occupancy."""
    run = run or method.newest(method.MethodRun)
    steps = [step for step in run.steps if step.scope not in ("job", method.WHOLE)] if run else []
    if not steps:
        return Markdown(NOTHING)

    def both(name: str, show: str) -> Col:
        def cell(step: method.Step) -> str | None:
            found = [one.get(name) for one in (step.facts_before, step.facts_after)]
            if not any(isinstance(one, (int, float)) for one in found):
                return None
            return " → ".join("" if one is None else format(one, show) for one in found)

        return Col({"local_bytes": "local bytes"}.get(name, name), cell)

    columns = [
        Col("kernel", "scope", left=True), STEP[0], *STEP[1:], both("registers", "d"), both("local_bytes", "d"),
        both("occupancy", ".0%"), Col("", _verdict, left=True),
    ]  # fmt: skip
    return of_rows(columns, steps, [
        f"Each of {run.job['sample']:,} images; the softmax of 2,097,152. Registers and local bytes are of a thread; "
        "arrows go from before to after.",
        *_failures(steps), f"Measured on {run.where()}.",
    ])  # fmt: skip


SHARES = ("launching", "waiting", "copies", "kernels", "gaps")


def where_table(run: method.MethodRun | None = None) -> Markdown:
    """Where the time of the newest recorded job went, after each change that was kept, µs."""
    run = run or method.newest(method.MethodRun)
    kept = [step for step in run.steps if step.scope == "job" and step.kept] if run else []
    shared = [step for step in kept if all(isinstance(step.facts_after.get(name), (int, float)) for name in SHARES)]
    if not shared:
        return Markdown(NOTHING)
    rows = [("at first", shared[0].facts_before), *((step.name, step.facts_after) for step in shared)]
    columns = [
        Col("after", lambda row: row[0], left=True),
        *(Col(name, lambda row, name=name: row[1].get(name), rounded) for name in SHARES),
    ]
    return of_rows(columns, rows, [
        f"Of a profile of the job on {run.job.get('profiled', run.job['images']):,} images, µs. Host: launching, "
        "waiting. GPU: copies, kernels, gaps in which it did neither. The events of a profile cost time themselves, "
        "most where calls are many: these columns are for proportions, the times above for gains.",
        f"Measured on {run.where()}.",
    ])  # fmt: skip


def accuracy_table(run: method.DigitsRun | None = None) -> Markdown:
    """The newest recorded trainings, a row a pattern: mean and spread over the seeds."""
    run = run or method.newest(method.DigitsRun)
    if run is None:
        return Markdown(UNTRAINED)
    groups: dict[str, list[method.Training]] = {}
    for one in run.trainings:
        groups.setdefault(one.pattern, []).append(one)

    def spread(values: list[float]) -> str:
        return f"{statistics.mean(values):.2%} ({min(values):.2%} to {max(values):.2%})"

    columns = [
        Col("filters of the pointwise layers", lambda row: row[0], left=True),
        Col("zeros", lambda row: statistics.mean(one.zeros for one in row[1]), "{:.1%}".format),
        Col("pruned alone", lambda row: spread([one.pruned for one in row[1]]) if row[0] != "dense" else None),
        Col("trained on", lambda row: spread([one.accuracy for one in row[1]])),
    ]  # fmt: skip
    made = run.experiment
    seeds = len({one.seed for one in run.trainings})
    return of_rows(columns, list(groups.items()), [
        f"Accuracy on {made['test']} test images of scikit-learn's digits ({made['images']:,} in all): mean of {seeds} "
        f"seeds, least and greatest. {made['weights']:,} weights, of which {made['pruned_weights']:,} may be pruned. "
        f"{made['epochs']} epochs dense, then pruned by magnitude, then {made['epochs_after_pruning']} epochs with the "
        "zeros held; the dense network was trained on for as long.",
        f"Trained on a CPU with PyTorch {run.environment['torch']}, {run.environment['date'][:10]}.",
    ])  # fmt: skip
