"""What tests of measuring and recording share: a GPU that keeps its own time, a bench, records that are made up."""

import contextlib
import dataclasses
import importlib
import pathlib
import sys
import types

import numpy as np
import pytest

from dwlab import records, target
from dwlab.gpu.machine import Ceilings, known
from dwlab.kernels import registry
from dwlab.measure import baselines
from dwlab.measure.baselines import Baseline
from dwlab.measure.counters import Counters, CountersError
from dwlab.measure.timing import GraphUnavailable, Timing
from dwlab.problems import PAPER
from dwlab.records import Measurement, writing
from dwlab.study import WrongResult

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"


def script(name):
    """A script of benchmarks/ as a module, which processes that are started find by its name, too."""
    if str(BENCHMARKS) not in sys.path:
        sys.path.insert(0, str(BENCHMARKS))
    return importlib.import_module(name)


# ------------------------------------------------------------------------------------------------------------- records

ENVIRONMENT = {
    "gpu": "NVIDIA H200", "compute_capability": [9, 0], "driver": "580.159", "cuda": "13.0", "numba_cuda": "0.30.4",
    "torch": "2.11.0", "git_revision": "abc", "date": "2026-11-21T10:11:12+00:00", "clocks": {"sm_mhz": 1980.0},
}  # fmt: skip
CEILINGS = {"copy_gbps": 4130.0, "l2_gbps": 6500.0, "fma_tflops": 60.0, "launch_us": 19.0}


def written(one: records.Measurement) -> records.Measurement:
    """A row as it is read back: numbers to eight digits."""
    numbers = {name: value for name, value in vars(one).items() if isinstance(value, float)}
    return dataclasses.replace(one, **{name: float(f"{value:.8g}") for name, value in numbers.items()})


def measured(stage="naive", time_us=8884.0, problem=PAPER, naive_us=8884.0, path="forward", **more):
    """A row of depthwise1d as a record has it."""
    size, flops = problem.compulsory_bytes(path), problem.flops_of(path)
    gbps = size / time_us / 1e3
    made = {
        "gpu": "NVIDIA H200", "date": ENVIRONMENT["date"], "op": "depthwise1d", "path": path, "stage": stage,
        "problem": records.describe_problem(problem), "dtype": problem.dtype, "time_us": time_us,
        "p10_us": 0.99 * time_us, "p90_us": 1.02 * time_us, "rounds": 15, "launches": 3, "method": "events",
        "cold": "cold: 805.3 MB, 13.4 times the L2", "compulsory_bytes": size, "effective_gbps": gbps,
        "copy_gbps": 4130.0, "fraction_of_copy": gbps / 4130, "flops": flops, "intensity": flops / size,
        "speedup_vs_naive": naive_us / time_us, "order": 1,
    }  # fmt: skip
    return Measurement(**made | more)


def recorded(folder, rows=(), day="", ceilings=CEILINGS, gpu="NVIDIA H200", sections=None, **more):
    """A run as read back from a new file of a folder. day: of November 2026, and its hour if any: "20", "20T09"."""
    folder.mkdir(exist_ok=True)
    date = f"2026-11-{day}{'' if 'T' in day else 'T10'}:00:00+00:00" if day else ENVIRONMENT["date"]
    environment = ENVIRONMENT | {"date": date, "gpu": gpu}
    return records.read_run(writing.write(folder, rows, environment, ceilings, sections=sections, **more))


def on(run, gpu):
    """The run as if made on another GPU."""
    return dataclasses.replace(run, environment=dict(run.environment) | {"gpu": gpu})


def cells(table):
    """The rows of a Markdown table without its head, as lists of cells."""
    lines = [line for line in str(table).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[2:]]


# ----------------------------------------------------------------------------------------------------------------- GPU


class FakeGpu:
    """A host that needs launch_us to enqueue a kernel, and a device that runs what is enqueued in order.

    A kernel starts once it is enqueued and the one before it has ended. An event has the time at which the device
    reaches it. A replayed graph costs the host one replay_us for all its kernels. A kernel's time is ``kernel_us``, or
    what that function says of its how-manieth run it is.
    """

    def __init__(self, kernel_us, launch_us=20.0, replay_us=8.0, graphs=True, gap_us=0.0):
        self.kernel_us = kernel_us if callable(kernel_us) else lambda _: kernel_us
        self.launch_us, self.replay_us, self.graphs, self.gap_us = launch_us, replay_us, graphs, gap_us
        self.host = self.device = 0.0
        self.runs = 0
        self.capturing = None
        self.launched = []

    def launch(self, fn):
        fn(self)

    def enqueue(self, name="kernel"):
        """What a launch function calls: one kernel."""
        if self.capturing is not None:
            self.capturing.append(name)
            return
        self.host += self.launch_us
        self._run(name)

    def _run(self, name):
        self.launched.append(name)
        self.device = max(self.device, self.host) + self.kernel_us(self.runs) + self.gap_us
        self.runs += 1

    def elapsed_us(self, before, body):
        before()
        start = max(self.device, self.host)
        body()
        stop = max(self.device, self.host)
        self.host = stop
        return stop - start

    def graph(self, body):
        if not self.graphs:
            raise GraphUnavailable("this fake has none")
        self.capturing = []
        body()
        nodes, self.capturing = self.capturing, None

        def replay():
            self.host += self.replay_us
            for name in nodes:
                self._run(name)

        return replay

    def synchronize(self):
        self.host = self.device = max(self.host, self.device)


class Clock(FakeGpu):
    """Really launches what it is given, and takes a known time for it. argument: of each launch, a stream."""

    argument = 0

    def launch(self, fn):
        fn(self.argument)
        self.enqueue()


MACHINE = dataclasses.replace(
    known()["NVIDIA H200"], l2_bytes=60 * 1024**2,
    ceilings=Ceilings(4000.0, 6500.0, 60.0, 19.0, True, "measured; a fake"),
)  # fmt: skip
NAIVE = registry.stage("depthwise1d/forward/naive")
FORWARD = registry.stages("depthwise1d", "forward")
SLOWER = {"naive": 8000.0, "coalesced": 4000.0, "shared": 800.0, "warp_tiled": 400.0}
# The other stages, however many there are, are faster than those and none of them than a copy.
TIMES = {one.name: SLOWER.get(one.name, 380.0 - 10 * number) for number, one in enumerate(FORWARD)}


def timed(us, cold="cold: 805.3 MB, 12.8 times the L2"):
    """A timing of so many µs."""
    return Timing(us, 0.99 * us, 1.01 * us, 15, 10, "events", cold)


def counted(stage, shape):
    """What the hardware counts where the formula is right."""
    said = stage.traffic(shape).to_dict()
    sums = {key: said[key] for key in ("load_requests", "load_sectors", "store_requests", "store_sectors")}
    return Counters(
        stage.op, stage.path, stage.name, records.describe_problem(shape), said, **sums,
        atomic_requests=said["atomic_requests"], atomic_sectors=said["atomic_sectors"], l2_write_sectors=11,
        l2_read_sectors=12, dram_read_bytes=400_000_000, dram_write_bytes=390_000_000, shared_bank_conflicts=7,
    )  # fmt: skip


class FakeBench:
    """A study's device with known times; remembers what it was asked to do."""

    machine = MACHINE

    def __init__(self, times=TIMES, wrong=(), peer_us=2800.0, ncu=""):
        self.times, self.wrong, self.peer_us, self.ncu, self.log = times, wrong, peer_us, ncu, []

    @contextlib.contextmanager
    def prepare(self, problem, path):
        self.log.append(("prepare", str(problem), path))
        yield self
        self.log.append(("close", str(problem), path))

    def time(self, stage):
        self.log.append(("time", stage.name))
        if stage.name in self.wrong:
            raise WrongResult(f"{stage.id}: y[0, 0, 0] is 1, not 2")
        return timed(self.times[stage.name])

    def baselines(self):
        self.log.append(("peers",))
        ways = [
            Baseline("PyTorch 2.11.0 FFT", "FFT", timed(4000.0)),
            Baseline("PyTorch 2.11.0 bmm", "bmm", failure="out of"),
        ]
        return ways + [Baseline("PyTorch 2.11.0 conv1d", "conv1d", timed(self.peer_us))]

    def environment(self):
        return {"gpu": MACHINE.name, "compute_capability": [9, 0], "date": ENVIRONMENT["date"]}

    def counters(self, todo, shapes):
        self.log.append(("counters",))
        if self.ncu:
            raise CountersError(self.ncu)
        return [counted(stage, shape) for shape in shapes for stage in todo]


def torch_on_host(monkeypatch):
    """PyTorch, or the test is skipped: tensors of the GPU are on the host, where kernels are interpreted."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the script needs it")
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self.clone())
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(target.cuda, "as_cuda_array", lambda tensor: tensor.numpy(), raising=False)
    monkeypatch.setattr(baselines, "available", lambda: True)

    def tensor_of(problem, name, array):
        return torch.from_numpy(np.asarray(array.storage)).to(getattr(torch, problem.dtype))

    monkeypatch.setattr(baselines, "tensor_of", tensor_of)
    return torch


class Meddling:
    """A kernel (None: one that writes nothing), and after ``honest`` launches something else with its output."""

    def __init__(self, kernel, honest=0, meddle=lambda y: None):
        self.kernel, self.honest, self.meddle, self.launches = kernel, honest, meddle, 0

    def __getitem__(self, how):
        def launch(*args):
            self.launches += 1
            if self.kernel is not None:
                self.kernel[how](*args)
            if self.launches > self.honest:
                self.meddle([one for one in args if hasattr(one, "__setitem__")][-1])

        return launch


def accepts(stage, dtype="float32"):
    """A judge that passes every stage."""
    return types.SimpleNamespace(passed=True)
