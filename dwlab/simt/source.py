"""A function's source: syntax tree, true line numbers, and what its free names stand for."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import inspect
import linecache
import os
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType

import numpy as np

from dwlab.simt.options import UnsupportedError


@dataclass(frozen=True, eq=False)
class Source:
    """One kernel or device function, ready to be executed.

    parameters: names in order.  defaults: name -> value.  text: line number -> source line.  vararg: the parameter that
    takes all further arguments, as a tuple.  Of its statements, `body`: words are names and attributes in it, calls its
    calls, assigned names that are set, varying those that are in more than one place, local_names its own, which are
    parameters too, free those that it reads of others.
    """

    function: FunctionType
    name: str
    file: str
    parameters: tuple[str, ...]
    defaults: dict[str, object]
    text: dict[int, str] = field(repr=False)
    body: list[ast.stmt]
    words: frozenset[str]
    calls: tuple[ast.Call, ...]
    assigned: frozenset[str]
    varying: frozenset[str]
    local_names: frozenset[str]
    free: frozenset[str]
    vararg: str | None = None

    def lookup(self, name: str) -> object:
        """The value of a name that is not local: closure, then globals, then builtins. Raises NameError."""
        inside, outside = self.function.__code__.co_freevars, self.function.__globals__
        if name in inside:
            try:
                return self.function.__closure__[inside.index(name)].cell_contents
            except ValueError:
                raise NameError(f"name {name!r} is not set yet in the enclosing function") from None
        if name not in outside and not hasattr(builtins, name):
            raise NameError(f"name {name!r} is not defined")
        return outside[name] if name in outside else getattr(builtins, name)


def static_value(node: ast.expr, lookup: Callable[[str], object]) -> object:
    """The value of a name or dotted name without running the kernel; None if it is not known."""
    try:
        if isinstance(node, ast.Name):
            return lookup(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(static_value(node.value, lookup), node.attr, None)
    except NameError:
        pass
    return None


class _Fold(ast.NodeTransformer):
    """Puts a constant where CPython's compiler puts one: `10**-3`, `-1`, `(1, 2)[0]`; an operation at a time."""

    def folded(self, node: ast.expr, *parts: ast.expr) -> ast.expr:
        self.generic_visit(node)
        if not all(_is_constant(getattr(node, part)) for part in parts):
            return node
        expression = ast.Expression(ast.copy_location(ast.Tuple([node], ast.Load()), node))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            code = compile(ast.fix_missing_locations(expression), "", "eval")
        if any(isinstance(one, tuple) and len(one) == 1 for one in code.co_consts):  # the whole tuple is one constant
            (value,) = next(one for one in code.co_consts if isinstance(one, tuple) and len(one) == 1)
            if isinstance(value, (bool, int, float, complex)):
                return ast.copy_location(ast.Constant(value), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        return self.folded(node, "left", "right")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        return self.folded(node, "operand")

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.folded(node, "value", "slice")

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        return node if not isinstance(node.test, ast.Constant) else node.body if node.test.value else node.orelse

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Leaves out constants that decide nothing, and what stands behind one that decides."""
        self.generic_visit(node)
        parts, decides = [], isinstance(node.op, ast.Or)
        for one in node.values:
            constant = isinstance(one, ast.Constant)
            if not constant or bool(one.value) is decides or one is node.values[-1]:
                parts.append(one)
            if constant and bool(one.value) is decides:
                break
        return parts[0] if len(parts) == 1 else ast.copy_location(ast.BoolOp(node.op, parts), node)


def _is_constant(node: ast.expr) -> bool:
    """A number that is written down, or a tuple of such."""
    if isinstance(node, ast.Tuple):
        return all(_is_constant(one) for one in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, complex))


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> dict[tuple[str, int], list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]]:
    """The functions of a file: (name, first line) -> nodes."""
    found: dict[tuple[str, int], list] = {}
    for node in ast.walk(_Fold().visit(ast.parse(text))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.setdefault((node.name, first), []).append(node)
        elif isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append(node)
    return found


def _find(function: FunctionType) -> tuple[ast.FunctionDef | ast.Lambda, list[str]]:
    """The function's syntax node, with line numbers as in its file, and the file's lines."""
    code = function.__code__  # whose name it keeps when the function is renamed
    name, path, first = code.co_name, code.co_filename, code.co_firstlineno
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
    if len(here) > 1 and isinstance(here[0], ast.Lambda):  # several on a line
        bodies = [(b.lineno, b.end_lineno, b.col_offset, b.end_col_offset) for b in (node.body for node in here)]
        here = [node for node, place in zip(here, bodies, strict=True) if place in code.co_positions()] or here
    if here and isinstance(here[0], ast.AsyncFunctionDef):
        raise UnsupportedError(f"{name!r} is async; a kernel is a plain `def`")
    if here:
        return here[0], lines
    raise UnsupportedError(f"no {name!r} was found on line {first} of its source: did the file change? Import it anew")


def _one(maxsize: int) -> Callable[[Callable[..., Source]], Callable[..., Source]]:
    """functools.lru_cache for sources of which there may be only one while anything holds it.

    A kernel keeps what it knows of a source's nodes by their identity; read a second time, the same text has others.
    """

    def wrap(make: Callable[..., Source]) -> Callable[..., Source]:
        alive: weakref.WeakValueDictionary[tuple, Source] = weakref.WeakValueDictionary()

        @functools.lru_cache(maxsize=maxsize)
        @functools.wraps(make)
        def found(*key: object) -> Source:
            result = alive.get(key)
            if result is None:
                result = alive[key] = make(*key)
            return result

        return found

    return wrap


@_one(maxsize=512)
def _parsed(code: object, function: FunctionType) -> Source:
    node, lines = _find(function)
    arguments = node.args
    _check(node, function.__name__, lines[node.lineno - 1])
    parameters = tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args])
    vararg = arguments.vararg.arg if arguments.vararg else None
    signature = inspect.signature(function)
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not inspect.Parameter.empty}
    return Source(
        function=function,
        name=function.__name__,
        file=function.__code__.co_filename,
        parameters=parameters,
        defaults=defaults,
        text={n: lines[n - 1].rstrip() for n in range(function.__code__.co_firstlineno, (node.end_lineno or 1) + 1)},
        vararg=vararg,
        **_own(node),
    )


def _check(node: ast.FunctionDef | ast.Lambda, name: str, line: str, inside: bool = False) -> None:
    """Raises UnsupportedError for parameters and decorators that Numba-CUDA does not take. inside: of a kernel."""
    given, why = node.args, ""
    if given.kwarg or given.kwonlyargs:
        why = "no **kwargs, no keyword-only parameters; put them first"
    elif inside and getattr(node, "decorator_list", None):
        why = "a function inside a kernel takes no decorator; leave it away, or define the function outside"
    elif inside and given.vararg:
        why = "a function inside a kernel takes no *args; name its parameters"
    if why:
        raise UnsupportedError(f"{name}, line {node.lineno}: `{line.strip()}`: {why}")


@functools.lru_cache(maxsize=4096)
def _set_in(node: ast.FunctionDef | ast.Lambda) -> frozenset[str]:
    """Names that belong to a function itself: parameters, names that are set, functions that it makes."""
    given = node.args
    found = {a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg] if a}
    rest = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    while rest:
        one = rest.pop()
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(one.name)
            continue
        if isinstance(one, ast.Lambda):
            continue
        if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del)):
            found.add(one.id)
        elif isinstance(one, (ast.MatchAs, ast.MatchStar)) and one.name:
            found.add(one.name)
        rest.extend(ast.iter_child_nodes(one))
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def set_inside(node: ast.AST) -> Counter[str]:
    """How often each name is set somewhere in a node."""
    return Counter(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))


@functools.lru_cache(maxsize=4096)
def _own(node: ast.FunctionDef | ast.Lambda) -> dict[str, object]:
    """The fields of a Source that are the same for all functions that one `def` makes."""
    body = [ast.copy_location(ast.Return(node.body), node.body)] if isinstance(node, ast.Lambda) else node.body
    parts, own, times = [n for one in body for n in ast.walk(one)], _set_in(node), set_inside(node)
    names = [n for n in parts if isinstance(n, ast.Name)]
    return {
        "body": body,
        "words": frozenset([n.id for n in names] + [n.attr for n in parts if isinstance(n, ast.Attribute)]),
        "calls": tuple(n for n in parts if isinstance(n, ast.Call)),
        "assigned": frozenset(times),
        "varying": frozenset(n for n, many in times.items() if many > 1),
        "local_names": own,
        "free": frozenset(n.id for n in names if isinstance(n.ctx, ast.Load)) - own,
    }


@_one(maxsize=1024)
def inner(node: ast.FunctionDef | ast.Lambda, outer: Source) -> Source:
    """The Source of a function that another one makes while it runs. Its globals are those of the outer one."""
    _check(node, outer.name, outer.text.get(node.lineno, ""), True)
    given = node.args
    return Source(
        function=outer.function, name=getattr(node, "name", "<lambda>"), file=outer.file,
        parameters=tuple(a.arg for a in [*given.posonlyargs, *given.args]), defaults={}, text=outer.text, **_own(node),
    )  # fmt: skip


_HARMLESS = {"grid", "gridsize", "len", "range", "min", "max", "abs"}


def _acts(node: ast.stmt) -> bool:
    """Whether a statement may change memory: by a store, or in a call."""
    for one in ast.walk(node):
        if isinstance(one, (ast.Subscript, ast.Attribute)) and not isinstance(one.ctx, ast.Load):
            return True
        if isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] not in _HARMLESS:
            return True
    return False


def _way(statements: list[ast.stmt], line: int) -> list[tuple[list[ast.stmt], ast.stmt]]:
    """The statements that hold a line, the innermost last, each with the list that it stands in."""
    for one in statements:
        if one.lineno <= line <= (one.end_lineno or line):
            deeper = (_way(getattr(one, part, []), line) for part in ("body", "orelse"))
            return [(statements, one), *next(filter(None, deeper), [])]
    return []


def idle_beside(src: Source, loop: ast.stmt) -> bool:
    """Whether threads beside a loop in which others wait change no memory before they wait, too, at a barrier."""
    way = _way(src.body, loop.lineno)
    while way and way[-1][1] is not loop:
        way.pop()
    # Of a loop around it other iterations may be going on.
    if not way or any(not isinstance(one, ast.If) or any(map(_acts, one.orelse)) for _, one in way[:-1]):
        return False
    for after in (one for block, here in reversed(way) for one in block[block.index(here) + 1 :]):
        if isinstance(after, ast.Expr) and ast.unparse(after).endswith("syncthreads()"):
            return True
        if _acts(after):
            return False
    return True


def statement_at(src: Source, line: int) -> ast.stmt | None:
    """The innermost statement of a function that a line belongs to."""
    return next((one for _, one in reversed(_way(src.body, line))), None)


def between(src: Source, line: int, other: int, partly: bool) -> str:
    """The place of what orders two lines of a function, in words; "" if anywhere between them will do.

    partly: whether some threads do not come to `line`, which may be `other`.
    """
    mine, theirs = _way(src.body, line), _way(src.body, other)
    same = next(
        (k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a[1] is not b[1]), min(len(mine), len(theirs))
    )
    one_line, branches = line == other, theirs[same:] and mine[same:] and mine[same][0] is not theirs[same][0]
    if branches or (partly and (not theirs or any(isinstance(one, ast.If) for _, one in mine[: same - one_line]))):
        return " outside of every `if`"
    if one_line or not mine[same:] or (theirs and not theirs[same:]):
        return ""
    first = mine[same][1].lineno
    return f" before line {first}" if first != line or theirs[same + 1 :] or not theirs else ""


def lines_in_loops(src: Source) -> set[int]:
    """The lines of a function on which a statement stands in a loop."""
    loops = [n for one in src.body for n in ast.walk(one) if isinstance(n, (ast.For, ast.While))]
    return {n.lineno for loop in loops for one in loop.body for n in ast.walk(one) if isinstance(n, ast.stmt)}


def read(function: FunctionType) -> Source:
    """The Source of a Python function. Raises UnsupportedError when it cannot be read or is not a plain function."""
    if not isinstance(function, FunctionType):
        raise UnsupportedError(f"{function!r} is not a Python function")
    return _parsed(function.__code__, function)


def is_frozen(value: object) -> bool:
    """Whether a compiled kernel keeps an outer name's value: numbers, tuples, arrays, device functions."""
    return isinstance(value, (bool, int, float, complex, np.generic, tuple, np.ndarray)) or hasattr(value, "py_func")


def constants_now(function: FunctionType) -> dict[tuple[FunctionType, str], object]:
    """The outer names of a function and of those that it calls, with the values that they have now."""
    found, seen, rest = {}, set(), [function]
    while rest:
        one = rest.pop()
        if one in seen:
            continue
        seen.add(one)
        with contextlib.suppress(UnsupportedError):  # said when it runs
            src = read(one)
            for name in src.free:
                with contextlib.suppress(NameError):
                    value = src.lookup(name)
                    if is_frozen(value):
                        found[one, name] = value.copy() if isinstance(value, np.ndarray) else value
            called = (static_value(node.func, src.lookup) for node in src.calls)
            rest += [f.py_func for f in called if isinstance(getattr(f, "py_func", None), FunctionType)]
    return found


def short_file(path: str) -> str:
    """A file's name without its folders; a notebook cell is called so."""
    name = os.path.basename(path)
    return "notebook cell" if name.startswith("<ipython") or "ipykernel" in path else name
