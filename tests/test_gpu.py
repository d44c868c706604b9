"""What only a real GPU can prove: stages right on it, the interpreter equal to it bit for bit, times that make sense.

Without a GPU every test here that needs one is skipped, and the skip says so. The kernels of the comparison, rows of
gpu_rows.txt, run on the interpreter in either mode.
"""

import math
import textwrap
from pathlib import Path

import edits
import numpy as np
import parts
import pytest
from numba import float32, int8, int16, int32, uint8, uint16, uint32

from dwlab import cuda, problems, simt
from dwlab.gpu import machine, provenance, target
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.problems import DepthwiseConv1d
from tests.loaded import loaded

needs_gpu = pytest.mark.skipif(target.mode != "gpu", reason=f"needs a GPU, and there is none: {target.reason}")

# ---------------------------------------------------------------------------------------------------- stages


@needs_gpu
@pytest.mark.parametrize("stage", registry.stages("depthwise1d"), ids=lambda stage: stage.id)
def test_each_stage_passes_the_judge_on_the_gpu(stage):
    anew = getattr(stage.kernel, "sized", False)  # compiled for each size, seconds each
    verdict = check(stage, most=parts.most(8) if anew else None)
    assert verdict.passed, str(verdict)


@needs_gpu
@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        pytest.param(stage, problem, id=f"{problem}-{stage.id}")
        for problem in (problems.SMALL, DepthwiseConv1d(3, 5, 97, 31, "same"), DepthwiseConv1d(3, 5, 97, 4, "causal"))
        for stage in registry.stages("depthwise1d")
        if not stage.why_not(problem)
    ],
)
def test_each_stage_gives_on_the_gpu_what_the_interpreter_gives(stage, problem):
    def run(kernel):
        arrays = problem.inputs(stage.path, seed=11)
        for name in problem.outputs(stage.path):
            arrays[name] = np.full(problem.shapes(stage.path)[name], np.nan, np.float32)
        # On the host, where the interpreter and the GPU alike find what the other wrote.
        shape = stage.workspace_shape(problem)
        workspace = np.full(shape, np.nan, np.float32) if shape else None
        stage.with_kernel(kernel).starter(problem, arrays, workspace)(0)
        return [arrays[name] for name in problem.outputs(stage.path)]

    kernel = stage.kernel_for(problem)
    for ours, gpus in zip(run(simt.jit(kernel.py_func)), run(kernel), strict=True):
        # The compiler may fuse multiplications and additions, so the last bits may differ: 2**-20 is sixteen of them.
        # Atomics of long sums come in any order as well.
        rtol = 2.0**-17 if stage.path == "weight_grad" else 2.0**-20
        np.testing.assert_allclose(gpus, ours, rtol=rtol, atol=2.0**-16)


@needs_gpu
@pytest.mark.parametrize("stage", registry.stages("depthwise1d"), ids=lambda stage: stage.id)
def test_no_stage_spills_to_local_memory(stage):
    arrays = problems.SMALL.inputs(stage.path)
    for name in problems.SMALL.outputs(stage.path):
        arrays[name] = np.zeros(problems.SMALL.shapes(stage.path)[name], np.float32)
    stage.run(problems.SMALL, arrays)
    assert set(stage.kernel_for(problems.SMALL).get_local_mem_per_thread().values()) == {0}


# ---------------------------------------------------------------------------------------------------- bit for bit

THREADS = 96
BLOCKS = 5
KNOWN = {"cuda": cuda, "math": math, "THREADS": THREADS}
KNOWN |= {str(one): one for one in (float32, int8, int16, int32, uint8, uint16, uint32)}
N = THREADS * BLOCKS
GPU_ROWS = edits.sections(Path(__file__).with_name("gpu_rows.txt"))
ROWS = {head.split("|")[0].strip(): (head, body) for head, body in GPU_ROWS}


def operands(out_dtype, in_dtype, size):
    """out, a and b: numbers over the whole range of their type, with its extremes and zero among them."""
    rng = np.random.default_rng(2026)
    made = []
    for _ in range(2):
        if np.issubdtype(in_dtype, np.floating):
            values = rng.normal(0, 100, size).astype(in_dtype)
        else:
            limits = np.iinfo(in_dtype)
            values = rng.integers(limits.min, limits.max, size, dtype=in_dtype, endpoint=True)
            flat = values.reshape(-1)
            flat[:6] = [0, 1, limits.max, limits.min, limits.max - 1, limits.min + 1]
        made.append(values)
    made[1] = np.roll(made[1], 3)
    return np.zeros(size, out_dtype), *made


def launch(jit, name):
    head, body = ROWS[name]
    _, types, how = [*map(str.strip, head.split("|")), ""][:3]
    out, *of = [np.dtype(one) for one in types.split()]
    how = {"size": N, "shared_bytes": 0, "grid": BLOCKS, "block": THREADS} | eval(f"dict({how})")
    text = "def kernel(out, a, b):\n    i = cuda.grid(1)\n" + textwrap.indent(body, "    ")
    given = operands(out, *of or [out], how["size"])
    jit(loaded(text, name, **KNOWN)["kernel"])[how["grid"], how["block"], 0, how["shared_bytes"]](*given)
    return given[0]


@pytest.mark.parametrize("name", ROWS)
def test_the_interpreter_runs_the_kernel_without_a_hazard(name):
    out = launch(simt.jit, name)
    assert np.count_nonzero(out) > 0


@needs_gpu
@pytest.mark.parametrize("name", ROWS)
def test_the_interpreter_has_the_gpus_bits(name):
    ours, gpus = launch(simt.jit, name), launch(cuda.jit, name)
    np.testing.assert_array_equal(ours, gpus)


@needs_gpu
def test_the_environment_names_the_gpu_its_driver_and_its_clocks():
    made = provenance.environment()
    assert made["gpu"] == machine.present().name
    assert made["driver"] and made["cuda"] and made["numba_cuda"]
    assert set(made["clocks"]) >= {"sm_mhz", "memory_mhz"}
