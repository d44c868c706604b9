"""Networks in int8: scales from a calibration, residuals, each kernel bit by bit, the whole against floating point."""

from dataclasses import replace

import numpy as np
import pytest
from small_networks import classifier, cut, image_of, joined, thin

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab import inference, target  # noqa: E402
from dwlab.inference import comparison, int8, timing, with_torch  # noqa: E402
from dwlab.inference.weights import random_weights  # noqa: E402
from dwlab.judge.check import check  # noqa: E402
from dwlab.kernels import choices, registry  # noqa: E402
from dwlab.problems import ProblemError, networks, quantisation, references  # noqa: E402
from dwlab.problems.layers import Pointwise, problem  # noqa: E402
from dwlab.problems.networks import INPUT, InferenceError, network  # noqa: E402
from dwlab.problems.quantisation import Scale  # noqa: E402

torch.set_num_threads(1)


def made(name="mobilenet_v2", last="3.project", resolution=17, layout="NHWC", by=4, batch=1):
    return cut(thin(network(name, batch, layout, "int8", resolution), by), last)


# --- right ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, resolution, last, layout, fused, by",
    [
        ("mobilenet_v1", 13, "2.pointwise", "NHWC", True, 2),
        ("mobilenet_v2", 13, "3.project", "NHWC", True, 1),  # 24 channels: the residual's last words are beyond a row
        ("mobilenet_v2", 13, "3.project", "NCHW", False, 8),
        ("proxylessnas", 15, "3.project", "NHWC", False, 3),
        ("xception", 21, "2.pool", "NHWC", False, 8),
        ("ceit_t", 48, "1.project.gelu", "NHWC", False, 8),
        ("cmt_s", 64, "4.project", "NHWC", False, 4),
    ],
)
def test_kernels_are_exact_and_the_whole_is_near_floating_point(name, resolution, last, layout, fused, by):
    table = made(name, last, resolution, layout, by)
    model = inference.prepare(table, None, joined(table) if fused else None)
    assert any(len(step.layers) == 2 for step in model.steps) == fused
    found = comparison.compare(model, image_of(table))
    assert found.ok and found.int8, str(found)
    assert "Every int8 kernel equals the integers bit by bit" in str(found)
    ours = [row for row, step in zip(found.steps, model.steps, strict=True) if step.stage is not None]
    assert ours and all(row.error == 0 for row in ours)
    assert 0 < found.error <= comparison.WITHIN_INT8 * found.torch_error and found.torch_error < comparison.LOST
    scales = model.quantised.scales
    for map, tensor in model.maps.items():
        assert (tensor.dtype == torch.int8) == (scales[map] is not None)


@pytest.mark.parametrize("name, by", [("ceit_t", 8), ("cmt_s", 4)])
def test_what_an_encoder_does_behind_its_layers_is_done_by_kernels_of_ours(name, by):
    """A GELU of its own, and what is added to it: one kernel each, no operation of PyTorch's."""
    model = inference.prepare(made(name, "3.project" + ".gelu" * (name == "ceit_t"), 64, "NHWC", by))
    behind = [step.runner for step in model.steps if step.stage is None]
    assert len(behind) == {"ceit_t": 9, "cmt_s": 6}[name] and set(behind) == {"operations/gelu"}
    assert model.launches == (len(model.steps), 0)


def test_a_whole_classifier_of_two_images():
    table = classifier("int8", 17, 2)
    model = inference.prepare(table)
    found = comparison.compare(model, image_of(table))
    assert found.ok and found.images == 2 and found.same_class == 2, str(found)
    assert model.maps[INPUT].dtype == model.maps["head.mean"].dtype == torch.float16
    assert model.maps["stem"].dtype == torch.int8
    y = inference.run(model, image_of(table))
    assert y.shape == (2, 10) and y.dtype == np.float32 and np.array_equal(y, inference.run(model, image_of(table)))


def test_the_integers_of_compare_are_the_reference():
    rng = np.random.default_rng(3)
    for text in (
        "N=2 C=5 F=7 H=3 W=4 NHWC int8 bias relu residual zero_x=-128 zero_y=3 zero_r=-9 m_r=0.71",
        "N=1 C=6 H=7 W=5 K=3 stride 2 NHWC int8 bias zero_x=9 zero_y=-128 relu",
        "N=1 C=4 F=3 H=2 W=2 int8 residual zero_r=127 m_r=3.5",
    ):
        layer = problem(text)
        given = layer.inputs("forward", seed=int(rng.integers(100)))
        nchw = layer.layout == "NCHW"
        maps = {name: torch.from_numpy(given[name]) for name in given}
        x, r = (one if nchw else one.permute(0, 3, 1, 2) for one in (maps["x"], maps.get("r", maps["x"])))
        own = dict(maps)
        if layer.op == "depthwise2d" and not nchw:
            own["w"] = own["w"].permute(2, 0, 1)
        y = with_torch.in_integers(layer, x, own, r).numpy()
        wanted = references.reference(layer, "forward", given)["y"]
        np.testing.assert_array_equal(y if nchw else y.transpose(0, 2, 3, 1), wanted)


def test_a_wrong_factor_is_found_in_its_step_alone():
    table = made()
    model = inference.prepare(table, keep=True)
    parameters = {name: dict(arrays) for name, arrays in model.quantised.parameters.items()}
    parameters["2.expand"]["m"] = np.nextafter(parameters["2.expand"]["m"] * np.float32(1.02), np.float32(1))
    judged = replace(model, quantised=replace(model.quantised, parameters=parameters))
    found = comparison.compare(judged, image_of(table))
    assert [step.layers for step in found.steps if not step.ok] == [("2.expand",)] and not found.ok
    assert "steps are wrong, first 2.expand" in found.summary()


def test_a_network_far_from_floating_point_is_not_ok():
    table = made("mobilenet_v1", "1.pointwise", by=2)
    narrow = {name: (low / 20, high / 20) for name, (low, high) in int8.calibrate(table).items()}
    model = inference.prepare(table, calibration=narrow)  # what is beyond a twentieth of the range is cut off
    found = comparison.compare(model, image_of(table))
    assert not found.ok and found.error > comparison.LOST
    assert all(step.ok for step in found.steps if step.runner != "PyTorch")  # the kernels are right all the same


def faulty(at, what):
    """A `quantisation.layer_of` that makes its at-th layer wrong: a zero point exchanged, a factor off by 2."""
    made, right = [], quantisation.layer_of

    def layer_of(*given):
        layer, arrays = right(*given)
        made.append(layer)
        if len(made) == at + 1:
            if what == "m":
                arrays = arrays | {"m": 2 * arrays["m"]}
            elif what == "half":
                arrays = arrays | {"m": np.float32(0.5) * arrays["m"]}
            elif what == "m_r":
                layer = replace(layer, m_r=2 * layer.m_r)
            elif what:
                layer = replace(layer, **{what: 0 if getattr(layer, what) else -128})
        return layer, arrays

    return layer_of


@pytest.mark.parametrize(("name", "by"), [("mobilenet_v1", 2), ("mobilenet_v2", 4), ("proxylessnas", 4)])
def test_one_wrong_zero_point_or_factor_is_more_than_rounding(monkeypatch, name, by):
    """Kernels that compute what they are told, bit by bit, and are told the wrong thing: only the whole shows it."""
    monkeypatch.setattr(choices, "takers", lambda problem, *_, gpu=None: ())  # in whole numbers, by PyTorch
    table = thin(network(name, 1, "NHWC", "int8", 32), by, classes=200)
    calibration = int8.calibrate(table, None, [image_of(table, seed)[0] for seed in range(2)])
    planned = [layer for layer in table.layers if layer.planned]
    residual = [at for at, layer in enumerate(planned) if layer.residual]
    cases = [(0, ""), *((at, what) for at in (1, len(planned) // 2) for what in ("zero_x", "zero_y", "m", "half"))]
    cases += [(residual[len(residual) // 2], what) for what in ("zero_r", "m_r")] if residual else []
    for at, what in cases:
        with monkeypatch.context() as patch:
            patch.setattr(quantisation, "layer_of", faulty(at, what))
            model = inference.prepare(table, calibration=calibration, fallback=True)
        error, rounded, _ = comparison.whole(model, image_of(table, 9))
        assert comparison.near(error, rounded, True) == (not what), f"{planned[at].name} {what}: {error} of {rounded}"
        assert rounded < comparison.LOST / 2


def test_layers_without_a_stage_run_in_whole_numbers(monkeypatch):
    table = made()
    ours = inference.run(inference.prepare(table), image_of(table))
    monkeypatch.setattr(choices, "takers", lambda problem, *_, gpu=None: ())
    with pytest.raises(InferenceError, match="no stage of .* takes .*: use another layout or dtype"):
        inference.prepare(table)
    model = inference.prepare(table, fallback=True)
    assert all(step.stage is None for step in model.steps)
    np.testing.assert_array_equal(inference.run(model, image_of(table)), ours)


# --- residuals --------------------------------------------------------------------------------------------------------

RESIDUALS = (
    "N=2 C=16 F=20 H=5 W=3 NHWC int8 bias residual zero_x=-128 zero_y=3 zero_r=-9 m_r=0.71",
    "N=1 C=48 F=36 H=9 W=7 NHWC int8 bias relu residual zero_r=127 m_r=1.9",
    "N=1 C=16 F=132 H=1 W=43 NHWC int8 residual zero_y=-128 zero_r=-128 m_r=0.001",
    "N=1 C=8 H=7 W=5 K=3 NHWC int8 bias residual zero_x=5 zero_r=2 m_r=0.3",
    "N=1 C=32 H=9 W=7 K=3 NHWC int8 zero_y=-128 -> N=1 C=32 F=36 H=9 W=7 NHWC int8 bias residual zero_x=-128 m_r=2.5",
    "N=1 C=16 F=20 H=7 W=5 NHWC int8 -> N=1 C=20 H=7 W=5 K=3 NHWC int8 bias residual zero_r=-3 m_r=0.9",
    "N=2 C=16 F=48 H=5 W=7 NHWC int8 relu -> N=2 C=48 F=36 H=5 W=7 NHWC int8 residual zero_r=40 m_r=0.25",
)


@pytest.mark.parametrize("text", RESIDUALS)
def test_every_stage_adds_residuals_bit_by_bit(text):
    layer = problem(text)
    assert problem(str(layer)) == layer
    takers = choices.takers(layer)
    assert len(takers) >= 2
    for one in takers:
        check(one, layer).raise_if_wrong()


def test_the_sum_is_rounded_once_and_halves_go_to_even():
    layer = Pointwise(1, 1, 1, 1, 5, residual=True, zero_y=-1, zero_r=1, m_r=0.5, dtype="int8")
    given = {"w": np.array([[1]], np.int8), "m": np.array([0.5], np.float32)}
    given |= {"x": np.int8([[[[1, 3, -5, 127, -128]]]]), "r": np.int8([[[[1, 3, 3, 127, -128]]]])}
    # 0.5 + 0, 1.5 + 1, -2.5 + 1, 63.5 + 63, -64 - 64.5: rounded after the sum, halves to even; less 1; cut off
    wanted = [-1, 1, -3, 125, -128]
    assert references.reference(layer, "forward", given)["y"].ravel().tolist() == wanted
    y = np.zeros((1, 1, 1, 5), np.int8)
    registry.stage("pointwise/forward/naive").run(layer, given | {"y": y}) if target.mode == "simulated" else None
    assert target.mode != "simulated" or y.ravel().tolist() == wanted


def test_a_residual_is_refused_where_it_cannot_be():
    plain = Pointwise(1, 2, 2, 1, 1, residual=True)
    w = {"w": np.ones((2, 2), np.float32)}
    one = Scale(1.0)
    with pytest.raises(ProblemError, match="a scale of r belongs to a layer with a residual"):
        quantisation.layer_of(plain, w, one, one)
    with pytest.raises(ProblemError, match="a scale of r belongs to a layer with a residual"):
        quantisation.layer_of(replace(plain, residual=False), w, one, one, one)
    with pytest.raises(ProblemError, match="no relu6 there"):
        quantisation.layer_of(replace(plain, activation="relu6"), w, one, one, one)
    layer, arrays = quantisation.layer_of(plain, w, Scale(0.5), Scale(2.0, -128), Scale(3.0, 7))
    assert (layer.zero_x, layer.zero_y, layer.zero_r, layer.m_r) == (0, -128, 7, 1.5) and set(arrays) == {"w", "m"}


# --- scales -----------------------------------------------------------------------------------------------------------


def test_the_observer_has_two_kinds_of_zero_points():
    assert int8.scale_of(0, 5.1) == Scale(5.1 / 255, -128)
    assert int8.scale_of(0.5, 5.1) == Scale(5.1 / 255, -128)  # 0 is always a step
    for low, high in ((-1, 3), (-3, 1), (-3, 0), (-1e-9, 3)):
        assert int8.scale_of(low, high) == Scale(3 / 127, 0)


def test_ranges_hold_every_value_of_the_images_and_relu6_ends_at_6():
    table = made(by=8)
    images = [5 * image_of(table, seed)[0] for seed in range(3)]
    ranges = int8.calibrate(table, None, images)
    assert set(ranges) == {INPUT, *(layer.name for layer in table.layers)}
    assert ranges[INPUT] == (min(map(np.min, images)), max(map(np.max, images)))
    one = int8.calibrate(table, None, images[:1])
    assert all(ranges[name][0] <= low <= high <= ranges[name][1] for name, (low, high) in one.items())
    assert ranges["1.depthwise"][0] == 0 and max(ranges[n][1] for n in ("stem", "1.depthwise", "2.expand")) == 6
    scales = int8.quantise(table, None, ranges).scales
    assert scales["1.project"].zero == 0 and scales["2.expand"].zero == -128
    assert scales["2.expand"].values([127])[0] == pytest.approx(ranges["2.expand"][1], rel=1e-6)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_relu_or_subsampling_between_int8_maps_keeps_the_scale_and_is_exact(layout):
    whole = thin(network("xception", 1, layout, "int8", 48), 32)
    table = cut(whole, "5.depthwise1")
    made = inference.prepare(table, keep=True)
    scales = made.quantised.scales
    exact = [layer for layer in table.layers if not layer.planned and scales[layer.name] is not None
             and layer.problem.op in int8.KEEPING and scales[layer.input] is not None]  # fmt: skip
    assert {layer.problem.op for layer in exact} == {"relu", "subsample"}
    assert all(scales[layer.name] == scales[layer.input] for layer in exact)
    assert scales["2.relu"] is not None and scales["1.pool"] is None  # of a map in floating point: its own scale
    found = comparison.compare(made, image_of(table))
    assert found.ok, str(found)
    steps = {step.layers[-1]: step for step in found.steps}
    assert all(steps[layer.name].error == 0 for layer in exact) and steps["2.relu"].error > 0
    relu = next(layer for layer in exact if layer.problem.op == "relu")
    x, y = (made.maps[name] for name in (relu.input, relu.name))
    zero = scales[relu.name].zero
    assert x.min() < zero and bool((y == x.clamp(min=zero)).all())
    y.sub_(1)  # a step off anywhere is wrong, be it as small as rounding is
    assert not comparison._compared(made, made.steps[[s.y for s in made.steps].index(relu.name)], {}).ok


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_what_is_stored_is_rounded_and_cut_off(relu, kind):
    z = np.array([0, 0.5, -0.5, 1.5, 63.9, 64.2, 1e4, -1e4, -64.25, 0.25, 0.75], kind)
    scale = Scale(0.5, 3)
    y = target.cuda.to_device(np.zeros(z.size, np.int8))
    int8.storer(target.cuda.to_device(z), y, scale, relu, 0)
    wanted = np.maximum(scale.quantise(z), 3) if relu else scale.quantise(z)
    np.testing.assert_array_equal(y.copy_to_host(), wanted)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad, said", [
    ((0.0, 0.0), "map 1.project: the range is 0 alone"),
    ((-1.0, float("nan")), "map 1.project: the range .* is not finite"),
    ((0.0, float("inf")), "map 1.project: the range 0 to inf is not finite"),
    ((3.0, 1.0), "map 1.project: the range 3 to 1 ends before it begins"),
    ((0.0, 1e-60), "layer 1.project: m.* a scale is a finite number above 0"),
])  # fmt: skip
def test_scales_that_are_none_name_their_map(bad, said):
    table = made(by=8)
    with pytest.raises(InferenceError, match=f"mobilenet_v2 in int8: {said}"):
        inference.prepare(table, calibration=int8.calibrate(table) | {"1.project": bad})


def test_a_calibration_that_cannot_be_used_says_why():
    table = made(by=8)
    image = image_of(table)[0]
    spoiled = image.copy()
    spoiled[1, 2, 3] = np.nan
    for images, said in (
        ([image, spoiled], "image 1 of the calibration is .* not finite: every scale"),
        ([image[:2]], r"image 0 of the calibration has shape \(2, 17, 17\); \(3, 17, 17\) is needed"),
        ([image.astype(np.int32)], "image 0 of the calibration is torch.int32"),
        ([], "no image to calibrate with"),
    ):
        with pytest.raises(InferenceError, match=said):
            int8.calibrate(table, None, images)
    weights = random_weights(table)
    weights["1.depthwise"]["w"] = np.full_like(weights["1.depthwise"]["w"], 3e38)
    with pytest.raises(InferenceError, match="calibration: map 1.project is not finite everywhere"):
        huge = {**weights, "1.project": {**weights["1.project"], "w": weights["1.project"]["w"] * 1e38}}
        int8.calibrate(table, huge)
    ranges = int8.calibrate(table)
    del ranges["2.depthwise"]
    with pytest.raises(InferenceError, match="no range of map 2.depthwise: calibrate with this network"):
        inference.prepare(table, calibration=ranges)
    with pytest.raises(InferenceError, match="a calibration is for int8, and the network is float32"):
        inference.prepare(networks.in_float(table), calibration={})
    with pytest.raises(InferenceError, match="is float32: give the table in int8"):
        int8.quantise(networks.in_float(table))


# --- times -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(target.mode != "gpu", reason="needs a GPU: graphs and times are a GPU's")
def test_an_int8_graph_on_a_gpu():
    table = cut(network("mobilenet_v2", 2, "NHWC", "int8", 64), "4.project")
    calibration = int8.calibrate(table)
    table = int8.quantise(table, None, calibration).network
    pair, alone = (inference.prepare(table, None, p, calibration=calibration) for p in (joined(table), None))
    for model in (pair, alone):
        found = comparison.compare(model, image_of(table))
        assert model.graph is not None and found.ok, str(found)
    np.testing.assert_array_equal(inference.run(pair, image_of(table)), inference.run(alone, image_of(table)))
    measured = timing.measure(pair, compiled=False, unfused=alone, rounds=3, min_seconds=0.01)
    assert measured.unfused is not None and measured.best is not None, str(measured)
    tuned = timing.tune(cut(table, "2.project"))
    assert tuned.times and not tuned.failures
