"""What drawings are made of: rectangles, labels and lines as SVG, and a picture with its words and tables."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwlab.text import tabular

WIDE = 704
"""Width of a picture: 22 for each lane of a warp."""

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

    def markdown(self) -> str:
        """A Markdown table under its caption."""
        head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in (self.columns, *self.rows)]
        return f"**{self.caption}**\n\n{tabular.markdown(head, rows, self._left)}"

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


def line(x1: float, y1: float, x2: float, y2: float, thick: float = 1, dashed: bool = False) -> str:
    """A straight line in the text's colour."""
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x1:.4g}" y1="{y1:.4g}" x2="{x2:.4g}" y2="{y2:.4g}" stroke="currentColor" '
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
