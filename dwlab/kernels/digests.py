"""Which kernel a record timed: a digest of the sources of all that a stage launches, the same on every machine.

A stage's kernel is made by helpers of other files, for tiles that a planner chooses, and started with what its launch
computes. So what counts is every definition that the stage's kernel and launch reach by name, through this package's
modules: functions, classes and constants, each by itself, whatever file it stands in. Docstrings, comments, positions,
annotations and refusals (`if …: raise`) do not count, nor do traffic formulas. Not followed: what a problem is, the
registry, and packages outside. Of the registry count the kernels that zero an output and add up parts, where they run,
and of dwlab.kernels.parts.ptx an instruction's own lines.

`of_code` is the other witness, where a compiler is installed: of the PTX of one specialised kernel.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]

BEFORE_FOLDERS = {
    "dwlab.stages": "dwlab.kernels.registry",
    "dwlab.ptx": "dwlab.kernels.parts.ptx",
    "dwlab.layers": "dwlab.problems.layers",
    "dwlab.networks": "dwlab.problems.networks",
    "dwlab.occupancy": "dwlab.gpu.occupancy",
    "dwlab.target": "dwlab.gpu.target",
}
"""What modules that have a rule of their own were called in earlier trees, which are digested as well."""

BESIDE = {"Launch(zero": "fill_zero", "Launch(parts": "add_parts"}
"""What else of the registry is launched where a stage's Launch needs it."""

CONSTANTS_ONLY = (
    "dwlab.kernels.registry",
    "dwlab.problems",
    "dwlab.problems.layers",
    "dwlab.problems.networks",
    "dwlab.gpu.target",
)
"""Modules of which functions and classes are not followed: the registry, and what a problem is."""

INTRINSICS = "dwlab.gpu.inline_ptx"
"""Where instructions of dwlab.kernels.parts.ptx are made."""

LEFT_OUT = {("dwlab.kernels.parts.ptx", "available"), (INTRINSICS, "available"), ("dwlab.gpu.occupancy", "LIMITS")}
"""What decides whether a kernel is started, not which; and what a GPU has, which is not ours to change."""

NOT_LAUNCHED = ("traffic", "supports", "needs", "lesson")
"""What a stage registers that decides whether its kernel is started, or says what it moves or where it is taught."""

Scope = tuple[str, str]
"""Where a name is looked up: a module, and a function of it whose own names come first ("" for none)."""


@functools.cache
def of_stage(file: str, package: Path = PACKAGE) -> str:
    """The digest of a stage, by its file ("dwlab/kernels/fused/pwdw_3_strips.py") in a tree of this package."""
    module = file.removesuffix(".py").replace("/", ".")
    launch, given = _registered(_tree(package, module))
    todo: list[tuple[Scope, ast.AST]] = [((module, ""), node) for node in (launch, *given)]
    texts, seen = [], set()
    while todo:
        scope, node = todo.pop()
        text, used = _definition(node)
        texts.append(text)
        for name in used:
            for found in _looked_up(package, scope, name):
                if id(found[1]) not in seen:
                    seen.add(id(found[1]))
                    todo.append(found)
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


def of_code(ptx: str, launch: Any = None) -> str:
    """The digest of a kernel's PTX and launch, without comments and what depends on the order of compiling.

    These are the numbers in Numba's names, and where constants stand.
    """
    lines = [line.split("//")[0].strip() for line in ptx.splitlines()]
    lines = [line for line in lines if line and not line.startswith((".file", ".loc", ".version"))]
    numbers: dict[str, str] = {}
    names = re.compile(r"_?_?\b_Z\w+|\b\w*__\w*\$\w+")

    def numbered(line: str) -> str:
        return names.sub(lambda found: numbers.setdefault(found[0], f"name{len(numbers)}"), line)

    text = [numbered(line) for line in lines if not line.startswith(".const")]  # the code gives names their numbers
    text += sorted(numbered(line) for line in lines if line.startswith(".const"))
    return hashlib.sha256("\n".join([*text, str(launch)]).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------ a package's names


@functools.cache
def _tree(package: Path, module: str) -> ast.Module | None:
    """A module's syntax; None if it is not of this package."""
    top, *rest = module.split(".")
    if top != "dwlab":
        return None
    place = package.joinpath(*rest)
    for file in (place.with_suffix(".py") if rest else place / "__init__.py", place / "__init__.py"):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


def _registered(tree: ast.Module | None) -> tuple[ast.FunctionDef, list[ast.expr]]:
    """A stage file's launch, and what it registers of what is launched."""
    for node in tree.body if tree is not None else ():
        for one in getattr(node, "decorator_list", ()):
            if _registers(one):
                return node, [given.value for given in one.keywords if given.arg not in NOT_LAUNCHED]
    raise ValueError("this is no stage file: nothing in it is decorated by register(…)")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                for inner in getattr(node, part, ()):
                    yield from _statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _today(module: str) -> str:
    return BEFORE_FOLDERS.get(module, module)


@functools.cache
def _bindings(package: Path, module: str, function: str) -> dict[str, list[ast.AST]]:
    """What binds each name of a module, or of a function's own body: definitions, assignments, imports."""
    tree = _tree(package, module)
    body = tree.body if tree is not None else []
    if function:
        body = next((one.body for one in body if isinstance(one, ast.FunctionDef) and one.name == function), [])
    found: dict[str, list[ast.AST]] = {}
    for node in _statements(body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name.split(".")[0], []).append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.Expr)):
            changed = node.value if isinstance(node, ast.Expr) else node
            for one in ast.walk(changed):
                stored = isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
                base = one.value if isinstance(one, (ast.Subscript, ast.Attribute)) else None
                changes = isinstance(base, ast.Name) and (isinstance(node, ast.Expr) or isinstance(one.ctx, ast.Store))
                if stored or changes:  # TABLE[key] = …, TABLE.update(…)
                    found.setdefault(one.id if stored else base.id, []).append(node)
    return found


def _looked_up(package: Path, scope: Scope, name: str) -> list[tuple[Scope, ast.AST]]:
    """The definitions that a name, or a name within a module ("rows.take"), stands for, in this package."""
    if name in BESIDE:
        registry = ("dwlab.kernels.registry", "dwlab.stages")
        here = next(one for one in registry if _tree(package, one) is not None)
        return _resolved(package, here, BESIDE[name], follow=True)
    module, function = scope
    first, _, rest = name.partition(".")
    if (_today(module), first) in LEFT_OUT:
        return []
    inner = _bindings(package, module, function).get(first) if function else None
    if inner:
        return [(scope, node) for node in inner]
    return _resolved(package, module, first, rest, follow=True)  # within a module all is followed


def _resolved(
    package: Path, module: str, name: str, rest: str = "", follow: bool = False
) -> list[tuple[Scope, ast.AST]]:
    if (_today(module), name) in LEFT_OUT:
        return []
    if _today(module).startswith("dwlab.kernels.parts.ptx"):
        for place in (module, INTRINSICS):  # the first in earlier trees
            made = _instruction(package, place, name)
            if made is not None:
                return [((place, "intrinsics"), made)]
    found: list[tuple[Scope, ast.AST]] = []
    for node in _bindings(package, module, "").get(name, ()):
        if isinstance(node, ast.ImportFrom):
            source = node.module or ""
            real = next(one.name for one in node.names if (one.asname or one.name) == name)
            if _tree(package, f"{source}.{real}") is not None:  # a module
                inside, _, further = rest.partition(".")
                if inside:
                    found += _resolved(package, f"{source}.{real}", inside, further)
            elif _tree(package, source) is not None:
                found += _resolved(package, source, real, rest)
        elif isinstance(node, ast.Import):
            continue
        elif follow or _today(module) not in CONSTANTS_ONLY or not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.append(((module, ""), node))
    return found


@functools.cache
def _instruction(package: Path, module: str, name: str) -> ast.AST | None:
    """What makes an instruction of the ptx module, where they are made: intrinsics()'s last statement names each."""
    tree = _tree(package, module)
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.FunctionDef) and node.name == "intrinsics" and isinstance(node.body[-1], ast.Return):
            return next((one.value for one in getattr(node.body[-1].value, "keywords", ()) if one.arg == name), None)
    return None


# ------------------------------------------------------------------------------------------------------ a definition

_NOT_WRITTEN = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "type_ignores"}
_MADE: dict[int, tuple[ast.AST, str, frozenset[str]]] = {}


def _definition(node: ast.AST) -> tuple[str, frozenset[str]]:
    """A definition in one text that depends on nothing but what it does, and the names from outside that it uses."""
    if id(node) not in _MADE:  # the node is kept, so its number stays its own
        used: set[str] = set()
        text = _written(node, used, frozenset())
        _MADE[id(node)] = node, text, frozenset(used)
    return _MADE[id(node)][1:]


def _written(node: Any, used: set[str], bound: frozenset[str]) -> str:
    """The text of a node. used: gets the names that are not bound inside, with what follows them: "rows.take"."""
    if isinstance(node, list):
        return "[" + ",".join(_written(one, used, bound) for one in node) + "]"
    if not isinstance(node, ast.AST):
        return f"{type(node).__name__} {node!r}"
    if isinstance(node, ast.Raise):
        return "Raise"
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dwlab"):  # what counts, not where it stands
        return f"import {[(one.name, one.asname) for one in node.names]}"
    dotted = _dotted(node)
    if dotted:
        first = dotted.partition(".")[0]
        if first not in bound:
            used.add(dotted)
        return dotted
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        decorators = [one for one in getattr(node, "decorator_list", ()) if not _registers(one)]
        outside = [_written(one, used, bound) for one in (*decorators, *node.args.defaults, *node.args.kw_defaults)]
        inside = bound | _stored(node)
        body = [node.body] if isinstance(node, ast.Lambda) else _lasting(node.body)
        names = [one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)]
        return f"def {getattr(node, 'name', '')} {outside} {names} {_written(body, used, inside)}"
    if isinstance(node, ast.Call) and _dotted(node.func) == "Launch":
        used |= {f"Launch({one.arg}" for one in node.keywords} & set(BESIDE)
    if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)):
        bound = bound | _stored(node)
    parts = []
    for field, value in ast.iter_fields(node):
        if field in _NOT_WRITTEN or value is None or value == []:
            continue
        if field in ("body", "orelse", "finalbody") and isinstance(value, list):
            value = _lasting(value)
        parts.append(f"{field}={_written(value, used, bound)}")
    return f"{type(node).__name__}({' '.join(parts)})"


def _dotted(node: ast.AST) -> str:
    """ "a.b.c" of a name and its attributes; "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def _registers(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "register"


def _lasting(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without texts and without refusals."""

    def refuses(node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and not node.orelse and all(isinstance(one, ast.Raise) for one in node.body)

    def text(node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

    return [node for node in body if not refuses(node) and not text(node)]


def _stored(node: ast.AST) -> frozenset[str]:
    """Names that a function or a comprehension binds itself."""
    names, todo = set(), list(ast.iter_child_nodes(node))
    while todo:
        one = todo.pop()
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            names.add(one.name)
            continue
        if isinstance(one, ast.arg):
            names.add(one.arg)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            names.add(one.id)
        if not isinstance(one, ast.Lambda):
            todo += ast.iter_child_nodes(one)
    return frozenset(names)
