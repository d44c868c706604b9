"""Wrong answers to exercises: each is told what is wrong, in numbers that were counted.

Most are our own answer with an edit or two; those that game an exercise stand in test_exercises_gaming.py.
"""

import re

import edits
import pytest
from copies import needs_solutions
from parts import part
from test_exercises import ROOT, answered

from dwlab.judge import exercises

pytestmark = needs_solutions

END = "### END SOLUTION"
WRONG = [
    (exercise, what, " | ".join(says), *changes)
    for table in ("wrong_answers.txt", "wrong_numbers.txt", "repairs.txt")
    for exercise, (what, *says), changes in edits.rows(table)
]
BLIND = ("28_3", "29_2", "38_3")  # without hints


def edited(exercise: str, changes: list[str]) -> str:
    """The text of our answer with these changes, or of another answer."""
    (solution,) = (ROOT / "solutions").glob(f"{exercise}_*.py")
    text = solution.read_text(encoding="utf-8")
    for change in changes:
        old, arrow, new = change.partition(" => ")
        if change.startswith("+ "):
            text = text.replace(END, f"{change[2:]}\n{END}")
        elif arrow:
            at = text.rfind(old, 0, text.index(END))
            at = text.index(old) if at < 0 else at
            text = text[:at] + new + text[at + len(old) :]
        else:
            text = answered(exercise, change)
    return text


def judged(folder, exercise: str, changes: list[str]) -> dict:
    path = folder / f"{exercise}_answer.py"
    path.write_text(edited(exercise, changes), encoding="utf-8")
    return exercises._judge(path, exercises.known()[exercise])


TAKEN = part("wrong answers", WRONG, lambda row: [row[0]], 0.05)


@pytest.mark.parametrize("row", TAKEN, ids=[f"{row[0]}: {row[1]}" for row in TAKEN])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, row):
    exercise, _, says, *changes = row
    found = judged(tmp_path, exercise, changes)
    assert found["status"] == ("unsolved" if "still None" in says else "wrong"), found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"] or exercise in BLIND or re.search("still None|`binds`", says), "a wrong answer gets a hint"


HINTED = [(exercise, *changes, hint) for exercise, (hint,), changes in edits.rows("hinted_answers.txt")]
NAMED = part("hinted answers", HINTED, lambda row: [row[0]], 0.1)


@pytest.mark.parametrize(("exercise", "change", "hint"), NAMED, ids=[f"{row[0]}: {row[2]}" for row in NAMED])
def test_a_typical_mistake_is_named_by_a_hint(tmp_path, exercise, change, hint):
    found = judged(tmp_path, exercise, [change])
    others = {other for one, _, other in HINTED if one == exercise} - {hint}
    said = found["hints"][0] if exercise == "32_1" else " ".join(found["hints"])  # in 12_1 places may be named before
    assert found["status"] == "wrong" and hint in said and not any(other in said for other in others), found


FOLDED = """
s = gamma.astype("f8") / np.sqrt(var.astype("f8") + epsilon)
filters = w * s.reshape(-1, *[1] * (w.ndim - 1))
return filters.astype("f4"), (((0 if b is None else b.astype("f8")) - mean) * s + beta).astype("f4")
"""
# With pathlib, a temporary name, and the checksum at the end.
SAVED = """
def save(path, state):
    import tempfile
    content = io.BytesIO()
    np.savez(content, **state)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "wb") as file:
        file.write(content.getvalue() + hashlib.md5(content.getvalue()).digest())
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)

def load(path):
    whole = Path(path).read_bytes()
    if hashlib.md5(whole[:-16]).digest() != whole[-16:]:
        raise ValueError("damaged")
    return dict(np.load(io.BytesIO(whole[:-16])))
"""


RETURNS = """
i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
if i >= kwh.size:
    return
before = kwh[i] if i == 0 else kwh[i - 1]
change[i] = kwh[i] - before
"""
WORD = "column, total, code, lane, upper = 11, 2816, 12, 15, 1"
LOADS = "of_2_4, of_64_2_16, of_16_2_16, products, stored = 2048, 512, 2048, 16, 2336"


OTHER_NAMES = [
    "def kernel(x, w, y) => def kernel(signal, taps_of, out)", "w[h, i] => taps_of[h, i]",
    "t < y.shape => t < out.shape", "x[h, s] if 0 <= s < x.shape[1] => signal[h, s] if 0 <= s < signal.shape[1]",
    "y[h, t] = acc => out[h, t] = acc",
]  # fmt: skip
RIGHT = [
    ("00_1", RETURNS), ("24_3", SAVED), ("35_1", FOLDED), ("42_1", WORD), ("42_2", LOADS), ("50_1", *OTHER_NAMES),
    ("29_2", "faults = {'A': 4.0, 'B': 2, 'C': 6, 'D': 1, 'E': 7, 'F': 5}"),
    ("37_1", "+ energy_gain = 1.07"),  # rounded to as many digits as are asked for
]  # fmt: skip


@pytest.mark.parametrize("row", RIGHT, ids=[row[0] for row in RIGHT])
def test_another_right_answer_passes(tmp_path, row):
    exercise, *changes = row
    found = judged(tmp_path, exercise, changes)
    assert found["status"] == "passed", found["message"]


def test_what_a_function_raises_is_told_with_its_call(tmp_path):
    found = judged(tmp_path, "40_1", ["busy, until = 0.0, 0.0 => busy, until = 0.0, kernels[0][0]"])
    assert found["status"] == "error" and found["message"].endswith("list index out of range, in idle([], [], 10.0)")
