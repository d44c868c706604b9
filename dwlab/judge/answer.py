"""A student's file in a process of its own, and what its judge sees of it: numbers, functions, kernels.

The file runs in a child process (`python -m dwlab.judge.answer FILE SECONDS`), the judge does not. What comes back is
data. Numbers, strings, arrays and tuples, lists and dictionaries of them are copied, as plain ones. A function stays
where it is: calling it sends the arguments there and brings its result back. Of a kernel come its place in the file and
the values of the names that it uses; the judge makes it anew from the file's text (nothing of it runs for that) and has
it interpreted in its own process. So no statement of the file runs beside the interpreter that counts, the references
or the comparison, and nothing that the file patches, writes or ends changes a verdict.

A file may not open the workbook's solutions or judges (`_guard`). What is not defended: it may count a "prediction"
with dwlab itself, or reach the disk by other ways than Python's own; and what a plain function returns is what its own
process says, however it got there.
"""

from __future__ import annotations

import base64
import builtins
import cmath
import contextlib
import importlib
import importlib.util
import json
import linecache
import math
import numbers
import operator
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CellType, CodeType, FunctionType, ModuleType
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
MOST_REPLY = 1 << 26  # bytes that one reply may have
_MODULES = frozenset("math cmath operator _operator builtins numpy numba numba_cuda dwlab".split())


class Wrong(Exception):
    """Raised by a judge: what is wrong, with what was counted, and hints in steps."""

    def __init__(self, message: str, hints: Sequence[str] = ()):
        super().__init__(message)
        self.hints = tuple(hints)


class Raised(Exception):
    """The student's code raised: `status` and the text are what the student reads, `names` the error's classes."""

    def __init__(self, text: str, status: str = "error", names: tuple[str, ...] = ()):
        super().__init__(text)
        self.status = status
        self.names = names


class Hidden:
    """A table of which an answer sees what it looks up, `table[key]`; more than `limit` of it is Wrong, with `text`.

    It stays in the judge's process: a function of an answer that is called with it sends the key there.
    """

    def __init__(self, values: dict, limit: int, text: str, hints: Sequence[str] = ()):
        self._values, self._left, self._wrong = values, limit, (text, tuple(hints))

    def __getitem__(self, key: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise Wrong(*self._wrong)
        return self._values[key]

    def __reduce__(self):
        return Distant, ()


class Distant:
    """What an answer is given in the place of Hidden, whose values are not in its process."""

    send: Callable[[Any], Any]  # set where the process begins

    def __getitem__(self, key: Any) -> Any:
        found = Distant.send(packed(key))
        if "missing" in found:
            raise KeyError(key)
        return unpacked(found["value"])

    def _refused(self, *_: Any) -> Any:
        raise AttributeError("this table is only looked up, table[key]: it has no list, no length and no methods")

    __getattr__ = __len__ = __iter__ = __contains__ = _refused


class Ended(Exception):
    """The student's process is gone: `status` is its exit status, None if it was stopped at its time limit."""

    def __init__(self, status: int | None):
        super().__init__(status)
        self.status = status


# data, in both directions


@dataclass(frozen=True)
class Other:
    """Something that is no plain data: its type's name and what repr says."""

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


def packed(value: Any) -> Any:
    """A value as JSON. Subclasses become what they are made of: `class Yes(float)` is a float."""
    if value is None or value is True or value is False:
        return value
    if value is Ellipsis:
        return {"is": "ellipsis"}
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        shape = None if isinstance(value, np.generic) else list(value.shape)
        return {"is": "array", "dtype": value.dtype.str, "shape": shape, "value": content}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        if int.bit_length(value) > MOST_BITS:  # Python would not show it
            return {"is": "other", "type": "int", "text": f"a number of {int.bit_length(value):,} bits"}
        return {"is": "int", "value": hex(int.__index__(value))}
    if isinstance(value, float):
        return {"is": "float", "value": float.__float__(value).hex()}
    if isinstance(value, numbers.Real):
        return {"is": "float", "value": float.__float__(float(value)).hex()}
    if isinstance(value, complex):
        return {
            "is": "complex",
            "value": [complex.__complex__(value).real.hex(), complex.__complex__(value).imag.hex()],
        }
    if isinstance(value, bytes):
        return {"is": "bytes", "value": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, (tuple, list)):
        kind = tuple if isinstance(value, tuple) else list
        return {"is": kind.__name__, "value": [packed(v) for v in kind.__iter__(value)]}
    if isinstance(value, dict):
        return {"is": "dict", "value": [[packed(k), packed(v)] for k, v in dict.items(value)]}
    return {"is": "other", "type": type(value).__name__, "text": repr(value)[:200]}


def unpacked(data: Any) -> Any:
    """The value that `packed` made data of."""
    if not isinstance(data, dict):
        return data
    kind, value = data["is"], data.get("value")
    if kind == "array":
        dtype = np.dtype(data["dtype"])
        flat = np.frombuffer(base64.b64decode(value), dtype).copy()
        if data["shape"] is not None:
            return flat.reshape(data["shape"])
        # Python has these itself.
        return flat[0].item() if dtype in (np.int64, np.float64, np.complex128, np.bool_) else flat[0]
    if kind == "int":
        return int(value, 16)
    if kind == "float":
        return float.fromhex(value)
    if kind == "complex":
        return complex(*map(float.fromhex, value))
    if kind == "bytes":
        return base64.b64decode(value)
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(unpacked(v) for v in value)
    if kind == "dict":
        return {unpacked(k): unpacked(v) for k, v in value}
    if kind == "ellipsis":
        return Ellipsis
    return Other(str(data["type"]), str(data["text"]))


# in the student's process: what a kernel is made of


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _find(module: ModuleType, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


class _Describer:
    """Kernels and the functions that they name as data; each function once, by its number."""

    def __init__(self) -> None:
        self.functions: list[dict] = []
        self._numbers: dict[int, int] = {}

    def function(self, function: FunctionType) -> int:
        if id(function) in self._numbers:
            return self._numbers[id(function)]
        number = self._numbers[id(function)] = len(self.functions)
        code = function.__code__
        made = {"name": code.co_name, "line": code.co_firstlineno, "file": code.co_filename}
        self.functions.append(made)
        made["defaults"] = [self.value(v) for v in function.__defaults__ or ()]
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        made["cells"], made["names"] = {}, {}
        for name, cell in cells.items():
            with contextlib.suppress(ValueError):  # not set yet
                made["cells"][name] = self.value(cell.cell_contents)
        used = {name for one in _codes(code) for name in one.co_names}
        for name in sorted(used & function.__globals__.keys()):
            made["names"][name] = self.value(function.__globals__[name])
        return number

    def value(self, value: Any) -> Any:
        """What a name of a kernel stands for."""
        if isinstance(value, ModuleType):
            return {"is": "name", "module": value.__name__, "path": ""}
        if (path := getattr(value, "path", None)) and type(value).__name__ == "DeviceName":
            return {"is": "name", "module": "dwlab.simt.cuda", "path": path}
        python = getattr(value, "py_func", None)
        if (found := self.by_name(value)) is not None:
            return found
        if isinstance(python, FunctionType):
            return {"is": "kernel", "function": self.function(python), **_how(value)}
        if isinstance(value, FunctionType):
            return {"is": "function", "function": self.function(value)}
        if (module := type(value).__module__).startswith("numba.core.types"):
            return {"is": "type", "text": str(value), "module": module}
        if isinstance(value, tuple):
            return {"is": "names", "value": [self.value(v) for v in value]}
        return packed(value)

    def by_name(self, value: Any) -> dict | None:
        """Something that is found under its own name in a module that the judge has as well."""
        import numba

        homes = [builtins, math, cmath, operator, np, numba, sys.modules.get("dwlab.kernels.parts.ptx")]
        if isinstance(value, (bool, int, float, complex, str, bytes, tuple, list, dict, np.ndarray, np.generic)):
            return None
        for home in filter(None, homes):
            name = getattr(value, "__name__", None) or str(value)[:80]
            if isinstance(name, str) and name.isidentifier() and getattr(home, name, None) is value:
                return {"is": "name", "module": home.__name__, "path": name}
        module, path = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(path, str) and module.split(".")[0] in _MODULES:
            with contextlib.suppress(Exception):
                if _find(sys.modules[module], path) is value:
                    return {"is": "name", "module": module, "path": path}
        return None


def _how(kernel: Any) -> dict:
    """How cuda.jit was called."""
    options = getattr(kernel, "options", None) or getattr(kernel, "targetoptions", None) or {}
    kept = {n: options[n] for n in ("fastmath", "max_registers", "launch_bounds", "opt") if options.get(n) is not None}
    device = bool(getattr(kernel, "device", False) is True or options.get("device"))
    return {"device": device, "options": packed(kept)}


# in the student's process: requests


class _Stopped(BaseException):
    """Raised in place of an os function, as if the process had been stopped there."""


def failure(error: BaseException, file: Path) -> dict[str, Any]:
    """Status and one line for what a student's code raised."""
    text = " ".join(str(error).split())
    if isinstance(error, NameError) and error.name in _IMPORTED:
        text += f": import it above, `{_IMPORTED[error.name]}`"
    where = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
    at = f"Line {where[-1].lineno}, `{where[-1].line}`: " if where else ""
    if isinstance(error, MemoryError) and not text:
        text = f"more than {MOST_BYTES >> 30} GiB; a loop that does not end, or too many cases at a time"
    status, message = "error", f"{at}{type(error).__name__}: {text}".rstrip(": ")
    if "dwlab.simt" in sys.modules:
        from dwlab import simt

        if isinstance(error, simt.StepLimitError):
            status, message = "timeout", f"The kernel does not end: {text}"
        elif isinstance(error, simt.SimtError):
            for name, how in _IMPORTED.items():
                if f"name {name!r} is not defined" in text:
                    text += f": import it above, `{how}`"
            status, message = "wrong", f"The kernel does not run as it should: {text}"
    return {"status": status, "message": message, "names": [c.__name__ for c in type(error).__mro__]}


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
    """A student's file, loaded in this process, that answers requests with JSON.

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
        except BaseException as error:  # a student's file may raise anything, SystemExit too
            if type(error).__name__ == "Wrong" and type(error).__module__ == "dwlab.judge.answer":
                return {"wrong": str(error), "hints": list(error.hints)}
            return failure(error, self.file)

    def close(self) -> str:
        """What the file printed: nothing is kept here."""
        return ""

    def _load(self) -> dict[str, Any]:
        self.module = load(self.file, "dwlab_answer")
        return {}

    def _value(self, name: str) -> dict[str, Any]:
        if not hasattr(self.module, name):
            return {"missing": True}
        value = getattr(self.module, name)
        if isinstance(python := getattr(value, "py_func", None), FunctionType):
            describer = _Describer()
            return {"kernel": describer.function(python), "functions": describer.functions, **_how(value)}
        if callable(value):
            return {"function": True}
        return {"value": packed(value)}

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
        return {"value": packed(result), "after": [_state(one) for one in arguments]}


def _state(argument: Any) -> Any:
    """What a call may have changed of an argument."""
    if isinstance(argument, np.ndarray):
        return packed(argument)
    return getattr(argument, "lookups", None)


def _serve(file: Path, seconds: float) -> None:
    """The student's process: requests come where standard input was, replies go where standard output was."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # what the file prints is read from one pipe
    limit_cpu(seconds)
    limit_memory()
    sys.argv = [str(file)]  # what a student's file sees when it is run
    _guard(file)
    served = Served(file)

    def send(key: Any) -> Any:
        _line(replies, {"lookup": key})
        return pickle.load(requests)

    Distant.send = staticmethod(send)
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            break
        reply = served.ask(request)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        _line(replies, reply)
    os._exit(0)  # threads or exit handlers of a student's file have no say any more


def _line(replies: Any, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.flush()


def _guard(file: Path) -> None:
    """From here on nothing here opens a solution or a judge of the workbook, but the file itself if it is one."""
    closed = tuple(os.path.realpath(place) + os.sep for place in (ROOT / "solutions", ROOT / ".git", JUDGES))
    closed += tuple(str(Path(__file__).resolve().parent / name) for name in ("unseen.py", "__pycache__/unseen."))
    own, resolved = os.path.realpath(file), os.path.realpath

    def hook(event: str, given: tuple) -> None:
        if event in ("open", "os.link", "os.rename", "os.symlink"):
            paths = [resolved(os.fsdecode(one)) for one in given[:2] if isinstance(one, (str, bytes, os.PathLike))]
            refused = any(path.startswith(closed) and path != own for path in paths)
        elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"):
            refused = any(name in str(given) for name in ("solutions", "judges"))
        else:
            return
        if refused:
            raise PermissionError("an answer is written, not looked up: it may not open the solutions or the judges")

    sys.addaudithook(hook)


def limit_cpu(seconds: float) -> None:
    """Ends this process once it has computed for so long, whatever else the machine does. Nothing on Windows."""
    try:
        import resource
    except ImportError:
        return
    most = math.ceil(time.process_time() + seconds)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    if hard == resource.RLIM_INFINITY or hard > most + 1:
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 1))


MOST_BYTES = 4 << 30


def limit_memory() -> None:
    """This process gets a MemoryError where it wants more than MOST_BYTES. Nothing but on Linux."""
    if sys.platform == "linux":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if soft == resource.RLIM_INFINITY or soft > MOST_BYTES:
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, hard))


# in the judge's process


class Child:
    """A student's file in a process of its own. Raises Ended where the process does not answer any more."""

    def __init__(self, file: Path, seconds: float):
        self.seconds = seconds
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # what the file writes goes away with it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dwlab.judge.answer", str(file.resolve()), str(seconds)],
            cwd=self.folder.name,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=os.name == "posix",
        )
        self._used = _children_seconds()
        self._kept = bytearray()
        self._replies: queue.Queue[bytes | None] = queue.Queue()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._drain, self._read)]
        for thread in self._threads:
            thread.start()

    def _drain(self) -> None:
        # read on past what is kept, or a file that prints a lot would wait for ever on a full pipe
        while chunk := self.process.stderr.read1(65536):
            self._kept.extend(chunk[: max(0, 4 * SHOWN_OUTPUT - len(self._kept))])

    def _read(self) -> None:
        while (line := self.process.stdout.readline(MOST_REPLY)).endswith(b"\n"):
            self._replies.put(line)
        self._replies.put(None)

    def ask(self, request: tuple) -> dict[str, Any]:
        """The reply to a request, with look-ups answered until it comes. Raises Ended."""
        tables = [one for part in request if isinstance(part, tuple) for one in part if isinstance(one, Hidden)]
        found = self._exchange(request)
        while tables and "lookup" in found:
            try:
                answer = {"value": packed(tables[0][unpacked(found["lookup"])])}
            except (KeyError, TypeError):
                answer = {"missing": True}
            found = self._exchange(answer)
        return found

    def _exchange(self, sent: Any) -> dict[str, Any]:
        try:
            self.process.stdin.write(pickle.dumps(sent))
            self.process.stdin.flush()
        except OSError:
            raise self._ended() from None
        waited, used = 0.0, None
        while True:
            try:
                reply = self._replies.get(timeout=min(ASLEEP_S, WALL_LIMIT_S))
                break
            except queue.Empty:
                waited, before, used = waited + ASLEEP_S, used, _ticks(self.process.pid)
                if waited >= WALL_LIMIT_S or used is not None and used == before:
                    raise Ended(None) from None
        if reply is None:
            raise self._ended()
        try:
            found = json.loads(reply)
        except (ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {"status": "error", "message": "What came back cannot be read."}

    def _ended(self) -> Ended:
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:  # it closed its output and goes on
            return Ended(0)
        over = _children_seconds() - self._used >= self.seconds
        return Ended(None if status < 0 and (over or -status == getattr(signal, "SIGXCPU", 0)) else status)

    def close(self) -> str:
        """Ends the process and, where the system can, whatever it started. Returns what was printed, cut short."""
        stop(self.process)
        for thread in self._threads:
            thread.join(5)
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()
        text = bytes(self._kept).decode("utf-8", "replace")
        text = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
        return text if len(text) <= SHOWN_OUTPUT else text[:SHOWN_OUTPUT] + "\n... (more was printed)"


def environment() -> dict[str, str]:
    """Of a process that judges, or that runs an answer."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "PYTHONIOENCODING": "utf-8", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **own}


def stop(process: subprocess.Popen) -> None:
    """Ends a process and its group."""
    try:
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _ticks(process: int) -> tuple[str, ...] | None:
    """The CPU time of a process that runs, as Linux counts it; None elsewhere."""
    try:
        return tuple(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13])
    except OSError:
        return None


def _children_seconds() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
                changed = unpacked(after)
                one[...] = changed if changed.shape == one.shape else np.nan
            elif isinstance(after, int):
                one.lookups = after
        return STOPPED if reply.get("stopped") else unpacked(reply["value"])


def _shown(argument: Any) -> str:
    """An argument of a call, in a few words."""
    if isinstance(argument, np.ndarray):
        return f"array of shape {argument.shape}"
    text = "…" if isinstance(argument, Hidden) else repr(argument)
    return text if len(text) <= 60 else text[:57] + "..."


STOPPED = object()  # what a Function gives if it came to the function of os that fails


class Answer:
    """What a judge gets: the values, functions and kernels of a file by name, and numbers drawn from a seed.

    here: load the file in this process. For answers that harm nobody, as the project's own tests have them.
    """

    def __init__(self, file: Path, text: str, seed: int, seconds: float, here: bool = False):
        self.file, self.text, self.seed, self.seconds, self.here = file, text, seed, seconds, here
        self.random = np.random.default_rng(seed)
        self.drew = False
        self.task: ModuleType | None = None  # the judge that this is for
        self.launches: list[Any] = []  # reports of the launches that it has counted
        self.why: list[str] = []  # how numbers come about that were right
        self.output = ""
        self._process: Child | Served | None = None
        self._codes: list[CodeType] | None = None
        self.restart()

    def restart(self) -> None:
        """Begins with a new process, that knows nothing of the old one."""
        self.close()
        self._process = Served(self.file) if self.here else Child(self.file, self.seconds)
        self.loaded = False

    def close(self) -> None:
        """Ends the process."""
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
            raise Wrong(str(reply["wrong"]), [str(hint) for hint in reply.get("hints", ())])
        if "message" in reply:
            status = reply.get("status") if reply.get("status") in ("wrong", "timeout") else "error"
            raise Raised(str(reply["message"]), status, tuple(map(str, reply.get("names", ()))))
        return reply

    def given(self, name: str) -> Any:
        """The value, Function or kernel called `name`. Raises AttributeError if the file has none."""
        reply = self.ask("value", name)
        if "missing" in reply:
            raise AttributeError(name)
        if "kernel" in reply:
            made = _Maker(self, reply["functions"])
            return made.kernel(reply["kernel"], reply)
        return Function(self, name) if "function" in reply else unpacked(reply["value"])

    def codes(self) -> list[CodeType]:
        """The code of all functions in the file's text."""
        if self._codes is None:
            self._codes = list(_codes(compile(self.text, str(self.file), "exec", dont_inherit=True)))
            # Kernels are interpreted by their source: let it be the text that was read first, not what is there now.
            lines = [f"{line}\n" for line in self.text.split("\n")]
            linecache.cache[str(self.file)] = (len(self.text), None, lines, str(self.file))
        return self._codes


class _Maker:
    """Makes the kernels that a _Describer described. No code of the file runs here: only the interpreter reads it."""

    def __init__(self, answer: Answer, functions: list[dict]):
        self.answer, self.described = answer, functions
        self.made: dict[int, FunctionType] = {}

    def kernel(self, number: int, how: dict) -> Any:
        from dwlab.target import cuda

        options = {name: value for name, value in unpacked(how["options"]).items() if not isinstance(value, Other)}
        jit = cuda.jit(device=True, **options) if how["device"] else cuda.jit(**options)
        return jit(self.function(number))

    def function(self, number: int) -> FunctionType:
        if number in self.made:
            return self.made[number]
        data = self.described[number]
        same = [c for c in self.answer.codes() if (c.co_name, c.co_firstlineno) == (data["name"], data["line"])]
        if Path(data["file"]) != self.answer.file or not same:
            raise Raised(f"`{data['name']}` is not written in {self.answer.file.name}: write it there.", "wrong")
        cells = {name: CellType() for name in same[0].co_freevars}
        names: dict[str, Any] = {"__name__": "dwlab_answer", "__builtins__": builtins}
        defaults = tuple(self.value(v) for v in data["defaults"])
        closure = tuple(cells[name] for name in same[0].co_freevars)
        function = self.made[number] = FunctionType(same[0], names, data["name"], defaults or None, closure or None)
        for name, value in data["cells"].items():
            if name in cells:
                cells[name].cell_contents = self.value(value)
        names.update({name: self.value(value) for name, value in data["names"].items() if not name.startswith("__")})
        return function

    def value(self, data: Any) -> Any:
        kind = data["is"] if isinstance(data, dict) else None
        if kind == "kernel":
            return self.kernel(data["function"], data)
        if kind == "function":
            return self.function(data["function"])
        if kind == "names":
            return tuple(self.value(v) for v in data["value"])
        if kind == "name":
            if data["module"].split(".")[0] not in _MODULES:
                return Other("module", data["module"])
            module = importlib.import_module(data["module"])
            return _find(module, data["path"]) if data["path"] else module
        if kind == "type":
            import numba

            return getattr(numba.types, data["text"], Other("type", data["text"]))
        return unpacked(data)


if __name__ == "__main__":
    # The package's own module, not this __main__.
    from dwlab.judge import answer

    answer._serve(Path(sys.argv[1]), float(sys.argv[2]))
