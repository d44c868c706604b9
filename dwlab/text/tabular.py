"""Tables as text: cells and lines of Markdown, aligned columns, numbers as text."""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class Markdown(str):
    """Markdown text that a notebook renders and a terminal prints."""

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)


SCROLLS = 'tabindex="0" role="group" aria-label="{}"'
"""Attributes of an element that may scroll sideways: the keyboard reaches it, and a screen reader says its name."""


class Columns(str):
    """Text in columns: a notebook lets it scroll sideways and does not wrap its lines; a terminal prints it."""

    def _repr_html_(self) -> str:
        return (
            f'<pre {SCROLLS.format("table")} style="white-space:pre;overflow-x:auto;margin:0">{html.escape(self)}</pre>'
        )

    def __repr__(self) -> str:
        return str(self)


def numeric(cells: Iterable[str]) -> bool:
    """Whether all cells that are not empty begin with a digit, a sign or "–": such a column is set to the right."""
    filled = [cell for cell in cells if cell]
    return bool(filled) and all(cell[0].isdigit() or cell[0] in "+-×–" for cell in filled)


FAILED = "FAILED"


def alarm(text: str) -> str:
    """HTML of a word that says that something is wrong, in white on red: it is read in a light theme and in a dark."""
    return f'<b style="background:#B00020;color:white;padding:0 4px">{html.escape(text)}</b>'


def prose(text: str) -> str:
    """HTML of sentences: what stands between backticks is code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(text)).replace("\n", "<br>")


def as_html(head: Sequence[str], body: Sequence[Sequence[str]], caption: str = "", left: Collection[int] = ()) -> str:
    """A table element that scrolls where its place is narrow, with a caption and heads for screen readers.

    A column of numbers is set to the right and never breaks; text is set to the left, head and cells alike, and so are
    the columns in `left`, whose text begins with digits. A cell that is FAILED stands out. The styles stand at each
    cell: a notebook program's own set all text to the right, and none of a page's come with a saved file.
    """
    right = [i not in left and numeric(row[i] for row in body) for i in range(len(head))]
    widest = [max((len(row[i]) for row in body), default=0) for i in range(len(head))]

    def cells(row: Sequence[str], head_row: bool) -> str:
        parts = []
        for i, cell in enumerate(row):
            side = "right" if right[i] else "left"
            # Only numbers never break: in a narrow place the last columns would be hidden.
            wrap = "nowrap" if right[i] and not head_row else f"normal;min-width:{min(6, 0.6 * widest[i]):g}em"
            weight = "bold;vertical-align:bottom" if head_row else "normal"
            style = f"text-align:{side};white-space:{wrap};padding:2px 5px;font-weight:{weight}"
            name, scope = ("th", ' scope="col"') if head_row else ("th", ' scope="row"') if not i else ("td", "")
            if not cell:
                name, scope = "td", ""  # an empty head names nothing
            shown = alarm(cell) if cell == FAILED else html.escape(cell)
            parts.append(f'<{name}{scope} style="{style}">{shown}</{name}>')
        return "<tr>" + "".join(parts) + "</tr>"

    title = f'<caption style="text-align:left;font-weight:bold;padding:2px 5px">{html.escape(caption)}</caption>'
    return (
        f"<div {SCROLLS.format(html.escape(caption or 'table'))} "
        'style="overflow-x:auto;max-width:100%;margin-bottom:10px">'
        f'<table style="border-collapse:collapse;font-size:12px">'
        f"{title if caption else ''}<thead>{cells(head, True)}</thead>"
        f"<tbody>{''.join(cells(row, False) for row in body)}</tbody></table></div>"
    )


def percent(fraction: float | None) -> str:
    """A fraction in percent, "" for None."""
    return "" if fraction is None else f"{100 * fraction:.1f} %"


def line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def heading(names: Sequence[str], left: Iterable[int] = (0,)) -> list[str]:
    """The two lines that a Markdown table begins with; the columns in `left` (negative: from the end) hold text."""
    text = {i % len(names) for i in left}
    return [line(names), line(["---" if i in text else "---:" for i in range(len(names))])]


def markdown(names: Sequence[str], body: Iterable[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """A Markdown table, as `heading` begins it."""
    return "\n".join([*heading(names, left), *map(line, body)])


@dataclass(frozen=True)
class Col:
    """A column of a table. of: a field of the row, or what makes the value of it; None shows as "".

    show: the value as text. left: whether it is text, which is set to the left.
    """

    head: str
    of: str | Callable[[Any], Any]
    show: Callable[[Any], str] = str
    left: bool = False

    def cell(self, row: Any) -> str:
        """The text of a row in this column."""
        if callable(self.of):
            value = self.of(row)
        else:
            value = row.get(self.of) if isinstance(row, Mapping) else getattr(row, self.of)
        return "" if value is None else self.show(value)


def cells(columns: Sequence[Col], rows: Iterable[Any]) -> tuple[list[str], list[list[str]], list[int]]:
    """(heads, cells of each row, places of the columns set to the left), as all that makes tables takes them."""
    body = [[one.cell(row) for one in columns] for row in rows]
    return [one.head for one in columns], body, [i for i, one in enumerate(columns) if one.left]


def of_rows(columns: Sequence[Col], rows: Iterable[Any], notes: Iterable[str] = ()) -> Markdown:
    """A Markdown table, a line a row; below it the notes."""
    return Markdown("\n".join([markdown(*cells(columns, rows)), "", *notes, ""]))


def mb(size: float | None) -> str:
    """A number of bytes in 1e6, "" for None."""
    return "" if size is None else f"{size / 1e6:,.2f}"


def rounded(value: float | None) -> str:
    """Four significant digits at least, thousands separated: 8,884 and 193.7 and 2.514."""
    if value is None:
        return ""
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"


def times(value: float | None, slower: bool = False) -> str:
    """How many times as fast, "" for None. slower: what is below 1 is marked."""
    if value is None:
        return ""
    return f"{value:,.2f}" + (" (slower)" if slower and value < 1 else "")


def result(one: Mapping[str, Any]) -> str:
    """Whether a row with a baseline won; "" where it has none."""
    ratio = one.get("speedup_vs_peer")
    return "" if ratio is None else "won" if ratio >= 1 else "LOST"


def wrapped(text: object, width: int = 88) -> str:
    """str(text) with its lines broken at spaces, none longer than `width` unless one word is.

    For sentences that are printed: JupyterLab breaks a printed line that its page has no room for at any character,
    in the middle of a number too. What is broken off stands two columns further in than its line.
    """
    lines = []
    for one in str(text).split("\n"):
        margin = " " * (len(one) - len(one.lstrip()) + 2)
        short = len(one) <= width
        lines += [one] if short else textwrap.wrap(
            one, width, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
        )  # fmt: skip
    return "\n".join(lines)


def columns(head: Sequence[str], body: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> Columns:
    """Rows of text in aligned columns; the columns in ``left`` are aligned left, the others right."""
    left = set(left)
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *body]:
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return Columns("\n".join(lines))
