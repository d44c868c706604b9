"""What lessons 15 to 22 print: floors of time, times over them, long rows, small launches, compiled accesses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dwlab import records
from dwlab.gpu.machine import Machine
from dwlab.problems import PAPER, DepthwiseConv1d
from dwlab.text.tabular import Columns, columns, percent, wrapped

if TYPE_CHECKING:
    from dwlab.compiler.inspect import Compiled

KINDS = ("LDGSTS", "LDG.", "STG", "LDS", "STS", "FFMA", "BRA.DIV", "WARPSYNC", "BAR")
"""Opcodes that `memory_order` shows: memory, multiply-adds, and what waits for other lanes."""


def _us(value: float | None, digits: int = 0) -> str:
    return "not known" if value is None else f"{value:,.{digits}f} µs"


def floors_us(problem: DepthwiseConv1d, path: str, gpu: Machine) -> tuple[float, float | None]:
    """µs that no kernel goes below: of the compulsory bytes at copy speed, of the multiply-adds at the FMA rate."""
    rate = gpu.ceilings.fma_tflops
    copied = problem.compulsory_bytes(path) / gpu.ceilings.copy_gbps / 1e3
    return copied, problem.flops_of(path) / rate / 1e6 if rate else None


def floors_table(gpu: Machine, paths: Iterable[str], problem: DepthwiseConv1d = PAPER) -> Columns:
    """The two floors of some paths, a row each."""
    body = []
    for path in paths:
        copied, multiplied = floors_us(problem, path, gpu)
        size, flops = problem.compulsory_bytes(path), problem.flops_of(path)
        body.append([path, f"{size / 1e6:,.1f}", _us(copied), f"{flops / 1e9:.2f}", _us(multiplied)])
    return columns(["path", "MB", "at copy speed", "GFLOP", "at the FMA rate"], body)


def over_floors_table(gpu: Machine, times: Mapping[str, float], problem: DepthwiseConv1d = PAPER) -> Columns:
    """Times of stages, by id, over the two floors of their paths, and what is left over the copy."""
    body = []
    for id, us in times.items():
        copied, multiplied = floors_us(problem, id.split("/")[1], gpu)
        fma = f"{multiplied / us:.0%}" if multiplied else ""
        body.append([id, _us(us, 1), f"{copied / us:.1%}", fma, f"{us - copied:+,.1f} µs"])
    return columns(["stage", "time", "of copy", "of FMA rate", "left over copy"], body)


def counts_table(reports: Mapping[str, Any], rows: int) -> Columns:
    """Counts of x-rays for each of `rows` rows; multiply-adds as a warp's instructions."""
    kinds = {
        "multiply-adds of a warp": lambda r: sum(line.flops for line in r.lines) / 64,
        "global requests": lambda r: r.totals.requests,
        "shared requests": lambda r: r.totals.shared_requests,
        "wavefronts": lambda r: r.totals.shared_wavefronts,
        "bank conflicts": lambda r: r.totals.bank_conflicts,
        "sectors": lambda r: r.totals.sectors,
    }
    body = [[what, *(f"{number(r) / rows:,.2f}" for r in reports.values())] for what, number in kinds.items()]
    return columns(["for each row", *reports], body)


def grid_table(path: str, length: int = 1024) -> Columns:
    """Recorded shapes of the grid with rows of one length: the stage chosen, its time over the two floors."""
    body, (rows, _) = [], records.grid_rows()
    for row in sorted(rows, key=lambda row: (row["problem"]["K"], row["problem"]["B"])):
        at = row["problem"]
        if row["path"] == path and at["L"] == length and row.get("time_us"):
            fma = f"{row['fma_bound_us'] / row['time_us']:.0%}" if row.get("fma_bound_us") else ""
            copied = f"{row['copy_bound_us'] / row['time_us']:.0%}"
            body.append([f"{at['B']}", f"{at['K']}", row["stage"], _us(row["time_us"], 1), copied, fma])
    return columns(["B", "K", "stage", "time", "of copy", "of FMA rate"], body, left=(2,))


def small_copies_table(*sizes_mb: int) -> Columns:
    """What a copy of so many MB takes, of those recorded, and the part of the largest copy's bandwidth that it has."""
    run, body = records.copies(records.shown_runs()), []
    if run is None:
        return Columns("No copies are recorded. On a GPU: python benchmarks/record_run.py")
    largest = max(row["gbps"] for row in run.sections["copies"])
    for size in sizes_mb:
        us, least = records.copy_us(size * 10**6, run), size / largest * 1e3
        if us is not None:
            body.append([f"{size} MB", f"{us:.2f} µs", f"{us - least:+.2f} µs", percent(least / us)])
    return columns(["a copy of", "takes", "over its bytes' time", "of the largest's bandwidth"], body)


def as_large_table(path: str, length: int = 1024) -> Columns:
    """Shapes of the grid with B·H·L near 10 million: times over the copy's floor, and over a copy of as many bytes."""
    run, body = records.copies(records.shown_runs()), []
    if run is None:
        return Columns("No copies are recorded. On a GPU: python benchmarks/record_run.py")
    for row in sorted(records.grid_rows()[0], key=lambda row: row["problem"]["K"]):
        problem = DepthwiseConv1d(**row["problem"])
        near = 9e6 < problem.B * problem.H * problem.L < 11e6
        if row["path"] == path and problem.L == length and near and row.get("time_us"):
            copied = records.copy_us(problem.compulsory_bytes(path), run)
            us = row["time_us"]
            shares = [f"{row['copy_bound_us'] / us:.0%}", f"{copied / us:.0%}"]
            body.append([f"{problem.K}", row["stage"], _us(us, 1), *shares])
    return columns(["K", "stage", "time", "of copy", "of a copy as large"], body, left=(1,))


def best_of_ablations() -> dict[str, float]:
    """Group of ablations -> the least recorded µs, of the GPU that is shown."""
    best: dict[str, float] = {}
    for run in reversed(records.shown_runs()):
        for row in run.sections.get("tries") or ():
            if row.get("time_us"):
                best[row["group"]] = min(best.get(row["group"], row["time_us"]), row["time_us"])
        if best:
            break
    return best


def memory_order(one: Compiled) -> str:
    """Registers, spills and the order of memory accesses and multiply-adds in what a compiler made of a kernel."""
    found = [f"{one.compiler}: {one.registers} registers, {one.spill_stores + one.spill_loads} bytes spilled"]
    if one.sass is None:
        return "\n".join([*found, wrapped(f"  {one.sass_missing}")])
    found.append(f"  {one.ffma:,} FFMA, {sum(one.opcodes.values()):,} instructions in all")
    found += [f"  {space}: {one.accesses(space)}" for space in ("global", "shared")]
    code = [line.split("*/", 1)[-1].split() for line in one.sass.splitlines() if "@!PT" not in line]
    order = [name for words in code for name in words[:2] if name.startswith(KINDS)]
    runs = groupby(order, key=lambda name: next(kind for kind in KINDS if name.startswith(kind)))
    found.append("  in this order: " + ", ".join(f"{kind.strip('.')}×{len(list(same))}" for kind, same in runs))
    found.append("  the first multiply-add: " + " ".join(next(words for words in code if "FFMA" in words[:2])))
    return "\n".join(wrapped(text) for text in found)
