"""The judge of exercises: `grade("01_2")` in a lesson, `python exercises/01_2_….py` or `python -m dwlab grade` else.

An exercise is one Python file that the student completes. Each is judged in a process of its own with a time limit, so
a file that raises, runs for ever, prints rubbish or ends Python harms no other: it gets one clear line. Beside the
answer stands `judge(answer)`, which gets the student's module and returns a sentence saying what was found right, or
raises `Wrong` with hints in steps. The judge that counts is the workbook's own copy (solutions/, else exercises/), not
the one in a handed-in file.

The second half of this module are the tools that judges are made of: `kernel` and `function` take one out of an answer,
`launched` and `agree` judge its results, `convolves` a convolution by `dwlab.check`; `coalesced`, `moves_at_most` and
`float32_only` judge an x-ray (`counted` makes that of a convolution), `predicted` a number. All but `convolves` run
kernels on the interpreter in either mode, so memory behaviour is judged alike on a laptop and on a GPU.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import html
import importlib.util
import itertools
import json
import math
import numbers
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
EXERCISES, SOLUTIONS = ROOT / "exercises", ROOT / "solutions"
TIME_LIMIT_S = 60
STEP_LIMIT = 100_000  # statements of a kernel on the small inputs of a judge; more than that and it never ends
SHOWN_OUTPUT = 2_000  # characters of a student's own prints that are kept
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
    shown: which hint is shown (1 is the first); output: what the file printed, cut short; seconds: how long it took.
    """

    exercise: str
    file: str
    status: str
    message: str
    student: str = ""
    hints: tuple[str, ...] = ()
    shown: int = 1
    output: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the answer is right."""
        return self.status == "passed"

    def raise_if_wrong(self) -> None:
        """AssertionError with the text of this result, unless it passed."""
        if not self.passed:
            raise AssertionError(str(self))

    def text(self, more: str = 'grade("{exercise}", hint={hint})') -> str:
        """What the student reads; `more` is how to ask for the next hint."""
        lines = [f"{self.exercise or self.file}: {STATUS[self.status]}. {self.message}".rstrip()]
        if self.hints:
            n = min(max(self.shown, 1), len(self.hints))
            lines += [f"  hint {i} of {len(self.hints)}: {hint}" for i, hint in enumerate(self.hints[:n], 1)]
            if n < len(self.hints):
                lines.append(f"  For the next hint: {more.format(exercise=self.exercise, hint=n + 1)}")
        if self.output.strip():
            lines += ["  The file printed:", *(f"  | {line}" for line in self.output.rstrip().split("\n"))]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


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

    def __str__(self) -> str:
        header, rows = self.rows()
        width = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, width, strict=True)).rstrip()
            for r in [header, ["-" * w for w in width], *rows]
        ]
        for r in self.results:
            if not r.passed:
                who = f"{r.student}: " if r.student else ""
                lines.append(f"{who}{r.file}: {STATUS[r.status]}. {r.message}".rstrip())
        lines.append(f"{sum(r.passed for r in self.results)} of {len(self.results)} passed")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        header, rows = self.rows()
        head = "".join(f"<th scope='col'>{html.escape(c)}</th>" for c in header)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
        wrong = "".join(
            f"<li>{html.escape(f'{r.student} {r.file}: {STATUS[r.status]}. {r.message}'.strip())}</li>"
            for r in self.results
            if not r.passed
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" + (
            f"<ul>{wrong}</ul>" if wrong else ""
        )


class GradeError(ValueError):
    """A name or folder that means no exercise: says which there are."""


# grading


def known() -> dict[str, Path]:
    """The exercises of the workbook, id -> the file whose judge counts."""
    found = {}
    for folder in (EXERCISES, SOLUTIONS):
        for file in sorted(folder.glob("*.py")):
            if (match := _ID.match(file.name)) is not None:
                found[match[1]] = file
    if not found:
        raise GradeError(
            f"there are no exercises in {EXERCISES.name}/ beside the package: run this in the workbook's own folder"
        )
    return found


def grade(what: str | Path | None = None, hint: int = 1, time_limit: float = TIME_LIMIT_S) -> Result | Results:
    """Judge an exercise by id ("01_2"), name or file, showing `hint` hints; without `what`, all of exercises/."""
    if what is None:
        return grade_files([("", i, EXERCISES / f.name) for i, f in known().items()], time_limit=time_limit)
    exercise, file = _find(str(what), EXERCISES)
    return judge_file(file, exercise, hint=hint, time_limit=time_limit)


def grade_folder(
    folder: str | Path, time_limit: float = TIME_LIMIT_S, told: Callable[[int, int], None] | None = None
) -> Results:
    """Judge every Python file below `folder`: handed in as STUDENT/01_2_topic.py or as STUDENT_01_2_topic.py.

    told: called after each file with how many are judged, of how many.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise GradeError(f"{folder} is not a folder: give the one that holds the handed-in files")
    found = []
    for file in sorted(folder.rglob("*.py")):
        place = file.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in place.parts):
            continue
        ids = [m for m in _ID.finditer(file.name) if m[1] in known()]
        prefix = file.name[: ids[0].start()].strip(" _-.") if ids else ""
        student = "/".join(filter(None, [*place.parts[:-1], prefix]))
        found.append((student, ids[0][1] if ids else "", file))
    if not found:
        raise GradeError(f"{folder} holds no Python file")
    judged = itertools.count(1)
    return grade_files(found, time_limit=time_limit, done=told and (lambda: told(next(judged), len(found))))


def grade_files(
    files: Sequence[tuple[str, str, Path]], time_limit: float = TIME_LIMIT_S, done: Callable[[], None] | None = None
) -> Results:
    """Judge (student, exercise id, file) triples, a few at a time; `done` is called after each."""

    def one(item: tuple[str, str, Path]) -> Result:
        student, exercise, file = item
        if not exercise:
            message = f"Its name holds no exercise number; there are {', '.join(known())}."
            result = Result("", file.name, "unknown", message, student=student)
        else:
            result = judge_file(file, exercise, student=student, time_limit=time_limit)
        if done:
            done()
        return result

    with ThreadPoolExecutor(max_workers=min(4, os.cpu_count() or 1)) as pool:
        return Results(tuple(pool.map(one, files)))


def judge_file(file: Path, exercise: str, student: str = "", hint: int = 1, time_limit: float = TIME_LIMIT_S) -> Result:
    """Judge one file in a process of its own. Never raises for anything that the file does."""
    start = time.monotonic()

    def result(status: str, message: str, hints: Iterable[str] = (), output: str = "") -> Result:
        seconds = round(time.monotonic() - start, 2)
        return Result(exercise, file.name, status, message, student, tuple(hints), hint, output, seconds)

    try:
        text = _source(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (OSError, UnicodeError) as error:
        reason = "it is not UTF-8 text" if isinstance(error, UnicodeError) else (error.strerror or str(error)).lower()
        return result("missing", f"{file.name} cannot be read: {reason}.")
    except SyntaxError as error:
        shown = f" in `{error.text.strip()}`" if error.text and error.text.strip() else ""
        return result("syntax", f"Line {error.lineno}: {error.msg}{shown}.")
    except (ValueError, RecursionError, MemoryError) as error:
        return result("syntax", f"Python cannot read it: {error}.")
    if stub := _stub_line(tree):
        return result("unsolved", f"Line {stub} of {file.name} still holds the stub: replace it with your code.")

    judge = known()[exercise]
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "result.json")
        command = [sys.executable, "-m", "dwlab.exercises", str(file.resolve()), str(judge), str(answer)]
        status, output = _run(command, folder, time_limit)
        if status is None:
            message = (
                f"It was stopped after {time_limit:g} s. Look for a loop that never ends, in the kernel or around it."
            )
            return result("timeout", message, output=output)
        try:
            verdict = json.loads(answer.read_text(encoding="utf-8"))
            return result(verdict["status"], verdict["message"], verdict["hints"], output)
        except (OSError, ValueError):
            ended = f"signal {-status}" if status < 0 else f"exit status {status}"
            return result("error", f"Python ended ({ended}) before the answer was judged.", output=output)


def _source(file: Path) -> str:
    """The text as Python would read it: some editors write a byte order mark, or name another encoding on top."""
    try:
        with tokenize.open(file) as opened:
            return opened.read()
    except SyntaxError as error:  # an encoding that there is not, or a first line that is no text
        raise UnicodeError(str(error)) from None


def _run(command: list[str], folder: str, time_limit: float) -> tuple[int | None, str]:
    """Exit status (None if stopped at the time limit) and the first SHOWN_OUTPUT characters of what was printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    environment |= {"PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=folder,  # what a student's file writes goes away with it
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=os.name == "posix",
    )
    kept = bytearray()

    def drain() -> None:
        # read on past what is kept, or a file that prints a lot would wait for ever on a full pipe
        while chunk := process.stdout.read1(65536):
            kept.extend(chunk[: max(0, 4 * SHOWN_OUTPUT - len(kept))])

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    try:
        status = process.wait(time_limit)
    except subprocess.TimeoutExpired:
        status = None
    finally:
        _stop(process)
    reader.join(5)
    text = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in bytes(kept).decode("utf-8", "replace"))
    return status, text if len(text) <= SHOWN_OUTPUT else text[:SHOWN_OUTPUT] + "\n... (more was printed)"


def _stop(process: subprocess.Popen) -> None:
    """End the process and, where the system can, whatever it started."""
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


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
    every = known()
    path = Path(what)
    match = _ID.search(path.name)
    if match and match[1] in every:
        return match[1], path if path.suffix == ".py" and path.exists() else folder / every[match[1]].name
    near = difflib.get_close_matches(path.stem, [*every, *(f.stem for f in every.values())], n=1, cutoff=0.3)
    raise GradeError(
        f"no exercise is called {what!r}" + (f"; is it {near[0]}?" if near else f"; there are {', '.join(every)}")
    )


def main(args: argparse.Namespace) -> int:
    """`python -m dwlab grade [NAMES | --all DIR] [--solutions] [--json] [--hint N]`.

    Judges NAMES, all of exercises/ without any (of solutions/ with --solutions), or a folder of handed-in files. Prints
    a text, a table or JSON; returns 0 if all passed, 1 if not, 2 for a name or folder that does not exist.
    """
    names, folder = list(getattr(args, "names", None) or ()), getattr(args, "all", None)
    home = SOLUTIONS if getattr(args, "solutions", False) else EXERCISES
    try:
        if folder:
            if names:
                raise GradeError(f"give names or --all DIR, not both: {', '.join(names)}")
            results = grade_folder(folder, told=_progress if sys.stderr.isatty() else None)
        else:
            picked = [_find(n, home) for n in names] or [(i, home / f.name) for i, f in known().items()]
            hint = getattr(args, "hint", None) or 1
            if len(picked) == 1 and not args.json:
                one = judge_file(picked[0][1], picked[0][0], hint=hint)
                print(one.text(f"python -m dwlab grade {(names or picked[0])[0]} --hint {{hint}}"))
                return 0 if one.passed else 1
            results = grade_files([("", i, f) for i, f in picked])
    except GradeError as error:
        print(f"grade: {error}", file=sys.stderr)
        return 2
    print(json.dumps(results.to_dict(), indent=1, ensure_ascii=False) if args.json else results)
    return 0 if results.passed else 1


def _progress(judged: int, files: int) -> None:
    end = "\n" if judged == files else ""
    print(f"\r{judged} of {files} files judged", end=end, file=sys.stderr, flush=True)


def run(file: str) -> None:
    """The last line of an exercise's file: judge it, from a shell. Ends Python, with status 0 if it passed, else 1."""
    parser = argparse.ArgumentParser(description="Judge this exercise.")
    parser.add_argument("--hint", type=int, default=1, metavar="N", help="show N hints")
    try:
        exercise, _ = _find(file, EXERCISES)
    except GradeError as error:
        sys.exit(str(error))
    result = judge_file(Path(file), exercise, hint=parser.parse_args().hint)
    typed = shlex.quote(sys.argv[0]).replace("{", "{{").replace("}", "}}")
    print(result.text(f"python {typed} --hint {{hint}}"))
    sys.exit(0 if result.passed else 1)


# inside the process that judges one file


class Wrong(Exception):
    """Raised by a judge: what is wrong, with what was counted, and hints in steps."""

    def __init__(self, message: str, hints: Sequence[str] = ()):
        super().__init__(message)
        self.hints = tuple(hints)


class Unsolved(Wrong):
    """Raised by a judge: nothing has been filled in."""


def _load(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect finds a kernel's source through its module
    spec.loader.exec_module(module)
    return module


def _judge(file: Path, judge: Path) -> dict[str, Any]:
    """Status, message and hints for one file, whatever it does."""
    try:
        checker = _load(judge, "dwlab_judge").judge
        said = checker(_load(file, "dwlab_answer"))
        return {"status": "passed", "message": said or "", "hints": []}
    except Wrong as wrong:
        status = "unsolved" if isinstance(wrong, Unsolved) else "wrong"
        return {"status": status, "message": str(wrong), "hints": list(wrong.hints)}
    except BaseException as error:  # a student's file may raise anything, SystemExit too
        return _failure(error, file)


def _failure(error: BaseException, file: Path) -> dict[str, Any]:
    from dwlab import simt

    said = " ".join(str(error).split())
    if isinstance(error, simt.StepLimitError):
        return {"status": "timeout", "message": f"The kernel does not end: {said}", "hints": []}
    if isinstance(error, simt.SimtError):
        return {"status": "wrong", "message": f"The kernel does not run as it should: {said}", "hints": []}
    where = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
    at = f"Line {where[-1].lineno}, `{where[-1].line}`: " if where else ""
    return {"status": "error", "message": f"{at}{type(error).__name__}: {said}".rstrip(": "), "hints": []}


# what judges are made of


def kernel(answer: ModuleType, name: str) -> Any:
    """The student's kernel `name`; Wrong says what is in its place."""
    found = _given(answer, name)
    if hasattr(found, "py_func") and hasattr(found, "__getitem__"):
        return found
    if callable(found):
        raise Wrong(f"`{name}` is a plain Python function: the line @cuda.jit above it is missing.")
    raise Wrong(f"`{name}` is {_described(found)}; it must be a kernel: a function with @cuda.jit above it.")


def function(answer: ModuleType, name: str) -> Callable[..., Any]:
    """The student's plain function `name`; Wrong says what is in its place."""
    found = _given(answer, name)
    if hasattr(found, "py_func"):
        raise Wrong(f"`{name}` is a kernel; it must be a plain Python function: take @cuda.jit away.")
    if not callable(found):
        raise Wrong(f"`{name}` is {_described(found)}; it must be a function.")
    return found


# The first hint, if that is what a kernel does: an exercise's own hints lead to its idea, not to this.
HAZARD_HINTS = {
    "out of bounds": "Some threads have nothing to do there. Which test must stand before that line, for which index?",
    "negative index": "Numba counts a negative index from the end, without a word. Test for it before that line.",
    "race": "What one thread writes and another reads needs a barrier in between: cuda.syncwarp() for the lanes of one "
    "warp, cuda.syncthreads() for all threads of a block.",
    "divergent barrier": "Every thread must come to the barrier: take it out of the guard, and guard the work instead.",
    "uninitialised": "Nothing has been written there yet. Which line should have done it, and in which thread?",
    "two writers": "Two threads write the same element. Which of their indices should differ, and does not?",
}


def launched(kernel: Any, grid: Any, block: Any, *args: Any, shared_bytes: int = 0, hints: Sequence[str] = ()) -> None:
    """Run a kernel on the interpreter; its results are in the NumPy arrays of `args` then. A hazard is Wrong.

    Fill outputs with NaN beforehand (`poisoned`), so that an element that is never written cannot be right by luck.
    """
    from dwlab import simt
    from dwlab.simt import cuda as interpreter

    try:
        with simt.using(simt.Options(hazards="raise", step_limit=STEP_LIMIT)):
            interpreter.jit(kernel.py_func)[grid, block, 0, shared_bytes](*args)
    except simt.HazardError as error:
        text, kind = str(error.hazards[0]), error.hazards[0].kind
        first = (HAZARD_HINTS[kind],) if kind in HAZARD_HINTS else ()
        raise Wrong(f"{text[0].upper()}{text[1:]}.", (*first, *hints)) from None


def poisoned(*shape: int, dtype: str = "float32") -> np.ndarray:
    """An output array in which nothing is right yet: every element is NaN (or, for integers, the least)."""
    kind = np.dtype(dtype)
    return np.full(shape, np.iinfo(kind).min if kind.kind in "iu" else np.nan, dtype=kind)


def agree(got: np.ndarray, want: np.ndarray, what: str, tolerance: float = 1e-6, hints: Sequence[str] = ()) -> None:
    """Wrong, with the first element that differs by over `tolerance` times the largest wanted one, unless all agree."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        raise Wrong(f"{what}: the result has shape {got.shape}; it must have {want.shape}.", hints)
    scale = float(np.abs(want[np.isfinite(want)]).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore"):
        close = (np.abs(got - want) <= tolerance * scale) | (got == want) | (np.isnan(got) & np.isnan(want))
    if close.all():
        return
    first = tuple(int(i) for i in np.argwhere(~close)[0])
    place = ", ".join(map(str, first))
    seen = "was never written" if np.isnan(got[first]) and not np.isnan(want[first]) else f"is {got[first]:.7g}"
    raise Wrong(
        f"{what}: element [{place}] {seen}; {want[first]:.7g} is right. "
        f"{int((~close).sum())} of {want.size} elements are wrong.",
        hints,
    )


def convolves(kernel: Any, launch: Callable[[Any], Any], problem: Any = None, path: str = "forward") -> str:
    """Wrong unless `dwlab.check` passes the kernel with this launch (problem -> Launch); its hints are the judge's.

    Without a problem, on the whole family of shapes. Returns the sentence for a judge to end with.
    """
    from dwlab.check import check

    verdict = check(kernel, problem, path=path, launch=launch)
    if not verdict.passed:
        first = verdict.failures[0].case
        found = "; ".join(str(one).rstrip(".") for one in verdict.findings[:2])
        raise Wrong(
            f"{len(verdict.failures)} of {len(verdict.results)} problems, first {first.problem}: {found}.",
            verdict.hints,
        )
    return f"Right on {len(verdict.results)} problems"


def counted(kernel: Any, launch: Callable[[Any], Any], problem: Any, path: str = "forward") -> Any:
    """The `xray` of a kernel on a problem, started by `launch` (problem -> Launch), with seeded inputs."""
    from dwlab import xray

    arrays = problem.inputs(path) | {name: poisoned(*problem.shapes(path)[name]) for name in problem.outputs(path)}
    how = launch(problem)
    args = (*(arrays[name] for name in problem.arrays(path)), *how.scalars)
    return xray(kernel, how.grid, how.block, *args, shared_bytes=how.shared_bytes)


COALESCE = (
    "The 32 threads of a warp have neighbouring values of threadIdx.x. Which addresses do they ask for at one moment?",
    "Let threadIdx.x run along the last axis of the array: neighbours in the warp should be neighbours in memory.",
)


def coalesced(report: Any, arrays: Sequence[str] = (), hints: Sequence[str] = COALESCE) -> str:
    """Wrong unless each access to global memory (to `arrays`, by default all) moves hardly more sectors than it must.

    `report` is an `xray`. One sector a request more than the ideal is granted: rows need not start on a sector.
    Returns the sentence for a judge to end with.
    """
    seen = [a for a in report.accesses if a.space == "global" and (not arrays or a.array in arrays)]
    if not seen:
        raise Wrong(f"The kernel never touches {' or '.join(arrays) or 'global memory'}.", hints)
    for a in sorted(seen, key=lambda a: a.ideal_sectors - a.sectors):
        if a.sectors > a.ideal_sectors + a.requests:
            raise Wrong(
                f"Line {a.line}, {a.kind} of {a.array}: {a.sectors:,} sectors in {a.requests:,} requests, "
                f"{a.sectors / a.requests:.1f} sectors per request; {a.ideal_sectors / a.requests:.1f} would hold it.",
                hints,
            )
    sectors, requests = sum(a.sectors for a in seen), sum(a.requests for a in seen)
    return f"{sectors / requests:.1f} sectors per request ({sectors:,} in {requests:,})"


def moves_at_most(report: Any, limit_bytes: float, why: str, hints: Sequence[str] = ()) -> str:
    """Wrong if an `xray` counted more bytes of global traffic than `limit_bytes`; `why` says where that comes from."""
    moved = report.totals.bytes_moved
    if moved > limit_bytes:
        raise Wrong(f"{moved:,} bytes are moved; {limit_bytes:,.0f} are enough: {why}.", hints)
    return f"{moved:,} bytes moved"


def float32_only(report: Any, hints: Sequence[str] = ()) -> None:
    """Wrong if an `xray` counted float64 arithmetic: one literal such as 0.0 or 2.0 is enough to cause it."""
    for line in report.lines:
        if line.float64:
            raise Wrong(
                f"Line {line.line}, `{line.text.strip()}`: {line.float64:,} float64 operations.",
                hints or (
                    "In Numba 2.0 is a float64, and an int64 such as 2 times a float32 is a float64 as well.",
                    "Write float32(2.0), and start sums at float32(0).",
                ),
            )


def predicted(
    answer: ModuleType, name: str, counted: float, unit: str, hints: Sequence[str] = (), tolerance: float = 0.0
) -> str:
    """Wrong unless the number that the student wrote down as `name` is what was counted (to a relative `tolerance`).

    The count itself is told by the last hint only. Returns the sentence for a judge to end with.
    """
    value = _given(answer, name)
    if value is None or value is Ellipsis:
        raise Unsolved(f"`{name}` is still {value}: write your prediction down, then run this again.")
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise Wrong(f"`{name}` is {_described(value)}; it must be a number.")
    if abs(value - counted) > tolerance * abs(counted):
        side = "more" if counted > value else "fewer"
        raise Wrong(
            f"`{name}`: you predicted {value:,.6g} {unit}; {side} were counted.",
            (*hints, f"{counted:,.6g} {unit} were counted."),
        )
    return f"`{name}`: counted {counted:,.6g} {unit}"


def _given(answer: ModuleType, name: str) -> Any:
    if not hasattr(answer, name):
        raise Wrong(f"The file has no `{name}` any more: take that line back from the exercise as it was.")
    return getattr(answer, name)


def _described(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__})"


if __name__ == "__main__":
    # The package's own module, not this __main__: the judge imports dwlab.exercises, whose Wrong must be caught.
    from dwlab import exercises

    _answer, _checker, _result = map(Path, sys.argv[1:])
    sys.argv = [str(_answer)]  # what a student's file sees when it is run; where the verdict goes is not its business
    _result.write_text(json.dumps(exercises._judge(_answer, _checker)), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads or exit handlers of a student's file have no say any more
