"""Whole networks by our kernels against PyTorch's best: ``python benchmarks/record_networks.py [FOLDER]``.

For each, the stages that should be fastest for its layers and pairs are timed here, and the fastest are put into one
CUDA graph: layer by layer (apart), and with fused modules where times say so (fused). At batch 1 each step, at any
batch the whole output is held against float64 before a time is taken, and on a fresh image after it; int8 against
integers, and as a whole against the float network. PyTorch's are what dwlab.inference.timing tries, of int8 in float16.
Both with random weights.

Writes one record into FOLDER (the project's own if none is given): the section `networks`, with --energy J an image of
ours and of PyTorch's best, and in `network_kernels` what each kernel took. Networks compile in several processes while
one at a time uses the GPU.

examples: record_networks.py --network mobilenet_v1 --network mobilenet_v2 --batch 1 --energy --seconds 240
          record_networks.py --missing        what no record has yet
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from recording import CONTEXT, Parser, ahead, beside, record, recorded, said, taken, told
from tables import networks as tables

from dwlab import inference, planner, records, report
from dwlab.inference import comparison, images, int8, selection, timing
from dwlab.inference.weights import random_weights
from dwlab.measure import baselines, energy
from dwlab.measure.timing import Timing
from dwlab.problems import networks
from dwlab.problems.layers import LAYOUTS
from dwlab.problems.networks import Network
from dwlab.text.commandline import whole

NETWORKS = report.VALIDATED
HOW = {"rounds": 5, "min_seconds": 0.05}
MOST_PROCESSES = 8  # at once: torch.compile takes some GB of memory in each
COMPILING = 0.66  # of the time, at most, for torch.compile
WINDOW = 2.0  # seconds of energy's window


@dataclass(frozen=True)
class Task:
    name: str
    dtype: str
    layout: str
    batch: int

    def __str__(self) -> str:
        return self.network().summary()

    def network(self) -> Network:
        return networks.network(self.name, self.batch, self.layout, self.dtype)

    def calibration(self) -> Mapping[str, Any] | None:
        """The ranges of int8's maps, found once for all batches; None for other types."""
        return _calibrated(replace(self, batch=1)) if self.dtype == "int8" else None

    def ready(self) -> Network:
        """The network as it runs: in int8 with its zero points and factors."""
        network = self.network()
        return network if network.dtype != "int8" else int8.quantise(network, None, self.calibration()).network


@functools.cache
def _calibrated(task: Task) -> Mapping[str, Any]:
    return int8.calibrate(task.network())


def plan(options: Any, runs: Sequence[records.Record] = ()) -> list[Task]:
    """The tasks in order, without those of which these runs have times of ours and of a peer. Raises NetworkError."""
    rows = [row for run in runs for row in run.sections.get("networks", ()) if row.get("speedup_vs_peer")]
    known = {Task(row["network"], row["dtype"], row["layout"], row["batch"]) for row in rows}
    inside = itertools.product(options.batch, options.layout, options.network, options.dtype)
    found = [Task(networks.network(name).name, dtype, layout, batch) for batch, layout, name, dtype in inside]
    return [one for one in found if one not in known]


def measure(task: Task, options: Mapping[str, Any], compiled: Any = False) -> dict[str, list[Any]]:
    """Rows of a record's parts, and notes. compiled: as timing.measure takes it."""
    network = task.network()
    row: dict[str, Any] = {
        "network": task.name, "batch": task.batch, "dtype": task.dtype, "layout": task.layout,
        "resolution": network.resolution,
    }  # fmt: skip
    made: dict[str, list[Any]] = {"networks": [row], "network_kernels": [], "peers": [], "notes": []}
    try:
        ready = task.ready()
        tuned = timing.tune(ready, options["last"])
        made["network_kernels"] += kernels(ready, tuned.times)
        if tuned.failures:
            (what, why), *others = tuned.failures.items()
            more = f", and {len(others)} more" if others else ""
            made["notes"].append(f"{task.name}, batch {task.batch}, {task.dtype}: not timed: {what}: {why}{more}.")
        how = {"times": tuned.times, "calibration": task.calibration()}
        models = {"apart": inference.prepare(ready, **how)}
        pieces = selection.decide(ready, options["gpu"], times=tuned.times).pieces
        if any(len(piece) > 1 for piece in pieces):  # some pair pays
            models["fused"] = inference.prepare(ready, None, pieces, **how)
        check(models)
        timed = {what: baselines.time_graph(model.graph, **HOW) for what, model in models.items()}
        best = min(timed, key=lambda what: timed[what].median_us)
        compared = timing.measure(models[best], compiled=compiled, **HOW)
        timed[best] = compared.ours
        plain = {what: baselines.time_graph(model.plain, **HOW) for what, model in models.items() if model.port}
        check(models, 1, ", on a fresh image")
        row |= times(models, timed, compared.baselines, plain)
        row |= {"peer_dtype": "float16"} if task.dtype == "int8" else {}
        shape = {"network": task.name, "N": task.batch, "layout": task.layout, "resolution": network.resolution}
        shown = {"path": "forward", "dtype": task.dtype, "shape": shape}
        made["peers"] += [one.to_dict() | shown for one in compared.baselines]
        row |= energies(models[best], compared.best, options["energy"]) if options["energy"] else {}
    except Wrong as error:
        row["failure"] = f"WRONG: {error}"
    except Exception as error:
        row["failure"] = told(error)
    return made


class Wrong(Exception):
    """A model whose output is off: it has no time."""


def kernels(network: Network, times: selection.Times) -> list[dict[str, Any]]:
    """Rows of the section `network_kernels`: the fastest stage of each layer and pair, alike ones once."""
    made = {}
    for names, problem in network.kernels.items():
        if times.get(problem) and problem not in made:
            stage = min(times[problem], key=times[problem].__getitem__)
            made[problem] = {
                "network": network.name, "batch": network.batch, "dtype": network.dtype, "layout": network.layout,
                "layers": " + ".join(names), "stage": stage, "time_us": times[problem][stage],
            }  # fmt: skip
    return list(made.values())


def check(models: Mapping[str, inference.Model], seed: int = 0, when: str = "") -> None:
    """Raises Wrong if an output is off, at batch 1 and seed 0 if one of a step is."""
    for what, model in models.items():
        image = images.random_image(model.network, seed=seed)
        if model.network.batch == 1 and seed == 0:
            found = comparison.compare(model, image)
            ok, wrong = found.ok, found.summary()
        else:
            error, theirs, _ = comparison.whole(model, image)
            ok = comparison.near(error, theirs, model.quantised is not None)
            wrong = f"the output is off by {error:.1e}, PyTorch's by {theirs:.1e}"
        if not ok:
            raise Wrong(f"{what}{when}: {wrong}")


def times(
    models: Mapping[str, inference.Model], timed: Mapping[str, Timing], ran: Sequence[baselines.Baseline],
    plain: Mapping[str, Timing],
) -> dict[str, Any]:  # fmt: skip
    """A row's times, and what our models are made of. plain: of those whose kernels overlap, one after the other."""
    *_, last = models.values()
    pairs = sum(step.stage is not None and len(step.layers) > 1 for step in last.steps)
    made = {"pairs": pairs, "operations": last.launches[1], "cold": timed["apart"].cold}
    for what, model in models.items():
        made |= {
            f"{what}_us": timed[what].median_us, f"{what}_p10_us": timed[what].p10_us,
            f"{what}_p90_us": timed[what].p90_us, "kernels" if what == "apart" else "fused_kernels": model.launches[0],
            f"{what}_launches": model.order, f"{what}_plain_us": plain.get(what, timed[what]).median_us,
        }  # fmt: skip
    return made | beside(ran, min(one.median_us for one in timed.values()))


def energies(model: inference.Model, peer: baselines.Baseline | None, seconds: float) -> dict[str, Any]:
    made: dict[str, Any] = {}

    def add(whose: str, graph: Any) -> None:
        found = energy.of_graph(graph, per_launch=model.network.batch, seconds=seconds)
        values = {"joules": found.per_run, "watts": found.watts, "window_s": found.seconds}
        made.update({whose + name: value for name, value in (values | {"rest_watts": found.rest_watts}).items()})

    try:
        add("", model.graph)
        if peer is not None:
            with timing.baseline_graph(model, peer.name) as (graph, _):
                add("peer_", graph)
    except Exception as error:  # the times stay
        made["energy_failure"] = said(error)
    return made


def work(tasks: Any, results: Any, gpu: Any, start: Any, kernels: Any, options: Mapping[str, Any]) -> None:
    """A process: compiles our kernels, one process at a time (the lock `kernels`), beside torch.compile's."""
    calls = {}

    def compile_ours(network: Network) -> None:
        with kernels:
            timing.compile_candidates(network, options["last"], options["processes"])
            planner.plan(network, options["gpu"])  # what `partition` asks: kept from here on

    def compile_all(task: Task) -> Task:
        with ThreadPoolExecutor(1) as pool:
            ours = pool.submit(compile_ours, task.ready())
            if options["compiled"]:
                calls[task] = timing.compile_baselines(task.network(), random_weights(task.network()))
            ours.result()
        torch.cuda.empty_cache()
        return task

    import torch

    torch.cuda.init()
    until = options["until"]
    for task in ahead(tasks, compile_all, gpu, start, until) if options["compiled"] else map(compile_all, taken(tasks)):
        with gpu:
            answer = measure(task, options, calls.pop(task, False))
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        results.put(answer)


def arguments(given: Sequence[str] | None = None) -> Any:
    parser = Parser(__doc__)
    parser.each("--network", NETWORKS, f"only this ({', '.join(NETWORKS)})")
    parser.each("--dtype", ("float32", "float16"), "storage type (default: the floats)", choices=inference.DTYPES)
    parser.each("--batch", (1, 32), "images (default: 1 and 32)", type=whole(1))
    parser.each("--layout", ("NHWC",), "of our maps (default: NHWC)", choices=LAYOUTS)
    parser.add_argument("--last", type=whole(1), default=2, help="stages a layer or pair (default: %(default)s)")
    parser.add_argument("--compiled", action="store_true", help="torch.compile too: a minute and more a network")
    parser.add_argument("--energy", action="store_true", help="J an image too, ours and PyTorch's best")
    parser.tasks(500, min(16, (os.cpu_count() or 3) - 2))
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)

    def how(machine: Any, left: float, count: int) -> Sequence[Any]:
        named = {
            "last": options.last, "compiled": options.compiled, "processes": options.processes,
            "energy": WINDOW if options.energy else None, "gpu": "present",
            "until": time.monotonic() + COMPILING * left,
        }  # fmt: skip
        return CONTEXT.Barrier(count), CONTEXT.Lock(), named

    compiled = "torch.compile was tried too" if options.compiled else "torch.compile was not tried"
    return record(
        "record_networks", options, lambda: plan(options, recorded(options)), work, "networks", how,
        lambda run: tables.networks([run]),
        [f"networks: the last {options.last} stages that take a layer or pair were timed; {compiled}."],
        most=MOST_PROCESSES, threads=2, quick=True, daemon=False,  # they have processes of their own
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
