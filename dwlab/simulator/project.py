"""A project that was written for Numba-CUDA, run without a GPU and without an edit: `numba.cuda` is the interpreter.

    python -m dwlab.simt script.py …        python -m dwlab.simt -m pytest …        pytest --simt …

`install` does it for this process: `from numba import cuda`, `import numba.cuda` and `from numba_cuda_mlir import cuda`
give `dwlab.simt.cuda`'s names, whether they are imported before or after. Launches go on behind a hazard, as on a GPU;
each is warned of once, a `Session` counts them, and says at the end what was launched and which lines moved most.
"""

from __future__ import annotations

import builtins
import html
import importlib.abc
import itertools
import linecache
import os
import re
import sys
import time
import types
import warnings
from collections import Counter
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from dwlab import simt
from dwlab.simt import cuda, views
from dwlab.simulator import standins
from dwlab.text import drawing

HAZARDS = ("warn", "error", "ignore")

STEPS = 100_000_000
"""Statements after which a launch is taken to run for ever: hours. What waits for itself is found long before."""

ALLOWED = re.compile(r"#\s*simt:\s*allow\b\s*([\w ,]*)")
"""A comment that accepts a line's hazards: `# simt: allow`, or some kinds, `# simt: allow race, negative index`."""

LATER = (
    "CUSource LinkableCode MemoryPointer carray compile compile_for_current_device compile_ptx "
    "compile_ptx_for_current_device cuda_error declare_device farray guvectorize "
    "is_float16_supported require_context vectorize"
).split()
"""Names that a module may import and that need the compiler: an error where they are called."""

SUCCESSOR = {
    r"numba_cuda_mlir\.(?=types\b)": "numba.",
    r"numba_cuda_mlir\.numba_cuda\.(?=(core|np|types)\b)": "numba.",
    r"numba_cuda_mlir\.(numba_)?cuda\b": "numba.cuda",
}
"""Names of numba_cuda_mlir's modules, as patterns, and what Numba calls the same."""


@dataclass
class Session:
    """The launches of this process. hazards: "warn", "error" or "ignore"; count: whether accesses are counted.

    launches, kernels: by name; found: (file, line, kind) of hazards -> launches; texts: of them, what the first says;
    moved: (file, line) -> sectors; reports: each kernel's first X-ray. allowed: kinds that a test's marker accepts.
    """

    hazards: str = "warn"
    count: bool = True
    launches: Counter[str] = field(default_factory=Counter)
    found: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    texts: dict[tuple[str, int, str], str] = field(default_factory=dict)
    moved: Counter[tuple[str, int]] = field(default_factory=Counter)
    reports: dict[str, simt.Report] = field(default_factory=dict)
    allowed: frozenset[str] = frozenset()

    def launched(self, report: simt.Report) -> None:
        """A launch has ended. Raises HazardError for what "error" does not accept."""
        self.launches[report.kernel] += 1
        self.reports.setdefault(report.kernel, report)
        for one in report.accesses:
            if one.space == "global":
                self.moved[one.file, one.line] += one.sectors
        left = tuple(hazard for hazard in report.hazards if not self.accepts(hazard))
        first = {(one.path, one.line, one.kind): one.message for one in reversed(left)}
        self.found.update(first.keys())
        unseen = {key: text for key, text in first.items() if key not in self.texts}
        self.texts |= unseen
        if self.hazards == "warn":
            for (file, line, kind), text in unseen.items():
                warnings.warn_explicit(f"{report.kernel}: {kind}: {text}", simt.HazardWarning, file, line)
        if left and self.hazards == "error":
            raise simt.HazardError(left)

    def accepts(self, hazard: simt.Hazard) -> bool:
        """Whether a hazard is accepted: by a comment on its line, or by a marker of the test."""
        comment = ALLOWED.search(linecache.getline(hazard.path, hazard.line))
        named = {kind.strip() for kind in comment[1].split(",") if kind.strip()} or {"any"} if comment else set()
        return bool({hazard.kind, "any"} & (self.allowed | named))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for `add`."""
        tables = {name: list(getattr(self, name).items()) for name in ("found", "moved", "texts")}
        return {"launches": dict(self.launches)} | tables

    def add(self, other: dict[str, Any]) -> None:
        """Adds what another process has launched."""
        self.launches.update(other["launches"])
        for name in ("found", "moved"):
            getattr(self, name).update({tuple(key): count for key, count in other[name]})
        self.texts = {tuple(key): text for key, text in other["texts"]} | self.texts

    def summary(self) -> list[str]:
        """Kernels, launches, hazards by line, and the three lines that moved most sectors."""
        launches = sum(self.launches.values())
        lines = [f"{len(self.launches)} kernels, {launches} launches, {len(self.found)} hazards"]
        lines += [
            f"{_short(key[0])}:{key[1]}: {key[2]}: {self.texts[key]}" + (f" ({times} launches)" if times > 1 else "")
            for key, times in sorted(self.found.items())
        ]
        whole = sum(self.moved.values())
        lines += [
            f"{_short(file)}:{line}: {sectors:,} sectors, {sectors / whole:.0%} of all"
            for (file, line), sectors in self.moved.most_common(3)
            if sectors
        ]
        return lines

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes a page: the summary, and the X-ray of each kernel's first launch."""
        head = "".join(f"<li>{html.escape(line)}</li>" for line in self.summary())
        parts = [
            f"<h2>{html.escape(name)}: {self.launches[name]} launches</h2>{views.html_of(one)}"
            for name, one in self.reports.items()
        ]
        return drawing.write(path, "Launches", f"<ul>{head}</ul>{''.join(parts)}")


def _short(file: str) -> str:
    return os.path.relpath(file) if os.path.exists(file) else file


_session: Session | None = None


def install(hazards: str = "warn", count: bool = True) -> Session:
    """Makes `numba.cuda` and `numba_cuda_mlir.cuda` mean the interpreter in this process, and begins a Session."""
    global _session
    if hazards not in HAZARDS:
        raise ValueError(f"hazards={hazards!r}: choose one of {', '.join(HAZARDS)}")
    if _session is not None:
        _session.hazards, _session.count = hazards, count
    else:
        _session = Session(hazards, count)
        simt.LAUNCHED.append(_session.launched)
        cuda.event_elapsed_time = cuda.Event.elapsed_time = _host_time
        cuda.Event.record = _record
        _stand_in()
        _keep_sources()
    hazards = "report" if hazards != "ignore" or count else "off"
    simt.make_standard(simt.Options(hazards=hazards, trace=count, step_limit=STEPS))
    return _session


def _stand_in() -> None:
    """Puts the interpreter's names in the place of numba.cuda's, whose own simulator gives what is beside them."""
    os.environ.update(NUMBA_ENABLE_CUDASIM="1", DWLAB_TARGET="simulated")
    import numba

    numba.config.ENABLE_CUDASIM = 1
    for name in [name for name in sys.modules if re.match(r"(numba\.cuda|numba_cuda_mlir)\b", name)]:
        del sys.modules[name]
    try:
        module = importlib.import_module("numba.cuda")
    except ImportError:  # a Numba without it
        module = types.ModuleType("numba.cuda")
        module.__path__ = []
    for name in cuda.__all__:
        setattr(module, name, getattr(cuda, name))
    for name in LATER:
        if getattr(module, name, None) is None:
            setattr(module, name, _later(name))
    standins.put(module)
    numba.cuda = module
    package = types.ModuleType("numba_cuda_mlir")
    package.__path__, package.cuda, package.carray, package.farray = [], module, numba.carray, numba.farray
    sys.modules.update({"numba.cuda": module, "numba_cuda_mlir": package, "numba_cuda_mlir.cuda": module})
    sys.meta_path.insert(0, _Successor())


class _Successor(importlib.abc.Loader):
    """Finds what is inside numba_cuda_mlir: Numba's module itself, and not another one of the same file."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        fits = [re.sub(pattern, ours, name) for pattern, ours in SUCCESSOR.items() if re.match(pattern, name)]
        return ModuleSpec(name, self, origin=fits[0]) if fits else None

    def exec_module(self, module: types.ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(module.__spec__.origin)


def _later(name: str) -> Any:
    def refused(*_: object, **__: object) -> None:
        raise simt.UnsupportedError(f"cuda.{name} needs Numba-CUDA's compiler, which is not here")

    return refused


def _keep_sources() -> None:
    """Lets code that is made as text keep its text, so that its kernels can be read."""
    numbers, compiled, executed = itertools.count(), builtins.compile, builtins.exec

    def kept(text: object, file: str) -> str:
        if not isinstance(text, str) or os.path.exists(file):
            return file
        name = f"<{file.strip('<>')} {next(numbers)}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        return name

    def compile_(text: Any, filename: Any, mode: str, *rest: Any, **named: Any) -> Any:
        return compiled(text, kept(text, filename) if mode == "exec" else filename, mode, *rest, **named)

    def exec_(text: Any, globals: Any = None, locals: Any = None, /, **named: Any) -> None:
        caller = sys._getframe(1)
        if globals is None:
            globals, locals = caller.f_globals, caller.f_locals if locals is None else locals
        if isinstance(text, str):
            text = compiled(text, kept(text, "exec"), "exec", dont_inherit=True)
        return executed(text, globals, globals if locals is None else locals, **named)

    builtins.compile, builtins.exec = compile_, exec_


def _record(self: cuda.Event, stream: Any = 0) -> None:
    self.at = time.perf_counter()


def _host_time(self: cuda.Event, evtend: cuda.Event) -> float:
    """Milliseconds of the host between two events: a program that prints a time goes on."""
    warnings.warn("elapsed_time is the interpreter's time, not a GPU's", stacklevel=2)
    return 1e3 * (evtend.at - self.at)
