"""What an image's energy is made of, and what might lower it: ``python benchmarks/energy_tries.py [FOLDER]``.

Networks at batch 1, as CUDA graphs: our layers apart and with fused pairs, kernels one after the other and as they
overlap; stages and pairs that take the least energy, each measured alone, in place of the least time; and a graph of as
many kernels with the same grids that do nothing, below which no kernels of ours can come. What computes something is
held against float64 first. Writes one record into FOLDER (the project's own if none is given), its rows in the section
`energy_tries`, and prints its table last. Exit status 1 if a result was wrong.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

import record_networks  # noqa: E402

from dwlab import energy, inference, machine, networks, peers, records, report  # noqa: E402
from dwlab.inference import selection, timing  # noqa: E402
from dwlab.records import writing  # noqa: E402
from dwlab.target import cuda  # noqa: E402

LAUNCHES = 50  # of one kernel in a graph, whose energy is measured
KERNEL_SECONDS = 0.25  # of its window: some ten steps of the counter
WRONG = 1


@functools.cache
def _nothing() -> Any:
    @cuda.jit
    def nothing():
        pass

    return nothing


def empty_graph(model: inference.Model) -> Any:
    """A CUDA graph of as many kernels as the model has of ours, with their grids and blocks, that do nothing."""
    kernel = _nothing()
    launches = [step.stage.launch(step.problem) for step in model.steps if step.stage is not None]

    def enqueue() -> None:
        for one in launches:
            kernel[one.grid, one.block, inference.current_stream()]()

    return timing.graph_of(enqueue)[0]


def joules_of(rest: energy.Energy) -> Callable[[Callable[[Any], None]], float]:
    """The function that measures J of a launch, as timing.tune takes it. rest: a measurement of the power at rest."""

    def joules(start: Callable[[Any], None]) -> float:
        def enqueue() -> None:
            for _ in range(LAUNCHES):
                start(inference.current_stream())

        graph, _ = timing.graph_of(enqueue)
        return energy.of_graph(graph, per_launch=LAUNCHES, seconds=KERNEL_SECONDS, rest=rest).per_run

    return joules


def ways(network: networks.Network, gpu: str, last: int) -> Iterator[tuple[str, int, Any, str]]:
    """(what it is, kernels of ours, its graph, what is wrong with its results) of each way."""

    def prepared(costs: selection.Times, fused: bool) -> inference.Model:
        pieces = selection.partition(network, gpu, times=costs) if fused else None
        return inference.prepare(network, None, pieces, times=costs)

    def of(model: inference.Model, name: str) -> Iterator[tuple[str, int, Any, str]]:
        wrong = record_networks.wrong_before(model)
        yield f"{name}, one after the other", model.launches[0], model.plain, wrong
        if model.port:
            yield f"{name}, {model.order}", model.launches[0], model.graph, wrong

    times = timing.tune(network, last).times
    yield from of(prepared(times, fused=False), "apart")
    fused = prepared(times, fused=True)
    yield from of(fused, "fused")
    rest = energy.of_graph(fused.plain, seconds=0.5)
    least = timing.tune(network, last, joules_of(rest)).times
    yield from of(prepared(least, fused=True), "by least energy")
    yield report.EMPTY, fused.launches[0], empty_graph(fused), ""


def row_of(network: networks.Network, way: str, kernels: int, graph: Any, seconds: float) -> dict[str, Any]:
    """A row of the section `energy_tries`."""
    us = peers.time_graph(graph, **record_networks.HOW).median_us
    found = energy.of_graph(graph, per_launch=network.batch, seconds=seconds)
    return {
        "network": network.name, "batch": network.batch, "dtype": network.dtype, "layout": network.layout, "way": way,
        "kernels": kernels, "time_us": us, "joules": found.per_run, "watts": found.watts, "window_s": found.seconds,
        "rest_watts": found.rest_watts,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--network", action="append", help="only this, may be repeated (default: the MobileNets)")
    parser.add_argument("--dtype", action="append", choices=record_networks.DTYPES, help="default: both floats")
    parser.add_argument("--last", type=int, default=2, help="try so many of the last stages (default: %(default)s)")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of a graph's window (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=300, help="no new network after so long")
    options = parser.parse_args()
    started, rows, failures = time.monotonic(), [], []
    environment = machine.environment()
    for name in options.network or ("mobilenet_v1", "mobilenet_v2"):
        for dtype in options.dtype or record_networks.DTYPES:
            network = networks.network(name, 1, "NHWC", dtype)
            if time.monotonic() - started > options.seconds:
                failures.append(f"{name}, {dtype}: not reached")
                continue
            for way, kernels, graph, wrong in ways(network, environment["gpu"], options.last):
                if wrong:
                    failures.append(f"{name}, {dtype}, {way}: WRONG: {wrong}")
                else:
                    rows.append(row_of(network, way, kernels, graph, options.window))
                print(f"{time.monotonic() - started:4.0f} s  {name} {dtype} {way}", flush=True)
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if rows:
        file = writing.write(folder, [], environment, {}, sections={"energy_tries": rows}, notes=failures)
        print(f"{file.name}\n\n{report.energy_tries_table([records.read_run(file)])}")
    print("\n".join(failures))
    return WRONG if failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
