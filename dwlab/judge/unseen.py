"""Find the bug blind: kernels whose text is not shown, by what an x-ray of them counts and which hazards it finds.

    print(show("29_2"))        the kernels A to F of an exercise, their counts and hazards

Each is the kernel of a task with one thing wrong with it, or with nothing wrong. `diagnosed` is the judge of what a
student says of them. Who reads on here has the kernels, and no exercise any more.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32

from dwlab.judge.answer import Answer, Wrong
from dwlab.judge.tools import Unsolved, given, real
from dwlab.simt import cuda
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

LOOK = {
    1: "Its answers are right and it has no hazard. Which of its numbers is worse than that of all the others?",
    2: "Is there a hazard? What do the two threads that it names have between them?",
    3: "Compare the sectors per request with the ideal, for each array.",
    4: "Compare the wavefronts of shared memory with its requests: one each is the least.",
    5: "Which column should be 0 in a kernel for float32?",
    6: "Compare the requests for the same array with those of the other kernels.",
    7: "Are all answers right? If not: which ones, and how many?",
    8: "Does it run to its end at all?",
}


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


def depthwise(fault: int) -> Any:
    """3 × 3 taps, stride 1, padding 1: a block has 30 × 6 outputs of a channel, a tile of 32 × 8 of x."""
    COUNT = np.float64(1) / 9 if fault == 5 else float32(1) / float32(9)
    LESS = 1 if fault == 7 else 0

    @cuda.jit
    def kernel(x, y):
        tile = cuda.shared.array((8, 32), float32)
        i = cuda.threadIdx.y if fault == 3 else cuda.threadIdx.x
        j = cuda.threadIdx.x if fault == 3 else cuda.threadIdx.y
        c = cuda.blockIdx.z
        h = cuda.blockIdx.y * 6 + j - 1
        v = cuda.blockIdx.x * 30 + i - 1
        inside = (0 <= h < x.shape[1] - LESS or fault == 8) and 0 <= v < x.shape[2]
        tile[j, i] = x[c, h, v] if inside else float32(0)
        if fault != 2:
            cuda.syncthreads()
        if 0 < i < 31 and 0 < j < 7 and h < x.shape[1] and v < x.shape[2]:
            total = float32(0)
            for k in range(9):
                if fault == 6:
                    if 0 <= h + k // 3 - 1 < x.shape[1] and 0 <= v + k % 3 - 1 < x.shape[2]:
                        total += x[c, h + k // 3 - 1, v + k % 3 - 1]
                else:
                    total += tile[j + k // 3 - 1, i + k % 3 - 1]
            y[c, h, v] = total * COUNT

    return kernel


def _blurred(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype("f8"), ((0, 0), (1, 1), (1, 1)))
    C, H, W = x.shape
    return sum(padded[:, i : i + H, j : j + W] for i in range(3) for j in range(3)) / 9


def product(fault: int) -> Any:
    """y[m, f] = 0.1 · sum over c of x[m, c] · w[f, c]: a block has 16 × 16 outputs and 16 channels at a time."""
    PITCH = 16 if fault == 4 else 17
    SCALE = 0.1 if fault == 5 else float32(0.1)

    @cuda.jit
    def kernel(x, w, y):
        left = cuda.shared.array((16, PITCH), float32)
        right = cuda.shared.array((16, PITCH), float32)
        i = cuda.threadIdx.x
        j = cuda.threadIdx.y
        m0 = cuda.blockIdx.y * 16
        f0 = cuda.blockIdx.x * 16
        total = float32(0)
        stop = x.shape[1] // 16 * 16 if fault == 7 else x.shape[1]
        for c0 in range(0, stop, 16):
            if fault == 3:
                left[i, j] = x[m0 + i, c0 + j] if m0 + i < x.shape[0] and c0 + j < x.shape[1] else float32(0)
                right[i, j] = w[f0 + i, c0 + j] if f0 + i < w.shape[0] and c0 + j < x.shape[1] else float32(0)
            else:
                left[j, i] = x[m0 + j, c0 + i] if m0 + j < x.shape[0] and c0 + i < x.shape[1] else float32(0)
                right[j, i] = w[f0 + j, c0 + i] if f0 + j < w.shape[0] and c0 + i < x.shape[1] else float32(0)
            cuda.syncthreads()
            for c in range(16):
                if fault == 6:
                    if m0 + j < x.shape[0] and f0 + i < w.shape[0] and c0 + c < x.shape[1]:
                        total += x[m0 + j, c0 + c] * w[f0 + i, c0 + c]
                else:
                    total += left[j, c] * right[i, c]
            if fault != 2:
                cuda.syncthreads()
        if m0 + j < y.shape[0] and (fault == 8 or f0 + i < y.shape[1]):
            y[m0 + j, f0 + i] = float32(total * SCALE)

    return kernel


def _multiplied(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> np.ndarray:
    return 0.1 * x.astype("f8") @ w.T.astype("f8")


def fused(fault: int) -> Any:
    """A maximum of 3 neighbours along a row of pixels, then a pointwise layer: x (M, C), w (C, F), y (M, F)."""
    LAST = 1 if fault == 7 else 0
    LEAST = 0.1 if fault == 5 else float32(0.1)

    @cuda.jit
    def kernel(x, w, y):
        middle = cuda.shared.array((8, 32), float32)
        f = cuda.threadIdx.x
        row = cuda.threadIdx.y
        m = cuda.blockIdx.x * 8 + row
        value = float32(0)
        if m < x.shape[0]:
            value = x[m, f]
            if m > 0:
                value = max(value, x[m - 1, f])
            if m + 1 < x.shape[0] - LAST or fault == 8:
                value = max(value, x[m + 1, f])
        middle[row, f] = value
        if fault != 2:
            cuda.syncthreads()
        if m < y.shape[0]:
            total = float32(0)
            for c in range(32):
                between = middle[row, c]
                if fault == 6:
                    between = x[m, c]
                    if m > 0:
                        between = max(between, x[m - 1, c])
                    if m + 1 < x.shape[0]:
                        between = max(between, x[m + 1, c])
                total += between * (w[f, c] if fault == 3 else w[c, f])
            y[m, f] = total + LEAST

    return kernel


def _neighbours(x: np.ndarray, w: np.ndarray, y: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype("f8"), ((1, 1), (0, 0)), constant_values=-np.inf)
    return np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:]) @ w.astype("f8") + 0.1


def _random(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(5)
    return [random.normal(size=shape).astype("f4") for shape in shapes[:-1]] + [np.full(shapes[-1], np.nan, "f4")]


def _symmetric() -> list[np.ndarray]:
    """x, w, y of `fused`: w is its own transpose, so a kernel that reads it the wrong way round is right."""
    x, w, y = _random((37, 32), (32, 32), (37, 32))
    return [x, (w + w.T) / np.float32(2), y]


TASKS = {
    "28_3": Task("the mean of 3 × 3 neighbours of each element of x (C, H, W), zeros outside", depthwise, (3, 4, 2),
                 (32, 8), lambda: _random((2, 20, 70), (2, 20, 70)), _blurred,
                 {"A": 6, "B": 1, "C": 7, "D": 2, "E": 5, "F": 8}),
    "29_2": Task("y[m, f] = 0.1 · sum over c of x[m, c] · w[f, c]", product, (2, 3), (16, 16),
                 lambda: _random((40, 40), (30, 40), (40, 30)), _multiplied,
                 {"A": 4, "B": 2, "C": 6, "D": 1, "E": 7, "F": 5}),
    "38_3": Task("the largest of three neighbouring rows of x (M, C), then y = that · w + 0.1", fused, (5,), (32, 8),
                 _symmetric, _neighbours, {"A": 1, "B": 5, "C": 3, "D": 7, "E": 2, "F": 6}),
}  # fmt: skip


@functools.cache
def counts(exercise: str) -> dict[str, dict[str, Any]]:
    """letter -> what is counted of that kernel of an exercise, and what is found. Raises KeyError for another one."""
    from dwlab.simt import SimtError, xray

    task, found = TASKS[exercise], {}
    for letter, fault in task.faults.items():
        arrays = task.arrays()
        try:
            seen = xray(task.make(fault), task.grid, task.block, *arrays, keep=True)
        except SimtError as error:
            found[letter] = {"ends": _without_place(str(error))}
            continue
        got = seen.outputs["y"]
        wrong = ~(np.abs(got - task.want(*arrays)) < 1e-4)
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
    task, lines = TASKS[exercise], [f"Task: {TASKS[exercise].text}.", ""]
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
    lines.append(f"launched with a grid of {task.grid} blocks of {task.block} threads. What may be wrong:")
    return "\n".join([*lines, *(f"  {number}  {text}" for number, text in FAULTS.items())])


def diagnosed(answer: Answer, exercise: str, name: str = "faults", hints: Sequence[str] = ()) -> str:
    """Wrong unless `name` of an answer has the right number of FAULTS for each letter: the first wrong one is named.

    Returns the sentence for a judge to end with.
    """
    value = given(answer, name)
    empty = value.values() if isinstance(value, dict) and value else (value,)
    if all(one is None or one is ... for one in empty):
        raise Unsolved(f"`{name}` is still None: write your prediction down, then run this again.")
    right = TASKS[exercise].faults
    if not isinstance(value, dict) or set(value) != set(right):
        raise Wrong(f"`{name}` must have a number for each of {', '.join(right)}, such as {{'A': 1, …}}.")
    if bad := [one for one in right if not real(value[one]) or value[one] not in FAULTS]:
        raise Wrong(f"`{name}`: {bad[0]} has {value[bad[0]]!r}; it must be one of the numbers 1 to {len(FAULTS)}.")
    off = [letter for letter, fault in right.items() if value[letter] != fault]
    if off:
        raise Wrong(f"{len(right) - len(off)} of {len(right)} are right; look at {off[0]} again.",
                    (LOOK[right[off[0]]], *hints))  # fmt: skip
    return "; ".join(f"{letter}: {FAULTS[fault]}" for letter, fault in right.items())
