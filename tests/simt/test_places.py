"""A traceback of a launch ends at the kernel's guilty line, and shows nothing of the interpreter."""

import textwrap
import traceback

import numpy as np
import pytest

from dwlab import simt
from dwlab.simt import HazardError, UnsupportedError
from dwlab.simt.options import KernelError, LaunchError, StepLimitError

pytestmark = pytest.mark.quick

SOURCE = """
from dwlab.simt import cuda
from numba import float32

@cuda.jit(device=True)
def inner(a, i):
    return a[i + 8]  # guilty: bounds in a function

@cuda.jit(device=True)
def outer(a, i):
    b = inner(a, i)  # on the way
    return b * float32(2)

@cuda.jit
def through(x, y):
    i = cuda.grid(1)
    if i < 8:
        y[i] = outer(x, i)  # on the way

@cuda.jit
def bounds(x, y):
    i = cuda.grid(1)
    y[i] = x[i + 1]  # guilty: bounds

@cuda.jit
def race(x, y):
    i = cuda.grid(1)
    y[0] = x[i]  # guilty: race

@cuda.jit
def refused(x, y):
    i = cuda.grid(1)
    y[i] = open("x")  # guilty: refused

@cuda.jit
def raised(x, y):
    i = cuda.grid(1)
    if x[i] == 0:
        raise ValueError("zero")  # guilty: raised

@cuda.jit
def endless(x, y):
    i = cuda.grid(1)
    while x[i] == 0:  # guilty: endless
        i = i  # guilty: endless
"""


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    path = tmp_path_factory.mktemp("places") / "student.py"
    path.write_text(textwrap.dedent(SOURCE))
    names = {"__name__": "student"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return path, names


def failing(kernel):
    x = np.zeros(8, np.float32)
    with pytest.raises(simt.SimtError) as caught, simt.using(simt.Options(step_limit=500)):
        kernel[1, 8](x, x.copy())
    return caught.value


@pytest.mark.parametrize(
    ("name", "error", "mark", "functions"),
    [
        ("bounds", HazardError, "guilty: bounds", ["bounds"]),
        ("through", HazardError, "guilty: bounds in a function", ["through", "outer", "inner"]),
        ("race", HazardError, "guilty: race", ["race"]),
        ("refused", UnsupportedError, "guilty: refused", ["refused"]),
        ("raised", KernelError, "guilty: raised", ["raised"]),
        ("endless", StepLimitError, "guilty: endless", ["endless"]),
    ],
)
def test_the_last_lines_are_the_kernels(kernels, name, error, mark, functions):
    path, names = kernels
    raised = failing(names[name])
    assert isinstance(raised, error)
    frames = traceback.extract_tb(raised.__traceback__)
    own = [one for one in frames if one.filename == str(path)]
    assert frames[-len(own) :] == own and [one.name for one in own] == functions
    assert own[-1].line.endswith(mark) and all(one.line.endswith("on the way") for one in own[:-1])
    if isinstance(raised, HazardError):
        assert own[-1].lineno == raised.hazards[0].line


def test_the_frames_between_are_hidden_and_all_are_shown_on_request(kernels, monkeypatch):
    raised = failing(kernels[1]["bounds"])
    inside = [tb for tb, _ in traceback.walk_tb(raised.__traceback__) if "dwlab" in tb.f_code.co_filename]
    between = [one for one in inside if one.f_code.co_filename.endswith("launch.py")]
    assert between and all(one.f_locals.get("__tracebackhide__") for one in between)
    monkeypatch.setenv("DWLAB_TRACEBACK", "full")
    frames = traceback.extract_tb(failing(kernels[1]["bounds"]).__traceback__)
    assert any(one.filename.endswith("interpreter.py") for one in frames)


def test_a_launch_that_is_refused_points_at_no_line_of_the_kernel(kernels):
    path, names = kernels
    with pytest.raises(LaunchError) as caught:
        names["bounds"][1, 2048](np.zeros(8, np.float32), np.zeros(8, np.float32))
    assert all(one.filename != str(path) for one in traceback.extract_tb(caught.value.__traceback__))
