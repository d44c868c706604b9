"""Several GPUs for one search: processes of this machine, and Dask's workers, on made-up times and on replays."""

import functools
import math
import os
import time
from types import SimpleNamespace

import pytest
from tuning_benches import Counted, Held, Plain, Sudden, broken

from dwlab.records.journal import Journal, Key
from dwlab.tuning import command, pool, search, space, strategies
from dwlab.tuning.worker import Inline, WorkerError

KEY = Key("NVIDIA H200", "9.0", 132, {}, "k" * 64, "s" * 64, "own", "n=3", "float32")
SPACE = space.space({"cost": (9, 1, 2, 3, 4, 5, 6, 7)})


def test_first_rounds_are_on_every_gpu_and_the_race_on_one(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    with pool.of_machine(Counted, ("0", "1")) as both:
        found = search.search(SPACE, both.bench, strategies.exhaustive, firsts=both.firsts, journal=journal, key=KEY)
    assert found.candidate == {"cost": 1} and len(found.tried) == found.timed == len(SPACE)
    assert {one.resources["gpu"] for one in found.tried.values()} == {0.0, 1.0}
    assert len({one.resources["process"] for one in found.tried.values()}) == 2
    assert len(found.tried[found.winner].times_us) > search.FIRST  # it raced
    assert len(journal.results(KEY)) == len(SPACE) and journal.winner(KEY).candidate == {"cost": 1}
    with pool.of_machine(functools.partial(Plain), ("0",)) as one:
        again = search.search(SPACE, one.bench, strategies.exhaustive, firsts=one.firsts, journal=journal, key=KEY)
    assert again.timed == 0 and again.candidate == {"cost": 1}


def test_a_gpu_that_does_not_start_ends_the_search_and_blames_no_candidate(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    nowhere = pool.of_machine(functools.partial(broken), ("0", "1"))
    with pytest.raises(WorkerError, match="no GPU here"), nowhere as both:
        search.search(SPACE, both.bench, strategies.exhaustive, firsts=both.firsts, journal=journal, key=KEY)
    assert not journal.exists


def test_a_lost_process_costs_its_candidate_and_the_others_go_on():
    made = space.space(
        {"cost": (3, 1, 2), "does": ("", "die", "hang")}, {"one": lambda c: not c["does"] or c["cost"] == 1}
    )
    with pool.of_machine(Plain, ("0", "1"), seconds=3) as both:
        found = search.search(made, both.bench, strategies.exhaustive, firsts=both.firsts)
    assert found.candidate == {"cost": 1, "does": ""}
    assert sorted(one.state for one in found.tried.values() if not one.ok) == ["crashed", "timeout"]


def test_when_the_time_is_over_no_candidate_is_begun():
    with pool.of_machine(Plain, ("0",)) as one:
        assert list(one.firsts(SPACE.candidates, 3, time.monotonic() - 1)) == []
        found = search.search(SPACE, one.bench, strategies.exhaustive, firsts=one.firsts, most=3)
    assert len(found.tried) == 3 and found.candidate == {"cost": 1}
    for gpus in ((), ("0", "0")):
        with pytest.raises(pool.ClusterError, match="name each GPU once"):
            pool.of_machine(Plain, gpus)


def test_processes_of_one_gpu_use_it_one_after_the_other():
    with pool.of_machine(Held, ("0", "1"), processes=2) as four:
        tried = list(four.firsts(SPACE.candidates, 2, math.inf))
        assert os.path.isdir(four.folder)
    assert not os.path.exists(four.folder)
    assert sorted(one.candidate["cost"] for one in tried) == [1, 2, 3, 4, 5, 6, 7, 9] and all(one.ok for one in tried)
    assert len({one.resources["process"] for one in tried}) > 2
    for gpu in (0, 1):
        held = sorted((one.resources["from"], one.resources["to"]) for one in tried if one.resources["gpu"] == gpu)
        assert held and all(before[1] <= after[0] for before, after in zip(held, held[1:], strict=False)), held


def test_a_gpu_that_somebody_uses_is_named():
    shown = "0, 0, 4\n1, 93, 40000\n2, 0, 30000\n3, 0, [N/A]\n"
    assert pool.busy(("0", "1", "2", "3"), lambda _: shown) == {
        "1": "93 % busy, 40000 MB of its memory taken", "2": "0 % busy, 30000 MB of its memory taken",
    }  # fmt: skip

    def none(_):
        raise FileNotFoundError

    assert pool.busy(("0",), none) == {}


def test_the_command_gives_each_gpu_a_process(run, monkeypatch):
    named = []

    def here(make, gpus, *limits):
        named.extend(gpus)
        return pool.Pool([Inline(make())])

    monkeypatch.setattr(pool, "of_machine", here)
    given = ("tune", "depthwise1d/forward", "1,2,24,3", "--gpus", "2,3", "--most", "2")
    status, out, _ = run(*given)
    assert status == 0 and named == ["2", "3"] and "2 tried" in out
    assert "No time was measured" in out
    monkeypatch.setattr(pool, "busy", lambda gpus: {"3": "93 % busy"})
    monkeypatch.setattr(command, "target", SimpleNamespace(mode="gpu"))
    monkeypatch.setattr(command, "_gpu", lambda args: None)
    status, out, err = run(*given)
    assert status == 0 and named[2:] == ["2"] and "dwlab: GPU 3 is left out: 93 % busy" in err
    monkeypatch.setattr(pool, "busy", lambda gpus: dict.fromkeys(gpus, "93 % busy"))
    status, _, err = run(*given)
    assert status == 2 and "somebody else uses all of them" in err


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install '.[cluster]'")
    flag = tmp_path_factory.mktemp("flag") / "there"
    old = os.environ.get("PYTHONPATH", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DWLAB_TEST_FLAG", str(flag))
        patch.setenv("PYTHONPATH", os.pathsep.join([os.path.dirname(__file__), old]))
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            ) as local,
            distributed.Client(local) as made,
        ):
            yield made


def test_dasks_workers_do_the_same(client, tmp_path):
    cluster = pool.of_cluster(client, Counted)
    journal = Journal(tmp_path / "j.jsonl")
    found = search.search(SPACE, cluster.bench, strategies.random(1), firsts=cluster.firsts, journal=journal, key=KEY)
    assert not found.trouble, (found.trouble, found.unsaved)
    assert found.candidate == {"cost": 1} and len(found.tried) == len(SPACE) == len(journal.results(KEY))
    assert len({one.resources["process"] for one in found.tried.values()}) == 2
    assert len(found.tried[found.winner].times_us) > search.FIRST


def test_a_worker_killed_in_the_middle_loses_no_candidate(client):
    made = space.space(
        {"cost": (3, 1, 2, 5, 7), "does": ("", "end the machine")}, {"one": lambda c: not c["does"] or c["cost"] == 2}
    )
    tried = list(pool.of_cluster(client, Sudden).firsts(made.candidates, 3, math.inf))
    assert os.path.exists(os.environ["DWLAB_TEST_FLAG"])  # a process was killed
    assert len(tried) == len(made) and all(one.ok for one in tried)
    client.wait_for_workers(2, timeout=60)


def test_finalists_whose_gpu_is_gone_are_not_raced_on_another(client):
    cluster = pool.of_cluster(client, Plain)
    assert cluster.bench.time_us({"cost": 1}) == 11
    cluster.bench.address = "tcp://127.0.0.1:1"
    with pytest.raises(pool.ClusterError, match="is gone: run it again"):
        cluster.bench.time_us({"cost": 1})


def test_workers_must_be_alike(client):
    assert pool.key(client, _same) == KEY
    with pytest.raises(pool.ClusterError, match="are not alike: gpu: "):
        pool.key(client, _own)


def _same():
    return KEY


def _own():
    return Key(f"GPU {os.getpid()}", "9.0", 132, {}, "k", "s", "own", "n=3", "float32")


def test_the_command_searches_on_a_cluster(client, run, tmp_path):
    given = ("depthwise1d/forward", "1,2,24,3", "--most", "2", "--journal", str(tmp_path / "j.jsonl"))
    status, out, err = run("tune", *given, "--cluster", client.scheduler.address)
    assert (status, err) == (0, "") and "2 tried" in out and "No time was measured" in out
    assert len(list(Journal(tmp_path / "j.jsonl").read())) == 3
    status, out, _ = run("tune", *given)  # the same key as in this process: nothing is measured again
    assert status == 0 and "2 tried, 2 before" in out
