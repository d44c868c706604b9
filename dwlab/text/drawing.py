"""Pictures and their words: tables, SVG of rectangles, labels and lines; figures with alt text, as PNG; pages."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwlab.text import tabular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE = 704
"""Width of a picture: 22 for each lane of a warp."""

# Okabe and Ito's palette and two darker colours; neighbours differ in lightness too, for print in grey.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#7A6A00", "#CC79A7", "#333333", "#D55E00", "#56B4E9")
LINES = ("solid", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "||||")

BLUE, ORANGE = "#0072b2", "#b34700"
WARPS = (BLUE, "#e69f00", "#00704f", "#cc79a7", "#56b4e9", "#7a6a00", "#b34700", "#8a8a8a")
"""Fills of neighbouring warps, and what is readable on each."""
INKS = ("white", "black", "white", "black", "black", "white", "white", "black")


@dataclass(frozen=True)
class Table:
    """Rows of text under column heads. Columns whose cells all begin with a digit or a sign are set to the right."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row {row} has {len(row)} cells; the table has {len(self.columns)} columns")

    @property
    def _left(self) -> list[int]:
        return [i for i in range(len(self.columns)) if not tabular.numeric(row[i] for row in self.rows)]

    def text(self) -> str:
        """Columns lined up by spaces."""
        return f"{self.caption}\n{tabular.columns(self.columns, self.rows, self._left)}"

    def html(self) -> str:
        """A table element with a caption and column heads for screen readers."""
        return tabular.as_html(self.columns, self.rows, self.caption)


@dataclass(frozen=True)
class Drawing:
    """A picture with its words. body: SVG elements in `width` × `height` units; alt: what is to be seen in it."""

    title: str
    alt: str
    body: str
    height: float
    tables: tuple[Table, ...] = ()
    width: float = WIDE

    def svg(self) -> str:
        """The picture alone. Lines and text have the colour of the text around it."""
        return (
            f'<svg role="img" viewBox="-2 -2 {self.width + 4:g} {self.height + 4:g}" width="{self.width + 4:g}" '
            'style="max-width:100%;height:auto" font-family="system-ui, sans-serif" font-size="12" '
            f'fill="currentColor"><title>{html.escape(self.alt)}</title>{self.body}</svg>'
        )

    def html(self) -> str:
        """The picture, and below it the tables."""
        tables = "".join(table.html() for table in self.tables)
        return f'<div class="dwlab-drawing"><p><b>{html.escape(self.title)}</b></p>{self.svg()}{tables}</div>'

    _repr_html_ = html

    def text(self) -> str:
        """All of it in words."""
        return "\n\n".join([self.title, self.alt, *(table.text() for table in self.tables)])

    __str__ = text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())

    def save(self, path: str | Path) -> Path:
        """Writes a page of its own. Returns its path."""
        return write(path, self.title, self.html())


# ---- elements


def box(
    x: float, y: float, width: float, height: float, fill: str = "none", thick: float = 1, rounded: float = 0
) -> str:
    """A rectangle with the outline of the text's colour; thick=0: without one."""
    place = f'x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}"'
    drawn = f' stroke="currentColor" stroke-width="{thick:g}"' if thick else ""
    return f'<rect {place} fill="{fill}"' + (f' rx="{rounded:g}"' if rounded else "") + f"{drawn}/>"


def label(
    x: float, y: float, text: str, size: float = 12, anchor: str = "start", ink: str = "", bold: bool = False
) -> str:
    """Text whose base line begins, ends or is centred at (x, y)."""
    more = (f' fill="{ink}"' if ink else "") + (' font-weight="bold"' if bold else "")
    return f'<text x="{x:.4g}" y="{y:.4g}" font-size="{size:g}" text-anchor="{anchor}"{more}>{html.escape(text)}</text>'


def line(
    x1: float, y1: float, x2: float, y2: float, thick: float = 1, dashed: bool = False, ink: str = "currentColor"
) -> str:
    """A straight line, in the text's colour if no other is given."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x1:.4g}" y1="{y1:.4g}" x2="{x2:.4g}" y2="{y2:.4g}" stroke="{ink}" '
        f'stroke-width="{thick:g}"{dashes}/>'
    )


def arrow(x: float, y1: float, y2: float) -> str:
    """A line up and down, with heads at both ends."""
    heads = "".join(
        f'<path d="M{x - 4:.4g} {y + step:.4g} L{x:.4g} {y:.4g} L{x + 4:.4g} {y + step:.4g} Z"/>'
        for y, step in ((y1, 6), (y2, -6))
    )
    return line(x, y1, x, y2, 1.5) + heads


# ---- pages


def write(path: str | Path, title: str, body: str) -> Path:
    """Writes a part of a page as a page. title: a text. Returns its path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title>"
        "<style>:root { color-scheme: light dark } body { margin: 16px }</style></head>\n"
        f"<body><main>{body}</main></body></html>\n",
        encoding="utf-8",
    )
    return target


def dims(sizes: tuple[int, int, int]) -> str:
    """A grid or block without trailing ones: "2 × 8"."""
    return " × ".join(map(str, sizes[: max([k + 1 for k, n in enumerate(sizes) if n > 1] or [1])]))


# ---- figures of matplotlib


def as_png(figure: Figure) -> bytes:
    """A figure as PNG bytes, at its own size and resolution."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    if not isinstance(figure.canvas, FigureCanvasAgg):
        FigureCanvasAgg(figure)
    figure.canvas.draw()
    return encode(figure.canvas.buffer_rgba())


def encode(pixels) -> bytes:
    """Pixels (height, width, 4) as PNG bytes of at most 128 colours: a fourth of the size, in half of the time."""
    from PIL import Image

    buffer = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(np.asarray(pixels)[..., :3]))
    few = image.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    # Averaging leaves the paper a shade off white.
    palette = np.array(few.getpalette()).reshape(-1, 3)
    palette[(palette > 250).all(axis=1)] = 255
    few.putpalette(palette.ravel().tolist())
    few.save(buffer, format="PNG", compress_level=4)
    return buffer.getvalue()


def as_img(png: bytes, alt: str) -> str:
    """An `<img>` element with the picture inside it and `alt` as its text; never wider than its place."""
    data = base64.b64encode(png).decode()
    return (
        f'<img alt="{html.escape(alt, quote=True)}" style="max-width:100%;height:auto" '
        f'src="data:image/png;base64,{data}">'
    )


def with_alt(figure: Figure, alt: str) -> Figure:
    """Gives a figure its alt text, and the HTML that a notebook shows for it."""
    figure.alt = alt
    figure._repr_html_ = lambda: as_img(as_png(figure), alt)
    return figure
