"""What the interfaces of kernels offer: docs/parts.md shows it, and a test counts what a reader of a stage reads."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from dwlab.kernels.parts import INTERFACES

FOLDER = Path(__file__).parents[1] / "dwlab" / "kernels"


class Offered(NamedTuple):
    """What a module offers by a name: its call, its docstring, and how many lines these two are."""

    name: str
    call: str
    says: str
    lines: int


def files() -> list[Path]:
    """The files of all interfaces."""
    return [*sorted(FOLDER.glob("parts/[a-z]*.py")), *(FOLDER / f"{name}.py" for name in INTERFACES)]


def offered(file: Path) -> dict[str, Offered]:
    """What an interface offers by name: functions, classes with their fields and methods, constants."""
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
            methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name[0] != "_"]
            if isinstance(node, ast.FunctionDef):
                given, inner = [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)], []
            else:
                given, inner = [ast.unparse(one.target) for one in fields], [*fields, *methods]
            call, lines = f"{node.name}({', '.join(given)})", sum(map(_head, (node, *inner)))
            found[node.name] = Offered(node.name, call, ast.get_docstring(node) or "", lines)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: Offered(one.id, one.id, "", 1) for one in targets if isinstance(one, ast.Name)}
    return found


def _head(node: ast.stmt) -> int:
    """Lines of a signature with its decorators and docstring; of a field its own."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.end_lineno - node.lineno + 1
    first, documented = node.body[0], ast.get_docstring(node) is not None
    return (first.end_lineno if documented else first.lineno - 1) - node.lineno + 1 + len(node.decorator_list)
