"""Which stage is expected to be fastest: by times, never by the order of files."""

import dataclasses
import math
import random

import pytest

from dwlab import records
from dwlab.kernels import choices, dispatch, registry
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import DTYPES, PATHS, DepthwiseConv1d, layers
from dwlab.records import packing
from dwlab.tuning import space

STAGES = registry.stages("depthwise1d")
RUNS = [run for run in records.load_runs() if run.sections.get("shapes")]


def drawn(seed, count=20):
    """Shapes of every kind, small in sum."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        B, H, L, K = (round(2 ** rng.uniform(0, top)) for top in (12, 8, 13, 8))
        dtype = rng.choice(("float32", "float32", "float16", "bfloat16"))
        if dtype != "float32":
            L, K = 8 * -(-L // 8), min(K, 64)
        found.append(DepthwiseConv1d(B, H, L, K, rng.choice(("causal", "same", rng.randrange(K))), dtype))
    return found


def chosen(problems):
    """What calls of every path start, with arrays at any address and at 256 bytes."""
    return [
        tuple(one.id for one in dispatch.launches(problem, path, aligned))
        for problem in problems
        for path in PATHS
        for aligned in ((256, 4) if problem.dtype == "float32" else (256,))
    ]


@pytest.mark.parametrize("path", PATHS)
def test_a_slow_stage_at_the_end_of_the_list_changes_nothing(path, monkeypatch):
    """It takes every problem, says that it moves no byte, and is called what is first in any order."""
    problems = drawn(path)
    before = chosen(problems)
    known = [one for one in STAGES if one.path == path]
    naive = known[0]
    asked = []

    def launch(problem):
        asked.append(problem)
        return naive.launch(problem)

    new = {"order": 99, "name": "aaa", "launch": launch, "supports": lambda problem: True, "dtypes": DTYPES}
    late = dataclasses.replace(naive, **new)
    real = registry.stages

    def listed(op=None, path_of=None, *, path=None):
        found = real(op, path_of or path)
        return (*found, late) if late.path in (path_of, path) else found

    monkeypatch.setattr(registry, "stages", listed)
    assert chosen(problems) == before
    assert asked  # it was on the list


def test_the_order_of_files_decides_nothing(monkeypatch):
    problems = drawn("order")
    before = chosen(problems)
    real = registry.stages
    renamed = {one.id: dataclasses.replace(one, order=-one.order) for one in STAGES}
    monkeypatch.setattr(
        registry, "stages", lambda op=None, path=None: tuple(renamed[one.id] for one in reversed(real(op, path)))
    )
    assert chosen(problems) == before


def test_a_problem_that_was_timed_gets_its_fastest_stage():
    """Of forward and input gradient the one that is fastest by the times of both: in the mean it costs neither much."""
    times, lost = {}, {path: [] for path in PATHS}  # of each shape and path, each stage's newest
    for run in RUNS:
        for row in run.sections["shapes"]:
            problem = DepthwiseConv1d(**row["problem"], dtype=row["dtype"])
            times.setdefault((run.gpu, problem, row["path"]), {}).update(row["times"])
    assert times
    for (gpu, problem, path), taken in times.items():
        single = {id: us for id, us in taken.items() if "," not in id}
        mirror = choices.MIRROR.get(path, path)
        there = times.get((gpu, problem, mirror), {})
        both = {id: math.sqrt(us * there.get(id.replace(path, mirror), us)) for id, us in single.items()}
        if single:
            choice = next(one.id for one in dispatch.ranking(problem, path, gpu=gpu) if one.id in single)
            # A time is known as so many times its run's least, which differs a little from run to run.
            assert both[choice] < 1.03 * min(both.values()), problem
            lost[path].append(math.log(single[choice] / min(single.values())))
    for path, logarithms in lost.items():
        assert math.exp(sum(logarithms) / len(logarithms)) < 1.002, path


def test_a_problem_that_was_not_timed_gets_a_stage_near_the_fastest():
    """Each recorded shape foreseen from the others: how much slower the choice is, in the mean and at most."""
    for path in PATHS:
        known, over = choices.recorded("depthwise1d")["depthwise1d", path], []
        for row in (one for one in RUNS[0].sections["shapes"] if one["path"] == path):
            problem = DepthwiseConv1d(**row["problem"], dtype=row["dtype"])
            place, _ = choices.place_of(problem, problem.dtype)
            others = [one for one in known if one.place != place]
            times = {choices.PAIR if "," in id else id: us for id, us in row["times"].items()}
            found = choices.expected(list(times), problem, others, RUNS[0].gpu)
            over.append(times[min(found, key=lambda id: (found[id], id))] / min(times.values()))
        assert len(over) > 100
        assert math.exp(sum(map(math.log, over)) / len(over)) < 1.08 and max(over) < 2.5, path


def sample(gpu="G", place=(0.0, 0.0, 0.0, 0.0), **taken):
    return choices.Sample(
        gpu, place, ("float32",), {f"depthwise1d/forward/{name}": value for name, value in taken.items()}
    )


def test_the_gpu_at_hand_counts_alone_if_it_has_times():
    problem = DepthwiseConv1d(1, 1, 1, 1)
    here, there = sample("here", naive=1.0, shared=2.0), sample("there", naive=2.0, shared=1.0)
    ids = list(here.taken)
    assert choices.expected(ids, problem, [there, here], "here") == here.taken
    assert choices.expected(ids, problem, [there, here], "there") == there.taken
    assert choices.expected(ids, problem, [there, here, dataclasses.replace(there, place=(9.0, 0, 0, 0))], "new")[
        ids[1]
    ] == pytest.approx(1.0)
    assert choices.expected(ids, problem, [], "here") == {}


def test_times_of_another_storage_type_do_not_make_a_gpu_known():
    """Of a GPU with times of float16 alone, what is chosen in float32 is what the shown GPU's times say."""
    problem, halves = DepthwiseConv1d(1, 1, 1, 1), ("float16",)
    here, shown = sample("here", naive=1.0, shared=2.0), sample(records.SHOWN, naive=2.0, shared=1.0)
    ids, here = list(here.taken), dataclasses.replace(here, words=halves)
    assert choices.expected(ids, problem, [shown, here], "here") == shown.taken
    assert choices.expected(ids, dataclasses.replace(problem, dtype="float16"), [shown, here], "here") == here.taken


def test_without_any_times_the_fewest_sectors_and_requests_decide():
    problem = DepthwiseConv1d(2, 3, 40, 5)
    takers = [one for one in STAGES if one.path == "forward" and one.supports(problem)]
    found = choices.fastest(takers, problem, known=())
    assert [choices.slots(one, problem) for one in found] == sorted(choices.slots(one, problem) for one in takers)
    assert found == choices.fastest(takers[::-1], problem, known=())


def test_records_of_a_folder_are_read_once_and_damage_is_passed_over(tmp_path, monkeypatch):
    run = next(run for run in reversed(RUNS) if {row["path"] for row in run.sections.get("shapes", ())} == set(PATHS))
    (tmp_path / run.file).write_bytes(packing.unpacked(run.file))
    (tmp_path / "damaged.json").write_text('{"op": "depthwise1d"')
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(choices, "recorded", choices.functools.cache(choices.recorded.__wrapped__))
    found = choices.recorded("depthwise1d")
    assert set(found) == {("depthwise1d", path) for path in PATHS}
    assert choices.recorded("depthwise1d") is found


def test_a_path_and_its_mirror_rank_alike():
    """All recorded problems and drawn ones, whether both paths were timed, one of them or none."""
    recorded = [(run.gpu, *one) for run in records.load_runs() for one in choices._timed(run)]
    described = [(gpu, records.describe_problem(one), dtype) for gpu, op, _, one, dtype, *_ in recorded if "1d" in op]
    problems = {DepthwiseConv1d(**fields, dtype=dtype): gpu for gpu, fields, dtype in described}
    ranked = set()
    for problem, gpu in (problems | dict.fromkeys(drawn("mirror", 100))).items():
        for aligned in (256, 4) if problem.dtype == "float32" else (256,):
            names = [[one.name for one in dispatch.ranking(problem, path, aligned, gpu)] for path in choices.MIRROR]
            forward, gradient = ([one for one in each if one != "registers"] for each in names)  # of forward alone
            assert forward == gradient, problem
            ranked.add(tuple(forward))
    assert len(problems) > 300 and len(ranked) > 50


def test_a_stage_is_not_thought_faster_for_a_problem_that_another_was_not_timed_on():
    problem = DepthwiseConv1d(460, 255, 511, 63, "same")
    assert {choices.ranking(problem, path)[0].name for path in choices.MIRROR} == {"tiles"}


def test_a_searchs_space_begins_with_the_stage_that_is_ranked_first():
    for text in ("N=1 C=512 F=1352 H=68 W=104 NHWC", "N=1 C=264 F=56 H=71 W=74 NHWC", "N=2 C=40 H=63 W=8 K=11 NHWC"):
        one = layers.problem(text)
        ranked = choices.ranking(one, None, "NVIDIA H200")[0]
        assert space.subject(f"{one.op}/forward").space(one, gpus.H200).candidates[0]["stage"] == ranked.name
