"""What a kernel can hold beside numbers and arrays: what a loop goes through, arrays by lane, vectors, functions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dwlab.simt.memory import AnyArray, Array, Lanes, LocalArray, LocalView, Range, Record
from dwlab.simt.source import Source


@dataclass(frozen=True)
class Method:
    """A bound method that a kernel may call: called as function(run, node)."""

    function: Callable


@dataclass(frozen=True)
class Items:
    """What a `for` goes through: how many there are, which may differ by lane, and how to get number k."""

    length: Lanes
    item: Callable[[np.int64], object]


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
        return tuple(self.by_lane([one.shape[k] for one in self.options]) for k in range(len(self.options[0].shape)))

    @property
    def strides(self) -> tuple[int, ...]:
        return self.options[0].strides

    def by_lane(self, values: list[Lanes]) -> Lanes:
        """Of one value for each option that of the lane's own."""
        result = values[0]
        for k, value in enumerate(values[1:], 1):
            if value is not result and (np.ndim(value) or np.ndim(result) or value != result):
                result = np.where(self.which == k, value, result)
        return result


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
class Closure:
    """A function that a kernel makes: `def` or lambda. frame: of the function that made it, whose names it sees."""

    source: Source
    node: ast.FunctionDef | ast.Lambda
    frame: object = field(repr=False, compare=False)
    defaults: dict[str, object] = field(repr=False, compare=False)


ARRAYS = (Array, LocalArray, LocalView, Chosen)


def kind(value: object) -> object:
    """A value's type as Numba distinguishes types: what must be the same for all elements that a loop goes through."""
    if isinstance(value, (np.ndarray, np.generic)):
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
    return type(value) if isinstance(value, (str, type(None))) else id(value)


def kind_name(value: object) -> str:
    """A value's type, for messages."""
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype)
    if isinstance(value, tuple):
        inner = {kind_name(v) for v in value}
        return f"a tuple of {len(value)} {inner.pop()}" if len(inner) == 1 else f"a tuple of {len(value)}"
    if isinstance(value, ARRAYS):
        return f"a {len(value.shape)}-dimensional array of {value.dtype}"
    if isinstance(value, str):
        return "a string"
    return "None" if value is None else type(value).__name__.lower()
