"""Drawings of a lesson, as SVG made from what is counted: readable in a dark page and in a light one, with a table.

    machine(gpu)                               a GPU's memories: sizes, bandwidths, latencies
    threads(kernel, grid, block, *arguments)   which warp touches which element of which array; of one's own kernel, too
    banks("tile", {"pitch 32": (report, 32)})  the words of a shared array, their banks, and what a warp reads
    grids("Loads", alt, {"x": counts})         whole numbers in the cells of arrays, filled by their values
    waiting((1, 4, 16), busy=4, latency=44)    a scheduler that issues for so many warps: latency hiding
    bars(gpu, {"stride 2": Moved(...)})        useful bandwidth: what the sectors allow at most, and what was measured

Each is a Drawing: a notebook shows its picture and its table, `.text()` has the same in words, `.save(path)` is a page.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwlab.gpu import occupancy, specs
from dwlab.gpu.machine import Machine
from dwlab.model import timemodel
from dwlab.simt import Report
from dwlab.simt.steps import Touch, record
from dwlab.simt.views import BANKS, LANES, SECTOR, WORD, bank_words
from dwlab.text.drawing import BLUE, INKS, ORANGE, WARPS, WIDE, Drawing, Table, arrow, box, dims, label, line

SHARED_CYCLES = 20
"""Latency of shared memory, in clocks: from the same table as timemodel.L2_CYCLES."""
CELLS = 64 * 64
"""Elements of an array that `threads` draws at most."""
LEAST = 9.0
"""Size of a number in a cell at the least: smaller ones cannot be read on a page of 800 pixels."""


def _numbered(columns: Sequence[int], cell: float) -> set[int]:
    """Those of a row's filled columns whose numbers are written: all, or in small cells each fourth and the last."""
    if cell >= 2 * LEAST:
        return set(columns)
    return {
        one for k, one in enumerate(columns)
        if one == columns[-1] or (k % 4 == 0 and columns[-1] - one > 1)
    }  # fmt: skip


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f} %"


# ---- the machine


def size(nbytes: float | None) -> str:
    """Bytes in KiB, MiB or GiB."""
    if nbytes is None:
        return "not known"
    for unit, step in (("GiB", 2**30), ("MiB", 2**20)):
        if nbytes >= step:
            return f"{nbytes / step:,.3g} {unit}"
    return f"{nbytes / 1024:,.0f} KiB"


@dataclass(frozen=True)
class Level:
    """A memory of a GPU: bytes of an SM and of all, GB/s of all, clocks that a warp waits. None: not known."""

    name: str
    per_sm: float | None
    whole: float | None
    gbps: float | None
    clocks: float | None
    source: str


def levels(gpu: Machine) -> tuple[Level, ...]:
    """The memories of a GPU, the nearest to the arithmetic first. Raises specs.GpuError where no clock is known."""
    mhz = specs.boost_mhz(gpu)
    limits = occupancy.limits(gpu.compute_capability)
    registers, onchip = 4 * gpu.registers_per_sm, 1024 * limits.l1_kib
    tflops = gpu.ceilings.fma_tflops
    published = "clocks: published for V100, A100, H100"
    return (
        # An FMA reads three registers and writes one, of 4 bytes, and counts as two operations.
        Level("registers", registers, gpu.sms * registers, tflops and 1e3 * tflops / 2 * 16, None,
              "three read and one written per FMA, at the FMA ceiling"),
        Level("L1 and shared memory", onchip, gpu.sms * onchip, gpu.ceilings.shared_gbps, SHARED_CYCLES, published),
        Level("L2", None, gpu.l2_bytes, gpu.ceilings.l2_gbps, timemodel.L2_CYCLES, published),
        Level("device memory", None, gpu.memory_bytes, gpu.ceilings.copy_gbps, timemodel.DRAM_NS * mhz / 1e3,
              "clocks: under load, fitted to recorded times"),
    )  # fmt: skip


def machine(gpu: Machine) -> Drawing:
    """A GPU from its multiprocessors down to its memory. Errors as `levels`."""
    found = levels(gpu)
    limits = occupancy.limits(gpu.compute_capability)
    quarter = f"{gpu.registers_per_sm * 4 // limits.partitions // 1024} KiB"
    slots = gpu.threads_per_sm // LANES // limits.partitions
    parts = [box(0, 0, 520, 200, thick=2, rounded=6), label(12, 20, "an SM (streaming multiprocessor)", 13, bold=True)]
    wide = 496 / limits.partitions
    for number in range(limits.partitions):
        x = 12 + number * wide
        parts += [box(x + 3, 32, wide - 6, 96, rounded=4), label(x + 11, 50, "warp scheduler", bold=True)]
        parts += [label(x + 11, 68, f"{slots} warp slots")]
        parts += [label(x + 11, 85, f"{limits.float32_lanes // limits.partitions} FMA lanes")]
        parts += [
            box(x + 9, 94, wide - 18, 26, BLUE, 0, 3),
            label(x + wide / 2, 111, f"registers {quarter}", 12, "middle", "white"),
        ]
    parts += [box(15, 140, 490, 46, BLUE, 0, 4)]
    parts += [label(260, 160, f"L1 and shared memory {size(found[1].per_sm)}", 13, "middle", "white", True)]
    parts += [label(260, 177, f"shared memory: up to {size(gpu.shared_per_block)} of a block", 12, "middle", "white")]
    parts.append(box(568, 28, 136, 172, thick=1.5, rounded=6))
    for shift in (0, 14):  # of the SMs behind it only the edges
        parts.append(f'<path d="M{554 - shift} {186 - shift} v-172 h136 v14" fill="none" stroke="currentColor"/>')
    parts += [
        label(636, 118, f"{gpu.sms} SMs", 15, "middle", bold=True),
        label(636, 138, "each runs blocks", 12, "middle"),
    ]
    parts += [
        arrow(260, 203, 243),
        label(272, 227, f"{found[2].gbps:,.0f} GB/s, {found[2].clocks:,.0f} clocks" if found[2].gbps else ""),
    ]
    parts += [box(0, 246, WIDE, 44, thick=2, rounded=6)]
    parts += [
        label(12, 273, f"L2 {size(found[2].whole)}", 13, bold=True),
        label(692, 273, "one for all SMs", 12, "end"),
    ]
    parts += [arrow(260, 293, 333), label(272, 317, f"{found[3].gbps:,.0f} GB/s, some {found[3].clocks:,.0f} clocks")]
    parts += [box(0, 336, WIDE, 44, thick=2, rounded=6)]
    parts += [label(12, 363, f"device memory {size(found[3].whole)}", 13, bold=True)]
    parts += [label(692, 363, "global arrays live here", 12, "end")]
    rows = tuple(
        (
            one.name,
            size(one.per_sm) if one.per_sm else "",
            size(one.whole),
            f"{one.gbps:,.0f}" if one.gbps else "",
            f"{1e3 * one.gbps / gpu.sms / specs.boost_mhz(gpu):,.0f}" if one.gbps else "",
            f"{one.clocks:,.0f}" if one.clocks else "",
            one.source,
        )
        for one in found
    )
    columns = ("memory", "of an SM", "in all", "GB/s", "bytes per clock and SM", "clocks to wait", "source")
    alt = (
        f"A GPU, {gpu.name}: {gpu.sms} SMs, each with {limits.partitions} warp schedulers, each of these with "
        f"registers of {quarter}, and {size(found[1].per_sm)} of L1 and shared memory; below them one L2 of "
        f"{size(found[2].whole)} for all, and below that device memory of {size(found[3].whole)}, the slowest."
    )
    head = f"{gpu.name}, {gpu.ceilings.source}"
    return Drawing(f"The machine: {gpu.name}", alt, "".join(parts), 384, (Table(head, columns, rows),))


# ---- grid, warp, array


def threads(kernel: object, grid: object, block: object, *args: object) -> Drawing:
    """The warp that touches each element of the global arrays of a small launch, and where its first request goes.

    Arguments as `xray` has them. Raises ValueError for arrays of more than CELLS elements, if none is touched, and for
    a kernel that fails or is too long. An element has the colour of the first warp that touches it; thin lines part
    warps, thick ones blocks; the numbers are the lanes of the first warp's first request, in small cells each fourth of
    those in a row and the last.
    """
    steps = record(kernel, grid, block, *args, blocks=1 << 20, warps=32, most=100_000)
    if steps.cut:
        raise ValueError(f"{steps.kernel} is not drawn: {steps.cut}")
    parts, rows, seen, x = [], [], [], 0.0
    drawn = [(number, one) for number, one in enumerate(steps.memories) if one.space == "global"]
    touched = {number: _touches(steps.warps, number) for number, _ in drawn}
    drawn = [(number, one) for number, one in drawn if touched[number]]
    if not drawn or any(np.prod(one.shape) > CELLS for _, one in drawn):
        raise ValueError(
            f"there must be global arrays that are touched, of {CELLS:,} elements at most: launch less of it"
        )
    high = max(int(np.prod(one.shape[:-1])) for _, one in drawn)
    across = sum(one.shape[-1] for _, one in drawn)
    cell = min(20.0, (WIDE - 40 * (len(drawn) - 1)) / across, 420 / high)
    for number, one in drawn:
        owner, (_, _, touch) = touched[number]
        columns, elements = one.shape[-1], int(np.prod(one.shape))
        lanes = {at // one.itemsize: lane for lane, at in reversed(list(enumerate(touch.at))) if at is not None}
        parts.append(label(x, 12, f"{one.name} {one.shape}: {touch.kind} by warp", 12, bold=True))
        grid_of = [[owner.get(row * columns + k) for k in range(columns)] for row in range(elements // columns)]
        parts += [
            box(x + left * cell, 20 + top * cell, wide * cell, tall * cell, WARPS[key[1] % len(WARPS)], 0.5)
            for key, left, top, wide, tall in _runs(grid_of)
        ]
        blocks_of = [[key and key[0] for key in row] for row in grid_of]
        parts += [
            box(x + left * cell, 20 + top * cell, wide * cell, tall * cell, "none", 2)
            for _, left, top, wide, tall in _runs(blocks_of)
        ]
        for row, same in itertools.groupby(sorted(lanes), key=lambda element: element // columns):
            within = [element % columns for element in same]
            for column in sorted(_numbered(within, cell)):
                element = row * columns + column
                ink = INKS[owner[element][1] % len(INKS)]
                high_of = max(LEAST, 0.6 * cell)
                middle = 20 + (row + 0.5) * cell + 0.36 * high_of
                parts.append(label(x + (column + 0.5) * cell, middle, str(lanes[element]), high_of, "middle", ink))
        parts.append(box(x, 20, columns * cell, cell * (elements // columns)))
        sectors = touch.sectors(one.start)
        picked = sorted(lanes)
        ends = [np.unravel_index(one_at, one.shape) for one_at in (picked[0], picked[-1])]
        texts = [f"{one.name}[{', '.join(str(int(i)) for i in end)}]" for end in ends]
        bytes_used = one.itemsize * len(lanes)
        rows.append(
            (
                one.name,
                touch.kind,
                f"{texts[0]} … {texts[1]}",
                f"{len(picked)}",
                f"{sectors}",
                f"{-(-bytes_used // SECTOR)}",
            )
        )
        seen.append(f"In {one.name} the first {touch.kind} goes to {texts[0]} … {texts[1]}: {sectors} sectors.")
        x += columns * cell + 40
    count = len({key for owner, _ in touched.values() if owner for key in owner.values()})
    title = f"{steps.kernel}, grid {dims(steps.grid)}, block {dims(steps.block)}: {_many(count, 'warp')} on the arrays"
    alt = f"{title}; each warp's elements in one colour, of {len(WARPS)} that repeat. {' '.join(seen)}"
    table = Table(
        "The first request of block 0, warp 0",
        ("array", "kind", "elements", "how many", "sectors", "ideal"),
        tuple(rows),
    )
    return Drawing(title, alt, "".join(parts), 24 + high * cell, (table,))


def _runs(cells: Sequence[Sequence[Any]]) -> list[tuple[Any, int, int, int, int]]:
    """Rectangles of equal cells, None left out: (value, column, row, columns, rows), along rows and then down."""
    found: list[tuple[Any, int, int, int, int]] = []
    open_: dict[tuple[Any, int, int], tuple[int, int]] = {}  # (value, column, columns) -> its first row, rows
    for row, values in enumerate(cells):
        now, column = {}, 0
        for value, same in itertools.groupby(values):
            wide = len(list(same))
            if value is not None:
                first, tall = open_.pop((value, column, wide), (row, 0))
                now[value, column, wide] = first, tall + 1
            column += wide
        found += [(key[0], key[1], first, key[2], tall) for key, (first, tall) in open_.items()]
        open_ = now
    return found + [(key[0], key[1], first, key[2], tall) for key, (first, tall) in open_.items()]


def _touches(warps: Mapping, memory: int) -> tuple[dict[int, tuple[int, int]], tuple[int, int, Touch]] | None:
    """(element -> (block, warp) that touches it first, (block, warp, its first touch)); None if there is none."""
    owner: dict[int, tuple[int, int]] = {}
    first: tuple[int, int, Touch] | None = None
    for (block, warp), steps in warps.items():
        for touch in (touch for step in steps for touch in step.touches if touch.memory == memory):
            first = first or (block, warp, touch)
            for at in (at for at in touch.at if at is not None):
                owner.setdefault(at // touch.width, (block, warp))
    return (owner, first) if first else None


# ---- banks


def banks(array: str, tiles: Mapping[str, tuple[Report, int]], kind: str = "load") -> Drawing:
    """The words of a shared array by rows, with what one request of a warp accesses, and its banks; by title.

    tiles: a title -> (an x-ray, words of a row). Orange: of a bank that has to serve several words, blue: one. Raises
    KeyError where there is no such access.
    """
    x = 0.0
    cell = min(16.0, (WIDE - 24 * (len(tiles) - 1)) / sum(pitch for _, pitch in tiles.values()))
    parts, rows, seen, height = [], [], [], 0.0
    for title, (report, pitch) in tiles.items():
        line_of = {(name, what): at for at, name, what in report.patterns}
        pattern = report.pattern(line_of.get((array, kind), 0), array, kind)
        words = [at // WORD for at in pattern.addresses if at is not None]
        # From the first word of the array, which begins in bank 0.
        first = min(words) // BANKS * BANKS
        busiest: dict[int, int] = {}
        for phase in bank_words(pattern):
            for bank, wanted in phase.items():
                busiest[bank] = max(busiest.get(bank, 0), len(wanted))
        high = (max(words) - first) // pitch + 1
        heads = _numbered(range(pitch), cell)
        parts.append(label(x, 12, title, 12, bold=True))
        parts += [line(x, 20 + row * cell, x + pitch * cell, 20 + row * cell, 0.4) for row in range(high + 1)]
        parts += [line(x + k * cell, 20, x + k * cell, 20 + high * cell, 0.4) for k in range(pitch + 1)]
        for word in sorted({*range(first, first + pitch), *words}):
            row, column = divmod(word - first, pitch)
            bank, left, top = word % BANKS, x + column * cell, 20 + row * cell
            if word in words:
                parts.append(box(left, top, cell, cell, ORANGE if busiest[bank] > 1 else BLUE, 0))
            if row == 0 and column not in heads:
                continue
            ink = "white" if word in words else ""
            parts.append(label(left + cell / 2, top + cell / 2 + 0.36 * LEAST, str(bank), LEAST, "middle", ink))
        waves = sum(max((len(wanted) for wanted in phase.values()), default=0) for phase in bank_words(pattern))
        rows.append((title, str(len(set(words))), str(len(busiest)), str(max(busiest.values())), str(waves)))
        seen.append(
            f"{title}: {len(set(words))} words in {_many(len(busiest), 'bank')}, so {_many(waves, 'wavefront')}."
        )
        x += pitch * cell + 24
        height = max(height, 24 + high * cell)
    alt = f"The shared array {array}, a cell for each word; those of one request are filled, with their banks. "
    alt += " ".join(seen)
    columns = ("array", "words of the request", "banks", "most words of a bank", "wavefronts")
    return Drawing(
        "Which bank has which word", alt, "".join(parts), height, (Table("One request", columns, tuple(rows)),), x - 24
    )


# ---- numbers of cells


FILLS = (
    ("none", ""),
    (WARPS[4], "black"),
    (BLUE, "white"),
    (ORANGE, "white"),
    (WARPS[1], "black"),
    (WARPS[2], "white"),
)
"""Fills of cells by the rank of their values, and what is readable on each."""


def grids(
    title: str, alt: str, maps: Mapping[str, np.ndarray], shades: Mapping[str, np.ndarray] | None = None,
    framed: int | None = None,
) -> Drawing:  # fmt: skip
    """Whole numbers in the cells of grids, by caption. shades: what fills depend on where it is not these numbers.

    framed: the number whose cells have a frame. Raises ValueError for more different fills than there are.
    """
    cell, x, height, parts = 20.0, 0.0, 0.0, []
    shades = maps if shades is None else shades
    values = sorted({int(value) for one in shades.values() for value in one.flat})
    if len(values) > len(FILLS):
        raise ValueError(f"{len(values)} different values; there are fills for {len(FILLS)}")
    for caption, numbers in maps.items():
        parts.append(label(x, 12, caption, 12, bold=True))
        for (row, column), number in np.ndenumerate(numbers):
            left, top = x + column * cell, 20 + row * cell
            fill, ink = FILLS[values.index(int(shades[caption][row, column]))]
            parts.append(box(left, top, cell, cell, fill, 0.3))
            if number == framed:
                parts.append(box(left + 1.5, top + 1.5, cell - 3, cell - 3, "none", 2))
            parts.append(label(left + cell / 2, top + 13.5, str(number), 9, "middle", ink, number == framed))
        x += max(numbers.shape[1] * cell, 7.0 * len(caption)) + 20
        height = max(height, 22 + numbers.shape[0] * cell)
    return Drawing(title, alt, "".join(parts), height, (), x - 20)


# ---- latency hiding


@dataclass(frozen=True)
class Waiting:
    """A scheduler's clocks. issued: (warp, first clock, clocks) in order; until: the last result is there."""

    warps: int
    issued: tuple[tuple[int, int, int], ...]
    until: int

    @property
    def busy(self) -> float:
        """Part of the clocks in which something is issued, 0 to 1."""
        return sum(clocks for _, _, clocks in self.issued) / self.until


def schedule(warps: int, busy: int, latency: int, rounds: int = 2) -> Waiting:
    """A scheduler that issues for the warp that is ready the longest: `busy` clocks, then that warp waits `latency`."""
    ready, left, now, issued = [0] * warps, [rounds] * warps, 0, []
    while any(left):
        warp = min((one for one in range(warps) if left[one]), key=lambda one: ready[one])
        now = max(now, ready[warp])
        issued.append((warp, now, busy))
        now += busy
        ready[warp], left[warp] = now + latency, left[warp] - 1
    return Waiting(warps, tuple(issued), max(ready))


def waiting(warps: Sequence[int], busy: int, latency: int, rounds: int = 2) -> Drawing:
    """The same work of each warp, `rounds` times: a load that takes `latency` clocks, after `busy` clocks of issue."""
    found = [schedule(one, busy, latency, rounds) for one in warps]
    most = max(one.until for one in found)
    scale, y, parts = (WIDE - 90) / most, 0.0, []
    for one in found:
        high = max(4.0, min(12.0, 72 / one.warps))
        parts.append(label(0, y + 12, _many(one.warps, "warp"), 12, bold=True))
        parts.append(label(0, y + 28, f"{_percent(one.busy)} issuing"))
        for warp, start, clocks in one.issued:
            top = y + warp * high
            parts.append(
                line(90 + start * scale, top + high / 2, 90 + (start + clocks + latency) * scale, top + high / 2, 1)
            )
            parts.append(box(90 + start * scale, top + 0.5, clocks * scale, high - 1, WARPS[warp % len(WARPS)], 0))
        y += max(one.warps * high, 32) + 14
    parts.append(label(90, y + 6, f"0 to {most} clocks; bars: instructions are issued, lines: the warp waits", 11))
    rows = tuple((str(one.warps), str(one.until), f"{one.until / one.warps:.3g}", _percent(one.busy)) for one in found)
    table = Table(
        f"A warp issues for {busy} clocks, then waits {latency}; {rounds} times",
        ("warps", "clocks in all", "clocks per warp", "issuing"),
        rows,
    )
    alt = (
        "A time line for each warp: short bars where instructions are issued, long lines where it waits for memory. "
        + " ".join(f"With {one.warps} the scheduler is busy {_percent(one.busy)} of the time." for one in found)
        + " With more warps another one issues while the first waits, until no gap is left."
    )
    return Drawing("Latency hiding: one scheduler", alt, "".join(parts), y + 12, (table,))


# ---- bandwidth


@dataclass(frozen=True)
class Moved:
    """The bytes of a launch: those that are compulsory, and those of its sectors. time_us: measured, if it was."""

    useful: float
    moved: float
    time_us: float | None = None


def bars(gpu: Machine, ways: Mapping[str, Moved], what: str = "Useful bandwidth") -> Drawing:
    """A bar for each way: the useful bytes per second that its sectors allow at copy speed, and the measured ones."""
    copy, parts, rows = gpu.ceilings.copy_gbps, [], []
    measured = any(one.time_us for one in ways.values())
    scale = (WIDE - 170 - (170 if measured else 60)) / copy  # right of the longest bar is room for its numbers
    for number, (name, one) in enumerate(ways.items()):
        y, most = 24 + 34 * number, min(copy, copy * one.useful / one.moved)
        got = one.useful / one.time_us / 1e3 if one.time_us else None
        parts += [label(0, y + 17, name), box(170, y, most * scale, 24, thick=1.5)]
        parts += [box(170, y + 4, got * scale, 16, BLUE, 0)] if got else []
        text = f"{most:,.0f}" + (f", measured {got:,.0f}" if got else "")
        end, ceiling = max(most, got or 0) * scale, copy * scale
        crossed = end < ceiling < end + 6 + 7.5 * len(text)  # the ceiling's line would go through the numbers
        parts.append(label(176 + (ceiling if crossed else end), y + 17, text))
        rows.append((name, f"{one.moved / one.useful:.3g}", f"{most:,.0f}", f"{got:,.0f}" if got else ""))
    height = 24 + 34 * len(ways)
    parts += [line(170 + copy * scale, 16, 170 + copy * scale, height - 6, 1.5, True)]
    parts += [label(170 + copy * scale, 11, f"copy: {copy:,.0f} GB/s", 11, "middle")]
    alt = (
        f"{what} on {gpu.name}, a bar for each way, under a ceiling of {copy:,.0f} GB/s: "
        + "; ".join(f"{row[0]}: at most {row[2]}" + (f", measured {row[3]}" if row[3] else "") for row in rows)
        + " GB/s."
    )
    columns = ("", "bytes moved over compulsory bytes", "at most, GB/s") + (("measured, GB/s",) if measured else ())
    table = Table(f"{gpu.name}, {gpu.ceilings.source}", columns, tuple(row[: len(columns)] for row in rows))
    return Drawing(what, alt, "".join(parts), height, (table,))
