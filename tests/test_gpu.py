"""What only a real GPU can prove: stages right on it, the interpreter equal to it bit for bit, times that make sense.

Without a GPU every test here that needs one is skipped, and the skip says so. The kernels of the comparison run on the
interpreter in either mode.
"""

import math

import numpy as np
import parts
import pytest
from numba import float32, int8, int16, int32, uint8, uint16, uint32

from dwlab import cuda, problems, simt
from dwlab.gpu import machine, provenance, target
from dwlab.judge.check import check
from dwlab.kernels import registry
from dwlab.problems import DepthwiseConv1d

needs_gpu = pytest.mark.skipif(target.mode != "gpu", reason=f"needs a GPU, and there is none: {target.reason}")

# ---------------------------------------------------------------------------------------------------- stages


@needs_gpu
@pytest.mark.parametrize("stage", registry.stages("depthwise1d"), ids=lambda stage: stage.id)
def test_each_stage_passes_the_judge_on_the_gpu(stage):
    anew = getattr(stage.kernel, "sized", False)  # compiled for each size, seconds each
    verdict = check(stage, most=parts.most(8) if anew else None)
    assert verdict.passed, str(verdict)


@needs_gpu
def test_the_judge_rejects_a_kernel_that_writes_one_element_less():
    @cuda.jit
    def short(x, w, y, shift):
        b, h, t = cuda.grid(3)
        if b < y.shape[0] and h < y.shape[1] and t < y.shape[2] - 1:
            acc = 0.0
            for j in range(w.shape[1]):
                s = t + shift - j
                if s >= 0 and s < x.shape[2]:
                    acc += w[h, j] * x[b, h, s]
            y[b, h, t] = acc

    assert not check(registry.stage("depthwise1d/forward/naive").with_kernel(short)).passed


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
# Integer kernels: out, then two arrays of numbers by chance. What they compute is written down nowhere but here; the
# GPU's bits are the reference, and the interpreter must have the same.

THREADS = 96
BLOCKS = 5
N = THREADS * BLOCKS
KERNELS = {}


def kernel(dtype, operands=None, *, size=N, shared_bytes=0, grid=BLOCKS, block=THREADS):
    """Registers a kernel: dtype of out, dtype of its two operands (the same if None), elements, launch."""

    def take(function):
        KERNELS[function.__name__] = (function, dtype, operands or dtype, size, shared_bytes, grid, block)
        return function

    return take


@kernel(np.int32)
def wraps_32(out, a, b):
    i = cuda.grid(1)
    out[i] = int32(int32(a[i] * b[i]) + int32(a[i] << int32(3))) ^ int32(b[i] >> int32(5))


@kernel(np.int64)
def wraps_64(out, a, b):
    i = cuda.grid(1)
    out[i] = (a[i] * b[i]) ^ (a[i] - (b[i] << 11)) ^ (b[i] >> 17)


@kernel(np.int64, np.int32)
def promotes(out, a, b):
    i = cuda.grid(1)
    out[i] = a[i] * b[i] + a[i] * 3 - (b[i] + i)


@kernel(np.int32)
def narrows(out, a, b):
    i = cuda.grid(1)
    out[i] = int32(int8(a[i])) + int32(int16(b[i])) + int32(uint8(a[i] >> 3)) + int32(uint16(b[i] >> 9))


@kernel(np.int32)
def divides(out, a, b):
    i = cuda.grid(1)
    divisor = (b[i] & 1023) - 512
    if divisor == 0:
        divisor = 7
    out[i] = a[i] // divisor + a[i] % divisor


@kernel(np.int32)
def compares(out, a, b):
    i = cuda.grid(1)
    x, y = a[i], b[i]
    out[i] = int32(x < y) + 2 * int32(x <= y) + 4 * int32(x == y) + 8 * int32(not x > y) + 16 * int32(0 < x < y)
    out[i] += int32(min(x, y) ^ max(x, y)) + abs(int32(x >> 2))


@kernel(np.uint32)
def counts_bits(out, a, b):
    i = cuda.grid(1)
    out[i] = uint32(cuda.popc(a[i])) + uint32(cuda.clz(b[i])) * uint32(64) + uint32(cuda.ffs(a[i])) * uint32(4096)
    out[i] ^= cuda.brev(b[i])


@kernel(np.int32)
def branches(out, a, b):
    i = cuda.grid(1)
    total = int32(0)
    n = int32(a[i] & 63)
    for j in range(n):
        if j % 7 == 3:
            continue
        if j > 50:
            break
        total += int32(j) * int32(b[i] & 255)
    else:
        total -= int32(1)
    while total > 1000:
        total = total // int32(3) - int32(1)
    out[i] = total if i % 2 else -total


@kernel(np.int32)
def shuffles(out, a, b):
    i = cuda.grid(1)
    x = a[i]
    x += cuda.shfl_xor_sync(0xFFFFFFFF, x, 5)
    x ^= cuda.shfl_down_sync(0xFFFFFFFF, b[i], 3)
    x += cuda.shfl_up_sync(0xFFFFFFFF, x, 7)
    x ^= cuda.shfl_sync(0xFFFFFFFF, x, 11)
    out[i] = x


@kernel(np.uint32)
def votes(out, a, b):
    i = cuda.grid(1)
    odd = a[i] & uint32(1)
    out[i] = uint32(cuda.ballot_sync(0xFFFFFFFF, odd == uint32(1)))
    out[i] ^= uint32(cuda.any_sync(0xFFFFFFFF, b[i] > uint32(4_000_000_000)))
    out[i] += uint32(cuda.all_sync(0xFFFFFFFF, b[i] > uint32(10)))
    out[i] += uint32(cuda.eq_sync(0xFFFFFFFF, odd == uint32(1)))


@kernel(np.uint32)
def matches(out, a, b):
    i = cuda.grid(1)
    key = int32(a[i] & uint32(3))
    out[i] = uint32(cuda.match_any_sync(0xFFFFFFFF, key))
    same, every = cuda.match_all_sync(0xFFFFFFFF, key)
    out[i] ^= uint32(same) + uint32(every)


@kernel(np.int32, shared_bytes=THREADS * 4)
def scans_in_dynamic_shared(out, a, b):
    tile = cuda.shared.array(0, int32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    tile[t] = a[i]
    cuda.syncthreads()
    step = 1
    while step < THREADS:
        add = tile[t - step] if t >= step else int32(0)
        cuda.syncthreads()
        tile[t] += add
        cuda.syncthreads()
        step *= 2
    out[i] = tile[t] ^ b[i]


@kernel(np.int32)
def block_votes(out, a, b):
    i = cuda.grid(1)
    odd, positive = a[i] & 1, int32(b[i] > 0)
    out[i] = cuda.syncthreads_count(odd) + 1000 * cuda.syncthreads_and(positive) + 2000 * cuda.syncthreads_or(positive)


@kernel(np.int32, size=16)
def atomic_extremes(out, a, b):
    i = cuda.grid(1)
    cuda.atomic.max(out, 0, a[i % 16] ^ int32(i))
    cuda.atomic.min(out, 1, b[i % 16] ^ int32(i))
    cuda.atomic.sub(out, 2, int32(i))
    cuda.atomic.or_(out, 3, a[i % 16] & int32(i))
    cuda.atomic.and_(out, 4, b[i % 16] | int32(i))
    cuda.atomic.xor(out, 5, a[i % 16] + int32(i))


@kernel(np.uint32, size=16)
def atomic_counters(out, a, b):
    cuda.atomic.inc(out, 0, uint32(100))
    cuda.atomic.dec(out, 1, uint32(77))


@kernel(np.int32, size=(6, 7, 8), grid=(3, 4, 2), block=(2, 2, 4))
def three_dimensions(out, a, b):
    i, j, k = cuda.grid(3)
    if i < 6 and j < 7 and k < 8:
        out[i, j, k] = a[i, j, k] ^ b[5 - i, 6 - j, 7 - k]


@kernel(np.int32, np.float32)
def truncates_floats(out, a, b):
    i = cuda.grid(1)
    out[i] = int32(a[i] * float32(1000)) + int32(math.floor(b[i])) * 3 + int32(math.ceil(b[i])) * 5


@kernel(np.float32, np.float32)
def rounds_once(out, a, b):
    # One rounding only, so there is one right answer: nothing here can be fused.
    i = cuda.grid(1)
    if i % 4 == 0:
        out[i] = a[i] + b[i]
    elif i % 4 == 1:
        out[i] = a[i] * b[i]
    elif i % 4 == 2:
        out[i] = cuda.fma(a[i], b[i], a[i])
    else:
        out[i] = math.sqrt(abs(a[i]))


@kernel(np.float32, np.float32)
def accumulates_in_float64(out, a, b):
    i = cuda.grid(1)
    acc = 0.0
    for j in range(8):
        acc += a[(i + j) % a.shape[0]]
    out[i] = acc


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
    function, out_dtype, in_dtype, size, shared_bytes, grid, block = KERNELS[name]
    out, a, b = operands(out_dtype, in_dtype, size)
    jit(function)[grid, block, 0, shared_bytes](out, a, b)
    return out


@pytest.mark.parametrize("name", KERNELS)
def test_the_interpreter_runs_the_kernel_without_a_hazard(name):
    out = launch(simt.jit, name)
    assert np.count_nonzero(out) > 0


@needs_gpu
@pytest.mark.parametrize("name", KERNELS)
def test_the_interpreter_has_the_gpus_bits(name):
    ours, gpus = launch(simt.jit, name), launch(cuda.jit, name)
    np.testing.assert_array_equal(ours, gpus)


@needs_gpu
def test_the_environment_names_the_gpu_its_driver_and_its_clocks():
    made = provenance.environment()
    assert made["gpu"] == machine.present().name
    assert made["driver"] and made["cuda"] and made["numba_cuda"]
    assert set(made["clocks"]) >= {"sm_mhz", "memory_mhz"}
