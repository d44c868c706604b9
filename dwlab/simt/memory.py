"""Arrays as a simulated kernel sees them, and the masks that say which lanes are active.

Lanes are laid out as (blocks of the batch, threads of a block padded to whole warps). A value is a NumPy scalar (the
same in every lane) or an array that broadcasts to that layout: (1, T), (NB, 1) or (NB, T).
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace

import numpy as np

from dwlab.simt import trace
from dwlab.simt.options import UnsupportedError

Lanes = np.generic | np.ndarray
NUMBERS = (np.ndarray, np.generic)
"""The types of a number, in one lane or in all; by this name quicker to test for than written out each time."""


def filled(value: Lanes, shape: tuple[int, int]) -> np.ndarray:
    """A value as a contiguous array with an element for each lane; itself, if it is one."""
    if value.shape == shape and value.flags.c_contiguous:
        return value
    out = np.empty(shape, value.dtype)
    out[...] = value
    return out


class Mask:
    """Active lanes. `array` broadcasts to (NB, T); None means every lane."""

    __slots__ = ("array", "shape", "_lanes", "_warps", "_full")

    def __init__(self, array: np.ndarray | None, shape: tuple[int, int]):
        self.array = array
        self.shape = shape
        self._lanes = self._warps = self._full = None

    @property
    def lanes(self) -> int:
        """Number of active lanes."""
        if self._lanes is None:
            total = self.shape[0] * self.shape[1]
            if self.array is None:
                self._lanes = total
            else:
                self._lanes = int(np.count_nonzero(self.array)) * (total // self.array.size)
        return self._lanes

    @property
    def warps(self) -> int:
        """Number of warps with an active lane."""
        if self._warps is None:
            blocks, threads = self.shape
            if blocks * threads == 32:
                self._warps = min(1, self.lanes)
            elif self.array is None:
                self._warps = blocks * threads // 32
            elif self.array.shape[1] == 1:
                self._warps = int(np.count_nonzero(self.array)) * threads // 32
            else:
                rows = self.array.shape[0]
                by_warp = self.array.reshape(rows, -1, 32).any(axis=2)
                self._warps = int(np.count_nonzero(by_warp)) * (blocks // rows)
        return self._warps

    def rows(self, count: int) -> np.ndarray:
        """The mask as a contiguous (count, T) array; count is 1 (the mask must not differ between blocks) or NB."""
        if count == self.shape[0]:
            return self.full
        if self.array is None:
            return np.ones((1, self.shape[1]), np.bool_)
        return np.ascontiguousarray(np.broadcast_to(self.array, (1, self.shape[1])))

    @property
    def full(self) -> np.ndarray:
        """The mask as a contiguous (NB, T) array."""
        if self._full is None:
            if self.array is None:
                self._full = np.ones(self.shape, np.bool_)
            else:
                self._full = filled(self.array, self.shape)
        return self._full

    def split(self, condition: Lanes) -> tuple[Mask | None, Mask | None]:
        """(lanes where the condition holds, the others); None for an empty side, self for a side with all lanes."""
        if condition.ndim == 0:
            return (self, None) if condition else (None, self)
        yes = Mask(condition if self.array is None else self.array & condition, self.shape)
        if not yes.lanes:
            return None, self
        if yes.lanes == self.lanes:
            return self, None
        no = Mask(~condition if self.array is None else np.greater(self.array, condition), self.shape)
        no._lanes = self.lanes - yes.lanes
        return yes, no

    def without(self, other: np.ndarray) -> Mask | None:
        """These lanes less the others; None if none is left."""
        return self.split(~other)[0]


def join(first: Mask | None, second: Mask | None, whole: Mask | None = None) -> Mask | None:
    """The union of two disjoint masks; `whole` itself when that is what they make up."""
    if first is None or second is None:
        return first or second
    if whole is not None and first.lanes + second.lanes == whole.lanes:
        return whole
    return Mask(first.array | second.array, first.shape)


class Root:
    """One allocation: bytes, an address, and what is known of it.

    space: "global", "shared" or "const".  data: uint8, flat; shared memory holds `row_bytes` bytes for each block.
    granule: bytes per shadow record.  tracked: whether races and unwritten reads are looked for.  before: the bytes as
    they were before the launch, kept at the first store if `kept`; stored: that store's line, 0 if there is none.
    """

    def __init__(self, space: str, data: np.ndarray, address: int, row_bytes: int = 0):
        self.space = space
        self.data = data
        self.address = address
        self.row_bytes = row_bytes
        self.granule = 0
        self.tracked = False
        self.check_unwritten = False
        self.read_only = False
        self.kept = False
        self.before: np.ndarray | None = None
        self.stored = 0
        self.shadow: tuple[np.ndarray, ...] | None = None  # trace.SHADOW
        self.initial: np.ndarray | None = None  # a flag a byte: written before the launch
        self.touched: np.ndarray | None = None
        self._views: dict[np.dtype, np.ndarray] = {}

    def view(self, dtype: np.dtype) -> np.ndarray:
        """All of it as elements of `dtype`."""
        out = self._views.get(dtype)
        if out is None:
            out = self._views[dtype] = self.data[: len(self.data) // dtype.itemsize * dtype.itemsize].view(dtype)
        return out

    def granules(self, itemsize: int) -> int:
        """Shadow granules per element of this size; refines the shadow when an element is smaller than a granule."""
        if self.granule == 0:
            self.granule = itemsize
        if itemsize % self.granule:
            finer = int(np.gcd(itemsize, self.granule))
            if self.shadow is not None:
                self.shadow = tuple(np.repeat(part, self.granule // finer, axis=1) for part in self.shadow)
            self.granule = finer
        if self.shadow is None:
            rows = len(self.data) // self.row_bytes if self.row_bytes else 1
            length = (self.row_bytes or len(self.data)) // self.granule
            self.shadow = tuple(np.zeros((rows, length), part) for part in trace.SHADOW)
            if self.initial is not None:
                self.shadow[trace.WRITE]["written"][0] = self.initial[:: self.granule][:length]
        return itemsize // self.granule


@dataclass(frozen=True)
class Array:
    """An array in global, shared or constant memory. Strides and offset count elements; both may differ by lane.

    Those of records in other records, and of complex numbers in them, count `unit` bytes instead.
    """

    root: Root
    name: str
    dtype: np.dtype
    shape: tuple[Lanes, ...]
    strides: tuple[int, ...]
    offset: Lanes = field(default_factory=lambda: np.int64(0))
    unit: int = 0

    @property
    def space(self) -> str:
        return self.root.space

    def reshaped(self, shape: tuple[Lanes, ...], strides: tuple[int, ...], offset: Lanes) -> Array:
        """The same memory by other axes."""
        return Array(self.root, self.name, self.dtype, shape, strides, offset, self.unit)

    def part(self, imaginary: bool) -> Array:
        """The real or the imaginary parts of complex numbers."""
        half = np.dtype(f"f{self.dtype.itemsize // 2}")
        if self.unit:
            return replace(self, dtype=half, offset=self.offset + np.int64(imaginary), unit=0)
        strides, offset = tuple(2 * s for s in self.strides), self.offset * np.int64(2) + np.int64(imaginary)
        return replace(self, dtype=half, strides=strides, offset=offset)

    def field(self, name: str) -> Array:
        """The array of one field of a structured dtype; the axes of a field that is an array follow its own."""
        field, start = self.dtype.fields[name][:2]
        dtype, inner = field.subdtype or (field, ())
        have, unit = self.unit or self.dtype.itemsize, dtype.itemsize
        if dtype.fields:
            unit = dtype.alignment
        elif dtype.kind == "c" and (start % unit or self.dtype.itemsize % unit):
            unit //= 2
        places = (*(s * have for s in self.strides), start, *np.ravel(self.offset * np.int64(have)))
        if any(one % unit for one in places):
            raise UnsupportedError(
                f"field {name!r} of {self.name} does not lie at a multiple of its size: make the dtype with align=True"
            )
        return replace(
            self,
            name=f"{self.name}.{name}",
            dtype=dtype,
            shape=(*self.shape, *(np.int64(n) for n in inner)),
            strides=(
                *(s * have // unit for s in self.strides),
                *(s * (dtype.itemsize // unit) for s in strides_of(inner)),
            ),
            offset=self.offset * np.int64(have) // np.int64(unit) + np.int64(start // unit),
            unit=unit if dtype.fields or unit != dtype.itemsize else 0,
        )


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements between neighbours along each axis of a C-contiguous array."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


class LocalArray:
    """A thread's own array, or a view of it: storage (elements, NB, T), and which elements were written.

    base: the array itself of a view of its elements.  views: of all of it as other elements, by field or type.
    """

    space = "local"

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype, lanes: tuple[int, int]):
        self.name = name
        self.dtype = dtype
        self.shape = tuple(np.int64(n) for n in shape)
        self.strides = strides_of(shape)
        self.offset: Lanes = np.int64(0)
        self.storage = np.zeros((math.prod(shape), *lanes), dtype)
        self.written = np.zeros(self.storage.shape, np.bool_)
        self.base = self
        self.views: dict[str | np.dtype, LocalArray] = {}

    def reshaped(self, shape: tuple[Lanes, ...], strides: tuple[int, ...], offset: Lanes) -> LocalArray:
        """The same memory by other axes."""
        one = copy.copy(self)
        one.shape, one.strides, one.offset = shape, strides, offset
        return one

    def _view(self, key: str | np.dtype, name: str, storage: np.ndarray, written: np.ndarray | None) -> LocalArray:
        one = self.base.views.get(key)
        if one is None:
            shape = tuple(int(n) for n in self.base.shape)
            one = self.base.views[key] = LocalArray(name, shape, storage.dtype, storage.shape[1:])
            one.storage, one.written = storage, one.written if written is None else written
        return one if self is self.base else one.reshaped(self.shape, self.strides, self.offset)

    def field(self, name: str) -> LocalArray:
        """One field of an array of records: the same memory."""
        if self.dtype.fields[name][0].subdtype:
            raise UnsupportedError(f"field {name!r} of the local array {self.name} is an array, which is not run here")
        return self._view(name, f"{self.name}.{name}", self.storage[name], None)

    def as_type(self, dtype: np.dtype) -> LocalArray:
        """The same memory as elements of another type of as many bytes."""
        return self._view(dtype, self.name, self.storage.view(dtype), self.written)


AnyArray = Array | LocalArray


@dataclass(frozen=True)
class Record:
    """One element of an array of a structured dtype; its fields are read and written in place."""

    array: Array
    indices: tuple[Lanes, ...]


@dataclass(frozen=True)
class Range:
    """range(start, stop, step) whose bounds may differ by lane."""

    start: Lanes
    stop: Lanes
    step: Lanes
    dtype: np.dtype
