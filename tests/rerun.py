"""Runs one cell of a lesson, without a GPU, after those statements before it that it needs: what it prints now."""

import ast
import contextlib
import io
import linecache
from collections.abc import Iterable, Iterator, Mapping, Sequence

DEFINES = (ast.FunctionDef, ast.ClassDef)


def bound(statement: ast.AST) -> set[str]:
    """Names that a statement binds in the scope that it stands in."""
    names, todo = set(), [statement]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, DEFINES):
            names.add(node.name)
        if node is statement or not isinstance(node, (*DEFINES, ast.Lambda, ast.comprehension)):
            todo += [] if isinstance(node, (*DEFINES, ast.Lambda)) else ast.iter_child_nodes(node)
    return names


def changed(statement: ast.AST) -> set[str]:
    """Names whose value a statement may change in place: an item or attribute is set, or a method called for itself."""
    found = set()
    for node in ast.walk(statement):
        call = node.value if isinstance(node, ast.Expr) else None
        part = call.func if isinstance(call, ast.Call) else node
        if isinstance(part, ast.Subscript | ast.Attribute) and (part is not node or not isinstance(part.ctx, ast.Load)):
            while isinstance(part, ast.Subscript | ast.Attribute | ast.Call):
                part = part.func if isinstance(part, ast.Call) else part.value
            found |= {part.id} if isinstance(part, ast.Name) else set()
    return found


def read(node: ast.AST) -> Iterator[str]:
    """Names that are read in a node, but for those that its own functions and comprehensions bind."""
    if isinstance(node, (*DEFINES, ast.Lambda)):
        inner = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        body = node.body if isinstance(node.body, list) else [node.body]
        if not isinstance(node, ast.ClassDef):
            inner |= set().union(*map(bound, body))
        outside = [*getattr(node, "decorator_list", []), *getattr(getattr(node, "args", None), "defaults", [])]
        yield from (name for part in outside for name in read(part))
        yield from (name for part in body for name in read(part) if name not in inner)
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        inner = set().union(*(bound(part.target) for part in node.generators))
        yield from (name for part in ast.iter_child_nodes(node) for name in read(part) if name not in inner)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
    else:
        for part in ast.iter_child_nodes(node):
            yield from read(part)


def surely(statement: ast.stmt) -> set[str]:
    """Names that a statement binds whatever happens."""
    if isinstance(statement, ast.If):
        branches = (set().union(*map(surely, part)) for part in (statement.body, statement.orelse))
        return set.intersection(*branches)
    return set() if isinstance(statement, ast.Try) else bound(statement)


def takes(body: Iterable[ast.stmt]) -> set[str]:
    """Names that statements, one after the other, take from what is before them."""
    known, found = set(), set()
    for one in body:
        inner = [part for name in ("body", "orelse") for part in getattr(one, name, ())]
        if isinstance(one, ast.For | ast.With):
            heads = [one.iter] if isinstance(one, ast.For) else [item.context_expr for item in one.items]
            own = bound(one.target) if isinstance(one, ast.For) else bound(ast.With(one.items, []))
            more = {name for head in heads for name in read(head)} | takes(inner) - own
        elif isinstance(one, ast.Try):
            rest = [part for handler in one.handlers for part in handler.body]
            more = takes(inner) | takes(rest) | takes(one.finalbody)
            more |= {name for handler in one.handlers if handler.type for name in read(handler.type)}
        elif isinstance(one, ast.If):
            more = set(read(one.test)) | takes(one.body) | takes(one.orelse)
        else:
            more = set(read(one)) | (bound(one) if isinstance(one, ast.AugAssign) else set())
        found |= more - known
        known |= surely(one)
    return found


def needed(cells: Sequence[Mapping], place: int) -> list[tuple[int, list[ast.stmt]]]:
    """(place of a cell, its statements), of all that must run for the cell at `place`, in order; last is that cell."""
    trees = {at: ast.parse(cells[at]["source"]).body for at in range(place + 1) if cells[at]["cell_type"] == "code"}
    imports = [one for body in trees.values() for one in body if isinstance(one, ast.Import | ast.ImportFrom)]
    modules = set().union(*map(bound, imports))
    want, found = set(), {}
    for at, body in sorted(trees.items(), reverse=True):
        for one in reversed(body):
            if at == place or want & (bound(one) | (changed(one) - modules)):
                found.setdefault(at, []).insert(0, one)
                want = (want - surely(one)) | takes([one])
    return sorted(found.items())


def rerun(cells: Sequence[Mapping], place: int) -> str:
    """The text that the cell at `place` shows now."""
    from IPython.core.formatters import DisplayFormatter

    shown = DisplayFormatter().format

    def display(*values: object) -> None:
        for value in values:
            print(shown(value)[0].get("text/plain", ""))

    space = {"__name__": "lesson", "display": display}
    for at, body in needed(cells, place):
        source, name = cells[at]["source"], f"<cell {id(cells)} {at}>"
        # The interpreter of kernels reads their source.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            exec(compile(ast.Module(body, []), name, "exec"), space)
            value = eval(compile(ast.Expression(last.value), name, "eval"), space) if last else None
            if value is not None:
                display(value)
    return text.getvalue()
