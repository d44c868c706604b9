"""The compiler's levels of a stage: a cap on registers, blocks that must fit on a multiprocessor, fast maths.

``subject("pointwise/forward/tensor@options")`` searches them for the tile that a launch gets. A candidate has the tile
and, beside it, LEVELS; a kernel of it is the stage's own function, compiled with these options. What wins is printed
and not shipped: a launch takes tiles from journals, and a stage states its compiler's options in its file.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dwlab.gpu.target import cuda
from dwlab.kernels.registry import ByShape, Stage

SUFFIX = "@options"
"""Behind a stage's id."""
LEVELS: Mapping[str, tuple[int, ...]] = {
    "max_registers": (0, 40, 48, 64, 80, 96, 128, 168),
    "min_blocks": (0, 1, 2, 3, 4, 6, 8),
    "fastmath": (0, 1),
}
"""Option -> values; 0: as the stage has it. min_blocks: of the launch bounds, beside the threads of its launch."""
DEFAULT = dict.fromkeys(LEVELS, 0)

CONSTRAINTS = {
    "one limit of registers at a time": lambda one: not (one["max_registers"] and one["min_blocks"]),
}


def compiled_with(stage: Stage, options: Mapping[str, int]) -> Stage:
    """The stage, its kernels compiled with these of LEVELS."""
    return replace(stage, kernel=_Recompiled(stage, options)) if any(options.values()) else stage


class _Recompiled(ByShape):
    """The kernels of a stage with tiles, each compiled anew."""

    def __init__(self, stage: Stage, options: Mapping[str, int]):
        self.__dict__.update(vars(stage.kernel))
        self.stage, self.options = stage, dict(options)

    def for_problem(self, problem: Any, config: Any = None, gpu: Any = None) -> Any:
        """As the stage's, with the options."""
        kernel = self.stage.kernel.for_problem(problem, config, gpu)
        options = {"fastmath": True} if self.options["fastmath"] else {}
        if self.options["max_registers"]:
            options["max_registers"] = self.options["max_registers"]
        if self.options["min_blocks"]:
            threads = self.stage.launch(problem, gpu).threads
            options |= {"launch_bounds": (threads, self.options["min_blocks"]), "max_registers": None}
        return _made(kernel, tuple(options.items()))


@functools.cache
def _made(kernel: Any, options: tuple[tuple[str, Any], ...]) -> Any:
    before = getattr(kernel, "targetoptions", {})
    kept = {name: before[name] for name in ("max_registers", "fastmath") if before.get(name)}
    return cuda.jit(**{**kept, **dict(options)})(kernel.py_func)
