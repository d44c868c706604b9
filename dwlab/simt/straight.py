"""Straight-line code: statements that only compute with variables, as one Python function of NumPy's operations.

`a = b * c`, `d += a` and their like touch no memory, part no lanes and raise nothing. Those that stand one behind the
other are compiled once for the types that the variables have, and each counts as if it had been executed by itself: its
line's warps, lanes and floating-point operations.
"""

from __future__ import annotations

import ast
import copy
import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import source, types
from dwlab.simt.memory import NUMBERS
from dwlab.simt.options import UnsupportedError

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

BINARY = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
"""Operations that no lane can do wrong; an integer can be divided by 0."""
UNARY: dict[type, Callable] = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}


@dataclass(eq=False)
class Straight:
    """Statements one behind the other.

    reads: the variables whose values from before are used; sets: those that are set.  plans: by the types of what is
    read, a function that takes it and gives what is set, and (node, statements, FLOPs of a lane, those in float64) of
    each line; None where they must be executed one by one.  kinds, plan: the last of them.
    """

    statements: list[ast.stmt]
    reads: dict[str, None] = field(default_factory=dict)
    sets: dict[str, None] = field(default_factory=dict)
    plans: dict[tuple, Plan | None] = field(default_factory=dict)
    kinds: tuple | None = None
    plan: Plan | None = None


Plan = tuple[Callable, tuple[tuple[ast.AST, int, int, int], ...]]


def parts_of(statements: list[ast.stmt], local: frozenset[str], lookup: Callable) -> list[ast.stmt | Straight]:
    """The statements, with those in a row that only compute taken together. local: the function's own names.

    lookup: the value of another name.
    """
    out: list[ast.stmt | Straight] = []
    for statement in statements:
        augmented = type(getattr(statement, "op", None)) in BINARY
        targets = [statement.target] if augmented else getattr(statement, "targets", [])
        value = getattr(statement, "value", None)
        copies = not augmented and isinstance(value, (ast.Name, ast.Constant))  # which may be literals
        plain = targets and all(isinstance(one, ast.Name) for one in targets) and not copies
        if not plain or not _computes(value, local, lookup):
            out.append(statement)
            continue
        if not out or not isinstance(out[-1], Straight):
            out.append(Straight([]))
        one, names = out[-1], [target.id for target in targets]
        one.statements.append(statement)
        read = {n.id: None for n in ast.walk(value) if isinstance(n, ast.Name) and n.id in local}
        read |= dict.fromkeys(names * augmented)
        one.reads |= {name: None for name in read if name not in one.sets}
        one.sets |= dict.fromkeys(names)
    return out


def _computes(node: ast.expr, local: frozenset[str], lookup: Callable[[str], object]) -> bool:
    """Whether an expression consists of variables, numbers, operations, conversions and functions of math."""
    if isinstance(node, ast.Call):
        of = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if not isinstance(of, ast.Name) or of.id in local or len(node.args) != 1 or node.keywords:
            return False
        function = source.static_value(node.func, lookup)
        known = getattr(math, getattr(function, "__name__", "pi"), None) is function
        return (known or types.as_dtype(function) is not None) and _computes(node.args[0], local, lookup)
    if isinstance(node, (ast.Constant, ast.Name)):
        return not isinstance(getattr(node, "value", 0), (str, bytes, type(None)))
    if isinstance(node, ast.UnaryOp):
        return type(node.op) in UNARY and _computes(node.operand, local, lookup)
    if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
        return all(_computes(one, local, lookup) for one in (node.left, node.right))
    return False


@functools.lru_cache(maxsize=8192)
def as_load(target: ast.expr) -> ast.expr:
    """The node that reads what is set here, as `name += …` does."""
    loaded = copy.copy(target)
    loaded.ctx = ast.Load()
    return loaded


class Maker:
    """Compiles statements for variables of some types."""

    def __init__(self, run: Execution, dtypes: dict[str, np.dtype]):
        self.run = run
        self.dtypes = dtypes
        self.things: dict[str, object] = {}
        self.counts: dict[int, list] = {}

    def plan(self, straight: Straight) -> Plan | None:
        """The function that the statements become; None where they must be executed one by one."""
        inputs, lines = ", ".join(f"v_{name}" for name in straight.reads), []
        try:
            for statement in straight.statements:
                self.count(statement, 1)
                code, dtype = self.code(statement.value)
                if isinstance(statement, ast.AugAssign):
                    old = self.code(as_load(statement.target))
                    code, dtype = self.binary(old, (code, dtype), statement)
                for one in getattr(statement, "targets", None) or [statement.target]:
                    lines.append(f"(v_{one.id} := {code})")
                    self.dtypes[one.id] = dtype
        except UnsupportedError:
            return None
        results = "".join(f"v_{name}, " for name in straight.sets)
        code = f"lambda {inputs}: ({', '.join(lines)}, ({results}))[-1]"
        return eval(code, self.things), tuple(map(tuple, self.counts.values()))

    def count(self, node: ast.AST, statements: int, flops: int = 0, dtype: np.dtype = types.BOOL) -> None:
        one = self.counts.setdefault(node.lineno, [node, 0, 0, 0])
        one[1] += statements
        one[2] += flops
        one[3] += flops * (dtype in (types.FLOAT64, types.COMPLEX128))

    def thing(self, value: object) -> str:
        """A name for a constant or a function in the code."""
        name = f"c{len(self.things)}"
        self.things[name] = value
        return name

    def cast(self, code: str, have: np.dtype, want: np.dtype | None) -> str:
        return code if want is None or have == want else f"{self.thing(types.cast)}({code}, {self.thing(want)})"

    def code(self, node: ast.expr) -> tuple[str, np.dtype]:
        """Python's code of an expression, and the type of its value."""
        if isinstance(node, ast.Name) and node.id in self.dtypes:
            have = self.dtypes[node.id]
            want = self.run.frame.types.get(id(node), have)
            return self.cast(f"v_{node.id}", have, want), want
        if isinstance(node, (ast.Constant, ast.Name)):
            value = self.run.eval(node)
            if not isinstance(value, NUMBERS) or value.ndim:
                raise UnsupportedError
            return self.thing(value), value.dtype
        if isinstance(node, ast.BinOp):
            return self.binary(self.code(node.left), self.code(node.right), node)
        if isinstance(node, ast.Call):
            return self.call(node)
        (code, have), op = self.code(node.operand), UNARY[type(node.op)]
        return f"{self.thing(types.unary)}({self.thing(op)}, {code})", types.unary(op, have.type(1)).dtype

    def binary(self, left: tuple, right: tuple, node: ast.BinOp | ast.AugAssign) -> tuple[str, np.dtype]:
        op = BINARY[type(node.op)]
        if op is operator.truediv and "c" in (left[1].kind, right[1].kind):
            raise UnsupportedError
        compute, a, b, result = types.binary_plan(op, left[1], right[1])
        x, y = self.cast(*left, a), self.cast(*right, b)
        dtype = types.binary(op, left[1].type(1), right[1].type(1)).dtype
        self.count(node, 0, types.flops(op, dtype), dtype)
        sign = ast.unparse(ast.BinOp(ast.Name("x"), node.op, ast.Name("y")))[1:-1]
        code = f"({x}{sign}{y})" if compute is op else f"{self.thing(compute)}({x}, {y})"
        return code if result is None else f"{code}.astype({self.thing(result)})", dtype

    def call(self, node: ast.Call) -> tuple[str, np.dtype]:
        """float32(…) and its like, and functions of the math module."""
        function, (code, have) = self.run.eval(node.func), self.code(node.args[0])
        dtype = types.as_dtype(function)
        if dtype is not None and have.kind != "c":
            return self.cast(code, have, dtype), dtype
        result, flops = types.math_call(function, [have.type(1)])
        if isinstance(result, tuple):
            raise UnsupportedError
        self.count(node, 0, flops, result.dtype)
        return f"{self.thing(types.math_call)}({self.thing(function)}, [{code}])[0]", result.dtype
