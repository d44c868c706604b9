"""Tables that lessons print of x-rays, compiled kernels and recorded layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dwlab.gpu.machine import Machine
from dwlab.problems import PAPER, DepthwiseConv1d, Problem
from dwlab.report.rows import Row, geometric, group_of, grouped, share
from dwlab.text.tabular import Columns, columns, wrapped

if TYPE_CHECKING:
    from dwlab.compiler.inspect import Compiled


def _us(value: float | None, digits: int = 0) -> str:
    return "not known" if value is None else f"{value:,.{digits}f} µs"


# ------------------------------------------------------------------------------------------------------------- floors


def floors_us(problem: DepthwiseConv1d, path: str, gpu: Machine) -> tuple[float, float | None]:
    """µs that no kernel goes below: of the compulsory bytes at copy speed, of the multiply-adds at the FMA rate."""
    rate = gpu.ceilings.fma_tflops
    copied = problem.compulsory_bytes(path) / gpu.ceilings.copy_gbps / 1e3
    return copied, problem.flops_of(path) / rate / 1e6 if rate else None


def floors_table(gpu: Machine, paths: Iterable[str]) -> Columns:
    """The two floors of some paths of the paper's problem, a row each."""
    body = []
    for path in paths:
        copied, multiplied = floors_us(PAPER, path, gpu)
        size, flops = PAPER.compulsory_bytes(path), PAPER.flops_of(path)
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


# ------------------------------------------------------------------------------------------- x-rays, compiled kernels


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


def _measured(seen: Any, layer: Problem, what: str) -> float:
    """One number of an x-ray: of the whole kernel, or of an array, "x: times loaded"."""
    (output,), path = layer.outputs(layer.main_path), layer.main_path
    outputs = layer.nbytes()[output] // layer.storage_of(output).itemsize
    read = [one for one in seen.accesses if one.space == "shared" and one.kind == "load"]
    name, _, kind = what.rpartition(": ")
    array = seen.array(name, "store" if name == output else "load") if name else None
    return {
        "requests for 32 outputs": lambda: 32 * seen.totals.requests / outputs,
        "wavefronts for 32 outputs": lambda: 32 * seen.totals.shared_wavefronts / outputs,
        "requests for 32 multiply-adds": lambda: 64 * seen.totals.requests / layer.flops_of(path),
        "shared reads for a multiply-add": lambda: 2 * sum(one.active_lanes for one in read) / layer.flops_of(path),
        "their wavefronts for 32": lambda: 64 * sum(one.wavefronts for one in read) / layer.flops_of(path),
        "requested over compulsory": lambda: seen.totals.bytes_moved / layer.compulsory_bytes(),
        "FLOP per byte": lambda: layer.flops_of(path) / seen.totals.bytes_moved,
        "times loaded": lambda: array.active_lanes * array.itemsize / layer.nbytes()[name],
        "bytes over its size": lambda: array.bytes_moved / layer.nbytes()[name],
        "sectors a request": lambda: array.sectors / array.requests,
        "requests": lambda: array.requests,
    }[kind]()


def work_table(
    layers: Mapping[str, Problem] | Problem, seen: Mapping[str, Any], *what: str, digits: int = 2
) -> Columns:
    """A row for each x-ray of `seen`, by name. layers: what each computes, or all. what: see `_measured`."""
    of = layers if isinstance(layers, Mapping) else dict.fromkeys(seen, layers)
    body = [[name, *(f"{_measured(one, of[name], w):,.{digits}f}" for w in what)] for name, one in seen.items()]
    return columns(["", *what], body)


OPCODES = ("LDGSTS", "LDG.", "STG", "LDS", "STS", "FFMA", "BRA.DIV", "WARPSYNC", "BAR")
"""Opcodes that `memory_order` shows: memory, multiply-adds, and what waits for other lanes."""


def memory_order(one: Compiled) -> str:
    """Registers, spills and the order of memory accesses and multiply-adds in what a compiler made of a kernel."""
    found = [f"{one.compiler}: {one.registers} registers, {one.spill_stores + one.spill_loads} bytes spilled"]
    if one.sass is None:
        return "\n".join([*found, wrapped(f"  {one.sass_missing}")])
    found.append(f"  {one.ffma:,} FFMA, {sum(one.opcodes.values()):,} instructions in all")
    found += [f"  {space}: {one.accesses(space)}" for space in ("global", "shared")]
    code = [line.split("*/", 1)[-1].split() for line in one.sass.splitlines() if "@!PT" not in line]
    order = [name for words in code for name in words[:2] if name.startswith(OPCODES)]
    runs = groupby(order, key=lambda name: next(kind for kind in OPCODES if name.startswith(kind)))
    found.append("  in this order: " + ", ".join(f"{kind.strip('.')}×{len(list(same))}" for kind, same in runs))
    found.append("  the first multiply-add: " + " ".join(next(words for words in code if "FFMA" in words[:2])))
    return "\n".join(wrapped(text) for text in found)


# ---------------------------------------------------------------------------------------------------- recorded layers


def layers_text(rows: Sequence[Row]) -> str:
    """Rows of `layers` as lines of text, by operator, storage type and batch: of each the worst and the best.

    The geometric mean of the baseline's time over ours and how many are slower, of pairs also against our own kernels
    of the two layers where that was timed; then six rows, those of the least and of the greatest ratio. Rows
    without a time or a baseline are left out.
    """
    lines = []
    for (op, dtype, batch), found in grouped((row for row in rows if row.get("speedup_vs_peer")), group_of).items():
        here = sorted(found, key=lambda row: row["speedup_vs_peer"])
        for name, head in (("speedup_vs_peer", f"{op}, {dtype}, batch {batch}: geometric mean"),
                           ("speedup_vs_apart", "    against our own kernels of the two layers:")):  # fmt: skip
            if ratios := [row[name] for row in here if row.get(name)]:
                lines.append(f"{head} {geometric(ratios)}, {share([one < 1 for one in ratios])} slower")
        for row in here if len(here) <= 6 else here[:3] + here[-3:]:
            ratio = f"{row['speedup_vs_peer']:7.2f}{'  lost' if row['speedup_vs_peer'] < 1 else ''}"
            both = f"{row['time_us']:9.1f} µs, PyTorch {row['peer_time_us']:7.1f} µs{ratio}"
            lines.append(f"    {row['layer']:36}{row['stage']:11}{both}")
    return "\n".join(lines)
