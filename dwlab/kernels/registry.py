"""The one list of kernels. A stage is one file, `OP/PATH_ORDER_NAME.py`, and registers itself by one decorator.

    @register(kernel=kernel, traffic=traffic)
    def launch(problem): ...

Op, path, order and name are read from the file's place (ORDER 2_5 stands between 2 and 3); the summary is the first
line of its docstring. A file of two paths, `forward_input_grad_7_strips.py`, is a stage of each. Tests, studies, plots
and lessons iterate `stages()`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import itertools
import operator
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dwlab.gpu.driver import allow_shared, arrays_of
from dwlab.gpu.occupancy import LIMITS
from dwlab.kernels import digests
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling import recorded, tuned
from dwlab.kernels.tiling.choose import choose, why_not
from dwlab.kernels.tiling.config import TileConfig, Tiles
from dwlab.problems import DTYPES, KINDS, PATHS, DepthwiseConv1d, Problem, ProblemError, nearest
from dwlab.problems.quantisation import check_positive

if TYPE_CHECKING:
    from dwlab.kernels.traffic import Traffic
    from dwlab.simt import Report

_FOLDER = Path(__file__).parent
_PATH = re.compile("|".join(PATHS + KINDS))
_FILE = re.compile(rf"^((?:(?:{_PATH.pattern})_)+)(\d+(?:_\d+)?)_([a-z]\w*)\.py$")

# The same for every GPU that Numba supports (CUDA C++ Programming Guide, table "Technical Specifications per Compute
# Capability"): most blocks of a grid and most threads of a block in x, y and z, most threads of a block.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED = max(one.shared_per_block_optin for one in LIMITS.values())  # bytes of a block, on the GPU that gives most

_FLOAT32 = ("float32",)

_ZERO_THREADS = 256  # of a block that sets an output to 0
_SUM_LANES, _SUM_SHARES = 32, 32  # elements that a block of the adding kernel sums up, and threads for each
_LONG, _LONG_THREADS = 1 << 17, 256  # elements of an output whose sums are a thread's each, and threads of a block


class StageError(ValueError):
    """A stage that does not exist, or arrays or a launch that a stage cannot use; the message says what to do."""


@dataclass(frozen=True)
class Launch:
    """How a kernel is started: blocks, threads, scalar arguments after the arrays, bytes of dynamic shared memory.

    zero: the kernel adds to its last output (blocks meet there by atomics), so that is set to 0 before each start.
    parts: the kernel does not write its last output but that many partial sums of it, which are added up afterwards, in
    an order that is always the same: the kernel's last array is a workspace (parts, *output's shape) of float32.
    A single size may be given as a number, as Numba takes it. Raises StageError for a size that is no whole number
    and for scalars that are no tuple; what no GPU would start is for ``limits`` to say.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    scalars: tuple[Any, ...] = ()
    shared_bytes: int = 0
    zero: bool = False
    parts: int = 0

    def __post_init__(self) -> None:
        for what in ("grid", "block"):
            given = getattr(self, what)
            sizes = tuple(given) if isinstance(given, (tuple, list)) else (given,)
            object.__setattr__(self, what, tuple(_whole(size, what, given) for size in sizes))
        if not isinstance(self.scalars, (tuple, list)):
            raise StageError(f"scalars={self.scalars!r} is no tuple: one scalar is written (shift,), with its comma")
        object.__setattr__(self, "scalars", tuple(self.scalars))
        object.__setattr__(self, "shared_bytes", _whole(self.shared_bytes, "shared_bytes", self.shared_bytes))
        object.__setattr__(self, "parts", _whole(self.parts, "parts", self.parts))
        for what in ("shared_bytes", "parts"):
            if getattr(self, what) < 0:
                raise StageError(f"{what} must be 0 or more, not {getattr(self, what)}")
        if self.zero and self.parts:
            raise StageError(f"a launch with parts={self.parts} writes its last output whole: zero does not go with it")

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


def _any_problem(problem: DepthwiseConv1d, gpu: Any = None) -> bool:
    return True


class ByShape:
    """A kernel that is made for each shape, and then kept. What is launched is for_problem(problem).

    make: a function whose parameters say what they are by their names (GIVEN); any other name is a layer of one image,
    and one with a default is left alone. What it gets is built into the kernel's text as constants. With DTYPE it is
    for rows of every storage type. REVERSE, in a file of two paths: whether this is the input gradient; SHIFT is then
    that of the forward convolution, with the filter reversed, that it is. Problems that its stage does not support get
    the kernel of the stage that it names in their place.

    Kernels get rows of 16-bit elements as float32 words, two elements in each (`words`).
    """

    GIVEN: Mapping[str, Callable[[Any, TileConfig | None], Any]] = {
        "L": lambda problem, config: problem.L,
        "K": lambda problem, config: problem.K,
        "SHIFT": lambda problem, config: problem.shift,
        "SHORT": lambda problem, config: short(problem),
        "DTYPE": lambda problem, config: problem.dtype,
        "images": lambda problem, config: problem.N,
        "config": lambda problem, config: config,  # the tile, of a stage that has tiles
    }

    supports: Callable[..., bool] = staticmethod(_any_problem)
    otherwise: str = ""

    def __init__(self, make: Callable[..., Any], reverse: bool = False):
        self.make, self.reverse = functools.cache(make), reverse
        parameters = inspect.signature(make).parameters
        self.parameters = tuple(name for name, one in parameters.items() if one.default is one.empty)
        self.tiled = "config" in self.parameters
        self.sized = bool(set(self.parameters) - {"DTYPE", "REVERSE"})  # made anew for other sizes
        self.dtypes = DTYPES if "DTYPE" in self.parameters else _FLOAT32
        functools.update_wrapper(self, make)

    def for_problem(self, problem: Problem, config: TileConfig | None = None, gpu: Any = None) -> Any:
        """The kernel for a problem. config: its tile, of a stage that has tiles."""
        if not self.supports(problem, gpu):
            return stage(self.otherwise).kernel_for(problem, gpu)
        if self.reverse:
            problem = replace(problem, padding=problem.shift)
        given = self.GIVEN | {"REVERSE": lambda problem, config: self.reverse}
        return self.make(*(given.get(name, lambda one, _: one.kernel_key)(problem, config) for name in self.parameters))


def short(problem: DepthwiseConv1d) -> int:
    """L of rows so short that more than one may end among a 16-byte piece and its neighbours; 0 of longer ones."""
    return problem.L if problem.L < 16 // problem.itemsize + problem.K - 1 else 0


def dtypes_of(kernel: Any) -> tuple[str, ...]:
    """Storage types of the rows that a kernel is written for, as far as it says."""
    return kernel.dtypes if isinstance(kernel, ByShape) else _FLOAT32


VIEWS = ("shaped", "flat", "words", "elements", "line")
"""How a kernel gets its arrays: as they are, as one row of elements, as one row of float32 words, all the same memory,
or as they are, or one row, with elements of 16 bits as uint16. Instructions that move 16 bytes do not ask what is in
them."""


def words(problem: Problem, name: str, array: Any, view: str = "shaped") -> Any:
    """The array as kernels get it. array: NumPy's or a device array; view: one of VIEWS.

    Rows of a DepthwiseConv1d stored in 16 bits are words, two elements in each, along the last axis, or "elements".
    """
    if view in ("elements", "line"):
        array = array if array.dtype == np.float32 else array.view(np.uint16)
        return array.reshape(_product(array.shape)) if view == "line" else array
    if view != "shaped":
        flat = array.reshape(_product(array.shape))
        return flat if view == "flat" or flat.dtype == np.float32 else flat.view(np.float32)
    return array if problem.dtype_of(name) == "float32" or problem.op != "depthwise1d" else array.view(np.float32)


def by_shape(make: Callable[..., Any]) -> ByShape:
    """Decorates a function that makes a stage's kernel for a shape: its parameters' names say which (ByShape)."""
    return ByShape(make)


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


def limits(launch: Launch, gpu: gpus.Gpu | None = None) -> tuple[str, ...]:
    """Reasons why a GPU would not start this launch, no GPU if None, one sentence each; empty if nothing."""
    found = []
    for what, sizes, most in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK)):
        if not 1 <= len(sizes) <= 3:
            found.append(f"the {what} {sizes} has {len(sizes)} dimensions; it has 1 to 3")
            continue
        for axis, size, limit in zip("xyz", sizes, most, strict=False):
            if size < 1:
                cure = ": a grid is rounded up, -(-n // tile)" if what == "grid" and size == 0 else ""
                found.append(f"the {what} {sizes} has {size} in {axis}; the least is 1{cure}")
            elif size > limit:
                found.append(f"the {what} {sizes} has {size} in {axis}; the hardware's limit is {limit}")
    if not found and launch.threads > MAX_THREADS:
        found.append(f"the block {launch.block} has {launch.threads} threads; the hardware's limit is {MAX_THREADS}")
    if launch.shared_bytes > MAX_SHARED:
        found.append(f"{launch.shared_bytes:,} bytes of shared memory a block; no GPU gives more than {MAX_SHARED:,}")
    elif gpu is not None and launch.shared_bytes > gpu.limits.shared_per_block_optin:
        most = f"one of {gpu} gives {gpu.limits.shared_per_block_optin:,}"
        found.append(f"{launch.shared_bytes:,} bytes of shared memory a block; {most}")
    return tuple(found)


class Tiled(NamedTuple):
    """A stage's own where it has tiles: launch(problem, config, gpu=gpu), traffic(problem, config), sizes(problem)."""

    launch: Callable[..., Launch]
    traffic: Callable[[Problem, TileConfig], Traffic]
    sizes: Callable[[Problem], bool]


@dataclass(frozen=True)
class Stage:
    """One kernel of a path: how to start it on a problem, and the memory traffic that it should cause.

    supports: problem -> whether the stage's idea applies to it. It runs any other float32 problem too, by handing it to
    another stage's kernel: right, but not what a study of this stage is about. Rows of 16 bits it does not hand on:
    that is a StageError, which names the stages that take them. aligned: bytes of which a device array's address
    must be a multiple. needs: instructions of dwlab.kernels.parts.ptx that its kernels have, which older GPUs do not;
    for all storage types, or by storage type. tiles: what it says of its tiles, None where it has no choice.
    lesson: the number of the one that teaches it, "" if none does. options: of kernels.levels, None: those in force.

    supports, launch, traffic, kernel_for and config take the GPU as well, as dwlab.kernels.tiling.gpu.of does: by
    default the one at hand.
    """

    op: str
    path: str
    order: float
    name: str
    file: str
    kernel: Any
    launch: Callable[..., Launch]
    traffic: Callable[..., Traffic]
    summary: str
    supports: Callable[..., bool] = _any_problem
    aligned: int = 1
    dtypes: tuple[str, ...] = _FLOAT32
    view: str = "shaped"
    needs: tuple[str, ...] | Mapping[str, tuple[str, ...]] = field(default=(), hash=False)  # a mapping has no hash
    tiles: Tiles | None = None
    tiled: Tiled | None = None
    lesson: str = ""
    options: tuple[tuple[str, int], ...] | None = None

    @property
    def id(self) -> str:
        """OP/PATH/NAME, for example "depthwise1d/forward/naive"."""
        return f"{self.op}/{self.path}/{self.name}"

    def kernel_for(self, problem: DepthwiseConv1d, gpu: Any = None) -> Any:
        """The kernel that runs a problem: `kernel` itself, or what it makes for the shape. Raises StageError."""
        self._takes(problem, gpu)
        if not isinstance(self.kernel, ByShape):
            return self.kernel
        config = self.config(problem, gpu) if self.kernel.tiled else None
        made = self.kernel.for_problem(problem, config, gpu)
        options = self.options_for(problem, gpu)
        if not options:
            return made
        from dwlab.kernels import levels  # which imports numba

        return levels.made(made, dict(options), self.launch(problem, gpu).threads)

    def options_for(self, problem: Problem, gpu: Any = None) -> tuple[tuple[str, int], ...]:
        """The compiler's options and instructions of a problem's kernel: given ones, or a search's for its tile."""
        if self.options is not None:
            return self.options
        config = self.config(problem, gpu)
        return () if config is None else tuned.options(self.id, problem, gpus.of(gpu), config)

    def view_of(self, problem: Problem) -> str:
        """How the kernel that runs a problem gets its arrays: this stage's, or another's that takes it in its place."""
        other = getattr(self.kernel, "otherwise", "")
        return stage(other).view_of(problem) if other and not self.supports(problem) else self.view

    def words(self, problem: Problem, name: str, array: Any) -> Any:
        """The array as that kernel gets it."""
        return words(problem, name, array, self.view_of(problem))

    def config(self, problem: Problem, gpu: Any = None, measured: bool = True) -> TileConfig | None:
        """The tile that a problem gets on a GPU; None of a stage without tiles, and where none fits.

        What was measured comes first: the fastest of a search there (tiling.tuned), if `measured`; the tile of the
        records' time (tiling.recorded); else the one of least cost. `why_config` says which.
        """
        if self.tiles is None:
            return None
        here = gpus.of(gpu)
        found = tuned.winners(self.id, problem, here) if measured else ()
        measured_here = (*(one.config for one in found), *recorded.tiles(self.id, problem, here))
        return choose(self.tiles, problem.kernel_key, problem.N, here, measured_here)

    def why_config(self, problem: Problem, gpu: Any = None) -> str:
        """Why `config` takes the tile that it takes, in words; "" of a stage without tiles."""
        if self.tiles is None:
            return ""
        here, chosen = gpus.of(gpu), self.config(problem, gpu)
        why = "the least predicted cost" if chosen is not None else "no tile fits"
        if chosen in recorded.tiles(self.id, problem, here):
            why = "the tile of its recorded time"
        for found in reversed(tuned.winners(self.id, problem, here, self.digest)):
            why = found.why if found.config == chosen else why
        options = (f"{name}={value}" for name, value in self.options_for(problem, gpu))
        return "; by another search ".join(filter(None, (why, " ".join(options))))

    def with_config(self, config: TileConfig, options: tuple[tuple[str, int], ...] = ()) -> Stage:
        """This stage with one tile and these options for all problems. Raises StageError if it has no tiles."""
        if self.tiled is None or self.tiles is None:
            raise StageError(f"{self.id} has no tiles: it starts all problems in the same way")
        launch, traffic, _ = self.tiled
        return replace(
            self,
            options=options,
            tiles=replace(self.tiles, configs=lambda layer, images, gpu: (config,), why_not=None),
            launch=lambda problem, gpu=None: launch(problem, config, gpu=gpu),
            traffic=lambda problem, gpu=None: traffic(problem, config),
        )

    def needed(self, dtype: str) -> tuple[str, ...]:
        """Instructions of its kernels of a storage type that older GPUs do not have."""
        return self.needs.get(dtype, ()) if isinstance(self.needs, Mapping) else self.needs

    def lacks(self, dtype: str, gpu: Any = None) -> str:
        """Which instruction its kernels of a storage type have and the GPU has not, in a sentence; "" if none."""
        names = self.needed(dtype)
        if not names:
            return ""
        from dwlab.kernels.parts import ptx  # which imports numba: whoever looks up a stage does without

        here = gpus.of(gpu).compute_capability
        return next((why for why in (ptx.lacks(name, here) for name in names) if why), "")

    def why_not(self, problem: Problem, gpu: Any = None) -> str:
        """Why the stage does not take a problem on a GPU, "" if it does."""
        if problem.dtype not in self.dtypes:
            return f"{self.id} is for {', '.join(self.dtypes)}, not for {problem.dtype}"
        if lacking := self.lacks(problem.dtype, gpu):
            return lacking
        if self.supports(problem, gpu):
            return ""
        if self.tiled is not None and self.tiled.sizes(problem):
            return why_not(self.tiles, problem.kernel_key, problem.N, gpus.of(gpu))
        pattern = " or this pattern" if problem.op == "sparse" else ""
        return f"{self.id} is not for these sizes or this layout{self._needs(problem, gpu) or pattern}"

    def _needs(self, problem: Any, gpu: Any) -> str:
        """The least change of a sparse layer with which the stage takes it, found by trying; "" if there is none."""
        ways = [names for count in range(4) for names in itertools.combinations("CFW", count)]
        layouts = sorted({"NCHW", "NHWC"}, key=lambda one: one != problem.layout) if problem.op == "sparse" else ()
        for layout, names, step in itertools.product(layouts, ways, (2, 4, 8, 16, 32, 64)):
            sizes = {name: -(-getattr(problem, name) // step) * step for name in names}
            if self.supports(replace(problem, layout=layout, **sizes), gpu):
                wrong = " and ".join(f"{name} = {getattr(problem, name)}" for name in names)
                needed = [f"{wrong}: a multiple of {step}"] * bool(names) + [layout] * (layout != problem.layout)
                return f" ({' and '.join(needed)} is needed)"
        return ""

    def _takes(self, problem: DepthwiseConv1d, gpu: Any = None) -> None:
        if problem.op != self.op:
            raise StageError(f"{self.id} computes {self.op}; {problem} is a problem of {problem.op}")
        if problem.op == "depthwise1d" and problem.dtype == "float32":
            return  # what the stage does not support another one runs
        where = () if gpu is None else (gpu,)  # most of what stands in for a stage knows of no GPU
        if problem.dtype in self.dtypes and self.supports(problem, *where):
            return
        if problem.op != "depthwise1d":
            here = [one.id for one in stages(self.op, self.path) if one.supports(problem, *where)]
            lacking = self.lacks(problem.dtype, gpu)
            why = f" ({lacking})" if lacking else self._needs(problem, gpu)
            raise StageError(f"{self.id} does not take {problem}{why}: use {' or '.join(here) or 'other sizes'}")
        others = [one for one in stages(self.op, self.path) if problem.dtype in one.dtypes]
        here = [one.id for one in others if one.supports(problem, *where)]
        if here:
            raise StageError(f"{self.id} does not take {problem}: use {' or '.join(here)}, or float32 rows")
        theirs = ", ".join(one.id for one in others) or "none of them"
        raise StageError(
            f"{self.id} does not take {problem}, and no other stage does. {problem.dtype} rows of whole 16 bytes are "
            f"for {theirs}, as far as their registers hold them: use other sizes, or float32 rows"
        )

    def with_kernel(self, kernel: Any) -> Stage:
        """This stage's launch around another kernel."""
        if isinstance(kernel, ByShape) and isinstance(self.kernel, ByShape):
            kernel.supports, kernel.otherwise = self.kernel.supports, self.kernel.otherwise
            kernel.reverse = self.kernel.reverse and "REVERSE" in kernel.parameters
        return replace(self, kernel=kernel, dtypes=dtypes_of(kernel) if self.op == "depthwise1d" else self.dtypes)

    def args(self, problem: DepthwiseConv1d, arrays: dict[str, Any]) -> tuple[Any, ...]:
        """The kernel's arguments: the arrays in the path's order, then the launch's scalars.

        Raises StageError for an array that is missing, has another shape or dtype, is not C-contiguous, is an output
        and read-only, or begins at an address that the kernel's instructions cannot take.
        """
        check_arrays(problem, self.path, arrays)
        if self.aligned > 1 and self.supports(problem):
            for name in problem.arrays(self.path):
                _check_address(name, arrays[name], self)
        how = self.launch(problem)  # refuses what the stage does not take, before rows are looked at as words
        passed = (self.words(problem, name, arrays[name]) for name in problem.slots(self.path))
        return (*passed, *how.scalars)

    def run(self, problem: DepthwiseConv1d, arrays: dict[str, Any], stream: Any = 0) -> None:
        """Starts the kernel. `arrays`: name -> host or device array; the outputs are written in place.

        An output to which the kernel adds is set to 0 before; one that it leaves in parts is added up after. Raises
        StageError before anything starts if the arrays or the launch cannot be used.
        """
        self.starter(problem, arrays)(stream)

    def starter(self, problem: DepthwiseConv1d, arrays: dict[str, Any], workspace: Any = None) -> Callable[[Any], None]:
        """All that `run` does, prepared: a function of the stream that only starts kernels.

        workspace: a device array for a launch's parts (see `workspace_shape`), made here if None. Raises StageError as
        `run` does.
        """
        self.args(problem, arrays)
        prepared = self.prepared(problem)
        if workspace is not None:
            _check_workspace(prepared.workspace, workspace)
        return prepared.bound(arrays, workspace=workspace)

    def prepared(self, problem: Problem) -> Prepared:
        """A launch on a problem without its arrays. Raises StageError."""
        how = self.launch(problem)
        return Prepared(self, problem, how, self.kernel_for(problem), self.workspace_shape(problem))

    def workspace_shape(self, problem: DepthwiseConv1d) -> tuple[int, ...]:
        """Shape of the float32 workspace that a launch in parts writes, of one part the output; () if it has none."""
        how = self.launch(problem)
        last = problem.arrays(self.path)[-1]
        return (how.parts, *problem.shapes(self.path)[last]) if how.parts else ()

    def example(self, problem: DepthwiseConv1d, seed: int = 0) -> tuple[Any, ...]:
        """Arguments of one launch of the kernel, in host memory: seeded inputs, outputs of NaN (of 0 if added to)."""
        how = self.launch(problem)
        arrays: dict[str, Any] = dict(problem.inputs(self.path, seed))
        for name in problem.outputs(self.path):
            arrays[name] = problem.nans(name, self.path)
        if how.zero:
            arrays[name].fill(0)  # the last one
        args = list(self.args(problem, arrays))
        if how.parts:
            args[len(arrays) - 1] = np.full(self.workspace_shape(problem), np.nan, np.float32)
        return tuple(args)

    def xray(self, problem: Problem, seed: int = 0) -> Report:
        """The x-ray of one launch on `example`'s arguments (dwlab.xray)."""
        from dwlab.simt import xray

        how = self.launch(problem)
        arguments = self.example(problem, seed)
        return xray(self.kernel_for(problem), how.grid, how.block, *arguments, shared_bytes=how.shared_bytes)

    def source(self) -> str:
        """The text that a lesson shows: the constants and the kernel, as they stand in the stage's file."""
        return _source((_FOLDER.parents[1] / self.file).read_text(encoding="utf-8"))

    @property
    def digest(self) -> str:
        """The name of all that is launched, by which a record tells what it measured (dwlab.kernels.digests)."""
        return digests.of_kernel(self.id, self.file)

    def same_kernel(self, recorded: str | None, problem: Any = None, dtype: str = "") -> bool:
        """Whether what a record calls its kernel is what this stage launches today.

        problem, dtype: the record's; without them, of all recorded problems.
        """
        from dwlab.records import shape_text  # whoever looks up a stage does without

        text = "" if problem is None else digests.named(shape_text(problem), dtype)
        return digests.same(self.id, self.file, recorded, text)


@functools.cache
def _zero_kernel() -> Any:
    from dwlab.target import cuda

    @cuda.jit
    def zero(array):
        i = cuda.grid(1)
        if i < array.size:
            array[i] = 0

    return zero


@functools.lru_cache(64)
def _zero(blocks: int, stream: Any) -> Any:
    """The zeroing kernel, ready to be called on an array."""
    with warnings.catch_warnings():
        # Numba's word on grids too small to fill a GPU: an output of a few thousand elements has no more blocks.
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")
        return _zero_kernel()[blocks, _ZERO_THREADS, stream]


def fill_zero(array: Any, stream: Any = 0) -> None:
    """Sets a C-contiguous host or device array to 0, in order with what else runs on the stream."""
    flat = array if array.ndim == 1 else array.reshape(_product(array.shape))
    _zero(-(-flat.size // _ZERO_THREADS), stream)(flat)


@functools.cache
def _sum_kernel() -> Any:
    from numba import float32, uint32

    from dwlab.target import cuda

    @cuda.jit
    def add_up(parts, output):
        sums = cuda.shared.array((_SUM_SHARES, _SUM_LANES), float32)
        lane, share = cuda.threadIdx.x, cuda.threadIdx.y
        i = uint32(cuda.blockIdx.x * _SUM_LANES + lane)
        n = uint32(parts.shape[0])
        part = uint32(share)
        a = b = c = d = float32(0)  # four sums, so that four loads are in flight at once
        if i < output.size:
            while part + 3 * _SUM_SHARES < n:
                a += parts[part, i]
                b += parts[uint32(part + _SUM_SHARES), i]
                c += parts[uint32(part + 2 * _SUM_SHARES), i]
                d += parts[uint32(part + 3 * _SUM_SHARES), i]
                part = uint32(part + 4 * _SUM_SHARES)
            while part < n:
                a += parts[part, i]
                part = uint32(part + _SUM_SHARES)
        sums[share, lane] = (a + b) + (c + d)
        cuda.syncthreads()
        if share == 0 and i < output.size:
            total = sums[0, lane]
            for other in range(1, _SUM_SHARES):
                total += sums[other, lane]
            output[i] = total

    return add_up


@functools.lru_cache(64)
def _sum(blocks: int, stream: Any) -> Any:
    """The adding kernel, ready to be called on the parts and the output."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Grid size .* low occupancy")
        return _sum_kernel()[blocks, (_SUM_LANES, _SUM_SHARES), stream]


def add_parts(parts: Any, output: Any, stream: Any = 0) -> None:
    """output = sum of parts[0], parts[1], …, in an order that is always the same.

    parts: (n, *output's shape), both C-contiguous; in order with what else runs on the stream.
    """
    if output.ndim > 1:
        output = output.reshape(_product(output.shape))
    if parts.ndim > 2:
        parts = parts.reshape(parts.shape[0], output.size)
    _sum(-(-output.size // _SUM_LANES), stream)(parts, output)


@functools.cache
def _long_sum_kernel() -> Any:
    from numba import uint32

    from dwlab.target import cuda

    @cuda.jit
    def add_up(parts, output):
        i = uint32(cuda.blockIdx.x * _LONG_THREADS + cuda.threadIdx.x)
        if i < output.size:
            total = parts[0, i]
            for part in range(1, parts.shape[0]):
                total += parts[uint32(part), i]
            output[i] = total

    return add_up


def enqueue(how: Launch, kernel: Any, args: Sequence[Any], output: Any, parts: Any = None, stream: Any = 0) -> None:
    """Starts a launch whole: its output set to 0 if the kernel adds to it, the kernel, its parts added up.

    args: all of the kernel's, the workspace in place of the output if it leaves parts. output: the last array of the
    path, C-contiguous. parts: the workspace, (parts, *output's shape) or (parts, output's size); None where that is the
    output itself.
    """
    if how.zero:
        fill_zero(output, stream)
    allow_shared(kernel, args, how.shared_bytes)
    kernel[how.grid, how.block, stream, how.shared_bytes](*arrays_of(kernel, args))
    if parts is None:
        return
    if output.size < _LONG:
        add_parts(parts, output, stream)
    else:  # threads enough without sharing an element's parts: no block for each 32 elements
        _long_sum_kernel()[-(-output.size // _LONG_THREADS), _LONG_THREADS, stream](parts, output)


class Memory(NamedTuple):
    """A kind of arrays, as it is handed to a kernel: words(problem, name, array, view), shaped(array, shape), and
    empty(shape, like), a workspace of float32."""

    words: Callable[[Problem, str, Any, str], Any]
    shaped: Callable[[Any, tuple[int, ...]], Any]
    empty: Callable[[tuple[int, ...], Any], Any]


def _device_array(shape: tuple[int, ...], like: Any) -> Any:
    from dwlab.target import cuda

    return cuda.device_array(shape, np.float32)


DEVICE = Memory(words, lambda array, shape: array.reshape(shape), _device_array)
"""NumPy's and device arrays."""


@dataclass(frozen=True)
class Prepared:
    """A launch without its arrays. workspace: the shape of its parts, () if it has none."""

    stage: Stage
    problem: Problem
    how: Launch
    kernel: Any
    workspace: tuple[int, ...]

    def bound(self, arrays: Mapping[str, Any], memory: Memory = DEVICE, workspace: Any = None) -> Callable[[Any], None]:
        """The launch on these arrays, which are not checked: a function of the stream that only starts kernels."""
        problem, how, path = self.problem, self.how, self.stage.path
        view = self.stage.view_of(problem)
        args = [memory.words(problem, name, arrays[name], view) for name in problem.slots(path)]
        names = problem.arrays(path)
        output, parts = arrays[names[-1]], None
        flat = output
        if how.zero or how.parts:
            flat = memory.shaped(output, (_product(output.shape),))  # once: it takes longer than a launch
        if how.parts == 1 and workspace is None:
            args[len(names) - 1] = memory.shaped(output, self.workspace)
        elif how.parts:
            workspace = memory.empty(self.workspace, output) if workspace is None else workspace
            args[len(names) - 1] = memory.shaped(workspace, self.workspace)
            parts = memory.shaped(workspace, (how.parts, _product(self.workspace[1:])))
        args += how.scalars

        def start(stream: Any = 0, held: Any = workspace) -> None:
            enqueue(how, self.kernel, args, flat, parts, stream)

        return start


def _check_workspace(shape: tuple[int, ...], given: Any) -> None:
    if tuple(given.shape) != shape or str(given.dtype) != "float32" or not _c_contiguous(given):
        raise StageError(f"the workspace is {given.dtype} {tuple(given.shape)}; contiguous float32 {shape} is needed")


def check_arrays(problem: DepthwiseConv1d, path: str, arrays: dict[str, Any]) -> None:
    """Raises StageError for the first of a path's arrays that cannot be used."""
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
        wanted = problem.dtype_of(name)
        if str(array.dtype) != str(problem.storage_of(name)):
            if wanted == "bfloat16":
                raise StageError(
                    f"{name} is {array.dtype}; bfloat16 is needed, its bits in uint16: "
                    f"dwlab.problems.encode({name}, 'bfloat16')"
                )
            raise StageError(f"{name} is {array.dtype}; {wanted} is needed: {name}.astype('{wanted}')")
        if not _c_contiguous(array):
            raise StageError(
                f"{name} is not C-contiguous, its rows do not follow each other in memory: "
                f"pass numpy.ascontiguousarray({name})"
            )
        if name in problem.outputs(path) and isinstance(array, np.ndarray) and not array.flags.writeable:
            raise StageError(f"{name} is read-only, and {path} writes it: pass {name}.copy()")
        if problem.dtype == "int8" and name.startswith("m") and isinstance(array, np.ndarray):
            try:  # what is on a device already is not looked at
                check_positive(name, array)
            except ProblemError as error:
                raise StageError(str(error)) from None


def _check_address(name: str, array: Any, one: Stage) -> None:
    """A view into a device array may begin anywhere; host arrays are copied to an aligned place."""
    interface = getattr(array, "__cuda_array_interface__", None)
    # A simulated device array has no address, but its place in an allocation that is aligned.
    address = interface["data"][0] if interface is not None else getattr(array, "offset", 0)
    if address % one.aligned:
        raise StageError(
            f"{name} begins at an address that is no multiple of {one.aligned} bytes, as {one.id} needs: "
            "pass a copy of this view, or use another stage"
        )


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
    """The part of a stage file between its imports and its traffic formula, or its launch."""
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    after = next(node for node in body if getattr(node, "name", "") in ("traffic", "launch"))
    end = min(node.lineno for node in (after, *after.decorator_list))
    return "\n".join(text.splitlines()[imports[-1].end_lineno : end - 1]).strip() + "\n"


def _order(number: str) -> float:
    """A stage's place from its file's name: "2" -> 2; "2_5" -> 2.5, between 2 and 3."""
    return float(number.replace("_", ".")) if "_" in number else int(number)


_registry: dict[str, Stage] = {}


def register(
    *, kernel: Any, traffic: Callable[..., Traffic], supports: Callable[[Problem], bool] | None = None,
    otherwise: str = "", aligned: int = 1, dtypes: tuple[str, ...] = (), view: str = "shaped",
    needs: tuple[str, ...] | Mapping[str, tuple[str, ...]] = (), tiles: Tiles | None = None, lesson: str = "",
) -> Callable[[Callable], Callable]:  # fmt: skip
    """Decorates a stage file's `launch` and puts the stage on the list.

    supports, otherwise: for a kernel made by_shape that is not for every problem: which ones it is for, and the id of
    the stage that takes the others, if their rows are float32. aligned: bytes of which the arrays' addresses must be
    multiples. needs: see Stage. tiles: where the stage has a choice of tiles; its `launch` and `traffic` then take the
    tile after the problem, and so does what makes its kernel, as its last parameter, `config`. lesson: "10", the number
    of the one that teaches it, if one does. In a file of two paths `launch` and `traffic` take `reverse`, too, whether
    it is the input gradient; {path} in `otherwise` stands for the path, and the lesson is of the first one's stage.
    The launch that comes back raises StageError where its grid would be beyond the hardware's limits, and
    for rows of 16 bits that the stage does not take. Stages of layers take only what they support, of `dtypes`, and get
    their arrays in a `view` (see VIEWS). Raises StageError if the file's name is not PATH_ORDER_NAME.py, another stage
    has the same id, or it is not said which stage runs a DepthwiseConv1d that this one does not support.
    """
    if otherwise and supports is None:
        raise StageError(f"otherwise={otherwise!r} names the stage that does what this one does not: supports=?")
    if view not in VIEWS:
        raise StageError(f"view={view!r} is unknown. {nearest(view, VIEWS)}")
    takes = dtypes or dtypes_of(kernel)

    def decorate(launch: Callable[..., Launch]) -> Callable[[DepthwiseConv1d], Launch]:
        file = Path(inspect.getfile(launch)).resolve()
        match = _FILE.match(file.name)
        if not match:
            raise StageError(
                f"{file.name} is no stage file: its name must be PATH_ORDER_NAME.py, PATH one of {PATHS + KINDS}"
            )
        if supports is not None and not otherwise and file.parent.name == "depthwise1d":
            raise StageError("a stage that does not support every problem names the stage that does: otherwise=ID")
        path, *other = _PATH.findall(match[1])
        if not other:
            return add(launch, file, match, path, kernel)
        add(launch, file, match, other[0], ByShape(kernel.make, reverse=True), reverse=True)
        return add(launch, file, match, path, kernel, reverse=False)

    def add(
        launch: Callable[..., Launch], file: Path, match: re.Match[str], path: str, kernel: Any, **way: bool
    ) -> Callable[[DepthwiseConv1d], Launch]:
        made: Stage
        instead = otherwise.format(path=path)

        def applies(problem: Problem, gpu: Any = None) -> bool:
            if problem.dtype not in takes or not (supports is None or supports(problem)):
                return False
            if needs and made.lacks(problem.dtype, gpu):
                return False
            return tiles is None or not why_not(tiles, problem.kernel_key, problem.N, gpus.of(gpu))

        if otherwise:
            kernel.supports, kernel.otherwise = applies, instead

        def started(problem: Problem, *config: TileConfig, gpu: Any = None) -> Launch:
            how = launch(problem, *config, **way)
            over = limits(how, gpus.of(gpu))
            if over:
                raise StageError(f"{made.id} cannot run {problem}: {over[0]}. Use smaller sizes or another stage.")
            return how

        def moved(problem: Problem, *config: TileConfig) -> Traffic:
            return traffic(problem, *config, **way)

        def tile(problem: Problem, gpu: Any) -> tuple[TileConfig, ...]:
            return () if tiles is None else (made.config(problem, gpu),)

        @functools.wraps(launch)
        def checked(problem: DepthwiseConv1d, gpu: Any = None) -> Launch:
            made._takes(problem, gpu)
            if not applies(problem, gpu):
                return stage(instead).launch(problem, gpu)
            return started(problem, *tile(problem, gpu), gpu=gpu)

        def formula(problem: DepthwiseConv1d, gpu: Any = None) -> Traffic:
            made._takes(problem, gpu)
            if not applies(problem, gpu):
                return stage(instead).traffic(problem, gpu)
            return moved(problem, *tile(problem, gpu))

        made = Stage(
            op=file.parent.name, path=path, order=_order(match[2]), name=match[3],
            file=file.relative_to(_FOLDER.parents[1]).as_posix(), kernel=kernel, launch=checked, traffic=formula,
            summary=(sys.modules[launch.__module__].__doc__ or "").strip().split("\n")[0], supports=applies,
            aligned=aligned, dtypes=takes, view=view, needs=needs, tiles=tiles,
            tiled=None if tiles is None else Tiled(started, moved, supports or _any_problem),
            lesson="" if way.get("reverse") else lesson,
        )  # fmt: skip
        other = _registry.get(made.id)
        if other is not None and other.file != made.file:
            raise StageError(f"two stages are called {made.id}: {other.file} and {made.file}")
        _registry[made.id] = made
        return checked

    return decorate


@functools.cache
def _load() -> None:
    for file in sorted(_FOLDER.glob("*/*.py")):
        if _FILE.match(file.name):
            importlib.import_module(f"dwlab.kernels.{file.parent.name}.{file.stem}")


@functools.cache
def _files(folder: Path) -> dict[str, tuple[str, int, float]]:
    """Id of each stage -> its place in the order, from the files' names."""
    found = {}
    for file in folder.glob("*/*.py"):
        if name := _FILE.match(file.name):
            for path in _PATH.findall(name[1]):
                place = file.parent.name, (PATHS + KINDS).index(path), _order(name[2])
                found[f"{file.parent.name}/{path}/{name[3]}"] = place
    return found


def ids() -> tuple[str, ...]:
    """The ids of all stages, OP/PATH/NAME, in the order of `stages`, from their files' names: nothing is imported."""
    found = _files(_FOLDER) | {
        id: (one.op, (PATHS + KINDS).index(one.path), one.order) for id, one in _registry.items()
    }
    return tuple(sorted(found, key=lambda id: found[id]))


def stages(op: str | None = None, path: str | None = None) -> tuple[Stage, ...]:
    """All stages, or those of an op and path, in order. Raises StageError for an op or path that does not exist."""
    ops = tuple(sorted({one.partition("/")[0] for one in ids()}))
    if op is not None and op not in ops:
        raise StageError(f"there is no op {op!r}. {nearest(op, ops)}")
    if path is not None and path not in PATHS + KINDS:
        raise StageError(f"there is no path {path!r}. {nearest(path, PATHS + KINDS)}")
    _load()
    chosen = [one for one in _registry.values() if op in (None, one.op) and path in (None, one.path)]
    return tuple(sorted(chosen, key=lambda one: (one.op, (PATHS + KINDS).index(one.path), one.order)))


def stage(id: str) -> Stage:
    """The stage with this id (OP/PATH/NAME). Raises StageError with the nearest id if there is none."""
    if not isinstance(id, str):
        raise StageError(f"{id!r} is no stage's id: give a text such as {ids()[0]!r}")
    if id not in _registry and id not in ids():  # said before all stages are imported, which takes a second
        raise StageError(f"there is no stage {id!r}. {nearest(id, ids())}")
    _load()
    return _registry[id]


def describe() -> list[dict[str, Any]]:
    """One record a stage, in order: id, op, path, order, name, file, summary, lesson."""
    fields = ("id", "op", "path", "order", "name", "file", "summary", "lesson")
    return [{field: getattr(one, field) for field in fields} for one in stages()]
