"""What dwlab.simt does not run it refuses: with the line, the reason and, where there is one, the way round."""

import inspect
import math
import time

import numpy as np
import pytest
from numba import float32, int64

from dwlab import simt
from dwlab.simt import cuda

pytestmark = pytest.mark.quick

TABLE = {"a": 1}
LIST = [1, 2, 3]
COUNTER = np.zeros(4)
STATE = 0


class Point:
    def __init__(self, x):
        self.x = x


def host_function(x):
    return x + 1


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


def test_try_and_except():
    @cuda.jit
    def kernel(y):
        try:
            y[0] = 1.0
        except ValueError:
            y[0] = 2.0

    refused(kernel, at="try:", reason="try|exception")


def test_with():
    @cuda.jit
    def kernel(y):
        with open("file"):
            y[0] = 1.0

    refused(kernel, at="with open", reason="with")


def test_generators_and_comprehensions():
    @cuda.jit
    def generator(y):
        y[0] = sum(i for i in range(3))

    @cuda.jit
    def comprehension(y):
        values = [2.0 * i for i in range(3)]
        y[0] = values[0]

    @cuda.jit
    def yielding(y):
        y[0] = 1.0
        yield 3

    refused(generator, at="sum(", reason="generator|sum|loop")
    refused(comprehension, at="values = [", reason="list|comprehension|local.array")
    refused(yielding, at="yield 3", reason="yield|generator")


def test_lists_dicts_sets_and_strings():
    @cuda.jit
    def append(y):
        values = [1, 2]
        values.append(3)
        y[0] = values[2]

    @cuda.jit
    def dictionary(y):
        table = {"a": 1}
        y[0] = table["a"]

    @cuda.jit
    def a_set(y):
        y[0] = 1 in {1, 2}

    @cuda.jit
    def formatted(y):
        print(f"value {y[0]}")

    refused(dictionary, at='table = {"a": 1}', reason="dict")
    refused(a_set, at="{1, 2}", reason="set")
    refused(formatted, at="print(f", reason="string|f-string|print")
    with pytest.raises(simt.UnsupportedError, match="(?is)list|local.array"):
        simt.xray(append, 1, 4, np.zeros(4))


def test_global_lists_and_dicts():
    @cuda.jit
    def dictionary(y):
        y[0] = TABLE["a"]

    @cuda.jit
    def a_list(y):
        y[0] = LIST[cuda.threadIdx.x]

    refused(dictionary, at='TABLE["a"]', reason="TABLE.*dict.*(tuple|array)")
    refused(a_list, at="LIST[", reason="LIST.*list.*(tuple|array)")


def test_global_arrays_are_constants():
    @cuda.jit
    def kernel(y):
        COUNTER[0] = 1.0

    refused(kernel, at="COUNTER[0]", reason="COUNTER.*const.*argument")


def test_global_statement():
    @cuda.jit
    def kernel(y):
        global STATE
        STATE = 1

    refused(kernel, at="global STATE", reason="global")


def test_classes_and_attributes():
    point = Point(3)

    @cuda.jit
    def make(y):
        y[0] = Point(3).x

    @cuda.jit
    def use(y):
        y[0] = point.x

    @cuda.jit
    def define(y):
        class Inner:
            pass

        y[0] = 1.0

    refused(make, at="Point(3)", reason="Point")
    refused(use, at="point.x", reason="Point|attribute|'x'")
    refused(define, at="class Inner", reason="class")


def test_undecorated_host_functions_run_as_numba_would_refuse_them():
    @cuda.jit
    def kernel(y):
        y[0] = host_function(1.0)

    refused(kernel, at="host_function(1.0)", reason="host_function.*cuda.jit\\(device=True\\)")


def test_functions_that_a_kernel_cannot_call():
    @cuda.jit
    def clock(y):
        y[0] = time.time()

    @cuda.jit
    def random(y):
        y[0] = np.random.rand()  # noqa: NPY002

    @cuda.jit
    def whole(y):
        y[0] = np.cumsum(y)[0]

    @cuda.jit
    def allocate(y):
        z = np.zeros(3)
        y[0] = z[0]

    @cuda.jit
    def method(y):
        y[0] = y.cumsum()[0]

    @cuda.jit
    def builtin(y):
        y[0] = sorted(y)

    @cuda.jit
    def mathless(y):
        y[0] = math.prod((1, 2))

    refused(clock, at="time.time()", reason="time")
    refused(random, at="np.random.rand()", reason="rand")
    refused(whole, at="np.cumsum(y)", reason="sum")
    refused(allocate, at="np.zeros(3)", reason="zeros.*(local.array|allocat)?")
    refused(method, at="y.cumsum()", reason="sum.*loop")
    refused(builtin, at="sorted(y)", reason="sorted")
    refused(mathless, at="math.prod", reason="prod")


# NumPy's names that Numba-CUDA 0.30 does not compile in a kernel, though numba.njit does: on a GPU the kernel fails.
NOT_ON_CUDA = {
    "sqrt": "math.sqrt", "exp": "math.exp", "expm1": "math.expm1", "log1p": "math.log1p", "floor": "math.floor",
    "ceil": "math.ceil", "trunc": "math.trunc", "fabs": "math.fabs", "abs": "abs", "absolute": "abs", "sign": "",
    "square": "", "cbrt": "cuda.cbrt", "rint": "", "negative": "", "exp2": "", "reciprocal": "", "isinf": "math.isinf",
    "isfinite": "math.isfinite", "round": "round",
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_ON_CUDA)
def test_numpy_functions_that_cuda_does_not_have(name):
    import linecache

    text = f"def kernel(y):\n    y[0] = np.{name}(y[0])\n"
    linecache.cache["<" + name + ">"] = (len(text), None, text.splitlines(True), "<" + name + ">")
    space = {"np": np}
    exec(compile(text, "<" + name + ">", "exec"), space)
    with pytest.raises(simt.UnsupportedError, match=f"line 2.*{name}.*{NOT_ON_CUDA[name]}"):
        simt.xray(cuda.jit(space["kernel"]), 1, 1, np.ones(1))


def test_operators_spelt_as_numpy_functions():
    @cuda.jit
    def add(y):
        y[0] = np.add(y[0], 1.0)

    @cuda.jit
    def power(y):
        y[0] = np.power(y[0], 2)

    refused(add, np.ones(1), at="np.add(", reason="add", block=1)
    refused(power, np.ones(1), at="np.power(", reason="power", block=1)


def test_types_that_cudas_own_functions_do_not_take():
    @cuda.jit
    def shuffle(x, y):
        y[cuda.threadIdx.x] = cuda.shfl_sync(0xFFFFFFFF, x[cuda.threadIdx.x], 0)

    @cuda.jit
    def vote(y):
        y[cuda.threadIdx.x] = cuda.syncthreads_count(cuda.threadIdx.x > 3)

    @cuda.jit
    def select(y):
        y[cuda.threadIdx.x] = cuda.selp(cuda.threadIdx.x > 3, 1, 2.0)

    @cuda.jit
    def logarithm(y):
        y[cuda.threadIdx.x] = math.log(y[cuda.threadIdx.x], 2.0)

    for dtype in (np.int8, np.uint32, np.uint64, np.complex64):
        name = np.dtype(dtype).name
        refused(shuffle, np.ones(32, dtype), np.ones(32, dtype), at="shfl_sync", reason=f"shfl_sync.*{name}", block=32)
    refused(vote, at="syncthreads_count", reason="syncthreads_count.*bool.*int")
    refused(select, at="selp", reason="selp.*(int64|float64)")
    refused(logarithm, at="math.log(", reason="log")


def test_host_side_calls_inside_a_kernel():
    @cuda.jit
    def kernel(y):
        z = cuda.device_array(3)
        y[0] = z[0]

    @cuda.jit
    def other(y):
        bare[1, 1](y)

    @cuda.jit
    def bare(y):
        y[0] = 1.0

    refused(kernel, at="cuda.device_array(3)", reason="device_array.*(kernel|local|shared)")
    refused(other, at="bare[1, 1](y)", reason="bare|launch|kernel")


def test_whole_array_operations():
    @cuda.jit
    def add(x, y):
        y[0] = (x + x)[0]

    @cuda.jit
    def assign(x, y):
        y[:] = x

    @cuda.jit
    def matmul(x, y):
        y[0] = x @ x

    arrays = np.zeros(4), np.zeros(4)
    refused(add, *arrays, at="(x + x)[0]", reason="array|element|loop")
    refused(assign, *arrays, at="y[:] = x", reason="slice|loop")
    refused(matmul, *arrays, at="x @ x", reason="@|product|loop")


def test_shapes_of_on_chip_arrays_must_be_constant():
    @cuda.jit
    def shared(y, n):
        tile = cuda.shared.array(n, float32)
        y[0] = tile[0]

    @cuda.jit
    def by_thread(y):
        own = cuda.local.array(cuda.threadIdx.x + 1, float32)
        y[0] = own[0]

    @cuda.jit
    def from_shape(y):
        tile = cuda.shared.array(y.shape[0], float32)
        y[0] = tile[0]

    refused(shared, np.zeros(4), 4, at="cuda.shared.array(n, float32)", reason="constant|compile")
    refused(by_thread, at="cuda.local.array(", reason="constant|compile|same")
    refused(from_shape, at="cuda.shared.array(y.shape[0]", reason="constant|compile")


def test_unknown_names_and_attributes():
    @cuda.jit
    def name(y):
        y[0] = undefined_name  # noqa: F821

    @cuda.jit
    def attribute(y):
        y[0] = cuda.threadIdx.w

    @cuda.jit
    def unknown(y):
        cuda.no_such_thing()
        y[0] = 1.0

    @cuda.jit
    def before(y):
        y[0] = later  # noqa: F821
        later = 1.0  # noqa: F841

    refused(name, at="undefined_name", reason="undefined_name.*not defined")
    refused(attribute, at="threadIdx.w", reason="'w'|threadIdx")
    refused(unknown, at="no_such_thing()", reason="no_such_thing")
    refused(before, at="y[0] = later", reason="later.*before")


def test_one_name_for_things_of_different_kinds():
    @cuda.jit
    def kernel(x, y):
        if cuda.threadIdx.x < 2:
            v = 1.0
        else:
            v = x  # noqa: F841
        y[0] = 1.0

    with pytest.raises(simt.UnsupportedError, match="(?s)'v'"):
        simt.xray(kernel, 1, 4, np.zeros(4), np.zeros(4))


def test_wrong_number_of_indices_and_arguments():
    @cuda.jit
    def indices(y):
        y[0, 0] = 1.0

    @cuda.jit(device=True)
    def two(a, b):
        return a + b

    @cuda.jit
    def arguments(y):
        y[0] = two(1.0)

    refused(indices, at="y[0, 0]", reason="2.*(ind|dim)|1.*dim")
    refused(arguments, at="two(1.0)", reason="two.*argument|argument.*two|'b'")


def test_float_indices():
    @cuda.jit
    def kernel(y):
        y[cuda.grid(1) / 2] = 1.0

    refused(kernel, at="cuda.grid(1) / 2", reason="float64.*(int|//)")


def test_raising_and_asserting():
    @cuda.jit
    def raises(y):
        if cuda.threadIdx.x == 2:
            raise ValueError("odd input")
        y[0] = 1.0

    @cuda.jit
    def asserts(y):
        assert y[cuda.threadIdx.x] == 0.0

    refused(
        raises,
        at="raise ValueError",
        reason="ValueError.*odd input.*thread 2|thread 2.*odd input",
        error=simt.KernelError,
    )
    y = np.array([0.0, 0.0, 0.0, 1.0])
    refused(asserts, y, at="assert y[", reason="assert.*thread 3|thread 3.*assert", error=simt.KernelError)


def test_a_kernel_that_never_ends():
    @cuda.jit
    def forever(y):
        i = cuda.grid(1)
        while y[i] < 1.0:
            y[i] -= 1.0

    with pytest.raises(simt.StepLimitError, match="(?s)forever.*2,?000.*step_limit"):
        simt.xray(forever, 1, 4, np.zeros(4), options=simt.Options(step_limit=2000))


def test_the_default_step_limit_ends_a_kernel_in_seconds():
    @cuda.jit
    def forever(y):
        while True:
            y[0] = 1.0

    started = time.process_time()
    with pytest.raises(simt.StepLimitError, match="step"):
        with simt.using(simt.Options(hazards="off")):
            forever[1, 1](np.zeros(1))
    assert time.process_time() - started < 30


def test_a_spin_lock_does_not_hang():
    @cuda.jit
    def lock(mutex, y):
        while cuda.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        y[0] += 1.0
        cuda.atomic.exch(mutex, 0, 0)

    with pytest.raises(simt.SimtError):
        simt.xray(lock, 1, 32, np.zeros(1, np.int32), np.zeros(1), options=simt.Options(step_limit=3000))


def test_endless_recursion():
    @cuda.jit(device=True)
    def down(x):
        return down(x + 1)

    @cuda.jit
    def kernel(y):
        y[0] = down(0)

    with pytest.raises(simt.SimtError, match="(?is)recurs|step|without end"):
        simt.xray(kernel, 1, 1, np.zeros(1), options=simt.Options(step_limit=20000))


def test_source_that_is_not_available():
    space = {"cuda": cuda}
    exec("def hidden(y):\n    y[0] = 1.0\n", space)
    with pytest.raises(simt.UnsupportedError, match="(?is)hidden.*source"):
        cuda.jit(space["hidden"])[1, 1](np.zeros(1))


def test_things_that_are_no_kernel():
    for thing in (3, "kernel", math.sin, Point, len):
        with pytest.raises((simt.UnsupportedError, TypeError)):
            simt.xray(thing, 1, 1, np.zeros(1))


@pytest.mark.parametrize(
    "argument",
    [[1.0, 2.0], "text", {"a": 1}, object(), np.array([object()]), {1}, Point(1), len],
    ids=lambda a: type(a).__name__,
)
def test_arguments_that_a_kernel_cannot_take(argument):
    @cuda.jit
    def kernel(y, extra):
        y[0] = 1.0

    with pytest.raises((simt.SimtError, TypeError), match="extra|type|dtype|object"):
        kernel[1, 1](np.zeros(1), argument)


def test_big_endian_arrays():
    @cuda.jit
    def kernel(y):
        y[0] = 1.0

    with pytest.raises((simt.SimtError, TypeError, ValueError), match="(?i)byte|endian|dtype|type"):
        kernel[1, 1](np.zeros(1, ">f4"))


def test_non_contiguous_host_arrays():
    @cuda.jit
    def kernel(y):
        y[0] = 1.0

    with pytest.raises(ValueError, match="non-contiguous.*ascontiguousarray"):
        kernel[1, 1](np.zeros((4, 4))[:, 1])


def test_writing_to_a_read_only_array():
    @cuda.jit
    def kernel(x, y):
        y[0] = x[0]
        x[0] = 1.0

    x = np.zeros(1)
    x.flags.writeable = False
    with pytest.raises((simt.SimtError, TypeError, ValueError), match="(?i)read-?only|writ"):
        kernel[1, 1](x, np.zeros(1))


def test_errors_leave_the_arguments_alone():
    @cuda.jit
    def kernel(y):
        y[cuda.grid(1)] = 1.0
        if cuda.grid(1) == 1:
            raise RuntimeError("stop")

    y = np.zeros(4)
    with pytest.raises(simt.KernelError):
        simt.xray(kernel, 1, 4, y)
    assert not y.any()


@pytest.mark.parametrize(
    "bad",
    [
        {"step_limit": 0},
        {"step_limit": 1.5},
        {"memory_budget": -1},
        {"lanes": 0},
        {"hazards": "maybe"},
        {"hazards": None},
        {"compute_capability": (3, 5)},
        {"compute_capability": "9.0x"},
        {"compute_capability": 9},
        {"no_such_option": 1},
    ],
    ids=str,
)
def test_options_are_checked(bad):
    name = next(iter(bad))
    with pytest.raises((ValueError, TypeError, simt.SimtError), match=f"{name}|{name.replace('_', ' ')}"):
        simt.xray(refusable, 1, 1, np.zeros(1, np.int64), options=simt.Options(**bad))


@cuda.jit
def refusable(y):
    y[0] = int64(1)


def test_boundscheck_and_link_are_refused_as_numba_refuses_them():
    with pytest.raises(NotImplementedError, match="bounds"):
        cuda.jit(boundscheck=True)(lambda y: None)


def test_calling_device_names_on_the_host_says_so():
    for name in (cuda.syncthreads, cuda.grid, cuda.shared.array, cuda.atomic.add):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError), match="(?i)kernel|host"):
            name(1)
    with pytest.raises((RuntimeError, TypeError, simt.SimtError), match="(?i)device function|kernel"):
        device_only(1)


@cuda.jit(device=True)
def device_only(x):
    return x


def test_errors_show_the_launch_and_not_the_interpreter():
    @cuda.jit
    def kernel(y):
        y[cuda.gird(1)] = 1.0

    for run in (lambda: kernel[1, 1](np.zeros(1)), lambda: simt.xray(kernel, 1, 1, np.zeros(1))):
        with pytest.raises(simt.UnsupportedError, match=r"is it cuda\.grid\?") as caught:
            run()
        assert len(caught.traceback) <= 5  # the call's two, the launch's two, and the kernel's own line
