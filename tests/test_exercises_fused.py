"""Wrong answers to the exercises of lesson 32: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import ROOT, answered

from dwlab.judge import exercises

pytestmark = needs_solutions

# 32_1 with what makes an element of `between`, and the barriers of a step.
TWICE = """
between = cuda.shared.array((STEP, PIXELS), float32)
sums = cuda.local.array(4, float32)
lane, row = cuda.threadIdx.x, cuda.threadIdx.y
m = cuda.blockIdx.x * PIXELS + lane
for k in range(4):
    sums[k] = 0
for f0 in range(0, w1.shape[0], STEP):
    for i in {mine}:
        total = float32(0)
        if m < x.shape[1]:
            total = {start}
            for c in range(x.shape[0]):
                total += w1[f0 + i, c] * x[c, m]
        between[i, lane] = {made}
    {first}
    for i in range(STEP):
        for k in range(4):
            sums[k] += w2[4 * row + k, f0 + i] * between[i, lane]
    {second}
if {stored}:
    for k in range(4):
        y[4 * row + k, m] = sums[k]
"""
RIGHT = {
    "mine": "range(row, STEP, ROWS)",
    "start": "b1[f0 + i]",
    "made": "max(total, float32(0))",
    "first": "cuda.syncthreads()",
    "second": "cuda.syncthreads()",
    "stored": "m < x.shape[1]",
}

# All filters at once: right, but not in steps.
AT_ONCE = """
between = cuda.shared.array((320, PIXELS), float32)
lane, row = cuda.threadIdx.x, cuda.threadIdx.y
m = cuda.blockIdx.x * PIXELS + lane
if m < x.shape[1]:
    for i in range(row, w1.shape[0], ROWS):
        total = b1[i]
        for c in range(x.shape[0]):
            total += w1[i, c] * x[c, m]
        between[i, lane] = max(total, float32(0))
cuda.syncthreads()
if m < x.shape[1]:
    for k in range(4):
        total = float32(0)
        for i in range(w1.shape[0]):
            total += w2[4 * row + k, i] * between[i, lane]
        y[4 * row + k, m] = total
"""

# No shared memory: every row of threads computes all of `between` for itself.
ALONE = """
lane, row = cuda.threadIdx.x, cuda.threadIdx.y
m = cuda.blockIdx.x * PIXELS + lane
if m < x.shape[1]:
    sums = cuda.local.array(4, float32)
    for k in range(4):
        sums[k] = 0
    for i in range(w1.shape[0]):
        total = b1[i]
        for c in range(x.shape[0]):
            total += w1[i, c] * x[c, m]
        for k in range(4):
            sums[k] += w2[4 * row + k, i] * max(total, float32(0))
    for k in range(4):
        y[4 * row + k, m] = sums[k]
"""

NUMBERS = {
    "work_tiles": "15488",
    "work_stride_2": "26912",
    "shared_map": "12800",
    "filters_equal": "128",
    "times_depthwise": "8",
    "blocks": "16",
}


def twice(**changed):
    return TWICE.format(**RIGHT | changed)


def numbers(**changed):
    return "\n".join(f"{name} = {value}" for name, value in (NUMBERS | changed).items())


FIRST = r"C=1 F=16 M=1: element \[\d+, 0\] is"
WRONG = [
    ("32_1", "no ReLU between", twice(made="total"), FIRST),
    ("32_1", "no bias between", twice(start="float32(0)"), FIRST),
    ("32_1", "no barrier between the parts", twice(first="pass"), r"[Rr]ace: .* between element"),
    ("32_1", "no barrier before the next step", twice(second="pass"), r"[Rr]ace: .* between element"),
    ("32_1", "a pixel that does not exist", twice(stored="True"), r"[Oo]ut of bounds"),
    ("32_1", "a float64 sum", twice(made="max(total * 1.0, 0.0)"), r"float64 operations"),
    ("32_1", "half of a step", twice(mine="range(row, ROWS, ROWS)"), r"uninitialised: .* reads between element"),
    ("32_1", "all filters at once", AT_ONCE, r"a block has 40,960 bytes of shared memory; 2,048 hold 16 filters"),
    ("32_1", "computed by every row", ALONE, r"65,536 loads of w1.*; 8,192 are enough"),
    ("32_1", "the same in shared memory", twice(mine="range(STEP)"), r"two writers: .* both write between element"),
    ("32_2", "no halo", numbers(work_tiles="4 * 8 * 400"), r"`work_tiles`: you predicted 12,800 .*; more were counted"),
    ("32_2", "outside too", numbers(work_tiles="4 * 8 * 24**2"), r"`work_tiles`: .*; fewer were counted"),
    ("32_2", "outside too, stride 2", numbers(work_stride_2="4 * 8 * 30**2"), r"`work_stride_2`: .*; fewer were"),
    ("32_2", "with a halo", numbers(shared_map="8 * 22 * 22 * 4"), r"`shared_map`: you predicted 15,488 bytes; fewer"),
    ("32_2", "elements", numbers(shared_map="3200"), r"`shared_map`: you predicted 3,200 bytes; more"),
    ("32_2", "saved once", numbers(filters_equal="64"), r"`filters_equal`: you predicted 64 filters; more"),
    ("32_2", "once", numbers(times_depthwise="1"), r"`times_depthwise`: you predicted 1 time; more"),
    ("32_2", "parts of tiles left out", numbers(blocks="4"), r"`blocks`: you predicted 4 blocks; more"),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("total = b1[f0 + i]", "total = float32(0)", "without the bias"),
        ("max(total, float32(0))", "total", "without the ReLU"),
        ("range(0, w1.shape[0], STEP)", "range(0, STEP, STEP)", "first 16 filters"),
        ("w2[4 * row + k, f0 + i]", "w2[4 * row + k, i]", "same 16 columns of w2"),
        ("w2[4 * row + k, f0 + i]", "w2[row + 8 * k, f0 + i]", "outputs are exchanged"),
        ("y[4 * row + k, m] = sums[k]", "y[4 * row + k, m] = max(sums[k], float32(0))", "second ReLU"),
        ("y[4 * row + k, m]", "y[8 * k + row, m]", "stored 8 outputs apart"),
        ("b1[f0 + i]", "b1[i]", "same 16 biases"),
        ("w1[f0 + i, c]", "w1[i, c]", "same 16 rows of w1"),
    ],
)
def test_a_typical_mistake_is_named_by_the_first_hint(tmp_path, old, new, hint):
    ours = (ROOT / "solutions" / "32_1_pointwise_twice.py").read_text(encoding="utf-8")
    text = ours.replace(old, new, 1)
    assert text != ours
    path = tmp_path / "32_1_answer.py"
    path.write_text(text, encoding="utf-8")
    found = exercises._judge(path, exercises.known()["32_1"])
    assert found["status"] == "wrong" and hint in found["hints"][0], found
