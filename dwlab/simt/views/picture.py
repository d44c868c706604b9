"""The picture of one warp's access: 32 lanes against 32-byte sectors, or against the 32 banks of shared memory.

`counts` is the arithmetic, `describe` the picture in words (its alt text), `picture` the drawing. All three take a
`Pattern`: space, itemsize and the byte address of each lane (None for a lane that is switched off).

The counting here is written from the definitions alone, lane by lane, and shares no code with the interpreter's
tracing: the tests hold the two against each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dwlab.text.drawing import INKS, ORANGE, WARPS, Drawing, box, label, line

LANES = 32
SECTOR = 32  # bytes
BANKS = 32
WORD = 4  # bytes; one bank delivers one word a wavefront

ITEMSIZES = (1, 2, 4, 8, 16)
"""Sizes that one lane can read or write in one access, in bytes."""


class AccessPattern(Protocol):
    """A warp's access: `dwlab.simt.Pattern`, or anything with these attributes."""

    space: str
    itemsize: int
    addresses: Sequence[int | None]
    array: str
    line: int
    kind: str


@dataclass(frozen=True)
class Counts:
    """The cost of one warp-wide access.

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
    """A dict for each phase: bank -> 4-byte word (address // 4) -> lanes that touch it."""
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
    common = (1, len(active), len(used))
    if pattern.space == "shared":
        waves = [max((len(words) for words in banks.values()), default=0) for banks in bank_words(pattern)]
        ideal = sum(wave > 0 for wave in waves)
        return Counts(*common, wavefronts=sum(waves), ideal_wavefronts=ideal, bank_conflicts=sum(waves) - ideal)
    sectors = len({byte // SECTOR for byte in used})
    return Counts(*common, sectors=sectors, ideal_sectors=-(-len(used) // SECTOR), bytes_moved=SECTOR * sectors)


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

TOP, ROW, LEFT = 42, 18, 52  # where the lanes begin; the height of one, and where their column ends
RIGHT = 680


def picture(pattern: AccessPattern) -> Drawing:
    """Draws a warp's access: its lanes on the left, what they touch on the right. Its `alt` is `describe(pattern)`."""
    return side_by_side({_what(pattern): pattern})


def side_by_side(patterns: Mapping[str, AccessPattern]) -> Drawing:
    """Draws accesses of a warp side by side, each below its title. `alt` describes all."""
    body = []
    for place, (title, pattern) in enumerate(patterns.items()):
        drawn = _lanes(pattern) + (_banks if pattern.space == "shared" else _sectors)(pattern)
        drawn += [label(0, 12, f"{title}, {pattern.space} memory"), label(0, 30, headline(pattern), 13, bold=True)]
        body.append(f'<g transform="translate({place * (RIGHT + 20)} 0)">{"".join(drawn)}</g>')
    texts = (describe(one) if len(patterns) == 1 else f"{title}: {describe(one)}" for title, one in patterns.items())
    width = len(patterns) * (RIGHT + 20) - 20
    return Drawing(" | ".join(patterns), " ".join(texts), "".join(body), TOP + LANES * ROW + 22, width=width)


def _lanes(pattern: AccessPattern) -> list[str]:
    """The column of lanes, in the colours of the phases in which shared memory serves them."""
    size = LANES // len(phases(pattern.itemsize)) if pattern.space == "shared" else LANES
    drawn = []
    for lane, address in enumerate(pattern.addresses):
        y, k = TOP + lane * ROW, lane // size
        drawn.append(box(0, y + 1, LEFT, ROW - 2, WARPS[k] if address is not None else "none", 0.6))
        text, ink = (f"{lane}", INKS[k]) if address is not None else (f"{lane} off", "")
        drawn.append(label(LEFT / 2, y + 13, text, 11, "middle", ink))
    return drawn


def _sectors(pattern: AccessPattern) -> list[str]:
    """The sectors in rows, in the order of their addresses; the filled bytes of each are used."""
    active, touched = _checked(pattern), _sector_lanes(pattern)
    used = {address + byte for _, address in active for byte in range(pattern.itemsize)}
    left, step = 250, 9.0  # of a byte
    height = min(1.5 * ROW, LANES * ROW / max(1, len(touched)))
    top = TOP + (LANES * ROW - height * len(touched)) / 2
    drawn, boxes = [], []
    for place, (sector, lanes) in enumerate(touched.items()):
        y, colour = top + place * height, WARPS[place % len(WARPS)]
        drawn += [line(LEFT, TOP + (lane + 0.5) * ROW, left, y + height / 2, ink=colour) for lane in lanes]
        here = [byte for byte in range(SECTOR) if sector * SECTOR + byte in used]
        boxes += [box(left + byte * step, y + 1, step, height - 2, colour, 0) for byte in here]
        boxes.append(box(left, y + 1, SECTOR * step, height - 2, thick=0.6))
        boxes.append(label(left + SECTOR * step + 6, y + height / 2 + 4, f"sector {sector}", min(11, height)))
    return [*drawn, *boxes, label(left, TOP + LANES * ROW + 16, "filled: used bytes", 11)]


def _banks(pattern: AccessPattern) -> list[str]:
    """The 32 banks, each with the words that lanes request of it; a phase's have one colour, and are served in turn."""
    words = [[(phase, word, lanes) for phase, banks in enumerate(bank_words(pattern)) for word, lanes in
              banks.get(bank, {}).items()] for bank in range(BANKS)]  # fmt: skip
    left, wide = 250, min(36.0, 300 / max(1, *map(len, words)))
    drawn = [
        line(LEFT, TOP + (lane + 0.5) * ROW, left - 40, TOP + (address // WORD % BANKS + 0.5) * ROW, 0.6)
        for lane, address in _checked(pattern)
    ]
    for bank, here in enumerate(words):
        y, times = TOP + bank * ROW, Counter(phase for phase, _, _ in here)
        most = max(times.values(), default=0)
        drawn.append(box(left - 40, y + 1, 36, ROW - 2, ORANGE if most > 1 else "none", 0.6))
        drawn.append(label(left - 22, y + 13, f"{bank}", 11, "middle", "white" if most > 1 else ""))
        for k, (phase, word, lanes) in enumerate(here):
            drawn.append(box(left + k * wide, y + 1, wide, ROW - 2, WARPS[phase], 0.6))
            if wide > 20 and any(pattern.addresses[lane] // WORD == word for lane in lanes):  # a vector's first
                text = f"{lanes[0]}" if len(lanes) == 1 else f"{lanes[0]}+{len(lanes) - 1}"
                drawn.append(label(left + (k + 0.5) * wide, y + 13, text, 10, "middle", INKS[phase]))
        if most > 1:
            drawn.append(label(left + len(here) * wide + 6, y + 13, f"×{most}", 11, bold=True))
    return [*drawn, label(left - 40, TOP + LANES * ROW + 16, "banks, and words of each; ×n: n at once", 11)]
