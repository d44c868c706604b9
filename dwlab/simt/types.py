"""Numba's types for NumPy values: which type an operation has, as Numba's own typing decides it.

The rules are not repeated here: they are asked of numba.core.typing, so `int32 + int32` is int64 and
`int32 * float32` is float64, as in a compiled kernel.
"""

from __future__ import annotations

import builtins
import cmath
import functools
import math
import operator
from collections.abc import Callable

import numba
import numpy as np
from numba.core import types as nt
from numba.core.registry import cpu_target
from numba.np import numpy_support

from dwlab.simt.options import UnsupportedError

BOOL, INT32, INT64, UINT32, UINT64 = (np.dtype(t) for t in (np.bool_, np.int32, np.int64, np.uint32, np.uint64))
FLOAT16, FLOAT32, FLOAT64, COMPLEX128 = (np.dtype(t) for t in (np.float16, np.float32, np.float64, np.complex128))

_UFUNCS: dict[Callable, np.ufunc] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide,
    operator.floordiv: np.floor_divide, operator.mod: np.remainder, operator.pow: np.power,
    operator.and_: np.bitwise_and, operator.or_: np.bitwise_or, operator.xor: np.bitwise_xor,
    operator.lshift: np.left_shift, operator.rshift: np.right_shift,
    operator.eq: np.equal, operator.ne: np.not_equal, operator.lt: np.less, operator.le: np.less_equal,
    operator.gt: np.greater, operator.ge: np.greater_equal,
    operator.neg: np.negative, operator.pos: np.positive, operator.invert: np.invert,
}  # fmt: skip
_COMPARISONS = {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge}
_COUNTED = {operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow}

Value = np.generic | np.ndarray


def context():  # noqa: ANN201 (numba's own class)
    """Numba's typing context, loaded once."""
    return _context()


@functools.cache
def _context():  # noqa: ANN202
    cpu_target.typing_context.refresh()
    return cpu_target.typing_context


@functools.cache
def numba_type(dtype: np.dtype) -> nt.Type:
    """The Numba type of a NumPy dtype."""
    return nt.float16 if dtype == FLOAT16 else numpy_support.from_dtype(dtype)


@functools.cache
def dtype_of(numba_type_: nt.Type) -> np.dtype:
    """The NumPy dtype of a Numba scalar type."""
    if isinstance(numba_type_, nt.Literal):
        numba_type_ = numba_type_.literal_type
    return FLOAT16 if numba_type_ == nt.float16 else numpy_support.as_dtype(numba_type_)


def as_dtype(thing: object) -> np.dtype | None:
    """The dtype that a kernel names by `thing` (numba.float32, np.float32, a dtype), or None if it names none."""
    if isinstance(thing, np.dtype):
        return thing
    if isinstance(thing, nt.Type):
        try:
            return dtype_of(thing)
        except (NotImplementedError, numba.core.errors.NumbaError):
            return None
    if isinstance(thing, type) and issubclass(thing, np.generic):
        return np.dtype(thing)
    return None


def literal(value: object) -> Value:
    """A Python number as Numba types it in a kernel: int64 (uint64 if it needs to be), float64, bool, complex128."""
    if isinstance(value, (bool, np.bool_)):
        return np.bool_(value)
    if isinstance(value, np.generic):
        return value
    if isinstance(value, int):
        return np.uint64(value) if value > 2**63 - 1 else np.int64(value)
    return np.float64(value) if isinstance(value, float) else np.complex128(value)


def cast(value: Value, dtype: np.dtype) -> Value:
    """C-like conversion; complex to real keeps the real part."""
    if value.dtype == dtype:
        return value
    if value.dtype.kind == "c" and dtype.kind != "c":
        value = value.real
    return value.astype(dtype)


@functools.cache
def call_type(function: Callable, *dtypes: np.dtype) -> tuple[tuple[np.dtype, ...], np.dtype]:
    """(argument dtypes, result dtype) that Numba gives `function` for arguments of these dtypes."""
    try:
        signature = context().resolve_function_type(function, tuple(numba_type(d) for d in dtypes), {})
    except numba.core.errors.NumbaError:
        signature = None
    if signature is None:
        name = getattr(function, "__name__", str(function))
        raise UnsupportedError(f"Numba has no {name} for ({', '.join(map(str, dtypes))})")
    return tuple(dtype_of(a) for a in signature.args), dtype_of(signature.return_type)


@functools.cache
def _binary_rule(op: Callable, left: np.dtype, right: np.dtype) -> tuple[np.ufunc, np.dtype, np.dtype, np.dtype]:
    if left == right == FLOAT16:  # Numba's CPU rules have no half arithmetic; CUDA's do
        return _UFUNCS[op], FLOAT16, FLOAT16, BOOL if op in _COMPARISONS else FLOAT16
    if op in _COMPARISONS:
        if left.kind in "iub" and right.kind in "iub":
            mixed = {left.kind, right.kind} == {"i", "u"}  # int64 < uint64 is compared in float64
            return (_UFUNCS[op], *(call_type(op, left, right)[0] if mixed else (left, right)), BOOL)
        common = np.promote_types(left, right)
        return _UFUNCS[op], common, common, BOOL
    (a, b), result = call_type(op, left, right)
    if result.kind in "iu" or op in (operator.pow, operator.truediv):
        a = b = result  # integers are widened first, so that only the result wraps around
    return _UFUNCS[op], a, b, result


def _integer_power(base: Value, exponent: Value) -> Value:
    """base ** exponent of one integer type; a negative exponent gives 0, and ±1 for a base of ±1."""
    if exponent.dtype.kind == "u" or not (exponent < 0).any():
        return np.power(base, exponent)
    small = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
    out = np.where(exponent < 0, small, np.power(base, np.maximum(exponent, 0))).astype(base.dtype)
    return out if out.ndim else base.dtype.type(out)


def binary(op: Callable, left: Value, right: Value) -> Value:
    """`left op right` with Numba's types; integers wrap around."""
    ufunc, a, b, result = _binary_rule(op, left.dtype, right.dtype)
    if op is operator.pow and result.kind in "iu":
        return _integer_power(cast(left, a), cast(right, b))
    out = ufunc(left if left.dtype == a else cast(left, a), right if right.dtype == b else cast(right, b))
    return out if out.dtype == result else out.astype(result)


def unary(op: Callable, value: Value) -> Value:
    """`-x`, `+x` or `~x` with Numba's types."""
    if value.dtype == FLOAT16:
        return _UFUNCS[op](value)
    (wanted,), result = call_type(op, value.dtype)
    wanted = result if wanted == BOOL else wanted  # Numba negates in the operand's own width, then widens
    return cast(_UFUNCS[op](cast(value, wanted)), result)


def flops(op: Callable, dtype: np.dtype) -> int:
    """Floating-point operations of one `op` whose result is `dtype`: complex products and sums counted as real ones."""
    if op not in _COUNTED or dtype.kind not in "fc":
        return 0
    if dtype.kind == "c":
        return {operator.add: 2, operator.sub: 2, operator.mul: 6}.get(op, 11)
    return 1


@functools.cache
def unify(*dtypes: np.dtype) -> np.dtype:
    """The one type of a variable that holds any of these, as Numba unifies them."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    unified = context().unify_types(*(numba_type(d) for d in dtypes))
    if unified is None:
        raise UnsupportedError(f"one variable cannot hold {' and '.join(map(str, dtypes))}")
    return dtype_of(unified)


def truth(value: Value) -> Value:
    """`bool(x)` lane by lane."""
    return value if value.dtype == BOOL else value != 0


_NO_UFUNC = {math.erf, math.erfc, math.gamma, math.lgamma}
_REMAINDER = np.vectorize(math.remainder, otypes=[np.float64])
_MATH: dict[Callable, Callable] = {
    getattr(math, name): getattr(np, name if hasattr(np, name) else name.replace("a", "arc", 1))
    for name in (
        "sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh fabs "
        "floor ceil trunc fmod hypot copysign isnan isinf isfinite degrees radians"
    ).split()
} | {math.pow: np.power, math.nextafter: np.nextafter}
_FREE_MATH = {math.fabs, math.floor, math.ceil, math.trunc, math.copysign, math.isnan, math.isinf, math.isfinite}


def math_call(function: Callable, args: list[Value]) -> tuple[Value | tuple, int]:
    """(result, FLOPs per lane) of a function of the `math` module, in the precision that Numba-CUDA computes it in.

    That is float32 if every argument is (half stays half, and math.pow also takes an int32 exponent), else float64.
    """
    dtypes = {a.dtype for a in args}
    integer_exponent = function is math.pow and len(args) == 2 and args[1].dtype.kind == "i" and args[1].itemsize <= 4
    if function is math.ldexp or integer_exponent:
        dtypes = {args[0].dtype}
    if any(d.kind == "c" for d in dtypes):
        raise UnsupportedError(f"math.{function.__name__} takes real numbers")
    dtype = dtypes.pop() if len(dtypes) == 1 else FLOAT64
    dtype = dtype if dtype in (FLOAT16, FLOAT32) else FLOAT64
    if function is math.ldexp:
        return np.ldexp(cast(args[0], dtype), cast(args[1], INT32)), 1
    values = [cast(a, dtype) for a in args]
    if function is math.frexp:
        return np.frexp(*values), 1
    if function is math.modf:
        return np.modf(*values), 1
    if function in _NO_UFUNC:
        value = np.vectorize(function, otypes=[np.float64])(cast(values[0], FLOAT64))
        return cast(value if value.ndim else np.float64(value), dtype), 1
    if function is math.remainder:
        return cast(np.asarray(_REMAINDER(*(cast(v, FLOAT64) for v in values)))[()], dtype), 1
    target = _MATH.get(function)
    if target is None:
        raise UnsupportedError(f"math.{function.__name__} is not available in Numba-CUDA kernels")
    return target(*values), 0 if function in _FREE_MATH else 1


_CMATH: dict[Callable, Callable] = {
    getattr(cmath, name): getattr(np, name if hasattr(np, name) else name.replace("a", "arc", 1))
    for name in (
        "sqrt exp log log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh isnan isinf isfinite"
    ).split()
} | {cmath.phase: np.angle}


def cmath_call(function: Callable, args: list[Value]) -> Value | tuple:
    """A function of the `cmath` module; complex64 stays so."""
    narrow = all(a.dtype in (FLOAT32, np.complex64) for a in args)
    values = [cast(a, np.dtype(np.complex64) if narrow else COMPLEX128) for a in args]
    if function is cmath.polar:
        return np.abs(values[0]), np.angle(values[0])
    if function is cmath.rect:
        radius, angle = (v.real for v in values)
        return radius * (np.cos(angle) + values[0].dtype.type(1j) * np.sin(angle))
    if function not in _CMATH or len(values) != 1:
        raise UnsupportedError(f"cmath.{function.__name__} of {len(values)} number(s) is not available in kernels")
    return _CMATH[function](values[0])


BUILTIN_CASTS = {builtins.int, builtins.float, builtins.bool, builtins.complex}


def builtin_cast(function: Callable, value: Value) -> Value:
    """int(x), float(x), bool(x), complex(x)."""
    if function is bool:
        return truth(value)
    if function is complex:
        return cast(value, np.dtype(np.complex64) if value.dtype in (FLOAT32, np.complex64) else COMPLEX128)
    if value.dtype.kind == "c":
        raise UnsupportedError(f"{function.__name__}() of a complex number: take .real first")
    if function is int:
        return cast(value, value.dtype if value.dtype in (INT64, UINT64) else
                    UINT64 if value.dtype.kind == "u" else INT64)  # fmt: skip
    return value if value.dtype in (FLOAT32, FLOAT64, FLOAT16) else cast(value, FLOAT64)
