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

F, D = types.FLOAT32, types.FLOAT64

Meaning = Callable[..., object]
FUNCTIONS: dict[str, tuple[tuple[np.dtype, ...], Meaning]] = {}
"""name -> (types of the arguments, what it computes)."""


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


def _from_whole(how: str, dtype: np.dtype, x: Lanes) -> Lanes:
    return _directed(how, x.astype(np.longdouble), dtype)


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
    bits = np.unpackbits(np.array(value[..., None]).view(np.uint8), axis=-1, bitorder="little")
    return np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(value.dtype)[..., 0][()]


def _average(a: Lanes, b: Lanes, up: int) -> Lanes:
    return ((a.astype(np.int64) + b.astype(np.int64) + up) >> 1).astype(a.dtype)


_TYPES = {"d": D, "f": F, "i": types.INT32, "u": types.UINT32, "l": types.INT64, "U": types.UINT64}


def _add(names: str, letters: str, meaning: Meaning | dict[str, Meaning]) -> None:
    """Registers functions that take these types, a letter each. r: float64 and, with an f behind the name, float32."""
    for name in names.split():
        does = meaning[name] if isinstance(meaning, dict) else meaning
        for end, real in (("", "d"), ("f", "f")) if "r" in letters else (("", ""),):
            FUNCTIONS[name + end] = (tuple(_TYPES[one] for one in letters.replace("r", real)), does)


def _rounded(how: str, operation: Callable) -> Meaning:
    """An operation that is rounded once."""
    return lambda *values: _directed(how, operation(*map(_wider, values)), values[0].dtype)


def _fill() -> None:
    of_one = "ceil cos cosh exp exp2 expm1 fabs floor log log10 log1p log2 rint sin sinh sqrt tan tanh trunc cbrt modf "
    of_one += "acos acosh asin asinh atan atanh"
    _add(of_one, "r", types.of_numpy(of_one))
    for name, function in (("erf", math.erf), ("erfc", math.erfc), ("erfcx", _erfcx)):
        _add(name, "r", types.slowly(function))
    for name, function in (("tgamma", math.gamma), ("lgamma", math.lgamma)):
        _add(name, "r", types.slowly(functools.partial(types.at_poles, function)))
    _add("normcdf", "r", types.slowly(lambda v: 0.5 * math.erfc(-v / math.sqrt(2.0))))
    _add("exp10", "r", lambda x: np.power(x.dtype.type(10), x))
    _add("nearbyint", "r", np.rint)
    _add("round", "r", _away)
    _add("rsqrt", "r", lambda x: (1 / np.sqrt(_wider(x))).astype(x.dtype))
    _add("rcbrt", "r", lambda x: (1 / np.cbrt(x.astype(np.float64))).astype(x.dtype))
    _add("sinpi", "r", _times_pi(np.sin, 0.0))
    _add("cospi", "r", _times_pi(np.cos, 0.5))
    _add("logb", "r", lambda x: np.floor(np.log2(np.abs(x))).astype(x.dtype))
    _add("sincos", "r", lambda x: (np.sin(x), np.cos(x)))
    _add("sincospi", "r", lambda x: tuple(FUNCTIONS[one][1](x) for one in ("sinpi", "cospi")))
    _add("frexp", "r", lambda x: tuple(one.astype(t) for one, t in zip(np.frexp(x), (x.dtype, np.int32), strict=True)))
    _add("ilogb", "r", lambda x: types.cast(np.floor(np.log2(np.abs(x))), types.INT32))
    _add("llrint", "r", lambda x: types.cast(np.rint(x), types.INT64))
    _add("llround", "r", lambda x: types.cast(_away(x), types.INT64))
    of_two = "atan2 copysign fmax fmin fmod hypot nextafter"
    _add(of_two, "rr", types.of_numpy(of_two))
    _add("pow", "rr", np.power)
    _add("remainder", "rr", types.ieee_remainder)
    _add("fdim", "rr", lambda a, b: np.where(np.isnan(a) | np.isnan(b), np.nan, np.fmax(a - b, 0)).astype(a.dtype)[()])
    _add("fma", "rrr", lambda a, b, c: (_wider(a) * _wider(b) + _wider(c)).astype(a.dtype))
    _add("ldexp scalbn", "ri", np.ldexp)
    _add("powi", "ri", lambda x, n: np.power(x, n).astype(x.dtype))
    for name in "cos exp log log2 log10 sin tan".split():
        _add(f"fast_{name}f", "f", getattr(np, name))
    _add("fast_exp10f", "f", lambda x: np.power(np.float32(10), x))
    _add("fast_sincosf", "f", lambda x: (np.sin(x), np.cos(x)))
    _add("fast_fdividef", "ff", np.true_divide)
    _add("fast_powf", "ff", lambda x, y: np.exp2(y * np.log2(x)))
    _add("frsqrt_rn", "f", FUNCTIONS["rsqrtf"][1])
    _add("saturatef", "f", lambda x: np.where(np.isnan(x), 0, np.clip(x, 0, 1)).astype(np.float32)[()])
    for how in ("rn", "rd", "ru", "rz"):
        for letter in "fd":
            for operation in (np.add, np.multiply, np.divide, np.subtract):
                if (letter, operation) != ("d", np.subtract):
                    _add(f"{letter}{operation.__name__[:3]}_{how}", letter * 2, _rounded(how, operation))
            _add(f"{letter}rcp_{how}", letter, _rounded(how, np.reciprocal))
            _add(f"{letter}sqrt_{how}", letter, _rounded(how, np.sqrt))
            _add(f"fma{'f' * (letter == 'f')}_{how}", letter * 3, _rounded(how, lambda a, b, c: a * b + c))
        for whole, of in (("int", "i"), ("uint", "u"), ("ll", "l"), ("ull", "U")):
            for name, real in (("float", "f"), ("double", "d")):
                _add(f"{name}2{whole}_{how}", real, functools.partial(_whole, how, dtype=_TYPES[of]))
                if name == "float" or how == "rn" or "ll" in whole:
                    _add(f"{whole}2{name}_{how}", of, functools.partial(_from_whole, how, _TYPES[real]))
        _add(f"double2float_{how}", "d", functools.partial(_directed, how, dtype=F))
    for name, have, want in (("float_as_int", "f", "i"), ("int_as_float", "i", "f"), ("double_as_longlong", "d", "l"),
                             ("longlong_as_double", "l", "d")):  # fmt: skip
        _add(name, have, functools.partial(_bits, dtype=_TYPES[want]))
    _add("double2hiint", "d", lambda x: (_bits(x, types.INT64) >> 32).astype(np.int32))
    _add("double2loint", "d", lambda x: _bits(x, types.INT64).astype(np.int32))
    _add("hiloint2double", "ii", lambda high, low: _bits(high.astype(np.int64) << 32 | low.astype(np.uint32), D))
    for end, letter in (("", "i"), ("ll", "l")):
        for name in ("popc", "clz", "ffs"):
            _add(name + end, letter, functools.partial(count, what=name))
        _add("brev" + end, letter, reversed_bits)
    for start, letter in (("", "i"), ("ll", "l"), ("u", "u"), ("ull", "U")):
        _add(start + "min", letter * 2, np.minimum)
        _add(start + "max", letter * 2, np.maximum)
    _add("abs", "i", np.abs)
    _add("llabs", "l", np.abs)
    for name, letter in (("mulhi", "i"), ("umulhi", "u"), ("mul64hi", "l"), ("umul64hi", "U")):
        _add(name, letter * 2, _high)
    _add("mul24", "ii", lambda a, b: (a << 8 >> 8) * (b << 8 >> 8))
    _add("umul24", "uu", lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF))
    for name, letter in (("hadd", "i"), ("uhadd", "u")):
        _add(name, letter * 2, functools.partial(_average, up=0))
        _add(name.replace("hadd", "rhadd"), letter * 2, functools.partial(_average, up=1))
    for name, letters in (("sad", "iii"), ("usad", "uuu")):
        _add(name, letters, lambda a, b, c: (np.abs(a.astype(np.int64) - b.astype(np.int64)) + c).astype(c.dtype))
    _add("byte_perm", "iii", _byte_perm)
    for names, test in (("isnand isnanf", np.isnan), ("isinfd isinff", np.isinf), ("isfinited finitef", np.isfinite),
                        ("signbitd signbitf", np.signbit)):  # fmt: skip
        for name, letter in zip(names.split(), "df", strict=True):
            _add(name, letter, lambda x, test=test: test(x).astype(np.int32))
    NAMES["libdevice"] = DeviceName("libdevice", tuple(FUNCTIONS))


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
    if out.dtype.kind == "f" and "_as_" not in name:
        run.count_flops(node, out.dtype, 1)
    return result
