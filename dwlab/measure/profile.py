"""`with profile() as p:` records what the program in the block has the GPU do; afterwards `p.timeline` says it.

On a GPU each call of numba.cuda's that copies, launches or waits, and each operation of PyTorch's on the GPU, stands
between two events on its stream, and between two looks at the host's clock. Nothing is counted by the hardware, so this
runs wherever kernels run, in a cloud too. The events cost some µs of the host a call: a program of very short kernels
is slower while it is profiled, and `profile` says so in a note. In simulated mode items have order, dependencies and
bytes, by the rules of CUDA's streams: a stream's items are done in order; the default stream waits for all others, and
they for it; an event's waiters wait for what it recorded; what the host has waited for is done before its next call.

Each item is an NVTX range as well, where the package nvtx or PyTorch's NVTX is there, so that Nsight Systems shows the
same names. Put programs in twice: what a first run compiles and loads would be most of the picture.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dwlab import target
from dwlab.kernels.dispatch import current_stream
from dwlab.measure import timeline as lines
from dwlab.measure.timeline import Item, Timeline

DEFAULT = "default"  # the label of the default stream


class ProfileError(RuntimeError):
    """A profile that cannot be begun, or is not there yet."""


class Profile:
    """A recorded block: `timeline` once it has ended. Shown, printed and saved as its time line is."""

    def __init__(self) -> None:
        self._timeline: Timeline | None = None
        self._recorder: Any = None
        self._incomplete = "read it after the with block"

    @property
    def timeline(self) -> Timeline:
        """The time line. Raises ProfileError within the block, and after one that ended with an exception."""
        if self._timeline is None:
            raise ProfileError(f"the profile is not complete: {self._incomplete}")
        return self._timeline

    @contextlib.contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Names a part of the program: a line in the host's lane, and an NVTX range."""
        if self._recorder is None:
            raise ProfileError("a range is a part of a profile: use it within the with block")
        with self._recorder.ranged(name):
            yield

    def save(self, path: Any) -> Any:
        """Writes the time line as one HTML file; returns its path."""
        return self.timeline.save(path)

    def __str__(self) -> str:
        return str(self.timeline) if self._timeline else f"a profile that is not complete: {self._incomplete}"

    def _repr_html_(self) -> str:
        return self.timeline._repr_html_()


_running = False


@contextlib.contextmanager
def profile() -> Iterator[Profile]:
    """Records the kernels, copies and waits of a block of code. Raises ProfileError for a profile within a profile."""
    global _running
    if _running:
        raise ProfileError("a profile is being recorded already: end its with block first")
    made = Profile()
    recorder = made._recorder = OnGpu() if target.mode == "gpu" else Simulated()
    _running = True
    try:
        with contextlib.ExitStack() as undo:
            recorder.patch(undo)
            recorder.begin()
            yield made
            recorder.end()
    except BaseException as error:
        made._incomplete = f"its block ended with {type(error).__name__}"
        raise
    finally:
        _running, made._recorder = False, None
    made._timeline = recorder.timeline()


# ------------------------------------------------------------------------------------------------------------ recording


def _nvtx() -> tuple[Callable[[str], Any], Callable[[], Any]]:
    """Functions that begin and end an NVTX range: the package's, PyTorch's, or nothing."""
    with contextlib.suppress(ImportError):
        nvtx = importlib.import_module("nvtx")
        return nvtx.push_range, nvtx.pop_range
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    return lambda name: None, lambda: None


class _Thread(threading.local):
    """How many calls a thread is inside of, and its last item."""

    inside = 0
    last: tuple[int, ...] = ()


class Recorder:
    """The part of both modes: items in order, streams by label, ranges, and calls that are watched."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.labels: dict[Any, str] = {0: DEFAULT}
        self.push, self.pop = _nvtx()
        self.own = _Thread()
        self.appending = threading.RLock()
        self.started = 0.0

    @contextlib.contextmanager
    def quiet(self, name: str) -> Iterator[None]:
        """A call of a name, for NVTX; what it calls itself makes no items of its own."""
        self.push(name)
        self.own.inside += 1
        try:
            yield
        finally:
            self.own.inside -= 1
            self.pop()

    def label(self, key: Any) -> str:
        """A stream's label, numbered in the order of their first use."""
        with self.appending:
            return self.labels.setdefault(key, f"stream {len(self.labels)}")

    def now(self) -> float:
        """µs since the begin."""
        return 1e6 * (time.perf_counter() - self.started)

    def watch(self, undo: contextlib.ExitStack, owner: Any, name: str, handle: Callable[..., Any]) -> None:
        """Calls of owner.name are calls of handle(what it was, …), until the profile ends."""
        old, own = getattr(owner, name), name in vars(owner)
        setattr(owner, name, lambda *args, **more: handle(old, *args, **more))
        undo.callback(setattr if own else lambda owner, name, _: delattr(owner, name), owner, name, old)

    def begin(self) -> None:
        self.started = time.perf_counter()

    def end(self) -> None:
        """Nothing to wait for."""

    @contextlib.contextmanager
    def ranged(self, name: str) -> Iterator[None]:
        self.push(name)
        item: dict[str, Any] = {"kind": lines.RANGE, "name": name}
        with self.appending:
            self.items.append(item)
        start = self.now()
        try:
            yield
        finally:
            self.pop()
            item["host"] = (start, self.now())


# ------------------------------------------------------------------------------------------------------------ simulated


class Simulated(Recorder):
    """Order, dependencies and bytes of calls to dwlab.simt."""

    def __init__(self) -> None:
        super().__init__()
        self.so_far: dict[Any, tuple[int, ...]] = {}  # stream -> its last item, and what it waits for since then
        self.events: dict[int, tuple[int, ...]] = {}
        self.kept: list[Any] = []  # events, whose ids must stay theirs
        self.host: tuple[int, ...] = ()  # what the host, all its threads together, has waited for

    @contextlib.contextmanager
    def ranged(self, name: str) -> Iterator[None]:
        """Its item comes last, and has those of the block in place of a time."""
        self.push(name)
        first = len(self.items)
        try:
            yield
        finally:
            self.pop()
            with self.appending:
                within = [k for k in range(first, len(self.items)) if self.items[k]["kind"] != lines.RANGE]
                self.items.append({"kind": lines.RANGE, "name": name, "after": tuple(within)})

    def patch(self, undo: contextlib.ExitStack) -> None:
        from dwlab.simt import Configured, cuda

        def waits(owner: Any, what: str, of: Callable[..., tuple[int, ...]]) -> None:
            self.watch(undo, owner, "synchronize", lambda old, *own: self.wait(what, of(*own), lambda: old(*own)))

        for owner, name, handle in (
            (cuda, "to_device", self.to_device),
            *((kind, "copy_to_device", self.filled) for kind in (cuda.DeviceNDArray, cuda.DeviceRecord)),
            *((kind, "copy_to_host", self.read) for kind in (cuda.DeviceNDArray, cuda.DeviceRecord)),
            (cuda.DeviceNDArray, "getitem", self.element),
            (cuda.DeviceNDArray, "setitem", self.assigned),
            (Configured, "__call__", self.launched),
            (cuda.Event, "record", self.recorded),
            (cuda.Event, "wait", self.awaited),
        ):
            self.watch(undo, owner, name, handle)
        waits(cuda, "cuda.synchronize", lambda: self.of_stream(0))
        waits(type(cuda.current_context()), "context.synchronize", lambda context: self.of_stream(0))
        waits(cuda.Event, "event.synchronize", lambda event: self.events.get(id(event), ()))
        waits(cuda.Stream, "stream.synchronize", self.of_stream)

    def to_device(self, old: Any, obj: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
        from dwlab.simt import cuda

        if not copy or self.own.inside or cuda.is_cuda_array(obj):
            return old(obj, stream, copy, to)
        host = np.asarray(obj)
        return self.copy("to device", host, stream, host.nbytes, lambda: old(obj, stream, copy, to))

    def filled(self, old: Any, array: Any, ary: Any, stream: Any = 0) -> Any:
        kind = "on device" if _is_there(ary) else "to device"
        return self.copy(kind, ary, stream or array.stream, array.nbytes, lambda: old(array, ary, stream))

    def read(self, old: Any, array: Any, ary: Any = None, stream: Any = 0) -> Any:
        return self.copy("to host", ary, stream or array.stream, array.nbytes, lambda: old(array, ary, stream))

    def element(self, old: Any, array: Any, item: Any, stream: Any = 0) -> Any:
        given = old(array, item, stream)
        if self.own.inside or _is_there(given):
            return given
        return self.copy("to host", None, stream or array.stream, given.nbytes, lambda: given)

    def assigned(self, old: Any, array: Any, key: Any, value: Any, stream: Any = 0) -> None:
        old(array, key, value, stream)
        if self.own.inside:
            return
        stream = stream or array.stream
        if not _is_there(value):
            self.copy("to device", value, stream, np.asarray(value).nbytes, _nothing)
        self.done(lines.KERNEL, "assign", stream)
        if not stream:
            self.wait("stream.synchronize", self.of_stream(stream), _nothing)

    def launched(self, old: Any, configured: Any, *args: Any) -> Any:
        from dwlab.simt import cuda

        if self.own.inside:
            return old(configured, *args)
        name = configured.kernel.__name__
        with self.quiet(name):
            given = old(configured, *args)
        stream = self.key(configured.stream)
        arrays = [getattr(one, "value", one) for one in args]
        mine = [(hint, one) for hint, one in zip(args, arrays, strict=True) if type(one) is np.ndarray]
        for hint, one in mine:
            if not isinstance(hint, cuda.Out):
                self.copy("to device", one, stream, one.nbytes, _nothing)
        self.done(lines.KERNEL, name, stream)
        for hint, one in mine:
            if not isinstance(hint, cuda.In) and one.flags.writeable:
                self.copy("to host", one, stream, one.nbytes, _nothing)
        return given

    def recorded(self, old: Any, event: Any, stream: Any = 0) -> None:
        self.kept.append(event)
        self.events[id(event)] = self.of_stream(stream)
        old(event, stream)

    def awaited(self, old: Any, event: Any, stream: Any = 0) -> None:
        key = self.key(stream)
        self.so_far[key] = (*self.so_far.get(key, ()), *self.events.get(id(event), ()))
        old(event, stream)

    def key(self, stream: Any) -> Any:
        """0 of the default stream, in all of its names."""
        handle = getattr(stream, "handle", stream)
        return 0 if not handle or handle == 1 else handle

    def of_stream(self, stream: Any, *others: Any) -> tuple[int, ...]:
        """Items to be done for a stream to have come as far as it was told to; the default one waits for all."""
        keys = [key, *others] if (key := self.key(stream)) else list(self.so_far)
        return tuple(sorted({number for one in keys for number in self.so_far.get(one, ())}))

    def copy(self, kind: str, host: Any, stream: Any, nbytes: int, do: Callable[[], Any]) -> Any:
        """A copy; where it goes through pageable memory, or has no stream, the host waits for it."""
        if self.own.inside:
            return do()
        from dwlab.simt import cuda

        key, fast = self.key(stream), cuda.is_pinned(host)
        name = kind if kind == "on device" else f"{'pinned' if fast else 'pageable'} copy"
        with self.quiet(name):
            given = do()
        self.done(kind, name, key, nbytes)
        if kind != "on device" and not (fast and key):
            self.host = self.own.last
        return given

    def wait(self, what: str, of: tuple[int, ...], do: Callable[[], Any]) -> Any:
        """A wait of the host for these items."""
        if not self.own.inside:
            self.host = self.item({"kind": lines.WAIT, "name": what}, of)
        return do()

    def done(self, kind: str, name: str, stream: Any, nbytes: int = 0) -> None:
        """A call on a stream that was made."""
        key = self.key(stream)
        item = {"kind": kind, "name": name, "stream": self.label(key), "bytes": nbytes}
        with self.appending:
            self.own.last = self.so_far[key] = self.item(item, self.of_stream(key, 0))

    def item(self, item: dict[str, Any], after: tuple[int, ...]) -> tuple[int]:
        """Appends an item, behind others and what the host has waited for; its number."""
        with self.appending:
            self.items.append(item | {"after": tuple(sorted({*after, *self.host}))})
            return (len(self.items) - 1,)

    def timeline(self) -> Timeline:
        where = "dwlab.simt (simulated)"
        return Timeline(tuple(Item(**one) for one in self.items), where)


# --------------------------------------------------------------------------------------------------------------- a GPU


class OnGpu(Recorder):
    """Times of calls to numba.cuda and PyTorch, by events and the host's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.cuda = target.cuda
        self.cuda.current_context()
        self.base: Any = None
        self.unused: list[Any] = []
        self.wall = self.offset = 0.0

    def patch(self, undo: contextlib.ExitStack) -> None:
        from numba.cuda import dispatcher
        from numba.cuda.cudadrv import driver

        # Where all copies come by: those of device arrays, and of host arrays that a launch is given.
        for way, kind in (("HtoD", "to device"), ("DtoH", "to host"), ("DtoD", "on device")):
            for name in (f"cuMemcpy{way}", f"cuMemcpy{way}Async"):
                self.watch(undo, driver.driver, name, functools.partial(self.copied, kind))
        self.watch(undo, dispatcher._Kernel, "launch", self.launched)
        for owner, what in ((driver.Context, "context"), (driver.Stream, "stream"), (driver.Event, "event")):
            self.watch(undo, owner, "synchronize", functools.partial(self.waited, f"{what}.synchronize"))
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            self.patch_torch(undo, torch)

    def copied(self, kind: str, old: Any, dst: Any, src: Any, size: int, *handle: Any) -> Any:
        stream = self.cuda.external_stream(int(handle[0])) if handle and int(handle[0]) else 0
        return self.call(kind, f"copy {kind}", stream, int(size), lambda: old(dst, src, size, *handle))

    def launched(
        self, old: Any, kernel: Any, args: Any, grid: Any, block: Any, stream: Any = 0, shared: int = 0
    ) -> Any:
        name = getattr(getattr(kernel, "py_func", None), "__name__", "kernel")
        return self.call(lines.KERNEL, name, stream, 0, lambda: old(kernel, args, grid, block, stream, shared))

    def waited(self, what: str, old: Any, *args: Any, **more: Any) -> Any:
        return self.call(lines.WAIT, what, None, 0, lambda: old(*args, **more))

    def replayed(self, old: Any, graph: Any) -> Any:
        return self.call(lines.KERNEL, "CUDA graph", current_stream(), 0, lambda: old(graph))

    def patch_torch(self, undo: contextlib.ExitStack, torch: Any) -> None:
        """Operations on tensors of the GPU, replays of graphs, and waits."""
        from torch.utils._python_dispatch import TorchDispatchMode

        recorder = self

        class Watched(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                kwargs = kwargs or {}
                kind, nbytes = recorder.kind_of(torch, func, args, kwargs)
                if not kind or torch.cuda.is_current_stream_capturing():
                    return func(*args, **kwargs)
                name = str(func.overloadpacket).replace("aten.", "")
                given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
                blocking = kind in ("to device", "to host") and not given.get("non_blocking", False)
                do = lambda: func(*args, **kwargs)  # noqa: E731
                return recorder.call(kind, name, current_stream(), nbytes, do, blocking)

        self.watch(undo, torch.cuda.CUDAGraph, "replay", self.replayed)
        self.watch(undo, torch.cuda, "synchronize", functools.partial(self.waited, "torch.cuda.synchronize"))
        undo.enter_context(Watched())

    def kind_of(self, torch: Any, func: Any, args: Any, kwargs: Any) -> tuple[str, int]:
        """The kind of an operation of PyTorch's, and the bytes that it copies between host and device; "" if it has the
        GPU do nothing.
        """
        tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
        tensors += [one for group in args if isinstance(group, (list, tuple)) for one in group
                    if isinstance(one, torch.Tensor)]  # fmt: skip
        name = str(func.overloadpacket)
        view = getattr(func, "is_view", False) and name != "aten.to"  # which may be one
        if view or name in _NO_KERNEL or name.startswith("aten.empty"):
            return "", 0
        if name in ("aten._to_copy", "aten.to") and tensors:
            one, wanted = tensors[0], [*args[1:], *kwargs.values()]
            devices = [each.device if isinstance(each, torch.Tensor) else each for each in wanted]
            goes = next((each.type == "cuda" for each in devices if isinstance(each, torch.device)), one.is_cuda)
            same = goes == one.is_cuda and all(each == one.dtype for each in wanted if isinstance(each, torch.dtype))
            return ("" if same and name == "aten.to" else _direction(one.is_cuda, goes)), one.nbytes
        if name == "aten.copy_" and len(tensors) == 2:
            return _direction(tensors[1].is_cuda, tensors[0].is_cuda), tensors[1].nbytes
        if name == "aten._local_scalar_dense":
            return ("to host" if tensors[0].is_cuda else ""), tensors[0].nbytes
        return (lines.KERNEL if any(one.is_cuda for one in tensors) else ""), 0

    def begin(self) -> None:
        self.own.inside += 1  # no items of what follows
        self.unused = [self.cuda.event(timing=True) for _ in range(EVENTS)]
        self.cuda.synchronize()
        self.started = time.perf_counter()
        self.base = self.event(0)
        sure = float("inf")
        for _ in range(CALIBRATIONS):  # an event lies between the host's looks before and after it
            before, event = self.now(), self.event(0)
            event.synchronize()
            after = self.now()
            if after - before < sure:
                sure = after - before
                self.offset = (before + after) / 2 - 1e3 * self.cuda.event_elapsed_time(self.base, event)
        self.own.inside -= 1
        started = time.perf_counter()
        self.offset -= 1e6 * (started - self.started)
        self.started = started

    def end(self) -> None:
        self.cuda.synchronize()
        self.wall = self.now()

    def event(self, stream: Any) -> Any:
        """An event, recorded: one that was made ahead, as long as there are any."""
        made = self.unused.pop() if self.unused else self.cuda.event(timing=True)
        made.record(stream)
        return made

    def call(
        self, kind: str, name: str, stream: Any, nbytes: int, do: Callable[[], Any], blocking: bool = False
    ) -> Any:
        """blocking: the host is held until the device is done."""
        if self.own.inside and kind == lines.WAIT:
            return do()
        thread = threading.get_ident()
        item: dict[str, Any] = {"kind": kind, "name": name, "bytes": nbytes, "stream": "", "thread": thread}
        with self.appending:
            number = len(self.items)
            self.items.append(item)
        with self.quiet(name):
            if stream is not None:
                item |= {"stream": self.label(_handle(stream)), "first": self.event(stream), "blocking": blocking}
            start = self.now()
            try:
                given = do()
            finally:
                item["host"] = (start, self.now())
        if stream is not None:
            item["last"] = self.event(stream)
            # Copies of host arrays, within the launch that they are for.
            for one in (one for one in self.items[number + 1 :] if one.get("thread") == thread):
                item["around"] = True
                if one["kind"] == "to device":
                    item["first"] = one["last"]
                elif one["kind"] == "to host":
                    item["last"] = one["first"]
                    break
        return given

    def span(self, item: dict[str, Any]) -> tuple[float, float]:
        """When the device was at an item's work, by the host's clock.

        A stream without work passes the first event at once, while the host still prepares the call. So work counts
        from the end of its call at the earliest, and that of a call that holds the host to its end at the latest.
        """
        first, last = item.pop("first"), item.pop("last")
        start, end = (1e3 * self.cuda.event_elapsed_time(self.base, one) + self.offset for one in (first, last))
        called, returned = item["host"]
        if item.pop("blocking"):
            start = max(start, called)
            return start, max(start, min(end, returned))
        if not item.pop("around", False):
            start = max(start, min(returned, end))
        return start, max(start, end)

    def timeline(self) -> Timeline:
        from dwlab.gpu import machine

        made = []
        for item in self.items:
            if "last" in item:
                item["device"] = self.span(item)
            made.append(Item(**{name: value for name, value in item.items() if name in _FIELDS}))
        notes = (NOTE,) if self.unused else (NOTE, MADE)
        return Timeline(tuple(made), machine.present().name, self.wall, notes)


NOTE = (
    "By events and the host's clock, which agree to some µs. Two events a call cost the host some µs and lengthen what "
    "the GPU waits for it. Work counts from the end of its call, so kernels of a few µs are known to a few µs."
)
MADE = (
    "The program has more calls than events were made for ahead. To make one while it runs costs the host more, and "
    "kernels seem longer: profile a smaller part."
)
EVENTS, CALIBRATIONS = 4096, 8  # events made ahead: making one while a program runs costs it time
_FIELDS = frozenset(one.name for one in dataclasses.fields(Item))
_NO_KERNEL = frozenset(
    f"aten.{name}"
    for name in (
        "detach", "view", "_unsafe_view", "alias", "set_", "resize_", "record_stream", "is_pinned", "_pin_memory",
        "lift_fresh", "flatten", "reshape", "unflatten",
    )
)  # fmt: skip


def _nothing() -> None:
    """Does what is left to do of a call that was made before."""


def _is_there(array: Any) -> bool:
    """Whether an array lies in the simulated GPU's memory."""
    from dwlab.simt import cuda

    return isinstance(array, (cuda.DeviceNDArray, cuda.DeviceRecord))


def _direction(from_device: bool, into_device: bool) -> str:
    if from_device != into_device:
        return "to device" if into_device else "to host"
    return "on device" if into_device else ""


def _handle(stream: Any) -> int:
    """0 of the default stream."""
    if isinstance(stream, int):
        return stream
    given = stream.__cuda_stream__() if hasattr(stream, "__cuda_stream__") else (0, getattr(stream, "handle", 0))
    handle = int(given[1])
    return 0 if handle in (0, 1) else handle
