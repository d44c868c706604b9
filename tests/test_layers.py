"""Layers of image networks: shapes, FLOPs, references and the judge, each against sums written out here."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from launched import wanted
from mutated import few_drawn, judge, mutate
from parts import most, part
from test_check_unseen import changed

from dwlab.judge import formulas
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.problems import ProblemError, cases, decode, references
from dwlab.problems.layers import ACTIVATIONS, DepthwiseConv2d, Fused, Pointwise
from dwlab.target import cuda


def by_loops(layer, given):
    """y of a float32 or int8 layer, one output after the other, in NCHW."""
    nchw = layer.layout == "NCHW"
    x = given["x"].astype(np.float64) if nchw else given["x"].astype(np.float64).transpose(0, 3, 1, 2)
    x = x - layer.zero_x
    y = np.zeros((layer.N, layer.channels_out, layer.P, layer.Q))
    for n, f, p, q in np.ndindex(y.shape):
        total = float(given["b"][f]) if layer.bias else 0.0
        if isinstance(layer, Pointwise):
            total += sum(float(given["w"][f, c]) * x[n, c, p, q] for c in range(layer.C))
        else:
            for i in range(layer.K):
                for j in range(layer.K):
                    h, v = p * layer.stride + i - layer.padding, q * layer.stride + j - layer.padding
                    if 0 <= h < layer.H and 0 <= v < layer.W:
                        w = given["w"][f, i, j] if nchw else given["w"][i, j, f]
                        total += float(w) * x[n, f, h, v]
        y[n, f, p, q] = total
    return y


LAYERS = (
    DepthwiseConv2d(2, 3, 5, 4, 3, bias=True),
    DepthwiseConv2d(1, 2, 6, 7, 5, 2, layout="NHWC"),
    DepthwiseConv2d(1, 2, 6, 7, 2, 3, 1),
    DepthwiseConv2d(1, 2, 5, 5, 3, 1, 0, layout="NHWC", bias=True),
    Pointwise(2, 3, 5, 2, 3, bias=True),
    Pointwise(1, 4, 2, 3, 1, layout="NHWC"),
)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_the_reference_is_the_sum_in_the_docstring(layer):
    given = layer.inputs(seed=3)
    y = references.reference(layer, "forward", given)["y"]
    assert y.shape == layer.shapes()["y"]
    y = y if layer.layout == "NCHW" else y.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(y, by_loops(layer, given), rtol=1e-12)


@pytest.mark.parametrize("layer", LAYERS[:1] + LAYERS[4:5], ids=str)
def test_flops_count_the_taps_inside(layer):
    ones = {name: np.ones(shape) for name, shape in layer.shapes().items() if name in ("x", "w")}
    bare = type(layer)(**{**vars(layer), "bias": False})
    assert bare.flops == 2 * by_loops(bare, ones).sum()


def test_int8_is_rounded_to_even_and_cut_off():
    layer = Pointwise(1, 1, 1, 1, 4, dtype="int8", bias=True, zero_x=2, zero_y=-3)
    given = {
        "x": np.array([[[[2, 3, 102, -98]]]], np.int8),
        "w": np.array([[5]], np.int8),
        "b": np.array([2], np.int32),
        "m": np.array([0.5], np.float32),
    }
    # sums 2, 7, 502, -498: halves 1, 3.5 -> 4, 251, -249; less 3; in -128..127
    assert references.reference(layer, "forward", given)["y"].ravel().tolist() == [-2, 1, 127, -128]
    relu = Pointwise(1, 1, 1, 1, 4, dtype="int8", bias=True, activation="relu", zero_x=2, zero_y=-3)
    assert references.reference(relu, "forward", given)["y"].ravel().tolist() == [-2, 1, 127, -3]
    assert not references.allowed_error(layer, "forward", given)["y"].any()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_the_residual_follow_the_sum(activation):
    layer = Pointwise(1, 2, 3, 2, 2, activation=activation, residual=True)
    given = layer.inputs(seed=1)
    plain = by_loops(layer, given)
    torch = pytest.importorskip("torch", reason="PyTorch's activations are the peer here")
    wanted = {"none": torch.clone} | torch.nn.functional.__dict__
    y = wanted[activation.replace("_", "")](torch.from_numpy(plain)).numpy() + given["r"]
    np.testing.assert_allclose(references.reference(layer, "forward", given)["y"], y, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("path", ["dwpw", "pwdw", "pwpw"])
def test_fused_layers_are_one_after_the_other(path, dtype):
    for case in cases.layer_cases("fused", path, (dtype,)):
        problem = case.problem
        given = problem.inputs(seed=2)
        one = {own: given[n] for n in given for layer, own in [problem.layer_of(n)] if n == "x" or n.endswith("1")}
        two = {own: given[n] for n in given for _, own in [problem.layer_of(n)] if n != "x" and not n.endswith("1")}
        between = references.reference(problem.first, "forward", one)["y"]
        if dtype == "int8":
            between = between.astype(np.int8)
            second = references.reference(problem.second, "forward", {**two, "x": between})["y"]
            assert np.array_equal(second, references.reference(problem, path, given)["y"])
            continue
        wide = type(problem.second)(**{**vars(problem.second), "dtype": "float32"})
        two = {name: decode(array, dtype) for name, array in two.items()}
        second = references.reference(wide, "forward", {**two, "x": between})["y"]
        y, allowed = wanted(problem, path, given)
        assert (np.abs(y - second) <= allowed).all() and (allowed > 0).all()
        # It must not allow for anything: bfloat16 has 8 bits.
        assert np.median(allowed) < (0.1 if dtype == "bfloat16" else 0.02) * np.abs(y).mean() + 1e-3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DepthwiseConv2d(1, 0, 4, 4, 3), "C must be at least 1, not 0"),
        (lambda: DepthwiseConv2d(1, 2, 4, 4, 3, 1.5), "stride must be a whole number, not 1.5"),
        (lambda: DepthwiseConv2d(1, 2, 4, 4, 3, padding=3), "padding must lie in 0..K-1 = 0..2"),
        (lambda: DepthwiseConv2d(1, 2, 2, 9, 5, padding=1), "maps of 2 x 9 with padding 1 are smaller than K=5"),
        (lambda: Pointwise(1, 2, 3, 4, 4, layout="NHCW"), "layout 'NHCW' is unknown. The nearest is 'NHWC'"),
        (lambda: Pointwise(1, 2, 3, 4, 4, zero_x=3), "zero_x = 3 is for int8; this layer is float32"),
        (lambda: Pointwise(1, 2, 3, 4, 4, dtype="int8", activation="gelu"), "'none' or 'relu', not 'gelu'"),
        (lambda: Pointwise(1, 2, 3, 4, 4, residual=True, m_r=0.5), "m_r = 0.5 are for int8 layers with a residual"),
        (lambda: Pointwise(1, 2, 3, 4, 4, dtype="int8", residual=True, m_r=0.0), "m_r is 0: a scale is a finite"),
        (lambda: Fused(Pointwise(1, 2, 3, 4, 4), Pointwise(1, 4, 3, 4, 4)), r"gives \(N, C, H, W\) = \(1, 3, 4, 4\)"),
        (lambda: Fused(DepthwiseConv2d(1, 2, 4, 4, 3), DepthwiseConv2d(1, 2, 4, 4, 3)), "two depthwise layers"),
        (lambda: Fused(Pointwise(1, 2, 3, 4, 4), Pointwise(1, 3, 3, 4, 4, "NHWC")), "differ in layout"),
        (lambda: Fused(Pointwise(1, 2, 2, 4, 4, residual=True), Pointwise(1, 2, 3, 4, 4)), "first .*has a residual"),
        (lambda: Pointwise(1, 2, 3, 4, 4).arrays("dwpw"), "pointwise has no path 'dwpw'"),
    ],
)
def test_impossible_layers_say_what_is_wrong(make, said):
    with pytest.raises(ProblemError, match=said):
        make()


LISTED = [one for one in registry.stages() if one.op != "depthwise1d"]


@pytest.mark.parametrize("one", part("judge", LISTED, lambda one: [one.path, *one.dtypes], 0.1), ids=lambda one: one.id)
def test_each_stage_of_layers_passes_the_judge(one, monkeypatch):
    monkeypatch.setattr(judge, "_drawn", few_drawn)
    verdict = check(one, most=most(8)).raise_if_wrong()  # of both families; of naive all: test_judge_seconds
    assert len(verdict.results) >= 8  # a stage that takes hardly any problem is judged on hardly any
    assert {result.case.drawn for result in verdict.results} == {True, False}
    assert {case.problem.dtype for case in judge._chosen(one, None, None, verdict.seed)} == set(one.dtypes)


@pytest.mark.parametrize("one", LISTED, ids=lambda one: one.id)
def test_each_formula_of_layers_equals_the_count(one):
    listed = cases.layer_cases(one.op, one.path, one.dtypes)
    judged = [case.problem for case in listed if one.supports(case.problem) and not case.vast]
    for problem in part(f"formulas: {one.id}", judged, lambda layer: [layer.dtype, layer.layout], 0.05):
        assert formulas.compare(one, problem).raise_if_different().predicted.exact


def wrong(change):
    """The naive stage, made for a layer with something changed."""
    return changed("depthwise2d/forward/naive", lambda layer: replace(layer, **change(layer)))


@pytest.mark.parametrize("activation", ["relu", "relu6", "gelu"])
def test_a_kernel_without_its_activation_is_rejected(activation):
    verdict = wrong(lambda layer: {"activation": "none"} if layer.activation == activation else {})
    assert not verdict.passed and {r.case.problem.activation for r in verdict.failures} == {activation}
    with pytest.raises(AssertionError, match="depthwise2d"):
        verdict.raise_if_wrong()


def test_a_kernel_that_takes_the_other_layout_is_rejected():
    swapped = {"NCHW": "NHWC", "NHWC": "NCHW"}
    verdict = wrong(lambda layer: {"layout": swapped[layer.layout]})
    assert not verdict.passed and all(r.case.problem.C > 1 for r in verdict.failures)


ON_TENSOR_CORES = [one for one in registry.stages() if "float32" in one.dtypes and "mma_f16" in one.needs]


def few_terms(path):
    """Layers of a path whose float32 sums are short: a kernel's error has few roundings to hide behind."""
    point, depth = partial(Pointwise, 1, layout="NHWC"), partial(DepthwiseConv2d, 1, layout="NHWC", padding=0)
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 16):
        if path == "forward":
            yield point(n, 16, 20, 20)
        elif path == "pwpw":
            yield from (Fused(point(n, F, 20, 20), point(F, 16, 20, 20)) for F in {1, n, 8})
        else:
            for K in (1, 2):
                side, channels = 21 - K, n if path == "dwpw" else 32
                pair = depth(channels, 20, 20, K), point(n, 32 if path == "pwdw" else 16, 20, 20)
                yield Fused(pair[0], replace(pair[1], H=side, W=side)) if path == "dwpw" else Fused(*pair[::-1])


@pytest.mark.parametrize("one", ON_TENSOR_CORES, ids=lambda one: one.id)
def test_short_sums_in_float32_are_as_exact_on_tensor_cores(one):
    """Three products of tf32 leave 8 units of each term: with 1 or 2 terms that was up to 1.4 times what is allowed."""
    taken = [problem for problem in few_terms(one.path) if one.supports(problem)]
    assert taken
    for problem in taken:
        random = np.random.default_rng(3)
        given = problem.inputs(one.path, seed=3)
        for name, array in given.items():  # numbers of 24 significant bits, between 1 and 2 or -2 and -1
            given[name] = (random.uniform(1, 2, array.shape) * random.choice((1, -1), array.shape)).astype(np.float32)
        arrays = {name: cuda.to_device(array) for name, array in {**given, "y": problem.nans("y", one.path)}.items()}
        one.run(problem, arrays)
        want, allowed = (of(problem, one.path, given)["y"] for of in (references.reference, references.allowed_error))
        assert (np.abs(arrays["y"].copy_to_host() - want) <= allowed).all(), str(problem)


def test_the_judge_names_a_border_of_the_map():
    kernel = mutate("depthwise2d/forward/naive", "if h < H and v < W", "if h < H and 0 < v and v < W")
    verdict = check(kernel, DepthwiseConv2d(1, 1, 6, 9, 3))
    assert verdict.patterns == ("border left out",)
    assert "the first column of each map of x is left out" in str(verdict) and "inside the map" in verdict.hint(3)


def test_the_judge_takes_a_layer_in_words_and_in_another_storage_type():
    pair = "N=1 C=8 H=7 W=7 K=3 NHWC relu -> N=1 C=8 F=16 H=7 W=7 NHWC"
    for dtype in (None, "float16"):
        verdict = check("fused/dwpw/slide", pair, dtype=dtype).raise_if_wrong()
        assert {result.case.problem.dtype for result in verdict.results} == {dtype or "float32"}
