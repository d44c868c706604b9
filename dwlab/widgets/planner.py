"""The fusion planner's scales: two layers as a kernel each and as one kernel with a tile that one chooses.

    view("mobilenet_v1 3.depthwise", "t4", filters=64, rows=8, columns=8).text()

Bytes, limits and predicted times are `dwlab.planner`'s; only the tile is the reader's. The unfused kernels have the
tiles that the planner gives them, by the same measure: fewest bytes, or least time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dwlab.gpu import specs as gpus
from dwlab.gpu.machine import Machine
from dwlab.planner.accesses import Conv, Tile, sizes
from dwlab.planner.modules import (
    FUSED,
    KINDS,
    NAMES,
    REDUNDANT,
    Module,
    PlanError,
    Rules,
    best,
    l1_bytes,
    module_of,
    stays,
)
from dwlab.problems import networks
from dwlab.problems.networks import summary
from dwlab.text import tabular
from dwlab.text.drawing import WARPS, Drawing, Table, box, label, line
from dwlab.widgets._panel import Panel, sentence

if TYPE_CHECKING:
    from dwlab.widgets._face import Face

PAIRS = (
    "mobilenet_v1 1.depthwise", "mobilenet_v1 3.depthwise", "mobilenet_v1 8.depthwise", "mobilenet_v1 13.depthwise",
    "mobilenet_v2 2.expand", "mobilenet_v2 2.depthwise", "mobilenet_v2 12.expand", "mobilenet_v2 12.depthwise",
)  # fmt: skip
"""Network and first layer of the pairs that the widget offers."""

GPUS = ("gtx1660", "t4", "a4000", "orin", "a100", "h100", "h200")


@dataclass(frozen=True)
class Limit:
    """A number of the fused kernel and what is allowed: at most, or with least=True at least."""

    name: str
    what: str
    value: float
    allowed: float
    least: bool = False

    @property
    def kept(self) -> bool:
        """Whether the limit is kept."""
        return self.value >= self.allowed if self.least else self.value <= self.allowed

    def __str__(self) -> str:
        return f"{self.name}: {self.value:,.0f} {self.what}, {self.allowed:,.0f} are allowed."


@dataclass(frozen=True)
class Weighed:
    """Two layers as one kernel and as two.

    fused: with the reader's tile. by_bytes, by_time: the two unfused, each at its tile of fewest bytes, or of least
    predicted time. shared_limit: bytes of shared memory that a block may have.
    """

    gpu: Machine
    fused: Module
    by_bytes: tuple[Module, Module]
    by_time: tuple[Module, Module]
    shared_limit: int

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of the fused kernel; the last, blocks, holds where bytes decide."""
        one = self.fused
        on_chip = one.shared_bytes + 4 * one.accesses.accumulators  # and four bytes for each sum that it keeps
        return (
            Limit("Shared memory", "bytes a block", one.shared_bytes, self.shared_limit),
            Limit("On chip", "bytes a block with its sums", on_chip, l1_bytes(self.gpu)),
            Limit("More work", "% more multiply-adds", 100 * max(0.0, one.redundant), 100 * REDUNDANT),
            Limit("Blocks / SMs", "blocks", one.accesses.blocks, self.gpu.sms, least=True),
        )

    @property
    def exceeded(self) -> tuple[str, ...]:
        """The limits that the fused kernel breaks, in sentences."""
        return tuple(str(one) for one in self.limits[:-1] if not one.kept)

    @property
    def layers(self) -> tuple[Conv, ...]:
        """The two layers."""
        return self.fused.layers

    @property
    def unfused_bytes(self) -> int:
        """Accesses of the two unfused, in bytes."""
        return sum(one.gma_bytes for one in self.by_bytes)

    @property
    def unfused_us(self) -> float:
        """Predicted time of the two unfused, µs."""
        return sum(one.time_us for one in self.by_time)

    @property
    def fuse_by_bytes(self) -> bool:
        """Whether the fused kernel fits, gives every multiprocessor a block, and accesses fewer bytes."""
        return not self.exceeded and self.limits[-1].kept and self.fused.gma_bytes < self.unfused_bytes

    @property
    def fuse_by_time(self) -> bool:
        """Whether the fused kernel fits and is predicted to take less time."""
        return not self.exceeded and self.fused.time_us < self.unfused_us


def pair(name: str, batch: int = 1, dtype: str = "float32") -> tuple[Conv, Conv]:
    """Two neighbours of a network, named by the network and the first: "mobilenet_v1 3.depthwise".

    Raises NetworkError for unknown names, and PlanError for neighbours that cannot share a kernel.
    """
    network, _, first = name.strip().partition(" ")
    made = networks.network(network, batch=batch, dtype=dtype, layout="NCHW")
    index = made.layers.index(made.layer(first.strip()))
    if index + 1 == len(made.layers):
        raise PlanError(f"{first} is the last layer of {network}: take one that has a next")
    reason = made.joint(index)
    if reason:
        raise PlanError(f"{first} of {network} cannot share a kernel with the next layer: {reason}")
    return made.layers[index].problem, made.layers[index + 1].problem


def weigh(layers: tuple[Conv, Conv], gpu: str | Machine, tile: Tile, shared_limit: int | None = None) -> Weighed:
    """The two layers on a GPU, fused with this tile and unfused.

    tile: of the second layer's output; between pointwise layers its pixels stand in a line. shared_limit: bytes that a
    block may have, None for what the GPU gives at most. Raises GpuError for an unknown GPU, PlanError for sizes below 1
    and for layers that no module takes.
    """
    made = gpus.find(gpu)
    for name in ("channels", "rows", "columns"):
        value = getattr(tile, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PlanError(f"the tile's {name} are {value!r}; a tile has whole numbers from 1 up")
    limit = made.shared_per_block if shared_limit is None else shared_limit
    takes = tuple("dw" if layer.op == "depthwise2d" else "pw" for layer in layers)
    kinds = [kind for kind in FUSED if KINDS[kind].takes == takes]
    if not kinds:
        raise PlanError(f"no module takes {' and '.join(map(summary, layers))}")
    last = layers[-1]
    tile = Tile(min(tile.channels, last.channels_out), min(tile.rows, last.P), min(tile.columns, last.Q))
    if takes == ("pw", "pw"):
        tile = Tile(tile.channels, 1, tile.pixels)
    accesses = KINDS[kinds[0]].accesses(*layers, tile)  # of PWDW and PWDW_R it finds by the tile which one it is
    unfused = {}
    for objective in ("gma", "time"):
        two = [best(kind, (layer,), made, Rules(objective)) for kind, layer in zip(takes, layers, strict=True)]
        if isinstance(found := next((one for one in two if isinstance(one, str)), None), str):
            raise PlanError(f"a layer alone fits no tile: {found}")
        unfused[objective] = tuple(two)
    return Weighed(made, module_of(accesses, layers, made), unfused["gma"], unfused["time"], limit)


PARTS = ("x", "between", "w1", "w2", "y")
"""The parts to which bytes go, in the order in which they are drawn; between: the map, written and read."""


def parts(one: Weighed) -> dict[str, tuple[int, int]]:
    """Part -> (bytes unfused, bytes fused); b and m count with their w, r with y."""
    first, second = one.by_bytes
    found = {name: [0, 0] for name in PARTS}
    for place, modules in enumerate(((first, second), (one.fused,))):
        for number, module in enumerate(modules, 1):
            each = {name: size for name, (_, size) in sizes(module.layers).items()}
            for name, count in module.accesses.elements.items():
                if name in ("x", "y", "r"):
                    outer = (name == "x") == (number == 1) or len(modules) == 1
                    part = {"x": "x", "y": "y", "r": "y"}[name] if outer else "between"
                else:
                    part = "w" + (name[-1] if name[-1] in "12" else str(number))
                found[part][place] += count * each[name]
    return {name: (unfused, fused) for name, (unfused, fused) in found.items()}


def _mb(count: float) -> str:
    return f"{tabular.mb(count)} MB"


def _verdict(one: Weighed) -> str:
    if one.exceeded:
        return "unfused, as a limit is exceeded"
    words = {True: "fuse", False: "unfused"}
    return f"by bytes {words[one.fuse_by_bytes]}, by predicted time {words[one.fuse_by_time]}"


def _describe(one: Weighed, title: str) -> str:
    limits = ", ".join(f"{of.name} {of.value:,.0f} of {of.allowed:,.0f}" for of in one.limits)
    return (
        f"Two charts for {title}. Bytes accessed: {_mb(one.unfused_bytes)} unfused, {_mb(one.fused.gma_bytes)} fused. "
        f"Limits: {limits}. Decision: {_verdict(one)}."
    )


def _tables(one: Weighed) -> tuple[Table, ...]:
    fused = one.fused
    once = dict.fromkeys(PARTS, 0)
    for name, (size, _) in sizes(one.layers).items():
        once[{"x": "x", "y": "y", "r": "y"}.get(name, "w" + name[-1])] += size
    rows = []
    for name, (unfused, together) in parts(one).items():
        times = f"{together / once[name]:.2f}" if once[name] else "0"
        rows.append((name, _mb(unfused), _mb(together), times))
    rows.append(("all", _mb(one.unfused_bytes), _mb(fused.gma_bytes), ""))
    limits = tuple(
        (f"{of.name}, {of.what}" + ", at least (by bytes)" * of.least, f"{of.value:,.0f}", f"{of.allowed:,.0f}",
         "yes" if of.kept else "no")
        for of in one.limits
    )  # fmt: skip
    saved = 100 * (1 - fused.gma_bytes / one.unfused_bytes)
    gained = 100 * (1 - fused.time_us / one.unfused_us)
    words = {True: "fuse", False: "unfused"}
    return (
        Table("Bytes accessed in global memory", ("part", "unfused", "fused", "times read or written"), tuple(rows)),
        Table("Limits", ("what", "this tile", "limit", "kept"), limits),
        Table(
            "Decision",
            ("by", "unfused", "fused", "saved", "decision"),
            (
                ("bytes", _mb(one.unfused_bytes), _mb(fused.gma_bytes), f"{saved:.0f} %", words[one.fuse_by_bytes]),
                ("predicted time", f"{one.unfused_us:,.1f} µs", f"{fused.time_us:,.1f} µs", f"{gained:.0f} %",
                 words[one.fuse_by_time]),
            ),
        ),
    )  # fmt: skip


def _notes(one: Weighed) -> tuple[str, ...]:
    found = best(one.fused.kind, one.layers, one.gpu, Rules("gma"))
    text = (
        f"The planner's own tile of fewest bytes is {found.tile}, {_mb(found.gma_bytes)}."
        if isinstance(found, Module)
        else f"The planner finds no tile by bytes: {found}."
    )
    inside = all(stays((layer,), one.gpu.l2_bytes or 0) for layer in one.layers)
    size = f"{_mb(one.fused.between_bytes)} between the layers"
    l2 = f"the L2 of {(one.gpu.l2_bytes or 0) / 2**20:g} MiB"
    return (
        text,
        f"{size}: in {l2} they would {'stay anyway' if inside else 'not stay'}, so that fusing keeps "
        f"{'hardly any' if inside else 'these'} bytes from device memory.",
        f"Times are predicted, not measured. Ceilings: {one.gpu.ceilings.source}",
    )


def _draw(one: Weighed, alt: str) -> Drawing:
    found, left, y = parts(one), 110.0, 24.0
    most = max(one.unfused_bytes, one.fused.gma_bytes)
    body = [label(0, 14, "Bytes accessed in global memory", bold=True)]
    for way, name in enumerate(("unfused", "fused")):
        x = left
        for fill, both in enumerate(found.values()):
            body.append(box(x, y, width := 480 * both[way] / most, 22, WARPS[fill]))
            x += width
        body += [label(0, y + 16, name), label(x + 8, y + 16, _mb(sum(both[way] for both in found.values())))]
        y += 28
    for fill, name in enumerate(found):
        words = f"{name}, written and read" if name == "between" else name
        body += [box(left, y + 2, 14, 14, WARPS[fill]), label(left + 20, y + 14, words)]
        left += 44 + 7 * len(words)
    y, left = y + 50, 130.0
    body.append(label(0, y - 10, f"Limits on {one.gpu.name}, as parts of what is allowed", bold=True))
    body.append(line(left + 220, y - 4, left + 220, y + 28 * len(one.limits), 2))
    for limit in one.limits:
        share = limit.value / max(1, limit.allowed)
        says = "" if limit.kept else ", too few" if limit.least else ", over"
        body.append(box(left, y, 220 * min(share, 2), 20, "none" if limit.kept else WARPS[1]))
        body += [
            label(0, y + 15, limit.name),
            label(left + 450, y + 15, f"{100 * share:,.0f} %{says}", bold=bool(says)),
        ]
        y += 28
    return Drawing("The two ways, and the limits of the tile", alt, "".join(body), y)


def view(
    layers: str | tuple[Conv, Conv] = PAIRS[1],
    gpu: str | Machine = "t4",
    filters: int = 64,
    rows: int = 8,
    columns: int = 8,
    shared_kib: float | None = None,
    batch: int = 1,
    dtype: str = "float32",
) -> Panel:
    """Charts, tables and words for two layers, a GPU and a tile.

    layers: a name as `pair` has it, taken in this batch and dtype; or the two themselves. filters, rows, columns: of a
    block's output. shared_kib: KiB of shared memory that a block may have, None or 0 for the GPU's most. What cannot be
    used makes a panel that says why; limits that the tile breaks are named in `problems`.
    """
    try:
        two = pair(layers, batch, dtype) if isinstance(layers, str) else layers
        limit = int(shared_kib * 1024) if shared_kib else None
        one = weigh(two, gpu, Tile(filters, rows, columns), limit)
    except ValueError as error:
        return Panel(title=f"{layers} on {gpu}", alt="", problems=(sentence(error),))
    names = " → ".join(summary(layer) for layer in two)
    title = f"{names} as {NAMES[one.fused.kind]} on {one.gpu.name}, tile {one.fused.tile}"
    alt = _describe(one, title)
    return Panel(
        title=f"{title}: {_verdict(one)}",
        alt=alt,
        tables=_tables(one),
        problems=one.exceeded,
        notes=_notes(one),
        draw=lambda: _draw(one, alt),
    )


def most_kib(gpu: str) -> int:
    """KiB of shared memory that a block may have at most on a GPU."""
    return gpus.find(gpu).shared_per_block // 1024


def fuse_planner(layers: str = PAIRS[1], gpu: str = "t4", filters: int = 64, rows: int = 8, columns: int = 8) -> Face:
    """The planner's scales for a notebook: sliders over `view`. Needs ipywidgets."""
    from dwlab.widgets._face import Face, choice, slider

    controls = {
        "layers": choice("network, first layer", PAIRS, layers),
        "gpu": choice("GPU", GPUS, gpu),
        "filters": slider("filters a tile", filters, 1, 512),
        "rows": slider("rows of a tile", rows, 1, 56),
        "columns": slider("columns of a tile", columns, 1, 56),
        "shared_kib": slider("shared KiB (0: most)", 0, 0, most_kib(gpu)),
        "batch": choice("batch", (1, 8, 32), 1),
        "dtype": choice("dtype", ("float32", "float16", "int8"), "float32"),
    }
    made = Face("Fusion planner", controls, view)

    def fit(change) -> None:
        controls["shared_kib"].max = most_kib(change["new"])  # a value beyond it becomes the GPU's most

    controls["gpu"].observe(fit, names="value")
    return made
