"""Whole networks, ours compared with PyTorch's best, in time and energy: docs/results/networks.md."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dwlab import records
from dwlab.kernels.parts import dependent_launch
from dwlab.planner import validation
from dwlab.problems.layers import DTYPES, DepthwiseConv2d, Pointwise
from dwlab.problems.networks import network
from dwlab.records import Record
from dwlab.report.shared import NO_NETWORKS, VALIDATED, Row, Runs, all_of, grouped, measured_on, over
from dwlab.text.tabular import Col, Markdown, of_rows, result, rounded, times

EMPTY = "kernels that do nothing"
"""A row of `energy_tries`: what launching costs."""


def key_of(row: Row) -> tuple[Any, ...]:
    """Network, batch, storage type and layout."""
    return row["network"], row["batch"], row["dtype"], row["layout"]


# --------------------------------------------------------------------------------------------------------------- rows


def networks(runs: Runs = None, gpu: str | None = None) -> tuple[list[Row], list[Record]]:
    """(rows, runs): the newest row of each network, batch, storage type and layout on one GPU, and their runs.

    PyTorch's time and energy are the least that any record has of the same version: not every run tries all of its
    ways; compiled: whether torch.compile was among them. Not every run measures energy
    either: ours is then from the newest that did, and earlier_energy says so. gpu: that of the newest run with networks
    if None.
    """
    runs = all_of(runs)
    rows, used = records.newest_rows("networks", key_of, runs, gpu)
    here = [run for run in runs if used and run.gpu == used[-1].gpu]
    every = [row for run in here for row in run.sections.get("networks") or ()]
    ways = [one for run in here for one in run.peers if isinstance(one, Mapping)]
    energies = {key_of(row): row for row in every if row.get("joules")}
    rows = [_with_energy(row, energies.get(key_of(row))) for row in rows]
    rows = [_with_best_baseline(row, every) | {"compiled": _compiled(row, ways)} for row in rows]

    def place(row: Row) -> tuple[Any, ...]:
        return (row["network"], -len(row["dtype"]), row["dtype"], row["batch"], row["layout"])

    return sorted(rows, key=place), used


def _with_energy(row: Row, newest: Row | None) -> Row:
    """A row of networks with the energy of another one, if it has none and did not try to measure it."""
    if newest is None or row.get("joules") or row.get("energy_failure") or row.get("failure"):
        return row
    taken = {name: newest[name] for name in ("joules", "watts", "window_s", "rest_watts")}
    return {**row, **taken, "earlier_energy": True}


def _with_best_baseline(row: Row, every: Sequence[Row]) -> Row:
    """A row of networks with the fastest baseline for its network in these rows, and the least energy.

    Of the same storage type (of int8, float16) and version of PyTorch.
    """
    if not row.get("speedup_vs_peer"):
        return row

    def computed(one: Row) -> tuple[Any, ...]:
        return one["network"], one["batch"], one.get("peer_dtype") or one["dtype"], *one["peer"].split()[:2]

    same = [one for one in every if one.get("peer_time_us") and computed(one) == computed(row)]
    best = min(same, key=lambda one: one["peer_time_us"])
    ours = row["speedup_vs_peer"] / row["peer_time_us"]
    made = {**row, "peer": best["peer"], "peer_time_us": best["peer_time_us"]}
    made["speedup_vs_peer"] = ours * best["peer_time_us"]
    measured = [one for one in same if one.get("peer_joules")]
    if row.get("joules") and measured:
        least = min(measured, key=lambda one: one["peer_joules"])
        made |= {name: least.get(name) for name in ("peer_joules", "peer_watts", "peer_window_s", "peer_rest_watts")}
    return made


def _compiled(row: Row, ways: Sequence[Row]) -> bool:
    """Whether PyTorch's ways that were timed for a row of networks have one through torch.compile."""
    version = (row.get("peer") or "").split()[:2]
    for one in ways:
        way, shape, dtype = one.get("way"), one.get("shape"), one.get("dtype")
        if not isinstance(way, str) or not isinstance(shape, Mapping) or not one.get("time"):
            continue
        same = (shape.get("network"), shape.get("N")) == (row["network"], row["batch"]) and way.split()[:2] == version
        if same and dtype in (row["dtype"], row.get("peer_dtype")) and " torch.compile, " in way:
            return True
    return False


@dataclass(frozen=True)
class Parts:
    """Where a network's time goes, kernels one after the other. Times in µs.

    total_us: of the network. depthwise_us, pointwise_us: of these kernels, each timed alone. What is left is other
    operations and what lies between kernels.
    """

    network: str
    dtype: str
    batch: int
    total_us: float
    depthwise_us: float
    pointwise_us: float


def parts_of_networks(runs: Runs = None) -> tuple[list[Parts], list[Record]]:
    """(parts, runs): of every recorded network whose kernels were timed as well."""
    rows, used = networks(runs)
    found = []
    for row in rows:
        if not row.get("apart_us"):
            continue
        made = network(row["network"], row["batch"], row["layout"], row["dtype"])
        times = {problem: us for _, problem, us in validation.timed_kernels(made, used[-1].gpu, all_of(runs))[0]}
        sums = [
            sum(times.get(layer.problem, 0.0) for layer in made.layers if isinstance(layer.problem, kind))
            for kind in (DepthwiseConv2d, Pointwise)
        ]
        if all(sums):
            total = row.get("apart_plain_us") or row["apart_us"]
            found.append(Parts(row["network"], row["dtype"], row["batch"], total, *sums))
    return found, used


# ------------------------------------------------------------------------------------------------------------- tables


def networks_summary(runs: Runs = None) -> Markdown:
    """Whole networks, layer by layer and fused, compared with PyTorch's best; energy of an image; the losses."""
    rows, used = networks(runs)
    if not rows:
        return Markdown(NO_NETWORKS)
    layouts = {row["layout"] for row in rows}

    def baseline(row: Row) -> str:
        name, other = (row.get("peer") or "").removeprefix("PyTorch "), row.get("peer_dtype")
        return f"{other}: {name}" if name and other else name  # PyTorch has no int8 of these layers

    columns = [
        Col("network", lambda row: row["network"] if len(layouts) == 1 else f"{row['network']}, {row['layout']}",
            left=True),
        Col("dtype", "dtype", left=True),
        Col("batch", "batch"),
        Col("unfused (µs)", "apart_us", rounded),
        Col("fused (µs)", "fused_us", rounded),
        Col("fused pairs", "pairs"),
        Col("PyTorch's best", baseline, left=True),
        Col("its time (µs)", "peer_time_us", rounded),
        Col("× PyTorch", "speedup_vs_peer", times),
        Col("mJ an image", "joules", _mj),
        Col("PyTorch's", "peer_joules", _mj),
        Col("× PyTorch", lambda row: over(row.get("peer_joules") or None, row.get("joules")), times),
        Col("", lambda row: row.get("failure") or result(row), left=True),
    ]  # fmt: skip
    lost = [f"{_name(row)} {row['speedup_vs_peer']:.2f}" for row in rows if (row.get("speedup_vs_peer") or 1) < 1]
    earlier = [_name(row) for row in rows if row.get("earlier_energy")]
    compiled = [f"{row['network']} ({row['dtype']}, batch {row['batch']})" for row in rows if row["compiled"]]
    among = f"for {len(compiled)} of {len(rows)}: {'; '.join(compiled)}" if compiled else "for none"
    notes = _means(rows) + _overlap(rows)
    if lost:
        notes.append(f"Slower than PyTorch, {len(lost)} of {len(rows)}: " + "; ".join(lost) + ".  ")
    if any(row.get("joules") for row in rows):
        windows, rest = (
            [row[name] for row in rows for name in (what, f"peer_{what}") if row.get(name)]
            for what in ("window_s", "rest_watts")
        )
        notes.append(
            f"Energy: NVML's counter of the whole board over windows of {min(windows):.1f} to {max(windows):.1f} s, "
            f"divided by the images in them; at rest the GPU took {min(rest):.0f} to {max(rest):.0f} W, which is part "
            "of it.  "
        )
    if earlier:
        notes.append(f"Energy from an earlier run than the time: {'; '.join(earlier)}.  ")
    notes += [f"No energy of {_name(row)}: {row['energy_failure']}.  " for row in rows if row.get("energy_failure")]
    notes += [
        *_missing(rows),
        f"torch.compile is among PyTorch's ways {among}.  ",
        f"One inference as one CUDA graph, random weights, maps in {' and '.join(sorted(layouts))}. unfused: a kernel "
        "for each layer; fused: two layers in one kernel where kernels timed alone say so. × PyTorch: its fastest way "
        "over the faster of ours, in time, and PyTorch's energy over ours; of PyTorch the best that any of the records "
        "has.  ",
        *(["int8: compared with PyTorch's float16, as PyTorch has no int8 of these layers on a GPU.  "]
          * any(row["dtype"] == "int8" for row in rows)),
        measured_on(used),
    ]  # fmt: skip
    return of_rows(columns, rows, notes)


def _name(row: Row) -> str:
    return f"{row['network']} ({row['dtype']}, batch {row['batch']}, {row['layout']})"


def _mj(joules: float) -> str:
    return rounded(1e3 * joules) if joules else ""


def _missing(rows: Sequence[Row]) -> list[str]:
    """Which of VALIDATED networks have no row, of the storage types and batches that any row has, in one line."""
    here = {(row["network"], row["dtype"], row["batch"]) for row in rows}
    types, batches = {row["dtype"] for row in rows}, sorted({row["batch"] for row in rows})
    none = {
        (dtype, batch): [name for name in VALIDATED if (name, dtype, batch) not in here]
        for dtype, batch in itertools.product((one for one in DTYPES if one in types), batches)
    }
    found = [f"{', '.join(names)} ({dtype}, batch {batch})" for (dtype, batch), names in none.items() if names]
    wanted = len(VALIDATED) * len(types) * len(batches)
    return [f"Not measured, {sum(map(len, none.values()))} of {wanted}: {'; '.join(found)}.  "] if found else []


def _means(rows: Sequence[Row]) -> list[str]:
    """The geometric mean of each storage type and batch over VALIDATED networks, in one line."""
    compared = (row for row in rows if row.get("speedup_vs_peer") and row["network"] in VALIDATED)
    groups = grouped(compared, lambda row: (row["dtype"], row["batch"]))
    means = []
    for (dtype, batch), here in sorted(groups.items(), key=lambda one: (-len(one[0][0]), one[0])):
        mean = statistics.geometric_mean(row["speedup_vs_peer"] for row in here)
        means.append(f"{mean:.2f} ({dtype}, batch {batch}, {len(here)} networks)")
    return [f"Geometric means of × PyTorch, in time: {'; '.join(means)}.  "] if means else []


def _overlap(rows: Sequence[Row]) -> list[str]:
    """What kernels that start early save of the faster of our two graphs, in one line. Older rows do not say."""
    saved, compared = [], 0
    for row in rows:
        ours = [(row[f"{what}_us"], what) for what in ("apart", "fused") if row.get(f"{what}_us")]
        us, what = min(ours, default=(0, ""))
        if row.get(f"{what}_plain_us"):
            compared += 1
            if row[f"{what}_launches"] != dependent_launch.WORDS[""]:
                saved.append(100 * (1 - us / row[f"{what}_plain_us"]))
    if not compared:
        return []
    effect = f"are no faster in any of {compared}"
    if saved:
        percents = " to ".join(dict.fromkeys(f"{one:.1f}" for one in (min(saved), max(saved))))
        effect = f"save {percents} % of the time in {len(saved)} of {compared}"
    return [f"Kernels that start while the one before runs {effect} networks.  "]


def energy_ablations_table(runs: Runs = None, best_order: bool = False) -> Markdown:
    """Ways to run a network that might take less energy: W and J of each, and of PyTorch's way of least energy.

    best_order: of layer by layer, fused and by least energy only the order of launches that took least.
    That is one of the same run; where it has none, the least of any record of whole networks. A line
    compares our least with that one in any case: torch.compile does not make the same of a network each time.
    """
    rows, used = records.newest_rows("energy_tries", lambda row: (*key_of(row), row["way"]), runs)
    if not rows:
        return Markdown("No such ablations are recorded.\n")
    recorded = {key_of(row): row for row in networks(runs, used[-1].gpu)[0] if row.get("peer_joules")}
    body: list[tuple[Row, float | None]] = []
    elsewhere, strictly = [], []
    groups = sorted(grouped(rows, key_of).items(), key=lambda item: item[0])
    for key, found in groups:
        theirs = [row for row in found if row["way"].startswith("PyTorch ")]
        best = min(theirs, key=lambda row: row["joules"], default=None)
        least = None if best is None else best["joules"]
        if best is None and key in recorded:
            least = recorded[key]["peer_joules"]
            elsewhere.append(recorded[key].get("peer_rest_watts"))
        ours = min((row["joules"] for row in found if row not in theirs and row["way"] != EMPTY), default=None)
        if ours and key in recorded:
            strictly.append(f"{times(recorded[key]['peer_joules'] / ours)} ({key[0]}, {key[2]})")
        shown = _least(found) if best_order else [row for row in found if row not in theirs]
        body += [
            (row, None if row is best or row["way"] == EMPTY else over(least, row["joules"]))
            for row in found
            if row is best or row in shown
        ]
    columns = [
        *(Col(name, lambda one, name=name: one[0][name], left=True) for name in ("network", "dtype")),
        Col("way", lambda one: one[0]["way"].replace("apart", "layer by layer"), left=True),
        Col("kernels of ours", lambda one: one[0]["kernels"] or None),
        Col("time (µs)", lambda one: one[0]["time_us"], rounded),
        Col("W", lambda one: one[0]["watts"], "{:.0f}".format),
        Col("mJ", lambda one: one[0]["joules"], _mj),
        Col("of that above rest (mJ)", lambda one: one[0]["joules"] * (1 - one[0]["rest_watts"] / one[0]["watts"]),
            _mj),
        Col("× PyTorch", lambda one: one[1], times),
    ]  # fmt: skip
    rest, windows = [row["rest_watts"] for row in rows], [row["window_s"] for row in rows]
    batches = " and ".join(f"{one}" for one in sorted({row["batch"] for row in rows}))
    notes = [
        f"An image at batch {batches}, as a CUDA graph. At rest the GPU took {min(rest):.0f} to {max(rest):.0f} W; "
        f"windows of {min(windows):.1f} s and more. "
        f"{'' if best_order else EMPTY + ': as many as the fused graph has, with its grids and blocks. '}"
        "× PyTorch: the least energy of PyTorch's ways over ours.  ",
    ]
    if elsewhere:
        at_rest = sorted(one for one in elsewhere if one)
        rest_text = f", where a GPU took {at_rest[0]:.0f} to {at_rest[-1]:.0f} W at rest" if at_rest else ""
        share = f"{len(elsewhere)} of {len(groups)}"
        notes.append(f"Of {share} networks PyTorch's is from records of whole networks{rest_text}.  ")
    if strictly:
        notes.append(
            "Our least compared with the least of PyTorch's that any record of whole networks has, on whichever GPU: "
            f"{', '.join(strictly)}.  "
        )
    return of_rows(columns, body, [*notes, measured_on(used)])


def _least(rows: Sequence[Row]) -> list[Row]:
    """Of each plan, named by the words before the comma, the row of least energy; not EMPTY, and none of PyTorch's."""
    plans = grouped(
        [row for row in rows if row["way"] != EMPTY and not row["way"].startswith("PyTorch ")],
        lambda row: row["way"].partition(",")[0],
    )
    return [min(plan, key=lambda row: row["joules"]) for plan in plans.values()]
