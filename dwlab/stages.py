"""The one list of kernels. A stage is one file, `OP/PATH_ORDER_NAME.py`, and registers itself by one decorator.

    @register(kernel=kernel, traffic=traffic)
    def launch(problem): ...

Op, path, order and name are read from the file's place; the summary is the first line of its docstring. Tests, studies,
plots and lessons iterate `stages()`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import operator
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwlab.problems import PATHS, DepthwiseConv1d, nearest

if TYPE_CHECKING:
    from dwlab.traffic import Traffic

_PACKAGE = Path(__file__).parent
_FILE = re.compile(rf"^({'|'.join(PATHS)})_(\d+)_(\w+)\.py$")

# The same for every GPU that Numba supports (CUDA C++ Programming Guide, table "Technical Specifications per Compute
# Capability"): most blocks of a grid and most threads of a block in x, y and z, most threads of a block.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024


class StageError(ValueError):
    """A stage that does not exist, or arrays or a launch that a stage cannot use; the message says what to do."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is started: blocks, threads, scalar arguments after the arrays, bytes of dynamic shared memory.

    A single size may be given as a number, as Numba takes it. Raises StageError for a size that is no whole number
    and for scalars that are no tuple; what no GPU would start is for ``limits`` to say.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    scalars: tuple[Any, ...] = ()
    shared_bytes: int = 0

    def __post_init__(self) -> None:
        for what in ("grid", "block"):
            given = getattr(self, what)
            sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            object.__setattr__(self, what, tuple(_whole(size, what, given) for size in sizes))
        if not isinstance(self.scalars, (tuple, list)):
            raise StageError(f"scalars={self.scalars!r} is no tuple: one scalar is written (shift,), with its comma")
        object.__setattr__(self, "scalars", tuple(self.scalars))
        object.__setattr__(self, "shared_bytes", _whole(self.shared_bytes, "shared_bytes", self.shared_bytes))
        if self.shared_bytes < 0:
            raise StageError(f"shared_bytes must be 0 or more, not {self.shared_bytes}")

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return _product(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return _product(self.grid)


def _whole(size: Any, what: str, given: Any) -> int:
    if isinstance(size, bool) or not hasattr(type(size), "__index__"):
        hint = " (use // for division)" if isinstance(size, float) else ""
        raise StageError(f"{what}={given!r}: {size!r} is not a whole number{hint}")
    return operator.index(size)


def fits_uint32(problem: DepthwiseConv1d) -> int:
    """The problem's rows B*H, once it is sure that a kernel may count rows and times in 32 bits.

    Raises StageError if there are 2**32 rows or more, or if a time before the row, L and K taken together, would wrap
    into the row.
    """
    for what, size in (("B*H", problem.B * problem.H), ("L+K", problem.L + problem.K)):
        if size >= 2**32:
            raise StageError(
                f"{what} = {size} does not fit the kernel's 32-bit indices: use smaller sizes than {problem}"
            )
    return problem.B * problem.H


def _product(sizes: tuple[int, ...]) -> int:
    return functools.reduce(lambda a, b: a * int(b), sizes, 1)


def limits(launch: Launch) -> tuple[str, ...]:
    """What no GPU would start about this launch, one sentence each; empty if nothing."""
    found = []
    for what, sizes, most in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK)):
        if not 1 <= len(sizes) <= 3:
            found.append(f"the {what} {sizes} has {len(sizes)} dimensions; it has 1 to 3")
            continue
        for axis, size, limit in zip("xyz", sizes, most, strict=False):
            if size < 1:
                found.append(f"the {what} {sizes} has {size} in {axis}; the least is 1")
            elif size > limit:
                found.append(f"the {what} {sizes} has {size} in {axis}; the hardware's limit is {limit}")
    if not found and launch.threads > MAX_THREADS:
        found.append(f"the block {launch.block} has {launch.threads} threads; the hardware's limit is {MAX_THREADS}")
    return tuple(found)


@dataclass(frozen=True)
class Stage:
    """One kernel of a path: how to start it on a problem, and the memory traffic that it should cause."""

    op: str
    path: str
    order: int
    name: str
    file: str
    kernel: Any
    launch: Callable[[DepthwiseConv1d], Launch]
    traffic: Callable[[DepthwiseConv1d], Traffic]
    summary: str

    @property
    def id(self) -> str:
        """OP/PATH/NAME, for example "depthwise1d/forward/naive"."""
        return f"{self.op}/{self.path}/{self.name}"

    def with_kernel(self, kernel: Any) -> Stage:
        """This stage's launch around another kernel."""
        return replace(self, kernel=kernel)

    def args(self, problem: DepthwiseConv1d, arrays: dict[str, Any]) -> tuple[Any, ...]:
        """The kernel's arguments: the arrays in the path's order, then the launch's scalars.

        Raises StageError for an array that is missing, has another shape or dtype, or is not C-contiguous.
        """
        checked = check_arrays(problem, self.path, arrays)
        return (*checked, *self.launch(problem).scalars)

    def run(self, problem: DepthwiseConv1d, arrays: dict[str, Any], stream: Any = 0) -> None:
        """Starts the kernel. `arrays`: name -> host or device array; the outputs are written in place.

        Raises StageError before anything starts if the arrays or the launch cannot be used.
        """
        args = self.args(problem, arrays)
        how = self.launch(problem)
        self.kernel[how.grid, how.block, stream, how.shared_bytes](*args)

    def source(self) -> str:
        """What a lesson shows: the constants and the kernel, as they stand in the stage's file."""
        return _source((_PACKAGE.parent / self.file).read_text(encoding="utf-8"))


def check_arrays(problem: DepthwiseConv1d, path: str, arrays: dict[str, Any]) -> tuple[Any, ...]:
    """The arrays of a path in the kernel's order. Raises StageError for the first that cannot be used."""
    names = problem.arrays(path)
    unknown = [name for name in arrays if name not in names]
    if unknown:
        raise StageError(f"{path} has no array {unknown[0]!r}: it takes {', '.join(names)}")
    for name, shape in problem.shapes(path).items():
        if name not in arrays:
            raise StageError(f"{path} needs an array {name!r} of shape {shape}; given: {', '.join(arrays) or 'none'}")
        array = arrays[name]
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise StageError(f"{name} is a {type(array).__name__}, not an array: give a NumPy or device array")
        if len(array.shape) != len(shape):
            raise StageError(f"{name} has {len(array.shape)} dimensions {tuple(array.shape)}; {problem} needs {shape}")
        if tuple(array.shape) != shape:
            raise StageError(f"{name} has shape {tuple(array.shape)}; {problem} needs {shape}")
        if str(array.dtype) != problem.dtype:
            raise StageError(f"{name} is {array.dtype}; {problem.dtype} is needed: {name}.astype('{problem.dtype}')")
        if not _c_contiguous(array):
            raise StageError(
                f"{name} is not C-contiguous, its rows do not follow each other in memory: "
                f"pass numpy.ascontiguousarray({name})"
            )
    return tuple(arrays[name] for name in names)


def _c_contiguous(array: Any) -> bool:
    strides = getattr(array, "strides", None)
    if strides is None:
        return True
    step = array.dtype.itemsize
    for size, stride in zip(reversed(array.shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _source(text: str) -> str:
    """The part of a stage file between its imports and its traffic formula."""
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    formula = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == "traffic")
    lines = text.splitlines()
    return "\n".join(lines[imports[-1].end_lineno : formula.lineno - 1]).strip() + "\n"


_registry: dict[str, Stage] = {}


def register(*, kernel: Any, traffic: Callable[[DepthwiseConv1d], Traffic]) -> Callable[[Callable], Callable]:
    """Decorates a stage file's `launch` and puts the stage on the list.

    The launch that comes back raises StageError where its grid would be beyond the hardware's limits.
    Raises StageError if the file's name is not PATH_ORDER_NAME.py or another stage has the same id.
    """

    def decorate(launch: Callable[[DepthwiseConv1d], Launch]) -> Callable[[DepthwiseConv1d], Launch]:
        file = Path(inspect.getfile(launch)).resolve()
        match = _FILE.match(file.name)
        if not match:
            raise StageError(f"{file.name} is no stage file: its name must be PATH_ORDER_NAME.py, PATH one of {PATHS}")
        module = sys.modules[launch.__module__]

        @functools.wraps(launch)
        def checked(problem: DepthwiseConv1d) -> Launch:
            how = launch(problem)
            over = limits(how)
            if over:
                raise StageError(f"{made.id} cannot run {problem}: {over[0]}. Use smaller sizes or another stage.")
            return how

        made = Stage(
            op=file.parent.name,
            path=match[1],
            order=int(match[2]),
            name=match[3],
            file=file.relative_to(_PACKAGE.parent).as_posix(),
            kernel=kernel,
            launch=checked,
            traffic=traffic,
            summary=(module.__doc__ or "").strip().split("\n")[0],
        )
        other = _registry.get(made.id)
        if other is not None and other.file != made.file:
            raise StageError(f"two stages are called {made.id}: {other.file} and {made.file}")
        _registry[made.id] = made
        return checked

    return decorate


@functools.cache
def _load() -> None:
    for file in sorted(_PACKAGE.glob("*/*.py")):
        if _FILE.match(file.name):
            importlib.import_module(f"dwlab.{file.parent.name}.{file.stem}")


def stages(op: str | None = None, path: str | None = None) -> tuple[Stage, ...]:
    """All stages, or those of an op and path, in order. Raises StageError for an op or path that does not exist."""
    _load()
    ops = tuple(sorted({one.op for one in _registry.values()}))
    if op is not None and op not in ops:
        raise StageError(f"there is no op {op!r}. {nearest(op, ops)}")
    if path is not None and path not in PATHS:
        raise StageError(f"there is no path {path!r}. {nearest(path, PATHS)}")
    chosen = [one for one in _registry.values() if op in (None, one.op) and path in (None, one.path)]
    return tuple(sorted(chosen, key=lambda one: (one.op, PATHS.index(one.path), one.order)))


def stage(id: str) -> Stage:
    """The stage with this id (OP/PATH/NAME). Raises StageError with the nearest id if there is none."""
    _load()
    if not isinstance(id, str):
        raise StageError(f"{id!r} is no stage's id: give a text such as {next(iter(_registry))!r}")
    if id not in _registry:
        raise StageError(f"there is no stage {id!r}. {nearest(id, tuple(_registry))}")
    return _registry[id]


def describe() -> list[dict[str, Any]]:
    """One record a stage, in order: id, op, path, order, name, file, summary."""
    fields = ("id", "op", "path", "order", "name", "file", "summary")
    return [{field: getattr(one, field) for field in fields} for one in stages()]
