"""The tables of docs/results and of lessons, by name, and what writes them into Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

from dwlab import records
from dwlab.records import Record
from tables import networks, stages, working

Made = Mapping[str, Callable[[], str]]

OF_RUNS: Mapping[str, Callable[[Sequence[Record]], str]] = {**stages.TABLES, **networks.TABLES, **working.TABLES}
"""Name -> the table that is made of runs."""


def tables(runs: Sequence[Record] | None = None) -> dict[str, Callable[[], str]]:
    """Name between the markers -> what makes its text; those of an H100 begin with "h100/"."""
    runs = records.load_runs() if runs is None else list(runs)
    other = [run for run in runs if "H100" in run.gpu]
    made = {name: functools.partial(make, runs) for name, make in OF_RUNS.items()}
    return made | {f"h100/{name}": functools.partial(make, other) for name, make in OF_RUNS.items()}


def fill(text: str, made: Made) -> str:
    """The text with what stands between each ``<!-- begin:NAME -->`` and ``<!-- end:NAME -->`` made anew.

    Raises records.RecordError for a name that does not exist and for markers that do not pair.
    """
    regions = re.compile(r"<!-- begin:([^\s>]+) -->\n(?:(?!<!-- begin:).)*?<!-- end:\1 -->", re.S)
    if 2 * len(regions.findall(text)) != len(re.findall(r"<!-- (?:begin|end):[^\s>]+ -->", text)):
        raise records.RecordError("each <!-- begin:NAME --> needs its <!-- end:NAME -->, and none stands in another")

    def new(found: re.Match[str]) -> str:
        name = found[1]
        if name not in made:
            raise records.RecordError(f"no table is named {name!r}: there are {', '.join(sorted(made))}")
        shown = made[name]().strip("\n")
        return f"<!-- begin:{name} -->\n{shown}\n<!-- end:{name} -->"

    return regions.sub(new, text)
