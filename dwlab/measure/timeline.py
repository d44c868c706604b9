"""A time line: what a program had the GPU do, in which order, what had to wait for what, and where the time went.

On a GPU every item has the host's time in the call and the device's between two events; in simulated mode there is no
time, and items have order, dependencies and bytes. Either is a table, a picture, a page and JSON.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dwlab.text.drawing import BLUE, Drawing, Table, box, label, line, write

KERNEL, COPIES, WAIT, RANGE = "kernel", ("to device", "to host", "on device"), "wait", "range"
KINDS = (KERNEL, *COPIES, WAIT, RANGE)
COLOURS = {KERNEL: BLUE, "to device": "#e69f00", "to host": "#cc79a7", "on device": "#7a6a00", WAIT: "#8a8a8a",
           RANGE: "#00704f"}  # fmt: skip

Span = tuple[float, float]


class TimelineError(ValueError):
    """A time line that cannot be read, or a question that it cannot answer."""


@dataclass(frozen=True)
class Item:
    """One call. kind: of KINDS; name: the kernel's, or what was copied; stream: its label, "" of the host's own items.

    bytes: copied. host: µs from the start, when the call began and ended; device: the same on the GPU, by events; both
    None in simulated mode. after: the numbers of items that had to be done before this one could begin; of a range
    in simulated mode those that are within.
    """

    kind: str
    name: str
    stream: str = ""
    bytes: int = 0
    host: Span | None = None
    device: Span | None = None
    after: tuple[int, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """Items in the order of their calls. where: the device, in words; wall_us: the host's, from begin to end; None in
    simulated mode. notes: what to know of these numbers.
    """

    items: tuple[Item, ...]
    where: str = ""
    wall_us: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def timed(self) -> bool:
        """Whether it has times."""
        return self.wall_us is not None

    def busy(self, *kinds: str) -> list[Span]:
        """When the device did something of these kinds, as spans that do not overlap."""
        return merged(item.device for item in self.items if item.kind in kinds and item.device)

    def shares(self) -> dict[str, float]:
        """Where the time went, µs of the host's clock.

        kernels, copies: the device did such; both: at the same time; gaps: it did neither; launching: the host was in
        calls that give the device work; waiting: it waited, in a copy that holds it too. Raises TimelineError without
        times.
        """
        if self.wall_us is None:
            raise TimelineError("this time line has no times: it was recorded in simulated mode")
        kernels, copies = self.busy(KERNEL), self.busy(*COPIES)
        either = merged([*kernels, *copies])
        host = {True: 0.0, False: 0.0}
        for item in self.items:
            if item.host and item.kind != RANGE:
                held = item.kind in COPIES and item.device is not None and item.device[1] <= item.host[1]
                host[held or item.kind == WAIT] += item.host[1] - item.host[0]
        return {
            "kernels": length(kernels), "copies": length(copies),
            "both": max(0.0, length(kernels) + length(copies) - length(either)),
            "gaps": max(0.0, self.wall_us - length(either)), "launching": host[False], "waiting": host[True],
        }  # fmt: skip

    def steps(self) -> tuple[int, ...]:
        """The earliest step at which each item could run, if every item took one: items of one step may overlap."""
        found: list[int] = []
        for item in self.items:
            found.append((item.kind != RANGE) + max((found[k] for k in item.after), default=0))
        return tuple(found)

    def tables(self) -> tuple[Table, ...]:
        """Where the time went, if it has times; then calls and bytes of each kind; then each kernel."""
        found = []
        if self.timed:
            wall = self.wall_us or 1.0
            rows = tuple((name, f"{us:,.1f}", f"{us / wall:.0%}") for name, us in self.shares().items())
            whole = (("all", f"{wall:,.1f}", "100%"),)
            found.append(Table("Where the time went (shares overlap)", ("what", "µs", "of all"), (*rows, *whole)))
        rows = []
        for kind in KINDS:
            own = [item for item in self.items if item.kind == kind]
            if own and kind != RANGE:
                streams = len({item.stream for item in own if item.stream})
                nbytes = sum(item.bytes for item in own)
                rows.append((kind, f"{len(own):,}", f"{nbytes:,}" if nbytes else "", f"{streams}" if streams else ""))
        found.append(Table("Calls", ("what", "calls", "bytes", "streams"), tuple(rows)))
        found.append(self._by_name())
        return tuple(found)

    def _by_name(self) -> Table:
        groups: dict[tuple[str, str], list[Item]] = {}
        for item in self.items:
            if item.kind not in (WAIT, RANGE):
                groups.setdefault((item.kind, item.name), []).append(item)
        rows = []
        for (kind, name), own in groups.items():
            device = sum(item.device[1] - item.device[0] for item in own if item.device)
            host = sum(item.host[1] - item.host[0] for item in own if item.host)
            times = (f"{device:,.1f}", f"{host:,.1f}") if self.timed else ()
            rows.append((device, (name, kind, f"{len(own):,}", *times)))
        if self.timed:
            rows.sort(key=lambda row: -row[0])
        head = ("name", "what", "calls", *(("on the device, µs", "host in the call, µs") if self.timed else ()))
        return Table("By name", head, tuple(row for _, row in rows))

    def text(self) -> str:
        """The tables in words, and what is to be known of them."""
        return "\n\n".join([self.title, *(table.text() for table in self.tables()), *self.notes])

    __str__ = text

    @property
    def title(self) -> str:
        """One line: how many items, where, how long."""
        took = f", {self.wall_us:,.0f} µs" if self.wall_us is not None else ": order and bytes, no times"
        where = f" on {self.where}" if self.where else ""
        calls = sum(item.kind != RANGE for item in self.items)
        return f"Time line of {calls:,} calls{where}{took}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())

    # ----------------------------------------------------------------------------------------------------- pictures

    def lanes(self) -> tuple[str, ...]:
        """The host's lane, then one for each stream, in the order of their first item."""
        return ("host", *dict.fromkeys(item.stream for item in self.items if item.stream))

    def drawing(self) -> Drawing:
        """The time line as a picture, with its tables: time, or steps where there is none, goes to the right."""
        width, left, high = 704.0, 84.0, 24.0
        lanes, steps = self.lanes(), self.steps()
        whole = (self.wall_us if self.timed else max(steps, default=1)) or 1.0
        scale = (width - left) / whole
        parts = []
        for number, lane in enumerate(lanes):
            y = 4 + number * (high + 8)
            parts.append(label(0, y + 16, lane))
            parts.append(line(left, y + high + 3, width, y + high + 3, thick=0.5))
        for item, step in zip(self.items, steps, strict=True):
            for lane, span in self._spans(item, step, steps):
                y = 4 + lanes.index(lane) * (high + 8)
                x, wide = left + span[0] * scale, max(0.6, (span[1] - span[0]) * scale)
                tall = high if item.kind != RANGE else 4
                title = f"<title>{html.escape(_words(item))}</title>"
                parts.append(f"<g>{title}{box(x, y, wide, tall, COLOURS[item.kind], 0)}</g>")
        y = 4 + len(lanes) * (high + 8) + 12
        ends = ("0", f"{whole:,.0f} µs") if self.timed else ("first step", f"step {max(steps, default=1)}")
        parts += [label(left, y, ends[0], 11), label(width, y, ends[1], 11, "end")]
        y, x = y + 20, left
        for kind in (kind for kind in KINDS if any(item.kind == kind for item in self.items)):
            parts += [box(x, y - 9, 10, 10, COLOURS[kind], 0), label(x + 14, y, kind, 11)]
            x += 34 + 7 * len(kind)
        return Drawing(self.title, self.alt(), "".join(parts), y + 8, self.tables(), width)

    def _spans(self, item: Item, step: int, steps: Sequence[int]) -> Iterable[tuple[str, Span]]:
        if not self.timed:
            first = step if item.kind != RANGE else min((steps[k] for k in item.after), default=step)
            if step:  # that of a range in which nothing was called is none
                yield item.stream or "host", (first - 0.95, step - 0.05)
            return
        if item.host:
            yield "host", item.host
        if item.device and item.stream:
            yield item.stream, item.device

    def alt(self) -> str:
        """The picture in words."""
        if self.timed:
            words = ", ".join(f"{name} {us:,.0f} µs" for name, us in self.shares().items())
            count = len(self.lanes()) - 1
            streams = f"one for each of {count} streams" if count > 1 else "one for the stream"
            return f"One lane for the host and {streams} over time: {words}."
        words = "; ".join(
            f"step {step}: " + ", ".join(
                f"{item.name} ({item.kind}{', ' + item.stream if item.stream else ''})"
                for item, at in zip(self.items, self.steps(), strict=True)
                if at == step and item.kind != RANGE
            )
            for step in sorted(set(self.steps()) - {0})[:12]
        )  # fmt: skip
        return f"What may run at the same time, one lane a stream: {words}."

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return self.drawing().html() + notes

    def save(self, path: str | Path) -> Path:
        """Writes one HTML file: the picture, in the colours of a light or a dark page, and the tables."""
        return write(path, self.title, self._repr_html_())

    # --------------------------------------------------------------------------------------------------------- JSON

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; times to a hundredth of a µs."""

        def short(span: Span | None) -> list[float] | None:
            return None if span is None else [round(span[0], 2), round(span[1], 2)]

        items = [
            {
                k: v
                for k, v in (asdict(item) | {"host": short(item.host), "device": short(item.device)}).items()
                if v or k == "name"
            }
            for item in self.items
        ]
        return {"where": self.where, "wall_us": self.wall_us, "notes": list(self.notes), "items": items}


def of_dict(content: Mapping[str, Any]) -> Timeline:
    """A time line of what `to_dict` gave. Raises TimelineError."""
    try:
        made = msgspec.convert(dict(content), Timeline)
        for number, item in enumerate(made.items):
            if item.kind not in KINDS or any(not 0 <= k < number for k in item.after):
                raise ValueError(f"item {number}: {item.kind!r} after {item.after}")
        return made
    except (ValueError, TypeError) as error:  # msgspec's are ValueErrors
        raise TimelineError(f"this is no time line of dwlab's: {error}") from error


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same times as spans that do not overlap, in order."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > start:
            found.append((start, end))
    return found


def length(spans: Sequence[Span]) -> float:
    """Length of spans that do not overlap, together."""
    return sum(end - start for start, end in spans)


def _words(item: Item) -> str:
    words = f"{item.name}: {item.kind}" + (f", {item.bytes:,} bytes" if item.bytes else "")
    if item.device:
        words += f", {item.device[1] - item.device[0]:,.1f} µs on the device"
    if item.host:
        words += f", {item.host[1] - item.host[0]:,.1f} µs of the host"
    return words
