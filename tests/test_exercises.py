"""Exercises: the unsolved fail with their message, the solutions pass, wrong answers are told what is wrong."""

import ast
import dataclasses
import html
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from copies import needs_solutions, worked_on
from wrong_kernels import edited

from dwlab import cuda, xray
from dwlab.judge import exercises, tools
from dwlab.judge.exercises import Result, Results

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("build", ROOT / "notebooks" / "build.py")
build = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(build)

SOLUTIONS = sorted((ROOT / "solutions").glob("*.py"))
IDS = [build.exercise_id(s) for s in SOLUTIONS]
JUDGE = exercises._Judge()  # a process for all tests here that need no judge of their own
pytestmark = needs_solutions


@pytest.fixture(scope="module", autouse=True)
def given(tmp_path_factory):
    """The exercises as they are given out, in a folder that takes the place of exercises/: some may be solved there."""
    folder = tmp_path_factory.mktemp("exercises")
    for solution in SOLUTIONS:
        (folder / solution.name).write_text(build.exercise_files(solution)[build.EXERCISES / solution.name], "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exercises, "EXERCISES", folder)
        yield folder
    JUDGE.close()


def answered(exercise: str, code: str) -> str:
    """The text of an exercise with `code` in the place of its (only) solution."""
    (solution,) = (ROOT / "solutions").glob(f"{exercise}_*.py")
    text = solution.read_text(encoding="utf-8")
    begin, end = text.index("### BEGIN SOLUTION"), text.index("### END SOLUTION")
    column = begin - text.rindex("\n", 0, begin) - 1
    body = textwrap.indent(textwrap.dedent(code).strip(), " " * column)
    return text[: begin - column] + body + text[end + len("### END SOLUTION") :]


def judged(tmp_path: Path, exercise: str, text: str | bytes, **options) -> Result:
    path = tmp_path / f"{exercise}_answer.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return exercises.judge_file(path, exercise, **({"judge": JUDGE} | options))


# every exercise


class Here:
    """In the place of the process that judges: our own answers are judged in this one."""

    @staticmethod
    def ask(task):
        found = exercises._judge(Path(task["file"]), Path(task["judge"]), task["seed"], task["seconds"])
        return json.loads(json.dumps(found))


def test_every_solution_makes_one_exercise_and_nothing_else_lies_there():
    assert IDS == sorted(exercises.known()) and len(IDS) >= 4
    for folder in (ROOT / "exercises", ROOT / "exercises" / "judges"):
        assert [f.name for f in sorted(folder.glob("*.py"))] == [s.name for s in SOLUTIONS]


@pytest.mark.parametrize("solution", SOLUTIONS, ids=IDS)
def test_an_exercise_is_what_its_solution_generates(solution):
    differences = list(build.exercise_differences(solution))
    if differences and worked_on(ROOT / "exercises" / solution.name):
        pytest.skip("it was worked on here")
    assert differences == []


@pytest.mark.parametrize("solution", SOLUTIONS, ids=IDS)
def test_an_exercise_holds_nothing_of_the_solution(given, solution):
    text = solution.read_text(encoding="utf-8")
    for exercise in build.exercise_files(solution).values():
        assert "### " not in exercise and "# Your code here." in exercise
        for region in re.findall(r"### BEGIN SOLUTION\n(.*?)\n *### (?:BEGIN STUB|END SOLUTION)", text, re.S):
            assert region not in exercise


@pytest.mark.parametrize("solution", SOLUTIONS, ids=IDS)
def test_what_a_student_edits_is_the_task_alone(given, solution):
    tree = ast.parse((given / solution.name).read_text(encoding="utf-8"))
    names = {getattr(one, "name", None) for one in tree.body} | {ast.unparse(one)[:5] for one in tree.body}
    assert not names & {"judge", "HINTS"}
    judges = {"kernel", "function", "launched", "agree", "predicted", "coalesced", "convolves"}
    assert not judges & {a.name for one in tree.body if isinstance(one, ast.ImportFrom) for a in one.names}


@pytest.mark.parametrize("exercise", IDS)
def test_an_unsolved_exercise_fails_with_its_message(given, exercise):
    file = next(given.glob(f"{exercise}_*.py"))
    result = exercises.judge_file(file, exercise, judge=Here)
    text = file.read_text(encoding="utf-8").split("\n")
    assert result.status == "unsolved" and not result.passed
    if stub := re.match(
        rf"Line (\d+) of {result.file} still holds the stub: replace it with your code", result.message
    ):
        assert text[int(stub[1]) - 1].strip().startswith(f'raise NotImplementedError("{exercise} is not solved yet')
    else:
        name = re.match(r"`(\w+)` is still None: write your prediction down", result.message)[1]
        assert any(re.match(rf"[^#=]*\b{name}\b[^#=]*=.*\bNone\b", line) for line in text)
    assert str(result).startswith(f"{exercise}: not solved yet.")


@pytest.mark.family(0.05, by=("part",))  # --solutions of `dwlab grade` judges all
@pytest.mark.parametrize(("part", "exercise"), [(one[0], one) for one in IDS], ids=IDS)
def test_a_solution_passes_and_is_told_why(capfd, tmp_path, part, exercise):
    """What is judged is what a student hands in who solves it as we do: the imports there are enough."""
    solution = SOLUTIONS[IDS.index(exercise)]
    text = solution.read_text(encoding="utf-8")
    file = tmp_path / solution.name
    file.write_text(build.exercise(text, solution.stem).answer, encoding="utf-8")
    result = exercises.judge_file(file, exercise, judge=Here, seed=1)
    assert result.passed, str(result)
    assert result.message and not result.hints and capfd.readouterr().out == ""
    result.raise_if_wrong()
    explained, compared = [w for w in result.why if w[0] == "`"], [w for w in result.why if w[0] != "`"]
    stubs = re.findall(r"^# (\w+(?:, \w+)*) = None", text, re.M) if "predicted(" in text else []
    assert len(explained) == sum(one.count(",") + 1 for one in stubs), explained
    assert not any(one.endswith("?") for one in explained), explained
    assert all(one.endswith("Our solution: exactly the same.") for one in compared), "counts.json is out of date"
    assert bool(compared) == (exercise in json.loads(exercises.COUNTS.read_text(encoding="utf-8")))


def test_a_right_answer_is_compared_with_ours(tmp_path):
    code = """
        i = cuda.grid(1)
        if i < kwh.size:
            before = kwh[i]
            if i > 0:
                before = kwh[i - 1]
            change[i] = kwh[i] - before
        """
    (said,) = judged(tmp_path, "00_1", answered("00_1", code)).why
    here, ours = said.split("Our solution: ")
    requests = [int(re.search(r"(\d+) requests of global memory", one)[1]) for one in (here, ours)]
    assert requests[0] > requests[1] and ours.endswith(", else the same.")


def test_each_lesson_has_a_kernel_and_a_prediction():
    for lesson in sorted({i[:2] for i in IDS}):
        texts = [s.read_text(encoding="utf-8") for s in SOLUTIONS if s.name.startswith(lesson)]
        assert len(texts) >= 2
        # The study, the training, networks, tuning and sparse filters are about measurements, steps, weights: there it
        # may be a function. In 50 it is a whole stage, which capstone judges.
        other = {"23", "24", "35", "37", "41", "42"}
        code = ("kernel(answer", "function(answer") if lesson in other else ("kernel(answer", "capstone")
        assert any(one in t for t in texts for one in code), f"{lesson}: no exercise asks for a kernel"
        # Lessons 40 and 41 ask for numbers in their own cells alone; in 50 the rubric asks for a formula.
        if lesson not in ("40", "41", "50"):
            assert any("predicted(" in t for t in texts), f"{lesson}: no exercise asks for a number"


def test_grade_is_imported_wherever_it_is_called():
    for source in (ROOT / "notebooks" / "src").glob("*.py"):
        for cell in source.read_text(encoding="utf-8").split("\n# %%"):
            assert "\ngrade(" not in cell or "\nfrom dwlab import grade\n" in cell, (source.name, cell)


# wrong answers: see test_wrong_answers.py too


def test_hints_come_in_steps_and_only_the_last_tells_the_count(tmp_path):
    found = judged(tmp_path, "00_1", answered("00_1", "pass"), hint=2)
    first, second, last = (str(dataclasses.replace(found, shown=n)) for n in (1, found.shown, 99))
    assert "hint 1 of 4" in first and "hint 2 of 4" not in first and 'grade("00_1", hint=2)' in first
    assert "hint 2 of 4" in second and 'grade("00_1", hint=3)' in second
    assert "hint 4 of 4" in last and "next hint" not in last
    text = answered("00_2", "sectors_backwards = 99\nsectors_one_further = sectors_every_second = sectors_the_same = 1")
    result = judged(tmp_path, "00_2", text)
    assert "4" not in result.message.split("`", 2)[2] and result.hints[-1] == "4 sectors were counted."
    assert not any("4 sectors" in hint for hint in result.hints[:-1])
    with pytest.raises(AssertionError, match="00_2"):
        result.raise_if_wrong()


PREDICTIONS = [
    ("None", "unsolved", "still None"),
    ("...", "unsolved", r"still \.\.\.:"),
    ("'four'", "wrong", r"`sectors_backwards` is 'four' \(str\); it must be a number"),
    ("True", "wrong", "must be a number"),
    ("float('nan')", "wrong", "must be a number"),
    ("[4]", "wrong", "must be a number"),
    ("'x' * 1000", "wrong", r"`sectors_backwards` is 'x{36}\.\.\. \(str\)"),
    ("np.int64(4)", "passed", ""),
    ("4.0", "passed", ""),
]


@pytest.mark.parametrize(("value", "status", "says"), PREDICTIONS)
def test_what_a_prediction_may_be(tmp_path, value, status, says):
    rest = "sectors_one_further = 5\nsectors_every_second = 8\nsectors_the_same = 1"
    result = judged(tmp_path, "00_2", answered("00_2", f"sectors_backwards = {value}\n{rest}"), judge=Here)
    assert result.status == status and re.search(says, result.message), str(result)


# files that misbehave

KERNEL = "\n\n@cuda.jit\ndef hourly_change(kwh, change):\n    {}\n"
HEAD = "import os, sys\nfrom dwlab import cuda\n"
BAD = [
    ("a syntax error", "def f(:\n", "syntax", r"Line 1: .* in `def f\(:`"),
    ("an indentation error", "x = 1\n  y = 2\n", "syntax", r"Line 2: unexpected indent"),
    ("a null byte", "x = 1\0\n", "syntax", r"null byte"),
    ("not text", b"\xff\xfe\x00x", "unreadable", r"not UTF-8"),
    ("nothing", "", "wrong", r"no `hourly_change` any more"),
    ("an error at import", "a = 1\nb = a / 0\n", "error", r"Line 2, `b = a / 0`: ZeroDivisionError: division by zero"),
    ("a module that is not there", "import nosuchthing\n", "error", r"Line 1, .*ModuleNotFoundError.*nosuchthing"),
    ("an error without text", "raise KeyError\n", "error", r"Line 1, `raise KeyError`: KeyError$"),
    ("sys.exit", "import sys\nsys.exit(0)\n", "error", r"SystemExit"),
    ("the end of Python", "import os\nos._exit(0)\n", "error", r"Python ended \(exit status 0\)"),
    ("a signal", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "error", r"Python ended \(signal 9\)"),
    ("deep recursion", "def f(): f()\nf()\n", "error", r"RecursionError"),
    ("a plain function", "def hourly_change(kwh, change):\n    pass\n", "wrong", r"@cuda.jit above it is missing"),
    ("a number for a kernel", "hourly_change = 7\n", "wrong", r"`hourly_change` is 7 \(int\); it must be a kernel"),
    ("too few parameters", HEAD + "@cuda.jit\ndef hourly_change(kwh):\n    pass\n", "error|wrong", r"takes 1"),
    ("an endless kernel", HEAD + KERNEL.format("while cuda.grid(1) == 0: change[0] = 1"), "timeout", r"does not end"),
    ("what kernels cannot do", HEAD + KERNEL.format("open('x')"), "wrong", r"does not run as it should: .*open"),
    ("a module not imported", HEAD + KERNEL.format("change[0] = math.pi"), "wrong", r"'math' is not .*`import math`"),
    ("an unknown name", HEAD + KERNEL.format("change[cuda.grid(1)] = nosuchname"), "wrong|error", r"nosuchname"),
]


def graded(tmp_path_factory, answers: dict[str, tuple[str, str | bytes]], **how) -> dict[str, Result]:
    """What each answer gets, of the exercise beside it, judged as students' files are."""
    files = []
    for what, (exercise, text) in answers.items():
        path = tmp_path_factory.mktemp("answer") / f"{exercise}_answer.py"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        files.append((what, exercise, path))
    return {result.student: result for result in exercises.grade_files(files, **how)}


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    return graded(tmp_path_factory, {what: ("00_1", text) for what, text, *_ in BAD}, time_limit=30)


@pytest.mark.parametrize(("what", "text", "status", "says"), BAD, ids=[b[0] for b in BAD])
def test_a_file_that_misbehaves_gets_one_clear_line(batch, what, text, status, says):
    result = batch[what]
    assert re.fullmatch(status, result.status), str(result)
    assert re.search(says, result.message), result.message
    assert "\n" not in result.message and "Traceback" not in str(result)


def test_an_endless_file_is_stopped_and_what_it_started_too(tmp_path):
    late, beats = tmp_path / "late.py", tmp_path / "beats"
    late.write_text(
        f"import time\nfor n in range(10_000):\n    open({str(beats)!r}, 'a').write('x')\n    time.sleep(0.02)\n"
    )
    text = f"import subprocess, sys\nsubprocess.Popen([sys.executable, {str(late)!r}])\nwhile True: pass\n"
    result = judged(tmp_path, "00_1", text, time_limit=0.5)
    assert result.status == "timeout" and "stopped after 0.5 s" in result.message
    if os.name == "posix":
        before = beats.stat().st_size if beats.exists() else 0
        time.sleep(0.5)
        assert (beats.stat().st_size if beats.exists() else 0) == before, "it still writes"


@pytest.mark.skipif(os.name != "posix", reason="CPU time is limited there only")
def test_of_a_file_that_waits_the_time_of_computing_counts(tmp_path):
    right = build.exercise((ROOT / "solutions" / "23_3_what_binds.py").read_text("utf-8"), "23_3_what_binds").answer
    judged(tmp_path, "23_3", right + "\nimport time\n\ntime.sleep(1.5)\n", time_limit=0.5).raise_if_wrong()
    ended = judged(tmp_path, "00_1", "while True: pass\n", time_limit=0.5)
    assert ended.status == "timeout" and "stopped after 0.5 s of computing" in ended.message


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited there only")
def test_a_file_that_fills_the_memory_is_stopped_and_told_so(tmp_path):
    result = judged(tmp_path, "00_1", "kept = bytearray(1 << 33)\n")
    assert result.status == "error" and "Line 1, `kept" in result.message and "more than 4 GiB" in result.message


def test_rubbish_on_the_screen_is_cut_short_and_judged_all_the_same(tmp_path):
    rubbish = "import sys\nfor i in range(300000): print('rubbish', i)\nsys.stdout.buffer.write(bytes(range(256)))\n"
    text = answered("00_1", "pass").replace('"""\n\nimport', f'"""\n\n{rubbish}\nimport', 1)
    result = judged(tmp_path, "00_1", text)
    assert result.status == "wrong" and "never written" in result.message
    assert result.output.startswith("rubbish 0\n") and len(result.output) < 2_100
    assert result.output.endswith("(more was printed)")
    assert judged(tmp_path, "00_1", "print('\\x1b[31mred\\x1b[0m \\x07')\n").output == "?[31mred?[0m ?\n"


def test_a_file_is_not_told_where_its_verdict_goes(tmp_path):
    forged = "import json, os, sys\nopen(sys.argv[3], 'w').write('{}')\nos._exit(0)\n"
    result = judged(tmp_path, "00_1", forged)
    assert result.status == "error" and "IndexError" in result.message


@pytest.mark.parametrize(
    "write",
    [
        lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        lambda text: "# coding: latin-1\n# für Zoë\n".encode("latin-1") + text.encode("latin-1"),
    ],
    ids=["byte order mark and CRLF", "another encoding, named"],
)
def test_a_file_is_read_as_python_reads_it(tmp_path, write):
    path = tmp_path / "00_2_answer.py"
    path.write_bytes(write((ROOT / "solutions" / "00_2_sectors.py").read_text(encoding="utf-8")))
    assert exercises.judge_file(path, "00_2", judge=JUDGE).passed


def test_of_a_file_handed_in_twice_the_better_one_counts_everywhere(given, tmp_path):
    for name, home in (("00_2_sectors.py", ROOT / "solutions"), ("00_2_sectors (1).py", given)):
        (tmp_path / "mia").mkdir(exist_ok=True)
        (tmp_path / "mia" / name).write_text((home / "00_2_sectors.py").read_text(encoding="utf-8"))
    results = exercises.grade_folder(tmp_path)
    assert results.rows()[1] == [["00_2", "passed"]] and results.passed
    assert "the best counts: not 00_2_sectors (1).py of mia." in str(results) and str(results).endswith("1 of 1 passed")
    assert results.to_csv(tmp_path / "a.csv").read_text(encoding="utf-8").splitlines()[1] == "mia,passed,1,1"
    assert {one["file"]: one["counts"] for one in results.to_dict()} == {
        "00_2_sectors (1).py": False, "00_2_sectors.py": True
    }  # fmt: skip
    (written,) = results.to_results(tmp_path / "results")
    read = json.loads(written.read_text(encoding="utf-8"))
    assert read["tests"][0]["score"] == 1 and read["extra_data"] == {"student": "mia"}


def test_a_file_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    judged(tmp_path, "00_1", "open('left_behind', 'w').write('x')\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["00_1_answer.py"]


# thirty submissions


def test_thirty_files_are_judged_and_shown_in_a_table_a_line_a_problem_and_json(given, tmp_path):
    folder = tmp_path / "handed in"
    folder.mkdir()
    unsolved, right = ((home / "00_1_change.py").read_text(encoding="utf-8") for home in (given, ROOT / "solutions"))
    for n in range(28):
        home = folder / f"student {n:02}"
        home.mkdir()
        (home / "00_1_change.py").write_text(unsolved if n else right, encoding="utf-8")
    (folder / "student 03" / "00_1_change.py").write_text("def f(:\n")
    (folder / "student 04" / "00_1_change.py").write_text("while True: pass\n")
    (folder / "student 05" / "00_1_change.py").write_text("print('x' * 100000)\nraise SystemExit\n")
    (folder / "zoë_00_2_sectors.py").write_text((ROOT / "solutions" / "00_2_sectors.py").read_text(encoding="utf-8"))
    (folder / "yan-00_1-final(2).py").write_text(unsolved, encoding="utf-8")
    (folder / "homework.py").write_text("print(1)\n")
    (folder / "student 00" / ".ipynb_checkpoints").mkdir()
    (folder / "student 00" / ".ipynb_checkpoints" / "00_1_change-checkpoint.py").write_text("broken(")
    (folder / "student 00" / "notes.txt").write_text("not Python")
    results = exercises.grade_folder(folder, time_limit=2)
    status = {(r.student, r.exercise): r.status for r in results}
    assert len(results.results) == 31
    assert status["student 00", "00_1"] == "passed" and str(status).count("'passed'") == 2
    assert status["student 03", "00_1"] == "syntax"
    assert status["student 04", "00_1"] == "timeout"
    assert status["student 05", "00_1"] == "error"
    assert status["zoë", "00_2"] == "passed"
    assert status["yan", "00_1"] == "unsolved"
    assert status["", ""] == "unknown"
    assert not results.passed
    text = str(results)
    rows = text.split("\n")
    assert re.match(r"student +00_1 +00_2 +passed$", rows[0])
    assert re.search(r"^student 00 +passed +- +1 of 2$", text, re.M)
    assert re.search(r"^zoë +- +passed +1 of 2$", text, re.M)
    assert re.search(r"^student 03: 00_1: not Python. Line 1: ", text, re.M)
    assert re.search(r"^homework.py: not an exercise. Its name holds no number of an exercise, such as", text, re.M)
    assert rows[-1] == "2 of 31 passed"
    assert "<table" in results._repr_html_() and "zoë" in results._repr_html_()
    read = json.loads(json.dumps(results.to_dict()))
    assert len(read) == 31 and set(read[0]) >= {"student", "exercise", "file", "status", "message", "hints", "seconds"}


def test_a_notebook_shows_code_as_code_with_html_escaped_and_says_what_a_terminal_says():
    bad = Result("00_1", "<b>.py", "error", "<script>alert(1)</script>", student="<i>")
    for shown in (Results((bad,))._repr_html_(), dataclasses.replace(bad, output="<u>")._repr_html_()):
        assert not {"<script>", "<i>", "<b>.py", "<u>"} & set(re.findall(r"<[^>]*>", shown)), shown
    more = {"hints": ("Line 3, `x[i]`: why?", "No."), "output": "a\n  b", "seed": 7}
    wrong = Result("01_2", "01_2_floor.py", "wrong", "`flops` is 1 < 2.", **more)
    shown = wrong._repr_html_()
    assert "`" not in shown and "<code>flops</code> is 1 &lt; 2." in shown and "<code>x[i]</code>" in shown
    assert "<code>grade(&quot;01_2&quot;, hint=2)</code>" in shown and "<pre>a\n  b</pre>" in shown
    words = html.unescape(re.sub(r"<[^>]*>", " ", shown)).split()
    assert words == re.sub(r"[`|]", " ", wrong.text()).split()
    assert "`" not in Results((wrong,))._repr_html_()


# the command line


def command(**options):
    given = dict.fromkeys(("all", "csv", "results", "hint", "seed", "json", "solutions")) | {"names": [], **options}
    return exercises.main(Namespace(**given))


def test_commands_and_their_status(tmp_path, capsys):
    assert command(names=["00_2"]) == 1
    assert "00_2: not solved yet. `sectors_backwards` is still None" in capsys.readouterr().out
    assert command(names=["00_2"], solutions=True) == 0
    assert capsys.readouterr().out.startswith("00_2: passed.")
    assert command(names=["00_1_change", "00_2"], json=True, solutions=True) == 0
    read = json.loads(capsys.readouterr().out)
    assert [r["exercise"] for r in read] == ["00_1", "00_2"] and all(r["status"] == "passed" for r in read)
    assert command(names=["00_2"], json=True) == 1
    assert json.loads(capsys.readouterr().out)[0]["status"] == "unsolved"


def test_all_is_said_once_and_while_it_works(given, capsys, monkeypatch):
    monkeypatch.setattr(exercises, "_watched", lambda: True)
    assert command() == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == len(IDS) + 3 and shown.out.count("not solved yet") == len(IDS)
    assert f"{len(IDS)} of {len(IDS)} files graded" in shown.err


def test_a_seed_is_shown_and_repeats_what_was_drawn(tmp_path):
    text = answered("13_1", "total[0] = kwh[0, 0]")
    first, again = (judged(tmp_path, "13_1", text, seed=7, judge=Here) for _ in range(2))
    assert first.seed == 7 and "With the seed 7 they are these." in str(first)
    assert again.message == first.message


def test_names_and_folders_that_do_not_exist(tmp_path):
    for options, says in (
        ({"names": ["00_9"]}, "no exercise is called '00_9'; is it 00_"),
        ({"names": ["sectrs"]}, "no exercise is called 'sectrs'"),
        ({"all": str(tmp_path / "nowhere")}, "nowhere is not a folder"),
        ({"all": str(tmp_path)}, "holds no Python file"),
        ({"all": str(tmp_path), "names": ["00_1"]}, "not both"),
    ):
        with pytest.raises(exercises.GradeError, match=says):
            command(**options)
    with pytest.raises(exercises.GradeError, match="no exercise"):
        exercises.grade("nonsense")


def test_a_missing_file_is_said_to_be_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(exercises, "EXERCISES", tmp_path)
    result = exercises.grade("00_1")
    assert result.status == "unreadable" and "00_1_change.py cannot be read: no such file" in result.message
    monkeypatch.setattr(exercises, "EXERCISES", tmp_path / "none")
    with pytest.raises(exercises.GradeError, match="there is no folder none/ here or above: `dwlab lab FOLDER` copies"):
        exercises.grade("00_1")
    monkeypatch.setattr(exercises, "JUDGES", tmp_path)
    with pytest.raises(exercises.GradeError, match="is missing: get the workbook again"):
        exercises.grade("00_1")


def started(folder, *arguments):
    more = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True}
    return subprocess.run([sys.executable, *arguments], cwd=folder, **more)


@pytest.mark.parametrize(
    ("arguments", "status", "says"), [([], 1, "not solved yet"), (["--hint", "x"], 2, "invalid int")]
)
def test_an_exercise_runs_from_a_shell_in_any_folder(given, tmp_path, arguments, status, says):
    done = started(tmp_path, given / "00_2_sectors.py", *arguments)
    assert done.returncode == status and says in done.stdout + done.stderr


def test_a_wrong_answer_in_a_shell_is_told_how_to_see_more(tmp_path):
    path = tmp_path / "my exercises" / "00_1_change.py"
    path.parent.mkdir()
    path.write_text(answered("00_1", "pass"), encoding="utf-8")
    done = started(tmp_path, path.relative_to(tmp_path))
    assert done.returncode == 1
    # as it was typed: it works in the same folder
    typed = shlex.quote(str(path.relative_to(tmp_path)))
    assert f"For the next hint: python {typed} --hint 2" in done.stdout


# the tools of judges


COPIED = """
def kernel(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i]
"""
STAGED = """
def kernel(x, y):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    y[i] = tile[i ^ 1]
"""
_double = edited(COPIED, "double", "= x[i] => = x[i] * float32(2)")
_adds_up = edited(COPIED, "adds_up", "= x[i] => += x[i]")
_half = edited(COPIED, "half", "i < x.size => i < x.size // 2")
_nan = edited(COPIED, "nan", "= x[i] => = (x[i] - x[i]) / (x[i] - x[i])")
_two_warps = edited(STAGED, "two_warps", "tile[i ^ 1] => tile[i ^ 1] + tile[63 - i]")
_two_lanes = edited(STAGED, "two_lanes")
TWICE = "tile[(i + 8) % 64] = x[i]\n    if i < 9:\n        tile[i] = x[i]\n    cuda.syncthreads()"
_an_element_too_many = edited(STAGED, "too_many", f"tile[i] = x[i] => {TWICE}", "tile[i ^ 1] => tile[i]")


@cuda.jit
def _scattered(x, y):
    i = cuda.threadIdx.x
    y[8 * i] = x[i] * 2.1


X = np.arange(64, dtype=np.float32)


def test_launched_runs_on_the_interpreter_and_writes_into_the_arrays():
    y = tools.poisoned(64)
    tools.launched(_double, 2, 32, X, y)
    tools.agree(y, 2 * X, "doubling")
    with pytest.raises(tools.Wrong, match="out of bounds") as wrong:
        tools.launched(_scattered, 1, 32, X, y, hints=("look",))
    assert wrong.value.hints == (tools.HAZARD_HINTS["out of bounds"], "look"), "what it does comes first"


@pytest.mark.parametrize(
    ("got", "want", "says"),
    [
        ([1.0, 2.0], [1.0, 2.0, 3.0], r"has shape \(2,\); it must have \(3,\)"),
        ([[1.0, 2.0], [3.0, 5.0]], [[1.0, 2.0], [3.0, 4.0]], r"element \[1, 1\] is 5; 4 is right. 1 of 4"),
        ([np.nan, 1.0], [0.0, 1.0], r"element \[0\] is NaN; 0 is right"),
        ([np.inf, 1.0], [0.0, 1.0], r"element \[0\] is inf"),
        ([1.0, 1.001], [1.0, 1.0], r"element \[1\] is 1\.001"),
    ],
)
def test_agree_names_the_first_difference(got, want, says):
    with pytest.raises(tools.Wrong, match=says):
        tools.agree(np.array(got), np.array(want), "it")


def test_agree_accepts_rounding_infinities_and_nans_that_are_meant():
    tools.agree(np.array([1.0000001, np.inf, np.nan]), np.array([1.0, np.inf, np.nan]), "it")
    tools.agree(np.zeros(0), np.zeros(0), "nothing")


def _outcome(kernel, want, threads=64):
    y = tools.poisoned(64)
    with pytest.raises(tools.Wrong) as wrong:
        tools.launched(kernel, 1, threads, X, y, hints=("its own",))
        tools.agree(y, want, "it", hints=("its own",))
    assert wrong.value.hints[-1] == "its own" and wrong.value.__notes__ == [f"Hint: {wrong.value.hints[0]}"]
    return str(wrong.value), wrong.value.hints[0]


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [(6918144, "bytes", "6,918,144 bytes"), (1, "sectors", "1 sector"), (2266.666667, "µs", "2,266.67 µs"),
     (float("1e300"), "bytes", "1e+300 bytes")],
)  # fmt: skip
def test_a_whole_number_is_told_with_all_its_digits(number, unit, text):
    assert tools._counted(number, unit) == text


def test_what_was_never_written_is_not_what_is_nan_and_each_kind_of_race_has_its_hint():
    text, hint = _outcome(_half, X)
    assert "element [32] was never written; 32 is right. 32 of 64" in text
    assert hint == "No thread writes these: the last 32 of 64 along axis 0."
    text, hint = _outcome(_nan, X)
    assert "element [0] is NaN; 0 is right. 64 of 64" in text
    text, hint = _outcome(_adds_up, X)
    assert "uninitialised" in text and "reads y element [0], which nothing has written" in text
    assert hint == tools.HAZARD_HINTS["uninitialised output"]
    text, hint = _outcome(_two_warps, X)
    assert "cuda.syncthreads()" in text and hint == tools.HAZARD_HINTS["race in a block"]
    text, hint = _outcome(_two_lanes, X, threads=32)
    assert "cuda.syncwarp()" in text and hint == tools.HAZARD_HINTS["race in a warp"]
    text, hint = _outcome(_two_lanes, X)
    assert hint == tools.HAZARD_HINTS["race"], "of two warps, a larger size may have other readers"
    text, hint = _outcome(_an_element_too_many, X)
    assert " writes " in text and hint == tools.HAZARD_HINTS["race of writes"], "no reader lacks a barrier"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda want: -want, "All of them have the other sign"),
        (lambda want: 3 * want, "All of them are 3 times what is right"),
        (lambda want: want + 0.5, r"All of them are off by 0\.5"),
        (lambda want: np.concatenate([want[:-1], 9 * want[-1:] + [[1, 2, 3, 4, 5]]]), "the last of 7 along axis 0"),
        (lambda want: np.where(np.arange(5) == 2, want**3, want), "axis 1 = 2 of 0..4"),
        (lambda want: np.where(np.arange(7)[:, None] % 2, want[::-1] ** 2, want), "the last element of each tile of 2"),
        (lambda want: np.where(np.arange(7)[:, None] % 6, want, want[::-1] ** 2), "the first 1 and the last 1 of 7"),
    ],
)
def test_the_first_hint_says_what_wrong_values_have_in_common(change, says):
    want = np.random.default_rng(0).uniform(1, 2, (7, 5))
    with pytest.raises(tools.Wrong) as wrong:
        tools.agree(change(want), want, "it", hints=("its own",))
    assert re.search(says, wrong.value.hints[0]) and wrong.value.hints[1:] == ("its own",)


def test_judging_an_xray():
    good = xray(_double, 2, 32, X, X.copy())
    assert tools.coalesced(good) == "4.0 sectors per request (16 in 4)"
    with pytest.raises(tools.Wrong, match="never touches z"):
        tools.coalesced(good, ["z"])
    assert tools.moves_at_most(good, 512, "") == "512 bytes moved"
    with pytest.raises(tools.Wrong, match="512 bytes are moved; 511 are enough: that is so"):
        tools.moves_at_most(good, 511, "that is so")


# the generator


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "no region"),
        ("### BEGIN SOLUTION\nx = 1\n", "line 1: the solution that begins here does not end"),
        ("x = 1\n### END SOLUTION\n", "line 2: a solution ends that never began"),
        (2 * "### BEGIN SOLUTION\n" + "### END SOLUTION\n", "line 2: a solution begins inside the one of line 1"),
        ("### BEGIN STUB\n", "line 1: a stub begins outside"),
        ("### BEGIN SOLUTION\nx = 1\n### BEGIN STUB\nx = 2\n### END SOLUTION\n", "line 4: a line of the stub is not"),
        ("### BEGIN SOLUTIONS\n", "line 1: '### BEGIN SOLUTIONS' is no marker"),
        ("### BEGIN SOLUTION\nx = (\n### END SOLUTION\n", "the solution is not Python: line 2"),
        ("if 1:\n### BEGIN SOLUTION\n    x = 1\n### END SOLUTION\n", "the exercise is not Python"),
    ],
)
def test_markers_that_do_not_pair_are_named_with_their_line(text, says):
    with pytest.raises(build.BuildError, match=re.escape(says)):
        build.exercise(text, "77_3_topic")
