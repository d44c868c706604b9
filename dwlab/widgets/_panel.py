"""A widget's content as a value: a figure, its text, its numbers. Sliders only choose which value is shown.

A Panel renders as HTML (picture and tables side by side, one under the other where the place is narrow) and as plain
text; that needs no matplotlib, and neither needs ipywidgets or a running kernel.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dwlab.text.drawing import Drawing, Table, as_img, as_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure


BESIDE = 400  # pixels that tables have at least beside a picture


@dataclass(frozen=True)
class Panel:
    """A figure with its alt text, its tables, and notes.

    problems: what is wrong with the values chosen, one sentence each. notes: how to read the numbers.
    draw: makes the figure, of matplotlib or a drawing. `figure()` is None for a panel that has only words, such as one
    for an expression that cannot be read.
    """

    title: str
    alt: str
    tables: tuple[Table, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    draw: Callable[[], Figure | Drawing] | None = field(default=None, repr=False, compare=False)

    def figure(self) -> Figure | Drawing | None:
        """A fresh figure."""
        return self.draw() if self.draw else None

    def image(self) -> str:
        """The figure as an element of a page; "" if there is none."""
        figure = self.figure()
        if figure is None:
            return ""
        return figure.svg() if isinstance(figure, Drawing) else as_img(as_png(figure), self.alt)

    def text(self) -> str:
        """All of it in words and plain tables."""
        parts = [self.title, *(f"! {problem}" for problem in self.problems), self.alt]
        return "\n\n".join([*filter(None, parts), *(table.text() for table in self.tables), *self.notes])

    __str__ = text

    def html(self) -> str:
        """Picture beside tables; they wrap under each other in a narrow place."""
        image = self.image()
        # The place decides the width, never a wide table in it.
        parts = ['<div style="contain:inline-size;width:100%">']
        for problem in self.problems:
            parts.append(
                '<p role="alert" style="border-left:4px solid #D55E00;padding:2px 8px;margin:4px 0">'
                f"<b>Not possible:</b> {html.escape(problem)}</p>"
            )
        # The picture has a white ground of its own. Tables have the page's colours: JupyterLab sets those of a stored
        # table, and on a white ground its heads would be white in a dark theme.
        parts.append('<div style="display:flex;flex-wrap:wrap;gap:12px;align-items:flex-start">')
        if image:
            # Where both just fit side by side the picture gets smaller, rather than that a column of a table is hidden.
            parts.append(f'<div style="flex:1 1 460px;max-width:600px;min-width:0">{image}</div>')
        parts.append(f'<div style="flex:1 1 {BESIDE}px;min-width:0;max-width:100%;line-height:1.35">')
        parts.extend(table.html() for table in self.tables)
        parts.extend(
            f'<p style="font-size:13px;margin:6px 8px;max-width:60em">{html.escape(note)}</p>' for note in self.notes
        )
        parts.append("</div></div></div>")
        return "".join(parts)

    _repr_html_ = html

    def _repr_pretty_(self, printer, cycle: bool) -> None:
        printer.text(self.text())


def sentence(error: Exception) -> str:
    """An exception's message as a sentence."""
    message = str(error).strip() or type(error).__name__
    return message[0].upper() + message[1:] + ("" if message[-1] in ".!?" else ".")
