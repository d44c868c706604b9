"""What tables are made of: cells and lines of Markdown, aligned columns, numbers as text."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Markdown(str):
    """Markdown text that a notebook renders and a terminal prints."""

    def _repr_markdown_(self) -> str:
        return str(self)

    def __repr__(self) -> str:
        return str(self)


class Columns(str):
    """Text in columns: a notebook lets it scroll sideways and does not wrap its lines; a terminal prints it."""

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto"><pre style="white-space:pre">{html.escape(self)}</pre></div>'

    def __repr__(self) -> str:
        return str(self)


def percent(fraction: float | None) -> str:
    """A fraction in percent, "" for None."""
    return "" if fraction is None else f"{100 * fraction:.1f} %"


def line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


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
    """Whether a row with a peer won; "" where it has none."""
    ratio = one.get("speedup_vs_peer")
    return "" if ratio is None else "won" if ratio >= 1 else "LOST"


def wrapped(text: object, width: int = 90) -> str:
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
