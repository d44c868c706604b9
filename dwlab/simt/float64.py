"""Operations in float64 of a kernel of float32 arrays: sums and products, comparisons, minima, conversions.

What counts is what is left when the compiler is done. It narrows three things back to float32, as they give the same
bits, and only these: a single + - * or / of float32 values and constants that float32 holds, if all that is done with
the result is to make it a float32; a comparison of two such operands; and a choice between one such value and
constants, made a float32 too. So `y[i] = 2.0 * x[i]` is none, `y[i] = 2.1 * x[i]`, `2.0 * x[i] + 1.0` and
`max(0.0, x[i])` are. What is not decided yet when it is computed is held here until it is used.

Nothing is watched where an argument is a float64 array: such a kernel means it.
"""

from __future__ import annotations

import ast
import operator
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import types
from dwlab.simt.memory import Lanes

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution

KEPT = 256
"""Values that are held before it is looked for those that nothing can use any more: they have stayed narrow."""

_NARROWED = {operator.add, operator.sub, operator.mul, operator.truediv}


@dataclass
class Held:
    """A float64 value that may yet be a float32.

    kind: "extended", a float32 in float64; "result", of one operation; "choice", between such a one and constants.
    line, flops, others: where it is counted, and as what, if it turns out to be a float64 after all.
    """

    value: Lanes
    kind: str
    line: object = None
    flops: int = 0
    others: int = 0


class Watch:
    """The float64 values of a launch that are not decided yet."""

    def __init__(self, run: Execution):
        self.run = run
        self.held: dict[int, Held] = {}
        self.room = KEPT

    def hold(self, one: Held) -> None:
        if len(self.held) >= self.room:  # a reference is the Held's own, another one getrefcount's
            self.held = {key: other for key, other in self.held.items() if sys.getrefcount(other.value) > 2}
            self.room = KEPT + 2 * len(self.held)
        self.held[id(one.value)] = one

    def decided(self, one: Held) -> None:
        """It is a float64: its operation counts as such."""
        if one.line is not None:
            one.line.flops64 += one.flops
            one.line.other64 += one.others
            one.flops = one.others = 0

    def constant(self, node: ast.AST | None) -> bool:
        return node is not None and self.run.is_known(node)

    def narrow(self, value: Lanes, node: ast.AST | None) -> bool:
        """Whether an operand is a float32 to the compiler: one by type, one made wider, or a constant that it holds."""
        if value.dtype in (types.FLOAT32, types.FLOAT16) or (value.dtype.kind in "iu" and value.dtype.itemsize <= 2):
            return value.dtype.kind == "f" or self.constant(node)
        if self.constant(node) and np.ndim(value) == 0:
            wide = np.float64(value)
            return bool(np.isnan(wide) or np.float64(np.float32(wide)) == wide)
        one = self.held.get(id(value))
        return one is not None and one.kind == "extended"

    def use(self, value: object) -> None:
        """A value goes into something that is computed in float64."""
        one = self.held.get(id(value))
        if one is not None:
            self.decided(one)

    def count(self, node: ast.AST) -> None:
        """An operation in float64 that is no FLOP."""
        self.run.line(node).other64 += self.run.mask.lanes

    def arithmetic(self, op: object, left: Lanes, right: Lanes, result: Lanes, node: ast.AST, each: int) -> None:
        """A binary operation whose result is a float64."""
        first, second = operands(node)
        if self.constant(first) and self.constant(second):
            return
        line, done = self.run.line(node), each * self.run.mask.lanes
        line.flops += done
        same = self.unchanged(op, left, first, right, second)
        if same is not None:
            held = self.held.get(id(same))
            if held is not None:
                self.hold(Held(result, held.kind, held.line, held.flops, held.others))
            elif same.dtype in (types.FLOAT32, types.FLOAT16):
                self.hold(Held(result, "extended"))
            return
        if op in _NARROWED and self.narrow(left, first) and self.narrow(right, second):
            self.hold(Held(result, "result", line, done))
            return
        self.use(left)
        self.use(right)
        line.flops64 += done

    def unchanged(self, op: object, left: Lanes, first: object, right: Lanes, second: object) -> Lanes | None:
        """The operand that an operation leaves as it is: x * 1, x / 1, x - 0.0."""
        if self.constant(second) and np.ndim(right) == 0:
            if (op in (operator.mul, operator.truediv) and right == 1) or (op is operator.sub and right == 0):
                return left
        if self.constant(first) and np.ndim(left) == 0 and op is operator.mul and left == 1:
            return right
        return None

    def compared(self, left: Lanes, right: Lanes, node: ast.AST) -> None:
        """A comparison that is made in float64."""
        first, second = operands(node)
        if self.constant(first) and self.constant(second):
            return
        whole, other = (left, right) if left.dtype.kind in "iub" else (right, left)
        constant = second if whole is left else first
        if whole.dtype.kind in "iub" and self.constant(constant) and whole.dtype != types.UINT64:
            return  # of an integer with a constant: the compiler compares integers
        if self.narrow(left, first) and self.narrow(right, second):
            return
        self.use(left)
        self.use(right)
        self.count(node)

    def tested(self, value: Lanes, node: ast.AST) -> None:
        """`if value`: compared with 0."""
        if not self.constant(node) and not self.narrow(value, node):
            self.use(value)
            self.count(node)

    def power(self, node: ast.AST) -> None:
        """x ** n of a float32 and an integer that is not known: large ones are left to float64's power."""
        if not self.constant(operands(node)[1]):
            self.count(node)

    def computed(self, result: object, arguments: list[Lanes], node: ast.Call) -> None:
        """A function's result in float64, or of float64 arguments."""
        if all(self.constant(a) for a in node.args):
            return
        for one in arguments:
            self.use(one)
        self.count(node)

    def converted(self, value: Lanes, result: Lanes, node: ast.AST) -> None:
        """A number made a float64, as float64(x) or where paths meet."""
        if result.dtype != types.FLOAT64 or self.constant(node) or result is value:
            return
        if value.dtype in (types.FLOAT32, types.FLOAT16):
            self.hold(Held(result, "extended"))
        else:
            self.count(node)

    def chosen(self, result: Lanes, parts: list[tuple[Lanes, bool]], node: ast.AST) -> None:
        """One of several values, of which the flags say which are constants."""
        variable = [value for value, constant in parts if not constant]
        one = self.held.get(id(variable[0])) if len(variable) == 1 else None
        single = len(variable) == 1 and (one is not None or variable[0].dtype == types.FLOAT32)
        if single and self.loaded_on_one_path(node):
            for value in variable:
                self.use(value)
            self.count(node)
            return
        if not variable or single:
            line = self.run.line(node)
            flops = one.flops if one is not None and one.kind == "result" else 0
            self.hold(Held(result, "choice", one.line if flops else line, flops, 0 if flops else self.run.mask.lanes))
            return
        for value in variable:
            self.use(value)

    def loaded_on_one_path(self, node: ast.AST) -> bool:
        """Whether, in a loop, one of the values is loaded where it is chosen: then the choice stays a branch."""
        if not any(frame.loops for frame in self.run.frames):
            return False
        if isinstance(node, ast.IfExp):
            known = {ast.dump(one) for one in ast.walk(node.test) if isinstance(one, ast.Subscript)}
            parts: list[ast.AST] = [node.body, node.orelse]
        else:
            known = set()
            parts = [getattr(node, "value", None) or node]
        return any(
            isinstance(one, ast.Name) and one is node or (isinstance(one, ast.Subscript) and ast.dump(one) not in known)
            for part in parts for one in ast.walk(part)
        )  # fmt: skip

    def stored(self, value: Lanes, dtype: np.dtype, node: ast.AST, constant: bool) -> None:
        """A float64 goes into memory, or into a number of another type."""
        if dtype in (types.FLOAT32, types.FLOAT16) or constant:
            return  # rounded: what was held stays narrow
        one = self.held.get(id(value))
        if one is not None and (one.kind != "extended" or dtype == types.FLOAT64):
            self.decided(one)
            if dtype == types.FLOAT64 and one.kind == "extended":
                self.count(node)


def operands(node: ast.AST) -> tuple[ast.AST | None, ast.AST | None]:
    """The two operands of an operation, where the syntax has them."""
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    if isinstance(node, ast.AugAssign):
        return node.target, node.value
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return node.left, node.comparators[0]
    if isinstance(node, ast.Call) and len(node.args) == 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        return node.args[0], node.args[1]
    return None, None
