"""Kernels as objects: cuda.jit, kernel[grid, block](…), and `xray`, which runs any kernel on copies and counts."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import os
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType

import numpy as np
from numba.core import serialize, sigutils
from numba.core import types as nt

from dwlab.simt import hostapi, limits, places, report, source, strands, trace, typed, types
from dwlab.simt.float64 import Watch
from dwlab.simt.interpreter import Execution
from dwlab.simt.memory import Array, Record, Root
from dwlab.simt.options import (
    HazardError,
    HazardWarning,
    LaunchError,
    Options,
    SimtError,
    UnsupportedError,
    current,
)
from dwlab.simt.order import Order
from dwlab.simt.state import Observer, Restart, Shown
from dwlab.simt.things import member, parts

# Compiler options of numba.cuda.jit that change speed, not meaning.
_COMPILER_OPTIONS = frozenset(
    ("inline", "forceinline", "fastmath", "max_registers", "opt", "debug", "lineinfo", "cache", "launch_bounds", "link",
     "lto", "boundscheck", "extensions", "fma", "prec_div", "prec_sqrt", "ftz", "nopython",
     "shared_memory_carveout")
)  # fmt: skip


# --------------------------------------------------------------------- arguments


class Binder:
    """Turns launch arguments into what the kernel sees, and knows which allocation each array lies in."""

    def __init__(self, run: Execution, copies: bool):
        self.run = run
        self.copies = copies
        self.roots: dict[int, tuple[hostapi.Allocation, Root]] = {}
        self.after: list[Callable[[], None]] = []
        self.float64 = False
        self.devices: dict[str, hostapi.DeviceNDArray] = {}  # of the arguments that are arrays
        self._copied: dict[int, hostapi.Allocation] = {}

    def bind(self, value: object, name: str, wanted: nt.Type | None = None) -> object:
        """One argument; `wanted` is its type in an explicit signature."""
        if isinstance(value, np.void):
            return self.record(value, name)
        if isinstance(value, enum.Enum):
            return member(value)
        if isinstance(value, (bool, int, float, complex, np.generic)):
            number = types.literal(value)
            if wanted is not None and not isinstance(wanted, nt.Array):
                number = types.cast(number, types.dtype_of(wanted))
            return number
        if value is None:
            return None
        if isinstance(value, tuple):
            items = [self.bind(v, f"{name}[{i}]") for i, v in enumerate(value)]
            return parts(value)[2](items)
        device = self.devices[name] = self.device_array(value, name)
        array = self.array(device, name)
        given = value.value if isinstance(value, hostapi.ArgHint) else value
        if not isinstance(given, np.ndarray) or given.flags.writeable:
            array.root.read_only = False  # of several views of one allocation one may be written
        if isinstance(wanted, nt.Array) and (
            wanted.ndim != device.ndim or types.dtype_of(wanted.dtype) != device.dtype
        ):
            raise TypeError(
                f"argument {name!r} is {device.dtype} with {device.ndim} dimension(s); the signature says {wanted}"
            )
        return array

    def record(self, value: np.void, name: str) -> Record:
        """A single record: as the only element of an array, which is copied back into it."""
        alone = np.array([value])
        array = self.array(self.device_array(alone, name), name)
        array.root.read_only = False
        if not self.copies:

            def back() -> None:
                for field in value.dtype.names:
                    value[field] = alone[0][field]

            self.after.append(back)
        return Record(array, (np.int64(0),))

    def device_array(self, value: object, name: str) -> hostapi.DeviceNDArray:
        """The simulated device array for a launch argument (for `xray`: a copy of it)."""
        if isinstance(value, (np.ndarray, hostapi.DeviceNDArray, hostapi.ArgHint)):
            pass
        elif hasattr(value, "copy_to_host"):
            value = value.copy_to_host()  # a real device's array
        elif hasattr(value, "__cuda_array_interface__"):
            from numba import cuda

            value = cuda.as_cuda_array(value)  # another library's view of an array of ours, or a real device's
            value = value if isinstance(value, hostapi.DeviceNDArray) else value.copy_to_host()
        elif self.copies and hasattr(value, "__dlpack__") and hasattr(value, "__array__"):
            value = np.asarray(value)  # a tensor in the host's memory
        try:
            device, after = hostapi.kernel_argument(value)
        except ValueError as error:
            raise ValueError(f"argument {name!r}: {error}") from None
        if not isinstance(device, hostapi.DeviceNDArray):
            raise TypeError(f"argument {name!r} is a {type(value).__name__}; a kernel takes numbers, tuples and arrays")
        if self.copies:
            return self.copy_of(device) if after is None else device
        if after is not None:
            self.after.append(after)
        return device

    def copy_of(self, device: hostapi.DeviceNDArray) -> hostapi.DeviceNDArray:
        """The same view into a copy of its allocation."""
        old = device.allocation
        new = self._copied.get(id(old))
        if new is None:
            new = hostapi.Allocation(old.nbytes, written=True)
            new.buffer[...] = old.buffer
            new.written = None if old.written is None else old.written.copy()
            self._copied[id(old)] = new
        if device.size == 0:
            return device
        storage = np.ndarray(
            device.shape, device.dtype, buffer=new.buffer, offset=device.offset, strides=device.strides
        )
        return hostapi.DeviceNDArray(storage, new)

    def array(self, device: hostapi.DeviceNDArray, name: str) -> Array:
        allocation, offset = device.allocation, device.offset
        itemsize = device.dtype.itemsize
        if not device.dtype.isnative:
            raise TypeError(f"argument {name!r}: dtype {device.dtype} has the other byte order; use .astype")
        entry = self.roots.get(id(allocation))
        if entry is None:
            root = self.run.new_root("global", allocation.buffer)
            root.initial = allocation.written
            root.check_unwritten = allocation.written is not None
            root.read_only = True
            root.kept = not self.copies
            entry = self.roots[id(allocation)] = (allocation, root)
        root = entry[1]
        if offset % itemsize or any(s % itemsize for s in device.strides):
            raise UnsupportedError(f"argument {name!r}: its elements are not aligned to their size ({itemsize} bytes)")
        if device.dtype.fields is None:
            root.granule = math.gcd(root.granule, itemsize)
        else:
            root.granule = math.gcd(root.granule, *(f[0].itemsize for f in device.dtype.fields.values()))
        if device.dtype in (types.FLOAT64, types.COMPLEX128):
            self.float64 = True
        return Array(
            root=root,
            name=name,
            dtype=device.dtype,
            shape=tuple(np.int64(n) for n in device.shape),
            strides=tuple(s // itemsize for s in device.strides),
            offset=np.int64(offset // itemsize),
        )

    def restore(self) -> None:
        """Undoes what a launch has stored."""
        for _, root in self.roots.values():
            if root.before is not None:
                root.data[...] = root.before

    def finish(self) -> None:
        """Brings results back to host arrays, and remembers which memory was written."""
        for allocation, root in self.roots.values():
            allocation.stored = allocation.stored or root.stored
            if allocation.written is None:
                continue
            if root.shadow is None:
                if not self.run.hunting:
                    allocation.written = None
                continue
            flags = np.repeat(root.shadow[trace.WRITE]["written"][0], root.granule)
            allocation.written[: len(flags)] = flags
            if flags.all() and len(flags) == allocation.nbytes:
                allocation.written = None
        for call in self.after:
            call()


# --------------------------------------------------------------------- running


def execute(
    function: FunctionType,
    grid: object,
    block: object,
    arguments: Sequence[object],
    shared_bytes: int = 0,
    options: Options | None = None,
    copies: bool = False,
    kernel: Kernel | None = None,
    kind: Callable[..., Execution] = Execution,
    observer: Observer | None = None,
) -> tuple[Execution, Binder]:
    """Runs a kernel over its whole grid. Raises LaunchError, UnsupportedError, HazardError or KernelError."""
    options = options or current()
    src = source.read(function)
    grid, block = limits.dim3(grid, "grid"), limits.dim3(block, "block")
    shared_bytes = int(shared_bytes)
    if kernel is not None and kernel.most_threads and math.prod(block) > kernel.most_threads:
        raise LaunchError(
            f"block {block} has {math.prod(block)} threads; the kernel has launch_bounds={kernel.most_threads}"
        )
    limits.check_launch(grid, block, shared_bytes, options.compute_capability)
    _check_types(src.parameters, arguments)
    if src.vararg is not None:
        raise UnsupportedError(f"{src.name} takes *{src.vararg}; a kernel's parameters have names: pass a tuple")
    if len(arguments) + len(src.defaults) < len(src.parameters) or len(arguments) > len(src.parameters):
        raise TypeError(
            f"{src.name} takes {len(src.parameters)} argument(s) ({', '.join(src.parameters)}); {len(arguments)} given"
        )
    shown = Shown()
    while True:
        run = kind(src, grid, block, options, shared_bytes)
        run.shown, run.observer = shown, observer
        if observer is not None:
            observer.begin(run)
        binder = Binder(run, copies)
        bound = _bind(run, binder, arguments, kernel)
        try:
            if shown.by_blocks:
                strands.Scheduler(run, bound).launch()
            else:
                for first, count in run.portions(_batch(run, options)):
                    run.run_batch(first, count, bound)
        except Restart:
            bound = None
        finally:
            (binder.restore if bound is None else binder.finish)()
            run.release()
        if bound is not None:
            return run, binder


def _bind(run: Execution, binder: Binder, arguments: Sequence[object], kernel: Kernel | None) -> list[object]:
    """The arguments as the kernel sees them, defaults included; decides what is watched for races, and how."""
    src, allowed = run.source, None
    chosen: Sequence[nt.Type | None] = [None] * len(src.parameters)
    if kernel is not None:
        run.debug, key = bool(kernel.options.get("debug")), tuple(_argument_type(a) for a in arguments)
        run.frozen = kernel.frozen.setdefault(key, dict(kernel.constants))
        allowed = None if binder.copies else kernel.allowed.get(key, 0)
        if kernel.arg_types:
            chosen = run.frozen.get("signature") or run.frozen.setdefault("signature", _choose(kernel.arg_types, key))
    bound = [
        binder.bind(value, name, want) for value, name, want in zip(arguments, src.parameters, chosen, strict=False)
    ]
    bound += [binder.bind(src.defaults[name], name) for name in src.parameters[len(bound) :]]
    run.arrays = {array.name: array for array in typed.arrays_in(bound)}
    run.found = typed.found(run, bound)
    limits.check_shared(run.found.shared, run.dynamic_shared, run.options.compute_capability, allowed)
    for name, array in run.arrays.items():
        if name in run.found.stored or array.root.check_unwritten:
            array.root.tracked = run.hunting
    if run.tracing and not binder.float64:
        run.watch = Watch(run)
    run.compiles &= run.watch is None and not run.debug  # which look at each operation
    _check_shadow(run, run.options)
    run.shown.exact |= any(name.startswith("threadfence") for name in run.found.names)
    if run.shown.exact and run.hunting:
        run.order = Order(run.blocks_total, run.padded)
    return bound


def _check_shadow(run: Execution, options: Options) -> None:
    """Refuses a launch whose written arrays are too large to be watched for races."""
    watched = sum(len(r.data) // r.granule * trace.BYTES for r in run.roots if r.tracked and r.granule)
    if watched > options.watch_budget:
        raise LaunchError(
            f"watching the written arrays for races takes {watched >> 20} MiB here; the limit is "
            f"{options.watch_budget >> 20} MiB: run a smaller shape, or choose simt.Options(watch_budget=…) or "
            "simt.Options(hazards='off')"
        )


@functools.cache
def _array_type(dtype: np.dtype, ndim: int) -> nt.Type:
    return nt.Array(types.numba_type(dtype), ndim, "C")


def _argument_type(value: object) -> nt.Type:
    """The Numba type of a launch argument, arrays as C-contiguous ones."""
    if hasattr(value, "ndim") and hasattr(value, "dtype") and not isinstance(value, np.generic):
        try:
            dtype = np.dtype(value.dtype)
        except TypeError:  # a tensor's is its own
            there = getattr(value, "__cuda_array_interface__", None)
            dtype = np.dtype(there["typestr"]) if there else np.asarray(value).dtype
        return _array_type(dtype.newbyteorder("="), value.ndim)
    if isinstance(value, tuple):
        return nt.Tuple([_argument_type(v) for v in value])
    return (
        types.numba_type(types.literal(value).dtype)
        if isinstance(value, (bool, int, float, complex, np.generic))
        else nt.none
    )


def _check_types(names: Sequence[str], arguments: Sequence[object]) -> None:
    """Raises TypeError for an array or number whose type no kernel has."""
    for name, value in zip(names, arguments, strict=False):
        dtype = getattr(value, "dtype", None)
        if isinstance(dtype, np.dtype) and (dtype.kind in "OSUMm" or dtype in (np.longdouble, np.clongdouble)):
            if dtype not in (np.float64, np.complex128):  # which these are where C has nothing longer
                raise TypeError(
                    f"argument {name!r}: a kernel takes no {dtype}; use a number type, as .astype(np.float32)"
                )


def _choose(signatures: Sequence[Sequence[nt.Type]], given: Sequence[nt.Type]) -> Sequence[nt.Type]:
    """The signature that Numba would take for arguments of these types."""
    chosen = types.best(signatures, given)
    if chosen is None:
        raise TypeError(
            f"no signature of the kernel takes ({', '.join(map(str, given))}); it has "
            f"{' and '.join(str(tuple(s)) for s in signatures)}"
        )
    return signatures[chosen]


def _batch(run: Execution, options: Options) -> int:
    """Blocks to run at once: up to options.lanes threads within the memory budget; all of them for a grid barrier."""
    shadow = 1 + trace.BYTES // 4 if run.hunting else 1  # host bytes per shared byte, for 4-byte elements
    per_block = (run.found.shared + run.dynamic_shared) * shadow + run.padded * (run.found.local * 2 + 256)
    most = max(1, options.memory_budget // max(1, per_block))
    if "this_grid" in run.found.names:
        if run.blocks_total > most:
            raise LaunchError(
                f"a grid barrier needs all {run.blocks_total} blocks at once, about "
                f"{run.blocks_total * per_block >> 20} MiB here; the memory budget is "
                f"{options.memory_budget >> 20} MiB: launch fewer blocks"
            )
        return run.blocks_total
    return max(1, min(run.blocks_total, most, options.lanes // run.padded))


def _execute_briefly(*arguments: object, **options: object) -> tuple[Execution, Binder]:
    """`execute`, whose errors show the launch and the kernel's line, not the interpreter's own frames.

    DWLAB_TRACEBACK=full in the environment shows all of them.
    """
    __tracebackhide__ = True  # IPython and pytest leave out such frames
    try:
        return execute(*arguments, **options)
    except (SimtError, TypeError, ValueError) as error:
        if os.environ.get("DWLAB_TRACEBACK") == "full":
            raise
        raise error.with_traceback(places.marked(error)) from None


class Kernel:
    """A function under @cuda.jit: a kernel to be launched with kernel[grid, block](…), or a device function."""

    def __init__(
        self,
        function: FunctionType,
        device: bool = False,
        signatures: Sequence[Sequence[nt.Type]] = (),
        launch_bounds: int | tuple[int, ...] | None = None,
        device_signatures: Sequence[tuple[tuple[nt.Type, ...], nt.Type | None]] = (),
        options: dict[str, object] | None = None,
    ):
        self.py_func = function
        self.options = options or {}  # the compiler's, of no effect here
        self.device_signatures = tuple(device_signatures)
        self.specializations: dict[tuple, Kernel] = {}
        self.extensions = list(self.options.get("extensions") or ())
        self.frozen: dict[tuple, dict] = {}  # what globals were at the first launch with arguments of these types
        self.allowed: dict[tuple, int] = {}  # argument types -> bytes of dynamic shared memory that were allowed
        self.device = device
        self.most_threads = launch_bounds[0] if isinstance(launch_bounds, tuple) else launch_bounds
        self.arg_types = tuple(tuple(s) for s in signatures)
        # What is compiled at once keeps the globals of now.
        self.constants = source.constants_now(function) if signatures or device_signatures else {}
        functools.update_wrapper(self, function)

    def __getitem__(self, configuration: object) -> Configured:
        if self.device:
            raise TypeError(f"{self.__name__} is a device function: call it from a kernel, do not launch it")
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not 2 <= len(parts) <= 5:
            raise ValueError(
                "a launch needs kernel[grid, block], optionally with a stream and dynamic shared memory bytes"
            )
        grid, block, stream, shared = (*parts, 0, 0)[:4]
        return self.configure(grid, block, stream, shared)

    def configure(self, griddim: object, blockdim: object, stream: object = 0, sharedmem: int = 0) -> Configured:
        """The same as kernel[griddim, blockdim, stream, sharedmem]."""
        return Configured(self, limits.dim3(griddim, "grid"), limits.dim3(blockdim, "block"), sharedmem, stream)

    def forall(self, ntasks: int, tpb: int = 0, stream: object = 0, sharedmem: int = 0) -> Callable[..., None]:
        """A launch with at least `ntasks` threads in one dimension; `tpb` threads a block (0: chosen here)."""
        if ntasks < 0:
            raise ValueError(f"Can't create ForAll with negative task count: {ntasks}")
        if ntasks == 0:
            return lambda *args: None
        threads = tpb or 128
        return self[-(-ntasks // threads), threads, stream, sharedmem]

    def allow_shared(self, args: Sequence[object], nbytes: int) -> None:
        """Allows dynamic shared memory beyond the default, as dwlab.gpu.driver.allow_shared does; see there."""
        key = tuple(_argument_type(a) for a in args)
        self.allowed[key] = max(self.allowed.get(key, 0), nbytes)

    def specialize(self, *args: object) -> Kernel:
        """The kernel for arguments of these types alone, or of these types themselves."""
        if self.arg_types:
            raise RuntimeError("Dispatcher already specialized")
        key = tuple(a if isinstance(a, nt.Type) else _argument_type(a) for a in args)
        if key not in self.specializations:
            self.specializations[key] = Kernel(self.py_func, signatures=[key], options=self.options)
        return self.specializations[key]

    def __call__(self, *args: object) -> None:
        if self.device:
            raise TypeError(f"{self.__name__} is a device function and can be called from a kernel only")
        raise ValueError(
            "Kernel launch configuration was not specified. Use the syntax:\n\n"
            f"{self.__name__}[blockspergrid, threadsperblock](…)"
        )

    def __getattr__(self, name: str) -> object:
        if name.startswith(("inspect_", "get_")) or name in ("overloads", "compile", "stats"):
            raise AttributeError(
                f"{name} is about compiled code; the laptop GPU executes Python source and compiles nothing"
            )
        raise AttributeError(name)

    def __reduce__(self) -> tuple:
        """Pickled with its function's code; its source is read from the same file."""
        bounds = self.options.get("launch_bounds")
        made = self.py_func, self.device, self.arg_types, bounds, self.device_signatures, self.options
        return _unpickled, (serialize.dumps(made),)

    def __repr__(self) -> str:
        return f"<{'device function' if self.device else 'kernel'} {self.__name__} on the laptop GPU>"


def _unpickled(made: bytes) -> Kernel:
    return Kernel(*pickle.loads(made))


LAUNCHED: list[Callable[[report.Report], None]] = []
"""Called after each launch with its report, whose counts are 0 where the options say trace=False."""


@dataclasses.dataclass(frozen=True)
class Configured:
    """A kernel with its launch configuration; calling it runs it to the end, in whichever stream."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    sharedmem: int = 0
    stream: object = 0

    def __call__(self, *args: object, **named: object) -> None:
        __tracebackhide__ = True
        if named:
            raise TypeError(f"a kernel takes its arguments by position; {', '.join(named)}: given by name")
        for one in reversed(self.kernel.extensions):
            args = [one.prepare_args(_argument_type(a), a, stream=self.stream, retr=[])[1] for a in args]
        run, binder = _execute_briefly(
            self.kernel.py_func, self.grid, self.block, args, self.sharedmem, kernel=self.kernel
        )
        if run.options.hazards == "warn":
            for hazard in run.trace.hazards.values():
                warnings.warn(f"{self.kernel.__name__}, {hazard}", HazardWarning, stacklevel=2)
        if LAUNCHED:
            found = report.build(run, binder.float64)
            for heard in LAUNCHED:
                heard(found)


def jit(
    func_or_sig: object = None, device: bool = False, **options: object
) -> Kernel | Callable[[FunctionType], Kernel]:
    """cuda.jit in all its forms: bare, with options, with one signature or several, for kernels and device functions.

    Compiler options (fastmath, max_registers, launch_bounds, …) are accepted and change nothing here. Raises TypeError
    for an option that numba.cuda.jit does not have.
    """
    for gone in ("argtypes", "restype", "bind"):
        if gone in options:
            raise TypeError(f"cuda.jit has no option {gone!r} any more; give a signature instead")
    if unknown := set(options) - _COMPILER_OPTIONS - {"signature"}:
        raise TypeError(f"cuda.jit has no option {sorted(unknown)[0]!r}")
    if options.get("boundscheck"):
        raise NotImplementedError("bounds checking is not supported for CUDA; dwlab.simt always checks bounds")
    func_or_sig = options.get("signature", func_or_sig)
    bounds = options.get("launch_bounds")
    kept = {name: value for name, value in options.items() if name != "signature"}
    if isinstance(func_or_sig, FunctionType):
        return Kernel(func_or_sig, device, launch_bounds=bounds, options=kept)
    if isinstance(func_or_sig, Kernel):
        raise TypeError("this function has been through cuda.jit already")
    signatures = []
    if func_or_sig is not None:
        if callable(func_or_sig) and not sigutils.is_signature(func_or_sig):
            raise TypeError(f"cuda.jit takes a Python function, not {type(func_or_sig).__name__}")
        given = func_or_sig if isinstance(func_or_sig, list) else [func_or_sig]
        for one in given:
            arguments, result = sigutils.normalize_signature(one)
            if result not in (None, nt.void) and not device:
                raise TypeError("CUDA kernel must have void return type.")
            signatures.append((arguments, result))
    if device:
        return lambda function: Kernel(function, True, device_signatures=signatures, options=kept)
    return lambda function: Kernel(function, False, [arguments for arguments, _ in signatures], bounds, options=kept)


def xray(
    kernel: object,
    grid: object,
    block: object,
    *args: object,
    shared_bytes: int = 0,
    options: Options | None = None,
    compiled: Callable[..., Mapping] | None = None,
    keep: bool = False,
    in_place: bool = False,
    observer: Observer | None = None,
) -> report.Report:
    """Runs any kernel on copies of its arguments and reports what it did, line by line and array by array.

    kernel: what @cuda.jit made, in either mode, or a plain function.  grid, block: as in kernel[grid, block].
    args: numbers, tuples, NumPy arrays, device arrays, PyTorch's tensors; left as they were.
    shared_bytes: dynamic shared memory.
    options: see Options; hazards are collected in the report instead of raised unless `options` says otherwise.
    compiled: what compiles a kernel (dwlab.compiler.inspect.accesses): the loads and stores that the compiler left are
    shown beside the counted ones (Report.compiled), as it merges repeated ones and takes some out of loops. Called as
    compiled(kernel, arguments, compute capability, block), it gives (file, line) -> loads, stores, atomics, looped.
    keep: keep what the arrays held afterwards (Report.outputs, by the parameters' names).
    in_place: run on the arguments themselves, as a launch does.
    observer: an object that hears of each access (see `Observer`).
    Returns a Report. Raises LaunchError, UnsupportedError, StepLimitError or KernelError, and what `compiled` raises.
    """
    __tracebackhide__ = True
    if options is None:
        options = dataclasses.replace(current(), hazards="report", trace=True)
    elif not options.trace:
        options = dataclasses.replace(options, trace=True)
    known = kernel_of(kernel)
    run, binder = _execute_briefly(
        known.py_func, grid, block, args, shared_bytes, options, copies=not in_place, kernel=known, observer=observer
    )
    found = report.build(run, binder.float64)
    if keep:
        found = dataclasses.replace(found, outputs={name: one.copy_to_host() for name, one in binder.devices.items()})
    if compiled is None:
        return found
    jitted = Kernel(known.py_func, options={**known.options, "lineinfo": True})
    given = [np.asarray(a) if isinstance(a, np.void) else a for a in args]
    code = compiled(jitted, given, options.compute_capability, block)
    return dataclasses.replace(found, compiled=_beside(found, run, code))


def _beside(
    found: report.Report, run: Execution, code: Mapping[tuple[str, int], object]
) -> tuple[report.CompiledLine, ...]:
    """The lines of a report that access memory, each with what the compiled code has there."""
    loops, own = source.lines_in_loops(run.source), source.short_file(run.source.file)
    names = {source.short_file(path): os.path.basename(path) for path, _ in run.trace.lines}
    out = []
    for line in found.lines:
        mine = [a for a in found.accesses if (a.line, a.file) == (line.line, line.file) and a.space != "local"]
        there = code.get((names.get(line.file, line.file), line.line))
        counted = {kind: sum(a.requests for a in mine if a.kind == kind) / max(1, line.warps)
                   for kind in ("load", "store", "atomic")}  # fmt: skip
        numbers = [getattr(there, kind, 0) for kind in ("loads", "stores", "atomics")]
        if not any(numbers) and not any(counted.values()):
            continue
        total, each = sum(numbers), sum(counted.values())
        inside = line.file == own and line.line in loops
        note = ""
        if each and not total:
            note = "merged with those of other lines, or taken out of a loop"
        elif total < each - 0.01:
            note = "some are merged with others, or taken out of a loop"
        elif inside and not getattr(there, "looped", 0):
            note = "taken out of the loop, or the loop is unrolled" if total <= each + 0.01 else "the loop is unrolled"
        elif total > each + 0.01:
            note = "the loop is unrolled" if inside else "the line is there more than once"
        out.append(report.CompiledLine(line.line, line.file, *numbers, *counted.values(), note))
    rest = [one for (_, line), one in code.items() if line == 0]
    if rest:
        numbers = [sum(getattr(one, kind) for one in rest) for kind in ("loads", "stores", "atomics")]
        out.append(
            report.CompiledLine(0, "", *numbers, 0, 0, 0, "of no line: merged of several, or taken out of a loop")
        )
    return tuple(out)


def kernel_of(made: object) -> Kernel:
    """The laptop GPU's kernel of what any cuda.jit made (its own, numba.cuda's, numba_cuda_mlir's) or of a function.

    A signature and launch bounds hold here, too. Raises TypeError for anything else, and for a device function.
    """
    if type(made) is Kernel and not made.device:
        return made
    function, given = getattr(made, "py_func", made), getattr(made, "targetoptions", {})
    if isinstance(made, Configured):
        raise TypeError("give the kernel itself, and its grid and block as arguments: xray(kernel, grid, block, …)")
    if getattr(made, "device", False) is True or given.get("device"):
        raise TypeError(f"{made.__name__} is a device function: x-ray a kernel that calls it")
    if not isinstance(function, FunctionType):
        raise TypeError(f"xray takes a kernel, not {type(made).__name__}")
    kept = {name: value for name, value in given.items() if name in _COMPILER_OPTIONS and value is not None}
    # What was made with signatures has these compiled, and compiles no others.
    listed = () if getattr(made, "_can_compile", True) else made.overloads
    signatures = [[types.as_numba(one) for one in each] for each in listed]
    return Kernel(function, False, signatures, given.get("launch_bounds"), options=kept)


def run_counted(
    kernel: object,
    grid: object,
    block: object,
    args: Sequence[object],
    shared_bytes: int,
    options: Options,
    kind: Callable[..., Execution] = Execution,
) -> tuple[Execution, bool]:
    """(what a launch on copies of its arguments left, whether an argument is a float64 array). Errors as `xray`'s."""
    known = kernel_of(kernel)
    run, binder = _execute_briefly(known.py_func, grid, block, args, shared_bytes, options, True, known, kind)
    return run, binder.float64


__all__ = ["LAUNCHED", "Configured", "HazardError", "Kernel", "execute", "jit", "kernel_of", "xray"]
