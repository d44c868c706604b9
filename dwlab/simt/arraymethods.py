"""Attributes and methods of whole arrays in a kernel: shapes, views, sums, loops over indices."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import types
from dwlab.simt.memory import NUMBERS, AnyArray, Array, Lanes, strides_of
from dwlab.simt.things import ARRAYS, Chosen, Flat, Items, Method

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution


def attribute(run: Execution, array: AnyArray | Chosen, name: str, node: ast.AST) -> object:
    """array.name: a value, or a Method to be called. Raises UnsupportedError for what a kernel has not."""
    if name in ("itemsize", "nbytes", "reshape", "view") and array.space == "const":
        raise run.refuse(
            node, f"{array.name}.{name}: Numba-CUDA leaves the size of a constant array's elements unset",
            "take it outside the kernel, or pass the array as an argument",
        )  # fmt: skip
    if name in ATTRIBUTES:
        return ATTRIBUTES[name](array)
    if name == "T" and not isinstance(array, Chosen):
        return transposed(array)
    if name == "real" and array.dtype.kind != "c":
        return array
    if name in ("real", "imag") and array.dtype.kind == "c" and isinstance(array, Array):
        return array.part(name == "imag")
    if not isinstance(array, Chosen) and array.dtype.fields and name in array.dtype.fields:
        return run.field(array, name, node)
    if name in METHODS:
        return Method(METHODS[name], array)
    way_round = "write the loop out" if callable(getattr(np.ndarray, name, None)) else (
        "arrays have shape, size, ndim, dtype, strides, itemsize, nbytes, flat and T"
    )  # fmt: skip
    raise run.refuse(node, f"{array.name}.{name} is not available in a kernel", way_round)


def size(array: AnyArray | Chosen) -> Lanes:
    """Elements of an array."""
    total: Lanes = np.int64(1)
    for n in array.shape:
        total = total * n
    return total


ATTRIBUTES: dict[str, Callable] = {
    "shape": lambda array: array.shape, "size": size, "ndim": lambda array: np.int64(len(array.shape)),
    "dtype": lambda array: array.dtype, "itemsize": lambda array: np.int64(array.dtype.itemsize), "flat": Flat,
    "nbytes": lambda array: size(array) * np.int64(array.dtype.itemsize),
    "strides": lambda array: tuple(np.int64(s * array.dtype.itemsize) for s in array.strides),
}  # fmt: skip


def transposed(array: AnyArray) -> AnyArray:
    return array.reshaped(array.shape[::-1], array.strides[::-1], array.offset)


def _shape(run: Execution, node: ast.AST, array: AnyArray) -> tuple[int, ...]:
    """The shape of a contiguous array, the same in every lane."""
    if any(n.ndim for n in array.shape):
        raise run.refuse(node, f"{array.name} has another shape in other threads", "write the loop out")
    shape = tuple(int(n) for n in array.shape)
    here = [(n, s) for n, s in zip(shape, array.strides, strict=True) if n != 1]
    wanted = [(n, s) for n, s in zip(shape, strides_of(shape), strict=True) if n != 1]
    if here != wanted and 0 not in shape:
        raise run.refuse(node, f"{array.name} does not lie in one piece", "index it as it is")
    return shape


def _same_memory(array: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    return array.reshaped(tuple(np.int64(n) for n in shape), strides_of(shape), array.offset)


def _reshape(run: Execution, node: ast.AST, array: AnyArray, *given: object) -> AnyArray:
    """array.reshape(n, …), array.reshape((n, …)); one of them may be -1."""
    if isinstance(array, Chosen):
        return Chosen(tuple(_reshape(run, node, one, *given) for one in array.options), array.which)
    total = math.prod(_shape(run, node, array)) if run.exact else 1
    wanted = [run.number(n, node) for n in (given[0] if len(given) == 1 and isinstance(given[0], tuple) else given)]
    if not wanted or any(n.ndim or n.dtype.kind not in "iu" for n in wanted):
        raise run.refuse(node, "reshape() takes integers that are the same in every thread")
    sizes = [int(n) for n in wanted]
    if not run.exact:
        return _same_memory(array, (1,) * len(sizes))
    if sizes.count(-1) == 1:
        rest = math.prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = total // rest if rest else 0
    if math.prod(sizes) != total or min(sizes) < 0:
        raise run.refuse(node, f"{total} elements do not fill the shape {tuple(int(n) for n in wanted)}")
    return _same_memory(array, tuple(sizes))


def _view(run: Execution, node: ast.AST, array: AnyArray, wanted: object) -> Array:
    """array.view(dtype): the same bytes as elements of another type."""
    dtype = types.as_dtype(wanted)
    if dtype is None:
        raise run.refuse(node, "view() takes a type, e.g. np.int32")
    if isinstance(array, Chosen):
        return Chosen(tuple(_view(run, node, one, wanted) for one in array.options), array.which)
    if dtype == array.dtype:
        return array
    if not isinstance(array, Array):
        if dtype.itemsize != array.dtype.itemsize or dtype.fields or array.dtype.fields:
            raise run.refuse(node, f"{array.name} is a local array, whose view here has elements of as many bytes",
                             "view its numbers: t[k].view(…)")  # fmt: skip
        return array.as_type(dtype)
    old, new = array.dtype.itemsize, dtype.itemsize
    shape, strides = list(array.shape), [s * old for s in array.strides]
    if old != new:
        if not strides or strides[-1] != old:
            raise run.refuse(node, f"the last axis of {array.name} does not lie in one piece", "index it as it is")
        shape[-1] = shape[-1] * np.int64(old) // np.int64(new)
        strides[-1] = new
    start = array.offset * np.int64(old)
    if (start % new).any() or any(s % new for s in strides):
        raise run.refuse(node, f"the elements of {array.name} are not aligned to {new} bytes")
    return replace(
        array, dtype=dtype, shape=tuple(shape), strides=tuple(s // new for s in strides), offset=start // np.int64(new)
    )


def _transpose(run: Execution, node: ast.AST, array: AnyArray, *axes: object) -> AnyArray:
    if axes or isinstance(array, Chosen):
        raise run.refuse(node, "transpose() takes no axes here", "index it with the axes swapped")
    return transposed(array)


# --------------------------------------------------------------------- one element after the other


def places(run: Execution, node: ast.AST, array: AnyArray | Chosen) -> Iterator[tuple[Lanes, ...]]:
    """The indices of each element, in order, with the mask set to the lanes whose array has it."""
    outer = run.mask
    if not run.exact:
        yield (np.int64(0),) * len(array.shape)
        return
    most = [int(n.max()) if n.ndim else int(n) for n in array.shape]
    for at in np.ndindex(*most):
        inside: Lanes = np.bool_(True)
        for k, n in zip(at, array.shape, strict=True):
            if n.ndim:
                inside = np.logical_and(inside, k < n)
        mask, _ = outer.split(inside)
        if mask is None:
            continue
        run.mask = mask
        yield tuple(np.int64(k) for k in at)
        run.mask = outer


def fill(run: Execution, node: ast.AST, array: AnyArray | Chosen, value: Lanes) -> None:
    """Stores a number to each element of a view."""
    for at in places(run, node, array):
        run.write(array, at, value, node)


def ufunc(run: Execution, node: ast.AST, function: np.ufunc, arguments: list[object]) -> AnyArray | Chosen:
    """A NumPy function of arrays, element by element, into the array that is given last: np.sin(x, out)."""
    out = arguments[-1]
    if len(arguments) != function.nin + 1 or not isinstance(out, ARRAYS):
        name = function.__name__
        raise run.refuse(node, f"numpy.{name} of arrays needs one for its result", f"write np.{name}(…, out)")
    if any(len(one.shape) > len(out.shape) for one in arguments if isinstance(one, ARRAYS)):
        raise run.refuse(node, f"out has {len(out.shape)} dimensions, fewer than an argument", "give it as many")
    for at in places(run, node, out):
        values = []
        for one in arguments[:-1]:
            if isinstance(one, ARRAYS):
                behind = at[len(at) - len(one.shape) :]
                one = run.load(one, tuple(k * (n != 1) for k, n in zip(behind, one.shape, strict=True)), node)
            values.append(one)
        run.write(out, at, run.number(run.ufunc(function, values, node), node), node)
    return out


def _folded(run: Execution, node: ast.AST, array: AnyArray, first: Lanes, step: Callable) -> Lanes:
    if first.dtype != types.INT64:  # halves can be counted
        _no_half(run, node, array.dtype)
    total = first
    for at in places(run, node, array):
        outer = run.mask
        new = step(total, run.load(array, at, node))
        total = run.merge(outer, new, total, "the sum") if outer.array is not None else new
    return total


def _no_half(run: Execution, node: ast.AST, dtype: np.dtype) -> None:
    if dtype == types.FLOAT16:
        raise run.refuse(node, "Numba-CUDA compiles no such function of float16", "write the loop out")


def contains(run: Execution, node: ast.AST, array: AnyArray | Chosen, wanted: object) -> Lanes:
    """`wanted in array`: elements are read until one is equal."""
    _no_half(run, node, array.dtype)
    outer, found = run.mask, np.bool_(False)
    for at in places(run, node, array):
        left, _ = run.mask.split(np.logical_not(found))
        if left is not None:
            run.mask = left
            found = np.logical_or(found, run.compare(ast.Eq(), run.load(array, at, node), wanted, node))
    run.mask = outer
    return found


def _applied(op: Callable) -> Callable:
    def step(run: Execution, node: ast.AST, total: Lanes, v: Lanes) -> Lanes:
        return types.cast(run.apply(op, total, types.cast(v, total.dtype), node), total.dtype)

    return step


def _total(op: Callable, first: int) -> Callable:
    """A sum or a product."""
    step = _applied(op)

    def method(run: Execution, node: ast.AST, array: AnyArray) -> Lanes:
        wide = {"b": types.INT64, "i": types.INT64, "u": types.UINT64}.get(array.dtype.kind, array.dtype)  # as Numba
        return _folded(run, node, array, wide.type(first), lambda total, v: step(run, node, total, v))

    return method


def _mean(run: Execution, node: ast.AST, array: AnyArray) -> Lanes:
    first, step = (array.dtype if array.dtype.kind in "fc" else types.FLOAT64).type(0), _applied(operator.add)
    total = _folded(run, node, array, first, lambda total, v: step(run, node, total, v))
    return run.apply(operator.truediv, total, size(array), node)


def _var(run: Execution, node: ast.AST, array: AnyArray) -> Lanes:
    step = _square_off(_mean(run, node, array))
    total = _folded(run, node, array, np.float64(0), lambda total, v: step(run, node, total, v))
    return run.apply(operator.truediv, total, size(array), node)


def _square_off(mean: Lanes) -> Callable:
    """Adds a number's squared distance from the mean."""

    def step(run: Execution, node: ast.AST, total: Lanes, v: Lanes) -> Lanes:
        off = run.apply(operator.sub, v, mean, node)
        for part in (off.real, off.imag) if off.dtype.kind == "c" else (off,):
            total = run.apply(operator.add, total, run.apply(operator.mul, part, part, node), node)
        return total

    return step


def _root_of(variance: Callable) -> Callable:
    return lambda run, node, array: run.apply(operator.pow, variance(run, node, array), np.float64(0.5), node)


def _extreme_at(compare: Callable) -> Callable:
    def method(run: Execution, node: ast.AST, array: AnyArray) -> Lanes:
        _no_half(run, node, array.dtype)
        if array.dtype.kind == "c":
            raise run.refuse(node, "complex numbers have no order", "compare their parts or their abs()")
        best, at, k = None, np.int64(0), 0
        for place in places(run, node, array):
            value = run.load(array, place, node)
            if best is None:
                best = value
            else:
                better = compare(value, best) | (value != value) & (best == best)  # the first NaN there is
                best = np.where(better, value, best)[()]
                at = np.where(better, np.int64(k), at)[()]
            k += 1
        return at

    return method


def _truths(combine: np.ufunc, first: bool) -> Callable:
    """any() or all()."""
    return lambda run, node, array: _folded(run, node, array, np.bool_(first), lambda t, v: combine(t, types.truth(v)))


METHODS: dict[str, Callable] = {
    "reshape": _reshape, "view": _view, "transpose": _transpose,
    "fill": lambda run, node, array, value: fill(run, node, array, run.number(value, node)),
    "item": lambda run, node, array: run.load(array, (np.int64(0),) * len(array.shape), node),
    "sum": _total(operator.add, 0), "prod": _total(operator.mul, 1), "mean": _mean, "var": _var, "std": _root_of(_var),
    "argmax": _extreme_at(operator.gt), "argmin": _extreme_at(operator.lt),
    "any": _truths(np.logical_or, False), "all": _truths(np.logical_and, True),
}  # fmt: skip


# --------------------------------------------------------------------- numpy's functions of an array, and of indices


def _ndindex(run: Execution, node: ast.AST, *shape: object) -> Items:
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
    sizes = [run.number(n, node) for n in sizes]
    if any(n.ndim or n.dtype.kind not in "iu" for n in sizes):
        raise run.refuse(node, "ndindex() takes integers that are the same in every thread")
    sizes = [max(0, int(n)) for n in sizes]
    return Items(
        np.int64(math.prod(sizes)), lambda k: tuple(np.int64(n) for n in np.unravel_index(int(k), sizes or (1,)))
    )


def _ndenumerate(run: Execution, node: ast.AST, array: object) -> Items:
    if not isinstance(array, ARRAYS):
        raise run.refuse(node, "ndenumerate() takes an array")
    indices = _ndindex(run, node, array.shape)

    def item(k: np.int64) -> tuple:
        at = indices.item(k)
        return at, run.load(array, at, node)

    return Items(indices.length, item)


def _of_array(name: str) -> Callable:
    def function(run: Execution, node: ast.AST, array: object, *more: object) -> object:
        if name in ("any", "all") and isinstance(array, NUMBERS) and not more:
            _no_half(run, node, array.dtype)
            return types.truth(array)
        if not isinstance(array, ARRAYS) or more:
            raise run.refuse(node, f"numpy.{name} takes one array here")
        return METHODS[name](run, node, array)

    return function


def _without_nan(first: Callable, step: Callable) -> Callable:
    """A sum or product over what is no NaN. first(dtype): what it begins with; step(run, node, total, value)."""

    def function(run: Execution, node: ast.AST, array: object) -> Lanes:
        if not isinstance(array, ARRAYS):
            raise run.refuse(node, "an array is needed here, not a number")
        return _folded(
            run, node, array, first(array.dtype),
            lambda total, v: np.where(np.isnan(v), total, step(run, node, total, v))[()],
        )  # fmt: skip

    return function


_nansum, _nanprod = (  # of unsigned numbers too it is an int64
    _without_nan(lambda dtype, first=first: (dtype if dtype.kind in "fc" else types.INT64).type(first), _applied(op))
    for op, first in ((operator.add, 0), (operator.mul, 1))
)
_wide_sum = _without_nan(lambda dtype: (np.complex128 if dtype.kind == "c" else np.float64)(0), _applied(operator.add))
_there = _without_nan(lambda dtype: np.int64(0), lambda run, node, total, v: total + np.int64(1))


def _nanmean(run: Execution, node: ast.AST, array: object) -> Lanes:
    return run.apply(operator.truediv, _wide_sum(run, node, array), _there(run, node, array), node)


def _nanvar(run: Execution, node: ast.AST, array: object) -> Lanes:
    step = _square_off(_nanmean(run, node, array))
    squares = _without_nan(lambda dtype: np.float64(0), step)(run, node, array)
    return run.apply(operator.truediv, squares, _there(run, node, array), node)


def _count_nonzero(run: Execution, node: ast.AST, array: object) -> Lanes:
    if isinstance(array, NUMBERS):
        return types.cast(types.truth(array), types.INT64)
    if not isinstance(array, ARRAYS):
        raise run.refuse(node, "numpy.count_nonzero takes an array or a number")
    return _folded(run, node, array, np.int64(0), lambda total, v: total + types.truth(v).astype(np.int64))


def _angle(run: Execution, node: ast.AST, value: object) -> Lanes:
    value = run.number(value, node)
    _no_half(run, node, value.dtype)
    return np.angle(value)


def _sinc(run: Execution, node: ast.AST, value: object) -> Lanes:
    value = run.number(value, node)
    if value.dtype == types.BOOL:
        raise run.refuse(node, "numpy.sinc takes no bool", "float64(…) converts")
    kept = value.dtype.kind in "fc" and value.dtype != types.FLOAT16
    return np.sinc(value if kept else types.cast(value, types.FLOAT64))[()]


def _has_kind(kinds: str, yes: bool) -> Callable:
    """isrealobj and its like: decided by the type."""

    def function(run: Execution, node: ast.AST, value: object) -> np.bool_:
        if not isinstance(value, (*NUMBERS, *ARRAYS)):
            raise run.refuse(node, f"{ast.unparse(node.func)} takes a number or an array")
        return np.bool_((value.dtype.kind in kinds) == yes)

    return function


def part(name: str) -> Callable:
    def function(run: Execution, node: ast.AST, value: object) -> Lanes:
        value = run.number(value, node)
        return getattr(value, name) if value.dtype.kind == "c" else (value if name == "real" else value.dtype.type(0))

    return function


def _size_of(run: Execution, node: ast.AST, array: object) -> Lanes:
    if not isinstance(array, ARRAYS):
        raise run.refuse(node, "numpy.size takes an array")
    return size(array)


FUNCTIONS: dict[object, Callable] = {
    np.ndindex: _ndindex, np.ndenumerate: _ndenumerate,
    np.shape: lambda run, node, array: array.shape if isinstance(array, ARRAYS) else (), np.size: _size_of,
    np.nansum: _nansum, np.nanprod: _nanprod, np.nanmean: _nanmean, np.nanvar: _nanvar, np.nanstd: _root_of(_nanvar),
    np.average: _of_array("mean"), np.angle: _angle, np.sinc: _sinc, np.isrealobj: _has_kind("c", False),
    np.iscomplexobj: _has_kind("c", True), np.isscalar: lambda run, node, value: np.bool_(isinstance(value, NUMBERS)),
    np.count_nonzero: _count_nonzero, np.real: part("real"), np.imag: part("imag"),
    **{getattr(np, name): _of_array(name) for name in ("sum", "prod", "mean", "var", "std", "argmax", "argmin", "any",
                                                       "all")},
}  # fmt: skip


def flat_index(run: Execution, node: ast.AST, array: AnyArray | Chosen, index: Lanes) -> tuple[Lanes, ...]:
    """The indices of element number `index` in C order."""
    at, rest = [], types.cast(run.number(index, node), types.INT64)
    for n in array.shape[:0:-1]:
        at.append(rest % n)
        rest = rest // n
    return (rest, *at[::-1])
