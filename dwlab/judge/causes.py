"""Why a kernel is wrong or did not run, and where to look: hazards and exceptions as findings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dwlab.judge.diagnosis import Finding
from dwlab.judge.isolation import TooLong


class CheckError(ValueError):
    """The judge was given something that it cannot judge; the message says what to do."""


class CheckFailed(AssertionError):
    """A kernel that is wrong. `.verdict` says how."""

    def __init__(self, verdict: Any):
        self.verdict = verdict
        # Where this is read nothing is called `verdict` yet.
        how = "\nHints: verdict = check(…) without raise_if_wrong(), then "
        super().__init__(str(verdict).replace("\nHints: ", how))


def hint(self: Any, step: int = 1) -> str:
    """The step-th hint of a verdict, counted from 1; the last one for a step beyond it."""
    return self.hints[min(max(step, 1), len(self.hints)) - 1] if self.hints else "Nothing is wrong."


def raise_if_wrong(self: Any) -> Any:
    """Raises CheckFailed unless a verdict passed; otherwise returns it."""
    if not self.passed:
        raise CheckFailed(self)
    return self


KINDS = ("two writers", "negative index")
"""Hazards that a kernel may mean: see `check`."""

LOOK = {
    "race": "two threads of a block use one address without a barrier between: syncthreads() belongs after the "
    "staging, and again before what was staged is overwritten",
    "two writers": "two threads store to one element: which thread owns which output? That both store the same cannot "
    'be seen here; if it is meant, allow="two writers"',
    "divergent barrier": "every thread of the block that has not returned must come to the same barrier: move it out "
    "of the if, and let the if hold the work alone",
    "out of bounds": "guard the access: is the index below the array's length for the last block and thread?",
    "misaligned": "16 bytes are moved at 16-byte addresses only: is the index a multiple of 4 for every thread?",
    "negative index": "a negative index counts from the end of the axis in Numba: test for it before the access; if it "
    'is meant, allow="negative index"',
    "uninitialised": "something is read that no thread has written: is the whole window staged, the halo too, and are "
    "zeros stored where it lies outside the row?",
    "inactive lane": "a shuffle reads from a lane that takes no part: do all lanes of the mask get there?",
    "division by zero": "a divisor is 0 for some thread",
    "metadata": "indices ascend within each group of four: which lanes hold which rows' words, and which rows and "
    "groups are beyond the filters' end?",
    "launch": "the launch itself: grid and block within the hardware's limits",
}

# What would order the two accesses of a race, as the interpreter says it -> where to look.
RACES = {
    "cuda.syncwarp()": "two lanes of one warp use one address without syncwarp() between, and they do not run in "
    "step: it belongs after the store, and again before the next one",
    "cuda.syncthreads()": LOOK["race"],
    "another launch or an atomic": "two blocks use one address, and no barrier joins blocks, which run in any order: "
    "give each element to one block, add with cuda.atomic.add, or read it in another launch",
}

ONE_LINE = (
    "both accesses are on one line. Where both threads change the same element, as `+=` does, cuda.atomic.add reads, "
    "adds and writes at once, and no barrier helps; where each changes its own, a barrier belongs between two turns of "
    "the loop"
)
ONE_STORE = (
    "two threads store to one element, on one line: which of their indices should differ, and does not? If they come "
    "to it in two turns of a loop, a barrier belongs between the turns"
)


def on_one_line(race: Any) -> str:
    """Where to look at a race of a block's threads on one source line; "" for any other."""
    if race.line != race.other_line or "another launch" in race.message or "in flight" in race.message:
        return ""
    return ONE_LINE if " read" in race.message else ONE_STORE if " writes " in race.message else ""


def two_writers(one: Any) -> bool:
    """Whether a race is of two stores, whatever lies between them."""
    return one.kind == "race" and " writes " in one.message and " wrote on line " in one.message


def as_findings(hazards: Iterable[Any], where: str) -> list[Finding]:
    found = []
    for one in hazards:
        look, key = LOOK.get(one.kind, "the line that is named"), ""
        if one.kind == "race":
            cure = next((cure for cure in RACES if cure in one.message), "cuda.syncthreads()")
            look = on_one_line(one) or RACES[cure]
            key = "race between blocks" if cure.startswith("another") else "race"
        found.append(Finding(one.kind, f"{one.where}: {one.message}", look, key, where))
    return found


def message(error: BaseException) -> str:
    return f"{type(error).__name__}: {shortened(str(error), 400)}"


def why_not(error: BaseException) -> Finding:
    from dwlab import simt

    if isinstance(error, simt.StepLimitError):
        return Finding(
            "does not end", f"the kernel did not end: {error}", "which loop's condition never becomes false?"
        )
    if isinstance(error, TooLong):
        look = "which loop's condition never becomes false? Or does one thread do the work of all?"
        return Finding("does not end", f"the kernel was stopped: it took {error}", look)
    if isinstance(error, simt.UnsupportedError):
        return Finding("cannot be interpreted", str(error), "the construct in the message")
    if isinstance(error, simt.LaunchError):
        return Finding("launch", str(error), LOOK["launch"])
    if isinstance(error, NoKernel):
        return Finding("no kernel", str(error), "decorate the function with @cuda.jit")
    text = str(error)
    if STUB in text:
        where = text.partition(": ")[0]
        return Finding("not written yet", f"{where} still holds the stub: replace it with your code", STUB)
    if "ILLEGAL_ADDRESS" in text or "illegal memory access" in text:
        return Finding(
            "out of bounds",
            "the GPU stopped the kernel: it accessed memory that is not its own. The process must be restarted",
            "run the same check with DWLAB_TARGET=simulated: it names the line and the thread",
        )
    if {one.__name__ for one in type(error).__mro__} & {"NumbaError", "NvvmError", "LinkerError", "NvJitLinkError"}:
        return Finding("does not compile", f"Numba does not compile the kernel: {message(error)}", COMPILES)
    return Finding("raises", f"the kernel raised {message(error)}", "the message, and the line that it names")


STUB = "raise NotImplementedError("
COMPILES = "the construct that the message names: Numba-CUDA knows a part of Python, and needs a type for each name"


def shortened(text: str, most: int = 600) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= most else joined[:most] + " …"


class NoKernel(Exception):
    """Raised where a function decorated with @by_shape made something that is no kernel."""
