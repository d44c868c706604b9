import itertools

import numpy as np
import pytest

from dwlab.problems import PAPER, PATHS, DepthwiseConv1d, ProblemError
from dwlab.problems.references import allowed_error, reduction_length, reference, tolerance

SHAPES = [(1, 1, 1, 1), (2, 3, 7, 3), (2, 2, 3, 8), (1, 2, 9, 4), (3, 1, 6, 6)]
PADDINGS = ["causal", "same", 0]


def by_definition(p, path, inputs, number=np.float64, step=1):
    """The sums as DepthwiseConv1d's docstring has them, one product at a time; path: one with one output.

    number: what products and sums are rounded to; step: 1, or -1 for the terms in the opposite order.
    """
    (name,) = p.outputs(path)
    given, out = {key: array.astype(number) for key, array in inputs.items()}, np.zeros(p.shapes(path)[name], number)
    for b, h, t, j in itertools.product(*(range(size)[::step] for size in (p.B, p.H, p.L, p.K))):
        s = t + p.shift - j
        if not 0 <= s < p.L:
            continue
        if path == "forward":
            out[b, h, t] += given["w"][h, j] * given["x"][b, h, s]
        elif path == "input_grad":
            out[b, h, s] += given["w"][h, j] * given["dy"][b, h, t]
        else:
            out[h, j] += given["dy"][b, h, t] * given["x"][b, h, s]
    return out


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("shape", SHAPES)
def test_reference_is_the_definition(shape, padding, path):
    p = DepthwiseConv1d(*shape, padding)
    inputs = p.inputs(path)
    got = reference(p, path, inputs)
    assert tuple(got) == p.outputs(path)
    for name, values in got.items():
        assert values.dtype == np.float64
        np.testing.assert_allclose(values, by_definition(p, p.alone(name), inputs), rtol=1e-13, atol=1e-13)


def test_outside_the_row_is_nothing_even_for_infinite_weights():
    p = DepthwiseConv1d(1, 1, 4, 3)
    w = np.array([[1.0, np.inf, 2.0]])
    y = reference(p, "forward", {"x": np.ones((1, 1, 4)), "w": w})["y"][0, 0]
    assert y[0] == 1.0 and np.isinf(y[1:]).all()


def test_bad_inputs_say_which():
    p = DepthwiseConv1d(1, 2, 5, 3)
    with pytest.raises(ProblemError, match="forward needs an input 'w'"):
        reference(p, "forward", {"x": np.zeros((1, 2, 5))})
    with pytest.raises(ProblemError, match=r"x has shape \(2, 5\)"):
        reference(p, "forward", {"x": np.zeros((2, 5)), "w": np.zeros((2, 3))})
    with pytest.raises(ProblemError, match="there is no path 'sideways'"):
        reference(p, "sideways", {})


def test_tolerance_follows_the_reduction_length():
    short, long = DepthwiseConv1d(1, 1, 9, 3), DepthwiseConv1d(1, 1, 99, 48)
    assert tolerance(short, "forward") == 5 * 2.0**-24
    assert tolerance(short, "forward") < tolerance(long, "forward")
    assert reduction_length(PAPER, "weight_grad") == 786_432
    # A worst case of 786,432 roundings would let half the sum be wrong.
    assert tolerance(PAPER, "weight_grad") < 1e-3
    assert reduction_length(DepthwiseConv1d(1, 1, 5, 100), "forward") == 5


def test_backward_is_judged_as_each_gradient_alone():
    p = DepthwiseConv1d(3, 2, 20, 7, "same")
    inputs = p.inputs("backward", 5)
    got, allowed = reference(p, "backward", inputs), allowed_error(p, "backward", inputs)
    assert tuple(got) == tuple(allowed) == ("dx", "dw")
    for name in ("dx", "dw"):
        alone = p.alone(name)
        few = {key: inputs[key] for key in p.arrays(alone) if key in inputs}
        np.testing.assert_array_equal(got[name], reference(p, alone, few)[name])
        np.testing.assert_array_equal(allowed[name], allowed_error(p, alone, few)[name])
    with pytest.raises(ProblemError, match="backward needs an input 'w'"):
        reference(p, "backward", {"dy": inputs["dy"], "x": inputs["x"]})


@pytest.mark.parametrize("path", [path for path in PATHS if path != "backward"])
@pytest.mark.parametrize("step", [1, -1])
def test_float32_in_any_order_is_allowed_and_a_lost_term_is_not(path, step):
    p = DepthwiseConv1d(4, 2, 40, 33, "same")
    inputs = p.inputs(path, seed=3)
    (name,) = p.outputs(path)
    want, allowed = reference(p, path, inputs)[name], allowed_error(p, path, inputs)[name]
    assert (np.abs(by_definition(p, path, inputs, np.float32, step) - want) <= allowed).all()
    lost = want.copy()
    lost[..., -1] -= allowed[..., -1] / tolerance(p, path) / 1000  # a thousandth of the terms' size
    assert (np.abs(lost - want) > allowed)[..., -1].all()


@pytest.mark.parametrize("partial_sums", [1, 32, 64 * 2], ids=["naive", "coalesced", "warp_tiled"])
def test_the_papers_longest_sum_in_float32_is_allowed_and_a_thousandth_lost_is_not(partial_sums):
    # 786,432 terms of one output, one after the other in as many partial sums as a stage makes of them.
    p = DepthwiseConv1d(PAPER.B, 1, PAPER.L, 1)
    inputs = p.inputs("weight_grad")
    want, allowed = reference(p, "weight_grad", inputs)["dw"][0, 0], allowed_error(p, "weight_grad", inputs)["dw"][0, 0]
    terms = (inputs["dy"] * inputs["x"]).reshape(-1, partial_sums)
    got = np.cumsum(terms, axis=0, dtype=np.float32)[-1].sum(dtype=np.float32)
    assert 0 < abs(got - want) <= allowed
    lost = terms.sum(dtype=np.float64) - terms[: max(1, len(terms) // 300)].sum(dtype=np.float64)
    assert abs(lost - want) > allowed


def test_an_output_without_terms_must_be_zero():
    p = DepthwiseConv1d(1, 1, 1, 9, 0)  # only tap 8 lies inside
    inputs = p.inputs("forward")
    inputs["w"][:, 8] = 0
    assert allowed_error(p, "forward", inputs)["y"].max() < 1e-37
