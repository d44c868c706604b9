"""The layers of image networks against PyTorch: what is planned, measured, recorded and shown. No GPU needed."""

import dataclasses
import functools
import math
import queue
import threading

import fakes
import numpy as np
import pytest
from fakes import Clock, Meddling, script, timed
from fakes import recorded as written
from tables import networks as tables

from dwlab import records, report, study
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.measure import layer_baselines, timing
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

record_layers, recording = map(script, ("record_layers", "recording"))
on_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")
MACHINE = dataclasses.replace(fakes.MACHINE, l2_bytes=4000)
NAIVE = registry.stage("depthwise2d/forward/naive")


def test_every_depthwise_and_pointwise_layer_of_the_networks_is_planned_once():
    groups = record_layers.plan([], ["float32"])
    for name in record_layers.NETWORKS:
        for one in networks.network(name, layout="NHWC").layers:
            if one.planned:
                sizes = record_layers.sizes(one.problem)
                same = [group for group in groups if record_layers.sizes(group.problem) == sizes]
                assert len(same) == 1 and f"{name} {one.name}" in same[0].where
    assert {group.key[:2] for group in groups} == {
        ("depthwise2d", "forward"), ("pointwise", "forward"), ("fused", "dwpw"), ("fused", "pwdw"),
    }  # fmt: skip


def test_the_last_stages_that_take_a_problem_are_tried():
    problem = DepthwiseConv2d(1, 8, 7, 7, 3)
    taking = [stage for stage in registry.stages("depthwise2d", "forward") if stage.supports(problem)]
    assert record_layers.candidates(problem, 1) == taking[-1:] and record_layers.candidates(problem, 0) == taking


@pytest.fixture
def no_gpu(monkeypatch):
    """PyTorch's tensors on the host, kernels on the interpreter, clocks whose times are known."""
    fakes.torch_on_host(monkeypatch)

    class Peers(Clock):
        argument = None

    monkeypatch.setattr(layer_baselines, "TorchClock", lambda: Peers(1000.0))
    monkeypatch.setattr(layer_baselines, "SCREENING", {"rounds": 3, "min_seconds": 0.001})
    return study.GpuBench(clock=Clock(500.0), machine=MACHINE, how=record_layers.HOW, compiled=False, few=True)


def group_of(problem):
    return record_layers.Group(problem, ("mobilenet_v1 1", "xception 2"), 0.1)


def run_group(problem, bench, batches=(1,)):
    options = {"batches": batches, "layouts": ("NHWC", "NCHW"), "last": 1}
    return record_layers.measure(group_of(problem), bench, options)


LAYER = DepthwiseConv2d(1, 4, 5, 6, 3, layout="NHWC", bias=True, activation="relu6")


@on_interpreter
def test_a_layer_is_measured_in_both_layouts_beside_its_peer(no_gpu, tmp_path, monkeypatch):
    monkeypatch.setattr(record_layers, "candidates", lambda problem, last: [NAIVE])
    made = run_group(LAYER, no_gpu, batches=(1, 2))
    assert [row["failure"] for row in made["layers"] if "failure" in row] == []
    assert len(made["measurements"]) == 4 and {row["problem"]["N"] for row in made["measurements"]} == {1, 2}
    for row in made["measurements"]:
        assert row["time_us"] == pytest.approx(500) and row["speedup_vs_peer"] == pytest.approx(2)
        assert row["note"].endswith("in mobilenet_v1, xception") and row["peer"].startswith("PyTorch")
    for row, batch in zip(made["layers"], (1, 2), strict=True):
        assert (row["batch"], row["layer"], row["dtype"]) == (batch, "DW 3×3 4@5×6", "float32")
        assert row["stage"] == "naive" and row["layout"] in ("NHWC", "NCHW")
        assert row["speedup_vs_peer"] == pytest.approx(2) and row["networks"] == "mobilenet_v1, xception"
    assert {one["way"] for one in made["peers"]} == {"conv2d: NCHW", "conv2d: channels last"}
    run = written(tmp_path, made["measurements"], peers=made["peers"], sections={"layers": made["layers"]})
    assert "| depthwise2d | " in tables.layers([run]) and len(run.measurements) == 4


@on_interpreter
def test_of_a_layer_that_lies_in_the_l2_with_all_its_copies_there_are_few(no_gpu):
    for l2_bytes, sets in ((1 << 30, 8), (100_000, 9), (0, 1)):
        no_gpu.machine = dataclasses.replace(MACHINE, l2_bytes=l2_bytes)
        with no_gpu.prepare(dataclasses.replace(LAYER, C=64, H=8, W=8), "forward") as prepared:
            assert len(prepared.sets) == sets


@on_interpreter
@pytest.mark.parametrize(
    "honest, spoil, said", [(0, 99.0, "is 99, not"), (0, np.nan, "not written"), (1, 99.0, "is 99, not")]
)
def test_a_wrong_stage_has_no_time_and_says_why(no_gpu, monkeypatch, honest, spoil, said):
    def meddle(y):
        y[-1] = spoil

    wrong = NAIVE.with_kernel(Meddling(NAIVE.kernel_for(LAYER), honest, meddle))
    monkeypatch.setattr(record_layers, "candidates", lambda problem, last: [wrong] * (problem.layout == "NHWC"))
    made = run_group(LAYER, no_gpu)
    (row,) = made["layers"]
    assert row["failure"].startswith("WRONG: naive, NHWC: ") and said in row["failure"]
    assert made["measurements"] == [] and "time_us" not in row and "speedup_vs_peer" not in row
    assert row["peer"].startswith("PyTorch")


@on_interpreter
def test_int8_stands_beside_float16(no_gpu, monkeypatch):
    plain = timing.time_launches

    def time_launches(fn, *, clock, **how):
        if not isinstance(clock, Clock) or clock.argument is None:  # the libraries'
            return plain(fn, clock=clock, **how)
        fn[0](0)
        return timed(500.0)

    monkeypatch.setattr(timing, "time_launches", time_launches)
    int8 = {"layout": "NHWC", "dtype": "int8", "bias": True}
    first = DepthwiseConv2d(1, 16, 4, 5, 3, **int8, zero_x=3, zero_y=-7)
    made = run_group(Fused(first, Pointwise(1, 16, 8, 4, 5, **int8, zero_x=-7)), no_gpu)
    (row,) = made["layers"]
    assert (row["stage"], row["layout"], "failure" in row) == ("int8", "NHWC", False)
    assert row["speedup_vs_peer"] == pytest.approx(2) and {one["dtype"] for one in made["peers"]} == {"float16"}


@on_interpreter
def test_a_layer_that_no_stage_takes_says_so(no_gpu, monkeypatch):
    monkeypatch.setattr(record_layers, "candidates", lambda problem, last: [])
    made = run_group(Fused(LAYER, Pointwise(1, 4, 3, 5, 6, layout="NHWC")), no_gpu)
    assert made["layers"][0]["failure"] == "no stage takes it" and made["peers"] == []


def test_a_time_above_the_ceilings_is_no_time():
    large = dataclasses.replace(LAYER, N=32, C=128, H=56, W=56)
    at_copy = large.compulsory_bytes() / 4000e3
    for us, said in ((1.02 * at_copy, ""), (0.95 * at_copy, ""), (0.8 * at_copy, "bandwidth ceiling")):
        row = record_layers.measured(NAIVE, large, dataclasses.replace(timed(us), cold="cold"), MACHINE, ["a x"])
        told = record_layers.above(row, large, MACHINE)
        assert said in told and bool(said) == bool(told)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_process_measures_what_it_took_with_torch_compile_first(monkeypatch, compiled):
    pytest.importorskip("torch", reason="PyTorch is not installed: the script needs it")
    done = []
    monkeypatch.setattr("torch.cuda.init", lambda: None)
    monkeypatch.setattr(record_layers.timing, "DeviceClock", lambda: None)
    monkeypatch.setattr("recording.search_alone", lambda gpu: done.append(gpu))
    monkeypatch.setattr(layer_baselines, "compile_ahead", lambda problem: done.append(problem.N))
    monkeypatch.setattr(record_layers, "made_of", lambda group, *more: done.append(group) or {"layers": []})
    tasks, results, start = queue.Queue(), queue.Queue(), threading.Barrier(1)
    groups = [group_of(LAYER), group_of(dataclasses.replace(LAYER, C=8))]
    for task in groups:
        tasks.put(task)
    monkeypatch.setattr(tasks, "get", functools.partial(tasks.get, block=False), raising=False)
    options = {"compiled": compiled, "batches": [1, 32], "until": math.inf}
    record_layers.work(tasks, results, "gpu", start, MACHINE, options)
    assert [results.get() for _ in range(results.qsize())] == [{"layers": []}] * 2
    assert done == (["gpu", 1, 32, 1, 32, *groups] if compiled else groups)


def test_torch_compile_takes_its_times_alone_on_the_gpu(monkeypatch):
    inductor = pytest.importorskip("torch._inductor.runtime.benchmarking", reason="PyTorch is not installed")
    from torch._inductor import autotune_process, config

    lock = threading.Lock()
    monkeypatch.setattr(config, "autotune_in_subproc", False)
    for owner, name in (inductor.benchmarker, "benchmark_gpu"), (autotune_process, "benchmark_in_sub_process"):
        monkeypatch.setattr(owner, name, lambda call, **how: (call, how, lock.locked()))
    recording.search_alone(lock)
    assert config.autotune_in_subproc and not lock.locked()
    assert inductor.benchmarker.benchmark_gpu("call", rep=5) == ("call", {"rep": 5}, True)
    assert autotune_process.benchmark_in_sub_process(["one"]) == (["one"], {}, True)


def row(
    op="depthwise2d", path="forward", layer="DW 3×3 32@112", batch=32, dtype="float32", us=50.0, peer=100.0, **more
):
    made = {
        "op": op, "path": path, "layer": layer, "batch": batch, "dtype": dtype, "problem": {"N": batch},
        "networks": "mobilenet_v1", "compulsory_bytes": 160_000_000, "copy_bound_us": 40.0, "stage": "wide",
        "layout": "NHWC", "time_us": us, "p10_us": us, "p90_us": us, "fraction_of_copy": 40 / us, "cold": "cold",
        "peer": "PyTorch conv2d", "peer_time_us": peer, "speedup_vs_peer": peer / us,
    }  # fmt: skip
    return made | more


TIMES = "time_us", "p10_us", "p90_us", "speedup_vs_peer", "fraction_of_copy"
FAILED = {k: v for k, v in row().items() if k not in TIMES} | {"failure": "no stage takes it"}


def recorded(folder, rows, day="", **more):
    return written(folder, day=day, sections={"layers": rows}, **more)


def way(us=9.0, way="compile: default, NCHW", **change):
    """One of PyTorch's ways for the layer of `row`, as a record has it."""
    time = {"median_us": us, "p10_us": us, "p90_us": us}
    shape = {"N": 32, "layout": "NCHW"}
    peer = {"name": f"PyTorch conv2d {way}", "way": way, "path": "forward", "dtype": "float32", "failure": ""}
    return peer | {"shape": shape, "time": time} | change


def test_beside_ours_stands_the_fastest_way_of_any_record(tmp_path):
    """Of int8 float16's; test_pages.py has the others."""
    new = recorded(tmp_path, [row(problem={"N": 32, "layout": "NHWC"})])
    slower = recorded(tmp_path / "slower", [], "20T11", peers=[way(101.0)])
    kept = report.layers([slower, new])[0][0]
    assert (kept["peer_time_us"], kept["speedup_vs_peer"]) == (100.0, 2.0)
    layer = DepthwiseConv2d(32, 8, 9, 9, 3, layout="NHWC", dtype="int8", zero_x=3, residual=True, m_r=0.5)
    first = DepthwiseConv2d(32, 8, 9, 9, 3, layout="NHWC", dtype="int8", zero_x=3, zero_y=4)
    pair = Fused(first, Pointwise(32, 8, 16, 9, 9, layout="NHWC", dtype="int8", zero_x=4))
    for number, one in enumerate((layer, pair)):
        theirs = records.describe_problem(layer_baselines.baseline_problem(one))
        run = recorded(
            tmp_path / str(number), [row(one.op, one.main_path, dtype="int8", problem=records.describe_problem(one))],
            peers=[way(25.0, path=one.main_path, dtype="float16", shape=theirs)],
        )  # fmt: skip
        (found,), _ = report.layers([run])
        assert (found["peer_time_us"], found["compiled"]) == (25.0, True)


def test_only_missing_layers_are_asked_for(tmp_path):
    groups = record_layers.plan(["depthwise2d"], ["float32"])
    text = report.layer_text(groups[0].problem)
    run = recorded(tmp_path, [row(layer=text, batch=1), row(layer=text, batch=32)])
    assert record_layers.missing(groups, [1, 32], [run]) == groups[1:]
    assert record_layers.missing(groups, [1, 8], [run]) == groups
    assert record_layers.missing(groups, [1, 32], [run], compiled=True) == groups
    both = [row(layer=text, batch=batch, problem={"N": batch, "layout": "NHWC"}) for batch in (1, 32)]
    one = recorded(tmp_path / "one", both, peers=[way()])
    assert record_layers.missing(groups, [32], [one], compiled=True) == groups[1:]
    assert record_layers.missing(groups, [1, 32], [one], compiled=True) == groups
    rows, ways = recorded(tmp_path / "rows", both), recorded(tmp_path / "ways", [], peers=[way()])  # of two runs
    assert record_layers.missing(groups, [32], [rows, ways], compiled=True) == groups[1:]
    assert record_layers.missing(groups, [32], [rows], compiled=True) == groups
    failed = recorded(tmp_path / "f", [{**FAILED, "layer": text, "batch": 1}])
    assert record_layers.missing(groups, [1], [failed]) == groups


def test_what_would_be_measured_is_listed_without_a_gpu(capsys):
    assert record_layers.main(["--list", "--op", "depthwise2d", "--dtype", "float32"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("depthwise2d/forward/float32  DW ") for line in lines[:-1])
    assert lines[-1] == f"{len(lines) - 1} layers" and len(lines) > 3
