"""Accesses of four float32 at once, or two, and copies to shared memory that arrive later: their meaning, lane by lane.

A vector access counts as one access of 16 bytes a lane (shared memory serves it quarter-warp by quarter-warp; 8 bytes
half a warp at a time) and is looked at for races on each of its elements. Lanes with a misaligned index, or with any of
the elements outside the array, are reported and take no further part: the hardware would stop the kernel.

An asynchronous copy is tracked as a store twice: when it starts (nothing may still read or write its destination) and
when its thread has waited for it (from there other threads need a barrier, as after any store). In between its
destination is in flight, and whoever touches it races.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dwlab.simt.meanings import LOAD, STORE, Array, Execution, Lanes, Mask, Root, Unit

WIDTH = 4
FLOAT32 = np.dtype(np.float32)
_WIDE = {1: FLOAT32, 2: np.dtype("V8"), 4: np.dtype("V16")}


@dataclass
class Copy:
    """A copy in flight. element: of the destination, with `lanes` those that still wait for it; group: -1 uncommitted.

    values: (its elements, blocks, threads).  node: where it was started.  source, origin: the array that is read, and
    each lane's first element in its allocation. reported: that it was overwritten meanwhile.
    """

    array: Array
    element: np.ndarray
    lanes: np.ndarray
    group: np.ndarray
    values: np.ndarray
    node: ast.AST
    source: Array
    origin: np.ndarray
    reported: bool = False


class Words(Unit):
    """The accesses that copies and products still have to make, of memory, by its root, word by word, (blocks, words).

    in_flight: the event of the copy in flight to a word of four bytes, of a box (bulk.py) negative, 0 of none. in_use:
    how many products of warp groups may still read it. groups: of copies that each lane has committed. fenced: the
    access after which each lane last came to fence_async().
    """

    def __init__(self, run: Execution):
        self.in_flight: dict[Root, np.ndarray] = {}
        self.in_use: dict[Root, np.ndarray] = {}
        self.groups = np.zeros(run.lanes_shape, np.int32)
        self.fenced = np.zeros(run.lanes_shape, np.int64)

    @staticmethod
    def of(kept: dict[Root, np.ndarray], root: Root, run: Execution) -> np.ndarray:
        """A root's words, all 0 at first."""
        if root not in kept:
            kept[root] = np.zeros((run.nb, root.row_bytes // 4), np.int32)
        return kept[root]

    def accessed(self, run: Execution, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST) -> None:
        """Reports lanes that touch what a copy brings, or overwrite what one reads."""
        if array.root in self.in_flight:
            in_flight(run, self.in_flight[array.root], array, element, mask, node)
        if run.copies and kind != LOAD and array.space == "global":
            overwritten(run, array, element, mask, node)


def load(space: str, width: int = WIDTH) -> Callable:
    """The meaning of a load of four, or two."""

    def meaning(run: Execution, node: ast.Call, array: object, index: Lanes) -> tuple[Lanes, ...]:
        element, mask = locate(run, node, space, array, index, width)
        if mask is None:
            return (np.float32(0),) * width
        _note(run, array, element, mask, LOAD, node, width)
        return tuple(_fetch(run, array, element, width))

    return meaning


def store(space: str, width: int = WIDTH) -> Callable:
    """The meaning of a store of four, or two."""

    def meaning(run: Execution, node: ast.Call, array: object, index: Lanes, *values: Lanes) -> None:
        wide = np.stack([np.broadcast_to(one, run.lanes_shape) for one in values])
        element, mask = locate(run, node, space, array, index, width)
        run.writable(array, node)
        if mask is None:
            return
        _note(run, array, element, mask, STORE, node, width)
        _put(run, array, element, mask.full, wide)

    return meaning


def copy(width: int = WIDTH) -> Callable:
    """The meaning of a copy of four, two or one: the source is read now, the destination is in flight until a wait."""

    def meaning(run: Execution, node: ast.Call, shared: object, i: Lanes, source: object, j: Lanes) -> None:
        _start(run, node, width, shared, i, source, j, run.mask)

    return meaning


def copy_or_zeros(
    run: Execution, node: ast.Call, shared: object, i: Lanes, source: object, j: Lanes, inside: Lanes
) -> None:
    """A copy of four where `inside`; elsewhere zeros are on the way, and the source is not looked at."""
    _start(run, node, WIDTH, shared, i, source, j, run.mask.split(inside)[0])


def _start(
    run: Execution, node: ast.Call, width: int, shared: object, i: Lanes, source: object, j: Lanes,
    reading: Mask | None,
) -> None:  # fmt: skip
    """Starts copies of all active lanes, of which `reading` read the source and the others bring zeros."""
    outer, origin = run.mask, np.int64(-width)
    if reading is None:
        held(run, node, "global", source)
    else:
        run.mask = reading
        origin, good = locate(run, node, "global", source, j, width)
        run.mask = outer
        if good is not reading:  # without the lanes that were reported
            left = outer.without(reading.full if good is None else reading.full & ~good.full)
            if left is None:
                return
            reading, run.mask = good, left
    element, mask = locate(run, node, "shared", shared, i, width)
    run.mask = outer
    if mask is None:
        return
    values = np.zeros((width, *run.lanes_shape), np.float32)
    if reading is not None and mask is not outer:
        reading = mask.split(np.broadcast_to(reading.full, run.lanes_shape))[0]
    if reading is not None:
        _note(run, source, origin, reading, LOAD, node, width)
        run.mask = reading
        values[:] = [np.broadcast_to(one, run.lanes_shape) for one in _fetch(run, source, origin, width)]
        run.mask = outer
        if reading is not mask:
            values[:, ~reading.full] = 0
            origin = np.where(reading.full, origin, -width)
    _note(run, shared, element, mask, STORE, node, width)
    if run.tracing and width == WIDTH and reading is not None:  # what was found in recorded counters is of 16 bytes
        at = [np.broadcast_to(one * 4, run.lanes_shape).astype(np.int64) for one in (origin, element)]
        run.trace.copied_again += count_copies(*at, reading.full)
    element = np.ascontiguousarray(np.broadcast_to(element, run.lanes_shape))
    lanes = mask.full.copy()
    _mark(run, shared, element, lanes, run.event(node, shared.name), width)
    origin = np.broadcast_to(origin, run.lanes_shape)
    group = np.full(run.lanes_shape, -1, np.int32)
    run.copies.append(Copy(shared, element, lanes, group, values, node, source, origin))


def commit(run: Execution, node: ast.Call) -> None:
    """Puts each active lane's uncommitted copies into its next group."""
    into_group(run.copies, run.unit(Words).groups, run.mask.full)


def into_group(started: list, groups: np.ndarray, now: np.ndarray) -> None:
    """Puts what lanes `now` have started into the next of their groups, of which they have committed so many."""
    for one in started:
        fresh = now & one.lanes & (one.group < 0)
        one.group[fresh] = groups[fresh]
    groups += now


def wait(run: Execution, node: ast.Call, groups: int) -> None:
    """Lands the copies of all groups but each active lane's youngest `groups`."""
    oldest_left = run.unit(Words).groups - groups
    waiting = run.mask.full
    for one in run.copies:
        done = waiting & one.lanes & (one.group >= 0) & (one.group < oldest_left)
        if not done.any():
            continue
        width = len(one.values)
        _mark(run, one.array, one.element, done, 0, width)
        one.lanes &= ~done
        _hunt(run, one.array, one.element, Mask(done, run.lanes_shape), STORE, one.node, width)
        read = done & (one.origin >= 0) & (not one.reported)  # zeros have no source
        if read.any():
            _hunt(run, one.source, one.origin, Mask(read, run.lanes_shape), LOAD, one.node, width)
        _put(run, one.array, one.element, done, one.values)
    run.copies = [one for one in run.copies if one.lanes.any()]


def nothing(run: Execution, node: ast.Call) -> None:
    """Nothing: here each kernel starts when the one before is done."""


def in_flight(run: Execution, words: np.ndarray, array: Array, element: Lanes, mask: Mask, node: ast.AST) -> None:
    """Reports lanes that touch elements which a copy may still be writing. `element`: in elements of the array."""
    ratio = max(1, array.dtype.itemsize // 4)
    word = np.broadcast_to(element, run.lanes_shape) * array.dtype.itemsize // 4
    for k in range(ratio):
        rows = np.broadcast_to(run.rows, run.lanes_shape)
        event = np.where(mask.full, words[rows, np.where(mask.full, word + k, 0)], 0)
        if not event.any():
            continue
        row, lane, who = run.first_lane(event != 0)
        at = int(np.broadcast_to(element, run.lanes_shape)[row, lane])
        number = int(event[row, lane])
        line, _ = run.events[abs(number)]
        need = "ptx.mbarrier_wait" if number < 0 else "ptx.commit() and ptx.wait(0)"
        run.hazard(
            "race", node.lineno, array.name,
            f"{who} touches {run.element_name(array, at)} while the asynchronous copy of line {line} is "
            f"still in flight (it takes {need} first)", who, line,
        )  # fmt: skip
        return


def overwritten(run: Execution, array: Array, element: Lanes, mask: Mask, node: ast.AST) -> None:
    """Reports a store to global memory that a copy in flight may still be reading. `element`: as for `in_flight`."""
    size = array.dtype.itemsize
    at = np.broadcast_to(element, run.lanes_shape)
    for one in run.copies:
        if one.source.root is not array.root:
            continue
        written, first = at[mask.full] * size, np.sort(one.origin[one.lanes]) * 4
        # The last copy that begins before a store ends: all of a statement's are of one length.
        last = np.searchsorted(first, written + size) - 1
        hit = (last >= 0) & (first[np.maximum(last, 0)] + 4 * len(one.values) > written) if len(first) else last > 0
        if hit.any():
            one.reported = True
            row, lane = np.argwhere(mask.full)[int(np.argmax(hit))]
            who = run.thread_name(int(run.block_numbers[row]), int(lane))
            run.hazard(
                "race", node.lineno, array.name,
                f"{who} writes {run.element_name(array, int(at[row, lane]))}, which the asynchronous "
                f"copy of line {one.node.lineno} may still be reading (it takes ptx.commit() and ptx.wait(0) first)",
                who, one.node.lineno,
            )  # fmt: skip
            return


def held(run: Execution, node: ast.Call, space: str, array: object) -> Lanes:
    """The elements of an array, once it is a C-contiguous one of float32 in that memory."""
    name = run.called
    if not isinstance(array, Array) or array.space != space:
        kind = f"a {array.space} array" if hasattr(array, "space") else "no array"
        raise run.refuse(node, f"{name} takes a {space} array; this is {kind}")
    if array.dtype != FLOAT32:
        raise run.refuse(node, f"{name} takes a float32 array; {array.name} is {array.dtype}")
    size = 1
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if stride != size and not (extent.ndim == 0 and extent == 1):
            raise run.refuse(node, f"{name} takes a C-contiguous array; {array.name} is not")
        size = size * int(extent) if extent.ndim == 0 else size * extent
    return size


def locate(
    run: Execution, node: ast.Call, space: str, array: object, index: Lanes, width: int = WIDTH
) -> tuple[Lanes, Mask | None]:
    """(number of the first of the elements within the allocation, lanes in bounds and aligned)."""
    step = held(run, node, space, array)
    mask: Mask | None = run.mask
    bad, mask = mask.split((index < 0) | (index + width > step))
    if bad is not None:
        who, value = _first(run, bad, index)
        size = "" if np.ndim(step) else f" (size {int(step)})"
        text = f"{array.name}: elements {value} to {value + width - 1}{size} in {who}"
        run.hazard("out of bounds", node.lineno, array.name, text, who, fatal=True)
        if mask is None or mask is bad:
            return array.offset, None
    element = array.offset + index
    bad, mask = mask.split((element * 4 + array.root.address) % (4 * width) != 0)
    if bad is not None:
        who, value = _first(run, bad, index)
        start = "" if value % width else f" ({array.name} itself does not start at a multiple of {4 * width} bytes)"
        run.hazard(
            "misaligned", node.lineno, array.name,
            f"{array.name}: index {value} in {who} is not at a multiple of {4 * width} bytes{start}; "
            f"{run.called} takes indices that are multiples of {width}", who, fatal=True,
        )  # fmt: skip
        if mask is None or mask is bad:
            return element, None
    return element, mask if run.exact else None


def _first(run: Execution, mask: Mask, index: Lanes) -> tuple[str, int]:
    row, lane, who = run.first_lane(mask.full)
    return who, int(np.broadcast_to(index, run.lanes_shape)[row, lane])


def tally(
    run: Execution, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST, width: int = WIDTH
) -> None:
    """Counts one access of 16 bytes a lane, or 8."""
    if run.tracing:
        whole = Array(array.root, array.name, _WIDE[width], (np.int64(0),), (1,))
        run.count(whole, element // width, mask, "load" if kind == LOAD else "store", node)


def _note(
    run: Execution, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST, width: int = WIDTH
) -> None:
    """Counts one access of a lane, and hunts on each of its elements."""
    tally(run, array, element, mask, kind, node, width)
    _hunt(run, array, element, mask, kind, node, width)


def _hunt(
    run: Execution, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST, width: int = WIDTH
) -> None:
    if run.hunting and array.root.tracked:
        for k in range(width):
            run.check_races(array, element + np.int64(k), mask, kind, node)


def _fetch(run: Execution, array: Array, element: Lanes, width: int = WIDTH) -> list[Lanes]:
    flat = array.root.view(FLOAT32)
    element = run.in_root(array, element)
    values = [flat.take(element + k, mode="clip") for k in range(width)]
    if run.watchers:
        run.note_read(run.node, element, *values)
        if run.strands is not None:
            where = np.broadcast_to(element, run.lanes_shape)[run.mask.full]
            run.note_places(array, np.concatenate([where + k for k in range(width)]))
    return values


def _put(run: Execution, array: Array, element: Lanes, lanes: np.ndarray, values: np.ndarray) -> None:
    where = np.broadcast_to(run.in_root(array, element), run.lanes_shape)[lanes]
    flat = array.root.view(FLOAT32)
    if run.watching:
        run.note_change(array, np.concatenate([where + k for k in range(len(values))]))
    for k, one in enumerate(values):
        flat[where + k] = one[lanes]


def _mark(run: Execution, array: Array, element: np.ndarray, lanes: np.ndarray, event: int, width: int) -> None:
    rows = np.broadcast_to(run.rows, run.lanes_shape)[lanes]
    words = Words.of(run.unit(Words).in_flight, array.root, run)
    for k in range(width):
        words[rows, element[lanes] + k] = event


def count_copies(source: np.ndarray, destination: np.ndarray, mask: np.ndarray) -> int:
    """Sectors that a GPU counts of one asynchronous copy of 16 bytes a lane beyond those that its source lies in.

    Byte addresses in global and shared memory, (R, C). The hardware counts, warp by warp, a sector for each 32 bytes of
    shared memory that bytes of one 128-byte line of global memory go to: more than a load's where rows lie in shared
    memory misaligned by 16 bytes, fewer where only the source does. Found in recorded counters
    (tests/simt/test_copies.py).
    """
    return _distinct(source // 128, destination // 32, mask) - _distinct(source // 32, source * 0, mask)


def _distinct(first: np.ndarray, second: np.ndarray, mask: np.ndarray) -> int:
    """Distinct pairs of each warp's active lanes, summed."""
    keys = np.where(mask, first * (1 << 20) + second, -1).reshape(-1, 32)
    keys.sort(axis=1)
    return int(np.count_nonzero((keys >= 0) & (np.diff(keys, axis=1, prepend=-1) != 0)))
