"""Wrong answers to the exercises of lesson 40: each is told what is wrong."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

IDLE = """
busy, until = 0.0, 0.0
for start, end in {spans}:
    busy += {new}
    until = {until}
return wall - busy
"""
FINISHED = """
copied, done = 0.0, []
for i in range(len(copies)):
    own = {own}
    copied = {copy}
    before = done[i - 1] if i else 0.0
    done.append({kernel})
return done[-1] if done else 0.0
"""
BLOCK = """
at = cuda.grid(1)
if at < y.size:
    q = at % y.shape[2]
    p = at // y.shape[2] % y.shape[1]
    c = at // (y.shape[2] * y.shape[1])
    largest = {start}
    for r in range(2 * p, 2 * p + 2):
        for s in range(2 * q, 2 * q + 2):
            z = {bias}
            for i in range(3):
                for j in range(3):
                    h = r - 1 + i
                    v = s - 1 + j
                    if 0 <= h < x.shape[1] and {inside}:
                        z += w[c, i, j] * x[c, h, v]
            largest = max(largest, z)
    y[c, p, q] = largest
"""


def idle(spans="sorted([*kernels, *copies])", new="max(0.0, end - max(start, until))", until="max(until, end)"):
    return IDLE.format(spans=spans, new=new, until=until)


def finished(own="done[i - streams] if i >= streams else 0.0", copy="max(copied, own) + copies[i]",
             kernel="max(copied, before) + kernels[i]"):  # fmt: skip
    return FINISHED.format(own=own, copy=copy, kernel=kernel)


def block(start="float32(0)", bias="b[c]", inside="0 <= v < x.shape[2]"):
    return BLOCK.format(start=start, bias=bias, inside=inside)


WRONG = [
    ("40_1", "a sum", idle(new="end - start"), r"What overlaps was counted twice"),
    (
        "40_1",
        "kernels alone",
        idle(spans="sorted(kernels)"),
        r"a copy and then a kernel: you say 6 µs of 8; 3 is right",
    ),
    ("40_1", "not in order", idle(spans="[*kernels, *copies]"), r"you say"),
    ("40_1", "the last span's end", idle(until="end"), r"a short span within a long one"),
    ("40_1", "busy in place of idle", idle().replace("wall - busy", "busy"), r"nothing at all: you say 0 µs of 10"),
    ("40_2", "one after the other", "return float(sum(copies) + sum(kernels))", r"That is the sum: nothing overlaps"),
    ("40_2", "no wait for the stream", finished(own="0.0"), r"A stream's copy has to wait for the kernel before it"),
    ("40_2", "kernels side by side", finished(kernel="copied + kernels[i]"), r"you say"),
    ("40_2", "copies side by side", finished(copy="own + copies[i]"), r"you say"),
    ("40_3", "no ReLU", block(start="float32(-1000)"), r"maps of"),
    ("40_3", "no bias", block(bias="float32(0)"), r"maps of"),
    ("40_3", "the row above", block(inside="True"), r"maps of"),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"
