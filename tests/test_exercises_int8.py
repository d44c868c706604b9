"""Wrong answers to the exercises of lesson 34: each is told what is wrong, in bytes that differ."""

import re

import pytest
from copies import needs_solutions
from test_exercises import answered

from dwlab.judge import exercises

pytestmark = needs_solutions

# 34_1 with its rounding, its limits and its lanes.
BACK = """
i = cuda.blockIdx.x
for f in range({first}, y.shape[1], {step}):
    {total}
    {value}
    {limit}
"""
TOTAL = "total = float32(int32(sums[i, f] + b[f])) * m[f]"
VALUE = "value = ptx.rint(total)"
LIMIT = "y[i, f] = min(max(value, low - zero), 127 - zero) + zero"


def back(total=TOTAL, value=VALUE, limit=LIMIT, first="cuda.threadIdx.x", step=32):
    return BACK.format(total=total, value=value, limit=limit, first=first, step=step)


def numbers(**changed):
    """An answer to 34_2 that is right but for these."""
    right = {
        "scale_x": 4 / 255, "zero_x": -64, "zero_y": -128, "w": 25, "m": 0.5 / 127, "saved": 112128, "lane": 21,
        "number": 2, "byte": 2,
    }  # fmt: skip
    return "\n".join(f"{name} = {value}" for name, value in (right | changed).items())


# 34_3 with the words of the product, the shares of a column, and what is subtracted.
WARP = """
lane = cuda.threadIdx.x
g, t = lane // 4, lane % 4
c0 = c1 = c2 = c3 = int32(0)
share = int32(0)
for k in range(0, a.shape[1], 8):
    b0, b1 = b[g, k + t], b[g, k + t + 4]
    c0, c1, c2, c3 = ptx.mma_s8(c0, c1, c2, c3, {words}, b0, b1)
    {add}
{across}
left = cuda.shfl_sync(0xFFFFFFFF, share, {left})
right = cuda.shfl_sync(0xFFFFFFFF, share, {right})
d[g, 2 * t] = c0 - zero * left
d[g, 2 * t + 1] = c1 - zero * right
d[g + 8, 2 * t] = c2 - zero * left
d[g + 8, 2 * t + 1] = {last}
"""
WORDS = "a[g, k + t], a[g + 8, k + t], a[g, k + t + 4], a[g + 8, k + t + 4]"
ADD = "share = ptx.dp4a(b1, int32(ONES), ptx.dp4a(b0, int32(ONES), share))"
ACROSS = """share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 1))
share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 2))"""


def warp(words=WORDS, add=ADD, across=ACROSS, left="8 * t", right="8 * t + 4", last="c3 - zero * right"):
    return WARP.format(words=words, add=add, across=across, left=left, right=right, last=last)


WRONG = [
    (
        "34_1",
        "halves away from 0",
        back(value="half = float32(0.5) if total > 0 else float32(-0.5)\n    value = int32(total + half)"),
        r"halves of shape \(2, 40\), zero point 3: element \[0, \d+\] is -?\d+; -?\d+ is right, for -?\d+\.5 before",
    ),
    ("34_1", "cut off, not rounded", back(value="value = int32(total)"), r"random sums of .* (is|are) wrong"),
    (
        "34_1",
        "zero added first",
        back(limit="y[i, f] = min(max(int32(value + zero), low), 127)"),
        r"huge sums of shape \(1, 4\), zero point (100|-100): element \[0, \d\] is -?\d+; -?\d+ is right",
    ),
    ("34_1", "no limits", back(limit="y[i, f] = value + zero"), r"(random|huge) sums of .* is -?\d+; (-?\d+) is right"),
    ("34_1", "no relu", back(limit="y[i, f] = min(max(value, -128 - zero), 127 - zero) + zero"), r"relu: element"),
    ("34_1", "the bias left out", back(total="total = float32(sums[i, f]) * m[f]"), r"random sums"),
    ("34_1", "one turn of the warp", back(step=4096), r"relu: element \[0, 32\] was never written; -\d+ is right"),
    ("34_1", "float64", back(total="total = float32((sums[i, f] + b[f]) * 1.0 * m[f])"), r"\d+ float64 operations"),
    ("34_1", "lanes far apart", back(first="2 * cuda.threadIdx.x", step=1), r"race: thread 0 of block 0 writes y"),
    ("34_2", "256 steps", numbers(scale_x=4 / 256), r"`scale_x`: you predicted 0\.015625 as the scale.*too low"),
    ("34_2", "zero in the middle", numbers(zero_x=0), r"`zero_x`: you predicted 0 as the zero point.*too high"),
    ("34_2", "a relu's zero at 0", numbers(zero_y=0), r"`zero_y`: you predicted 0 as the zero point.*too high"),
    ("34_2", "a weight of 128 steps", numbers(w=26), r"`w`: you predicted 26 as the int8.*too high"),
    ("34_2", "no scale of y", numbers(m=4 / 255 * 0.5 / 127), r"`m`: you predicted .* as the factor.*too low"),
    ("34_2", "no factors", numbers(saved=112512), r"`saved`: you predicted 112,512 bytes; fewer"),
    ("34_2", "float16's lanes", numbers(lane=5 * 4 + 3), r"`lane`: you predicted 23 as its lane.*too high"),
    ("34_2", "the first half", numbers(number=0), r"`number`: you predicted 0 as its number.*too low"),
    ("34_2", "the bytes turned", numbers(byte=1), r"`byte`: you predicted 1 as its byte.*too low"),
    ("34_2", "nothing filled in for one", numbers(m=None), r"`m` is still None"),
    ("34_3", "no zero point", warp(add="share = int32(0)"), r"zero point -128: element \[0, 0\] is .* is right"),
    ("34_3", "one lane's share", warp(across=""), r"zero point -128: element"),
    ("34_3", "two lanes' shares", warp(across=ACROSS.split("\n")[0]), r"zero point -128: element"),
    ("34_3", "the column of its own group", warp(left="lane", right="lane"), r"zero point -128: element"),
    ("34_3", "a1 and a2 exchanged", warp(words=WORDS.replace("a[g + 8, k + t], a[g, k + t + 4]",
     "a[g, k + t + 4], a[g + 8, k + t]")), r"zero point 0: element .* sums are wrong"),
    ("34_3", "half of the words", warp(add="share = ptx.dp4a(b0, int32(ONES), share)"), r"zero point -128: element"),
    ("34_3", "words loaded twice", warp(add="share = ptx.dp4a(b[g, k + t + 4], int32(ONES), "
     "ptx.dp4a(b[g, k + t], int32(ONES), share))"), r"\d+ words of b are loaded; \d+ are enough"),
    ("34_3", "the last sum without it", warp(last="c3"), r"element \[8, 1\] is"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "what", "code", "says"), WRONG, ids=[f"{w[0]}: {w[1]}" for w in WRONG])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, exercise, what, code, says):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(answered(exercise, code), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == ("unsolved" if "still" in says else "wrong"), found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"] or "still" in says, "a wrong answer gets a hint"
