"""check(kernel, want=function, args=…): anybody's kernel against a function on NumPy arrays."""

import math
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32

from dwlab import check, cuda
from dwlab.gpu import target
from dwlab.judge import tools
from dwlab.judge.check import CheckError, CheckFailed
from dwlab.judge.reference import close, wanted
from dwlab.kernels.parts import ptx
from tests.loaded import loaded

X = np.random.default_rng(1).standard_normal((5, 70)).astype(np.float32)
Y = np.zeros_like(X)
GRID, BLOCK = (3, 5), 32


def doubled(x, y):
    y[:] = 2 * x


def of_lines(parameters, *lines):
    text = f"def made({parameters}):\n" + textwrap.indent("\n".join(lines) + "\n", "    ")
    return cuda.jit(loaded(text, cuda=cuda, float32=float32, exp=math.exp)["made"])


def kernel(does):
    """A kernel of one thread an element, from the text of its body; i is the row, j the place in it."""
    return of_lines("x, y", "i, j = cuda.blockIdx.y, cuda.grid(1)", "if j < x.shape[1]:", textwrap.indent(does, "    "))


def judged(does, **how):
    return check(kernel(does), want=doubled, args=(X, Y), grid=GRID, block=BLOCK, **how)


def test_a_right_kernel_passes_and_nothing_is_changed():
    before = X.copy()
    assert str(judged("y[i, j] = 2 * x[i, j]").raise_if_wrong()) == "passed: made, 350 elements of y are right"
    assert (X == before).all() and not Y.any()


WRONG = {
    "y[i, j] = 3 * x[i, j]": ("wrong factor", "1.5 times what is right"),
    "y[i, j] = 2.00003 * x[i, j]": ("wrong factor", "times what is right"),  # as near as any element is at the largest
    "y[i, j] = 2 * x[i, j] * float32(1 + ((i + j) % 5 - 2) * 1e-4)": ("wrong", "elements are wrong"),  # no one factor
    "y[i, j] = 2 * x[i, j] + 1": ("wrong offset", "each is 1 more"),
    "y[i, j] = 0": ("zero", "all of them are 0"),
    "y[i, j] = 2 * x[i, j] / 0.0": ("not finite", "NaN or infinite"),
    "if j < 64: y[i, j] = 2*x[i, j]": ("not written", "30 of 350 elements of y are not written, the first at [0, 64]"),
    "y[i, j] = 2 * x[i, j - 1] if j > 0 else float32(0)": ("exchanged", "y stored with one before along axis 1"),
    "y[i, j] = 2 * x[i, j + 1] if j < 69 else float32(0)": ("exchanged", "y stored with one further on along axis 1"),
    "y[i, j] = 2 * x[i, j] if j > 0 else float32(9)": ("edge", "only the first of 70 along axis 1"),
    "y[i, j] = 2 * x[i, j] if j < 40 else float32(j)": ("edge", "only the last 30 of 70 along axis 1"),
    "y[i, j] = 2 * x[i, j] if (i + j) % 7 else float32(j + 1)": ("wrong", "is right; 50 elements are wrong"),
    "y[i, j] = 2 * x[i, j]\nx[i, j] = 0": ("input changed", "x is an input"),
    "y[i, 2 * j] = 2 * x[i, j]": ("out of bounds", "index 70 on axis 1"),
    "y[i, j] += 2 * x[i, j]": ("uninitialised", ""),
    "y[0, j] = 2 * x[i, j]": ("two writers", ""),
    "while True:\n    y[i, j] = 0": ("does not end", "did not end"),
    "y[i, j] = [1]": ("cannot be interpreted", ""),
}


ON_GPU = {  # what the interpreter sees as it happens, a GPU leaves in memory
    "y[i, 2 * j] = 2 * x[i, j]": ("memory of others", ""),
    "y[i, j] += 2 * x[i, j]": ("not written", ""),
    "y[0, j] = 2 * x[i, j]": ("not written", ""),
    "y[i, j] = [1]": ("does not compile", ""),
}
simulated = pytest.mark.skipif(target.mode == "gpu", reason="a GPU keeps no record of stores")


@pytest.mark.parametrize("does", WRONG)
def test_a_wrong_kernel_is_told_what_is_wrong(does):
    if target.mode == "gpu" and "while True" in does:
        pytest.skip("nothing stops it on a GPU")
    pattern, text = (ON_GPU if target.mode == "gpu" else {}).get(does, WRONG[does])
    verdict = judged(does)
    assert not verdict.passed
    assert pattern in [one.pattern for one in verdict.findings], str(verdict)
    assert text in str(verdict)
    assert all(one.look for one in verdict.findings)
    with pytest.raises(CheckFailed, match=r"FAILED: made, (?:[\d,]+ of 350 elements of y wrong|y not compared)\n"):
        verdict.raise_if_wrong()


@pytest.mark.parametrize("how", ["int(x[i] * 0.5)", "(x[i] + 1) // 2", "x[i] // 2"])
def test_whole_numbers_that_are_off_by_one_are_asked_how_they_are_rounded(how):
    given = np.arange(-9, 9, dtype=np.int32), np.zeros(18, np.int8)
    kernel = of_lines("x, y", "i = cuda.grid(1)", f"y[i] = {how}")
    wrong = check(kernel, want=lambda x: np.rint(x * 0.5), args=given, grid=1, block=18)
    assert wrong.findings[0].pattern == "off by one" and "how is it rounded" in wrong.findings[0].look


@simulated
def test_a_hazard_that_is_meant_is_allowed():
    args = np.ones(64, np.float32), np.zeros(1, np.float32)
    flag = of_lines("x, y", "if x[cuda.threadIdx.x] > 0:", "    y[0] = 1")
    how = {"args": args, "grid": 1, "block": 64}
    assert [one.pattern for one in check(flag, want=lambda x: (x > 0).any(), **how).findings] == ["two writers"]
    assert check(flag, want=lambda x: (x > 0).any(), **how, allow="two writers").passed
    assert [one.pattern for one in check(flag, want=lambda _: 2, **how, allow="two writers").findings] == ["wrong"]


def test_an_output_that_holds_the_result_already_is_seen():
    x = np.arange(1, 33, dtype=np.float32)
    verdict = check(of_lines("x, y", "pass"), want=doubled, args=(x, 2 * x), grid=1, block=32)
    assert [one.pattern for one in verdict.findings] == ["not written"]


@given(kind=st.sampled_from(["f2", "f4", "f8", "i1", "u2", "i4", "i8", "c8", "c16"]), size=st.integers(1, 300))
@settings(max_examples=25, deadline=None)
def test_every_storage_type_is_compared(kind, size):
    copy = of_lines("x, y", "i = cuda.grid(1)", "if i < x.size:", "    y[i] = x[i]")
    x = (np.arange(size) % 50 + 1).astype(kind)
    how = {"args": (x, np.zeros_like(x)), "grid": -(-size // 64), "block": 64}
    check(copy, want=copied, **how).raise_if_wrong()
    assert not check(copy, want=lambda x, y: y.__setitem__(size - 1, 99), **how).passed


GIVEN = {"args": (X, Y), "grid": 1, "block": 32}


def raises(x, y):
    raise ValueError("no")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (GIVEN | {"want": lambda x: x[0]}, "returns an array of shape .70,.: no arg"),
        (GIVEN | {"want": raises}, "the reference raises ValueError: no"),
        (GIVEN | {"want": lambda x, y: None}, "changes none of the arrays"),
        ({"want": doubled, "args": (X, Y)}, "give grid= and block="),
        ({"args": (X, Y)}, "go with want="),
        (GIVEN | {"want": doubled, "args": (X, np.zeros(3, "U4"))}, "cannot be compared"),
    ],
)
def test_what_cannot_be_judged_is_one_error(how, says):
    with pytest.raises(CheckError, match=says):
        check(kernel("y[i, j] = 2 * x[i, j]"), **how)


def test_a_plain_function_is_no_kernel():
    with pytest.raises(CheckError, match=r"decorate the function with @cuda\.jit"):
        check(doubled, want=doubled, args=(X, Y), grid=1, block=1)


# --- how near, and what is said of inputs -----------------------------------------------------------------------------


def copied(x, y):
    y[:] = x


MIXED = np.concatenate([np.full(8, 1e6), np.linspace(0.1, 5, 56)]).astype(np.float32)


@pytest.mark.parametrize(
    ("does", "x", "right"),
    [
        ("y[i] = x[i]", MIXED, True),
        ("y[i] = x[i] if x[i] > 10 else float32(0)", MIXED, False),
        ("y[i] = x[i] * float32(1.00003)", MIXED, False),
        ("y[i] = x[i] * float32(1.0095)", np.linspace(0.1, 5, 64).astype(np.float16), False),
        ("y[i] = x[i] * float32(1.0004)", np.linspace(0.1, 5, 64).astype(np.float16), True),  # a last place, at most
    ],
)
def test_an_element_is_right_by_its_own_size(does, x, right):
    made = of_lines("x, y", "i = cuda.grid(1)", does)
    assert check(made, want=copied, args=(x, np.zeros_like(x)), grid=1, block=64).passed == right


def cancelling(rows, size, seed):
    """Terms near 1000 whose sums are near 0, and weights."""
    draw = np.random.default_rng(seed)
    half = draw.uniform(500, 1000, (rows, size // 2))
    x = np.concatenate([half, -half * (1 + 1e-6 * draw.standard_normal(half.shape))], axis=1)
    return x.astype(np.float32), np.tile(draw.uniform(0.5, 1, size // 2).astype(np.float32), 2)


def weighted(x, w):
    return x.astype(np.float64) @ w


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [2, 30, 1000])
def test_a_sum_that_cancels_may_be_as_far_off_as_its_terms_say(size, seed):
    """Sums near 0 of terms near 1000, added one after the other in float32: right; without their last term: wrong."""
    x, w = cancelling(64, size, seed)
    loop = "for j in range(x.shape[1] - last):", "    acc += x[i, j] * w[j]"
    sums = of_lines("x, w, y, last", "i = cuda.grid(1)", "acc = float32(0)", *loop, "y[i] = acc")
    how = {"want": weighted, "grid": 1, "block": 64}
    check(sums, args=(x, w, np.zeros(64, np.float32), 0), **how).raise_if_wrong()
    verdict = check(sums, args=(x, w, np.zeros(64, np.float32), 1), **how)
    assert [one.pattern for one in verdict.findings] == ["last terms missing"], str(verdict)


def test_no_element_is_taken_for_smaller_than_it_is():
    """Of how far elements move when the inputs do, three draws alone had rejected one right element in a thousand."""
    x, w = cancelling(4096, 1000, 0)
    found = wanted(weighted, (x, w, np.zeros(4096, np.float32)))[2]
    assert close(np.add.accumulate(x * w, axis=1)[:, -1], found, None).all()


@pytest.mark.parametrize("turns, which", [("32", "last"), ("16, 48", "first")])
def test_a_product_that_lacks_its_last_or_first_terms_is_named_so(turns, which):
    """Two turns of 16, where the inner size needs three, as in Numba's manual's tiled product of two blocks a side."""
    loop = f"for k in range({turns}):", "    acc += a[y, k] * b[k, x]"
    head = "x, y = cuda.grid(2)", "acc = float32(0)"
    draw = np.random.default_rng(3)
    args = *(draw.random(shape, np.float32) for shape in ((32, 48), (48, 32))), np.zeros((32, 32), np.float32)
    product = of_lines("a, b, c", *head, *loop, "c[y, x] = acc")
    verdict = check(product, want=np.matmul, args=args, grid=(2, 2), block=(16, 16))
    assert [one.pattern for one in verdict.findings] == [f"{which} terms missing"], str(verdict)
    assert f"as a read with only the {'last' if which == 'first' else 'first'} 32 of 48 along axis 1" in str(verdict)


@simulated
def test_an_input_that_is_stored_to_and_restored_is_seen():
    verdict = judged("v = x[i, j]\nx[i, j] = 0\ny[i, j] = v + x[i, j] + v\nx[i, j] = v")
    assert [one.pattern for one in verdict.findings] == ["input changed"]
    assert "x is an input, and line 5 stores to it, though it holds again" in str(verdict)


def counted(n=32, kind="f4"):
    return np.arange(n, dtype=kind)


@pytest.mark.parametrize(
    ("does", "want", "x"),
    [
        ("y[i] = x[0] if i == 0 else float32(496)", lambda x: np.append(x[0], np.full(31, x.sum())), counted()),
        ("y[i] = x[15]", lambda x: np.full(32, x.max()), 20 - abs(15 - counted())),
        ("y[i] = x[31 - i]", lambda x: x.copy(), np.ones(32, "f4")),
        ("y[i] = x[i] if x[i] else float32(0)", lambda x: x + x, np.zeros(32, "f4")),
        ("y[i // 4, i % 4] = x[i % 4, i // 4]", lambda x: 1 * x, np.add.outer(counted(4), counted(4))),
        ("y[i] = x[i]", lambda x, y: np.add(x, y, y), counted()),
        ("y[31 - i] = x[i]", lambda x: np.sort(x), counted(32, "i4")[::-1].copy()),
    ],
)
def test_what_the_given_numbers_hide_is_found_with_others(does, want, x):
    made = of_lines("x, y", "i = cuda.grid(1)", does)
    verdict = check(made, want=want, args=(x, 0 * x), grid=1, block=x.size)
    assert verdict.findings[0].pattern == "other numbers" and "the reference assert it" in verdict.hint(9)
    assert verdict.hint().startswith("What is wrong: other numbers: right with your numbers, wrong with others of the")
    assert verdict.tried == ("your numbers", "others of the same shapes") and 0 < verdict.wrong <= verdict.size
    given = check(made, want=want, args=lambda: (x, 0 * x), grid=1, block=x.size)  # a function's stay
    assert given.passed and given.tried == ("your numbers", "your numbers, drawn again")


LOGISTIC = ("y[i] = exp(x[i]) / (1 + exp(x[i]))", "y[i] = 1 / (1 + exp(-x[i]))")


@pytest.mark.parametrize("does, most, passes", [(LOGISTIC[0], 1e9, 0), (LOGISTIC[0], 50, 1), (LOGISTIC[1], 1e9, 1)])
def test_what_overflows_where_the_reference_is_finite_is_found_unless_that_asserts_smaller_numbers(does, most, passes):
    def want(x):
        assert np.abs(x).max() < most
        return np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x)))

    kernel = of_lines("x, y", "i = cuda.grid(1)", does)
    x = np.random.default_rng(3).standard_normal(64).astype(np.float32)
    for args in ((x, 0 * x), lambda: (x, 0 * x)):
        verdict = check(kernel, want=want, args=args, grid=1, block=64)
        assert verdict.passed == passes, str(verdict)
        assert passes or "numbers up to 1,000: not finite" in str(verdict.findings[0])


def test_far_numbers_that_are_no_indices_are_no_hazard():
    table, x = np.arange(9, dtype=np.float32), np.random.default_rng(3).uniform(0, 9, 64).astype(np.float32)
    kernel = of_lines("x, table, y", "y[cuda.grid(1)] = table[int(x[cuda.grid(1)])]")
    how = {"want": lambda x, table: table[np.minimum(x, 8).astype(int)], "grid": 1, "block": 64}
    assert check(kernel, args=(x, table, 0 * x), **how).passed
    with pytest.raises(CheckError, match="args raises KeyError"):
        check(kernel, args=lambda n=9: {}[n], **how)


def test_a_number_that_is_written_into_the_kernel_is_found_and_one_that_the_reference_does_not_read_stays():
    x = np.random.default_rng(5).standard_normal(64).astype(np.float32)
    for does, passes in (("y[i] = x[i] + 3", False), ("y[i] = x[i] + b", True)):
        for b in (3.0, np.float32(3)):
            made = of_lines("x, b, y", "i = cuda.grid(1)", does)
            assert check(made, want=lambda x, b: x + 3 * (b / 3), args=(x, b, 0 * x), grid=1, block=64).passed == passes
    many = of_lines("x, inverse, y", "y[cuda.grid(1)] = x[cuda.grid(1)] * inverse")
    assert check(many, want=lambda x: x / x.size, args=(x, 1 / 64, 0 * x), grid=1, block=64).passed


def test_an_input_of_one_value_is_named():
    x, w = np.ones(64, np.int32), np.full(1, 2, np.int32)
    turned = of_lines("x, w, y", "y[cuda.grid(1)] = x[63 - cuda.grid(1)] * w[0]")
    verdict = check(turned, want=lambda x, w: x * w, args=(x, w, 0 * x), grid=1, block=64)
    assert verdict.passed and verdict.notes[0] == "x has one value: it cannot tell x[i] from x[j]"
    assert verdict.notes[1].endswith("others of the same shapes: the reference reads no array that may have them")


NUMBERS = {
    "random": lambda draw, n: draw.standard_normal(n),
    "in order": lambda draw, n: np.sort(draw.standard_normal(n)),
    "counted": lambda _, n: np.arange(n),
    "alike": lambda _, n: np.full(n, 3),
    "a mask": lambda draw, n: draw.integers(0, 2, n),
}
RIGHT = {  # a body, its reference, and whole numbers beside x that it needs to be valid
    "y[i] = x[k[i]]": (lambda x, k: x[k], lambda draw, n: draw.integers(0, n, n)),
    "y[k[i]] = x[i]": (lambda x, k, y: y.__setitem__(k, x), lambda draw, n: draw.permutation(n)),
    "for j in range(k.size):\n    if k[j] <= i:\n        y[i] = x[0] * k[j]": (  # searches what is in order
        lambda x, k: x[0] * k[np.searchsorted(k, np.arange(len(k)), "right") - 1],
        lambda _, n: 4 * np.arange(n),
    ),
    "y[i] += x[i] * k[i] + 1": (lambda x, k, y: np.add(y, x * k + 1, out=y), lambda draw, n: draw.integers(-9, 9, n)),
    "y[i] = 0\nfor j in range(k[i], k[i + 1]):\n    y[i] += x[j]": (
        lambda x, k: np.array([x[k[i] : k[i + 1]].sum() for i in range(len(k) - 1)], x.dtype),
        lambda draw, n: np.sort(draw.integers(0, n + 1, n + 1)),
    ),
}


@given(st.sampled_from(list(RIGHT)), st.sampled_from(list(NUMBERS)), st.integers(1, 70), st.sampled_from(["f4", "f8"]))
@settings(max_examples=60, deadline=None)
def test_right_kernels_are_right_with_others_and_indices_stay_valid(does, how, n, kind):
    draw, (want, whole) = np.random.default_rng(n), RIGHT[does]
    made = of_lines("x, k, y, n", "i = cuda.grid(1)", "if i < n:", textwrap.indent(does, "    "))
    args = NUMBERS[how](draw, n).astype(kind), np.array(whole(draw, n), "i4", ndmin=1), np.zeros(n, kind), n
    verdict = check(made, want=want, args=args, grid=-(-n // 32), block=32).raise_if_wrong()
    assert how != "random" or n < 9 or "others of the same shapes" in verdict.tried


def test_others_that_the_reference_does_not_bear_or_not_read_are_not_tried():
    def want(x):
        assert x.max() == 31, "whole"
        return np.full(32, x.max())

    x = counted()
    verdict = check(of_lines("x, y", "y[cuda.grid(1)] = x[31]"), want=want, args=(x, 0 * x), grid=1, block=32)
    assert verdict.passed and verdict.tried == ("your numbers",)
    assert "others of the same shapes: the reference raises AssertionError: whole" in verdict.notes[0]
    made = of_lines("x, w, y", "i = cuda.grid(1)", "y[i] = x[i] * w[i]")
    verdict = check(made, want=lambda x, w: x * counted(), args=(x, x, 0 * x), grid=1, block=32)
    assert verdict.passed and len(verdict.tried) == 1  # w may hang on x


def test_arrays_and_a_grid_of_n_are_tried_in_several_sizes():
    verdict = sized("y[i] = 2 * x[i]", args=drawn())
    tried = "n = 1; n = 31; n = 32; n = 33; n = 100; n = 70; n = 70, others of the same shapes"
    assert verdict.passed and verdict.notes == (f"right at {tried}",)
    verdict = sized("y[i] = 2 * x[i] if n != 33 else x[i]", args=drawn())
    assert verdict.subject == "made at n = 33" and verdict.notes[1] == "wrong at n = 33"


def test_a_reference_over_whole_numbers_meets_no_numbers_that_it_cannot_bear():
    """Counts as sizes and as loops' ends: with 0x55555555 in them it would take gigabytes, or not end."""
    seen = []

    down = of_lines("counts, y", "i = cuda.grid(1)", "y[i] = 2 * counts[i]", "counts[i] -= 1")

    def want(counts, y):
        seen.append(counts.max())
        assert counts.max() < 1000
        y[:] = [sum(2 for _ in range(one)) for one in counts]
        counts -= 1

    counts = np.arange(1, 33, dtype=np.int32)
    verdict = check(down, want=want, args=(counts, np.zeros(32, np.int64)), grid=1, block=32)
    assert verdict.passed and verdict.outputs == ("counts", "y"), str(verdict)
    assert len(seen) >= 2 and max(seen) <= 32
    right = wanted(want, (counts, np.zeros(32, np.int64)))
    assert [one.overwritten for one in right.values()] == [False, True]


def drawn(n=70):
    return np.random.default_rng().standard_normal(n).astype(np.float32), np.zeros(n, np.float32), n


def sized(does, args=drawn, want=lambda x: 2 * x, grid=lambda n: -(-n // 32), **how):
    made = of_lines("x, y, n", "i = cuda.grid(1)", "if i < n:", f"    {does}")
    return check(made, want=want, args=args, grid=grid, block=32, **how)


@pytest.mark.parametrize(
    ("a", "b", "d", "named"),
    [
        ("g, t", "t, g", "g, t", "b read with axes 0 and 1 exchanged"),
        ("(g + 4) % 8, t", "g, t", "g, t", "a read with the halves of its rows exchanged"),
        ("g, t", "g, (t + 4) % 8", "g, t", "b read with the halves of its columns exchanged"),
        ("g, t", "g, t", "g, t ^ 1", "d stored with neighbours exchanged along axis 1"),
        ("g, t", "g, t", "g // 2 + g % 2 * 4, t", "d stored with its rows in the order 0, 2, 4, 6, …"),
    ],
)
def test_a_matrix_in_another_order_is_named(a, b, d, named):
    summed = f"    total += a[{a}] * b[{b.replace('g', 'h')}]"
    head = "g, h = cuda.grid(2)", "total = float32(0)", "for t in range(8):"
    made = of_lines("a, b, d", *head, summed, "t = h", f"d[{d}] = total")
    a, b = np.random.default_rng(3).normal(size=(2, 8, 8)).astype(np.float32)
    verdict = check(made, want=lambda a, b: a @ b.T, args=(a, b, np.zeros((8, 8), np.float32)), grid=1, block=(8, 8))
    assert not verdict.passed and named in str(verdict)


@pytest.mark.parametrize(
    ("tap", "named"),
    [
        ("w[4 - j, 0]", "as w read with the last first along axis 0"),
        ("w[j - 1, 0] if j > 0 else float32(0)", "as w read with one before along axis 0"),
        ("w[j, 0] if j > 0 else float32(0)", "w read with the first left out along axis 0"),
        ("w[4 - j, 1]", "w read with the last first along axes 0 and 1"),
    ],
)
def test_a_filter_read_backwards_or_off_its_place_is_named(tap, named):
    head, loop = ("t = cuda.grid(1)", "total = float32(0)"), "for j in range(5):"
    made = of_lines("x, w, y", *head, loop, f"    if t >= j: total += ({tap}) * x[t - j]", "y[t] = total")
    x, w = np.random.default_rng(3).integers(1, 9, 32).astype("f4"), np.arange(1, 11, dtype="f4").reshape(5, 2)

    def want(x, w):
        return np.convolve(x, w[:, 0])[:32]

    verdict = check(made, want=want, args=(x, w, 0 * x), grid=1, block=32)
    assert not verdict.passed and named in str(verdict)


FRAGMENTS = """
g, t = cuda.threadIdx.x // 4, cuda.threadIdx.x % 4
c0 = c1 = c2 = c3 = float32(0)
for k in range(0, a.shape[1], 8):
    a0, a1, a2, a3 = a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4]
    b0, b1 = b[g, k + t], b[g, k + t + 4]
    c0, c1, c2, c3 = multiply(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)
d[g, 2 * t], d[g, 2 * t + 1], d[g + 8, 2 * t], d[g + 8, 2 * t + 1] = c0, c1, c2, c3
"""


@simulated
@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("g, t =", "t, g =", "exchanged"),
        ("b[g, k + t], b[g, k + t + 4]", "b[t, k + g], b[t, k + g + 4]", "exchanged in indices of b"),
        ("d[g, 2 * t], d[g, 2 * t + 1]", "d[t, 2 * g], d[t, 2 * g + 1]", ""),
        ("cuda.threadIdx.x // 4, cuda.threadIdx.x % 4", "cuda.threadIdx.x % 4, cuda.threadIdx.x // 4", "exchanged"),
    ],
)
def test_a_fragment_with_g_and_t_exchanged_is_named(old, new, named):
    text = "def made(a, b, d):\n" + textwrap.indent(FRAGMENTS.replace(old, new), "    ")
    made = cuda.jit(loaded(text, cuda=cuda, float32=float32, multiply=ptx.mma_tf32)["made"])
    a, b = np.split(np.random.default_rng(3).integers(-8, 9, (24, 24)).astype("f4"), [16])
    verdict = check(made, want=lambda a, b: a @ b.T, args=(a, b, np.zeros((16, 8), "f4")), grid=1, block=32)
    with pytest.raises(tools.Wrong, match="out of bounds") as wrong:
        tools.launched(made, 1, 32, a, b, tools.poisoned(16, 8))
    assert (f"everything is right with g and t {named}" in str(verdict)) == bool(named), str(verdict)
    assert (f"no such index with g and t {named}:" in wrong.value.hints[0]) == bool(named)


@simulated
@pytest.mark.parametrize("name", "gtn")
def test_a_kernel_that_cannot_run_with_names_exchanged_is_told_its_own_mistake(name):
    text = f"def made(x, y):\n    b, {name} = cuda.grid(1) // 4, cuda.grid(1) % 4\n    y[b, {name}] = x[{name}, b]\n"
    made = cuda.jit(loaded(text, cuda=cuda)["made"])
    with pytest.raises(tools.Wrong, match="out of bounds: x"):
        tools.launched(made, 1, 32, np.ones((4, 7), "f4"), tools.poisoned(8, 4))
    args = np.ones((4, 8), "f4"), np.zeros((8, 4), "f4")
    verdict = check(made, want=lambda x: 2 * x.T, args=args, grid=1, block=32)
    assert "exchanged" not in str(verdict) and "not defined" not in str(verdict) and not verdict.passed


@pytest.mark.parametrize(("side", "named"), [(4, "each 4 × 4 of axes 0 and 1 trans"), (8, "axes 0 and 1 exchanged")])
def test_what_a_block_keeps_transposed_is_named(side, named):
    place = f"i - i % {side} + j % {side}, j - j % {side} + i % {side}"
    kept = of_lines("x, y", "i, j, f = cuda.grid(3)", f"y[i, j, f] = x[{place}, f]")
    x, y = np.random.default_rng(3).normal(size=(8, 8, 2)).astype(np.float32), np.zeros((8, 8, 2), np.float32)
    assert f"y stored with {named}" in str(check(kept, want=lambda x: x.copy(), args=(x, y), grid=1, block=(8, 8, 2)))


@pytest.mark.parametrize("want", [lambda x: 2 * x, lambda x, y, n: (x + x,), lambda x, y: np.add(x, x, y)])
def test_a_reference_may_return_its_result_and_sizes_are_tried_by_themselves(want):
    verdict = sized("y[i] = 2 * x[i]", want=want).raise_if_wrong()
    assert verdict.size == 1 + 31 + 32 + 33 + 100 + 2 * 70 and verdict.outputs == ("y",)
    assert verdict.notes == ("right at n = 1; n = 31; n = 32; n = 33; n = 100; n = 70; n = 70, drawn again",)
    assert verdict.hints == () and verdict.hint() == "Nothing is wrong."


def test_two_results_go_to_the_last_arrays_that_are_not_read():
    tile = "tile = cuda.shared.array(0, float32)", "tile[i] = x[i]", "cuda.syncthreads()"
    last = "s[i], d[i] = tile[31 - i] * scale, x[i] - y[i]"
    both, (x, y) = of_lines("x, s, d, y, scale", "i = cuda.grid(1)", *tile, last), X[:2, :32]
    how = {"want": lambda x, s, d, y, scale: (x[::-1] * scale, x - y), "grid": 1, "block": 32, "shared_bytes": 128}
    verdict = check(both, args=(x, 0 * x, 0 * x, y, 3), **how).raise_if_wrong()
    assert verdict.outputs == ("s", "d") and verdict.size == 64


def test_a_size_that_is_wrong_is_named_and_those_beyond_a_fixed_grid_are_not_tried():
    verdict = sized("y[i] = 2 * x[i] if n != 33 else x[i]")
    assert verdict.subject == "made at n = 33"
    right = "right at n = 1; n = 31; n = 32; n = 100; n = 70; n = 70, drawn again"
    assert verdict.notes[:2] == (right, "wrong at n = 33")
    assert verdict.hint(2) == "Wrong at n = 33." and verdict.hint(9).startswith("Where to look: ")
    assert sized("y[i] = 2 * x[i]", grid=3).notes[0].startswith("right at n = 1; n = 31; n = 32; n = 33; n = 70; ")


def test_several_sizes_are_tried_with_each_other():
    guard = "if i < c.shape[0] and j < c.shape[0]:"  # the columns, where there are more of them than rows
    product = of_lines("a, b, c", "i, j = cuda.grid(2)", guard, "    c[i, j] = a[i] * b[j]")

    def args(m=16, n=16):
        a, b = (np.random.default_rng().random(size).astype(np.float32) for size in (m, n))
        return a, b, np.zeros((m, n), np.float32)

    verdict = check(product, want=np.outer, args=args, grid=lambda m, n: (-(-m // 16), -(-n // 16)), block=(16, 16))
    assert verdict.notes[-1].startswith("wrong at m = 1, n = 32; m = 31, n = 33")
    assert verdict.findings[0].text.startswith("31 of 32 elements of c are not written")


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        ("y[i] = max(2 * x[i], float32(-1e9))", "large"),
        ("y[i] = 2 * x[i] + float32(1e-13)", "small"),
        ("y[i] = 2 * x[i] if x[i] * x[i] < 1e38 else float32(0)", "infinite"),
        ("y[i] = 2 * x[i] if x[i] == x[i] else float32(0)", "NaN"),
        ("y[i] = 2 * x[i] if x[i] else float32(3)", "zeros"),
    ],
)
def test_extreme_values_are_tried_on_request(does, kind):
    assert sized("y[i] = 2 * x[i]", values=kind).passed and sized(does).passed
    assert sized(does, values=["ends", kind]).notes[-1] == f"wrong at n = 70, {kind}"
    with pytest.raises(CheckError, match="values='huge': known are NaN, "):
        sized(does, values="huge")


def test_sizes_that_the_arguments_are_not_made_for_are_left_out():
    def args(n=64):
        if n % 32:
            raise ValueError("whole warps only")
        return drawn(n)

    notes = sized("y[i] = 2 * x[i]", args=args).notes
    assert notes[0].startswith("right at n = 32; n = 64; ") and "not tried at n = 31: whole warps only" in notes
    with pytest.raises(CheckError, match="args raises ValueError: none"):
        sized("y[i] = 2 * x[i]", args=lambda n: (_ for _ in ()).throw(ValueError("none")))
