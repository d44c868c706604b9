"""The judge of a kernel: runs it on problems chosen to break it, and says what is wrong and where to look.

    check("depthwise1d/forward/shared")                       a stage, on the family of problems below
    check(stage("depthwise1d/forward/shared").with_kernel(k)) a kernel in a stage's launch
    check(k, launch=lambda problem: Launch(...))              a kernel with a launch of its own
    check(k, PAPER, launch=...)                               one problem, cut down to a few rows
    verdict.raise_if_wrong()

Every array stands between two guard bands of NaN, outputs are filled with NaN before the launch, and the result is
compared with the float64 reference within the rounding that float32 allows. On the laptop GPU races, divergent
barriers, out-of-bounds and negative indices, uninitialised reads and two writers of one element fail a kernel even
where its output is right. A kernel that passes gets the same text in either mode.
"""

from __future__ import annotations

import contextlib
import html
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dwlab import contrast, diagnosis, layers, references
from dwlab import problems as _problems
from dwlab.cases import Case, cases, layer_cases
from dwlab.diagnosis import Finding
from dwlab.problems import NAN_BITS, DepthwiseConv1d, Problem, decode, encode
from dwlab.stages import ByShape, Launch, Stage, StageError, enqueue, limits, words
from dwlab.stages import stage as _stage

GUARD = 1024
"""Elements before and after each array. A multiple of 128, so that arrays start 256-byte aligned."""

POISON = np.uint32(0x7FC0DEAD)
"""Bits of the NaN in guard bands and outputs: a quiet NaN that arithmetic on a GPU never makes (that is 0x7FFFFFFF).

In arrays of 16-bit elements it is dwlab.problems.NAN_BITS.
"""

_PARTS = "parts"  # the workspace of a launch in parts, among the arrays' names
_FILL = 1024.0  # a filling that is no NaN, for the second run of a wrong kernel
_DIAGNOSED = 12  # wrong cases that are looked into; others are only counted, or not run if all the first are wrong
_SHOWN = 2  # findings about the output that a verdict names

_LOOK = {
    "race": "two threads of a block use one address without a barrier between: syncthreads() belongs after the "
    "staging, and again before what was staged is overwritten",
    "two writers": "two threads store to one element: which thread owns which output?",
    "divergent barrier": "every thread of the block must reach the barrier: move it out of the if, and let no thread "
    "return before it",
    "out of bounds": "guard the access: is the index below the array's length for the last block and thread?",
    "misaligned": "16 bytes are moved at 16-byte addresses only: is the index a multiple of 4 for every thread?",
    "negative index": "a negative index counts from the end of the axis in Numba: test for it before the access",
    "uninitialised": "something is read that no thread has written: is the whole window staged, the halo too, and are "
    "zeros stored where it lies outside the row?",
    "inactive lane": "a shuffle reads from a lane that takes no part: do all lanes of the mask get there?",
    "division by zero": "a divisor is 0 for some thread",
    "launch": "the launch itself: grid and block within the hardware's limits",
}

# What would order the two accesses of a race, as the interpreter says it -> where to look.
_RACES = {
    "cuda.syncwarp()": "two lanes of one warp use one address without syncwarp() between, and they do not run in "
    "step: it belongs after the store, and again before the next one",
    "cuda.syncthreads()": _LOOK["race"],
    "another launch or an atomic": "two blocks use one address, and no barrier joins blocks, which run in any order: "
    "give each element to one block, add with cuda.atomic.add, or read it in another launch",
}


class CheckError(ValueError):
    """The judge was asked for something that it cannot judge; the message says what to do."""


class CheckFailed(AssertionError):
    """A kernel that is wrong. `.verdict` says how."""

    def __init__(self, verdict: Verdict):
        self.verdict = verdict
        super().__init__(str(verdict))


@dataclass(frozen=True)
class CaseResult:
    """What happened on one case.

    findings: what is certain. hazards: what the laptop GPU found. faults: for each fault of the output what would
    account for it, best first. wrong: wrong outputs of `size`. ran: False if there is no output to judge.
    """

    case: Case
    passed: bool
    findings: tuple[Finding, ...] = ()
    hazards: tuple[Any, ...] = ()
    faults: tuple[tuple[Finding, ...], ...] = ()
    wrong: int = 0
    size: int = 0
    ran: bool = True


@dataclass(frozen=True)
class Verdict:
    """What the judge found. `str()` for a terminal, HTML in a notebook; `hints` go from the symptom to the place."""

    subject: str
    path: str
    results: tuple[CaseResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every case passed."""
        return all(result.passed for result in self.results)

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The cases that failed, the smallest first as they were run."""
        return tuple(result for result in self.results if not result.passed)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, each pattern once: hazards, what else is certain, and what best accounts for the outputs."""
        certain: dict[str, Finding] = {}
        for result in self.failures:
            for one in _as_findings(result.hazards, str(result.case.problem)):
                known = certain.setdefault(one.identity, one)
                # Of two races within a block, the one that only a barrier of the block would mend: it mends both.
                if "syncthreads" in one.text and "syncthreads" not in known.text:
                    certain[one.identity] = one
        for result in self.failures:
            for one in result.findings:
                certain.setdefault(one.pattern, one)
        likely = diagnosis.explain([fault for result in self.failures for fault in result.faults])
        if likely and likely[0].pattern in diagnosis.VAGUE:
            likely = (*self._by_rule(likely[0]), *likely[1:])
        return (*certain.values(), *likely[: _SHOWN if not certain else 1])

    def _by_rule(self, found: Finding) -> tuple[Finding, ...]:
        """A finding that says nothing but that something is wrong, with what the failing problems have in common."""
        rule, words = (self.rule, "wrong where") if self.rule else (self.bound, "wrong only where")
        return (replace(found, pattern=f"{words} {rule.words}", look=rule.look),) if rule else (found,)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The short names of what is wrong."""
        return tuple(one.pattern for one in self.findings)

    @cached_property
    def rule(self) -> contrast.Rule | None:
        """The simplest rule that tells the failing problems from the passing ones; None if there is none."""
        return contrast.exact(*self._judged) if self._comparable else None

    @cached_property
    def bound(self) -> contrast.Rule | None:
        """Where there is no such rule: the narrowest outside of which no problem failed; None if that says little."""
        return contrast.necessary(*self._judged) if self._comparable and not self.rule else None

    @property
    def _comparable(self) -> bool:
        return not self.passed and all(result.ran for result in self.results)

    @property
    def _judged(self) -> tuple[list[Problem], list[bool]]:
        return [r.case.problem for r in self.results], [not r.passed for r in self.results]

    @property
    def contrast(self) -> str:
        """`rule` in words; "" if there is none."""
        return self.rule.words if self.rule else ""

    @property
    def _common(self) -> str:
        """A sentence about what failing problems have in common; "" if nothing is known."""
        if self.rule:
            return f"It fails exactly where {self.rule.words}."
        return f"It never fails outside of this: {self.bound.words}." if self.bound else ""

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints in steps: the smallest failing problem, what is wrong, what failing problems share, where to look."""
        if self.passed:
            return ()
        first = self.failures[0]
        steps = [f"Try it on the smallest problem that fails: {first.case.problem} ({first.case.why})."]
        steps += [f"What is wrong: {_told(one, first)}." for one in self.findings[:2]]
        if self._common:
            steps.append(self._common)
        steps += [f"Where to look: {one.look}{'' if one.look.endswith('?') else '.'}" for one in self.findings[:2]]
        return tuple(steps)

    def hint(self, step: int = 1) -> str:
        """The step-th hint, counted from 1; the last one for a step beyond it."""
        if not self.hints:
            return "Nothing is wrong."
        return self.hints[min(max(step, 1), len(self.hints)) - 1]

    def raise_if_wrong(self) -> Verdict:
        """Raises CheckFailed unless everything passed; otherwise returns the verdict."""
        if not self.passed:
            raise CheckFailed(self)
        return self

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "subject": self.subject,
            "path": self.path,
            "passed": self.passed,
            "cases": len(self.results),
            "failed": len(self.failures),
            "patterns": list(self.patterns),
            "hints": list(self.hints),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = [_headline(self)]
        if self.passed:
            lines.append(f"on {_ranges([r.case.problem for r in self.results])}")
        else:
            first = self.failures[0]
            lines.append(f"first on {first.case.problem} ({first.case.why})")
            if first.size:
                lines.append(f"{first.wrong} of {first.size} outputs wrong there")
            lines += [f"- {_told(one, first)}" for one in self.findings]
            if self._common:
                lines.append(self._common)
            lines.append(f"Hints: verdict.hint(1) to verdict.hint({len(self.hints)}).")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def table(self) -> str:
        """A line for each case: passed or what is wrong, the problem, why it is there."""
        return "\n".join(
            f"{'ok    ' if r.passed else 'FAILED'}  {str(r.case.problem):44s}  {r.case.why}"
            + ("" if r.passed else f": {_summary(r)}")
            for r in self.results
        )

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'passed' if r.passed else '<b>failed</b>'}</td><td>{html.escape(str(r.case.problem))}</td>"
            f"<td style='text-align:left'>{html.escape(r.case.why)}</td>"
            f"<td style='text-align:left'>{'' if r.passed else html.escape(_summary(r))}</td></tr>"
            for r in self.results
        )
        items = [html.escape(_told(one, self.failures[0])) for one in self.findings]
        if self._common:
            items.append(html.escape(self._common))
        items += [f"note: {html.escape(note)}" for note in self.notes]
        steps = "".join(f"<li>{html.escape(hint)}</li>" for hint in self.hints)
        return (
            f"<p><b>{html.escape(_headline(self))}</b></p>"
            + (f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else "")
            + (f"<details><summary>hints</summary><ol>{steps}</ol></details>" if steps else "")
            + f"<details><summary>{len(self.results)} problems</summary><table>"
            "<tr><th>result</th><th>problem</th><th>why it is here</th><th>what is wrong</th></tr>"
            f"{rows}</table></details>"
        )


def _headline(verdict: Verdict) -> str:
    count = len(verdict.results)
    problems = "1 problem" if count == 1 else f"{count} problems"
    if verdict.passed:
        return f"passed: {verdict.subject}, {verdict.path}, {problems}"
    return f"FAILED: {verdict.subject}, {verdict.path}, {len(verdict.failures)} of {problems}"


def _ranges(problems: Sequence[DepthwiseConv1d]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    parts = []
    if not isinstance(problems[0], DepthwiseConv1d):
        kinds = dict.fromkeys(f"{p.layout} {p.dtype}" for p in problems)
        return f"{problems[0]} to {problems[-1]}; {', '.join(kinds)}"
    for name in "BHLK":
        sizes = [getattr(p, name) for p in problems]
        parts.append(f"{name} {min(sizes)}" + (f" to {max(sizes)}" if min(sizes) < max(sizes) else ""))
    paddings = dict.fromkeys(str(p.padding) for p in problems)
    return f"{', '.join(parts)}, padding {', '.join(paddings)}"


def _summary(result: CaseResult) -> str:
    likely = [fault[0] for fault in result.faults]
    names = dict.fromkeys(one.pattern for one in (*_as_findings(result.hazards, ""), *result.findings, *likely))
    return "; ".join(names) or f"{result.wrong} of {result.size} outputs wrong"


def _told(one: Finding, first: CaseResult) -> str:
    """A finding, with its problem where that is not the one of the headline."""
    return str(one) if one.where in ("", str(first.case.problem)) else f"{one} (on {one.where})"


def _as_findings(hazards: Iterable[Any], where: str) -> list[Finding]:
    found = []
    for one in hazards:
        look, key = _LOOK.get(one.kind, "the line that is named"), ""
        if one.kind == "race":
            cure = next((cure for cure in _RACES if cure in one.message), "cuda.syncthreads()")
            look = _RACES[cure]
            key = "race between blocks" if cure.startswith("another") else "race"
        found.append(Finding(one.kind, f"line {one.line}: {one.message}", look, key, where))
    return found


# ---- judging


def check(
    subject: Stage | str | Any,
    problem: DepthwiseConv1d | str | None = None,
    *,
    path: str | None = None,
    launch: Callable[[DepthwiseConv1d], Launch] | None = None,
    dtype: str | None = None,
    most: int | None = None,
) -> Verdict:
    """Judges a stage, a stage's id, or a kernel with its launch (problem -> Launch).

    path: what a bare kernel computes ("forward" if None); a stage has its own. problem: judge on this one only (or its
    name, or "B,H,L,K"), cut down to what can be interpreted, because rows are alike. dtype: how rows are stored; None
    for float32, or for the problem's. most: so many of the project's problems only, spread over them: where a GPU's
    compiler takes seconds for each. A wrong kernel is no exception: it is in the verdict. Raises CheckError for what
    is neither a stage nor a kernel, lacks a launch, has another path or is not written for rows of that dtype,
    StageError or ProblemError for an unknown name.
    """
    judged, name = _subject(subject, path, launch)
    if judged.op != "depthwise1d":
        return _check_layers(judged, name, problem, dtype, most)
    if problem is not None:
        problem = _problems.problem(problem)
        problem = problem if dtype is None else replace(problem, dtype=dtype)
    small = cases(problem, dtype=dtype or "float32")[0].problem
    if small.dtype not in judged.dtypes:
        raise CheckError(
            f"{name} takes rows of {', '.join(judged.dtypes)}, not of {small.dtype}; a kernel for all of them is made "
            "by a function of (L, K, SHIFT, DTYPE), decorated with @by_shape"
        )
    results = _judge_all(judged, spread(_rows_cases(judged, problem, dtype or "float32"), most))
    noted = cases(problem)[-1].problem if problem else _NOTED if small.dtype == "float32" else small
    notes = _notes(judged, noted) if results[-1].ran else ()
    return Verdict(name, f"{judged.op}/{judged.path}", tuple(results), notes)


def judged_on(stage: Stage, dtype: str = "float32", most: int | None = None) -> tuple[Problem, ...]:
    """The problems on which `check` judges a stage with rows of this dtype; () if it is not written for them."""
    if dtype not in stage.dtypes:
        return ()
    listed = _rows_cases(stage, None, dtype) if stage.op == "depthwise1d" else _layer_cases(stage, dtype)
    return tuple(case.problem for case in spread(listed, most))


def spread(listed: Sequence[Any], most: int | None) -> tuple[Any, ...]:
    """At most so many of these, the first and the last among them."""
    if most is None or len(listed) <= most:
        return tuple(listed)
    return tuple(listed[round(i * (len(listed) - 1) / max(1, most - 1))] for i in range(most))


def _rows_cases(judged: Stage, problem: Problem | None, dtype: str) -> tuple[Case, ...]:
    try:
        block = judged.launch(cases(problem, dtype=dtype)[0].problem).block
    except Exception:  # the launch is judged with the cases
        block = ()
    return cases(problem, block, judged.path, dtype)


def _layer_cases(judged: Stage, dtype: str | None) -> tuple[Case, ...]:
    listed = layer_cases(judged.op, judged.path, judged.dtypes if dtype is None else (dtype,))
    return tuple(case for case in listed if judged.supports(case.problem))


def _check_layers(
    judged: Stage, name: str, problem: Problem | str | None, dtype: str | None, most: int | None
) -> Verdict:
    """Of a stage of layers: on the problem, or on those of its op, path and storage types that it supports."""
    if problem is not None:
        problem = layers.problem(problem)
        if dtype is not None:
            problem = layers.stored(problem, dtype)
        chosen = cases(problem)
    else:
        chosen = spread(_layer_cases(judged, dtype), most)
    if not chosen:
        raise CheckError(f"{name} supports none of the problems in {dtype}: it takes {', '.join(judged.dtypes)}")
    results = _judge_all(judged, chosen)
    notes = _notes(judged, chosen[0].problem) if results[-1].ran else ()
    return Verdict(name, f"{judged.op}/{judged.path}", tuple(results), notes)


def _judge_all(judged: Stage, chosen: Sequence[Case]) -> list[CaseResult]:
    results: list[CaseResult] = []
    for case in chosen:
        failed = sum(not result.passed for result in results)
        results.append(_judge(judged, case, diagnose=failed < _DIAGNOSED))
        hopeless = failed + 1 == _DIAGNOSED == len(results) and not results[-1].passed
        if hopeless or not results[-1].ran:
            break  # the others would say the same
    return results


_NOTED = DepthwiseConv1d(2, 3, 33, 5, "same")


def _subject(subject: Any, path: str | None, launch: Callable | None) -> tuple[Stage, str]:
    if launch is not None and not callable(launch):
        raise CheckError(f"launch={launch!r} is no function: give one that takes a problem and returns a Launch")
    if isinstance(subject, str):
        subject = _stage(subject)
    if isinstance(subject, Stage):
        listed = _stage(subject.id)
        if path is not None and path != subject.path:
            raise CheckError(f"{subject.id} computes {subject.path}, not {path!r}: leave path out")
        if not _is_kernel(subject.kernel):
            raise CheckError(f"{subject.kernel!r} is no kernel: decorate a function with @cuda.jit")
        judged = subject if launch is None else replace(subject, launch=launch)
        return judged, subject.id if subject.kernel is listed.kernel else _name(subject.kernel)
    path = path or "forward"
    if not _is_kernel(subject):
        raise CheckError(
            f"{subject!r} is neither a stage nor a kernel: give a stage, its id, or a function decorated with @cuda.jit"
        )
    if launch is None:
        raise CheckError(
            f"a kernel needs a launch: check({_name(subject)}, launch=lambda problem: Launch(grid, block, "
            "(problem.shift,))), or put it into a stage's: check(stage(ID).with_kernel(kernel))"
        )
    DepthwiseConv1d(1, 1, 1, 1).arrays(path)
    nowhere = Stage("depthwise1d", path, 0, _name(subject), "", subject, launch, lambda _: None, "")
    return nowhere, _name(subject)


def _is_kernel(subject: Any) -> bool:
    """Whether this was decorated with @cuda.jit, in either mode, or makes such kernels for each shape."""
    return isinstance(subject, ByShape) or (hasattr(type(subject), "__getitem__") and hasattr(subject, "py_func"))


def _name(kernel: Any) -> str:
    return getattr(getattr(kernel, "py_func", kernel), "__name__", type(kernel).__name__)


def _judge(judged: Stage, case: Case, diagnose: bool) -> CaseResult:
    """Runs one case and says what is wrong with it."""
    problem = case.problem
    try:
        how = judged.launch(problem)
    except StageError as error:
        return _not_run(case, Finding("launch", str(error), _LOOK["launch"]))
    except Exception as error:
        return _not_run(case, Finding("raises", f"the launch function raised {_said(error)}", "the launch function"))
    if not isinstance(how, Launch):
        told = f"the launch function returned {type(how).__name__}, not a Launch"
        return _not_run(case, Finding("launch", told, "return Launch(grid, block, scalars)"))
    over = limits(how)
    if over:
        return _not_run(case, Finding("launch", over[0], _LOOK["launch"]))
    inputs = problem.inputs(judged.path, case.seed)
    hazards: tuple[Any, ...] = ()
    try:
        try:
            run = _run(judged, problem, how, inputs, POISON)
        except Exception as error:
            hazards = _hazards(error)
            if not hazards:
                raise
            if not diagnose:
                return CaseResult(case, False, hazards=hazards)
            hazards = _all_hazards(judged, problem, how, inputs) or hazards
            try:
                run = _run(judged, problem, how, inputs, POISON, lenient=True)
            except Exception as again:
                if not _hazards(again):
                    raise
                return CaseResult(case, False, hazards=hazards)
    except Exception as error:
        return _not_run(case, _why_not(error))
    return _compare(judged, case, how, inputs, run, hazards, diagnose)


def _not_run(case: Case, finding: Finding) -> CaseResult:
    return CaseResult(case, False, (finding,), ran=False)


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}{'…' if len(text) > 400 else ''}"


def _why_not(error: Exception) -> Finding:
    from dwlab import simt

    if isinstance(error, simt.StepLimitError):
        return Finding(
            "does not end", f"the kernel did not end: {error}", "which loop's condition never becomes false?"
        )
    if isinstance(error, simt.UnsupportedError):
        return Finding("cannot be interpreted", str(error), "the construct in the message")
    if isinstance(error, simt.LaunchError):
        return Finding("launch", str(error), _LOOK["launch"])
    text = str(error)
    if "ILLEGAL_ADDRESS" in text or "illegal memory access" in text:
        return Finding(
            "out of bounds",
            "the GPU stopped the kernel: it accessed memory that is not its own. The process must be restarted",
            "run the same check with DWLAB_TARGET=simulated: it names the line and the thread",
        )
    return Finding("raises", f"the kernel raised {_said(error)}", "the message, and the line that it names")


@dataclass(frozen=True)
class _Run:
    outputs: dict[str, np.ndarray]
    trespasses: tuple[str, ...]


def _run(
    judged: Stage,
    problem: Problem,
    how: Launch,
    inputs: dict[str, np.ndarray],
    filling: np.uint32 | float,
    lenient: bool = False,
) -> _Run:
    """One launch between guard bands, the output filled with bits or a number. lenient: hazards do not raise."""
    from dwlab.target import cuda

    shapes, outputs = problem.shapes(judged.path), problem.outputs(judged.path)
    names = list(problem.arrays(judged.path))
    if how.parts:
        shapes = shapes | {_PARTS: (how.parts, *shapes[names[-1]])}
        names.append(_PARTS)
    before, device, views = {}, {}, {}
    for name in names:
        size = int(np.prod(shapes[name]))
        dtype = "float32" if name == _PARTS else problem.dtype_of(name)
        flat = _poisoned(size + 2 * GUARD, dtype)
        if name in inputs:
            flat[GUARD : GUARD + size] = inputs[name].ravel()
        elif isinstance(filling, float):
            flat[GUARD : GUARD + size] = _filled(dtype, flat.dtype, filling)
        before[name] = flat
        device[name] = cuda.to_device(flat)
        views[name] = device[name][GUARD : GUARD + size].reshape(shapes[name])
    kernel = judged.kernel_for(problem)  # refuses rows that cannot be seen as words
    args = [words(problem, name, views[name], judged.view) for name in problem.slots(judged.path)]
    output = args[-1]
    if how.parts:
        args[-1] = views[_PARTS]
    with _options(problem, judged.path, lenient), warnings.catch_warnings():
        # Numba's word on grids too small to fill a GPU: these problems are small on purpose.
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")
        enqueue(how, kernel, (*args, *how.scalars), output, views.get(_PARTS))
        cuda.synchronize()
    found, trespasses = {}, []
    for name, flat in before.items():
        after = device[name].copy_to_host()
        changed = _bits(flat) != _bits(after)
        if name in outputs or name == _PARTS:
            found[name] = after[GUARD:-GUARD].reshape(shapes[name])
            changed[GUARD:-GUARD] = False
        for part, where in (
            (changed[:GUARD], "before"),
            (changed[-GUARD:], "behind"),
            (changed[GUARD:-GUARD], "in the input"),
        ):
            if part.any():
                trespasses.append(f"{int(part.sum())} elements {where} {name} were overwritten")
    return _Run(found, tuple(trespasses))


def _poisoned(size: int, dtype: str) -> np.ndarray:
    kind = _problems.storage(dtype)
    return np.full(size, _poison(dtype), f"u{kind.itemsize}").view(kind)


def _poison(dtype: str) -> int:
    """The bits of an element that nobody has written. int8 and int32 have no NaN: a number that is seldom right."""
    return int({"float32": POISON, "int32": 0xAAAAAAAA, "int8": 0xAA}.get(dtype, NAN_BITS))


def _filled(dtype: str, kind: np.dtype, filling: float = _FILL) -> np.ndarray:
    """An element of the second filling, as it is stored."""
    return np.array([77], kind) if kind.kind == "i" else encode(np.full(1, filling, np.float32), dtype)


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _options(problem: Problem, path: str, lenient: bool) -> contextlib.AbstractContextManager:
    """Hazards on, and a step limit that fits the problem; nothing on a GPU."""
    from dwlab import simt, target

    if target.mode == "gpu":
        return contextlib.nullcontext()
    return simt.using(simt.Options(hazards="off" if lenient else "raise", step_limit=_steps(problem, path)))


def _steps(problem: Problem, path: str) -> int:
    """Far more steps than a thread needs that computes a row, or with one that computes one element of dw."""
    if not isinstance(problem, DepthwiseConv1d):
        return 100_000 + 10 * problem.flops
    reduces = "dw" in problem.outputs(path)
    return 100_000 + 100 * problem.L * (max(problem.K, problem.B) if reduces else problem.K)


def _hazards(error: Exception) -> tuple[Any, ...]:
    from dwlab import simt

    return error.hazards if isinstance(error, simt.HazardError) else ()


def _xray(judged: Stage, problem: Problem, how: Launch, inputs: dict[str, np.ndarray]) -> Any:
    from dwlab import simt

    shapes = problem.shapes(judged.path)
    names = problem.slots(judged.path)
    arrays = [inputs[n] if n in inputs else np.zeros(shapes[n], problem.storage_of(n)) for n in names]
    arrays = [words(problem, name, array, judged.view) for name, array in zip(names, arrays, strict=True)]
    if how.parts:
        arrays[-1] = np.zeros((how.parts, *arrays[-1].shape), np.float32)
    options = simt.Options(hazards="report", trace=True, step_limit=_steps(problem, judged.path))
    kernel, shared = judged.kernel_for(problem), how.shared_bytes
    return simt.xray(kernel, how.grid, how.block, *arrays, *how.scalars, shared_bytes=shared, options=options)


def _all_hazards(judged: Stage, problem: Problem, how: Launch, inputs: dict[str, np.ndarray]) -> tuple[Any, ...]:
    try:
        return tuple(_xray(judged, problem, how, inputs).hazards)
    except Exception:  # the first hazard is known all the same
        return ()


def _notes(judged: Stage, problem: Problem) -> tuple[str, ...]:
    """What is no error but worth a word: float64 arithmetic in a float32 kernel. The same in both modes."""
    try:
        report = _xray(judged, problem, judged.launch(problem), problem.inputs(judged.path))
    except Exception:  # what the interpreter cannot run gets no note
        return ()
    leaks = [line for line in report.lines if line.flops64]
    return tuple(f"line {one.line} computes in float64: {one.text.strip()}" for one in leaks)


def _compare(
    judged: Stage,
    case: Case,
    how: Launch,
    inputs: dict[str, np.ndarray],
    run: _Run,
    hazards: tuple[Any, ...],
    diagnose: bool,
) -> CaseResult:
    problem, path = case.problem, judged.path
    want = references.reference(problem, path, inputs)
    allowed = references.allowed_error(problem, path, inputs)
    look = "a kernel may write its output and nothing else: guard the store, and check its index"
    findings = tuple(Finding("wrote outside its output", text, look) for text in run.trespasses)
    unwritten = run.outputs[_PARTS].view(np.uint32) == POISON if how.parts else np.zeros(0, bool)
    if unwritten.any():
        text = f"{int(unwritten.sum())} of {unwritten.size} elements of the {how.parts} parts were never written"
        look = "all parts are added up: a block that has nothing to add stores 0 in its part"
        findings += (Finding("parts not written", text, look),)
    faults: tuple[tuple[Finding, ...], ...] = ()
    wrong = size = 0
    for name in problem.outputs(path):
        got = decode(run.outputs[name], problem.dtype_of(name))
        off = diagnosis.wrong_mask(got, want[name], allowed[name])
        wrong, size = wrong + int(off.sum()), size + off.size
        explained = unwritten.any() and name == problem.arrays(path)[-1]
        if off.any() and diagnose and not explained:
            faults += _diagnose(judged, case, how, inputs, run, name, want[name], allowed[name])
    passed = not (findings or hazards or wrong)
    return CaseResult(case, passed, findings, hazards, faults, wrong, size)


def _diagnose(
    judged: Stage,
    case: Case,
    how: Launch,
    inputs: dict[str, np.ndarray],
    run: _Run,
    name: str,
    want: np.ndarray,
    allowed: np.ndarray,
) -> tuple[tuple[Finding, ...], ...]:
    dtype = case.problem.dtype_of(name)
    got, refilled = decode(run.outputs[name], dtype), None
    unwritten = _bits(run.outputs[name]) == _poison(dtype)
    with contextlib.suppress(Exception):  # the second run only helps to say what is wrong
        again = _run(judged, case.problem, how, inputs, _FILL, lenient=True).outputs[name]
        refilled = decode(again, dtype)
        # What was never written holds the second filling now; what only carries the first one's bits does not.
        unwritten = unwritten & (_bits(again) == _bits(_filled(dtype, again.dtype)))
        settled = ~np.isnan(got) & ~unwritten
        if not np.array_equal(refilled[settled], got[settled]):
            look = "threads race: run the check with DWLAB_TARGET=simulated, which names the lines"
            return ((Finding("runs differ", "two runs on the same inputs gave different outputs", look),),)
    evidence = diagnosis.Evidence(
        problem=case.problem,
        path=case.problem.alone(name),
        inputs={key: decode(array, case.problem.dtype_of(key)) for key, array in inputs.items()},
        got=got,
        want=want,
        allowed=allowed,
        unwritten=unwritten,
        block=how.block,
        refilled=refilled,
        fill=_FILL,
    )
    return diagnosis.diagnose(evidence)
