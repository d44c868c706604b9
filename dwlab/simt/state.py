"""The state of one launch: its grid, the batch of blocks that runs now, what was counted, what was found."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dwlab.simt import source, trace, types
from dwlab.simt.limits import short
from dwlab.simt.memory import Array, Lanes, LocalArray, Mask, Root
from dwlab.simt.options import Hazard, HazardError, Options, UnsupportedError
from dwlab.simt.order import Order

if TYPE_CHECKING:
    from dwlab.simt.float64 import Watch
    from dwlab.simt.strands import Scheduler
    from dwlab.simt.typed import Found


@dataclass
class LineRecord:
    """The counts of one source line so far."""

    warps: int = 0
    lanes: int = 0
    divergent: int = 0
    flops: int = 0
    flops64: int = 0
    other64: int = 0
    barriers: int = 0


@dataclass
class Trace:
    """Everything counted over a launch. accesses: (function file, line, array, space, kind, itemsize) -> counts.

    copied_again: sectors of asynchronous copies (trace.count_copies).
    """

    lines: dict[tuple[str, int], LineRecord] = field(default_factory=dict)
    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    accesses: dict[tuple, np.ndarray] = field(default_factory=dict)
    patterns: dict[tuple, tuple] = field(default_factory=dict)
    hazards: dict[tuple, Hazard] = field(default_factory=dict)
    copied_again: int = 0


class Restart(Exception):
    """The launch must be run again from its start, with what is in `Shown`."""


@dataclass
class Shown:
    """Properties of a launch that only running it has shown.

    exact: fences or syncwarps of some lanes: accesses are tracked one by one.  by_blocks: blocks must take turns
    (dwlab.simt.strands).  split: blocks of which the warps must, with those of which the threads must.
    """

    exact: bool = False
    by_blocks: bool = False
    split: dict[int, set[int]] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Frame:
    """The variables of one call. `partial`: for a variable that only some lanes have set, those lanes.

    literals: variables that hold a constant, as Numba tells those from other values.  known: those whose number the
    compiler works out (dwlab.simt.float64).  types: of names and expressions,
    by their nodes' ids, where all paths are looked at (dwlab.simt.typed).  covered: variable -> the lanes of `partial`,
    and a mask that was last found to lie within them.  outer: what the function's globals and closure variables are in
    a kernel.  given: parameters that the call gives as literals.
    straight: its statements by the ids of their lists, those taken together that only compute (dwlab.simt.straight);
    None where each must be executed by itself.
    """

    source: source.Source
    names: dict[str, object]
    entry: Mask
    outer: dict
    partial: dict[str, Mask] = field(default_factory=dict)
    returns: list[tuple[Mask, object]] = field(default_factory=list)
    loops: list[tuple[list[Mask], list[Mask]]] = field(default_factory=list)
    literals: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
    types: dict[int, np.dtype] = field(default_factory=dict)
    covered: dict[str, tuple[Mask, Mask]] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    straight: dict[int, list] | None = None


@dataclass(eq=False)
class Watch:
    """A loop that may be waiting.

    places, seen: where its iteration has read so far, and a digest of what.  before: the state at the last one's end.
    same: iterations in a row that read the same and changed nothing; still: in which the variables of its tests stayed
    too.
    """

    node: ast.AST
    places: set[tuple[int, int]] = field(default_factory=set)
    seen: int = 0
    before: tuple | None = None
    variables: tuple = ()
    same: int = 0
    still: int = 0


class Observer:
    """A listener to a launch, that counts what an X-ray does not: `xray(…, observer=…)`.

    run, in each call, is the launch: blocks_total, padded (threads of a block, in whole warps), block_numbers (of those
    that run now), arrays (by their names), mask (the active lanes: .full, (blocks, threads), .warps, .lanes).
    """

    def begin(self, run: State) -> None:
        """A launch starts, or starts anew: what was counted so far is void."""

    def accessed(self, run: State, array: Array, mask: Mask, kind: str, node: ast.AST) -> None:
        """A "load", "store" or "atomic" of global, shared or constant memory by the lanes of `mask`."""

    def operated(self, run: State, instructions: int, unit: str) -> None:
        """Instructions that are no operator of Python; unit: "tensor" of the tensor cores, else ""."""


class Unit:
    """A part of a GPU that goes on beside a launch's threads: its methods are called with what they do meanwhile.

    run: the launch, of which it is one batch's (`run.unit(kind)`). An instruction's meaning starts it.
    """

    def __init__(self, run: State) -> None:
        pass

    def accessed(self, run: State, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST) -> None:
        """Lanes load, store or update these elements of an allocation that is looked at for races."""

    def accessed_local(self, run: State, array: LocalArray, mask: Mask, kind: int, node: ast.AST) -> None:
        """Lanes load from their local array, or store to it."""

    def met(self, run: State, rows: np.ndarray) -> None:
        """All threads of these blocks have come to a barrier."""

    def met_in_warps(self, run: State, here: np.ndarray, member: np.ndarray) -> None:
        """Lanes `here` have come to a syncwarp, each with those that its `member` mask names; both (blocks, lanes)."""


OneUnit = TypeVar("OneUnit", bound=Unit)


class State:
    """One launch of one kernel: what its batches share, and the batch that runs now."""

    observer: Observer | None = None
    compiles = True  # whether statements that only compute may run together
    debug = False  # whether the kernel is one of cuda.jit(debug=True), which reports what else goes on

    def __init__(
        self,
        src: source.Source,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        options: Options,
        dynamic_shared: int,
    ):
        self.source = src
        self.grid = grid
        self.block = block
        self.options = options
        self.dynamic_shared = dynamic_shared
        self.threads = block[0] * block[1] * block[2]
        self.padded = -(-self.threads // 32) * 32
        self.blocks_total = grid[0] * grid[1] * grid[2]
        self.trace = Trace()
        self.records: dict[ast.AST, LineRecord] = {}  # of the trace's lines, by what stands there
        self.tracing = options.trace
        self.hunting = options.hazards != "off"
        self.events = [(0, "")]  # line and file
        self.event_numbers: dict[tuple, int] = {}
        self.access_number = 0
        self.constants: dict[int, Array] = {}
        self.constant_memory: dict[int, int] = {}
        self.frozen: dict[tuple, object] = {}
        self.outer: dict[source.Source, dict] = {}  # Frame.outer of each function
        self.sources: dict[object, source.Source] = {}  # of device functions
        self.literals: dict[ast.AST, object] = {}
        self.shown = Shown()
        self.order: Order | None = None  # where fences, or syncwarps of some lanes, order accesses
        self.pool = np.zeros(0, trace.NODE)
        self.pool_used = 0
        self.clashes = np.zeros((5, 6), np.int64)  # what trace.track finds
        self.suspects = np.zeros(0, trace.SUSPECT)
        self.watch: Watch | None = None  # where float64 is looked for
        self.found: Found | None = None  # on all paths of the kernel; None while they are gone through
        thread = np.arange(self.padded, dtype=np.int32)
        self.thread_index = (
            (thread % block[0])[None, :],
            (thread // block[0] % block[1])[None, :],
            (thread // (block[0] * block[1]))[None, :],
        )
        self.address_space = 0
        self.arrays: dict[str, Array] = {}
        self.around: set[Frame] = set()  # of functions that have made one
        self.roots: list[Root] = []
        self.strands: Scheduler | None = None  # where lanes take turns
        self.patience = 200  # iterations of a loop after which it is looked at whether it waits
        self.watching = False  # whether loads and changes of memory are noted for that
        self.changes = 0  # stores and atomics that changed memory, as far as they are noted
        self.meeting_lines: list[int] = []  # of a barrier that strands have come to

    def new_root(self, space: str, data: np.ndarray) -> Root:
        """A root at the next free 256-byte aligned address."""
        root = Root(space, data, self.address_space)
        self.address_space += -(-max(1, len(data)) // 256) * 256 + 256
        root.touched = np.zeros((root.address % 32 + len(data)) // 32 + 2, np.bool_)
        self.roots.append(root)
        return root

    def release(self) -> None:
        """Gives back what only a running launch needs, whoever holds the launch: an error, say."""
        for root in self.roots:
            root.shadow = root.before = root.initial = None
        self.release_names()
        self.shared, self.local, self.units, self.order, self.watch = {}, {}, {}, None, None
        self.pool, self.dynamic_root = self.pool[:0].copy(), None

    def release_names(self) -> None:
        """Forgets the variables of functions that are done: a Closure among them holds them in a cycle."""
        for frame in (*getattr(self, "frames", ()), *self.around):
            frame.names = {}
        self.around.clear()

    def portions(self, most: int) -> Iterator[tuple[int, int]]:
        """(first block, blocks) of each batch of at most `most` blocks."""
        for first in range(0, self.blocks_total, most):
            yield first, min(most, self.blocks_total - first)

    def begin_batch(self, first: int, count: int, arguments: list[object]) -> Frame:
        """Sets up blocks first .. first + count - 1, nothing executed yet; returns the kernel's frame."""
        self.nb = count
        self.lanes_shape = (count, self.padded)
        numbers = np.arange(first, first + count, dtype=np.int64)
        self.block_numbers = numbers
        gx, gy, _ = self.grid
        self.block_index = tuple(
            np.int32(axis[0]) if (axis == axis[0]).all() else axis.astype(np.int32)[:, None]
            for axis in (numbers % gx, numbers // gx % gy, numbers // (gx * gy))
        )
        self.epoch = np.zeros(count, np.int32)
        self.warp_epoch = np.zeros((count, self.padded // 32), np.int32)
        self.lane_epoch = np.zeros(self.lanes_shape, np.int32)  # where `order` is used, else warp_epoch
        self.lane_known: np.ndarray | None = None  # (blocks, T, 32); None: lanes of a warp passed the same syncwarps
        self.grid_epoch = 0
        self.shared: dict[tuple, Array] = {}
        self.shared_used = 0
        self.local: dict[tuple, LocalArray] = {}
        self.dynamic_root: Root | None = None
        self.units: dict[type[Unit], Unit] = {}
        self.copies: list = []  # asynchronous copies in flight
        self.arrivals = np.zeros((0, 0, 0), np.int32)  # what threads know of others where arrivals order accesses
        self.rows = np.arange(count, dtype=np.int64)[:, None]
        self.steps = 0
        self.watchers: list[Watch] = []
        real = None if self.padded == self.threads else (np.arange(self.padded) < self.threads)[None, :]
        self.alive = Mask(real, self.lanes_shape)
        names = dict(zip(self.source.parameters, arguments, strict=True))
        frame = Frame(self.source, names, self.alive, self.outer.setdefault(self.source, {}))
        self.use_types(frame, "kernel")
        self.frames = [frame]
        self.frame = frame
        self.mask = self.alive
        self.node: ast.AST = self.source.body[0]
        return frame

    def exited(self, mask: Mask) -> None:
        """The kernel has ended in these lanes."""
        none = Mask(np.zeros((1, self.padded), np.bool_), self.lanes_shape)
        self.alive = self.alive.without(mask.full) or none

    def use_types(self, frame: Frame, of: object) -> None:
        """Gives a frame what was found of its function for its types, by `types_key`."""
        found = self.found and self.found.types.get(of)
        if found is not None:
            frame.types = found
            frame.straight = self.found.straight.setdefault(id(found), {}) if self.compiles else None

    def unit(self, kind: type[OneUnit]) -> OneUnit:
        """The running batch's unit of a kind."""
        if kind not in self.units:
            self.units[kind] = kind(self)
        return self.units[kind]

    def track_each(self) -> None:
        """Begins the launch anew if it does not track accesses one by one, lane by lane."""
        if self.hunting and self.order is None:
            self.shown.exact = True
            raise Restart

    def where(self, node: ast.AST | None = None) -> str:
        """The place at which execution stands, for messages."""
        line = getattr(node or self.node, "lineno", 0)
        text = self.frame.source.text.get(line, "").strip()
        return f"{self.frame.source.name}, line {line}: `{text}`"

    def refuse(self, node: ast.AST, reason: str, way_round: str = "") -> UnsupportedError:
        """The error for something that cannot be run."""
        return UnsupportedError(f"{self.where(node)}: {reason}" + (f"; {way_round}" if way_round else ""))

    def line(self, node: ast.AST) -> LineRecord:
        record = self.records.get(node)
        if record is None:
            key = (self.frame.source.file, node.lineno)
            record = self.records[node] = self.trace.lines.setdefault(key, LineRecord())
            self.trace.texts[key] = self.frame.source.text.get(node.lineno, "")
        return record

    def count_flops(self, node: ast.AST, dtype: np.dtype, each: int) -> None:
        """Adds `each` floating-point operations per active lane to the node's line."""
        if each and self.tracing:
            record = self.line(node)
            done = each * self.mask.lanes
            record.flops += done
            if dtype in (types.FLOAT64, types.COMPLEX128):
                record.flops64 += done

    def operate(self, operands: Iterable[object], instructions: int = 1, unit: str = "") -> None:
        """An instruction on these values that is no operator of Python; `unit`: "tensor" of the tensor cores."""
        if self.observer is not None:
            self.observer.operated(self, instructions, unit)

    def position(self, block: int, lane: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(threadIdx, blockIdx) of a lane; of those that fill up a warp, the last real one's."""
        gx, gy, _ = self.grid
        lane = min(lane, self.threads - 1)
        return tuple(int(axis[0, lane]) for axis in self.thread_index), (
            block % gx,
            block // gx % gy,
            block // gx // gy,
        )

    def thread_name(self, block: int, lane: int) -> str:
        """ "thread (x, y, z) of block (x, y, z)", without trailing ones that the launch does not have."""
        thread, place = self.position(block, lane)
        return f"thread {short(thread, self.block)} of block {short(place, self.grid)}"

    def first_lane(self, where: np.ndarray) -> tuple[int, int, str]:
        """(batch row, lane, its thread's name) of the first True."""
        row, lane = (int(k) for k in np.argwhere(np.broadcast_to(where, self.lanes_shape))[0])
        return row, lane, self.thread_name(int(self.block_numbers[row]), lane)

    def hazard_in(
        self, where: np.ndarray, kind: str, node: ast.AST, array: str | None, text: str, fatal: bool = False,
        value: object = None,
    ) -> None:  # fmt: skip
        """Records a hazard of the first lane in `where`: in the text it is {who}, and its own `value` {value}."""
        row, lane, who = self.first_lane(where.reshape(self.lanes_shape) if where.ndim == 3 else where)
        own = None if value is None else int(np.broadcast_to(value, self.lanes_shape)[row, lane])
        self.hazard(kind, node.lineno, array, text.format(who=who, value=own), who, fatal=fatal)

    def hazard(
        self, kind: str, node_line: int, array: str | None, message: str, threads: str, other_line: int | None = None,
        fatal: bool = False,
    ) -> None:  # fmt: skip
        """Records a hazard once per kind, line, array and other line; raises or warns as the options say."""
        key = (kind, node_line, array, other_line)
        if key in self.trace.hazards:
            return
        found = Hazard(kind, node_line, array, message, threads, other_line, self.frames[-1].source.file)
        self.trace.hazards[key] = found
        if self.options.hazards == "raise" or (fatal and self.options.hazards == "off"):
            raise HazardError((found,))
