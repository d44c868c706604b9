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
            inner = [one for one in getattr(node, "body", []) if isinstance(one, (ast.FunctionDef, ast.AnnAssign))]
            inner = [
                one for one in inner if isinstance(node, ast.ClassDef) and not getattr(one, "name", "a").startswith("_")
            ]
            fields = [ast.unparse(one.target) for one in inner if isinstance(one, ast.AnnAssign)]
            given = ", ".join(fields) if isinstance(node, ast.ClassDef) else _arguments(node)
            lines = sum(_head(one) for one in (node, *inner))
            found[node.name] = Offered(node.name, f"{node.name}({given})", ast.get_docstring(node) or "", lines)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for one in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(one, ast.Name):
                    found[one.id] = Offered(one.id, one.id, "", 1)
    return found


def _arguments(node: ast.FunctionDef) -> str:
    return ", ".join(one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))


def _head(node: ast.stmt) -> int:
    """Lines of a signature with its decorators and docstring; of a field its own."""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.end_lineno - node.lineno + 1
    first = node.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno if documented else first.lineno - 1) - node.lineno + 1 + len(node.decorator_list)
