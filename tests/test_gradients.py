"""The stages of the three gradient paths: right for any shape, clean, counted as predicted; and how sums meet."""

import numpy as np
import pytest
from launched import per_request
from test_kernels import first_four, run

from dwlab import simt, study
from dwlab.judge.check import cases
from dwlab.judge.diagnosis import Evidence, diagnose
from dwlab.judge.formulas import compare
from dwlab.kernels.registry import fill_zero, stage, stages
from dwlab.problems import PAPER, SMALL, DepthwiseConv1d
from dwlab.problems.references import allowed_error, reference, tap_sums
from dwlab.target import cuda

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

STAGES = [one for path in ("input_grad", "weight_grad", "backward") for one in stages("depthwise1d", path)]
IDS = [f"{one.path}-{one.name}" for one in STAGES]
each_stage = pytest.mark.parametrize("one", STAGES, ids=IDS)


@pytest.mark.parametrize("name", ["coalesced", "shared", "warp_tiled"])
@pytest.mark.parametrize(
    "problem",
    [
        DepthwiseConv1d(1_500, 2, 3, 2),
        DepthwiseConv1d(9, 1100, 2, 64, "same"),  # one block a channel, which goes round three times
        DepthwiseConv1d(7, 3000, 3, 2),  # two warps a channel, which go round four and three times
        DepthwiseConv1d(3, 9000, 2, 3, "same"),  # one warp a channel
    ],
    ids=str,
)
def test_long_sums_and_more_rows_than_blocks_are_right_and_counted(name, problem):
    one = stage(f"depthwise1d/weight_grad/{name}")
    with simt.using(simt.Options(hazards="off")):
        assert run(one, problem)[1] <= 1
    compare(one, problem).raise_if_different()


def test_the_shapes_above_make_blocks_and_warps_go_round():
    shared, warp = (stage(f"depthwise1d/weight_grad/{name}") for name in ("shared", "warp_tiled"))
    for problem, splits in ((DepthwiseConv1d(9, 1100, 2, 64, "same"), 1), (PAPER, 16)):
        how = shared.launch(problem)
        assert how.scalars == (problem.shift, splits) and splits * how.block[1] < problem.B
    for problem, splits in ((DepthwiseConv1d(7, 3000, 3, 2), 2), (DepthwiseConv1d(3, 9000, 2, 3, "same"), 1)):
        assert warp.launch(problem).scalars == (problem.shift, splits) and splits < problem.B
    assert warp.launch(PAPER).scalars == (0, 64)


@pytest.mark.parametrize("name", ["naive", "coalesced", "shared", "warp_tiled"])
def test_the_three_paths_are_adjoint(name):
    # <dy, y(x, w)> = <dx(dy, w), x> = <dw(dy, x), w>: each path against the others, without the reference.
    problem = DepthwiseConv1d(3, 4, 61, 50, "same")
    x, w = (problem.inputs("forward", 1)[key] for key in ("x", "w"))
    dy = problem.inputs("input_grad", 2)["dy"]
    products = []
    inputs = {"forward": {"x": x, "w": w}, "input_grad": {"dy": dy, "w": w}, "weight_grad": {"dy": dy, "x": x}}
    for (path, arrays), other in zip(inputs.items(), (dy, x, w), strict=True):
        output = run(stage(f"depthwise1d/{path}/{name}"), problem, inputs=arrays)[0]
        products.append(float((output.astype(np.float64) * other).sum()))
    assert products == pytest.approx([products[0]] * 3, rel=1e-5)


# ---- what is not finite


@pytest.mark.parametrize("one", stages("depthwise1d", "weight_grad"), ids=lambda one: one.name)
def test_nans_stay_in_their_channel_and_in_the_taps_that_see_them(one):
    problem = DepthwiseConv1d(2, 3, 150, 7)
    inputs = problem.inputs(one.path)
    inputs["dy"][0, 0, 70] = np.nan  # in the middle: every tap pairs it with an x
    inputs["x"][1, 2, 149] = np.nan  # the last: only tap 0 pairs it with a dy inside the row
    dw = np.zeros(problem.shapes(one.path)["dw"], np.float32)
    one.run(problem, dict(inputs, dw=dw))
    assert {tuple(map(int, i)) for i in np.argwhere(np.isnan(dw))} == {(0, j) for j in range(7)} | {(2, 0)}


# ---- the promises of the docstrings


@pytest.mark.parametrize("K", [8, 9, 12, 13, 31, 33, 49, 63])
def test_shared_weight_gradient_has_no_bank_conflict_whatever_its_width(K):
    report = stage("depthwise1d/weight_grad/shared").xray(DepthwiseConv1d(33, 1, 37, K, "same"))
    assert report.totals.bank_conflicts == 0 and report.hazards == ()


def test_each_stage_of_weight_grad_keeps_its_promise():
    naive, coalesced, shared, warp = (one.xray(SMALL) for one in first_four("weight_grad"))
    assert per_request(naive, "dy") == 16.0 and 16.0 < per_request(naive, "x") < 20.0
    assert per_request(coalesced, "dy") <= 5.0 and per_request(coalesced, "x") <= 5.0
    assert shared.totals.global_load_sectors < coalesced.totals.global_load_sectors / 25
    assert shared.totals.barriers > 0 and warp.totals.shared_wavefronts < shared.totals.shared_wavefronts / 2
    assert not any("syncthreads" in line.text for line in warp.lines)
    # 48 taps and 48 times: each dy and each x once.
    rows = SMALL.B * SMALL.H
    for name in ("shared", "warp_tiled"):
        traffic = stage(f"depthwise1d/weight_grad/{name}").traffic(PAPER)
        assert traffic.load_sectors == PAPER.B * PAPER.H * 12
        assert 0 < traffic.atomic_sectors < traffic.load_sectors / 50
    assert warp.totals.global_load_sectors == rows * 12


# ---- how sums meet


def test_only_the_stages_that_meet_by_atomics_are_zeroed_and_they_say_so():
    zeroed = {one.id for one in stages("depthwise1d") if one.supports(SMALL) and one.launch(SMALL).zero}
    assert zeroed == {f"depthwise1d/{id}" for id in ("weight_grad/shared", "weight_grad/warp_tiled", "backward/naive")}
    for one in STAGES:
        text = " ".join(__import__(one.file[:-3].replace("/", "."), fromlist=["x"]).__doc__.lower().split())
        assert "deterministic" in text or "the same bits in every run" in text, one.id
        assert ("not deterministic" in text) == (one.id in zeroed), one.id


def test_a_starter_starts_again_and_again_from_zero_and_fill_zero_keeps_to_its_array():
    problem, one = DepthwiseConv1d(3, 4, 50, 33, "same"), stage("depthwise1d/weight_grad/warp_tiled")
    arrays = {name: cuda.to_device(array) for name, array in problem.inputs(one.path).items()}
    arrays["dw"] = cuda.to_device(np.full((4, 33), np.nan, np.float32))
    start = one.starter(problem, arrays)
    for _ in range(3):
        start(0)
    cuda.synchronize()
    want = reference(problem, one.path, problem.inputs(one.path))["dw"]
    np.testing.assert_allclose(arrays["dw"].copy_to_host(), want, rtol=1e-4, atol=1e-4)
    host = np.full((3, 5, 70), 7, np.float32)
    fill_zero(host)
    assert not host.any()
    device = cuda.to_device(np.full(1000, 7, np.float32))
    fill_zero(device[100:700].reshape(3, 200))
    cuda.synchronize()
    after = device.copy_to_host()
    assert not after[100:700].any() and (after[:100] == 7).all() and (after[700:] == 7).all()


# ---- the judge


def test_weight_grad_is_judged_where_a_block_goes_round_and_the_others_are_not():
    more = {case.problem for case in cases(path="weight_grad")} - {case.problem for case in cases()}
    assert more == {DepthwiseConv1d(40, 1100, 2, 3, "same")}
    assert cases(path="input_grad") == cases()


def first_of(problem, spoil):
    """What is said first of a weight gradient that is spoilt: of spoil(inputs, dw), the right one."""
    inputs = problem.inputs("weight_grad")
    want, allowed = (of(problem, "weight_grad", inputs)["dw"] for of in (reference, allowed_error))
    got = np.asarray(spoil(inputs, want), np.float32)
    return diagnose(Evidence(problem, "weight_grad", inputs, got, want, allowed, np.zeros(want.shape, bool)))[0][0]


@pytest.mark.parametrize(
    ("spoil", "pattern"),
    [
        (lambda i, dw: tap_sums(i["dy"][:-1], i["x"][:-1], 6, 3), "last batch entry missing"),
        (lambda i, dw: tap_sums(i["dy"][1:], i["x"][1:], 6, 3), "first batch entry missing"),
        (lambda i, dw: tap_sums(i["dy"][:4], i["x"][:4], 6, 3), "first batch entries only"),
        (lambda i, dw: tap_sums(i["dy"] * (np.arange(70) > 0), i["x"], 6, 3), "first time missing"),
        (lambda i, dw: tap_sums(i["dy"] * (np.arange(70) < 64), i["x"], 6, 3), "last times missing"),
        (lambda i, dw: tap_sums(i["dy"] * (np.arange(70) >= 64), i["x"], 6, 3), "sum reset at each tile"),
        (lambda i, dw: np.roll(dw, 1, axis=0), "right values in wrong places"),
        (lambda i, dw: np.concatenate([np.full((3, 1), np.nan), dw[:, :-1]], axis=1), "stored shifted"),
        (lambda i, dw: tap_sums(*(i[k].reshape(3, 6, 70).transpose(1, 0, 2) for k in ("dy", "x")), 6, 3),
         "batch and channel exchanged"),
    ],
)  # fmt: skip
def test_values_of_the_weight_gradient_are_recognised(spoil, pattern):
    assert first_of(DepthwiseConv1d(6, 3, 70, 6, "same"), spoil).pattern == pattern


@pytest.mark.parametrize(
    ("places", "pattern", "words"),
    [
        ((..., slice(0, 2)), "first taps wrong", "the first 2 of 40 along j"),
        ((..., slice(37, 40)), "last taps wrong", "the last 3 of 40 along j"),
        ((..., slice(7, 40, 8)), "last of each tile wrong", "the last element of each tile of 8 along j"),
        ((slice(2, 3),), "wrong beyond the first h", "the last of 3 along h"),
    ],
)
def test_places_in_the_weight_gradient_are_named(places, pattern, words):
    def spoil(inputs, dw):
        got = dw.astype(np.float32)
        got[places] += 3 + np.random.default_rng(1).random(got[places].shape, np.float32)
        return got

    found = first_of(DepthwiseConv1d(2, 3, 9, 40, "same"), spoil)
    assert found.pattern == pattern and words in found.text, found


# ---- the command line


def test_a_wrong_atomic_count_is_told_by_the_study():
    from dataclasses import replace

    one = stage("depthwise1d/weight_grad/shared")
    off = replace(one, traffic=lambda problem: replace(one.traffic(problem), atomic_sectors=1))
    assert "atomic sectors 1" not in study.count(one, SMALL)[1]
    assert study.count(off, SMALL)[1].endswith("counted, 1 predicted")
