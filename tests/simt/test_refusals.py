"""Refusals name the line, the reason and, where there is one, the way round.

Constructs of the language are rows of language_rows.txt.
"""

import inspect
import math
import re
import time

import numpy as np
import pytest

from dwlab import simt
from dwlab.simt import cuda
from tests.loaded import kernel_of, program

pytestmark = pytest.mark.quick


class Point:
    def __init__(self, x):
        self.x = x


def refused(kernel, *args, at, reason, error=simt.UnsupportedError, block=4, **options):
    """Assert that a launch is refused, naming the line that contains ``at`` and the reason (a regular expression)."""
    function = getattr(kernel, "py_func", kernel)
    lines, first = inspect.getsourcelines(function)
    numbers = [first + i for i, line in enumerate(lines) if at in line]
    assert len(numbers) == 1, (at, numbers)
    with pytest.raises(error, match=f"(?is){reason}") as caught:
        simt.xray(kernel, 1, block, *(args or (np.zeros(4),)), **options)
    text = str(caught.value)
    assert f"line {numbers[0]}" in text, text
    assert at.strip() in text, text
    assert function.__name__ in text, text
    return text


def test_a_wrong_call_is_told_from_an_error_inside_what_is_called():
    def foreign(x):
        """A function that the interpreter is told the meaning of."""

    simt.register_instruction(foreign, lambda run, node, x: x + None)
    y = np.zeros(32)
    for text, reason in {
        "foreign(y[0])": "TypeError: unsupported operand", "foreign(1, 2)": "foreign does not take these arguments",
        "y.fill(None)": "None is not a number", "y.fill()": "y.fill does not take these arguments",
        "y.sum(axis=0)": "y.sum does not", "cuda.shfl_sync(1, 2)": "cuda.shfl_sync does not take these arguments",
    }.items():  # fmt: skip
        kernel, _ = program([text], "y", foreign=foreign)
        refused(kernel, y, at=text, reason=re.escape(reason), block=32)


def test_raising_and_asserting():
    raises = kernel_of("y", "if cuda.threadIdx.x == 2:", '    raise ValueError("odd input")', "y[0] = 1.0")
    asserts, how = kernel_of("y", "assert y[cuda.threadIdx.x] == 0.0"), {"error": simt.KernelError}
    refused(raises, at="raise ValueError", reason="ValueError.*odd input.*thread 2|thread 2.*odd input", **how)
    refused(asserts, np.array([0.0, 0, 0, 1]), at="assert y[", reason="assert.*thread 3|thread 3.*assert", **how)


def test_kernels_that_never_end_are_ended_by_a_limit():
    forever = kernel_of("y", "while y[cuda.grid(1)] < 1.0:", "    y[cuda.grid(1)] -= 1.0")
    with pytest.raises(simt.StepLimitError, match="(?s)program.*2,?000.*step_limit"):
        simt.xray(forever, 1, 4, np.zeros(4), options=simt.Options(step_limit=2000))
    forever = kernel_of("y", "while True:", "    y[0] = 1.0")
    started = time.process_time()
    with simt.using(simt.Options(hazards="off")), pytest.raises(simt.StepLimitError, match="step"):
        forever[1, 1](np.zeros(1))
    assert time.process_time() - started < 30

    @cuda.jit("int64(int64)", device=True)
    def down(x):
        return down(x + 1)

    @cuda.jit
    def kernel(y):
        y[0] = down(0)

    with pytest.raises(simt.SimtError, match="still running after|without end"):
        simt.xray(kernel, 1, 1, np.zeros(1), options=simt.Options(step_limit=20000))


def test_things_that_are_no_kernel_and_source_that_is_not_available():
    for thing in (3, "kernel", math.sin, Point, len):
        with pytest.raises((simt.UnsupportedError, TypeError)):
            simt.xray(thing, 1, 1, np.zeros(1))
    space = {"cuda": cuda}
    exec("def hidden(y):\n    y[0] = 1.0\n", space)
    with pytest.raises(simt.UnsupportedError, match="(?is)hidden.*source"):
        cuda.jit(space["hidden"])[1, 1](np.zeros(1))


@pytest.mark.parametrize(
    "argument",
    [[1.0, 2.0], "text", {"a": 1}, object(), np.array([object()]), np.zeros(1, ">f4"), {1}, Point(1), len],
    ids=lambda a: f"{type(a).__name__} {getattr(a, 'dtype', '')}",
)
def test_arguments_that_a_kernel_cannot_take(argument):
    kernel = kernel_of("y, extra", "y[0] = 1.0")
    with pytest.raises((simt.SimtError, TypeError), match="extra|type|dtype|object"):
        kernel[1, 1](np.zeros(1), argument)


def test_errors_leave_the_arguments_alone():
    kernel = kernel_of("y", "y[cuda.grid(1)] = 1.0", "if cuda.grid(1) == 1:", '    raise RuntimeError("stop")')
    y = np.zeros(4)
    with pytest.raises(simt.KernelError):
        simt.xray(kernel, 1, 4, y)
    assert not y.any()


@pytest.mark.parametrize(
    "bad",
    [
        {"step_limit": 0}, {"step_limit": 1.5}, {"memory_budget": -1}, {"lanes": 0}, {"hazards": "maybe"},
        {"hazards": None}, {"compute_capability": (3, 5)}, {"compute_capability": "9.0x"}, {"compute_capability": 9},
        {"no_such_option": 1},
    ],
    ids=str,
)  # fmt: skip
def test_options_are_checked(bad):
    name = next(iter(bad))
    with pytest.raises((ValueError, TypeError, simt.SimtError), match=f"{name}|{name.replace('_', ' ')}"):
        simt.xray(refusable, 1, 1, np.zeros(1, np.int64), options=simt.Options(**bad))


refusable = kernel_of("y", "y[0] = int64(1)")


def test_a_loop_whose_test_nothing_changes_is_named_and_one_that_reads_nothing_is_no_wait():
    test = "while j < x.shape[0]:"
    forgotten = kernel_of("x, y", "j, total = 0, 0.0", test, "    total += x[j]", "y[0] = total")
    counting = kernel_of("x, y", "total = 0", "while True:", "    total += 1", "y[0] = total")
    left = kernel_of("x, y", "j = 0", test, "    if x[0] > 0:", "        break", "y[0] = j")
    counted = kernel_of("x, y", "j = 0", "while j < 300:", "    j += 1", "y[0] = j")
    x, y = np.ones(4), np.zeros(1)
    with pytest.raises(simt.StepLimitError, match="never ends: nothing in it sets `j`, on which its test depends"):
        forgotten[1, 32](x, y)
    with pytest.raises(simt.StepLimitError, match="does this loop end") as caught:
        counting[1, 1](x, y)
    assert "waits" not in str(caught.value)
    left[1, 1](x, y)
    counted[1, 1](x, y)
    assert y[0] == 300


def test_boundscheck_and_link_are_refused_as_numba_refuses_them():
    with pytest.raises(NotImplementedError, match="bounds"):
        cuda.jit(boundscheck=True)(lambda y: None)


def test_calling_device_names_on_the_host_says_so():
    for name in (cuda.syncthreads, cuda.grid, cuda.shared.array, cuda.atomic.add):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError), match="(?i)kernel|host"):
            name(1)
    with pytest.raises((RuntimeError, TypeError, simt.SimtError), match="(?i)device function|kernel"):
        cuda.jit(device=True)(lambda x: x)(1)


def test_errors_show_the_launch_and_not_the_interpreter():
    kernel = kernel_of("y", "y[cuda.gird(1)] = 1.0")
    for run in (lambda: kernel[1, 1](np.zeros(1)), lambda: simt.xray(kernel, 1, 1, np.zeros(1))):
        with pytest.raises(simt.UnsupportedError, match=r"is it cuda\.grid\?") as caught:
            run()
        assert len(caught.traceback) <= 5  # the call's two, the launch's two, and the kernel's own line
