import re

import numpy as np
import pytest

from dwlab.problems import PAPER, PATHS, SMALL, DepthwiseConv1d, ProblemError, nearest, problem

pytestmark = pytest.mark.quick


def test_the_papers_problem_has_the_papers_numbers():
    # papers.md: 805 MB compulsory, 9.66 GFLOP dense, 4.93 GFLOP in causal taps, 786,432 terms of a weight gradient.
    assert PAPER.shapes("forward") == {"x": (16384, 128, 48), "w": (128, 48), "y": (16384, 128, 48)}
    assert PAPER.compulsory_bytes("forward") == 4 * (2 * 16384 * 128 * 48 + 128 * 48)
    assert PAPER.flops_dense == 2 * 16384 * 128 * 48 * 48
    assert PAPER.flops == 2 * 16384 * 128 * (48 * 49 // 2)


@pytest.mark.parametrize(
    ("K", "padding", "left", "shift"),
    [(1, "causal", 0, 0), (1, "same", 0, 0), (5, "causal", 4, 0), (5, "same", 2, 2), (4, 0, 0, 3), (4, 3, 3, 0),
     (4, "same", 1, 2)],  # PyTorch's padding="same" puts the odd zero to the right
)  # fmt: skip
def test_padding(K, padding, left, shift):
    p = DepthwiseConv1d(1, 1, 9, K, padding)
    assert (p.left, p.shift) == (left, shift)


@pytest.mark.parametrize("padding", ["causal", "same", 0, 2])
@pytest.mark.parametrize(("L", "K"), [(1, 3), (5, 3), (3, 7), (8, 8), (20, 5)])
def test_taps_are_the_products_inside_the_row(L, K, padding):
    p = DepthwiseConv1d(2, 3, L, K, padding)
    inside = sum(0 <= t + p.shift - j < L for t in range(L) for j in range(K))
    assert p.taps == inside
    assert p.flops == 2 * 2 * 3 * inside
    assert p.flops <= p.flops_dense


@pytest.mark.parametrize("path", PATHS)
def test_arrays_inputs_and_outputs_fit_together(path):
    p = DepthwiseConv1d(2, 3, 5, 4)
    inputs = p.inputs(path)
    assert (*inputs, *p.outputs(path)) != () and set(inputs) | set(p.outputs(path)) == set(p.arrays(path))
    assert {name: array.shape for name, array in inputs.items()}.items() <= p.shapes(path).items()
    assert all(array.dtype == np.float32 and array.flags.c_contiguous for array in inputs.values())
    rows, filters = (3, 2) if path == "backward" else (2, 1)
    assert p.compulsory_bytes(path) == 4 * (rows * 2 * 3 * 5 + filters * 3 * 4)
    # What a kernel writes are its last arguments, and nothing is both read and written.
    assert p.arrays(path) == (*inputs, *p.outputs(path))


@pytest.mark.parametrize("padding", ["causal", "same", 0])
def test_backward_does_the_work_of_both_gradients_and_reads_dy_once(padding):
    p = DepthwiseConv1d(2, 3, 9, 5, padding)
    assert p.flops_of("backward") == p.flops_of("input_grad") + p.flops_of("weight_grad") == 2 * p.flops
    assert p.flops_of("forward") == p.flops
    apart = p.compulsory_bytes("input_grad") + p.compulsory_bytes("weight_grad")
    assert p.compulsory_bytes("backward") == apart - p.nbytes("weight_grad")["dy"]


def test_inputs_are_seeded_and_asymmetric():
    p = DepthwiseConv1d(3, 4, 50, 9)
    a, b, c = p.inputs("forward", 0), p.inputs("forward", 0), p.inputs("forward", 1)
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not any(np.array_equal(a[name], c[name]) for name in a)
    assert not np.array_equal(a["w"], a["w"][:, ::-1])
    assert a["x"].min() < 0 < a["x"].max() and abs(a["x"].mean()) > 0.3
    # Two arrays of one seed are not the same numbers again.
    assert not np.array_equal(a["x"].ravel()[:36], a["w"].ravel())


def test_sizes_beyond_32_bits_are_counted_in_full():
    huge = DepthwiseConv1d(2**20, 2**20, 2**10, 3)
    assert huge.compulsory_bytes("forward") == 4 * (2 * 2**50 + 3 * 2**20)
    assert huge.flops_dense == 2 * 3 * 2**50


def test_numpy_integers_become_plain_ones():
    p = DepthwiseConv1d(np.int64(2), np.int32(3), 8, 3, np.int64(1))
    assert p == DepthwiseConv1d(2, 3, 8, 3, 1) and type(p.B) is int and type(p.padding) is int


@pytest.mark.parametrize(
    ("path", "near"), [("backwards", "backward"), ("Forward", "forward"), ("weight-grad", "weight_grad")]
)
def test_an_unknown_path_is_named_with_the_nearest(path, near):
    for asked in (PAPER.arrays, PAPER.outputs, PAPER.shapes, PAPER.nbytes, PAPER.inputs):
        with pytest.raises(ProblemError, match=f"there is no path {path!r}. The nearest is '{near}.*Known: forward"):
            asked(path)


def test_problems_by_name_and_by_sizes():
    assert problem("paper") is PAPER and problem("small") is problem(SMALL) is SMALL
    assert problem("2,3,40,5") == DepthwiseConv1d(2, 3, 40, 5)
    assert problem(" 2, 3, 40, 5, same ") == DepthwiseConv1d(2, 3, 40, 5, "same")
    assert problem("2,3,40,5,1") == DepthwiseConv1d(2, 3, 40, 5, 1)


def row(**sizes):
    return DepthwiseConv1d(**({"B": 1, "H": 1, "L": 8, "K": 3} | sizes))


REFUSED = [
    (lambda: row(K=0), "K must be at least 1, not 0"),
    (lambda: row(L=0), "L must be at least 1, not 0"),
    (lambda: row(B=-3), "B must be at least 1, not -3"),
    (lambda: row(L=True), "L must be a whole number, not True"),
    (lambda: row(padding=-1), "padding must lie in 0..K-1 = 0..2, not -1"),
    (lambda: row(padding="valid"), "padding 'valid' is unknown"),
    (lambda: row(padding=1.0), "padding must be 'causal', 'same' or a whole number, not 1.0"),
    (lambda: row(dtype="float64"), "dtype 'float64' is not supported: use 'float32', 'float16', 'bfloat16'"),
    (lambda: row().flops_of("both"), "there is no path 'both'"),
    (lambda: problem("papier"), "there is no problem 'papier'. The nearest is 'paper'"),
    (lambda: problem(""), "there is no problem ''"),
    (lambda: problem("1,2,3"), "there is no problem '1,2,3'"),
    (lambda: problem("1,2,3,0"), "K must be at least 1"),
    (lambda: problem("1,2,3,3,-1"), "padding must lie in"),
    *((lambda one=one: problem(one), "is no problem: give a DepthwiseConv1d, a name such as 'small'")
      for one in (None, 3, (1, 1, 8, 3))),
    *((lambda seed=seed: SMALL.inputs(seed=seed), f"seed must be a whole number from 0 up, not {seed!r}")
      for seed in (-1, 1.5, "7", None, True)),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_what_cannot_be_is_one_clear_error(asked, message):
    with pytest.raises(ProblemError, match=re.escape(message)):
        asked()


def test_inputs_beyond_the_memory_say_how_much_they_take():
    with pytest.raises(ProblemError, match=r"x of B=1000000000 .* takes 400,000,000,0.*GB, more than this machine"):
        DepthwiseConv1d(10**9, 10**9, 100, 3).inputs()


def test_nearest_ignores_case_and_lists_few():
    assert nearest("PAPER", ("paper", "small")) == "The nearest is 'paper'. Known: paper, small."
    assert nearest("x", tuple(f"name{i}" for i in range(20))).count(".") == 1
    assert nearest("x", ()) == "None is known."
