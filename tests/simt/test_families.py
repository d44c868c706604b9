"""Random lines of any construct around any kind of value: they run, or are refused in words of the language.

A row of language_rows.txt tries a construct with the values that somebody thought of. What nobody thought of ended in
an error of the interpreter's own ("'tuple' object has no attribute 'copy'"). Here constructs and values meet at random;
what comes out is not looked at.
"""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwlab import simt
from dwlab.kernels.parts import ptx
from dwlab.simt import cuda
from tests.simt import language_table as table

pytestmark = [pytest.mark.quick, pytest.mark.filterwarnings("ignore")]

VALUES = (
    "i", "n", "x[i]", "2", "2.5", "-1", "True", "(i % 2 == 0)", "(i, n)", "(x[i], 2.0)", "(1, (i, 2.0))", "()", "None",
    "'s'", "a", "a[i % 4]", "x", "x[:2]", "1j", "np.complex64(x[i])", "np.uint8(i)", "np.int64(n)", "np.float64(x[i])",
    "float16(x[i])", "r[i]", "one", "Point(i, 2)", "TAPS", "NESTED", "np.float32", "np.floating", "range(n)",
)  # fmt: skip
EACH = (
    "t = {0}", "out[i] = {0}", "out[i] = -{0}", "out[i] = not {0}", "out[i] = {0}[0]", "out[i] = {0}[i % 2]",
    "out[{0}] = 1", "out[i:i + 1] = {0}", "for v in {0}:\n    out[i] += 1", "while {0}:\n    break",
    "if {0}:\n    pass", "u, v = {0}", "for k, v in enumerate({0}):\n    out[i] += k",
    "for u, v in zip({0}, {1}):\n    out[i] += 1",
    "out[i] = {0}.x", "out[i] = {0}.shape[0]", "out[i] = {0}.real", "assert {0}", "out[i] = add2({0}, {1})",
    "s = cuda.shared.array(8, float32)\ns[i] = {0}\ncuda.syncthreads()", "return {0}",
    "t = {0} if i % 2 else {1}", "t = {0} if n > 2 else {1}", "t = {0}\nif i % 2:\n    t = {1}",
    "t = {0}\nfor k in range(i):\n    t = {1}", "t = {0}\nt += {1}", "t = {0}\nt *= {1}", "out[{0}] = {1}",
    "t = ({0}, {1})",
    *(f"out[i] = {{0}} {op} {{1}}" for op in "+ - * / // % ** @ & | ^ << >> < == != and or in is".split()),
)  # fmt: skip
NAMES = (
    *(f"math.{name}" for name in dir(math) if callable(getattr(math, name)) and name[0] != "_"),
    *(f"np.{name}" for name in dir(np) if callable(getattr(np, name)) and name[0].islower()),
    *(f"cuda.{name}" for name in dir(cuda) if name[0].islower() and name not in ("jit", "synchronize")),
    *(f"cuda.atomic.{name}" for name in "add sub max min cas exch and_ or_ xor inc dec nanmax nanmin".split()),
    *"len abs min max sum round int float bool complex pow divmod range enumerate zip reversed sorted any all".split(),
    *"isinstance slice tuple type chr ord hash iter next map filter str repr id getattr hasattr float16 int8".split(),
    *"x.sum x.mean x.copy x.astype x.fill x.item a.reshape a.ravel a.T.sum".split(),
    *(f"cuda.fp16.{name}" for name in "hadd hfma hsqrt hexp10 hmax".split()),
    "cuda.const.array_like",
)
INSTRUCTIONS = [name for name in vars(ptx) if getattr(vars(ptx)[name], "__module__", "").startswith(ptx.__name__)]
OWN = re.compile(r"\b[A-Z]\w+(Error|Exception): |Traceback")  # of Python's, in a refusal's words

value = st.sampled_from(VALUES)
named = st.builds("{}={}".format, st.sampled_from("array shared i index n groups words lanes".split()), value)
arguments = st.builds(
    lambda *given: ", ".join(sum(given, [])), st.lists(value, max_size=12), st.lists(named, max_size=2)
)
lines = st.one_of(
    st.builds(lambda form, a, b: form.format(a, b), st.sampled_from(EACH), value, value),
    st.builds(lambda f, given: f"v = {f}({', '.join(given)})", st.sampled_from(NAMES), st.lists(value, max_size=3)),
    st.builds("v = ptx.{}({})".format, st.sampled_from(INSTRUCTIONS), arguments),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(lines, min_size=1, max_size=2))
def test_what_does_not_run_is_refused_in_words_of_the_language(parts):
    try:
        [row] = table.rows("## runs | drawn\n" + "\n".join(parts) + "\n")
        compile(row.text, "drawn", "exec")
    except SyntaxError:
        return
    for options in ({}, {"out": np.float32, "trace": True, "hazards": "report"}):
        try:
            table.on_simt(row, **options)
        except simt.SimtError as error:
            assert not OWN.search(str(error)), str(error)


def test_each_function_without_arguments_is_refused_in_words_of_the_language():
    for name in NAMES:
        test_what_does_not_run_is_refused_in_words_of_the_language.hypothesis.inner_test([f"v = {name}()"])
