"""Whole networks against PyTorch: what is planned, measured, recorded and shown. No GPU needed."""

import contextlib
import dataclasses
import itertools
import math
import queue
import threading
import types

import numpy as np
import pytest
from fakes import recorded as written
from fakes import script
from tables import networks as tables

from dwlab import inference, report
from dwlab.gpu import target
from dwlab.inference import timing
from dwlab.inference.timing import Measured, Tuned
from dwlab.inference.weights import random_weights
from dwlab.measure import baselines, energy
from dwlab.measure.baselines import Baseline
from dwlab.measure.energy import Energy
from dwlab.measure.timing import Timing
from dwlab.problems import networks
from dwlab.problems.layers import Fused

record_networks = script("record_networks")
on_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")


def timing_of(us):
    return Timing(us, 0.9 * us, 1.1 * us, 5, 10, "graph", "warm")


def test_mobilenets_at_batch_1_come_first_and_what_is_recorded_is_left_out(tmp_path):
    tasks = record_networks.plan(record_networks.arguments([]))
    assert [one.name for one in tasks[:4]] == 2 * ["mobilenet_v1"] + 2 * ["mobilenet_v2"]
    assert [one.batch for one in tasks] == [1] * 8 + [32] * 8 and len(set(tasks)) == 16
    options = record_networks.arguments(["--network", "xception", "--network", "mobilenet_v1", "--dtype", "float16"])
    asked = [(batch, name) for batch in (1, 32) for name in ("xception", "mobilenet_v1")]
    assert [(one.batch, one.name) for one in record_networks.plan(options)] == asked
    run = recorded(tmp_path, [row("xception", dtype="float16", batch=1), row(dtype="float16", speedup=None)])
    assert [(one.batch, one.name) for one in record_networks.plan(options, [run])] == asked[1:]


def test_an_unknown_network_gets_the_nearest_and_the_list_needs_no_gpu(capsys):
    assert record_networks.main(["--network", "mobilenet_v9"]) == 2
    assert "mobilenet_v" in capsys.readouterr().err
    assert record_networks.main(["--list", "--network", "xception", "--dtype", "float32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[1] for line in lines[:-1]] == [" batch 1", " batch 32"] and lines[-1] == "2 networks"


@pytest.fixture
def tiny_network(monkeypatch):
    """A network of five layers on the interpreter; times, peers and energies are given, all else is real."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: networks run with it")
    from small_networks import tiny

    network = dataclasses.replace(tiny(), name="mobilenet_v2")
    monkeypatch.setattr(record_networks.Task, "network", lambda self: small(network, self.batch))
    monkeypatch.setattr(timing, "tune", lambda made, last: Tuned(times_of(made, pair=1.0), {}))
    graphs = iter(itertools.cycle([50.0, 40.0]))
    monkeypatch.setattr(baselines, "time_graph", lambda graph, **how: timing_of(next(graphs)))
    ran = Baseline("PyTorch eager", "eager", timing_of(120.0)), Baseline("PyTorch other", "other", failure="no memory")
    monkeypatch.setattr(timing, "measure", lambda model, compiled, **how: Measured(timing_of(40.0), ran))
    monkeypatch.setattr(energy, "of_graph", lambda graph, per_launch, seconds: energy_of(graph, per_launch, seconds))
    monkeypatch.setattr(timing, "baseline_graph", lambda model, name: contextlib.nullcontext((name, None)))
    monkeypatch.setattr(timing, "compile_candidates", lambda *given: 0)
    for name in ("init", "synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    return types.SimpleNamespace(network=network, ran=ran, torch=torch)


def small(network, batch):
    layers = [dataclasses.replace(one, problem=dataclasses.replace(one.problem, N=batch)) for one in network.layers]
    return dataclasses.replace(network, layers=tuple(layers), batch=batch)


def times_of(network, pair):
    """Each layer by itself takes 2 µs."""
    return {problem: {stage.id: pair if hasattr(problem, "first") else 2.0}
            for stage, problem in timing.candidates(network, 1)}  # fmt: skip


def energy_of(graph, per_launch, seconds):
    joules = 600.0 if graph is None else 1800.0  # simulated models have no graph
    return Energy("a GPU", joules, seconds, 1000 * per_launch, 100.0, 1.0)


TASKS = [record_networks.Task("mobilenet_v2", "float32", "NHWC", batch) for batch in (1, 2)]
OPTIONS = {"last": 1, "compiled": False, "energy": 2.0, "gpu": "h200", "processes": 1, "until": math.inf}


def measured(batch, **options):
    """The row of a network, and all that was made of it."""
    made = record_networks.measure(TASKS[batch - 1], OPTIONS | options)
    (row,) = made["networks"]
    return row, made


@on_interpreter
def test_a_network_is_checked_timed_and_recorded(tiny_network, tmp_path):
    last, made = measured(batch := 2)
    kernels, ran = made["network_kernels"], made["peers"]
    assert (last["apart_us"], last["fused_us"], last["peer_time_us"], last["speedup_vs_peer"]) == (50, 40, 120, 3)
    assert last["kernels"] - last["pairs"] == last["fused_kernels"] and last["pairs"] >= 1
    assert last["joules"] == pytest.approx(0.6 / batch) and last["peer_joules"] == pytest.approx(1.8 / batch)
    assert (last["window_s"], last["watts"], last["rest_watts"]) == (2, 300, 100)
    assert {one["way"] for one in ran} == {"eager", "other"} and ran[0]["shape"]["N"] == batch
    names = [one["layers"] for one in kernels]
    assert len(names) == len(set(names)) and any(" + " in name for name in names)
    run = written(tmp_path, peers=ran, sections={"networks": [last], "network_kernels": kernels})
    assert "| mobilenet_v2 | float32 |" in tables.networks([run])


@on_interpreter
def test_where_no_pair_pays_there_is_no_fused_model(tiny_network, monkeypatch):
    tuned = Tuned(times_of(tiny_network.network, pair=9.0), {"a on b": "it spills", "c on d": "too"})
    monkeypatch.setattr(timing, "tune", lambda network, last: tuned)
    last, found = measured(1, energy=None)
    assert found["notes"] == ["mobilenet_v2, batch 1, float32: not timed: a on b: it spills, and 1 more."]
    assert last["pairs"] == 0 and "fused_us" not in last and "joules" not in last
    assert last["apart_us"] == last["peer_time_us"] / last["speedup_vs_peer"]


@on_interpreter
def test_a_wrong_network_has_no_time(tiny_network, monkeypatch):
    real = inference.prepare

    def spoiled(network, weights=None, given=None, **how):
        model = real(network, weights, given, **how)
        weights = random_weights(network)
        weights["1.project"]["b"][3] += 0.5
        return model if given is None else dataclasses.replace(real(network, weights, given, **how),
                                                               weights=model.weights)  # fmt: skip

    monkeypatch.setattr(inference, "prepare", spoiled)
    found, made = measured(1)
    assert found["failure"].startswith("WRONG: fused: ") and "apart_us" not in found and made["peers"] == []


@on_interpreter
def test_an_output_that_is_wrong_only_afterwards_has_no_time_either(tiny_network, monkeypatch):
    real = inference.run
    runs = []

    def run(model, image):
        y = real(model, image)
        runs.append(image)
        return y + 1.0 if not np.array_equal(image, runs[0]) else y

    monkeypatch.setattr(inference, "run", run)
    found, _ = measured(2)
    assert found["failure"].startswith("WRONG: apart, on a fresh image: the output is off by")


@on_interpreter
def test_energy_that_cannot_be_measured_keeps_the_times(tiny_network, monkeypatch):
    def fails(graph, **how):
        raise energy.EnergyError("NVML does not start")

    monkeypatch.setattr(energy, "of_graph", fails)
    last, _ = measured(1)
    assert last["speedup_vs_peer"] == 3 and last["energy_failure"] == "EnergyError: NVML does not start"


@on_interpreter
def test_a_failure_is_a_row_and_no_end(tiny_network, monkeypatch, capsys):
    def fails(network, last):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(timing, "tune", fails)
    assert measured(1)[0] == {
        "network": "mobilenet_v2", "batch": 1, "dtype": "float32", "layout": "NHWC",
        "resolution": tiny_network.network.resolution, "failure": "RuntimeError: out of memory",
    }  # fmt: skip
    assert "out of" in capsys.readouterr().err


@on_interpreter
@pytest.mark.parametrize("compiled", [False, True])
def test_a_process_measures_what_it_took_after_torch_compile(tiny_network, monkeypatch, compiled):
    calls, todo, results, measure = [], queue.SimpleQueue(), queue.SimpleQueue(), timing.measure
    monkeypatch.setattr("recording.search_alone", calls.append)
    monkeypatch.setattr(timing, "compile_baselines", lambda network, weights: {"way": network.batch})
    monkeypatch.setattr(timing, "measure", lambda one, **how: calls.append(how["compiled"]) or measure(one, **how))
    for task in TASKS:
        todo.put(task)
    tasks = types.SimpleNamespace(get=lambda timeout: todo.get(block=False))
    given = threading.Barrier(1), threading.Lock(), OPTIONS | {"compiled": compiled}
    record_networks.work(tasks, results, gpu := threading.RLock(), *given)
    answers = [results.get() for _ in range(results.qsize())]
    assert [(row["batch"], "joules" in row) for one in answers for row in one["networks"]] == [(1, True), (2, True)]
    assert all(len(one["peers"]) == 2 and one["network_kernels"] for one in answers)
    assert calls == ([gpu, {"way": 1}, {"way": 2}] if compiled else [False, False])


def row(network="mobilenet_v1", batch=32, dtype="float32", speedup=2.0, **more):
    made = {
        "network": network, "batch": batch, "dtype": dtype, "layout": "NHWC", "resolution": 224, "apart_us": 60.0,
        "apart_p10_us": 59.0, "apart_p90_us": 61.0, "kernels": 26, "fused_us": 50.0, "fused_p10_us": 49.0,
        "fused_p90_us": 51.0, "fused_kernels": 20, "pairs": 6, "operations": 3, "cold": "warm", "checked": "all",
        "peer": "PyTorch 2.11 eager", "peer_time_us": 50.0 * (speedup or 1), "speedup_vs_peer": speedup,
    }  # fmt: skip
    return made | more


def recorded(folder, rows, day="", **more):
    return written(folder, day=day, sections={"networks": rows}, **more)


def test_a_run_whose_energy_failed_has_none_of_the_one_before(tmp_path):
    old = recorded(tmp_path / "old", [row(joules=0.002)])
    new = recorded(tmp_path / "new", [row(energy_failure="EnergyError: none")], day="22")
    assert "joules" in report.networks([old])[0][0] and "joules" not in report.networks([old, new])[0][0]


def test_beside_a_network_stands_the_fastest_way_of_the_same_version(tmp_path):
    new = recorded(tmp_path, [row()])
    faster = [row(speedup=1.5, peer="PyTorch 2.11 torch.compile"), row(speedup=1.0, peer="PyTorch 2.10 eager"),
              row(speedup=1.0, batch=1), row(speedup=1.2, dtype="int8", peer_dtype="float16")]  # fmt: skip
    ran = [recorded(tmp_path, [one], f"19T0{i}") for i, one in enumerate(faster)]
    newest = next(one for one in report.networks([*ran, new])[0] if one["batch"] == 32 and one["dtype"] == "float32")
    assert (newest["peer"], newest["peer_time_us"]) == ("PyTorch 2.11 torch.compile", 75)  # of its own version alone
    assert newest["speedup_vs_peer"] == pytest.approx(1.5)


def test_pairs_that_may_not_share_a_kernel_are_no_rows():
    network = networks.network("mobilenet_v2", batch=1, layout="NHWC", dtype="float32")  # some layers add a map
    neighbours = enumerate(itertools.pairwise(network.layers))
    pairs = [Fused(a.problem, b.problem) for i, (a, b) in neighbours if not network.joint(i)]
    times = {"fused/dwpw/slide": 2.0, "fused/dwpw/naive": 1.0}
    rows = record_networks.kernels(network, dict.fromkeys(pairs, times))
    assert len(rows) == len({str(pair) for pair in pairs})
    assert {row["stage"] for row in rows} == {"fused/dwpw/naive"}
    assert rows[0]["layers"].count(" + ") == 1
