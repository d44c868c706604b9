"""What tables of several pages share: groups, ratios, means, and where something was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dwlab import records
from dwlab.records import Record
from dwlab.text.tabular import Col, percent, times

Row = Mapping[str, Any]
Runs = Sequence[Record] | None
"""The runs to take; all of the project's where it is None."""

VALIDATED = ("mobilenet_v1", "mobilenet_v2", "xception", "proxylessnas")
"""The networks whose layers are measured, and that the planner is validated on."""

NO_LAYERS = "No layers of image networks are recorded. On a GPU: `python benchmarks/record_layers.py`.\n"
NO_NETWORKS = "No networks are recorded. On a GPU: `python benchmarks/record_networks.py`.\n"


def all_of(runs: Runs) -> list[Record]:
    """These runs, or all that are recorded."""
    return records.load_runs() if runs is None else list(runs)


def measured_on(used: Sequence[Record], what: str = "Measured") -> str:
    """Where the runs were made, the oldest first: "Measured on ...."."""
    places = dict.fromkeys(run.where() for run in sorted(used, key=lambda run: records.instant(run.date)))
    return f"{what} on {'; '.join(places)}."


def grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The rows of each key, in the order in which they come."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def over(value: float | None, of: float | None) -> float | None:
    """value / of; None where one is missing or the second is 0."""
    return value / of if value is not None and of else None


def geometric(ratios: Iterable[float | None], slower: bool = False) -> str:
    """The geometric mean of those that there are, as text. slower: as `tabular.times` takes it."""
    known = [one for one in ratios if one is not None]
    return times(statistics.geometric_mean(known), slower) if known else ""


def median(fractions: Sequence[float]) -> str:
    """The median of fractions, in percent."""
    return percent(statistics.median(fractions)) if fractions else ""


def share(ones: Sequence[bool]) -> str:
    """How many of how many: "3 of 5"; "" of none."""
    return f"{sum(ones)} of {len(ones)}" if ones else ""


def slower(ratios: Sequence[float]) -> str:
    """How many are below 1."""
    return f"{sum(one < 1 for one in ratios)}"


def ratio_columns(
    head: str,
    ratios: Callable[[Any], Sequence[float] | None],
    greatest: bool = True,
    lost: Callable[[Sequence[float]], str] = slower,
) -> list[Col]:
    """The geometric mean of a row's ratios, the least, the greatest, and how many are below 1."""
    return [
        Col(f"{head}, geometric mean", ratios, geometric),
        Col("least", ratios, lambda found: times(min(found, default=None))),
        *([Col("greatest", ratios, lambda found: times(max(found, default=None)))] * greatest),
        Col("slower", ratios, lost),
    ]


def listed(names: Sequence[str]) -> str:
    """ ": a; b", or "" of none."""
    return f": {'; '.join(names)}" if names else ""


def op_of(row: Row) -> str:
    """The op of a row of layers; of pairs with its path."""
    return row["op"] if row["path"] == "forward" else f"{row['op']}/{row['path']}"


def order_of(row: Row) -> int:
    """The place of a row's op in tables."""
    return {"depthwise2d": 0, "pointwise": 1, "fused": 2}.get(row["op"], 3)
