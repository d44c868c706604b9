"""Executes a kernel's syntax tree in lockstep over all lanes of a batch of blocks.

Control flow becomes masks: an `if` runs each side for the lanes that take it, a loop goes on until no lane is left in
it. Because whole blocks advance together, a barrier has nothing to wait for; what a missing barrier would break on a
GPU is found by shadow memory instead (trace.track).
"""

from __future__ import annotations

import ast
import cmath
import difflib
import enum
import functools
import inspect
import itertools
import math
import operator
import sys
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType, ModuleType

import numpy as np

from dwlab.simt import arraymethods, intrinsics, libdevice, source, types
from dwlab.simt.access import Accesses, constant_of
from dwlab.simt.memory import NUMBERS, AnyArray, Array, Lanes, Mask, Range, Record, join
from dwlab.simt.names import NAMES, DeviceName, may_be_global
from dwlab.simt.options import (
    DeadlockError,
    KernelError,
    SimtError,
    StepLimitError,
    UnsupportedError,
    kernel_error,
)
from dwlab.simt.state import Frame, Restart, Watch
from dwlab.simt.straight import BINARY, UNARY, Maker, Straight, as_load, parts_of
from dwlab.simt.strands import advice
from dwlab.simt.things import (
    ARRAYS,
    Chosen,
    Closure,
    Flat,
    Items,
    Member,
    Method,
    Vector,
    Versions,
    kind,
    kind_name,
    member,
    parts,
    types_key,
    versions,
)  # fmt: skip

_BINARY = BINARY | {ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
COMPARE = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_OPPOSITE = {ast.IsNot: ast.Is(), ast.NotIn: ast.In()}
_DIVISIONS = {operator.floordiv, operator.mod, operator.truediv}
_WHOLE = {"i", "u", "b"}
_IN_PLACE = {getattr(operator, "i" + op.__name__.strip("_")): op for op in _BINARY.values()}
_NAMED_OPERATORS = {
    operator.is_: lambda run, a, b, node: run.compare(ast.Is(), a, b, node),
    operator.is_not: lambda run, a, b, node: run.compare(ast.IsNot(), a, b, node),
    operator.contains: lambda run, a, b, node: run.compare(ast.In(), b, a, node),
    operator.getitem: lambda run, a, b, node: run.getitem(a, b, node),
}
_OPERATORS = {*_BINARY.values(), *COMPARE.values(), *UNARY.values(), *_IN_PLACE, *_NAMED_OPERATORS, operator.not_}

_UNSET = object()  # no variable's value
PYTHON_ERRORS = (TypeError, ValueError, IndexError, AttributeError, NameError, OverflowError)
# NumPy's functions that Numba-CUDA has.
_CUDA_UFUNCS = frozenset(
    (
        "arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or bitwise_xor conjugate cos cosh "
        "deg2rad degrees divide equal fmax fmin greater greater_equal hypot invert isnan left_shift less less_equal "
        "log log10 log2 logical_and logical_not logical_or logical_xor maximum minimum not_equal rad2deg radians "
        "right_shift sin sinh tan tanh"
    ).split()
)
_INSTEAD = {"absolute": "abs(…)", "cbrt": "cuda.cbrt(…)", "round": "round(…)"}
_MAKES_AN_ARRAY = "make a cuda.local.array or a cuda.shared.array, or pass an array"
_INSTEAD_OF_CALL = dict.fromkeys(("zeros", "empty", "ones", "full", "array", "arange", "linspace"), _MAKES_AN_ARRAY) | {
    "list": "use a tuple, or cuda.local.array for something that changes", "set": "use a tuple", "dict": "use an array",
    "str": "print takes values: print(a, b)", "format": "print takes values: print(a, b)",
    "sorted": "sort in a loop", "reversed": "count down: range(n - 1, -1, -1)",
    "open": "a kernel has no files", "input": "pass the value as an argument",
    "rand": "use numba.cuda.random", "random": "use numba.cuda.random", "randint": "use numba.cuda.random",
}  # fmt: skip
"""Advice in place of a call that a kernel does not have."""
# NumPy functions that are no floating-point operation.
_FREE_UFUNCS = frozenset("conjugate fmax fmin isnan maximum minimum".split())

_NUMBER_METHODS: dict[str, Callable] = {
    "bit_count": lambda run, node, value: np.bitwise_count(value.view(f"u{value.dtype.itemsize}")).astype(np.int64),
    "conjugate": lambda run, node, value: np.conjugate(value),
    "view": lambda run, node, value, wanted: run.viewed_as(value, wanted, node),
    "item": lambda run, node, value: value,
}

_REFUSED = {
    "Try": ("try", "exceptions cannot be caught in a kernel; test the condition with `if`"),
    "TryStar": ("try", "exceptions cannot be caught in a kernel; test the condition with `if`"),
    "With": ("with", "there is nothing to close in a kernel"),
    "AsyncFunctionDef": ("async def", "a kernel has no coroutines; write a plain `def`"),
    "AsyncFor": ("async for", "a kernel has no coroutines; write a plain `for`"),
    "AsyncWith": ("async with", "a kernel has no coroutines"),
    "ClassDef": ("a class", "use arrays and scalars"),
    "ListComp": ("a list comprehension", "fill a cuda.local.array in a loop"),
    "SetComp": ("a set comprehension", "fill a cuda.local.array in a loop"),
    "DictComp": ("a dict comprehension", "fill a cuda.local.array in a loop"),
    "GeneratorExp": ("a generator expression", "write the loop out"),
    "Dict": ("a dict", "use an array"),
    "Set": ("a set", "use an array"),
    "List": ("a list", "use a tuple, or cuda.local.array for something that changes"),
    "JoinedStr": ("an f-string", "print takes values: print(a, b)"),
    "Yield": ("yield", "a kernel cannot be a generator; write results to an array"),
    "YieldFrom": ("yield from", "a kernel cannot be a generator; write results to an array"),
    "Await": ("await", "a kernel is not a coroutine"),
    "Global": ("global", "globals are constants in a kernel; pass an array to change something"),
    "Nonlocal": ("nonlocal", "closure variables are constants in a kernel; pass an array to change something"),
    "Import": ("import", "import outside the kernel"),
    "ImportFrom": ("import", "import outside the kernel"),
    "Starred": ("* in an assignment", "name the elements"),
    "NamedExpr": (":=", "Numba cannot type := of an expression; assign on a line of its own"),
    "Delete": ("del", "Numba refuses del; a name may simply be set again"),
}
"""Syntax that no kernel has: what it is called, and the way round."""


class Handlers(dict):
    """Type of a syntax node -> the method of a kind of Execution that executes it, looked up once."""

    def __init__(self, kind: type[Execution], prefix: str):
        self.kind, self.prefix = kind, prefix

    def __missing__(self, node_type: type) -> Callable:
        handler = self[node_type] = getattr(self.kind, self.prefix + node_type.__name__, self.kind.unsupported_here)
        return handler


_handlers = functools.cache(Handlers)


class Execution(Accesses):
    """Runs a kernel's statements and expressions.

    exact: False where only types are looked for (dwlab.simt.typed), and values mean nothing. called: the instruction
    whose meaning runs, for messages.
    """

    exact = True
    called = ""

    def __init__(self, *launch: object):
        super().__init__(*launch)
        self.expressions, self.statements = (_handlers(type(self), prefix) for prefix in ("on_", "do_"))
        self.looked_at: set[tuple] = set()  # global names that may stand for what they do
        self.computed: dict[Callable, list] = {}  # how often each has run: warps, lanes, and what it counts

    def run_batch(self, first: int, count: int, arguments: list[object]) -> None:
        """Executes blocks first .. first + count - 1."""
        self.begin_batch(first, count, arguments)
        self.run_strand(self.alive)
        self.release_names()

    def run_strand(self, mask: Mask) -> None:
        """Executes the kernel for some lanes of what begin_batch has set up."""
        try:
            with np.errstate(all="ignore"):
                self.block_of(self.source.body, mask)
        except SimtError:
            raise
        except RecursionError:
            raise UnsupportedError(f"{self.where()}: device functions call each other without end") from None
        except PYTHON_ERRORS as error:
            raise UnsupportedError(f"{self.where()}: {type(error).__name__}: {error}") from error

    # ----------------------------------------------------------------- statements

    def block_of(self, statements: list[ast.stmt], mask: Mask) -> Mask | None:
        """Runs statements for the lanes of `mask`; returns the lanes that reach the end."""
        current: Mask | None = mask
        kept, parts = self.frame.straight, statements
        if kept is not None and (parts := kept.get(id(statements))) is None:
            local, lookup = self.frame.source.local_names | self.frame.names.keys(), self.frame.source.lookup
            parts = kept[id(statements)] = parts_of(statements, local, lookup)
        for part in parts:
            if type(part) is not Straight:
                current = self.statement(part, current)
            elif not self.compute(part, current):
                for one in part.statements:
                    self.statement(one, current)
            if current is None:
                return None
        return current

    def statement(self, statement: ast.stmt, mask: Mask) -> Mask | None:
        self.steps += 1
        if self.steps > self.options.step_limit:
            self.node = statement
            self.too_long()
        self.mask = mask
        self.node = statement
        if self.tracing:
            record = self.line(statement)
            record.warps += mask.warps
            record.lanes += mask.lanes
        return self.statements[type(statement)](self, statement)

    def compute(self, straight: Straight, mask: Mask) -> bool:
        """Runs statements that only compute; False, and nothing is done, where they must go one by one."""
        frame, self.mask = self.frame, mask
        values = [frame.names.get(name) for name in straight.reads]
        kinds = tuple([value.dtype if isinstance(value, NUMBERS) else _UNSET for value in values])
        if kinds != straight.kinds:
            if kinds not in straight.plans:
                maker = Maker(self, dict(zip(straight.reads, kinds, strict=True)))
                straight.plans[kinds] = None if _UNSET in kinds else maker.plan(straight)
            straight.kinds, straight.plan = kinds, straight.plans[kinds]
        if straight.plan is None or self.steps + len(straight.statements) > self.options.step_limit:
            return False
        for name in straight.reads if frame.partial and self.hunting else ():
            seen = frame.partial.get(name)
            if seen is not None and seen is not mask and frame.covered.get(name) != (seen, mask):
                if mask.without(seen.full) is not None:
                    return False
                frame.covered[name] = seen, mask
        self.steps += len(straight.statements)
        self.node = straight.statements[-1]
        function, counts = straight.plan
        if self.tracing:
            tally = self.computed.get(function)
            if tally is None:
                tally = self.computed[function] = [0, 0, [(self.line(node), *each) for node, *each in counts]]
            tally[0] += mask.warps
            tally[1] += mask.lanes
        results = function(*values)
        if mask is frame.entry and not frame.partial:
            frame.names.update(zip(straight.sets, results, strict=True))
            frame.literals.difference_update(straight.sets)
        else:
            for name, value in zip(straight.sets, results, strict=True):
                self.assign(name, value)
        return True

    def release(self) -> None:
        for warps, lanes, counts in self.computed.values():
            for record, statements, flops, wide in counts:
                record.warps += statements * warps
                record.lanes += statements * lanes
                record.flops += flops * lanes
                record.flops64 += wide * lanes
        self.computed.clear()
        super().release()

    def unsupported(self, node: ast.AST) -> UnsupportedError:
        name, way_round = _REFUSED.get(type(node).__name__, (type(node).__name__, ""))
        return self.refuse(node, f"{name} cannot be used in a Numba-CUDA kernel", way_round)

    def unsupported_here(self, node: ast.AST) -> None:
        raise self.unsupported(node)

    def do_Pass(self, node: ast.Pass) -> Mask:
        return self.mask

    def do_Global(self, node: ast.Global) -> Mask:
        if set(node.names) & self.frame.source.local_names:
            raise self.unsupported(node)
        return self.mask

    def do_Expr(self, node: ast.Expr) -> Mask:
        if not isinstance(node.value, ast.Constant):
            self.discard = node.value  # an atomic whose old value nobody wants
            self.eval(node.value)
            self.discard = None
        return self.mask

    discard: ast.AST | None = None

    def do_Assign(self, node: ast.Assign) -> Mask:
        value = self.eval(node.value)
        varies = isinstance(value, np.ndarray)
        literal = not varies and self.is_literal(node.value) and not self.is_numpy(node.value)
        known = not varies and self.watch is not None and self.is_known(node.value)
        for target in node.targets:
            self.store(target, value)
            if isinstance(target, ast.Name):
                if literal:
                    self.frame.literals.add(target.id)
                if known:
                    self.frame.known.add(target.id)
        return self.mask

    def do_AnnAssign(self, node: ast.AnnAssign) -> Mask:
        if node.value is not None:
            self.store(node.target, self.eval(node.value))
        return self.mask

    def do_AugAssign(self, node: ast.AugAssign) -> Mask:
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self.refuse(node, "this operator is not available in a kernel")
        target = node.target
        if isinstance(target, ast.Subscript):
            array, indices = self.subscript_parts(target)
            old = self.load(array, indices, target)
            if isinstance(old, ARRAYS):
                raise self.refuse(node, "a row or slice cannot be added to at once", "write the loop out")
            value = self.eval(node.value)
            self.check_in_place(op, array, value, node)
            self.write(array, indices, self.number(self.apply(op, old, value, node), node), target)
        elif isinstance(target, ast.Name):
            old, value = self.eval(as_load(target)), self.eval(node.value)
            if isinstance(old, tuple) or isinstance(value, tuple):
                raise self.refuse(node, "a tuple cannot be added to in place", "t = t + (…) makes a new one")
            self.assign(target.id, self.apply(op, old, value, node))
        else:
            old, value = self.eval(as_load(target)), self.eval(node.value)
            self.check_in_place(op, old, value, node)
            self.store(target, self.apply(op, old, value, node))
        return self.mask

    def check_in_place(self, op: object, old: object, value: object, node: ast.AST) -> None:
        """Refuses `/=` of integers in an array or a record: Numba-CUDA makes a float of it that does not fit back."""
        if op is operator.truediv and all(getattr(one, "dtype", types.FLOAT64).kind in "iub" for one in (old, value)):
            raise self.refuse(node, "an integer cannot be divided in place with /=", "use //=, or a = a / b")

    def do_FunctionDef(self, node: ast.FunctionDef) -> Mask:
        self.assign(node.name, self.make_closure(node))
        return self.mask

    def make_closure(self, node: ast.FunctionDef | ast.Lambda) -> Closure:
        """A function made here: it sees the names around it."""
        frame = self.frame
        inner = source.inner(node, frame.source)
        unset = [name for name in inner.free & frame.source.local_names if name not in frame.names]
        if unset:
            raise self.refuse(node, f"it uses {min(unset)!r}, which is not set here yet", "set it before")
        given = node.args
        named = [a.arg for a in [*given.posonlyargs, *given.args]]
        defaults = [self.eval(one) for one in given.defaults]
        self.around.add(frame)
        return Closure(inner, node, frame, dict(zip(named[len(named) - len(defaults) :], defaults, strict=True)))

    on_Lambda = make_closure

    def do_Match(self, node: ast.Match) -> Mask | None:
        """Case after case, for the lanes that no earlier one has taken."""
        whole = left = self.mask
        subject = self.eval(node.subject)
        through: Mask | None = None
        for case in node.cases:
            self.mask = left
            taken, left = self.branch(self.matches(case.pattern, subject), left, node)
            if taken is not None and case.guard is not None:
                self.mask = taken
                taken, refused = self.branch(self.condition(case.guard), taken, case.guard)
                left = join(left, refused, whole)
            if taken is not None:
                through = join(through, self.block_of(case.body, taken), whole)
            if left is None:
                break
        return join(through, left, whole)

    def matches(self, pattern: ast.pattern, subject: object) -> Lanes:
        """Whether a case fits, lane by lane; binds the name that it gives."""
        if isinstance(pattern, ast.MatchValue):
            return self.compare(ast.Eq(), subject, self.eval(pattern.value), pattern)
        if isinstance(pattern, ast.MatchSingleton):
            return self.compare(ast.Is(), subject, pattern.value, pattern)
        if isinstance(pattern, ast.MatchOr):
            found = np.bool_(False)
            for one in pattern.patterns:
                found = np.logical_or(found, self.matches(one, subject))
            return found
        if isinstance(pattern, ast.MatchAs):
            fits = np.bool_(True) if pattern.pattern is None else self.matches(pattern.pattern, subject)
            if pattern.name is not None:
                outer = self.mask
                taken, _ = outer.split(fits)
                if taken is not None:
                    self.mask = taken
                    self.assign(pattern.name, subject)
                    self.mask = outer
            return fits
        raise self.refuse(pattern, "a case in a kernel is a number, several of them with |, or a name", "use if / elif")

    def do_If(self, node: ast.If) -> Mask | None:
        mask = self.mask
        yes, no = self.branch(self.condition(node.test), mask, node)
        first = self.block_of(node.body, yes) if yes is not None else None
        second = no
        if no is not None and node.orelse:
            second = self.block_of(node.orelse, no)
        return join(first, second, mask)

    def branch(self, condition: Lanes, mask: Mask, node: ast.AST) -> tuple[Mask | None, Mask | None]:
        """Splits a mask and counts the warps that diverge."""
        yes, no = mask.split(condition)
        if self.tracing and yes is not None and no is not None and yes.array.shape[1] > 1:
            here, there = (one.array.reshape(len(one.array), -1, 32).any(axis=2) for one in (yes, no))
            self.line(node).divergent += int(np.count_nonzero(here & there)) * (self.nb // len(here))
        return yes, no

    def do_While(self, node: ast.While) -> Mask | None:
        self.frame.known -= source.set_inside(node).keys()
        return self.run_loop(node, lambda _: self.condition(node.test))

    def run_loop(
        self, node: ast.For | ast.While, going: Callable[[int], Lanes], item: Callable | None = None
    ) -> Mask | None:
        """Runs a loop until no lane is left: those go on for which going(round) is true, in a `for` with its item."""
        whole = active = self.mask
        left: Mask | None = None
        breaks: list[Mask] = []
        for count in itertools.count():
            if active is None:
                break
            if count:
                self.next_iteration(node, active, count)
            self.mask = active
            yes, no = self.branch(going(count), active, node)
            left = join(left, no)
            if yes is None:
                break
            if item is not None:
                self.mask = yes
                self.store(node.target, item(np.int64(count)))
            active = self.loop_body(node.body, yes, breaks)
        return self.loop_end(node, left, breaks, whole)

    def next_iteration(self, node: ast.stmt, active: Mask, iteration: int) -> None:
        """A loop header executed once more."""
        self.steps += 1
        self.node = node
        if self.steps > self.options.step_limit:
            self.too_long()
        if self.tracing:
            record = self.line(node)
            record.warps += active.warps
            record.lanes += active.lanes
        if iteration >= self.patience:
            self.check_waiting(node, active, iteration)

    def too_long(self) -> None:
        """The step limit is passed: lanes in a loop may be waiting for others, else this is the error."""
        if self.watchers and self.strands is None and self.others_are_alive(self.mask):
            self.restart_by_blocks()
        text = (
            f"{self.where()}: still running after {self.options.step_limit} statements: does this loop end? "
            "(simt.Options(step_limit=…) allows more)"
        )
        # A loop that reads nothing from memory cannot wait for another thread.
        if self.strands is not None and any(watch.before[0] or watch.seen for watch in self.watchers):
            text += ". If it waits: " + advice(self, self.strands.started, self.strands.capacity)
        raise StepLimitError(text)

    splits = True  # whether lanes can take turns
    _LONG = 20_000  # iterations after which other lanes are let on in any case; of the same reads: no more patience
    # Iterations of the same reads while a variable changes, most likely a counter: before lanes take turns, and after.
    _SURE, _LIKELY = 2_000, 200

    def check_waiting(self, node: ast.For | ast.While, active: Mask, iteration: int) -> None:
        """Whether a loop is waiting: an iteration has read what the one before read, and memory has not changed."""
        names = _names_of_wait(node)
        if names is None:
            return
        if stays := _names_that_stay(node):
            raise StepLimitError(
                f"{self.where()}: this loop never ends: nothing in it sets {stays}, on which its test depends "
                "(found without the step limit)"
            )
        if not self.watchers or self.watchers[-1].node is not node:
            self.watchers.append(Watch(node))
            self.watching = True
        watch = self.watchers[-1]
        state = (watch.seen, self.changes, active.lanes)
        variables = tuple(self.frame.names.get(name) for name in names)
        watch.same = watch.same + 1 if state == watch.before else 0
        unchanged = watch.same and all(_equal(a, b) for a, b in zip(variables, watch.variables, strict=True))
        watch.still = watch.still + 1 if unchanged else 0
        read, places = watch.seen, watch.places
        watch.seen, watch.places, watch.before, watch.variables = 0, set(), state, variables
        for_ever = watch.still >= 3 and isinstance(node, ast.While)  # unless another thread changes what is read
        if for_ever and not read:
            raise StepLimitError(
                f"{self.where()}: this loop never ends: in an iteration nothing is read from an array, and no variable "
                "or element changes (found without the step limit)"
            )
        if self.strands is not None:
            if read and watch.same >= self._LONG:
                self.strands.raise_deadlock()
            if (watch.same and read) or iteration % 8 == 0:
                sure = 2 if for_ever else watch.same >= self._LIKELY
                self.strands.iterated(watch.same if read else 0, int(sure), places)
        elif for_ever or (read and watch.same >= self._SURE) or iteration == self._LONG:
            if self.others_are_alive(active):
                self.restart_by_blocks()
            elif for_ever or (read and watch.same >= self._LONG - self.patience):
                who, why = self.first_name(active), advice(self, self.blocks_total, 0)
                raise DeadlockError(f"{self.where()}: {who} waits in this loop: {why}")

    def others_are_alive(self, active: Mask) -> bool:
        """Whether there are threads that have not exited and are not among these."""
        last = int(self.block_numbers[-1]) + 1
        return self.splits and (active.lanes < self.alive.lanes or last < self.blocks_total)

    def restart_by_blocks(self) -> None:
        """Runs the launch again, block after block."""
        self.shown.by_blocks = self.shown.exact = True
        raise Restart

    def loop_body(self, body: list[ast.stmt], mask: Mask, breaks: list[Mask]) -> Mask | None:
        """Runs a loop body once; returns the lanes that go round again."""
        continues: list[Mask] = []
        self.frame.loops.append((breaks, continues))
        through = self.block_of(body, mask)
        self.frame.loops.pop()
        for other in continues:
            through = join(through, other, mask)
        return through

    def loop_end(self, node: ast.For | ast.While, left: Mask | None, breaks: list[Mask], whole: Mask) -> Mask | None:
        if self.watchers and self.watchers[-1].node is node:
            self.watchers.pop()
            self.watching = bool(self.watchers) or self.strands is not None
        if left is not None and node.orelse:
            left = self.block_of(node.orelse, left)
        for other in breaks:
            left = join(left, other, whole)
        if left is not None and left is not whole and left.lanes == whole.lanes:
            return whole
        return left

    def do_For(self, node: ast.For) -> Mask | None:
        items = self.items(self.eval(node.iter), node.iter)
        self.frame.known -= source.set_inside(node).keys()
        if items.length.ndim:
            return self.run_loop(node, lambda count: count < items.length, items.item)
        whole = active = self.mask
        breaks: list[Mask] = []
        for count in range(int(items.length)):
            if count:
                self.next_iteration(node, active, count)
            self.mask = active
            self.store(node.target, items.item(np.int64(count)))
            active = self.loop_body(node.body, active, breaks)
            if active is None:
                break
        return self.loop_end(node, active, breaks, whole)

    def items(self, value: object, node: ast.AST) -> Items:
        """The elements of a loop. Raises UnsupportedError for what has none, or has elements of several types."""
        if isinstance(value, Items):
            return value
        if isinstance(value, Range):
            if (value.step == 0).any():
                raise self.refuse(node, "range() with a step of 0")
            start, step = types.cast(value.start, value.dtype), types.cast(value.step, value.dtype)
            if not value.stop.ndim + start.ndim + step.ndim:  # most often: Python's numbers are the quicker ones
                first, each, number = int(start), int(step), value.dtype.type
                return Items(intrinsics.length_of(value), lambda k: number(first + each * int(k)))
            return Items(
                intrinsics.length_of(value), lambda k: (start + step * value.dtype.type(k)).astype(value.dtype)
            )
        if isinstance(value, Flat):
            array = value.array
            return Items(
                arraymethods.size(array),
                lambda k: self.load(array, arraymethods.flat_index(self, node, array, k), node),
            )
        if isinstance(value, (tuple, list)):
            if not value:
                raise self.refuse(node, "a loop goes through elements, and an empty tuple has none")
            kinds = {kind(v) for v in value}
            if len(kinds) > 1 and len({type(k) for k in kinds}) <= 2:
                names = " and ".join(dict.fromkeys(kind_name(v) for v in value))
                raise self.refuse(
                    node,
                    f"a loop goes through elements of one type, not {names}",
                    "convert them, or write the loop out",
                )
            return Items(np.int64(len(value)), lambda k: value[int(k)])
        if isinstance(value, ARRAYS) and value.shape:
            return Items(value.shape[0], lambda k: self.load(value, (k,), node))
        raise self.refuse(node, "a kernel loops over range(), a tuple or an array")

    def do_Break(self, node: ast.Break) -> None:
        self.frame.loops[-1][0].append(self.mask)

    def do_Continue(self, node: ast.Continue) -> None:
        self.frame.loops[-1][1].append(self.mask)

    def do_Return(self, node: ast.Return) -> None:
        value = self.eval(node.value) if node.value is not None else None
        if len(self.frames) == 1 and value is not None:
            raise self.refuse(node, "a kernel returns nothing", "write the result to an array")
        self.frame.returns.append((self.mask, value))
        if len(self.frames) == 1:
            self.exited(self.mask)

    def do_Assert(self, node: ast.Assert) -> Mask:
        _, no = self.mask.split(self.condition(node.test))
        if no is not None:
            text = node.msg.value if isinstance(node.msg, ast.Constant) else ast.unparse(node.test)
            raise self.kernel_error(node, f"assertion failed ({text})", no, AssertionError)
        return self.mask

    def do_Raise(self, node: ast.Raise) -> None:
        what = ast.unparse(node.exc) if node.exc is not None else "an exception"
        given = node.exc.args if isinstance(node.exc, ast.Call) else []
        made = self.static_value(getattr(node.exc, "func", node.exc))
        kinds = (made,) if isinstance(made, type) and issubclass(made, Exception) else ()
        texts = [str(self.eval(one)) for one in given]
        raise self.kernel_error(node, f"{what} raised", self.mask, *kinds, say=", ".join(texts))

    def kernel_error(self, node: ast.AST, what: str, mask: Mask, *kinds: type, say: str = "") -> KernelError:
        """The error of a kernel that raises: the line, the first thread, and the words that Numba-CUDA has for it."""
        row, lane, who = self.first_lane(mask.full)
        thread, block = (list(one) for one in self.position(int(self.block_numbers[row]), lane))
        text = f"{self.where(node)}: {what} in {who} (tid={thread} ctaid={block}" + (f": {say})" if say else ")")
        return kernel_error(text, *kinds)

    def first_name(self, mask: Mask) -> str:
        return self.first_lane(mask.full)[2]

    # ----------------------------------------------------------------- variables

    def store(self, target: ast.expr, value: object) -> None:
        """Assigns to a name, a tuple of targets, an array element or a record field."""
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if any(isinstance(t, ast.Starred) for t in target.elts):
                raise self.unsupported(ast.Starred(lineno=target.lineno))
            items = self.unpack(value, target)
            if len(items) != len(target.elts):
                raise self.refuse(target, f"{len(items)} values for {len(target.elts)} names")
            for part, item in zip(target.elts, items, strict=True):
                self.store(part, item)
        elif isinstance(target, ast.Subscript):
            array, indices = self.subscript_parts(target)
            self.assign_element(array, indices, value, target)
        elif isinstance(target, ast.Attribute):
            record = self.eval(target.value)
            if not isinstance(record, Record):
                raise self.refuse(target, "attributes cannot be set in a kernel")
            self.assign_element(self.field(record.array, target.attr, target), record.indices, value, target)
        else:
            raise self.unsupported(target)

    def assign_element(
        self, array: AnyArray | Chosen, indices: tuple, value: object, node: ast.AST, whole: bool = False
    ) -> None:
        """array[indices] = value: of a number to one element or to each of a slice, a tuple to a slice, a record.

        whole: as a part of a record that is assigned.
        """
        if isinstance(value, Record):
            if isinstance(array, Chosen) or array.dtype != value.array.dtype:
                raise self.refuse(node, f"{array.name} holds no such records")
            for name in array.dtype.fields:
                part = self.load(self.field(value.array, name, node), value.indices, node)
                self.assign_element(self.field(array, name, node), indices, part, node, True)
            return
        if isinstance(value, ARRAYS) and array.dtype.subdtype is None:
            into = self.load(array, indices, node) if self.has_slice(array, indices) else None
            of_field = isinstance(getattr(getattr(node, "slice", None), "value", None), str)
            if into is not None and (whole or of_field or isinstance(node, ast.Attribute)):  # a record's array
                for at in arraymethods.places(self, node, into):
                    self.assign_element(into, at, self.load(value, at, node), node, True)
                return
            if into is not None:
                raise self.refuse(node, "an array cannot be assigned to a row or slice", "write the loop out")
        if isinstance(value, tuple) and self.has_slice(array, indices):
            into = self.load(array, indices, node)
            if len(into.shape) != 1 or len({kind(v) for v in value}) > 1:
                raise self.refuse(node, f"{kind_name(value)} does not fit into {array.name} here", "write the loop out")
            if self.exact and (into.shape[0].ndim or int(into.shape[0]) != len(value)):
                raise self.refuse(node, f"{kind_name(value)} into a slice of another length")
            for k, one in enumerate(value):
                self.write(into, (np.int64(k),), self.number(one, node), node)
            return
        if array.dtype.kind in "fc":
            self.no_member(node, value)
        self.write(array, indices, self.number(value, node), node)

    @staticmethod
    def has_slice(array: AnyArray | Chosen, indices: tuple) -> bool:
        """Whether array[indices] is an array."""
        plain = [i for i in indices if isinstance(i, NUMBERS)]
        return len(plain) < len(array.shape) or len(plain) < len(indices)

    def field(self, array: AnyArray, name: object, node: ast.AST) -> AnyArray:
        """The array of one field of an array of records."""
        fields = array.dtype.fields
        if fields is None or name not in fields:
            raise self.refuse(node, f"{array.name} has no field {name!r}")
        return self.call_at(node, array.field, name)

    def unpack(self, value: object, node: ast.AST) -> list[object]:
        if isinstance(value, (tuple, list)):
            return list(value)
        if isinstance(value, ARRAYS) and len(value.shape) == 1 and value.shape[0].ndim == 0:
            return [self.load(value, (np.int64(i),), node) for i in range(int(value.shape[0]))]
        raise self.refuse(node, "only a tuple can be unpacked")

    def assign(self, name: str, value: object) -> None:
        frame, mask = self.frame, self.mask
        frame.literals.discard(name)
        constant = name in frame.known
        if constant:
            frame.known.discard(name)
        if isinstance(value, (int, float, complex)):
            value = types.literal(value)
        names, partial = frame.names, frame.partial
        if mask is frame.entry:
            names[name] = value
            partial.pop(name, None)
        elif name not in names:
            names[name] = value
            partial[name] = mask
        elif partial.get(name) is mask:
            names[name] = value
        else:
            old = names[name]
            merged = names[name] = versions(mask, value, old) or self.merge(mask, value, old, name)
            if self.watch is not None and merged is not value and getattr(merged, "dtype", types.BOOL) == types.FLOAT64:
                new = isinstance(self.node, ast.Assign) and self.is_known(self.node.value)
                self.watch.chosen(merged, [(value, new), (old, constant)], self.node)
            seen = partial.get(name)
            if seen is not None:
                union = seen.full | mask.full
                partial[name] = Mask(union, mask.shape)

    def merge(self, mask: Mask, new: object, old: object, name: str) -> object:
        """`new` where the mask is active, `old` elsewhere."""
        if new is old or mask.array is None:
            return new
        if isinstance(new, NUMBERS) and isinstance(old, NUMBERS):
            dtype = new.dtype if new.dtype is old.dtype else types.unify(new.dtype, old.dtype)
            return np.where(
                mask.array,
                new if new.dtype is dtype else types.cast(new, dtype),
                old if old.dtype is dtype else types.cast(old, dtype),
            )
        these, those = parts(new), parts(old)
        if these is not None and those is not None and these[0] == those[0]:
            return these[2]([self.merge(mask, a, b, name) for a, b in zip(these[1], those[1], strict=True)])
        if isinstance(new, ARRAYS) and isinstance(old, ARRAYS) and kind(new) == kind(old):
            options: list[AnyArray] = []
            numbers = []
            for one in (new, old):
                number: Lanes = one.which if isinstance(one, Chosen) else np.int64(0)
                numbers.append(number + np.int64(len(options)))
                options.extend(one.options if isinstance(one, Chosen) else (one,))
            return Chosen(tuple(options), np.where(mask.full, *numbers))
        if type(new) is type(old) and not isinstance(new, (*ARRAYS, tuple)) and new == old:
            return new
        raise self.refuse(
            self.node,
            f"{name!r} holds different kinds of things in different threads: {kind_name(new)} and {kind_name(old)}",
            "give them names of their own",
        )

    # ----------------------------------------------------------------- expressions

    def eval(self, node: ast.expr) -> object:
        return self.expressions[type(node)](self, node)

    def value(self, node: ast.expr) -> Lanes:
        result = self.eval(node)
        return result if isinstance(result, NUMBERS) else self.number(result, node)

    def condition(self, node: ast.expr, operand: bool = False) -> Lanes:
        """Whether an expression is true. operand: of a `not` that makes a value, which there is of float16, of which
        Numba-CUDA makes no branch, and of no tuple.
        """
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return np.logical_not(self.condition(node.operand, operand))
        result = self.eval(node)
        self.no_member(node, result)
        if operand and isinstance(result, tuple):
            raise self.refuse(node, "`not` takes no tuple", "compare its length: len(t) == 0")
        if isinstance(result, (tuple, str)):
            return np.bool_(len(result) > 0)
        if result is None:
            return np.bool_(False)
        result = self.number(result, node)
        if result.dtype == types.FLOAT16 and not operand:
            raise self.refuse(node, "a float16 is no condition", "compare it with 0")
        if self.watch is not None and result.dtype == types.FLOAT64:
            self.watch.tested(result, node)
        return types.truth(result)

    def on_Constant(self, node: ast.Constant) -> object:
        known = self.literals.get(node)
        if known is not None:
            return known
        value = node.value
        if isinstance(value, (bool, int, float, complex)):
            made = self.call_at(node, types.literal, value)
            if self.watch is None or made.dtype != types.FLOAT64:  # it distinguishes such by their identity
                self.literals[node] = made
            return made
        return value

    def on_NamedExpr(self, node: ast.NamedExpr) -> object:
        if not isinstance(node.value, ast.Name):
            raise self.unsupported(node)
        value = self.eval(node.value)
        self.assign(node.target.id, value)
        return value

    def on_JoinedStr(self, node: ast.JoinedStr) -> str:
        if not all(isinstance(part, ast.Constant) for part in node.values):
            raise self.unsupported(node)
        return "".join(part.value for part in node.values)

    def on_Name(self, node: ast.Name) -> object:
        frame = self.frame
        value = frame.names.get(node.id, _UNSET)
        if value is not _UNSET:
            seen = frame.partial.get(node.id) if frame.partial else None
            if seen is not None and seen is not self.mask and self.hunting:
                if frame.covered.get(node.id) != (seen, self.mask):
                    missing = self.mask.without(seen.full)
                    if missing is not None:
                        text = f"{node.id!r} was never set in {{who}}"
                        self.hazard_in(missing.full, "uninitialised", node, node.id, text)
                    else:
                        frame.covered[node.id] = (seen, self.mask)
            wanted = frame.types.get(id(node))
            if wanted is not None and wanted is not value.dtype and wanted != value.dtype:
                narrow, value = value, value.as_type(wanted) if type(value) is Versions else types.cast(value, wanted)
                if self.watch is not None and wanted == types.FLOAT64 and node.id not in frame.known:
                    self.watch.chosen(value, [(narrow, False)], node)
            return value
        value = frame.outer.get(node.id, _UNSET)
        if value is not _UNSET:
            return value
        if node.id in frame.source.local_names:
            raise self.refuse(node, f"variable {node.id!r} is used before it is set")
        key = (frame.source.function, node.id)
        outer = self.outer_value(node.id, node)
        device = None if key in self.looked_at else _device_name(outer)
        self.looked_at.add(key)
        if device is not None and not may_be_global(device.path):
            raise self.refuse(
                node, f"{node.id!r} is a global name of cuda.{device.path}, which Numba-CUDA does not look up",
                f"write cuda.{device.path}, or set the name inside the kernel",
            )  # fmt: skip
        value = self.constant(outer, node.id, node)
        if not isinstance(value, (*NUMBERS, tuple)) or (self.watch is None and not isinstance(value, np.ndarray)):
            frame.outer[node.id] = value
        return value

    def outer_value(self, name: str, node: ast.Name) -> object:
        """A global or closure variable. Numbers, tuples and arrays keep the value that they had at the first launch."""
        key = (self.frame.source.function, name)
        try:
            return self.frozen[key] if key in self.frozen else self.kept(key, self.frame.source.lookup(name))
        except NameError as error:
            raise self.refuse(node, str(error)) from None

    def kept(self, key: tuple, value: object) -> object:
        """A value of outside the kernel as it was at the first launch: what a compiler keeps of it."""
        if source.is_frozen(value):
            value = self.frozen.setdefault(key, value.copy() if isinstance(value, np.ndarray) else value)
        return value

    def constant(self, value: object, name: str, node: ast.AST) -> object:
        """The value of a global, closure variable or module attribute inside a kernel."""
        if isinstance(value, enum.Enum):
            return member(value)
        if isinstance(value, (bool, int, float, complex, np.generic)) and not isinstance(value, np.void):
            return types.literal(value)
        if isinstance(value, tuple):
            return parts(value)[2]([self.constant(v, name, node) for v in value])
        if isinstance(value, np.ndarray):
            return self.constant_array(value, name)
        device = _device_name(value)
        if device is not None:
            return self.special(device, node)
        if isinstance(value, (list, dict, set)):
            raise self.refuse(
                node, f"{name!r} is a {type(value).__name__}", "use a tuple or a NumPy array for constants"
            )
        if hasattr(value, "allocation") and hasattr(value, "storage"):
            raise self.refuse(node, f"{name!r} is a device array outside the kernel", "pass it as an argument")
        return value

    def constant_array(self, value: np.ndarray, name: str) -> Array:
        array = self.constants.get(id(value))
        if array is None:
            data = np.ascontiguousarray(value)
            root = self.new_root("const", data.reshape(-1).view(np.uint8).copy())
            strides = tuple(int(s) // value.itemsize for s in data.strides)
            array = Array(root, name, value.dtype, tuple(np.int64(n) for n in value.shape), strides)
            self.constants[id(value)] = array
            self.keep = (*getattr(self, "keep", ()), value)
        return array

    def special(self, name: DeviceName, node: ast.AST) -> object:
        """laneid and warpsize are values; the other names stay as they are."""
        if name.path == "warpsize":
            return np.int32(32)
        if name.path == "laneid":
            return (np.arange(self.padded, dtype=np.int32) % 32)[None, :]
        return name

    def axis(self, name: DeviceName) -> Lanes | None:
        """threadIdx.x and its relatives."""
        which, _, axis = name.path.partition(".")
        if axis not in ("x", "y", "z"):
            return None
        k = "xyz".index(axis)
        if which == "threadIdx":
            return self.thread_index[k] if self.block[k] > 1 else np.int32(0)
        if which == "blockIdx":
            return self.block_index[k]
        if which in ("blockDim", "gridDim"):
            return np.int32((self.block if which == "blockDim" else self.grid)[k])
        return None

    def on_Attribute(self, node: ast.Attribute) -> object:
        name = node.attr
        if name in ("real", "imag"):
            self.part_read = (node.value, name == "imag")
            base = self.eval(node.value)
            self.part_read = None
        else:
            base = self.eval(node.value)
        if isinstance(base, DeviceName):
            child = getattr(base, name, None)
            if isinstance(child, DeviceName):
                value = self.axis(child)
                return child if value is None else value
            raise self.refuse(node, f"cuda.{base.path} has no {name!r}")
        if isinstance(base, ModuleType):
            if base.__name__.endswith(".libdevice") and _is_cuda(base):
                return self.special(libdevice.named(self, name, node), node)
            if _is_cuda(base) and not isinstance(getattr(getattr(base, name, None), "py_func", None), FunctionType):
                if base.__name__.endswith(".cg") and name == "this_grid":
                    return NAMES["cg"].this_grid
                if name in NAMES:
                    return self.special(NAMES[name], node)
                found = getattr(base, name, None)
                if name == "types" or types.as_dtype(found) is not None:
                    return found
                near = difflib.get_close_matches(name, NAMES, 1)
                raise self.refuse(
                    node, f"cuda.{name} cannot be used inside a kernel", f"is it cuda.{near[0]}?" if near else ""
                )
            try:
                return self.constant(self.kept((base, name), getattr(base, name)), name, node)
            except AttributeError:
                raise self.refuse(node, f"module {base.__name__} has no {name!r}") from None
        if isinstance(base, ARRAYS):
            return arraymethods.attribute(self, base, name, node)
        if isinstance(base, Record):
            return self.load(self.field(base.array, name, node), base.indices, node)
        if isinstance(base, Vector):
            if name not in "xyzw"[: len(base.values)] or len(name) != 1:
                raise self.refuse(node, f"{base.name} has no {name!r}, but {', '.join('xyzw'[: len(base.values)])}")
            return base.values["xyzw".index(name)]
        if isinstance(base, (Range, slice)) and name in ("start", "stop", "step"):
            part = getattr(base, name)
            return np.int64(1) if part is None and name == "step" else part
        if isinstance(base, NUMBERS) and (base.dtype != types.BOOL or name == "item"):
            if name in ("real", "imag"):
                return arraymethods.part(name)(self, node, base)
            if name in _NUMBER_METHODS and (name != "bit_count" or base.dtype.kind in "iu"):
                return Method(_NUMBER_METHODS[name], base)
        if isinstance(base, NUMBERS):
            raise self.refuse(node, f"{kind_name(base)} has no {name!r} in a kernel")
        if isinstance(base, tuple) and hasattr(base, "_fields") and name in base._fields:
            return getattr(base, name)
        if isinstance(base, tuple) and name == "index":
            return Method(Execution.index_in_tuple, base)
        if isinstance(base, np.dtype) and name == "type":
            return base
        if isinstance(base, Member) and name == "value":
            return base.value
        if isinstance(base, enum.EnumType) and name in base.__members__:
            return self.constant(base[name], name, node)
        if isinstance(base, (np.iinfo, np.finfo)) and name in ("min", "max", "eps", "bits", "tiny"):
            return self.constant(getattr(base, name), name, node)
        way_round = "print takes values: print(a, b)" if isinstance(base, str) and name == "format" else ""
        raise self.refuse(node, f"{kind_name(base)} has no {name!r} in a kernel", way_round)

    def viewed_as(self, value: Lanes, wanted: object, node: ast.Call) -> Lanes:
        """x.view(dtype): a number's bits as another one of as many."""
        dtype = types.as_dtype(wanted)
        if dtype is None or dtype.itemsize != value.dtype.itemsize:
            raise self.refuse(node, f"view() of {value.dtype} takes a type of {value.dtype.itemsize * 8} bits")
        return np.ascontiguousarray(value).view(dtype) if value.ndim else value.view(dtype)

    def index_in_tuple(self, node: ast.Call, items: tuple, wanted: object) -> Lanes:
        """t.index(v): where v stands first."""
        place: Lanes = np.int64(len(items))
        for k in range(len(items) - 1, -1, -1):
            same = self.compare(ast.Eq(), items[k], wanted, node)
            place = np.where(same, np.int64(k), place)[()]
        return place

    def on_Tuple(self, node: ast.Tuple) -> tuple:
        return tuple(self.values_of(node.elts))

    def values_of(self, parts: list[ast.expr]) -> list[object]:
        """Values of expressions, those of a tuple behind a * one by one."""
        out = []
        for part in parts:
            if isinstance(part, ast.Starred):
                value = self.eval(part.value)
                if not isinstance(value, tuple):
                    raise self.refuse(part, f"* takes a tuple, not {kind_name(value)}")
                out.extend(value)
            else:
                out.append(self.eval(part))
                if isinstance(out[-1], Closure):  # Numba compiles it separately: it may see nothing that changes
                    around = out[-1].frame
                    seen = (out[-1].source.free & around.names.keys()) - (around.literals - around.source.varying)
                    if seen:
                        text = f"a function handed on uses the variable {min(seen)!r}"
                        raise self.refuse(part, text, "give it as an argument")
        return out

    def on_UnaryOp(self, node: ast.UnaryOp) -> object:
        if isinstance(node.op, ast.Not):
            return np.logical_not(self.condition(node.operand, True))
        return self.call_at(node, types.unary, UNARY[type(node.op)], self.value(node.operand))

    def on_BinOp(self, node: ast.BinOp) -> object:
        op = _BINARY.get(type(node.op))
        if op is None:
            raise self.refuse(node, "the @ operator is not available in a kernel", "write the product's loop out")
        return self.apply(op, self.eval(node.left), self.eval(node.right), node)

    def apply(self, op: object, left: object, right: object, node: ast.AST) -> object:
        """left op right, counted."""
        if not (isinstance(left, NUMBERS) and isinstance(right, NUMBERS)):
            if isinstance(left, (tuple, str)) or isinstance(right, (tuple, str)):
                return self.apply_to_sequences(op, left, right, node)
            left, right = self.operands_as_numbers(left, right, node)
        if op in _DIVISIONS:
            kinds = {left.dtype.kind, right.dtype.kind}
            if self.debug or (kinds <= _WHOLE if op is not operator.truediv else "c" in kinds):
                self.check_divisor(right, node, "integer" if kinds <= _WHOLE else "complex")
        result = self.call_at(node, types.binary, op, left, right)
        if self.tracing and result.dtype.kind in "fc":
            if self.watch is not None and result.dtype == types.FLOAT64:
                self.watch.arithmetic(op, left, right, result, node, types.flops(op, result.dtype))
            else:
                self.count_flops(node, result.dtype, types.flops(op, result.dtype))
                if self.watch is not None and op is operator.pow and right.dtype.kind in "iu":
                    self.watch.power(node)
        return result

    def check_divisor(self, right: Lanes, node: ast.AST, kind: str) -> None:
        """Reports active lanes that divide by 0 where that has no result; of complex numbers a thread ends there."""
        zero = right == 0
        if zero if zero.ndim == 0 else zero.any():
            bad, _ = self.mask.split(zero)
            if bad is not None and self.debug:
                raise self.kernel_error(node, "division by zero", bad, ZeroDivisionError, FloatingPointError)
            if bad is not None:
                self.hazard_in(bad.full, "division by zero", node, None, f"{kind} division by 0 in {{who}}")

    def operands_as_numbers(self, left: object, right: object, node: ast.AST) -> tuple[Lanes, Lanes]:
        """Two operands as numbers. A member of an IntEnum is one beside integers only."""
        numbers = self.number(left, node), self.number(right, node)
        if any(one.dtype.kind not in "iub" for one in numbers):
            self.no_member(node, left, right)
        return numbers

    def no_member(self, node: ast.AST, *values: object) -> None:
        """Refuses members of enumerations where Numba does not make numbers of them."""
        for one in values:
            if isinstance(one, Member):
                raise self.refuse(node, f"{kind_name(one)} is no number here", "take its .value")

    def apply_to_sequences(self, op: object, left: object, right: object, node: ast.AST) -> object:
        """+ of tuples and of strings, a tuple times a literal number."""
        if op is operator.add and isinstance(left, tuple) and isinstance(right, tuple):
            return tuple(left) + tuple(right)
        if op is operator.add and isinstance(left, str) and isinstance(right, str):
            return left + right
        if op is operator.mul and isinstance(node, ast.BinOp):
            times, of = (right, left) if isinstance(left, tuple) else (left, right)
            factor = node.right if times is right else node.left
            if isinstance(of, tuple) and isinstance(factor, ast.Constant) and type(factor.value) is int:
                return tuple(of) * factor.value
            raise self.refuse(node, "a tuple can be multiplied by a literal integer only", "write its elements out")
        way_round = "print takes values: print(a, b)" if isinstance(left, str) and op is operator.mod else ""
        raise self.refuse(node, f"no such operation of {kind_name(left)} and {kind_name(right)}", way_round)

    def on_Compare(self, node: ast.Compare) -> object:
        left = self.eval(node.left)
        result: Lanes | None = None
        outer = self.mask
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node)
            one = self.compare(op, left, right, node)
            result = one if result is None else np.logical_and(result, one)
            left = right
            if len(node.ops) > 1 and self.exact:
                going, _ = outer.split(result)
                if going is None:
                    break
                self.mask = going
        self.mask = outer
        return result

    def compare(self, op: ast.cmpop, left: object, right: object, node: ast.AST) -> Lanes:
        if type(op) in _OPPOSITE:
            return np.logical_not(self.compare(_OPPOSITE[type(op)], left, right, node))
        if isinstance(op, ast.Is):
            if isinstance(left, np.dtype) or isinstance(right, np.dtype):
                raise self.refuse(node, "types are not compared here", "isinstance(…) tells a number's type")
            left, right = (np.bool_(one) if isinstance(one, bool) else one for one in (left, right))
            if isinstance(left, Member) and isinstance(right, Member) and left.family is right.family:
                left, right = left.which, right.which
            if isinstance(left, NUMBERS) and isinstance(right, NUMBERS):
                return np.equal(left, right) if left.dtype == right.dtype else np.bool_(False)
            return np.bool_(left is right)
        if isinstance(op, ast.In):
            if isinstance(left, str) and isinstance(right, str):
                return np.bool_(left in right)
            if isinstance(right, Range):
                value = self.number(left, node)
                step, start, at = right.step.astype(np.int64), right.start.astype(np.int64), value.real
                up = (at >= start) & (at < right.stop) & (step > 0)
                down = (at <= start) & (at > right.stop) & (step < 0)
                met = (at - start) % np.where(step == 0, 1, step) == 0
                return np.logical_and(value.imag == 0, (up | down) & met)
            if isinstance(right, ARRAYS):
                return arraymethods.contains(self, node, right, left)
            if not isinstance(right, tuple):
                raise self.refuse(node, "`in` works on a tuple, a range or an array", "write the loop out")
            if len({kind(v) for v in right}) > 1:
                raise self.refuse(node, "`in` looks through a tuple of one type", "write == out, with or")
            found = np.bool_(False)
            for item in right:
                found = np.logical_or(found, self.compare(ast.Eq(), left, item, node))
            return found
        if isinstance(left, tuple) and isinstance(right, tuple):
            same, before = np.bool_(True), np.bool_(len(left) < len(right))
            for a, b in reversed([*zip(left, right, strict=False)]):
                equal = self.compare(ast.Eq(), a, b, node)
                same = np.logical_and(same, equal)
                if not isinstance(op, (ast.Eq, ast.NotEq)):
                    before = np.where(equal, before, self.compare(ast.Lt(), a, b, node))[()]
            same = np.logical_and(same, len(left) == len(right))
            if isinstance(op, (ast.Eq, ast.NotEq)):
                return same if isinstance(op, ast.Eq) else np.logical_not(same)
            below = np.logical_or(before, same) if isinstance(op, (ast.LtE, ast.Gt)) else before
            return below if isinstance(op, (ast.Lt, ast.LtE)) else np.logical_not(below)
        plain = (str, type(None))
        if isinstance(left, plain) or isinstance(right, plain):
            if not isinstance(op, (ast.Eq, ast.NotEq)) and not (isinstance(left, str) and isinstance(right, str)):
                raise self.refuse(node, f"{kind_name(left)} and {kind_name(right)} have no order")
            return np.bool_(COMPARE[type(op)](left, right))
        if isinstance(left, Member) and isinstance(right, Member) and left.family is right.family:
            if isinstance(op, (ast.Eq, ast.NotEq)):
                left, right = left.which, right.which
        left, right = self.operands_as_numbers(left, right, node)
        if self.watch is not None and types.compared_in(left.dtype, right.dtype) == types.FLOAT64:
            self.watch.compared(left, right, node)
        return self.call_at(node, types.binary, COMPARE[type(op)], left, right)

    def call_at(self, node: ast.AST, function: Callable, *arguments: object) -> object:
        """The result of a function that knows no lines; to its refusals the node's is added."""
        try:
            return function(*arguments)
        except UnsupportedError as error:
            raise self.refuse(node, str(error)) from None

    def on_BoolOp(self, node: ast.BoolOp) -> object:
        """`and` / `or`: the right side runs only in the lanes that need it."""
        outer = self.mask
        is_and = isinstance(node.op, ast.And)
        result = self.eval(node.values[0])
        self.no_member(node, result)
        result = self.number(result, node)
        for k, part in enumerate(node.values[1:]):
            if self.watch is not None and result.dtype == types.FLOAT64:
                self.watch.tested(result, node.values[k])
            so_far = types.truth(result)
            need, _ = outer.split(so_far if is_and else np.logical_not(so_far))
            if need is None:
                break
            self.mask = need
            value = self.number(self.eval(part), node)
            self.mask = outer
            if value.dtype == types.BOOL and result.dtype == types.BOOL:
                result = np.logical_and(result, value) if is_and else np.logical_or(result, value)
            else:
                dtype = types.unify(result.dtype, value.dtype)
                take = so_far if is_and else np.logical_not(so_far)
                result = np.where(take, types.cast(value, dtype), types.cast(result, dtype))
                result = result if result.ndim else dtype.type(result)
        self.mask = outer
        return self.as_typed(node, result)

    def on_IfExp(self, node: ast.IfExp) -> object:
        outer = self.mask
        yes, no = self.branch(self.condition(node.test), outer, node)
        values = []
        for side, part in ((yes, node.body), (no, node.orelse)):
            if side is not None:
                self.mask = side
                values.append(self.eval(part))
            else:
                values.append(constant_of(part))
        self.mask = outer
        first, second = values
        if yes is None or no is None:
            taken, other = (second, first) if yes is None else (first, second)
            if other is not None and isinstance(taken, NUMBERS):
                wide = types.cast(taken, types.unify(taken.dtype, other.dtype))
            else:
                wide = taken
            wide = self.as_typed(node, wide)
        else:
            wide = self.merge(yes, first, second, "the conditional expression")
        if self.watch is not None and getattr(wide, "dtype", types.BOOL) == types.FLOAT64:
            parts = [(first, self.is_known(node.body)), (second, self.is_known(node.orelse))]
            wide = wide.copy() if any(wide is v for v, _ in parts) else wide
            self.watch.chosen(wide, [(v, k) for v, k in parts if hasattr(v, "dtype")], node)
        return wide

    def as_typed(self, node: ast.AST, value: object) -> object:
        """A value in the type that the expression has over all paths."""
        wanted = self.frame.types.get(id(node))
        return types.cast(value, wanted) if wanted is not None and isinstance(value, NUMBERS) else value

    def on_Slice(self, node: ast.Slice) -> slice:
        parts = [None if p is None or getattr(p, "value", 0) is None else self.value(p)
                 for p in (node.lower, node.upper, node.step)]  # fmt: skip
        return slice(*parts)

    def on_Subscript(self, node: ast.Subscript) -> object:
        base = self.eval(node.value)
        if isinstance(base, tuple):
            index = self.eval(node.slice)
            if isinstance(index, slice):
                written = [getattr(node.slice, part, None) for part in ("lower", "upper", "step")]
                if not all(p is None or self.is_literal(p) for p in written):
                    raise self.refuse(node, "a tuple is cut at literal numbers only", "write its elements out")
                ends = (index.start, index.stop, index.step)
                return tuple(base[slice(*(None if p is None else int(p) for p in ends))])
            index = self.index_number(index, node)
            if index.ndim or (len({kind(v) for v in base}) > 1 and not self.is_literal(node.slice)):
                return self.element_of_tuple(base, index, node)
            try:
                return base[int(index)]
            except IndexError:
                raise self.refuse(node, f"index {int(index)} of a tuple of {len(base)}") from None
        if isinstance(base, (Record, Flat)):
            return self.load(*self.place_in(base, node), node)
        if isinstance(base, ARRAYS):
            index = self.indices_of(node)
            if index and isinstance(index[0], str) and not isinstance(base, Chosen):
                return self.field(base, self.field_name(node), node)
            if len(index) == 1 and index[0] is Ellipsis:
                raise self.refuse(node, f"{base.name}[...] is not available in a kernel", "write [:]")
            return self.load(base, index, node)
        if isinstance(base, enum.EnumType):
            name = self.eval(node.slice)
            if name in base.__members__:
                return self.constant(base[name], name, node)
        raise self.not_indexed(base, node)

    def not_indexed(self, base: object, node: ast.AST) -> UnsupportedError:
        """The error for an index of what has no elements."""
        text = ast.unparse(node.value) if isinstance(node, ast.Subscript) else kind_name(base)
        if hasattr(base, "py_func"):
            return self.refuse(node, f"{kind_name(base)} cannot be indexed", "a kernel launches no other kernel")
        if isinstance(base, DeviceName):
            return self.refuse(node, f"cuda.{base.path} cannot be indexed", "take its .x, .y or .z")
        return self.refuse(node, f"{text} is {kind_name(base)} here and cannot be indexed")

    def getitem(self, base: object, index: object, node: ast.AST) -> object:
        """operator.getitem(base, index)."""
        if isinstance(base, ARRAYS):
            return self.load(base, index if isinstance(index, tuple) else (index,), node)
        if isinstance(base, tuple):
            return self.element_of_tuple(base, self.number(index, node), node)
        raise self.not_indexed(base, node)

    def is_literal(self, node: ast.expr, given: bool = False) -> bool:
        """Whether an expression is a constant to Numba: written down, a global, or a name set to one.

        given: a parameter that a call gives as a literal is one, too.
        """
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Tuple):
            return all(self.is_literal(one, given) for one in node.elts)
        if isinstance(node, ast.Name):
            if given and node.id in self.frame.given:
                return True
            if node.id in self.frame.source.local_names:
                return node.id in self.frame.literals
            return node.id not in self.frame.names
        if isinstance(node, ast.Subscript):
            return self.is_literal(node.value, given) and self.is_literal(node.slice, given)
        return isinstance(node, ast.Attribute) and isinstance(self.static_value(node.value), ModuleType)

    def static_value(self, node: ast.expr) -> object:
        """The value of a name of outside the function, dotted or not; None if it is not known."""
        return source.static_value(node, self.frame.source.lookup)

    def is_numpy(self, node: ast.AST) -> bool:
        """Whether a name of outside the function, or a module's, is a NumPy number or a tuple with one: no literal."""
        outer = node.id not in self.frame.names if isinstance(node, ast.Name) else isinstance(node, ast.Attribute)
        value = self.static_value(node) if outer else None
        return any(isinstance(one, np.generic) for one in (value if isinstance(value, tuple) else (value,)))

    def is_known(self, node: ast.AST) -> bool:
        """Whether the compiler knows a number: a literal, and what is computed from such."""
        if isinstance(node, ast.Name) and node.id in self.frame.source.local_names:
            return node.id in self.frame.known and node.id not in self.frame.source.varying
        if isinstance(node, ast.BinOp):
            return self.is_known(node.left) and self.is_known(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_known(node.operand)
        if isinstance(node, ast.Call):
            return bool(node.args) and not node.keywords and all(self.is_known(a) for a in node.args) and (
                isinstance(node.func, (ast.Name, ast.Attribute)) and self.is_conversion(node.func)
            )  # fmt: skip
        return self.is_literal(node)

    def is_conversion(self, node: ast.expr) -> bool:
        """float32, int, math.sqrt …: what the compiler works out by itself."""
        if isinstance(node, ast.Name) and node.id in self.frame.source.local_names:
            return False
        value = self.static_value(node)
        known = getattr(math, getattr(value, "__name__", ""), None) is value or value in (int, float, min, max, abs)
        return value is not None and (known or types.as_dtype(value) is not None)

    def field_name(self, node: ast.Subscript) -> str:
        name = self.eval(node.slice)
        if not isinstance(name, str):
            raise self.refuse(node, "a record's field is named by a string")
        if not self.is_literal(node.slice):
            raise self.refuse(node, "a record's field must be a literal string", "write one line for each field")
        return name

    def element_of_tuple(self, items: tuple, index: Lanes, node: ast.Subscript) -> object:
        """An element of a tuple whose elements are of one type, by an index that is known when the kernel runs only."""
        if len({kind(v) for v in items}) != 1:
            raise self.refuse(
                node,
                "a tuple of different types needs a literal index, or a global constant",
                "convert its elements, or use cuda.local.array",
            )
        index = types.cast(index, types.INT64)
        outside, _ = self.mask.split((index >= len(items)) | (index < -len(items)))
        if outside is not None and self.debug:
            raise self.kernel_error(node, "tuple index out of range", outside, IndexError)
        if outside is not None:
            text = f"index outside a tuple of {len(items)} in {{who}}"
            self.hazard_in(outside.full, "out of bounds", node, None, text, fatal=True)
        index = np.where(index < 0, index + len(items), index)[()]
        result = items[0]
        for k, value in enumerate(items[1:], 1):
            mask, _ = self.mask.split(index == k)
            if mask is not None:
                result = self.merge(mask, value, result, "the tuple's element")
        return result

    def indices_of(self, node: ast.Subscript) -> tuple:
        index = self.eval(node.slice)
        return index if isinstance(index, tuple) else (index,)

    def subscript_parts(self, node: ast.Subscript) -> tuple[AnyArray, tuple]:
        return self.place_in(self.eval(node.value), node)

    def place_in(self, base: object, node: ast.Subscript) -> tuple[AnyArray, tuple]:
        """The array and the indices in it of what is to be stored to, or loaded."""
        if isinstance(base, tuple):
            raise self.refuse(node, "tuples cannot be changed", "use cuda.local.array")
        if isinstance(base, Record):
            return self.field(base.array, self.field_name(node), node), base.indices
        if isinstance(base, Flat):
            return base.array, arraymethods.flat_index(self, node, base.array, self.eval(node.slice))
        if not isinstance(base, ARRAYS):
            raise self.not_indexed(base, node)
        return base, self.indices_of(node)

    # ----------------------------------------------------------------- calls

    def on_Call(self, node: ast.Call) -> object:
        function = self.eval(node.func)
        dtype = types.as_dtype(function)
        if node.keywords and any(k.arg is None for k in node.keywords):
            raise self.refuse(node, "** in a call is not available in a kernel", "name the arguments")
        if isinstance(function, DeviceName):
            return intrinsics.device_call(self, function, node)
        arguments = self.values_of(node.args)
        keywords = {k.arg: self.eval(k.value) for k in node.keywords}
        self.node = node
        if isinstance(function, Method):
            return self.call_checked(function.function, node, [function.of, *arguments], keywords)
        if dtype is not None:
            if len(arguments) != 1 or keywords:
                raise self.refuse(node, f"{dtype}() takes one number")
            return self.number_as(arguments[0], dtype, node)
        meaning = intrinsics.meaning(function)
        if meaning is not None:
            return self.call_checked(meaning, node, arguments, keywords)
        if isinstance(function, Closure):
            return self.call_source(function.source, arguments, keywords, node, closure=function)
        python = getattr(function, "py_func", None)
        if python is not None:
            return self.call(python, arguments, keywords, node, function)
        if isinstance(function, Hashable) and function in arraymethods.FUNCTIONS and not keywords:
            return self.call_checked(arraymethods.FUNCTIONS[function], node, arguments, {})
        if function in (np.iinfo, np.finfo) and len(arguments) == 1:
            kinds, what = ("iu", "an integer") if function is np.iinfo else ("f", "a floating-point")
            dtype = types.as_dtype(arguments[0])
            if dtype is None or dtype.kind not in kinds:
                raise self.refuse(node, f"{function.__name__} takes {what} type")
            return function(dtype)
        if isinstance(function, type) and issubclass(function, tuple) and hasattr(function, "_fields"):
            fields = function._fields
            if len(arguments) + len(keywords) != len(fields) or set(keywords) - set(fields[len(arguments) :]):
                raise self.refuse(node, f"{function.__name__} takes {', '.join(fields)}")
            return function(*arguments, **keywords)
        if isinstance(function, BuiltinFunctionType) and function in _OPERATORS:
            return self.operator_call(function, arguments, node)
        if isinstance(function, np.ufunc):
            return self.ufunc(function, arguments, node)
        if isinstance(function, (BuiltinFunctionType, type)) and function in intrinsics.BUILTINS:
            if keywords:
                raise self.refuse(node, f"{function.__name__}() takes no keyword arguments in a kernel")
            return self.call_checked(intrinsics.BUILTINS[function], node, arguments, {})
        if getattr(math, getattr(function, "__name__", ""), None) is function:
            numbers = [self.number(a, node) for a in arguments]
            result, each = self.call_at(node, types.math_call, function, numbers)
            out = result[0] if isinstance(result, tuple) else result
            wide = types.math_type(function, tuple(v.dtype for v in numbers)) == types.FLOAT64
            if self.watch is not None and wide and not (
                function is math.copysign and all(map(self.watch.narrow, numbers, node.args))
            ):  # fmt: skip
                self.count_flops(node, types.FLOAT32, each)
                self.watch.computed(result, numbers, node)
            else:
                self.count_flops(node, out.dtype, each)
            return result
        if getattr(cmath, getattr(function, "__name__", ""), None) is function:
            result = self.call_at(node, types.cmath_call, function, [self.number(a, node) for a in arguments])
            self.count_flops(node, (result[0] if isinstance(result, tuple) else result).dtype, 1)
            return result
        if isinstance(function, FunctionType):
            where = (function.__module__ or "").split(".")[0]
            if where == "numpy":
                instead = _INSTEAD.get(function.__name__)
                way_round = f"use {instead}" if instead else "write the loop out"
                way_round = _INSTEAD_OF_CALL.get(function.__name__.removesuffix("_like"), way_round)
                raise self.refuse(node, f"Numba-CUDA has no numpy.{function.__name__}", way_round)
            raise self.refuse(
                node, f"{function.__name__} is a plain Python function", "decorate it with @cuda.jit(device=True)"
            )
        raise self.refuse(
            node, f"{kind_name(function)} cannot be called in a kernel",
            _INSTEAD_OF_CALL.get(
                getattr(function, "__name__", "").removesuffix("_like"),
                "use operators, math.…, cuda.… or a @cuda.jit(device=True) function",
            ),
        )  # fmt: skip

    def call_checked(self, function: Callable, node: ast.Call, arguments: list, keywords: dict[str, object]) -> object:
        """function(self, node, …); refuses a call that it has no parameters for."""
        try:
            return function(self, node, *arguments, **keywords)
        except TypeError:
            try:
                inspect.signature(function).bind(self, node, *arguments, **keywords)
            except TypeError:
                raise self.refuse(node, f"{ast.unparse(node.func)} does not take these arguments") from None
            raise

    def number_as(self, value: Lanes, dtype: np.dtype, node: ast.AST) -> Lanes:
        """A number as another type, counted where it is one of float64."""
        if dtype.kind in "fc":
            self.no_member(node, value)
        value = self.number(value, node)
        if value.dtype.kind == "c" and dtype.kind != "c":
            raise self.refuse(node, f"{dtype}() of a complex number", "take .real or .imag")
        result = types.cast(value, dtype)
        if self.watch is not None:
            if value.dtype == types.FLOAT64 and dtype != types.FLOAT64:
                self.watch.stored(value, dtype, node, False)
            elif dtype == types.FLOAT64 and not (isinstance(node, ast.Call) and self.is_known(node)):
                self.watch.converted(value, result, node)
        return result

    def ufunc(self, function: np.ufunc, arguments: list[object], node: ast.AST) -> Lanes | AnyArray | Chosen:
        if any(isinstance(one, ARRAYS) for one in arguments):
            return arraymethods.ufunc(self, node, function, arguments)
        values = [self.number(a, node) for a in arguments]
        name = function.__name__
        if name not in _CUDA_UFUNCS:
            instead = _INSTEAD.get(name) or (f"math.{name}(…)" if hasattr(math, name) else "operators")
            raise self.refuse(node, f"Numba-CUDA has no numpy.{name}", f"use {instead}")
        if len(values) != function.nin or function.nout != 1:
            raise self.refuse(node, f"numpy.{function.__name__} takes {function.nin} number(s) here")
        if any(v.dtype == types.FLOAT16 for v in values):
            raise self.refuse(node, f"numpy.{name} takes no float16", f"use math.{name}(…), or float32(…) of it")
        loop = types.loop_of(function, *(v.dtype for v in values))
        if loop is None:
            given = " and ".join(str(v.dtype) for v in values)
            raise self.refuse(node, f"numpy.{name} takes no {given}", "int32(…) converts")
        result = function(*map(types.cast, values, loop))
        free = function.__name__ in _FREE_UFUNCS
        if self.watch is not None and any(v.dtype == types.FLOAT64 for v in (*values, result)):
            if free and len(values) == 2 and isinstance(node, ast.Call):
                self.watch.compared(*values, node)
                if result.dtype == types.FLOAT64:
                    constants = [self.is_known(a) for a in node.args]
                    self.watch.chosen(result, list(zip(values, constants, strict=False)), node)
            else:
                self.watch.computed(result, values, node)
                self.count_flops(node, types.FLOAT32, 0 if free else 1)
        elif result.dtype.kind in "fc" and not free:
            self.count_flops(node, result.dtype, 1)
        return result

    def operator_call(self, function: object, arguments: list[object], node: ast.AST) -> object:
        """operator.add(a, b) and its relatives; one that works in place, iadd, gives the same."""
        if len(arguments) == 2 and function in _NAMED_OPERATORS:
            return _NAMED_OPERATORS[function](self, *arguments, node)
        function = _IN_PLACE.get(function, function)
        if len(arguments) != (1 if function in UNARY.values() or function is operator.not_ else 2):
            raise self.refuse(node, f"operator.{function.__name__} does not take {len(arguments)} arguments")
        if len(arguments) == 1 and function is operator.not_:
            return np.logical_not(types.truth(self.number(arguments[0], node)))
        if len(arguments) == 1:
            return types.unary(function, self.number(arguments[0], node))
        if function in COMPARE.values():
            return types.binary(function, *(self.number(a, node) for a in arguments))
        return self.apply(function, *arguments, node)

    def call(self, python: FunctionType, arguments: list, keywords: dict, node: ast.AST, made: object = None) -> object:
        """Runs a device function for the active lanes; the one of its signatures that fits converts."""
        signature = self.signature_of(made, arguments, node)
        if signature is not None:
            arguments = [self.as_signature(a, t) for a, t in zip(arguments, signature[0], strict=True)]
        around = next((frame for frame in reversed(self.frames) if frame.source.function is python), None)
        if around is not None:
            if not self.exact:
                return self.result_within(around, arguments, signature, node)
            sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))  # an interpreted call is many of Python's
        src = self.sources.get(python)
        if src is None:
            src = self.sources[python] = source.read(python)
            for name, value in getattr(made, "constants", {}).items():
                self.frozen.setdefault(name, value)
        result = self.call_source(src, arguments, keywords, node, signed=signature is not None)
        for array in [result] if isinstance(result, ARRAYS) else []:
            if not any(array is given for given in arguments):
                raise self.refuse(
                    node, f"{python.__name__} returns an array that is not one of its arguments",
                    "return an index, and slice the array here",
                )  # fmt: skip
        return result if signature is None else self.as_signature(result, signature[1])

    def result_within(self, around: Frame, arguments: list, signature: tuple | None, node: ast.AST) -> object:
        """A value of the type that a function gives that calls itself: its signature's, or of what it has returned.

        Without a signature the call must be of the types that the function runs with, none of them a literal's.
        """
        name = around.source.name
        if signature is not None and signature[1] is not None:
            return self.as_signature(types.literal(1), signature[1])
        first = [around.names.get(p) for p in around.source.parameters[: len(arguments)]]
        same, itself = [kind(a) for a in first] == [kind(a) for a in arguments], around is self.frame
        if around.given or not same or not around.returns or not itself:
            why = "before any path has returned" if not around.returns else "with arguments of other types"
            why = why if itself else f"by way of {self.frame.source.name}"
            raise self.refuse(
                node, f"{name} calls itself {why}" + (" (a literal is one)" if around.given else ""),
                'write a loop, or give it a signature: @cuda.jit("int64(int64)", device=True)',
            )  # fmt: skip
        return around.returns[0][1]

    def signature_of(self, made: object, arguments: list, node: ast.AST) -> tuple | None:
        """(argument types, result type) of the signature of a device function that Numba takes for these arguments."""
        signatures = getattr(made, "device_signatures", ())
        if len(signatures) < 2:
            return next((one for one in signatures if len(one[0]) == len(arguments)), None)
        chosen = types.best([one[0] for one in signatures], [intrinsics.type_of(a) for a in arguments])
        if chosen is None:
            given = ", ".join(kind_name(a) for a in arguments)
            raise self.refuse(node, f"no signature of {made.__name__} takes ({given})")
        return signatures[chosen]

    def find_types(self, frame: Frame, arguments: list[object]) -> None:
        """Finds the types of a function's names for these arguments."""
        self.use_types(frame, types_key(frame.source, arguments))

    def call_source(
        self, src: source.Source, arguments: list, keywords: dict, node: ast.AST, closure: Closure | None = None,
        signed: bool = False,
    ) -> object:  # fmt: skip
        """Runs a function's body for the active lanes; returns what it returns. signed: for a signature's types."""
        names = dict(zip(src.parameters, arguments, strict=False))
        if src.vararg is not None:
            names[src.vararg] = tuple(arguments[len(src.parameters) :])
        elif len(arguments) > len(src.parameters):
            raise self.refuse(node, f"{src.name} takes {len(src.parameters)} arguments, {len(arguments)} are given")
        for key, value in keywords.items():
            if key not in src.parameters or key in names:
                raise self.refuse(node, f"{src.name} has no free parameter {key!r}")
            names[key] = value
        for name in src.parameters:
            if name not in names:
                if closure is not None and name in closure.defaults:
                    names[name] = closure.defaults[name]
                elif name in src.defaults:
                    names[name] = self.constant(src.defaults[name], name, node)
                else:
                    raise self.refuse(node, f"{src.name} is missing its argument {name!r}")
        if closure is not None:
            around = closure.frame.names
            names = {name: around[name] for name in src.free if name in around} | names
        mask = self.mask
        caller = self.frame
        frame = Frame(src, names, mask, self.outer.setdefault(src, {}))
        self.find_types(frame, [*arguments, *keywords.values()])
        if isinstance(node, ast.Call) and not signed:  # a literal is of its type alone there
            pairs = [*zip(src.parameters, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
            frame.given = frozenset(
                p for p, a in pairs if p not in src.assigned and self.is_literal(a, True) and not self.is_numpy(a)
            )
        if self.watch is not None and isinstance(node, ast.Call):
            frame.known = {p for p, a in zip(src.parameters, node.args, strict=False) if self.is_known(a)}
        self.frames.append(frame)
        self.frame = frame
        discard, self.discard = self.discard, None
        try:
            through = self.block_of(src.body, mask)
        except SimtError:
            raise
        except PYTHON_ERRORS as error:
            raise UnsupportedError(f"{self.where()}: {type(error).__name__}: {error}") from error
        finally:
            self.frames.pop()
            self.frame = caller
            self.mask = mask
            self.discard = discard
        if not frame.returns or discard is node:
            return None
        if through is not None and any(v is not None for _, v in frame.returns):
            raise self.refuse(node, f"{src.name} returns a value on some paths only")
        if len(frame.returns) == 1:
            return frame.returns[0][1]
        self.node = node
        (_, result), *others = reversed(frame.returns)
        for lanes, value in others:
            if value is None and result is None:
                continue
            if value is None or result is None:
                raise self.refuse(node, f"{src.name} returns a value on some paths only")
            result = self.merge(lanes, value, result, f"{src.name}'s result")
        return result

    @staticmethod
    def as_signature(value: object, wanted: object) -> object:
        """A number as the type that a signature gives it; anything else as it is."""
        dtype = types.as_dtype(wanted)
        return value if dtype is None or not isinstance(value, NUMBERS) else types.cast(value, dtype)


# So large a frame makes Python take memory for those of all calls behind it, too: of small ones it asks the system for
# a page or two and gives them back, call after call.
Execution.run_strand.__code__ = Execution.run_strand.__code__.replace(co_stacksize=1 << 16)


@functools.lru_cache(maxsize=4096)
def _names_of_wait(loop: ast.For | ast.While) -> tuple[str, ...] | None:
    """Names tested and set in a loop that may wait (a `while`, a `for` that may be left early); None for others."""
    inside = [n for statement in loop.body for n in ast.walk(statement)]
    if isinstance(loop, ast.For) and not any(isinstance(n, (ast.Break, ast.Return)) for n in inside):
        return None
    tests = [n.test for n in [loop, *inside] if isinstance(n, (ast.While, ast.If, ast.IfExp))]
    names = {n.id for test in tests for n in ast.walk(test) if isinstance(n, ast.Name)}
    return tuple(sorted(names | {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}))


@functools.lru_cache(maxsize=4096)
def _names_that_stay(loop: ast.For | ast.While) -> str:
    """The names in the test of a `while` that nothing in it can end: none of them is set in it; "" for other loops."""
    if not isinstance(loop, ast.While):
        return ""
    inside = [n for statement in loop.body for n in ast.walk(statement)]
    tested = [n for n in ast.walk(loop.test) if isinstance(n, ast.expr)]
    known = (ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Attribute)
    shape = {id(n) for n in tested if isinstance(n, ast.Subscript) and ast.unparse(n.value).endswith(".shape")}
    ends = any(isinstance(n, (ast.Break, ast.Return, ast.Raise)) for n in inside)
    if ends or not all(isinstance(n, known) or id(n) in shape for n in tested):
        return ""
    of_things = {id(n.value) for n in tested if isinstance(n, ast.Attribute)}  # x of x.shape, cuda of cuda.threadIdx
    names = {n.id for n in tested if isinstance(n, ast.Name) and id(n) not in of_things}
    if names & {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}:
        return ""
    return " or ".join(f"`{name}`" for name in sorted(names))


def _equal(one: object, other: object) -> bool:
    """Whether a variable has kept its value; False where that is not known."""
    if one is other:
        return True
    if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    these, those = parts(one), parts(other)
    return these is not None and those is not None and these[0] == those[0] and all(map(_equal, these[1], those[1]))


def _is_cuda(module: ModuleType) -> bool:
    return module.__name__.startswith(("numba.cuda", "numba_cuda", "dwlab.simt.cuda"))


def _device_name(value: object) -> DeviceName | None:
    """The DeviceName that an object of numba.cuda (or of the facade) stands for, if any."""
    if isinstance(value, DeviceName):
        return value
    if isinstance(value, ModuleType) or hasattr(value, "py_func"):
        return None
    home = getattr(value, "__module__", None) or ""
    if not isinstance(home, str) or not home.startswith(("numba.cuda", "numba_cuda")):
        return None
    if home.endswith(".libdevice"):
        return getattr(NAMES["libdevice"], value.__name__, None)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    found: object = None
    for part in str(name).split("."):
        found = NAMES.get(part) if found is None else getattr(found, part, None)
    return found if isinstance(found, DeviceName) else None
