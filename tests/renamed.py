"""Python texts with other names for all local variables: what a record, a tile or a page must not depend on."""

import ast
import builtins
import io
import tokenize


def local_names(text: str) -> set[str]:
    """Names that functions of a module bind, parameters too, and that stand for nothing else in it."""
    tree = ast.parse(text)
    taken, bound = set(dir(builtins)), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            for one in ast.walk(node):
                if isinstance(one, ast.arg):
                    bound.add(one.arg)
                elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                    bound.add(one.id)
        elif isinstance(node, ast.JoinedStr):  # their tokens are one text before Python 3.12
            taken |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            taken |= {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
        elif isinstance(node, ast.alias):
            taken.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.keyword):
            taken.add(node.arg or "")
    for node in tree.body:
        stored = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        taken |= {node.name} if isinstance(node, ast.FunctionDef) else stored
    # a module's own functions may be called by keyword from elsewhere
    taken |= {one.arg for node in tree.body if isinstance(node, ast.FunctionDef) for one in ast.walk(node.args)
              if isinstance(one, ast.arg)}  # fmt: skip
    return {name for name in bound - taken if not name.startswith("_")}


def renamed(text: str) -> tuple[str, set[str]]:
    """The text with another name for each of `local_names`, and these."""
    names, lines = local_names(text), text.splitlines(keepends=True)
    before = None
    places = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in names and before != ".":
            places.append((token.start, token.string))
        before = token.string
    for (row, column), name in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = f"{line[:column]}{name}_renamed{line[column + len(name) :]}"
    return "".join(lines), names
