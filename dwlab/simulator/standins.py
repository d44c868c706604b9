"""Names that Numba-CUDA's users reach for beside kernels and arrays: other libraries' arrays, contexts, overloads."""

from __future__ import annotations

import abc
import asyncio
import importlib
import types
import weakref
from typing import Any, NamedTuple

import numba
import numpy as np

from dwlab import simt
from dwlab.simt import cuda

ARRAYS = (cuda.DeviceNDArray, cuda.MappedNDArray, cuda.ManagedNDArray)

_given: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Allocations whose addresses an interface has told, by where they begin."""


def _interface(array: Any) -> dict[str, Any]:
    """`__cuda_array_interface__` of an array here: what `as_cuda_array` of another object finds again."""
    storage, allocation = array.storage, array.allocation
    _given[allocation.buffer.ctypes.data] = allocation
    return {
        "shape": tuple(array.shape),
        "strides": None if storage.flags.c_contiguous else tuple(array.strides),
        "data": (storage.ctypes.data if storage.size else 0, False),
        "typestr": storage.dtype.str,
        "stream": int(array.stream) if array.stream else None,
        "version": 3,
    }


def from_cuda_array_interface(desc: dict[str, Any], owner: object = None, sync: bool = True) -> cuda.DeviceNDArray:
    """The device array that an interface describes. ValueError for memory that is not of this process's arrays."""
    if desc.get("mask") is not None:
        raise NotImplementedError("Masked arrays are not supported")
    shape, dtype, pointer = tuple(desc["shape"]), np.dtype(desc["typestr"]), desc["data"][0]
    if 0 in shape:
        return cuda.device_array(shape, dtype)
    for start, allocation in _given.items():
        if start <= pointer < start + allocation.nbytes:
            storage = np.ndarray(shape, dtype, allocation.buffer, pointer - start, desc.get("strides"))
            stream = desc.get("stream")
            return cuda.DeviceNDArray(storage, allocation, cuda.external_stream(stream) if stream else 0)
    raise ValueError("the interface describes memory of a real GPU, which the interpreter cannot reach")


def _as_cuda_array(obj: Any, sync: bool = True) -> Any:
    if isinstance(obj, ARRAYS):
        return obj
    if not hasattr(obj, "__cuda_array_interface__"):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    found = from_cuda_array_interface(obj.__cuda_array_interface__, obj, sync)
    if found.stream and sync and numba.config.CUDA_ARRAY_INTERFACE_SYNC:
        found.stream.synchronize()
    return found


class Memory(NamedTuple):
    """`gpu_data` of a device array: where it begins."""

    allocation: Any
    offset: int


class DeviceNDArray(abc.ABC):  # noqa: B024
    """Numba's way to make a device array, of memory that another one has; each device array is an instance."""

    def __new__(cls, shape: Any, strides: Any, dtype: Any, stream: Any = 0, gpu_data: Memory | None = None) -> Any:
        if gpu_data is None:
            return cuda.device_array(shape, dtype, strides, stream=stream)
        storage = np.ndarray(shape, dtype, gpu_data.allocation.buffer, gpu_data.offset, strides)
        return cuda.DeviceNDArray(storage, gpu_data.allocation, stream)


DeviceNDArray.register(cuda.DeviceNDArray)


class Overloads(dict):
    """`kernel.overloads`: something for every signature; of a device function with the type of its result."""

    def __init__(self, kernel: simt.Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def __missing__(self, arguments: Any) -> types.SimpleNamespace:
        one = self[arguments] = types.SimpleNamespace(max_cooperative_grid_blocks=_resident)
        if self.kernel.device:
            known = [
                result for given, result in self.kernel.device_signatures if tuple(given) == tuple(arguments) and result
            ]
            one.signature = known[0](*arguments) if known else self.inferred(arguments)
        return one

    def inferred(self, arguments: Any) -> Any:
        """The signature that Numba's own type inference finds."""
        made = numba.njit(self.kernel.py_func)
        made.compile(tuple(arguments))
        return made.overloads[tuple(arguments)].signature


def _resident(blockdim: Any, dynsmemsize: int = 0) -> int:
    """Blocks that the simulated GPU holds at once, by their threads."""
    device = cuda.get_current_device()
    threads = max(1, int(np.prod(blockdim)))
    most = min(device.MAX_BLOCKS_PER_MULTIPROCESSOR, device.MAX_THREADS_PER_MULTIPROCESSOR // threads)
    return device.MULTIPROCESSOR_COUNT * most


def _numba_type(array: Any) -> Any:
    """Numba's type of a device array, with the layout that it has."""
    flags = array.flags
    layout = "C" if flags["C_CONTIGUOUS"] else "F" if flags["F_CONTIGUOUS"] else "A"
    return numba.types.Array(numba.from_dtype(array.dtype), array.ndim, layout)


def _async_done(stream: cuda.Stream) -> asyncio.Future:
    """A future that the work in a stream has resolved."""
    future = asyncio.get_running_loop().create_future()
    future.set_result(stream)
    return future


def put(module: types.ModuleType) -> None:
    """Gives them to `numba.cuda`, and to the interpreter's classes."""
    for kind in ARRAYS:
        kind.__cuda_array_interface__ = property(_interface)
        kind.gpu_data = property(lambda array: Memory(array.allocation, array.offset))
        kind._numba_type_ = property(_numba_type)
    simt.Kernel.overloads = property(Overloads)
    cuda.Stream.async_done = _async_done
    type(cuda.current_context()).deallocations = types.SimpleNamespace(clear=lambda: None)
    module.as_cuda_array, module.from_cuda_array_interface = _as_cuda_array, from_cuda_array_interface
    try:
        hints = importlib.import_module("numba.cuda.args")
    except ImportError:
        return
    importlib.import_module("numba.cuda.cudadrv.driver").Stream = cuda.Stream
    importlib.import_module("numba.cuda.cudadrv.devicearray").DeviceNDArray = DeviceNDArray
    hints.ArgHint, hints.In, hints.Out, hints.InOut = cuda.In.__base__, cuda.In, cuda.Out, cuda.InOut
