"""Each of PyTorch's ways for layers computes what the references say, and the study measures layers."""

import contextlib
import dataclasses
import json
from unittest import mock

import numpy as np
import pytest
from fakes import MACHINE, Clock, FakeBench, FakeGpu, accepts
from mutated import mutate

from dwlab import problems, records, report, study
from dwlab.gpu import target
from dwlab.kernels import registry, traffic
from dwlab.measure import baselines, layer_baselines
from dwlab.problems import layers, references
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.study import StudyError, WrongResult, sizes

on_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="runs the bench on the interpreter")
NO_TORCH = "PyTorch is not installed: its ways are not checked here"
NAIVE = registry.stage("depthwise2d/forward/naive")
GPU_ONLY = "cudnn_convolution_relu"


def pair(kind="dwpw", layout="NCHW", dtype="float32", between="relu", after="none", residual=False, N=2):
    how = {"layout": layout, "dtype": dtype, "bias": True}
    if kind == "dwpw":
        one = DepthwiseConv2d(N, 6, 9, 7, 3, 2, activation=between, **how)
        return Fused(one, Pointwise(N, 6, 10, one.P, one.Q, activation=after, residual=residual, **how))
    one = Pointwise(N, 5, 8, 6, 7, activation=between, **how)
    if kind == "pwpw":
        return Fused(one, Pointwise(N, 8, 12, 6, 7, activation=after, residual=residual, **how))
    return Fused(one, DepthwiseConv2d(N, 8, 6, 7, 3, activation=after, residual=residual, **how))


SOME = [
    DepthwiseConv2d(2, 3, 9, 7, 3, bias=True, activation="relu6"),
    DepthwiseConv2d(2, 4, 8, 7, 5, 2, layout="NHWC", activation="gelu", residual=True),
    DepthwiseConv2d(1, 4, 6, 6, 3, 1, 0, bias=True, activation="hard_swish"),
    DepthwiseConv2d(1, 1, 1, 1, 1),
    Pointwise(3, 5, 7, 4, 3, bias=True, activation="relu"),
    Pointwise(1, 5, 7, 4, 3, residual=True),
    Pointwise(2, 6, 4, 3, 5, layout="NHWC", bias=True, activation="relu", residual=True),
    Pointwise(2, 6, 4, 3, 5, layout="NHWC", bias=True, activation="gelu"),
    pair("dwpw", residual=True),
    pair("dwpw", "NHWC", between="silu", after="hard_sigmoid"),
    pair("pwdw", "NHWC", between="relu6"),
    pair("pwdw", after="gelu", N=1),
    pair("pwpw", between="gelu", residual=True),
    DepthwiseConv2d(2, 3, 9, 7, 3, layout="NHWC", dtype="float16", bias=True, activation="relu6"),
    Pointwise(2, 16, 7, 4, 3, dtype="bfloat16", bias=True),
    pair("dwpw", "NHWC", "float16", residual=True),
]


def tensors(problem, seed=5):
    import torch

    found = {}
    for name, values in problem.inputs(problem.main_path, seed).items():
        tensor = torch.from_numpy(values.view(np.int16) if problem.dtype == "bfloat16" else values)
        found[name] = layer_baselines._tensor(problem, name, tensor)
    return found


@pytest.mark.parametrize("problem", SOME, ids=str)
def test_every_way_of_pytorch_computes_the_same(problem):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    inputs = problem.inputs(problem.main_path, seed=5)
    ways = layer_baselines.ways(problem)
    assert {way.rsplit(": ", 1)[1] for way in ways} == set(layer_baselines.FORMATS)
    tried = 0
    with torch.inference_mode():
        for way, prepare in ways.items():
            if GPU_ONLY in way:
                continue
            given = tensors(problem)
            call, outputs = prepare(**given)
            call()
            y = outputs(call())["y"].contiguous().float().numpy()
            allowed = layer_baselines.relative_error(problem.dtype)
            assert study.spot_check(problem, problem.main_path, inputs, "y", y, allowed) == "", way
            # What is done in place must not touch what is read.
            for name, before in tensors(problem).items():
                assert torch.equal(given[name], before), (way, name)
            tried += 1
    assert tried >= 2


def test_the_ways_are_those_that_there_are_and_int8_is_measured_against_float16():
    assert set(layer_baselines.ways(Pointwise(2, 4, 8, 3, 3, bias=True, activation="relu"))) == {
        "conv2d: NCHW", "cudnn_convolution_relu: NCHW", "baddbmm: NCHW", "conv2d: channels last",
        "cudnn_convolution_relu: channels last", "addmm: channels last", "_addmm_activation: channels last",
    }  # fmt: skip
    assert set(layer_baselines.ways(DepthwiseConv2d(2, 4, 3, 3, 3))) == {"conv2d: NCHW", "conv2d: channels last"}
    assert "conv2d then addmm: channels last" in layer_baselines.ways(pair())
    assert len(layer_baselines.ways(pair())) == 2 * 2 + 2 * 2  # conv2d and cuDNN's, then conv2d and a matrix product
    layer = Pointwise(1, 4, 8, 3, 3, dtype="int8", bias=True, activation="relu", zero_x=3, zero_y=-5)
    with pytest.raises(ValueError, match="PyTorch has no way for .*int8"):
        layer_baselines.ways(DepthwiseConv2d(1, 4, 5, 5, 3, dtype="int8"))
    other = layer_baselines.baseline_problem(layer)
    assert other == Pointwise(1, 4, 8, 3, 3, dtype="float16", bias=True, activation="relu")
    both = layer_baselines.baseline_problem(Fused(layer, dataclasses.replace(layer, C=8, zero_x=-5)))
    assert both.dtype == "float16" and both.first == other
    assert layer_baselines.baseline_problem(other) is other


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("more", [{}, {"bias": True, "activation": "relu"}, {"residual": True, "m_r": 0.5}], ids=str)
def test_pytorchs_product_of_int8_is_exact(layout, more, monkeypatch):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    monkeypatch.setattr(torch, "as_tensor", lambda array, device: torch.from_numpy(array))  # as from a GPU's
    layer = Pointwise(2, 16, 24, 3, 5, layout, "int8", zero_x=3, zero_y=-5, **more)
    inputs = layer.inputs("forward", seed=2)
    (prepare,) = layer_baselines.ways(layer).values()
    call, outputs = prepare(**{name: baselines.tensor_of(layer, name, one) for name, one in inputs.items()})
    y = outputs(call())["y"].contiguous().float().numpy()
    assert study.spot_check(layer, "forward", inputs, "y", y, None) == ""
    assert study.spot_check(layer, "forward", inputs, "y", y + 1, None)


def test_a_wrong_result_of_a_peer_has_no_time(monkeypatch):
    torch = pytest.importorskip("torch", reason=NO_TORCH)
    monkeypatch.setattr(baselines, "available", lambda: True)
    monkeypatch.setattr(layer_baselines, "TorchClock", lambda: FakeGpu(30.0))
    monkeypatch.setattr(FakeGpu, "launch", lambda self, fn: (fn(None), self.enqueue()), raising=False)
    layer = Pointwise(2, 4, 8, 3, 3, bias=True, activation="relu")
    sets = [tensors(layer, seed) for seed in (1, 2)]
    said = iter(["", "y is off"])
    found = layer_baselines.measure(layer, sets, lambda y: next(said, ""), cold="cold", rounds=3, min_seconds=0.001)
    assert [one.way for one in found] == list(layer_baselines.ways(layer))
    by_way = {one.way: one for one in found}
    if not torch.cuda.is_available():
        assert by_way["cudnn_convolution_relu: NCHW"].failure.startswith("it does not run: ")
    wrong = [one for one in found if one.failure == "its result is wrong: y is off"]
    assert len(wrong) == 1 and wrong[0].time is None
    assert all(one.time is not None for one in found if not one.failure)
    assert found[0].name.startswith("PyTorch 2") and "conv2d, NCHW (cuDNN " in found[0].name


# ------------------------------------------------------------------------------------------------------ spot check


def solved(problem, seed=3):
    inputs = problem.inputs(problem.main_path, seed)
    y = references.reference(problem, problem.main_path, inputs)["y"]
    int8 = problem.dtype == "int8"
    return inputs, y.astype(np.int8) if int8 else problems.encode(y.astype(np.float32), problem.dtype)


MANY = [
    DepthwiseConv2d(12, 40, 6, 5, 3, bias=True, activation="relu6", residual=True),
    DepthwiseConv2d(12, 40, 6, 5, 3, 2, layout="NHWC", bias=True),
    DepthwiseConv2d(3, 20, 6, 5, 3, layout="NHWC", dtype="int8", bias=True, zero_x=3, zero_y=2),
    Pointwise(12, 7, 40, 3, 2, bias=True, residual=True),
    Pointwise(12, 7, 40, 3, 2, layout="NHWC", dtype="float16", bias=True),
    Pointwise(2, 7, 40, 3, 2, dtype="bfloat16"),
    *(pair(kind, layout, residual=True, N=12) for kind in problems.KINDS for layout in ("NCHW", "NHWC")),
]


@pytest.mark.parametrize("problem", MANY, ids=str)
def test_a_right_output_passes_and_a_wrong_corner_is_found(problem):
    inputs, y = solved(problem)
    path = problem.main_path
    assert study.spot_check(problem, path, inputs, "y", y) == ""
    some = study.excerpt(problem, path, "y")
    assert some.problem.N <= 8 and some.problem.shapes(path)["y"] == some.cut("y", y).shape
    for at in ((0,) * 4, tuple(size - 1 for size in y.shape)):
        bad = y.copy()
        bad[at] = bad[at] + 40 if problem.dtype == "int8" and bad[at] < 80 else 0x4300 if y.dtype == np.uint16 else 77
        said = study.spot_check(problem, path, inputs, "y", bad)
        assert said.startswith(f"y{list(at)} is "), said


# ------------------------------------------------------------------------------------------------- other sizes


@pytest.mark.parametrize("problem", [one for both in study.LAYERS.values() for one in both] + SOME, ids=str)
def test_the_counted_layers_are_small_and_do_the_same(problem):
    small = study.counted_problem(problem)
    layers = (small.first, small.second) if isinstance(small, Fused) else (small,)
    was = (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)
    for one, before in zip(layers, was, strict=True):
        assert one.N * one.P * one.Q * one.channels_out <= sizes.COUNTED_OUTPUTS
        kept = ("layout", "dtype", "bias", "activation", "residual") + ("K", "stride", "padding") * hasattr(one, "K")
        assert all(getattr(one, name) == getattr(before, name) for name in kept)
    assert small.op == problem.op and small.main_path == problem.main_path


# ------------------------------------------------------------------------------------------------------- the study


def make(todo, problem=None, mode="gpu", runs=(), bench=None, **more):
    checks = study.Checks(accepts, lambda stage, problem: (0, ""))
    bench = (bench or FakeBench({"naive": 900.0})) if mode == "gpu" else None
    simulated = mock.patch.object(target, "mode", "simulated", create=True)
    with contextlib.nullcontext() if bench else simulated:
        return study.study(problem=problem, stages=todo, bench=bench, checks=checks, runs=runs, **more)


def test_a_layer_is_timed_against_its_compulsory_bytes_and_peer(tmp_path):
    layer = DepthwiseConv2d(4, 144, 28, 28, 3, layout="NHWC", bias=True)
    made = make([NAIVE], layer)
    (row,) = made.rows
    size = 4 * (2 * 4 * 144 * 28 * 28 + 144 * 9 + 144)
    assert made.passed and row.measured.compulsory_bytes == size
    assert row.measured.effective_gbps == pytest.approx(size / 900e-6 / 1e9)
    assert (row.op, row.path, row.measured.peer_time_us) == ("depthwise2d", "forward", 2800.0)
    assert made.uncounted == "they are read for depthwise1d only" and "depthwise1d only" in made.table()
    run_ = records.read_run(made.write(tmp_path))
    assert run_.measurements[0].problem["layout"] == "NHWC" and run_.measurements[0].op == "depthwise2d"
    assert "naive" in report.rows_at(run_, layer)["depthwise2d/forward"]
    assert make([NAIVE], layer, "simulated", runs=[run_]).rows[0].source.startswith("recorded on NVIDIA H200")


def test_a_problem_that_no_stage_is_for_is_refused():
    with pytest.raises(StudyError, match="is a problem of pointwise, which none of these stages computes"):
        make([NAIVE], Pointwise(1, 2, 3, 4, 5))


def test_a_matrix_product_may_exceed_the_rate_of_float32_arithmetic(tmp_path):
    assert report.roof_of("pointwise", MACHINE.ceilings).fma_tflops is None
    assert report.roof_of("depthwise1d", MACHINE.ceilings) is MACHINE.ceilings
    # 2 * 64 * 1024**3 FLOP in 900 µs are 153 TFLOP/s, above 60; the bytes are far below what a copy moves.
    layer = Pointwise(64, 1024, 1024, 32, 32, layout="NHWC", dtype="float16")
    few = traffic.Traffic(1, 32, 1, 32)
    stage = dataclasses.replace(registry.stage("pointwise/forward/naive"), traffic=lambda p: few)
    assert make([stage], layer).passed


TINY8 = DepthwiseConv2d(1, 4, 3, 5, 3, layout="NHWC", dtype="int8", bias=True, zero_x=3, zero_y=-2)


@on_interpreter
def test_int8_outputs_that_are_not_written_are_found():
    """No int8 is NaN: what stays as it was shows when it was something else before."""
    bench = study.GpuBench(quick=True, clock=Clock(500.0), machine=dataclasses.replace(MACHINE, l2_bytes=1000))
    lazy = mutate(NAIVE.id, "if i >= y.size:", "if i >= y.size or i == 7:")
    with bench.prepare(TINY8, "forward") as prepared:
        prepared.check(NAIVE)
        with pytest.raises(WrongResult, match=r"y\[.*\] is (-86|85), not|1 of 60 elements of y were not written"):
            prepared.check(lazy)


# ------------------------------------------------------------------------------------------------------- command


@pytest.mark.parametrize("problem", [*SOME, *MANY, TINY8], ids=str)
def test_a_layer_is_read_back_from_how_it_prints_itself(problem):
    assert layers.problem(str(problem)) == problem


@on_interpreter
def test_the_command_studies_layers_in_simulated_mode(run, monkeypatch):
    monkeypatch.setattr(registry, "stages", lambda op=None, path=None: (NAIVE,))  # all of them take long
    status, out, err = run("study", "--problem", "N=1 C=8 H=7 W=7 K=3 NHWC bias relu6", "--json")
    made = json.loads(out)
    assert status == 0 and made["passed"] and {row["op"] for row in made["rows"]} == {"depthwise2d"}
    for row in made["rows"]:
        assert row["predicted_bytes"] >= row["counted_bytes"] == row["counted_prediction"] > 0
