"""Hardware counters of layers: which launches are asked for, what of them is recorded, read back and shown."""

import functools

import pytest
from fakes import recorded, script
from parts import part

from dwlab import records
from dwlab.judge import formulas
from dwlab.measure import counters
from dwlab.problems.layers import Fused

ncu_layers, record_layers = map(script, ("ncu_layers", "record_layers"))

IDS = ("fused/dwpw/slide", "depthwise2d/forward/columns", "pointwise/forward/naive")
tasks = functools.cache(ncu_layers.tasks)  # seconds of looking for plans: when a test asks, not when it is found


@functools.cache
def few():
    named = {(task.stage.id, task.problem.N, task.problem.dtype): task for task in reversed(tasks())}
    return [named[id, 1, "float32"] for id in IDS]


def counted_of(task, **more):
    """What a GPU would count that does all as the formula says."""
    predicted = task.stage.traffic(task.problem).to_dict()
    moved = predicted["bytes_moved"]
    written = predicted["store_sectors"]
    known = {name: predicted[name] for name in ("load_requests", "load_sectors", "store_requests", "store_sectors")}
    counts = dict.fromkeys(records.COUNTED_OF_LAYERS, 7) | known
    counts |= {"l2_sm_read_sectors": moved // 32 - written, "l2_sm_write_sectors": written} | more
    problem = records.describe_problem(task.problem)
    return counters.Counters(task.stage.op, task.stage.path, task.stage.name, problem, predicted, **counts)


def run_of(tmp_path, rows, day=""):
    return recorded(tmp_path, day=day, ceilings={}, sections={"layer_counters": rows}, notes=["All."])


def of_small_maps(dtype):
    """Launches, for one image, of the networks' pairs with outputs of 7 x 7."""
    pairs = [one.problem for one in record_layers.plan(["fused"], [dtype]) if one.problem.second.P <= 7]
    assert len(pairs) == 19
    stages = [record_layers.candidates(one, 1)[0] for one in pairs]
    return [ncu_layers.Task(stage, one) for stage, one in zip(stages, pairs, strict=True)]


def channels(problem):
    """The most channels of a map of a layer, or of a pair's."""
    layers = (problem.first, problem.second) if isinstance(problem, Fused) else (problem,)
    return max(size for one in layers for size in (one.C, getattr(one, "F", 0)))


def cheapest(tasks):
    """Of each stage's launches that of the fewest operations, and that of the fewest in the half with more channels.

    The widest take the interpreter 15 seconds each.
    """
    found = []
    for stage in {task.stage.id: task.stage for task in tasks}.values():
        own = sorted((task for task in tasks if task.stage is stage), key=lambda task: channels(task.problem))
        halves = own, own[len(own) // 2 :]
        found += {
            id(one): one for one in (min(half, key=lambda task: task.problem.flops_of(stage.path)) for half in halves)
        }.values()
    return found


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_what_is_counted_on_a_gpu_asks_for_what_the_formula_says_in_the_interpreter_too(dtype):
    """It also refuses to read beyond an array, which a GPU does without a word."""
    tasks = cheapest(of_small_maps(dtype))
    each = (lambda task: [task.stage.op]) if dtype == "float32" else lambda task: [task.stage.id]  # the same stages
    for task in part(f"test_ncu_layers: {dtype}", tasks, each, 0.05):
        formulas.compare(task.stage, task.problem).raise_if_different()


def test_what_is_recorded_is_not_missing(tmp_path):
    row = ncu_layers.row_of(few()[0], counted_of(few()[0]))
    assert ncu_layers.missing(few(), [run_of(tmp_path, [row])]) == few()[1:]
    assert ncu_layers.missing(few(), []) == few()
    others = {"layer": "PW 1→1@1", "stage": "naive", "layout": "NCHW", "batch": 2, "dtype": "float16", "path": "pwdw"}
    for number, (name, value) in enumerate(others.items(), 1):
        other = run_of(tmp_path, [row | {name: value}], day=f"22T0{number}")
        assert ncu_layers.missing(few(), [other]) == few(), name


def test_without_a_gpu_it_lists_and_says_that_it_needs_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ncu_layers, "tasks", lambda *given: tasks())
    assert ncu_layers.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [*map(str, tasks()), f"{len(tasks())} launches"]
    from dwlab.gpu import target

    monkeypatch.setattr(target, "mode", "simulated", raising=False)
    monkeypatch.setattr(target, "reason", "no driver", raising=False)
    monkeypatch.setenv("DWLAB_TARGET", "simulated")
    assert ncu_layers.main([str(tmp_path)]) == 2
    assert "needs a GPU: no driver" in capsys.readouterr().err
