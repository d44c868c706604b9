"""What dispatch chooses on drawn shapes, against the fastest stage there and against PyTorch's best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from dwlab import records
from dwlab.kernels import choices, registry
from dwlab.problems import PATHS, DepthwiseConv1d
from dwlab.records import Record, tabular
from dwlab.records.tabular import Markdown

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
    head = ["path", "shapes", "choice over the fastest stage, mean", "most"]
    head += ["had the shape not been timed, mean", "most", "PyTorch's best over the choice, mean", "least"]
    head += ["slower than PyTorch", "by 0.5 µs and 5 % or more"]
    summary, lost = tabular.heading(head), []
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
            cells = [text for way in (over, unseen) for text in (f"{geometric_mean(way):.3f}", f"{max(way):.2f}")]
            cells += [f"{geometric_mean(against):.2f}", f"{min(against):.2f}"]
            cells += [f"{sum(one < 1 for one in against)}", f"{by}"]
            summary.append(tabular.line([path, f"{len(over)}", *cells]))
    where = f"Measured on {'; '.join(run.where() for run in used)}."
    summary += ["", "Shapes that nobody chose: every size from 1 on, odd rows, one channel, more taps than times, any "
                "padding. A choice is dwlab.kernels.choices', by the records; PyTorch's best is the fastest of its "
                "convolutions, FFT and matrix products.  ", where, ""]  # fmt: skip
    text = tabular.heading(["slower than PyTorch", "path", "stage", "µs", "PyTorch", "µs", "why"], left=(0, 1, 2, 4, 6))
    for _, row, name, least in sorted(lost, key=lambda one: one[0]):
        shape = "({B}, {H}, {L}, {K}) {padding}".format(**row["problem"])
        text.append(
            tabular.line([
                shape, row["path"], name.replace(row["op"] + "/", ""), f"{row['times'][name]:.2f}",
                row["peer"].split(" ", 2)[2], f"{row['peer_time_us']:.2f}", why(row, name, least),
            ])
        )  # fmt: skip
    return Markdown("\n".join(summary)), Markdown("\n".join([*text, "", "(B, H, L, K) and padding. " + where, ""]))
