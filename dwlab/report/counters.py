"""The hardware's counters compared with what stages' formulas predict: docs/results/counters.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dwlab import records
from dwlab.kernels import registry
from dwlab.measure.counters import columns as counted_columns
from dwlab.problems.layers import DTYPES
from dwlab.records import Record
from dwlab.report.layer import layers_of
from dwlab.report.shared import VALIDATED, Row, Runs, grouped, measured_on, op_of, order_of, over, share
from dwlab.text.tabular import Col, Markdown, of_rows

NEAR = 0.1
"""How far the planner's bytes may be from the hardware's, as a fraction of these, and count as right."""

_NO_COUNTERS = (
    "No hardware counters of layers of image networks are recorded. On a GPU with Nsight Compute: "
    "`python benchmarks/ncu_layers.py`.\n"
)


def traffic_table(
    op: str = "depthwise1d", path: str = "forward", *, gpu: str | None = None, dtype: str = "float32", runs: Runs = None
) -> Markdown:
    """Predicted traffic and the hardware's counters, of the newest run that has them; a row a stage and problem.

    dtype: the rows' storage type.
    """
    for run in reversed(records.shown_runs(runs, gpu)):
        rows = [one for one in run.counters if (one["op"], one["path"], one["dtype"]) == (op, path, dtype)]
        if rows:
            break
    else:
        return Markdown(
            f"No hardware counters are recorded for {op}/{path}. "
            "On a GPU with Nsight Compute: `python -m dwlab study --record FILE`.\n"
        )
    stored = "" if dtype == "float32" else f"{dtype}. "
    note = f"{stored}Counted by Nsight Compute, one launch each. {measured_on([run])}"
    return of_rows(counted_columns(rows), rows, [note])


# -------------------------------------------------------------------------------------------------------------- layers


def layer_counters(runs: Runs = None) -> tuple[list[Row], list[Record]]:
    """(rows, runs): the newest counters of each stage, layer, layout, batch and storage type of one GPU; the runs."""
    names = ("op", "path", "stage", "layer", "layout", "batch", "dtype")
    rows, used = records.newest_rows("layer_counters", lambda row: tuple(row[name] for name in names), runs)

    def place(row: Row) -> tuple[Any, ...]:
        return order_of(row), row["path"], row["stage"], -len(row["dtype"]), row["dtype"]

    return sorted(rows, key=place), used


def requested_bytes(row: Row) -> int | None:
    """What the warps requested, sectors of loads and stores by the hardware's counters; None if it has none."""
    return _sectors(row, "load_sectors", "store_sectors")


def l2_bytes(row: Row) -> int | None:
    """What the multiprocessors read and wrote in the L2, by the hardware's counters; None if it has none."""
    return _sectors(row, "l2_sm_read_sectors", "l2_sm_write_sectors")


def _sectors(row: Row, *names: str) -> int | None:
    sectors = [row.get(name) for name in names]
    return None if None in sectors else 32 * sum(sectors)


_COMPARED = (
    ("accesses", "requested", "planned_bytes", requested_bytes),
    ("planner", "requested", "planned_asked_bytes", requested_bytes),
    ("accesses", "L2", "planned_bytes", l2_bytes),
)
"""What is predicted, of what, and the fields of a row that have them."""

Counted = Callable[[Row], int | None]


def _planned(rows: Sequence[Row], name: str, counted: Counted) -> list[tuple[Row, float]]:
    """(row, the planner's bytes of that name over those that were counted) of rows that have both."""
    found = [(row, over(row.get(name), counted(row))) for row in rows]
    return [(row, ratio) for row, ratio in found if ratio is not None]


def _near(ratio: float) -> bool:
    return abs(ratio - 1) <= NEAR


def _how_many(ratios: Sequence[tuple[Row, float]]) -> str:
    return share([_near(ratio) for _, ratio in ratios])


def _range(ratios: Sequence[float | None]) -> str:
    known = sorted(one for one in ratios if one is not None)
    return " to ".join(dict.fromkeys(f"{one:.2f}" for one in (known[0], known[-1]))) if known else ""


def _as_predicted(rows: Sequence[Row], what: str) -> str:
    """In how many launches the hardware's requests or sectors are the formula's, of those that it counted."""
    names = [f"{kind}_{what}" for kind in ("load", "store")]
    known = [row for row in rows if None not in map(row.get, names)]
    return f"{sum(all(row[name] == row[f'predicted_{name}'] for name in names) for row in known)} of {len(known)}"


def counters_summary(runs: Runs = None) -> Markdown:
    """Predicted against counted, a row a stage and storage type, and the fused launches of which the planner is wrong.

    In how many launches the formula's requests and sectors are the hardware's, and the hardware's sectors over the
    formula's. At the kernel's own tile the planner's accesses, in bytes, and its sectors over those that the warps
    requested; and the accesses over those that the multiprocessors requested of the L2.
    """
    rows, used = layer_counters(runs)
    if not rows:
        return Markdown(_NO_COUNTERS)
    columns = [
        Col("stage", lambda one: one[0][0], left=True),
        Col("dtype", lambda one: one[0][1], left=True),
        Col("launches", lambda one: len(one[1])),
        *(Col(f"{what} as the formula says", lambda one, what=what: _as_predicted(one[1], what))
          for what in ("requests", "sectors")),
        *(Col(f"{name.replace('_', ' ')} / formula",
              lambda one, name=name: _range([over(row.get(name), row[f"predicted_{name}"]) for row in one[1]]))
          for name in ("load_sectors", "store_sectors")),
    ]  # fmt: skip
    for what, of, name, counted in _COMPARED:
        columns += [
            Col(f"{what} / {of}", lambda one, name=name, counted=counted: _planned(one[1], name, counted),
                lambda ratios: _range([ratio for _, ratio in ratios])),
            Col(f"within {100 * NEAR:g} %", lambda one, name=name, counted=counted: _planned(one[1], name, counted),
                _how_many),
        ]  # fmt: skip
    groups = grouped(rows, lambda row: (f"{op_of(row)}/{row['stage']}", row["dtype"]))
    notes = []
    for op, here in grouped(rows, lambda row: row["op"]).items():
        each = {(what, of): _planned(here, name, counted) for what, of, name, counted in _COMPARED}
        shares = [f"{what} / {of} in {_how_many(ratios)}" for (what, of), ratios in each.items() if ratios]
        if not shares:
            continue
        text = f"{op}, launches within {100 * NEAR:g} %: {', '.join(shares)}."
        best = each["planner", "requested"]
        known = [id(row) for row, _ in best]
        best = best + [(row, ratio) for row, ratio in each["accesses", "requested"] if id(row) not in known]
        far = [f"{_launch(row)} {ratio:.2f}" for row, ratio in best if not _near(ratio)] if op == "fused" else []
        notes.append(f"{text} Beyond, of what was requested: {'; '.join(far)}.  " if far else f"{text}  ")
    return of_rows(columns, groups.items(), [*notes, *_notes(rows, used)])


def _launch(row: Row) -> str:
    return f"{op_of(row)}/{row['stage']} on {row['layer']} ({row['dtype']}, {row['layout']}, batch {row['batch']})"


def _notes(rows: Sequence[Row], used: Sequence[Record]) -> list[str]:
    launched = {(row["op"], row["path"], row["layer"], row["dtype"]) for row in rows if row["dtype"] in DTYPES}
    having = {one: [name for name in VALIDATED if one[:3] in layers_of(name, one[3])] for one in launched}
    names = [name for name in VALIDATED if all(name in here for here in having.values())]
    joined = " or ".join(names)
    if not names and all(having.values()):
        joined = ", ".join(name for name in VALIDATED if any(name in here for here in having.values()))
    counted = {(row["op"], row["path"], row["stage"]) for row in rows}
    ops = {row["op"] for row in rows}
    others = [one for one in registry.stages() if one.op in ops and (one.op, one.path, one.name) not in counted]
    without = [f"{op_of({'op': one.op, 'path': one.path})}/{one.name}" for one in others]
    launches = f"{len(rows)} launch{'es' * (len(rows) > 1)}"
    if joined:
        launches += f", on {len({one[:3] for one in launched})} layers and pairs of {joined}"
    if without:
        launches += f"; none of {', '.join(without)}"
    split = dict.fromkeys(f"{op_of(row)}/{row['stage']}" for row in rows if _has_more_requests(row))
    more = (
        "More requests than the formula's for the same sectors: where lanes of a warp go round a loop differently "
        f"often, and the compiler unrolls it, they no longer request together ({', '.join(split)}).  "
    )
    return [
        f"{launches}.  ",
        *([more] if split else []),
        "accesses: the planner's at the tile that the kernel has, each element that a block needs once. planner: these "
        "and what the kernel requests beyond them, in sectors. Both as earlier records have them. requested: 32 bytes "
        "for each sector that warps load or store. "
        "L2: for each that multiprocessors read or write there, without what it moves between its halves. Of copies "
        "past the registers (cp.async) the hardware counts a sector for each 32 bytes of shared memory that a 128-byte "
        "line goes to: more than the formula where rows are misaligned by 16 bytes, as the interpreter's "
        "`copied_again` counts. Counted by Nsight Compute, one launch each, from cold caches.  ",
        measured_on(used),
    ]


def _has_more_requests(row: Row) -> bool:
    """Whether the hardware counted more requests than the formula has, for no more sectors."""
    requests, sectors = ((row.get(f"load_{what}"), row[f"predicted_load_{what}"]) for what in ("requests", "sectors"))
    return None not in requests and requests[0] > requests[1] and sectors[0] == sectors[1]
