"""Tables of x-rays: what kernels cost for the work that they do, a kernel or a layer a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dwlab.problems import Problem
from dwlab.text.tabular import Columns, columns

Measure = Callable[[Any, Problem], float]
"""Of an x-ray (dwlab.simt.report.Report) and what was computed."""


def _outputs(layer: Problem) -> int:
    (name,) = layer.outputs(layer.main_path)
    return layer.nbytes()[name] // layer.storage_of(name).itemsize


def _flops(layer: Problem) -> int:
    return layer.flops_of(layer.main_path)


def _read(seen: Any) -> tuple[int, int]:
    """(numbers that lanes read from shared memory, the wavefronts of it)."""
    reads = [one for one in seen.accesses if one.space == "shared" and one.kind == "load"]
    return sum(one.active_lanes for one in reads), sum(one.wavefronts for one in reads)


MEASURES: dict[str, Measure] = {
    "requests for 32 outputs": lambda seen, layer: 32 * seen.totals.requests / _outputs(layer),
    "wavefronts for 32 outputs": lambda seen, layer: 32 * seen.totals.shared_wavefronts / _outputs(layer),
    "requests for 32 multiply-adds": lambda seen, layer: 64 * seen.totals.requests / _flops(layer),
    "shared reads for a multiply-add": lambda seen, layer: 2 * _read(seen)[0] / _flops(layer),
    "their wavefronts for 32": lambda seen, layer: 64 * _read(seen)[1] / _flops(layer),
    "requested over compulsory": lambda seen, layer: seen.totals.bytes_moved / layer.compulsory_bytes(),
    "FLOP per byte": lambda seen, layer: _flops(layer) / seen.totals.bytes_moved,
}


def measured(seen: Any, layer: Problem, what: str) -> float:
    """One number: of MEASURES, or of an array, "x: times loaded", with what the last lines below have."""
    if what in MEASURES:
        return MEASURES[what](seen, layer)
    name, _, kind = what.partition(": ")
    array = seen.array(name, "store" if name in layer.outputs(layer.main_path) else "load")
    return {
        "times loaded": lambda: array.active_lanes * array.itemsize / layer.nbytes()[name],
        "bytes over its size": lambda: array.bytes_moved / layer.nbytes()[name],
        "sectors a request": lambda: array.sectors / array.requests,
        "requests": lambda: array.requests,
    }[kind]()


def work_table(
    layers: Mapping[str, Problem] | Problem, seen: Mapping[str, Any], *what: str, digits: int = 2
) -> Columns:
    """A row for each x-ray of `seen`, by name. layers: what each computes, or all. what: see `measured`."""
    of = layers if isinstance(layers, Mapping) else dict.fromkeys(seen, layers)
    body = [[name, *(f"{measured(one, of[name], w):,.{digits}f}" for w in what)] for name, one in seen.items()]
    return columns(["", *what], body)
