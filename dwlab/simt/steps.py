"""A small launch, statement by statement and warp by warp: `record(kernel, grid, block, *arguments)`.

Warps of a block run in lockstep here, as far as they are active; on a GPU they take turns in any order, and only a
barrier says who was where. So the steps of one warp are in order, those of two are not, and what memory holds at a step
is what it holds in this order.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field, replace

import numpy as np

from dwlab.simt.interpreter import Execution
from dwlab.simt.launch import run_counted
from dwlab.simt.memory import NUMBERS, Array, Lanes, Mask, Root
from dwlab.simt.options import Options, SimtError, current
from dwlab.simt.source import short_file
from dwlab.simt.state import Frame

BLOCKS, WARPS, STEPS, CELLS = 2, 4, 2000, 4096
"""Recorded at most: the first blocks, of each the first warps, statements; elements of arrays whose values are kept."""

Values = tuple[float | int | bool | str | None, ...]
"""One for each lane of a warp; None where a lane is off."""


@dataclass(frozen=True)
class Touch:
    """An access of a warp. at: of each lane the first byte in the array, None where it is off. width: bytes a lane."""

    memory: int
    kind: str
    width: int
    at: tuple[int | None, ...]

    def sectors(self, start: int = 0) -> int:
        """32-byte sectors that it touches in global memory; start: of the array, from the begin of a sector."""
        bytes_of = [one for first in self.at if first is not None for one in (first, first + self.width - 1)]
        return len({(start + one) // 32 for one in bytes_of})


@dataclass(frozen=True)
class Step:
    """A warp at a statement: the lanes that run it, what they touch, which variables they set.

    moment: number of the statement's execution, the same for all warps that run it together.
    """

    moment: int
    line: int
    file: str
    lanes: int
    touches: tuple[Touch, ...]
    sets: dict[str, Values]


@dataclass(frozen=True)
class Memory:
    """An array. start: address of its first byte. blocks: for shared memory, whose copy `Change.block` is of."""

    name: str
    space: str
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True)
class Change:
    """An element that got a value during a moment. block: of shared memory, else 0. element: in the array's order."""

    moment: int
    memory: int
    block: int
    element: int
    value: float | int | bool | str


@dataclass(frozen=True)
class Steps:
    """A recorded launch. warps: (block, warp) -> its steps. before: memory -> what it held, where that is known.

    lines: (file, line) -> text, the kernel and the functions that it calls. cut: why there is no more, "" if all is.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    lines: dict[tuple[str, int], str]
    memories: tuple[Memory, ...]
    before: dict[int, Values]
    warps: dict[tuple[int, int], tuple[Step, ...]]
    changes: tuple[Change, ...]
    cut: str = ""

    def holds(self, memory: int, block: int, moment: int) -> list[object]:
        """An array's elements, in its order, after a moment; None where nothing has written yet, or it is too large."""
        found = list(self.before.get(memory, ()))
        for one in self.changes:
            if one.memory == memory and one.block in (0, block) and one.moment <= moment and one.element < len(found):
                found[one.element] = one.value
        return found


@dataclass(eq=False)
class _Moment:
    """One execution of a statement, by all warps that are there."""

    number: int
    line: int
    file: str
    active: np.ndarray
    touches: list[tuple[int, str, int, np.ndarray, np.ndarray]] = field(default_factory=list)
    sets: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)


class _Full(Exception):
    """Enough is recorded."""


class Recorder(Execution):
    """An Execution that remembers what the first blocks do."""

    blocks, warps, most = BLOCKS, WARPS, STEPS
    compiles = False

    def __init__(self, *launch: object):
        super().__init__(*launch)
        self.moments: list[_Moment] = []
        self.present: dict[int, tuple[ast.AST, _Moment]] = {}
        self.memories: list[tuple[Memory, Root]] = []
        self.held: dict[tuple[int, int], np.ndarray] = {}
        self.before: dict[int, Values] = {}
        self.noted: list[Change] = []
        self.stored: set[tuple[int, int, int]] = set()  # memory, block, element: written in the last moment

    def begin_batch(self, first: int, count: int, arguments: list[object]) -> Frame:
        frame = super().begin_batch(first, count, arguments)
        for array in self.arrays.values():
            if array.space == "global":
                self.memory(array)
        return frame

    def run_batch(self, first: int, count: int, arguments: list[object]) -> None:
        if first < self.blocks:
            super().run_batch(first, count, arguments)
            self.settle()

    def block_of(self, statements: list[ast.stmt], mask: Mask) -> Mask | None:
        now: Mask | None = mask
        outer = self.present.get(id(self.frame))
        for statement in statements:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                self.begin(statement, now)
            now = super().block_of([statement], now)
            if now is None:
                break
        if outer is not None:
            self.present[id(self.frame)] = outer
        return now

    def next_iteration(self, node: ast.stmt, active: Mask, iteration: int) -> None:
        super().next_iteration(node, active, iteration)
        self.begin(node, active)

    def begin(self, node: ast.AST, mask: Mask) -> _Moment:
        """The next moment of this frame."""
        self.settle()
        file = short_file(self.frame.source.file)
        self.trace.texts.setdefault((self.frame.source.file, node.lineno), self.frame.source.text.get(node.lineno, ""))
        moment = _Moment(len(self.moments), node.lineno, file, self.seen(mask.full))
        if moment.active.any():  # not one of blocks that are left out
            if len(self.moments) >= self.most:
                raise _Full
            self.moments.append(moment)
        self.present[id(self.frame)] = node, moment
        return moment

    def moment(self) -> _Moment:
        """The one that runs now; a new one of the same statement if others came between, as in a function it calls."""
        node, moment = self.present[id(self.frame)]
        return moment if moment in self.moments[-1:] or not moment.active.any() else self.begin(node, self.mask)

    def seen(self, values: Lanes) -> np.ndarray:
        """(blocks, warps, 32) of what is recorded; a block that does not run now is False."""
        whole = np.broadcast_to(values, self.lanes_shape)
        warps = min(self.warps, self.padded // 32)
        out = np.zeros((min(self.blocks, self.blocks_total), warps * 32), whole.dtype)
        for row, block in enumerate(self.block_numbers):
            if block < len(out):
                out[block] = whole[row, : warps * 32]
        return out.reshape(len(out), warps, 32)

    def assign(self, name: str, value: object) -> None:
        super().assign(name, value)
        if isinstance(value, (bool, int, float)):
            value = np.asarray(value)
        if isinstance(value, NUMBERS):
            self.moment().sets[name] = self.seen(value), self.seen(self.mask.full)  # not of lanes that leave a loop

    def count(self, array: Array, element: Lanes, mask: Mask, kind: str, node: ast.AST) -> None:
        super().count(array, element, mask, kind, node)
        if array.space == "const":
            return
        memory = self.memory(array)
        width = array.dtype.itemsize
        at = np.broadcast_to(element * np.int64(width), self.lanes_shape)
        moment = self.moment()
        moment.touches.append((memory, kind, width, self.seen(at), self.seen(mask.full)))
        if kind != "load":
            size = self.memories[memory][0].itemsize
            rows = self.block_numbers if array.space == "shared" else [0] * self.nb
            for row, block in enumerate(rows):
                if block < self.blocks:
                    for first in at[row][mask.full[row]]:
                        self.stored |= {(memory, int(block), int(first) // size + k) for k in range(width // size)}

    def memory(self, array: Array) -> int:
        """Number of the array's memory, which gets its name from who uses it first."""
        for number, (_, root) in enumerate(self.memories):
            if root is array.root:
                return number
        shape = tuple(int(n) for n in array.shape)
        size = math.prod(shape)
        width = array.dtype.itemsize
        whole = (array.root.row_bytes or len(array.root.data)) // width
        padded = array.space == "shared" and 0 < size <= whole  # a block's share begins at a multiple of 16 bytes
        if array.dtype.kind == "V" or (size != whole and not padded):
            shape, size = (whole,), whole
        number = len(self.memories)
        self.memories.append(
            (Memory(array.name, array.space, str(array.dtype), width, shape, array.root.address), array.root)
        )
        if size <= CELLS:
            if array.space == "shared":
                self.before[number] = (None,) * size
            else:
                self.before[number] = tuple(_plain(array.root.view(array.dtype)[:size]))
            for block in range(min(self.blocks, self.blocks_total) if array.space == "shared" else 1):
                self.held[number, block] = self.contents(number, block)
        return number

    def contents(self, number: int, block: int) -> np.ndarray:
        """A copy of what the array holds."""
        memory, root = self.memories[number]
        flat = root.view(np.dtype(memory.dtype))
        size = math.prod(memory.shape)
        rows = list(self.block_numbers)
        start = rows.index(block) * (root.row_bytes // memory.itemsize) if root.row_bytes and block in rows else 0
        return flat[start : start + size].copy()

    def settle(self) -> None:
        """Notes what the last moment changed: what was stored, and what came by an asynchronous copy."""
        if not self.moments:
            return
        number = self.moments[-1].number
        for (memory, block), old in self.held.items():
            if self.memories[memory][1].row_bytes and block not in self.block_numbers:
                continue
            new = self.contents(memory, block)
            differ = np.flatnonzero(new.view(f"V{new.itemsize}") != old.view(f"V{old.itemsize}")).tolist()
            wrote = [at for m, b, at in self.stored if (m, b) == (memory, block) and at < len(new)]
            for at in sorted({*differ, *wrote}):
                self.noted.append(Change(number, memory, block, at, _plain(new[at : at + 1])[0]))
            self.held[memory, block] = new
        self.stored.clear()


def _plain(values: np.ndarray) -> list:
    """Numbers as JSON has them, four digits of floating-point ones."""
    if values.dtype.kind == "b":
        return [bool(one) for one in values]
    if values.dtype.kind in "iu":
        return [int(one) for one in values]
    if values.dtype.kind == "f":
        return [float(f"{float(one):.4g}") if math.isfinite(one) else str(float(one)) for one in values]
    return [str(one) for one in values.tolist()]


def record(
    kernel: object,
    grid: object,
    block: object,
    *args: object,
    shared_bytes: int = 0,
    blocks: int = BLOCKS,
    warps: int = WARPS,
    most: int = STEPS,
    options: Options | None = None,
) -> Steps:
    """Runs a kernel on copies of its arguments and keeps what its first blocks' first warps do.

    kernel, grid, block, args, shared_bytes: as `xray` takes them. blocks, warps: how many of the grid's blocks, of each
    how many warps. most: statements, loops counted turn by turn; beyond that the record is cut, and says so. Hazards
    stop nothing here; `xray` reports them. Errors as `xray`'s, and ValueError for a number below 1.
    """
    for name, value in (("blocks", blocks), ("warps", warps), ("most", most)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}: record at least one")
    made: list[Recorder] = []

    def begin(*launch: object) -> Recorder:
        one = Recorder(*launch)
        one.blocks, one.warps, one.most = blocks, warps, most
        made.append(one)
        return one

    options = replace(options or current(), hazards="off", trace=True)
    cut = ""
    try:
        run_counted(kernel, grid, block, args, shared_bytes, options, kind=begin)
    except _Full:
        cut = f"the first {most:,} statements"
    except SimtError as error:
        if not made or not made[-1].moments:
            raise
        cut = f"it ends with an error: {str(error).splitlines()[0]}"
    run = made[-1]
    run.settle()
    return _steps(run, cut)


def _steps(run: Recorder, cut: str) -> Steps:
    warps: dict[tuple[int, int], list[Step]] = {}
    for moment in run.moments:
        for block, warp in np.argwhere(moment.active.any(axis=2)).tolist():
            touches = tuple(
                Touch(memory, kind, width, _lanes(at[block, warp], on[block, warp]))
                for memory, kind, width, at, on in moment.touches
                if on[block, warp].any()
            )
            on = moment.active[block, warp]
            sets = {name: _lanes(v[block, warp], on & by[block, warp]) for name, (v, by) in moment.sets.items()}
            bits = int(sum(1 << lane for lane in np.flatnonzero(on).tolist()))
            step = Step(moment.number, moment.line, moment.file, bits, touches, sets)
            warps.setdefault((block, warp), []).append(step)
    lines = {(short_file(file), line): text for (file, line), text in run.trace.texts.items()}
    sources = [run.source, *(frame.source for frame in run.frames)]
    for one in sources:  # the lines between, so that a reader sees the kernel whole
        lines |= {(short_file(one.file), line): text for line, text in one.text.items()}
    memories = tuple(memory for memory, _ in run.memories)
    played = {key: tuple(steps) for key, steps in sorted(warps.items())}
    lines = dict(sorted(lines.items()))
    return Steps(run.source.name, run.grid, run.block, lines, memories, run.before, played, tuple(run.noted), cut)


def _lanes(values: np.ndarray, on: np.ndarray) -> Values:
    return tuple(one if active else None for one, active in zip(_plain(values), on.tolist(), strict=True))
