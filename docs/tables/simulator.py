"""docs/simulator.md: other projects' tests, and four kernels, beside Numba's simulator (benchmarks/simulators.py)."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from dwlab.text import tabular
from dwlab.text.tabular import Col, rounded

RECORD = Path(__file__).with_suffix(".json")
HEADS = ("counted", "`--simt-count=off`", "and `--simt-hazards=ignore`")


def _read() -> tuple[dict[str, Any], str]:
    """The record, and where it was made."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    at = record["environment"]
    where = f"{at['date']}, {at['cores']} cores ({at['processor']}), Python {at['python']}, numba {at['numba']}."
    return record, f"Seconds of the processor, by `benchmarks/simulators.py`: {where}"


def clients() -> str:
    """A row a project: tests, passed and seconds on both; then its hazards, with a word on each."""
    record, where = _read()
    rows = record["clients"]
    faster = [row["seconds"]["numba"] / row["seconds"]["simt"] for row in rows if not row["note"]]
    columns = [
        Col("project", "project", left=True),
        Col("tests", "tests"),
        Col("pass there", lambda row: row["passed"]["numba"]),
        Col("pass here", lambda row: row["passed"]["simt"]),
        Col("seconds there", lambda row: f"none: {row['note']}" if row["note"] else rounded(row["seconds"]["numba"])),
        Col("seconds here", lambda row: rounded(row["seconds"]["simt"])),
    ]
    found = dict.fromkeys(
        f"- {row['project'].split(',')[0]}, {Path(line.split(': ')[0]).name}, {line.split(': ')[1]}: {word}"
        for row in rows for line, word in row["hazards"].items()
    )  # fmt: skip
    mean = f"Geometric mean of what both run: {statistics.geometric_mean(faster):.1f} times as fast here."
    return tabular.of_rows(columns, rows, [f"{where}  ", mean, "", "Hazards, each looked up in the code:", "", *found])


def kernels() -> str:
    """A row a kernel: seconds and memory of a launch here, in three ways, and on Numba's simulator."""
    record, where = _read()

    def scaled(row: dict[str, Any]) -> float:
        there = row["numba"]
        return there["seconds"] * (row["counted"]["size"] / there["size"]) ** row["power"]

    columns = [
        Col("kernel", lambda row: f"{row['name']} of {row['counted']['size']:,}", left=True),
        *(Col(head, lambda row, way=way: f"{rounded(row[way]['seconds'])} s, {row[way]['mib']:,} MiB")
          for way, head in zip(("counted", "watched", "bare"), HEADS, strict=True)),
        Col("Numba's simulator", lambda row: f"{rounded(row['numba']['seconds'])} s of {row['numba']['size']:,}"),
        Col("times as long, scaled", lambda row: f"{scaled(row) / row['counted']['seconds']:,.0f}"),
    ]  # fmt: skip
    rows = [row | {"name": name} for name, row in record["kernels"].items()]
    scale = (
        "Scaled from Numba's size with the work: the product's grows with the third power, the others' with the size.  "
    )
    return tabular.of_rows(columns, rows, [scale, where])
