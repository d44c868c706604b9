"""A project written for Numba-CUDA, run unedited: a script, a suite under pytest, and what is said of hazards."""

import os
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest

from dwlab import simt
from dwlab.simulator import project
from tests.loaded import kernel_of

pytestmark = pytest.mark.quick

PROGRAM = """
import sys, threading
import numpy as np
from numba import cuda
import numba.cuda as again
from numba_cuda_mlir import cuda as successor
import numba.cuda.testing

assert cuda.jit is again.jit is successor.jit
assert isinstance(cuda.to_device([1]), numba.cuda.cudadrv.devicearray.DeviceNDArray)

@cuda.jit("void(float32[:], float32[:])")
def shift(x, y):
    i = cuda.grid(1)
    if i < y.size:
        y[i] = x[i - 1]

@cuda.jit
def racy(y):
    y[0] = cuda.threadIdx.x

x, z = np.arange(64, dtype=np.float32), np.zeros(1, np.int64)
y = np.zeros_like(x)
for _ in range(3):
    shift[2, 32](x, y)
assert y[0] == 63 and (y[1:] == x[:-1]).all()  # as on a GPU: a negative index counts from the end
thread = threading.Thread(target=lambda: racy[1, 64](z))
thread.start(), thread.join()
exec("@cuda.jit\\ndef made(o):\\n    o[cuda.grid(1)] = 7\\n")
made[1, 1](z)
first, last = cuda.event(), cuda.event()
first.record(), last.record()
done = []; cuda.stream().add_callback(lambda stream, status, arg: done.append((status, arg)), "arg")
assert cuda.event_elapsed_time(first, last) >= 0 and done == [(0, "arg")]

@numba.guvectorize(["void(float32[:,:], float32[:], float32[:])"], "(m,n),(n)->(m)", target="cuda")
def product(a, x, y):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            y[i] = (y[i] if j else 0) + a[i, j] * x[j]

assert (product(np.outer(x[:5], x), x) == x[:5] * (x @ x)).all()

@cuda.jit
def wrong(o):
    for k in range(3):
        if k == 2:
            raise ValueError("two")

try:
    wrong[1, 1](z)
except ValueError as error:
    while error.__traceback__.tb_next:
        error.__traceback__ = error.__traceback__.tb_next
    assert (error.__traceback__.tb_frame.f_code.co_filename, error.__traceback__.tb_lineno) == (__file__, 48)
from numba_cuda_mlir.cuda.cudadrv.devicearray import DeviceNDArray
from numba_cuda_mlir.numba_cuda.core.errors import NumbaPerformanceWarning
import numba_cuda_mlir.cuda.random, numba_cuda_mlir.types, numba.core.errors, numba.cuda.random

assert DeviceNDArray is numba.cuda.cudadrv.devicearray.DeviceNDArray and numba_cuda_mlir.types is numba.types
assert numba_cuda_mlir.cuda.random is sys.modules["numba_cuda_mlir.cuda.random"] is numba.cuda.random
assert NumbaPerformanceWarning is numba.core.errors.NumbaPerformanceWarning
print(z[0], first.elapsed_time(last) >= 0, sys.argv[1:])
"""

SUITE = """
import numpy as np, pytest
from numba import cuda

@cuda.jit
def racy(y):
    y[0] = cuda.threadIdx.x

@cuda.jit
def accepted(y):
    y[0] = cuda.threadIdx.x  # simt: allow race, two writers

def test_racy():
    racy[1, 64](np.zeros(1))

def test_accepted_by_its_line():
    accepted[1, 64](np.zeros(1))

@pytest.mark.simt_allow("two writers")
def test_accepted_by_its_marker():
    racy[1, 64](np.zeros(1))
"""


def in_a_folder(folder, *arguments, **variables):
    """Runs Python there; (status, its two streams)."""
    (folder / "prog.py").write_text(PROGRAM, encoding="utf-8")
    (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if k not in ("DWLAB_TARGET", "NUMBA_ENABLE_CUDASIM")}
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=600,
                          env={**environment, "PYTHONPATH": path, **variables})  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_script_runs_as_it_is_and_its_launches_are_summed_up(tmp_path):
    status, out, err = in_a_folder(tmp_path, "-m", "dwlab.simt", "--simt-report", "page.html", "prog.py", "a", "-b")
    assert status == 0 and out == "7 True ['a', '-b']\n", err
    assert err.count("HazardWarning: shift: negative index") == 1, "three launches, one warning"
    assert f"prog.py:{PROGRAM[: PROGRAM.index('y[i]')].count(chr(10)) + 1}: HazardWarning" in err
    said = [line for line in err.splitlines() if line.startswith("simt: ")]
    assert said[0] == "simt: 4 kernels, 6 launches, 2 hazards"
    assert any("negative index" in line and line.endswith("(3 launches)") for line in said)
    assert said[3].startswith("simt: prog.py:") and said[3].endswith(" of all")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "shift: 3 launches" in page and "made: 1 launches" in page


# An installed package registers its plugin itself; a checkout that was installed before there was one does not.
INSTALLED = any(one.value == "dwlab.simulator.pytest_plugin" for one in entry_points(group="pytest11"))
LOADED = ("-p", "dwlab.simulator.pytest_plugin")
NAMED = () if INSTALLED else LOADED
PLUGIN = ("-m", "pytest", "-q", "-p", "no:cacheprovider", *NAMED, "test_suite.py")
FEW = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # others' take seconds


@pytest.mark.parametrize("given, variables, failed, said", [
    (("--simt",), {}, 0, "2 kernels, 3 launches, 1 hazards"),
    ((*LOADED, "--simt", "--simt-hazards=error"), FEW, 1, "1 hazards"),
    ((*LOADED, "--simt-hazards=ignore", "--simt-count=off"), {"DWLAB_SIMT": "1", **FEW}, 0,
     "2 kernels, 3 launches, 0 hazards"),
])  # fmt: skip
def test_a_suite_runs_by_a_word(tmp_path, given, variables, failed, said):
    status, out, err = in_a_folder(tmp_path, *PLUGIN, *given, **variables)
    assert status == (1 if failed else 0), out + err
    assert f"{3 - failed} passed" in out and said in out
    assert ("FAILED test_suite.py::test_racy" in out) == bool(failed)
    assert ("HazardWarning: racy" in out) == ("error" not in str(given) and "ignore" not in str(given))


def test_without_the_word_nothing_is_touched(tmp_path):
    code = f"import sys, pytest; pytest.main(['-q', *{NAMED}, '--version']); " \
           "print([name for name in sys.modules if name.startswith(('numba', 'dwlab.simt'))])"  # fmt: skip
    assert in_a_folder(tmp_path, "-c", code)[1].endswith("[]\n")


LIGHT = """
import resource, sys, time
class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {"numba", "numpy", "llvmlite", "dwlab", *sys.stdlib_module_names} and not top.startswith("_"):
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Only())
import dwlab.simt
from dwlab.simt import cuda
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10)
try:  # Linux counts in ru_maxrss what the process had before it became this one
    most = next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
except OSError:
    pass
print(time.process_time(), most)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is of POSIX")
def test_the_interpreter_needs_numba_and_numpy_alone_and_little(tmp_path):
    status, out, err = in_a_folder(tmp_path, "-c", LIGHT)
    assert status == 0, err
    seconds, mib = map(float, out.split())
    assert seconds < 3 and mib < 150  # a second on an idle core; the processor's, whatever else runs


def test_a_comment_accepts_the_kinds_that_it_names(tmp_path):
    lines = {"": False, "# simt: allow": True, "# simt: allow race": True, "# simt:allow negative index": False,
             "# simt: allow two writers, race": True, "# all is well": False}  # fmt: skip
    file = tmp_path / "k.py"
    file.write_text("".join(f"y[0] = 1  {comment}\n" for comment in lines), encoding="utf-8")
    for number, expected in enumerate(lines.values(), 1):
        hazard = simt.Hazard("race", number, "y", "text", "threads", path=str(file))
        assert project.Session().accepts(hazard) == expected, number


def test_hazards_of_a_line_and_kind_are_one_and_a_long_launch_goes_on():
    summed = "total = 0", "for k in range(n):", "    total += k"
    reads = kernel_of("x, y, n", *summed, "y[cuda.grid(1)] = x[cuda.grid(1) - 3] + total")
    session = project.Session("ignore")
    simt.LAUNCHED.append(session.launched)
    try:
        with simt.using(simt.Options(hazards="report", trace=True, step_limit=project.STEPS)):
            for size in (32, 40):
                reads[1, 32](np.ones(size), np.zeros(size), 110_000)
    finally:
        simt.LAUNCHED.remove(session.launched)
    (key,), (text,) = session.found, session.texts.values()
    assert key[2] == "negative index" and session.found[key] == 2 and "(size 32)" in text


def test_sums_of_several_processes_are_added():
    one, other = project.Session(), project.Session()
    one.launches["a"], one.moved["f", 1], one.found["f", 1, "race"] = 2, 30, 1
    for _ in range(2):
        other.add(one.to_dict())
    assert other.launches == {"a": 4} and other.moved == {("f", 1): 60} and other.found == {("f", 1, "race"): 2}
