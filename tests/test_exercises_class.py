"""A class's results as a table and as files of other graders; how far one is oneself."""

import argparse
import csv
import json
import os
import sys
import time

import pytest

from dwlab.judge import answer, exercises
from dwlab.judge.exercises import Result, Results


def of(student, exercise, status="passed"):
    return Result(exercise, f"{exercise}_x.py", status, "found.", student=student)


CLASS = Results((
    of("ada", "10_1"), of("ada", "10_2", "wrong"),
    of("=cmd()", "10_1", "timeout"), of("=cmd()", "10_1"),  # handed in twice
    of("jörg/late", "10_2"),
    Result("", "notes.py", "unknown", "no number", student="ada"),
))  # fmt: skip


def test_a_table_has_a_row_a_student_and_what_is_best_of_each(tmp_path):
    path = CLASS.to_csv(tmp_path / "grades.csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["student", "10_1", "10_2", "passed", "of"],
        ["ada", "passed", "wrong", "1", "2"],
        ["'=cmd()", "passed", "", "1", "2"],  # no formula in a spreadsheet
        ["jörg/late", "", "passed", "1", "2"],
    ]


def test_each_student_has_a_file_of_results_whose_names_look_alike_or_not(tmp_path):
    written = CLASS.to_results(tmp_path / "results")
    assert [one.name for one in written] == ["ada.json", "_cmd_.json", "jörg_late.json"]
    ada = json.loads(written[0].read_text(encoding="utf-8"))
    assert [(one["name"], one["score"], one["max_score"]) for one in ada["tests"]] == [("10_1", 1, 1), ("10_2", 0, 1)]
    assert "10_2: not right yet. found." in ada["tests"][1]["output"] and ada["output"] == "1 of 2 passed"
    assert json.loads(written[2].read_text(encoding="utf-8"))["tests"][0]["output"] == "not handed in"
    some = Results((of("a b", "10_1", "wrong"), of("a_b", "10_1"), of("a/b", "10_1", "wrong")))
    read = {one.name: json.loads(one.read_text(encoding="utf-8")) for one in some.to_results(tmp_path / "alike")}
    found = {name: (one["extra_data"]["student"], one["tests"][0]["score"]) for name, one in read.items()}
    assert found == {"a_b.json": ("a_b", 1), "a_b~2.json": ("a b", 0), "a_b~3.json": ("a/b", 0)}


def test_progress_says_what_is_solved_and_what_is_next(monkeypatch, capsys):
    own = Results((of("", "10_1"), of("", "10_2", "unsolved"), of("", "11_1"), of("", "12_1", "wrong")))
    monkeypatch.setattr(exercises, "grade", lambda: own)
    assert exercises.progress(argparse.Namespace(json=False)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "lesson 10  ■□  1 of 2  next: 10_2",
        "lesson 11  ■  1 of 1",
        "lesson 12  □  0 of 1  next: 12_1",
        "2 of 4 exercises solved",
    ]
    assert exercises.progress(argparse.Namespace(json=True)) == 0
    assert json.loads(capsys.readouterr().out)[0] == {"lesson": "10", "passed": 1, "exercises": 2, "next": "10_2"}


@pytest.mark.parametrize("option", ["--csv", "--results"])
def test_what_cannot_be_written_is_one_line(run, tmp_path, option):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "notes.py").write_text("", encoding="utf-8")
    (tmp_path / "file.csv").write_text("", encoding="utf-8")
    place = tmp_path / "file.csv" / ("a.csv" if option == "--csv" else "")  # a file is no folder
    status, _, err = run("grade", "--class", str(tmp_path / "in"), option, str(place))
    assert status == 2 and err.splitlines()[-1].startswith("dwlab: cannot write") and "Traceback" not in err


def test_a_class_is_graded_into_both(run, tmp_path):
    (tmp_path / "in" / "ada").mkdir(parents=True)
    solved = next(exercises.EXERCISES.glob("01_2_*.py"))
    (tmp_path / "in" / "ada" / solved.name).write_text(solved.read_text(encoding="utf-8"), encoding="utf-8")
    made = ["--csv", str(tmp_path / "g.csv"), "--results", str(tmp_path / "r")]
    status, _, err = run("grade", "--class", str(tmp_path / "in"), *made)
    assert status == 1 and "wrote" in err
    assert (tmp_path / "g.csv").read_text(encoding="utf-8").splitlines()[1] == "ada,unsolved,0,1"
    assert json.loads((tmp_path / "r" / "ada.json").read_text(encoding="utf-8"))["tests"][0]["score"] == 0


def test_what_is_wrong_is_said_once_with_all_who_handed_it_in():
    text = str(Results((of("ada", "10_1", "wrong"), of("bob", "10_1", "wrong"), of("cyd", "10_1"))))
    assert "\nada, bob: 10_1: not right yet. found.\n1 of 3 passed" in text


def test_what_is_no_python_file_is_listed(run, tmp_path):
    (tmp_path / "ada").mkdir()
    for name in ("10_1_mean.ipynb", "notes.txt"):
        (tmp_path / "ada" / name).write_text("{}", encoding="utf-8")
    links = {"ada/01_2.py": exercises.EXERCISES, "ada/10_2.py": "none", "11_1.py": exercises.known()["11_1"]}
    for name, of in links.items() if os.name == "posix" else ():  # a folder, what is not there, the judge's own file
        (tmp_path / name).symlink_to(of)
    results = exercises.grade_folder(tmp_path)
    assert [one.status for one in results] == ["unknown"] * (4 if os.name == "posix" else 1)
    assert "It is a .ipynb: the Python file of exercises/ is wanted." in str(results)
    assert all("It is a link: the file itself is wanted." in one.message for one in results if one.file[-3:] == ".py")


@pytest.mark.parametrize("limit, seconds", [("ASLEEP_S", 0.7), ("WALL_LIMIT_S", 1)])
def test_a_file_that_sleeps_is_stopped_before_the_limit_or_in_the_end(tmp_path, monkeypatch, limit, seconds):
    monkeypatch.setattr(f"dwlab.judge.answer.{limit}", seconds)
    path = tmp_path / "00_1_answer.py"
    path.write_text("import time\ntime.sleep(1000)\n", encoding="utf-8")
    began = time.monotonic()
    found = exercises._judge(path, exercises.known()["00_1"], here=False)
    assert found["status"] == "timeout" and "or it slept" in found["message"]
    assert time.monotonic() - began < 100 or not sys.platform.startswith("linux")


def answers(folder, **codes):
    """A folder of one file a student: an answer to 00_2 of these lines."""
    for student, code in codes.items():
        (folder / student).mkdir(parents=True)
        (folder / student / "00_2_sectors.py").write_text(code, encoding="utf-8")
    return folder


def one(tmp_path, code):
    """What a student's file is told."""
    (result,) = exercises.grade_folder(answers(tmp_path / "in", ada=code), seed=1)
    return result


def test_an_answer_sees_no_more_of_the_environment_than_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("DWLAB_SEED", "5")
    code = "import os\nfrom pathlib import Path\n"
    code += "raise ValueError(f'{sorted(os.environ)} {Path.home() in Path.cwd().parents}')"
    said = one(tmp_path, code).message
    assert "MY_TOKEN" not in said and "DWLAB_SEED" in said and said.endswith("True")
    others = "HOME TMPDIR PATH LANG LC_CTYPE PYTHONPATH PYTHONIOENCODING MPLBACKEND PYTHONDONTWRITEBYTECODE"
    others = {*others.split(), "SYSTEMROOT", "PWD", "_", "OLDPWD"}
    known = set(eval(said[said.index("[") : said.index("]") + 1]))
    assert {name for name in known if not name.startswith("DWLAB_")} <= others


WRITES = {
    "a file of the package": "open(dwlab.__file__, 'a')",
    "a new file": "open(os.path.join(os.path.dirname(dwlab.__file__), 'more.py'), 'x')",
    "itself, by a descriptor": "os.open(__file__, os.O_WRONLY)",
    "a name": "open('a', 'w').close()\nos.replace('a', __file__)",
    "what is taken away": "os.remove(__file__)",
    "its text": "import pathlib\npathlib.Path(__file__).write_text('')",
    "a database": "import sqlite3\nsqlite3.connect(__file__ + '.db')",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("in")
    code = {
        what.replace(" ", "_"): f"import os, dwlab\nopen('own', 'w').write('x')\n{how}" for what, how in WRITES.items()
    }
    return {one.student: one for one in exercises.grade_folder(answers(folder, **code), seed=1)}


@pytest.mark.parametrize("what", WRITES)
def test_an_answer_writes_in_its_own_folder_alone(written, what):
    result = written[what.replace(" ", "_")]
    assert result.status == "error" and "and nowhere else" in result.message, str(result)


# Past Python, where no hook sees it.
PATCH = """
import ctypes
libc = ctypes.CDLL(None)
file = libc.open({}.encode(), 1 | 1024)
libc.write(file, b"# more", 6)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="written for its C library")
@pytest.mark.parametrize("fence", [(), None])
def test_grading_stops_where_an_answer_changed_what_it_is_judged_by(run, tmp_path, monkeypatch, fence):
    if fence is None and not answer.fence():
        pytest.skip("no bubblewrap here that works")
    other = tmp_path / "in" / "bob" / "00_2_sectors.py"
    folder = answers(tmp_path / "in", ada=PATCH.format(repr(str(other))), bob="x = 1\n")
    if fence is None:
        assert exercises.grade_folder(folder, seed=1).fence.startswith("Fence: bubblewrap")
        assert other.read_text(encoding="utf-8") == "x = 1\n"
        return
    monkeypatch.setenv("PATH", "/nowhere")
    answer.fence.cache_clear()
    status, out, err = run("grade", "--class", str(folder), "--csv", str(tmp_path / "a.csv"))
    answer.fence.cache_clear()
    assert status == 2 and not (tmp_path / "a.csv").exists() and "# more" in other.read_text(encoding="utf-8")
    assert "00_2_sectors.py changed about when 00_2_sectors.py of" in err and "restore these files" in err


def test_the_table_says_which_fence_held(tmp_path, monkeypatch):
    folder = answers(tmp_path / "in", ada="x = (\n")
    for found, says in ((("bwrap",), "Fence: bubblewrap."), ((), "Fence: ")):
        monkeypatch.setattr(exercises, "fence", lambda found=found: found)
        assert f"\n{says}" in str(exercises.grade_folder(folder))
    assert "Fence" not in str(exercises.grade_files([("", "00_2", folder / "ada" / "00_2_sectors.py")]))
