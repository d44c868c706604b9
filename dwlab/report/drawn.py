"""What dispatch chooses on drawn shapes, against the fastest stage there and against PyTorch's best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from dwlab import records
from dwlab.kernels import choices, registry
from dwlab.problems import PATHS, DepthwiseConv1d
from dwlab.records import Record
from dwlab.text.tabular import Col, Markdown, of_rows

LATENCY_US = 5
"""A way of PyTorch that takes less is a launch and one or two waits for memory."""

Row = Mapping[str, Any]


def newest(runs: Sequence[Record]) -> tuple[list[tuple[Record, Row]], list[Record]]:
    """(a run and its row for each shape and path, the newest that has any time; the runs that they are of)."""
    found: dict[tuple[Any, ...], tuple[Record, Row]] = {}
    for run in records.shown_runs(runs):
        for row in run.sections.get("shapes", ()):
            if row["times"]:
                found[row["path"], *row["problem"].values()] = run, row
    return list(found.values()), list({run.file: run for run, _ in found.values()}.values())


def chosen(row: Row, known: Sequence[choices.Sample]) -> str:
    """What dispatch starts for a row's problem, as the row names it, by these samples of its path."""
    ids = list(row["times"])
    single = [one for one in ids if "," not in one]
    problem = problem_of(row)
    stages = choices.fastest([registry.stage(one) for one in single], problem, known)
    pair = next((one for one in ids if "," in one), "")
    if pair and (not stages or choices.pair_is_faster(stages[0], problem, known)):
        return pair
    return stages[0].id


def problem_of(row: Row) -> DepthwiseConv1d:
    """The problem that a row timed."""
    return DepthwiseConv1d(**row["problem"], dtype=row["dtype"])


def others(row: Row, known: Sequence[choices.Sample]) -> list[choices.Sample]:
    """Without those of the row's own shape: what dispatch would know of it had it never been timed."""
    place, words = choices.place_of(problem_of(row), row["dtype"])
    return [one for one in known if math.dist(one.place, place) > 1e-9 or one.words != words]


def why(row: Row, name: str, least_us: float) -> str:
    """Why PyTorch is faster than a stage: the choice, the way it computes, a launch of few µs, or the kernel."""
    best, time_us = min(row["times"], key=row["times"].__getitem__), row["times"][name]
    if row["times"][best] <= row["peer_time_us"]:
        return f"the choice: {best.replace(row['op'] + '/', '')} takes {row['times'][best]:.2f}"
    if "bmm" in row["peer"]:
        return "a matrix product, of which the filters' L × L matrices are made beforehand, untimed"
    if "FFT" in row["peer"]:
        return "an FFT has fewer operations for so many taps"
    if row["peer_time_us"] < LATENCY_US:
        return "latency: a launch and the waits of one thread's loads and sums"
    return f"the kernel: {time_us / least_us:.1f} times the least time of its bytes and products"


def tables(runs: Sequence[Record]) -> tuple[Markdown, Markdown]:
    """A row a path; and a row for each shape where PyTorch is faster."""
    rows, used = newest(runs)
    if not rows:
        empty = Markdown("No drawn shape was timed: `python benchmarks/shapes.py`.\n")
        return empty, empty
    samples = choices.samples(records.shown_runs(runs))
    summary, lost = [], []
    for path in PATHS:
        over, unseen, against, by = [], [], [], 0
        for run, row in rows:
            if row["path"] != path:
                continue
            known = samples[row["op"], path]
            name = chosen(row, known)
            time_us, fastest = row["times"][name], min(row["times"].values())
            over.append(time_us / fastest)
            unseen.append(row["times"][chosen(row, others(row, known))] / fastest)
            if row.get("peer_time_us"):
                against.append(row["peer_time_us"] / time_us)
                if against[-1] < 1:
                    problem = problem_of(row)
                    least = choices.least_us(problem.compulsory_bytes(path), problem.flops_of(path), run.ceilings)
                    lost.append((against[-1], row, name, least))
                    by += against[-1] < 0.95 and time_us - row["peer_time_us"] >= 0.5
        if over and against:
            summary.append((path, over, unseen, against, by))
    columns = [
        Col("path", lambda one: one[0], left=True),
        Col("shapes", lambda one: len(one[1])),
        Col("choice over the fastest stage, mean", lambda one: geometric_mean(one[1]), "{:.3f}".format),
        Col("most", lambda one: max(one[1]), "{:.2f}".format),
        Col("had the shape not been timed, mean", lambda one: geometric_mean(one[2]), "{:.3f}".format),
        Col("most", lambda one: max(one[2]), "{:.2f}".format),
        Col("PyTorch's best over the choice, mean", lambda one: geometric_mean(one[3]), "{:.2f}".format),
        Col("least", lambda one: min(one[3]), "{:.2f}".format),
        Col("slower than PyTorch", lambda one: sum(ratio < 1 for ratio in one[3])),
        Col("by 0.5 µs and 5 % or more", lambda one: one[4]),
    ]
    where = f"Measured on {'; '.join(run.where() for run in used)}."
    whole = of_rows(columns, summary, [
        "Shapes that nobody chose: every size from 1 on, odd rows, one channel, more taps than times, any padding. A "
        "choice is dwlab.kernels.choices', by the records; PyTorch's best is the fastest of its convolutions, FFT and "
        "matrix products.  ",
        where,
    ])  # fmt: skip
    columns = [
        Col("slower than PyTorch", lambda one: "({B}, {H}, {L}, {K}) {padding}".format(**one[1]["problem"]), left=True),
        Col("path", lambda one: one[1]["path"], left=True),
        Col("stage", lambda one: one[2].replace(one[1]["op"] + "/", ""), left=True),
        Col("µs", lambda one: one[1]["times"][one[2]], "{:.2f}".format),
        Col("PyTorch", lambda one: one[1]["peer"].split(" ", 2)[2], left=True),
        Col("µs", lambda one: one[1]["peer_time_us"], "{:.2f}".format),
        Col("why", lambda one: why(*one[1:]), left=True),
    ]
    return whole, of_rows(columns, sorted(lost, key=lambda one: one[0]), ["(B, H, L, K) and padding. " + where])
