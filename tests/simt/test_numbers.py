"""Numbers as a GPU has them: conversions, powers, divisions, minima, constants, atomics, complex numbers."""

import math

import numpy as np
import pytest
from numba import float32, int8, uint8

from dwlab import simt
from dwlab.simt import cuda, libdevice, types
from tests.loaded import program
from tests.simt import language_table

pytestmark = pytest.mark.quick

REALS = [0.0, 0.5, -0.5, 1.5, -1.5, 127.9, 128.0, 255.0, 256.0, 300.0, -129.0, 32767.5, 40000.0, 65536.0, -32769.0, 3e9,
         -3e9, 5e9, 1e19, -1e19, 2e19, 1e30, -1e30, math.inf, -math.inf, math.nan]  # fmt: skip
WHOLE = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def element_by_element(*lines, parameters="x, y"):
    """A kernel of these lines, with i = cuda.grid(1)."""
    return program(["i = cuda.grid(1)", *lines], parameters, int8=int8, uint8=uint8)[0]


def cvt(value, name, real):
    """cvt.rzi of PTX ISA 9.0: towards 0, to the ends of the type; 8 bits are the lower ones of 16.

    NaN is 0 if the source is no float64 and the integer no 64 bits, else 1 << (bits - 1).
    """
    ends = np.iinfo(name)
    wide = np.iinfo(name.replace("int8", "int16"))
    if math.isnan(value):
        whole = 2 ** (wide.bits - 1) if real == "float64" or wide.bits == 64 else 0
    elif math.isinf(value):
        whole = wide.max if value > 0 else wide.min
    else:
        whole = min(max(math.trunc(value), wide.min), wide.max)
    bits = ends.bits
    whole &= 2**bits - 1
    return whole - 2**bits if ends.min < 0 and whole >= 2 ** (bits - 1) else whole


@pytest.mark.parametrize("real", ["float32", "float64"])
@pytest.mark.parametrize("whole", WHOLE)
def test_a_float_becomes_an_integer_as_cvt_makes_it(real, whole):
    x = np.array(REALS, real)
    y = np.zeros(len(x), whole)
    element_by_element("y[i] = x[i]")[1, len(x)](x, y)
    assert y.tolist() == [cvt(float(v), whole, real) for v in x]
    for value in x:
        assert int(types.cast(value, np.dtype(whole))) == cvt(float(value), whole, real)


def test_integer_powers_go_through_float64():
    cases = [(3, 2), (3, 34), (7, 20), (2, 62), (2, 64), (-3, 3), (5, -1), (1, -7), (-1, -7), (-1, -8), (0, 0), (0, -1)]
    a, b = (np.array(column) for column in zip(*cases, strict=True))
    y = np.zeros(len(a), np.int64)
    element_by_element("y[i] = a[i] ** b[i]", parameters="a, b, y")[1, len(a)](a, b, y)
    wrapped = [(base**n + 2**63) % 2**64 - 2**63 if n >= 0 else 0 for base, n in cases]
    want = [int(np.float64(v)) if abs(v) < 2**63 - 512 else v for v in wrapped]
    want[7:10], want[11] = [1, -1, 1], -(2**63)
    assert y.tolist() == want and y[1] != 3**34  # which float64 does not hold


ATOMICS = {
    "add sub max min nanmax nanmin": "int32 uint32 int64 uint64 float32 float64",
    "and_ or_ xor exch cas": "int32 uint32 int64 uint64",
    "inc dec": "uint32 uint64",
}
DTYPES = [*WHOLE, "float16", "float32", "float64", "bool", "complex64"]


@pytest.mark.parametrize("names", ATOMICS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_atomics_of_the_types_that_numba_cuda_has(names, dtype):
    for name in names.split():
        text = f"def k(a, v):\n    cuda.atomic.{name}(a, 0, {'v, ' * (name == 'cas')}v)\n"
        kernel = cuda.jit(language_table.module(text, cuda, text)["k"])
        given = np.ones(2, dtype), np.dtype(dtype).type(1)
        if dtype in ATOMICS[names].split():
            kernel[1, 4](*given)
            continue
        with pytest.raises(simt.UnsupportedError, match=f"(?s)line .*no atomic.{name} of {dtype}, but of"):
            kernel[1, 4](*given)


def test_libdevices_roundings():
    of = {name: meaning for name, (_, meaning) in libdevice.FUNCTIONS.items()}
    third = np.float32(1), np.float32(3)
    low, near, high = (of[f"fdiv_{how}"](*third) for how in ("rd", "rn", "ru"))
    assert low < high and np.nextafter(low, np.float32(1)) == high and near in (low, high)
    assert of["fdiv_rz"](*third) == low and of["fdiv_rz"](-third[0], third[1]) == -low
    assert [of[f"float2int_{how}"](np.float32(-1.5)) for how in ("rn", "rz", "rd", "ru")] == [-2, -1, -2, -1]
    assert of["mulhi"](np.int32(2**30), np.int32(12)) == 3 and of["umulhi"](np.uint32(2**31), np.uint32(4)) == 2
    assert of["byte_perm"](np.int32(0x03020100), np.int32(0x07060504), np.int32(0x7531)) == 0x07050301
    assert of["clz"](np.int32(1)) == 31 and of["ffs"](np.int32(8)) == 4 and of["brev"](np.int32(1)) == -(2**31)
    assert of["roundf"](np.float32(2.5)) == 3 and of["nearbyintf"](np.float32(2.5)) == 2
    assert of["saturatef"](np.float32("nan")) == 0 and of["hiloint2double"](np.int32(0x3FF00000), np.int32(0)) == 1.0


def test_a_tiled_matmul_that_fills_up_with_a_literal_0():
    @cuda.jit
    def matmul(a, b, c):
        tile = cuda.shared.array((8, 8), float32)
        row, column = cuda.grid(2)
        total = 0.0
        for k in range(0, a.shape[1], 8):
            inside = row < a.shape[0] and k + cuda.threadIdx.y < a.shape[1]
            tile[cuda.threadIdx.x, cuda.threadIdx.y] = a[row, k + cuda.threadIdx.y] if inside else 0
            cuda.syncthreads()
            for j in range(8):
                total += tile[cuda.threadIdx.x, j] * b[k + j, column]
            cuda.syncthreads()
        c[row, column] = total

    a, b = (np.ones((8, 8), np.float32) for _ in range(2))
    report = simt.xray(matmul, (1, 1), (8, 8), a, b, a.copy())
    # The first stays a branch around a load, in a loop; as compiled: cvt.f64.f32, a move, cvt.rn.f32.f64.
    assert [line.text.strip()[:9] for line in report.float64_leaks] == ["tile[cuda", "total += "]
