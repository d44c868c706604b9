"""`python -m dwlab tune`, `dwlab.tune`, what journals decide of launches, and sweeps: without a GPU."""

import contextlib
import json
import queue
import types
from dataclasses import asdict, replace

import numpy as np
import pytest
from fakes import script
from tuning_benches import Plain, doubled, doubling

from dwlab import cuda, stage, tune
from dwlab.gpu import target
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import layers
from dwlab.records.journal import COUNTED, Journal, JournalError, Key, Tried, text
from dwlab.tuning import bench, race, replay, report, search, space, stages, strategies, tables
from dwlab.tuning.worker import Inline, Lost

pytestmark = pytest.mark.skipif(target.mode == "gpu", reason="what is tried here is the interpreter's")

TENSOR = "pointwise/forward/tensor"
LAYER = layers.problem("N=1 C=32 F=32 H=7 W=7 NHWC bias relu")
SUBJECT = space.subject(TENSOR)
SPACE = SUBJECT.space(LAYER)


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch):
    for name in ("DWLAB_TUNE", tuned.VARIABLE):
        monkeypatch.delenv(name, raising=False)


def key(**changes):
    """What a measurement of TENSOR on LAYER on an H200 would hold for."""
    found = Key(
        "NVIDIA H200", "9.0", 132, {"driver": "580.1"}, SUBJECT.digest, SPACE.digest, TENSOR, str(LAYER), "float32"
    )
    return replace(found, **changes)


def made_up(place):
    """µs of a candidate: the last but one is the fastest."""
    return 5.0 if place == len(SPACE) - 2 else 10.0 + place


def sweep_of(path, **changes):
    """A whole sweep as `tune` keeps it: made up times of the tensor kernel's tiles."""
    tried = [Tried(one, times_us=(made_up(i),) * 4) for i, one in enumerate(SPACE.candidates)]
    found = search.search(
        SPACE, replay.Sweep(SPACE, tried), strategies.exhaustive, journal=Journal(path), key=key(**changes)
    )
    assert found.winner == len(SPACE) - 2
    return SPACE.candidates[found.winner]


# --- stages as benches ------------------------------------------------------------------------------------------------


@cuda.jit
def nothing(x, w, b, m, r, y):
    pass


def test_without_a_gpu_each_tile_is_checked_and_counted():
    with contextlib.closing(stages.StageBench(TENSOR, LAYER)) as one:
        found = search.search(SPACE, Inline(one), strategies.exhaustive, most=2)
    assert one.exact and all(len(tried.times_us) == 1 for tried in found.tried.values())
    assert found.time_us > bench.LAUNCH_US


def test_a_stage_that_writes_nothing_is_incorrect():
    what = space.Subject(TENSOR, (stage(TENSOR).with_kernel(nothing),))
    with (
        contextlib.closing(stages.StageBench(what, LAYER)) as one,
        pytest.raises(race.Out, match="not written"),
    ):
        one.judge(SPACE.candidates[0])


def test_the_stages_of_a_path_are_candidates_too():
    what, rows = space.subject("depthwise1d/forward"), layers.problem("1,2,24,3")
    made = what.space(rows)
    with contextlib.closing(stages.StageBench(what, rows)) as one:
        found = search.search(made, Inline(one), strategies.exhaustive, most=3)
    assert len({tried.candidate["stage"] for tried in found.tried.values() if tried.ok}) == 3


# --- the command ------------------------------------------------------------------------------------------------------


def test_a_run_without_a_gpu_says_that_it_counted(run, tmp_path):
    files = [tmp_path / name for name in ("j.jsonl", "p.svg", "t4.json")]
    options = ("--journal", files[0], "--plot", files[1], "--t4", files[2], "--most", "2")
    status, out, err = run("tune", TENSOR, *map(str, options))
    out = " ".join(out.split())
    assert status == 0 and "No time was measured" in out and "counted µs" in out and "in place of N=1" in out
    assert "measured on" not in out and err.startswith("wrote ") and all(one.stat().st_size for one in files)
    assert [known.counted for known, _ in Journal(files[0]).read()] == [True] * 3  # two and who won
    status, out, _ = run("tune", TENSOR, str(LAYER), "--journal", str(files[0]), "--most", "2", "--json")
    made = json.loads(out)
    assert made["known_before"] == made["tried"] == 2 and "time_us" not in out
    assert made["best"]["counted_us"] > 1 and len(made["curve"]["counted_us"]) == 2


def test_a_replay_says_what_was_measured_and_where(run, tmp_path):
    sweep_of(tmp_path / "j.jsonl")
    status, out, err = run(
        "tune", TENSOR, str(LAYER), "--replay", str(tmp_path / "j.jsonl"), "--strategy", "exhaustive"
    )
    out = " ".join(out.split())
    assert (status, err) == (0, "") and "measured on NVIDIA H200" in out and "Replayed from" in out
    assert ": 5 µs" in out and ": 10 µs, 100.00% more" in out and "counted" not in out
    status, out, _ = run("tune", TENSOR, "--replay", str(tmp_path / "j.jsonl"), str(LAYER), "--most", "1", "--json")
    made = json.loads(out)
    assert status == 0 and made["tried"] == 1 and made["best"]["time_us"] == made["default"]["time_us"] == 10


@pytest.mark.parametrize("how", ["--off", "variable"])
def test_switched_off_the_shipped_default_is_taken_and_named(run, monkeypatch, how):
    monkeypatch.setattr(stages, "StageBench", None)
    if how == "variable":
        monkeypatch.setenv("DWLAB_TUNE", "off")
    status, out, _ = run("tune", TENSOR, str(LAYER), *([how] if how == "--off" else []))
    assert status == 0 and "Nothing was searched (" in out and "the least predicted cost" in out
    assert tables.name(SPACE.candidates[0], SPACE) in out


def test_a_journal_of_another_device_or_version_is_named_and_not_used(run, tmp_path):
    path = tmp_path / "j.jsonl"
    sweep_of(path, gpu="NVIDIA L4", dtype="float16")
    status, _, err = run("tune", TENSOR, str(LAYER), "--replay", str(path), "--gpu", "h200")
    assert status == 2 and "dtype: float16, here float32" in err and "gpu: NVIDIA L4, here NVIDIA H200" in err
    status, out, err = run("tune", TENSOR, str(LAYER), "--journal", str(path), "--most", "1")
    assert status == 0 and "gpu: NVIDIA L4, here none; counted" in err and "driver: 580.1, here none" in err
    assert "before" not in out


def test_damaged_lines_and_parts_of_a_sweep_are_reported(run, tmp_path):
    path = tmp_path / "j.jsonl"
    sweep_of(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{half a li\n", *lines[1:]]))
    status, _, err = run("tune", TENSOR, str(LAYER), "--replay", str(path))
    assert status == 0 and "1 damaged (line 2)" in err
    path.write_bytes(b"".join(lines[:3]))
    status, _, err = run("tune", TENSOR, str(LAYER), "--replay", str(path))
    assert status == 2 and "has 3 candidates" in err and "a part of its space" in err


# --- the report -------------------------------------------------------------------------------------------------------


def test_the_report_has_a_row_a_sweep(run, tmp_path):
    sweep_of(tmp_path / "h200.jsonl")
    sweep_of(tmp_path / "h100.jsonl", gpu="NVIDIA H100")
    Journal(tmp_path / "h100.jsonl").append(key(gpu="NVIDIA L4"), Tried(SPACE.candidates[0], times_us=(1.0,)))
    status, out, err = run("tune", "--report", str(tmp_path), "--json")
    rows = json.loads(out)
    assert status == 0 and [row["gpu"] for row in rows] == ["NVIDIA H100", "NVIDIA H200"] and "left out" in err
    one = rows[1]
    assert one["space"] == one["measured"] == len(SPACE) and one["at"] == 1 and not one["counted"]
    assert one["default"] == one["model"] == one["random"] == 1.0  # 10 µs, where 5 are the least
    status, out, _ = run("tune", "--report", str(tmp_path))
    assert status == 0 and "regret of the model's search with 5% of the space: median 100.0%" in out
    assert ("Optuna is not installed" in out) == (one["optuna"] is None)


# --- what a launch gets -----------------------------------------------------------------------------------------------


def test_a_journals_winner_is_the_tile_that_a_launch_gets(tmp_path, monkeypatch):
    one = stage(TENSOR)
    before, launch = one.config(LAYER), one.launch(LAYER)
    won = TileConfig(**sweep_of(tmp_path / "j.jsonl"))
    assert won != before and one.why_config(LAYER) == "the least predicted cost"
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path))
    assert one.config(LAYER) == won and one.launch(LAYER) == one.with_config(won).launch(LAYER) != launch
    assert one.why_config(LAYER) == "the fastest of a search on NVIDIA H200 (j.jsonl, driver 580.1)"
    assert one.with_config(before).config(LAYER) == before  # who takes a tile gets it
    assert SUBJECT.space(LAYER).candidates[0] == asdict(before)  # a space stays as it was recorded
    # Other problems, storage types and GPUs are as before, one of the same kind with another name too.
    other = replace(LAYER, N=2)
    assert one.config(other) == one.config(other, measured=False)
    for gpu in (gpus.Gpu((9, 0), 132, "NVIDIA H100 80GB HBM3"), gpus.Gpu((9, 0), 132), (9, 0)):
        assert one.config(LAYER, gpu) == (won if gpu == (9, 0) else before), gpu
    monkeypatch.setenv(gpus.VARIABLE, gpus.environment()[gpus.VARIABLE])  # as processes that compile ahead have it
    assert one.config(LAYER) == won
    monkeypatch.setenv(tuned.VARIABLE, "off")
    assert one.config(LAYER) == before


@pytest.mark.parametrize(
    "changes", [{"kernel": "x" * 64}, {"gpu": f"{COUNTED}, with the ceilings of NVIDIA H200"}, {"sparsity": "2:4"}]
)
def test_a_winner_of_another_kernel_or_that_was_counted_decides_nothing(tmp_path, monkeypatch, changes):
    before = stage(TENSOR).config(LAYER)
    sweep_of(tmp_path / "j.jsonl", **changes)
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "j.jsonl"))
    assert stage(TENSOR).config(LAYER) == before


def test_a_winner_that_is_no_tile_of_the_stage_decides_nothing(tmp_path, monkeypatch):
    before = stage(TENSOR).config(LAYER)
    for odd in ({"block_m": 7}, {"warps": 3}):
        Journal(tmp_path / "j.jsonl").append(key(), Tried(odd, times_us=(1.0,), won=True))
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "j.jsonl"))
    assert stage(TENSOR).config(LAYER) == before


# --- a kernel of one's own --------------------------------------------------------------------------------------------


def numbers():
    return np.arange(1, 101, dtype=np.float32), np.zeros(100, np.float32)


def test_anybodys_kernel_is_tuned(tmp_path):
    given = {"reference": doubled, "args": numbers(), "journal": tmp_path / "j.jsonl"}
    parameters = {"block": (32, 64), "bug": (0, 1)}
    found = tune(doubling, parameters, **given)
    assert found.candidate["bug"] == 0 and [one.state for one in found.tried.values()].count("incorrect") == 2
    shown = str(found)
    assert "No time was measured" in shown and "incorrect           2  y[0] is 3.0, 2.0 is right" in shown
    again = tune(doubling, parameters, **given)
    assert again.timed == 0 and again.candidate == found.candidate and ", 4 before" in str(again)
    other = tune(doubling, parameters, **given | {"args": tuple(one[:50] for one in numbers())})
    assert other.timed == 4  # of another size nothing is known
    ordered = tune(doubling, parameters, **given | {"journal": None}, cost=lambda one: -one["block"], most=2)
    assert [one.candidate["block"] for one in ordered.tried.values()] == [32, 64]


def test_candidates_of_ones_own_may_run_in_another_process():
    found = tune(doubling, {"block": (32, 2048), "bug": (0,)}, reference=doubled, args=numbers(), isolated=True)
    assert found.candidate["block"] == 32 and found.tried[1].state in ("crashed", "incorrect")


@pytest.mark.parametrize(
    "changes, error, says",
    [
        ({"reference": lambda x, y: 1 / 0}, bench.BenchError, "the reference raises ZeroDivisionError"),
        ({"parameters": {"block": ()}}, space.SpaceError, "has no values"),
        ({"parameters": {"block": (32,), "bug": (1, 2)}}, search.SearchError, "every candidate failed: 1 × incorrect"),
        ({"strategy": "model"}, strategies.StrategyError, "needs predicted costs"),
        ({"journal": "/dev/null/j.jsonl"}, JournalError, "cannot write"),
        ({"make": lambda c: (1, 2)}, search.SearchError, "gives 2 values: kernel, grid, block"),
    ],
)
def test_what_cannot_be_tuned_is_one_error(changes, error, says):
    given = {"make": doubling, "parameters": {"block": (32,)}, "reference": doubled, "args": numbers()} | changes
    with pytest.raises(error, match=says):
        tune(given.pop("make"), given.pop("parameters"), **given)


def test_in_this_process_a_lost_context_ends_the_search():
    made = space.space({"cost": (1, 2), "does": ("", "context", "raise")}, {"one": lambda c: c["cost"] < 2})
    with pytest.raises(Lost, match="took the GPU's context with it"):
        search.search(made, Inline(Plain()), strategies.exhaustive)
    made = space.space({"cost": (1, 2), "does": ("", "raise", "memory")})
    found = search.search(made, Inline(Plain()), strategies.exhaustive)
    assert sorted(one.state for one in found.tried.values() if not one.ok) == ["crashed"] * 2 + ["memory"] * 2


# --- sweeps -----------------------------------------------------------------------------------------------------------

sweep = script("sweep")


def test_at_least_forty_problems_of_every_kind_are_swept():
    found = sweep.problems()
    assert len(set(found)) == len(found) >= 40
    kinds = {(op, path) for op, path, _ in found}
    assert {"depthwise1d", "depthwise2d", "pointwise", "fused", "sparse"} == {op for op, _ in kinds}
    assert {("fused", path) for path in ("dwpw", "pwdw", "pwpw")} < kinds
    assert {problem.dtype for *_, problem in found} == {"float32", "float16"}


@pytest.fixture(scope="module")
def tasks():
    """Sweeps of one network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "NETWORKS", ("mobilenet_v2",))
        patch.setattr(sweep, "DTYPES", ("float32",))
        patch.setattr(sweep, "BATCHES", (32,))
        patch.setattr(sweep, "LAYERS", {})
        return sweep.planned(gpus.H200, 1)


def test_small_sweeps_come_first_and_have_a_choice(tasks):
    assert [one.seconds for one in tasks] == sorted(one.seconds for one in tasks)
    assert all(len(one.space) > 1 for one in tasks)
    assert {one.subject.is_stage for one in tasks} == {True, False}  # a stage's tiles, or the stages of a path


def key_of(task):
    return key(subject=task.subject.id, problem=str(task.problem), space=task.space.digest)


def dealt(journal, bench, most=10**9):
    """What one process makes of the first parts, in this one."""

    def made(parts, seconds):
        todo, results = queue.SimpleQueue(), queue.SimpleQueue()
        for part in parts[:most]:
            todo.put(part)
        no_more = types.SimpleNamespace(get=lambda timeout: todo.get_nowait())
        sweep.work(no_more, results, None, journal.path, lambda part, gpu: contextlib.nullcontext(bench))
        while not results.empty():
            yield results.get()

    return made


def test_a_sweep_goes_on_where_it_was_ended(tasks, tmp_path):
    few = tasks[:3]
    journal, seen = Journal(tmp_path / "j.jsonl"), []

    class Timed(Plain):
        def judge(self, candidate):
            pass

        def time_us(self, candidate):
            seen.append(text(candidate))
            return 10.0 + len(text(candidate)) % 7

    rows = sweep.swept(few, journal, key_of, dealt(journal, Timed(), most=1), 9.0)
    assert {why.partition(":")[0] for *_, why in rows} == {"the time was over", ""}
    timed = len(seen)
    rows = sweep.swept(few, journal, key_of, dealt(journal, Timed()), 9.0)
    assert sorted(why for *_, why in rows) == ["", "recorded before", "recorded before"] and len(seen) > timed
    timed = len(seen)
    rows = sweep.swept(few, journal, key_of, dealt(journal, Timed()), 9.0)
    assert {why for *_, why in rows} == {"recorded before"} and len(seen) == timed
    keys = journal.keys().values()
    assert len(keys) == 3 and all(replay.is_whole(one, tried) for one, tried in keys)
    shown = sweep.table(rows)
    assert "recorded before" in shown and few[2].subject.id in shown and "default over it" in shown
    assert report.rows([journal.path])


def test_a_large_sweep_is_dealt_out_in_parts(tasks, tmp_path, monkeypatch):
    class Timed(Plain):
        def judge(self, candidate):
            pass

        def time_us(self, candidate):
            return 10.0

    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    journal, one = Journal(tmp_path / "j.jsonl"), tasks[0]
    todo = sweep.parts(one, key_of(one), journal)
    assert [each for part in todo for each in part.candidates] == list(one.space.candidates)
    rows = sweep.swept([one], journal, key_of, dealt(journal, Timed()), 9.0)
    assert rows[0][1] is not None, rows[0][2]
    assert sweep.parts(one, key_of(one), journal) == []


def test_a_candidate_that_ends_a_sweeps_process_is_said_and_costs_itself_alone(tasks, tmp_path, capsys):
    one, seen = tasks[0], []

    class Gone(Plain):
        def judge(self, candidate):
            seen.append(candidate)
            if candidate == one.space.candidates[1]:
                raise type("CudaAPIError", (Exception,), {})("ILLEGAL_ADDRESS")

        def time_us(self, candidate):
            return 10.0

    journal = Journal(tmp_path / "j.jsonl")
    ((_, found, why),) = sweep.swept([one], journal, key_of, dealt(journal, Gone()), 9.0)
    assert f"{one.problem}: Lost: " in capsys.readouterr().out
    states = [each.state for each in journal.results(key_of(one)).values()]
    assert states.count("crashed") == 1 and len(states) == len(one.space) and seen.count(one.space.candidates[1]) == 1
    assert found is not None and not why  # by the process after it


def test_a_sweep_without_a_right_candidate_is_a_row(tasks, tmp_path):
    class Wrong(Plain):
        def judge(self, candidate):
            raise race.Out("incorrect", "y is 1, not 2")

    journal = Journal(tmp_path / "j.jsonl")
    made = sweep.swept(tasks[:1], journal, key_of, dealt(journal, Wrong()), 9.0)
    assert made[0][1] is None and made[0][2].startswith("WRONG: every candidate failed")
