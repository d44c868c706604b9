"""Autotuning without a GPU: spaces, the journal, races on made-up times, searches on replays, workers that are lost."""

import functools
import json
import math
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_benches import Plain, Shared, broken, doubled, doubling, numbers

from dwlab import DepthwiseConv1d, cuda, stage
from dwlab.kernels import dispatch, registry
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import layers
from dwlab.problems.layers import Pointwise
from dwlab.records.journal import Journal, JournalError, Key, Tried, encoded
from dwlab.tuning import bench, learned, race, replay, search, space, stages, strategies
from dwlab.tuning.worker import GpuLock, Worker, WorkerError

KEY = Key(
    "NVIDIA H200", "9.0", 132, {"driver": "580.1", "numba-cuda": "0.30.4"}, "k" * 64, "s" * 64, "own", "n=3", "float32"
)


# --- spaces -----------------------------------------------------------------------------------------------------------


def test_a_space_has_the_default_first_and_the_rest_in_order():
    made = space.space({"a": (1, 2, 3), "b": (4, 5)}, {"a odd": lambda c: c["a"] % 2}, {"a": 3, "b": 4})
    assert [tuple(one.values()) for one in made.candidates] == [(3, 4), (1, 4), (1, 5), (3, 5)]
    assert made.rejected == {"a odd": 2} and len(made) == 4
    assert made.digest == space.space({"a": (1, 3), "b": (4, 5)}).digest  # in another order
    assert made.digest != space.space({"a": (1, 3), "b": (4, 6)}).digest


@pytest.mark.parametrize(
    "parameters, constraints, default, says",
    [
        ({}, {}, None, "the space has no parameters"),
        ({"a": (1, 1)}, {}, None, "has a value twice"),
        ({"a": range(2000), "b": range(2000)}, {}, None, "4,000,000 combinations"),
        ({"a": (1, 2)}, {"large": lambda c: c["a"] > 2, "small": lambda c: c["a"] < 3}, None, "2 by 'large'"),
        ({"a": (1, 2)}, {"large": lambda c: c["a"] > 1}, {"a": 1}, 'the default {"a":1} is not valid: large'),
        ({"a": (1, 2)}, {"broken": lambda c: c["z"]}, None, "raises KeyError"),
    ],
)
def test_a_space_that_cannot_be_searched_says_why(parameters, constraints, default, says):
    with pytest.raises(space.SpaceError, match=re.escape(says)):
        space.space(parameters, constraints, default)


def test_a_stages_space_is_its_tiles_that_fit_the_gpu():
    one, layer = stage("pointwise/forward/tensor"), Pointwise(1, 64, 64, 14, 14, layout="NHWC", dtype="float16")
    what = space.subject(one.id)
    large, small = (what.space(layer, gpus.Gpu((cc, 0), 80)) for cc in (9, 8))
    assert large.candidates[0] == asdict(one.config(layer, gpus.Gpu((9, 0), 80)))
    assert 1 < len(small) <= len(large)
    order = space.by(what.predicted(layer, large, gpus.Gpu((9, 0), 80)))
    assert order[0] == 0 and sorted(order) == list(range(len(large)))
    tiles = [TileConfig(**large.candidates[i]) for i in order[1:]]
    times = [one.tiles.cost(layer.kernel_key, 1, tile, gpus.Gpu((9, 0), 80)).time for tile in tiles]
    assert times == sorted(times)
    with pytest.raises(space.SpaceError, match="has no tiles"):
        space.subject("pointwise/forward/naive").space(layer)
    with pytest.raises(space.SpaceError, match="does not take"):
        what.space(Pointwise(1, 3, 5, 7, 7))
    with pytest.raises(space.SpaceError, match="is a problem of depthwise1d"):
        what.space(DepthwiseConv1d(1, 2, 8, 3))


def test_a_paths_space_has_its_stages_with_their_tiles():
    what, layer = space.subject("pointwise/forward"), Pointwise(1, 64, 64, 14, 14, layout="NHWC", dtype="float16")
    made = what.space(layer)
    names = {one["stage"] for one in made.candidates}
    assert names == {one.name for one in registry.stages("pointwise", "forward") if not one.why_not(layer)}
    assert {"naive", "tensor"} < names and len({frozenset(one) for one in made.candidates}) == 1
    alone = space.subject("pointwise/forward/tensor").space(layer)
    assert sum(one["stage"] == "tensor" for one in made.candidates) == len(alone)
    order = space.by(what.predicted(layer, made))
    assert order[0] == 0 and sorted(order) == list(range(len(made)))
    # Stages were timed on such layers: naive is expected to be behind every tile of tensor's least.
    assert made.candidates[order[1]]["stage"] != "naive"
    rows = DepthwiseConv1d(4, 16, 48, 48)
    first = space.subject("depthwise1d/forward").space(rows).candidates[0]
    assert first["stage"] == dispatch.best(rows, "forward").name


# --- the journal ------------------------------------------------------------------------------------------------------


def test_a_journal_gives_back_what_was_tried_the_newest_of_each(tmp_path):
    journal = Journal(tmp_path / "made" / "j.jsonl")
    assert journal.results(KEY) == {} and "no sound line" in journal.why_not(KEY)
    first, second = (
        Tried({"a": 1}, times_us=(2.0, 3.0), resources={"registers": 40}),
        Tried({"a": 2}, "timeout", "60 s"),
    )
    for one in (first, second, Tried({"a": 1}, times_us=(1.5,))):
        journal.append(KEY, one)
    assert list(journal.results(KEY).values()) == [Tried({"a": 1}, times_us=(1.5,)), second]
    assert journal.why_not(KEY) == "" and journal.message() == ""


@pytest.mark.parametrize(
    "change, says",
    [
        ({"gpu": "NVIDIA L4"}, "gpu: NVIDIA H200, here NVIDIA L4"),
        ({"versions": {"driver": "590.2", "numba-cuda": "0.30.4"}}, "driver: 580.1, here 590.2"),
        ({"kernel": "x" * 64}, "kernel: kkkkkkkkkkkk, here xxxxxxxxxxxx"),
        ({"dtype": "float16", "sparsity": "2:4"}, "dtype: float32, here float16; sparsity: dense, here 2:4"),
    ],
)
def test_a_miss_names_the_part_of_the_key_that_differs(tmp_path, change, says):
    journal = Journal(tmp_path / "j.jsonl")
    journal.append(KEY, Tried({"a": 1}, times_us=(1.0,)))
    other = replace(KEY, **change)
    assert journal.results(other) == {} and journal.why_not(other) == says


def test_a_journal_cut_at_any_byte_keeps_every_whole_line_and_takes_new_ones(tmp_path):
    whole = Journal(tmp_path / "whole.jsonl")
    for a in range(3):
        whole.append(KEY, Tried({"a": a}, times_us=(1.0 + a,)))
    data = whole.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    for cut in [*range(0, len(data), 7), *ends, *(end - 1 for end in ends)]:
        journal = Journal(tmp_path / "cut.jsonl")
        journal.path.write_bytes(data[:cut])
        journal.append(KEY, Tried({"a": 9}, times_us=(9.0,)))
        # A line of which only its end is lost is whole.
        expected = [a for a, end in enumerate(ends) if cut >= end - 1] + [9]
        assert [one.candidate["a"] for _, one in journal.read()] == expected, cut
        lines = journal.unused.get("damaged", [])
        assert len(lines) <= 1 and ("damaged" in journal.message()) == bool(lines)


@functools.cache  # a line has its date and its checksum in digits: written anew, the file has another length
def _three_lines():
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder) / "j.jsonl")
        for a in range(3):
            journal.append(KEY, Tried({"a": a}, times_us=(1.25,)))
        return journal.path.read_bytes()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_line_is_set_aside_and_no_other(tmp_path_factory, data):
    journal = Journal(tmp_path_factory.mktemp("j") / "j.jsonl")
    raw = bytearray(_three_lines())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.sampled_from([byte for byte in b'x0"{}\x00\xff' if byte != raw[at]]))
    journal.path.write_bytes(raw)
    found = [one.candidate["a"] for _, one in journal.read()]
    hit = bytes(raw[:at]).count(b"\n")
    assert set(found) >= {0, 1, 2} - {hit, hit + 1} and set(found) <= {0, 1, 2}
    assert all(one == Tried({"a": one.candidate["a"]}, times_us=(1.25,)) for _, one in journal.read())


def mutated(value):
    """A JSON value with each of its parts replaced, left out or joined by another, one at a time."""
    yield from (one for one in (None, True, -1, 10**400, math.nan, math.inf, "x", [], {}, [[]], {"x": None}))
    if isinstance(value, dict):
        yield value | {"of a later version": 1}
        for name in value:
            yield {other: one for other, one in value.items() if other != name}
            yield from (value | {name: one} for one in mutated(value[name]))
    elif isinstance(value, list):
        yield [*value, "x"]
        yield from ([*value[:i], one, *value[i + 1 :]] for i in range(len(value)) for one in mutated(value[i]))


def test_lines_by_hand_with_a_right_checksum_are_used_or_said_to_be_not(tmp_path):
    won = Tried({"a": 1, "b": "x", "c": True, "d": 0.5}, times_us=(2.0,), resources={"registers": 40.0}, won=True)
    body, journal = json.loads(encoded(KEY, won))["line"], Journal(tmp_path / "j.jsonl")
    for one in mutated(body):
        text = json.dumps(one, sort_keys=True, separators=(",", ":"))
        journal.path.write_text(f'{{"crc":{zlib.crc32(text.encode())},"line":{text}}}\n')
        found = list(journal.read())
        assert len(found) + sum(map(len, journal.unused.values())) == 1, one
        journal.results(KEY), journal.winner(KEY), journal.winners(), journal.why_not(KEY), journal.message()
        for key, tried in found:
            assert key.text and tried.ok in (True, False) and all(us >= 0 for us in tried.times_us), one
            assert all(isinstance(value, (bool, int, float, str)) for value in tried.candidate.values()), one
        if isinstance(one, dict) and isinstance(one.get("key"), dict):
            other = "of a later version" in {**one, **one["key"]} or "candidate" not in one
            other |= not body["key"].keys() - {"sparsity", "protocol"} <= one["key"].keys()
            assert (list(journal.unused) == ["of another version"]) == other, one


def test_what_cannot_be_read_is_named_and_a_finished_search_needs_no_room(tmp_path, monkeypatch):
    made, journal = space.space({"a": tuple(range(20))}), Journal(tmp_path / "j.jsonl")
    found = searched(journal.path, made, Noisy(1))
    packed = journal.pack().read_bytes()
    journal.packed.write_bytes(packed[:-20])
    with pytest.raises(JournalError, match=r"cannot read .*j\.jsonl\.xz"):
        list(journal.read())
    journal.packed.write_bytes(packed)

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sys.modules["dwlab.records.journal"], "open", refuse, raising=False)
    journal.check_writable(KEY)
    assert searched(journal.path, made, Noisy(2)).winner == found.winner
    with pytest.raises(JournalError, match="cannot write .*Permission denied"):
        journal.check_writable(replace(KEY, gpu="NVIDIA L4"))


def _write_many(path, who, count):
    journal = Journal(path)
    for i in range(count):
        journal.append(KEY, Tried({"who": who, "i": i}, times_us=tuple(float(i) for _ in range(200))))


def test_two_writers_lose_nothing(tmp_path):
    here = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")  # a new one takes seconds to import
    writers = [here.Process(target=_write_many, args=(tmp_path / "j.jsonl", who, 40)) for who in "ab"]
    for one in writers:
        one.start()
    for one in writers:
        one.join(120)
    journal = Journal(tmp_path / "j.jsonl")
    assert len(journal.results(KEY)) == 80 and journal.unused == {}


def test_a_journal_that_cannot_be_written_says_so_and_keeps_what_it_has(tmp_path, monkeypatch):
    journal = Journal(tmp_path / "j.jsonl")
    journal.append(KEY, Tried({"a": 1}, times_us=(1.0,)))
    before = journal.path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match="No space left on device; nothing in it is lost"):
        journal.append(KEY, Tried({"a": 2}, times_us=(1.0,)))
    assert journal.path.read_bytes() == before
    monkeypatch.undo()
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))  # room for a part of the line
    try:
        with pytest.raises(JournalError, match="too large; nothing in it is lost"):
            journal.append(KEY, Tried({"a": 2}, times_us=(1.0,)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.path.read_bytes() == before
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot write"):
        Journal(tmp_path / "file" / "j.jsonl").append(KEY, Tried({"a": 1}))
    with pytest.raises(JournalError, match="cannot read"):
        list(Journal(tmp_path).read())
    with pytest.raises(JournalError, match="state 'slow' is unknown"):
        Tried({"a": 1}, "slow")


# --- races ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n, k", [(5, None), (6, 0), (8, 0), (9, 1), (15, 3), (25, 7)])
def test_intervals_are_the_order_statistics_of_tables(n, k):
    """95 % for a median, as in tables of the sign test's critical values (k + 1 of n from each end)."""
    assert race.interval(list(range(n))) == ((-math.inf, math.inf) if k is None else (k, n - 1 - k))


def test_a_race_finds_the_fastest_in_noise_and_of_equal_candidates_takes_the_first():
    rng = random.Random(3)
    true = [10.0, 9.0, 30.0, 12.0, 9.9]
    result = race.race(range(5), lambda place: true[place] * rng.uniform(0.98, 1.02))
    assert result.winner == 1 and result.tied == (1,)
    assert len(result.times[2]) == 1 and len(result.times[3]) < 15
    rng = random.Random(5)
    for _ in range(10):
        result = race.race([4, 2, 7], lambda place: rng.gauss(10, 0.1), rounds=12)
        if len(result.tied) == 3:
            assert result.winner == 2
    result = race.race([4, 2], lambda place: 5.0)
    assert (result.winner, result.tied) == (2, (2, 4))


def test_a_candidate_that_fails_in_a_race_is_out_and_the_others_go_on():
    def measure(place):
        if place == 1:
            raise race.Out("timeout", "no answer in 60 s")
        return 5.0 + place

    result = race.race([0, 1, 2], measure)
    assert result.winner == 0 and result.out[1].state == "timeout" and 1 not in result.times
    assert race.race([1], measure).winner is None
    assert race.race([2, 0], measure, stop=lambda: True).winner == 2  # one round in any case


# --- searches on replays ----------------------------------------------------------------------------------------------


def sweep(seed=0, size=200, broken=0.1):
    """A space whose times a model knows roughly: (sweep, the model's order)."""
    rng = random.Random(seed)
    made = space.space({"block": tuple(range(size // 4)), "unroll": (1, 2, 4, 8)})
    tried, predicted = [], []
    for i, one in enumerate(made.candidates):
        true = 10 + 40 * rng.random() ** 2
        predicted.append(true * rng.uniform(0.9, 1.1))
        bad = i > 0 and rng.random() < broken
        times = tuple(true * rng.uniform(0.99, 1.01) for _ in range(11))
        tried.append(Tried(one, "incorrect", "wrong") if bad else Tried(one, times_us=times))
    return replay.Sweep(made, tried), [math.log(one) for one in predicted]


def test_a_models_search_on_a_replay_is_near_the_best_after_a_twentieth_and_beats_chance():
    regrets, chances = [], []
    for seed in range(20):
        recorded, predicted = sweep(seed)
        budget = len(recorded.space) // 20
        regrets.append(replay.regrets(recorded, strategies.model(predicted), budget)[-1])
        chances.append(replay.regrets(recorded, strategies.random(seed), budget)[-1])
    assert statistics.median(regrets) < 0.05 and statistics.mean(regrets) < statistics.mean(chances)


def test_the_model_learns_from_what_it_measures():
    """It expects nothing of the parameter that decides, which some candidates do not have."""
    made = space.listed([{"kind": kind, "block": 2**i} | ({"more": 1} if i else {}) for i in range(8) for kind in "ab"])
    times = [10 - (one["block"] == 64) - (one["kind"] == "b") for one in made.candidates]
    recorded = replay.Sweep(
        made, [Tried(one, times_us=(us,) * 4) for one, us in zip(made.candidates, times, strict=True)]
    )
    alike = [0.0] * len(made)
    tried = [*replay.proposed(recorded, strategies.model(alike))]
    first = [made.candidates[place]["kind"] for place in tried[:8]]
    assert first.count("b") >= 6 and sorted(tried) == [*strategies.model(alike)(made)] == [*range(len(made))]
    assert replay.regrets(recorded, strategies.model(alike)).index(0.0) < times.index(8)


def test_an_exhaustive_search_takes_the_best_of_the_sweep():
    for seed in range(5):
        recorded, _ = sweep(seed, size=40)
        found = search.search(recorded.space, recorded, strategies.exhaustive)
        assert recorded.regret(found.winner) < 0.01 and found.timed == len(recorded.space)
        assert found.curve == sorted(found.curve, reverse=True) and len(found.curve) == len(recorded.space)
        assert sum(found.rejected().values()) == sum(not one.ok for one in recorded.tried.values())


def test_every_strategy_begins_with_the_default_and_proposes_nothing_twice():
    made = space.space({"a": (1, 2, 3), "b": (1, 2)}, default={"a": 2, "b": 2})
    chosen = [
        strategies.ordered([3, 1]),
        strategies.model([4.0, 2.0, math.inf, 1.0, 3.0, 2.0]),
        strategies.exhaustive,
        strategies.random(1),
    ]
    for strategy in chosen:
        places = list(strategy(made))
        assert places[0] == 0 and len(set(places)) == len(places)


def test_optuna_by_ask_and_tell_proposes_each_candidate_once():
    pytest.importorskip("optuna", reason="the strategy 'optuna' needs it: pip install '.[search]'")
    recorded, _ = sweep(1, size=24)
    found = search.search(recorded.space, recorded, strategies.optuna(0))
    assert len(found.tried) == len(recorded.space) and recorded.regret(found.winner) < 0.01


class Noisy(Plain):
    """Rounds of 100 µs and more, each with a disturbance of its own."""

    def __init__(self, seed, width=6.0):
        self.random, self.width, self.rounds, self.judged = random.Random(seed), width, 0, 0

    def judge(self, candidate):
        self.judged += 1
        if candidate.get("wrong"):
            raise race.Out("incorrect", "y[3] is 1.0, 2.0 is right")

    def time_us(self, candidate):
        self.rounds += 1
        return 100 + abs(candidate["a"] - 9) + self.random.uniform(0, self.width)


def searched(path, made, noisy):
    return search.search(made, noisy, strategies.exhaustive, journal=Journal(path), key=KEY)


def test_a_finished_search_is_finished_however_noisy_the_clock(tmp_path):
    """Its winner is judged once; what was killed in its race goes on with the rounds that it has."""
    made = space.space({"a": tuple(range(20))})
    for seed in range(12):
        path, first = tmp_path / f"{seed}.jsonl", Noisy(seed)
        found, second = searched(path, made, first), Noisy(-seed)
        again = searched(path, made, second)
    assert (second.rounds, second.judged, again.winner) == (0, 1, found.winner)
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(20, len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        found, resumed = searched(path, made, rest := Noisy(99)), searched(path, made, last := Noisy(98))
        assert (last.rounds, resumed.winner) == (0, found.winner) and rest.rounds < first.rounds - 20
        assert kept < len(lines) - 1 or rest.rounds == 0  # all finalists' rounds are there


def test_a_winner_changes_for_one_that_is_faster_beyond_chance_alone(tmp_path):
    """Of a candidate that came later: 8 µs faster it wins, as fast it does not; and no other races again."""
    for faster in (True, False):
        path, values = tmp_path / f"{faster}.jsonl", tuple(range(20, 40))
        before = searched(path, space.space({"a": values}), Noisy(1)).candidate["a"]
        late, noisy = before - 8 if faster else 18 - before, Noisy(2)  # cost is the distance from 9
        after = searched(path, space.space({"a": (*values, late)}), noisy).candidate["a"]
        assert after == (late if faster else before) and noisy.rounds <= search.FIRST + 2 * race.ROUNDS


def test_a_winner_that_is_wrong_now_does_not_win(tmp_path):
    made = space.space({"a": tuple(range(20))})
    found = searched(tmp_path / "j.jsonl", made, Noisy(1))

    class Wrong(Noisy):
        def judge(self, candidate):
            super().judge(candidate | {"wrong": candidate in self.wrong})

    wrong = Wrong(2)
    wrong.wrong = [found.candidate]
    second = searched(tmp_path / "j.jsonl", made, wrong)
    assert second.winner != found.winner and second.tried[found.winner].state == "incorrect" and wrong.judged == 2
    wrong.wrong = made.candidates
    with pytest.raises(search.SearchError, match="every candidate failed: 20 × incorrect"):
        searched(tmp_path / "j.jsonl", made, wrong)
    one = space.space({"a": (9,)})
    searched(tmp_path / "one.jsonl", one, Noisy(1))
    with pytest.raises(search.SearchError, match="every candidate failed: 1 × incorrect"):
        searched(tmp_path / "one.jsonl", one, wrong)


def test_a_search_whose_journal_takes_no_more_says_so_goes_on_and_loses_nothing(tmp_path, monkeypatch):
    recorded, predicted = sweep(2, size=40)
    journal, real, left = Journal(tmp_path / "j.jsonl"), os.fsync, iter(range(3))

    def fsync(file):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        return real(file)

    how = {"journal": journal, "key": KEY, "most": 10}
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        found = search.search(recorded.space, recorded, strategies.model(predicted), **how)
    kept = journal.results(KEY)
    assert "No space" in found.trouble and len(kept) == 3 and journal.unused == {} and found.timed == 10
    journal.path.write_bytes(journal.path.read_bytes() + b"".join(found.unsaved))  # where there is room again
    again = search.search(recorded.space, recorded, strategies.model(predicted), **how)
    assert again.winner == found.winner and again.timed == 0 and again.trouble == ""


def test_one_candidate_is_judged_and_not_timed():
    class Untimed(Plain):
        def time_us(self, candidate):
            raise AssertionError("nothing to compare it with")

    assert search.search(space.space({"cost": (1,)}), Untimed(), strategies.exhaustive).winner == 0


def test_what_turns_wrong_after_the_race_does_not_win():
    class Turns(Plain):
        judged = 0

        def judge(self, candidate):
            self.judged += candidate["cost"] == 1
            if candidate["cost"] == 1 and self.judged > 2:
                raise race.Out("incorrect", "wrong on the third look")

    found = search.search(space.space({"cost": (1, 2, 3)}), Turns(), strategies.exhaustive)
    assert found.candidate == {"cost": 2} and found.tried[0].state == "incorrect"


def test_a_sweep_must_be_whole():
    made = space.space({"cost": (1, 2)})
    with pytest.raises(replay.ReplayError, match="1 of 2 candidates were not recorded"):
        replay.Sweep(made, [Tried({"cost": 1}, times_us=(1.0,))])
    with pytest.raises(replay.ReplayError, match="no candidate of the sweep was right"):
        replay.Sweep(made, [Tried({"cost": 1}, "timeout"), Tried({"cost": 2}, "crashed")])


# --- anybody's kernel -------------------------------------------------------------------------------------------------


def test_a_wrong_candidate_is_told_by_poisoned_outputs():
    made = space.space({"block": (32,), "hole": (-1, 1)})
    found = search.search(made, bench.KernelBench(doubling, doubled, numbers()), strategies.exhaustive)
    assert found.candidate["hole"] == -1
    assert found.tried[1].state == "incorrect" and found.tried[1].reason == "y[1] is nan, 4.0 is right"


def test_an_output_that_is_read_is_not_poisoned_and_an_input_must_stay():
    def make(candidate):
        spoil = candidate["spoil"]

        @cuda.jit
        def kernel(x, y):
            i = cuda.grid(1)
            if i < x.size:
                y[i] += x[i]
                if spoil:
                    x[i] = 0

        return kernel, 2, 64

    def added(x, y):
        y += x

    made = space.space({"spoil": (False, True)})
    found = search.search(made, bench.KernelBench(make, added, numbers()), strategies.exhaustive)
    assert found.winner == 0 and found.tried[1].reason.endswith("it is an input")


# --- workers ----------------------------------------------------------------------------------------------------------


LOSING = {
    "hang": ("timeout", "no answer in 2 s"),
    "die": ("crashed", "its process ended (SIGKILL)"),
    "leave": ("crashed", "its process ended (exit code 3)"),
    "memory": ("memory", "MemoryError: of 80 GiB"),
    "raise": ("crashed", "ZeroDivisionError: division by zero"),
    "context": ("crashed", "CudaAPIError: [700] Call to cuEventSynchronize"),
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_a_candidate_costs_itself_alone():
    made = space.space({"cost": (3, 1, 2), "does": ("", *LOSING)}, {"one": lambda c: not c["does"] or c["cost"] == 1})
    with Worker(Plain, seconds=2) as bench:
        found = search.search(made, bench, strategies.exhaustive)
    assert found.candidate == {"cost": 1, "does": ""} and bench.losses == len(LOSING) - 2
    bad = {one.candidate["does"]: (one.state, one.reason) for one in found.tried.values() if one.candidate["does"]}
    assert {does: state for does, (state, _) in bad.items()} == {does: state for does, (state, _) in LOSING.items()}
    assert all(bad[does][1].startswith(says) for does, (_, says) in LOSING.items()), bad


def test_turns_are_taken_by_one_at_a_time_and_who_keeps_the_gpu_to_itself_is_ended(tmp_path):
    """Who is killed with a turn is waited for no longer."""
    lock = GpuLock(tmp_path / "lock", seconds=1.0)
    with Worker(functools.partial(Shared, lock), lock=lock) as one, Worker(functools.partial(Shared, lock)) as other:
        one.judge({"cost": 0}), other.judge({"cost": 0})  # both processes are there
        with lock, ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(each.time_us, {"cost": 1}) for each in (one, other)]
            time.sleep(0.5)
            assert not any(each.done() for each in waiting)
            lock.__exit__(None, None, None)
            assert [each.result(20) for each in waiting] == [11.0, 11.0]
            lock.__enter__()
        begun = time.monotonic()
        with pytest.raises(race.Out, match="timeout: it kept the GPU for 1 s"):
            one.time_us({"cost": 1, "does": "hang"})
        assert other.time_us({"cost": 2}) == 12.0 and time.monotonic() - begun < 20
        assert one.time_us({"cost": 3}) == 13.0 and one.losses == 1  # by a new process
        assert not lock.is_over(os.getpid())


def test_a_bench_that_cannot_be_made_is_no_candidates_fault():
    with pytest.raises(WorkerError, match="made: RuntimeError: no GPU here"), Worker(functools.partial(broken)) as one:
        one.begin()
    with Worker(functools.partial(broken)) as bench, pytest.raises(search.SearchError, match="no GPU here"):
        search.search(space.space({"cost": (1, 2)}), bench, strategies.exhaustive)  # one that was not begun before


# --- what is learned from other sweeps --------------------------------------------------------------------------------


def test_an_error_that_all_layers_share_is_learned_and_none_is_made_up():
    rng = np.random.default_rng(3)
    tile = [{"block_m": int(m), "block_n": int(n)} for m in (16, 32, 64, 128) for n in (16, 32, 64)]
    here = learned.place(Pointwise(1, 32, 64, 28, 28), "forward")

    def made(layer, truth, stage="pointwise/forward/tensor", tiles=tile):
        error = np.array([truth * math.log2(1 + one["block_m"]) for one in tiles]) + rng.normal(0, 0.01, len(tiles))
        return learned.Seen(stage, layer, here, learned.sizes(tiles), error + rng.uniform(0, 3))  # a sweep's level: any

    new = made("new", 0.3)

    def left(known):
        found = learned.correction(new.stage, here, new.tiles, known)
        return (new.error - new.error.mean() - found).std() / new.error.std()

    assert left([made(str(i), 0.3) for i in range(6)]) < 0.15
    half = [made(str(i), 0.3, tiles=tile[i % 2 :: 2]) for i in range(6)]  # of other tiles it knows those beside them
    assert left(half) < 0.25
    for nothing in ([], [made("x", 0.3, "sparse/forward/tensor")], [made("x", 0.3, tiles=tile[:1])]):
        assert not learned.correction(new.stage, here, new.tiles, nothing).any()
    quiet = learned.correction(new.stage, here, new.tiles, [made(str(i), 0.0) for i in range(6)])
    assert np.abs(quiet).max() < 0.1


def test_of_problems_the_more_alike_one_counts_more():
    tile = learned.sizes([{"block_m": 16}, {"block_m": 256}])
    small, large = (learned.place(Pointwise(n, 32, 64, 28, 28), "forward") for n in (1, 64))
    known = [
        learned.Seen("s", str(sign), where, tile, sign * np.array([-1.0, 1.0]))
        for sign, where in ((1, small), (-1, large))
    ]
    for here, sign in ((small, 1), (large, -1)):
        first, second = learned.correction("s", here, tile, known)
        assert sign * (second - first) > 0.5, here


def test_a_layer_is_itself_at_every_batch_and_in_every_type():
    sizes = learned.layer_of("N=1 C=32 F=64 H=28 W=28 NHWC bias relu6")
    assert sizes == learned.layer_of("N=32 C=32 F=64 H=28 W=28 NHWC float16 bias residual") == "C=32 F=64 H=28 W=28"
    assert sizes != learned.layer_of("N=1 C=32 F=64 H=28 W=14 NHWC bias relu6")
    pair = learned.layer_of("N=1 C=3 F=4 H=9 W=9 NHWC -> N=1 C=4 H=9 W=9 K=3 stride 2 NHWC")
    assert pair == "C=3 F=4 H=9 W=9 -> C=4 H=9 W=9 K=3 stride 2"


def test_a_key_of_sparse_filters_has_their_pattern_and_so_have_lines_that_said_dense(tmp_path):
    sparse = replace(KEY, subject="sparse/forward", problem="N=1 C=32 F=32 H=7 W=7 NHWC float16 64:2:16")
    assert sparse.sparsity == "64:2:16" and KEY.sparsity == "dense"
    assert replace(sparse, subject="pointwise/forward").sparsity == "64:2:16"  # as it was given
    body = json.loads(encoded(sparse, Tried({"n": 1}, times_us=(1.0,))))["line"]
    body["key"]["sparsity"] = "dense"
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    file = tmp_path / "old.jsonl"
    file.write_bytes(f'{{"crc":{zlib.crc32(text.encode())},"line":{text}}}\n'.encode())
    assert [one for one, _ in Journal(file).read()] == [sparse]
    own = stages.there("sparse/forward/tensor", layers.problem("N=1 C=64 F=64 H=4 W=4 NHWC float16 2:4"))
    assert own.sparsity == "2:4"
    assert "sparsity: dense, here 2:4" in own.differs(replace(own, subject="own", sparsity="dense"))
