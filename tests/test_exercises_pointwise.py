"""Wrong answers to the exercises of lesson 31: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

# 31_1 with its loop over the channels, and the tests at the last filters and at the last pixels.
FOUR = """
sums = cuda.local.array(FILTERS, float32)
m = cuda.blockIdx.x * 32 + cuda.threadIdx.x
f0 = cuda.blockIdx.y * FILTERS
if {inside}:
    for k in range(FILTERS):
        sums[k] = 0
    {loop}
    for k in range(FILTERS):
        if {exists}:
            y[f0 + k, m] = sums[k]
"""
LOOP = """for c in range(x.shape[0]):
        value = x[c, m]
        for k in range(FILTERS):
            if f0 + k < w.shape[0]:
                sums[k] += w[f0 + k, c] * value"""
APART = """for k in range(FILTERS):
        if f0 + k < w.shape[0]:
            for c in range(x.shape[0]):
                sums[k] += w[f0 + k, c] * x[c, m]"""
FLOAT64 = LOOP.replace("* value", "* value * 0.5 * 2.0")
INSIDE, EXISTS = "m < x.shape[1]", "f0 + k < w.shape[0]"

# 31_3 with the operands' places and the products of a step.
THREE = """
g = cuda.threadIdx.x // 4
t = cuda.threadIdx.x % 4
c0 = c1 = c2 = c3 = float32(0)
for k in range(0, a.shape[1], 8):
    v0, v1, v2, v3 = {operand}
    u0, u1 = b[g, k + t], b[g, k + t + 4]
    h0, h1, h2, h3 = ptx.tf32(v0), ptx.tf32(v1), ptx.tf32(v2), ptx.tf32(v3)
    l0, l1, l2, l3 = ptx.tf32(v0 - h0), ptx.tf32(v1 - h1), ptx.tf32(v2 - h2), ptx.tf32(v3 - h3)
    i0, i1 = ptx.tf32(u0), ptx.tf32(u1)
    m0, m1 = ptx.tf32(u0 - i0), ptx.tf32(u1 - i1)
{products}
d[g, 2 * t] = c0
d[g, 2 * t + 1] = c1
d[g + 8, 2 * t] = c2
{last}
"""
OPERAND = "a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4]"
SWAPPED = "a[g, k + t], a[g, k + t + 4], a[g + 8, k + t], a[g + 8, k + t + 4]"
LAST = "d[g + 8, 2 * t + 1] = c3"


def products(*pairs):
    """The lines of these products, "lh" the low part of a with the high part of b."""
    left, right = {"l": "l0, l1, l2, l3", "h": "h0, h1, h2, h3"}, {"l": "m0, m1", "h": "i0, i1"}
    line = "    c0, c1, c2, c3 = ptx.mma_tf32(c0, c1, c2, c3, {}, {})"
    return "\n".join(line.format(left[p[0]], right[p[1]]) for p in pairs)


def three(*pairs, operand=OPERAND, last=LAST):
    return THREE.format(operand=operand, products=products(*pairs), last=last)


def tiles(**changed):
    """An answer to 31_2 that is right but for these."""
    right = {"blocks": 6, "x": 141120, "w": 307200, "reads": 0.5, "lane": 14, "number": 3}
    return "\n".join(f"{name} = {value}" for name, value in (right | changed).items())


WRONG = [
    (
        "31_1",
        "x loaded for each filter",
        FOUR.format(inside=INSIDE, loop=APART, exists=EXISTS),
        r"32,768 elements of x are loaded for 32,768 products; 8,192 are enough",
    ),
    (
        "31_1",
        "no test for the last filters",
        FOUR.format(inside=INSIDE, loop=LOOP.replace("if f0 + k < w.shape[0]", "if True"), exists=EXISTS),
        r"[Oo]ut of bounds",
    ),
    (
        "31_1",
        "no test for the last pixels",
        FOUR.format(inside="m >= 0", loop=LOOP, exists=EXISTS),
        r"[Oo]ut of bounds",
    ),
    (
        "31_1",
        "whole groups of filters only",
        FOUR.format(inside=INSIDE, loop=LOOP, exists="f0 + 3 < w.shape[0]"),
        r"C=1 F=1 M=1: element \[0, 0\] was never written",
    ),
    (
        "31_1",
        "the last channel left out",
        FOUR.format(inside=INSIDE, loop=LOOP.replace("x.shape[0]", "x.shape[0] - 1"), exists=EXISTS),
        r"C=1 F=1 M=1: element \[0, 0\] is 0",
    ),
    (
        "31_1",
        "float64",
        FOUR.format(inside=INSIDE, loop=FLOAT64, exists=EXISTS),
        r"[\d,]+ float64 operations",
    ),
    ("31_2", "whole tiles only", tiles(blocks=2), r"`blocks`: you predicted 2 blocks; more were counted"),
    ("31_2", "x once", tiles(x=49 * 960), r"`x`: you predicted 47,040 elements; more were counted"),
    ("31_2", "x beyond the map", tiles(x=3 * 64 * 960), r"`x`: you predicted 184,320 elements; fewer were counted"),
    ("31_2", "filters beyond the last", tiles(w=2 * 192 * 960), r"`w`: you predicted 368,640 elements; fewer"),
    ("31_2", "two reads for each", tiles(reads=2), r"`reads`: you predicted 2 reads; fewer were counted"),
    ("31_2", "eight rows too far", tiles(lane=11 * 4 + 2), r"`lane`: you predicted 46 as its lane.*too high"),
    ("31_2", "the row's half only", tiles(number=1), r"`number`: you predicted 1 as its number.*too low"),
    ("31_2", "nothing filled in for one", tiles(w=None), r"`w` is still None"),
    ("31_3", "one product", three("hh"), r"8 channels: element \[0, 0\] is .*off by more than 2\*\*-20"),
    ("31_3", "no low part of b", three("lh", "hh"), r"off by more than 2\*\*-20"),
    ("31_3", "no low part of a", three("hl", "hh"), r"off by more than 2\*\*-20"),
    ("31_3", "four products", three("ll", "lh", "hl", "hh"), r"8 channels: 4 times ptx.mma_tf32; it takes three"),
    ("31_3", "a1 and a2 exchanged", three("lh", "hl", "hh", operand=SWAPPED), r"8 channels: .* of 128 sums are off"),
    ("31_3", "a number not stored", three("lh", "hl", "hh", last=""), r"element \[8, 1\] was never written"),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == ("unsolved" if "still" in says else "wrong"), found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"] or "still" in says, "a wrong answer gets a hint"
