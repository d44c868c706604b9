"""Programmatic dependent launch: which edges of a graph may change, how they do, and that the kernels wait."""

import re

import numpy as np
import pytest
from compiler import needs_compiler

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels import choices, registry
from dwlab.kernels.operations import convolution, ends, windows
from dwlab.kernels.parts import dependent_launch, ptx
from dwlab.kernels.parts.dependent_launch import early
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.target import cuda

CHAIN = [("stem", "a"), ("a", "b"), ("b", "pool"), ("pool", "c"), ("c", "copy"), ("copy", "d"), ("d", "e")]
KERNELS = {"stem", "a", "b", "pool", "c", "d", "e"}


def test_only_edges_before_kernels_that_wait_change():
    waiting = {"a", "b", "c", "d"}
    found = [CHAIN[number] for number in early(CHAIN, KERNELS, waiting)]
    assert found == [("stem", "a"), ("a", "b"), ("pool", "c")]  # not pool and e, which do not wait, nor d after a copy
    assert early(CHAIN, KERNELS, ()) == [] and early([], (), ()) == []
    # A node with several before it keeps its edges.
    edges = [("x", "left"), ("x", "right"), ("left", "sum"), ("right", "sum"), ("sum", "last")]
    nodes = {"x", "left", "right", "sum", "last"}
    assert [edges[number] for number in early(edges, nodes, nodes)] == [edges[0], edges[1], edges[4]]


# --- the kernels wait -------------------------------------------------------------------------------------------------


@cuda.jit
def doubled(x, y):
    ptx.grid_dependency_wait()
    i = cuda.grid(1)
    if i < y.size:
        y[i] = 2 * x[i]


def test_in_a_kernel_on_its_own_the_wait_does_nothing():
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    doubled[2, 32](x, y)
    np.testing.assert_array_equal(y, 2 * x)
    report = simt.xray(simt.jit(doubled.py_func) if target.mode == "gpu" else doubled, 2, 32, x, y)
    assert report.hazards == () and report.totals.global_load_requests == 2


def problems(layout, dtype):
    """A depthwise layer, a pointwise layer, and the pairs of the two that there are."""
    dw = DepthwiseConv2d(1, 32, 8, 8, 3, layout=layout, dtype=dtype, bias=True)
    pw = Pointwise(1, 32, 32, 8, 8, layout=layout, dtype=dtype, bias=True)
    return dw, pw, Fused(dw, pw), Fused(pw, dw), Fused(pw, pw)


EARLY = {
    "depthwise2d/forward/columns", "pointwise/forward/tensor", "pointwise/forward/split", "fused/dwpw/slide",
    "pointwise/forward/int8", "fused/dwpw/int8", "fused/pwdw/strips", "fused/pwpw/tensor", "depthwise2d/forward/int8",
    "pointwise/forward/wgmma", "pointwise/forward/direct",
    "pointwise/forward/tma",
}  # fmt: skip
"""Stages that ask for filters before they wait; others do so first of all."""
HOW = ("NCHW", "float16"), ("NHWC", "float32"), ("NHWC", "int8"), ("NHWC", "float16")
GIVEN = {(one.id, problem) for how in HOW for problem in problems(*how) for one in choices.takers(problem)}
"""(a stage's id, what it runs), of all that take one of `problems`."""
COMPILED = sorted((one for one in GIVEN if one[0] in EARLY), key=str)
FIRST = re.compile(r"\n +def kernel\(x, [^)]*\):\n +ptx.grid_dependency_wait\(\)\n")
WAITING = EARLY | {name for name, _ in GIVEN if FIRST.search(registry.stage(name).source())}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_the_stages_that_networks_prefer_wait(dtype):
    for problem in problems("NHWC", dtype):
        assert choices.takers(problem)[-1].id in WAITING, problem


GLOBAL = re.compile(r"(ld|st|atom|red|cp)\b(?!.*\.(shared|local|param|const)\b(?!.*\.global\b))")
NUMBERS = 7  # that a kernel takes for an array of one dimension, its address among them


def unwaited(text, arrays):
    """What a thread may do in global memory before its first wait, of PTX: {"load w", "store y", …}.

    arrays: the kernel's, in order. An address belongs to all arrays whose numbers it was computed from, on any way.
    """
    lines = [line.split("//")[0].strip(" \t;") for line in text[text.index("\n{") :].splitlines()]
    lines = [line for line in lines if line and not line.startswith(".")]
    at = {line[:-1]: number for number, line in enumerate(lines) if line.endswith(":")}
    found = {}  # register -> numbers of the parameters that it comes from
    for _ in range(2):  # the second time for what a loop carries
        for line in lines:
            operation, _, rest = re.sub(r"^@!?%p\d+\s+", "", line).partition("\t" if "\t" in line else " ")
            first, _, others = rest.strip().partition("}" if rest.strip().startswith("{") else ",")
            given = {int(number) for number in re.findall(r"_param_(\d+)", others)}
            if not operation.startswith("ld.") or given:  # what is loaded is no address
                given = given.union(*(found.get(one, set()) for one in re.findall(r"%\w+", others)))
                for one in re.findall(r"%\w+", first):
                    found[one] = found.get(one, set()) | given
    done, ways, seen = set(), [0], set()
    while ways:
        here = ways.pop()
        if here in seen or here >= len(lines):
            continue
        seen.add(here)
        line = re.sub(r"^@!?%p\d+\s+", "", lines[here])
        if line.startswith(dependent_launch.WAIT):
            continue
        assert not re.match(r"call|brx", line), f"a way that is not followed: {line}"
        jump = re.match(r"bra(?:\.uni)?\s+(\S+)", line)
        if jump:
            ways.append(at[jump[1]])
        if not re.match(r"bra|ret|exit", line) or lines[here].startswith("@"):
            ways.append(here + 1)
        if GLOBAL.match(line) and "[" in line:
            address = re.findall(r"\[([^\]]*)\]", line)[1 if line.startswith("cp") else 0]
            numbers = set().union(*(found.get(one, set()) for one in re.findall(r"%\w+", address)))
            what = "load" if re.match(r"ld|cp", line) else "store"
            done |= {f"{what} {arrays[one // NUMBERS]}" for one in numbers} or {f"{what} {address}"}
    return done


PTX = """.entry k(
.param .u64 k_param_4, .param .u64 k_param_11, .param .u64 k_param_18
)
{
	.reg .b64 %rd<9>;
	ld.param.u64 	%rd1, [k_param_4];
	ld.param.u64 	%rd2, [k_param_11];
	ld.param.u64 	%rd3, [k_param_18];
	cvta.to.global.u64 	%rd4, %rd1;
	add.s64 	%rd5, %rd2, 16;
	@%p1 bra 	$L2;
	cp.async.cg.shared.global [%r2], [%rd5], 16;
	ld.global.v2.f32 	{%f1, %f2}, [%rd5+8];
$L1:
	griddepcontrol.wait;
$L2:
	ld.global.f32 	%f3, [%rd4];
	st.global.f32 	[%rd3], %f3;
	st.shared.f32 	[%r1], %f1;
	ret;
}
"""


def test_a_way_around_the_wait_is_found():
    assert unwaited(PTX, "xwy") == {"load w", "load x", "store y"}
    assert unwaited(PTX.replace("bra \t$L2", "bra \t$L1"), "xwy") == {"load w"}
    assert unwaited(PTX.replace("@%p1 bra \t$L2", "griddepcontrol.wait"), "xwy") == set()
    early = PTX.replace("bra \t$L2", "bra \t$L1").replace("[%rd5], 16", "[%rd4], 16")
    assert unwaited(early, "xwy") == {"load x", "load w"}
    with pytest.raises(AssertionError, match="not followed"):
        unwaited(PTX.replace("add.s64", "call"), "xwy")


@needs_compiler
@pytest.mark.parametrize("name, problem", COMPILED, ids=lambda one: one if isinstance(one, str) else one.layout)
def test_before_the_wait_a_kernel_asks_for_filters_alone(name, problem):
    (made,) = inspect._compile([inspect._stage_job(registry.stage(name), problem)], (9, 0), "given")
    text = made.ptx
    assert "st.global" in text  # behind the wait, as what follows says: so some thread of each kernel waits
    before = unwaited(text, problem.slots(registry.stage(name).path))
    assert before and all(one[:6] in ("load w", "load b", "load m") for one in before), before


F4, I4 = "float32[::1]", "int32"
OPERATIONS = {  # kernel, its arrays, what follows them, what it may do before it waits
    "convolution": (convolution.kernel(3, 3, 2, 1, 40, "relu", "float32", 1), "xwby", [I4] * 4 + ["float32", I4], "wb"),
    "linear": (ends.linear(2, 264, "float16"), "xwby", [I4], "w"),
    "mean": (ends.mean("float32"), "xy", [I4, I4, "float32", "float32"], ""),
    "windows": (windows.kernel(3, 2, 1, "none", True, *["float16"] * 3), "xry", [I4] * 4 + ["float32"] * 5 + [I4], ""),
}


@needs_compiler
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_wait_before_they_touch_a_map(name):
    kernel, arrays, scalars, early = OPERATIONS[name]
    text = inspect.compile(kernel, signature=f"void({', '.join([F4] * len(arrays) + scalars)})", cc="9.0").ptx
    assert "st.global" in text
    assert unwaited(text, arrays) == {f"load {one}" for one in early}


def test_no_other_kernel_waits():
    assert {one.id for one in registry.stages() if "grid_dependency_wait" in one.source()} <= WAITING


@needs_compiler
@pytest.mark.parametrize("cc", ["7.5", "8.9"])
def test_where_no_kernel_starts_early_the_wait_is_no_instruction(cc):
    text = inspect.compile(doubled, signature="void(float32[::1], float32[::1])", cc=cc).ptx
    assert f".target sm_{cc.replace('.', '')}" in text and "griddepcontrol" not in text
