"""Kernels compiled ahead of their first launch, several at a time.

Numba compiles a kernel when it is first launched, one after the other: a network has some twenty, of seconds each. Here
processes of their own compile them, without touching a GPU (as dwlab.inspect does), and send back what Numba's own
cache would store; each becomes an overload of its kernel, as if that had been compiled here. What a process cannot
compile is left to the first launch, whose error says why.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dwlab import stages, target
from dwlab.problems import Problem
from dwlab.stages import Stage

PROCESSES = 16
"""At most at a time: each takes some hundred MB of memory."""

SECONDS = 600
"""After which a process is given up, and its kernels are left to the first launch."""

Job = tuple[str, Problem, Any]
"""A stage's id, a problem, and the Numba types of the kernel's arguments."""


def compile_all(wanted: Iterable[tuple[Stage, Problem, Sequence[Any]]], processes: int | None = None) -> int:
    """Compiles kernels for the present GPU; returns their number. wanted: stage, problem, the kernel's arguments.

    Kernels that are compiled already, and those of several problems, are compiled once. processes: at most so many (as
    many as this process has CPUs, up to PROCESSES, if None).
    """
    kernels: dict[tuple[int, Any], tuple[Any, Job]] = {}
    for stage, problem, args in wanted:
        kernel = stage.kernel_for(problem)
        types = tuple(kernel.typeof_pyval(one) for one in args)
        if types not in kernel.overloads:
            kernels.setdefault((id(kernel), types), (kernel, (stage.id, problem, types)))
    if processes is None:
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        processes = min(PROCESSES, available)
    shares = [list(kernels.values())[first::processes] for first in range(min(processes, len(kernels)))]
    if len(shares) < 2:
        return 0  # nothing is gained
    cc = tuple(target.cuda.get_current_device().compute_capability)
    done = 0
    running = [(share, _start([job for _, job in share], cc)) for share in shares]
    for share, process in running:
        for (kernel, (_, _, types)), payload in zip(share, _answer(process), strict=False):
            if payload is not None:
                kernel.add_overload(rebuilt(payload), types)
                done += 1
    return done


def rebuilt(payload: bytes) -> Any:
    """The compiled kernel of what a process sent."""
    from numba.cuda.dispatcher import _Kernel

    return _Kernel._rebuild(**pickle.loads(payload))


def _start(jobs: list[Job], cc: tuple[int, int]) -> subprocess.Popen[bytes]:
    """A process that compiles these."""
    places = [str(Path(__file__).resolve().parent.parent), *(place or os.getcwd() for place in sys.path)]
    # Numba's own simulator compiles nothing.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "PYTHONUTF8": "1", "NUMBA_ENABLE_CUDASIM": "0"}
    environment.pop(target.VARIABLE, None)  # `_serve` decides the mode
    process = subprocess.Popen(
        [sys.executable, "-c", "from dwlab.ahead import _serve; _serve()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(OSError), process.stdin:  # it may have ended already: then there is no answer
        process.stdin.write(pickle.dumps((cc, jobs)))
    process.stdin = None
    return process


def _answer(process: subprocess.Popen[bytes]) -> list[bytes | None]:
    """A payload for each kernel, None for one that was not compiled; [] if the process came to nothing."""
    try:
        out, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return []
    return pickle.loads(out) if process.returncode == 0 and out else []


# --- in a compiler's process ------------------------------------------------------------------------------------------


def _serve() -> None:
    """Reads (cc, jobs) from standard input and writes a payload for each, None where it cannot be compiled."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever Numba or a kernel's module prints is no answer
    from dwlab import inspect

    cc, jobs = pickle.load(sys.stdin.buffer)
    inspect._stand_in(cc)
    with out:
        pickle.dump([_payload(*job) for job in jobs], out)


def _payload(id: str, problem: Problem, types: tuple[Any, ...]) -> bytes | None:
    from numba.cuda.dispatcher import _Kernel

    try:
        kernel = stages.stage(id).kernel_for(problem)
        made = _Kernel(kernel.py_func, types, **kernel.targetoptions)
        made.library.get_cubin(made.library._ensure_cc(None))  # kept in the library, and so in the payload
        return pickle.dumps(made._reduce_states())
    except Exception:  # whatever is wrong, the first launch says it
        return None
