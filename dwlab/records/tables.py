"""Records as Markdown tables, each with device, versions and date: of a newest run, or of each key its newest row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dwlab.records import (
    FOLDER,
    Measurement,
    Record,
    RecordError,
    copies,
    copy_us,
    describe_problem,
    file_bytes,
    grid_rows,
    load_runs,
    newest_rows,
    shape_text,
    shown_runs,
)
from dwlab.records.tabular import Markdown, heading, line, percent, result, rounded, times


def table(
    op: str = "depthwise1d",
    path: str = "forward",
    problem: Any = None,
    *,
    gpu: str | None = None,
    dtype: str | None = None,
    runs: Sequence[Record] | None = None,
) -> Markdown:
    """The newest recorded run of one op and path on one problem, a row a stage, with device, versions and date.

    problem: None for the run's main problem. dtype: the rows' storage type; if None the problem's, and float32 where
    that is only its sizes. A stage that loses to its peer is marked slower. Where nothing is recorded, a sentence says
    so.
    """
    dtype = getattr(problem, "dtype", "float32") if dtype is None else dtype
    for run in reversed(shown_runs(runs, gpu)):
        rows = [row for row in run.measurements if (row.op, row.path, row.dtype) == (op, path, dtype)]
        if not rows:
            continue
        wanted = dict(rows[0].problem) if problem is None else describe_problem(problem)
        rows = [row for row in rows if dict(row.problem) == wanted]
        if rows:
            return Markdown(_run_table(run, sorted(rows, key=lambda row: (row.order or 0, row.stage))))
    shape = f" at {shape_text(problem)}" if problem is not None else ""
    return Markdown(f"Nothing is recorded for {op}/{path}{shape}. On a GPU: `python -m dwlab study --record FILE`.\n")


def _run_table(run: Record, rows: Sequence[Measurement]) -> str:
    peer = next((row.peer for row in rows if row.peer), None)
    copy = rounded(run.ceilings["copy_gbps"])
    head = ["stage", "time (µs)", "p10 to p90 (µs)", "effective GB/s", "of copy", "× naive"]
    if peer:
        head.append("× peer")
    lines = heading(head)
    for row in rows:
        cells = [
            row.stage,
            rounded(row.time_us),
            f"{rounded(row.p10_us)} to {rounded(row.p90_us)}",
            rounded(row.effective_gbps),
            f"{100 * row.fraction_of_copy:.1f} %",
            times(row.speedup_vs_naive),
        ]
        if peer:
            cells.append(times(row.speedup_vs_peer, slower=True))
        lines.append(line(cells))
    if peer:
        time_us = next(row.peer_time_us for row in rows if row.peer)
        lines.append(line([f"peer: {peer}", rounded(time_us)] + [""] * (len(head) - 2)))
    first = rows[0]
    lines += [
        "",
        f"{shape_text(first.problem)}, {first.dtype}. Effective GB/s counts the {first.compulsory_bytes / 1e6:,.1f} MB "
        f"that must move at least; a device copy in the same run moved {copy} GB/s.",
        f"Measured on {run.where()}.",
        "",
    ]
    return "\n".join(lines)


def shapes_table(
    op: str = "depthwise1d",
    path: str = "forward",
    *,
    gpu: str | None = None,
    dtype: str = "float32",
    runs: Sequence[Record] | None = None,
) -> Markdown:
    """The newest recorded run of one op and path with rows of one storage type, a row a stage and problem."""
    for run in reversed(shown_runs(runs, gpu)):
        rows = [row for row in run.measurements if (row.op, row.path, row.dtype) == (op, path, dtype)]
        if not rows:
            continue
        head = ["problem", "stage", "time (µs)", "effective GB/s", "of copy", "× naive", "× peer"]
        lines = heading(head, range(2))
        for row in rows:
            cells = [shape_text(row.problem), row.stage, rounded(row.time_us), rounded(row.effective_gbps)]
            cells += [f"{100 * row.fraction_of_copy:.1f} %", times(row.speedup_vs_naive)]
            lines.append(line([*cells, times(row.speedup_vs_peer, slower=True)]))
        peers = sorted({row.peer for row in rows if row.peer})
        if peers:
            lines += ["", f"Peer: the fastest of {', '.join(peers)}, for each problem."]
        lines += ["", f"{rows[0].dtype}. Measured on {run.where()}.", ""]
        return Markdown("\n".join(lines))
    return Markdown(f"Nothing is recorded for {op}/{path}. On a GPU: `python -m dwlab study --record FILE`.\n")


def ceilings_table(runs: Sequence[Record] | None = None) -> Markdown:
    """The newest measured ceilings of the GPU that is shown."""
    newest = {run.gpu: run for run in shown_runs(runs) if run.ceilings}
    if not newest:
        return Markdown("Nothing is recorded. On a GPU: `python -m dwlab study --record FILE`.\n")
    head = ["GPU", "copy (GB/s)", "L2 read (GB/s)", "FP32 FMA (TFLOP/s)", "plain launch (µs)", "measured with"]
    lines = heading(head, (0, -1))
    for gpu, run in sorted(newest.items()):
        values = [run.ceilings.get(key) for key in ("copy_gbps", "l2_gbps", "fma_tflops", "launch_us")]
        cells = ["" if value is None else rounded(value) for value in values]
        lines.append(line([gpu, *cells, run.where().removeprefix(gpu).lstrip(", ")]))
    return Markdown("\n".join(lines) + "\n")


def traffic_table(
    op: str = "depthwise1d",
    path: str = "forward",
    *,
    gpu: str | None = None,
    dtype: str = "float32",
    runs: Sequence[Record] | None = None,
) -> Markdown:
    """Predicted traffic beside the hardware's counters, of the newest run that has them; a row a stage and problem.

    dtype: the rows' storage type.
    """
    for run in reversed(shown_runs(runs, gpu)):
        rows = [one for one in run.counters if (one["op"], one["path"], one["dtype"]) == (op, path, dtype)]
        if not rows:
            continue
        kinds = ["load", "store"] + ["atomic"] * any(one["predicted"].get("atomic_sectors") for one in rows)
        head = ["problem", "stage"]
        head += [cell for kind in kinds for cell in (f"{kind} sectors, formula", "hardware")]
        head += ["sectors/request, hardware", "L2 read (MB)", "L2 written (MB)", "DRAM read (MB)", "DRAM written (MB)"]
        head.append("shared bank conflicts")
        lines = heading(head, range(2))
        for one in rows:
            cells = [shape_text(one["problem"]), one["stage"]]
            for kind in kinds:
                key = f"{kind}_sectors"
                cells += [f"{one['predicted'].get(key) or 0:,}", _counted_text(one.get(key))]
            requests = sum(one.get(f"{kind}_requests") or 0 for kind in kinds)
            sectors = sum(one.get(f"{kind}_sectors") or 0 for kind in kinds)
            cells.append(f"{sectors / requests:.2f}" if requests else "")
            cells += [_counted_text(one.get(key), 32) for key in ("l2_read_sectors", "l2_write_sectors")]
            cells += [_counted_text(one.get(key), 1) for key in ("dram_read_bytes", "dram_write_bytes")]
            lines.append(line([*cells, _counted_text(one["shared_bank_conflicts"])]))
        stored = "" if dtype == "float32" else f"{dtype}. "
        lines += ["", f"{stored}Counted by Nsight Compute, one launch each. Measured on {run.where()}.", ""]
        return Markdown("\n".join(lines))
    return Markdown(
        f"No hardware counters are recorded for {op}/{path}. "
        "On a GPU with Nsight Compute: `python -m dwlab study --record FILE`.\n"
    )


def _counted_text(value: int | None, nbytes: int = 0) -> str:
    """A count, or with the bytes of each the MB of them; "" for what was not counted."""
    if value is None:
        return ""
    return f"{nbytes * value / 1e6:,.1f}" if nbytes else f"{value:,}"


def _newest(section: str, runs: Sequence[Record] | None) -> Record | None:
    """The newest run that has rows of a section."""
    return next((run for run in reversed(shown_runs(runs)) if run.sections.get(section)), None)


def _grid_notes(rows: Sequence[Mapping[str, Any]], used: Sequence[Record]) -> list[str]:
    """What is said below a table of the grid: notes of a run alone, or how many shapes came together."""
    if len(used) == 1:
        return [f"{note}  " for note in used[0].notes]
    shapes = {tuple(one["problem"].values()) for one in rows}
    return [f"{len(shapes)} shapes, from {len(used)} runs, of each shape the newest.  "]


def _wheres(used: Sequence[Record]) -> str:
    return "; ".join(dict.fromkeys(run.where() for run in used))


def grid_table(runs: Sequence[Record] | None = None) -> Markdown:
    """Every path of every shape of the grid: the chosen stage beside PyTorch's best, the losses too."""
    rows, used = grid_rows(runs)
    if not used:
        return Markdown(f"No grid of shapes is recorded. {_HOW['grid']}\n")
    head = ["path", "problem", "stage", "time (µs)", "of copy", "of FMA rate", "of bound", "peer", "peer (µs)"]
    lines = heading([*head, "× peer", ""], (0, 1, 2, 7, -1))
    for one in rows:
        time_us, fma = one.get("time_us"), one.get("fma_bound_us")
        bound = max(one["copy_bound_us"], fma or 0)
        cells = [one["path"], shape_text(one["problem"]), one["stage"], rounded(time_us)]
        cells += [
            percent(limit / time_us if time_us and limit else None) for limit in (one["copy_bound_us"], fma, bound)
        ]
        cells += [one.get("peer") or "", rounded(one.get("peer_time_us")), times(one.get("speedup_vs_peer"))]
        lines.append(line([*cells, one.get("failure") or result(one)]))
    notes = _grid_notes(rows, used)
    lines += ["", *notes, *([""] if notes else [])]
    lines += [
        "of copy: compulsory bytes at the measured copy bandwidth, over the time. of FMA rate: taps inside the signal "
        f"at the measured rate, over the time. of bound: the larger of the two. Measured on {_wheres(used)}.",
        "",
    ]
    return Markdown("\n".join(lines))


def grid_summary(runs: Sequence[Record] | None = None) -> Markdown:
    """The grid, a row a path: shapes won and lost, and the fractions reached where the launch is large."""
    rows, used = grid_rows(runs)
    if not used:
        return Markdown(f"No grid of shapes is recorded. {_HOW['grid']}\n")
    head = ["path", "shapes", "faster than the peer", "slower", "no peer or no time", "× peer, least", "median", "most"]
    head += ["of bound, median", "large launches at 85 % of copy", "of a copy as large"]
    lines = heading(head)
    copied = copies(runs, used[-1].gpu)
    gbps = {id(row): run.ceilings["copy_gbps"] for run in used for row in run.sections["grid"]}  # of the row's own run
    for path in dict.fromkeys(one["path"] for one in rows):
        here = [one for one in rows if one["path"] == path]
        ratios = sorted(one["speedup_vs_peer"] for one in here if one.get("speedup_vs_peer"))
        timed = [one for one in here if one.get("time_us")]
        bounds = sorted(max(one["copy_bound_us"], one.get("fma_bound_us") or 0) / one["time_us"] for one in timed)
        # Where the FMA rate allows 85 % of the copy bandwidth, and a launch lasts long enough to fill the GPU.
        large = [one for one in timed if one["copy_bound_us"] >= GRID_LARGE_US]
        large = [one for one in large if 0.85 * (one.get("fma_bound_us") or 0) <= one["copy_bound_us"]]
        reached = sum(one["copy_bound_us"] / one["time_us"] >= 0.85 for one in large)
        won = sum(ratio >= 1 for ratio in ratios)
        cells = [path, str(len(here)), str(won), str(len(ratios) - won), str(len(here) - len(ratios))]
        cells += [times(ratios[i]) if ratios else "" for i in (0, len(ratios) // 2, -1)]
        cells += [percent(bounds[len(bounds) // 2] if bounds else None), f"{reached} of {len(large)}"]
        copies_us = [copied and copy_us(round(one["copy_bound_us"] * gbps[id(one)] * 1e3), copied) for one in large]
        there = [least / one["time_us"] >= 0.85 for one, least in zip(large, copies_us, strict=True) if least]
        lines.append(line([*cells, f"{sum(there)} of {len(there)}" if there else ""]))
    notes = _grid_notes(rows, used)
    lines += ["", *notes, *([""] if notes else [])]
    lines += [
        f"large: {GRID_LARGE_US:g} µs or more at the copy bandwidth. Of a copy as large: at 85 % of "
        "a copy of as many bytes, which begins and ends as they do. Every shape, the losses too: "
        f"`python -m dwlab records --grid`. Measured on {_wheres(used)}.",
        "",
    ]
    return Markdown("\n".join(lines))


GRID_LARGE_US = 20.0
"""From this time at copy bandwidth on, a launch of the grid counts as large: its start and end are a small part."""


def sanitizer_rows(runs: Sequence[Record] | None = None) -> tuple[list[Mapping[str, Any]], list[Record]]:
    """Of each stage and each of compute-sanitizer's tools the newest row, and the runs that they are from."""
    return newest_rows("sanitizer", lambda row: (row["tool"], row["stage"]), runs)


def sanitizer_table(runs: Sequence[Record] | None = None, digests: Mapping[str, str] | None = None) -> Markdown:
    """What compute-sanitizer said of each stage when it last ran on it: a column a tool.

    digests: of the kernels that the stages have now; a row of another is told, and one of none of them is left out.
    """
    rows, used = sanitizer_rows(runs)
    rows = [one for one in rows if not digests or one["stage"] in digests]
    if not rows:
        return Markdown(f"No run of compute-sanitizer is recorded. {_HOW['sanitizer']}\n")
    tools = list(dict.fromkeys(one["tool"] for one in rows))
    lines = heading(["stage", *tools], range(1 + len(tools)))
    for stage in dict.fromkeys(one["stage"] for one in rows):
        said = {one["tool"]: one for one in rows if one["stage"] == stage}
        cells = [
            "" if tool not in said else "clean" if said[tool]["clean"] else said[tool].get("message") or "errors"
            for tool in tools
        ]
        lines.append(line([stage, *cells]))
    lines.append("")
    digests = digests or {}
    earlier = dict.fromkeys(one["stage"] for one in rows if one.get("kernel_sha256") != digests.get(one["stage"]))
    if earlier:
        lines.append(f"Of an earlier kernel, which has changed since: {', '.join(earlier)}.  ")
    versions = ", ".join(dict.fromkeys(one["version"] for one in rows if one.get("version")))
    lines += [f"{versions + '. ' if versions else ''}Run on {_wheres(used)}.", ""]
    return Markdown("\n".join(lines))


def reduction_error_table(runs: Sequence[Record] | None = None) -> Markdown:
    """The error of long sums against float64 in the newest run of it, a row a number of terms and stage."""
    run = _newest("reduction_error", runs)
    if run is None:
        return Markdown("No errors of long sums are recorded.\n")
    head = ["terms", "stage", "greatest error / sum of magnitudes", "of what is allowed", "‖error‖ / ‖dw‖"]
    head.append("same bits each run")
    lines = heading(head, (1, -1))
    for one in run.sections["reduction_error"]:
        same = "yes" if one["repeatable"] else "no"
        cells = [
            f"{one['terms']:,}",
            f"{one['path']}/{one['stage']}",
            f"{one['error']:.1e}",
            percent(one["error"] / one["allowed"]),
        ]
        lines.append(line([*cells, f"{one['norm_error']:.1e}", f"{same} ({one['runs']} runs)"]))
    lines += ["", f"Against float64. Measured on {run.where()}.", ""]
    return Markdown("\n".join(lines))


def copies_table(runs: Sequence[Record] | None = None) -> Markdown:
    """Sizes, times and bandwidths of the newest run that timed copies of several sizes."""
    run = copies(runs)
    if run is None:
        return Markdown(f"No copies of several sizes are recorded. {_HOW['copies']}\n")
    rows = sorted(run.sections["copies"], key=lambda row: row["bytes"])
    lines = heading(["MB", "time (µs)", "p10 to p90 (µs)", "GB/s", "of the largest's", "way"], (-1,))
    for row in rows:
        cells = [f"{row['bytes'] / 1e6:,.1f}", rounded(row["time_us"])]
        cells += [f"{rounded(row['p10_us'])} to {rounded(row['p90_us'])}", f"{row['gbps']:,.0f}"]
        cells += [percent(row["gbps"] / rows[-1]["gbps"]), row["way"]]
        lines.append(line(cells))
    lines += ["", "Read and written together, out of the L2 as far as that can be; the fastest of three ways.  "]
    return Markdown("\n".join([*lines, f"Measured on {run.where()}.", ""]))


def comparisons_table(runs: Sequence[Record] | None = None) -> Markdown:
    """How the interpreter's results compared with a GPU's in the newest run that compared them."""
    run = _newest("comparisons", runs)
    if run is None:
        return Markdown(f"No comparison with a GPU is recorded. {_HOW['comparisons']}\n")
    lines = heading(["comparison", "passed", "failed", "skipped"])
    for one in run.sections["comparisons"]:
        lines.append(line([one["name"], *(f"{one[key]:,}" for key in ("passed", "failed", "skipped"))]))
    return Markdown("\n".join([*lines, "", f"Run on {run.where()}.", ""]))


TRIES = ("copy", "read", "gap or swizzle", "order of outputs", "blocks of weight_grad", "blocks of backward",
         "outputs a lane", "strips of weight_grad", "strips of backward")  # fmt: skip
"""The groups of benchmarks/roof_tries.py; the last three, of an earlier revision of it, stand in records alone."""


def tries_table(runs: Sequence[Record] | None = None, group: str | None = None) -> Markdown:
    """What was tried on the way to the roof: every group, or one, each of the newest run that has it.

    of the fastest: the least time of the group, over the time. Raises RecordError for a group that there is not.
    """
    newest: dict[str, Record] = {}
    for one in shown_runs(runs):
        newest |= dict.fromkeys((row["group"] for row in one.sections.get("tries") or ()), one)
    if not newest:
        return Markdown(f"No tries are recorded. {_HOW['tries']}\n")
    if group is not None and group not in (*TRIES, *newest):
        raise RecordError(f"no group of tries is called {group!r}: there are {', '.join(TRIES)}")
    if group is not None and group not in newest:
        return Markdown(f"No recorded tries have any of {group!r}. {_HOW['tries']}\n")
    order = sorted(newest, key=lambda name: (*TRIES, *newest).index(name))
    chosen = {
        name: [row for row in newest[name].sections["tries"] if row["group"] == name]
        for name in (order if group is None else [group])
    }
    used = [one for one in shown_runs(runs) if any(newest[name] is one for name in chosen)]
    head = ["try", "how", "time (µs)", "10 % to 90 %", "GB/s", "of the fastest", "registers"]
    if group is None:
        head.insert(0, "group")
    lines = heading(head, range(len(head) - 5))
    for name, rows in chosen.items():
        least = min((one["time_us"] for one in rows if one.get("time_us")), default=None)
        for one in rows:
            time_us, p10, p90 = (one.get(key) for key in ("time_us", "p10_us", "p90_us"))
            cells = [] if group is not None else [name]
            cells += [one["name"], one.get("note") or "", rounded(time_us) if time_us else one.get("failure") or ""]
            cells.append(f"{rounded(p10)} to {rounded(p90)}" if p10 and p90 else "")
            cells += [rounded(one.get("gbps")), percent(least / time_us if least and time_us else None)]
            lines.append(line([*cells, "" if one.get("registers") is None else str(one["registers"])]))
    notes = [note for one in used for note in one.notes if "tries" in note]
    lines += ["", *(f"{note}  " for note in notes), *([""] if notes else [])]
    lines += [
        "GB/s: of the bytes that must be moved. Single experiments, each result checked, of a few hundredths of a "
        f"second each: differences within the spread mean nothing. Measured on {_wheres(used)}.",
        "",
    ]
    return Markdown("\n".join(lines))


_HOW = {
    "tries": "On a GPU: `python benchmarks/roof_tries.py`.",
    "grid": "On a GPU: `python benchmarks/shape_grid.py`.",
    "layers": "On a GPU: `python benchmarks/record_layers.py`.",
    "layer_counters": "On a GPU with Nsight Compute: `python benchmarks/ncu_layers.py`.",
    "networks": "On a GPU: `python benchmarks/record_networks.py`.",
    "sanitizer": "On a GPU: `python benchmarks/sanitize.py`.",
    "comparisons": "On a GPU: `python benchmarks/record_run.py`.",
    "copies": "On a GPU: `python benchmarks/copy_sizes.py`.",
}


def compared(folder: Path = FOLDER / "predictions") -> Markdown:
    """Predicted against measured change of times from one GPU to another, where memory binds and elsewhere.

    folder: predictions of `benchmarks/predictions.py`, made before the second GPU ran anything, and the records of both
    for them. For each stage and shape that was timed on both, the measured change, the predicted one, and none, which
    is what carrying the first GPU's times over would say.
    """
    files = sorted(folder.glob("*.json.gz"))
    if not files:
        return Markdown("No time was predicted for a GPU before it was recorded: `python benchmarks/predictions.py`.\n")
    said = json.loads(file_bytes(files[-1]))
    taken, where = {}, []
    for run in load_runs(folder):
        where.append(run.where())
        for one in run.measurements:
            key = one.id, shape_text(one.problem), run.gpu
            taken[key] = one.time_us, "warm" if one.cold.startswith("warm") else "cold"
    found: dict[str, list[tuple[float, float]]] = {"device memory": [], "something else": []}
    for row in said["stages"]:
        (basis, old), (gpu, new) = row["gpus"].items()
        shape = shape_text({key: value for key, value in row["problem"].items() if key != "dtype"})
        before, after = (taken.get((row["stage"], shape, name)) for name in (basis, gpu))
        if before is None or after is None:
            continue
        predicted = new[f"{after[1]}_us"] / old[f"{before[1]}_us"]
        kind = "device memory" if new[f"bound_{after[1]}"] == "dram" else "something else"
        found[kind].append((after[0] / before[0], predicted))
    head = ["predicted to be bound by", "rows", "measured change, median", "the model's error, median", "within 10 %",
            "carried over: error, median", "within 10 %"]  # fmt: skip
    lines, near = heading(head), {}
    for kind, rows in found.items():
        if not rows:
            continue
        ways = [[abs(predicted / measured - 1) for measured, predicted in rows], [abs(1 / one - 1) for one, _ in rows]]
        near[kind] = [sum(x <= 0.1 for x in way) for way in ways]
        cells = [cell for way, n in zip(ways, near[kind], strict=True) for cell in (percent(median(way)), f"{n}")]
        lines.append(line([kind, str(len(rows)), f"{median(one for one, _ in rows):.3f}", *cells]))
    told = [
        f"Bound by {kind}, the model is within 10 % in {model} of {len(found[kind])}, times carried over in {carried}."
        for kind, (model, carried) in near.items()
    ]
    lines += [
        "",
        *([" ".join(told) + "  "] if told else ["No row was timed on both GPUs.  "]),
        f"A row is a stage at a shape. Change: the time on {gpu} over that on {basis}. Carried over: as if nothing "
        f"changed. Predicted {said['date'][:10]}, before the second GPU ran anything. Measured on {'; '.join(where)}.",
        "",
    ]
    return Markdown("\n".join(lines))


def compared_networks(runs: Sequence[Record] | None = None, folder: Path = FOLDER / "predictions") -> Markdown:
    """`compared`, of whole networks with fused pairs: the change of an inference's time, row by row.

    runs: those of both GPUs (the project's own if None), of which each network's newest row counts.
    """
    files = sorted(folder.glob("*.json.gz"))
    if not files:
        return compared(folder)
    said = json.loads(file_bytes(files[-1]))
    taken, where = {}, {}
    for run in load_runs() if runs is None else runs:
        for row in run.sections.get("networks", ()):
            if "fused_us" in row:
                taken[row["network"], row["batch"], row["dtype"], run.gpu] = row["fused_us"]
                where[run.gpu] = run.where()
    head = ["network", "dtype", "batch", "measured change", "predicted", "the model's error", "carried over: error"]
    lines, found = heading(head, left=(0, 1)), []
    for row in said["networks"]:
        (basis, old), (gpu, new) = row["gpus"].items()
        key = row["network"], row["batch"], row["dtype"]
        before, after = (taken.get((*key, name)) for name in (basis, gpu))
        if before and after:
            measured, predicted = after / before, new["fused_us"] / old["fused_us"]
            found.append((abs(predicted / measured - 1), abs(1 / measured - 1)))
            cells = [row["network"], row["dtype"], f"{row['batch']}", f"{measured:.3f}", f"{predicted:.3f}"]
            lines.append(line([*cells, *(percent(one) for one in found[-1])]))
    if not found:
        return Markdown("No network was timed on both GPUs.\n")
    model, carried = (median(one[i] for one in found) for i in (0, 1))
    lines += [
        "",
        f"Median error: the model's {percent(model)}, times carried over {percent(carried)}; {len(found)} of "
        f"{len(said['networks'])} predicted networks were timed on both.  ",
        f"Change: the time of an inference on {gpu} over that on {basis}, pairs fused, one CUDA graph, maps in NHWC. "
        f"Predicted {said['date'][:10]}. Measured on {where[basis]}; {where[gpu]}.",
        "",
    ]
    return Markdown("\n".join(lines))
