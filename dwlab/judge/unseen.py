"""Find the bug blind: kernels whose text is not shown, by what an x-ray of them counts and which hazards it finds.

    print(show("29_2"))        the kernels A to F of an exercise, their counts and hazards

Each is the kernel of a task with one thing wrong with it, or with nothing wrong; the exercise's judge has them.
`diagnosed` is the judge of what a student says of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwlab.judge.answer import JUDGES, Answer, Wrong, load
from dwlab.judge.tools import Unsolved, given, real
from dwlab.text import tabular

FAULTS = {
    1: "nothing",
    2: "a barrier is missing",
    3: "neighbouring lanes do not go along memory",
    4: "a column of a tile lies in few banks",
    5: "it computes in float64",
    6: "it loads the same again and again",
    7: "the end of the sizes is left out",
    8: "an index runs past the end",
}
"""The possible mistakes, by number."""

LOOK = (
    "Its answers are right and it has no hazard. Which of its numbers is worse than that of all the others?",
    "Is there a hazard? What do the two threads that it names have between them?",
    "Compare the sectors per request with the ideal, for each array.",
    "Compare the wavefronts of shared memory with its requests: one each is the least.",
    "Which column should be 0 in a kernel for float32?",
    "Compare the requests for the same array with those of the other kernels.",
    "Are all answers right? If not: which ones, and how many?",
    "Does it run to its end at all?",
)


@dataclass(frozen=True)
class Task:
    """The task of an exercise's kernels. make(fault): the kernel; arrays(): its arguments, the output last."""

    text: str
    make: Callable[[int], Any]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arrays: Callable[[], list[np.ndarray]]
    want: Callable[..., np.ndarray]
    faults: dict[str, int]


def random_arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Inputs of these shapes, always the same, and an output of the last one in which nothing is right yet."""
    random = np.random.default_rng(5)
    return [random.normal(size=shape).astype("f4") for shape in shapes[:-1]] + [np.full(shapes[-1], np.nan, "f4")]


@functools.cache
def task(exercise: str) -> Task:
    """The task of an exercise, which its judge has. Raises KeyError for one that is not blind."""
    found = [load(file, f"dwlab_unseen_{exercise}") for file in JUDGES.glob(f"{exercise}_*.py")]
    if not found or not hasattr(found[0], "TASK"):
        raise KeyError(f"{exercise} is no exercise with kernels that are not shown")
    return found[0].TASK


@functools.cache
def counts(exercise: str) -> dict[str, dict[str, Any]]:
    """letter -> what is counted of that kernel of an exercise, and what is found. Raises KeyError for another one."""
    from dwlab.simt import SimtError, xray

    made, found = task(exercise), {}
    for letter, fault in made.faults.items():
        arrays = made.arrays()
        try:
            seen = xray(made.make(fault), made.grid, made.block, *arrays, keep=True)
        except SimtError as error:
            found[letter] = {"ends": _without_place(str(error))}
            continue
        got = seen.outputs["y"]
        wrong = ~(np.abs(got - made.want(*arrays)) < 1e-4)
        found[letter] = {
            "accesses": tuple(
                (one.kind, one.array, one.space, one.requests, one.sectors, one.ideal_sectors, one.wavefronts)
                for one in (seen.array(name, kind) for name, kind in _arrays(seen))
            ),
            "float64": sum(line.float64 for line in seen.lines),
            "barriers": seen.totals.barriers,
            "wrong": (int(wrong.sum()), wrong.size),
            "hazards": tuple(dict.fromkeys(_without_place(str(one)) for one in seen.hazards)),
        }
    return found


def _arrays(seen: Any) -> list[tuple[str, str]]:
    """The arrays of a report with what is done to them: global ones first."""
    ordered = sorted(seen.accesses, key=lambda one: (one.space, one.array, one.kind))
    return list(dict.fromkeys((one.array, one.kind) for one in ordered))


def _without_place(text: str) -> str:
    """A message without lines and files: there is no source to look at."""
    text = re.sub(r"line (\d+)", "a line", text.split("\n")[0])
    return re.sub(r"\(?[\w/.-]*\.py(:\d+)?\)?:?", "", text).strip()


def show(exercise: str) -> str:
    """The kernels of an exercise by their counts and hazards, and the numbers of what may be wrong."""
    made = task(exercise)
    lines = [f"Task: {made.text}.", ""]
    for letter, one in counts(exercise).items():
        if "ends" in one:
            lines += [f"{letter}  ends with an error: {one['ends']}", ""]
            continue
        wrong, size = one["wrong"]
        state = f"{wrong} of {size} outputs are wrong" if wrong else f"all {size} outputs are right"
        lines.append(f"{letter}  {state}; {one['float64']:,} float64 operations; barriers: {one['barriers']}")
        for kind, array, space, requests, sectors, ideal, waves in one["accesses"]:
            cost = f"{sectors:7,} sectors, ideal {ideal:,}" if space == "global" else f"{waves:7,} wavefronts"
            lines.append(f"     {kind:6}{array:8}{space:8}{requests:7,} requests{cost}")
        lines += [tabular.wrapped(f"     {hazard}") for hazard in one["hazards"][:2]] + [""]
    lines.append(f"launched with a grid of {made.grid} blocks of {made.block} threads. What may be wrong:")
    return "\n".join([*lines, *(f"  {number}  {text}" for number, text in FAULTS.items())])


def diagnosed(answer: Answer) -> str:
    """Wrong unless `faults` of an answer has the right number of FAULTS for each letter: the first wrong one is named.

    Returns the sentence for a judge to end with, whose TASK it is.
    """
    name, right = "faults", answer.task.TASK.faults
    value = given(answer, name)
    empty = value.values() if isinstance(value, dict) and value else (value,)
    if all(one is None or one is ... for one in empty):
        raise Unsolved(f"`{name}` is still None: write your prediction down, then run this again.")
    if not isinstance(value, dict) or set(value) != set(right):
        raise Wrong(f"`{name}` must have a number for each of {', '.join(right)}, such as {{'A': 1, …}}.")
    if bad := [one for one in right if not real(value[one]) or value[one] not in FAULTS]:
        raise Wrong(f"`{name}`: {bad[0]} has {value[bad[0]]!r}; it must be one of the numbers 1 to {len(FAULTS)}.")
    off = [letter for letter, fault in right.items() if value[letter] != fault]
    if off:
        raise Wrong(
            f"{len(right) - len(off)} of {len(right)} are right; look at {off[0]} again.", (LOOK[right[off[0]] - 1],)
        )
    return "; ".join(f"{letter}: {FAULTS[fault]}" for letter, fault in right.items()) + "."
