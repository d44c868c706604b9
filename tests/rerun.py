"""Runs one cell of a lesson, without a GPU, after those statements before it that it needs: what it prints now."""

import ast
import contextlib
import dis
import io
import linecache
import re
from collections.abc import Mapping, Sequence
from types import CodeType


def compiled(body: list[ast.stmt], name: str = "") -> CodeType:
    return compile(ast.Module(body, []), name, "exec")


def names(code: CodeType, does: str) -> set[str]:
    """The module's names that code binds (STORE), or that it and the functions in it read (LOAD)."""
    own = {one.argval for one in dis.get_instructions(code) if re.match(f"{does}_.*(NAME|GLOBAL)", one.opname)}
    inner = [one for one in code.co_consts if isinstance(one, CodeType) and does == "LOAD"]
    return own.union(*(names(one, does) for one in inner))


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


def needed(cells: Sequence[Mapping], place: int) -> list[tuple[int, list[ast.stmt]]]:
    """(place of a cell, its statements), of all that must run for the cell at `place`, in order; last is that cell."""
    trees = {at: ast.parse(cells[at]["source"]).body for at in range(place + 1) if cells[at]["cell_type"] == "code"}
    imports = [one for body in trees.values() for one in body if isinstance(one, ast.Import | ast.ImportFrom)]
    modules = names(compiled(imports), "STORE")
    want, found = set(), {}
    for at, body in sorted(trees.items(), reverse=True):
        for one in reversed(body):
            binds = names(compiled([one]), "STORE")
            if at == place or want & (binds | (changed(one) - modules)):
                found.setdefault(at, []).insert(0, one)
                want -= set() if isinstance(one, ast.If | ast.Try) else binds  # which may bind it, or not
                loops = (ast.walk(loop.target) for loop in ast.walk(one) if isinstance(loop, ast.For))
                own = {node.id for target in loops for node in target if isinstance(node, ast.Name)}
                want |= names(compiled([one]), "LOAD") - own
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
            exec(compiled(body, name), space)
            value = eval(compile(ast.Expression(last.value), name, "eval"), space) if last else None
            if value is not None:
                display(value)
    return text.getvalue()
