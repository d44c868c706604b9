"""A copy of as many bytes: what a launch of any size can be held against, from the newest record of it.

The copy bandwidth is that of a copy of hundreds of MB. A launch that moves less begins and ends all the same, some
microseconds in which memory waits, and no kernel can do anything about that but run beside others. What a copy of as
many bytes takes says how much of a launch's distance from the bandwidth is of this kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dwlab import records
from dwlab.records import Markdown, Record


def recorded(runs: Sequence[Record] | None = None, gpu: str | None = None) -> Record | None:
    """The newest run that copied several sizes, on a GPU if one is named."""
    runs = records.load_runs() if runs is None else list(runs)
    return next((run for run in reversed(runs) if run.sections.get("copies") and gpu in (None, run.gpu)), None)


def time_us(nbytes: int, run: Record) -> float | None:
    """µs of a copy of so many bytes, read and written together, by a run's rows; None if all of them are larger.

    Linear between two sizes; above the largest at its bandwidth.
    """
    rows = sorted(run.sections["copies"], key=lambda row: row["bytes"])
    if nbytes < rows[0]["bytes"]:
        return None
    if nbytes > rows[-1]["bytes"]:
        return nbytes / rows[-1]["bytes"] * rows[-1]["time_us"]
    return float(np.interp(nbytes, [row["bytes"] for row in rows], [row["time_us"] for row in rows]))


def table(runs: Sequence[Record] | None = None) -> Markdown:
    """Sizes, times and bandwidths of the newest run."""
    run = recorded(runs)
    if run is None:
        return Markdown("No copies of several sizes are recorded. On a GPU: `python benchmarks/copy_sizes.py`.\n")
    rows = sorted(run.sections["copies"], key=lambda row: row["bytes"])
    lines = [
        "| MB | time (µs) | 10 % to 90 % | GB/s | of the largest's | way |",
        "| ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        lines.append(
            f"| {row['bytes'] / 1e6:,.1f} | {row['time_us']:,.2f} | {row['p10_us']:,.2f} to {row['p90_us']:,.2f} "
            f"| {row['gbps']:,.0f} | {100 * row['gbps'] / rows[-1]['gbps']:.1f} % | {row['way']} |"
        )
    lines += ["", "Read and written together, out of the L2 as far as that can be; the fastest of three ways.  "]
    return Markdown("\n".join([*lines, f"Measured on {run.where()}.", ""]))
