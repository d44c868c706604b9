"""Bar charts as the widgets draw them: axes without a frame, a heading, a legend in one line, stacked bars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Part = tuple[str, str, str]
"""A part of a chart: its name, colour and hatch."""

EDGE = {"edgecolor": "white", "linewidth": 0.8}
TIGHT = "////"
"""Hatch of a bar that is at a limit, or beyond it."""


def chart(width: float, height: float, *places: tuple[float, float, float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches, and its axes at these places: left, bottom, width, height, as parts of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100)
    made = [figure.add_axes(place) for place in places]
    for axes in made:
        axes.tick_params(labelsize=8, length=2)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, made


def heading(figure: Figure, y: float, text: str) -> None:
    """A heading above a chart."""
    figure.text(0.01, y, text, fontsize=10, fontweight="bold", va="top")


def key(figure: Figure, y: float, parts: Sequence[Part]) -> None:
    """A legend in one line."""
    from matplotlib.patches import Rectangle

    x = 0.03
    for name, colour, hatch in parts:
        box = Rectangle((x, y - 0.018), 0.035, 0.018, transform=figure.transFigure, facecolor=colour, hatch=hatch,
                        edgecolor="white", linewidth=0)  # fmt: skip
        figure.add_artist(box)
        figure.text(x + 0.045, y - 0.009, name, fontsize=8, va="center")
        x += 0.075 + 0.0155 * len(name)


def stacked(
    axes: Axes, rows: Sequence[str], parts: Sequence[Part], widths: Sequence[Sequence[float]], text: Callable
) -> float:
    """A bar a row, made of parts, with its total behind it. widths: of each part in each row. Returns the longest."""
    places, left = range(len(rows)), [0.0] * len(rows)
    for (_, colour, hatch), own in zip(parts, widths, strict=True):
        axes.barh(places, own, left=left, color=colour, hatch=hatch, height=0.62, **EDGE)
        left = [start + width for start, width in zip(left, own, strict=True)]
    for place, total in enumerate(left):
        axes.text(total + max(left) * 0.015, place, text(total), fontsize=8, va="center")
    axes.set(ylim=(len(rows) - 0.5, -0.5), yticks=places, yticklabels=rows)
    return max(left)
