"""depthwise1d/weight_grad/toeplitz: rows, taps and channels of any number, cut into tiles and chunks of taps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parts import most

from dwlab.judge.formulas import compare
from dwlab.kernels.depthwise1d.lag_products import plan_of
from dwlab.kernels.registry import stage
from dwlab.problems import DTYPES, DepthwiseConv1d
from dwlab.problems.references import allowed_error, reference

ONE = stage("depthwise1d/weight_grad/toeplitz")
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def run(problem, inputs):
    arrays = {name: values.copy() for name, values in inputs.items()} | {"dw": problem.nans("dw", ONE.path)}
    ONE.run(problem, arrays)
    return arrays["dw"]


@each_dtype
@settings(max_examples=most(12), deadline=None)
@given(B=st.integers(1, 12), H=st.integers(1, 4), L=st.integers(1, 200), K=st.integers(1, 150), left=st.floats(0, 1))
@example(B=3, H=1, L=6, K=1, left=0.0)
@example(B=2, H=2, L=1025, K=20, left=0.5)  # a row of several tiles, the last of one time
@example(B=1, H=2, L=2080, K=7, left=1.0)
@example(B=2, H=1, L=60, K=1100, left=0.4)  # chunks of taps, of which some meet no x
@example(B=1, H=1, L=700, K=600, left=0.0)
@example(B=40, H=9, L=17, K=16, left=0.5)  # channels of other sectors
@example(B=40, H=9, L=3, K=150, left=0.5)  # few taps of which two times of a row are apart: the others are 0
@example(B=9, H=2, L=9, K=150, left=0.0)
@example(B=9, H=2, L=9, K=150, left=1.0)
def test_any_row_and_any_number_of_taps(dtype, B, H, L, K, left):
    problem = DepthwiseConv1d(B, H, L, K, round(left * (K - 1)), dtype)
    if not ONE.supports(problem):  # too few terms for tf32
        problem = replace(problem, B=6 * B)
    inputs = problem.inputs(ONE.path, seed=L)
    want, allowed = (found(problem, ONE.path, inputs)["dw"] for found in (reference, allowed_error))
    assert (np.abs(run(problem, inputs) - want) <= allowed).all()
    compare(ONE, problem).raise_if_different()


@each_dtype
@pytest.mark.parametrize("L, K, padding", [(21, 5, "causal"), (21, 5, 0), (1025, 20, "same"), (60, 530, "causal")])
def test_a_nan_meets_the_taps_that_see_it_and_no_other(dtype, L, K, padding):
    problem = DepthwiseConv1d(5, 4, L, K, padding, dtype)
    inputs = problem.inputs(ONE.path)
    for name, channel, places in (("x", 0, (0, L - 1)), ("dy", 1, (L // 2,)), ("dy", 2, (0, L - 3)), ("x", 2, (3,))):
        inputs[name][3, channel, places] = problem.nans(name, ONE.path).ravel()[0]
    want, dw = reference(problem, ONE.path, inputs)["dw"], run(problem, inputs)
    np.testing.assert_array_equal(np.isnan(dw), np.isnan(want))
    finite = np.isfinite(want)
    assert (np.abs(dw - want)[finite] <= 1e-3 * np.abs(want).max(initial=1, where=finite)).all()


def test_it_is_the_same_in_every_run_and_takes_what_32_bits_count():
    problem = DepthwiseConv1d(9, 2, 150, 33)
    inputs = problem.inputs(ONE.path)
    np.testing.assert_array_equal(run(problem, inputs), run(problem, inputs))
    large = DepthwiseConv1d(2, 2**19, 2**12, 4)  # 2**32 elements, rows of a tile each
    assert plan_of(large.L, 4, large.shift, "float32").side == 1 and ONE.supports(large)
    assert not ONE.supports(DepthwiseConv1d(2, 2**28, 16, 4))  # many rows of a tile, too far from each other
    few = DepthwiseConv1d(1, 3, 5, 2)
    assert not ONE.supports(few)
    assert ONE.kernel_for(few) is stage("depthwise1d/weight_grad/tiles").kernel_for(few)
