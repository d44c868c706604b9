"""dwlab.simt.steps: the steps add up to what the X-ray counts, and leave what the kernel computes."""

import numpy as np
import pytest
from numba import float32

from dwlab import cuda, stages
from dwlab.kernels.registry import words
from dwlab.problems import DepthwiseConv1d
from dwlab.simt import SimtError, UnsupportedError, xray
from dwlab.simt.report import Pattern
from dwlab.simt.steps import Steps, record
from dwlab.simt.views import counts
from tests.loaded import kernel_of

EVERYTHING = {"blocks": 1000, "warps": 32, "most": 100_000}


def cost(steps: Steps, space: str) -> tuple[int, int, int]:
    """Sectors, wavefronts and requests of all that was recorded, by the picture's arithmetic."""
    found = np.zeros(3, int)
    for one in (step for warp in steps.warps.values() for step in warp):
        for touch in one.touches:
            memory = steps.memories[touch.memory]
            if memory.space == space:
                at = tuple(None if byte is None else memory.start + byte for byte in touch.at)
                n = counts(Pattern(space, touch.width, at, "", 0, touch.kind))
                found += n.sectors, n.wavefronts, 1
    return tuple(int(one) for one in found)


@pytest.mark.parametrize("one", [s for s in stages("depthwise1d") if s.path == "forward"], ids=lambda s: s.name)
def test_the_steps_of_a_stage_are_what_its_xray_counts_and_leave_its_output(one):
    problem = DepthwiseConv1d(2, 3, 40, 5)
    launch = one.launch(problem)
    given = problem.inputs("forward", seed=1)
    y = np.zeros(problem.shapes("forward")["y"], np.float32)
    kernel = one.kernel.for_problem(problem) if hasattr(one.kernel, "for_problem") else one.kernel
    seen = (words(problem, name, array, one.view) for name, array in {**given, "y": y}.items())
    how = (kernel, launch.grid, launch.block, *seen, *launch.scalars)
    report = xray(*how, shared_bytes=launch.shared_bytes)
    steps = record(*how, shared_bytes=launch.shared_bytes, **EVERYTHING)
    assert not steps.cut
    assert cost(steps, "global")[0] == report.totals.sectors
    assert cost(steps, "shared")[1] == report.totals.shared_wavefronts
    assert sum(cost(steps, space)[2] for space in ("global", "shared")) == (
        report.totals.requests + report.totals.shared_requests
    )
    place = next(i for i, memory in enumerate(steps.memories) if memory.name == "y")
    if steps.before.get(place):
        arrays = {name: cuda.to_device(values) for name, values in {**given, "y": y}.items()}
        one.run(problem, arrays)
        wanted = arrays["y"].copy_to_host().reshape(-1)
        np.testing.assert_allclose(steps.holds(place, 0, 10**9), wanted, rtol=1e-3)


@cuda.jit(device=True)
def doubled(v):
    r = v + v
    return r


@cuda.jit
def small(x, y):
    """A note, which is no step."""
    t = cuda.shared.array(64, float32)
    i = cuda.grid(1)
    s = cuda.threadIdx.x
    t[s] = x[i] if i < x.size else float32(0)
    cuda.syncthreads()
    total = float32(0)
    for j in range(2):
        if s >= j:
            total += t[s - j]
        else:
            total += float32(100)
    if i < y.size:
        y[i] = doubled(total)


def lines(steps, block=0, warp=0):
    """The text of each step of a warp."""
    return [steps.lines[one.file, one.line].strip() for one in steps.warps[block, warp]]


def test_a_warps_steps_are_its_statements_and_shared_memory_is_a_blocks_own():
    x = np.arange(100, dtype=np.float32)
    steps = record(small, 2, 64, x, np.zeros(100, np.float32))
    assert list(steps.warps) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert lines(steps) == [
        "t = cuda.shared.array(64, float32)", "i = cuda.grid(1)", "s = cuda.threadIdx.x",
        "t[s] = x[i] if i < x.size else float32(0)", "cuda.syncthreads()", "total = float32(0)",
        "for j in range(2):", "if s >= j:", "total += t[s - j]",
        "for j in range(2):", "if s >= j:", "total += t[s - j]", "total += float32(100)",
        "if i < y.size:", "y[i] = doubled(total)", "r = v + v", "return r", "y[i] = doubled(total)",
    ]  # fmt: skip
    steps_of = steps.warps[0, 0]
    assert [f"{one.lanes:08x}" for one in steps_of[11:13]] == ["fffffffe", "00000001"]
    assert steps_of[12].sets["total"] == (100.0, *[None] * 31)
    load, store = steps_of[3].touches
    assert (load.kind, store.kind) == ("load", "store") and load.at == store.at == tuple(range(0, 128, 4))
    last = steps.warps[1, 1]
    assert f"{last[-1].lanes:x}" == "f"  # elements 96 to 99
    assert [one.sets["j"][0] for one in last if "j" in one.sets] == [0, 1]
    place = next(i for i, memory in enumerate(steps.memories) if memory.space == "shared")
    store = next(one.moment for one in steps.warps[0, 0] if any(t.kind == "store" for t in one.touches))
    assert steps.holds(place, 0, store - 1) == [None] * 64
    assert steps.holds(place, 0, store) == list(range(64))
    assert steps.holds(place, 1, store) == [*range(64, 100), *[0.0] * 28]
    x_at = next(i for i, memory in enumerate(steps.memories) if memory.name == "x")
    assert steps.holds(x_at, 0, 0) == list(range(100))


def test_the_record_of_some_blocks_and_warps_is_theirs_alone():
    x = np.arange(640, dtype=np.float32)
    whole = record(small, 10, 64, x, np.zeros(640, np.float32), blocks=10, warps=2)
    some = record(small, 10, 64, x, np.zeros(640, np.float32), blocks=1, warps=1)
    assert list(some.warps) == [(0, 0)] and some.warps[0, 0] == whole.warps[0, 0]
    with pytest.raises(ValueError, match="warps=0: record at least one"):
        record(small, 1, 64, x, x, warps=0)


def test_a_long_record_is_cut_and_says_so():
    long = kernel_of("y", "for _ in range(1000):", "    y[0] = float32(1)")
    steps = record(long, 1, 1, np.zeros(1, np.float32), most=50)
    assert steps.cut == "the first 50 statements" and len(steps.warps[0, 0]) == 50


def test_an_error_ends_the_record_where_it_is_and_one_before_the_first_step_is_raised():
    beyond = kernel_of("y", "i = cuda.threadIdx.x", "y[i] = float32(i)")
    steps = record(beyond, 1, 32, np.zeros(8, np.float32))
    assert "out of bounds" in steps.cut and len(steps.warps[0, 0]) == 2
    with pytest.raises(SimtError):
        record(beyond, 1, 2048, np.zeros(8, np.float32))
    with pytest.raises(TypeError):
        record(beyond, 1, 32)
    with pytest.raises(UnsupportedError):
        record(kernel_of("y", "y[0] = [1, 2]"), 1, 1, np.zeros(8, np.float32), most=1).cut or pytest.fail("it ran")


def test_atomics_waiting_blocks_and_arguments_that_stay():
    handed_on = kernel_of(
        "flag, y", "t = cuda.threadIdx.x", "if cuda.blockIdx.x == 1:", "    if t == 0:",
        "        while cuda.atomic.add(flag, 0, 0) == 0:", "            pass", "    cuda.syncthreads()",
        "    y[t] = flag[0]", "elif t == 0:", "    cuda.atomic.add(flag, 0, 7)",
    )  # fmt: skip
    flag, y = np.zeros(1, np.int32), np.zeros(32, np.int32)
    steps = record(handed_on, 2, 32, flag, y, **EVERYTHING)
    assert steps.holds(0, 0, 10**9) == [7] and steps.holds(1, 0, 10**9) == [7] * 32
    assert not flag.any() and not y.any()
    assert any(touch.kind == "atomic" for one in steps.warps[0, 0] for touch in one.touches)


def test_an_array_that_is_large_is_not_copied_and_still_named():
    steps = record(kernel_of("x, y", "y[0] = x[5000]"), 1, 1, np.ones(6000, np.float32), np.zeros(1, np.int32))
    assert steps.before.keys() == {1} and steps.holds(0, 0, 9) == [] and steps.holds(1, 0, 9) == [1]
    assert steps.memories[0].shape == (6000,)


def test_numbers_are_those_of_json():
    lines = "f[0] = float32(1) / float32(3)", "f[1] = f[1]", "b[0] = not b[0]", "c[0] = c[0] * c[0]"
    odd = kernel_of("f, b, c", *lines, "k = int32(3)", "f[2] = float32(k)")
    f = np.array([0, np.nan, np.inf], np.float32)
    steps = record(odd, 1, 1, f, np.zeros(1, np.bool_), np.array([1j], np.complex64))
    assert steps.holds(0, 0, 10**9) == [0.3333, "nan", 3.0]
    assert steps.holds(1, 0, 10**9) == [True]
    assert steps.holds(2, 0, 10**9) == ["(-1+0j)"]
