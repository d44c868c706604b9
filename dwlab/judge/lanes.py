"""Operands of tensor cores across a warp: a kernel with g = lane // 4 and t = lane % 4 exchanged."""

import contextlib
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from dwlab.gpu import target
from dwlab.judge import answer

PATTERN, LOOK = "g and t exchanged", "lane l has g = l // 4 and t = l % 4: which counts rows, which columns or k?"
_OTHER = {"//": "%", "%": "//", "g": "t", "t": "g"}


def right(kernel: Any, passes: Callable[[Any], bool]) -> str:
    """What must be exchanged, so that a kernel passes; or nothing."""
    for how, one in _exchanged(kernel):
        with contextlib.suppress(Exception):  # it may not run at all
            if passes(one):
                return how
    return ""


def _exchanged(kernel: Any) -> Iterator[tuple[str, Any]]:
    """(what is exchanged, the kernel with it), in it or in a device function; none on a GPU, which must not run it."""
    with contextlib.suppress(Exception):  # a text is not known, or a name in it not set
        for one in [] if target.mode == "gpu" else _and_called(kernel):
            names, text = list(inspect.signature(one).parameters), _text(one)
            ways = [(r"(?m)^[ \w,]+=(?!=)", r"\b[gt]\b", ""), (r"(?s).+", r"(//|%)(?= *(uint32\()?4\b)", "")]
            ways += [(rf"\b({of})(\[[^]]+\]|, .+)", r"\b[gt]\b", of) for of in ("|".join(names[:-1]), *names)]
            # with one of the names alone it is never set, or never read
            for where, what, of in ways if {"g", "t"} <= set(re.split(r"\W+", text)) else ways[1:2]:
                new = re.sub(where, lambda part, what=what: re.sub(what, lambda op: _OTHER[op[0]], part[0]), text)
                if new != text:
                    yield f"g and t exchanged{of and ' in indices of '}{of}", _with(kernel, one, new)


def _called(function: FunctionType) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a function names, and of that the device functions."""
    known = inspect.getclosurevars(function)
    found = {name: one for name, one in (known.globals | known.nonlocals).items() if hasattr(one, "py_func")}
    return function.__globals__ | known.nonlocals, found


def _and_called(kernel: Any) -> Iterator[FunctionType]:
    yield kernel.py_func
    for one in _called(kernel.py_func)[1].values():
        yield from _and_called(one)


def _text(function: FunctionType) -> str:
    return "def " + textwrap.dedent(inspect.getsource(function)).partition("def ")[2]


def _with(kernel: Any, changed: FunctionType, text: str) -> Any:
    """A kernel with another text of a function."""
    if changed not in _and_called(kernel):
        return kernel
    names, functions = _called(kernel.py_func)
    names |= {name: _with(one, changed, text) for name, one in functions.items()}
    own = text if kernel.py_func is changed else _text(kernel.py_func)
    linecache.cache[own] = len(own), None, own.splitlines(True), own
    exec(compile(own, own, "exec"), names)
    return answer.jitted(names[kernel.py_func.__name__], *answer.options(kernel))
