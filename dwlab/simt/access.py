"""Loads, stores and barriers: bounds, counting, and the search for races."""

from __future__ import annotations

import ast
import contextlib
import enum
import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numba.core import types as nt

from dwlab.simt import arraymethods, intrinsics, source, trace, types
from dwlab.simt.memory import NUMBERS, AnyArray, Array, Lanes, LocalArray, Mask, Record, filled
from dwlab.simt.names import DeviceName
from dwlab.simt.state import Restart, State
from dwlab.simt.things import ARRAYS, Chosen, Member, kind_name


class Accesses(State):
    """Loads, stores, atomics and barriers of a kernel's lanes."""

    def number(self, value: object, node: ast.AST) -> Lanes:
        """Checks that a value is a number."""
        if isinstance(value, NUMBERS):
            return value
        if isinstance(value, (bool, int, float, complex)):
            return types.literal(value)
        if isinstance(value, ARRAYS):
            raise self.refuse(node, f"{value.name} is an array here", "index it down to one element")
        if isinstance(value, Record):
            raise self.refuse(node, f"an element of {value.array.name} is a record", "take one of its fields")
        if value is None:
            raise self.refuse(node, "None is not a number (does the function return a value on every path?)")
        if isinstance(value, Member):
            if not issubclass(value.family, enum.IntEnum):
                raise self.refuse(node, f"{kind_name(value)} is not a number", "take its .value")
            return value.value
        if isinstance(value, tuple):
            raise self.refuse(node, f"{kind_name(value)} is not a number", "unpack it, or take one of its elements")
        if isinstance(value, nt.Number):
            raise self.refuse(node, f"{value} is a type, not a number", f"{value}(0) is one")
        axes = isinstance(value, DeviceName) and hasattr(value, "x")
        raise self.refuse(node, f"{kind_name(value)} is not a number", "take its .x, .y or .z" if axes else "")

    def index_number(self, value: object, node: ast.AST) -> Lanes:
        """An index as int64; refuses what is no integer."""
        index = self.number(value, node)
        if index.dtype.kind not in "iu":
            raise self.refuse(node, f"an index must be an integer, not {index.dtype}", "int32(…) converts")
        return index if index.dtype == types.INT64 else index.astype(np.int64)

    def locate(self, array: AnyArray, indices: tuple, node: ast.AST) -> tuple[object, Mask | None]:
        """(element numbers, lanes in bounds), or (a view, mask) for slices or fewer indices than dimensions."""
        if (element := self.locate_inside(array, indices, self.mask)) is not None:
            return element, self.mask
        if Ellipsis in [i for i in indices if not isinstance(i, NUMBERS)]:
            at = next(k for k, i in enumerate(indices) if i is Ellipsis)
            fill = len(array.shape) - len(indices) + 1
            indices = indices[:at] + (slice(None),) * fill + indices[at + 1 :]
        if len(indices) == 1 and isinstance(indices[0], tuple) and not indices[0]:
            indices = ()
        given = len(indices) - sum(1 for index in indices if index is None)
        if given > len(array.shape):
            raise self.refuse(node, f"{array.name} has {len(array.shape)} dimensions and is given {given} indices")
        element: Lanes = array.offset
        shape, strides = [], []
        mask: Mask | None = self.mask
        axis = -1
        for index in indices:
            if index is None:  # a new axis
                if len(indices) == 1:
                    raise self.refuse(node, f"a single None is no index of {array.name}", "write [None, :]")
                shape.append(np.int64(1))
                strides.append(0)
                continue
            axis += 1
            extent, stride = array.shape[axis], array.strides[axis]
            if isinstance(index, slice):
                start, length, step = self.slice_bounds(index, extent, node)
                element = element + start * np.int64(stride)
                shape.append(length)
                strides.append(stride * int(step))
                continue
            index = self.index_number(index, node)
            index, mask = self.out_of_range(array, axis, index, extent, mask, node)
            if mask is None:
                return element, None
            element = element + (index if stride == 1 else index * np.int64(stride))
        if given == len(array.shape) and not shape:
            return element, mask
        shape += list(array.shape[given:])
        strides += list(array.strides[given:])
        return array.reshaped(tuple(shape), tuple(strides), element), mask

    @staticmethod
    def locate_inside(array: AnyArray, indices: tuple, mask: Mask) -> Lanes | None:
        """`locate` of the most frequent: an integer for each dimension, in bounds where lanes are active; else None."""
        if len(indices) != len(array.shape):
            return None
        element, plain = array.offset, 0
        for index, extent, stride in zip(indices, array.shape, array.strides, strict=True):
            if type(extent) is np.ndarray or not isinstance(index, NUMBERS) or index.dtype.kind not in "iu":
                return None
            if index.ndim == 0:
                if not 0 <= index < extent:
                    return None
                plain += int(index) * stride
                continue
            index = index if index.dtype == types.INT64 else index.astype(np.int64)
            if np.maximum.reduce(index.view(np.uint64), axis=None) >= extent:
                if mask.array is None or (mask.array & (index.view(np.uint64) >= extent.view(np.uint64))).any():
                    return None
            element = element + (index if stride == 1 else index * stride)
        return element + np.int64(plain) if plain else element

    def slice_bounds(self, index: slice, extent: Lanes, node: ast.AST) -> tuple[Lanes, Lanes, np.int64]:
        """(first element, number of elements, step) of a slice of an axis, by Python's rules."""
        step = np.int64(1) if index.step is None else index.step
        if self.exact and (step.ndim or step == 0):
            raise self.refuse(node, "a slice in a kernel needs a step that is not 0 and the same in every thread")
        step = np.int64(step) if self.exact else np.int64(1)
        low, high = (np.int64(0), extent) if step > 0 else (np.int64(-1), extent - np.int64(1))

        def bound(value: Lanes | None, default: Lanes) -> Lanes:
            if value is None:
                return default
            value = value.astype(np.int64)
            value = np.clip(np.where(value < 0, value + extent, value), low, high)
            return value if value.ndim else np.int64(value)

        start, stop = bound(index.start, low if step > 0 else high), bound(index.stop, high if step > 0 else low)
        length = np.maximum((stop - start + step - np.sign(step)) // step, 0)
        return start, length if length.ndim else np.int64(length), step

    def out_of_range(
        self, array: AnyArray, axis: int, index: Lanes, extent: Lanes, mask: Mask, node: ast.AST
    ) -> tuple[Lanes, Mask | None]:
        """Reports negative and out-of-bounds indices of active lanes; returns wrapped indices, and the lanes left."""
        if not (mask.full & ((index < 0) | (index >= extent))).any():
            return index, mask
        size = "" if extent.ndim else f" (size {int(extent)})"
        negative, _ = mask.split(index < 0)
        if negative is not None:
            if not _literal_index(node, axis):
                text = f"{array.name}: index {{value}} on axis {axis}{size} in {{who}}; Numba counts it from the end"
                self.hazard_in(negative.full, "negative index", node, array.name, text, value=index)
            index = np.where(index < 0, index + extent, index)[()]
        bad, good = mask.split((index >= extent) | (index < 0))
        if bad is not None:
            text = f"{array.name}: index {{value}} on axis {axis}{size} in {{who}}"
            if array.space == "shared" and isinstance(array, Array) and array.root is self.dynamic_root:
                text += f"; a launch gives its bytes, here {self.dynamic_shared}: kernel[grid, block, stream, bytes]"
            self.hazard_in(bad.full, "out of bounds", node, array.name, text, fatal=True, value=index)
            return index, good
        return index, mask

    def in_root(self, array: Array, element: Lanes) -> Lanes:
        """The numbers of elements in all of the allocation, of which shared memory has a row for each block."""
        root = array.root
        return element + self.rows * np.int64(root.row_bytes // array.dtype.itemsize) if root.row_bytes else element

    def load(self, array: AnyArray, indices: tuple, node: ast.AST) -> object:
        """An element in every lane, or a view."""
        if isinstance(array, Chosen):
            return self.by_option(array, lambda one: self.load(one, indices, node))
        element, mask = self.locate(array, indices, node)
        if isinstance(element, (Array, LocalArray)):
            return element
        if mask is None:
            return array.dtype.type(0)
        if array.dtype.fields is not None:
            return Record(array, indices)
        if not isinstance(array, Array):
            value = self.load_local(array, element, mask, node)
            if self.watchers:
                self.note_read(node, element, value)
            return value
        if array.unit:
            return types.complex_of(*(self.load(array.part(k), indices, node) for k in (False, True)))
        self.record_access(array, element, mask, trace.LOAD, node)
        flat, element = array.root.view(array.dtype), self.in_root(array, element)
        if self.nb == 1 and element.shape == (1, 1) and array.root.row_bytes:
            element = element[0, 0]
        value = flat[element] if element.ndim == 0 else flat.take(element, mode="clip")
        if self.watchers:
            self.note_read(node, element, value)
            if self.strands is not None:
                self.note_places(array, np.broadcast_to(element, self.lanes_shape)[mask.full])
        return value

    def write(self, array: AnyArray, indices: tuple, value: Lanes, node: ast.AST) -> None:
        """Stores a value in every active lane, to each element of a slice; of two writers the later lane wins."""
        if isinstance(array, Chosen):
            self.by_option(array, lambda one: self.write(one, indices, value, node))
            return
        element, mask = self.locate(array, indices, node)
        if isinstance(element, (Array, LocalArray)):
            arraymethods.fill(self, node, element, value)
            return
        if mask is None:
            return
        self.check_write(array, value, node)
        if self.watch is not None and types.FLOAT64 in (value.dtype, array.dtype):
            if value.dtype == array.dtype or value.dtype == types.FLOAT64:
                self.watch.stored(value, array.dtype, node, False)
            elif array.space == "shared" and value.dtype == types.FLOAT32:
                self.watch.count(node)
        value = types.cast(value, array.dtype)
        if not isinstance(array, Array):
            self.write_local(array, element, value, mask, node)
            return
        if array.unit:
            for k, part in enumerate((value.real, value.imag)):
                self.write(array.part(bool(k)), indices, part, node)
            return
        self.writable(array, node)
        self.record_access(array, element, mask, trace.STORE, node)
        flat, element = array.root.view(array.dtype), self.in_root(array, element)
        if self.watching:
            where = np.broadcast_to(element, self.lanes_shape)[mask.full]
            before = flat[where].tobytes()
            flat[where] = value if value.ndim == 0 else np.broadcast_to(value, self.lanes_shape)[mask.full]
            self.note_change(array, where, flat[where].tobytes() != before)
        elif mask.array is None and element.shape == self.lanes_shape:
            flat[element] = value
        else:
            active = mask.full
            flat[filled(element, self.lanes_shape)[active]] = (
                value if value.ndim == 0 else filled(value, self.lanes_shape)[active]
            )

    def note_read(self, node: ast.AST, *values: object) -> None:
        """Adds what was read to the digests of the loops that are watched."""
        seen = hash((id(node), *(np.asarray(v).tobytes() for v in values)))
        for watch in self.watchers:
            watch.seen = hash((watch.seen, seen))

    def note_places(self, array: Array, where: np.ndarray) -> None:
        """Adds the words that were read to the loops that are watched."""
        places = _words(array, where)
        for watch in self.watchers:
            watch.places |= places

    def note_change(self, array: Array, where: np.ndarray, really: bool = True) -> None:
        """A store or atomic that is watched: whether it has changed what was there."""
        self.changes += really
        if really and self.strands is not None:
            self.strands.changed(_words(array, where))

    def writable(self, array: Array, node: ast.AST) -> None:
        """Checks an array before a store or atomic: refuses constants and read-only ones; starts to track a root."""
        root = array.root
        if root.read_only or root.space == "const":
            self.refuse_write(array, node)
        if root.space == "global":
            if self.hunting and not root.tracked:
                self.found.stored.update(name for name, one in self.arrays.items() if one.root is root)
                raise Restart
            if root.kept and root.before is None:
                root.before, root.stored = root.data.copy(), node.lineno

    def refuse_write(self, array: Array, node: ast.AST) -> None:
        """Raises UnsupportedError for an array that cannot be written."""
        if array.space == "const":
            raise self.refuse(
                node, f"{array.name} is a constant in the kernel", "pass it as an argument to write to it"
            )
        if isinstance(array, Array) and array.root.read_only:
            raise self.refuse(node, f"{array.name} is read-only on the host", "pass an array that may be written")

    def check_write(self, array: AnyArray | Chosen, value: Lanes, node: ast.AST) -> None:
        """Raises UnsupportedError for an array that cannot be written, or a value that it cannot hold."""
        if value.dtype.kind == "c" and array.dtype.kind != "c":
            raise self.refuse(node, f"a complex value does not fit into {array.name} ({array.dtype})", "take .real")
        if value.dtype == types.FLOAT16 and array.dtype == types.BOOL:
            raise self.refuse(node, f"a float16 does not fit into {array.name} (bool)", "compare it with 0")
        for one in array.options if isinstance(array, Chosen) else (array,):
            self.refuse_write(one, node)

    def by_option(self, array: Chosen, does: Callable[[AnyArray], object]) -> object:
        """What `does` gives of an array, each lane of its own: called for each with the mask set to its lanes."""
        outer, result = self.mask, None
        for k, one in enumerate(array.options):
            mask, _ = outer.split(array.which == k)
            if mask is not None:
                self.mask = mask
                value = does(one)
                result = value if result is None else self.merge(mask, value, result, array.name)
        self.mask = outer
        return result

    def load_local(self, array: LocalArray, element: Lanes, mask: Mask, node: ast.AST) -> Lanes:
        base = array.base
        self.touch(base, mask, trace.LOAD, node)
        if element.ndim == 0:
            value, written = base.storage[int(element)].copy(), base.written[int(element)]
        else:
            index = np.clip(np.broadcast_to(element, self.lanes_shape), 0, len(base.storage) - 1)[None]
            value = np.take_along_axis(base.storage, index, 0)[0]
            written = np.take_along_axis(base.written, index, 0)[0]
        if self.hunting and (missing := np.greater(mask.full, written)).any():
            text = f"{base.name} is read before it was written, in {{who}}"
            self.hazard_in(missing, "uninitialised", node, base.name, text)
        return value

    def write_local(self, array: LocalArray, element: Lanes, value: Lanes, mask: Mask, node: ast.AST) -> None:
        base = array.base
        self.touch(base, mask, trace.STORE, node)
        if element.ndim == 0:
            k = int(element)
            if mask.array is None:
                base.storage[k] = value
                base.written[k] = True
            else:
                np.copyto(base.storage[k], value, where=mask.array)
                np.copyto(base.written[k], True, where=mask.array)
            return
        rows, lanes = np.nonzero(mask.full)
        where = np.broadcast_to(element, self.lanes_shape)[rows, lanes]
        base.storage[where, rows, lanes] = (
            value if value.ndim == 0 else np.broadcast_to(value, self.lanes_shape)[rows, lanes]
        )
        base.written[where, rows, lanes] = True

    # ----------------------------------------------------------------- counting

    def access_record(self, array: AnyArray, kind: str, node: ast.AST) -> tuple[tuple, np.ndarray]:
        key = (self.frame.source.file, node.lineno, array.name, array.space, kind, array.dtype.itemsize)
        record = self.trace.accesses.get(key)
        if record is None:
            record = self.trace.accesses[key] = np.zeros(8, np.int64)
            self.trace.texts.setdefault(key[:2], self.frame.source.text.get(node.lineno, ""))
        return key, record

    def touch(self, array: LocalArray, mask: Mask, kind: int, node: ast.AST) -> None:
        """Counts an access to a local array."""
        if self.tracing:
            _, record = self.access_record(array, self._KINDS[kind], node)
            record[0] += mask.warps
            record[3] += mask.lanes * array.dtype.itemsize
            record[6] += mask.lanes
        if self.units and self.hunting:
            for unit in self.units.values():
                unit.accessed_local(self, array, mask, kind, node)

    part_read: tuple[ast.AST, int] | None = None  # of a complex number the only one that is read: 0 real, 1 imag

    _KINDS = ("load", "store", "atomic")

    def record_access(self, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST) -> None:
        """Counts an access and checks it for races and unwritten reads."""
        if self.tracing and array.dtype.kind == "c":  # its two numbers are two accesses, each counted alone
            real = np.dtype(f"f{array.dtype.itemsize // 2}")
            one = replace(array, dtype=real)
            for k in (0, 1):
                if self.part_read is None or self.part_read != (node, 1 - k):
                    self.count(one, element * np.int64(2) + np.int64(k), mask, self._KINDS[kind], node)
        elif self.tracing:
            self.count(array, element, mask, self._KINDS[kind], node)
        root = array.root
        if self.hunting and root.tracked:
            self.check_races(array, element, mask, kind, node)

    def count(self, array: Array, element: Lanes, mask: Mask, kind: str, node: ast.AST) -> None:
        key, record = self.access_record(array, kind, node)
        root = array.root
        itemsize = array.dtype.itemsize
        rows = max(1 if element.ndim == 0 else element.shape[0], 1 if mask.array is None else mask.array.shape[0])
        element, active, times = filled(element, (rows, self.padded)), mask.rows(rows), self.nb // rows
        if root.space == "shared":
            trace.count_shared(element, active, root.address, itemsize, record, times)
        else:
            trace.count_global(element, active, root.address, itemsize, root.touched, record, times)
        if key not in self.trace.patterns:
            row, lane = divmod(int(active.argmax()), self.padded)
            place = slice(lane // 32 * 32, lane // 32 * 32 + 32)
            address = element[row, place] * itemsize + root.address
            self.trace.patterns[key] = address.tolist(), active[row, place].tolist()
        if self.observer is not None:
            self.observer.accessed(self, array, mask, kind, node)

    def event(self, node: ast.AST, array: str) -> int:
        key = (self.frame.source.file, node.lineno, array)
        number = self.event_numbers.get(key)
        if number is None:
            number = self.event_numbers[key] = len(self.events)
            self.events.append((node.lineno, self.frame.source.file))
        return number

    def check_races(self, array: Array, element: Lanes, mask: Mask, kind: int, node: ast.AST) -> None:
        """Feeds shadow memory with this access and reports what it finds."""
        root = array.root
        if self.options.in_step:
            self.warp_epoch = self.warp_epoch + 1
        for unit in self.units.values():
            unit.accessed(self, array, element, mask, kind, node)
        span = root.granules(array.dtype.itemsize)
        self.access_number += 1
        lanes = filled(element, self.lanes_shape)
        if self.order is not None:
            self.check_races_exact(array, lanes, mask, kind, node, span)
            return
        found = self.clashes
        total = trace.track(
            *root.shadow[:3], lanes, mask.full, span, bool(root.row_bytes), kind, self.event(node, array.name),
            self.access_number, self.block_numbers, self.epoch, self.warp_epoch, self.grid_epoch,
            root.check_unwritten, found,
        )  # fmt: skip
        if not total:
            return
        self.clashes = np.zeros_like(found)
        for hazard in np.flatnonzero(found[:, 0]):
            self.report_race(
                array, int(hazard), kind, *(int(v) for v in found[hazard, 1:5]), node, found[trace.TWO_WRITERS, 0] > 0
            )

    _NODES = 1 << 23  # kept at most, of 32 bytes each

    def check_races_exact(
        self, array: Array, lanes: np.ndarray, mask: Mask, kind: int, node: ast.AST, span: int
    ) -> None:
        """`hunt` where fences order accesses, or lanes of a warp pass different syncwarps."""
        root, order = array.root, self.order
        if not len(self.suspects):
            self.suspects = np.zeros(1 << 14, trace.SUSPECT)
        wanted = min(self.pool_used + mask.lanes * span, self._NODES)
        if len(self.pool) < wanted:
            self.pool = np.concatenate([self.pool, np.zeros(max(wanted, 1 << 12), trace.NODE)])
        self.pool_used, total = trace.track_exact(
            *root.shadow, lanes, mask.full, span, bool(root.row_bytes), kind, self.event(node, array.name),
            self.access_number, self.block_numbers, self.epoch, self.lane_epoch,
            np.zeros((0, 0, 0), np.int32) if self.lane_known is None else self.lane_known,
            self.arrivals, self.grid_epoch,
            order.fences, order.knowledge, root.check_unwritten, self.pool, self.pool_used, self.suspects,
        )  # fmt: skip
        worst: dict[int, tuple[int, tuple]] = {}
        for hazard, me, thread, epoch, lane_epoch, event, *fences, element in self.suspects[:total].tolist():
            if hazard < trace.TWO_WRITERS and order.ordered(me - 1, thread - 1, epoch, lane_epoch, tuple(fences)):
                continue
            far = ((thread - 1) // 32 != (me - 1) // 32) + ((thread - 1) // self.padded != (me - 1) // self.padded)
            if hazard not in worst or far > worst[hazard][0]:
                worst[hazard] = (far, (element, me, thread, event))
        for hazard, (_, found) in sorted(worst.items()):
            self.report_race(array, hazard, kind, *found, node, trace.TWO_WRITERS in worst)

    def report_race(
        self, array: Array, hazard: int, kind: int, element: int, me: int, other: int, event: int, node: ast.AST,
        shared: bool = False,
    ) -> None:  # fmt: skip
        """A race or its like; shared: whether this access stores to one element twice."""
        mine = self.thread_name((me - 1) // self.padded, (me - 1) % self.padded)
        place = self.element_name(array, element)
        if hazard == trace.UNWRITTEN:
            text = f"{mine} reads {place}, which nothing has written"
            return self.hazard("uninitialised", node.lineno, array.name, text, mine)
        theirs = self.thread_name((other - 1) // self.padded, (other - 1) % self.padded)
        if hazard == trace.TWO_WRITERS:
            return self.hazard(
                "two writers", node.lineno, array.name,
                f"{theirs} and {mine} both write {place} at once: one of the values stays", f"{theirs}; {mine}",
                node.lineno,
            )  # fmt: skip
        other_line, file = self.events[event]
        elsewhere = f" of {source.short_file(file)}" * (file != self.frame.source.file)
        does = ("reads", "writes", "updates")[kind]
        did = ("wrote", "read", "updated (atomic)")[hazard]
        same_block = (me - 1) // self.padded == (other - 1) // self.padded
        same_warp = same_block and (me - 1) % self.padded // 32 == (other - 1) % self.padded // 32
        grid = "cuda.cg.this_grid().sync(), " * ("this_grid" in self.found.names)
        need = f"{grid}another launch or an atomic"
        if same_block:
            row, lane = np.flatnonzero(self.block_numbers == (me - 1) // self.padded)[0], (me - 1) % self.padded
            part = slice(lane // 32 * 32, lane // 32 * 32 + 32) if same_warp else slice(None)
            partly = self.strands is None and np.greater(self.alive.full, self.mask.full)[row, part].any()
            need = barrier = "cuda.syncwarp()" if same_warp else "cuda.syncthreads()"
            need += "" if elsewhere else source.between(self.frame.source, node.lineno, other_line, bool(partly))
        need += " behind ptx.wait(…)" * (same_block and "_async(" in self.frame.source.text.get(other_line, ""))
        plain = kind != trace.ATOMIC and hazard != trace.RACE_WITH_ATOMIC
        if plain and (one := self.one_action(array, node, shared, hazard == trace.RACE_WITH_WRITE and not same_block)):
            need = ("an atomic" if same_block else f"{grid}another launch or an atomic") + one
        elif other_line == node.lineno and not elsewhere and plain and same_block:  # no barrier before or behind it
            if hazard == trace.RACE_WITH_WRITE and self.frame.loops:
                need = f"{barrier} between two turns of the loop, outside of every `if`"
            elif isinstance(source.statement_at(self.frame.source, node.lineno), (ast.Assign, ast.AugAssign)):
                again = f", and {barrier} behind it" if self.frame.loops else ""
                need = f"three lines: the value into a variable, then {need}, then the store{again}"
        elif hazard == trace.RACE_WITH_ATOMIC or kind == trace.ATOMIC:
            need = need if same_block else "another launch or an atomic on both lines"
        elif not same_block and other_line != node.lineno and "atomic" in self.found.names:
            need += (
                "; where an atomic says that it is there: cuda.threadfence() before that atomic, and behind the other "
                "thread's atomic"
            )
        if self.order is not None and self.order.fenced:
            fence = "cuda.threadfence_block()" if same_block else "cuda.threadfence()"
            need += (
                f"; with an atomic flag: {fence}, then the atomic, in the first thread; an atomic on the same element, "
                f"then {fence}, in the second"
            )
        self.hazard(
            "race", node.lineno, array.name,
            f"{mine} {does} {place}, which {theirs} {did} on line {other_line}{elsewhere}, with nothing to order the "
            f"two (it takes {need})",
            f"{theirs}; {mine}", other_line,
        )  # fmt: skip

    def one_action(self, array: Array, node: ast.AST, shared: bool, far: bool) -> str:
        """The atomic in place of a statement by which several threads change one element; why none, of another store.

        shared: whether they do it at once. far: whether the element that is read was written by another block.
        """
        target, name, value = _changed(source.statement_at(self.frame.source, node.lineno))
        if target is None:
            return " in place of the line, or one thread alone: several store to one element" if shared else ""
        if not shared and not (far and ast.unparse(target) == ast.unparse(node)):
            return ""
        if array.dtype.name not in intrinsics.ATOMIC_TYPES[name]:
            return f": of {array.dtype} there is no cuda.atomic.{name}, so let one thread do it"
        return f": cuda.atomic.{name}({array.name}, {ast.unparse(target.slice)}, {value})"

    @staticmethod
    def element_name(array: Array, element: int) -> str:
        """An element by the array's name and, when that is a plain one, by its indices."""
        rest, out, strides = element - array.offset, [], tuple(sorted(array.strides, reverse=True))
        if array.offset.ndim or any(n.ndim for n in array.shape) or strides != tuple(array.strides):
            return f"{array.name} element {element}"
        for stride in strides:
            at, rest = divmod(int(rest), stride) if stride else (0, rest)
            out.append(at)
        return f"{array.name} element {element if rest else '[' + ', '.join(map(str, out)) + ']'}"

    def barrier(self, node: ast.AST) -> None:
        """__syncthreads: every thread of the block that has not exited must be here."""
        here = self.mask.full
        rows = here.any(axis=1)
        if self.tracing:
            self.line(node).barriers += int(np.count_nonzero(rows))
        if self.hunting and self.mask.lanes != self.alive.lanes:
            partial = rows[:, None] & self.alive.full & ~here
            if partial.any():
                text = "a barrier that not every thread of the block reaches: {who} is elsewhere"
                self.hazard_in(partial, "divergent barrier", node, None, text)
        if self.hunting and len(self.meeting_lines) > 1:
            text = f"a barrier that not every thread of the block reaches: others wait on line {self.meeting_lines[-1]}"
            self.hazard_in(here, "divergent barrier", node, None, text)
        self.epoch[rows] += 1
        self.meet_units(rows)
        if self.order is not None and self.order.fenced:
            for row in np.flatnonzero(rows):
                self.order.barrier(int(self.block_numbers[row]), here[row])

    def warp_barrier(self, node: ast.AST, here: np.ndarray, member: np.ndarray) -> None:
        """__syncwarp of lanes `here`, each with those that its `member` mask names; both (NB, T)."""
        by_warp = here.reshape(self.nb, -1, 32)
        warps = by_warp.any(axis=2)
        if not self.hunting:
            return
        for unit in self.units.values():
            unit.met_in_warps(self, here, member)
        together = bool((by_warp == (self.alive.full.reshape(by_warp.shape) & warps[:, :, None])).all())
        if together and member.ndim:
            own = np.where(here, member, 0).reshape(by_warp.shape)
            together = bool((own == own.max(axis=2, keepdims=True))[by_warp].all())
        if self.order is None:
            if not together:
                self.track_each()
            self.warp_epoch[warps] += 1
            return
        member = np.ascontiguousarray(np.broadcast_to(member, self.lanes_shape))
        if together and self.lane_known is None:
            self.lane_epoch[np.repeat(warps, 32, axis=1)] += 1
        else:
            if self.lane_known is None:
                by_lane = np.repeat(self.lane_epoch.reshape(self.nb, -1, 1, 32), 32, axis=2)
                self.lane_known = np.ascontiguousarray(by_lane.reshape(self.nb, self.padded, 32))
            trace.meet_lanes(self.lane_epoch, self.lane_known, here, member)
        if self.order.fenced:
            for row, warp in np.argwhere(warps):
                lanes = np.arange(warp * 32, warp * 32 + 32)[by_warp[row, warp]]
                for mask in np.unique(member[row, lanes]):
                    self.order.meet(int(self.block_numbers[row]), lanes[member[row, lanes] == mask])

    def grid_sync(self, node: ast.AST) -> None:
        """A barrier over the whole grid; the batch holds every block, unless lanes take turns."""
        if self.strands is not None:
            self.strands.meet("grid", node, [], None, lambda _: None)
            return
        if self.tracing:
            self.line(node).barriers += self.nb
        if self.mask.lanes != self.alive.lanes:
            text = "a grid barrier that not every thread reaches: {who} is elsewhere, or about to end"
            self.hazard_in(self.alive.full & ~self.mask.full, "divergent barrier", node, None, text)
        self.grid_epoch = int(self.epoch.max()) + 1
        self.epoch[:] = self.grid_epoch
        self.meet_units(np.ones(self.nb, np.bool_))

    def meet_units(self, rows: np.ndarray) -> None:
        for unit in self.units.values():
            unit.met(self, rows)


def _words(array: Array, where: np.ndarray) -> set[tuple[int, int]]:
    """The four-byte words of elements, each with its root."""
    size = array.dtype.itemsize
    return {(id(array.root), int(at) * size // 4 + k) for at in np.unique(where) for k in range(max(1, size // 4))}


@functools.lru_cache(maxsize=8192)
def constant_of(node: ast.expr) -> Lanes | None:
    """The value of a literal (with a sign), else None."""
    with contextlib.suppress(ValueError):
        value = ast.literal_eval(node)
        if isinstance(value, (bool, int, float, complex)):
            return types.literal(value)
    return None


_CHANGES = {ast.Add: "add", ast.Sub: "sub", ast.BitOr: "or_", ast.BitAnd: "and_", ast.BitXor: "xor"}


def _changed(statement: ast.AST) -> tuple[ast.Subscript | None, str, str]:
    """(target, atomic's name, its value) of `a[i] += v`, `a[i] = a[i] + v`, `a[i] = max(a[i], v)`; of others None."""
    target, name, parts = None, "", []
    if isinstance(statement, ast.AugAssign):
        target, name, parts = statement.target, _CHANGES.get(type(statement.op)), [statement.target, statement.value]
    elif isinstance(statement, ast.Assign):
        target, value = statement.targets[0], statement.value
        if isinstance(value, ast.BinOp):
            name, parts = _CHANGES.get(type(value.op)), [value.left, value.right]
        elif isinstance(value, ast.Call) and ast.unparse(value.func) in ("max", "min"):
            name, parts = ast.unparse(value.func), value.args
    texts, own = [ast.unparse(one) for one in parts], ast.unparse(target) if target is not None else ""
    if not name or not isinstance(target, ast.Subscript) or own not in texts[: 1 if name == "sub" else 2]:
        return None, "", ""
    texts.remove(own)
    return (target, name, texts[0]) if len(texts) == 1 else (None, "", "")


def _literal_index(node: ast.AST, axis: int) -> bool:
    """Whether the index on an axis, of an array or in an atomic, is written down as a number."""
    given = [node.slice] if isinstance(node, ast.Subscript) else node.args[1:2] if isinstance(node, ast.Call) else []
    parts = [part for one in given for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
    return axis < len(parts) and constant_of(parts[axis]) is not None
