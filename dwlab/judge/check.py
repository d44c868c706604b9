"""The judge of a kernel: runs it on problems chosen to break it, and says what is wrong and where to look.

    check("depthwise1d/forward/shared")                       a stage, on the family of problems below
    check(stage("depthwise1d/forward/shared").with_kernel(k)) a kernel in a stage's launch
    check(k, launch=lambda problem: Launch(...))              a kernel with a launch of its own
    check(k, PAPER, launch=...)                               one problem, cut down to a few rows
    check(k, launch=..., seed=1234)                           the same problems and inputs as the verdict with this seed
    check(k, want=function, args=(x, y), grid=4, block=64)    any kernel, against a function on NumPy arrays
    verdict.raise_if_wrong()

Problems and inputs. Beside a fixed family stands one that is drawn anew at each call (dwlab.problems.cases), and so are
all inputs. The verdict says the seed; DWLAB_SEED in the environment sets it for all calls that give none. One problem
comes twice, with other inputs. Each size is once beyond 65,535, where that takes little of the time, or where the
kernel has 16-bit numbers; of a kernel whose few threads do all the work large problems are left out, in a note.

The launch function is trusted: it runs in the judge's process, and could change what the judge compares.

What is right. Every array stands between two guard bands, outputs hold something else before the launch, and the result
is compared with the float64 reference within the rounding that float32 allows: that of sums of the products themselves,
in any order (references.tolerance); with algorithm="fast" that of algorithms which multiply sums (see `_fast_error`).
Every element of an output must be written, what it held before must not matter, and inputs must stay as they are: the
laptop GPU sees each store to them, whatever its value; on a GPU an input that is written and restored is not seen. A
NaN or an infinity in x or dy may spoil the outputs in whose sum it stands, and no other; of dw also the channel's other
taps, for it meets padding there, which a kernel may multiply by it (0 * NaN is NaN). Those in whose sum it stands must
be NaN, or infinite as IEEE arithmetic has it: sums that carry their rounding along, or numbers split into parts, make
NaN of an infinity. Behind an activation, which may lose a NaN (the GPU's max(NaN, 0) is 0), anything is right.

What is found besides. On the laptop GPU races, divergent barriers, out-of-bounds and negative indices, uninitialised
reads and two writers of one element fail a kernel even where its output is right; `allow` names those of the last kinds
that are meant. A launch that takes more than 120 seconds of the processor's time there is stopped, and counts as wrong,
for it looks like an endless one: so long takes one thread that does the work of all of a large pointwise layer or pair;
of rows and depthwise layers it may. There the Python function of what a cuda.jit made is run, dwlab's, numba.cuda's or
numba_cuda_mlir's, and where numba-cuda is installed one that passes is compiled, too. A kernel that passes gets the
same text in either mode.
"""

from __future__ import annotations

import contextlib
import functools
import html
import inspect
import os
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwlab import problems as _problems
from dwlab.judge import causes, contrast, diagnosis, lanes, reference
from dwlab.judge.causes import KINDS, LOOK, CheckError, CheckFailed, as_findings  # noqa: F401 (CheckFailed: for callers)
from dwlab.judge.diagnosis import Finding
from dwlab.judge.isolation import LAUNCH_SECONDS, LAUNCH_WALL, SECONDS, WALL, TooLong, isolated
from dwlab.kernels.registry import ByShape, Launch, Stage, StageError, dtypes_of, enqueue, limits
from dwlab.kernels.registry import stage as _stage
from dwlab.kernels.registry import stages as _stages
from dwlab.kernels.tiling import gpu
from dwlab.problems import NAN_BITS, DepthwiseConv1d, Problem, decode, encode, layers, references
from dwlab.problems.cases import NOT_FINITE, SCALED, VALUES, Case, cases, drawn, layer_cases, layers_of
from dwlab.problems.cases import products as products_of_one
from dwlab.text import tabular

GUARD = 1024
"""Elements before and after each array. A multiple of 128, so that arrays start 256-byte aligned."""

POISON = np.uint32(0x7FC0DEAD)
"""Bits of the NaN in outputs: a quiet NaN that arithmetic on a GPU never makes (that is 0x7FFFFFFF).

In arrays of 16-bit elements it is dwlab.problems.NAN_BITS. On a CPU a NaN keeps its bits through arithmetic: the laptop
GPU's own record says what was written. Guard bands hold other bits (`_GUARD_BITS`).
"""

_PARTS = "parts"  # the workspace of a launch in parts, among the arrays' names
_FILL = 1024.0  # a filling that is no NaN, for the second run of a wrong kernel
_DIAGNOSED = 12  # wrong cases that are looked into; others are only counted, or not run if all the first are wrong
_TWICE = 3_000  # operations of a problem that is launched twice
_SMALL = 20_000  # operations of a drawn problem that a kernel which is known to be wrong is tried on
_SHOWN = 2  # findings about the output that a verdict names


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case.

    findings: what is certain. hazards: what the laptop GPU found. faults: for each fault of the output what would
    account for it, best first. wrong: wrong outputs of `size`. ran: False if there is no output to judge: of a
    passing case because no grid holds it, or it takes too long. notes: hazards that were allowed, and problems that
    cannot be started.
    """

    case: Case
    passed: bool
    findings: tuple[Finding, ...] = ()
    hazards: tuple[Any, ...] = ()
    faults: tuple[tuple[Finding, ...], ...] = ()
    wrong: int = 0
    size: int = 0
    ran: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The judge's findings. `str()` for a terminal, HTML in a notebook; `hints` go from the symptom to the place."""

    subject: str
    path: str
    results: tuple[CaseResult, ...]
    notes: tuple[str, ...] = ()
    seed: int = 0

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
        """The findings, each pattern once: hazards, what else is certain, and what best accounts for the outputs."""
        certain: dict[str, Finding] = {}
        for result in self.failures:
            for one in as_findings(result.hazards, str(result.case.problem)):
                known = certain.setdefault(one.identity, one)
                # Of two races within a block, the one that only a barrier of the block removes: it removes both.
                if "syncthreads" in one.text and "syncthreads" not in known.text:
                    certain[one.identity] = one
        for result in self.failures:
            for one in result.findings:
                certain.setdefault(one.pattern, one)
        # Outputs of NaN or of numbers that are cut off say little, if plain inputs fail too.
        plain = [result for result in self.failures if result.case.values == "plain" and result.faults]
        alone = self._alone
        telling = plain or [result for result in self.failures if result.case.values == alone] or self.failures
        likely = diagnosis.explain([fault for result in telling for fault in result.faults])
        if likely and alone:
            look = _ROUNDED.get(alone, contrast.SUCH)
            likely = (replace(likely[0], pattern=f"wrong only where there are {VALUES[alone]}", look=look), *likely[1:])
        elif likely and likely[0].pattern in diagnosis.VAGUE:
            likely = (*self._by_rule(likely[0]), *likely[1:])
        likely = likely[: _SHOWN if not certain else 1]
        first = [one for one in likely if one.pattern.endswith("that is none")]  # of which comes what is read there
        return tuple(dict.fromkeys((*first, *certain.values(), *likely)))

    @property
    def _alone(self) -> str:
        """The kind of inputs (VALUES) on which alone it fails, but for a NaN and infinities; "" if that is nothing
        of its own. Large inputs and large filters are one."""
        kinds = dict.fromkeys(one.case.values for one in self.failures if one.case.values not in NOT_FINITE)
        known = set(kinds) <= {*SCALED, "far"} and (len(kinds) == 1 or set(kinds) == {"large", "large filters"})
        return next(iter(kinds)) if known else ""

    def _by_rule(self, found: Finding) -> tuple[Finding, ...]:
        """A finding that says nothing but that something is wrong, with what the failing problems have in common."""
        rule, words = (self.rule, "wrong where") if self.rule else (self.bound, "wrong only where")
        return (replace(found, pattern=f"{words} {rule.words}", look=rule.look),) if rule else (found,)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The short names of what is wrong."""
        return tuple(one.pattern for one in self.findings)

    @functools.cached_property
    def rule(self) -> contrast.Rule | None:
        """The simplest rule that tells the failing problems from the passing ones; None if there is none."""
        return contrast.exact(*self._outcomes) if self._comparable else None

    @functools.cached_property
    def bound(self) -> contrast.Rule | None:
        """The narrowest rule outside of which no problem failed, where none holds exactly; None if that says little."""
        return contrast.necessary(*self._outcomes) if self._comparable and not self.rule else None

    @property
    def _comparable(self) -> bool:
        return not self.passed and all(result.ran or result.passed for result in self.results)

    @property
    def _outcomes(self) -> tuple[list[Problem], list[bool], list[str]]:
        """Problems, which failed, and what their inputs are like."""
        ran = [result for result in self.results if result.ran]
        cases = [result.case for result in ran]
        return [c.problem for c in cases], [not r.passed for r in ran], [c.values for c in cases]

    @property
    def _common(self) -> str:
        """A sentence about what failing problems have in common; "" if nothing is known."""
        if self.rule:
            return f"Of the problems tried it fails exactly where {self.rule.words}."
        return f"It never fails outside of this: {self.bound.words}." if self.bound else ""

    @property
    def hints(self) -> tuple[str, ...]:
        """Hints in steps: the smallest failing problem, what is wrong, what failing problems share, where to look."""
        if self.passed:
            return ()
        first = self.failures[0]
        steps = [f"Try it on the smallest problem that fails: {first.case.problem} ({first.case.why})."]
        steps += [f"What is wrong: {_with_problem(one, first)}." for one in self.findings[:2]]
        if self._common:
            steps.append(self._common)
        steps += [f"Where to look: {one.look}{'' if one.look.endswith('?') else '.'}" for one in self.findings[:2]]
        return tuple(steps)

    hint, raise_if_wrong = causes.hint, causes.raise_if_wrong

    def __str__(self) -> str:
        lines = [_headline(self)]
        if self.passed:
            tried = [r.case.problem for r in self.results if not _long(r.case, self.path.split("/")[-1])]
            lines.append(tabular.wrapped(f"on {_ranges(tried)}"))
        else:
            first = self.failures[0]
            lines.append(f"first on {first.case.problem} ({first.case.why})")
            if first.size:
                lines.append(f"{first.wrong} of {first.size} outputs wrong there")
            lines += [f"- {_with_problem(one, first)}" for one in self.findings]
            if self._common:
                lines.append(self._common)
            lines.append(f"Hints: verdict.hint(1) to verdict.hint({len(self.hints)}).")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = [
            ("passed" if r.passed else tabular.FAILED, str(r.case.problem), r.case.why, "" if r.passed else _summary(r))
            for r in self.results
        ]
        items = [_with_problem(one, self.failures[0]) for one in self.findings]
        items += [*filter(None, [self._common]), *(f"note: {note}" for note in self.notes)]
        listed, steps = ("".join(f"<li>{html.escape(one)}</li>" for one in texts) for texts in (items, self.hints))
        headline = html.escape(_headline(self))
        if not self.passed:
            headline = headline.replace(tabular.FAILED, tabular.alarm(tabular.FAILED), 1)
        table = tabular.as_html(("result", "problem", "why it is here", "what is wrong"), rows)
        return (
            f"<p><b>{headline}</b></p>"
            + (f"<ul>{listed}</ul>" if items else "")
            + (f"<details><summary>hints</summary><ol>{steps}</ol></details>" if steps else "")
            + f"<details><summary>{len(self.results)} problems</summary>{table}</details>"
        )


def _headline(verdict: Verdict) -> str:
    count = len(verdict.results)
    problems = f"{count} problem{'s' * (count != 1)} (seed {verdict.seed})"
    failed = "" if verdict.passed else f"{len(verdict.failures)} of "
    return f"{'FAILED' if failed else 'passed'}: {verdict.subject}, {verdict.path}, {failed}{problems}"


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
    named = [name for name in ("causal", "same") if any(p.padding == name for p in problems)]
    numbers = [p.padding for p in problems if not isinstance(p.padding, str)]
    if numbers:
        named.append(f"{min(numbers)}" + (f" to {max(numbers)}" if min(numbers) < max(numbers) else ""))
    kinds = [kind for kind in dict.fromkeys(p.dtype for p in problems) if kind != "float32"]
    return ", ".join([*parts, f"padding {', '.join(named)}", *(kinds and [f"float32 and {' and '.join(kinds)}"])])


def _long(case: Case, path: str) -> bool:
    """Whether a sum has so many products that one thread would take too long for it without a GPU."""
    return case.vast and products_of_one(case.problem, path) > 65535


def _summary(result: CaseResult) -> str:
    likely = [fault[0] for fault in result.faults]
    names = dict.fromkeys(one.pattern for one in (*as_findings(result.hazards, ""), *result.findings, *likely))
    return "; ".join(names) or f"{result.wrong} of {result.size} outputs wrong"


def _with_problem(one: Finding, first: CaseResult) -> str:
    """A finding, with its problem where that is not the one of the headline."""
    return str(one) if one.where in ("", str(first.case.problem)) else f"{one} (on {one.where})"


# ---- judging


_ROUNDED = {
    "far": "sum and bias are exact as int32: what makes a float32, or less, of a sum before its bias is added?",
    "ties": "the rounding of halves: rint takes the even number; round half up, a cast and + 0.5 do not",
}
# What stands around each array, by its storage: none of it is what outputs hold.
_GUARD_BITS = {"float32": 0x7FC0BEEF, "int32": 0x99999999, "int8": 0x99, "uint8": 0x99}
_GUARD_BITS |= {"float16": 0x7FEB, "bfloat16": 0x7FEB}


def check(
    subject: Stage | str | Any, problem: DepthwiseConv1d | str | None = None, *, path: str | None = None,
    launch: Callable[[DepthwiseConv1d], Launch] | None = None, dtype: str | None = None, most: int | None = None,
    seed: int | None = None, allow: Sequence[str] = (), algorithm: str = "direct",
    want: Callable[..., object] | None = None, args: Any = (), grid: Any = None, block: Any = None,
    shared_bytes: int = 0, tolerance: float | None = None, values: Sequence[str] = (),
) -> Verdict | reference.Compared:  # fmt: skip
    """Judges a stage, a stage's id, or a kernel with its launch (problem -> Launch).

    With `want`, any kernel against a function on NumPy arrays that does the same, launched as kernel[grid, block] with
    shared_bytes on `args`; these, values, tolerance and the result as `dwlab.judge.reference.against` has them.

    path: what a bare kernel computes ("forward" if None); a stage has its own. problem: judge on this one only (or its
    name, or "B,H,L,K"), cut down to what can be interpreted, because rows are alike. dtype: how rows are stored; None
    for the problem's, or else float32 in the fixed family and each that the stage takes in the drawn one. most: so many
    of the project's problems only, spread over them: where a GPU's compiler takes seconds for each. seed: a whole
    number from 0 up, of the drawn problems and of all inputs; None for a new one, or for DWLAB_SEED's.

    allow: hazards that are meant, "two writers" (of one value: which of them comes last, and when, is no matter) and
    "negative index" (counted from the end of the axis, as Numba does); they become notes. By default they are errors,
    because they nearly always are: which thread owns an output, and whether an index fell off the left edge, cannot be
    seen from a right result. algorithm: "fast" for Winograd's and others that multiply sums of the inputs, whose error
    is bounded by the largest input and not by the products (forward and input_grad, and depthwise2d, not int8).

    A wrong kernel is no exception: it is in the verdict. Raises CheckError for what is neither a stage nor a kernel,
    lacks a launch, has another path or is not written for rows of that dtype, and for unknown options; StageError or
    ProblemError for an unknown name.
    """
    allow = (allow,) if isinstance(allow, str) else tuple(allow)
    if unknown := [kind for kind in allow if kind not in KINDS]:
        raise CheckError(f"allow={unknown[0]!r}: only {' and '.join(map(repr, KINDS))} can be meant")
    if want is not None:
        if grid is None or block is None:
            raise CheckError("a kernel that is compared with a function is launched: give grid= and block=")
        if isinstance(subject, ByShape) or not _is_kernel(subject):
            raise CheckError(f"{_name(subject)} is no kernel: decorate the function with @cuda.jit")
        how = {"shared_bytes": shared_bytes, "tolerance": tolerance, "allow": allow, "values": values}
        return reference.against(subject, grid, block, want, args, **how)
    if args or grid is not None or block is not None:
        raise CheckError("args, grid and block go with want=, the function that the kernel is compared with")
    stage, name = _subject(subject, path, launch)
    rules = _Rules(allow, algorithm)
    rules.check(stage)
    seed = _fresh(seed)
    if problem is not None:
        find = _problems.problem if stage.op == "depthwise1d" else layers.problem
        problem = find(problem)
        if dtype is not None:
            problem = replace(problem, dtype=dtype) if stage.op == "depthwise1d" else layers.stored(problem, dtype)
    rows = problem.dtype if problem is not None else dtype or "float32"
    if stage.op == "depthwise1d":
        DepthwiseConv1d(1, 1, 1, 1, dtype=rows)  # refuses unknown names
        if rows not in stage.dtypes:
            raise CheckError(
                f"{name} takes rows of {', '.join(stage.dtypes)}, not of {rows}; a kernel for all of them is made "
                "by a function of (L, K, SHIFT, DTYPE), decorated with @by_shape"
            )
    chosen = spread(_chosen(stage, problem, dtype, seed), most)
    if not chosen:
        raise CheckError(f"{name} supports none of the problems in {dtype}: it takes {', '.join(stage.dtypes)}")
    locks = _LOCKS & _known(stage, chosen[0].problem)
    if locks and problem is None:  # each thread waits for all others
        chosen = spread([case for case in chosen if not case.vast], 24)
    results = _judge_all(stage, chosen, rules, problem is None)
    notes = [note for result in results for note in result.notes] + [_LOCKED] * bool(locks)
    if results[-1].ran:
        small = _NOTED if stage.op == "depthwise1d" and problem is None and rows == "float32" else chosen[0].problem
        notes += _notes(stage, chosen[-1].problem if problem is not None else small)
    if algorithm != "direct":
        notes.append(f"checked against the error that {algorithm} algorithms may have")
    return Verdict(name, f"{stage.op}/{stage.path}", tuple(results), tuple(dict.fromkeys(notes)), seed)


@dataclass(frozen=True)
class _Rules:
    """The liberties that a call of check allows."""

    allow: tuple[str, ...] = ()
    algorithm: str = "direct"

    def check(self, stage: Stage) -> None:
        if self.algorithm not in ("direct", "fast"):
            raise CheckError(f"algorithm={self.algorithm!r} is unknown: 'direct' or 'fast'")
        fast = stage.op == "depthwise2d" or (stage.op == "depthwise1d" and stage.path in ("forward", "input_grad"))
        if self.algorithm == "fast" and not fast:
            raise CheckError(f"algorithm='fast' has no bound for {stage.op}/{stage.path}: leave it out")


def _fresh(seed: int | None) -> int:
    """The seed itself, DWLAB_SEED's, or a new one."""
    given = os.environ.get("DWLAB_SEED", "").strip() if seed is None else seed
    if given == "":
        return secrets.randbelow(10**9)
    if str(given).isdigit():
        return int(given)
    what = "DWLAB_SEED" if seed is None else "seed"
    raise CheckError(f"{what}={given!r} is no seed: give a whole number from 0 up, or leave it out for a new one")


def checked_on(
    stage: Stage, dtype: str = "float32", most: int | None = None, seed: int | None = None
) -> tuple[Problem, ...]:
    """The problems on which `check` judges a stage with rows of this dtype; () if it is not written for them.

    The same as those of `check` if both get the same seed, or DWLAB_SEED is set.
    """
    if dtype not in stage.dtypes:
        return ()
    return tuple(case.problem for case in spread(_chosen(stage, None, dtype, _fresh(seed)), most))


def spread(listed: Sequence[Any], most: int | None) -> tuple[Any, ...]:
    """Picks at most so many of these, the first and the last among them."""
    if most is None or len(listed) <= most:
        return tuple(listed)
    return tuple(listed[round(i * (len(listed) - 1) / max(1, most - 1))] for i in range(most))


def _chosen(stage: Stage, problem: Problem | None, dtype: str | None, seed: int) -> tuple[Case, ...]:
    """The problem's cases; without one, those of the fixed family, and then the drawn ones."""
    if problem is not None:
        return cases(problem, path=stage.path, seed=seed)
    dtypes = stage.dtypes if dtype is None else (dtype,)
    if stage.op != "depthwise1d":
        fixed = layer_cases(stage.op, stage.path, dtypes, seed, stage.supports)
    else:
        rows = dtype or "float32"
        how = _launch(stage, cases(dtype=rows)[0].problem)  # one that fails is reported with the cases
        fixed = cases(None, getattr(how, "block", ()), stage.path, rows, seed)
        fixed = [one for one in fixed if rows == "float32" or stage.supports(one.problem)]
    return (*fixed, *_drawn(stage.op, stage.path, dtypes, seed, stage.supports, gpu.of(None)))


@functools.lru_cache(maxsize=128)
def _drawn(op: str, path: str, dtypes: tuple[str, ...], seed: int, supports: Callable, here: gpu.Gpu) -> tuple:
    """`drawn`, once for all kernels of a kind that a process judges with one seed: it takes as long as some kernels."""
    return drawn(op, path, dtypes, seed, supports)


def _judge_all(stage: Stage, chosen: Sequence[Case], rules: _Rules, family: bool) -> list[CaseResult]:
    from dwlab.gpu import target

    results: list[CaseResult] = []
    began, most, pace = time.process_time(), 0, 0.0
    family &= target.mode != "gpu"  # where a compiler takes most of the time
    own = family and not _registered(stage)
    few = own and any(_share(stage, case.problem) < 1 / 256 for case in chosen if case.vast)
    for case in chosen:
        failed = sum(not result.passed for result in results)
        # What is wrong the fixed family says better, whose problems differ by little from each other. Where it is wrong
        # small drawn ones help to say, for a rule must hold on them too.
        known = case.drawn and any(not (result.passed or result.case.drawn) for result in results)
        each = getattr(stage.kernel, "sized", False)  # a compiler would take seconds for each
        size = case.problem.flops_of(stage.path)
        if known and (each or case.values != "plain" or size > _SMALL):
            continue
        spent, seconds = time.process_time() - began, SECONDS
        narrow = case.vast and own and _NARROW & _known(stage, case.problem)
        if case.vast and family and not narrow:
            alone = _long(case, stage.path) and _share(stage, case.problem) < 32  # not a warp for a sum
            seconds = 0 if alone else max(_VAST_SECONDS, _VAST_PART * spent)
        rest = _IN_ALL.get(stage.op, 9.0) / (2 if failed else 1) - spent
        left = max(0.05, rest / 4) if few and not narrow else SECONDS
        if target.mode != "gpu" and (pace * size > min(left, seconds) or not seconds):
            results.append(CaseResult(case, True, ran=False, notes=() if case.vast else (_LEFT_OUT,)))
            continue
        results.append(_judge(stage, case, rules, failed < _DIAGNOSED and not known, seconds))
        if size >= most and results[-1].ran:  # how long an operation takes, by the largest problem
            most, pace = size, (time.process_time() - began - spent) / max(size, 1000)
        hopeless = failed + 1 == _DIAGNOSED == sum(one.ran for one in results) and not results[-1].passed
        if hopeless or not (results[-1].ran or results[-1].passed):
            break  # the others would say the same
    if all(result.passed for result in results):
        refused = _refused(stage, chosen[len(chosen) // 2].problem)
        if refused is not None:
            results[len(chosen) // 2] = _not_run(chosen[len(chosen) // 2], refused)
    return results


_NOTED = DepthwiseConv1d(2, 3, 33, 5, "same")
# CPU seconds for a problem with a size beyond 65,535: at least, and as a part of what the others took. Most need less.
_VAST_SECONDS, _VAST_PART = 0.4, 0.03
# For all problems of a kernel of few threads, half of it for one that is wrong: what one thread computes alone is slow.
# A problem that is expected to take a quarter of the rest is left out.
_IN_ALL = {"fused": 24.0}
_NARROW = {"int16", "uint16", 0x7FFF, 0x8000, 0xFFFF, 0x10000}  # a size may not fit: tried however long it takes
_LOCKS = {"cas", "compare_and_swap", "exch"}


def _share(stage: Stage, problem: Problem) -> float:
    """Threads for each output, less than one where a thread has a row, a map or all; of no launch, infinite."""
    outputs = sum(int(np.prod(problem.shapes(stage.path)[name])) for name in problem.outputs(stage.path))
    how = _launch(stage, problem)
    return how.threads * how.blocks / outputs if isinstance(how, Launch) else np.inf


def _known(stage: Stage, problem: Problem) -> set:
    """The names and numbers in a kernel and its device functions; none of a kernel that cannot be made."""
    found: set = set()
    with contextlib.suppress(Exception):
        todo, seen = [stage.kernel_for(problem)], []
        for one in todo:
            function = getattr(one, "py_func", None)
            if function and function not in seen:
                seen.append(function)
                code, known = function.__code__, inspect.getclosurevars(function)
                found |= {*code.co_names, *code.co_freevars, *code.co_consts}
                todo += [*known.nonlocals.values(), *known.globals.values()]
    return found


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
        stage = subject if launch is None else replace(subject, launch=launch)
        return stage, subject.id if subject.kernel is listed.kernel else _name(subject.kernel)
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
    name = _name(subject)
    return Stage("depthwise1d", path, 0, name, "", subject, launch, lambda _: None, "", dtypes=dtypes_of(subject)), name


def _is_kernel(subject: Any) -> bool:
    """Whether this is what a cuda.jit makes, dwlab's or another, or makes such kernels for each shape."""
    with contextlib.suppress(TypeError):
        return isinstance(subject, ByShape) or reference.launchable(subject) is not None
    return False


_NO_NAMES = ("make", "kernel")


def _name(kernel: Any) -> str:
    """A kernel's name; of one made by a `make`, that of the function inside it, or of the one around it."""
    function = getattr(kernel, "py_func", kernel)
    own = getattr(function, "__name__", type(kernel).__name__)
    if own not in _NO_NAMES:
        return own
    code = getattr(inspect.unwrap(function), "__code__", None)
    inside = [one.co_name for one in code.co_consts if hasattr(one, "co_name")] if code else []
    around = reversed(getattr(function, "__qualname__", own).split(".<locals>.")[:-1])
    found = [name for name in (*inside, *around) if name.isidentifier() and name not in _NO_NAMES]
    return found[0] if found else own


def _launch(stage: Stage, problem: Problem) -> Launch | Finding:
    """How the kernel is to be started, or what is wrong with that."""
    how = isolated(lambda: stage.launch(problem), LAUNCH_SECONDS, LAUNCH_WALL)
    if isinstance(how, TooLong):
        look = "a loop in the launch function that does not end, or a sleep?"
        return Finding("does not end", f"the launch function did not return: it took {how}", look)
    if isinstance(how, StageError):
        return Finding("launch", str(how), LOOK["launch"])
    if isinstance(how, BaseException):
        return Finding("raises", f"the launch function raised {causes.message(how)}", "the launch function")
    if not isinstance(how, Launch):
        text = f"the launch function returned {type(how).__name__}, not a Launch"
        return Finding("launch", text, "return Launch(grid, block, scalars)")
    over = limits(how)
    return Finding("launch", over[0], LOOK["launch"]) if over else how


def _judge(stage: Stage, case: Case, rules: _Rules, diagnose: bool, seconds: float = SECONDS) -> CaseResult:
    """Runs one case and says what is wrong with it, if that takes no more of the processor's seconds."""
    how = _launch(stage, case.problem)
    if isinstance(how, Finding):
        if how.pattern == "launch" and case.vast:  # refused, not wrong
            return CaseResult(case, True, ran=False, notes=(f"does not start on {case.problem}: {how.text}",))
        return _not_run(case, how)
    trial = _Trial(stage, case, how, case.inputs(stage.path), seconds)
    notes: tuple[str, ...] = ()
    run = trial.run()
    if isinstance(run, TooLong) and seconds < SECONDS:
        return CaseResult(case, True, ran=False)
    if hazards := getattr(run, "hazards", ()):  # a simt.HazardError
        if diagnose or rules.allow:
            hazards = trial.hazards() or hazards
        # Two blocks that do not run at one moment here are two writers all the same.
        late = "two writers" in rules.allow
        meant = [one for one in hazards if one.kind in rules.allow or late and causes.two_writers(one)]
        hazards = tuple(one for one in hazards if one not in meant)
        if diagnose and any(one.kind == "out of bounds" for one in hazards):
            if exchanged := _exchanged(trial, _right(case, stage.path, trial.inputs, rules)):
                return CaseResult(case, False, faults=((exchanged,),))
        notes = tuple(f"line {one.line}: {one.kind}, allowed: {one.message}" for one in meant)
        if hazards and not diagnose:
            return CaseResult(case, False, hazards=hazards)
        run = trial.run(lenient=True)
        if again := getattr(run, "hazards", ()):
            return CaseResult(case, False, hazards=hazards or again)
    if isinstance(run, BaseException):
        return _not_run(case, causes.why_not(run))
    return replace(_compare(trial, run, hazards, rules, diagnose), notes=notes)


_LOCKED = (
    "locks, as cas and exch make them, are not understood: what they alone order is a race; few problems are tried"
)
_LEFT_OUT = "large problems are left out, which take long here: few threads have all the work"


def _not_run(case: Case, finding: Finding) -> CaseResult:
    return CaseResult(case, False, (finding,), ran=False)


def _registered(stage: Stage) -> bool:
    return any(stage.kernel is one.kernel for one in _stages(stage.op))


def _refused(stage: Stage, problem: Problem) -> Finding | None:
    """The compiler's objection to a kernel that is no registered stage's, where there is a compiler and no GPU."""
    from dwlab.compiler import inspect
    from dwlab.gpu import target

    if target.mode == "gpu" or _registered(stage) or inspect.missing():
        return None
    try:
        inspect.compile(stage, problem=problem)
    except inspect.InspectError as error:
        if "does not compile" in str(error):  # else there was no answer
            return Finding("does not compile", causes.shortened(str(error)), causes.COMPILES)
    return None


# ---- one launch


@dataclass(frozen=True)
class _Run:
    """The arrays after a launch. written: output -> mask of the elements that were stored, where that is recorded."""

    outputs: dict[str, np.ndarray]
    trespasses: tuple[str, ...]
    written: dict[str, np.ndarray]


@dataclass(frozen=True)
class _Trial:
    """A kernel on one case: how it is started, and its inputs."""

    stage: Stage
    case: Case
    how: Launch
    inputs: dict[str, np.ndarray]
    seconds: float = SECONDS

    def run(self, filling: float | None = None, lenient: bool = False) -> _Run | BaseException:
        """`_run`, or what it raised. On a GPU in this thread: what is launched there cannot be stopped."""
        from dwlab.gpu import target

        if target.mode != "gpu":
            return isolated(lambda: _run(self, filling, lenient), self.seconds, WALL)
        try:
            return _run(self, filling, lenient)
        except Exception as error:
            return error

    def hazards(self) -> tuple[Any, ...]:
        """All that the laptop GPU finds; () if the kernel does not get so far, for the first is known all the same."""
        found = isolated(lambda: _xray(self).hazards, SECONDS, WALL)
        return () if isinstance(found, BaseException) else tuple(found)


def _run(trial: _Trial, filling: float | None, lenient: bool) -> _Run:
    """One launch between guard bands, the outputs filled with `_poison` or a number. lenient: hazards do not raise."""
    from dwlab.gpu import target
    from dwlab.target import cuda

    stage, problem, how, inputs = trial.stage, trial.case.problem, trial.how, trial.inputs
    shapes = problem.shapes(stage.path)
    names = list(problem.arrays(stage.path))
    if how.parts:
        shapes = shapes | {_PARTS: (how.parts, *shapes[names[-1]])}
        names.append(_PARTS)
    before, device, views = {}, {}, {}
    for name in names:
        size = int(np.prod(shapes[name]))
        dtype = "float32" if name == _PARTS else problem.dtype_of(name)
        flat = _filled(size + 2 * GUARD, dtype, _GUARD_BITS[dtype])
        inner = flat[GUARD : GUARD + size]
        inner[:] = inputs[name].ravel() if name in inputs else _filled(size, dtype, _filling(dtype, filling))
        before[name] = flat
        device[name] = cuda.to_device(flat)
        views[name] = device[name][GUARD : GUARD + size].reshape(shapes[name])
    kernel = stage.kernel_for(problem)  # refuses rows that cannot be seen as words
    try:
        kernel = reference.launchable(kernel)
    except TypeError:
        what = f"{_name(stage.kernel)} made {type(kernel).__name__} {kernel!r}, which is no kernel"
        raise causes.NoKernel(what) from None
    args = [stage.words(problem, name, views[name]) for name in problem.slots(stage.path)]
    output = args[-1]
    if how.parts:
        args[-1] = views[_PARTS]
    stored = [name for name in names if name not in inputs]
    if target.mode != "gpu" and not lenient:
        for name in stored:  # from here on, because views of other item sizes end the record
            device[name].allocation.written = np.zeros(before[name].nbytes, np.bool_)
    with _options(problem, stage.path, lenient), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")  # these problems are small on purpose
        enqueue(how, kernel, (*args, *how.scalars), output, views.get(_PARTS))
        cuda.synchronize()
    found, written, trespasses = {}, {}, []
    for name, flat in before.items():
        after = device[name].copy_to_host()
        changed = _bits(flat) != _bits(after)
        if name in stored:
            found[name] = after[GUARD:-GUARD].reshape(shapes[name])
            changed[GUARD:-GUARD] = False
            record = getattr(device[name], "written", None)
            if record is not None:
                written[name] = np.array(record[GUARD:-GUARD]).reshape(shapes[name])
        parts = {"before": changed[:GUARD], "behind": changed[-GUARD:], "in the input": changed[GUARD:-GUARD]}
        for where, part in parts.items():
            if part.any():
                trespasses.append(f"{int(part.sum())} elements {where} {name} were overwritten")
        line = getattr(getattr(device[name], "allocation", None), "stored", 0)  # there is no such record on a GPU
        if name in inputs and line and not changed.any():
            trespasses.append(f"line {line} stores to the input {name}, which holds afterwards what it held before")
    return _Run(found, tuple(trespasses), written)


def _filled(size: int, dtype: str, bits: int) -> np.ndarray:
    kind = _problems.storage(dtype)
    return np.full(size, bits, f"u{kind.itemsize}").view(kind)


def _filling(dtype: str, number: float | None) -> int:
    """The bits of an element that nobody has written: `_poison`, or a number's (in integers 77)."""
    if number is None:
        return _poison(dtype)
    if dtype.startswith("int"):
        return 77
    return int(_bits(encode(np.float32([number]), dtype))[0])


def _poison(dtype: str) -> int:
    """The bits of an element that nobody has written. int8 and int32 have no NaN: a number that is seldom right."""
    return int({"float32": POISON, "int32": 0xAAAAAAAA, "int8": 0xAA}.get(dtype, NAN_BITS))


def _bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def _options(problem: Problem, path: str, lenient: bool) -> contextlib.AbstractContextManager:
    """Hazards on, and a step limit that fits the problem; nothing on a GPU."""
    from dwlab import simt
    from dwlab.gpu import target

    if target.mode == "gpu":
        return contextlib.nullcontext()
    return simt.using(simt.Options(hazards="off" if lenient else "raise", step_limit=_steps(problem, path)))


_STEPS = 100_000  # statements that any problem may take, the smallest one, too


def _steps(problem: Problem, path: str) -> int:
    """More statements than one thread needs that computes everything: of a product and of an output, with its indices,
    tests and calls. What is endless ends at `SECONDS` if not before."""
    sizes = [int(np.prod(problem.shapes(path)[name])) for name in problem.outputs(path)]
    rows = isinstance(problem, DepthwiseConv1d)
    products = problem.flops_dense // 2 * len(sizes) if rows else sizes[0] * products_of_one(problem)
    return _STEPS + 40 * products + 100 * sum(sizes)


def _xray(trial: _Trial) -> Any:
    from dwlab import simt

    stage, problem, how, inputs = trial.stage, trial.case.problem, trial.how, trial.inputs
    shapes = problem.shapes(stage.path)
    names = problem.slots(stage.path)
    arrays = [inputs[n] if n in inputs else np.zeros(shapes[n], problem.storage_of(n)) for n in names]
    arrays = [stage.words(problem, name, array) for name, array in zip(names, arrays, strict=True)]
    if how.parts:
        arrays[-1] = np.zeros((how.parts, *arrays[-1].shape), np.float32)
    options = simt.Options(hazards="report", trace=True, step_limit=_steps(problem, stage.path))
    kernel, shared = stage.kernel_for(problem), how.shared_bytes
    return simt.xray(kernel, how.grid, how.block, *arrays, *how.scalars, shared_bytes=shared, options=options)


def _notes(stage: Stage, problem: Problem) -> tuple[str, ...]:
    """Notes on what is no error but worth a word: float64 arithmetic in a float32 kernel. The same in both modes."""

    def lines() -> Any:
        return _xray(_Trial(stage, Case(problem, ""), stage.launch(problem), problem.inputs(stage.path))).float64_leaks

    found = isolated(lines, SECONDS, WALL)
    if isinstance(found, BaseException):  # what the interpreter cannot run gets no note
        return ()
    return tuple(f"line {one.line} computes in float64: {one.text.strip()}" for one in found)


# ---- what is right


def _fast_error(problem: Problem, path: str, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Greatest error of a convolution by short ones that save multiplications: F(2, 3) in each dimension, and sums.

    F(2, 3) gives two outputs of three taps as sums of products (d0 - d2) g0, (d1 + d2) (g0 + g1 + g2) / 2, … of sums.
    With X the largest |d| and S the sum of |g|, they add up to 2 X |g0| + 2 X S <= 4 X S, and each has been rounded at
    most 6 times. So, with unit roundoff u and a filter of n taps taken as n / 3 pieces whose results are added up, the
    error is at most (6 + n) 4 u X S, and in two dimensions, one inside the other, (12 + n) 16 u X S. It does not shrink
    where the sum of the products' absolute values does: in `references.tolerance` that is the measure.
    """
    name = "x" if "x" in problem.arrays(path) else "dy"
    x, w = (np.abs(decode(inputs[key], problem.dtype_of(key)).astype(np.float64)) for key in (name, "w"))
    unit = 2.0**-24
    if isinstance(problem, DepthwiseConv1d):
        return (6 + problem.K) * 4 * unit * x.max(axis=2, keepdims=True) * w.sum(axis=1)[:, None]
    nchw = problem.layout == "NCHW"
    largest = x.max(axis=(2, 3) if nchw else (1, 2), keepdims=True)
    taps = w.sum(axis=(1, 2))[:, None, None] if nchw else w.sum(axis=(0, 1))
    return 1.13 * (12 + problem.K**2) * 16 * unit * largest * taps  # 1.13: the steepest activation


@dataclass(frozen=True)
class _Right:
    """The right values of one output: within `allowed` of `want`; elsewhere as `spoilt` says.

    spoilt: mask of the outputs in whose sum a NaN or an infinity stands; exact: what they are by IEEE arithmetic, or
    None where anything is right; may: mask of the outputs that may be NaN, whatever else is right.
    """

    want: np.ndarray
    allowed: np.ndarray
    spoilt: np.ndarray
    exact: np.ndarray | None
    may: np.ndarray

    def off(self, got: np.ndarray) -> np.ndarray:
        """Where got is wrong."""
        found = diagnosis.wrong_mask(got, self.want, self.allowed) & ~self.spoilt
        if self.exact is not None:
            found |= self.spoilt & (got != self.exact) & ~(np.isnan(got) & np.isnan(self.exact))
        return found & ~(self.may & np.isnan(got))


def _right(case: Case, path: str, inputs: dict[str, np.ndarray], rules: _Rules) -> dict[str, _Right]:
    """Output name -> what is right for it."""
    problem = case.problem
    plain, marked = inputs, None
    if case.values in NOT_FINITE:
        plain, marked = dict(inputs), dict(inputs)
        for name in ("x", "dy"):
            if name in inputs:
                dtype = problem.dtype_of(name)
                values = decode(inputs[name], dtype)
                plain[name] = encode(np.where(np.isfinite(values), values, np.float32(0)), dtype)
                marked[name] = encode(np.where(np.isfinite(values), values, np.float32(np.nan)), dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        want = references.reference(problem, path, plain)
        allowed = references.allowed_error(problem, path, plain)
        spread = references.reference(problem, path, marked) if marked else want
        exact = references.reference(problem, path, inputs) if marked else {}
    loses = any(getattr(layer, "activation", "none") != "none" for layer in layers_of(problem))
    loses |= problem.op == "sparse"  # 0 * NaN is NaN where a kernel multiplies it, and need not be
    found = {}
    for name in want:
        margin = allowed[name]
        if rules.algorithm == "fast" and problem.dtype != "int8":
            margin = margin + _fast_error(problem, path, plain)
        spoilt = np.isnan(spread[name]) if marked else np.zeros(want[name].shape, bool)
        may = spoilt
        if name == "dw":  # a channel's other taps: padding is 0, and 0 * NaN is NaN
            may = np.broadcast_to(spoilt.any(axis=1, keepdims=True), spoilt.shape)
        found[name] = _Right(want[name], margin, spoilt, None if loses else exact.get(name), may)
    return found


def _compare(trial: _Trial, run: _Run, hazards: tuple[Any, ...], rules: _Rules, diagnose: bool) -> CaseResult:
    case, problem, path = trial.case, trial.case.problem, trial.stage.path
    right = _right(case, path, trial.inputs, rules)
    look = "a kernel may write its output and nothing else: guard the store, and check its index"
    findings = tuple(Finding("wrote outside its output", text, look) for text in run.trespasses)
    again = None
    if len(run.written) < len(run.outputs) or _launched_twice(case, path):
        anew = _launch(trial.stage, problem)
        again = replace(trial, how=anew).run(_FILL, lenient=True) if isinstance(anew, Launch) else None
    untouched = {name: _untouched(problem, run, again, name) for name in run.outputs}
    missing = untouched.pop(_PARTS, np.zeros(0, bool))
    if missing.any():
        text = f"{int(missing.sum())} of {missing.size} elements of the {trial.how.parts} parts were never written"
        look = "all parts are added up: a block that has nothing to add stores 0 in its part"
        findings += (Finding("parts not written", text, look),)
        hazards = tuple(one for one in hazards if (one.kind, one.array) != ("uninitialised", _PARTS))  # the same
    faults: tuple[tuple[Finding, ...], ...] = ()
    wrong = size = 0
    for name in problem.outputs(path):
        off = untouched[name] | right[name].off(decode(run.outputs[name], problem.dtype_of(name)))
        if isinstance(again, _Run):  # what an output held before must not matter
            off |= right[name].off(decode(again.outputs[name], problem.dtype_of(name)))
        wrong, size = wrong + int(off.sum()), size + off.size
        explained = missing.any() and name == problem.arrays(path)[-1]
        if off.any() and diagnose and not explained:
            if not isinstance(again, _Run):
                again = trial.run(_FILL, lenient=True)
            second = again if isinstance(again, _Run) else None
            faults += _diagnose(trial, run, second, name, right[name], off, untouched[name])
    added = [fault[0].pattern for fault in faults] == ["adds to the output"] * max(1, len(faults))
    if added and all(one.kind == "uninitialised" and one.array == problem.outputs(path)[-1] for one in hazards):
        hazards = ()  # the same, said better
    passed = not (findings or hazards or wrong)
    if diagnose and not passed and (exchanged := _exchanged(trial, right)):
        return CaseResult(case, False, faults=((exchanged,),), wrong=wrong, size=size)
    return CaseResult(case, passed, findings, hazards, faults, wrong, size)


def _exchanged(trial: _Trial, right: dict[str, _Right]) -> Finding | None:
    """Whether all outputs are right once two axes of the grid are exchanged, or a fragment's g and t."""
    problem, sizes = trial.case.problem, dict(zip("xyz", (*trial.how.grid, 1, 1), strict=False))

    def fine(**other: Any) -> bool:
        run = replace(trial, **other).run()
        return isinstance(run, _Run) and not run.trespasses and not any(
            (_untouched(problem, run, None, name) | one.off(decode(run.outputs[name], problem.dtype_of(name)))).any()
            for name, one in right.items()
        )  # fmt: skip

    for a, b in "xy", "xz", "yz":
        grid = tuple((sizes | {a: sizes[b], b: sizes[a]}).values())
        if sizes[a] != sizes[b] and fine(how=replace(trial.how, grid=grid)):
            text = f"everything is right when {a} and {b} of the grid are exchanged"
            return Finding("grid axes exchanged", text, f"Launch(…), and blockIdx.{a} and blockIdx.{b}")
    kernel = trial.stage.kernel_for(problem)
    how = lanes.right(kernel, lambda other: fine(stage=replace(trial.stage, kernel=other)))
    return Finding(lanes.PATTERN, f"everything is right with {how}", lanes.LOOK) if how else None


def _launched_twice(case: Case, path: str) -> bool:
    """Whether a second launch must give the same: of small cases, for what the first one left (a counter)."""
    return case.values == "plain" and not case.drawn and case.problem.flops_of(path) <= _TWICE


def _untouched(problem: Problem, run: _Run, again: _Run | BaseException | None, name: str) -> np.ndarray:
    """Mask of the elements that no thread stored: by the record, or by two runs that both left what was there."""
    if name in run.written:
        return ~run.written[name]
    dtype = "float32" if name == _PARTS else problem.dtype_of(name)
    still = _bits(run.outputs[name]) == _poison(dtype)
    if isinstance(again, _Run):
        still &= _bits(again.outputs[name]) == _filling(dtype, _FILL)
    return still


def _diagnose(
    trial: _Trial, run: _Run, again: _Run | None, name: str, right: _Right, off: np.ndarray, untouched: np.ndarray
) -> tuple[tuple[Finding, ...], ...]:
    case, problem, dtype = trial.case, trial.case.problem, trial.case.problem.dtype_of(name)
    got = decode(run.outputs[name], dtype)
    refilled = None if again is None else decode(again.outputs[name], dtype)
    got = np.where(untouched, np.nan, got)  # whatever stands there: it may even be right
    fill = 77.0 if dtype == "int8" else _FILL
    differ = np.zeros(off.shape, bool)
    if refilled is not None:
        differ = diagnosis.wrong_mask(refilled, got, 2 * right.allowed) & ~untouched & np.isfinite(got)
    if differ.any() and not _same(trial, run, name):
        look = "threads race: run the check with DWLAB_TARGET=simulated, which names the lines"
        if run.written:  # races are found there, where there is a record
            look = "what does a launch leave that the next one meets: a counter, a workspace that is not cleared?"
        return ((Finding("runs differ", "two runs on the same inputs gave different outputs", look),),)
    if case.values in NOT_FINITE and not differ.any() and not untouched.any():
        return ((_not_finite(case, name, got, right, off),),)
    inputs = {key: decode(array, problem.dtype_of(key)) for key, array in trial.inputs.items()}
    found = {"got": got, "want": right.want, "allowed": right.allowed, "unwritten": untouched, "refilled": refilled}
    path, block = problem.alone(name), trial.how.block
    evidence = diagnosis.Evidence(problem=problem, path=path, inputs=inputs, block=block, fill=fill, **found)
    faults = diagnosis.diagnose(evidence)
    if differ.any() and not any(fault[0].pattern == "adds to the output" for fault in faults):
        at = tuple(int(i) for i in np.argwhere(differ)[0])
        text = f"{name}{list(at)} is {got[at]:g} or {refilled[at]:g}, by what {name} held before the launch"
        look = f"is {name} read before it is written, or its store left out for some values?"
        return ((Finding("depends on the output", text, look),),)
    return faults


def _same(trial: _Trial, run: _Run, name: str) -> bool:
    """Whether another run like the first one gives the same bits."""
    third = trial.run(lenient=True)
    return isinstance(third, _Run) and np.array_equal(_bits(third.outputs[name]), _bits(run.outputs[name]))


def _not_finite(case: Case, name: str, got: np.ndarray, right: _Right, off: np.ndarray) -> Finding:
    """The finding of a case with a NaN or infinities in x or dy."""
    at = tuple(int(i) for i in np.argwhere(off & ~right.spoilt)[0]) if (off & ~right.spoilt).any() else None
    what = {"NaN": "a NaN", "infinite": "an infinity"}[case.values]
    if at is None:
        at = tuple(int(i) for i in np.argwhere(off)[0])
        text = f"{what} stands in its sum: {name}{list(at)} is {got[at]:g}; {right.exact[at]:g} is right"
        look = "what is compared, cut off or left out on the way to the sum?"
        return Finding("loses a NaN or an infinity", text, look)
    text = f"{what} outside of its window spoils it: {name}{list(at)} is {got[at]:g}; {right.want[at]:.6g} is right"
    look = "what lies outside the window must not be multiplied by 0 (0 * NaN is NaN), but be left out"
    if np.isfinite(got[at]):
        text = f"{name}{list(at)} is {got[at]:g}; {right.want[at]:.6g} is right. In its sum {what} does not stand"
        return Finding("wrong beside a NaN or an infinity", text, "the other cases say more: change these first")
    return Finding("spoilt by what it does not read", text, look)
