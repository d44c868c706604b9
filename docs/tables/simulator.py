"""docs/simulator.md: other projects' tests, and four kernels, beside Numba's simulator (benchmarks/simulators.py)."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from dwlab.text.tabular import rounded
from tables.writing import table

RECORD = Path(__file__).with_suffix(".json")
WAYS = {"counted": "counted", "watched": "`--simt-count=off`", "bare": "and `--simt-hazards=ignore`"}


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
    shown = [
        {"project": row["project"], "tests": row["tests"], "pass there": row["passed"]["numba"],
         "pass here": row["passed"]["simt"],
         "seconds there": f"none: {row['note']}" if row["note"] else rounded(row["seconds"]["numba"]),
         "seconds here": rounded(row["seconds"]["simt"])}
        for row in rows
    ]  # fmt: skip
    found = dict.fromkeys(
        f"- {row['project'].split(',')[0]}, {Path(line.split(': ')[0]).name}, {line.split(': ')[1]}: {word}"
        for row in rows for line, word in row["hazards"].items()
    )  # fmt: skip
    mean = f"Geometric mean of what both run: {statistics.geometric_mean(faster):.1f} times as fast here."
    return table(shown, [f"{where}  ", mean, "", "Hazards, each looked up in the code:", "", *found])


def kernels() -> str:
    """A row a kernel: seconds and memory of a launch here, in three ways, and on Numba's simulator."""
    record, where = _read()

    rows = []
    for name, row in record["kernels"].items():
        there, here = row["numba"], row["counted"]
        scaled = there["seconds"] * (here["size"] / there["size"]) ** row["power"]
        rows.append({
            "kernel": f"{name} of {here['size']:,}",
            **{head: f"{rounded(row[way]['seconds'])} s, {row[way]['mib']:,} MiB" for way, head in WAYS.items()},
            "Numba's simulator": f"{rounded(there['seconds'])} s of {there['size']:,}",
            "times as long, scaled": f"{scaled / here['seconds']:,.0f}",
        })  # fmt: skip
    scale = (
        "Scaled from Numba's size with the work: the product's grows with the third power, the others' with the size.  "
    )
    return table(rows, [scale, where])
