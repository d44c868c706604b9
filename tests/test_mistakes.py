"""What a layer's kernel gives with one mistake, and the rules that tell failing problems from others."""

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from dwlab.judge import contrast
from dwlab.judge.diagnosis import Evidence, diagnose, explain
from dwlab.judge.mistakes import carried, mistakes
from dwlab.problems import DepthwiseConv1d, decode, encode
from dwlab.problems.cases import layer_cases
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.references import allowed_error, reference

pytestmark = pytest.mark.family(0.1)  # tests/parts.py


def layers(dtype, layout):
    """One layer of each kind, with all that it can have."""
    whole = dtype == "int8"
    how = {"layout": layout, "dtype": dtype, "bias": True, "activation": "relu"}
    zeros = [{"zero_x": a, "zero_y": b} if whole else {} for a, b in ((3, -7), (-7, 5))]
    added = {"residual": True} | ({"zero_r": -11, "m_r": 0.37} if whole else {})
    dw = DepthwiseConv2d(2, 5, 7, 6, 3, 2, 1, **how, **zeros[0])
    pw = Pointwise(2, 5, 6, dw.P, dw.Q, **how, **zeros[1], **added)
    first = Pointwise(2, 4, 5, 5, 6, **how, **zeros[0])
    second = DepthwiseConv2d(2, 5, 5, 6, 3, **how, **zeros[1])
    more = Pointwise(2, 5, 7, 5, 6, **how, **zeros[1], **added)
    return {"dw": dw, "pw": pw, "dwpw": Fused(dw, pw), "pwdw": Fused(first, second), "pwpw": Fused(first, more)}


def judged(problem):
    inputs = problem.inputs(problem.main_path, 3)
    given = {name: decode(array, problem.dtype_of(name)) for name, array in inputs.items()}
    want, allowed = (of(problem, problem.main_path, inputs)["y"] for of in (reference, allowed_error))
    return given, want, allowed


def said(problem, got, given, want, allowed, path=None):
    """What is wrong with an output that is written everywhere."""
    return diagnose(Evidence(problem, path or problem.main_path, given, got, want, allowed, np.zeros(got.shape, bool)))


def stored(output, problem):
    """As a kernel stores it: rounded to the storage type."""
    if problem.dtype == "int8":
        return np.clip(output, -128, 127).astype(np.int8)
    return decode(encode(output.astype(np.float32), problem.dtype), problem.dtype)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", ["dw", "pw", "dwpw", "pwdw", "pwpw"])
def test_every_mistake_is_recognised_in_its_own_output(kind, dtype, layout):
    problem = layers(dtype, layout)[kind]
    given, want, allowed = judged(problem)
    every = [one for one in mistakes(problem, given, want, want) if not np.isnan(one.output).any()]
    assert len(every) > 60
    chosen = every[len(layout) % 3 :: 9] if kind in ("dw", "pw") else every[::19]
    for one in chosen:
        got = stored(one.output, problem)
        # A mistake that is hardly one here, as a bias that is nearly the other's, says too little.
        if np.mean(np.abs(got.astype(np.float64) - want) > 8 * allowed + (dtype == "int8")) < 0.25:
            continue
        patterns = [finding.pattern for fault in said(problem, got, given, want, allowed) for finding in fault]
        assert one.pattern in patterns, f"{one.pattern}: {one.text}; said {patterns}"


def test_a_stride_that_is_ignored_is_named():
    problem = layers("float32", "NCHW")["dw"]
    given, want, _ = judged(problem)
    texts = [one.text for one in mistakes(problem, given, want, want)]
    assert "the stride of columns is 1 where it should be 2" in texts


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["dwpw", "pwdw", "pwpw"])
def test_activations_of_two_layers_that_are_exchanged_are_named_first(kind, dtype):
    pair = layers(dtype, "NHWC")[kind]
    problem = replace(pair, second=replace(pair.second, activation="none"))
    given, want, allowed = judged(problem)
    (one,) = (one for one in mistakes(problem, given, want, want) if one.pattern == "activations exchanged")
    assert explain(said(problem, stored(one.output, problem), given, want, allowed))[0].pattern == one.pattern


@pytest.mark.parametrize("op", ["depthwise1d", "pointwise"])
def test_a_sum_kept_from_one_output_of_a_thread_to_its_next_is_named(op):
    problem = Pointwise(2, 3, 8, 5, 7) if op == "pointwise" else DepthwiseConv1d(3, 4, 29, 5, "same")
    given, want, allowed = judged(problem)
    got = carried(want, 64).astype(np.float32)
    assert (got.ravel()[:64] == want.ravel()[:64].astype(np.float32)).all()
    first = explain(said(problem, got, given, want, allowed))[0]
    assert first.pattern == "accumulator not reset" and "stride of 64" in first.text


@pytest.mark.parametrize("path", ["forward", "input_grad"])
def test_taps_of_rows_that_lie_two_apart_are_named(path):
    problem = DepthwiseConv1d(2, 3, 17, 4, 1)
    inputs = problem.inputs(path, 3)
    x, w, got = inputs["x" if path == "forward" else "dy"], inputs["w"], np.zeros((2, 3, 17), np.float32)
    for t, j in itertools.product(range(17), range(4)):
        at = t + problem.shift - 2 * j if path == "forward" else t - problem.shift + 2 * j
        if 0 <= at < 17:
            got[..., t] += x[..., at] * w[:, j]
    (want,), (allowed,) = (of(problem, path, inputs).values() for of in (reference, allowed_error))
    assert explain(said(problem, got, inputs, want, allowed, path))[0].pattern == "dilated taps"


@pytest.mark.parametrize("H, W", [(6, 9), (9, 6)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_sides_that_are_tested_against_each_other_are_named(H, W, layout):
    """Of the three tests that may be wrong the one that is: over a wide and a high map together."""
    problems = [DepthwiseConv2d(1, 3, *sides, 3, layout=layout) for sides in ((H, W), (W, H))]
    for text in ("rows are tested against the map's width", "width and columns against its height"):
        faults = []
        for problem in problems:
            given, want, allowed = judged(problem)
            one = next(one for one in mistakes(problem, given, want, want) if one.text.endswith(text))
            faults += said(problem, stored(one.output, problem), given, want, allowed)
        assert explain(faults)[0].text.split(";")[0].endswith(text)


def test_the_right_output_is_no_mistake():
    for dtype in ("float32", "bfloat16", "int8"):
        for problem in layers(dtype, "NHWC").values():
            given, want, allowed = judged(problem)
            assert said(problem, stored(want, problem), given, want, allowed) == ()


TRUE_RULES = {
    "residual": lambda p: p.residual,
    "bias": lambda p: p.bias,
    "activation": lambda p: p.activation == "relu6",
    "layout": lambda p: p.layout == "NHWC",
    "N > 1": lambda p: p.N > 1,
    "stride": lambda p: p.stride > 1,
    "H is not W": lambda p: p.H != p.W,
    "K > 3": lambda p: p.K > 3,
    "bias and the layout": lambda p: p.bias and p.layout == "NHWC",
    "C is no multiple": lambda p: p.C % 8 != 0,
}


@pytest.mark.parametrize("name", TRUE_RULES)
def test_the_rule_of_failing_problems_is_found(name):
    problems = [case.problem for case in layer_cases("depthwise2d", "forward", ("float32",))]
    failed = [bool(TRUE_RULES[name](problem)) for problem in problems]
    rule = contrast.exact(problems, failed)
    assert [bool(rule.holds(problem)) for problem in problems] == failed
    # One failing problem less: no rule holds exactly but by accident, and none that is necessary lies about the others.
    failed[failed.index(True)] = False
    bound = contrast.necessary(problems, failed)
    assert bound is None or all(bound.holds(p) for p, bad in zip(problems, failed, strict=True) if bad)


@pytest.mark.parametrize(("op", "path"), [("depthwise2d", "forward"), ("pointwise", "forward"), ("fused", "dwpw")])
def test_problems_that_have_nothing_in_common_get_no_bound(op, path):
    """With 600 rules there is one for nearly every few problems: what holds by accident sends people the wrong way."""
    problems = [case.problem for case in layer_cases(op, path, ("float32", "float16"), 1)]
    said = 0
    for seed in range(30):
        failing = random.Random(seed).sample(range(len(problems)), 3 + seed % 5)
        said += contrast.necessary(problems, [i in failing for i in range(len(problems))]) is not None
    assert said <= 3


@pytest.mark.parametrize(
    ("holds", "words"),
    [
        (lambda p: p.chooses and p.form.V < p.F, "several groups of V filters"),
        (lambda p: p.terms > 16, "more than one word of places"),
        (lambda p: p.C % p.form.M > 0, "last group of M channels"),
    ],
)
def test_the_pattern_of_sparse_filters_is_a_rule(holds, words):
    problems = [case.problem for case in layer_cases("sparse", "forward", ("float16",))]
    assert words in contrast.exact(problems, list(map(holds, problems))).words


def test_nothing_is_said_where_all_fail_or_few_do():
    problems = [case.problem for case in layer_cases("pointwise", "forward", ("float32",))]
    assert contrast.exact(problems, [True] * len(problems)) is None
    assert contrast.exact(problems, [False] * len(problems)) is None
    one = [i == 5 for i in range(len(problems))]
    assert contrast.exact(problems, one) is None and contrast.necessary(problems, one) is None


def test_a_bound_that_only_large_problems_exceed_is_no_rule():
    """Small problems pass and large ones fail, in whatever is large: H > 1 would be an accident of the list."""
    sizes = [(1, 1, 8, 1), (1, 1, 8, 3), (1, 1, 8, 2), *((2, 3, 8 * k, k + 2) for k in range(2, 9))]
    problems = [DepthwiseConv1d(*one) for one in sizes]
    rule = contrast.exact(problems, [p.H > 1 for p in problems])
    assert rule is None or not rule.size


def test_inputs_that_are_not_plain_are_a_rule_of_their_own():
    problems = [case.problem for case in layer_cases("pointwise", "forward", ("float32",))][:20]
    values = ["NaN" if i % 4 == 0 else "plain" for i in range(20)]
    assert "NaN" in contrast.exact(problems, [what == "NaN" for what in values], values).words
