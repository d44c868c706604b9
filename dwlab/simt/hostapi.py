"""The host side of numba.cuda's API, over NumPy storage.

A device array here is memory of its own: ``to_device`` and ``copy_to_host`` copy, and a forgotten copy shows, as it
does on a GPU. Everything is done when its call returns, so streams and events have nothing to wait for; they exist so
that a program written for a GPU runs unchanged. Time does not exist: ``elapsed_time`` raises.

The interpreter uses a device array's ``storage``, ``allocation``, ``offset`` and ``written``, and `kernel_argument`.
Behaviour follows Numba-CUDA 0.30 (numba.cuda.cudadrv.devicearray, .api and .kernels.reduction), error types included.
"""

from __future__ import annotations

import contextlib
import copy as copy_module
import functools
import itertools
import operator
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dwlab.gpu import occupancy
from dwlab.simt import options
from dwlab.simt.memory import strides_of

__all__ = (
    "DeviceNDArray DeviceRecord Event In InOut ManagedNDArray MappedNDArray Out Stream as_cuda_array close "
    "current_context default_stream defer_cleanup detect device_array device_array_like event event_elapsed_time "
    "external_stream get_current_device gpus is_available is_cuda_array is_pinned is_supported_version "
    "legacy_default_stream list_devices managed_array mapped mapped_array mapped_array_like "
    "per_thread_default_stream pinned pinned_array pinned_array_like profile_start profile_stop profiling "
    "select_device stream synchronize to_device"
).split()

ALIGNMENT = 256  # bytes; what cudaMalloc guarantees
_POISON = 0xFF  # every byte of fresh memory: NaN as a float, -1 as a signed integer; the same in every run


# --- memory --------------------------------------------------------------------------------------


class Allocation:
    """A piece of device memory.

    ``buffer``: its bytes (uint8), 256-byte aligned, as cudaMalloc's are; arrays that share one alias. ``written``: a
    bool a byte, or None when all bytes were written. ``stored``: the line of the first store that a kernel has made to
    it, whatever value it stored; 0 if none has.
    """

    def __init__(self, nbytes: int, *, written: bool) -> None:
        self.nbytes = nbytes
        self.stored = 0
        try:
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
            # One flag a byte, so that views with another item size stay right.
            self.written = None if written else np.zeros(nbytes, np.bool_)
        except (MemoryError, ValueError, OverflowError):  # the last two: more bytes than an address can count
            raise MemoryError(
                f"the simulated GPU keeps device arrays in this machine's memory, and {nbytes / 2**30:,.1f} GiB for "
                f"one more did not fit beside the {_allocated_bytes() / 2**30:,.1f} GiB already there; use a smaller "
                "shape, or delete arrays that are no longer needed"
            ) from None
        start = -raw.ctypes.data % ALIGNMENT
        self.buffer = raw[start : start + nbytes]
        if not written:
            self.buffer.fill(_POISON)
        _live_allocations.add(self)


_live_allocations: weakref.WeakSet[Allocation] = weakref.WeakSet()


def _allocated_bytes() -> int:
    return sum(a.nbytes for a in _live_allocations)


def _shape_strides_dtype(
    shape: Any, strides: Any, dtype: Any, order: str
) -> tuple[tuple[int, ...], tuple[int, ...], np.dtype]:
    """Check and complete what describes an array, as Numba does: shape an int or a tuple of ints, order "C" or "F"."""
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"a device array cannot hold Python objects (dtype {dtype}); use a number type")
    if isinstance(shape, int):
        shape = (shape,)
    elif isinstance(shape, (tuple, list)):
        shape = tuple(shape)
    elif isinstance(shape, np.ndarray) and shape.ndim == 1:
        shape = tuple(shape.tolist())
    else:
        raise TypeError(
            f"shape must be an integer or tuple of integers, got {type(shape).__name__} ({shape!r}); "
            "a NumPy scalar is neither: int(n) makes it one"
        )
    for extent in shape:
        if isinstance(extent, (bool, np.bool_)) or not isinstance(extent, (int, np.integer)):
            raise TypeError(f"shape elements must be integers, got {type(extent).__name__} in {shape!r}")
        if extent < 0:
            raise ValueError(f"shape elements must not be negative, got {shape!r}")
    shape = tuple(int(extent) for extent in shape)
    if order not in ("C", "F"):
        raise ValueError(f"must be either C/F order, got {order!r}")
    if isinstance(strides, int):
        strides = (strides,)
    if not strides:
        strides = strides_of(shape) if order == "C" else strides_of(shape[::-1])[::-1]
        strides = [s * dtype.itemsize for s in strides]
    strides = tuple(int(s) for s in strides)
    if len(strides) != len(shape):
        raise ValueError(f"strides not match ndim: {strides} for shape {shape}")
    if any(s < 0 for s in strides):
        raise ValueError(f"an allocation cannot have negative strides, got {strides}")
    return shape, strides, dtype


def _extent_bytes(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
    """Bytes from the first to the last element, the last included; 0 for an empty array."""
    if 0 in shape:
        return 0
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + itemsize


def _like(ary: Any) -> tuple[tuple[int, ...], np.dtype, tuple[int, ...]]:
    """Shape and dtype of another array, and strides of a dense one with its axes in memory in the same sequence."""
    return ary.shape, ary.dtype, np.empty_like(getattr(ary, "storage", ary), order="K").strides


_NOT_CONTIGUOUS = (
    "Array contains non-contiguous buffer and cannot be transferred as a single memory region. "
    "Please ensure contiguous buffer with numpy .ascontiguousarray()"
)


def _core(ary: np.ndarray) -> np.ndarray:
    """``ary`` without its repeated (stride 0) axes: the part of a broadcast array that is memory."""
    if not ary.strides or not ary.size:
        return ary
    return ary[(*(0 if stride == 0 else slice(None) for stride in ary.strides), ...)]


def _require_contiguous(ary: np.ndarray) -> None:
    core = np.asarray(_core(ary))
    if not (core.flags.c_contiguous or core.flags.f_contiguous):
        raise ValueError(f"{_NOT_CONTIGUOUS}; shape {ary.shape}, strides {ary.strides}")


def _require_compatible(ary1: np.ndarray, ary2: np.ndarray) -> None:
    """Both arrays must have the same dtype, and the same shape and strides but for axes of length 1."""
    if ary1.dtype != ary2.dtype:
        raise TypeError(f"incompatible dtype: {ary1.dtype} vs. {ary2.dtype}")
    squeezed1, squeezed2 = np.squeeze(ary1), np.squeeze(ary2)
    if squeezed1.shape != squeezed2.shape:
        raise ValueError(f"incompatible shape: {ary1.shape} vs. {ary2.shape}")
    if ary1.size and squeezed1.strides != squeezed2.strides:
        raise ValueError(f"incompatible strides: {ary1.strides} vs. {ary2.strides}")


def _check_stream(stream: Any) -> Any:
    if isinstance(stream, Stream) or stream is None or (isinstance(stream, (int, np.integer)) and stream == 0):
        return stream
    raise TypeError(f"stream must be 0 or a stream made by cuda.stream(), got {stream!r}")


# --- device arrays -------------------------------------------------------------------------------


class _DeviceBase:
    """The base of device arrays and records: a place in an allocation, a default stream, and ``storage``, the data as
    a NumPy array of this shape, dtype and these strides.
    """

    __cuda_memory__ = True
    __cuda_ndarray__ = True

    def __init__(self, storage: np.ndarray, allocation: Allocation, stream: Any = 0) -> None:
        self.storage = storage
        self.allocation = allocation
        self.stream = _check_stream(stream)

    @property
    def offset(self) -> int:
        """Bytes from the start of the allocation to this array's first element."""
        if self.storage.size == 0 or self.allocation.nbytes == 0:
            return 0
        here, start = (one.__array_interface__["data"][0] for one in (self.storage, self.allocation.buffer))
        return here - start

    @property
    def written(self) -> np.ndarray | None:
        """Bool array of this array's shape, shared by all views of the allocation: False where nothing has written yet.

        None when all of the allocation was written. Assign through it (``a.written[...] = True``); a flag stands for
        the first byte of its element. ``view`` with another item size ends the tracking of an allocation that has been
        written in part.
        """
        flags = self.allocation.written
        if flags is None:
            return None
        storage = self.storage
        if storage.size == 0:
            return np.ones(storage.shape, np.bool_)
        return np.ndarray(storage.shape, np.bool_, buffer=flags, offset=self.offset, strides=storage.strides)

    def _mark_written(self) -> None:
        flags = self.allocation.written
        if flags is None or self.storage.size == 0:
            return
        if self.storage.nbytes >= self.allocation.nbytes and 0 not in self.storage.strides:
            self.allocation.written = None
        else:
            self.written[...] = True

    # As of the NumPy array that holds the data.
    shape, strides, dtype, ndim, size, itemsize, nbytes = (
        property(operator.attrgetter(f"storage.{name}"))
        for name in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes")
    )

    @property
    def alloc_size(self) -> int:
        """Bytes from the first to the last element, gaps between elements included."""
        return _extent_bytes(self.shape, tuple(abs(s) for s in self.strides), self.dtype.itemsize)

    @property
    def flags(self) -> dict[str, bool]:
        """``C_CONTIGUOUS`` and ``F_CONTIGUOUS``, as Numba's device arrays have them (a broadcast array is neither)."""
        broadcast = self.size != 0 and 0 in self.strides
        flags = self.storage.flags
        return {
            "C_CONTIGUOUS": bool(flags.c_contiguous) and not broadcast,
            "F_CONTIGUOUS": bool(flags.f_contiguous) and not broadcast,
        }

    def is_c_contiguous(self) -> bool:
        return self.flags["C_CONTIGUOUS"]

    def is_f_contiguous(self) -> bool:
        return self.flags["F_CONTIGUOUS"]

    def bind(self, stream: Any = 0) -> _DeviceBase:
        """The same array (not a copy) with another default stream."""
        clone = copy_module.copy(self)
        clone.stream = _check_stream(stream)
        return clone

    def _view(self, storage: np.ndarray, stream: Any = 0) -> DeviceNDArray:
        return DeviceNDArray(storage, self.allocation, stream or self.stream)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        """Copy ``ary`` (host or device) into this array.

        Raises TypeError on another dtype, ValueError on another shape or memory layout or a non-contiguous array.
        """
        _check_stream(stream)
        if not hasattr(ary, "size") or not hasattr(ary, "dtype"):
            raise TypeError(f"copy_to_device needs an array, got {type(ary).__name__}; numpy.asarray makes one")
        if ary.size == 0:
            return
        _require_contiguous(self.storage)
        target = _core(self.storage)
        if isinstance(ary, _DeviceBase):
            _require_contiguous(ary.storage)
            source = _core(ary.storage)
        else:
            source = np.array(_core(np.asarray(ary)), order="C" if target.flags.c_contiguous else "F", copy=None)
        _require_compatible(target, source)
        np.copyto(target, source.reshape(target.shape))
        if isinstance(ary, _DeviceBase) and (flags := ary.written) is not None:
            if (mine := self.written) is not None:
                _core(mine)[...] = _core(flags).reshape(target.shape)
        else:
            self._mark_written()

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        """Copy this array to ``ary``, or to a new array of the same layout; return the host array.

        Raises TypeError on another dtype, ValueError on another shape or memory layout.
        """
        _check_stream(stream)
        if any(s < 0 for s in self.strides):
            raise NotImplementedError(f"D->H copy not implemented for negative strides: {self.strides}")
        if ary is None:
            return self.storage.copy(order="K")
        if isinstance(ary, _DeviceBase):
            raise TypeError("copy_to_host copies to a host array, got a device array; use copy_to_device on the target")
        if not isinstance(ary, np.ndarray):
            raise TypeError(f"copy_to_host copies to a NumPy array, got {type(ary).__name__}")
        _require_compatible(self.storage, ary)
        np.copyto(ary, self.storage.reshape(ary.shape))
        return ary

    @property
    def T(self) -> DeviceNDArray:
        return self.transpose()

    def transpose(self, axes: Any = None) -> DeviceNDArray:
        """A transposed *copy* of a 2-D array, as Numba makes it (one kernel, new memory)."""
        if axes is not None and tuple(axes) == tuple(range(self.ndim)):
            return self
        if self.ndim != 2:
            raise NotImplementedError(f"transposing a non-2D DeviceNDArray isn't supported, got {self.ndim}-D")
        if axes is not None and set(axes) != {0, 1}:
            raise ValueError(f"invalid axes list {axes!r}")
        result = device_array(self.shape[::-1], self.dtype, stream=self.stream)
        result.storage[...] = self.storage.T
        if (flags := self.written) is None:
            result._mark_written()
        else:
            result.written[...] = flags.T
        return result

    def squeeze(self, axis: Any = None, stream: Any = 0) -> DeviceNDArray:
        """A view without axes of length 1 (all of them, or those named). ValueError for one that is longer."""
        return self._view(np.squeeze(self.storage, axis), stream)

    def view(self, dtype: Any) -> DeviceNDArray:
        """The same bytes read as another dtype; for another item size the array must be C-contiguous.

        ValueError, NumPy's, where the new size does not divide the last axis.
        """
        dtype = np.dtype(dtype)
        storage = self.storage.view(dtype)
        if dtype.itemsize != self.dtype.itemsize:
            if not self.is_c_contiguous():
                raise ValueError("To change to a dtype of a different size, the array must be C-contiguous")
            # A flag stands for an element's first byte, so it says nothing about elements that start elsewhere.
            self.allocation.written = None
        return self._view(storage)


class DeviceNDArray(_DeviceBase):
    """An array in the simulated GPU's memory. Made by ``to_device``, ``device_array`` and their like."""

    def __repr__(self) -> str:
        return f"<DeviceNDArray shape={self.shape} dtype={self.dtype} strides={self.strides} (simulated GPU)>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d device array")
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("`copy=False` is not supported. A copy is always created.")
        host = self.copy_to_host()
        return host if dtype is None else host.astype(dtype)

    def reshape(self, *newshape: Any, order: str = "C") -> DeviceNDArray:
        """A view of another shape, one of whose sizes may be -1. NotImplementedError if that takes a copy."""
        return self._view(self._without_copy(self.storage.reshape(*newshape, order=order), "reshape"))

    def ravel(self, order: str = "C", stream: Any = 0) -> DeviceNDArray:
        """A 1-D view of a contiguous array. NotImplementedError if it cannot be had without copying."""
        if order not in ("C", "F", "A"):
            raise ValueError(f"order not C|F|A: {order!r}")
        return self._view(self._without_copy(self.storage.ravel(order=order), "ravel"), stream)

    def _without_copy(self, storage: np.ndarray, what: str) -> np.ndarray:
        if storage.size and not np.may_share_memory(storage, self.storage):
            raise NotImplementedError(f"{what} would require copy: shape {self.shape}, strides {self.strides}")
        return storage

    def split(self, section: int, stream: Any = 0) -> Iterator[DeviceNDArray]:
        """Views of ``section`` elements each; the last may be shorter."""
        if self.ndim != 1:
            raise ValueError("only support 1d array")
        if self.strides[0] != self.dtype.itemsize:
            raise ValueError("only support unit stride")
        for begin in range(0, self.size, section):
            yield self._view(self.storage[begin : begin + section], stream)

    def _parts(self, item: Any) -> tuple:
        """An index as a tuple. Raises TypeError for what is neither integer nor slice, IndexError for too many."""
        parts = item if isinstance(item, tuple) else (item,)
        for part in parts:
            if isinstance(part, (bool, np.bool_)) or not isinstance(part, (int, np.integer, slice)):
                raise TypeError(
                    f"a device array is indexed with integers and slices, got {type(part).__name__} ({part!r}); "
                    "copy_to_host() first for anything else"
                )
        if len(parts) > self.ndim:
            raise IndexError(f"{len(parts) - self.ndim} extra indices given: {item!r} for a {self.ndim}-D array")
        return parts

    def getitem(self, item: Any, stream: Any = 0) -> Any:
        """A view for slices; for a single element its value, copied to the host."""
        _check_stream(stream)
        if isinstance(item, str) and self.dtype.names:
            if item not in self.dtype.names:
                raise KeyError(item)
            return self._view(self.storage[item], stream)
        parts = self._parts(item)
        if len(parts) == self.ndim and not any(isinstance(part, slice) for part in parts):
            if self.dtype.names:
                return DeviceRecord(self.storage[(*parts, ...)], self.allocation, self.stream)
            return self.storage[item]
        return self._view(self.storage[item], stream)

    def setitem(self, key: Any, value: Any, stream: Any = 0) -> None:
        """Assign to a slice or an element; ``value`` may be host or device data, broadcast where its axis is 1 long."""
        _check_stream(stream)
        key = (*self._parts(key), ...)  # keeps a single element a 0-d view
        target = self.storage[key]
        source = value.storage if isinstance(value, _DeviceBase) else np.asarray(value)
        if not isinstance(value, _DeviceBase):
            _require_contiguous(source)
        if source.ndim > target.ndim:
            raise ValueError(f"Can't assign {source.ndim}-D array to {target.ndim}-D self")
        for axis, (extent, got) in enumerate(zip(target.shape[::-1], source.shape[::-1], strict=False)):
            if got not in (1, extent):
                raise ValueError(
                    f"Can't copy sequence with size {got} to array axis {target.ndim - 1 - axis} "
                    f"with dimension {extent}"
                )
        if source.dtype.kind == "c" and target.dtype.kind not in "c":
            raise TypeError(f"cannot assign {source.dtype} to {target.dtype}: the imaginary part has no place")
        with np.errstate(all="ignore"):
            np.copyto(target, source, casting="unsafe")
        if (flags := self.written) is not None:
            from_flags = value.written if isinstance(value, _DeviceBase) else None
            flags[key] = True if from_flags is None else from_flags

    def __getitem__(self, item: Any) -> Any:  # by name: a profile stands in for getitem and setitem
        return self.getitem(item)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.setitem(key, value)


class DeviceRecord(_DeviceBase):
    """One element of a structured dtype in device memory; fields are read and assigned by name."""

    def __init__(self, storage: np.ndarray, allocation: Allocation, stream: Any = 0) -> None:
        super().__init__(storage.reshape(()), allocation, stream)

    def __repr__(self) -> str:
        return f"<DeviceRecord dtype={self.dtype} (simulated GPU)>"

    def getitem(self, field: str, stream: Any = 0) -> Any:
        """The field's value, a view of a sub-array field, or the record of a nested one."""
        part = self.storage[field]
        if part.dtype.names and part.ndim == 0:
            return DeviceRecord(part, self.allocation, stream or self.stream)
        return part[()] if part.ndim == 0 else self._view(part, stream)

    def setitem(self, field: str, value: Any, stream: Any = 0) -> None:
        _check_stream(stream)
        self.storage[field] = value
        self._mark_written()

    __getitem__, __setitem__ = getitem, setitem


class _HostVisible(np.ndarray):
    """Host memory that kernels reach directly: a NumPy array whose ``storage`` is itself."""

    __cuda_memory__ = True
    __cuda_ndarray__ = True
    written = None
    stream = 0

    def __array_finalize__(self, parent: Any) -> None:
        self.allocation = getattr(parent, "allocation", None)

    @property
    def storage(self) -> np.ndarray:
        return self.view(np.ndarray)

    def on_device(self) -> DeviceNDArray:
        """The device array of the same memory; of memory of its own for an array that left its allocation."""
        if self.allocation is None or (self.size and not np.may_share_memory(self, self.allocation.buffer)):
            with mapped(self.storage) as view:
                return view
        return DeviceNDArray(self.storage, self.allocation)

    @property
    def offset(self) -> int:
        return self.on_device().offset

    def copy_to_host(self, ary: np.ndarray | None = None, stream: Any = 0) -> np.ndarray:
        return self.on_device().copy_to_host(ary, stream)

    def copy_to_device(self, ary: Any, stream: Any = 0) -> None:
        self.on_device().copy_to_device(ary, stream)


class MappedNDArray(_HostVisible):
    """Host memory mapped into the device's addresses (``mapped_array``)."""


class ManagedNDArray(_HostVisible):
    """Memory that host and device share (``managed_array``)."""


def _allocate(shape: Any, strides: Any, dtype: Any, order: str, *, written: bool) -> tuple[np.ndarray, Allocation]:
    shape, strides, dtype = _shape_strides_dtype(shape, strides, dtype, order)
    allocation = Allocation(_extent_bytes(shape, strides, dtype.itemsize), written=written)
    storage = np.ndarray(shape, dtype, allocation.buffer, strides=strides)
    if storage.dtype == np.bool_ and not written:
        storage.fill(True)  # 0xFF is not a bool
    return storage, allocation


def device_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0
) -> DeviceNDArray:
    """A device array of the given shape and dtype. Its contents are undefined (here: every bit set, NaN as a float)."""
    storage, allocation = _allocate(shape, strides, dtype, order, written=False)
    return DeviceNDArray(storage, allocation, stream)


def device_array_like(ary: Any, stream: Any = 0) -> DeviceNDArray:
    """A device array with the shape, dtype and memory order of ``ary``, its contents undefined."""
    return device_array(*_like(ary), stream=stream)


def to_device(obj: Any, stream: Any = 0, copy: bool = True, to: DeviceNDArray | None = None) -> Any:
    """Copy an array (or scalar, or record) to device memory of its own and return the device array.

    A device array is returned as it is. ``copy=False`` allocates only; ``to`` names an existing device array to copy
    into. Raises ValueError if ``obj`` is not contiguous.
    """
    _check_stream(stream)
    if to is not None:
        if copy:
            to.copy_to_device(obj, stream=stream)
        return to
    if isinstance(obj, (_DeviceBase, _HostVisible)):
        return obj
    if isinstance(obj, np.void) and obj.dtype.names:
        storage, allocation = _allocate((), None, obj.dtype, "C", written=copy)
        if copy:
            storage[()] = obj
        return DeviceRecord(storage, allocation, stream)
    host = np.asarray(obj)
    _require_contiguous(host)
    storage, allocation = _allocate(host.shape, host.strides, host.dtype, "C", written=copy)
    if copy and host.size:
        np.copyto(_core(storage), _core(host))
    return DeviceNDArray(storage, allocation, stream)


def pinned_array(shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C") -> np.ndarray:
    """A host array, its contents undefined. (With a GPU its pages would be locked, for faster, asynchronous copies.)"""
    made = _allocate(shape, strides, dtype, order, written=False)[0]
    _pinned[id(_owner(made))] = _owner(made)
    return made


_pinned: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


def _owner(ary: np.ndarray) -> np.ndarray:
    """The array whose memory it is."""
    while isinstance(ary.base, np.ndarray):
        ary = ary.base
    return ary


def is_pinned(ary: Any) -> bool:
    """Whether a host array, or what it is a view of, came from `pinned_array` or is in a block of `pinned`."""
    return isinstance(ary, np.ndarray) and _pinned.get(id(_owner(ary))) is _owner(ary)


def pinned_array_like(ary: Any) -> np.ndarray:
    return pinned_array(*_like(ary))


def _host_visible(kind: type, shape: Any, strides: Any, dtype: Any, order: str, stream: Any) -> Any:
    _check_stream(stream)
    storage, allocation = _allocate(shape, strides, dtype, order, written=False)
    allocation.written = None  # the host writes to it unseen
    result = storage.view(kind)
    result.allocation = allocation
    return result


def mapped_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0,
    portable: bool = False, wc: bool = False,
) -> MappedNDArray:  # fmt: skip
    """A host array that kernels read and write directly. ``portable`` and ``wc`` change nothing here."""
    return _host_visible(MappedNDArray, shape, strides, dtype, order, stream)


def mapped_array_like(ary: Any, stream: Any = 0, portable: bool = False, wc: bool = False) -> MappedNDArray:
    return mapped_array(*_like(ary), stream=stream)


def managed_array(
    shape: Any, dtype: Any = np.float64, strides: Any = None, order: str = "C", stream: Any = 0,
    attach_global: bool = True,
) -> ManagedNDArray:  # fmt: skip
    """An array that host and kernels share. ``attach_global`` changes nothing here."""
    return _host_visible(ManagedNDArray, shape, strides, dtype, order, stream)


def _require_host_array(ary: Any, what: str) -> None:
    if not isinstance(ary, np.ndarray):
        raise TypeError(f"{what} takes NumPy arrays, got {type(ary).__name__}")


@contextlib.contextmanager
def pinned(*arrays: np.ndarray) -> Iterator[None]:
    """Lock the pages of host arrays while the block runs. Here they are only known as such (`is_pinned`)."""
    for ary in arrays:
        _require_host_array(ary, "pinned")
    new = {id(_owner(ary)): _owner(ary) for ary in arrays if not is_pinned(ary)}
    _pinned.update(new)
    try:
        yield
    finally:
        for key in new:
            _pinned.pop(key, None)


@contextlib.contextmanager
def mapped(*arrays: np.ndarray, stream: Any = 0) -> Iterator[Any]:
    """Device arrays over the memory of host arrays, while the block runs: one array, or a list for several."""
    views = []
    for ary in arrays:
        _require_host_array(ary, "mapped")
        _require_contiguous(ary)
        allocation = Allocation(0, written=True)
        if ary.size:
            allocation.buffer = _core(np.asarray(ary)).ravel(order="K").view(np.uint8)
            allocation.nbytes = allocation.buffer.nbytes
        views.append(DeviceNDArray(ary.view(np.ndarray), allocation, stream))
    yield views[0] if len(views) == 1 else views


def is_cuda_array(obj: Any) -> bool:
    """Whether ``obj`` lies in the simulated GPU's memory (or announces GPU memory by ``__cuda_array_interface__``)."""
    return isinstance(obj, (_DeviceBase, _HostVisible)) or hasattr(obj, "__cuda_array_interface__")


def as_cuda_array(obj: Any, sync: bool = True) -> DeviceNDArray:
    """The device array that ``obj`` is. Memory of a real GPU is refused: the simulated one cannot reach it."""
    if isinstance(obj, (_DeviceBase, _HostVisible)):
        return obj
    if hasattr(obj, "__cuda_array_interface__"):
        raise TypeError(
            f"{type(obj).__name__} lies in a real GPU's memory, which the simulated GPU cannot reach; "
            "copy it to the host and use cuda.to_device, or run with DWLAB_TARGET=gpu"
        )
    raise TypeError(
        f"*obj* doesn't implement the cuda array interface: {type(obj).__name__}; cuda.to_device copies host data"
    )


# --- kernel arguments ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ArgHint:
    """Says how a host array given to a kernel travels. ``value``: the array."""

    value: Any


class In(ArgHint):
    """Copied to the device before the launch, not back."""


class Out(ArgHint):
    """Not copied to the device, only back after the launch."""


class InOut(ArgHint):
    """Copied both ways: what a plain host array gets."""


def kernel_argument(value: Any, stream: Any = 0) -> tuple[Any, Callable[[], None] | None]:
    """The argument that a kernel gets for a host value, and what to call afterwards to bring results back (or None).

    Device arrays pass as they are; mapped and managed arrays as device arrays over their own memory; NumPy arrays are
    copied to the device and, unless marked ``cuda.In``, back; others pass unchanged. Raises ValueError for a
    non-contiguous NumPy array, as Numba-CUDA cannot transfer one.
    """
    hint = InOut
    if isinstance(value, ArgHint):
        hint, value = type(value), value.value
    if isinstance(value, _DeviceBase):
        return value, None
    if isinstance(value, _HostVisible):
        return value.on_device().bind(stream), None
    if isinstance(value, np.ndarray):
        device = to_device(value, stream=stream, copy=hint is not Out)
        if hint is In:
            return device, None
        if not value.flags.writeable:
            # Numba types such an array as read-only, so no kernel that compiles has anything to bring back.
            return device, None
        return device, lambda: np.copyto(_core(value), _core(device.storage))
    if hint is not InOut:
        raise TypeError(f"cuda.{hint.__name__} takes an array, got {type(value).__name__}")
    return value, None


# --- streams and events --------------------------------------------------------------------------

_NAMED = {0: "Default", 1: "Legacy default", 2: "Per-thread default"}  # CUDA's reserved handles
_stream_handles = itertools.count(0x1000)


@dataclass(frozen=True, repr=False)
class Stream:
    """A queue of work. Work here is done when its call returns, so the queue is always empty."""

    handle: int

    def __int__(self) -> int:
        return self.handle

    def __repr__(self) -> str:
        return f"<{_NAMED[self.handle]} CUDA stream>" if self.handle in _NAMED else f"<CUDA stream {self.handle:d}>"

    def synchronize(self) -> None:
        """Wait for the work in this stream."""

    def add_callback(self, callback: Callable, arg: Any = None) -> None:
        """Call `callback(stream, status, arg)` when the work in this stream is done, which it is."""
        callback(self, 0, arg)

    @contextlib.contextmanager
    def auto_synchronize(self) -> Iterator[Stream]:
        """Synchronize at the end of the block."""
        yield self
        self.synchronize()


external_stream = Stream  # for a handle made elsewhere


def stream() -> Stream:
    """A new stream."""
    return Stream(next(_stream_handles))


default_stream, legacy_default_stream, per_thread_default_stream = (functools.partial(Stream, n) for n in range(3))


class NoTimeError(options.SimtError, RuntimeError):
    """A time was requested on the simulated GPU."""


class Event:
    """A point in a stream. Everything before it is done, always."""

    def __init__(self, timing: bool = True) -> None:
        self.timing = timing

    def query(self) -> bool:
        """Whether the work before the event is done: True."""
        return True

    def record(self, stream: Any = 0) -> None:
        _check_stream(stream)

    def synchronize(self) -> None:
        """Wait for the work before the event."""

    def wait(self, stream: Any = 0) -> None:
        _check_stream(stream)

    def elapsed_time(self, evtend: Event) -> float:
        """Raises NoTimeError: there is no time here."""
        raise NoTimeError(
            "there is no time here: the simulated GPU counts what a kernel does but has no clock, so elapsed_time has "
            "no answer. Measured times are in dwlab's records (python -m dwlab records); on a GPU, run with "
            "DWLAB_TARGET=gpu"
        )


event = Event
event_elapsed_time = Event.elapsed_time


def synchronize() -> None:
    """Wait for all work of the device. It is done already."""


# --- the device ----------------------------------------------------------------------------------


def _limits(compute_capability: tuple[int, int]) -> occupancy.Limits:
    """The row of the newest compute capability that is not above this one; of the oldest if all are."""
    below = [key for key in occupancy.LIMITS if key <= compute_capability]
    return occupancy.LIMITS[max(below) if below else min(occupancy.LIMITS)]


def sms(compute_capability: tuple[int, int]) -> int:
    """Streaming multiprocessors of the GPU that the simulated one is sized like."""
    return _limits(compute_capability).example[1]


class MemoryInfo(NamedTuple):
    """Bytes of device memory."""

    free: int
    total: int


class Device:
    """The simulated GPU, and its one context. Attributes in capitals are CUDA's device attributes."""

    id = 0
    uuid = "GPU-00000000-0000-0000-0000-000000000000"

    def __repr__(self) -> str:
        return f"<CUDA device 0 '{self.name}'>"

    @property
    def device(self) -> Device:
        return self

    @property
    def compute_capability(self) -> tuple[int, int]:
        """(major, minor), from the options in force."""
        return tuple(options.current().compute_capability)

    @property
    def name(self) -> str:
        major, minor = self.compute_capability
        return f"dwlab.simt, a simulated GPU of compute capability {major}.{minor}"

    def __getattr__(self, name: str) -> Any:
        values = self.attributes()
        if name not in values:
            raise AttributeError(
                f"the simulated device has no {name}: it keeps arrays in host memory and loads no modules. Its "
                f"attributes are {', '.join(sorted(values))}"
            )
        return values[name]

    def attributes(self) -> dict[str, int]:
        """CUDA's device attributes by name (bytes, elements, counts, as CUDA gives them)."""
        major, minor = self.compute_capability
        limits = _limits((major, minor))
        _, sms, l2_mib = limits.example
        return {
            **dict.fromkeys(
                "COMPUTE_MODE ECC_ENABLED INTEGRATED KERNEL_EXEC_TIMEOUT PCI_BUS_ID PCI_DEVICE_ID".split(), 0
            ),
            "ASYNC_ENGINE_COUNT": 1,
            "CAN_MAP_HOST_MEMORY": 1,
            "COMPUTE_CAPABILITY_MAJOR": major,
            "COMPUTE_CAPABILITY_MINOR": minor,
            "CONCURRENT_KERNELS": 0,
            "COOPERATIVE_LAUNCH": 1,
            "L2_CACHE_SIZE": int(l2_mib * 2**20),
            "MANAGED_MEMORY": 1,
            "MAX_BLOCKS_PER_MULTIPROCESSOR": limits.blocks_per_sm,
            **{f"MAX_BLOCK_DIM_{axis}": most for axis, most in zip("XYZ", limits.block_dims, strict=True)},
            **{f"MAX_GRID_DIM_{axis}": most for axis, most in zip("XYZ", (2**31 - 1, 65535, 65535), strict=True)},
            "MAX_REGISTERS_PER_BLOCK": limits.registers_per_block,
            "MAX_REGISTERS_PER_MULTIPROCESSOR": limits.registers_per_sm,
            "MAX_SHARED_MEMORY_PER_BLOCK": limits.shared_per_block,
            "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": limits.shared_per_block_optin,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": limits.shared_per_sm,
            "MAX_THREADS_PER_BLOCK": limits.threads_per_block,
            "MAX_THREADS_PER_MULTIPROCESSOR": limits.threads_per_sm,
            "MAX_THREADS_PER_MULTI_PROCESSOR": limits.threads_per_sm,
            "MULTIPROCESSOR_COUNT": sms,
            "RESERVED_SHARED_MEMORY_PER_BLOCK": limits.shared_reserved,
            "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": limits.float32_lanes // limits.float64_lanes,
            "TOTAL_CONSTANT_MEMORY": 65536,
            "UNIFIED_ADDRESSING": 1,
            "WARP_SIZE": 32,
        }

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing: the device stays current."""

    def synchronize(self) -> None:
        """Wait for all work; it is done. Nor is there anything to push, pop or reset."""

    push = pop = reset = synchronize

    def get_memory_info(self) -> MemoryInfo:
        """Free and total bytes: of this machine's memory, where the simulated GPU's arrays live."""
        try:
            page = os.sysconf("SC_PAGE_SIZE")
            total = page * os.sysconf("SC_PHYS_PAGES")
        except (AttributeError, ValueError, OSError):
            raise NotImplementedError(
                "this operating system does not say how much memory the machine has, nor can the simulated GPU"
            ) from None
        try:
            free = page * os.sysconf("SC_AVPHYS_PAGES")
        except (ValueError, OSError):  # macOS does not tell
            free = max(0, total - _allocated_bytes())
        return MemoryInfo(free, total)

    defer_cleanup = staticmethod(contextlib.nullcontext)


class _Devices(list):
    """``cuda.gpus``: the one simulated device."""

    def __getitem__(self, devnum: Any) -> Any:
        if not isinstance(devnum, slice) and int(devnum) not in (0, -1):
            raise IndexError(f"there is no device {devnum}: the simulated machine has one GPU, number 0")
        return super().__getitem__(devnum)

    @property
    def current(self) -> Device:
        return self[0]


gpus = _Devices([Device()])


def current_context(devnum: int | None = 0) -> Device:
    """The device, which is its own one context. IndexError for any number but 0."""
    return gpus[devnum or 0]


select_device = get_current_device = current_context


def list_devices() -> _Devices:
    return gpus


def detect() -> bool:
    """Print what the simulated GPU is. Returns True: one supported device."""
    device = gpus[0]
    print("Found 1 CUDA devices")
    print(f"id 0    {device.name:>20} {'[SUPPORTED]':>40}")
    for key, value in (
        ("Compute Capability", "{}.{}".format(*device.compute_capability)),
        ("Simulated on", "this machine's CPU, by dwlab.simt"),
        ("Sized like", _limits(device.compute_capability).example[0]),
    ):
        print(f"{key:>40}: {value}")
    print("Summary:")
    print("\t1/1 devices are supported")
    return True


def is_available() -> bool:
    """True: the simulated GPU is always there, and of a supported version."""
    return True


is_supported_version = is_available
close = profile_start = profile_stop = synchronize  # nothing to do: no context to destroy, no profiler
defer_cleanup = profiling = contextlib.nullcontext
