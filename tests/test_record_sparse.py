"""What benchmarks/record_sparse.py plans, writes and prints, and the libraries that it asks. No GPU needed."""

import contextlib
import dataclasses
import itertools
import queue
import types

import fakes
import numpy as np
import pytest
from fakes import recorded, script, timed

from dwlab import records, study
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.measure import timing
from dwlab.measure.baselines import Baseline
from dwlab.problems.layers import LAYOUTS, Pointwise, SparsePointwise
from dwlab.records import RecordError, shape_text

record_sparse, sparse_baselines = map(script, ("record_sparse", "sparse_baselines"))
LAYER = SparsePointwise(2, 64, 128, 4, 4, pattern="64:2:16")


def stage():
    return record_sparse.stages_of(LAYER)[-1]


def row(us=4.0, group=None, **changed):
    group = group or record_sparse.Group(LAYER, "mobilenet_v1")
    times = ("cuBLAS", 6.0), ("cuSPARSE", 40.0)
    best = {name: Baseline(f"PyTorch {name}, pixels first", name, timed(one)) for name, one in times}
    made = record_sparse.row_of(group, stage(), timed(us), best, {"pointwise/forward/tensor": 5.0}, 4000.0)
    return made | changed


def test_the_sources_shapes_come_first_in_all_patterns_then_every_layer_at_both_batches():
    plan = record_sparse.plan()
    few = [one.problem for one in plan if one.where == record_sparse.SOURCE]
    assert [one.problem for one in plan[: len(few)]] == few
    for layout, more in record_sparse.LATER.items():
        here = [one for one in few if one.layout == layout]
        found = {(one.F, one.C, one.N * one.H * one.W, one.pattern) for one in here}
        forms = (*record_sparse.PATTERNS, *more)
        wanted = itertools.product(record_sparse.MATRICES, record_sparse.PIXELS, forms)
        assert len(here) == 18 * len(forms) and found == {(*matrix, pixels, form) for matrix, pixels, form in wanted}
    layers = {dataclasses.replace(one.problem, N=1, pattern="2:4") for one in plan[len(few) :]}
    assert len(plan) - len(few) == 4 * len(layers)
    assert any(one.layout == "NCHW" for one in layers)
    only = record_sparse.plan(["4:2:8"], layers=False)
    assert len(only) == 36 and {one.problem.pattern for one in only} == {"4:2:8"}
    for group in plan:  # each has a stage besides the naive one
        assert record_sparse.stages_of(group.problem), group.problem


def test_our_stages_are_all_sparse_ones_but_the_naive_and_the_last_dense_ones():
    assert {one.name for one in record_sparse.stages_of(LAYER)} >= {"columns", "tensor"}
    assert "naive" not in {one.name for one in record_sparse.stages_of(LAYER)}
    big = {one.name for one in record_sparse.stages_of(record_sparse.plan()[0].problem)}  # CUDA cores have no use there
    assert big == {"tensor", "tma"}
    assert len({(one.problem.C, one.problem.F) for one in record_sparse.plan()[:6]}) == 2
    small, large = (Pointwise(n, 64, 128, 8, 8, "NHWC", "float16") for n in (1, 64))
    assert "split" in {one.name for one in record_sparse.stages_of(small)}
    assert {one.name for one in record_sparse.stages_of(large)} == {"wgmma", "tma"}


def right(problem, inputs, values, relative=None):
    return study.spot_check(problem, "forward", inputs, "y", np.ascontiguousarray(values), relative) == ""


def test_a_layer_channel_by_channel_has_dense_stages_pixel_by_pixel_beside_it():
    layer = dataclasses.replace(LAYER, layout="NCHW")
    ready = record_sparse.prepare(record_sparse.Group(layer, ""))
    assert {one.name for one in ready.stages} - {"wgmma_rows"} == {"rows"}  # that one is of compute capability 9.0
    assert ready.dense.layout == "NHWC" and "wgmma" in {one.name for one in ready.dense_stages}
    same = ready.inputs[0]["x"].transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(ready.dense_inputs[0]["x"], same)
    y = (same.astype(np.float64) @ ready.filters.T.astype(np.float64)).astype(np.float16)
    assert right(layer, ready.inputs[0], y.transpose(0, 3, 1, 2)) and right(ready.dense, ready.dense_inputs[0], y)


def test_a_layout_alone_is_planned():
    both = record_sparse.plan()
    for layout in LAYOUTS:
        one = record_sparse.plan(layouts=(layout,))
        assert one == [group for group in both if group.problem.layout == layout] != []


def test_dense_stages_are_judged_on_the_same_filters_and_fresh_inputs_keep_them():
    ready = record_sparse.prepare(record_sparse.Group(LAYER, ""))
    assert ready.dense.op == "pointwise" and (ready.filters == 0).mean() >= LAYER.form.sparsity
    first, second = ready.inputs
    assert (first["x"] != second["x"]).any()
    assert all((first[name] == second[name]).all() for name in ("w", "wi", "wc"))
    for one, other in zip(ready.inputs, ready.dense_inputs, strict=True):
        np.testing.assert_array_equal(one["x"], other["x"])
        y = (one["x"].astype(np.float64) @ ready.filters.T.astype(np.float64)).astype(np.float16)
        assert right(LAYER, one, y) and right(ready.dense, other, y) and not right(LAYER, one, y + np.float16(1))


def test_a_row_has_every_librarys_time_and_goes_through_a_record(tmp_path):
    made = row()
    assert made["speedups"] == {"cuBLAS": 1.5, "cuSPARSE": 10.0, "pointwise/forward/tensor": 1.25}
    assert (made["peer"], made["speedup_vs_peer"]) == ("PyTorch cuBLAS, pixels first", 1.5)
    assert (made["pattern"], made["sparsity"], made["op"]) == ("64:2:16", 0.875, "sparse")
    failed = record_sparse.row_of(record_sparse.Group(LAYER, ""), None, "no stage takes it", {}, {}, 4000.0)
    run = recorded(tmp_path, ceilings={}, sections={"sparse": [made, failed]})
    assert [dict(one) for one in run.sections["sparse"]][0]["speedups"] == made["speedups"]
    assert record_sparse.known([run]) == {shape_text(LAYER)}
    for name, value in (("sparsity", "much"), ("peers", 3), ("pattern", None)):
        with pytest.raises(RecordError, match=name):
            recorded(tmp_path / name, ceilings={}, sections={"sparse": [row() | {name: value}]})


@pytest.mark.parametrize("gpu", ["NVIDIA H100 80GB HBM3", None])
def test_what_is_missing_is_so_of_this_gpu(monkeypatch, gpu):
    """Without a GPU of the one whose records are shown."""
    monkeypatch.setattr("recording.present_name", lambda: gpu)
    found = record_sparse.recorded(types.SimpleNamespace(missing=True))
    assert found and {run.gpu for run in found} == {gpu or records.SHOWN}
    assert record_sparse.recorded(types.SimpleNamespace(missing=False)) == []


def test_each_librarys_fastest_way_counts_and_failures_do_not():
    tried = [
        Baseline("a", "cuSPARSE: pixels first", timed(9.0)), Baseline("b", "cuBLAS: pixels first", timed(3.0)),
        Baseline("c", "cuBLAS: filters first", timed(2.0)), Baseline("d", "PyTorch: pixels first", failure="no"),
    ]  # fmt: skip
    best = sparse_baselines.fastest_of_each(tried)
    assert list(best) == ["cuBLAS", "cuSPARSE"] and best["cuBLAS"].name == "c"


def test_every_library_has_a_way_and_layers_with_more_than_the_product_are_refused():
    assert {sparse_baselines.library(way) for way in sparse_baselines.ways(LAYER)} == set(sparse_baselines.LIBRARIES)
    for more in ({"bias": True}, {"activation": "relu"}, {"residual": True}):
        with pytest.raises(ValueError, match="the product alone"):
            sparse_baselines.ways(dataclasses.replace(LAYER, **more))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_ways_that_run_anywhere_are_right(layout):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = dataclasses.replace(LAYER, layout=layout)
    ready = record_sparse.prepare(record_sparse.Group(layer, ""))
    x, w = torch.from_numpy(ready.inputs[0]["x"]), torch.from_numpy(ready.filters)
    for way, prepare in sparse_baselines.ways(layer).items():
        if sparse_baselines.library(way) == "cuBLAS":
            call, output = prepare(x=x, w=w)
            assert right(layer, ready.inputs[0], output(call())["y"].numpy(), sparse_baselines.relative_error())
        else:
            with pytest.raises(RuntimeError):  # what does not run is said of the way, not raised by the run
                prepare(x=x, w=w)


@pytest.fixture
def cusparselt(monkeypatch):
    """cuSPARSELt's calls on the host, filters not compressed: `asked`, the algorithm and split of each product."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.sparse import SparseSemiStructuredTensorCUSPARSELT as Subclass

    asked = []

    def sparse_mm(packed, xt, bias=None, transpose_result=False, alg_id=0, split_k=1, split_k_mode=-1, **_):
        asked.append((alg_id, split_k))
        y = packed @ xt
        return y.t().contiguous() if transpose_result else y

    def search(*_):
        asked.append("search")
        return 7, 2, 1, 40

    monkeypatch.setattr(torch, "_cslt_compress", lambda w: w.clone())
    monkeypatch.setattr(torch, "_cslt_sparse_mm", sparse_mm)
    monkeypatch.setattr(torch, "_cslt_sparse_mm_search", lambda *_: search()[0])
    monkeypatch.setattr(torch._C, "_cusparselt", types.SimpleNamespace(mm_search=search), raising=False)
    monkeypatch.setattr(Subclass, "_validate_device_dim_dtype_shape", classmethod(lambda cls, w: None))
    return asked


@pytest.mark.parametrize("finds_a_split", [True, False])
def test_the_librarys_search_is_asked_once_and_what_it_found_is_used(cusparselt, monkeypatch, finds_a_split):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not finds_a_split:
        monkeypatch.delattr(torch._C, "_cusparselt")
    ready = record_sparse.prepare(record_sparse.Group(LAYER, ""))
    x, w = torch.from_numpy(ready.inputs[0]["x"]), torch.from_numpy(ready.filters)
    ways = {way: one for way, one in sparse_baselines.ways(LAYER).items() if way.startswith("cuSPARSELt")}
    assert len(ways) == 5
    for way, prepare in ways.items():
        cusparselt.clear()
        made = [prepare(x=x, w=w) for _ in range(3)]
        searches = cusparselt.count("search")
        assert searches == sparse_baselines.library(way).endswith("search"), way
        cusparselt.clear()
        for call, output in made:
            assert right(LAYER, ready.inputs[0], output(call())["y"].numpy(), sparse_baselines.relative_error()), way
        split = 2 if finds_a_split and "subclass" not in way else 1
        assert cusparselt == [(7, split) if searches else (0, 1)] * 3, way


def test_a_time_of_the_host_is_none_of_the_library(no_gpu, cusparselt, monkeypatch, tmp_path):
    note = "timed without a graph, so the host's launches may bound it: no capture"
    by_events = dataclasses.replace(timed(1.0), method="events", note=note)
    monkeypatch.setattr(timing, "time_launches", lambda launches, **how: by_events)
    group = record_sparse.Group(LAYER, "mobilenet_v1")
    made = record_sparse.measure(group, bench(), record_sparse.prepare(group))
    assert all(set(row["peers"]) == {"cuBLAS"} for row in made["sparse"])
    failed = [row["failure"] for row in made["peers"] if row["way"].startswith("cuSPARSELt")]
    assert failed == [f"it would be the host's time: {note}"] * 5


MACHINE = dataclasses.replace(fakes.MACHINE, l2_bytes=4000)
OURS = object()


def bench():
    return study.GpuBench(clock=OURS, machine=MACHINE, how=record_sparse.HOW, few=True)


@pytest.fixture
def no_gpu(monkeypatch):
    """PyTorch's tensors on the host, kernels on the interpreter: ours take 500 µs, libraries 1,000."""
    fakes.torch_on_host(monkeypatch)

    def time_launches(launches, *, clock, **how):
        for launch in launches[:1]:
            launch(0)
        return timed(500.0 if clock is OURS else 1000.0)

    monkeypatch.setattr(sparse_baselines, "TorchClock", lambda: None)
    monkeypatch.setattr(timing, "time_launches", time_launches)


@pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")
def test_a_problem_is_measured_beside_every_library_that_runs(no_gpu, tmp_path):
    group = record_sparse.Group(LAYER, "mobilenet_v1")
    made = record_sparse.measure(group, bench(), record_sparse.prepare(group))
    assert [row["stage"] for row in made["sparse"]] == [one.name for one in record_sparse.stages_of(LAYER)]
    for row in made["sparse"]:
        assert "failure" not in row and row["peers"] == {"cuBLAS": pytest.approx(1000)}
        assert row["speedups"]["cuBLAS"] == pytest.approx(2) and set(row["dense"]) >= {"pointwise/forward/wgmma"}
    assert {row["op"] for row in made["measurements"]} == {"sparse", "pointwise"}
    assert {row["way"] for row in made["peers"]} == set(sparse_baselines.ways(LAYER))
    failed = [row for row in made["peers"] if row["failure"]]
    assert failed and all(row["failure"].startswith("it does not run") for row in failed)
    run = recorded(tmp_path, made["measurements"], peers=made["peers"], sections={"sparse": made["sparse"]})
    assert len(run.sections["sparse"]) == len(made["sparse"])


@pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")
def test_a_wrong_result_has_no_time_and_says_so(no_gpu, monkeypatch, tmp_path):
    def spoil(y):
        y[0] = 99

    for one, good in ((LAYER, "pointwise/forward/tensor"), (record_sparse.dense_layer(LAYER), "sparse/forward/tensor")):
        wrong = registry.stage(f"{one.op}/forward/tensor")
        wrong = dataclasses.replace(wrong, kernel=fakes.Meddling(wrong.kernel_for(one), meddle=spoil))
        chosen = {registry.stage(good).op: [registry.stage(good)], one.op: [wrong]}
        monkeypatch.setattr(record_sparse, "stages_of", lambda problem, chosen=chosen: chosen[problem.op])
        group = record_sparse.Group(LAYER, "")
        made = record_sparse.measure(group, bench(), record_sparse.prepare(group))
        (row,) = made["sparse"]
        assert "WRONG" in row["failure"] and "99" in row["failure"]
        assert ("time_us" in row) == (one is not LAYER) and len(made["measurements"]) == 1


@pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")
def test_a_process_whose_context_is_gone_leaves_and_says_of_its_problem_why(no_gpu, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the script needs it")
    tasks, results, left, on = queue.Queue(), queue.Queue(), [], bench()
    for layer in (LAYER, dataclasses.replace(LAYER, F=64)):
        tasks.put(record_sparse.Group(layer, "mobilenet_v1"))

    def synchronize():
        if tasks.qsize() == 1:
            raise RuntimeError("CUDA error: an illegal instruction was encountered")

    def leave(status):
        left.append(status)
        raise SystemExit

    results.close = results.join_thread = lambda: None
    monkeypatch.setattr("torch.cuda.init", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(study, "GpuBench", lambda **how: on)
    monkeypatch.setattr(record_sparse, "measure", lambda group, *_: {"sparse": [row(group=group)]})
    monkeypatch.setattr(record_sparse.os, "_exit", leave)
    with pytest.raises(SystemExit):
        record_sparse.work(tasks, results, contextlib.nullcontext(), MACHINE)
    (failed,) = results.get()["sparse"]
    assert left == [1] and results.empty() and tasks.qsize() == 1
    assert failed["failure"].startswith("WRONG: RuntimeError: CUDA error: an illegal")
    assert failed["problem"] == records.describe_problem(LAYER) and "time_us" not in failed


def test_it_lists_what_it_would_measure(capsys):
    assert record_sparse.main(["--list", "--matrices"]) == 0
    *listed, last = capsys.readouterr().out.splitlines()
    assert listed and last == f"{len(listed)} problems"
    assert record_sparse.main(["--list", "--pattern", "3:4"]) == 2
    assert "3:4" in capsys.readouterr().err
