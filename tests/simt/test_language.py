"""Numba-CUDA as it is written runs: one small kernel for each feature, with the result that a GPU would give.

What plain Python gives too is in the rows of language_rows.txt.

With DWLAB_LANGUAGE_TESTS=numba the same kernels run on numba.cuda and its GPU: test_language_on_gpu.py does that.
"""

import cmath
import math
import os
import textwrap

import numpy as np
import pytest
from numba import boolean, complex64, float32, float64, int8, int16, int32, int64, uint8, uint32, void
from numba.types import float16

from dwlab import simt
from tests.loaded import loaded

pytestmark = pytest.mark.quick

ON_GPU = os.environ.get("DWLAB_LANGUAGE_TESTS") == "numba"
if ON_GPU:
    from numba import cuda
else:
    from dwlab.simt import cuda
only_simulated = pytest.mark.skipif(ON_GPU, reason="a GPU prints to the process's own stdout, unseen by Python")

FULL = 0xFFFFFFFF
TILE = 8


def run(kernel, size=32, dtype=np.int64, *, grid=1, block=None, args=(), shared=0):
    """Launch over an output of ``size`` zeros, given first; return the output."""
    out = np.zeros(size, dtype)
    kernel[grid, block or (size if isinstance(size, int) else size[0]), 0, shared](out, *args)
    return out


def kernel_of(parameters, *lines):
    """A kernel of these lines, on either target."""
    known = dict(cuda=cuda, cmath=cmath, math=math, np=np, FULL=FULL, boolean=boolean, float16=float16)
    known |= {str(one): one for one in (complex64, float32, float64, int8, int16, int32, int64, uint8, uint32)}
    text = f"def kernel({parameters}):\n" + textwrap.indent("\n".join(lines), "    ") + "\n"
    return cuda.jit(loaded(text, lines[-1], **known)["kernel"])


def by_text(parameters, *expressions):
    """A kernel of thread i that stores each expression in a row of `out`, and has a `v` that is x[i]."""
    stores = (f"out[{k}, i] = {text}" for k, text in enumerate(expressions))
    return kernel_of(f"{parameters}, out", "i = cuda.grid(1)", "v = x[i]", *stores)


# --- jit in all its forms -------------------------------------------------------------------------


@cuda.jit
def bare(out):
    out[cuda.grid(1)] = 1


FORMS = {
    "bare": cuda.jit,
    "called": cuda.jit(),
    "one signature": cuda.jit(void(int64[:])),
    "text": cuda.jit("void(int64[:])"),
    "text without result": cuda.jit("(int64[::1],)"),
    "several signatures": cuda.jit([void(int64[:]), void(float32[:])]),
    "tuple": cuda.jit((int64[:],)),
    "options": cuda.jit(fastmath=True, max_registers=32, opt=True, debug=False, lineinfo=True, cache=False),
    "bounds": cuda.jit(launch_bounds=(128, 2)),
}


@pytest.mark.parametrize("jit", FORMS.values(), ids=FORMS)
def test_forms_of_jit(jit):
    assert run(jit(bare.py_func)).tolist() == [1] * 32


def test_a_signature_converts_scalar_arguments():
    @cuda.jit(void(float64[:], float32))
    def keep(out, value):
        out[cuda.grid(1)] = value

    assert run(keep, 1, np.float64, args=(0.1,))[0] == np.float64(np.float32(0.1))


def test_of_several_signatures_the_best_is_taken():
    @cuda.jit(["(float64[::1], float32, float32)", "(float64[::1], float64, float64)"])
    def add(out, x, y):
        out[0] = x + y

    assert run(add, 1, np.float64, args=(np.float32(1), np.float32(2**-25)))[0] == 1.0
    assert run(add, 1, np.float64, args=(1.0, 2**-25))[0] == 1.0 + 2**-25


# --- launches -------------------------------------------------------------------------------------


def test_launch_forms():
    out = np.zeros(64, np.int64)
    stream = cuda.stream()
    device = cuda.to_device(out)
    bare[2, 32](device)
    bare[(2,), (32,)](device)
    bare[(2, 1), (32, 1)](device)
    bare[(2, 1, 1), (32, 1, 1)](device)
    bare[np.int64(2), np.int32(32)](device)
    bare[2, 32, stream](device)
    bare[2, 32, stream, 128](device)
    bare[2, 32, 0, 0](device)
    configured = bare.configure(2, 32, stream=stream, sharedmem=16)
    configured(device)
    assert device.copy_to_host().tolist() == [1] * 64
    bare[2, 32](out)
    assert out.tolist() == [1] * 64


REFUSED = {
    "other arrays": (lambda: run(cuda.jit(void(float32[:]))(bare.py_func), 4, np.int32), TypeError, ""),
    "no configuration": (lambda: bare(np.zeros(3, np.int64)), ValueError, r"\[.*grid|blockspergrid|configuration"),
    "no argument": (lambda: bare[1, 1](), TypeError, "argument"),
    "two arguments": (lambda: bare[1, 1](np.zeros(1, np.int64), 2), TypeError, "argument"),
    "a result": (lambda: kernel_of("out", "return out[0]")[1, 1](np.zeros(1)), TypeError, "return"),
}


@pytest.mark.parametrize("launch, error, says", REFUSED.values(), ids=REFUSED)
def test_a_launch_that_is_refused(launch, error, says):
    with pytest.raises(error if says == "argument" else (error, simt.SimtError), match=says):
        launch()


def test_default_arguments():
    add = kernel_of("out, amount=5", "out[cuda.grid(1)] = amount")
    assert run(add, 2).tolist() == [5, 5]
    assert run(add, 2, args=(6,)).tolist() == [6, 6]


# --- kernels of a few lines -----------------------------------------------------------------------

# The body of a kernel of `out`, i = cuda.grid(1) and t = cuda.threadIdx.x; block, grid, bytes of dynamic shared memory,
# and what out (int64; float64 where there is a fraction) holds afterwards.
SMALL = {
    "lane and warp size": ("""
        out[i] = cuda.laneid + 100 * cuda.warpsize
    """, 70, 1, 0, [t % 32 + 3200 for t in range(70)]),
    "each block has its own shared memory": ("""
        box = cuda.shared.array(1, int64)
        if t == 0:
            box[0] = cuda.blockIdx.x
        cuda.syncthreads()
        out[i] = box[0]
    """, 32, 4, 0, [i // 32 for i in range(128)]),
    "dynamic shared memory is one buffer": ("""
        floats = cuda.shared.array(shape=0, dtype=float32)
        ints = cuda.shared.array(0, int32)
        if t == 0:
            floats[2] = 1.0
            out[0] = ints[2]
            out[1] = floats.size
    """, 2, 1, 32, [np.float32(1).view(np.int32), 8]),
    "slices of dynamic shared memory": ("""
        buffer = cuda.shared.array(0, float32)
        first = buffer[:32]
        second = buffer[32:]
        first[t] = t
        second[t] = 100 + t
        cuda.syncthreads()
        out[t] = buffer[t] + second[31 - t]
    """, 32, 1, 256, [131] * 32),
    "shuffles keep to their warp": ("""
        out[t] = cuda.shfl_sync(FULL, t, 0)
    """, 96, 1, 0, [t // 32 * 32 for t in range(96)]),
    "votes among active lanes": ("""
        out[t] = 0
        if t < 16:
            out[t] = cuda.activemask()
            cuda.syncwarp(0xFFFF)
            out[t] += cuda.ballot_sync(0xFFFF, t % 2 == 0) << 32
    """, 32, 1, 0, [0xFFFF + (0x5555 << 32)] * 16 + [0] * 16),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_a_kernel_of_a_few_lines(name):
    body, block, grid, shared, expected = SMALL[name]
    text = "@cuda.jit\ndef kernel(out):\n    i = cuda.grid(1)\n    t = cuda.threadIdx.x\n" + textwrap.indent(
        textwrap.dedent(body), " " * 4
    )
    kernel = loaded(text, f"ipython-input-7-{name}", **globals())["kernel"]  # named as a notebook's cell is
    dtype = np.result_type(*expected, np.int64)
    assert run(kernel, len(expected), dtype, grid=grid, block=block, shared=shared).tolist() == expected


# --- memory spaces --------------------------------------------------------------------------------


def test_0d_arrays_and_len():
    out = np.zeros(2)
    kernel_of("x, y, out", "out[0] = x[()] + len(y)", "out[1] = y.size")[1, 1](np.array(2.5), np.zeros((3, 2)), out)
    assert out.tolist() == [5.5, 6]


# --- atomics --------------------------------------------------------------------------------------


def atomic(name):
    text = "def kernel(values, table, old):\n    i = cuda.grid(1)\n"
    return cuda.jit(loaded(f"{text}    old[i] = cuda.atomic.{name}(table, i % 3, values[i])\n", cuda=cuda)["kernel"])


INTEGERS = [np.int32, np.int64, np.uint32, np.uint64]
UNSIGNED = [np.uint32, np.uint64]
FLOATS = [np.float32, np.float64]

# Function, what one update does, dtypes.
ATOMICS = [
    ("add", lambda old, v: old + v, INTEGERS + FLOATS),
    ("sub", lambda old, v: old - v, [np.int32, np.int64, *FLOATS]),
    ("max", max, INTEGERS + FLOATS),
    ("min", min, INTEGERS + FLOATS),
    ("nanmax", max, INTEGERS + FLOATS),
    ("nanmin", min, INTEGERS + FLOATS),
    ("and_", lambda old, v: old & v, INTEGERS),
    ("or_", lambda old, v: old | v, INTEGERS),
    ("xor", lambda old, v: old ^ v, INTEGERS),
    ("inc", lambda old, v: 0 if old >= v else old + 1, UNSIGNED),
    ("dec", lambda old, v: v if old == 0 or old > v else old - 1, UNSIGNED),
    ("exch", lambda old, v: v, INTEGERS),
]


@pytest.mark.parametrize("name, operation, dtypes", ATOMICS, ids=[name for name, *_ in ATOMICS])
def test_atomics(name, operation, dtypes):
    kernel = atomic(name)
    for dtype in dtypes:
        values = (np.arange(96) * 37 % 50 + 1).astype(dtype)
        table = np.array([20, 30, 12], dtype)
        old = np.zeros(96, dtype)
        before = table.copy()
        kernel[3, 32](values, table, old)
        # Whatever the sequence, each slot's olds and its result are those of *one* sequence of the 32 updates.
        for slot in range(3):
            mine = list(range(slot, 96, 3))
            state, left = before[slot].item(), mine
            while left:
                nxt = [i for i in left if old[i].item() == state]
                assert nxt, (dtype, slot, state)
                # Among threads that saw the same value, one whose operand changes nothing goes first.
                nxt.sort(key=lambda i: operation(state, values[i].item()) != state)
                state = operation(state, values[nxt[0]].item())
                left = [i for i in left if i != nxt[0]]
            assert table[slot].item() == state, (dtype, slot)


# --- numbers --------------------------------------------------------------------------------------


def test_bits():
    for dtype, width in ((np.uint32, 32), (np.int32, 32), (np.uint64, 64), (np.int64, 64)):
        x = np.array([0, 1, 2, 0b10110, 255, 2**31 - 1, 7 << 20]).astype(dtype)
        out = np.zeros((4, len(x)), np.uint64)
        by_text("x", "cuda.popc(v)", "cuda.clz(v)", "cuda.ffs(v)", "cuda.brev(v)")[1, len(x)](x, out)
        for value, (popc, clz, ffs, brev) in zip(map(int, x), out.T, strict=True):
            text = format(value, f"0{width}b")
            assert popc == text.count("1")
            assert clz == width - value.bit_length()
            assert ffs == (value & -value).bit_length()
            turned = format(value % 2**32, "032b") if dtype is np.int64 else text  # of an int64 the lower half
            assert int(brev) % 2**width == int(turned[::-1], 2)


UNARY_MATH = {
    "acos": np.arccos, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh, "ceil": np.ceil,
    "cos": np.cos, "cosh": np.cosh, "degrees": np.degrees, "exp": np.exp, "expm1": np.expm1, "fabs": np.fabs,
    "floor": np.floor, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "radians": np.radians,
    "sin": np.sin, "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_math(dtype):
    x = np.linspace(0.05, 0.95, 16).astype(dtype)
    out = np.zeros((len(UNARY_MATH) + 1, 16), dtype)
    by_text("x", "math.acosh(v + 1)", *(f"math.{name}(v)" for name in UNARY_MATH))[1, 16](x, out)
    expected = {"acosh": np.arccosh(x + 1)} | {name: function(x) for name, function in UNARY_MATH.items()}
    for row, (name, values) in zip(out, expected.items(), strict=True):
        np.testing.assert_allclose(row, values, rtol=8 * np.finfo(dtype).eps, err_msg=name)


def test_math_of_two_arguments_and_predicates():
    x = np.array([1.0, -2.5, np.inf, np.nan, 5.5])
    y = np.array([2.0, -1.0, 1.5, 2.0, -3.0])
    out = np.zeros((9, 5))
    by_text(
        "x, y", "math.atan2(v, y[i])", "math.copysign(v, y[i])", "math.fmod(v, y[i])", "math.hypot(v, y[i])",
        "math.pow(abs(v), y[i])", "math.isnan(v) + 2 * math.isinf(v) + 4 * math.isfinite(v)",
        "math.erf(y[i]) + math.erfc(y[i])", "math.gamma(y[i] * y[i]) + math.lgamma(y[i] * y[i])", "math.ldexp(v, 3)",
    )[1, 5](x, y, out)  # fmt: skip
    with np.errstate(all="ignore"):
        expected = [np.arctan2(x, y), np.copysign(x, y), np.fmod(x, y), np.hypot(x, y), np.abs(x) ** y]
    np.testing.assert_allclose(out[:5], expected, rtol=1e-15)
    assert out[5].tolist() == [4, 4, 2, 1, 4]
    np.testing.assert_allclose(out[6], 1.0, rtol=1e-14)
    np.testing.assert_allclose(out[7], [math.gamma(v * v) + math.lgamma(v * v) for v in y], rtol=1e-13)
    np.testing.assert_allclose(out[8], x * 8)


def test_complex():
    z, out = np.array([1 + 1j, -2 - 3j, 0.5j]), np.zeros((5, 3), complex)
    product = "(v * (1 + 2j) + complex64(1j))"
    functions = "cmath.sqrt(v) + cmath.exp(v) + cmath.log(v) + cmath.sin(v) * cmath.phase(v)"
    parts = f"{product}.real", f"{product}.imag", f"abs({product})"
    by_text("x", functions, f"{product} / v + {product}.conjugate()", *parts)[1, 3](z, out)
    v = z * (1 + 2j) + 1j
    np.testing.assert_allclose(out[0], np.sqrt(z) + np.exp(z) + np.log(z) + np.sin(z) * np.angle(z), rtol=1e-13)
    np.testing.assert_allclose(out[1], v / z + v.conjugate(), rtol=1e-14)
    np.testing.assert_allclose(out[2:], [v.real, v.imag, abs(v)], rtol=1e-15)


# The ones that Numba-CUDA 0.30 compiles; language_rows.txt has those that it does not.
NUMPY_SCALARS = [
    "np.sin(v) + np.cos(v) + np.tan(v)",
    "np.log(v) + np.log2(v) + np.log10(v)",
    "np.arcsin(v) + np.arccos(v) + np.arctan(v) + np.arctan2(v, 2.0)",
    "np.sinh(v) + np.cosh(v) + np.tanh(v) + np.arcsinh(v) + np.arctanh(v) + np.arccosh(v + 1)",
    "np.hypot(v, 1.0) + np.deg2rad(v) + np.rad2deg(v) + np.radians(v) + np.degrees(v)",
    "np.minimum(v, 0.5) + np.maximum(v, 0.25) + np.fmin(v, 0.3) + np.fmax(v, 0.6)",
    "np.isnan(v) + 2 * np.less(v, 0.5) + 4 * np.logical_and(v > 0.2, v < 0.7)",
    "np.float32(v) + np.int32(v * 10) + np.true_divide(v, 3)",
    "np.bitwise_and(i, 3) + np.left_shift(i, 2) + np.invert(i) + np.bitwise_xor(i, 5)",
]


def test_numpy_scalar_functions():
    x, out = np.linspace(0.1, 0.9, 8), np.zeros((len(NUMPY_SCALARS), 8))
    by_text("x", *NUMPY_SCALARS)[1, 8](x, out)
    for text, row in zip(NUMPY_SCALARS, out, strict=True):
        expected = [eval(text, {"np": np, "v": v, "i": i}) for i, v in enumerate(x)]
        np.testing.assert_allclose(row, expected, rtol=1e-14, err_msg=text)


def test_types_of_cudas_own_functions():
    """Types are Numba-CUDA 0.30's: they decide the value once it is stored to something wider."""

    @cuda.jit
    def use(out):
        out[0] = cuda.ballot_sync(FULL, True)  # int32
        out[1] = cuda.activemask()  # uint32
        out[2] = cuda.match_any_sync(FULL, int32(1))  # int32
        out[3] = cuda.brev(int32(1))  # uint32
        out[4] = cuda.lanemask_lt() + (cuda.grid(1) + 2**40) * 0  # uint32
        out[5] = cuda.popc(int64(-1))
        out[6] = cuda.clz(int64(1))
        out[7] = cuda.any_sync(FULL, True) + cuda.all_sync(FULL, True)  # bool + bool is an int64

    with simt.using(simt.Options(hazards="off")):  # every thread writes the same
        out = np.zeros(8, np.int64)
        use[1, 32](out)
    assert out.tolist() == [-1, FULL, -1, 2**31, 2**31 - 1, 64, 63, 2]


# --- statements -----------------------------------------------------------------------------------


@only_simulated
def test_print(capsys):
    say = kernel_of("out", "i = cuda.grid(1)", "if i == 3:", '    print("thread", i, 1.5)', "out[i] = i")
    run(say, 8)
    assert capsys.readouterr().out.split() == ["thread", "3", "1.500000"]


# --- reduction ------------------------------------------------------------------------------------


def test_reduce_adds_in_the_sequence_of_numbas_reduction():
    x = np.random.default_rng(5).standard_normal(1000).astype(np.float32)

    def tree(values):
        values = list(values)
        width = len(values) // 2
        while width:
            values[:width] = [np.float32(a + b) for a, b in zip(values[:width], values[width : 2 * width], strict=True)]
            width //= 2
        return values[0]

    def block(values):
        warps = [tree(values[w : w + 32]) for w in range(0, 128, 32)]
        return np.float32(np.float32(warps[0] + warps[2]) + np.float32(warps[1] + warps[3]))

    def fold(values):
        total = values[0]
        for v in values[1:]:
            total = np.float32(total + v)
        return total

    # 7 blocks of 128, then a block of 104: three full warps and one of 8, then the 8 partial sums in sequence.
    rest = x[896:]
    partials = [block(x[b : b + 128]) for b in range(0, 896, 128)]
    partials[0] = np.float32(partials[0] + np.float32(0.5))
    partials.append(fold([tree(rest[w : w + 32]) for w in (0, 32, 64)] + [fold(rest[96:])]))
    assert cuda.reduce(lambda a, b: a + b)(x, init=0.5) == fold(partials)
