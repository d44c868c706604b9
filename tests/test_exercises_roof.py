"""Wrong answers to the exercises of lessons 15 to 22: each is told what is wrong, in numbers that were counted."""

import re

import pytest
from copies import needs_solutions
from test_exercises import ROOT, answered

from dwlab.judge import exercises

pytestmark = needs_solutions

BACKWARDS = """
tile = cuda.shared.array(LENGTH, float32, 16)
lane = cuda.threadIdx.x
row = cuda.blockIdx.x
ptx.copy4_async(tile, 4 * lane, x, LENGTH * row + 4 * lane)
ptx.commit()
ptx.wait(0)
cuda.syncwarp()
a, b, c, d = ptx.load4_shared(tile, LENGTH - 4 - 4 * lane)
ptx.store4(y, LENGTH * row + 4 * lane, d, c, b, a)
"""


def backwards(old, new):
    assert BACKWARDS.count(old) == 1
    return BACKWARDS.replace(old, new)


IN_FLIGHT = r"[Rr]ace: .* while the asynchronous copy of line \d+ is still in flight"

WRONG = [
    ("16_1", "no swizzle", "return 0", r"n = 8, piece 0 of rows 0 to 7 lies in groups 0 2 4 6 0 2 4 6: 4 different"),
    (
        "16_1",
        "that of 64 for all",
        "return row % 8",
        r"n = 4, row 1: swizzle is 1, so piece 0 would lie at 1; the last of a row is piece 0",
    ),
    (
        "16_1",
        "the row modulo what is in common",
        "return row % gcd(n // 4, 8)",
        r"n = 8, piece 0 of rows 0 to 7 lies in groups 0 3 4 7 0 3 4 7: 4 different ones, not 8",
    ),
    (
        "16_1",
        "only for lengths that divide 32",
        "pieces = n // 4\nreturn row // max(1, 8 // pieces) % min(pieces, 8) if pieces & (pieces - 1) == 0 else 0",
        r"n = 24, piece 0 of rows 0 to 7",
    ),
    ("16_1", "more than a row has", "return row // (8 // gcd(n // 4, 8))", r"n = 4, row 8: swizzle is 1"),
    ("16_1", "a fraction", "return row * gcd(n // 4, 8) / 8", r"swizzle\(0, 4\) is 0\.0; it must be a whole number"),
    ("16_2", "no commit", backwards("ptx.commit()", "pass"), IN_FLIGHT),
    ("16_2", "no wait", backwards("ptx.wait(0)", "pass"), IN_FLIGHT),
    ("16_2", "a wait for all but one", backwards("ptx.wait(0)", "ptx.wait(1)"), IN_FLIGHT),
    ("16_2", "a wait before commit", backwards("ptx.commit()\nptx.wait(0)", "ptx.wait(0)\nptx.commit()"), IN_FLIGHT),
    (
        "16_2",
        "no barrier",
        backwards("cuda.syncwarp()", "pass"),
        r"[Rr]ace: .* tile element \[124\], which thread 31 of block 0 wrote .* cuda\.syncwarp",
    ),
    (
        "16_2",
        "pieces in turn, elements not",
        backwards("d, c, b, a", "a, b, c, d"),
        r"1 × 128: element \[0, 0\] is",
    ),
    (
        "16_2",
        "the first row in every block",
        backwards("x, LENGTH * row + 4 * lane", "x, 4 * lane"),
        r"2 × 128: element \[1, 0\] is",
    ),
    (
        "16_2",
        "through registers",
        backwards(
            "ptx.copy4_async(tile, 4 * lane, x, LENGTH * row + 4 * lane)\nptx.commit()\nptx.wait(0)",
            "a, b, c, d = ptx.load4(x, LENGTH * row + 4 * lane)\nptx.store4_shared(tile, 4 * lane, a, b, c, d)",
        ),
        r"0 of 8 rows come by one asynchronous copy",
    ),
    (
        "16_2",
        "one element at a time out of shared memory",
        backwards(
            "a, b, c, d = ptx.load4_shared(tile, LENGTH - 4 - 4 * lane)",
            "i = LENGTH - 4 - 4 * lane\na, b, c, d = tile[i], tile[i + 1], tile[i + 2], tile[i + 3]",
        ),
        r"8 × 128: 32 requests read shared memory, with \d+ bank conflicts; one for each row",
    ),
    (
        "16_2",
        "one element at a time into y",
        backwards(
            "ptx.store4(y, LENGTH * row + 4 * lane, d, c, b, a)",
            "y[row, 4 * lane] = d\ny[row, 4 * lane + 1] = c\ny[row, 4 * lane + 2] = b\ny[row, 4 * lane + 3] = a",
        ),
        r"8 × 128: 32 requests store y; 8 are enough",
    ),
]


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    judged(tmp_path, exercise, answered(exercise, code), says)


# 22_1 has two kernels: a change of one line of its solution each.
STATISTICS = [
    (
        "no pivot",
        "pivot = x[0, h, 0]",
        "pivot = float32(0)",
        r"parts, B=1 H=1 P=1, values around 2: element \[0, 0, 0\]",
    ),
    (
        "windows in a run",
        "range(p, x.shape[0], parts.shape[0])",
        "range(p * 2, min(x.shape[0], p * 2 + 2))",
        r"parts, B=3",
    ),
    ("only half a warp", "in (16, 8, 4, 2, 1)", "in (8, 4, 2, 1)", r"parts, B=1 .* element \[0, 0, 0\] is"),
    (
        "every lane its own hours, one at a time",
        "a, b, c, d = ptx.load4(x, (w * x.shape[1] + h) * LENGTH + 4 * lane)",
        "a, b, c, d = x[w, h, lane], x[w, h, lane + 32], x[w, h, lane + 64], x[w, h, lane + 96]",
        r"264 requests load x; 72 are enough",
    ),
    (
        "atomics",
        "    if lane == 0:\n        parts[p, h, 0] = total\n        parts[p, h, 1] = squares",
        "    if lane == 0:\n        parts[p, h, 0] = 0\n        cuda.atomic.add(parts, (p, h, 0), total)\n"
        "        parts[p, h, 1] = squares",
        r"atomics come in any order",
    ),
    ("no guard", "if h < found.shape[0]:", "if h >= 0:", r"[Oo]ut of bounds"),
    ("the first part only", "range(parts.shape[0])", "range(1)", r"mean, B=3"),
    ("the mean of the distances", "found[h, 0] = x[0, h, 0] + mean", "found[h, 0] = mean", r"mean, B=1"),
    ("the mean of the squares", "squares / count - mean * mean", "squares / count", r"variance, B=1"),
    ("a count in int64", "count = float32(x.shape[0] * LENGTH)", "count = x.shape[0] * LENGTH", r"float64 operations"),
]


@pytest.mark.parametrize(("what", "old", "new", "says"), STATISTICS, ids=[f"22_1: {s[0]}" for s in STATISTICS])
def test_wrong_statistics_are_told_what_is_wrong(tmp_path, what, old, new, says):
    text = (ROOT / "solutions" / "22_1_statistics.py").read_text(encoding="utf-8")
    answer, judge = text[: text.index("HINTS =")], text[text.index("HINTS =") :]
    assert answer.count(old) == 1
    judged(tmp_path, "22_1", answer.replace(old, new) + judge, says)


def judged(tmp_path, exercise, text, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(text, encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "wrong", found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"], "a wrong answer gets a hint"
