"""The study: what is timed, what is refused, what is said, with a fake device whose times are known."""

import dataclasses
import functools
import json
import re
import sys
from unittest import mock

import numpy as np
import pytest
from fakes import ENVIRONMENT, FORWARD, MACHINE, NAIVE, TIMES, Clock, FakeBench, Meddling, timed, written
from fakes import accepts as right
from mutated import mutate

from dwlab import problems, records, study
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.measure import baselines, timing
from dwlab.measure.baselines import Baseline
from dwlab.problems import PAPER, DepthwiseConv1d, layers, references
from dwlab.problems.layers import DepthwiseConv2d, Pointwise, SparsePointwise
from dwlab.study import Study, StudyError, WrongResult, sizes
from dwlab.study import bench as study_bench
from dwlab.study import run as running


class Wrong(str):
    passed = False


def rejecting(name):
    return lambda stage: Wrong("race on y at line 3\nmore") if stage.name == name else right(stage)


def checks(judge=right, counter=lambda stage, problem: (0, "")):
    return study.Checks(judge, counter)


CHECKS = checks()


def make(bench=None, checks=CHECKS, **more):
    return study.study("depthwise1d", "forward", bench=bench or FakeBench(), checks=checks, **more)


@functools.cache
def whole():
    """The study of all stages that nothing goes wrong with."""
    return make()


def by_name(made):
    return {row.stage: row for row in made.rows}


# ---------------------------------------------------------------------------------------------------- on a GPU


def test_figures_follow_from_time_and_compulsory_bytes_and_the_peer_is_the_fastest_that_ran():
    row = by_name(whole())["shared"].measured
    size = 4 * (2 * 16384 * 128 * 48 + 128 * 48)
    assert row.compulsory_bytes == size
    assert row.effective_gbps == pytest.approx(size / 800e-6 / 1e9)
    assert row.fraction_of_copy == pytest.approx(size / 800e-6 / 1e9 / 4000)
    assert row.speedup_vs_naive == pytest.approx(10)
    assert (row.peer, row.peer_time_us, row.speedup_vs_peer) == ("PyTorch 2.11.0 conv1d", 2800.0, pytest.approx(3.5))
    made = whole()
    names = [one["name"] for one in made.baselines]
    assert names == ["PyTorch 2.11.0 FFT", "PyTorch 2.11.0 bmm", "PyTorch 2.11.0 conv1d"]
    assert made.baselines[1]["failure"] == "out of" and made.baselines[1]["time"] is None
    assert made.baselines[0]["shape"] == records.describe_problem(PAPER)


def differing(stage, problem):
    return 64, "load sectors 5 counted, 4 predicted" if stage.name == "coalesced" else ""


@pytest.mark.parametrize(
    "name, bench, how, verdict, timed_and_kept",
    [
        ("shared", {}, checks(rejecting("shared")), "^race on y at line 3$", (False, False)),
        ("warp_tiled", {"wrong": ("warp_tiled",)}, CHECKS, "is 1, not 2", (True, False)),
        ("coalesced", {}, checks(counter=differing), "load sectors 5 counted, 4 predicted", (False, False)),
        # 805 MB in 150 µs: 5.4 TB/s of a 4 TB/s copy
        ("warp_tiled", {"times": TIMES | {"warp_tiled": 150.0}}, CHECKS, "bandwidth ceiling", (True, True)),
    ],
    ids=["the judge", "the measured shape", "the counter", "the ceiling"],
)
def test_a_kernel_that_fails_a_check_is_not_recorded_and_the_others_are(name, bench, how, verdict, timed_and_kept):
    bench = FakeBench(**bench)
    made = make(bench, how)
    row = by_name(made)[name]
    assert not made.passed and not row.passed and re.search(verdict, row.verdict)
    table = " ".join(made.table().split())
    assert "WRONG" in table and f"depthwise1d/forward/{name}: {row.verdict}" in table
    assert (("time", name) in bench.log, row.measured is not None) == timed_and_kept
    few = name, "flat"  # flat has no 48 taps
    assert [one.stage for one in made.measurements()] == [other for other in TIMES if other not in few]


def test_several_problems_each_have_their_own_buffers_naive_and_table():
    bench = FakeBench()
    shapes = [DepthwiseConv1d(4096, 128, 192, 48), DepthwiseConv1d(16381, 127, 47, 31, "same")]
    made = make(bench, problem=shapes)
    assert [entry for entry in bench.log if entry[0] != "time"] == [
        (what, *rest)
        for shape in shapes
        for what, *rest in [("prepare", str(shape), "forward"), ("peers",), ("close", str(shape), "forward")]
    ] + [("counters",)]
    # Neither shape is for every stage: rows of 192 do not fit into registers, rows of 47 are not for `wide`.
    assert [row.stage for row in made.rows] == [one.name for shape in shapes for one in FORWARD if one.supports(shape)]
    assert len(made.rows) < 2 * len(FORWARD)
    assert len(made.table().split("\n\n")) == 3  # and one of counters
    assert all(str(shape) in made.table() for shape in shapes)


def test_what_is_written_is_what_was_measured_counters_of_the_hardware_too(tmp_path):
    made = whole()
    run = records.read_run(made.write(tmp_path / "run.json"))
    assert [dataclasses.replace(row, file="") for row in run.measurements] == list(map(written, made.measurements()))
    assert run.measurements[0].date == ENVIRONMENT["date"]
    assert run.ceilings["copy_gbps"] == 4000.0 and run.machine["sms"] == 132
    assert len(run.peers) == 3
    assert run.measurements[0].kernel_sha256 == registry.stage("depthwise1d/forward/naive").digest
    assert len(made.counters) == 2 * len(made.rows)  # at the measured shape and at the one that the interpreter counted
    assert {one["problem"]["B"] for one in made.counters} == {PAPER.B, problems.SMALL.B}
    assert "counted by the hardware" in made.table()
    assert [dict(one) for one in run.counters] == json.loads(json.dumps(made.counters))


def test_what_got_slower_than_an_earlier_run_is_named(tmp_path, run, monkeypatch):
    earlier = records.read_run(whole().write(tmp_path / "run.json"))
    assert whole().slower(earlier, 0) == []
    now = make(bench=FakeBench({**TIMES, "shared": TIMES["shared"] * 1.2}))
    (line,) = now.slower(earlier, 0.1)
    assert line.startswith("depthwise1d/forward/shared ") and "+20.0%" in line
    assert now.slower(earlier, 0.21) == []
    with pytest.raises(StudyError, match="of another GPU, not of"):
        now.slower(dataclasses.replace(earlier, environment={**earlier.environment, "gpu": "another GPU"}), 0.1)
    with pytest.raises(StudyError, match="no stage and problem of this study"):
        now.slower(dataclasses.replace(earlier, measurements=()), 0.1)
    monkeypatch.setattr(running, "study", lambda *a, **k: now)
    monkeypatch.setattr(target, "mode", "gpu")
    status, _, err = run("study", "--against", str(tmp_path / "run.json"))
    assert status == 1 and "slower: depthwise1d/forward/shared" in err
    assert run("study", "--against", str(tmp_path / "run.json"), "--tolerance", "25")[0] == 0


def test_where_counters_cannot_be_read_the_study_says_why_and_goes_on(tmp_path):
    made = make(FakeBench(ncu="this user may not read the GPU's counters"))
    assert made.passed and made.counters == ()
    assert "No hardware counters: this user may not read" in made.table()
    assert records.read_run(made.write(tmp_path / "run.json")).counters == ()


# ---------------------------------------------------------------------------------------------------- simulated


def simulated(runs=(), **more):
    with mock.patch.object(target, "mode", "simulated", create=True):
        return study.study("depthwise1d", "forward", runs=runs, checks=CHECKS, **more)


def test_in_simulated_mode_nothing_is_timed_and_empty_cells_say_so():
    made = simulated()
    assert made.passed and all(row.measured is None and row.source == "" for row in made.rows)
    assert "Nothing is timed in simulated mode; an empty cell has no record" in made.table()
    assert "µs" in made.table() and not re.search(r"\d µs", made.table())
    for row in made.to_dict()["rows"]:
        assert row["time_us"] is None and row["effective_gbps"] is None and row["peer"] is None
    with pytest.raises(StudyError, match="nothing was measured.*needs a GPU"):
        made.write("unused.json")


def test_in_simulated_mode_recorded_times_are_shown_and_labelled(tmp_path):
    whole().write(tmp_path / "run.json")
    made = simulated(records.load_runs(tmp_path))
    row = by_name(made)["shared"]
    assert row.measured.time_us == 800.0
    assert row.source == "recorded on NVIDIA H200 (compute capability 9.0), 2026-11-21"
    assert "Nothing is timed in simulated mode. Times, GB/s and ratios are recorded on NVIDIA H200" in made.table()
    assert made.measurements() == []
    other = simulated(records.load_runs(tmp_path), problem=DepthwiseConv1d(8, 8, 48, 48))
    assert all(row.measured is None for row in other.rows)


def test_a_record_of_an_earlier_kernel_is_said_to_be_one(tmp_path):
    path = whole().write(tmp_path / "run.json")
    data = json.loads(path.read_text())
    next(row for row in data["measurements"] if row["stage"] == "shared")["kernel_sha256"] = "0" * 64
    path.write_text(json.dumps(data))
    made = by_name(simulated(records.load_runs(tmp_path)))
    assert made["shared"].source.endswith("2026-11-21 (of an earlier shared kernel)")
    assert made["naive"].source.endswith("2026-11-21")


@pytest.mark.skipif(target.mode == "gpu", reason="what simulated mode answers")
def test_the_gpus_bench_refuses_simulated_mode():
    with pytest.raises(timing.TimingError, match="simulated mode"):
        study.GpuBench()


def test_a_formula_that_is_off_by_one_sector_is_caught():
    stage = registry.stage("depthwise1d/forward/shared")

    def off(problem):
        said = stage.traffic(problem)
        return dataclasses.replace(said, load_sectors=said.load_sectors + 1, exact=True)

    counted, differs = study.count(dataclasses.replace(stage, traffic=off), problems.SMALL)
    assert re.fullmatch(r"load sectors [\d,]+ counted, [\d,]+ predicted", differs)


def test_the_counted_problem_is_small_and_keeps_what_matters():
    assert study.counted_problem(PAPER) == problems.SMALL
    for sizes_ in ((1, 1, 1, 1), (9, 300, 5000, 7, "same"), (2, 3, 4096, 4)):
        problem = DepthwiseConv1d(*sizes_)
        small = study.counted_problem(problem)
        assert small.B * small.H * small.L <= sizes.COUNTED_OUTPUTS
        assert (small.K, small.padding) == (problem.K, problem.padding)
        assert small.B <= problem.B and small.H <= problem.H and small.L <= problem.L


TOO_LONG = [DepthwiseConv1d(*one) for one in ((1, 1, 48, 10**8), (1, 1, 10**10, 3), (10**5, 4, 10**5, 10**5))]


@pytest.mark.parametrize("problem", [*TOO_LONG, "small", [], [(1, 2, 8, 3)]])
def test_rows_too_long_to_predict_and_what_is_no_problem_are_refused_at_once(problem):
    says = "L.K = .* give a smaller L or K" if problem in TOO_LONG else "is no problem, nor a sequence of some"
    with pytest.raises(StudyError, match=says):
        make(problem=problem)


# ---------------------------------------------------------------------------------------------------- the GPU's bench
# Its buffers and checks on the interpreter, with a clock of known times.


TINY = DepthwiseConv1d(2, 3, 8, 5)
on_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="runs the bench on the interpreter")


def bench_run(kernel=None, machine=MACHINE):
    bench = study.GpuBench(quick=True, clock=Clock(500.0), machine=machine)
    stage = NAIVE.with_kernel(kernel) if kernel else NAIVE
    with bench.prepare(TINY, "forward") as prepared:
        return prepared, prepared.time(stage)


@on_interpreter
def test_the_bench_checks_times_and_checks_again_on_fresh_inputs_in_sets_that_exceed_the_cache():
    prepared, timed = bench_run()
    assert timed.median_us == pytest.approx(500)
    assert prepared.seed == 2 * timing.MAX_SETS  # every set was filled twice, each time with other numbers
    assert prepared.sets == []
    small_cache = dataclasses.replace(MACHINE, l2_bytes=2 * TINY.compulsory_bytes("forward"))
    prepared, timed = bench_run(machine=small_cache)
    assert prepared.seed == 2 * 6 and timed.cold.startswith("cold: 0.0 MB in 6 sets, 3.0 times")


@on_interpreter
@pytest.mark.parametrize("problem", [
    TINY, DepthwiseConv2d(2, 8, 5, 5, 3, layout="NHWC", bias=True), Pointwise(2, 8, 8, 3, 3, dtype="int8", zero_x=3),
    SparsePointwise(1, 32, 32, 1, 8, pattern="2:4"), SparsePointwise(2, 64, 32, 1, 4, pattern="16:2:16"),
], ids=str)  # fmt: skip
def test_inputs_that_are_moved_on_are_still_inputs(problem, monkeypatch):
    monkeypatch.setattr(study_bench, "MOVED_ON", 0)
    bench = study.GpuBench(quick=True, clock=Clock(500.0), machine=MACHINE)
    with bench.prepare(problem, "forward") as prepared:
        first = prepared.inputs
        prepared.time(registry.stage(f"{problem.op}/forward/naive"))
        assert any((prepared.inputs[name] != values).any() for name, values in first.items())


def scribble(y):
    y[0, 0, 0] = 1e9


def stale(y):
    y[:] = FIRST


FIRST = references.reference(TINY, "forward", TINY.inputs(seed=1))["y"].astype(np.float32)


MEDDLERS = {
    "wrong at once": Meddling(NAIVE.kernel, 0, scribble), "wrong after the check": Meddling(NAIVE.kernel, 1, scribble),
    "stale after the check": Meddling(NAIVE.kernel, 1, stale), "always the first": Meddling(NAIVE.kernel, 0, stale),
    "48 of 48 elements of y were not written": Meddling(None),
}  # fmt: skip


@on_interpreter
@pytest.mark.parametrize("what", MEDDLERS)
def test_a_kernel_that_is_right_only_while_it_is_watched_is_caught(what):
    with pytest.raises(WrongResult, match="depthwise1d/forward/naive at B=2 H=3 L=8 K=5") as told:
        bench_run(MEDDLERS[what])
    assert "elements" not in what or what in str(told.value)


@on_interpreter
def test_a_whole_study_on_the_bench():
    bench = study.GpuBench(quick=True, clock=Clock(500.0), machine=dataclasses.replace(MACHINE, l2_bytes=1000))
    # What is timed is really launched, again and again: the stages that are quick to interpret.
    made = make(bench, problem=TINY, stages=registry.stages("depthwise1d", "forward")[:4])
    assert made.passed and len(made.rows) == 4
    for row in made.rows:
        assert row.measured.time_us == pytest.approx(500) and row.measured.method == "events"
        assert row.measured.peer is None or row.measured.peer.startswith("PyTorch")


# ---------------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(
    "problem, free_mb, needs",
    [
        (PAPER, 512, "needs 805.3 MB of GPU memory for x, w, y"),
        (study.LAYERS["fused", "pwdw"][0], 20, "MB of GPU memory for x, w1, b1, w2, b2, y"),
    ],
    ids=lambda one: getattr(one, "op", ""),
)
def test_too_large_a_problem_says_how_much_and_names_a_shape_that_fits(problem, free_mb, needs):
    path = problem.main_path
    with pytest.raises(study.OutOfMemory) as caught:
        study.check_memory(problem, path, 1, free_mb * 10**6)
    text = str(caught.value)
    assert needs in text and f"{free_mb}.0 MB are free" in text
    shape = re.search(r'--problem "(.+)" \(([\d.]+) MB\)', text)
    fits = layers.problem(shape[1])
    assert fits.op == problem.op and study.memory_needed(fits, path) <= free_mb * 10**6 / 2
    assert float(shape[2]) == pytest.approx(study.memory_needed(fits, path) / 1e6, abs=0.05)
    study.check_memory(fits, path, 1, free_mb * 10**6)
    with pytest.raises(study.OutOfMemory, match="too little for any shape"):
        study.check_memory(problem, path, 1, 16)


# ---------------------------------------------------------------------------------------------------- spot check

SPOT = DepthwiseConv1d(40, 9, 31, 7, "same")


def solved(problem=SPOT, path="forward"):
    inputs = problem.inputs(path, seed=3)
    name = problem.outputs(path)[-1]
    return inputs, name, references.reference(problem, path, inputs)[name].astype(np.float32)


@pytest.mark.parametrize("path", problems.PATHS)
@pytest.mark.parametrize("problem", [SPOT, DepthwiseConv1d(1, 1, 1, 1), DepthwiseConv1d(3, 20, 5, 9)])
def test_a_right_output_passes(problem, path):
    inputs, name, values = solved(problem, path)
    assert study.spot_check(problem, path, inputs, name, values) == ""
    assert study.spot_check(problem, path, inputs, name, values, relative=1e-5) == ""


@pytest.mark.parametrize("at", [(0, 0, 0), (39, 8, 30), (0, 8, 15), (39, 0, 1)])
def test_a_wrong_corner_and_one_unwritten_element_anywhere_are_found(at):
    inputs, name, values = solved()
    values[at] += 1
    assert study.spot_check(SPOT, "forward", inputs, name, values).startswith(f"y{list(at)} is ")
    values[17, 4, 9] = np.nan
    wrong = study.spot_check(SPOT, "forward", inputs, name, values)
    assert wrong == "1 of 11,160 elements of y were not written or are not finite, the first at (17, 4, 9)"


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("pattern", ["", "16:2:8"])
def test_of_a_large_map_some_rows_are_checked_the_first_and_the_last_among_them(layout, pattern, monkeypatch):
    monkeypatch.setattr(sys.modules["dwlab.study.spot_check"], "EXCERPT_PIXELS", 2**9)  # the name is the function's
    more = f"float16 residual {pattern}".strip()
    problem = layers.problem(f"N=1 C=24 F=32 H=40 W=6 {layout} {more}")
    inputs, name, values = solved(problem)
    assert study.spot_check(problem, "forward", inputs, name, values.astype(np.float16)) == ""
    for row in (0, 39):
        at = (0, 31, row, 5) if layout == "NCHW" else (0, row, 5, 31)
        wrong = values.astype(np.float16)
        wrong[at] += 3
        assert study.spot_check(problem, "forward", inputs, name, wrong).startswith(f"y{list(at)} is ")


def test_a_reversed_filter_a_wrong_shape_and_tf32s_accuracy_are_found():
    inputs, name, values = solved()
    flipped = dict(inputs, w=inputs["w"][:, ::-1].copy())
    for relative in (None, 1e-5):
        assert study.spot_check(SPOT, "forward", flipped, name, values, relative) != ""
    assert "has shape (40, 9, 30)" in study.spot_check(SPOT, "forward", inputs, name, values[:, :, :-1])
    # TF32 keeps 10 bits of the significand: products are off by about 2**-11 each.
    rough = {key: (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for key, array in inputs.items()}
    less = references.reference(SPOT, "forward", rough)["y"].astype(np.float32)
    assert "of its norm" in study.spot_check(SPOT, "forward", inputs, name, less, relative=1e-5)


# ---------------------------------------------------------------------------------------------------- peers


SIZES = [(3, 5, 48, 48), (2, 3, 31, 8, "same"), (2, 4, 17, 5, 0), (2, 4, 17, 5, 3), (1, 1, 1, 1), (2, 3, 4, 9, 2),
         (1, 2, baselines.TOEPLITZ_LENGTH + 1, 3)]  # fmt: skip
SHAPES = [DepthwiseConv1d(*sizes) for sizes in SIZES]


@pytest.mark.parametrize("path", problems.PATHS)
@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_every_way_of_pytorch_computes_the_same(problem, path, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its ways are not checked here")
    monkeypatch.setattr(torch, "compile", lambda module, **how: module)  # compiling takes seconds for each
    inputs = problem.inputs(path, seed=5)
    ways = baselines.ways(problem, path) | baselines.compiled_ways(problem, path)
    kinds = {baselines.kind(way) for way in ways}
    assert kinds >= set(baselines.LIBRARY_WAYS) - ({"compile"} if path != "forward" else set())
    assert ("bmm" in kinds) == (problem.L <= baselines.TOEPLITZ_LENGTH)
    for way, prepare in ways.items():
        call, outputs = prepare(**{name: torch.from_numpy(values) for name, values in inputs.items()})
        found = outputs(call())
        assert set(found) == set(problem.outputs(path)), way
        for name, tensor in found.items():
            values = tensor.contiguous().numpy()
            assert study.spot_check(problem, path, inputs, name, values, relative=1e-5) == "", way


def test_the_fastest_of_some_kinds():
    ran = [Baseline("a", "bmm: a matrix product", timed(1.0)), Baseline("b", "conv1d backward: NCL", timed(3.0))]
    ran.append(Baseline("c", "FFT: rfft", timed(2.0)))
    assert baselines.fastest(ran).name == "a" and baselines.fastest(ran, baselines.LIBRARY_WAYS).name == "c"
    assert baselines.fastest(ran, ("conv1d",)).name == "b" and baselines.fastest(ran, ("conv2d",)) is None


# ---------------------------------------------------------------------------------------------------- command


@pytest.mark.skipif(target.mode == "gpu", reason="what simulated mode answers")
def test_a_record_without_a_gpu_is_refused_before_any_work(run, tmp_path):
    for option, says in (("--record", "python -m dwlab records"), ("--against", "")):
        status, _, err = run("study", option, str(tmp_path / "x.json"))
        assert status == 2 and f"{option} needs a GPU" in err and says in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(target.mode == "gpu", reason="takes a GPU's time: tests/test_gpu.py")
def test_the_command_in_simulated_mode(run, monkeypatch):
    monkeypatch.setattr(running, "_judge", right)  # whose verdicts on all stages are tests/test_check.py's
    status, out, err = run("study", "--problem", "small", "--path", "input_grad", "--json")
    made = json.loads(out)
    assert status == 0 and made["passed"] is True and made["mode"] == "simulated" and made["ceilings"] is None
    takers = [one.name for one in registry.stages("depthwise1d", "input_grad") if one.supports(problems.SMALL)]
    assert [row["stage"] for row in made["rows"]] == takers
    for row in made["rows"]:
        assert row["predicted_bytes"] == row["counted_bytes"] == row["counted_prediction"]
    assert err == ""  # no progress bar in a pipe


def test_a_failed_check_is_exit_status_1(run, monkeypatch):
    failed = make(checks=checks(rejecting("naive")))
    monkeypatch.setattr(running, "study", lambda *a, **k: failed)
    status, out, _ = run("study")
    assert status == 1 and "WRONG" in out


@pytest.mark.skipif(target.mode == "gpu", reason="a kernel made for a GPU is not judged on the laptop GPU")
def test_the_real_judge_rejects_a_kernel_and_the_study_says_why():
    wrong = mutate("depthwise1d/forward/naive", "w[h, j] *", "w[h, w.shape[1] - 1 - j] *")
    with mock.patch.object(target, "mode", "simulated", create=True):
        made = study.study(problem=problems.SMALL, stages=[wrong], runs=[])
    assert not made.passed and not made.rows[0].passed
    assert "depthwise1d/forward/naive: FAILED" in made.table() and "; " in made.rows[0].verdict


def test_what_cannot_be_recorded_is_not_lost(run, monkeypatch, tmp_path):
    made = whole()
    monkeypatch.setattr(target, "mode", "gpu", raising=False)
    monkeypatch.setattr(running, "study", lambda *a, **k: made)

    def full(*_, **__):
        raise records.RecordError("the record 'run.json' cannot be written: no space left on device")

    monkeypatch.setattr(Study, "write", full)
    status, out, err = run("study", "--record", str(tmp_path / "run.json"))
    assert status == 2 and "no space left" in err
    assert json.loads(err[err.index("{") :])["rows"][0]["time_us"] == 8000.0


def test_an_existing_record_is_refused_before_any_work(run, monkeypatch, tmp_path):
    (tmp_path / "run.json").write_text("precious")
    monkeypatch.setattr(target, "mode", "gpu", raising=False)
    monkeypatch.setattr(running, "study", lambda *a, **k: pytest.fail("it measured first"))
    status, out, err = run("study", "--record", str(tmp_path / "run.json"))
    assert status == 2 and "never overwritten" in err
