"""The roofline explorer: where the stages' traffic puts them under the ceilings of a GPU, for sizes that one chooses.

    view(machine.known()["NVIDIA A10"], DepthwiseConv1d(1024, 128, 48, 48), tile=16).text()

What the memories allow is made of two numbers of a stage's own formula and of the machine's ceilings, nothing else.
Where the L2 bandwidth was measured, the least of three limits holds:

- the requested bytes, 32 per sector, come from L2 if L1 catches nothing: l2_gbps × FLOP per requested byte;
- the compulsory bytes come from DRAM: copy_gbps × FLOP per compulsory byte;
- the FMA peak.

A datasheet has no L2 bandwidth. Then no cache is assumed at all: copy_gbps × FLOP per requested byte, and the FMA peak.
No time is made up: recorded points come from the records of that GPU and exactly these sizes. They may lie far below
what is allowed: a kernel waits for wavefronts of shared memory, for instructions and for latency too
(dwlab.model.timemodel).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dwlab import records
from dwlab.gpu import machine as machines
from dwlab.gpu.machine import Machine, attainable
from dwlab.measure import device
from dwlab.model.roofline import draw_roofs, look
from dwlab.problems import PAPER, DepthwiseConv1d
from dwlab.records import Measurement
from dwlab.text.drawing import Table, with_alt
from dwlab.widgets._panel import Panel, sentence
from dwlab.widgets.calculator import amount, tiling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dwlab.kernels.registry import Stage
    from dwlab.widgets._face import Face

LEFT, RIGHT = 0.02, 500.0  # FLOP per byte, the figure's edges
NEAR = 0.05  # decades: markers that lie nearer than this would cover each other


@dataclass(frozen=True)
class Prediction:
    """One stage on one GPU at one size.

    bytes_requested: 32 bytes for each sector of each request. intensity: FLOP for each of them. gflops: what the
    memories and the FMA peak allow, the least of the limits; limited_by: which one. recorded_gflops: what was measured
    on this GPU at this size, or None. problem: why the stage cannot run these sizes, or "" (then the numbers are 0).
    """

    name: str
    bytes_requested: int
    intensity: float
    gflops: float
    limited_by: str
    recorded_gflops: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Exploration:
    """The data that the explorer shows.

    compulsory: FLOP for each compulsory byte, the same for all stages; most: GFLOP/s that the memory and the FMA peak
    allow there. others: sizes that are recorded on this GPU.
    """

    machine: Machine
    problem: DepthwiseConv1d
    tile: int
    rows: int
    compulsory: float
    most: float
    points: tuple[Prediction, ...]
    recorded_on: str = ""
    others: tuple[str, ...] = ()


DRAM = "DRAM"
UNCACHED = "DRAM, no cache"


def predict(machine: Machine, problem: DepthwiseConv1d, bytes_requested: int) -> tuple[float, str]:
    """(GFLOP/s, what limits) of a kernel that requests this many bytes. Raises MachineError without ceilings."""
    ceilings = machine.ceilings
    if ceilings is None:
        raise machines.MachineError(f"no ceilings are known for {machine.name}: measure them (device.measure())")
    requested, compulsory = problem.flops / bytes_requested, problem.flops / problem.compulsory_bytes()
    if ceilings.l2_gbps:
        limits = [(ceilings.copy_gbps * compulsory, DRAM), (ceilings.l2_gbps * requested, "L2")]
    else:
        limits = [(ceilings.copy_gbps * requested, UNCACHED)]
    if ceilings.fma_tflops:
        limits.append((1e3 * ceilings.fma_tflops, "FMA"))
    return min(limits)


def explore(
    machine: Machine,
    problem: DepthwiseConv1d,
    tile: int = 16,
    rows: int = 4,
    stages: Sequence[Stage] | None = None,
    rows_recorded: Iterable[Measurement] | None = None,
) -> Exploration:
    """Predictions for the forward stages and for a tiled kernel with this tile (see dwlab.widgets.calculator).

    rows_recorded: measurements to look in (all records if None). Raises MachineError for a machine without ceilings,
    ProblemError for a tile or rows below 1.
    """
    if stages is None:
        from dwlab.kernels.registry import stages as registered

        stages = registered("depthwise1d", "forward")
    measured = [
        row
        for row in (records.load_all() if rows_recorded is None else rows_recorded)
        if row.gpu == machine.name and (row.op, row.path) == ("depthwise1d", "forward") and row.dtype == problem.dtype
    ]
    wanted = records.describe_problem(problem)
    here = [row for row in measured if dict(row.problem) == wanted]

    def point(name: str, bytes_requested: Callable[[], int]) -> Prediction:
        try:
            requested = bytes_requested()
        except ValueError as error:  # a stage that these sizes do not suit
            return Prediction(name, 0, 0.0, 0.0, "", problem=sentence(error))
        gflops, limit = predict(machine, problem, requested)
        found = records.best(stage=name, rows=here)
        measured = found.flops / found.time_us / 1e3 if found else None
        return Prediction(name, requested, problem.flops / requested, gflops, limit, measured)

    points = [point(one.name, lambda one=one: one.traffic(problem).bytes_moved) for one in stages]
    points.append(point(f"tile {tile} × {rows}", lambda: tiling(problem, tile, rows).bytes_moved))
    compulsory = problem.flops / problem.compulsory_bytes()
    newest = records.best(rows=here)
    return Exploration(
        machine=machine,
        problem=problem,
        tile=tile,
        rows=rows,
        compulsory=compulsory,
        most=machine.attainable(compulsory),
        points=tuple(points),
        recorded_on=f"{newest.gpu}, {newest.date[:10]}" if newest else "",
        others=tuple(dict.fromkeys(records.shape_text(row.problem) for row in measured)),
    )


def _kind(machine: Machine) -> str:
    return "measured" if machine.ceilings.measured else "datasheet"


def _describe(e: Exploration) -> str:
    c = e.machine.ceilings
    known = [f"DRAM {c.copy_gbps:,.0f} GB/s"]
    if c.l2_gbps:
        known.append(f"L2 {c.l2_gbps:,.0f} GB/s")
    if c.fma_tflops:
        known.append(f"float32 FMA {c.fma_tflops:,.1f} TFLOP/s")
    parts = []
    for p in e.points:
        if p.problem:
            parts.append(f"{p.name} cannot run these sizes")
            continue
        text = f"{p.name} at {p.intensity:.3g} FLOP a byte, {p.gflops:,.0f} GFLOP/s allowed by {p.limited_by}"
        parts.append(text + (f", recorded {p.recorded_gflops:,.0f}" if p.recorded_gflops else ""))
    return (
        f"Roofline of {e.machine.name} for {e.problem}: GFLOP/s against FLOP for each byte, both logarithmic. Ceilings "
        f"({_kind(e.machine)}): {', '.join(known)}. Compulsory bytes alone allow {e.compulsory:.3g} FLOP a byte and "
        f"{e.most:,.0f} GFLOP/s. Stages: {'; '.join(parts)}."
    )


def _table(e: Exploration) -> Table:
    rows = []
    for p in e.points:
        if p.problem:
            rows.append((p.name, "-", "-", "cannot run", "-", "-"))
            continue
        recorded = f"{p.recorded_gflops:,.0f}" if p.recorded_gflops else "-"
        requested = amount(p.bytes_requested)
        rows.append((p.name, recorded, f"{p.gflops:,.0f}", p.limited_by, f"{p.intensity:.3g}", requested))
    least = e.problem.compulsory_bytes()
    rows.append(("compulsory bytes only", "-", f"{e.most:,.0f}", "the roofline", f"{e.compulsory:.3g}", amount(least)))
    return Table(
        "GFLOP/s: recorded, and allowed by memory",
        ("stage", "recorded", "allowed by memory", "limit", "FLOP/B", "bytes requested"),
        tuple(rows),
    )


def _sizes(e: Exploration) -> list[float]:
    """The size of each stage's hollow marker: those that share a place lie inside each other, the first innermost."""
    placed: list[tuple[float, float, int]] = []
    sizes = []
    for p in e.points:
        x, y = (math.log10(max(value, 1e-9)) for value in (p.intensity, p.gflops))
        here = [rank for a, b, rank in placed if abs(a - x) < NEAR and abs(b - y) < NEAR and not p.problem]
        rank = max(here, default=-1) + 1
        if not p.problem:
            placed.append((x, y, rank))
        sizes.append(7.0 + 3.5 * rank)
    return sizes


def _draw(e: Exploration, alt: str) -> Figure:
    from matplotlib.figure import Figure

    c = e.machine.ceilings
    figure = Figure(figsize=(5.6, 5.4), dpi=100)
    ax = figure.add_axes((0.14, 0.36, 0.815, 0.585))
    peak, bottom = 1e3 * c.fma_tflops if c.fma_tflops else attainable(RIGHT, c), c.copy_gbps * LEFT
    draw_roofs(ax, c, (LEFT, RIGHT), (bottom, 4 * peak))
    ax.tick_params(labelsize=8)
    ax.set_xlabel("FLOP for each byte moved", fontsize=9, labelpad=1)
    ax.set_ylabel("GFLOP/s", fontsize=9, labelpad=1)
    ax.set_title(f"{e.machine.name}, ceilings: {_kind(e.machine)}", fontsize=10, loc="left", fontweight="bold")

    def inside(x: float) -> float:
        return min(max(x, LEFT * 1.1), RIGHT / 1.1)

    least = inside(e.compulsory)
    ax.plot([least] * 2, [bottom, e.most], ":", color="#666666", linewidth=1.2, label="compulsory bytes")
    ax.plot([], [], "o", color="black", markerfacecolor="none", label="hollow: allowed")
    ax.plot([], [], "o", color="black", label="filled: recorded")
    for i, (p, size) in enumerate(zip(e.points, _sizes(e), strict=True)):
        colour, marker = look(i)
        hollow = {"marker": marker, "color": colour, "markerfacecolor": "none", "markeredgewidth": 1.8, "ls": "none"}
        if p.problem:
            ax.plot([], [], **hollow, label=f"{p.name}: cannot run")
            continue
        x, y = inside(p.intensity), max(p.gflops, bottom * 1.1)
        ax.plot([x], [y], **hollow, markersize=size, zorder=4, label=f"{p.name}: {p.gflops:,.0f} GFLOP/s")
        if c.l2_gbps:  # from the bytes requested from L2 to the compulsory bytes of DRAM: one height, two lines
            ax.plot([x, least], [y, y], color=colour, linewidth=1.4, zorder=3)
        if p.recorded_gflops is not None:
            recorded = max(p.recorded_gflops, bottom * 1.1)
            ax.plot([x, x], [y, recorded], "--", color=colour, linewidth=0.9, zorder=3)
            ax.plot([x], [recorded], marker, color=colour, markersize=9, zorder=4)
    legend = figure.legend(loc="lower left", ncols=2, fontsize=8, frameon=False, borderaxespad=0, handlelength=1.6)
    for handle in legend.legend_handles:
        handle.set_markersize(7)
    return with_alt(figure, alt)


def view(
    machine: Machine,
    problem: DepthwiseConv1d = PAPER,
    tile: int = 16,
    rows: int = 4,
    stages: Sequence[Stage] | None = None,
    rows_recorded: Iterable[Measurement] | None = None,
) -> Panel:
    """Figure, table and words; the arguments are those of `explore`. What cannot be explored says why in `problems`."""
    title = f"{machine.name}: {problem}"
    try:
        e = explore(machine, problem, tile, rows, stages, rows_recorded)
    except (ValueError, machines.MachineError) as error:
        return Panel(title=title, alt="", problems=(sentence(error),))
    alt = _describe(e)
    return Panel(
        title=title,
        alt=alt,
        tables=(_table(e),),
        problems=tuple(f"{p.name}: {p.problem}" for p in e.points if p.problem),
        notes=_notes(e),
        draw=lambda: _draw(e, alt),
    )


def _notes(e: Exploration) -> tuple[str, ...]:
    c, size, l2 = e.machine.ceilings, e.problem.compulsory_bytes(), e.machine.l2_bytes
    where = (
        "Each stage is a line at one height: its marker stands at the FLOP per requested byte, "
        "and may not rise above the line of the L2; its other end stands at the FLOP per compulsory byte, and may "
        "not rise above that of DRAM. L1 is taken to catch nothing: a recorded point above what is "
        "allowed has L1 to thank."
    ) if c.l2_gbps else (
        "A stage stands at the FLOP per requested byte, and each of these bytes is taken to "
        "come from DRAM: the L2 bandwidth of this GPU is not known. Caches catch some of the bytes, so a "
        "kernel can be faster than this, up to the roofline above the dotted line."
    )  # fmt: skip
    allowed = (
        "Allowed is not predicted. A kernel that stays far below waits for something that is no byte of these two "
        "memories: wavefronts of shared memory, instructions, latency. dwlab.model.timemodel predicts with these."
    )
    fits = (
        f"The arrays ({amount(size)}) fit the L2 ({amount(l2)}): a repeated launch finds them there, and device "
        "memory is no ceiling."
    ) if l2 and size <= l2 else ""  # fmt: skip
    known = f"Nothing is recorded for these sizes; recorded on this GPU: {'; '.join(e.others)}." if e.others else (
        "Nothing is recorded for this GPU.")  # fmt: skip
    known = f"Recorded: {e.recorded_on}." if e.recorded_on else known
    return tuple(filter(None, (where, allowed, fits, known, f"Ceilings: {c.source}.")))


def choices(recorded: Mapping[str, Machine] | None = None) -> dict[str, Callable[[], Machine]]:
    """Label -> GPU: recorded ones first (those given, or all), then the one in this machine, measured when it is
    chosen, then common ones."""
    found: dict[str, Callable[[], Machine]] = {}
    for name, one in (machines.recorded() if recorded is None else recorded).items():
        found[f"{name} (recorded)"] = lambda one=one: one
    from dwlab.gpu import target

    if target.mode == "gpu":
        found["the GPU in this machine (measured now)"] = functools.cache(lambda: device.measure(quick=True))
    for name, one in machines.known().items():
        found[f"{name} (datasheet)"] = lambda one=one: one
    return found


def roofline_explorer() -> Face:
    """The roofline explorer for a notebook: sliders over `view`, the first recorded GPU first. Needs ipywidgets."""
    from dwlab.widgets._face import Face, choice, slider, widgets

    w = widgets()
    failed = ()
    try:
        measured, recorded = records.load_all(), machines.recorded()
    except records.RecordError as error:  # the explorer is of use without records
        measured, recorded, failed = [], {}, (sentence(error),)
    found = choices(recorded)

    def powers(label: str, value: int, most: int):
        options = sorted({value, *(1 << k for k in range(most.bit_length()))})
        return w.SelectionSlider(options=[(f"{one:,}", one) for one in options], value=value, description=label)

    controls = {
        "gpu": choice("GPU", list(found), next(iter(found))),
        "B": powers("batch B", PAPER.B, 1 << 16),
        "H": powers("channels H", PAPER.H, 1 << 11),
        "L": slider("row L, elements", PAPER.L, 1, 1024),
        "K": slider("taps K", PAPER.K, 1, 256),
        "tile": slider("tile, outputs", 16, 1, 512),
        "rows": slider("rows a block", 4, 1, 64),
    }

    def show(gpu, B, H, L, K, tile, rows) -> Panel:
        chosen = replace(PAPER, B=B, H=H, L=L, K=K)
        panel = view(found[gpu](), chosen, tile, rows, rows_recorded=measured)
        return replace(panel, problems=panel.problems + failed)

    return Face("Roofline explorer", controls, show)
