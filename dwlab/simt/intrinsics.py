"""Functions that a kernel may call: cuda.* names, Python's builtins, and those that others register.

Every function here takes the Execution first, then the call's syntax node, then the evaluated arguments.
"""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numba.core import types as nt

from dwlab.simt import arraymethods, libdevice, trace, types
from dwlab.simt.memory import NUMBERS, AnyArray, Array, Lanes, LocalArray, Range, Record, Root, strides_of
from dwlab.simt.names import CACHE_HINTS, NAMES, VECTORS, DeviceName
from dwlab.simt.options import LaunchError
from dwlab.simt.order import BLOCK, GPU
from dwlab.simt.things import ARRAYS, Chosen, Flat, Items, Vector, kind_name

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

FULL = 0xFFFFFFFF


_meanings: dict[int, tuple[object, Callable]] = {}  # by ids, which stay theirs as the functions are kept beside


def register_instruction(
    function: object, meaning: Callable, refusal: Callable[[tuple[int, int]], str] | None = None
) -> None:
    """Tells the interpreter what a foreign function (an inline-PTX intrinsic, say) does, lane by lane.

    meaning(run, node, *arguments) gets the Execution, the call's syntax node and the argument values, and returns the
    result in every lane. refusal(compute capability) says why such a GPU lacks the instruction, or "".
    """

    @functools.wraps(meaning)
    def checked(run: Execution, node: ast.Call, *arguments: object, **keywords: object) -> object:
        if why := refusal(run.options.compute_capability):
            raise run.refuse(node, why)
        return meaning(run, node, *arguments, **keywords)

    _meanings[id(function)] = (function, checked if refusal else meaning)


def meaning(function: object) -> Callable | None:
    """The registered meaning of a function, or None."""
    return _meanings.get(id(function), (None, None))[1]


# --------------------------------------------------------------------- builtins


def _range(run: Execution, node: ast.Call, *arguments: object) -> Range:
    values = [run.number(a, node) for a in arguments]
    if not 1 <= len(values) <= 3:
        raise run.refuse(node, "range() takes one to three integers")
    values = [types.cast(v, types.INT64) if v.dtype.kind == "f" else v for v in values]  # as Numba-CUDA does, unasked
    if any(v.dtype.kind not in "iub" for v in values):
        raise run.refuse(node, "range() takes integers", "int32(…) converts")
    dtypes = {v.dtype for v in values}
    small = all(d.kind == "b" or (d.itemsize <= 4 and d.kind == "i") for d in dtypes)
    dtype = types.INT32 if small else types.UINT64 if all(d.kind == "u" for d in dtypes) else types.INT64
    start, stop, step = dtype.type(0), values[0], dtype.type(1)
    if len(values) > 1:
        start, stop = values[0], values[1]
    if len(values) > 2:
        step = values[2]
    return Range(start, stop, step, dtype)


def length_of(whole: Range) -> Lanes:
    """The length of a range()."""
    start, stop, step = (types.cast(v, types.INT64) for v in (whole.start, whole.stop, whole.step))
    length = np.maximum((stop - start + step - np.sign(step)) // np.where(step == 0, 1, step), 0)
    return length if length.ndim else np.int64(length)


def _extreme(run: Execution, node: ast.Call, *arguments: object, function: Callable) -> Lanes:
    """min() and max(). Of two floats it is PTX's min or max, which passes over a NaN.

    Of more, of a float16 or of a tuple, it is `b if b < a else a`, one after the other: a NaN wins that stands first.
    """
    run.no_member(node, *arguments)
    if len(arguments) == 1 and not isinstance(arguments[0], (tuple, *ARRAYS)):
        raise run.refuse(node, f"{function.__name__}() of one number", "give two, or a tuple")
    items = run.unpack(arguments[0], node) if len(arguments) == 1 else arguments
    values = [run.number(a, node) for a in items]
    if not values:
        raise run.refuse(node, f"{function.__name__}() of nothing")
    if len({v.dtype.kind == "b" for v in values}) == 2:
        raise run.refuse(node, f"{function.__name__}() takes no bool beside other numbers", "int32(…) converts")
    if any(v.dtype.kind == "c" for v in values):
        raise run.refuse(node, "complex numbers have no order", "compare their parts or their abs()")
    dtype = types.unify(*(v.dtype for v in values))
    if run.watch is not None and dtype == types.FLOAT64:
        run.watch.computed(None, values, node)
    if len(arguments) == 2 and {v.dtype for v in values} <= {types.FLOAT32, types.FLOAT64}:
        return (np.fmin if function is min else np.fmax)(*(types.cast(v, dtype) for v in values))
    compare = operator.lt if function is min else operator.gt
    best = types.cast(values[0], dtype)
    for value in values[1:]:
        value = types.cast(value, dtype)
        best = np.where(compare(value, best), value, best)
        best = best if best.ndim else dtype.type(best)
    return best


def _round(run: Execution, node: ast.Call, of: object, *to: object) -> Lanes:
    value, *digits = (run.number(a, node) for a in (of, *to))
    if run.watch is not None and value.dtype.kind == "f":  # made in float64 whatever it is
        run.watch.computed(None, [value], node)
    if value.dtype.kind == "c":
        raise run.refuse(node, "round() takes real numbers")
    if digits:
        return _round_to(value, types.cast(digits[0], types.INT64))
    wide = value if value.dtype.kind == "f" else types.cast(value, types.FLOAT64)  # an integer as well
    return types.cast(np.rint(wide), types.INT64)


def _round_to(value: Lanes, digits: Lanes) -> Lanes:
    """round(value, digits) as Numba-CUDA compiles it: by way of an integer of 64 bits, in which large ones saturate."""
    ten, wide = np.float64(10), types.cast(value, types.FLOAT64)
    many = digits > 22
    first = np.where(many, ten ** np.where(many, digits - 22, 0), ten ** np.abs(np.where(many, 0, digits)))
    second = np.where(many, 1e22, 1.0)
    scaled = np.where(digits >= 0, wide * first * second, wide / first)
    near = types.cast(np.rint(scaled), types.INT64).astype(np.float64)
    near = np.where(np.abs(scaled - near) == 0.5, 2.0 * np.rint(scaled / 2.0), near)
    out = np.where(digits >= 0, near / second / first, near * first)
    out = np.where(np.isfinite(wide) & np.isfinite(scaled), out, wide)
    return types.cast(out, types.as_float(value.dtype) if value.dtype.kind == "f" else types.FLOAT64)[()]


def _zip(run: Execution, node: ast.Call, *given: object) -> Items:
    """zip(): as many elements as the shortest part has."""
    parts = [run.items(one, node) for one in given]
    length: Lanes = np.int64(0)
    for k, one in enumerate(parts):
        length = one.length if k == 0 else np.minimum(length, one.length)
    return Items(length, lambda k: tuple(one.item(k) for one in parts))


def _enumerate(run: Execution, node: ast.Call, of: object, start: object = None) -> Items:
    begin = np.int64(0) if start is None else types.cast(run.number(start, node), types.INT64)
    items = run.items(of, node)
    return Items(items.length, lambda k: (begin + k, items.item(k)))


def _sum(run: Execution, node: ast.Call, of: object, start: object = None) -> Lanes:
    """sum() of a tuple, an array or a range, element after element."""
    if isinstance(of, tuple):
        length, item = np.int64(len(of)), lambda k: of[int(k)]
    else:
        items = run.items(of, node)
        length, item = items.length, items.item
    total = types.literal(0) if start is None else run.number(start, node)
    outer = run.mask
    for k in range(int(length.max()) if length.ndim else int(length)):
        mask, _ = outer.split(k < length)
        if mask is not None:
            run.mask = mask
            total = run.merge(mask, run.apply(operator.add, total, item(np.int64(k)), node), total, "the sum")
    run.mask = outer
    return total


def _isinstance(run: Execution, node: ast.Call, value: object, wanted: object) -> np.bool_:
    """isinstance(): decided by the value's type, so the same in every lane."""
    if isinstance(wanted, tuple):
        return np.bool_(any(_isinstance(run, node, value, one) for one in wanted))
    if wanted in (int, float, complex, bool):  # one type each, not a family
        wanted = {int: np.int64, float: np.float64, complex: np.complex128, bool: np.bool_}[wanted]
    if wanted in (tuple, str):
        return np.bool_(isinstance(value, wanted))
    if wanted is np.ndarray:
        return np.bool_(isinstance(value, ARRAYS))
    dtype = types.as_dtype(wanted)
    if dtype is None:
        raise run.refuse(node, "isinstance() takes int, float, complex, bool, tuple, str or a NumPy type here")
    return np.bool_(isinstance(value, NUMBERS) and value.dtype == dtype)


def type_of(value: object) -> nt.Type | None:
    """The Numba type of a number or an array; None of anything else."""
    if isinstance(value, NUMBERS):
        return types.numba_type(value.dtype)
    return nt.Array(types.numba_type(value.dtype), len(value.shape), "A") if isinstance(value, ARRAYS) else None


def _hasattr(run: Execution, node: ast.Call, value: object, name: object) -> np.bool_:
    """hasattr(): decided by the value's type, so the same in every lane."""
    if not isinstance(name, str):
        raise run.refuse(node, "hasattr() takes a name that is written down")
    if isinstance(value, Record):
        return np.bool_(name in (value.array.dtype.names or ()))
    if isinstance(value, tuple):
        return np.bool_(name in getattr(value, "_fields", ()))
    if isinstance(value, ARRAYS):
        of: nt.Type = nt.Array(nt.float64, len(value.shape), "C")
    else:
        of = types.numba_type(run.number(value, node).dtype)
    return np.bool_(types.context().resolve_getattr(of, name) is not None)


def _type(run: Execution, node: ast.Call, *arguments: object) -> np.dtype:
    """type() of a number, which converts when it is called."""
    if len(arguments) != 1 or not isinstance(arguments[0], NUMBERS):
        raise run.refuse(node, "Numba-CUDA has type() of a number only")
    return arguments[0].dtype


def _print(run: Execution, node: ast.Call, *arguments: object) -> None:
    """One line per active thread, in thread order, as the device's printf writes it: floats with six decimals."""
    texts = [_printed(run, node, one) for one in arguments]
    for row, lane in np.argwhere(run.mask.full) if run.exact else ():
        builtins.print(*(text(row, lane) for text in texts))


def _printed(run: Execution, node: ast.Call, value: object) -> Callable[[int, int], str]:
    """A function that gives what print writes of a value for a row and a lane."""
    if isinstance(value, str):
        return lambda row, lane: value
    if isinstance(value, tuple):
        if any(isinstance(one, str) for one in value):
            raise run.refuse(node, "print takes no string in a tuple", "give it on its own: print(a, b)")
        parts = [_printed(run, node, one) for one in value]
        end = ",)" if len(parts) == 1 else ")"
        return lambda row, lane: "(" + ", ".join(part(row, lane) for part in parts) + end
    if isinstance(value, DeviceName) and run.axis(getattr(value, "x", value)) is not None:
        return _printed(run, node, tuple(run.axis(getattr(value, axis)) for axis in "xyz"))
    if not isinstance(value, NUMBERS) or value.dtype.kind == "c":
        raise run.refuse(
            node, f"print does not take {kind_name(value)}", "it takes numbers, tuples and strings: print(a, b)"
        )
    lanes = np.broadcast_to(value, run.lanes_shape)
    return lambda row, lane: ("%f" if value.dtype.kind == "f" else "%s") % lanes[row, lane]


def _cast(run: Execution, node: ast.Call, *arguments: object, function: Callable) -> Lanes:
    """int(), float(), bool() and complex() of a number; complex() also of two."""
    run.no_member(node, *arguments)
    if len(arguments) == 2 and function is complex:
        parts = [run.number(a, node) for a in arguments]
        if any(v.dtype in (types.BOOL, types.FLOAT16) for v in parts):
            raise run.refuse(node, "Numba-CUDA has no complex() of a bool or a float16", "float64(…) converts")
        return types.complex_of(*(types.cast(v, types.FLOAT64) for v in parts))
    if len(arguments) != 1:
        raise run.refuse(node, f"{function.__name__}() takes one number")
    if function is bool and isinstance(arguments[0], (tuple, str)):
        return np.bool_(len(arguments[0]) > 0)
    value = run.number(arguments[0], node)
    if function is bool and value.dtype == types.FLOAT16:
        raise run.refuse(node, "bool() takes no float16", "compare it with 0")
    result = run.call_at(node, types.builtin_cast, function, value)
    if run.watch is not None and types.FLOAT64 in (value.dtype, result.dtype):
        if value.dtype == types.FLOAT64:
            run.watch.stored(value, result.dtype, node, run.is_known(node))
        elif not run.is_known(node):
            run.watch.converted(value, result, node)
    return result


def _len(run: Execution, node: ast.Call, thing: object) -> Lanes:
    if isinstance(thing, (tuple, str, bytes)):
        return np.int64(len(thing))
    if isinstance(thing, ARRAYS) and thing.shape:
        return thing.shape[0]
    if isinstance(thing, Range):
        return length_of(thing)
    if isinstance(thing, Flat):
        return arraymethods.size(thing.array)
    raise run.refuse(node, f"len() of {kind_name(thing)}", "it takes a tuple, an array, a range or a string")


def _ord(run: Execution, node: ast.Call, text: object) -> np.int64:
    if not isinstance(text, str) or len(text) != 1:
        raise run.refuse(node, "ord() takes one character")
    return np.int64(ord(text))


def _abs(run: Execution, node: ast.Call, of: object) -> Lanes:
    value = run.number(of, node)
    if run.watch is not None and value.dtype == types.FLOAT64:
        run.watch.computed(None, [value], node)
    size = np.abs(value)
    return size if value.dtype.kind in "fc" else types.cast(size, types.call_type(abs, value.dtype)[1])


def _divmod(run: Execution, node: ast.Call, left: object, right: object) -> tuple[object, object]:
    left, right = run.number(left, node), run.number(right, node)
    if {left.dtype.kind, right.dtype.kind} <= set("iub"):
        dtype = types.divided_in(left.dtype, right.dtype)
        left, right = types.cast(left, dtype), types.cast(right, dtype)
    return run.apply(operator.floordiv, left, right, node), run.apply(operator.mod, left, right, node)


def _tuple(run: Execution, node: ast.Call, *arguments: object) -> tuple:
    if len(arguments) != 1 or not isinstance(arguments[0], tuple):
        raise run.refuse(node, "tuple() takes a tuple, whose length is known", "write its elements out")
    return tuple(arguments[0])


def _slice(run: Execution, node: ast.Call, *arguments: object) -> slice:
    if not 1 <= len(arguments) <= 3:
        raise run.refuse(node, "slice() is not available in a kernel here")
    return slice(*(None if a is None else run.number(a, node) for a in arguments))


BUILTINS: dict[Callable, Callable] = {
    **{kind: partial(_cast, function=kind) for kind in (int, float, bool, complex)},
    range: _range, type: _type, hasattr: _hasattr, print: _print, len: _len, ord: _ord, isinstance: _isinstance,
    min: partial(_extreme, function=min), max: partial(_extreme, function=max), abs: _abs, round: _round,
    pow: lambda run, node, a, b: run.apply(operator.pow, a, b, node), divmod: _divmod, enumerate: _enumerate, zip: _zip,
    tuple: _tuple, sum: _sum, slice: _slice,
}  # fmt: skip


# --------------------------------------------------------------------- arrays made in a kernel


def _array_arguments(run: Execution, node: ast.Call, what: str) -> tuple[tuple[int, ...], np.dtype, int]:
    given = {k.arg: k.value for k in node.keywords}
    for name, value in zip(("shape", "dtype", "alignment"), node.args, strict=False):
        given[name] = value
    if "shape" not in given or "dtype" not in given:
        raise run.refuse(node, f"{what}.array needs a shape and a dtype")
    whole = given["shape"]
    for part in whole.elts if isinstance(whole, ast.Tuple) else [whole]:
        if run.is_numpy(part):
            raise run.refuse(
                part, f"{ast.unparse(part)} is a NumPy integer; Numba-CUDA takes Python's as a {what} array's shape",
                "int(…) makes one",
            )  # fmt: skip
    if not run.is_literal(whole, True):
        raise run.refuse(
            given["shape"], f"the shape of a {what} array must be a literal or the name of a constant",
            "compute it outside the kernel: N = …",
        )  # fmt: skip
    shape = run.eval(given["shape"])
    shape = shape if isinstance(shape, tuple) else (shape,)
    sizes = []
    for n in shape:
        n = run.number(n, node)
        if n.ndim or n.dtype.kind not in "iu":
            raise run.refuse(node, f"the shape of a {what} array must be constant integers")
        if n < 0:
            raise run.refuse(node, f"the shape of a {what} array must not be negative")
        sizes.append(int(n))
    dtype = run.eval(given["dtype"])
    dtype = getattr(nt, dtype, None) if isinstance(dtype, str) else dtype
    dtype = types.as_dtype(dtype)
    if dtype is None:
        raise run.refuse(node, f"{ast.unparse(given['dtype'])} is not a dtype", "use e.g. numba.float32")
    alignment = run.eval(given["alignment"]) if "alignment" in given else None
    alignment = (
        (dtype.alignment if dtype.fields else dtype.itemsize) if alignment is None else int(run.number(alignment, node))
    )
    if alignment < 1 or alignment & (alignment - 1):
        raise run.refuse(node, f"alignment {alignment} is not a power of two")
    return tuple(sizes), dtype, max(alignment, dtype.alignment)


def _name_of(run: Execution, node: ast.Call, default: str) -> str:
    """The variable that a `name = cuda.shared.array(…)` statement sets."""
    statement = run.node
    if isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return default


def shared_array(run: Execution, node: ast.Call) -> Array:
    """cuda.shared.array: one array per block and call site; shape 0 is the dynamic shared memory from its start.

    A device function that is made twice, with other constants around the same text, is two call sites.
    """
    shape, dtype, alignment = _array_arguments(run, node, "shared")
    key = (run.frames[-1].source.function, id(node), shape)  # of a device function a call site for each literal
    made = run.shared.get(key)
    if made is not None:
        return made
    name = _name_of(run, node, "shared")
    if shape == (0,):
        size = run.dynamic_shared
        if run.dynamic_root is None:
            run.dynamic_root = _shared_root(run, max(16, -(-size // 16) * 16), 0)
        array = Array(run.dynamic_root, name, dtype, (np.int64(size // dtype.itemsize),), (1,))
    else:
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        start = -(-run.shared_used // alignment) * alignment
        run.shared_used = start + nbytes
        if run.shared_used > 48 * 1024:
            raise LaunchError(
                f"{run.where(node)}: {run.shared_used} bytes of static shared memory; a block may declare at "
                "most 49152: make the tile smaller, or use dynamic shared memory (shape 0, size given at launch)"
            )
        row = max(16, -(-nbytes // 16) * 16)
        array = Array(_shared_root(run, row, start), name, dtype, tuple(np.int64(n) for n in shape), strides_of(shape))
    run.shared[key] = array
    return array


def _shared_root(run: Execution, row: int, start: int) -> Root:
    root = Root("shared", np.full(run.nb * row, 0xFF, np.uint8), start, row)
    root.tracked = True
    root.check_unwritten = True
    return root


def local_array(run: Execution, node: ast.Call) -> LocalArray:
    """cuda.local.array: one array per thread and call site (per call, in a device function)."""
    shape, dtype, _ = _array_arguments(run, node, "local")
    key = (run.frames[-1].source.function, id(node), len(run.frames), shape)  # as made with its constants
    array = run.local.get(key)
    if array is None:
        if 0 in shape:
            raise run.refuse(node, "a local array needs at least one element")
        nbytes = int(np.prod(shape)) * dtype.itemsize
        if nbytes > 512 * 1024:
            raise LaunchError(f"{run.where(node)}: {nbytes} bytes of local memory per thread; the limit is 524288")
        array = run.local[key] = LocalArray(_name_of(run, node, "local"), shape, dtype, run.lanes_shape)
    elif run.hunting:  # made anew: what an earlier call or iteration wrote is not there any more
        for one in (array, *array.views.values()):
            one.written &= ~run.mask.full
    return array


def const_array(run: Execution, node: ast.Call) -> Array:
    """cuda.const.array_like: a NumPy array of the enclosing scope in constant memory."""
    if len(node.args) != 1 or node.keywords:
        raise run.refuse(node, "const.array_like takes one array")
    value = run.eval(node.args[0])
    if not isinstance(value, Array) or value.space != "const":
        raise run.refuse(node, "const.array_like takes a NumPy array that is a global or closure variable")
    run.constant_memory[id(value.root)] = len(value.root.data)
    total = sum(run.constant_memory.values())
    if total > 64 * 1024:
        raise LaunchError(f"{run.where(node)}: {total:,} bytes of constant memory; a kernel has at most {64 * 1024:,}")
    return value


# --------------------------------------------------------------------- position


def _axes(run: Execution, node: ast.Call, each: Callable[[int], Lanes]) -> object:
    """A number for each of as many dimensions as the call says; of one dimension the number itself."""
    literal = all(run.is_literal(a.value if isinstance(a, ast.Starred) else a) for a in node.args)
    values = run.values_of(node.args)
    if len(values) != 1 or not literal or not np.isscalar(values[0]) or values[0] not in (1, 2, 3):
        raise run.refuse(node, "give the number of dimensions as a literal 1, 2 or 3, or a name of one")
    out = tuple(each(k) for k in range(int(values[0])))
    return out[0] if len(out) == 1 else out


def _grid(run: Execution, node: ast.Call) -> object:
    def place(k: int) -> Lanes:
        thread = types.cast(run.thread_index[k] if run.block[k] > 1 else np.int32(0), types.INT64)
        return thread + types.cast(run.block_index[k], types.INT64) * np.int64(run.block[k])

    return _axes(run, node, place)


def _gridsize(run: Execution, node: ast.Call) -> object:
    return _axes(run, node, lambda k: np.int64(run.block[k] * run.grid[k]))


# --------------------------------------------------------------------- barriers and fences


def _syncthreads_vote(run: Execution, node: ast.Call, predicate: object, how: str) -> Lanes:
    value = run.number(predicate, node)
    if value.dtype.kind not in "iu":
        raise run.refuse(node, f"syncthreads_{how} does not take {value.dtype}", "int32(…) converts")
    run.barrier(node)
    yes = np.broadcast_to(types.truth(value), run.lanes_shape) & run.mask.full
    if how == "count":
        result = yes.sum(axis=1, dtype=np.int32)
    else:
        result = (yes.any(axis=1) if how == "or" else (yes | ~run.mask.full).all(axis=1)).astype(np.int32)
    return np.int32(result[0]) if run.nb == 1 else result[:, None]


def _syncwarp(run: Execution, node: ast.Call, mask: object = None) -> None:
    member = np.int64(FULL) if mask is None else run.number(mask, node).astype(np.int64) & FULL
    here = _participants(run, node, member)
    run.warp_barrier(node, here.reshape(run.lanes_shape), member)


def _fence(run: Execution, node: ast.Call, scope: int) -> None:
    if run.order is not None:
        run.order.fence(run, scope)
    else:  # called in a way that the kernel's text does not show
        run.track_each()


# --------------------------------------------------------------------- warp operations


def _warps(run: Execution, value: Lanes) -> np.ndarray:
    """A value as (NB, warps, 32)."""
    return np.broadcast_to(value, run.lanes_shape).reshape(run.nb, -1, 32)


def _participants(run: Execution, node: ast.Call, mask: Lanes) -> np.ndarray:
    """Lanes that the member mask names, (NB, warps, 32); reports named lanes not here and callers not named."""
    bits = (np.broadcast_to(mask, run.lanes_shape).astype(np.int64) & FULL).reshape(run.nb, -1, 32)
    lane = np.arange(32)
    active = _warps(run, run.mask.full)
    own = ((bits >> lane) & 1).astype(np.bool_)
    if run.hunting:
        outside = active & ~own
        if outside.any():
            text = "{who} takes part, but the member mask does not name it"
            run.hazard_in(outside, "inactive lane", node, None, text)
        # Where all pass the same mask one lane speaks for its warp: what it names must be here, unless it has exited.
        first = active.argmax(axis=2)
        speaker = np.take_along_axis(bits, first[:, :, None], 2)
        alive = _warps(run, run.alive.full)
        if mask.ndim == 0 or ((bits == speaker) | ~active).all():
            named = ((speaker >> lane) & 1).astype(np.bool_) & active.any(axis=2)[:, :, None]
            absent = named & ~active & alive
        else:
            others = np.where(active[:, :, None, :], bits[:, :, None, :], 0)  # of each lane, what the named one passes
            named = ((bits[:, :, :, None] >> lane) & 1).astype(np.bool_) & active[:, :, :, None]
            absent = (named & alive[:, :, None, :] & (others != bits[:, :, :, None])).any(axis=2)
        if absent.any():
            text = "the member mask names {who}, which does not reach this line with the same mask"
            run.hazard_in(absent, "inactive lane", node, None, text)
    return own & active


def _member(run: Execution, node: ast.Call, how: str, mask: object) -> Lanes:
    """A member mask."""
    mask = run.number(mask, node)
    if mask.dtype.kind not in "iu" or (mask.dtype.itemsize < 4 and not how.startswith("match")):
        raise run.refuse(node, f"{how} takes an integer as its mask, not {mask.dtype}", "0xFFFFFFFF names all lanes")
    return mask


def _shuffle(run: Execution, node: ast.Call, member: object, value: object, amount: object, how: str) -> Lanes:
    _participants(run, node, _member(run, node, how, member))
    value = run.number(value, node)
    if value.dtype not in (types.INT32, types.INT64, types.FLOAT32, types.FLOAT64):
        raise run.refuse(node, f"{how} takes int32, int64, float32 or float64, not {value.dtype}", "convert the value")
    amount = run.number(amount, node)
    if amount.dtype.kind not in "iu" or amount.dtype.itemsize < 4:
        raise run.refuse(
            node, f"{how} takes an integer as its lane or distance, not {amount.dtype}", "int32(…) converts"
        )
    lane = np.arange(32)
    shift = _warps(run, amount) & 31  # all that the instruction looks at, of a negative number too
    target = {"shfl_sync": shift, "shfl_up_sync": lane - shift, "shfl_down_sync": lane + shift}.get(how, lane ^ shift)
    inside = (target >= 0) & (target < 32)
    target = np.where(inside, target, lane)
    if run.hunting:
        active = _warps(run, run.mask.full)
        silent = active & ~np.take_along_axis(active, target, 2)
        if silent.any():
            run.hazard_in(silent, "inactive lane", node, None, "{who} reads from a lane that is not active here")
    return np.take_along_axis(_warps(run, value), target, 2).reshape(run.lanes_shape)


def _as_bits(lanes: np.ndarray) -> np.ndarray:
    """(…, 32) bool to (…) uint32, a bit a lane."""
    return np.packbits(lanes, axis=-1, bitorder="little").view("<u4")[..., 0]


def _to_lanes(run: Execution, per_warp: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """(NB, warps) to every lane."""
    return np.repeat(per_warp.astype(dtype), 32, axis=1)


def _vote(run: Execution, node: ast.Call, member: object, predicate: object, how: str) -> Lanes:
    named = _participants(run, node, _member(run, node, how, member))
    predicate = run.number(predicate, node)
    if predicate.dtype.kind not in "iub":
        raise run.refuse(node, f"{how} takes a bool or an integer, not {predicate.dtype}", "compare it with 0")
    yes = _warps(run, types.truth(predicate)) & named
    if how == "ballot_sync":
        return _to_lanes(run, _as_bits(yes).view(np.int32), np.dtype(np.int32))
    every, some = (yes | ~named).all(axis=2), yes.any(axis=2)
    return _to_lanes(run, {"any_sync": some, "all_sync": every}.get(how, every | ~some), types.BOOL)


def _match(run: Execution, node: ast.Call, member: object, value: object, how: str) -> object:
    named = _participants(run, node, _member(run, node, how, member))
    lanes = _warps(run, run.number(value, node))
    if lanes.dtype.kind == "f":  # bits are compared: -0.0 is not 0.0, and a NaN is itself
        lanes = np.ascontiguousarray(lanes).view(f"u{lanes.dtype.itemsize}")
    equal = (lanes[:, :, :, None] == lanes[:, :, None, :]) & named[:, :, None, :] & named[:, :, :, None]
    bits = _as_bits(equal)
    if how == "match_any_sync":
        return bits.reshape(run.lanes_shape).view(np.int32)
    everyone = _as_bits(named)
    same = (bits == everyone[:, :, None]).reshape(run.lanes_shape)
    result = np.where(same, _to_lanes(run, everyone, np.dtype(np.uint32)), np.uint32(0)).view(np.int32)
    return result, same


def _activemask(run: Execution, node: ast.Call) -> Lanes:
    return _to_lanes(run, _as_bits(_warps(run, run.mask.full)), np.dtype(np.uint32))


def _lanemask_lt(run: Execution, node: ast.Call) -> Lanes:
    lane = np.arange(run.padded) % 32
    return ((np.uint64(1) << lane.astype(np.uint64)) - np.uint64(1)).astype(np.uint32)[None, :]


# --------------------------------------------------------------------- bits and arithmetic


def _integer(run: Execution, node: ast.Call, value: object) -> Lanes:
    """The integer that popc, clz and their relatives take. Anything else becomes an int8, as Numba-CUDA has it."""
    value = run.number(value, node)
    if value.dtype.kind == "c":
        raise run.refuse(node, f"an integer is needed, not {value.dtype}")
    return value if value.dtype.kind in "iu" else types.cast(value, types.INT8)


def _counted(run: Execution, node: ast.Call, value: object, what: str) -> Lanes:
    """popc, clz and ffs."""
    value = _integer(run, node, value)
    if what == "ffs" and value.dtype.itemsize < 4:
        raise run.refuse(node, "ffs takes integers of 32 or 64 bits", "int32(…) converts")
    return libdevice.count(value, what).astype(np.uint32 if what == "ffs" else value.dtype)


def _brev(run: Execution, node: ast.Call, value: object) -> Lanes:
    value = run.number(value, node)
    if value.dtype.kind == "c":
        raise run.refuse(node, f"an integer is needed, not {value.dtype}")
    return libdevice.reversed_bits(types.cast(value, types.UINT64 if value.dtype == types.UINT64 else types.UINT32))


def _selp(run: Execution, node: ast.Call, test: object, yes: object, no: object) -> Lanes:
    yes, no = run.number(yes, node), run.number(no, node)
    test = run.number(test, node)
    if yes.dtype != no.dtype:
        raise run.refuse(node, f"selp needs two values of one type, not {yes.dtype} and {no.dtype}")
    if test.dtype != types.BOOL or yes.dtype.itemsize < 2 or yes.dtype.kind not in "iuf" or yes.dtype == types.FLOAT16:
        raise run.refuse(
            node, f"selp takes a bool and two numbers of 16 bits or more, not {test.dtype} and {yes.dtype}",
            "write a if condition else b",
        )  # fmt: skip
    out = np.where(test, yes, no)
    return out if out.ndim else yes.dtype.type(out)


def _fma(run: Execution, node: ast.Call, a: object, b: object, c: object) -> Lanes:
    """Fused multiply-add, rounded once."""
    values = [run.number(v, node) for v in (a, b, c)]
    dtype = types.as_float(*(v.dtype for v in values))
    run.count_flops(node, dtype, 2)
    return libdevice.FUNCTIONS["fma"][1](*(types.cast(v, dtype) for v in values))


def _cbrt(run: Execution, node: ast.Call, value: object) -> Lanes:
    value = run.number(value, node)
    value = types.cast(value, types.as_float(value.dtype))
    run.count_flops(node, value.dtype, 1)
    return np.cbrt(value)


_HALF: dict[str, Callable] = {
    "hadd": np.add, "hsub": np.subtract, "hmul": np.multiply, "hdiv": np.true_divide, "hneg": np.negative,
    "habs": np.abs,
    "hmin": np.fmin, "hmax": np.fmax, "heq": np.equal, "hne": np.not_equal, "hgt": np.greater,
    "hge": np.greater_equal, "hlt": np.less, "hle": np.less_equal, "hsqrt": np.sqrt, "hexp": np.exp, "hlog": np.log,
    "hsin": np.sin, "hcos": np.cos, "hfloor": np.floor, "hceil": np.ceil, "htrunc": np.trunc, "hexp2": np.exp2,
    "hlog2": np.log2, "hlog10": np.log10, "hrint": np.rint, "hrcp": np.reciprocal,
    "hexp10": lambda x: np.power(np.float16(10), x), "hrsqrt": lambda x: np.float16(1) / np.sqrt(x),
    "hfma": lambda a, b, c: a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64),
}  # fmt: skip


def _half(run: Execution, node: ast.Call, name: str, arguments: list[object]) -> Lanes:
    values = [types.cast(run.number(a, node), types.FLOAT16) for a in arguments]
    takes = getattr(_HALF[name], "nin", 3 if name == "hfma" else 1)
    if len(values) != takes:
        raise run.refuse(node, f"cuda.fp16.{name} takes {takes} numbers, not {len(values)}")
    result = _HALF[name](*values)
    if result.dtype.kind != "f":
        return result
    run.count_flops(node, types.FLOAT16, {"hfma": 2, "hexp10": 0, "hrsqrt": 0}.get(name, 1))
    return result.astype(np.float16)


# --------------------------------------------------------------------- atomics

_COMMUTING = {
    "add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum, "and_": np.bitwise_and,
    "or_": np.bitwise_or, "xor": np.bitwise_xor, "nanmax": np.fmax, "nanmin": np.fmin,
}  # fmt: skip


_WHOLE = ("int32", "uint32", "int64", "uint64")
_ANY = (*_WHOLE, "float32", "float64")
ATOMIC_TYPES = {
    "add": _ANY, "sub": _ANY, "max": _ANY, "min": _ANY, "nanmax": _ANY, "nanmin": _ANY, "and_": _WHOLE, "or_": _WHOLE,
    "xor": _WHOLE, "exch": _WHOLE, "cas": _WHOLE, "compare_and_swap": _WHOLE, "inc": ("uint32", "uint64"),
    "dec": ("uint32", "uint64"),
}  # fmt: skip
"""The types for which Numba-CUDA compiles each atomic, for compute capability 9.0."""


def _step(name: str, old: np.ndarray, value: np.ndarray, compare: np.ndarray | None) -> np.ndarray:
    """The values that one atomic leaves behind, element by element."""
    if name == "exch":
        return value
    if name == "inc":
        return np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1))
    if name == "dec":
        return np.where((old == 0) | (old > value), value, old - old.dtype.type(1))
    if name in ("cas", "compare_and_swap"):
        return np.where(old == compare, value, old)
    if name in ("max", "min"):  # a NaN that is there stays, one that comes does not replace a number
        return np.where(value != value, old, _COMMUTING[name](old, value))
    return _COMMUTING[name](old, value)


def atomic_call(run: Execution, node: ast.Call, name: str) -> Lanes:
    """One atomic: lanes act one after the other, in thread order; returns the old values."""
    wanted = node is not run.discard
    arguments = run.values_of(node.args)
    takes = {"compare_and_swap": ("array", "old", "value"), "cas": ("array", "index", "old", "value")}
    takes = takes.get(name, ("array", "index", "value"))
    if len(arguments) != len(takes) or node.keywords:
        raise run.refuse(node, f"atomic.{name} takes ({', '.join(takes)})")
    array = arguments[0]
    if not isinstance(array, ARRAYS):
        raise run.refuse(node, f"the first argument of atomic.{name} must be an array")
    dtype = array.dtype
    if dtype.name not in ATOMIC_TYPES[name]:
        known = " ".join(ATOMIC_TYPES[name])
        way_round = "compare bits: view(…) as an integer" if dtype.itemsize >= 4 else "use an array of 32 or 64 bits"
        raise run.refuse(node, f"Numba-CUDA has no atomic.{name} of {dtype}, but of {known}", way_round)
    if name == "compare_and_swap":
        values = arguments[1:]
        index: object = (np.int64(0),) * len(array.shape)
    else:
        index, *values = arguments[1:]
    indices = index if isinstance(index, tuple) else (index,)
    if not (isinstance(index, tuple) and len(index) == 1):  # which Numba-CUDA does not convert; it cuts off a float
        real = [isinstance(one, NUMBERS) and one.dtype.kind in "fb" for one in indices]
        indices = tuple(types.cast(one, types.INT64) if r else one for one, r in zip(indices, real, strict=True))
    *compare, value = (types.cast(run.number(one, node), dtype) for one in values)
    if isinstance(array, Chosen):
        return run.by_option(array, lambda one: _atomic(run, node, name, one, indices, value, compare, wanted))
    return _atomic(run, node, name, array, indices, value, compare, wanted)


def _atomic(
    run: Execution, node: ast.Call, name: str, array: AnyArray, indices: tuple, value: Lanes, compare: list[Lanes],
    wanted: bool,
) -> Lanes:  # fmt: skip
    dtype = array.dtype
    if not isinstance(array, Array):
        raise run.refuse(
            node, f"{array.name} is local: an atomic of memory that is each thread's own stops a GPU's kernel",
            "nobody else is there: store to it",
        )  # fmt: skip
    run.writable(array, node)
    element, mask = run.locate(array, indices, node)
    if isinstance(element, Array):
        raise run.refuse(node, f"atomic.{name} needs an index for every dimension of {array.name}")
    if mask is None:
        return dtype.type(0)
    run.record_access(array, element, mask, trace.ATOMIC, node)
    flat, element = array.root.view(dtype), run.in_root(array, element)
    active = mask.full
    where = np.broadcast_to(element, run.lanes_shape)[active]
    before = flat[where] if run.watching else None
    operand = np.broadcast_to(value, run.lanes_shape)[active]
    expected = np.broadcast_to(compare[0], run.lanes_shape)[active] if compare else None
    if not wanted and name in _COMMUTING:
        counts = operand == operand if dtype.kind == "f" and name in ("max", "min") else slice(None)
        _COMMUTING[name].at(flat, where[counts], operand[counts])
        old = None
    else:
        old = _one_by_one(name, flat, where, operand, expected)
    if run.order is not None:
        wrote = np.ones(len(where), np.bool_) if expected is None else old == expected
        run.order.atomic(run, array.root, where * dtype.itemsize, active, wrote)
    if before is not None:  # for loops that may wait: what it has read, and whether it has changed anything
        run.note_change(array, where, flat[where].tobytes() != before.tobytes())
        run.note_read(node, where, before)
        if run.strands is not None:
            run.note_places(array, where)
    if old is None:
        return dtype.type(0)
    result = np.zeros(run.lanes_shape, dtype)
    result[active] = old
    return result


def _one_by_one(
    name: str, flat: np.ndarray, where: np.ndarray, operand: np.ndarray, expected: np.ndarray | None
) -> np.ndarray:
    """Applies an atomic lane after lane; lanes on different elements go together."""
    order = np.argsort(where, kind="stable")
    place = where[order]
    new_group = np.ones(len(place), np.bool_)
    new_group[1:] = place[1:] != place[:-1]
    starts = np.flatnonzero(new_group)
    group = np.cumsum(new_group) - 1
    rank = np.arange(len(place)) - starts[group]
    old = np.empty(len(place), flat.dtype)
    if name in ("add", "sub") and flat.dtype.kind in "iu":  # running sums wrap around as the atomics do
        step = operand[order] if name == "add" else (np.zeros((), flat.dtype) - operand[order])
        total = np.cumsum(step, dtype=flat.dtype)
        before = total - step
        old = (flat[place] + before - before[starts][group]).astype(flat.dtype)
        ends = np.append(starts[1:], len(place)) - 1
        flat[place[ends]] = (old[ends] + step[ends]).astype(flat.dtype)
    else:
        for number in range(int(rank.max()) + 1 if len(rank) else 0):
            now = rank == number
            at = place[now]
            lanes = order[now]
            old[now] = flat[at]
            flat[at] = _step(name, flat[at], operand[lanes], None if expected is None else expected[lanes])
    result = np.empty_like(old)
    result[order] = old
    return result


# --------------------------------------------------------------------- loads and stores with a cache hint


def _hinted(run: Execution, node: ast.Call, path: str, arguments: list[object]) -> Lanes | None:
    """cuda.ldcg(array, index), cuda.stcg(array, index, value) and their relatives: a plain access of global memory."""
    takes = ("array", "index") if path.startswith("ld") else ("array", "index", "value")
    if len(arguments) != len(takes):
        raise run.refuse(node, f"cuda.{path} takes ({', '.join(takes)})")
    array, index, *value = arguments
    if not isinstance(array, ARRAYS) or array.dtype.kind not in "iuf":
        raise run.refuse(node, f"cuda.{path} takes an array of integers or floats, not {kind_name(array)}")
    if array.space != "global":
        raise run.refuse(node, f"cuda.{path} is an access of global memory; {array.name} is {array.space}", "index it")
    indices = index if isinstance(index, tuple) else (index,)
    numbers = [run.number(one, node) for one in indices]
    if len(numbers) != len(array.shape) or any(one.dtype.kind not in "iu" for one in numbers):
        raise run.refuse(node, f"cuda.{path} takes {len(array.shape)} integer(s) as the index of {array.name}")
    if path.startswith("ld"):
        return run.load(array, tuple(numbers), node)
    run.write(array, tuple(numbers), run.number(value[0], node), node)
    return None


# --------------------------------------------------------------------- vector types


def _vector(run: Execution, node: ast.Call, name: str, arguments: list[object]) -> Vector:
    """cuda.float32x4(…): numbers, and vectors of the same elements, which together are as many as it holds."""
    element, count = VECTORS[name]
    whole, dtype = f"{element}x{count}", np.dtype(element)
    values: list[Lanes] = []
    for one in arguments:
        if isinstance(one, Vector):
            if one.values[0].dtype != dtype:
                raise run.refuse(node, f"cuda.{name} takes no {one.name}", "give its parts")
            values.extend(one.values)
        else:
            values.append(types.cast(run.number(one, node), dtype))
    if len(values) != count:
        raise run.refuse(node, f"cuda.{name} takes {count} numbers, not {len(values)}")
    return Vector(whole, tuple(values))


# --------------------------------------------------------------------- dispatch

_VOTES = ("ballot_sync", "any_sync", "all_sync", "eq_sync")
_PLAIN: dict[str, Callable] = {
    "syncthreads": lambda run, node: run.barrier(node), "syncwarp": _syncwarp,
    "cg.grid.sync": lambda run, node: run.grid_sync(node),
    "threadfence": partial(_fence, scope=GPU), "threadfence_block": partial(_fence, scope=BLOCK),
    "threadfence_system": partial(_fence, scope=GPU),
    "activemask": _activemask, "lanemask_lt": _lanemask_lt, "brev": _brev,
    **{what: partial(_counted, what=what) for what in ("popc", "clz", "ffs")},
    "selp": _selp, "fma": _fma, "cbrt": _cbrt,
    **{f"syncthreads_{how}": partial(_syncthreads_vote, how=how) for how in ("count", "and", "or")},
    **{how: partial(_vote, how=how) for how in _VOTES},
    **{how: partial(_match, how=how) for how in ("match_any_sync", "match_all_sync")},
    **{how: partial(_shuffle, how=how) for how in ("shfl_sync", "shfl_up_sync", "shfl_down_sync", "shfl_xor_sync")},
}  # fmt: skip
_WHOLE_GRID = DeviceName("cg.grid", ("sync",))
_OF_THE_CALL: dict[str, Callable] = {
    "grid": _grid, "gridsize": _gridsize, "shared.array": shared_array, "local.array": local_array,
    "const.array_like": const_array, "cg.this_grid": lambda run, node: _WHOLE_GRID,
}  # fmt: skip
"""Functions that look at the call itself."""
NAMES.update({name: DeviceName(name) for name in (*_PLAIN, *_OF_THE_CALL) if "." not in name})
for _path in _OF_THE_CALL:
    _of, _, _name = _path.partition(".")
    if _name:
        NAMES[_of] = DeviceName(_of, (_name,))
NAMES["atomic"] = DeviceName("atomic", tuple(ATOMIC_TYPES))
NAMES["fp16"] = DeviceName("fp16", tuple(_HALF))


def device_call(run: Execution, name: DeviceName, node: ast.Call) -> object:
    """A call of a cuda.* name."""
    path = name.path
    if path in _OF_THE_CALL:
        return _OF_THE_CALL[path](run, node)
    if path.startswith("atomic."):
        return atomic_call(run, node, name.__name__)
    if node.keywords:
        raise run.refuse(node, f"cuda.{path} takes no keyword arguments")
    arguments = run.values_of(node.args)
    if path in VECTORS:
        return _vector(run, node, path, arguments)
    if path.startswith("libdevice."):
        return libdevice.call(run, node, name.__name__, arguments)
    if path.startswith("fp16."):
        return _half(run, node, name.__name__, arguments)
    if path == "nanosleep":
        return None
    if path in CACHE_HINTS:
        return _hinted(run, node, path, arguments)
    if path not in _PLAIN:
        raise run.refuse(node, f"cuda.{path} cannot be called")
    of_block = path.startswith("syncthreads")
    if run.strands is not None and (of_block or path == "syncwarp" or path.endswith("_sync")):
        member = np.int64(FULL) if of_block or not arguments else run.number(arguments[0], node)
        member, kind = member.astype(np.int64) & FULL, "block" if of_block else "warp"
        return run.strands.meet(
            kind, node, arguments, member, lambda given: run.call_checked(_PLAIN[path], node, given, {})
        )
    return run.call_checked(_PLAIN[path], node, arguments, {})
