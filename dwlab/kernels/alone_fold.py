"""Functions of a stage's own file (`alone`) made shorter, as syntax trees: what numbers decide, and calls.

The name of a function has it as `of`. Comments stand there as texts that begin with "#".
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections import Counter
from typing import Any

CASTS = "uint32 int32 float32 np.int64 min max int".split()
NEUTRAL = {ast.Add: 0, ast.Sub: 0, ast.BitXor: 0, ast.LShift: 0, ast.RShift: 0, ast.Mult: 1, ast.FloorDiv: 1}
WIDTH = 120  # of a line; a longer statement is not written wherever its function is called
LONGEST = 60  # lines of a function into which another one's are written


class Function:
    """A device function or the kernel."""

    def __init__(self, tree: ast.FunctionDef):
        self.tree = tree

    def __deepcopy__(self, memo: Any) -> Function:
        return self

    @property
    def statements(self) -> list[ast.stmt]:
        """The body without its docstring."""
        return self.tree.body[ast.get_docstring(self.tree) is not None :] or [ast.Pass()]

    def names(self, stored: bool = False) -> Counter:
        """How often each name stands in the function; or is given a value, as parameters are, which come first."""
        every = (one for one in ast.walk(self.tree) if isinstance(one, ast.arg | ast.Name) and not hasattr(one, "of"))
        read = ast.Load if stored else ()
        return Counter(
            getattr(one, "arg", "") or one.id for one in every if not isinstance(getattr(one, "ctx", 0), read)
        )


def unused(name: str, taken: Any) -> str:
    """A name like this one that is not taken."""
    return next(one for one in itertools.chain([name], (f"{name}_{k}" for k in itertools.count(2))) if one not in taken)


def number(node: ast.AST) -> Any:
    """The number that a node is, or one that is converted; or None."""
    node = node.args[0] if isinstance(node, ast.Call) and ast.unparse(node.func) == "uint32" else node
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | float) else None


def plain(node: ast.AST) -> bool:
    """Whether it may as well stand twice: a name or a number."""
    return isinstance(node, ast.Name | ast.Constant) or number(node) is not None


def pure(node: ast.AST, reads: bool = True) -> bool:
    """Whether it only gives a value; reads: which may hang on what memory holds."""
    calls = (ast.unparse(one.func) for one in ast.walk(node) if isinstance(one, ast.Call))
    return all(one in CASTS for one in calls) and (reads or "[" not in ast.unparse(node))


def calls(tree: ast.AST) -> list[ast.Call]:
    """Calls of functions of the file."""
    return [one for one in ast.walk(tree) if hasattr(getattr(one, "func", None), "of")]


def become(node: ast.AST, other: ast.AST) -> None:
    """Makes a node another one, where it stands."""
    node.__class__, node.__dict__ = other.__class__, dict(other.__dict__)


def blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    every = (getattr(one, name, None) for one in ast.walk(tree) for name in ("body", "orelse"))
    return [one for one in every if isinstance(one, list)]


class Replaced(ast.NodeTransformer):
    """Names replaced by nodes, or by other names."""

    def __init__(self, new: dict[str, Any]):
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        new = self.new.get("" if hasattr(node, "of") else node.id)
        node.id = new if isinstance(new, str) else node.id
        return copy.deepcopy(new) if isinstance(new, ast.AST) else node


class Pruned(ast.NodeTransformer):
    """Branches cut that numbers decide."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if getattr(node, "body", 0) == []:
            node.body.append(ast.Pass())
        return node

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_If(self, node: ast.If | ast.IfExp) -> Any:
        test = Folded().visit(copy.deepcopy(node.test))
        if not isinstance(test, ast.Constant):
            return self.generic_visit(node)
        kept = node.body if test.value else node.orelse
        return self.visit(kept) if isinstance(kept, ast.AST) else self.generic_visit(ast.Module(kept, [])).body

    visit_IfExp = visit_If


class Folded(Pruned):
    """Numbers computed, and loops without their heads where that is shorter."""

    def visit_Compare(self, node: ast.expr) -> ast.expr:
        self.generic_visit(node)
        if any(isinstance(one, ast.Name | ast.Call | ast.Subscript) for one in ast.walk(node)):
            return node
        try:
            return ast.Constant(eval(ast.unparse(node)))
        except ArithmeticError:
            return node

    visit_UnaryOp = visit_Compare

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, right, neutral = number(node.left), number(node.right), NEUTRAL.get(type(node.op), "none")
        if right == neutral:
            return node.left
        return node.right if left == neutral and isinstance(node.op, ast.Add | ast.Mult) else self.visit_Compare(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        numbers = [one for one in node.values if isinstance(one, ast.Constant)]
        ends = [one for one in numbers if bool(one.value) == isinstance(node.op, ast.Or)]
        node.values = ends[:1] or [one for one in node.values if one not in numbers] or numbers[:1]
        return node if len(node.values) > 1 else node.values[0]

    def visit_For(self, node: ast.For) -> Any:
        self.generic_visit(node)
        given = [number(one) for one in getattr(node.iter, "args", [node])]
        leaves = any(isinstance(one, ast.Break | ast.Continue) for one in ast.walk(node))  # no loop, nothing to leave
        if leaves or None in given or len(rounds := range(*given)) > 3:
            return node
        every = ((Replaced({node.target.id: ast.Constant(k)}), copy.deepcopy(node.body)) for k in rounds)
        whole = self.generic_visit(ast.Module([new.visit(one) for new, body in every for one in body], []))
        return node if len(rounds) > 1 and len(ast.unparse(whole)) > len(ast.unparse(node)) else whole.body


def shortened(functions: list[Function]) -> list[Function]:
    """The functions, callees first, without those that are written where they were used."""
    before: list[str] = []
    while before != (now := [ast.dump(one.tree) for one in functions]):
        before = now
        for one in functions:
            one.tree = Folded().visit(one.tree)
        for one in functions[:-1]:
            users = [(user, call) for user in functions for call in calls(user.tree) if call.func.of is one]
            _without_unread(one.tree.args, one.names(), [call for _, call in users])
            if not users:
                functions.remove(one)
            elif _hands_on(one) or len(users) == 1 and _fits(one, users[0][0]):
                for user, call, block in [(*use, block) for use in users for block in blocks(use[0].tree)]:
                    _inlined(user, block, call, one)
    return functions


def _without_unread(given: ast.arguments, names: Counter, of_it: list[ast.Call]) -> None:
    """Drops parameters that a function does not read, and what is given for them."""
    for at in reversed(range(0 if given.vararg else len(given.args))):
        if names[given.args[at].arg] == 1 and all(len(one.args) > at and pure(one.args[at]) for one in of_it):
            for several in (given.args, *(one.args for one in of_it)):
                del several[at]


def _hands_on(one: Function) -> bool:
    """Whether a function does nothing, or is one call or value, and short."""
    only, *more = one.statements
    return not more and isinstance(only, ast.Return | ast.Pass | ast.Expr) and len(ast.unparse(only)) < WIDTH


def _fits(one: Function, user: Function) -> bool:
    """Whether a function is written where it is used: without loops and arrays, whose order would hang on that."""
    texts = [ast.unparse(ast.fix_missing_locations(of.tree)) for of in (one, user)]
    return "".join(texts).count("\n") < LONGEST and not any(word in texts[0] for word in ("for ", "while ", ".array("))


def _inlined(user: Function, block: list[ast.stmt], call: ast.Call, one: Function) -> None:
    """Writes a function where a statement of the block calls it."""
    for at, statement in enumerate(block):
        heads = [of for of in ast.iter_child_nodes(statement) if not isinstance(of, ast.stmt)]
        if any(of is call for head in heads for of in ast.walk(head)):
            block[at : at + 1] = _written(user, statement, call, one) or [statement]
            return


def _written(user: Function, statement: ast.stmt, call: ast.Call, one: Function) -> list[ast.stmt] | None:
    body, given = copy.deepcopy(one.statements), one.tree.args
    last = body.pop().value if isinstance(body[-1], ast.Return) else ast.Constant(None)
    only = getattr(statement, "value", None) is call
    early = any(isinstance(of, ast.Return) for each in body for of in ast.walk(each))
    if early or given.vararg or len(call.args) < len(given.args) or body and not only:
        return None
    names, stored, taken, new, before = one.names(), one.names(stored=True), user.names(), {}, []
    for name, value in itertools.zip_longest(stored, call.args):
        if value and stored[name] == 1 and (plain(value) or names[name] < 3 and (not only or pure(value, not body))):
            new[name] = value
            continue
        new[name] = unused(name, taken)
        taken[new[name]] += 1
        if value:
            before.append((ast.Name(new[name], ast.Store()), value))
    if before and not only:
        return None
    *body, last = Replaced(new).visit(ast.Module([*body, ast.Expr(last)], [])).body
    become(call, last.value)
    if before:
        to, given = (one[0] if len(before) == 1 else ast.Tuple(list(one)) for one in zip(*before, strict=True))
        body.insert(0, ast.Assign([to], given, lineno=0))
    return [*body, *([] if body and isinstance(statement, ast.Expr) else [statement])]
