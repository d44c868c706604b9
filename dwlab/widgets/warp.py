"""The warp viewer: which sectors or banks the 32 lanes of a warp touch, for an index expression.

    view("lane * 2 + 1", itemsize=4).text()

An expression may hold whole numbers, `lane`, the names that are given, arithmetic (+ - * // % **), bit operations
(& | ^ ~ << >>), comparisons, and/or/not and `a if c else b`. Everything else is refused with the part that is not
understood. Division and remainder of negative numbers are Python's, which are Numba's too.
"""

from __future__ import annotations

import ast
import itertools
import keyword
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dwlab.simt import Pattern
from dwlab.simt.views import ITEMSIZES, LANES, Counts, counts, describe, headline, picture
from dwlab.text.drawing import Table
from dwlab.widgets._panel import Panel, sentence

if TYPE_CHECKING:
    from dwlab.widgets._face import Face

LONGEST = 200  # characters of an expression
BIGGEST = 2**63  # indices are 64-bit whole numbers

SPACES = ("global", "shared")

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("one after the other", "lane"),
    ("every second element", "lane * 2"),
    ("off by one", "lane + 1"),
    ("a column of a matrix 48 wide", "lane * 48"),
    ("a column of a matrix 33 wide", "lane * 33"),
    ("one element for all", "0"),
    ("8 by 4, padded to 33", "(lane % 8) * 33 + lane // 8"),
    ("exclusive or", "lane ^ 5"),
)
"""Expressions worth a look: (what it is, expression)."""


class ExpressionError(ValueError):
    """An expression that cannot be read or has no value for some lane; the message says which part and what to do."""


_ALLOWED = "use whole numbers, lane, + - * // % ** & | ^ ~ << >>, comparisons, and, or, not, 'a if c else b'"


def _power(a: int, b: int) -> int:
    if b < 0:
        raise ExpressionError(f"{a} ** {b} is not a whole number")
    if abs(a) > 1 and b > 64:
        raise ExpressionError(f"{a} ** {b} does not fit a 64-bit whole number")
    return a**b


def _shift(a: int, b: int) -> int:
    if not 0 <= b < 64:
        raise ExpressionError(f"a shift by {b}: the count must lie in 0..63")
    return a << b


_OPERATORS: dict[type, Callable[..., int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: _power, ast.LShift: _shift, ast.RShift: lambda a, b: a // _shift(1, b),
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
    ast.Not: operator.not_,
}  # fmt: skip


def parse(expression: str) -> ast.expr:
    """The syntax tree of an expression. Raises ExpressionError for what is none."""
    if not isinstance(expression, str):
        raise ExpressionError(f"the expression is {expression!r}; write it as text, for example 'lane * 2'")
    text = expression.strip()
    if not text:
        raise ExpressionError("the expression is empty; write an index, for example lane * 2")
    if len(text) > LONGEST:
        raise ExpressionError(f"the expression has {len(text):,} characters; at most {LONGEST} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "1if lane else 2" and such: the page has no place for them
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        place = f" at character {error.offset}" if error.offset and 0 < error.offset <= len(text) else ""
        raise ExpressionError(f"{text!r} is not an expression: {error.msg}{place}") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionError(f"{text!r} cannot be read; write it simpler") from None


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    """An expression's value: of these names and arithmetic, and of nothing else."""
    match node:
        case ast.Constant(value=int()):
            found = int(node.value)
        case ast.Constant(value=float()):
            raise ExpressionError(f"{ast.unparse(node)!r} has a fraction; an index is a whole number")
        case ast.Name():
            if node.id not in names:
                raise ExpressionError(f"{node.id!r} is not known; known: {', '.join(names)}")
            found = names[node.id]
        case ast.BinOp(op=ast.Div()):
            raise ExpressionError(f"{ast.unparse(node)!r}: '/' gives a fraction; use '//' for a whole number")
        case ast.BinOp() if type(node.op) in _OPERATORS:
            found = _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
        case ast.UnaryOp():
            found = _OPERATORS[type(node.op)](_value(node.operand, names))
        case ast.Compare() if all(type(op) in _OPERATORS for op in node.ops):
            values = [_value(one, names) for one in (node.left, *node.comparators)]
            pairs = zip(node.ops, itertools.pairwise(values), strict=True)
            found = all(_OPERATORS[type(op)](a, b) for op, (a, b) in pairs)
        case ast.BoolOp():
            for one in node.values:
                found = _value(one, names)
                if bool(found) == isinstance(node.op, ast.Or):
                    break
        case ast.IfExp():
            found = _value(node.body if _value(node.test, names) else node.orelse, names)
        case _:
            raise ExpressionError(f"{ast.unparse(node)!r} is not arithmetic; {_ALLOWED}")
    if not -BIGGEST <= found < BIGGEST:
        raise ExpressionError(f"{ast.unparse(node)} does not fit a 64-bit whole number")
    return int(found)


def indices(expression: str, parameters: Mapping[str, int] | None = None) -> tuple[int, ...]:
    """The value of the expression for lanes 0 to 31. Raises ExpressionError, naming the lane where one has no value."""
    given: dict[str, int] = {}
    for name, number in (parameters or {}).items():
        _check_name(name)
        try:
            given[name] = operator.index(number)
        except TypeError:
            raise ExpressionError(f"{name} is {number!r}; a parameter is a whole number") from None
    tree, values = parse(expression), []
    for lane in range(LANES):
        try:
            values.append(_value(tree, {"lane": lane, **given}))
        except ZeroDivisionError:
            raise ExpressionError(f"{expression.strip()!r} divides by zero for lane {lane}") from None
        except ExpressionError as error:
            raise ExpressionError(f"{expression.strip()!r}, lane {lane}: {error}") from None
    return tuple(values)


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name == "lane":
        raise ExpressionError(f"{name!r} cannot be the name of a parameter")


def read_parameters(text: str) -> dict[str, int]:
    """Parameters written as "pitch = 33, tile = 64". Raises ExpressionError for anything else."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in re.split(r"[,;\n]", text))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ExpressionError(f"{part!r} is not a parameter; write it as name = number")
        _check_name(name)
        try:
            found[name] = int(value.replace("_", ""))
        except ValueError:
            raise ExpressionError(f"{part!r}: a parameter is a whole number") from None
        if not -BIGGEST <= found[name] < BIGGEST:
            raise ExpressionError(f"{part!r} does not fit a 64-bit whole number")
    return found


def access(
    expression: str,
    itemsize: int = 4,
    offset: int = 0,
    space: str = "global",
    active: str = "1",
    parameters: Mapping[str, int] | None = None,
) -> Pattern:
    """The access `x[expression]` of one warp.

    itemsize: bytes of an element. offset: bytes from the start of the array, which lies on a 256-byte boundary.
    active: an expression; a lane takes part where it is not 0. Raises ExpressionError for expressions that cannot be
    read, for an address before the array, and for one that is no multiple of the itemsize (a GPU stops there).
    """
    if isinstance(itemsize, bool) or itemsize not in ITEMSIZES:
        raise ExpressionError(f"itemsize is {itemsize!r}; one lane accesses 1, 2, 4, 8 or 16 bytes at a time")
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise ExpressionError(f"the offset is {offset!r}; it is a whole number of bytes, 0 or more")
    if space not in SPACES:
        raise ExpressionError(f"the memory is {space!r}; known: {', '.join(SPACES)}")
    found = indices(expression, parameters)
    mask = indices(active, parameters)
    addresses: list[int | None] = []
    for lane, (index, on) in enumerate(zip(found, mask, strict=True)):
        if not on:
            addresses.append(None)
            continue
        address = offset + index * itemsize
        if address < 0:
            raise ExpressionError(
                f"lane {lane} has index {index:,}, before the start of the array; "
                "raise the offset, or switch the lane off (active: lane > 0, say)"
            )
        if address % itemsize:
            raise ExpressionError(
                f"lane {lane} wants {itemsize} bytes at byte {address:,}, which is not a multiple of {itemsize}: "
                "a GPU stops with 'misaligned address'. Choose an offset that is a multiple of the itemsize"
            )
        addresses.append(address)
    return Pattern(space, itemsize, tuple(addresses), "x", 0, "access")


def numbers(one: Pattern) -> Table:
    """The cost of the access, as a table."""
    count: Counts = counts(one)
    rows = [
        ("requests", f"{count.requests}", "warps' accesses with an active lane"),
        ("active lanes", f"{count.active_lanes}", "of 32"),
        ("bytes used", f"{count.bytes_used:,}", "distinct bytes that lanes request"),
    ]
    if one.space == "shared":
        rows += [
            ("wavefronts", f"{count.wavefronts}", "passes over the 32 banks"),
            ("ideal wavefronts", f"{count.ideal_wavefronts}", "one a phase: 32 lanes, 16 at 8 bytes, 8 at 16 bytes"),
            ("bank conflicts", f"{count.bank_conflicts}", "wavefronts beyond the ideal"),
        ]
    else:
        percent = f"{100 * count.bytes_used / count.bytes_moved:.0f} %" if count.bytes_moved else "-"
        rows += [
            ("sectors", f"{count.sectors}", "distinct 32-byte sectors"),
            ("ideal sectors", f"{count.ideal_sectors}", "bytes used / 32, rounded up"),
            ("bytes moved", f"{count.bytes_moved:,}", "32 for each sector"),
            ("used of moved", percent, "bytes used / bytes moved"),
        ]
    return Table("What it costs", ("count", "value", "what it is"), tuple(rows))


def lanes(one: Pattern) -> Table:
    """Lane by lane: address, and the sector, or the bank and row. Lanes with a constant step are one row."""
    rows: list[tuple[str, ...]] = []
    shared, at, first = one.space == "shared", one.addresses, 0

    def place(address: int) -> str:
        return f"bank {address // 4 % 32}, row {address // 128}" if shared else f"sector {address // 32}"

    while first < LANES:
        last = first
        step = at[first + 1] - at[first] if None not in at[first : first + 2] and first + 1 < LANES else None
        while last + 1 < LANES and (
            at[last + 1] is None if at[first] is None else step is not None and at[last + 1] == at[last] + step
        ):
            last += 1
        name = f"{first}" if first == last else f"{first}-{last}"
        if at[first] is None:
            rows.append((name, "off", "-"))
        else:
            ends = dict.fromkeys((place(at[first]), place(at[last])))
            steps = f" + {step:,}·i" if first < last and step else ""
            rows.append((name, f"{at[first]:,}{steps}", " to ".join(ends)))
        first = last + 1
    where = "bank and 128-byte row" if shared else "32-byte sector"
    return Table("Where the lanes go", ("lanes", "byte", where), tuple(rows))


def view(
    expression: str,
    itemsize: int = 4,
    offset: int = 0,
    space: str = "global",
    active: str = "1",
    parameters: Mapping[str, int] | None = None,
) -> Panel:
    """Picture, tables and words for one access; the arguments are those of `access`.

    An expression that cannot be used makes a panel that says why: nothing is raised.
    """
    title = f"x[{str(expression).strip()[:LONGEST]}], {itemsize} bytes a lane, {space} memory"
    try:
        one = access(expression, itemsize, offset, space, active, parameters)
    except ExpressionError as error:
        return Panel(title=title, alt="", problems=(sentence(error),))
    return Panel(
        title=f"{title}: {headline(one)}",
        alt=describe(one),
        tables=(numbers(one), lanes(one)),
        draw=lambda: picture(one),
    )


def warp_viewer(expression: str = "lane", space: str = "global") -> Face:
    """The warp viewer for a notebook: text fields for the index, sliders for the rest. Needs ipywidgets."""
    from dwlab.widgets._face import Face, choice, field, slider

    sizes = [(f"{size} byte{'s' if size > 1 else ''}", size) for size in ITEMSIZES]
    controls = {
        "expression": field("index", expression, "lane * 2 + 1"),
        "example": choice("examples", [("choose", ""), *((f"{b}: {a}", b) for a, b in EXAMPLES)], ""),
        "active": field("lane active if", "1", "lane < 20"),
        "parameters": field("names", "", "pitch = 33, tile = 64"),
        "itemsize": choice("element", sizes, 4),
        "offset": slider("array offset, bytes", 0, 0, 256, 4),
        "space": choice("memory", SPACES, space),
    }

    def show(expression, active, parameters, itemsize, offset, space, **_) -> Panel:
        try:
            names = read_parameters(parameters)
        except ExpressionError as error:
            return Panel(title="Names", alt="", problems=(sentence(error),))
        return view(expression, itemsize, offset, space, active, names)

    def whole_elements(change) -> None:
        """An array begins at a multiple of its element: at any other offset the GPU would stop."""
        controls["offset"].value -= controls["offset"].value % change["new"]
        controls["offset"].step = change["new"]

    def choose(change) -> None:
        if change["new"]:
            controls["expression"].value = change["new"]
            controls["example"].value = ""

    made = Face("Warp viewer", controls, show)
    controls["itemsize"].observe(whole_elements, names="value")
    controls["example"].observe(choose, names="value")
    return made
