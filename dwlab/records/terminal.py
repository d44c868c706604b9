"""What commands print on a terminal: tables and sentences that fit its width, progress, errors without escape codes."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from dwlab.records import tabular

SENTENCES = 100
"""Characters of a line of sentences at most."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[\x00-\x08\x0e-\x1f\x7f]"
)


def plain(text: object) -> str:
    """str(text) in one line, without what a terminal would take for a command: colours, cursor moves, bells."""
    return " ".join(_ESCAPES.sub("", str(text)).split())


def width() -> int | None:
    """Characters of a line where stdout is a terminal; None for a pipe or a file, which take any."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def wrapped(text: str, columns: int | None = None) -> str:
    """Sentences in lines of at most SENTENCES characters, or of `columns` if that is less."""
    line = max(20, min(SENTENCES, columns or SENTENCES))
    return "\n".join(
        textwrap.fill(one, line, break_long_words=False, break_on_hyphens=False) for one in text.split("\n")
    )


def table(
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    left: Iterable[int] = (0,),
    *,
    columns: int | None = None,
    cut: int | None = None,
    least: int = 16,
    spare: Sequence[int] = (),
) -> str:
    """Rows in aligned columns that fit `columns` characters (None: any).

    What is too wide loses characters of the column `cut`, down to `least` (an … says so), then the columns `spare`, the
    first of them first, and then characters of `cut` again.
    """
    left, kept = set(left), list(range(len(head)))
    widths = [max(len(row[i]) for row in (head, *body)) for i in kept]

    def over() -> int:
        return 0 if columns is None else sum(widths[i] for i in kept) + 2 * (len(kept) - 1) - columns

    def narrow(down_to: int) -> None:
        if cut is not None and over() > 0:
            widths[cut] = min(widths[cut], max(down_to, widths[cut] - over()))

    narrow(least)
    for i in spare:
        if over() > 0:
            kept.remove(i)
    narrow(max(1, len(head[cut])) if cut is not None else 0)

    def cells(row: Sequence[str]) -> list[str]:
        return [row[i] if len(row[i]) <= widths[i] else row[i][: widths[i] - 1] + "…" for i in kept]

    return tabular.columns(cells(head), [cells(row) for row in body], {kept.index(i) for i in left & set(kept)})


@contextmanager
def progress(total: int | None = None, unit: str = "step") -> Iterator[Callable[[str], None]]:
    """A function to call with what is done next, once a step: a bar on stderr if that is a terminal, else nothing."""
    from tqdm import tqdm

    # disable=None: tqdm keeps quiet where stderr is no terminal.
    with tqdm(total=total, disable=None, file=sys.stderr, leave=False, unit=unit) as bar:

        def told(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        yield told


def wrote(*paths: object) -> None:
    """Says on stderr which files were written."""
    print(f"wrote {', '.join(str(path) for path in paths)}", file=sys.stderr)
