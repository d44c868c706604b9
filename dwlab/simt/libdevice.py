"""The functions of NVIDIA's libdevice, as numba.cuda.libdevice names them: what they take, give and mean.

Names follow a rule: a last f is float32, none is float64; _rn, _rz, _rd and _ru round to the nearest, towards 0, down
and up; ll is 64 bits, a first u unsigned. The fast_ ones are computed exactly here; a GPU's differ in the last bits.
"""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import types
from dwlab.simt.memory import Lanes
from dwlab.simt.names import NAMES, DeviceName

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

F, D, H = types.FLOAT32, types.FLOAT64, types.FLOAT16
INTEGERS = {"int": types.INT32, "uint": types.UINT32, "ll": types.INT64, "ull": types.UINT64}

Meaning = Callable[..., object]
FUNCTIONS: dict[str, tuple[tuple[np.dtype, ...], Meaning]] = {}
"""name -> (types of the arguments, what it computes)."""


def _slowly(function: Callable[[float], float]) -> Meaning:
    """A function of one float64 of the math module, lane by lane."""
    one = np.vectorize(function, otypes=[np.float64])
    return lambda x: np.asarray(one(x.astype(np.float64)), x.dtype)[()]


def _erfcx(v: float) -> float:
    """exp(v * v) * erfc(v), where the one is too large and the other too small by its series."""
    if v < 26.0:
        return math.inf if v < -26.6 else math.exp(v * v) * math.erfc(v)
    x = 0.5 / v / v
    return (1.0 - x + 3.0 * x**2 - 15.0 * x**3) / v / math.sqrt(math.pi)


def _times_pi(function: np.ufunc, zero: float) -> Meaning:
    """function(pi * x), 0 where it should be. zero: a place of it, as all others are whole numbers away."""

    def meaning(x: Lanes) -> Lanes:
        there = np.abs(np.fmod(x, x.dtype.type(1))) == zero
        return np.where(there, 0.0, function(np.pi * np.fmod(x.astype(np.float64), 2.0))).astype(x.dtype)[()]

    return meaning


def _away(x: Lanes) -> Lanes:
    """Rounds to the nearest, of two as near the one further from 0."""
    return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x).astype(x.dtype)


def _directed(how: str, exact: Lanes, dtype: np.dtype) -> Lanes:
    """A number of more bits, rounded as the last letters of a name say."""
    near = exact.astype(dtype)
    back = near.astype(exact.dtype)
    down, up = np.nextafter(near, dtype.type(-np.inf)), np.nextafter(near, dtype.type(np.inf))
    low, high = np.where(back > exact, down, near), np.where(back < exact, up, near)
    chosen = {"rn": near, "rd": low, "ru": high, "rz": np.where(exact < 0, high, low)}[how]
    return chosen.astype(dtype)[()]


def _wider(x: Lanes) -> Lanes:
    return x.astype(np.float64 if x.dtype == F else np.longdouble)


def _whole(how: str, x: Lanes, dtype: np.dtype) -> Lanes:
    rounded = {"rn": np.rint, "rd": np.floor, "ru": np.ceil, "rz": np.trunc}[how](x)
    return types.cast(rounded, dtype)


def _high(a: Lanes, b: Lanes) -> Lanes:
    """The upper half of a product."""
    bits = a.dtype.itemsize * 8
    product = np.asarray(a).astype(object) * np.asarray(b).astype(object)  # Python's integers
    return np.asarray([int(v) >> bits for v in np.ravel(np.asarray(product, object))], a.dtype).reshape(
        np.shape(product)
    )[()]


def _bits(value: Lanes, dtype: np.dtype) -> Lanes:
    return np.ascontiguousarray(value).view(dtype) if value.ndim else value.view(dtype)


def _byte_perm(a: Lanes, b: Lanes, selector: Lanes) -> Lanes:
    """Four of the eight bytes of b:a, each chosen by three bits of the selector's four."""
    both = a.astype(np.uint32).astype(np.uint64) | b.astype(np.uint32).astype(np.uint64) << np.uint64(32)
    out = np.uint64(0)
    for k in range(4):
        place = (selector.astype(np.uint32).astype(np.uint64) >> np.uint64(4 * k)) & np.uint64(7)
        out = out | ((both >> (place * np.uint64(8))) & np.uint64(255)) << np.uint64(8 * k)
    return types.cast(out, types.UINT32).astype(np.int32)


def count(value: Lanes, what: str) -> Lanes:
    """Bits of a word: how many are set, how many zeros lead, where the lowest one is (from 1)."""
    word = _bits(value, np.dtype(f"u{value.dtype.itemsize}"))
    if what == "popc":
        return np.bitwise_count(word).astype(np.int32)
    one = word.dtype.type(1)
    if what == "ffs":
        lowest = np.bitwise_count((word & (~word + one)) - one).astype(np.int32) + np.int32(1)
        return np.where(word == 0, np.int32(0), lowest)[()]
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < value.dtype.itemsize * 8:
            word = word | word >> word.dtype.type(shift)
    return np.bitwise_count(~word).astype(np.int32)


def reversed_bits(value: Lanes) -> Lanes:
    word = _bits(value, np.dtype(f"u{value.dtype.itemsize}"))
    out = word.dtype.type(0)
    bits = value.dtype.itemsize * 8
    for k in range(bits):
        out = out | (word >> word.dtype.type(k) & word.dtype.type(1)) << word.dtype.type(bits - 1 - k)
    return _bits(out, value.dtype)


def _average(a: Lanes, b: Lanes, up: int) -> Lanes:
    return ((a.astype(np.int64) + b.astype(np.int64) + up) >> 1).astype(a.dtype)


def _both(name: str, count: int, meaning: Meaning) -> None:
    """Registers a function in float64 and, with an f behind the name, in float32."""
    FUNCTIONS[name] = ((D,) * count, meaning)
    FUNCTIONS[name + "f"] = ((F,) * count, meaning)


def _fill() -> None:
    for (
        name
    ) in "ceil cos cosh exp exp2 expm1 fabs floor log log10 log1p log2 rint sin sinh sqrt tan tanh trunc cbrt".split():
        _both(name, 1, getattr(np, name))
    for name in "acos acosh asin asinh atan atanh".split():
        _both(name, 1, getattr(np, name.replace("a", "arc", 1)))
    for name, function in (("erf", math.erf), ("erfc", math.erfc), ("erfcx", _erfcx)):
        _both(name, 1, _slowly(function))
    for name, function in (("tgamma", math.gamma), ("lgamma", math.lgamma)):
        _both(name, 1, _slowly(functools.partial(types.at_poles, function)))
    _both("normcdf", 1, _slowly(lambda v: 0.5 * math.erfc(-v / math.sqrt(2.0))))
    _both("exp10", 1, lambda x: np.power(x.dtype.type(10), x))
    _both("nearbyint", 1, np.rint)
    _both("round", 1, _away)
    _both("rsqrt", 1, lambda x: (1 / np.sqrt(_wider(x))).astype(x.dtype))
    _both("rcbrt", 1, lambda x: (1 / np.cbrt(x.astype(np.float64))).astype(x.dtype))
    _both("sinpi", 1, _times_pi(np.sin, 0.0))
    _both("cospi", 1, _times_pi(np.cos, 0.5))
    _both("logb", 1, lambda x: np.floor(np.log2(np.abs(x))).astype(x.dtype))
    _both("sincos", 1, lambda x: (np.sin(x), np.cos(x)))
    _both("sincospi", 1, lambda x: tuple(FUNCTIONS[one][1](x) for one in ("sinpi", "cospi")))
    _both("frexp", 1, lambda x: tuple(part.astype(t) for part, t in zip(np.frexp(x), (x.dtype, np.int32), strict=True)))
    _both("modf", 1, np.modf)
    for name, function in (
        ("atan2", np.arctan2), ("copysign", np.copysign), ("fmax", np.fmax), ("fmin", np.fmin), ("fmod", np.fmod),
        ("hypot", np.hypot), ("nextafter", np.nextafter), ("pow", np.power), ("remainder", types.ieee_remainder),
        ("fdim", lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.fmax(a - b, 0)).astype(a.dtype)[()]),
    ):  # fmt: skip
        _both(name, 2, function)
    for name, unary in ("cos", np.cos), ("exp", np.exp), ("log", np.log), ("log2", np.log2), ("log10", np.log10), (
        "sin", np.sin), ("tan", np.tan):  # fmt: skip
        FUNCTIONS[f"fast_{name}f"] = ((F,), unary)
    FUNCTIONS["fast_exp10f"] = ((F,), lambda x: np.power(np.float32(10), x))
    FUNCTIONS["fast_sincosf"] = ((F,), lambda x: (np.sin(x), np.cos(x)))
    FUNCTIONS["fast_fdividef"] = ((F, F), np.true_divide)
    FUNCTIONS["fast_powf"] = ((F, F), lambda x, y: np.exp2(y * np.log2(x)))
    FUNCTIONS["frsqrt_rn"] = ((F,), FUNCTIONS["rsqrtf"][1])
    FUNCTIONS["saturatef"] = (
        (F,),
        lambda x: np.where(np.isnan(x), np.float32(0), np.clip(x, np.float32(0), np.float32(1)))[()],
    )
    for name in ("ldexp", "scalbn", "powi"):
        for dtype, end in ((D, ""), (F, "f")):
            FUNCTIONS[name + end] = (
                (dtype, types.INT32), (lambda x, n: np.power(x, n).astype(x.dtype)) if name == "powi" else np.ldexp,
            )  # fmt: skip
    for dtype, end in ((D, ""), (F, "f")):
        FUNCTIONS["ilogb" + end] = ((dtype,), lambda x: types.cast(np.floor(np.log2(np.abs(x))), types.INT32))
        FUNCTIONS["llrint" + end] = ((dtype,), lambda x: types.cast(np.rint(x), types.INT64))
        FUNCTIONS["llround" + end] = ((dtype,), lambda x: types.cast(_away(x), types.INT64))
        FUNCTIONS["fma" + end] = ((dtype,) * 3, lambda a, b, c: (_wider(a) * _wider(b) + _wider(c)).astype(a.dtype))
    for how in ("rn", "rd", "ru", "rz"):
        for letter, dtype in (("f", F), ("d", D)):
            for name, operation in (
                ("add", np.add),
                ("mul", np.multiply),
                ("div", np.true_divide),
                ("sub", np.subtract),
            ):
                if (letter, name) != ("d", "sub"):
                    FUNCTIONS[f"{letter}{name}_{how}"] = ((dtype,) * 2, _rounded(how, operation))
            FUNCTIONS[f"{letter}rcp_{how}"] = ((dtype,), _rounded(how, np.reciprocal))
            FUNCTIONS[f"{letter}sqrt_{how}"] = ((dtype,), _rounded(how, np.sqrt))
            FUNCTIONS[f"fma{'f' * (letter == 'f')}_{how}"] = ((dtype,) * 3, _rounded(how, lambda a, b, c: a * b + c))
        for whole, dtype in INTEGERS.items():
            for real, name in ((F, "float"), (D, "double")):
                FUNCTIONS[f"{name}2{whole}_{how}"] = ((real,), lambda x, how=how, dtype=dtype: _whole(how, x, dtype))
                if name == "float" or how == "rn" or "ll" in whole:
                    FUNCTIONS[f"{whole}2{name}_{how}"] = (
                        (dtype,), lambda x, how=how, real=real: _directed(how, x.astype(np.longdouble), real)
                    )  # fmt: skip
        FUNCTIONS[f"double2float_{how}"] = ((D,), lambda x, how=how: _directed(how, x, F))
    for name, dtype, of in (
        ("float_as_int", F, types.INT32), ("int_as_float", types.INT32, F), ("double_as_longlong", D, types.INT64),
        ("longlong_as_double", types.INT64, D),
    ):  # fmt: skip
        FUNCTIONS[name] = ((dtype,), lambda x, of=of: _bits(x, of))
    FUNCTIONS["double2hiint"] = ((D,), lambda x: (_bits(x, types.INT64) >> 32).astype(np.int32))
    FUNCTIONS["double2loint"] = ((D,), lambda x: _bits(x, types.INT64).astype(np.int32))
    FUNCTIONS["hiloint2double"] = (
        (types.INT32, types.INT32),
        lambda high, low: _bits(high.astype(np.int64) << 32 | low.astype(np.uint32).astype(np.int64), D),
    )
    for end, dtype in (("", types.INT32), ("ll", types.INT64)):
        for name in ("popc", "clz", "ffs"):
            FUNCTIONS[name + end] = ((dtype,), lambda x, name=name: count(x, name))
        FUNCTIONS["brev" + end] = ((dtype,), reversed_bits)
    for start, dtype in (("", types.INT32), ("ll", types.INT64), ("u", types.UINT32), ("ull", types.UINT64)):
        FUNCTIONS[start + "min"], FUNCTIONS[start + "max"] = ((dtype,) * 2, np.minimum), ((dtype,) * 2, np.maximum)
    FUNCTIONS["abs"], FUNCTIONS["llabs"] = ((types.INT32,), np.abs), ((types.INT64,), np.abs)
    for name, dtype in (
        ("mulhi", types.INT32),
        ("umulhi", types.UINT32),
        ("mul64hi", types.INT64),
        ("umul64hi", types.UINT64),
    ):
        FUNCTIONS[name] = ((dtype,) * 2, _high)
    FUNCTIONS["mul24"] = ((types.INT32,) * 2, lambda a, b: (a << 8 >> 8) * (b << 8 >> 8))
    FUNCTIONS["umul24"] = ((types.UINT32,) * 2, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF))
    for name, dtype, up in (
        ("hadd", types.INT32, 0),
        ("rhadd", types.INT32, 1),
        ("uhadd", types.UINT32, 0),
        ("urhadd", types.UINT32, 1),
    ):
        FUNCTIONS[name] = ((dtype,) * 2, lambda a, b, up=up: _average(a, b, up))
    for name, dtype in (("sad", types.INT32), ("usad", types.UINT32)):
        FUNCTIONS[name] = (
            (dtype, dtype, types.UINT32 if name == "usad" else dtype),
            lambda a, b, c: (np.abs(a.astype(np.int64) - b.astype(np.int64)) + c).astype(c.dtype),
        )
    FUNCTIONS["byte_perm"] = ((types.INT32,) * 3, _byte_perm)
    for name, dtype, test in (
        ("isnand", D, np.isnan), ("isnanf", F, np.isnan), ("isinfd", D, np.isinf), ("isinff", F, np.isinf),
        ("isfinited", D, np.isfinite), ("finitef", F, np.isfinite), ("signbitd", D, np.signbit),
        ("signbitf", F, np.signbit),
    ):  # fmt: skip
        FUNCTIONS[name] = ((dtype,), lambda x, test=test: test(x).astype(np.int32))
    NAMES["libdevice"] = DeviceName("libdevice", tuple(FUNCTIONS))


def _rounded(how: str, operation: Callable) -> Meaning:
    def meaning(*values: Lanes) -> Lanes:
        exact = operation(*(_wider(v) for v in values))
        return _directed(how, exact, values[0].dtype)

    return meaning


_fill()


def named(run: Execution, name: str, node: ast.AST) -> DeviceName:
    """libdevice.name, or the refusal of one that is not there."""
    found = getattr(NAMES["libdevice"], name, None)
    if not isinstance(found, DeviceName):
        raise run.refuse(node, f"libdevice.{name} is not run here", "write it with the math module")
    return found


def call(run: Execution, node: ast.Call, name: str, arguments: list[object]) -> object:
    """A call of a libdevice function."""
    wanted, meaning = FUNCTIONS[name]
    if len(arguments) != len(wanted):
        raise run.refuse(node, f"libdevice.{name} takes {len(wanted)} argument(s), not {len(arguments)}")
    values = [types.cast(run.number(a, node), dtype) for a, dtype in zip(arguments, wanted, strict=True)]
    run.operate(values)
    result = meaning(*values)
    if getattr(result, "dtype", F).kind == "u":  # Numba-CUDA declares none but signed integers
        result = _bits(result, np.dtype(f"i{result.dtype.itemsize}"))
    out = result[0] if isinstance(result, tuple) else result
    if out.dtype.kind == "f":
        run.count_flops(node, out.dtype, 1)
    return result
