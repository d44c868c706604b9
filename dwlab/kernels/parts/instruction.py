"""An instruction that Numba has no name for, from one row: its intrinsic on a GPU and its meaning in simulated mode.

    @instruction("ld.global.v4.f32 {$0, $1, $2, $3}, [$4];", "gx -> ffff", meanings.load("global"))
    def load4(array, index):
        \"\"\"The elements index to index + 3 of a global array.\"\"\"

A kernel calls it by its name. dwlab.gpu.inline_ptx has the letters that say what arguments and results are;
dwlab.instructions.meanings what one may mean: meaning(run, node, *arguments) gives the results, of every lane.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from dwlab.gpu import inline_ptx, target
from dwlab.gpu.inline_ptx import Capability, Instruction
from dwlab.instructions import meanings
from dwlab.simt import register_instruction

TABLE: dict[str, Instruction] = {}
"""The rows by name, of all modules that are imported: dwlab.kernels.parts.ptx imports every one."""


def instruction(ptx: Any, letters: str, meaning: Callable, **more: Any) -> Callable[[Callable], Any]:
    """Makes a function an instruction: a row of TABLE. ptx, letters, more: as in dwlab.gpu.inline_ptx.Instruction."""

    def make(function: Callable) -> Any:
        name = function.__name__
        row = TABLE[name] = Instruction(
            name, inspect.signature(function), letters, ptx, inspect.getdoc(function) or "", **more
        )

        @functools.wraps(function)
        def outside(*given: Any, **named: Any) -> None:
            raise TypeError(f"ptx.{name} is an instruction: call it in a kernel")

        made = inline_ptx.intrinsic(row) if target.mode == "gpu" else outside
        register_instruction(made, meanings.checked(row, meaning), row.lacking if row.since > (5, 0) else None)
        return made

    return make


def _row(name: str) -> Instruction:
    if name not in TABLE:
        raise ValueError(f"there is no ptx.{name}; there are {', '.join(TABLE)}")
    return TABLE[name]


def needs(name: str) -> Capability:
    """The least compute capability that has an instruction. Raises ValueError for a name that is none."""
    return _row(name).since


def lacks(name: str, compute_capability: Capability) -> str:
    """The message that a GPU does not have an instruction; "" if it has it. Raises ValueError as `needs` does."""
    return _row(name).lacking(compute_capability)


def rows() -> list[tuple[str, str, str, str]]:
    """(call, PTX without its operands, since which compute capability, first sentence) of each instruction, by name."""
    found = []
    for _, one in sorted(TABLE.items()):  # in whatever order their modules were imported
        words = re.findall(r"[a-z][\w:]*(?:\.[\w:<>]+)+", one.text((99, 0)))
        since = ".".join(map(str, one.since)) + " alone" * one.only
        says = " ".join(one.says.partition("\n\n")[0].split())
        found.append((f"{one.name}{one.signature}", max(words, key=len, default=""), since, says))
    return found
