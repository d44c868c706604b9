"""Device functions as Numba-CUDA compiles them: several signatures, literals handed on, recursion, frozen globals."""

import cmath
import itertools
import pickle

import numpy as np
import pytest
from numba import float32, float64, int32, uint8
from numba.core import types as nt
from numba.core.registry import cpu_target

from dwlab import simt
from dwlab.simt import cuda
from dwlab.simt.types import cast, numba_type
from tests.loaded import loaded, program

pytestmark = pytest.mark.quick

NUMBERS = (np.int32(3), np.float32(2.75), np.uint8(7), np.int64(2**40), np.float64(0.1), np.int16(-2), np.bool_(True))


@pytest.mark.parametrize("types", [*itertools.permutations((int32, float32, float64, uint8), 2)])
def test_of_several_signatures_numba_chooses(types):
    """The oracle is Numba's own overload resolution."""

    @cuda.jit([one(one) for one in types], device=True)
    def same(x):
        return x

    for number in NUMBERS:

        @cuda.jit
        def use(out, x):
            out[0] = same(x)

        out = np.zeros(1)
        use[1, 1](out, number)
        context = cpu_target.typing_context
        cases = [nt.float64(one) for one in types]
        chosen = context.resolve_overload("same", cases, (numba_type(number.dtype),), {}, allow_ambiguous=True)
        taken = chosen.args[0]
        assert out[0] == float(cast(number, np.dtype(str(taken)))), (number, types)


def test_recursion_takes_a_signature():
    @cuda.jit("int64(int64)", device=True)
    def fib(n):
        if n < 2:
            return n
        return fib(n - 1) + fib(n - 2)

    @cuda.jit("int64(int64)", device=True)
    def depth(n):
        if n == 0:
            return 0
        return depth(n - 1) + 1

    @cuda.jit
    def use(out):
        i = cuda.grid(1)
        out[i] = fib(i) * 1000 + depth(i + 100)

    out = np.zeros(12, np.int64)
    use[1, 12](out)
    assert out.tolist() == [f * 1000 + 100 + i for i, f in enumerate((0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89))]


@cuda.jit(device=True)
def total_to(n):
    if n < 1:
        return n
    return n + total_to(n - 1)


def test_recursion_without_a_signature_takes_the_same_types():
    """Numba-CUDA finds the result's type on a path that has returned; n - 1 of an int32 is an int64."""

    @cuda.jit(device=True)
    def endless(n):
        return 0 if n == 0 else endless(n - 1)

    known, out = {"total_to": total_to, "endless": endless}, np.zeros(1)
    use, of_a_literal, uses_endless = (
        program([f"out[0] = {call}"], "out, x", **known)[0]
        for call in ("total_to(x[0])", "total_to(4)", "endless(x[0])")
    )
    use[1, 1](out, np.array([4]))
    assert out[0] == 10
    use[1, 1](out, np.array([4.5]))
    assert out[0] == 4.5 + 3.5 + 2.5 + 1.5 + 0.5
    with pytest.raises(simt.UnsupportedError, match="calls itself with arguments of other types; write a loop"):
        use[1, 1](out, np.array([4], np.int32))
    with pytest.raises(simt.UnsupportedError, match="a literal is one"):
        of_a_literal[1, 1](out, np.array([4]))
    with pytest.raises(simt.UnsupportedError, match="calls itself before any path has returned"):
        uses_endless[1, 1](out, np.array([4]))


def test_a_signature_compiles_at_once_and_freezes_globals():
    """Those of the device functions that it calls, too. Without one the first launch does."""
    text = """
import types
import numpy as np
factor, table, shape, module = 2, np.arange(3), (0, 5000), types.ModuleType("module")
module.factor = 100

@cuda.jit(device=True)
def helper(): return factor

@cuda.jit(device=True)
def other(): return 0

def use(out):
    out[0] = factor * helper() + table[1] + module.factor + shape[1]

eager, lazy = cuda.jit("void(int64[:])")(use), cuda.jit(use)
"""
    space = loaded(text, "frozen", cuda=cuda)
    space["factor"], space["table"][1] = 3, 10
    out = np.zeros(1, np.int64)
    space["eager"][1, 1](out)
    assert out[0] == 2 * 2 + 1 + 100 + 5000
    for _ in range(2):
        space["lazy"][1, 1](out)
        assert out[0] == 3 * 3 + 10 + 100 + 5000
        space["helper"], space["module"].factor = space["other"], 0
        space["factor"], space["table"][1], space["shape"] = 7, 0, (0, 6000)
    cuda.jit(space["use"])[1, 1](out)
    assert out[0] == 6000


def test_a_kernel_has_no_star():
    def many(*arrays):
        arrays[0][0] = 1

    with pytest.raises(simt.UnsupportedError, match=r"many takes \*arrays; a kernel's parameters have names"):
        cuda.jit(many)[1, 1](np.zeros(1))


PARTS = (0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan)


def test_complex_numbers_keep_their_parts():
    @cuda.jit
    def use(out, polar, parts):
        i = cuda.grid(1)
        out[i] = complex(parts[i, 0], parts[i, 1])
        polar[i] = cmath.rect(parts[i, 0], parts[i, 1])

    parts = np.array([*itertools.product(PARTS, PARTS)])
    out, polar = np.zeros((2, len(parts)), np.complex128)
    use[1, len(parts)](out, polar, parts)
    expected = np.array([complex(*one) for one in parts.tolist()])
    assert out.view(np.int64).tolist() == expected.view(np.int64).tolist(), "signs of zeros, too"

    def rect(radius, angle):
        """As Numba writes it (numba.cpython.cmathimpl)."""
        if not np.isfinite(angle) and (not radius or np.isinf(radius)):
            return complex(abs(radius)) if not radius else complex(radius, angle)
        turned = [f(angle) for f in (np.cos, np.sin)]
        return complex(*(v / radius if v == 0 and np.isinf(radius) else v * radius for v in turned))

    with np.errstate(all="ignore"):
        expected = np.array([rect(*one) for one in parts])
    np.testing.assert_array_equal(polar, expected)
    assert (np.signbit(polar.imag) == np.signbit(expected.imag))[~np.isnan(expected.imag)].all()


class Wrong(Exception):
    pass


def test_what_a_kernel_raises_is_caught_as_what_it_is():
    @cuda.jit
    def use(out, how):
        if how == 1:
            raise Wrong("on purpose")
        if how == 2:
            assert out[0] == 1
        out[0] = 1 // (how - 3)

    for how, kind, words in ((1, Wrong, "tid=.0, 0, 0. ctaid=.0, 0, 0.: on purpose"), (2, AssertionError, "failed")):
        with pytest.raises(kind, match=words) as found:
            use[1, 1](np.zeros(1), how)
        assert isinstance(found.value, simt.KernelError)
    with pytest.raises(ZeroDivisionError):
        cuda.jit(use.py_func, debug=True)[1, 1](np.zeros(1), 3)


def test_extensions_prepare_the_arguments():
    class Doubled:
        def prepare_args(self, ty, val, **given):
            return ty, 2 * val if isinstance(val, int) else val

    @cuda.jit(extensions=[Doubled()])
    def use(out, n):
        out[0] = n

    out = np.zeros(1)
    use[1, 1](out, 3)
    use.extensions.append(Doubled())
    assert out[0] == 6
    use[1, 1](out, 3)
    assert out[0] == 12


def test_a_kernel_for_some_types_alone():
    @cuda.jit
    def use(out, n):
        out[0] = n

    special = use.specialize(np.zeros(1), 3)
    assert special is use.specialize(np.zeros(2), 4) and len(use.specializations) == 1
    out = np.zeros(1)
    special[1, 1](out, 7.9)
    assert out[0] == 7
    with pytest.raises(RuntimeError, match="already specialized"):
        pickle.loads(pickle.dumps(special)).specialize(out, 3)
