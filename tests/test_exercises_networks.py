"""Wrong answers to the exercises of lesson 35: each is told what is wrong, in numbers."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

# 35_1 with what may be forgotten in it.
FOLD = """
s = {gamma} / {root}
own = {own}
filters = {filters}
return {made}
"""
RIGHT = {
    "gamma": 'gamma.astype("f8")',
    "root": 'np.sqrt(var.astype("f8") + epsilon)',
    "own": 'np.zeros(len(w)) if b is None else b.astype("f8")',
    "filters": "w * s.reshape(-1, *[1] * (w.ndim - 1))",
    "made": 'filters.astype("f4"), ((own - mean) * s + beta).astype("f4")',
}


def fold(**changed):
    return FOLD.format(**(RIGHT | changed))


NUMBERS = {
    "depthwise_part": "0.26", "limit": "150 / 111", "fused_us": "132", "pointwise_us": "16 / 13",
    "one_by_one_us": "305", "one_by_one_fused_us": "215", "millijoules": "45", "energy_gain": "45000 / (320 * 132)",
}  # fmt: skip


def numbers(**changed):
    return "\n".join(f"{name} = {value}" for name, value in (NUMBERS | changed).items())


WRONG = [
    ("35_1", "no epsilon", fold(root='np.sqrt(var.astype("f8"))'), r"variance is 0: channel \d is off by"),
    ("35_1", "no root", fold(root="(var + epsilon)"), r"a pointwise layer without a bias: channel \d is off by"),
    ("35_1", "gamma's size", fold(gamma="np.abs(gamma)"), r"channel \d is off by .*gamma -"),
    ("35_1", "the layer's own bias left as it is",
     fold(made='filters.astype("f4"), (own + beta - mean * s).astype("f4")'),
     r"a depthwise layer with a bias: channel \d is off by"),
    ("35_1", "the layer's own bias forgotten", fold(own="np.zeros(len(w))"), r"a depthwise layer with a bias: channel"),
    ("35_1", "no bias where there was none",
     fold(made='filters.astype("f4"), (np.zeros(len(w), "f4") if b is None else ((b - mean) * s + beta).astype("f4"))'),
     r"a pointwise layer without a bias: channel \d is off by"),
    ("35_1", "one channel's factor for all", fold(filters="w * (s[:1] if w.ndim > 2 else s[:, None])"),
     r"a depthwise layer without a bias: channel \d is off by"),
    ("35_1", "in place", "s = (gamma / np.sqrt(var + epsilon)).astype('f4')\nw *= s.reshape(-1, *[1] * (w.ndim - 1))\n"
     "return w, ((0 if b is None else b) - mean) * s + beta", r"`w` was changed; make a new array"),
    ("35_1", "in float64", fold(made="filters, (own - mean) * s + beta"), r"filters are float64; float32 is needed"),
    ("35_1", "the bias in float32", fold(own="np.zeros(len(w)) if b is None else b"), r"filters or bias are off by"),
    ("35_1", "a filter alone", fold(made='filters.astype("f4")'), r"it returns ndarray; return \(filters, bias\)"),
    ("35_1", "a column of biases",
     fold(made='filters.astype("f4"), ((own - mean) * s + beta).astype("f4")[:, None]'),
     r"bias of shape \(7, 1\); \(7,\) is needed"),
    ("37_1", "one of 26", numbers(depthwise_part="39 / 130"), r"`depthwise_part`: you predicted 0.3 .*; .* high"),
    ("37_1", "the others forgotten", numbers(limit="130 / 91"), r"`limit`: you predicted 1.42857 .*; .* high"),
    ("37_1", "all pairs fused", numbers(fused_us="13 * 8 + 20"), r"`fused_us`: you predicted 124 µs; .* low"),
    ("37_1", "half of 7", numbers(pointwise_us="3.5"), r"`pointwise_us`: you predicted 3.5 µs; .* high"),
    ("37_1", "starts and kernels", numbers(one_by_one_us="30 * 10 + 150"),
     r"`one_by_one_us`: you predicted 450 µs; .* high"),
    ("37_1", "the last kernel", numbers(one_by_one_us="300"), r"`one_by_one_us`: you predicted 300 µs; .* low"),
    ("37_1", "a start more", numbers(one_by_one_fused_us="225"), r"`one_by_one_fused_us`: you predicted 225 .* high"),
    ("37_1", "J", numbers(millijoules="0.045"), r"`millijoules`: you predicted 0.045 mJ; .* low"),
    ("37_1", "the same power", numbers(energy_gain="150 / 132"), r"`energy_gain`: you predicted 1.13636 .* high"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"


@pytest.mark.parametrize(("exercise", "code"), [("35_1", fold()), ("37_1", numbers())])
def test_other_right_answers_pass(tmp_path, exercise, code):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "passed", found["message"]
