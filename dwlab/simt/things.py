"""Values of a kernel beside numbers and arrays: elements of loops, arrays by lane, vectors, functions."""

from __future__ import annotations

import ast
import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dwlab.simt import types
from dwlab.simt.memory import NUMBERS, AnyArray, Array, Lanes, LocalArray, Mask, Range, Record
from dwlab.simt.source import Source


@dataclass(frozen=True)
class Method:
    """A bound method that a kernel may call: function(run, node, of, *arguments)."""

    function: Callable
    of: object


@dataclass(frozen=True)
class Items:
    """The elements of a `for`: how many there are, which may differ by lane, and how to get number k."""

    length: Lanes
    item: Callable[[np.int64], object]


def by_lane(which: Lanes, values: Sequence[Lanes]) -> Lanes:
    """Each lane's own of several values, of which it has the number `which`."""
    result = values[0]
    for k, value in enumerate(values[1:], 1):
        if value is not result and (np.ndim(value) or np.ndim(result) or value != result):
            result = np.where(which == k, value, result)
    return result


@dataclass(frozen=True)
class Chosen:
    """An array that is another one in other lanes. which: its number among `options`, lane by lane."""

    options: tuple[AnyArray, ...]
    which: Lanes

    @property
    def name(self) -> str:
        return " or ".join(dict.fromkeys(one.name for one in self.options))

    @property
    def dtype(self) -> np.dtype:
        return self.options[0].dtype

    @property
    def space(self) -> str:
        return self.options[0].space

    @property
    def shape(self) -> tuple[Lanes, ...]:
        return tuple(by_lane(self.which, each) for each in zip(*(one.shape for one in self.options), strict=True))

    @property
    def strides(self) -> tuple[int, ...]:
        return self.options[0].strides


@dataclass(frozen=True)
class Flat:
    """array.flat."""

    array: AnyArray | Chosen


@dataclass(frozen=True)
class Vector:
    """A vector type's value: cuda.float32x4 and its relatives."""

    name: str
    values: tuple[Lanes, ...]


@dataclass(frozen=True)
class Member:
    """A member of an enumeration, by its number in it, which may differ by lane."""

    family: type[enum.Enum]
    which: Lanes

    @property
    def value(self) -> object:
        """The member's value; all of a family are of one type."""
        values = [
            types.literal(v) if isinstance(v, (int, float, complex)) else v for v in (m.value for m in self.family)
        ]
        return np.array(values)[self.which] if self.which.ndim else values[int(self.which)]


def member(value: enum.Enum) -> Member:
    """A member as a kernel has it."""
    return Member(type(value), np.int64(list(type(value)).index(value)))


@dataclass(frozen=True)
class Versions:
    """A variable that paths have given different types and that is not read yet where they meet: each value exact.

    parts: for each type the values of it; which: the number of a lane's own, lane by lane.
    """

    parts: tuple[Lanes, ...]
    which: Lanes
    dtype = np.dtype(object)  # none of a number

    def as_type(self, dtype: np.dtype) -> Lanes:
        """The value in the type that the variable has where it is read."""
        return by_lane(self.which, [types.cast(part, dtype) for part in self.parts])


def versions(mask: Mask, new: object, old: object) -> Versions | None:
    """`new` where the mask is active and `old` elsewhere, if their common type would not hold them exactly, else None.

    64-bit integers beside floats or signed ones beside unsigned, whose common type is float64.
    """
    if not isinstance(new, NUMBERS) or mask.array is None:
        return None
    if not isinstance(old, Versions):
        if not isinstance(old, NUMBERS) or new.dtype == old.dtype or not {"int64", "uint64"} & {
            new.dtype.name, old.dtype.name} or types.unify(new.dtype, old.dtype) != types.FLOAT64:  # fmt: skip
            return None
        old = Versions((old,), np.int64(0))
    parts = list(old.parts)
    k = next((k for k, part in enumerate(parts) if part.dtype == new.dtype), len(parts))
    parts[k : k + 1] = [new if k == len(parts) else np.where(mask.array, new, parts[k])]
    return Versions(tuple(parts), np.where(mask.array, k, old.which))


@dataclass(frozen=True)
class Closure:
    """A function that a kernel makes: `def` or lambda. frame: of the function that made it, whose names it sees."""

    source: Source
    node: ast.FunctionDef | ast.Lambda
    frame: object = field(repr=False, compare=False)
    defaults: dict[str, object] = field(repr=False, compare=False)


ARRAYS = (Array, LocalArray, Chosen)


def kind(value: object) -> object:
    """A value's type as Numba distinguishes types: what must be the same for all elements that a loop goes through."""
    if isinstance(value, NUMBERS):
        return value.dtype
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, tuple):
        return type(value).__name__, *(kind(v) for v in value)
    if isinstance(value, ARRAYS):
        return "array", value.dtype, len(value.shape)
    if isinstance(value, Record):
        return "record", value.array.dtype
    if isinstance(value, Range):
        return "range", value.dtype
    if isinstance(value, Vector):
        return value.name
    if isinstance(value, Closure):
        return value.node
    if isinstance(value, Member):
        return value.family
    return type(value) if isinstance(value, (str, type(None))) else id(value)


def types_key(src: Source, arguments: Iterable[object]) -> tuple:
    """The key that distinguishes two sets of types of one function."""
    return src, tuple(kind(a) for a in arguments)


def parts(value: object) -> tuple[object, tuple, Callable[[list], object]] | None:
    """What a value of several numbers consists of; None of any other.

    (what two must have in common that differ in these numbers alone, the parts, what makes a value of such).
    """
    if isinstance(value, tuple):
        made = type(value)
        return (made, len(value)), value, lambda new: made(*new) if hasattr(made, "_fields") else tuple(new)
    if isinstance(value, Member):
        return value.family, (value.which,), lambda new: Member(value.family, *new)
    if isinstance(value, Vector):
        return kind(value), value.values, lambda new: Vector(value.name, tuple(new))
    if isinstance(value, Record):
        return id(value.array), value.indices, lambda new: Record(value.array, tuple(new))
    if isinstance(value, Array):
        same = id(value.root), value.dtype, value.strides, value.unit
        return same, (*value.shape, value.offset), lambda new: value.reshaped(tuple(new[:-1]), value.strides, new[-1])
    return None


def kind_name(value: object) -> str:
    """A value's type, for messages."""
    if isinstance(value, NUMBERS):
        return str(value.dtype)
    if isinstance(value, tuple):
        inner = {kind_name(v) for v in value}
        return f"a tuple of {len(value)} {inner.pop()}" if len(inner) == 1 else f"a tuple of {len(value)}"
    if isinstance(value, ARRAYS):
        return f"a {len(value.shape)}-dimensional array of {value.dtype}"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, Member):
        return f"a member of {value.family.__name__}"
    return "None" if value is None else getattr(value, "__name__", type(value).__name__.lower())
