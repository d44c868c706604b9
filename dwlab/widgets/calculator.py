"""The traffic calculator: what a tile and its halo cost in bytes, shared memory and occupancy.

    view(DepthwiseConv1d(16384, 128, 48, 48), tile=64, rows=4).text()

The kernel that is counted: a block takes `rows` rows of one channel and `tile` outputs of each. It copies the inputs
that these outputs need, and the channel's K weights, to shared memory; then it computes and writes the outputs. Every
copy runs along memory: 32 lanes, 32 neighbouring elements, beginning at the segment's first element; each warp's share
is one request. The inputs of a tile are its own elements and a halo of K-1, which the neighbouring tile reads too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dwlab.gpu.occupancy import LIMITS, SOURCE, Occupancy, occupancy
from dwlab.problems import PAPER, DepthwiseConv1d, ProblemError
from dwlab.simt.views import LANES, SECTOR
from dwlab.text.drawing import WARPS, WIDE, Drawing, Table, box, label
from dwlab.widgets._panel import Panel, sentence

if TYPE_CHECKING:
    from dwlab.widgets._face import Face

MOST_TILE = 1 << 20  # elements; beyond any shared memory
MOST_WORK = 1 << 22  # requests of one row: what is counted in a moment


@dataclass(frozen=True)
class Tiling:
    """Traffic and storage of a tiled kernel. Bytes and counts of the whole launch, unless noted.

    tiles: along one row. blocks: of the grid. loaded: elements of x that the tiles of one row load, halos counted each
    time. x_bytes, halo_bytes, w_bytes, y_bytes: requested from global memory; halo_bytes is the part of x's bytes that
    was loaded before by another tile. load_requests, load_sectors, store_requests, store_sectors: as the X-ray counts
    them. unstaged_bytes: what one load for each factor of each product would request. shared_bytes: of one block.
    """

    problem: DepthwiseConv1d
    tile: int
    rows: int
    tiles: int
    blocks: int
    loaded: int
    x_bytes: int
    halo_bytes: int
    w_bytes: int
    y_bytes: int
    load_requests: int
    load_sectors: int
    store_requests: int
    store_sectors: int
    unstaged_bytes: int
    shared_bytes: int

    @property
    def bytes_requested(self) -> int:
        """Bytes that the lanes request: x with its halos, w and y."""
        return self.x_bytes + self.w_bytes + self.y_bytes

    @property
    def bytes_moved(self) -> int:
        """32 bytes for each sector of each request."""
        return SECTOR * (self.load_sectors + self.store_sectors)

    @property
    def reuse(self) -> float:
        """Products an element of x takes part in, on average, each time it was loaded."""
        return self.problem.taps / self.loaded

    @property
    def redundant(self) -> float:
        """Part of the loaded elements of x that a neighbouring tile loads too, 0 to 1."""
        return 1 - self.problem.L / self.loaded


def _whole(name: str, value: object, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= most:
        raise ProblemError(f"{name} is {value!r}; it must be a whole number from 1 to {most:,}")
    return int(value)


def _requests(starts: np.ndarray, low: np.ndarray, high: np.ndarray, bases: np.ndarray, weight: np.ndarray, size: int):
    """(requests, sectors) of copying segments by warps.

    starts: (S,) nominal first element of each segment; low, high: (S,) the part of it inside the row. bases: (C,) byte
    address, modulo the sector, of each class of rows; weight: (C,) rows in the class. size: bytes an element.
    """
    chunks = int(-(-np.max(high - starts) // LANES))
    first = starts[:, None] + LANES * np.arange(chunks)
    a = np.maximum(first, low[:, None])
    b = np.minimum(first + LANES, high[:, None])
    a, b = a[b > a], b[b > a]
    sectors = 0
    for base, rows in zip(bases.tolist(), weight.tolist(), strict=True):
        span = (base + b * size - 1) // SECTOR - (base + a * size) // SECTOR + 1
        sectors += int(span.sum()) * rows
    return int(a.size) * int(weight.sum()), sectors


def _classes(rows: int, pitch: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that begin `pitch` bytes apart, by their address modulo the sector: (addresses, number of rows each)."""
    period = SECTOR // math.gcd(SECTOR, pitch)
    numbers = np.arange(min(period, rows), dtype=np.int64)
    return numbers * pitch % SECTOR, (rows - 1 - numbers) // period + 1


def tiling(problem: DepthwiseConv1d, tile: int, rows: int = 1) -> Tiling:
    """Counts the kernel described above.

    Raises ProblemError for a tile or a number of rows below 1, and for rows of so many tiles that counting would take
    long.
    """
    p, size = problem, problem.itemsize
    tile = _whole("tile", tile, MOST_TILE)
    rows = _whole("rows", rows, MOST_TILE)
    work = -(-p.L // tile) * -(-(min(tile, p.L) + p.K - 1) // LANES)
    if work > MOST_WORK:
        raise ProblemError(f"a row of {p.L:,} elements in tiles of {tile:,} is {work:,} requests: use a larger tile")
    t0 = np.arange(0, p.L, tile, dtype=np.int64)
    t1 = np.minimum(t0 + tile, p.L)
    start = t0 - p.left
    low, high = np.maximum(start, 0), np.minimum(t1 + p.shift, p.L)
    loaded = int((high - low).sum())
    tiles = len(t0)
    groups = -(-p.B // rows)

    bases, weight = _classes(p.B * p.H, p.L * size)
    x_requests, x_sectors = _requests(start, low, high, bases, weight, size)
    y_requests, y_sectors = _requests(t0, t0, t1, bases, weight, size)
    filters, weight = _classes(p.H, p.K * size)
    zero, end = np.zeros(1, np.int64), np.full(1, p.K, np.int64)
    w_requests, w_sectors = _requests(zero, zero, end, filters, weight * groups * tiles, size)

    everyone = p.B * p.H * size
    return Tiling(
        problem=p,
        tile=tile,
        rows=rows,
        tiles=tiles,
        blocks=p.H * groups * tiles,
        loaded=loaded,
        x_bytes=everyone * loaded,
        halo_bytes=everyone * (loaded - p.L),
        w_bytes=p.H * groups * tiles * p.K * size,
        y_bytes=everyone * p.L,
        load_requests=x_requests + w_requests,
        load_sectors=x_sectors + w_sectors,
        store_requests=y_requests,
        store_sectors=y_sectors,
        unstaged_bytes=everyone * (2 * p.taps + p.L),
        shared_bytes=size * (rows * (tile + p.K - 1) + p.K),
    )


def amount(count: float) -> str:
    """Bytes in words: 805 MB, 1.61 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size * 0.9995:
            return f"{count / size:.3g} {unit}" if count < size * 999.5 else f"{count / size:,.0f} {unit}"
    return f"{count:,.0f} B"


def _describe(t: Tiling, o: Occupancy, threads: int, registers: int, cc: str) -> str:
    p = t.problem
    text = (
        f"A row of {p.L:,} elements is cut into {t.tiles:,} tile{'s' if t.tiles > 1 else ''} of "
        f"{t.tile:,} outputs; with halos of {p.K - 1:,} the tiles load {t.loaded:,} elements, "
        f"{100 * t.redundant:.0f} % of them for the second time or more. Bytes requested: "
        f"{amount(t.bytes_requested)}, against {amount(p.compulsory_bytes())} compulsory. "
    )
    if o.exceeded:
        return text + f"On compute capability {cc} this block does not run."
    return text + (
        f"On compute capability {cc}, {o.blocks_per_sm} block{'s' if o.blocks_per_sm != 1 else ''} of {threads:,} "
        f"threads, {registers} registers each and {t.shared_bytes:,} bytes of shared memory live on an SM, "
        f"limited by {' and '.join(o.limited_by)}."
    )


def _tables(t: Tiling, o: Occupancy, threads: int) -> tuple[Table, ...]:
    p = t.problem
    least = p.compulsory_bytes()

    def row(name: str, count: int) -> tuple[str, str, str]:
        return name, amount(count), f"{count / least:.3g}"

    traffic = Table(
        "Global memory, whole launch",
        ("what", "bytes", "of compulsory"),
        (
            row("compulsory: x, w, y once", least),
            row("x, first time", t.x_bytes - t.halo_bytes),
            row("x, halos again", t.halo_bytes),
            row("w, for every block", t.w_bytes),
            row("y", t.y_bytes),
            row("tiled kernel requests", t.bytes_requested),
            row("moved, in 32-byte sectors", t.bytes_moved),
            row("without shared memory", t.unstaged_bytes),
        ),
    )
    tile = Table(
        "The tile",
        ("what", "value", "unit"),
        (
            ("tiles of a row", f"{t.tiles:,}", ""),
            ("blocks", f"{t.blocks:,}", ""),
            ("loaded for a row", f"{t.loaded:,}", f"elements of {p.L:,}"),
            ("redundant halo", f"{100 * t.redundant:.1f}", "% of what is loaded"),
            ("reuse factor", f"{t.reuse:.3g}", "products for each load of x"),
            ("shared memory", f"{t.shared_bytes:,}", "bytes a block"),
            ("sectors a request", f"{t.load_sectors / t.load_requests:.3g}", "loads; 4 is ideal for 32 lanes"),
        ),
    )
    rows = [(name, f"{count}") for name, count in o.by.items()]
    rows.append(("all together", f"{o.blocks_per_sm}"))
    occupied = Table("Blocks on one SM, by what limits them", ("resource", "blocks"), tuple(rows))
    warps = Table(
        "Occupancy",
        ("what", "value"),
        (
            ("resident warps", f"{o.warps_per_sm} of {o.max_warps_per_sm}"),
            ("occupancy", f"{100 * o.fraction:.0f} %"),
            ("resident threads", f"{o.blocks_per_sm * threads:,}"),
        ),
    )
    return traffic, tile, occupied, warps


SHOWN = 7  # tiles drawn one under the other


def _draw(t: Tiling, alt: str) -> Drawing:
    """The elements of a row that each tile loads."""
    p, parts = t.problem, []
    starts = range(0, p.L, t.tile)[:SHOWN]
    end = min(p.L, starts[-1] + t.tile + p.shift)
    unit = (WIDE - 60) / end
    for place, a in enumerate(starts):
        b, y = min(a + t.tile, p.L), 26 * place
        left, right = max(a - p.left, 0), min(b + p.shift, p.L)
        parts.append(label(0, y + 15, f"tile {place}"))
        parts.append(box(60 + left * unit, y, (right - left) * unit, 20, WARPS[1]))
        parts.append(box(60 + a * unit, y, (b - a) * unit, 20, WARPS[0]))
    more = f"; and {t.tiles - len(starts):,} more" if t.tiles > len(starts) else ""
    words = f"elements 0 to {end - 1:,} of a row; dark: a tile's own, light: its halo, loaded by a neighbour too{more}"
    return Drawing("What each tile loads of a row", alt, "".join([*parts, label(0, y + 42, words)]), y + 46)


def _text(compute_capability: tuple[int, int] | str) -> str:
    return compute_capability if isinstance(compute_capability, str) else "{}.{}".format(*compute_capability)


def view(
    problem: DepthwiseConv1d,
    tile: int,
    rows: int = 1,
    threads: int = 128,
    registers: int = 32,
    compute_capability: tuple[int, int] | str = (9, 0),
) -> Panel:
    """Charts, tables and words for a tile.

    tile: outputs of a row that a block computes. rows: rows of a block. threads: of a block. registers: of a thread.
    Numbers that cannot be used make a panel that says why; limits that the block exceeds are named in `problems`.
    """
    title = f"{problem}, tile {tile}, rows {rows}"
    try:
        t = tiling(problem, tile, rows)
        o = occupancy(threads, registers, t.shared_bytes, compute_capability)
    except ValueError as error:
        return Panel(title=title, alt="", problems=(sentence(error),))
    cc = _text(compute_capability)
    alt = _describe(t, o, threads, registers, cc)
    notes = [
        "Counted: a block copies what its outputs need to shared memory once, 32 neighbouring elements a request. "
        "Sectors are counted for each request; caches are not considered, so of the halos and weights that other "
        "blocks read too, a part comes from L2 and not from DRAM.",
        f"Limits: {SOURCE}.",
    ]
    return Panel(
        title=title,
        alt=alt,
        tables=_tables(t, o, threads),
        problems=o.exceeded,
        notes=(*o.notes, *notes),
        draw=lambda: _draw(t, alt),
    )


def traffic_calculator(
    problem: DepthwiseConv1d = PAPER,
    tile: int = 16,
    rows: int = 4,
    threads: int = 128,
) -> Face:
    """The traffic calculator for a notebook: sliders over `view`. Needs ipywidgets.

    B, H and padding stay as the problem has them; L, K (halo + 1) and the rest move.
    """
    from dwlab.widgets._face import Face, choice, slider

    controls = {
        "L": slider("row L, elements", problem.L, 1, 1024),
        "halo": slider("halo K-1, elements", problem.K - 1, 0, 255),
        "tile": slider("tile, outputs", tile, 1, 512),
        "rows": slider("rows a block", rows, 1, 64),
        "threads": slider("threads a block", threads, 32, 1024, 32),
        "registers": slider("registers a thread", 32, 16, 255),
        "padding": choice("padding", ("causal", "same"), "causal"),
        "compute_capability": choice("compute capability", [_text(one) for one in LIMITS], "9.0"),
    }
    if problem.padding in ("causal", "same"):
        controls["padding"].value = problem.padding

    def show(L, halo, tile, rows, threads, registers, padding, compute_capability) -> Panel:
        chosen = replace(problem, L=L, K=halo + 1, padding=padding)
        return view(chosen, tile, rows, threads, registers, compute_capability)

    return Face("Traffic calculator", controls, show)
