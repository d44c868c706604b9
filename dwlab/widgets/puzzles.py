"""Puzzles: kernels of a few lines on a few numbers, checked and x-rayed where they are written.

    puzzle = Puzzle(want, (a, out), grid=1, block=4)
    puzzle.picture()            what goes in, what is to come out, and what hangs on what
    puzzle.solve(kernel)        what is wrong, with hints in steps, or what the kernel did to memory

Lesson 00 has them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dwlab.judge.causes import STUB, as_findings
from dwlab.judge.reference import against, names_of
from dwlab.simt import xray
from dwlab.text.drawing import INKS, WARPS, WIDE, Drawing, box, dims, label, line
from dwlab.text.tabular import wrapped
from dwlab.widgets.drawings import _many

CELL, LEFT = 36, 66
_VALUE = "which inputs make that element? The picture above shows it: compare with your line, number by number"
PLAIN = dict.fromkeys(("wrong", "edge", "shifted", "wrong offset", "wrong factor"), _VALUE) | {
    "two writers": "two threads store to one element: which element does each of them own?",
    "cannot be interpreted": "a thread works on single elements: give each array an index",
    "other numbers": "which of the picture's numbers stands in the kernel? Load it from the array in its place",
}
"""Hints for a first kernel, by what is wrong, where a puzzle has none of its own."""


@dataclass(frozen=True)
class Puzzle:
    """A puzzle: want, args, grid and block as `dwlab.check` has them; args hold inputs, then one output.

    most: requests and elements, input -> (as many loads as are needed); what loads more is right, and not yet solved.
    hints: by what is wrong, as `dwlab.check` names it, "more loads", or "idea", the last hint whatever is wrong.
    """

    want: Callable[..., object]
    args: tuple[np.ndarray, ...]
    grid: Any
    block: Any
    most: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)

    def solve(self, kernel: Any, hint: int = 1) -> None:
        """Prints the verdict on a kernel, with so many hints, or what a right one did to memory."""
        if STUB in inspect.getsource(getattr(kernel, "py_func", kernel)):
            print("not solved yet: write the kernel's body in place of the line that begins with `raise`")
            return
        found = against(kernel, self.grid, self.block, self.want, self.args)
        seen = [(one.pattern, one.text, one.look) for one in found.findings]
        if not seen:
            *given, out = self.args
            others = [np.random.default_rng(1).choice(one.ravel(), one.shape) for one in given]
            found_of = against(kernel, self.grid, self.block, self.want, (*others, out)).findings
            seen = [("other numbers", f"the picture's are right, of others {one.text}", "") for one in found_of]
        if not seen:  # a GPU finds no hazards
            report = xray(kernel, self.grid, self.block, *self.args)
            seen = [(one.pattern, one.text, one.look) for one in as_findings(report.hazards, "")]
            for name, (requests, elements) in self.most.items():
                loads = report.array(name, "load")  # there is one, if other numbers are right
                if loads.requests > requests or loads.active_lanes > elements:
                    text = (
                        f"the numbers are right, but {name} is loaded in {_many(loads.requests, 'request')}, "
                        f"{loads.active_lanes} elements in all; {requests} and {elements} are enough"
                    )
                    seen.append(("more loads", text, ""))
        if seen:
            pattern, text, look = seen[0]
            steps = [self.hints.get(pattern, PLAIN.get(pattern, look)), *filter(None, [self.hints.get("idea")])]
            shown = [f"hint {n}: {one}" for n, one in enumerate(steps[:hint], 1)]
            shown += [f"for one more write solve({found.subject}, hint={hint + 1})"] if hint < len(steps) else []
            print("\n".join(map(wrapped, [f"not right yet: {pattern}: {text}", *shown])))
            return
        print(f"right: {_many(found.size, 'element')} of {found.outputs[0]}")
        for one in report.accesses:
            cost = _many(one.sectors, "sector") if one.space == "global" else _many(one.wavefronts, "wavefront")
            what = f"line {one.line}: {one.kind} {one.array}{'' if one.space == 'global' else ' (shared)'}"
            print(f"{what}: {_many(one.requests, 'request')}, {_many(one.active_lanes, 'element')}, {cost}")

    def _wanted(self, args: tuple[np.ndarray, ...]) -> np.ndarray:
        copies = [one.copy() for one in args]
        self.want(*copies)
        return copies[-1]

    def picture(self) -> Drawing:
        """Inputs above, what the output is to hold below; lines lead from each input to what hangs on it. In
        tables the last output element has a colour, and so has what it hangs on. Below are a row's threads by block."""
        names, out = names_of(self.want, len(self.args)), self._wanted(self.args)
        last, block, grid = (
            tuple(n - 1 for n in out.shape),
            *(np.atleast_1d(n).tolist() for n in (self.block, self.grid)),
        )
        flat = out.ndim == 1
        met = []  # input, its element, an output element that hangs on it
        for place, one in enumerate(self.args[:-1]):
            for at in np.ndindex(one.shape):
                other = one.copy()
                other[at] += 1000
                changed = self._wanted((*self.args[:place], other, *self.args[place + 1 :])) != out
                met += [(place, at, to) for to in np.ndindex(out.shape) if changed[to] and (flat or to == last)]
        parts: list[str] = []
        spots, y = [], 0.0
        for place, (name, one) in enumerate(zip(names, (*self.args[:-1], out), strict=True)):
            ends = place == len(self.args) - 1
            y += 24 * (flat and ends)
            fills = {at: 1 for where, at, _ in met if where == place and not flat} | (
                {last: 1} if ends and not flat else {}
            )
            if ends and flat and out.size > 1 and len(block) == 1:
                fills = {at: at[0] // block[0] for at in np.ndindex(out.shape)}
            spots.append(_boxes(parts, name, one, y, fills))
            y += np.atleast_2d(one).shape[0] * CELL + 16
        drawn = [(spots[place][at], spots[-1][to]) for place, at, to in met if flat]
        parts += [line(x1, y1 + CELL / 2, x2, y2 - CELL / 2) for (x1, y1), (x2, y2) in drawn]
        launch = f"{_many(int(np.prod(grid)), 'block')} of {dims((*block, 1, 1)[:3])} threads"
        parts.append(label(0, y + 14, launch if len(block) > 1 else f"{launch}, threadIdx.x"))
        if len(block) == 1:
            cell = min(CELL, (WIDE - LEFT) / (block[0] * grid[0]))
            for i in range(block[0] * grid[0]):
                fill = i // block[0] % len(WARPS)
                parts.append(box(LEFT + i * cell, y + 22, cell, 22, WARPS[fill], 0.5))
                parts.append(label(LEFT + (i + 0.5) * cell, y + 37, str(i % block[0]), 11, "middle", INKS[fill]))
            y += 30
        inputs = "; ".join(f"{name} = {one.tolist()}" for name, one in zip(names, self.args[:-1], strict=False))
        of = f"the {_many(len(met), 'input')} that {names[-1]}{list(last)} hangs on" if not flat else (
            f"each of the {_many(len(met), 'line')} leads from an input to an element that hangs on it")  # fmt: skip
        alt = f"{inputs}. {names[-1]} is to hold {out.tolist()}. {launch}; {'coloured are ' * (not flat)}{of}."
        return Drawing(f"{', '.join(names[:-1])} → {names[-1]}", alt, "".join(parts), y + 18)


def _boxes(
    parts: list[str], name: str, array: np.ndarray, y: float, fills: Mapping[tuple[int, ...], int]
) -> dict[tuple[int, ...], tuple[float, float]]:
    """Draws an array's numbers in boxes behind its name; element -> the middle of its box."""
    parts.append(label(0, y + CELL / 2 + 5, name, 13, bold=True))
    spots = {}
    for at in np.ndindex(array.shape):
        row, column = (0, *at)[-2:]
        x, top, fill = LEFT + column * CELL, y + row * CELL, fills.get(at)
        ink = "" if fill is None else INKS[fill % len(INKS)]
        parts.append(box(x, top, CELL, CELL, "none" if fill is None else WARPS[fill % len(WARPS)]))
        parts.append(label(x + CELL / 2, top + CELL / 2 + 5, str(array[at]), 14, "middle", ink))
        spots[at] = x + CELL / 2, top + CELL / 2
    return spots
