"""Which kernel a record timed: names for what a stage launches, that hang on machine code and not on words.

A record is of today's kernel if today's stage compiles, for the recorded problem and GPU, to the PTX that was timed,
and launches it so: `benchmarks/recorded_kernels.py` compiles both trees, compares them by `of_code` and notes in
dwlab/records/kernels.csv.xz that the sources of today are those of an earlier kernel's name (`noted`). `of_stage` only
saves that compilation: it is equal where what is launched must be equal. It follows every name that the stage's kernel
and launch reach in this package, functions, classes and constants, each by itself, whatever file it stands in, and puts
what the name stands for in its place. So names do not count, nor do docstrings, comments, annotations, refusals
(`if …: raise`), the order or the place of definitions. Not followed: what a problem is, the registry, the interpreter
and packages outside. Of the registry count the kernels that zero an output and add up parts, where they run.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]

REGISTRY = "dwlab.kernels.registry"

BESIDE = {"zero": "fill_zero", "parts": "add_parts"}
"""Kernels of the registry that are launched, too, where a stage's Launch(…) has such a keyword; not of long sums."""

CONSTANTS_ONLY = (
    REGISTRY, "dwlab.problems", "dwlab.problems.layers", "dwlab.problems.networks", "dwlab.gpu.target", "dwlab.target",
)  # fmt: skip
"""Modules of which functions and classes are not followed: the registry, what a problem is, which mode this is."""

INTERPRETER = ("dwlab.simt", "dwlab.instructions")
"""No part of what a GPU is given, so nothing of it is followed."""

LEFT_OUT = ("dwlab.gpu.occupancy", "LIMITS")
"""The table of GPUs' limits, which are not ours to change."""

NOT_LAUNCHED = ("traffic", "supports", "needs", "lesson")
"""Keywords of a stage that decide whether its kernel is started, or say what it moves or where it is taught."""

TABLE = PACKAGE / "records" / "kernels.csv.xz"

FIELDS = ("stage", "source", "kernel", "except", "compiled", "commit")
"""Its columns: a stage's id; `of_stage` of the tree of that commit; what records call the kernel; of which recorded
problems another kernel comes of these sources, as in `named`, between semicolons; how many of the recorded problems
were compiled in both trees to say so."""

Scope = tuple[str, str]
"""Where a name is looked up: a module, and a function of it whose own names come first ("" for none)."""

Definition = tuple[Scope, ast.AST]

Found = tuple[Definition, str]
"""A definition that a name stands for, and its name there."""


@functools.cache
def of_stage(id: str, file: str, package: Path = PACKAGE) -> str:
    """SHA-256 of a stage's sources, by its file ("dwlab/kernels/fused/pwdw_3_strips.py") in a tree of this package.

    The second path of a file of two has another. Raises ValueError for a file that registers no stage.
    """
    module = file.removesuffix(".py").replace("/", ".")
    sources = _of(package)
    launch, given = _registered(sources.tree(module))
    found = sorted(sources.digest(((module, ""), node)) for node in (launch, *given))
    return _sha256([*found, *["REVERSE"] * (not Path(file).name.startswith(id.split("/")[1]))])


@functools.cache
def noted(table: Path = TABLE) -> dict[tuple[str, str], dict[str, frozenset[str]]]:
    """(stage's id, digest of its sources) -> names that records have for the kernel -> problems of which it is not."""
    from dwlab import records  # what digests are made of needs none

    found: dict[tuple[str, str], dict[str, frozenset[str]]] = {}
    for row in records.csv_rows(table):
        but = frozenset(filter(None, row["except"].split(";")))
        found.setdefault((row["stage"], row["source"]), {})[row["kernel"]] = but
    return found


def of_kernel(id: str, file: str) -> str:
    """The name of a stage's kernel: the first that all recorded problems say, or else `of_stage`."""
    source = of_stage(id, file)
    return next((name for name, but in noted().get((id, source), {}).items() if not but), source)


def same(id: str, file: str, recorded: str | None, problem: str = "") -> bool:
    """Whether a record's name of a kernel is today's, for a problem as in `named` ("": for all recorded)."""
    source = of_stage(id, file)
    but = noted().get((id, source), {}).get(recorded or "")
    return recorded == source or but is not None and (problem not in but if problem else not but)


def named(problem: str, dtype: str) -> str:
    """A record's problem (records.shape_text) and storage type in one text."""
    return f"{problem} {dtype}"


def of_code(ptx: str, launch: Any = None) -> str:
    """SHA-256 of a kernel's PTX and launch, without comments and what depends on the order of compiling.

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
    return _sha256([*text, str(launch)])


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def _of(package: Path) -> _Sources:
    return _Sources(package)


def _registered(tree: ast.Module | None) -> tuple[ast.FunctionDef, list[ast.expr]]:
    """A stage file's launch, and what it registers of what is launched."""
    for node in tree.body if tree is not None else ():
        for one in getattr(node, "decorator_list", ()):
            if _registers(one):
                return node, [given.value for given in one.keywords if given.arg not in NOT_LAUNCHED]
    raise ValueError("this is no stage file: nothing in it is decorated by register(…)")


def _registers(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "register"


@functools.cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


class _Sources:
    """A tree of this package: what its names stand for, and a digest of each definition."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.trees: dict[str, ast.Module | None] = {}
        self.names: dict[Scope, dict[str, list[ast.AST]]] = {}
        self.known: dict[int, str] = {}
        self.within: list[int] = []
        """Definitions whose digests are being made: one that is reached again is written as its place in this list."""
        self.lowest = 0
        """The lowest place so reached: a digest that hangs on a definition around it is not kept."""

    def tree(self, module: str) -> ast.Module | None:
        """A module's syntax; None if it is not of this package."""
        if module not in self.trees:
            top, *rest = module.split(".")
            place = self.package.joinpath(*rest)
            files = (place.with_suffix(".py"), place / "__init__.py") if rest else (place / "__init__.py",)
            file = next((one for one in files if top == "dwlab" and one.is_file()), None)
            self.trees[module] = _parsed(file) if file and not module.startswith(INTERPRETER) else None
        return self.trees[module]

    def digest(self, definition: Definition) -> str:
        """SHA-256 of a definition, with those of all that it uses in the places of their names."""
        scope, node = definition
        if id(node) in self.known:
            return self.known[id(node)]
        if id(node) in self.within:
            place = self.within.index(id(node))
            self.lowest = min(self.lowest, place)
            return f"around {len(self.within) - place}"
        depth, outer = len(self.within), self.lowest
        self.within.append(id(node))
        self.lowest = depth
        found = _sha256([_Writer(self, scope).text(node, {})])
        self.within.pop()
        if self.lowest >= depth:
            self.known[id(node)] = found
        self.lowest = min(outer, self.lowest)
        return found

    def bindings(self, scope: Scope) -> Mapping[str, list[ast.AST]]:
        """The definitions, assignments and imports that bind each name of a module, or of a function's own body."""
        if scope not in self.names:
            module, function = scope
            tree = self.tree(module)
            body = tree.body if tree is not None else []
            if function:
                body = next((one.body for one in body if isinstance(one, ast.FunctionDef) and one.name == function), [])
            self.names[scope] = _bound_by(body)
        return self.names[scope]

    def looked_up(self, scope: Scope, dotted: str) -> tuple[list[Found], str]:
        """The definitions in this package for a name, or one within a module ("rows.take"), and what follows it."""
        first, _, rest = dotted.partition(".")
        module, function = scope
        if function and first in self.bindings(scope):
            nodes = self.bindings(scope)[first]
            if not isinstance(nodes[0], (ast.Import, ast.ImportFrom)):
                return [((scope, node), first) for node in nodes], rest
        return self._resolved(module, first, rest, scope)

    def outside(self, scope: Scope, name: str) -> str:
        """The original name of one that is not followed; "" of the interpreter's."""
        for node in self.bindings(scope).get(name) or self.bindings((scope[0], "")).get(name, ()):
            for alias in getattr(node, "names", ()):
                if isinstance(node, (ast.Import, ast.ImportFrom)) and name == (alias.asname or alias.name):
                    return "" if (getattr(node, "module", "") or "").startswith(INTERPRETER) else alias.name
        return name

    def _resolved(self, module: str, name: str, rest: str, scope: Scope | None = None) -> tuple[list[Found], str]:
        """scope: where the name stands, if it is the module's own: then all is followed."""
        if (module, name) == LEFT_OUT:
            return [], rest
        found: list[Found] = []
        after = rest
        nodes = (self.bindings(scope) if scope else {}).get(name) or self.bindings((module, "")).get(name, [])
        for node in () if nodes else self.bindings((module, "")).get("*", ()):
            more, after = self._resolved(node.module or "", name, rest)
            found += more
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                source = node.module or ""
                real = next(one.name for one in node.names if (one.asname or one.name) == name)
                if self.tree(f"{source}.{real}") is not None:  # a module
                    inside, _, further = rest.partition(".")
                    more, after = self._resolved(f"{source}.{real}", inside, further) if inside else ([], rest)
                    found += more
                elif self.tree(source) is not None:
                    more, after = self._resolved(source, real, rest)
                    found += more
            elif isinstance(node, ast.Import):
                continue
            elif scope or module not in CONSTANTS_ONLY or not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.append((((module, ""), node), name))
        return found, after


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        yield node
        if not isinstance(node, (ast.expr, ast.FunctionDef, ast.ClassDef)):
            yield from _statements(ast.iter_child_nodes(node))


def _bound_by(body: list[ast.stmt]) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = {}
    for node in _statements(body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name.split(".")[0], []).append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.Expr)):
            for one in ast.walk(node.value if isinstance(node, ast.Expr) else node):
                stored = isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
                base = one.value if isinstance(one, (ast.Subscript, ast.Attribute)) else None
                changes = isinstance(base, ast.Name) and (isinstance(node, ast.Expr) or isinstance(one.ctx, ast.Store))
                if stored or changes:  # TABLE[key] = …, TABLE.update(…)
                    found.setdefault(one.id if stored else base.id, []).append(node)
    return found


# ------------------------------------------------------------------------------------------------------ a definition

_NOT_WRITTEN = {"annotation", "returns", "type_comment", "type_params", "ctx", "kind", "type_ignores", "name"}

Bound = Mapping[str, str]
"""Names that a definition binds itself, numbered as they come."""


class _Writer:
    """The text of one definition: what it does, without names."""

    def __init__(self, sources: _Sources, scope: Scope) -> None:
        self.sources, self.scope = sources, scope

    def text(self, node: Any, bound: Bound) -> str:
        """The text of a node. bound: the names that a function around it binds."""
        if isinstance(node, list):
            return "[" + ",".join(self.text(one, bound) for one in node) + "]"
        if not isinstance(node, ast.AST):
            return f"{type(node).__name__} {node!r}"
        if isinstance(node, ast.Raise):
            return "Raise"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return ""  # what is imported counts where it is used
        if isinstance(node, ast.alias):
            return f"{node.name} {node.asname}"
        dotted = _dotted(node)
        if dotted:
            return self._name(dotted, bound)
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            return self._function(node, bound)
        if isinstance(node, ast.Call):
            return self._call(node, bound)
        if isinstance(node, ast.ClassDef):  # its names are those of attributes
            inside = [self.text(one, bound) + getattr(one, "name", "") for one in _lasting(node.body)]
            return f"class {self.text([*node.decorator_list, *node.bases, *node.keywords], bound)} {inside}"
        if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)):
            bound = _more(bound, node)
        parts = []
        for field, value in ast.iter_fields(node):
            if field in _NOT_WRITTEN or value is None or value == []:
                continue
            if field in ("body", "orelse", "finalbody") and isinstance(value, list):
                value = _lasting(value)
            parts.append(f"{field}={self.text(value, bound)}")
        return f"{type(node).__name__}({' '.join(parts)})"

    def _name(self, dotted: str, bound: Bound) -> str:
        first, _, rest = dotted.partition(".")
        if first in bound:
            return f"{bound[first]}.{rest}"
        found, rest = self.sources.looked_up(self.scope, dotted)
        if not found:
            source = self.sources.outside(self.scope, first)
            return source and source + dotted.removeprefix(first)
        which = (f"{_place(one[1], name)} {self.sources.digest(one)}" for one, name in found)
        return f"<{' '.join(sorted(which))}>.{rest}"

    def _function(self, node: ast.FunctionDef | ast.Lambda, bound: Bound) -> str:
        decorators = [one for one in getattr(node, "decorator_list", ()) if not _registers(one)]
        outside = [self.text(one, bound) for one in (*decorators, *node.args.defaults, *node.args.kw_defaults)]
        body = [node.body] if isinstance(node, ast.Lambda) else _lasting(node.body)
        inside = _more(bound, node)
        kinds = [len(getattr(node.args, kind)) for kind in ("posonlyargs", "args", "kwonlyargs")]
        stars = [getattr(node.args, kind) is not None for kind in ("vararg", "kwarg")]
        return f"def {bound.get(getattr(node, 'name', ''), '')} {outside} {kinds} {stars} {self.text(body, inside)}"

    def _call(self, node: ast.Call, bound: Bound) -> str:
        """A keyword of a function of this package is written as the place of its parameter."""
        called = _dotted(node.func)
        names: list[str] = []
        if called and called.partition(".")[0] not in bound:
            found, rest = self.sources.looked_up(self.scope, called)
            if len(found) == 1 and not rest and isinstance(found[0][0][1], ast.FunctionDef):
                given = found[0][0][1].args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
        keywords = [
            f"{names.index(one.arg) if one.arg in names else one.arg}={self.text(one.value, bound)}"
            for one in node.keywords
        ]
        beside = [BESIDE[one.arg] for one in node.keywords if called == "Launch" and one.arg in BESIDE]
        registry = (REGISTRY, "")
        more = [self.sources.digest((registry, n)) for name in beside for n in self.sources.bindings(registry)[name]]
        return f"call {self.text(node.func, bound)} {self.text(node.args, bound)} {keywords} {more}"


def _place(node: ast.AST, name: str) -> int:
    """Which of the names that a statement binds this is: of `WIDTH, HEIGHT = 8, 4` the first, say."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return 0
    stored = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return stored.index(name) if name in stored else -1


def _dotted(node: ast.AST) -> str:
    """ "a.b.c" of a name and its attributes; "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner else ""


def _lasting(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without texts and without refusals."""

    def refuses(node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and not node.orelse and all(isinstance(one, ast.Raise) for one in node.body)

    def text(node: ast.stmt) -> bool:
        return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

    return [node for node in body if not refuses(node) and not text(node)]


def _more(bound: Bound, node: ast.AST) -> Bound:
    """`bound`, and the names that a function or a comprehension binds itself, in the order in which they come."""
    names: list[str] = []

    def visit(one: ast.AST) -> None:
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            names.append(one.name)
            return
        if isinstance(one, ast.arg):
            names.append(one.arg)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            names.append(one.id)
        elif isinstance(one, ast.ExceptHandler) and one.name:
            names.append(one.name)
        if not isinstance(one, ast.Lambda):
            for child in ast.iter_child_nodes(one):
                visit(child)

    for child in ast.iter_child_nodes(node):
        visit(child)
    return {**bound, **{name: f"v{len(bound)}.{i}" for i, name in enumerate(dict.fromkeys(names))}}
