"""What was measured of a GPU itself, and of small experiments on it: docs/results/machine.md, lessons 16 to 23."""

from __future__ import annotations

from collections.abc import Mapping

from dwlab import records
from dwlab.records import Record, RecordError, newest_rows, shown_runs
from dwlab.report.shared import Row, Runs, measured_on
from dwlab.text.tabular import Col, Markdown, of_rows, percent, rounded

_HOW = "On a GPU: `python benchmarks/{}.py`.\n"


def ceilings_table(runs: Runs = None) -> Markdown:
    """The newest measured ceilings of the GPU that is shown."""
    shown = records.calibrated(shown_runs(runs))
    if not shown:
        return Markdown("Nothing is recorded. On a GPU: `python -m dwlab study --record FILE`.\n")

    def ceiling(head: str, name: str) -> Col:
        return Col(head, lambda run: run.ceilings.get(name), rounded)

    columns = [
        Col("GPU", "gpu", left=True), ceiling("copy (GB/s)", "copy_gbps"), ceiling("L2 read (GB/s)", "l2_gbps"),
        ceiling("FP32 FMA (TFLOP/s)", "fma_tflops"), ceiling("plain launch (µs)", "launch_us"),
        Col("measured with", lambda run: run.where().removeprefix(run.gpu).lstrip(", "), left=True),
    ]  # fmt: skip
    return Markdown(of_rows(columns, [shown[gpu] for gpu in sorted(shown)]).removesuffix("\n"))


def copies_table(runs: Runs = None) -> Markdown:
    """Sizes, times and bandwidths of the newest run that timed copies of several sizes."""
    run = records.copies(runs)
    if run is None:
        return Markdown(f"No copies of several sizes are recorded. {_HOW.format('record_run')}")
    rows = sorted(run.sections["copies"], key=lambda row: row["bytes"])
    columns = [
        Col("MB", lambda row: f"{row['bytes'] / 1e6:,.1f}"),
        Col("time (µs)", "time_us", rounded),
        Col("p10 to p90 (µs)", lambda row: f"{rounded(row['p10_us'])} to {rounded(row['p90_us'])}"),
        Col("GB/s", "gbps", "{:,.0f}".format),
        Col("of the largest's", lambda row: row["gbps"] / rows[-1]["gbps"], percent),
        Col("way", "way", left=True),
    ]
    note = "Read and written together, out of the L2 as far as that can be; the fastest of three ways.  "
    return of_rows(columns, rows, [note, measured_on([run])])


def sanitizer_rows(runs: Runs = None) -> tuple[list[Row], list[Record]]:
    """Of each stage and each of compute-sanitizer's tools the newest row, and the runs that they are from."""
    return newest_rows("sanitizer", lambda row: (row["tool"], row["stage"]), runs)


def sanitizer_table(runs: Runs = None, digests: Mapping[str, str] | None = None) -> Markdown:
    """What compute-sanitizer said of each stage when it last ran on it: a column a tool.

    digests: of the kernels that the stages have now; a stage whose row has another is named, and one that is not among
    them is left out.
    """
    rows, used = sanitizer_rows(runs)
    digests = digests or {}
    found = {(one["stage"], one["tool"]): one for one in rows if not digests or one["stage"] in digests}
    if not found:
        return Markdown(f"No run of compute-sanitizer is recorded. {_HOW.format('sanitize')}")

    def of_tool(tool: str) -> Col:
        def cell(stage: str) -> str:
            one = found.get((stage, tool))
            return "" if one is None else "clean" if one["clean"] else one.get("message") or "errors"

        return Col(tool, cell, left=True)

    columns = [Col("stage", lambda stage: stage, left=True), *map(of_tool, dict.fromkeys(tool for _, tool in found))]
    earlier = dict.fromkeys(
        stage for (stage, _), one in found.items() if one.get("kernel_sha256") != digests.get(stage)
    )
    notes = [f"Of an earlier kernel, which has changed since: {', '.join(earlier)}.  "] if earlier else []
    versions = ", ".join(dict.fromkeys(one["version"] for one in found.values() if one.get("version")))
    place = f"{versions + '. ' if versions else ''}{measured_on(used, 'Run')}"
    return of_rows(columns, dict.fromkeys(stage for stage, _ in found), [*notes, place])


def comparisons_table(runs: Runs = None) -> Markdown:
    """How the interpreter's results compared with a GPU's in the newest run that compared them."""
    run = next((run for run in reversed(shown_runs(runs)) if run.sections.get("comparisons")), None)
    if run is None:
        return Markdown(f"No comparison with a GPU is recorded. {_HOW.format('record_run')}")
    columns = [Col("comparison", "name", left=True)]
    columns += [Col(key, key, "{:,}".format) for key in ("passed", "failed", "skipped")]
    return of_rows(columns, run.sections["comparisons"], [measured_on([run], "Run")])


ABLATIONS = ("copy", "read", "gap or swizzle", "order of outputs", "blocks of weight_grad", "blocks of backward",
         "outputs a lane", "strips of weight_grad", "strips of backward")  # fmt: skip
"""The groups of small kernels that were tried on the way to the roof; they stand in records alone."""


def ablations_table(runs: Runs = None, group: str | None = None) -> Markdown:
    """What was tried on the way to the roof: every group, or one, each of the newest run that has it.

    of the fastest: the least time of the group, over the time. Raises RecordError for a group that there is not.
    """
    newest: dict[str, Record] = {}
    for one in shown_runs(runs):
        newest |= dict.fromkeys((row["group"] for row in one.sections.get("tries") or ()), one)
    if not newest:
        return Markdown("No ablations are recorded.")
    if group is not None and group not in (*ABLATIONS, *newest):
        raise RecordError(f"no group of ablations is called {group!r}: there are {', '.join(ABLATIONS)}")
    if group is not None and group not in newest:
        return Markdown(f"No recorded ablations have any of {group!r}.")
    chosen = sorted(newest, key=lambda name: (*ABLATIONS, *newest).index(name)) if group is None else [group]
    rows = [row for name in chosen for row in newest[name].sections["tries"] if row["group"] == name]
    least = {
        name: min((row["time_us"] for row in rows if row["group"] == name and row.get("time_us")), default=None)
        for name in chosen
    }

    def spread(row: Row) -> str | None:
        p10, p90 = row.get("p10_us"), row.get("p90_us")
        return f"{rounded(p10)} to {rounded(p90)}" if p10 and p90 else None

    columns = [
        *([Col("group", "group", left=True)] * (group is None)),
        Col("variant", "name", left=True),
        Col("how", "note", left=True),
        Col("time (µs)", lambda row: rounded(row.get("time_us") or None) or row.get("failure")),
        Col("10 % to 90 %", spread),
        Col("GB/s", "gbps", rounded),
        Col("of the fastest", lambda row: least[row["group"]] / row["time_us"] if row.get("time_us") else None,
            percent),
        Col("registers", "registers"),
    ]  # fmt: skip
    used = [one for one in shown_runs(runs) if any(newest[name] is one for name in chosen)]
    notes = [f"{note}  " for one in used for note in one.notes if "tries" in note]
    return of_rows(columns, rows, [
        *notes,
        *[""] * bool(notes),
        "GB/s: of the bytes that must be moved. Single experiments, each result checked, of a few hundredths of a "
        f"second each: differences within the spread mean nothing. {measured_on(used)}",
    ])  # fmt: skip
