"""This machine's CUDA driver, through ctypes: works before any package is installed.

And what a kernel may need before it starts: `allow_shared`, through numba-cuda, and `arrays_of`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR = 75, 76  # CUdevice_attribute, cuda.h

# The answers of cuInit that a student can meet, CUresult in cuda.h, with what to do about each.
_INIT_ERRORS = {
    100: "the driver sees no GPU",
    101: "CUDA_VISIBLE_DEVICES names a GPU that does not exist",
    34: "the driver library is a stub: the real libcuda.so.1 comes with the driver, not with the toolkit",
    46: "the GPU is busy in exclusive mode or was lost",
    803: "the driver's library and its kernel module are of different versions: reboot after a driver update",
    804: "CUDA forward-compatibility libraries are on the path, but this GPU does not support them",
    802: "the system is not ready: on machines with NVSwitch the fabric manager must run",
    999: "the driver failed to start: often the nvidia_uvm module is not loaded (try: sudo modprobe nvidia-uvm)",
}


@dataclass(frozen=True)
class Device:
    """One GPU: its name and compute capability (major, minor)."""

    name: str
    compute_capability: tuple[int, int]


@dataclass(frozen=True)
class Driver:
    """The CUDA driver, as far as it answers.

    found: a driver library could be loaded. cuda: the newest CUDA that it supports (major, minor), None if it did not
    say. release: the driver's own release such as "580.159", Linux only.
    problem: why no GPU can be used ("" if one can).
    """

    found: bool = False
    cuda: tuple[int, int] | None = None
    release: str | None = None
    devices: tuple[Device, ...] = field(default=())
    problem: str = "no NVIDIA driver is installed"

    @property
    def usable(self) -> bool:
        return not self.problem and bool(self.devices)

    @property
    def toolkit(self) -> int | None:
        """The CUDA generation to install for this driver: 12, 13, or None if neither can run.

        CUDA 13's compiler starts at compute capability 7.5 (CUDA 13.0 release notes): a Pascal or Volta GPU keeps
        CUDA 12 even under a driver that would run 13.
        """
        if not self.usable or self.cuda is None or self.cuda < (12, 0):
            return None
        if self.cuda >= (13, 0) and min(device.compute_capability for device in self.devices) >= (7, 5):
            return 13
        return 12


def _library() -> ctypes.CDLL | None:
    if sys.platform == "win32":
        names = ["nvcuda.dll"]
    else:
        # Under WSL the driver lives outside the loader's usual path on some distributions.
        names = ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"]
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _release() -> str | None:
    """The kernel module's release, from /proc/driver/nvidia/version (Linux)."""
    try:
        first = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace").splitlines()[0]
    except (OSError, IndexError):
        return None
    return next((word for word in first.split() if word[:1].isdigit() and "." in word), None)


def query() -> Driver:
    """Ask the driver for its version and its GPUs. Never raises; what failed is in ``problem``."""
    library = _library()
    if library is None:
        return Driver()
    release = _release()
    version = ctypes.c_int(0)
    cuda = None
    if library.cuDriverGetVersion(ctypes.byref(version)) == 0:
        cuda = (version.value // 1000, version.value % 1000 // 10)
    status = library.cuInit(0)
    if status:
        why = _INIT_ERRORS.get(status, "the driver failed to start")
        if status == 100 and os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
            why = f"CUDA_VISIBLE_DEVICES={os.environ['CUDA_VISIBLE_DEVICES']!r} hides every GPU"
        return Driver(True, cuda, release, (), f"{why} (cuInit returned {status})")
    count = ctypes.c_int(0)
    library.cuDeviceGetCount(ctypes.byref(count))
    devices = []
    for ordinal in range(count.value):
        handle, name = ctypes.c_int(0), ctypes.create_string_buffer(256)
        if library.cuDeviceGet(ctypes.byref(handle), ordinal) or library.cuDeviceGetName(name, len(name), handle):
            continue
        capability = []
        for attribute in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR):
            value = ctypes.c_int(0)
            library.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle)
            capability.append(value.value)
        devices.append(Device(name.value.decode("utf-8", "replace"), (capability[0], capability[1])))
    return Driver(True, cuda, release, tuple(devices), "" if devices else "the driver sees no GPU")


def enter() -> None:
    """Makes the first GPU's context the thread's, where there is a GPU: without one the driver makes no tensor maps."""
    if query().devices:
        library, context = _library(), ctypes.c_void_p()
        if library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0:
            library.cuCtxSetCurrent(context)


SHARED_UNASKED = 48 * 1024
"""Bytes of shared memory that a block gets by default (CUDA C++ Programming Guide, "Shared Memory")."""

# kernel -> (argument types, device) -> bytes of dynamic shared memory that it may be started with
_allowed: weakref.WeakKeyDictionary[Any, dict[tuple, int]] = weakref.WeakKeyDictionary()


_UINT32, _PROMOTED_128B = 2, 2  # CUtensorMapDataType, …L2promotion, cuda.h
_SWIZZLES = {16: 2, 32: 3}  # words of a line -> CUtensorMapSwizzle, of its 64 or 128 bytes; of others none
UNIT, PAGE = 4, 35  # of a map: bits of an address below its third coordinate, and below its fourth


@functools.cache
def tensor_map(lines: int, width: int, box: int, words: int = 32) -> bytes:
    """The 128 bytes that tell the GPU how copy_box_async finds a box in a matrix of `lines` lines of `width` words.

    box: its lines, of so many words. The map begins at address 0 and has four coordinates: the word, the line, and two
    that make up the address of the matrix, by 16 bytes and by 2**35; so it is a constant of the kernel and not an
    argument of each launch. For a box that begins outside the matrix the GPU looks at address 0, and ends the launch.
    Zeros where there is no driver to ask: what is compiled there is looked at and not started. Raises ValueError for
    sizes that the driver refuses, and for a driver that knows no maps.
    """
    library = _library()
    if library is None:
        return bytes(128)
    encode = getattr(library, "cuTensorMapEncodeTiled", None)
    if encode is None:
        raise ValueError("the driver makes no tensor maps: it is older than CUDA 12")
    space = ctypes.create_string_buffer(192)
    start = -ctypes.addressof(space) % 64
    sizes = (ctypes.c_uint64 * 4)(width, lines, 2 ** (PAGE - UNIT), 2**14)
    strides = (ctypes.c_uint64 * 3)(4 * width, 2**UNIT, 2**PAGE)
    boxes, steps = (ctypes.c_uint32 * 4)(words, box, 1, 1), (ctypes.c_uint32 * 4)(1, 1, 1, 1)
    swizzle = _SWIZZLES.get(words, 0)
    status = encode(
        ctypes.byref(space, start), _UINT32, 4, None, sizes, strides, boxes, steps, 0, swizzle, _PROMOTED_128B, 0
    )
    if status:
        raise ValueError(
            f"the driver makes no tensor map of boxes of {box} of {lines} lines of {width} words ({status})"
        )
    return space.raw[start : start + 128]


def allow_shared(kernel: Any, args: Sequence[Any], nbytes: int) -> None:
    """Lets a kernel start with `nbytes` of dynamic shared memory, also where that is more than 48 KiB a block.

    kernel: of numba.cuda.jit, or of dwlab.simt, which holds launches to the same limits. args: what it is to be started
    with; it is compiled for them if it is not yet. The driver is called once for each compiled form and device, and
    again only for more. Raises ValueError if the GPU does not give a block so much.
    """
    if hasattr(kernel, "allow_shared"):  # dwlab.simt's
        kernel.allow_shared(args, nbytes)
        return
    if nbytes <= 0 or not hasattr(kernel, "overloads"):
        return
    from numba import cuda

    device, types = cuda.get_current_device(), tuple(kernel.typeof_pyval(one) for one in args)
    allowed, key = _allowed.setdefault(kernel, {}), (types, device.id)
    if allowed.get(key, 0) >= nbytes:
        return
    function = kernel.compile(types)._codelibrary.get_cufunc()
    static = function.attrs.shared
    if static + nbytes > SHARED_UNASKED:
        most = device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        if static + nbytes > most:
            raise ValueError(
                f"{kernel.__name__}: {static + nbytes:,} bytes of shared memory a block ({static:,} static); this GPU "
                f"gives {most:,}: make the tile smaller"
            )
        _raise_limit(function, nbytes, device)
    allowed[key] = nbytes


def arrays_of(kernel: Any, args: Sequence[Any]) -> Sequence[Any]:
    """Arguments as a kernel takes them: numba-cuda-mlir's take device arrays of its own alone. Nothing is copied."""
    if not type(kernel).__module__.startswith("numba_cuda_mlir"):
        return args
    from numba_cuda_mlir import cuda

    return [cuda.as_cuda_array(one) if hasattr(one, "__cuda_array_interface__") else one for one in args]


def _raise_limit(function: Any, nbytes: int, device: Any) -> None:
    from numba.cuda.cudadrv import driver

    attribute = driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.driver.cuKernelSetAttribute(attribute, nbytes, function.handle, device.id)
