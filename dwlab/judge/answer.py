"""A student's file in a process of its own, and what its judge sees of it: numbers, functions, kernels.

The file runs in a child process (`python -m dwlab.judge.answer FILE SECONDS`), the judge does not. Numbers, strings,
arrays and tuples, lists and dictionaries of them come back as plain ones. A function stays where it is: a call sends
the arguments there and brings its result back. A kernel comes over with the functions and values that it names, and is
interpreted in the judge's process: nothing that the file patches changes what is counted or compared.

That, the limits and `_guard` stop mistakes, loops without an end and answers that are looked up, not an attacker:
strangers' files are graded where there is a `fence` (docs/teaching.md).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import linecache
import math
import numbers
import os
import pickle
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
# An installed package brings the lessons and exercises (setup.py); in a checkout they are beside it.
WORKBOOK = next((place for place in [ROOT / "dwlab" / "workbook"] if place.is_dir()), ROOT)
JUDGES = WORKBOOK / "exercises" / "judges"
SHOWN_OUTPUT = 2_000  # characters of a student's own prints that are kept
WALL_LIMIT_S = 300  # of one request, against files that sleep: what computes is stopped by its CPU time
ASLEEP_S = 20  # without any CPU time used, where the system says so: it sleeps
MOST_BITS = 10_000  # of a whole number
MOST_BYTES = 4 << 30  # of memory
MOST_PRINTED = 1 << 28
_MODULE = "dwlab_answer"


class Wrong(Exception):
    """Raised by a judge: what is wrong, with what was counted, and hints in steps."""

    def __init__(self, message: str, hints: Sequence[str] = ()):
        super().__init__(message)
        self.hints = tuple(hints)
        for hint in self.hints[:1]:
            self.add_note(f"Hint: {hint}")  # which the cell of a lesson shows


class Unsolved(Wrong):
    """Raised by a judge: nothing has been filled in."""


class Raised(Exception):
    """The student's code raised: `status` and the text are what the student reads, `names` the error's classes."""

    def __init__(self, text: str, status: str = "error", names: tuple[str, ...] = ()):
        super().__init__(text)
        self.status = status
        self.names = names


class Ended(Exception):
    """The student's process is gone: `status` is its exit status, None if it was stopped at its time limit."""

    def __init__(self, status: int | None):
        super().__init__(status)
        self.status = status


class Hidden:
    """A table that is only looked up, `table[key]`; more than `limit` look-ups are Wrong, with `text`."""

    def __init__(self, values: dict, limit: int, text: str, hints: Sequence[str] = ()):
        self.__values, self.__left, self.__wrong = values, limit, (text, tuple(hints))

    def __getitem__(self, key: Any) -> Any:
        self.__left -= 1
        if self.__left < 0:
            raise Wrong(*self.__wrong)
        return self.__values[key]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError("this table is only looked up, table[key]: it has no list, no length and no methods")

    def _refused(self, *_: Any) -> Any:
        return self.__getattr__("")

    __len__ = __iter__ = __contains__ = _refused


@dataclass(frozen=True)
class Other:
    """Something that is no plain data: its type's name and what repr says."""

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


def plain(value: Any) -> Any:
    """A value in Python's and NumPy's own types: `class Yes(float)` is a float. What has no such form is an Other."""
    if value is None or value is True or value is False or value is Ellipsis:
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biufc":
        own = value.dtype in (np.int64, np.float64, np.complex128, np.bool_)  # Python has these itself
        return value.item() if own else np.asarray(value)[()]
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return np.array(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        bits = int.bit_length(value)  # Python would not show more of them
        return int.__int__(value) if bits <= MOST_BITS else Other("int", f"a number of {bits:,} bits")
    if isinstance(value, numbers.Real):
        return float.__float__(value if isinstance(value, float) else float(value))
    if isinstance(value, complex):
        return complex.__complex__(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, (tuple, list)):
        kind = tuple if isinstance(value, tuple) else list
        return kind(plain(one) for one in kind.__iter__(value))
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in dict.items(value)}
    return Other(type(value).__name__, repr(value)[:200])


def many(number: float, unit: str) -> str:
    """ "1 request", "2 requests": a number with its unit, of which the first word is a plural."""
    first, *rest = unit.split(" ")
    if number == 1 and first.isalpha() and len(first) > 3 and first.endswith("s"):
        first = first[:-2] if first.endswith("sses") else first[:-1]
    return f"{number:,} {' '.join([first, *rest])}"


# kernels, from one process to the other


def _packed(kernel: Any, module: ModuleType) -> bytes:
    """A kernel with all that it names. The judge needs no module of the answer's to unpack it."""
    from numba import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if isinstance(python := getattr(value, "py_func", None), FunctionType):
                return jitted, (python, *options(value))
            if type(value).__name__ == "DeviceName":
                return _device_name, (value.path,)
            if type(value).__module__ == _MODULE:
                return _itself, (plain(value),)
            return super().reducer_override(value)

    cloudpickle.register_pickle_by_value(module)
    try:
        Pickler(file := io.BytesIO()).dump(kernel)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


def options(kernel: Any) -> tuple[bool, dict[str, Any]]:
    """Whether it is a device function, and how else cuda.jit was called."""
    given = getattr(kernel, "options", None) or getattr(kernel, "targetoptions", None) or {}
    kept = ("fastmath", "max_registers", "launch_bounds", "opt")
    device = bool(getattr(kernel, "device", False) is True or given.get("device"))
    return device, {name: plain(given[name]) for name in kept if given.get(name) is not None}


def jitted(python: FunctionType, device: bool, options: dict[str, Any]) -> Any:
    from dwlab.target import cuda

    return cuda.jit(device=True, **options)(python) if device else cuda.jit(**options)(python)


def _device_name(path: str) -> Any:
    from dwlab.simt import cuda

    value: Any = cuda
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _itself(value: Any) -> Any:
    return value


# in the student's process


class _Stopped(BaseException):
    """Raised in place of an os function, as if the process had been stopped there."""


def failure(error: BaseException, file: Path) -> dict[str, Any]:
    """Status and one line for what a student's code raised."""
    text = " ".join(str(error).split())
    for name, how in _IMPORTED.items():
        if f"name {name!r} is not defined" in text:
            text += f": import it above, `{how}`"
    where = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
    at = f"Line {where[-1].lineno}, `{where[-1].line}`: " if where else ""
    if isinstance(error, MemoryError) and not text:
        text = f"more than {MOST_BYTES >> 30} GiB; a loop that does not end, or too many cases at a time"
    status, message = "error", f"{at}{type(error).__name__}: {text}".rstrip(": ")
    if "dwlab.simt" in sys.modules:
        from dwlab import simt

        if isinstance(error, simt.StepLimitError):
            status, message = "timeout", f"The kernel does not end, or is far too slow: {text}"
        elif isinstance(error, simt.SimtError):
            status, message = "wrong", f"The kernel does not run as it should: {text}"
    return {"status": status, "message": message, "names": tuple(c.__name__ for c in type(error).__mro__)}


_IMPORTED = {
    "math": "import math",
    "np": "import numpy as np",
    "cuda": "from dwlab import cuda",
    "ptx": "from dwlab.kernels.parts import ptx",
    **{name: f"from numba import {name}" for name in ("float32", "float64", "int8", "int32", "int64", "uint32")},
}


def load(file: Path, name: str) -> ModuleType:
    """A file as a module called `name`."""
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # inspect finds a kernel's source through its module
    spec.loader.exec_module(module)
    return module


class Served:
    """A student's file, loaded in this process, that answers requests.

    Requests: ("load",); ("value", name); ("call", name, arguments, name of a function of os that fails or None).
    """

    def __init__(self, file: Path):
        self.file = file
        self.module: ModuleType | None = None

    def ask(self, request: tuple) -> dict[str, Any]:
        """The reply, whatever the file does."""
        try:
            return getattr(self, f"_{request[0]}")(*request[1:])
        except _Stopped:
            return {"stopped": True}
        except Wrong as wrong:
            return {"wrong": str(wrong), "hints": wrong.hints}
        except BaseException as error:  # a student's file may raise anything, SystemExit too
            return failure(error, self.file)

    def close(self) -> str:
        """Returns what the file printed: nothing is kept here."""
        return ""

    def _load(self) -> dict[str, Any]:
        self.module = load(self.file, _MODULE)
        return {}

    def _value(self, name: str) -> dict[str, Any]:
        if not hasattr(self.module, name):
            return {"missing": True}
        value = getattr(self.module, name)
        if isinstance(getattr(value, "py_func", None), FunctionType):
            return {"kernel": _packed(value, self.module)}
        return {"function": True} if callable(value) else {"value": plain(value)}

    def _call(self, name: str, arguments: tuple, fails: str | None) -> dict[str, Any]:
        def stop(*_: object, **__: object) -> None:
            raise _Stopped

        real = getattr(os, fails, None) if fails else None
        # the file may know it by a name of its own: from os import replace
        places = [(os, fails), *((self.module, n) for n, v in vars(self.module).items() if real and v is real)]
        for place, known in places if real else ():
            setattr(place, known, stop)
        try:
            result = getattr(self.module, name)(*arguments)
        finally:
            for place, known in places if real else ():
                setattr(place, known, real)
        # What a call may have changed of its arguments: arrays, and the look-ups of a table.
        after = [plain(a) if isinstance(a, np.ndarray) else getattr(a, "lookups", None) for a in arguments]
        return {"value": plain(result), "after": after}


def _serve(file: Path, seconds: float, home: Path) -> None:
    """The student's process: requests come where standard input was, replies go where standard output was."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the file prints goes to one place
    _limit(seconds)
    sys.argv = [str(file)]  # what a student's file sees when it is run
    key = requests.read(16)
    _guard(file, home)
    served = Served(file)
    with contextlib.suppress(EOFError):
        while True:
            reply = served.ask(pickle.load(requests))
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            replies.write(key)
            pickle.dump(reply, replies)
            replies.flush()
    os._exit(0)  # threads or exit handlers of a student's file have no say any more


# What else than open changes a file, and how many paths each gets.
_CHANGES = dict.fromkeys("os.remove os.truncate os.mkdir os.rmdir os.chmod sqlite3.connect".split(), 1)
_CHANGES |= dict.fromkeys("os.rename os.link os.symlink".split(), 2)


def _guard(file: Path, home: Path) -> None:
    """Refuses, from here on, to open solutions and judges of the workbook, but for the file itself if it is one, and
    to change what lies outside of `home`."""
    closed = tuple(os.path.realpath(place) + os.sep for place in (ROOT / "solutions", ROOT / ".git", JUDGES))
    own, inside = os.path.realpath(file), os.path.realpath(home) + os.sep
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

    def hook(event: str, given: tuple) -> None:
        changed = given[: _CHANGES.get(event, 0)]
        if event == "open" and isinstance(given[0], (str, bytes, os.PathLike)):
            path = os.path.realpath(os.fsdecode(given[0]))
            if path.startswith(closed) and path != own:
                raise PermissionError(
                    "an answer is written, not looked up: it may not open the solutions or the judges"
                )
            if path != os.path.realpath(os.devnull) and (given[2] or 0) & writing:
                changed = given[:1]
            # A name may be meant from a folder's descriptor, which is not told: there are those of folders inside.
            name = Path(os.fsdecode(given[0]))
            changed = given[:1] if os.path.isdir(path) else changed
            changed = [os.sep] if os.pardir in name.parts and not name.is_absolute() else changed
        # A descriptor was looked at when it was opened.
        named = [os.path.realpath(os.fsdecode(one)) for one in changed if not isinstance(one, int)]
        if not all(f"{one}{os.sep}".startswith(inside) for one in named):
            raise PermissionError("an answer may write in the folder that it runs in, and name it, and nowhere else")

    sys.addaudithook(hook)


def _limit(seconds: float) -> None:
    """Ends this process once it has computed for so long or has printed too much; MemoryError beyond MOST_BYTES.

    As far as the system can: Windows knows none of it, and only Linux the memory.
    """
    try:
        import resource
    except ImportError:
        return
    most = math.ceil(time.process_time() + seconds)
    limits = {resource.RLIMIT_CPU: most, resource.RLIMIT_FSIZE: MOST_PRINTED}
    if sys.platform == "linux":
        limits[resource.RLIMIT_DATA] = MOST_BYTES
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY or hard > limit:
            resource.setrlimit(kind, (limit, hard))


# in the judge's process


class Child:
    """A student's file in a process of its own. Raises Ended where the process does not answer any more."""

    def __init__(self, file: Path, seconds: float, home: str):
        self.printed = tempfile.TemporaryFile()
        within = [*fence(), "--bind", home, home] if fence() else []
        self.process = subprocess.Popen(
            [*within, sys.executable, "-m", "dwlab.judge.answer", str(file.resolve()), str(seconds), home],
            cwd=tempfile.mkdtemp(dir=home), env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.printed, start_new_session=os.name == "posix",
        )  # fmt: skip
        self.key = secrets.token_bytes(16)  # before each reply: what the file writes to the pipe is none
        self.process.stdin.write(self.key)
        self.waiting_since = 0.0  # 0 while no reply is awaited
        self.slept = False
        self.closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """Ends a process that sleeps in a request, or takes for ever by the clock."""
        before = None
        while not self.closed.wait(min(ASLEEP_S, WALL_LIMIT_S)):
            now = (self.waiting_since, _ticks(self.process.pid))
            late = self.waiting_since and time.monotonic() - self.waiting_since > WALL_LIMIT_S
            if late or (self.waiting_since and now[1] and now == before):
                self.slept = True
                return stop(self.process)
            before = now

    def ask(self, request: tuple) -> dict[str, Any]:
        """The reply to a request. Raises Ended."""
        self.waiting_since = time.monotonic()
        try:
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()
            if self.process.stdout.read(16) not in (self.key, b""):
                raise Raised("The file wrote to the pipe that is the judge's: an answer gives no verdict on itself.")
            return pickle.load(self.process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise self._ended() from None
        finally:
            self.waiting_since = 0.0

    def _ended(self) -> Ended:
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:  # it closed its output and goes on
            status = 0
        status = 128 - status if fence() and status > 128 else status  # as bubblewrap says a signal
        return Ended(None if self.slept or -status == getattr(signal, "SIGXCPU", 0) else status)

    def close(self) -> str:
        """Ends the process and, where the system can, whatever it started. Returns what was printed, cut short."""
        self.closed.set()
        stop(self.process)
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.printed.seek(0)
        text = self.printed.read(4 * SHOWN_OUTPUT).decode("utf-8", "replace")
        self.printed.close()
        text = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
        return text if len(text) <= SHOWN_OUTPUT else text[:SHOWN_OUTPUT] + "\n... (more was printed)"


def environment(home: str = "") -> dict[str, str]:
    """Environment variables of a process that judges; of one that runs an answer, with the folder that it may write
    to, which are no more than it needs: others may hold what nobody should read."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
    if not home:
        return {**os.environ, **own}
    needed = ("PATH", "LANG", *(("SYSTEMROOT",) if os.name == "nt" else ()))
    kept = {name: one for name, one in os.environ.items() if name in needed or name.startswith("DWLAB_")}
    return kept | own | {"HOME": home, "TMPDIR": home}


@functools.cache
def fence() -> tuple[str, ...]:
    """The words before a command that is to write nothing and reach no network: bubblewrap, where it works."""
    options = "--ro-bind / / --dev-bind /dev /dev --proc /proc --unshare-all --die-with-parent"
    made = (shutil.which("bwrap") or "", *options.split())
    works = made[0] and subprocess.run([*made, sys.executable, "-c", ""], capture_output=True).returncode == 0
    return made if works else ()


def stop(process: subprocess.Popen) -> None:
    """Ends a process and its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()


def _ticks(group: int) -> list[list[str]]:
    """The CPU times of a group of processes, as Linux counts them; [] elsewhere."""
    found = []
    for one in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # its end
            found.append(one.read_text().rpartition(")")[2].split())
    return [state[11:13] for state in found if state[2:3] == [str(group)]]


class Function:
    """A function of the answer: called here, it runs in the answer's process, and its arrays come back as it left them.

    Raises Raised for what it raises.
    """

    def __init__(self, answer: Answer, name: str):
        self._answer, self.__name__ = answer, name

    def __call__(self, *arguments: Any, fails: str | None = None) -> Any:
        try:
            reply = self._answer.ask("call", self.__name__, arguments, fails)
        except Raised as raised:
            if raised.status != "error":
                raise
            call = f"{self.__name__}({', '.join(map(_shown, arguments))})"
            raise Raised(f"{raised}, in {call}", raised.status, raised.names) from None
        for one, after in zip(arguments, reply.get("after", ()), strict=False):
            if isinstance(one, np.ndarray):
                one[...] = after if after.shape == one.shape else np.nan
            elif after is not None:
                one.lookups = after
        return STOPPED if reply.get("stopped") else reply["value"]


def _shown(argument: Any) -> str:
    """An argument of a call, in a few words."""
    if isinstance(argument, np.ndarray):
        return f"array of shape {argument.shape}"
    text = "…" if isinstance(argument, Hidden) else repr(argument)
    return text if len(text) <= 60 else text[:57] + "..."


STOPPED = object()  # what a Function gives if it came to the function of os that fails


class Answer:
    """An answer as its judge sees it: a file's values, functions and kernels by name, and numbers drawn from a seed.

    here: load the file in this process. For answers that harm nobody, as the project's own tests have them. home: the
    folder that it may write to.
    """

    def __init__(self, file: Path, text: str, seed: int, seconds: float, here: bool = False):
        self.file, self.seconds, self.here = file, seconds, here
        self.random = np.random.default_rng(seed)
        self.drew = False
        self.task: ModuleType | None = None  # the judge that this is for
        self.launches: list[Any] = []  # reports of the launches that it has counted
        self.why: list[str] = []  # how numbers come about that were right
        self.output = ""
        # What the file writes goes away with this folder.
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.home = self._home.name
        # Kernels are interpreted by their source: let it be the text that was read first, not what is there now.
        linecache.cache[str(file)] = (len(text), None, [f"{line}\n" for line in text.split("\n")], str(file))
        self._process: Child | Served | None = None
        self.restart()

    def restart(self) -> None:
        """Begins with a new process, that knows nothing of the old one."""
        self._end()
        self._process = Served(self.file) if self.here else Child(self.file, self.seconds, self.home)
        self.loaded = False

    def close(self) -> None:
        """Ends the process, and takes away what it wrote."""
        self._end()
        self._home.cleanup()

    def _end(self) -> None:
        if self._process is not None:
            self.output += self._process.close()
            self._process = None

    def ask(self, *request: Any) -> dict[str, Any]:
        """A reply. Raises Raised with what the student's code raised, or Ended."""
        if not self.loaded:
            self.loaded = True
            self._checked(self._process.ask(("load",)))
        return self._checked(self._process.ask(request))

    def _checked(self, reply: dict[str, Any]) -> dict[str, Any]:
        if "wrong" in reply:
            raise Wrong(reply["wrong"], reply["hints"])
        if "message" in reply:
            raise Raised(reply["message"], reply["status"], reply["names"])
        return reply

    def given(self, name: str) -> Any:
        """The value, Function or kernel called `name`. Raises AttributeError if the file has none."""
        reply = self.ask("value", name)
        if "missing" in reply:
            raise AttributeError(name)
        if "kernel" not in reply:
            return Function(self, name) if "function" in reply else reply["value"]
        kernel = pickle.loads(reply["kernel"])
        code = kernel.py_func.__code__
        if Path(code.co_filename) != self.file:
            raise Raised(f"`{code.co_name}` is not written in {self.file.name}: write it there.", "wrong")
        return kernel


if __name__ == "__main__":
    # The package's own module, not this __main__.
    from dwlab.judge import answer

    answer._serve(Path(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]))
