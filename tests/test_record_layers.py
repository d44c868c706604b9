"""The layers of image networks against PyTorch: what is planned, measured, recorded and shown. No GPU needed."""

import dataclasses
import functools
import math
import queue
import threading

import numpy as np
import pytest
from fakes import Clock, Meddling, on, script, timed
from fakes import recorded as written

from dwlab import problems, records, report
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.measure import baselines, layer_baselines, timing
from dwlab.measure.baselines import Baseline
from dwlab.model import timemodel
from dwlab.problems import networks, references
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise

record_layers = script("record_layers")
on_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")
MACHINE = {"l2_bytes": 4000, "copy_gbps": 4000.0, "l2_gbps": 6500.0, "fma_tflops": 60.0}
NAIVE = registry.stage("depthwise2d/forward/naive")


# ---------------------------------------------------------------------------------------------------------- the plan


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


def test_pairs_are_those_that_may_share_a_kernel():
    pairs = [group for group in record_layers.plan(["fused"], ["float32"], ["mobilenet_v2"]) if group.key[1] != "pwpw"]
    network = networks.network("mobilenet_v2", layout="NHWC")
    for group in pairs:
        one, two = group.where[0].removeprefix("mobilenet_v2 ").split(" and ")
        index = [layer.name for layer in network.layers].index(one)
        assert network.layers[index + 1].name == two and network.joint(index) == ""
    # 17 blocks: each projects after its depthwise layer, and all but the first expand before it.
    assert sum(len(group.where) for group in pairs if group.key[1] == "dwpw") == 17
    assert sum(len(group.where) for group in pairs if group.key[1] == "pwdw") == 16


def test_the_largest_shares_come_first_and_ops_and_types_in_turn():
    groups = record_layers.plan([], ["float32", "float16"])
    keys = list(dict.fromkeys(group.key for group in groups))
    assert [group.key for group in groups[: len(keys)]] == keys and len(keys) == 8
    assert keys[0] == ("depthwise2d", "forward", "float32") and {key[2] for key in keys[:4]} == {"float32"}
    for key in keys:
        shares = [group.share for group in groups if group.key == key]
        assert shares == sorted(shares, reverse=True)
    assert record_layers.plan([], ["float32", "float16"]) == groups


@pytest.mark.parametrize(
    "ops, kept",
    [
        (["depthwise2d"], {"forward"}),
        (["fused"], {"dwpw", "pwdw", "pwpw"}),
        (["fused/pwdw"], {"pwdw"}),
        (["fused/dwpw", "pointwise"], {"dwpw", "forward"}),
    ],
)
def test_ops_are_filtered(ops, kept):
    assert {group.key[1] for group in record_layers.plan(ops, ["float32"])} == kept


def test_variants_keep_what_the_layers_do():
    group = record_layers.plan(["fused/dwpw"], ["int8"], ["mobilenet_v1"])[0]
    made = record_layers.variant(group.problem, 32, "NCHW")
    assert (made.N, made.layout, made.dtype) == (32, "NCHW", "int8")
    assert made.first.activation == group.problem.first.activation
    assert record_layers.variant(made, 1, "NHWC") == group.problem


def test_the_last_stages_that_take_a_problem_are_tried():
    problem = DepthwiseConv2d(1, 8, 7, 7, 3)
    taking = [stage for stage in registry.stages("depthwise2d", "forward") if stage.supports(problem)]
    assert record_layers.candidates(problem, 1) == taking[-1:] and record_layers.candidates(problem, 0) == taking


def test_sets_exceed_the_cache_or_are_few():
    assert record_layers.sets_of(10_000_000, 60_000_000) == timing.sets_for(10_000_000, 60_000_000) == 18
    assert record_layers.sets_of(200_000, 60_000_000) == record_layers.FEW_SETS
    assert record_layers.sets_of(500_000_000, 60_000_000) == 1


def test_networks_are_counted():
    assert record_layers.in_networks(["a x", "a y", "b z"]) == "a 2×, b"


# ------------------------------------------------------------------------------------------------------- measuring


@pytest.fixture
def no_gpu(monkeypatch):
    """PyTorch's tensors on the host, kernels on the interpreter, clocks whose times are known."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the script needs it")

    class Peers(Clock):
        argument = None

    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self)
    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(target.cuda, "as_cuda_array", lambda tensor: tensor.numpy(), raising=False)
    monkeypatch.setattr(baselines, "available", lambda: True)
    monkeypatch.setattr(layer_baselines, "TorchClock", lambda: Peers(1000.0))
    monkeypatch.setattr(layer_baselines, "SCREENING", {"rounds": 3, "min_seconds": 0.001})
    return Clock(500.0)


def group_of(problem):
    return record_layers.Group(problem, ("mobilenet_v1 1", "xception 2"), 0.1)


def run_group(problem, clock, batches=(1,), last=1, compiled=False):
    group = group_of(problem)
    ready = record_layers.prepare(group, batches, ("NHWC", "NCHW"), last)
    return record_layers.measure(group, ready, MACHINE, clock, compiled)


LAYER = DepthwiseConv2d(1, 4, 5, 6, 3, layout="NHWC", bias=True, activation="relu6")


class Answers:
    """A kernel that knows the answers to the inputs of these problems; lazy: it leaves out one element."""

    lazy = False

    def __init__(self):
        self.known = {}

    def learn(self, prepared):
        for inputs in prepared.inputs:
            y = references.reference(prepared.problem, "forward", inputs)["y"]
            kind = prepared.problem.dtype
            stored = y.astype(np.int8) if kind == "int8" else problems.encode(y.astype(np.float32), kind)
            self.known[inputs["x"].tobytes()] = stored.ravel()

    def __getitem__(self, how):
        def launch(*args):
            y, values = args[-1], self.known[args[0].tobytes()]
            kept = y[7]
            y[:] = values
            y[7] = kept if self.lazy else values[7]

        return launch


def answering(monkeypatch, dtype):
    """A stage of this storage type whose kernel is Answers, the only one in NHWC."""
    stage = dataclasses.replace(
        NAIVE, kernel=Answers(), dtypes=(dtype,), supports=lambda p: p.dtype == dtype, view="flat",
        launch=lambda p: registry.Launch((1,), (1,)),
    )  # fmt: skip
    monkeypatch.setattr(record_layers, "candidates", lambda problem, last: [stage] * (problem.layout == "NHWC"))
    return stage


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
    assert "| depthwise2d | " in report.layers_summary([run]) and len(run.measurements) == 4


@on_interpreter
@pytest.mark.parametrize(
    "honest, spoil, said", [(0, 99.0, "is 99, not"), (0, np.nan, "not written"), (1, 99.0, "fresh")]
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
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("lazy", [False, True])
def test_every_storage_type_is_checked_and_int8_stands_beside_float16(no_gpu, monkeypatch, dtype, lazy):
    problem = dataclasses.replace(LAYER, dtype=dtype, activation="relu")
    stage = answering(monkeypatch, dtype)
    ready = record_layers.prepare(group_of(problem), (1,), ("NHWC",), 1)
    stage.kernel.learn(ready[0][1][0][0])
    stage.kernel.lazy = lazy
    made = record_layers.measure(group_of(problem), ready, MACHINE, no_gpu, False)
    (row,) = made["layers"]
    assert row["peer_time_us"] == pytest.approx(1000)
    assert made["peers"][0]["dtype"] == ("float16" if dtype == "int8" else dtype)
    if lazy:
        assert row["failure"].startswith("WRONG: naive, NHWC: y") and made["measurements"] == []
    else:
        assert row["speedup_vs_peer"] == pytest.approx(2) and "failure" not in row


INT8 = {"layout": "NHWC", "dtype": "int8", "bias": True}
PAIR8 = Fused(
    DepthwiseConv2d(1, 16, 4, 5, 3, **INT8, zero_x=3, zero_y=-7), Pointwise(1, 16, 8, 4, 5, **INT8, zero_x=-7)
)


@pytest.fixture
def few_launches(monkeypatch):
    """Ours are launched once for each time, and take 500 µs."""
    plain = timing.time_launches

    def time_launches(fn, *, clock, **how):
        if not isinstance(clock, Clock):
            return plain(fn, clock=clock, **how)
        fn[0](0)
        return timed(500.0)

    monkeypatch.setattr(timing, "time_launches", time_launches)


@on_interpreter
def test_fused_int8_stands_beside_our_own_two_kernels(no_gpu, few_launches, tmp_path):
    made = run_group(PAIR8, no_gpu)
    (row,) = made["layers"]
    assert (row["stage"], row["layout"], "failure" in row) == ("int8", "NHWC", False)
    assert row["apart"] == "depthwise2d/forward/int8 then pointwise/forward/int8"
    assert row["apart_time_us"] == pytest.approx(500) and row["speedup_vs_apart"] == pytest.approx(1)
    assert row["speedup_vs_peer"] == pytest.approx(2) and {one["dtype"] for one in made["peers"]} == {"float16"}
    run = written(tmp_path, made["measurements"], peers=made["peers"], sections={"layers": made["layers"]})
    assert run.sections["layers"][0]["speedup_vs_apart"] == pytest.approx(1)
    for layers in (PAIR8.first, dataclasses.replace(PAIR8.first, dtype="float32", zero_x=0, zero_y=0)):
        assert record_layers.apart(layers) == []


@on_interpreter
def test_our_own_two_kernels_are_checked_too(no_gpu, few_launches, monkeypatch):
    naive = registry.stage("pointwise/forward/naive")
    real = record_layers.candidates

    def candidates(problem, last):
        if problem.op != "pointwise":
            return real(problem, last)
        return [naive.with_kernel(Meddling(naive.kernel_for(problem), 0, lambda y: y.__setitem__(-1, 99)))]

    monkeypatch.setattr(record_layers, "candidates", candidates)
    (row,) = run_group(PAIR8, no_gpu)["layers"]
    assert row["failure"].startswith("WRONG: layer by layer: y") and "apart_time_us" not in row
    assert row["speedup_vs_peer"] == pytest.approx(2)


def test_a_naive_stage_is_tried_where_it_is_the_only_one(monkeypatch):
    better = dataclasses.replace(NAIVE, name="better", order=2)
    monkeypatch.setattr(record_layers, "compile_ahead", lambda stage, problem: None)
    for found, wanted in (([NAIVE, better], ["better"]), ([NAIVE], ["naive"])):
        monkeypatch.setattr(record_layers, "candidates", lambda problem, last, found=found: found)
        ((_, here, _),) = record_layers.prepare(group_of(LAYER), (1,), ("NHWC",), 2)
        assert [stage.name for stage in here[0][1]] == wanted
        ((_, here, _),) = record_layers.prepare(group_of(LAYER), (1,), ("NHWC",), 0)
        assert [stage.name for stage in here[0][1]] == [stage.name for stage in found]


@on_interpreter
def test_a_layer_that_no_stage_takes_says_so(no_gpu, monkeypatch):
    monkeypatch.setattr(record_layers, "candidates", lambda problem, last: [])
    made = run_group(Fused(LAYER, Pointwise(1, 4, 3, 5, 6, layout="NHWC")), no_gpu)
    assert made["layers"][0]["failure"] == "no stage takes it" and made["peers"] == []


def test_a_peer_that_never_ran_is_said():
    row = record_layers.layer_row(
        group_of(LAYER),
        1,
        [(NAIVE, LAYER, "y is wrong")],
        [Baseline("a", "conv2d: NCHW", failure="no memory")],
        MACHINE,
    )
    assert row["failure"] == "WRONG: naive, NHWC: y is wrong; conv2d: NCHW: no memory"


def test_a_time_above_the_ceilings_is_no_time():
    large = dataclasses.replace(LAYER, N=32, C=128, H=56, W=56)
    at_copy = large.compulsory_bytes() / 4000e3
    for us, said in ((1.02 * at_copy, ""), (0.95 * at_copy, ""), (0.8 * at_copy, "bandwidth ceiling")):
        row = record_layers.measured(NAIVE, large, dataclasses.replace(timed(us), cold="cold"), MACHINE, ["a x"])
        assert (said in record_layers.above(row, large, MACHINE)) and bool(said) == bool(
            record_layers.above(row, large, MACHINE)
        )


@pytest.mark.parametrize("compiled", [False, True])
def test_a_process_measures_what_it_took_with_torch_compile_first(monkeypatch, compiled):
    pytest.importorskip("torch", reason="PyTorch is not installed: the script needs it")
    done = []
    monkeypatch.setattr("torch.cuda.init", lambda: None)
    monkeypatch.setattr(record_layers.timing, "DeviceClock", lambda: None)
    monkeypatch.setattr(record_layers, "search_alone", lambda gpu: done.append(gpu))
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


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_was_measured_is_kept_when_someone_interrupts(monkeypatch, capsys, interrupted):
    group = group_of(LAYER)
    made = {"measurements": ["m"], "layers": [row()], "peers": ["p"]}

    def shared(*given):
        yield made
        if interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(record_layers, "shared", shared)
    options = record_layers.arguments(["--processes", "1", "--seconds", "30"])
    found, notes = record_layers.collect([group, group], {}, options, record_layers.time.monotonic())
    assert found == made
    assert "1 of 2 layers were not reached in 30 s." in notes
    assert ("The run was interrupted." in notes) == interrupted
    assert "batch 32 float32 wide NHWC: 50.00 µs, × 2.00" in capsys.readouterr().out


def test_torch_compile_takes_its_times_alone_on_the_gpu():
    benchmarking = pytest.importorskip("torch._inductor.runtime.benchmarking", reason="PyTorch is not installed")
    taken, lock = [], threading.Lock()
    mine, before = benchmarking.benchmarker, benchmarking.benchmarker.benchmark_gpu
    try:
        mine.benchmark_gpu = lambda call, **how: taken.append((call, how, lock.locked())) or 3.0
        record_layers.search_alone(lock)
        assert mine.benchmark_gpu("call", rep=5) == 3.0 and taken == [("call", {"rep": 5}, True)]
        assert not lock.locked()
    finally:
        mine.benchmark_gpu = before


# --------------------------------------------------------------------------------------------------------- records


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


FAILED = {
    k: v for k, v in row(layer="DW 5×5 8@7").items() if k not in ("time_us", "p10_us", "p90_us", "speedup_vs_peer")
}
FAILED = {k: v for k, v in FAILED.items() if k != "fraction_of_copy"} | {"failure": "no stage takes it"}


def recorded(folder, rows, day="", **more):
    return written(folder, day=day, sections={"layers": rows}, **more)


def test_of_many_layers_a_lesson_shows_the_worst_and_the_best(tmp_path):
    rows = [row(layer=f"layer {peer}", us=10.0, peer=float(peer)) for peer in (40, 5, 20, 80, 10, 160)]
    rows += [row(layer="alone", dtype="int8", us=10.0, peer=30.0), FAILED]
    first, *shown, second, alone = report.layers_text(rows, 4).splitlines()
    assert first == "depthwise2d, float32, batch 32: geometric mean 2.83, 1 of 6 slower"
    assert [" ".join(line.split()[:2]) for line in shown] == ["layer 5", "layer 10", "layer 80", "layer 160"]
    assert [line.endswith("  lost") for line in shown] == [True, False, False, False]
    assert " wide            10.0 µs, PyTorch     5.0 µs   0.50" in shown[0]
    assert second.startswith("depthwise2d, int8, batch 32: geometric mean 3.00, 0 of 1") and "alone" in alone
    assert len(report.layers_text(rows, 3).splitlines()) == 6 and "layer 80" in report.layers_text(rows, 3)
    assert report.layers_text([FAILED]) == report.layers_text([]) == ""
    assert "our own" not in report.layers_text(rows)
    pairs = [row(dtype="int8", us=10.0, peer=30.0) | {"speedup_vs_apart": ratio} for ratio in (0.5, 2.0, 0.25)]
    said = report.layers_text(pairs).splitlines()
    assert said[0].endswith("3.00, 0 of 3 slower")
    assert said[1] == "    against our own kernels of the two layers: 0.63, 2 of 3 slower"


def test_the_summary_has_the_geometric_mean_the_losses_and_the_failures(tmp_path):
    rows = [
        row(), row(layer="a", us=80.0, peer=40.0), row(layer="b", us=45.0, peer=360.0), FAILED,
        row(layer="c", batch=1, us=4.0, peer=6.0, copy_bound_us=2.0, fraction_of_copy=0.5),
        row("fused", "dwpw", dtype="float16", us=44.0, peer=132.0),
    ]  # fmt: skip
    text = report.layers_summary([recorded(tmp_path, rows)])
    mean = math.exp((math.log(2) + math.log(0.5) + math.log(8)) / 3)
    large = next(line for line in text.splitlines() if line.startswith("| depthwise2d | float32 | 32 |"))
    assert large == (
        f"| depthwise2d | float32 | 32 | 4 | 31 | {mean:.2f} | 0.50 | 8.00 | 1 | 1 | 80.0 % | 50.0 % | 80.0 % "
        "| 1 of 3 |  |  |  |"
    )
    assert "| depthwise2d | float32 | 1 | 1 | 32 | 1.50 | 1.50 | 1.50 | 0 | 0 | 50.0 % |  |  |  |" in text
    assert "| fused/dwpw | float16 | 32 | 1 | 42 | 3.00 |" in text
    assert "Slower than the baseline, 1 of 6: a (depthwise2d, float32, batch 32) 0.50." in text
    assert "DW 5×5 8@7 (depthwise2d, float32, batch 32): no stage takes it" in text
    assert "Measured on NVIDIA H200" in text
    # The order: operators, float32 before float16, batch 1 before 32.
    assert [line.split(" | ")[2] for line in text.splitlines()[2:5]] == ["1", "32", "32"]


def way(us=9.0, way="compile: default, NCHW", **change):
    """One of PyTorch's ways for the layer of `row`, as a record has it."""
    time = {"median_us": us, "p10_us": us, "p90_us": us}
    shape = {"N": 32, "layout": "NCHW"}
    peer = {"name": f"PyTorch conv2d {way}", "way": way, "path": "forward", "dtype": "float32", "failure": ""}
    return peer | {"shape": shape, "time": time} | change


def test_it_says_for_how_many_rows_torch_compile_was_tried(tmp_path):
    rows = [row(problem={"N": 32, "layout": "NHWC"}), row(layer="a", problem={"N": 32, "C": 8, "layout": "NHWC"})]
    for number, (change, said) in enumerate([
        ({}, "1 of 2"), ({"way": "conv2d: NCHW"}, "none of 2"), ({"time": None}, "none of 2"),
        ({"path": "dwpw"}, "none of 2"), ({"shape": {"N": 1, "layout": "NCHW"}}, "none of 2"),
        ({"name": "PyTorch other"}, "none of 2"), ({"dtype": "float16"}, "none of 2"),
    ]):  # fmt: skip
        run = recorded(tmp_path / str(number), rows, peers=[way(**change)])
        assert f"torch.compile is among PyTorch's ways for {said} rows." in report.layers_summary([run]), change


def test_beside_ours_stands_the_fastest_way_of_any_record(tmp_path):
    """Of the same problem, version of PyTorch and GPU; of int8 float16's."""
    here = {"N": 32, "layout": "NHWC"}
    new = recorded(tmp_path, [row(problem=here), row(layer="a", problem={"N": 1})])
    old = recorded(
        tmp_path / "old", [row(layer="b", problem={"N": 2})], "20",
        peers=[way(25.0), way(75.0, "conv2d: NCHW")],
    )  # fmt: skip
    (_, found, other), used = report.layers([old, new])
    assert (found["peer"], found["peer_time_us"], found["speedup_vs_peer"]) == (way()["name"], 25.0, 0.5)
    assert found["compiled"] and not other["compiled"] and other["peer_time_us"] == 100.0
    assert found["file"] == new.file and used == [old, new]
    slower = recorded(tmp_path / "slower", [], "20T11", peers=[way(101.0)])
    kept = report.layers([slower, new])[0][0]
    assert (kept["peer_time_us"], kept["speedup_vs_peer"]) == (100.0, 2.0)
    assert report.layers([on(old, "NVIDIA T4"), new])[0][0]["peer_time_us"] == 100.0
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


def test_large_layers_are_held_against_a_copy_as_large_too(tmp_path):
    times = {"time_us": 42.5, "p10_us": 42.0, "p90_us": 43.0, "gbps": 3765.0}
    copied = {"bytes": 160_000_000, "way": "the driver's copy", "cold": "cold"} | times
    sized = written(tmp_path, ceilings={}, sections={"copies": [copied]})
    run = recorded(tmp_path / "layers", [row(), row(layer="a", us=85.0, peer=40.0), row(layer="b", us=45.0, peer=90.0)])
    line = report.layers_summary([sized, run]).splitlines()[2]
    assert line.endswith("| 47.1 % | 80.0 % | 1 of 3 | 50.0 % | 85.0 % | 2 of 3 |"), line


def test_pairs_beside_our_own_layer_by_layer(tmp_path):
    beside = [
        row("fused", "dwpw", layer="a", dtype="int8", us=20.0, apart="naive then int8", apart_time_us=30.0,
            speedup_vs_apart=1.5),
        row("fused", "dwpw", layer="b", dtype="int8", us=50.0, apart="naive then int8", apart_time_us=30.0,
            speedup_vs_apart=0.6),
        row("fused", "dwpw", layer="c", dtype="int8", us=25.0),
    ]  # fmt: skip
    run = recorded(tmp_path, [row(), *beside])
    text = report.layers_summary([run])
    head, line, *rows = [one.split(" | ") for one in text.splitlines() if one.startswith("|")]
    assert head[-3:] == ["× unfused, geometric mean", "least", "slower |"] and len(line) == len(head)
    mean = math.sqrt(1.5 * 0.6)
    assert [one[-3:] for one in rows] == [["", "", " |"], [f"{mean:.2f}", "0.60", "1 of 2 |"]]
    assert "Slower than our own layer by layer, 1 of 2: b (fused/dwpw, int8, batch 32) 0.60." in text
    assert "Slower than the baseline" not in text and "× unfused: our own kernels of a pair" in text
    without = recorded(tmp_path / "without", [row(), row(layer="c")])
    assert "unfused" not in report.layers_summary([without])  # no column of nothing


def test_the_newest_row_of_each_layer_counts_and_runs_add_up(tmp_path):
    old = recorded(tmp_path, [row(peer=75.0), row(layer="b")], "20", notes=["old"])
    new = recorded(tmp_path, [row(), row(layer="c")], notes=["new"])
    rows, used = report.layers([old, new])
    assert {one["layer"]: one["speedup_vs_peer"] for one in rows} == {"DW 3×3 32@112": 2.0, "b": 2.0, "c": 2.0}
    assert used == [old, new]
    other = on(new, "NVIDIA T4")
    assert report.layers([old, new, other])[1] == [old, new]  # of the GPU that tables show
    assert report.layers([old, new, other], "NVIDIA T4")[1] == [other]
    assert "3" in report.layers_summary([old, new]).split("| 32 |")[1][:4]


def test_a_row_whose_rounds_scattered_does_not_take_the_place_of_a_calm_one(tmp_path):
    days = [f"2{day}" for day in range(3)]
    calm, wild, later = ({"p10_us": low, "p90_us": 30.6} for low in (30.0, 20.0, 30.1))
    runs = [
        recorded(tmp_path, [row(us=30.0, **calm), row(layer="b", us=30.0, **wild)], days[0]),
        recorded(tmp_path, [row(us=31.0, **wild), row(layer="b", us=31.0, **wild)], days[1]),
    ]
    rows, used = report.layers(runs)
    assert {one["layer"]: one["time_us"] for one in rows} == {"DW 3×3 32@112": 30.0, "b": 31.0} and used == runs
    runs.append(recorded(tmp_path, [row(us=32.0, **later), row(layer="b", us=32.0, **later)], days[2]))
    rows, used = report.layers(runs)
    assert [one["time_us"] for one in rows] == [32.0, 32.0] and used == runs[2:]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_layers_that_are_missing_are_those_that_the_script_plans(tmp_path, dtype):
    """Of each op as many as the script would measure, less those with a row at that batch; of alike ones one."""
    planned = {}
    for group in record_layers.plan((*record_layers.OPS, "fused/pwpw"), [dtype], report.VALIDATED):
        planned.setdefault(group.key[:2], []).append(group.problem)
    (_, _, *others), layers = planned["depthwise2d", "forward"], planned["depthwise2d", "forward"]
    rows = [row(layer=report.layer_text(one), dtype=dtype) for one in layers[:2]]
    rows.append(row("pointwise", layer=report.layer_text(planned["pointwise", "forward"][0]), dtype=dtype))
    rows.append(row("pointwise", layer="PW 1→1@1", dtype=dtype))  # of another network
    old = recorded(tmp_path, rows, "20", notes=["9 of 11 layers were not reached in 5 s."])
    new = recorded(tmp_path, [rows[0]], notes=["10 of 11 layers were not reached in 5 s."])
    text = report.layers_summary([old, new])
    for said in ("not reached", "batch 1"):
        assert said not in text
    assert f"| depthwise2d | {dtype} | 32 | 2 | {len(others)} |" in text
    assert f"| pointwise | {dtype} | 32 | 2 | {len(planned['pointwise', 'forward']) - 1} |" in text
    none = {f"fused/{path}, {len(planned['fused', path])} ({dtype} batch 32)" for path in ("dwpw", "pwdw", "pwpw")}
    (line,) = (line for line in text.splitlines() if line.startswith("None is measured of "))
    assert set(line.removeprefix("None is measured of ").rstrip(". ").split("; ")) == none
    both = report.layers_summary([old, recorded(tmp_path, [row(layer="b", batch=1, dtype=dtype)])])
    assert f"| depthwise2d | {dtype} | 1 | 1 | {len(layers)} |" in both
    assert f"pointwise, {len(planned['pointwise', 'forward'])} ({dtype} batch 1)" in both
    assert f"fused/pwpw, {len(planned['fused', 'pwpw'])} ({dtype} batch 1, {dtype} batch 32)" in both


def test_how_many_stages_were_timed_for_a_row_and_in_which_layouts(tmp_path):
    """By the run that the row is from, of this problem alone."""
    small = dataclasses.replace(LAYER, layout="NHWC")
    pair = Fused(small, Pointwise(1, 4, 8, 5, 6, layout="NHWC"))
    large = dataclasses.replace(small, N=2)

    def of(problem, layer):
        return row(problem.op, problem.main_path, layer, problem.N, problem=records.describe_problem(problem))

    def timed_by(stage, problem):
        one = record_layers.measured(NAIVE, small, timed(900.0), MACHINE, ["a x"])
        where = {"op": problem.op, "path": problem.main_path, "problem": records.describe_problem(problem)}
        return dataclasses.replace(one, stage=stage, **where)

    def run_of(day, rows, *made):
        return written(tmp_path, made, day=day, sections={"layers": rows})

    other = Fused(*(dataclasses.replace(one, layout="NCHW") for one in (pair.first, pair.second)))
    old = run_of(
        "20", [of(small, "a"), of(large, "a"), of(pair, "b")], timed_by("naive", small), timed_by("wide", small),
        timed_by("naive", large), timed_by("naive", dataclasses.replace(large, layout="NCHW")),
        timed_by("naive", pair), timed_by("tensor", other),
    )  # fmt: skip
    start = "A row has the fastest of our stages that were timed for it: "
    said = f"{start}2 in NHWC (1 row), 1 in NCHW and NHWC (1 row), 2 in NCHW and NHWC (1 row).  "
    assert said in report.layers_summary([old])
    new = run_of("21", [of(small, "a")], timed_by("wide", small))
    again = report.layers_summary([old, new])  # what the old run timed for "a" at batch 1 is no longer shown
    assert f"{start}1 in NCHW and NHWC (1 row), 2 in NCHW and NHWC (1 row), 1 in NHWC (1 row).  " in again
    assert start not in report.layers_summary([run_of("22", [of(small, "a")])])


def test_layers_do_not_hide_the_other_tables(tmp_path, monkeypatch):
    problem = dataclasses.replace(LAYER, N=32, C=128, H=56, W=56)
    one = record_layers.measured(NAIVE, problem, timed(900.0), MACHINE, ["mobilenet_v1 x"])
    alone = written(tmp_path, [one], sections={"layers": [row()]})
    assert "| naive |" in report.table("depthwise2d", "forward", runs=[alone])
    # The newest run has no row of depthwise1d: what is predicted stays that of the run before.
    paper = problems.PAPER
    older = dataclasses.replace(one, op="depthwise1d", problem=records.describe_problem(paper))
    before = dataclasses.replace(alone, measurements=(older,))
    seen = []

    def compare(runs, keep):
        seen.append((runs, [row.op for run in runs for row in run.measurements if keep(row)]))
        return timemodel.Comparison((), ("nothing",))

    monkeypatch.setattr(timemodel, "compare", compare)
    timemodel.table([before, alone])
    assert seen == [([before], ["depthwise1d"])]
    assert "Nothing is recorded" in timemodel.table([alone])


def test_layers_in_a_few_characters():
    one = DepthwiseConv2d(2, 64, 112, 112, 3, 2, layout="NHWC")
    assert report.layer_text(one) == "DW 3×3 s2 64@112"
    assert (
        report.layer_text(Fused(one, Pointwise(2, 64, 128, 56, 56, layout="NHWC"))) == "DW 3×3 s2 64@112 + PW 64→128@56"
    )
    assert report.layer_text(DepthwiseConv2d(1, 8, 9, 7, 3, padding=0)) == "DW 3×3 p0 8@9×7"


# --------------------------------------------------------------------------------------------------------- command


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
    assert record_layers.main(["--list", "--op", "depthwise2d", "--dtype", "float32", "--most", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and all(line.startswith("depthwise2d/forward/float32  DW 3×3") for line in lines[:3])
    assert lines[-1] == "3 layers, each at batch 1 and 32"


def test_an_unknown_network_is_named(capsys):
    assert record_layers.main(["--network", "mobilenet_v9", "--list"]) == 2
    assert "mobilenet_v" in capsys.readouterr().err


def test_ops_without_a_stage_are_left_out_and_said(monkeypatch):
    monkeypatch.setattr(record_layers.registry, "stages", lambda: (NAIVE,))
    groups = record_layers.plan([], ["float32"])
    kept, notes = record_layers.with_stages(groups)
    assert {group.key[0] for group in kept} == {"depthwise2d"}
    assert notes == [
        "layers: there is no stage yet for fused/dwpw in float32, fused/pwdw in float32, pointwise/forward in float32."
    ]


def test_kernels_are_compiled_for_what_they_get(monkeypatch):
    """The signature that is compiled ahead is the one that a launch asks for: else it would be compiled twice."""
    numba = pytest.importorskip("numba")
    asked = []

    class Made:
        def compile(self, signature):
            asked.append(signature)

    for view, first in (("flat", "float16"), ("words", "float32"), ("shaped", "float16")):
        layer = DepthwiseConv2d(1, 8, 7, 7, 3, layout="NHWC", dtype="float16", bias=True)
        how = {"launch": lambda p: registry.Launch((1,), (32,)), "supports": lambda p: True}
        stage = dataclasses.replace(NAIVE, dtypes=("float16",), view=view, kernel=Made(), **how)
        record_layers.compile_ahead(stage, layer)
        arrays = asked.pop()
        assert len(arrays) == len(layer.slots()) and str(arrays[0].dtype) == first
        assert arrays[0].ndim == (4 if view == "shaped" else 1) and isinstance(arrays[0], numba.types.Array)
        assert arrays[2].ndim == 1  # the bias
