"""Dynamic shared memory: views of one memory, launches above 48 KiB, and what asks the driver for them."""

import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from numba import float32, int8, int32, uint32

from dwlab import simt
from dwlab.gpu import driver, target
from dwlab.kernels.parts import ptx
from dwlab.kernels.registry import Launch, enqueue
from dwlab.target import cuda
from tests.loaded import program

KIB = 1024
HIGH = 100 * KIB  # more than a launch gets unasked, and than compute capability 8.6 gives at all


@cuda.jit
def turned(x, y):
    """y = x backwards, all of it through dynamic shared memory at once."""
    tile = cuda.shared.array(0, float32, 16)
    n = uint32(x.size)
    i = uint32(4 * cuda.threadIdx.x)
    while i < n:
        ptx.copy4_async(tile, i, x, i)
        i = uint32(i + 4 * cuda.blockDim.x)
    ptx.commit()
    ptx.wait(0)
    cuda.syncthreads()
    i = uint32(4 * cuda.threadIdx.x)
    while i < n:
        a, b, c, d = ptx.load4_shared(tile, n - 4 - i)
        ptx.store4(y, i, d, c, b, a)
        i = uint32(i + 4 * cuda.blockDim.x)


def row(nbytes):
    return np.arange(nbytes // 4, dtype=np.float32)


@pytest.mark.parametrize("nbytes", [4 * KIB, 48 * KIB, 48 * KIB + 16, HIGH - KIB])
def test_a_stage_s_launch_takes_more_than_48_kib(nbytes):
    if target.mode == "gpu" and nbytes > cuda.get_current_device().MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        pytest.skip(f"this GPU gives a block less than {nbytes:,} bytes of shared memory")
    x = row(nbytes)
    for given in (x, x.reshape(-1, 4)):  # a compiled form for each: the second one must be allowed too
        y = np.zeros(len(x), np.float32)
        enqueue(Launch(1, 128, shared_bytes=nbytes), turned, (given, y), y)
        np.testing.assert_array_equal(y, x[::-1])


@cuda.jit
def as_bytes(x, y):
    """Written as words, read as bytes and as whole numbers."""
    words = cuda.shared.array(0, float32, 16)
    small = cuda.shared.array(0, int8)
    whole = cuda.shared.array(0, int32)
    i = uint32(cuda.threadIdx.x)
    ptx.copy4_async(words, 4 * i, x, 4 * i)
    ptx.commit()
    ptx.wait(0)
    cuda.syncwarp()
    y[i] = small[uint32(16 * (31 - i))] + 1000 * (whole[4 * i] == ptx.word_of_float(words[4 * i]))


def test_two_types_may_view_the_same_dynamic_memory():
    numbers = np.arange(512).astype(np.int8)
    y = np.zeros(32, np.int32)
    as_bytes[1, 32, 0, 512](numbers.view(np.float32), y)
    np.testing.assert_array_equal(y, numbers[496 - 16 * np.arange(32)].astype(int) + 1000)
    report = simt.xray(as_bytes, 1, 32, numbers.view(np.float32), y, shared_bytes=512)
    assert report.hazards == ()
    assert {a.array for a in report.accesses if a.space == "shared"} == {"words", "small", "whole"}


def test_a_race_between_two_views_is_found():
    lines = ["words = cuda.shared.array(0, float32, 16)", "small = cuda.shared.array(0, int8)"]
    lines += ["i = cuda.threadIdx.x", "words[i] = 1", "y[i] = small[4 * (31 - i) + 3]"]
    racing, _ = program(lines, "y", float32=float32, int8=int8)
    (one,) = simt.xray(racing, 1, 32, np.zeros(32, np.int32), shared_bytes=128).hazards
    assert one.kind == "race" and one.array == "small" and "cuda.syncwarp()" in one.message


def test_the_end_of_dynamic_memory_is_the_launch_s():
    lines = ["tile = cuda.shared.array(0, float32, 16)", "i = cuda.threadIdx.x"]
    lines += ["ptx.store4_shared(tile, 4 * i, float32(1), float32(2), float32(3), float32(4))", "cuda.syncwarp()"]
    matrices, _ = program([*lines, "y[i] = ptx.ldmatrix_x4(tile, 4 * i)[0]"], "y", float32=float32, ptx=ptx)
    y = np.zeros(32, np.float32)
    assert simt.xray(matrices, 1, 32, y, shared_bytes=512).hazards == ()
    found = simt.xray(matrices, 1, 32, y, shared_bytes=508).hazards
    assert {one.kind for one in found} == {"out of bounds"} and "(size 127) in thread 31" in found[0].message


NAMES = """
from numba import cuda
from numba.cuda.cudadrv import driver
from dwlab.gpu.driver import _allowed
kernel = cuda.jit(lambda x: None)
assert hasattr(kernel, "overloads") and kernel.typeof_pyval(1.0) is not None
_allowed.setdefault(kernel, {})
assert driver.binding.cuKernelSetAttribute
print(int(driver.binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES))
"""


@pytest.mark.skipif(importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed here")
def test_numba_cuda_has_what_is_asked_of_it():
    done = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "8", done.stderr  # CUfunction_attribute, cuda.h


class Kernel:
    """What allow_shared sees of a kernel of numba.cuda: compiled for each set of argument types, once."""

    __name__ = "wide"

    def __init__(self, static=0):
        self.overloads, self.static = {}, static

    def typeof_pyval(self, value):
        return type(value)

    def compile(self, types):
        if types not in self.overloads:
            function = SimpleNamespace(attrs=SimpleNamespace(shared=self.static), types=types)
            self.overloads[types] = SimpleNamespace(_codelibrary=SimpleNamespace(get_cufunc=lambda: function))
        return self.overloads[types]


@pytest.fixture
def asked(monkeypatch):
    """What the driver was asked: (argument types, bytes, device)."""
    calls = []
    device = SimpleNamespace(id=0, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=227 * KIB)
    monkeypatch.setattr("numba.cuda.get_current_device", lambda: device)
    monkeypatch.setattr(driver, "_raise_limit", lambda function, n, where: calls.append((function.types, n, where.id)))
    return SimpleNamespace(calls=calls, device=device)


def test_the_driver_is_asked_once_for_each_compiled_form_and_again_for_more_and_for_another_gpu(asked):
    kernel = Kernel()
    for _ in range(3):
        driver.allow_shared(kernel, (1,), HIGH)
    assert asked.calls == [((int,), HIGH, 0)]
    driver.allow_shared(kernel, (1.0,), HIGH)
    driver.allow_shared(Kernel(), (1,), HIGH)
    assert asked.calls[1:] == [((float,), HIGH, 0), ((int,), HIGH, 0)]
    asked.calls.clear()
    kernel = Kernel()
    for nbytes in (60 * KIB, HIGH, 60 * KIB):
        driver.allow_shared(kernel, (1,), nbytes)
    asked.device.id = 1
    driver.allow_shared(kernel, (1,), 60 * KIB)
    assert [call[1:] for call in asked.calls] == [(60 * KIB, 0), (HIGH, 0), (60 * KIB, 1)]


def test_more_than_the_gpu_has_is_refused_with_the_numbers(asked):
    with pytest.raises(ValueError, match=r"wide: 232,449 bytes .* \(1,024 static\); this GPU gives 232,448"):
        driver.allow_shared(Kernel(static=KIB), (1,), 226 * KIB + 1)
    assert asked.calls == []
