"""Meanings by name, for the rows of the instructions (dwlab.kernels.parts), and what holds a call to its row.

A meaning gets the run, the call's syntax node and the arguments: literals as int, numbers and indices as lanes, arrays
as they are (dwlab.simt.meanings says more). `checked` holds them to the row's letters (dwlab.gpu.inline_ptx) first, as
the compiler does.
"""

# ruff: noqa: F401, F403

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable

import numpy as np

from dwlab.gpu.inline_ptx import Instruction
from dwlab.instructions.bulk import *
from dwlab.instructions.groups import *
from dwlab.instructions.narrow import *
from dwlab.instructions.sparse import *
from dwlab.instructions.tensor import *
from dwlab.instructions.wide import *
from dwlab.simt.meanings import Execution, Lanes, cast

FLOAT32, INT32 = np.dtype(np.float32), np.dtype(np.int32)


def checked(row: Instruction, meaning: Callable) -> Callable:
    """The meaning of a row, which refuses arguments that the instruction does not take."""
    letters, name = row.takes, f"ptx.{row.name}"

    @functools.wraps(meaning)
    def called(run: Execution, node: ast.Call, *given: object, **named: object) -> object:
        run.called = name
        try:
            values = row.signature.bind(*given, **named).arguments
        except TypeError:
            takes = f"{name} takes {', '.join(letters) or 'nothing'}"
            raise run.refuse(node, f"{takes}, not {len(given) + len(named)} values") from None
        last = itertools.takewhile(lambda one: not isinstance(one, ast.Starred), reversed(node.args))
        written = dict(zip(reversed(list(letters)[: len(given)]), last, strict=False))
        written |= {one.arg: one.value for one in node.keywords}
        for argument, value in values.items():
            if letters[argument] == "l":
                values[argument] = _literal(run, node, row, argument, value, written.get(argument))
            elif letters[argument] not in "gsa":
                values[argument] = _number(run, node, argument, value, letters[argument])
        return meaning(run, node, *values.values())

    return called


def _literal(
    run: Execution, node: ast.Call, row: Instruction, argument: str, value: object, written: ast.expr | None
) -> int:
    """The number, if it is a literal to Numba and one of those that the instruction takes."""
    number = run.number(value, node)
    known = isinstance(written, (ast.Constant, ast.Name, ast.Attribute)) and run.is_literal(written)
    if not known or number.ndim or number.dtype.kind not in "iu":
        raise run.refuse(node, row.refusal(argument, None))
    if why := row.refusal(argument, int(number)):
        if run.exact or isinstance(written, ast.Constant):
            raise run.refuse(node, why)
        return next(iter(row.literals[argument]))  # where values mean nothing
    return int(number)


def _number(run: Execution, node: ast.Call, argument: str, value: object, letter: str) -> Lanes:
    number = run.number(value, node)
    wanted = {"f": FLOAT32, "w": FLOAT32, "i": INT32, "m": INT32}.get(letter)
    if wanted and number.dtype != wanted:
        raise run.refuse(node, f"{run.called} takes {wanted}, not {number.dtype}", f"{wanted}(…) converts")
    if letter == "F":
        return cast(number, FLOAT32)
    if letter == "z" and number.dtype != np.bool_:
        what = f"{run.called} takes a truth value for {argument}"
        raise run.refuse(node, f"{what}, not {number.dtype}", f"{argument} = line < lines")
    if letter == "n" and number.dtype.kind not in "iu":
        raise run.refuse(node, f"{run.called} takes a whole number, not {number.dtype}")
    if letter in "xdhr":
        if number.dtype.kind not in "iu":
            raise run.refuse(node, f"an index must be an integer, not {number.dtype}", "int32(…) converts")
        return number.astype(np.int64)
    return number
