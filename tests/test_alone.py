"""Stages as files of their own: each that a lesson teaches runs on the interpreter, is short, and compiles."""

import ast
import linecache
import re

import pytest
from compiler import needs_compiler
from parts import part

from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels import alone, alone_main, registry
from dwlab.kernels.alone_fold import Folded
from dwlab.kernels.command import problem_of
from dwlab.kernels.registry import StageError

simulated = pytest.mark.skipif(target.mode != "simulated", reason="the files' kernels run on the interpreter here")
PTX = """
from dwlab.kernels.parts import ptx

def instruction(call, *row):
    return getattr(ptx, call.split("(")[0])
"""
TAUGHT = [one for one in registry.stages() if one.lesson]
HOPPER = [one for one in TAUGHT if any("wgmma" in name for name in one.needed("float16"))]
STAGES = [one for one in TAUGHT if one not in HOPPER]
# Lines: without an instruction of its own a stage changes one thing at a time; of a winner every part comes along.
MOST, MOST_OF_WINNERS = 150, 250
LONGER = {  # winners of more: two products or gradients in a kernel, or the way of int8 and sparse to a tensor core
    "sparse/forward/rows": 262, "pointwise/forward/int8": 272, "fused/dwpw/slide": 307, "fused/pwdw/strips": 317,
    "fused/pwpw/int8": 381, "fused/dwpw/int8": 399, "fused/pwdw/int8": 407,
}  # fmt: skip


def file_of(one, problem=None):
    return alone.text(one, problem or problem_of(one, None, "2,3,48,16,same"))


def executed(text, name, simulated=True):
    """What a file defines, with the interpreter's cuda in the place of numba's, and its instructions."""
    if simulated:
        text = re.sub(
            r"^from numba import cuda,? ?(.*)$", r"from dwlab.simt import cuda\nfrom numba import \1", text, flags=re.M
        )
        text = text.replace("from numba import \n", "")
        text = re.sub(r"^def instruction\(.*?^    return intrinsic\(typed\)\n", lambda _: PTX, text, flags=re.M | re.S)
        allowed = "\n\ndef allow(nbytes, *given):\n    kernel.allow_shared(given, nbytes)\n"
        text = text.replace(alone_main.ALLOW.rstrip("\n"), allowed.rstrip("\n"))
    assert "dwlab." not in text.replace("from dwlab.simt import cuda", "").replace(PTX, ""), name
    file, found = f"<{name} alone>", {"__name__": "alone"}
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), found)
    return found


@simulated
@pytest.mark.parametrize(
    "one", part("stages alone", STAGES, lambda one: [one.op, one.path], 0.1), ids=lambda one: one.id
)
def test_each_stage_that_a_lesson_teaches_runs_alone(one, capsys):
    text = file_of(one)
    executed(text, one.id)["main"]()  # which compares with NumPy
    assert "greatest difference" in capsys.readouterr().out
    lines = text.count("\n")
    assert lines == LONGER[one.id] if one.id in LONGER else lines <= (MOST_OF_WINNERS if one.needs else MOST), lines
    assert not [line for line in text.splitlines() if len(line) > 140 and not re.search(r"^\S+ = instruction", line)]


@simulated
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "one", [one for one in registry.stages("depthwise1d") if one not in TAUGHT], ids=lambda one: one.id
)
def test_rows_of_each_type_that_no_lesson_teaches_run_alone(one, dtype):
    if dtype in one.dtypes:
        executed(file_of(one, problem_of(one, None, f"2,3,40,5,same,{dtype}")), one.id)["main"]()


REST = [one for one in registry.stages() if one.op != "depthwise1d" and one not in TAUGHT]


@simulated
@pytest.mark.parametrize("one", [one for one in REST if one.name not in ("wgmma", "tma")], ids=lambda one: one.id)
def test_layers_that_no_lesson_teaches_run_alone(one):
    executed(file_of(one), one.id)["main"]()


@pytest.mark.parametrize("way", ["break", "continue"])
def test_a_loop_that_is_left_stays_one_and_a_short_one_is_written_out(way):
    loop = f"for k in range(1):\n    if x[k] > 0:\n        {way}\n    y[k] = 1"
    assert ast.unparse(Folded().visit(ast.parse(loop))) == loop
    assert ast.unparse(Folded().visit(ast.parse("for k in range(2):\n    y[k] = 1"))) == "y[0] = 1\ny[1] = 1"


@simulated
def test_a_wrong_kernel_is_told_by_its_file():
    text = file_of(registry.stage("depthwise1d/forward/shared"))
    with pytest.raises(AssertionError):
        executed(text.replace("acc += ", "acc -= "), "wrong")["main"]()


def test_what_is_more_than_a_line_of_ptx_and_problems_that_are_not_taken_are_refused():
    for one in HOPPER:
        with pytest.raises(StageError, match="which is more than a line of PTX"):
            file_of(one)
    with pytest.raises(StageError, match="does not take"):
        naive = registry.stage("pointwise/forward/naive")
        file_of(registry.stage("pointwise/forward/tensor"), problem_of(naive, "N=1 C=3 F=3 H=2 W=2", ""))


@needs_compiler
@pytest.mark.parametrize("one", STAGES, ids=lambda one: one.id)
def test_each_compiles_to_hardly_more_instructions_than_in_the_package(one):
    problem = problem_of(one, None, "2,3,48,16,same")
    job, how = inspect._stage_job(one, problem), one.launch(problem)
    kernel = executed(file_of(one), one.id, simulated=False)["kernel"]
    found = inspect.compile(kernel, signature=job.arguments, cc="9.0", block=how.block, shared_bytes=how.shared_bytes)
    here = inspect.compile(one, problem=problem, cc="9.0")
    lines = here.ptx.count("\n")  # 6: of pointwise/forward/split, whose limits are arguments in the file
    assert found.registers <= here.registers and found.ptx.count("\n") <= lines + max(6, lines // 100)
