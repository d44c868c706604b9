"""Rows of any length as one line of 16-byte pieces: where rows end, what crosses no end, and numbers up to 2**31."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from parts import most
from test_kernels import run

from dwlab.judge.check import check
from dwlab.judge.formulas import compare
from dwlab.kernels import registry
from dwlab.kernels.depthwise1d import flat_rows
from dwlab.kernels.parts import pieces
from dwlab.kernels.registry import StageError, stage
from dwlab.problems import DTYPES, DepthwiseConv1d, decode
from dwlab.problems.references import reference
from dwlab.target import cuda

FLAT = [stage(f"depthwise1d/{path}/flat") for path in ("forward", "input_grad")]
SUMS = [stage(f"depthwise1d/{path}/flat") for path in ("weight_grad", "backward")]
each_stage = pytest.mark.parametrize("one", FLAT, ids=lambda one: one.path)
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@pytest.mark.parametrize("one", FLAT + SUMS, ids=lambda one: one.path)
@each_dtype
@settings(max_examples=most(6), deadline=None)
@given(B=st.integers(1, 70), H=st.integers(1, 6), more=st.integers(0, 90), K=st.integers(1, 9), left=st.floats(0, 1))
@example(B=70, H=3, more=90, K=3, left=0.5)  # several blocks share a channel
@example(B=70, H=4, more=31, K=1, left=0.0)  # entries that repeat each other, counted once
@example(B=70, H=4, more=28, K=1, left=0.0)
def test_rows_of_any_length_are_right_and_counted(one, dtype, B, H, more, K, left):
    short = 1 if one.path == "weight_grad" else pieces.elements(dtype) + K - 1
    problem = DepthwiseConv1d(B, H, short + more, K, round(left * (K - 1)), dtype)
    if not one.supports(problem):  # an odd number of 16 bits, or fewer than a piece
        problem = replace(problem, B=4 * B, H=2 * H)
    compare(one, problem).raise_if_different()
    assert run(one, problem, seed=more)[1] <= 1


@each_stage
@each_dtype
@settings(max_examples=most(12), deadline=None)
@given(
    B=st.integers(1, 40), H=st.sampled_from([1, 2, 3, 7, 40]), short=st.floats(0, 1), K=st.integers(1, 9),
    left=st.sampled_from(["causal", "same", 0.0, 0.3, 1.0]),
)  # fmt: skip
@example(B=40, H=40, short=0.0, K=9, left=0.3)  # rows of one element
@example(B=40, H=7, short=1.0, K=9, left="same")
@example(B=37, H=3, short=0.2, K=1, left="causal")
@example(B=1, H=1, short=0.9, K=6, left="causal")  # fewer pieces than a lane looks ahead
def test_short_rows_are_right_and_counted_and_keep_what_is_not_finite(one, dtype, B, H, short, K, left):
    L = 1 + round(short * (pieces.elements(dtype) + K - 3))
    problem = DepthwiseConv1d(B, H, L, K, left if isinstance(left, str) else round(left * (K - 1)), dtype)
    if not one.supports(problem):  # an odd number of 16 bits, or less than a piece
        problem = replace(problem, B=8 * B)
    assert one.supports(problem) and registry.short(problem) == L
    compare(one, problem).raise_if_different()
    inputs = problem.inputs(one.path, seed=B)
    right, error = run(one, problem, inputs=inputs)
    assert error <= 1
    rows = inputs["x" if one.path == "forward" else "dy"].reshape(-1, L)
    lost = np.random.default_rng(B).random(len(rows)) < 0.4
    rows[lost] = problem.nans("y" if one.path == "forward" else "dx", one.path).ravel()[0]
    got = run(one, problem, inputs=inputs)[0].reshape(-1, L)
    assert np.isnan(got[lost]).all()  # each element has a tap of its own, whatever the padding
    assert (got == right.reshape(-1, L))[~lost].all()


@each_dtype
@pytest.mark.parametrize("sizes", [(5, 3, 2, 4), (8, 1, 3, 9), (4, 7, 1, 2), (6, 2, 6, 4), (4, 3, 4, 8)], ids=str)
def test_bias_and_silu_of_short_rows(dtype, sizes):
    problem = DepthwiseConv1d(*sizes, dtype=dtype)
    inputs, how = problem.inputs("forward"), flat_rows.launch(problem)
    bias = np.linspace(-1, 1, problem.H, dtype=np.float32)
    w = np.concatenate([inputs["w"], bias[:, None]], 1)
    kernel = FLAT[0].kernel.make(problem.K, 0, dtype, False, registry.short(problem), bias=True, activation="silu")
    y = problem.nans("y", "forward")
    kernel[how.grid, how.block](*(one.reshape(-1).view(np.float32) for one in (inputs["x"], w, y)), *how.scalars)
    want = reference(problem, "forward", inputs)["y"] + bias[:, None]
    want /= 1 + np.exp(-want)
    np.testing.assert_allclose(decode(y, dtype), want, *((1e-5, 1e-5) if dtype == "float32" else (1e-2, 1e-2)))


@each_stage
@each_dtype
def test_long_rows_have_a_way_of_their_own_where_none_ends(one, dtype):
    problem = DepthwiseConv1d(1, 2, flat_rows.LONG + 2, 4, 1, dtype)
    check(one, problem).raise_if_wrong()
    compare(one, problem).raise_if_different()


ENDS = [(one, L) for one in FLAT for L in (2, 3, 5, 17)] + [(one, 17) for one in SUMS]


@pytest.mark.parametrize(("one", "L"), ENDS, ids=lambda of: getattr(of, "path", of))
@each_dtype
@pytest.mark.parametrize("padding", ["causal", "same", 0])
def test_what_is_not_finite_stays_in_its_row_wherever_that_ends(one, L, dtype, padding):
    """Rows of 3, 5 and 17 end at each place of a piece; every second channel is NaN, one of the others' filters is not
    finite."""
    problem = DepthwiseConv1d(4, 4, L, 4, padding, dtype)
    inputs = problem.inputs(one.path)
    for name in {"x", "dy"} & inputs.keys():
        inputs[name][:, ::2] = problem.nans(name, one.path).ravel()[0]
    if "w" in inputs:
        inputs["w"][1] = np.inf
    arrays = inputs | {name: problem.nans(name, one.path) for name in problem.outputs(one.path)}
    one.run(problem, arrays)
    for name in problem.outputs(one.path):
        got = decode(arrays[name], problem.dtype_of(name))
        of = got if name == "dw" else got.swapaxes(0, 1)  # channels in front
        assert np.isnan(of[::2]).all() and np.isfinite(of[3]).all()
        assert np.isfinite(of[1]).all() if name == "dw" else not np.isfinite(of[1]).any()


@cuda.jit
def divide(numbers, divisors, found):
    i = cuda.grid(1)
    if i < numbers.shape[0]:
        for k in range(divisors.shape[0]):
            found[i, k] = flat_rows.quotient(numbers[i], divisors[k, 0], divisors[k, 1])


def test_quotients_are_exact_up_to_2_to_the_31():
    rng = np.random.default_rng(0)
    by = np.unique([*range(1, 40), 202, 203, 511, 12288, 16384, *rng.integers(1, 2**31, 20), 2**30, 2**31 - 1])
    near = [n * int(d) + more for d in by for n in (1, 2**31 // int(d) - 1) for more in (-1, 0, 1)]
    numbers = np.unique([n for n in [*near, 0, 2**31 - 1] if 0 <= n < 2**31]).astype(np.uint32)
    assert all(multiplier < 2**32 for multiplier, _ in map(flat_rows.magic, map(int, by)))
    magic = np.array([flat_rows.magic(int(d)) for d in by], np.uint32)
    found = np.zeros((numbers.size, by.size), np.uint32)
    divide[-(-numbers.size // 128), 128](numbers, magic, found)
    np.testing.assert_array_equal(found, numbers[:, None] // by.astype(np.uint32))


@each_stage
def test_what_it_is_for(one):
    fits = DepthwiseConv1d(2**8, 2**13, 2**10, 4, dtype="bfloat16")  # 2**31 elements
    assert one.supports(fits) and one.launch(fits).blocks * flat_rows.THREADS * 8 == 2**31
    changes = {"H": 2**13 + 1}, {"K": 10}, {"B": 1, "H": 3, "L": 101}, {"B": 1, "H": 1, "L": 6}
    for other in (replace(fits, **change) for change in changes):
        assert not one.supports(other)
        with pytest.raises(StageError, match=f"{one.id} does not take .*: use .*depthwise1d/{one.path}/tiles"):
            one.launch(other)
        as_float32 = replace(other, dtype="float32")
        tiles = stage(f"depthwise1d/{one.path}/tiles")
        if other.K == 10:  # handed over with the view of tiles
            assert one.view_of(as_float32) == tiles.view and one.launch(as_float32) == tiles.launch(as_float32)
