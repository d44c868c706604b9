"""Processes that compile kernels, in gpu mode before a stand-in for a device, and answer what came of each.

A process gets jobs and the name of what makes an answer of a job; it answers one after the other, so that what it has
done is there when it ends early. It runs this very package; numba-cuda and the compiler that its extras install are
needed, no GPU and no driver. A stage is imported there anew; a kernel of one's own travels there with all that it
refers to.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import io
import operator
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

from dwlab import target
from dwlab.gpu import driver
from dwlab.gpu import target as deciding
from dwlab.kernels import registry
from dwlab.kernels.tiling import gpu as gpus
from dwlab.kernels.tiling.config import TileConfig
from dwlab.problems import Problem


class InspectError(ValueError):
    """A kernel that cannot be compiled, or a question that cannot be answered; the message says what to do."""


class NoCompilerError(InspectError):
    """numba-cuda or the compiler that its extras install is not here; the message says what to install."""


@dataclass(frozen=True)
class Job:
    """One kernel to compile: a registered stage by its id, problem and tile, any other pickled.

    options: of kernels.levels. arguments: Numba types, or a signature as text. threads, shared_bytes: of its launch.
    notes: sentences for a result.
    """

    name: str
    stage: str
    problem: Problem | None
    config: TileConfig | None
    pickled: bytes
    arguments: Any
    threads: int | None = None
    shared_bytes: int = 0
    notes: tuple[str, ...] = ()
    options: tuple[tuple[str, int], ...] = ()

    def kernel(self) -> Any:
        """The kernel; a function that was pickled is made one."""
        if self.stage:
            one = registry.stage(self.stage)
            return (one.with_config(self.config, self.options) if self.config else one).kernel_for(self.problem)
        found = pickle.loads(self.pickled)
        return found if hasattr(found, "targetoptions") else _jitted(found, {})


# --- here -------------------------------------------------------------------------------------------------------------


def missing() -> str:
    """The reason why kernels can't be compiled here, with what to do; "" as far as can be seen without trying."""
    if importlib.util.find_spec("numba_cuda") is not None:
        return ""
    if sys.platform == "darwin":
        return (
            "numba-cuda, which compiles kernels, has no builds for macOS: use Linux or Windows (a GPU is not needed), "
            "such as a Colab session"
        )
    return f"numba-cuda, which compiles kernels, is not installed. {_install()}"


def _install() -> str:
    extra = f"gpu-cu{driver.query().toolkit or 13}"
    return f"No GPU is needed for it: run pip install -e '.[{extra}]' in the workbook's folder"


def environment() -> dict[str, str]:
    """The variables of a process that compiles as this one would; it decides its mode itself."""
    places = [str(Path(__file__).resolve().parents[2]), *(place or os.getcwd() for place in sys.path)]
    return target.environment() | {
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONUTF8": "1",
        "NUMBA_ENABLE_CUDASIM": "0",  # Numba's own simulator compiles nothing
        **gpus.environment(),  # the tiles that this process has chosen
    }


def start(answer: Callable, cc: tuple[int, int], jobs: Sequence[Job]) -> subprocess.Popen[bytes]:
    """A process that gives answer(job, cc) of these jobs, for a compute capability. answer: a function of a module."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from dwlab.compiler import process; process.serve()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(OSError), process.stdin:  # it may have ended already: then there is no answer
        process.stdin.write(pickle.dumps((cc, answer, list(jobs))))
    process.stdin = None
    return process


def answers(process: subprocess.Popen[bytes], seconds: float) -> tuple[list[Any], str]:
    """(its answers, ""), or as far as they came, and what ended it. Raises InspectError if it could not begin."""
    ended = ""
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, error = process.communicate()
        ended = f"gave no answer within {seconds:.0f} s"
    if process.returncode and not ended:
        last = (error or b"").decode("utf-8", "replace").strip().splitlines() or ["no message"]
        ended = f"ended with status {process.returncode}: {last[-1]}"
    found, stream = [], io.BytesIO(out)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):  # the end, perhaps in the middle of one
        while True:
            found.append(pickle.load(stream))
    if found and isinstance(found[0], InspectError):
        raise found[0]
    return found, ended


# --- in the process ---------------------------------------------------------------------------------------------------


def serve() -> None:
    """Reads (cc, answer, jobs) from standard input and writes the answers, or one error if nothing can be compiled."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever Numba or the kernel's module prints is no answer
    cc, answer, jobs = pickle.load(sys.stdin.buffer)
    with out:
        try:
            stand_in(cc)
        except Exception as error:
            first = (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")  # of a half installed numba-cuda
            why = f"the CUDA compiler does not start: {type(error).__name__}: {first}. {_install()}"
            pickle.dump(error if isinstance(error, InspectError) else NoCompilerError(why), out)
            return
        for job in jobs:
            pickle.dump(answer(job, cc), out)
            out.flush()


def stand_in(cc: tuple[int, int]) -> None:
    """Puts this process into gpu mode with a stand-in for a device.

    Numba reads of the current device its compute capability only, until a kernel is loaded, which never happens here.
    """
    from numba import cuda
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import devices, nvrtc, nvvm
    from numba.cuda.cudadrv import driver as cuda_driver

    nvvm.NVVM()
    if not cuda_driver._have_nvjitlink():
        raise NoCompilerError(f"nvJitLink, which makes SASS from PTX, is not installed. {_install()}")
    known = sorted(nvrtc.get_supported_ccs())
    if cc[:2] not in known:
        older = " ('.[gpu-cu12]' installs one that knows older GPUs)" if cc < known[0] else ""
        raise InspectError(
            f"the compiler of CUDA {_linker()} does not know compute capability {dotted(cc)}, but "
            f"{', '.join(map(dotted, known))}{older}"
        )
    if cc >= (9, 0):
        driver.enter()  # whose kernels may have tensor maps, which a driver makes in a context
    device = SimpleNamespace(compute_capability=cc)
    context = SimpleNamespace(device=device)
    devices.get_context = lambda number=None: context
    dispatcher.get_current_device = lambda: device
    options = cuda_driver.LinkerOptions
    # ptxas then says what it used; of code from the driver's cache, which a machine with a GPU has, it says nothing.
    cuda_driver.LinkerOptions = lambda **given: options(**given, verbose=True, no_cache=True)
    target.cuda = cuda
    vars(deciding).update(mode="gpu", reason="compiling for a device that is not here")


def _linker() -> str:
    from cuda.bindings import nvjitlink

    return dotted(nvjitlink.version())


def compiler() -> str:
    """The compiler's name and version."""
    return f"numba-cuda {importlib.metadata.version('numba-cuda')} and nvJitLink {_linker()}"


def compiled(job: Job) -> Any:
    """Numba's compiled kernel of a job, and with it (`_ensure_cc`) the architecture: (9, 0) becomes (9, 0, "a")."""
    from numba.cuda.core import sigutils

    text = isinstance(job.arguments, str)
    return _compiled(job.kernel(), sigutils.normalize_signature(job.arguments)[0] if text else tuple(job.arguments))


@functools.cache
def _compiled(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """Stages share some."""
    from numba.cuda.dispatcher import _Kernel

    return _Kernel(kernel.py_func, arguments, **kernel.targetoptions)


def explain(error: str, cc: tuple[int, int]) -> str:
    """The meaning of a message of Numba, NVVM or ptxas in one sentence where it is a known one; else the message."""
    if feature := re.search(r"Feature '([^']+)' requires \.target sm_(\d+)", error):
        needs = f"needs compute capability {dotted(divmod(int(feature[2]), 10))} or higher, not {dotted(cc)}"
        return f"it uses the instruction {feature[1]}, which {needs}"
    if ours := re.search(r"ptx\.\w+ needs compute capability [\d.]+\d", error):
        return f"{ours[0]} or higher, not {dotted(cc)}"
    if shared := re.search(r"uses too much shared data \((0x[0-9a-f]+) bytes, (0x[0-9a-f]+) max\)", error):
        requested, most = (int(number, 16) for number in shared.groups())
        return (
            f"its shared arrays take {requested:,} bytes a block, and {most:,} is the most that may be static: make "
            "them smaller, or use dynamic shared memory"
        )
    text = error.strip()
    return text if len(text) <= 2000 else text[:2000] + " …"


def dotted(version: Iterable[int]) -> str:
    """ "9.0" of (9, 0)."""
    return ".".join(map(str, version))


# --- a kernel pickled for there ---------------------------------------------------------------------------------------


def options(kernel: Any) -> dict[str, Any]:
    """The options of cuda.jit that a kernel was made with, simulated or not; {} of a plain function."""
    found = getattr(kernel, "targetoptions", None)
    if found is None:
        found = getattr(kernel, "options", {}) | {"device": getattr(kernel, "device", False)}
    if type(kernel).__name__ == "MLIRDispatcher":  # which lists many more, and what nobody gave
        found = {name: found[name] for name in _OF_BOTH if found.get(name) is not None}
    return dict(found)


_OF_BOTH = ("device", "fastmath", "max_registers", "launch_bounds", "lineinfo", "opt")


def _signatures(kernel: Any) -> list[Any]:
    """(arguments, result) of each signature that a device function was given; none of any other."""
    if hasattr(kernel, "device_signatures"):
        return list(kernel.device_signatures)
    if getattr(kernel, "_can_compile", True):
        return []
    return [(arguments, made.signature.return_type) for arguments, made in kernel.overloads.items()]


def _jitted(function: FunctionType, given: dict[str, Any], signatures: Sequence[Any] = ()) -> Any:
    """The function with cuda.jit's options, made in the compiler's process."""
    from numba import cuda

    if not signatures:
        return cuda.jit(function, **given)  # as a decorator without a signature cuda.jit forgets lto
    made = [result(*arguments) if result is not None else arguments for arguments, result in signatures]
    return cuda.jit(made, **given)(function)


def _name_of_cuda(path: str) -> Any:
    """numba.cuda's own threadIdx, shared.array …, looked up in the compiler's process."""
    return operator.attrgetter(path)(importlib.import_module("numba.cuda"))


def pickled(kernel: Any) -> bytes:
    """A kernel as bytes from which the other process makes the same for numba.cuda. Raises InspectError."""
    from numba.cloudpickle import Pickler

    from dwlab.simt import DeviceName, Kernel
    from dwlab.simt import cuda as simulated

    class ForTheCompiler(Pickler):
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, Kernel) or type(thing).__name__ in ("CUDADispatcher", "MLIRDispatcher"):
                given = options(thing)
                return _jitted, (thing.py_func, given, _signatures(thing) if given["device"] else ())
            if thing is simulated or getattr(thing, "__name__", "") == "numba_cuda_mlir.cuda":
                return importlib.import_module, ("numba.cuda",)
            if isinstance(thing, DeviceName):
                return _name_of_cuda, (thing.path,)
            return super().reducer_override(thing)

    buffer = io.BytesIO()
    try:
        ForTheCompiler(buffer).dump(kernel)
    except Exception as error:  # whatever an object raises that cannot be pickled
        raise InspectError(
            f"{getattr(kernel, '__name__', kernel)} refers to something that cannot be handed to the compiler's "
            f"process: {type(error).__name__}: {error}"
        ) from error
    return buffer.getvalue()
