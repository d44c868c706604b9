"""A plan as a picture, and the picture in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwlab.planner import Plan
from dwlab.planner.modules import NAMES
from dwlab.problems import networks
from dwlab.problems.networks import summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"dwpw": "#56B4E9", "pwdw": "#E69F00", "pwdw_r": "#F0E442", "pwpw": "#CC79A7"}
"""Colours of the modules, from Okabe and Ito's palette: distinct with any colour vision; hatches for print in grey."""

HATCHES = {"dwpw": "", "pwdw": "//", "pwdw_r": "..", "pwpw": "xx"}

PER_ROW = 8
"""Layers in a row of the picture: as many as leave their text readable on a page of 800 pixels."""


def draw(made: Plan, width: float = 6.8) -> Figure:
    """The network's layers as boxes, row after row; layers that share a kernel stand in one frame. A line joins a layer
    to the next where that reads it.

    width: inches. The figure's `alt` is `describe(made)`; a notebook shows both.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyBboxPatch, Patch

    from dwlab.text.drawing import with_alt

    step_of = {name: step for step in made.steps for name in step.layers}
    rows = _rows(made)
    high = 1.1 + 0.92 * len(rows)
    figure = Figure(figsize=(width, high), dpi=110)
    axes = figure.add_axes((0.005, 0.005, 0.99, 1 - 0.5 / high))
    axes.set(xlim=(-0.1, PER_ROW + 0.1), ylim=(len(rows) + 0.55, -0.05))
    axes.axis("off")
    axes.set_title(_title(made).replace(": ", ":\n", 1), fontsize=10, loc="left")
    for y, row in enumerate(rows):
        for x, layer in enumerate(row):
            step = step_of.get(layer.name)
            if step and step.fused and step.layers[0] == layer.name:
                kind = step.module.kind
                frame = FancyBboxPatch(
                    (x + 0.03, y + 0.05), len(step.layers) - 0.06, 0.86, boxstyle="round,pad=0,rounding_size=0.06",
                    facecolor=COLOURS[kind], hatch=HATCHES[kind], edgecolor="black", lw=1.6,
                )  # fmt: skip
                axes.add_patch(frame)
            box = FancyBboxPatch(
                (x + 0.06, y + 0.13), 0.88, 0.7, boxstyle="round,pad=0,rounding_size=0.04",
                facecolor="white" if layer.planned else "0.9", edgecolor="0.35", lw=0.8, zorder=3,
            )  # fmt: skip
            axes.add_patch(box)
            axes.text(x + 0.5, y + 0.48, _box_text(layer), ha="center", va="center", fontsize=6.5, zorder=4)
            if x + 1 < len(row) and row[x + 1].input == layer.name:
                axes.plot([x + 0.94, x + 1.06], [y + 0.48] * 2, color="0.35", lw=0.8, zorder=2)
    patches = [
        Patch(facecolor=COLOURS[kind], hatch=HATCHES[kind], edgecolor="black", label=f"{NAMES[kind]}, one kernel")
        for kind in COLOURS
        if any(step.module.kind == kind for step in made.steps)
    ]
    patches += [Patch(facecolor="white", edgecolor="0.35", label="a kernel of its own")]
    patches += [Patch(facecolor="0.9", edgecolor="0.35", label="not planned")]
    axes.legend(handles=patches, loc="lower left", ncols=3, fontsize=8, frameon=False, borderpad=0)
    return with_alt(figure, describe(made))


def _rows(made: Plan) -> list[list[networks.Layer]]:
    """Layers in rows of at most PER_ROW, none ending inside a kernel."""
    inside = {name for step in made.steps for name in step.layers[1:]}
    pieces: list[list[networks.Layer]] = []
    for layer in made.network.layers:
        if layer.name in inside:
            pieces[-1].append(layer)
        else:
            pieces.append([layer])
    rows: list[list[networks.Layer]] = [[]]
    for piece in pieces:
        if len(rows[-1]) + len(piece) > PER_ROW:
            rows.append([])
        rows[-1] += piece
    return rows


def _box_text(layer: networks.Layer) -> str:
    """The layer's name, what it is, and on which map."""
    block, _, role = layer.name.partition(".")
    words = summary(layer.problem).split(" ")
    lines = [" ".join(words[:-1]), words[-1]] if layer.planned else [words[0], " ".join(words[1:-1]), words[-1]]
    return "\n".join([f"{block} {role}".strip(), *(line for line in lines if line not in ("", role))])


def _title(made: Plan) -> str:
    network, fused = made.network, sum(step.fused for step in made.steps)
    return (
        f"{network.name} on {made.gpu.name}, batch {network.batch}, {network.layout}, {network.dtype}: "
        f"{len(made.steps)} kernels, {fused} of them fused; {made.times()}"
    )


def describe(made: Plan) -> str:
    """The picture in words, for those who cannot see it."""
    fused = [f"{' and '.join(step.layers)} as {NAMES[step.module.kind]}" for step in made.steps if step.fused]
    text = f"{_title(made)}. A chain of {len(made.network.layers)} boxes, one for each layer; "
    return text + (f"in one frame are {'; '.join(fused)}." if fused else "no two stand in one frame.")
