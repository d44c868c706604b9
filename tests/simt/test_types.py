"""Numbers have Numba's types: results equal what numba.njit computes, for every pair of dtypes and every operator."""

import gc
import itertools
import math
import operator
import re

import numba
import numba.core.registry
import numba.np.numpy_support
import numpy as np
import pytest
from numba import float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from numba.types import float16

from dwlab import simt
from dwlab.simt import cuda, source
from tests.loaded import loaded, program

pytestmark = pytest.mark.family(0.05)  # tests/parts.py

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]
ALL_PAIRS = list(itertools.product(NAMES, NAMES))
# Compiling takes time: numba.njit itself is asked for every combination in one order or the other, without int16 and
# uint16, which take the same paths as their neighbours. `oracle` knows the rest, and is held to njit here.
COMPILED_PAIRS = [
    (a, b) if (i + j) % 2 else (b, a)
    for (i, a), (j, b) in itertools.combinations_with_replacement(enumerate(NAMES), 2)
    if not {a, b} & {"int16", "uint16"}
]


def operands(name, other):
    """Values at the edges of the type, none of them zero, paired with values of the other type."""

    def edges(name):
        if name == "bool":
            return [True]
        if name.startswith("float"):
            return [1.0, -1.5, 0.1, 3.0, -7.25, 1e10, 2.5]
        info = np.iinfo(name)
        low = [info.min, info.min + 1, -1, -7] if info.min else []
        return [1, 2, 3, 5, 100, info.max, info.max - 1, *low]

    pairs = list(itertools.product(edges(name), edges(other)))
    return np.array([p[0] for p in pairs], name), np.array([p[1] for p in pairs], other)


COMPARED = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
OPERATORS = {  # what stands between two operands, or before them, and the function of the same
    "arithmetic": {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    | {"//": operator.floordiv, "%": operator.mod} | COMPARED,
    "bitwise": {"&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift},
    "extremes": {"min": None, "max": None},
}  # fmt: skip


def statements(group):
    """Each result of element i in a variable, and from there, as float64 and as int64, in a row of its own."""
    for row, sign in enumerate(OPERATORS[group]):
        shifted = f"a[i] {sign} (b[i] & 7)"
        yield f"r{row} = " + (
            f"{sign}(a[i], b[i])" if sign.isalpha() else shifted if sign in ("<<", ">>") else f"a[i] {sign} b[i]"
        )
        yield f"real[{row}, i] = r{row}"
        if sign not in COMPARED:
            yield f"whole[{row}, i] = r{row}"


def looped(group):
    """One element after the other, for numba.njit."""
    body = "".join(f"        {line}\n" for line in statements(group))
    return loaded(f"def {group}(a, b, real, whole, n):\n    for i in range(n):\n{body}")[group]


# A thread an element.
ON_DEVICE = {
    group: program(["i = cuda.grid(1)", "if i >= n:", "    return", *statements(group)], "a, b, real, whole, n")[0]
    for group in OPERATORS
}


def oracle(operation, a, b):
    """The result as Numba's typing rules and exact arithmetic give it: operands converted, result wrapped around."""
    types = numba.core.registry.cpu_target.typing_context
    types.refresh()
    signature = types.resolve_function_type(operation, (numba.from_dtype(a.dtype), numba.from_dtype(b.dtype)), {})
    result = numba.np.numpy_support.as_dtype(signature.return_type)
    left, right = (numba.np.numpy_support.as_dtype(t) for t in signature.args)
    if operation in (operator.lshift, operator.rshift):
        b = b & b.dtype.type(7)
    if result.kind in "iu":
        left = right = result
    a, b = a.astype(left), b.astype(right)
    if result.kind in "iu":
        wrap = 2 ** (8 * result.itemsize)
        exact = [operation(int(x), int(y)) % wrap for x, y in zip(a, b, strict=True)]
        return np.array(exact, np.uint64).astype(f"u{result.itemsize}").view(result)
    if operation is operator.truediv and left.kind in "iu":
        a, b = a.astype(np.float64), b.astype(np.float64)
    return operation(a, b).astype(result)


def simulate(group, a, b):
    """(results as float64, results as int64), a row for each operator."""
    n, rows = len(a), len(OPERATORS[group])
    out = np.zeros((rows, n)), np.zeros((rows, n), np.int64)
    ON_DEVICE[group][-(-n // 32), 32](a, b, *out, n)
    return out


def whole(values):
    """An int64 where that is defined: whole numbers as they are, floats where they fit, else 0."""
    if values.dtype.kind in "iub":
        return values.astype(np.int64)
    return np.where(np.abs(values) < 2.0**62, values, 0).astype(np.int64)


def is_integral(*dtypes):
    return all(d.kind in "iub" for d in dtypes)


def checked_operands(left, right):
    a, b = operands(left, right)
    if is_integral(a.dtype, b.dtype):
        # The most negative number over -1 (or what a uint64 becomes) does not fit; processors differ in what comes out.
        keep = ~((b.astype(np.int64) == -1) & (a.astype(np.float64) < -100))
        a, b = a[keep], b[keep]
    return a, b


@pytest.mark.parametrize("group", OPERATORS)
@pytest.mark.parametrize("left, right", ALL_PAIRS)
def test_all_pairs_of_types(group, left, right):
    a, b = checked_operands(left, right)
    if group == "bitwise" and not is_integral(a.dtype, b.dtype):
        with pytest.raises(simt.UnsupportedError):
            simulate(group, a, b)
        return
    if group == "extremes" and (left == "bool") != (right == "bool"):
        with pytest.raises(simt.UnsupportedError, match="bool"):  # Numba-CUDA has none, Numba on a CPU does
            simulate(group, a, b)
        return
    reals, wholes = simulate(group, a, b)
    for row, operation in enumerate(filter(None, OPERATORS[group].values())):
        expected = oracle(operation, a, b)
        np.testing.assert_array_equal(reals[row], expected.astype(np.float64), err_msg=operation.__name__)
        if expected.dtype != np.bool_:
            fits = is_integral(expected.dtype) | (np.abs(expected.astype(np.float64)) < 2.0**62)
            np.testing.assert_array_equal(np.where(fits, wholes[row], 0), whole(expected), err_msg=operation.__name__)


@pytest.mark.parametrize("group", OPERATORS)
@pytest.mark.parametrize("left, right", COMPILED_PAIRS)
def test_pairs_of_types_compiled_by_numba(group, left, right):
    a, b = checked_operands(left, right)
    if group == "bitwise" and not is_integral(a.dtype, b.dtype):
        return
    if group == "extremes" and (left == "bool") != (right == "bool"):
        return
    reals, wholes = simulate(group, a, b)
    compiled_reals, compiled_wholes = np.zeros_like(reals), np.zeros_like(wholes)
    numba.njit(looped(group))(a, b, compiled_reals, compiled_wholes, len(a))
    np.testing.assert_array_equal(reals, compiled_reals)
    # a / b is a float, and so is the lesser of an int64 and a uint64.
    integral = is_integral(a.dtype, b.dtype) & (np.arange(len(reals)) != 3) & (group != "extremes")
    fits = integral[:, None] | (np.abs(compiled_reals) < 2.0**62)  # a CPU does not saturate
    np.testing.assert_array_equal(np.where(fits, wholes, 0), np.where(fits, compiled_wholes, 0))
    for row, operation in enumerate(filter(None, OPERATORS[group].values())):
        np.testing.assert_array_equal(oracle(operation, a, b).astype(np.float64), compiled_reals[row])


# --- expressions with literals, casts, builtins, math; variables -----------------------------------

EXPRESSIONS = re.split(
    r";\s",
    """
f + 1; f * 2; 2 * f; f / 2; f * 0.5; f + float32(1); f * float32(0.1) + f; f ** 2; f ** 2.0; f ** k; j ** k;
i ** (k & 7); f // 1; f % 1; -f; abs(f); i + 1; i * i; i * 3 + j; i / 2; i // 2; i % 7; i ** 2; -i; ~i; not i;
i << 20; i >> 1; i & 255; i + f; i * f; j + f; j * 0.1; u + 1; u - 10; u * u; -u; ~u; b + b; b * f; b & True; -b;
k + 1; k * k; k - 200; -k; s + s; s * s; int32(i * 100000); int32(j); int16(j); uint8(k); uint8(i); int8(300);
float32(j); float32(d); float32(0.1); float64(f); float32(f * d); int64(d); int32(f); uint32(i); uint32(i) + 1;
uint64(j); int64(u) - 10; int32(1) + int32(2); int32(2147483647) + int32(1); int32(2147483647) * 2;
uint8(200) + uint8(100); float32(1) / float32(3); float32(1) / 3; 1 / 3; int32(1) / int32(3); math.sqrt(f);
math.sqrt(d); math.sqrt(i); math.sin(f); math.exp(f); math.atan2(f, d); math.hypot(f, f); math.copysign(f, d);
math.fabs(f); np.float32(d); np.int32(j); np.minimum(f, d); np.log(f * f); np.sin(i); np.arctan(f); np.fmax(f, 1);
np.true_divide(i, j); np.isnan(f); np.logical_not(i); np.deg2rad(f); np.maximum(i, j); min(i, j); max(f, 0);
max(f, float32(0)); min(i, 3.5); max(k, u); abs(i); abs(k); round(d); round(f); int(f); int(d); float(i); float(f);
bool(f); pow(f, 2); pow(d, 0.5); f if b else d; i if b else f; k if b else i; (i + j) * f - d / 3; (f + f) * (f - 1);
f < d; i == j; i < u; k > 5; 0 < i < 5; i and j; i or f; 1 << 40; 5 % 3 - 7 // 2; 2 ** 10; -7 // 2; -7 % 3; 7.5 // 2;
-7.5 % 2; 1e10; 10**-3; 2**-1; 10**18 * 10; 7 / 2; -(2**63); (1, 2, 3)[-1]; 2**0.5
""".strip(),
)

SCOPE = {
    "math": math, "np": np, "float32": float32, "float64": float64, "int8": int8, "int16": int16, "int32": int32,
    "int64": int64, "uint8": uint8, "uint16": uint16, "uint32": uint32, "uint64": uint64,
}  # fmt: skip
# name: (type, values)
VARIABLES = {
    "f": (float32, [0.1, -2.7, 3.0]),
    "d": (float64, [0.3, 7.7, -1e-3]),
    "i": (int32, [3, -2147483648, 2147483647]),
    "j": (int64, [5, -(2**62), 2**40 + 7]),
    "u": (uint32, [7, 4294967295, 2147483648]),
    "k": (int8, [5, -128, 127]),
    "s": (int16, [300, -32768, 32767]),
    "b": (numba.boolean, [True, False, True]),
}


def test_expressions():
    """All expressions, compiled as one function by numba.njit, and run as one kernel."""
    body = "".join(f"    r{n} = {e}\n    real[{n}, t] = r{n}\n" for n, e in enumerate(EXPRESSIONS))
    head = "(real, t, f, d, i, j, u, k, s, b):\n"
    compiled = numba.njit(loaded("def compiled" + head + body, **SCOPE)["compiled"])
    names = ", ".join(f"{v}_" for v in VARIABLES)
    unpack = "    t = cuda.grid(1)\n" + "".join(f"    {v} = {v}_[t]\n" for v in VARIABLES)
    kernel = cuda.jit(loaded(f"def simulated(real, {names}):\n{unpack}{body}", cuda=cuda, **SCOPE)["simulated"])

    arrays = [np.array(v, str(t) if t is not numba.boolean else "bool") for t, v in VARIABLES.values()]
    expected, got = np.zeros((len(EXPRESSIONS), 3)), np.zeros((len(EXPRESSIONS), 3))
    for t in range(3):
        compiled(expected, t, *(a[t] for a in arrays))
    kernel[1, 3](got, *arrays)
    wrong = []
    for e, want, have in zip(EXPRESSIONS, expected, got, strict=True):
        # Library functions may differ in the last bit of their own precision; everything else must not.
        loose = any(name in e for name in ("sin", "exp", "atan2", "hypot", "**", "pow"))
        close = np.allclose(have, want, rtol=2e-7 if "f" in e else 1e-15, equal_nan=True) if loose else False
        if not (close or np.array_equal(have, want, equal_nan=True)):
            wrong.append(f"{e}: Numba {want.tolist()}, here {have.tolist()}")
    assert not wrong, "\n".join(wrong)


def test_precision_of_cudas_own_functions():
    f = np.arange(1, 33, dtype=np.float32)
    three, t = np.float32(3), f / np.float32(3)
    t64, t16 = t.astype(np.float64), t.astype(np.float16)
    expected = {
        "cuda.fma(third, third, third)": (t64 * t64 + t64).astype(np.float32),
        "cuda.fma(third, 2, third)": t64 * 2 + t64,  # 2 is an int64
        "math.pow(third, int32(2)) / float32(3)": (t64 * t64).astype(np.float32) / three,  # on the CPU: float64
        "cuda.shfl_sync(0xFFFFFFFF, third, 0) / float32(3)": np.full(32, t[0] / three),
        "cuda.selp(i > 1, third, third) / float32(3)": t / three,
        "float16(third) * 2.0 + 1": t16.astype(np.float64) * 2 + 1,
        "float16(third) * third": t16.astype(np.float32) * t,
        "float16(third) * float16(third)": t16 * t16,
        # Floats, as of the CPU's Numba they are not.
        "math.floor(third) * float32(0.1)": np.floor(t) * np.float32(0.1),
        "math.ceil(third) * float32(0.1)": np.ceil(t) * np.float32(0.1),
        "math.trunc(third) + float32(0.1)": np.trunc(t) + np.float32(0.1),
    }
    lines = ["i = cuda.grid(1)", "third = f[i] / float32(3)"]
    lines += [f"out[{row}, i] = {text}" for row, text in enumerate(expected)]
    out = np.zeros((len(expected), 32))
    program(lines, "f, out", float32=float32, float16=float16, math=math)[0][1, 32](f, out)
    for row, (text, want) in zip(out, expected.items(), strict=True):
        close = "pow" in text and row == pytest.approx(want, rel=2e-7)
        assert close or row.tolist() == want.astype(np.float64).tolist(), text


def test_types_are_of_the_source_that_runs_however_many_functions_were_read_since():
    @cuda.jit(device=True)
    def chosen(way):
        base = 2**62 + 1
        if way:
            base = 0.5
        return base - 2**62

    @cuda.jit
    def kernel(x, out):
        base = 2**62 + 1  # a float64 by the other path, which does not hold it
        if x[0]:
            base = 0.5
        out[0] = base - 2**62
        out[1] = chosen(x[0])

    for _ in range(2):
        out = np.full(2, -1.0)
        kernel[1, 1](np.zeros(1, np.int64), out)
        assert out.tolist() == [0, 0]
        source._functions.cache_clear()
        source._parsed.cache_clear()  # what reading 512 other functions does
        source._own.cache_clear()
        gc.collect()
