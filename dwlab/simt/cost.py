"""The cost of a launch on a multiprocessor: instructions, passes through the L1, waits for memory, re-reads.

`cost(kernel, grid, block, *args)` runs a kernel as `xray` does and counts what a time model needs beside an X-ray. It
is an interpreter of its own, so that an X-ray is as fast as before. All counts are of warps:

- *instructions*. An operation on 32-bit numbers that differ between threads is one, on 64-bit integers two (registers
  have 32 bits; a product of them takes four); a product and the sum right around it are one, a fused multiply-add. The
  same operation on the same values is made once. What is the same in every thread is free: the compiler folds it, or
  computes it once for the warp; so is a constant added between an array's brackets, which the instruction's offset
  holds. A loop of literal length costs nothing, as it is unrolled; another one its counter, test and branch. A global
  access computes its address anew, ADDRESS instructions. It is an estimate: what the compiler makes is its own affair.
- *passes*: how often the 32 four-byte banks that L1 and shared memory have in common must be read for an access, a
  global one too. *lines*: distinct 128-byte lines of a global request: each is looked up among the L1's tags.
- *waits*: how often a warp stops because a value is used that was loaded from global memory and is not there yet. Loads
  that are in flight together are waited for together. A store to shared memory does not stop a warp: in code without
  a loop's branch the compiler moves later loads of global memory before it (as compiled for forward/strips: 18 loads,
  then 18 stores), until a barrier or a read of shared memory; and an asynchronous copy is waited for by `wait` alone,
  as no register waits for it. *misses*: waits in which the block touched a sector that it
  had not touched before, so that the L1 cannot have it.
- *fetched*: for each array, sectors that blocks touched, each once a block: what leaves the L2 if a block keeps in the
  L1 what it has read, and blocks share nothing. *again*: those that an earlier block had touched; *gap*: how many
  blocks lie between the two, on average.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dwlab.simt import launch, source, trace, types
from dwlab.simt.interpreter import Execution
from dwlab.simt.memory import NUMBERS, Array, Lanes, LocalArray, Mask, filled
from dwlab.simt.names import DeviceName
from dwlab.simt.options import Options
from dwlab.simt.report import Report, build

ADDRESS = 7
"""Instructions for the 64-bit address of one global element: the compiled loops of the naive and the coalesced forward
stage (compute capability 9.0) have 6 to 8 an access, products of index and stride, their sum, and a shift."""

DIVISION = 16
"""Instructions of an integer division by a number that is not known when the kernel is compiled."""

RANGE = 12
"""Instructions of a step of Numba's `range`, which counts in 64 bits, up or down: as compiled in the naive stage."""

PREDICATED = 18
"""Most instructions of an `if` without a jump: they are issued although no lane takes them. Compiled so: the loop of
the coalesced forward stage, which is counted as 17; that of the naive stage, counted as 21, is jumped over. Only these
two were looked at: where between them the compiler decides, and by what else, is not known."""

KEPT = 1024
"""Results of operations that are remembered: what is computed a second time from the same values costs nothing."""

_COUNTS = ("load_passes", "store_passes", "atomic_passes", "load_lines", "store_lines", "atomic_lines",
           "atomic_repeats", "shared_passes")  # fmt: skip
_SUMS = {operator.add, operator.sub}
_DIVISIONS = {operator.floordiv, operator.mod, operator.truediv}


@dataclass(frozen=True)
class Reuse:
    """One array's sectors, as blocks fetch them; the module's docstring says what the fields are. distinct: of all."""

    fetched: int = 0
    again: int = 0
    gap: float = 0.0
    distinct: int = 0


@dataclass(frozen=True)
class Cost:
    """Counts over a whole launch. `most_waits`: of the warp that waits most; warps: that had any thread to run.

    load_passes, store_passes, atomic_passes and the lines: of global accesses. shared_passes: as Access.wavefronts.
    instructions32: additions, products and fused multiply-adds in float32. instructions64: those in float64, which have
    units of their own, conversions to it included. asynchronous: whether there are copies past the registers.
    local_words: 4-byte words of local arrays that hold something still needed, most at a time. atomic_repeats: lanes
    whose atomic has the address of another lane of the request: the hardware serves each singly, a sector each.

    tensor: matrix products of the tensor cores (ptx.mma_…), each one instruction of `instructions`. How long one keeps
    a tensor core, of which a multiprocessor has four, is for a time model to say. The four shapes are made so that all
    take as long: at the rates of NVIDIA's A100 architecture paper (512 tf32 multiply-adds a cycle and multiprocessor,
    twice that in 16 bits, four times in int8) 8 cycles on 8.0; on 9.0, whose rates are twice as high, 4 at the best.
    """

    instructions: int
    instructions32: int
    instructions64: int
    load_passes: int
    store_passes: int
    atomic_passes: int
    load_lines: int
    store_lines: int
    atomic_lines: int
    atomic_repeats: int
    shared_passes: int
    waits: int
    misses: int
    most_waits: int
    warps: int
    blocks: int
    threads: int
    shared_bytes: int
    local_words: int
    asynchronous: bool
    reuse: dict[str, Reuse]
    report: Report
    tensor: int = 0


@dataclass(eq=False, slots=True)
class _Flight:
    """Loads in flight: which warps requested them, and which of those missed; (blocks, warps) bool."""

    number: int
    warps: np.ndarray
    missed: np.ndarray


class _Life:
    """The number of 4-byte words of local arrays that hold, at one time, what is still to be read.

    A word lives from a write to the last read before the next write. A number that the compiler knows (a sum's first
    zero) needs no register. An array whose index is not known when the kernel is compiled lives as a whole.
    """

    def __init__(self) -> None:
        self.clock, self.over = 0, False  # over: nothing more is written down
        self.arrays: dict[int, LocalArray] = {}  # kept, so that their ids stay theirs
        self.open: dict[tuple[int, int], list[int]] = {}  # array, element -> written at, last read at
        self.spans: list[tuple[int, int, int]] = []  # from, to, words
        self.whole: dict[int, int] = {}

    def close(self, key: tuple[int, int]) -> None:
        begin, end = self.open.pop(key, (0, -1))
        if end > begin:
            self.spans.append((begin, end, self.arrays[key[0]].dtype.itemsize // 4))

    def write(self, base: LocalArray, element: Lanes, constant: bool) -> None:
        if not self.fixed(base, element):
            return
        key = (id(base), int(element))
        self.close(key)
        if not constant:
            self.open[key] = [self.clock, -1]

    def read(self, base: LocalArray, element: Lanes) -> None:
        if not self.fixed(base, element):
            return
        span = self.open.get((id(base), int(element)))
        if span is not None:
            span[1] = self.clock

    def fixed(self, base: LocalArray, element: Lanes) -> bool:
        """Whether an access is written down by its element."""
        if self.over:
            return False
        self.clock += 1
        self.arrays[id(base)] = base
        if element.ndim:
            self.whole[id(base)] = len(base.storage) * base.dtype.itemsize // 4
        return not element.ndim

    def most(self) -> int:
        """The most words at the same time."""
        for key in list(self.open):
            self.close(key)
        events = sorted([(begin, words) for begin, _, words in self.spans] + [(end, -w) for _, end, w in self.spans])
        living = np.cumsum([0] + [change for _, change in events])
        return int(living.max()) + sum(self.whole.values())


class Costing(Execution):
    """An Execution that counts what Cost holds."""

    splits = compiles = False

    def __init__(self, *launch: object, only: int = 0):
        super().__init__(*launch)
        self.only = only if 0 < only < self.blocks_total else self.blocks_total
        self.issued = self.instructions32 = self.instructions64 = self.tensor = 0
        self.asynchronous = False
        self.counts = dict.fromkeys(_COUNTS, 0)
        self.waits = self.misses = self.most_waits = 0
        self.bodies: dict[int, float] = {}  # an if's statements -> instructions of a warp that runs them
        self.skipped: dict[int, int] = {}  # an if's statements -> warps that did not run them
        self.parted: dict[int, int] = {}  # an if -> warps that ran its body the last time
        self.fetched: dict[int, list[float]] = {}  # root -> fetched, again, sum of gaps
        self.last_block: dict[int, np.ndarray] = {}
        self.local_words = 0
        self.life, self.begun = _Life(), False
        self.brackets = 0
        self.narrow = False  # whether an integer type of 32 bits at most is being converted to
        self.number_of_loads = 0

    # ----------------------------------------------------------------- batches

    def portions(self, most: int) -> Iterator[tuple[int, int]]:
        middle = (self.blocks_total - self.only) // 2
        stop = middle + self.only
        yield from ((first, min(most, stop - first)) for first in range(middle, stop, most))

    def run_batch(self, first: int, count: int, arguments: list[object]) -> None:
        self.seen: dict[int, np.ndarray] = {}
        self.pending: dict[int, tuple[object, _Flight]] = {}
        self.flights: list[_Flight] = []
        self.landing: list[_Flight] = []  # of asynchronous copies
        self.fresh: _Flight | None = None
        self.put_off: _Flight | None = None  # the last load that a store to shared memory waits for
        self.warp_waits = np.zeros((count, self.padded // 32), np.int64)
        self.warp_misses = np.zeros((count, self.padded // 32), np.int64)
        self.values: dict[tuple, tuple] = {}
        self.life.over = self.begun  # batches are alike
        self.begun = True
        super().run_batch(first, count, arguments)
        self.finish_stores()
        self.values.clear()
        self.wait_for_slowest()
        self.waits += int(self.warp_waits.sum())
        self.misses += int(self.warp_misses.sum())
        self.most_waits = max(self.most_waits, int(self.warp_waits.max()))
        self.local_words = max(self.local_words, self.life.most())
        for root in self.roots:
            seen = self.seen.get(id(root))
            if seen is not None:
                self.remember(id(root), seen)

    def wait_for_slowest(self) -> None:
        """A block's warps wait for its slowest: at a barrier, and at its end, as its place is not free before."""
        for counted in (self.warp_waits, self.warp_misses):
            counted[:] = counted.max(axis=1, keepdims=True)

    def barrier(self, node: ast.AST) -> None:
        self.finish_stores()
        super().barrier(node)
        self.wait_for_slowest()

    def remember(self, key: int, seen: np.ndarray) -> None:
        """Adds a batch's blocks to what was fetched, in the blocks' order."""
        last = self.last_block.setdefault(key, np.full(seen.shape[1], -1, np.int64))
        sums = self.fetched.setdefault(key, [0, 0, 0.0])
        for number, row in zip(self.block_numbers, seen, strict=True):
            before = last[row]
            known = before >= 0
            sums[0] += len(before)
            sums[1] += int(np.count_nonzero(known))
            sums[2] += float((number - before[known]).sum())
            last[row] = number

    # ----------------------------------------------------------------- instructions

    def issue(self, instructions: int = 1) -> None:
        self.issued += instructions * self.mask.warps

    def known(self, node: ast.AST) -> bool:
        """Whether an expression is a number when the kernel is compiled."""
        if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:  # uint32(QUADS)
            node = node.args[0]
        if isinstance(node, ast.BinOp):
            return self.known(node.left) and self.known(node.right)
        if isinstance(node, ast.Name) and node.id in self.frame.source.local_names:
            return False
        one = self.frame.source
        return isinstance(node, ast.Constant) or isinstance(source.static_value(node, one.lookup), (int, float))

    def apply(self, op: object, left: object, right: object, node: ast.AST) -> object:
        self.use(left)
        self.use(right)
        key = (op, _who(left), _who(right))
        if key in self.values:
            return self.values[key][0]
        result = super().apply(op, left, right, node)
        if isinstance(result, np.ndarray) and result.ndim:
            self.keep_value(key, result, left, right)
            price = self.price(op, left, right, result, node)
            self.issue(price)
            if result.dtype == types.FLOAT32:
                self.instructions32 += price * self.mask.warps
            elif result.dtype == types.FLOAT64:
                conversions = sum(getattr(v, "dtype", None) == types.FLOAT32 for v in (left, right))
                self.instructions64 += (1 + conversions) * self.mask.warps
                self.issue(conversions)
        return result

    def operate(self, operands: Iterable[object], instructions: int = 1, unit: str = "") -> None:
        super().operate(operands, instructions, unit)
        for one in operands:
            self.use(one)
        self.issue(instructions)
        if unit == "tensor":
            self.tensor += instructions * self.mask.warps

    def keep_value(self, key: tuple, *objects: object) -> None:
        """Remembers a result, which costs nothing a second time, and the operands, so that their ids stay theirs."""
        if len(self.values) >= KEPT:
            self.values.clear()
        self.values[key] = objects

    def price(self, op: object, left: object, right: object, result: np.ndarray, node: ast.AST) -> int:
        """Instructions of one operation."""
        kind, wide = result.dtype.kind, result.dtype.itemsize == 8 and not self.narrow
        if kind in "fc":
            parts = [node.value] if isinstance(node, ast.AugAssign) else [getattr(node, "left", None), node.right]
            product = any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult) for part in parts)
            same = getattr(left, "dtype", None) == getattr(right, "dtype", None)
            return 0 if op in _SUMS and product and same else 1
        if op in _SUMS and self.brackets and (np.ndim(left) == 0 or np.ndim(right) == 0):
            return 0
        if op in _DIVISIONS:
            if (operator.floordiv, _who(left), _who(right)) in self.values:
                return 1  # the remainder, where the quotient is known
            return 3 if self.known(getattr(node, "right", getattr(node, "value", node))) else DIVISION
        if op is operator.mul:
            return 4 if wide else 1
        return 2 if wide else 1

    def compare(self, op: ast.cmpop, left: object, right: object, node: ast.AST) -> Lanes:
        self.use(left)
        self.use(right)
        key = (type(op), _who(left), _who(right))
        if key in self.values:
            return self.values[key][0]
        result = super().compare(op, left, right, node)
        if np.ndim(result):
            self.keep_value(key, result, left, right)
            wide = any(getattr(v, "dtype", types.INT32).itemsize == 8 for v in (left, right))
            self.issue(2 if wide else 1)
        return result

    def branch(self, condition: Lanes, mask: Mask, node: ast.AST) -> tuple[Mask | None, Mask | None]:
        yes, no = super().branch(condition, mask, node)
        if condition.ndim:
            self.issue()
        self.parted[id(node)] = yes.warps if yes is not None else 0 if condition.ndim else mask.warps
        return yes, no

    def block_of(self, statements: list[ast.stmt], mask: Mask) -> Mask | None:
        before = self.issued
        through = super().block_of(statements, mask)
        price = (self.issued - before) / mask.warps  # the first time dearest, as nothing in it is known yet
        self.bodies[id(statements)] = max(price, self.bodies.get(id(statements), 0))
        return through

    def do_If(self, node: ast.If) -> Mask | None:
        warps = self.mask.warps
        through = super().do_If(node)
        left = max(0, warps - self.parted[id(node)])
        self.skipped[id(node.body)] = self.skipped.get(id(node.body), 0) + left
        return through

    def predicated(self) -> int:
        """Instructions issued by warps that took no part in a short body: known when the launch is over."""
        prices = ((self.bodies.get(body, 0), warps) for body, warps in self.skipped.items())
        return round(sum(price * warps for price, warps in prices if price <= PREDICATED))

    def next_iteration(self, node: ast.stmt, active: Mask, iteration: int) -> None:
        super().next_iteration(node, active, iteration)
        if isinstance(node, ast.While):
            self.finish_stores()
            self.issued += 2 * active.warps  # its counter and the branch back; the test is counted where it is made
        elif isinstance(node.iter, ast.Call) and not all(self.known(a) for a in node.iter.args):
            self.finish_stores()
            self.issued += RANGE * active.warps

    def indices_of(self, node: ast.Subscript) -> tuple:
        narrow, self.narrow = self.narrow, False
        self.brackets += 1
        try:
            return super().indices_of(node)
        finally:
            self.brackets -= 1
            self.narrow = narrow

    def on_Call(self, node: ast.Call) -> object:
        function = self.eval(node.func)
        dtype = types.as_dtype(function) if not isinstance(function, DeviceName) else None
        if dtype is not None and len(node.args) == 1 and not node.keywords:
            return self.convert_number(dtype, node)
        copies = len(self.copies)
        brackets, self.brackets = self.brackets, 0
        narrow, self.narrow = self.narrow, False
        result = super().on_Call(node)
        self.brackets, self.narrow = brackets, narrow
        if isinstance(function, DeviceName) and ("sync" in function.path or "fence" in function.path):
            self.issue()
            self.finish_stores()
        if self.fresh is not None:  # a load inside the call: of what it returns, or an asynchronous copy
            if result is None and len(self.copies) > copies:
                self.asynchronous = True
                self.landing.append(self.fresh)
            for one in result if isinstance(result, tuple) else (result,):
                self.pending[id(one)] = (one, self.fresh)
            self.fresh = None
        landed = copies - len(self.copies)
        if landed > 0:
            self.wait(self.landing[min(landed, len(self.landing)) - 1])
            del self.landing[:landed]
        return result

    def convert_number(self, dtype: np.dtype, node: ast.Call) -> Lanes:
        """uint32(a * b) and its like: between whole numbers free, and its operations are made in no more bits."""
        whole = dtype.kind in "iu" and dtype.itemsize <= 4
        narrow, self.narrow = self.narrow, whole
        value = self.number(self.eval(node.args[0]), node)
        self.narrow = narrow
        key = (dtype, _who(value), None)
        if key in self.values:
            return self.values[key][0]
        result = types.cast(value, dtype)
        if result.ndim:
            self.keep_value(key, result, value)
            if "f" in (dtype.kind, value.dtype.kind) and result is not value:
                self.use(value)
                self.issue()
        return result

    # ----------------------------------------------------------------- accesses

    def count(self, array: Array, element: Lanes, mask: Mask, kind: str, node: ast.AST) -> None:
        super().count(array, element, mask, kind, node)
        itemsize = array.dtype.itemsize
        element, active = filled(element, self.lanes_shape), mask.full
        address, passes = element * itemsize + array.root.address, np.zeros(8, np.int64)
        trace.count_shared(element, active, array.root.address, itemsize, passes, 1)
        if array.space == "shared":
            self.issued += mask.warps
            self.counts["shared_passes"] += int(passes[4])
            if kind == "store" and itemsize == 16 and self.fresh is None:
                loads = [one for one in self.flights if one not in self.landing]
                if loads:  # four registers that a vector load filled; a copy past the registers fills none
                    self.put_off = loads[-1]
            elif kind == "load":
                self.finish_stores()
            return
        # A vector access has one index, and most often its constant part goes into the instruction.
        self.issued += mask.warps * (1 + (ADDRESS if itemsize < 16 else 1))
        if array.space != "global":
            return
        self.counts[f"{kind}_passes"] += int(passes[4])
        warps = active.reshape(self.nb, -1, 32)
        self.counts[f"{kind}_lines"] += _distinct(np.where(active, address // 128, -1))
        if kind == "atomic":
            lanes = np.where(active, address, -1)
            self.counts["atomic_repeats"] += int(np.count_nonzero(active)) - _distinct(lanes)
        if kind != "load":
            return
        root = array.root
        seen = self.seen.get(id(root))
        if seen is None:
            seen = self.seen[id(root)] = np.zeros((self.nb, len(root.touched)), np.bool_)
        sector = np.where(active, address // 32 - root.address // 32, 0)
        rows = np.broadcast_to(self.rows, self.lanes_shape)
        missing = active & ~seen[rows, sector]
        seen[rows[active], sector[active]] = True
        flight = _Flight(self.number_of_loads, warps.any(axis=2), missing.reshape(warps.shape).any(axis=2))
        self.number_of_loads += 1
        self.flights.append(flight)
        self.fresh = flight

    def load(self, array: object, indices: tuple, node: ast.AST) -> object:
        result = super().load(array, indices, node)
        if self.fresh is not None and isinstance(result, NUMBERS):
            self.pending[id(result)] = (result, self.fresh)
            self.fresh = None
        return result

    def write(self, array: object, indices: tuple, value: Lanes, node: ast.AST) -> None:
        if isinstance(array, Array):
            entry = self.pending.get(id(value))
            if entry is not None and array.space == "shared":
                self.put_off = entry[1]
            else:
                self.use(value)
        super().write(array, indices, value, node)

    # ----------------------------------------------------------------- waits

    def finish_stores(self) -> None:
        """The stores to shared memory happen, and what they store must be there."""
        if self.put_off is not None:
            self.wait(self.put_off)
            self.put_off = None

    def use(self, value: object) -> None:
        """A value is needed: whoever still waits for it waits here."""
        entry = self.pending.get(id(value))
        if entry is not None:
            self.wait(entry[1])

    def wait(self, flight: _Flight) -> None:
        """All loads that were started land: none is in flight for longer than the one waited for, or by little."""
        if flight not in self.flights:
            return
        landed, self.flights = self.flights, []
        waiting = np.logical_or.reduce([one.warps for one in landed])
        self.warp_waits += waiting
        self.warp_misses += np.logical_or.reduce([one.missed for one in landed])
        self.pending.clear()

    def merge(self, mask: Mask, new: object, old: object, name: str) -> object:
        result = super().merge(mask, new, old, name)
        if result is not new:
            self.pass_on_flight(new, result)
            self.pass_on_flight(old, result)
        return result

    def pass_on_flight(self, value: object, result: object) -> None:
        entry = self.pending.get(id(value))
        known = self.pending.get(id(result))
        if entry is not None and (known is None or known[1].number < entry[1].number):
            self.pending[id(result)] = (result, entry[1])

    def write_local(self, array: object, element: Lanes, value: Lanes, mask: Mask, node: ast.AST) -> None:
        super().write_local(array, element, value, mask, node)
        base = array.base
        self.pass_on_flight(value, base)
        self.life.write(base, element, constant=np.ndim(value) == 0)

    def load_local(self, array: object, element: Lanes, mask: Mask, node: ast.AST) -> Lanes:
        result = super().load_local(array, element, mask, node)
        base = array.base
        self.pass_on_flight(base, result)
        self.life.read(base, element)
        return result


def _who(value: object) -> object:
    """A number itself, an array of lanes by its identity."""
    return (value.dtype, value.item()) if np.ndim(value) == 0 and hasattr(value, "item") else id(value)


def _distinct(values: np.ndarray) -> int:
    """Distinct values of each warp, -1 left out, summed: (blocks, threads)."""
    lanes = np.sort(values.reshape(values.shape[0], -1, 32), axis=2)
    fresh = lanes >= 0
    fresh[..., 1:] &= lanes[..., 1:] != lanes[..., :-1]
    return int(fresh.sum())


def cost(
    kernel: object,
    grid: object,
    block: object,
    *args: object,
    shared_bytes: int = 0,
    options: Options | None = None,
    only: int = 0,
) -> Cost:
    """Runs any kernel on copies of its arguments and counts what it would occupy. Arguments and errors as `xray`'s.

    Hazards are not looked for unless `options` says so. only: run so many blocks, from the middle of the grid, and
    count those alone (0: all); what they share with others is then not seen.
    """
    run, float64 = launch.run_counted(
        kernel,
        grid,
        block,
        args,
        shared_bytes,
        options or Options(hazards="off", trace=True),
        functools.partial(Costing, only=only),
    )
    names = {id(array.root): name for name, array in run.arrays.items()}
    reuse = {}
    for key, (fetched, again, gaps) in run.fetched.items():
        if key in names:
            distinct = int(np.count_nonzero(run.last_block[key] >= 0))
            reuse[names[key]] = Reuse(int(fetched), int(again), gaps / again if again else 0.0, distinct)
    report = build(run, float64)
    same = "instructions32 instructions64 waits misses most_waits threads local_words asynchronous tensor".split()
    return Cost(
        run.issued + run.predicated(), **run.counts, **{name: getattr(run, name) for name in same},
        warps=run.only * (run.padded // 32), blocks=run.only, shared_bytes=report.shared_bytes, reuse=reuse,
        report=report,
    )  # fmt: skip
