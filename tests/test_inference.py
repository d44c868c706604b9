"""Networks run by the kernels: each step and the whole against PyTorch; images."""

import contextlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from small_networks import classifier, cut, gpu, image_of, joined, thin, tiny

torch = pytest.importorskip("torch", reason="networks run with PyTorch: pip install '.[torch]'")

from dwlab import inference  # noqa: E402
from dwlab.inference import comparison, selection, timing, with_torch  # noqa: E402
from dwlab.inference.weights import random_weights  # noqa: E402
from dwlab.kernels import choices  # noqa: E402
from dwlab.kernels.parts import dependent_launch, ptx  # noqa: E402
from dwlab.measure import baselines  # noqa: E402
from dwlab.problems.layers import DepthwiseConv2d  # noqa: E402
from dwlab.problems.networks import INPUT, NETWORKS, InferenceError, network  # noqa: E402

torch.set_num_threads(1)  # maps are tiny here: more threads wait for each other, where others use the CPU too


# --- right ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, resolution, last, layout, dtype, fused",
    [
        ("mobilenet_v1", 14, "2.pointwise", "NHWC", "float16", True),
        ("mobilenet_v2", 13, "3.project", "NHWC", "float32", True),
        ("mobilenet_v2", 17, "2.project", "NCHW", "float32", False),
        ("proxylessnas", 16, "2.project", "NHWC", "float16", False),
        ("xception", 21, "2.pool", "NHWC", "float32", False),
        ("xception", 21, "1.pool", "NCHW", "float16", False),
        ("ceit_t", 48, "1.project", "NHWC", "float32", False),
        ("cmt_s", 32, "1.project", "NCHW", "float32", False),
    ],
)
def test_each_step_and_the_whole_agree_with_pytorch(name, resolution, last, layout, dtype, fused):
    made = cut(thin(network(name, 1, layout, dtype, resolution)), last)
    model = inference.prepare(made, None, joined(made) if fused else None)
    assert any(len(step.layers) == 2 for step in model.steps) == fused
    assert all((step.stage is not None) == made.layer(step.y).planned for step in model.steps)
    found = comparison.compare(model, image_of(made))
    assert found.ok, str(found)
    assert [step.layers for step in found.steps] == list(model.partition)
    assert 0 < found.error and found.to_dict()["ok"] and "agree with PyTorch" in str(found)


def test_a_whole_classifier_of_two_images():
    made = classifier("float32", 16)
    model = inference.prepare(made, random_weights(made, 7))
    image = image_of(made)
    y = inference.run(model, image)
    assert y.shape == (2, 10) and y.dtype == np.float32
    own = {layer: {name: torch.from_numpy(one) for name, one in arrays.items()}
           for layer, arrays in model.weights.items()}  # fmt: skip
    theirs = with_torch.forward(made, own, torch.from_numpy(image)).numpy()
    np.testing.assert_allclose(y, theirs, rtol=1e-4, atol=1e-5)
    again = inference.run(model, torch.from_numpy(image).double())  # nothing is left of the run before
    np.testing.assert_array_equal(y, again)
    assert model.slots < len(model.maps) and "operations/mean" in str(model) and model.launches == (7, 0)


# --- wrong ------------------------------------------------------------------------------------------------------------


def test_a_wrong_bias_is_found_in_its_step_alone():
    made = tiny()
    weights = random_weights(made)
    weights["1.project"]["b"][3] += 1e-4
    wrong = inference.prepare(made, weights, keep=True)
    found = comparison.compare(replace(wrong, weights=random_weights(made)), image_of(made))
    assert [step.layers for step in found.steps if not step.ok] == [("1.project",)] and not found.ok
    assert "1 of 5 steps are wrong, first 1.project" in found.summary()


def test_memory_that_is_shared_too_early_is_found(monkeypatch):
    made = cut(thin(network("mobilenet_v2", 1, "NHWC", "float32", 8)), "3.project")

    def wrong(steps, keep=False):
        places = right(steps, keep)
        if not keep:
            places["3.depthwise"] = places["2.project"]  # which 3.project still adds
        return places

    right = inference.share
    monkeypatch.setattr(inference, "share", wrong)
    found = comparison.compare(inference.prepare(made), image_of(made))
    assert not found.reused and not found.ok and "shared memory" in found.summary()


def test_a_step_that_writes_nothing_is_found():
    made = tiny()
    model = inference.prepare(made, keep=True)
    lazy = (*model.starters[:2], lambda stream: None, *model.starters[3:])
    inference.run(model, image_of(made))  # what this one leaves must not pass for the lazy one's
    # graph: on a GPU that is what runs, of all steps as they were.
    found = comparison.compare(replace(model, starters=lazy, graph=None), image_of(made))
    assert not found.ok and [step.ok for step in found.steps][2] is False
    assert found.to_dict()["steps"][2]["error"] is None  # it was NaN, which JSON has not


# --- by PyTorch alone -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gemm", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_relu_in_the_call_before_it_is_the_same_network(monkeypatch, gemm, layout):
    """cuDNN's call is not there on the CPU: one that computes what its documentation says stands for it."""
    calls = []

    def convolution_relu(x, w, b, stride, padding, dilation, groups):
        calls.append(groups)
        return torch.nn.functional.conv2d(x, w, b, stride, padding, dilation, groups).relu()

    monkeypatch.setattr(torch, "cudnn_convolution_relu", convolution_relu)
    made = cut(thin(network("mobilenet_v1", 2, layout, "float32", 16)), "2.pointwise")
    own = {layer: {name: torch.from_numpy(one) for name, one in arrays.items()}
           for layer, arrays in random_weights(made).items()}  # fmt: skip
    image = torch.from_numpy(image_of(made))
    plain = with_torch.forward(made, own, image, gemm=gemm)
    joined = with_torch.forward(made, own, image, gemm=gemm, joined=True)
    np.testing.assert_allclose(joined, plain, rtol=1e-5, atol=1e-6)
    assert bool((joined == 0).any()) and len(calls) == (0 if gemm else 5)
    assert gemm or calls.count(1) == 3  # the others are depthwise


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("fused", [False, True])
def test_no_map_is_overwritten_while_it_is_needed(name, fused):
    made = network(name)
    pieces = selection.pieces_of(made, joined(made) if fused else None)
    steps = tuple(
        inference.Step(p, None, None, made.layer(p[0]).input, made.layer(p[-1]).residual, p[-1]) for p in pieces
    )
    places = inference.share(steps)
    holds = {places[INPUT]: INPUT}
    for step in steps:
        for name in (step.x, step.r):
            assert not name or holds[places[name]] == name, step
        assert places[step.y] not in [places[name] for name in (step.x, step.r) if name]
        holds[places[step.y]] = step.y
    assert holds[places[INPUT]] == INPUT  # the image may be classified once more
    assert len(set(places.values())) < 8
    assert len(set(inference.share(steps, keep=True).values())) == len(steps) + 1


# --- which stage ------------------------------------------------------------------------------------------------------


def test_no_stage_is_said_and_nothing_falls_back_silently(monkeypatch):
    seven = DepthwiseConv2d(1, 32, 14, 14, 3, layout="NHWC", dtype="int8", activation="relu")
    monkeypatch.setattr(choices, "takers", lambda problem, *_, gpu=None: ())
    with pytest.raises(InferenceError, match="no stage of depthwise2d/forward takes N=1 C=32"):
        selection.choose(seven)
    made = tiny()
    with pytest.raises(InferenceError, match="no stage of depthwise2d/forward"):
        inference.prepare(made)
    model = inference.prepare(made, None, joined(made), fallback=True)
    assert [step.runner for step in model.steps] == ["operations/conv2d", "PyTorch", "PyTorch"]
    assert model.launches == (1, 2) and "no stage takes it" in str(model)
    assert comparison.compare(model, image_of(made)).ok


# --- images -----------------------------------------------------------------------------------------------------------


def test_images_that_do_not_fit():
    model = inference.prepare(tiny())
    image = image_of(model.network)
    with pytest.raises(
        InferenceError, match=r"shape \(1, 3, 16, 17\); mobilenet_v2 needs \(N, C, H, W\) \(1, 3, 16, 16\)"
    ):
        inference.run(model, np.zeros((1, 3, 16, 17), np.float32))
    with pytest.raises(InferenceError, match="int64"):
        inference.run(model, np.zeros((1, 3, 16, 16), np.int64))
    image[0, 0, 0, 0] = np.nan
    with pytest.raises(InferenceError, match="not finite"):
        inference.run(model, image)
    assert inference.run(model, np.zeros((3, 16, 16), np.float32)).shape[0] == 1


@gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_graph_on_a_gpu(dtype):
    made = cut(network("mobilenet_v2", 2, "NHWC", dtype, 64), "4.project")
    model = inference.prepare(made, None, joined(made))
    assert model.graph is not None
    found = comparison.compare(model, image_of(made))
    assert found.ok, str(found)
    first, second = (inference.run(model, image_of(made, seed)) for seed in (1, 2))
    assert not np.array_equal(first, second)
    measured = timing.measure(model, compiled=False, rounds=3, min_seconds=0.01)
    assert measured.ours.method == "graph" and measured.best is not None and measured.speedup > 0, str(measured)
    tuned = timing.tune(cut(made, "2.project"))
    assert tuned.times and not tuned.failures


@gpu
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_kernels_that_start_early_give_the_same_bit_by_bit(dtype, fused):
    if torch.cuda.get_device_capability() < ptx.WAITS_FROM:
        pytest.skip(f"no kernel starts early below compute capability 9.0, and this GPU's is "
                    f"{'.'.join(map(str, torch.cuda.get_device_capability()))}")  # fmt: skip
    made = cut(network("mobilenet_v2", 1, "NHWC", dtype, 64), "4.project")
    model = inference.prepare(made, None, joined(made) if fused else None, overlap=False)
    assert model.graph is model.plain and not model.port and not model.tried
    images = [image_of(made, seed) for seed in range(3)]
    wanted = []
    for image in images:
        inference.give(model, image)
        model.plain.replay()
        wanted.append(inference.output(model).clone())
    assert not torch.equal(wanted[0], wanted[1])
    for port in dependent_launch.PORTS:
        graph, early = inference.overlapping(model, port)
        assert early >= 2  # how many depends on what is fastest on this GPU
        for turn in range(100):
            for name, one in model.maps.items():
                if name != INPUT:
                    one.view(-1).view(torch.uint8).fill_(255)
            inference.give(model, images[turn % 3])
            graph.replay()
            assert torch.equal(inference.output(model), wanted[turn % 3]), (port, turn)
    tried = inference.prepare(made, None, joined(made) if fused else None)
    assert set(tried.tried) == {"", *dependent_launch.PORTS}, tried.note
    assert tried.port == min(tried.tried, key=tried.tried.get) and tried.order in tried.summary()


# --- when kernels start -----------------------------------------------------------------------------------------------


PORTS = tuple(dependent_launch.PORTS)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_no_kernel_writes_what_others_may_read_before_they_wait(monkeypatch, dtype):
    """Filters, biases and factors are memory of their own, and stay as they are."""
    given, kernel_of = [], inference._kernel_of
    monkeypatch.setattr(inference, "_kernel_of", lambda step, arrays: given.append(arrays) or kernel_of(step, arrays))
    made = cut(thin(network("mobilenet_v2", 1, "NHWC", dtype, 16)), "2.project")
    model = inference.prepare(made, None, joined(made))
    filters = [one for arrays in given for name, one in arrays.items() if name[0] in "wbm"]
    maps = [one for arrays in given for name, one in arrays.items() if name[0] in "xyr"]
    assert len(filters) + len(maps) == sum(map(len, given)) and len(filters) >= 2 * len(given)

    def ends(tensor):
        return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()

    spans = [ends(one) for one in (*maps, *model.maps.values())]
    assert not any(a < d and c < b for a, b in map(ends, filters) for c, d in spans)
    before = [one.clone() for one in filters]
    inference.run(model, image_of(made))
    assert all(torch.equal(one, old) for one, old in zip(filters, before, strict=True))


def captured(monkeypatch, ports, us=(9.0, 8.0, 7.0), capability=(9, 0), early=3, error=None):
    """What `prepare` makes of a model on a GPU whose graphs take so many µs: one after the other, end, begin."""
    nothing = contextlib.nullcontext
    made = SimpleNamespace(get_device_capability=lambda: capability)
    times = dict(zip(("plain", "end", "begin"), us, strict=True))

    def overlapping(model, port):
        if error:
            raise error
        return port, early

    monkeypatch.setattr(inference, "pytorch", lambda: SimpleNamespace(cuda=made))
    monkeypatch.setattr(inference, "same_precision", nothing)
    monkeypatch.setattr(baselines, "captured", lambda call, before: ("plain", None))
    monkeypatch.setattr(inference, "overlapping", overlapping)
    monkeypatch.setattr(inference, "give", lambda model, image: None)
    monkeypatch.setattr(inference, "random_image", lambda network: None)
    monkeypatch.setattr(baselines, "time_graph", lambda graph, **how: SimpleNamespace(median_us=times[graph]))
    network = SimpleNamespace(summary=lambda: "A network.")
    return inference._captured(inference.Model(network, {}, (), {}, (), None), ports)


@pytest.mark.parametrize(
    "us, port, words",
    [
        ((9.0, 8.0, 7.0), "begin", "overlapped from the beginning, 3 kernels."),
        ((9.0, 7.0, 8.0), "end", "overlapped from the end, 3 kernels."),
        ((7.0, 8.0, 9.0), "", "one after the other."),
    ],
)
def test_of_the_graphs_that_were_tried_the_fastest_is_kept(monkeypatch, us, port, words):
    model = captured(monkeypatch, PORTS, us)
    assert (model.graph, model.port, model.early) == (port or "plain", port, 3 if port else 0)
    assert model.plain == "plain" and model.tried == dict(zip(("", *PORTS), us, strict=True)) and not model.note
    assert model.summary().endswith(f"Launches: {words}")


def test_where_no_kernel_can_start_early_none_does(monkeypatch):
    for how in ({"capability": (8, 9)}, {"early": 0}):
        model = captured(monkeypatch, PORTS, **how)
        assert (model.graph, model.port, model.tried, model.note) == ("plain", "", {}, "")
    model = captured(monkeypatch, PORTS, error=dependent_launch.EdgeError("CUDA 12.3 is needed\nand more"))
    assert (model.graph, model.port, model.tried) == ("plain", "", {})
    assert "No kernel starts before the one before is done: CUDA 12.3 is needed." in model.summary()


@pytest.mark.parametrize("y, theirs, differs", [(1.0, float("nan"), True), (0.0, 0.0, False), (0.0, 1.0, True)])
def test_an_output_of_nan_or_where_ours_is_zero_is_no_agreement(monkeypatch, y, theirs, differs):
    graph = SimpleNamespace(replay=lambda: None)
    model = inference.Model(tiny(), {}, (), {}, (), graph)
    for name, given in (("give", None), ("launch", None), ("output", torch.full((4,), y))):
        monkeypatch.setattr(inference, name, lambda *_, given=given: given)
    given = contextlib.nullcontext((graph, torch.full((4,), theirs)))
    monkeypatch.setattr(timing, "baseline_graph", lambda *_: given)
    monkeypatch.setattr(timing, "ways", lambda *_: {"PyTorch eager": None})
    monkeypatch.setattr(baselines, "time_graph", lambda graph: 5.0)
    (found,) = timing.measure(model, False).baselines
    assert (found.time is None) == ("differs from ours" in found.failure) == differs
