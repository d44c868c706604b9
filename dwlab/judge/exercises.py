"""Grading: `grade("01_2")` in a lesson, `python exercises/01_2_….py` or `python -m dwlab grade` else.

An exercise is one Python file that the student completes. Its judge is another, in exercises/judges/: `judge(answer)`
gets what dwlab.judge.answer sees of the student's file and returns a sentence saying what was found right, or raises
`Wrong` with hints in steps; dwlab.judge.tools has what it is made of. To a right answer the result adds how its numbers
come about, and what our solution's kernel makes of a launch that was counted.

Three processes: the one that calls `grade`; one that judges, where kernels are interpreted and compared; and one for
each file, which may raise, run for ever, print rubbish or end Python, and gets one clear line for it. Limits are of CPU
time and of a kernel's steps, so a busy machine changes no verdict; a wall clock only stops what sleeps. Of several
files for one exercise the best counts. Where one changes what others are graded by, grading ends. Sizes and
values are drawn from a seed, which stands below a wrong answer and `grade(..., seed=)` repeats.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import functools
import hashlib
import html
import itertools
import json
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dwlab.judge.answer import (
    JUDGES,
    ROOT,
    WORKBOOK,
    Answer,
    Ended,
    Raised,
    Unsolved,
    Wrong,
    environment,
    failure,
    fence,
    load,
    many,
    stop,
)  # fmt: skip
from dwlab.text import commandline, tabular, terminal


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
_PARSING = threading.Lock()  # Python 3.11's parser is not safe in two threads: "recursion depth mismatch"
_ID = re.compile(r"(?<!\d)(\d\d_\d+)(?!\d)")
# What a status means, in the order in which a teacher wants to know.
STATUS = {
    "passed": "passed",
    "wrong": "not right yet",
    "unsolved": "not solved yet",
    "syntax": "not Python",
    "error": "raised an error",
    "timeout": "took too long",
    "unreadable": "cannot be read",
    "unknown": "not an exercise",
}


@dataclass(frozen=True)
class Result:
    """The verdict on one file.

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
        """The text that the student reads; `more` says how to get the next hint."""
        printed = [f"| {line}" for line in self.output.rstrip().split("\n")] if self.output.strip() else []
        return "\n  ".join([*self._lines(more), *printed])

    __str__ = text

    def __repr__(self) -> str:
        return tabular.wrapped(self.text())

    def _repr_html_(self) -> str:
        verdict, *beside = map(tabular.prose, self._lines('`grade("{exercise}", hint={hint})`'))
        items = "".join(f"<li>{one}</li>" for one in beside)
        printed = f"<pre>{html.escape(self.output.rstrip())}</pre>" if self.output.strip() else ""
        return f"<p>{verdict}</p>" + (f"<ul>{items}</ul>" if items else "") + printed


@dataclass(frozen=True)
class Results:
    """The results of several files, as a table for a teacher. Of a student's files for one exercise the best counts,
    here and in all that is written of them; fence: what kept answers from the machine, as a sentence."""

    results: tuple[Result, ...]
    fence: str = ""

    @property
    def passed(self) -> bool:
        """Whether every answer that counts is right."""
        return all(r.passed for r in self.counting)

    @functools.cached_property
    def counting(self) -> tuple[Result, ...]:
        """The results that count: of each exercise of a student one, and of files that are none all."""
        best = self.students()
        return tuple(r for r in self.results if not r.exercise or best[r.student][r.exercise] is r)

    def __iter__(self):
        return iter(self.results)

    def to_dict(self) -> list[dict[str, Any]]:
        """One object a file, hints included; "counts" is false where a better one was handed in."""
        counting = {id(r) for r in self.counting}
        return [{**asdict(r), "counts": id(r) in counting} for r in self.results]

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """Header and rows: a student a row and an exercise a column; with one student, an exercise a row."""
        names, marks = self._marks(STATUS, "-")
        if len(marks) <= 1:
            return ["exercise", "result"], [list(one) for own in marks.values() for one in zip(names, own, strict=True)]
        rows = [[s or "(no name)", *own, f"{own.count('passed')} of {len(names)}"] for s, own in marks.items()]
        return ["student", *names, "passed"], rows

    def _marks(self, words: dict[str, str], none: str) -> tuple[list[str], dict[str, list[str]]]:
        """The exercises, and each student's marks in them; none: what was not handed in."""
        names = sorted({one.exercise for one in self.results if one.exercise})
        best = self.students().items()
        return names, {s: [words[mine[n].status] if n in mine else none for n in names] for s, mine in best}

    def students(self) -> dict[str, dict[str, Result]]:
        """Student -> exercise -> the best of what was handed in for it: the first that passed, else the first."""
        found: dict[str, dict[str, Result]] = {}
        for one in self.results:
            mine = found.setdefault(one.student, {})
            if one.exercise and (one.exercise not in mine or one.passed > mine[one.exercise].passed):
                mine[one.exercise] = one
        return found

    def to_csv(self, path: str | Path) -> Path:
        """A row a student: each exercise's status, how many passed, of how many. Returns the path."""
        names, marks = self._marks({one: one for one in STATUS}, "")
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["student", *names, "passed", "of"])
            for student, own in marks.items():
                name = f"'{student}" if student[:1] in ("=", "+", "-", "@") else student  # no formula in a spreadsheet
                table.writerow([name, *own, own.count("passed"), len(names)])
        return Path(path)

    def to_results(self, folder: str | Path) -> list[Path]:
        """Writes for each student a file STUDENT.json as Gradescope reads and otter-grader writes them: "tests", each
        with name, score, max_score and output, and the student's name; 0 for what was not handed in. Returns the paths.
        """
        names = sorted({one.exercise for one in self.results if one.exercise})
        Path(folder).mkdir(parents=True, exist_ok=True)
        written = []
        plain = {student: re.sub(r"[^\w.-]+", "_", student) or "student" for student in self.students()}
        for student, mine in sorted(self.students().items(), key=lambda one: plain[one[0]] != one[0]):
            tests = [
                {"name": name, "score": float(name in mine and mine[name].passed), "max_score": 1.0,
                 "output": mine[name].text() if name in mine else "not handed in", "visibility": "visible"}
                for name in names
            ]  # fmt: skip
            name = plain[student]
            same = sum(one.stem.partition("~")[0] == name for one in written)
            place = Path(folder) / f"{name}{f'~{same + 1}' if same else ''}.json"
            summary = f"{sum(t['score'] for t in tests):g} of {len(tests)} passed"
            content = {"tests": tests, "output": summary, "extra_data": {"student": student}}
            place.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")
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
        """Mistakes, and who handed them in. Of what passed or is not solved the table says all there is to say."""
        found: dict[str, list[str]] = {}
        for r in self.counting:
            if r.status not in ("passed", "unsolved"):
                text = f"{r.exercise or r.file}: {STATUS[r.status]}. {r.message}".rstrip()
                found.setdefault(text, []).append(r.student)
        return {text: ", ".join(filter(None, dict.fromkeys(who))) for text, who in found.items()}

    def __str__(self) -> str:
        header, rows = self.rows()
        lines = [tabular.columns(header, rows, left=range(len(header)))]
        lines += [f"{who}: {text}" if who else text for text, who in self._wrong().items()]
        lines += self._notes()
        lines.append(f"{sum(r.passed for r in self.counting)} of {len(self.counting)} passed")
        return "\n".join(lines)

    __repr__ = __str__

    def _notes(self) -> list[str]:
        """Notes on the whole table: which of several files count, and the fence."""
        more = [f"{one['file']} of {one['student']}" for one in self.to_dict() if not one["counts"]]
        notes = [f"Of several files for one exercise the best counts: not {', '.join(more)}."] if more else []
        return [*notes, self.fence] if self.fence else notes

    def _repr_html_(self) -> str:
        wrong = "".join(f"<li>{tabular.prose(f'{who} {text}'.strip())}</li>" for text, who in self._wrong().items())
        wrong += "".join(f"<li>{tabular.prose(one)}</li>" for one in self._notes())
        return tabular.as_html(*self.rows()) + (f"<ul>{wrong}</ul>" if wrong else "")


class GradeError(ValueError):
    """A name or folder that means no exercise: says which there are. Or files by which answers are graded changed."""


# grading


def known() -> dict[str, Path]:
    """The exercises of the workbook, id -> the file that judges it."""
    found = {match[1]: file for file in sorted(JUDGES.glob("*.py")) if (match := _ID.match(file.name))}
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
        return grade_files([("", i, EXERCISES / f.name) for i, f in known().items()], time_limit, seed)
    exercise, file = _find(str(what), EXERCISES)
    return judge_file(file, exercise, hint=hint, time_limit=time_limit, seed=seed)


def grade_folder(folder: str | Path, time_limit: float = TIME_LIMIT_S, seed: int | None = None) -> Results:
    """Judge every Python file below `folder`: handed in as STUDENT/01_2_topic.py or as STUDENT_01_2_topic.py.

    Another file whose name holds an exercise's number, such as a notebook, is listed as what cannot be graded.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise GradeError(f"{folder} is not a folder: give the one that holds the handed-in files")
    found = []
    for file in sorted(one for one in folder.rglob("*") if one.is_file() or one.is_symlink()):
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
    return Results(grade_files(found, time_limit, seed).results, _fence())


def _fence() -> str:
    """The fence that kept answers from this machine, as a sentence."""
    if fence():
        return "Fence: bubblewrap. Answers had no network, and nothing to write to but a folder of their own."
    if any(Path(one).exists() for one in ("/.dockerenv", "/run/.containerenv")):
        return "Fence: a container. Answers could reach what it can."
    return "Fence: none. Answers ran as you: a container or bubblewrap (bwrap) would keep them from your files."


def grade_files(
    files: Sequence[tuple[str, str, Path]], time_limit: float = TIME_LIMIT_S, seed: int | None = None
) -> Results:
    """Judge (student, exercise id, file) triples, a few at a time; says after each how many, where somebody looks on.

    GradeError if the package, a judge or a student's file changed meanwhile: what is graded then means nothing.
    """
    watched, graded = _digests([file for student, _, file in files if student]), itertools.count(1)
    idle: queue.SimpleQueue[_Judge] = queue.SimpleQueue()
    judges = [_Judge() for _ in range(min(4, os.cpu_count() or 1))]
    for judge in judges:
        idle.put(judge)

    def one(item: tuple[str, str, Path]) -> Result:
        student, exercise, file = item
        other = ""
        if not exercise:
            other = "Its name holds no number of an exercise, such as 10_1: rename it."
        elif file.suffix != ".py":
            other = f"It is a {file.suffix or 'file without a suffix'}: the Python file of exercises/ is wanted."
        elif file.is_symlink() and file.parent != EXERCISES:  # to what its student may not read
            other = "It is a link: the file itself is wanted."
        if other:
            result = Result("", file.name, "unknown", other, student=student)
        else:
            judge = idle.get()
            try:
                result = judge_file(
                    file, exercise, student, time_limit=time_limit, seed=seed, judge=judge, watched=watched
                )
            finally:
                idle.put(judge)
        if _watched():
            of = f"\r{(n := next(graded))} of {len(files)} files graded"
            print(of, end="\n" if n == len(files) else "", file=sys.stderr, flush=True)
        return result

    try:
        with ThreadPoolExecutor(len(judges)) as pool:
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
    watched: dict[Path, bytes] | None = None,
) -> Result:
    """Judge one file in processes of its own. Raises nothing that the file raises, and GradeError where it changed the
    package or a judge.

    judge, watched: a process that judges already and digests of files, as `grade_files` has them.
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
        return result("unreadable", f"{file.name} cannot be read: {reason}.")
    except SyntaxError as error:
        shown = f" in `{error.text.strip()}`" if error.text and error.text.strip() else ""
        return result("syntax", f"Line {error.lineno}: {error.msg}{shown}.")
    except (ValueError, RecursionError, MemoryError) as error:
        return result("syntax", f"Python cannot read it: {error}.")
    if unsolved := _unsolved(tree, known()[exercise], file.name):
        return result("unsolved", unsolved)
    own = judge or _Judge()
    watched = watched or _digests([file] if student else [])
    _unchanged(watched, file, student)
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    task = {"file": str(file.resolve()), "judge": str(known()[exercise]), "seconds": time_limit, "seed": seed}
    try:
        found = own.ask(task)
    finally:
        if judge is None:
            own.close()
    _unchanged(watched, file, student)
    return result(**{name: tuple(one) if isinstance(one, list) else one for name, one in found.items()})


def _digests(files: Sequence[Path]) -> dict[Path, bytes]:
    """Path -> digest of what answers are graded by, the package and the judges, and of these files."""
    watched = [*(ROOT / "dwlab").rglob("*.py"), *JUDGES.glob("*.*"), *files]
    return {one: hashlib.sha256(one.read_bytes()).digest() if one.is_file() else b"" for one in dict.fromkeys(watched)}


def _unchanged(watched: dict[Path, bytes], file: Path, student: str) -> None:
    """GradeError if one of the watched files is another one now, or if there is a new one."""
    now = _digests(list(watched))
    if changed := ["/".join(one.parts[-2:]) for one in now if now[one] != watched.get(one)]:
        raise GradeError(
            f"{', '.join(changed)} changed about when {file.name}{f' of {student}' if student else ''} was graded. "
            "Nothing more is graded: restore these files, look for the answer that writes to them, and begin again"
        )


class _Judge:
    """The process that judges, one file after the other; it starts with the first one."""

    def __init__(self) -> None:
        self.process: subprocess.Popen | None = None

    def ask(self, task: dict[str, Any]) -> dict[str, Any]:
        """The verdict on a task, as `_judge` has it."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dwlab.judge.exercises"],
                env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=os.name == "posix",
            )  # fmt: skip
        late = threading.Timer(WALL_LIMIT_S, stop, [self.process])
        late.start()
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):  # its end
            stop(self.process)
            status, self.process = self.process.returncode, None
            return {"status": "error", "message": f"Python ended ({_end(status)}) while the answer was graded."}
        finally:
            late.cancel()

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
    """The reason to say that nothing is filled in: a stub in the text, or all predictions still None; else ""."""
    if stub := _stub_line(tree):
        return f"Line {stub} of {name} still holds the stub: replace it with your code."
    stubs = re.findall(r"^(?:# )?(\w+(?:, \w+)*) = None(?:, None)*$", _source(judge), re.M)
    wanted = [one for names in stubs for one in names.split(", ")]
    empty = set()
    for node in (n for n in tree.body if isinstance(n, ast.Assign)):
        for target in node.targets:
            for one, value in zip(*(getattr(one, "elts", [one]) for one in (target, node.value)), strict=False):
                if isinstance(one, ast.Name):
                    nothing = isinstance(value, ast.Constant) and value.value is None
                    (empty.add if nothing else empty.discard)(one.id)
    if wanted and empty.issuperset(wanted):
        return f"`{wanted[0]}` is still None: write your prediction down, then run this again."
    return ""


def _stub_line(tree: ast.AST) -> int | None:
    """The line of the stub that the build writes, if it is still there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            text = ast.unparse(node.exc)
            if text.startswith("NotImplementedError(") and "is not solved yet" in text:
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
    names, seed = args.names, args.seed
    home = SOLUTIONS if args.solutions else EXERCISES
    if args.all:
        if names:
            raise GradeError(f"give names or --all DIR, not both: {', '.join(names)}")
        results = grade_folder(args.all, seed=seed)
    else:
        if not names:
            _there(home)
        picked = [_find(n, home) for n in names] or [(i, home / f.name) for i, f in known().items()]
        if len(picked) == 1 and not args.json:
            one = judge_file(picked[0][1], picked[0][0], hint=args.hint or 1, seed=seed)
            print(one.text(f"python -m dwlab grade {(names or picked[0])[0]} --hint {{hint}}"))
            return 0 if one.passed else 1
        results = grade_files([("", i, f) for i, f in picked], seed=seed)
    print(json.dumps(results.to_dict(), indent=1, ensure_ascii=False) if args.json else results)
    try:
        written = [results.to_csv(args.csv)] if args.csv else []
        if args.results:
            written.append(f"{args.results} ({many(len(results.to_results(args.results)), 'files')})")
    except OSError as error:
        print(f"dwlab: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if written:
        terminal.wrote(*written)
    return 0 if results.passed else 1


def progress(args: argparse.Namespace) -> int:
    """Judges the answers in exercises/ and says, lesson by lesson, how many are right and which is next."""
    rows = grade().lessons()
    if args.json:
        keys = ("lesson", "passed", "exercises", "next")
        print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1))
        return 0
    for lesson, passed, count, following in rows:
        bar = "■" * passed + "□" * (count - passed)
        print(f"lesson {lesson}  {bar}  {passed} of {count}" + (f"  next: {following}" if following else ""))
    print(f"{sum(row[1] for row in rows)} of {sum(row[2] for row in rows)} exercises solved")
    return 0


def _watched() -> bool:
    """Whether somebody looks on: a terminal, or a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


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


def _judge(file: Path, judge: Path, seed: int = 0, seconds: float = TIME_LIMIT_S, here: bool = True) -> dict[str, Any]:
    """A result's fields for one file, whatever it does: status, message, hints, why, output, CPU seconds, seed.

    here: load the file in this process.
    """
    used = os.times()
    answer = Answer(file, _source(file), seed, seconds, here)
    try:
        verdict = _verdict(answer, judge)
    finally:
        answer.close()
    spent = sum(os.times()[:4]) - sum(used[:4])
    drawn_from = seed if answer.drew else None
    return {"hints": (), "why": (), **verdict, "output": answer.output, "seconds": round(spent, 2), "seed": drawn_from}


def _verdict(answer: Answer, judge: Path) -> dict[str, Any]:
    try:
        answer.task = load(judge, "dwlab_judge")
        sentence = answer.task.judge(answer)
        why = (*answer.why, *_beside_ours(answer, judge))
        return {"status": "passed", "message": sentence or "", "why": why}
    except Wrong as wrong:
        status = "unsolved" if isinstance(wrong, Unsolved) else "wrong"
        return {"status": status, "message": str(wrong), "hints": wrong.hints}
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
        return {name: failure(error, answer.file)[name] for name in ("status", "message")}


COUNTED = {
    "requests": "requests of global memory",
    "sectors": "sectors",
    "shared_wavefronts": "wavefronts of shared memory",
    "atomics": "atomics",
    "barriers": "barriers",
    "flops": "FLOPs",
}
"""The measures by which a kernel is compared with ours: a field of an xray's totals -> its unit."""


def _launches(answer: Answer) -> dict[str, dict[str, int]]:
    """The counts of a judge's launches, by what they are called."""
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
    """A sentence on what was counted of this answer's kernel, and of our solution's in the same launch."""
    known = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    what, ours = known.get(_ID.match(judge.name)[1]) or ("", {})
    mine = _launches(answer).get(what)
    if mine is None:
        return []
    own = ", ".join(many(mine[name], unit) for name, unit in COUNTED.items() if mine[name] or ours[name])
    differs = [many(ours[name], unit) for name, unit in COUNTED.items() if mine[name] != ours[name]]
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
    timed = hasattr(signal, "setitimer")
    if timed:
        signal.signal(signal.SIGPROF, _too_long)
    for line in tasks:
        task = json.loads(line)
        if timed:
            signal.setitimer(signal.ITIMER_PROF, JUDGING_LIMIT_S)
        verdict = _judge(Path(task["file"]), Path(task["judge"]), task["seed"], task["seconds"], here=False)
        if timed:
            signal.setitimer(signal.ITIMER_PROF, 0)
        verdicts.write(json.dumps(verdict).encode() + b"\n")
        verdicts.flush()


if __name__ == "__main__":
    # The package's own module, not this __main__.
    from dwlab.judge import exercises

    exercises._work()
