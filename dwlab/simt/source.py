"""From a function to its source: syntax tree, true line numbers, and what its free names stand for."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType

from dwlab.simt.options import UnsupportedError


@dataclass(frozen=True)
class Syntax:
    """What a function's statements have in them; the same for all functions that one `def` makes.

    names: names and attributes.  local: names that are set.  stored: names of arrays that are stored to.  calls: each
    with what it calls as text.  aliases: (target, value) of assignments.
    """

    body: list[ast.stmt]
    names: frozenset[str]
    local: frozenset[str]
    stored: frozenset[str | None]
    calls: tuple[tuple[ast.Call, str], ...]
    aliases: tuple[tuple[ast.expr, ast.expr], ...]


@dataclass(frozen=True)
class Source:
    """One kernel or device function, ready to be executed.

    body: its statements.  parameters: names in order.  defaults: name -> value.  text: line number -> source line.
    written: parameters that the body may write to (stores, atomics, or passed on to another function).
    """

    function: FunctionType
    name: str
    file: str
    parameters: tuple[str, ...]
    defaults: dict[str, object]
    body: list[ast.stmt]
    syntax: Syntax = field(repr=False)
    text: dict[int, str] = field(repr=False)
    written: frozenset[str] = frozenset()
    local_names: frozenset[str] = frozenset()

    def lookup(self, name: str) -> object:
        """The value of a name that is not local: closure, then globals, then builtins. Raises NameError."""
        return _lookup(self.function, name)


def _lookup(function: FunctionType, name: str) -> object:
    code = function.__code__
    if name in code.co_freevars:
        try:
            return function.__closure__[code.co_freevars.index(name)].cell_contents
        except ValueError:
            raise NameError(f"name {name!r} is not set yet in the enclosing function") from None
    if name in function.__globals__:
        return function.__globals__[name]
    if hasattr(builtins, name):
        return getattr(builtins, name)
    raise NameError(f"name {name!r} is not defined")


def _base_name(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def static_value(node: ast.expr, lookup: Callable[[str], object]) -> object:
    """What a name or dotted name stands for without running the kernel; None if that is not known."""
    try:
        if isinstance(node, ast.Name):
            return lookup(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(static_value(node.value, lookup), node.attr, None)
    except NameError:
        pass
    return None


@functools.lru_cache(maxsize=4096)
def _syntax(node: ast.FunctionDef | ast.Lambda) -> Syntax:
    body = [ast.copy_location(ast.Return(node.body), node.body)] if isinstance(node, ast.Lambda) else node.body
    names, local, stored, calls, aliases = set(), set(), set(), [], []
    for one in (n for statement in body for n in ast.walk(statement)):
        if isinstance(one, ast.Attribute):
            names.add(one.attr)
        elif isinstance(one, ast.Name):
            names.add(one.id)
            if isinstance(one.ctx, (ast.Store, ast.Del)):
                local.add(one.id)
        elif isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store):
            stored.add(_base_name(one))
        elif isinstance(one, ast.Call):
            calls.append((one, ast.unparse(one.func)))
        elif isinstance(one, (ast.Assign, ast.NamedExpr, ast.AnnAssign)) and one.value is not None:
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            aliases.extend((t, one.value) for t in targets)
    return Syntax(body, frozenset(names), frozenset(local), frozenset(stored), tuple(calls), tuple(aliases))


def _written(syntax: Syntax, parameters: tuple[str, ...], lookup: Callable[[str], object]) -> frozenset[str]:
    """Parameters whose arrays may be written: by a store, an atomic, in another function, or through an alias."""
    names = set(syntax.stored)
    for node, text in syntax.calls:
        target = static_value(node.func, lookup)
        if isinstance(target, FunctionType) or hasattr(target, "py_func") or hasattr(target, "_defn"):
            # a function, one that went through cuda.jit, or a Numba intrinsic (inline PTX, say)
            names.update(_base_name(a) for a in [*node.args, *(k.value for k in node.keywords)])
        elif "atomic" in text and node.args:
            names.add(_base_name(node.args[0]))
        elif target is None:  # not known before it runs: take it that it writes
            names.update(_base_name(a) for a in node.args)
    before = -1
    while len(names) != before:
        before = len(names)
        for target, value in syntax.aliases:
            if any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(target)):
                parts = value.elts if isinstance(value, ast.Tuple) else [value]
                parts = [q for p in parts for q in ([p.body, p.orelse] if isinstance(p, ast.IfExp) else [p])]
                names.update(_base_name(p) for p in parts)
    return frozenset(names & set(parameters))


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> dict[tuple[str, int], list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]]:
    """The functions of a file: (name, first line) -> nodes."""
    found: dict[tuple[str, int], list] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.setdefault((node.name, first), []).append(node)
        elif isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append(node)
    return found


def _same_code(node: ast.Lambda, function: FunctionType) -> bool:
    code = compile(ast.Expression(node), "<lambda>", "eval").co_consts[0]
    return (code.co_code, code.co_names) == (function.__code__.co_code, function.__code__.co_names)


def _find(function: FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, list[str]]:
    """The function's syntax node, with line numbers as in its file, and the file's lines."""
    name, path, first = function.__name__, function.__code__.co_filename, function.__code__.co_firstlineno
    linecache.checkcache(path)
    lines = linecache.getlines(path, function.__globals__)
    if not lines:
        raise UnsupportedError(
            f"the source of {name!r} is not available; dwlab.simt reads Python source: define the kernel in a file or "
            "a notebook cell, not in exec() or a console line"
        )
    try:
        here = _functions("".join(lines)).get((name, first), [])
    except SyntaxError as error:
        raise UnsupportedError(
            f"the source of {name!r} does not parse any more ({error}): did its file change? Import it anew"
        ) from None
    if len(here) > 1 and isinstance(here[0], ast.Lambda):
        here = [node for node in here if _same_code(node, function)] or here
    if here and isinstance(here[0], ast.AsyncFunctionDef):
        raise UnsupportedError(f"{name!r} is async; a kernel is a plain `def`")
    if here:
        return here[0], lines
    raise UnsupportedError(f"no {name!r} was found on line {first} of its source: did the file change? Import it anew")


@functools.lru_cache(maxsize=512)
def _parsed(code: object, function: FunctionType) -> Source:
    node, lines = _find(function)
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise UnsupportedError(
            f"line {node.lineno}: {function.__name__!r}: *args, **kwargs and keyword-only parameters"
        )
    parameters = tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args])
    signature = inspect.signature(function)
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}
    syntax = _syntax(node)
    return Source(
        function=function,
        name=function.__name__,
        file=function.__code__.co_filename,
        parameters=parameters,
        defaults=defaults,
        body=syntax.body,
        syntax=syntax,
        text={n: lines[n - 1].rstrip() for n in range(function.__code__.co_firstlineno, (node.end_lineno or 1) + 1)},
        written=_written(syntax, parameters, functools.partial(_lookup, function)),
        local_names=syntax.local | set(parameters),
    )


def read(function: FunctionType) -> Source:
    """The Source of a Python function. Raises UnsupportedError when it cannot be read or is not a plain function."""
    if not isinstance(function, FunctionType):
        raise UnsupportedError(f"{function!r} is not a Python function")
    return _parsed(function.__code__, function)


def short_file(path: str) -> str:
    """A file's name without its folders; a notebook cell is called so."""
    name = os.path.basename(path)
    return "notebook cell" if name.startswith("<ipython") or "ipykernel" in path else name
