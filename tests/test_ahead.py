"""Kernels compiled by other processes: what comes back is the kernel that would have been compiled here."""

import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest
from compiler import needs_compiler

from dwlab import ahead, stages, target
from dwlab.layers import DepthwiseConv2d

LAYER = DepthwiseConv2d(1, 8, 6, 6, 3)
NAIVE = stages.stage("depthwise2d/forward/naive")


class Kernel:
    """What compile_all needs of a kernel of numba.cuda.jit."""

    def __init__(self, *compiled):
        self.overloads = dict.fromkeys(compiled)

    def typeof_pyval(self, value):
        return type(value).__name__

    def add_overload(self, made, types):
        self.overloads[types] = made


class Stage:
    def __init__(self, id, kernel):
        self.id, self.kernel = id, kernel

    def kernel_for(self, problem):
        return self.kernel


@pytest.fixture
def answers(monkeypatch):
    """Processes that answer at once: a payload for each job, None for stages called "bad", nothing with "dead"."""
    started = []

    def start(jobs, cc):
        started.append([id for id, _, _ in jobs])
        return [None if id == "bad" else f"made {id}".encode() for id, _, _ in jobs]

    monkeypatch.setattr(ahead, "_start", start)
    monkeypatch.setattr(ahead, "_answer", lambda process: [] if b"made dead" in process else process)
    monkeypatch.setattr(ahead, "rebuilt", lambda payload: payload.decode())
    device = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(target, "cuda", SimpleNamespace(get_current_device=lambda: device), raising=False)
    return started


def test_each_kernel_is_compiled_once_and_shared_out(answers):
    one, two, three = (Stage(name, Kernel()) for name in ("a", "b", "c"))
    wanted = [
        (one, LAYER, (1,)),
        (two, LAYER, (1.0,)),
        (one, LAYER, (2,)),
        (three, LAYER, ("x",)),
        (one, LAYER, (1.5,)),
    ]
    assert ahead.compile_all(iter(wanted), processes=2) == 4
    assert answers == [["a", "c"], ["b", "a"]]
    assert one.kernel.overloads == {("int",): "made a", ("float",): "made a"}
    assert three.kernel.overloads == {("str",): "made c"}


def test_what_is_compiled_already_is_left(answers):
    done, new = Stage("a", Kernel(("int",))), Stage("b", Kernel())
    assert ahead.compile_all([(done, LAYER, (1,)), (new, LAYER, (1,))], processes=4) == 0
    assert not answers and not new.kernel.overloads  # one kernel is not worth a process


def test_what_does_not_compile_is_left_to_the_launch(answers):
    good, bad, dead = (Stage(name, Kernel()) for name in ("good", "bad", "dead"))
    assert ahead.compile_all([(one, LAYER, (1,)) for one in (good, bad, dead)], processes=3) == 1
    assert good.kernel.overloads and not bad.kernel.overloads and not dead.kernel.overloads


def test_a_process_that_ends_early_answers_nothing(monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], stdin=subprocess.PIPE, stdout=-1)
    assert ahead._answer(process) == []
    monkeypatch.setattr(ahead, "SECONDS", 0.2)
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdin=-1, stdout=-1)
    assert ahead._answer(process) == [] and process.returncode is not None


# What `rebuilt` makes of the payloads, in a process in which numba.cuda stands in for a GPU as the compiler's does.
CHECK = """
import pickle, sys
from dwlab import ahead, inspect
cc, payload, types = pickle.load(sys.stdin.buffer)
inspect._stand_in(cc)
from dwlab import stages
from dwlab.layers import DepthwiseConv2d
kernel = stages.stage("depthwise2d/forward/naive").kernel_for(DepthwiseConv2d(1, 8, 6, 6, 3))
made = ahead.rebuilt(payload)
kernel.add_overload(made, types)
assert kernel.compile(types) is made
library = made._codelibrary
code = bytes(library.get_cubin(library._ensure_cc(None)).code)
print(inspect.sections(code).keys())
"""


@needs_compiler
def test_a_payload_becomes_a_kernel_with_its_code():
    from numba import types

    arguments = tuple(types.Array(types.float32, 1, "C") for _ in range(6))
    jobs = [(NAIVE.id, LAYER, arguments), (NAIVE.id, LAYER, arguments[:2])]  # the second lacks arguments
    payload, none = ahead._answer(ahead._start(jobs, (9, 0)))
    assert none is None and payload
    given = pickle.dumps(((9, 0), payload, arguments))
    done = subprocess.run([sys.executable, "-c", CHECK], input=given, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert b".text." in done.stdout
