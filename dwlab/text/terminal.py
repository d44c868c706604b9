"""Text on a terminal: tables and sentences that fit its width, progress, errors without escape codes.

`attended` does it for a whole command: whatever a room prints is fitted, and who waits for it sees that it works.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from dwlab.text import tabular

SENTENCES = 100
"""Characters of a line of sentences at most."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])|[\x00-\x08\x0e-\x1f\x7f]"
)


_ENDLESS = re.compile(r"(\S{120})\S{120,}(\S{40})")

PATIENCE_S = 2.0
"""Seconds without a sign of life after which a terminal shows that a command works."""


def plain(text: object) -> str:
    """str(text) in one line, without what a terminal would take for a command: colours, cursor moves, bells.

    The middle of a word of hundreds of characters, such as a wrong value, is left out.
    """
    return _ENDLESS.sub(r"\1…\2", " ".join(_ESCAPES.sub("", str(text)).split()))


def width() -> int | None:
    """Characters of a line where stdout is a terminal, 20 at least; None for a pipe or a file, which take any."""
    return max(20, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def fitted(line: str, columns: int) -> str:
    """A printed line in `columns` characters: aligned columns, source and rules are cut (an … says so), words wrapped.

    What is aligned has two spaces side by side, or none at all.
    """
    text = line.strip()
    if len(line) <= columns or not text:
        return line
    if "  " in text or " " not in text:
        return line[: columns - 1] + "…"
    margin = " " * min(len(line) - len(line.lstrip()), columns // 2)
    return textwrap.fill(text, columns, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)


class _Watched:
    """A stream that calls `first` before anything is written to it; columns: what is written is fitted to them."""

    def __init__(self, stream: TextIO, first: Callable[[], None], columns: int | None = None):
        self._stream, self._first, self._columns, self._rest = stream, first, columns, ""

    def write(self, text: str) -> int:
        self._first()
        if self._columns is None:
            return self._stream.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._stream.write(fitted(line, self._columns) + "\n")
        return len(text)

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        self._stream.write(rest)
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def attended(what: str, fit: bool = True) -> Iterator[None]:
    """Within it, who looks at a terminal is served: stdout is fitted to it (fit), and stderr says what works meanwhile.

    A command that has written nothing, to either of them, for PATIENCE_S says so, and for how long, until it does.
    Pipes and files get what is printed, and nothing else.
    """
    out, err = sys.stdout, sys.stderr
    done, lock, shown = threading.Event(), threading.Lock(), [0]

    def first() -> None:
        with lock:
            if not done.is_set():
                done.set()
                err.write("\r" + " " * shown[0] + "\r" if shown[0] else "")
                err.flush()

    def tell() -> None:
        start = time.monotonic()
        wait = PATIENCE_S
        while not done.wait(wait):
            with lock:
                if not done.is_set():
                    text = f"{what} works, {time.monotonic() - start:.0f} s so far"
                    shown[0], wait = len(text), 1.0
                    err.write(f"\r{text}")
                    err.flush()

    watcher = threading.Thread(target=tell, daemon=True) if err.isatty() else None
    if watcher is not None:
        sys.stderr = _Watched(err, first)
        watcher.start()
    if watcher is not None or out.isatty():
        sys.stdout = _Watched(out, first if watcher is not None else lambda: None, width() if fit else None)
    try:
        yield
    finally:
        if watcher is not None:
            first()
            watcher.join()
        if sys.stdout is not out:
            sys.stdout.flush()
        sys.stdout, sys.stderr = out, err


def wrapped(text: str, columns: int | None = None) -> str:
    """Sentences in lines of at most SENTENCES characters, or of `columns` if that is less."""
    line = min(SENTENCES, columns or SENTENCES)
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

        def step(what: str) -> None:
            bar.set_description_str(what)
            bar.update()

        yield step


def wrote(*paths: object) -> None:
    """Says on stderr which files were written."""
    print(f"wrote {', '.join(str(path) for path in paths)}", file=sys.stderr)
