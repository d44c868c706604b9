"""Accesses of a line in compiled code, beside the counted ones."""

import numpy as np
import pytest
from numba import float32

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.simt import cuda
from tests.compiler import needs_compiler

PTX = """
	.loc	1 7 3
	ld.param.u64 	%rd1, [k_param_0];
	ld.global.f32 	%f1, [%rd1];
$L__BB0_2:
	.loc	1 9 3
	@%p1 ld.shared.v4.f32 	{%f1, %f2, %f3, %f4}, [%rd2];
	.loc	1 10 3
	st.global.f32 	[%rd1], %f1;
	atom.global.add.f32 	%f2, [%rd1], %f1;
	@%p2 bra 	$L__BB0_2;
	.loc	1 0 0
	red.global.add.f32 	[%rd1], %f1;
	.file	1 "/somewhere/kernels.py"
"""


@cuda.jit
def sums(x, y, n):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] * x[i] + x[i]
        total = float32(0)
        for j in range(n):
            total += x[i] * y[j]
        y[i] = total


def test_accesses_are_found_by_line():
    found = inspect.accesses_by_line(PTX)
    assert found["kernels.py", 7] == inspect.LineAccesses(loads=1)
    assert found["kernels.py", 9] == inspect.LineAccesses(loads=1, looped=1)
    assert found["kernels.py", 10] == inspect.LineAccesses(stores=1, atomics=1, looped=2)
    assert found["kernels.py", 0] == inspect.LineAccesses(atomics=1)


@needs_compiler
def test_merged_loads_and_loads_out_of_a_loop_are_named():
    x = np.ones(32, np.float32)
    options = simt.Options(hazards="off")
    report = simt.xray(sums, 1, 32, x, x.copy(), 3, options=options, compiled=inspect.accesses)
    lines = {next(line.text for line in report.lines if line.line == one.line).strip(): one
             for one in report.compiled if one.line}  # fmt: skip
    square, product, last = (lines[text] for text in (
        "y[i] = x[i] * x[i] + x[i]", "total += x[i] * y[j]", "y[i] = total"))  # fmt: skip
    assert (square.loads, square.counted_loads, square.stores) == (1, 3, 1) and "merged" in square.note
    assert product.counted_loads == 2 and product.loads >= 1  # x[i] is taken out of the loop, the loop unrolled
    assert (last.stores, last.counted_stores, last.note) == (1, 1, "")
    assert "compiled: loads 1 (counted 3)" in str(report) and report.to_dict()["compiled"]


def test_without_a_compiler_it_is_said_what_to_install():
    if not inspect.missing():
        pytest.skip("there is a compiler here: this is about machines without")
    x = np.ones(32, np.float32)
    with pytest.raises(inspect.NoCompilerError, match="pip install"):
        simt.xray(sums, 1, 32, x, x.copy(), 3, options=simt.Options(hazards="off"), compiled=inspect.accesses)
