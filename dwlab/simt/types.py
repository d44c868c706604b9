"""Numba's types for NumPy values: which type an operation has, as Numba's own typing decides it.

The rules are not repeated here: numba.core.typing has them, so `int32 + int32` is int64 and
`int32 * float32` is float64, as in a compiled kernel.
"""

from __future__ import annotations

import cmath
import contextlib
import functools
import math
import operator
from collections.abc import Callable, Sequence

import numba
import numpy as np
from numba.core import types as nt
from numba.core.registry import cpu_target
from numba.np import numpy_support

from dwlab.simt.options import UnsupportedError

BOOL, INT8, INT32, INT64, UINT32, UINT64 = map(np.dtype, "? i1 i4 i8 u4 u8".split())
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
_HALF_OPS = {operator.add, operator.sub, operator.mul, operator.truediv}
_COUNTED = {operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow}

Value = np.generic | np.ndarray


@functools.cache
def context():  # noqa: ANN201 (numba's own class)
    """Numba's typing context, loaded once."""
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


_named: dict[int, tuple[object, np.dtype]] = {}  # Numba's types by their ids: their own hashes are slow


def as_dtype(thing: object) -> np.dtype | None:
    """The dtype that a kernel names by `thing` (numba.float32, np.float32, a dtype), or None if it names none."""
    known = _named.get(id(thing))
    if known is not None and known[0] is thing:
        return known[1]
    if isinstance(thing, np.dtype):
        return thing
    if isinstance(thing, nt.Type):
        try:
            _named[id(thing)] = (thing, dtype_of(thing))
        except (NotImplementedError, numba.core.errors.NumbaError):
            return None
        return _named[id(thing)][1]
    if isinstance(thing, type) and issubclass(thing, np.generic):
        with contextlib.suppress(TypeError):  # np.floating is no element's
            dtype = np.dtype(thing)
            long = dtype.itemsize > (16 if dtype.kind == "c" else 8)  # np.longdouble, where it is another one
            return dtype if dtype.kind in "biufc" and not long else None
    ours = as_numba(thing)
    return None if ours is thing or ours is None else as_dtype(ours)


def as_numba(thing: object) -> object:
    """Numba's type for one of numba_cuda_mlir's, which has classes of its own, None without one; else the thing."""
    if not type(thing).__module__.startswith("numba_cuda_mlir.numba_cuda.types"):
        return thing
    if hasattr(thing, "ndim"):
        return nt.Array(as_numba(thing.dtype), thing.ndim, thing.layout)
    return getattr(nt, str(thing), None)


def best(signatures: Sequence[Sequence[nt.Type]], given: Sequence[nt.Type | None]) -> int | None:
    """Which signature Numba takes for arguments of these types, the one that converts least; None: none of them.

    A type that is None fits to every one.
    """

    def cost(case: Sequence[nt.Type]) -> tuple[int, ...] | None:
        counts = [0, 0, 0]  # unsafe conversions, safe ones, promotions
        for have, want in zip(given, case, strict=True):
            if isinstance(want, nt.Array) or isinstance(have, nt.Array):
                if not (isinstance(want, nt.Array) and isinstance(have, nt.Array)):
                    return None
                if (have.dtype, have.ndim) != (want.dtype, want.ndim):
                    return None
                continue
            how = None if have is None else context().can_convert(have, want)
            if have is not None and how is None:
                return None
            if how is not None and how.name != "exact":
                counts[("unsafe", "safe", "promote").index(how.name)] += 1
        return tuple(counts)

    ranked = [(c, k) for k, case in enumerate(signatures) if len(case) == len(given) and (c := cost(case)) is not None]
    return min(ranked)[1] if ranked else None


def literal(value: object) -> Value:
    """A Python number as Numba types it in a kernel: int64 (uint64 if it needs to be), float64, bool, complex128.

    Raises UnsupportedError for an integer that needs more than 64 bits.
    """
    if isinstance(value, (bool, np.bool_)):
        return np.bool_(value)
    if isinstance(value, np.generic):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise UnsupportedError(f"the integer {value} needs more than 64 bits")
        return np.uint64(value) if value > 2**63 - 1 else np.int64(value)
    return np.float64(value) if isinstance(value, float) else np.complex128(value)


def cast(value: Value, dtype: np.dtype) -> Value:
    """Conversion as PTX's cvt does it: float to integer saturates. Complex to real keeps the real part."""
    have = value.dtype
    if have is dtype or have == dtype:
        return value
    if have.kind == "c" and dtype.kind != "c":
        value = value.real
    if value.dtype.kind == "f" and dtype.kind in "iu":
        return _saturated(value, dtype)
    return value.astype(dtype) if type(value) is np.ndarray else dtype.type(value)  # of a scalar much the quicker


def _saturated(value: Value, dtype: np.dtype) -> Value:
    """A float as an integer, towards 0. There is no cvt to 8 bits: it goes through 16, whose lower half is kept.

    NaN becomes 0, from float64 or in 64 bits only the highest bit. A half is rounded to the nearest, also to 8 bits:
    Numba-CUDA writes that conversion itself, as cvt.rni.
    """
    highest = value.dtype == FLOAT64 or dtype.itemsize == 8
    half = value.dtype == FLOAT16
    wide = np.dtype(f"{dtype.kind}2") if dtype.itemsize == 1 and not half else dtype
    ends = np.iinfo(wide)
    value = np.rint(value.astype(np.float64)) if half else value.astype(np.float64)  # exactly
    low, high = float(ends.min), float(ends.max) + 1.0 if wide.itemsize < 8 else 2.0 ** (64 - (dtype.kind == "i"))
    inside = (value > low - 1.0) & (value < high)
    if not inside.all():
        beyond = np.where(value >= high, wide.type(ends.max), wide.type(ends.min))
        safe = np.where(inside, value, 0.0).astype(wide)
        if highest:
            safe = np.where(np.isnan(value), wide.type(ends.min or ends.max // 2 + 1), safe)
        out = np.where(inside | np.isnan(value), safe, beyond)
        return out.astype(dtype)[()]
    return value.astype(wide).astype(dtype)


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
def loop_of(function: np.ufunc, *dtypes: np.dtype) -> tuple[np.dtype, ...] | None:
    """The types in which Numba computes a NumPy function of these: int32 and float32 in float32. None: in none."""
    found = numpy_support.ufunc_find_matching_loop(function, tuple(map(numba_type, dtypes)))
    return None if found is None else tuple(map(dtype_of, found.inputs))


@functools.cache
def divided_in(left: np.dtype, right: np.dtype) -> np.dtype:
    """The type of both parts of divmod() of whole numbers: a float64 of signed ones beside 64 bits without a sign."""
    return dtype_of(context().resolve_function_type(divmod, (numba_type(left), numba_type(right)), {}).args[0])


@functools.cache
def compared_in(left: np.dtype, right: np.dtype) -> np.dtype:
    """The type in which two numbers are compared."""
    return INT64 if left.kind in "iub" and right.kind in "iub" else np.promote_types(left, right)


_NARROW = {BOOL, INT8, np.dtype(np.uint8), np.dtype(np.int16), FLOAT16, FLOAT32}  # what converts to float32 safely
_OF_FLOATS = {math.copysign, math.fmod, math.frexp, math.ldexp, math.nextafter, math.pow, math.remainder}
"""Functions that Numba-CUDA has for floats only, to which integers convert; of others there is one for integers."""
_OF_HALF = {getattr(math, name) for name in "ceil cos exp exp2 fabs floor log log10 log2 sin sqrt tanh trunc".split()}


def as_float(*dtypes: np.dtype) -> np.dtype:
    """float32 where all numbers convert to it safely, else float64: of a function that is there for both."""
    return FLOAT32 if set(dtypes) <= _NARROW else FLOAT64


@functools.cache
def math_type(function: Callable, dtypes: tuple[np.dtype, ...]) -> np.dtype:
    """float16, float32 or float64: in which a function of the math module is computed, by Numba-CUDA's signatures."""
    if function is math.ldexp or (function is math.pow and dtypes[-1].kind == "i" and dtypes[-1].itemsize <= 4):
        dtypes = dtypes[:1]
    if function is math.pow and dtypes == (FLOAT32, np.dtype(np.uint16)):
        return FLOAT32
    if dtypes == (FLOAT16,) and function in _OF_HALF:
        return FLOAT16
    narrow = set(dtypes) <= _NARROW and (function in _OF_FLOATS or any(d.kind == "f" for d in dtypes))
    return FLOAT64 if not narrow or (function is math.modf and dtypes != (FLOAT32,)) else FLOAT32


@functools.cache
def _binary_rule(op: Callable, left: np.dtype, right: np.dtype) -> tuple[np.ufunc, np.dtype, np.dtype, np.dtype]:
    if FLOAT16 in (left, right) and {left, right} <= {FLOAT16, INT8, BOOL}:  # Numba's CPU rules have no half; CUDA's do
        if op in _HALF_OPS or (op in _COMPARISONS and left == right):
            return _UFUNCS[op], FLOAT16, FLOAT16, BOOL if op in _COMPARISONS else FLOAT16
        if left == right:
            left = right = FLOAT32
    if op in _COMPARISONS:
        if left.kind in "iub" and right.kind in "iub":
            mixed = {left.kind, right.kind} == {"i", "u"}  # int64 < uint64 is compared in float64
            return (_UFUNCS[op], *(call_type(op, left, right)[0] if mixed else (left, right)), BOOL)
        if "c" in (left.kind, right.kind) and op not in (operator.eq, operator.ne):
            raise UnsupportedError("complex numbers have no order: compare their parts or their abs()")
        common = np.promote_types(left, right)
        return _UFUNCS[op], common, common, BOOL
    if op is operator.pow and left in (FLOAT16, FLOAT32) and right.kind in "iu":  # CUDA's rules keep it a float32
        return _UFUNCS[op], FLOAT32, UINT64 if right.kind == "u" else INT64, FLOAT32
    (a, b), result = call_type(op, left, right)
    if result.kind in "iu" or op in (operator.pow, operator.truediv):
        kept = b if op is operator.pow and b.kind == "u" and result.kind == "i" else result
        a, b = result, kept  # integers are widened first, so that only the result wraps around
    return _UFUNCS[op], a, b, result


@functools.cache
def binary_plan(
    op: Callable, left: np.dtype, right: np.dtype
) -> tuple[Callable, np.dtype | None, np.dtype | None, np.dtype | None]:
    """(what computes it, the types that both sides and the result are converted to, None where they have them)."""
    ufunc, a, b, result = _binary_rule(op, left, right)
    with np.errstate(all="ignore"):
        if op is operator.pow and result == FLOAT32 and b.kind in "iu":
            compute = _float_power
        elif op in (operator.floordiv, operator.mod) and result.kind == "f":
            compute = functools.partial(_float_division, op)
        elif result.kind in "iu" and op in (operator.pow, operator.floordiv, operator.mod):
            compute = _integer_power if op is operator.pow else functools.partial(_integer_division, op)
        else:  # the operator: of two scalars it is much quicker than the ufunc that it stands for
            compute = (power if result.kind == "f" else ufunc) if op is operator.pow else op
        made = compute(a.type(1), b.type(1)).dtype
    return compute, None if a == left else a, None if b == right else b, None if made == result else result


def _integer_power(base: Value, exponent: Value) -> Value:
    """base ** exponent of one integer type, as Numba-CUDA compiles it: a product that wraps around, rounded to float64.

    The function's other ways out give floats, so this one does as well. A negative exponent gives 0, and ±1 for a base
    of ±1; of 0 the least integer. An exponent beyond 65536 is left to float64's power.
    """
    base, exponent = np.broadcast_arrays(base, exponent)
    signed = exponent.dtype.kind == "i"
    magnitude = (np.where(exponent < 0, np.negative(exponent), exponent) if signed else exponent).astype(np.uint64)
    product = np.power(base, (magnitude & np.uint64(0x1FFFF)).astype(base.dtype))
    out = _saturated(product.astype(np.float64), base.dtype)
    if (magnitude > 0x10000).any():
        far = np.power(base.astype(np.float64), exponent.astype(np.float64))
        out = np.where(magnitude > 0x10000, _saturated(far, base.dtype), out)
    if signed and (exponent < 0).any():
        small = np.where((base == 1) | (base == -1), product, np.where(base == 0, np.iinfo(base.dtype).min, 0))
        out = np.where(exponent < 0, small, out)
    return np.where(exponent == 0, 1, out).astype(base.dtype)[()]


def _float_power(base: Value, exponent: Value) -> Value:
    """base ** exponent by squaring, in the base's own type."""
    base, exponent = np.broadcast_arrays(base, exponent)
    rest, square, product = np.abs(exponent), base.copy(), np.ones_like(base)
    large = rest > 0x10000
    rest = np.where(large, 0, rest)
    while rest.any():
        product = np.where(rest & 1, product * square, product)
        rest = rest >> 1
        square = square * square
    out = np.where(exponent < 0, base.dtype.type(1) / product, product)
    out = np.where(large, np.power(base.astype(np.float64), exponent.astype(np.float64)), out)
    return out.astype(base.dtype)[()]


def power(base: Value, exponent: Value) -> Value:
    """base ** exponent of floats. NumPy takes a root where one exponent 0.5 is given, which a power is not quite."""
    out = np.power(base, exponent)
    if exponent.ndim == 0 and exponent == 0.5:
        out = np.where(np.isneginf(base), base.dtype.type(np.inf), out + base.dtype.type(0))[()]
    return out


def _integer_division(op: Callable, left: Value, right: Value) -> Value:
    """`//` or `%` of one integer type. The least integer by -1 gives 0, which Numba-CUDA tests for in 64 bits."""
    out = op(left, right)
    if left.dtype == INT64 and (right == -1 if right.ndim == 0 else (right == -1).any()):
        out = np.where((right == -1) & (left == np.iinfo(np.int64).min), np.int64(0), out)[()]
    return out


def _float_division(op: Callable, left: Value, right: Value) -> Value:
    """`//` or `%` of one type of floats. By an infinity it is a NaN: compiled, left % right is left - n * right."""
    out = op(left, right)
    return np.where(np.isinf(right), right.dtype.type(np.nan), out)[()] if np.isinf(right).any() else out


def binary(op: Callable, left: Value, right: Value) -> Value:
    """`left op right` with Numba's types; integers wrap around."""
    compute, a, b, result = binary_plan(op, left.dtype, right.dtype)
    out = compute(left if a is None else cast(left, a), right if b is None else cast(right, b))
    return out if result is None else out.astype(result)


def unary(op: Callable, value: Value) -> Value:
    """`-x`, `+x` or `~x` with Numba's types."""
    if value.dtype == FLOAT16:
        if op is operator.invert:
            raise UnsupportedError("Numba has no invert for (float16)")
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


def at_poles(function: Callable, value: float) -> float:
    """gamma or lgamma: infinite at 0 (with its sign) and where too large, at negative integers NaN and infinite."""
    try:
        return function(value)
    except ValueError:
        if function is math.gamma:
            return math.nan if value < 0 else math.copysign(math.inf, value)
        return math.inf
    except OverflowError:
        return math.inf


def slowly(function: Callable[..., float]) -> Callable[..., Value]:
    """A function of Python's floats, lane by lane; the result is of its first argument's type."""
    one = np.vectorize(function, otypes=[np.float64])
    return lambda x, *more: np.asarray(one(x.astype(np.float64), *more), x.dtype)[()]


_OF_TWO = {math.atan2, math.fmod, math.hypot, math.copysign, math.pow, math.nextafter, math.remainder, math.ldexp}
ieee_remainder = slowly(lambda a, b: math.nan if b == 0 or math.isinf(a) else math.remainder(a, b))


def of_numpy(names: str) -> dict[str, np.ufunc]:
    """NumPy's functions, by the names that C has for them."""
    return {n: getattr(np, n if hasattr(np, n) else n.replace("a", "arc", 1)) for n in names.split()}


_REAL = "sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh fabs "
_REAL += "floor ceil trunc fmod hypot copysign isnan isinf isfinite degrees radians exp2 nextafter"
_MATH: dict[Callable, Callable] = {getattr(math, name): of for name, of in of_numpy(_REAL).items()} | {
    math.pow: power, math.remainder: ieee_remainder, math.frexp: np.frexp, math.modf: np.modf, math.ldexp: np.ldexp,
    **{one: slowly(one) for one in (math.erf, math.erfc)},
    **{one: slowly(functools.partial(at_poles, one)) for one in (math.gamma, math.lgamma)},
}  # fmt: skip
_FREE_MATH = {math.fabs, math.floor, math.ceil, math.trunc, math.copysign, math.isnan, math.isinf, math.isfinite}


def math_call(function: Callable, args: list[Value]) -> tuple[Value | tuple, int]:
    """(result, FLOPs per lane) of a function of the `math` module, in the precision that Numba-CUDA computes it in.

    See math_type.
    """
    target = _MATH.get(function)
    if target is not None and len(args) != (2 if function in _OF_TWO else 1):
        raise UnsupportedError(f"math.{function.__name__} does not take {len(args)} numbers here")
    dtypes = tuple(a.dtype for a in args)
    if any(d.kind == "c" for d in dtypes):
        raise UnsupportedError(f"math.{function.__name__} takes real numbers")
    if target is None:
        raise UnsupportedError(f"math.{function.__name__} is not available in Numba-CUDA kernels")
    dtype = math_type(function, dtypes)
    values = [cast(a, INT32 if k and function is math.ldexp else dtype) for k, a in enumerate(args)]
    return target(*values), 0 if function in _FREE_MATH else 1


_COMPLEX = "sqrt exp log log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh isnan isinf isfinite"
_CMATH: dict[Callable, Callable] = {getattr(cmath, name): of for name, of in of_numpy(_COMPLEX).items()}
_CMATH[cmath.phase] = np.angle


def complex_of(real: Value, imag: Value) -> Value:
    """A complex number of its two parts, as they are: a sum with 1j times one of them makes a NaN of an infinity."""
    out = np.empty(np.broadcast_shapes(real.shape, imag.shape), np.result_type(real, imag, np.complex64))
    out.real, out.imag = real, imag
    return out[()]


def _rect(radius: Value, angle: Value) -> Value:
    """cmath.rect: an infinite radius times 0 is 0, as is a radius of 0 at no angle."""
    parts = [
        np.where((part == 0) & np.isinf(radius), part / radius, part * radius)
        for part in (np.cos(angle), np.sin(angle))
    ]
    for where, ends in ((radius == 0, (np.abs(radius), 0)), (np.isinf(radius), (radius, angle))):
        parts = [np.where(where & ~np.isfinite(angle), end, part) for end, part in zip(ends, parts, strict=True)]
    return complex_of(*(part.astype(radius.dtype) for part in parts))


_OF_COMPLEX = {cmath.acosh, cmath.cosh, cmath.log10, cmath.phase, cmath.sinh, cmath.tanh}
"""The operations that Numba-CUDA has for no real number."""


def cmath_call(function: Callable, args: list[Value]) -> Value | tuple:
    """A function of the `cmath` module; complex64 stays so."""
    narrow = all(a.dtype in (FLOAT32, np.complex64) for a in args)
    if function is cmath.log and len(args) == 2:
        return binary(operator.truediv, *(cmath_call(cmath.log, [cast(a, COMPLEX128)]) for a in args))
    if len(args) != (2 if function is cmath.rect else 1):
        raise UnsupportedError(f"cmath.{function.__name__} does not take {len(args)} numbers here")
    if function in _OF_COMPLEX and all(a.dtype.kind != "c" for a in args):
        raise UnsupportedError(f"cmath.{function.__name__} takes a complex number here: complex(…) makes one")
    values = [cast(a, np.dtype(np.complex64) if narrow else COMPLEX128) for a in args]
    if function is cmath.polar:
        return np.abs(values[0]), np.angle(values[0])
    if function is cmath.rect:
        return _rect(*(v.real for v in values))
    if function not in _CMATH:
        raise UnsupportedError(f"cmath.{function.__name__} is not available in kernels")
    return _CMATH[function](values[0])


def builtin_cast(function: Callable, value: Value) -> Value:
    """int(x), float(x), bool(x), complex(x)."""
    if function is bool:
        return truth(value)
    if value.dtype == BOOL and function is not int:
        raise UnsupportedError(f"Numba-CUDA has no {function.__name__}() of a bool: float64(…) converts")
    if function is complex:
        if value.dtype == FLOAT16:
            raise UnsupportedError("Numba-CUDA has no complex() of a float16: float32(…) converts")
        return cast(value, np.dtype(np.complex64) if value.dtype in (FLOAT32, np.complex64) else COMPLEX128)
    if value.dtype.kind == "c":
        raise UnsupportedError(f"{function.__name__}() of a complex number: take .real first")
    if function is int:
        return value if value.dtype.kind in "iu" else cast(value, INT64)
    return value if value.dtype in (FLOAT32, FLOAT64, FLOAT16) else cast(value, FLOAT64)
