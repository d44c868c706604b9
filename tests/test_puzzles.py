"""The puzzles of the first lesson: its own answers are right, and of typical mistakes the judge says what helps."""

import contextlib
import functools
import io
import linecache

import pytest
from test_exercises import ROOT, build

GUARD = "    if i < a.size:\n        "
BOTH = "row < a.shape[0] and column < a.shape[1]"
BARRIER = "    cuda.syncthreads()\n"
LOOP = "i = cuda.grid(1)\n    out[i]", "for i in range(4):\n        out[i]"
SERIAL = (
    "    if lane == 0:\n        value = 0\n        for k in range(a.size):\n            value += a[k]\n        total"
)
MISTAKES = [  # the kernel, a text of its answer and what stands in its place, what is said of it
    ("add_ten", "+ 10", "", "each is -10 more than is right", "which inputs make that element"),
    ("add_ten", *LOOP, "two writers", "which element does each of them own"),
    ("add_ten", "out[i] = a[i]", "out = a", "cannot be interpreted", "give each array an index"),
    ("add_ten", "cuda.grid(1)", "cuda.blockIdx.x", "two writers", "which element does each of them own"),
    ("double", GUARD, "    ", "out of bounds: line 4: a: index 5", "threads 5, 6 and 7 have no element"),
    ("double", "a.size", "a.size - 1", "not written: 1 of 5", "which threads does your test leave out"),
    ("double", "<", "<=", "out of bounds: line 5", "threads 5, 6 and 7 have no element"),
    ("double", "2 * a[i]", "a[i] * a[i]", "out[1] is 49, 14 is right", "which inputs make that element"),
    ("times_ten", "column, row", "row, column", "not written: 3 of 12", "the column comes first, the row second"),
    ("times_ten", BOTH, "row < a.shape[0]", "index 4 on axis 1", "test the column with a.shape[1]"),
    ("times_ten", "10 * a[row, column]", "10 * a[row, row]", "9 elements are wrong", "which inputs make that element"),
    ("add_both", "x, y", "y, x", "out of bounds: line 4: column", "x is a number below 4, y one below 3"),
    ("add_both", "out[y, x]", "out[x, y]", "out of bounds: line 4: out", "x is a number below 4, y one below 3"),
    ("add_both", "row[x]", "row[y]", "9 elements are wrong", "which inputs make that element"),
    ("add_block", "cuda.blockIdx.x * cuda.blockDim.x + ", "", "two writers", "threadIdx.x begins at 0 in each block"),
    ("add_block", " * cuda.blockDim.x", "", "two writers", "threadIdx.x begins at 0 in each block"),
    ("add_block", GUARD, "    ", "out of bounds: line 4: a: index 10", "12 threads for 10 elements"),
    ("add_block", "100 * cuda.blockIdx.x", "100", "6 elements are wrong" , "which inputs make that element"),
    ("warp_sum", "    if lane == 0:\n        total", "    total", "two writers", "it alone stores"),
    ("warp_sum", " if lane < a.size else 0", "", "out of bounds: line 4", "the others begin with 0"),
    ("warp_sum", "(16, 8, 4, 2, 1)", "(8, 4, 2)", "is right", "from step to step the distance halves"),
    ("warp_sum", "value +=", "value =", "total[0] is 0", "is what was computed stored"),
    ("warp_sum", "0\n    for", "0\n    if lane >= a.size:\n        return\n    for", "inactive lane", "all 32 lanes"),
    ("warp_sum", None, SERIAL, "a is loaded in 12 requests", "let each lane load one number"),
    ("three_on", BARRIER, "", "race: line 8", "cuda.syncthreads() belongs between"),
    ("three_on", BARRIER, "    " + BARRIER, "divergent barrier", "it does not belong into the `if`"),
    ("three_on", "    if i < 3:\n        tile[i + 8]", "    tile[i + 8]", "out of bounds", "only three threads"),
    ("three_on", "if i < 3", "if i < 2", "uninitialised", "who stores the last three"),
    ("three_on", "tile[i] + tile[i + 3]", "a[i] + a[i + 3]", "27 elements in all", "two elements of tile, not of a"),
    ("last_four", BARRIER, "", "race: line 8", "cuda.syncthreads() belongs between"),
    ("last_four", "    if i < 3:\n        tile[i] = 0\n", "", "uninitialised", "who stores the three zeros"),
    ("last_four", "= tile[i] + ", "= ", "5 elements are wrong", "which inputs make that element"),
    ("last_four", "tile[i] + tile[i + 1]", "a[i] + a[i - 1]", "negative index", "i - 3 is negative for three threads"),
    ("transpose", "out[column, row]", "out[row, column]", "out of bounds", "out 4 rows and 3 columns"),
    ("transpose", f"    if {BOTH}:\n        ", "    ", "out of bounds: line 4", "tested with which size"),
    ("transpose", "a.shape[1]", "a.shape[0]", "not written: 3 of 12", "which threads does the guard leave out"),
    ("histogram", "cuda.atomic.add(bins, a[i], 1)", "bins[a[i]] += 1", "race", "it takes an atomic"),
    ("histogram", GUARD, "    ", "out of bounds: line 4: a: index 12", "16 threads for 12 elements"),
    ("histogram", "bins, a[i], 1", "bins, i, 1", "out of bounds: line 5: bins", "it is a[i] that says which bin"),
    ("add_block", "a[i] + 100", "i + 100", "other numbers", "which of the picture's numbers stands in the kernel"),
    ("times_ten", "a[row, column]", "(4 * row + column + 1)", "other numbers", "which of the picture's numbers"),
    ("transpose", "a[row, column]", "4 * row + column + 1", "other numbers", "which of the picture's numbers"),
    ("warp_sum", None, "    value = 52\n    if lane == 0:\n        total", "other numbers", "the picture's numbers"),
    ("histogram", "a[i], 1)", "a[i], a[i])", "bins[0] is 0, 3 is right", "which inputs make that element"),
]  # fmt: skip


@functools.cache
def lesson() -> tuple[dict[str, str], dict]:
    """(kernel -> the cell that has its answer and judges it, what the lesson's cells before have defined)."""
    source = ROOT / "notebooks" / "src" / "00_puzzles.py"
    cells = [one.source for one in build.lesson(source).cells if one.cell_type == "code"]
    known = {"__name__": "lesson"}
    answers = {}
    for text in cells[: 1 + max(n for n, one in enumerate(cells) if ".solve(" in one)]:
        if ".solve(" in text:
            answers[text.split("def ")[1].split("(")[0]] = text
        else:
            exec(text, known)
    return answers, known


def said(text: str, hint: int = 1) -> str:
    """What a cell with this text prints, on one line."""
    name = f"<puzzle {hash(text)}>"
    text = text.rstrip()[:-1] + f", hint={hint})"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, name, "exec"), dict(lesson()[1]))
    return " ".join(out.getvalue().split())


@pytest.mark.quick
def test_ten_puzzles_are_right_as_the_lesson_has_them_and_not_solved_as_a_student_gets_them():
    answers, _ = lesson()
    assert len(answers) == 10
    for text in answers.values():
        assert said(text).startswith("right: ")
        body = text[: text.index("\n    ")]
        assert said(f"{body}\n    {build.BLANK}\n\n\n{text.split(chr(10))[-1]}").startswith("not solved yet")


@pytest.mark.parametrize(("name", "old", "new", "wrong", "hint"), MISTAKES)
def test_a_mistake_is_named_and_its_first_hint_fits_it(name, old, new, wrong, hint):
    text = lesson()[0][name]
    old = old or text[text.index("    value = a") : text.index("[0] = value")]
    assert text.count(old) == 1
    found = said(text.replace(old, new))
    assert found.startswith("not right yet: ") and wrong in found and hint in found, found
    assert "hint 2" not in found and "hint 2: " in said(text.replace(old, new), hint=2)


def test_each_puzzle_has_three_mistakes():
    rows = [row[0] for row in MISTAKES]
    assert {name: rows.count(name) >= 3 for name in lesson()[0]} == dict.fromkeys(lesson()[0], True)


def test_a_picture_has_what_hangs_on_what():
    histogram = lesson()[1]["counted"].picture()
    assert "bins is to hold [3, 2, 5, 2]" in histogram.alt and histogram.body.count("<line") == 12
    assert "coloured are the 2 inputs that out[2, 3] hangs on" in " ".join(lesson()[1]["sums"].picture().alt.split())
