"""Which stage runs a layer, and which layers share a kernel."""

import itertools
import re
from dataclasses import replace

import pytest
from fakes import measured
from small_networks import cut, thin

from dwlab import planner, records
from dwlab.gpu import specs as gpus
from dwlab.inference import selection
from dwlab.kernels import choices
from dwlab.problems import networks
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.networks import InferenceError, network

LAYER = DepthwiseConv2d(1, 32, 14, 14, 3, layout="NHWC", bias=True, activation="relu6")


def row(problem, stage, us, date="2026-01-01T00:00:00+00:00", gpu="H"):
    return measured(stage, us, problem, us, problem.main_path, op=problem.op, date=date, gpu=gpu)


def test_the_fastest_recorded_of_the_newest_run():
    first, *_ = takers = choices.takers(LAYER)
    assert len(takers) > 1, "the choice needs two stages of depthwise2d"
    last = takers[-1]
    rows = [row(LAYER, first.name, 2.0), row(LAYER, last.name, 3.0), row(LAYER, "gone", 0.1)]
    assert selection.choose(LAYER, rows) is first
    # Which stage wins carries over, where nothing else is known.
    assert selection.choose(LAYER, rows, gpu="other") is first
    rows += [row(LAYER, last.name, 9.0, "2026-02-01T00:00:00+00:00")]
    assert selection.choose(LAYER, rows) is last
    half = replace(LAYER, dtype="float16")
    alone = [one for one in choices.takers(half) if one is not first]
    assert selection.choose(half, [row(half, one.name, 9.0 - one.order) for one in alone]) is alone[-1]


def test_layers_like_it_decide_for_one_that_was_not_timed_and_one_with_its_epilogue_before_others():
    first, *_, last = choices.takers(LAYER)
    wide, narrow = replace(LAYER, H=112, W=112), replace(LAYER, H=7, W=7)
    rows = [row(wide, first.name, 20.0), row(wide, last.name, 10.0)]
    rows += [row(narrow, first.name, 2.0), row(narrow, last.name, 3.0)]
    assert selection.choose(replace(LAYER, H=56, W=56), rows) is last
    assert selection.choose(replace(LAYER, H=8, W=8), rows) is first
    assert selection.choose(replace(LAYER, H=8, W=8), rows[::-1]) is first  # in whatever order
    bare = replace(LAYER, bias=False, activation="none")
    rows = [row(bare, first.name, 2.0), row(bare, last.name, 3.0)]
    assert selection.choose(LAYER, rows) is first
    assert selection.choose(LAYER, [*rows, row(LAYER, last.name, 5.0)]) is last
    pair = Fused(LAYER, Pointwise(1, 32, 64, 14, 14, layout="NHWC", bias=True))
    plain = Fused(bare, replace(pair.second, bias=False))
    assert choices.fastest_row(pair, [row(plain, choices.takers(pair)[0].name, 4.0)]).time_us == 4.0
    times = {LAYER: {first.id: 1.0, last.id: 2.0, "depthwise2d/forward/gone": 0.5}}
    assert selection.choose(LAYER, [row(LAYER, last.name, 0.1)], times=times) is first


@pytest.mark.parametrize("problem", [replace(LAYER, H=15, W=15), Fused(LAYER, Pointwise(1, 32, 64, 14, 14, "NHWC"))])
def test_a_stage_at_the_end_of_the_list_that_was_never_timed_changes_no_choice(problem, monkeypatch):
    """Whatever its place, its name and what it says of its traffic."""
    before = selection.choose(problem)
    listed = choices.takers(problem)
    late = replace(listed[0], name="aaa", order=99, traffic=lambda _: pytest.fail("not asked"))
    for order in ([*listed, late], [late, *listed], [late, *reversed(listed)]):
        monkeypatch.setattr(choices, "takers", lambda *_, order=order: tuple(order))
        assert selection.choose(problem) is before


def times_of(made, alone=1.0, pair=1.0):
    found = {layer.problem: {"a": alone} for layer in made.layers if layer.planned}
    for number in range(len(made.layers) - 1):
        if not made.joint(number):
            found[Fused(made.layers[number].problem, made.layers[number + 1].problem)] = {"a": pair}
    return found


def test_layers_share_a_kernel_where_it_was_measured_to_pay():
    made = network("mobilenet_v2", layout="NHWC")
    cheap, dear = (selection.decide(made, times=times_of(made, 1.0, us)).pieces for us in (1.5, 2.5))
    assert dear == selection.layer_by_layer(made)
    assert sum(len(piece) == 2 for piece in cheap) > 15
    assert sorted(itertools.chain(*cheap)) == sorted(itertools.chain(*dear))
    one = Fused(made.layer("5.depthwise").problem, made.layer("5.project").problem)
    times = times_of(made, 1.0, 2.5) | {one: {"a": 1.9}}
    assert [p for p in selection.decide(made, times=times).pieces if len(p) == 2] == [
        ("5.depthwise", "5.project"), ("6.depthwise", "6.project"),
    ]  # fmt: skip


def test_records_decide_only_where_every_layer_has_one():
    made = cut(network("mobilenet_v1", layout="NHWC"), "2.pointwise")
    gpu = planner.find("h200").name
    planned = [layer.problem for layer in made.layers if layer.planned]
    rows = [row(one, choices.takers(one)[-1].name, 10.0, gpu=gpu) for one in planned]

    def pieces(rows):
        run = records.Record("", {"gpu": gpu, "date": "2026-02-01T00:00:00+00:00"}, {}, tuple(rows))
        return selection.decide(made, runs=[run]).pieces

    assert pieces(rows) == selection.layer_by_layer(made)  # no pair has a row
    pair = Fused(*planned[:2])
    rows.append(row(pair, choices.takers(pair)[-1].name, 12.0, gpu=gpu))
    assert pieces(rows) == (("1.depthwise", "1.pointwise"), ("2.depthwise",), ("2.pointwise",))
    # Rows of three layers of four say nothing: then the planner's times decide.
    assert pieces(rows[1:]) == selection.decide(made, runs=[]).pieces


def test_a_plan_is_a_partition():
    made = network("mobilenet_v2", layout="NHWC")
    plan = planner.plan(made)
    assert [p for p in selection.pieces_of(made, plan) if len(p) > 1] == [s.layers for s in plan.steps if s.fused]
    with pytest.raises(InferenceError, match="the plan is of mobilenet_v2.*The network is mobilenet_v1"):
        selection.pieces_of(network("mobilenet_v1"), plan)


@pytest.mark.parametrize(
    "pieces, words",
    [
        ((("1.depthwise", "1.pointwis"),), "no layer '1.pointwis'. The nearest is '1.pointwise'"),
        ((("1.depthwise",), ("1.depthwise", "1.pointwise")), "1.depthwise is in the partition twice"),
        ((("1.depthwise", "2.depthwise"),), "2.depthwise does not follow 1.depthwise"),
        ((("13.pointwise", "head.mean"),), "cannot share a kernel: head.mean is no depthwise or pointwise layer"),
        ((("1.depthwise", "1.pointwise", "2.depthwise"),), "no stage has more than two layers"),
        (("1.depthwise",), "'1.depthwise': give the names of its layers in a tuple"),
        (((),), "a piece of the partition is ()"),
    ],
)
def test_partitions_that_cannot_be(pieces, words):
    with pytest.raises((InferenceError, networks.NetworkError)) as raised:
        selection.pieces_of(network("mobilenet_v1"), pieces)
    assert words in str(raised.value)


def whole(made, alone, together=None, pairs=None, date="2026-02-01T00:00:00+00:00", gpu="NVIDIA H200", kernels=()):
    """A record of a whole network, and of its kernels: (layers, µs) each."""
    same = {"network": made.name, "batch": made.batch, "dtype": made.dtype, "layout": made.layout}
    found = {**same, "resolution": made.resolution, "apart_us": alone, "fused_us": together, "pairs": pairs}
    timed = [same | {"layers": layers, "stage": "a", "time_us": us} for layers, us in kernels]
    sections = {"networks": (found,), "network_kernels": timed}
    return records.Record("", {"gpu": gpu, "date": date}, {}, (), sections=sections)


def kernels_of(made, alone=1.0, pair=1.5):
    """Times by which every pair that may share a kernel should."""
    found = [(layer.name, alone) for layer in made.layers if layer.planned]
    joints = [number for number in range(len(made.layers) - 1) if not made.joint(number)]
    return found + [(" + ".join(one.name for one in made.layers[n : n + 2]), pair) for n in joints]


@pytest.mark.parametrize("name, dtype", [("mobilenet_v1", "float32"), ("mobilenet_v2", "int8")])
@pytest.mark.parametrize(
    "alone, together, by",
    [(100.0, 90.0, "fused"), (100.0, 110.0, "apart"), (100.0, 100.0, "apart"), (100.0, None, "apart")],
)
def test_a_network_runs_the_way_that_was_faster_as_a_whole(name, dtype, alone, together, by):
    """Whatever the kernels' times, which say here that every pair pays."""
    made = network(name, layout="NHWC", dtype=dtype)
    fused = selection.decide(made, times=times_of(made, 1.0, 1.5)).pieces
    run = whole(made, alone, together, 13 if together else 0, kernels=kernels_of(made))
    found = selection.decide(made, runs=[run])
    assert found.by == "network" and (found.unfused_us, found.fused_us) == (alone, together)
    assert found.pieces == (fused if by == "fused" else selection.layer_by_layer(made))
    assert all(word in found.why for word in ("NVIDIA H200", "2026-02-01", f"{alone:.1f} µs"))
    assert together is None or f"{together:.1f} µs" in found.why
    assert found.why.startswith("With layers in one kernel" if by == "fused" else "Layer by layer")
    for fuse, pieces in ((True, fused), (False, selection.layer_by_layer(made))):
        asked = selection.decide(made, runs=[run], fuse=fuse)
        assert (asked.by, asked.pieces) == ("request", pieces)
        assert ("requested" in asked.why) == (pieces != found.pieces or not fuse)


def test_the_newest_record_of_these_very_layers_decides():
    made = network("mobilenet_v1", layout="NHWC")
    old = whole(made, 100.0, 90.0, 13, kernels=kernels_of(made))
    new = whole(made, 100.0, 110.0, 13, "2026-03-01T00:00:00+00:00", kernels=kernels_of(made))
    failed = whole(made, None, date="2026-04-01T00:00:00+00:00")
    assert selection.decide(made, runs=[old]).pairs and not selection.decide(made, runs=[old, new, failed]).pairs
    assert selection.decide(cut(made, "3.pointwise"), runs=[new]).by != "network"
    assert selection.decide(thin(made), runs=[new]).by == "prediction"
    assert selection.decide(replace(made, name="of my own"), runs=[new]).by == "prediction"


OTHERS = {
    "of another GPU": lambda made: whole(made, 100.0, 110.0, 13, gpu="NVIDIA H100 80GB HBM3"),
    "of another batch": lambda made: whole(replace(made, batch=32), 100.0, 110.0, 13),
    "of another type": lambda made: whole(replace(made, dtype="float16"), 100.0, 110.0, 13),
    "of another layout": lambda made: whole(replace(made, layout="NCHW"), 100.0, 110.0, 13),
    "of other pixels": lambda made: whole(replace(made, resolution=192), 100.0, 110.0, 13),
    "of another network": lambda made: whole(network("mobilenet_v2", layout="NHWC"), 100.0, 110.0, 13),
    "without times": lambda made: whole(made, None),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_record_of_something_else_decides_nothing(other):
    made = network("mobilenet_v1", layout="NHWC")
    predicted = selection.decide(made, runs=[])
    assert predicted.by == "prediction" and predicted.pairs
    assert predicted.fused_us < predicted.unfused_us
    unknown = selection.decide(made, "t4", runs=[])
    assert (unknown.pieces, unknown.unfused_us) == (selection.layer_by_layer(made), None) and "no time" in unknown.why
    assert selection.decide(made, runs=[other(made)]) == predicted


def test_without_a_record_of_the_whole_kernels_times_decide():
    made = network("mobilenet_v1", layout="NHWC")
    found = selection.decide(made, runs=[replace(whole(made, None, kernels=kernels_of(made)))])
    assert (found.by, found.pairs, found.fused_us, found.unfused_us) == ("kernels", 13, 19.5, 26.0)
    dear = selection.decide(made, runs=[whole(made, None, kernels=kernels_of(made, 1.0, 2.5))])
    assert (dear.by, dear.pieces, dear.fused_us) == ("kernels", selection.layer_by_layer(made), None)
    # What was measured here comes before a record.
    slower = whole(made, 100.0, 110.0, 13, kernels=kernels_of(made))
    assert selection.decide(made, runs=[slower], times=times_of(made, 1.0, 1.5)).pairs == 13


def recorded_networks():
    found = {}
    for run in records.shown_runs():
        for one in run.sections.get("networks", ()):
            if one.get("apart_us"):
                key = one["network"], one["batch"], one["layout"], one["dtype"], one["resolution"]
                kernels = run.sections.get("network_kernels", ())
                found[key] = one, any(all(row[n] == one[n] for n in ("network", "batch", "dtype")) for row in kernels)
    return found


def test_every_recorded_network_runs_the_faster_of_its_two_ways(monkeypatch):
    monkeypatch.setattr(choices, "takers", lambda pair, gpu=None: True)  # slow, and another test's matter
    recorded = recorded_networks()
    assert len(recorded) >= 30
    slower = []
    for key, (one, has_kernels) in recorded.items():
        found = selection.decide(network(*key))
        alone, together = one["apart_us"], one.get("fused_us")
        assert (found.by, found.unfused_us, found.fused_us) == ("network", alone, together), key
        fused = together is not None and together < alone
        slower += [key] if together is not None and not fused else []
        assert bool(found.pairs) == fused, key
        # What is run is the plan that was timed, or it is said.
        assert found.pairs == one["pairs"] * fused or (not has_kernels and "It runs with" in found.why), key
    assert slower, "no recorded network is slower fused: this test shows less than it could"


@pytest.mark.family(0.05)  # tests/parts.py
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", gpus.NAMES.values())
def test_what_is_chosen_for_a_gpu_can_start_there_or_it_is_said_what_is_in_the_way(name, layout, dtype):
    for problem in cut(network("mobilenet_v1", 1, layout, dtype), "2.depthwise").kernels.values():
        try:
            assert not selection.choose(problem, gpu=name).why_not(problem, planner.find(name))
        except InferenceError as error:
            assert dtype == "bfloat16" and re.search("compute capability|not for", str(error))
