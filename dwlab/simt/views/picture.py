"""The picture of one warp's access: 32 lanes against 32-byte sectors, or against the 32 banks of shared memory.

`counts` is the arithmetic, `describe` the picture in words (its alt text), `picture` the matplotlib figure. All three
take a `Pattern`: space, itemsize and the byte address of each lane (None for a lane that is switched off). matplotlib
is imported by `picture` only.

The counting here is written from the definitions alone, lane by lane, and shares no code with the interpreter's
tracing: the tests hold the two against each other.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LANES = 32
SECTOR = 32  # bytes
BANKS = 32
WORD = 4  # bytes; one bank delivers one word a wavefront
ROW = BANKS * WORD  # bytes; words 128 bytes apart share a bank

ITEMSIZES = (1, 2, 4, 8, 16)
"""What one lane can read or write in one access, in bytes."""

# Okabe and Ito's palette and two darker colours; neighbours differ in lightness too, for print in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#7A6A00", "#CC79A7", "#333333", "#D55E00", "#56B4E9")
LINES = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "||||")
PHASES = ("#222222", "#0072B2", "#A84F00", "#3B8C77")
CONFLICT = "#D55E00"
GREY = "#8A8A8A"


class AccessPattern(Protocol):
    """What is drawn: `dwlab.simt.Pattern`, or anything with these attributes."""

    space: str
    itemsize: int
    addresses: Sequence[int | None]
    array: str
    line: int
    kind: str


@dataclass(frozen=True)
class Counts:
    """What one warp-wide access costs.

    requests: 1, or 0 when no lane is active. active_lanes: lanes that take part. bytes_used: distinct bytes.
    Global: sectors (distinct 32-byte sectors), ideal_sectors = ceil(bytes_used / 32), bytes_moved = 32 * sectors.
    Shared: wavefronts, ideal_wavefronts (phases with an active lane), bank_conflicts = wavefronts - ideal_wavefronts.
    The counts of the other space are 0.
    """

    requests: int
    active_lanes: int
    bytes_used: int
    sectors: int = 0
    ideal_sectors: int = 0
    bytes_moved: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    bank_conflicts: int = 0


def _checked(pattern: AccessPattern) -> list[tuple[int, int]]:
    """(lane, address) of the active lanes."""
    if len(pattern.addresses) != LANES:
        raise ValueError(f"a pattern has the addresses of {LANES} lanes; this one has {len(pattern.addresses)}")
    if pattern.itemsize not in ITEMSIZES:
        raise ValueError(f"itemsize is {pattern.itemsize} bytes; one lane accesses 1, 2, 4, 8 or 16 bytes at a time")
    return [(lane, address) for lane, address in enumerate(pattern.addresses) if address is not None]


def phases(itemsize: int) -> tuple[range, ...]:
    """The lanes that shared memory serves together: all 32 up to 4 bytes a lane, halves at 8, quarters at 16."""
    lanes = LANES * WORD // max(itemsize, WORD)
    return tuple(range(first, first + lanes) for first in range(0, LANES, lanes))


def bank_words(pattern: AccessPattern) -> list[dict[int, dict[int, list[int]]]]:
    """For each phase: bank -> 4-byte word (address // 4) -> lanes that touch it."""
    active = _checked(pattern)
    found: list[dict[int, dict[int, list[int]]]] = []
    for lanes in phases(pattern.itemsize):
        banks: dict[int, dict[int, list[int]]] = {}
        for lane, address in active:
            if lane in lanes:
                for word in range(address // WORD, (address + pattern.itemsize - 1) // WORD + 1):
                    banks.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
        found.append(banks)
    return found


def counts(pattern: AccessPattern) -> Counts:
    """Counts one access of one warp. Raises ValueError for an itemsize or number of lanes that no warp has."""
    active = _checked(pattern)
    used = {address + byte for _, address in active for byte in range(pattern.itemsize)}
    if not active:
        return Counts(requests=0, active_lanes=0, bytes_used=0)
    if pattern.space == "shared":
        waves = [max((len(words) for words in banks.values()), default=0) for banks in bank_words(pattern)]
        ideal = sum(wave > 0 for wave in waves)
        return Counts(
            requests=1,
            active_lanes=len(active),
            bytes_used=len(used),
            wavefronts=sum(waves),
            ideal_wavefronts=ideal,
            bank_conflicts=sum(waves) - ideal,
        )
    sectors = len({byte // SECTOR for byte in used})
    return Counts(
        requests=1,
        active_lanes=len(active),
        bytes_used=len(used),
        sectors=sectors,
        ideal_sectors=-(-len(used) // SECTOR),
        bytes_moved=SECTOR * sectors,
    )


def _some(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _what(pattern: AccessPattern) -> str:
    where = f"line {pattern.line}, " if pattern.line else ""
    return f"{where}{pattern.kind} of {pattern.array or 'an array'}, {_some(pattern.itemsize, 'byte')} a lane"


def headline(pattern: AccessPattern) -> str:
    """The counts in one line, as in the figure's title."""
    count = counts(pattern)
    if not count.requests:
        return "no lane is active: no request"
    if pattern.space == "shared":
        return (
            f"{_some(count.wavefronts, 'wavefront')} (ideal {count.ideal_wavefronts}), "
            f"{_some(count.bank_conflicts, 'bank conflict')}"
        )
    percent = 100 * count.bytes_used / count.bytes_moved
    return (
        f"{_some(count.sectors, 'sector')} (ideal {count.ideal_sectors}), "
        f"{count.bytes_used:,} of {count.bytes_moved:,} bytes used ({percent:.0f} %)"
    )


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 -> "0-2, 5"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def describe(pattern: AccessPattern) -> str:
    """The picture in words: what an `alt` attribute needs."""
    active = _checked(pattern)
    if not active:
        return f"One warp, {_what(pattern)}, {pattern.space} memory: no lane is active, so there is no request."
    lanes = [lane for lane, _ in active]
    who = "all 32 lanes" if len(lanes) == LANES else f"{_some(len(lanes), 'active lane')} ({_ranges(lanes)})"
    text = f"One warp, {_what(pattern)}, {pattern.space} memory, {who}: {headline(pattern)}."
    if pattern.space == "shared":
        worst: dict[int, int] = {}
        for banks in bank_words(pattern):
            for bank, words in banks.items():
                worst[bank] = max(worst.get(bank, 0), len(words))
        degree = max(worst.values())
        if degree == 1:
            return text + " No bank has to serve two words at the same time."
        crowded = [bank for bank, words in worst.items() if words == degree]
        noun = "Bank" if len(crowded) == 1 else "Banks"
        verb = "has" if len(crowded) == 1 else "each have"
        return text + f" {noun} {_ranges(crowded)} {verb} to serve {degree} different words at the same time."
    sectors = _sector_lanes(pattern)
    per_sector = [len(set(lanes)) for lanes in sectors.values()]
    low, high = min(per_sector), max(per_sector)
    served = f"{low}" if low == high else f"{low} to {high}"
    spread = max(sectors) - min(sectors) + 1
    lie = "They are neighbours in memory." if spread == len(sectors) else f"They lie within {_some(spread, 'sector')}."
    return (
        text
        + f" Each sector serves {served} lane{'' if served == '1' else 's'}."
        + ("" if len(sectors) == 1 else f" {lie}")
    )


def _sector_lanes(pattern: AccessPattern) -> dict[int, list[int]]:
    """Sector (address // 32) -> lanes that touch it, in address order."""
    found: dict[int, list[int]] = {}
    for lane, address in _checked(pattern):
        for sector in range(address // SECTOR, (address + pattern.itemsize - 1) // SECTOR + 1):
            found.setdefault(sector, []).append(lane)
    return dict(sorted(found.items()))


# ------------------------------------------------------------------------------------------------------------ drawing


def as_png(figure: Figure) -> bytes:
    """A figure as PNG bytes, at its own size and resolution."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if not isinstance(figure.canvas, FigureCanvasAgg):
        FigureCanvasAgg(figure)
    figure.canvas.draw()
    return encode(figure.canvas.buffer_rgba())


def encode(pixels) -> bytes:
    """Pixels (height, width, 4) as PNG bytes of at most 128 colours: a fourth of the size, in half of the time."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(np.asarray(pixels)[..., :3]))
    few = image.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    # Averaging leaves the paper a shade off white.
    palette = np.array(few.getpalette()).reshape(-1, 3)
    palette[(palette > 250).all(axis=1)] = 255
    few.putpalette(palette.ravel().tolist())
    few.save(buffer, format="PNG", compress_level=4)
    return buffer.getvalue()


def as_img(png: bytes, alt: str, width: int | None = None) -> str:
    """An `<img>` element with the picture inside it and `alt` as its text; never wider than its place."""
    size = f"width:{width}px;" if width else ""
    data = base64.b64encode(png).decode()
    return (
        f'<img alt="{html.escape(alt, quote=True)}" style="{size}max-width:100%;height:auto" '
        f'src="data:image/png;base64,{data}">'
    )


def with_alt(figure: Figure, alt: str) -> Figure:
    """Gives a figure its alt text, and the HTML that a notebook shows for it."""
    figure.alt = alt
    figure._repr_html_ = lambda: as_img(as_png(figure), alt)
    return figure


def picture(pattern: AccessPattern, width: float = 5.6) -> Figure:
    """Draws a warp's access. width: inches. The figure's `alt` is `describe(pattern)`."""
    return beside({_what(pattern): pattern}, width)


def beside(patterns: Mapping[str, AccessPattern], width: float = 5.6) -> Figure:
    """Draws accesses of a warp side by side, each below its title. width: inches of each. `alt` describes all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    share = 1 / len(patterns)
    figure = Figure(figsize=(width * len(patterns), 6.4), dpi=100)
    FigureCanvasAgg(figure)
    for place, (title, pattern) in enumerate(patterns.items()):
        _checked(pattern)
        left = place * share
        axes = figure.add_axes((left + 0.01 * share, 0.01, 0.98 * share, 0.90))
        axes.set_xlim(0, 1)
        axes.set_ylim(32.3, -1.6)
        axes.axis("off")
        figure.text(left + 0.02 * share, 0.985, f"{title}, {pattern.space} memory", fontsize=9.5, va="top")
        figure.text(left + 0.02 * share, 0.955, headline(pattern), fontsize=11, va="top", fontweight="bold")
        _draw_lanes(axes, pattern)
        if pattern.space == "shared":
            _draw_banks(axes, pattern)
        else:
            _draw_sectors(axes, pattern)
    texts = (describe(one) if len(patterns) == 1 else f"{title}: {describe(one)}" for title, one in patterns.items())
    return with_alt(figure, " ".join(texts))


LANE_RIGHT = 0.085  # the lanes' column ends here, in axes' width
TEXT = {"ha": "center", "va": "center"}


def _draw_lanes(axes, pattern: AccessPattern) -> None:
    from matplotlib.collections import PolyCollection

    axes.text(0.045, -0.6, "lane", fontsize=8.5, **TEXT)
    boxes = {True: [], False: []}
    for lane, address in enumerate(pattern.addresses):
        boxes[address is not None].append(_box(0.005, lane + 0.06, LANE_RIGHT, lane + 0.94))
        label = str(lane) if address is not None else f"{lane} off"
        axes.text(0.045, lane + 0.52, label, fontsize=8, color="black" if address is not None else GREY, **TEXT)
    axes.add_collection(PolyCollection(boxes[True], facecolors="#EFEFEF", edgecolors="#555555", linewidths=0.6))
    axes.add_collection(
        PolyCollection(boxes[False], facecolors="none", edgecolors=GREY, linewidths=0.6, linestyles=[(0, (2, 2))])
    )


def _box(left: float, top: float, right: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _short(number: int) -> str:
    """At most six characters: 99999, 100k, 3.87T."""
    for unit, size in (("E", 10**18), ("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if abs(number) >= 10**5 and abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number}"


def _labels(numbers: Sequence[int], unit: str, size: int) -> tuple[list[str], str]:
    """Short labels for sectors or rows, and their header. Far from 0 they count from the first one, at +0."""
    first = min(numbers, default=0)
    if first < 10**5:
        return [_short(number) for number in numbers], unit
    return [f"+{_short(number - first)}" for number in numbers], f"{unit}, +0 at byte {first * size:,}"


def _draw_sectors(axes, pattern: AccessPattern) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    sectors = _sector_lanes(pattern)
    if not sectors:
        return
    left, right = 0.44, 0.86
    # Rows of equal height in address order; a little air where memory between two rows is not touched.
    gap = 0.4
    jumps = [b - a > 1 for a, b in zip(sectors, list(sectors)[1:], strict=False)]
    height = min(1.5, LANES / (len(sectors) + gap * sum(jumps)))
    top = (LANES - height * (len(sectors) + gap * sum(jumps))) / 2
    labels, unit = _labels(list(sectors), "sector", SECTOR)
    used = {address + byte for _, address in _checked(pattern) for byte in range(pattern.itemsize)}
    lines, colours, styles, cells = [], [], [], {}
    frames = []
    size = 8 if height > 0.8 else 7 if height > 0.6 else 5
    for place, (sector, lanes) in enumerate(sectors.items()):
        colour = COLOURS[place % len(COLOURS)]
        bottom = top + height * 0.86
        middle = (top + bottom) / 2
        for lane in lanes:
            lines.append([(LANE_RIGHT + 0.004, lane + 0.5), (left - 0.004, middle)])
            colours.append(colour)
            styles.append(LINES[place % len(LINES)])
        frames.append(_box(left, top, right, bottom))
        # A run of used bytes is one box.
        run = None
        for byte in range(SECTOR + 1):
            inside = byte < SECTOR and sector * SECTOR + byte in used
            if inside and run is None:
                run = byte
            elif not inside and run is not None:
                step = (right - left) / SECTOR
                cells.setdefault(place % len(COLOURS), []).append(
                    _box(left + run * step, top, left + byte * step, bottom)
                )
                run = None
        axes.text(right + 0.012, middle, labels[place], fontsize=size, ha="left", va="center")
        top += height
        if place < len(jumps) and jumps[place]:
            axes.text((left + right) / 2, top + height * (gap / 2 - 0.07), "⋯", fontsize=13, color="black", **TEXT)
            top += height * gap
    axes.add_collection(LineCollection(lines, colors=colours, linestyles=styles, linewidths=1.1))
    axes.add_collection(PolyCollection(frames, facecolors="white", edgecolors="none"))
    for index, boxes in cells.items():
        axes.add_collection(
            PolyCollection(boxes, facecolors=COLOURS[index], edgecolors="white", linewidths=0.0, hatch=HATCHES[index])
        )
    words = [
        [(left + (right - left) * word / 8, box[0][1]), (left + (right - left) * word / 8, box[2][1])]
        for box in frames
        for word in range(1, 8)
    ]
    axes.add_collection(LineCollection(words, colors="#BBBBBB", linewidths=0.5))
    axes.add_collection(PolyCollection(frames, facecolors="none", edgecolors="#333333", linewidths=0.8))
    axes.text(left, -0.6, "filled: used bytes, white: unused", fontsize=8, ha="left", va="center")
    # The head stands over the numbers that it names; where they count from, above both.
    head, _, start = unit.partition(", ")
    axes.text(right + 0.012, -0.6, head, fontsize=8, ha="left", va="center")
    axes.text(0.995, -1.4, start, fontsize=8, ha="right", va="center")


def _draw_banks(axes, pattern: AccessPattern) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    by_phase = bank_words(pattern)
    rows = sorted({word // BANKS for banks in by_phase for words in banks.values() for word in words})
    bank_left, bank_right, left, right = 0.37, 0.425, 0.45, 0.91
    labels, unit = _labels(rows, "128-byte row", ROW)
    column = {row: place for place, row in enumerate(rows)}
    step = min(0.075, (right - left) / max(len(rows), 1))
    worst = [0] * BANKS
    for banks in by_phase:
        for bank, words in banks.items():
            worst[bank] = max(worst[bank], len(words))

    end = left + step * len(rows)  # of the cells
    for bank, words in enumerate(worst):
        style = {"color": "black" if words else GREY, "fontweight": "bold" if words > 1 else "normal"}
        axes.text((bank_left + bank_right) / 2, bank + 0.52, str(bank), fontsize=8, **style, **TEXT)
        if words > 1:
            axes.text(end + 0.015, bank + 0.52, f"×{words}", fontsize=8.5, fontweight="bold", va="center")
    frames = [_box(bank_left, bank + 0.06, bank_right, bank + 0.94) for bank in range(BANKS)]
    calm = [box for box, words in zip(frames, worst, strict=True) if words <= 1]
    tight = [box for box, words in zip(frames, worst, strict=True) if words > 1]
    axes.add_collection(PolyCollection(calm, facecolors="white", edgecolors="#555555", linewidths=0.6))
    axes.add_collection(PolyCollection(tight, facecolors="#FBE3D2", edgecolors=CONFLICT, linewidths=1.8))

    # One line a lane, to the middle of the banks that it asks.
    lines, colours, styles = [], [], []
    for lane, address in _checked(pattern):
        first, last = address // WORD, (address + pattern.itemsize - 1) // WORD
        middle = first % BANKS + (last - first + 1) / 2
        lines.append([(LANE_RIGHT + 0.02, lane + 0.5), (bank_left - 0.004, min(middle, BANKS - 0.5))])
        bank = first % BANKS // (last - first + 1)
        colours.append(COLOURS[bank % len(COLOURS)])
        styles.append(LINES[bank % len(LINES)])
    axes.add_collection(LineCollection(lines, colors=colours, linestyles=styles, linewidths=1.1))

    grid = [[(left + i * step, 0), (left + i * step, BANKS)] for i in range(len(rows) + 1)]
    axes.add_collection(LineCollection(grid, colors="#DDDDDD", linewidths=0.5, zorder=0))
    for phase, banks in enumerate(by_phase):
        cells = []
        for bank, words in banks.items():
            for word, lanes in words.items():
                x = left + column[word // BANKS] * step
                cells.append(_box(x + 0.08 * step, bank + 0.1, x + 0.92 * step, bank + 0.9))
                # A wide access is named at its first word.
                first = any(pattern.addresses[lane] // WORD == word for lane in lanes)
                if step > 0.04 and first:
                    text = f"{lanes[0]}" if len(lanes) == 1 else f"{lanes[0]}+{len(lanes) - 1}"
                    axes.text(x + step / 2, bank + 0.52, text, fontsize=7, color="white", fontweight="bold", **TEXT)
        axes.add_collection(PolyCollection(cells, facecolors=PHASES[phase], edgecolors="none"))

    axes.text((bank_left + bank_right) / 2, -0.6, "bank", fontsize=8.5, **TEXT)
    axes.text(left, -1.4, unit, fontsize=8, ha="left", va="center")
    wide = max(map(len, labels), default=0) > 2
    for place in range(0, len(rows), max(1, -(-len(rows) // (5 if wide else 8)))):
        axes.text(left + (place + 0.5) * step, -0.6, labels[place], fontsize=6.5 if wide else 7.5, **TEXT)
    if max(worst) > 1:
        axes.text(0.995, -1.4, "×n: words at once", fontsize=8, ha="right", va="center")
    size = LANES // len(by_phase)
    for phase in range(len(by_phase)):
        strip = _box(LANE_RIGHT + 0.004, phase * size + 0.06, LANE_RIGHT + 0.016, (phase + 1) * size - 0.06)
        axes.add_collection(PolyCollection([strip], facecolors=PHASES[phase], edgecolors="none"))
        if len(by_phase) > 1:
            box = {"facecolor": "white", "edgecolor": PHASES[phase], "pad": 1.2, "linewidth": 0.8}
            place = (LANE_RIGHT + 0.03, (phase + 0.5) * size)
            axes.text(*place, f"phase {phase + 1}", fontsize=7.5, va="center", bbox=box)
