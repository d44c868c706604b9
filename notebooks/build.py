"""Builds the lessons and the exercises: `python notebooks/build.py [--check | --keep | --load] [NAMES]`.

A name is a lesson (`01`, `01_the_operator`) or an exercise (`01_2`, `01_2_floor`); without names, everything is built.
A lesson is executed as it is built, in the mode of this machine (DWLAB_TARGET decides, as always). `--check` builds and
executes nothing: it says what differs from its source and ends with status 1 if anything does. `--keep` is for a text
that changes where a lesson's outputs are a GPU's and there is none here: of a code cell that is as it was the stored
outputs stay, with their label. A lesson whose text or exercises alone changed is not executed; otherwise all is, for
the cells that changed and for those that nbval compares. A measured cell that stays and needs what a changed one makes
is the author's to look at. What is written here is held by tests/test_lessons.py and tests/test_exercises.py.

**A lesson** is written in notebooks/src/NN_topic.py, in jupytext's percent format: `# %%` starts a code cell,
`# %% [markdown]` a text cell (its lines are comments), and tags stand behind: `# %% tags=["nbval-ignore-output"]`.
It is built into two notebooks: notebooks/NN_topic.ipynb, the teacher's, is executed; exercises/NN_topic.ipynb, the
student's, has no outputs. In the student's each `predicted_... = ` of a cell is empty, and the cell raises until all are
filled in; and where a cell has `### BEGIN SOLUTION` … `### END SOLUTION`, as in an exercise, there is a blank. There are
these kinds of tags:
- `stage:OP/PATH/NAME`: the cell stays empty in the source; the build fills in the text of that stage's file, constants
  and kernel (`Stage.source()`). An earlier cell imports what it needs: `cuda`, and `float32`, `int32` from numba.
- `blank:TEXT`, with the one before: in the student's copy the lines of the stage that begin so are a blank.
- `nbval-ignore-output`: nbval runs the cell and does not compare what it shows. For everything that is measured, that
  depends on the mode or on the records, that shows a student's prediction, or that draws.
- `raises-exception`: the cell must raise; nbval compares the kind of error and its text.
- `folded`: JupyterLab shows the cell closed, one click from open, and its output as always. For code that prints, draws
  or prepares, for a stage without blanks, and for any other kernel behind one that the student has written; not for a
  prediction or a blank. `--load` counts its output, not its lines.

All other cells are compared, on GPU runners too. What they show must be the same in both modes, on every run, and with
every version of NumPy and matplotlib: text on stdout, whole or rounded numbers, counts of the interpreter, no warnings.

Text cells may hold regions that the build writes, between `<!-- begin:NAME -->` and `<!-- end:NAME -->`; in the source
nothing stands between the two. NAME is a table of docs/tables (`ceilings`, `depthwise1d/forward`, ...:
`tables.tables()`); `exercise:01_2`: title, task and file of an exercise, from its solution's docstring; or the text of
a function, to be read and not run: `kernel:OP/PATH/NAME`, a stage's, and `function:MODULE:NAME`, any other.

The moves, each a heading that starts with its word: a table with **Time** (`--load` says what it is), **Before** and
**Afterwards you can**; Question; Predict (the student writes numbers into names `predicted_...`; what is stored is a
first guess, often a wrong one); Build; Check; X-ray; Measure; Explain, the gap between prediction and measurement;
Exercises, each with its region and a cell `grade("NN_k")`, which is not compared, since students change those files.
What is printed fits a page: the build stops at a line of more than 88 characters. Sentences are wrapped
(`tabular.wrapped`), tables are shown and scroll (`tabular.columns`, `tabular.Columns`). To the outputs of cells tagged
`nbval-ignore-output` the build adds a line that says of which machine they are.
The naive way fails first, where it can be seen. A check is a call that raises: `check(...).raise_if_wrong()`,
`report.raise_hazards()`, `assert`. A figure goes through `dwlab.simt.views.with_alt(figure, text)`, has its numbers
in a table that is printed beside it, and takes its colours and line styles from dwlab.simt.views.

**An exercise** is written once, in solutions/NN_k_topic.py. What a student fills in, exercises/NN_k_topic.py, is
generated from it as far as the statement in which its last answer ends; exercises/judges/NN_k_topic.py, which judges and
has the hints, is all of it without the answer:
- between `### BEGIN SOLUTION` and `### END SOLUTION` stands the answer; the exercise has a stub there, by default one
  line that raises NotImplementedError and says what to do;
- after `### BEGIN STUB`, as the last part of that region and commented out, may stand another stub, such as
  `# a = None` for a number to predict;
- the docstring is the task: its first line the title, then the text that the lesson shows;
- `judge(answer)` is the check. It gets the answer (dwlab.judge.answer), returns a sentence saying what was found right,
  or raises `Wrong` with hints in steps; dwlab.judge.tools has the tools, which raise it themselves;
- the last lines make the file runnable: `if __name__ == "__main__": run(__file__)`.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import hashlib
import html
import json
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import course  # noqa: E402

NOTEBOOKS, SOURCES, EXERCISES, SOLUTIONS = (ROOT / p for p in ("notebooks", "notebooks/src", "exercises", "solutions"))
TAGS = {"nbval-ignore-output", "raises-exception"}
CELL_TIMEOUT_S = 120
WIDEST = 88  # characters of a printed line; JupyterLab has room for 112 where the window is 1,366 pixels wide
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    # All that a kernel says of itself: JupyterLab completes what is missing, which marks a lesson as changed when it is
    # opened. The version is of no machine that builds, so that lessons built on two differ in nothing.
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
        "version": "3.11.7",
    },
}


class BuildError(Exception):
    """A source that cannot be built: says which file, which line or cell, and what is wrong."""


# lessons: source -> notebook without outputs


def lesson(source: Path, student: bool = False) -> nbformat.NotebookNode:
    """The notebook of one source file, the teacher's or the student's, complete but for outputs and execution counts."""
    import jupytext

    read = jupytext.read(source, fmt="py:percent")
    cells, seen, written = [], {}, False  # written: whether the student has written a kernel
    for number, cell in enumerate(read.cells, 1):
        where = f"{source.name}, cell {number}"
        tags = cell.metadata.get("tags", [])
        blanks = [t.removeprefix("blank:") for t in tags if t.startswith("blank:")]
        folded = "folded" in tags
        tags = [t for t in tags if not t.startswith("blank:") and t != "folded"]
        unknown = [t for t in tags if t not in TAGS and not t.startswith("stage:")]
        if unknown:
            raise BuildError(
                f"{where}: there is no tag {unknown[0]!r}; tags are {sorted(TAGS)}, folded and stage:OP/PATH/NAME"
            )
        stages = [t.removeprefix("stage:") for t in tags if t.startswith("stage:")]
        text = cell.source
        if stages:
            if text.strip():
                raise BuildError(f"{where}: a cell tagged stage: is filled by the build and must be empty here")
            text = stage_source(stages[0], where)
            blank = with_blanks(text, blanks, where)
            text = blank if student else text
        elif cell.cell_type == "markdown":
            text = fill_regions(text, where)
            if number == 1 and any(source.stem in part for part in course.COURSE.values()):
                text = text.replace(
                    "\n| **Before** |", f"\n| **Course** | {course.place(source.stem)} |\n| **Before** |"
                )
        elif blanks:
            raise BuildError(f"{where}: blank: is for the text of a stage; elsewhere write ### BEGIN SOLUTION")
        elif cell.cell_type == "code":
            text, blank, _ = regions(text, where, BLANK)
            shown = text_of_student(blank)
            written = written or shown != text and "@cuda.jit" in text
            if folded and (shown != text or "@cuda.jit" in text and not (stages or written)):
                raise BuildError(f"{where}: a kernel, a prediction or a blank is not folded")
            text = shown if student else text
        if cell.cell_type == "code" and not text.strip():
            raise BuildError(f"{where}: an empty code cell is never executed; write something or take it out")
        # The same text always has the same id, so a diff shows the cells that changed and no others.
        own = cell.source if stages or cell.cell_type == "markdown" else text
        digest = hashlib.sha1(f"{source.stem}\n{cell.cell_type}\n{own}\n{tags}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        made = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}[cell.cell_type](text)
        made["id"] = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        if tags:
            made.metadata["tags"] = list(tags)
        if folded:
            made.metadata["jupyter"] = {"source_hidden": True}
        cells.append(made)
    return nbformat.v4.new_notebook(cells=cells, metadata=METADATA)


A_NUMBER = "each prediction is a number, without quotes and units"
BLANK = 'raise NotImplementedError("replace this line with your code")'


def text_of_student(text: str) -> str:
    """A code cell with its predictions empty: it raises until all of them are written down."""
    lines, names, numbers = text.split("\n"), [], []
    for node in reversed(ast.parse(text).body):
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        if not all(isinstance(part, ast.Name) and part.id.startswith("predicted_") for part in parts):
            continue
        if isinstance(node.value, ast.Dict):
            value = "{" + ", ".join(f"{ast.unparse(key)}: ..." for key in node.value.keys) + "}"
            here = [f"*{parts[0].id}.values()"]
        else:
            value = ", ".join("..." for _ in parts)
            here = [part.id for part in reversed(parts)]
        names += here
        values = node.value.values if isinstance(node.value, ast.Dict) else [node.value]
        if not any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in values):
            numbers += here
        what = ", ".join(part.id for part in parts)
        lines[node.lineno - 1 : node.end_lineno] = [f"{what} = {value}"]
    if not names:
        return text
    lines[0] = f"# Your predictions in place of the dots.\n{lines[0]}"
    asserted = f'assert ... not in [{", ".join(reversed(names))}], "write your prediction down first"'
    if numbers:
        given = ", ".join(reversed(numbers))
        asserted += f'\nassert all(isinstance(one, (int, float)) for one in [{given}]), "{A_NUMBER}"'
    return "\n".join(lines).rstrip("\n") + f"\n{asserted}"


def with_blanks(text: str, blanks: list[str], where: str) -> str:
    """A stage's text with a stub in the place of the lines that begin so."""
    out: list[str] = []
    left = set(blanks)
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        if found := {blank for blank in blanks if line.strip().startswith(blank)}:
            left -= found
            if not out or out[-1].strip() != BLANK:
                out += [f"{indent}# Your code here.", indent + BLANK]
        else:
            out.append(line)
    if left:
        raise BuildError(f"{where}: no line of the stage begins with {sorted(left)[0]!r}")
    return "\n".join(out)


def stage_source(name: str, where: str) -> str:
    """The text that a lesson shows of a stage."""
    from dwlab.kernels.registry import stage

    try:
        return stage(name).source().strip("\n")
    except (KeyError, ValueError, LookupError) as error:
        raise BuildError(f"{where}: {error}") from None


def fill_regions(text: str, where: str) -> str:
    """Write the tables of docs/tables, the exercises and the kernels that a text cell marks."""
    import tables

    from dwlab import records

    made = {f"exercise:{exercise_id(s)}": functools.partial(task, s) for s in SOLUTIONS.glob("*.py")}
    for name, kind, what in re.findall(r"<!-- begin:((kernel|function):(\S+)) -->", text):
        made[name] = functools.partial(function_text, kind, what, where)
    try:
        return tables.fill(text, {**tables.tables(), **made}) if "<!-- " in text else text
    except records.RecordError as error:
        raise BuildError(f"{where}: {error}") from None


def function_text(kind: str, what: str, where: str) -> str:
    """A function, as Markdown: `kernel` of a stage's file (OP/PATH/NAME), or another (MODULE:NAME)."""
    if kind == "kernel":
        text, name = stage_source(what, where), "kernel"
    else:
        module, _, name = what.partition(":")
        base = ROOT.joinpath(*module.split("."))
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        text = file.read_text(encoding="utf-8") if file.exists() else ""
    for one in ast.parse(text).body:
        if isinstance(one, ast.FunctionDef) and one.name == name:
            first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
            return "\n".join(["```python", *text.split("\n")[first - 1 : one.end_lineno], "```"])
    raise BuildError(f"{where}: {what} names no function of a file of this repository")


def exercise_id(solution: Path) -> str:
    """ "01_2" of 01_2_topic.py."""
    match = re.match(r"\d\d_\d+(?=_)", solution.name)
    if not match:
        raise BuildError(f"solutions/{solution.name}: an exercise's file is called NN_k_topic.py")
    return match[0]


def task(solution: Path) -> str:
    """Title, task and file of an exercise, as Markdown."""
    name, file = exercise_id(solution), f"exercises/{solution.name}"
    title, _, text = (ast.get_docstring(ast.parse(solution.read_text(encoding="utf-8"))) or "").partition("\n")
    return (
        f"### {title.rstrip('.')}\n\n{text.strip()}\n\n"
        f"Write your answer in [{file}](../{file}), save it, and run the cell below "
        f'(from a shell: `python {file}`). For a second hint: `grade("{name}", hint=2)`.'
    )


# lessons: running and cleaning


def execute(notebook: nbformat.NotebookNode, name: str) -> None:
    """Run every cell in place; BuildError names the first cell that raises without saying that it would."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    from dwlab.problems.cases import OWN_SEED

    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this Python, not one of the user's others
    os.environ.setdefault("DWLAB_SEED", str(OWN_SEED))  # what the judge draws is the same when the lessons are tested
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name=METADATA["kernelspec"]["name"],
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=40"],
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError) as error:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        raise BuildError(f"{name}: a cell failed\n{textwrap.indent(text, '    ')}") from None


def clean(notebook: nbformat.NotebookNode, name: str) -> None:
    """Take out of the outputs what differs between machines and runs."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in ("tags", "jupyter")})
        if cell.cell_type != "code":
            continue
        for output in cell.outputs:
            if "metadata" in output:
                output["metadata"] = nbformat.from_dict({})
            if "data" in output:
                # A widget's model lives in the kernel that made it; the text beside it stays.
                output["data"].pop("application/vnd.jupyter.widget-view+json", None)
        cell.outputs = [
            o for o in cell.outputs if o.output_type not in ("display_data", "execute_result") or o.get("data")
        ]
        ignored = "nbval-ignore-output" in cell.metadata.get("tags", [])
        cell.outputs = [
            nbformat.from_dict(_without_paths(o, ignored, f"{name}, In [{cell.execution_count}]")) for o in cell.outputs
        ]


def too_wide(notebook: nbformat.NotebookNode, name: str) -> None:
    """BuildError for printed text with lines that a page of 1,366 pixels has no room for: see WIDEST."""
    for cell in notebook.cells:
        for line in printed(cell):
            if len(line) > WIDEST:
                raise BuildError(
                    f"{name}, In [{cell.execution_count}]: a printed line has {len(line)} characters, and a page would "
                    f"break it after about {WIDEST}, within a number too: wrap a sentence with tabular.wrapped(), show "
                    f"a table with tabular.columns() or tabular.Columns(). The line:\n    {line}"
                )


def printed(cell: nbformat.NotebookNode) -> Iterator[str]:
    """The lines that a notebook program shows of a cell as they are, and breaks where its page ends."""
    for output in cell.get("outputs", ()):
        text = output.get("text", "")
        if not {"text/html", "text/markdown"} & set(output.get("data", {})):
            text += output.get("data", {}).get("text/plain", "")
        yield from text.split("\n")


def _without_paths(value: object, ignored: bool, where: str) -> object:
    """`value` with this machine's paths shortened; in a cell that nbval compares they are an error instead."""
    if isinstance(value, dict):
        return {k: v if k == "image/png" else _without_paths(v, ignored, where) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_paths(v, ignored, where) for v in value]
    if not isinstance(value, str):
        return value
    short = re.sub(r"(?:/private)?(?:/tmp|/var/folders)[^\s'\"<>]*?ipykernel_\d+[/\\]\d+\.py", "<cell>", value)
    short = short.replace(str(ROOT) + os.sep, "").replace(str(ROOT), ".")
    for prefix in {sys.prefix, sys.base_prefix, str(Path.home())} - {"/", "/usr"}:
        short = short.replace(prefix, "~")
    if short != value and not ignored:
        raise BuildError(
            f"{where}: nbval could never match this output elsewhere, it holds a path of this machine:\n"
            f"    {value.strip()[:400]}"
        )
    return short


def graded(text: str) -> list[nbformat.NotebookNode]:
    """What a cell that grades an exercise shows of it while it is not solved; [] of another cell."""
    from dwlab.judge import exercises

    found = re.fullmatch(r'(?:from dwlab import grade\n\n)?grade\("(\d\d_\d+)"\)', text)
    if not found or found[1] not in exercises.known():
        return []
    result = exercises.judge_file(EXERCISES / exercises.known()[found[1]].name, found[1])
    data = {"text/html": result._repr_html_(), "text/plain": repr(result)}
    return [nbformat.v4.new_output("execute_result", data)]


def measured(cell: nbformat.NotebookNode) -> bool:
    """Whether what a cell shows depends on the machine."""
    ignored = cell.cell_type == "code" and "nbval-ignore-output" in cell.metadata.get("tags", [])
    return ignored and not re.search(r"^grade\(", cell.source, re.M)


def hidden(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is folded."""
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def label(notebook: nbformat.NotebookNode, where: str) -> None:
    """Say of what depends on the machine that it is stored output, and of which: until a cell is run, it is not the
    reader's. Running the cell replaces it. Cells that nbval compares show the same everywhere, and `grade` waits for
    an answer on every machine: these have no label."""
    text = f"Stored output of {where}: run the cell for your own."
    for cell in notebook.cells:
        if measured(cell) and cell.outputs:
            data = {"text/plain": text, "text/html": f"<p><small><i>{html.escape(text)}</i></small></p>"}
            cell.outputs.insert(0, nbformat.v4.new_output("display_data", data))


def this_machine() -> str:
    """What the outputs of a lesson that is built here come from, with its article: "an NVIDIA H200"."""
    from dwlab import mode
    from dwlab.gpu import driver

    if mode != "gpu":
        return "a machine without a GPU"
    name = driver.query().devices[0].name
    return f"{'an' if name.startswith('NVIDIA') else 'a'} {name}"


def stored_outputs(notebook: nbformat.NotebookNode, target: Path) -> dict[int, list[nbformat.NotebookNode]]:
    """What `target` holds of the code cells of `notebook` that are as they were: place -> outputs."""
    stored: dict[tuple[str, ...], list[list[nbformat.NotebookNode]]] = {}
    for cell in nbformat.read(target, as_version=4).cells if target.exists() else ():
        if cell.cell_type == "code" and cell.execution_count is not None:
            stored.setdefault((cell.source, *cell.metadata.get("tags", ())), []).append(cell.outputs)
    return {
        place: known.pop(0)
        for place, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and (known := stored.get((cell.source, *cell.metadata.get("tags", ()))))
    }


def write_lesson(source: Path, keep: bool = False) -> Path:
    """Build, execute and save one lesson; keep: but for the outputs that `--keep` keeps."""
    notebook = lesson(source)
    target = NOTEBOOKS / f"{source.stem}.ipynb"
    code = [place for place, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    kept = stored_outputs(notebook, target) if keep else {}
    kept |= {place: shown for place in code if keep and (shown := graded(notebook.cells[place].source))}
    if set(code) - kept.keys():
        execute(notebook, source.stem)
        clean(notebook, source.stem)
        too_wide(notebook, source.stem)
        label(notebook, this_machine())
        kept = {p: o for p, o in kept.items() if measured(notebook.cells[p])}
    for count, place in enumerate(code, 1):
        notebook.cells[place].execution_count = count
        notebook.cells[place].outputs = kept.get(place, notebook.cells[place].outputs)
        for output in notebook.cells[place].outputs:
            output |= {"execution_count": count} if output.output_type == "execute_result" else {}
    nbformat.validate(notebook)
    _save(target, nbformat.writes(notebook).rstrip("\n") + "\n")
    return target


def write_student(source: Path) -> Path:
    """Build and save the student's copy of a lesson: nothing of it is executed, so nothing is answered."""
    target = EXERCISES / f"{source.stem}.ipynb"
    _save(target, student_copy(source))
    return target


def student_copy(source: Path) -> str:
    """The text of the student's copy."""
    notebook = lesson(source, student=True)
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def student_differences(source: Path) -> Iterator[str]:
    """Why exercises/ does not hold what a lesson's source generates; nothing if it does."""
    target = EXERCISES / f"{source.stem}.ipynb"
    if not target.exists():
        yield f"exercises/{target.name} is not built"
    elif target.read_text(encoding="utf-8") != student_copy(source):
        yield f"exercises/{target.name} is not what its source generates"


def lesson_differences(source: Path) -> Iterator[str]:
    """What the notebook of `source` has otherwise than its source and stages say; nothing if it is up to date."""
    target = NOTEBOOKS / f"{source.stem}.ipynb"
    if not target.exists():
        yield f"{target.name} is not built"
        return
    want, have = lesson(source), nbformat.read(target, as_version=4)
    keys = [
        [(c["id"], c.cell_type, c.source, tuple(c.metadata.get("tags", [])), hidden(c)) for c in n.cells]
        for n in (want, have)
    ]
    for tag, i, j, k, m in difflib.SequenceMatcher(a=keys[1], b=keys[0], autojunk=False).get_opcodes():
        if tag != "equal":
            shown = next((key[2] for key in (keys[1][i:j] or keys[0][k:m])), "").strip().split("\n")[0]
            word = {"replace": "changed", "delete": "no longer in the source", "insert": "missing in the notebook"}[tag]
            yield f"{target.name}: {max(j - i, m - k)} cell(s) {word}, from the one that starts: {shown[:80]}"
    for cell in have.cells:
        if cell.cell_type == "code" and cell.execution_count is None:
            yield f"{target.name}: a cell was never executed: {cell.source.strip()[:80]}"
            break


# lessons: how much there is to read


class Load(NamedTuple):
    """What a lesson asks of a reader and of a student, without its exercises. docs/teaching.md says what is counted."""

    words: int  # of text cells, without tables
    rows: int  # of tables in text cells that are not folded
    lines: int  # of code that is shown, stands in no lesson before, and is not the student's to write
    cells: int  # that are run and show something
    folded: int = 0  # lines and rows that are not shown until they are asked for
    kernel_lines: int = 0  # of all kernels, whoever writes them
    blanks: tuple[int, ...] = ()  # lines that a student writes, of each cell with a blank
    predictions: int = 0

    @property
    def minutes(self) -> float:
        """Of reading, by the rates below: without thinking, predictions, blanks, exercises and waiting."""
        return (
            self.words / WORDS_A_MINUTE + (self.rows + self.lines) / LINES_A_MINUTE + SECONDS_A_CELL * self.cells / 60
        )

    @property
    def doing(self) -> int:
        """Minutes for blanks, one a line and two at least, and for predictions, one each."""
        return sum(max(LEAST_MINUTES, lines) for lines in self.blanks) + self.predictions

    @property
    def stated(self) -> int:
        """What a lesson says under **Time**: whole fives of minutes."""
        return 5 * round(self.minutes / 5)


WORDS_A_MINUTE = 150  # as read aloud: many readers' first language is another one
LINES_A_MINUTE, SECONDS_A_CELL, LEAST_MINUTES = 12, 12, 2
MOST_MINUTES = 25
ROWS = re.compile(r"^\|(?![ |:-]*$)", re.M)  # a line of dashes, or an empty head, is none


def load(
    notebook: nbformat.NotebookNode, copy: nbformat.NotebookNode | None = None, known: set[str] | None = None
) -> Load:
    """The load of a lesson that is built. copy: the student's. known: lines of code of the lessons before; it grows."""
    known = set() if known is None else known
    words = rows = shown = cells = folded = kernel_lines = predictions = 0
    blanks: list[int] = []
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            text = re.sub(r"<!-- begin:exercise:.*?<!-- end:exercise:\S+ -->", "", cell.source, flags=re.S)
            code = [line for part in re.findall(r"```python\n(.*?)```", text, re.S) for line in _code_lines(part)]
            shown += len(set(code) - known)
            known |= set(code)
            text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.S)
            open_rows = len(ROWS.findall(re.sub(r"<details>.*?</details>", "", text, flags=re.S)))
            rows, folded = rows + open_rows, folded + len(ROWS.findall(text)) - open_rows
            words += sum(len(re.findall(r"\w[\w'’.,-]*", line)) for line in text.split("\n") if line[:1] != "|")
        elif not re.search(r"^grade\(", cell.source, re.M):
            lines, theirs = _code_lines(cell.source), copy.cells[place].source if copy else cell.source
            left = [line for line in lines if line not in _code_lines(theirs)]
            predictions += len(set(re.findall(r"predicted_\w+", "\n".join(left)))) if "= ..." in theirs else 0
            blanks += [len(left)] if BLANK in theirs else []
            kernel_lines += _kernel_lines(cell)
            new = {*lines} - {*left} - known
            known |= {*lines}
            folded, shown = (folded + len(lines), shown) if hidden(cell) else (folded, shown + len(new))
            cells += bool(cell.outputs)
    return Load(words, rows, shown, cells, folded, kernel_lines, tuple(blanks), predictions)


def _code_lines(text: str) -> list[str]:
    """The lines that hold code, without their margins."""
    return [line.strip() for line in text.split("\n") if line.strip() and not line.strip().startswith("#")]


def _kernel_lines(cell: nbformat.NotebookNode) -> int:
    """The lines of the kernels in a code cell: of a stage's text all."""
    if any(tag.startswith("stage:") for tag in cell.metadata.get("tags", [])):
        return len(_code_lines(cell.source))
    text, found = cell.source.split("\n"), set()
    for node in ast.walk(ast.parse(cell.source)):
        if isinstance(node, ast.FunctionDef) and any("cuda.jit" in ast.unparse(one) for one in node.decorator_list):
            found |= set(range(node.decorator_list[0].lineno, node.end_lineno + 1))
    return len(_code_lines("\n".join(text[n - 1] for n in found)))


@functools.cache
def loads() -> dict[str, Load]:
    """The load of each lesson, in the order of their numbers."""
    known: set[str] = set()
    read = {source.stem: source for source in sorted(SOURCES.glob("[0-9][0-9]_*.py"))}
    both = {name: [nbformat.read(at / f"{name}.ipynb", as_version=4) for at in (NOTEBOOKS, EXERCISES)] for name in read}
    return {name: load(*pair, known) for name, pair in both.items()}


def load_table(read: list[Path]) -> str:
    """The load of the lessons of these sources, a row each."""
    from dwlab.text import tabular

    head = [
        "lesson",
        "words",
        "rows",
        "new lines",
        "folded",
        "cells",
        "minutes",
        "stated",
        "doing",
        "blanks",
        "of lines",
    ]
    body = []
    for source in read:
        one = loads()[source.stem]
        numbers = one.words, one.rows, one.lines, one.folded, one.cells, f"{one.minutes:.1f}", one.stated, one.doing
        body.append([source.stem, *map(str, numbers), str(sum(one.blanks)), str(one.kernel_lines)])
    return tabular.columns(head, body)


# exercises


MARKERS = ("### BEGIN SOLUTION", "### BEGIN STUB", "### END SOLUTION")


def regions(text: str, name: str, default: str) -> tuple[str, str, int]:
    """(the text with its answers, the text with stubs in their places, how many regions it has).

    default: the line of a region that has no stub of its own. BuildError names the line of a marker without its partner.
    """
    with_answers: list[str] = []
    with_stubs: list[str] = []
    stub: list[str] | None = None
    begin, found, indent = 0, 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        marker = line.strip()
        if marker.startswith("###") and marker not in MARKERS:
            raise BuildError(
                f"{name}, line {number}: {marker!r} is no marker; write BEGIN SOLUTION, BEGIN STUB or END SOLUTION"
            )
        if marker == "### BEGIN SOLUTION":
            if begin:
                raise BuildError(f"{name}, line {number}: a solution begins inside the one of line {begin}")
            begin, stub, indent = number, None, line[: len(line) - len(line.lstrip())]
            found += 1
        elif marker == "### BEGIN STUB":
            if not begin or stub is not None:
                raise BuildError(f"{name}, line {number}: a stub begins outside a solution, or twice in one")
            stub = []
        elif marker == "### END SOLUTION":
            if not begin:
                raise BuildError(f"{name}, line {number}: a solution ends that never began")
            with_stubs += [f"{indent}# Your code here.", *(stub if stub is not None else [indent + default])]
            begin = 0
        elif not begin:
            with_answers.append(line)
            with_stubs.append(line)
        elif stub is None:
            with_answers.append(line)
        else:
            if marker and not marker.startswith("#"):
                raise BuildError(f"{name}, line {number}: a line of the stub is not commented out")
            bare = line[len(indent) :]
            stub.append((indent + (bare[2:] if bare.startswith("# ") else bare[1:])).rstrip())
    if begin:
        raise BuildError(f"{name}, line {begin}: the solution that begins here does not end")
    return "\n".join(with_answers), "\n".join(with_stubs), found


class Exercise(NamedTuple):
    """What a solution generates."""

    stub: str  # what a student gets
    judge: str
    answer: str  # what a student hands in who solves it as we do


LINE = 120  # characters, as pyproject.toml says
RUN = '\n\n\nif __name__ == "__main__":\n    run(__file__)\n'


def exercise(text: str, name: str) -> Exercise:
    """The exercise of solution `name` (01_2_topic). BuildError names the line of a marker without its partner."""
    short = re.sub(r"(\d\d_\d+)_.*", r"\1", name)
    default = f'raise NotImplementedError("{short} is not solved yet: replace this line with your code")'
    _, judge, found = regions(text, name, default)
    if not found:
        raise BuildError(f"{name} has no region ### BEGIN SOLUTION ... ### END SOLUTION, so there is nothing to solve")
    for what, code in (("solution", text), ("exercise", judge)):
        try:
            tree = ast.parse(code)
        except SyntaxError as error:
            raise BuildError(f"{name}: the {what} is not Python: line {error.lineno}: {error.msg}") from None
    lines = text.split("\n")
    last = max(number for number, line in enumerate(lines, 1) if line.strip() == "### END SOLUTION")
    last = max([last, *(n.end_lineno for n in ast.parse(text).body if n.lineno <= last <= n.end_lineno)])
    answer, stub, _ = regions("\n".join(lines[:last]), name, default)
    answer, stub = answer.rstrip() + RUN, stub.rstrip() + RUN
    title = f'"""The judge of exercise {short}, and its hints."""'
    judge = "\n".join([title, *judge.removesuffix(RUN).split("\n")[tree.body[0].end_lineno :]]) + "\n"
    return Exercise(with_imports(stub, answer), with_imports(judge, judge), with_imports(answer, answer))


def with_imports(text: str, used_by: str) -> str:
    """A file with those of its imports that `used_by` uses; they stand in front, and "noqa" keeps one."""
    names = {node.id for node in ast.walk(ast.parse(used_by)) if isinstance(node, ast.Name)}
    own = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    lines, out, at = text.split("\n"), [], 0
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        out += lines[at : node.lineno - 1]
        at = node.end_lineno
        bound = {alias: (alias.asname or alias.name).split(".")[0] for alias in node.names}
        kept = node.names if "noqa" in lines[at - 1] else [alias for alias in node.names if bound[alias] in names]
        unused = any(bound[alias] not in own for alias in kept)
        if kept == node.names and ("noqa" in lines[at - 1] or not unused):
            out += lines[node.lineno - 1 : at]
        elif kept:
            node.names = kept
            line = ast.unparse(node) + ("  # noqa: F401" if unused else "")
            head, _, tail = line.partition(" import ")
            wrapped = [f"{head} import (", *(f"    {one}," for one in tail.split(", ")), ")"]
            out += [line] if len(line) <= LINE else wrapped
    # Where no import of a group is left, there is one empty line less.
    made = re.sub(r"\n{3,}(?=import |from )", "\n\n", "\n".join(out)) + "\n" + "\n".join(lines[at:])
    return re.sub(r'\A(""".*?"""\n)\n+', r"\1\n", made, flags=re.S)


def exercise_files(solution: Path) -> dict[Path, str]:
    """What one solution generates: file -> text."""
    made = exercise(solution.read_text(encoding="utf-8"), solution.stem)
    return {EXERCISES / solution.name: made.stub, EXERCISES / "judges" / solution.name: made.judge}


def write_exercise(solution: Path) -> Path:
    """Generate and save one exercise, its judge, and what that counts of our solution."""
    for target, text in exercise_files(solution).items():
        _save(target, text)
    number, table = exercise_id(solution), EXERCISES / "judges" / "counts.json"
    known = json.loads(table.read_text(encoding="utf-8")) if table.exists() else {}
    known[number] = solution_counts(solution)
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(known.items()) if row]
    _save(table, "{\n" + ",\n".join(rows) + "\n}\n")
    return EXERCISES / solution.name


def solution_counts(solution: Path) -> tuple[str, dict[str, int]] | None:
    """`dwlab.judge.exercises.counts` of what a student hands in who solves it as we do."""
    from dwlab.judge import exercises

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / solution.name
        file.write_text(exercise(solution.read_text(encoding="utf-8"), solution.stem).answer, encoding="utf-8")
        try:
            return exercises.counts(file, EXERCISES / "judges" / solution.name)
        except exercises.GradeError as error:
            raise BuildError(f"our own solution: {error}") from None


def exercise_differences(solution: Path) -> Iterator[str]:
    """Why exercises/ does not hold what `solution` generates; nothing if it does."""
    for target, want in exercise_files(solution).items():
        shown = target.relative_to(EXERCISES.parent)
        if not target.exists():
            yield f"{shown} is not built"
        elif (have := target.read_text(encoding="utf-8")) != want:
            pairs = zip(have.split("\n") + [""], want.split("\n") + [""], strict=False)
            line = next((i for i, (a, b) in enumerate(pairs, 1) if a != b), 1)
            yield f"{shown} is not what solutions/{solution.name} generates, from line {line}"


def _save(target: Path, text: str) -> None:
    """Write whole or not at all, and leave a file that is right already untouched."""
    if target.exists() and target.read_text(encoding="utf-8") == text:
        return
    target.parent.mkdir(exist_ok=True)
    part = target.with_name(target.name + ".part")
    part.write_text(text, encoding="utf-8", newline="\n")
    os.replace(part, target)


# the command


def sources() -> list[Path]:
    """The files that things are built from: solutions first, since lessons show their tasks."""
    return [*sorted(SOLUTIONS.glob("[0-9][0-9]_*.py")), *sorted(SOURCES.glob("[0-9][0-9]_*.py"))]


def chosen(names: list[str]) -> list[Path]:
    """The sources that `names` mean; all without names. BuildError for a name that means none."""
    every = sources()
    picked = []
    for name in names:
        bare = Path(name).name.split(".")[0]
        # 01 is a lesson and 01_2 an exercise; a lesson's topic does not start with a digit
        found = [
            s
            for s in every
            if s.stem == bare or (s.stem.startswith(bare + "_") and (len(bare) != 2 or s.parent == SOURCES))
        ]
        if not found:
            near = difflib.get_close_matches(bare, [s.stem for s in every], n=1, cutoff=0.3)
            raise BuildError(f"no lesson or exercise is called {name!r}" + (f"; is it {near[0]}?" if near else ""))
        picked += found
    return [s for s in every if s in picked] if names else every


def orphans() -> Iterator[str]:
    """Notebooks and exercises that no source makes."""
    made = (NOTEBOOKS, "*.ipynb", SOURCES), (EXERCISES, "*.ipynb", SOURCES), (EXERCISES, "**/*.py", SOLUTIONS)
    for folder, pattern, home in made:
        for file in sorted(folder.glob(pattern)):
            if not (home / f"{file.stem}.py").exists():
                yield f"{file.relative_to(folder.parent)} has no source in {home.relative_to(ROOT)}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python notebooks/build.py", description="Build lessons and exercises from their sources."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="lessons (01) or exercises (01_2); all if none is given"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="build nothing; say what differs from its source, status 1 if anything does",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the stored outputs of code cells that did not change, such as a GPU's",
    )
    parser.add_argument(
        "--load", action="store_true", help="build nothing; say how much there is to read in each lesson"
    )
    options = parser.parse_args(arguments)
    try:
        picked = chosen(options.names)
        if options.load:
            print(load_table([source for source in picked if source.parent == SOURCES]))
            return 0
        if options.check:
            found = [
                d
                for s in picked
                for d in (
                    [*lesson_differences(s), *student_differences(s)]
                    if s.parent == SOURCES
                    else exercise_differences(s)
                )
            ]
            found += [] if options.names else list(orphans())
            print("\n".join(found) if found else f"{len(picked)} lessons and exercises are what their sources say")
            return 1 if found else 0
        for source in picked:
            lessons = source.parent == SOURCES and (write_lesson(source, options.keep), write_student(source))
            for made in lessons or (write_exercise(source),):
                print(made.relative_to(ROOT), flush=True)
    except BuildError as error:
        print(f"build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
