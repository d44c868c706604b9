"""The stepper: a small launch played warp by warp, on a slider; in a notebook, or as one HTML file to hand on.

    stepper(kernel, grid, block, *arguments)              # shows itself in a notebook
    stepper(kernel, grid, block, *arguments).save("my_kernel.html")

Each step is a statement: which lanes run it, what they load and store, which variables they set, what the arrays hold.
"""

from __future__ import annotations

import hashlib
import html
import importlib.resources
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwlab.simt import Pattern
from dwlab.simt.steps import Step, Steps, Touch, Values, record
from dwlab.simt.views import Counts, counts
from dwlab.text.drawing import dims, write

TEXT_STEPS = 60
"""Steps of one warp that the text has."""


@dataclass(frozen=True)
class Stepper:
    """A record with its face. `steps` is the record, `text()` the first warp in words."""

    steps: Steps

    def title(self) -> str:
        """The kernel and its launch."""
        return f"{self.steps.kernel}, grid {dims(self.steps.grid)}, block {dims(self.steps.block)}, step by step"

    def sentence(self, step: Step) -> str:
        """A step in a sentence or two."""
        on = bin(step.lanes).count("1")
        parts = [f"Line {step.line}: {'all 32 lanes' if on == 32 else f'{on} of 32 lanes'} active."]
        for touch in step.touches:
            parts.append(f"{touch.kind} of {self.steps.memories[touch.memory].name}: {self.cost(touch)}.")
        for name, values in step.sets.items():
            given = [(lane, one) for lane, one in enumerate(values) if one is not None]
            if given:
                (first, one), (last, other) = given[0], given[-1]
                same = all(value == one for _, value in given)
                parts.append(f"{name} = {one}." if same else f"{name} = {one} in lane {first}, {other} in lane {last}.")
        return " ".join(parts)

    def cost(self, touch: Touch) -> str:
        """Sectors, or wavefronts of shared memory."""
        memory = self.steps.memories[touch.memory]
        found = _counts(touch, memory.space, memory.start)
        if memory.space == "shared":
            return f"{found.wavefronts} wavefront{'s' * (found.wavefronts != 1)}, ideal {found.ideal_wavefronts}"
        return f"{found.sectors} sector{'s' * (found.sectors != 1)}, ideal {found.ideal_sectors}"

    def text(self, block: int = 0, warp: int = 0) -> str:
        """One warp's steps, a line each. Raises KeyError for one that was not recorded."""
        if (block, warp) not in self.steps.warps:
            known = ", ".join(f"({b}, {w})" for b, w in self.steps.warps)
            raise KeyError(f"block {block}, warp {warp} is not recorded; there are {known}")
        steps = self.steps.warps[block, warp]
        rows = [f"{number:4}  {self.sentence(one)}" for number, one in enumerate(steps[:TEXT_STEPS], 1)]
        if len(steps) > TEXT_STEPS:
            rows.append(f"      … and {len(steps) - TEXT_STEPS} more")
        if self.steps.cut:
            rows.append(f"The record ends here: {self.steps.cut}.")
        return "\n".join([f"{self.title()}; block {block}, warp {warp}", *rows])

    __str__ = text

    def data(self) -> dict[str, Any]:
        """The data of the page, for JSON. A step's line is a place in `lines`."""
        at = {key: place for place, key in enumerate(self.steps.lines)}
        margin = min((len(one) - len(one.lstrip()) for one in self.steps.lines.values() if one.strip()), default=0)
        return {
            "lines": [[file, line, one[margin:].rstrip()] for (file, line), one in self.steps.lines.items()],
            "memories": [vars(one) for one in self.steps.memories],
            "before": self.steps.before,
            "changes": [[c.moment, c.memory, c.block, c.element, c.value] for c in self.steps.changes],
            "cut": self.steps.cut,
            "warps": {
                f"block {block}, warp {warp}": [
                    {
                        "moment": one.moment,
                        "line": at[one.file, one.line],
                        "lanes": one.lanes,
                        "touches": [
                            vars(touch) | {"at": packed(touch.at), "cost": self.cost(touch)} for touch in one.touches
                        ],
                        "sets": {name: packed(values) for name, values in one.sets.items()},
                        "sentence": self.sentence(one),
                    }
                    for one in steps
                ]
                for (block, warp), steps in self.steps.warps.items()
            },
        }

    def html(self) -> str:
        """A part of a page: no other file is needed. Its id is the same for the same record."""
        page = importlib.resources.files("dwlab.widgets").joinpath("_stepper.html").read_text(encoding="utf-8")
        data = json.dumps(self.data(), separators=(",", ":"))
        name = "dwlab-" + hashlib.sha256(data.encode()).hexdigest()[:12]
        first = next(iter(self.steps.warps))
        for mark, text in (
            ("@ID@", name),
            ("@TITLE@", html.escape(self.title())),
            ("@TEXT@", html.escape(self.text(*first))),
            ("@DATA@", data.replace("<", "\\u003c")),  # nothing in a source line ends the script
        ):
            page = page.replace(mark, text)
        return page

    _repr_html_ = html

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text(*next(iter(self.steps.warps))))

    def save(self, path: str | Path) -> Path:
        """Writes a page of its own, which any browser shows without a network. Returns its path."""
        heading = f"<h1 style='font-size:18px'>{html.escape(self.title())}</h1>\n"
        return write(path, self.title(), heading + self.html())


def packed(values: Values) -> list[Any]:
    """32 values as they are; as one, if all are the same; as the first and the step, if they are whole numbers in step.

    The page undoes it.
    """
    if all(one == values[0] and type(one) is type(values[0]) for one in values):
        return [values[0]]
    if all(type(one) is int for one in values):
        step = values[1] - values[0]
        if all(one == values[0] + lane * step for lane, one in enumerate(values)):
            return [values[0], step]
    return list(values)


def _counts(touch: Touch, space: str, start: int) -> Counts:
    addresses = tuple(None if one is None else start + one for one in touch.at)
    return counts(Pattern(space, touch.width, addresses, "", 0, touch.kind))


def stepper(kernel: object, grid: object, block: object, *args: object, **how: Any) -> Stepper:
    """A kernel's launch, to be played. Arguments and errors as `dwlab.simt.steps.record` has them.

    The arguments are copied. In gpu mode too it is the interpreter that runs.
    """
    return Stepper(record(kernel, grid, block, *args, **how))
