"""Kernels compiled ahead of their first launch, several at a time.

Numba compiles a kernel when it is first launched, one after the other: a network has some twenty, of seconds each. Here
processes of their own compile them (process.py) and send back what Numba's own cache would store; each becomes an
overload of its kernel, as if that had been compiled here. What a process cannot compile is left to the first launch,
whose error says why.
"""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import random
import re
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dwlab import target
from dwlab.compiler import process
from dwlab.compiler.process import InspectError, Job
from dwlab.kernels import registry
from dwlab.kernels.registry import Stage
from dwlab.problems import Problem

PROCESSES = 16
"""At most at a time: each takes some hundred MB of memory."""

SECONDS = 600
"""After which a process is given up, and its kernels are left to the first launch."""

Kernels = dict[tuple[int, Any], tuple[Any, Job]]
"""(a kernel's number, its arguments' types) -> the kernel and its job."""


def compile_all(wanted: Iterable[tuple[Stage, Problem, Sequence[Any]]], processes: int | None = None) -> int:
    """Compiles kernels for the present GPU; returns their number. wanted: stage, problem, the kernel's arguments.

    Kernels that are compiled already, and those of several problems, are compiled once. processes: at most so many (as
    many as this process has CPUs, up to PROCESSES, if None).
    """
    kernels: Kernels = {}
    for stage, problem, args in wanted:
        kernel = stage.kernel_for(problem)
        _want(kernels, stage, problem, kernel, tuple(kernel.typeof_pyval(one) for one in args))
    return _compile(kernels, processes)


def compile_for(wanted: Iterable[tuple[Stage, Problem]]) -> int:
    """compile_all for stages on problems, without their arrays. A stage that does not take its problem is left, and one
    whose kernel is not the registry's, which the other process would take.
    """
    kernels: Kernels = {}
    for stage, problem in wanted:
        with contextlib.suppress(registry.StageError):  # whoever launches it says why
            if stage.kernel is registry.stage(stage.id).kernel:
                _want(kernels, stage, problem, stage.kernel_for(problem), types_of(stage, problem))
    return _compile(kernels)


def _want(kernels: Kernels, stage: Stage, problem: Problem, kernel: Any, types: Any) -> None:
    if types not in kernel.overloads:
        kernels.setdefault((id(kernel), types), (kernel, job_of(stage, problem, types)))


def job_of(stage: Stage, problem: Problem, types: Any = None) -> Job:
    """The job of a stage on a problem. It names the tile: the other process chooses none."""
    types = types_of(stage, problem) if types is None else types
    return Job(stage.id, stage.id, problem, stage.config(problem), b"", types, options=stage.options_for(problem))


def _compile(kernels: Kernels, processes: int | None = None) -> int:
    if processes is None:
        processes = _processes()
    if min(processes, len(kernels)) < 2:
        return 0  # nothing is gained
    done = 0
    mixed = list(kernels.values())
    random.Random(0).shuffle(mixed)  # those that take long often stand at regular places, which would be one share
    payloads = compiled([job for _, job in mixed], processes)
    for (kernel, job), payload in zip(mixed, payloads, strict=True):
        if payload is not None:
            kernel.add_overload(rebuilt(payload), job.arguments)
            done += 1
    return done


def compiled(jobs: Sequence[Job], processes: int | None = None, seconds: float = SECONDS) -> list[bytes | None]:
    """The payload of each job (`rebuilt` makes it a kernel), for the present GPU; None if it could not be compiled.

    Nor could what is not done after so many seconds, of each process that which it had not come to.
    """
    cc, until = tuple(target.cuda.get_current_device().compute_capability), time.monotonic() + seconds
    processes = min(processes or _processes(), len(jobs))
    running = [process.start(payload_of, cc, jobs[first::processes]) for first in range(processes)]
    found: list[bytes | None] = [None] * len(jobs)
    with ThreadPoolExecutor(max(1, len(running))) as pool:  # a process whose answer nobody reads would wait
        answers = pool.map(lambda one: _answers(one, max(0.0, until - time.monotonic())), running)
        for first, answer in enumerate(answers):
            for i, payload in enumerate(answer):
                found[first + i * processes] = payload
    return found


def _processes() -> int:
    return min(PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def types_of(stage: Stage, problem: Problem) -> tuple[Any, ...]:
    """The Numba types of a stage's arguments on a problem, as device arrays have them, without the arrays."""
    from numba import typeof, types
    from numba.np.numpy_support import from_dtype

    how, shapes, view = stage.launch(problem), problem.shapes(stage.path), stage.view_of(problem)
    arrays = []
    for name in problem.slots(stage.path):
        kind = from_dtype(problem.storage_of(name))
        if view in ("elements", "line") and kind.bitwidth == 16:
            kind = types.uint16
        elif view == "words" or problem.op == "depthwise1d":  # whose rows of 16 bits are words in any other view
            kind = types.float32
        arrays.append(types.Array(kind, len(shapes[name]) if view in ("shaped", "elements") else 1, "C"))
    if how.parts:  # the workspace
        arrays[-1] = types.Array(types.float32, len(shapes[problem.arrays(stage.path)[-1]]) + 1, "C")
    return (*arrays, *(typeof(scalar) for scalar in how.scalars))


def _answers(one: Any, seconds: float) -> list[bytes | None]:
    with contextlib.suppress(InspectError):  # no compiler: the first launch says it
        return process.answers(one, seconds)[0]
    return []


def save(path: str | os.PathLike[str], jobs: Sequence[Job], payloads: Sequence[bytes | None]) -> None:
    """Writes what was compiled, for `load` in another process of the same GPU."""
    with open(path, "wb") as file:
        pickle.dump([(job, payload) for job, payload in zip(jobs, payloads, strict=True) if payload is not None], file)


def load(path: str | os.PathLike[str]) -> int:
    """Makes the kernels of a file of `save` those of their stages here; returns their number."""
    with open(path, "rb") as file:
        found = pickle.load(file)
    for job, payload in found:
        kernel = job.kernel()
        if job.arguments not in kernel.overloads:
            kernel.add_overload(rebuilt(payload), job.arguments)
    return len(found)


def packed(compiled: Any, texts: bool = False) -> bytes:
    """The payload of a compiled kernel: its machine code and PTX, which says whether it waits for the kernel before,
    without the long LLVM IR that they were made of unless `linked_again` takes it (texts).
    """
    states = compiled._reduce_states()
    library = copy.copy(states["codelibrary"])
    library._llvm_strs = library.llvm_strs if texts else []
    return pickle.dumps(states | {"codelibrary": library})


def linked_again(compiled: Any, max_registers: int | None, min_blocks: int) -> Any:
    """A compiled kernel with other limits of registers, without Numba's part of the work. min_blocks: in place of those
    of its launch bounds, if it has some: the rest of its LLVM IR is the same for all. For the present GPU.
    """
    from numba.cuda.dispatcher import _Kernel

    states = compiled._reduce_states()
    library = states["codelibrary"] = copy.copy(states["codelibrary"])
    library._llvm_strs = [re.sub(r'(!"minctasm", i32) \d+', rf"\1 {min_blocks}", one) for one in library.llvm_strs]
    library._ptx_cache, library._ltoir_cache, library._max_registers = {}, {}, max_registers
    library._cubin_cache, library._linkerinfo_cache, library._cufunc_cache = {}, {}, {}
    library.get_cubin(library._ensure_cc(None))
    return _Kernel._rebuild(**states)


def rebuilt(payload: bytes) -> Any:
    """The compiled kernel of what a process sent."""
    from numba.cuda.dispatcher import _Kernel

    return _Kernel._rebuild(**pickle.loads(payload))


def payload_of(job: Job, cc: tuple[int, int]) -> bytes | None:
    """The payload of a job's kernel, made in a compiler's process; None if it cannot be compiled."""
    try:
        made = process.compiled(job)
        made.library.get_cubin(made.library._ensure_cc(None))  # kept in the library, and so in the payload
        return packed(made)
    except Exception:  # whatever is wrong, the first launch says it
        return None
