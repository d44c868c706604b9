"""The X-ray of a launch: data, JSON, text, HTML and pictures."""

from __future__ import annotations

import functools
import html
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dwlab.simt import source
from dwlab.simt.limits import short
from dwlab.simt.options import Hazard, HazardError
from dwlab.text import tabular

if TYPE_CHECKING:
    from dwlab.simt.interpreter import Execution
    from dwlab.simt.views import Advice
    from dwlab.text.drawing import Drawing


@dataclass(frozen=True)
class Access:
    """All accesses of one kind to one array on one source line.

    requests: warps that executed it.  sectors, ideal_sectors: 32-byte sectors touched, and the fewest that could hold
    the distinct bytes requested (global and const).  bytes_used: distinct bytes requested, warp by warp.  bytes_moved:
    32 × sectors.  wavefronts, ideal_wavefronts, bank_conflicts: shared memory.  active_lanes: lanes that took part.
    collisions: lanes beyond the first on the same element of one request (for atomics: what is serialised).
    """

    line: int
    array: str
    space: str
    kind: str
    itemsize: int
    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    bytes_used: int = 0
    bytes_moved: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    bank_conflicts: int = 0
    active_lanes: int = 0
    collisions: int = 0
    file: str = ""

    @property
    def sectors_per_request(self) -> float:
        return self.sectors / self.requests if self.requests else 0.0


@dataclass(frozen=True)
class Line:
    """One source line.

    warps: times a warp executed it.  active_lanes: lanes active in these, summed.  divergent: warps whose lanes parted
    here.  flops: floating-point operations (flops64: those in float64).  barriers: blocks that passed one.
    other64: operations in float64 that are none: comparisons, minima, functions, conversions of integers.
    """

    line: int
    text: str
    warps: int = 0
    active_lanes: int = 0
    divergent: int = 0
    flops: int = 0
    flops64: int = 0
    barriers: int = 0
    file: str = ""
    other64: int = 0

    @property
    def float64(self) -> int:
        """All operations in float64: none, where the compiler narrows them to float32 (dwlab.simt.float64)."""
        return self.flops64 + self.other64


@dataclass(frozen=True)
class CompiledLine:
    """A source line's accesses to global and shared memory in the compiled code beside the counted ones.

    loads, stores, atomics: instructions.  counted_loads, counted_stores, counted_atomics: requests each time that a
    warp executes the line.  note: how the two differ, "" if they do not. Line 0: instructions that belong to no line.
    """

    line: int
    file: str
    loads: int
    stores: int
    atomics: int
    counted_loads: float
    counted_stores: float
    counted_atomics: float
    note: str

    def __str__(self) -> str:
        parts = [("loads", self.loads, self.counted_loads), ("stores", self.stores, self.counted_stores),
                 ("atomics", self.atomics, self.counted_atomics)]  # fmt: skip
        counts = ", ".join(f"{what} {n} (counted {each:.4g})" for what, n, each in parts if n or each)
        return f"compiled: {counts}"


@dataclass(frozen=True)
class Totals:
    """Sums over a launch. `requests`, `sectors`, `bytes_moved`, `bytes_used`: global memory only, atomics included.

    copied_again: sectors that a GPU's counters have beyond `global_load_sectors`, of copies to places in shared memory
    that are misaligned with those in global memory (trace.count_copies).
    """

    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_atomic_sectors: int = 0
    bytes_moved: int = 0
    bytes_used: int = 0
    shared_requests: int = 0
    shared_wavefronts: int = 0
    bank_conflicts: int = 0
    atomics: int = 0
    collisions: int = 0
    flops: int = 0
    flops64: int = 0
    barriers: int = 0
    divergent: int = 0
    footprint_bytes: int = 0
    sectors_per_request: float = 0.0
    copied_again: int = 0


@dataclass(frozen=True)
class Pattern:
    """The byte address of each lane of one warp, the first that made this access; None where a lane was inactive."""

    space: str
    itemsize: int
    addresses: tuple[int | None, ...]
    array: str
    line: int
    kind: str


@dataclass(frozen=True)
class Report:
    """The X-ray of one launch. Counts assume no cache between a warp and its sectors: each request counts its own.

    footprint: array name -> distinct 32-byte sectors that the launch touched (what memory must deliver at least once).
    compiled: lines with accesses, and what the compiler made of them, where that was wanted.
    outputs: array name -> what it held after the launch, with `xray(…, keep=True)`.
    float64_leaks: lines that compute, compare or convert in float64 although no argument is a float64 array.
    """

    kernel: str
    file: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    compute_capability: tuple[int, int]
    accesses: tuple[Access, ...]
    lines: tuple[Line, ...]
    hazards: tuple[Hazard, ...]
    totals: Totals
    footprint: dict[str, int]
    float64_leaks: tuple[Line, ...] = ()
    firsts: dict[tuple, tuple] = field(default_factory=dict, repr=False, compare=False)
    outputs: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    compiled: tuple[CompiledLine, ...] = ()

    @functools.cached_property
    def patterns(self) -> dict[tuple[int, str, str], Pattern]:
        """Each access's pattern, by line, array and kind."""
        return {
            (line, array, kind): Pattern(
                space, itemsize, tuple(a if on else None for a, on in zip(*first, strict=True)), array, line, kind
            )
            for (_, line, array, space, kind, itemsize), first in self.firsts.items()
        }

    def raise_hazards(self) -> None:
        """Raises HazardError if there is any hazard."""
        if self.hazards:
            raise HazardError(self.hazards)

    def array(self, name: str, kind: str | None = None) -> Access:
        """The accesses to one array summed over lines; kind: "load", "store", "atomic" or None for all. line is 0."""
        chosen = [a for a in self.accesses if a.array == name and kind in (None, a.kind)]
        if not chosen:
            known = ", ".join(sorted({a.array for a in self.accesses})) or "none"
            raise KeyError(f"no {kind or 'access'} of {name!r} was made; arrays accessed: {known}")
        numbers = [n for n, v in asdict(chosen[0]).items() if isinstance(v, int) and n not in ("line", "itemsize")]
        return Access(
            line=0, array=name, space=chosen[0].space, kind=kind or "all", itemsize=chosen[0].itemsize,
            **{n: sum(getattr(a, n) for a in chosen) for n in numbers},
        )  # fmt: skip

    def pattern(self, line: int, array: str, kind: str | None = None) -> Pattern:
        """The addresses of one warp for an access. Raises KeyError with the accesses there are."""
        for (at, name, what), found in self.patterns.items():
            if at == line and name == array and kind in (None, what):
                return found
        known = "; ".join(f"line {at}: {what} {name}" for at, name, what in self.patterns) or "none"
        raise KeyError(f"no access to {array!r} on line {line} was traced; there are: {known}")

    def picture(self, line: int, array: str, kind: str | None = None) -> Drawing:
        """Draws one warp's lanes against sectors or banks."""
        from dwlab.simt.views import picture

        return picture(self.pattern(line, array, kind))

    def advice(self) -> tuple[Advice, ...]:
        """Changes that the counts suggest, the largest saving first."""
        from dwlab.simt.views import advice

        return advice(self)

    def html(self) -> str:
        """A part of a page: the source with each line's share of the cost, hazards, pictures of accesses, advice."""
        from dwlab.simt.views import html_of

        return html_of(self)

    def save(self, path: str | Path) -> Path:
        """Writes `html()` as a page of its own, which needs no network. Returns its path."""
        from dwlab.simt.views import save

        return save(self, path)

    def to_dict(self) -> dict:
        """Plain data; `json.dumps` takes it."""
        data = asdict(self)
        del data["firsts"], data["outputs"]
        data["hazards"] = [{k: v for k, v in asdict(h).items() if k != "path"} for h in self.hazards]
        return data

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=1)

    def margins(self) -> dict[str, int]:
        """The indentation that all lines of a file have, file after file."""
        files = dict.fromkeys(line.file for line in self.lines)
        return {
            file: min(len(line.text) - len(line.text.lstrip()) for line in self.lines if line.file == file)
            for file in files
        }

    def rows(self, as_text: bool = False) -> list[list[str]]:
        """The table's rows, a line's accesses below it; all text.

        as_text: with the lines' indentation, and a row for each file where there is more than one.
        """
        out: list[list[str]] = []
        margins = self.margins()
        for place, line in enumerate(self.lines):
            if as_text and len(margins) > 1 and (not place or self.lines[place - 1].file != line.file):
                out.append(["", f"# {line.file}", *[""] * 7])
            text = line.text.rstrip()[margins[line.file] :] if as_text else line.text.strip()
            inside = " " * (len(text) - len(text.lstrip()) + 2)
            lanes = f"{line.active_lanes / line.warps:.4g}" if line.warps else ""
            leak = f" ({line.flops64:,} f64)" if 0 < line.flops64 < line.flops else " f64" if line.float64 else ""
            flops = (f"{line.flops:,}" if line.flops else "") + leak
            notes = [f"{line.divergent} divergent"] if line.divergent else []
            notes += [f"{line.barriers} barriers"] if line.barriers else []
            out.append([str(line.line), text, f"{line.warps:,}", lanes, flops, "", "", "", ", ".join(notes)])
            for a in self.accesses:
                if a.line != line.line or a.file != line.file:
                    continue
                if a.space == "shared":
                    cost, per, ideal = a.wavefronts, a.wavefronts, a.ideal_wavefronts
                    used = f"{a.bank_conflicts:,} conflicts"
                elif a.space == "local":
                    out.append(["", f"{inside}{a.kind} {a.array} (local)", f"{a.requests:,}", "", "", "", "", "", ""])
                    continue
                else:
                    cost, per, ideal = a.sectors, a.sectors, a.ideal_sectors
                    used = f"{100 * a.bytes_used / a.bytes_moved:.0f} % used" if a.bytes_moved else ""
                if a.kind == "atomic" and a.collisions:
                    used += f", {a.collisions:,} collisions"
                ratio = f"{per / a.requests:.4g} (ideal {ideal / a.requests:.4g})" if a.requests else ""
                out.append(
                    ["", f"{inside}{a.kind} {a.array} ({a.space})", f"{a.requests:,}",
                     f"{a.active_lanes / a.requests:.4g}", "", f"{cost:,}", ratio, used, ""]
                )  # fmt: skip
            for one in self.compiled:
                if (one.line, one.file) == (line.line, line.file):
                    out.append(["", f"  {one}", "", "", "", "", "", "", one.note])
        return out

    HEADERS = ("line", "source", "warps", "lanes", "FLOPs", "sectors|waves", "per request", "bytes", "notes")

    def summary(self) -> list[str]:
        """Totals and hazards, a sentence a line."""
        t = self.totals
        out = [
            f"global: {t.requests:,} requests, {t.sectors:,} sectors = {t.bytes_moved:,} bytes "
            f"({t.sectors_per_request:.4g} sectors per request); {t.bytes_used:,} bytes used; "
            f"footprint {t.footprint_bytes:,} bytes",
        ]
        if t.shared_requests:
            out.append(
                f"shared: {t.shared_requests:,} requests, {t.shared_wavefronts:,} wavefronts, "
                f"{t.bank_conflicts:,} bank conflicts"
            )
        work = f"{t.flops:,} FLOPs"
        if t.flops64:
            work += f" ({t.flops64:,} in float64)"
        out.append(f"{work}; {t.barriers:,} barriers; {t.divergent:,} divergent branches")
        if t.atomics:
            out.append(f"atomics: {t.atomics:,} requests, {t.collisions:,} collisions")
        for line in self.float64_leaks:
            out.append(f"float64 leak on line {line.line}: {line.float64:,} operations in `{line.text.strip()}`")
        out += [f"line {one.line} {one}: {one.note}" for one in self.compiled if one.note]
        out += [f"HAZARD {h}" for h in self.hazards] or ["no hazards"]
        return out

    def table(self, columns: int | None = None) -> str:
        """The report as text. columns: characters of a line, for which source lines are cut (None: any)."""
        rows = [list(self.HEADERS), *self.rows(True)]
        others = sum(max(len(row[k]) for row in rows) + 2 for k in range(len(self.HEADERS)) if k != 1)
        most = 60 if columns is None else max(16, min(60, columns - others))
        rows = [[cell if k != 1 else cell[:most] for k, cell in enumerate(row)] for row in rows]
        widths = [max(len(row[k]) for row in rows) for k in range(len(self.HEADERS))]
        left = {1, 8}
        text = []
        for row in rows:
            cells = [c.ljust(w) if k in left else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
            text.append("  ".join(cells).rstrip())
        text.insert(1, "-" * max(map(len, text)))
        head = f"{self.kernel} ({self.file}), {self._dims()}"
        if self.shared_bytes:
            head += f", {self.shared_bytes:,} bytes of shared memory per block"
        return "\n".join([head, *self._costliest(), *text, "", *self.summary()])

    def _dims(self) -> str:
        return f"grid {short(self.grid, self.grid)}, block {short(self.block, self.block)}"

    def _costliest(self, most: int = 3) -> list[str]:
        """One line that says where most global sectors come from; none where there are few accesses."""
        costly = sorted((a for a in self.accesses if a.space == "global"), key=lambda a: -a.sectors)
        if len(costly) <= most or not self.totals.sectors:
            return []
        files = len({a.file for a in self.accesses}) > 1
        parts = [
            f"{a.kind} {a.array}, {f'{a.file}:' if files else 'line '}{a.line}, {a.sectors / self.totals.sectors:.0%}"
            for a in costly[:most]
        ]
        return [f"most of {self.totals.sectors:,} sectors: {'; '.join(parts)}"]

    __str__ = table

    def _repr_html_(self) -> str:
        title = f"{self.kernel}, {self._dims()}"
        notes = "".join(f"<li>{html.escape(s)}</li>" for s in self.summary())
        return tabular.as_html(self.HEADERS, self.rows(), title, left=(0, 1, 8)) + f"<ul>{notes}</ul>"


def build(run: Execution, float64_arrays: bool) -> Report:
    """The Report of a finished Execution."""
    accesses = []
    sums: dict[tuple[str, str], np.ndarray] = {}  # (space, kind) -> the eight counts of its accesses
    for (path, line, array, space, kind, itemsize), n in sorted(run.trace.accesses.items()):
        sums[space, kind] = sums.get((space, kind), 0) + n
        requests, sectors, ideal, used, waves, ideal_waves, lanes, collisions = n.tolist()
        accesses.append(
            Access(
                line, array, space, kind, itemsize, requests, sectors, ideal, used, 32 * sectors, waves, ideal_waves,
                waves - ideal_waves, lanes, collisions, source.short_file(path),
            )
        )  # fmt: skip
    lines = []
    for (path, number), r in sorted(run.trace.lines.items()):
        text = run.trace.texts.get((path, number), "")
        counts = (r.warps, r.lanes, r.divergent, r.flops, r.flops64, r.barriers)
        lines.append(Line(number, text, *counts, source.short_file(path), 0 if float64_arrays else r.other64))
    footprint: dict[str, int] = {}
    names = {id(a.root): name for name, a in run.arrays.items()}
    for root in run.roots:
        if root.space == "global" and id(root) in names:
            footprint[names[id(root)]] = int(np.count_nonzero(root.touched))

    def total(count: int, space: str | None = "global", kind: str | None = None) -> int:
        return sum(int(n[count]) for (s, k), n in sums.items() if space in (None, s) and kind in (None, k))

    requests, sectors, waves = total(0), total(1), total(4, "shared")
    totals = Totals(
        requests=requests, sectors=sectors, ideal_sectors=total(2),
        global_load_requests=total(0, kind="load"), global_load_sectors=total(1, kind="load"),
        global_store_requests=total(0, kind="store"), global_store_sectors=total(1, kind="store"),
        global_atomic_sectors=total(1, kind="atomic"), bytes_moved=32 * sectors, bytes_used=total(3),
        shared_requests=total(0, "shared"), shared_wavefronts=waves, bank_conflicts=waves - total(5, "shared"),
        atomics=total(0, None, "atomic"), collisions=total(7, None, "atomic"),
        flops=sum(x.flops for x in lines), flops64=sum(x.flops64 for x in lines),
        barriers=sum(x.barriers for x in lines), divergent=sum(x.divergent for x in lines),
        footprint_bytes=32 * sum(footprint.values()), sectors_per_request=sectors / requests if requests else 0.0,
        copied_again=run.trace.copied_again,
    )  # fmt: skip
    return Report(
        kernel=run.source.name,
        file=source.short_file(run.source.file),
        grid=run.grid,
        block=run.block,
        shared_bytes=run.shared_used + run.dynamic_shared,
        compute_capability=run.options.compute_capability,
        accesses=tuple(accesses),
        lines=tuple(lines),
        hazards=tuple(run.trace.hazards.values()),
        totals=totals,
        footprint=footprint,
        float64_leaks=() if float64_arrays else tuple(x for x in lines if x.float64),
        firsts=run.trace.patterns,
    )
