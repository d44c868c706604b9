"""A bench in a process of its own: a candidate that hangs, or takes the GPU's context with it, costs itself alone.

The process is started when it is first needed and again after each loss; what it had compiled is then made anew. A
candidate without an answer in its time is "timeout", one that ends the process, or after which the GPU answers nothing
but errors, "crashed"; one whose process takes more than its memory is "memory".

Where several workers share a GPU, each holds the `GpuLock` while it uses it. One that keeps it for too long has hung on
the GPU: it is ended, and the others go on.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from dwlab.records.journal import Candidate, locked, text
from dwlab.tuning.race import Out
from dwlab.tuning.search import Bench

SECONDS = 60.0
"""Seconds of the clock for each answer: compiling a candidate takes the most of it."""

START_SECONDS = 300.0
"""For the process to start and make its bench."""

HELD_SECONDS = 10.0
"""For which one worker of several may keep the GPU to itself: a check or a round takes well below one."""

_NO_BENCH = "the bench cannot be made"


class WorkerError(ValueError):
    """Something that another process cannot be given, as a lambda or an inner function; or one that does not start."""


class Lost(RuntimeError):
    """A GPU's context that is lost: nothing runs in this process any more. candidate: whose doing it was."""

    def __init__(self, message: str, candidate: Candidate):
        super().__init__(message)
        self.candidate = candidate


class GpuLock:
    """A GPU that several processes use one after the other: a context manager, which one process at a time is within,
    as often as it likes.

    path: a file that they share. A process that is killed gives it back, for the lock is the file's. The file
    says who has the lock, and since when.
    """

    def __init__(self, path: str | os.PathLike[str], seconds: float = HELD_SECONDS):
        self.path, self.seconds = Path(path), seconds
        self._within: Any = None
        self._times = 0

    def __enter__(self) -> GpuLock:
        if not self._times:
            self._within = contextlib.ExitStack()
            file = self._within.enter_context(open(self.path, "ab", buffering=0))
            self._within.enter_context(locked(file))
            file.truncate(0)
            file.write(f"{os.getpid()} {time.monotonic()}".encode())
        self._times += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._times -= 1
        if not self._times:
            os.truncate(self.path, 0)
            self._within.close()

    def is_over(self, pid: int) -> bool:
        """Whether this process has had the lock for longer than it may."""
        with contextlib.suppress(OSError, ValueError):
            who, since = self.path.read_text().split()
            return int(who) == pid and time.monotonic() - float(since) > self.seconds
        return False


class Remote:
    """A Bench whose answers come by `_ask(what, candidate)`, from wherever they are made."""

    exact = False

    def begin(self) -> None:
        """Starts what gives the answers, once. Raises WorkerError if that fails, which is no candidate's fault."""

    def close(self) -> None:
        """Ends what it has begun."""

    def judge(self, candidate: Candidate) -> None:
        """Whether its outputs are right, see Bench."""
        self._ask("judge", candidate)

    def time_us(self, candidate: Candidate) -> float:
        """One round, see Bench."""
        return self._ask("time_us", candidate)

    def resources(self, candidate: Candidate) -> dict[str, float]:
        """Registers, shared memory and so on, see Bench."""
        return self._ask("resources", candidate)

    def _ask(self, what: str, candidate: Candidate) -> Any:
        raise NotImplementedError


class Inline(Remote):
    """A Bench in this process: what a candidate raises ends that candidate. Raises Lost where the GPU is lost with it.

    A candidate that hangs hangs here.
    """

    def __init__(self, bench: Bench):
        self.bench = bench
        self.exact = getattr(bench, "exact", False)

    def _ask(self, what: str, candidate: Candidate) -> Any:
        answer, out, is_lost = _answered(self.bench, what, candidate)
        if is_lost:
            raise Lost(
                f"{text(candidate)} took the GPU's context with it ({out[1]}): tune in a process of its own", candidate
            )
        if out:
            raise Out(*out)
        return answer


class Worker(Remote):
    """A Bench whose work another process does. make: () -> Bench, a function of a module or a partial of one.

    lock: of the GPU, which the bench takes while it uses it. Use it as a context manager: the process ends with it.
    exact is as its bench has it: who makes it sets it. losses: processes that were lost. seconds, gigabytes: for each
    answer, and of this machine's memory for the whole process, some 0.3 before any candidate. script: whether the
    process runs this one's script first, as functions of it need. Raises WorkerError where such a limit cannot be, or
    cannot be watched.
    """

    def __init__(
        self,
        make: Callable[[], Bench],
        seconds: float = SECONDS,
        environment: dict[str, str] | None = None,
        lock: GpuLock | None = None,
        gigabytes: float = math.inf,
        script: bool = True,
    ):
        for name, limit in (("seconds", seconds), ("gigabytes", gigabytes)):
            if not limit > 0:
                raise WorkerError(f"{name}={limit}: a candidate needs more than that")
        if gigabytes < math.inf and not Path("/proc/self/statm").exists():
            raise WorkerError(f"gigabytes={gigabytes:g}: the memory of a process is watched on Linux alone")
        self.make, self.seconds, self.environment, self.lock = make, seconds, dict(environment or {}), lock
        self.gigabytes, self.script = gigabytes, script
        self.losses = 0
        self._process: Any = None
        self._pipe: Any = None
        self._made = False
        self._hopeless: tuple[str, str] = ()  # why the first process did not make its bench

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; another thread may do so at the same time."""
        process, pipe = self._process, self._pipe
        self._process = self._pipe = None
        if process is not None:
            process.kill()
            process.join()
            pipe.close()

    def begin(self) -> None:
        """Starts the process, see Remote."""
        try:
            if not self._made:
                self._start()
        except Out as why:
            need = ": what it runs must be of a module that can be imported, and a script does its work below "
            need = "" if why.reason.startswith(_NO_BENCH) else need + 'if __name__ == "__main__"'
            raise WorkerError(f"the process that candidates run in does not start ({why.reason}){need}") from None

    def _start(self) -> None:
        if self._hopeless:
            raise Out(*self._hopeless)
        here = multiprocessing.get_context("spawn")  # a forked process cannot use a GPU that its parent uses
        self._pipe, theirs = here.Pipe()
        process = here.Process(target=_serve, args=(theirs, self.make), daemon=True)
        try:
            with _starting(self.environment, self.script):
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # depends on what cannot be pickled
            raise WorkerError(
                f"what is to run in another process must be a function of a module, at its top level: {error}"
            ) from error
        self._process = process
        theirs.close()
        try:
            self._answer(START_SECONDS)
        except Out as why:
            if not self._made:  # it will not be made the next time either
                self._hopeless = why.state, why.reason
            raise
        self._made = True

    def _ask(self, what: str, candidate: Candidate) -> Any:
        if self._process is None:
            self._start()
        with contextlib.suppress(OSError):  # of a process that has ended: the answer says so
            self._pipe.send((what, dict(candidate)))
        return self._answer(self.seconds)

    def _answer(self, seconds: float) -> Any:
        until, process, pipe = time.monotonic() + seconds, self._process, self._pipe
        try:
            step = 0.05 if self.gigabytes < math.inf else 1.0 if self.lock else seconds
            while not pipe.poll(max(0.0, min(until - time.monotonic(), step))):
                if self.gigabytes < _gigabytes(process.pid):
                    self._lose("memory", f"its process took more than {self.gigabytes:g} GB")
                if self.lock is not None and self.lock.is_over(process.pid):
                    self._lose("timeout", f"it kept the GPU for {self.lock.seconds:g} s")
                if time.monotonic() >= until:
                    self._lose("timeout", f"no answer in {seconds:g} s")
            answer, out, is_lost = pipe.recv()
        except (EOFError, OSError):
            process.join(5)
            code = process.exitcode
            name = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
            self._lose("crashed", f"its process ended ({name})")
        if is_lost:
            self._lose(*out)
        if out:
            raise Out(*out)
        return answer

    def _lose(self, state: str, reason: str) -> NoReturn:
        self.losses += 1
        self.close()
        raise Out(state, reason)


def _gigabytes(pid: int) -> float:
    """Memory that a process has; 0 where that cannot be seen."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9
    return 0.0


_environ = threading.Lock()


@contextlib.contextmanager
def _starting(environment: dict[str, str], script: bool) -> Iterator[None]:
    """Within it a process that is started has these variables: CUDA_VISIBLE_DEVICES must be there before any import.

    script: whether it runs the script of this one first, as multiprocessing has it.

    Processes that multiprocessing calls daemonic, as Dask's workers are, may start none, lest those be left behind:
    ours ends when its pipe is closed, as it is by any end of its parent.
    """
    with _environ:
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
        daemonic = config.pop("daemon", None)
        before = {name: os.environ.get(name) for name in environment}
        main = vars(sys.modules["__main__"])
        of_script = {} if script else {name: main.get(name) for name in ("__file__", "__spec__")}
        os.environ.update(environment)
        main.update(dict.fromkeys(of_script))
        try:
            yield
        finally:
            if daemonic is not None:
                config["daemon"] = daemonic
            main.update(of_script)
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


Answer = tuple[Any, tuple[str, str], bool]
"""(the answer, (state, reason) of a candidate that is out or (), whether the GPU's context is lost)."""


def _answered(bench: Bench, what: str, candidate: Candidate) -> Answer:
    try:
        return getattr(bench, what)(candidate), (), False
    except Out as why:
        return None, (why.state, why.reason), False
    except (Exception, SystemExit) as error:
        state, is_lost = state_of(error)
        return None, (state, _message(error)), is_lost


def _serve(pipe: Any, make: Callable[[], Bench]) -> None:
    """Answers until the pipe is closed. Ends itself after an error of the GPU: its context is lost with it."""
    with contextlib.suppress(EOFError, OSError):
        try:
            bench = make()
        except Exception as error:
            pipe.send((None, ("crashed", f"{_NO_BENCH}: {_message(error)}"), True))
            return
        answer: Answer = None, (), False
        pipe.send(answer)
        while not answer[2]:
            answer = _answered(bench, *pipe.recv())
            pipe.send(answer)


def state_of(error: BaseException) -> tuple[str, bool]:
    """How a candidate ended that raised this, and whether the GPU's context is lost with it."""
    name, message = type(error).__name__, str(error)
    if "OUT_OF_MEMORY" in message or isinstance(error, MemoryError):
        return "memory", False
    if name in ("CudaAPIError", "CUDAError"):
        return "crashed", "LAUNCH_OUT_OF_RESOURCES" not in message and "INVALID_VALUE" not in message
    if name in ("LinkerError", "NvvmError", "TypingError", "LoweringError", "UnsupportedError", "CompilationError"):
        return "compile", False
    return "crashed", False


def _message(error: BaseException) -> str:
    """An error's first line, after its type."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
