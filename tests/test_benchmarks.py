"""The scripts that record a GPU: what they plan, how they read others' answers, what they write. No GPU needed."""

import dataclasses
import os
import subprocess
import sys
import time
import types

import pytest
from compiler import needs_compiler
from fakes import BENCHMARKS, CEILINGS, ENVIRONMENT, MACHINE, recorded, script
from tables import stages, working

from dwlab import problems, records, study
from dwlab.gpu import provenance, target
from dwlab.kernels import dispatch, registry
from dwlab.measure import baselines, device
from dwlab.measure.timing import Timing
from dwlab.problems import PAPER, DepthwiseConv1d, references
from dwlab.records import RecordError, writing

on_interpreter = pytest.mark.skipif(target.mode == "gpu", reason="runs on the interpreter; a GPU has the script itself")
record_run, shapes, sanitize, recorded_kernels, record_layers, record_networks, ncu_layers = map(
    script,
    ("record_run", "shapes", "sanitize", "recorded_kernels", "record_layers", "record_networks", "ncu_layers"),
)  # fmt: skip
recording = sys.modules["recording"]  # by the name by which a process finds it


def test_every_stage_is_timed_at_the_papers_shape_and_those_for_the_roof_elsewhere():
    todo = registry.stages("depthwise1d")
    assert record_run.chosen(todo, PAPER, True) == [stage for stage in todo if stage.supports(PAPER)]
    for shape in map(problems.problem, record_run.SHAPES[1:]):
        here = record_run.chosen(todo, shape, False)
        assert {stage.path for stage in here} == {stage.path for stage in todo}  # each path has one at least
        assert all(stage.supports(shape) for stage in here)
        assert not any(stage.name in ("naive", "coalesced", "shared") for stage in here if stage.path != "backward")


JUNIT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase name="test_each_stage_passes_the_judge_on_the_gpu[depthwise1d/forward/naive]"/>
<testcase name="test_each_stage_passes_the_judge_on_the_gpu[depthwise1d/forward/wide]"><failure>no</failure></testcase>
<testcase name="test_the_interpreter_has_the_gpus_bits[wraps_32]"/>
<testcase name="test_the_interpreter_has_the_gpus_bits[votes]"><skipped/></testcase>
<testcase name="test_something_else"/>
</testsuite></testsuites>"""


def test_what_the_tests_said_is_recorded(tmp_path):
    (tmp_path / "tests.xml").write_text(JUNIT)
    tests = record_run.outcomes(tmp_path / "tests.xml")
    rows = record_run.comparisons(tests)
    assert [(row["passed"], row["failed"], row["skipped"]) for row in rows] == [(1, 1, 0), (1, 0, 1)]
    assert recorded(tmp_path, ceilings={}, sections={"comparisons": rows}).sections["comparisons"]


def test_the_tests_that_are_recorded_exist():
    text = (BENCHMARKS.parent / "tests" / "test_gpu.py").read_text()
    for name in record_run.COMPARED:
        assert f"def {name}(" in text


# ---------------------------------------------------------------------------------------------------- the grid


def test_the_grid_has_every_length_and_filter_and_every_size():
    found = [shape for group in shapes.grid() for shape in group]
    assert {(one.L, one.K) for one in found} == {(L, K) for L in shapes.LENGTHS for K in shapes.TAPS}
    assert len(set(found)) == len(found)
    for size in shapes.SIZES:
        near = [one for one in found if 0.7 < one.B * one.H * one.L / size < 1.4]
        assert {one.L for one in near} == set(shapes.LENGTHS)
        assert {one.padding for one in near} == {"causal", "same"}
    assert shapes.grid() == shapes.grid(), "in the same order each time"
    for group in shapes.grid():
        assert len({(one.L, one.K, one.shift) for one in group}) == 1, "kernels are shared"


@pytest.fixture
def bench(monkeypatch):
    """A study's buffers and checks on the interpreter; what is timed is not, PyTorch's ways neither."""
    times = iter(range(1, 1000))
    monkeypatch.setattr(baselines, "measure", lambda *_, **__: [])
    monkeypatch.setattr(shapes.timing, "time_launches", lambda *_, **__: Timing(next(times), 1, 1, 3, 1, "graph", ""))
    monkeypatch.setattr(shapes, "alone_us", lambda _: 1.0)
    return study.GpuBench(clock=object(), machine=MACHINE, how=shapes.DRAWN, few=True)


@on_interpreter
@pytest.mark.parametrize("path", problems.PATHS)
def test_what_dispatch_chooses_is_checked_as_one_stage(path, bench):
    problem = DepthwiseConv1d(9, 7, 31, 5, "same")
    way = shapes.Way(dispatch.launches(problem, path))
    with bench.prepare(problem, path, sets=1) as on:
        assert len(on.sets) == 1
        on.check(way)
        with pytest.raises(study.WrongResult, match="not written"):
            on.check(shapes.Way(()))
    row = shapes.grid_row(problem, path, bench)
    assert row["time_us"] > 0 and row["stage"] and "WRONG" not in str(row)


def grid_row(path="forward", time_us=300.0, peer_us=600.0, **more):
    row = {
        "op": "depthwise1d", "path": path, "problem": records.describe_problem(PAPER), "dtype": "float32",
        "stage": "wide", "time_us": time_us, "p10_us": time_us, "p90_us": time_us, "fraction_of_copy": 200 / time_us,
        "copy_bound_us": 200.0, "fma_bound_us": 80.0, "peer": "PyTorch conv1d", "peer_time_us": peer_us,
        "speedup_vs_peer": peer_us / time_us, "cold": "cold",
    }  # fmt: skip
    return row | more


TIMED = "time", "p10", "p90", "peer", "sp", "fra"
WRONG = {key: value for key, value in grid_row().items() if not key.startswith(TIMED)}
WRONG |= {"failure": "WRONG: y[0, 0, 0] is 1, not 2"}


def test_the_grid_is_summed_up_the_losses_and_the_wrong_ones_too(tmp_path):
    rows = [grid_row(), grid_row(peer_us=150.0), WRONG, grid_row("weight_grad", 220.0)]
    rows = [{**row, "problem": {**row["problem"], "B": 16384 + i}} for i, row in enumerate(rows)]  # a shape each
    summary = stages.grid([recorded(tmp_path, sections={"grid": rows})])
    forward = next(line for line in summary.splitlines() if line.startswith("| forward |"))
    # Three shapes: one faster, one slower, one without a time; least and median ratio; none at 85 % of copy.
    assert forward.startswith("| forward | 3 | 1 | 1 | 1 | 0.50 | 1.25 |") and forward.endswith("| 0 of 2 | 0 of 0 |")
    assert "| weight_grad | 1 | 1 | 0 | 0 |" in summary and "| 1 of 1 | 0 of 0 |" in summary


# ---------------------------------------------------------------------------------------------------- the sanitizer

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACES = "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
READ = "========= Invalid __global__ read of size 4 bytes\n=========     at kernel+0x70\n"
INVALID = f"========= COMPUTE-SANITIZER\n{READ}========= ERROR SUMMARY: 1 error\n"


def ended(status, stdout, stderr=""):
    return subprocess.CompletedProcess([], status, stdout, stderr)


@pytest.mark.parametrize(
    "done, clean, message",
    [
        (ended(0, CLEAN), True, ""),
        (ended(0, RACES), True, ""),
        (ended(97, INVALID), False, "Invalid __global__ read of size 4 bytes"),
        (ended(0, INVALID), False, "Invalid __global__ read"),
        (ended(98, CLEAN, "naive at B=1: y is wrong"), False, "status 98: naive at B=1: y is wrong"),
        (ended(0, ""), False, "status 0: no output"),
        (ended(124, "", "it took longer than 240 s"), False, "longer than 240 s"),
    ],
)
def test_only_a_run_that_says_so_is_clean(done, clean, message):
    found, said = sanitize.verdict(done)
    assert found is clean and message in said and bool(said) is not clean


@on_interpreter
def test_what_the_sanitizer_watches_runs_in_every_storage_type_and_is_held_to_the_reference(monkeypatch, capsys):
    stage = registry.stage(id := "pointwise/forward/tensor")
    assert {problem.dtype for problem in sanitize.problems_of(stage, "racecheck")} == set(stage.dtypes)
    assert sanitize.child(id, "racecheck") == 0
    right = references.reference
    monkeypatch.setattr(references, "reference", lambda *args: {name: y + 1e4 for name, y in right(*args).items()})
    assert sanitize.child(id, "racecheck") == sanitize.WRONG and "is wrong" in capsys.readouterr().err


def test_memcheck_sees_the_pairs_of_small_maps_too():
    """Filters and copies that ended behind an array: only pairs of many channels had them."""
    pair = registry.stage("fused/pwpw/int8")
    assert len(sanitize.small_maps(pair)) == 4
    racecheck, memcheck = (sanitize.problems_of(pair, tool) for tool in ("racecheck", "memcheck"))
    assert memcheck == racecheck + sanitize.small_maps(pair)
    wide = registry.stage("depthwise1d/forward/wide")
    assert sanitize.problems_of(wide, "memcheck") == sanitize.problems_of(wide, "racecheck")


def test_the_sanitizers_table_tells_a_kernel_that_has_changed_since(tmp_path):
    naive = "depthwise1d/forward/naive"
    known = {naive: registry.stage(naive).digest, "depthwise1d/forward/wide": "0" * 64}
    rows = [{"tool": "memcheck", "stage": id, "clean": True, "kernel_sha256": sha} for id, sha in known.items()]
    run = recorded(tmp_path, ceilings={}, sections={"sanitizer": rows})
    assert "| memcheck | 2 | 2 | 1 |" in working.sanitized([run])


def test_parts_that_are_not_known_are_refused(tmp_path):
    with pytest.raises(RecordError, match="a record has no part 'weather'"):
        writing.write(tmp_path, [], ENVIRONMENT, CEILINGS, sections={"weather": []})


# ------------------------------------------------------------------------------ records, and kernels of earlier digests


@needs_compiler
def test_the_code_of_a_row_is_that_of_its_tree():
    """As its own process finds it; what does not compile is told, and the others are compiled."""
    problem = records.describe_problem(DepthwiseConv1d(2, 2, 8, 3))
    jobs = [
        {"stage": f"depthwise1d/forward/{name}", "problem": problem | more, "dtype": "float32"}
        for name, more in (("naive", {}), ("naive", {"L": 4096}), ("coalesced", {}), ("strip", {}))
    ]
    *found, none = recorded_kernels.compiled(recorded_kernels.ROOT, jobs)
    assert len({one["code"] for one in found}) == 3, "another launch, another kernel"
    assert all(len(one["code"]) == 64 and one["tile"] is None for one in found)
    assert none["why"].startswith("StageError")


def test_two_trees_differ_in_code_tile_or_in_what_they_compile():
    one, other = {"code": "a", "tile": {"block_m": 1}}, {"code": "a", "tile": {"block_m": 2}}
    assert recorded_kernels.differs(one, one) == ""
    assert recorded_kernels.differs({"why": "x"}, {"why": "y"}) == "in neither tree: x"
    assert recorded_kernels.differs(one, other) == recorded_kernels.OTHER_TILE
    assert recorded_kernels.differs(one, {"code": "b", "tile": None}) == "other machine code or launch"
    assert recorded_kernels.differs({"why": "x"}, one) == "not in the first tree: x"
    assert recorded_kernels.differs(one, {"why": "x"}) == "not in the second tree: x"


def test_the_table_of_kernels_is_of_the_sources_that_are_there():
    table = recorded_kernels.read()
    assert {row["stage"] for row in table} <= {one.id for one in registry.stages()}  # a new one may have no row yet
    now = {row["stage"]: recorded_kernels.source(row["stage"], recorded_kernels.ROOT) for row in table}
    stale = [row["stage"] for row in table if now[row["stage"]] != row["source"]]
    assert not stale, "run, where there is a compiler: python benchmarks/recorded_kernels.py"


def test_a_share_of_the_problems_has_each_storage_type(monkeypatch):
    jobs = [{"stage": one, "dtype": kind, "text": n} for one in "ab" for kind in ("x", "y") for n in range(10)]
    found = recorded_kernels.drawn(jobs, 0.01, 3)
    assert [(job["stage"], job["dtype"]) for job in found] == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    assert len(recorded_kernels.drawn(jobs, 0.5, 3)) == 20 and recorded_kernels.drawn(jobs, 1, 3) == jobs


# ------------------------------------------------------------------------------------- drawn shapes, and processes


@pytest.mark.parametrize(
    "problem",
    [DepthwiseConv1d(2, 3, 21, 6, 2), DepthwiseConv1d(2, 2, 16, 5, dtype="bfloat16"), DepthwiseConv1d(1, 2, 3, 9)],
    ids=str,
)
@on_interpreter
def test_every_stage_is_held_against_float64_and_a_wrong_one_has_no_time(problem, bench, monkeypatch):
    fastest = {}
    for path in problems.PATHS:
        row = shapes.drawn_row(problem, path, bench, fastest)
        ids = {one.id for one in shapes.takers(problem, path)}
        pair = {", ".join(fastest[one].id for one in shapes.PAIR)} if path == "backward" else set()
        assert set(row["times"]) == ids | pair
        assert "failure" not in row
        assert dispatch.best(problem, path).id in ids
    naive = registry.stage("depthwise1d/forward/naive")
    doubled = dataclasses.replace(
        naive, launch=lambda problem: dataclasses.replace(naive.launch(problem), scalars=(problem.shift + 1,))
    )
    monkeypatch.setattr(shapes, "takers", lambda *_: [doubled])
    row = shapes.drawn_row(dataclasses.replace(problem, dtype="float32"), "forward", bench, {})
    assert row["times"] == {} and "naive: WrongResult" in row["failure"]


def doubled(tasks, results, gpu, start):
    """What processes do in the test below: 4 ends one of them, and none begins before all have taken what there is."""
    mine = recording.ahead(tasks, lambda task: task, gpu, start, recording.time.monotonic() + 20)
    for task in mine:
        with gpu, gpu:
            if task == 4:
                results.put("a reason")
                return
            results.put([2 * task])


def test_processes_share_tasks_and_one_that_ends_is_heard():
    barrier = recording.CONTEXT.Barrier(2)
    found = list(recording.shared(doubled, [1, 2, 3, 4], (barrier,), 2, 60.0))
    assert "a reason" in found and [2] in found and all(one in ([2], [4], [6], "a reason") for one in found)
    assert list(recording.shared(doubled, [1], (recording.CONTEXT.Barrier(1),), 1, 0.0)) == []


def ending(tasks, results, gpu):
    """What a process does in the test below: 1 ends it while it has the GPU."""
    for task in recording.taken(tasks):
        with gpu:
            if task == 1:
                os._exit(3)
            results.put([task])


def test_for_a_process_that_dies_with_the_gpu_another_one_begins():
    assert list(recording.shared(ending, [1, 2, 3], (), 1, 60.0)) == ["exit status 3", [2], [3]]


def never(tasks, results, gpu):
    """What a process does that cannot even begin."""
    os._exit(3)


def test_processes_that_die_before_they_take_a_task_are_as_many_as_tasks():
    began = time.monotonic()
    assert list(recording.shared(never, [1, 2], (), 1, 600.0)) == ["exit status 3"] * 2
    assert time.monotonic() - began < 300


@pytest.fixture
def recorded_here(monkeypatch):
    """`recording.record` of three tasks; answers: what comes of them. Returns its status and the runs that it wrote."""
    monkeypatch.setattr(baselines, "available", lambda: True)
    monkeypatch.setattr(device, "measure", lambda quick: MACHINE)
    monkeypatch.setattr(provenance, "environment", lambda machine: ENVIRONMENT)
    monkeypatch.setenv("DWLAB_TARGET", "simulated")

    def record(folder, answers, tasks=(1, 2, 3), listed=False):
        def shared(work, tasks, args, count, seconds):
            for answer in answers:
                if answer is KeyboardInterrupt:
                    raise answer
                yield answer

        monkeypatch.setattr(recording, "shared", shared)
        options = types.SimpleNamespace(folder=folder, seconds=30, processes=1, most=None, list=listed)
        monkeypatch.setattr(recording, "BEGAN", recording.time.monotonic())
        how = print, "things", lambda machine, left, count: (), lambda run: "the table", ["First."]
        status = recording.record("script", options, lambda: tasks, *how)
        return status, records.load_runs(folder)

    return record


GRID, NOTE = {"grid": [grid_row()]}, "Between."


@pytest.mark.parametrize("saved", [0.0, 1e9], ids=["saved each time", "saved at first"])
@pytest.mark.parametrize(
    "answers, status, rows, notes",
    [
        ([GRID, GRID, GRID | {"notes": [NOTE]}], 0, 3, ["First.", NOTE]),
        ([GRID, {"grid": [WRONG]}, GRID], 1, 3, ["First."]),
        ([GRID, "why"], 0, 1,
         ["First.", "A process ended early: why.", "2 of 3 things were not reached in 30 s."]),
        ([GRID, GRID, KeyboardInterrupt], 0, 2,
         ["First.", "The run was interrupted.", "1 of 3 things were not reached in 30 s."]),
    ],
)  # fmt: skip
def test_what_was_measured_is_one_record(
    recorded_here, tmp_path, capsys, monkeypatch, answers, status, rows, notes, saved
):
    monkeypatch.setattr(recording, "SAVED", saved)
    found, (run,) = recorded_here(tmp_path, answers)
    assert found == status and len(run.sections["grid"]) == rows and list(run.notes) == notes
    assert run.ceilings["copy_gbps"] == MACHINE.ceilings.copy_gbps and run.machine["name"] == run.gpu
    out = capsys.readouterr().out
    assert f"{rows} of 3\n" in out and f"{rows + 1} of 3\n" not in out and f"\n{run.file}\n\nthe table\n" in out
    assert (WRONG["failure"] in out) == status and (NOTE in out) == (NOTE in notes)


def test_what_would_be_measured_is_listed_and_what_there_is_not_refused(recorded_here, tmp_path, capsys, monkeypatch):
    assert recorded_here(tmp_path, [], listed=True) == (0, [])
    assert capsys.readouterr().out == "1\n2\n3\n3 things\n"


def test_where_nothing_is_to_do_or_was_done_no_record_is_written(recorded_here, tmp_path, capsys, monkeypatch):
    assert recorded_here(tmp_path, [], ()) == (0, []) and "nothing to measure" in capsys.readouterr().err
    assert recorded_here(tmp_path, ["why"]) == (1, [])
    assert "nothing was measured\nFirst.\nA process ended early: why." in capsys.readouterr().err
    monkeypatch.setattr(baselines, "available", lambda: False)
    assert recorded_here(tmp_path, [GRID]) == (2, []) and "script needs a GPU and PyTorch" in capsys.readouterr().err
