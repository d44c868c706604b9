"""The types of a kernel's variables, found before it runs, over all of its paths: as Numba's type inference has them.

A kernel is gone through once with one value of the right type in place of every number that is not a constant. Both
sides of an `if` are gone through, and a loop until its variables' types change no more. What a variable is where paths
meet is what Numba makes of both types: after `base = 2; if flag: base = 0.5` it is a float64, whatever flag is. An
expression is what Numba makes of all types that it finds for it on the way: it first goes through the whole function
with what variables are before the loops, and what it has found it only widens. After
`s = uint32(1); for …: s = s * 5`, which makes an int64 of s, `s >> 16` is a uint64 first and an int64 then, so a
float64. What has no type is refused although no thread may ever come there, as it would not compile. Left out, as
Numba leaves it out, is a side that a constant or an argument that is None rules out.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dwlab.simt import source, types
from dwlab.simt.interpreter import PYTHON_ERRORS, Execution
from dwlab.simt.memory import NUMBERS, AnyArray, Array, Lanes, LocalArray, Mask, Record, Root
from dwlab.simt.names import DeviceName
from dwlab.simt.options import Options, UnsupportedError
from dwlab.simt.state import Frame
from dwlab.simt.things import ARRAYS, Chosen, kind, kind_name, parts, types_key

Types = dict[int, np.dtype]


@dataclass(frozen=True)
class Found:
    """The properties of all paths of a kernel and of the functions that it calls, for arguments of some types.

    types: of the names of each function, by `types_key`.  shared, local: bytes that a block and a thread declare.
    stored: names of arguments' arrays that are stored to.  names: all that are written down, attributes too.  straight:
    of each function Frame.straight, by its types' id.
    """

    types: dict[object, Types]
    shared: int
    local: int
    stored: set[str]
    names: frozenset[str]
    straight: dict[int, dict] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Torn:
    """A variable that is one kind of thing on one path and another one on another: an error where it is used."""

    first: object
    second: object


def found(run: Execution, arguments: list[object]) -> Found:
    """The properties of a launch's kernel on all paths. Raises UnsupportedError as Numba would.

    Kept in run.frozen: once for each kernel and types of arguments.
    """
    wanted = ("found", types_key(run.source, arguments))
    kept = run.frozen.get(wanted)
    if kept is None:
        options = dataclasses.replace(run.options, hazards="off", trace=False)
        typing = Typing(run.source, (1, 1, 1), (32, 1, 1), options, run.dynamic_shared)
        typing.frozen = run.frozen
        types_ = typing.infer(arguments)
        stored = {name for name, array in run.arrays.items() if array.root in typing.stored}
        local = sum(one.storage.nbytes // one.storage[0].size for one in typing.local.values())
        names = typing.used.union(*(one.words for one in typing.walked))
        kept = run.frozen[wanted] = Found(types_, typing.shared_used, local, stored, names)
    return kept


class Typing(Execution):
    """Goes through a kernel's paths for their types."""

    exact = False

    def __init__(self, src: source.Source, grid: tuple, block: tuple, options: Options, shared_bytes: int):
        super().__init__(src, grid, block, options, shared_bytes)
        self.tables: dict[object, Types] = {}
        self.stored: set[Root] = set()
        self.walked = {src}
        self.used: frozenset[str] = frozenset()  # names of cuda's, by whatever name the kernel has them
        self.bound: dict[str, set] | None = None  # in a loop: the types of what its round has set
        self.results: dict[object, object] = {}
        self.begun: set[Frame] = set()  # functions of which the first look is done
        self.first_look = self.widened = False  # widened: whether a loop makes an unsigned number another one
        self.was: dict[tuple[int, int], np.dtype] = {}  # of expressions, in each function and types of arguments
        self.mixed: set[int] = set()  # expressions that were integers of both kinds

    def infer(self, arguments: list[object]) -> dict[object, Types]:
        frame = self.begin_batch(0, 1, arguments)
        frame.types = self.tables["kernel"] = {}
        self.run_strand(self.alive)
        return self.tables

    # ----------------------------------------------------------------- statements

    def block_of(self, statements: list[ast.stmt], mask: Mask) -> Mask | None:
        frame = self.frame
        if statements is not frame.source.body or frame in self.begun:
            return self.go_through(statements, mask)
        self.begun.add(frame)
        state, outer, bound = self.variables(), (self.first_look, self.widened), self.bound
        self.first_look = self.widened = False
        try:
            result = self.go_through(statements, mask)
            if self.widened:  # only then was more to be found for an expression
                for self.first_look in (True, False):
                    frame.names, frame.literals, self.bound = dict(state[0]), set(state[1]), bound
                    frame.returns.clear()
                    result = self.go_through(statements, mask)
        finally:
            self.first_look, self.widened = outer
        return result

    def go_through(self, statements: list[ast.stmt], mask: Mask) -> Mask | None:
        """Goes through statements. A first look passes over what has no type yet."""
        frame = self.frame
        for statement in statements:
            self.mask, self.node = mask, statement
            loops, bound = len(frame.loops), self.bound
            try:
                if self.statements[type(statement)](self, statement) is None:
                    return None
            except (UnsupportedError, *PYTHON_ERRORS):
                if not self.first_look:
                    raise
                del frame.loops[loops:]
                self.bound = bound
        return mask

    def widest(self, node: ast.AST, value: object) -> object:
        """A number in the type that holds all that was found for this expression."""
        if not isinstance(value, np.generic):
            return value
        place = id(self.frame.types), id(node)
        dtype = self.was.get(place, value.dtype)
        if dtype != value.dtype:
            try:
                dtype = types.unify(dtype, value.dtype)
            except UnsupportedError:
                dtype = value.dtype
            if dtype.kind == "f" and value.dtype.kind != "f" and self.was[place].kind != "f":
                self.mixed.add(id(node))
            value = types.cast(value, dtype)
        self.was[place] = dtype
        return value

    def apply(self, op: object, left: object, right: object, node: ast.AST) -> object:
        try:
            result = super().apply(op, left, right, node)  # of a call's, there are many within one expression
            return self.widest(node, result) if isinstance(node, (ast.BinOp, ast.AugAssign)) else result
        except UnsupportedError as error:
            if not any(id(part) in self.mixed for part in ast.iter_child_nodes(node)):
                raise
            raise UnsupportedError(
                f"{error}: an integer in it is an unsigned one before a loop and a signed one after it, of which Numba "
                "makes a float64; convert where the variable is set, as in s = uint32(…)"
            ) from None

    def variables(self) -> tuple[dict[str, object], set[str]]:
        """The variables as they are here."""
        return dict(self.frame.names), set(self.frame.literals)

    def meet(self, states: list[tuple[dict[str, object], set[str]]]) -> Mask | None:
        """Goes on where paths meet; with none of them, nowhere."""
        if not states:
            return None
        names, literals = states[0]
        for other, constants in states[1:]:
            literals = {n for n in literals & constants if names.get(n) is other.get(n) or _same(names[n], other[n])}
            shared = {n: self.common_value(names[n], other[n]) for n in names.keys() & other.keys()}
            names = names | other | shared
        self.frame.names, self.frame.literals = dict(names), set(literals)
        return self.alive

    def common_value(self, first: object, second: object) -> object:
        """A value of the type that holds either."""
        if first is second:
            return first
        if isinstance(first, NUMBERS) and isinstance(second, NUMBERS):
            if first.dtype == second.dtype:
                return first
            try:
                return types.cast(first, types.unify(first.dtype, second.dtype))
            except UnsupportedError:
                return Torn(first, second)
        if isinstance(first, tuple) and isinstance(second, tuple) and parts(first)[0] == parts(second)[0]:
            values = [self.common_value(a, b) for a, b in zip(first, second, strict=True)]
            return Torn(first, second) if any(isinstance(v, Torn) for v in values) else parts(first)[2](values)
        if isinstance(first, Record) and isinstance(second, Record) and first.array.dtype == second.array.dtype:
            return first
        if kind(first) == kind(second):
            return first
        return Torn(first, second)

    def merge(self, mask: Mask, new: object, old: object, name: str) -> object:
        result = self.common_value(new, old)
        if isinstance(result, Torn):
            raise self.torn_error(result, name, self.node)
        return result

    def torn_error(self, value: Torn, name: str, node: ast.AST) -> UnsupportedError:
        return self.refuse(
            node,
            f"{name} holds different kinds of things on different paths: {kind_name(value.first)} and "
            f"{kind_name(value.second)}",
            "give them names of their own",
        )

    def assign(self, name: str, value: object) -> None:
        self.frame.literals.discard(name)
        if isinstance(value, (int, float, complex)) and type(value) in (bool, int, float, complex):
            value = types.literal(value)
        self.frame.names[name] = value
        if self.bound is not None:
            self.bound.setdefault(name, set()).add(kind(value))

    def static(self, test: ast.expr) -> bool | None:
        """The truth of a condition that constants decide, else None. Its type is looked at in any case."""
        if isinstance(test, ast.BoolOp):
            return self.static_parts(test)
        value = self.condition(test)
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            sides = [test.left, test.comparators[0]]
            if any(isinstance(one, ast.Constant) and one.value is None for one in sides):
                given = any(isinstance(one, ast.Name) and self.is_none(one) for one in sides)
                return bool(value) if given else None
            return bool(value) if all(self.is_fixed(one) for one in sides) else None
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.static(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id in ("isinstance", "hasattr"):
            return bool(value)
        return bool(value) if self.is_literal(test) else None

    def static_parts(self, test: ast.BoolOp) -> bool | None:
        """`static` of and / or: what stands behind a part that decides is not looked at."""
        parts, decides = [], isinstance(test.op, ast.Or)
        for one in test.values:
            parts.append(self.static(one))
            if parts[-1] is decides:
                return decides
        return None if None in parts else not decides

    def is_none(self, name: ast.Name) -> bool:
        """Whether a name is an argument, a global or set once, and None: then Numba leaves the other side out."""
        src = self.frame.source
        if name.id in src.parameters:
            return self.frame.names.get(name.id, 0) is None
        return self.eval(name) is None and name.id not in src.varying

    def is_fixed(self, node: ast.expr) -> bool:
        """Whether Numba knows a number here: a literal, how many dimensions an array has or a tuple elements."""
        of = node.value if isinstance(node, ast.Attribute) else node.args[0] if _is_len(node) else None
        if isinstance(of, ast.Name) and of.id not in self.frame.source.varying:
            kept = self.frame.names.get(of.id)
            if isinstance(kept, tuple) if _is_len(node) else node.attr == "ndim" and isinstance(kept, ARRAYS):
                return True
        return self.is_literal(node)

    def do_If(self, node: ast.If) -> Mask | None:
        known = self.static(node.test)
        before, states = self.variables(), []
        for side, body in ((True, node.body), (False, node.orelse)):
            if known is None or known is side:
                self.frame.names, self.frame.literals = dict(before[0]), set(before[1])
                if self.block_of(body, self.alive) is not None:
                    states.append(self.variables())
        return self.meet(states)

    def do_Match(self, node: ast.Match) -> Mask | None:
        subject = self.eval(node.subject)
        states, whole = [], False
        before = self.variables()
        for case in node.cases:
            self.frame.names, self.frame.literals = dict(before[0]), set(before[1])
            self.matches(case.pattern, subject)
            if case.guard is not None:
                self.condition(case.guard)
            elif isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                whole = True
            if self.block_of(case.body, self.alive) is not None:
                states.append(self.variables())
        return self.meet(states if whole else [*states, before])

    def do_While(self, node: ast.While) -> Mask | None:
        known = self.static(node.test)
        if known is False:
            return self.block_of(node.orelse, self.mask)
        entered = known is True  # so it is left where its test is made anew, at the end of a round
        return self.loop(node, lambda: self.condition(node.test), self.is_literal(node.test), entered)

    def do_For(self, node: ast.For) -> Mask | None:
        items = self.items(self.eval(node.iter), node.iter)
        empty = isinstance(node.iter, ast.Tuple) and not node.iter.elts
        return self.loop(node, lambda: None if empty else self.store(node.target, items.item(np.int64(0))))

    def loop(
        self, node: ast.For | ast.While, head: object, endless: bool = False, entered: bool = False
    ) -> Mask | None:
        """Goes round until the types of the variables stay as they are.

        Once is enough where all that is set for the first time is of one type: the next round would find the same.
        """
        entry, outer = self.variables(), self.bound
        for _ in range(8):
            before, self.bound = self.variables(), {}
            breaks, continues = [], []
            self.frame.loops.append((breaks, continues))
            self.mask = self.alive
            head()
            tested = self.variables() if isinstance(node, ast.While) else before
            through = self.block_of(node.body, self.alive)
            self.frame.loops.pop()
            rounds = [*continues, *([self.variables()] if through is not None else [])]
            self.meet([entry, *rounds])
            now, old, bound = _kinds(self.frame.names), _kinds(before[0]), self.bound
            self.widened |= any(_unsigned(old[n]) and now.get(n, old[n]) != old[n] for n in old)
            for name, kinds in bound.items() if outer is not None else ():
                outer.setdefault(name, set()).update(kinds)
            if old == {name: now[name] for name in old if name in now} and before[1] <= self.frame.literals:
                if all(bound.get(name) == {now[name]} for name in now.keys() - old.keys()):
                    break
            if self.first_look:
                break
        self.bound = outer
        states = list(breaks)
        if not endless:
            if rounds and entered:
                self.meet(rounds)
            else:
                self.meet([tested, self.variables()] if isinstance(node, ast.While) else [self.variables()])
            if self.first_look and isinstance(node, ast.For):  # a `while` is left where its test is made anew
                self.frame.names |= tested[0]
            if not node.orelse or self.block_of(node.orelse, self.alive) is not None:
                states.append(self.variables())
        return self.meet(states)

    def do_Break(self, node: ast.Break) -> None:
        self.frame.loops[-1][0].append(self.variables())

    def do_Continue(self, node: ast.Continue) -> None:
        self.frame.loops[-1][1].append(self.variables())

    def do_Assert(self, node: ast.Assert) -> Mask:
        self.condition(node.test)
        return self.mask

    def do_Raise(self, node: ast.Raise) -> None:
        return None

    # ----------------------------------------------------------------- expressions

    def eval(self, node: ast.expr) -> object:
        value = super().eval(node)
        if isinstance(value, np.ndarray):
            value = value.dtype.type(1)
        if isinstance(node, (ast.UnaryOp, ast.Call, ast.IfExp, ast.BoolOp)):
            value = self.widest(node, value)
        return (
            tuple(v.dtype.type(1) if isinstance(v, np.ndarray) else v for v in value) if type(value) is tuple else value
        )

    def on_Name(self, node: ast.Name) -> object:
        self.frame.types.pop(id(node), None)  # of an earlier round of a loop
        value = super().on_Name(node)
        if isinstance(value, Torn):
            raise self.torn_error(value, repr(node.id), node)
        self.note_type(node, value)
        return value

    def note_type(self, node: ast.AST, value: object) -> None:
        if isinstance(value, NUMBERS):
            self.frame.types[id(node)] = value.dtype

    def on_IfExp(self, node: ast.IfExp) -> object:
        known = self.static(node.test)
        if known is not None:
            return self.eval(node.body if known else node.orelse)
        result = self.common_value(self.eval(node.body), self.eval(node.orelse))
        if isinstance(result, Torn):
            raise self.torn_error(result, "the conditional expression", node)
        self.note_type(node, result)
        return result

    def on_BoolOp(self, node: ast.BoolOp) -> object:
        result: object = None
        for part in node.values:
            value = self.number(self.eval(part), node)
            result = value if result is None else self.merge(self.alive, result, value, "the result of and / or")
            if part is not node.values[-1] and self.static(part) is isinstance(node.op, ast.Or):
                break
        self.note_type(node, result)
        return result

    def element_of_tuple(self, items: tuple, index: Lanes, node: ast.Subscript) -> object:
        return super().element_of_tuple(items, np.int64(0), node) if items else None

    def unpack(self, value: object, node: ast.AST) -> list[object]:
        if isinstance(value, ARRAYS) and len(value.shape) == 1 and isinstance(node, (ast.Tuple, ast.List)):
            return [value.dtype.type(1)] * len(node.elts)
        return super().unpack(value, node)

    def axis(self, name: object) -> Lanes | None:
        value = super().axis(name)
        return None if value is None else np.int32(1)

    def call_source(self, src, arguments, keywords, node, closure=None, signed=False):  # noqa: ANN001, ANN201 (as its base)
        given = [*arguments, *keywords.values()]
        made = types_key(src, given), *(id(array.root) for array in arrays_in(given))
        if closure is None and made in self.results:
            return self.results[made]
        self.walked.add(src)
        result = super().call_source(src, arguments, keywords, node, closure, signed)
        if closure is None:
            self.results[made] = result
        return result

    def find_types(self, frame: Frame, arguments: list[object]) -> None:
        frame.types = self.tables.setdefault(types_key(frame.source, arguments), {})

    def special(self, name: DeviceName, node: ast.AST) -> object:
        self.used |= set(name.path.split("."))
        return super().special(name, node)

    # ----------------------------------------------------------------- memory

    def locate(self, array: AnyArray | Chosen, indices: tuple, node: ast.AST) -> tuple[object, Mask | None]:
        if isinstance(array, Chosen):
            array = array.options[0]
        element, _ = super().locate(array, indices, node)
        return (element, self.alive) if isinstance(element, (Array, LocalArray)) else (np.int64(0), None)

    def out_of_range(self, array, axis, index, extent, mask, node):  # noqa: ANN001, ANN201 (as its base)
        return np.int64(0), mask

    def load(self, array: AnyArray | Chosen, indices: tuple, node: ast.AST) -> object:
        element, _ = self.locate(array, indices, node)
        if isinstance(element, (Array, LocalArray)):
            return element
        return Record(array, indices) if array.dtype.fields is not None else array.dtype.type(1)

    def write(self, array: AnyArray | Chosen, indices: tuple, value: Lanes, node: ast.AST) -> None:
        element, _ = self.locate(array, indices, node)
        if isinstance(element, (Array, LocalArray)):
            array = element
        self.check_write(array, value, node)
        for one in array.options if isinstance(array, Chosen) else (array,):
            if isinstance(one, Array):
                self.writable(one, node)

    def writable(self, array: Array, node: ast.AST) -> None:
        self.refuse_write(array, node)
        self.stored.add(array.root)

    def hazard(self, *what: object, **more: object) -> None:
        """Nothing runs, so nothing is found."""

    def exited(self, mask: Mask) -> None: ...

    def barrier(self, node: ast.AST) -> None: ...

    def warp_barrier(self, *what: object) -> None: ...

    def grid_sync(self, node: ast.AST) -> None: ...


def arrays_in(values: Iterable[object]) -> Iterator[Array]:
    """The arrays among values and in their tuples."""
    for one in values:
        if isinstance(one, tuple):
            yield from arrays_in(one)
        elif isinstance(one, (Array, Record)):
            yield one if isinstance(one, Array) else one.array
        elif isinstance(one, Chosen):
            yield from arrays_in(one.options)


def _is_len(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(
        node.args) == 1  # fmt: skip


def _unsigned(of: object) -> bool:
    """Whether a kind is that of an unsigned number, or of a tuple with one in it."""
    return any(map(_unsigned, of)) if isinstance(of, tuple) else isinstance(of, np.dtype) and of.kind == "u"


def _same(first: object, second: object) -> bool:
    return kind(first) == kind(second) and isinstance(first, (np.generic, str)) and first == second


def _kinds(names: dict[str, object]) -> dict[str, object]:
    return {n: (Torn, kind(v.first), kind(v.second)) if isinstance(v, Torn) else kind(v) for n, v in names.items()}
