"""The judge of exercises: `grade("01_2")` in a lesson, `python exercises/01_2_….py` or `python -m dwlab grade` else.

An exercise is one Python file that the student completes. Its judge is another, in exercises/judges/: `judge(answer)`
gets what dwlab.judge.answer sees of the student's file and returns a sentence saying what was found right, or raises
`Wrong` with hints in steps. To a right answer the result adds how its numbers come about, and what our solution's
kernel makes of a launch that was counted.

Three processes: the one that calls `grade`; one that judges, where kernels are interpreted and compared; and one for
each file, which may raise, run for ever, print rubbish or end Python, and gets one clear line for it
(dwlab.judge.answer says what such a file can do to its verdict, and what not). Limits are of CPU time and of a kernel's
steps, so a busy machine changes no verdict; a wall clock only stops what sleeps.

A judge launches a kernel on shapes that are always the same and on some that are drawn from a seed at each call
(`drawn`; the seed is shown, and `grade(..., seed=)` repeats it). Every launch is checked and counted in one: its output
is compared, its inputs must be unchanged, and its accesses are those of this very launch. First all launches are
compared, then all are counted, the small ones too: no size may be slow because nobody looks at it.

The second half of this module are the tools that judges are made of: `kernel` and `function` take one out of an answer,
`launched` and `agree` judge a launch, `convolves` a convolution by `dwlab.judge.check`, `convolution` one launch of it;
`coalesced`, `moves_at_most`, `at_most`, `without`, `written_once`, `stored_by_a_thread` and `float32_only` judge a
launch's report, `predicted` a number. All but `convolves` run kernels on the interpreter in either mode, so memory
behaviour is graded alike on a laptop and on a GPU.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import dataclasses
import functools
import html
import itertools
import json
import math
import numbers
import os
import queue
import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dwlab.judge.answer import (
    JUDGES,
    ROOT,
    WORKBOOK,
    Answer,
    Ended,
    Function,
    Other,
    Raised,
    Wrong,
    environment,
    failure,
    load,
    stop,
)
from dwlab.text import commandline


def _own() -> Path:
    """The exercises that one works on: of the nearest folder above this one that has some, else of the checkout."""
    here = Path.cwd()
    found = (place / "exercises" for place in (here, *here.parents))
    known = [one for one in found if any(one.glob("[0-9][0-9]_*.py"))]
    return known[0] if known else (WORKBOOK if WORKBOOK == ROOT else here) / "exercises"


EXERCISES, SOLUTIONS = _own(), ROOT / "solutions"
COUNTS = JUDGES / "counts.json"  # exercise -> [which launch, what is counted in it of our solution's kernel]
TIME_LIMIT_S = 60  # of CPU time that a file may take
JUDGING_LIMIT_S = 180  # of CPU time that judging it may take: its kernels run there
WALL_LIMIT_S = 1_200  # after which something is asleep
STEP_LIMIT = 100_000  # statements of a kernel on the small inputs of a judge; more than that and it never ends
_PARSING = threading.Lock()  # Python 3.11's parser is not safe in two threads: "recursion depth mismatch"
_ID = re.compile(r"(?<!\d)(\d\d_\d+)(?!\d)")
# What a status means, in the order in which a teacher wants to know.
STATUS = {
    "passed": "passed",
    "wrong": "not right yet",
    "unsolved": "not solved yet",
    "syntax": "not Python",
    "error": "raised an error",
    "timeout": "did not end",
    "missing": "cannot be read",
    "unknown": "not an exercise",
}


@dataclass(frozen=True)
class Result:
    """What one file got.

    exercise: "01_2"; student: the folder or name prefix it was handed in under, "" for one's own; file: its name;
    status: a key of STATUS; message: one line, what was found; hints: in steps, from a nudge to nearly the answer;
    why: after a right answer, how its numbers come about and what our solution's kernel does in comparison;
    shown: which hint is shown (1 is the first); output: what the file printed, cut short; seconds: CPU time that it
    took; seed: what sizes and values were drawn from, None if nothing was.
    """

    exercise: str
    file: str
    status: str
    message: str
    student: str = ""
    hints: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    shown: int = 1
    output: str = ""
    seconds: float = 0.0
    seed: int | None = None

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.status == "passed"

    def raise_if_wrong(self) -> None:
        """AssertionError with the text of this result, unless it passed."""
        if not self.passed:
            raise AssertionError(str(self))

    def _lines(self, more: str) -> list[str]:
        """The verdict and its hints, each in a line."""
        lines = [f"{self.exercise or self.file}: {STATUS[self.status]}. {self.message}".rstrip(), *self.why]
        if self.hints:
            n = min(max(self.shown, 1), len(self.hints))
            lines += [f"hint {i} of {len(self.hints)}: {hint}" for i, hint in enumerate(self.hints[:n], 1)]
            if n < len(self.hints):
                lines.append(f"For the next hint: {more.format(exercise=self.exercise, hint=n + 1)}")
        if self.seed is not None and not self.passed:
            lines.append(f"Some sizes and values are drawn anew each time. With the seed {self.seed} they are these.")
        if self.output.strip():
            lines.append("The file printed:")
        return lines

    def text(self, more: str = 'grade("{exercise}", hint={hint})') -> str:
        """What the student reads; `more` says how to get the next hint."""
        printed = [f"| {line}" for line in self.output.rstrip().split("\n")] if self.output.strip() else []
        return "\n  ".join([*self._lines(more), *printed])

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        from dwlab.text import tabular

        return tabular.wrapped(self.text())

    def _repr_html_(self) -> str:
        from dwlab.text import tabular

        verdict, *beside = map(tabular.prose, self._lines('`grade("{exercise}", hint={hint})`'))
        items = "".join(f"<li>{one}</li>" for one in beside)
        printed = f"<pre>{html.escape(self.output.rstrip())}</pre>" if self.output.strip() else ""
        return f"<p>{verdict}</p>" + (f"<ul>{items}</ul>" if items else "") + printed


@dataclass(frozen=True)
class Results:
    """The results of several files, as a table for a teacher."""

    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether every answer is right."""
        return all(r.passed for r in self.results)

    def __iter__(self):
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def to_dict(self) -> list[dict[str, Any]]:
        """One object a file, hints included."""
        return [asdict(r) for r in self.results]

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: a student a row and an exercise a column; with one student, an exercise a row."""
        students = list(dict.fromkeys(r.student for r in self.results))
        names = sorted({r.exercise for r in self.results if r.exercise})
        cell: dict[tuple[str, str], list[str]] = {}
        for r in self.results:  # more than one, if a file was handed in twice
            cell.setdefault((r.student, r.exercise), []).append(STATUS[r.status])
        if len(students) <= 1:
            return ["exercise", "result"], [[n, " / ".join(cell[students[0], n])] for n in names]
        rows = []
        for s in students:
            marks = [" / ".join(cell.get((s, n), ["-"])) for n in names]
            rows.append([s or "(no name)", *marks, f"{marks.count('passed')} of {len(names)}"])
        return ["student", *names, "passed"], rows

    def students(self) -> dict[str, dict[str, Result]]:
        """Student -> exercise -> the best of what was handed in for it, passed before any other."""
        found: dict[str, dict[str, Result]] = {}
        for one in self.results:
            mine = found.setdefault(one.student, {})
            if one.exercise and (one.exercise not in mine or one.passed):
                mine[one.exercise] = one
        return found

    def to_csv(self, path: str | Path) -> Path:
        """A row a student: each exercise's status, how many passed, of how many. Returns the path."""
        names = sorted({one.exercise for one in self.results if one.exercise})
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["student", *names, "passed", "of"])
            for student, mine in self.students().items():
                marks = [mine[name].status if name in mine else "" for name in names]
                table.writerow([_cell(student), *marks, marks.count("passed"), len(names)])
        return Path(path)

    def to_results(self, folder: str | Path) -> list[Path]:
        """For each student a file STUDENT.json as Gradescope reads results and otter-grader writes them: "tests", each
        with name, score, max_score and output. An exercise that was not handed in has the score 0. Returns the paths.
        """
        names = sorted({one.exercise for one in self.results if one.exercise})
        Path(folder).mkdir(parents=True, exist_ok=True)
        written = []
        for student, mine in self.students().items():
            tests = [
                {
                    "name": name,
                    "score": float(name in mine and mine[name].passed),
                    "max_score": 1.0,
                    "output": mine[name].text() if name in mine else "not handed in",
                    "visibility": "visible",
                }
                for name in names
            ]
            name = re.sub(r"[^\w.-]+", "_", student) or "student"
            same = sum(one.stem.partition("~")[0] == name for one in written)
            place = Path(folder) / f"{name}{f'~{same + 1}' if same else ''}.json"
            text = json.dumps({"tests": tests, "output": f"{sum(t['score'] for t in tests):g} of {len(tests)} passed"})
            place.write_text(text + "\n", encoding="utf-8")
            written.append(place)
        return written

    def lessons(self) -> list[tuple[str, int, int, str]]:
        """(lesson, exercises passed, exercises, the first that is not passed) of one's own answers."""
        found: dict[str, list[Result]] = {}
        for one in self.results:
            found.setdefault(one.exercise[:2], []).append(one)
        return [
            (lesson, sum(one.passed for one in ones), len(ones), next((o.exercise for o in ones if not o.passed), ""))
            for lesson, ones in sorted(found.items())
        ]

    def _wrong(self) -> dict[str, str]:
        """What is wrong -> who handed it in. Of what passed or is not solved the table says all there is to say."""
        found: dict[str, list[str]] = {}
        for r in self.results:
            if r.status not in ("passed", "unsolved"):
                found.setdefault(f"{r.exercise or r.file}: {STATUS[r.status]}. {r.message}".rstrip(), []).append(
                    r.student
                )
        return {text: ", ".join(filter(None, dict.fromkeys(who))) for text, who in found.items()}

    def __str__(self) -> str:
        header, rows = self.rows()
        width = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, width, strict=True)).rstrip()
            for r in [header, ["-" * w for w in width], *rows]
        ]
        lines += [f"{who}: {text}" if who else text for text, who in self._wrong().items()]
        lines.append(f"{sum(r.passed for r in self.results)} of {len(self.results)} passed")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from dwlab.text import tabular

        wrong = "".join(f"<li>{tabular.prose(f'{who} {text}'.strip())}</li>" for text, who in self._wrong().items())
        return tabular.as_html(*self.rows()) + (f"<ul>{wrong}</ul>" if wrong else "")


def _cell(text: str) -> str:
    """A name as a spreadsheet shows it: one that begins like a formula is none."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


class GradeError(ValueError):
    """A name or folder that means no exercise: says which there are."""


# grading


def known() -> dict[str, Path]:
    """The exercises of the workbook, id -> the file that judges it."""
    found = {match[1]: file for file in sorted(JUDGES.glob("*.py")) if (match := _ID.match(file.name)) is not None}
    if not found:
        raise GradeError(f"{JUDGES} is missing: get the workbook again")
    return found


def grade(
    what: str | Path | None = None, hint: int = 1, time_limit: float = TIME_LIMIT_S, seed: int | None = None
) -> Result | Results:
    """Judge an exercise by id ("01_2"), name or file, showing `hint` hints; without `what`, all of exercises/.

    time_limit: seconds of CPU time.  seed: what sizes and values are drawn from, to repeat a verdict.
    """
    if what is None:
        _there(EXERCISES)
        files = [("", i, EXERCISES / f.name) for i, f in known().items()]
        return grade_files(files, time_limit=time_limit, done=_counting(len(files)), seed=seed)
    exercise, file = _find(str(what), EXERCISES)
    return judge_file(file, exercise, hint=hint, time_limit=time_limit, seed=seed)


def grade_folder(
    folder: str | Path,
    time_limit: float = TIME_LIMIT_S,
    progress: Callable[[int, int], None] | None = None,
    seed: int | None = None,
) -> Results:
    """Judge every Python file below `folder`: handed in as STUDENT/01_2_topic.py or as STUDENT_01_2_topic.py.

    Another file whose name holds an exercise's number, such as a notebook, is listed as what cannot be graded.

    progress: called after each file with how many are graded, of how many.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise GradeError(f"{folder} is not a folder: give the one that holds the handed-in files")
    found = []
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        place = file.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in place.parts):
            continue
        ids = [m for m in _ID.finditer(file.name) if m[1] in known()]
        if file.suffix != ".py" and not ids:
            continue
        prefix = file.name[: ids[0].start()].strip(" _-.") if ids else ""
        student = "/".join(filter(None, [*place.parts[:-1], prefix]))
        found.append((student, ids[0][1] if ids else "", file))
    if not found:
        raise GradeError(f"{folder} holds no Python file")
    graded = itertools.count(1)
    done = progress and (lambda: progress(next(graded), len(found)))
    return grade_files(found, time_limit=time_limit, done=done, seed=seed)


def grade_files(
    files: Sequence[tuple[str, str, Path]],
    time_limit: float = TIME_LIMIT_S,
    done: Callable[[], None] | None = None,
    seed: int | None = None,
) -> Results:
    """Judge (student, exercise id, file) triples, a few at a time; `done` is called after each."""
    idle: queue.SimpleQueue[_Judge] = queue.SimpleQueue()
    workers = min(4, os.cpu_count() or 1)
    judges = [_Judge() for _ in range(workers)]
    for judge in judges:
        idle.put(judge)

    def one(item: tuple[str, str, Path]) -> Result:
        student, exercise, file = item
        if not exercise:
            message = "Its name holds no number of an exercise, such as 10_1: rename it."
            result = Result("", file.name, "unknown", message, student=student)
        elif file.suffix != ".py":
            message = f"It is a {file.suffix or 'file without a suffix'}: the Python file of exercises/ is wanted."
            result = Result("", file.name, "unknown", message, student=student)
        else:
            judge = idle.get()
            try:
                result = judge_file(file, exercise, student, time_limit=time_limit, seed=seed, judge=judge)
            finally:
                idle.put(judge)
        if done:
            done()
        return result

    try:
        with ThreadPoolExecutor(max_workers=workers) as pool:
            return Results(tuple(pool.map(one, files)))
    finally:
        for judge in judges:
            judge.close()


def judge_file(
    file: Path,
    exercise: str,
    student: str = "",
    hint: int = 1,
    time_limit: float = TIME_LIMIT_S,
    seed: int | None = None,
    judge: _Judge | None = None,
) -> Result:
    """Judge one file in processes of its own. Never raises for anything that the file does.

    judge: a process that judges already, as `grade_files` has them.
    """

    def result(status: str, message: str, **found: Any) -> Result:
        return Result(exercise, file.name, status, message, student, shown=hint, **found)

    try:
        text = _source(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _PARSING:
                tree = ast.parse(text)
    except (OSError, UnicodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeError) else (error.strerror or str(error)).lower()
        return result("missing", f"{file.name} cannot be read: {reason}.")
    except SyntaxError as error:
        shown = f" in `{error.text.strip()}`" if error.text and error.text.strip() else ""
        return result("syntax", f"Line {error.lineno}: {error.msg}{shown}.")
    except (ValueError, RecursionError, MemoryError) as error:
        return result("syntax", f"Python cannot read it: {error}.")
    if unsolved := _unsolved(tree, known()[exercise], file.name):
        return result("unsolved", unsolved)
    own = judge or _Judge()
    task = {
        "file": str(file.resolve()), "judge": str(known()[exercise]), "seconds": time_limit,
        "seed": secrets.randbelow(1 << 31) if seed is None else seed,
    }  # fmt: skip
    try:
        found = own.ask(task)
    finally:
        if judge is None:
            own.close()
    return result(
        found["status"], found["message"], hints=tuple(found["hints"]), why=tuple(found["why"]), output=found["output"],
        seconds=round(found["seconds"], 2), seed=found["seed"],
    )  # fmt: skip


class _Judge:
    """The process that judges, one file after the other; it starts with the first one.

    No student's code runs in it, so it may be used again. Its answers carry a number that only it was told: what
    another process writes to the same pipe is not read as one.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """The verdict on a task: status, message, hints, output, seconds, seed."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dwlab.judge.exercises"],
                env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=os.name == "posix",
            )  # fmt: skip
        nonce = secrets.token_hex(16)
        late = threading.Timer(WALL_LIMIT_S, stop, [self.process])
        late.start()
        try:
            self.process.stdin.write(json.dumps({**task, "nonce": nonce}).encode() + b"\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict) and found.get("nonce") == nonce:
                        return found
        except OSError:
            pass
        finally:
            late.cancel()
        stop(self.process)
        status, self.process = self.process.returncode, None
        message = f"Python ended ({_end(status)}) while the answer was graded."
        return {**NOTHING, "status": "error", "message": message, "output": "", "seconds": 0.0, "seed": task["seed"]}

    def close(self) -> None:
        """Ends the process, and with it the answer's."""
        if self.process is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                stop(self.process)
            self.process.stdout.close()
            self.process = None


def _end(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _source(file: Path) -> str:
    """The text as Python would read it: some editors write a byte order mark, or name another encoding on top."""
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except SyntaxError as error:  # an encoding that there is not, or a first line that is no text
        raise UnicodeError(str(error)) from None


def _unsolved(tree: ast.Module, judge: Path, name: str) -> str:
    """Why nothing has been filled in, as far as the text shows it: a stub, or all predictions still None; else ""."""
    if stub := _stub_line(tree):
        return f"Line {stub} of {name} still holds the stub: replace it with your code."
    stubs = re.findall(r"^(?:# )?(\w+(?:, \w+)*) = None(?:, None)*$", _source(judge), re.M)
    wanted = [one for names in stubs for one in names.split(", ")]
    empty = set()
    for node in (n for n in tree.body if isinstance(n, ast.Assign)):
        for target in node.targets:
            pairs = zip(_parts(target), _parts(node.value), strict=False)
            for one, value in pairs:
                if isinstance(one, ast.Name):
                    nothing = isinstance(value, ast.Constant) and value.value is None
                    (empty.add if nothing else empty.discard)(one.id)
    if wanted and empty.issuperset(wanted):
        return f"`{wanted[0]}` is still None: write your prediction down, then run this again."
    return ""


def _parts(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _stub_line(tree: ast.AST) -> int | None:
    """The line of the stub that the build writes, if it is still there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            function, text = node.exc.func, node.exc.args[0]
            if (
                isinstance(function, ast.Name)
                and function.id == "NotImplementedError"
                and isinstance(text, ast.Constant)
            ):
                if "is not solved yet" in str(text.value):
                    return node.lineno
    return None


def _find(what: str, folder: Path) -> tuple[str, Path]:
    """Exercise id and file for an id, a name, or a path."""
    from dwlab.problems import near

    every = known()
    path = Path(what)
    match = _ID.search(path.name)
    if match and match[1] in every:
        if path.suffix == ".py" and path.exists():
            return match[1], path
        _there(folder)
        return match[1], folder / every[match[1]].name
    found = near(path.stem, [*every, *(f.stem for f in every.values())])
    raise GradeError(
        f"no exercise is called {what!r}" + (f"; is it {found}?" if found else f"; there are {', '.join(every)}")
    )


def _there(folder: Path) -> None:
    """GradeError if there is no such folder of answers."""
    if not folder.is_dir():
        raise GradeError(
            f"there is no folder {folder.name}/ here or above: `dwlab lab FOLDER` copies the workbook, to work there"
        )


def register(command: commandline.Register) -> None:
    """Adds `grade` and `progress`."""
    examples = (
        "examples: python -m dwlab grade 10_1 --hint 2\n"
        "          python -m dwlab grade --all handed_in/    (STUDENT/10_1_….py or STUDENT_10_1_….py)"
    )
    add = command("grade", main, examples).add_argument
    table, results = (
        "write a row a student, a column an exercise",
        "write STUDENT.json for each, as Gradescope has them",
    )
    add("names", nargs="*", metavar="EXERCISE", help="a number such as 10_1, a name or a file")
    add("--csv", type=commandline.file_name(".csv"), metavar="FILE.csv", help=table)
    add("--results", type=commandline.folder_name, metavar="FOLDER", help=results)
    add("--all", "--class", metavar="DIR", help="judge every Python file below DIR")
    add("--solutions", action="store_true", help="judge the workbook's own solutions")
    add("--hint", type=commandline.whole(1), metavar="N", help="show N hints for an answer that is wrong")
    add("--seed", type=commandline.whole(), metavar="N", help="draw sizes and values from N, to repeat a verdict")
    command("progress", progress, "example: python -m dwlab progress")


def main(args: argparse.Namespace) -> int:
    """Judges the named exercises, or all of exercises/. Each answer runs in a process of its own, with
    a time limit. Status 1 if one is not solved.
    """
    names, folder = list(getattr(args, "names", None) or ()), getattr(args, "all", None)
    home = SOLUTIONS if getattr(args, "solutions", False) else EXERCISES
    seed = getattr(args, "seed", None)
    try:
        if folder:
            if names:
                raise GradeError(f"give names or --all DIR, not both: {', '.join(names)}")
            results = grade_folder(folder, progress=_progress if _watched() else None, seed=seed)
        else:
            if not names:
                _there(home)
            picked = [_find(n, home) for n in names] or [(i, home / f.name) for i, f in known().items()]
            hint = getattr(args, "hint", None) or 1
            if len(picked) == 1 and not args.json:
                one = judge_file(picked[0][1], picked[0][0], hint=hint, seed=seed)
                print(one.text(f"python -m dwlab grade {(names or picked[0])[0]} --hint {{hint}}"))
                return 0 if one.passed else 1
            results = grade_files([("", i, f) for i, f in picked], done=_counting(len(picked)), seed=seed)
    except GradeError as error:
        from dwlab.text.terminal import plain

        print(f"dwlab: {plain(error)}", file=sys.stderr)
        return 2
    print(json.dumps(results.to_dict(), indent=1, ensure_ascii=False) if args.json else results)
    try:
        written = [results.to_csv(args.csv)] if getattr(args, "csv", None) else []
        if getattr(args, "results", None):
            written.append(f"{args.results} ({_many(len(results.to_results(args.results)), 'files')})")
    except OSError as error:
        print(f"dwlab: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if written:
        from dwlab.text.terminal import wrote

        wrote(*written)
    return 0 if results.passed else 1


def progress(args: argparse.Namespace) -> int:
    """Judges the answers in exercises/ and says, lesson by lesson, how many are right and which is next."""
    try:
        results = grade()
    except GradeError as error:
        print(f"dwlab: {error}", file=sys.stderr)
        return 2
    rows = results.lessons()
    if args.json:
        keys = ("lesson", "passed", "exercises", "next")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
        return 0
    for lesson, passed, count, following in rows:
        bar = "■" * passed + "□" * (count - passed)
        print(f"lesson {lesson}  {bar}  {passed} of {count}" + (f"  next: {following}" if following else ""))
    done = sum(row[1] for row in rows)
    print(f"{done} of {sum(row[2] for row in rows)} exercises solved")
    return 0


def _watched() -> bool:
    """Whether somebody looks on: a terminal, or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _counting(files: int) -> Callable[[], None] | None:
    """What prints after each file how many are graded, where somebody looks on."""
    graded = itertools.count(1)
    return (lambda: _progress(next(graded), files)) if _watched() else None


def _progress(graded: int, files: int) -> None:
    end = "\n" if graded == files else ""
    print(f"\r{graded} of {files} files graded", end=end, file=sys.stderr, flush=True)


def run(file: str) -> None:
    """The last line of an exercise's file: judge it, from a shell. Ends Python, with status 0 if it passed, else 1."""
    parser = argparse.ArgumentParser(description="Judge this exercise.")
    parser.add_argument("--hint", type=int, default=1, metavar="N", help="show N hints")
    parser.add_argument("--seed", type=int, metavar="N", help="what sizes and values are drawn from")
    try:
        exercise, _ = _find(file, EXERCISES)
    except GradeError as error:
        sys.exit(str(error))
    options = parser.parse_args()
    result = judge_file(Path(file), exercise, hint=options.hint, seed=options.seed)
    typed = shlex.quote(sys.argv[0]).replace("{", "{{").replace("}", "}}")
    print(result.text(f"python {typed} --hint {{hint}}"))
    sys.exit(0 if result.passed else 1)


# inside the process that judges


NOTHING = {"hints": [], "why": []}  # of a verdict that has none


class Unsolved(Wrong):
    """Raised by a judge: nothing has been filled in."""


def _judge(file: Path, judge: Path, seed: int = 0, seconds: float = TIME_LIMIT_S, here: bool = True) -> dict[str, Any]:
    """Status, message, hints, output, CPU seconds and seed for one file, whatever it does.

    here: load the file in this process.
    """
    used = os.times()
    answer = Answer(file, _source(file), seed, seconds, here)
    try:
        verdict = _verdict(answer, judge)
    finally:
        answer.close()
    now = os.times()
    spent = sum(now[:4]) - sum(used[:4])
    drawn_from = seed if answer.drew else None
    return {**NOTHING, **verdict, "output": answer.output, "seconds": spent, "seed": drawn_from}


def _verdict(answer: Answer, judge: Path) -> dict[str, Any]:
    try:
        answer.task = load(judge, "dwlab_judge")
        sentence = answer.task.judge(answer)
        return {"status": "passed", "message": sentence or "", "why": [*answer.why, *_beside_ours(answer, judge)]}
    except Wrong as wrong:
        status = "unsolved" if isinstance(wrong, Unsolved) else "wrong"
        return {"status": status, "message": str(wrong), "hints": list(wrong.hints)}
    except Raised as raised:
        return {"status": raised.status, "message": str(raised)}
    except Ended as ended:
        if ended.status is not None:
            return {"status": "error", "message": f"Python ended ({_end(ended.status)}) before the answer was graded."}
        what = f"It was stopped after {answer.seconds:g} s of computing, or it slept"
        message = f"{what}. Look for a loop that never ends, in the kernel or around it."
        return {"status": "timeout", "message": message}
    except _TooLong:
        return {"status": "timeout", "message": "The kernel does not end, or needs far more steps than it should."}
    except Exception as error:
        found = failure(error, answer.file)
        return {"status": found["status"], "message": found["message"]}


COUNTED = {
    "requests": "requests of global memory",
    "sectors": "sectors",
    "shared_wavefronts": "wavefronts of shared memory",
    "atomics": "atomics",
    "barriers": "barriers",
    "flops": "FLOPs",
}
"""What a kernel is compared with ours by: a field of an xray's totals -> its unit."""


def _launches(answer: Answer) -> dict[str, dict[str, int]]:
    """What a judge has counted, launch by launch."""
    found: dict[str, dict[str, int]] = {}
    for one in answer.launches:
        mine = found.setdefault(one.what, dict.fromkeys(COUNTED, 0))
        for name in COUNTED:
            mine[name] += getattr(one.totals, name)
    return found


def counts(file: Path, judge: Path) -> tuple[str, dict[str, int]] | None:
    """The launch of a right answer that moves most, and its counts: of those that are the same whatever is drawn."""
    first, second = (Answer(file, _source(file), seed, TIME_LIMIT_S, here=True) for seed in (1, 2))
    for answer in (first, second):
        if (verdict := _verdict(answer, judge))["status"] != "passed":
            raise GradeError(f"{file.name}: {verdict['message']}")
    known = _launches(second)
    same = [(what, mine) for what, mine in _launches(first).items() if known.get(what) == mine]
    return max(same, key=lambda one: one[1]["sectors"], default=None)


def _beside_ours(answer: Answer, judge: Path) -> list[str]:
    """What was counted of this answer's kernel, and of our solution's in the same launch."""
    known = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    what, ours = known.get(_ID.match(judge.name)[1]) or ("", {})
    mine = _launches(answer).get(what)
    if mine is None:
        return []
    own = ", ".join(_many(mine[name], unit) for name, unit in COUNTED.items() if mine[name] or ours[name])
    differs = [_many(ours[name], unit) for name, unit in COUNTED.items() if mine[name] != ours[name]]
    head = f"Counted for {what}" if what else "Counted"
    return [f"{head}: {own}. Our solution: {', '.join(differs) + ', else' if differs else 'exactly'} the same."]


class _TooLong(BaseException):
    """Judging took more CPU time than a right kernel can need."""


def _too_long(*_: object) -> None:
    raise _TooLong


def _work() -> None:
    """The process that judges: a task a line on standard input, a verdict a line on standard output."""
    tasks, verdicts = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the answer's process is ended, too
    timer = getattr(signal, "setitimer", None)
    if timer:
        signal.signal(signal.SIGPROF, _too_long)
    for line in tasks:
        task = json.loads(line)
        if timer:
            timer(signal.ITIMER_PROF, JUDGING_LIMIT_S)
        verdict = _judge(Path(task["file"]), Path(task["judge"]), task["seed"], task["seconds"], here=False)
        if timer:
            timer(signal.ITIMER_PROF, 0)
        verdicts.write(b"\n" + json.dumps({**verdict, "nonce": task["nonce"]}).encode() + b"\n")
        verdicts.flush()


# what judges are made of


def kernel(answer: Answer, name: str) -> Any:
    """The student's kernel `name`; Wrong says what is in its place."""
    found = given(answer, name)
    if hasattr(found, "py_func"):
        if getattr(found, "device", False) is True:
            raise Wrong(f"`{name}` is a device function; it must be a kernel: @cuda.jit without device=True.")
        found.py_func.__dict__["launches"] = answer.launches
        if (own := getattr(answer.task, name, None)) is not None:
            expected, has = parameters(own), parameters(found)
            if len(expected) != len(has):
                raise Wrong(
                    f"`{name}` takes {_many(len(has), 'parameters')} ({', '.join(has)}); it is called with "
                    f"{len(expected)}: leave its first line as it was.",
                    (f"def {name}({', '.join(expected)}):",),
                )
            found.py_func.__dict__["expected"] = expected
        return found
    if isinstance(found, Function):
        raise Wrong(f"`{name}` is a plain Python function: the line @cuda.jit above it is missing.")
    raise Wrong(f"`{name}` is {_described(found)}; it must be a kernel: a function with @cuda.jit above it.")


def parameters(kernel: Any) -> tuple[str, ...]:
    """The names of a kernel's parameters."""
    code = kernel.py_func.__code__
    return code.co_varnames[: code.co_argcount]


def function(answer: Answer, name: str, hints: Sequence[str] = ()) -> Function:
    """The student's plain function `name`; Wrong says what is in its place."""
    found = given(answer, name)
    if hasattr(found, "py_func"):
        raise Wrong(f"`{name}` is a kernel; it must be a plain Python function: take @cuda.jit away.", hints)
    if not isinstance(found, Function):
        raise Wrong(f"`{name}` is {_described(found)}; it must be a function.", hints)
    return found


EDGES = (32, 64, 128, 256, 1024)


def drawn(answer: Answer, *ranges: tuple[int, int]) -> tuple[int, ...]:
    """A whole number of each range (least, most), drawn anew at each call: every second one beside a power of two."""
    answer.drew = True
    numbers = []
    for least, most in ranges:
        beside = [n for edge in EDGES for n in (edge - 1, edge, edge + 1) if least <= n <= most]
        edge = beside and answer.random.random() < 0.5
        numbers.append(int(answer.random.choice(beside) if edge else answer.random.integers(least, most + 1)))
    return tuple(numbers)


def one_large(answer: Answer, axes: int) -> tuple[tuple[int, ...], ...]:
    """Sizes of small launches: each axis in turn is beyond 1,024, the most threads of a block, and the others are few.

    A kernel that is right for some more than one block holds is found here: one without a loop, or with a buffer of so
    many elements.
    """
    return tuple(
        drawn(answer, *((1025, 1500) if axis == large else (1, 3) for axis in range(axes))) for large in range(axes)
    )


def values(answer: Answer, *shape: int, least: float = -2.0, most: float = 3.0) -> np.ndarray:
    """float32 between `least` and `most`, negative ones too, drawn anew at each call."""
    answer.drew = True
    return answer.random.uniform(least, most, shape).astype(np.float32)


# The first hint, if that is what a kernel does: an exercise's own hints lead to its idea, not to this.
HAZARD_HINTS = {
    "out of bounds": "Is it that axis's index, or another's? If it is: some threads have nothing to do there, and a "
    "test of it must stand before that line.",
    "negative index": "Numba counts a negative index from the end, without a word. Test for it before that line.",
    "race": "What one thread writes and another reads needs a barrier in between. Who reads it, at any size? If "
    "threads of other warps do, too, it takes cuda.syncthreads(); cuda.syncwarp() orders the lanes of one warp only.",
    "race in a block": "Threads of different warps write and read here: cuda.syncthreads() belongs between the two. "
    "cuda.syncwarp() orders the 32 lanes of one warp only.",
    "race in a warp": "The lanes of one warp write and read here: cuda.syncwarp() belongs between the two.",
    "race between blocks": "Blocks run in any order, and no barrier orders them: each element needs one block that "
    "writes it, or an atomic.",
    "race in flight": "A copy that was started is not there yet. ptx.commit() ends a group, ptx.wait(0) waits "
    "until this thread's are there: both stand before the first access, and a barrier if another thread reads.",
    "race of writes": "Two threads write the same element, on these two lines, and nothing says which comes last. Does "
    "one of them write an element too many? If both must, a barrier belongs between them.",
    "divergent barrier": "Every thread must come to the barrier: take it out of the guard, and guard the work instead.",
    "uninitialised": "Nothing has been written there yet. Which line should have done it, and in which thread?",
    "uninitialised output": "An output holds nothing before the launch: `+=` and atomics have nothing to start from. "
    "Add up in a variable that starts at 0, and store it once.",
    "two writers": "Two threads write the same element. Which of their indices should differ, and does not?",
}


class Output(np.ndarray):
    """An output array. `written`, after a launch: which of its elements were."""

    written: np.ndarray | None = None


def poisoned(*shape: int, dtype: str = "float32") -> Output:
    """An output array for `launched`, in which nothing is right yet: NaN (or, for integers, the least number)."""
    kind = np.dtype(dtype)
    return np.full(shape, np.iinfo(kind).min if kind.kind in "iu" else np.nan, dtype=kind).view(Output)


def launched(
    kernel: Any,
    grid: Any,
    block: Any,
    *args: Any,
    shared_bytes: int = 0,
    updates: Sequence[np.ndarray] = (),
    hints: Sequence[str] = (),
    what: str = "",
) -> Any:
    """Run a kernel on the interpreter; its results are in the arrays of `args` then. Returns this launch's report.

    Arrays of `poisoned` are outputs: reading one before it is written is a hazard. `updates` are those that it reads
    and writes. All others are inputs. A hazard, a store to an input or an input that changed is Wrong. what: how to
    call this launch in a message. The report calls arrays as the task does, whatever names the answer has for them, and
    has more than an `xray`: `what`; `stored`, array -> the most elements of it that one thread stored; `loaded`, array
    -> requests that each warp of a block makes for it, all blocks together; `products`, products of small matrices on
    tensor cores, one a warp; `copied`, requests of asynchronous copies.
    """
    with _called(what):
        return _launched(kernel, grid, block, args, shared_bytes, updates, hints, what)


@contextlib.contextmanager
def _called(what: str) -> Iterator[None]:
    """Puts the launch that a Wrong is about in front of it."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"{what}: {wrong}" if what else str(wrong), wrong.hints) from None


def _launched(
    kernel: Any, grid: Any, block: Any, args: Sequence[Any], shared_bytes: int, updates: Sequence[np.ndarray],
    hints: Sequence[str], what: str,
) -> Any:  # fmt: skip
    from dwlab.simt import cuda

    names = parameters(kernel)
    kept = [a.copy() if isinstance(a, np.ndarray) else None for a in args]
    given, outputs = [], []
    for one in args:
        if isinstance(one, Output):
            device = cuda.device_array(one.shape, one.dtype)
            device.storage[...] = np.asarray(one)
            outputs.append((one, device))
        given.append(outputs[-1][1] if isinstance(one, Output) else one)
    report, counted = _run(
        kernel, grid, block, given, shared_bytes, hints,
        [n for n, a in zip(names, args, strict=False) if isinstance(a, Output)],
    )  # fmt: skip
    for one, device in outputs:
        one[...] = device.copy_to_host()
        flags = device.allocation.written
        one.written = np.ones(one.shape, bool) if flags is None else _elements(flags, one)
    for name, one, before in zip(names, args, kept, strict=False):
        if before is None or isinstance(one, Output) or any(one is u for u in updates):
            continue
        for access in report.accesses:
            if access.space == "global" and access.kind != "load" and access.array == name:
                raise Wrong(f"Line {access.line}: a store to `{name}`, which is an input and stays as it is.", hints)
        if one.tobytes() != before.tobytes():
            raise Wrong(f"`{name}` is an input, and was changed.", hints)
    expected = dict(zip(names, getattr(kernel.py_func, "expected", names), strict=True))
    accesses = tuple(
        dataclasses.replace(a, array=expected.get(a.array, a.array)) if a.space == "global" else a
        for a in report.accesses
    )
    made = _counted_class()(
        **{**vars(report), "accesses": accesses}, what=what, products=counted.products, copied=counted.copied,
        stored={expected.get(name, name): int(each.max()) for name, each in counted.stored.items()},
        loaded={expected.get(name, name): [int(n) for n in each] for name, each in counted.loaded.items()},
    )  # fmt: skip
    kernel.py_func.__dict__.get("launches", []).append(made)
    return made


@functools.cache
def _counted_class() -> type:
    """A launch's report, and more (see `launched`). Made late: the interpreter is loaded where kernels run only."""
    from dwlab.simt import Report

    @dataclass(frozen=True)
    class Launched(Report):
        what: str = ""
        stored: dict[str, int] = field(default_factory=dict)
        loaded: dict[str, list[int]] = field(default_factory=dict)
        products: int = 0
        copied: int = 0

    return Launched


@functools.cache
def _counting_class() -> type:
    """What is told of a launch, and counts what an xray does not: see `launched`."""
    from dwlab import simt

    class Counting(simt.Observer):
        def begin(self, run: Any) -> None:
            self.stored: dict[str, np.ndarray] = {}
            self.loaded: dict[str, np.ndarray] = {}
            self.products = self.copied = 0
            self.last: Any = None

        def accessed(self, run: Any, array: Any, mask: Any, kind: str, node: Any) -> None:
            space = array.space
            if space == "global" and kind != "load":  # an atomic is a store, too
                each = self.stored.setdefault(array.name, np.zeros((run.blocks_total, run.padded), np.int64))
                known = run.arrays.get(array.name)
                each[run.block_numbers] += mask.full * (array.dtype.itemsize // known.dtype.itemsize if known else 1)
            if (space, kind) == ("global", "load"):
                each = self.loaded.setdefault(array.name, np.zeros(run.padded // 32, np.int64))
                each += mask.full.reshape(-1, run.padded // 32, 32).any(axis=2).sum(axis=0)
            # One call that loads from global memory and stores to shared memory: no register is between the two.
            self.copied += mask.warps if (space, kind) == ("shared", "store") and node is self.last else 0
            self.last = node if (space, kind) == ("global", "load") else None

        def operated(self, run: Any, instructions: int, unit: str) -> None:
            if unit == "tensor":
                self.products += instructions * run.mask.warps

    return Counting


def _elements(flags: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Which elements were written, from a flag for each byte."""
    return flags[: like.nbytes].reshape(-1, like.itemsize).all(axis=1).reshape(like.shape)


def _run(
    kernel: Any, grid: Any, block: Any, args: list[Any], shared: int, hints: Sequence[str], outputs: Sequence[str]
) -> Any:
    from dwlab import simt
    from dwlab.judge import causes

    made = kernel if isinstance(kernel, simt.Kernel) else simt.jit(kernel.py_func)
    counted = _counting_class()()
    options = simt.Options(hazards="raise", trace=True, step_limit=STEP_LIMIT)
    try:
        report = simt.xray(
            made, grid, block, *args, shared_bytes=shared, options=options, in_place=True, observer=counted
        )
    except simt.LaunchError as error:
        raise Wrong(f"It cannot be launched: {error}.", hints) from None
    except simt.HazardError as error:
        found = error.hazards[0]
        if found.kind == "race":
            found = _race_of_warps(made, grid, block, args, shared) or found
        text, kind = str(found), found.kind
        if kind == "race":
            kind = _race(text)
            if kind == "race in a warp" and math.prod(np.atleast_1d(block)) > 32:
                kind = "race"  # at a larger size other warps may read it
        if kind == "uninitialised" and found.array in outputs:
            kind = "uninitialised output"
        first = (HAZARD_HINTS[kind],) if kind in HAZARD_HINTS else ()
        if found.kind == "race" and (look := causes.on_one_line(found)):
            first = (f"{look[0].upper()}{look[1:].rstrip('?')}.",)
        raise Wrong(f"{text[0].upper()}{text[1:]}.", (*first, *hints)) from None
    return report, counted


def _race_of_warps(kernel: Any, grid: Any, block: Any, args: Sequence[Any], shared: int) -> Any:
    """A race that barriers of the warp do not remove, if there is one: of a launch that has them everywhere."""
    from dwlab import simt

    options = simt.Options(hazards="raise", step_limit=STEP_LIMIT, in_step=True)
    try:
        simt.xray(kernel, grid, block, *args, shared_bytes=shared, options=options)
    except simt.HazardError as error:
        return error.hazards[0] if error.hazards[0].kind == "race" else None
    except simt.SimtError:
        pass
    return None


def _race(text: str) -> str:
    """Which of HAZARD_HINTS a race needs."""
    for says, kind in (
        ("still in flight", "race in flight"),
        ("launch", "race between blocks"),
        (r" writes .* wrote on line", "race of writes"),
        ("syncthreads", "race in a block"),
        ("syncwarp", "race in a warp"),
    ):
        if re.search(says, text):
            return kind
    return "race"


def agree(
    got: np.ndarray, want: np.ndarray, what: str, tolerance: float = 1e-6, hints: Sequence[str] = (),
    mistakes: Callable[[], dict[str, np.ndarray]] | None = None,
) -> None:  # fmt: skip
    """Wrong, with the first element that differs by over `tolerance` times the largest wanted one, unless all agree.

    An output of `launched` must have been written everywhere, too. mistakes: what typical mistakes give, by what to say
    of them; where the result is that of one, or of several, this is the first hint.
    """
    written = getattr(got, "written", None)
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise Wrong(f"{what}: the result has shape {got.shape}; it must have {want.shape}.", hints)
    number = want.astype(np.float64) if want.dtype.kind in "iu" else want
    scale = float(np.abs(number[np.isfinite(number)]).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore", over="ignore"):
        close = (np.abs(got - number) <= tolerance * scale) | (got == want) | (np.isnan(got) & np.isnan(want))
    if written is not None and written.shape == close.shape:
        close &= written
    if close.all():
        return
    first = tuple(int(i) for i in np.argwhere(~close)[0])
    place = ", ".join(map(str, first))
    never = not written[first] if written is not None and written.shape == close.shape else False
    it, right = _distinct(got[first], want[first])
    seen = "was never written" if never else "is NaN" if np.isnan(got[first]) else f"is {it}"
    made = mistakes() if mistakes else {}
    typical = [text for text, other in made.items() if np.allclose(got, other, rtol=0, atol=10 * tolerance * scale)]
    raise Wrong(
        f"{what}: element [{place}] {seen}; {right} is right. "
        f"{int((~close).sum())} of {want.size} element{'s are' if want.size > 1 else ' is'} wrong.",
        (*([" Or: ".join(typical)] if typical else _value_hints(got, number, close, written)), *hints),
    )


def of_a_layer(problem: Any, inputs: dict[str, np.ndarray], got: np.ndarray, want: np.ndarray) -> dict[str, np.ndarray]:
    """For `agree`: the first of the mistakes that `dwlab.check` knows of such a layer which gives what came out."""
    from dwlab.judge.mistakes import mistakes

    got = np.asarray(got, np.float64)
    size = np.abs(want).max(initial=0)
    if got.size < 8:  # many mistakes give the same few numbers
        return {}
    for one in mistakes(problem, inputs, got.reshape(problem.shapes()["y"]), want.reshape(problem.shapes()["y"])):
        output = one.output.reshape(got.shape)
        if np.allclose(got, output, rtol=0, atol=1e-5 * size):
            text = one.text[0].upper() + one.text[1:] if one.text[:2].isalpha() else one.text
            return {f"{text}. Look at: {one.look.rstrip('?')}.": output}
    return {}


def _distinct(got: float, want: float) -> tuple[str, str]:
    """Two numbers as text, with so many digits that they do not look alike."""
    for digits in (7, 9, 12, 17):
        texts = f"{got:.{digits}g}", f"{want:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _value_hints(got: np.ndarray, want: np.ndarray, close: np.ndarray, written: np.ndarray | None) -> tuple[str, ...]:
    """A first hint from what wrong values have in common, if they have anything."""
    wrong = ~close
    if written is not None and written.shape == close.shape and (unwritten := wrong & ~written).any():
        if not written.any():
            return (NOTHING_STORED,)
        where = _edge(unwritten)
        return (f"{where[0].upper()}{where[1:]} are written by no thread.",) if where else ()
    g, w = got[wrong].astype(np.float64), want[wrong].astype(np.float64)
    if g.any() and np.array_equal(g, np.floor(w)):
        return ("All of them are rounded down to whole numbers: / divides, // does that.",)
    if not (np.isfinite(g).all() and np.isfinite(w).all()) or g.size < 3 or np.ptp(w) == 0:
        return (f"Only {where} are wrong.",) if (where := _edge(wrong)) else ()
    size = np.abs(w).max()
    if np.abs(g + w).max() <= 1e-5 * size:
        return ("All of them have the other sign.",)
    with np.errstate(all="ignore"):
        ratio = g[np.abs(w) == size][0] / w[np.abs(w) == size][0]
    if np.abs(g - ratio * w).max() <= 1e-5 * size and abs(ratio) > 1e-6:
        return (f"All of them are {ratio:.4g} times what is right: which factor is missing, or too much?",)
    if np.ptp(g - w) <= 1e-5 * size:
        return (f"All of them are off by {np.mean(g - w):.4g}: what is added once too often, or forgotten?",)
    return (f"Only {where} are wrong.",) if (where := _edge(wrong)) else ()


NOTHING_STORED = (
    "No thread stores anything there. Does one come to the store? `array[index] = value` is one; `array = value`, "
    "print and return store nothing."
)


def _edge(wrong: np.ndarray) -> str:
    """Which end of which axis holds all that is wrong; "" if it lies elsewhere."""
    for axis, size in enumerate(wrong.shape):
        lines = np.flatnonzero(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != axis)))
        n = len(lines)
        if size < 3 or n > size // 2 or lines[-1] - lines[0] != n - 1 or (lines[0] > 0 and lines[-1] < size - 1):
            continue
        some = "" if wrong.sum() == n * (wrong.size // size) else "some of "
        if n == 1:
            return f"{some}those with {'index 0' if lines[0] == 0 else 'the last index'} on axis {axis}"
        return f"{some}the {'first' if lines[0] == 0 else 'last'} {n} along axis {axis}"
    return ""


def convolves(kernel: Any, launch: Callable[[Any], Any], problem: Any = None, path: str = "forward") -> str:
    """Wrong unless `dwlab.check` passes the kernel with this launch (problem -> Launch); its hints are the judge's.

    Without a problem, on the whole family of shapes. Returns the sentence for a judge to end with.
    """
    from dwlab.judge.check import check

    verdict = check(kernel, problem, path=path, launch=launch)
    if not verdict.passed:
        first = verdict.failures[0].case
        found = "; ".join(str(one).rstrip(".") for one in verdict.findings[:2])
        raise Wrong(
            f"{len(verdict.failures)} of {len(verdict.results)} problems, first {first.problem}: {found}.",
            verdict.hints,
        )
    return f"Right on {len(verdict.results)} problems"


def convolution(
    kernel: Any, launch: Callable[[Any], Any], problem: Any, answer: Answer, path: str = "forward",
    tolerance: float = 1e-5, hints: Sequence[str] = (),
) -> Any:  # fmt: skip
    """The report of one launch of a convolution (problem -> Launch) on drawn values, whose outputs are right."""
    from dwlab.problems.references import reference

    answer.drew = True
    inputs = problem.inputs(path, seed=int(answer.random.integers(1 << 31)))
    outputs = {name: poisoned(*problem.shapes(path)[name]) for name in problem.outputs(path)}
    want, how = reference(problem, path, inputs), launch(problem)
    args = (*((inputs | outputs)[name] for name in problem.arrays(path)), *how.scalars)
    what = str(problem)
    report = launched(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes, hints=hints, what=what)
    for name, got in outputs.items():
        agree(got, want[name], f"{what}: {name}", tolerance, hints)
    return report


def counted(kernel: Any, launch: Callable[[Any], Any], problem: Any, path: str = "forward") -> Any:
    """The `xray` of one of the workbook's kernels on a problem, started by `launch` (problem -> Launch)."""
    from dwlab.simt import xray

    outputs = {name: np.asarray(poisoned(*problem.shapes(path)[name])) for name in problem.outputs(path)}
    arrays = problem.inputs(path) | outputs
    how = launch(problem)
    args = (*(arrays[name] for name in problem.arrays(path)), *how.scalars)
    return xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes)


def typical_first(launches: Sequence[Any], given: int) -> list[Any]:
    """The order in which launches are counted: of the first `given` ones the last is the typical one, and is reported.

    The last of all, a drawn one, stays the last.
    """
    return [*reversed(launches[:given]), *launches[given:]]


COALESCE = (
    "The 32 threads of a warp have neighbouring values of threadIdx.x. Which addresses do they request at one moment?",
    "Let threadIdx.x run along the last axis of the array: neighbours in the warp should be neighbours in memory.",
)


def coalesced(report: Any, arrays: Sequence[str] = (), hints: Sequence[str] = COALESCE) -> str:
    """Wrong unless each access to global memory (to `arrays`, by default all) moves hardly more sectors than it must.

    `report` is an `xray`. One sector a request more than the ideal is granted: rows need not start on a sector.
    Returns the sentence for a judge to end with.
    """
    seen = [a for a in report.accesses if a.space == "global" and (not arrays or a.array in arrays)]
    if not seen:
        raise Wrong(f"{_of(report)}The kernel never touches {' or '.join(arrays) or 'global memory'}.", hints)
    for a in sorted(seen, key=lambda a: a.ideal_sectors - a.sectors):
        if a.sectors > a.ideal_sectors + a.requests:
            raise Wrong(
                f"{_of(report)}Line {a.line}, {a.kind} of {a.array}: {_many(a.sectors, 'sectors')} in "
                f"{_many(a.requests, 'requests')}, {a.sectors / a.requests:.1f} sectors per request; "
                f"{a.ideal_sectors / a.requests:.1f} would hold it.",
                hints,
            )
    sectors, requests = sum(a.sectors for a in seen), sum(a.requests for a in seen)
    return f"{sectors / requests:.1f} sectors per request ({sectors:,} in {requests:,})"


def moves_at_most(report: Any, limit_bytes: float, why: str, hints: Sequence[str] = ()) -> str:
    """Wrong if an `xray` counted more bytes of global traffic than `limit_bytes`; `why` says where that comes from."""
    moved = report.totals.bytes_moved
    if moved > limit_bytes:
        raise Wrong(f"{_of(report)}{moved:,} bytes are moved; {limit_bytes:,.0f} are enough: {why}.", hints)
    return f"{moved:,} bytes moved"


def float32_only(report: Any, hints: Sequence[str] = ()) -> None:
    """Wrong if an `xray` counted float64 arithmetic: one literal such as 2.1, or a sum that starts at 0.0, is enough.

    Not counted is what the compiler makes float32 again (dwlab.simt.float64), such as a single product with 2.0.
    """
    for line in report.lines:
        if line.float64:
            raise Wrong(
                f"{_of(report)}Line {line.line}, `{line.text.strip()}`: {_many(line.float64, 'float64 operations')}.",
                hints
                or (
                    "In Numba 0.0 and 2.1 are float64, and so is what is computed of a float32 and one of them, or of "
                    "a float32 and an int64.",
                    "The compiler undoes that for one operation with a number that float32 holds, such as 2.0 * x[i], "
                    "whose result goes straight into a float32; not for 2.1 * x[i], 2.0 * x[i] + 1.0, max(0.0, x[i]) "
                    "or a sum that starts at 0.0.",
                    "Write float32(2.1), and start sums at float32(0).",
                ),
            )


def at_most(found: int, enough: int, what: str, why: str, hints: Sequence[str] = (), report: Any = None) -> None:
    """Wrong if more was counted in a launch than `enough`: "`found` `what`; `enough` are enough: `why`"."""
    if found > enough:
        are = "is" if enough == 1 else "are"
        raise Wrong(f"{_of(report)}{_many(found, what)}; {enough:,} {are} enough: {why}.", hints)


def without(report: Any, *spaces: str, why: str = "", hints: Sequence[str] = ()) -> None:
    """Wrong if a launch used "shared" or "local" memory, "atomics" or "barriers" of the block."""
    counts = {
        "shared": (report.totals.shared_requests or report.shared_bytes, "accesses to shared memory"),
        "atomics": (report.totals.atomics, "atomics"),
        "barriers": (report.totals.barriers, "barriers of the block"),
    }
    for space in spaces:
        found, what = counts[space]
        if found:
            raise Wrong(f"{_of(report)}{_many(found, what)}; {why}.", hints)


def written_once(report: Any, array: str, elements: int, hints: Sequence[str] = ()) -> None:
    """Wrong if a launch read an output, or stored to it more often than it has elements: it is no place for scratch."""
    for a in report.accesses:
        if a.array == array and a.space == "global" and a.kind != "store":
            raise Wrong(
                f"{_of(report)}Line {a.line}: {array} is read. It is an output, in global memory: keep what is not "
                "finished in registers or in shared memory.",
                hints,
            )
    stored = [a for a in report.accesses if a.array == array and a.space == "global"]
    size = min((a.itemsize for a in stored), default=1)  # some stores may be of 16 bytes
    stores = sum(a.active_lanes * a.itemsize // size for a in stored)
    at_most(stores, elements, f"elements are stored to {array}", "each once", hints, report)


STORED_OFTEN = (
    "Store an element once, when it is done: what is not finished, and what an if decides, is kept in a variable. "
    "Elements of others are for their threads."
)


def stored_by_a_thread(report: Any, array: str, most: int = 1, hints: Sequence[str] = ()) -> None:
    """Wrong if a thread of a launch stored more elements of an output than the task gives it."""
    if (found := report.stored.get(array, 0)) > most:
        raise Wrong(
            f"{_of(report)}one thread stores {found:,} values to {array}; it computes {_many(most, 'elements')}.",
            (STORED_OFTEN, *hints),
        )


def _of(report: Any) -> str:
    """The launch that a report is of, to begin a message with; "" for a plain xray."""
    return f"{report.what}: " if getattr(report, "what", "") else ""


def _many(number: float, unit: str) -> str:
    """ "1 request", "2 requests": a number with its unit, of which the first word is a plural."""
    first, *rest = unit.split(" ")
    if number == 1 and first.isalpha() and len(first) > 3 and first.endswith("s"):
        first = first[:-2] if first.endswith("sses") else first[:-1]
    return f"{number:,} {' '.join([first, *rest])}"


def predicted(
    answer: Answer, name: str, counted: float, unit: str, hints: Sequence[str] = (), tolerance: float = 0.0
) -> str:
    """Wrong unless the number that the student wrote down as `name` is what was counted.

    To a relative `tolerance`; where this is a thousandth or more, rounded to three digits will do as well.
    Only the last hint has the count itself; of `hints` the last one says how it comes about. Returns the sentence for a
    judge to end with.
    """
    value = given(answer, name)
    if value is None or value is Ellipsis:
        still = "..." if value is ... else value
        raise Unsolved(f"`{name}` is still {still}: write your prediction down, then run this again.")
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iuf":
        value = value[()]
    if not (number := real(value)) or not math.isfinite(number[0]):
        raise Wrong(f"`{name}` is {_described(value)}; it must be a number.", (WRITTEN,))
    (value,), counted = number, float(counted)
    rounded = tolerance >= 1e-3 and value == float(f"{counted:.3g}")
    if not rounded and not abs(value - counted) <= tolerance * abs(counted):
        pieces = " " not in unit and unit.endswith("s") and len(unit) > 2  # "7 requests", not "3 as its lane" or "2 ms"
        if pieces:
            side = f"{'more' if counted > value else 'fewer'} were counted"
        else:
            side = f"that is too {'low' if counted > value else 'high'}"
        shown, right = (_counted(one, unit) for one in (value, counted))
        power = round(math.log10(abs(value)) - math.log10(abs(counted))) if value and counted else 0
        scaled = counted * float(f"1e{power}")
        alike = math.isclose(value, scaled, rel_tol=max(tolerance, 1e-3)) or value == float(f"{scaled:.3g}")
        about = [UNITS] if alike and abs(power) > 1 and (not pieces or unit == "bytes") else []
        about += [SIGN] if value == -counted else []
        raise Wrong(
            f"`{name}`: you predicted {shown}; {side}.",
            (
                *about,
                *hints,
                f"{right} {'was' if counted == 1 else 'were'} counted." if pieces else f"It is {right}.",
            ),
        )
    answer.why += [f"`{name}`: {hints[-1]}"] if hints else []
    return f"`{name}`: counted {_counted(counted, unit)}"


WRITTEN = "Write it as Python has it, 1536 or 3 * 512: without quotation marks, unit or comma."
SIGN = "Its size is right, its sign is not."
UNITS = "The digits are right. Which unit is wanted, and is it a part of one or percent?"


def _counted(number: float, unit: str) -> str:
    """A number with its unit: whole ones with all their digits, others with six."""
    digits = f"{number:,.0f}" if number == int(number) and abs(number) < 1e15 else f"{number:,.6g}"
    return f"{digits} {_many(number, unit).split(' ', 1)[1]}"


def real(value: Any) -> tuple[float] | tuple[()]:
    """A number that an answer gave, as a float in a tuple; () if it is none, or too large for one."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        return ()
    try:
        return (float(value),)
    except OverflowError:
        return ()


def pair(value: Any) -> tuple[Any, Any] | None:
    """Two things that a function returned together, as a tuple or a list; None if it did not."""
    return tuple(value) if isinstance(value, (tuple, list)) and len(value) == 2 else None


def whole(value: Any, what: str, hints: Sequence[str] = ()) -> int:
    """A whole number that a function returned; Wrong says what it is instead."""
    if value is None:
        raise Wrong(f"{what} is None: is a `return` missing?", hints)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        division = ": // divides whole numbers" if isinstance(value, float) else ""
        raise Wrong(f"{what} is {_text(value)}; it must be a whole number{division}.", hints)
    return int(value)


class Lookups(dict):
    """A dictionary that counts its look-ups; more than `limit` of them are Wrong, with `text`."""

    def __init__(self, values: dict, limit: int, text: str, hints: Sequence[str] = ()):
        super().__init__(values)
        self.lookups, self.limit, self.text, self.hints = 0, limit, text, tuple(hints)

    def _count(self) -> None:
        self.lookups += 1
        if self.lookups > self.limit:
            raise Wrong(self.text, self.hints)

    def __reduce__(self):
        return type(self), (dict(self.items()), self.limit, self.text, self.hints)

    def __getitem__(self, key):
        self._count()
        return super().__getitem__(key)

    def __contains__(self, key):
        self._count()
        return super().__contains__(key)

    def get(self, key, default=None):
        """As dict has it."""
        self._count()
        return super().get(key, default)


def given(answer: Answer, name: str) -> Any:
    try:
        return answer.given(name)
    except AttributeError:
        raise Wrong(f"The file has no `{name}` any more: take that line back from the exercise as it was.") from None


def _text(value: Any) -> str:
    text = value.text if isinstance(value, Other) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _described(value: Any) -> str:
    return f"{_text(value)} ({value.type if isinstance(value, Other) else type(value).__name__})"


if __name__ == "__main__":
    # The package's own module, not this __main__: judges import dwlab.judge.exercises, whose Wrong must be caught.
    from dwlab.judge import exercises

    exercises._work()
