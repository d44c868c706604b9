"""Drawings of the lessons on networks: the modules that fuse two layers, and launches on a time line.

    modules({"DWPW": (pair, tile), "PWDW_R": (pair, tile)})     a row a module: the maps, and a block's memory
    launches([3.0] * 8, start=10.0)                             kernels started one by one, and as one graph

Pairs are `problems.layers.Fused`, tiles `planner.accesses.Tile`. The numbers are those of `planner.accesses`, which
the tests count element by element. Each is a Drawing (dwlab.widgets.drawings).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dwlab.planner import accesses
from dwlab.planner.accesses import Accesses, Tile
from dwlab.problems.layers import DepthwiseConv2d, Fused, Pointwise
from dwlab.problems.networks import macs
from dwlab.text.drawing import BLUE, ORANGE, WARPS, WIDE, Drawing, Table, box, label, line
from dwlab.widgets.drawings import size

SIDE = 100  # of a map, in units of the picture
COLUMNS = (0, 150, 300)  # x, the intermediate map, y
MEMORY = 450  # where a block's memory is drawn
ROW = 158
HALO = WARPS[1]
FILLS = {"between": ORANGE, "x": BLUE}
FILTERS = WARPS[2]
NAMES = {"input and filters, beyond that": "x and filters", "depthwise filters": "x and filters", "input": "x"}
LEGEND = (
    (BLUE, "in global memory"),
    (ORANGE, "on chip only"),
    (HALO, "a neighbouring block has these pixels, too"),
    (FILTERS, "filters (in PWDW with x)"),
)


@dataclass(frozen=True)
class Region:
    """Pixels of a map: rows top … top + rows - 1, columns alike."""

    top: int
    left: int
    rows: int
    columns: int

    @property
    def pixels(self) -> int:
        """The number of its pixels."""
        return self.rows * self.columns


def outputs(pair: Fused, tile: Tile) -> Region:
    """The pixels of y that the drawn block computes: a block inside the map, where there is one."""
    if tile.rows == 1 and isinstance(pair.second, Pointwise) and isinstance(pair.first, Pointwise):
        width = pair.second.W
        return Region(tile.columns // width, 0, max(1, tile.columns // width), min(width, tile.columns))
    P, Q = pair.second.P, pair.second.Q
    top, left = (tile.rows if P >= 2 * tile.rows else 0), (tile.columns if Q >= 2 * tile.columns else 0)
    return Region(top, left, min(tile.rows, P - top), min(tile.columns, Q - left))


def own(layer: DepthwiseConv2d | Pointwise, out: Region) -> Region:
    """The pixels of a layer's input that belong to these outputs alone: without the halo."""
    S = getattr(layer, "stride", 1)
    rows, columns = min(out.rows * S, layer.H - out.top * S), min(out.columns * S, layer.W - out.left * S)
    return Region(out.top * S, out.left * S, rows, columns)


def read_by(layer: DepthwiseConv2d | Pointwise, out: Region) -> Region:
    """The pixels of a layer's input that it needs for these outputs: of a depthwise layer with the halo."""
    if isinstance(layer, Pointwise):
        return out
    S, K, PAD = layer.stride, layer.K, layer.padding
    spans = []
    for first, count, most in ((out.top, out.rows, layer.H), (out.left, out.columns, layer.W)):
        start, end = max(0, first * S - PAD), min(most, (first + count - 1) * S - PAD + K)
        spans.append((start, end - start))
    return Region(spans[0][0], spans[1][0], spans[0][1], spans[1][1])


def counted(pair: Fused, tile: Tile) -> Accesses:
    """The planner's accesses of a pair with a tile."""
    return getattr(accesses, pair.main_path)(pair.first, pair.second, tile)


def _kept(pair: Fused, tile: Tile, found: Accesses) -> tuple[str, str, str]:
    """Channels of x, of the intermediate map and of y that a block has at a time."""
    step = f"{min(accesses.STEP, pair.first.channels_out)} of {pair.first.channels_out} at a time"
    if isinstance(pair.second, DepthwiseConv2d):
        few = f"{tile.channels} of {pair.first.channels_out}"
        return f"all {pair.first.C}, in steps", few, few
    x = step if isinstance(pair.first, DepthwiseConv2d) else f"all {pair.first.C}"
    return x, step, f"{tile.channels} of {pair.second.channels_out}"


def _map(x: float, y: float, shape: tuple[int, int], inner: Region, outer: Region, fill: str, dashed: bool) -> str:
    """A map with the block's pixels in it; what only `outer` has are its halo."""
    scale = SIDE / max(shape)
    high, wide = shape[0] * scale, shape[1] * scale

    def rect(one: Region, colour: str) -> str:
        return box(x + one.left * scale, y + one.top * scale, one.columns * scale, one.rows * scale, colour, 0)

    halo = rect(outer, HALO) if outer != inner else ""
    edges = ((0, 0, wide, 0), (wide, 0, wide, high), (wide, high, 0, high), (0, high, 0, 0))
    frame = "".join(line(x + a, y + b, x + c, y + d, 1, dashed) for a, b, c, d in edges)
    return halo + rect(inner, fill) + frame


def _memory(y: float, staged: Mapping[str, int], sums: int, unit: float) -> list[str]:
    """Two bars: what a block has in shared memory, and its sums in registers. Sizes in bytes; unit: of a byte."""
    parts, x = [label(MEMORY, y + 10, f"shared memory: {size(sum(staged.values()))}", 11)], float(MEMORY)
    for name, nbytes in staged.items():
        parts.append(box(x, y + 16, nbytes * unit, 18, FILLS.get(name, FILTERS), 0.5))
        x += nbytes * unit
    words = ", ".join(f"{name} {size(nbytes)}" for name, nbytes in staged.items() if nbytes)
    parts.append(label(MEMORY, y + 48, words, 10.5))
    parts.append(label(MEMORY, y + 70, f"sums in registers: {size(sums)}", 11))
    parts.append(box(MEMORY, y + 76, max(sums * unit, 0.5), 18, "none"))
    return parts


def modules(drawn: Mapping[str, tuple[Fused, Tile]]) -> Drawing:
    """A row for each module: the part of each map that one block has, and what that block keeps on chip.

    drawn: name -> (pair, tile). Raises ProblemError or AttributeError for what is no such pair.
    """
    found = {name: counted(pair, tile) for name, (pair, tile) in drawn.items()}
    bytes_of: dict[str, dict[str, int]] = {name: {} for name in drawn}
    for name, one in found.items():
        for what, elements in one.shared.items():
            what = NAMES.get(what, what)
            bytes_of[name][what] = bytes_of[name].get(what, 0) + elements * drawn[name][0].itemsize
    sums = {name: 4 * one.accumulators for name, one in found.items()}
    unit = (WIDE - MEMORY - 4) / max(*(sum(one.values()) for one in bytes_of.values()), *sums.values())
    parts = [label(at, 12, head, 12, bold=True) for at, head in zip(COLUMNS, ("x", "between", "y"), strict=True)]
    parts.append(label(MEMORY, 12, "one block, on chip", 12, bold=True))
    rows, words = [], []
    for number, (name, (pair, tile)) in enumerate(drawn.items()):
        one, y = found[name], 24.0 + ROW * number
        out = outputs(pair, tile)
        middle = read_by(pair.second, out)
        taken = read_by(pair.first, middle)
        texts = _kept(pair, tile, one)
        maps = (
            ((pair.first.H, pair.first.W), own(pair.first, own(pair.second, out)), taken, BLUE, False),
            ((pair.second.H, pair.second.W), own(pair.second, out), middle, ORANGE, True),
            ((pair.second.P, pair.second.Q), out, out, BLUE, False),
        )
        for at, (shape, inner, outer, fill, dashed), text in zip(COLUMNS, maps, texts, strict=True):
            parts.append(_map(at, y + 18, shape, inner, outer, fill, dashed))
            parts.append(label(at, y + SIDE + 32, text, 10.5))
        parts.append(label(0, y + 12, name, 13, bold=True))
        parts += _memory(y + 14, bytes_of[name], sums[name], unit)
        first = one.macs - macs(pair.second)
        again = first / macs(pair.first)
        between = 2 * pair.N * pair.first.channels_out * pair.second.H * pair.second.W * pair.itemsize
        rows.append(
            (
                name,
                f"{out.rows} × {out.columns} of {pair.second.P} × {pair.second.Q}",
                f"{one.blocks:,}",
                size(sum(bytes_of[name].values())),
                size(sums[name]),
                f"{again:.2f}",
                f"{one.gma * pair.itemsize / 1e3:,.0f}",
                f"{between / 1e3:,.0f}",
            )
        )
        words.append(
            f"{name}: a block of {out.rows} × {out.columns} outputs has {middle.rows} × {middle.columns} pixels "
            f"between the layers and {size(sum(bytes_of[name].values()))} in shared memory; the first layer is "
            f"computed {again:.2f} times."
        )
    y, x = 24.0 + ROW * len(drawn), 0.0
    for fill, text in LEGEND:
        parts += [box(x, y, 12, 12, fill, 0), label(x + 17, y + 10, text, 10.5)]
        x += 40 + 5.4 * len(text)
    columns = ("module", "outputs of a block", "blocks", "shared memory", "sums", "first layer, times",
               "global memory, kB", "map between saves, kB")  # fmt: skip
    table = Table("Each element counted; the tests do so block by block", columns, tuple(rows))
    alt = (
        "For each module three maps with the pixels of one block: x, the map between the layers, drawn with a dashed "
        "outline as it is never in global memory, and y; and bars for what the block keeps on chip. " + " ".join(words)
    )
    return Drawing("Two layers in one kernel: what a block has of each map", alt, "".join(parts),
                   y + 14, (table,))  # fmt: skip


def begins(kernels: Sequence[float], start: float) -> list[float]:
    """The start of each kernel, in µs, if the host starts one every `start` µs and they run one after the other."""
    found, end = [], 0.0
    for number, us in enumerate(kernels, 1):
        found.append(max(end, number * start))
        end = found[-1] + us
    return found


def launches(kernels: Sequence[float], start: float) -> Drawing:
    """Two time lines: each kernel started by the host, `start` µs each; and all of them as one CUDA graph.

    kernels: µs of each. Of a graph only the kernels are drawn: one start serves all.
    """
    one_by_one, graph = begins(kernels, start), begins(kernels, 0.0)
    ends = [times[-1] + kernels[-1] for times in (one_by_one, graph)]
    unit = (WIDE - 130) / max(ends)
    parts = [label(0, 30, "one by one: host"), label(0, 62, "one by one: GPU"), label(0, 112, "one graph: GPU")]
    parts += [box(130 + n * start * unit, 16, start * unit, 20, HALO, 0.5) for n in range(len(kernels))]
    for y, times in ((48, one_by_one), (98, graph)):
        parts += [box(130 + t * unit, y, us * unit, 20, BLUE, 0.5) for t, us in zip(times, kernels, strict=True)]
    for x, fill, text in ((130, HALO, "the host starts a kernel"), (330, BLUE, "the GPU runs it")):
        parts += [box(x, 136, 12, 12, fill, 0), label(x + 17, 146, text, 11)]
    work = sum(kernels)
    ways = ("one by one", "one CUDA graph")
    rows = tuple((way, f"{end:.0f}", f"{100 * work / end:.0f} %") for way, end in zip(ways, ends, strict=True))
    alt = (
        f"Two time lines of {len(kernels)} kernels. One by one: the host is busy without a gap, {start:g} µs for each "
        f"start, and the GPU waits in between; all end at {ends[0]:.0f} µs. As one CUDA graph the kernels follow each "
        f"other without a gap and end at {ends[1]:.0f} µs."
    )
    table = Table(f"{len(kernels)} kernels, {work:g} µs of work", ("way", "all end at, µs", "the GPU works"), rows)
    return Drawing("Who waits for whom", alt, "".join(parts), 152, (table,))
