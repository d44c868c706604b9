"""The compiler's and the instructions' levels of a stage: a cap on registers, blocks that must fit on a multiprocessor,
fast maths; products of half the k, and what loads and stores say of caches.

``python -m dwlab tune STAGE@options`` searches them for the tile that a launch gets. A candidate has the tile and,
beside it, LEVELS and those of INSTRUCTIONS that the stage's kernel has an instruction of; a kernel of it is the stage's
own function, compiled with these options, other instructions in the place of its own in it and in all that it calls. A
plain access to an array is no such instruction: what Numba makes of it stays. A launch with that tile takes what won
from journals, as it does the tile (`Stage.options_for`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from dwlab.kernels.parts import ptx, ptx_variants
from dwlab.target import cuda

LEVELS: Mapping[str, tuple[int, ...]] = {
    "max_registers": (0, 40, 48, 64, 80, 96, 128, 168),
    "min_blocks": (0, 1, 2, 3, 4, 6, 8),
    "fastmath": (0, 1),
}
"""Option -> values; 0: as the stage has it. min_blocks: of the launch bounds, beside the threads of its launch."""
DEFAULT = dict.fromkeys(LEVELS, 0)

INSTRUCTIONS: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "half_k": ({one.rpartition("_")[0]: one for one in ptx_variants.HALVES},),
    "load_hint": tuple(
        {name: f"{name}_{hint}" for name in ("load2", "load4")} for hint in ("nc", "no_allocate", "evict_first")
    ),
    "store_hint": ({name: f"{name}_cs" for name in ("store2", "store4")},),
}
"""Level -> for its values 1, 2, … which instruction stands in the place of which; 0: as the stage has it."""

CONSTRAINTS = {
    "one limit of registers at a time": lambda one: not (one["max_registers"] and one["min_blocks"]),
    "one change of instructions at a time": lambda one: sum(one.get(name, 0) > 0 for name in INSTRUCTIONS) <= 1,
}


def of_kernel(kernel: Any, compute_capability: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """LEVELS, and those of INSTRUCTIONS that change a kernel, with the values that a GPU has instructions for."""
    used, found = set(instructions(kernel)), dict(LEVELS)
    for level, tables in INSTRUCTIONS.items():
        values = [
            value
            for value, table in enumerate(tables, 1)
            if used & set(table)
            and not any(ptx.lacks(new, compute_capability) for old, new in table.items() if old in used)
        ]
        if values:
            found[level] = (0, *values)
    return found


def unlimited(options: Mapping[str, int]) -> dict[str, int]:
    """The options of a kernel that differs in its limits of registers alone; one with launch bounds keeps some."""
    return dict(options) | {"max_registers": 0, "min_blocks": min(options["min_blocks"], 1)}


def made(kernel: Any, options: Mapping[str, int], threads: int) -> Any:
    """The kernel compiled with these of LEVELS and INSTRUCTIONS; itself if all are 0. threads: of its launch."""
    if not any(options.values()):
        return kernel
    given = {"fastmath": True} if options.get("fastmath") else {}
    if options.get("max_registers"):
        given["max_registers"] = options["max_registers"]
    if options.get("min_blocks"):
        given |= {"launch_bounds": (threads, options["min_blocks"]), "max_registers": None}
    swaps = (
        pair
        for level, tables in INSTRUCTIONS.items()
        if options.get(level)
        for pair in tables[options[level] - 1].items()
    )
    return _made(kernel, tuple(given.items()), tuple(swaps))


@functools.cache
def _made(kernel: Any, options: tuple[tuple[str, Any], ...], swaps: tuple[tuple[str, str], ...] = ()) -> Any:
    before = getattr(kernel, "targetoptions", {})
    kept = {name: before[name] for name in ("max_registers", "fastmath") if before.get(name)}
    return cuda.jit(**{**kept, **dict(options)})(_swapped(kernel.py_func, swaps))


@functools.cache
def _swapped(python: FunctionType, swaps: tuple[tuple[str, str], ...]) -> FunctionType:
    """Once for all options, which share the device functions that are compiled for it."""
    return _Swapped(dict(swaps)).function(python)


def instructions(kernel: Any) -> Iterator[str]:
    """Names of the instructions of dwlab.kernels.parts.ptx that a kernel has, itself or in functions that it calls."""
    seen: set[int] = set()
    stack = [kernel.py_func]
    while stack:
        function = stack.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        for _, value in _named(function):
            if id(value) in _NAME_OF:
                yield _NAME_OF[id(value)]
            elif isinstance(getattr(value, "py_func", None), FunctionType):
                stack.append(value.py_func)


class _Swapped:
    """Functions with other instructions in the place of theirs, each made once. swaps: name -> name."""

    def __init__(self, swaps: Mapping[str, str]):
        self.new = {id(getattr(ptx, old)): getattr(ptx_variants, new) for old, new in swaps.items()}
        self.made: dict[int, Any] = {}

    def value(self, value: Any) -> Any:
        """The value in the place of a name's: an instruction, a device function, or the value itself."""
        if id(value) in self.new:
            return self.new[id(value)]
        python = getattr(value, "py_func", None)
        if not isinstance(python, FunctionType):
            return value
        if id(value) not in self.made:
            changed = self.function(python)
            before = getattr(value, "targetoptions", None) or getattr(value, "options", {})
            inlined = {"forceinline": True} if before.get("forceinline") else {}
            self.made[id(value)] = value if changed is python else cuda.jit(device=True, **inlined)(changed)
        return self.made[id(value)]

    def function(self, python: FunctionType) -> FunctionType:
        """The function with its names' values in place; itself if they are the same."""
        named = dict(_named(python))
        swapped = {name: new for name, value in named.items() if (new := self.value(value)) is not value}
        if not swapped:
            return python
        names, cells = dict(python.__globals__), {name: cell.cell_contents for name, cell in _cells(python)}
        for name in {one.partition(".")[0] for one in swapped if "." in one}:
            fields = {one.partition(".")[2]: of for one, of in (named | swapped).items() if one.startswith(f"{name}.")}
            if name in cells:
                cells[name] = cells[name]._replace(**fields)
            else:  # a module of another name, so that whoever hands the function on does not look for the one of this
                names[name] = ModuleType(f"{names[name].__name__} with others")
                names[name].__dict__.update(fields)
        names |= {name: value for name, value in swapped.items() if name in names}
        cells = [CellType(swapped.get(name, value)) for name, value in cells.items()]
        made = FunctionType(python.__code__, names, python.__name__, python.__defaults__, tuple(cells))
        made.__kwdefaults__, made.__qualname__ = python.__kwdefaults__, python.__qualname__
        made.__module__ = python.__module__
        return made


def _cells(python: FunctionType) -> list[tuple[str, CellType]]:
    return list(zip(python.__code__.co_freevars, python.__closure__ or (), strict=True))


def _named(python: FunctionType) -> list[tuple[str, Any]]:
    """(name, value) of what a function's text names outside it: "name", or "module.attribute", or "tuple.field"."""
    words, found, cells = _words(python.__code__), {}, {name: cell.cell_contents for name, cell in _cells(python)}
    for name, value in ({name: of for name, of in python.__globals__.items() if name in words} | cells).items():
        inside = dir(value) if isinstance(value, ModuleType) else getattr(value, "_fields", None)
        fields = {f"{name}.{one}": getattr(value, one) for one in words if one in (inside or ())}
        found |= {name: value} if inside is None else fields
    return list(found.items())


def _words(code: CodeType) -> tuple[str, ...]:
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return tuple(dict.fromkeys([*code.co_names, *(word for one in inner for word in _words(one))]))


_NAME_OF = {id(getattr(ptx, name)): name for name in ptx.TABLE}
