"""`python -m dwlab tune`, `dwlab.tune`, what journals decide of launches, and sweeps: without a GPU."""

import contextlib
import functools
import importlib
import itertools
import json
import linecache
import lzma
import math
import os
import pathlib
import re
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
import small_networks
from compiler import needs_compiler
from fakes import cells, script
from tuning_benches import Plain, doubled, doubling, largely, numbers, slowly

from dwlab import cuda, records, stage, tune
from dwlab.compiler import inspect, precompile
from dwlab.gpu import specs, target
from dwlab.kernels import choices, levels
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import tuned
from dwlab.kernels.tiling.config import TileConfig
from dwlab.model import sparse
from dwlab.problems import ProblemError, layers
from dwlab.records.journal import COUNTED, Journal, JournalError, Key, Tried, text
from dwlab.text import terminal
from dwlab.tuning import bench, learned, pool, pruning, race, replay, running, search, space, stages, strategies, tables
from dwlab.tuning.tune import _identity
from dwlab.tuning.worker import Inline, Lost, Worker, WorkerError

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "docs"))

from tables import tuning  # noqa: E402

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
    gpu = "NVIDIA H200", "9.0", 132, {"driver": "580.1", "cuda": "13.0"}
    return replace(Key(*gpu, SUBJECT.digest, SPACE.digest, TENSOR, str(LAYER), "float32"), **changes)


def sweep_of(path, **changes):
    """A whole sweep as `tune` keeps it: made up times of the tensor kernel's tiles, the last but one the fastest."""
    us = [5.0 if i == len(SPACE) - 2 else 10.0 + i for i in range(len(SPACE))]
    tried = [Tried(one, times_us=(us[i],) * 4) for i, one in enumerate(SPACE.candidates)]
    found = search.search(
        SPACE, replay.Sweep(SPACE, tried), strategies.exhaustive, journal=Journal(path), key=key(**changes)
    )
    assert found.winner == len(SPACE) - 2
    return SPACE.candidates[found.winner]


# --- stages as benches, and the command -------------------------------------------------------------------------------


def test_without_a_gpu_each_tile_is_checked_and_counted_and_the_stages_of_a_path_are_candidates_too():
    what, rows = space.subject("depthwise1d/forward"), layers.problem("1,2,24,3")
    for its, made, problem, most in ((TENSOR, SPACE, LAYER, 2), (what, what.space(rows), rows, 3)):
        with contextlib.closing(stages.StageBench(its, problem)) as one:
            found = search.search(made, Inline(one), strategies.exhaustive, most=most)
        assert one.exact and all(len(tried.times_us) == 1 for tried in found.tried.values() if tried.ok)
        assert found.time_us > bench.LAUNCH_US
    assert len({tried.candidate["stage"] for tried in found.tried.values() if tried.ok}) == 3


def test_a_run_without_a_gpu_says_that_it_counted(run, tmp_path):
    file = tmp_path / "j.jsonl"
    status, out, err = run("tune", TENSOR, "--journal", str(file), "--most", "2")
    out = " ".join(out.split())
    assert status == 0 and "No time was measured" in out and "counted µs" in out and "in place of N=1" in out
    assert "measured on" not in out and not err
    assert [known.counted for known, _ in Journal(file).read()] == [True] * 3  # two and who won
    status, out, _ = run("tune", TENSOR, str(LAYER), "--journal", str(file), "--most", "2", "--json")
    made = json.loads(out)
    assert made["known_before"] == made["tried"] == 2 and "time_us" not in out
    assert made["best"]["counted_us"] > 1 and len(made["curve"]["counted_us"]) == 2


@pytest.mark.parametrize("option", ["--journal", "--replay"])
@pytest.mark.parametrize("path", [".", "/", os.devnull])
def test_a_folder_and_a_device_are_no_journal(run, option, path):
    status, out, err = run("tune", TENSOR, option, path)
    assert (status, out) == (2, "") and err.startswith("dwlab: cannot ") and err.count("\n") == 1


def test_a_replay_says_what_was_measured_and_where(run, tmp_path):
    sweep_of(tmp_path / "j.jsonl")
    command = "tune", TENSOR, str(LAYER), "--replay", str(tmp_path / "j.jsonl")
    status, out, err = run(*command, "--strategy", "exhaustive")
    out = " ".join(out.split())
    assert (status, err) == (0, "") and "measured on NVIDIA H200" in out and "Replayed from" in out
    assert ": 5 µs" in out and ": 10 µs, 100.00% more" in out and "counted" not in out
    status, out, _ = run(*command, "--most", "1", "--json")
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


def test_the_report_has_a_row_a_sweep_and_one_that_was_repeated_counts_once(tmp_path, capsys):
    sweep_of(tmp_path / "h200.jsonl")
    sweep_of(tmp_path / "h100.jsonl", gpu="NVIDIA H100")
    sweep_of(tmp_path / "again.jsonl", gpu="NVIDIA H100", versions={"driver": "1"})
    Journal(tmp_path / "h100.jsonl").append(key(gpu="NVIDIA L4"), Tried(SPACE.candidates[0], times_us=(1.0,)))
    rows = tuning.rows(tmp_path)
    err = capsys.readouterr().err
    assert [row.gpu for row in rows] == ["NVIDIA H100", "NVIDIA H200"]
    assert "recorded in part, left out: 1" in err and "swept again later, left out: 1" in err
    assert rows[1].space == len(SPACE) and rows[1].default == 1.0
    twenty = 0.0 if len(SPACE) <= 20 else 1.0
    assert rows[1].regrets["exhaustive"] == (1.0, 1.0, twenty)  # 10 µs; the last but one has 5
    tuning.main(tmp_path)
    assert capsys.readouterr().out.count(f"| {TENSOR} | {LAYER} |") == 2


def test_what_optuna_loses_is_kept(tmp_path, monkeypatch):
    sweep_of(tmp_path / "a.jsonl")
    monkeypatch.setattr(tuning, "MANY", len(SPACE))
    (name,) = map(tuning.name_of, tuning.sweeps(tmp_path))
    kept = {"budgets": tuning.BUDGETS, "sweeps": {name: {"optuna": [0.25, 0.125, 0.0]}}}
    (tmp_path / tuning.OPTUNA).write_bytes(lzma.compress(json.dumps(kept).encode()))
    assert "| Optuna | 25.0% (25.0% / 25.0% / 25.0%) | 12.5%" in tuning.tables(tmp_path)["tuning-claims"]()
    assert tuning.kept(tmp_path) and not tuning.kept(tmp_path / "else")


def test_the_page_says_of_searches_what_its_table_shows():
    page = (pathlib.Path(__file__).parents[1] / "docs/results/tuning.md").read_text(encoding="utf-8")
    rows = cells(re.search(r"begin:tuning-claims -->(.*?)<!-- end", page, re.S)[1])
    shown = {(sweeps.split(" (")[0], name): found for sweeps, name, *found in rows}
    assert {which for which, _ in shown} == {"all", "sparse filters", "of 100 candidates and more"}
    assert "about the best" in page and " (0.1% /" in shown["sparse filters", "shipped default"][0]


@pytest.fixture(scope="module")
def claims():
    return tuning.claims(tuning.rows(pathlib.Path(tuned.FOLDER)))


@pytest.mark.parametrize("which", ["all", "sparse filters", f"of {tuning.HUNDRED} candidates and more"])
def test_the_model_loses_less_than_other_searches(claims, which):
    _, found = claims[which]
    for name in ("model", "far"):
        five, ten, _ = found[name]
        others = {one: its for one, its in found.items() if one not in ("model", "far", "optuna+far")}
        assert len(others) == 5 and five.median < 0.03 and five.ninety < 0.08
        assert all(five.mean < one[0].mean and ten.mean < one[1].mean for one in others.values())
    assert ten.mean < found["optuna+far"][1].mean  # which begins with the five of "far", the last of both here


def test_near_layers_are_of_one_kind_and_each_size_within_a_factor():
    one = learned.layer_of("N=32 C=16 F=96 H=112 W=112 NHWC bias")
    for other, near in (("N=1 C=32 F=48 H=112 W=112", True), ("C=33 F=96 H=112 W=112", False), ("C=16 F=96", False)):
        assert learned.near(one, learned.layer_of(other), 1) == near
    assert learned.near(one, one, 0) and not learned.near(one, learned.layer_of("C=17 F=96 H=112 W=112"), 0)


def test_a_paths_sweep_is_searched_again_without_a_stage_that_is_gone(tmp_path):
    """What it was timed at is no candidate of today, and no model orders it; if nothing else was right it stays."""
    whole = space.subject("pointwise/forward")
    here = whole.space(LAYER, gpus.H200).candidates
    every = (*here, dict(here[0]) | {"stage": "gone"})
    its = key(subject=whole.id, kernel=whole.digest, space=space.digest(every))
    for i, one in enumerate(every):
        Journal(tmp_path / "a.jsonl").append(its, Tried(one, times_us=(float(5 + i),) * 4))
    (row,) = tuning.rows(tmp_path)
    assert row.space == len(here) and "model" in row.regrets and row.note == ""
    for one in every:
        right = {"times_us": (5.0,)} if one["stage"] == "gone" else {"state": "crashed", "reason": "it did"}
        Journal(tmp_path / "b.jsonl").append(its, Tried(one, **right))
    ((_, left),) = tuning.whole([tmp_path / "b.jsonl"])
    assert len(left) == len(every)


def test_a_sweep_without_the_tile_that_ships_compares_nothing(tmp_path, monkeypatch):
    """Its first candidate is another tile, and each search would begin with that."""
    few = SPACE.candidates[1:]
    for one in few:
        Journal(tmp_path / "a.jsonl").append(key(space=space.digest(few)), Tried(one, times_us=(5.0,)))
    (row,) = tuning.rows(tmp_path)
    assert row.space == len(few) and "none of its candidates" in row.note
    monkeypatch.setattr(tuning, "MANY", len(few))
    assert row.default is None and not row.regrets and not tuning.claims([row])


def test_sweeps_of_options_say_which_come_first(tmp_path):
    what, tiles = space.subject(f"{TENSOR}{tuned.OPTIONS}"), space.subject(TENSOR)
    found, fast = what.space(LAYER, gpus.H200), 64
    faster = [one["max_registers"] == fast for one in found.candidates]
    its = key(subject=what.id, problem=str(replace(LAYER, C=96, F=160)), space=found.digest)
    for one, quick in zip(found.candidates, faster, strict=True):
        Journal(tmp_path / "a.jsonl").append(its, Tried(one, times_us=(4.0 if quick else 5.0,) * 4))
    seen = replay.seen([tmp_path / "a.jsonl"])
    assert [one.stage for one in seen] == [what.id]
    first, *others = space.by(what.predicted(LAYER, found, gpus.H200, seen=seen))
    assert first == 0 and all(faster[place] for place in others[: sum(faster)])
    assert space.by(what.predicted(LAYER, found, gpus.H200)) == [*range(len(found))]
    listed = tiles.space(LAYER, gpus.H200)
    assert not (tiles.predicted(LAYER, listed, gpus.H200, seen=seen) - tiles.predicted(LAYER, listed, gpus.H200)).any()


def test_a_model_knows_nothing_of_the_layer_at_hand():
    what, problem = space.subject("pointwise/forward"), layers.problem("N=32 C=728 F=728 H=14 W=14 NHWC bias relu")
    known = choices.recorded("pointwise")["pointwise", "forward"]
    others = tuning._of_others(what, problem)
    own = [one for one in known if one not in others]
    assert own and len(others) > len(own)
    assert {one.place[1:] for one in own} == {choices.place_of(problem, "float32")[0][1:]}


# --- what a launch gets -----------------------------------------------------------------------------------------------


def test_a_journals_winner_is_the_tile_that_a_launch_gets(tmp_path, monkeypatch):
    one = stage(TENSOR)
    before, launch = one.config(LAYER), one.launch(LAYER)
    won = TileConfig(**sweep_of(tmp_path / "j.jsonl"))
    assert won != before and one.why_config(LAYER) == "the least predicted cost"
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path))
    assert one.config(LAYER) == won and one.launch(LAYER) == one.with_config(won).launch(LAYER) != launch
    assert one.why_config(LAYER) == "the fastest of a search on NVIDIA H200 (j.jsonl, cuda 13.0, driver 580.1)"
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


@pytest.mark.parametrize("pattern", ["2:4", "64:2:16"])
def test_a_winner_of_a_sparse_layer_decides_for_its_pattern(tmp_path, monkeypatch, pattern):
    one = stage("sparse/forward/tensor")
    layer = layers.problem(f"N=1 C=128 F=64 H=8 W=8 NHWC float16 {pattern}")
    its, before = space.subject(one.id), one.config(layer)
    other = next(config for config in one.tiles.configs(layer.kernel_key, 1, gpus.H200) if config != before)
    won = Tried(asdict(other), times_us=(1.0,), won=True)
    found = replace(key(), kernel=its.digest, subject=one.id, problem=str(layer), dtype="float16")
    assert found.sparsity == pattern
    Journal(tmp_path / "j.jsonl").append(found, won)
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "j.jsonl"))
    assert one.config(layer) == other
    assert one.config(replace(layer, pattern="32:2:8")) == one.config(replace(layer, pattern="32:2:8"), measured=False)


def test_a_winner_of_another_problem_that_was_counted_or_is_no_tile_of_the_stage_decides_nothing(tmp_path, monkeypatch):
    before = stage(TENSOR).config(LAYER)
    others = {"gpu": f"{COUNTED}, with the ceilings of NVIDIA H200"}, {"sparsity": "2:4"}, {"dtype": "float16"}
    for number, changes in enumerate(others):
        sweep_of(tmp_path / f"{number}.jsonl", **changes)
    for odd in ({"block_m": 7}, {"warps": 3}):
        Journal(tmp_path / "odd.jsonl").append(key(), Tried(odd, times_us=(1.0,), won=True))
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path))
    assert stage(TENSOR).config(LAYER) == before


def test_a_winner_of_an_earlier_kernel_decides_and_it_is_said(tmp_path, monkeypatch):
    won = TileConfig(**sweep_of(tmp_path / "j.jsonl", kernel="x" * 64))
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "j.jsonl"))
    assert stage(TENSOR).config(LAYER) == won
    assert stage(TENSOR).why_config(LAYER).endswith("driver 580.1); of an earlier kernel")


def test_a_winner_of_a_whole_path_decides_its_stage_and_the_tile(tmp_path, monkeypatch):
    path, others = space.subject("pointwise/forward"), [one for one in SPACE.candidates if one != SPACE.candidates[0]]
    found = key(subject=path.id, kernel=path.digest)
    first = choices.ranking(LAYER, gpu="NVIDIA H200")[0]
    name = next(one.name for one in path.takers(LAYER, gpus.H200) if one.name not in (first.name, "tensor"))
    for candidate in ({"stage": "tensor"} | dict(others[0]), {"stage": name}):
        Journal(tmp_path / "j.jsonl").append(found, Tried(candidate, times_us=(1.0,), won=True))
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "j.jsonl"))
    assert stage(TENSOR).config(LAYER, gpus.H200) == TileConfig(**others[0])
    assert choices.ranking(LAYER, gpu="NVIDIA H200")[0].name == name  # the last one
    assert choices.ranking(LAYER, gpu="NVIDIA L4")[0].name != name


# --- a kernel of one's own --------------------------------------------------------------------------------------------


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


def scaled(scale):
    def make(candidate):
        more = 0.05 if candidate["block"] == 64 else 0.0

        @cuda.jit
        def scales(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = scale * x[i] + more

        return scales, 4, candidate["block"]

    return make


def test_a_journal_holds_for_the_tolerance_and_for_what_make_closes_over(tmp_path):
    kept, space_ = tmp_path / "j.jsonl", {"block": (32, 64)}
    given = {"reference": doubled, "args": numbers(), "journal": kept}

    def run(make, **more):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tune(make, space_, **given, **more)
        return found.timed, [one.state for one in found.tried.values()]

    assert run(scaled(2), tolerance=0.2) == (2, ["correct", "correct"])
    assert run(scaled(2)) == (2, ["correct", "incorrect"])
    assert run(scaled(2)) == (0, ["correct", "incorrect"])
    with pytest.raises(search.SearchError, match="every candidate failed: 1 × incorrect"):
        run(scaled(3))
    two, three = functools.partial(doubling, {"block": 32}), functools.partial(doubling, {"block": 64})
    assert two != three and _identity(two) != _identity(three)
    assert _identity(two) == _identity(functools.partial(doubling, {"block": 32}))  # and no memory address
    assert _identity(Maker(2).__call__) != _identity(Maker(3).__call__)
    names = [f"name {i}" for i in range(20)]
    assert _identity(set(names)) == _identity(set(reversed(names))) == f"set({', '.join(sorted(map(repr, names)))})"

    def later():
        return empty  # whose cell is empty now

    assert "later" in _identity(later)
    empty = 0


class Maker:
    def __init__(self, scale):
        self.scale, self.table = scale, np.arange(scale)

    def __call__(self, candidate):
        return scaled(self.scale)(candidate)


def test_objects_that_make_are_known_again(tmp_path):
    given = {"reference": doubled, "args": numbers(), "journal": tmp_path / "j.jsonl"}
    for make in (lambda: Maker(2), lambda: functools.partial(scaled(2))):
        assert [tune(make(), {"block": (32,)}, **given).timed for _ in range(2)] == [1, 0]
    assert _identity(Maker(2)) != _identity(Maker(3)) and "0x" not in _identity(Maker(2))


REACHED = {
    "helper.py": "from dwlab import cuda\n@cuda.jit(device=True)\ndef deeper(x):\n    return x * 2\n",
    "own.py": """import helper
from helper import deeper
from dwlab import cuda
SCALE, OTHER = 1, 5
@cuda.jit(device=True)
def twice(x):
    return deeper(x)
def make(candidate):
    @cuda.jit
    def kernel(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = SCALE * twice(x[i])
    return kernel, 4, candidate["block"]
""",
}


@pytest.mark.parametrize(
    "file, old, new, holds",
    [
        ("own.py", "SCALE, OTHER = 1", "SCALE, OTHER = 2", False),
        ("own.py", "OTHER = 1, 5", "OTHER = 1, 6", True),  # which make does not name
        ("own.py", "deeper(x)", "deeper(x) + 1", False),
        ("own.py", "deeper(x)", "helper.deeper(x)", False),
        ("helper.py", "x * 2", "x * 2 + 1", False),
        ("helper.py", "x * 2", "x * 2", True),
    ],
)
def test_what_make_reaches_is_part_of_the_key(tmp_path, monkeypatch, file, old, new, holds):
    """Global variables and device functions, of this module or another of one's own, however deep."""

    def timed(files):
        for name, lines in files.items():
            (tmp_path / name).write_text(lines)
        monkeypatch.setattr(linecache, "cache", {})
        for name in ("helper", "own"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        make = importlib.import_module("own").make
        given = {"reference": doubled, "args": numbers(), "journal": tmp_path / "j.jsonl", "tolerance": 1e9}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tune(make, {"block": (32, 64)}, **given).timed

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert timed(REACHED) == 2 and timed(REACHED) == 0
    assert timed(REACHED | {file: REACHED[file].replace(old, new)}) == (0 if holds else 2)


def test_a_winner_is_judged_with_the_inputs_of_today(tmp_path):
    def make(candidate):
        @cuda.jit
        def kernel(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] = 2 * abs(x[i])  # right above 0 alone

        return kernel, 4, candidate["block"]

    x, y = numbers()
    given = {"reference": doubled, "journal": tmp_path / "j.jsonl"}
    assert tune(make, {"block": (32, 64)}, args=(x, y), **given).timed == 2
    with pytest.raises(search.SearchError, match="every candidate failed: 2 × incorrect"):
        tune(make, {"block": (32, 64)}, args=(-x, y), **given)


def test_limits_of_a_candidate_are_arguments(run, tmp_path):
    given = {"reference": doubled, "args": numbers(), "isolated": True}
    slow = tune(slowly, {"block": (32,), "seconds": (0, 30)}, **given, candidate_seconds=4)
    assert [one.state for one in slow.tried.values()] == ["correct", "timeout"]
    large = tune(largely, {"block": (32,), "gigabytes": (0, 1)}, **given, candidate_gigabytes=1)
    assert (large.tried[1].state, large.tried[1].reason) == ("memory", "its process took more than 1 GB")
    here = {"isolated": False, "candidate_seconds": 5}
    for wrong in ({"candidate_seconds": 0}, {"candidate_gigabytes": math.nan}, here):
        with pytest.raises(WorkerError, match="needs more than that|isolated=True"):
            tune(doubling, {"block": (32,)}, **given | wrong)
    status, out, _ = run("tune", TENSOR, "--most", "1", "--candidate-seconds", "0.01", "--candidate-gigabytes", "20")
    assert status == 1 and "no answer in 0.01 s" in " ".join(out.split())


def test_what_a_journal_has_that_does_not_hold_is_said(tmp_path):
    kept = tmp_path / "j.jsonl"
    given = {"reference": doubled, "args": numbers(), "journal": kept}
    tune(doubling, {"block": (32, 64), "bug": (0,)}, **given)
    with pytest.warns(UserWarning, match="nothing of .*j.jsonl holds here: .*space"):
        tune(doubling, {"block": (64, 32), "bug": (0, 1)}, **given)
    with open(kept, "ab") as file:
        file.write(b"nothing\n")
    with pytest.warns(UserWarning, match="1 damaged"):
        tune(doubling, {"block": (32, 64), "bug": (0,)}, **given)


def test_a_packed_journal_has_the_name_of_its_file_too(tmp_path):
    kept = tmp_path / "j.jsonl"
    tune(doubling, {"block": (32, 64), "bug": (0,)}, reference=doubled, args=numbers(), journal=kept)
    Journal(kept).pack()
    packed = tmp_path / "j.jsonl.xz"
    before = packed.read_bytes()
    again = tune(doubling, {"block": (32, 64), "bug": (0,)}, reference=doubled, args=numbers(), journal=packed)
    assert again.timed == 0 and packed.read_bytes() == before
    assert tuned.journals(packed) == tuned.journals(kept) == tuned.journals(tmp_path) == [kept]


def test_transposed_arrays_are_arrays():
    def make(candidate):
        @cuda.jit
        def doubles(x, y):
            i, j = cuda.grid(2)
            if i < y.shape[0] and j < y.shape[1]:
                y[i, j] = 2 * x[i, j]

        return doubles, (1, 1), (candidate["block"], 8)

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    found = tune(make, {"block": (8, 16)}, reference=doubled, args=(x.T, np.zeros_like(x).T))
    assert [one.state for one in found.tried.values()] == ["correct", "correct"]


@pytest.mark.parametrize("columns", [40, 80, None])
def test_what_was_found_is_whole_on_any_terminal(columns):
    made = space.space({f"a_long_name_of_a_parameter_{i}": (1, 2) for i in range(4)})
    tried = {i: Tried(made.candidates[i], "correct", times_us=(us,)) for i, us in ((0, 75.25), (1, 63.125))}
    found = search.Found(made, 1, tried, how="measured on a counted GPU")
    shown = tables.summary(found, columns)
    lines = [terminal.fitted(line, columns) if columns else line for line in shown.split("\n")]
    assert "…" not in "".join(lines)
    whole = " ".join(" ".join(lines).split())
    assert "_3=2: 63.125 µs default" in whole and "75.25 µs, 19.21% more" in whole
    assert '"time_us": 63.125' in tables.as_json(found) and "counted_us" not in tables.as_json(found)


def test_a_script_that_starts_processes_unguarded_is_told_so(tmp_path):
    """Its candidates are not to blame: the journal stays as it was."""
    text = "\n".join((
        f"import sys; sys.path[:0] = [{os.path.dirname(__file__)!r}]",
        "import numpy as np", "from dwlab import tune", "from tuning_benches import doubled, doubling",
        "x = np.ones(100, np.float32)",
        "tune(doubling, {'block': (32, 64)}, reference=doubled, args=(x, x.copy()), isolated=True, journal='j.jsonl')",
    ))  # fmt: skip
    (tmp_path / "one.py").write_text(text)
    done = subprocess.run([sys.executable, "one.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "does its work below if __name__ ==" in done.stderr and "WorkerError" in done.stderr
    assert "'NoneType'" not in done.stderr and (tmp_path / "j.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "changes, error, says",
    [
        ({"reference": lambda x, y: 1 / 0}, bench.BenchError, "the reference raises ZeroDivisionError"),
        ({"reference": lambda x, y: sys.exit(3)}, bench.BenchError, "the reference raises SystemExit"),
        ({"reference": lambda x, y: x[:1]}, bench.BenchError, "the reference returns an array of shape"),
        ({"reference": lambda x, y: None}, bench.BenchError, "the reference changes none of the arrays"),
        ({"args": numbers()[0]}, bench.BenchError, "args is a ndarray: give a tuple"),
        ({"tolerance": math.nan}, bench.BenchError, "tolerance=nan is no number"),
        ({"parameters": {"block": ()}}, space.SpaceError, "has no values"),
        ({"parameters": {"block": 32}}, space.SpaceError, "'block': 32 is to be a text -> its values"),
        ({"parameters": {"block": "32"}}, space.SpaceError, "'block': '32' is to be a text -> its values"),
        ({"parameters": [32]}, space.SpaceError, "has no parameters"),
        ({"parameters": {"block": itertools.count()}}, space.SpaceError, "more than the 1,000,000 values"),
        ({"parameters": {"block": (32, math.nan)}}, space.SpaceError, "nan is no finite number, text or boolean"),
        ({"parameters": {"block": (32, 32.0)}}, space.SpaceError, "has a value twice: 32, 32.0"),
        ({"cost": lambda c: None}, space.SpaceError, 'the cost raises TypeError: .*, of {"block":32}'),
        ({"cost": lambda c: math.nan}, space.SpaceError, "nan is no cost"),
        ({"make": lambda c: doubling(c), "isolated": True}, WorkerError, "must be a function of a module"),
        ({"make": lambda c: sys.exit(3)}, search.SearchError, "every candidate failed: 1 × crashed: SystemExit: 3"),
        ({"parameters": {"block": (32,), "bug": (1, 2)}}, search.SearchError, "every candidate failed: 1 × incorrect"),
        ({"strategy": "model"}, strategies.StrategyError, "needs predicted costs"),
        ({"journal": "/dev/null/j.jsonl"}, JournalError, "cannot write"),
        ({"journal": os.devnull}, JournalError, "Is no regular file"),
        ({"make": lambda c: (1, 2)}, search.SearchError, "gives 2 values: kernel, grid, block"),
    ],
)
def test_what_cannot_be_tuned_is_one_error(changes, error, says):
    given = {"make": doubling, "parameters": {"block": (32,)}, "reference": doubled, "args": numbers()} | changes
    with pytest.raises(error, match=says):
        tune(given.pop("make"), given.pop("parameters"), **given)


def test_what_is_handed_out_changes_no_candidate_and_equal_counts_are_told():
    def careless(candidate):
        return doubling({"block": candidate.pop("block")})

    made = space.space({"block": 32 * np.arange(1, 3), "unused": (0, 1)}, {"clears": lambda c: c.clear() is None})
    before = [dict(one) for one in made.candidates]
    found = tune(careless, made, reference=doubled, args=numbers(), cost=lambda c: c.pop("block"))
    assert [dict(one) for one in made.candidates] == before and type(before[0]["block"]) is int
    assert found.winner == 0 and set(found.tied) >= {0, 1}
    assert f"{len(found.tied)} candidates do not differ; the first of them is taken" in str(found)


def test_in_this_process_a_lost_context_ends_the_search():
    made = space.space({"cost": (1, 2), "does": ("", "context", "raise")}, {"one": lambda c: c["cost"] < 2})
    with pytest.raises(Lost, match="took the GPU's context with it"):
        search.search(made, Inline(Plain()), strategies.exhaustive)
    made = space.space({"cost": (1, 2), "does": ("", "raise", "memory")})
    found = search.search(made, Inline(Plain()), strategies.exhaustive)
    assert sorted(one.state for one in found.tried.values() if not one.ok) == ["crashed"] * 2 + ["memory"] * 2


# --- the compiler's options -------------------------------------------------------------------------------------------


def test_options_are_a_space_of_the_tile_that_ships(tmp_path, monkeypatch):
    what = space.subject(f"{TENSOR}@options")
    found = what.space(LAYER)
    tile = vars(stage(TENSOR).config(LAYER))
    asis = levels.DEFAULT | dict.fromkeys(levels.INSTRUCTIONS, 0)  # float32: it has all three
    assert found.candidates[0] == tile | asis == what.default(LAYER, measured=True)
    assert all(one | asis == tile | asis for one in found.candidates) and len(found) >= 20
    assert not any(one["max_registers"] and one["min_blocks"] for one in found.candidates)
    assert {sum(one[name] > 0 for name in levels.INSTRUCTIONS) for one in found.candidates} == {0, 1}
    plain = what.stage(found.candidates[0]).kernel_for(LAYER)
    assert plain is stage(TENSOR).kernel_for(LAYER)
    threads = stage(TENSOR).launch(LAYER).threads
    for changed, options in (
        ({"max_registers": 64, "fastmath": 1}, {"max_registers": 64, "fastmath": True}),
        ({"min_blocks": 3}, {"launch_bounds": (threads, 3), "max_registers": None}),
    ):
        made = what.stage(found.candidates[0] | changed).kernel_for(LAYER)
        assert made is not plain and made.py_func is plain.py_func
        if target.mode != "gpu":
            assert made.options == options


def test_options_that_won_are_in_force_for_their_tile_alone(tmp_path, monkeypatch):
    what, one = space.subject(f"{TENSOR}@options"), stage(TENSOR)
    won = what.default(LAYER, measured=True) | {"max_registers": 64, "store_hint": 1}
    *_, last = one.tiles.configs(LAYER.kernel_key, LAYER.N, gpus.H200)
    before, other = one.kernel_for(LAYER), one.with_config(last)
    Journal(tmp_path / "j.jsonl").append(key(subject=what.id), Tried(won, times_us=(1.0,), won=True))
    monkeypatch.setenv(tuned.VARIABLE, str(tmp_path / "j.jsonl"))
    with gpus.using(gpus.H200):
        assert dict(one.options_for(LAYER)) == {"max_registers": 64, "store_hint": 1} and not other.options_for(LAYER)
        assert one.why_config(LAYER) == "the least predicted cost; by another search max_registers=64 store_hint=1"
        made = one.kernel_for(LAYER)
        assert made is what.stage(won).kernel_for(LAYER) is not before
        assert precompile.job_of(one, LAYER, ()).kernel() is made
        assert other.kernel_for(LAYER) is not made
    assert not one.options_for(LAYER, replace(gpus.H200, name="NVIDIA H100"))


# --- the first launch of a problem searches ---------------------------------------------------------------------------


class Favouring(Plain):
    """`fast` in the name of the candidate's stage, or in its options, takes 1 µs, all else 10."""

    def __init__(self, *fast):
        self.fast, self.asked = fast, 0

    def time_us(self, candidate):
        self.asked += 1
        return 1.0 if any(candidate.get(name) == value for name, value in self.fast) else 10.0


@pytest.fixture
def launching(tmp_path, monkeypatch):
    """first_launch of LAYER as on an H200, with a bench that is given; its journal is a file of its own."""
    monkeypatch.setattr(tuned, "OWN", tmp_path / "own" / "tuned.jsonl")
    monkeypatch.setenv(tuned.SWITCH, "on")
    monkeypatch.setattr(running, "target", SimpleNamespace(mode="gpu"))
    monkeypatch.setattr(stages, "there", lambda id, problem: key(subject=id, problem=str(problem)))

    def first_launch(bench, path="forward"):
        monkeypatch.setattr(running, "bench", lambda id, problem: contextlib.nullcontext(Inline(bench)))
        with gpus.using(gpus.H200):
            running.first_launch(LAYER, path)
            one = choices.ranking(LAYER, path)[0]
            return one, dict(one.options_for(LAYER))

    yield first_launch
    tuned.reread()


def test_the_first_launch_of_a_problem_searches_and_later_ones_take_what_won(launching):
    before = choices.ranking(LAYER, "forward")[0]
    bench = Favouring(("stage", "tensor"), ("max_registers", 64))
    one, options = launching(bench)
    assert one.name == "tensor" != before.name and options == {"max_registers": 64}
    asked = bench.asked
    assert launching(bench)[0] is one and bench.asked == asked  # it is in the journal
    shown = f"with gpu.using(gpu.H200): print(choices.ranking(layers.problem({str(LAYER)!r}))[0].name)"
    code = f"""import os
from dwlab.kernels import choices
from dwlab.kernels.tiling import gpu, tuned
from dwlab.problems import layers
{shown}
os.environ |= {{tuned.SWITCH: "off", tuned.VARIABLE: ""}}
tuned.reread()
{shown}"""
    there = os.environ | {tuned.SWITCH: "on", tuned.VARIABLE: str(tuned.OWN)}
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=there)
    assert got.stdout.split() == ["tensor", before.name], got.stderr


def test_the_layers_of_a_network_that_is_prepared_are_searched(launching, monkeypatch):
    pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")
    inference = pytest.importorskip("dwlab.inference")
    launching(Favouring(("stage", "registers")))  # as does each search from here on
    before = inference.prepare(small_networks.tiny()).steps
    monkeypatch.setattr(tuned, "first_launch", running.first_launch)
    with gpus.using(gpus.H200):
        steps = inference.prepare(small_networks.tiny()).steps
    assert {one.stage.name for one in steps[1:]} == {"registers"} < {one.stage.name for one in before[1:]}


def test_a_search_that_finds_nothing_faster_changes_nothing(launching):
    before = choices.ranking(LAYER, "forward")[0]
    one, options = launching(Favouring())
    assert one is before and not options and one.config(LAYER) == before.config(LAYER)


def test_the_default_is_in_the_race_whatever_disturbed_its_first_rounds():
    class Disturbed(Plain):
        rounds = 0

        def time_us(self, candidate):
            self.rounds += candidate["cost"] == 0
            return 30.0 if candidate["cost"] == 0 and self.rounds <= 3 else super().time_us(candidate)

    many = space.space({"cost": range(20)}, default={"cost": 0})
    assert search.search(many, Disturbed(), strategies.exhaustive).candidate == {"cost": 0}


def test_what_is_launched_without_a_search_wins_unless_another_is_faster(launching, monkeypatch):
    for one in choices.takers(LAYER, "forward", "NVIDIA H200")[1:]:  # whichever a record of this very layer says
        monkeypatch.setattr(choices, "fastest_row", lambda *_, one=one: SimpleNamespace(id=one.id))
        tuned.OWN.unlink(missing_ok=True)
        tuned.reread()
        bench = Favouring()
        assert choices.ranking(LAYER, "forward")[0] is one
        assert launching(bench)[0] is one and bench.asked


@pytest.mark.parametrize("fast", [(), ("stage", "tensor")])
def test_a_launch_is_timed_before_its_search_and_after(launching, monkeypatch, fast):
    launches = script("tuned_launches")
    given = iter((8.0, 4.0) * launches.ROUNDS)
    on = SimpleNamespace(check=lambda stage: None, clocked=lambda stage: SimpleNamespace(median_us=next(given)))
    bench = SimpleNamespace(prepare=lambda problem, path: contextlib.nullcontext(on))
    tried = Inline(Favouring(*[fast] * bool(fast)))
    monkeypatch.setattr(running, "bench", lambda id, problem: contextlib.nullcontext(tried))
    with gpus.using(gpus.H200):
        row = launches.measured(LAYER, "forward", bench)
    assert "failure" not in row and row["before"].split()[0] != "tensor"
    if fast:
        assert row["after"].split()[0] == "tensor" and (row["before_us"], row["after_us"]) == (8.0, 4.0)
    else:
        assert row["after"] == row["before"] and "after_us" not in row


def test_what_cannot_be_searched_is_launched_as_without(launching, monkeypatch):
    before = choices.ranking(LAYER, "forward")[0]

    class Wrong(Favouring):
        def judge(self, candidate):
            raise race.Out("incorrect", "y[0] is 1")

    with pytest.warns(UserWarning, match="launched as without DWLAB_TUNE=on: every candidate failed"):
        assert launching(Wrong())[0] is before
    monkeypatch.setenv(running.SECONDS, "long")
    with pytest.warns(UserWarning, match="'long' is no number of seconds"):
        launching(Favouring())
    monkeypatch.setenv(tuned.VARIABLE, "off")
    bench = Favouring()
    assert launching(bench)[0] is before and not bench.asked


def test_a_worker_need_not_run_its_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tuning_benches\nfrom dwlab.tuning.worker import Worker\nprint('run')\n"
        "with Worker(tuning_benches.Plain, script=False) as one:\n    print(one.time_us({'cost': 1}), __file__ != '')\n"
    )
    path = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    got = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert got.stdout == "run\n11.0 True\n", got.stderr


# --- how sparse filters are stored ------------------------------------------------------------------------------------

PRODUCT = layers.SparsePointwise(128, 1024, 4096, 1, 64, pattern="64:2:16")


def test_filters_are_stored_as_the_fastest_stage_wants_them():
    h200 = specs.find("h200")
    found = pruning.ways(PRODUCT, h200)
    assert [(one.storage, one.stage.name, one.how) for one in found][0] == ("2:4", "tma", "recorded")
    assert {one.storage for one in found} == {"64:2:16", "2:4", "dense"} and found[0].us == min(w.us for w in found)
    rows = replace(PRODUCT, N=1, H=128, layout="NCHW")
    stored = [way.storage for way in pruning.ways(rows, h200)]
    assert stored[0] == "64:2:16" and "dense" not in stored
    for gpu in ("h200", "a100"):
        its = specs.find(gpu)
        odd = pruning.ways(replace(PRODUCT, C=96, F=160), its)
        assert odd and all(one.how == "predicted" and not one.stage.why_not(one.problem, its) for one in odd)
    assert {one.storage for one in pruning.ways(replace(PRODUCT, pattern="64:1:16"), h200)} == {"64:1:16", "dense"}


def test_a_recorded_product_is_stored_and_run_as_the_fastest_was():
    """All products of the sparse source, in both layouts and each pattern: within 3 % of the best of all storages."""
    rows, _ = records.newest_rows("sparse", lambda row: (str(row["problem"]), row["stage"]))
    taken, products = {}, set()
    for row in (one for one in rows if one["networks"] == "shapes of the source"):
        product = layers.SparsePointwise(**row["problem"])
        products.add(product)
        taken.setdefault(product, {})[f"sparse/forward/{row['stage']}"] = row["time_us"]
        dense = replace(sparse.dense_layer(product), layout="NHWC")  # those are timed in this layout alone
        taken.setdefault(dense, {}).update(row["dense"])
    assert len(products) >= 180
    for product in products:
        way = pruning.ways(product, specs.find("h200"))[0]
        best = min(us for one in pruning.storages(product) for us in taken.get(one, {}).values() if us)
        assert taken[way.problem][way.stage.id] <= 1.03 * best, str(product)


def test_patterns_for_a_budget_and_what_is_measured(monkeypatch):
    w = np.random.default_rng(3).standard_normal((4096, 1024))
    found = pruning.tune_pruning(w, PRODUCT, 0.5, patterns=("2:4", "64:2:8", "64:2:32"), gpu=specs.find("h200"))
    assert [one.pattern for one in found.frontier] == ["64:2:32", "2:4", "dense"] and found.best.pattern == "2:4"
    assert found.ways["64:2:8"].storage == "2:4" and found.kept["2:4"] > found.kept["64:2:8"]
    small = replace(PRODUCT, N=1, C=64, F=64, H=8, W=8)
    few = w[:64, :64]
    for bad, error, says in (
        ((few[:32], small), ProblemError, r"shape \(32, 64\)"), ((few * np.nan, small), ProblemError, "NaN"),
        ((few, small, 1.5), ValueError, "no pattern keeps"),
        ((few, small, 0.5, "t4"), ValueError, "no stage of which a time is known takes"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            pruning.tune_pruning(*bad[:3], gpu=specs.find(*bad[3:]) if bad[3:] else None)
    monkeypatch.setattr(pruning, "target", SimpleNamespace(mode="gpu"))
    made = {id: Favouring(("stage", "naive")) for id in ("sparse/forward", "pointwise/forward")}
    monkeypatch.setattr(running, "bench", lambda id, problem: contextlib.nullcontext(Inline(made[id])))
    measured = pruning.tune_pruning(w, PRODUCT, 0.5, patterns=("2:4",), seconds=60)
    assert all(one.asked for one in made.values())  # both storages, in one search
    way = measured.ways["2:4"]
    assert (way.how, way.us, way.stage.name) == ("measured", 1.0, "naive")


def test_storages_are_one_space_that_begins_with_what_is_expected_to_be_fastest():
    spaces = {"2:4": space.listed([{"stage": "a"}, {"stage": "b"}]), "dense": space.listed([{"stage": "c", "tile": 8}])}
    logs = [2.0, -1.0, 1.0]  # a tile that does not ship is none to begin with
    whole, order = pruning.joined(spaces, logs)
    assert [(one["storage"], one["stage"]) for one in whole.candidates] == [("dense", "c"), ("2:4", "a"), ("2:4", "b")]
    assert order(logs) == [1.0, 2.0, -1.0]
    assert whole.parameters["tile"] == (8, None) and set(whole.parameters) == {"storage", "stage", "tile"}


def test_sweeps_of_all_storages_are_one_sweep(tmp_path):
    layer = layers.SparsePointwise(1, 32, 64, 14, 14)
    for one in pruning.storages(layer):
        assert [len(parts) for parts in tuning.sweeps(tmp_path)] == [1] * (one.op == "pointwise")
        what = space.subject(f"{one.op}/forward")
        found = what.space(one, gpus.H200)
        its = key(subject=what.id, problem=str(one), space=found.digest, dtype=one.dtype)
        for i, candidate in enumerate(found.candidates):
            us = 9.0 - i / 1000 - (one.op == "sparse")
            Journal(tmp_path / "a.jsonl").append(its, Tried(candidate, times_us=(us,) * 4))
    sparse, dense = tuning.rows(tmp_path)
    assert (sparse.stage, dense.stage) == (f"sparse/forward{tuning.STORED}", "pointwise/forward")
    assert sparse.space > dense.space and sparse.note == "" and "model" in sparse.regrets
    swept = tuning.predicted(next(iter(tuning.sweeps(tmp_path))))[0]
    assert {one["storage"] for one in swept.space.candidates} == {"2:4", "dense"}
    assert swept.space.candidates[swept.medians.index(swept.best_us)]["storage"] == "2:4"


OF_INSTRUCTIONS = """
    half_k | pointwise/forward/tensor | N=1 C=32 F=32 H=7 W=7 NHWC float16 bias | mma.sync.aligned.m16n8k{} | 16, 8
    half_k | pointwise/forward/tensor | N=1 C=32 F=32 H=7 W=7 NHWC bias | mma.sync.aligned.m16n8k{} | 8, 4
    half_k | pointwise/forward/int8 | N=1 C=32 F=32 H=7 W=7 NHWC int8 residual | mma.sync.aligned.m16n8k{} | 32, 16
    load_hint | depthwise2d/forward/columns | N=1 C=32 H=9 W=9 K=3 NHWC bias | \
        ld.global{}.v2.f32 | , .nc, .L1::no_allocate, .L1::evict_first
    store_hint | depthwise2d/forward/columns | N=1 C=32 H=9 W=9 K=3 NHWC | st.global{}.v2.f32 | , .cs
    store_hint | pointwise/forward/tensor | N=1 C=32 F=32 H=7 W=7 NHWC residual | st.global{}.v4.f32 | , .cs
"""
"""A level, a stage, a layer, its instruction, and what stands there at each value of the level."""
CASES = [
    (*row, before, after)
    for *row, text, all in (re.split(r" *\| +", line.strip()) for line in OF_INSTRUCTIONS.strip().splitlines())
    for before, *after in [[text.format(one) for one in all.split(", ")]]
]


def changed(id, problem, level, value):
    what, layer = space.subject(f"{id}@options"), layers.problem(problem)
    return what.stage(what.default(layer, gpus.H200, measured=True) | {level: value}), layer


@pytest.mark.parametrize(("level", "id", "problem", "before", "after"), CASES)
def test_an_instructions_level_is_in_the_space_and_judged(level, id, problem, before, after):
    what, layer = space.subject(f"{id}@options"), layers.problem(problem)
    found = what.space(layer, gpus.H200)
    assert found.parameters[level] == tuple(range(len(after) + 1)) and not found.candidates[0][level]
    tried = stages.StageBench(what, layer)
    for one in found.candidates:
        if one[level] and not (one["max_registers"] or one["min_blocks"] or one["fastmath"]):
            tried.judge(one)
            assert what.stage(one).kernel_for(layer).py_func is not stage(id).kernel_for(layer).py_func
    tried.close()


def test_a_level_whose_instructions_do_something_else_is_incorrect(monkeypatch):
    wrong = dict(levels.INSTRUCTIONS) | {"half_k": ({"mma_f16": "mma_bf16_k8"},)}
    monkeypatch.setattr(levels, "INSTRUCTIONS", wrong)
    what, layer = space.subject(f"{TENSOR}@options"), layers.problem("N=1 C=32 F=32 H=7 W=7 NHWC float16")
    one = what.default(layer, gpus.H200, measured=True) | {"half_k": 1}
    with pytest.raises(race.Out) as out:
        stages.StageBench(what, layer).judge(one)
    assert out.value.state == "incorrect"


def test_levels_are_those_of_what_a_kernel_has_and_a_gpu():
    what = space.subject("sparse/forward/tensor@options")
    layer = layers.problem("N=1 C=64 F=64 H=7 W=7 NHWC float16 2:4")
    assert set(what.space(layer, gpus.H200).parameters) == set(levels.LEVELS)  # mma.sp has one shape; copies, no loads
    kernel = stage("depthwise2d/forward/columns").kernel_for(layers.problem("N=1 C=32 H=9 W=9 K=3 NHWC"))
    assert levels.of_kernel(kernel, (6, 1))["load_hint"] == (0, 1)  # no priorities below 7.0
    assert "half_k" not in levels.of_kernel(kernel, (9, 0))


@needs_compiler
@pytest.mark.parametrize(("level", "id", "problem", "before", "after"), CASES)
def test_an_instructions_level_shows_in_ptx(level, id, problem, before, after):
    texts = []
    for value in range(len(after) + 1):
        one, layer = changed(id, problem, level, value)
        texts.append(inspect.compile(one, problem=layer, cc="9.0").ptx)
    assert before in texts[0] and not any(new in texts[0] for new in after if new not in before)
    for ptx, new in zip(texts[1:], after, strict=True):
        assert new in ptx and before not in ptx


@pytest.mark.skipif(target.mode == "gpu", reason="counts on the interpreter")
def test_a_candidate_with_options_is_judged_as_the_stage_is():
    small = stages.runnable(space.subject(TENSOR), LAYER, gpus.H200)
    what = space.subject(f"{TENSOR}@options")
    found = what.space(small)
    with contextlib.closing(stages.StageBench(what, small)) as here:
        for one in (found.candidates[0], found.candidates[-1]):
            here.judge(one)
        assert here.time_us(found.candidates[-1]) == here.time_us(found.candidates[0])


# --- sweeps -----------------------------------------------------------------------------------------------------------

sweep = script("sweep")


def test_layers_of_every_kind_are_swept_and_a_sparse_one_in_each_way_to_store_it():
    found = list(sweep.problems())
    every = [(path, layer) for path, layers_ in found for layer in layers_]
    kinds = {(layer[0].op, path) for path, layer in every}
    assert {"depthwise1d", "depthwise2d", "pointwise", "fused", "sparse"} == {op for op, _ in kinds}
    assert {("fused", path) for path in ("dwpw", "pwdw", "pwpw")} < kinds
    assert {one.dtype for _, layer in every for one in layer} == {"float32", "float16"}
    assert [layer[0].N for path, layer in every if path == "dwpw"][:4] == [1, 32, 1, 32]
    assert len({layer[0].kernel_key if layer[0].op != "depthwise1d" else layer[0] for _, layer in every}) >= 40
    stored = [layer for _, layer in every if layer[0].op == "sparse"]
    assert len(stored) >= 15 and {one.layout for layer in stored for one in layer} == {"NHWC", "NCHW"}
    for layer in stored:
        assert [one.op for one in layer] == ["sparse"] * (len(layer) - 1) + ["pointwise"] and len(layer) in (2, 3)
        assert layer[-2].pattern == "2:4" and len({(one.N, one.C, one.F, one.layout) for one in layer}) == 1


def plans(networks, dtypes, *paths, others=None, **more):
    """Sweeps of networks' layers on an H200, and of others."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"NETWORKS": networks, "DTYPES": dtypes, "LAYERS": others or {}}.items():
            patch.setattr(sweep, name, value)
        return sweep.planned(gpus.H200, 1, *paths, **more)


@pytest.fixture(scope="module")
def planned():
    return plans(("mobilenet_v2",), ("float32",))


def test_a_path_is_swept_where_it_has_few_candidates_else_a_stage(planned):
    assert all(1 < len(one.space) <= sweep.LARGEST for one in planned)
    for one in planned:
        path = space.subject(f"{one.problem.op}/{one.subject.path}")
        assert one.subject.is_stage == (len(path.space(one.problem, gpus.H200)) > sweep.LARGEST)
    assert {one.subject.is_stage for one in planned} == {True, False}
    options = plans(
        ("mobilenet_v2",), sweep.DTYPES, ("pointwise/forward", "fused/dwpw"), others=sweep.LAYERS, options=True
    )
    assert options and all(len(one.space) >= 28 and one.subject.has_options for one in options)
    for one in options:
        path, stage = one.subject.path, one.subject.id.removesuffix(tuned.OPTIONS)
        assert stage == choices.ranking(one.problem, path, gpus.H200.name)[0].id
    assert "fused" in {one.problem.op for one in planned}


@pytest.fixture(scope="module")
def fused():
    """Sweeps of fused layers, as they are planned, by their path."""
    found = {}
    for task in plans(("mobilenet_v2", "proxylessnas"), ("float16",), ("fused/dwpw", "fused/pwpw")):
        found.setdefault(task.subject.path, []).append(task)
    return found


def test_of_a_space_too_large_to_be_tried_whole_the_nearest_to_the_shipped_tile_are(fused):
    (task,) = fused["dwpw"]
    shipped = task.subject.default(task.problem, gpus.H200)
    assert len(task.space) == sweep.NEAR and task.space.candidates[0] == shipped
    kept = {text(one) for one in task.space.candidates}
    whole = task.subject.space(task.problem, gpus.H200).candidates
    away = {text(one): sweep._away(one, shipped) for one in whole}
    assert max(away[one] for one in kept) <= min(its for one, its in away.items() if one not in kept)


@pytest.mark.parametrize("id", ["fused/dwpw/slide", "fused/pwpw/tensor"])
def test_a_fused_sweep_runs_from_judge_to_report(fused, tmp_path, id):
    """On the interpreter, with a small layer: checked on poisoned outputs, raced, gone on with, reported."""
    what = space.subject(id)
    small = stages.runnable(what, fused[what.path][0].problem, gpus.H200)
    found = sweep.near(what.space(small, gpus.H200))
    few = replace(found, candidates=(*found.candidates[:2], found.candidates[-1]))

    def run():
        worker = Inline(sweep.Benches(stages.StageBench))
        worker.exact = True
        its = lambda task: stages.key(what, small, task.space, "h200")  # noqa: E731
        return list(
            sweep.sweep([sweep.Task(what, small, few)], lambda task: pool.Pool([sweep.There(worker, task)]),
                        Journal(tmp_path / "j.jsonl"), its, math.inf)
        )  # fmt: skip

    ((task, raced, why),) = run()
    assert why == "" and "3 of 3 right" in sweep.words(task, raced, why)
    assert run()[0][2] == "recorded before"
    (row,) = tuning.rows(tmp_path)
    assert (row.space, row.note) == (3, "") and row.default is not None


def key_of(task):
    return key(subject=task.subject.id, problem=str(task.problem), space=task.space.digest)


class Timed(Plain):
    """Every candidate is right. does: a candidate's text -> as Plain has it."""

    def __init__(self, problem=None, does=None):
        self.problem, self.does = problem, does or {}

    def judge(self, candidate):
        pass

    def time_us(self, candidate):
        return super().time_us({"cost": len(text(candidate)) % 7, "does": self.does.get(text(candidate), "")})


def timed(does, subject, problem):
    """A bench of `Benches`, in whichever process."""
    return Timed(problem, does)


def swept(tasks, path, make=None, seconds=30.0, workers=None):
    workers = workers or [Inline(sweep.Benches(make or functools.partial(timed, {})))]
    return list(
        sweep.sweep(tasks, lambda task: pool.Pool([sweep.There(one, task) for one in workers]), Journal(path), key_of,
                    time.monotonic() + seconds)
    )  # fmt: skip


def test_a_sweep_goes_on_where_it_was_ended(planned, tmp_path, monkeypatch):
    few, path, benches, writes = planned[-3:], tmp_path / "j.jsonl", [], []
    append = Journal.append

    def full(journal, key, tried):
        writes.append(key)
        if len(writes) > 7:
            raise JournalError("cannot write j.jsonl: No space left on device; nothing in it is lost")
        append(journal, key, tried)

    def make(subject, problem):
        benches.append(Timed(problem))
        return benches[-1]

    with monkeypatch.context() as patch, pytest.raises(JournalError, match="No space left"):
        patch.setattr(Journal, "append", full)
        swept(few, path)
    assert len(writes) >= 8

    assert "the time was over" in {why.partition(":")[0] for *_, why in swept(few, path, seconds=-1)}
    assert "" in (found := {why for *_, why in swept(few, path, make)}) and found <= {"", "recorded before"}
    assert len(list(Journal(path).read())) >= sum(len(task.space) for task in few) + len(few)
    seen = len(benches)
    rows = swept(few, path, make)
    assert {why for *_, why in rows} == {"recorded before"} and len(benches) == seen
    keys = Journal(path).keys().values()
    assert len(keys) == len(few) and all(replay.is_whole(one, tried) for one, tried in keys)
    assert all(tried.date.endswith("Z") for _, found in keys for tried in found.values())
    assert "recorded before" in sweep.words(*rows[-1])
    assert len(tuning.rows(path.parent)) == len(few)


def test_two_threads_do_the_sweeps_between_them(planned, tmp_path):
    workers = [Inline(sweep.Benches(functools.partial(timed, {}))) for _ in range(2)]
    assert {why for *_, why in swept(planned[-4:], tmp_path / "j.jsonl", workers=workers)} == {""}
    found = Journal(tmp_path / "j.jsonl").keys().values()
    assert sum(len(tried) for _, tried in found) == sum(len(task.space) for task in planned[-4:])
    assert all(replay.is_whole(one, tried) for one, tried in found)


def test_when_the_time_is_over_what_was_at_work_is_not_recorded(planned, tmp_path):
    one = planned[-1]
    hangs = {text(candidate): "hang" for candidate in one.space.candidates[1:]}
    worker = Worker(functools.partial(sweep.Benches, functools.partial(timed, hangs)))
    begun = time.monotonic()
    ((*_, why),) = swept([one], tmp_path / "j.jsonl", seconds=4, workers=[worker])
    assert time.monotonic() - begun < 30 and why.startswith("the time was over: ")
    assert all(tried.ok for tried in Journal(tmp_path / "j.jsonl").results(key_of(one)).values())


def wrong(subject, problem):
    class Wrong(Plain):
        def judge(self, candidate):
            raise race.Out("incorrect", "y is 1, not 2")

    return Wrong()


def impossible(subject, problem):
    raise MemoryError("80 GiB are needed")


@pytest.mark.parametrize(
    ("make", "says", "recorded"), [(wrong, "every candidate", True), (impossible, "memory: MemoryError: 80 GiB", False)]
)
def test_a_sweep_that_finds_nothing_is_a_row(planned, tmp_path, make, says, recorded):
    """A bench that cannot be made is no candidate's fault: nothing is recorded."""
    rows = swept(planned[-1:], tmp_path / "j.jsonl", make)
    assert all(found is None and why.startswith("WRONG: ") and says in why for _, found, why in rows)
    assert (tmp_path / "j.jsonl").exists() == recorded
