"""Changes that an X-ray suggests, by line, with what each would save: `advice(report)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dwlab.simt.report import Access, Report

LEAST = 0.05
"""The share of a launch's sectors, or wavefronts, that a change must save to be worth a word."""
AGAIN = 3.0
"""Times that an array is loaded whole, from which keeping it on chip is worth a thought."""


@dataclass(frozen=True)
class Advice:
    """One change. saves: at most this fraction of what `of` names, of the whole launch."""

    line: int
    file: str
    text: str
    saves: float
    of: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text} (saves up to {self.saves:.0%} of the {self.of})"


def advice(report: Report) -> tuple[Advice, ...]:
    """Changes that the counts suggest, the largest saving first; counts know no cache and no waiting."""
    return tuple(sorted(_all(report), key=lambda one: (-one.saves, one.line, one.text)))


def _all(report: Report) -> Iterator[Advice]:
    total = report.totals
    for one in report.accesses:
        saved = (one.sectors - one.ideal_sectors) / total.sectors if one.space == "global" and total.sectors else 0
        if saved >= LEAST:
            yield Advice(one.line, one.file, _uncoalesced(one), saved, "sectors")
        saved = one.bank_conflicts / total.shared_wavefronts if one.space == "shared" else 0
        if saved >= LEAST:
            ways = one.wavefronts / one.ideal_wavefronts
            text = f"{one.kind} of {one.array} takes {ways:.3g} wavefronts for each that it needs, as lanes ask a bank "
            text += "for several words: pad the rows by one word, or swizzle the columns"
            yield Advice(one.line, one.file, text, saved, "wavefronts")
    for name, sectors in report.footprint.items():
        loads = [one for one in report.accesses if (one.array, one.space, one.kind) == (name, "global", "load")]
        loaded = sum(one.ideal_sectors for one in loads)
        saved = (loaded - sectors) / max(1, total.sectors)
        if sectors and loaded > AGAIN * sectors and saved >= LEAST:
            most = max(loads, key=lambda one: one.ideal_sectors)
            text = f"{name} is loaded {loaded / sectors:.3g} times over: keep what several threads use in shared "
            text += "memory, what one thread uses again in registers"
            yield Advice(most.line, most.file, text, saved, "sectors")
    slots = 32 * sum(line.warps for line in report.lines)
    parted = [line for line in report.lines if line.divergent]
    idle = 1 - sum(line.active_lanes for line in report.lines) / max(1, slots)
    if parted and idle >= LEAST:
        line = max(parted, key=lambda one: one.divergent)  # which branch leaves which lanes out is not counted
        text = f"{line.divergent:,} warps diverge here: let whole warps take the same branch"
        yield Advice(line.line, line.file, text, idle, "lanes' time")
    operations = sum(one.flops + one.other64 for one in report.lines)
    for line in report.float64_leaks:
        text = f"`{line.text.strip()}` computes in float64, though no array is: write float32(…) around its constants"
        yield Advice(line.line, line.file, text, line.float64 / max(1, operations), "operations, by faster ones")


def _uncoalesced(one: Access) -> str:
    each, ideal = one.sectors / one.requests, one.ideal_sectors / one.requests
    text = f"{one.kind} of {one.array} touches {each:.3g} sectors a request where {ideal:.3g} hold its bytes: "
    if each >= 2 * ideal:
        return text + "let neighbouring lanes access neighbouring elements"
    return text + "let each warp begin at a multiple of 32 bytes"
