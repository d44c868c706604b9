"""The laptop GPU behind numba.cuda's names: in simulated mode `from dwlab import cuda` is this module."""

import sys as _sys

from numba.core import types

from dwlab.simt import hostapi as _hostapi
from dwlab.simt import random_states as _random_states
from dwlab.simt.hostapi import *  # noqa: F403
from dwlab.simt.launch import jit
from dwlab.simt.names import NAMES as _NAMES
from dwlab.simt.reduce import Reduce, reduce

_TYPES = (
    "b1 bool_ boolean byte c16 c8 char complex128 complex64 double f4 f8 float32 float64 i1 i2 i4 i8 int16 int32 int64 "
    "int8 int_ intc intp long_ longlong none short size_t ssize_t u1 u2 u4 u8 uchar uint uint16 uint32 uint64 uint8 "
    "uintc uintp ulong ulonglong ushort void"
).split()
globals().update(_NAMES, **{name: getattr(types, name) for name in _TYPES})
is_simulated = True
_random_states.use(_sys.modules[__name__])

__all__ = [
    *_hostapi.__all__, *_NAMES, *_TYPES, "is_simulated", "jit", "Reduce", "reduce", "types",
]  # fmt: skip


def __getattr__(name: str) -> object:
    raise AttributeError(f"the laptop GPU has no cuda.{name}")
