"""Which GPU the kernels run on: the decision, what keeps a GPU from use, the banner, and what importing dwlab loads."""

import itertools
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import dwlab
from dwlab.gpu import driver, target

pytestmark = pytest.mark.quick

H200 = driver.Device("NVIDIA H200", (9, 0))
PASCAL = driver.Device("Tesla P100-PCIE-16GB", (6, 0))


def a_driver(cuda=(13, 0), devices=(H200,), problem=""):
    return driver.Driver(True, cuda, "580.159", devices, problem)


def in_a_process(code, **variables):
    """Runs code in a fresh Python with DWLAB_TARGET and NUMBA_ENABLE_CUDASIM as given; returns the finished process."""
    environment = {k: v for k, v in os.environ.items() if k not in (target.VARIABLE, "NUMBA_ENABLE_CUDASIM")}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", code], env=environment | variables, capture_output=True, text=True, timeout=600
    )


def test_unset_the_machine_decides_and_what_cannot_be_had_is_said_with_what_to_do():
    for requested in (None, "", "  "):
        assert target.decide(requested, "") == target.Target("gpu", "a usable GPU is here")
        assert target.decide(requested, "no driver") == target.Target("simulated", "no driver")
    for requested, problem in itertools.product(("simulated", "SIMULATED", " simulated "), ("", "no driver")):
        assert target.decide(requested, problem).mode == "simulated"
    words = r"DWLAB_TARGET=gpu.*the driver sees no GPU.*Unset DWLAB_TARGET.*doctor"
    with pytest.raises(target.TargetError, match=words):
        target.decide("gpu", "the driver sees no GPU")
    for problem in ("", "no driver"):
        with pytest.raises(target.TargetError, match=r"'cuda' is not a mode.*'gpu' or 'simulated'"):
            target.decide("cuda", problem)


def test_no_usable_driver_is_the_problem_and_without_numba_cuda_its_extra_is_named(monkeypatch):
    assert target.gpu_problem(driver.Driver()) == "no NVIDIA driver is installed"
    assert target.gpu_problem(a_driver(devices=(), problem="the driver sees no GPU")) == "the driver sees no GPU"
    monkeypatch.setattr(target.importlib.util, "find_spec", lambda name: None)
    assert "gpu-cu13" in target.gpu_problem(a_driver())
    assert "gpu-cu12" in target.gpu_problem(a_driver(cuda=(12, 4)))
    assert "gpu-cu12" in target.gpu_problem(a_driver(devices=(PASCAL,)))


@pytest.fixture
def numba_cuda(monkeypatch):
    """Lets a test say what `numba.cuda` is, with numba-cuda installed and Numba's own simulator off."""
    monkeypatch.setattr(target.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(target, "cuda_simulator_on", lambda: False)

    def put(**attributes):
        module = types.ModuleType("numba.cuda")
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, "numba.cuda", module)
        import numba

        monkeypatch.setattr(numba, "cuda", module, raising=False)

    return put


def test_a_gpu_that_numba_can_use_is_no_problem_and_numbas_own_simulator_is_none(numba_cuda, monkeypatch):
    def broken():
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    numba_cuda(is_available=broken)  # a reason, not an error
    assert "AttributeError: module 'numpy' has no attribute 'row_stack'" in target.gpu_problem(a_driver())
    numba_cuda(is_available=lambda: True)
    assert target.gpu_problem(a_driver()) == ""
    monkeypatch.setattr(target, "cuda_simulator_on", lambda: True)
    assert "NUMBA_ENABLE_CUDASIM" in target.gpu_problem(a_driver())


@pytest.mark.parametrize("value, on", [("1", True), ("0", False), ("", False)])
def test_the_simulator_variable_counts_before_numba_is_imported(monkeypatch, value, on):
    monkeypatch.delitem(sys.modules, "numba.core.config", raising=False)
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", value)
    assert target.cuda_simulator_on() is on
    for imported in (0, 1):  # what Numba was imported with counts after
        monkeypatch.setitem(sys.modules, "numba.core.config", types.SimpleNamespace(ENABLE_CUDASIM=imported))
        assert target.cuda_simulator_on() is bool(imported)


def test_the_banner_of_the_laptop_says_that_nothing_is_timed_and_that_of_a_gpu_names_it(monkeypatch):
    monkeypatch.setattr(target, "_decided", target.Target("simulated", "the driver sees no GPU"))
    text = repr(target.banner())
    assert text.startswith(f"dwlab {dwlab.__version__} · simulated: the driver sees no GPU\n")
    assert "Nothing is timed here" in text
    monkeypatch.setattr(target, "_decided", target.Target("gpu", ""))
    monkeypatch.setattr(driver, "query", a_driver)
    monkeypatch.setattr(target.importlib.metadata, "version", lambda name: {"numba-cuda": "0.30.4"}[name])
    line = str(target.banner()).splitlines()[0]
    for part in ("gpu: NVIDIA H200", "compute capability 9.0", "driver 580.159 (CUDA 13.0)", "numba-cuda 0.30.4"):
        assert part in line


def test_a_gpu_that_others_use_is_called_busy(numba_cuda, monkeypatch, run):
    class CudaAPIError(Exception):  # as numba-cuda has it: a code and a text
        def __str__(self):
            return f"[{self.args[0]}] {self.args[1]}"

    numba_cuda()
    monkeypatch.setitem(sys.modules, "numba.cuda.cudadrv.driver", types.SimpleNamespace(CudaAPIError=CudaAPIError))
    monkeypatch.setenv("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    assert target.numba_cuda.__wrapped__() is sys.modules["numba.cuda"]
    full = CudaAPIError(2, "Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")
    assert str(full).startswith(f"[2] {full.args[1]}. The GPU is busy: it has no")
    alone = CudaAPIError(46, "Call to cuDevicePrimaryCtxRetain results in CUDA_ERROR_DEVICE_UNAVAILABLE")
    assert "another process has it for itself alone. Wait" in str(alone) and "DWLAB_TARGET=simulated" in str(alone)
    other = CudaAPIError(700, "Call to cuCtxSynchronize results in CUDA_ERROR_ILLEGAL_ADDRESS")
    assert str(other) == f"[700] {other.args[1]}"

    def raises(options):
        raise full

    from dwlab.kernels import command

    monkeypatch.setattr(command, "stages", raises)
    status, _, err = run("stages")
    assert status == 2 and err.startswith("dwlab: The GPU is busy: ") and len(err.splitlines()) == 1


def test_a_lesson_in_simulated_mode_loads_neither_numba_cuda_nor_widgets_nor_matplotlib():
    code = (
        "import sys, json\n"
        "there = set(sys.modules)\n"  # what the environment itself loads at every start
        "import dwlab\n"
        "before = sorted(m for m in set(sys.modules) - there if m.startswith(('dwlab', 'numpy', 'numba')))\n"
        "from dwlab import cuda, mode; from dwlab.gpu import target; import dwlab.simt.cuda\n"
        "loaded = [m for m in ('numba.cuda', 'ipywidgets', 'matplotlib') if m in set(sys.modules) - there]\n"
        "print(json.dumps([before, mode, target.mode, cuda is dwlab.simt.cuda, loaded, target.decided_for()]))"
    )
    done = in_a_process(code, DWLAB_TARGET="simulated")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["dwlab", "dwlab._version"], "simulated", "simulated", True, [], "simulated"]


def test_gpu_asked_for_without_one_is_one_clear_error():
    done = in_a_process("from dwlab import cuda", DWLAB_TARGET="gpu", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("dwlab.gpu.target.TargetError: DWLAB_TARGET=gpu, but no GPU can")


def test_every_public_name_is_there_and_nothing_else_is_claimed():
    assert sorted(dwlab.__all__) == sorted(dwlab._HOMES) == sorted(set(dwlab.__all__))
    for name in dwlab.__all__:
        assert getattr(dwlab, name) is not None
    assert set(dwlab.__all__) <= set(dir(dwlab))
    with pytest.raises(AttributeError, match=r"no attribute 'chek'; it has .*check"):
        dwlab.chek  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'mod'"):
        target.mod  # noqa: B018


def library(version=13000, init=0, devices=(("NVIDIA H200", 9, 0),)):
    """libcuda's six functions, answering as told; devices are (name, major, minor)."""

    def put(place, value):
        place.value = value
        return 0

    return types.SimpleNamespace(
        cuDriverGetVersion=lambda pointer: put(pointer._obj, version),
        cuInit=lambda flags: init,
        cuDeviceGetCount=lambda pointer: put(pointer._obj, len(devices)),
        cuDeviceGet=lambda pointer, ordinal: put(pointer._obj, ordinal),
        cuDeviceGetName=lambda buffer, size, handle: put(buffer, devices[handle.value][0].encode()),
        cuDeviceGetAttribute=lambda pointer, which, handle: put(pointer._obj, devices[handle.value][which - 74]),
    )


def asked(monkeypatch, library, release=None):
    monkeypatch.setattr(driver, "_library", lambda: library)
    monkeypatch.setattr(driver, "_release", lambda: release)
    return driver.query()


def test_a_driver_with_gpus_and_none(monkeypatch):
    found = asked(monkeypatch, library(12040, devices=(("A", 8, 0), ("B", 6, 1))), "550.54.15")
    devices = driver.Device("A", (8, 0)), driver.Device("B", (6, 1))
    assert found == driver.Driver(True, (12, 4), "550.54.15", devices, "")
    none = asked(monkeypatch, None)
    assert found.usable and (none.found, none.usable, none.toolkit) == (False, False, None)


@pytest.mark.parametrize(
    "status, words", [(100, "sees no GPU"), (803, "reboot"), (999, "nvidia_uvm"), (12345, "failed to start")]
)
def test_a_driver_that_does_not_start_says_why_with_its_number(monkeypatch, status, words):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = asked(monkeypatch, library(init=status))
    assert words in found.problem and f"cuInit returned {status}" in found.problem
    assert found.found and found.cuda == (13, 0) and not found.usable
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    hidden = asked(monkeypatch, library(init=100)).problem  # and not missing
    assert "CUDA_VISIBLE_DEVICES='' hides every GPU" in hidden


WITHOUT = """
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numba_cuda", "numba_cuda_mlir") or name.startswith("numba.cuda"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
import numpy as np
from dwlab import check, cuda, xray

@cuda.jit
def twice(x, y):
    tile = cuda.shared.array(32, "float32")
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    y[i] = 2 * tile[31 - cuda.threadIdx.x]

x = np.arange(64, dtype=np.float32)
print(xray(twice, 2, 32, x, x.copy()).totals.sectors)
want = lambda x, y: y.__setitem__(..., 2 * x.reshape(2, 32)[:, ::-1].ravel())
assert check(twice, want=want, args=(x, x * 0), grid=2, block=32)
assert not any(name.startswith(("numba.cuda", "numba_cuda")) for name in sys.modules)
"""


def test_without_a_gpu_nothing_needs_numbas_cuda(tmp_path):
    (tmp_path / "program.py").write_text(WITHOUT, encoding="utf-8")
    done = in_a_process(f"import runpy; runpy.run_path({str(tmp_path / 'program.py')!r})", DWLAB_TARGET="simulated")
    assert done.returncode == 0 and done.stdout == "16\n", done.stderr


@pytest.mark.skipif(target.gpu_problem(driver.query()) == "", reason="a GPU can be used here")
def test_lessons_fail_once_where_the_gpu_they_are_to_run_on_is_none():
    lesson = Path(__file__).parents[1] / "notebooks" / "01_the_operator.ipynb"
    options = ["-q", "-p", "no:cacheprovider", "-p", "nbval.plugin", "--nbval", str(lesson)]
    code = f"import pytest, sys; sys.exit(pytest.main({options!r}))"
    done = in_a_process(code, DWLAB_TARGET="gpu", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert (done.stdout + done.stderr).count("no GPU can be used") == 1
