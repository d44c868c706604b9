"""The lessons as files: built from their sources, executed, comparable on any machine. And the tool that builds them.

What the cells show is compared by `pytest --nbval notebooks/`, not here.
"""

import ast
import copy
import difflib
import functools
import re
import textwrap
from pathlib import Path

import nbformat
import pytest
from copies import needs_solutions, worked_on
from test_exercises import ROOT, build

from dwlab.measure.counters import METRICS

build.lesson = functools.cache(build.lesson)  # nobody changes what it gives of the project's sources

SOURCES = sorted((ROOT / "notebooks" / "src").glob("*.py"))
IDS = [s.stem for s in SOURCES]
# Absolute paths of Linux, macOS, Windows, and of a kernel's temporary files.
PATH = re.compile(r"(?<![\w.~/:])/(?:home|root|Users|tmp|work|var|opt|private|mnt|srv)/\w|\b[A-Z]:\\\w|ipykernel_\d")


def code(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def tags(cell):
    return cell.metadata.get("tags", [])


def texts(cell):
    """The text of all outputs but pictures."""
    for output in cell.outputs:
        yield output.get("text", "")
        for kind, data in output.get("data", {}).items():
            if not kind.startswith("image/"):
                yield re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "", data)


def text_of(notebook) -> str:
    return "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")


@functools.cache
def stored(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def built(source: Path) -> nbformat.NotebookNode:
    """The notebook of a lesson. Skips one that a reader has run and saved: editors add metadata, the build does not."""
    path = ROOT / "notebooks" / f"{source.stem}.ipynb"
    notebook = stored(path)
    if notebook.metadata != build.METADATA and worked_on(path):
        pytest.skip("it was worked on here")
    return notebook


@pytest.fixture(params=SOURCES, ids=IDS)
def source(request):
    return request.param


@pytest.fixture
def lesson(source):
    return built(source)


# every lesson


@needs_solutions
def test_there_are_lessons_and_each_notebook_has_a_source():
    assert SOURCES
    assert list(build.orphans()) == []


@needs_solutions
def test_a_notebook_is_what_its_source_and_its_stages_say(source):
    built(source)
    assert list(build.lesson_differences(source)) == []


WINNERS = {  # the kernel that wins for a lesson's operator: its text is in the lesson
    "28_halo_2d": "depthwise2d/forward/columns", "31_operands_in_time": "pointwise/forward/tensor",
    "34_int8": "pointwise/forward/int8", "38_fused_winner": "fused/dwpw/slide",
}  # fmt: skip


@pytest.mark.parametrize("name", WINNERS)
def test_a_lesson_shows_the_kernel_that_wins(name):
    op, path, last = WINNERS[name].split("/")
    (file,) = (ROOT / "dwlab" / "kernels" / op).glob(f"{path}_*_{last}.py")
    kernel = file.read_text(encoding="utf-8").split("@by_shape\n")[1].split("\n\n\n")[0]
    assert "\n    def kernel(" in kernel
    assert any(kernel in cell.source for cell in built(ROOT / f"notebooks/src/{name}.py").cells)


def test_a_notebook_is_valid_small_executed_in_order_and_compares_something(lesson):
    nbformat.validate(lesson)
    assert len(nbformat.writes(lesson)) < 1_500_000
    # nbval compares nothing in a cell without a count
    assert [c.execution_count for c in code(lesson)] == list(range(1, len(code(lesson)) + 1))
    assert len([c for c in code(lesson) if "nbval-ignore-output" not in tags(c) and c.outputs]) >= 5
    build.too_wide(lesson, "lesson")


def test_what_depends_on_the_machine_says_of_which_it_is(lesson):
    for cell in code(lesson):
        first = cell.outputs[0].get("data", {}).get("text/plain", "") if cell.outputs else ""
        measured = bool(cell.outputs) and "nbval-ignore-output" in tags(cell) and not cell.source.startswith("grade(")
        if measured and "\ngrade(" not in cell.source:
            assert re.fullmatch(r"Stored output of an? .+: run the cell for your own\.", first), cell.source
        else:
            assert not first.startswith("Stored output of"), cell.source


def test_the_profilers_names_are_those_that_counters_are_read_by():
    source = (ROOT / "notebooks/src/02_the_machine.py").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:l1tex|smsp|sm|dram|gpu)__[\w.]+)`", source))
    read = {metric for metrics in METRICS.values() for metric in metrics}
    assert len(named & read) >= 5 and named - read == {  # those of Nsight Compute that this project does not read
        "gpu__time_duration.sum",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    }


WIDGETS = re.compile(r"^(?:warp_viewer|traffic_calculator|roofline_explorer|fuse_planner)\(.*\)$", re.M)


@pytest.mark.parametrize("name", ["00_puzzles", "01_the_operator", "33_fuseplanner"])
def test_a_stored_widget_shows_what_it_shows_now(name):
    # What it draws comes from the records, and new ones make a lesson that was built before them stale.
    pytest.importorskip("ipywidgets")
    from dwlab import roofline_explorer, widgets

    names = {one: getattr(widgets, one) for one in widgets.__all__}
    shown = [(c, m[0]) for c in code(built(ROOT / f"notebooks/src/{name}.py")) if (m := WIDGETS.search(c.source))]
    assert shown
    for cell, call in shown:
        stored = "".join(o.get("data", {}).get("text/plain", "") for o in cell.outputs)
        now = eval(call, names | {"roofline_explorer": roofline_explorer}).panel.text()
        assert now in stored, f"{name}, In [{cell.execution_count}] is stale: build the lesson anew"


def test_no_error_and_no_path_of_a_machine_is_stored(lesson):
    for cell in code(lesson):
        errors = [o for o in cell.outputs if o.output_type == "error"]
        assert bool(errors) == ("raises-exception" in tags(cell)), cell.source
    for cell in lesson.cells:
        for text in [cell.source, *(texts(cell) if cell.cell_type == "code" else ())]:
            assert not PATH.search(text), PATH.search(text)


def test_compared_cells_show_no_picture_and_nothing_of_the_mode(lesson):
    for cell in code(lesson):
        if "nbval-ignore-output" in tags(cell):
            continue
        for output in cell.outputs:
            data = output.get("data", {})
            assert set(data) <= {"text/plain", "text/html", "text/markdown"}, cell.source
            assert "<img" not in data.get("text/html", ""), "a picture differs between versions of matplotlib"
            assert output.get("name", "stdout") == "stdout", "a warning would differ between versions"
        assert not re.search(r"\bmode\b|shown\(\)|measure\(|time_launches|records\.", cell.source), cell.source
        assert not re.search(r"0x[0-9a-f]{6,}|\bµs ±", "".join(texts(cell)))


def test_predictions_are_shown_in_cells_that_are_not_compared(lesson):
    # a student's own numbers must not fail the lesson
    names = {n for c in code(lesson) for n in re.findall(r"^(predicted_\w+) *=", c.source, re.M)}
    assert names, "a lesson asks for a prediction"
    shown = set()
    for cell in code(lesson):
        # in a cell of its own, or its answer would appear with it
        assert not cell.outputs or not re.search(r"^predicted_\w+ *=", cell.source, re.M), cell.source
        used = {n for n in names if re.search(rf"\b{n}\b(?! *=[^=])", cell.source)}
        assert not used or "nbval-ignore-output" in tags(cell), (used, cell.source)
        shown |= used
    assert shown == names, "each prediction is set beside what was counted or measured"


def test_pictures_have_alt_text_and_nothing_is_drawn_past_it(lesson):
    for cell in code(lesson):
        for output in cell.outputs:
            data = output.get("data", {})
            assert "image/png" not in data, "show a figure through with_alt(figure, text)"
            for image in re.findall(r"<img[^>]*>", data.get("text/html", "")):
                alt = re.search(r"alt=(['\"])(.*?)\1", image)
                assert alt and len(alt[2]) > 40
            for drawing in re.findall(r"<svg.*?</svg>", data.get("text/html", ""), re.S):
                title = re.match(r'<svg role="img"[^>]*><title>([^<]*)</title>', drawing)
                assert title and len(title[1]) > 40


@needs_solutions
def test_a_lesson_has_the_moves(source):
    text = text_of(built(source))
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    for move in ("Question", "Predict", "Build", "Check", "X-ray", "Measure", "Explain", "Key points", "Exercises"):
        assert any(h.lower().startswith(move.lower()) for h in headings), f"{source.stem} has no heading {move}"
    for word in ("**Time**", "**Before**", "**Afterwards you can**"):
        assert word in text
    asked = set(re.findall(r"<!-- begin:exercise:(\d\d_\d+) -->", text))
    assert asked == {f.stem[:4] for f in (ROOT / "solutions").glob(f"{source.stem[:2]}_*.py")} and len(asked) >= 2


def test_the_words_at_a_lessons_end_are_in_the_glossary(lesson):
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    known = {term for cell in re.findall(r"^\| ([^|]+) \|", glossary, re.M) for term in cell.split(", ")}
    (words,) = re.findall(r"Words: \[glossary\]\(\.\./docs/glossary\.md\): (.+)\.", text_of(lesson))
    assert len(words.split(", ")) >= 3 and set(words.split(", ")) <= known


@needs_solutions
def test_a_lesson_states_the_time_that_its_load_takes(source, lesson):
    stated = int(re.search(r"\| \*\*Time\*\* \| about (\d+) minutes", lesson.cells[0].source)[1])
    assert stated == build.loads()[source.stem].stated, "the load: python notebooks/build.py --load"
    assert stated <= build.MOST_MINUTES, "too much for one lesson: split it"


def test_the_core_takes_eight_hours_and_plans_take_what_they_say():
    from dwlab.widgets.workbook import FIRST_LESSON

    course = build.course
    core = list(course.COURSE[course.CORE])
    assert sorted(name for part in course.COURSE.values() for name in part) == IDS
    assert core == sorted(core) and len(core) == 12 and FIRST_LESSON == f"exercises/{core[0]}.ipynb"
    assert sum(map(course.minutes, core)) <= 8 * 60, course.plans()
    for hours, numbers in course.PLANS.items():
        assert sum(course.minutes(name, exercise=False) for name in core if name[:2] in numbers) <= hours * 60
    assert {n[:2] for name in core for n in course.COURSE[course.CORE][name][1:]} <= {name[:2] for name in core}
    assert course.loads()[core[0]].blanks[0] <= 3, "minutes for the first puzzle"


def test_students_write_whole_kernels_and_a_third_of_the_core():
    """Of kernels whose body is empty, but for arrays and indices in front, and judged right below."""
    wrote = {}
    for source in SOURCES[1:]:  # the puzzles have a test of their own
        whole, copy = code(build.lesson(source)), code(build.lesson(source, student=True))
        for place, (theirs, ours) in enumerate(zip(copy, whole, strict=True)):
            blank = [one for one in kernels(theirs.source) if "NotImplementedError" in ast.unparse(one.body[-1])]
            for one in blank if build.BLANK in theirs.source else ():
                (answer,) = (other for other in kernels(ours.source) if other.name == one.name)
                if len(ast.unparse(answer).split("\n")) - len(ast.unparse(one).split("\n")) >= 5:
                    wrote[source.stem, one.name] = ast.unparse(answer)
                    judged = "\n".join(cell.source for cell in copy[place : place + 2])
                    assert re.search(r"\bcheck\(|\bagree\(|assert_|assert \(off", judged), (source.stem, one.name)
    assert len(wrote) >= 16
    assert sum("copy4_async" in text or "mma" in text or "multiply(" in text for text in wrote.values()) >= 4
    assert int(re.search(r"(\d+) %\.$", build.course.plans())[1]) >= 33


def kernels(text: str) -> list[ast.FunctionDef]:
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return [one for one in functions if any("cuda.jit" in ast.unparse(of) for of in one.decorator_list)]


def test_the_load_counts_words_lines_and_cells():
    def cell(kind, source, **more):
        return nbformat.v4.new_code_cell(source, **more) if kind else nbformat.v4.new_markdown_cell(source)

    shown = [nbformat.v4.new_output("stream", text="6")]
    kernel = "@cuda.jit\ndef k(x):\n    # why\n    x[0] = 1\n    x[1] = 2\n    x[2] = 3\n\nk[1, 32](x)\na = 1"
    cells = [
        cell(0, "# Two words\n| a table | of words |\n| --- | ---: |\n| | |\n| 1 | 2 |\n```python\na = 1\nb = 2\n```"),
        cell(0, "four words are here\n<!-- begin:exercise:00_1 -->\nnot these\n<!-- end:exercise:00_1 -->"),
        cell(1, kernel, outputs=shown),
        cell(1, "predicted_a, predicted_b = 1, 2"),
        cell(1, "a = 1\nc = 2", metadata={"tags": ["stage:op/path/name"]}),
        cell(1, 'from dwlab import grade\n\ngrade("00_1")', outputs=shown),
        cell(1, "a = 1\nb = look(a)\nb", metadata={"jupyter": {"source_hidden": True}}, outputs=shown),
    ]
    copy = [*cells]
    copy[2] = cell(1, kernel.replace("    x[1] = 2\n    x[2] = 3", f"    {build.BLANK}"))
    copy[3] = cell(1, build.text_of_student(cells[3].source))
    load = build.load(*(nbformat.v4.new_notebook(cells=one) for one in (cells, copy)), known={"x[0] = 1"})
    # Of text a and b; of the kernel three lines, without what is known, stood above, or is a blank's two; c
    assert (load.words, load.rows, load.lines, load.cells, load.folded) == (6, 2, 2 + 3 + 1, 2, 3)
    assert (load.kernel_lines, load.blanks, load.predictions) == (5 + 2, (2,), 2)
    assert load.minutes == pytest.approx(6 / 150 + (6 + 2) / 12 + 2 * 12 / 60) and load.doing == 2 + 2
    assert build.Load(150 * 22, 0, 0, 0).stated == 20 and build.Load(150 * 23, 0, 0, 0).stated == 25


def test_a_blank_filled_wrong_is_told_which_element_is_wrong(source):
    """A bare `assert np.array_equal(...)` after a blank says nothing: exercises.agree and check say what and where."""
    judged, after = True, []
    for cell in build.lesson(source, student=True).cells:
        if cell.cell_type == "code":
            judged = judged and "replace this line with your code" not in cell.source
            judged = judged or bool(re.search(r"\bcheck\(|raise_if_wrong|\bagree\(|assert_\w+\(", cell.source))
            bare = re.findall(r"assert .*(?:array_equal|allclose|\bany\(|\ball\()[^\"]*$", cell.source, re.M)
            after += [] if judged else bare
    assert after == []


# the student's copies


@needs_solutions
def test_a_students_copy_with_the_answers_is_the_teachers(source):
    """Cell by cell the same text, but for predictions and blanks; and nothing is answered or stored in it."""
    path = ROOT / "exercises" / f"{source.stem}.ipynb"
    if list(build.student_differences(source)) and worked_on(path):
        pytest.skip("it was worked on here")
    assert list(build.student_differences(source)) == []
    copy, whole = nbformat.read(path, as_version=4), build.lesson(source)
    assert [c.cell_type for c in copy.cells] == [c.cell_type for c in whole.cells]
    asked = set()
    for mine, teachers in zip(copy.cells, whole.cells, strict=True):
        assert not mine.get("outputs") and "### " not in teachers.source * (mine.cell_type == "code")
        if mine.source == teachers.source:
            continue
        names = assigned(mine)
        assert mine.cell_type == "code" and (names or build.BLANK in mine.source), mine.source
        asked |= names
        for line in difflib.ndiff(mine.source.split("\n"), teachers.source.split("\n")):
            assert line[0] != "-" or line[2:].strip().startswith(
                ("predicted_", "# Your ", "raise NotImpl", "assert ... not in [", "assert all(isinstance(")
            ), line
        if names:
            with pytest.raises(AssertionError, match="write your prediction down first"):
                exec(mine.source, {})
            exec(re.sub(r"(?<=[ :])\.\.\.(?=[,}\n])", "1", mine.source), {})
    assert asked == set().union(*map(assigned, code(whole))), "each prediction is asked for"


def answered(source: Path, blanks: bool) -> nbformat.NotebookNode:
    """The student's copy of a lesson, with all predictions 1; blanks: and with the source's answers in the blanks."""
    filled, whole = copy.deepcopy(build.lesson(source, student=True)), build.lesson(source)
    for mine, teachers in zip(filled.cells, whole.cells, strict=True):
        if blanks and build.BLANK in mine.source:
            mine.source = teachers.source
        if assigned(mine):
            mine.source = re.sub(r"(?<=[ :])\.\.\.(?=[,}\n])|(?<= = )\.\.\.$", "1", mine.source, flags=re.M)
    return filled


@needs_solutions
def test_a_students_copy_with_its_blanks_filled_in_shows_what_the_teachers_does():
    name = "02_the_machine"
    source = ROOT / "notebooks" / "src" / f"{name}.py"
    copy, teachers = answered(source, blanks=True), built(source)
    build.execute(copy, name)
    build.clean(copy, name)
    compared = 0
    for mine, other in zip(code(copy), code(teachers), strict=True):
        if "nbval-ignore-output" not in tags(other):
            assert sorted(texts(mine)) == sorted(texts(other)), other.source
            compared += bool(other.outputs)
    assert compared >= 5


@needs_solutions
def test_a_blank_that_is_not_filled_in_is_named_where_it_stands():
    """Predictions that are not: above, with each cell that asks for one."""
    source = ROOT / "notebooks" / "src" / "02_the_machine.py"
    says = r"transpose, line \d+: `raise NotImplementedError\(.replace this line with your code"
    with pytest.raises(build.BuildError, match=says):
        build.execute(answered(source, blanks=False), "02")


def assigned(cell) -> set[str]:
    """The names of the predictions that a cell assigns."""
    if cell.cell_type != "code":
        return set()
    names = (n for n in ast.walk(ast.parse(cell.source)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return {n.id for n in names if n.id.startswith("predicted_")}


SINGULAR = re.compile(r"(?<![\w.,×/^+−-])(?<![\d×+−-] )1 ([a-z]{3,}s)\b(?! a)")  # but "1 × 4 warps a channel"
VERBS = {"adds", "comes", "follows", "passes", "reads", "writes"}


def test_one_of_a_kind_is_not_called_many(lesson):
    said = [text for c in lesson.cells for text in (texts(c) if c.cell_type == "code" else (c.source,))]
    assert not {m for text in said for m in SINGULAR.findall(text)} - VERBS


@needs_solutions
def test_each_lesson_leads_to_the_next():
    for source, following in zip(SOURCES, SOURCES[1:], strict=False):
        assert f"]({following.stem}.ipynb)" in built(source).cells[-1].source, source.stem


def test_links_lead_somewhere(lesson):
    later = re.compile(r"[12]\d_\w+\.ipynb")  # a next lesson may be named before it is written
    for cell in lesson.cells:
        text = re.sub(r"`[^`]*`", "", cell.source) if cell.cell_type == "markdown" else ""
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            written = (ROOT / "notebooks" / "src" / link).with_suffix(".py").exists()
            assert (ROOT / "notebooks" / link).exists() or (later.fullmatch(link) and not written), link


def test_a_link_to_a_lesson_has_its_title():
    titles = {source.stem: re.search(r"^# # (.*)$", source.read_text(encoding="utf-8"), re.M)[1] for source in SOURCES}
    found = [
        (source.stem, text, titles[target])
        for source in SOURCES
        for text, target in re.findall(r"\[(\d\d · [^\]]+)\]\((\w+)\.ipynb\)", source.read_text(encoding="utf-8"))
    ]
    assert len(found) > len(SOURCES)  # most lessons name the one before and the next
    assert [one for one in found if one[1] != one[2]] == []


# the tool


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """The tool in a folder of its own."""
    for name in ("NOTEBOOKS", "SOURCES", "EXERCISES", "SOLUTIONS"):
        folder = tmp_path / getattr(build, name).relative_to(ROOT)
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(build, name, folder)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "lesson", build.lesson.__wrapped__)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


LESSON = """
    # %% [markdown]
    # # A lesson

    # %%
    a = 6

    # %% tags=["nbval-ignore-output"]
    print(a * 7)
"""


def test_a_lesson_is_built_executed_and_then_up_to_date(workshop, capsys):
    source = write(build.SOURCES, "90_small.py", LESSON)
    assert build.main([]) == 0 and "90_small.ipynb" in capsys.readouterr().out
    notebook = nbformat.read(workshop / "notebooks" / "90_small.ipynb", as_version=4)
    assert [c.cell_type for c in notebook.cells] == ["markdown", "code", "code"]
    assert [c.execution_count for c in code(notebook)] == [1, 2]
    assert notebook.cells[2].outputs[-1].text == "42\n" and tags(notebook.cells[2]) == ["nbval-ignore-output"]
    assert notebook.metadata == build.METADATA
    assert build.main(["--check"]) == 0

    before = (workshop / "notebooks" / "90_small.ipynb").read_text()
    write(build.SOURCES, "90_small.py", LESSON.replace("a = 6", "a = 5"))
    capsys.readouterr()
    assert build.main(["--check"]) == 1
    assert "90_small.ipynb: 1 cell(s) changed, from the one that starts: a = 6" in capsys.readouterr().out
    assert (workshop / "notebooks" / "90_small.ipynb").read_text() == before, "--check writes nothing"
    ids = [c["id"] for c in build.lesson(source).cells]
    assert [c["id"] for c in notebook.cells][::2] == ids[::2], "cells that did not change keep their ids"


def test_a_lesson_that_is_opened_has_all_that_the_kernel_says_of_itself():
    # JupyterLab sets language_info to the kernel's: what is missing or other makes a lesson changed by opening it.
    kernel = pytest.importorskip("ipykernel.ipkernel").IPythonKernel.language_info
    stored = build.METADATA["language_info"]
    assert {**stored, "version": kernel["version"]} == kernel and re.fullmatch(r"3\.\d+\.\d+", stored["version"])


def test_stored_outputs_of_measured_cells_have_a_label_and_no_others(workshop, monkeypatch):
    more = """
    # %% tags=["nbval-ignore-output"]
    b = a

    # %%
    print("the same everywhere")

    # %% tags=["nbval-ignore-output"]
    def grade(name):
        return name

    grade("00_1")
    """
    write(build.SOURCES, "90_small.py", LESSON + more)
    monkeypatch.setattr(build, "this_machine", lambda: "an NVIDIA <H200>")
    assert build.main(["90"]) == 0
    cells = code(nbformat.read(workshop / "notebooks" / "90_small.ipynb", as_version=4))
    labels = ["".join(o.get("data", {}).get("text/plain", "") for o in c.outputs[:1]) for c in cells]
    assert labels == ["", "Stored output of an NVIDIA <H200>: run the cell for your own.", "", "", "'00_1'"]
    assert "&lt;H200&gt;" in cells[1].outputs[0].data["text/html"] and cells[1].outputs[1].text == "42\n"


KEPT = (
    LESSON
    + """
    # %%
    print(a + 1)

    # %% tags=["nbval-ignore-output"]
    print(a * 8)
"""
)


CHANGES = [  # what is written anew, the cells that are new by it, whether the lesson is executed
    (("# # A lesson", "# # Another title"), [0], False),
    (("a * 8", "a * 9"), [4], True),
    (("print(a + 1)", "print(a + 2)"), [3], True),
    (("# # A lesson", "# # A lesson\n\n    # %%\n    b = 1"), [1], True),
]


def test_keep_takes_texts_anew_and_leaves_what_a_gpu_printed(workshop, monkeypatch):
    monkeypatch.setattr(build, "this_machine", lambda: "an NVIDIA H200")
    write(build.SOURCES, "90_small.py", KEPT)
    assert build.main(["90", "--keep"]) == 0, "without a notebook it is a build like any other"
    path = workshop / "notebooks" / "90_small.ipynb"
    before = nbformat.read(path, as_version=4)
    for cell in code(before):
        if "nbval-ignore-output" in tags(cell):
            cell.outputs[-1].text = "only that GPU printed this\n"
    old = {c.source: c for c in before.cells}

    monkeypatch.setattr(build, "this_machine", lambda: "a machine without a GPU")
    runs, execute = [], build.execute
    monkeypatch.setattr(build, "execute", lambda *given: (runs.append(1), execute(*given)))
    for change, new, executed in CHANGES:
        nbformat.write(before, path)
        runs.clear()
        assert change[0] in KEPT
        write(build.SOURCES, "90_small.py", KEPT.replace(*change))
        assert build.main(["90", "--keep"]) == 0 and bool(runs) == executed, change
        assert build.main(["90", "--check"]) == 0
        after = nbformat.read(path, as_version=4)
        assert [c.execution_count for c in code(after)] == list(range(1, len(code(after)) + 1))
        assert [n for n, c in enumerate(after.cells) if c.source not in old] == new
        for cell in code(after):
            said = "".join(texts(cell))
            if cell.source in old:
                assert said == "".join(texts(old[cell.source])), "the outputs of a cell that is as it was"
            elif "nbval-ignore-output" in tags(cell):
                assert "a machine without a GPU" in said and said.endswith("54\n")
            else:
                assert said in ("8\n", "")


def test_a_folded_cell_is_closed_in_both_copies_and_keeps_what_it_showed(workshop, monkeypatch, capsys):
    write(build.SOURCES, "90_small.py", LESSON)
    assert build.main(["90"]) == 0
    folded = LESSON.replace('["nbval-ignore-output"]', '["nbval-ignore-output", "folded"]')
    write(build.SOURCES, "90_small.py", folded)
    assert build.main(["90", "--check"]) == 1 and "1 cell(s) changed" in capsys.readouterr().out
    assert build.main(["90", "--keep"]) == 0 and build.main(["90", "--check"]) == 0
    for folder in (build.NOTEBOOKS, build.EXERCISES):
        cells = code(nbformat.read(folder / "90_small.ipynb", as_version=4))
        assert [build.hidden(c) for c in cells] == [False, True] and tags(cells[1]) == ["nbval-ignore-output"]


def test_a_kernel_is_folded_behind_one_that_the_student_writes(workshop):
    own = "@cuda.jit\ndef k(x):\n    ### BEGIN SOLUTION\n    x[0] = 1\n    ### END SOLUTION\n"
    read = "@cuda.jit\ndef general(x):\n    x[0] = 1\n"
    write(build.SOURCES, "90_small.py", f'# %%\nfrom dwlab import cuda\n# %%\n{own}\n# %% tags=["folded"]\n{read}')
    assert [build.hidden(cell) for cell in build.lesson(build.SOURCES / "90_small.py").cells] == [False, False, True]


def test_a_line_that_a_page_would_break_stops_the_build(workshop, capsys):
    wide = "12,345 " * 20
    write(build.SOURCES, "90_small.py", LESSON.replace("print(a * 7)", f"print('short'); print({wide!r})"))
    assert build.main(["90"]) == 1
    said = capsys.readouterr().err
    assert "In [2]: a printed line has 14" in said and "tabular.wrapped()" in said
    shown = nbformat.v4.new_output("execute_result", {"text/plain": wide})
    cell = nbformat.v4.new_code_cell(outputs=[shown], execution_count=2)
    with pytest.raises(build.BuildError, match="a printed line has 140"):  # compared, and no text on stdout
        build.too_wide(nbformat.v4.new_notebook(cells=[cell]), "90")
    shown.data["text/html"] = "a table that scrolls"
    build.too_wide(nbformat.v4.new_notebook(cells=[cell]), "90")


def test_check_names_what_is_missing_and_what_is_left_over(workshop, capsys):
    write(build.SOURCES, "90_small.py", LESSON)
    write(build.NOTEBOOKS, "91_orphan.ipynb", "{}")
    write(build.EXERCISES, "91_1_orphan.py", "")
    assert build.main(["--check"]) == 1
    said = capsys.readouterr().out
    assert "90_small.ipynb is not built" in said
    assert "notebooks/91_orphan.ipynb has no source in notebooks/src" in said
    assert "exercises/91_1_orphan.py has no source in solutions" in said


def region(name):
    return f"# <!-- begin:{name} -->\n    # <!-- end:{name} -->"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('"nbval-ignore-output"', '"nbval-ignore-outputs"'), "there is no tag 'nbval-ignore-outputs'"),
        (("a = 6", ""), "an empty code cell"),
        (("%%\n    a = 6", '%% tags=["stage:depthwise1d/forward/naive"]\n    a = 6'), "must be empty here"),
        (("%%\n    a = 6", '%% tags=["stage:depthwise1d/forward/naif"]'), "cell 2: there is no stage .*naive"),
        (("a = 6", "### BEGIN SOLUTION\n    a = 6"), "the solution that begins here does not end"),
        (('"nbval-ignore-output"', '"blank:a ="'), "blank: is for the text of a stage"),
        (
            ("%%\n    a = 6", '%% tags=["stage:depthwise1d/forward/naive", "blank:acc -="]'),
            "no line of the stage begins with 'acc -='",
        ),
        (("# # A lesson", "# <!-- begin:no/such/table -->\n    # <!-- end:no/such/table -->"), "no table is named"),
        (("# # A lesson", "# <!-- begin:ceilings -->"), "begin:NAME --> needs its <!-- end:NAME -->"),
        (("# # A lesson", region("kernel:depthwise1d/forward/naif")), "there is no stage .*naive"),
        (("# # A lesson", region("function:dwlab.planner:partitions")), "names no function"),
        (("# # A lesson", region("function:dwlab.plan:partition")), "names no function"),
        # What a student writes or reads is not folded.
        (("%%\n    a = 6", '%% tags=["folded"]\n    predicted_a = 6'), "is not folded"),
        (("%%\n    a = 6", '%% tags=["folded"]\n    @cuda.jit\n    def k(x):\n        x[0] = 1'), "is not folded"),
        (("%%\n    a = 6", '%% tags=["folded"]\n    ### BEGIN SOLUTION\n    b\n    ### END SOLUTION'), "is not folded"),
        (("a * 7", "a / 0"), "ZeroDivisionError"),
    ],
)
def test_sources_that_cannot_be_built_are_refused_by_name_and_nothing_is_written(workshop, capsys, change, says):
    assert change[0] in LESSON
    write(build.SOURCES, "90_small.py", LESSON.replace(*change))
    assert build.main(["90"]) == 1
    said = capsys.readouterr().err
    assert re.search(says, said) and "90_small" in said and "\x1b" not in said
    assert not (workshop / "notebooks" / "90_small.ipynb").exists()


def test_paths_are_taken_out_of_ignored_cells_and_refused_in_compared_ones(workshop, capsys):
    shown = LESSON.replace("print(a * 7)", "print(__import__('os').path.abspath('x'))")
    write(build.SOURCES, "90_small.py", shown)
    assert build.main(["90"]) == 0
    notebook = nbformat.read(workshop / "notebooks" / "90_small.ipynb", as_version=4)
    assert notebook.cells[2].outputs[-1].text.strip() == str(Path("notebooks/x"))
    write(build.SOURCES, "90_small.py", shown.replace(' tags=["nbval-ignore-output"]', ""))
    assert build.main(["90"]) == 1
    assert "holds a path of this machine" in capsys.readouterr().err
