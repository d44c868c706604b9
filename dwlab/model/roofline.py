"""The roofline: how fast a kernel can be for the bytes that it must move. Pure maths, and a plot.

A kernel that does I floating-point operations for each byte of device memory runs at min(peak, bandwidth × I) at most
(Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009). Here I counts
compulsory bytes only, so all stages of one problem stand above each other on one vertical line, and what lies between
a stage and the roofline is what it wastes. A point above its ceiling is a measuring error and raises RooflineError.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dwlab.gpu.machine import Ceilings, Machine, attainable
from dwlab.records import Measurement
from dwlab.text.drawing import as_img, as_png
from dwlab.text.tabular import Col, Markdown, as_html, cells, of_rows, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Point", "Roofline", "RooflineError", "alt_text", "attainable", "draw_roofs", "plot", "point", "points", "ridge",
]  # fmt: skip

TOLERANCE = 0.03
"""How far above a measured ceiling a point may lie: two medians of one run differ by about this much."""

# Okabe and Ito's palette, distinct with any colour vision; the markers differ too, for print in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def look(number: int) -> tuple[str, str]:
    """(colour, marker) of a point by its number: the first 49 differ from each other."""
    return COLOURS[number % len(COLOURS)], MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


class RooflineError(ValueError):
    """A point that cannot be: above its ceiling, or made of numbers that are none."""


@dataclass(frozen=True)
class Point:
    """One kernel on the plot. intensity: FLOP for each compulsory byte; gflops: achieved; most: GFLOP/s attainable."""

    label: str
    intensity: float
    gflops: float
    most: float
    memory: str = "dram"

    @property
    def fraction(self) -> float:
        """Efficiency: achieved over attainable."""
        return self.gflops / self.most

    @property
    def gbps(self) -> float:
        """Effective bandwidth: compulsory bytes over time, 1e9 bytes a second."""
        return self.gflops / self.intensity


def ridge(ceilings: Ceilings, memory: str = "dram") -> float | None:
    """The intensity in FLOP/B from which arithmetic and no longer memory bounds a kernel; None where not known."""
    gbps = ceilings.copy_gbps if memory == "dram" else ceilings.l2_gbps
    if gbps is None or ceilings.fma_tflops is None:
        return None
    return 1e3 * ceilings.fma_tflops / gbps


def point(
    label: str,
    flops: float,
    nbytes: float,
    time_us: float,
    ceilings: Ceilings,
    *,
    memory: str = "dram",
    tolerance: float = TOLERANCE,
) -> Point:
    """The point of a kernel that does ``flops`` operations on ``nbytes`` compulsory bytes in ``time_us`` µs.

    memory: "dram", or "l2" for a timing whose data lay in L2. Raises RooflineError for a point above its ceiling.
    """
    for name, value in (("flops", flops), ("nbytes", nbytes), ("time_us", time_us)):
        if not np.isfinite(value) or value <= 0:
            raise RooflineError(f"{label}: {name} is {value!r}; it must be a positive number")
    intensity = flops / nbytes
    made = Point(label, intensity, flops / time_us / 1e3, attainable(intensity, ceilings, memory), memory)
    if made.fraction > 1 + tolerance:
        bound = "FMA" if ceilings.fma_tflops and made.most >= 1e3 * ceilings.fma_tflops else "bandwidth"
        raise RooflineError(
            f"{label} reaches {made.gflops:,.0f} GFLOP/s, {100 * made.fraction:.0f} % of what its {bound} ceiling "
            f"allows ({made.most:,.0f}): the time, the bytes or the ceiling is wrong. Were the inputs in the cache, "
            "or the ceilings of another run or GPU?"
        )
    return made


def points(rows: Iterable[Measurement], ceilings: Ceilings, *, tolerance: float = TOLERANCE) -> tuple[Point, ...]:
    """The points of measurements, in their order. The ceiling of a row timed with a warm cache is the L2, if known.

    Raises RooflineError for a point above its ceiling.
    """
    made = []
    for row in rows:
        memory = "l2" if row.cold.startswith("warm") and ceilings.l2_gbps is not None else "dram"
        made.append(
            point(row.stage, row.flops, row.compulsory_bytes, row.time_us, ceilings, memory=memory, tolerance=tolerance)
        )
    return tuple(made)


# ------------------------------------------------------------------------------------------------------------- plot


def plot(points: Sequence[Point], ceilings: Ceilings, *, title: str = "", ax: Axes | None = None) -> Figure:
    """The roofline with its points, both axes logarithmic: a new figure, or drawn into ``ax``.

    Every line is named beside it and every point in the legend, and differs in marker as in colour.
    """
    from matplotlib.figure import Figure

    if ax is None:
        figure = Figure(figsize=(7.2, 4.6), dpi=120, layout="constrained")
        ax = figure.add_subplot()
    else:
        figure = ax.get_figure()
    span = _span(points, ceilings)
    bottom = min([0.5 * ceilings.copy_gbps * span[0], *(0.5 * p.gflops for p in points)])
    top = 2.2 * (1e3 * ceilings.fma_tflops if ceilings.fma_tflops else attainable(span[1], ceilings))
    draw_roofs(ax, ceilings, span, (bottom, top))
    for i, p in enumerate(points):
        ax.plot(
            p.intensity, p.gflops, ls="none", marker=look(i)[1],
            ms=9, color=look(i)[0], mec="black", mew=0.8, zorder=3,
            label=f"{p.label}: {100 * p.fraction:.1f} % of the roofline",
        )  # fmt: skip
    ax.legend(loc="lower right", fontsize=8, framealpha=0.95)
    ax.set_xlabel("arithmetic intensity (FLOP for each compulsory byte)")
    ax.set_ylabel("GFLOP/s")
    if title:
        ax.set_title(title, fontsize=10, loc="left")
    return figure


def draw_roofs(ax: Axes, ceilings: Ceilings, span: tuple[float, float], heights: tuple[float, float]) -> None:
    """Logarithmic axes of FLOP/B and GFLOP/s with the ceilings as lines, each named in its label."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    ax.set(xscale="log", yscale="log", xlim=span, ylim=heights)
    for (memory, style, width), text in zip(_LINES, _roof_texts(ceilings), strict=True):
        if text:
            x = np.geomspace(*span, 200)
            y = [attainable(float(value), ceilings, memory) for value in x]
            ax.plot(x, y, color="black", lw=width, ls=style, zorder=2, label=text)
    if ceilings.fma_tflops:
        ax.axhline(1e3 * ceilings.fma_tflops, color="0.3", lw=1.2, ls=":", label=_fma_text(ceilings))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    ax.grid(which="major", color="0.88", lw=0.7)
    ax.set_axisbelow(True)


def _span(points: Sequence[Point], ceilings: Ceilings) -> tuple[float, float]:
    """The intensities to show: all points and the ridge, with room around them."""
    marks = [p.intensity for p in points] + [r for r in (ridge(ceilings), ridge(ceilings, "l2")) if r]
    marks = marks or [1.0, 100.0]
    return min(marks) / 8, max(marks) * 10


# The lines of memory, in the order of _roof_texts: which memory, line style, line width.
_LINES = (("dram", "-", 1.8), ("l2", "--", 1.3))


def _roof_texts(ceilings: Ceilings) -> tuple[str, str]:
    """Names of the lines of memory in legend and alt text; "" for one that is not known."""
    dram, kind = ("device copy", "measured") if ceilings.measured else ("peak of the memory", "datasheet")
    l2 = f"L2 reads {ceilings.l2_gbps:,.0f} GB/s ({kind})" if ceilings.l2_gbps else ""
    return f"{dram} {ceilings.copy_gbps:,.0f} GB/s ({kind})", l2


def _fma_text(ceilings: Ceilings) -> str:
    kind = "measured" if ceilings.measured else "datasheet"
    return f"float32 FMA {ceilings.fma_tflops:,.1f} TFLOP/s ({kind})" if ceilings.fma_tflops else ""


def alt_text(points: Sequence[Point], ceilings: Ceilings, name: str = "") -> str:
    """The plot in words, for those who cannot see it."""
    of = f" of {name}" if name else ""
    known = [text for text in (*_roof_texts(ceilings), _fma_text(ceilings)) if text]
    text = f"Roofline{of}: GFLOP/s against FLOP per byte, both logarithmic. Ceilings: {', '.join(known)}."
    if not points:
        return text + " No points."
    described = [
        f"{p.label} at {p.intensity:,.2f} FLOP/B: {p.gflops:,.0f} GFLOP/s, {100 * p.fraction:.1f} % of the roofline"
        for p in points
    ]
    return f"{text} Points: {'; '.join(described)}."


COLUMNS = (
    Col("kernel", "label", left=True),
    Col("FLOP/B", "intensity", "{:,.2f}".format),
    Col("GFLOP/s", "gflops", "{:,.0f}".format),
    Col("attainable (GFLOP/s)", lambda p: f"{p.most:,.0f}" + (" (L2)" if p.memory == "l2" else "")),
    Col("of it", "fraction", percent),
    Col("effective GB/s", "gbps", "{:,.0f}".format),
)


@dataclass(frozen=True)
class Roofline:
    """A roofline with its points; a notebook shows the figure, with alt text, and the table beneath it."""

    points: tuple[Point, ...]
    ceilings: Ceilings
    name: str = ""
    caption: str = ""

    @property
    def alt(self) -> str:
        """The figure in words."""
        return alt_text(self.points, self.ceilings, self.name)

    def figure(self) -> Figure:
        """The figure, drawn anew."""
        return plot(self.points, self.ceilings, title=self.name)

    def table(self) -> Markdown:
        """A row a point."""
        return of_rows(COLUMNS, self.points)

    def __str__(self) -> str:
        return "\n".join([self.alt, "", self.table().removesuffix("\n"), self.caption])

    def _repr_html_(self) -> str:
        head, body, _ = cells(COLUMNS, self.points)
        image = as_img(as_png(self.figure()), self.alt)
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>"
        return f"<figure>{image}{as_html(head, body)}{caption}</figure>"


def for_machine(machine: Machine, points: Sequence[Point] = ()) -> Roofline:
    """The empty roofline of a machine, or with points of one's own. Raises RooflineError without ceilings."""
    if machine.ceilings is None:
        raise RooflineError(f"no ceilings are known for {machine.name}: measure them (dwlab.measure.device.measure())")
    return Roofline(tuple(points), machine.ceilings, machine.name, f"Ceilings: {machine.ceilings.source}.")
