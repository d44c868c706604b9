"""What an image's energy is made of, and what might lower it: ``python benchmarks/energy_tries.py [FOLDER]``.

Networks at batch 1, as CUDA graphs: our layers apart and with fused pairs, kernels one after the other and as they
overlap; stages and pairs that take the least energy, each measured alone, in place of the least time; a graph of as
many kernels with the same grids that do nothing, which is what launching costs; and all of PyTorch's ways, on the same
GPU. Ours are held against float64 first, PyTorch's against ours. Writes one record into FOLDER (the project's own if
none is given), its rows in the section `energy_tries`, and prints its table last. Exit status 1 if a result was wrong
or something did not run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "benchmarks"))

import record_networks  # noqa: E402

from dwlab import dependent_launch, energy, inference, machine, networks, peers, records, report  # noqa: E402
from dwlab.inference import selection, timing  # noqa: E402
from dwlab.records import writing  # noqa: E402
from dwlab.target import cuda  # noqa: E402

MOBILE = ("mobilenet_v1", "mobilenet_v2")


@functools.cache
def _nothing() -> Any:
    @cuda.jit
    def nothing():
        pass

    return nothing


def empty_graph(model: inference.Model) -> Any:
    """A CUDA graph of as many kernels as the model has of ours, with their grids and blocks, that do nothing."""
    kernel = _nothing()
    launches = [step.launch for step in model.steps if step.ours]

    def enqueue() -> None:
        for one in launches:
            kernel[one.grid, one.block, inference.current_stream()]()

    return timing.graph_of(enqueue)[0]


Way = tuple[str, int, Callable[[], contextlib.AbstractContextManager[Any]]]
"""What it is, kernels of ours, and what gives its graph as long as it is used."""


def ours(network: networks.Network, gpu: str, last: int, rest: Callable[[], energy.Energy]) -> Iterator[Way]:
    """Our ways. rest: a measurement of the GPU at rest. Raises ValueError for a result that is wrong."""

    def prepared(costs: selection.Times, fused: bool) -> inference.Model:
        pieces = selection.partition(network, gpu, times=costs) if fused else None
        model = inference.prepare(network, None, pieces, times=costs)
        wrong = record_networks.wrong_before(model)
        if wrong:
            raise ValueError(f"WRONG: {wrong}")
        return model

    def of(model: inference.Model, name: str) -> Iterator[Way]:
        for graph, order in {model.plain: dependent_launch.WORDS[""], model.graph: model.order}.items():
            yield f"{name}, {order}", model.launches[0], functools.partial(contextlib.nullcontext, graph)

    times = timing.tune(network, last).times
    yield from of(prepared(times, fused=False), "apart")
    fused = prepared(times, fused=True)
    yield from of(fused, "fused")
    least = timing.tune(network, last, functools.partial(timing.joules, rest=rest())).times
    yield from of(prepared(least, fused=True), "by least energy")
    empty = empty_graph(fused)
    yield report.EMPTY, fused.launches[0], functools.partial(contextlib.nullcontext, empty)


def pytorchs(network: networks.Network, compiled: bool) -> Iterator[Way]:
    """PyTorch's ways whose results are ours."""
    model = inference.prepare(network)
    for one in timing.measure(model, compiled, rounds=3, min_seconds=0.01).peers:
        if one.time is not None:
            yield one.name, 0, functools.partial(_graph_alone, model, one.name)


@contextlib.contextmanager
def _graph_alone(model: inference.Model, name: str) -> Iterator[Any]:
    with timing.peer_graph(model, name) as (graph, _):
        yield graph


def compile_all(network: networks.Network, last: int, compiled: bool) -> None:
    """What is measured later, compiled before: ours in processes, and PyTorch's beside them."""
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(timing.compile_peers, network) if compiled else None
        timing.compile_candidates(network, last)
        if theirs is not None:
            theirs.result()


def row_of(
    network: networks.Network, way: str, kernels: int, graph: Any, seconds: float, rest: energy.Energy | None
) -> tuple[dict[str, Any], energy.Energy]:
    """(a row of the section `energy_tries`, what was measured)."""
    us = peers.time_graph(graph, **record_networks.HOW).median_us
    found = energy.of_graph(graph, per_launch=network.batch, seconds=seconds, rest=rest)
    row = {
        "network": network.name, "batch": network.batch, "dtype": network.dtype, "layout": network.layout, "way": way,
        "kernels": kernels, "time_us": us, "joules": found.per_run, "watts": found.watts, "window_s": found.seconds,
        "rest_watts": found.rest_watts,
    }  # fmt: skip
    return row, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default=str(ROOT / "dwlab" / "records"), help="where the record goes")
    parser.add_argument("--network", action="append", help="only this, may be repeated (default: the MobileNets)")
    parser.add_argument("--dtype", action="append", choices=record_networks.DTYPES, help="default: both floats")
    parser.add_argument("--last", type=int, default=2, help="try so many of the last stages (default: %(default)s)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile too: a minute and more a network")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of a graph's window (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=300, help="no new way after so long")
    options = parser.parse_args()
    started, rows, notes, failed = time.monotonic(), [], [], False
    environment = machine.environment()
    for name, dtype in itertools.product(options.network or MOBILE, options.dtype or record_networks.DTYPES):
        network, rest = networks.network(name, 1, "NHWC", dtype), []
        every = itertools.chain(
            ours(network, environment["gpu"], options.last, lambda rest=rest: rest[0]),
            pytorchs(network, options.compiled),
        )
        try:
            compile_all(network, options.last, options.compiled)
            for way, kernels, graph_of in every:
                if time.monotonic() - started > options.seconds:
                    notes.append(f"{name}, {dtype}: {way} and what follows were not reached.")
                    break
                with graph_of() as graph:
                    row, found = row_of(network, way, kernels, graph, options.window, rest[0] if rest else None)
                rest.append(found)
                rows.append(row)
                now = time.monotonic() - started
                print(f"{now:4.0f} s  {name} {dtype} {way}: {1e3 * found.per_run:.2f} mJ", flush=True)
        except Exception as error:  # what was measured before it is written
            notes.append(f"{name}, {dtype}: {type(error).__name__}: {error}")
            failed = True
        except KeyboardInterrupt:
            notes.append(f"{name}, {dtype}: the run was interrupted.")
            break
    folder = Path(options.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if rows:
        file = writing.write(folder, [], environment, {}, sections={"energy_tries": rows}, notes=notes)
        print(f"{file.name}\n\n{report.energy_tries_table([records.read_run(file)])}")
    print("\n".join(notes))
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
