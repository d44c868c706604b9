"""One notation: check, tune, stepper, inspect and xray take the same kernels, and commands take FILE.py:KERNEL."""

import importlib
import json
import sys
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from dwlab import check, cuda, simt, stepper, tune, xray
from dwlab.compiler import process
from dwlab.gpu import driver, target
from dwlab.judge.check import CheckError
from dwlab.kernels.registry import Launch

X = np.random.default_rng(0).random(1000).astype(np.float32)
ARGS = X, np.zeros_like(X)
simulated = pytest.mark.skipif(target.mode == "gpu", reason="a GPU launches its own kernels alone")


def jit_of(name):
    """The `cuda` of a package. Its kernels are another class each time."""
    return pytest.importorskip(name) if name == "numba_cuda_mlir.cuda" else importlib.import_module(name)


def made_by(name):
    cuda = jit_of(name)

    @cuda.jit(launch_bounds=128) if name != "numba.cuda" else cuda.jit
    def double(x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = x[i] * np.float32(2)

    return double


def want(x, y):
    y[:] = 2 * x


@simulated
@pytest.mark.parametrize("name", ["dwlab.simt.cuda", "numba.cuda", "numba_cuda_mlir.cuda"])
def test_all_tools_take_a_kernel_of_any_cuda_jit(name):
    double = made_by(name)
    assert check(double, want=want, args=ARGS, grid=8, block=128).passed
    wrong = check(double, want=lambda x, y: y.__setitem__(slice(None), 3 * x), args=ARGS, grid=8, block=128)
    assert [one.pattern for one in wrong.findings] == ["wrong factor"]
    found = tune(lambda c: (double, 8, c["block"]), {"block": (128, 64)}, reference=want, args=ARGS)
    assert found.candidate == {"block": 128} and "is right" in str(found)  # 8 blocks of 64 leave some
    assert xray(double, 8, 128, *ARGS).totals == xray(double.py_func, 8, 128, *ARGS).totals
    assert stepper(double, 8, 128, *ARGS).text(0, 0)
    kept = process.pickled(double) if not process.missing() else b"numba.cuda"
    assert b"numba.cuda" in kept and b"mlir" not in kept


@simulated
@pytest.mark.parametrize("name", ["numba.cuda", "numba_cuda_mlir.cuda"])
def test_a_foreign_kernel_is_judged_with_a_launch_of_its_own(name):
    foreign = jit_of(name).jit(check_me.py_func)
    verdict = check(foreign, "2,3,40,5", launch=lambda p: Launch((1, p.H, p.B), 64, (p.shift,)))
    assert verdict.passed, str(verdict)


def test_a_kernel_of_the_successor_gets_device_arrays_of_its_own(monkeypatch):
    array, theirs = SimpleNamespace(__cuda_array_interface__={}), SimpleNamespace(as_cuda_array=lambda one: [one])
    monkeypatch.setitem(sys.modules, "numba_cuda_mlir", SimpleNamespace(cuda=theirs))
    kernel = type("Dispatcher", (), {"__module__": "numba_cuda_mlir.dispatcher"})()
    assert driver.arrays_of(kernel, (array, 3)) == [[array], 3]
    assert driver.arrays_of(check_me, (array, 3)) == (array, 3)


@cuda.jit
def check_me(x, w, y, shift):
    t = cuda.threadIdx.x
    if t < x.shape[2]:
        acc = np.float32(0)
        for j in range(w.shape[1]):
            if 0 <= t + shift - j < x.shape[2]:
                acc += w[cuda.blockIdx.y, j] * x[cuda.blockIdx.z, cuda.blockIdx.y, t + shift - j]
        y[cuda.blockIdx.z, cuda.blockIdx.y, t] = acc


class Theirs:
    """numba_cuda_mlir's own classes of types, as far as a signature has them."""

    def __init__(self, name, dtype=None):
        self.name = name
        if dtype is not None:
            self.dtype, self.ndim, self.layout = dtype, 1, "C"

    def __str__(self):
        return self.name


Theirs.__module__ = "numba_cuda_mlir.numba_cuda.types.scalars"


@pytest.mark.parametrize("theirs", [False, True])
def test_a_signature_and_launch_bounds_hold_of_a_foreign_kernel_too(theirs):
    row, whole = numba.float32[::1], numba.int32
    if theirs:
        row, whole = Theirs("array(float32, 1d, C)", Theirs("float32")), Theirs("int32")

    def scaled(x, y, by):
        i = cuda.grid(1)
        y[i] = x[i] * by

    options = {"launch_bounds": 64, "device": False, "dump_mlir": False, "max_registers": None}
    foreign = SimpleNamespace(
        py_func=scaled, _can_compile=False, overloads={(row, row, whole): None}, targetoptions=options
    )
    report = xray(foreign, 1, 32, X, ARGS[1], 2.75, keep=True)
    assert (report.outputs["y"][:32] == 2 * X[:32]).all()  # an int32, as compiled code has it
    with pytest.raises(simt.LaunchError, match="launch_bounds=64"):
        xray(foreign, 1, 96, X, ARGS[1], 2.75)
    assert simt.kernel_of(foreign).options == {"launch_bounds": 64}


@simulated
def test_a_foreign_device_function_is_no_kernel():
    device = made_by("numba.cuda").__class__(want, {"device": True})
    with pytest.raises(TypeError, match="is a device function: x-ray a kernel"):
        xray(device, 1, 32, *ARGS)
    with pytest.raises(CheckError, match="is no kernel"):
        check(device, want=want, args=ARGS, grid=1, block=32)


OWN = """
import numpy as np
from {package} import cuda

print("side effect")

@cuda.jit
def double(x, y):
    print("of the kernel") if cuda.grid(1) == 0 else None
    i = cuda.grid(1)
    if i < x.size:
        y[i] = 2 * x[i]

def example():
    print("more")
    return 2, 64, np.arange(100, dtype=np.float32), np.zeros(100, np.float32)

def want(x, y):
    print("and more")
    y[:] = 2 * x

def thrice(x, y):
    y[:] = 3 * x

def make(candidate):
    return double, -(-100 // candidate["block"]), candidate["block"]

def half(candidate):
    return double, 1, candidate["block"] // 64

parameters = {{"block": (64, 32)}}

def no_data():
    raise RuntimeError("no data")

def nothing():
    pass

def array():
    return 4, np.zeros(3)

def quotient():
    return 100 / 64, 64, np.zeros(3)
"""


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "own.py"
    made.write_text(OWN.format(package="numba" if target.mode == "simulated" else "dwlab"), encoding="utf-8")
    return made


@pytest.mark.parametrize(
    ("command", "name", "status", "says"),
    [
        ("check", "double", 0, {"subject": "double", "outputs": ["y"], "passed": True, "findings": []}),
        ("check", "double::thrice", 1, {"subject": "double", "passed": False, "wrong": 99}),
        ("xray", "double", 0, {"kernel": "double", "grid": [2, 1, 1]}),
        ("tune", "make", 0, {"candidates": 2, "tried": 2, "strategy": "exhaustive"}),
        ("tune", "half", 1, {"failed": True, "tried": 2}),
    ],
)
def test_commands_take_a_kernel_of_a_file_and_their_stdout_is_json(run, file, command, name, status, says):
    found, out, err = run(command, f"{file}:{name}", "--json")
    seen = json.loads(out)
    assert found == status and {one: seen.get(one) for one in says} == says
    assert "side effect" in err and "more" in err
    found, out, _ = run(command, f"{file}:{name}")
    assert found == status and not {"side effect", "more", "and more"} & {*out.splitlines()}


@simulated
def test_xray_shows_a_kernel_of_a_file_with_advice_and_saves_its_page(run, file, tmp_path):
    status, out, err = run("xray", f"{file}:double", "--save", str(tmp_path / "page.html"))
    assert status == 0 and "double (own.py), grid 2, block 64" in out and "advice: line 9: 1 warps diverge" in out
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8") and "Wrote" in err


def test_inspect_takes_a_kernel_of_a_file(run, file):
    status, out, err = run("inspect", f"{file}:double", "--json")
    if process.missing():
        assert status == 2 and "numba-cuda" in err
    else:
        assert status == 0 and (json.loads(out)["name"], json.loads(out)["threads"]) == ("double", 64)


@pytest.mark.parametrize(
    ("command", "name", "says"),
    [
        ("xray", "doubled", "has no 'doubled'. The nearest is 'double'"),
        ("xray", "double:other", "has no function other(): write one that returns (grid, block, *arguments)"),
        ("xray", "example", "example takes 0 argument(s) (); 2 given"),
        ("xray", "double:no_data", "no_data() of {file} raises RuntimeError, in line {line}: no data"),
        ("check", "double:nothing", "nothing() of {file} returns nothing, not (grid, block, *arguments)"),
        ("inspect", "double:array", "with an array of shape (3,) as its block: give an integer or a tuple"),
        ("check", "double:quotient", "with the float 1.5625 as its grid: give an integer"),
        ("check", "double:example:nope", "{file} has no function nope(): write one that does on NumPy arrays what"),
        ("tune", "double", "Raised"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(run, file, command, name, says):
    status, _, err = run(command, f"{file}:{name}")
    if command == "tune":  # a kernel is no make(candidate)
        assert status == 1 and "every candidate failed" in err
    else:
        assert (
            status == 2 and says.format(file=file, line=1 + OWN[: OWN.index("raise Runtime")].count(chr(10))) in err
        ), err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("check", "{}:double", "--seed", "3"), "--seed goes with a stage"),
        (("check", "depthwise1d/forward/naive", "--tolerance", "0.1"), "--tolerance goes with a kernel of your own"),
        (("inspect", "{}:double", "--problem", "small"), "--problem goes with a stage"),
        (("xray", "{}:double", "--problem", "small"), "--problem goes with a stage"),
        (("tune", "{}:make", "PW 64→128 @56"), "problem goes with a stage"),
        (("check", "{}:double", "--allow", "race"), "invalid choice: 'race'"),
    ],
)
def test_an_option_that_says_nothing_of_a_kernel_is_refused(run, file, words, says):
    status, out, err = run(*(one.format(file) for one in words))
    assert status == 2 and says in err and not out


def test_a_file_that_is_not_there_or_is_no_module_is_one_line(run, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0", encoding="utf-8")
    for name, says in (("none", "there is no file"), ("broken", "raises ZeroDivisionError")):
        status, _, err = run("xray", str(tmp_path / f"{name}.py:double"))
        assert status == 2 and says in err and len(err.splitlines()) == 1, err


def test_check_judges_a_stage_and_prints_its_hints(run):
    status, out, _ = run("check", "depthwise1d/forward/naive", "--problem", "1,2,9,3", "--seed", "7", "--json")
    assert status == 0 and json.loads(out) | {"seed": 7, "passed": True, "failed": 0} == json.loads(out)
    status, out, _ = run("check", "depthwise1d/forward/naive", "--problem", "1,2,9,3")
    assert status == 0 and out.startswith("passed: depthwise1d/forward/naive")


def test_check_tries_several_sizes_of_an_example_that_has_some(run, tmp_path):
    file = tmp_path / "sized.py"
    file.write_text(
        "import numpy as np\nfrom dwlab import cuda\n\n@cuda.jit\ndef double(x, y):\n    i = cuda.grid(1)\n"
        "    if i < 96:\n        y[i] = 2 * x[i]\n\ndef example(n=64):\n    x = np.random.random(n)\n"
        "    return -(-n // 32), 32, x, np.zeros(n)\n\ndef want(x):\n    return 2 * x\n"
    )
    status, out, _ = run("check", f"{file}:double")
    assert status == 1 and out.startswith("FAILED: double at n = 1,")
    assert ("memory of others" if target.mode == "gpu" else "out of bounds") in out
