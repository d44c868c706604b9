"""Which stage runs a layer, and which layers share a kernel."""

import itertools
from dataclasses import replace

import pytest
from small_networks import cut

from dwlab import networks, planner, records
from dwlab.inference import selection
from dwlab.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.networks import InferenceError, network

LAYER = DepthwiseConv2d(1, 32, 14, 14, 3, layout="NHWC", bias=True, activation="relu6")


def row(problem, stage, us, date="2026-01-01T00:00:00+00:00", gpu="H"):
    return records.Measurement(
        gpu=gpu, date=date, op=problem.op, path=problem.main_path, stage=stage,
        problem=records.describe_problem(problem), dtype=problem.dtype, time_us=us, p10_us=us, p90_us=us, rounds=3,
        launches=1, method="graph", cold="", compulsory_bytes=1, effective_gbps=1.0, copy_gbps=1.0,
        fraction_of_copy=1.0, flops=1, intensity=1.0,
    )  # fmt: skip


def test_without_records_the_stage_that_moves_the_fewest_bytes():
    takers = selection.takers(LAYER)
    assert takers and all(one.supports(LAYER) for one in takers)
    moved = [one.traffic(LAYER).bytes_moved for one in takers]
    assert selection.choose(LAYER, rows=()).traffic(LAYER).bytes_moved == min(moved) < max(moved)


def test_the_fastest_recorded_of_the_newest_run():
    first, *_ = takers = selection.takers(LAYER)
    assert len(takers) > 1, "the choice needs two stages of depthwise2d"
    last = takers[-1]
    rows = [row(LAYER, first.name, 2.0), row(LAYER, last.name, 3.0), row(LAYER, "gone", 0.1)]
    assert selection.choose(LAYER, rows) is first
    assert (
        selection.choose(LAYER, rows, gpu="other") is first
    )  # which stage wins carries over, where nothing else is known
    rows += [row(LAYER, last.name, 9.0, "2026-02-01T00:00:00+00:00")]
    assert selection.choose(LAYER, rows) is last
    half = replace(LAYER, dtype="float16")
    alone = [one for one in selection.takers(half) if one is not first]
    assert selection.choose(half, [row(half, one.name, 9.0 - one.order) for one in alone]) is alone[-1]


def test_a_layer_that_was_not_timed_gets_what_won_on_those_most_like_it():
    first, *_, last = selection.takers(LAYER)
    wide, narrow = replace(LAYER, H=112, W=112), replace(LAYER, H=7, W=7)
    rows = [row(wide, first.name, 20.0), row(wide, last.name, 10.0)]
    rows += [row(narrow, first.name, 2.0), row(narrow, last.name, 3.0)]
    assert selection.choose(replace(LAYER, H=56, W=56), rows) is last
    assert selection.choose(replace(LAYER, H=8, W=8), rows) is first
    assert selection.choose(replace(LAYER, H=8, W=8), rows[::-1]) is first  # in whatever order


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        replace(LAYER, H=15, W=15),
        Pointwise(1, 32, 64, 9, 9, layout="NHWC", dtype="float16"),
        Fused(LAYER, Pointwise(1, 32, 64, 14, 14, layout="NHWC", bias=True)),
    ],
    ids=str,
)
def test_a_stage_at_the_end_of_the_list_that_was_never_timed_changes_no_choice(problem, monkeypatch):
    """Whatever its place, its name and what it says of its traffic."""
    before = selection.choose(problem)
    listed = selection.takers(problem)
    late = replace(listed[0], name="aaa", order=99, traffic=lambda _: pytest.fail("not asked"))
    for order in ([*listed, late], [late, *listed], [late, *reversed(listed)]):
        monkeypatch.setattr(selection, "takers", lambda _, order=order: tuple(order))
        assert selection.choose(problem) is before


def test_a_row_that_differs_in_its_epilogue_counts_after_one_that_does_not():
    first, *_, last = selection.takers(LAYER)
    bare = replace(LAYER, bias=False, activation="none")
    rows = [row(bare, first.name, 2.0), row(bare, last.name, 3.0)]
    assert selection.choose(LAYER, rows) is first
    assert selection.choose(LAYER, [*rows, row(LAYER, last.name, 5.0)]) is last
    pair = Fused(LAYER, Pointwise(1, 32, 64, 14, 14, layout="NHWC", bias=True))
    plain = Fused(bare, replace(pair.second, bias=False))
    assert selection.recorded(pair, [row(plain, selection.takers(pair)[0].name, 4.0)]).time_us == 4.0


def test_times_that_were_measured_here_come_first():
    first, *_, last = selection.takers(LAYER)
    times = {LAYER: {first.id: 1.0, last.id: 2.0, "depthwise2d/forward/gone": 0.5}}
    assert selection.choose(LAYER, [row(LAYER, last.name, 0.1)], times=times) is first


def times_of(made, alone=1.0, pair=1.0):
    found = {layer.problem: {"a": alone} for layer in made.layers if layer.planned}
    for number in range(len(made.layers) - 1):
        if not made.joint(number):
            found[Fused(made.layers[number].problem, made.layers[number + 1].problem)] = {"a": pair}
    return found


def test_layers_share_a_kernel_where_it_was_measured_to_pay():
    made = network("mobilenet_v2", layout="NHWC")
    cheap, dear = (selection.partition(made, times=times_of(made, 1.0, us)) for us in (1.5, 2.5))
    assert dear == selection.apart(made)
    assert sum(len(piece) == 2 for piece in cheap) > 15
    assert sorted(itertools.chain(*cheap)) == sorted(itertools.chain(*dear))
    one = Fused(made.layer("5.depthwise").problem, made.layer("5.project").problem)
    times = times_of(made, 1.0, 2.5) | {one: {"a": 1.9}}
    assert [p for p in selection.partition(made, times=times) if len(p) == 2] == [
        ("5.depthwise", "5.project"), ("6.depthwise", "6.project"),
    ]  # fmt: skip


def test_pairs_that_no_stage_takes_stay_apart(monkeypatch):
    made = network("mobilenet_v1", layout="NHWC")
    takers = selection.takers
    monkeypatch.setattr(selection, "takers", lambda problem: () if isinstance(problem, Fused) else takers(problem))
    assert selection.partition(made, rows=()) == selection.apart(made)


def test_records_decide_only_where_every_layer_has_one():
    made = cut(network("mobilenet_v1", layout="NHWC"), "2.pointwise")
    gpu = planner.find("h200").name
    planned = [layer.problem for layer in made.layers if layer.planned]
    rows = [row(one, selection.takers(one)[-1].name, 10.0, gpu=gpu) for one in planned]
    assert selection.partition(made, rows=rows) == selection.apart(made)  # no pair has a row
    pair = Fused(*planned[:2])
    rows.append(row(pair, selection.takers(pair)[-1].name, 12.0, gpu=gpu))
    assert selection.partition(made, rows=rows) == (
        ("1.depthwise", "1.pointwise"), ("2.depthwise",), ("2.pointwise",),
    )  # fmt: skip
    # Rows of three layers of four say nothing: then the planner's times decide.
    assert selection.partition(made, rows=rows[1:]) == selection.partition(made, rows=())


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
