"""Kernels compiled by other processes: what comes back is the kernel that would have been compiled here."""

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from compiler import needs_compiler

from dwlab import target
from dwlab.compiler import precompile as ahead
from dwlab.compiler import process
from dwlab.kernels import registry
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems import DepthwiseConv1d
from dwlab.problems.layers import DepthwiseConv2d, Pointwise

pytestmark = pytest.mark.quick

LAYER = DepthwiseConv2d(1, 8, 6, 6, 3)
NAIVE = registry.stage("depthwise2d/forward/naive")


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

    def options_for(self, problem):
        return ()

    def config(self, problem):
        return None


def job_of(id, types):
    return process.Job(id, id, LAYER, None, b"", types)


GPU = SimpleNamespace(get_current_device=lambda: SimpleNamespace(compute_capability=(9, 0)))


@pytest.fixture
def answers(monkeypatch):
    """Processes that answer at once: a payload for each job, None for stages called "bad", nothing with "dead"."""
    started = []

    def start(answer, cc, jobs):
        started.append([one.stage for one in jobs])
        return [None if one.stage == "bad" else f"made {one.stage}".encode() for one in jobs]

    monkeypatch.setattr(process, "start", start)
    monkeypatch.setattr(process, "answers", lambda one, seconds: ([] if b"made dead" in one else one, ""))
    monkeypatch.setattr(ahead, "rebuilt", lambda payload: payload.decode())
    monkeypatch.setattr(target, "cuda", GPU, raising=False)
    return started


def test_each_kernel_is_compiled_once_and_shared_out(answers):
    one, two, three = (Stage(name, Kernel()) for name in ("a", "b", "c"))
    wanted = [
        (one, LAYER, (1,)), (two, LAYER, (1.0,)), (one, LAYER, (2,)), (three, LAYER, ("x",)), (one, LAYER, (1.5,)),
    ]  # fmt: skip
    assert ahead.compile_all(iter(wanted), processes=2) == 4
    assert [len(share) for share in answers] == [2, 2] and sorted(sum(answers, [])) == ["a", "a", "b", "c"]
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


def process_of(text, **more):
    return subprocess.Popen([sys.executable, "-c", text], stdin=-1, stdout=-1, stderr=-1, **more)


def test_a_process_that_ends_early_answers_what_it_has():
    assert process.answers(process_of("raise SystemExit(3)"), 60) == ([], "ended with status 3: no message")
    slow = process_of("import time; time.sleep(60)")
    assert process.answers(slow, 0.2) == ([], "gave no answer within 0 s") and slow.returncode is not None
    begun = "import pickle, sys, time; out = sys.stdout.buffer; out.write(pickle.dumps(b'one') + pickle.dumps(None)); "
    for rest in ("out.write(pickle.dumps(b'two' * 99)[:50]); out.flush(); time.sleep(60)", "raise SystemExit(1)"):
        assert process.answers(process_of(begun + rest), 2)[0] == [b"one", None]


def test_answers_longer_than_a_pipe_holds_are_read_from_all_processes_at_once(monkeypatch):
    """Each of two processes writes 1 MB before it ends; the first ends only once the second has."""
    ready, write = os.pipe()
    texts = (
        f"import os, pickle, sys; os.read({ready}, 1); sys.stdout.buffer.write(pickle.dumps(b'a' * 2**20))",
        f"import os, pickle, sys; sys.stdout.buffer.write(pickle.dumps(b'b' * 2**20)); os.write({write}, b'.')",
    )
    monkeypatch.setattr(target, "cuda", GPU, raising=False)
    started = [process_of(text, pass_fds=(ready, write)) for text in texts]
    monkeypatch.setattr(process, "start", lambda *what: started.pop(0))
    found = ahead.compiled([job_of("a", ()), job_of("b", ())], processes=2, seconds=20)
    assert found == [b"a" * 2**20, b"b" * 2**20]


def test_what_was_saved_is_loaded_into_the_kernels_of_stages(tmp_path, monkeypatch):
    new, known = Stage("new", Kernel()), Stage("known", Kernel(("int",)))
    monkeypatch.setattr(registry, "stage", lambda id: {"new": new, "known": known}[id])
    monkeypatch.setattr(ahead, "rebuilt", lambda payload: payload.decode())
    jobs = [job_of(id, (kind,)) for id, kind in (("new", "int"), ("new", "float"), ("known", "int"))]
    ahead.save(tmp_path / "kernels", jobs, [b"made", None, b"again"])
    assert ahead.load(tmp_path / "kernels") == 2
    assert new.kernel.overloads == {("int",): "made"}  # what could not be compiled is not there
    assert known.kernel.overloads == {("int",): None}  # and what was there stays


def test_a_job_names_the_tile_that_a_stage_was_given(monkeypatch):
    """Not the one that the other process would choose; what was saved goes to that tile's kernel. Of a kernel that is
    not the registry's there is no job."""
    one, layer = registry.stage("pointwise/forward/tensor"), Pointwise(1, 64, 64, 8, 8, "NHWC", "float16")
    chosen = one.config(layer)
    other = next(tile for tile in one.tiles.configs(layer.kernel_key, 1, gpus.of(None)) if tile != chosen)
    seen = []
    monkeypatch.setattr(ahead, "compiled", lambda jobs, processes: seen.extend(jobs) or [None] * len(jobs))
    monkeypatch.setattr(registry.Stage, "kernel_for", lambda self, problem: Kernel())
    monkeypatch.setattr(ahead, "types_of", lambda stage, problem: ())
    ahead.compile_for([(one.with_config(other), layer), (one, layer), (replace(one, kernel=Kernel()), layer)])
    assert {job.config for job in seen} == {other, chosen}
    monkeypatch.undo()
    first, second = (job.kernel() for job in seen)
    assert first is one.with_config(other).kernel_for(layer) and second is one.kernel_for(layer) is not first


@needs_compiler
@pytest.mark.parametrize(
    "id, problem",
    [
        ("depthwise2d/forward/columns", DepthwiseConv2d(1, 8, 6, 6, 3, layout="NHWC", dtype="float16", bias=True)),
        ("depthwise2d/forward/naive", LAYER),
        ("depthwise1d/weight_grad/channels", DepthwiseConv1d(2, 3, 16, 5, dtype="float16")),
        ("depthwise1d/forward/naive", DepthwiseConv1d(2, 3, 16, 5)),
    ],
)
def test_types_are_those_of_the_arrays_that_a_launch_passes(id, problem):
    from numba import typeof

    stage = registry.stage(id)
    assert ahead.types_of(stage, problem) == tuple(typeof(one) for one in stage.example(problem))


# What `rebuilt` makes of the payloads, in a process in which numba.cuda stands in for a GPU as the compiler's does.
CHECK = """
import pickle, sys
from dwlab.compiler import inspect, precompile as ahead, process
cc, payload, types = pickle.load(sys.stdin.buffer)
process.stand_in(cc)
from dwlab.kernels import registry
from dwlab.problems.layers import DepthwiseConv2d
kernel = registry.stage("depthwise2d/forward/naive").kernel_for(DepthwiseConv2d(1, 8, 6, 6, 3))
made = ahead.rebuilt(payload)
kernel.add_overload(made, types)
assert kernel.compile(types) is made
library = made._codelibrary
assert ".entry" in library.get_asm_str()  # what inference looks into
code = bytes(library.get_cubin(library._ensure_cc(None)).code)
print(inspect.sections(code).keys())
"""


@needs_compiler
def test_a_payload_becomes_a_kernel_with_its_code():
    from numba import types

    arguments = tuple(types.Array(types.float32, 1, "C") for _ in range(6))
    jobs = [job_of(NAIVE.id, arguments), job_of(NAIVE.id, arguments[:2])]  # the second lacks arguments
    payload, none = process.answers(process.start(ahead.payload_of, (9, 0), jobs), 120)[0]
    assert none is None and payload
    given = pickle.dumps(((9, 0), payload, arguments))
    done = subprocess.run([sys.executable, "-c", CHECK], input=given, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert b".text." in done.stdout


LINKED = """
import struct
from dwlab.compiler import precompile as ahead, process
process.stand_in((9, 0))
from dwlab.kernels import levels, registry
from dwlab.kernels.tiling import gpu as gpus
from dwlab.problems.layers import Pointwise

def code(made):  # what is executable of an ELF file: names are of other lengths
    elf = bytes(made.library.get_cubin((9, 0, "a")).code)
    (start,), (size, count) = struct.unpack_from("<Q", elf, 0x28), struct.unpack_from("<HH", elf, 0x3A)
    heads = (struct.unpack_from("<IIQQQQ", elf, start + size * i) for i in range(count))
    return [elf[at : at + length] for _, _, flags, _, at, length in heads if flags & 4]

problem = Pointwise(1, 64, 64, 7, 7, layout="NHWC")
with gpus.using(gpus.H200):
    stage = registry.stage("pointwise/forward/tensor")
    kernel, types, threads = stage.kernel_for(problem), ahead.types_of(stage, problem), stage.launch(problem).threads
for options in ({"max_registers": 40}, {"min_blocks": 4}, {"max_registers": 64, "fastmath": 1}):
    options = levels.DEFAULT | options
    wanted, same = (levels.made(kernel, its, threads) for its in (options, levels.unlimited(options)))
    right, other = process._compiled(wanted, types), process._compiled(same, types)
    again = ahead.rebuilt(ahead.packed(other, texts=True))
    again = ahead.linked_again(again, wanted.targetoptions.get("max_registers"), options["min_blocks"])
    assert code(again) == code(right) != code(other), options
"""


@needs_compiler
def test_a_kernel_linked_again_with_other_limits_is_the_one_compiled_with_them():
    done = subprocess.run([sys.executable, "-c", LINKED], capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
